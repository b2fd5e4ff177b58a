"""Regions of a plan, ready to be called: generated Triton on a GPU, generated C on the CPU.

Calling one costs little on the host. The first call of a Triton region records what it launches; later ones call the
launchers of the compiled kernels directly, without Triton's argument analysis, which takes ten times as long.
"""

from __future__ import annotations

import ctypes
import functools
import os
import tempfile
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol

import torch
from torch import Tensor

from equiforge import _native, _source
from equiforge._plan import Region

empty = torch.empty
ALIGNMENT = 16  # kernels are compiled for tensors that begin at such addresses


class Kernels(Protocol):
    """A region: contiguous inputs to new outputs."""

    def __call__(self, inputs: Sequence[Tensor]) -> list[Tensor]: ...


# ---- Triton ----


@functools.cache
def _folder() -> Path:
    """Triton reads kernels' source from files: they lie here, by content, for as long as the user wants."""
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    path = Path(base) / "equiforge" / "kernels"
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError:
        path = Path(tempfile.mkdtemp(prefix="equiforge-"))
    return path


def _file_of(source: str) -> Path:
    """A file with this source, written whole or not at all."""
    import hashlib

    path = _folder() / f"{hashlib.sha256(source.encode()).hexdigest()[:32]}.py"
    if not path.is_file() or path.read_text(encoding="utf-8") != source:
        handle, name = tempfile.mkstemp(dir=path.parent, suffix=".tmp")
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(source)
        os.replace(name, path)
    return path


_recording = threading.Lock()
_interpreting = threading.Lock()  # Triton's interpreter has state of its own, for one launch at a time


