"""`equiforge optimize` on the processor: results, the store, faults of candidates, interruptions."""

import json
import os
import random
import re
import signal
import sqlite3
import subprocess
import sys
import time

import pytest
from conftest import SMALL_PROGRAM

PROGRAM = """program p
dim m = 16
dim k = 64
dim n = 48
input x: f16[m, k]
input g: f16[k]
input W: f16[k, n]
ms = div(reduce[sum, -1](mul(x, x)), 64)
xn = mul(mul(x, rsqrt(add(ms, 1e-06))), g)
output y = matmul(xn, W)
"""

SIMPLE = """program s
dim m = 16
dim k = 64
dim n = 48
input x: f16[m, k]
input W: f16[k, n]
input c: f16[n]
output y = add(matmul(x, W), c)
"""
RENAMED = SIMPLE.replace("[m", "[rows").replace("dim m", "dim rows").replace("c", "bias").replace("W", "weight")
KEYS = ("original_us", "best_us", "speedup", "floor_us", "kernels", "rel_l2", "measured", "elapsed_s")


# A sum of squares that leaves float16: its inverse root is 0, which is finite and wrong.
OVERFLOW = """program p
dim m = 4
dim n = 4096
input x: f16[m, n]
q = mul(x, 20)
output y = mul(q, rsqrt(reduce[sum, -1](mul(q, q))))
"""


@pytest.fixture
def program(tmp_path):
    path = tmp_path / "p.ef"
    path.write_text(PROGRAM)
    return path


@pytest.fixture
def simple(tmp_path):
    path = tmp_path / "p.ef"
    path.write_text(SIMPLE)
    return path


@pytest.fixture
def store(tmp_path):
    return tmp_path / "store.db"


@pytest.fixture
def optimize(equiforge, store):
    """Optimises with one thread, a few candidates and more time than that takes; more environment by keyword."""

    def run(path, budget="60s", limit=8, **environment):
        arguments = ("optimize", path, "--target", "cpu", "--budget", budget, "--limit", limit, "--threads", "1")
        arguments += ("--store", store)
        os.environ.update(environment)
        try:
            return equiforge.json(*arguments, timeout=200)
        finally:
            for name in environment:
                del os.environ[name]

    return run


def rows(store, query):
    with sqlite3.connect(store) as db:
        return db.execute(query).fetchall()


def intact(store):
    return rows(store, "PRAGMA integrity_check") == [("ok",)]


def test_result(optimize, equiforge, program, store, tmp_path):
    result = optimize(program)
    assert set(KEYS) <= set(result)
    assert 0 < result["best_us"] <= result["original_us"]
    assert result["speedup"] >= 1
    assert 0 < result["rel_l2"] < 1e-2
    assert result["measured"] > 3
    assert result["failed"] == 0
    assert not result["stored"]
    assert intact(store)
    # What it found is a program that says the same as the original.
    found = tmp_path / "found.ef"
    found.write_text(result["program"])
    assert equiforge.json("run", found, "--check", "--threads", "1")["rel_l2"] < 1e-2
    assert equiforge.json("explain", "--from", program, "--to", found)["checked"]


def test_second_time_is_instant(optimize, simple, store):
    first = optimize(simple)
    start = time.monotonic()
    second = optimize(simple)
    assert time.monotonic() - start < 1 or "sanitize" in str(os.environ.get("EQUIFORGE_BUILD"))
    assert second["stored"]
    assert all(second[key] == first[key] for key in KEYS if key != "elapsed_s")
    # The same program by other names is the same program; a larger budget is another matter.
    simple.write_text(RENAMED)
    assert optimize(simple)["stored"]
    assert not optimize(simple, budget="100s")["stored"]


@pytest.mark.parametrize("fault", ["crash", "exit", "noise", "wrong", "compile"])
def test_faulty_candidate_costs_itself(optimize, simple, fault, store):
    """Each worker makes its second candidate a faulty one; so does a new worker."""
    # In f32: a wrong candidate with narrow temporaries would be tried again with wide ones.
    simple.write_text(SIMPLE.replace("f16", "f32"))
    result = optimize(simple, EQUIFORGE_TEST_FAULT=f"{fault}@2")
    assert 1 <= result["failed"] <= 5
    assert result["measured"] > 3
    assert 0 < result["best_us"] <= result["original_us"]
    status = {"wrong": "wrong", "noise": "wrong", "compile": "compile"}.get(fault, "lost")
    assert rows(store, "SELECT DISTINCT status FROM result WHERE status <> 'fine'") == [(status,)]


