"""One case of a benchmark, in a process of its own (_bench_run.py starts it).

    python -m equiforge._bench_case NAME --target h200 --device cuda --budget 5m --parent PID --report FD

It reports each figure as it has it, one JSON object a line: {"baseline": …, times}, {"product": times, …}, and how long
its steps take, {"step": …, "s": …}.
"""

from __future__ import annotations

import argparse
import contextlib
import copy
import ctypes
import functools
import gc
import importlib.util
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, NoReturn

from equiforge._native import EquiForgeError

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from equiforge._module import OptimizedModule

ROOT = Path(__file__).resolve().parents[2]  # of a source tree
TIMING_S = 1.5  # that calls are timed, cold ones and warm ones each: few of them where one takes long
PR_SET_PDEATHSIG = 1
OTHERS = 1 / 16  # of the memory: this process's libraries have less beside PyTorch's tensors

Report = Callable[[dict[str, Any]], None]
Call = Callable[[Sequence["Tensor"]], Any]


def workloads() -> ModuleType:
    """bench/workloads.py: inside the package when that is installed, else in the source tree."""
    name = "equiforge_workloads"
    if name in sys.modules:
        return sys.modules[name]
    for path in (Path(__file__).with_name("workloads.py"), ROOT / "bench" / "workloads.py"):
        if path.is_file():
            spec = importlib.util.spec_from_file_location(name, path)
            assert spec is not None and spec.loader is not None
            module = importlib.util.module_from_spec(spec)
            sys.modules[name] = module  # dataclasses look their module up
            spec.loader.exec_module(module)
            return module
    raise EquiForgeError("the workloads are not installed")


class Functional:
    """A module as a function of all of its tensors, so that weights go round over copies like inputs."""

    def __init__(self, module: torch.nn.Module, names: Sequence[str]):
        self.module, self.names = module, list(names)

    def __call__(self, tensors: Sequence[Tensor]) -> Any:
        import torch

        count = len(self.names)
        weights = dict(zip(self.names, tensors[:count], strict=True))
        with torch.no_grad():
            return torch.func.functional_call(self.module, weights, tuple(tensors[count:]))


def attention_backends(causal: bool) -> dict[str, Callable[[], Call]]:
    """PyTorch's own kernels for plain attention over (q, k, v)."""
    return {
        "flash": functools.partial(sdpa_attention, "FLASH_ATTENTION", causal),
        "cudnn": functools.partial(sdpa_attention, "CUDNN_ATTENTION", causal),
        "flex": functools.partial(flex_attention, causal),
    }


def sdpa_attention(backend: str, causal: bool) -> Call:
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.nn.functional import scaled_dot_product_attention as sdpa

    def call(tensors: Sequence[Tensor]) -> Any:
        with sdpa_kernel(getattr(SDPBackend, backend)):
            q, k, v = tensors
            return sdpa(q, k, v, is_causal=causal)

    return call


def flex_attention(causal: bool) -> Call:
    """Compiled at the first call; one mask for all calls."""
    import torch
    from torch.nn.attention import flex_attention as flex

    compiled = torch.compile(flex.flex_attention, dynamic=False)
    mask = None

    def call(tensors: Sequence[Tensor]) -> Any:
        nonlocal mask
        q, k, v = tensors
        if causal and mask is None:
            length = q.shape[-2]
            mask = flex.create_block_mask(lambda b, h, q, k: q >= k, None, None, length, length, device=q.device)
        return compiled(q, k, v, block_mask=mask)

    return call


