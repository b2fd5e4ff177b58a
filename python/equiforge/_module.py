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
from torch.autograd import forward_ad
from torch.nn.modules.module import (
    _global_backward_hooks,
    _global_backward_pre_hooks,
    _global_forward_hooks,
    _global_forward_pre_hooks,
)
from torch.utils import _pytree as pytree
from torch.utils._device import DeviceContext

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


class _Misfit(Exception):
    """Why a call's kernels do not fit."""


# As printed functions say it.
_CHANGED = "a parameter or buffer has another type, shape, layout or device"
_REPLACED = "a submodule is another one than when the module was optimised"
_SHARED = "what the module writes to shares its memory with another argument or buffer"


_VALUES = (type(None), bool, int, float, complex, str, torch.dtype, torch.device)  # arguments that never change


def _alike(x: Any, wanted: Any) -> bool:
    """Whether an argument that is no tensor is the same value: 2, 2.0 and True are three, as 0.0 and -0.0 are two."""
    if type(x) is not type(wanted):
        return False
    return repr(x) == repr(wanted) if isinstance(x, (float, complex)) else bool(x == wanted)


_OBSERVED = "PyTorch traces or transforms what is called"
_dispatch_modes = torch._C._len_torch_dispatch_stack
_function_modes = torch._C._len_torch_function_stack


def _other_function_modes() -> bool:
    """Whether one that is active is no default device's."""
    return any(type(torch._C._get_function_stack_at(n)) is not DeviceContext for n in range(_function_modes()))


def observed() -> bool:
    """Whether PyTorch asks of the operators of a call more than their results: a mode of dispatch or of functions, a
    tracer, a transformation of torch.func, or forward-mode differentiation is active. It sees none in kernels."""
    return bool(
        _dispatch_modes()
        or torch._ops._len_torch_dispatch_stack_pre_dispatch()
        or _other_function_modes()
        or torch._C._get_tracing_state() is not None
        or torch._C._functorch.peek_interpreter_stack() is not None
        or forward_ad._current_level >= 0
    )


def plain(x: Tensor) -> bool:
    """Whether a tensor's numbers lie at its address as they are: it is of no class that handles operators itself (as
    FakeTensor does), no wrapper of torch.func's, not sparse, and no view that is to be negated or conjugated yet."""
    kind = type(x)
    return (
        (
            kind in (Tensor, nn.Parameter)
            or kind.__torch_function__ is torch._C._disabled_torch_function_impl
            and kind.__torch_dispatch__ is torch._C._disabled_torch_dispatch_impl
        )
        and x.layout is torch.strided
        and not (x.is_neg() or x.is_conj() or x._is_zerotensor())
        and not torch._C._functorch.is_functorch_wrapped_tensor(x)
    )


def _alike_check(tensors: Sequence[Tensor]) -> Callable[..., bool] | None:
    """check(*others): whether as many tensors, all different objects, have these ones' classes, element types, devices,
    shapes, strides and `requires_grad`, and PyTorch treats them alike (autocast, inference mode).

    PyTorch's compiler asks that of what its code is given, in one call. None where PyTorch has it no more.
    """
    try:
        guards = torch._C._dynamo.guards.TensorGuards(*tensors, dynamic_dims_sizes=None, dynamic_dims_strides=None)
        check: Callable[..., bool] = guards.check
        return check if check(*tensors) else None
    except (AttributeError, TypeError):
        return None


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


def _trying(lookups: Sequence[str], misfit: str) -> list[str]:
    """Lines that look up weights, one of which may have been deleted, or be None."""
    return ["    try:", *lookups, f"    except (KeyError, AttributeError): {misfit}"] if lookups else []


