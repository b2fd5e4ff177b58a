"""Programs under trial on one device: inputs, float64 results, errors, and times (design, sections 7 and 8).

A `Trial` holds what every candidate of one program is compared with, on the device. Its memory may be short: other
processes have some of it, and a program may take nearly all. Then exact results are computed piece by piece, inputs are
drawn anew whenever they are needed, and what is only to be known of the program as it is, is estimated.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import math
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from equiforge import _source
from equiforge._memory import Result, bytes_of, exhausted, first_fitting, memory_of

ACCEPTED = 1e-2  # relative L2 error that no implementation may exceed
COLD_BYTES = 256 << 20  # inputs are rotated over more than this, and over four times the cache
MOST_COPIES = 4096
LEAST_READ = 1 << 20  # elements whose reading says something of the bandwidth
GRAPH_US = 400.0  # a graph holds enough calls to take that long
FAR = 4.0  # what is slower than the best by this factor is called once or twice and not timed exactly
BEHIND = 1.3  # … and by this: its time is that of a few calls in a row
NEAR = 1.1  # what is nearer than this is checked on every distribution
ROUGH_CALLS = 5  # of a time that is rough, at least
MOST_ROUGH_CALLS = 20  # of short ones
ROUGH_ROUNDS = 3  # of times of kernels that are
LAUNCH_US = 50.0  # a kernel is launched in that time, be the processor busy
CYCLES_US = 2500.0  # of a device, at most
MOST_CYCLES = 2e7
SLOW_US = 2e4  # a first call that takes this long is no matter of warming up
REFERENCE_SHARE = 0.25  # of the time for preparation, for exact results
EAGER_SHARE = 0.1  # … for timing the program as it is
RANGE = {torch.float16: 2.0**15}  # of results that are not at the end of their type's
LEAST_POSITIONS = 4  # of a dimension of which a sample is computed
DRAWN = 1 << 28  # elements that are drawn at a time
COMPARED = 1 << 24  # … and compared
KEPT_SHARE = 1 / 8  # of a device's memory: inputs of all distributions that take more are not kept

SQUARES = (1e-140, 1e150)  # L2 norms that are exact though computed of squares in float64
LEAST_UNIT = 1e-300  # of others: its inverse, which PyTorch multiplies with, is finite

Call = Callable[[Sequence[Tensor]], Any]


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


# ---- inputs ----


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


# ---- results ----


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


def poison(tensors: Sequence[Tensor]) -> None:
    """Fills tensors with what no correct implementation leaves there: NaN, or a large number."""
    for x in tensors:
        if x.dtype.is_floating_point:
            x.fill_(math.nan)
        elif x.dtype != torch.bool:
            x.fill_(torch.iinfo(x.dtype).max)
        else:
            x.fill_(True)


# ---- time ----


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
        for inputs in self.sets[:2] * (1 if first > SLOW_US else 2):
            rough = min(rough, *self.clock.laps([functools.partial(call, inputs)], launch_us))
            if far(rough):
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


def adding_up(times: Sequence[float], whole: float) -> list[float]:
    """Times of kernels that were timed one by one, less what each took to start then, and takes not in a row: so that
    they add up to the time of the whole. None is taken to be less than a tenth of what it took, even if they then add
    up to more."""
    rest, taken = max(sum(times) - whole, 0.0), [0.0] * len(times)
    # The shortest first: what cannot be taken off these is taken off the others.
    for count, i in enumerate(sorted(range(len(times)), key=times.__getitem__)):
        taken[i] = min(rest / (len(times) - count), 0.9 * times[i])
        rest -= taken[i]
    return [us - less for us, less in zip(times, taken, strict=True)]


# ---- trials ----


class Wrong(Exception):
    """A candidate's results are not good enough."""


@dataclass
class Case:
    """Inputs of one distribution and the exact results. Inputs are kept or, where that takes too much memory, drawn
    anew each time that they are wanted."""

    kind: str
    exact: list[Tensor]
    make: Callable[[], list[Tensor]]
    kept: list[Tensor] | None = None

    @property
    def inputs(self) -> list[Tensor]:
        return self.make() if self.kept is None else self.kept


