"""Optimised modules: what `optimize` returns."""

from __future__ import annotations

import contextlib
import copy
import threading
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.module import (
    _global_backward_hooks,
    _global_backward_pre_hooks,
    _global_forward_hooks,
    _global_forward_pre_hooks,
)
from torch.utils import _pytree as pytree

from equiforge import _native
from equiforge._calls import external
from equiforge._kernels import EagerKernels, Kernels, NativeKernels, TritonKernels
from equiforge._native import EquiForgeError
from equiforge._plan import Plan, Step, Value
from equiforge._prepare import Prepared

_Holder = tuple[dict[str, Any], str]  # where a module keeps a parameter or buffer, and its name there


def _has(module: nn.Module, name: str) -> bool:
    path, _, last = name.rpartition(".")
    try:
        return isinstance(getattr(module.get_submodule(path), last), Tensor)
    except AttributeError:
        return False


def _holder(module: nn.Module, value: Value) -> _Holder:
    """EquiForgeError when the module has no such tensor, or one of another shape or type."""
    path, _, name = value.target.rpartition(".")
    try:
        owner = module.get_submodule(path)
    except AttributeError:
        owner = None
    for held in (owner._parameters, owner._buffers, owner.__dict__) if owner is not None else ():
        tensor = held.get(name)
        if isinstance(tensor, Tensor):
            if tuple(tensor.shape) != value.shape or tensor.dtype != value.dtype:
                raise EquiForgeError(
                    f"{value.target} is {tensor.dtype} {tuple(tensor.shape)} in this module, "
                    f"and {value.dtype} {value.shape} in the optimised one"
                )
            return held, name
    raise EquiForgeError(f"this module has no {value.kind} {value.target}")


def _span(x: Tensor) -> tuple[int, int]:
    """The addresses that a tensor lies between."""
    start = x.data_ptr()
    if x.numel() == 0:
        return start, start
    last = sum((size - 1) * stride for size, stride in zip(x.shape, x.stride(), strict=True))
    return start, start + (last + 1) * x.element_size()


def _shared(written: Sequence[Tensor], others: Sequence[Tensor]) -> bool:
    """Whether a tensor that is written to may share memory with another one (that is not the same object's place)."""
    spans = [_span(x) for x in others]
    for x in written:
        start, end = _span(x)
        if sum(a < end and start < b for a, b in spans) > 1:  # itself is among them
            return True
    return False


_modes = threading.Lock()
_resting: dict[nn.Module, int] = {}  # modules in training mode otherwise: how many hold them in evaluation mode


class evaluating:  # noqa: N801 - a context, as torch.no_grad is
    """Holds modules in evaluation mode. Those that were in training mode are in it again when the last one is done that
    holds them, whoever that is: several threads may, by way of several optimised modules."""

    def __init__(self, parts: Iterable[nn.Module]):
        self.parts = parts
        self.held: list[nn.Module] = []

    def __enter__(self) -> None:
        with _modes:
            self.held = [part for part in self.parts if part.training or part in _resting]
            for part in self.held:
                _resting[part] = _resting.get(part, 0) + 1
                part.training = False

    def __exit__(self, *_: object) -> None:
        if not self.held:
            return
        with _modes:
            for part in self.held:
                _resting[part] -= 1
                if not _resting[part]:
                    del _resting[part]
                    part.training = True


# Why a call's kernels do not fit, as the printed function says it.
_CHANGED = "a parameter or buffer has another type, shape or device"
_SHARED = "what the module writes to shares its memory with another argument or buffer"


@dataclass(frozen=True)
class Attached:
    """What the plan of an exported program needs beside parameters and buffers: tensors that its code made or that are
    not saved; the module that has the graphs (branches) that calls run, None: the original; and what was prepared of
    its weights."""

    constants: dict[str, Tensor] = field(default_factory=dict)
    graphs: nn.Module | None = None
    prepared: Prepared | None = None

    @classmethod
    def to(cls, exported: torch.export.ExportedProgram) -> Attached:
        """Those of a program."""
        return cls({k: x for k, x in exported.constants.items() if isinstance(x, Tensor)}, exported.graph_module)


