"""Benchmarks: the product beside eager PyTorch, torch.compile and the attention kernels that PyTorch has.

    equiforge bench --suite programs --target h200 [--only NAME,...] [--budget 5m] [--devices all] [--results FILE]

Every case runs in a process of its own (_bench_case.py), several side by side on several GPUs (_bench_run.py); what
hangs or crashes costs the figures that were still to come. Times are microseconds of a call inside a CUDA graph, the
median; "cold" goes round over copies of the inputs and weights that no cache holds together, "warm" takes the same ones
again and again.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from equiforge import _native, _plot
from equiforge._bench_case import ROOT, workloads
from equiforge._bench_run import Options, Place, Result, Results, Runner, models, places
from equiforge._native import EquiForgeError

SUITES = ("programs", "attention", "layers")  # and "search", which measures no implementation


def matching(names: Sequence[str], only: Sequence[str]) -> list[str]:
    """The names that are meant, in their order: for each text that one alone or, where there is none, those that have
    it in them. No text: all. Usage for one that means none."""
    meant = {text: [n for n in names if n == text] or [n for n in names if text in n] for text in only}
    if nothing := [text for text, found in meant.items() if not found]:
        raise Usage(f"no case is called {', '.join(nothing)}")
    return [n for n in names if not only or any(n in found for found in meant.values())]


def search_suite(only: Sequence[str]) -> list[dict[str, Any]]:
    """Search cost at batch 16 under the three ways of extraction (paper, Figure 10)."""
    cases = []
    programs = {path.stem: path for path in sorted((ROOT / "tests" / "programs").glob("*_b16.ef"))}
    for path in map(programs.__getitem__, matching([*programs], only)):
        for mode in ("early", "after", "none"):
            command = [_native.command(), "search", str(path), "--compaction", mode, "--json"]
            result = subprocess.run(command, capture_output=True, text=True, check=False)
            entry = json.loads(result.stdout) if result.returncode == 0 else {"error": result.stderr.strip()}
            keep = ("enodes", "saturation_s", "extraction_s", "expanded", "candidates", "complete", "peak_mb", "error")
            cases.append({"name": path.stem, "compaction": mode, **{k: entry[k] for k in keep if k in entry}})
    return cases


# ---- for people ----


def number(value: float | None, form: str = ".1f") -> str:
    return "" if value is None else format(value, form)


def row(case: Result) -> str:
    """All figures of one case in a line."""
    times = []
    for name, entry in case["baselines"].items():
        times.append(f"{name} {number(entry['us']) if 'us' in entry else 'failed'}")
    found = [", ".join(times)] if times else []
    if "product_us" in case:
        ours = [f"equiforge {case['product_us']:.1f}"]
        ours += [f"{case['speedup']:.2f}x"] if "speedup" in case else []
        ours += [f"rel L2 {case['rel_l2']:.1e}"] if case.get("rel_l2") is not None else []
        found.append(", ".join(ours))
    found += [case["error"]] if "error" in case else []
    found.append(f"{case['seconds']:.0f} s")
    return f"{case['name']}: {'; '.join(found)}"


def table(cases: Sequence[Result]) -> str:
    """One line a case, and one a suite that says how far the product is ahead."""
    names = list(dict.fromkeys(name for case in cases for name in case["baselines"]))
    rows = [["case", *names, "equiforge", "floor", "speedup", "rel L2", "kernels"]]
    for case in cases:
        cells = [case["name"], *(number(case["baselines"].get(name, {}).get("us")) for name in names)]
        cells += [number(case.get("product_us")), number(case.get("floor_us")), number(case.get("speedup"), ".2f")]
        rows.append([*cells, number(case.get("rel_l2"), ".1e"), str(case.get("kernels", ""))])
    widths = [max(len(cells[i]) for cells in rows) for i in range(len(rows[0]))]
    lines = [
        "  ".join(
            cell.ljust(w) if i == 0 else cell.rjust(w) for i, (cell, w) in enumerate(zip(cells, widths, strict=True))
        ).rstrip()
        for cells in rows
    ]
    for suite in dict.fromkeys(case["suite"] for case in cases):
        ahead = [case["speedup"] for case in cases if case["suite"] == suite and "speedup" in case]
        if ahead:
            mean = math.exp(sum(map(math.log, ahead)) / len(ahead))
            won = f"{sum(x > 1 for x in ahead)} of {len(ahead)} won"
            lines.append(f"{suite}: geometric mean over the fastest baseline {mean:.2f}x, {won}")
    return "\n".join(lines)


# ---- the verb ----


class Usage(Exception):
    """What is wrong with the arguments."""


def suites(text: str) -> list[str]:
    """Of a list with commas, or "all"."""
    chosen = list(SUITES) if text == "all" else text.split(",")
    if wrong := [name for name in chosen if name not in SUITES and chosen != ["search"]]:
        raise argparse.ArgumentTypeError(f"no suite is called {wrong[0]!r} (all, {', '.join(SUITES)}; search)")
    return chosen


def texts(text: str) -> list[str]:
    """Of a list with commas."""
    return [part for part in text.split(",") if part]


def devices(text: str) -> int | None:
    """A number; None for "all"."""
    if text == "all":
        return None
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"a number of devices or all, not {text!r}")
    return int(text)


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    """The arguments. `equiforge bench --help` (src/cli/main.c) says more of them."""
    parser = argparse.ArgumentParser(prog="equiforge bench", description=__doc__.split("\n", maxsplit=1)[0])
    add = parser.add_argument
    add("--suite", type=suites, default=["programs"], metavar="NAME,…", help="all, programs, attention, layers; search")
    add("--only", type=texts, default=[], metavar="NAME,…", help="cases of these names, or whose names contain them")
    add("--target", default="auto", help="auto, cpu (at reduced sizes), h200, …")
    add("--budget", default="5m", metavar="TIME", help="of each optimisation (5m)")
    add("--devices", type=devices, default=1, metavar="N|all", help="GPUs on which cases run side by side (1)")
    add("--limit", metavar="TIME", help="no case is begun that would not end within this")
    add("--results", type=Path, metavar="FILE", help="gets each result at once; what is there is not measured again")
    add("--save", type=Path, metavar="FOLDER", help="gets each optimised module: NAME.efz, without weights")
    add("--baselines", action="store_true", help="measure the baselines only")
    add("--skip", type=texts, default=[], metavar="NAME,…", help="baselines to leave out")
    add("--plot", type=Path, metavar="FILE.svg", help="speed against the fastest baseline, drawn")
    add("--json", action="store_true", help="one JSON object")
    return parser.parse_args(argv)


def check(arguments: argparse.Namespace) -> None:
    """Usage when something is wrong that can be told at once."""
    for path in (arguments.plot, arguments.results):
        if path and (path.is_dir() or not os.access(path if path.exists() else path.parent, os.W_OK)):
            raise Usage(f"{path}: cannot be written: no such folder, or none to write to")
    if arguments.target != "auto" and arguments.target not in _native.targets():
        raise Usage(f"unknown target '{arguments.target}'; `equiforge targets` lists them")
    if arguments.suite == ["search"] and (arguments.results or arguments.limit or arguments.plot or arguments.save):
        raise Usage("--results, --limit, --plot and --save are not for suite search")
    if arguments.save and arguments.baselines:
        raise Usage("--save is not for --baselines, which optimise nothing")


def folder(path: Path) -> None:
    """Makes it where there is none. Usage when that fails, or no file can be written there."""
    try:
        path.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path):
            pass
    except OSError as problem:
        raise Usage(f"{path}: no folder to write to: {problem.strerror}") from None


def chosen(arguments: argparse.Namespace) -> list[str]:
    """The cases' names, suite by suite. Usage for a text of --only that means none."""
    cases = workloads().WORKLOADS.items()
    names = [name for suite in arguments.suite for name, case in cases if case.suite == suite]
    if "layers" in arguments.suite and not workloads().HAS_TRANSFORMERS:
        print("bench: the decoder layers of transformers are left out: it is not installed", file=sys.stderr)
    return matching(names, arguments.only)


