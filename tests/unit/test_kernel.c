/* Kernel graphs and generated C (paper, section 6.1): every program and every tiled implementation in tests/programs
 * and tests/derivations computes in generated code what the float64 evaluator says, at small odd sizes, with tiles from
 * 1 to more than the whole. All programs go into one C file, so that the compiler runs once. */
#include <dirent.h>
#include <inttypes.h>
#include <math.h>
#include <time.h>

#include "batch.h"
#include "codegen/oracle.h"
#include "codegen/triton.h"
#include "ir/resize.h"
#include "kernel/lower.h"
#include "target/room.h"
#include "tune/families.h"

#define COUNT(table) (sizeof(table) / sizeof *(table))
#define MAX_CASES 600

/* ---- programs for what the files do not have ---- */

#define ROLL "repaired(max, product(sum, sum), mul(c, exp(sub(s, t))), mul(c, exp(sub(s, t))))"

#define NORMAL_ROLL "repaired(max, repaired(sum, sum, mul(c, div(s, t))), mul(c, exp(sub(s, t))), c)"

#define SPLIT_MASKED(name, mask)                                                                                     \
    "program " name "\ndim h = 2\ndim d = 4\ndim s = 40\ndim e = 3\n"                                                \
    "input q: f32[h, 1, d]\ninput k: f32[h, s, d]\ninput v: f32[h, s, e]\ninput bias: f32[h, 1, 1]\n"                \
    "at = view[h.0, s.0, s.1](iota[s])\n"                                                                            \
    "A = select(" mask ", add(view[h.0, s.0, s.1](bias), tile_matmul(view[h.0, s.0, s.1](q), "                       \
    "transpose[0, 2, 1](view[h.0, s.0, s.1](k)))), -inf)\n"                                                          \
    "mt = reduce[max, -1](A)\n"                                                                                      \
    "pt = exp(sub(A, mt))\n"                                                                                         \
    "roll = reduce[" ROLL ", s.1](tuple(mt, tuple(reduce[sum, -1](pt), tile_matmul(pt, view[h.0, s.0, s.1](v)))))\n" \
    "parts = combination[h.0](collection[s.0](roll))\n"                                                              \
    "whole = reduce[" ROLL ", first](view[h.0](parts))\n"                                                            \
    "output m = combination[h.0](get[0](whole))\n"                                                                   \
    "output l = combination[h.0](get[0](get[1](whole)))\n"                                                           \
    "output o = combination[h.0](get[1](get[1](whole)))\n",

/* Streams that are mixed, and an update of them; then, of whole rows of the result, a norm and a product with few
 * columns, which blocks have `blocks` of, and the result itself. */
#define UPDATE(name, columns, blocks)                                                                               \
    "program " name "\ndim b = 6\ndim n = 3\ndim c = 18\ndim e = " columns "\n"                                     \
    "input x: f16[b, n, c]\ninput r: f32[b, n, n']\ninput m: f32[b, n]\ninput y: f16[b, c]\ninput w: f32[n*c, e]\n" \
    "mix = tile_matmul(view[b.0, n.0, c.0](r), cast[f32](view[b.0, n.0, c.0](reshape[b, n', c](x))))\n"             \
    "more = mul(view[b.0, n.0, c.0](reshape[b, n, 1](m)), cast[f32](view[b.0, n.0, c.0](reshape[b, 1, c](y))))\n"   \
    "u = combination[b.0, n.0, c.0](add(mix, more))\n"                                                              \
    "t = view[b.0, n.1, " blocks "](reshape[b, n*c](u))\n"                                                          \
    "s = reduce[product(sum, sum), n.1](tuple(reduce[sum, -1](mul(t, t)), tile_matmul(t, view[b.0, n.1, " blocks    \
    "](w))))\n"                                                                                                     \
    "output o = combination[b.0, " blocks "](mul(get[1](s), rsqrt(add(1, get[0](s)))))\n"                           \
    "output z = u\n"

/* Two online reductions over one value, each with a mask or without. */
#define TWO_MAPS(name, one, other)                                                                 \
    "program " name "\ndim h = 2\ndim d = 4\ndim s = 23\ndim e = 3\n"                              \
    "input q: f32[h, 5, d]\ninput p: f32[h, 5, d]\ninput k: f32[h, s, d]\ninput v: f32[h, s, e]\n" \
    "kt = transpose[0, 2, 1](view[h.0, s.1](k))\n"                                                 \
    "vt = view[h.0, s.1](v)\n"                                                                     \
    "at = view[h.0, s.1](iota[s])\n"                                                               \
    "raw1 = tile_matmul(view[h.0, s.1](q), kt)\n"                                                  \
    "raw2 = tile_matmul(view[h.0, s.1](p), kt)\n"                                                  \
    "A1 = " one "\nA2 = " other "\n"                                                               \
    "m1 = reduce[max, -1](A1)\nm2 = reduce[max, -1](A2)\n"                                         \
    "p1 = exp(sub(A1, m1))\np2 = exp(sub(A2, m2))\n"                                               \
    "r1 = reduce[" ROLL ", s.1](tuple(m1, tuple(reduce[sum, -1](p1), tile_matmul(p1, vt))))\n"     \
    "r2 = reduce[" ROLL ", s.1](tuple(m2, tuple(reduce[sum, -1](p2), tile_matmul(p2, vt))))\n"     \
    "output a = combination[h.0](div(get[1](get[1](r1)), get[0](get[1](r1))))\n"                   \
    "output b = combination[h.0](div(get[1](get[1](r2)), get[0](get[1](r2))))\n",

/* Layers that are equal but for the names of their weights and dimensions. */
#define LAYERS                                                     \
    "program layers\n"                                             \
    "dim m = 5\ndim a = 16\ndim b = 16\ndim c = 16\ndim d = 16\n"  \
    "input x: f32[m, a]\n"                                         \
    "input U: f32[a, b]\ninput V: f32[b, c]\ninput W: f32[c, d]\n" \
    "input u: f32[b]\ninput v: f32[c]\ninput w: f32[d]\n"          \
    "first = tanh(add(matmul(x, U), broadcast[m, b](u)))\n"        \
    "second = tanh(add(matmul(first, V), broadcast[m, c](v)))\n"   \
    "output y = tanh(add(matmul(second, W), broadcast[m, d](w)))\n"

/* Layers of other widths each: operators of every kind, so that there are many functions. */
#define WIDE_LAYER(from, to)                                                                                   \
    "input W" #to ": f32[d" #to ", d" #from "]\ninput b" #to ": f32[d" #to "]\n"                               \
    "a" #to " = add(matmul(x" #from ", transpose[1, 0](W" #to ")), b" #to ")\n"                                \
    "n" #to " = div(reduce[sum, -1](a" #to "), 1" #to ")\n"                                                    \
    "s" #to " = tanh(div(a" #to ", add(n" #to ", add(1, reduce[max, -1](abs(a" #to "))))))\n"                  \
    "t" #to " = concat[-1](slice[-1, 1:3](neg(s" #to ")), slice[-1, 0:1](s" #to "))\n"                         \
    "m" #to " = select(lt(mod(iota[d" #to "], 3), 2), s" #to ", 0.5)\n"                                        \
    "x" #to " = transpose[1, 0](reshape[d" #to ", m](mul(m" #to ", add(1, reduce[sum, -1](mul(t" #to ", t" #to \
    "))))))\n"

#define WIDE_LAYERS                                                                                               \
    "program wide_layers\n"                                                                                       \
    "dim m = 5\ndim d0 = 16\ndim d1 = 7\ndim d2 = 19\ndim d3 = 33\ndim d4 = 4\ndim d5 = 70\ndim d6 = 11\n"        \
    "input x0: f32[m, d0]\n" WIDE_LAYER(0, 1) WIDE_LAYER(1, 2) WIDE_LAYER(2, 3) WIDE_LAYER(3, 4) WIDE_LAYER(4, 5) \
        WIDE_LAYER(5, 6) "output y = x6\n"

