"""Kernels that candidates have in common: each is a file of its own, named by what it says.

A printed module (src/codegen/triton.h) becomes its launches and its kernels. Kernels are written without names of their
own, so that equal ones of all candidates are one file: Triton, which goes by a kernel's text, name and line, compiles
it once, and a process loads it once.
"""

from __future__ import annotations

import ast
import hashlib
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from equiforge import _source

MOST_LOADED = 4096  # kernels that a process keeps
LOADER = "_kernel"  # what a written module calls to have one

_loaded: dict[str, Callable[..., Any]] = {}


def _is_kernel(node: ast.stmt) -> bool:
    """A function decorated with triton.jit, and with nothing else."""
    return isinstance(node, ast.FunctionDef) and [ast.unparse(d) for d in node.decorator_list] == ["triton.jit"]


def _names(nodes: Sequence[ast.stmt]) -> set[str]:
    return {x.id for node in nodes for x in ast.walk(node) if isinstance(x, ast.Name)}


class _Renamed(ast.NodeTransformer):
    """Names that a function defines become v0, v1, … in the order in which they appear."""

    def __init__(self, function: ast.FunctionDef):
        self.own = {x.arg for x in ast.walk(function) if isinstance(x, ast.arg)}
        self.own |= {x.id for x in ast.walk(function) if isinstance(x, ast.Name) and isinstance(x.ctx, ast.Store)}
        self.new: dict[str, str] = {}

    def _of(self, name: str) -> str:
        return self.new.setdefault(name, f"v{len(self.new)}") if name in self.own else name

    def visit_Name(self, node: ast.Name) -> ast.Name:
        return ast.Name(self._of(node.id), node.ctx)

    def visit_arg(self, node: ast.arg) -> ast.arg:
        return ast.arg(self._of(node.arg), node.annotation)


def _bound(node: ast.stmt) -> set[str]:
    """What a statement of a module, which is no function, gives names to."""
    names = {x.id for x in ast.walk(node) if isinstance(x, ast.Name) and isinstance(x.ctx, ast.Store)}
    imports = [x for x in ast.walk(node) if isinstance(x, (ast.Import, ast.ImportFrom))]
    return names | {alias.asname or alias.name.split(".")[0] for x in imports for alias in x.names}


def _text(kernel: ast.FunctionDef, tree: ast.Module) -> str:
    """A module with the kernel alone, as `kernel`, and with what it needs of the others."""
    renamed = _Renamed(kernel).visit(ast.parse(ast.unparse(kernel)).body[0])
    renamed.name = "kernel"
    functions = {n.name: n for n in tree.body if isinstance(n, ast.FunctionDef)}
    needed, left = {kernel.name}, [kernel]
    while left:
        more = (_names([left.pop()]) & functions.keys()) - needed
        needed |= more
        left += [functions[name] for name in more]
    others = [n for name, n in functions.items() if name in needed and name != kernel.name]
    names = _names([kernel, *others])
    rest = [n for n in tree.body if not isinstance(n, ast.FunctionDef) and names & _bound(n)]
    names |= _names(rest)  # a condition's
    rest = [n for n in tree.body if not isinstance(n, ast.FunctionDef) and names & _bound(n)]
    return "\n\n".join(ast.unparse(n) for n in [*rest, *others, renamed]) + "\n"


def _put(folder: Path, text: str) -> Path:
    """The file of a text; several processes may write it at a time."""
    path = folder / f"{hashlib.sha256(text.encode()).hexdigest()[:32]}.py"
    if not path.exists():
        own = path.with_suffix(f".{os.getpid()}")
        own.write_text(text, encoding="utf-8")
        own.replace(path)
    return path


def _dealt(tree: ast.Module) -> dict[str, str]:
    """By kernel, what is done with its launches, "_evenly(264)": Triton keeps one compiled kernel for a function, and
    that is changed, so equal kernels with which something else is done are not shared."""
    found = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Call):
            launch = node.args[0].func
            if isinstance(launch, ast.Subscript) and isinstance(launch.value, ast.Name):
                found[launch.value.id] = ast.unparse(ast.Call(node.func, node.args[1:], node.keywords))
    return found


def write(source: str, path: Path, folder: Path) -> None:
    """Writes a printed module to `path` and its kernels into `folder`. SyntaxError when it is no Python."""
    tree = ast.parse(source, str(path))
    folder.mkdir(parents=True, exist_ok=True)
    dealt = _dealt(tree)
    used = _names([node for node in tree.body if not _is_kernel(node)])
    body: list[ast.stmt] = []
    for node in tree.body:
        if not (isinstance(node, ast.FunctionDef) and _is_kernel(node)):
            body.append(node)
        elif node.name in used:
            text = _text(node, tree) + (f"\n# {dealt[node.name]}\n" if node.name in dealt else "")
            body += ast.parse(f"{node.name} = {LOADER}({str(_put(folder, text))!r})").body
    path.write_text(ast.unparse(ast.Module(body, [])) + "\n", encoding="utf-8")


def kernel(path: str) -> Callable[..., Any]:
    """A kernel, loaded once."""
    if path not in _loaded:
        if len(_loaded) >= MOST_LOADED:
            _loaded.clear()
        _loaded[path] = _source.load(path).kernel
    return _loaded[path]


def load(path: str | os.PathLike[str]) -> ModuleType:
    """The module that was written to a file."""
    return _source.load(path, {LOADER: kernel})
