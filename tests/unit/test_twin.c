/* Twins (src/ir/twin.h): programs that name one dimension twice come out with its dimensions apart, compute what they
 * say, and the search cuts them along both. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "ir/eval.h"
#include "ir/twin.h"
#include "search/saturate.h"
#include "support/rng.h"

#define HEAD "program p\ndim s = 6\ndim d = 4\ndim h = 2\n"

static ef_program *parse(ef_ctx *ctx, const char *lines)
{
    char text[2048];
    ef_diag diag = {0};
    snprintf(text, sizeof text, HEAD "%s", lines);
    ef_program *program = ef_program_parse(ctx, text, strlen(text), "p.ef", &diag);
    if (!program)
        fail_msg("%s: %s", lines, diag.text);
    return program;
}

/* What people write, and the type of the output. */
static const struct {
    const char *lines, *type;
} squares[] = {
    {"input x: f32[s, d]\noutput o = matmul(x, transpose[1, 0](x))\n", "f32[s, s']"},
    {"input x: f32[h, s, d]\noutput o = matmul(x, transpose[0, 2, 1](x))\n", "f32[h, s, s']"},
    {"output o = ge(reshape[s, 1](iota[s]), iota[s])\n", "bool[s, s']"},
    {"input m: f32[s, s]\noutput o = exp(m)\n", "f32[s, s']"},
    {"input m: f32[s, s]\noutput o = add(m, transpose[1, 0](m))\n", "f32[s, s']"},
    {"input m: f32[s, s]\noutput o = matmul(m, matmul(m, m))\n", "f32[s, s'']"},
    {"input x: f32[s, d]\ninput w: f32[d, d]\noutput o = add(x, matmul(x, w))\n", "f32[s, d]"},
    {"input x: f32[s, d]\noutput o = matmul(exp(matmul(x, transpose[1, 0](x))), x)\n", "f32[s, d]"},
    {"output o = broadcast[s, s](1)\n", "num[s, s']"},
    {"input m: f32[1, s]\noutput o = broadcast[h, s, s](m)\n", "f32[h, s, s']"},
    {"input m: f32[s, s]\noutput o = broadcast[h, s, s](m)\n", "f32[h, s, s']"},
    {"input m: f32[s, s]\noutput o = reshape[1, s, s](m)\n", "f32[1, s, s']"},
    {"input x: f32[h*d, s]\noutput o = matmul(x, transpose[1, 0](x))\n", "f32[h*d, h'*d']"},
    {"input x: f32[s, d]\ny = slice[-2, 0:3](x)\noutput o = matmul(y, transpose[1, 0](y))\n", "f32[s[0:3], s'[0:3]]"},
    {"input x: f32[s, d]\nm = matmul(x, transpose[1, 0](x))\noutput o = concat[-1](m, transpose[1, 0](m))\n",
     "f32[s, (s' + s')]"},
    {"input x: f32[s', d]\ninput y: f32[s, d]\noutput o = add(y, x)\n", "f32[s, d]"},
};

static void test_types_are_apart(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof squares / sizeof *squares; i++) {
        ef_ctx *ctx = ef_ctx_new();
        ef_program *p = parse(ctx, squares[i].lines);
        ef_strbuf type = {0};
        ef_type_print(ctx, ef_dag_type(p->dag, p->output[0].expr), &type);
        assert_string_equal(type.text, squares[i].type);
        ef_strbuf_free(&type);
        ef_program_free(p);
        ef_ctx_free(ctx);
    }
}

static void fill(void *user, uint32_t input, ef_tensor *out)
{
    (void)user;
    uint64_t count = 1;
    ef_rng rng = {input + 1};
    for (unsigned i = 0; i < out->rank; i++)
        count *= out->extent[i];
    for (uint64_t i = 0; i < count; i++)
        out->data[i] = ef_rng_normal(&rng);
}

static ef_evaluation *evaluate(const ef_program *p)
{
    ef_diag diag = {0};
    ef_tiling tiling = {.fallback = 2};
    ef_evaluation *e = ef_evaluate(p->dag, &p->output[0].expr, 1, &tiling, fill, NULL, 0, &diag);
    if (!e)
        fail_msg("%s", diag.text);
    return e;
}

/* The same text with sizes instead of names has no twin at all where every dimension has another size, and here the
 * dimensions that are one are written out by hand. */
