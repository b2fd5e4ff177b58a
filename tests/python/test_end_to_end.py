"""PyTorch modules through the exporter, the reader, the translation and the runtime, without search or tuning: every
region is its program as it stands, one kernel an operator."""

import dataclasses
import subprocess

import pytest
import torch
from conftest import BUILD

from bench.workloads import WORKLOADS, workload
from equiforge import _accuracy, _native
from equiforge._module import Attached, Call, OptimizedModule
from equiforge._optimize import export, load, tensors_of
from equiforge._plan import Plan


def untuned(module, args, folder, language="c") -> OptimizedModule:
    kwargs: dict = {}
    exported = export(module, args, kwargs)
    torch.export.save(exported, folder / "module.pt2")
    command = [BUILD / "tests/plan", folder / "module.pt2", folder / "module.efz"]
    command += ["triton"] if language == "triton" else []
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    handle = _native.PlanHandle(folder / "module.efz", threads=2)
    call = Call.example(args, kwargs, module)
    plan = Plan.of(handle.description())
    fast = OptimizedModule(module, plan, call, handle=handle, attached=Attached.to(exported))
    fast.__dict__.update(_exported=exported, _file=(folder / "module.efz").read_bytes())
    return fast


def difference(fast, module, args) -> float:
    with torch.no_grad():
        return _accuracy.error(tensors_of(fast(*args)), [x.double() for x in tensors_of(module(*args))])


@pytest.mark.parametrize("name", [name for name in WORKLOADS if "/" not in name or name.endswith("/B16")])
def test_workloads(name, tmp_path):
    module, args = workload(name).make(small=True)
    fast = untuned(module, args, tmp_path)
    # The choice of experts is PyTorch's.
    routing = {"aten.topk.default", "aten.index.Tensor"} if name == "gpt_oss_layer" else set()
    assert set(fast.plan.external) == routing
    assert difference(fast, module, args) < 5e-3
    other = tuple(x + 0.25 for x in args)
    assert difference(fast, module, other) < 5e-3


@pytest.mark.skipif(torch.cuda.is_available(), reason="the interpreter is for machines without a GPU")
@pytest.mark.parametrize("name", [name for name in WORKLOADS if "/" not in name or name.endswith("/B8")])
def test_workloads_in_triton(name, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    module, args = workload(name).make(small=True)
    fast = untuned(module, args, tmp_path, "triton")
    assert {region.language for region in fast.plan.regions} == {"triton"}
    # Nothing faster than PyTorch was found (nothing was looked for): PyTorch's operators run.
    assert all(region.torch for region in fast.plan.regions)
    assert difference(fast, module, args) < 5e-3
    plan = dataclasses.replace(
        fast.plan, regions=tuple(dataclasses.replace(region, torch="") for region in fast.plan.regions)
    )
    kernels = OptimizedModule(module, plan, fast._call, attached=fast._attached)
    assert difference(kernels, module, args) < 5e-3


def test_file_with_weights(tmp_path):
    module, args = workload("attn_sinks").make(small=True)
    fast = untuned(module, args, tmp_path)
    fast.save(tmp_path / "whole.efz")
    alone = load(tmp_path / "whole.efz")
    assert list(alone.state_dict()) == list(module.state_dict())
    assert difference(alone, fast, args) == 0
    # Weights that changed since are those that are saved.
    module.Wo.mul_(2)
    fast.save(tmp_path / "again.efz")
    assert difference(load(tmp_path / "again.efz"), module, args) < 5e-3
    fast.save(tmp_path / "bare.efz", weights=False)
    assert (tmp_path / "bare.efz").stat().st_size < (tmp_path / "whole.efz").stat().st_size
    other, _ = workload("attn_sinks").make(small=True, seed=5)
    assert difference(load(tmp_path / "bare.efz", other), other, args) < 5e-3
    with pytest.raises(Exception, match="is not in the file"):
        load(tmp_path / "bare.efz")


@pytest.mark.parametrize("name", ["llama", "qwen3", "mistral", "gemma", "diffllama", "deepseek_v3", "gpt_oss", "vit"])
def test_layers_of_transformers(name, tmp_path):
    """Modules that nobody here wrote, unchanged."""
    layers = pytest.importorskip("tests.frontend.layers")
    module = layers.LAYERS[name]()
    x = torch.randn(layers.BATCH, layers.LENGTH, layers.WIDTH)
    fast = untuned(module, (x,), tmp_path)
    assert fast.plan.kernels > 0
    assert difference(fast, module, (x,)) < 1e-4
    assert difference(fast, module, (torch.randn_like(x),)) < 1e-4
    print(name, fast.plan.kernels, "kernels; external:", sorted(set(fast.plan.external)))
