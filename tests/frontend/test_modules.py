"""Whole modules: regions around external calls, writes in place, tensors that are inputs and results, and layers that
nobody here wrote. PyTorch runs the external calls, the evaluator the regions."""

import copy
import re

import pytest
import torch
from layers import BATCH, LAYERS, LENGTH, WIDTH
from modules import Plan, same
from torch import nn
from torch.nn import functional as F


def r(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed + sum(shape)))


def run(module, arguments, core=False):
    """The plan, after comparing its results and every write to inputs and buffers with PyTorch's."""
    module.eval()
    twin, theirs = copy.deepcopy(module), copy.deepcopy(arguments)
    exported = torch.export.export(module, tuple(arguments))
    with torch.no_grad():
        expected, _ = torch.utils._pytree.tree_flatten(twin(*theirs))
    with Plan(exported.run_decompositions() if core else exported) as plan:
        plan.text()
        results = plan(*arguments)
    assert len(results) == len(expected)
    for mine, other in zip(results, expected, strict=True):
        same(mine, other)
    for mine, other in zip(arguments, theirs, strict=True):
        if isinstance(mine, torch.Tensor):
            same(mine, other)
    state = dict(plan.exported.state_dict)
    for name, other in twin.state_dict().items():
        same(state[name], other)
    return plan


@pytest.fixture(params=[False, True], ids=["composite", "core"])
def core(request):
    return request.param


def steps(plan):
    """External targets in order, and a dot for each region."""
    return [s.get("target", ".") for s in plan.plan["steps"]]


# ---- regions ----


class Embedded(nn.Module):
    """A gather, then arithmetic."""

    def __init__(self):
        super().__init__()
        self.table, self.linear = nn.Embedding(20, 8), nn.Linear(8, 8)

    def forward(self, tokens):
        return self.linear(self.table(tokens)).relu()


class Sorted(nn.Module):
    """Arithmetic, an external call, and arithmetic that needs both."""

    def forward(self, x, y):
        before = (x * y).softmax(-1)
        values, positions = before.sort(-1)
        return values * 2 + before, positions


class Independent(nn.Module):
    """Two external calls that do not wait for each other take one region before and one after."""

    def forward(self, x, y):
        a, b = (x + 1).cumsum(-1), (y * 2).cumsum(0)
        return a + b, (x - y).exp()


class Chained(nn.Module):
    """Every external call waits for the one before; the mask is rebuilt wherever it is needed, and the transposed
    weight is never stored."""

    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(r(6, 6))

    def forward(self, x):
        mask = torch.ones(6, 6).tril() == 0
        for _ in range(3):
            x = torch.where(mask, 0.0, x @ self.w.t()).cumsum(-1)
        return torch.where(mask, -1.0, x @ self.w.t())


def test_what_is_known_before_comes_first(core):
    plan = run(Embedded(), [torch.randint(0, 20, (3, 4))], core)
    assert steps(plan) == ["aten.embedding.default", "."]


def test_an_external_call_between_regions(core):
    plan = run(Sorted(), [r(3, 5), r(3, 5, seed=1)], core)
    assert steps(plan) == [".", "aten.sort.default", "."]


def test_as_few_regions_as_can_be(core):
    plan = run(Independent(), [r(4, 4), r(4, 4, seed=1)], core)
    assert steps(plan) == [".", "aten.cumsum.default", "aten.cumsum.default", "."]


def test_what_costs_nothing_is_not_handed_on(core):
    plan = run(Chained(), [r(2, 6, 6)], core)
    assert steps(plan) == [".", "aten.cumsum.default"] * 3 + ["."]
    for step in plan.plan["steps"]:
        names = [plan.plan["values"][v]["name"] for v in step["in"]]
        assert len(names) == (1 if "target" in step else 2), names


class Narrowed(nn.Module):
    """A gate in float32 from parameters in float32, and what it weights in float16 again, as models do."""

    def __init__(self):
        super().__init__()
        self.p, self.w = nn.Parameter(r(6, 6)), nn.Parameter(r(6, 4, seed=1).half())

    def forward(self, x):
        gated = (torch.sigmoid(x.float() @ self.p) * x).to(x.dtype)
        return gated @ self.w


