"""Cases of a benchmark side by side: each in a process of its own (_bench_case.py), one at a time on each GPU.

Times are those of a GPU (of calls inside a CUDA graph), so that a neighbour on another one does not disturb them. The
processors are shared out: a case that has neighbours runs on its share, with all that it starts. What a case has
reported counts, however it ends. On Ctrl-C and the like the running cases are killed and count as far as they got.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.metadata
import json
import math
import os
import platform
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Collection, Generator, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from equiforge import _cuda, _native
from equiforge._bench_case import workloads
from equiforge._native import EquiForgeError

PATIENCE_S = 1800.0  # that a case may take besides twice its budget
GRACE_S = 3.0  # that an interrupted case has to remove its files
DEATH_S = 10.0  # that a killed process may take to be gone
ON_CPU = ("cpu", "interpreter")  # targets
ALWAYS = ("name", "suite", "target", "budget_s", "skip", "seconds", "baselines")  # in a result
BEGIN = '{"name": '  # of a line with one
ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

Result = dict[str, Any]


@dataclass(frozen=True)
class Options:
    """What is measured of each case. `budget` is as the user wrote it; `save`: the folder that gets the optimised
    modules, None: they are not kept."""

    target: str
    budget: str
    budget_s: float
    skip: tuple[str, ...] = ()
    baselines: bool = False  # alone
    save: Path | None = None

    def file(self, name: str) -> Path | None:
        """That gets the optimised module of a case."""
        return self.save / f"{name.replace('/', '_')}.efz" if self.save else None

    def covers(self, result: Result, models: Collection[str]) -> bool:
        """Whether a result has all that is wanted here, where devices of these models are; without any it counts
        wherever it was measured. What memory that others held left no room for is wanted still, and so is a file."""
        file = self.file(result["name"])
        short = {name for name, entry in result["baselines"].items() if entry.get("short")}
        return (
            "error" not in result
            and (not models or result.get("device") in models)
            and result.get("versions") == versions()
            and short <= set(self.skip)
            and result["target"] == self.target
            and result["budget_s"] == self.budget_s
            and set(result["skip"]) <= set(self.skip)
            and (self.baselines or "product_us" in result)
            and (file is None or file.is_file())
        )


@functools.cache
def versions() -> dict[str, str | None]:
    """What was measured, and beside what: the versions of EquiForge, PyTorch and Triton; None: not installed."""
    found: dict[str, str | None] = {"equiforge": _native.version()}
    for name in ("torch", "triton"):
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            found[name] = None
    return found


# ---- where ----


@dataclass(frozen=True)
class Place:
    """Where one case at a time runs. `visible` names the GPU as CUDA_VISIBLE_DEVICES does; None: the CPU. `cpus`: the
    processors that it has; None: all."""

    model: str  # of the device
    visible: str | None = None
    cpus: frozenset[int] | None = None


def gpus(target: str) -> list[Place]:
    """The GPUs that a target means, of those that CUDA shows: of its kind, or for "auto" of the first one's model."""
    import torch

    if torch.version.cuda is None:
        return []
    try:
        models = [gpu.model for gpu in _cuda.gpus()]
    except EquiForgeError:
        return []
    shown = os.environ.get("CUDA_VISIBLE_DEVICES")
    names = [name.strip() for name in shown.split(",")] if shown else list(map(str, range(len(models))))
    found = [Place(model, name) for model, name in zip(models, names, strict=False)]
    if target == "auto":
        return [place for place in found if place.model == models[0]]
    return [place for place in found if target in place.model.lower().replace(" ", "")]


