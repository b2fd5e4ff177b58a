/* Samples: their programs compute what the whole program computes there. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "codegen/verify.h"
#include "ir/eval.h"
#include "ir/independent.h"
#include "support/rng.h"
#include "tune/sample.h"

static const char causal[] = "program causal\n"
                             "dim h = 6\ndim q = 40\ndim s = 40\ndim d = 8\ndim e = 12\n"
                             "input q: f32[h, q, d]\ninput k: f32[h, s, d]\ninput v: f32[h, s, e]\n"
                             "raw = matmul(q, transpose[0, 2, 1](k))\n"
                             "seen = ge(reshape[q, 1](iota[q]), iota[s])\n"
                             "sc = select(seen, raw, -inf)\n"
                             "p = exp(sub(sc, reduce[max, -1](sc)))\n"
                             "output o = matmul(div(p, reduce[sum, -1](p)), v)\n";

static const char mixed[] = "program mixed\n"
                            "dim m = 64\ndim n = 64\n"
                            "input x: f32[m, n]\n"
                            "output y = reduce[sum, -2](x)\n"
                            "output z = reduce[sum, -1](x)\n";

typedef struct {
    ef_ctx *ctx;
    ef_program *program;
    double *in[4], *out;
    uint64_t outs;
} side;

static uint64_t size_of(const ef_ctx *ctx, ef_type type)
{
    const ef_type_info *info = ef_type_at(ctx, type);
    uint64_t count = 1;
    for (unsigned i = 0; i < info->rank; i++)
        count *= ef_dim_extent(ctx, info->dim[i]);
    return count;
}

static void fill_side(void *user, uint32_t input, ef_tensor *out)
{
    const side *s = user;
    uint64_t count = 1;
    for (unsigned i = 0; i < out->rank; i++)
        count *= out->extent[i];
    for (uint32_t i = 0; i < s->program->inputs; i++)
        if (s->program->input[i] == input)
            memcpy(out->data, s->in[i], count * sizeof *out->data);
}

static void evaluate(side *s)
{
    ef_diag diag = {0};
    ef_tiling tiling = {.fallback = UINT64_MAX};
    ef_evaluation *e = ef_evaluate(s->program->dag, &s->program->output[0].expr, 1, &tiling, fill_side, s, 0, &diag);
    assert_non_null(e);
    s->outs = size_of(s->ctx, ef_dag_type(s->program->dag, s->program->output[0].expr));
    s->out = calloc(s->outs, sizeof *s->out);
    assert_non_null(s->out);
    memcpy(s->out, ef_evaluation_at(e, 0, 0)->data, s->outs * sizeof *s->out);
    ef_evaluation_free(e);
}

static void close_side(side *s)
{
    for (uint32_t i = 0; i < s->program->inputs; i++)
        free(s->in[i]);
    free(s->out);
    ef_program_free(s->program);
    ef_ctx_free(s->ctx);
}

static void test_values(void **state)
{
    (void)state;
    ef_diag diag = {0};
    ef_rng rng = {3};
    ef_sample sample = ef_sample_choose(causal, strlen(causal), 1e-9, 1, 1, &diag);
    assert_true(sample.dims >= 2 && sample.share < 0.5);
    side whole = {.ctx = ef_ctx_new()}, part = {.ctx = ef_ctx_new()};
    whole.program = ef_program_parse(whole.ctx, causal, strlen(causal), "t", &diag);
    part.program = ef_sample_program(&sample, part.ctx, causal, strlen(causal), false, &diag);
    assert_non_null(part.program);
    for (uint32_t i = 0; i < whole.program->inputs; i++) {
        uint64_t count = size_of(whole.ctx, ef_input_type(whole.ctx, whole.program->input[i]));
        whole.in[i] = calloc(count, sizeof(double));
        part.in[i] = calloc(count, sizeof(double));
        for (uint64_t e = 0; e < count; e++)
            whole.in[i][e] = ef_rng_normal(&rng);
        ef_sample_gather(&sample, whole.ctx, ef_input_type(whole.ctx, whole.program->input[i]), sizeof(double),
                         whole.in[i], part.in[i]);
    }
    for (uint32_t i = whole.program->inputs; i < part.program->inputs; i++) {
        const ef_sample_dim *dim = ef_sample_position(&sample, ef_input_name(part.ctx, part.program->input[i]));
        assert_non_null(dim);
        assert_true(dim->at[0] == 0 && dim->at[dim->count - 1] == dim->extent - 1);
        part.in[i] = calloc(dim->count, sizeof(double));
        for (uint64_t e = 0; e < dim->count; e++)
            part.in[i][e] = (double)dim->at[e];
    }
    evaluate(&whole), evaluate(&part);
    double *want = calloc(whole.outs, sizeof *want);
    ef_sample_gather(&sample, whole.ctx, ef_dag_type(whole.program->dag, whole.program->output[0].expr), sizeof(double),
                     whole.out, want);
    assert_true(part.outs < whole.outs);
    for (uint64_t e = 0; e < part.outs && e < whole.outs; e++)
        assert_float_equal(part.out[e], want[e], 1e-12);
    free(want);
    close_side(&whole), close_side(&part);
    ef_sample_free(&sample);
}

/* What costs little is whole, and so is what has no independent dimension. */
static void test_whole(void **state)
{
    (void)state;
    ef_diag diag = {0};
    ef_sample cheap = ef_sample_choose(causal, strlen(causal), 10, 1, 1, &diag);
    ef_sample none = ef_sample_choose(mixed, strlen(mixed), 1e-9, 1, 1, &diag);
    assert_int_equal(cheap.dims, 0);
    assert_true(cheap.share == 1);
    assert_int_equal(none.dims, 0);
    ef_sample_free(&cheap), ef_sample_free(&none);
}