def test_narrow_values_stay_narrow(core):
    """Products read float16 where PyTorch has it, though what is multiplied comes from float32."""
    module, arguments = Narrowed().eval(), (r(3, 6).half(),)
    exported = torch.export.export(module, arguments)
    with Plan(exported.run_decompositions() if core else exported) as plan:
        text = plan.text()
    assert text.count("cast[f16]") == 1
    assert re.search(r"^(\w+) = cast\[f16\].*\n.*matmul\(\1, p_w\)", text, re.M)


def test_nothing_to_compute():
    assert steps(run(nn.Identity(), [r(2)])) == []


def test_an_operator_that_is_not_pytorchs():
    @torch.library.custom_op("equiforge_test::twice", mutates_args=())
    def twice(x: torch.Tensor) -> torch.Tensor:
        return x * 2

    @twice.register_fake
    def _(x):
        return torch.empty_like(x)

    class Custom(nn.Module):
        def forward(self, x):
            return torch.ops.equiforge_test.twice(x + 1).exp()

    assert steps(run(Custom(), [r(3)])) == [".", "equiforge_test.twice.default", "."]


def test_types_that_the_ir_has_not(core):
    class Bytes(nn.Module):
        def forward(self, x):
            return (x.to(torch.uint8).to(torch.float32) + 1).exp()

    run(Bytes(), [r(3, 4).abs() * 5], core)


def test_inputs_of_other_kinds(core):
    class Optional(nn.Module):
        def forward(self, x, scale, bias=None, *, flag=True):
            return (x * scale if flag else x), bias

    run(Optional(), [r(3), 2.0, None], core)


# ---- writes ----