def test_hanging_candidate_costs_itself(optimize, simple):
    result = optimize(simple, EQUIFORGE_TEST_FAULT="hang@3")
    assert 1 <= result["failed"] <= 2
    assert result["measured"] > 3


def test_libraries_of_runs_with_faults_are_not_kept(optimize, simple, tmp_path, monkeypatch):
    """They would be kept as what the true source was compiled to."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert not optimize(simple, EQUIFORGE_TEST_FAULT="wrong@2")["stored"]
    assert not [*tmp_path.glob("cache/equiforge/native/*")]
    assert not optimize(simple, limit=12)["stored"]
    assert len([*tmp_path.glob("cache/equiforge/native/*")]) == 1


def test_compiled_libraries_stay_within_their_limit(optimize, simple, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("EQUIFORGE_NATIVE_LIMIT", "0")
    assert not optimize(simple, limit=12)["stored"]
    assert list(tmp_path.glob("cache/equiforge/*")) and not [*tmp_path.glob("cache/equiforge/native/*")]


def test_a_stored_best_with_an_illegal_schedule_is_found_anew(optimize, simple, store):
    first = optimize(simple)
    assert optimize(simple)["stored"]
    with sqlite3.connect(store) as db:
        (text,) = db.execute("SELECT json FROM best").fetchone()
        best = json.loads(text)
        assert best["schedule"]
        best["schedule"] = re.sub(r"=\d+", "=0", best["schedule"])
        db.execute("UPDATE best SET json = ?", (json.dumps(best),))
    again = optimize(simple)
    assert not again["stored"] and "=0" not in again["schedule"]
    assert first["schedule"] and optimize(simple)["stored"]


def start(equiforge, *arguments):
    return subprocess.Popen(
        [equiforge.executable, *map(str, arguments)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def workers_of(directory):
    """Processes whose working files lie in a directory, by its TMPDIR."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/environ", "rb") as file:
                if f"TMPDIR={directory}\0".encode() in file.read() + b"\0":
                    found.append(int(pid))
        except OSError:
            pass
    return found


def test_killed_at_any_moment(equiforge, simple, store, tmp_path):
    """kill -9: the store is whole, the next run goes on with what was measured, nothing is left running."""
    count = int(os.environ.get("EQUIFORGE_TEST_KILLS", "4"))
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    arguments = (
        "optimize",
        simple,
        "--target",
        "cpu",
        "--budget",
        "20s",
        "--threads",
        "1",
        "--store",
        store,
        "--json",
    )
    os.environ["TMPDIR"] = str(temporary)
    dice = random.Random(count)
    known = 0
    try:
        for _ in range(count):
            process = start(equiforge, *arguments)
            time.sleep(dice.uniform(0, 4))
            process.kill()
            process.communicate()
            if store.exists():
                assert intact(store)
                now = rows(store, "SELECT count(*) FROM result")[0][0] if tables(store) else 0
                assert now >= known
                known = now
        deadline = time.monotonic() + 10
        while workers_of(temporary) and time.monotonic() < deadline:
            time.sleep(0.2)
        assert workers_of(temporary) == []
        result = equiforge.json(*arguments[:-1], timeout=100)
        assert result["best_us"] <= result["original_us"]
        # Also what the killed ones left; but one that was just making its directory left it empty.
        assert [path for path in temporary.iterdir() if not path.is_dir() or list(path.iterdir())] == []
        assert len(list(tmp_path.glob("p*"))) == 1  # no output but what was asked for
    finally:
        del os.environ["TMPDIR"]


def tables(store):
    return rows(store, "SELECT name FROM sqlite_master WHERE name = 'result'")


def test_interrupted(equiforge, simple, store):
    """Ctrl-C finishes with the best so far; the next run knows it, and goes on."""
    arguments = ("optimize", simple, "--target", "cpu", "--budget", "200s", "--threads", "1", "--store", store)
    process = start(equiforge, *arguments, "--json")
    deadline = time.monotonic() + 60
    while not (store.exists() and tables(store) and rows(store, "SELECT * FROM result")):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    result = json.loads(out)
    assert result["stopped"]
    assert result["best_us"] <= result["original_us"]


