"""torch.compile with equiforge.backend: graphs, breaks, gradients, dynamic shapes, failures; never a wrong result."""

import logging

import pytest
import torch
from test_end_to_end import untuned
from torch import nn

from equiforge import EquiForgeError, _optimize, backend


class Block(nn.Module):
    def __init__(self, size=32):
        super().__init__()
        self.first, self.second, self.norm = nn.Linear(size, 48), nn.Linear(48, size), nn.LayerNorm(size)
        self.register_buffer("scale", torch.tensor(0.5))

    def forward(self, x):
        return x + self.scale * self.second(nn.functional.gelu(self.first(self.norm(x))))


given = []  # the options of the calls


@pytest.fixture
def calls(monkeypatch, tmp_path):
    """Graphs are compiled without search; returns what was optimised."""
    torch._dynamo.reset()
    seen = []
    given.clear()

    def optimize(module, args, **options):
        folder = tmp_path / str(len(seen))
        folder.mkdir()
        seen.append(untuned(module, args, folder))
        given.append(options)
        return seen[-1]

    monkeypatch.setattr(_optimize, "optimize", optimize)
    return seen


def test_whole(calls):
    block, x = Block().eval(), torch.randn(4, 32)
    compiled = torch.compile(block, backend=backend)
    with torch.no_grad():
        assert torch.allclose(compiled(x), block(x), atol=1e-5)
        x = torch.randn(4, 32)
        assert torch.allclose(compiled(x), block(x), atol=1e-5)
        block.second.weight.mul_(2)
        assert torch.allclose(compiled(x), block(x), atol=1e-5)
    assert len(calls) == 1
    assert calls[0].plan.kernels > 0


def test_graph_break(calls):
    block = Block().eval()

    def model(x):
        x = block(x)
        print("a break")
        return block(x) if x.sum() > 1e9 else x * 2

    with torch.no_grad():
        x = torch.randn(4, 32)
        assert torch.allclose(torch.compile(model, backend=backend)(x), model(x), atol=1e-5)
    assert len(calls) >= 2


def test_gradients_stay_with_pytorch(calls, caplog):
    block, x = Block(), torch.randn(4, 32, requires_grad=True)
    with caplog.at_level(logging.WARNING, "equiforge"):
        result = torch.compile(block, backend=backend)(x)
    assert "wants gradients" in caplog.text
    result.sum().backward()
    assert torch.allclose(result, block(x), atol=1e-5)
    assert x.grad is not None
    assert block.first.weight.grad is not None
    assert not calls


def test_dynamic_shapes(calls, caplog):
    block = Block().eval()
    compiled = torch.compile(block, backend=backend, dynamic=True)
    with torch.no_grad(), caplog.at_level(logging.WARNING, "equiforge"):
        for rows in (3, 5, 7):
            x = torch.randn(rows, 32)
            assert torch.allclose(compiled(x), block(x), atol=1e-5)
    assert "dynamic shapes" in caplog.text


def test_failure(monkeypatch, caplog):
    torch._dynamo.reset()

    def optimize(*_, **__):
        raise EquiForgeError("not today")

    monkeypatch.setattr(_optimize, "optimize", optimize)
    block, x = Block().eval(), torch.randn(4, 32)
    with torch.no_grad(), caplog.at_level(logging.WARNING, "equiforge"):
        assert torch.equal(torch.compile(block, backend=backend)(x), block(x))
    assert "not today" in caplog.text


def test_options(calls):
    with torch.no_grad(), pytest.raises(Exception, match="unknown options colour"):
        torch.compile(Block().eval(), backend=backend, options={"colour": "red"})(torch.randn(4, 32))
    torch._dynamo.reset()
    with torch.no_grad(), pytest.raises(Exception, match="a budget is a time like"):
        torch.compile(Block().eval(), backend=backend, options={"budget": "x"})(torch.randn(4, 32))
    torch._dynamo.reset()
    with torch.no_grad(), pytest.raises(Exception, match="progress is a function"):
        torch.compile(Block().eval(), backend=backend, options={"progress": 5})(torch.randn(4, 32))
    assert not given
    torch._dynamo.reset()
    with torch.no_grad():
        torch.compile(Block().eval(), backend=backend, options={"budget": "1m"})(torch.randn(4, 32))
    assert [options["budget"] for options in given] == ["1m"]
    torch._dynamo.reset()
    with torch.no_grad():
        torch.compile(Block().eval(), backend=backend)(torch.randn(4, 32))
    assert [options["budget"] for options in given] == ["1m", "30s"]
