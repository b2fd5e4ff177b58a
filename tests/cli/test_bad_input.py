"""A bad file or argument is one clear line on stderr, exit 2, and nothing on stdout, whatever the verb."""

import os
import random
import re
import subprocess
import time

import pytest

GOOD = "tests/programs/rmsnorm_linear_b1.ef"
VERBS = {
    "inspect": lambda path: ("inspect", path),
    "optimize": lambda path: ("optimize", path, "--target", "cpu"),
    "search": lambda path: ("search", path, "--json"),
    "explain": lambda path: ("explain", "--from", GOOD, "--to", path),
}
PLACE = r":\d+:\d+: ."

# name: (contents, what the message says after the file's name)
FILES = {
    "empty": ("", PLACE),
    "truncated": ("program p\ninput x: f16[4, 8]\noutput o = exp(ad", PLACE),
    "no output": ("program p\ninput x: f16[4, 8]\n", PLACE),
    "unknown name": ("program p\ninput x: f16[4, 8]\noutput o = exp(y)\n", PLACE),
    "unknown operator": ("program p\ninput x: f16[4, 8]\noutput o = frobnicate(x)\n", PLACE),
    "wrong types": ("program p\ndim m = 4\ndim n = 8\ninput x: f16[m]\ninput y: f16[n]\noutput o = add(x, y)\n", PLACE),
    "inner sizes": (
        "program p\ndim m = 4\ndim n = 8\ninput x: f16[m, n]\ninput y: f16[m, n]\noutput o = matmul(x, y)\n",
        PLACE,
    ),
    "cyclic": ("program p\ninput x: f16[4]\na = exp(b)\nb = exp(a)\noutput o = add(x, b)\n", PLACE),
    "itself": ("program p\ninput x: f16[4]\noutput o = add(x, o)\n", PLACE),
    "huge size": ("program p\ndim m = 99999999999999999999999\ninput x: f16[m]\noutput o = exp(x)\n", PLACE),
    "huge tensor": ("program p\ninput x: f16[4000000, 4000000, 4000000]\noutput o = exp(x)\n", PLACE),
    "zero size": ("program p\ninput x: f16[0]\noutput o = exp(x)\n", PLACE),
    "deep": ("program p\ninput x: f16[4]\noutput o = " + "exp(" * 100000 + "x" + ")" * 100000 + "\n", PLACE),
    "NUL bytes": ("program p\n\0\0\0\0", PLACE),
    "10 MB of garbage": (random.Random(1).randbytes(10_000_000), ": ."),
    "8 MB of garbage": (random.Random(2).randbytes(8_000_000), PLACE),
    "one long line": ("program " + "p" * 7_000_000, PLACE),
}


def refuses(equiforge, arguments, expected):
    start = time.monotonic()
    result = equiforge(*arguments)
    took = time.monotonic() - start
    assert result.returncode == 2, result.stderr
    assert result.stdout == ""
    assert result.stderr.endswith("\n")
    assert len(result.stderr.splitlines()) == 1, result.stderr
    assert re.match(expected, result.stderr), result.stderr
    assert took < (5 if "sanitize" not in str(equiforge.executable) else 30)


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("case", FILES)
def test_bad_program(equiforge, tmp_path, verb, case):
    contents, expected = FILES[case]
    path = tmp_path / "bad.ef"
    path.write_bytes(contents if isinstance(contents, bytes) else contents.encode())
    refuses(equiforge, VERBS[verb](path), re.escape(str(path)) + expected)


# Every verb that reads a file, and what it reads.
READERS = {
    "inspect": ("inspect", ".ef", ".pt2", ".efz"),
    "optimize": ("optimize --budget 2s", ".ef", ".pt2"),
    "optimize -o": ("optimize --budget 2s -o OUT.efz", ".ef", ".pt2"),
    "search": ("search", ".ef", ".pt2"),
    "run": ("run", ".ef", ".pt2", ".efz"),
    "emit": ("emit", ".ef", ".pt2"),
    "explain": ("explain", ".efz"),
    "report": ("report -o OUT.html", ".efz"),
}


@pytest.mark.parametrize("verb", READERS)
@pytest.mark.parametrize("kind", ["missing", "folder", "empty", "garbage", "device", "unreadable"])
def test_no_such_input(equiforge, tmp_path, verb, kind):
    """One line that begins with the file's name, whatever its end; and no file is made."""
    words, *ends = READERS[verb]
    arguments = words.replace("OUT", str(tmp_path / "out")).split()
    for end in (".ef", ".pt2", ".efz", ".txt", ""):
        path = tmp_path / f"file{end}"
        if kind == "folder":
            path.mkdir()
        elif kind in {"empty", "garbage", "unreadable"}:
            path.write_bytes(b"" if kind == "empty" else bytes(range(256)) * 4)
        elif kind == "device":
            path.symlink_to("/dev/null")
        if kind == "unreadable":
            if os.geteuid() == 0:
                pytest.skip("root may read everything")
            path.chmod(0)
        start = "equiforge: explain: ." if verb == "explain" and end != ".efz" else re.escape(str(path)) + "[:].*."
        refuses(equiforge, (*arguments, path), start)
        if kind == "folder":
            path.rmdir()
        else:
            path.unlink(missing_ok=True)
    assert list(tmp_path.iterdir()) == []


def test_another_kind_of_file_than_the_verb_takes(equiforge, tmp_path):
    path = tmp_path / "x.efz"
    path.write_text("program p\n")
    for verb in ("optimize", "search", "emit"):
        refuses(equiforge, (verb, path), re.escape(str(path)) + r": neither .*\.ef.*\.pt2")