def test_interrupted_in_search(equiforge, store, root):
    """The search, which would take much longer, does not hold up Ctrl-C."""
    program = root / "tests/programs/diff_attn.ef"
    process = start(equiforge, "optimize", program, "--target", "cpu", "--budget", "600s", "--store", store)
    deadline = time.monotonic() + 60
    while not (store.exists() and tables(store)):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    time.sleep(1)
    process.send_signal(signal.SIGINT)
    start_s = time.monotonic()
    process.communicate(timeout=60)
    assert process.returncode in (0, 1)  # whether the program itself was measured by then
    assert time.monotonic() - start_s < 20


def test_several_at_once(equiforge, simple, store):
    arguments = (
        "optimize",
        simple,
        "--target",
        "cpu",
        "--budget",
        "10s",
        "--threads",
        "1",
        "--store",
        store,
        "--json",
    )
    processes = [start(equiforge, *arguments) for _ in range(3)]
    results = [(p.communicate(timeout=120), p.returncode) for p in processes]
    assert [code for _, code in results] == [0, 0, 0], results
    assert intact(store)


def test_damaged_store_is_set_aside(optimize, simple, store):
    store.write_bytes(b"SQLite format 3\0" + b"garbage" * 1000)
    result = optimize(simple)
    assert "cannot be read" in result["note"]
    assert intact(store)
    assert optimize(simple)["stored"]


def test_a_file_that_is_no_store_is_left_as_it_is(equiforge, simple, store):
    store.write_bytes(b"a module, not a store")
    result = equiforge("optimize", simple, "--target", "cpu", "--store", store)
    assert result.returncode == 2 and not result.stdout
    assert result.stderr == f"equiforge: optimize: {store} is no store, and is left as it is\n"
    assert store.read_bytes() == b"a module, not a store"
    assert not store.with_name("store.db.bad").exists()


def test_progress_is_for_terminals_only(equiforge, simple, store):
    result = equiforge("optimize", simple, "--target", "cpu", "--budget", "5s", "--threads", "1", "--store", store)
    assert result.returncode == 0
    assert result.stderr == ""
    assert "best" in result.stdout


# Exact results of all of it, a call of the program as it is on every distribution, and ten timed calls took minutes.
LARGE = """program large
dim h = 12
dim q = 2048
dim s = 2048
dim d = 64
dim e = 64
input q: f16[h, q, d]
input k: f16[h, s, d]
input v: f16[h, s, e]
raw = mul(matmul(q, transpose[0, 2, 1](k)), 0.125)
sc = select(ge(reshape[q, 1](iota[q]), iota[s]), raw, -inf)
p = exp(sub(sc, reduce[max, -1](sc)))
output o = matmul(div(p, reduce[sum, -1](p)), v)
"""


def test_the_budget_bounds_everything(equiforge, tmp_path, store):
    """Also where a call takes long; the result is checked all the same."""
    path = tmp_path / "large.ef"
    path.write_text(LARGE)
    start = time.monotonic()
    found = equiforge.json("optimize", path, "--target", "cpu", "--budget", "20s", "--store", store, timeout=200)
    elapsed = time.monotonic() - start
    assert elapsed < 60  # 22 on a quiet machine; preparing is not interrupted, and takes longer on a busy one
    assert 0 < found["rel_l2"] < 1e-2
    assert found["best_us"] <= found["original_us"]


def test_says_when_nothing_was_tried(equiforge, root, store):
    """A budget that is spent before the first candidate says nothing about what there is."""
    arguments = ("optimize", root / "tests/programs/diff_attn.ef", "--target", "cpu", "--store", store)
    process = start(equiforge, *arguments, "--budget", "1s")
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    assert "measured    1 implementations" in out
    assert "nothing else was tried within the budget" in out
    assert "nothing beats" not in out


# No output can do without any of the inputs: a sample is no less work.
WHOLE = """program whole
dim m = 16384
dim k = 4096
dim n = 4096
input x: f16[m, k]
input w: f16[k, n]
output y = reduce[sum, -2](reduce[sum, -1](matmul(x, w)))
"""


