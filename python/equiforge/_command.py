"""The command line, which is a C program inside the package: this process becomes it."""

import os
import sys
from typing import NoReturn

from equiforge._native import command


def main() -> NoReturn:
    """Runs `equiforge ARGUMENTS…` with the arguments of this process."""
    path = command()
    # What the command starts in Python (GPU workers, benchmarks) must see the same packages as this process.
    os.environ.setdefault("EQUIFORGE_PYTHON", sys.executable)
    os.execv(path, [path, *sys.argv[1:]])
