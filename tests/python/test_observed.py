"""What PyTorch traces, transforms or observes runs the original: kernels are no operators, and read memory."""

import warnings

import pytest
import torch
from test_file import PROGRAM, plan
from torch import nn
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.autograd import forward_ad
from torch.fx.experimental.proxy_tensor import make_fx
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

import equiforge

torch.manual_seed(3)
X, W = torch.randn(6, 40).half(), torch.randn(40, 24).half()
T = torch.randn(6, 40).half()


class Linear(nn.Module):
    calls = 0

    def forward(self, x, w):
        self.calls += 1
        y = x @ w
        return y, x.amax(-1, keepdim=True)


@pytest.fixture(params=["first call", "learned"])
def both(tmp_path, request):
    (tmp_path / "linear.ef").write_text(PROGRAM)
    model = Linear()
    fast = equiforge.load(plan(tmp_path / "linear.ef", tmp_path / "linear.efz"), model)
    fast.__dict__["_keep_original"] = False
    fast.eval()
    if request.param == "learned":
        with torch.no_grad():
            fast(X, W)
        assert len(fast._runner.quick) == 1
        assert model.calls == 0
    return fast, model


def by_original(both, call):
    """What a call returns; it must run the original, and kernels must be run again after it."""
    fast, model = both
    model.calls = 0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        results = call(fast)
    assert model.calls > 0
    model.calls = 0
    with torch.no_grad():
        fast(X, W)
    assert model.calls == 0
    return results


@pytest.mark.parametrize("inside", [True, False])
def test_fake_tensors(both, inside):
    mode = FakeTensorMode(allow_non_fake_inputs=True)
    x, w = mode.from_tensor(X), mode.from_tensor(W)

    def call(fast):
        if not inside:
            return fast(x, w)
        with mode:
            return fast(x, w)

    y, _ = by_original(both, call)
    assert isinstance(y, FakeTensor)
    assert y.shape == (6, 24)


@pytest.mark.parametrize("how", [{}, {"tracing_mode": "fake"}, {"pre_dispatch": True}])
def test_make_fx(both, how):
    graph = by_original(both, lambda fast: make_fx(fast, **how)(X, W))
    assert torch.equal(graph(T, W)[0], T @ W)


def test_jit_trace(both):
    traced = by_original(both, lambda fast: torch.jit.trace(fast.forward, (X, W), check_trace=False))
    assert torch.equal(traced(T, W)[0], T @ W)


def test_functions_of_functions(both):
    xs = torch.stack([X, T])
    y, _ = by_original(both, lambda fast: torch.func.vmap(fast, (0, None))(xs, W))
    assert torch.allclose(y, xs @ W, rtol=1e-2, atol=1e-2)
    by_original(both, lambda fast: torch.func.vmap(lambda x: x + fast(X, W)[1].sum())(xs))
    _, (ty, _) = by_original(both, lambda fast: torch.func.jvp(lambda x: fast(x, W), (X,), (T,)))
    assert torch.allclose(ty, T @ W, rtol=1e-2, atol=1e-2)
    by_original(both, lambda fast: torch.func.functionalize(fast)(X, W))


def test_forward_mode(both):
    def call(fast):
        with torch.no_grad(), forward_ad.dual_level():
            return forward_ad.unpack_dual(fast(forward_ad.make_dual(X, T), W)[0]).tangent

    assert torch.equal(by_original(both, call), T @ W)


def test_modes(both):
    seen = []

    class Dispatch(TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            seen.append(function)
            return function(*args, **(kwargs or {}))

    class Function(TorchFunctionMode):
        def __torch_function__(self, function, types, args=(), kwargs=None):
            seen.append(function)
            return function(*args, **(kwargs or {}))

    for mode in (Dispatch, Function):

        def call(fast, mode=mode):
            with mode():
                return fast(X, W)

        seen.clear()
        by_original(both, call)
        assert seen


def test_default_device(both):
    fast, model = both
    with torch.device("cpu"), torch.no_grad():
        fast(X, W)
    assert model.calls == 0


def test_tensors_that_are_not_as_they_lie(both):
    """As z.conj().imag is: its numbers are still to be negated."""
    y, _ = by_original(both, lambda fast: fast(torch._neg_view(X), W))
    assert torch.equal(y, -X @ W)

    class Tagged(torch.Tensor):
        pass

    y, _ = by_original(both, lambda fast: fast(X.as_subclass(Tagged), W))
    assert type(y) is Tagged


def test_parameters_are_plain(both):
    fast, model = both
    with torch.no_grad():
        fast(X, nn.Parameter(W, requires_grad=False))
    assert model.calls == 0
