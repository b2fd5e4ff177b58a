"""The GPU worker: a process that compiles candidates, or measures them, for libequiforge (docs/workers.md).

    python -m equiforge.worker --device cuda:0

Requests are JSON objects, one a line on standard input; each has one reply, one line on standard output. Logs go to
standard error. The role shows with the first request: compiling needs no GPU memory, not even a context, so that there
can be a process a core. After an error of the device the worker replies and exits, since its context is lost; the pool
starts another. With TRITON_INTERPRET=1 and --device cpu everything runs in Triton's interpreter, for tests.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
import time
from pathlib import Path
from typing import Any, TextIO

import torch

import equiforge
from equiforge import _cuda, _inputs, _reference, _shared, _source, _timing, _trial
from equiforge._memory import exhausted

Reply = dict[str, Any]


def refuse(status: str, why: object) -> Reply:
    """A reply that says, in one line, why something was not done."""
    line = " ".join(str(why).split()) or type(why).__name__
    return {"ok": False, "status": status, "error": line[:400]}


def seconds_alive() -> float:
    """How long this process has been there, in seconds."""
    fields = Path("/proc/self/stat").read_text(encoding="utf-8").rsplit(")", 1)[1].split()
    return time.clock_gettime(time.CLOCK_BOOTTIME) - int(fields[19]) / os.sysconf("SC_CLK_TCK")


# What the tests' hook appends to a candidate (docs/workers.md). Shapes only are known while it is compiled.
FAULTS = {
    "crash": """
def launch(inputs, outputs, temps):
    if outputs[0].device.type != "meta":
        import ctypes

        ctypes.string_at(8)
""",
    "hang": """
@triton.jit
def endless(p):
    n = 0
    while tl.load(p, volatile=True) == 0:
        n += 1
    tl.store(p + 1, n)


def launch(inputs, outputs, temps):
    endless[(1,)](torch.zeros(2, dtype=torch.int32, device=outputs[0].device))
""",
    "illegal": """
@triton.jit
def astray(p):
    tl.store(p + (tl.program_id(0) + 1).to(tl.int64) * 400000000000, 1)


def launch(inputs, outputs, temps):
    astray[(1,)](torch.zeros(2, dtype=torch.int32, device=outputs[0].device))
""",
    "wrong": """
right = launch


def launch(inputs, outputs, temps):
    right(inputs, outputs, temps)
    outputs[0].fill_(1)
""",
    "compile": """
this is no Python
""",
}


def with_fault(source: str, folder: Path) -> str:
    """A candidate, or what the hook EQUIFORGE_TEST_FAULT=FAULT@N makes of the N-th one of a run. All workers of a run
    have one folder, where they count together."""
    fault, _, wanted = os.environ.get("EQUIFORGE_TEST_FAULT", "").partition("@")
    if fault not in FAULTS:
        return source
    number = 0
    while True:
        number += 1
        with contextlib.suppress(FileExistsError), open(folder / f"candidate.{number}", "x", encoding="utf-8"):
            return source + FAULTS[fault] if str(number) == wanted else source


class DeviceLost(Exception):
    """The device's context is broken: nothing more can be done in this process."""


