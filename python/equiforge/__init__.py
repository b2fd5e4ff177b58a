"""EquiForge: finds the fastest equivalent implementation of a PyTorch module.

    fast = equiforge.optimize(module, (x,), budget="5m")
    fast(x)
    fast.save("block.efz")
    fast = equiforge.load("block.efz")
    torch.compile(module, backend=equiforge.backend)  # or, where the wheel is installed, backend="equiforge"

Importing this package costs nothing: PyTorch is imported when a function that needs it is used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from equiforge._native import EquiForgeError, Progress, UnsupportedModuleError, uninterrupted, version

if TYPE_CHECKING:
    from equiforge._dynamo import backend
    from equiforge._module import OptimizedModule
    from equiforge._optimize import load, optimize

__all__ = [
    "EquiForgeError",
    "OptimizedModule",
    "Progress",
    "UnsupportedModuleError",
    "__version__",
    "backend",
    "load",
    "optimize",
]

__version__ = version()

# What needs PyTorch, and where it is.
_LATER = {"OptimizedModule": "_module", "backend": "_dynamo", "load": "_optimize", "optimize": "_optimize"}


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module 'equiforge' has no attribute {name!r}")
    from importlib import import_module

    with uninterrupted():
        value = getattr(import_module(f"equiforge.{_LATER[name]}"), name)
    globals()[name] = value
    return value
