"""Generated Triton compiled for GPUs that are not here: full sizes, the default schedule, and blocks that go round; and
schedules of which Triton 3.6 failed to compile what was once generated. The Triton is the first one in PYTHONPATH."""

import json
import os
import re
import subprocess
import sys

import modules
import pytest

SHARED = {80: 163 * 1024, 90: 227 * 1024, 120: 99 * 1024}
FILES = [
    "derivations/gated_mlp_b16_fused",
    "derivations/mha_decode_b1_split",
    "derivations/mha_prefill_b1_rolling",
    "derivations/rmsnorm_mlp_b1_fused",
    "derivations/ngpt_b16_rows",
    "programs/lora_b8",
    "triton/programs/divisions",
]


def compiled(arch, folder, *paths):
    """What compiling.py says of each file's kernels."""
    environment = {**os.environ, "TRITON_INTERPRET": "0", "TRITON_CACHE_DIR": str(folder / "cache")}
    script = modules.ROOT / "tests" / "triton" / "compiling.py"
    command = [sys.executable, script, str(arch), *paths]
    result = subprocess.run(command, check=False, capture_output=True, text=True, env=environment, timeout=600)
    assert result.returncode == 0, result.stderr[-2000:]
    return [json.loads(line) for line in result.stdout.splitlines()]


@pytest.mark.parametrize("persist", [0, 2])
@pytest.mark.parametrize("arch", SHARED)
def test_default_schedules_compile_without_spills(arch, persist, tmp_path):
    paths = []
    for file in FILES:
        paths.append(tmp_path / (file.replace("/", "_") + ".py"))
        paths[-1].write_text(modules.emit(f"tests/{file}.ef", "--schedule", f"persist={persist}"))
    reports = compiled(arch, tmp_path, *paths)
    assert len(reports) == len(FILES)
    for file, kernels in zip(FILES, reports, strict=True):
        assert kernels, file
        for kernel in kernels:
            assert kernel["shared"] <= SHARED[arch], (file, kernel)
            assert kernel["spilled"] == 0, (file, kernel)


@pytest.mark.parametrize("file", ["programs/lora_b1", "derivations/mha_decode_b1_split"])
def test_waits_compile_as_if_called_in_triton_itself(file, tmp_path):
    """Printed modules have names of their own for them, which do nothing in the interpreter."""
    source = modules.emit(f"tests/{file}.ef", "--schedule", "overlap=1")
    plain = re.sub(r"    (gdc_\w+\(\))", r"    tl.extra.cuda.\1", source)
    assert plain.count("tl.extra.cuda.gdc_wait()") == source.count("launch_pdl=True")
    for name, text in (("ours", source), ("plain", plain)):
        (tmp_path / f"{name}.py").write_text(text)
    ours, named = compiled(90, tmp_path, tmp_path / "ours.py", tmp_path / "plain.py")
    assert [kernel["waits"] for kernel in ours] == [1] * len(ours)
    assert [kernel["code"] for kernel in ours] == [kernel["code"] for kernel in named]


SMALL = [
    *[("merged_rows", f"h.0=32,e.0={n},s.0=64,warps=1") for n in (2, 4, 8)],  # a thread has a row
    *[("merged_rows", f"h.0=32,e.0={n},s.0=64,warps=2") for n in (2, 8)],  # half a row
    *[("two_passes", f"m.0={rows},n.1={n},warps=1") for rows, n in [(2, 64), (8, 128), (8, 512)]],
    ("two_passes", "m.0=16,n.1=1024,warps=8"),
]


@pytest.mark.parametrize("arch", SHARED)
def test_small_tiles_of_few_warps_compile(arch, tmp_path):
    paths = [tmp_path / f"{number}.py" for number in range(len(SMALL))]
    for path, (file, schedule) in zip(paths, SMALL, strict=True):
        path.write_text(modules.emit(f"tests/triton/programs/{file}.ef", "--schedule", f"{schedule},stages=2"))
    assert all(compiled(arch, tmp_path, *paths))
