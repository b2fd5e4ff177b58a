"""A device with little memory, simulated: what is allocated is counted, and too much raises as on a GPU."""

from __future__ import annotations

import weakref
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from equiforge import _module


class Memory(TorchDispatchMode):
    """Inside, tensors made of operators' results may take `limit` bytes in all. Those that share a storage count once;
    what operators take for themselves while they run is not seen. Works for tensors on the CPU and, at any size, on
    the meta device. Optimised modules take it for what it simulates, and no mode that observes operators.

    Attributes:
        live, peak: bytes.
        refused: how many allocations.
    """

    def __init__(self, limit: float = float("inf")):
        super().__init__()
        self.limit, self.live, self.peak, self.refused = limit, 0, 0, 0
        self.users: dict[int, int] = {}  # tensors of a storage

    def __enter__(self) -> Memory:
        self.observed, _module.observed = _module.observed, lambda: False
        entered: Memory = super().__enter__()
        return entered

    def __exit__(self, *raised: Any) -> None:
        _module.observed = self.observed
        super().__exit__(*raised)

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = {self._key(x) for x in tree_leaves((args, kwargs)) if isinstance(x, torch.Tensor)}
        results = function(*args, **(kwargs or {}))
        for x in tree_leaves(results):
            if isinstance(x, torch.Tensor):
                self._count(x, given)
        return results

    @staticmethod
    def _key(x: torch.Tensor) -> int:
        return x.untyped_storage()._cdata

    def _count(self, x: torch.Tensor, given: set[int]) -> None:
        key, size = self._key(x), x.untyped_storage().nbytes()
        if key not in self.users:
            if key in given:
                return  # from outside
            if self.live + size > self.limit:
                self.refused += 1
                raise torch.OutOfMemoryError(f"CUDA out of memory (simulated): {self.live} + {size} bytes")
            self.users[key] = 0
            self.live += size
            self.peak = max(self.peak, self.live)
        self.users[key] += 1
        weakref.finalize(x, self._forget, key, size)

    def _forget(self, key: int, size: int) -> None:
        self.users[key] -= 1
        if not self.users[key]:
            del self.users[key]
            self.live -= size
