"""`freeze=True`: what a module computes from its weights alone is computed once, and anew when these change."""

import copy
import subprocess

import pytest
import torch
from conftest import BUILD
from test_end_to_end import difference
from torch import nn

import equiforge
from equiforge import EquiForgeError, _native, _prepare, load
from equiforge._optimize import export

# Where a test does not say so, kernels run.
pytestmark = pytest.mark.filterwarnings("error:.*runs the original")


class Folds(nn.Module):
    """A gain in the weight, a merged adapter, a transposed matrix, a cast; and what is no weight."""

    def __init__(self):
        super().__init__()
        self.gain = nn.Parameter(torch.rand(24))
        self.weight = nn.Parameter(torch.randn(32, 24) / 5)
        self.down, self.up = nn.Parameter(torch.randn(24, 2) / 5), nn.Parameter(torch.randn(2, 32))
        self.bias = nn.Parameter(torch.randn(32, dtype=torch.float64))
        self.register_buffer("table", torch.randn(32), persistent=False)
        self.register_buffer("count", torch.zeros(32))
        self.shift = torch.ones(32)

    def forward(self, x, *, scale=1.0):
        merged = self.weight * (1 + self.gain) + (self.down @ self.up).t()
        self.count += 1
        y = x @ merged.t() + self.bias.float() + self.table * 2 + self.shift.exp() + self.count * 0.5
        return torch.tanh(y * scale)


