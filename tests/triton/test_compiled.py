"""Generated Triton compiled for GPUs that are not here: full sizes, the default schedule, and blocks that go round."""

import json
import os
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


@pytest.mark.parametrize("persist", [0, 2])
@pytest.mark.parametrize("arch", SHARED)
def test_default_schedules_compile_without_spills(arch, persist, tmp_path):
    paths = []
    for file in FILES:
        paths.append(tmp_path / (file.replace("/", "_") + ".py"))
        paths[-1].write_text(modules.emit(f"tests/{file}.ef", "--schedule", f"persist={persist}"))
    environment = {**os.environ, "TRITON_INTERPRET": "0", "TRITON_CACHE_DIR": str(tmp_path / "cache")}
    script = modules.ROOT / "tests" / "triton" / "compiling.py"
    command = [sys.executable, script, str(arch), *paths]
    result = subprocess.run(command, check=False, capture_output=True, text=True, env=environment, timeout=600)
    assert result.returncode == 0, result.stderr[-2000:]
    reports = [json.loads(line) for line in result.stdout.splitlines()]
    assert len(reports) == len(FILES)
    for file, kernels in zip(FILES, reports, strict=True):
        assert kernels, file
        for kernel in kernels:
            assert kernel["shared"] <= SHARED[arch], (file, kernel)
            assert kernel["spilled"] == 0, (file, kernel)
