/* Modules (src/frontend/module.h): a program in text form is a module of one region. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "frontend/module.h"

static void text_is_one_region(void **state)
{
    (void)state;
    ef_diag diag = {0};
    ef_module *m = ef_module_read("tests/programs/lora_b8.ef", &diag);
    assert_non_null(m);
    assert_string_equal(m->name, "lora_b8");
    assert_int_equal(m->steps, 1);
    assert_int_equal(m->regions, 1);
    assert_int_equal(m->user_inputs, 4);
    assert_int_equal(m->outputs, 1);
    assert_int_equal(m->mutations, 0);
    assert_int_equal(m->step[0].kind, EF_MS_REGION);
    assert_int_equal(m->step[0].ins, 4);
    for (uint32_t i = 0; i < 4; i++) {
        assert_int_equal(m->step[0].in[i], i);
        assert_int_equal(m->value[i].kind, EF_MV_INPUT);
        assert_int_equal(m->value[i].input, i);
    }
    const ef_mvalue *y = &m->value[m->output[0].value];
    assert_int_equal(m->step[0].out[0], m->output[0].value);
    assert_string_equal(y->name, "y");
    assert_int_equal(y->kind, EF_MV_RESULT);
    assert_int_equal(y->dtype, EF_F16);
    assert_string_equal(y->torch_dtype, "float16");
    assert_int_equal(y->rank, 2);
    assert_int_equal(y->size[0], 8);
    assert_int_equal(y->size[1], 4096);
    ef_module_free(m);
}

static void tuples_are_refused(void **state)
{
    (void)state;
    const char *text = "program p\ninput x: f16[4]\noutput y = tuple(x, x)\n";
    ef_diag diag = {0};
    ef_ctx *ctx = ef_ctx_new();
    ef_program *program = ef_program_parse(ctx, text, strlen(text), "t", &diag);
    assert_non_null(program);
    assert_null(ef_module_of_program(program, &diag));
    assert_non_null(strstr(diag.text, "y is a tuple"));
    ef_program_free(program);
    ef_ctx_free(ctx);
}

static void missing_files_are_named(void **state)
{
    (void)state;
    ef_diag diag = {0};
    assert_null(ef_module_read("tests/programs/absent.ef", &diag));
    assert_non_null(strstr(diag.text, "absent.ef"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(text_is_one_region),
        cmocka_unit_test(tuples_are_refused),
        cmocka_unit_test(missing_files_are_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
