"""The workloads that EquiForge is measured on, as PyTorch users write them: seven programs and two attentions at three
batch sizes, and five layers with one query token a sequence. The programs stand beside them in text form, as
tests/programs/NAME_bB.ef. Where `transformers` is installed, five of its decoder layers are there too, as it has them.

    module, inputs = workload("rmsnorm_mlp/B8").make(device="cuda")
    module(*inputs)

Tensors are float16 unless a comment says otherwise; weights are scaled by 1/sqrt(fan-in), inputs are standard normal.
`small=True` makes each workload small enough for any processor, and keeps its structure.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

BATCHES = (1, 8, 16)


def rms(x: Tensor, g: Tensor | None = None) -> Tensor:
    """x / sqrt(mean(x^2) + 1e-6) * g along the last dimension, computed in float32 as model code does."""
    h = x.float()
    h = (h * torch.rsqrt(h.pow(2).mean(-1, keepdim=True) + 1e-6)).to(x.dtype)
    return h if g is None else h * g


def l2n(v: Tensor) -> Tensor:
    """v / ||v|| along the last dimension, in float32."""
    h = v.float()
    return h / h.pow(2).sum(-1, keepdim=True).sqrt()


def attention(q: Tensor, k: Tensor, v: Tensor, visible: Tensor | None = None) -> Tensor:
    """softmax(q k^T / sqrt(d)) v over [..., tokens, d]; scores that are not `visible` count nothing."""
    scores = torch.matmul(q, k.transpose(-2, -1)) * (1 / math.sqrt(q.shape[-1]))
    if visible is not None:
        scores = torch.where(visible, scores, float("-inf"))
    return torch.matmul(torch.softmax(scores, dim=-1), v)


class Layer(nn.Module):
    """A module whose weights are drawn by name: `self.weights(W=(rows, columns), g=(n,))`."""

    def weights(self, **shapes: tuple[int, ...]) -> None:
        """Matrices are normal with deviation 1/sqrt(rows); vectors, which are gains or biases, are near 1 or 0."""
        for name, shape in shapes.items():
            value = torch.randn(shape)
            if len(shape) > 1:
                value = value / math.sqrt(shape[-2])
            else:
                value = value * 0.1 + (0 if name.startswith(("b", "c", "l")) else 1)
            self.register_parameter(name, nn.Parameter(value, requires_grad=False))


# ---- seven programs ----


class RmsnormLinear(Layer):
    def __init__(self, k: int, n: int):
        super().__init__()
        self.weights(g=(k,), W=(k, n))

    def forward(self, x: Tensor) -> Tensor:
        return rms(x, self.g) @ self.W


class RmsnormMlp(Layer):
    def __init__(self, k: int, f: int):
        super().__init__()
        self.weights(g=(k,), W1=(k, f), W3=(k, f))

    def forward(self, x: Tensor) -> Tensor:
        n = rms(x, self.g)
        return (n @ self.W1) * (n @ self.W3)


class RmsnormSwiglu(Layer):
    def __init__(self, k: int, f: int):
        super().__init__()
        self.weights(g=(k,), W1=(k, f), W3=(k, f), W2=(f, k))

    def forward(self, x: Tensor) -> Tensor:
        n = rms(x, self.g)
        return (F.silu(n @ self.W1) * (n @ self.W3)) @ self.W2


class LayernormGemm(Layer):
    def __init__(self, k: int, n: int):
        super().__init__()
        self.weights(g=(k,), b=(k,), W=(k, n), c=(n,))

    def forward(self, x: Tensor) -> Tensor:
        return F.layer_norm(x, (x.shape[-1],), self.g, self.b, 1e-5) @ self.W + self.c


class Lora(Layer):
    def __init__(self, k: int, n: int, r: int):
        super().__init__()
        self.weights(W=(k, n), A=(k, r), Bm=(r, n))

    def forward(self, x: Tensor) -> Tensor:
        return x @ self.W + (x @ self.A) @ self.Bm


class GatedMlp(Layer):
    def __init__(self, k: int, n: int):
        super().__init__()
        self.weights(W1=(k, n), W2=(k, n))

    def forward(self, x: Tensor) -> Tensor:
        return F.silu(x @ self.W1) * (x @ self.W2)


class Ngpt(Layer):
    def __init__(self, n: int):
        super().__init__()
        self.weights(alpha=(n,))

    def forward(self, h: Tensor, o: Tensor) -> Tensor:
        return l2n(h + self.alpha * (l2n(o) - h)).to(h.dtype)


# ---- attention ----


class MhaDecode(Layer):
    """q[B, heads, 1, d], k and v[B, heads, S, d]."""

    def forward(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return attention(q, k, v)


class MhaPrefill(Layer):
    """q, k and v[B, heads, S, d]; a token sees itself and those before it."""

    def forward(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        position = torch.arange(q.shape[-2], device=q.device)
        return attention(q, k, v, position[:, None] >= position)


# ---- five layers, one query token a sequence ----


class QknormMla(Layer):
    """Latent attention with normalised queries and keys: the cache holds latents c[B, S, latent] and, for each head and
    position, the inverse RMS of its key[B, heads, S]."""

    def __init__(self, width: int, heads: int, latent: int):
        super().__init__()
        self.heads, self.size = heads, width // heads
        self.weights(Wq=(width, width), Wk=(latent, width), Wv=(latent, width), Wo=(width, width))
        self.weights(gq=(self.size,), gk=(self.size,))

    def split(self, x: Tensor) -> Tensor:
        """[B, S, heads * size] to [B, heads, S, size]."""
        return x.view(*x.shape[:2], self.heads, self.size).transpose(1, 2)

    def forward(self, x: Tensor, c: Tensor, inverse_rms: Tensor) -> Tensor:
        q = rms(self.split(x @ self.Wq), self.gq)
        k = self.split(c @ self.Wk) * inverse_rms[..., None] * self.gk
        v = self.split(c @ self.Wv)
        return attention(q, k, v).transpose(1, 2).reshape(x.shape) @ self.Wo


class HyperConnection(Layer):
    """A manifold-constrained hyper-connection around a block: reads the streams X[B, n, width] with weights `pre`, adds
    the block's result with weights `post`, mixes the streams with a doubly stochastic matrix. Weights are float32."""

    def __init__(self, width: int, streams: int):
        super().__init__()
        self.streams = streams
        self.weights(projection=(streams * width, streams * (streams + 2)), bias=(streams * (streams + 2),))

    def maps(self, streams: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """pre[B, n], post[B, n] and the residual map[B, n, n], in float32."""
        n = self.streams
        t = rms(streams.float().flatten(1)) @ self.projection.float() + self.bias.float()
        residual = torch.exp(t[:, 2 * n :]).view(-1, n, n)
        for _ in range(20):  # Sinkhorn
            residual = residual / residual.sum(-1, keepdim=True)
            residual = residual / residual.sum(-2, keepdim=True)
        return torch.sigmoid(t[:, :n]), 2 * torch.sigmoid(t[:, n : 2 * n]), residual

    def forward(self, streams: Tensor, block: Callable[[Tensor], Tensor]) -> Tensor:
        pre, post, residual = self.maps(streams)
        x = (pre[:, :, None] * streams).sum(1).to(streams.dtype)
        return (residual @ streams.float() + post[:, :, None] * block(x)[:, None]).to(streams.dtype)


class Mhc(Layer):
    """Two hyper-connections: around attention over a cache k, v[B, heads, S, size], and around a SwiGLU MLP."""

    def __init__(self, width: int, streams: int, heads: int, ff: int):
        super().__init__()
        self.heads = heads
        self.first, self.second = HyperConnection(width, streams), HyperConnection(width, streams)
        self.weights(g1=(width,), Wq=(width, width), Wo=(width, width))
        self.weights(g2=(width,), W1=(width, ff), W3=(width, ff), W2=(ff, width))

    def forward(self, streams: Tensor, k: Tensor, v: Tensor) -> Tensor:
        def attend(x: Tensor) -> Tensor:
            q = (rms(x, self.g1) @ self.Wq).view(x.shape[0], self.heads, 1, -1)
            return attention(q, k, v).reshape(x.shape) @ self.Wo

        def mlp(x: Tensor) -> Tensor:
            n = rms(x, self.g2)
            return (F.silu(n @ self.W1) * (n @ self.W3)) @ self.W2

        return self.second(self.first(streams, attend), mlp)


class SwaGqa(Layer):
    """Grouped queries over a sliding window: k and v[B, key heads, S, size]."""

    def __init__(self, width: int, heads: int, window: int):
        super().__init__()
        self.heads, self.window = heads, window
        self.weights(Wq=(width, width), Wo=(width, width))

    def repeat(self, x: Tensor) -> Tensor:
        """Each key head serves the query heads of its group."""
        b, heads, s, size = x.shape
        return x[:, :, None].expand(b, heads, self.heads // heads, s, size).reshape(b, self.heads, s, size)

    def forward(self, x: Tensor, k: Tensor, v: Tensor) -> Tensor:
        q = (x @ self.Wq).view(x.shape[0], self.heads, 1, -1)
        visible = torch.arange(k.shape[2], device=x.device) >= k.shape[2] - self.window
        return attention(q, self.repeat(k), self.repeat(v), visible).reshape(x.shape) @ self.Wo


class AttnSinks(Layer):
    """Attention over the first `sinks` and the last `window` positions, with norm and residual."""

    def __init__(self, width: int, heads: int, window: int, sinks: int):
        super().__init__()
        self.heads, self.window, self.sinks = heads, window, sinks
        self.weights(g=(width,), Wq=(width, width), Wo=(width, width))

    def forward(self, x: Tensor, k: Tensor, v: Tensor) -> Tensor:
        q = (rms(x, self.g) @ self.Wq).view(x.shape[0], self.heads, 1, -1)
        position = torch.arange(k.shape[2], device=x.device)
        visible = (position < self.sinks) | (position >= k.shape[2] - self.window)
        return x + attention(q, k, v, visible).reshape(x.shape) @ self.Wo


class DiffAttn(Layer):
    """Differential attention: two maps, from k[B, heads, 2, S, size], over one v[B, heads, S, 2 size]."""

    def __init__(self, width: int, heads: int):
        super().__init__()
        self.heads, self.size = heads, width // heads // 2
        self.weights(Wq=(width, width), Wo=(width, width), g=(2 * self.size,))
        self.weights(lq1=(self.size,), lk1=(self.size,), lq2=(self.size,), lk2=(self.size,))

    def forward(self, x: Tensor, k: Tensor, v: Tensor) -> Tensor:
        q = (x @ self.Wq).view(x.shape[0], self.heads, 2, 1, self.size)
        first, second = (attention(q[:, :, i], k[:, :, i], v) for i in range(2))
        mix = torch.exp((self.lq1 * self.lk1).sum()) - torch.exp((self.lq2 * self.lk2).sum()) + 0.8
        o = rms(first - mix * second, self.g) * 0.2
        return o.reshape(x.shape) @ self.Wo


# ---- five decoder layers of transformers, one query token ----


class History:
    """What a layer of transformers takes for its cache: the past of one layer, as tensors of which nothing is kept."""

    def __init__(self, *past: Tensor):
        self.past = past

    def update(self, *new: Any, **_: Any) -> tuple[Tensor, ...]:
        """The past with the token's own keys and values [B, heads, 1, size] behind it; the layer's index is ignored."""
        return tuple(torch.cat([x, y], dim=-2) for x, y in zip(self.past, new[:2], strict=True))


class DecoderLayer(nn.Module):
    """A decoder layer as transformers has it, as a function of tensors: x[B, 1, width], the past of its cache, two
    tensors[B, heads, S, size], and the cosines and sines[1, 1, size] of the token's position."""

    def __init__(self, model: str, name: str, index: int, settings: dict[str, Any]):
        """`model` and `name` are those of the module and of the classes in it, "gpt_oss" and "GptOss"; `settings` those
        of the model."""
        super().__init__()
        config = getattr(importlib.import_module("transformers"), f"{name}Config")(
            **settings, attn_implementation="eager"
        )
        config._experts_implementation = "batched_mm"  # the default loops over data, which cannot be exported
        code = importlib.import_module(f"transformers.models.{model}.modeling_{model}")
        self.layer = getattr(code, f"{name}DecoderLayer")(config, layer_idx=index)
        names = inspect.signature(type(self.layer).forward).parameters
        self.cache = "cache" if "cache" in names else "past_key_values"  # its name, before version 5.24
        for key, weight in self.named_parameters():
            self.draw(key, weight.requires_grad_(False))

    @staticmethod
    def draw(name: str, weight: Tensor) -> None:
        """Normal: matrices with deviation 1/sqrt(fan-in), gains near 1, biases and the like near 0."""
        if weight.dim() == 1 or name.endswith("bias"):
            weight.normal_(float("norm" in name), 0.1)
        else:  # [outputs, inputs] of a linear layer, [inputs, outputs] for each expert
            weight.normal_(0, weight.shape[1] ** -0.5)

    def forward(self, x: Tensor, keys: Tensor, values: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        past = {self.cache: History(keys, values)}
        out = self.layer(x, attention_mask=None, position_embeddings=(cos, sin), use_cache=True, **past)
        return out[0] if isinstance(out, tuple) else out


# ---- the table ----

Sizes = dict[str, int]
Shapes = list[tuple[int, ...]]


@dataclass(frozen=True)
class Workload:
    """One case. `build` makes the module from the sizes and `shapes` says what it is called with; `necessary` gives the
    bytes and the operations that no implementation can avoid, for the floor."""

    name: str
    suite: str  # "programs", "attention" or "layers"
    sizes: Sizes
    reduced: Sizes
    build: Callable[[Sizes], nn.Module]
    shapes: Callable[[Sizes], Shapes]
    necessary: Callable[[Sizes], tuple[float, float]]
    positive: tuple[int, ...] = ()  # which inputs are positive
    rotary: bool = False  # whether the last two inputs are cosines and sines of the same angles
    batched: bool = False  # whether positions along the first dimension of inputs and outputs are each by themselves

    def make(
        self, device: str | torch.device = "cpu", dtype: torch.dtype = torch.float16, small: bool = False, seed: int = 0
    ) -> tuple[nn.Module, tuple[Tensor, ...]]:
        """The module in evaluation mode and its inputs: the same values for one seed on every device."""
        sizes = self.reduced if small else self.sizes
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            module = self.build(sizes)
            inputs = [torch.randn(shape) for shape in self.shapes(sizes)]
        for i in self.positive:
            inputs[i] = inputs[i].abs() + 0.5
        if self.rotary:
            angles = 3 * inputs[-2]
            inputs[-2:] = [angles.cos(), angles.sin()]
        module = module.to(device, dtype).eval()
        for part in module.modules():
            if isinstance(part, HyperConnection):
                part.float()
        return module, tuple(x.to(device, dtype) for x in inputs)

    def floor_us(self, bandwidth: float = 4.45e12, flops: float = 790e12) -> float:
        """Microseconds below which the full size cannot be, at so many bytes and operations a second (an H200)."""
        size, operations = self.necessary(self.sizes)
        return max(size / bandwidth, operations / flops) * 1e6


def matmul_cost(b: int, *weights: tuple[int, int]) -> tuple[float, float]:
    """Bytes of float16 matrices that are read once, with their inputs and outputs, and operations for b rows."""
    size = sum(k * n for k, n in weights) + b * (weights[0][0] + weights[-1][1])
    return 2.0 * size, 2.0 * b * sum(k * n for k, n in weights)


def cache_cost(b: int, heads: int, positions: int, key: int, value: int) -> float:
    return 2.0 * b * heads * positions * (key + value)


def programs(b: int) -> list[Workload]:
    def case(name: str, sizes: Sizes, reduced: Sizes, build, necessary) -> Workload:
        sizes, reduced = {"b": b, **sizes}, {"b": min(b, 3), **reduced}
        return Workload(f"{name}/B{b}", "programs", sizes, reduced, build, shapes, necessary)

    def shapes(s: Sizes) -> Shapes:
        """x[B, k], or two tensors of 8 B rows where there is no matrix."""
        return [(s["b"], s["k"])] if "k" in s else [(8 * s["b"], s["n"])] * 2

    kn, kf, small_kn, small_kf = {"k": 4096, "n": 4096}, {"k": 4096, "f": 11008}, {"k": 64, "n": 96}, {"k": 64, "f": 96}
    return [
        case(
            "rmsnorm_linear",
            kn,
            small_kn,
            lambda s: RmsnormLinear(s["k"], s["n"]),
            lambda s: matmul_cost(s["b"], (s["k"], s["n"])),
        ),
        case(
            "rmsnorm_mlp",
            kf,
            small_kf,
            lambda s: RmsnormMlp(s["k"], s["f"]),
            lambda s: matmul_cost(s["b"], (s["k"], s["f"]), (s["k"], s["f"])),
        ),
        case(
            "rmsnorm_swiglu",
            kf,
            small_kf,
            lambda s: RmsnormSwiglu(s["k"], s["f"]),
            lambda s: matmul_cost(s["b"], (s["k"], s["f"]), (s["k"], s["f"]), (s["f"], s["k"])),
        ),
        case(
            "layernorm_gemm",
            {"k": 1024, "n": 4096},
            small_kn,
            lambda s: LayernormGemm(s["k"], s["n"]),
            lambda s: matmul_cost(s["b"], (s["k"], s["n"])),
        ),
        case(
            "lora",
            {**kn, "r": 16},
            {**small_kn, "r": 4},
            lambda s: Lora(s["k"], s["n"], s["r"]),
            lambda s: matmul_cost(s["b"], (s["k"], s["r"]), (s["r"], s["n"]), (s["k"], s["n"])),
        ),
        case(
            "gated_mlp",
            kn,
            small_kn,
            lambda s: GatedMlp(s["k"], s["n"]),
            lambda s: matmul_cost(s["b"], (s["k"], s["n"]), (s["k"], s["n"])),
        ),
        case(
            "ngpt",
            {"n": 4096},
            {"n": 64},
            lambda s: Ngpt(s["n"]),
            lambda s: (2.0 * 3 * 8 * s["b"] * s["n"], 10.0 * 8 * s["b"] * s["n"]),
        ),
    ]


def attentions(b: int) -> list[Workload]:
    sizes = {"b": b, "h": 32, "s": 4096, "d": 128}
    reduced = {"b": min(b, 2), "h": 2, "s": 96, "d": 16}

    def cache(s: Sizes) -> tuple[int, ...]:
        return (s["b"], s["h"], s["s"], s["d"])

    def decode_cost(s: Sizes) -> tuple[float, float]:
        return cache_cost(s["b"], s["h"], s["s"], s["d"], s["d"]), 4.0 * s["b"] * s["h"] * s["s"] * s["d"]

    def prefill_cost(s: Sizes) -> tuple[float, float]:
        size, operations = decode_cost(s)
        return 2 * size, operations * s["s"] / 2  # half of the scores are masked

    return [
        Workload(
            f"mha_decode/B{b}",
            "attention",
            sizes,
            reduced,
            lambda s: MhaDecode(),
            lambda s: [(s["b"], s["h"], 1, s["d"]), cache(s), cache(s)],
            decode_cost,
            batched=True,
        ),
        Workload(
            f"mha_prefill/B{b}",
            "attention",
            sizes,
            reduced,
            lambda s: MhaPrefill(),
            lambda s: [cache(s)] * 3,
            prefill_cost,
            batched=True,
        ),
    ]


def layers() -> list[Workload]:
    return [
        Workload(
            "qknorm_mla",
            "layers",
            {"b": 1, "w": 4096, "s": 16384, "h": 32, "latent": 512},
            {"b": 1, "w": 64, "s": 96, "h": 4, "latent": 24},
            lambda s: QknormMla(s["w"], s["h"], s["latent"]),
            lambda s: [(s["b"], 1, s["w"]), (s["b"], s["s"], s["latent"]), (s["b"], s["h"], s["s"])],
            lambda s: (
                2.0 * (2 * s["w"] ** 2 + 2 * s["latent"] * s["w"] + s["b"] * s["s"] * (s["latent"] + s["h"])),
                4.0 * s["b"] * s["h"] * s["s"] * s["latent"],
            ),
            positive=(2,),
        ),
        Workload(
            "mhc",
            "layers",
            {"b": 16, "w": 512, "s": 1024, "streams": 4, "h": 8, "ff": 1536},
            {"b": 2, "w": 32, "s": 48, "streams": 4, "h": 4, "ff": 40},
            lambda s: Mhc(s["w"], s["streams"], s["h"], s["ff"]),
            lambda s: [(s["b"], s["streams"], s["w"])] + [(s["b"], s["h"], s["s"], s["w"] // s["h"])] * 2,
            lambda s: (
                cache_cost(s["b"], s["h"], s["s"], s["w"] // s["h"], s["w"] // s["h"])
                + 2.0 * (2 * s["w"] ** 2 + 3 * s["w"] * s["ff"])
                + 8.0 * s["streams"] ** 2 * (s["streams"] + 2) * s["w"],
                4.0 * s["b"] * s["w"] * (s["s"] + s["w"] + 2 * s["ff"]),
            ),
        ),
        Workload(
            "swa_gqa",
            "layers",
            {"b": 1, "w": 4096, "s": 16384, "h": 32, "kv": 8, "window": 4096},
            {"b": 1, "w": 64, "s": 96, "h": 4, "kv": 2, "window": 32},
            lambda s: SwaGqa(s["w"], s["h"], s["window"]),
            lambda s: [(s["b"], 1, s["w"])] + [(s["b"], s["kv"], s["s"], s["w"] // s["h"])] * 2,
            lambda s: (
                cache_cost(s["b"], s["kv"], s["window"], s["w"] // s["h"], s["w"] // s["h"]) + 4.0 * s["w"] ** 2,
                4.0 * s["b"] * s["w"] * (s["window"] + s["w"]),
            ),
        ),
        Workload(
            "attn_sinks",
            "layers",
            {"b": 1, "w": 1024, "s": 32768, "h": 16, "window": 4096, "sinks": 4},
            {"b": 1, "w": 64, "s": 96, "h": 4, "window": 32, "sinks": 4},
            lambda s: AttnSinks(s["w"], s["h"], s["window"], s["sinks"]),
            lambda s: [(s["b"], 1, s["w"])] + [(s["b"], s["h"], s["s"], s["w"] // s["h"])] * 2,
            lambda s: (
                4.0 * s["w"] * (s["b"] * (s["window"] + s["sinks"]) + s["w"]),
                4.0 * s["b"] * s["w"] * (s["window"] + s["sinks"] + s["w"]),
            ),
        ),
        Workload(
            "diff_attn",
            "layers",
            {"b": 1, "w": 1024, "s": 32768, "h": 8},
            {"b": 1, "w": 64, "s": 96, "h": 2},
            lambda s: DiffAttn(s["w"], s["h"]),
            lambda s: [
                (s["b"], 1, s["w"]),
                (s["b"], s["h"], 2, s["s"], s["w"] // s["h"] // 2),
                (s["b"], s["h"], s["s"], s["w"] // s["h"]),
            ],
            lambda s: (
                4.0 * s["w"] * (s["b"] * s["s"] + s["w"]),
                6.0 * s["b"] * s["w"] * s["s"] + 4.0 * s["b"] * s["w"] ** 2,
            ),
        ),
    ]


HAS_TRANSFORMERS = importlib.util.find_spec("transformers") is not None


def transformers_layers() -> list[Workload]:
    """Decoder layers of models, at the widths that they are published with (DiffLlama: those of its configuration's
    defaults). Of GPT-OSS a layer that sees the whole past, of DeepSeek-V3 one without experts, which its first three
    are. The cache holds s - 1 tokens."""

    def grouped(s: Sizes) -> Shapes:
        """Keys and values of key heads."""
        cache = (s["b"], s["kv"], s["s"] - 1, s["d"])
        return [(s["b"], 1, s["w"]), cache, cache, *[(1, 1, s.get("rotary", s["d"]))] * 2]

    def latent(s: Sizes) -> Shapes:
        """Latents and rotary keys, one head of each."""
        past = (s["b"], 1, s["s"] - 1)
        return [(s["b"], 1, s["w"]), (*past, s["latent"]), (*past, s["rotary"]), *[(1, 1, s["rotary"])] * 2]

    def common(s: Sizes) -> dict[str, Any]:
        return {
            "hidden_size": s["w"],
            "intermediate_size": s["ff"],
            "num_attention_heads": s["h"],
            "num_key_value_heads": s.get("kv", s["h"]),
            "num_hidden_layers": 2,
        }

    def grouped_cost(s: Sizes, experts: int = 1) -> tuple[float, float]:
        """Every weight once (of experts, those of one token) and the cache."""
        matrices = 2 * s["w"] * s["d"] * (s["h"] + s["kv"]) + experts * 3 * s["w"] * s["ff"]
        size = 2.0 * matrices + cache_cost(s["b"], s["kv"], s["s"], s["d"], s["d"])
        return size, s["b"] * (2.0 * matrices + 4.0 * s["h"] * s["s"] * s["d"])

    def latent_cost(s: Sizes) -> tuple[float, float]:
        """Attention over the latents themselves."""
        q, kv = s["w"] + s["h"] * (s["nope"] + s["rotary"]), s["h"] * (s["nope"] + s["v"])
        matrices = q * s["q"] + s["w"] * (s["latent"] + s["rotary"]) + kv * s["latent"]
        matrices += s["h"] * s["v"] * s["w"] + 3 * s["w"] * s["ff"]
        size = 2.0 * matrices + cache_cost(s["b"], 1, s["s"], s["latent"], s["rotary"])
        return size, s["b"] * (2.0 * matrices + 2.0 * s["h"] * s["s"] * (2 * s["latent"] + s["rotary"]))

    def case(  # noqa: PLR0913, PLR0917
        model: str, name: str, sizes: Sizes, reduced: Sizes, settings: Callable[[Sizes], dict[str, Any]], index: int = 0
    ) -> Workload:
        return Workload(
            f"{model}_layer",
            "layers",
            {"b": 1, "s": 16384, **sizes},
            {"b": 1, "s": 96, **reduced},
            lambda s: DecoderLayer(model, name, index, {**common(s), **settings(s)}),
            latent if "latent" in sizes else grouped,
            latent_cost if "latent" in sizes else lambda s: grouped_cost(s, s.get("active", 1)),
            rotary=True,
        )

    small = {"w": 64, "ff": 96, "h": 4, "kv": 2, "d": 16}
    return [
        case(
            "llama",
            "Llama",
            {"w": 4096, "ff": 14336, "h": 32, "kv": 8, "d": 128},  # Llama 3 8B
            small,
            lambda s: {"head_dim": s["d"], "rms_norm_eps": 1e-5},
        ),
        case(
            "qwen3",
            "Qwen3",
            {"w": 4096, "ff": 12288, "h": 32, "kv": 8, "d": 128},  # Qwen3 8B
            small,
            lambda s: {"head_dim": s["d"], "rms_norm_eps": 1e-6},
        ),
        case(
            "gpt_oss",
            "GptOss",
            {"w": 2880, "ff": 2880, "h": 64, "kv": 8, "d": 64, "rotary": 32, "experts": 32, "active": 4},  # 20B
            {**small, "rotary": 8, "experts": 8, "active": 2},
            lambda s: {
                "head_dim": s["d"],
                "num_local_experts": s["experts"],
                "num_experts_per_tok": s["active"],
            },
            index=1,  # layers with odd numbers have no sliding window
        ),
        case(
            "deepseek_v3",
            "DeepseekV3",
            {"w": 7168, "ff": 18432, "h": 128, "q": 1536, "latent": 512, "nope": 128, "rotary": 64, "v": 128},
            {"w": 64, "ff": 96, "h": 4, "q": 32, "latent": 24, "nope": 16, "rotary": 8, "v": 16},
            lambda s: {
                "q_lora_rank": s["q"],
                "kv_lora_rank": s["latent"],
                "qk_nope_head_dim": s["nope"],
                "qk_rope_head_dim": s["rotary"],
                "v_head_dim": s["v"],
            },
        ),
        case(
            "diffllama",
            "DiffLlama",
            {"w": 2048, "ff": 8192, "h": 32, "kv": 32, "d": 64},
            {**small, "kv": 4},
            lambda s: {"head_dim": s["d"]},
        ),
    ]


WORKLOADS: dict[str, Workload] = {
    case.name: case
    for case in [
        *(case for b in BATCHES for case in programs(b)),
        *(case for b in BATCHES for case in attentions(b)),
        *layers(),
        *(transformers_layers() if HAS_TRANSFORMERS else []),
    ]
}


def workload(name: str) -> Workload:
    """The case of this name, "rmsnorm_mlp/B8" or "mhc"."""
    return WORKLOADS[name]
