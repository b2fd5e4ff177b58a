"""Cases of a benchmark side by side: devices, order, the file of results, the limit, interruptions. What runs them is
here a process that sleeps and reports made-up figures."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from conftest import BUILD, ROOT

import equiforge
from equiforge import _bench_case, _bench_run, _cuda, _optimize, _timing, bench
from equiforge._bench_run import Options, Place, Results, Runner

# NAME … --report FD, with FAKE in the environment: {NAME: what it does}, and a folder for what is seen of it.
FAKE = """
import json, os, signal, subprocess, sys, time
name, fd, how = sys.argv[1], int(sys.argv[-1]), json.loads(os.environ["FAKE"])
how = {**how.get("", {}), **how.get(name, {})}
started = time.monotonic()
def report(entry):
    os.write(fd, (json.dumps(entry) + "\\n").encode())
signal.signal(signal.SIGINT, signal.SIG_IGN if how.get("stubborn") else signal.default_int_handler)
if how.get("child"):  # a worker with a process group of its own
    child = subprocess.Popen(["sleep", "1000"], process_group=0) if sys.version_info >= (3, 11) else \\
        subprocess.Popen(["sleep", "1000"], preexec_fn=os.setpgrp)
report({"step": "imports", "s": 0.1})
report({"baseline": "eager", "us": 20.0, "warm_us": 18.0, "rel_l2": 1e-4})
report({"baseline": "compile", "error": "RuntimeError: none", **how.get("compile", {})})
with open(os.environ["SEEN"], "a") as seen:
    def saw(**what):
        seen.write(json.dumps({"name": name, "pid": os.getpid(), **what}) + "\\n")
        seen.flush()
    if how.get("child"):
        saw(child=child.pid)
    time.sleep(how.get("sleep", 0))
    for file in [x.partition("=")[2] for x in sys.argv if x.startswith("--save=")] * (not how.get("unsaved")):
        open(file, "w").close()
    if how.get("kill"):
        os.kill(os.getpid(), 9)
    if "--baselines" not in sys.argv:
        us = how.get("us", 10.0)
        report({"product": {"us": us, "warm_us": us / 2, "rel_l2": 2e-4}, "kernels": 1, "elapsed_s": 1.0})
    saw(gpu=os.environ.get("CUDA_VISIBLE_DEVICES"), cpus=sorted(os.sched_getaffinity(0)), started=started,
        ended=time.monotonic(), quiet="--quiet" in sys.argv, store=os.environ["EQUIFORGE_STORE"])
sys.exit(how.get("exit", 0))
"""
PROGRAMS = ["rmsnorm_linear/B1", "rmsnorm_mlp/B1", "rmsnorm_swiglu/B1", "layernorm_gemm/B1", "lora/B1", "gated_mlp/B1"]


class Fake:
    """Benchmarks with made-up cases. `seen`: what these were given, in the order in which they ended."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch):
        self.log, self.monkeypatch = folder / "seen", monkeypatch
        self.script = folder / "fake.py"
        self.script.write_text(FAKE)
        self.log.touch()
        monkeypatch.setenv("SEEN", str(self.log))
        monkeypatch.setenv("FAKE", "{}")
        real = _bench_run.case_command

        def command(*given):
            return [sys.executable, str(self.script), *real(*given)[3:]]

        monkeypatch.setattr(_bench_run, "case_command", command)

    def does(self, **how) -> None:
        """What cases do, by name; `every`: all."""
        self.monkeypatch.setenv("FAKE", json.dumps({"" if name == "every" else name: x for name, x in how.items()}))

    def gpus(self, count: int) -> None:
        found = [Place("NVIDIA H200", str(i)) for i in range(count)]
        self.monkeypatch.setattr(_bench_run, "gpus", lambda target: found)

    @property
    def seen(self) -> list[dict]:
        return [json.loads(line) for line in self.log.read_text().splitlines()]

    @property
    def names(self) -> list[str]:
        return [entry["name"] for entry in self.seen]


