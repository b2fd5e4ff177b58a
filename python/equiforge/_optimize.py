"""`optimize` and `load`: from a PyTorch module to an optimised one, and back from a file."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import functools
import importlib
import os
import re
import statistics
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from equiforge import _cuda, _file, _native, _prepare, _timing
from equiforge._accuracy import error
from equiforge._memory import exhausted, first_fitting
from equiforge._module import Attached, Call, OptimizedModule, evaluating, in_training
from equiforge._native import EquiForgeError, Progress, UnsupportedModuleError
from equiforge._plan import Plan

COMPARE_S = 0.2  # how long the original and the result are timed against each other
ROW_CALLS, ROW_US = 20, 2000.0  # quick calls in a row: at most so many, and for so long
COMPARE_SHARE = 0.1  # of the budget, that a call of both may take to be timed more than once
LONGEST_S = 1e6  # that a budget may be
WAYS = 3  # in which kernels are launched, one call after the other: by Triton, one by one, as a graph
WORST = 2e-2  # relative L2 difference from the original's results: more is an error of ours


def seconds(budget: str | float, what: str = "a budget") -> float:
    """ "90s", "5m", "1h" or a number of seconds. EquiForgeError for anything else: `what` is a time."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([smh]?)", str(budget))
    if isinstance(budget, (int, float)) and not isinstance(budget, bool):
        limit = float(budget)
    else:
        limit = float(found[1]) * {"": 1, "s": 1, "m": 60, "h": 3600}[found[2]] if found else 0
    if not 0 < limit <= LONGEST_S:
        raise EquiForgeError(f"{what} is a time like '90s', '5m' or '1h', not {budget!r}")
    return limit


def show(progress: Progress) -> None:
    """One line on a terminal."""
    line = progress.stage
    if progress.measured:
        line += f", {progress.measured} measured, best {progress.best_us:.1f} us"
        if progress.original_us and progress.best_us:
            line += f" ({progress.original_us / progress.best_us:.2f}x)"
    sys.stderr.write(f"\r\033[K{line}, {progress.left_s:.0f} s left")
    sys.stderr.flush()


def apart(arguments: Any, module: nn.Module) -> Any:
    """The arguments, with copies in place of tensors that share their memory with earlier ones or with the module's:
    the exporter would take for one what is one in the example only."""
    seen = {x.untyped_storage().data_ptr() for x in (*module.parameters(), *module.buffers())}

    def one(x: Any) -> Any:
        if not isinstance(x, Tensor):
            return x
        memory = x.untyped_storage().data_ptr()
        if memory in seen:
            return x.detach().clone()
        seen.add(memory)
        return x

    return pytree.tree_map(one, arguments)


_exporting = threading.Lock()  # PyTorch exports one module at a time


def export(module: nn.Module, args: Sequence[Any], kwargs: dict[str, Any]) -> torch.export.ExportedProgram:
    """The module for these arguments, as in inference. UnsupportedModuleError when PyTorch cannot export it."""
    with _native.uninterrupted():  # the exporter is imported at its first use, which takes seconds
        importlib.import_module("torch.export._trace")
    given, named = apart((tuple(args), dict(kwargs)), module)
    try:
        with _exporting, evaluating(module.modules()), torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            exported = torch.export.export(module, given, named, strict=False)
            # Types that autocast chooses are written out, so that they can be optimised like others.
            return exported.run_decompositions({}) if has_autocast(exported) else exported
    except Exception as problem:
        raise UnsupportedModuleError(f"PyTorch cannot export this module: {why_not(problem)}") from problem


def why_not(problem: Exception) -> str:
    """What the exporter says, in a line. Of decisions by the data it says which of its symbols has no value; the last
    place that it tells is the module's."""
    if type(problem).__name__ != "GuardOnDataDependentSymNode":
        return f"{type(problem).__name__}: {first_line(problem)}"
    places = re.findall(r'^  File "(.+)", line (\d+), in (.+)$', str(problem), re.MULTILINE)
    place = "at {}:{}, in {}, ".format(*places[-1]) if places else ""
    return f"{place}the data decide what comes next (an if, a loop, a size); torch.where or torch.cond can say the same"


