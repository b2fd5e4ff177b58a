"""`inspect` says what a program consists of."""

import pytest
from conftest import ROOT

PROGRAMS = sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "tests/programs").rglob("*.ef"))


@pytest.mark.parametrize("program", PROGRAMS)
def test_every_program_has_inputs_outputs_and_operators(equiforge, program):
    value = equiforge.json("inspect", program)
    assert value["inputs"] and value["outputs"] and value["operators"]
    assert value["external"] == []
    for tensor in value["inputs"] + value["outputs"]:
        assert tensor["name"] and tensor["dtype"]
        assert len(tensor["shape"]) == len(tensor["dims"])
        assert all(isinstance(size, int) and size >= 1 for size in tensor["shape"])
    assert all(isinstance(count, int) and count >= 1 for count in value["operators"].values())


def test_shapes_and_counts_of_attention(equiforge):
    value = equiforge.json("inspect", "tests/programs/mha_decode_b1.ef")
    assert [tensor["name"] for tensor in value["inputs"]] == ["q", "k", "v"]
    assert value["inputs"][1] == {
        "name": "k",
        "dtype": "f16",
        "shape": [1, 32, 4096, 128],
        "dims": ["1", "h", "s", "d"],
        "type": "f16[1, h, s, d]",
    }
    assert value["outputs"][0]["shape"] == [1, 32, 1, 128]
    assert value["operators"] == {"div": 1, "exp": 1, "matmul": 2, "mul": 1, "reduce": 2, "sub": 1, "transpose": 1}


def test_text_names_everything_that_json_has(equiforge):
    result = equiforge("inspect", "tests/programs/mha_decode_b1.ef")
    assert result.returncode == 0
    assert result.stderr == ""
    for word in ("inputs", "outputs", "operators", "q", "k", "v", "o", "matmul"):
        assert word in result.stdout.split()
