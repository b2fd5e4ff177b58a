"""Addresses within tiles: which are loaded through descriptors, and how wide offsets are."""

import re

import modules
import pytest
import torch

FILE = "tests/derivations/rmsnorm_linear_b16_fused.ef"


@pytest.mark.parametrize(
    ("rows", "depth", "blocks"),
    [
        (16, 32, {"x": [16, 32], "W": [16, 64]}),  # of weights a part at a time
        (2, 32, {"x": [2, 32], "W": [32, 64]}),  # 128 bytes
        (2, 16, {"W": [16, 64]}),  # 64 bytes: the second of two would not begin at a multiple of 128
        (16, 4, {"W": [4, 64]}),  # rows of 8 bytes
    ],
)
def test_tiles_begin_where_the_copy_engine_can_write(rows, depth, blocks):
    schedule = f"m.0={rows},k.1={depth},n.0=64,load=1,unit=0,stages=4"
    source = modules.emit(FILE, "--dims", "k=64,n=64", "--schedule", schedule)
    names = re.findall(r'^    \("(\w+)", torch', source, re.M)
    found = re.findall(r"TensorDescriptor\(inputs\[(\d)\], \[.*?\], \[.*?\], \[(\d+), (\d+)\]\)", source)
    assert {names[int(at)]: [int(r), int(c)] for at, r, c in found} == blocks


class Offsets:
    """triton.language for offsets: positions are numbers of 32 bits, or exact."""

    int64 = torch.int64

    def __init__(self, dtype):
        self.dtype = dtype

    def arange(self, start, end):
        return torch.arange(start, end, dtype=self.dtype)


@pytest.mark.parametrize(("batch", "heads"), [(1, 1), (4, 8), (8, 8), (8, 32)])
def test_offsets_do_not_overflow_within_a_tile(batch, heads):
    """Scores of 8 sequences and 32 heads have 2 ** 32 elements, and a tile may have some of each."""
    source = modules.emit(
        "tests/programs/mha_prefill_b8.ef", "--schedule", f"k2.b.0={batch},k2.h.0={heads},k2.q.0=1,k2.s.0=4096"
    )
    for kernel in source.split("@triton.jit")[1:]:
        found = [{"tl": Offsets(dtype)} for dtype in (torch.int32, torch.float64)]
        for name, text in re.findall(r"^ +((?:i|off)_\w+) = (.*)$", kernel, re.M):
            for scope in found:
                exact = text.replace(".to(tl.int64)", "") if scope is found[1] else text
                scope[name] = eval(exact, scope)
        for name, offsets in found[1].items():
            if name.startswith("off_"):
                assert torch.equal(found[0][name].double(), offsets), (name, kernel)


def lines_of(file, *arguments):
    source = modules.emit(f"tests/{file}.ef", *arguments)
    return [line.strip() for line in source.split("@triton.jit")[-1].splitlines()]


def first(lines, *parts):
    return next(i for i, line in enumerate(lines) if all(part in line for part in parts))


def test_loads_stand_before_the_reductions_that_threads_wait_in():
    lines = lines_of("derivations/ngpt_b16_rows")
    loads = [i for i, line in enumerate(lines) if "tl.load(" in line]
    assert len(loads) == 3
    assert max(loads) < first(lines, "tl.sum(")


def test_little_is_loaded_before_a_loop_for_what_comes_after_it():
    """A bias is; a tile as large as the result would take registers all the while."""
    bias = lines_of("derivations/layernorm_gemm_b16_two_kernels", "--schedule", "unit=1,warps=2")
    assert first(bias, "tl.load(", "c_ptr") < first(bias, "for ", "tl.range(") < first(bias, "tl.dot(")
    part = lines_of("triton/programs/residual", "--schedule", "unit=1,warps=1")
    assert first(part, "for ", "tl.range(") < first(part, "tl.dot(") < first(part, "tl.load(", "r_ptr")
