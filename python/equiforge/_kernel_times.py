"""Times of a candidate's single kernels, in microseconds, that add up to the time of the whole."""

from __future__ import annotations

import functools
import statistics
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from torch import Tensor

from equiforge._timing import Clock


def medians(
    clock: Clock,
    steps: Sequence[Callable[..., Any]],
    sets: Iterable[Sequence[Tensor]],
    results: tuple[Sequence[Tensor], Sequence[Tensor]],
) -> list[float]:
    """Of each step, called as step(inputs, outputs, temps): one after the other, a round with each set of inputs, of
    which the median counts. `results`: the outputs and temps."""
    rounds = [clock.laps([functools.partial(step, inputs, *results) for step in steps]) for inputs in sets]
    return [statistics.median(times) for times in zip(*rounds, strict=True)]


START_US = 4.5  # what an event behind a kernel, and its own start, add on a GPU at most
ALIKE = 0.8  # times of kernels that, without that, add up to more than the whole by this much say nothing of them


def adding_up(times: Sequence[float], whole: float) -> list[float]:
    """Times of kernels that were timed one by one, less what each took to start then, and takes not in a row: so that
    they add up to the time of the whole. None is taken to be less than a tenth of what it took. What is left over, as
    of kernels that run at once, is taken off all in proportion. None are returned when that is much: one kernel took
    another time alone than in the whole, and no time of the others can be told from it."""
    rest, taken = max(sum(times) - whole, 0.0), [0.0] * len(times)
    # The shortest first: what cannot be taken off these is taken off the others.
    for count, i in enumerate(sorted(range(len(times)), key=times.__getitem__)):
        taken[i] = min(rest / (len(times) - count), START_US, 0.9 * times[i])
        rest -= taken[i]
    left = [us - less for us, less in zip(times, taken, strict=True)]
    share = 1 - rest / sum(left) if left else 1.0
    return [share * us for us in left] if share > ALIKE else []