class Runner:
    """A plan as Python functions from flattened arguments to results.

    They are printed and compiled, since a call should cost the host microseconds: values are local variables,
    forgotten after their last use, and what never changes is bound once. Parameters and buffers are looked up in their
    module at every call, where `.to()` and the like put new ones; that the submodules are still the same ones is asked
    at every call too, a comparison for each module that has some.

    Attributes:
        run: for any arguments whose shapes and types fit; _Misfit when weights do not.
        quick: for arguments that need no flattening, each for such as one call had (`learn`): it asks in one check for
            what `run` and its caller ask one by one, and returns NotImplemented when a call is not like that one. All
            are for evaluation mode.
        wants_gradients: whether a parameter requires them.
    """

    QUICK = 4  # functions that are learned, at most: calls of one program are alike

    def __init__(
        self,
        plan: Plan,
        handle: _native.PlanHandle | None,
        module: nn.Module | None,
        attached: Attached,
        device: torch.device,
    ):
        self.plan, self.handle, self.device, self.prepared = plan, handle, device, attached.prepared
        self.graphs, constants = attached.graphs or module, attached.constants
        self.used = self._used()
        inputs = {value.input: i for i, value in enumerate(plan.values) if value.kind == "input"}
        self.arguments = [f"v{inputs[n]}" if n in inputs else f"unused{n}" for n in range(plan.user_inputs)]
        self.names: dict[str, Any] = {  # what the functions use
            "device": device,
            "shared": _shared,
            "alike": _alike,
            "Misfit": _Misfit,
            "enabled": torch.is_grad_enabled,
            "plain": plain,
            "dispatch_modes": _dispatch_modes,
            "function_modes": _function_modes,
            "other_function_modes": _other_function_modes,
            "forward_ad": forward_ad,
            "unflatten": pytree.tree_unflatten,
            "spec": pytree.treespec_loads(plan.out_spec) if plan.out_spec else None,
        }
        if self.prepared is not None:
            self.names.update(refresh=self.prepared.refresh, prepared_wants=self.prepared.want_gradients)
        parents = [part._modules for part in (module.modules() if module is not None else ()) if part._modules]
        self.names.update({f"p{n}": held for n, held in enumerate(parents)})
        self.names.update({f"q{n}": dict(held) for n, held in enumerate(parents)})
        self.same = [f"p{n} == q{n}" for n in range(len(parents))]  # modules equal themselves alone
        self.weights: dict[int, _Holder] = {}  # looked up at every call
        self.constants: list[int] = []
        for i, value in enumerate(plan.values):
            if i not in self.used:  # a weight that others were prepared of, say
                continue
            held = self._held(value, module, attached)
            if held is not None:
                self.weights[i] = held
                self.names[f"h{i}"] = held[0]
                self.names[f"d{i}"], self.names[f"s{i}"] = value.dtype, torch.Size(value.shape)
            elif value.kind in ("parameter", "buffer", "constant"):
                if value.target not in constants:
                    raise EquiForgeError(
                        f"the {value.kind} {value.target} is not in the file: equiforge.load(FILE, module) takes the "
                        "module that it belongs to"
                    )
                self.names[f"c{i}"] = constants[value.target].to(device).contiguous()
                self.names[f"m{i}"] = constants[value.target]
                self.constants.append(i)
        self.kernels = [self._kernels(number) for number in range(len(plan.regions))]
        for number, step in enumerate(plan.steps):
            if step.region >= 0:
                self.names[f"k{step.region}"] = self.kernels[step.region]
            else:
                self.names[f"e{number}"] = external(step, device, self.graphs)
        # Kernels know nothing of gradients; PyTorch's operators would record them.
        self.records = any(step.region < 0 for step in plan.steps) or bool(plan.mutations)
        self.run: Callable[[Sequence[Any]], Any] = self._printed()
        self.run = torch.no_grad()(self.run) if self.records else self.run
        self.quick: list[Callable[[Sequence[Any]], Any]] = []
        self.wants_gradients: Callable[[], bool] = self._printed_wants()

    def _printed(self) -> Callable[[Sequence[Any]], Any]:
        misfit = f"raise Misfit({_CHANGED!r})"
        lookups = []
        for i, (_, name) in self.weights.items():
            # A kernel would read whatever is there.
            changed = f"v{i}.dtype is not d{i} or v{i}.device != device or v{i}.shape != s{i} or not plain(v{i})"
            lookups += [f"        v{i} = h{i}[{name!r}]", f"        if {changed}: {misfit}"]
        lines = ["def run(flat):", self._unpacking()]
        lines += [f"    if not ({' and '.join(self.same)}): raise Misfit({_REPLACED!r})"] if self.same else []
        lines += _trying(lookups, misfit)
        lines += self._body(set(), f"raise Misfit({_SHARED!r})", inline=False)
        exec("\n".join(lines), self.names)
        run: Callable[[Sequence[Any]], Any] = self.names["run"]
        return run

    def learn(self, flat: Sequence[Any]) -> None:
        """Adds a quick function for calls like this one, of fitting arguments, that `run` has just done."""
        recording = torch.is_grad_enabled()
        if len(self.quick) >= self.QUICK or (recording and self.records):
            return
        given = dict(zip(self.arguments, flat, strict=True))
        tensors = {name: x for name, x in given.items() if isinstance(x, Tensor)}
        values = {name: x for name, x in given.items() if name not in tensors}
        if not all(isinstance(x, _VALUES) for x in values.values()):
            return  # whoever has it may change it
        for i, (held, name) in self.weights.items():
            x, value = held.get(name), self.plan.values[i]
            wanted = (value.dtype, value.shape, self.device)
            if not isinstance(x, Tensor) or (x.dtype, tuple(x.shape), x.device) != wanted:
                return  # another thread has put it there since
            tensors[f"v{i}"] = x
        same = [
            f"{name} is {x}" if x is None or isinstance(x, bool) else f"alike({name}, as_{name})"
            for name, x in values.items()
        ]
        first: dict[int, str] = {}  # where one tensor is given for several, it is checked once
        same += [f"{name} is {first[id(x)]}" for name, x in tensors.items() if first.setdefault(id(x), name) != name]
        check = _alike_check([tensors[name] for name in first.values()])
        if check is None:
            return
        misfit = "return NotImplemented"
        lines = ["def quick(flat):", f"    if len(flat) != {len(self.arguments)}: {misfit}", self._unpacking()]
        # The check of tensors sees the other ways in which PyTorch may observe a call.
        modes = "dispatch_modes() or forward_ad._current_level >= 0 or function_modes() and other_function_modes()"
        lines.append(f"    if {modes}: {misfit}")
        if not recording and (self.records or any(x.requires_grad for x in tensors.values())):
            lines.append(f"    if enabled(): {misfit}")
        if self.prepared is not None:
            lines.append(f"    if not refresh() or enabled() and prepared_wants(): {misfit}")
        lines += _trying([f"        v{i} = h{i}[{name!r}]" for i, (_, name) in self.weights.items()], misfit)
        fits = " and ".join([*self.same, *same, f"check({', '.join(first.values())})"])
        lines.append(f"    if not ({fits}): {misfit}")
        lines += self._body({name for name, x in tensors.items() if x.is_contiguous()}, misfit, inline=True)
        names = {**self.names, "check": check, **{f"as_{name}": x for name, x in values.items()}}
        exec("\n".join(lines), names)
        self.quick.append(names["quick"])

    def _printed_wants(self) -> Callable[[], bool]:
        wants = [f"h{i}[{name!r}].requires_grad" for i, (_, name) in self.weights.items()]
        wants += ["prepared_wants()"] if self.prepared is not None else []
        lines = ["def wants_gradients():", *_trying([f"        return {' or '.join(wants) or False}"], "return False")]
        exec("\n".join(lines), self.names)  # where a weight is gone, `run` says so
        wants_gradients: Callable[[], bool] = self.names["wants_gradients"]
        return wants_gradients

    def _unpacking(self) -> str:
        return f"    {''.join(f'{name}, ' for name in self.arguments)}= flat" if self.arguments else ""

    def _body(self, contiguous: set[str], shared: str, *, inline: bool) -> list[str]:
        """From arguments and weights to the end. `contiguous` are variables that are known to be, `shared` is what to
        do when memory is shared that must not be; `inline`: everything is on the plan's device."""
        plan, names = self.plan, self.names
        lines = [f"    v{i} = c{i}" for i in self.constants]
        contiguous = contiguous | {f"v{i}" for i in self.constants}
        # What is written to is the caller's tensor, whatever copy of it kernels read.
        targets = {target for _, target in plan.mutations}
        lines += [f"    m{i} = v{i}" for i in sorted(targets) if f"m{i}" not in names]
        if targets:
            written = "".join(f"m{i}, " for i in sorted(targets))
            given = "".join(f"v{i}, " for i in sorted(self.used) if plan.values[i].kind != "result")
            lines.append(f"    if shared(({written}), ({given})): {shared}")
        last = self._last_uses()
        for number, step in enumerate(plan.steps):
            lines += self._step(number, step, contiguous, inline)
            dead = [f"v{i}" for i in step.ins if last[i] == number and plan.values[i].kind == "result"]
            lines += [f"    {' = '.join(dead)} = None"] if dead else []
        # Results and values to write that are old states of what is written are kept apart first.
        old = targets & {i for i in [*plan.outputs, *(i for i, _ in plan.mutations)] if isinstance(i, int)}
        lines += [f"    v{i} = v{i}.clone()" for i in sorted(old)]
        lines += [f"    m{target}.copy_(v{i})" for i, target in plan.mutations]
        return [*lines, f"    return {self._results()}"]

    def _results(self) -> str:
        results = [f"v{i}" if isinstance(i, int) else repr(i[0]) for i in self.plan.outputs]
        spec, row = self.names["spec"], ", ".join(results)
        if len(results) == 1 and (spec is None or spec.is_leaf()):
            return results[0]
        if spec is None or spec == pytree.tree_structure(tuple(results)):
            return f"({row},)" if results else "()"
        return f"[{row}]" if spec == pytree.tree_structure(results) else f"unflatten([{row}], spec)"

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

    def _step(self, number: int, step: Step, contiguous: set[str], inline: bool) -> list[str]:
        ins, outs = [f"v{i}" for i in step.ins], [f"v{i}" for i in step.outs]
        given, made = ("".join(f"{x}, " for x in xs) for xs in (ins, outs))
        if step.region < 0:
            return [f"    {f'{made}= ' if outs else ''}e{number}(({given}))"]
        lines = [f"    if not {x}.is_contiguous(): {x} = {x}.contiguous()" for x in ins if x not in contiguous]
        contiguous.update(ins, outs)
        kernels = self.kernels[step.region]
        if not inline or not isinstance(kernels, TritonKernels) or self.device.type != "cuda":
            return [*lines, f"    {made}= k{step.region}(({given}))"]
        launching, names = kernels.lines(ins, outs, self.device.index, f"_{step.region}")
        self.names.update(names)
        return [*lines, *launching]

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
        self.named = self._named()

    def _named(self) -> tuple[str, ...] | None:
        """The names of those arguments that are given by name, where each argument is one leaf of the structure."""
        if self.spec is None:
            return () if all(isinstance(wanted, tuple) for wanted in self.wanted) else None
        try:
            args, kwargs = pytree.tree_unflatten(range(len(self.wanted)), self.spec)
        except Exception:  # a class of somebody's, that wants tensors
            return None
        return tuple(kwargs) if [*args, *kwargs.values()] == [*range(len(self.wanted))] else None

    def row(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...] | None:
        """The arguments in order, where that needs no flattening. Their number is not asked."""
        if self.named is None or (kwargs and tuple(kwargs) != self.named) or (self.named and not kwargs):
            return None
        return (*args, *kwargs.values()) if kwargs else args

    @classmethod
    def example(cls, args: Sequence[Any], kwargs: dict[str, Any], module: nn.Module | None) -> Call:
        flat, spec = pytree.tree_flatten((tuple(args), dict(kwargs)))
        return cls(flat, spec, device_of([x for x in flat if isinstance(x, Tensor)], module))

    def flatten(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Sequence[Any] | None:
        """The arguments in order; None when they have another structure."""
        row = self.row(args, kwargs)
        if row is not None:
            return row
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
        if observed():
            return _OBSERVED
        return self.unlike(flat) or self._unreadable(flat or ())

    @staticmethod
    def _unreadable(flat: Sequence[Any]) -> str | None:
        """Why kernels cannot read arguments of the right shapes and types. The original may."""
        kinds = [type(x).__name__ for x in flat if isinstance(x, Tensor) and not plain(x)]
        return f"an argument is no plain tensor but a {kinds[0]}" if kinds else None

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
    device), and they compute no gradients. Called with others, in training mode, under autocast, after a submodule was
    replaced, or, while gradients are enabled, with an argument or parameter that requires them, it runs the original,
    and says so once, in a warning. So call it after `eval()`, under `torch.no_grad()` or `torch.inference_mode()`, or
    after `requires_grad_(False)`. Kernels run no hooks of the original's or of submodules that were registered since.
    Where PyTorch traces or transforms what is called (`make_fx`, `torch.jit.trace`, `torch.func`, forward-mode
    differentiation, modes), or an argument is no plain tensor (`FakeTensor`), it runs the original, too.

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
        attached = attached or Attached()
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
            _runner=runner,
            _quick=[] if call.named else runner.quick,  # for calls without names
            _prepared=attached.prepared,
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
        """As nn.Module's, which is slower at finding that there are no hooks; and without `forward`, a call of which
        takes time too, where that would do no more than this."""
        state = self.__dict__  # a look-up here costs less than an attribute of a module
        if (
            state["_forward_hooks"]
            or state["_forward_pre_hooks"]
            or state["_backward_hooks"]
            or state["_backward_pre_hooks"]
            or state.get("_compiled_call_impl")
            or _global_forward_hooks
            or _global_forward_pre_hooks
            or _global_backward_hooks
            or _global_backward_pre_hooks
        ):
            return super().__call__(*args, **kwargs)
        if not (kwargs or state["training"] or state["_keep_original"] or "forward" in state):
            for quick in state["_quick"]:
                results = quick(args)
                if results is not NotImplemented:
                    return results
        return self.forward(*args, **kwargs)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Results as the original's. Nothing waits for the device."""
        if self._keep_original:
            return self._call_original(args, kwargs)
        call, runner = self._call, self._runner
        row = call.row(args, kwargs)
        if row is not None and not self.training:
            for quick in runner.quick:
                results = quick(row)
                if results is not NotImplemented:
                    return results
        flat = row if row is not None else call.flatten(args, kwargs)
        problem = call.mismatch(flat, self.training)
        if problem is None and self._prepared is not None and not self._prepared.refresh():
            problem = _CHANGED
        if problem is None and torch.is_grad_enabled() and runner.wants_gradients():
            problem = "a parameter requires gradients, which are enabled (torch.no_grad() disables them)"
        if problem is None:
            try:
                results = runner.run(flat)
            except _Misfit as misfit:
                problem = str(misfit)
        if problem is not None:
            return self._fall_back(problem, args, kwargs)
        if row is not None:
            runner.learn(row)
        return results

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
