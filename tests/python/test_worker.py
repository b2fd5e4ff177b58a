"""The GPU worker's protocol, in Triton's interpreter; and compiling kernels for GPUs that are not there."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from conftest import BUILD, ROOT
from memory import Memory

from equiforge import _accuracy, _inputs, _kernel_times, _memory, _reference, _timing, _trial
from equiforge.worker import FAULTS, Worker

# A program as libequiforge prints one for Triton, by hand: two kernels with a temporary between them.
CANDIDATE = """
import torch
import triton
import triton.language as tl

INPUTS = [("x", torch.float16, (12, 40)), ("g", torch.float16, (40,))]
OUTPUTS = [("y", torch.float16, (12, 40))]
BUFFERS = [(torch.float32, 12)]


@triton.jit
def k0(x, t):
    row = tl.program_id(0)
    at = tl.arange(0, 64)
    v = tl.load(x + row * 40 + at, mask=at < 40, other=0.0).to(tl.float32)
    tl.store(t + row, tl.rsqrt(tl.sum(v * v, 0) / 40 + 1e-6))


@triton.jit
def k1(x, g, t, y):
    row = tl.program_id(0)
    at = tl.arange(0, 64)
    v = tl.load(x + row * 40 + at, mask=at < 40).to(tl.float32)
    w = tl.load(g + at, mask=at < 40).to(tl.float32)
    tl.store(y + row * 40 + at, v * tl.load(t + row) * w, mask=at < 40)


def launch(inputs, outputs, temps):
    k0[(12,)](inputs[0], temps[0], num_warps=2)
    k1[(12,)](inputs[0], inputs[1], temps[0], outputs[0], num_warps=2)


def candidate(*inputs):
    outputs = [torch.empty(shape, dtype=dtype) for _, dtype, shape in OUTPUTS]
    launch(inputs, outputs, [torch.empty(n, dtype=dtype) for dtype, n in BUFFERS])
    return outputs[0]
