"""`.pt2` archives: `inspect` finds what PyTorch exported, and refuses what it cannot read in one line."""

import json
import os
import re
import shutil
import subprocess
import sys
import zipfile

import pytest
from conftest import ROOT
from mutate import hostile

SCRIPT = ROOT / "tests/frontend/make_archives.py"
COMMITTED = sorted((ROOT / "tests/frontend/archives").glob("*/*.pt2"))
GOOD = ["tied", "storage", "types", "mutations", "mutations_functional", "regions", "results", "arguments",
        "attention", "attention_functional", "deep", "same", "counts", "branch", "mixed"]  # fmt: skip
REFUSED = ["dynamic"]


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """Archives of the installed PyTorch."""
    folder = tmp_path_factory.mktemp("exported")
    subprocess.run([sys.executable, "-W", "ignore", SCRIPT, folder], check=True, stdout=subprocess.DEVNULL)
    return folder


def tensors(listed):
    return [{key: tensor[key] for key in ("name", "dtype", "shape")} for tensor in listed]


def agrees(equiforge, path):
    """What `inspect` finds is what the exporter says."""
    says = json.loads(path.with_suffix(".json").read_text())
    if "refused" in says:
        refuses(equiforge, path, says["refused"])
        return
    value = equiforge.json("inspect", path)
    assert value["program"] == path.stem
    for kind in ("inputs", "parameters", "outputs"):
        assert tensors(value[kind]) == says[kind]
    assert value["operators"] == says["operators"]


def refuses(equiforge, path, words):
    result = equiforge("inspect", path)
    assert (result.returncode, result.stdout) == (2, ""), result.stderr
    assert len(result.stderr.splitlines()) == 1
    assert result.stderr.startswith(f"{path}: ")
    assert re.search(words, result.stderr), result.stderr


@pytest.mark.parametrize("name", GOOD + REFUSED)
def test_archives_of_the_installed_version(equiforge, exported, name):
    agrees(equiforge, exported / f"{name}.pt2")