@pytest.fixture(autouse=True)
def untuned(monkeypatch, tmp_path):
    """No search: every region is its program as it stands. Gives the number of optimised programs."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    seen = []

    def optimize(archive, result, **_):
        seen.append(archive)
        subprocess.run([BUILD / "tests/plan", archive, result], check=True)
        return {"note": ""}

    monkeypatch.setattr(_native, "optimize", optimize)
    return seen


def frozen(module, x, freeze=True):
    fast = equiforge.optimize(module, (x,), freeze=freeze)
    fast.__dict__["_keep_original"] = False
    return fast


def agree(fast, module, x):
    """Buffers that a call writes to are put back between the two."""
    with torch.no_grad():
        count = module.count.clone()
        want = module(x)
        module.count.copy_(count)
        found = fast(x)
        module.count.copy_(count)
    assert torch.allclose(found, want, atol=1e-5)


def test_what_is_prepared():
    module, x = Folds().eval(), torch.randn(4, 24)
    preparation, rest = _prepare.split(export(module, (x,), {}))
    left = [str(node.target) for node in rest().graph.nodes if node.op == "call_function"]
    assert preparation.count == 4  # the merged matrix, the bias, the table, the shift
    assert set(preparation.weights) == {"gain", "weight", "down", "up", "bias", "table", "shift"}
    assert left.count("aten.matmul.default") == 1
    assert not any("exp" in name or "_to_copy" in name or "aten.t." in name for name in left)


def test_results(untuned):
    module, x = Folds().eval().requires_grad_(False), torch.randn(4, 24)
    fast = frozen(module, x)
    assert len(untuned) == 1
    plain = equiforge.optimize(module, (x,))
    assert fast.plan.kernels < plain.plan.kernels
    assert list(fast.state_dict()) == list(module.state_dict())
    agree(fast, module, x)
    agree(fast, module, torch.randn(4, 24))


def test_weights_that_change():
    module, x = Folds().eval().requires_grad_(False), torch.randn(4, 24)
    fast = frozen(module, x)
    prepared = fast._prepared.tensors["equiforge_prepared_0"]
    agree(fast, module, x)
    assert fast._prepared.tensors["equiforge_prepared_0"] is prepared
    module.gain.mul_(3)
    agree(fast, module, x)
    fast.load_state_dict({name: x * 1.5 for name, x in module.state_dict().items()})
    agree(fast, module, x)
    module.up = nn.Parameter(torch.randn(2, 32), requires_grad=False)
    agree(fast, module, x)
    module.shift = torch.zeros(32)
    agree(fast, module, x)
    module.double().float()
    agree(fast, module, x)
    module.up, module.down = nn.Parameter(torch.randn(5, 32)), nn.Parameter(torch.randn(24, 5))
    agree(fast, module.requires_grad_(False), x)  # another rank of the adapter
    module.up = nn.Parameter(torch.randn(7, 32), requires_grad=False)
    with pytest.warns(UserWarning, match="another type, shape"), pytest.raises(RuntimeError):
        fast(x)  # as the original does


def test_files(tmp_path):
    module, x = Folds().eval().requires_grad_(False), torch.randn(4, 24)
    fast = frozen(module, x)
    module.weight.add_(0.1)
    fast.save(tmp_path / "fast.efz")
    alone = load(tmp_path / "fast.efz")
    alone.__dict__["_keep_original"] = False
    count = module.count.clone()
    assert torch.allclose(alone(x), module(x), atol=1e-5)
    module.count.copy_(count)
    other = Folds().eval().requires_grad_(False)
    its = load(tmp_path / "fast.efz", other)
    its.__dict__["_keep_original"] = False
    agree(its, other, x)
    other.gain.mul_(2)
    agree(its, other, x)
    with pytest.raises(EquiForgeError, match="saved with its weights"):
        fast.save(tmp_path / "bare.efz", weights=False)


def test_gradients():
    """Of weights that are in no other place than what was prepared, too."""
    module, x = Folds().eval(), torch.randn(4, 24)
    for parameter in (module.weight, module.down, module.up, module.bias):
        parameter.requires_grad_(False)
    fast = frozen(module, x)
    with pytest.warns(UserWarning, match="a parameter requires gradients"):
        fast(x).sum().backward()
    assert module.gain.grad is not None


def test_copies():
    module, x = Folds().eval().requires_grad_(False), torch.randn(4, 24)
    fast = frozen(module, x)
    twin = copy.deepcopy(fast)
    twin.gain.mul_(2)
    agree(fast, module, x)
    agree(twin, twin.original, x)


def test_global_tensors():
    """What is computed of a weight and of a tensor that is no part of the module."""
    scale = torch.arange(1.0, 25.0)

    class Scaled(Folds):
        def forward(self, x):
            self.count += 1
            return x @ (self.weight * scale).t()

    module, x = Scaled().eval().requires_grad_(False), torch.randn(4, 24)
    fast = frozen(module, x)
    assert fast._prepared is not None
    agree(fast, module, x)
    module.weight.mul_(2)
    agree(copy.deepcopy(fast), module, x)


def test_inference_tensors():
    """PyTorch does not tell when these are written to."""
    with torch.inference_mode():
        module, x = Folds().eval().requires_grad_(False), torch.randn(4, 24)
        fast = frozen(module, x)
        agree(fast, module, x)
        module.gain.mul_(3)
        agree(fast, module, x)


@pytest.mark.parametrize("freeze", [True, False])
def test_weights_that_are_gone(freeze):
    module, x = nn.Sequential(nn.Linear(24, 24, bias=False)).eval().requires_grad_(False), torch.randn(4, 24)
    fast = frozen(module, x, freeze)
    weight = module[0].weight
    for change in (lambda: setattr(module[0], "weight", None), lambda: delattr(module[0], "weight")):
        change()
        fast.__dict__["_told"] = False
        with pytest.warns(UserWarning, match="another type, shape"), pytest.raises((TypeError, AttributeError)):
            fast(x)  # as the original does
    module[0].weight = weight
    assert torch.allclose(fast(x), module(x), atol=1e-5)


def test_nothing_to_prepare(untuned):
    """Nothing larger than what it is made of, nothing random, nothing that is written to, no control flow."""

    class Outer(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Parameter(torch.randn(16)), nn.Parameter(torch.randn(16))
            self.register_buffer("state", torch.zeros(16))

        def forward(self, x):
            self.state.add_(1)
            mask = torch.arange(16)[:, None] <= torch.arange(16)
            return x * (self.a[:, None] * self.b) + self.state * 2 + mask

    class Branches(nn.Module):
        def __init__(self):
            super().__init__()
            self.w = nn.Parameter(torch.randn(16, 16))

        def forward(self, x):
            y = x @ self.w.t()
            return torch.cond(y.sum() > 0, lambda z: z + 1, lambda z: z - 1, (y,))

    x = torch.randn(16, 16)
    outer = export(Outer().eval(), (x,), {})
    preparation, _ = _prepare.split(outer)
    ends = {str(node.target) for node in preparation.module.graph.nodes if node.op == "call_function"}
    assert not any("mul" in name for name in ends), ends
    assert "state" not in preparation.weights
    assert _prepare.split(export(Branches().eval(), (x,), {}))[0].count == 0
    linear = nn.Linear(24, 24, dtype=torch.bfloat16).eval().requires_grad_(False)
    x = torch.randn(4, 24, dtype=torch.bfloat16)
    fast = frozen(linear, x)
    assert fast._prepared is None
    assert difference(fast, linear, (x,)) < 5e-3


def test_linear():
    """Weights of nn.Linear are laid out as kernels read them."""
    module, x = nn.Sequential(nn.Linear(24, 48), nn.GELU(), nn.Linear(48, 24, bias=False)).eval(), torch.randn(2, 3, 24)
    module.requires_grad_(False)
    fast = frozen(module, x)
    tensors = fast._prepared.tensors
    assert [tuple(x.shape) for x in tensors.values()] == [(24, 48), (48, 24)]
    assert all(x.is_contiguous() for x in tensors.values())
    assert difference(fast, module, (x,)) < 1e-5
    module[2].weight.mul_(2)
    assert difference(fast, module, (x,)) < 1e-5