class Runner:
    """A plan as one Python function from flattened arguments to flattened results.

    The function is printed and compiled, since a call should cost the host microseconds: values are local variables,
    forgotten after their last use, and what never changes is bound once. Parameters and buffers are looked up in their
    module at every call, where `.to()` and the like put new ones.
    """

    def __init__(
        self,
        plan: Plan,
        handle: _native.PlanHandle | None,
        module: nn.Module | None,
        attached: Attached,
        device: torch.device,
    ):
        self.plan, self.handle, self.device = plan, handle, device
        self.graphs, constants = attached.graphs or module, attached.constants
        self.names: dict[str, Any] = {"device": device, "shared": _shared}  # what the function uses
        inputs = {value.input: i for i, value in enumerate(plan.values) if value.kind == "input"}
        names = "".join(f"v{inputs[n]}, " if n in inputs else "_, " for n in range(plan.user_inputs))
        lines, lookups = [f"    {names}= flat"] if names else [], list[str]()  # lookups: of weights, at every call
        self.contiguous: set[int] = set()  # values that are
        wants: list[str] = []
        used = self._used()
        for i, value in enumerate(plan.values):
            if i not in used:  # a weight that others were prepared of, say
                continue
            held = self._held(value, module, attached)
            if held is not None:
                self.names[f"h{i}"], name = held
                self.names[f"d{i}"], self.names[f"s{i}"] = value.dtype, torch.Size(value.shape)
                # A kernel would read whatever is there.
                changed = f"v{i}.dtype is not d{i} or v{i}.device != device or v{i}.shape != s{i}"
                lookups += [f"        v{i} = h{i}[{name!r}]", f"        if {changed}: return {_CHANGED!r}"]
                wants.append(f"h{i}[{name!r}].requires_grad")
            elif value.kind in ("parameter", "buffer", "constant"):
                if value.target not in constants:
                    raise EquiForgeError(
                        f"the {value.kind} {value.target} is not in the file: equiforge.load(FILE, module) takes the "
                        "module that it belongs to"
                    )
                self.names[f"c{i}"] = constants[value.target].to(device).contiguous()
                self.names[f"m{i}"] = constants[value.target]
                lines.append(f"    v{i} = c{i}")
                self.contiguous.add(i)
        gone = "    except (KeyError, AttributeError):"  # a weight was deleted, or is None
        lines += ["    try:", *lookups, gone, f"        return {_CHANGED!r}"] if lookups else []
        self.kernels = [self._kernels(number) for number in range(len(plan.regions))]
        # What is written to is the caller's tensor, whatever copy of it kernels read.
        targets = {target for _, target in plan.mutations}
        lines += [f"    m{i} = v{i}" for i in sorted(targets) if f"m{i}" not in self.names]
        if targets:
            written = "".join(f"m{i}, " for i in sorted(targets))
            given = "".join(f"v{i}, " for i in sorted(used) if plan.values[i].kind != "result")
            lines.append(f"    if shared(({written}), ({given})): return {_SHARED!r}")
        last = self._last_uses()
        for number, step in enumerate(plan.steps):
            lines += self._step(number, step)
            dead = [f"v{i}" for i in step.ins if last[i] == number and plan.values[i].kind == "result"]
            lines += [f"    {' = '.join(dead)} = None"] if dead else []
        # Results and values to write that are old states of what is written are kept apart first.
        old = targets & {i for i in [*plan.outputs, *(i for i, _ in plan.mutations)] if isinstance(i, int)}
        lines += [f"    v{i} = v{i}.clone()" for i in sorted(old)]
        results = ", ".join(f"v{i}" if isinstance(i, int) else repr(i[0]) for i in plan.outputs)
        asked = ["def wants_gradients():", "    try:", f"        return {' or '.join(wants) or False}"]
        asked += [gone, "        return False"]  # then `run` says so
        writes = [f"    m{target}.copy_(v{i})" for i, target in plan.mutations]
        lines = ["def run(flat):", *lines, *writes, f"    return [{results}]", *asked]
        exec("\n".join(lines), self.names)
        # A text: why the kernels do not fit.
        self.run: Callable[[Sequence[Any]], list[Any] | str] = self.names["run"]
        self.wants_gradients: Callable[[], bool] = self.names["wants_gradients"]
        # Kernels know nothing of gradients; PyTorch's operators would record them.
        if any(step.region < 0 for step in plan.steps) or plan.mutations:
            self.run = torch.no_grad()(self.run)

    def _used(self) -> set[int]:
        """The values that something is made of, and the arguments."""
        used = {i for step in self.plan.steps for i in step.ins} | {i for pair in self.plan.mutations for i in pair}
        used |= {i for i in self.plan.outputs if isinstance(i, int)}
        return used | {i for i, value in enumerate(self.plan.values) if value.kind == "input"}

    @staticmethod
    def _held(value: Value, module: nn.Module | None, attached: Attached) -> _Holder | None:
        """Where a value is looked up at every call; None: it is an argument, a result, or a constant."""
        if value.kind not in ("parameter", "buffer"):
            return None
        if attached.prepared is not None and value.target in attached.prepared.tensors:
            return attached.prepared.tensors, value.target
        if module is None or (value.target in attached.constants and not _has(module, value.target)):
            return None
        return _holder(module, value)

    def _step(self, number: int, step: Step) -> list[str]:
        lines = []
        if step.region >= 0:
            call = f"k{step.region}"
            kernels = self.kernels[step.region]
            self.names[call] = kernels.call if isinstance(kernels, TritonKernels) else kernels
            for i in step.ins:
                if i not in self.contiguous:
                    lines.append(f"    if not v{i}.is_contiguous(): v{i} = v{i}.contiguous()")
            self.contiguous.update(step.ins, step.outs)
        else:
            call = f"e{number}"
            self.names[call] = external(step, self.device, self.graphs)
        ins, outs = ("".join(f"v{i}, " for i in ids) for ids in (step.ins, step.outs))
        return [*lines, f"    {outs}= {call}(({ins}))" if outs else f"    {call}(({ins}))"]

    def _kernels(self, number: int) -> Kernels:
        region = self.plan.regions[number]
        if region.torch:
            return EagerKernels(region)
        if region.language == "triton":
            return TritonKernels(region)
        if region.language != "c" or self.device.type != "cpu" or self.handle is None:
            raise EquiForgeError(f"a region in {region.language} cannot run on {self.device}")
        step = next(step for step in self.plan.steps if step.region == number)
        outputs = [self.plan.values[i] for i in step.outs]
        return NativeKernels(self.handle, number, [(v.shape, v.dtype) for v in outputs])

    def _last_uses(self) -> dict[int, int]:
        """The last step that needs a value; results that leave the plan are needed for ever."""
        last = {i: number for number, step in enumerate(self.plan.steps) for i in step.ins}
        ends = [i for i in self.plan.outputs if isinstance(i, int)]
        ends += [i for pair in self.plan.mutations for i in pair]
        return {**last, **{i: len(self.plan.steps) for i in ends}}


