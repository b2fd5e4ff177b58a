"""Where nothing can be measured the original stays, in the regions concerned, and one warning says so."""

import shutil
import sqlite3
import subprocess
import sys
import warnings

import pytest
import torch
from conftest import BUILD
from test_end_to_end import difference
from torch import nn

import equiforge
from equiforge import EquiForgeError


class Two(nn.Module):
    """Two regions, with a call of PyTorch between them."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(24, 24), nn.Linear(24, 24)

    def forward(self, x):
        h = torch.sort(torch.sin(self.first(x)), -1)[0]
        return torch.tanh(self.second(h))


# Passes on what worker and pool say; a program with tanh ends it.
PROXY = """#!{python}
import subprocess, sys
worker = subprocess.Popen(["{worker}", *sys.argv[1:]], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
for line in sys.stdin.buffer:
    if b'"program"' in line and b"tanh" in line:
        worker.kill()
        sys.exit("no tanh here")
    worker.stdin.write(line)
    worker.stdin.flush()
    sys.stdout.buffer.write(worker.stdout.readline())
    sys.stdout.flush()
"""


# The same, of which each program takes at least a second.
SLOW = PROXY.replace("import subprocess, sys", "import subprocess, sys, time").replace(
    "buffer:\n", "buffer:\n    time.sleep(b'\"program\"' in line)\n", 1
)
assert SLOW.count("time") == 2


class Many(nn.Module):
    """As many regions as widths, of other sizes each."""

    def __init__(self, widths):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in zip([24, *widths], widths, strict=False))

    def forward(self, x):
        for layer in self.layers:
            x = torch.sort(torch.sin(layer(x)), -1)[0]
        return x


class First(nn.Module):
    """A region of much work, with a tanh, before many others."""

    def __init__(self, widths):
        super().__init__()
        self.first, self.rest = nn.Linear(24, 24), Many(widths)

    def forward(self, x):
        h = torch.tanh(self.first(x.expand(500, *x.shape))).sum(0)
        return self.rest(torch.sort(h, -1)[0])


@pytest.fixture(autouse=True)
def own_store(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


def optimize(module, x, **options):
    """The result, and the one warning."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        fast = equiforge.optimize(module, (x,), **options)
    assert len(caught) == 1, [str(w.message) for w in caught]
    assert "\n" not in str(caught[0].message)
    return fast, str(caught[0].message)


@pytest.mark.parametrize("worker", ["false", "/nowhere/equiforge"])
def test_no_worker_starts(worker, monkeypatch, tmp_path):
    monkeypatch.setenv("EQUIFORGE_WORKER", shutil.which(worker) or worker)
    module, x = Two().eval().requires_grad_(False), torch.randn(4, 24)
    fast, message = optimize(module, x, budget="1m")
    assert "worker" in message
    assert [region.language for region in fast.plan.regions] == ["torch", "torch"]
    fast.__dict__["_keep_original"] = False
    assert difference(fast, module, (x,)) == 0
    fast.save(tmp_path / "fast.efz")
    loaded = equiforge.load(tmp_path / "fast.efz")
    assert difference(loaded, module, (x,)) == 0
    with sqlite3.connect(*tmp_path.glob("equiforge/store-*.db")) as store:
        assert store.execute("SELECT count(*) FROM best").fetchone()[0] == 0
    for verb in ("inspect", "explain", "run"):
        command = [BUILD / "equiforge", verb, tmp_path / "fast.efz"]
        result = subprocess.run(command, capture_output=True, text=True, check=False)
        assert result.returncode == (1 if verb == "run" else 0), result.stderr
    assert "2 of 2 regions were left to PyTorch" in result.stderr
    # Workers are back: nothing was remembered.
    monkeypatch.delenv("EQUIFORGE_WORKER")
    again = equiforge.optimize(module, (x,), budget="4s")
    assert [region.language for region in again.plan.regions] == ["c", "c"]


def test_one_region_kills_its_worker(monkeypatch, tmp_path):
    proxy = tmp_path / "proxy"
    proxy.write_text(PROXY.format(python=sys.executable, worker=BUILD / "equiforge"))
    proxy.chmod(0o755)
    monkeypatch.setenv("EQUIFORGE_WORKER", str(proxy))
    module, x = Two().eval().requires_grad_(False), torch.randn(4, 24)
    fast, message = optimize(module, x, budget="8s")
    assert "1 of 2 distinct regions stay as they are" in message
    assert "no tanh here" in message
    assert sorted(region.language for region in fast.plan.regions) == ["c", "torch"]
    fast.__dict__["_keep_original"] = False
    assert difference(fast, module, (x,)) < 1e-5


def test_no_time_for_all_regions(monkeypatch, tmp_path):
    """Those with the most work are measured; the others are PyTorch's once the budget is over."""
    proxy = tmp_path / "proxy"
    proxy.write_text(SLOW.format(python=sys.executable, worker=BUILD / "equiforge"))
    proxy.chmod(0o755)
    monkeypatch.setenv("EQUIFORGE_WORKER", str(proxy))
    widths = [16, 17, 18, 19, 300, 20, 21, 22, 23, 25]
    module, x = Many(widths).eval().requires_grad_(False), torch.randn(4, 24)
    fast, message = optimize(module, x, budget="1s")  # the last region begins after 3.1 s at most
    languages = [region.language for region in fast.plan.regions]
    assert 1 <= languages.count("c") <= 4, languages
    assert f"{languages.count('torch')} of 10 distinct regions stay as they are: the budget was over" in message
    assert "c" in {r.language for r in fast.plan.regions if "300" in r.program}
    fast.__dict__["_keep_original"] = False
    assert difference(fast, module, (x,)) < 1e-5
    fast.save(tmp_path / "fast.efz")
    assert difference(equiforge.load(tmp_path / "fast.efz", module), module, (x,)) < 1e-5
    command = [BUILD / "equiforge", "run", tmp_path / "fast.efz", "--check"]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 1
    assert result.stdout == ""
    assert result.stderr == (
        f"{languages.count('torch')} of 10 regions were left to PyTorch, and so cannot be run by the command line: "
        "the budget was over before they were measured\n"
    )
    with sqlite3.connect(*tmp_path.glob("equiforge/store-*.db")) as store:
        assert store.execute("SELECT count(*) FROM best").fetchone()[0] == 0


def test_each_reason_is_given(monkeypatch, tmp_path):
    """That a worker was lost over one region is not why others were not measured."""
    proxy = tmp_path / "proxy"
    proxy.write_text(SLOW.format(python=sys.executable, worker=BUILD / "equiforge"))
    proxy.chmod(0o755)
    monkeypatch.setenv("EQUIFORGE_WORKER", str(proxy))
    module, x = First(range(16, 22)).eval().requires_grad_(False), torch.randn(4, 24)
    fast, message = optimize(module, x, budget="1s")
    kept = [region.language for region in fast.plan.regions].count("torch")
    assert kept >= 4
    assert f"{kept} of 7 distinct regions stay as they are: " in message or kept == 7, message
    assert "no tanh here (1)" in message
    assert f"the budget was over before they were measured ({kept - 1})" in message


def test_what_is_stored_needs_no_time_and_no_workers(monkeypatch, tmp_path):
    """A region whose answer is known has it however late it is, and though no worker starts."""
    module, x = Many([16, 17, 18, 19, 300, 20, 21, 22]).eval().requires_grad_(False), torch.randn(4, 24)
    known = Many([16]).eval().requires_grad_(False)
    assert [r.language for r in equiforge.optimize(known, (x,), budget="5s").plan.regions] == ["c"]
    proxy = tmp_path / "proxy"
    proxy.write_text(SLOW.format(python=sys.executable, worker=BUILD / "equiforge"))
    proxy.chmod(0o755)
    monkeypatch.setenv("EQUIFORGE_WORKER", str(proxy))
    late, message = optimize(module, x, budget="1s")
    assert "the budget was over" in message
    assert late.plan.regions[0].language == "c"
    monkeypatch.setenv("EQUIFORGE_WORKER", shutil.which("false"))
    broken, message = optimize(module, x, budget="30s")
    assert "worker" in message
    assert broken.plan.regions[0].language == "c"


def test_command_line_fails(monkeypatch, tmp_path):
    """It has no PyTorch to fall back to."""
    module, x = nn.Linear(8, 8).eval(), torch.randn(4, 8)
    torch.export.save(torch.export.export(module, (x,)), tmp_path / "module.pt2")
    monkeypatch.setenv("EQUIFORGE_WORKER", shutil.which("false"))
    command = [BUILD / "equiforge", "optimize", tmp_path / "module.pt2", "--target", "cpu", "-o", tmp_path / "out.efz"]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 1
    assert "worker" in result.stderr
    assert not (tmp_path / "out.efz").exists()


def test_no_such_target():
    with pytest.raises(EquiForgeError, match="unknown target 'abacus'; known are auto, cpu, "):
        equiforge.optimize(nn.Linear(8, 8).eval(), (torch.randn(4, 8),), target="abacus")