@pytest.fixture
def fake(tmp_path, monkeypatch):
    return Fake(tmp_path, monkeypatch)


def run(capsys, *arguments: object) -> tuple[int, dict, str]:
    """Exit status, the JSON object, standard error."""
    status = bench.main([*map(str, arguments), "--json"])
    out, err = capsys.readouterr()
    return status, json.loads(out), err


# ---- side by side ----


def test_side_by_side_on_two_devices(fake, capsys):
    fake.gpus(2)
    fake.does(every={"sleep": 0.4}, **{"rmsnorm_linear/B1": {"sleep": 1.5}})
    mine = os.sched_getaffinity(0)
    status, found, err = run(capsys, "--only", "B1", "--target", "h200", "--devices", "all", "--budget", "0.1s")
    assert status == 0, err
    assert os.sched_getaffinity(0) == mine
    # The suite's order, not that in which they ended.
    names = [case["name"] for case in found["cases"]]
    assert [n for n in names if n.endswith("/B1")][:6] == PROGRAMS
    assert fake.names.index("rmsnorm_linear/B1") > 0
    # One at a time on each, and both at work.
    by_gpu = {gpu: [x for x in fake.seen if x["gpu"] == gpu] for gpu in ("0", "1")}
    assert sum(map(len, by_gpu.values())) == len(names)
    for entries in by_gpu.values():
        entries.sort(key=lambda x: x["started"])
        assert all(a["ended"] <= b["started"] for a, b in zip(entries, entries[1:], strict=False))
    assert len(by_gpu["1"]) > len(by_gpu["0"]) >= 1
    assert any(a["started"] < b["ended"] and b["started"] < a["ended"] for a in by_gpu["0"] for b in by_gpu["1"])
    shares = [{tuple(x["cpus"]) for x in entries} for entries in by_gpu.values()]
    assert [len(share) for share in shares] == [1, 1]
    if len(mine) > 1:
        assert not set(*shares[0]) & set(*shares[1])
    assert all(x["quiet"] for x in fake.seen)
    assert "rmsnorm_linear/B1 on GPU 0 …" in err


def test_one_device_has_all_processors(fake, capsys):
    fake.gpus(2)
    status, found, _ = run(capsys, "--only", "lora/B1", "--target", "h200")
    assert status == 0 and found["cases"][0]["device"] == "NVIDIA H200"
    (entry,) = [x for x in fake.seen if x["name"] == "lora/B1"]
    assert entry["gpu"] == "0" and set(entry["cpus"]) == os.sched_getaffinity(0) and not entry["quiet"]


def test_cpu_has_one_place():
    here = [Place(_bench_run.processor())]
    assert _bench_run.places("cpu", None) == _bench_run.places("interpreter", 3) == here


def test_devices_of_a_kind(monkeypatch):
    models = ["NVIDIA H200", "NVIDIA GeForce RTX 5090", "NVIDIA H200"]
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    monkeypatch.setattr(_cuda, "gpus", lambda: [_cuda.Gpu("0000:00:00.0", model) for model in models])
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert [p.visible for p in _bench_run.places("h200", None)] == ["0", "2"]
    assert [p.visible for p in _bench_run.places("h200", 1)] == ["0"]
    assert [p.visible for p in _bench_run.places("rtx5090", None)] == ["1"]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "5, GPU-1f,7")  # what the driver shows are these
    assert [p.visible for p in _bench_run.places("auto", None)] == ["5", "7"]
    with pytest.raises(bench.EquiForgeError, match="has 2 GPUs of them"):
        _bench_run.places("h200", 3)
    with pytest.raises(bench.EquiForgeError, match="has none of them"):
        _bench_run.places("a100", 1)