def outputs(tmp_path):
    """Places that no result can be written to, and the word that says why."""
    (tmp_path / "folder.efz").mkdir()
    (tmp_path / "file").write_text("")
    found = {
        tmp_path / "no such folder" / "x.efz": "no folder",
        tmp_path / "file" / "x.efz": "no folder",
        tmp_path / "folder.efz": "not a regular file",
        f"{tmp_path}/x.efz/": "no folder",
        "/dev/null": "not a regular file",
    }
    if os.path.isdir("/proc/self"):
        found["/proc/x.efz"] = ""  # no permission tells root that it takes no files
    if os.geteuid() != 0:
        (tmp_path / "closed").mkdir(mode=0o500)
        found[tmp_path / "closed" / "x.efz"] = "Permission"
    return found


def test_outputs_are_looked_at_before_the_work(equiforge, tmp_path):
    places = outputs(tmp_path)
    before = sorted(tmp_path.rglob("*"))
    for place, word in places.items():
        arguments = ("optimize", GOOD, "--budget", "5s", "--store", tmp_path / "store.db", "-o", f"{place}")
        refuses(equiforge, arguments, re.escape(str(place)) + f": cannot be written: .*{word}")
    assert sorted(tmp_path.rglob("*")) == before
    place = tmp_path / ("x" * 250 + ".efz")  # which is no longer than a name may be, but it is written by a longer one
    refuses(equiforge, ("optimize", GOOD, "--budget", "5s", "-o", place), ".*/x+: cannot be written: .*too long")


@pytest.mark.parametrize("verb", VERBS)
def test_missing_file(equiforge, tmp_path, verb):
    path = tmp_path / "absent.ef"
    refuses(equiforge, VERBS[verb](path), re.escape(str(path)) + ": .*No such file")


@pytest.mark.parametrize("verb", VERBS)
def test_directory(equiforge, tmp_path, verb):
    path = tmp_path / "folder.ef"
    path.mkdir()
    refuses(equiforge, VERBS[verb](path), re.escape(str(path)) + ": .*directory")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_unreadable_file(equiforge, tmp_path):
    path = tmp_path / "secret.ef"
    path.write_text("program p\n")
    path.chmod(0)
    refuses(equiforge, ("inspect", path), re.escape(str(path)) + ": .*[Pp]ermission")


@pytest.mark.parametrize("name", ["block.txt", "block", ".e"])
def test_other_kinds_of_file(equiforge, tmp_path, name):
    path = tmp_path / name
    path.write_text("program p\n")
    refuses(equiforge, ("inspect", path), re.escape(str(path)) + r": .*\.ef")


@pytest.mark.parametrize(
    "arguments",
    [
        ("inspect",),
        ("inspect", GOOD, GOOD),
        ("inspect", GOOD, "--frobnicate"),
        ("inspect", GOOD, "--json=yes"),
        ("inspect", GOOD, "bad\nname"),
        ("search",),
        ("search", GOOD, "--target"),
        ("search", GOOD, "--target", "abacus"),
        ("search", GOOD, "--compaction", "sometimes"),
        *(
            ("search", GOOD, "--time-limit", value)
            for value in ("", "0", "-1", "1x", "nan", "inf", "0x10", " 1", "1e999")
        ),
        *(("search", GOOD, "--node-limit", value) for value in ("", "0", "-1", "+1", "1.5", "1e3", " 1", "4294967296")),
        ("explain",),
        ("explain", "--from", GOOD),
        ("explain", "--to", GOOD),
        ("explain", GOOD),
        ("rules", "everything"),
        ("rules", "--instances", "3"),
        ("rules", "--check", "--instances", "0"),
        ("rules", "--check", "--seed", "-1"),
        ("--frobnicate",),
        ("optimize",),
        ("optimize", GOOD, "--target", "tpu"),
        *(("optimize", GOOD, "--budget", value) for value in ("", "0", "-1s", "5x", "5 m", "nan", "inf", "1e9")),
    ],
    ids=" ".join,
)
def test_bad_usage(equiforge, arguments):
    refuses(equiforge, arguments, "equiforge: .")


@pytest.mark.parametrize("verb", ["optimize", "run"])
@pytest.mark.parametrize("value", ["0", "1025", "4294967296"])
def test_threads_out_of_range(equiforge, verb, value):
    refuses(
        equiforge, (verb, GOOD, "--threads", value), f"equiforge: {verb}: --threads .* from 1 to 1024, not '{value}'"
    )


@pytest.mark.parametrize("value", ["0s", "0.5s", "300h"])
def test_budget_out_of_range(equiforge, value):
    refuses(
        equiforge, ("optimize", GOOD, "--budget", value), f"equiforge: .*--budget .* from 1s to 1000000s.*'{value}'"
    )


@pytest.mark.parametrize("arguments", [("--help",), ("inspect", "--help"), ("search", "--help"), ("--version",)])
def test_help_and_version_go_to_stdout(equiforge, arguments):
    result = equiforge(*arguments)
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
@pytest.mark.parametrize("arguments", [("rules",), ("rules", "--json"), ("inspect", GOOD)])
def test_a_full_disk_is_a_failure(equiforge, root, arguments):
    with open("/dev/full", "w") as full:
        result = subprocess.run(
            [equiforge.executable, *arguments], cwd=root, stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )
    assert result.returncode == 1
    assert len(result.stderr.splitlines()) == 1