/* An input that is called like those that say positions is none of these, and dimensions are sampled all the same. */
static void test_names(void **state)
{
    static const char text[] = "program named\n"
                               "dim m = 64\ndim n = 64\n"
                               "input ef_positions_of_m: f32[m]\ninput x: f32[m, n]\n"
                               "output y = add(mul(x, reshape[m, 1](ef_positions_of_m)), reshape[m, 1](iota[m]))\n";
    (void)state;
    ef_diag diag = {0};
    ef_sample sample = ef_sample_choose(text, strlen(text), 1e-9, 1, 1, &diag);
    assert_false(diag.failed);
    assert_int_equal(sample.dims, 2);
    ef_ctx *ctx = ef_ctx_new();
    ef_program *part = ef_sample_program(&sample, ctx, text, strlen(text), false, &diag);
    assert_non_null(part);
    assert_int_equal(part->inputs, 3);
    for (uint32_t i = 0; i < 3; i++)
        assert_true(!ef_sample_position(&sample, ef_input_name(ctx, part->input[i])) == (i < 2));
    ef_program_free(part);
    ef_ctx_free(ctx);
    ef_sample_free(&sample);
}

/* What a program adds up is drawn off centre in one distribution, and nothing else is. */
static void test_off_centre(void **state)
{
    (void)state;
    static const char norm[] = "program norm\ndim m = 8\ndim n = 64\ndim k = 16\n"
                               "input w: f32[n, k]\ninput x: f32[m, n]\n"
                               "c = sub(x, div(reduce[sum, -1](x), 64))\n"
                               "output y = matmul(mul(c, rsqrt(add(reduce[sum, -1](mul(c, c)), 1e-5))), w)\n";
    ef_diag diag = {0};
    ef_ctx *ctx = ef_ctx_new();
    ef_program *program = ef_program_parse(ctx, norm, strlen(norm), "norm", &diag);
    ef_kgraph *graph = program ? ef_kgraph_eager(program, &diag) : NULL;
    assert_false(diag.failed);
    assert_int_equal(ef_program_summed(program), 2);
    ef_schedule schedule = ef_schedule_default(graph, EF_BACKEND_C, 1);
    ef_data data = ef_data_new(graph, &schedule);
    for (ef_draw draw = EF_DRAW_NORMAL; draw <= EF_DRAW_SHIFTED; draw++) {
        double mean[2] = {0};
        ef_data_draw(graph, &schedule, &data, draw, (ef_draw_size){1, ef_draw_scale(draw, 0)}, 1);
        for (uint32_t i = 0; i < 2; i++)
            for (uint64_t e = 0, count = i ? 512 : 1024; e < count; e++)
                mean[i] += ef_element_get(EF_F32, data.in[i], e) / (double)count;
        assert_true(mean[0] > -10 && mean[0] < 10);
        assert_true(draw == EF_DRAW_SHIFTED ? mean[1] > 29 && mean[1] < 31 : mean[1] > -10 && mean[1] < 10);
    }
    ef_data_free(&data);
    ef_schedule_free(&schedule);
    ef_kgraph_free(graph);
    ef_program_free(program);
    ef_ctx_free(ctx);
}

