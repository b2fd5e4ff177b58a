/* Random programs: see generate.h. A value is known by its number and its shape; every step makes one from others. */
#include "generate.h"

#include <stdbool.h>
#include <string.h>

#include "support/rng.h"

#define COUNT(table) (sizeof(table) / sizeof *(table))
#define MAX_VALUES 64
#define MAX_RANK 4

enum { DIM_ONE, DIM_M, DIM_N, DIM_K, DIM_S, DIM_H, DIM_C, DIM_W, DIMS };
static const char *const dim_names[DIMS] = {"1", "m", "n", "k", "s", "h", "c", "w"};
#define SLICED(dim) ((dim) == DIM_C || (dim) == DIM_W)

typedef struct {
    unsigned rank, dim[MAX_RANK]; /* outermost first */
} shape;

typedef struct {
    ef_rng rng;
    ef_strbuf *text;
    shape value[MAX_VALUES];
    bool is_input[MAX_VALUES];
    unsigned count, inputs;
    unsigned extent[DIMS];
    const char *dtype; /* of most inputs */
} generator;

static unsigned below(generator *g, unsigned bound)
{
    return ef_rng_below(&g->rng, bound);
}

static void print_dims(generator *g, const shape *s)
{
    ef_strbuf_puts(g->text, "[");
    for (unsigned i = 0; i < s->rank; i++)
        ef_strbuf_printf(g->text, "%s%s", i ? ", " : "", dim_names[s->dim[i]]);
    ef_strbuf_puts(g->text, "]");
}

/* ---- values ---- */

static unsigned add(generator *g, shape s)
{
    g->value[g->count] = s;
    g->is_input[g->count] = false;
    return g->count++;
}

static unsigned input(generator *g, shape s, const char *name, const char *dtype)
{
    unsigned v = add(g, s);
    ef_strbuf_printf(g->text, "input %s%u: %s", name, v, dtype);
    print_dims(g, &s);
    ef_strbuf_printf(g->text, "\nv%u = %s%u\n", v, name, v);
    g->is_input[v] = true;
    g->inputs++;
    return v;
}

static unsigned new_input(generator *g, shape s)
{
    static const char *const other[] = {"f16", "bf16", "f32"};
    return input(g, s, "x", below(g, 5) ? g->dtype : other[below(g, 3)]);
}

static bool full(const generator *g)
{
    return g->count + 12 >= MAX_VALUES || g->inputs >= 7;
}

static unsigned recent(generator *g)
{
    return below(g, 3) ? g->count - 1 : below(g, g->count);
}

static bool has(const shape *s, unsigned dim)
{
    for (unsigned i = 0; i < s->rank; i++)
        if (s->dim[i] == dim)
            return true;
    return false;
}

/* A dimension that a shape does not have. */
static unsigned fresh_dim(generator *g, const shape *s)
{
    unsigned dim;
    do
        dim = 1 + below(g, DIMS - 1);
    while (has(s, dim));
    return dim;
}

static unsigned unary(generator *g, const char *op, unsigned a)
{
    unsigned v = add(g, g->value[a]);
    ef_strbuf_printf(g->text, "v%u = %s(v%u)\n", v, op, a);
    return v;
}

/* Where the i-th dimension from the last stands. */
static unsigned from_end(const shape *s, unsigned i)
{
    return (s->rank - 1 - i) % MAX_RANK;
}

static shape join(const shape *s, const shape *t)
{
    shape out = s->rank >= t->rank ? *s : *t;
    for (unsigned i = 0; i < s->rank && i < t->rank; i++) {
        unsigned x = s->dim[from_end(s, i)], y = t->dim[from_end(t, i)];
        out.dim[from_end(&out, i)] = x == DIM_ONE ? y : x;
    }
    return out;
}

static unsigned binary(generator *g, const char *op, unsigned a, unsigned b)
{
    unsigned v = add(g, join(&g->value[a], &g->value[b]));
    ef_strbuf_printf(g->text, "v%u = %s(v%u, v%u)\n", v, op, a, b);
    return v;
}

static unsigned with_number(generator *g, const char *op, unsigned a, const char *number)
{
    unsigned v = add(g, g->value[a]);
    ef_strbuf_printf(g->text, "v%u = %s(v%u, %s)\n", v, op, a, number);
    return v;
}

static unsigned reduce(generator *g, const char *reducer, unsigned a, unsigned from_last)
{
    shape s = g->value[a];
    s.dim[from_end(&s, from_last)] = DIM_ONE;
    unsigned v = add(g, s);
    ef_strbuf_printf(g->text, "v%u = reduce[%s, -%u](v%u)\n", v, reducer, from_last + 1, a);
    return v;
}

