/* The evaluator (src/ir/eval.c): every operator against hand-written values or loops, and every tiled form of an
 * expression against its untiled form, for tile extents that divide, that do not, that are 1 and that are too large. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "ir/eval.h"
#include "support/rng.h"

/* ---- building expressions ---- */

typedef struct {
    ef_ctx *ctx;
    ef_dag *dag;
    uint64_t seed;
    int masked; /* rows and tiles of inputs named "mask…" are -inf: see fill */
} world;

static world world_new(void)
{
    world w = {.ctx = ef_ctx_new(), .seed = 1};
    w.dag = ef_dag_new(w.ctx);
    return w;
}

static void world_free(world *w)
{
    ef_dag_free(w->dag);
    ef_ctx_free(w->ctx);
}

/* Extent 1 is the unit dimension, which has no variable. */
static ef_dim dim(world *w, const char *name, uint64_t extent)
{
    return extent == 1 ? EF_UNIT
                       : ef_dim_of_var(w->ctx, ef_var_named(w->ctx, name, (unsigned)strlen(name), extent, NULL));
}

static ef_dim merge(world *w, ef_dim a, ef_dim b)
{
    const ef_var *x, *y;
    ef_var both[EF_MAX_ATOMS];
    unsigned nx = ef_dim_atoms(w->ctx, a, &x), ny = ef_dim_atoms(w->ctx, b, &y);
    memcpy(both, x, nx * sizeof *x);
    memcpy(both + nx, y, ny * sizeof *y);
    return ef_dim_product(w->ctx, both, nx + ny);
}

static ef_axis axis(world *w, ef_dim d, unsigned level)
{
    const ef_var *atoms;
    assert_true(ef_dim_atoms(w->ctx, d, &atoms) >= 1);
    return ef_axis_of(atoms[0], level);
}

#define DIMS(...) (ef_dim[]){__VA_ARGS__}, sizeof((ef_dim[]){__VA_ARGS__}) / sizeof(ef_dim)
#define AXES(...) (ef_axis[]){__VA_ARGS__}, sizeof((ef_axis[]){__VA_ARGS__}) / sizeof(ef_axis)

static ef_expr input_typed(world *w, const char *name, ef_dtype dtype, const ef_dim *dims, size_t rank)
{
    ef_type type = ef_type_tensor(w->ctx, dtype, dims, (unsigned)rank);
    return ef_dag_input(w->dag, ef_input_declare(w->ctx, name, (unsigned)strlen(name), type, NULL));
}

static ef_expr input(world *w, const char *name, const ef_dim *dims, size_t rank)
{
    return input_typed(w, name, EF_F64, dims, rank);
}

static ef_expr add(world *w, ef_op op, uint64_t attr, const ef_expr *x, unsigned count)
{
    ef_diag diag = {0};
    ef_expr e = ef_dag_add(w->dag, op, attr, x, count, &diag);
    if (e == EF_NONE)
        fail_msg("%s", diag.text);
    return e;
}

static ef_expr op1(world *w, ef_op op, ef_expr x)
{
    return add(w, op, 0, &x, 1);
}

static ef_expr op2(world *w, ef_op op, ef_expr x, ef_expr y)
{
    return add(w, op, 0, (ef_expr[]){x, y}, 2);
}

static ef_expr with(world *w, ef_op op, uint64_t attr, ef_expr x)
{
    return add(w, op, attr, &x, 1);
}

static ef_expr number(world *w, double value)
{
    return ef_dag_const(w->dag, value);
}

static ef_expr reduce(world *w, ef_reducer r, unsigned index, ef_expr x)
{
    return with(w, EF_REDUCE, ef_attr_reduce(r, index), x);
}

static ef_expr reduce_p(world *w, ef_reducer r, ef_axis p, ef_expr x)
{
    return with(w, EF_REDUCE_P, ef_attr_reduce(r, p), x);
}

static ef_expr view(world *w, ef_expr x, const ef_axis *axes, size_t count)
{
    return with(w, EF_VIEW, ef_axes_intern(w->ctx, axes, (unsigned)count), x);
}

static ef_expr combine(world *w, ef_expr x, const ef_axis *axes, size_t count)
{
    return with(w, EF_COMBINE, ef_axes_intern(w->ctx, axes, (unsigned)count), x);
}

static uint64_t dims_attr(world *w, const ef_dim *dims, size_t count)
{
    return ef_dims_intern(w->ctx, dims, (unsigned)count);
}

/* perm for a swap of the last two of `rank` dimensions. */
static uint64_t swap_last(unsigned rank)
{
    uint64_t perm = 0;
    for (unsigned i = 0; i < rank; i++)
        perm |= (uint64_t)(i == 0 ? 1 : i == 1 ? 0 : i) << (4 * i);
    return perm;
}

/* ---- evaluating ---- */

static uint64_t volume(const ef_tensor *t)
{
    uint64_t n = 1;
    for (unsigned d = 0; d < t->rank; d++)
        n *= t->extent[d];
    return n;
}

/* Normal random data. Inputs named "mask…" are 0 or -inf: row 0 all masked, row 1 the first half, row 2 the second
 * half, others at random. */
static void fill(void *user, uint32_t id, ef_tensor *out)
{
    const world *w = user;
    ef_rng rng = {w->seed * 1000 + id};
    int mask = strncmp(ef_input_name(w->ctx, id), "mask", 4) == 0;
    uint64_t columns = out->rank ? out->extent[out->rank - 1] : 1;
    for (uint64_t i = 0, n = volume(out); i < n; i++) {
        double x = ef_rng_normal(&rng);
        uint64_t row = i / columns, column = i % columns;
        int hidden = row == 0 || (row == 1 && column < columns / 2) || (row == 2 && column >= columns / 2) ||
                     (row > 2 && x > 0.5);
        out->data[i] = mask ? (w->masked && hidden ? -INFINITY : 0) : x;
    }
}

static ef_evaluation *eval_tiled(world *w, ef_expr e, const ef_tiling *tiling)
{
    ef_diag diag = {0};
    ef_evaluation *v = ef_evaluate(w->dag, &e, 1, tiling, fill, w, 0, &diag);
    if (!v)
        fail_msg("%s", diag.text);
    return v;
}

static ef_evaluation *eval(world *w, ef_expr e)
{
    return eval_tiled(w, e, NULL);
}

static const double *data(const ef_evaluation *v)
{
    return ef_evaluation_at(v, 0, 0)->data;
}

static void assert_near(double a, double b)
{
    if (!(a == b || (isnan(a) && isnan(b)) || fabs(a - b) <= 1e-12 * (1 + fabs(b))))
        fail_msg("%.17g is not %.17g", a, b);
}

static void assert_shape(const ef_tensor *t, const uint64_t *extent, unsigned rank)
{
    assert_int_equal(t->rank, rank);
    for (unsigned d = 0; d < rank; d++)
        assert_int_equal(t->extent[d], extent[d]);
}

#define SHAPE(...) (uint64_t[]){__VA_ARGS__}, sizeof((uint64_t[]){__VA_ARGS__}) / sizeof(uint64_t)

/* ---- tiled equals untiled ---- */

static const uint64_t tile_extents[] = {1, 2, 3, 4, 5, 7, 16};
#define TILES (sizeof tile_extents / sizeof *tile_extents)

/* Every combination of tile extents for these axes. */
static void assert_agree(world *w, ef_expr plain, ef_expr tiled, const ef_axis *axes, size_t count)
{
    assert_int_equal(ef_dag_type(w->dag, plain), ef_dag_type(w->dag, tiled));
    ef_evaluation *want = eval(w, plain);
    unsigned combinations = 1;
    for (size_t i = 0; i < count; i++)
        combinations *= TILES;
    for (unsigned c = 0; c < combinations; c++) {
        ef_tile tile[4];
        unsigned rest = c;
        for (size_t i = 0; i < count; i++, rest /= TILES)
            tile[i] = (ef_tile){axes[i], tile_extents[rest % TILES]};
        ef_tiling tiling = {tile, (unsigned)count, 1};
        ef_evaluation *got = eval_tiled(w, tiled, &tiling);
        double difference = ef_evaluation_difference(got, 0, want, 0, 1);
        if (!(difference <= 1e-12))
            fail_msg("differs by %g with tiles %u, %u, …", difference, (unsigned)tile[0].extent,
                     count > 1 ? (unsigned)tile[1].extent : 0);
        ef_evaluation_free(got);
    }
    ef_evaluation_free(want);
}

