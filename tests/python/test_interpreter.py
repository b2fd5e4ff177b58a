"""The GPU side of `equiforge optimize` without a GPU: driver and workers with Triton's interpreter in place of one."""

import json
import os
import sqlite3
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


def optimize(folder, program=PROGRAM, processors=None, **environment) -> dict:
    path = folder / "p.ef"
    path.write_text(program)
    command = [BUILD / "equiforge", "optimize", path, "--target", "interpreter", "--budget", "200s", "--limit", "3"]
    command += ["--store", folder / "store.db", "-o", folder / "p.efz", "--json"]
    if processors:
        command = ["taskset", "-c", ",".join(map(str, sorted(os.sched_getaffinity(0))[:processors])), *command]
    environment = {**os.environ, "TRITON_INTERPRET": "1", **environment}
    result = subprocess.run(command, capture_output=True, text=True, check=False, env=environment, timeout=300)
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)


def test_optimize_with_the_gpu_worker(tmp_path):
    first, second = optimize(tmp_path), optimize(tmp_path)
    assert first["measured"] >= 3
    assert 0 < first["rel_l2"] < 1e-2
    assert "triton" in first["device"]
    assert (first["stored"], second["stored"]) == (False, True)
    assert second["best_us"] == first["best_us"]
    plan = json.loads(subprocess.check_output([BUILD / "equiforge", "inspect", tmp_path / "p.efz", "--json"]))
    assert plan["inputs"]


@pytest.mark.parametrize(("fault", "status"), [("crash", "lost"), ("wrong", "wrong"), ("compile", "compile")])
def test_faulty_candidate_costs_itself(fault, status, tmp_path):
    # One processor compiles in a fixed order; the second is the program itself, whose result is measured again.
    # In f32: a wrong candidate with narrow temporaries would be tried again with wide ones.
    result = optimize(tmp_path, PROGRAM.replace("f16", "f32"), processors=1, EQUIFORGE_TEST_FAULT=f"{fault}@3")
    assert result["failed"] == 1
    assert result["measured"] >= 2
    assert 0 < result["rel_l2"] < 1e-2
    with sqlite3.connect(tmp_path / "store.db") as store:
        assert store.execute("SELECT status FROM result WHERE status <> 'fine'").fetchall() == [(status,)]