static const char *const own[] = {
    LAYERS,
    WIDE_LAYERS,
    /* Rows that a mask empties altogether: the maximum stays -inf, and what goes with it is NaN. */
    "program masked_rows\n"
    "dim q = 5\ndim d = 4\ndim s = 7\ndim e = 3\n"
    "input q: f16[q, d]\ninput k: f16[s, d]\ninput v: f16[s, e]\ninput mask: f32[q, s]\n"
    "st = add(tile_matmul(view[q.0, s.1](q), transpose[1, 0](view[q.0, s.1](k))), view[q.0, s.1](mask))\n"
    "mt = reduce[max, -1](st)\n"
    "pt = exp(sub(st, mt))\n"
    "roll = reduce[" ROLL ", s.1](tuple(mt, tuple(reduce[sum, -1](pt), tile_matmul(pt, view[q.0, s.1](v)))))\n"
    "output m = combination[q.0](get[0](roll))\n"
    "output l = combination[q.0](get[0](get[1](roll)))\n"
    "output o = combination[q.0](get[1](get[1](roll)))\n",
    /* The same untiled: three kernels and more, and NaN where a row is empty. */
    "program masked_plain\n"
    "dim q = 5\ndim d = 4\ndim s = 7\ndim e = 3\n"
    "input q: bf16[q, d]\ninput k: bf16[s, d]\ninput v: bf16[s, e]\ninput mask: f32[q, s]\n"
    "st = add(matmul(q, transpose[1, 0](k)), mask)\n"
    "p = exp(sub(st, reduce[max, -1](st)))\n"
    "output o = matmul(div(p, reduce[sum, -1](p)), v)\n",
    /* A boolean mask, split keys, and a tuple of stored partial results as outputs. */
    "program split_bool\n"
    "dim h = 2\ndim d = 4\ndim s = 9\ndim e = 3\n"
    "input q: f32[h, 1, d]\ninput k: f32[h, s, d]\ninput v: f32[h, s, e]\ninput mask: bool[h, 1, s]\n"
    "A = select(view[h.0, s.0, s.1](mask), tile_matmul(view[h.0, s.0, s.1](q), "
    "transpose[0, 2, 1](view[h.0, s.0, s.1](k))), -inf)\n"
    "mt = reduce[max, -1](A)\n"
    "pt = exp(sub(A, mt))\n"
    "roll = reduce[" ROLL ", s.1](tuple(mt, tuple(reduce[sum, -1](pt), tile_matmul(pt, view[h.0, s.0, s.1](v)))))\n"
    "parts = combination[h.0](collection[s.0](roll))\n"
    "whole = reduce[" ROLL ", first](view[h.0](parts))\n"
    "output state = combination[h.0](whole)\n",
    /* Slices, concatenation, splitting and merging of dimensions (rotary embedding). */
    "program rotary\n"
    "dim m = 5\ndim h = 3\ndim d = 6\n"
    "input x: f16[m, h*d]\ninput c: f32[m, 1, d]\ninput n: f32[m, 1, d]\n"
    "y = reshape[m, h, d](x)\n"
    "low = slice[-1, 0:3](y)\n"
    "high = slice[-1, 3:6](y)\n"
    "turned = concat[-1](neg(high), low)\n"
    "output o = add(mul(y, c), mul(reshape[m, h, d](turned), n))\n",
    /* Integers, logic, positions, all kinds of pointwise operators. */
    "program mixture\n"
    "dim m = 5\ndim n = 7\n"
    "input a: i64[m, n]\ninput b: i32[n]\ninput p: bool[m, n]\ninput x: f64[m, n]\ninput y: bf16[m, 1]\n"
    "i = iota[n]\n"
    "output r = select(and(p, or(lt(a, b), not(eq(mod(i, 3), 1)))), cast[f32](add(mul(a, 2), b)), cast[f32](max(a, "
    "i)))\n"
    "output s = add(tanh(mul(sigmoid(x), y)), mul(erf(x), sin(cos(floor(x)))))\n"
    "output t = add(log(add(abs(x), 1)), pow(abs(y), 0.5))\n"
    "output u = sub(min(cast[f32](b), log2(add(exp2(y), 1))), recip(add(sqrt(abs(y)), 1)))\n"
    "output v = cast[i64](mul(x, 3))\n"
    "output w = reduce[min, -2](a)\n",
    /* Quotients and remainders, by 0 (i, and elements of a) and by negative numbers too. */
    "program divisions\n"
    "dim m = 5\ndim n = 7\n"
    "input a: i64[m, n]\ninput b: i32[n]\ninput x: f32[m, n]\ninput y: f32[m, n]\ninput z: f64[m, n]\n"
    "i = iota[n]\n"
    "c = sub(a, 4)\n"
    "output o = add(mod(c, i), floordiv(c, i))\n"
    "output p = add(mod(mul(c, 5), sub(b, 3)), floordiv(mul(c, 5), sub(b, 3)))\n"
    "output q = add(mod(c, -3), floordiv(c, -3))\n"
    "output r = add(floordiv(17, c), mod(17, c))\n"
    "output s = floordiv(mul(x, 10), 0.7)\n"
    "output t = mod(mul(x, 10), y)\n"
    "output u = add(mod(z, 0.3), floordiv(z, -0.3))\n",
    /* Reductions along every dimension, with every base reducer. */
    "program reductions\n"
    "dim m = 5\ndim n = 7\ndim k = 3\n"
    "input x: f32[m, n, k]\n"
    "output a = reduce[prod, -1](x)\n"
    "output b = reduce[min, -2](x)\n"
    "output c = reduce[max, -3](x)\n"
    "output d = reduce[sum, -1](reduce[sum, -2](reduce[sum, -3](x)))\n"
    "output e = combination[m.0](reduce[sum, -2](view[m.0](x)))\n",
    /* Outputs that are only moved, an input among them, and one value twice. */
    "program moved\n"
    "dim m = 5\ndim n = 7\n"
    "input x: f16[m, n]\ninput y: f32[m, n]\n"
    "z = add(x, y)\n"
    "output a = x\n"
    "output b = transpose[1, 0](z)\n"
    "output c = z\n"
    "output d = z\n"
    "output e = reshape[n, m](z)\n"
    "output f = broadcast[m, n](iota[n])\n",
    /* An outer axis reduced inside the kernel, the inner one in its blocks. */
    "program two_levels\n"
    "dim m = 5\ndim k = 23\ndim n = 6\n"
    "input x: f16[m, k]\ninput w: f16[k, n]\n"
    "part = reduce[sum, k.1](tile_matmul(view[m.0, n.0, k.0, k.1](x), view[m.0, n.0, k.0, k.1](w)))\n"
    "output y = combination[m.0, n.0](reduce[sum, k.0](part))\n",
    /* The same with the outer partial results stored, from inside the block: a kernel boundary that splits no axis. */
    "program stored_inside\n"
    "dim m = 5\ndim k = 23\ndim n = 6\n"
    "input x: f16[m, k]\ninput w: f16[k, n]\n"
    "part = reduce[sum, k.1](tile_matmul(view[m.0, n.0, k.0, k.1](x), view[m.0, n.0, k.0, k.1](w)))\n"
    "output y = combination[m.0, n.0](exp(neg(abs(reduce[sum, first](collection[k.0](part))))))\n",
    /* Attention that is normalised as it goes: a repaired reducer inside of a repaired one. */
    "program nested_repair\n"
    "dim q = 5\ndim d = 4\ndim s = 17\ndim e = 3\n"
    "input q: f32[q, d]\ninput k: f32[s, d]\ninput v: f32[s, e]\n"
    "st = tile_matmul(view[q.0, s.1](q), transpose[1, 0](view[q.0, s.1](k)))\n"
    "mt = reduce[max, -1](st)\n"
    "pt = exp(sub(st, mt))\n"
    "lt = reduce[sum, -1](pt)\n"
    "ot = div(tile_matmul(pt, view[q.0, s.1](v)), lt)\n"
    "roll = reduce[repaired(max, repaired(sum, sum, mul(c, div(s, t))), mul(c, exp(sub(s, t))), c), s.1]"
    "(tuple(mt, tuple(lt, ot)))\n"
    "output o = combination[q.0](get[1](get[1](roll)))\n",
    /* The same with a mask, and with the parts stored: rows, and tiles of rows, that see nothing. */
    "program nested_masked\n"
    "dim q = 5\ndim d = 4\ndim s = 17\ndim e = 3\n"
    "input q: f32[q, d]\ninput k: f32[s, d]\ninput v: f32[s, e]\ninput mask: f32[q, s]\n"
    "st = add(tile_matmul(view[q.0, s.0, s.1](q), transpose[1, 0](view[q.0, s.0, s.1](k))), "
    "view[q.0, s.0, s.1](mask))\n"
    "mt = reduce[max, -1](st)\n"
    "pt = exp(sub(st, mt))\n"
    "lt = reduce[sum, -1](pt)\n"
    "ot = div(tile_matmul(pt, view[q.0, s.0, s.1](v)), lt)\n"
    "roll = reduce[" NORMAL_ROLL ", s.1](tuple(mt, tuple(lt, ot)))\n"
    "whole = reduce[" NORMAL_ROLL ", s.0](roll)\n"
    "stored = reduce[" NORMAL_ROLL ", first](view[q.0](combination[q.0](collection[s.0](roll))))\n"
    "output m = combination[q.0](get[0](whole))\n"
    "output l = combination[q.0](get[0](get[1](whole)))\n"
    "output o = combination[q.0](get[1](get[1](whole)))\n"
    "output p = combination[q.0](get[1](get[1](stored)))\n",
    /* Positions decide: the first rows see no key, others not those of some tiles, which are not visited. The reducer
     * is nested the other way: the weighted sum is repaired under both the maximum and the sum. */
    "program positions_masked\n"
    "dim q = 7\ndim s = 9\ndim e = 3\n"
    "input x: f32[q, s]\ninput v: f32[s, e]\n"
    "seen = gt(reshape[q, 1](iota[q]), add(iota[s], 2))\n"
    "st = select(view[q.0, s.1](seen), view[q.0, s.1](x), -inf)\n"
    "mt = reduce[max, -1](st)\n"
    "pt = exp(sub(st, mt))\n"
    "lt = reduce[sum, -1](pt)\n"
    "ot = tile_matmul(div(pt, lt), view[q.0, s.1](v))\n"
    "two = reduce[repaired(repaired(max, sum, mul(c, exp(sub(s, t)))), sum, mul(c, mul(exp(sub(s0, t0)), div(s1, "
    "t1)))), s.1](tuple(tuple(mt, lt), ot))\n"
    "one = reduce[" ROLL ", s.1](tuple(mt, tuple(lt, tile_matmul(pt, view[q.0, s.1](v)))))\n"
    "output l = combination[q.0](get[1](get[0](two)))\n"
    "output o = combination[q.0](get[1](two))\n"
    "output p = combination[q.0](get[1](get[1](one)))\n"
    "output n = combination[q.0](get[0](get[1](one)))\n",
    /* A mask on the weights as well: rows that see nothing are 0 where the mask says so, whatever their maximum is. */
    "program weights_masked\n"
    "dim q = 5\ndim s = 9\ndim e = 3\n"
    "input x: f32[q, s]\ninput v: f32[s, e]\ninput mask: bool[q, s]\n"
    "seen = view[q.0, s.1](mask)\n"
    "st = select(seen, view[q.0, s.1](x), -inf)\n"
    "mt = reduce[max, -1](st)\n"
    "pt = select(seen, exp(sub(st, mt)), 0)\n"
    "roll = reduce[" ROLL ", s.1](tuple(mt, tuple(reduce[sum, -1](pt), tile_matmul(pt, view[q.0, s.1](v)))))\n"
    "output l = combination[q.0](get[0](get[1](roll)))\n"
    "output o = combination[q.0](get[1](get[1](roll)))\n",
    /* Split keys of which the mask leaves the first and the last, or the last alone: other parts are not there. The
     * scores that it leaves may all be -inf. */
    SPLIT_MASKED("ends_seen", "or(lt(at, 3), ge(at, 35))")
        SPLIT_MASKED("end_seen", "and(ge(add(at, 1), 34), not(lt(at, 2)))")
    /* Kernels side by side that become one: without masks, with one, with the same, with different ones. */
    TWO_MAPS("maps", "raw1", "raw2") TWO_MAPS("maps_one_masked", "select(lt(at, 9), raw1, -inf)", "raw2")
        TWO_MAPS("maps_masked", "select(ge(at, 9), raw1, -inf)", "select(ge(at, 9), raw2, -inf)")
            TWO_MAPS("maps_masked_apart", "select(lt(at, 5), raw1, -inf)", "select(ge(at, 14), raw2, -inf)")
    /* A number that several kernels use, made of few. */
    "program few_numbers\n"
    "dim d = 23\ndim m = 5\ndim n = 7\n"
    "input a: f16[d]\ninput x: f32[m, n]\ninput y: f32[n]\n"
    "t = exp(neg(reshape[](reduce[sum, d.1](reduce[sum, -1](mul(view[d.1](a), view[d.1](a)))))))\n"
    "output u = mul(x, t)\n"
    "output v = add(y, t)\n",
    /* The same where each has another loop before: kernels whose loops pair with different ones. */
    "program sums_side_by_side\n"
    "dim m = 5\ndim k = 23\ndim n = 17\n"
    "input x: f32[m, k]\ninput y: f32[m, n]\ninput z: f32[m, n]\n"
    "sx = reduce[sum, k.1](reduce[sum, -1](view[m.0, k.1](x)))\n"
    "sy = reduce[sum, n.1](reduce[sum, -1](view[m.0, n.1](y)))\n"
    "ax = reduce[sum, n.1](reduce[sum, -1](mul(view[n.1](sx), view[m.0, n.1](z))))\n"
    "ay = reduce[max, k.1](reduce[max, -1](mul(view[k.1](sy), view[m.0, k.1](x))))\n"
    "output a = combination[m.0](ax)\n"
    "output b = combination[m.0](ay)\n",
    /* An update that is stored and whose rows are used at once, in another shape and whole. */
    UPDATE("update_with_norm", "5", "e.0"),
    /* Unused fields of a stored tuple, and a stored value that two kernels read. */
    "program unused_field\n"
    "dim m = 5\ndim n = 7\n"
    "input x: f32[m, n]\n"
    "both = combination[m.0](tuple(reduce[max, -1](view[m.0](x)), reduce[sum, -1](view[m.0](x))))\n"
    "sums = get[1](both)\n"
    "output a = combination[m.0, n.0](sub(view[m.0, n.0](x), view[m.0, n.0](sums)))\n"
    "output b = combination[m.0](exp(view[m.0](sums)))\n",
    /* A running norm that weights a sum: the producer of the repair is a sum. */
    "program running_norm\n"
    "dim m = 5\ndim k = 23\ndim n = 6\n"
    "input x: f16[m, k]\ninput w: f16[k, n]\n"
    "xt = view[m.0, k.1](x)\n"
    "g = reduce[sum, -1](mul(xt, xt))\n"
    "y = div(tile_matmul(xt, view[m.0, k.1](w)), g)\n"
    "roll = reduce[repaired(sum, sum, mul(c, div(s, t))), k.1](tuple(g, y))\n"
    "output o = combination[m.0](get[1](roll))\n",
    /* A product whose first operand is the same along what it contracts, with columns that lie together. */
    "program same_along_k\n"
    "dim m = 5\ndim k = 32\ndim n = 3\n"
    "input x: f32[m, 1]\ninput w: f32[k, n]\n"
    "output y = matmul(broadcast[m, k](x), w)\n"
    "output z = matmul(broadcast[m, k](x), mul(w, 2))\n",
    /* Sizes of 1 everywhere. */
    "program units\n"
    "dim d = 4\n"
    "input q: f32[1, 1, 1, d]\ninput k: f32[1, 1, 1, d]\ninput w: f32[d, 1]\n"
    "s = matmul(q, transpose[0, 1, 3, 2](k))\n"
    "output o = matmul(exp(sub(s, reduce[max, -1](s))), k)\n"
    "output p = matmul(reshape[1, d](q), w)\n",
};

