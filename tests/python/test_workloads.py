"""The workloads: all there, sound in float16, and the reduced ones export as they are."""

import pytest
import torch

from bench.workloads import WORKLOADS, workload

# Floors on an H200 in microseconds: bytes and operations are counted right.
FLOORS = {
    "rmsnorm_linear/B1": 7.5,
    "rmsnorm_swiglu/B16": 60.9,
    "layernorm_gemm/B8": 1.9,
    "ngpt/B16": 0.7,
    "mha_decode/B8": 120.7,
    "mha_prefill/B16": 2783.6,
    "qknorm_mla": 21.0,
    "mhc": 8.9,
    "swa_gqa": 18.9,
    "attn_sinks": 4.7,
    "diff_attn": 31.1,
}


def test_all_there():
    suites = [case.suite for case in WORKLOADS.values()]
    assert [suites.count(name) for name in ("programs", "attention", "layers")] == [21, 6, 5]
    for name, floor in FLOORS.items():
        assert abs(workload(name).floor_us() - floor) <= 0.1


@pytest.mark.parametrize("name", [name for name in WORKLOADS if "/" not in name or name.endswith("/B8")])
def test_reduced(name):
    module, inputs = workload(name).make(small=True)
    again, _ = workload(name).make(small=True)
    result = module(*inputs)
    assert result.dtype == torch.float16
    assert torch.isfinite(result).all()
    assert torch.equal(result, again(*inputs))
    exact, exact_inputs = workload(name).make(small=True, dtype=torch.float32)
    want = exact(*exact_inputs)
    assert torch.linalg.norm(result.float() - want) < 5e-3 * torch.linalg.norm(want)
    exported = torch.export.export(module, inputs)
    assert torch.equal(exported.module()(*inputs), result)
