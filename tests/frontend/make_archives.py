"""Exports small modules with the installed PyTorch, each to NAME.pt2, beside NAME.json: what a reader must find.

    python tests/frontend/make_archives.py FOLDER [NAME ...]

It needs PyTorch (2.9 or newer) and nothing else, so it also runs where EquiForge is not installed: that is how the
archives of other versions in tests/frontend/archives were made (FOLDER named after the version).
"""

import collections
import json
import re
import sys
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional as F


def counted(*shape, dtype=torch.float32):
    """0, 1, 2, …: contents that a test can know."""
    return torch.arange(torch.Size(shape).numel(), dtype=torch.float64).reshape(shape).to(dtype)


class Tied(nn.Module):
    """Two layers with one weight, under two names."""

    def __init__(self):
        super().__init__()
        self.first = nn.Linear(6, 6, bias=False)
        self.second = nn.Linear(6, 6)
        self.second.weight = self.first.weight

    def forward(self, x):
        return self.second(torch.relu(self.first(x)))


class Storage(nn.Module):
    """Parameters and buffers that are views: transposed, sliced, overlapping, empty, of rank 0."""

    def __init__(self):
        super().__init__()
        whole = counted(4, 6)
        self.turned = nn.Parameter(counted(3, 5).t())
        self.register_buffer("whole", whole)
        self.register_buffer("part", whole[1:3, 2:5])
        self.register_buffer("column", whole[:, 3])
        self.register_buffer("wide", counted(1, 3).expand(4, 3))
        self.register_buffer("empty", torch.empty(0, 3))
        self.register_buffer("scalar", torch.tensor(7.0))
        self.register_buffer("hidden", counted(3), persistent=False)

    def forward(self, x):
        a = self.whole.sum() + self.part.sum() + self.column.sum() + self.wide.sum() + self.scalar
        return x @ self.turned[:, :3] + a + self.hidden, torch.cat([self.empty, self.wide])


class Types(nn.Module):
    """Constants of every element type that PyTorch users meet."""

    def __init__(self):
        super().__init__()
        for dtype in ("float16", "bfloat16", "float64", "int64", "int32", "int16", "int8", "uint8"):
            self.register_buffer("a_" + dtype, counted(2, 3, dtype=getattr(torch, dtype)))
        self.register_buffer("truth", torch.tensor([True, False, True]))

    def forward(self, x):
        x = x + self.a_float16 + self.a_bfloat16 + self.a_float64 + self.a_int64 + self.a_int32 + self.a_int16
        return torch.where(self.truth, x + self.a_int8, self.a_uint8), x.to(torch.bfloat16), x > 0


class Mutations(nn.Module):
    """Writes to a buffer and to an input, and constants made in the code."""

    def __init__(self):
        super().__init__()
        self.register_buffer("calls", torch.zeros(()))
        self.register_buffer("cache", torch.zeros(2, 4))

    def forward(self, x, y):
        self.calls.add_(1)
        self.cache[:, 1:3].copy_(x[:, :2])
        y.mul_(2)
        return x + y + self.cache + torch.tensor([1.0, 2.0, 3.0, 4.0]), self.calls


class Regions(nn.Module):
    """Submodules that the reader puts in place of their calls; names inside repeat names outside."""

    def forward(self, x, y):
        with torch.no_grad():
            a = x * 2
            b = y + a
        with torch.autocast("cpu", enabled=False):
            c = torch.matmul(a.float(), b.float())
            with torch.no_grad():
                d = c.exp()
        return d * x, b.mul(3)


class Results(nn.Module):
    """Nested results: one tensor twice, an input as it is, None, numbers, a string."""

    def forward(self, x, y, scale, flag=None):
        z = x * scale
        return {"twice": (z, z), "input": y, "none": flag, "literals": [3, 2.5, True, "text"], "last": z + y}


