"""The structures that Python shares with the library are those of its header."""

import ctypes
import subprocess

from conftest import ROOT

from equiforge import _native

STRUCTURES = {
    "equiforge_target": _native.Target,
    "equiforge_progress": _native.Progress,
    "equiforge_optimize_options": _native.Options,
    "equiforge_optimum": _native.Optimum,
}


def test_layouts(tmp_path):
    lines = ['#include <stdio.h>\n#include <stddef.h>\n#include "equiforge.h"\nint main(void) {']
    want = []
    for name, structure in STRUCTURES.items():
        lines.append(f'printf("%zu\\n", sizeof({name}));')
        want.append(ctypes.sizeof(structure))
        for field, *_ in structure._fields_:
            lines.append(f'printf("%zu\\n", offsetof({name}, {field.lstrip("_")}));')
            want.append(getattr(structure, field).offset)
    (tmp_path / "layout.c").write_text("\n".join([*lines, "return 0; }"]))
    program = tmp_path / "layout"
    subprocess.run(["cc", "-I", ROOT / "include", tmp_path / "layout.c", "-o", program], check=True)
    printed = subprocess.run([program], capture_output=True, text=True, check=True).stdout
    assert [int(line) for line in printed.split()] == want