def test_shares():
    mine = os.sched_getaffinity(0)
    for count in (1, 2, 3, len(mine), 2 * len(mine)):
        shares = _bench_run.shares(count)
        assert len(shares) == count and all(shares) and frozenset().union(*shares) == mine
        if count <= len(mine):
            assert sum(map(len, shares)) == len(mine)


# ---- results ----


def test_each_case_has_a_line(fake, capsys):
    fake.does(**{"ngpt/B8": {"exit": 3}})
    status, _, err = run(capsys, "--only", "B8", "--target", "cpu")
    assert status == 1
    assert "\nlora/B8: eager 20.0, compile failed; equiforge 10.0, 2.00x, rel L2 2.0e-04; 0 s\n" in err
    assert (
        "\nngpt/B8: eager 20.0, compile failed; equiforge 10.0, 2.00x, rel L2 2.0e-04; ended with status 3; 0 s\n"
        in err
    )


def test_json_has_cold_and_warm_times(fake, capsys):
    _, found, _ = run(capsys, "--only", "lora/B8", "--target", "cpu")
    (case,) = found["cases"]
    assert case["baselines"]["eager"] == {"us": 20.0, "warm_us": 18.0, "rel_l2": 1e-4}
    assert (case["product_us"], case["product_warm_us"]) == (10.0, 5.0)
    assert case["step_s"] == {"imports": 0.1} and found["left_out"] == []


def test_goes_on_where_it_was(fake, capsys, tmp_path):
    file = tmp_path / "results.jsonl"
    arguments = ("--only", "mlp/B1", "--target", "cpu", "--budget", "1s", "--results", file)
    fake.does(**{"gated_mlp/B1": {"kill": True}})
    status, found, err = run(capsys, *arguments)
    assert status == 1
    failed = {case["name"]: case.get("error") for case in found["cases"]}
    good = [name for name, error in failed.items() if error is None]
    assert failed["gated_mlp/B1"] == "ended by signal 9" and good
    assert "gated_mlp/B1: eager 20.0, compile failed; ended by signal 9" in err
    file.write_text(file.read_text() + '{"name": "rmsnorm_mlp/B1", "suite')  # cut off
    before = len(fake.seen)
    fake.does()
    status, found, err = run(capsys, *arguments)
    assert status == 0, err
    assert fake.names[before:] == ["gated_mlp/B1"]
    assert [case["name"] for case in found["cases"]] == list(failed)
    assert all("product_us" in case for case in found["cases"])
    before = len(fake.seen)
    assert run(capsys, *arguments)[0] == 0 and len(fake.seen) == before
    # Nothing is measured, so that no device is wanted; and what it says is what the table says.
    assert bench.main([*map(str, arguments)]) == 0
    assert "programs: geometric mean over the fastest baseline 2.00x, " in capsys.readouterr().out
    # Of another budget nothing is known.
    assert run(capsys, *arguments[:-3], "2s", *arguments[-2:])[0] == 0
    assert fake.names[before:] == list(failed)


def test_what_is_not_covered_is_measured_again(fake, capsys, tmp_path):
    file = tmp_path / "results.jsonl"
    arguments = ("--only", "lora/B8", "--target", "cpu", "--results", file)
    for more, count in ((("--baselines",), 1), ((), 2), (("--skip", "eager"), 2), (("--baselines",), 2)):
        assert run(capsys, *arguments, *more)[0] == 0
        assert len(file.read_text().splitlines()) == count


def measured_again(fake, capsys, file: Path, *arguments: object) -> bool:
    """Whether the one case is, beside this file."""
    before = len(fake.seen)
    status, _, err = run(capsys, "--only", "lora/B8", "--results", file, *arguments)
    assert status == 0, err
    return len(fake.seen) > before


