"""`.efz` files from Python: the library's file, and in it, unless told not to, the module as PyTorch exports it."""

from __future__ import annotations

import io
import json
import os
import shutil
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.utils import _pytree as pytree

from equiforge._native import EquiForgeError

# The entries that the library leaves to us.
MODULE = "module.pt2"
COMPARED = "module.json"
COMPARED_BYTES = 4096  # at most


def name_return_types() -> None:
    """Gives the named tuples of PyTorch's operators (`x.topk(3)`, `x.max(-1)`) names for files, of which PyTorch has
    none: an exported module that returns them could not be saved, nor read again."""
    for kind in torch.return_types.all_return_types:
        known = pytree.SUPPORTED_SERIALIZED_TYPES.get(kind)
        if known is not None and known.serialized_type_name == pytree.NO_SERIALIZED_TYPE_NAME_FOUND:
            name = f"torch.return_types.{kind.__name__}"
            pytree.SUPPORTED_SERIALIZED_TYPES[kind] = known._replace(serialized_type_name=name)
            pytree.SERIALIZED_TYPE_TO_PYTHON_TYPE[name] = kind


name_return_types()


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A new file that takes the place of `path` when all went well, and is gone otherwise. Its mode is as the umask
    says. EquiForgeError when it cannot be made or written."""
    new = path.parent.joinpath(f".{path.name}.{os.urandom(6).hex()}.tmp")
    try:
        new.open("xb").close()  # not tempfile's, which others must not read
        try:
            yield new
            with new.open("rb+") as file:
                os.fsync(file.fileno())
            new.replace(path)
        finally:
            new.unlink(missing_ok=True)
    except OSError as problem:
        raise EquiForgeError(f"{path}: cannot be written: {problem.strerror or problem}") from problem


def write(
    path: str | os.PathLike[str], plan: bytes, compared: dict[str, Any], exported: ExportedProgram | None
) -> None:
    """The library's file, with how the module compared with the original and the exported module added.

    Written whole or not at all; EquiForgeError when it fails.
    """
    path = Path(path)
    if not os.path.isdir(path.parent):
        raise EquiForgeError(f"{path}: there is no folder {path.parent}")
    with replacing(path) as new, zipfile.ZipFile(io.BytesIO(plan)) as old, zipfile.ZipFile(new, "w") as archive:
        for entry in old.infolist():
            if entry.filename not in (MODULE, COMPARED):
                archive.writestr(entry.filename, old.read(entry), zipfile.ZIP_DEFLATED)
        archive.writestr(COMPARED, json.dumps(compared), zipfile.ZIP_DEFLATED)
        if exported is not None:
            with tempfile.TemporaryFile(dir=path.parent) as weights:
                torch.export.save(exported, weights)
                weights.seek(0)
                with archive.open(MODULE, "w", force_zip64=True) as to:
                    shutil.copyfileobj(weights, to, 1 << 20)


@contextmanager
def reading(path: str | os.PathLike[str]) -> Iterator[zipfile.ZipFile]:
    """The archive in a file. EquiForgeError for whatever reading it raises: PyTorch raises what it likes."""
    try:
        with zipfile.ZipFile(path) as archive:
            yield archive
    except EquiForgeError:
        raise
    except Exception as problem:
        first = str(problem).strip().split("\n")[0]
        raise EquiForgeError(f"{path}: cannot be read: {type(problem).__name__}: {first}") from problem


def exported_of(path: str | os.PathLike[str]) -> ExportedProgram | None:
    """The exported module in a file, if there is one. EquiForgeError when it cannot be read."""
    with reading(path) as archive:
        if MODULE not in archive.namelist():
            return None
        with tempfile.TemporaryFile(suffix=".pt2") as weights, archive.open(MODULE) as packed:
            shutil.copyfileobj(packed, weights, 1 << 20)
            weights.seek(0)
            return torch.export.load(weights)


def compared_of(path: str | os.PathLike[str]) -> dict[str, Any]:
    """{"keep_original": bool, "prepared": int, "original_us", "optimized_us": float}: what `write` was given; defaults
    where there is nothing. EquiForgeError when it is something else."""
    found = {"keep_original": False, "prepared": 0, "original_us": 0.0, "optimized_us": 0.0}
    with reading(path) as archive:
        if COMPARED not in archive.namelist():
            return found
        with archive.open(COMPARED) as file:
            text = file.read(COMPARED_BYTES + 1)
    try:
        given = json.loads(text) if len(text) <= COMPARED_BYTES else None
    except ValueError:
        given = None
    if not isinstance(given, dict) or any(type(given.get(name)) is not type(x) for name, x in found.items()):
        raise EquiForgeError(f"{path}: '{COMPARED}' does not say how the module compared with the original")
    return {name: given[name] for name in found}


def plan_of(path: str | os.PathLike[str]) -> bytes:
    """The file without the exported module."""
    out = io.BytesIO()
    with reading(path) as old, zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as new:
        for entry in old.infolist():
            if entry.filename not in (MODULE, COMPARED):
                new.writestr(entry.filename, old.read(entry))
    return out.getvalue()
