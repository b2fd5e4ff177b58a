"""Bad usage is one clear message and exit 2; `--json` is one object on stdout and nothing else there."""

import re

import pytest


def test_no_arguments_prints_usage_and_exits_2(equiforge):
    result = equiforge()
    assert result.returncode == 2
    assert result.stdout == ""
    assert "usage" in result.stderr.lower()


def test_unknown_verb_is_one_line_and_exits_2(equiforge):
    result = equiforge("frobnicate")
    assert result.returncode == 2
    assert result.stdout == ""
    assert result.stderr.endswith("\n")
    assert len(result.stderr.splitlines()) == 1
    assert "frobnicate" in result.stderr


@pytest.mark.parametrize("flag", ["--help", "-h"])
def test_help_of_a_verb_explains_all_its_options(equiforge, flag):
    assert equiforge(flag).returncode == 0
    for verb in ("inspect", "rules", "search", "explain", "run", "emit", "bench"):
        result = equiforge(verb, flag)
        assert (result.returncode, result.stderr) == (0, "")
        usage, _, rest = result.stdout.partition("\n\n")
        options = set(re.findall(r"--[a-z-]+", usage))
        assert options
        assert options <= set(re.findall(r"--[a-z-]+", rest)), verb
    search = equiforge("search", flag).stdout
    for default in ("(600)", "(1000000)", "(4)", "(0)", "(early)", "(auto)"):
        assert default in search


def test_rules_json_lists_name_and_group(equiforge):
    rules = equiforge.json("rules")["rules"]
    assert rules
    for rule in rules:
        assert rule["name"] and rule["group"]
    names = [rule["name"] for rule in rules]
    assert len(names) == len(set(names)), "rule names are unique"