class Trial:
    """One program on one device, ready to judge candidates; prepared in some `seconds` (0: any time).

    Exact results of a program for which that is too little are of a `Sample` of the outputs. Candidates must then agree
    with all that the program as it is makes of the first distribution, too, as far as both may be off.
    """

    def __init__(
        self,
        signature: tuple[Sequence[Spec], Sequence[Spec]],
        reference: Reference,
        device: Any,
        seed: int,
        seconds: float = 0.0,
    ):
        """`signature`: inputs and outputs."""
        self.device = torch.device(device)
        self.inputs, self.outputs = map(list, signature)
        for i, fan_in in enumerate(reference.module.FAN_IN):  # or products of several weights would leave float16
            size, summed = 1 / math.sqrt(fan_in), i in reference.module.SUMMED
            self.inputs[i] = replace(self.inputs[i], size=size, summed=summed)
        self.reference, self.seed = reference, seed
        self.seconds = seconds
        self.clock = Clock(self.device)
        self.spent: dict[str, float] = {}
        self.sample: Sample | None = None
        self.whole: list[Tensor] | None = None  # what the program as it is makes of the first distribution
        self.cases: list[Case] = []
        self.eager_error: list[float] = []
        self.beyond = 0  # results that are out of range with normal inputs
        kinds = distributions(self.inputs)
        if seconds:
            self.sample = self._affordable(REFERENCE_SHARE * seconds * 1e6 / (len(kinds) + 2))
        size = sum(math.prod(s.shape) * s.dtype.itemsize for s in self.inputs)
        self.keeps = (len(kinds) + 2) * size <= KEPT_SHARE * memory_of(self.device)
        with self.spending("references"):
            for kind in kinds:
                self.roomy(functools.partial(self._prepare, kind))
        with self.spending("copies"):
            self.timer = Timer(self.cases[0].inputs, self.device)
            self.cases[0].kept = self.timer.sets[0]
        # The smallest error that counts as one: the outputs' types cannot do better.
        self.unit = max((torch.finfo(s.dtype).eps for s in self.outputs if s.dtype.is_floating_point), default=0.0)

    @contextlib.contextmanager
    def spending(self, what: str) -> Iterator[None]:
        """Counts the seconds inside as spent on `what`."""
        start = time.perf_counter()
        try:
            yield
        finally:
            self.spent[what] = self.spent.get(what, 0.0) + time.perf_counter() - start

    def take_spent(self) -> dict[str, float]:
        """The seconds that were spent since this was asked last, by what they were spent on."""
        spent, self.spent = self.spent, {}
        return spent

    def _affordable(self, us: float) -> Sample | None:
        """The sample of which exact results take about so long, by the time that the smallest one takes; None: all."""
        if not self.reference.module.BATCH:
            return None
        tensors = draw(self.inputs, "normal", 1.0, self.device, self.seed)
        least = Sample(self.reference, tensors, 0.0, self.seed)
        part = least.inputs(tensors)

        def exact() -> None:
            self.reference.of(least, part, exact=True)

        exact()
        took = min(self.clock.once(exact) for _ in range(2))
        share = us / max(took, 1.0) * least.share
        return None if not least.at or share >= 1 else Sample(self.reference, tensors, share, self.seed)

    def roomy(self, call: Callable[[], Result]) -> Result:
        """What a call returns. When it finds too little memory it is called once more, with less kept there."""

        def attempts() -> Iterator[Callable[[], Result]]:
            yield call
            self.shed()
            yield call

        return first_fitting(attempts())

    def shed(self) -> None:
        """Frees what can be made again: inputs, and copies of those that are in no cache without."""
        self.keeps = False
        for case in self.cases[1:]:
            case.kept = None
        timer = getattr(self, "timer", None)
        if timer is not None and len(timer.sets) > 1 and bytes_of(timer.sets[0]) > timer.wanted:
            timer.sets, self.cases[0].kept = [], None

    def stock(self) -> None:
        """Sees to it that the timer has inputs."""
        if not self.timer.sets:
            self.cases[0].kept = self.cases[0].inputs
            self.timer.sets = [self.cases[0].kept]

    @property
    def share(self) -> float:
        """The part of the outputs of which there are exact results."""
        return self.sample.share if self.sample else 1.0

    def _sampled(self, outputs: Sequence[Tensor]) -> Sequence[Tensor]:
        return self.sample.outputs(outputs) if self.sample else outputs

    def _prepare(self, kind: str) -> None:
        """Inputs of the first scale that eager PyTorch can compute with (the rule is src/codegen/verify.h's): its error
        is small enough, and no more results leave their range than with normal inputs where that matters. Of the scale
        with the least error when there is none. The first distribution's scale is the others' unit."""
        scales, most, in_range = self.reference.module.DRAWS[kind]
        best, least = scales[-1], math.inf
        for scale in scales:
            case, found, out = self._case(kind, scale)
            if found <= most and (out <= self.beyond or not in_range):
                break
            del case
            if found < least:
                best, least = scale, found
        else:
            scale = best
            case, found, out = self._case(kind, scale)
        if kind == "normal":
            self.beyond = out
            self.inputs = [replace(spec, size=spec.size * scale) for spec in self.inputs]
        self.cases.append(case)
        self.eager_error.append(found)

    def _case(self, kind: str, scale: float) -> tuple[Case, float, int]:
        """A distribution; eager PyTorch's error, and how many of its results are out of range."""
        make = functools.partial(draw, list(self.inputs), kind, scale, self.device, self.seed)
        tensors = make()
        part = self.sample.inputs(tensors) if self.sample else tensors
        exact = self.reference.of(self.sample, part, exact=True)
        if self.sample and kind == "normal":
            self.whole = None
            self.whole = self.reference(tensors)
            results = list(self._sampled(self.whole))
        else:
            results = self.reference.of(self.sample, part, exact=False)
        # Exact results of a narrow type need not be kept in float64.
        narrow = {torch.float16, torch.bfloat16}
        kept = [x.float() if s.dtype in narrow else x for x, s in zip(exact, self.outputs, strict=True)]
        case = Case(kind, kept, make, tensors if self.keeps or kind == "normal" else None)
        return case, error(results, exact), beyond(results)

    def accepted(self, case: int) -> float:
        """The error that a candidate may have: twice that of eager PyTorch, and below 0.01."""
        return min(ACCEPTED, max(2 * self.eager_error[case], self.unit))

    def eager_us(self, repeat: int = 10) -> tuple[float, bool]:
        """The time of the program as plain PyTorch, cold, and whether it is estimated: from pieces, or from the sample,
        when the whole does not fit into memory. 0: nothing does."""

        def whole() -> tuple[float, bool]:
            self.stock()
            return self.timer(self.reference.eager, repeat, 0.0, EAGER_SHARE * self.seconds)[0], False

        def pieces() -> tuple[float, bool]:
            self.stock()
            return min(self.clock.once(lambda: self.reference(self.timer.sets[0])) for _ in range(3)), True

        def sampled() -> tuple[float, bool]:
            self.stock()
            part = self.sample.inputs(self.timer.sets[0]) if self.sample else self.timer.sets[0]
            of = functools.partial(self.reference.of, self.sample, part, exact=False)
            return min(self.clock.once(of) for _ in range(3)) / self.share, True

        return first_fitting([lambda: self.roomy(whole), pieces, sampled, lambda: (0.0, True)])

    def validate(self, module: ModuleType, first: int = 0, count: int | None = None) -> float:
        """The largest error of a generated module over `count` distributions from the `first` on (None: all). Wrong
        when it is too large in one."""
        outputs, temps = (_source.empty(module, which, self.device) for which in ("OUTPUTS", "BUFFERS"))
        worst = 0.0
        for i in range(first, len(self.cases) if count is None else min(first + count, len(self.cases))):
            case = self.cases[i]
            poison([*outputs, *temps])
            module.launch(case.inputs, outputs, temps)
            found = error(self._sampled(outputs), case.exact)
            if not found <= self.accepted(i):
                limit = self.accepted(i)
                raise Wrong(f"relative L2 error {found:.3g} with {case.kind} inputs, at most {limit:.3g} is accepted")
            worst = max(worst, found)
            if i == 0 and self.whole is not None:
                self._compare_whole(outputs)
        return worst

    def _compare_whole(self, outputs: Sequence[Tensor]) -> None:
        assert self.whole is not None
        limit = self.accepted(0) + 1.25 * self.eager_error[0]
        found = error(outputs, self.whole)
        if not found <= limit:
            raise Wrong(f"outputs outside of the sample differ by {found:.3g} from PyTorch's, at most {limit:.3g}")

    def time(self, module: ModuleType, repeat: int, best_us: float, seconds: float = 0.0) -> tuple[float, float]:
        """(cold, warm) microseconds of a generated module."""
        outputs, temps = (_source.empty(module, which, self.device) for which in ("OUTPUTS", "BUFFERS"))
        return self.timer(lambda inputs: module.launch(inputs, outputs, temps), repeat, best_us, seconds)

    def kernel_times(self, module: ModuleType, repeat: int) -> list[float]:
        """Microseconds of each kernel of a module, one after the other with cold inputs, the median of `repeat` rounds;
        none of a module with one."""
        steps = _source.steps(module)
        if len(steps) < 2:
            return []
        outputs, temps = (_source.empty(module, which, self.device) for which in ("OUTPUTS", "BUFFERS"))
        sets = itertools.islice(itertools.cycle(self.timer.sets), max(repeat, 1))
        rounds = [
            self.clock.laps([functools.partial(step, inputs, outputs, temps) for step in steps]) for inputs in sets
        ]
        return [statistics.median(times) for times in zip(*rounds, strict=True)]

    def judge(self, module: ModuleType, how: Mapping[str, Any]) -> dict[str, Any]:
        """Checks a module on `check` distributions, or on all when it comes near the best, and times it, its `kernels`
        too where that is wanted: `how` is a request to measure (docs/workers.md)."""
        return self.roomy(lambda: self._judge(module, how))

    def _judge(self, module: ModuleType, how: Mapping[str, Any]) -> dict[str, Any]:
        check, repeat, best_us = how.get("check", 0), how.get("repeat", 10), how.get("best_us") or 0.0
        seconds = how.get("seconds") or 0.0
        found: dict[str, Any] = {}
        self.stock()
        if check:
            with self.spending("check"):
                found["rel_l2"] = self.validate(module, 0, 1)
        with self.spending("time"):
            cold, warm = self.time(module, repeat, best_us, seconds)
        if check:
            count = len(self.cases) if best_us and cold <= NEAR * best_us else min(check, len(self.cases))
            with self.spending("check"):
                found["rel_l2"] = max(found["rel_l2"], self.validate(module, 1, count - 1))
            found["checked"] = count
        if how.get("kernels"):
            calls = 1 if cold > SLOW_US else repeat if not best_us or cold <= BEHIND * best_us else ROUGH_ROUNDS
            with self.spending("kernels"):
                found["kernel_us"] = adding_up(self.kernel_times(module, calls), cold)
        return {**found, "us": cold, "warm_us": warm}
