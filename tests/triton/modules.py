"""Printed programs as Python functions: Triton modules in Triton's interpreter, and C as the reference."""

import ctypes
import importlib.util
import os
import subprocess
from pathlib import Path

os.environ["TRITON_INTERPRET"] = "1"

import torch
import triton.language as tl
from triton.runtime import interpreter

ROOT = Path(__file__).parents[2]
EQUIFORGE = ROOT / "build" / "equiforge"


def _scalars_are_numbers():
    """The interpreter keeps scalars as arrays of one element, which NumPy 2.4 no longer takes for numbers."""
    original = interpreter._patch_lang_tensor

    def patched(tensor, scope):
        original(tensor, scope)
        scope.set_attr(tensor, "__index__", lambda self: int(self.handle.data.reshape(-1)[0]))

    interpreter._patch_lang_tensor = patched


def _products_know_bfloat16():
    """The interpreter keeps bfloat16 as 16-bit integers, and multiplies matrices of these as such."""
    original = interpreter.InterpreterBuilder.create_dot

    def widened(handle):
        if handle.dtype != tl.bfloat16:
            return handle
        return interpreter.TensorHandle((handle.data.astype("uint32") << 16).view("float32"), tl.float32)

    def create_dot(self, a, b, *rest):
        return original(self, widened(a), widened(b), *rest)

    interpreter.InterpreterBuilder.create_dot = create_dot


_scalars_are_numbers()
_products_know_bfloat16()


class Refused(Exception):
    """The program cannot be printed; the message says why."""


def emit(file, *arguments):
    command = [EQUIFORGE, "emit", file, "--name", "program", *arguments]
    result = subprocess.run(command, check=False, capture_output=True, text=True, cwd=ROOT, timeout=60)
    if result.returncode != 0:
        raise Refused(result.stderr.strip())
    return result.stdout


def load(source, folder, name="program"):
    """A printed module."""
    path = Path(folder) / f"{name}.py"
    path.write_text(source)
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def inputs_of(module, seed=0):
    """Standard normal; weight matrices, which are named so, scaled by their rows."""
    generator = torch.Generator().manual_seed(seed)
    made = []
    for name, dtype, shape in module.INPUTS:
        x = torch.randn(shape, generator=generator)
        if name[0] in "wW" and len(shape) > 1:
            x /= shape[-2] ** 0.5
        made.append((x if dtype.is_floating_point else x > 0).to(dtype))
    return made


def run_c(source, module, inputs, folder):
    """Compiles printed C and runs it on the inputs of a Triton module of the same program."""
    folder = Path(folder)
    (folder / "program.c").write_text(source)
    library = folder / "program.so"
    command = ["cc", "-O1", "-fopenmp", "-shared", "-fPIC", "-w", "-o", library, folder / "program.c", "-lm"]
    subprocess.run(command, check=True, timeout=120)
    loaded = ctypes.CDLL(str(library))
    work = ctypes.c_ulonglong.in_dll(loaded, "program_work").value
    outputs = [torch.empty(shape, dtype=dtype) for _, dtype, shape in module.OUTPUTS]
    space = torch.empty(work + 64, dtype=torch.uint8)
    pointers = [(ctypes.c_void_p * len(some))(*(x.data_ptr() for x in some)) for some in (inputs, outputs)]
    loaded.program(*pointers, ctypes.c_void_p((space.data_ptr() + 63) // 64 * 64), 1)
    return outputs


def error(ours, reference):
    """Relative L2; equal infinities agree, and so do NaNs."""
    ours, reference = ours.double(), reference.double()
    same = (ours == reference) | (ours.isnan() & reference.isnan())
    difference = torch.where(same, 0.0, ours - reference)
    if not difference.isfinite().all():
        return float("inf")
    return float(
        difference.norm() / max(torch.where(same, 0.0, reference).norm(), ours.nan_to_num(0, 0, 0).norm(), 1e-30)
    )
