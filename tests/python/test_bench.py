"""`equiforge bench` on this machine, at reduced sizes: its table, its JSON, and its exit status."""

import json
import subprocess
from xml.etree import ElementTree

import pytest
from conftest import BUILD

from equiforge import _plot
from equiforge.bench import main, suites, table


def bench(*arguments) -> subprocess.CompletedProcess:
    command = [BUILD / "equiforge", "bench", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)


def test_baselines():
    result = bench("--suite", "programs", "--only", "ngpt/B1", "--target", "cpu", "--baselines", "--json")
    assert result.returncode == 0, result.stderr
    (case,) = json.loads(result.stdout)["cases"]
    assert case["name"] == "ngpt/B1"
    assert set(case["baselines"]) == {"eager", "compile"}
    assert case["baselines"]["eager"]["us"] > 0
    assert 0 < case["baselines"]["eager"]["rel_l2"] < 1e-2
    assert all(entry["warm_us"] > 0 and entry["first_s"] >= 0 for entry in case["baselines"].values())
    assert set(case["step_s"]) == {"imports", "inputs", "exact results", "eager", "compile"}
    assert sum(case["step_s"].values()) <= case["seconds"]
    assert "ngpt/B1: eager " in result.stderr


def test_usage():
    assert bench("--suite", "nothing").returncode == 2
    result = bench("--suite", "layers", "--only", "nothing")
    assert result.returncode == 2
    assert "nothing" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--suite", "programs,nothing"), "no suite is called 'nothing'"),
        (("--suite", "search,layers"), "no suite is called 'search'"),
        (("--suite", "search", "--limit", "1m"), "not for suite search"),
        (("--devices", "0"), "a number of devices or all, not '0'"),
        (("--limit", "soon"), "a limit is a time like '90s', '5m' or '1h', not 'soon'"),
        (("--budget", "soon"), "a budget is a time like"),
        (("--results", "/nowhere/results"), "/nowhere/results: cannot be written"),
        (("--plot", "/"), "/: cannot be written"),
        (("--save", "/dev/null"), "/dev/null: no folder to write to: File exists"),
        (("--save", "/dev/null/a"), "/dev/null/a: no folder to write to: Not a directory"),
        (("--save", "/proc"), "/proc: no folder to write to: "),
        (("--save", "/nowhere", "--baselines"), "--save is not for --baselines"),
        (("--suite", "search", "--save", "/nowhere"), "not for suite search"),
    ],
)
def test_bad_arguments(arguments, words, capsys):
    """Nothing is measured first."""
    try:
        assert main(["--target", "cpu", *arguments]) == 2
    except SystemExit as ended:
        assert ended.code == 2
    assert words in capsys.readouterr().err


@pytest.mark.parametrize("wrong", [("--budget", "soon"), ("--limit", "soon"), ("--only", "nothing at all")])
def test_bad_arguments_leave_no_folder(wrong, tmp_path, capsys):
    assert main(["--target", "cpu", "--save", str(tmp_path / "a" / "b"), *wrong]) == 2
    assert wrong[1] in capsys.readouterr().err
    assert not (tmp_path / "a").exists()


def test_suites():
    assert suites("all") == ["programs", "attention", "layers"]
    assert suites("layers,programs") == ["layers", "programs"] and suites("search") == ["search"]


def test_unknown_targets_are_refused_at_once():
    result = bench("--suite", "programs", "--target", "nothing")
    assert result.returncode == 2 and not result.stdout
    assert result.stderr.strip() == "bench: unknown target 'nothing'; `equiforge targets` lists them"


def test_plot():
    cases = [
        {"name": "a/B1", "baselines": {"eager": {"us": 20.0}, "compile": {"us": 10.0}}, "product_us": 5.0},
        {"name": "b", "baselines": {"eager": {"us": 8.0}, "compile": {"error": "<none>"}}},
        {"name": "lost", "baselines": {}, "error": "ended with status 1"},
    ]
    assert _plot.speeds(cases[0]) == {"eager": 0.5, "compile": 1.0, "equiforge": 2.0}
    root = ElementTree.fromstring(_plot.svg(cases))
    assert sum(1 for e in root.iter() if e.tag.endswith("title")) == 4
    assert "lost" not in _plot.svg(cases)
    ElementTree.fromstring(_plot.svg([]))


def test_table():
    case = {"name": "a/B1", "suite": "programs", "floor_us": 1.5, "baselines": {"eager": {"us": 20.0}}}
    case |= {"product_us": 5.0, "speedup": 4.0}
    lost = {"name": "b", "suite": "programs", "floor_us": None, "baselines": {}, "error": "ended with status 1"}
    lines = table([case, lost, {**case, "name": "c", "suite": "layers", "speedup": 0.5}]).splitlines()
    assert lines[0].split() == ["case", "eager", "equiforge", "floor", "speedup", "rel", "L2", "kernels"]
    assert lines[1].split() == ["a/B1", "20.0", "5.0", "1.5", "4.00"]
    assert lines[-2] == "programs: geometric mean over the fastest baseline 4.00x, 1 of 1 won"
    assert lines[-1] == "layers: geometric mean over the fastest baseline 0.50x, 0 of 1 won"
