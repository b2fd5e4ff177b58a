"""Optimised modules are drop-in: what a caller sees is what the original does. No search, no tuning."""

import collections
import subprocess
import sys
import warnings
import zipfile

import pytest
import torch
from conftest import BUILD
from test_end_to_end import difference, untuned
from torch import nn

import equiforge
from equiforge import EquiForgeError, UnsupportedModuleError, _native, load
from equiforge._module import Call, OptimizedModule

# Where a test does not say so, kernels run.
pytestmark = pytest.mark.filterwarnings("error:.*runs the original")


class Dropping(nn.Module):
    """A module that does something else in training."""

    def __init__(self):
        super().__init__()
        self.first, self.norm, self.drop = nn.Linear(24, 24), nn.BatchNorm1d(24), nn.Dropout(0.5)

    def forward(self, x):
        return self.drop(self.norm(self.first(x)))


class Doubles(nn.Module):
    """Writes to its first argument, and reads the second one afterwards."""

    def forward(self, x, y):
        x.mul_(2)
        return x * y


class Scales(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("total", torch.zeros(8))

    def forward(self, x):
        self.total += x
        return self.total * x


def test_keeps_the_original_in_files(tmp_path):
    """Whatever was decided for the module holds for the one in the file."""
    module, x = nn.Linear(24, 24).eval().requires_grad_(False), torch.randn(4, 24)
    fast = untuned(module, (x,), tmp_path)
    for keep in (True, False):
        fast.__dict__.update(_keep_original=keep, original_us=3.0, optimized_us=5.0)
        for name, weights in (("whole", True), ("bare", False)):
            fast.save(tmp_path / name, weights=weights)
            other = load(tmp_path / name, None if weights else module)
            assert other._keep_original is keep
            assert (other.original_us, other.optimized_us) == (3.0, 5.0)
            assert difference(other, module, (x,)) < 1e-5
            calls = []
            other.original.register_forward_hook(lambda *_: calls.append(1))  # noqa: B023
            with torch.no_grad():
                other(x)
            assert bool(calls) is keep
            other.save(tmp_path / "again", weights=weights)
            assert load(tmp_path / "again", None if weights else module)._keep_original is keep


def test_damaged_comparison(tmp_path):
    module, x = nn.Linear(8, 8).eval(), torch.randn(4, 8)
    fast = untuned(module, (x,), tmp_path)
    fast.save(tmp_path / "good.efz", weights=False)
    for bad in ("[]", "{", '{"keep_original": 1, "original_us": 0.0, "optimized_us": 0.0}', "0" * 5000):
        with zipfile.ZipFile(tmp_path / "good.efz") as old, zipfile.ZipFile(tmp_path / "bad.efz", "w") as new:
            for entry in old.namelist():
                new.writestr(entry, bad if entry == "module.json" else old.read(entry))
        with pytest.raises(EquiForgeError, match=r"module\.json"):
            load(tmp_path / "bad.efz", module)


def test_gradients_of_inputs_and_weights(tmp_path):
    module, x = nn.Sequential(nn.Linear(24, 48), nn.GELU(), nn.Linear(48, 24)).eval(), torch.randn(4, 24)
    fast = untuned(module, (x,), tmp_path)
    fast.save(tmp_path / "fast.efz")
    for which in (fast, load(tmp_path / "fast.efz"), load(tmp_path / "fast.efz", module)):
        x = torch.randn(4, 24, requires_grad=True)
        wanted = torch.autograd.grad(module(x).square().sum(), [x, *module.parameters()])
        with pytest.warns(UserWarning, match="requires gradients"):
            found = torch.autograd.grad(which(x).square().sum(), [x, *which.parameters()])
        assert all(torch.allclose(a, b, atol=1e-5) for a, b in zip(found, wanted, strict=True))
        which.requires_grad_(False)
        (found,) = torch.autograd.grad(which(x).square().sum(), [x])
        assert torch.allclose(found, wanted[0], atol=1e-5)
        assert not which(x.detach()).requires_grad
        module.requires_grad_(True)


def test_original_in_training_mode(tmp_path):
    """The result is the module in evaluation mode, in its kernels and where it calls the original; the module stays."""
    module, x = Dropping().requires_grad_(False), torch.randn(16, 24)
    module(x)
    fast = untuned(module, (x,), tmp_path)
    assert module.training
    assert module.drop.training
    before = module.norm.running_mean.clone()
    want = module.eval()(x)
    module.train()
    assert torch.allclose(fast(x), want, atol=1e-5)
    with pytest.warns(UserWarning, match="runs the original"):
        assert torch.allclose(fast(x[:5]), want[:5], atol=1e-5)
    fast.__dict__["_keep_original"] = True
    assert torch.equal(fast(x), want)
    assert module.training
    assert module.drop.training
    assert torch.equal(module.norm.running_mean, before)
    # Asked to train, it trains.
    fast.train()
    assert not torch.allclose(fast(x), want, atol=1e-2)
    assert not torch.equal(module.norm.running_mean, before)


def test_autocast(tmp_path):
    module, x = nn.Linear(24, 24).eval().requires_grad_(False), torch.randn(4, 24)
    fast = untuned(module, (x,), tmp_path)
    with torch.autocast("cpu", torch.bfloat16), pytest.warns(UserWarning, match="autocast"):
        assert fast(x).dtype == torch.bfloat16
    assert fast(x).dtype == torch.float32


def test_strides(tmp_path):
    module = nn.Sequential(nn.Linear(24, 48), nn.Tanh()).eval().requires_grad_(False)
    base = torch.randn(40, 48)
    for x in (base.t()[:24, :16].t(), base[::4, ::2], base[:1, :24].expand(10, 24), base[:, :24]):
        fast = untuned(module, (x,), tmp_path)
        assert torch.allclose(fast(x), module(x), atol=1e-5)
        assert torch.allclose(fast(x.contiguous()), module(x), atol=1e-5)


class Weights(nn.Module):
    """Has no arguments."""

    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.randn(3, 5), requires_grad=False)

    def forward(self):
        return torch.exp(self.w) * 2


