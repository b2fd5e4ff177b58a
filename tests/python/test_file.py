"""Optimised modules in files: what is saved comes back, whole or not at all, and runs on the CPU as generated C."""

import os
import subprocess
import sys
import threading
import warnings
import zipfile

import pytest
import torch
from conftest import BUILD, ROOT

import equiforge
from equiforge import EquiForgeError, _file
from equiforge._optimize import seconds

sys.path.append(str(ROOT / "tests/cli"))
from mutate import damaged_bytes

PROGRAM = """
program linear
dim m = 6
dim k = 40
dim n = 24
input x: f16[m, k]
input W: f16[k, n]
output y = matmul(x, W)
output most = reduce[max, -1](x)
"""


def plan(source, out):
    subprocess.run([BUILD / "tests/plan", source, out], check=True)
    return out


@pytest.fixture
def saved(tmp_path):
    (tmp_path / "linear.ef").write_text(PROGRAM)
    return plan(tmp_path / "linear.ef", tmp_path / "linear.efz")


def inputs():
    torch.manual_seed(3)
    return torch.randn(6, 40).half(), torch.randn(40, 24).half()


def right(results, x, w):
    assert torch.allclose(results[0], x @ w, rtol=2e-3, atol=2e-2)
    assert torch.equal(results[1], x.amax(-1, keepdim=True))


def test_runs(saved):
    x, w = inputs()
    fast = equiforge.load(saved)
    right(fast(x, w), x, w)
    right(fast(x.t().contiguous().t(), w.t().contiguous().t()), x, w)
    with pytest.raises(EquiForgeError, match="without the original"):
        fast(x[:3], w)


def test_threads(saved):
    """One region is called by several threads, which must not share its workspace."""
    fast = equiforge.load(saved)
    problems = []

    def work(seed):
        generator = torch.Generator().manual_seed(seed)
        for _ in range(50):
            x = torch.randn(6, 40, generator=generator).half()
            w = torch.randn(40, 24, generator=generator).half()
            try:
                right(fast(x, w), x, w)
            except AssertionError as problem:
                problems.append(problem)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not problems


def test_saves_again(saved, tmp_path):
    x, w = inputs()
    fast = equiforge.load(saved)
    fast.save(tmp_path / "again.efz")
    right(equiforge.load(tmp_path / "again.efz")(x, w), x, w)
    with pytest.raises(EquiForgeError, match="no folder"):
        fast.save(tmp_path / "nowhere" / "again.efz")
    assert sorted(os.listdir(tmp_path)) == ["again.efz", "linear.ef", "linear.efz"]


def test_saved_for_others(saved, tmp_path):
    """As files are under the umask, not as temporary ones."""
    fast, path = equiforge.load(saved), tmp_path / "again.efz"
    before = os.umask(0o022)
    try:
        fast.save(path)
        assert path.stat().st_mode & 0o777 == 0o644
        os.umask(0o027)
        fast.save(path)
        assert path.stat().st_mode & 0o777 == 0o640
    finally:
        os.umask(before)


@pytest.mark.parametrize("where", ["/proc/again.efz", "/sys/again.efz", "."])
def test_not_writable(saved, where):
    fast = equiforge.load(saved)
    with pytest.raises(EquiForgeError) as caught:
        fast.save(where)
    assert len(str(caught.value).splitlines()) == 1


def test_exported_module_travels(saved, tmp_path):
    """The library accepts the entry that Python adds, and no other."""
    module = torch.nn.Linear(4, 4).eval()
    exported = torch.export.export(module, (torch.zeros(2, 4),))
    path = tmp_path / "both.efz"
    _file.write(path, saved.read_bytes(), {}, exported)
    again = _file.exported_of(path)
    assert torch.equal(again.state_dict["weight"], module.weight)
    assert _file.exported_of(saved) is None
    equiforge._native.PlanHandle(path)
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("other.txt", "x")
    with pytest.raises(EquiForgeError, match="entries"):
        equiforge.load(path)


def test_bad_files(saved, tmp_path):
    for name, content in (("empty", b""), ("text", b"hello"), ("half", saved.read_bytes()[:700])):
        path = tmp_path / f"{name}.efz"
        path.write_bytes(content)
        with pytest.raises(EquiForgeError, match=name):
            equiforge.load(path)
    with pytest.raises(EquiForgeError, match="nothing"):
        equiforge.load(tmp_path / "nothing.efz")


def test_damaged_files(saved, tmp_path):
    """Whatever is hit, PyTorch's part of the file too, it is one line and one kind of error, or no harm."""
    exported = torch.export.export(torch.nn.Linear(3, 3), (torch.ones(2, 3),))
    whole, path = tmp_path / "whole.efz", tmp_path / "damaged.efz"
    _file.write(
        whole,
        saved.read_bytes(),
        {"keep_original": False, "prepared": 0, "original_us": 0.0, "optimized_us": 0.0},
        exported,
    )
    before = whole.read_bytes()
    refused = 0
    for seed in range(100):
        path.write_bytes(damaged_bytes(before, seed))
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                equiforge.load(path)
        except EquiForgeError as problem:
            assert len(str(problem).splitlines()) == 1
            refused += 1
    assert refused > 80
    assert sorted(p.name for p in tmp_path.iterdir()) == ["damaged.efz", "linear.ef", "linear.efz", "whole.efz"]


def test_budgets():
    assert [seconds(x) for x in ("90s", "5m", "1h", "2", 7, 0.5)] == [90, 300, 3600, 2, 7, 0.5]
    for bad in ("", "m", "5 parsecs", "-1m", 0, -3):
        with pytest.raises(EquiForgeError, match="budget"):
            seconds(bad)


def test_import_is_cheap():
    code = "import sys, equiforge; assert not {'torch', 'triton', 'numpy', 'zipfile'} & set(sys.modules)"
    subprocess.run([os.sys.executable, "-c", code], check=True, cwd=ROOT)
