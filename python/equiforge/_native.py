"""libequiforge through ctypes: the functions of equiforge.h, and where its files are."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import json
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

LIBRARY = "libequiforge.so"


class EquiForgeError(RuntimeError):
    """The work cannot be done: the message is one line that says what is wrong, where, and what to do."""


class UnsupportedModuleError(EquiForgeError):
    """The module, for these arguments, is one that EquiForge cannot take: PyTorch cannot export it (Python code that
    looks at the data), or it computes with numbers that only the data decide. The module itself still runs."""


@functools.cache
def folder() -> Path:
    """The folder with the library and the command: the package's own, or the build's in a source tree.

    EQUIFORGE_BUILD names another one. Raises EquiForgeError when there is none.
    """
    package = Path(__file__).resolve().parent
    named = os.environ.get("EQUIFORGE_BUILD")
    places = [Path(named)] if named else [package, package.parent.parent / "build"]
    for place in places:
        if (place / LIBRARY).is_file():
            return place
    raise EquiForgeError(f"no {LIBRARY} in {' or '.join(map(str, places))}: install the wheel, or run `make`")


def environment() -> dict[str, str]:
    """For processes that must find this package and this Python."""
    parent = str(Path(__file__).resolve().parent.parent)
    paths = [parent, *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths)), "EQUIFORGE_PYTHON": sys.executable}


def command() -> str:
    """The path of the command line program."""
    return str(folder() / "equiforge")


# name: (result, arguments); c_void_p stands for handles and arrays.
_FUNCTIONS: dict[str, tuple[Any, list[Any]]] = {
    "equiforge_version": (ctypes.c_char_p, []),
    "equiforge_session_new": (ctypes.c_void_p, []),
    "equiforge_session_free": (None, [ctypes.c_void_p]),
    "equiforge_message": (ctypes.c_char_p, [ctypes.c_void_p]),
    "equiforge_optimize": (ctypes.c_int, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p, ctypes.c_void_p]),
    "equiforge_targets": (ctypes.c_size_t, [ctypes.c_void_p]),
    "equiforge_interrupt": (None, [ctypes.c_void_p, ctypes.c_int]),
    "equiforge_plan_open": (ctypes.c_int, [ctypes.c_void_p, ctypes.c_char_p, ctypes.POINTER(ctypes.c_void_p)]),
    "equiforge_plan_close": (None, [ctypes.c_void_p]),
    "equiforge_plan_describe": (ctypes.c_char_p, [ctypes.c_void_p]),
    "equiforge_plan_prepare": (ctypes.c_int, [ctypes.c_void_p, ctypes.c_uint32, ctypes.c_uint32]),
    "equiforge_plan_call": (None, [ctypes.c_void_p, ctypes.c_uint32, ctypes.c_void_p, ctypes.c_void_p]),
    "equiforge_launches_new": (
        ctypes.c_void_p,
        [ctypes.c_void_p, ctypes.c_int, ctypes.c_uint64, ctypes.c_uint32, ctypes.c_bool],
    ),
    "equiforge_launches_free": (None, [ctypes.c_void_p]),
    "equiforge_launches_add": (None, [ctypes.c_void_p, ctypes.c_uint64, *[ctypes.c_uint32] * 5, ctypes.c_bool]),
    "equiforge_launches_address": (ctypes.c_bool, [ctypes.c_void_p, ctypes.c_uint32]),
    "equiforge_launches_value": (ctypes.c_bool, [ctypes.c_void_p, ctypes.c_uint64]),
    "equiforge_launches_map": (
        ctypes.c_bool,
        [
            *(ctypes.c_void_p, ctypes.c_bool, ctypes.c_uint64, ctypes.c_uint32, ctypes.c_uint32, ctypes.c_uint32),
            *(ctypes.POINTER(ctypes.c_uint64), ctypes.POINTER(ctypes.c_uint64), ctypes.POINTER(ctypes.c_uint32)),
        ],
    ),
    "equiforge_launches_run": (ctypes.c_int, [ctypes.c_void_p, ctypes.c_void_p]),
    "equiforge_launches_python": (None, [ctypes.c_void_p]),
    "equiforge_launches_tensors": (None, [ctypes.c_void_p]),
    "equiforge_launch_error": (ctypes.c_char_p, [ctypes.c_int]),
}


@functools.cache
def library() -> ctypes.CDLL:
    """The loaded library."""
    return ctypes.CDLL(str(folder() / LIBRARY))


@functools.cache
def function(name: str) -> Any:
    """A function of the library, with its types set."""
    found = getattr(library(), name)
    found.restype, found.argtypes = _FUNCTIONS[name]
    return found


class Progress(ctypes.Structure):
    """How an optimisation stands (equiforge_progress). Times of 0 are not known yet; `stage` is a text."""

    _fields_ = [
        ("_stage", ctypes.c_char_p),
        ("families", ctypes.c_uint32),
        ("left", ctypes.c_uint32),
        ("measured", ctypes.c_uint64),
        ("failed", ctypes.c_uint64),
        ("best_us", ctypes.c_double),
        ("original_us", ctypes.c_double),
        ("floor_us", ctypes.c_double),
        ("elapsed_s", ctypes.c_double),
        ("left_s", ctypes.c_double),
    ]

    @property
    def stage(self) -> str:
        """What is going on: "search", "prepare", "tune" or "confirm"."""
        return (self._stage or b"").decode()


_PROGRESS = ctypes.CFUNCTYPE(ctypes.c_bool, ctypes.c_void_p, ctypes.POINTER(Progress))


class Options(ctypes.Structure):
    """equiforge_optimize_options."""

    _fields_ = [
        ("target", ctypes.c_char_p),
        ("gpu", ctypes.c_char_p),
        ("budget_s", ctypes.c_double),
        ("store", ctypes.c_char_p),
        ("output", ctypes.c_char_p),
        ("threads", ctypes.c_uint32),
        ("seed", ctypes.c_uint64),
        ("limit", ctypes.c_uint64),
        ("unmeasured", ctypes.c_bool),
        ("progress", _PROGRESS),
        ("user", ctypes.c_void_p),
    ]


class Optimum(ctypes.Structure):
    """equiforge_optimum; texts belong to the session."""

    _fields_ = [
        ("original_us", ctypes.c_double),
        ("best_us", ctypes.c_double),
        ("warm_us", ctypes.c_double),
        ("floor_us", ctypes.c_double),
        ("rel_l2", ctypes.c_double),
        ("elapsed_s", ctypes.c_double),
        ("regions", ctypes.c_uint32),
        ("distinct", ctypes.c_uint32),
        ("externals", ctypes.c_uint32),
        ("kept", ctypes.c_uint32),
        ("kernels", ctypes.c_uint64),
        ("candidates", ctypes.c_uint64),
        ("families", ctypes.c_uint64),
        ("measured", ctypes.c_uint64),
        ("failed", ctypes.c_uint64),
        ("original", ctypes.c_bool),
        ("stored", ctypes.c_bool),
        ("stopped", ctypes.c_bool),
        ("schedule", ctypes.c_char_p),
        ("source", ctypes.c_char_p),
        ("entry", ctypes.c_char_p),
        ("program", ctypes.c_char_p),
        ("device", ctypes.c_char_p),
        ("note", ctypes.c_char_p),
    ]


@contextlib.contextmanager
def uninterrupted() -> Iterator[None]:
    """Ctrl-C waits for the end of this: PyTorch, imported by half, cannot be imported again."""
    before = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(before):
        yield  # signals are another thread's, or nobody's
        return
    caught: list[tuple[int, FrameType | None]] = []
    signal.signal(signal.SIGINT, lambda *given: caught.append(given))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
        if caught:
            before(*caught[0])


_ABANDON = 2  # equiforge_ending


def interruptible(call: Callable[[], Any], end: Callable[[], Any] | None = None) -> Any:
    """call(), in a thread of its own, so that Ctrl-C gets through to this one while the library works.

    When something is raised here meanwhile, `end` makes the call end soon, which is waited for; without an `end` the
    call goes on by itself.
    """
    results: list[Any] = []
    problems: list[BaseException] = []
    done = threading.Event()

    def work() -> None:
        try:
            results.append(call())
        except BaseException as problem:
            problems.append(problem)
        finally:
            done.set()

    def wait() -> None:
        # A signal that comes just before a wait does not end it: so no wait is long.
        while not done.wait(0.1):
            pass

    thread = threading.Thread(target=work, name="equiforge", daemon=True)
    try:
        thread.start()
        wait()
    except BaseException:
        if end is not None:
            end()
            if thread.ident is not None:
                wait()
        raise
    if problems:
        raise problems[0]
    return results[0]


class Target(ctypes.Structure):
    """equiforge_target."""

    _fields_ = [("name", ctypes.c_char_p), ("kind", ctypes.c_char_p), ("available", ctypes.c_bool)]


def targets() -> dict[str, str]:
    """The kind of every target, "cpu" or "gpu", by its name; whether it is here or not."""
    found = ctypes.POINTER(Target)()
    count = function("equiforge_targets")(ctypes.byref(found))
    return {found[i].name.decode(): found[i].kind.decode() for i in range(count)}


class PlanHandle:
    """An optimised module that the library has read from a file and checked. EquiForgeError when it is not fit.

    `threads` is how many threads generated C runs with; 0: one a processor.
    """

    def __init__(self, path: str | os.PathLike[str], threads: int = 0):
        self._threads = threads
        self._locks: dict[int, threading.Lock] = {}  # of prepared regions, each of which has one workspace
        self._session = function("equiforge_session_new")()
        self._plan = ctypes.c_void_p()
        status = function("equiforge_plan_open")(self._session, os.fsencode(path), ctypes.byref(self._plan))
        if status:
            raise EquiForgeError(self._message())

    def _message(self) -> str:
        text: bytes = function("equiforge_message")(self._session)
        return text.decode(errors="replace")

    def __del__(self) -> None:
        if getattr(self, "_session", None):
            function("equiforge_plan_close")(self._plan)
            function("equiforge_session_free")(self._session)

    def description(self) -> dict[str, Any]:
        """The plan, with the sources of its regions (see _plan.py)."""
        text = function("equiforge_plan_describe")(self._plan)
        if text is None:
            raise EquiForgeError(self._message())
        value: dict[str, Any] = json.loads(text)
        return value

    def prepare(self, region: int) -> Callable[[Any, Any], None]:
        """Compiles and loads a region in C: a function of arrays of addresses, inputs and outputs.

        Threads may call it at once, and those of other calls of `prepare` for this region too: they take turns.
        """
        lock = self._locks.setdefault(region, threading.Lock())
        with lock:
            failed = interruptible(lambda: function("equiforge_plan_prepare")(self._plan, region, self._threads))
        if failed:
            raise EquiForgeError(self._message())

        # The handle must live as long as the function.
        def call(ins: Any, outs: Any) -> None:
            with lock:
                function("equiforge_plan_call")(self._plan, region, ins, outs)

        return call


def optimize(  # noqa: PLR0913
    archive: str | os.PathLike[str],
    result: str | os.PathLike[str],
    *,
    target: str = "auto",
    gpu: str | None = None,
    budget_s: float = 300.0,
    store: str | os.PathLike[str] | None = None,
    threads: int = 0,
    limit: int = 0,
    progress: Callable[[Progress], Any] | None = None,
) -> dict[str, Any]:
    """Optimises a .pt2 or .ef file into an .efz file; returns what is said of it (equiforge_optimum).

    `gpu` is the place of a GPU on the bus (_cuda.py), `threads` are a CPU's, `limit` bounds the implementations
    measured of each region; 0: as many as there are, as the budget allows. What cannot be measured, PyTorch runs, and
    "note" says why; EquiForgeError when it cannot be done.
    What `progress` raises, and Ctrl-C, end it within a second or two, without a result; what was measured is in the
    store, where another call goes on.
    """
    session = function("equiforge_session_new")()
    alive = threading.Lock()  # the session's end, and whoever interrupts it
    ended = False
    raised: list[BaseException] = []

    def abandon() -> None:
        with alive:
            if not ended:
                function("equiforge_interrupt")(session, _ABANDON)

    def tell(_: Any, at: Any) -> bool:
        try:
            return progress is None or progress(at.contents) is not False
        except BaseException as problem:  # nothing may pass through the library
            raised.append(problem)
            abandon()
            return True

    options = Options(
        target.encode(),
        gpu.encode() if gpu is not None else None,
        budget_s,
        os.fsencode(store) if store is not None else None,
        os.fsencode(result),
        threads,
        1,
        limit,
        True,
        _PROGRESS(tell),
    )
    # Workers on GPUs are Python's own.
    os.environ.setdefault("EQUIFORGE_PYTHON", sys.executable)

    def work() -> dict[str, Any]:
        nonlocal ended
        try:
            optimum = Optimum()
            status = function("equiforge_optimize")(
                session, os.fsencode(archive), ctypes.byref(options), ctypes.byref(optimum)
            )
            if raised:
                raise raised[0]
            if status:
                raise EquiForgeError(function("equiforge_message")(session).decode(errors="replace"))
            fields = {name: getattr(optimum, name) for name, *_ in Optimum._fields_}
            return {name: x.decode() if isinstance(x, bytes) else x for name, x in fields.items()}
        finally:
            with alive:
                ended = True
                function("equiforge_session_free")(session)

    found: dict[str, Any] = interruptible(work, abandon)
    return found


def version() -> str:
    """The version of the library, "0.1.0"."""
    text: bytes = function("equiforge_version")()
    return text.decode()