/* ---- cases ---- */

typedef struct {
    ef_ctx *ctx;
    ef_program *program;
    ef_kgraph *graph;
    ef_schedule schedule;
    ef_oracle *oracle;
    unsigned number;
    char name[160];
} test_case;

static test_case cases[MAX_CASES];
static unsigned case_count;
static batch code;

/* Small extents, not multiples of tiles, that satisfy what the program says of them. */
static void shrink(const ef_program *program, ef_rng *rng)
{
    static const uint32_t extents[] = {2, 3, 3, 5, 5, 7, 17};
    ef_resizing *sizes = ef_resizing_new(ef_dag_ctx(program->dag));
    for (uint32_t i = 0; i < program->outputs; i++)
        ef_resizing_read(sizes, program->dag, &program->output[i].expr, 1);
    ef_resizing_draw(sizes, rng, extents, sizeof extents / sizeof *extents);
    ef_resizing_free(sizes);
}

static void add_case(ef_ctx *ctx, ef_program *program, const char *name, unsigned variant, bool resize)
{
    ef_diag diag = {0};
    ef_rng rng = {variant * 7919 + case_count};
    test_case *t = &cases[case_count];
    char oracle[32];
    assert_true(case_count < MAX_CASES);
    if (!program)
        fail_msg("%s cannot be read", name);
    if (resize)
        shrink(program, &rng);
    *t = (test_case){.ctx = ctx, .program = program, .graph = ef_kgraph_new(program, &diag)};
    snprintf(t->name, sizeof t->name, "%.120s, variant %u", name, variant);
    if (t->graph)
        t->oracle = ef_oracle_new(program, &diag);
    if (!t->oracle)
        fail_msg("%s: %s", t->name, diag.text);
    t->schedule = ef_schedule_default(t->graph, EF_BACKEND_C, BATCH_THREADS);
    batch_draw_tiles(&t->schedule, variant, &rng);
    t->number = batch_add(&code, t->graph, &t->schedule, t->name);
    snprintf(oracle, sizeof oracle, "oracle_%u", case_count++);
    if (!ef_oracle_print(t->oracle, oracle, &code.source, &diag))
        fail_msg("%s: %s", t->name, diag.text);
}

static void add_file(const char *path)
{
    for (unsigned variant = 0; variant < 3; variant++) {
        ef_ctx *ctx = ef_ctx_new();
        add_case(ctx, ef_program_read(ctx, path, NULL), path, variant, true);
    }
}

static bool wanted(const char *name)
{
    size_t length = strlen(name);
    return length > 3 && strcmp(name + length - 3, ".ef") == 0 && !strstr(name, "_b8.");
}

static void add_folder(const char *folder)
{
    char path[512];
    DIR *dir = opendir(folder);
    if (!dir) {
        fail_msg("%s cannot be read", folder);
        return;
    }
    for (struct dirent *entry = readdir(dir); entry; entry = readdir(dir)) {
        snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
        if (wanted(entry->d_name))
            add_file(path);
    }
    closedir(dir);
}

static void add_cases(void)
{
    add_folder("tests/derivations");
    add_folder("tests/programs");
    add_folder("tests/programs/variants");
    for (unsigned i = 0; i < COUNT(own); i++)
        for (unsigned variant = 0; variant < 4; variant++) {
            ef_ctx *ctx = ef_ctx_new();
            ef_diag diag = {0};
            ef_program *program = ef_program_parse(ctx, own[i], strlen(own[i]), "own", &diag);
            if (!program)
                fail_msg("%s", diag.text);
            add_case(ctx, program, program ? program->name : "", variant, false);
        }
}

static void free_cases(void)
{
    for (unsigned i = 0; i < case_count; i++) {
        ef_oracle_free(cases[i].oracle);
        ef_schedule_free(&cases[i].schedule);
        ef_kgraph_free(cases[i].graph);
        ef_program_free(cases[i].program);
        ef_ctx_free(cases[i].ctx);
    }
    batch_free(&code);
}

/* ---- generated code computes what the evaluator says ---- */

/* The error of a case, whose oracle is ready. */
static ef_verdict run_case(const test_case *t)
{
    ef_native native = batch_native(&code, t->number);
    ef_verdict v = ef_oracle_check(t->oracle, t->graph, &t->schedule, &native);
    free(native.work);
    return v;
}

static void prepare(const test_case *t, unsigned number)
{
    ef_diag diag = {0};
    char name[32];
    snprintf(name, sizeof name, "oracle_%u", number);
    if (!ef_oracle_prepare(t->oracle, code.library, name, number + 1, &diag))
        fail_msg("%s: %s", t->name, diag.text);
}

/* Where narrow temporaries leave the bound, wide ones must keep it. */
static void generated_code_agrees_with_the_evaluator(void **state)
{
    (void)state;
    unsigned again[MAX_CASES], retries = 0;
    add_cases();
    batch_compile(&code);
    for (unsigned i = 0; i < case_count; i++) {
        prepare(&cases[i], i);
        ef_verdict v = run_case(&cases[i]);
        if (!v.valid && ef_kgraph_widen(cases[i].graph))
            again[retries++] = i;
        else if (!v.valid)
            fail_msg("%s, %s inputs: relative L2 error %g, eager %g", cases[i].name, ef_draw_names[v.draw], v.error,
                     v.eager);
    }
    print_message("%u of %u cases need wide temporaries\n", retries, case_count);
    batch_free(&code);
    for (unsigned i = 0; i < retries; i++)
        cases[again[i]].number =
            batch_add(&code, cases[again[i]].graph, &cases[again[i]].schedule, cases[again[i]].name);
    if (retries)
        batch_compile(&code);
    for (unsigned i = 0; i < retries; i++) {
        ef_verdict v = run_case(&cases[again[i]]);
        if (!v.valid)
            fail_msg("%s, %s inputs, wide: relative L2 error %g, eager %g", cases[again[i]].name, ef_draw_names[v.draw],
                     v.error, v.eager);
    }
    free_cases();
}

/* Elementary functions on vectors (what -O3 makes of the loops) are those of the C library on single numbers: close
 * where these are finite, the same where not. */
static void functions_keep_infinities_and_nan(void **state)
{
    (void)state;
    static const char text[] =
        "program functions\ndim n = 37\ninput x: f32[n]\noutput a = log(x)\noutput b = log2(x)\noutput c = erf(x)\n"
        "output d = sin(x)\noutput e = cos(x)\noutput f = pow(x, 0.75)\noutput g = exp(x)\noutput h = tanh(x)\n";
    static const double special[] = {0, -0.0, INFINITY, -INFINITY, NAN, -1, 1, 1e-40, 3e38, -3e38, 100, -100, 0.5};
    float x[37], out[8][37];
    void *in[] = {x}, *to[8];
    ef_ctx *ctx = ef_ctx_new();
    ef_diag diag = {0};
    ef_program *program = ef_program_parse(ctx, text, strlen(text), "functions", &diag);
    ef_kgraph *graph = program ? ef_kgraph_new(program, &diag) : NULL;
    if (!graph)
        fail_msg("%s", diag.text);
    ef_schedule schedule = ef_schedule_default(graph, EF_BACKEND_C, 1);
    ef_native native;
    assert_true(ef_native_open(&native, graph, &schedule, &diag));
    for (unsigned i = 0; i < 37; i++)
        x[i] = (float)(i < COUNT(special) ? special[i] : 0.37 * i);
    for (unsigned i = 0; i < 8; i++)
        to[i] = out[i];
    ef_native_call(&native, in, to);
    for (unsigned i = 0; i < 37; i++) {
        double v = x[i], want[] = {log(v), log2(v), erf(v), sin(v), cos(v), pow(v, 0.75), exp(v), tanh(v)};
        for (unsigned k = 0; k < 8; k++) {
            float rounded = (float)want[k], got = out[k][i];
            bool same = isfinite(rounded) ? fabs(got - want[k]) <= 1e-6 * fabs(want[k]) + 2e-7
                                          : (isnan(rounded) ? isnan(got) : got == rounded);
            if (!same)
                fail_msg("output %u of %g is %g, not %g", k, v, (double)got, want[k]);
        }
    }
    ef_native_close(&native);
    ef_schedule_free(&schedule);
    ef_kgraph_free(graph);
    ef_program_free(program);
    ef_ctx_free(ctx);
}

/* ---- kernel formation ---- */

static ef_kgraph *graph_of(ef_ctx *ctx, const char *path)
{
    ef_diag diag = {0};
    ef_program *program = ef_program_read(ctx, path, &diag);
    ef_kgraph *graph = program ? ef_kgraph_new(program, &diag) : NULL;
    if (!graph)
        fail_msg("%s: %s", path, diag.text);
    ef_program_free(program);
    return graph;
}

static void kernels_are_cut_at_combination_and_collection(void **state)
{
    (void)state;
    static const struct {
        const char *path;
        unsigned kernels;
    } known[] = {
        {"tests/derivations/mha_decode_b1_rolling.ef", 1},       {"tests/derivations/mha_decode_b1_split.ef", 2},
        {"tests/derivations/layernorm_gemm_b16_one_pass.ef", 2}, {"tests/derivations/lora_b1_partials.ef", 2},
        {"tests/derivations/mla_decode_absorbed.ef", 3},         {"tests/programs/mha_decode_b1.ef", 6},
    };
    for (unsigned i = 0; i < COUNT(known); i++) {
        ef_ctx *ctx = ef_ctx_new();
        ef_kgraph *graph = graph_of(ctx, known[i].path);
        assert_int_equal(graph->kernels.count, known[i].kernels);
        ef_kgraph_free(graph);
        ef_ctx_free(ctx);
    }
}

/* In a loop, a repaired consumer takes its operand under the new state: one exponential for the tile, one for the
 * rescaling of the state, none for a rescaled tile. */
static void the_tile_of_a_rolling_reduction_is_not_rescaled(void **state)
{
    (void)state;
    ef_ctx *ctx = ef_ctx_new();
    ef_kgraph *graph = graph_of(ctx, "tests/derivations/mha_decode_b1_rolling.ef");
    ef_strbuf text = {0};
    ef_kgraph_print(graph, &text);
    unsigned exponentials = 0;
    for (const char *at = text.text; (at = strstr(at, "= exp ")); at++)
        exponentials++;
    assert_int_equal(exponentials, 2);
    ef_strbuf_free(&text);
    ef_kgraph_free(graph);
    ef_ctx_free(ctx);
}

/* Causal attention and a sliding window leave out the key tiles that their masks empty, whichever way they were tiled;
 * attention with a sink may not. */
