"""Adds up the results of `make test`: prints "N passed, N failed, N skipped" and exits 1 on any failure.

Each argument is one stage, NAME:STATUS or NAME:STATUS:FILE. FILE is meson's testlog.json or pytest's JUnit
XML. A stage that failed without a failed test to show for it (a build, a crash, a missing file) counts as one
failure, so the line says "0 failed" exactly when every stage succeeded.
"""

import json
import sys
from collections import Counter
from pathlib import Path
from xml.etree import ElementTree

MESON_OUTCOMES = {"OK": "passed", "EXPECTEDFAIL": "passed", "SKIP": "skipped"}


def meson_counts(path: Path) -> Counter:
    tests = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
    return Counter(MESON_OUTCOMES.get(test["result"], "failed") for test in tests)


def pytest_counts(path: Path) -> Counter:
    counts = Counter()
    for case in ElementTree.parse(path).iter("testcase"):
        outcomes = {child.tag for child in case}
        if outcomes & {"failure", "error"}:
            counts["failed"] += 1
        else:
            counts["skipped" if "skipped" in outcomes else "passed"] += 1
    return counts


def stage_counts(name: str, status: int, file: str) -> Counter:
    counts = Counter()
    if file and not Path(file).is_file():
        print(f"{name}: no results, {file} is missing")
        status = status or 1
    elif file:
        counts = pytest_counts(Path(file)) if file.endswith(".xml") else meson_counts(Path(file))
        if not counts["passed"] and not counts["failed"]:
            print(f"{name}: no test ran")
            status = status or 1
    if status and not counts["failed"]:
        counts["failed"] = 1
    if counts["failed"]:
        print(f"{name}: {counts['failed']} failed")
    return counts


def main() -> int:
    total = Counter()
    for argument in sys.argv[1:]:
        name, status, file = (argument.split(":", 2) + [""])[:3]
        total += stage_counts(name, int(status), file)
    if not total["passed"] and not total["failed"]:
        total["failed"] = 1
    print(f"{total['passed']} passed, {total['failed']} failed, {total['skipped']} skipped")
    return 1 if total["failed"] else 0


if __name__ == "__main__":
    sys.exit(main())
