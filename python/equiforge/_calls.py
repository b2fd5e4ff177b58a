"""Calls of PyTorch operators that stay as they are, from the JSON of a plan (src/frontend/module.h)."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, fx, nn

from equiforge._native import EquiForgeError
from equiforge._plan import Step

Build = Callable[[Sequence[Tensor]], Any]


def _named(argument: dict[str, Any], device: torch.device, graphs: nn.Module | None) -> Any:
    """An argument that JSON has no form for. EquiForgeError when it is none either."""
    ((kind, value),) = argument.items()
    if kind == "float" and value in ("inf", "-inf", "nan"):
        return float(value)
    found: Any = None
    wanted: type = object
    if kind == "graph":
        return _graph(value, graphs)
    if kind in ("dtype", "layout", "memory_format"):
        found, wanted = getattr(torch, value, None), getattr(torch, kind)
    elif kind == "device":
        # The plan runs where its inputs are; what it was exported with says only whether that is a GPU.
        found, wanted = device if value.split(":")[0] == device.type else torch.device(value), torch.device
    if not isinstance(found, wanted) or found is None:
        raise EquiForgeError(f"unknown argument {kind} {value!r} of a PyTorch call")
    return found


def _graph(path: str, graphs: nn.Module | None) -> nn.Module:
    """A branch or the like, which the plan has by its place in the exported module."""
    try:
        found = graphs.get_submodule(path) if graphs is not None and re.fullmatch(r"\w+(\.\w+)*", path) else None
    except AttributeError:
        found = None
    if not isinstance(found, fx.GraphModule):
        raise EquiForgeError(
            f"the graph {path} of the exported module is not in the file: equiforge.load(FILE, module) takes the "
            "module that it belongs to, torch.export.load(PT2).module()"
        )
    return found


def _builder(argument: Any, device: torch.device, graphs: nn.Module | None) -> tuple[bool, Any]:
    """(True, function of the step's inputs) or, for what needs none of them, (False, value)."""
    if isinstance(argument, dict):
        if "tensor" in argument:
            index = argument["tensor"]
            return True, lambda tensors: tensors[index]
        return False, _named(argument, device, graphs)
    if not isinstance(argument, list):
        return False, argument
    parts = [_builder(part, device, graphs) for part in argument]
    if not any(dynamic for dynamic, _ in parts):
        return False, [value for _, value in parts]
    return True, lambda tensors: [value(tensors) if dynamic else value for dynamic, value in parts]


def operator(target: str) -> Any:
    """torch.ops by name: "aten.embedding.default", "higher_order.cond". EquiForgeError when PyTorch has no such one."""
    if not re.fullmatch(r"higher_order\.[A-Za-z]\w*|[A-Za-z]\w*\.[A-Za-z_]\w*\.[A-Za-z]\w*", target):
        raise EquiForgeError(f"{target!r} is no name of a PyTorch operator")
    found: Any = torch.ops
    for name in target.split("."):
        found = getattr(found, name, None)
    if not isinstance(found, (torch._ops.OpOverload, torch._ops.HigherOrderOperator)):
        raise EquiForgeError(f"this version of PyTorch has no operator {target}")
    return found


def _collect(results: Any, value: Any, out: dict[int, Tensor]) -> None:
    """Which output is which part of what the call returned."""
    if isinstance(results, dict):
        out[results["tensor"]] = value
    elif isinstance(results, list):
        for part, item in zip(results, value, strict=False):
            _collect(part, item, out)


def external(
    step: Step, device: torch.device, graphs: nn.Module | None = None
) -> Callable[[Sequence[Tensor]], list[Tensor]]:
    """The step as a function of its inputs. `graphs` has the submodules that it may run."""
    call = operator(step.call)
    args = [_builder(argument, device, graphs) for argument in step.arguments.get("args", [])]
    kwargs = {name: _builder(argument, device, graphs) for name, argument in step.arguments.get("kwargs", {}).items()}
    simple = isinstance(step.results, dict)

    def run(tensors: Sequence[Tensor]) -> list[Tensor]:
        result = call(
            *[value(tensors) if dynamic else value for dynamic, value in args],
            **{name: value(tensors) if dynamic else value for name, (dynamic, value) in kwargs.items()},
        )
        if simple:
            return [result]
        out: dict[int, Tensor] = {}
        _collect(step.results, result, out)
        return [out[i] for i in range(len(step.outs))]

    return run