static void masks_leave_out_tiles(void **state)
{
    (void)state;
    static const struct {
        const char *path;
        unsigned conditions;
    } known[] = {{"tests/derivations/causal_small_rolling.ef", 1},
                 {"tests/derivations/sliding_window_rolling.ef", 1},
                 {"tests/derivations/sinks_rolling.ef", 0},
                 {"tests/derivations/softcap_rolling.ef", 0}};
    for (unsigned i = 0; i < COUNT(known); i++) {
        ef_ctx *ctx = ef_ctx_new();
        ef_diag diag = {0};
        ef_strbuf text = {0};
        ef_kgraph *graph = graph_of(ctx, known[i].path);
        ef_schedule schedule = ef_schedule_default(graph, EF_BACKEND_C, 2);
        for (uint32_t p = 0; p < schedule.count; p++)
            schedule.value[p] = 4;
        assert_int_equal(graph->kernels.at[0]->loops.at[0].keeps, known[i].conditions);
        assert_true(ef_codegen_c(graph, &schedule, "p", &text, &diag) > 0);
        assert_int_equal(strstr(text.text, "if (((") != NULL, known[i].conditions);
        ef_strbuf_free(&text);
        ef_schedule_free(&schedule);
        ef_kgraph_free(graph);
        ef_ctx_free(ctx);
    }
}

static unsigned count_of(const char *text, const char *what)
{
    unsigned count = 0;
    for (const char *at = strstr(text, what); at; at = strstr(at + 1, what))
        count++;
    return count;
}

/* What takes longest is compiling: so code that several kernels have stands once. That each has its own buffers is
 * seen where generated code is run. */
static void equal_kernels_have_one_code(void **state)
{
    (void)state;
    ef_ctx *ctx = ef_ctx_new();
    ef_diag diag = {0};
    ef_strbuf text = {0};
    ef_program *program = ef_program_parse(ctx, LAYERS, strlen(LAYERS), "layers", &diag);
    if (!program)
        fail_msg("%s", diag.text);
    ef_kgraph *graph = ef_kgraph_eager(program, &diag);
    ef_schedule schedule = ef_schedule_default(graph, EF_BACKEND_C, 2);
    assert_true(ef_codegen_c(graph, &schedule, "p", &text, &diag) > 0);
    assert_int_equal(graph->kernels.count % 3, 0);
    assert_int_equal(count_of(text.text, "enum { SCRATCH"), graph->kernels.count / 3);
    /* Another tile is other code. */
    for (uint32_t i = 0; i < schedule.count; i++)
        if (graph->params.at[i].kernel == 0 && graph->params.at[i].kind == EF_PARAM_TILE)
            schedule.value[i] = 2;
    ef_strbuf_free(&text);
    text = (ef_strbuf){0};
    assert_true(ef_codegen_c(graph, &schedule, "p", &text, &diag) > 0);
    assert_int_equal(count_of(text.text, "enum { SCRATCH"), graph->kernels.count / 3 + 1);
    ef_strbuf_free(&text);
    ef_schedule_free(&schedule);
    ef_kgraph_free(graph);
    ef_program_free(program);
    ef_ctx_free(ctx);
}

/* Blocks of a norm, two products and a residual update, one after the other. */
static void print_blocks(unsigned count, ef_strbuf *out)
{
    ef_strbuf_puts(out, "program blocks\ndim m = 16\ndim d = 64\ninput x0: f32[m, d]\n");
    for (unsigned i = 0; i < count; i++)
        ef_strbuf_printf(out, "dim k%u = 64\ninput U%u: f32[d, k%u]\ninput W%u: f32[k%u, d]\n", i, i, i, i, i);
    for (unsigned i = 0; i < count; i++)
        ef_strbuf_printf(out,
                         "h%u = mul(x%u, rsqrt(add(div(reduce[sum, -1](mul(x%u, x%u)), 64), 1e-05)))\n"
                         "g%u = tanh(matmul(h%u, U%u))\n"
                         "%sx%u = add(x%u, matmul(g%u, W%u))\n",
                         i, i, i, i, i, i, i, i + 1 < count ? "" : "output ", i + 1, i, i, i);
}

/* What is known of kernels stays known while others become one: seconds of this process, whatever else runs. */
static void long_chains_take_no_time(void **state)
{
    (void)state;
    ef_ctx *ctx = ef_ctx_new();
    ef_diag diag = {0};
    ef_strbuf text = {0};
    print_blocks(240, &text);
    ef_program *program = ef_program_parse(ctx, text.text, text.length, "blocks", &diag);
    if (!program)
        fail_msg("%s", diag.text);
    clock_t start = clock();
    ef_kgraph *graph = ef_kgraph_new(program, &diag);
    double seconds = (double)(clock() - start) / CLOCKS_PER_SEC;
    assert_non_null(graph);
    print_message("%u kernels in %.2f s\n", graph ? graph->kernels.count : 0, seconds);
    assert_true(seconds < 8);
    ef_kgraph_free(graph);
    ef_program_free(program);
    ef_strbuf_free(&text);
    ef_ctx_free(ctx);
}

/* Where layers differ in sizes there would be as many functions as kernels: those are arguments then. That each kernel
 * has its own sizes is seen where generated code is run. */
static void many_kernels_of_other_sizes_have_one_code(void **state)
{
    (void)state;
    ef_ctx *ctx = ef_ctx_new();
    ef_diag diag = {0};
    ef_program *program = ef_program_parse(ctx, WIDE_LAYERS, strlen(WIDE_LAYERS), "wide", &diag);
    if (!program)
        fail_msg("%s", diag.text);
    ef_kgraph *graph = ef_kgraph_eager(program, &diag);
    for (uint32_t tile = 0; tile < 2; tile++) {
        ef_strbuf text = {0};
        ef_schedule schedule = ef_schedule_default(graph, EF_BACKEND_C, 2);
        for (uint32_t i = 0; tile && i < schedule.count; i++)
            schedule.value[i] = graph->params.at[i].kind == EF_PARAM_TILE ? 4 : schedule.value[i];
        assert_true(ef_codegen_c(graph, &schedule, "p", &text, &diag) > 0);
        ef_codegen_c_timed(graph, "p", &text);
        unsigned functions = count_of(text.text, "enum { SCRATCH");
        assert_true(graph->kernels.count >= 48);
        assert_true(functions <= graph->kernels.count / 3);
        /* Compilers take a millisecond for what is called once more. */
        assert_int_equal(count_of(text.text, "_code("), functions + graph->kernels.count);
        ef_strbuf_free(&text);
        ef_schedule_free(&schedule);
    }
    ef_kgraph_free(graph);
    ef_program_free(program);
    ef_ctx_free(ctx);
}

/* ---- functions for several sizes: what is as large as the largest of them ---- */

/* A program as C, with blocks of one element and whole tiles: in `code`, which is to be compiled. */
static test_case whole_tiles(ef_ctx *ctx, const ef_strbuf *text)
{
    ef_diag diag = {0};
    test_case t = {.ctx = ctx, .program = ef_program_parse(ctx, text->text, text->length, "sizes", &diag)};
    if (!t.program)
        fail_msg("%s", diag.text);
    t.graph = ef_kgraph_new(t.program, &diag);
    t.schedule = ef_schedule_default(t.graph, EF_BACKEND_C, BATCH_THREADS);
    for (uint32_t i = 0; i < t.schedule.count; i++)
        if (t.graph->params.at[i].kind == EF_PARAM_TILE)
            t.schedule.value[i] = ef_axis_level(t.graph->params.at[i].axis) == 0 ? 1 : 1000000;
    t.number = batch_add(&code, t.graph, &t.schedule, "sizes");
    return t;
}

static void free_sizes(test_case *t)
{
    batch_free(&code);
    ef_oracle_free(t->oracle);
    ef_schedule_free(&t->schedule);
    ef_kgraph_free(t->graph);
    ef_program_free(t->program);
    ef_ctx_free(t->ctx);
}

/* How many functions a program's kernels have, which are as many as its outputs. */
static unsigned functions_of(const ef_strbuf *text, unsigned outputs)
{
    test_case t = whole_tiles(ef_ctx_new(), text);
    assert_int_equal(t.graph->kernels.count, outputs);
    unsigned functions = count_of(code.source.text, "enum { SCRATCH");
    free_sizes(&t);
    return functions;
}

/* Rows that are summed one after the other. They are not in the order of their lengths: those on the stack, and those
 * that are longer than it has room for, begin with the shortest. */
static void print_rows(const unsigned *length, unsigned count, ef_strbuf *out)
{
    ef_strbuf_puts(out, "program rows\ndim m = 6\ninput y0: f32[m, 1]\n");
    for (unsigned i = 1; i <= count; i++)
        ef_strbuf_printf(out, "dim k%u = %u\ninput x%u: f16[m, k%u]\ninput W%u: bf16[k%u, 1]\n", i, length[i - 1], i, i,
                         i, i);
    for (unsigned i = 1; i <= count; i++)
        ef_strbuf_printf(out,
                         "%sy%u = combination[m.0](reduce[sum, k%u.1](tile_matmul(tanh(add(view[m.0, k%u.1](x%u), "
                         "view[m.0, k%u.1](y%u))), view[m.0, k%u.1](W%u))))\n",
                         i < count ? "" : "output ", i, i, i, i, i, i - 1, i, i);
}

/* Arrays, and what a thread has of the scratch memory, are those of the largest of the kernels, not of the first. */
static void shared_functions_have_room_for_each_kernel(void **state)
{
    enum { ROWS = 30, LONGEST = 64000 };
    unsigned length[ROWS];
    ef_strbuf text = {0};
    ef_diag diag = {0};
    (void)state;
    for (unsigned i = 0; i < ROWS; i++)
        length[i] = i % 6 == 3 ? LONGEST - 500 * (ROWS - 3 - i) : i == 16 ? 999 : 3 + 7 * i;
    print_rows(length, ROWS, &text);
    test_case t = whole_tiles(ef_ctx_new(), &text);
    assert_int_equal(t.graph->kernels.count, ROWS);
    assert_int_equal(count_of(code.source.text, "enum { SCRATCH"), 2);
    assert_int_equal(count_of(code.source.text, "enum { SCRATCH = 0 }"), 1);
    assert_int_equal(count_of(code.source.text, "enum { SCRATCH = 256000 }"), 1);
    assert_int_equal(count_of(code.source.text, "[999] __attribute__((aligned("), 1);
    t.oracle = ef_oracle_new(t.program, &diag);
    if (!t.oracle || !ef_oracle_print(t.oracle, "oracle_0", &code.source, &diag))
        fail_msg("%s", diag.text);
    batch_compile(&code);
    prepare(&t, 0);
    ef_verdict v = run_case(&t);
    if (!v.valid)
        fail_msg("%s inputs: relative L2 error %g, eager %g", ef_draw_names[v.draw], v.error, v.eager);
    ef_strbuf_free(&text);
    free_sizes(&t);
}

/* A function for more sizes than arguments are passed for is none: each kernel has its own. */
static void functions_have_few_sizes(void **state)
{
    enum { OUTPUTS = 26 };
    (void)state;
    for (unsigned sizes = 60; sizes <= 70; sizes += 10) {
        ef_strbuf text = {0};
        ef_strbuf_puts(&text, "program constants\n");
        for (unsigned i = 0; i < OUTPUTS; i++)
            ef_strbuf_printf(&text, "dim n%u = 9\ninput x%u: f32[n%u]\n", i, i, i);
        for (unsigned i = 0; i < OUTPUTS; i++) {
            ef_strbuf_printf(&text, "output y%u = combination[n%u.0](", i, i);
            for (unsigned k = sizes; k-- > 0;)
                ef_strbuf_puts(&text, k % 2 ? "add(" : "mul(");
            ef_strbuf_printf(&text, "view[n%u.0](x%u)", i, i);
            for (unsigned k = 0; k < sizes; k++)
                ef_strbuf_printf(&text, ", %.10g)", 1 + (2.0 * (i * sizes + k) + 1) / 8192);
            ef_strbuf_puts(&text, ")\n");
        }
        assert_int_equal(functions_of(&text, OUTPUTS), sizes == 60 ? 1 : OUTPUTS);
        ef_strbuf_free(&text);
    }
}

/* Sums of the columns of three products: of the kernels one has many columns in the first, another in the second, and
 * another in the third, when there are three `large` ones. */
