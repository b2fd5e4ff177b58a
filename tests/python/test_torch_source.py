"""Programs printed as PyTorch agree with the C evaluator, whole and piece by piece, and run in their own types."""

import struct
import subprocess
from pathlib import Path

import numpy as np
import pytest
import torch
from conftest import BUILD, ROOT
from memory import Memory

TYPES = {
    "bool": torch.bool,
    "i32": torch.int32,
    "i64": torch.int64,
    "f16": torch.float16,
    "bf16": torch.bfloat16,
    "f32": torch.float32,
    "f64": torch.float64,
}
# Small sizes, odd where they may be.
SMALL = {
    "m": 6,
    "k": 24,
    "n": 20,
    "f": 28,
    "r": 4,
    "b": 3,
    "h": 2,
    "d": 16,
    "s": 33,
    "e": 12,
    "q": 18,
    "hk": 2,
    "g": 3,
    "l": 14,
}
PROGRAMS = sorted((ROOT / "tests/programs").glob("*.ef"))
VARIANTS = sorted((ROOT / "tests/programs/variants").glob("*.ef"))

# Element types and numbers where torch's rules differ from the program's.
TYPES_PROGRAM = """
program types
dim m = 6
dim n = 5
input a: f16[m, n]
input b: bf16[m, n]
input s: f32[]
input i: i64[m, n]
input j: i32[n]
input c: bool[m, n]
output mixed = add(mul(a, s), b)
output whole = exp(mul(i, 0.5))
output ratio = div(i, add(j, 1))
output most = max(0.25, min(a, s))
output chosen = select(c, 0.1, -0.7)
output filled = add(full[m, n; 0.3], a)
output both = matmul(cast[f32](i), transpose[1, 0](b))
output number = mul(2, exp(1))
output logic = cast[i32](or(and(c, ge(a, 0)), not(lt(i, j))))
output rest = mod(sub(i, 4), 3)
output by_zero = add(mod(sub(i, 4), j), floordiv(sub(i, 4), j))
output quotient = floordiv(cast[f32](i), -0.7)
output of_number = floordiv(17, sub(i, 4))
output powers = add(pow(abs(a), 1.5), pow(2, a))
output joined = concat[-1](a, b, slice[-1, 1:3](i))
output picked = get[1](tuple(a, reduce[prod, -1](j), reduce[max, -1](i)))
output scalar = reshape[](reduce[sum, -1](reshape[1, n](j)))
output spread = broadcast[1, m](reshape[](s))
output cube = reshape[n*m](transpose[1, 0](broadcast[m, n](j)))
"""


def source_of(path: Path) -> str:
    result = subprocess.run(
        [BUILD / "equiforge", "inspect", path, "--torch"], capture_output=True, text=True, check=True
    )
    return result.stdout


def load(path: Path) -> dict:
    module: dict = {}
    exec(compile(source_of(path), str(path), "exec"), module)
    module["function"] = [v for v in module.values() if callable(v) and hasattr(v, "__code__")][-1]
    return module


def evaluate(path: Path, sizes: dict, out: Path) -> list[np.ndarray]:
    dims = ",".join(f"{name}={size}" for name, size in sizes.items())
    subprocess.run([BUILD / "tests/evaluate", path, dims, "1", out], check=True)
    data, at, tensors = out.read_bytes(), 0, []
    while at < len(data):
        (rank,) = struct.unpack_from("Q", data, at)
        shape = struct.unpack_from(f"{rank}Q", data, at + 8)
        at += 8 + 8 * rank
        count = int(np.prod(shape, dtype=np.int64))
        tensors.append(np.frombuffer(data, np.float64, count, at).reshape(shape))
        at += 8 * count
    return tensors


def dims_of(path: Path) -> dict:
    """Every `dim NAME = N` of the program that stands in no slice, with a small size."""
    lines = [line.split() for line in path.read_text().splitlines() if line.startswith("dim ")]
    return {words[1]: SMALL[words[1]] for words in lines if words[1] in SMALL and int(words[3]) >= SMALL[words[1]]}


def variant_sizes(path: Path) -> dict:
    """Most are small as they stand, and some have masks with positions in them."""
    if path.stem == "mla_rope_decode":  # others are sums and products
        return {"h": 3, "s": 40}
    return dims_of(path) if path.stem in ("gqa_decode", "mla_decode") else {}


def run(path: Path, sizes: dict, out: Path, dtype=None):
    """The results, the evaluator's, and the module's names."""
    module = load(path)
    tensors = evaluate(path, sizes, out)
    count = len(module["INPUTS"])
    inputs = [torch.from_numpy(x.copy()).to(TYPES[t]) for x, (_, t, _) in zip(tensors, module["INPUTS"], strict=False)]
    results = module["function"](*inputs, dtype=dtype, sizes=sizes)
    return results if isinstance(results, tuple) else (results,), tensors[count:], inputs, module


