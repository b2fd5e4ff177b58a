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
from pathlib import Path
from typing import Any, TextIO

import torch

import equiforge
from equiforge import _cuda, _source, _trial

Reply = dict[str, Any]


def refuse(status: str, why: object) -> Reply:
    """A reply that says, in one line, why something was not done."""
    line = " ".join(str(why).split()) or type(why).__name__
    return {"ok": False, "status": status, "error": line[:400]}


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
        except torch.OutOfMemoryError as problem:
            reply = refuse("memory", problem)
        except _trial.Wrong as problem:
            reply = refuse("wrong", problem)
        except Exception as problem:  # whatever a candidate does is an answer
            too_large = type(problem).__name__ == "OutOfResources"
            reply = refuse("memory" if too_large else status, f"{type(problem).__name__}: {problem}")
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

    def hello(self, _: Reply) -> Reply:
        """What this is; makes no context on the device."""
        import triton

        versions = {"equiforge": equiforge.__version__, "torch": torch.__version__, "triton": triton.__version__}
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
        }

    def target(self) -> _source.Target | None:
        """What Triton compiles for; None in the interpreter."""
        if self.device.type != "cuda":
            return None
        properties = torch.cuda.get_device_properties(self.device)
        return _source.Target("cuda", 10 * properties.major + properties.minor, properties.warp_size)

    def compile(self, request: Reply) -> Reply:
        """Writes the source to a file, the artifact, and compiles its kernels into a cache beside it."""
        path = Path(request["dir"]) / f"{request['key']}.py"
        path.write_text(with_fault(request["source"], path.parent), encoding="utf-8")
        target = self.target()
        if target:
            _source.use_cache(path.parent / "triton")
        module = _source.load(path)
        if not callable(getattr(module, request["entry"], None)):
            return refuse("compile", f"the source defines no {request['entry']}")
        if target:
            _source.compile_kernels(module, target)
        return {"ok": True, "artifact": str(path)}

    def program(self, request: Reply) -> Reply:
        """Prepares inputs, results and copies for the measurements that follow."""
        self.trial = None
        if self.device.type == "cuda":
            torch.cuda.set_device(self.device)
            torch.cuda.empty_cache()
        torch.backends.cuda.matmul.allow_tf32 = False
        reference = _trial.Reference(request["reference"], request["name"])
        inputs, outputs = ([_trial.Spec.of(entry) for entry in request[which]] for which in ("inputs", "outputs"))
        seed = request.get("seed", 1) % (1 << 40)
        seconds = request.get("seconds") or 0.0
        trial = _trial.Trial((inputs, outputs), reference, self.device, seed, seconds)
        reply = {
            "ok": True,
            "eager_us": request.get("eager_us") or trial.eager_us(),
            "eager_error": trial.eager_error,
            "exact": str(reference.exact_dtype).removeprefix("torch."),
            "bandwidth": _trial.bandwidth(self.device),
            "sample": trial.share,
        }
        self.trial = trial
        return reply

    def measure(self, request: Reply) -> Reply:
        """Checks a candidate, then times it."""
        if self.trial is None:
            return refuse("request", "no program was given")
        path = Path(request["artifact"])
        if self.device.type == "cuda":
            _source.use_cache(path.parent / "triton")
        module = _source.load(path)
        found = self.trial.judge(module, request)
        return {"ok": True, **found}


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
        except ValueError as problem:
            send(request, refuse("request", problem))
        except DeviceLost as lost:
            send(request, lost.args[0])
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
