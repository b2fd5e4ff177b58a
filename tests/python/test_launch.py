"""Recorded launches, without a GPU: kernels that Triton compiles for one, and a driver that writes down what it is
asked (tests/tools/fake_cuda.c). All this in a process of its own, where Triton does not interpret."""

import os
import subprocess
import sys

import pytest
from conftest import BUILD

# What the process runs first. `kernels_of(source)` are TritonKernels, called with CPU tensors that say they are on a
# GPU.
START = """
import ctypes, sys, threading
import torch
driver = ctypes.CDLL(sys.argv[1])
driver.fake_cuda_written.restype = ctypes.c_char_p
driver.fake_cuda_reset.argtypes = [ctypes.c_uint64, ctypes.c_uint64, ctypes.c_int]
driver.fake_cuda_context.argtypes = [ctypes.c_uint64]
torch._C._cuda_getDevice = lambda: 0
torch._C._cuda_getCurrentRawStream = lambda index: stream.number
torch.cuda.current_device = lambda: 0
torch.cuda.is_current_stream_capturing = lambda: stream.capturing
from types import SimpleNamespace
from triton.runtime.jit import JITFunction
from equiforge import _kernels, _launch, _module, _source

_module.plain = lambda x: True  # though of a class of its own
stream = threading.local()
stream.number, stream.capturing = 0x70, False
cuda = torch.device("cuda", 0)
made = []  # tensors that were allocated


class Cuda(torch.Tensor):
    device = cuda

    def get_device(self):
        return 0


def empty(shape, *_, dtype, device=None):
    made.append(torch.Tensor.as_subclass(torch.zeros(shape, dtype=dtype), Cuda))
    return made[-1]


def on_gpu(x):
    return x.as_subclass(Cuda)


_kernels.empty = empty
_kernels._fresh = lambda: lambda shape, strides, dtype: empty(shape, dtype=dtype)
plain_empty = _source.empty
_source.empty = lambda module, which, device: (
    [empty(n, dtype=dtype) for dtype, n in module.BUFFERS] if device == cuda else plain_empty(module, which, device)
)
_source.use_cache(sys.argv[2])
sizes = []  # of parameters, a text for each kernel that is launched by Triton, in turn
spoil = lambda kernel: None
by_triton = 0
arch = 90


def launched(self, *args, grid, warmup, **options):
    global by_triton
    kernel = compiled(self, *args, grid=grid, warmup=True, **options)
    by_triton += 1
    kernel.function = ctypes.cast(sizes[by_triton - 1], ctypes.c_void_p).value if by_triton <= len(sizes) else None
    spoil(kernel)
    return kernel


compiled = JITFunction.run
context = _source._without_device(_source.Target("cuda", arch, 32))
context.__enter__()
compiled, JITFunction.run = JITFunction.run, launched


def kernels_of(source, *texts):
    sizes[:] = [ctypes.create_string_buffer(text) for text in texts]
    return _kernels.TritonKernels(SimpleNamespace(source=source))


def module_of(regions, *texts):
    # Whose parameter is w; region after region of what the one before made (first: x) and x (first: w), from SOURCE.
    from equiforge._module import Call, OptimizedModule
    from equiforge._plan import Plan

    module = torch.nn.Module()
    module.w = torch.nn.Parameter(on_gpu(torch.ones(4096)), requires_grad=False)
    like = {"torch_dtype": "float32", "shape": [4096]}
    values = [{"name": "x", "kind": "input", "input": 0}, {"name": "w", "kind": "parameter", "target": "w"}]
    values += [{"name": f"v{n}", "kind": "result"} for n in range(regions)]
    region = {"language": "triton", "source": SOURCE, "entry": "", "kernels": 2, "original": False}
    plan = Plan.of({
        "name": "", "target": "h200", "user_inputs": 1, "mutations": [], "outputs": [{"value": regions + 1}],
        "values": [{**value, **like} for value in values],
        "steps": [{"in": [n + 1, 0] if n else [0, 1], "out": [n + 2], "region": n} for n in range(regions)],
        "regions": [{**region, "us": 1.0, "original_us": 2.0, "rel_l2": 0.0}] * regions,
    })
    sizes[:] = [ctypes.create_string_buffer(text) for text in texts * regions]
    call = Call.example((on_gpu(torch.ones(4096)),), {}, module)
    return module, OptimizedModule(module, plan, call)


def written():
    text = driver.fake_cuda_written().decode()
    driver.fake_cuda_reset(0, 0, 0)
    return text.splitlines()


def graphs():
    # Launched; nodes that got other parameters; there.
    found = (ctypes.c_uint64 * 3)()
    driver.fake_cuda_graphs(found)
    return list(found)


def line(sizes, grid, threads, *values, overlap=0, shared=0, stream=0x70):
    values = " ".join(f"{x.data_ptr() if isinstance(x, torch.Tensor) else x:x}" for x in values)
    head = f"launch {sizes} grid {grid} 1 1 threads {threads} shared {shared} stream {stream:x} overlap {overlap}"
    return f"{head} context 1000: {values}"


driver.fake_cuda_reset(0, 0, 0)
"""

