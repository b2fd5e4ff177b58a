"""Trials: candidates of one program on one device are checked against exact results, and timed (design, sections 7, 8).

A `Trial` holds what every candidate is compared with, on the device: inputs of each distribution and exact results of
these, float64 or, where outputs are narrow, float32. Its memory may be short: other processes have some of it, and a
program may take nearly all. Then exact results are computed piece by piece, inputs are drawn anew whenever they are
needed, and what is only to be known of the program as it is, is estimated. Times are microseconds, budgets seconds.
`Wrong` is raised for results that are not good enough; what a candidate raises passes through.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from equiforge import _kernel_times, _source
from equiforge._accuracy import beyond, error
from equiforge._inputs import Spec, distributions, draw
from equiforge._memory import Result, bytes_of, first_fitting, memory_of
from equiforge._reference import Reference, Sample
from equiforge._timing import BEHIND, KEPT_SHARE, NEAR, SLOW_US, Call, Clock, Timer

ACCEPTED = 1e-2  # relative L2 error that no implementation may exceed
ROUGH_ROUNDS = 3  # of times of kernels that are rough
REFERENCE_SHARE = 0.25  # of the time for preparation, for exact results
EAGER_SHARE = 0.1  # … for timing the program as it is


def poison(tensors: Sequence[Tensor]) -> None:
    """Fills tensors with what no correct implementation leaves there: NaN, or a large number."""
    for x in tensors:
        if x.dtype.is_floating_point:
            x.fill_(math.nan)
        elif x.dtype != torch.bool:
            x.fill_(torch.iinfo(x.dtype).max)
        else:
            x.fill_(True)


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

    def kernel_times(self, module: ModuleType, cold: float, repeat: int, hiding: bool) -> list[float]:
        """Microseconds of each kernel of a module that takes `cold`, with cold inputs, in `repeat` rounds; none of a
        module with one, nor where they cannot be told apart. `hiding`: they are known to hide each other."""
        steps = _source.steps(module)
        if len(steps) < 2:
            return []
        outputs, temps = (_source.empty(module, which, self.device) for which in ("OUTPUTS", "BUFFERS"))

        def calling(step: Callable[..., None]) -> Call:
            return lambda inputs: step(inputs, outputs, temps)

        calls, sets = [calling(step) for step in steps], self.timer.sets
        if not (hiding and _kernel_times.can_leave_out(len(calls), len(sets), cold)):
            rounds = itertools.islice(itertools.cycle(sets), max(repeat, 1))
            return _kernel_times.adding_up(_kernel_times.medians(self.clock, calls, rounds), cold)
        module.launch(sets[0], outputs, temps)
        return _kernel_times.less_without(self.clock, calls, sets, cold, repeat)

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
                found["kernel_us"] = self.kernel_times(module, cold, calls, bool(how.get("hiding")))
        return {**found, "us": cold, "warm_us": warm}
