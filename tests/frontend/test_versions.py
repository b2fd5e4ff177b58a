"""Archives that other versions of PyTorch wrote: read from them, a module computes what it computes in the installed
PyTorch. (tests/cli/test_pt2.py compares what `inspect` finds in them with what their exporter said.)"""

import json

import pytest
import torch
from make_archives import GOOD
from modules import ROOT, Plan, same

ARCHIVES = ROOT / "tests/frontend/archives"
FILES = sorted(ARCHIVES.glob("*/*.pt2"))
NAMES = sorted({path.stem for path in FILES})


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_same_results(path):
    """Those that PyTorch itself cannot read back are among them, so weights and arguments come from a fresh export."""
    original, exported = GOOD[path.stem](), GOOD[path.stem]()
    arguments, _ = original.example_inputs
    theirs = torch.utils._pytree.tree_map(lambda x: x.clone() if isinstance(x, torch.Tensor) else x, arguments)
    with torch.no_grad():
        want = torch.utils._pytree.tree_leaves(original.module()(*theirs))
    with Plan(exported, path) as plan:
        got = plan(*arguments)
    for mine, other in zip(got, want, strict=True):
        # The reader's arithmetic is exact where PyTorch's intermediate results are float32.
        same(*(x.float() if isinstance(x, torch.Tensor) and x.dtype == torch.float64 else x for x in (mine, other)))
    for mine, other in zip(arguments, theirs, strict=True):
        same(mine, other)


@pytest.mark.parametrize("name", NAMES)
def test_versions_agree(name):
    """The same module is the same to all versions that wrote it."""
    found = {json.dumps(json.loads(path.read_text()) | {"torch": ""}) for path in ARCHIVES.glob(f"*/{name}.json")}
    assert len(found) == 1
    assert {path.parent.name for path in ARCHIVES.glob(f"*/{name}.pt2")} >= {"2.11", "2.13"}