static bool broadcasts(const shape *a, const shape *b)
{
    for (unsigned i = 0; i < a->rank && i < b->rank; i++) {
        unsigned x = a->dim[from_end(a, i)], y = b->dim[from_end(b, i)];
        if (x != y && x != DIM_ONE && y != DIM_ONE)
            return false;
    }
    return true;
}

/* A value that meets `a`: an older one, or an input that lacks some of its dimensions. */
static unsigned partner(generator *g, unsigned a)
{
    for (unsigned tries = 0; tries < 6; tries++) {
        unsigned b = below(g, g->count);
        if (broadcasts(&g->value[a], &g->value[b]))
            return b;
    }
    if (g->inputs >= 7)
        return a;
    shape s = g->value[a];
    unsigned drop = s.rank ? below(g, s.rank) : 0;
    if (below(g, 2)) {
        s.rank -= drop;
        memmove(s.dim, s.dim + drop, s.rank * sizeof *s.dim);
    }
    for (unsigned i = 0; i < s.rank; i++)
        if (below(g, 4) == 0)
            s.dim[i] = DIM_ONE;
    return new_input(g, s);
}

/* ---- steps: each makes a value; false when it does not fit the shape ---- */

static bool step_unary(generator *g, unsigned a)
{
    static const char *const plain[] = {"neg", "tanh", "sigmoid", "abs", "erf", "sin", "cos"};
    static const char *const positive[] = {"log", "sqrt", "rsqrt", "recip", "log2"};
    switch (below(g, 4)) {
    case 0: unary(g, positive[below(g, 5)], with_number(g, "add", unary(g, "abs", a), "0.5")); break;
    case 1: unary(g, below(g, 2) ? "exp" : "exp2", unary(g, "neg", unary(g, "abs", a))); break;
    case 2: with_number(g, "pow", with_number(g, "add", unary(g, "abs", a), "0.5"), below(g, 2) ? "0.5" : "2"); break;
    default: unary(g, plain[below(g, 7)], a);
    }
    return true;
}

static bool step_binary(generator *g, unsigned a)
{
    static const char *const op[] = {"add", "sub", "mul", "mul", "max", "min"};
    unsigned b = partner(g, a);
    if (below(g, 6) == 0)
        binary(g, "div", a, with_number(g, "add", unary(g, "abs", b), "0.5"));
    else
        binary(g, op[below(g, 6)], a, b);
    return true;
}

static bool step_number(generator *g, unsigned a)
{
    static const char *const op[] = {"add", "mul", "sub", "div", "max"};
    static const char *const number[] = {"0.125", "2", "-1.5", "3", "0.7"};
    with_number(g, op[below(g, 5)], a, number[below(g, 5)]);
    return true;
}

/* Conditions are on inputs: a computed value that is rounded may fall on the other side. */
static bool step_select(generator *g, unsigned a)
{
    static const char *const op[] = {"lt", "le", "gt", "ge"};
    unsigned c = partner(g, a), b = 0;
    while (b < g->count &&
           !(g->is_input[b] && broadcasts(&g->value[a], &g->value[b]) && broadcasts(&g->value[c], &g->value[b])))
        b++;
    if (b == g->count)
        return false;
    shape all = join(&g->value[a], &g->value[b]);
    unsigned v = add(g, join(&all, &g->value[c]));
    ef_strbuf_printf(g->text, "v%u = select(%s(v%u, 0.25), v%u, v%u)\n", v, op[below(g, 4)], b, a, c);
    return true;
}

static bool step_matmul(generator *g, unsigned a)
{
    shape s = g->value[a];
    if (s.rank < 2 || g->inputs >= 7)
        return false;
    shape t = {.rank = 2, .dim = {s.dim[s.rank - 1], fresh_dim(g, &s)}};
    if (s.rank > 2 && below(g, 2)) { /* a batch of its own */
        t = (shape){.rank = 3, .dim = {s.dim[s.rank - 3], s.dim[s.rank - 1], t.dim[1]}};
    }
    unsigned b = new_input(g, t);
    s.dim[s.rank - 1] = t.dim[t.rank - 1];
    unsigned v = add(g, s);
    ef_strbuf_printf(g->text, "v%u = matmul(v%u, v%u)\n", v, a, b);
    return true;
}

static bool step_reduce(generator *g, unsigned a)
{
    static const char *const reducer[] = {"sum", "sum", "max", "min"};
    const shape *s = &g->value[a];
    if (s->rank == 0)
        return false;
    reduce(g, reducer[below(g, 4)], a, below(g, 3) ? 0 : below(g, s->rank));
    return true;
}