def wanted(arguments: argparse.Namespace) -> tuple[Options, float | None]:
    """What is measured of each case, and how long all may take. Usage when a time is none."""
    from equiforge._optimize import seconds

    try:
        budget_s = seconds(arguments.budget)
        limit_s = seconds(arguments.limit, "a limit") if arguments.limit else None
    except EquiForgeError as problem:
        raise Usage(str(problem)) from None
    skip, save = tuple(arguments.skip), arguments.save
    return Options(arguments.target, arguments.budget, budget_s, skip, arguments.baselines, save), limit_s


def measure(arguments: argparse.Namespace) -> int:
    """Runs the cases that have no result yet, and shows all that there are. The exit status."""
    options, limit_s = wanted(arguments)
    try:
        results = Results(arguments.results)
    except EquiForgeError as problem:
        raise Usage(str(problem)) from None
    names = chosen(arguments)
    if arguments.save:  # when nothing else is wrong, which would leave it behind
        folder(arguments.save)
    known = {name: results.found[name] for name in names if name in results.found}
    here = models(arguments.target) if known else set()
    known = {name: case for name, case in known.items() if options.covers(case, here)}
    rest = [name for name in names if name not in known]
    if known:
        print(f"bench: {len(known)} of {len(names)} cases are in {arguments.results}", file=sys.stderr)
    runner = Runner(options, limit_s, max((case["seconds"] for case in known.values()), default=0.0))
    found: list[Place] = []
    why = f"would not end within {arguments.limit}"
    try:
        found = places(arguments.target, arguments.devices) if rest else []
    except EquiForgeError as problem:  # what is known is shown all the same
        why = str(problem)
    with contextlib.closing(runner.run(rest, found)) as ended:
        for case in ended:
            results.add(case)
            known[case["name"]] = case
            print(row(case), file=sys.stderr, flush=True)
    left = runner.left_out
    if left:
        print(f"bench: left out ({'interrupted' if runner.signal else why}): {', '.join(left)}", file=sys.stderr)
    cases = [known[name] for name in names if name in known]
    print(json.dumps({"cases": cases, "left_out": left}) if arguments.json else table(cases), flush=True)
    if arguments.plot:
        arguments.plot.write_text(_plot.svg(cases), encoding="utf-8")
    if runner.signal:
        return 128 + runner.signal
    return 1 if left or any("error" in case for case in cases) else 0


def main(argv: Sequence[str] | None = None) -> int:
    arguments = parse(argv)
    try:
        check(arguments)
        if arguments.suite == ["search"]:
            cases = search_suite(arguments.only)
            print(json.dumps({"cases": cases}) if arguments.json else "\n".join(map(str, cases)))
            return 1 if any("error" in case for case in cases) else 0
        return measure(arguments)
    except Usage as problem:
        print(f"bench: {problem}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    try:
        sys.exit(main())
    except EquiForgeError as problem:
        print(f"bench: {problem}", file=sys.stderr)
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(128 + signal.SIGINT)
