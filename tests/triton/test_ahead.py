"""What a kernel asks for before it waits: in the interpreter, the addresses; compiled, the instruction."""

import os
import subprocess
import sys

import modules
import pytest
import triton.language as tl

FILE = "tests/derivations/rmsnorm_swiglu_b16_two_kernels.ef"
SIZES = ["--dims", "m=16,k=64,f=96,n=64"]
TILES = "m.0=16,k.1=32,f.0=32,n.0=32,f.1=16"


def run(tmp_path, monkeypatch, schedule, inputs=None):
    """The module, its inputs and result, and what was asked for: addresses of rows, and bytes of each."""
    source = modules.emit(FILE, *SIZES, "--schedule", schedule)
    module = modules.load(source, tmp_path)
    asked = []

    def ask(rows, length):
        asked.extend((int(address), int(length)) for address in rows.handle.data.reshape(-1))

    for name in ("gdc_wait", "gdc_launch_dependents"):
        monkeypatch.setattr(tl.extra.cuda, name, lambda: None)
    if hasattr(module, "_ask"):
        monkeypatch.setattr(module, "_ask", ask)
    inputs = inputs or modules.inputs_of(module)
    return inputs, module.program(*inputs), asked


@pytest.mark.parametrize("steps", [2, 4, 16])
def test_the_first_iterations_of_a_weight_are_asked_for(steps, tmp_path, monkeypatch):
    inputs, result, asked = run(tmp_path, monkeypatch, f"{TILES},k0.overlap=0,k1.overlap={steps}")
    _, plain, nothing = run(tmp_path, monkeypatch, f"{TILES},overlap=0", inputs)
    assert not nothing
    assert modules.error(result, plain) == 0
    weight = inputs[4]  # W2[f, n]
    element, columns, rows = weight.element_size(), weight.shape[1], min(16 * steps, weight.shape[0])
    wanted = {
        (weight.data_ptr() + element * (row * columns + column), 32 * element)
        for row in range(rows)
        for column in range(0, columns, 32)
    }
    assert {a for a in asked if weight.data_ptr() <= a[0] < weight.data_ptr() + weight.nbytes} == wanted
    assert wanted == set(asked)  # the gate is another kernel's


def test_nothing_is_asked_for_with_masks_or_odd_rows(tmp_path, monkeypatch):
    sizes = ["--dims", "m=16,k=64,f=90,n=60"]
    source = modules.emit(FILE, *sizes, "--schedule", f"{TILES},k0.overlap=0,k1.overlap=4")
    assert "gdc_wait" in source
    assert "_ask" not in source


@pytest.mark.parametrize("arch", [90, 120])
def test_asking_compiles_to_the_instruction(arch, tmp_path):
    path = tmp_path / "module.py"
    path.write_text(modules.emit(FILE, "--schedule", "k1.overlap=4"))
    script = modules.ROOT / "tests" / "triton" / "compiling.py"
    environment = {**os.environ, "TRITON_INTERPRET": "0", "TRITON_CACHE_DIR": str(tmp_path / "cache")}
    result = subprocess.run(
        [sys.executable, script, str(arch), path], check=False, capture_output=True, text=True, env=environment
    )
    assert result.returncode == 0, result.stderr[-2000:]
    kernels = [file.read_text() for file in (tmp_path / "cache").rglob("*.ptx")]
    assert sum("cp.async.bulk.prefetch.L2.global" in text for text in kernels) == 1
