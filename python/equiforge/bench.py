"""Benchmarks: the product beside eager PyTorch, torch.compile and the attention kernels that PyTorch has.

    equiforge bench --suite programs --target h200 [--only NAME] [--budget 5m] [--json]

Every case runs in a process of its own, which reports each figure as it has it: what hangs or crashes costs the figures
that were still to come. Times are microseconds of a call inside a CUDA graph, the median; "cold" goes round over copies
of the inputs and weights that no cache holds together, "warm" takes the same ones again and again.
"""

from __future__ import annotations

import argparse
import functools
import importlib.util
import json
import math
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from equiforge import _native, _plot
from equiforge._native import EquiForgeError

if TYPE_CHECKING:
    import torch
    from torch import Tensor

SUITES = ("programs", "attention", "layers", "search")
CASE_TIMEOUT_S = 1800.0
CPU_TARGETS = ("cpu",)
ROOT = Path(__file__).resolve().parents[2]  # of a source tree

Report = Callable[[dict[str, Any]], None]


def workloads() -> ModuleType:
    """bench/workloads.py: inside the package when that is installed, else in the source tree."""
    for path in (Path(__file__).with_name("workloads.py"), ROOT / "bench" / "workloads.py"):
        if path.is_file():
            spec = importlib.util.spec_from_file_location("equiforge_workloads", path)
            assert spec is not None and spec.loader is not None
            module = importlib.util.module_from_spec(spec)
            sys.modules[spec.name] = module  # dataclasses look their module up
            spec.loader.exec_module(module)
            return module
    raise EquiForgeError("the workloads are not installed")


# ---- one case, in its own process ----


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


def attention_backends(case: Any, module: torch.nn.Module) -> Iterator[tuple[str, Callable[..., Any]]]:
    """PyTorch's own kernels, where the case is plain attention over (q, k, v)."""
    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.nn.functional import scaled_dot_product_attention as sdpa

    if case.suite != "attention":
        return
    causal = case.name.startswith("mha_prefill")
    for name, backend in (("flash", SDPBackend.FLASH_ATTENTION), ("cudnn", SDPBackend.CUDNN_ATTENTION)):

        def attend(tensors: Sequence[Tensor], backend: Any = backend) -> Any:
            with sdpa_kernel(backend):
                q, k, v = tensors
                return sdpa(q, k, v, is_causal=causal)

        yield name, attend
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    compiled = torch.compile(flex_attention, dynamic=False)
    mask = None

    def flex(tensors: Sequence[Tensor]) -> Any:
        nonlocal mask
        if causal and mask is None:
            length = tensors[0].shape[-2]
            mask = create_block_mask(lambda b, h, q, k: q >= k, None, None, length, length, device=tensors[0].device)
        q, k, v = tensors
        return compiled(q, k, v, block_mask=mask)

    yield "flex", flex


def exact_results(module: torch.nn.Module, inputs: Sequence[Tensor]) -> list[Tensor] | None:
    """The module's results in float64; None when they do not fit into memory."""
    import copy

    import torch

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

    try:
        twin = copy.deepcopy(module).double()
        with torch.no_grad(), Exact():
            return tensors_of(twin(*[x.double() if x.is_floating_point() else x for x in inputs]))
    except torch.OutOfMemoryError:
        return None