def write(exported: torch.export.ExportedProgram, archive: Path) -> None:
    """Saves it for the library, which asks for the types of weights only, and not for the example's tensors: their data
    may be gigabytes. They are written where PyTorch wants to. UnsupportedModuleError when it cannot save the module."""

    def empty(x: Tensor) -> Tensor:
        blank = x.detach().to("meta")
        return nn.Parameter(blank, requires_grad=x.requires_grad) if isinstance(x, nn.Parameter) else blank

    light = copy.copy(exported)
    light.example_inputs = None
    light._state_dict = {name: empty(x) if type(x.data) is Tensor else x for name, x in exported.state_dict.items()}
    try:
        try:
            torch.export.save(light, archive)
        except (RuntimeError, AssertionError):  # NotImplementedError is one
            torch.export.save(exported, archive)
    except NotImplementedError as problem:  # a type of results or arguments that has no name for files
        raise UnsupportedModuleError(f"PyTorch cannot save this module: {first_line(problem)}") from problem


def first_line(problem: Exception) -> str:
    """Of its message."""
    return str(problem).strip().split("\n")[0]


def has_autocast(exported: torch.export.ExportedProgram) -> bool:
    """Whether a part of it runs under torch.autocast."""
    return any(
        node.target is torch.ops.higher_order.wrap_with_autocast
        for graph in exported.graph_module.modules()
        if isinstance(graph, torch.fx.GraphModule)
        for node in graph.graph.nodes
    )


def check_arguments(module: Any, args: Any, kwargs: Any, target: Any, progress: Any) -> None:
    """TypeError for what can be no call of `optimize`."""
    if not isinstance(module, nn.Module):
        raise TypeError(f"what is optimised is a torch.nn.Module, not {_article(module)}")
    if not isinstance(args, (tuple, list)):
        raise TypeError(f"args is the tuple of an example call's arguments, like (x,), not {_article(args)}")
    if kwargs is not None and not (isinstance(kwargs, dict) and all(isinstance(name, str) for name in kwargs)):
        raise TypeError(f"kwargs is a dict of an example call's arguments by name, not {_article(kwargs)}")
    if not isinstance(target, str):
        raise TypeError(f"target is the name of a device, not {_article(target)}")
    if progress is not None and not callable(progress):
        raise TypeError(f"progress is a function of a Progress, not {_article(progress)}")


def _article(x: Any) -> str:
    name = type(x).__name__
    return "None" if x is None else f"{'an' if name[0].lower() in 'aeiou' else 'a'} {name}"


