"""Archives whose graphs say absurd things: other sizes, numbers, flags and operators than PyTorch wrote. Each is read
as something else or refused with one line; nothing crashes, and with a build under sanitizers nothing overflows."""

import json
import random
import subprocess
import zipfile

import pytest
import torch
from modules import TOOL
from test_aten import GROUPS, Call
from torch import nn

ODD = [0, 1, -1, 2, 3, 5, 8, 2**31, 2**40, 2**62, -(2**62), 2**63 - 1, -(2**63)]
MUTATIONS = 40


class Together(nn.Module):
    """Many small functions, each with its own arguments."""

    def __init__(self, functions):
        super().__init__()
        self.functions = functions

    def forward(self, *arguments):
        results = []
        for function, count in self.functions:
            results.append(function(*arguments[:count]))
            arguments = arguments[count:]
        return results


def places(tree, path=()):
    """Where numbers and flags stand."""
    if isinstance(tree, (dict, list)):
        for key, value in tree.items() if isinstance(tree, dict) else enumerate(tree):
            yield from places(value, (*path, key))
    elif isinstance(tree, (bool, int, float)):
        yield path


def change(tree, rng):
    *path, last = rng.choice(list(places(tree)))
    for key in path:
        tree = tree[key]
    value = tree[last]
    if isinstance(value, bool):
        tree[last] = not value
    elif isinstance(value, int):
        tree[last] = rng.choice([*ODD, value + 1, value - 1, -value])
    else:
        tree[last] = rng.choice([0.0, -1.0, 1e308])


@pytest.mark.parametrize("group", GROUPS)
def test_absurd_graphs(group, tmp_path):
    cases = [case for case in GROUPS[group].values() if not isinstance(case[0], nn.Module)]
    arguments = tuple(x for case in cases for x in case[1:])
    module = Together([(Call(case[0]), len(case) - 1) for case in cases])
    path = tmp_path / "m.pt2"
    torch.export.save(torch.export.export(module, arguments), path)
    with zipfile.ZipFile(path) as archive:
        entries = {name: archive.read(name) for name in archive.namelist()}
    (model,) = (name for name in entries if name.endswith("models/model.json"))
    for seed in range(MUTATIONS):
        rng = random.Random(seed)
        data = json.loads(entries[model])
        graph = data["graph_module"]["graph"]
        for _ in range(rng.choice([1, 1, 2, 4])):
            change(graph["nodes"] if rng.random() < 0.75 else graph["tensor_values"], rng)
        if rng.random() < 0.3:
            one, other = rng.sample(graph["nodes"], 2)
            one["target"], other["target"] = other["target"], one["target"]
        with zipfile.ZipFile(path, "w") as archive:
            for name, contents in entries.items():
                archive.writestr(name, json.dumps(data) if name == model else contents)
        result = subprocess.run(
            [TOOL, path], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120, check=False
        )
        assert result.returncode in (0, 2), f"seed {seed}: {result.stderr}"
        if result.returncode == 2:
            assert len(result.stderr.splitlines()) == 1, f"seed {seed}: {result.stderr}"
