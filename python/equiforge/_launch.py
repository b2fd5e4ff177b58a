"""What a generated module launches, recorded once, then launched by the library in one call.

Triton analyses the arguments of every launch anew, which takes longer than most kernels. `record` launches a module's
kernels by way of Triton for the first time, and says what that launched: compiled functions, grids and parameters.
`Launches` is such a record for one stream, in the library (include/equiforge.h).

How Triton passes parameters is not told by its interface, so the PTX that it compiled is asked: a kernel has the
parameters that its source has but for compile-time constants, then addresses of scratch memory, which are null for
kernels that need none. A tensor descriptor is a map for the copy engine, the extents, and the strides. What does not
look like that, or needs more (clusters, cooperative launches, scratch memory), is not recorded, and Triton goes on
launching it.
"""

from __future__ import annotations

import ctypes
import functools
import re
import struct
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from equiforge import _native

WARP = 32
SHARED_LIMIT = 228 << 10  # bytes: more needs another attribute of launches
SCRATCH = 2  # parameters at the end, at most: global scratch memory and that of profilers

MAP_BYTES = 128  # a map of the copy engine, as a parameter


@dataclass(frozen=True)
class Map:
    """What the copy engine knows of a tensor: the driver's numbers of its type and swizzling, and by dimension, the one
    along which elements lie side by side first, extents in elements, strides in bytes (not of the first) and tiles."""

    type: int
    swizzle: int
    extents: tuple[int, ...]
    strides: tuple[int, ...]
    block: tuple[int, ...]


# ("i", 0), ("o", 0), ("t", 0): an input, output or temporary, here and as a map; ("v", bits): a value
Parameter = tuple[str, int] | tuple[str, int, Map]


@dataclass(frozen=True)
class Launch:
    """A kernel as it was launched."""

    kernel: Any  # Triton's: while there is one, its code stays loaded
    function: int  # CUfunction
    grid: tuple[int, ...]
    threads: int
    shared: int  # bytes
    overlap: bool
    parameters: tuple[Parameter, ...]


_recording = threading.Lock()


