"""Damaged archives are refused in one line with exit status 2, or nothing that was damaged is read: never a crash."""

import pytest
from conftest import ROOT
from mutate import COUNT, damaged_bytes, damaged_entry

ARCHIVES = [
    f"tests/frontend/archives/{name}.pt2" for name in ("2.13/arguments", "2.11/storage", "2.13/branch", "2.14/types")
]
COUNT = -(-COUNT // len(ARCHIVES))


def refused(result, path):
    """Whether it was refused; a crash, a long message or output beside a message fails the test."""
    assert result.returncode in (0, 2), result.stderr
    if result.returncode == 0:
        assert result.stderr == ""
        return False
    assert result.stdout == ""
    assert len(result.stderr.splitlines()) == 1 and result.stderr.startswith(str(path)), result.stderr
    return True


@pytest.mark.parametrize("archive", ARCHIVES)
def test_damaged_bytes(equiforge, tmp_path, archive):
    """What is not refused must print what the whole archive prints: only bytes without meaning were hit."""
    whole = (ROOT / archive).read_bytes()
    path = tmp_path / archive.rsplit("/", 1)[1]
    path.write_bytes(whole)
    expected = equiforge("inspect", path, "--json").stdout
    count = 0
    for seed in range(COUNT):
        path.write_bytes(damaged_bytes(whole, seed))
        result = equiforge("inspect", path, "--json")
        count += refused(result, path)
        assert result.stdout in ("", expected), seed
    assert count > COUNT * 0.8
    assert [entry.name for entry in tmp_path.iterdir()] == [path.name]


@pytest.mark.parametrize("archive", ARCHIVES)
def test_damaged_json(equiforge, tmp_path, archive):
    path = tmp_path / archive.rsplit("/", 1)[1]
    count = 0
    for seed in range(COUNT):
        damaged_entry(ROOT / archive, path, seed)
        count += refused(equiforge("inspect", path), path)
    assert count > COUNT * 0.3
    assert [entry.name for entry in tmp_path.iterdir()] == [path.name]