def run_case(name: str, arguments: argparse.Namespace, report: Report) -> None:
    """Measures one case; reports {"baseline": …} and {"product": …} as they come."""
    import torch

    from equiforge import _accuracy, _timing
    from equiforge._optimize import optimize, tensors_of

    target, budget, skipped = arguments.target, arguments.budget, arguments.skip.split(",")
    cpu = target in CPU_TARGETS or not torch.cuda.is_available()
    device = torch.device("cpu" if cpu else "cuda")
    case = workloads().workload(name)
    module, inputs = case.make(device=device, small=cpu)
    weights = dict(module.named_parameters())
    timer = _timing.Timer([*(x.detach() for x in weights.values()), *inputs], device)
    exact = exact_results(module, inputs)

    def measure(call: Callable[[Sequence[Tensor]], Any]) -> dict[str, float | None]:
        cold, warm = timer(call)
        result = tensors_of(call(timer.sets[0]))
        return {"us": cold, "warm_us": warm, "rel_l2": _accuracy.error(result, exact) if exact is not None else None}

    def attempt(label: str, make: Callable[[], Callable[[Sequence[Tensor]], Any]]) -> None:
        if label in skipped:
            return
        try:
            report({"baseline": label, **measure(make())})
        except Exception as problem:  # a baseline that this device or version does not have
            report({"baseline": label, "error": f"{type(problem).__name__}: {str(problem).splitlines()[0][:200]}"})

    plain = Functional(module, list(weights))
    attempt("eager", lambda: plain)
    attempt("compile", lambda: torch.compile(plain, dynamic=False))
    if not cpu:
        attempt("max-autotune", lambda: torch.compile(plain, dynamic=False, mode="max-autotune-no-cudagraphs"))
        for label, call in attention_backends(case, module):
            attempt(label, functools.partial(lambda call: call, call))
    if not arguments.baselines:
        start = time.perf_counter()
        fast = optimize(module, inputs, target=target, budget=budget)
        elapsed = time.perf_counter() - start
        found = measure(Functional(fast, list(weights)))
        report({"product": found, "kernels": fast.plan.kernels, "external": fast.plan.external, "elapsed_s": elapsed})


# ---- all cases ----