def record(
    module: ModuleType, inputs: Sequence[Tensor], outputs: Sequence[Tensor], temps: Sequence[Tensor]
) -> list[Launch] | None:
    """Runs the module, and returns what it launched; None when that cannot be launched by `Launches`.

    What other threads launch meanwhile is theirs.
    """
    from triton.runtime.jit import JITFunction

    seen: list[tuple[Any, tuple[int, ...], tuple[Any, ...]]] = []
    original, plain, me = JITFunction.run, True, threading.get_ident()

    def run(self: Any, *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> Any:
        nonlocal plain
        if threading.get_ident() != me:
            return original(self, *args, grid=grid, warmup=warmup, **kwargs)
        kernel = original(self, *args, grid=grid, warmup=warmup, **kwargs)
        # Parameters beyond the positional ones would be compile-time constants given by name.
        plain = plain and not callable(grid) and len(args) == len(self.params) and not self.pre_run_hooks
        seen.append((kernel, (*grid, 1, 1)[:3], args))
        return kernel

    inputs = [x.detach() for x in inputs]  # each an object of its own, also where one tensor is given for several
    with _recording:
        JITFunction.run = run
        try:
            module.launch(inputs, outputs, temps)
        finally:
            JITFunction.run = original
    place: dict[int, Parameter] = {
        id(x): (name, i) for name, xs in (("o", outputs), ("t", temps), ("i", inputs)) for i, x in enumerate(xs)
    }
    try:
        launches = [launch_of(kernel, grid, args, place) for kernel, grid, args in seen] if plain else [None]
    except (AttributeError, ImportError, KeyError, TypeError):  # another Triton
        return None
    return None if None in launches else launches  # type: ignore[return-value]


def launch_of(kernel: Any, grid: tuple[int, ...], args: Sequence[Any], place: dict[int, Parameter]) -> Launch | None:
    """A launch of one of Triton's compiled kernels, whose tensors are known by their `id`; None for one that is not
    plain."""
    known = kernel.metadata
    special = known.num_ctas != 1 or any(n != 1 for n in getattr(known, "cluster_dims", ()))
    special = special or known.launch_cooperative_grid or known.shared > SHARED_LIMIT
    if special or known.global_scratch_size or known.profile_scratch_size or known.target.warp_size != WARP:
        return None
    types = list(kernel.src.signature.values())
    if len(types) != len(args):
        return None
    maps = iter(getattr(known, "tensordesc_meta", None) or ())
    parameters: list[Parameter | None] = []
    wanted: list[int] = []
    for x, type_ in zip(args, types, strict=True):
        if str(type_).startswith("tensordesc"):
            described, sizes = described_by(x, next(maps, None), place)
            parameters += described
            wanted += sizes
        elif type_ != "constexpr":
            parameters.append(place.get(id(x)) or value_of(x, type_))
            wanted.append(size_of(type_))
    sizes = parameter_sizes(kernel.asm["ptx"], kernel.name)
    scratch = sizes[len(wanted) :]
    if None in parameters or sizes[: len(wanted)] != wanted or len(scratch) > SCRATCH or set(scratch) > {8}:
        return None
    return Launch(
        kernel,
        kernel.function,
        grid,
        known.num_warps * WARP,
        known.shared,
        bool(known.launch_pdl),
        (*(x for x in parameters if x is not None), *(("v", 0) for _ in scratch)),
    )


def described_by(x: Any, known: Any, place: dict[int, Parameter]) -> tuple[list[Parameter | None], list[int]]:
    """The parameters of a tensor descriptor, and their sizes. None among them: it is not a plain one.

    `known`: what the compiled kernel says of it; None for devices without a copy engine.
    """
    from triton.backends.nvidia.driver import TMA_DTYPE_DEVICE_TO_HOST

    tensor = place.get(id(x.base))
    plain = x.padding == "zero" and not getattr(x, "round_f32_to_tf32", False) and x.strides[-1] == 1
    if known is None or tensor is None or not plain or known["fp4_padded"] or known.get("is_im2col"):
        return [None], [0]
    map_ = Map(
        TMA_DTYPE_DEVICE_TO_HOST[known["elem_type"]],
        known["swizzle"],
        tuple(reversed(x.shape)),
        tuple(known["elem_size"] * n for n in reversed(x.strides[:-1])),
        tuple(reversed(known["block_size"])),
    )
    rank = len(x.shape)
    numbers = [("v", n & (1 << 64) - 1) for n in (*x.shape, *x.strides)]
    return [(*tensor[:2], map_), *numbers], [MAP_BYTES, *[4] * rank, *[8] * rank]


def size_of(type_: Any) -> int:
    """Bytes of a parameter of one of Triton's types: "*fp16", "i32", "fp32". 0 for others."""
    if not isinstance(type_, str):
        return 0  # a tuple
    if type_.startswith("*"):
        return 8
    bits = re.fullmatch(r"(?:i|u|fp)(8|16|32|64)", type_)
    return 1 if type_ in ("i1", "u1") else int(bits[1]) // 8 if bits else 0


def value_of(x: Any, type_: Any) -> Parameter | None:
    """A number as a parameter of one of Triton's types."""
    if isinstance(x, int) and re.fullmatch(r"[iu]\d+", type_):
        return "v", x & (1 << 64) - 1
    if isinstance(x, float) and type_ in ("fp32", "fp64"):
        return "v", int.from_bytes(struct.pack("<f" if type_ == "fp32" else "<d", x), "little")
    return None


def parameter_sizes(ptx: str, name: str) -> list[int]:
    """Bytes of a kernel's parameters, as PTX declares them: `.param .u64 .ptr .global .align 1 name_param_0`. KeyError
    when there is no such kernel."""
    entry = re.search(rf"\.entry\s+{re.escape(name)}\s*\(([^)]*)\)", ptx)
    if not entry:
        raise KeyError(name)
    declared = re.findall(r"\.param\s+(?:\.align\s+\d+\s+)?\.[a-z]+(\d+)[^,\[]*(?:\[(\d+)\])?", entry[1])
    return [int(bits) // 8 * int(count or 1) for bits, count in declared]


class _Method(ctypes.Structure):
    """PyMethodDef, in Python's stable interface."""

    _fields_ = [("name", ctypes.c_char_p), ("call", ctypes.c_void_p), ("flags", ctypes.c_int), ("doc", ctypes.c_char_p)]


FASTCALL = 0x80  # METH_FASTCALL
WANTED = (  # by the library, of Python, in its order
    "PyLong_AsUnsignedLongLong",
    "PyLong_FromLong",
    "PyErr_Occurred",
    "PyErr_BadArgument",
    "PyEval_SaveThread",
    "PyEval_RestoreThread",
)


@functools.cache
def _finds_python() -> bool:
    """Whether what built-in functions need of Python is found; the library is told where. A program that loads Python
    for itself alone (RTLD_LOCAL) hides it from others."""
    try:
        found = [ctypes.cast(ctypes.pythonapi[name], ctypes.c_void_p) for name in (*WANTED, "PyCFunction_NewEx")]
    except AttributeError:
        return False
    _native.function("equiforge_launches_python")((ctypes.c_void_p * len(WANTED))(*found[: len(WANTED)]))
    return True


@functools.cache
def _method(name: str) -> _Method:
    """Of all lists: it must stay as long as functions made of it."""
    return _Method(b"launch", ctypes.cast(getattr(_native.library(), name), ctypes.c_void_p), FASTCALL, None)


def _builtin(name: str, handle: int) -> Callable[..., int]:
    """A function of the library for this list as a built-in one, which is called without ctypes' conversions."""
    make = ctypes.pythonapi["PyCFunction_NewEx"]  # an object of its own, whose types are set here
    make.restype, make.argtypes = ctypes.py_object, [ctypes.POINTER(_Method), ctypes.py_object, ctypes.c_void_p]
    function: Callable[..., int] = make(_method(name), handle, None)
    return function


def _by_ctypes(handle: int, count: int) -> Callable[..., int]:
    """The same by way of ctypes, which takes five times as long."""
    launch, row = _native.function("equiforge_launches_run"), ctypes.c_uint64 * count

    def call(*addresses: int) -> int:
        if len(addresses) != count:
            raise TypeError(f"{len(addresses)} addresses, not {count}")
        result: int = launch(handle, row(*addresses))
        return result

    return call


@functools.cache
def _reads_tensors() -> bool:
    """Whether the library can read where a tensor's memory is, which costs a tenth of Tensor.data_ptr: by a function
    that PyTorch has for the code that its compiler makes. False where it has it no more."""
    address = getattr(torch._C._dynamo.guards, "_torchinductor_pyobject_tensor_data_ptr", None)
    if address is None:
        return False
    x = torch.empty(1, device="cpu")
    if ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object)(address)(x) != x.data_ptr():
        return False
    _native.function("equiforge_launches_tensors")(address)
    return True


class Launches:
    """A record for one stream of a device, with temporaries of its own.

    `call(*addresses)`, of inputs, then outputs, launches: 0, or why nothing, or not everything, was launched.
    `call_any` takes the tensors, as `call_tensors` does, for which they must be real ones. EquiForgeError without a
    driver. `captured`: for calls while the stream is captured, and for no others.
    """

    def __init__(
        self,
        launches: Sequence[Launch],
        counts: tuple[int, int],
        temps: Sequence[Tensor],
        place: tuple[int, int],
        *,
        captured: bool,
    ):
        self.kept = (launches, temps)
        session = _native.function("equiforge_session_new")()
        inputs, outputs = counts
        self.handle = _native.function("equiforge_launches_new")(session, *place, inputs + outputs, captured)
        problem = _native.function("equiforge_message")(session).decode(errors="replace")
        _native.function("equiforge_session_free")(session)
        if not self.handle:
            raise _native.EquiForgeError(problem)
        add = _native.function("equiforge_launches_add")
        for launch in launches:
            add(self.handle, launch.function, *launch.grid, launch.threads, launch.shared, launch.overlap)
            for kind, n, *described in launch.parameters:
                fixed = kind not in "io"
                value = temps[n].data_ptr() if kind == "t" else n + inputs * (kind == "o")
                if described:
                    fine = self._map(fixed, value, described[0])
                else:
                    which = "equiforge_launches_value" if fixed else "equiforge_launches_address"
                    fine = _native.function(which)(self.handle, value)
                if not fine:
                    raise _native.EquiForgeError(f"{launch.kernel.name} has too many parameters, or of unknown kinds")
        found = _finds_python()
        self.call = call = (
            _builtin("equiforge_launches_call", self.handle) if found else _by_ctypes(self.handle, inputs + outputs)
        )
        self.call_any: Callable[..., int] = lambda *tensors: call(*(x.data_ptr() for x in tensors))
        self.call_tensors = (
            _builtin("equiforge_launches_call_tensors", self.handle) if found and _reads_tensors() else self.call_any
        )

    def _map(self, fixed: bool, value: int, map_: Map) -> bool:
        rank, long, short = len(map_.extents), ctypes.c_uint64, ctypes.c_uint32
        extents, strides = (long * rank)(*map_.extents), (long * rank)(*map_.strides)
        block = (short * rank)(*map_.block)
        fine: bool = _native.function("equiforge_launches_map")(
            self.handle, fixed, value, map_.type, map_.swizzle, rank, extents, strides, block
        )
        return fine

    def __del__(self) -> None:
        if getattr(self, "handle", None):
            _native.function("equiforge_launches_free")(self.handle)


def error(result: int) -> RuntimeError:
    """The driver's error as an exception."""
    text: bytes = _native.function("equiforge_launch_error")(result)
    return RuntimeError(f"CUDA error {result} in a launch: {text.decode(errors='replace')}")
