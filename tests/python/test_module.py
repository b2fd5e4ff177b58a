"""Plans run as the modules that they were made of: kernels, calls of PyTorch, fallbacks, weights."""

import copy
import warnings

import pytest
import torch
from test_worker import CANDIDATE
from torch import nn

from equiforge import EquiForgeError
from equiforge._calls import external, operator
from equiforge._module import Attached, Call, OptimizedModule
from equiforge._plan import Plan, Step


class Model(nn.Module):
    """Embedding, then RMS norm: what stays a call, and what a kernel does."""

    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(10, 40, dtype=torch.float16)
        self.g = nn.Parameter(torch.rand(40).half() + 0.5)
        self.register_buffer("count", torch.zeros(1))
        self.requires_grad_(False)

    def forward(self, tokens, scale: float = 1.0):
        x = self.table(tokens)
        self.count.copy_(self.count + 1)
        h = x.float()
        return ((h * torch.rsqrt(h.pow(2).mean(-1, keepdim=True) + 1e-6)) * self.g).half(), {"embedded": x}


def value(name, kind, dtype, shape, **more):
    return {"name": name, "kind": kind, "torch_dtype": dtype, "dtype": None, "shape": shape, **more}


def description() -> dict:
    """As equiforge_plan_describe prints it."""
    from torch.utils import _pytree as pytree

    _, out_spec = pytree.tree_flatten((torch.zeros(1), {"embedded": torch.zeros(1)}))
    return {
        "name": "model",
        "target": "cpu",
        "user_inputs": 1,
        "values": [
            value("tokens", "input", "int64", [12], input=0),
            value("table", "parameter", "float16", [10, 40], target="table.weight"),
            value("g", "parameter", "float16", [40], target="g"),
            value("count", "buffer", "float32", [1], target="count"),
            value("x", "result", "float16", [12, 40], step=0),
            value("y", "result", "float16", [12, 40], step=1),
            value("next", "result", "float32", [1], step=2),
        ],
        "steps": [
            {
                "in": [1, 0],
                "out": [4],
                "target": "aten.embedding.default",
                "reason": "a gather",
                "arguments": {"args": [{"tensor": 0}, {"tensor": 1}], "kwargs": {}},
                "results": {"tensor": 0},
            },
            {"in": [4, 2], "out": [5], "region": 0},
            {
                "in": [3],
                "out": [6],
                "target": "aten.add.Scalar",
                "reason": "for the test",
                "arguments": {"args": [{"tensor": 0}, 1], "kwargs": {}},
                "results": {"tensor": 0},
            },
        ],
        "regions": [
            {
                "language": "triton",
                "entry": "candidate",
                "source": CANDIDATE,
                "kernels": 2,
                "original": False,
                "us": 1.0,
                "original_us": 2.0,
                "rel_l2": 1e-4,
                "schedule": "",
                "device": "",
                "threads": 0,
            }
        ],
        "outputs": [{"value": 5}, {"value": 4}],
        "mutations": [{"value": 6, "target": 3}],
        "in_spec": None,
        "out_spec": pytree.treespec_dumps(out_spec),
    }