def test_results_of_other_versions_do_not_count(fake, capsys, tmp_path, monkeypatch):
    file, now = tmp_path / "results.jsonl", _bench_run.versions()
    assert set(now) == {"equiforge", "torch", "triton"} and now["torch"] == torch.__version__
    cpu = ("--target", "cpu")
    assert measured_again(fake, capsys, file, *cpu) and not measured_again(fake, capsys, file, *cpu)
    for name in now:
        monkeypatch.setattr(_bench_run, "versions", lambda name=name: {**now, name: "0"})
        assert measured_again(fake, capsys, file, *cpu) and not measured_again(fake, capsys, file, *cpu)
    old = {key: x for key, x in json.loads(file.read_text().splitlines()[-1]).items() if key != "versions"}
    file.write_text(json.dumps(old) + "\n")
    assert measured_again(fake, capsys, file, *cpu)


def test_results_of_other_devices_do_not_count(fake, capsys, tmp_path, monkeypatch):
    file = tmp_path / "results.jsonl"
    for target in ("cpu", "auto"):  # of which there is no GPU
        monkeypatch.setattr(_bench_run, "processor", lambda: "a processor")
        monkeypatch.setattr(_bench_run, "gpus", lambda target: [])
        assert measured_again(fake, capsys, file, "--target", target)
        assert not measured_again(fake, capsys, file, "--target", target)
        monkeypatch.setattr(_bench_run, "processor", lambda: "another one")
        assert measured_again(fake, capsys, file, "--target", target)
    fake.gpus(1)
    assert measured_again(fake, capsys, file, "--target", "auto")
    assert not measured_again(fake, capsys, file, "--target", "auto")
    monkeypatch.setattr(_bench_run, "gpus", lambda target: [Place("NVIDIA H200 NVL", "0")])
    assert measured_again(fake, capsys, file, "--target", "auto")


def test_baselines_short_of_memory_are_measured_again(fake, capsys, tmp_path):
    """That other processes had."""
    file = tmp_path / "results.jsonl"
    fake.does(every={"compile": {"short": True}})
    assert measured_again(fake, capsys, file, "--target", "cpu")
    assert not measured_again(fake, capsys, file, "--target", "cpu", "--skip", "compile")
    assert measured_again(fake, capsys, file, "--target", "cpu")
    fake.does()
    assert measured_again(fake, capsys, file, "--target", "cpu")
    assert not measured_again(fake, capsys, file, "--target", "cpu")


@pytest.mark.parametrize(("free", "mine", "short"), [(10, 880, True), (10, 980, False)])
def test_memory_of_others(monkeypatch, free, mine, short):
    """A baseline that does not fit into a device of its own does not fit."""
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (free, 1000))
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda device: mine)
    problem = torch.OutOfMemoryError("CUDA out of memory")
    assert _bench_case.short_for_others(problem, torch.device("cuda", 0)) is short
    assert not _bench_case.short_for_others(RuntimeError("none"), torch.device("cuda", 0))


def test_each_case_has_a_store_of_its_own(fake, capsys, monkeypatch):
    monkeypatch.delenv("EQUIFORGE_STORE", raising=False)
    arguments = ("--only", "lora/B8", "--target", "cpu")
    assert run(capsys, *arguments)[0] == run(capsys, *arguments)[0] == 0
    stores = [Path(entry["store"]) for entry in fake.seen]
    assert len(set(stores)) == 2 and not any(store.parent.exists() for store in stores)
    monkeypatch.setenv("EQUIFORGE_STORE", "/a/store.db")
    assert run(capsys, *arguments)[0] == 0 and fake.seen[-1]["store"] == "/a/store.db"


def test_several_names(fake, capsys):
    def names(only: str) -> list[str]:
        before = len(fake.seen)
        assert run(capsys, "--only", only, "--target", "cpu", "--baselines")[0] == 0
        return [entry["name"] for entry in fake.seen[before:]]

    assert names("ngpt/B8,lora/B1") == ["lora/B1", "ngpt/B8"]  # and not lora/B16
    assert names("lora/B1,lora,") == ["lora/B1", "lora/B8", "lora/B16"]
    assert bench.main(["--only", "lora,nothing,none", "--target", "cpu"]) == 2
    assert capsys.readouterr().err.strip() == "bench: no case is called nothing, none"


