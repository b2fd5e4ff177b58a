"""`rules --check` tests every rule on random instances."""


def test_check_passes_and_reports_numbers(equiforge):
    value = equiforge.json("rules", "--check", "--instances", 2, "--seed", 7, timeout=300)
    assert value["rules"] == len(equiforge.json("rules")["rules"])
    assert value["instances"] >= value["rules"]
    assert value["failures"] == 0


def test_check_is_deterministic_from_its_seed(equiforge):
    first, second = (equiforge("rules", "--check", "--instances", 1, "--seed", 3, timeout=300) for _ in range(2))
    assert first.stdout == second.stdout


def test_text_lists_groups_names_and_rules(equiforge):
    result = equiforge("rules")
    assert result.returncode == 0
    assert result.stderr == ""
    words = result.stdout.split()
    for rule in equiforge.json("rules")["rules"]:
        assert rule["name"] in words
        assert rule["group"] in words
