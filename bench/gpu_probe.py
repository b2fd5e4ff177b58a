"""Measures printed Triton modules on a GPU, for early feedback on generated code (equiforge optimize does it properly).

    python bench/gpu_probe.py DIR [--only SUBSTRING] [--jobs 16]

DIR is what bench/gpu_probe_make.py made: DIR/CASE/NAME.py. All modules are compiled first, in parallel; then each is
checked against float64 (attention: float32) and timed in a CUDA graph that rotates over copies of the inputs larger
than the L2 cache. One line a module: case, name, microseconds, relative L2 error, or the first line of the error; at
the end the best of each case with its schedule.
"""

import argparse
import importlib.util
import math
import re
import statistics
import sys
import time
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path

import torch
from triton.backends.compiler import GPUTarget
from triton.runtime import driver
from triton.runtime.jit import JITFunction

COLD = 300e6  # bytes of inputs that a graph rotates over
LINE = 110


def rms(x, g):
    return x / (x.square().mean(-1, keepdim=True) + 1e-6).sqrt() * g


def unit(v):
    return v / v.norm(dim=-1, keepdim=True)


def ngpt(h, o, alpha):
    return unit(h + alpha * (unit(o) - h))


def layernorm_gemm(x, g, b, W, c):
    return torch.nn.functional.layer_norm(x, x.shape[-1:], g, b, 1e-5) @ W + c


def attention(q, k, v, causal):
    """In float32 and one head after the other: the scores of all would not fit."""
    out = torch.empty_like(q)
    for i in range(q.shape[0]):
        for h in range(q.shape[1]):
            scores = q[i, h] @ k[i, h].T / math.sqrt(q.shape[-1])
            if causal:
                scores += torch.full_like(scores, -math.inf).triu(1)
            out[i, h] = scores.softmax(-1) @ v[i, h]
    return out


silu = torch.nn.functional.silu
REFERENCES = {
    "rmsnorm_linear": lambda x, g, W: rms(x, g) @ W,
    "rmsnorm_mlp": lambda x, g, W1, W3: (rms(x, g) @ W1) * (rms(x, g) @ W3),
    "rmsnorm_swiglu": lambda x, g, W1, W3, W2: (silu(rms(x, g) @ W1) * (rms(x, g) @ W3)) @ W2,
    "layernorm_gemm": layernorm_gemm,
    "lora": lambda x, W, A, Bm: x @ W + (x @ A) @ Bm,
    "gated_mlp": lambda x, W1, W2: silu(x @ W1) * (x @ W2),
    "ngpt": ngpt,
    "mha_decode": lambda q, k, v: attention(q, k, v, False),
    "mha_prefill": lambda q, k, v: attention(q, k, v, True),
}


def first_line(problem):
    lines = [line for line in str(problem).splitlines() if line.strip()]
    return f"{type(problem).__name__}: {lines[-1] if lines else ''}"[:200]


