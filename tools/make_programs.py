"""Writes the measured programs, tests/programs/NAME_bB.ef: plain tensor code, as a PyTorch user would write it.

Batch 1 has unit dimensions (a dimension of extent 1 is written 1 and has no name). The text is canonical: parsing
and printing a file gives the same bytes.
"""

import math
from pathlib import Path

BATCHES = (1, 8, 16)
SCALE = 1 / math.sqrt(128)

RMS = """\
ms = div(reduce[sum, -1](mul(x, x)), 4096)
xn = mul(mul(x, rsqrt(add(ms, 1e-06))), g)
"""

SOFTMAX = """\
mx = reduce[max, -1](sc)
p = exp(sub(sc, mx))
l = reduce[sum, -1](p)
output o = matmul(div(p, l), v)
"""

# name: (what it is, dimensions, inputs, statements); "b" and "m" are set from the batch.
PROGRAMS = {
    "rmsnorm_linear": (
        "RMSNorm, then a projection: rms(x; g) W.",
        {"m": 1, "k": 4096, "n": 4096},
        ["x: m, k", "g: k", "W: k, n"],
        RMS + "output y = matmul(xn, W)\n",
    ),
    "rmsnorm_mlp": (
        "RMSNorm, then a gated projection: (rms(x; g) W1) * (rms(x; g) W3).",
        {"m": 1, "k": 4096, "n": 11008},
        ["x: m, k", "g: k", "W1: k, n", "W3: k, n"],
        RMS + "output y = mul(matmul(xn, W1), matmul(xn, W3))\n",
    ),
    "rmsnorm_swiglu": (
        "RMSNorm, then a SwiGLU MLP: (silu(n W1) * (n W3)) W2 with n = rms(x; g).",
        {"m": 1, "k": 4096, "f": 11008, "n": 4096},
        ["x: m, k", "g: k", "W1: k, f", "W3: k, f", "W2: f, n"],
        RMS + "u = matmul(xn, W1)\noutput y = matmul(mul(mul(u, sigmoid(u)), matmul(xn, W3)), W2)\n",
    ),
    "layernorm_gemm": (
        "Layer norm, then a projection with bias: ln(x; g, b) W + c.",
        {"m": 1, "k": 1024, "n": 4096},
        ["x: m, k", "g: k", "b: k", "W: k, n", "c: n"],
        "mean = div(reduce[sum, -1](x), 1024)\n"
        "dev = sub(x, mean)\n"
        "var = div(reduce[sum, -1](mul(dev, dev)), 1024)\n"
        "xn = add(mul(mul(dev, rsqrt(add(var, 1e-05))), g), b)\n"
        "output y = add(matmul(xn, W), c)\n",
    ),
    "lora": (
        "A projection with a low-rank update: x W + (x A) Bm.",
        {"m": 1, "k": 4096, "n": 4096, "r": 16},
        ["x: m, k", "W: k, n", "A: k, r", "Bm: r, n"],
        "output y = add(matmul(x, W), matmul(matmul(x, A), Bm))\n",
    ),
    "gated_mlp": (
        "A gated projection: silu(x W1) * (x W2).",
        {"m": 1, "k": 4096, "n": 4096},
        ["x: m, k", "W1: k, n", "W2: k, n"],
        "u = matmul(x, W1)\noutput y = mul(mul(u, sigmoid(u)), matmul(x, W2))\n",
    ),
    "ngpt": (
        "The residual update of nGPT: l2n(h + alpha * (l2n(o) - h)) with l2n(v) = v / ||v||.",
        {"m": 8, "n": 4096},
        ["h: m, n", "o: m, n", "alpha: n"],
        "on = div(o, sqrt(reduce[sum, -1](mul(o, o))))\n"
        "z = add(h, mul(alpha, sub(on, h)))\n"
        "output y = div(z, sqrt(reduce[sum, -1](mul(z, z))))\n",
    ),
    "mha_decode": (
        "Attention of one query token over a cache: 32 heads of 128, 4096 keys.",
        {"b": 1, "h": 32, "d": 128, "s": 4096, "e": 128},
        ["q: b, h, 1, d", "k: b, h, s, d", "v: b, h, s, e"],
        f"sc = mul(matmul(q, transpose[0, 1, 3, 2](k)), {SCALE!r})\n" + SOFTMAX,
    ),
    "mha_prefill": (
        "Causal attention: 32 heads of 128, 4096 queries and keys.",
        {"b": 1, "h": 32, "q": 4096, "d": 128, "s": 4096, "e": 128},
        ["q: b, h, q, d", "k: b, h, s, d", "v: b, h, s, e"],
        f"raw = mul(matmul(q, transpose[0, 1, 3, 2](k)), {SCALE!r})\n"
        "causal = ge(reshape[q, 1](iota[q]), iota[s])\n"
        "sc = select(causal, raw, -inf)\n" + SOFTMAX,
    ),
}


def text(name: str, batch: int) -> str:
    comment, dims, inputs, statements = PROGRAMS[name]
    extents = {dim: extent * batch if dim in "mb" else extent for dim, extent in dims.items()}
    units = {dim for dim, extent in extents.items() if extent == 1}
    lines = [f"# {comment}", f"program {name}_b{batch}"]
    lines += [f"dim {dim} = {extent}" for dim, extent in extents.items() if dim not in units]
    for entry in inputs:
        variable, shape = entry.split(": ")
        shape = ", ".join("1" if dim in units else dim for dim in shape.split(", "))
        lines.append(f"input {variable}: f16[{shape}]")
    return "\n".join(lines) + "\n" + statements


def main() -> None:
    folder = Path(__file__).resolve().parent.parent / "tests" / "programs"
    folder.mkdir(parents=True, exist_ok=True)
    for name in PROGRAMS:
        for batch in BATCHES:
            (folder / f"{name}_b{batch}.ef").write_text(text(name, batch), encoding="utf-8")


if __name__ == "__main__":
    main()
