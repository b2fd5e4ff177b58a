"""Plans: an optimised module as steps over tensors (src/plan/plan.h), as the library describes them in JSON."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch

from equiforge._source import dtype_of


@dataclass(frozen=True)
class Value:
    """A tensor: where it comes from, its element type and sizes.

    `kind` is "input" (number `input` of the flattened arguments), "parameter", "buffer" or "constant" (`target` in the
    module), or "result".
    """

    name: str
    kind: str
    dtype: torch.dtype
    shape: tuple[int, ...]
    input: int = -1
    target: str = ""


@dataclass(frozen=True)
class Region:
    """A part that was optimised: its code, and what was measured of it (times in microseconds, 0: not known)."""

    language: str
    source: str
    entry: str
    kernels: int
    original: bool
    us: float
    original_us: float
    rel_l2: float
    program: str = ""
    candidate: str = ""
    schedule: str = ""
    device: str = ""
    torch: str = ""  # PyTorch source of what was given, where nothing faster was found on a GPU


@dataclass(frozen=True)
class Step:
    """One region (`region` >= 0) or one call of PyTorch; `ins` and `outs` are numbers of values."""

    ins: tuple[int, ...]
    outs: tuple[int, ...]
    region: int = -1
    call: str = ""
    arguments: dict[str, Any] = field(default_factory=dict)
    results: Any = None
    reason: str = ""


@dataclass(frozen=True)
class Plan:
    """`outputs` are numbers of values, or literals in a tuple of one; `mutations` are (value, target) pairs: after the
    last step the value is copied into the target. The specs are PyTorch's pytree text, or None for a program in text
    form."""

    name: str
    target: str
    user_inputs: int
    values: tuple[Value, ...]
    steps: tuple[Step, ...]
    regions: tuple[Region, ...]
    outputs: tuple[Any, ...]
    mutations: tuple[tuple[int, int], ...]
    in_spec: str | None
    out_spec: str | None

    @classmethod
    def of(cls, description: dict[str, Any]) -> Plan:
        """From the object that the library prints."""

        def value(entry: dict[str, Any]) -> Value:
            return Value(
                entry["name"],
                entry["kind"],
                dtype_of(entry["torch_dtype"]),
                tuple(entry["shape"]),
                entry.get("input", -1),
                entry.get("target") or "",
            )

        def step(entry: dict[str, Any]) -> Step:
            return Step(
                tuple(entry["in"]),
                tuple(entry["out"]),
                entry.get("region", -1),
                entry.get("target") or "",
                entry.get("arguments") or {},
                entry.get("results"),
                entry.get("reason") or "",
            )

        known = Region.__dataclass_fields__
        return cls(
            description["name"],
            description["target"],
            description["user_inputs"],
            tuple(value(entry) for entry in description["values"]),
            tuple(step(entry) for entry in description["steps"]),
            tuple(Region(**{k: v for k, v in entry.items() if k in known}) for entry in description["regions"]),
            tuple(entry["value"] if "value" in entry else (entry["literal"],) for entry in description["outputs"]),
            tuple((entry["value"], entry["target"]) for entry in description["mutations"]),
            description.get("in_spec"),
            description.get("out_spec"),
        )

    @property
    def kernels(self) -> int:
        """Kernels that one call launches."""
        return sum(self.regions[step.region].kernels for step in self.steps if step.region >= 0)

    @property
    def external(self) -> list[str]:
        """The calls of PyTorch that stay, in order."""
        return [step.call for step in self.steps if step.region < 0]