def optimize(  # noqa: PLR0913, PLR0917
    module: nn.Module,
    args: Sequence[Any],
    kwargs: dict[str, Any] | None = None,
    target: str = "auto",
    budget: str | float = "5m",
    store: str | os.PathLike[str] | None = None,
    freeze: bool = False,
    progress: Callable[[Progress], Any] | None = None,
) -> OptimizedModule:
    """The fastest equivalent of a module that can be found for calls like `module(*args, **kwargs)`.

    Args:
        module: what to optimise, as it behaves in evaluation mode. It is not changed. When it is in training mode so
            is the result, which runs it as it is until `eval()` is called.
        args, kwargs: an example call. The result is for arguments of the same structure, shapes, element types and
            device; tensors on the CPU are optimised for this machine's processor, tensors on a GPU for that GPU, on
            which candidates are measured.
        target: "auto", or the name of the device, to be sure what it is.
        budget: for search and measurements: "90s", "5m", "1h" or seconds. The end may be later: by a tenth and two
            seconds, after which no region is begun; where workers take long to start, to compute a region in float64
            and to call it once, which ends after a minute and twice the budget; where a call of a region as it is takes
            too long to be measured, by one such call. On the CPU a region whose float64 results alone should take well
            over what is left of the budget is refused at once: it stays as it is. PyTorch's export comes before the
            budget, and the comparison of the result with the original after it: five calls of both, or as many as fit
            in 0.2 seconds; two when a call of both takes more than a tenth of the budget, one when it takes more than
            all of it.
        store: the file that measurements are kept in; the library's own by default.
        freeze: what the module computes from its parameters and buffers alone is computed once, in place of in every
            call: sums and products of weights, casts, transposed weights, which are laid out so. It is computed anew
            when a weight is replaced or written to (of writes through `.data` and `.numpy()` PyTorch does not tell),
            and at every call when one is an inference tensor, of which PyTorch does not tell either. It takes memory,
            beside the weights. Where graphs of control flow are in the module nothing is prepared.
        progress: called with a `Progress` some times a second; False from it finishes with the best so far. By default
            a line is shown on a terminal.

    Returns:
        A module with the original's parameters, buffers and submodules, in the original's mode. It is never slower than
        the original: where nothing faster was found, or measured so in the end, it calls the original. What the
        device's memory is too short for is not compared, nor an original that fails; a warning says so. Its kernels
        compute no gradients: where these are wanted, it calls the original too (see `OptimizedModule`). Regions of
        which nothing can be measured, because worker processes do not start, say, or the budget is over, stay as they
        are; a warning says so.

    Raises:
        TypeError: `module` is no module, or `args` no tuple.
        UnsupportedModuleError: torch.export cannot export the module, or it computes with numbers (not tensors) that
            only the data decide.
        EquiForgeError: there is no such target on this machine, or an argument is wrong.
        KeyboardInterrupt: Ctrl-C ends it within a second or two; another call goes on where it was.
    """
    check_arguments(module, args, kwargs, target, progress)
    limit = seconds(budget)
    training = in_training(module)
    if isinstance(module, OptimizedModule) and module.original is not None:
        module = module.original
    call = Call.example(args, kwargs or {}, module)
    if target == "auto" and call.device.type == "cpu":
        target = "cpu"
    gpu = _cuda.place_of(call.device.index or 0) if call.device.type == "cuda" else None
    kind = "cpu" if target == "interpreter" else _native.targets().get(target)
    if kind and (kind == "gpu") != (gpu is not None):
        raise EquiForgeError(f"arguments and module are on {call.device}, which is no target {target!r}")
    exported = program = export(module, args, kwargs or {})
    prepared = None
    if freeze:
        preparation, rest = _prepare.split(exported)
        if preparation.count:
            program = export(rest(), args, kwargs or {})
            prepared = _prepare.Prepared(preparation, module, Attached.to(exported).constants)
    report = progress or (show if sys.stderr.isatty() else None)
    with tempfile.TemporaryDirectory(prefix="equiforge-") as folder:
        archive, result = Path(folder) / "module.pt2", Path(folder) / "module.efz"
        write(program, archive)
        if call.device.type == "cuda":
            torch.cuda.empty_cache()  # the workers are processes of their own, which need what is free
        try:
            found = _native.optimize(
                archive, result, target=target, gpu=gpu, budget_s=limit, store=store, progress=report
            )
        except EquiForgeError as problem:
            if not str(problem).startswith(f"{archive}: "):
                raise
            raise UnsupportedModuleError(str(problem).removeprefix(f"{archive}: ")) from None
        if report is show:
            sys.stderr.write("\r\033[K")
        if found["note"]:
            warnings.warn(f"equiforge: {found['note']}", stacklevel=2)
        handle = _native.PlanHandle(result)
        plan = result.read_bytes()
    attached = dataclasses.replace(Attached.to(program), prepared=prepared)
    fast = OptimizedModule(module, Plan.of(handle.description()), call, handle=handle, attached=attached)
    fast.__dict__.update(_exported=exported, _file=plan)
    compare(fast, module, args, kwargs or {}, limit)
    fast.training = training
    return fast