def start_case(name: str, arguments: argparse.Namespace) -> dict[str, Any]:
    """Runs one case in another process and collects what it reports."""
    command = [sys.executable, "-m", "equiforge.bench", "--case", name, "--target", arguments.target]
    command += ["--budget", arguments.budget, "--skip", arguments.skip]
    command += ["--baselines"] if arguments.baselines else []
    read, write = os.pipe()
    process = subprocess.Popen(
        [*command, "--report", str(write)], pass_fds=[write], stdin=subprocess.DEVNULL, env=_native.environment()
    )
    os.close(write)
    result: dict[str, Any] = {"name": name, "baselines": {}}
    try:
        process.wait(CASE_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        result["error"] = f"did not end within {CASE_TIMEOUT_S:.0f} s"
    with os.fdopen(read) as lines:
        for line in lines:
            entry = json.loads(line)
            if "baseline" in entry:
                result["baselines"][entry.pop("baseline")] = entry
            else:
                found = entry.pop("product")
                result.update(entry, product_us=found["us"], product_warm_us=found["warm_us"], rel_l2=found["rel_l2"])
    if process.returncode and "error" not in result:
        result["error"] = f"ended with status {process.returncode}"
    case = workloads().workload(name)
    result["suite"] = case.suite
    result["floor_us"] = case.floor_us() if arguments.target not in CPU_TARGETS else None
    times = [entry["us"] for entry in result["baselines"].values() if "us" in entry]
    if times and "product_us" in result:
        result["speedup"] = min(times) / result["product_us"]
    return result


def search_suite(only: str | None) -> list[dict[str, Any]]:
    """Search cost at batch 16 under the three ways of extraction (paper, Figure 10)."""
    cases = []
    for path in sorted((ROOT / "tests" / "programs").glob("*_b16.ef")):
        for mode in ("early", "after", "none"):
            if only and only not in path.stem:
                continue
            command = [_native.command(), "search", str(path), "--compaction", mode, "--json"]
            result = subprocess.run(command, capture_output=True, text=True, check=False)
            entry = json.loads(result.stdout) if result.returncode == 0 else {"error": result.stderr.strip()}
            keep = ("enodes", "saturation_s", "extraction_s", "expanded", "candidates", "complete", "peak_mb", "error")
            cases.append({"name": path.stem, "compaction": mode, **{k: entry[k] for k in keep if k in entry}})
    return cases


def table(cases: Sequence[dict[str, Any]]) -> str:
    """For people: one line a case."""
    names = list(dict.fromkeys(name for case in cases for name in case["baselines"]))
    rows = [["case", *names, "equiforge", "floor", "speedup", "rel L2", "kernels"]]

    def number(value: float | None, form: str = ".1f") -> str:
        return "" if value is None else format(value, form)

    for case in cases:
        row = [case["name"], *(number(case["baselines"].get(name, {}).get("us")) for name in names)]
        row += [number(case.get("product_us")), number(case["floor_us"]), number(case.get("speedup"), ".2f")]
        rows.append([*row, number(case.get("rel_l2"), ".1e"), str(case.get("kernels", ""))])
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = [
        "  ".join(
            cell.ljust(w) if i == 0 else cell.rjust(w) for i, (cell, w) in enumerate(zip(row, widths, strict=True))
        )
        for row in rows
    ]
    won = [case["speedup"] for case in cases if "speedup" in case]
    if won:
        mean = math.exp(sum(map(math.log, won)) / len(won))
        lines.append(
            f"geometric mean over the fastest baseline {mean:.2f}x, {sum(x > 1 for x in won)} of {len(won)} won"
        )
    return "\n".join(lines)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="equiforge bench", description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--suite", choices=SUITES, default="programs")
    parser.add_argument("--only", metavar="NAME", help="cases whose name contains this")
    parser.add_argument("--target", default="auto", help="auto, cpu (at reduced sizes), h200, …")
    parser.add_argument("--budget", default="5m", help="of each optimisation (5m)")
    parser.add_argument("--baselines", action="store_true", help="measure the baselines only")
    parser.add_argument("--skip", default="", metavar="NAME,…", help="baselines to leave out")
    parser.add_argument("--plot", type=Path, metavar="FILE.svg", help="speed against the fastest baseline, drawn")
    parser.add_argument("--json", action="store_true", help="one JSON object")
    parser.add_argument("--case", help=argparse.SUPPRESS)
    parser.add_argument("--report", type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args(argv)
    if arguments.plot and not (arguments.plot.parent.is_dir() and os.access(arguments.plot.parent, os.W_OK)):
        print(f"bench: {arguments.plot}: cannot be written: no such folder, or none to write to", file=sys.stderr)
        return 2
    if arguments.target != "auto" and arguments.target not in _native.targets():
        print(f"bench: unknown target '{arguments.target}'; `equiforge targets` lists them", file=sys.stderr)
        return 2
    if arguments.case:
        with os.fdopen(arguments.report, "w") as pipe:

            def report(entry: dict[str, Any]) -> None:
                pipe.write(json.dumps(entry) + "\n")
                pipe.flush()

            run_case(arguments.case, arguments, report)
        return 0
    if arguments.suite == "search":
        cases = search_suite(arguments.only)
        print(json.dumps({"cases": cases}) if arguments.json else "\n".join(map(str, cases)))
        return 1 if any("error" in case for case in cases) else 0
    names = [n for n, case in workloads().WORKLOADS.items() if case.suite == arguments.suite]
    names = [n for n in names if arguments.only in (None, n)] or [n for n in names if arguments.only in n]
    if arguments.suite == "layers" and not workloads().HAS_TRANSFORMERS:
        print("bench: the decoder layers of transformers are left out: it is not installed", file=sys.stderr)
    if not names:
        print(f"no case of suite {arguments.suite} is called {arguments.only}", file=sys.stderr)
        return 2
    cases = []
    for name in names:
        print(f"{name} …", file=sys.stderr)
        cases.append(start_case(name, arguments))
    if arguments.plot:
        arguments.plot.write_text(_plot.svg(cases), encoding="utf-8")
    print(json.dumps({"cases": cases}) if arguments.json else table(cases))
    return 1 if any("error" in case for case in cases) else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except EquiForgeError as problem:
        print(f"bench: {problem}", file=sys.stderr)
        sys.exit(1)
