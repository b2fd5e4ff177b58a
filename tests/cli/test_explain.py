"""`explain` shows why two programs are equal, and does not when they are not."""

import json

import pytest

HEAD = """program {name}
dim m = 16
dim k = 64
dim n = 32
input a: f32[m, k]
input b: f32[k, n]
input c: f32[k, n]
"""


@pytest.fixture
def program(tmp_path):
    """Writes a program over a: [m, k], b and c: [k, n] and returns its path."""

    def write(name: str, *statements: str):
        path = tmp_path / f"{name}.ef"
        path.write_text(HEAD.format(name=name) + "\n".join(statements) + "\n")
        return path

    return write


def explain(equiforge, left, right, *arguments):
    result = equiforge("explain", "--from", left, "--to", right, "--json", *arguments)
    return result, json.loads(result.stdout)


def test_distributed_matmul_is_explained_and_checked(equiforge, program):
    left = program("left", "output o = add(matmul(a, b), matmul(a, c))")
    right = program("right", "output o = matmul(a, add(b, c))")
    result, value = explain(equiforge, left, right)
    assert result.returncode == 0, result.stderr
    assert value["equal"] is value["contained"] is value["checked"] is True
    names = {rule["name"] for rule in equiforge.json("rules")["rules"]}
    assert value["steps"]
    assert all(step["output"] == "o" and step["before"] != step["after"] for step in value["steps"])
    assert {step["rule"] for step in value["steps"]} <= names


def test_a_program_is_equal_to_itself_in_no_steps(equiforge):
    program = "tests/programs/lora_b1.ef"
    result, value = explain(equiforge, program, program)
    assert result.returncode == 0, result.stderr
    assert value["equal"] is value["contained"] is value["checked"] is True
    assert value["steps"] == []


def test_text_ends_with_the_verdict(equiforge, program):
    left = program("left", "output o = add(matmul(a, b), matmul(a, c))")
    right = program("right", "output o = matmul(a, add(b, c))")
    result = equiforge("explain", "--from", left, "--to", right)
    assert result.returncode == 0, result.stderr
    assert result.stderr == ""
    assert "add(matmul(a, b), matmul(a, c))" in result.stdout
    last = result.stdout.splitlines()[-1]
    assert last.startswith("equal: yes, contained: yes, steps: ")
    assert last.endswith(", checked: yes")


def test_different_programs_are_not_equal(equiforge, program):
    left = program("left", "output o = matmul(a, b)")
    right = program("right", "output o = matmul(a, c)")
    result, value = explain(equiforge, left, right)
    assert result.returncode == 1
    assert value["equal"] is value["contained"] is value["checked"] is False
    assert value["steps"] == []
    assert value["saturated"] is True
    assert len(result.stderr.splitlines()) == 1
    assert "complete" in result.stderr


def test_text_says_why_they_are_not_equal_by_file_where_names_are_one(equiforge, program):
    left = program("left", "output o = matmul(a, b)")
    right = program("right", "output o = matmul(a, c)")
    result = equiforge("explain", "--from", left, "--to", right)
    assert (result.returncode, result.stderr) == (1, "")
    verdict, reason = result.stdout.splitlines()[-2:]
    assert verdict.startswith("equal: no")
    assert reason.startswith("left and right are not equal")
    right.write_text(right.read_text().replace("program right", "program left"))
    result = equiforge("explain", "--from", left, "--to", right)
    assert result.stdout.splitlines()[-1].startswith(f"{left} and {right} are not equal")


def test_a_limit_is_named_when_it_ended_the_search(equiforge, program):
    left = program("left", "output o = add(matmul(a, b), matmul(a, c))")
    right = program("right", "output o = matmul(a, sub(b, c))")
    result, value = explain(equiforge, left, right, "--node-limit", 5)
    assert result.returncode == 1
    assert value["equal"] is value["saturated"] is False
    assert "node limit" in result.stderr


@pytest.mark.parametrize(
    "statements",
    [
        ("output o = matmul(a, b)", "output p = matmul(a, c)"),  # another number of outputs
        ("output o = b",),  # another type
    ],
)
def test_incomparable_programs_are_bad_input(equiforge, program, statements):
    left = program("left", "output o = matmul(a, b)")
    right = program("right", *statements)
    result = equiforge("explain", "--from", left, "--to", right, "--json")
    assert (result.returncode, result.stdout) == (2, "")
    assert len(result.stderr.splitlines()) == 1


def test_inputs_of_both_programs_agree_by_name(equiforge, program, tmp_path):
    left = program("left", "output o = matmul(a, b)")
    right = tmp_path / "right.ef"
    right.write_text(HEAD.format(name="right").replace("dim k = 64", "dim k = 65") + "output o = matmul(a, b)\n")
    result = equiforge("explain", "--from", left, "--to", right)
    assert (result.returncode, result.stdout) == (2, "")
    assert "right.ef:3" in result.stderr


def test_a_file_that_is_not_there_is_said_not_to_be(equiforge, tmp_path):
    for name in ("module.pt2", "module.efz"):
        result = equiforge("explain", tmp_path / name)
        assert result.returncode == 2 and result.stderr.count("\n") == 1
        assert f"{name}: " in result.stderr and "o such file" in result.stderr, result.stderr