SOURCE = """
import torch
import triton
import triton.language as tl

INPUTS = [("x", torch.float32, (4096,)), ("w", torch.float32, (4096,))]
OUTPUTS = [("y", torch.float32, (4096,))]
BUFFERS = [(torch.float32, 4096)]


@triton.jit
def k0(x, w, t):
    at = tl.program_id(0) * 512 + tl.arange(0, 512)
    tl.store(t + at, tl.load(x + at) * tl.load(w + at))


@triton.jit
def k1(t, scale, one, n, far, y):
    at = tl.program_id(0) * 512 + tl.arange(0, 512)
    tl.store(y + at, tl.load(t + at) * scale + one + far, mask=at < n)


def launch(inputs, outputs, temps):
    k0[(8,)](inputs[0], inputs[1], temps[0], num_warps=4)
    k1[(8,)](temps[0], 0.5, 1, 4000, -(1 << 40), outputs[0], num_warps=8, launch_pdl=True)
"""

# Three addresses and two of scratch memory; t, scale, n, far, y (one is a constant), and again two.
SIZES = 'b"88888", b"8448888"'

# A matrix of 64 x 64, whose tiles of 16 x 32 are loaded by the copy engine; z is a temporary, loaded so as well.
TILES = """
import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

INPUTS = [("x", torch.float16, (64, 64)), ("w", torch.float32, (64,))]
OUTPUTS = [("y", torch.float32, (64,))]
BUFFERS = [(torch.float32, 64 * 128)]


@triton.jit
def k0(x, n, z, y):
    a = x.load([16 * tl.program_id(0), 0])
    b = z.load([16 * tl.program_id(0), 32])
    tl.store(y + 16 * tl.program_id(0) + tl.arange(0, 16), tl.sum(a.to(tl.float32), axis=1) + tl.sum(b, axis=1) + n)


def launch(inputs, outputs, temps):
    z = TensorDescriptor(temps[0], [64, 128], [128, 1], [16, 32])
    x = TensorDescriptor(inputs[0], [64, 64], [64, 1], [16, 32])
    k0[(4,)](x, 7, z, outputs[0], num_warps=4)
"""