@pytest.mark.parametrize("path", COMMITTED, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_archives_of_other_versions(equiforge, path):
    agrees(equiforge, path)


def test_text_names_parameters_and_operators(equiforge):
    result = equiforge("inspect", "tests/frontend/archives/2.13/storage.pt2")
    assert (result.returncode, result.stderr) == (0, "")
    for word in ("inputs", "parameters", "outputs", "operators", "turned", "aten.matmul.default"):
        assert word in result.stdout.split()


# ---- archives that are not what they should be ----


def rewrite(source, target, change, compression=zipfile.ZIP_STORED):
    """Copies an archive; change(name, bytes) gives new bytes, another entry, or None to leave it out."""
    with zipfile.ZipFile(source) as old, zipfile.ZipFile(target, "w", compression) as new:
        for name in old.namelist():
            result = change(name.split("/", 1)[1], old.read(name))
            if isinstance(result, tuple):
                new.writestr(*result)
            elif result is not None:
                new.writestr(name, result)
    return target


def model_with(edit):
    def change(name, data):
        if name != "models/model.json":
            return data
        model = json.loads(data)
        edit(model, model["graph_module"]["graph"], model["graph_module"]["signature"])
        return json.dumps(model).encode()

    return change


def weights_with(edit):
    def change(name, data):
        if name != "data/weights/model_weights_config.json":
            return data
        config = json.loads(data)
        edit(config["config"])
        return json.dumps(config).encode()

    return change


def only(wanted, result):
    return lambda name, data: result if name == wanted else data


def set_in(path, value):
    """An edit of the graph: path is "nodes/0/target"."""

    def edit(_model, graph, _signature):
        at = graph
        *steps, last = path.split("/")
        for step in steps:
            at = at[int(step) if isinstance(at, list) else step]
        at[int(last) if isinstance(at, list) else last] = value

    return model_with(edit)


def meta_of(name, key, value):
    return weights_with(lambda config: config[name]["tensor_meta"].__setitem__(key, value))


BROKEN = {
    "not a model": (only("archive_format", b"pt1"), "not an archive of torch.export.save"),
    "newer layout": (only("archive_version", b"9"), "newer layout"),
    "big endian": (only("byteorder", b"big"), "big-endian"),
    "no program": (only("models/model.json", None), "no exported program"),
    "no weights": (only("data/weights/model_weights_config.json", None), "holds no 'data/weights"),
    "two programs": (
        lambda name, data: ("storage/models/b.json", data) if name == "archive_version" else data,
        "several",
    ),
    "missing entry": (only("data/weights/weight_0", None), "weight_0' is missing"),
    "short entry": (only("data/weights/weight_0", b"1234"), "goes beyond its 4 bytes"),
    "no JSON": (only("models/model.json", b"{"), r"models/model.json:1:1: "),
    "deep JSON": (only("models/model.json", b"[" * 100000), "models/model.json:1:"),
    "a list": (only("models/model.json", b"[]"), "not an object"),
    "not UTF-8": (only("models/model.json", b'{"\xff": 1}'), "models/model.json:1:"),
    "duplicate keys": (only("models/model.json", b'{"a": 1, "a": 2}'), "duplicate"),
    "old schema": (model_with(lambda model, *_: model["schema_version"].__setitem__("major", 7)), "schema version 7"),
    "pickled": (
        weights_with(lambda config: config["whole"].__setitem__("use_pickle", True)),
        "'whole' is a tensor sub",
    ),
    "far offset": (meta_of("whole", "storage_offset", {"as_int": 10**12}), "goes beyond|differs|impossible"),
    "negative offset": (meta_of("whole", "storage_offset", {"as_int": -4}), "impossible place"),
    "wide stride": (meta_of("whole", "strides", [{"as_int": 10**11}, {"as_int": 1}]), "goes beyond|too large"),
    "negative stride": (meta_of("whole", "strides", [{"as_int": -6}, {"as_int": 1}]), "not a size"),
    "huge size": (meta_of("whole", "sizes", [{"as_int": 10**12}, {"as_int": 10**12}]), "too large"),
    "larger than 64 bits": (meta_of("whole", "sizes", [{"as_int": 10**30}, {"as_int": 6}]), "too big integer"),
    "another shape": (meta_of("whole", "sizes", [{"as_int": 6}, {"as_int": 4}]), "differs from its bytes"),
    "another type": (meta_of("whole", "dtype", 8), "differs from its bytes"),
    "unknown type": (meta_of("whole", "dtype", 27), "unknown element type"),
    "ranks differ": (meta_of("whole", "strides", []), "2 sizes and 0 strides"),
    "path upwards": (weights_with(lambda config: config["whole"].__setitem__("path_name", "../../x")), "is missing"),
    "no target": (set_in("nodes/0/target", 3), "node 0: 'target' is not a text"),
    "no nodes": (set_in("nodes", {}), "'nodes' is not a list"),
    "undefined name": (set_in("nodes/0/inputs/0/arg/as_tensor/name", "nobody"), "'nobody' is used before"),
    "use of itself": (set_in("nodes/0/inputs/0/arg/as_tensor/name", "sum_1"), "'sum_1' is used before"),
    "defined twice": (set_in("nodes/1/outputs/0/as_tensor/name", "sum_1"), "'sum_1' is defined twice"),
    "two members": (set_in("nodes/0/inputs/0/arg", {"as_int": 1, "as_float": 2.0}), "one member"),
    "unknown argument": (set_in("nodes/0/inputs/0/arg", {"as_poem": "roses"}), "'as_poem' cannot be read"),
    "unknown tensor": (set_in("tensor_values", {}), "nothing is known of"),
    "too few inputs": (set_in("inputs", []), "0 inputs in the graph"),
    "too few outputs": (set_in("outputs", []), "0 outputs in the graph"),
    "other input": (set_in("inputs/0/as_tensor/name", "other"), "graph and signature differ"),
    "rank 65": (set_in("tensor_values/x/sizes", [{"as_int": 1}] * 65), "65 sizes"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_broken_archives(equiforge, tmp_path, case):
    change, words = BROKEN[case]
    source = ROOT / "tests/frontend/archives/2.13/storage.pt2"
    refuses(equiforge, rewrite(source, tmp_path / "broken.pt2", change), words)


@pytest.mark.filterwarnings("ignore:Duplicate name")
@pytest.mark.parametrize(
    "case, words",
    [
        ("bomb", "impossible size"),
        ("twice", "twice"),
        ("nothing", "not an archive of torch.export.save"),
        ("pickle", "torch.save"),
        ("../../evil", "not a relative path"),
        ("m/../../evil", "not a relative path"),
        ("/evil", "not a relative path"),
        ("m/..", "not a relative path"),
        ("m\\..\\evil", "not a relative path|not an archive"),
        ("m/new\nline", "not a relative path"),
    ],
)
def test_hostile_archives(equiforge, tmp_path, case, words):
    path = tmp_path / "m.pt2"
    hostile(path, case, ("m/archive_format", "pt2"))
    refuses(equiforge, path, words)
    assert [entry.name for entry in tmp_path.iterdir()] == ["m.pt2"]
    assert not (tmp_path.parent / "evil").exists()


def test_other_files_with_the_name_of_an_archive(equiforge, tmp_path):
    path = tmp_path / "m.pt2"
    refuses(equiforge, path, "No such file")
    path.mkdir()
    refuses(equiforge, path, "not a regular file")
    path.rmdir()
    path.write_bytes(b"")
    refuses(equiforge, path, "not a whole zip archive")
    path.write_bytes(b"program p\n")
    refuses(equiforge, path, "not a whole zip archive")
    path.unlink()
    os.mkfifo(path)
    refuses(equiforge, path, "not a regular file")


def test_a_repacked_archive_reads_the_same(equiforge, tmp_path):
    source = ROOT / "tests/frontend/archives/2.13/storage.pt2"
    packed = rewrite(source, tmp_path / "storage.pt2", lambda _, data: data, zipfile.ZIP_DEFLATED)
    assert packed.stat().st_size < source.stat().st_size / 2
    assert equiforge.json("inspect", packed) == equiforge.json("inspect", source)


def test_the_name_of_a_file_is_no_part_of_its_contents(equiforge, tmp_path):
    copy = shutil.copy(ROOT / "tests/frontend/archives/2.13/storage.pt2", tmp_path / "another name.pt2")
    assert equiforge.json("inspect", copy)["program"] == "another name"
