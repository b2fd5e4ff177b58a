"""`torch.compile(module, backend=equiforge.backend)`: every graph that TorchDynamo finds is optimised by itself.

    torch.compile(module, backend=equiforge.backend, options={"budget": "5m"})

The installed wheel makes it known to PyTorch as "equiforge", too.

A graph that wants gradients, has dynamic shapes or cannot be exported runs as it is, operator by operator, and a
warning of the logger "equiforge" says so. A graph that is not made faster runs as it is, too.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, fx

from equiforge._native import EquiForgeError

log = logging.getLogger("equiforge")

OPTIONS = {"target", "budget", "store", "progress"}
BUDGET = "30s"  # of a graph: compiling is waited for, and there may be many


def _example(x: Any) -> Any:
    """A tensor to measure with, for one that has no data."""
    from torch._subclasses.fake_tensor import FakeTensor

    if not isinstance(x, FakeTensor):
        return x.detach() if isinstance(x, Tensor) else x
    like = torch.empty_strided(x.shape, x.stride(), dtype=x.dtype, device=x.device)
    return like.normal_() if x.dtype.is_floating_point else like.zero_()


def backend(graph: fx.GraphModule, inputs: Sequence[Any], **given: Any) -> Callable[..., Any]:
    """The backend. Options that are unknown or wrong are an EquiForgeError or TypeError; whatever else happens, the
    graph still runs."""
    from equiforge._optimize import check_arguments, optimize, seconds

    options = {"budget": BUDGET, **(given.pop("options", None) or {}), **given}
    options.pop("mode", None)
    unknown = set(options) - OPTIONS
    if unknown:
        raise EquiForgeError(f"unknown options {', '.join(sorted(unknown))}; there are {', '.join(sorted(OPTIONS))}")
    seconds(options["budget"])
    check_arguments(graph, (), None, options.get("target", "auto"), options.get("progress"))
    eager: Callable[..., Any] = graph.forward
    if not all(isinstance(x, (Tensor, int, float, bool)) for x in inputs) or any(
        isinstance(x, torch.SymInt) or (isinstance(x, Tensor) and any(isinstance(n, torch.SymInt) for n in x.shape))
        for x in inputs
    ):
        log.warning("a graph with dynamic shapes runs as it is: only static ones are optimised (dynamic=False)")
        return eager
    if torch.is_grad_enabled() and any(isinstance(x, Tensor) and x.requires_grad for x in inputs):
        log.warning("a graph that wants gradients runs as it is: only inference is optimised (torch.no_grad())")
        return eager
    try:
        with torch.no_grad():
            fast = optimize(graph, tuple(_example(x) for x in inputs), **options)
    except Exception as problem:  # PyTorch's exporter raises whatever it likes
        log.warning("a graph runs as it is: %s", problem)
        return eager
    fast.training = False  # a graph has the mode that it was captured in, in its calls
    return eager if fast._keep_original else fast.forward
