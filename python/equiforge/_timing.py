"""Times of calls on a device: one by one, in a row, and as the median of many with inputs that no cache holds.

All times are microseconds, and budgets seconds. A call gets a list of tensors: one of several equal sets of inputs,
each contiguous, from a multiple of 256 bytes on. On a GPU events or a CUDA graph around calls are timed, so that
launching does not count; elsewhere the wall clock is read. What a call raises passes through; a graph that the device's
memory is too short for, or that cannot be captured, gives way to plain calls.
"""

from __future__ import annotations

import functools
import itertools
import math
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from equiforge._memory import exhausted, first_fitting, memory_of

COLD_BYTES = 256 << 20  # inputs are rotated over more than this, and over four times the cache
MOST_COPIES = 4096
KEPT_SHARE = 1 / 8  # of a device's memory: inputs of all distributions that take more are not kept
LEAST_READ = 1 << 20  # elements whose reading says something of the bandwidth
GRAPH_US = 400.0  # a graph holds enough calls to take that long
FAR = 4.0  # what is slower than the best by this factor is called once or twice and not timed exactly
BEHIND = 1.3  # … and by this: its time is that of a few calls in a row
NEAR = 1.1  # what is nearer than this is checked on every distribution
ROUGH_CALLS = 5  # of a time that is rough, at least
MOST_ROUGH_CALLS = 20  # of short ones
LAUNCH_US = 50.0  # a kernel is launched in that time, be the processor busy
CYCLES_US = 2500.0  # of a device, at most
MOST_CYCLES = 2e7
SLOW_US = 2e4  # a first call that takes this long is no matter of warming up

Call = Callable[[Sequence[Tensor]], Any]


