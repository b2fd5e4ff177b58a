"""Compiles the modules of bench_room for a GPU that is not here, and says what their kernels need.

    PYTHONPATH=python python bench/bench_room.py ARCH SECONDS FILE...

A line a kernel: module, kernel, bytes of shared memory, registers a thread, bytes of spills; or what went wrong.
Stops before the next file when the seconds are over.
"""

import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch
from triton.backends.compiler import GPUTarget
from triton.backends.nvidia.compiler import get_ptxas
from triton.runtime import driver
from triton.runtime.jit import JITFunction

from equiforge import _source


class Device:
    """A driver for a GPU that is not there."""

    def __init__(self, arch):
        self.arch = arch

    def get_current_target(self):
        return GPUTarget("cuda", self.arch, 32)

    def get_current_device(self):
        return 0

    def get_current_stream(self, _):
        return 0


def assembled(ptx, arch):
    """Registers and bytes of spills, as the assembler reports them."""
    with tempfile.NamedTemporaryFile("w", suffix=".ptx") as file:
        file.write(ptx)
        file.flush()
        name = re.search(r"\.target (\w+)", ptx).group(1)
        command = [get_ptxas(arch).path, "-v", f"--gpu-name={name}", "-o", "/dev/null", file.name]
        said = subprocess.run(command, capture_output=True, text=True, check=True).stderr
    registers = max(int(n) for n in re.findall(r"Used (\d+) registers", said))
    return registers, max(int(n) for n in re.findall(r"(\d+) bytes spill stores", said))


def compiled(path, arch):
    """What is to be said of each kernel of a module."""
    said = []
    original = JITFunction.run

    def run(self, *args, grid, warmup, **options):
        try:
            kernel = original(self, *args, grid=grid, warmup=True, **options)
            said.append((kernel.metadata.shared, *assembled(kernel.asm["ptx"], arch)))
        except Exception as error:
            said.append(("failed", f"{type(error).__name__}: {error}".splitlines()[0][:150]))

    JITFunction.run = run
    try:
        module = _source.load(path)
        tensors = (_source.empty(module, which, "meta") for which in ("INPUTS", "OUTPUTS", "BUFFERS"))
        module.launch(*tensors)
    finally:
        JITFunction.run = original
    return said


def main():
    arch, until = int(sys.argv[1]), time.monotonic() + float(sys.argv[2])
    driver.set_active(Device(arch))
    torch.set_grad_enabled(False)
    for path in map(Path, sys.argv[3:]):
        if time.monotonic() > until:
            break
        for number, words in enumerate(compiled(path, arch)):
            print(path, number, *words, flush=True)


if __name__ == "__main__":
    main()