/* ---- operators ---- */

typedef struct {
    ef_op op;
    uint64_t attr;
    double x[3], want;
} pointwise_case;

static const pointwise_case pointwise_cases[] = {
    {EF_NEG, 0, {2}, -2},
    {EF_EXP, 0, {1}, 2.718281828459045},
    {EF_EXP2, 0, {3}, 8},
    {EF_LOG, 0, {2.718281828459045}, 1},
    {EF_LOG2, 0, {8}, 3},
    {EF_SQRT, 0, {9}, 3},
    {EF_RSQRT, 0, {4}, 0.5},
    {EF_RECIP, 0, {-8}, -0.125},
    {EF_TANH, 0, {1}, 0.7615941559557649},
    {EF_SIGMOID, 0, {0}, 0.5},
    {EF_ERF, 0, {1}, 0.8427007929497149},
    {EF_ABS, 0, {-3}, 3},
    {EF_SIN, 0, {1}, 0.8414709848078965},
    {EF_COS, 0, {1}, 0.5403023058681398},
    {EF_FLOOR, 0, {-1.5}, -2},
    {EF_NOT, 0, {0}, 1},
    {EF_CAST, EF_I32, {-2.7}, -2},
    {EF_CAST, EF_BOOL, {0.5}, 1},
    {EF_CAST, EF_F32, {0.1}, 0.1},
    {EF_ADD, 0, {2, 3}, 5},
    {EF_SUB, 0, {2, 3}, -1},
    {EF_MUL, 0, {2, 3}, 6},
    {EF_DIV, 0, {3, 2}, 1.5},
    {EF_POW, 0, {2, 10}, 1024},
    {EF_MOD, 0, {-3, 5}, 2},
    {EF_MOD, 0, {3, -5}, -2},
    {EF_MOD, 0, {-1, INFINITY}, INFINITY},
    {EF_FLOORDIV, 0, {-7, 2}, -4},
    {EF_FLOORDIV, 0, {6, -3}, -2},
    {EF_FLOORDIV, 0, {1, 0.1}, 9}, /* 0.1 is stored as a little more */
    {EF_FLOORDIV, 0, {-1, INFINITY}, -1},
    {EF_FLOORDIV, 0, {1, 0}, INFINITY},
    {EF_MAX, 0, {2, 3}, 3},
    {EF_MAX, 0, {NAN, 3}, NAN},
    {EF_MIN, 0, {2, 3}, 2},
    {EF_LT, 0, {2, 3}, 1},
    {EF_LE, 0, {3, 3}, 1},
    {EF_GT, 0, {2, 3}, 0},
    {EF_GE, 0, {2, 3}, 0},
    {EF_EQ, 0, {3, 3}, 1},
    {EF_NE, 0, {3, 3}, 0},
    {EF_AND, 0, {1, 0}, 0},
    {EF_OR, 0, {1, 0}, 1},
    {EF_SELECT, 0, {1, 5, 6}, 5},
    {EF_SELECT, 0, {0, 5, NAN}, NAN},
};

static void give_operand(void *user, uint32_t id, ef_tensor *out)
{
    for (uint64_t i = 0, n = volume(out); i < n; i++)
        out->data[i] = ((const double *)user)[id];
}

static void pointwise_operators(void **state)
{
    (void)state;
    static const char *const names[] = {"a", "b", "c"};
    bool tested[EF_OP_COUNT] = {0};
    for (size_t i = 0; i < sizeof pointwise_cases / sizeof *pointwise_cases; i++) {
        const pointwise_case *c = &pointwise_cases[i];
        bool logic = c->op == EF_AND || c->op == EF_OR || c->op == EF_NOT;
        world w = world_new();
        ef_dim n = dim(&w, "n", 3);
        ef_expr x[3];
        for (int k = 0; k < ef_ops[c->op].arity; k++)
            x[k] = input_typed(&w, names[k], logic || (c->op == EF_SELECT && k == 0) ? EF_BOOL : EF_F64, DIMS(n));
        ef_expr e = add(&w, c->op, c->attr, x, (unsigned)ef_ops[c->op].arity);
        ef_evaluation *v = ef_evaluate(w.dag, &e, 1, NULL, give_operand, (void *)c->x, 0, NULL);
        assert_non_null(v);
        assert_shape(ef_evaluation_at(v, 0, 0), SHAPE(3));
        for (int k = 0; k < 3; k++)
            assert_near(data(v)[k], c->want);
        tested[c->op] = true;
        ef_evaluation_free(v);
        world_free(&w);
    }
    for (int op = 0; op < EF_OP_COUNT; op++)
        assert_int_equal(tested[op], ef_op_pointwise((ef_op)op));
}

static void integers_divide_as_reals(void **state)
{
    (void)state;
    world w = world_new();
    ef_expr a = input_typed(&w, "a", EF_I32, NULL, 0), b = input_typed(&w, "b", EF_I32, NULL, 0);
    ef_expr e = op2(&w, EF_DIV, a, b);
    double x[] = {7, 2};
    ef_evaluation *v = ef_evaluate(w.dag, &e, 1, NULL, give_operand, x, 0, NULL);
    assert_near(data(v)[0], 3.5);
    ef_evaluation_free(v);
    world_free(&w);
}

static void broadcasting(void **state)
{
    (void)state;
    world w = world_new();
    ef_dim a = dim(&w, "a", 2), b = dim(&w, "b", 3), c = dim(&w, "c", 4);
    ef_expr x = input(&w, "x", DIMS(a, b, c)), y = input(&w, "y", DIMS(b, EF_UNIT)), z = input(&w, "z", DIMS(c));
    ef_expr r = input(&w, "r", NULL, 0);
    ef_expr e = op2(&w, EF_ADD, op2(&w, EF_MUL, y, x), op2(&w, EF_SUB, op2(&w, EF_MUL, z, r), number(&w, 2)));
    ef_evaluation *v = eval(&w, e), *vx = eval(&w, x), *vy = eval(&w, y), *vz = eval(&w, z), *vr = eval(&w, r);
    assert_shape(ef_evaluation_at(v, 0, 0), SHAPE(2, 3, 4));
    for (unsigned i = 0; i < 2 * 3 * 4; i++)
        assert_near(data(v)[i], data(vy)[i / 4 % 3] * data(vx)[i] + (data(vz)[i % 4] * data(vr)[0] - 2));
    ef_evaluation *all[] = {v, vx, vy, vz, vr};
    for (unsigned i = 0; i < 5; i++)
        ef_evaluation_free(all[i]);
    world_free(&w);
}

static void matmul_batched(void **state)
{
    (void)state;
    world w = world_new();
    ef_dim g = dim(&w, "g", 2), h = dim(&w, "h", 3), m = dim(&w, "m", 4), k = dim(&w, "k", 5), n = dim(&w, "n", 2);
    ef_expr a = input(&w, "a", DIMS(g, EF_UNIT, m, k)), b = input(&w, "b", DIMS(h, k, n));
    ef_evaluation *v = eval(&w, op2(&w, EF_MATMUL, a, b)), *va = eval(&w, a), *vb = eval(&w, b);
    assert_shape(ef_evaluation_at(v, 0, 0), SHAPE(2, 3, 4, 2));
    for (unsigned ig = 0; ig < 2; ig++)
        for (unsigned ih = 0; ih < 3; ih++)
            for (unsigned i = 0; i < 4; i++)
                for (unsigned j = 0; j < 2; j++) {
                    double sum = 0;
                    for (unsigned l = 0; l < 5; l++)
                        sum += data(va)[(ig * 4 + i) * 5 + l] * data(vb)[(ih * 5 + l) * 2 + j];
                    assert_near(data(v)[((ig * 3 + ih) * 4 + i) * 2 + j], sum);
                }
    ef_evaluation_free(v);
    ef_evaluation_free(va);
    ef_evaluation_free(vb);
    world_free(&w);
}

static void matmul_of_zero_and_infinity_is_nan(void **state)
{
    (void)state;
    world w = world_new();
    ef_dim m = dim(&w, "m", 2), k = dim(&w, "k", 3), n = dim(&w, "n", 2);
    ef_expr a = input(&w, "a", DIMS(m, k)), b = input(&w, "b", DIMS(k, n)), e = op2(&w, EF_MATMUL, a, b);
    double cases[][2] = {{0, INFINITY}, {-INFINITY, 0}};
    for (unsigned c = 0; c < 2; c++) {
        ef_evaluation *v = ef_evaluate(w.dag, &e, 1, NULL, give_operand, cases[c], 0, NULL);
        assert_true(isnan(data(v)[0]));
        ef_evaluation_free(v);
    }
    world_free(&w);
}

