"""Plans run as the modules that they were made of: kernels, calls of PyTorch, fallbacks, weights."""

import copy
import gc
import warnings
import weakref
from dataclasses import replace

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


@torch.no_grad()
def test_replaced_submodules():
    """The original runs: whatever was put there computes in its own way, of weights of its own."""
    model, tokens = Model(), torch.arange(12) % 10
    model.parts = nn.Sequential(nn.Sequential(nn.Identity()))
    fast = optimized(model)
    kernels = fast._runner.kernels[0]
    calls, ran = [], type(kernels).__call__

    def count(self, inputs):
        calls.append(1)
        return ran(self, inputs)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(kernels), "__call__", count)
        for _ in range(3):
            fast(tokens)
        assert fast._quick and len(calls) == 3
        held, model.table = model.table, nn.Embedding(10, 40, dtype=torch.float16)
        with pytest.warns(UserWarning, match="a submodule is another one"):
            assert torch.equal(fast(tokens)[1]["embedded"], model.table(tokens))
        assert torch.equal(fast.forward(tokens)[0], model(tokens)[0])
        fast.table = held
        fast(tokens)
        assert len(calls) == 4
        inner, model.parts[0][0] = model.parts[0][0], nn.ReLU()
        fast(tokens)
        assert len(calls) == 4
        model.parts[0][0] = inner
        model.parts.append(nn.ReLU())
        fast(tokens)
        assert len(calls) == 4
        del model.parts[1]
        fast(tokens)
        assert len(calls) == 5


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


class Scale(nn.Module):
    """Two arguments; what its plan does with a call of PyTorch is x * w + y."""

    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.randn(3, 4), requires_grad=False)

    def forward(self, x, y):
        return torch.addcmul(y, x, self.w)


def scaled(module: nn.Module, recorded=True, named=()) -> OptimizedModule:
    """For arguments of which some are `named`. `recorded` calls of PyTorch, or, which no gradients are recorded of, a
    region of PyTorch's."""
    arguments = {"args": [{"tensor": 0}, {"tensor": 1}, {"tensor": 2}], "kwargs": {}}
    call = {"target": "aten.addcmul.default", "reason": "", "arguments": arguments, "results": {"tensor": 0}}
    entry = description()
    entry.update(user_inputs=2, outputs=[{"value": 3}], mutations=[], out_spec=None)
    entry["steps"] = [{"in": [1, 0, 2], "out": [3], **(call if recorded else {"region": 0})}]
    entry["values"] = [
        value("x", "input", "float32", [3, 4], input=0),
        value("y", "input", "float32", [3, 4], input=1),
        value("w", "parameter", "float32", [3, 4], target="w"),
        value("z", "result", "float32", [3, 4], step=0),
    ]
    rows = "    assert all(t.is_contiguous() for t in (y, x, w))\n"  # as kernels need them
    entry["regions"][0].update(torch=f"import torch\ndef region(y, x, w):\n{rows}    return torch.addcmul(y, x, w)\n")
    example = [torch.randn(3, 4) for _ in range(2 - len(named))]
    call = Call.example(example, {name: torch.randn(3, 4) for name in named}, module)
    return OptimizedModule(module, Plan.of(entry), call)


def plain(f, x, y):
    return f(x, y)


class Ways:
    """Which way calls of an optimised module go: "quick", as an earlier one; "checked", argument by argument; or that
    of the "original". Their results are right."""

    def __init__(self, recorded: bool, named=()):
        self.module = Scale()
        self.fast = scaled(self.module, recorded, named)
        self.ran: list[str] = []
        run, original = self.fast._runner.run, self.module.forward
        self.fast._runner.run = lambda flat: self.ran.append("checked") or run(flat)
        self.module.forward = lambda *args, **named: self.ran.append("original") or original(*args, **named)

    def __call__(self, call=plain, x=None, y=None) -> str:
        x, y = (torch.randn(3, 4) if given is None else given for given in (x, y))
        want = call(self.module, x, y)
        self.ran.clear()
        result = call(self.fast, x, y)
        assert torch.allclose(result, want)
        assert (result.dtype, result.requires_grad) == (want.dtype, want.requires_grad)
        return self.ran[-1] if self.ran else "quick"