class Worker:
    """Answers requests about one device."""

    def __init__(self, device: str):
        self.device = torch.device(device)
        self.trial: _trial.Trial | None = None
        self.spent = {"start": seconds_alive()}  # for the first program; interpreters are there, and imports done
        if self.device.type == "cuda":
            self.device = torch.device("cuda", self.device.index or 0)

    def answer(self, request: Reply) -> Reply:
        """Raises DeviceLost with the reply when the worker must end."""
        handlers = {"hello": self.hello, "compile": self.compile, "program": self.program, "measure": self.measure}
        handler = handlers.get(request.get("do", ""))
        if handler is None:
            return refuse("request", f"unknown request {request.get('do')!r}")
        status = {"compile": "compile", "measure": "launch"}.get(request["do"], "request")
        try:
            return handler(request)
        except _trial.Wrong as problem:
            reply = refuse("wrong", problem)
        except Exception as problem:  # whatever a candidate does is an answer
            cause = problem.__cause__ if isinstance(problem, _source.KernelFailed) else problem
            too_large = type(cause).__name__ == "OutOfResources"
            if exhausted(cause):
                reply = refuse("exhausted", cause)
            else:
                reply = refuse("memory" if too_large else status, f"{type(cause).__name__}: {cause}")
            if isinstance(problem, _source.KernelFailed):
                reply["kernel"] = problem.kernel
        self.recover(reply)
        return reply

    def recover(self, reply: Reply) -> None:
        """Frees memory, and finds out whether the device still answers."""
        if self.device.type != "cuda" or not torch.cuda.is_initialized():
            return
        try:
            torch.cuda.synchronize()
            torch.cuda.empty_cache()
        except RuntimeError as problem:
            raise DeviceLost(reply) from problem

    def hello(self, request: Reply) -> Reply:
        """What this is; makes no context on the device. A worker that is to compile leaves the device alone: its driver
        serves one process after the other."""
        import triton

        versions = {"equiforge": equiforge.__version__, "torch": torch.__version__, "triton": triton.__version__}
        if request.get("role") == "compile":
            return {"ok": True, "device": self.device.type, "versions": versions}
        if self.device.type != "cuda":
            memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
            return {"ok": True, "device": self.device.type, "versions": versions, "memory": memory}
        properties = torch.cuda.get_device_properties(self.device)
        versions["cuda"] = str(torch.version.cuda)
        return {
            "ok": True,
            "device": properties.name,
            "arch": f"sm_{properties.major}{properties.minor}",
            "versions": versions,
            "memory": properties.total_memory,
            "shared": getattr(properties, "shared_memory_per_block_optin", 0),
        }

    def warm_up(self, request: Reply) -> None:
        """Before the first request to compile or measure: what Triton does once in a process, which takes a second."""
        if self.device.type == "cuda":
            with contextlib.suppress(Exception):  # what is wrong shows when something is compiled or launched
                (_source.warm_up if request.get("role") == "compile" else _source.start_driver)()

    def target(self, request: Reply) -> _source.Target | None:
        """What Triton compiles for; None in the interpreter."""
        if self.device.type != "cuda":
            return None
        if str(request.get("arch", "")).startswith("sm_"):
            return _source.Target("cuda", int(request["arch"][3:]), 32, request.get("shared") or 0)
        properties = torch.cuda.get_device_properties(self.device)
        return _source.Target("cuda", 10 * properties.major + properties.minor, properties.warp_size)

    def compile(self, request: Reply) -> Reply:
        """Writes the source to a file, the artifact, and its kernels to others, and compiles these into a cache beside
        them."""
        path = Path(request["dir"]) / f"{request['key']}.py"
        source = with_fault(request["source"], path.parent)
        target, start = self.target(request), time.perf_counter()
        if target:
            _source.use_cache(path.parent / "triton")
        _shared.write(source, path, path.parent / "kernels")
        module = _shared.load(path)
        if not callable(getattr(module, request["entry"], None)):
            return refuse("compile", f"the source defines no {request['entry']}")
        loaded = time.perf_counter()
        if target:
            _source.compile_kernels(module, target)
        spent = {"load": loaded - start, "compile": time.perf_counter() - loaded}
        return {"ok": True, "artifact": str(path), "spent": spent}

    def program(self, request: Reply) -> Reply:
        """Prepares inputs, results and copies for the measurements that follow."""
        self.trial = None
        if self.device.type == "cuda":
            start = time.perf_counter()
            torch.cuda.set_device(self.device)
            torch.cuda.empty_cache()
            torch.cuda.synchronize()
            self.spent["context"] = time.perf_counter() - start
        start = time.perf_counter()
        torch.backends.cuda.matmul.allow_tf32 = False
        reference = _reference.Reference(request["reference"], request["name"])
        inputs, outputs = ([_inputs.Spec.of(entry) for entry in request[which]] for which in ("inputs", "outputs"))
        seed = request.get("seed", 1) % (1 << 40)
        seconds = request.get("seconds") or 0.0
        trial = _trial.Trial((inputs, outputs), reference, self.device, seed, seconds)
        known = request.get("eager_us")
        eager_us, estimated = (known, False) if known else trial.eager_us()
        reply = {
            "ok": True,
            "eager_us": eager_us,
            "estimated": estimated,
            "eager_error": trial.eager_error,
            "exact": str(reference.exact_dtype).removeprefix("torch."),
            "bandwidth": _timing.bandwidth(self.device),
            "sample": trial.share,
        }
        spent = {**self.spent, **trial.take_spent()}
        spent["rest"] = time.perf_counter() - start - sum(v for k, v in spent.items() if k not in self.spent)
        reply["spent"], self.spent = spent, {}
        self.trial = trial
        return reply

    def measure(self, request: Reply) -> Reply:
        """Checks a candidate, then times it."""
        if self.trial is None:
            return refuse("request", "no program was given")
        path = Path(request["artifact"])
        if self.device.type == "cuda":
            _source.use_cache(path.parent / "triton")
        with self.trial.spending("load"):
            module = _shared.load(path)
        found = self.trial.judge(module, request)
        return {"ok": True, **found, "spent": self.trial.take_spent()}


def finite(value: Any) -> Any:
    """JSON knows no infinities: a string says so."""
    if isinstance(value, float) and not abs(value) < float("inf"):
        return str(value)
    if isinstance(value, list):
        return [finite(x) for x in value]
    return value


def serve(worker: Worker, requests: TextIO, replies: TextIO) -> int:
    """Answers until the input ends. 1 when the device is lost."""

    def send(request: Reply, reply: Reply) -> None:
        reply = {"id": request.get("id"), **{name: finite(value) for name, value in reply.items()}}
        replies.write(json.dumps(reply) + "\n")
        replies.flush()

    for line in requests:
        request: Reply = {}
        try:
            request = json.loads(line)
            send(request, worker.answer(request))
            if request.get("do") == "hello":
                worker.warm_up(request)
        except ValueError as problem:
            send(request, refuse("request", problem))
        except DeviceLost as lost:
            send(request, {**lost.args[0], "ends": True})
            return 1
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m equiforge.worker", description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument(
        "--device", default="cuda:0", help="cuda:N, a GPU's place on the bus, or cpu for Triton's interpreter"
    )
    arguments = parser.parse_args()
    # What libraries and candidates print must not get between the replies.
    replies = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    device = arguments.device
    if "." in device:
        device = f"cuda:{_cuda.number_of(device)}"
    return serve(Worker(device), sys.stdin, replies)


if __name__ == "__main__":
    sys.exit(main())