/* How large inputs are drawn is a matter of floats: integers take all of their values. */
static void test_integers(void **state)
{
    (void)state;
    static const char text[] = "program pick\ndim m = 64\ndim n = 64\ninput i: i32[m, n]\ninput j: i64[m, n]\n"
                               "output y = add(i, i)\noutput z = add(j, j)\n";
    ef_diag diag = {0};
    ef_ctx *ctx = ef_ctx_new();
    ef_program *program = ef_program_parse(ctx, text, strlen(text), "pick", &diag);
    ef_kgraph *graph = program ? ef_kgraph_eager(program, &diag) : NULL;
    assert_string_equal(diag.text, "");
    ef_schedule schedule = ef_schedule_default(graph, EF_BACKEND_C, 1);
    ef_data data = ef_data_new(graph, &schedule);
    for (ef_draw draw = EF_DRAW_NORMAL; draw < EF_DRAW_COUNT; draw++) {
        bool seen[2][8] = {{false}};
        ef_data_draw(graph, &schedule, &data, draw, (ef_draw_size){0.3, ef_draw_scale(draw, 0)}, 1);
        for (int i = 0; i < 2; i++)
            for (uint64_t e = 0; e < 64 * 64; e++)
                seen[i][(int)ef_element_get(i ? EF_I64 : EF_I32, data.in[i], e)] = true;
        for (int x = 0; x < 8; x++)
            assert_true(seen[0][x] && seen[1][x]);
    }
    ef_data_free(&data);
    ef_schedule_free(&schedule);
    ef_kgraph_free(graph);
    ef_program_free(program);
    ef_ctx_free(ctx);
}

/* A program whose errors, and outputs in range, are given by attempt. */
typedef struct {
    double error[EF_DRAW_SCALES];
    uint64_t within[EF_DRAW_SCALES];
    unsigned last;
} fitting;

static bool pretend(void *user, ef_draw draw, unsigned attempt, ef_drawn *drawn, ef_diag *diag)
{
    fitting *f = user;
    (void)draw;
    (void)diag;
    f->last = attempt;
    *drawn = (ef_drawn){f->error[attempt], f->within[attempt]};
    return true;
}

static unsigned fit(fitting f, ef_draw draw)
{
    ef_drawn drawn;
    unsigned taken = EF_DRAW_SCALES;
    assert_true(ef_draw_fit(draw, 10, pretend, &f, &taken, &drawn, NULL));
    assert_int_equal(f.last, taken);
    assert_true(drawn.error == f.error[taken]);
    return taken;
}

/* The first scale that the program as it is can compute with; far from normal inputs with room for twice the error, and
 * without leaving the range of types; else the one of the least error. */
static void test_scales(void **state)
{
    (void)state;
    for (ef_draw draw = 0; draw < EF_DRAW_COUNT; draw++) {
        bool far = draw == EF_DRAW_LARGE || draw == EF_DRAW_TINY || draw == EF_DRAW_SHIFTED;
        assert_int_equal(fit((fitting){{0.004}, {10}, 0}, draw), 0);
        assert_int_equal(fit((fitting){{0.008, 0.004}, {10, 10}, 0}, draw), far ? 1 : 0);
        assert_int_equal(fit((fitting){{0.001, 0.004, 0.001}, {9, 9, 10}, 0}, draw), far ? 2 : 0);
        assert_int_equal(fit((fitting){{0.5, INFINITY, 0.2, 0.3, 0.4}, {10, 10, 10, 10, 10}, 0}, draw), 2);
        assert_int_equal(fit((fitting){{INFINITY, INFINITY, INFINITY, INFINITY, INFINITY}, {0}, 0}, draw),
                         EF_DRAW_SCALES - 1);
    }
}

/* Weights are what is contracted as a second operand along a dimension of its own, wherever they stand among the
 * inputs: factors of a factored weight as well, and neither what is normalised with nor keys, which are computed. */
static void test_weights(void **state)
{
    (void)state;
    static const char text[] = "program weights\ndim m = 8\ndim n = 64\ndim k = 16\ndim r = 4\ndim h = 2\n"
                               "input wq: f16[n, h*k]\ninput wk: f16[h*k, n]\ninput a: f16[n, r]\ninput b: f16[r, k]\n"
                               "input x: f16[m, n]\ninput g: f16[m, n]\n"
                               "q = matmul(mul(x, g), wq)\n"
                               "keys = matmul(x, transpose[1, 0](wk))\n"
                               "output scores = matmul(q, transpose[1, 0](keys))\n"
                               "output y = matmul(x, matmul(a, b))\n";
    static const uint64_t want[] = {64, 64, 64, 4, 1, 1};
    ef_diag diag = {0};
    ef_dim fan_in[6];
    ef_ctx *ctx = ef_ctx_new();
    ef_program *program = ef_program_parse(ctx, text, strlen(text), "weights", &diag);
    assert_string_equal(diag.text, "");
    ef_program_fan_in(program, fan_in);
    for (unsigned i = 0; i < 6; i++)
        assert_int_equal(ef_dim_extent(ctx, fan_in[i]), want[i]);
    ef_program_free(program);
    ef_ctx_free(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_values), cmocka_unit_test(test_whole),
                                       cmocka_unit_test(test_names),  cmocka_unit_test(test_off_centre),
                                       cmocka_unit_test(test_scales), cmocka_unit_test(test_integers),
                                       cmocka_unit_test(test_weights)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
