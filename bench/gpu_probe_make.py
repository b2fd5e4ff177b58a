"""Prints Triton modules for bench/gpu_probe.py to measure: the first candidates of each program under the default
schedule and under schedules drawn around it. Needs build/equiforge and no GPU.

    python bench/gpu_probe_make.py OUT [--candidates 4] [--schedules 12] [--only SUBSTRING] [--seed 1]
"""

import argparse
import json
import random
import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[1]
EQUIFORGE = ROOT / "build" / "equiforge"
BATCHES = ("b1", "b8", "b16")
NAMES = ("rmsnorm_linear", "rmsnorm_mlp", "rmsnorm_swiglu", "layernorm_gemm", "lora", "gated_mlp", "ngpt")
ATTENTION = ("mha_decode", "mha_prefill")

# What a drawn schedule may change a parameter to, by the last part of its name.
CHOICES = {
    "warps": (1, 2, 2, 4, 4, 8),
    "stages": (2, 3, 4, 5),
    "unit": (0, 1),
    "load": (0, 1),
    "group": (1, 4, 8),
    "order": (0, 1),
}


def emit(file, schedule):
    command = [EQUIFORGE, "emit", file, "--name", "program"] + (["--schedule", schedule] if schedule else [])
    result = subprocess.run(command, check=False, capture_output=True, text=True)
    return result.stdout if result.returncode == 0 else None


def parameters(source):
    """The schedule that a module says it has."""
    head = source.split('"""')[1]
    text = head[head.index("Schedule: ") + len("Schedule: ") :].replace("\n", "")
    return {name: int(value) for name, value in re.findall(r"([\w.]+)=(\d+)", text)}


def neighbour(chosen, draws):
    """Some parameters changed: tiles by a factor, others among their choices."""
    changed = dict(chosen)
    for name in draws.sample(list(chosen), min(len(chosen), draws.randrange(1, 5))):
        choices = CHOICES.get(name.rsplit(".", maxsplit=1)[-1])
        if choices:
            changed[name] = draws.choice(choices)
        else:
            changed[name] = max(1, int(chosen[name] * draws.choice((0.25, 0.5, 2, 2, 4))))
    return changed


def candidates(file, count):
    """Text of the program's first candidates."""
    command = [EQUIFORGE, "search", file, "--show", str(count), "--json", "--time-limit", "60"]
    found = json.loads(subprocess.run(command, check=True, capture_output=True, text=True, timeout=600).stdout)
    return [program["text"] for program in found["programs"]]


def known(case):
    """The implementations in tests/derivations and bench/forms of this program, at this case's batch size."""
    name, batch = case.rsplit("_b", 1)
    texts = []
    for file in sorted([*ROOT.glob(f"tests/derivations/{name}_b*.ef"), *ROOT.glob(f"bench/forms/{name}_b*.ef")]):
        single = "_b1_" in file.name
        if single == (batch == "1"):
            rows = 8 * int(batch) if name == "ngpt" else int(batch)
            texts.append(re.sub(r"^dim (m|b) = \d+", rf"dim \1 = {rows}", file.read_text(), flags=re.M))
    return texts


def make(case, file, options, draws):
    folder = Path(options.out) / case
    folder.mkdir(parents=True, exist_ok=True)
    texts = known(case)
    names = [f"d{number}" for number in range(len(texts))]
    for text in candidates(file, 40 * options.candidates):
        if sum(name[0] == "c" for name in names) < options.candidates:
            (folder / "candidate.ef").write_text(text)
            if emit(folder / "candidate.ef", None):
                texts.append(text)
                names.append(f"c{len(names)}")
    made = 0
    for number, text in zip(names, texts, strict=True):
        program = folder / f"{number}.ef"
        program.write_text(text)
        first = emit(program, None)
        if first is None:
            continue
        chosen, seen = parameters(first), set()
        for schedule in range(options.schedules):
            wanted = chosen if schedule == 0 else neighbour(chosen, draws)
            source = emit(program, ",".join(f"{name}={value}" for name, value in wanted.items()))
            if source and source not in seen:
                (folder / f"{number}_s{schedule}.py").write_text(source)
                seen.add(source)
                made += 1
    print(f"{case}: {len(texts)} candidates, {made} modules", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("out")
    parser.add_argument("--candidates", type=int, default=4)
    parser.add_argument("--schedules", type=int, default=12)
    parser.add_argument("--only", default="")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    for name in NAMES + ATTENTION:
        for batch in BATCHES:
            if arguments.only in f"{name}_{batch}":
                path = ROOT / "tests" / "programs" / f"{name}_{batch}.ef"
                make(f"{name}_{batch}", path, arguments, random.Random(arguments.seed))
