"""Generated Triton in Triton's interpreter: every program and every derivation, at small and odd sizes, under the
default schedule and under drawn ones, against generated C, which the unit tests compare with the float64 evaluator."""

import math
import os
import random
import re
import subprocess
import sys

import modules
import pytest
import torch

FOLDERS = ("derivations", "programs", "programs/variants", "triton/programs")
FILES = [f for folder in FOLDERS for f in sorted((modules.ROOT / "tests" / folder).glob("*.ef"))]
FILES = [f for f in FILES if "_b8" not in f.stem]
EXTENTS = (3, 5, 17, 20, 33)
TILES = (4, 8, 16, 16, 32)
DRAWS = int(os.environ.get("DRAWS", "1"))  # schedules drawn for each file


def settings(text, random):
    """Small extents for what may change, as an option; and tiles for all axes that may be there."""
    extents = dict(re.findall(r"^dim (\w+) = (\d+)", text, re.M))
    sliced = set(re.findall(r"slice\[-?\d+, \d+:(\d+)\]", text))  # up to their ends: those keep their extents
    dims = [name for name, extent in extents.items() if extent not in sliced]
    few = {name: random.choice((2, 3)) for name in dims if name[0] in "bhg"}
    if "concat[" in text:  # extents that are sums of others: heads and positions are none
        dims = [name for name in dims if name in few or name == "s"]
    sizes = [f"{name}={few.get(name) or random.choice(EXTENTS)}" for name in dims]
    tiles = {f"{name}.{level}": random.choice(TILES) for name in extents for level in (0, 1)}
    return ["--dims", ",".join(sizes)] if sizes else [], tiles


def legal(source, tiles):
    """Those of the tiles whose axes the program has; joined variables, as in hk*g*d, have the tile of the first one."""
    names = set(re.findall(r"(?<![\w*])(?:k\d+\.)?([A-Za-z_][\w*]*\.[01])=", source))
    chosen = {name: tiles.get(re.sub(r"\*[^.]*", "", name)) for name in sorted(names)}
    return [f"{name}={extent}" for name, extent in chosen.items() if extent]


def check(file, arguments, folder, seed, most=3e-3):
    module = modules.load(modules.emit(file, *arguments), folder)
    inputs = modules.inputs_of(module, seed)
    outputs = module.program(*inputs)
    outputs = outputs if isinstance(outputs, tuple) else (outputs,)
    dims = arguments[arguments.index("--dims") : arguments.index("--dims") + 2] if "--dims" in arguments else []
    reference = modules.run_c(modules.emit(file, "--language", "c", *dims), module, inputs, folder)
    assert max(modules.error(a, b) for a, b in zip(outputs, reference, strict=True)) < most


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_the_default_schedule_gives_what_c_gives(file, tmp_path):
    sizes, _ = settings(file.read_text(), random.Random(file.stem))
    check(file, sizes, tmp_path, seed=1)


@pytest.mark.parametrize("draw", range(DRAWS))
@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_drawn_schedules_give_what_c_gives(file, draw, tmp_path):
    draws = random.Random(f"{file.stem} {draw}")
    sizes, tiles = settings(file.read_text(), draws)
    source = modules.emit(file, *sizes)
    chosen = [*legal(source, tiles), f"unit={draws.randrange(4) > 0:d}"]
    others = {"load": (0, 1), "order": (0, 1), "group": (1, 2, 4), "persist": (0, 1, 2), "overlap": range(5)}
    chosen += [f"{name}={draws.choice(values)}" for name, values in others.items()]
    try:
        check(file, [*sizes, "--schedule", ",".join(chosen)], tmp_path, seed=draw)
    except modules.Refused as refusal:
        if "unit=0" not in chosen:
            raise
        assert "elements" in str(refusal)  # too large without the matrix unit


@pytest.mark.parametrize("tiles", ["s.0=64,s.1=16", "s.0=256,s.1=32", "s.0=600,s.1=128", "s.0=48,s.1=48,order=1"])
def test_parts_that_a_mask_empties_are_left_out(tiles, tmp_path):
    """At its own size: the first 3 and the last 40 of 600 positions."""
    check("tests/derivations/sink_window_split.ef", ["--schedule", tiles], tmp_path, seed=5)


@pytest.mark.parametrize("each", [1, 2])
@pytest.mark.parametrize("file", ["mha_prefill_b1_rolling", "mha_decode_b16_split", "rmsnorm_swiglu_b16_two_kernels"])
def test_few_blocks_go_round_over_the_grid(file, each, tmp_path):
    file = f"tests/derivations/{file}.ef"
    sizes, tiles = settings((modules.ROOT / file).read_text(), random.Random(file))
    source = modules.emit(file, *sizes)
    chosen = [*legal(source, dict.fromkeys(tiles, 4)), f"persist={each}"]
    source = modules.emit(file, *sizes, "--schedule", ",".join(chosen))
    blocks = [int(n) for n in re.findall(r"for turn in tl.range\(tl.program_id\(0\), (\d+), tl.num_programs", source)]
    assert source.count("_resident(") == len(blocks) + 1  # and its definition
    assert any(n > 4 * each for n in blocks)  # the interpreter's device has two multiprocessors
    check(file, [*sizes, "--schedule", ",".join(chosen)], tmp_path, seed=7)