@pytest.mark.parametrize("text", ["not a result\n", '{"cases": []}\n', "[1]\n", "3", '{"name": "a"}'])
def test_a_file_of_something_else_is_left_alone(fake, capsys, tmp_path, text):
    file = tmp_path / "results.jsonl"
    file.write_text(text)
    assert bench.main(["--only", "lora/B8", "--target", "cpu", "--results", str(file)]) == 2
    assert capsys.readouterr().err.strip() == f"bench: {file}: line 1 is no result of a case"
    assert file.read_text() == text and not fake.seen


def test_results_without_the_device(fake, capsys, tmp_path, monkeypatch):
    """What is known is shown where the device is not; the rest is left out, and said to be."""
    file = tmp_path / "results.jsonl"
    fake.gpus(1)
    assert run(capsys, "--only", "lora/B8", "--target", "h200", "--results", file)[0] == 0
    monkeypatch.setattr(_bench_run, "gpus", lambda target: [])
    status, found, err = run(capsys, "--only", "lora", "--target", "h200", "--results", file)
    assert status == 1 and [case["name"] for case in found["cases"]] == ["lora/B8"]
    assert found["left_out"] == ["lora/B1", "lora/B16"]
    assert "left out (--target h200 --devices 1: this machine has none of them): lora/B1, lora/B16" in err


def test_full_disks_lose_the_line_only(capsys):
    results = Results(Path("/dev/full"))
    results.add({"name": "a"})
    assert "No space left" in capsys.readouterr().err and "a" in results.found


def test_what_follows_a_line_that_was_cut_off_counts(tmp_path, monkeypatch, capsys):
    """Wherever the disk was full."""
    whole = {**dict.fromkeys(_bench_run.ALWAYS, 0), "baselines": {}}
    lost = {**whole, "name": "lost"}
    for size in (0, 1, 5, 40):
        results = Results(tmp_path / str(size))

        def full(fd, file=tmp_path / str(size), size=size):
            os.truncate(file, os.stat(file).st_size - len(json.dumps(lost)) - 1 + size)
            raise OSError(28, "No space left on device")

        results.add({**whole, "name": "before"})
        with monkeypatch.context() as context:
            context.setattr(os, "fsync", full)
            results.add(lost)
        results.add({**whole, "name": "after"})
        results.add({**whole, "name": "last"})
        assert list(Results(tmp_path / str(size)).found) == ["before", "after", "last"]


# ---- files of optimised modules ----


def test_cases_whose_file_is_missing_are_measured_again(fake, capsys, tmp_path):
    file, folder = tmp_path / "results.jsonl", tmp_path / "a" / "b"
    save = ("--target", "cpu", "--save", folder)
    assert measured_again(fake, capsys, file, *save[:2])
    assert measured_again(fake, capsys, file, *save) and os.listdir(folder) == ["lora_B8.efz"]
    assert not measured_again(fake, capsys, file, *save)
    assert not measured_again(fake, capsys, file, *save[:2])
    (folder / "lora_B8.efz").unlink()
    fake.does(every={"unsaved": True})
    assert measured_again(fake, capsys, file, *save) and measured_again(fake, capsys, file, *save)
    assert not measured_again(fake, capsys, file, *save[:2])


def test_each_case_has_a_file_of_its_own():
    options = Options("cpu", "1s", 1.0, save=Path("folder"))
    names = list(_bench_case.workloads().WORKLOADS)
    assert options.file("mha_decode/B1") == Path("folder/mha_decode_B1.efz")
    assert len(set(map(options.file, names))) == len(names)
    assert Options("cpu", "1s", 1.0).file("mha_decode/B1") is None