@pytest.mark.filterwarnings("ignore:.*runs the original")
@pytest.mark.parametrize("recorded", [True, False])
@torch.no_grad()
def test_calls_like_an_earlier_one(recorded):
    """They are checked at once, and run a function of their own. Other arguments are noticed, whatever was learned."""
    way = Ways(recorded)
    assert way() == "checked"
    assert way() == "quick"
    # One tensor for both, and one that does not lie in a row: each has its own function.
    for other in (lambda f, x, y: f(x, x), lambda f, x, y: f(x.t().contiguous().t(), y)):
        assert [way(other), way(other), way()] == ["checked", "quick", "quick"]
    for x in (torch.ones(3, 4).double(), torch.ones(4), torch.ones(1, 4), torch.ones(3, 1, 4)):
        assert way(x=x, y=torch.ones(3, 4)) == "original"
    for wrong in ((), (1.0, 2.0), (torch.ones(3, 4),) * 3):
        with pytest.raises(TypeError):
            way.fast(*wrong)
    with pytest.raises(TypeError):
        way.fast(torch.ones(3, 4), torch.ones(3, 4), scale=2.0)
    assert way(lambda f, x, y: f(x, y=y)) == "original"
    with torch.inference_mode():
        assert [way(), way()] == ["checked", "quick"]
    # There are four functions, and no more.
    assert [way(lambda f, x, y: f(x, y.t().contiguous().t())) for _ in range(2)] == ["checked", "checked"]
    assert way() == "quick"


@pytest.mark.filterwarnings("ignore:.*runs the original")
@torch.no_grad()
def test_arguments_by_name():
    """Those of the example are given by name, and no others are."""
    calls = {
        (): plain,
        ("y",): lambda f, x, y: f(x, y=y),
        ("x", "y"): lambda f, x, y: f(x=x, y=y),
        ("y", "x"): lambda f, x, y: f(y=y, x=x),
    }
    for named in list(calls)[:3]:
        way = Ways(True, named)
        for other, call in calls.items():
            expected = ["checked", "quick"] if other == named else ["original", "original"]
            assert [way(call), way(call)] == expected, (named, other)
        for given, names in (((), {}), ((torch.ones(3, 4),), {}), ((), {"y": torch.ones(3, 4)})):
            with pytest.raises(TypeError):
                way.fast(*given, **names)


class Valued(Scale):
    def forward(self, x, flag, y, **values):
        return super().forward(x, y)


@pytest.mark.filterwarnings("ignore:.*runs the original")
@torch.no_grad()
def test_values_of_an_earlier_call():
    """Arguments that are no tensors have the example's values."""
    module = Valued()
    plan = scaled(module).plan
    values = (plan.values[0], replace(plan.values[1], input=2), *plan.values[2:])
    x, y = torch.randn(3, 4), torch.randn(3, 4)
    named = {"n": 2, "mask": None, "factor": 0.0, "mode": "text"}
    call = Call.example((x, True, y), named, module)
    fast = OptimizedModule(module, replace(plan, user_inputs=7, values=values), call)
    ran = []
    run, original = fast._runner.run, module.forward
    fast._runner.run = lambda flat: ran.append("checked") or run(flat)
    module.forward = lambda *args, **named: ran.append("original") or original(*args, **named)
    assert torch.allclose(fast(x, True, y, **named), torch.addcmul(y, x, module.w))
    assert torch.allclose(fast(y, True, x, **named), torch.addcmul(x, y, module.w))
    assert ran == ["checked"]
    assert len(fast._runner.quick) == 1
    others = {"n": [2.0, True, 3], "mask": [False, x], "factor": [-0.0, 0, float("nan")], "mode": ["Text", b"text"]}
    for name, given in others.items():
        for other in given:
            ran.clear()
            fast(x, True, y, **{**named, name: other})
            assert ran == ["original"], (name, other)
    for other in (1, False, None, x):
        ran.clear()
        fast(x, other, y, **named)
        assert ran == ["original"], other