def test_a_budget_that_is_too_short_is_refused_at_once(equiforge, tmp_path, store):
    """With what it would take; it was noticed after a minute, and nothing was said of why."""
    path = tmp_path / "whole.ef"
    path.write_text(WHOLE)
    start = time.monotonic()
    result = equiforge("optimize", path, "--target", "cpu", "--budget", "3s", "--store", store, timeout=200)
    assert time.monotonic() - start < 20
    assert result.returncode == 1
    assert result.stdout == ""
    assert re.fullmatch(r"a budget of 3 s is too short for whole: .* should take about \d+ s\n", result.stderr)


def prepared(equiforge, text, **fields):
    """What a worker says of a program that it has prepared."""
    request = {"id": 1, "do": "program", "name": "p", "inputs": [], "outputs": [], "reference": text, "seed": 1}
    command = [equiforge.executable, "worker", "--threads", "1"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as worker:
        worker.stdin.write(json.dumps({**request, **fields}) + "\n")
        worker.stdin.flush()
        reply = json.loads(worker.stdout.readline())
        worker.stdin.close()
    assert reply["ok"], reply
    return reply


def test_what_comes_after_the_end_is_not_prepared(equiforge):
    """The program as it is needs one distribution. Candidates need more, however little time there was for these."""
    for fields, draws in (({"seconds": 1e-3}, 2), ({"seconds": 1e-3, "end": 1e-3}, 1), ({"end": 100}, 5)):
        reply = prepared(equiforge, SMALL_PROGRAM, **fields)
        assert len(reply["eager_error"]) == draws
        assert reply["late"] == (draws == 1)
        assert reply["eager_us"] > 0


def test_inputs_are_what_the_program_can_compute_with(equiforge):
    """A distribution on which the program as it is would be off by its own size is replaced by a smaller one."""
    reply = prepared(equiforge, OVERFLOW)
    assert len(reply["eager_error"]) == 5
    assert max(reply["eager_error"]) <= 1e-2


# Passes on what worker and pool say, but that the time of the program as it is is not known.
FORGETFUL = """#!{python}
import json, subprocess, sys
worker = subprocess.Popen(["{worker}", *sys.argv[1:]], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
for line in sys.stdin.buffer:
    worker.stdin.write(line)
    worker.stdin.flush()
    reply = json.loads(worker.stdout.readline())
    print(json.dumps({{**reply, "eager_us": 0.0}} if "eager_us" in reply else reply), flush=True)
"""


def test_original_whose_time_is_not_known(equiforge, optimize, simple, store, monkeypatch):
    """As on a GPU that has too little memory for a call of it: no figure, and no speed-up."""
    optimize(simple)
    ((text,),) = rows(store, "SELECT json FROM best")
    with sqlite3.connect(store) as db:
        db.execute("UPDATE best SET json = ?", (json.dumps({**json.loads(text), "original_us": 0.0}),))
    found = optimize(simple)
    assert found["stored"] and found["best_us"] > 0
    assert found["original_us"] is None and found["speedup"] is None
    assert "not known" in found["note"]
    plan, page, proxy = (store.with_name(name) for name in ("p.efz", "p.html", "proxy"))
    command = ("optimize", simple, "--target", "cpu", "--budget", "60s", "--limit", "8", "--threads", "1")
    said = equiforge(*command, "--store", store, "-o", plan).stdout
    assert "original    not measured\n" in said and "0.0 us" not in said and "0.00x" not in said
    assert equiforge("report", plan, "-o", page).returncode == 0
    assert "us (original not measured). Optimised" in page.read_text()
    assert " 0.0 us" not in page.read_text() and "title=0.00 us" not in page.read_text().replace('"', "")
    proxy.write_text(FORGETFUL.format(python=sys.executable, worker=equiforge.executable))
    proxy.chmod(0o755)
    monkeypatch.setenv("EQUIFORGE_WORKER", str(proxy))
    ran = equiforge.json("run", plan, "--repeat", "3")
    assert ran["us"] > 0 and ran["original_us"] is None and ran["regions"][0]["original_us"] is None
    assert "us, as given not measured, 1 region\n" in equiforge("run", plan, "--repeat", "3").stdout