def error(result: torch.Tensor, want: np.ndarray) -> float:
    got = result.double().numpy()
    assert got.shape == want.shape
    finite = np.isfinite(want)
    assert np.array_equal(got[~finite], want[~finite], equal_nan=True)
    return float(np.linalg.norm(got[finite] - want[finite]) / max(np.linalg.norm(want[finite]), 1e-300))


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: path.stem)
def test_programs(path, tmp_path):
    sizes = dims_of(path)
    results, want, inputs, module = run(path, sizes, tmp_path / "values", torch.float64)
    assert all(error(x, y) < 1e-12 for x, y in zip(results, want, strict=True))
    # The whole, put together from pieces along each dimension that allows it.
    assert module["BATCH"] or not {"b", "m"} & set(sizes)
    for dim, (places, (place,)) in module["BATCH"].items():
        pieces = []
        for i in range(sizes[dim]):
            part = [x if at is None else x.narrow(at, i, 1) for x, at in zip(inputs, places, strict=True)]
            pieces.append(module["function"](*part, dtype=torch.float64, sizes={**sizes, dim: 1}))
        # What terms of ordinary size cancel to is as exact as they are.
        least = 1e-14 * results[0][results[0].isfinite()].abs().max().item()
        assert torch.allclose(torch.cat(pieces, place), results[0], rtol=1e-12, atol=least)


@pytest.mark.parametrize("path", VARIANTS, ids=lambda path: path.stem)
def test_variants(path, tmp_path):
    results, want, _, _ = run(path, variant_sizes(path), tmp_path / "values", torch.float64)
    assert all(error(x, y) < 1e-12 for x, y in zip(results, want, strict=True))


@pytest.mark.parametrize("path", PROGRAMS[::3] + VARIANTS, ids=lambda path: path.stem)
def test_eager(path, tmp_path):
    sizes = dims_of(path) if path in PROGRAMS else variant_sizes(path)
    results, want, _, module = run(path, sizes, tmp_path / "values")
    for x, y, (_, dtype, _) in zip(results, want, module["OUTPUTS"], strict=True):
        assert x.dtype == TYPES[dtype]
        # Weights of deviation 1 make some programs hard on float16.
        assert error(x, y) < 3e-2


def test_types(tmp_path):
    path = tmp_path / "types.ef"
    path.write_text(TYPES_PROGRAM)
    results, want, _, module = run(path, {}, tmp_path / "values", torch.float64)
    for x, y, (name, _, _) in zip(results, want, module["OUTPUTS"], strict=True):
        assert error(x, y) < 1e-12, name
    results, want, _, module = run(path, {}, tmp_path / "values")
    for x, y, (name, dtype, _) in zip(results, want, module["OUTPUTS"], strict=True):
        assert error(x, y) < 1e-2, name
        assert x.dtype == TYPES[dtype], name


def test_twins(tmp_path):
    """Rows that are scored against each other are two dimensions, and neither can be cut; sizes change both."""
    path = tmp_path / "twins.ef"
    path.write_text(
        "program twins\ndim b = 3\ndim s = 40\ndim d = 8\ninput x: f32[b, s, d]\n"
        "output y = matmul(matmul(x, transpose[0, 2, 1](x)), x)\noutput z = slice[-2, 0:7](x)\n"
    )
    results, want, _, module = run(path, {}, tmp_path / "values", torch.float64)
    assert all(error(x, y) < 1e-12 for x, y in zip(results, want, strict=True))
    assert list(module["BATCH"]) == ["b"]


def test_tiled_programs_are_refused():
    path = ROOT / "tests/derivations/lora_b16_one_kernel.ef"
    result = subprocess.run(
        [BUILD / "equiforge", "inspect", path, "--torch"], capture_output=True, text=True, check=False
    )
    assert (result.returncode, result.stdout) == (2, "")
    assert "tiled" in result.stderr


@pytest.mark.parametrize("dtype", [None, torch.float64])
def test_large_tensors_are_freed(dtype):
    """Of attention's scores no more are there at a time than the operator that works on them reads and writes, as in
    the module that it came from: at its full size, 16 GiB each in its own type."""
    path = ROOT / "tests/programs/mha_prefill_b16.ef"
    module = load(path)
    inputs = [torch.empty(shape, dtype=TYPES[t], device="meta") for _, t, shape in module["INPUTS"]]
    size = 2 if dtype is None else 8
    scores, given = 16 * 32 * 4096 * 4096 * size, 16 * 32 * 4096 * 128 * size
    with Memory() as memory:
        result = module["function"](*inputs, dtype=dtype)
    assert result.shape == (16, 32, 4096, 128)
    assert 2 * scores <= memory.peak <= 2 * scores + 4 * given + (64 << 20)


def test_means_are_whole(tmp_path):
    """A sum that needs a large variable last stands inside the division all the same: apart, it would be rounded."""
    path = tmp_path / "mean.ef"
    path.write_text(
        "program mean\ndim m = 4096\ndim n = 4096\ninput x: f16[m, n]\ny = mul(x, x)\n"
        "output z = exp(div(reduce[sum, -1](y), 4096))\n"
    )
    lines = [line.strip() for line in source_of(path).splitlines()]
    assert lines[-6:] == ["y = x * x", "del x", "t0 = _mean(y, -1, 4096)", "del y", "z = torch.exp(t0)", "return z"]