def _record(
    module: ModuleType, inputs: Sequence[Tensor], outputs: Sequence[Tensor], temps: Sequence[Tensor]
) -> list[tuple[Any, tuple[int, ...], tuple[Any, ...]]] | None:
    """Launches, and returns (kernel, grid, arguments) of each launch; None when there is something else to it.

    What other threads launch meanwhile is theirs.
    """
    from triton.runtime.jit import JITFunction

    launches: list[tuple[Any, tuple[int, ...], tuple[Any, ...]]] = []
    original, plain, me = JITFunction.run, True, threading.get_ident()

    def run(self: Any, *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> Any:
        nonlocal plain
        if threading.get_ident() != me:
            return original(self, *args, grid=grid, warmup=warmup, **kwargs)
        kernel = original(self, *args, grid=grid, warmup=warmup, **kwargs)
        # Parameters beyond the positional ones would be compile-time constants given by name.
        plain = plain and not callable(grid) and len(args) == len(self.params) and not self.pre_run_hooks
        launches.append((kernel, (*grid, 1, 1)[:3], args))
        return kernel

    with _recording:
        JITFunction.run = run
        try:
            module.launch(inputs, outputs, temps)
        finally:
            JITFunction.run = original
    return launches if plain else None


def _launcher(
    module: ModuleType, inputs: Sequence[Tensor], outputs: Sequence[Tensor], temps: Sequence[Tensor]
) -> Callable[..., None] | None:
    """launch(inputs, outputs, temps, stream) without analysis of arguments; launches once meanwhile.

    None when the kernels' launchers cannot be called so: then `module.launch` must be.
    """
    inputs = [x.detach() for x in inputs]  # each an object of its own, also where one tensor is given for several
    launches = _record(module, inputs, outputs, temps)
    if launches is None:
        return None
    place = {
        id(x): f"{name}[{i}]" for name, xs in (("o", outputs), ("t", temps), ("i", inputs)) for i, x in enumerate(xs)
    }
    names: dict[str, Any] = {}
    lines = ["def launch(i, o, t, stream):"]
    for number, (kernel, grid, args) in enumerate(launches):
        if not all(id(x) in place or isinstance(x, (int, float)) for x in args):
            return None
        names.update({f"r{number}": kernel.run, f"f{number}": kernel.function, f"m{number}": kernel.packed_metadata})
        passed = ", ".join(place.get(id(x), repr(x)) for x in args)
        lines.append(
            f"    r{number}({grid[0]}, {grid[1]}, {grid[2]}, stream, f{number}, m{number}, None, None, None, {passed})"
        )
    exec("\n".join([*lines, "    return"]), names)
    launch: Callable[..., None] = names["launch"]
    return launch


class TritonKernels:
    """A region as generated Triton. Temporaries are kept for each device and stream that it was called on.

    Threads may call it at once, on one stream too: the launches of a call follow each other there, without those of
    another call, which has the same temporaries, between them.
    """

    def __init__(self, region: Region):
        self.module = _source.load(_file_of(region.source))
        self.outputs = [(shape, _source.dtype_of(dtype)) for _, dtype, shape in self.module.OUTPUTS]
        self.launchers: dict[int, Callable[..., None] | None] = {}
        self.temps: dict[tuple[int, int], list[Tensor]] = {}
        self.lock = threading.Lock()

    def __call__(self, inputs: Sequence[Tensor]) -> list[Tensor]:
        device = inputs[0].device if inputs else torch.device("cuda", torch.cuda.current_device())
        index = device.index
        if index is None or device.type != "cuda":  # Triton's interpreter
            return self._plainly(inputs, device)
        if index != torch._C._cuda_getDevice():
            with torch.cuda.device(device):
                return self(inputs)
        stream = torch._C._cuda_getCurrentRawStream(index)
        outputs = [empty(shape, dtype=dtype, device=device) for shape, dtype in self.outputs]
        aligned = True
        for x in inputs:
            if x.data_ptr() % ALIGNMENT:
                aligned = False
        with self.lock:
            temps = self.temps.get((index, stream))
            if temps is None:
                temps = self._new_temps(device, stream)
            launch = self.launchers.get(index)
            if launch is not None and aligned:
                launch(inputs, outputs, temps, stream)
            elif index in self.launchers or not aligned:
                self.module.launch(inputs, outputs, temps)
            else:
                self.launchers[index] = self._try_launcher(inputs, outputs, temps, stream)
        return outputs

    def _new_temps(self, device: torch.device, stream: int) -> list[Tensor]:
        temps = _source.empty(self.module, "BUFFERS", device)
        # What is allocated while a graph is captured belongs to the graph.
        if not torch.cuda.is_current_stream_capturing():
            self.temps[device.index, stream] = temps
        return temps

    def _try_launcher(
        self, inputs: Sequence[Tensor], outputs: Sequence[Tensor], temps: Sequence[Tensor], stream: int
    ) -> Callable[..., None] | None:
        """The launcher, if it works with this version of Triton: it is used only after it was called once."""
        launch = _launcher(self.module, inputs, outputs, temps)
        if launch is not None:
            try:
                launch(inputs, outputs, temps, stream)
            except (TypeError, AttributeError):
                self.module.launch(inputs, outputs, temps)
                return None
        return launch

    def _plainly(self, inputs: Sequence[Tensor], device: torch.device) -> list[Tensor]:
        outputs = [torch.empty(shape, dtype=dtype, device=device) for shape, dtype in self.outputs]
        temps = _source.empty(self.module, "BUFFERS", device)
        with _interpreting:
            self.module.launch(inputs, outputs, temps)
        return outputs


class EagerKernels:
    """A region that PyTorch's own operators are the fastest for."""

    def __init__(self, region: Region):
        self.function = _source.load_text(region.torch, "region").__dict__["region"]

    @torch.no_grad()
    def __call__(self, inputs: Sequence[Tensor]) -> list[Tensor]:
        results = self.function(*inputs)
        return [x.contiguous() for x in (results if isinstance(results, tuple) else (results,))]


# ---- C ----


class NativeKernels:
    """A region as generated C, compiled by the library. Threads that call it at once take turns in the handle."""

    def __init__(self, plan: _native.PlanHandle, number: int, outputs: Sequence[tuple[tuple[int, ...], torch.dtype]]):
        self.handle = plan.prepare(number)
        self.outputs = list(outputs)

    def __call__(self, inputs: Sequence[Tensor]) -> list[Tensor]:
        outputs = [torch.empty(shape, dtype=dtype) for shape, dtype in self.outputs]
        ins = (ctypes.c_void_p * len(inputs))(*[x.data_ptr() for x in inputs])
        outs = (ctypes.c_void_p * len(outputs))(*[x.data_ptr() for x in outputs])
        self.handle(ins, outs)
        return outputs
