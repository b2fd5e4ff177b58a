"""`equiforge targets`: what optimize can be for."""


def test_targets(equiforge):
    targets = {target["name"]: target for target in equiforge.json("targets")["targets"]}
    assert targets["cpu"] == {"name": "cpu", "kind": "cpu", "available": True}
    assert {"a100", "h100", "h200", "b200", "rtx5090"} <= set(targets)
    assert all(target["kind"] == "gpu" for name, target in targets.items() if name != "cpu")
    text = equiforge("targets").stdout.splitlines()
    assert len(text) == len(targets)


def test_a_target_that_is_not_here(equiforge, monkeypatch):
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    result = equiforge("optimize", "tests/programs/ngpt_b1.ef", "--target", "interpreter")
    assert result.returncode == 2
    assert "no interpreter" in result.stderr
