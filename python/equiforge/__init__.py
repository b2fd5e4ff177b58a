"""EquiForge: finds the fastest equivalent implementation of a tensor program.

Importing this package costs nothing: PyTorch is imported when a function that needs it is used.
"""

from equiforge._native import EquiForgeError, version

__all__ = ["EquiForgeError", "__version__"]

__version__ = version()