static double fold_loop(ef_reducer r, const double *x, unsigned count, unsigned step)
{
    double s = r == EF_RED_SUM ? 0 : r == EF_RED_PROD ? 1 : x[0];
    for (unsigned i = 0; i < count; i++) {
        double v = x[i * step];
        s = r == EF_RED_SUM ? s + v : r == EF_RED_PROD ? s * v : r == EF_RED_MAX ? fmax(s, v) : fmin(s, v);
    }
    return s;
}

static void reduce_every_dimension(void **state)
{
    (void)state;
    static const unsigned extent[] = {3, 4, 5}; /* from the last */
    world w = world_new();
    ef_expr x = input(&w, "x", DIMS(dim(&w, "a", 5), dim(&w, "b", 4), dim(&w, "c", 3)));
    ef_evaluation *vx = eval(&w, x);
    for (ef_reducer r = EF_RED_SUM; r <= EF_RED_PROD; r++)
        for (unsigned index = 0, step = 1; index < 3; step *= extent[index++]) {
            ef_evaluation *v = eval(&w, reduce(&w, r, index, x));
            uint64_t shape[] = {5, 4, 3};
            shape[2 - index] = 1;
            assert_shape(ef_evaluation_at(v, 0, 0), shape, 3);
            for (unsigned i = 0; i < 60 / extent[index]; i++) {
                const double *first = data(vx) + i / step * step * extent[index] + i % step;
                assert_near(data(v)[i], fold_loop(r, first, extent[index], step));
            }
            ef_evaluation_free(v);
        }
    ef_evaluation_free(vx);
    world_free(&w);
}

static void reshape_transpose_slice(void **state)
{
    (void)state;
    world w = world_new();
    ef_dim a = dim(&w, "a", 2), b = dim(&w, "b", 3), c = dim(&w, "c", 4);
    ef_expr x = input(&w, "x", DIMS(a, b, c));
    ef_evaluation *vx = eval(&w, x), *v;
    const double *px = data(vx);

    v = eval(&w, with(&w, EF_RESHAPE, dims_attr(&w, DIMS(merge(&w, a, b), c, EF_UNIT)), x));
    assert_shape(ef_evaluation_at(v, 0, 0), SHAPE(6, 4, 1));
    assert_memory_equal(data(v), px, 24 * sizeof *px);
    ef_evaluation_free(v);

    v = eval(&w, with(&w, EF_TRANSPOSE, 2 | 0 << 4 | 1 << 8, x)); /* last <- a, then c, then b: [b, c, a] */
    assert_shape(ef_evaluation_at(v, 0, 0), SHAPE(3, 4, 2));
    for (unsigned i = 0; i < 24; i++)
        assert_near(data(v)[i], px[(i % 2 * 3 + i / 8) * 4 + i / 2 % 4]);
    ef_evaluation_free(v);

    v = eval(&w, with(&w, EF_SLICE, ef_attr_slice(1, 1, 3), x));
    assert_shape(ef_evaluation_at(v, 0, 0), SHAPE(2, 2, 4));
    for (unsigned i = 0; i < 16; i++)
        assert_near(data(v)[i], px[(i / 8 * 3 + 1 + i / 4 % 2) * 4 + i % 4]);
    ef_evaluation_free(v);

    ef_evaluation_free(vx);
    world_free(&w);
}

static void concat_broadcast_iota(void **state)
{
    (void)state;
    world w = world_new();
    ef_dim a = dim(&w, "a", 2), b = dim(&w, "b", 3), c = dim(&w, "c", 4);
    ef_expr x = input(&w, "x", DIMS(a, b, c)), y = input(&w, "y", DIMS(b, EF_UNIT)), z = input(&w, "z", DIMS(a, c, c));
    ef_evaluation *vx = eval(&w, x), *vy = eval(&w, y), *vz = eval(&w, z), *v;
    const double *px = data(vx), *py = data(vy), *pz = data(vz);

    v = eval(&w, add(&w, EF_CONCAT, 1, (ef_expr[]){x, z, x}, 3));
    assert_shape(ef_evaluation_at(v, 0, 0), SHAPE(2, 10, 4));
    for (unsigned i = 0; i < 80; i++) {
        unsigned ia = i / 40, ib = i / 4 % 10, ic = i % 4;
        double want = ib < 3   ? px[(ia * 3 + ib) * 4 + ic]
                      : ib < 7 ? pz[(ia * 4 + ib - 3) * 4 + ic]
                               : px[(ia * 3 + ib - 7) * 4 + ic];
        assert_near(data(v)[i], want);
    }
    ef_evaluation_free(v);

    v = eval(&w, with(&w, EF_BROADCAST, dims_attr(&w, DIMS(a, b, c)), y));
    assert_shape(ef_evaluation_at(v, 0, 0), SHAPE(2, 3, 4));
    for (unsigned i = 0; i < 24; i++)
        assert_near(data(v)[i], py[i / 4 % 3]);
    ef_evaluation_free(v);

    v = eval(&w, add(&w, EF_IOTA, c, NULL, 0));
    assert_shape(ef_evaluation_at(v, 0, 0), SHAPE(4));
    for (unsigned i = 0; i < 4; i++)
        assert_near(data(v)[i], i);
    ef_evaluation_free(v);

    ef_evaluation_free(vx);
    ef_evaluation_free(vy);
    ef_evaluation_free(vz);
    world_free(&w);
}

static void tuples(void **state)
{
    (void)state;
    world w = world_new();
    ef_dim a = dim(&w, "a", 2), b = dim(&w, "b", 3);
    ef_expr x = input(&w, "x", DIMS(a)), y = input(&w, "y", DIMS(b)), z = input(&w, "z", NULL, 0);
    ef_expr inner = add(&w, EF_TUPLE, 0, (ef_expr[]){y, z}, 2), t = add(&w, EF_TUPLE, 0, (ef_expr[]){x, inner}, 2);
    ef_expr back = with(&w, EF_GET, 1, with(&w, EF_GET, 1, t));
    ef_expr roots[] = {t, back, z};
    ef_evaluation *v = ef_evaluate(w.dag, roots, 3, NULL, fill, &w, 0, NULL);
    assert_int_equal(ef_evaluation_count(v, 0), 3);
    assert_shape(ef_evaluation_at(v, 0, 0), SHAPE(2));
    assert_shape(ef_evaluation_at(v, 0, 1), SHAPE(3));
    assert_int_equal(ef_evaluation_at(v, 0, 2)->rank, 0);
    assert_true(ef_evaluation_difference(v, 1, v, 2, 0) == 0);
    assert_true(ef_evaluation_difference(v, 0, v, 2, 0) == INFINITY);
    ef_evaluation_free(v);
    world_free(&w);
}

/* ---- views ---- */

static void view_lists_coordinates_in_order(void **state)
{
    (void)state;
    world w = world_new();
    ef_dim m = dim(&w, "m", 5), n = dim(&w, "n", 7), r = dim(&w, "r", 4);
    ef_expr x = input(&w, "x", DIMS(m, n));
    ef_axis axes[] = {axis(&w, m, 0), axis(&w, n, 0), axis(&w, r, 0), axis(&w, n, 1)};
    ef_tile tiles[] = {{axes[0], 3}, {axes[1], 5}, {axes[2], 2}, {axes[3], 2}};
    ef_tiling tiling = {tiles, 4, 1};
    ef_evaluation *v = eval_tiled(&w, view(&w, x, axes, 4), &tiling), *vx = eval(&w, x);
    assert_int_equal(ef_evaluation_count(v, 0), 2 * 2 * 2 * 3);
    for (unsigned c = 0; c < 24; c++) { /* m.0, n.0, r.0, n.1 */
        unsigned m0 = c / 12 * 3, rows = c / 12 ? 2 : 3, block = c / 6 % 2, tile = c % 3;
        unsigned length = block ? (tile == 0 ? 2 : 0) : (tile == 2 ? 1 : 2); /* the last block is short: 2 of 5 */
        const ef_tensor *t = ef_evaluation_at(v, 0, c);
        assert_shape(t, SHAPE(rows, length));
        for (unsigned i = 0; i < rows * length; i++)
            assert_near(t->data[i], data(vx)[(m0 + i / length) * 7 + block * 5 + tile * 2 + i % length]);
    }
    ef_evaluation_free(v);
    ef_evaluation_free(vx);
    world_free(&w);
}