"""

PROGRAM = """
program rms
dim m = 12
dim n = 40
input x: f16[m, n]
input g: f16[n]
output y = mul(mul(x, rsqrt(add(div(reduce[sum, -1](mul(x, x)), 40), 1e-06))), g)
"""


GPU = torch.cuda.is_available()


class Client:
    def __init__(self):
        self.process = subprocess.Popen(
            [sys.executable, "-m", "equiforge.worker", "--device", "cuda:0" if GPU else "cpu"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.number = 0

    def __call__(self, **request) -> dict:
        self.number += 1
        self.process.stdin.write(json.dumps({"id": self.number, **request}) + "\n")
        self.process.stdin.flush()
        reply = json.loads(self.process.stdout.readline())
        assert reply.pop("id") == self.number
        return reply

    def close(self) -> int:
        self.process.stdin.close()
        return self.process.wait(timeout=30)


@pytest.fixture(scope="module")
def reference(tmp_path_factory) -> str:
    path = tmp_path_factory.mktemp("program") / "rms.ef"
    path.write_text(PROGRAM)
    return subprocess.run(
        [BUILD / "equiforge", "inspect", path, "--torch"], capture_output=True, text=True, check=True
    ).stdout


@pytest.fixture(scope="module")
def program(reference) -> dict:
    inputs = [
        {"name": "x", "dtype": "f16", "shape": [12, 40]},
        {"name": "g", "dtype": "f16", "shape": [40]},
    ]
    outputs = [{"name": "y", "dtype": "f16", "shape": [12, 40]}]
    return {"name": "rms", "inputs": inputs, "outputs": outputs, "reference": reference, "seed": 7}


@pytest.fixture(scope="module")
def worker(program):
    client = Client()
    reply = client(do="measure", key="early", artifact="nowhere", entry="candidate", repeat=1, best_us=0)
    assert not reply["ok"]
    reply = client(do="program", **program)
    assert reply["ok"], reply
    assert reply["eager_us"] > 0
    assert reply["bandwidth"] > 1e8
    assert reply["exact"] == "float64"
    assert 0 < reply["spent"]["start"] < 600 and all(seconds >= 0 for seconds in reply["spent"].values())
    assert len(reply["eager_error"]) == 5
    assert all(error < 1e-2 for error in reply["eager_error"])
    yield client
    assert client.close() == 0


def compile_and_measure(worker, tmp_path, source: str, key: str) -> dict:
    reply = worker(do="compile", key=key, source=source, entry="candidate", dir=str(tmp_path))
    assert reply["ok"], reply
    how = {"entry": "candidate", "repeat": 2, "check": 99, "best_us": 0, "kernels": True}
    return worker(do="measure", key=key, artifact=reply["artifact"], **how)


def test_hello(worker):
    reply = worker(do="hello")
    assert reply["ok"]
    assert ("arch" in reply) == GPU
    assert {"equiforge", "torch", "triton"} <= set(reply["versions"])
    assert reply["memory"] > 1 << 20
    assert "arch" not in worker(do="hello", role="compile")


def test_right(worker, tmp_path):
    reply = compile_and_measure(worker, tmp_path, CANDIDATE, "right")
    assert reply["ok"], reply
    assert len(reply["kernel_us"]) == 2
    assert all(us > 0 for us in reply["kernel_us"])
    assert reply["us"] > 0
    assert reply["warm_us"] > 0
    assert 0 < reply["rel_l2"] < 1e-3


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("/ 40 + 1e-6", "/ 40 + 1e-2"),  # wrong with tiny inputs only
        ("k1[(12,)]", "k1[(11,)]"),  # the last row keeps its poison
        ("k0[(12,)]", "k0[(11,)]"),  # so does a temporary
        ("v * tl.load(t + row) * w", "(v * tl.load(t + row)).to(tl.float8e5).to(tl.float32) * w"),  # too coarse
    ],
)
def test_wrong(worker, tmp_path, old, new):
    assert old in CANDIDATE
    reply = compile_and_measure(worker, tmp_path, CANDIDATE.replace(old, new), "wrong")
    assert not reply["ok"]
    assert reply["status"] == "wrong", reply


def test_broken(worker, tmp_path):
    for source, why in (("def candidate(:", "SyntaxError"), ("x = 1\n", "candidate"), ("import nothing\n", "nothing")):
        reply = worker(do="compile", key="broken", source=source, entry="candidate", dir=str(tmp_path))
        assert not reply["ok"]
        assert why in reply["error"]
        assert "\n" not in reply["error"]
    # What is to be compiled for a GPU shows when it is launched, with shapes alone; the interpreter compiles nothing.
    source = beginning_with("1 / 0")
    reply = worker(do="compile", key="crash", source=source, entry="candidate", dir=str(tmp_path))
    if GPU:
        assert (reply["ok"], reply["status"]) == (False, "compile")
        assert "ZeroDivisionError" in reply["error"]
    else:
        assert reply["ok"], reply
    reply = compile_and_measure(worker, tmp_path, beginning_with("1 / (inputs[0].device.type == 'meta')"), "crash")
    assert (reply["ok"], reply["status"]) == (False, "launch")
    assert "ZeroDivisionError" in reply["error"]
    # Tensors that do not fit into the device's memory are not tiles that do not fit into a block's.
    full = "if inputs[0].device.type != 'meta': raise torch.OutOfMemoryError('full')"
    reply = compile_and_measure(worker, tmp_path, beginning_with(full), "full")
    assert (reply["ok"], reply["status"]) == (False, "exhausted")
    # And what a candidate prints stays out of the replies.
    assert compile_and_measure(worker, tmp_path, beginning_with("print('{}')"), "noisy")["ok"]


def beginning_with(statement: str) -> str:
    """A candidate that does something else first."""
    head = "def launch(inputs, outputs, temps):"
    assert head in CANDIDATE
    return CANDIDATE.replace(head, f"{head}\n    {statement}")


# Stores far outside of any memory.
ILLEGAL = CANDIDATE.replace("tl.store(y + row * 40 + at", "tl.store(y + (row + 1).to(tl.int64) * 400000000000 + at")


@pytest.mark.skipif(not GPU, reason="needs a GPU")
def test_illegal_access(program, tmp_path):
    """The worker replies and ends; the next one goes on."""
    assert ILLEGAL != CANDIDATE
    for _ in range(2):
        client = Client()
        assert client(do="program", **program)["ok"]
        assert compile_and_measure(client, tmp_path, CANDIDATE, "right")["ok"]
        reply = compile_and_measure(client, tmp_path, ILLEGAL, "illegal")
        assert (reply["ok"], reply["status"]) == (False, "launch")
        assert "illegal memory access" in reply["error"]
        assert client.process.wait(timeout=60) == 1


ENDLESS = CANDIDATE.replace(
    "    row = tl.program_id(0)\n",
    "    row = tl.program_id(0)\n    while tl.load(t) != 12345.0:\n        row += 0\n",
    1,
)


@pytest.mark.skipif(not GPU, reason="needs a GPU")
def test_endless_kernel(program, tmp_path):
    """A worker that hangs can be killed, and the next one finds a working device."""
    client = Client()
    assert client(do="program", **program)["ok"]
    reply = client(do="compile", key="endless", source=ENDLESS, entry="candidate", dir=str(tmp_path))
    assert reply["ok"], reply
    request = {"do": "measure", "key": "e", "artifact": reply["artifact"], "entry": "candidate", "repeat": 1}
    client.process.stdin.write(json.dumps(request) + "\n")
    client.process.stdin.flush()
    with pytest.raises(subprocess.TimeoutExpired):
        client.process.wait(timeout=10)
    client.process.kill()
    client.process.wait(timeout=60)
    client = Client()
    assert client(do="program", **program)["ok"]
    assert compile_and_measure(client, tmp_path, CANDIDATE, "right")["ok"]
    assert client.close() == 0


def test_times_of_kernels_add_up_to_the_whole():
    """What the start of each takes when it is timed alone is the same for all."""
    assert _kernel_times.adding_up([5.5, 9.5], 9.0) == [2.5, 6.5]
    assert _kernel_times.adding_up([2.0, 5.0], 8.0) == [2.0, 5.0]  # what comes between them is no kernel's
    # A tenth at least, and the others add up all the same, where they can.
    assert sum(_kernel_times.adding_up([4.0, 50.0], 44.0)) == pytest.approx(44)
    assert _kernel_times.adding_up([10.0, 2.0, 2.0], 8.0) == pytest.approx([7.6, 0.2, 0.2])
    # One that took longer alone would make the others take nothing.
    assert _kernel_times.adding_up([5.5] * 10 + [60.0], 45.0) == []
    assert _kernel_times.adding_up([10.0, 20.0], 1.0) == []
    assert _kernel_times.adding_up([], 3.0) == []


def test_times_of_kernels_are_what_a_call_takes_less_without():
    """A kernel that another one hides takes nothing, one that it hides in part what is left."""

    class Called:
        cuda = True

        def __init__(self):
            self.steps = []

        def median(self, call, sets, repeat, estimate):
            self.steps.clear()
            call(sets[0])
            alone = sum({"a": 3.0, "b": 4.0, "c": 1.5, "d": 0.5}[step] for step in self.steps)
            return alone - 1.5 * ({"b", "c"} <= set(self.steps)) - 0.25 * ({"a", "d"} <= set(self.steps))

    clock = Called()
    steps = [lambda inputs, name=name: clock.steps.append(name) for name in "abcd"]
    assert _kernel_times.less_without(clock, steps, [[]], 7.25, 1) == pytest.approx([2.75, 2.5, 0.005 * 7.25, 0.25])
    assert _kernel_times.can_leave_out(12, 10, 40.0)
    assert not _kernel_times.can_leave_out(4, 4096, 9.0)  # each takes a graph of that many calls
    assert not _kernel_times.can_leave_out(12, 2, 3000.0)


def test_bad_requests(worker):
    assert not worker(do="nothing")["ok"]
    worker.process.stdin.write("no json\n")
    worker.process.stdin.flush()
    assert not json.loads(worker.process.stdout.readline())["ok"]
    assert worker(do="hello")["ok"]


COMPILE = """
import sys
from pathlib import Path
from triton.backends.nvidia import driver
from equiforge import _shared, _source
driver.CudaLauncher = lambda src, metadata: print("launcher", src.fn.__name__, metadata.num_warps)
path, folder = Path(sys.argv[1]), Path(sys.argv[2])
_source.use_cache(folder)
_shared.write(path.read_text(), path.with_suffix(".written.py"), folder.parent / "kernels")
target = _source.Target("cuda", int(sys.argv[3]), 32, int(sys.argv[4]))
_source.compile_kernels(_shared.load(path.with_suffix(".written.py")), target)
"""


@pytest.mark.parametrize("arch", [80, 90, 120])
def test_compiles_without_gpu(tmp_path, arch):
    """In a process of its own, which does not interpret."""
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}

    def compile_source(source: str, shared: int = 0) -> subprocess.CompletedProcess:
        (tmp_path / "candidate.py").write_text(source)
        command = [sys.executable, "-c", COMPILE, tmp_path / "candidate.py", tmp_path / "cache", str(arch), str(shared)]
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)

    def compiled() -> int:
        return len(list((tmp_path / "cache").rglob("*.cubin")))

    result = compile_source(CANDIDATE)
    assert result.returncode == 0, result.stderr
    assert compiled() == 2
    assert [line.split()[0] for line in result.stdout.splitlines()] == ["launcher", "launcher"]
    # So do those that the tests on GPUs need.
    for source in (ILLEGAL, ENDLESS, *(CANDIDATE + FAULTS[fault] for fault in ("crash", "hang", "illegal", "wrong"))):
        result = compile_source(source)
        assert result.returncode == 0, result.stderr
    if arch != 90:
        return
    emit = [BUILD / "equiforge", "emit", "tests/derivations/mha_decode_b1_split.ef", "--schedule"]
    for begin in range(5):
        before = compiled()
        source = subprocess.run(
            [*emit, f"overlap={begin},load=1"], cwd=ROOT, check=True, capture_output=True, text=True
        ).stdout
        assert "TensorDescriptor" in source and ("_evenly(" in source) == (begin in (2, 4))
        result = compile_source(source)
        assert result.returncode == 0, result.stderr
        assert compiled() - before == (0 if begin in (2, 4) else 2)  # other launches of the kernels that there are
    # Launches change a kernel that is to be dealt out, so it is loaded for itself.
    written = list((tmp_path / "candidate.written.py").read_text().split("_kernel('")[1:])
    assert len(written) == 2 and all("# _evenly(" in Path(text.split("'")[0]).read_text() for text in written)
    before = compiled()
    # The same kernels at other lines and with other names are compiled already.
    other = CANDIDATE.replace("def k1(", "def k7(").replace("k1[", "k7[").replace("t + row", "tmp3 + row")
    other = other.replace("def k0(x, t)", "\n\ndef k0(x, tmp3)").replace("x, g, t, y", "x, g, tmp3, y")
    result = compile_source(other.replace("@triton.jit\n\n\n", "\n\n@triton.jit\n", 1))
    assert result.returncode == 0, result.stderr
    assert compiled() == before
    result = compile_source(CANDIDATE.replace("v * tl.load(t", "2 * v * tl.load(t"))
    assert result.returncode == 0 and compiled() == before + 1
    result = compile_source(CANDIDATE.replace("tl.sum(v * v, 0)", "tl.sum(v * missing, 0)"))
    assert result.returncode == 1
    assert "missing" in result.stderr and "KernelFailed: 0" in result.stderr
    result = compile_source(CANDIDATE.replace("mask=at < 40)\n\n\ndef launch", "mask=at < 40 * x)\n\n\ndef launch"))
    assert "KernelFailed: 1" in result.stderr
    result = compile_source(CANDIDATE, 4)
    assert "OutOfResources" in result.stderr and "KernelFailed: 0" in result.stderr


def test_errors():
    exact = [torch.tensor([1.0, 2.0, float("inf"), float("nan"), 70000.0], dtype=torch.float64)]
    good = [torch.tensor([1.0, 2.0, float("inf"), float("nan"), float("inf")], dtype=torch.float16)]
    assert _accuracy.error(good, exact) == 0
    for at, value in ((0, float("nan")), (2, 5.0), (3, 1.0), (2, float("-inf")), (1, float("inf"))):
        bad = [good[0].clone()]
        bad[0][at] = value
        assert _accuracy.error(bad, exact) == float("inf")
    assert _accuracy.error([torch.tensor([3.0])], [torch.tensor([4.0], dtype=torch.float64)]) == 0.25
    zero = [torch.zeros(3, dtype=torch.float64)]
    assert _accuracy.error([torch.zeros(3)], zero) == 0
    assert _accuracy.error([torch.ones(3)], zero) == float("inf")


def test_errors_of_any_size(monkeypatch):
    """Squares of what float64 holds may leave it, or vanish from it."""
    monkeypatch.setattr(_accuracy, "COMPARED", 2)  # some parts
    for scale in (5e-324, 1e-310, 1e-170, 1e-140, 1.0, 1e153, 1e200, 1e307):
        exact = [torch.tensor([2.0, 4.0, 4.0, 8.0], dtype=torch.float64) * scale]
        assert _accuracy.error(exact, exact) == 0
        assert _accuracy.error([exact[0] / 2], exact) == pytest.approx(0.5)
        assert _accuracy.error([-exact[0]], exact) == pytest.approx(2.0)
        assert _accuracy.error([exact[0], torch.zeros(0)], [exact[0], torch.zeros(0)]) == 0
        assert _accuracy.error([exact[0]], [torch.zeros(4, dtype=torch.float64)]) == float("inf")
    large, small = (torch.full((4,), x, dtype=torch.float64) for x in (1e200, 1e-200))
    assert _accuracy.error([large, 2 * small], [large, small]) == 0  # 1e-400
    assert _accuracy.error([large / 2, small], [large, small]) == pytest.approx(0.5)


def test_copies():
    inputs = [torch.arange(10, dtype=torch.int32), torch.randn(3, 5).half(), torch.tensor(2.5)]
    sets = _timing.copies(inputs, 4000)
    assert len(sets) == 4000 // 768 + 1
    for tensors in sets:
        assert all(torch.equal(a, b) and b.data_ptr() % 64 == 0 for a, b in zip(inputs, tensors, strict=True))


class Ticking(_timing.Clock):
    """A GPU on which a call takes 6 us, and an event between calls 3.5 more."""

    def __init__(self):
        self.device, self.cuda, self.exact = torch.device("cpu"), True, 0

    def once(self, call):
        call()
        return 10.0

    def laps(self, steps, launch_us=0.0):
        ticks = []
        for step in steps:
            calls = self.calls
            step()
            ticks.append(6.0 * (self.calls - calls) + 3.5)
        return ticks

    def median(self, call, sets, repeat, estimate, seconds=0.0):
        self.exact += 1
        return 6.0


def test_what_events_take_hides_no_small_kernel():
    timer = _timing.Timer([torch.zeros(4)], torch.device("cpu"))
    timer.clock = clock = Ticking()
    clock.calls = 0

    def call(_):
        clock.calls += 1

    assert timer(call, 10, 6.1) == (6.0, 6.0)  # better than the best: 9.5 us with an event after it
    assert clock.exact == 2
    slow, again = timer(call, 10, 4.0)  # it is behind
    assert slow == again == pytest.approx(6.0, rel=0.05)
    assert clock.exact == 2


def test_a_call_that_was_launched_late_is_not_what_the_candidate_takes():
    """A busy processor launches a call 4 ms late now and then: the next one says how far it is from the best."""

    class Late(Ticking):
        late = 1

        def laps(self, steps, launch_us=0.0):
            self.late -= 1
            return [us + (4000.0 if self.late >= 0 else 0.0) for us in super().laps(steps, launch_us)]

    timer = _timing.Timer([torch.zeros(4)], torch.device("cpu"))
    timer.clock = clock = Late()
    clock.calls = 0

    def call(_):
        clock.calls += 1

    timer.sets = [[torch.zeros(4)]] * 2
    assert timer(call, 10, 6.1) == (6.0, 6.0)
    clock.late = 4
    assert timer(call, 10, 6.1)[0] > 4000  # it does take that long


def test_pieces(reference, monkeypatch):
    """What does not fit is computed piece by piece, with the same results."""
    whole = _reference.Reference(reference, "rms")
    inputs = [torch.randn(12, 40).half(), torch.randn(40).half()]
    want = whole.exact(inputs)
    parts = _reference.Reference(reference, "rms")
    rows = []

    def small(x, g, dtype, sizes):
        if x.shape[0] > 3:
            raise torch.OutOfMemoryError("too large")
        rows.append(x.shape[0])
        return whole.function(x, g, dtype=dtype, sizes=sizes)

    parts.function = small
    assert torch.equal(parts.exact(inputs)[0], want[0])
    assert rows == [3, 3, 3, 3]
    # Pieces of a sample are its own.
    rows.clear()
    parts.exact([inputs[0][:8], inputs[1]], {"m": 8})
    assert torch.equal(parts.exact(inputs)[0], want[0])
    assert rows == [2, 2, 2, 2, 3, 3, 3, 3]
    parts.function = lambda *_, **__: (_ for _ in ()).throw(torch.OutOfMemoryError("never"))
    with pytest.raises(torch.OutOfMemoryError):
        parts.exact(inputs)
    assert parts.exact_dtype == torch.float32


# ---- too little memory ----

MIB = 1 << 20

ATTENTION = """
program p
dim b = 8
dim h = 8
dim q = 128
dim s = 128
dim d = 8
dim e = 8
input q: f16[b, h, q, d]
input k: f16[b, h, s, d]
input v: f16[b, h, s, e]
raw = mul(matmul(q, transpose[0, 1, 3, 2](k)), 0.3)
sc = select(ge(reshape[q, 1](iota[q]), iota[s]), raw, -inf)
p = exp(sub(sc, reduce[max, -1](sc)))
output o = matmul(div(p, reduce[sum, -1](p)), v)
"""


def parts_of(text, tmp_path):
    """A program's inputs and outputs, and its reference."""
    path = tmp_path / "program.ef"
    path.write_text(text)
    command = [BUILD / "equiforge", "inspect", path, "--torch"]
    source = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    reference = _reference.Reference(source, "p")
    module = reference.module
    specs = [
        [_inputs.Spec.of(dict(zip(("name", "dtype", "shape"), entry, strict=True))) for entry in entries]
        for entries in (module.INPUTS, module.OUTPUTS)
    ]
    return specs, reference, source