@torch.no_grad()
def test_direct_calls_of_forward():
    fast = scaled(Scale())
    x, y = torch.randn(3, 4), torch.randn(3, 4)
    for _ in range(3):
        assert torch.allclose(fast.forward(x, y), fast.original(x, y))
        assert len(fast._quick) == 1


@pytest.mark.filterwarnings("ignore:.*runs the original")
@pytest.mark.parametrize("recorded", [True, False])
@torch.no_grad()
def test_weights_after_an_earlier_call(recorded):
    """What replaces a weight is used; one that kernels do not fit is noticed, as one that is gone."""
    way = Ways(recorded)
    module = way.module
    assert [way(), way()] == ["checked", "quick"]
    module.w.data = torch.randn(3, 4)
    assert way() == "quick"
    module.w = nn.Parameter(torch.randn(3, 4), requires_grad=False)
    assert way() == "quick"
    for w in (torch.randn(4), torch.randn(3, 4).double(), torch.randn(4, 3).t()):
        before, module.w.data = module.w.data, w
        x, y = (torch.randn(3, 4, dtype=w.dtype) for _ in range(2))
        assert way(x=x, y=y) == ("checked" if w.shape == x.shape and w.dtype == torch.float32 else "original")
        module.w.data = before
    held, module.w = module.w, None
    with pytest.raises(TypeError):
        way()
    del module._parameters["w"]
    with pytest.raises(AttributeError):
        way()
    module.w = held
    assert way() == "quick"


@pytest.mark.filterwarnings("ignore:.*runs the original")
@pytest.mark.parametrize("recorded", [True, False])
def test_modes_after_an_earlier_call(recorded):
    way = Ways(recorded)
    module, fast = way.module, way.fast
    with torch.no_grad():
        assert [way(), way()] == ["checked", "quick"]
        with torch.autocast("cpu", torch.bfloat16):
            assert way() == "original"
        fast.train()
        assert way() == "original"
        fast.eval()
        fast.__dict__["_keep_original"] = True
        assert way() == "original"
        fast.__dict__["_keep_original"] = False
        assert way() == "quick"
    # Calls of PyTorch would record gradients.
    assert way() == ("checked" if recorded else "quick")
    assert way(x=torch.randn(3, 4, requires_grad=True)) == "original"
    module.w.requires_grad_(True)
    assert way() == "original"
    with torch.no_grad():
        assert [way(), way()] == ["checked", "quick"]
    assert way() == "original"
    module.w.requires_grad_(False)
    assert way() == ("checked" if recorded else "quick")


def test_hooks():
    """Those of the optimised module itself are called, whatever was learned before; as a `forward` of its own is."""
    fast, calls = scaled(Scale()), []
    x, y = torch.randn(3, 4), torch.randn(3, 4)
    with torch.no_grad():
        for _ in range(2):
            fast(x, y)
        for register in (fast.register_forward_hook, nn.modules.module.register_module_forward_hook):
            hook = register(lambda *_: calls.append(1))
            fast(x, y)
            hook.remove()
            fast(x, y)
        assert len(calls) == 2
        with fast.register_forward_pre_hook(lambda module, args: (args[0] * 2, args[1])):
            assert torch.allclose(fast(x, y), fast.original(2 * x, y))
        forward, fast.forward = fast.forward, lambda *args: calls.append(1) or forward(*args)
        fast(x, y)
        assert len(calls) == 3


def test_forgets_arguments():
    """What was learned of a call keeps none of its tensors."""
    fast = scaled(Scale())
    x, y = torch.randn(3, 4), torch.randn(3, 4)
    gone = weakref.ref(x), weakref.ref(y)
    with torch.no_grad():
        fast(x, y)
    assert fast._quick
    del x, y
    gc.collect()
    assert [ref() for ref in gone] == [None, None]


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