static void print_products(const char *dtype, unsigned count, unsigned large, unsigned size, ef_strbuf *out)
{
    ef_strbuf_puts(out, "program products\n");
    for (unsigned i = 0; i < count; i++) {
        ef_strbuf_printf(out, "dim m%u = 2\ndim k%u = 3\ninput x%u: %s[m%u, k%u]\n", i, i, i, dtype, i, i);
        for (unsigned j = 0; j < 3; j++)
            ef_strbuf_printf(out, "dim n%u_%u = %u\ninput W%u_%u: %s[k%u, n%u_%u]\n", i, j,
                             i == 5 + j && j < large ? size : i + j + 2, i, j, dtype, i, i, j);
    }
    for (unsigned i = 0; i < count; i++) {
        ef_strbuf_printf(out, "output y%u = combination[m%u.0](add(add(", i, i);
        for (unsigned j = 0; j < 3; j++)
            ef_strbuf_printf(out,
                             "%sreduce[sum, -1](reduce[sum, k%u.1](tile_matmul(view[m%u.0, k%u.1](x%u), "
                             "view[m%u.0, k%u.1](W%u_%u))))%s",
                             j ? ", " : "", i, i, i, i, i, i, i, j, j ? ")" : "");
        ef_strbuf_puts(out, ")\n");
    }
}

/* Each kernel's arrays have room on a stack; all of them at their largest might not. */
static void functions_have_room_on_a_stack(void **state)
{
    static const char *const dtype[] = {"f32", "f64"};
    enum { OUTPUTS = 26 };
    (void)state;
    for (unsigned i = 0; i < COUNT(dtype); i++)
        for (unsigned large = 2; large <= 3; large++) {
            ef_strbuf text = {0};
            print_products(dtype[i], OUTPUTS, large, i ? 22500 : 45000, &text);
            assert_int_equal(functions_of(&text, OUTPUTS), large == 2 ? 1 : OUTPUTS);
            ef_strbuf_free(&text);
        }
}

/* Every candidate is compiled with the support code: a header of thousands of functions took longer than most kernels.
 */
static void support_code_includes_little(void **state)
{
    static const char *const known[] = {"math", "stddef", "stdint", "string", "omp"};
    ef_strbuf text = {0};
    (void)state;
    ef_codegen_c_runtime(&text);
    for (unsigned i = 0; i < COUNT(known); i++) {
        char line[40];
        snprintf(line, sizeof line, "#include <%s.h>\n", known[i]);
        assert_int_equal(count_of(text.text, line), 1);
    }
    assert_int_equal(count_of(text.text, "#include"), COUNT(known));
    ef_strbuf_free(&text);
}

static ef_kgraph *graph_of_text(ef_ctx *ctx, const char *text)
{
    ef_diag diag = {0};
    ef_program *program = ef_program_parse(ctx, text, strlen(text), "text", &diag);
    ef_kgraph *graph = program ? ef_kgraph_new(program, &diag) : NULL;
    if (!graph)
        fail_msg("%s", diag.text);
    ef_program_free(program);
    return graph;
}

/* Two maps over one value run in one loop, whose state is both states, and load its tiles once; that two kernels have
 * one grid is not enough. */
static void kernels_that_share_tiles_are_one(void **state)
{
    (void)state;
    ef_ctx *ctx = ef_ctx_new();
    ef_kgraph *graph = graph_of(ctx, "tests/derivations/two_maps_split.ef");
    assert_int_equal(graph->kernels.count, 2);
    const ef_kernel *maps = graph->kernels.at[0];
    unsigned loads = 0;
    assert_int_equal(maps->stores.count, 6);
    assert_int_equal(maps->loops.count, 1);
    assert_int_equal(maps->loops.at[0].leaves, 6);
    for (ef_kid id = 0; id < ef_kernel_nodes(maps); id++)
        loads += ef_kernel_node(maps, id)->op == EF_K_BUFFER;
    assert_int_equal(loads, 5);
    ef_kgraph_free(graph);
    ef_ctx_free(ctx);
    static const char apart[] =
        "program apart\ndim m = 5\ndim k = 64\ndim n = 48\ninput x: f32[m, k]\ninput U: f32[k, n]\ninput V: f32[k, n]\n"
        "xt = view[n.0, k.1](x)\n"
        "output y = combination[n.0](reduce[sum, k.1](tile_matmul(xt, view[n.0, k.1](U))))\n"
        "output z = combination[n.0](reduce[sum, k.1](tile_matmul(xt, view[n.0, k.1](V))))\n";
    ctx = ef_ctx_new();
    graph = graph_of_text(ctx, apart);
    assert_int_equal(graph->kernels.count, 2);
    ef_kgraph_free(graph);
    ef_ctx_free(ctx);
}

/* A number that takes few to compute is computed by each block that uses it, in all kernels that do; one that takes
 * many is stored. */
static void single_numbers_are_computed_where_they_are_used(void **state)
{
    static const char text[] =
        "program p\ndim d = %u\ndim m = 5\ndim n = 7\n"
        "input a: f32[d]\ninput x: f32[m, n]\ninput y: f32[n]\n"
        "t = exp(neg(reshape[](reduce[sum, d.1](reduce[sum, -1](mul(view[d.1](a), view[d.1](a)))))))\n"
        "output u = mul(x, t)\noutput v = add(y, t)\n";
    static const struct {
        unsigned extent, kernels;
    } known[] = {{64, 2}, {4096, 3}};
    (void)state;
    for (unsigned i = 0; i < COUNT(known); i++) {
        char program[512];
        ef_ctx *ctx = ef_ctx_new();
        snprintf(program, sizeof program, text, known[i].extent);
        ef_kgraph *graph = graph_of_text(ctx, program);
        assert_int_equal(graph->kernels.count, known[i].kernels);
        ef_kgraph_free(graph);
        ef_ctx_free(ctx);
    }
}

/* What is computed element by element is one kernel with its first reader, where few of that one's blocks compute the
 * same. */
static void updates_are_computed_with_what_reads_them(void **state)
{
    static const struct {
        const char *text;
        unsigned kernels;
    } known[] = {{UPDATE("few", "24", "e.0"), 1}, {UPDATE("many", "64", "e.0"), 2}};
    (void)state;
    for (unsigned i = 0; i < COUNT(known); i++) {
        ef_ctx *ctx = ef_ctx_new();
        ef_kgraph *graph = graph_of_text(ctx, known[i].text);
        assert_int_equal(graph->kernels.count, known[i].kernels);
        assert_int_equal(graph->kernels.at[0]->stores.count, i == 0 ? 2 : 1);
        ef_kgraph_free(graph);
        ef_ctx_free(ctx);
    }
}

/* No kernel takes more loops upon itself than one may have. */
static void small_kernels_stay_where_loops_are_too_many(void **state)
{
    enum { SUMS = 70 };
    (void)state;
    ef_ctx *ctx = ef_ctx_new();
    ef_strbuf text = {0};
    uint32_t loops = 0;
    ef_strbuf_printf(&text, "program chain\ndim d = 4\ndim m = 5\ninput x: f32[m]\n");
    for (int i = 0; i < SUMS; i++)
        ef_strbuf_printf(&text, "input a%d: f32[d]\n", i);
    for (int i = 0; i < SUMS; i++) {
        ef_strbuf_printf(&text, "s%d = reshape[](reduce[sum, d.1](reduce[sum, -1](view[d.1](a%d))))\n", i, i);
        if (i == 0)
            ef_strbuf_printf(&text, "t0 = exp(s0)\n");
        else
            ef_strbuf_printf(&text, "t%d = exp(add(t%d, s%d))\n", i, i - 1, i);
        if (i % 10 == 9) /* is used twice, so it has a kernel of its own */
            ef_strbuf_printf(&text, "output y%d = mul(x, t%d)\n", i, i);
    }
    ef_kgraph *graph = graph_of_text(ctx, text.text);
    assert_true(graph->kernels.count > 1);
    for (uint32_t k = 0; k < graph->kernels.count; k++) {
        assert_true(graph->kernels.at[k]->loops.count <= EF_K_MAX_LOOPS);
        loops += graph->kernels.at[k]->loops.count;
    }
    assert_true(loops >= SUMS);
    ef_kgraph_free(graph);
    ef_strbuf_free(&text);
    ef_ctx_free(ctx);
}

/* What a loop needs is what its body and its conditions read. */
static void conditions_are_needed(void **state)
{
    (void)state;
    ef_ctx *ctx = ef_ctx_new();
    ef_kgraph *graph = graph_of(ctx, "tests/derivations/causal_small_rolling.ef");
    ef_kernel *k = graph->kernels.at[0];
    ef_knode unread = {.op = EF_K_BUFFER, .dtype = EF_BOOL, .attr = graph->buffers.count};
    ef_kid condition = ef_kernel_intern(k, unread);
    bool *needed = ef_xcalloc(ef_kernel_nodes(k) + 1, sizeof *needed);
    ef_kernel_need(k, k->stores.at[0].value, needed);
    assert_false(needed[condition]);
    memset(needed, 0, ef_kernel_nodes(k) * sizeof *needed);
    k->loops.at[0].keep[0] = condition;
    ef_kernel_need(k, k->stores.at[0].value, needed);
    assert_true(needed[condition]);
    free(needed);
    ef_kgraph_free(graph);
    ef_ctx_free(ctx);
}

/* Of split attention to the first 3 and the last 40 of 600 positions only the parts are there that the mask leaves
 * something of, in the grid and in what is stored; without a mask all are. */
static void parts_that_see_nothing_are_not_there(void **state)
{
    (void)state;
    static const struct {
        uint64_t tile, parts, runs, first; /* of the last run */
    } known[] = {{4, 11, 2, 140}, {32, 3, 2, 17}, {250, 2, 2, 2}, {300, 2, 1, 0}, {600, 1, 1, 0}};
    ef_ctx *ctx = ef_ctx_new();
    ef_kgraph *graph = graph_of(ctx, "tests/derivations/sink_window_split.ef");
    ef_schedule schedule = ef_schedule_default(graph, EF_BACKEND_TRITON, 4);
    assert_int_equal(graph->parts.count, 1);
    for (unsigned i = 0; i < COUNT(known); i++) {
        const ef_kernel *split = graph->kernels.at[0], *merge = graph->kernels.at[1];
        ef_part_run run[EF_K_MAX_RUNS];
        assert_true(ef_schedule_set(graph, &schedule, "s.0", 3, known[i].tile));
        assert_true(ef_schedule_set(graph, &schedule, "h.0", 3, 1));
        assert_int_equal(ef_sched_parts(graph, &schedule, graph->parts.at[0].axis, run), known[i].runs);
        assert_int_equal(run[known[i].runs - 1].first, known[i].first);
        uint64_t states = ef_sched_buffer(graph, &schedule, split->stores.at[0].buffer);
        assert_int_equal(states, 3 * known[i].parts);
        assert_int_equal(ef_sched_blocks(graph, &schedule, split), 3 * known[i].parts);
        assert_int_equal(ef_sched_trips(graph, &schedule, merge, merge->loops.at[0].iter), known[i].parts);
    }
    ef_schedule_free(&schedule);
    ef_kgraph_free(graph);
    ef_ctx_free(ctx);
    ctx = ef_ctx_new();
    graph = graph_of(ctx, "tests/derivations/mha_decode_b1_split.ef");
    assert_int_equal(graph->parts.count, 0);
    ef_kgraph_free(graph);
    ef_ctx_free(ctx);
}

/* ---- families ---- */

static uint64_t family_of(ef_ctx *ctx, const char *text)
{
    ef_kgraph *graph = graph_of_text(ctx, text);
    uint64_t family = ef_kgraph_family(graph);
    ef_kgraph_free(graph);
    return family;
}