@pytest.mark.parametrize("file", ["programs/lora_b1", "programs/mha_decode_b1", "derivations/mha_decode_b1_split"])
def test_kernels_that_begin_early_run_as_they_stand(file, tmp_path):
    """In an interpreter of the user's own, with nothing around the printed file."""
    file = f"tests/{file}.ef"
    sizes, _ = settings((modules.ROOT / file).read_text(), random.Random(file))
    first, second = (modules.emit(file, *sizes, "--schedule", f"overlap={overlap}") for overlap in (0, 1))
    assert "gdc_" not in first
    assert second.count("    gdc_wait()\n") == second.count("launch_pdl=True") > 0
    for name, source in (("first", first), ("second", second)):
        (tmp_path / f"{name}.py").write_text(source)
    script = (
        "import torch, first, second\n"
        "x = [torch.randn(shape).to(dtype) for _, dtype, shape in first.INPUTS]\n"
        "assert torch.equal(first.program(*x), second.program(*x))\n"
    )
    environment = {**os.environ, "TRITON_INTERPRET": "1"}
    command = [sys.executable, "-W", "ignore", "-c", script]
    result = subprocess.run(
        command, check=False, capture_output=True, text=True, cwd=tmp_path, env=environment, timeout=300
    )
    assert result.returncode == 0, result.stderr[-2000:]


@pytest.mark.parametrize(("dtype", "most"), [("bf16", 1e-2), ("f32", 1e-5), ("f64", 1e-12)])
def test_other_types(dtype, most, tmp_path):
    file = tmp_path / "typed.ef"
    file.write_text((modules.ROOT / "tests/derivations/rmsnorm_mlp_b16_fused.ef").read_text().replace("f16", dtype))
    check(file, ["--dims", "m=5,k=40,n=20", "--schedule", "k.1=16"], tmp_path, seed=3, most=most)


def test_large_tiles_are_refused_in_one_line():
    with pytest.raises(modules.Refused) as refusal:
        modules.emit("tests/derivations/mha_prefill_b1_rolling.ef", "--schedule", "q.0=4096,s.1=4096,h.0=32")
    assert len(str(refusal.value).splitlines()) == 1
    assert "elements" in str(refusal.value)


def test_a_causal_loop_has_a_part_without_masks():
    source = modules.emit("tests/derivations/mha_prefill_b1_rolling.ef")
    loops = re.split(r"^    for ", source, flags=re.M)[1:]
    assert len(loops) == 2
    assert "tl.where(ge_" not in loops[0]
    assert "tl.where(ge_" in loops[1]


def test_whole_tiles_have_no_masks():
    source = modules.emit("tests/derivations/gated_mlp_b16_fused.ef")
    assert "mask=" not in source
    assert source.count("tl.dot(") == 2


def test_exponentials_have_base_2_and_rows_carry_the_guards():
    source = modules.emit("tests/derivations/mha_prefill_b1_rolling.ef")
    loop = source.split("for at_s")[1]
    assert "tl.exp(" not in source
    assert not re.search(r"tl\.where\([^)]*product", loop)
    assert "* 0.12751743082459868" in loop  # the scale times log2(e), once an element


def test_descriptors_stand_for_whole_blocks():
    file = "tests/derivations/gated_mlp_b16_fused.ef"
    assert modules.emit(file, "--schedule", "load=1").count("TensorDescriptor(inputs") == 3
    assert "TensorDescriptor" not in modules.emit(file, "--schedule", "load=1", "--dims", "k=4100,n=4100")


def test_a_row_is_read_once():
    source = modules.emit("tests/derivations/ngpt_b16_rows.ef")
    assert source.count("tl.load(") == 3
    assert "for " not in source.split("@triton.jit")[1].split("def launch")[0]


def test_products_add_to_the_state_where_scores_are_summed_up_in_a_loop_of_their_own():
    """The maximum of a tile is replaced by the running one although a loop computes what it is the maximum of."""
    source = modules.emit("tests/triton/programs/head_in_parts.ef")
    assert len(re.findall(r"tl\.dot\(\w+, v_\w+, \w+\)", source)) == 2


def test_operands_that_are_products_of_halves_are_multiplied_as_halves(tmp_path):
    """Exact in float32 and rounded to float16, or rounded once in float16: the same."""
    source = modules.emit(
        "tests/derivations/rmsnorm_linear_b16_fused.ef", "--dims", "k=64,n=32", "--schedule", "unit=1"
    )
    product = re.search(r"(\w+) = (x_\d+) \* (g_\d+)\n", source)
    assert product, source
    assert f"tl.dot({product[1]}, W_" in source
    widened = source.replace(
        product[0], f"{product[1]} = ({product[2]}.to(tl.float32) * {product[3]}).to(tl.float16)\n"
    )
    inputs = modules.inputs_of(modules.load(source, tmp_path))
    for scale in (1.0, 6e4, 3e-6):  # beyond the largest, below the least normal
        inputs[1] = inputs[1] * scale
        results = [modules.load(text, tmp_path, f"m{i}").program(*inputs) for i, text in enumerate((source, widened))]
        assert modules.error(*results) == 0
        inputs[1] = inputs[1] / scale


def test_rows_are_divided_by_tiny_and_large_numbers(tmp_path):
    """A row's divisor is inverted once, also where its inverse is beyond the largest number."""
    file = tmp_path / "rows.ef"
    file.write_text(
        "program rows\ndim m = 8\ndim n = 64\ninput x: f32[m, n]\ninput d: f32[m, 1]\noutput y = div(x, d)\n"
    )
    source = modules.emit(file)
    assert "inverse_" in source
    module = modules.load(source, tmp_path)
    divisors = torch.tensor([1.0, -3e-45, 7e-39, 2e-31, 1.7e38, 3e38, 0.0, math.inf], dtype=torch.float32)[:, None]
    x = torch.linspace(-2, 2, 8 * 64).reshape(8, 64)
    x[:4] *= divisors[:4].abs()
    found, exact = module.program(x, divisors), x.double() / divisors.double()
    assert torch.allclose(found.double(), exact, rtol=1e-6, atol=1e-45, equal_nan=True)
