"""A device's memory when there is too little of it: finding that out, and trying again with less.

Other processes have some of a GPU's memory, and a program may take nearly all. PyTorch keeps what was freed for itself,
libraries allocate behind its back, and each says in its own words that there is no more.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

import torch
from torch import Tensor

Result = TypeVar("Result")

# What libraries and the driver say of it; without memory for a handle of its own, cuBLAS is not initialised.
SHORT = ("out of memory", "STATUS_ALLOC_FAILED", "STATUS_NOT_INITIALIZED", "ALLOCATION_FAILED")


def exhausted(problem: BaseException | None) -> bool:
    """Whether an error says that the device's memory is too short: PyTorch's, a library's or the driver's."""
    text = str(problem) if isinstance(problem, RuntimeError) else ""
    return isinstance(problem, torch.OutOfMemoryError) or any(said in text for said in SHORT)


class Fitting:
    """What does not fit into the device's memory inside ends what is inside. After it, and not earlier, nothing holds
    the tensors of the attempt any more.

    Attributes:
        short: what was said of the memory; None: it sufficed.
    """

    def __init__(self) -> None:
        self.short: str | None = None

    def __enter__(self) -> Fitting:
        return self

    def __exit__(self, kind: object, problem: BaseException | None, trace: object) -> bool:
        if not exhausted(problem):
            return False
        self.short = str(problem)
        return True


def first_fitting(attempts: Iterable[Callable[[], Result]], otherwise: str = "") -> Result:
    """What the first attempt returns that finds enough memory. Before each but the first, PyTorch gives back what it
    keeps.

    Attempts are asked for one at a time, so that a generator can free something between two, or choose a smaller one.
    OutOfMemoryError, saying `otherwise` or what the last attempt found, when none fits; other exceptions are the
    attempt's.
    """
    short = ""
    for number, attempt in enumerate(attempts):
        if number:
            torch.cuda.empty_cache()
        with Fitting() as fitting:
            return attempt()
        short = fitting.short or ""
    torch.cuda.empty_cache()
    raise torch.OutOfMemoryError(otherwise or short)


def bytes_of(tensors: Sequence[Tensor]) -> int:
    """Bytes of their elements."""
    return sum(x.numel() * x.element_size() for x in tensors)


def memory_of(device: torch.device) -> float:
    """Bytes of a GPU's memory; infinite for others, whose memory is not what is short."""
    return float(torch.cuda.get_device_properties(device).total_memory) if device.type == "cuda" else math.inf