def load(path):
    spec = importlib.util.spec_from_file_location(f"module_{abs(hash(str(path)))}", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class NoLaunch:
    """A driver for compiling in processes that never touch the GPU."""

    def __init__(self, arch):
        self.arch = arch

    def get_current_target(self):
        return GPUTarget("cuda", self.arch, 32)

    def get_current_device(self):
        return 0

    def get_current_stream(self, _):
        return 0


def compile_module(path, arch):
    """Puts the module's kernels into Triton's cache. What the kernels need, or the error."""
    kernels = []
    original = JITFunction.run

    def run(self, *args, grid, warmup, **options):
        kernels.append(original(self, *args, grid=grid, warmup=True, **options))

    driver.set_active(NoLaunch(arch))
    JITFunction.run = run
    try:
        module = load(path)
        tensors = [[torch.empty(s, dtype=d, device="meta") for _, d, s in of] for of in (module.INPUTS, module.OUTPUTS)]
        module.launch(*tensors, [torch.empty(n, dtype=d, device="meta") for d, n in module.BUFFERS])
    except Exception as problem:
        return path, first_line(problem)
    finally:
        JITFunction.run = original
    return path, None if max(k.metadata.shared for k in kernels) <= 227 * 1024 else "too much shared memory"


def inputs_of(module):
    torch.manual_seed(1)
    made = []
    for name, dtype, shape in module.INPUTS:
        x = torch.randn(shape, device="cuda")
        weight = len(shape) == 2 and name[0].isupper()
        made.append((x / math.sqrt(shape[0]) if weight else x).to(dtype))
    return made


def reference_of(case, inputs):
    name = case.rsplit("_", 1)[0]
    wide = torch.float32 if name.startswith("mha") else torch.float64
    torch.backends.cuda.matmul.allow_tf32 = False
    return REFERENCES[name](*(x.to(wide) for x in inputs))


def graph_time(launch, copies):
    """Microseconds a call, over a graph with one call for each copy of the inputs."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        launch(copies[0])
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for inputs in copies:
            launch(inputs)
    graph.replay()
    times = []
    for _ in range(12):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        graph.replay()
        end.record()
        torch.cuda.synchronize()
        times.append(begin.elapsed_time(end) * 1e3 / len(copies))
    return statistics.median(times)


class Case:
    """The inputs, their copies and the right results of one case."""

    def __init__(self, name, module):
        self.inputs = inputs_of(module)
        self.reference = reference_of(name, self.inputs).double()
        size = sum(x.nbytes for x in self.inputs)
        count = max(2, min(64, math.ceil(COLD / size)))
        self.copies = [self.inputs] + [[x.clone() for x in self.inputs] for _ in range(count - 1)]

    def measure(self, module):
        outputs = [torch.full(s, math.nan, dtype=d, device="cuda") for _, d, s in module.OUTPUTS]
        temps = [torch.empty(n, dtype=d, device="cuda") for d, n in module.BUFFERS]
        module.launch(self.inputs, outputs, temps)
        torch.cuda.synchronize()
        error = float((outputs[0].double() - self.reference).norm() / self.reference.norm())
        return graph_time(lambda inputs: module.launch(inputs, outputs, temps), self.copies), error


def schedule_of(path):
    return " ".join(path.read_text().split('"""')[1].split("Schedule: ")[1].split("\n\n")[0].split())


def compile_all(paths, jobs, arch):
    failed, began = {}, time.time()
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        for done in as_completed([pool.submit(compile_module, path, arch) for path in paths]):
            path, error = done.result()
            if error:
                failed[path] = error
    print(f"compiled {len(paths) - len(failed)} of {len(paths)} in {time.time() - began:.0f} s", flush=True)
    return failed


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder")
    parser.add_argument("--only", default="")
    parser.add_argument("--jobs", type=int, default=16)
    arguments = parser.parse_args()
    paths = sorted(p for p in Path(arguments.folder).glob("*/*.py") if re.search(arguments.only, p.parent.name))
    major, minor = torch.cuda.get_device_capability()
    failed = compile_all(paths, arguments.jobs, major * 10 + minor)
    best, cases = {}, {}
    for path in paths:
        name = path.parent.name
        if path in failed:
            print(f"{name} {path.stem} FAILED {failed[path]}"[: LINE * 2], flush=True)
            continue
        try:
            module = load(path)
            if name not in cases:
                cases.clear()
                torch.cuda.empty_cache()
                cases[name] = Case(name, module)
            us, error = cases[name].measure(module)
        except Exception as problem:
            print(f"{name} {path.stem} FAILED {first_line(problem)}", flush=True)
            if "CUDA error" in str(problem):
                sys.exit("the device's context is lost; remove this module and start again")
            continue
        wrong = " WRONG" if not error < 0.01 else ""
        print(f"{name} {path.stem} {us:.1f} us, error {error:.2g}{wrong}", flush=True)
        if not wrong and us < best.get(name, (math.inf,))[0]:
            best[name] = (us, path, error)
    print("\nbest:")
    for name, (us, path, error) in best.items():
        print(f"{name:20} {us:9.1f} us  error {error:.2g}  {path.stem}  {schedule_of(path)}")


if __name__ == "__main__":
    main()