def exact_results(module: torch.nn.Module, inputs: Sequence[Tensor], batched: bool) -> list[Tensor] | None:
    """The module's results in float64; of some positions along the first dimension after the other, where these are
    independent (`batched`) and all do not fit into memory at once. None when they do not fit all the same."""
    import torch

    from equiforge import _memory
    from equiforge._optimize import tensors_of

    class Exact(torch.overrides.TorchFunctionMode):
        """Conversions between floating-point types do nothing."""

        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            floats = (torch.float16, torch.bfloat16, torch.float32)
            if func in (torch.Tensor.float, torch.Tensor.half, torch.Tensor.bfloat16):
                return torch.Tensor.double(args[0])
            args = [torch.float64 if x in floats and isinstance(x, torch.dtype) else x for x in args]
            kwargs = {
                k: torch.float64 if isinstance(x, torch.dtype) and x in floats else x for k, x in (kwargs or {}).items()
            }
            return func(*args, **kwargs)

    def exact(twin: torch.nn.Module, part: Sequence[Tensor]) -> list[Tensor]:
        with torch.no_grad(), Exact():
            return tensors_of(twin(*[x.double() if x.is_floating_point() else x for x in part]))

    def in_parts(step: int) -> list[Tensor]:
        twin = copy.deepcopy(module).double()
        if not batched:
            return exact(twin, inputs)
        parts = [exact(twin, part) for part in zip(*(x.split(step) for x in inputs), strict=True)]
        return [torch.cat(pieces) for pieces in zip(*parts, strict=True)]

    steps = [inputs[0].shape[0]] if batched else [1]
    while steps[-1] > 1 and batched:
        steps.append((steps[-1] + 1) // 2)
    try:
        return _memory.first_fitting(functools.partial(in_parts, step) for step in steps)
    except torch.OutOfMemoryError:
        return None


def short_for_others(problem: Exception, device: torch.device) -> bool:
    """Whether an error says that memory is short, some of which other processes have: without them it may suffice."""
    import torch

    from equiforge import _memory

    if not _memory.exhausted(problem):
        return False
    if device.type != "cuda":
        return True
    with contextlib.suppress(RuntimeError):
        free, all_ = torch.cuda.mem_get_info(device)
        return all_ - free - torch.cuda.memory_reserved(device) > OTHERS * all_
    return True


class Case:
    """A workload on a device, with what every implementation of it is measured with."""

    def __init__(self, name: str, device: str, report: Report):
        self.report = report
        with self.step("imports"):
            import torch

            from equiforge import _timing
        self.device = torch.device(device)
        small = self.device.type == "cpu"
        with self.step("inputs"):
            self.workload = workloads().workload(name)
            self.module, self.inputs = self.workload.make(device=self.device, small=small)
            self.weights = dict(self.module.named_parameters())
            tensors = [*(x.detach() for x in self.weights.values()), *self.inputs]
            self.timer = _timing.Timer(tensors, self.device)
        with self.step("exact results"):
            self.exact = exact_results(self.module, self.inputs, self.workload.batched)

    @contextlib.contextmanager
    def step(self, what: str) -> Iterator[None]:
        """Reports how long the inside takes, with what it leaves the device to do; then memory is free for others."""
        start = time.perf_counter()
        try:
            yield
        finally:
            torch = sys.modules.get("torch")
            if torch is not None and torch.cuda.is_initialized():
                with contextlib.suppress(RuntimeError):  # of a kernel: told where it was called
                    torch.cuda.synchronize()
                    torch.cuda.empty_cache()
            self.report({"step": what, "s": round(time.perf_counter() - start, 3)})

    def measure(self, call: Call) -> dict[str, float | None]:
        """Times, and the error of the results. "first_s" is what the first call takes, which compiles."""
        from equiforge import _accuracy
        from equiforge._optimize import tensors_of

        start = time.perf_counter()
        call(self.timer.sets[0])
        first_s = time.perf_counter() - start
        cold, warm = self.timer(call, seconds=TIMING_S)
        result = tensors_of(call(self.timer.sets[0]))
        error = _accuracy.error(result, self.exact) if self.exact is not None else None
        return {"us": cold, "warm_us": warm, "rel_l2": error, "first_s": round(first_s, 3)}

    def baseline(self, label: str, make: Callable[[], Call]) -> None:
        """Measures and reports one, or why it cannot be."""
        with self.step(label):
            try:
                self.report({"baseline": label, **self.measure(make())})
                return
            except Exception as problem:  # this device or version does not have it, or memory is short
                line = (str(problem).splitlines() or [""])[0][:200]
                entry = {"baseline": label, "error": f"{type(problem).__name__}: {line}"}
                self.report({**entry, "short": True} if short_for_others(problem, self.device) else entry)
            gc.collect()  # what the exception held

    def baselines(self, skipped: Sequence[str]) -> None:
        import torch

        plain = Functional(self.module, list(self.weights))
        calls: dict[str, Callable[[], Call]] = {
            "eager": lambda: plain,
            "compile": lambda: torch.compile(plain, dynamic=False),
        }
        if self.device.type == "cuda":
            mode = "max-autotune-no-cudagraphs"
            calls["max-autotune"] = lambda: torch.compile(plain, dynamic=False, mode=mode)
        if self.device.type == "cuda" and self.workload.suite == "attention":
            calls.update(attention_backends(causal=self.workload.name.startswith("mha_prefill")))
        for label, make in calls.items():
            if label not in skipped:
                self.baseline(label, make)

    def product(self, target: str, budget: str, quiet: bool, file: Path | None = None) -> None:
        """Optimises the module, saves the result to a file, and measures and reports it."""
        from equiforge._optimize import optimize

        start = time.perf_counter()
        with self.step("optimize"):
            progress = (lambda _: None) if quiet else None
            fast = optimize(self.module, self.inputs, target=target, budget=budget, progress=progress)
        elapsed = time.perf_counter() - start
        if file:
            with self.step("save"):
                self.save(fast, file)
        with self.step("equiforge"):
            found = self.measure(Functional(fast, list(self.weights)))
        plan = fast.plan
        self.report({"product": found, "kernels": plan.kernels, "external": plan.external, "elapsed_s": elapsed})

    def save(self, fast: OptimizedModule, file: Path) -> None:
        """Without weights, which are random and may be gigabytes. Where it fails, which is said, there is no file: one
        of an earlier run would pass for this one's."""
        try:
            fast.save(str(file), weights=False)
        except EquiForgeError as problem:
            with contextlib.suppress(OSError):
                file.unlink()
            print(f"bench: {self.workload.name}: {problem}", file=sys.stderr, flush=True)


def main(argv: Sequence[str] | None = None) -> NoReturn:
    parser = argparse.ArgumentParser(prog="equiforge._bench_case")
    parser.add_argument("name")
    parser.add_argument("--target", required=True)
    parser.add_argument("--device", required=True, help="cpu or cuda")
    parser.add_argument("--budget", required=True)
    parser.add_argument("--skip", default="", metavar="NAME,…")
    parser.add_argument("--baselines", action="store_true")
    parser.add_argument("--save", type=Path, metavar="FILE", help="gets the optimised module")
    parser.add_argument("--quiet", action="store_true", help="no line that shows how the optimisation gets on")
    parser.add_argument("--parent", type=int, required=True, help="the process that starts this one")
    parser.add_argument("--report", type=int, required=True, help="file descriptor")
    arguments = parser.parse_args(argv)
    # It ends with whoever started it, and what it starts must not hold the pipe open.
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != arguments.parent:  # which had ended before this was said
        raise EquiForgeError(f"process {arguments.parent} is not there")
    signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored in the background, it would be here
    os.set_inheritable(arguments.report, False)
    with os.fdopen(arguments.report, "w") as pipe:

        def report(entry: dict[str, Any]) -> None:
            pipe.write(json.dumps(entry) + "\n")
            pipe.flush()

        case = Case(arguments.name, arguments.device, report)
        case.baselines(arguments.skip.split(","))
        if not arguments.baselines:
            case.product(arguments.target, arguments.budget, arguments.quiet, arguments.save)
    sys.stderr.flush()
    os._exit(0)  # all is told; what PyTorch does at its end takes a second or more


if __name__ == "__main__":
    try:
        main()
    except EquiForgeError as problem:
        print(f"bench: {problem}", file=sys.stderr)
        sys.exit(1)
    except KeyboardInterrupt:
        os._exit(128 + signal.SIGINT)
