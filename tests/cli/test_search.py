"""`search` saturates a program and reports the size of its e-graph."""

import os

import pytest

PROGRAM = "tests/programs/rmsnorm_linear_b1.ef"


@pytest.mark.parametrize("name", ["rmsnorm_linear_b1", "lora_b1", "mha_decode_b1"])
def test_small_programs_saturate(equiforge, name):
    value = equiforge.json("search", f"tests/programs/{name}.ef")
    assert value["saturated"] is True
    assert value["stop"] == "saturated"
    assert value["enodes"] >= value["eclasses"] > 10
    assert value["iterations"] >= 2
    assert value["saturation_s"] >= 0
    assert value["peak_mb"] > 0
    for key in ("enodes", "eclasses", "iterations"):
        assert isinstance(value[key], int)


def test_search_is_deterministic(equiforge):
    first, second = (equiforge.json("search", PROGRAM) for _ in range(2))
    for key in ("enodes", "eclasses", "iterations", "stop"):
        assert first[key] == second[key]


def test_node_limit_ends_cleanly(equiforge):
    value = equiforge.json("search", PROGRAM, "--node-limit", 50)
    assert value["saturated"] is False
    assert value["stop"] == "node limit"
    assert value["programs"] == []
    assert value["enodes"] > 0


def test_time_limit_ends_cleanly(equiforge):
    value = equiforge.json("search", "tests/programs/mha_prefill_b1.ef", "--time-limit", "0.000001")
    assert value["saturated"] is False
    assert value["stop"] == "time limit"


def test_statistics_name_rules_and_add_up(equiforge):
    rules = {rule["name"] for rule in equiforge.json("rules")["rules"]}
    value = equiforge.json("search", PROGRAM, "--stats")
    assert {use["rule"] for use in value["statistics"]} <= rules
    assert sum(use["matches"] for use in value["statistics"]) > 0
    for use in value["statistics"]:
        assert use["matches"] >= use["merges"] + use["refused"] >= 0
    assert "statistics" not in equiforge.json("search", PROGRAM)


def test_text_reports_the_same_search(equiforge):
    value = equiforge.json("search", PROGRAM)
    result = equiforge("search", PROGRAM, "--target", "h200", "--stats")
    assert result.returncode == 0
    assert result.stderr == ""
    assert "saturated" in result.stdout
    assert str(value["enodes"]) in result.stdout


@pytest.mark.parametrize("mode", ["none", "after", "early"])
def test_extraction_reports_what_it_did(equiforge, mode):
    value = equiforge.json("search", "tests/programs/gated_mlp_b16.ef", "--compaction", mode)
    assert value["complete"] is True
    assert 0 < value["candidates"] <= value["expanded"]
    assert value["extraction_s"] >= 0


def test_after_and_early_find_the_same_number_with_fewer_states(equiforge):
    early, after, none = (
        equiforge.json("search", "tests/programs/ngpt_b16.ef", "--compaction", mode, "--extract-limit", "60")
        for mode in ("early", "after", "none")
    )
    assert early["complete"] and after["complete"] and none["complete"]
    assert early["candidates"] == after["candidates"] < none["candidates"]
    assert early["expanded"] * 5 < after["expanded"]


def test_shown_candidates_are_programs(equiforge, tmp_path):
    value = equiforge.json("search", "tests/programs/gated_mlp_b16.ef", "--show", "3")
    assert len(value["programs"]) == 3
    for i, program in enumerate(value["programs"]):
        path = tmp_path / f"candidate{i}.ef"
        path.write_text(program["text"])
        inspection = equiforge.json("inspect", str(path))
        assert inspection["operators"]["combination"] >= 1


def test_long_chains_end(equiforge, tmp_path):
    """Recursive walks go as deep as the program is long."""
    lines = ["program chain", "dim m = 64", "input x: f32[m]", "a0 = neg(x)"]
    lines += [f"a{i} = {('exp', 'neg', 'tanh')[i % 3]}(a{i - 1})" for i in range(1, 5000)]
    path = tmp_path / "chain.ef"
    path.write_text("\n".join([*lines, "output y = a4999", ""]))
    search = equiforge("search", path, "--extract-limit", 1, timeout=60)
    assert search.returncode == 0, search.stderr
    explain = equiforge("explain", "--from", path, "--to", path, timeout=60)
    assert explain.returncode == 0, explain.stderr


