"""libequiforge through ctypes: the functions of equiforge.h, and where its files are."""

import ctypes
import functools
import os
from pathlib import Path

LIBRARY = "libequiforge.so"


class EquiForgeError(RuntimeError):
    """The work cannot be done: the message is one line that says what is wrong, where, and what to do."""


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


def command() -> str:
    """The path of the command line program."""
    return str(folder() / "equiforge")


@functools.cache
def library() -> ctypes.CDLL:
    """The loaded library, with the types of its functions set."""
    native = ctypes.CDLL(str(folder() / LIBRARY))
    native.equiforge_version.restype = ctypes.c_char_p
    native.equiforge_version.argtypes = []
    return native


def version() -> str:
    """The version of the library, "0.1.0"."""
    text: bytes = library().equiforge_version()
    return text.decode()
