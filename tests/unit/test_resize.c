/* Other sizes for a program (src/ir/resize.c): draws satisfy what its extents depend on, so the evaluator takes them.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "ir/eval.h"
#include "ir/resize.h"
#include "ir/text.h"

#define DRAWS 40

typedef struct {
    ef_ctx *ctx;
    ef_program *program;
    ef_resizing *sizes;
    ef_rng rng;
} session;

static session session_new(const char *text)
{
    ef_diag diag = {0};
    session s = {.ctx = ef_ctx_new(), .rng = {7}};
    ef_expr roots[8];
    s.program = ef_program_parse(s.ctx, text, strlen(text), "test.ef", &diag);
    if (!s.program) {
        fail_msg("%s", diag.text);
        abort(); /* not reached, but cmocka's declarations do not say so */
    }
    for (uint32_t i = 0; i < s.program->outputs; i++)
        roots[i] = s.program->output[i].expr;
    s.sizes = ef_resizing_new(s.ctx);
    ef_resizing_read(s.sizes, s.program->dag, roots, s.program->outputs);
    return s;
}

static uint64_t extent(const session *s, const char *name)
{
    ef_var var = ef_var_find(s->ctx, name, (unsigned)strlen(name));
    assert_int_not_equal(var, EF_NONE);
    return ef_var_at(s->ctx, var)->extent;
}

static void fill(void *user, uint32_t input, ef_tensor *out)
{
    uint64_t count = 1;
    (void)user;
    for (unsigned i = 0; i < out->rank; i++)
        count *= out->extent[i];
    for (uint64_t i = 0; i < count; i++)
        out->data[i] = (double)(i + input);
}

static void draw(session *s)
{
    ef_diag diag = {0};
    static const uint32_t extents[] = {2, 3, 4, 5};
    ef_resizing_draw(s->sizes, &s->rng, extents, 4);
    for (uint32_t i = 0; i < s->program->outputs; i++) {
        ef_evaluation *e = ef_evaluate(s->program->dag, &s->program->output[i].expr, 1, NULL, fill, NULL, 0, &diag);
        if (!e)
            fail_msg("%s", diag.text);
        ef_evaluation_free(e);
    }
}

static void session_free(session *s)
{
    ef_resizing_free(s->sizes);
    ef_program_free(s->program);
    ef_ctx_free(s->ctx);
}

/* Two histories to which a token is appended have one length, and it varies. */
static void test_appended_token(void **state)
{
    (void)state;
    session s = session_new("program p\ndim h = 4\ndim old = 99\ndim old2 = 99\ndim s = 100\ndim d = 8\ndim e = 6\n"
                            "input a: f32[h, old, d]\ninput b: f32[h, 1, d]\ninput c: f32[h, old2, e]\n"
                            "input f: f32[h, 1, e]\n"
                            "k = reshape[h, s, d](concat[-2](a, b))\nv = reshape[h, s, e](concat[-2](c, f))\n"
                            "output o = matmul(transpose[0, 2, 1](k), v)\n");
    unsigned lengths = 0;
    for (unsigned i = 0; i < DRAWS; i++) {
        draw(&s);
        assert_int_equal(extent(&s, "s"), extent(&s, "old") + 1);
        assert_int_equal(extent(&s, "old2"), extent(&s, "old"));
        assert_in_range(extent(&s, "s"), 3, 6);
        assert_in_range(extent(&s, "d"), 2, 5);
        lengths |= 1u << extent(&s, "s");
    }
    assert_true(__builtin_popcount(lengths) >= 3);
    ef_resizing_restore(s.sizes);
    ef_resizing_free(s.sizes);
    assert_int_equal(extent(&s, "s"), 100);
    assert_int_equal(extent(&s, "old"), 99);
    s.sizes = ef_resizing_new(s.ctx); /* concatenations are as before, too */
    ef_resizing_read(s.sizes, s.program->dag, &s.program->output[0].expr, 1);
    ef_resizing_keep(s.sizes, ef_var_find(s.ctx, "old2", 4));
    draw(&s);
    assert_int_equal(extent(&s, "s"), 100);
    assert_int_equal(extent(&s, "old"), 99);
    assert_in_range(extent(&s, "d"), 2, 5);
    session_free(&s);
}

/* Products that must agree, a product of what is sliced, and a sum of products. */
static void test_products(void **state)
{
    (void)state;
    session s =
        session_new("program p\ndim m = 12\ndim a = 3\ndim b = 4\ndim x = 6\ndim y = 10\ndim z = 15\ndim w = 4\n"
                    "input u: f32[m, y]\ninput t: f32[x, y]\n"
                    "output o = reshape[a, b, y](u)\n"
                    "output p = reshape[z, w](t)\n");
    for (unsigned i = 0; i < DRAWS; i++) {
        draw(&s);
        assert_int_equal(extent(&s, "m"), extent(&s, "a") * extent(&s, "b"));
        assert_int_equal(extent(&s, "x") * extent(&s, "y"), extent(&s, "z") * extent(&s, "w"));
        assert_in_range(extent(&s, "m"), 4, 25);
    }
    session_free(&s);
    s = session_new("program p\ndim n = 4\ndim d = 24\ndim i = 4\ndim j = 2\ndim r = 16\ndim g = 3\ndim t = 6\n"
                    "input u: f32[n, d]\ninput h: f32[n, g*t]\n"
                    "turned = reshape[n, i*j](slice[-1, 16:24](u))\n"
                    "output o = reshape[n, r](concat[-1](turned, turned))\n"
                    "output q = reshape[n*g, t](h)\n");
    for (unsigned i = 0; i < DRAWS; i++) {
        draw(&s);
        assert_int_equal(extent(&s, "d"), 24); /* positions of it are spoken of */
        assert_int_equal(extent(&s, "i") * extent(&s, "j"), 8);
        assert_int_equal(extent(&s, "r"), 16);
        assert_in_range(extent(&s, "t"), 2, 5);
    }
    session_free(&s);
}

/* Slices of one position or of all positions leave no trace in types. */
static void test_slices_without_trace(void **state)
{
    (void)state;
    session s = session_new("program p\ndim m = 9\ndim n = 8\ninput u: f32[m, n]\n"
                            "output o = slice[-1, 7:8](u)\noutput p = slice[-2, 0:9](u)\n");
    for (unsigned i = 0; i < 4; i++) {
        draw(&s);
        assert_int_equal(extent(&s, "n"), 8);
        assert_int_equal(extent(&s, "m"), 9);
    }
    session_free(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_appended_token),
        cmocka_unit_test(test_products),
        cmocka_unit_test(test_slices_without_trace),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
