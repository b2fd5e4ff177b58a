"""Programs under trial on one device: inputs, float64 results, errors, and times (design, sections 7 and 8).

A `Trial` holds what every candidate of one program is compared with. All inputs, results and copies stay on the device.
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

ACCEPTED = 1e-2  # relative L2 error that no implementation may exceed
COLD_BYTES = 256 << 20  # inputs are rotated over more than this, and over four times the cache
MOST_COPIES = 4096
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


def draw(specs: Sequence[Spec], kind: str, scale: float, device: torch.device, seed: int) -> list[Tensor]:
    """Inputs of one distribution: "normal", "large" and "tiny", "zero" (with rows of zeros) and "masked" (masks, which
    are inputs of that name or bools, with blank rows), all times `scale`, or "shifted" (what is summed is off centre by
    `scale`). Each besides times its own `size`.
    """
    tensors = []
    generator = torch.Generator(device=device)
    for i, spec in enumerate(specs):
        generator.manual_seed(seed * 1000003 + i)
        if not spec.dtype.is_floating_point:
            top = 2 if spec.dtype == torch.bool else 8
            x = torch.randint(0, top, spec.shape, generator=generator, device=device)
            if kind == "masked" and spec.dtype == torch.bool and x.dim():
                x = torch.where(_blank_rows(x), 0, x)
        else:
            x = torch.randn(spec.shape, generator=generator, device=device)
            if "mask" in spec.name:
                if kind == "masked":
                    x = torch.where(x > 0.43, float("-inf"), 0.0)  # a third
                    x = torch.where(_blank_rows(x), float("-inf"), x)
            elif kind == "shifted":
                x = (x + scale if spec.summed else x) * spec.size
            else:
                x = x * (scale * spec.size)
                if kind == "zero" and x.dim() and (i == 0 or math.prod(x.shape[:-1]) > 1):
                    x = torch.where(_blank_rows(x), 0.0, x)
        tensors.append(x.to(spec.dtype))
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
        self.sizes: dict[str, int] = {}  # of the pieces that turned out to fit
        self.exact_dtype = torch.float64

    def of(self, sample: Sample | None, inputs: Sequence[Tensor], dtype: torch.dtype | None) -> list[Tensor]:
        """Results of a sample's inputs; without a sample, of the whole program's: exact where there is a `dtype`."""
        if sample is None or not sample.at:
            return self(inputs) if dtype is None else self.exact(inputs)
        return as_list(self.function(*inputs, dtype=dtype, sizes=sample.sizes))

    def __call__(self, inputs: Sequence[Tensor]) -> list[Tensor]:
        """Results in the program's own types."""
        results = self._pieces(inputs, None)
        if results is None:
            raise torch.OutOfMemoryError("the program does not fit into the device's memory")
        return results

    def eager(self, inputs: Sequence[Tensor]) -> Any:
        """The same as one call."""
        return self.function(*inputs)

    def exact(self, inputs: Sequence[Tensor]) -> list[Tensor]:
        """Results in `exact_dtype`."""
        results = self._pieces(inputs, self.exact_dtype)
        if results is None and self.exact_dtype == torch.float64:
            self.exact_dtype = torch.float32
            results = self._pieces(inputs, self.exact_dtype)
        if results is None:
            raise torch.OutOfMemoryError("the exact results do not fit into the device's memory")
        return results

    def _pieces(self, inputs: Sequence[Tensor], dtype: torch.dtype | None) -> list[Tensor] | None:
        """Halves the pieces until they fit; later calls begin with what fitted. None: not even the smallest do."""
        while True:
            with contextlib.suppress(torch.OutOfMemoryError):
                return self._cut(inputs, dtype, list(self.sizes), {})
            # Here, and not earlier, nothing holds the tensors of the attempt any more.
            torch.cuda.empty_cache()
            if not self._halve(inputs):
                return None

    def _halve(self, inputs: Sequence[Tensor]) -> bool:
        """Along the first dimension that can be: a few large pieces. False when there is none."""
        for name in self.module.BATCH:
            extent = self.sizes.get(name) or self.extent(name, inputs)
            if extent > 1:
                self.sizes[name] = (extent + 1) // 2
                return True
        return False

    def extent(self, name: str, inputs: Sequence[Tensor]) -> int:
        """How many positions a dimension has."""
        places = self.module.BATCH[name][0]
        return max((x.shape[at] for x, at in zip(inputs, places, strict=True) if at is not None), default=1)

    def _cut(
        self, inputs: Sequence[Tensor], dtype: torch.dtype | None, names: list[str], sizes: dict[str, int]
    ) -> list[Tensor]:
        if not names:
            return as_list(self.function(*inputs, dtype=dtype, sizes=sizes))
        name, step = names[0], self.sizes[names[0]]
        places, out_places = self.module.BATCH[name]
        extent = self.extent(name, inputs)
        pieces = []
        for start in range(0, extent, step):
            length = min(step, extent - start)
            part = [x if at is None else x.narrow(at, start, length) for x, at in zip(inputs, places, strict=True)]
            pieces.append(self._cut(part, dtype, names[1:], {**sizes, name: length}))
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
    difference = norm = 0.0
    for result, exact_result in zip(results, exact, strict=True):
        x, want = result, exact_result
        if x.shape != want.shape:
            return math.inf
        finite = torch.isfinite(want.to(x.dtype))
        if not finite.all():
            if not torch.equal(x[~finite].nan_to_num(0.5), want[~finite].to(x.dtype).nan_to_num(0.5)):
                return math.inf
            x, want = torch.where(finite, x, 0), torch.where(finite, want, 0)
        difference += float(torch.linalg.vector_norm(x.to(want.dtype) - want, dtype=torch.float64)) ** 2
        norm += float(torch.linalg.vector_norm(want, dtype=torch.float64)) ** 2
    if not math.isfinite(difference):
        return math.inf
    return math.sqrt(difference / norm) if norm else (math.inf if difference else 0.0)


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