def eager(trial, spoil=lambda y: None):
    """The program as it is, as a candidate that needs no memory: results of a trial that had enough."""
    from types import SimpleNamespace

    known = [(case.inputs, trial.reference(case.inputs)) for case in trial.cases]

    def launch(given, outputs, temps):
        for inputs, results in known:
            if all(torch.equal(x, y) for x, y in zip(given, inputs, strict=True)):
                for to, x in zip(outputs, results, strict=True):
                    to.copy_(x)
        spoil(outputs[0])

    return SimpleNamespace(launch=launch, OUTPUTS=trial.reference.module.OUTPUTS, BUFFERS=[])


def test_samples_are_computed_in_pieces(tmp_path):
    """The sample's scores are 2 MiB each in float64 and the whole's 2 MiB in float16, of which several are there at
    once: in so little memory both are computed piece by piece, with the same results and in float64 all the same."""
    specs, reference, source = parts_of(ATTENTION, tmp_path)
    roomy = _trial.Trial(specs, reference, "cpu", 1, 1e-9)
    assert roomy.share < 1 and roomy.eager_us(1)[1] is False
    right, wrong = eager(roomy), eager(roomy, lambda y: y[5].zero_())
    with Memory(5 * MIB) as memory:
        trial = _trial.Trial(specs, _reference.Reference(source, "p"), "cpu", 1, 1e-9)
        us, estimated = trial.eager_us(1)
        found = trial.judge(right, {"check": 99})
        with pytest.raises(_trial.Wrong):
            trial.judge(wrong, {"check": 99})
    assert memory.refused and trial.reference.exact_dtype == torch.float64
    assert trial.share == roomy.share and trial.eager_error == pytest.approx(roomy.eager_error, rel=1e-3)
    assert us > 0 and estimated
    assert found["checked"] == len(trial.cases) and found["us"] > 0


