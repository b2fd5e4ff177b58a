"""Generated Python modules: loading them from files, and compiling their Triton kernels without launching them."""

from __future__ import annotations

import ast
import contextlib
import importlib.util
import itertools
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

_numbers = itertools.count()

DTYPES: dict[str, torch.dtype] = {
    "bool": torch.bool,
    "i32": torch.int32,
    "i64": torch.int64,
    "f16": torch.float16,
    "bf16": torch.bfloat16,
    "f32": torch.float32,
    "f64": torch.float64,
}


def dtype_of(name: str | torch.dtype) -> torch.dtype:
    """An element type by its name in the text form ("f16") or in torch ("float16"). ValueError for anything else."""
    if isinstance(name, torch.dtype):
        return name
    dtype = DTYPES.get(name) or getattr(torch, name, None)
    if not isinstance(dtype, torch.dtype):
        raise ValueError(f"{name!r} is no element type")
    return dtype


def load(path: str | os.PathLike[str], names: Mapping[str, Any] | None = None) -> ModuleType:
    """Runs the module in a file, in which `names` are known. Triton reads kernels' source from that file, so it must
    stay."""
    path = Path(path)
    spec = importlib.util.spec_from_file_location(f"equiforge_generated_{next(_numbers)}", path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is no Python module")
    module = importlib.util.module_from_spec(spec)
    module.__dict__.update(names or {})
    spec.loader.exec_module(module)
    return module


def load_text(source: str, name: str) -> ModuleType:
    """Runs a module that needs no file: PyTorch source, without kernels."""
    module = ModuleType(name)
    exec(compile(source, f"<{name}>", "exec"), module.__dict__)
    return module


def steps(module: ModuleType) -> list[Callable[..., None]]:
    """What launch(inputs, outputs, temps) does, statement by statement: the launches of single kernels."""
    path = module.__file__
    tree = ast.parse(Path(path).read_text(encoding="utf-8")) if path else ast.Module([], [])
    launch = next((n for n in reversed(tree.body) if isinstance(n, ast.FunctionDef) and n.name == "launch"), None)
    found = []
    for statement in launch.body if launch else []:
        single = ast.FunctionDef(**{**vars(launch), "name": "step", "body": [statement]})
        scope: dict[str, Any] = {}
        exec(compile(ast.Module([single], []), str(path), "exec"), module.__dict__, scope)
        found.append(scope["step"])
    return found


def empty(module: ModuleType, which: str, device: torch.device | str) -> list[torch.Tensor]:
    """New tensors for the module's "INPUTS", "OUTPUTS" or "BUFFERS"."""
    if which == "BUFFERS":
        return [torch.empty(count, dtype=dtype, device=device) for dtype, count in module.BUFFERS]
    return [torch.empty(shape, dtype=dtype_of(dtype), device=device) for _, dtype, shape in getattr(module, which)]


@dataclass(frozen=True)
class Target:
    """What Triton compiles for: ("cuda", 90, 32); bytes of shared memory that a block may have, 0: not known."""

    backend: str
    arch: int
    warp_size: int
    shared: int = 0


class KernelFailed(Exception):
    """A kernel, by its place among a module's launches, does not compile; the cause says why."""

    def __init__(self, kernel: int):
        super().__init__(kernel)
        self.kernel = kernel


def build_launcher(kernel: Any) -> None:
    """Triton up to 3.6 has a C compiler build a launching function for each signature, a third of a second, when a
    kernel is first launched: into the cache with it before that, where many processes do it side by side. Later
    versions have one launcher for all; the call is harmless then."""
    with contextlib.suppress(Exception):  # what is wrong shows with the launch
        from triton.backends.nvidia.driver import CudaLauncher

        CudaLauncher(kernel.src, kernel.metadata)


@contextlib.contextmanager
def _without_device(target: Target) -> Iterator[None]:
    """Inside, Triton compiles for `target`, and a launch stops after compiling. No GPU is touched or needed."""
    from triton.backends.compiler import GPUTarget
    from triton.runtime import driver
    from triton.runtime.errors import OutOfResources
    from triton.runtime.jit import JITFunction

    class Driver:
        def get_current_target(self) -> GPUTarget:
            return GPUTarget(target.backend, target.arch, target.warp_size)

        def get_current_device(self) -> int:
            return 0

        def get_current_stream(self, device: int) -> int:
            return 0

    original, active = JITFunction.run, driver._active

    def run(self: JITFunction, *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> Any:
        kernel = original(self, *args, grid=grid, warmup=True, **kwargs)
        if kernel is not None and target.shared and kernel.metadata.shared > target.shared:
            raise OutOfResources(kernel.metadata.shared, target.shared, "shared memory")
        if kernel is not None:
            build_launcher(kernel)
        return kernel

    driver.set_active(Driver())
    JITFunction.run = run
    try:
        yield
    finally:
        JITFunction.run = original
        # The property would start the real driver, where there is none.
        driver._active = active


def compile_kernels(module: ModuleType, target: Target) -> None:
    """Compiles what `launch` launches into Triton's cache, where a process that launches it finds it.

    The tensors are on no device; like real ones, they begin at multiples of 16 bytes, which is part of Triton's key.
    KernelFailed when one does not compile, or needs more shared memory than there is.
    """
    with _without_device(target):
        tensors = [empty(module, which, "meta") for which in ("INPUTS", "OUTPUTS", "BUFFERS")]
        for kernel, step in enumerate(steps(module)):
            try:
                step(*tensors)
            except Exception as problem:
                raise KernelFailed(kernel) from problem


def warm_up() -> None:
    """What Triton does once in a process: hashing itself, asking the assembler for its version."""
    from triton.backends.compiler import GPUTarget
    from triton.compiler.compiler import make_backend
    from triton.runtime.cache import triton_key

    triton_key()
    make_backend(GPUTarget("cuda", 90, 32)).hash()


def start_driver() -> None:
    """What Triton does before the first launch of a process: builds its driver with a C compiler, and keeps it in the
    cache that is in use now."""
    from triton.runtime import driver

    _ = driver.active.utils


def use_cache(folder: str | os.PathLike[str]) -> None:
    """Makes Triton keep compiled kernels in this folder."""
    from triton import knobs

    knobs.cache.dir = os.fspath(folder)