def copies(inputs: Sequence[Tensor], bytes_: int) -> list[list[Tensor]]:
    """Copies of the inputs that take `bytes_` in all, at least two of them; each begins at a multiple of 256 bytes."""
    strides = [(x.numel() * x.element_size() + 255) // 256 * 256 for x in inputs]
    count = max(2, min(MOST_COPIES, bytes_ // max(sum(strides), 1) + 1))
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
        graph = torch.cuda.CUDAGraph()
        try:
            with torch.cuda.graph(graph):
                for inputs in order:
                    call(inputs)
            replay: Callable[[], Any] = graph.replay
            count = len(order)
        except RuntimeError as problem:
            if "captur" not in str(problem):
                raise
            torch.cuda.synchronize()
            replay, count = (lambda: [call(inputs) for inputs in sets]), len(sets)
        replay()
        return statistics.median(self.once(replay) for _ in range(max(repeat, 1))) / count


class Timer:
    """Cold and warm times of calls with given inputs."""

    def __init__(self, inputs: Sequence[Tensor], device: torch.device):
        cache = torch.cuda.get_device_properties(device).L2_cache_size if device.type == "cuda" else 0
        self.clock = Clock(device)
        wanted = max(4 * cache, COLD_BYTES) if device.type == "cuda" else 0
        self.sets = copies(inputs, wanted)

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
    """Bytes a second that the device reads or copies, whichever is faster."""
    if device.type != "cuda":
        x = torch.ones(8 << 20)
    else:
        free, _ = torch.cuda.mem_get_info(device)
        x = torch.ones(min(1 << 28, free // 16), device=device)
    y = torch.empty_like(x)
    clock, size = Clock(device), x.numel() * x.element_size()
    read = min(clock.once(x.sum) for _ in range(6))
    copy = min(clock.once(lambda: y.copy_(x)) for _ in range(6))
    return max(size / read, 2 * size / copy) * 1e6


# ---- trials ----


class Wrong(Exception):
    """A candidate's results are not good enough."""


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
        self.cases: list[tuple[str, list[Tensor], list[Tensor]]] = []  # distribution, inputs, exact results
        self.eager_error: list[float] = []
        self.beyond = 0  # results that are out of range with normal inputs
        kinds = distributions(self.inputs)
        if seconds:
            self.sample = self._affordable(REFERENCE_SHARE * seconds * 1e6 / (len(kinds) + 2))
        with self.spending("references"):
            for kind in kinds:
                self._prepare(kind)
        with self.spending("copies"):
            self.timer = Timer(self.cases[0][1], self.device)
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
            self.reference.of(least, part, torch.float64)

        exact()
        took = min(self.clock.once(exact) for _ in range(2))
        share = us / max(took, 1.0) * least.share
        return None if not least.at or share >= 1 else Sample(self.reference, tensors, share, self.seed)

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
            case, found, beyond = self._case(kind, scale)
            if found <= most and (beyond <= self.beyond or not in_range):
                break
            if found < least:
                best, least = scale, found
        else:
            del case
            scale = best
            case, found, beyond = self._case(kind, scale)
        if kind == "normal":
            self.beyond = beyond
            self.inputs = [replace(spec, size=spec.size * scale) for spec in self.inputs]
        self.cases.append(case)
        self.eager_error.append(found)

    def _case(self, kind: str, scale: float) -> tuple[tuple[str, list[Tensor], list[Tensor]], float, int]:
        """Distribution, inputs, exact results; eager PyTorch's error, and how many of its results are not finite,
        or of float16 near its end, where rounding decides."""
        tensors = draw(self.inputs, kind, scale, self.device, self.seed)
        part = self.sample.inputs(tensors) if self.sample else tensors
        exact = self.reference.of(self.sample, part, torch.float64)
        if self.sample and kind == "normal":
            self.whole = self.reference(tensors)
            results = list(self._sampled(self.whole))
        else:
            results = self.reference.of(self.sample, part, None)
        found = error(results, exact)
        beyond = sum(int((~(x.abs() < RANGE.get(x.dtype, math.inf))).sum()) for x in results if x.is_floating_point())
        # Exact results of a narrow type need not be kept in float64.
        narrow = {torch.float16, torch.bfloat16}
        kept = [x.float() if s.dtype in narrow else x for x, s in zip(exact, self.outputs, strict=True)]
        return (kind, tensors, kept), found, beyond

    def accepted(self, case: int) -> float:
        """The error that a candidate may have: twice that of eager PyTorch, and below 0.01."""
        return min(ACCEPTED, max(2 * self.eager_error[case], self.unit))

    def eager_us(self, repeat: int = 10) -> float:
        """The time of the program as plain PyTorch, cold; piece by piece when the whole does not fit."""
        try:
            return self.timer(self.reference.eager, repeat, 0.0, EAGER_SHARE * self.seconds)[0]
        except torch.OutOfMemoryError:
            torch.cuda.empty_cache()
        return min(self.timer.clock.once(lambda: self.reference(self.timer.sets[0])) for _ in range(3))

    def validate(self, module: ModuleType, first: int = 0, count: int | None = None) -> float:
        """The largest error of a generated module over `count` distributions from the `first` on (None: all). Wrong
        when it is too large in one."""
        outputs, temps = (_source.empty(module, which, self.device) for which in ("OUTPUTS", "BUFFERS"))
        worst = 0.0
        for i in range(first, len(self.cases) if count is None else min(first + count, len(self.cases))):
            kind, inputs, exact = self.cases[i]
            poison([*outputs, *temps])
            module.launch(inputs, outputs, temps)
            found = error(self._sampled(outputs), exact)
            if not found <= self.accepted(i):
                limit = self.accepted(i)
                raise Wrong(f"relative L2 error {found:.3g} with {kind} inputs, at most {limit:.3g} is accepted")
            worst = max(worst, found)
            if i == 0 and self.whole is not None:
                self._compare_whole(outputs)
        return worst

    def _compare_whole(self, outputs: Sequence[Tensor]) -> None:
        assert self.whole is not None
        limit = self.accepted(0) + 1.25 * self.eager_error[0]
        found = error(outputs, [x.float() if x.dtype in (torch.float16, torch.bfloat16) else x for x in self.whole])
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
        check, repeat, best_us = how.get("check", 0), how.get("repeat", 10), how.get("best_us") or 0.0
        seconds = how.get("seconds") or 0.0
        found: dict[str, Any] = {}
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
                found["kernel_us"] = self.kernel_times(module, calls)
        return {**found, "us": cold, "warm_us": warm}
