"""A benchmark's figure as SVG, without a plotting library: for each case, speed against the fastest baseline."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Any

COLOURS = ("#9aa5b1", "#6b8cae", "#4c6a92", "#b08968", "#8a9a5b", "#a78bba")
OURS = "#c8553d"
BAR, GAP, HEIGHT, LEFT, TOP = 9, 16, 260, 48, 40


def speeds(case: dict[str, Any]) -> dict[str, float]:
    """By method: how many times as fast as the fastest baseline; at most 1 for baselines."""
    times = {name: entry["us"] for name, entry in case["baselines"].items() if "us" in entry}
    if not times:
        return {}
    best = min(times.values())
    found = {name: best / us for name, us in times.items()}
    if "product_us" in case:
        found["equiforge"] = best / case["product_us"]
    return found


def svg(cases: Sequence[dict[str, Any]]) -> str:
    """One group of bars a case that has figures, in the order of the table."""
    groups = [(case["name"], found) for case in cases if (found := speeds(case))]
    methods = list(dict.fromkeys(name for _, found in groups for name in found))
    colours = {name: OURS if name == "equiforge" else COLOURS[i % len(COLOURS)] for i, name in enumerate(methods)}
    top = max([1.0, *(value for _, found in groups for value in found.values())]) * 1.1
    x, bars = LEFT, []

    def y(value: float) -> float:
        return TOP + HEIGHT * (1 - value / top)

    for name, found in groups:
        start = x
        for method in methods:
            if method in found:
                height = TOP + HEIGHT - y(found[method])
                title = f"<title>{escape(name)}, {escape(method)}: {found[method]:.2f}</title>"
                place = f'x="{x}" y="{y(found[method]):.1f}" width="{BAR - 1}" height="{height:.1f}"'
                bars.append(f'<rect {place} fill="{colours[method]}">{title}</rect>')
                x += BAR
        middle = (start + x) / 2
        turn = f'transform="rotate(40 {middle:.0f} {TOP + HEIGHT + 14})"'
        bars.append(f'<text x="{middle:.0f}" y="{TOP + HEIGHT + 14}" {turn}>{escape(name)}</text>')
        x += GAP
    lines = []
    step = 0.5 if top < 4 else 1.0
    for i in range(int(top / step) + 1):
        at, strong = y(i * step), i * step == 1
        colour = "#333" if strong else "#ddd"
        lines.append(f'<line x1="{LEFT}" x2="{x}" y1="{at:.1f}" y2="{at:.1f}" stroke="{colour}"/>')
        lines.append(f'<text x="{LEFT - 8}" y="{at + 4:.1f}" text-anchor="end">{i * step:g}</text>')
    legend = []
    for i, method in enumerate(methods):
        legend.append(f'<rect x="{LEFT + 110 * i}" y="8" width="10" height="10" fill="{colours[method]}"/>')
        legend.append(f'<text x="{LEFT + 110 * i + 15}" y="17">{escape(method)}</text>')
    width, height = max(x + 80, LEFT + 110 * len(methods)), TOP + HEIGHT + 110
    head = f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" font-family="sans-serif"'
    return "\n".join([f'{head} font-size="11">', *lines, *bars, *legend, "</svg>"]) + "\n"
