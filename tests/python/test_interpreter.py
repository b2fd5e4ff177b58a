"""The GPU side of `equiforge optimize` without a GPU: driver and workers with Triton's interpreter in place of one."""

import json
import os
import subprocess

import pytest
from conftest import BUILD

pytest.importorskip("triton")

PROGRAM = """program p
dim m = 8
dim k = 32
dim n = 16
input x: f16[m, k]
input W: f16[k, n]
input c: f16[n]
output y = add(matmul(x, W), c)
"""


def test_optimize_with_the_gpu_worker(tmp_path):
    path = tmp_path / "p.ef"
    path.write_text(PROGRAM)
    command = [BUILD / "equiforge", "optimize", path, "--target", "interpreter", "--budget", "200s", "--limit", "3"]
    command += ["--store", tmp_path / "store.db", "-o", tmp_path / "p.efz", "--json"]
    environment = {**os.environ, "TRITON_INTERPRET": "1"}
    runs = []
    for _ in range(2):
        result = subprocess.run(command, capture_output=True, text=True, check=False, env=environment, timeout=300)
        assert result.returncode == 0, result.stderr
        runs.append(json.loads(result.stdout))
    first, second = runs
    assert first["measured"] >= 3
    assert 0 < first["rel_l2"] < 1e-2
    assert "triton" in first["device"]
    assert (first["stored"], second["stored"]) == (False, True)
    assert second["best_us"] == first["best_us"]
    plan = json.loads(subprocess.check_output([BUILD / "equiforge", "inspect", tmp_path / "p.efz", "--json"]))
    assert plan["inputs"]