def test_saved_files_are_of_the_product(tmp_path):
    """Other verbs take them."""

    def equiforge_prints(*arguments: object) -> str:
        command = [BUILD / "equiforge", *map(str, arguments)]
        result = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
        assert result.returncode == 0, result.stderr
        return result.stdout

    file = tmp_path / "modules" / "rmsnorm_linear_B1.efz"
    case = ("--only", "rmsnorm_linear/B1", "--target", "cpu", "--budget", "5s", "--skip", "eager,compile", "--json")
    (measured,) = json.loads(equiforge_prints("bench", *case, "--save", file.parent))["cases"]
    assert list(measured["step_s"])[-3:] == ["optimize", "save", "equiforge"]
    assert "parameters\n  g " in equiforge_prints("inspect", file)
    assert "checked: yes" in equiforge_prints("explain", file)
    module, inputs = _bench_case.workloads().workload("rmsnorm_linear/B1").make(small=True)
    fast = equiforge.load(file, module)
    assert fast.plan.kernels == measured["kernels"]
    torch.testing.assert_close(fast(*inputs), module(*inputs), rtol=2e-2, atol=2e-2)


class Optimized:
    """Stands for an optimised module; `problem`: why it cannot be saved."""

    plan = SimpleNamespace(kernels=1, external=[])

    def __init__(self, problem: str = ""):
        self.problem = problem

    def save(self, path: str, weights: bool) -> None:
        if self.problem:
            raise equiforge.EquiForgeError(self.problem)
        Path(path).write_text(str(weights))


def product(monkeypatch, fast: Optimized, file: Path) -> list[dict]:
    """What a case reports of a result that is this one."""
    case = object.__new__(_bench_case.Case)
    reports: list[dict] = []
    case.report, case.module, case.inputs, case.weights = reports.append, None, [], {}
    case.workload = SimpleNamespace(name="lora/B8")
    monkeypatch.setattr(_optimize, "optimize", lambda *_, **__: fast)
    case.product("cpu", "1s", quiet=True, file=file)
    return reports


def test_a_case_killed_in_measuring_has_its_file(tmp_path, monkeypatch):
    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(_bench_case.Case, "measure", killed)
    with pytest.raises(KeyboardInterrupt):
        product(monkeypatch, Optimized(), tmp_path / "a.efz")
    assert (tmp_path / "a.efz").read_text() == "False"


def test_what_cannot_be_saved_costs_the_file_only(tmp_path, monkeypatch, capsys):
    """And leaves none of an earlier run."""
    monkeypatch.setattr(_bench_case.Case, "measure", lambda *_: {"us": 1.0})
    file = tmp_path / "a.efz"
    file.write_text("earlier")
    for _ in range(2):
        reports = product(monkeypatch, Optimized("its results differ: not saved"), file)
        assert reports[-1]["product"] == {"us": 1.0} and not file.exists()
        assert capsys.readouterr().err == "bench: lora/B8: its results differ: not saved\n"


# ---- limits ----


def test_limit(fake, capsys, tmp_path):
    fake.does(every={"sleep": 0.5})
    plot = tmp_path / "plot.svg"
    arguments = ("--only", "B8", "--target", "cpu", "--budget", "0.1s", "--limit", "2s", "--plot", plot)
    status, found, err = run(capsys, *arguments)
    names = [case["name"] for case in found["cases"]]
    assert status == 1 and 1 <= len(names) <= 3
    assert names + found["left_out"] == [
        name for name in _bench_case.workloads().WORKLOADS if name in names + found["left_out"]
    ]
    assert len(found["left_out"]) == 7 - len(names)
    assert f"left out (would not end within 2s): {', '.join(found['left_out'])}\n" in err
    assert names[0] in plot.read_text() and found["left_out"][0] not in plot.read_text()


def test_limit_shorter_than_a_budget(fake, capsys):
    status, found, _ = run(capsys, "--only", "lora/B8", "--target", "cpu", "--budget", "1m", "--limit", "59s")
    assert status == 1 and found == {"cases": [], "left_out": ["lora/B8"]} and not fake.seen


