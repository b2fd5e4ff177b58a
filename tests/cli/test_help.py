"""Bad usage is one clear message and exit 2; `--json` is one object on stdout and nothing else there."""


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


def test_rules_json_lists_name_and_group(equiforge):
    rules = equiforge.json("rules")["rules"]
    assert rules
    for rule in rules:
        assert rule["name"] and rule["group"]
    names = [rule["name"] for rule in rules]
    assert len(names) == len(set(names)), "rule names are unique"
