"""Compiles printed modules for GPUs that are not here.

    python compiling.py ARCH FILE...

prints what the assembler says of their kernels, one JSON list a file.
"""

import hashlib
import importlib.util
import json
import re
import subprocess
import sys
import tempfile

import torch
from triton.backends.compiler import GPUTarget
from triton.backends.nvidia.compiler import get_ptxas
from triton.runtime import driver
from triton.runtime.jit import JITFunction


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
    ptxas = get_ptxas(arch).path
    with tempfile.NamedTemporaryFile("w", suffix=".ptx") as file:
        file.write(ptx)
        file.flush()
        name = re.search(r"\.target (\w+)", ptx).group(1)
        command = [ptxas, "-v", f"--gpu-name={name}", "-o", "/dev/null", file.name]
        said = subprocess.run(command, capture_output=True, text=True, check=True).stderr
    return {
        "registers": max(int(n) for n in re.findall(r"Used (\d+) registers", said)),
        "spilled": max(int(n) for n in re.findall(r"(\d+) bytes spill stores", said)),
    }


def instructions(ptx):
    """Without what it says of the source's lines."""
    code = ptx.split("\t.section", 1)[0].splitlines()
    return [line for line in code if not re.match(r"\s*(\.loc|\.file|//)", line)]


def described(kernel, arch):
    ptx = kernel.asm["ptx"]
    return {
        "name": kernel.name,
        "shared": kernel.metadata.shared,
        "waits": ptx.count("griddepcontrol.wait"),
        "code": hashlib.sha256("\n".join(instructions(ptx)).encode()).hexdigest(),
        **assembled(ptx, arch),
    }


def compile_file(path, arch):
    kernels = []
    original = JITFunction.run

    def run(self, *args, grid, warmup, **options):
        kernels.append(original(self, *args, grid=grid, warmup=True, **options))

    JITFunction.run = run
    driver.set_active(Device(arch))
    try:
        spec = importlib.util.spec_from_file_location("module", path)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        tensors = [[torch.empty(s, dtype=d, device="meta") for _, d, s in of] for of in (module.INPUTS, module.OUTPUTS)]
        module.launch(*tensors, [torch.empty(n, dtype=d, device="meta") for d, n in module.BUFFERS])
    finally:
        JITFunction.run = original
    return [described(kernel, arch) for kernel in kernels]


if __name__ == "__main__":
    for name in sys.argv[2:]:
        print(json.dumps(compile_file(name, int(sys.argv[1]))), flush=True)
