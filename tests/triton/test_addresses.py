"""Addresses within tiles: which are loaded through descriptors, and how wide offsets are."""

import re

import modules
import numpy
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
    """triton.language for positions and offsets, in NumPy, whose arrays and scalars widen as Triton's do: numbers of 32
    bits until they are made longer, or all of 64."""

    int32, int64 = numpy.int32, numpy.int64

    def __init__(self, dtype):
        self.dtype = dtype

    def arange(self, start, end):
        return numpy.arange(start, end, dtype=self.dtype)

    def program_id(self, _):
        return self.dtype(1)

    def cast(self, value, dtype):
        return value.astype(max(dtype, self.dtype, key=lambda d: d(0).itemsize))

    def minimum(self, a, b):
        return numpy.minimum(self.dtype(a), self.dtype(b))

    def evaluate(self, text, scope):
        return eval(re.sub(r"\.to\((tl\.int\d+)\)", r".astype(\1)", text), {"tl": self, **scope})


def addresses(kernel):
    """All positions, offsets within tiles and scalar addresses of a kernel, in the second block and the last iteration
    of every loop: what each is in generated arithmetic, and exactly. Loops begin at 0."""
    languages = [Offsets(numpy.int32), Offsets(numpy.int64)]
    scopes, found = [{}, {}], []

    def both(text):
        return [numpy.asarray(ls.evaluate(text, scope)) for ls, scope in zip(languages, scopes, strict=True)]

    for line in kernel.splitlines():
        if loop := re.match(r" +for (\w+) in tl\.range\(0, (\d+), (\d+)", line):
            last = (int(loop[2]) - 1) // int(loop[3]) * int(loop[3])
            for language, scope in zip(languages, scopes, strict=True):
                scope[loop[1]] = language.dtype(last)
        elif named := re.match(r" +((?:i|n|at|off|long|block)(?:_\w+)?) = (.*)$", line):
            values = both(named[2])
            for scope, value in zip(scopes, values, strict=True):
                scope[named[1]] = value
            if named[1].startswith(("off_", "at_")):
                found.append((line, *values))
        for text in re.findall(r"_(?:ptr|out\d+|tmp\d+) \+ (\((?:[^()]|\((?:[^()]|\([^()]*\))*\))*\))", line):
            found.append((line, *both(text)))
    return found


def check_addresses(source):
    """Which have 64 bits in some kernel: "scalar" addresses, offsets in a "tile"."""
    wide = set()
    for kernel in source.split("@triton.jit")[1:]:
        with numpy.errstate(over="ignore"):
            found = addresses(kernel.split("\ndef launch")[0])
        assert found
        for text, generated, exact in found:
            assert numpy.array_equal(generated, exact), (text, kernel)
            if generated.dtype == numpy.int64:
                wide.add("tile" if generated.ndim else "scalar")
    return wide


@pytest.mark.parametrize(("batch", "heads", "wide"), [(1, 1, False), (4, 8, False), (8, 8, True), (8, 32, True)])
def test_offsets_do_not_overflow_within_a_tile(batch, heads, wide):
    """Scores of 8 sequences and 32 heads have 2 ** 32 elements, and a tile may have some of each."""
    source = modules.emit(
        "tests/programs/mha_prefill_b8.ef", "--schedule", f"k1.b.0={batch},k1.h.0={heads},k1.q.0=1,k1.s.0=4096"
    )
    assert ("tile" in check_addresses(source)) == wide
    assert wide == bool(re.search(r"off_\d+ = .*\.to\(tl\.int64\)", source))


COLUMNS = """program columns
dim s = 131200
dim n = 16384
input x: f16[s, n]
output y = reduce[sum, -1](transpose[1, 0](slice[-1, 0:16](x)))
"""
TURNED = """program turned
dim a = 64
dim b = 67108864
dim p = 33554432
dim q = 128
input x: f16[a, b]
output y = exp(reshape[p, q](transpose[1, 0](x)))
"""
POSITIONS = """program positions
dim p = 33554432
dim q = 128
input x: f32[1, q]
i = partition[-2, p.1](partition[-1, q.0](reshape[p, q](iota[p*q])))
total = reduce[max, p.1](reduce[max, -2](add(i, 1)))
output y = combination[-1, q.0](add(partition[-1, q.0](x), total))
"""


@pytest.mark.parametrize("tile", [64, 65536])  # iterations of the loop, and parts of a tile that is too large
def test_rows_of_a_large_matrix_are_found_in_a_loop(tile):
    source = modules.emit(FILE, "--dims", "k=65536,n=65536", "--schedule", f"n.0=64,k.1={tile}")
    assert check_addresses(source)
    assert re.search(r"for (\w+) in tl\.range(?s:.*)(\w+) = tl\.cast\(\1, tl\.int64\)(?s:.*)65536 \* \2", source)
    assert len(re.findall(r"tl\.cast\((?:at|part)_\w+, tl\.int64\)", source)) == 1  # rows of x are short


def test_keys_of_a_large_cache_are_found_in_a_loop():
    source = modules.emit("tests/triton/programs/positions_first.ef", "--dims", "s=262144,h=128")
    check_addresses(source)
    assert source.count("16384 * long_") == 2  # keys and values


@pytest.mark.parametrize("text", [TURNED, POSITIONS], ids=["divided", "positions"])
def test_what_is_divided_or_counts_positions_does_not_overflow(text, tmp_path):
    (tmp_path / "own.ef").write_text(text)
    assert check_addresses(modules.emit(tmp_path / "own.ef")) >= {"tile"}


@pytest.mark.parametrize("tiles", ["s.1=1024", "n[0:16].0=16,s.1=2000", "n[0:16].0=16,s.1=131200"])
def test_the_interpreter_finds_rows_beyond_32_bits(tiles, tmp_path):
    (tmp_path / "own.ef").write_text(COLUMNS)
    module = modules.load(modules.emit(tmp_path / "own.ef", "--schedule", tiles), tmp_path)
    x = torch.from_numpy(numpy.zeros((131200, 16384), numpy.float16))  # takes memory where it is written
    x[131199, :17] = torch.arange(17)
    x[131072, :17] = 1
    x[0, :17] = 2
    assert torch.equal(module.program(x).flatten(), torch.arange(16) + 3.0)


def test_descriptors_have_no_more_rows_than_coordinates_have_bits():
    for rows, there in ((2**31 - 64, True), (2**31 + 64, False)):
        source = modules.emit(FILE, "--dims", f"k={rows},n=16", "--schedule", "load=1,n.0=16,k.1=64")
        assert bool(re.search(r"W_tiles\d", source)) == there


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