static unsigned softmax(generator *g, unsigned a)
{
    unsigned p = unary(g, "exp", binary(g, "sub", a, reduce(g, "max", a, 0)));
    return binary(g, "div", p, reduce(g, "sum", p, 0));
}

static bool step_softmax(generator *g, unsigned a)
{
    if (g->value[a].rank == 0)
        return false;
    softmax(g, a);
    return true;
}

static bool step_norm(generator *g, unsigned a)
{
    const shape *s = &g->value[a];
    if (s->rank == 0 || s->dim[s->rank - 1] == DIM_ONE)
        return false;
    bool centred = below(g, 2);
    if (centred)
        a = binary(g, "sub", a, with_number(g, "div", reduce(g, "sum", a, 0), "7"));
    unsigned square = with_number(g, "div", reduce(g, "sum", binary(g, "mul", a, a), 0), "7");
    a = binary(g, "mul", a, unary(g, "rsqrt", with_number(g, "add", square, "0.01")));
    if (centred) /* the sum of what is centred is 0: nothing but rounding */
        with_number(g, "add", a, "0.3");
    return true;
}

/* A value with itself: its dimensions meet themselves. */
static bool step_gram(generator *g, unsigned a)
{
    shape s = g->value[a];
    if (s.rank != 2)
        return false;
    s.dim[1] = DIM_ONE;
    unsigned v = add(g, s);
    ef_strbuf_printf(g->text, "v%u = reduce[%s, -1](matmul(v%u, transpose[1, 0](v%u)))\n", v,
                     below(g, 2) ? "sum" : "max", a, a);
    return true;
}

/* Attention of what is there over keys and values of its own, perhaps masked. */
static bool step_attention(generator *g, unsigned a)
{
    shape s = g->value[a];
    if (s.rank < 2 || g->inputs > 3 || has(&s, DIM_S) || s.dim[s.rank - 1] == DIM_ONE)
        return false;
    unsigned d = s.dim[s.rank - 1];
    shape keys = s, values = s, scores = s;
    keys.dim[s.rank - 2] = d, keys.dim[s.rank - 1] = DIM_S;
    values.dim[s.rank - 2] = DIM_S, scores.dim[s.rank - 1] = DIM_S;
    unsigned k = new_input(g, keys), v = new_input(g, values), sc = add(g, scores);
    ef_strbuf_printf(g->text, "v%u = matmul(v%u, v%u)\n", sc, a, k);
    sc = with_number(g, "mul", sc, "0.25");
    unsigned rows = s.dim[s.rank - 2], masked;
    switch (below(g, 4)) {
    case 0: /* causal */
        masked = add(g, scores);
        if (rows == DIM_ONE)
            ef_strbuf_printf(g->text, "v%u = select(ge(iota[s], 2), v%u, -inf)\n", masked, sc);
        else
            ef_strbuf_printf(g->text, "v%u = select(ge(reshape[%s, 1](iota[%s]), iota[s]), v%u, -inf)\n", masked,
                             dim_names[rows], dim_names[rows], sc);
        sc = masked;
        break;
    case 1: /* a mask that is added */
        sc = binary(g, "add", sc, input(g, (shape){.rank = 2, .dim = {rows, DIM_S}}, "mask", "f32"));
        break;
    default: break;
    }
    unsigned p = softmax(g, sc), out = add(g, s);
    ef_strbuf_printf(g->text, "v%u = matmul(v%u, v%u)\n", out, p, v);
    return true;
}

static bool step_positions(generator *g, unsigned a)
{
    const shape *s = &g->value[a];
    if (s->rank == 0 || s->dim[s->rank - 1] == DIM_ONE)
        return false;
    const char *last = dim_names[s->dim[s->rank - 1]];
    unsigned v = add(g, *s);
    if (below(g, 2))
        ef_strbuf_printf(g->text, "v%u = select(lt(mod(iota[%s], 3), 2), v%u, 0)\n", v, last, a);
    else
        ef_strbuf_printf(g->text, "v%u = mul(v%u, cos(mul(cast[f32](iota[%s]), 0.1)))\n", v, a, last);
    return true;
}

static bool step_transpose(generator *g, unsigned a)
{
    shape s = g->value[a];
    if (s.rank < 2)
        return false;
    unsigned i = below(g, s.rank), j = below(g, s.rank), dim = s.dim[i];
    s.dim[i] = s.dim[j];
    s.dim[j] = dim;
    unsigned v = add(g, s);
    ef_strbuf_printf(g->text, "v%u = transpose[", v);
    for (unsigned d = 0; d < s.rank; d++)
        ef_strbuf_printf(g->text, "%s%u", d ? ", " : "", d == i ? j : d == j ? i : d);
    ef_strbuf_printf(g->text, "](v%u)\n", a);
    return true;
}