def test_limit_knows_earlier_results(fake, capsys, tmp_path):
    """What a case took then, it is taken to take now."""
    file = tmp_path / "results.jsonl"
    arguments = ("--target", "cpu", "--budget", "0.1s", "--results", file)
    assert run(capsys, "--only", "lora/B8", *arguments)[0] == 0
    file.write_text(json.dumps({**json.loads(file.read_text()), "seconds": 100.0}) + "\n")
    assert run(capsys, "--only", "lora", *arguments, "--limit", "99s")[1]["left_out"] == ["lora/B1", "lora/B16"]
    assert run(capsys, "--only", "lora", *arguments, "--limit", "110s")[0] == 0


def test_hanging_cases_are_killed(fake, monkeypatch):
    monkeypatch.setattr(_bench_run, "PATIENCE_S", 1.0)
    fake.does(every={"sleep": 100, "child": True, "stubborn": True})
    runner = Runner(Options("cpu", "0.1s", 0.1))
    (case,) = runner.run(["lora/B8"], [Place("cpu")])
    assert case["error"] == "did not end within 1 s" and case["baselines"]["eager"]["us"] == 20.0
    assert gone(fake)


def test_what_a_case_leaves_is_ended(fake):
    fake.does(every={"child": True})
    (case,) = Runner(Options("cpu", "0.1s", 0.1)).run(["lora/B8"], [Place("cpu")])
    assert "error" not in case and gone(fake)


# ---- interruptions ----


def gone(fake: Fake) -> bool:
    """Whether no process of the cases is there any more, and some were."""
    pids = {entry[key] for entry in fake.seen for key in ("pid", "child") if key in entry}
    return bool(pids) and not any(map(alive, pids))


def alive(pid: int) -> bool:
    """Whether there is such a process, and no zombie that waits for whoever inherited it."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def start(fake: Fake, *arguments: object) -> subprocess.Popen:
    """The benchmark in a process of its own."""
    script = fake.script.with_name("bench.py")
    script.write_text(
        "import sys, signal\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)  # or started in the background it ignores it\n"
        "from equiforge import _bench_run, bench\n"
        "real = _bench_run.case_command\n"
        f"_bench_run.case_command = lambda *given: [sys.executable, {str(fake.script)!r}, *real(*given)[3:]]\n"
        "_bench_run.gpus = lambda target: [_bench_run.Place('NVIDIA H200', str(i)) for i in range(2)]\n"
        "sys.exit(bench.main())\n"
    )
    return subprocess.Popen(
        [sys.executable, str(script), *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    )


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_interrupted(fake, tmp_path, number, status):
    file, plot = tmp_path / "results.jsonl", tmp_path / "plot.svg"
    hang = {"sleep": 1000, "child": True}
    fake.does(**{"lora/B1": {"us": 5.0}, "lora/B8": hang, "lora/B16": {**hang, "stubborn": True}})
    process = start(
        fake,
        "--only",
        "lora",
        "--target",
        "h200",
        "--devices",
        "2",
        "--budget",
        "0.1s",
        "--results",
        file,
        "--plot",
        plot,
    )
    end = time.monotonic() + 60
    while sum("child" in entry for entry in fake.seen) < 2 and time.monotonic() < end:
        time.sleep(0.05)
    process.send_signal(number)
    begin = time.monotonic()
    out, err = process.communicate(timeout=60)
    assert process.returncode == status, err
    assert time.monotonic() - begin < 10 and gone(fake)
    table = [line.split() for line in out.splitlines()]
    assert table[1][:3] == ["lora/B1", "20.0", "5.0"]
    assert [line[0] for line in table[1:4]] == ["lora/B1", "lora/B8", "lora/B16"]  # as far as they got
    assert "4.00x, 1 of 1 won" in out
    assert "lora/B8: eager 20.0, compile failed; interrupted" in err
    kept = Results(file).found
    assert [name for name, case in kept.items() if "error" not in case] == ["lora/B1"]
    assert "lora/B1, equiforge: 4.00" in plot.read_text()


def test_cases_end_with_the_benchmark(fake, monkeypatch, tmp_path):
    """Even when it is killed."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))  # where it leaves a folder then
    process = subprocess.Popen(
        [sys.executable, "-c", PARENT], cwd=ROOT, stdout=subprocess.PIPE, text=True, stdin=subprocess.DEVNULL
    )
    case = int(process.stdout.readline())
    process.kill()
    process.wait()
    end = time.monotonic() + 20
    while alive(case) and time.monotonic() < end:
        time.sleep(0.05)
    assert not alive(case)


