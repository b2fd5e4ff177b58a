"""Runs a module's plan: regions by the float64 evaluator (module_tool), external calls by PyTorch."""

import json
import os
import subprocess
import tempfile
from pathlib import Path

import numpy as np
import torch

ROOT = Path(__file__).resolve().parents[2]
TOOL = ROOT / os.environ.get("EQUIFORGE_BUILD", "build") / "tests" / "module_tool"


def decode(argument, tensors, graphs=None):
    """An argument of an external call, as src/frontend/module.h writes it."""
    if isinstance(argument, list):
        return [decode(item, tensors, graphs) for item in argument]
    if not isinstance(argument, dict):
        return argument
    ((kind, value),) = argument.items()
    if kind == "tensor":
        return tensors[value]
    if kind == "graph":
        return graphs.get_submodule(value)
    if kind == "float":
        return float(value)
    return torch.device(value) if kind == "device" else getattr(torch, value)


def scatter(results, came_back, values, ids):
    """Puts what an external call returned where `results` says."""
    if isinstance(results, dict):
        values[ids[results["tensor"]]] = came_back
    elif isinstance(results, list):
        for one, tensor in zip(results, came_back, strict=True):
            scatter(one, tensor, values, ids)


class Plan:
    """A module read from an archive, `path` or one that is written here; use as a context manager."""

    def __init__(self, exported: torch.export.ExportedProgram, path: Path | None = None):
        self.exported, self.path = exported, path
        self.folder = tempfile.TemporaryDirectory(prefix="equiforge")

    def __enter__(self):
        path = self.path or Path(self.folder.name) / "m.pt2"
        if not self.path:
            torch.export.save(self.exported, path)
        self.tool = subprocess.Popen([TOOL, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        line = self.tool.stdout.readline()
        assert line, "module_tool read nothing"
        self.plan = json.loads(line)
        self.external = sorted({s["target"] for s in self.plan["steps"] if "target" in s})
        self.reasons = {s["target"]: s["reason"] for s in self.plan["steps"] if "target" in s}
        return self

    def __exit__(self, *_):
        self.tool.stdin.close()
        self.tool.wait(timeout=60)
        self.tool.stdout.close()
        self.folder.cleanup()
        assert self.tool.returncode == 0

    def ask(self, line):
        self.tool.stdin.write(line + "\n")
        self.tool.stdin.flush()

    def text(self):
        """All regions as text; fails when one does not read back as itself."""
        parts = []
        for number, step in enumerate(self.plan["steps"]):
            if "target" in step:
                continue
            self.ask(f"text {number}")
            lines = []
            while not lines or not lines[-1].startswith("== "):
                lines.append(self.tool.stdout.readline())
            assert lines.pop() == "== ok\n", lines
            parts.append("".join(lines))
        return "\n".join(parts)

    def region(self, number, step, values):
        for i, v in enumerate(step["in"]):
            values[v].detach().double().contiguous().numpy().tofile(Path(self.folder.name) / f"in{i}")
        self.ask(f"{number} {self.folder.name}")
        answer = self.tool.stdout.readline().rstrip("\n")
        assert answer == "ok", answer
        for i, v in enumerate(step["out"]):
            like = self.plan["values"][v]
            data = torch.from_numpy(np.fromfile(Path(self.folder.name) / f"out{i}", dtype=np.float64))
            values[v] = data.reshape(like["size"]).to(getattr(torch, like["dtype"]))

    def __call__(self, *arguments):
        """The module's flattened results; writes to its inputs and buffers take place."""
        plan = self.plan
        state = {**self.exported.state_dict, **self.exported.constants}
        values = {}
        for i, value in enumerate(plan["values"]):
            if value["kind"] == "input":
                values[i] = arguments[value["input"]]
            elif value["kind"] != "result":
                values[i] = state[value["target"]]
        for number, step in enumerate(plan["steps"]):
            if "target" not in step:
                self.region(number, step, values)
                continue
            call = torch.ops
            for name in step["target"].split("."):
                call = getattr(call, name)
            tensors = [values[v] for v in step["in"]]
            given = step["arguments"]
            graphs = self.exported.graph_module
            keywords = {key: decode(item, tensors, graphs) for key, item in given["kwargs"].items()}
            with torch.no_grad():
                came_back = call(*decode(given["args"], tensors, graphs), **keywords)
            scatter(step["results"], came_back, values, step["out"])
        with torch.no_grad():
            for value, target in plan["mutations"]:
                values[target].copy_(values[value])
        return [decode(o[0], []) if isinstance(o, list) else values[o] for o in plan["outputs"]]


TOLERANCE = {torch.float16: 4e-3, torch.bfloat16: 3e-2, torch.float32: 3e-5, torch.float64: 1e-9}


def same(mine, theirs):
    """Fails unless two results agree in type, shape and, within the type's precision, in every element."""
    if not isinstance(theirs, torch.Tensor):
        assert mine == theirs
        return
    assert mine.dtype == theirs.dtype
    assert mine.shape == theirs.shape
    if not theirs.dtype.is_floating_point:
        assert torch.equal(mine, theirs)
        return
    a, b = mine.detach().double(), theirs.detach().double()
    assert torch.equal(a.isnan(), b.isnan()), (a, b)
    infinite = b.isinf() | b.isnan()
    assert torch.equal(a[infinite].nan_to_num(), b[infinite].nan_to_num()), (a, b)
    a, b = a[~infinite], b[~infinite]
    if b.numel():
        error = (a - b).abs().max() / b.abs().max().clamp_min(1e-2)
        assert error < TOLERANCE[theirs.dtype], f"error {error}"