def test_programs_that_do_not_fit_are_measured(tmp_path):
    """Only their own time is an estimate."""
    specs, _, source = parts_of(ATTENTION, tmp_path)
    lists = [[{"name": s.name, "dtype": "f16", "shape": s.shape} for s in of] for of in specs]
    request = {"do": "program", "name": "p", "inputs": lists[0], "outputs": lists[1], "reference": source, "seed": 1}
    with Memory(5 * MIB) as memory:
        reply = Worker("cpu").answer(request)
    assert memory.refused and reply["ok"], reply
    assert reply["estimated"] and reply["eager_us"] > 0 and len(reply["eager_error"]) == 4
    reply = Worker("cpu").answer(request)
    assert reply["ok"] and not reply["estimated"] and reply["bandwidth"] > 0


WEIGHTS = """
program p
dim m = 2
dim k = 1024
dim n = 1024
input x: f16[m, k]
input w: f16[k, n]
output y = matmul(x, w)
"""


def test_inputs_are_drawn_anew(tmp_path):
    """Weights of 2 MiB for each of four distributions, and copies of them, are more than there is."""
    specs, reference, source = parts_of(WEIGHTS, tmp_path)
    roomy = _trial.Trial(specs, reference, "cpu", 1)
    right, wrong = eager(roomy), eager(roomy, lambda y: y[1].zero_())
    with Memory(11 * MIB) as memory:
        trial = _trial.Trial(specs, _reference.Reference(source, "p"), "cpu", 1)
        assert trial.judge(right, {"check": 99})["checked"] == len(trial.cases) == 4
        with pytest.raises(_trial.Wrong):
            trial.judge(wrong, {"check": 99})
        # A candidate that needs a little more finds it.
        before = memory.live
        memory.limit = memory.live + 3 * MIB
        right.BUFFERS = [(torch.float32, MIB)]
        assert trial.judge(right, {"check": 1})["us"] > 0
        assert memory.live < before
        right.BUFFERS = [(torch.float32, 16 * MIB)]
        with pytest.raises(torch.OutOfMemoryError):
            trial.judge(right, {"check": 1})
        # Nor does the next one miss the inputs, where at first there was no room for them.
        trial.timer.sets = []
        memory.limit = memory.live
        with pytest.raises(torch.OutOfMemoryError):
            trial.judge(right, {"check": 1})
        right.BUFFERS, memory.limit = [], 11 * MIB
        assert trial.judge(right, {"check": 1})["us"] > 0
    assert memory.refused and not trial.keeps
    for case, same in zip(trial.cases, roomy.cases, strict=True):
        assert all(torch.equal(x, y) for x, y in zip(case.inputs, same.inputs, strict=True))


