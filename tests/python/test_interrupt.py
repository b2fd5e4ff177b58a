"""Ctrl-C: an optimisation ends at once, wherever it is, with its workers, and leaves a store that another one goes on
with; `make test` ends too."""

import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from conftest import ROOT

import equiforge
from bench.workloads import workload

AT_ONCE_S = 3.0  # a second is the aim; machines may be busy


@pytest.fixture(autouse=True)
def heeded():
    """A process that was started in the background may ignore SIGINT, and so do those that it starts."""
    old = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, old)


@pytest.fixture(autouse=True)
def own_store(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


def children() -> list[int]:
    """Processes that this one started and that are not gone."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[1]) == os.getpid():
            found.append(int(stat.parent.name))
    return found


@pytest.mark.parametrize(("stage", "measured"), [("search", 0), ("prepare", 0), ("tune", 3)])
def test_interrupted(stage, measured, tmp_path):
    module, inputs = workload("attn_sinks").make(small=True)
    before, sent = set(children()), []

    def interrupt(progress):
        if not sent and progress.stage == stage and progress.measured >= measured:
            os.kill(os.getpid(), signal.SIGINT)
            sent.append(time.perf_counter())

    with pytest.raises(KeyboardInterrupt):
        equiforge.optimize(module, inputs, budget="5m", progress=interrupt)
    assert time.perf_counter() - sent[0] < AT_ONCE_S
    assert set(children()) <= before
    with sqlite3.connect(*tmp_path.glob("equiforge/store-*.db")) as store:
        assert store.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        assert store.execute("SELECT count(*) FROM result").fetchone()[0] >= measured
        assert store.execute("SELECT count(*) FROM best").fetchone()[0] == 0


def test_goes_on_after_it(tmp_path):
    """What was measured before Ctrl-C is known to the next call: that measures it not again, but for the finalists."""
    module, inputs = workload("rmsnorm_linear/B8").make(small=True)

    def interrupt(progress):
        if progress.measured >= 12:
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        equiforge.optimize(module, inputs, budget="5m", progress=interrupt)
    with sqlite3.connect(*tmp_path.glob("equiforge/store-*.db")) as store:
        earlier = store.execute("UPDATE result SET at = 1").rowcount
        assert earlier >= 12
    fast = equiforge.optimize(module, inputs, budget="5m", progress=lambda progress: progress.measured < 12)
    assert torch.allclose(fast(*inputs), module(*inputs), rtol=2e-2, atol=2e-2)
    with sqlite3.connect(*tmp_path.glob("equiforge/store-*.db")) as store:
        total, kept = store.execute("SELECT count(*), sum(at = 1) FROM result").fetchone()
    assert total >= earlier + 7
    assert kept >= earlier - 5  # four finalists, and the program as it is


def test_make_test_ends(tmp_path):
    """No stage comes after the one that Ctrl-C ended."""
    for folder in ("tools", "bin", "build/meson-logs"):
        (tmp_path / folder).mkdir(parents=True)
    shutil.copy(ROOT / "tools/test.sh", tmp_path / "tools/test.sh")
    for tool in ("make", "meson"):
        fake = tmp_path / "bin" / tool
        fake.write_text(f'#!/bin/sh\necho {tool} "$@" >> {tmp_path}/calls\n[ {tool} = make ] || exec sleep 60\n')
        fake.chmod(0o755)
    environment = {**os.environ, "PATH": f"{tmp_path}/bin:{os.environ['PATH']}"}
    run = subprocess.Popen(
        [tmp_path / "tools/test.sh"], env=environment, stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    deadline = time.monotonic() + 20
    while "meson" not in ((tmp_path / "calls").read_text() if (tmp_path / "calls").exists() else ""):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    os.killpg(run.pid, signal.SIGINT)  # as a terminal does
    out, _ = run.communicate(timeout=20)
    assert run.returncode == 130
    assert "interrupted" in out
    assert "command line" not in out


@pytest.mark.parametrize("first", ["equiforge.optimize", "export()"])
def test_while_pytorch_is_imported(first):
    """Ctrl-C comes through when the import is done: half of PyTorch would stay in this process for ever."""
    code = f"""
import os, signal, sys, time
class Interrupts:  # somewhere in the middle
    def find_spec(self, name, *_):
        if name == ("torch.nn.modules.conv" if {first!r} == "equiforge.optimize" else "sympy.core"):
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(0.01)
sys.meta_path.insert(0, Interrupts())
import equiforge
def export():
    import torch
    from equiforge._optimize import export
    return export(torch.nn.Linear(2, 2), (torch.ones(1, 2),), {{}})
try:
    {first}
except KeyboardInterrupt:
    print("interrupted")
print(type(export()).__name__)
"""
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert result.stdout == "interrupted\nExportedProgram\n", result.stderr