def compare(
    fast: OptimizedModule, original: nn.Module, args: Sequence[Any], kwargs: dict[str, Any], budget_s: float
) -> None:
    """Times both, in turns, and makes the result call the original when that is faster, or when they differ.

    Both are called five times at least; once more after a first call, when a call of both takes more than a tenth of
    the budget; only once, when it takes more than all of it: then first calls are compared. The result's first calls on
    a GPU launch in different ways, and are all looked at, as far as the budget goes. Arguments are copies, and buffers
    are as before when this returns: calls may write to them.

    Where they differ the original is called once more: its results may differ from themselves, which the warning says.

    Of the warnings that both give, PyTorch's for instance, each is shown once.

    What does not fit into the device's memory is left out, and a warning says so: that the original could not be called
    is no reason to prefer it. Nor is an exception of its own, of which a warning tells as well.
    """
    both = _Both(fast, original, args, kwargs)
    with evaluating(original.modules()), torch.no_grad(), warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        try:
            found = both.compare(budget_s)
        finally:
            both.restore()
    if both.short:
        line = f"too little memory is left on the device to {' and to '.join(both.short)}"
        warnings.warn(f"equiforge: {line}", stacklevel=3)
    if both.failure:
        line = f"the original failed, so that the optimised module is used without comparing times: {both.failure}"
        warnings.warn(f"equiforge: {line}", stacklevel=3)
    if found["_differs"]:
        line = both.excuse or f"the optimised module differs from the original by {both.difference:.2g}"
        warnings.warn(f"{line}: not used", stacklevel=3)
    fast.__dict__.update(found)
    show_once(heard)


def show_once(heard: Sequence[warnings.WarningMessage]) -> None:
    """Shows each of the warnings that calls of the module gave once, where the caller's filters let it be shown: it is
    called many times, and where the caller calls it once."""
    first: dict[tuple[type[Warning], str], warnings.WarningMessage] = {}
    for warning in heard:
        first.setdefault((warning.category, str(warning.message)), warning)
    for warning in first.values():
        warnings.warn_explicit(warning.message, warning.category, warning.filename, warning.lineno)


class OriginalFailed(Exception):
    """What the original raised, other than for want of memory: type and first line."""


@contextlib.contextmanager
def of_the_original() -> Iterator[None]:
    """Exceptions inside, but those for want of memory, are OriginalFailed."""
    try:
        yield
    except Exception as problem:
        if exhausted(problem):
            raise
        raise OriginalFailed(f"{type(problem).__name__}: {first_line(problem)}") from None