/* Two dimensions merged, something done, and split again; or units put in or left out. */
static bool step_reshape(generator *g, unsigned a)
{
    static const char *const op[] = {"neg", "tanh", "abs"};
    shape s = g->value[a];
    if (s.rank < 2)
        return false;
    unsigned at = below(g, s.rank - 1), v = add(g, s);
    if (s.dim[at] == DIM_ONE || s.dim[at + 1] == DIM_ONE)
        return false;
    ef_strbuf_printf(g->text, "v%u = reshape", v);
    print_dims(g, &s);
    ef_strbuf_printf(g->text, "(%s(reshape[", op[below(g, 3)]);
    for (unsigned i = 0; i < s.rank; i++)
        ef_strbuf_printf(g->text, "%s%s", i == 0 ? "" : i == at + 1 ? "*" : ", ", dim_names[s.dim[i]]);
    ef_strbuf_printf(g->text, "](v%u)))\n", a);
    return true;
}

/* Halves of a dimension change places, one of them changed (rotary embedding). */
static bool step_rotate(generator *g, unsigned a)
{
    shape s = g->value[a];
    for (unsigned i = 0; i < s.rank; i++) {
        unsigned dim = s.dim[from_end(&s, i)];
        if (!SLICED(dim))
            continue;
        unsigned half = 1 + below(g, g->extent[dim] - 1), v = add(g, s);
        ef_strbuf_printf(g->text, "v%u = reshape", v);
        print_dims(g, &s);
        ef_strbuf_printf(g->text, "(concat[-%u](neg(slice[-%u, %u:%u](v%u)), slice[-%u, 0:%u](v%u)))\n", i + 1, i + 1,
                         half, g->extent[dim], a, i + 1, half, a);
        return true;
    }
    return false;
}

static bool step_broadcast(generator *g, unsigned a)
{
    shape s = g->value[a];
    for (unsigned i = 0; i < s.rank; i++)
        if (s.dim[i] == DIM_ONE)
            s.dim[i] = fresh_dim(g, &s);
    unsigned v = add(g, s);
    ef_strbuf_printf(g->text, "v%u = broadcast", v);
    print_dims(g, &s);
    ef_strbuf_printf(g->text, "(v%u)\n", a);
    return true;
}

/* ---- programs ---- */

typedef bool (*step)(generator *g, unsigned a);
static const step steps[] = {step_unary,     step_binary,    step_binary,  step_select,  step_gram,     step_number,
                             step_matmul,    step_matmul,    step_reduce,  step_softmax, step_norm,     step_attention,
                             step_positions, step_transpose, step_reshape, step_rotate,  step_broadcast};

static shape random_shape(generator *g)
{
    shape s = {.rank = 1 + below(g, MAX_RANK)};
    for (unsigned i = 0; i < s.rank; i++)
        s.dim[i] = DIM_ONE;
    for (unsigned i = 0; i < s.rank; i++)
        if (below(g, 8))
            s.dim[i] = fresh_dim(g, &s);
    return s;
}

void generate_program(uint64_t seed, ef_strbuf *text)
{
    static const char *const dtype[] = {"f16", "f16", "bf16", "f32"};
    generator g = {.rng = {seed}, .text = text};
    static const unsigned extents[] = {2, 3, 5, 7, 13, 17, 31, 4, 8, 16, 32, 6, 12};
    g.dtype = dtype[below(&g, 4)];
    ef_strbuf_puts(text, "program random\n");
    for (unsigned i = 1; i < DIMS; i++)
        ef_strbuf_printf(text, "dim %s = %u\n", dim_names[i], g.extent[i] = extents[below(&g, COUNT(extents))]);
    new_input(&g, random_shape(&g));
    unsigned wanted = 2 + below(&g, 6);
    for (unsigned made = 0; made < wanted && !full(&g);) {
        unsigned before = g.count, inputs = g.inputs;
        size_t length = text->length;
        if (steps[below(&g, COUNT(steps))](&g, recent(&g))) {
            made++;
        } else { /* what a step began and gave up */
            g.count = before;
            g.inputs = inputs;
            text->length = length;
            text->text[length] = 0;
        }
    }
    ef_strbuf_printf(text, "output o = v%u\n", g.count - 1);
    if (below(&g, 3) == 0)
        ef_strbuf_printf(text, "output p = v%u\n", below(&g, g.count));
}