def test_long_chains_of_shared_values_end(equiforge, tmp_path):
    """Each value is used twice: there are 2^60 ways from the result to the input."""
    lines = ["program chain", "dim n = 33", "input x: f32[n]", "y0 = add(sin(x), x)"]
    lines += [f"y{i} = add(sin(y{i - 1}), y{i - 1})" for i in range(1, 60)]
    value = equiforge.json("search", write_program(tmp_path, [*lines, "output y = neg(y59)"]), timeout=60)
    assert value["complete"] and value["candidates"] >= 1


def write_program(tmp_path, lines):
    path = tmp_path / "program.ef"
    path.write_text("\n".join(lines) + "\n")
    return str(path)


def test_a_wide_sum_is_not_regrouped_in_all_ways(equiforge, tmp_path):
    """All groupings of 20 operands are a million classes."""
    lines = ["program wide", "dim m = 8", "dim n = 64"]
    lines += [f"input x{i}: f32[m, n]" for i in range(20)]
    lines += ["t1 = add(x0, x1)"] + [f"t{i} = add(t{i - 1}, x{i})" for i in range(2, 19)]
    lines += ["output y = add(t18, x19)"]
    value = equiforge.json("search", write_program(tmp_path, lines))
    assert value["saturated"] is True
    assert value["enodes"] < 5000
    assert value["candidates"] >= 1


def test_the_program_itself_stands_where_nothing_can_be_extracted(equiforge, tmp_path):
    lines = ["program gram", "dim m = 4", "dim n = 8", "input x: f32[m, n]"]
    lines += ["output y = exp(matmul(x, transpose[1, 0](x)))"]
    program = write_program(tmp_path, lines)
    value = equiforge.json("search", program, "--show", "1")
    assert value["candidates"] == 1
    candidate = tmp_path / "candidate.ef"
    candidate.write_text(value["programs"][0]["text"])
    explanation = equiforge.json("explain", "--from", program, "--to", str(candidate))
    assert explanation["equal"] and explanation["checked"]


def test_parts_of_a_layer_are_searched_once_and_combined(equiforge):
    limits = ("--time-limit", 20, "--extract-limit", 20)
    value = equiforge.json("search", "tests/programs/layers/llama_decode.ef", "--parts", "--show", 2, *limits)
    parts, partitions = value["parts"], value["partitions"]
    assert len(partitions) > 1 and len({p["limit"] for p in partitions}) == len(partitions)
    assert [p["estimate_us"] for p in partitions] == sorted(p["estimate_us"] for p in partitions)
    assert value["enodes"] == sum(p["enodes"] for p in parts)
    searched = {i for p in partitions for i in p["parts"] if i is not None}
    assert searched == set(range(len(parts)))
    combined = [p for p in partitions if p["combined"]]
    assert any(p["combinations"] > p["built"] >= p["composed"] > 0 for p in combined)
    assert len(value["programs"]) == 2
    assert value["at_once"] >= 1 and value["search_s"] > 0


def test_as_many_parts_at_once_as_there_are_processors(equiforge):
    processors = os.sched_getaffinity(0)
    command = ("search", "tests/programs/variants/two_maps.ef", "--parts", "--node-limit", 500, "--extract-limit", 4)
    for count in {1, min(len(processors), 2)}:
        try:
            os.sched_setaffinity(0, set(sorted(processors)[:count]))
            value = equiforge.json(*command)
        finally:
            os.sched_setaffinity(0, processors)
        assert value["at_once"] == count
        assert {p["stop"] for p in value["parts"]} == {"saturated", "node limit"}


def test_parts_have_no_options_of_single_searches(equiforge):
    result = equiforge("search", PROGRAM, "--parts", "--stats")
    assert result.returncode == 2 and "--parts" in result.stderr