static void test_values(void **state)
{
    (void)state;
    static const char *const pairs[][2] = {
        {"input x: f32[s, d]\nm = matmul(x, transpose[1, 0](x))\noutput o = matmul(div(m, add(1, transpose[1, 0](m))), "
         "x)\n",
         "dim t = 6\ninput x: f32[s, d]\ny = reshape[t, d](x)\nm = matmul(x, transpose[1, 0](y))\n"
         "mt = matmul(x, transpose[1, 0](y))\noutput o = matmul(div(m, add(1, mt)), y)\n"},
        {"input m: f32[s, s]\noutput o = sub(m, transpose[1, 0](m))\n",
         "dim t = 6\ninput m: f32[s, t]\noutput o = sub(m, reshape[s, t](transpose[1, 0](m)))\n"},
    };
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        ef_ctx *a = ef_ctx_new(), *b = ef_ctx_new();
        ef_program *p = parse(a, pairs[i][0]), *q = parse(b, pairs[i][1]);
        ef_evaluation *x = evaluate(p), *y = evaluate(q);
        assert_true(ef_evaluation_difference(x, 0, y, 0, 1) < 1e-12);
        ef_evaluation_free(x);
        ef_evaluation_free(y);
        ef_program_free(p);
        ef_program_free(q);
        ef_ctx_free(a);
        ef_ctx_free(b);
    }
}

static void test_names(void **state)
{
    (void)state;
    ef_ctx *ctx = ef_ctx_new();
    ef_var s = ef_var_named(ctx, "s", 1, 12, NULL), d = ef_var_named(ctx, "d", 1, 4, NULL);
    ef_dim both = ef_dim_product(ctx, (ef_var[]){s, d}, 2), twin = ef_dim_twin(ctx, both);
    ef_dim part = ef_dim_slice(ctx, ef_dim_of_var(ctx, s), 2, 5);
    assert_int_not_equal(both, twin);
    assert_int_equal(twin, ef_dim_twin(ctx, both));
    assert_int_equal(ef_dim_base(ctx, ef_dim_twin(ctx, twin)), both);
    assert_int_equal(ef_dim_twin(ctx, part), ef_dim_slice(ctx, ef_dim_twin(ctx, ef_dim_of_var(ctx, s)), 2, 5));
    assert_int_equal(ef_dim_twin(ctx, EF_UNIT), EF_UNIT);
    assert_int_equal(ef_dim_twin(ctx, ef_dim_count(ctx, ef_axis_of(s, 0))), EF_NONE);
    ef_var_resize(ctx, s, 7);
    assert_int_equal(ef_dim_extent(ctx, ef_dim_twin(ctx, twin)), 28);
    ef_ctx_free(ctx);
}

/* An operand that only differs by ' fits; other dimensions are still refused, with the message that they always had. */
static void test_errors_stay(void **state)
{
    (void)state;
    static const char text[] = HEAD "input x: f32[s, d]\ninput y: f32[s, h]\noutput o = add(x, y)\n";
    ef_ctx *ctx = ef_ctx_new();
    ef_diag diag = {0};
    assert_null(ef_program_parse(ctx, text, strlen(text), "p.ef", &diag));
    assert_non_null(strstr(diag.text, "p.ef:7:12: operands' dimensions do not broadcast"));
    ef_ctx_free(ctx);
}

/* Whether the e-graph of a program has a stored value with blocks along both dimensions of the scores. */
static void test_both_are_cut(void **state)
{
    (void)state;
    ef_ctx *ctx = ef_ctx_new();
    ef_diag diag = {0};
    ef_program *p = parse(ctx, "input x: f32[s, d]\noutput o = matmul(x, transpose[1, 0](x))\n");
    ef_search *search = ef_search_new(p, &(ef_search_options){.time_limit = 20}, &diag);
    assert_true(search && ef_search_saturate(search, &diag));
    ef_dim s = ef_dim_of_var(ctx, ef_var_find(ctx, "s", 1)), twin = ef_dim_twin(ctx, s);
    const ef_var *rows, *columns;
    ef_dim_atoms(ctx, s, &rows);
    ef_dim_atoms(ctx, twin, &columns);
    ef_axes grid = ef_axes_intern(ctx, (ef_axis[]){ef_axis_of(rows[0], 0), ef_axis_of(columns[0], 0)}, 2);
    bool found = false;
    for (ef_id n = ef_class_first(search->graph, search->output[0]); n != EF_NONE; n = ef_class_next(search->graph, n))
        found = found || (search->graph->op.at[n] == EF_COMBINE && search->graph->attr.at[n] == grid);
    assert_true(found);
    ef_search_free(search);
    ef_program_free(p);
    ef_ctx_free(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_types_are_apart), cmocka_unit_test(test_values),       cmocka_unit_test(test_names),
        cmocka_unit_test(test_errors_stay),     cmocka_unit_test(test_both_are_cut),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
