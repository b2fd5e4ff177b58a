"""Which tiles are loaded through descriptors."""

import re

import modules
import pytest

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