def copies(inputs: Sequence[Tensor], bytes_: int, most: float = math.inf) -> list[list[Tensor]]:
    """Copies of the inputs that take `bytes_` in all, at least two of them; each begins at a multiple of 256 bytes.
    Where they would take more than `most` bytes, or more than there is, they are fewer, or the inputs themselves."""
    strides = [(x.numel() * x.element_size() + 255) // 256 * 256 for x in inputs]
    count = max(2, min(MOST_COPIES, bytes_ // max(sum(strides), 1) + 1))
    while count > 1 and count * sum(strides) > most:
        count //= 2

    def attempts() -> Iterator[Callable[[], list[list[Tensor]]]]:
        fewer = count
        while fewer > 1:
            yield functools.partial(_copied, inputs, strides, fewer)
            fewer //= 2
        yield lambda: [list(inputs)]

    return first_fitting(attempts())


def _copied(inputs: Sequence[Tensor], strides: Sequence[int], count: int) -> list[list[Tensor]]:
    stacks = []
    for x, stride in zip(inputs, strides, strict=True):
        items = max(stride // x.element_size(), 1)
        stack = torch.empty(count, items, dtype=x.dtype, device=x.device)
        stack[:, : x.numel()] = x.reshape(-1)
        stacks.append(stack)
    return [
        [stack[i, : x.numel()].view(x.shape) for stack, x in zip(stacks, inputs, strict=True)] for i in range(count)
    ]


class Clock:
    """Times calls on one device, in microseconds: inside a CUDA graph, or by the wall clock without a GPU."""

    def __init__(self, device: torch.device):
        self.device = device
        self.cuda = device.type == "cuda"

    def once(self, call: Callable[[], Any]) -> float:
        """One call, with what launching costs."""
        if not self.cuda:
            start = time.perf_counter()
            call()
            return (time.perf_counter() - start) * 1e6
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        call()
        end.record()
        end.synchronize()
        return float(begin.elapsed_time(end)) * 1e3

    def laps(self, steps: Sequence[Callable[[], Any]], launch_us: float = LAUNCH_US) -> list[float]:
        """Calls one after the other, and what each takes. The device waits until they are launched, which takes about
        `launch_us` each, so that it is not the launching that is timed."""
        if not self.cuda:
            return [self.once(step) for step in steps]
        events = [torch.cuda.Event(enable_timing=True) for _ in range(len(steps) + 1)]
        torch.cuda._sleep(int(min(CYCLES_US * launch_us * (len(steps) + 1), MOST_CYCLES)))
        events[0].record()
        for step, event in zip(steps, events[1:], strict=True):
            step()
            event.record()
        events[-1].synchronize()
        return [float(a.elapsed_time(b)) * 1e3 for a, b in itertools.pairwise(events)]

    def row(self, steps: Sequence[Callable[[], Any]], launch_us: float = LAUNCH_US) -> float:
        """What a call takes among many in a row. An event after each of them, as in `laps`, would add 3 to 4 us to
        each on an H200: more than small kernels differ by."""

        def all_steps() -> None:
            for step in steps:
                step()

        return min(self.laps([all_steps] * 2, launch_us * len(steps))) / len(steps)

    def median(
        self, call: Call, sets: Sequence[Sequence[Tensor]], repeat: int, estimate: float, seconds: float = 0.0
    ) -> float:
        """The median time of a call over `repeat` rounds through the sets, each round one graph; over fewer rounds when
        they take longer than `seconds`."""
        if seconds:
            repeat = max(1, min(repeat, int(seconds * 1e6 / max(estimate * len(sets), GRAPH_US)) - 1))
        rounds = max(1, math.ceil(GRAPH_US / max(estimate * len(sets), 1e-3)))
        order = [sets[i % len(sets)] for i in range(len(sets) * rounds)]
        if not self.cuda:
            return statistics.median(self.once(functools.partial(call, inputs)) for inputs in order[: max(repeat, 1)])
        graph = self._captured(call, order)
        if graph is None:

            def replay() -> None:
                for inputs in sets:
                    call(inputs)

            torch.cuda.synchronize()
            torch.cuda.empty_cache()
            order = list(sets)
        else:
            replay = graph.replay
        replay()
        return statistics.median(self.once(replay) for _ in range(max(repeat, 1))) / len(order)

    @staticmethod
    def _captured(call: Call, order: Sequence[Sequence[Tensor]]) -> torch.cuda.CUDAGraph | None:
        """Calls as a graph; None when they cannot be captured, or not in the memory that there is: a graph's is its
        own."""
        graph = torch.cuda.CUDAGraph()
        try:
            with torch.cuda.graph(graph):
                for inputs in order:
                    call(inputs)
        except RuntimeError as problem:
            if "captur" not in str(problem) and not exhausted(problem):
                raise
            return None
        return graph


class Timer:
    """Cold and warm times of calls with given inputs."""

    def __init__(self, inputs: Sequence[Tensor], device: torch.device):
        cache = torch.cuda.get_device_properties(device).L2_cache_size if device.type == "cuda" else 0
        self.clock = Clock(device)
        self.wanted = max(4 * cache, COLD_BYTES) if device.type == "cuda" else 0
        # Inputs that take so much are in no cache either when they are read again.
        self.sets = copies(inputs, self.wanted, max(self.wanted, KEPT_SHARE * memory_of(device)))

    def __call__(self, call: Call, repeat: int = 10, best_us: float = 0.0, seconds: float = 0.0) -> tuple[float, float]:
        """(cold, warm) in microseconds, in some `seconds` (0: any time). What is slower than `best_us` gets one rough
        time for both: of a call or two when it is far slower, on a GPU of a few in a row when it is not near; and one
        time for both when it is not nearer."""

        def far(us: float) -> bool:
            return bool(best_us) and us > FAR * best_us + 200  # launching costs something too

        first = self.clock.once(functools.partial(call, self.sets[0]))
        if first > SLOW_US and (far(first) or (seconds and first > seconds * 1e6)):
            return first, first
        launch_us = LAUNCH_US
        if self.clock.cuda and first <= SLOW_US:
            start = time.perf_counter()
            call(self.sets[-1])
            launch_us = (time.perf_counter() - start) * 1e6
        rough = math.inf
        for lap, inputs in enumerate(self.sets[:2] * (1 if first > SLOW_US else 2)):
            rough = min(rough, *self.clock.laps([functools.partial(call, inputs)], launch_us))
            if lap > 0 and far(rough):  # one call alone may have been launched late, by a busy processor
                return rough, rough
        if seconds and 3 * rough * len(self.sets) > seconds * 1e6:
            return rough, rough
        if best_us and self.clock.cuda and rough > BEHIND * best_us:
            count = min(max(int(GRAPH_US / rough), ROUGH_CALLS), MOST_ROUGH_CALLS)
            sets = itertools.islice(itertools.cycle(self.sets), count)
            rough = self.clock.row([functools.partial(call, inputs) for inputs in sets], launch_us)
            if rough > BEHIND * best_us:
                return rough, rough
        cold = self.clock.median(call, self.sets, repeat, rough, seconds)
        if best_us and cold > NEAR * best_us:
            return cold, cold
        return cold, self.clock.median(call, self.sets[:1], repeat, rough, seconds)


def bandwidth(device: torch.device) -> float:
    """Bytes a second that the device reads or copies, whichever is faster; 0 when not even that fits into memory."""
    free = torch.cuda.mem_get_info(device)[0] if device.type == "cuda" else 0
    count = min(1 << 28, free // 16) if device.type == "cuda" else 8 << 20

    def attempts() -> Iterator[Callable[[], float]]:
        fewer = count
        while fewer >= LEAST_READ:
            yield functools.partial(_bandwidth, device, fewer)
            fewer //= 4
        yield lambda: 0.0

    return first_fitting(attempts())


def _bandwidth(device: torch.device, count: int) -> float:
    x = torch.ones(count, device=device)
    y = torch.empty_like(x)
    clock, size = Clock(device), x.numel() * x.element_size()
    read = min(clock.once(x.sum) for _ in range(6))
    copy = min(clock.once(lambda: y.copy_(x)) for _ in range(6))
    return max(size / read, 2 * size / copy) * 1e6
