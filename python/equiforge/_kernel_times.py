"""Times of a candidate's single kernels, in microseconds."""

from __future__ import annotations

import functools
import statistics
from collections.abc import Iterable, Sequence

from torch import Tensor

from equiforge._timing import Call, Clock

LEAST = 0.005  # of the whole that a kernel takes, at least: where others hide all of it, no more is known
SHORT_US = 1000.0  # what takes longer is timed kernel by kernel: what they hide of each other is little of it
MOST_LAUNCHES = 20_000  # of kernels, without one after the other: tiny programs go round over thousands of inputs
ROUNDS = 5  # of each of these times


def can_leave_out(steps: int, sets: int, whole: float) -> bool:
    """Whether so many steps, the whole of which takes `whole` us, can be left out in turns, with so many inputs."""
    return whole < SHORT_US and steps * (steps + 1) * sets <= MOST_LAUNCHES


def less_without(
    clock: Clock, steps: Sequence[Call], sets: Sequence[Sequence[Tensor]], whole: float, repeat: int
) -> list[float]:
    """What a call of some `whole` us takes less without each of its steps, the kernels: that is what another form of a
    kernel can gain where they begin while others end, load while others run, or run beside them. Alone each takes up to
    several us more, and what of it is hidden cannot be seen. An earlier call has filled what they leave each other."""

    def call(left_out: int, inputs: Sequence[Tensor]) -> None:
        for i, step in enumerate(steps):
            if i != left_out:
                step(inputs)

    repeat = min(repeat, ROUNDS)
    took = [clock.median(functools.partial(call, i), sets, repeat, whole) for i in range(-1, len(steps))]
    return [max(took[0] - without, LEAST * took[0]) for without in took[1:]]


def medians(clock: Clock, steps: Sequence[Call], rounds: Iterable[Sequence[Tensor]]) -> list[float]:
    """Of each step alone, one after the other: a round with each set of inputs, of which the median counts."""
    laps = [clock.laps([functools.partial(step, inputs) for step in steps]) for inputs in rounds]
    return [statistics.median(each) for each in zip(*laps, strict=True)]


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