#define FAMILY(name, body) "program p\ndim m = 4\ndim n = 6\ninput x: f32[m, n]\ninput y: f32[m, n]\n" body

static void a_family_is_a_structure_and_not_its_names(void **state)
{
    (void)state;
    ef_ctx *ctx = ef_ctx_new();
    uint64_t a = family_of(ctx, FAMILY("a", "u = view[m.0](x)\noutput o = combination[m.0](add(u, view[m.0](y)))\n"));
    uint64_t b = family_of(ctx, FAMILY("b", "output z = combination[m.0](add(view[m.0](y), view[m.0](x)))\n"));
    uint64_t c = family_of(ctx, FAMILY("c", "output z = combination[n.0](add(view[n.0](y), view[n.0](x)))\n"));
    uint64_t d = family_of(ctx, FAMILY("d", "output z = combination[m.0](sub(view[m.0](y), view[m.0](x)))\n"));
    assert_true(a == b);
    assert_true(a != c);
    assert_true(a != d);
    ef_ctx_free(ctx);
}

/* A loop over tiles, or a grid axis, whose one tile is the whole dimension is no loop and no grid axis; a structure
 * that differs otherwise, and a split whose parts are stored, stand for themselves. */
static void a_family_covers_what_its_schedules_reach(void **state)
{
    (void)state;
    static const char *const text[] = {
        FAMILY("loop",
               "xt = view[m.0, n.1](x)\nmt = reduce[max, -1](xt)\nr = reduce[repaired(max, sum, mul(c, exp(sub(s, "
               "t)))), n.1](tuple(mt, reduce[sum, -1](exp(sub(xt, mt)))))\noutput o = combination[m.0](get[1](r))\n"),
        FAMILY("whole", "xt = view[m.0](x)\noutput o = combination[m.0](reduce[sum, -1](exp(sub(xt, reduce[max, "
                        "-1](xt)))))\n"),
        FAMILY("other", "xt = view[m.0](x)\noutput o = combination[m.0](reduce[sum, -1](exp(add(xt, reduce[max, "
                        "-1](xt)))))\n"),
        FAMILY("grid", "u = view[m.0, n.0](x)\noutput o = combination[m.0, n.0](add(u, view[m.0, n.0](y)))\n"),
        FAMILY("rows", "output o = combination[m.0](add(view[m.0](y), view[m.0](x)))\n"),
        FAMILY("again", "output z = combination[m.0](add(view[m.0](x), view[m.0](y)))\n"),
    };
    static const uint32_t expected[] = {0, 0, 2, 3, 3, 3};
    ef_kgraph *graph[COUNT(text)];
    uint32_t representative[COUNT(text)];
    ef_ctx *ctx = ef_ctx_new();
    for (unsigned i = 0; i < COUNT(text); i++)
        graph[i] = graph_of_text(ctx, text[i]);
    assert_int_equal(ef_kgraph_families((const ef_kgraph *const *)graph, COUNT(text), representative), 3);
    for (unsigned i = 0; i < COUNT(text); i++) {
        assert_int_equal(representative[i], expected[i]);
        ef_kgraph_free(graph[i]);
    }
    ef_ctx_free(ctx);
}

/* A kernel that is one with all that read its result does not store it. */
static void nothing_is_stored_that_is_not_read(void **state)
{
    (void)state;
    static const char text[] = "program p\ndim a = 64\ndim b = 512\ndim c = 512\ninput x: f32[a, c]\n"
                               "input y: f32[a, b]\ninput w: f32[b, c]\nm = matmul(y, w)\n"
                               "output r = add(reduce[sum, -1](m), reduce[max, -1](exp(x)))\n";
    ef_ctx *ctx = ef_ctx_new();
    ef_kgraph *graph = graph_of_text(ctx, text);
    bool *read = calloc(graph->buffers.count, sizeof *read);
    for (uint32_t i = 0; i < graph->kernels.count; i++)
        ef_kernel_buffers_read(graph->kernels.at[i], read);
    for (uint32_t i = 0; i < graph->kernels.count; i++)
        for (uint32_t s = 0; s < graph->kernels.at[i]->stores.count; s++) {
            uint32_t b = graph->kernels.at[i]->stores.at[s].buffer;
            assert_true(read[b] || graph->buffers.at[b].kind == EF_BUFFER_OUTPUT);
        }
    free(read);
    ef_kgraph_free(graph);
    ef_ctx_free(ctx);
}

/* The times that a text has, and where it has it the first time. */
static unsigned occurrences(const char *text, const char *of, const char **first)
{
    unsigned count = 0;
    *first = strstr(text, of);
    for (const char *at = *first; at; at = strstr(at + 1, of))
        count++;
    return count;
}

/* The text of a kernel in a printed module, ended where the next one begins; *kept: what stood there. */
static char *kernel_text(char *module, uint32_t number, char **end, char *kept)
{
    char name[32];
    (void)snprintf(name, sizeof name, "\ndef k%" PRIu32 "_", number);
    char *at = strstr(module, name);
    assert_non_null(at);
    *end = strstr(at, "@triton.jit");
    *end = *end ? *end : strstr(at, "\ndef launch");
    assert_non_null(*end);
    *kept = **end;
    **end = 0;
    return at;
}

/* A kernel that begins early waits behind its loads of inputs and before those of what another one stored. The first
 * one waits before all loads: what ran before the program may store its inputs. So do kernels that go round, whose
 * loads are in that loop; what other loops load stands in them. */
static void inputs_are_loaded_ahead(void **state)
{
    (void)state;
    static const char text[] = "program p\ndim a = 64\ndim b = 32\ndim c = 64\ndim e = 128\n"
                               "input x: f16[a, b]\ninput w: f16[b, c]\ninput v: f16[c, e]\n"
                               "m = matmul(x, w)\noutput r = matmul(div(m, reduce[sum, -1](m)), v)\n";
    static const struct {
        const char *param; /* of the last kernel; NULL: as it is */
        uint64_t value;
        bool ahead;
    } known[] = {{NULL, 0, true}, {"persist", 2, false}, {"overlap", 0, false}, {"c.1", 16, false}};
    ef_ctx *ctx = ef_ctx_new();
    ef_diag diag = {0};
    ef_kgraph *graph = graph_of_text(ctx, text);
    uint32_t last = graph->kernels.count - 1;
    for (size_t c = 0; c < sizeof known / sizeof *known; c++) {
        ef_schedule schedule = ef_schedule_default(graph, EF_BACKEND_TRITON, 132);
        for (uint32_t i = 0; i < graph->params.count; i++)
            if (graph->params.at[i].kind == EF_PARAM_OVERLAP)
                schedule.value[i] = EF_BEGIN_EARLY;
        char name[32];
        (void)snprintf(name, sizeof name, "k%" PRIu32 ".%s", last, known[c].param ? known[c].param : "c.1");
        assert_true(
            ef_schedule_set(graph, &schedule, name, (unsigned)strlen(name), known[c].param ? known[c].value : 64));
        ef_strbuf printed = {0};
        assert_true(ef_codegen_triton(graph, &schedule, "p", &printed, &diag));
        const char *wait = NULL, *input = NULL, *stored = NULL;
        char *end, kept, *at = kernel_text(printed.text, 0, &end, &kept);
        assert_int_equal(occurrences(at, "gdc_wait()", &wait), 1);
        assert_true(occurrences(at, "tl.load(x_ptr", &input) == 1 && wait < input);
        *end = kept;
        at = kernel_text(printed.text, last, &end, &kept);
        assert_int_equal(occurrences(at, "gdc_wait()", &wait),
                         !known[c].param || strcmp(known[c].param, "overlap") != 0);
        assert_int_equal(occurrences(at, "tl.load(v_ptr", &input), 1);
        assert_int_equal(occurrences(at, "tl.load(value_tmp", &stored), 1);
        assert_true(!wait || (wait < stored && (input < wait) == known[c].ahead));
        assert_int_equal(occurrences(at, "cache_modifier=\".cg\"", &input), known[c].ahead); /* past the first cache */
        ef_strbuf_free(&printed);
        ef_schedule_free(&schedule);
    }
    ef_kgraph_free(graph);
    ef_ctx_free(ctx);
}

/* A kernel lets the next one begin when it has itself waited, or behind its loops; the last one lets the first kernel
 * of another call begin. Blocks that are dealt out evenly are launched in a way of their own. */
static void kernels_let_the_next_one_begin(void **state)
{
    (void)state;
    static const char text[] = "program p\ndim a = 16\ndim b = 512\ndim c = 512\ndim e = 512\ninput x: f16[a, b]\n"
                               "input w: f16[b, c]\ninput v: f16[c, e]\n"
                               "output r = matmul(matmul(x, w), v)\n";
    ef_ctx *ctx = ef_ctx_new();
    ef_diag diag = {0};
    ef_kgraph *graph = graph_of_text(ctx, text);
    assert_int_equal(graph->kernels.count, 2);
    for (uint64_t begin = EF_BEGIN_AFTER; begin < EF_BEGINS; begin++) {
        for (uint64_t persist = 0; persist < 2; persist++) {
            for (uint32_t k = 0; k < 2; k++) { /* the other one begins so */
                ef_schedule schedule = ef_schedule_default(graph, EF_BACKEND_TRITON, 132);
                char name[32];
                (void)snprintf(name, sizeof name, "k%" PRIu32 ".overlap", 1 - k);
                assert_true(ef_schedule_set(graph, &schedule, name, (unsigned)strlen(name), begin));
                (void)snprintf(name, sizeof name, "k%" PRIu32 ".persist", k);
                assert_true(ef_schedule_set(graph, &schedule, name, (unsigned)strlen(name), persist));
                ef_strbuf printed = {0};
                assert_true(ef_codegen_triton(graph, &schedule, "p", &printed, &diag));
                const char *let = NULL, *loop = NULL, *store = NULL, *evenly = NULL;
                (void)snprintf(name, sizeof name, "\n    _evenly(k%" PRIu32 "_", 1 - k);
                bool even = begin == EF_BEGIN_EARLY_EVENLY || begin == EF_BEGIN_LATE_EVENLY;
                assert_int_equal(occurrences(printed.text, name, &evenly), even);
                assert_int_equal(occurrences(printed.text, "\n    _evenly(", &evenly), even);
                char *end, kept, *at = kernel_text(printed.text, k, &end, &kept);
                assert_int_equal(occurrences(at, "gdc_launch_dependents()", &let), begin != EF_BEGIN_AFTER);
                assert_int_equal(occurrences(at, "for at_", &loop), 1);
                assert_int_equal(occurrences(at, "tl.store(", &store), 1);
                if (let)
                    assert_true((let > loop) == (begin >= EF_BEGIN_LATE));
                if (let && begin >= EF_BEGIN_LATE) /* one that goes round is through with its loops in the end */
                    assert_true((let < store) == !persist);
                *end = kept;
                ef_strbuf_free(&printed);
                ef_schedule_free(&schedule);
            }
        }
    }
    ef_kgraph_free(graph);
    ef_ctx_free(ctx);
}

/* Kernels with and without loops; one of them runs beside another. */
static const char beside_text[] =
    "program p\ndim a = 64\ndim b = 512\ndim c = 512\ndim e = 96\n"
    "input x: f32[e, c]\ninput z: f32[a, e]\ninput y: f32[a, b]\ninput w: f32[b, c]\n"
    "m = matmul(y, w)\nn = reduce[sum, -1](m)\no = matmul(mul(m, n), transpose[1, 0](w))\n"
    "s = reduce[max, -1](exp(x))\noutput r = add(reduce[sum, -1](o), matmul(z, s))\n";