class Wide(nn.Module):
    """Integers beyond what float32 and float64 hold."""

    def forward(self, x):
        return (x - 2**53) * 2 + x, x + 2**33 + 1


def test_integers_with_large_constants_are_exact(tmp_path):
    x = torch.randint(2**60, 2**61, (16, 40), generator=torch.Generator().manual_seed(1))
    for language in ("c", "triton"):
        folder = tmp_path / language
        folder.mkdir()
        fast = untuned(Wide().eval(), (x,), folder, language)
        assert all(torch.equal(a, b) for a, b in zip(fast(x), Wide()(x), strict=True))


class NearZero(nn.Module):
    """Formulas that take 1 from what is nearly 1 would give 0."""

    def forward(self, x):
        return torch.expm1(x * 1e-9), torch.log1p(x * 1e-9)


def test_small_arguments_keep_their_digits(tmp_path):
    x = torch.randn(16, 40)
    for language in ("c", "triton"):
        folder = tmp_path / language
        folder.mkdir()
        fast = untuned(NearZero().eval(), (x,), folder, language)
        for ours, exact in zip(fast(x), NearZero()(x.double()), strict=True):
            assert float((ours - exact).norm() / exact.norm()) < 3e-7


def test_no_arguments(tmp_path):
    module = Weights().eval()
    fast = untuned(module, (), tmp_path)
    assert torch.allclose(fast(), module())
    module.w.data = torch.randn(3, 5)
    assert torch.allclose(fast(), module())


def test_writes_to_inputs(tmp_path):
    module = Doubles().eval()
    x, y = torch.randn(8), torch.randn(8)
    fast = untuned(module, (x.clone(), y), tmp_path)
    a, b = x.clone(), x.clone()
    assert torch.allclose(fast(a, y), module(b, y))
    assert torch.allclose(a, b)
    assert not torch.equal(a, x)
    # Strided: the caller's tensor is written, not a copy.
    a, b = torch.zeros(16), torch.zeros(16)
    fast(a[::2], y)
    module(b[::2], y)
    assert torch.allclose(a, b)