static void view_of_a_merged_dimension_cuts_its_first_variable(void **state)
{
    (void)state;
    world w = world_new();
    ef_dim h = dim(&w, "h", 3), d = dim(&w, "d", 4);
    ef_expr x = input(&w, "x", DIMS(merge(&w, h, d)));
    ef_tile tile = {axis(&w, h, 0), 2};
    ef_evaluation *v = eval_tiled(&w, view(&w, x, AXES(tile.axis)), &(ef_tiling){&tile, 1, 1}), *vx = eval(&w, x);
    assert_int_equal(ef_evaluation_count(v, 0), 2);
    assert_shape(ef_evaluation_at(v, 0, 0), SHAPE(8));
    assert_shape(ef_evaluation_at(v, 0, 1), SHAPE(4));
    assert_memory_equal(ef_evaluation_at(v, 0, 1)->data, data(vx) + 8, 4 * sizeof(double));
    ef_evaluation_free(v);
    ef_evaluation_free(vx);
    world_free(&w);
}

/* The leaves of a tuple have their own scopes; the list runs over the coordinates of all of them, leaves innermost. */
static void tuples_of_tiles_list_leaves_innermost(void **state)
{
    (void)state;
    world w = world_new();
    ef_dim m = dim(&w, "m", 5), n = dim(&w, "n", 3);
    ef_axis m0 = axis(&w, m, 0), n0 = axis(&w, n, 0);
    ef_expr x = input(&w, "x", DIMS(m)), y = input(&w, "y", DIMS(n)), z = input(&w, "z", NULL, 0);
    ef_expr t = add(&w, EF_TUPLE, 0, (ef_expr[]){view(&w, y, AXES(n0)), view(&w, x, AXES(m0, n0)), z}, 3);
    ef_tile tiles[] = {{m0, 2}, {n0, 1}};
    ef_evaluation *v = eval_tiled(&w, t, &(ef_tiling){tiles, 2, 1}), *vx = eval(&w, x), *vy = eval(&w, y);
    assert_int_equal(ef_evaluation_count(v, 0), 3 * 3 * 3);
    for (unsigned i = 0; i < 9; i++) {
        assert_near(ef_evaluation_at(v, 0, 3 * i)->data[0], data(vy)[i % 3]);
        assert_near(ef_evaluation_at(v, 0, 3 * i + 1)->data[0], data(vx)[i / 3 * 2]);
        assert_int_equal(ef_evaluation_at(v, 0, 3 * i + 2)->rank, 0);
    }
    ef_evaluation_free(v);
    ef_evaluation_free(vx);
    ef_evaluation_free(vy);
    world_free(&w);
}

static void combination_undoes_partition(void **state)
{
    (void)state;
    world w = world_new();
    ef_dim m = dim(&w, "m", 5), n = dim(&w, "n", 6);
    ef_axis m0 = axis(&w, m, 0), n0 = axis(&w, n, 0), n1 = axis(&w, n, 1);
    ef_expr x = input(&w, "x", DIMS(m, n));
    assert_agree(&w, x, combine(&w, view(&w, x, AXES(m0)), AXES(m0)), AXES(m0));
    assert_agree(&w, x, combine(&w, view(&w, x, AXES(n1)), AXES(n1)), AXES(n1));
    assert_agree(&w, x, combine(&w, view(&w, x, AXES(n0, n1)), AXES(n0, n1)), AXES(n0, n1));
    ef_expr part = combine(&w, view(&w, x, AXES(m0, n0, n1)), AXES(n1));
    assert_agree(&w, x, combine(&w, combine(&w, part, AXES(n0)), AXES(m0)), AXES(m0, n0, n1));
    world_free(&w);
}

static void pointwise_tiles(void **state)
{
    (void)state;
    world w = world_new();
    ef_dim b = dim(&w, "b", 2), m = dim(&w, "m", 5), n = dim(&w, "n", 6);
    ef_axis b0 = axis(&w, b, 0), m0 = axis(&w, m, 0), n0 = axis(&w, n, 0);
    ef_expr x = input(&w, "x", DIMS(b, m, n)), y = input(&w, "y", DIMS(m, EF_UNIT)), z = input(&w, "z", DIMS(n));
    ef_expr plain = op1(&w, EF_EXP, op2(&w, EF_ADD, op2(&w, EF_MUL, x, y), op2(&w, EF_MUL, z, number(&w, 0.5))));
    ef_axis axes[] = {b0, m0, n0};
    ef_expr tx = view(&w, x, axes, 3), ty = view(&w, y, axes, 3), tz = view(&w, z, axes, 3);
    ef_expr tiled = op1(&w, EF_EXP, op2(&w, EF_ADD, op2(&w, EF_MUL, tx, ty), op2(&w, EF_MUL, tz, number(&w, 0.5))));
    assert_agree(&w, plain, combine(&w, tiled, axes, 3), axes, 3);
    world_free(&w);
}

static void shapes_under_views(void **state)
{
    (void)state;
    world w = world_new();
    ef_dim s = dim(&w, "s", 5), h = dim(&w, "h", 3), d = dim(&w, "d", 4);
    ef_axis s0 = axis(&w, s, 0), h0 = axis(&w, h, 0);
    ef_axis axes[] = {s0, h0};
    ef_expr x = input(&w, "x", DIMS(s, merge(&w, h, d)));
    uint64_t split = dims_attr(&w, DIMS(s, h, d)), heads_first = 0 | 2 << 4 | 1 << 8;
    ef_expr tx = view(&w, x, axes, 2);
    ef_expr plain = with(&w, EF_TRANSPOSE, heads_first, with(&w, EF_RESHAPE, split, x));
    ef_expr tiled = with(&w, EF_TRANSPOSE, heads_first, with(&w, EF_RESHAPE, split, tx));
    assert_agree(&w, plain, combine(&w, tiled, axes, 2), axes, 2);

    ef_expr left = with(&w, EF_SLICE, ef_attr_slice(0, 0, 1), plain),
            right = with(&w, EF_SLICE, ef_attr_slice(0, 1, 4), plain);
    ef_expr rotated = add(&w, EF_CONCAT, 0, (ef_expr[]){right, left}, 2);
    ef_expr tleft = with(&w, EF_SLICE, ef_attr_slice(0, 0, 1), tiled),
            tright = with(&w, EF_SLICE, ef_attr_slice(0, 1, 4), tiled);
    ef_expr trotated = add(&w, EF_CONCAT, 0, (ef_expr[]){tright, tleft}, 2);
    assert_agree(&w, rotated, combine(&w, trotated, axes, 2), axes, 2);

    /* back to merged heads: the merge keeps the cut variable first */
    uint64_t merged = dims_attr(&w, DIMS(s, merge(&w, h, d)));
    ef_expr back = with(&w, EF_RESHAPE, merged, with(&w, EF_TRANSPOSE, heads_first, tiled));
    assert_agree(&w, x, combine(&w, back, axes, 2), axes, 2);

    ef_dim e = dim(&w, "e", 2);
    uint64_t wide = dims_attr(&w, DIMS(e, s, merge(&w, h, d)));
    assert_agree(&w, with(&w, EF_BROADCAST, wide, x), combine(&w, with(&w, EF_BROADCAST, wide, tx), axes, 2), axes, 2);
    world_free(&w);
}

/* ---- matmul and reductions by tiles ---- */

static void matmul_splits(void **state)
{
    (void)state;
    world w = world_new();
    ef_dim m = dim(&w, "m", 5), n = dim(&w, "n", 4), k = dim(&w, "k", 6);
    ef_axis m0 = axis(&w, m, 0), n0 = axis(&w, n, 0), k0 = axis(&w, k, 0);
    ef_expr a = input(&w, "a", DIMS(m, k)), b = input(&w, "b", DIMS(k, n)), plain = op2(&w, EF_MATMUL, a, b);
    for (unsigned set = 1; set < 8; set++) {
        ef_axis axes[3], kept[2];
        unsigned count = 0, outputs = 0;
        if (set & 1)
            axes[count++] = kept[outputs++] = m0;
        if (set & 2)
            axes[count++] = kept[outputs++] = n0;
        if (set & 4)
            axes[count++] = k0;
        ef_expr tiled = op2(&w, EF_TILE_MATMUL, view(&w, a, axes, count), view(&w, b, axes, count));
        if (set & 4)
            tiled = reduce_p(&w, EF_RED_SUM, k0, tiled);
        if (outputs)
            tiled = combine(&w, tiled, kept, outputs);
        assert_agree(&w, plain, tiled, axes, count);
    }
    world_free(&w);
}