/* Behind its own wait always: what begins then counts on all kernels before this one having ended. */
static void kernels_wait_before_the_next_one_begins(void **state)
{
    (void)state;
    ef_ctx *ctx = ef_ctx_new();
    ef_diag diag = {0};
    ef_kgraph *graph = graph_of_text(ctx, beside_text);
    bool beside = false;
    for (uint32_t k = 0; k < graph->kernels.count; k++)
        beside = beside || graph->kernels.at[k]->beside;
    assert_true(beside);
    for (uint64_t begin = EF_BEGIN_EARLY; begin < EF_BEGINS; begin++)
        for (uint64_t persist = 0; persist < 2; persist++) {
            ef_schedule schedule = ef_schedule_default(graph, EF_BACKEND_TRITON, 132);
            assert_true(ef_schedule_set(graph, &schedule, "overlap", 7, begin));
            assert_true(ef_schedule_set(graph, &schedule, "persist", 7, persist));
            ef_strbuf printed = {0};
            assert_true(ef_codegen_triton(graph, &schedule, "p", &printed, &diag));
            for (uint32_t k = 0; k < graph->kernels.count; k++) {
                const char *wait = NULL, *let = NULL;
                char *end, kept, *at = kernel_text(printed.text, k, &end, &kept);
                assert_int_equal(occurrences(at, "gdc_wait()", &wait), 1);
                assert_int_equal(occurrences(at, "gdc_launch_dependents()", &let), 1);
                assert_true(wait < let);
                *end = kept;
            }
            ef_strbuf_free(&printed);
            ef_schedule_free(&schedule);
        }
    ef_kgraph_free(graph);
    ef_ctx_free(ctx);
}

/* What nothing waits for yet stands behind the longest kernel that it can run beside, waits for it in the end, and
 * reads what is in the second cache; others wait before they read what was stored. */
static void kernels_run_beside_longer_ones(void **state)
{
    (void)state;
    ef_ctx *ctx = ef_ctx_new();
    ef_diag diag = {0};
    ef_kgraph *graph = graph_of_text(ctx, beside_text);
    uint32_t light = EF_NONE;
    for (uint32_t i = 0; i < graph->kernels.count; i++) {
        const ef_kernel *k = graph->kernels.at[i];
        for (ef_kid id = 0; id < ef_kernel_nodes(k); id++)
            if (ef_kernel_node(k, id)->op == EF_EXP)
                light = i;
    }
    assert_true(light != EF_NONE && light > 0);
    bool product = false;
    const ef_kernel *heavy = graph->kernels.at[light - 1];
    for (ef_kid id = 0; id < ef_kernel_nodes(heavy); id++)
        product = product || ef_kernel_node(heavy, id)->op == EF_TILE_MATMUL;
    assert_true(product && graph->kernels.at[light]->beside && !graph->kernels.at[0]->beside);
    ef_schedule schedule = ef_schedule_default(graph, EF_BACKEND_TRITON, 132);
    for (uint32_t i = 0; i < graph->params.count; i++)
        if (graph->params.at[i].kind == EF_PARAM_OVERLAP)
            schedule.value[i] = 1;
    ef_strbuf printed = {0};
    assert_true(ef_codegen_triton(graph, &schedule, "p", &printed, &diag));
    for (uint32_t i = 0; i < graph->kernels.count; i++) {
        const char *wait = NULL, *begin = NULL, *load = NULL, *store = NULL;
        char *end, kept, *at = kernel_text(printed.text, i, &end, &kept);
        assert_int_equal(occurrences(at, "gdc_wait()", &wait), 1);
        assert_int_equal(occurrences(at, "gdc_launch_dependents()", &begin), 1);
        assert_true(wait < begin && occurrences(at, "tl.load", &load) > 0 && occurrences(at, "tl.store", &store) > 0);
        assert_true(graph->kernels.at[i]->beside ? store < wait : begin < store && (i > 0 || begin < load));
        unsigned loads = occurrences(at, "tl.load", &load), past = occurrences(at, "cache_modifier=\".cg\"", &load);
        assert_int_equal(past, graph->kernels.at[i]->beside ? loads : 0);
        *end = kept;
    }
    ef_strbuf_free(&printed);
    ef_schedule_free(&schedule);
    ef_kgraph_free(graph);
    ef_ctx_free(ctx);
}

/* What is stored in a narrow type is what PyTorch surely has in it. */
static void narrow_temporaries(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        bool narrow;
    } known[] = {{"output r = matmul(matmul(x, w), w)\n", true},
                 {"output r = matmul(cast[f16](exp(x)), w)\n", true},
                 {"m = mul(x, x)\noutput r = div(m, reduce[sum, -1](m))\n", false},
                 {"output r = cast[f32](matmul(matmul(x, w), w))\n", false},
                 {"m = matmul(x, w)\noutput r = cast[f16](matmul(exp(m), w))\n", false}};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        char text[256];
        (void)snprintf(text, sizeof text,
                       "program p\ndim a = 16\ndim b = 32\ninput x: f16[a, b]\ninput w: f16[b, b]\n%s", known[i].text);
        ef_ctx *ctx = ef_ctx_new();
        ef_kgraph *graph = graph_of_text(ctx, text);
        if (ef_kgraph_is_narrow(graph) != known[i].narrow)
            fail_msg("%s", text);
        ef_kgraph_free(graph);
        ef_ctx_free(ctx);
    }
}

/* ---- buffers and schedules ---- */

static void dead_buffers_are_used_again(void **state)
{
    (void)state;
    ef_ctx *ctx = ef_ctx_new();
    ef_kgraph *graph = graph_of(ctx, "tests/programs/mha_decode_b1.ef");
    ef_schedule schedule = ef_schedule_default(graph, EF_BACKEND_C, 2);
    uint64_t *offset = calloc(graph->buffers.count, sizeof *offset), all = 0;
    uint64_t size = ef_sched_plan(graph, &schedule, offset);
    for (uint32_t i = 0; i < graph->buffers.count; i++) {
        const ef_kbuffer *a = &graph->buffers.at[i];
        uint64_t bytes = ef_dtype_bytes((ef_dtype)a->dtype) * ef_sched_buffer(graph, &schedule, i);
        if (a->kind != EF_BUFFER_TEMP)
            continue;
        all += bytes;
        for (uint32_t j = 0; j < i; j++) {
            const ef_kbuffer *b = &graph->buffers.at[j];
            bool together = b->kind == EF_BUFFER_TEMP && a->born <= b->dies && b->born <= a->dies;
            uint64_t other = ef_dtype_bytes((ef_dtype)b->dtype) * ef_sched_buffer(graph, &schedule, j);
            assert_false(together && offset[i] < offset[j] + other && offset[j] < offset[i] + bytes);
        }
    }
    assert_true(size < all);
    free(offset);
    ef_schedule_free(&schedule);
    ef_kgraph_free(graph);
    ef_ctx_free(ctx);
}

static void a_domain_has_powers_of_two_and_the_whole(void **state)
{
    (void)state;
    ef_ctx *ctx = ef_ctx_new();
    ef_kgraph *graph = graph_of(ctx, "tests/derivations/rmsnorm_mlp_b16_fused.ef");
    for (uint32_t i = 0; i < graph->params.count; i++) {
        if (graph->params.at[i].kind != EF_PARAM_TILE)
            continue;
        uint64_t value[EF_SCHEDULE_VALUES], extent = ef_var_at(ctx, ef_axis_var(graph->params.at[i].axis))->extent;
        unsigned n = ef_schedule_domain(graph, EF_BACKEND_C, i, value);
        assert_true(n > 1 && value[0] == 1 && value[n - 1] == extent);
        for (unsigned v = 1; v < n; v++)
            assert_true(value[v] > value[v - 1]);
    }
    ef_kgraph_free(graph);
    ef_ctx_free(ctx);
}

/* The columns of x wq are hk*g*d: all of them can be cut, not the 8 heads alone. */
static void side_by_side_variables_are_tiled_as_one(void **state)
{
    (void)state;
    ef_ctx *ctx = ef_ctx_new();
    ef_kgraph *graph = graph_of(ctx, "tests/programs/swa_gqa.ef");
    bool joined = false;
    for (uint32_t i = 0; i < graph->params.count; i++)
        if (graph->params.at[i].kind == EF_PARAM_TILE) {
            const ef_var_info *info = ef_var_at(ctx, ef_axis_var(graph->params.at[i].axis));
            joined = joined || (info->kind == EF_VAR_JOINED && info->extent == UINT64_C(8) * 4 * 128);
        }
    assert_true(joined);
    ef_kgraph_free(graph);
    ef_ctx_free(ctx);
}

/* The last projection is summed over parts of f, which the next kernel reads; that the first kernel stores columns of f
 * is another matter. */
static void kernels_that_do_not_count_tiles_have_their_own(void **state)
{
    (void)state;
    ef_ctx *ctx = ef_ctx_new();
    ef_kgraph *graph = graph_of(ctx, "tests/derivations/rmsnorm_swiglu_b16_split_last.ef");
    bool found[4] = {false}; /* by kernel; the last: for all */
    assert_int_equal(graph->kernels.count, 3);
    for (uint32_t i = 0; i < graph->params.count; i++) {
        const ef_kparam *p = &graph->params.at[i];
        bool of_f = p->kind == EF_PARAM_TILE && ef_axis_level(p->axis) == 0 &&
                    ef_var_at(ctx, ef_axis_var(p->axis))->extent == 11008;
        if (of_f)
            found[p->kernel == EF_NONE ? 3 : p->kernel] = true;
    }
    assert_true(found[0] && !found[1] && !found[2] && found[3]);
    ef_kgraph_free(graph);
    ef_ctx_free(ctx);
}

static void gpu_domains_fit_the_matrix_unit(void **state)
{
    (void)state;
    ef_ctx *ctx = ef_ctx_new();
    ef_kgraph *graph = graph_of(ctx, "tests/derivations/rmsnorm_mlp_b16_fused.ef");
    ef_schedule schedule = ef_schedule_default(graph, EF_BACKEND_TRITON, 0);
    for (uint32_t i = 0; i < graph->params.count; i++) {
        uint64_t value[EF_SCHEDULE_VALUES];
        unsigned n = ef_schedule_domain(graph, EF_BACKEND_TRITON, i, value), known = 0;
        ef_strbuf name = {0};
        ef_schedule_name(graph, i, &name);
        uint64_t least = strstr(name.text, "m.0") ? 1 : 16; /* of 16 rows a block may have one */
        ef_strbuf_free(&name);
        assert_true(n >= 1 && (graph->params.at[i].kind != EF_PARAM_TILE || value[0] == least));
        for (unsigned v = 0; v < n; v++)
            known += value[v] == schedule.value[i];
        assert_int_equal(known, 1); /* the first guess is legal */
    }
    ef_schedule_free(&schedule);
    ef_kgraph_free(graph);
    ef_ctx_free(ctx);
}

/* Least tiles of a product's rows, columns and inside: one row and four columns where there are few, 16 elements of the
 * others, which is one position of a variable that others stand behind. */
static void least_tiles_count_elements(void **state)
{
    static const char text[] = "program p\ndim m = 16\ndim a = 4\ndim k = 512\ndim n = 24\n"
                               "input x: f16[m, a*k]\ninput W: f16[a*k, n]\n"
                               "output y = combination[m.0, n.0](reduce[sum, a.1](tile_matmul(view[m.0, n.0, a.1](x), "
                               "view[m.0, n.0, a.1](W))))\n";
    static const struct {
        const char *name;
        uint64_t least;
    } known[] = {{"k0.m.0", 1}, {"k0.n.0", 4}, {"k0.a*k.1", 16}, {"k0.a.1", 1}};
    (void)state;
    unsigned seen = 0;
    ef_ctx *ctx = ef_ctx_new();
    ef_kgraph *graph = graph_of_text(ctx, text);
    for (uint32_t i = 0; i < graph->params.count; i++) {
        uint64_t value[EF_SCHEDULE_VALUES];
        ef_strbuf name = {0};
        ef_schedule_name(graph, i, &name);
        ef_schedule_domain(graph, EF_BACKEND_TRITON, i, value);
        for (unsigned k = 0; k < COUNT(known); k++)
            if (strcmp(name.text, known[k].name) == 0) {
                assert_int_equal(value[0], known[k].least);
                seen++;
            }
        ef_strbuf_free(&name);
    }
    assert_int_equal(seen, 3);
    ef_kgraph_free(graph);
    ef_ctx_free(ctx);
}