def test_inputs_that_share_memory(tmp_path):
    module = Doubles().eval()
    fast = untuned(module, (torch.randn(8), torch.randn(8)), tmp_path)
    base = torch.randn(12)
    for name, first, second in (("same", slice(0, 8), slice(0, 8)), ("overlapping", slice(0, 8), slice(4, 12))):
        a, b = base.clone(), base.clone()
        with pytest.warns(UserWarning, match="shares its memory"):
            assert torch.allclose(fast(a[first], a[second]), module(b[first], b[second])), name
        assert torch.allclose(a, b), name
        fast.__dict__["_told"] = False
    a, b = torch.arange(16.0), torch.arange(16.0)  # one storage, but apart
    assert torch.allclose(fast(a[:8], a[8:]), module(b[:8], b[8:]))
    assert not fast._told
    # One that is only read may be given twice.
    squares = nn.Bilinear(8, 8, 4).eval().requires_grad_(False)
    x = torch.randn(3, 8)
    assert torch.allclose(untuned(squares, (x, x.clone()), tmp_path)(x, x), squares(x, x), atol=1e-5)
    assert torch.allclose(untuned(squares, (x, x), tmp_path)(x, x), squares(x, x), atol=1e-5)
    y = torch.randn(3, 8)
    assert torch.allclose(untuned(squares, (x, x), tmp_path)(x, y), squares(x, y), atol=1e-5)


def test_buffer_given_as_argument(tmp_path):
    module, twin = Scales().eval(), Scales().eval()
    fast = untuned(module, (torch.ones(8),), tmp_path)
    for scales in (module, twin):
        scales.total.fill_(3.0)
    with pytest.warns(UserWarning, match="shares its memory"):
        assert torch.equal(fast(module.total), twin(twin.total))
    assert torch.equal(module.total, twin.total)


def test_wrong_arguments():
    """One line that says what is wrong, before anything is exported or measured."""
    block, x = nn.Linear(8, 8).eval(), torch.ones(2, 8)
    for arguments, problem, words in (
        ((block, None), TypeError, "args is the tuple"),
        ((block, x), TypeError, r"args is the tuple .* not a Tensor"),
        ((block, (x,), (x,)), TypeError, "kwargs is a dict"),
        ((block, (x,), {1: x}), TypeError, "kwargs is a dict"),
        ((lambda y: y, (x,)), TypeError, r"torch\.nn\.Module, not a function"),
        ((None, (x,)), TypeError, r"torch\.nn\.Module, not None"),
        ((nn.Linear, (x,)), TypeError, r"torch\.nn\.Module, not a type"),
        ((block, (x,), None, 3), TypeError, "target is the name"),
        ((block, (x,), None, "auto", None), EquiForgeError, "a budget is"),
        ((block, (x,), None, "auto", float("inf")), EquiForgeError, "a budget is"),
        ((block, (x,), None, "auto", float("nan")), EquiForgeError, "a budget is"),
        ((block, ()), EquiForgeError, "cannot export .* missing a required argument"),
        ((block, (x, x)), EquiForgeError, "cannot export .* too many"),
        ((block, ("text",)), EquiForgeError, "cannot export"),
        ((block, (x[:, :3],)), EquiForgeError, "cannot export"),
        ((block, (x.to("meta"),)), EquiForgeError, "meta device"),
        ((nn.Linear(8, 8, device="meta"), (x.to("meta"),)), EquiForgeError, "meta device"),
        ((nn.Linear(8, 8, device="meta"), (x,)), EquiForgeError, "meta device"),
    ):
        with pytest.raises(problem, match=words) as caught:
            equiforge.optimize(*arguments)
        assert "\n" not in str(caught.value)
    with pytest.raises(TypeError, match="progress is a function"):
        equiforge.optimize(block, (x,), progress=5)


def test_one_that_is_optimised_already(tmp_path, monkeypatch):
    module, x = nn.Linear(8, 8).eval().requires_grad_(False), torch.randn(2, 8)
    fast = untuned(module, (x,), tmp_path)
    seen = []

    def export(given, *_):
        seen.append(given)
        raise EquiForgeError("far enough")

    monkeypatch.setattr("equiforge._optimize.export", export)
    with pytest.raises(EquiForgeError, match="far enough"):
        equiforge.optimize(fast, (x,))
    assert seen == [module]


