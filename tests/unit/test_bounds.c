/* Limits: what is too large, too many or out of range is refused, and neither wraps nor disappears. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "equiforge.h"
#include "ir/expr.h"
#include "ir/type.h"
#include "support/deepstack.h"

static ef_var var(ef_ctx *ctx, unsigned i, uint64_t extent)
{
    char name[16];
    unsigned length = (unsigned)snprintf(name, sizeof name, "v%u", i);
    return ef_var_named(ctx, name, length, extent, NULL);
}

static ef_type tensor(ef_ctx *ctx, ef_var v)
{
    ef_dim dim = ef_dim_of_var(ctx, v);
    return ef_type_tensor(ctx, EF_F32, &dim, 1);
}

static void test_sets_of_axes(void **state)
{
    (void)state;
    ef_ctx *ctx = ef_ctx_new();
    ef_axis low[EF_MAX_AXES], high[EF_MAX_AXES + 1];
    for (unsigned i = 0; i < EF_MAX_AXES; i++) {
        low[i] = ef_axis_of(var(ctx, i, 4), 0);
        high[i] = ef_axis_of(ef_axis_var(low[i]), 1);
    }
    high[EF_MAX_AXES] = low[0];
    ef_axes a = ef_axes_intern(ctx, low, EF_MAX_AXES), b = ef_axes_intern(ctx, high, EF_MAX_AXES);
    assert_int_not_equal(a, EF_AXES_TOO_MANY);
    assert_int_not_equal(b, EF_AXES_TOO_MANY);
    assert_int_equal(ef_axes_intern(ctx, high, EF_MAX_AXES + 1), EF_AXES_TOO_MANY);
    assert_int_equal(ef_axes_union(ctx, a, b), EF_AXES_TOO_MANY);
    assert_int_equal(ef_axes_union(ctx, EF_AXES_TOO_MANY, a), EF_AXES_TOO_MANY);
    assert_int_equal(ef_axes_minus(ctx, EF_AXES_TOO_MANY, a), EF_AXES_TOO_MANY);
    ef_type x = tensor(ctx, var(ctx, 100, 4));
    assert_int_equal(ef_infer(ctx, EF_VIEW, EF_AXES_TOO_MANY, &x, 1, NULL), 0);
    assert_int_equal(ef_infer(ctx, EF_COMBINE, EF_AXES_TOO_MANY, &x, 1, NULL), 0);
    ef_type field[3];
    for (unsigned i = 0; i < 3; i++)
        field[i] = ef_infer(ctx, EF_VIEW, ef_axes_intern(ctx, i == 2 ? high : low + 16 * i, 16), &x, 1, NULL);
    assert_true(field[0] && field[1] && field[2]);
    assert_int_not_equal(ef_infer(ctx, EF_TUPLE, 0, field, 2, NULL), 0);
    assert_int_equal(ef_infer(ctx, EF_TUPLE, 0, field, 3, NULL), 0);
    ef_ctx_free(ctx);
}

static void test_reshape(void **state)
{
    (void)state;
    ef_ctx *ctx = ef_ctx_new();
    ef_diag diag = {0};
    ef_type x = tensor(ctx, var(ctx, 0, 4096));
    ef_dim huge[] = {ef_dim_of_var(ctx, var(ctx, 1, EF_MAX_EXTENT)), ef_dim_of_var(ctx, var(ctx, 2, EF_MAX_EXTENT))};
    ef_dim fine[] = {ef_dim_of_var(ctx, var(ctx, 3, 64)), ef_dim_of_var(ctx, var(ctx, 4, 64))};
    assert_int_equal(ef_infer(ctx, EF_RESHAPE, ef_dims_intern(ctx, huge, 2), &x, 1, &diag), 0);
    assert_non_null(strstr(diag.text, "too large"));
    assert_int_not_equal(ef_infer(ctx, EF_RESHAPE, ef_dims_intern(ctx, fine, 2), &x, 1, NULL), 0);
    ef_ctx_free(ctx);
}

static void test_compaction(void **state)
{
    (void)state;
    equiforge_session *session = equiforge_session_new();
    equiforge_program *program;
    equiforge_search_result result;
    equiforge_limits limits = {.compaction = (equiforge_compaction)77};
    assert_int_equal(equiforge_open(session, "tests/programs/gated_mlp_b1.ef", &program), EQUIFORGE_OK);
    assert_int_equal(equiforge_search(program, &limits, &result), EQUIFORGE_BAD_INPUT);
    assert_string_equal(equiforge_message(session), "there is no compaction 77");
    equiforge_close(program);
    equiforge_session_free(session);
}

static unsigned fall(unsigned depth)
{
    volatile char frame[1024];
    frame[depth % sizeof frame] = (char)depth;
    return depth ? fall(depth - 1) + (unsigned)(frame[depth % sizeof frame] == (char)depth) : 0;
}

static void fall_far(void *depth)
{
    *(unsigned *)depth = fall(*(unsigned *)depth);
}

static void test_deep_stack(void **state)
{
    (void)state;
    unsigned depth = 60000; /* 60 MiB and more */
    ef_with_deep_stack(fall_far, &depth);
    assert_int_equal(depth, 60000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sets_of_axes),
        cmocka_unit_test(test_reshape),
        cmocka_unit_test(test_compaction),
        cmocka_unit_test(test_deep_stack),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