class Counter(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("calls", torch.tensor(0))
        self.register_buffer("mean", torch.zeros(4))

    def forward(self, x):
        self.calls += 1
        self.mean.mul_(0.9).add_(x.mean(0), alpha=0.1)
        return x - self.mean


class Cache(nn.Module):
    """A cache of keys that each call writes a part of."""

    def __init__(self):
        super().__init__()
        self.register_buffer("keys", torch.zeros(2, 6, 4))

    def forward(self, k):
        self.keys[:, 2:4] = k
        return self.keys.sum(1)


class IndexedCache(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("keys", torch.zeros(6, 4))

    def forward(self, k, positions):
        self.keys.index_copy_(0, positions, k)
        return self.keys @ k.t()


class ToInput(nn.Module):
    def forward(self, x, y):
        x.add_(y)
        return x * 2


class ThroughViews(nn.Module):
    """Writes through views of views are seen by all views of the tensor."""

    def forward(self, x):
        x = x + 0
        rows, column = x.view(2, 3, 4), x.t()[1]
        rows[1, :, 2:].mul_(3)
        column.zero_()
        rows.transpose(1, 2)[0, 0].fill_(7)
        return x, rows + 1, column


class OwnCopy(nn.Module):
    """A copy keeps what the input was."""

    def forward(self, x):
        before = x.clone()
        x.mul_(2)
        return before, x + before


class InPlaceChain(nn.Module):
    def forward(self, x):
        y = x.exp()
        y.add_(1).mul_(x)
        y.clamp_(max=3)
        z = F.relu(y, inplace=True)
        return y + z


class Strange(nn.Module):
    """A write through a view that no operator of the IR makes: everything stays external, and right."""

    def forward(self, x):
        x = x * 2
        x.diagonal().fill_(5)
        return x + 1


@pytest.mark.parametrize(
    ("module", "arguments", "external"),
    [
        (Counter(), [r(3, 4)], []),
        (Cache(), [r(2, 2, 4)], []),
        (IndexedCache(), [r(2, 4), torch.tensor([1, 4])], ["aten.index_copy.default"]),
        (ToInput(), [r(3), r(3, seed=1)], []),
        (ThroughViews(), [r(6, 4)], []),
        (OwnCopy(), [r(3)], ["aten.clone.default"]),
        (InPlaceChain(), [r(3, 4)], []),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, nn.Module) else "",
)
def test_writes(module, arguments, external, core):
    plan = run(copy.deepcopy(module), copy.deepcopy(arguments), core)
    if not core:
        assert plan.external == external, plan.reasons


def test_writes_that_cannot_be_followed():
    plan = run(Strange(), [r(4, 4)])
    assert "." not in steps(plan)
    assert set(plan.reasons.values()) == {"it writes to memory that an external call has a view of"}


def test_operators_without_results_stay_in_order():
    @torch.library.custom_op("equiforge_test::double", mutates_args=("x",))
    def double(x: torch.Tensor) -> None:
        x.mul_(2)

    @double.register_fake
    def _(x):
        return None

    class Writer(nn.Module):
        def forward(self, x):
            y = x + 1
            torch.ops.equiforge_test.double(y)
            return y * 3

    assert "." not in steps(run(Writer(), [r(3)]))


# ---- control flow, and sizes that the data decide ----


class Branches(nn.Module):
    """Branches with parameters, inside of no_grad too; what surrounds them are regions."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(6, 6)

    def forward(self, x):
        y = self.linear(x).relu()
        z = torch.cond(x.sum() > 0, lambda t: self.linear(t) + 1, lambda t: t - 1, (y,))
        with torch.no_grad():
            w = torch.cond(x.sum() < 0, lambda t: (t.exp(), t * 2), lambda t: (t.neg(), t), (z,))
        return z.softmax(-1), w[0] + w[1] * y


class Loop(nn.Module):
    def forward(self, x):
        from torch._higher_order_ops.while_loop import while_loop

        return while_loop(lambda i, t: i < 3, lambda i, t: (i + 1, t * 2), (torch.tensor(0), x.exp()))[1] + x


class WritesAfterBranch(nn.Module):
    """A branch may return what it was given: a write to that is followed nowhere, so all stays as it is."""

    def forward(self, x):
        y = x * 2
        z = torch.cond(x.sum() > 0, lambda t: t + 0, lambda t: t - 1, (y,))
        y.add_(1)
        return y, z.exp()


class Autocast(nn.Module):
    def forward(self, x):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = x @ x.T
        return y.float().exp()


class AutocastWrites(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("sum", torch.zeros(3, 3))

    def forward(self, x):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            self.sum.add_(x @ x.T)
        return self.sum + 1


class Found(nn.Module):
    def forward(self, x):
        return x[x > 0].sum() + x.exp(), torch.nonzero(x) * 2, torch.unique(x)


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize(
    ("module", "found"),
    [
        (Branches, [".", "higher_order.cond", "higher_order.cond", "."]),
        (Loop, [".", "higher_order.while_loop", "."]),
        (WritesAfterBranch, None),
        (Autocast, ["higher_order.wrap_with_autocast", "."]),
        (AutocastWrites, None),
        (Found, [".", "aten.index.Tensor", "aten.sum.default", "aten.nonzero.default", "aten._unique2.default", "."]),
    ],
)
def test_submodules_stay_external(module, found, sign):
    plan = run(module(), [sign * r(3, 6).abs() * torch.tensor([1.0, -0.5]).repeat(3)])
    if found is None:
        assert "." not in steps(plan)
    elif module is Found:
        assert sorted(steps(plan)) == sorted([*found, "aten.mul.Tensor"])
    else:
        assert steps(plan) == found


# ---- layers ----

EXPERTS = {
    "deepseek_v3_experts": ["aten.gather.default", "aten.index.Tensor", "aten.scatter.value", "aten.topk.default"],
    "gpt_oss": ["aten.index.Tensor", "aten.topk.default"],
}


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize("name", LAYERS)
def test_layers_of_transformers(name, attention):
    arguments = [r(BATCH, LENGTH, WIDTH)]
    if attention == "eager" and name != "vit":
        causal = torch.full((LENGTH, LENGTH), float("-inf")).triu(1)
        arguments.append(causal.expand(BATCH, 1, -1, -1).contiguous())
    plan = run(LAYERS[name](attention), arguments)
    assert plan.external == EXPERTS.get(name, [])
    assert plan.plan["regions"] == (1 if name not in EXPERTS else {"gpt_oss": 3}.get(name, 5))


@pytest.mark.parametrize("name", ["llama", "gpt_oss"])
def test_layers_in_half_precision(name):
    run(LAYERS[name]("sdpa").bfloat16(), [r(BATCH, LENGTH, WIDTH).bfloat16()])
