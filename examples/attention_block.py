"""A PyTorch attention block, optimised for this machine: `make demo` runs this.

    python examples/attention_block.py [--budget 60s] [--device cuda]

One token attends to a cache of keys and values, as in text generation: RMS norm, query projection, attention with a
sliding window, output projection, residual.
"""

import argparse
import math
import statistics
import time
import warnings

import torch
from torch import nn

import equiforge


class AttentionBlock(nn.Module):
    def __init__(self, width: int = 512, heads: int = 8, window: int = 1024):
        super().__init__()
        self.heads, self.window = heads, window
        self.gain = nn.Parameter(torch.ones(width))
        self.query = nn.Linear(width, width, bias=False)
        self.out = nn.Linear(width, width, bias=False)

    def forward(self, x: torch.Tensor, keys: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
        """x[batch, 1, width]; keys and values[batch, heads, positions, width / heads]."""
        normed = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * self.gain
        q = self.query(normed).view(x.shape[0], 1, self.heads, -1).transpose(1, 2)
        scores = q @ keys.transpose(-2, -1) / math.sqrt(q.shape[-1])
        visible = torch.arange(keys.shape[2], device=x.device) >= keys.shape[2] - self.window
        scores = scores.masked_fill(~visible, float("-inf"))
        o = torch.softmax(scores, -1) @ values
        return x + self.out(o.transpose(1, 2).reshape(x.shape))


def times(calls: dict, inputs: tuple, device: torch.device) -> dict:
    """The median time of each in microseconds, measured in turns."""
    taken = {name: [] for name in calls}
    end = time.perf_counter() + 3
    while time.perf_counter() < end:
        for name, call in calls.items():
            start = time.perf_counter()
            call(*inputs)
            if device.type == "cuda":
                torch.cuda.synchronize()
            taken[name].append((time.perf_counter() - start) * 1e6)
    return {name: statistics.median(all_) for name, all_ in taken.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--budget", default="60s", help="of the optimisation (60s)")
    parser.add_argument("--device", default="cpu")
    arguments = parser.parse_args()
    device = torch.device(arguments.device)
    dtype = torch.float16 if device.type == "cuda" else torch.float32

    torch.manual_seed(0)
    block = AttentionBlock().eval().requires_grad_(False).to(device, dtype)
    x = torch.randn(1, 1, 512, device=device, dtype=dtype)
    keys, values = (torch.randn(1, 8, 4096, 64, device=device, dtype=dtype) for _ in range(2))
    inputs = (x, keys, values)

    fast = equiforge.optimize(block, inputs, budget=arguments.budget)

    exact = block.double()(*(t.double() for t in inputs)) if device.type == "cpu" else None
    block.to(dtype)
    calls = {"PyTorch": block, "torch.compile": torch.compile(block, dynamic=False), "EquiForge": fast}
    rows = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        results = {name: call(*inputs) for name, call in calls.items()}
        medians = times(calls, inputs, device)
    reference = exact if exact is not None else results["PyTorch"].double()
    for name, result in results.items():
        error = ((result.double() - reference).norm() / reference.norm()).item()
        kernels = str(fast.plan.kernels) if name == "EquiForge" else ""
        speedup = medians["PyTorch"] / medians[name]
        rows.append((name, f"{medians[name]:.1f}", f"{speedup:.2f}x", f"{error:.1e}", kernels))
    print(f"\n{'attention block':16}{'us a call':>12}{'speedup':>10}{'rel L2':>10}{'kernels':>10}")
    for name, *cells in rows:
        print(f"{name:16}{cells[0]:>12}{cells[1]:>10}{cells[2]:>10}{cells[3]:>10}")


if __name__ == "__main__":
    main()