class Arguments(nn.Module):
    """Every form of argument: lists, optional tensors, infinities, strings, types, layouts, several outputs."""

    def forward(self, x, index):
        values, order = torch.topk(x, 2, dim=-1)
        a, b, _ = x.split([1, 2, 1], dim=-1)
        c = torch.cat([a, b, values], dim=1)[:, index]
        c = c.masked_fill(c > 0.5, float("-inf")).clamp(min=-3.0).contiguous(memory_format=torch.contiguous_format)
        d = F.gelu(x, approximate="tanh").to(torch.float16) + torch.full((4,), 0.5, dtype=torch.float16)
        e = torch.einsum("bi,ci->bc", x, x) + torch.arange(3, device=x.device, dtype=x.dtype)
        e = torch.where(e > 0, float("inf"), e).sum(dim=(0, 1), keepdim=True)
        f = torch.zeros_like(x).var(dim=[1], correction=0) + order.sum()
        return c, d, e, f, x.any(), x.chunk(2, dim=1)[0]


class Attention(nn.Module):
    """A block as people write it: norm, projections, rotary embedding, grouped causal attention, residual."""

    def __init__(self, width=32, heads=4, groups=2):
        super().__init__()
        self.heads, self.groups, self.head = heads, groups, width // heads
        self.norm = nn.LayerNorm(width)
        self.q = nn.Linear(width, width, bias=False)
        self.kv = nn.Linear(width, 2 * groups * self.head, bias=False)
        self.out = nn.Linear(width, width)

    def forward(self, x):
        batch, length, width = x.shape
        n = self.norm(x)
        q = self.q(n).view(batch, length, self.heads, self.head).transpose(1, 2)
        k, v = self.kv(n).view(batch, length, 2, self.groups, self.head).permute(2, 0, 3, 1, 4)
        angle = torch.outer(torch.arange(length), 10000.0 ** (-torch.arange(0, self.head, 2) / self.head))
        q, k = (
            torch.stack([t[..., ::2] * angle.cos() - t[..., 1::2] * angle.sin(),
                         t[..., ::2] * angle.sin() + t[..., 1::2] * angle.cos()], dim=-1).flatten(-2)
            for t in (q, k)
        )  # fmt: skip
        o = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        return x + self.out(o.transpose(1, 2).reshape(batch, length, width))


class Deep(nn.Module):
    """Containers and modules inside of modules."""

    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(4, 8), nn.SiLU(), nn.Linear(8, 4)) for _ in range(3))
        self.gain = nn.ParameterDict({"a": nn.Parameter(torch.ones(4))})

    def forward(self, x):
        for block in self.blocks:
            x = x + F.dropout(block(x), 0.1, self.training) * self.gain["a"]
        return x


class Counts(nn.Module):
    """A size that only the data decide, in the middle."""

    def forward(self, x):
        return torch.nonzero(x).sum()


class Dynamic(nn.Module):
    def forward(self, x):
        return torch.softmax(x, -1)


class Branch(nn.Module):
    def forward(self, x):
        return torch.cond(x.sum() > 0, lambda t: t + 1, lambda t: t - 1, (x,))


class Mixed(nn.Module):
    def forward(self, x):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return x @ x


def same_tensor_twice():
    x = torch.randn(2, 3)
    return torch.export.export(Same(), (x, x))


class Same(nn.Module):
    """Called with one tensor for both inputs."""

    def forward(self, x, y):
        return x * y + x


def export(module, *inputs, **options):
    return lambda: torch.export.export(module(), inputs, **options)


def decomposed(module, *inputs):
    return lambda: torch.export.export(module(), inputs).run_decompositions()