static void matmul_batch_split(void **state)
{
    (void)state;
    world w = world_new();
    ef_dim b = dim(&w, "b", 3), h = dim(&w, "h", 5), m = dim(&w, "m", 2), n = dim(&w, "n", 3), k = dim(&w, "k", 2);
    ef_axis axes[] = {axis(&w, b, 0), axis(&w, h, 0)};
    ef_expr x = input(&w, "x", DIMS(b, h, m, k)), y = input(&w, "y", DIMS(h, k, n)),
            z = input(&w, "z", DIMS(b, EF_UNIT, k, n));
    ef_expr tx = view(&w, x, axes, 2);
    assert_agree(&w, op2(&w, EF_MATMUL, x, y), combine(&w, op2(&w, EF_MATMUL, tx, view(&w, y, axes, 2)), axes, 2), axes,
                 2);
    assert_agree(&w, op2(&w, EF_MATMUL, x, z), combine(&w, op2(&w, EF_TILE_MATMUL, tx, view(&w, z, axes, 2)), axes, 2),
                 axes, 2);
    world_free(&w);
}

static void matmul_two_levels_and_split_k(void **state)
{
    (void)state;
    world w = world_new();
    ef_dim m = dim(&w, "m", 3), n = dim(&w, "n", 2), k = dim(&w, "k", 11);
    ef_axis m0 = axis(&w, m, 0), k0 = axis(&w, k, 0), k1 = axis(&w, k, 1);
    ef_axis axes[] = {m0, k0, k1};
    ef_expr a = input(&w, "a", DIMS(m, k)), b = input(&w, "b", DIMS(k, n)), plain = op2(&w, EF_MATMUL, a, b);
    ef_expr tile = op2(&w, EF_TILE_MATMUL, view(&w, a, axes, 3), view(&w, b, axes, 3));
    ef_expr block = reduce_p(&w, EF_RED_SUM, k1, tile);
    assert_agree(&w, plain, combine(&w, reduce_p(&w, EF_RED_SUM, k0, block), AXES(m0)), axes, 3);
    ef_expr stored = combine(&w, with(&w, EF_COLLECT, k0, block), AXES(m0));
    assert_agree(&w, plain, reduce(&w, EF_RED_SUM, EF_FIRST, stored), axes, 3);
    ef_expr kept = with(&w, EF_COLLECT, k0, block); /* the collection is reduced while rows are still tiles */
    assert_agree(&w, plain, combine(&w, reduce(&w, EF_RED_SUM, EF_FIRST, kept), AXES(m0)), axes, 3);
    world_free(&w);
}

static void row_reductions(void **state)
{
    (void)state;
    for (ef_reducer r = EF_RED_SUM; r <= EF_RED_PROD; r++) {
        world w = world_new();
        ef_dim m = dim(&w, "m", 3), k = dim(&w, "k", 11);
        ef_axis m0 = axis(&w, m, 0), k0 = axis(&w, k, 0), k1 = axis(&w, k, 1);
        ef_expr x = input(&w, "x", DIMS(m, k)), plain = reduce(&w, r, 0, x), columns = reduce(&w, r, 1, x);
        ef_expr rows = combine(&w, reduce(&w, r, 0, view(&w, x, AXES(m0))), AXES(m0));
        assert_agree(&w, plain, rows, AXES(m0));
        for (unsigned level = 0; level < 2; level++) {
            ef_axis p = axis(&w, k, level);
            assert_agree(&w, plain, reduce_p(&w, r, p, reduce(&w, r, 0, view(&w, x, AXES(p)))), AXES(p));
            assert_agree(&w, columns, combine(&w, reduce(&w, r, 1, view(&w, x, AXES(p))), AXES(p)), AXES(p));
        }
        ef_expr tile = reduce(&w, r, 0, view(&w, x, AXES(m0, k0, k1)));
        ef_expr both = reduce_p(&w, r, k0, reduce_p(&w, r, k1, tile));
        assert_agree(&w, plain, combine(&w, both, AXES(m0)), AXES(m0, k0, k1));
        ef_expr inner = with(&w, EF_COLLECT, k1, tile); /* the loop's results stored, then both reduced */
        both = reduce_p(&w, r, k0, reduce(&w, r, EF_FIRST, inner));
        assert_agree(&w, plain, combine(&w, both, AXES(m0)), AXES(m0, k0, k1));
        world_free(&w);
    }
}

static void replicated_values_meet_tiles(void **state)
{
    (void)state;
    world w = world_new();
    ef_dim m = dim(&w, "m", 3), k = dim(&w, "k", 7);
    ef_axis k0 = axis(&w, k, 0), k1 = axis(&w, k, 1);
    ef_axis axes[] = {k0, k1};
    ef_expr x = input(&w, "x", DIMS(m, k)), mean = op2(&w, EF_DIV, reduce(&w, EF_RED_SUM, 0, x), number(&w, 7));
    ef_expr centred = op2(&w, EF_SUB, x, mean);
    ef_expr plain = reduce(&w, EF_RED_SUM, 0, op2(&w, EF_MUL, centred, centred));
    ef_expr tile = op2(&w, EF_SUB, view(&w, x, axes, 2), view(&w, mean, axes, 2));
    ef_expr sums = reduce_p(&w, EF_RED_SUM, k1, reduce(&w, EF_RED_SUM, 0, op2(&w, EF_MUL, tile, tile)));
    assert_agree(&w, plain, reduce_p(&w, EF_RED_SUM, k0, sums), axes, 2);
    world_free(&w);
}

/* ---- reducers over tuples ---- */

static void product_reducer(void **state)
{
    (void)state;
    world w = world_new();
    ef_dim m = dim(&w, "m", 3), k = dim(&w, "k", 7), e = dim(&w, "e", 2);
    ef_axis k0 = axis(&w, k, 0);
    ef_expr x = input(&w, "x", DIMS(m, k)), v = input(&w, "v", DIMS(k, e));
    ef_expr plain = add(&w, EF_TUPLE, 0, (ef_expr[]){reduce(&w, EF_RED_MIN, 0, x), op2(&w, EF_MATMUL, x, v)}, 2);
    ef_expr tx = view(&w, x, AXES(k0)), tv = view(&w, v, AXES(k0));
    ef_expr tile = add(&w, EF_TUPLE, 0, (ef_expr[]){reduce(&w, EF_RED_MIN, 0, tx), op2(&w, EF_TILE_MATMUL, tx, tv)}, 2);
    ef_reducer both = ef_reducer_product(w.ctx, EF_RED_MIN, EF_RED_SUM);
    assert_agree(&w, plain, reduce_p(&w, both, k0, tile), AXES(k0));
    assert_agree(&w, plain, reduce(&w, both, EF_FIRST, with(&w, EF_COLLECT, k0, tile)), AXES(k0));
    world_free(&w);
}

/* repaired(max, product(sum, sum)) with h = mul(c, exp(sub(s, t))) for both leaves: online softmax. */
static ef_reducer online_softmax(world *w)
{
    ef_scalar c = ef_scalar_param(w->ctx, EF_PARAM_C, 0), s = ef_scalar_param(w->ctx, EF_PARAM_S, 0);
    ef_scalar t = ef_scalar_param(w->ctx, EF_PARAM_T, 0);
    ef_scalar drop =
        ef_scalar_apply(w->ctx, EF_EXP, (ef_scalar[]){ef_scalar_apply(w->ctx, EF_SUB, (ef_scalar[]){s, t})});
    ef_scalar h = ef_scalar_apply(w->ctx, EF_MUL, (ef_scalar[]){c, drop});
    ef_reducer sums = ef_reducer_product(w->ctx, EF_RED_SUM, EF_RED_SUM);
    return ef_reducer_repaired(w->ctx, EF_RED_MAX, sums, (ef_scalar[]){h, h});
}

/* (max, (sum exp, exp @ v)) of scores along the keys; `op` is matmul or tile_matmul. */
static ef_expr softmax_state(world *w, ef_op op, ef_expr scores, ef_expr v)
{
    ef_expr max = reduce(w, EF_RED_MAX, 0, scores), p = op1(w, EF_EXP, op2(w, EF_SUB, scores, max));
    ef_expr sums = add(w, EF_TUPLE, 0, (ef_expr[]){reduce(w, EF_RED_SUM, 0, p), op2(w, op, p, v)}, 2);
    return add(w, EF_TUPLE, 0, (ef_expr[]){max, sums}, 2);
}

