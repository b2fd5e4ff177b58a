"""The wheel in dist, in a fresh environment that has nothing else: it imports, and its command line runs."""

import os
import re
import subprocess
import sys
import venv
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
# What manylinux wheels may expect of any machine.
SYSTEM = {"libc.so.6", "libm.so.6", "libdl.so.2", "libpthread.so.0", "libz.so.1"}
# Neither the source tree nor the tester's packages may help.
CLEAN = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "EQUIFORGE"))}


@pytest.fixture(scope="module")
def installed(tmp_path_factory) -> Path:
    """The bin folder of a fresh environment with the wheel in it."""
    wheels = list((ROOT / "dist").glob("*.whl"))
    assert len(wheels) == 1, "run `make`: dist must hold one wheel"
    folder = tmp_path_factory.mktemp("wheel")
    venv.create(folder, with_pip=False, symlinks=True)
    python = folder / "bin" / "python"
    subprocess.run(
        [sys.executable, "-m", "pip", "--python", python, "install", "-q", "--no-index", "--no-deps", wheels[0]],
        check=True,
    )
    return folder / "bin"


def run(*arguments) -> subprocess.CompletedProcess:
    return subprocess.run(list(map(str, arguments)), cwd="/", env=CLEAN, capture_output=True, text=True, check=False)


def test_every_module_is_in_it():
    listed = (ROOT / "python/meson.build").read_text()
    for path in (ROOT / "python/equiforge").glob("*.py"):
        assert f"'equiforge/{path.name}'" in listed


def test_tag():
    (wheel,) = (ROOT / "dist").glob("*.whl")
    assert re.fullmatch(r"equiforge-[\d.]+-py3-none-manylinux_2_\d+_\w+\.whl", wheel.name)


def test_import_needs_nothing(installed):
    code = "import sys, equiforge; print(equiforge.__version__, 'torch' in sys.modules, 'numpy' in sys.modules)"
    result = run(installed / "python", "-c", code)
    assert result.stdout == "0.1.0 False False\n", result.stderr


def test_torch_compile_finds_the_backend(installed):
    code = (
        "from importlib.metadata import entry_points as e; print([x.value for x in e(group='torch_dynamo_backends')])"
    )
    result = run(installed / "python", "-c", code)
    assert result.stdout == "['equiforge._dynamo:backend']\n", result.stderr


def test_command_line(installed):
    program = ROOT / "tests/programs/mha_decode_b1.ef"
    for command in ([installed / "equiforge"], [installed / "python", "-m", "equiforge"]):
        result = run(*command, "inspect", program, "--json")
        assert (result.returncode, result.stderr) == (0, "")
        assert '"operators"' in result.stdout
    assert run(installed / "equiforge", "inspect", "/nonexistent.ef").returncode == 2


def test_libraries_come_along(installed):
    (package,) = installed.parent.glob("lib/python*/site-packages/equiforge")
    for name in ("equiforge", "libequiforge.so"):
        for line in run("ldd", package / name).stdout.splitlines():
            library, _, place = line.strip().partition(" => ")
            if place and Path(library).name not in SYSTEM:
                assert str(package.parent) in str(Path(place.split(" (")[0]).resolve()), f"{name} needs {line}"