x = torch.randn
GOOD = {
    "tied": export(Tied, x(3, 6)),
    "storage": export(Storage, x(2, 5)),
    "types": export(Types, x(2, 3)),
    "mutations": export(Mutations, x(2, 4), x(2, 4)),
    "mutations_functional": decomposed(Mutations, x(2, 4), x(2, 4)),
    "regions": export(Regions, x(4, 4), x(4, 4)),
    "results": export(Results, x(2, 3), x(2, 3), 1.5),
    "arguments": export(Arguments, x(3, 4), torch.tensor([0, 2])),
    "attention": export(Attention, x(2, 5, 32)),
    "attention_functional": decomposed(Attention, x(2, 5, 32)),
    "deep": export(lambda: Deep().eval(), x(2, 4)),
    "same": same_tensor_twice,
    "counts": export(Counts, x(4, 4)),
    "branch": export(Branch, x(3, 4)),
    "mixed": export(Mixed, x(4, 4)),
}
REFUSED = {
    "dynamic": (export(Dynamic, x(3, 4), dynamic_shapes={"x": {0: torch.export.Dim("rows")}}), "dynamic size"),
}

NAMES = {torch.float16: "f16", torch.bfloat16: "bf16", torch.float32: "f32", torch.float64: "f64",
         torch.int32: "i32", torch.int64: "i64", torch.bool: "bool"}  # fmt: skip


def tensor(name, value):
    return {"name": name, "dtype": NAMES.get(value.dtype, str(value.dtype)[6:]), "shape": list(value.shape)}


def targets(graph_module):
    """The operators called, with those of the submodules that the reader puts in place of their calls."""
    for node in graph_module.graph.nodes:
        if node.op != "call_function" or node.target.__name__ == "getitem":
            continue
        name = getattr(node.target, "__name__", "")
        if name == "wrap_with_set_grad_enabled" or (name == "wrap_with_autocast" and not node.args[2]):
            submodule = next(a for a in node.args if isinstance(a, torch.fx.Node) and a.op == "get_attr")
            yield from targets(getattr(graph_module, submodule.target))
        elif isinstance(node.target, torch._ops.HigherOrderOperator):
            yield f"higher_order.{name}"
        elif isinstance(node.target, torch._ops.OpOverload):
            yield str(node.target)
        else:
            yield f"{node.target.__module__}.{name}"


def expected(program):
    signature = program.graph_signature
    value = {node.name: node.meta.get("val") for node in program.graph.nodes}
    found = {"inputs": [], "parameters": [], "outputs": []}
    for spec in signature.input_specs:
        name = getattr(spec.arg, "name", None)
        if spec.kind.name == "USER_INPUT":
            if isinstance(value.get(name), torch.Tensor):
                found["inputs"].append(tensor(name, value[name]))
        else:
            found["parameters"].append(tensor(spec.target, value[name]))
    for spec in signature.output_specs:
        name = getattr(spec.arg, "name", None)
        if spec.kind.name == "USER_OUTPUT" and isinstance(value.get(name), torch.Tensor):
            found["outputs"].append(tensor(name, value[name]))
    found["operators"] = dict(sorted(collections.Counter(targets(program.graph_module)).items()))
    return found


def forget_folders(graph_module):
    """Stack traces name files; where they lie is nobody's business."""
    for module in graph_module.modules():
        for node in module.graph.nodes if isinstance(module, torch.fx.GraphModule) else ():
            if "stack_trace" in node.meta:
                node.meta["stack_trace"] = re.sub(r'File "[^"]*/', 'File "', node.meta["stack_trace"])


def main(folder, *names):
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(0)
    cases = {name: (make, None) for name, make in GOOD.items()} | REFUSED
    for name in names or cases:
        make, refusal = cases[name]
        program = make()
        forget_folders(program.graph_module)
        torch.export.save(program, folder / f"{name}.pt2")
        says = {"refused": refusal} if refusal else expected(program)
        says["torch"] = torch.__version__
        (folder / f"{name}.json").write_text(json.dumps(says, indent=1) + "\n")
        print(name)


if __name__ == "__main__":
    if len(sys.argv) < 2 or sys.argv[1].startswith("-"):
        sys.exit(__doc__)
    main(*sys.argv[1:])
