"""Several threads call one optimised module at the same time."""

import copy
import dataclasses
import itertools
import pickle
import sys
import threading

import pytest
import torch
from test_end_to_end import untuned
from torch import nn

from bench.workloads import workload
from equiforge import EquiForgeError
from equiforge._module import OptimizedModule
from equiforge._optimize import export

# Where a test does not say so, kernels run.
pytestmark = pytest.mark.filterwarnings("error:.*runs the original")


@pytest.fixture(autouse=True)
def often(monkeypatch, tmp_path):
    """Threads take turns often, so that what they share shows."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


def test_modules_are_exported_by_several_threads():
    """PyTorch exports one module at a time: the others wait."""
    modules = [nn.Sequential(nn.Linear(8, 4), nn.ReLU()).eval() for _ in range(4)]
    x = torch.randn(2, 8)

    def work(number):
        for _ in range(3):
            exported = export(modules[number], (x,), {})
            assert torch.equal(exported.module()(x), modules[number](x))

    together(work)


def together(work, threads=4):
    """Runs work(number) in threads; raises what one of them raised."""
    problems = []
    start = threading.Barrier(threads)

    def one(number):
        try:
            start.wait()
            work(number)
        except BaseException as problem:
            problems.append(problem)

    running = [threading.Thread(target=one, args=(number,)) for number in range(threads)]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()
    if problems:
        raise problems[0]


def agree(fast, module, args, calls):
    """Each thread has inputs of its own, and gets its own results."""
    generator = torch.Generator().manual_seed(1)
    given = [[x + 0.1 * torch.randn(x.shape, generator=generator).to(x.dtype) for x in args] for _ in range(4)]
    want = [module(*inputs).double() for inputs in given]

    def work(number):
        for _ in range(calls):
            result = fast(*given[number]).double()
            assert (result - want[number]).norm() < 1e-2 * want[number].norm()

    together(work)


@pytest.mark.parametrize("name", ["rmsnorm_mlp/B8", "mha_decode/B8"])
def test_on_the_cpu(name, tmp_path):
    module, args = workload(name).make(small=True)
    agree(untuned(module, args, tmp_path), module, args, 30)


def test_copies_at_once(tmp_path):
    """A module and its copy have one workspace."""
    module, args = workload("mha_decode/B8").make(small=True)
    fast = untuned(module, args, tmp_path)
    twin = copy.deepcopy(fast)
    turns = itertools.cycle((fast, twin))

    def either(*inputs):
        return next(turns)(*inputs)

    agree(either, module, args, 100)


@pytest.mark.skipif(torch.cuda.is_available(), reason="the interpreter is for machines without a GPU")
def test_in_the_interpreter(tmp_path):
    module, args = workload("lora/B8").make(small=True)
    fast = untuned(module, args, tmp_path, "triton")
    regions = tuple(dataclasses.replace(region, torch="") for region in fast.plan.regions)
    kernels = OptimizedModule(
        module, dataclasses.replace(fast.plan, regions=regions), fast._call, attached=fast._attached
    )
    agree(kernels, module, args, 2)


def test_modes(tmp_path):
    """The original, in training mode, is called in evaluation mode by several threads; then it is as it was."""
    module = nn.Sequential(nn.Linear(24, 24), nn.Dropout(0.5), nn.BatchNorm1d(24)).requires_grad_(False)
    x = torch.randn(16, 24)
    fast = untuned(module, (x,), tmp_path)
    fast.__dict__["_keep_original"] = True
    want = module.eval()(x)
    module.train()

    def work(_):
        for _ in range(100):
            assert torch.equal(fast(x), want)

    together(work)
    assert all(part.training for part in module.modules())


def test_modes_of_several_at_once(tmp_path):
    """One that is done puts no original, and no part of one, into training mode that another one still calls."""
    inner = nn.Sequential(nn.Linear(24, 24), nn.Dropout(0.5)).requires_grad_(False)
    module = nn.Sequential(inner, nn.Dropout(0.5))
    x = torch.randn(16, 24)
    want = inner.eval()(x)
    module.train()
    first, second, part = (untuned(m, (x,), tmp_path) for m in (module, module, inner))
    here = threading.local()  # of each thread: its call began, its call may go on

    def wait(*_):
        here.began.set()
        assert here.may_go_on.wait(60)

    inner.register_forward_pre_hook(wait)
    running, found = [], []

    def start(fast):
        fast.__dict__["_keep_original"] = True
        began, may_go_on = threading.Event(), threading.Event()

        def work():
            here.began, here.may_go_on = began, may_go_on
            found.append(fast(x))

        thread = threading.Thread(target=work)
        running.append((thread, may_go_on))
        thread.start()
        assert began.wait(60)

    for fast in (first, second, part):
        start(fast)
    for thread, may_go_on in running:
        may_go_on.set()
        thread.join()
    assert len(found) == 3
    assert all(torch.equal(y, want) for y in found)
    assert all(m.training for m in module.modules())


def test_copies(tmp_path):
    """A copy has weights of its own."""
    module, x = nn.Linear(24, 24).eval().requires_grad_(False), torch.randn(4, 24)
    fast = untuned(module, (x,), tmp_path)
    want = fast(x)
    twin = copy.deepcopy(fast)
    twin.weight.zero_()
    twin.bias.zero_()
    assert torch.equal(fast(x), want)
    assert not twin(x).any()
    with pytest.raises(EquiForgeError, match=r"save\(\)"):
        pickle.dumps(fast)
