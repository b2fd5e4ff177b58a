"""The order in which values are computed, converted and reduced, where Triton up to 3.6 fails for others: its passes
then make programs that are none. So that they are met whatever Triton is here, these are properties of the text;
test_compiled.py has the same programs compiled, and finds what another Triton that stands first in PYTHONPATH says."""

import re

import modules
import pytest

FILES = [
    *sorted((modules.ROOT / "tests" / "derivations").glob("*.ef")),
    modules.ROOT / "tests" / "triton" / "programs" / "merged_rows.ef",
    modules.ROOT / "tests" / "triton" / "programs" / "two_passes.ef",
]


def kernels(source):
    return re.findall(r"^@triton\.jit\ndef k\d+_.*?(?=\n\n\n|\Z)", source, re.M | re.S)


VIEW = r"\b((?:(?!i_|off_|in_)[a-z]\w*))(\[(?:[:, ]|None)*None(?:[:, ]|None)*\])"


def late_views(kernel):
    """Views of values that something used before as they are: "x[:, None]" behind "y = x + 1"."""
    used, seen, late = set(), set(), []
    for line in kernel.splitlines()[1:]:
        views = set(re.findall(VIEW, line))
        late += [(name, view) for name, view in views if name in used and (name, view) not in seen]
        seen |= views
        left, is_given, right = line.strip().partition(" = ")
        used |= set(re.findall(r"\b[a-z]\w*", re.sub(VIEW, "", right if is_given else left)))
        given = set(left.split(", ")) if is_given else set()
        if left.startswith("for "):  # states are other values in a loop than before it
            given = {name for name in used | {name for name, _ in seen} if name.startswith("state")}
        used -= given
        seen = {(name, view) for name, view in seen if name not in given}
    return late


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_a_value_is_spread_before_anything_else_uses_it(file):
    """Triton's pass that removes layout conversions takes what was converted already for what it computes again in
    another layout, though that stands before the conversion."""
    split = ",s.0=64" if "s.0" in file.read_text() else ""  # so many parts that their merge is a loop
    for few in ["warps=4", f"warps=1{split}"]:
        for kernel in kernels(modules.emit(file, "--schedule", few)):
            assert late_views(kernel) == [], kernel


@pytest.mark.parametrize("tile", ["m.0=2,n.1=64", "m.0=16,n.1=1024"])
def test_maxima_of_loaded_tiles_are_taken_after_their_loop(tile):
    """Triton's pass for the locality of threads does the same with them, and fails where they are used twice."""
    source = modules.emit("tests/triton/programs/two_passes.ef", "--schedule", f"{tile},stages=2")
    found = re.findall(r"^( +)(for \w+ in tl\.range|\w+ = tl\.max\()", source, re.M)
    assert [text.split()[0] == "for" for _, text in found] == [True, False, True]
    assert len({indent for indent, _ in found}) == 1
