"""Random damage to archives, the same on every run: bytes anywhere in a file, and values in its JSON; and archives made
to harm whoever unpacks them."""

import json
import os
import random
import zipfile

COUNT = int(os.environ.get("EQUIFORGE_TEST_MUTATIONS", "500"))  # of each kind of file, in bytes and in values


def hostile(path, case, first):
    """`first`: the entry, with its contents, by which a reader knows the kind of archive."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        if case not in {"nothing", "pickle"}:
            file.writestr(*first)
        if case == "bomb":
            file.writestr(first[0].rsplit("/", 1)[0] + "/models/model.json", b" " * 300_000_000)
        elif case == "twice":
            file.writestr(*first)
        elif case == "pickle":
            file.writestr("m/data.pkl", b"\x80\x02.")
        elif case != "nothing":
            file.writestr(zipfile.ZipInfo(case), b"evil")


def damaged_bytes(data, seed):
    """The file with a few bytes changed, cut short, grown, or with a part moved."""
    rng = random.Random(seed)
    bytes_ = bytearray(data)
    kind = rng.randrange(8)
    if kind == 0:
        del bytes_[rng.randrange(len(bytes_)) :]
    elif kind == 1:
        at = rng.randrange(len(bytes_))
        del bytes_[at : at + rng.randint(1, 64)]
    elif kind == 2:
        at = rng.randrange(len(bytes_))
        bytes_[at:at] = rng.randbytes(rng.randint(1, 64))
    elif kind == 3:  # the directory is at the end, and most of the file is not the directory
        at = len(bytes_) - rng.randint(1, min(1500, len(bytes_)))
        bytes_[at] = rng.randrange(256)
    elif kind == 4:
        at, other = rng.randrange(len(bytes_)), rng.randrange(len(bytes_))
        size = rng.randint(1, 200)
        bytes_[at : at + size] = bytes_[other : other + size]
    elif kind == 5:
        at = rng.randrange(len(bytes_) - 8)
        bytes_[at : at + 8] = rng.choice([b"\xff" * 8, b"\0" * 8, b"\x7f" + b"\xff" * 7, b"\0\0\0\x80" * 2])
    else:
        for _ in range(rng.choice([1, 1, 1, 8, 64])):
            bytes_[rng.randrange(len(bytes_))] ^= 1 << rng.randrange(8)
    return bytes(bytes_)


ODD = [None, True, False, 0, 1, -1, 2**31, 2**62, -(2**63), 0.5, -1e308, "", "x", "../../x", "a" * 5000, [], {}, [[]],
       {"as_int": 3}, {"as_none": True}, {"as_tensor": {"name": "x"}}]  # fmt: skip


def places(value, path=()):
    """Every place in a JSON tree."""
    if path:
        yield path
    if isinstance(value, dict):
        for key in value:
            yield from places(value[key], (*path, key))
    elif isinstance(value, list):
        for index in range(len(value)):
            yield from places(value[index], (*path, index))


def damaged_json(text, rng):
    tree = json.loads(text)
    for _ in range(rng.choice([1, 1, 2, 5])):
        path = rng.choice(list(places(tree)) or [None])
        if path is None:
            break
        at = tree
        for step in path[:-1]:
            at = at[step]
        kind = rng.randrange(5)
        if kind == 0:
            del at[path[-1]]
        elif kind == 1:
            at[path[-1]] = rng.choice(ODD)
        elif kind == 2 and isinstance(at, list):
            at.insert(path[-1], at[rng.randrange(len(at))])
        elif kind == 3 and isinstance(at[path[-1]], (int, float)) and not isinstance(at[path[-1]], bool):
            at[path[-1]] += rng.choice([1, -1, 1000, -1000, 10**15])
        else:
            other = list(places(tree))
            source = tree
            for step in rng.choice(other):
                source = source[step]
            at[path[-1]] = json.loads(json.dumps(source))
    return json.dumps(tree)


def damaged_entry(source, target, seed, wanted=lambda name: name.endswith(".json")):
    """Copies an archive with damage in the JSON of one entry; sums are right."""
    rng = random.Random(seed)
    with zipfile.ZipFile(source) as old, zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as new:
        victim = rng.choice([name for name in old.namelist() if wanted(name)])
        for name in old.namelist():
            data = old.read(name)
            new.writestr(name, damaged_json(data, rng) if name == victim else data)
