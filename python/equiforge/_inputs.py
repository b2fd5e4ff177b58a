"""Random inputs of programs under trial: what an input is, and the distributions that it is drawn from.

Tensors have a `Spec`'s shape and element type, contiguous, on the device that is asked for. What is drawn is decided by
the distribution, its scale and the seed alone, so that inputs need not be kept. Integers are 0 to 7, bools even odds.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from equiforge import _source

DRAWN = 1 << 28  # elements that are drawn at a time


@dataclass(frozen=True)
class Spec:
    """An input or output: name, element type, shape; of an input whether the program adds up its elements, and what
    normal numbers are multiplied with."""

    name: str
    dtype: torch.dtype
    shape: tuple[int, ...]
    summed: bool = False
    size: float = 1.0

    @classmethod
    def of(cls, entry: dict[str, Any]) -> Spec:
        return cls(entry["name"], _source.dtype_of(entry["dtype"]), tuple(entry["shape"]))


def _blank_rows(x: Tensor) -> Tensor:
    """Which rows are blank where rows are: every third, or the only one."""
    rows = math.prod(x.shape[:-1])
    return (torch.arange(rows, device=x.device) % 3 == (1 if rows > 1 else 0)).view(*x.shape[:-1], 1)


def _drawn(spec: Spec, device: torch.device, some: Callable[[torch.Size], Tensor]) -> Tensor:
    """A tensor of `some` random numbers, a part after the other: they have more bytes than elements of narrow types."""
    x = torch.empty(spec.shape, dtype=spec.dtype, device=device)
    for part in x.view(-1).split(DRAWN):
        part.copy_(some(part.shape))
    return x


def _draw_one(spec: Spec, kind: str, scale: float, generator: torch.Generator, first: bool) -> Tensor:
    device = generator.device

    def whole(shape: torch.Size) -> Tensor:
        return torch.randint(0, 2 if spec.dtype == torch.bool else 8, shape, generator=generator, device=device)

    def normal(shape: torch.Size) -> Tensor:
        x = torch.randn(shape, generator=generator, device=device)
        if "mask" in spec.name:
            return x
        if kind == "shifted":
            return (x.add_(scale) if spec.summed else x).mul_(spec.size)
        return x.mul_(scale * spec.size)

    def mask(shape: torch.Size) -> Tensor:
        return torch.where(normal(shape) > 0.43, float("-inf"), 0.0)  # a third

    if not spec.dtype.is_floating_point:
        x = _drawn(spec, device, whole)
        blank = kind == "masked" and spec.dtype == torch.bool and x.dim()
    elif "mask" in spec.name:
        x = _drawn(spec, device, mask if kind == "masked" else normal)
        if kind == "masked" and x.dim():
            x.masked_fill_(_blank_rows(x), float("-inf"))
        blank = False
    else:
        x = _drawn(spec, device, normal)
        blank = kind == "zero" and x.dim() and (first or math.prod(x.shape[:-1]) > 1)
    return x.masked_fill_(_blank_rows(x), 0) if blank else x


def draw(specs: Sequence[Spec], kind: str, scale: float, device: torch.device, seed: int) -> list[Tensor]:
    """Inputs of one distribution: "normal", "large" and "tiny", "zero" (with rows of zeros) and "masked" (masks, which
    are inputs of that name or bools, with blank rows), all times `scale`, or "shifted" (what is summed is off centre by
    `scale`). Each besides times its own `size`. The same arguments draw the same.
    """
    tensors = []
    generator = torch.Generator(device=device)
    for i, spec in enumerate(specs):
        generator.manual_seed(seed * 1000003 + i)
        tensors.append(_draw_one(spec, kind, scale, generator, i == 0))
    return tensors


def distributions(specs: Sequence[Spec]) -> list[str]:
    """Those that differ for these inputs."""
    masks = any("mask" in spec.name or spec.dtype == torch.bool for spec in specs)
    return (
        ["normal", "large", "tiny", "zero"]
        + (["shifted"] if any(spec.summed for spec in specs) else [])
        + (["masked"] if masks else [])
    )
