"""What a program computes, by PyTorch: in its own types, and exactly, which is what candidates are compared with.

Exact results are float64 (float32 where the device's memory is too short even for a piece of it), of the whole or of a
`Sample` of the positions, in the outputs' shapes and order. Both are computed whole where that fits, else in pieces
along dimensions whose positions are independent. OutOfMemoryError when not even the smallest pieces fit.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from equiforge import _source
from equiforge._memory import first_fitting

LEAST_POSITIONS = 4  # of a dimension of which a sample is computed


def as_list(result: Any) -> list[Tensor]:
    """The tensors of a result, tuples within tuples in order."""
    if isinstance(result, Tensor):
        return [result]
    return [tensor for part in result for tensor in as_list(part)]


class Reference:
    """A program as PyTorch source (ef_codegen_torch): results in its own types, and exact ones.

    Exact results are float64 where the device's memory allows: whole, or piece by piece along the dimensions that the
    source lists as independent; else float32 without TF32.
    """

    def __init__(self, source: str, name: str):
        self.module = _source.load_text(source, name)
        self.function = getattr(self.module, name)
        # Sizes of the pieces that turned out to fit, by type and by what is computed: the whole, or a sample's sizes.
        self.steps: dict[tuple[torch.dtype | None, frozenset[tuple[str, int]]], dict[str, int]] = {}
        self.exact_dtype = torch.float64

    def of(self, sample: Sample | None, inputs: Sequence[Tensor], *, exact: bool) -> list[Tensor]:
        """Results of a sample's inputs; without a sample, of the whole program's."""
        sizes = sample.sizes if sample is not None else {}
        return self.exact(inputs, sizes) if exact else self(inputs, sizes)

    def __call__(self, inputs: Sequence[Tensor], sizes: Mapping[str, int] | None = None) -> list[Tensor]:
        """Results in the program's own types. `sizes`: of dimensions that are not the program's own."""
        short = "the program does not fit into the device's memory"
        return first_fitting(self._pieces(inputs, None, sizes or {}), short)

    def eager(self, inputs: Sequence[Tensor]) -> Any:
        """The same as one call."""
        return self.function(*inputs)

    def exact(self, inputs: Sequence[Tensor], sizes: Mapping[str, int] | None = None) -> list[Tensor]:
        """Results in `exact_dtype`."""

        def attempts() -> Iterator[Callable[[], list[Tensor]]]:
            if self.exact_dtype == torch.float64:
                yield from self._pieces(inputs, torch.float64, sizes or {})
                self.exact_dtype = torch.float32
            yield from self._pieces(inputs, torch.float32, sizes or {})

        return first_fitting(attempts(), "the exact results do not fit into the device's memory")

    def _pieces(
        self, inputs: Sequence[Tensor], dtype: torch.dtype | None, sizes: Mapping[str, int]
    ) -> Iterator[Callable[[], list[Tensor]]]:
        """The program in pieces, and in halves of these, to the smallest that there are; later calls begin with what
        fitted."""
        steps = self.steps.setdefault((dtype, frozenset(sizes.items())), {})
        yield lambda: self._cut(inputs, dtype, dict(steps), dict(sizes))
        while self._halve(inputs, steps):
            yield lambda: self._cut(inputs, dtype, dict(steps), dict(sizes))

    def _halve(self, inputs: Sequence[Tensor], steps: dict[str, int]) -> bool:
        """Along the first dimension that can be: a few large pieces. False when there is none."""
        for name in self.module.BATCH:
            extent = self.extent(name, inputs)
            step = min(steps.get(name, extent), extent)
            if step > 1:
                steps[name] = (step + 1) // 2
                return True
        return False

    def extent(self, name: str, inputs: Sequence[Tensor]) -> int:
        """How many positions a dimension has."""
        places = self.module.BATCH[name][0]
        return max((x.shape[at] for x, at in zip(inputs, places, strict=True) if at is not None), default=1)

    def _cut(
        self, inputs: Sequence[Tensor], dtype: torch.dtype | None, steps: dict[str, int], sizes: dict[str, int]
    ) -> list[Tensor]:
        if not steps:
            return as_list(self.function(*inputs, dtype=dtype, sizes=sizes))
        (name, step), *rest = steps.items()
        places, out_places = self.module.BATCH[name]
        extent = self.extent(name, inputs)
        pieces = []
        for start in range(0, extent, step):
            length = min(step, extent - start)
            part = [x if at is None else x.narrow(at, start, length) for x, at in zip(inputs, places, strict=True)]
            pieces.append(self._cut(part, dtype, dict(rest), {**sizes, name: length}))
        if len(pieces) == 1:
            return pieces[0]
        return [torch.cat(parts, at) for parts, at in zip(zip(*pieces, strict=True), out_places, strict=True)]


class Sample:
    """Some positions along dimensions whose positions are computed each by itself (BATCH of the source): exact results
    of a large program are of a sample, the first and the last position among them. Empty: all of the program."""

    def __init__(self, reference: Reference, inputs: Sequence[Tensor], share: float, seed: int):
        """A sample of about this share of the program."""
        self.places = reference.module.BATCH
        self.at: dict[str, Tensor] = {}
        sizes = {name: reference.extent(name, inputs) for name in self.places}
        counts = dict(sizes)
        while share < 1 and math.prod(counts[n] / sizes[n] for n in counts) > share:
            longest = max(counts, key=lambda n: counts[n], default=None)
            if longest is None or counts[longest] // 2 < LEAST_POSITIONS:
                break
            counts[longest] //= 2
        generator = torch.Generator().manual_seed(seed)
        for name, count in counts.items():
            if count < sizes[name]:
                edges = torch.arange(count + 1) * sizes[name] // count
                at = edges[:-1] + (torch.rand(count, generator=generator) * edges.diff()).long()
                at[0], at[-1] = 0, sizes[name] - 1
                self.at[name] = at.to(inputs[0].device)
        self.sizes = {name: len(at) for name, at in self.at.items()}
        self.share = math.prod(self.sizes[n] / sizes[n] for n in self.sizes)

    def _take(self, tensors: Sequence[Tensor], side: int) -> list[Tensor]:
        taken = list(tensors)
        for name, at in self.at.items():
            for i, place in enumerate(self.places[name][side]):
                if place is not None:
                    taken[i] = taken[i].index_select(place, at)
        return taken

    def inputs(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        """What the sample needs of the inputs."""
        return self._take(tensors, 0)

    def outputs(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        """What the sample has of the outputs."""
        return self._take(tensors, 1)