static ef_expr normalised(world *w, ef_expr softmax)
{
    ef_expr sums = with(w, EF_GET, 1, softmax);
    return op2(w, EF_DIV, with(w, EF_GET, 1, sums), with(w, EF_GET, 0, sums));
}

static void online_softmax_equals_softmax(void **state)
{
    (void)state;
    world w = world_new();
    ef_reducer online = online_softmax(&w);
    ef_dim q = dim(&w, "q", 5), k = dim(&w, "k", 9), e = dim(&w, "e", 2);
    ef_axis q0 = axis(&w, q, 0), k0 = axis(&w, k, 0), k1 = axis(&w, k, 1);
    ef_axis axes[] = {q0, k0, k1};
    ef_expr s = input(&w, "s", DIMS(q, k)), mask = input(&w, "mask", DIMS(q, k)), v = input(&w, "v", DIMS(k, e));
    ef_expr plain = normalised(&w, softmax_state(&w, EF_MATMUL, op2(&w, EF_ADD, s, mask), v));
    ef_expr scores = op2(&w, EF_ADD, view(&w, s, axes, 3), view(&w, mask, axes, 3));
    ef_expr tile = softmax_state(&w, EF_TILE_MATMUL, scores, view(&w, v, axes, 3));
    ef_expr block = reduce_p(&w, online, k1, tile), whole = reduce_p(&w, online, k0, block);
    assert_agree(&w, plain, combine(&w, normalised(&w, whole), AXES(q0)), axes, 3);
    ef_expr stored = reduce(&w, online, EF_FIRST, with(&w, EF_COLLECT, k0, block));
    assert_agree(&w, plain, combine(&w, normalised(&w, stored), AXES(q0)), axes, 3);

    /* One level: the rows alone, without tiles of queries. */
    scores = op2(&w, EF_ADD, view(&w, s, AXES(k1)), view(&w, mask, AXES(k1)));
    tile = softmax_state(&w, EF_TILE_MATMUL, scores, view(&w, v, AXES(k1)));
    assert_agree(&w, plain, normalised(&w, reduce_p(&w, online, k1, tile)), AXES(k1));
    world_free(&w);
}

/* Row 0 is masked altogether: NaN, as in the plain program. Rows 1 and 2 have masked tiles, whose NaN leaves no trace:
 * they must be what an unmasked loop over the visible keys gives. */
static void online_softmax_forgets_masked_tiles(void **state)
{
    (void)state;
    world w = world_new();
    w.masked = 1;
    ef_reducer online = online_softmax(&w);
    ef_dim q = dim(&w, "q", 5), k = dim(&w, "k", 9), e = dim(&w, "e", 2);
    ef_axis q0 = axis(&w, q, 0), k0 = axis(&w, k, 0), k1 = axis(&w, k, 1);
    ef_axis axes[] = {q0, k0, k1};
    ef_expr s = input(&w, "s", DIMS(q, k)), mask = input(&w, "mask", DIMS(q, k)), v = input(&w, "v", DIMS(k, e));
    ef_expr scores = op2(&w, EF_ADD, view(&w, s, axes, 3), view(&w, mask, axes, 3));
    ef_expr tile = softmax_state(&w, EF_TILE_MATMUL, scores, view(&w, v, axes, 3));
    ef_expr whole = reduce_p(&w, online, k0, reduce_p(&w, online, k1, tile)), sums = with(&w, EF_GET, 1, whole);
    ef_expr out = combine(&w, with(&w, EF_GET, 1, sums), AXES(q0)),
            total = combine(&w, with(&w, EF_GET, 0, sums), AXES(q0));
    ef_evaluation *vs = eval(&w, op2(&w, EF_ADD, s, mask)), *vv = eval(&w, v);
    for (unsigned c = 0; c < TILES * TILES * TILES; c++) {
        ef_tile tiles[] = {{q0, tile_extents[c % TILES]},
                           {k0, tile_extents[c / TILES % TILES]},
                           {k1, tile_extents[c / TILES / TILES]}};
        ef_tiling tiling = {tiles, 3, 1};
        ef_evaluation *vo = eval_tiled(&w, out, &tiling), *vt = eval_tiled(&w, total, &tiling);
        for (unsigned i = 0; i < 5; i++) {
            double max = -INFINITY, l = 0, o[2] = {0, 0};
            for (unsigned j = 0; j < 9; j++)
                max = fmax(max, data(vs)[i * 9 + j]);
            for (unsigned j = 0; j < 9; j++) {
                double p = exp(data(vs)[i * 9 + j] - max);
                l += p;
                for (unsigned d = 0; d < 2; d++)
                    o[d] += p * data(vv)[j * 2 + d];
            }
            assert_near(data(vt)[i], l);
            assert_near(data(vo)[i * 2], o[0]);
            assert_near(data(vo)[i * 2 + 1], o[1]);
        }
        ef_evaluation_free(vo);
        ef_evaluation_free(vt);
    }
    ef_evaluation_free(vs);
    ef_evaluation_free(vv);
    world_free(&w);
}

/* repaired(max, repaired(sum, sum, mul(c, div(s, t))), mul(c, exp(sub(s, t))), c): the weighted sum is normalised in
 * every tile, with the tile's own denominator. */
static ef_reducer normalised_softmax(world *w)
{
    ef_scalar c = ef_scalar_param(w->ctx, EF_PARAM_C, 0), s = ef_scalar_param(w->ctx, EF_PARAM_S, 0);
    ef_scalar t = ef_scalar_param(w->ctx, EF_PARAM_T, 0);
    ef_scalar ratio = ef_scalar_apply(w->ctx, EF_DIV, (ef_scalar[]){s, t});
    ef_scalar drop =
        ef_scalar_apply(w->ctx, EF_EXP, (ef_scalar[]){ef_scalar_apply(w->ctx, EF_SUB, (ef_scalar[]){s, t})});
    ef_scalar by_sum = ef_scalar_apply(w->ctx, EF_MUL, (ef_scalar[]){c, ratio});
    ef_scalar by_max = ef_scalar_apply(w->ctx, EF_MUL, (ef_scalar[]){c, drop});
    ef_reducer sums = ef_reducer_repaired(w->ctx, EF_RED_SUM, EF_RED_SUM, (ef_scalar[]){by_sum});
    return ef_reducer_repaired(w->ctx, EF_RED_MAX, sums, (ef_scalar[]){by_max, c});
}

/* Where a row is masked altogether, and where masked tiles come before, between and after others, a form that is
 * normalised as it goes gives what the plain program gives: NaN, and numbers. */
static void normalised_softmax_equals_softmax(void **state)
{
    (void)state;
    world w = world_new();
    w.masked = 1;
    ef_reducer online = normalised_softmax(&w);
    ef_dim q = dim(&w, "q", 5), k = dim(&w, "k", 9), e = dim(&w, "e", 2);
    ef_axis k0 = axis(&w, k, 0), k1 = axis(&w, k, 1);
    ef_axis axes[] = {k0, k1};
    ef_expr s = input(&w, "s", DIMS(q, k)), mask = input(&w, "mask", DIMS(q, k)), v = input(&w, "v", DIMS(k, e));
    ef_expr plain = normalised(&w, softmax_state(&w, EF_MATMUL, op2(&w, EF_ADD, s, mask), v));
    ef_expr scores = op2(&w, EF_ADD, view(&w, s, axes, 2), view(&w, mask, axes, 2));
    ef_expr tile = softmax_state(&w, EF_TILE_MATMUL, scores, view(&w, v, axes, 2)), l = with(&w, EF_GET, 1, tile);
    ef_expr sums = add(&w, EF_TUPLE, 0, (ef_expr[]){with(&w, EF_GET, 0, l), normalised(&w, tile)}, 2);
    tile = add(&w, EF_TUPLE, 0, (ef_expr[]){with(&w, EF_GET, 0, tile), sums}, 2);
    ef_expr block = reduce_p(&w, online, k1, tile), whole = reduce_p(&w, online, k0, block);
    assert_agree(&w, plain, with(&w, EF_GET, 1, with(&w, EF_GET, 1, whole)), axes, 2);
    ef_expr stored = reduce(&w, online, EF_FIRST, with(&w, EF_COLLECT, k0, block));
    assert_agree(&w, plain, with(&w, EF_GET, 1, with(&w, EF_GET, 1, stored)), axes, 2);
    world_free(&w);
}