def processor() -> str:
    """The model of this machine's processor, as far as it says so, and how many of them there are."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        text = ""
    models = [line.partition(":")[2].strip() for line in text.splitlines() if line.startswith("model name")]
    return f"{models[0] if models else platform.machine()}, {len(os.sched_getaffinity(0))} processors"


def models(target: str) -> set[str]:
    """Those of the devices here that a target means; none: there are none."""
    found = set() if target in ON_CPU else {place.model for place in gpus(target)}
    return found or ({processor()} if target in ("auto", *ON_CPU) else set())


def places(target: str, devices: int | None) -> list[Place]:
    """So many devices for a target (None: all that there are), with their shares of the processors; one place for a
    CPU. EquiForgeError when there are fewer."""
    found = [] if target in ON_CPU else gpus(target)
    if not found and target in ("auto", *ON_CPU):
        return [Place(processor())]
    if len(found) < (devices or 1):
        few = f"has {len(found)} GPU{'s' * (len(found) > 1)}" if found else "has none"
        raise EquiForgeError(f"--target {target} --devices {devices or 'all'}: this machine {few} of them")
    found = found[:devices]
    if len(found) == 1:
        return found
    return [Place(p.model, p.visible, cpus) for p, cpus in zip(found, shares(len(found)), strict=True)]


def _core(cpu: int) -> tuple[int, int, int]:
    """Package, core and number of a processor."""
    try:
        folder = Path(f"/sys/devices/system/cpu/cpu{cpu}/topology")
        return int((folder / "physical_package_id").read_text()), int((folder / "core_id").read_text()), cpu
    except (OSError, ValueError):
        return 0, cpu, cpu


def shares(count: int) -> list[frozenset[int]]:
    """The processors that this process may use, shared out evenly; those of one core, and of one package, stay together
    as far as can be. Where there are fewer than shares, some have the same one."""
    cpus = sorted(os.sched_getaffinity(0), key=_core)
    edges = [len(cpus) * i // count for i in range(count + 1)]
    return [frozenset(cpus[a:b] or cpus[a : a + 1]) for a, b in zip(edges, edges[1:], strict=False)]


# ---- processes ----


STORE = "EQUIFORGE_STORE"  # names the file of measurements (src/tune/store.h)


def case_command(name: str, options: Options, place: Place) -> list[str]:
    """What runs a case, but for `--report FD`."""
    command = [sys.executable, "-m", "equiforge._bench_case", name, "--target", options.target]
    command += ["--device", "cpu" if place.visible is None else "cuda", "--budget", options.budget]
    command += ["--skip", ",".join(options.skip)]
    command += ["--baselines"] if options.baselines else []
    file = options.file(name)
    command += [f"--save={file}"] if file else []
    return command + (["--quiet"] if place.cpus is not None else [])


def family(leader: int) -> set[int]:
    """The processes of a session and what descends from them, zombies left out. Workers lead groups of their own."""
    parents, found = {}, set()
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, parent, _, session, *_ = stat.read_text().rpartition(")")[2].split()
        except (OSError, ValueError):
            continue
        pid = int(stat.parent.name)
        if state != "Z":
            parents[pid] = int(parent)
        if int(session) == leader:
            found.add(pid)
    while more := {pid for pid, parent in parents.items() if parent in found} - found:
        found |= more
    return found & parents.keys()


def kill(leader: int) -> None:
    """Ends them all."""
    end = time.monotonic() + DEATH_S
    while (members := family(leader)) and time.monotonic() < end:
        for pid in members:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.01)


@dataclass
class Running:
    """A case that runs, and what it has reported so far. It finds no measurements of earlier ones, which would spare it
    the time that its budget is for; unless the environment names a store."""

    name: str
    place: Place
    process: subprocess.Popen[bytes]
    pipe: int
    began: float
    folder: tempfile.TemporaryDirectory[str]  # for its store
    reported: bytearray = field(default_factory=bytearray)
    more: bool = True  # to be reported

    @classmethod
    def start(cls, name: str, options: Options, place: Place) -> Running:
        environment = _native.environment()
        if place.visible is not None:
            environment["CUDA_VISIBLE_DEVICES"] = place.visible
        folder = tempfile.TemporaryDirectory(prefix="equiforge-bench-", ignore_cleanup_errors=True)
        environment.setdefault(STORE, os.path.join(folder.name, "store.db"))
        read, write = os.pipe()
        os.set_blocking(read, False)
        mine = os.sched_getaffinity(0)
        try:
            os.sched_setaffinity(0, place.cpus or mine)  # which the process inherits
            process = subprocess.Popen(
                [*case_command(name, options, place), "--parent", str(os.getpid()), "--report", str(write)],
                pass_fds=[write],
                stdin=subprocess.DEVNULL,
                env=environment,
                start_new_session=True,  # Ctrl-C reaches it through this process only
            )
        finally:
            os.sched_setaffinity(0, mine)
            os.close(write)
        return cls(name, place, process, read, time.monotonic(), folder)

    @property
    def seconds(self) -> float:
        return time.monotonic() - self.began

    def read(self) -> None:
        """Takes what has been reported."""
        with contextlib.suppress(BlockingIOError):
            while block := os.read(self.pipe, 1 << 16):
                self.reported += block
            self.more = False

    def interrupt(self) -> None:
        """Tells it to end; it is seen to in `end`."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.process.pid, signal.SIGINT)

    def end(self, patience_s: float = 0.0) -> None:
        """Kills what is left of it, after some patience."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(max(patience_s, 0.0))
        kill(self.process.pid)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(DEATH_S)
        self.read()
        os.close(self.pipe)
        self.folder.cleanup()

    def result(self, options: Options, error: str | None) -> Result:
        """Of a case that has ended; `error`: why, where it did not end by itself."""
        found: Result = {"name": self.name, "suite": workloads().workload(self.name).suite}
        found.update(target=options.target, budget_s=options.budget_s, skip=sorted(options.skip))
        found.update(
            device=self.place.model, versions=versions(), seconds=round(self.seconds, 3), baselines={}, step_s={}
        )
        for line in self.reported.split(b"\n")[:-1]:
            entry = json.loads(line)
            if "baseline" in entry:
                found["baselines"][entry.pop("baseline")] = entry
            elif "step" in entry:
                found["step_s"][entry["step"]] = entry["s"]
            else:
                product = entry.pop("product")
                found.update(entry, product_us=product["us"], product_warm_us=product["warm_us"])
                found.update(rel_l2=product["rel_l2"], product_first_s=product.get("first_s"))
        status = self.process.returncode
        if error or status:
            found["error"] = error or (f"ended by signal {-status}" if status < 0 else f"ended with status {status}")
        on_gpu = self.place.visible is not None
        found["floor_us"] = workloads().workload(self.name).floor_us() if on_gpu else None
        times = [entry["us"] for entry in found["baselines"].values() if "us" in entry]
        if times and "product_us" in found:
            found["speedup"] = min(times) / found["product_us"]
        return found


# ---- signals ----


class Signals:
    """Signals as bytes to be read, so that none comes in the middle of anything. Of children those, too, that end."""

    def __enter__(self) -> Signals:
        self.pipe, self.end = os.pipe()
        for fd in (self.pipe, self.end):
            os.set_blocking(fd, False)
        # What is ignored, as SIGINT by what a shell starts in the background, stays so.
        numbers = [n for n in (*ENDING, signal.SIGCHLD) if n == signal.SIGCHLD or signal.getsignal(n) != signal.SIG_IGN]
        self.before = {n: signal.signal(n, lambda *_: None) for n in numbers}
        self.fd = signal.set_wakeup_fd(self.end, warn_on_full_buffer=False)
        return self

    def __exit__(self, *_: object) -> None:
        signal.set_wakeup_fd(self.fd)
        for number, handler in self.before.items():
            signal.signal(number, handler)
        os.close(self.pipe)
        os.close(self.end)

    def wait(self, pipes: Sequence[int], seconds: float) -> int:
        """Waits for a signal, something to read, or the end of the time. The signal that tells to end, 0 for none."""
        select.select([self.pipe, *pipes], [], [], max(seconds, 0))
        try:
            numbers = os.read(self.pipe, 1 << 10)
        except BlockingIOError:
            return 0
        return next((n for n in numbers if n in ENDING), 0)


# ---- all cases ----


class Runner:
    """Runs cases. `limit_s`: how long all may take (None: any time). `longest_s`: what one like them took, as far as is
    known; 0: nothing is.

    Attributes:
        left_out: cases that were not begun.
        signal: that ended it; 0: none did.
    """

    def __init__(self, options: Options, limit_s: float | None = None, longest_s: float = 0.0):
        self.options, self.longest_s = options, longest_s
        self.end = math.inf if limit_s is None else time.monotonic() + limit_s
        self.running: list[Running] = []
        self.left_out: list[str] = []
        self.signal = 0

    def expected(self) -> float:
        """How long a case takes: as the longest so far; as long as its budget while none has ended."""
        least = 0.0 if self.options.baselines else self.options.budget_s
        return max([self.longest_s or least, *(case.seconds for case in self.running)])

    def run(self, names: Sequence[str], found: Sequence[Place]) -> Generator[Result]:
        """The results, as the cases end. One case at a time in each place."""
        waiting = deque(names)
        with Signals() as signals:
            try:
                while not self.signal:
                    self._begin(waiting, found)
                    if not self.running:
                        break
                    yield from self._ended(signals)
                self.left_out = list(waiting)
                yield from self._interrupt([*self.running], "interrupted")
            finally:
                for case in self.running:
                    case.end()

    def _begin(self, waiting: deque[str], found: Sequence[Place]) -> None:
        for place in found:
            if any(case.place is place for case in self.running):
                continue
            if not waiting or time.monotonic() + self.expected() > self.end:
                return
            name = waiting.popleft()
            at = "" if len(found) == 1 else f" on GPU {place.visible}"
            print(f"{name}{at} …", file=sys.stderr, flush=True)
            self.running.append(Running.start(name, self.options, place))

    def _ended(self, signals: Signals) -> Iterator[Result]:
        """Those that end next, or none."""
        patience = PATIENCE_S + 2 * self.options.budget_s
        soonest = min(patience - case.seconds for case in self.running)
        self.signal = signals.wait([case.pipe for case in self.running if case.more], soonest)
        for case in [*self.running]:
            case.read()
            if case.process.poll() is not None:
                yield self._finish(case, None)
        late = [case for case in self.running if case.seconds > patience]
        yield from self._interrupt(late, f"did not end within {patience:.0f} s")

    def _interrupt(self, cases: Sequence[Running], error: str) -> Iterator[Result]:
        for case in cases:
            case.interrupt()
        end = time.monotonic() + GRACE_S
        for case in cases:
            yield self._finish(case, error, end - time.monotonic())

    def _finish(self, case: Running, error: str | None, patience_s: float = 0.0) -> Result:
        self.running.remove(case)
        case.end(patience_s)
        if not error:
            self.longest_s = max(self.longest_s, case.seconds)
        return case.result(self.options, error)


# ---- the file of results ----


class Results:
    """Results in a file, one JSON object a line; of a case the last one counts. No path: of this run alone."""

    def __init__(self, path: Path | None):
        """EquiForgeError when there is a line that is no result."""
        self.path = path
        self.found: dict[str, Result] = {}
        text = path.read_text(encoding="utf-8", errors="replace") if path and path.is_file() else ""
        self.torn = not text.endswith("\n") and bool(text)
        for number, line in enumerate(text.split("\n"), 1):
            if not line:
                continue
            try:
                result = json.loads(line)
                self.found[result["name"]] = {**result, **{key: result[key] for key in ALWAYS}}
            except (ValueError, TypeError, KeyError) as problem:
                begun = line.startswith(BEGIN) or BEGIN.startswith(line)
                if not (begun and isinstance(problem, ValueError)):  # else it is cut off
                    raise EquiForgeError(f"{path}: line {number} is no result of a case") from None

    def add(self, result: Result) -> None:
        """Appends at once. To a file that cannot be written to this line is lost, and no more."""
        self.found[result["name"]] = result
        if self.path is None:
            return
        torn, self.torn = self.torn, True  # should it end within the line
        try:
            with self.path.open("a", encoding="utf-8") as file:
                file.write("\n" * torn + json.dumps(result) + "\n")
                file.flush()
                os.fsync(file.fileno())
            self.torn = False
        except OSError as problem:
            print(f"bench: {self.path}: {problem.strerror}", file=sys.stderr)
