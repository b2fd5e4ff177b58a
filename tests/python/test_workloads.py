"""The workloads: all there, sound in float16, and the reduced ones export as they are."""

import pytest
import torch

from bench.workloads import HAS_TRANSFORMERS, WORKLOADS, History, workload

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
# Of layers of transformers: hardly more than their weights, and for GPT-OSS of 4 experts of 32.
TRANSFORMERS = {
    "llama_layer": 113.1,
    "qwen3_layer": 101.8,
    "gpt_oss_layer": 64.2,
    "deepseek_v3_layer": 266.5,
    "diffllama_layer": 60.3,
}


def test_all_there():
    suites = [case.suite for case in WORKLOADS.values()]
    layers = 10 if HAS_TRANSFORMERS else 5
    assert [suites.count(name) for name in ("programs", "attention", "layers")] == [21, 6, layers]
    for name, floor in {**FLOORS, **(TRANSFORMERS if HAS_TRANSFORMERS else {})}.items():
        assert abs(workload(name).floor_us() - floor) <= 0.1


class Growing(History):
    """Keeps what it has been given."""

    def update(self, *new, **_):
        self.past = super().update(*new)
        return self.past


@pytest.mark.parametrize("name", TRANSFORMERS)
def test_layers_of_transformers(name):
    """One token over a past gives what the layer gives for the whole sequence, at its last position."""
    pytest.importorskip("transformers")
    module, (x, keys, values, cos, _) = workload(name).make(small=True, dtype=torch.float64)
    tokens, angles = torch.randn(1, 7, x.shape[-1]).double(), torch.randn(1, 7, cos.shape[-1]).double()
    causal = torch.full((7, 7), float("-inf"), dtype=torch.float64).triu(1)[None, None]
    rotary, cache = (angles.cos(), angles.sin()), Growing(keys[:, :, :0], values[:, :, :0])
    whole = module.layer(tokens, attention_mask=causal, position_embeddings=rotary)
    before = [t[:, :6] for t in rotary]
    module.layer(tokens[:, :6], attention_mask=causal[..., :6, :6], position_embeddings=before, **{module.cache: cache})
    result = module(tokens[:, 6:], *cache.past, *(t[:, 6:] for t in rotary))
    torch.testing.assert_close(result, whole[:, 6:])


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