class _Both:
    """The result of an optimisation and the original, with arguments for both.

    Attributes:
        difference: of the results, so far.
        short: what could not be done because the device's memory is too short.
        failure: of the original; "" for none.
        excuse: why results may differ through no fault of the kernels; "" for nothing known.
    """

    def __init__(self, fast: OptimizedModule, original: nn.Module, args: Sequence[Any], kwargs: dict[str, Any]):
        self.fast, self.original, self.arguments = fast, original, (args, kwargs)
        self.clock = _timing.Clock(fast.device)
        self.difference = 0.0
        self.short: list[str] = []
        self.failure = self.excuse = ""
        self.copied = True  # arguments; the caller's own are given where memory is short and nothing is written to them
        self.writes = any(fast.plan.values[target].kind == "input" for _, target in fast.plan.mutations)
        self.buffers = [(x, self._saved(x)) for x in original.buffers()]

    def compare(self, budget_s: float) -> dict[str, Any]:
        """What is to be known of the result: attributes of it."""
        original = self._try(functools.partial(self._first, self.original), "call the original")
        want, original_us = original or (None, 0.0)
        calls: list[float] = []
        while not calls or (self.fast.device.type == "cuda" and len(calls) < WAYS and sum(calls) <= 1e6 * budget_s):
            called = self._try(functools.partial(self._first, self.fast), "call the optimised module")
            if called is None:
                break
            got, us = called
            calls.append(us)
            if want is not None:
                found = self._try(functools.partial(error, got, want), "compare its results with the original's")
                self.difference = max(self.difference, found or 0.0)
            del called, got
        optimized_us = 0.0 if not calls else calls[0] if original is not None else min(calls)
        if self.difference > WORST:
            self.excuse = self._excuse(want or [])
            return {"_keep_original": True, "_differs": True}
        del want
        if original is not None and not calls:
            return {"_keep_original": True, "_differs": False, "original_us": original_us}
        del original
        if original_us and optimized_us and original_us + optimized_us <= 1e6 * budget_s:
            turns = self._try(lambda: self._in_turns(1e6 * COMPARE_SHARE * budget_s), "time it against the original")
            original_us, optimized_us = turns or (original_us, min(calls))
        slower = bool(original_us) and optimized_us > original_us and not self.failure
        return {
            "_keep_original": slower,
            "_differs": False,
            "original_us": original_us,
            "optimized_us": optimized_us,
        }

    def _excuse(self, want: list[Tensor]) -> str:
        """Why results may differ from the original's first ones through no fault of the kernels."""

        def from_itself() -> float:
            return error(self._first(self.original)[0], want)

        if (self._try(from_itself, "call the original again") or 0.0) > WORST / 2:
            return "the module's results differ from one call to the next, so that no optimised module can be judged"
        numbers = [x for x in (*tensors_of(self.arguments), *want) if x.dtype.itemsize > 1]
        if self._roomy(lambda: all(bool(x.isfinite().all()) for x in numbers)) is False:
            return "the example's arguments or results are not all finite, and the optimised module's results differ"
        return ""

    def restore(self) -> None:
        """Gives the buffers the contents that they had."""
        for x, before in self.buffers:
            same = x.device == before.device and self._roomy(functools.partial(torch.equal, x, before))
            if not same:
                x.copy_(before)

    def _saved(self, x: Tensor) -> Tensor:
        """A copy, in the host's memory where the device's is short."""
        copied = self._roomy(x.clone)
        return x.to("cpu", copy=True) if copied is None else copied

    @staticmethod
    def _roomy(call: Callable[[], Any]) -> Any:
        """What a call returns; None when the memory is too short even without what PyTorch keeps of it."""
        return first_fitting([call, call, lambda: None])

    def _try(self, call: Callable[[], Any], what: str) -> Any:
        """The same, and None when the original fails; notes what could not be done. Buffers are as before."""
        try:
            found = self._roomy(call)
            if found is None and self.copied and not self.writes:
                self.copied = False
                found = self._roomy(call)
        except OriginalFailed as problem:
            self.failure = str(problem)
            self.restore()
            return None
        self.restore()
        if found is None and what not in self.short:
            self.short.append(what)
        return found

    def _arguments(self) -> Any:
        if not self.copied:
            return self.arguments
        return pytree.tree_map(lambda x: x.clone() if isinstance(x, Tensor) else x, self.arguments)

    def _first(self, module: nn.Module) -> tuple[list[Tensor], float]:
        """Results of a first call, and its time."""
        (given, named), results = self._arguments(), []
        with of_the_original() if module is self.original else contextlib.nullcontext():
            us = self.clock.once(lambda: results.extend(tensors_of(module(*given, **named))))
            if module is self.original:  # what it returns may be a buffer
                results[:] = [x.clone() for x in results]
        return results, us

    def _in_turns(self, longest_us: float) -> list[float]:
        given, named = self._arguments()

        def original() -> None:
            with of_the_original():
                self.original(*given, **named)

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the first calls gave them; hearing them once more would take time
            return in_turns((original, lambda: self.fast(*given, **named)), self.clock, longest_us)


def tensors_of(results: Any) -> list[Tensor]:
    """The tensors of a call's results in order, to be compared: sparse ones dense, complex ones as pairs of numbers."""
    tensors = (x.to_dense() for x in pytree.tree_leaves(results) if isinstance(x, Tensor))
    return [torch.view_as_real(x.resolve_conj()) if x.is_complex() else x for x in tensors]


