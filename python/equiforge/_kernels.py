"""Regions of a plan, ready to be called: generated Triton on a GPU, generated C on the CPU.

Calling one costs little on the host. The first call of a Triton region records what it launches; later ones have the
library launch that, without Triton's argument analysis, which takes ten times as long.
"""

from __future__ import annotations

import ctypes
import functools
import os
import tempfile
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor

from equiforge import _launch, _native, _source
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


_interpreting = threading.Lock()  # Triton's interpreter has state of its own, for one launch at a time


def _fresh() -> Callable[[tuple[int, ...], tuple[int, ...], torch.dtype], Tensor]:
    """What makes a new tensor on the current CUDA device, of sizes and strides. PyTorch's compiler allocates with what
    is used here where there is one: it takes a third of torch.empty_strided's time."""
    quick = getattr(getattr(getattr(torch._C, "_dynamo", None), "guards", None), "_empty_strided_cuda", None)
    return quick or (lambda shape, strides, dtype: torch.empty_strided(shape, strides, dtype=dtype, device="cuda"))


class TritonKernels:
    """A region as generated Triton.

    The first call on a device goes by way of Triton, and records what it launches; later ones have the library launch
    that (_launch.py), with temporaries that are kept for each device and stream that it was called on. Where the
    kernels do not fit a call (tensors at odd addresses, a stream that is captured into a graph), or cannot be launched
    so, the call has temporaries of its own. Threads may call it at once.
    """

    def __init__(self, region: Region):
        self.module = _source.load(_file_of(region.source))
        self.outputs = [  # sizes, strides, element types
            (tuple(shape), torch.empty(shape, device="meta").stride(), _source.dtype_of(dtype))
            for _, dtype, shape in self.module.OUTPUTS
        ]
        self.recorded: dict[int, list[_launch.Launch] | None] = {}  # by device
        self.launches: dict[tuple[int, int], _launch.Launches] = {}  # by device and stream
        self.calls: dict[tuple[int, int], Callable[..., int]] = {}  # theirs, of tensors
        self.any_calls: dict[tuple[int, int], Callable[..., int]] = {}  # of what may be no real ones
        self.functions: dict[int, Callable[[Sequence[Tensor]], list[Tensor]]] = {}  # `lines` by device
        self.lock = threading.Lock()
        self.fresh = _fresh()

    def __call__(self, inputs: Sequence[Tensor]) -> list[Tensor]:
        index = inputs[0].get_device() if inputs else torch.cuda.current_device()
        if index < 0:
            return self._slowly(inputs)
        function = self.functions.get(index)
        if function is None:
            function = self.functions[index] = self._printed(len(inputs), index)
        return function(inputs)

    def _printed(self, count: int, index: int) -> Callable[[Sequence[Tensor]], list[Tensor]]:
        """`lines` as a function of so many inputs."""
        ins, outs = [f"x{n}" for n in range(count)], [f"y{n}" for n in range(len(self.outputs))]
        lines, names = self.lines(ins, outs, index, "")
        names["calls"] = self.any_calls
        unpacking = [f"    {''.join(f'{x}, ' for x in ins)}= inputs"] if ins else []
        exec("\n".join(["def call(inputs):", *unpacking, *lines, f"    return [{', '.join(outs)}]"]), names)
        function: Callable[[Sequence[Tensor]], list[Tensor]] = names["call"]
        return function

    def lines(self, ins: Sequence[str], outs: Sequence[str], index: int, tag: str) -> tuple[list[str], dict[str, Any]]:
        """A call as lines of a function that calls the region, since host time is the time of small modules: from the
        variables of inputs, which are real tensors on the device of this number, to those of outputs. And the names
        that these lines use, which `tag` tells from another region's."""
        names: dict[str, Any] = {
            f"calls{tag}": self.calls,
            f"slowly{tag}": self._slowly,
            "new": self.fresh,
            "current": torch._C._cuda_getDevice,
            "stream": torch._C._cuda_getCurrentRawStream,
        }
        lines = [f"    launch = calls{tag}.get(({index}, stream({index}))) if current() == {index} else None"]
        lines.append("    if launch:")
        for n, (out, (shape, strides, dtype)) in enumerate(zip(outs, self.outputs, strict=True)):
            names[f"type{tag}_{n}"] = dtype
            lines.append(f"        {out} = new({shape}, {strides}, type{tag}_{n})")
        given, made = ("".join(f"{x}, " for x in xs) for xs in (ins, outs))
        lines.append(f"    if not launch or launch({given}{made}): {made}= slowly{tag}(({given}))")
        return lines, names

    def _slowly(self, inputs: Sequence[Tensor]) -> list[Tensor]:
        """Any call. Errors of the driver show here: a launch that failed is tried once more."""
        device = inputs[0].device if inputs else torch.device("cuda", torch.cuda.current_device())
        if device.type != "cuda":
            return self._interpreted(inputs, device)
        if device.index != torch.cuda.current_device():
            with torch.cuda.device(device):
                return self(inputs)
        outputs = [empty(shape, dtype=dtype, device=device) for shape, _, dtype in self.outputs]
        temps = _source.empty(self.module, "BUFFERS", device)
        aligned = all(x.data_ptr() % ALIGNMENT == 0 for x in inputs)
        with self.lock:
            recorded = self.recorded.get(device.index)
            if device.index not in self.recorded and aligned:
                self.recorded[device.index] = _launch.record(self.module, inputs, outputs, temps)
            elif recorded is None or not aligned:
                self.module.launch(inputs, outputs, temps)
            else:
                self._launch(recorded, inputs, outputs, temps)
        return outputs

    def _launch(
        self,
        recorded: Sequence[_launch.Launch],
        inputs: Sequence[Tensor],
        outputs: Sequence[Tensor],
        temps: Sequence[Tensor],
    ) -> None:
        """On a stream that was not called on yet, or that is captured: then temporaries are the graph's."""
        index = outputs[0].device.index
        stream = torch._C._cuda_getCurrentRawStream(index)
        capturing = torch.cuda.is_current_stream_capturing()
        try:
            counts = len(inputs), len(outputs)
            launches = _launch.Launches(recorded, counts, temps, (index, stream), captured=capturing)
        except _native.EquiForgeError:  # the driver is too old
            self.recorded[index] = None
            self.module.launch(inputs, outputs, temps)
            return
        result = launches.call(*(x.data_ptr() for x in (*inputs, *outputs)))
        if result:
            raise _launch.error(result)
        if not capturing and (index, stream) not in self.launches:
            self.launches[index, stream] = launches
            self.calls[index, stream] = launches.call_tensors
            self.any_calls[index, stream] = launches.call_any

    def _interpreted(self, inputs: Sequence[Tensor], device: torch.device) -> list[Tensor]:
        outputs = [torch.empty(shape, dtype=dtype, device=device) for shape, _, dtype in self.outputs]
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