@pytest.fixture(autouse=True)
def own_cache(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


def optimized(model: nn.Module) -> OptimizedModule:
    tokens = torch.arange(12) % 10
    return OptimizedModule(model, Plan.of(description()), Call.example((tokens,), {}, model))


def test_runs():
    torch.manual_seed(1)
    model = Model()
    other = copy.deepcopy(model)
    fast = optimized(model)
    assert fast.plan.kernels == 2
    assert fast.plan.external == ["aten.embedding.default", "aten.add.Scalar"]
    for calls in (1, 2):
        tokens = torch.randint(0, 10, (12,))
        (y, more), (want, want_more) = fast(tokens), other(tokens)
        assert torch.allclose(y, want, rtol=2e-3, atol=1e-4)
        assert torch.equal(more["embedded"], want_more["embedded"])
        assert model.count.item() == calls


def test_shares_weights():
    model = Model()
    fast = optimized(model)
    assert list(fast.state_dict()) == list(model.state_dict()) == ["g", "count", "table.weight"]
    assert all(a is b for a, b in zip(fast.parameters(), model.parameters(), strict=True))
    state = {name: x * 2 for name, x in model.state_dict().items()}
    fast.load_state_dict(state)
    tokens = torch.arange(12) % 10
    assert torch.equal(model.g, state["g"])
    assert torch.allclose(fast(tokens)[0], model(tokens)[0], rtol=2e-3, atol=1e-4)
    # A buffer that is replaced, as .to() does, is seen.
    model.count = torch.full((1,), 7.0)
    fast(tokens)
    assert model.count.item() == 8
    assert fast.table is model.table


def test_falls_back():
    model = Model()
    fast = optimized(model)
    tokens = torch.arange(5)
    with pytest.warns(UserWarning, match="an argument is torch.int64"):
        assert fast(tokens)[0].shape == (5, 40)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # it is said once
        assert torch.equal(fast(tokens)[0], model(tokens)[0])
        assert fast((torch.arange(12) % 10).int())[0].shape == (12, 40)
        assert torch.equal(fast(torch.arange(12) % 10, scale=2.0)[0], model(torch.arange(12) % 10)[0])
        fast.train()
        assert model.training
        fast.eval()
        assert not model.training


def test_changed_weights():
    """Kernels never see tensors of other types or shapes than they were made for."""
    model = Model()
    fast = optimized(model)
    tokens = torch.arange(12) % 10
    fast.float()
    assert model.g.dtype == torch.float32
    with pytest.warns(UserWarning, match="parameter or buffer"):
        assert torch.equal(fast(tokens)[1]["embedded"], model(tokens)[1]["embedded"])
    fast.half()
    model.count = torch.zeros(1)
    before = model.count.item()
    fast(tokens)
    assert model.count.item() == before + 1
    model.g.data = torch.ones(1).half()
    assert torch.equal(fast(tokens)[0], model(tokens)[0])


def test_gradients():
    """In evaluation mode too: a frozen part of something that learns."""
    model = Model().requires_grad_(True)
    fast = optimized(model)
    tokens = torch.arange(12) % 10
    with pytest.warns(UserWarning, match=r"a parameter requires gradients.*no_grad"):
        result = fast(tokens)[0]
    result.float().sum().backward()
    assert model.g.grad is not None
    assert model.table.weight.grad is not None
    with torch.no_grad():
        assert not fast(tokens)[0].requires_grad
    with torch.inference_mode():
        assert torch.allclose(fast(tokens)[0], model(tokens)[0], rtol=2e-3, atol=1e-4)
    model.requires_grad_(False)
    assert not fast(tokens)[0].requires_grad


def test_training_mode():
    model = Model()
    fast = optimized(model)
    tokens = torch.arange(12) % 10
    fast.train()
    with pytest.warns(UserWarning, match="training"), torch.no_grad():
        assert fast(tokens)[0].shape == (12, 40)


def test_other_modules():
    with pytest.raises(EquiForgeError, match=r"has no parameter table\.weight"):
        optimized(nn.Linear(2, 2))
    model = Model()
    model.g = nn.Parameter(torch.rand(41).half())
    with pytest.raises(EquiForgeError, match="g is torch.float16"):
        optimized(model)
    with pytest.raises(EquiForgeError, match="not in the file"):
        OptimizedModule(None, Plan.of(description()), Call.example((torch.arange(12),), {}, None))
    constants = {"table.weight": model.table.weight, "g": torch.ones(40).half(), "count": torch.zeros(1)}
    alone = OptimizedModule(
        None, Plan.of(description()), Call.example((torch.arange(12),), {}, None), attached=Attached(constants)
    )
    assert alone(torch.arange(12) % 10)[0].shape == (12, 40)
    with pytest.raises(EquiForgeError, match="without the original"):
        alone(torch.arange(3))


def test_calls():
    cpu = torch.device("cpu")

    def call(target, args, results, kwargs=None, outs=1):
        arguments = {"args": args, "kwargs": kwargs or {}}
        return external(Step((), tuple(range(outs)), call=target, arguments=arguments, results=results), cpu)

    a, b = {"tensor": 0}, {"tensor": 1}
    x = torch.tensor([[3.0, 1.0], [2.0, 5.0]])
    (result,) = call("aten.cat.default", [[a, b], 1], a)([x, x])
    assert torch.equal(result, torch.cat([x, x], 1))
    values, indices = call("aten.sort.default", [a, 1, True], [a, b], outs=2)([x])
    assert torch.equal(values, torch.tensor([[3.0, 1.0], [5.0, 2.0]]))
    assert indices.dtype == torch.int64
    (indices,) = call("aten.sort.default", [a], [None, a])([x])
    assert indices.dtype == torch.int64
    first, second = call("aten.split.Tensor", [a, 1], [a, b], outs=2)([x])
    assert torch.equal(torch.cat([first, second]), x)
    full = call(
        "aten.full.default", [[2], {"float": "-inf"}], a, {"dtype": {"dtype": "float16"}, "device": {"device": "cpu"}}
    )
    assert full([])[0].dtype == torch.float16
    for target in ("aten.no_such_thing.default", "os.system", "aten.add", "__init__.x.y", "aten.add.__class__"):
        with pytest.raises(EquiForgeError):
            operator(target)
    with pytest.raises(EquiForgeError, match="unknown argument"):
        call("aten.full.default", [[2], {"dtype": "os"}], a)


def test_capture_needs_a_gpu():
    if not torch.cuda.is_available():
        with pytest.raises(EquiForgeError, match="CUDA"):
            optimized(Model()).capture(torch.arange(12))


def test_says_which_structure_it_wants():
    """Keys of a dict have an order, which a message shows."""
    x = torch.ones(2)
    call = Call.example((x, {"b": x, "a": [x, 2]}), {"mask": x}, None)
    assert call.flatten((x, {"a": [x, 2], "b": x}), {"mask": x}) is None
    assert call.unlike(None) == "the arguments have another structure than (x, {'b': x, 'a': [x, 2]}, mask=x)"
    assert call.unlike(call.flatten((x, {"b": x, "a": [x, 2]}), {"mask": x})) is None
    assert len(Call.example((["long" * 20] * 10,), {}, None).unlike(None)) < 300