def test_values_of_the_call():
    """The kernels are for one value of one type."""
    x, nan = torch.ones(2), float("nan")
    for wanted in (2, 2.0, True, 1, 0.0, -0.0, nan, complex(0, nan), None, "text", torch.float32):
        call = Call.example((x, wanted), {}, None)
        for given in (2, 2.0, True, 1, 1.0, False, 0, 0.0, -0.0, float("nan"), complex(0, nan), None, "text", x):
            same = type(given) is type(wanted) and repr(given) == repr(wanted)
            assert (call.unlike((x, given)) is None) is same, (wanted, given)


def test_mode_of_the_call():
    call = Call.example((torch.ones(2),), {}, None)
    assert call.mismatch((torch.ones(2),), False) is None
    assert "training" in call.mismatch((torch.ones(2),), True)
    assert OptimizedModule.__doc__


class Picks(nn.Module):
    def forward(self, x):
        return (x * 2).topk(3), {"largest": x.max(-1), "sorted": x.sort(-1)}


def test_named_tuples_of_operators(tmp_path):
    """Results have the type that they have in PyTorch; files of such modules are read by another process, too."""
    x = torch.randn(4, 8)
    fast = untuned(Picks().eval(), (x,), tmp_path)
    fast.save(tmp_path / "picks.efz")
    torch.save(x, tmp_path / "x.pt")
    code = (
        "import sys, torch, equiforge; folder = sys.argv[1]\n"
        "top, rest = equiforge.load(folder + '/picks.efz')(torch.load(folder + '/x.pt'))\n"
        "print(type(top).__name__, top.indices.tolist(), type(rest['largest']).__name__)"
    )
    other = subprocess.run([sys.executable, "-c", code, tmp_path], capture_output=True, text=True, check=False)
    want, want_rest = Picks()(x)
    assert other.stdout == f"topk {want.indices.tolist()} max\n", other.stderr
    top, rest = fast(x)
    assert type(top) is torch.return_types.topk
    assert torch.equal(top.values, want.values)
    assert torch.equal(top.indices, want.indices)
    assert {name: type(y) for name, y in rest.items()} == {name: type(y) for name, y in want_rest.items()}
    assert torch.equal(rest["sorted"].indices, want_rest["sorted"].indices)


Pair = collections.namedtuple("Pair", ["one", "two"])


class Pairs(nn.Module):
    def forward(self, x):
        return Pair(x * 2, x + 1)


def test_named_tuples_that_files_cannot_name():
    with pytest.raises(UnsupportedModuleError, match="cannot save .*Pair") as caught:
        equiforge.optimize(Pairs().eval(), (torch.randn(4, 8),))
    assert "\n" not in str(caught.value)


@pytest.fixture
def search_free(monkeypatch):
    """equiforge.optimize without search: every region is its program as it stands."""

    def optimize(archive, result, **_):
        subprocess.run([BUILD / "tests/plan", archive, result], check=True)
        return {"note": ""}

    monkeypatch.setattr(_native, "optimize", optimize)


def test_mode_of_the_result(search_free, tmp_path):
    """The original's: code that trains goes on to train, until somebody calls eval()."""
    module, x = Dropping().requires_grad_(False), torch.randn(16, 24)
    fast = equiforge.optimize(module, (x,))
    assert fast.training and module.training
    assert equiforge.optimize(fast, (x,)).training
    fast.__dict__["_keep_original"] = False
    before = module.norm.running_mean.clone()
    with pytest.warns(UserWarning, match="training mode: equiforge runs the original"):
        assert (fast(x) == 0).any()  # dropped
    assert not torch.equal(module.norm.running_mean, before)
    fast.save(tmp_path / "fast.efz")
    assert load(tmp_path / "fast.efz", module).training
    alone = load(tmp_path / "fast.efz")
    exported = torch.export.export(module.eval(), (x,)).module()
    given = load(tmp_path / "fast.efz", exported)
    assert not module.training
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for other in (fast.eval(), alone, given):
            other.__dict__["_keep_original"] = False
            assert not other.training
            assert torch.allclose(other(x), module(x), atol=1e-5)
    assert not equiforge.optimize(module, (x,)).training