def in_turns(calls: Sequence[Callable[[], Any]], clock: _timing.Clock, longest_us: float) -> list[float]:
    """The median time of each call in microseconds, measured alternately so that nothing favours one. Quick calls are
    made many in a row, as a model makes them: what the host does for one of them overlaps with what the device does for
    another, and an idle device's start is not counted for each. Of one call each, when all together take longer than
    `longest_us`; else the first is for warming up."""
    once = [clock.once(call) for call in calls]
    if sum(once) > longest_us:
        return once
    row = max(1, min(ROW_CALLS, int(ROW_US / max(*once, 1.0))))

    def in_a_row(call: Callable[[], Any]) -> None:
        for _ in range(row):
            call()

    times: list[list[float]] = [[] for _ in calls]
    end = time.perf_counter() + COMPARE_S
    while len(times[0]) < 3 or (time.perf_counter() < end and len(times[0]) < 1000):
        for call, taken in zip(calls, times, strict=True):
            taken.append(clock.once(functools.partial(in_a_row, call)) / row)
    return [statistics.median(taken) for taken in times]


def load(path: str | os.PathLike[str], module: nn.Module | None = None) -> OptimizedModule:
    """An optimised module from a file that `OptimizedModule.save` wrote.

    It runs the code in the file: be sure who wrote it.

    Args:
        path: the file.
        module: the module that has the weights; by default the one in the file, if it was saved with it
            (`OptimizedModule.save`; files of the command line have none), which runs with arguments like the example's
            alone. Where it was faster than what was found, it is what the result calls, as the optimised module did.
            The result is in the mode of the module that is given.

    Raises:
        EquiForgeError: the file is damaged or of another version, or the module does not fit it.
    """
    handle = _native.PlanHandle(path)
    plan = Plan.of(handle.description())
    exported = _file.exported_of(path)
    attached = Attached.to(exported) if exported is not None else Attached()
    if exported is not None and exported.example_inputs is not None:
        args, kwargs = exported.example_inputs
        call = Call.example(args, kwargs, None)
    else:
        call = call_of(plan)
    alone = module is None
    if module is None and exported is not None:
        module = exported.module()
    compared = _file.compared_of(path)
    if compared["prepared"]:
        attached = dataclasses.replace(attached, prepared=prepared_again(path, exported, compared["prepared"], module))
    fast = OptimizedModule(module, plan, call, handle=handle, attached=attached)
    fast.__dict__.update(
        _exported=exported,
        _file=_file.plan_of(path),
        _keep_original=compared["keep_original"] and module is not None,
        _like_example=alone,
        original_us=compared["original_us"],
        optimized_us=compared["optimized_us"],
    )
    fast.training = not alone and module is not None and in_training(module)
    return fast


def prepared_again(
    path: str | os.PathLike[str], exported: torch.export.ExportedProgram | None, count: int, module: nn.Module | None
) -> _prepare.Prepared:
    """What a frozen module had prepared. EquiForgeError when the file has not what it takes."""
    preparation = _prepare.split(exported)[0] if exported is not None else None
    if exported is None or preparation is None or preparation.count != count:
        raise EquiForgeError(f"{path}: {count} tensors were prepared of weights that are not in the file")
    return _prepare.Prepared(preparation, module, Attached.to(exported).constants)


def call_of(plan: Plan) -> Call:
    """From the plan alone, which knows the tensors among the arguments."""
    flat: list[Any] = [None] * plan.user_inputs
    for value in plan.values:
        if value.kind == "input":
            flat[value.input] = torch.empty(value.shape, dtype=value.dtype, device="meta")
    device = torch.device("cpu") if plan.target == "cpu" else torch.device("cuda", torch.cuda.current_device())
    return Call(flat, pytree.treespec_loads(plan.in_spec) if plan.in_spec else None, device)
