"""How far results are from exact ones: the relative L2 error over all outputs of a program, in float64.

Both are lists of tensors on one device, of any shapes and element types; where two that belong together differ in shape
the error is infinite. Large tensors are compared a part after the other, so that no second large one in float64 is
needed; squares may leave float64 without the error doing so.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

COMPARED = 1 << 24  # elements that are compared at a time
RANGE = {torch.float16: 2.0**15}  # of results that are not at the end of their type's
SQUARES = (1e-140, 1e150)  # L2 norms that are exact though computed of squares in float64
LEAST_UNIT = 1e-300  # of others: its inverse, which PyTorch multiplies with, is finite


def error(results: Sequence[Tensor], exact: Sequence[Tensor]) -> float:
    """The relative L2 error over all outputs; infinite when one is not finite where the exact result, rounded to the
    output's type, is finite, or the other way round (an infinity equals itself, NaN equals NaN)."""
    differences: list[tuple[float, float]] = []
    norms: list[tuple[float, float]] = []
    for result, exact_result in zip(results, exact, strict=True):
        if result.shape != exact_result.shape:
            return math.inf
        # A part after the other, so that there is no second large tensor in float64.
        for x, want in zip(*(y.reshape(-1).split(COMPARED) for y in (result, exact_result)), strict=True):
            difference, norm = _norms(x, want)
            if not math.isfinite(difference[0]):
                return math.inf
            differences.append(difference)
            norms.append(norm)
    most = max((unit for norm, unit in differences + norms if norm), default=1.0)
    found, wanted = (math.hypot(*(norm * (unit / most) for norm, unit in parts)) for parts in (differences, norms))
    return found / wanted if wanted else (math.inf if found else 0.0)


def _norms(x: Tensor, want: Tensor) -> tuple[tuple[float, float], tuple[float, float]]:
    """The L2 norms of the difference, and of what is wanted."""
    finite = torch.isfinite(want.to(x.dtype))
    if not finite.all():
        if not torch.equal(x[~finite].nan_to_num(0.5), want[~finite].to(x.dtype).nan_to_num(0.5)):
            return (math.inf, 1.0), (0.0, 1.0)
        x, want = torch.where(finite, x, 0), torch.where(finite, want, 0)
    want = want.double()
    return _norm(x.double() - want), _norm(want)


def _norm(x: Tensor) -> tuple[float, float]:
    """An L2 norm, and its unit: the largest magnitude where squares would leave float64 or vanish from it, else 1."""
    norm = float(torch.linalg.vector_norm(x))
    if SQUARES[0] < norm < SQUARES[1] or x.numel() == 0:
        return norm, 1.0
    most = float(torch.linalg.vector_norm(x, math.inf))
    if not 0 < most < math.inf:
        return most, 1.0
    unit = max(most, LEAST_UNIT)
    return float(torch.linalg.vector_norm(x / unit)), unit


def beyond(results: Sequence[Tensor]) -> int:
    """How many elements are not finite, or of float16 near its end, where rounding decides."""
    parts = (
        (x, RANGE.get(x.dtype, math.inf))
        for y in results
        if y.is_floating_point()
        for x in y.reshape(-1).split(COMPARED)
    )
    return sum(int((~(x.abs() < most)).sum()) for x, most in parts)