TESTS = {
    "tiles by the copy engine": """
w = on_gpu(torch.ones(64))
a, b = (on_gpu(torch.ones(64, 64, dtype=torch.float16)) for _ in range(2))
kernels = kernels_of(TILES, b"m44884m4488888")
assert kernels([a, w]) and by_triton == 1
for x in (a, b, b, a):
    (y,) = kernels([x, w])
    t = kernels.launches[0, 0x70].kept[1][0]
    values = written()[0].split(": ")[1]
    x_map = f"map({x.data_ptr():x} 6 2 64x32/0 64x16/128)"
    z_map = f"map({t.data_ptr():x} 7 3 128x32/0 64x16/512)"
    assert values == f"{x_map} 40 40 40 1 7 {z_map} 40 80 80 1 {y.data_ptr():x} 0 0", values
assert by_triton == 1
arch = 80
context.__exit__(None, None, None)
compiled = JITFunction.run
context = _source._without_device(_source.Target("cuda", arch, 32))
context.__enter__()
compiled, JITFunction.run = JITFunction.run, launched
kernels = kernels_of(TILES, b"8")
kernels([a, w])
assert kernels.recorded == {0: None}  # there is no copy engine
""",
    "dealt out evenly": f"""
# As the generator prints it: of 264 blocks two go to each of 132 multiprocessors of 228 KB, so that three have no room,
# each with 1 KB of the device's own.
import subprocess
import tempfile
from pathlib import Path

text = "program even\\ndim m = 264\\ndim n = 64\\ninput x: f32[m, n]\\noutput y = exp(x)\\n"
path = Path(tempfile.mkdtemp(), "even.ef")
path.write_text(text)
command = [{str(BUILD / "equiforge")!r}, "emit", path, "--schedule", "k0.overlap=2,k0.m.0=1"]
source = subprocess.run(command, stdout=subprocess.PIPE, text=True).stdout
assert "_evenly(k0_" in source and "[(264,)]" in source, source
device = SimpleNamespace(multi_processor_count=132, shared_memory_per_multiprocessor=228 << 10)
torch.cuda.get_device_properties = lambda index: device
loaded = []


def spoil(kernel):
    kernel.module = kernel.module or "loaded"
    kernel._init_handles = lambda: loaded.append(kernel.metadata.shared)


kernels = kernels_of(source, b"8888")
x = on_gpu(torch.ones(264, 64))
for _ in range(3):
    kernels([x])
(shared,) = loaded
assert 3 * (shared + 1024) > 228 << 10 >= 2 * (shared + 1024)
(first, *_) = (text.split() for text in written())
assert first[first.index("shared") + 1] == str(shared) and first[first.index("overlap") + 1] == "1"
""",
    "launches": """
kernels = kernels_of(SOURCE, SIZES)
a, b, w = (on_gpu(torch.ones(4096)) for _ in range(3))
assert kernels([a, w]) and by_triton == 2 and not written()  # the first call
for x in (a, b, a):
    (y,) = kernels([x, w])
    t = kernels.launches[0, 0x70].kept[1][0]
    assert written() == [
        line("88888", 8, 128, x, w, t, 0, 0),
        line("8448888", 8, 256, t, 0x3F000000, 4000, (1 << 64) - (1 << 40), y, 0, 0, overlap=1),
    ]
assert by_triton == 2
""",
    "one graph": """
import gc
w = on_gpu(torch.ones(4096))
for refused, launched in ((0, 3), (1, 0), (2, 0)):
    kernels, by_triton, before = kernels_of(SOURCE, SIZES), 0, graphs()
    kernels([w, w])
    driver.fake_cuda_refuse(refused)
    for _ in range(4):  # once one by one, then as a graph
        (y,) = kernels([w, w])
        assert [text.split()[1] for text in written()] == ["88888", "8448888"] and by_triton == 2
    assert graphs()[0] - before[0] == launched
    kernels = None
    gc.collect()
    assert graphs()[2] == 0
driver.fake_cuda_refuse(0)
a, b, y = (on_gpu(torch.ones(4096)) for _ in range(3))
_kernels._fresh = lambda: lambda shape, strides, dtype: y
kernels = kernels_of(SOURCE, SIZES)
by_triton = 0
for x in (a, a, a):  # the first two come with results of their own
    kernels([x, w])
before = graphs()
written()
# There is a graph for each: that for b gets x and y, which it was not made with, once.
for x, changed in ((a, 0), (b, 2), (b, 2), (a, 2)):
    kernels([x, w])
    assert graphs()[1] - before[1] == changed
    assert written()[0].split(": ")[1].split()[0] == f"{x.data_ptr():x}"
""",
    "one tensor given twice": """
kernels = kernels_of(SOURCE, SIZES)
a, b, w = (on_gpu(torch.ones(4096)) for _ in range(3))
kernels([a, a])
(y,) = kernels([b, w])
assert written()[0].split(": ")[1].split()[:2] == [f"{b.data_ptr():x}", f"{w.data_ptr():x}"]
""",
    "in a module": """
module, fast = module_of(2, SIZES)
a, b = (on_gpu(torch.ones(4096)) for _ in range(2))
first, second = fast._runner.kernels

def check(x, stream=0x70):
    # A call like an earlier one; `empty` makes h, then y.
    made.clear()
    run, fast._runner.run = fast._runner.run, None
    y = fast(x)
    fast._runner.run = run
    h, t, u = made[0], first.launches[0, stream].kept[1][0], second.launches[0, stream].kept[1][0]
    more = (0x3F000000, 4000, (1 << 64) - (1 << 40))
    assert y is made[-1] and written() == [
        line("88888", 8, 128, x, module.w, t, 0, 0, stream=stream),
        line("8448888", 8, 256, t, *more, h, 0, 0, overlap=1, stream=stream),
        line("88888", 8, 128, h, x, u, 0, 0, stream=stream),
        line("8448888", 8, 256, u, *more, y, 0, 0, overlap=1, stream=stream),
    ]

with torch.no_grad():
    fast(a)
    assert by_triton == 4 and len(fast._quick) == 1
    fast(a)  # on this stream for the first time
    written()
    for x in (a, b, b, a):
        check(x)
    module.w.data = on_gpu(torch.ones(4096))
    check(a)
    module.w = torch.nn.Parameter(on_gpu(torch.ones(4096)), requires_grad=False)
    check(b)
    stream.number = 0x80
    fast(a)
    written()
    check(a, 0x80)
    stream.number = 0x70
    check(a)
    # A captured stream, an odd address: no kernels of the list.
    assert by_triton == 4
    driver.fake_cuda_reset(0, 0x70, 0)
    stream.capturing = True
    fast(a)
    temps = [f"{kernels.launches[0, 0x70].kept[1][0].data_ptr():x}" for kernels in (first, second)]
    lines = written()
    assert len(lines) == 4 and not any(temp in text for temp in temps for text in lines)
    stream.capturing = False
    check(a)
    whole = torch.ones(4097)
    fast(on_gpu(whole[1:]))
    assert by_triton == 8 and not written()
    check(a)
assert len(fast._quick) == 1
""",
    "host time": """
# All but PyTorch's allocation and the driver itself, whose places a quick one of CPU memory and a silent one take.
import statistics, time

_kernels._fresh = lambda: torch._C._dynamo.guards._empty_strided_cpu
torch._C._cuda_getCurrentRawStream = abs  # as quick; of device 0
torch._C._cuda_getDevice = int
stream.number = 0
module, fast = module_of(1, SIZES)
x, w = on_gpu(torch.ones(4096)), module.w


def median_ns(call):
    at = [time.perf_counter_ns()]
    for _ in range(100):
        call()
        at.append(time.perf_counter_ns())
    return statistics.median(b - a for a, b in zip(at, at[1:]))


with torch.no_grad():
    for _ in range(3):
        fast(x)
    y, (quick,), (kernels,) = fast(x), fast._quick, fast._runner.kernels
    (launch,), checked = kernels.calls.values(), quick.__globals__["check"]
    driver.fake_cuda_reset(0, 0, 1)
    parts = {
        "module": lambda: fast(x),
        "what it runs, of a call like an earlier one": lambda: quick((x,)),
        "library": lambda: launch(x, w, y),
        "output": lambda: kernels.fresh((4096,), (1,), torch.float32),
        "the check of arguments and weights": lambda: checked(x, w),
        "nothing": lambda: None,
    }
    times = [[median_ns(call) for call in parts.values()] for _ in range(50)]
best = dict(zip(parts, (min(taken) / 1e3 for taken in zip(*times))))
for name, us in best.items():
    print(f"host time without a GPU {us:6.2f} us  {name}")
# As other processes leave it: about half as long again as its parts.
assert best["module"] < 3 * sum(best[part] for part in ("library", "output", "the check of arguments and weights"))
""",
    "arguments of the library": """
kernels = kernels_of(SOURCE, SIZES)
w = on_gpu(torch.ones(4096))
kernels([w, w])
kernels([w, w])
launches = kernels.launches[0, 0x70]
written()
assert launches.call(w.data_ptr(), w.data_ptr(), w.data_ptr()) == 0
by_number = written()
assert launches.call_tensors(w, w, w) == 0 and written() == by_number
for wrong in ((), (16, 16), (16,) * 4, (16, 16, "16"), (16, 16, -16), (16, 16, 1 << 64), (16, 1.5, 16)):
    try:
        launches.call(*wrong)
        raise SystemExit(f"{wrong} were taken")
    except (TypeError, OverflowError):
        pass
assert not written() and launches.call((1 << 64) - 1, 16, 16) == -1
try:
    launches.call_tensors(w, w)
    raise SystemExit("two tensors were taken")
except TypeError:
    pass
count = sys.getrefcount(w)
for _ in range(100):
    launches.call_tensors(w, w, w)
assert sys.getrefcount(w) == count
# PyTorch without the function that the library asks for addresses
_launch._reads_tensors = lambda: False
written()
other = _launch.Launches(kernels.recorded[0], (2, 1), launches.kept[1], (0, 0x70), captured=False)
assert other.call_tensors(w, w, w) == 0 and written() == by_number
many = _launch.Launches([], (100, 1), [], (0, 0x70), captured=False)  # more than the library has room for
assert many.call(*[16] * 101) == 0 and many.call(*[16] * 100, 17) == -1
""",
    "unaligned": """
kernels = kernels_of(SOURCE, SIZES)
w, whole = on_gpu(torch.ones(4096)), torch.ones(4097)
assert kernels([on_gpu(whole[1:]), w]) and kernels.recorded == {} and by_triton == 2
by_triton = 0
kernels([w, w])
by_triton = 0
kernels([w, w])
used = kernels.launches[0, 0x70].kept[1][0]
assert len(written()) == 2 and by_triton == 0
seen = []
spoil = seen.append
made.clear()
kernels([w, on_gpu(whole[1:])])
assert not written() and by_triton == 2  # Triton's, which knows that they are not aligned
assert len(made) >= 2 and not any(x is used for x in made)
assert "align" not in seen[0].asm["ptx"] or seen[0].asm["ptx"] != kernels.recorded[0][0].kernel.asm["ptx"]
kernels([w, w])
assert len(written()) == 2
""",
    "streams": """
kernels = kernels_of(SOURCE, SIZES)
w = on_gpu(torch.ones(4096))
kernels([w, w])
for number in (0x70, 0, 0x80, 0x70):
    stream.number = number
    kernels([w, w])
    assert [text.split(" stream ")[1].split()[0] for text in written()] == [f"{number:x}"] * 2
assert len({kernels.launches[key].kept[1][0].data_ptr() for key in kernels.launches}) == 3
assert set(kernels.launches) == {(0, 0x70), (0, 0), (0, 0x80)}
""",
    "capture": """
kernels = kernels_of(SOURCE, SIZES)
w = on_gpu(torch.ones(4096))
kernels([w, w])
kernels([w, w])
kept = kernels.launches[0, 0x70]
temp = f"{kept.kept[1][0].data_ptr():x}"
assert temp in written()[0]
for number in (0x70, 0x80):  # a stream that was called on, and another
    driver.fake_cuda_reset(0, number, 0)
    stream.number, stream.capturing = number, True
    kernels([w, w])
    launched = written()
    assert len(launched) == 2 and temp not in launched[0]
stream.number, stream.capturing = 0x70, False
kernels([w, w])
assert temp in written()[0] and kernels.launches == {(0, 0x70): kept} and by_triton == 2
""",
    "errors": """
kernels = kernels_of(SOURCE, SIZES)
w = on_gpu(torch.ones(4096))
kernels([w, w])
kernels([w, w])
kernels.any_calls[0, 0x70] = fails = lambda *_: 719
_launch._builtin = lambda name, handle: fails
try:
    kernels([w, w])
    raise SystemExit("no error")
except RuntimeError as problem:
    assert str(problem) == "CUDA error 719 in a launch: unspecified launch failure"
""",
    "threads": """
kernels = kernels_of(SOURCE, SIZES)
w = on_gpu(torch.ones(4096))
kernels([w, w])
sys.setswitchinterval(1e-5)
started = threading.Barrier(4)

def work():
    driver.fake_cuda_context(0)
    stream.number, stream.capturing = 0x70, False
    started.wait()
    for _ in range(200):
        kernels([w, w])

threads = [threading.Thread(target=work) for _ in range(4)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
by_temp = {}  # two that came first at once may have had temporaries of their own
for text in written():
    values = text.split(": ")[1].split()
    by_temp.setdefault(values[2] if " 88888 " in text else values[0], []).append(text.split()[1])
assert sum(map(len, by_temp.values())) == 1600
mixed = [order for order in by_temp.values() if order != ["88888", "8448888"] * (len(order) // 2)]
assert not mixed, [(len(order), order[:8]) for order in mixed]
assert len(kernels.launches) == 1
""",
    "Python that is hidden from libraries": """
# As in a program that loads it for itself alone.
class Hidden:
    def __getitem__(self, name):
        raise AttributeError(name)

real, ctypes.pythonapi = ctypes.pythonapi, Hidden()
assert not _launch._finds_python()
ctypes.pythonapi = real
kernels = kernels_of(SOURCE, SIZES)
w = on_gpu(torch.ones(4096))
kernels([w, w])
kernels([w, w])
launches = kernels.launches[0, 0x70]
written()
x, y = torch.ones(4096), torch.ones(4096)
assert launches.call(x.data_ptr(), w.data_ptr(), y.data_ptr()) == 0
first = written()
assert len(first) == 2 and f"{x.data_ptr():x}" in first[0] and f"{y.data_ptr():x}" in first[1]
assert launches.call_tensors(x, w, y) == 0 and written() == first
for wrong in ((), (16, 16), (16,) * 4, (16, 16, "16"), (16, 1.5, 16)):
    try:
        launches.call(*wrong)
        raise SystemExit(f"{wrong} were taken")
    except TypeError:
        pass
assert not written() and launches.call((1 << 64) - 1, 16, 16) == -1
""",
    "what is not plain": """
w = on_gpu(torch.ones(4096))
changes = [
    dict(num_ctas=2), dict(cluster_dims=(1, 2, 1)), dict(launch_cooperative_grid=True), dict(global_scratch_size=8),
    dict(profile_scratch_size=8), dict(shared=229 << 10),
]
for change in changes:
    def spoil(kernel):
        if not isinstance(kernel.metadata, SimpleNamespace):
            kernel.metadata = SimpleNamespace(**{**kernel.metadata._asdict(), **change})
    kernels, by_triton = kernels_of(SOURCE, SIZES), 0
    for calls in range(1, 4):
        assert kernels([w, w]) and by_triton == 2 * calls and not written()
    assert kernels.recorded == {0: None}, change
def spoil(kernel):
    last = ".param .u64 .ptr .global .align 1 k0_param_4"
    kernel.asm = {"ptx": kernel.asm["ptx"].replace(last, ".param .u32 k0_param_4")}
kernels = kernels_of(SOURCE, SIZES)
kernels([w, w])
assert kernels.recorded == {0: None}
def spoil(kernel):
    del kernel.metadata  # another Triton
kernels = kernels_of(SOURCE, SIZES)
kernels([w, w])
assert kernels.recorded == {0: None}
spoil = lambda kernel: None
for old, new in (("0.5, 1,", "inputs[1], 1,"), ("4000,", "torch.ones(8),")):  # other types; a tensor of its own
    source = SOURCE.replace(old, new)
    kernels, by_triton = kernels_of(source.replace("* scale", "").replace("mask=at < n", ""), SIZES), 0
    kernels([w, w])
    assert (kernels.recorded[0] is None) == ("ones" in new), new
""",
}


@pytest.mark.parametrize("name", TESTS)
def test_launches(name, tmp_path):
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    environment["XDG_CACHE_HOME"] = str(tmp_path)
    body = TESTS[name].replace("SOURCE, SIZES", f"SOURCE, {SIZES}").replace(", SIZES)", f", {SIZES})")
    code = f"{START}\nSOURCE = '''{SOURCE}'''\nTILES = '''{TILES}'''\n{body}"
    command = [sys.executable, "-c", code, BUILD / "tests/libcuda.so.1", tmp_path / "triton"]
    result = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    print(result.stdout)
    assert result.returncode == 0, result.stderr