static void parameters_have_names(void **state)
{
    (void)state;
    ef_ctx *ctx = ef_ctx_new();
    ef_kgraph *graph = graph_of(ctx, "tests/derivations/mha_decode_b1_split.ef");
    ef_schedule schedule = ef_schedule_default(graph, EF_BACKEND_C, 2);
    static const char *const known[] = {"s.0", "k0.s.1", "k0.h.0", "k1.h.0", "k0.warps", "k1.stages"};
    for (unsigned i = 0; i < COUNT(known); i++) {
        ef_strbuf name = {0};
        uint32_t param = 0;
        assert_true(ef_schedule_set(graph, &schedule, known[i], (unsigned)strlen(known[i]), 77 + i));
        while (schedule.value[param] != 77 + i)
            param++;
        ef_schedule_name(graph, param, &name);
        assert_string_equal(name.text, known[i]);
        ef_strbuf_free(&name);
    }
    assert_true(ef_schedule_set(graph, &schedule, "h.0", 3, 5));
    assert_false(ef_schedule_set(graph, &schedule, "h.1", 3, 5));
    assert_false(ef_schedule_set(graph, &schedule, "k2.warps", 8, 5));
    ef_schedule_free(&schedule);
    ef_kgraph_free(graph);
    ef_ctx_free(ctx);
}

/* What a tuner tries is legal, and names are read as they are printed. */
static void domains_are_legal(void **state)
{
    (void)state;
    ef_ctx *ctx = ef_ctx_new();
    ef_kgraph *graph = graph_of(ctx, "tests/derivations/mha_decode_b1_split.ef");
    for (ef_backend backend = 0; backend < EF_BACKEND_COUNT; backend++)
        for (uint32_t i = 0; i < graph->params.count; i++) {
            uint64_t value[EF_SCHEDULE_VALUES];
            ef_param_kind kind = graph->params.at[i].kind, read = EF_PARAM_KINDS;
            uint32_t kernel = 0;
            ef_strbuf name = {0};
            for (unsigned v = 0, n = ef_schedule_domain(graph, backend, i, value); v < n; v++)
                assert_true(ef_schedule_legal(backend, kind, value[v]));
            ef_schedule_name(graph, i, &name);
            assert_true(ef_schedule_read_name(name.text, (unsigned)name.length, &read, &kernel));
            assert_true(read == kind && kernel == graph->params.at[i].kernel);
            ef_strbuf_free(&name);
        }
    static const char *const none[] = {"", "k0", "k0.", "k0.frob", "warp", "s", "s.2", ".0", "k0.k1.warps", "kx.load"};
    for (unsigned i = 0; i < COUNT(none); i++) {
        ef_param_kind kind;
        uint32_t kernel;
        assert_false(ef_schedule_read_name(none[i], (unsigned)strlen(none[i]), &kind, &kernel));
    }
    ef_kgraph_free(graph);
    ef_ctx_free(ctx);
}

static void illegal_values_are_none(void **state)
{
    (void)state;
    static const struct {
        ef_param_kind kind;
        uint64_t value;
    } odd[] = {{EF_PARAM_WARPS, 0},
               {EF_PARAM_WARPS, 3},
               {EF_PARAM_WARPS, 32},
               {EF_PARAM_STAGES, 0},
               {EF_PARAM_STAGES, 9},
               {EF_PARAM_UNIT, 2},
               {EF_PARAM_LOAD, 2},
               {EF_PARAM_GROUP, 0},
               {EF_PARAM_ORDER, 2},
               {EF_PARAM_PERSIST, 3},
               {EF_PARAM_OVERLAP, 7},
               {EF_PARAM_TILE, 0},
               {EF_PARAM_TILE, EF_MAX_EXTENT + 1}};
    for (unsigned i = 0; i < COUNT(odd); i++)
        assert_false(ef_schedule_legal(EF_BACKEND_TRITON, odd[i].kind, odd[i].value));
    for (ef_param_kind kind = 0; kind < EF_PARAM_KINDS; kind++)
        assert_false(ef_schedule_legal(EF_BACKEND_TRITON, kind, UINT64_MAX));
    assert_true(ef_schedule_legal(EF_BACKEND_TRITON, EF_PARAM_TILE, EF_MAX_EXTENT));
    assert_false(ef_schedule_legal(EF_BACKEND_C, EF_PARAM_WARPS, 4));
}

/* The same product of tensors of the same types, of other inputs and in another place of the program, is the same
 * kernel to a tuner; one of other types is not. */
static void a_kernel_is_what_it_does_to_types(void **state)
{
    static const char text[] = "program p\ndim m = 8\ndim k = 16\ndim n = 24\n"
                               "input x: f16[m, k]\ninput U: f16[k, n]\ninput V: f16[k, n]\ninput W: f16[n, k]\n"
                               "u = matmul(x, U)\nv = matmul(x, V)\nw = matmul(matmul(x, U), W)\n"
                               "output y = add(u, v)\noutput z = w\n";
    (void)state;
    ef_diag diag = {0};
    ef_ctx *ctx = ef_ctx_new();
    ef_program *program = ef_program_parse(ctx, text, sizeof text - 1, "t", &diag);
    ef_kgraph *graph = ef_kgraph_new(program, &diag);
    assert_non_null(graph);
    unsigned same = 0, products = 0;
    for (uint32_t i = 0; i < graph->kernels.count; i++)
        for (uint32_t k = 0; k < i; k++)
            same += ef_kgraph_kernel(graph, i) == ef_kgraph_kernel(graph, k);
    for (uint32_t i = 0; i < graph->kernels.count; i++)
        for (ef_kid id = 0; id < ef_kernel_nodes(graph->kernels.at[i]); id++)
            products += ef_kernel_node(graph->kernels.at[i], id)->op == EF_TILE_MATMUL;
    assert_int_equal(products, 3);
    assert_int_equal(same, 1); /* u and v; w has other types */
    ef_kgraph_free(graph);
    ef_program_free(program);
    ef_ctx_free(ctx);
}

/* What a store knows of narrow temporaries says nothing of wide ones. */
static void a_widened_family_is_another(void **state)
{
    static const char text[] = "program p\ndim m = 8\ndim k = 16\ndim n = 24\n"
                               "input x: f16[m, k]\ninput U: f16[k, n]\ninput W: f16[n, k]\n"
                               "output z = matmul(matmul(x, U), W)\n";
    (void)state;
    ef_diag diag = {0};
    ef_ctx *ctx = ef_ctx_new();
    ef_program *program = ef_program_parse(ctx, text, sizeof text - 1, "t", &diag);
    ef_families *families =
        ef_families_new(program, &(ef_families_options){.keep = 1, .backend = EF_BACKEND_C, .threads = 1}, &diag);
    assert_non_null(families);
    ef_family *f = &families->list.at[0];
    uint64_t narrow = f->hash, wide = ef_family_wide_hash(f);
    assert_true(narrow != wide);
    assert_true(ef_family_widen(f));
    assert_true(f->hash == wide && ef_family_wide_hash(f) == wide);
    assert_false(ef_family_widen(f));
    ef_families_free(families);
    ef_program_free(program);
    ef_ctx_free(ctx);
}

/* Among few families for a GPU are the ways to organise attention that differ: one kernel that rolls over the keys, and
 * parts of the keys that are merged. All of them can be printed and have room. */
static void few_families_differ(void **state)
{
    (void)state;
    ef_diag diag = {0};
    ef_ctx *ctx = ef_ctx_new();
    ef_program *program = ef_program_read(ctx, "tests/programs/mha_decode_b1.ef", &diag);
    assert_non_null(program);
    ef_families_options options = {
        .saturation_s = 20, .extraction_s = 20, .keep = 12, .backend = EF_BACKEND_TRITON, .target = "h200"};
    ef_families *families = ef_families_new(program, &options, &diag);
    assert_non_null(families);
    bool rolling = false, split = false;
    for (uint32_t i = 1; i < families->list.count; i++) {
        const ef_family *f = &families->list.at[i];
        const ef_kernel *first = f->graph->kernels.at[0];
        rolling = rolling || (f->graph->kernels.count == 1 && first->loops.count > 0);
        split = split || (f->graph->kernels.count == 2 && first->stores.count >= 3);
        ef_strbuf text = {0};
        if (!ef_codegen_triton(f->graph, &f->schedule, "f", &text, &diag))
            fail_msg("family %u: %s", i, diag.text);
        ef_strbuf_free(&text);
        for (uint32_t k = 0; k < f->graph->kernels.count; k++)
            assert_true(ef_room_fits(f->graph, &f->schedule, k, f->target));
    }
    assert_true(families->list.count == 12 && rolling && split);
    ef_families_free(families);
    ef_program_free(program);
    ef_ctx_free(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_kernel_is_what_it_does_to_types),
        cmocka_unit_test(a_widened_family_is_another),
        cmocka_unit_test(few_families_differ),
        cmocka_unit_test(generated_code_agrees_with_the_evaluator),
        cmocka_unit_test(functions_keep_infinities_and_nan),
        cmocka_unit_test(kernels_are_cut_at_combination_and_collection),
        cmocka_unit_test(the_tile_of_a_rolling_reduction_is_not_rescaled),
        cmocka_unit_test(masks_leave_out_tiles),
        cmocka_unit_test(long_chains_take_no_time),
        cmocka_unit_test(equal_kernels_have_one_code),
        cmocka_unit_test(many_kernels_of_other_sizes_have_one_code),
        cmocka_unit_test(shared_functions_have_room_for_each_kernel),
        cmocka_unit_test(functions_have_few_sizes),
        cmocka_unit_test(functions_have_room_on_a_stack),
        cmocka_unit_test(support_code_includes_little),
        cmocka_unit_test(kernels_that_share_tiles_are_one),
        cmocka_unit_test(single_numbers_are_computed_where_they_are_used),
        cmocka_unit_test(updates_are_computed_with_what_reads_them),
        cmocka_unit_test(small_kernels_stay_where_loops_are_too_many),
        cmocka_unit_test(conditions_are_needed),
        cmocka_unit_test(parts_that_see_nothing_are_not_there),
        cmocka_unit_test(a_family_is_a_structure_and_not_its_names),
        cmocka_unit_test(a_family_covers_what_its_schedules_reach),
        cmocka_unit_test(kernels_run_beside_longer_ones),
        cmocka_unit_test(inputs_are_loaded_ahead),
        cmocka_unit_test(kernels_let_the_next_one_begin),
        cmocka_unit_test(kernels_wait_before_the_next_one_begins),
        cmocka_unit_test(narrow_temporaries),
        cmocka_unit_test(nothing_is_stored_that_is_not_read),
        cmocka_unit_test(dead_buffers_are_used_again),
        cmocka_unit_test(side_by_side_variables_are_tiled_as_one),
        cmocka_unit_test(kernels_that_do_not_count_tiles_have_their_own),
        cmocka_unit_test(gpu_domains_fit_the_matrix_unit),
        cmocka_unit_test(least_tiles_count_elements),
        cmocka_unit_test(parameters_have_names),
        cmocka_unit_test(domains_are_legal),
        cmocka_unit_test(illegal_values_are_none),
        cmocka_unit_test(a_domain_has_powers_of_two_and_the_whole),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