def _alike(x: Any, wanted: Any) -> bool:
    """Whether an argument that is no tensor is the same value: 2, 2.0 and True are three, as 0.0 and -0.0 are two."""
    if type(x) is not type(wanted):
        return False
    return repr(x) == repr(wanted) if isinstance(x, (float, complex)) else bool(x == wanted)


STRUCTURE_LENGTH = 200  # of the text, in messages: that is enough to see the difference


class _Leaf:
    """A tensor in such a text."""

    def __repr__(self) -> str:
        return "x"


class Call:
    """What calls the kernels fit: the structure, shapes, element types, values and device of an example's arguments,
    and whether autocast is on."""

    def __init__(self, flat: Sequence[Any], spec: pytree.TreeSpec | None, device: torch.device):
        self.device, self.spec = device, spec
        self.autocast = torch.is_autocast_enabled(device.type)
        self.wanted = [(x.shape, x.dtype) if isinstance(x, Tensor) else x for x in flat]
        # Positional tensors only: then nothing needs to be flattened.
        positional = pytree.tree_structure((tuple(flat), {}))
        self.plain = all(isinstance(x, Tensor) for x in flat) and (spec is None or spec == positional)
        self.fits = self._printed()

    def _printed(self) -> Callable[[Sequence[Any] | None, bool], bool]:
        """fits(flat, training): whether `mismatch` finds nothing, quickly. False where it must be asked."""
        names: dict[str, Any] = {"device": self.device, "autocast": torch.is_autocast_enabled, "Tensor": Tensor}
        names["enabled"], tensors = torch.is_grad_enabled, range(len(self.wanted))
        enabled = "is not" if self.autocast else "is"
        lines = ["def fits(flat, training):"]
        if not all(isinstance(wanted, tuple) for wanted in self.wanted):
            lines.append("    return False")
        lines.append(f"    if training or flat is None or len(flat) != {len(tensors)}: return False")
        lines.append(f"    if autocast({self.device.type!r}) {enabled} True: return False")
        lines += [f"    {''.join(f'x{i}, ' for i in tensors)}= flat"] if tensors else []
        for i, wanted in enumerate(self.wanted):
            if isinstance(wanted, tuple):
                names[f"s{i}"], names[f"d{i}"] = wanted
                other = f"x{i}.shape != s{i} or x{i}.dtype is not d{i} or x{i}.device != device"
                lines.append(f"    if not isinstance(x{i}, Tensor) or {other}: return False")
        requires = " or ".join(f"x{i}.requires_grad" for i in tensors)
        lines.append(f"    return not (({requires or False}) and enabled())")
        exec("\n".join(lines), names)
        fits: Callable[[Sequence[Any] | None, bool], bool] = names["fits"]
        return fits

    @classmethod
    def example(cls, args: Sequence[Any], kwargs: dict[str, Any], module: nn.Module | None) -> Call:
        flat, spec = pytree.tree_flatten((tuple(args), dict(kwargs)))
        return cls(flat, spec, device_of([x for x in flat if isinstance(x, Tensor)], module))

    def flatten(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Sequence[Any] | None:
        """The arguments in order; None when they have another structure."""
        if self.plain and not kwargs:
            return args
        flat, spec = pytree.tree_flatten((args, kwargs))
        return flat if spec == self.spec else None

    def structure(self) -> str:
        """That of the arguments, as in `(x, {'a': x, 'b': x}, mask=x)`: x is a tensor, keys have an order."""
        leaves = [_Leaf() if isinstance(x, tuple) else x for x in self.wanted]
        args, kwargs = tuple(leaves), {}
        if self.spec is not None:
            try:
                args, kwargs = pytree.tree_unflatten(leaves, self.spec)
            except Exception:  # a class of somebody's, that wants tensors
                return "the example's"
        text = ", ".join([*map(repr, args), *(f"{name}={x!r}" for name, x in kwargs.items())])
        return f"({text if len(text) <= STRUCTURE_LENGTH else text[:STRUCTURE_LENGTH] + '…'})"

    def mismatch(self, flat: Sequence[Any] | None, training: bool) -> str | None:
        """Why the kernels do not fit these arguments, or the mode of the call."""
        if training:
            return "the module is in training mode"
        if torch.is_autocast_enabled(self.device.type) is not self.autocast:
            return "autocast is off" if self.autocast else "autocast is on"
        return self.unlike(flat)

    def unlike(self, flat: Sequence[Any] | None) -> str | None:
        """Why the kernels do not fit these arguments."""
        if flat is None or len(flat) != len(self.wanted):
            return f"the arguments have another structure than {self.structure()}"
        for x, wanted in zip(flat, self.wanted):  # noqa: B905 - equally long, and this is quicker
            if not isinstance(x, Tensor) or type(wanted) is not tuple:
                if type(wanted) is tuple:
                    return f"an argument is of type {type(x).__name__}, no tensor"
                if not _alike(x, wanted):
                    return f"an argument is another value than {wanted!r:.40}"
            elif x.shape != wanted[0] or x.dtype is not wanted[1] or x.device != self.device:
                return f"an argument is {x.dtype} {tuple(x.shape)} on {x.device}"
            elif x.requires_grad and torch.is_grad_enabled():
                return "an argument requires gradients"
        return None


def in_training(module: nn.Module) -> bool:
    """Whether a module is in training mode. One that PyTorch exported has no modes, and says that it is."""
    return module.training and not (isinstance(module, torch.fx.GraphModule) and "train" in vars(module))


class OptimizedModule(nn.Module):
    """A module that computes what the original does, with the kernels that were found for it.

    It has the original's parameters, buffers and submodules themselves, under the same names: `state_dict`, `.to()`,
    `load_state_dict` work on both at once. It is in the mode that the original was in when it was optimised, or
    loaded; `train()` and `eval()` set that of both.

    Its kernels are for arguments like those that it was optimised for (the same structure, shapes, element types and
    device), and they compute no gradients. Called with others, in training mode, under autocast, or, while gradients
    are enabled, with an argument or parameter that requires them, it runs the original, and says so once, in a
    warning. So call it after `eval()`, under `torch.no_grad()` or `torch.inference_mode()`, or after
    `requires_grad_(False)`. Kernels run no hooks of the original's or of submodules that were registered since.

    Attributes:
        original: the module as it was given; the one in the file it was loaded from, which PyTorch exported for
            arguments like the example's and which runs with no others (EquiForgeError); or None without either: then
            whatever the kernels do not fit is an EquiForgeError.
        plan: the steps, kernels and measurements.
        original_us, optimized_us: measured times of a call of both, of quick ones one of many in a row, microseconds; 0
            when not measured.
    """

    plan: Plan
    original_us: float
    optimized_us: float

    def __init__(
        self,
        original: nn.Module | None,
        plan: Plan,
        call: Call,
        *,
        handle: _native.PlanHandle | None = None,
        attached: Attached | None = None,
    ):
        super().__init__()
        if original is not None:
            # Shared by reference, so that names are the original's.
            self._parameters = original._parameters
            self._buffers = original._buffers
            self._modules = original._modules
            self._non_persistent_buffers_set = original._non_persistent_buffers_set
        out_spec = pytree.treespec_loads(plan.out_spec) if plan.out_spec else None
        attached = attached or Attached()
        prepared = attached.prepared
        runner = Runner(plan, handle, original, attached, call.device)
        # Not attributes of a module: they are none of its tensors and submodules.
        self.__dict__.update(
            original=original,
            plan=plan,
            original_us=0.0,
            optimized_us=0.0,
            device=call.device,
            _handle=handle,
            _call=call,
            _out_spec=out_spec,
            _single=len(plan.outputs) == 1 and (out_spec is None or out_spec.is_leaf()),
            _run=runner.run,
            _prepared=prepared,
            _wants_gradients=runner.wants_gradients
            if prepared is None
            else lambda: runner.wants_gradients() or prepared.want_gradients(),
            _keep_original=False,
            _differs=False,
            _told=False,
            _like_example=False,
            _attached=attached,
            _exported=None,
            _file=b"",
            _parts=tuple(original.modules()) if original is not None else (),
        )
        self.training = False

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            original = self.__dict__.get("original")
            if original is None or name.startswith("__"):
                raise
            return getattr(original, name)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """As nn.Module's, which is slower at finding that there are no hooks."""
        if (
            self._forward_hooks
            or self._forward_pre_hooks
            or self._backward_hooks
            or self._backward_pre_hooks
            or self._compiled_call_impl
            or _global_forward_hooks
            or _global_forward_pre_hooks
            or _global_backward_hooks
            or _global_backward_pre_hooks
        ):
            return super().__call__(*args, **kwargs)
        return self.forward(*args, **kwargs)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Results as the original's. Nothing waits for the device."""
        if self._keep_original:
            return self._call_original(args, kwargs)
        call = self._call
        flat = args if call.plain and not kwargs else call.flatten(args, kwargs)
        problem = None if call.fits(flat, self.training) else call.mismatch(flat, self.training)
        if problem is None and self._prepared is not None and not self._prepared.refresh():
            problem = _CHANGED
        if problem is None and torch.is_grad_enabled() and self._wants_gradients():
            problem = "a parameter requires gradients, which are enabled (torch.no_grad() disables them)"
        if problem is not None:
            return self._fall_back(problem, args, kwargs)
        results = self._run(flat)
        if type(results) is str:
            return self._fall_back(results, args, kwargs)
        if self._single:
            return results[0]
        if self._out_spec is None:
            return tuple(results)
        return pytree.tree_unflatten(results, self._out_spec)

    def _fall_back(self, problem: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if self.original is None:
            raise EquiForgeError(
                f"{problem}: the optimised module was loaded without the original, which could run it: "
                "equiforge.load(FILE, module) takes that"
            )
        if not self._told:
            self.__dict__["_told"] = True
            warnings.warn(f"{problem}: equiforge runs the original module", stacklevel=4)
        return self._call_original(args, kwargs)

    def _call_original(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The original in the mode of this module: both may be used side by side, in different ones, by several
        threads."""
        if self._like_example:
            with torch.no_grad():
                problem = self._call.unlike(self._call.flatten(args, kwargs))
            if problem is not None:
                raise EquiForgeError(
                    f"{problem}: the module in the file runs with arguments like those of its example alone; "
                    "equiforge.load(FILE, module) takes the original, which runs with others too"
                )
        if self.training:
            return self.original(*args, **kwargs)
        with evaluating(self._parts):
            return self.original(*args, **kwargs)

    def __deepcopy__(self, memo: dict[int, Any]) -> OptimizedModule:
        """With copies of the weights, and the same kernels."""
        original = copy.deepcopy(self.original, memo)
        attached = self._attached
        if attached.prepared is not None:
            attached = replace(attached, prepared=attached.prepared.of(original))
        twin = OptimizedModule(original, self.plan, self._call, handle=self._handle, attached=attached)
        same = ("original_us", "optimized_us", "_keep_original", "_differs", "_like_example", "_exported", "_file")
        twin.__dict__.update({name: self.__dict__[name] for name in same})
        twin.training = self.training
        memo[id(self)] = twin
        return twin

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise EquiForgeError(
            "an optimised module cannot be pickled: save() writes it to a file, equiforge.load reads it"
        )

    def train(self, mode: bool = True) -> OptimizedModule:
        """Sets the mode of the original too."""
        super().train(mode)
        if self.original is not None:
            with contextlib.suppress(NotImplementedError):  # exported modules have one mode
                self.original.train(mode)
        return self

    def capture(self, *args: Any, **kwargs: Any) -> Callable[..., Any]:
        """A function that replays one CUDA graph: no work on the host but copying the arguments in. No gradients.

        It takes arguments like these; its results are overwritten by its next call. EquiForgeError without a GPU.
        """
        if self.device.type != "cuda":
            raise EquiForgeError("a CUDA graph needs a module on a CUDA device")
        call = self._call
        flat = call.flatten(args, kwargs)
        with torch.no_grad():
            problem = call.mismatch(flat, self.training)
        if problem is not None:
            raise EquiForgeError(f"cannot capture: {problem}")
        static = [x.detach().clone() if isinstance(x, Tensor) else x for x in flat]
        held, held_kwargs = pytree.tree_unflatten(static, call.spec)
        with torch.no_grad(), torch.cuda.device(self.device):
            side = torch.cuda.Stream()
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                self(*held, **held_kwargs)  # what happens at the first call only happens now
            torch.cuda.current_stream().wait_stream(side)
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                results = self(*held, **held_kwargs)

        def replay(*args: Any, **kwargs: Any) -> Any:
            given = call.flatten(args, kwargs)
            with torch.no_grad():
                problem = call.mismatch(given, False)
                if problem is not None:
                    raise EquiForgeError(problem)
                for x, to in zip(given, static, strict=True):
                    if isinstance(x, Tensor):
                        to.copy_(x)
            graph.replay()
            return results

        return replay

    def save(self, path: str, weights: bool = True) -> None:
        """Writes the plan and its kernels to a file, with the module (exported, and its weights) unless told not to.

        The file is written whole or not at all. EquiForgeError when that fails.
        """
        from equiforge import _file

        if not self._file:
            raise EquiForgeError("this module was not made from a file and has none")
        if self._differs:
            raise EquiForgeError("the results of this module's kernels differ from the original's: not saved")
        if self._prepared is not None and not weights:
            raise EquiForgeError("a frozen module is saved with its weights: what was prepared is made of them")
        exported = self._exported if weights else None
        if exported is not None and self.original is not None:
            now = self.original.state_dict(keep_vars=True)
            exported.state_dict.update({name: now[name] for name in exported.state_dict if name in now})
        compared = {
            "keep_original": self._keep_original,
            "prepared": self._prepared.preparation.count if self._prepared is not None else 0,
            "original_us": float(self.original_us),
            "optimized_us": float(self.optimized_us),
        }
        _file.write(path, self._file, compared, exported)


def device_of(tensors: Sequence[Tensor], module: nn.Module | None) -> torch.device:
    """The device that a call runs on: the arguments' or, without any, the module's. EquiForgeError for several."""
    devices = {x.device for x in tensors}
    if module is not None:
        devices |= {x.device for x in (*module.parameters(), *module.buffers())}
    if any(device.type == "meta" for device in devices):
        raise EquiForgeError("arguments or module are on the meta device: they need data to be measured with")
    if len(devices) > 1:
        raise EquiForgeError(f"arguments and module are on several devices: {', '.join(map(str, devices))}")
    device = next(iter(devices), torch.device("cpu"))
    if device.type not in ("cpu", "cuda"):
        raise EquiForgeError(f"arguments and module are on {device}: only the CPU and NVIDIA GPUs can be optimised for")
    return device
