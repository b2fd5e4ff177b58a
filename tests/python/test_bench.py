"""`equiforge bench` on this machine, at reduced sizes: its table, its JSON, and its exit status."""

import json
import subprocess

from conftest import BUILD


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


def test_usage():
    assert bench("--suite", "nothing").returncode == 2
    result = bench("--suite", "layers", "--only", "nothing")
    assert result.returncode == 2
    assert "nothing" in result.stderr