def test_cases_of_a_benchmark_that_has_ended_end(capsys, monkeypatch):
    """Where it ended before they could ask to be told."""
    mine = signal.getsignal(signal.SIGINT)
    monkeypatch.setattr(_bench_case, "Case", lambda *_: pytest.fail("was begun"))
    monkeypatch.setattr(_bench_case.ctypes, "CDLL", lambda _: SimpleNamespace(prctl=lambda *_: 0))
    others = ["lora/B8", "--target", "cpu", "--device", "cpu", "--budget", "1s", "--report", "2"]
    with pytest.raises(_bench_run.EquiForgeError, match=f"process {os.getpid()} is not there"):
        _bench_case.main([*others, "--parent", str(os.getpid())])  # which is no process's parent that it is itself
    assert signal.getsignal(signal.SIGINT) is mine


PARENT = """
from equiforge._bench_run import *
case = Running.start("lora/B8", Options("cpu", "100s", 100.0), Place("cpu"))
while b"imports" not in case.reported:
    case.read()
    time.sleep(0.01)
print(case.process.pid, flush=True)
time.sleep(1000)
"""


# ---- a case ----


def test_exact_results_in_parts(monkeypatch):
    """Where they do not fit at once."""
    module, inputs = _bench_case.workloads().workload("mha_prefill/B8").make(small=True)
    inputs = [torch.cat([x, x.flip(0), x[:1]]) for x in inputs]
    calls = []

    class Short(torch.nn.Module):
        def forward(self, q, k, v):
            calls.append(len(q))
            if len(q) > 2:
                raise torch.OutOfMemoryError("CUDA out of memory")
            return module(q, k, v)

    (whole,) = _bench_case.exact_results(module, inputs, batched=True)
    (parts,) = _bench_case.exact_results(Short(), inputs, batched=True)
    assert whole.dtype == parts.dtype == torch.float64
    torch.testing.assert_close(parts, whole)
    assert calls == [5, 3, 2, 2, 1]
    assert _bench_case.exact_results(Short(), inputs, batched=False) is None


def test_slow_calls_are_few():
    """However long a call takes, a baseline takes a few seconds, and the next one is measured when memory is short."""
    case = object.__new__(_bench_case.Case)
    reports, calls = [], []
    case.report, case.exact, case.device = reports.append, None, torch.device("cpu")
    case.timer = _timing.Timer([torch.ones(4)], torch.device("cpu"))

    def slow(tensors):
        calls.append(1)
        time.sleep(0.3)
        return tensors[0]

    case.baseline("slow", lambda: slow)
    case.baseline("short", lambda: (_ for _ in ()).throw(torch.OutOfMemoryError("CUDA out of memory")))
    measured, step, failed, _ = reports
    assert measured["us"] >= 2.9e5 and measured["first_s"] >= 0.29 and step["step"] == "slow"
    assert len(calls) <= 2 + 2 * _bench_case.TIMING_S / 0.3 + 3
    assert failed == {"baseline": "short", "error": "OutOfMemoryError: CUDA out of memory", "short": True}
