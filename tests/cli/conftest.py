"""Runs the built command line. EQUIFORGE_BUILD picks the build folder (build or build-sanitize)."""

import json
import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BUILD = ROOT / os.environ.get("EQUIFORGE_BUILD", "build")
SANITIZED = "sanitize" in BUILD.name

# A program that takes microseconds.
SMALL_PROGRAM = """program small
dim m = 8
dim k = 48
dim n = 40
input x: f32[m, k]
input g: f32[k]
input w: f32[k, n]
output y = matmul(mul(x, g), w)
"""


class Equiforge:
    """Calls `equiforge ARGUMENTS...` in the source root, so that "tests/programs/x.ef" is a valid path."""

    def __init__(self, executable: Path):
        self.executable = executable

    def __call__(self, *arguments, timeout: float = 120) -> subprocess.CompletedProcess:
        return subprocess.run(
            [self.executable, *map(str, arguments)],
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout * (6 if SANITIZED else 1),
            check=False,
        )

    def json(self, *arguments, timeout: float = 120) -> dict:
        """The object that a successful call prints with --json; nothing else may stand on stdout."""
        result = self(*arguments, "--json", timeout=timeout)
        assert result.returncode == 0, result.stderr
        value = json.loads(result.stdout)
        assert isinstance(value, dict)
        return value


@pytest.fixture(scope="session")
def equiforge() -> Equiforge:
    executable = BUILD / "equiforge"
    assert executable.is_file(), f"{executable} is not built; run `make`"
    return Equiforge(executable)


@pytest.fixture(scope="session")
def root() -> Path:
    return ROOT