/* ---- small and degenerate shapes ---- */

static void unit_dimensions_and_rank_zero(void **state)
{
    (void)state;
    world w = world_new();
    ef_dim k = dim(&w, "k", 3);
    ef_axis k0 = axis(&w, k, 0);
    ef_expr row = input(&w, "row", DIMS(EF_UNIT, k)), column = input(&w, "column", DIMS(k, EF_UNIT));
    ef_expr plain = op2(&w, EF_MATMUL, row, column);
    ef_expr tile = op2(&w, EF_TILE_MATMUL, view(&w, row, AXES(k0)), view(&w, column, AXES(k0)));
    assert_agree(&w, plain, reduce_p(&w, EF_RED_SUM, k0, tile), AXES(k0));
    assert_agree(&w, plain, reduce(&w, EF_RED_MAX, 1, plain), AXES(k0));
    ef_expr scalar = with(&w, EF_RESHAPE, dims_attr(&w, NULL, 0), plain);
    assert_agree(&w, scalar, with(&w, EF_TRANSPOSE, 0, scalar), AXES(k0));
    ef_expr spread =
        reduce_p(&w, EF_RED_MAX, k0,
                 reduce(&w, EF_RED_MAX, 0, op2(&w, EF_MUL, view(&w, scalar, AXES(k0)), view(&w, row, AXES(k0)))));
    assert_agree(&w, reduce(&w, EF_RED_MAX, 0, op2(&w, EF_MUL, scalar, row)), spread, AXES(k0));
    ef_evaluation *v = eval(&w, op2(&w, EF_ADD, number(&w, 2), op1(&w, EF_NEG, number(&w, 0.5))));
    assert_int_equal(ef_evaluation_at(v, 0, 0)->rank, 0);
    assert_near(data(v)[0], 1.5);
    ef_evaluation_free(v);
    v = eval(&w, add(&w, EF_IOTA, EF_UNIT, NULL, 0));
    assert_near(data(v)[0], 0);
    ef_evaluation_free(v);
    world_free(&w);
}

static void transposed_operands(void **state)
{
    (void)state;
    world w = world_new();
    ef_dim m = dim(&w, "m", 4), k = dim(&w, "k", 5), n = dim(&w, "n", 3);
    ef_axis axes[] = {axis(&w, m, 0), axis(&w, n, 0), axis(&w, k, 0)};
    ef_expr a = input(&w, "a", DIMS(m, k)), b = input(&w, "b", DIMS(n, k));
    ef_expr plain = op2(&w, EF_MATMUL, a, with(&w, EF_TRANSPOSE, swap_last(2), b));
    ef_expr tile =
        op2(&w, EF_TILE_MATMUL, view(&w, a, axes, 3), with(&w, EF_TRANSPOSE, swap_last(2), view(&w, b, axes, 3)));
    assert_agree(&w, plain, combine(&w, reduce_p(&w, EF_RED_SUM, axes[2], tile), axes, 2), axes, 3);
    world_free(&w);
}

/* ---- trust: one line instead of a crash ---- */

static void assert_refused(world *w, ef_expr e, const ef_tiling *tiling, uint64_t limit, const char *why)
{
    ef_diag diag = {0};
    assert_null(ef_evaluate(w->dag, &e, 1, tiling, fill, w, limit, &diag));
    assert_true(diag.failed);
    if (!strstr(diag.text, why))
        fail_msg("expected '%s' in: %s", why, diag.text);
    assert_null(ef_evaluate(w->dag, &e, 1, tiling, fill, w, limit, NULL));
}

static void too_large_values_are_refused(void **state)
{
    (void)state;
    world w = world_new();
    ef_dim huge = dim(&w, "huge", EF_MAX_EXTENT), big = dim(&w, "big", UINT64_C(1) << 35), m = dim(&w, "m", 10);
    assert_refused(&w, input(&w, "x", DIMS(huge)), NULL, 0, "limit");
    assert_refused(&w, add(&w, EF_IOTA, huge, NULL, 0), NULL, UINT64_MAX >> 30, "limit");
    ef_expr outer = with(&w, EF_BROADCAST, dims_attr(&w, DIMS(huge, big, huge, m)), number(&w, 1));
    assert_refused(&w, outer, NULL, UINT64_MAX, "limit"); /* 2^118 elements: the product must not wrap */
    ef_expr tiny = input(&w, "tiny", DIMS(m));
    ef_axis axes[] = {axis(&w, huge, 0), axis(&w, big, 0)}; /* 2^75 coordinates */
    assert_refused(&w, view(&w, tiny, axes, 2), &(ef_tiling){NULL, 0, 1}, UINT64_MAX, "limit");
    ef_tile tiles[] = {{axis(&w, m, 0), UINT64_MAX}, {axis(&w, m, 1), 1}};
    ef_expr two = view(&w, tiny, AXES(axis(&w, m, 0), axis(&w, m, 1)));
    assert_refused(&w, two, &(ef_tiling){tiles, 2, 1}, 0, "limit");
    assert_refused(&w, op1(&w, EF_EXP, tiny), NULL, 20, "limit");
    world_free(&w);
}

static void shared_nested_tuples_do_not_explode(void **state)
{
    (void)state;
    world w = world_new();
    ef_expr t = input(&w, "x", NULL, 0);
    for (int depth = 0; depth < 4; depth++) /* the type system allows 16 tensors */
        t = add(&w, EF_TUPLE, 0, (ef_expr[]){t, t}, 2);
    assert_refused(&w, t, NULL, 8, "limit");
    for (int depth = 0; depth < 4; depth++)
        t = with(&w, EF_GET, 1, t);
    ef_evaluation_free(eval(&w, t));
    world_free(&w);
}

static void resized_slices_are_refused(void **state)
{
    (void)state;
    world w = world_new();
    ef_dim n = dim(&w, "n", 8);
    ef_expr x = input(&w, "x", DIMS(n)), e = with(&w, EF_SLICE, ef_attr_slice(0, 4, 7), x);
    ef_evaluation_free(eval(&w, e));
    ef_var_resize(w.ctx, ef_var_find(w.ctx, "n", 1), 5);
    assert_refused(&w, e, NULL, 0, "do not fit");
    ef_evaluation *v = eval(&w, x);
    assert_shape(ef_evaluation_at(v, 0, 0), SHAPE(5));
    ef_evaluation_free(v);
    world_free(&w);
}

/* k.1 is collected inside k.0 and alone: the dimension |k.1| would need two extents in one evaluation. */
static void one_count_has_one_extent(void **state)
{
    (void)state;
    world w = world_new();
    ef_dim k = dim(&w, "k", 12);
    ef_axis k0 = axis(&w, k, 0), k1 = axis(&w, k, 1);
    ef_expr x = input(&w, "x", DIMS(k));
    ef_expr alone = with(&w, EF_COLLECT, k1, reduce(&w, EF_RED_SUM, 0, view(&w, x, AXES(k1))));
    ef_expr inside = with(&w, EF_COLLECT, k1, reduce(&w, EF_RED_SUM, 0, view(&w, x, AXES(k0, k1))));
    ef_expr both = add(&w, EF_TUPLE, 0, (ef_expr[]){alone, inside}, 2);
    ef_tile tiles[] = {{k0, 6}, {k1, 2}}, same[] = {{k0, 12}, {k1, 2}};
    assert_refused(&w, both, &(ef_tiling){tiles, 2, 1}, 0, "collected");
    ef_evaluation_free(eval_tiled(&w, both, &(ef_tiling){same, 2, 1}));
    world_free(&w);
}

static void stored_partials_as_an_input(void **state)
{
    (void)state;
    world w = world_new();
    ef_dim k = dim(&w, "k", 10), m = dim(&w, "m", 3);
    ef_expr x = input(&w, "partials", DIMS(ef_dim_count(w.ctx, axis(&w, k, 0)), m));
    ef_tile tile = {axis(&w, k, 0), 4};
    ef_tiling tiling = {&tile, 1, 1};
    ef_evaluation *vx = eval_tiled(&w, x, &tiling), *v = eval_tiled(&w, reduce(&w, EF_RED_SUM, EF_FIRST, x), &tiling);
    assert_shape(ef_evaluation_at(vx, 0, 0), SHAPE(3, 3));
    assert_shape(ef_evaluation_at(v, 0, 0), SHAPE(3));
    for (unsigned i = 0; i < 3; i++)
        assert_near(data(v)[i], data(vx)[i] + data(vx)[3 + i] + data(vx)[6 + i]);
    ef_evaluation_free(vx);
    ef_evaluation_free(v);
    world_free(&w);
}