def test_exhausted():
    """Whoever finds that there is too little memory."""
    for text in (
        "Triton Error [CUDA]: out of memory",
        "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling cublas",
        "CUDA error: CUBLAS_STATUS_NOT_INITIALIZED when calling `cublasCreate(handle)`",
        "cuDNN error: CUDNN_STATUS_NOT_INITIALIZED",
        "cuDNN error: CUDNN_STATUS_ALLOC_FAILED",
        "cuDNN error: CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED",
    ):
        with _memory.Fitting():
            raise RuntimeError(text)
    with pytest.raises(RuntimeError), _memory.Fitting():
        raise RuntimeError("an illegal memory access was encountered")
    with pytest.raises(ValueError), _memory.Fitting():
        raise ValueError("out of memory")


def test_first_fitting():
    """Attempts follow one another until one finds enough memory, and none is made before it is needed."""
    made = []

    def short(text):
        raise torch.OutOfMemoryError(text)

    def attempts():
        for size in (8, 4, 2, 1):
            made.append(size)
            yield (lambda size=size: size if size < 4 else short(f"{size} is too much"))

    assert _memory.first_fitting(attempts()) == 2 and made == [8, 4, 2]
    with pytest.raises(torch.OutOfMemoryError, match="^b$"):
        _memory.first_fitting([lambda: short("a"), lambda: short("b")])
    with pytest.raises(torch.OutOfMemoryError, match="^all of it$"):
        _memory.first_fitting([lambda: short("a")], "all of it")
    with pytest.raises(ZeroDivisionError):
        _memory.first_fitting([lambda: 1 // 0, lambda: 1])
    assert _memory.first_fitting([lambda: short("a"), lambda: None]) is None


def test_few_copies():
    inputs = [torch.randn(MIB)]
    for limit, most, count in ((64, 1e9, 5), (13, 1e9, 2), (7, 1e9, 1), (64, 8 * MIB, 2), (64, MIB, 1)):
        with Memory(limit * MIB):
            sets = _timing.copies(inputs, 16 * MIB, most)
        assert len(sets) == count
        assert all(torch.equal(x, inputs[0]) for (x,) in sets)


def test_errors_are_computed_in_parts(monkeypatch):
    """There is no copy of large results in float64."""
    x, want = torch.randn(8, MIB).half(), torch.randn(8, MIB)
    exact = float((x.double() - want).norm() / want.double().norm())
    monkeypatch.setattr(_accuracy, "COMPARED", MIB)
    with Memory(48 * MIB):
        assert _accuracy.error([x, x], [want, want]) == pytest.approx(exact, rel=1e-9)
        assert _accuracy.beyond([x]) == 0
        x[7, MIB - 1] = torch.nan
        assert _accuracy.error([x], [want]) == float("inf")
        assert _accuracy.beyond([x, want]) == 1
    with pytest.raises(torch.OutOfMemoryError), Memory(48 * MIB):
        x.double()


def test_masks():
    specs = [_inputs.Spec("x", torch.float16, (9, 7)), _inputs.Spec("mask", torch.float16, (9, 7))]
    assert _inputs.distributions(specs)[-1] == "masked"
    x, mask = _inputs.draw(specs, "masked", 1, torch.device("cpu"), 3)
    assert torch.isfinite(x).all()
    blank = torch.isinf(mask).all(-1)
    assert blank.tolist() == [i % 3 == 1 for i in range(9)]
    zero, _ = _inputs.draw(specs, "zero", 1, torch.device("cpu"), 3)
    assert (zero == 0).all(-1).tolist() == [i % 3 == 1 for i in range(9)]


def test_scales(reference):
    """The scales to try are the module's, and the first is taken that suits by what the module says."""
    specs = [_inputs.Spec("x", torch.float16, (12, 40)), _inputs.Spec("g", torch.float16, (40,))]
    module = _reference.Reference(reference, "rms").module
    assert set(module.DRAWS) == {"normal", "large", "tiny", "zero", "shifted", "masked"}
    assert all(most == (0.005 if in_range else 0.01) for _, most, in_range in module.DRAWS.values())

    def largest(scales, most, in_range=True):
        source = _reference.Reference(reference, "rms")
        source.module.DRAWS = module.DRAWS | {"large": (scales, most, in_range)}
        trial = _trial.Trial((specs, [_inputs.Spec("y", torch.float16, (12, 40))]), source, torch.device("cpu"), 1)
        return next(float(case.inputs[1].abs().max()) for case in trial.cases if case.kind == "large")

    normal = largest((1.0,), 0.005)
    assert largest((8.0, 1.0), 0.005) == pytest.approx(8 * normal, rel=1e-2)
    assert largest((32768.0, 2.0), 1.0) == pytest.approx(2 * normal, rel=1e-2)  # g leaves its range
    assert largest((16.0, 4.0), 0.0, False) < 17 * normal  # none suits


def test_sample(reference):
    """Exact results of a sample are those of the whole program there; what lies outside is compared with eager's."""
    from types import SimpleNamespace

    inputs = [_inputs.Spec("x", torch.float16, (12, 40)), _inputs.Spec("g", torch.float16, (40,))]
    outputs = [_inputs.Spec("y", torch.float16, (12, 40))]

    def trial(seconds):
        return _trial.Trial((inputs, outputs), _reference.Reference(reference, "rms"), torch.device("cpu"), 1, seconds)

    whole, sampled = trial(0.0), trial(1e-9)
    assert whole.share == 1 and 0 < sampled.share < 1
    at = sampled.sample.at["m"]
    assert at[0] == 0 and at[-1] == 11
    for exact, part in zip(whole.cases, sampled.cases, strict=True):
        assert torch.allclose(exact.exact[0].index_select(0, at), part.exact[0])

    def module(spoil=lambda y: None):
        def launch(given, results, temps):
            results[0].copy_(whole.reference(given)[0])
            spoil(results[0])

        spec = [("y", torch.float16, (12, 40))]
        return SimpleNamespace(launch=launch, OUTPUTS=spec, BUFFERS=[])

    assert sampled.judge(module(), {"check": 1})["checked"] == 1
    assert sampled.judge(module(), {"check": 99})["checked"] == 5
    assert sampled.judge(module(), {"check": 1, "best_us": 1e9})["checked"] == 5
    outside = next(i for i in range(12) if i not in at)
    for row in (0, 11, outside):
        with pytest.raises(_trial.Wrong):
            sampled.judge(module(lambda y, row=row: y[row].zero_()), {"check": 1})


NORM = """
program norm
dim m = 8
dim n = 256
input x: f32[m, n]
input w: f32[n, 64]
mean = div(reduce[sum, -1](x), 256)
c = sub(x, mean)
output y = matmul(mul(c, rsqrt(add(div(reduce[sum, -1](mul(c, c)), 256), 1e-05))), w)
"""


def test_variance_that_cancels_is_refused(tmp_path):
    """E[x^2] - E[x]^2 is exact enough for centred inputs, and wrong for others."""
    from types import SimpleNamespace

    path = tmp_path / "norm.ef"
    path.write_text(NORM.replace("f32[n, 64]", "f32[n, k]").replace("dim n = 256", "dim n = 256\ndim k = 64"))
    command = [BUILD / "equiforge", "inspect", path, "--torch"]
    source = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    inputs = [_inputs.Spec("x", torch.float32, (8, 256)), _inputs.Spec("w", torch.float32, (256, 64))]
    outputs = [_inputs.Spec("y", torch.float32, (8, 64))]
    trial = _trial.Trial((inputs, outputs), _reference.Reference(source, "norm"), torch.device("cpu"), 1, 0.0)
    assert [spec.summed for spec in trial.inputs] == [True, False]

    def module(variance):
        def launch(given, results, temps):
            x, w = given
            mean = x.mean(-1, keepdim=True)
            results[0].copy_(((x - mean) * torch.rsqrt(variance(x, mean) + 1e-5)) @ w)

        return SimpleNamespace(launch=launch, OUTPUTS=[("y", torch.float32, (8, 64))], BUFFERS=[])

    trial.judge(module(lambda x, mean: ((x - mean) ** 2).mean(-1, keepdim=True)), {"check": 99})
    with pytest.raises(_trial.Wrong, match="shifted"):
        trial.judge(module(lambda x, mean: (x * x).mean(-1, keepdim=True) - mean * mean), {"check": 99})


def trial_of(text, tmp_path):
    path = tmp_path / "program.ef"
    path.write_text(text)
    command = [BUILD / "equiforge", "inspect", path, "--torch"]
    source = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    reference = _reference.Reference(source, "p")
    specs = (
        [_inputs.Spec.of(dict(zip(("name", "dtype", "shape"), entry, strict=True))) for entry in entries]
        for entries in (reference.module.INPUTS, reference.module.OUTPUTS)
    )
    return _trial.Trial(tuple(specs), reference, torch.device("cpu"), 1, 0.0)


def test_weights_are_small_wherever_they_stand(tmp_path):
    """Modules have their parameters first. A head that is normalised after a product with weights of size 1 overflows
    when it is squared, and what follows is finite and wrong."""
    trial = trial_of(
        """
program p
dim n = 4096
dim k = 128
input w: f16[n, k]
input x: f16[1, 1, n]
q = matmul(x, w)
output y = mul(q, rsqrt(add(reduce[sum, -1](mul(q, q)), 1e-06)))
""",
        tmp_path,
    )
    assert [case.kind for case in trial.cases] == ["normal", "large", "tiny", "zero"]
    assert trial.cases[0].inputs[0].float().std() == pytest.approx(1 / 64, rel=0.05)
    assert max(trial.eager_error) < 5e-3


def test_draws_that_overflow_inside_are_replaced(tmp_path):
    """Eager PyTorch is off by its own size where a sum of squares leaves float16 and its inverse root is 0."""
    trial = trial_of(
        """
program p
dim m = 4
dim n = 4096
input x: f16[m, n]
q = mul(x, 20)
output y = mul(q, rsqrt(reduce[sum, -1](mul(q, q))))
""",
        tmp_path,
    )
    assert [case.kind for case in trial.cases] == ["normal", "large", "tiny", "zero", "shifted"]
    assert trial.cases[0].inputs[0].float().std() == pytest.approx(0.1, rel=0.05)
    assert trial.eager_error[0] <= 1e-2
    assert trial.eager_error[3] <= 1e-2


def test_means_are_not_rounded_sums(tmp_path):
    """The sum leaves float16, the mean, as PyTorch computes it, does not."""
    trial = trial_of(
        """
program p
dim m = 4
dim n = 4096
input x: f16[m, n]
output y = mul(x, rsqrt(add(div(reduce[sum, -1](mul(x, x)), 4096), 1e-06)))
""",
        tmp_path,
    )
    x = torch.full((4, 4096), 8.0, dtype=torch.float16)
    assert torch.allclose(trial.reference([x])[0].float(), torch.ones(4, 4096), atol=1e-2)