static void give_special(void *user, uint32_t id, ef_tensor *out)
{
    memcpy(out->data, (const double *)user + 3 * id, 3 * sizeof(double));
}

static void difference_of_special_values(void **state)
{
    (void)state;
    world w = world_new();
    ef_dim n = dim(&w, "n", 3);
    ef_expr roots[] = {input(&w, "a", DIMS(n)), input(&w, "b", DIMS(n)), input(&w, "c", DIMS(n)),
                       input(&w, "d", DIMS(n))};
    double x[] = {NAN, INFINITY, 4, NAN, INFINITY, 3, 0, INFINITY, 3, NAN, -INFINITY, 3};
    ef_evaluation *v = ef_evaluate(w.dag, roots, 4, NULL, give_special, x, 0, NULL);
    assert_true(ef_evaluation_difference(v, 0, v, 0, 0) == 0);
    assert_near(ef_evaluation_difference(v, 0, v, 1, 1), 0.25);
    assert_true(ef_evaluation_difference(v, 0, v, 2, 1) == INFINITY);
    assert_true(ef_evaluation_difference(v, 1, v, 3, 1) == INFINITY);
    ef_evaluation_free(v);
    world_free(&w);
}

/* ---- random expressions ---- */

static uint64_t random_attr(world *w, ef_rng *rng, ef_op op, const ef_dim *dims, const ef_axis *axes,
                            const ef_reducer *reducers)
{
    ef_dim shape[4];
    ef_axis set[3];
    unsigned n = ef_rng_below(rng, 5);
    for (unsigned i = 0; i < 4; i++)
        shape[i] = dims[ef_rng_below(rng, 6)];
    for (unsigned i = 0; i < 3; i++)
        set[i] = axes[ef_rng_below(rng, 6)];
    switch (ef_ops[op].attr) {
    case EF_ATTR_NUMBER: return ef_attr_number(ef_rng_normal(rng));
    case EF_ATTR_DIM: return shape[0];
    case EF_ATTR_DIMS: return ef_dims_intern(w->ctx, shape, n);
    case EF_ATTR_DTYPE: return ef_rng_below(rng, EF_DTYPE_COUNT);
    case EF_ATTR_INDEX:
    case EF_ATTR_FIELD: return ef_rng_below(rng, 4);
    case EF_ATTR_PERM: return (const uint64_t[]){0x0, 0x10, 0x01, 0x210, 0x120, 0x021, 0x102}[ef_rng_below(rng, 7)];
    case EF_ATTR_SLICE: return ef_attr_slice(ef_rng_below(rng, 3), ef_rng_below(rng, 3), 1 + ef_rng_below(rng, 5));
    case EF_ATTR_REDUCE:
        return ef_attr_reduce(reducers[ef_rng_below(rng, 6)], ef_rng_below(rng, 2) ? EF_FIRST : ef_rng_below(rng, 3));
    case EF_ATTR_REDUCE_P: return ef_attr_reduce(reducers[ef_rng_below(rng, 6)], set[0]);
    case EF_ATTR_AXES: return ef_axes_intern(w->ctx, set, 1 + ef_rng_below(rng, 3));
    case EF_ATTR_AXIS: return set[0];
    default: return 0;
    }
}

/* Adds random nodes; those that the typing rules refuse are dropped. */
static void grow(world *w, ef_rng *rng, const ef_dim *dims, const ef_axis *axes)
{
    ef_reducer online = online_softmax(w), pair = ef_reducer_product(w->ctx, EF_RED_MAX, EF_RED_SUM);
    ef_reducer reducers[] = {EF_RED_SUM, EF_RED_MAX, EF_RED_MIN, EF_RED_PROD, pair, online};
    for (unsigned i = 0; i < 6000; i++) {
        ef_op op = EF_CONST + ef_rng_below(rng, EF_OP_COUNT - EF_CONST);
        if (ef_op_pointwise(op) && ef_rng_below(rng, 4))
            op = EF_MATMUL + ef_rng_below(rng, EF_OP_COUNT - EF_MATMUL);
        unsigned children = ef_ops[op].arity < 0 ? 1 + ef_rng_below(rng, 3) : (unsigned)ef_ops[op].arity;
        ef_expr x[3];
        for (unsigned c = 0; c < children; c++)
            x[c] = ef_rng_below(rng, ef_dag_count(w->dag));
        ef_dag_add(w->dag, op, random_attr(w, rng, op, dims, axes, reducers), x, children, NULL);
    }
}

/* Whatever the typing rules accept evaluates or is refused with a message; the sanitizers watch. */
static void random_expressions_never_crash(void **state)
{
    (void)state;
    unsigned evaluated = 0;
    for (uint64_t seed = 1; seed <= 60; seed++) {
        world w = world_new();
        ef_rng rng = {seed};
        ef_dim m = dim(&w, "m", 5), k = dim(&w, "k", 3), n = dim(&w, "n", 4), mk = merge(&w, m, k);
        ef_dim count = ef_dim_count(w.ctx, axis(&w, k, 0)), dims[] = {m, k, n, EF_UNIT, mk, count};
        ef_axis axes[] = {axis(&w, m, 0), axis(&w, m, 1), axis(&w, k, 0),
                          axis(&w, k, 1), axis(&w, n, 0), axis(&w, count, 0)};
        input(&w, "x", DIMS(m, k));
        input(&w, "y", DIMS(k, n));
        input(&w, "z", DIMS(n, m, k));
        input(&w, "s", DIMS(mk));
        grow(&w, &rng, dims, axes);
        ef_tile tiles[6];
        for (unsigned i = 0; i < 6; i++)
            tiles[i] = (ef_tile){axes[i], 1 + ef_rng_below(&rng, 4)};
        ef_var_resize(w.ctx, ef_axis_var(axes[0]), 5 - seed % 6); /* to 0 … 5: slices need not fit any more */
        for (ef_expr e = 0; e < ef_dag_count(w.dag); e++) {
            ef_diag diag = {0};
            ef_evaluation *v = ef_evaluate(w.dag, &e, 1, &(ef_tiling){tiles, 6, 1}, fill, &w, 1 << 16, &diag);
            assert_true(v ? !diag.failed : diag.failed && diag.text[0]);
            evaluated += v != NULL;
            ef_evaluation_free(v);
        }
        world_free(&w);
    }
    assert_true(evaluated > 10000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pointwise_operators),
        cmocka_unit_test(integers_divide_as_reals),
        cmocka_unit_test(broadcasting),
        cmocka_unit_test(matmul_batched),
        cmocka_unit_test(matmul_of_zero_and_infinity_is_nan),
        cmocka_unit_test(reduce_every_dimension),
        cmocka_unit_test(reshape_transpose_slice),
        cmocka_unit_test(concat_broadcast_iota),
        cmocka_unit_test(tuples),
        cmocka_unit_test(view_lists_coordinates_in_order),
        cmocka_unit_test(view_of_a_merged_dimension_cuts_its_first_variable),
        cmocka_unit_test(tuples_of_tiles_list_leaves_innermost),
        cmocka_unit_test(combination_undoes_partition),
        cmocka_unit_test(pointwise_tiles),
        cmocka_unit_test(shapes_under_views),
        cmocka_unit_test(matmul_splits),
        cmocka_unit_test(matmul_batch_split),
        cmocka_unit_test(matmul_two_levels_and_split_k),
        cmocka_unit_test(row_reductions),
        cmocka_unit_test(replicated_values_meet_tiles),
        cmocka_unit_test(product_reducer),
        cmocka_unit_test(online_softmax_equals_softmax),
        cmocka_unit_test(online_softmax_forgets_masked_tiles),
        cmocka_unit_test(normalised_softmax_equals_softmax),
        cmocka_unit_test(unit_dimensions_and_rank_zero),
        cmocka_unit_test(transposed_operands),
        cmocka_unit_test(too_large_values_are_refused),
        cmocka_unit_test(shared_nested_tuples_do_not_explode),
        cmocka_unit_test(resized_slices_are_refused),
        cmocka_unit_test(one_count_has_one_extent),
        cmocka_unit_test(stored_partials_as_an_input),
        cmocka_unit_test(difference_of_special_values),
        cmocka_unit_test(random_expressions_never_crash),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
