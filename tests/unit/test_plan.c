/* Plans: what is written is what is read, and what is inconsistent is neither written nor read. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "plan/plan.h"
#include "support/archive.h"

#define PROGRAM "tests/programs/rmsnorm_linear_b1.ef"
#define FILE_NAME "build/test_plan.efz"

/* A plan of one region that is implemented by itself. */
static ef_plan *new_plan(void)
{
    static const ef_equation equation[] = {{"o", "mul-commute", "mul(a, b)", "mul(b, a)"}};
    ef_diag diag = {0};
    ef_module *module = ef_module_read(PROGRAM, &diag);
    assert_non_null(module);
    ef_plan *plan = ef_plan_new(module, "cpu");
    ef_module_free(module); /* the plan has all that it needs */
    ef_plan_region *r = &plan->region[0];
    r->candidate = r->program;
    r->language = "c";
    r->entry = "ef_program";
    r->source = "void ef_program(void) {}\n";
    r->schedule = "k0.m.0=1";
    r->kernels = 1;
    r->device = "cpu: test";
    r->us = 12.5;
    r->warm_us = 11;
    r->original_us = 25;
    r->floor_us = 6.25;
    r->rel_l2 = 1e-4;
    r->measured = 17;
    r->equation = equation;
    r->equations = 1;
    return plan;
}

/* A region, an external call with every kind of argument, and a mutation. */
static ef_plan *new_module_plan(void)
{
    static const int64_t size[] = {2, 3};
    static const ef_mvalue value[] = {
        {.name = "x",
         .kind = EF_MV_INPUT,
         .input = 1,
         .dtype = EF_F32,
         .torch_dtype = "float32",
         .rank = 2,
         .size = size},
        {.name = "w",
         .kind = EF_MV_BUFFER,
         .target = "a.w",
         .dtype = EF_DTYPE_COUNT,
         .torch_dtype = "uint8",
         .rank = 2,
         .size = size},
        {.name = "y",
         .kind = EF_MV_RESULT,
         .step = 0,
         .dtype = EF_DTYPE_COUNT,
         .torch_dtype = "uint8",
         .rank = 2,
         .size = size},
    };
    static const uint32_t in[] = {0, 1}, out[] = {2};
    static const ef_mstep step[] = {
        {.kind = EF_MS_EXTERNAL,
         .ins = 2,
         .outs = 1,
         .in = in,
         .out = out,
         .target = "aten.foo.default",
         .arguments = "{\"args\":[{\"tensor\":0},[{\"tensor\":1},null],{\"float\":\"-inf\"},1,2.5,\"text\",true],"
                      "\"kwargs\":{\"dtype\":{\"dtype\":\"uint8\"}}}",
         .results = "[{\"tensor\":0},null]",
         .reason = "the IR has no foo"},
    };
    static const ef_moutput output[] = {{2, NULL}, {EF_NONE, "2.5"}, {EF_NONE, "null"}};
    static const ef_mmutation mutation[] = {{2, 1}};
    const ef_module module = {.name = "m",
                              .values = 3,
                              .steps = 1,
                              .outputs = 3,
                              .mutations = 1,
                              .user_inputs = 2,
                              .value = value,
                              .step = step,
                              .output = output,
                              .mutation = mutation,
                              .in_spec = "[1]",
                              .out_spec = "[2]"};
    return ef_plan_new(&module, "h200");
}

static ef_plan *write_and_read(ef_plan *plan)
{
    ef_diag diag = {0};
    if (!ef_plan_write(plan, FILE_NAME, &diag))
        fail_msg("%s", diag.text);
    ef_plan *read = ef_plan_read(FILE_NAME, &diag);
    if (!read)
        fail_msg("%s", diag.text);
    unlink(FILE_NAME);
    ef_plan_free(plan);
    return read;
}

static void regions_come_back(void **state)
{
    (void)state;
    ef_plan *expected = new_plan(), *read = write_and_read(new_plan());
    const ef_plan_region *a = &expected->region[0], *b = &read->region[0];
    assert_int_equal(read->regions, 1);
    assert_string_equal(a->program, b->program);
    assert_string_equal(a->candidate, b->candidate);
    assert_string_equal(a->source, b->source);
    assert_string_equal(a->schedule, b->schedule);
    assert_true(a->us == b->us && a->rel_l2 == b->rel_l2 && a->floor_us == b->floor_us);
    assert_int_equal(b->measured, 17);
    assert_int_equal(b->equations, 1);
    assert_string_equal(b->equation[0].rule, "mul-commute");
    assert_null(read->in_spec);
    assert_int_equal(read->values, expected->values);
    for (uint32_t i = 0; i < read->values; i++)
        assert_string_equal(read->value[i].name, expected->value[i].name);
    ef_plan_free(expected);
    ef_plan_free(read);
}

static void modules_come_back(void **state)
{
    (void)state;
    ef_plan *read = write_and_read(new_module_plan());
    assert_string_equal(read->target, "h200");
    assert_string_equal(read->in_spec, "[1]");
    assert_int_equal(read->user_inputs, 2);
    assert_int_equal(read->value[0].input, 1);
    assert_string_equal(read->value[1].target, "a.w");
    assert_int_equal(read->value[1].dtype, EF_DTYPE_COUNT);
    assert_string_equal(read->value[1].torch_dtype, "uint8");
    assert_int_equal(read->step[0].kind, EF_MS_EXTERNAL);
    assert_non_null(strstr(read->step[0].arguments, "{\"float\":\"-inf\"}"));
    assert_string_equal(read->step[0].results, "[{\"tensor\":0},null]");
    assert_string_equal(read->output[1].literal, "2.5");
    assert_int_equal(read->mutation[0].target, 1);
    ef_plan_free(read);
}

static void the_same_plan_gives_the_same_file(void **state)
{
    static char bytes[2][1 << 16];
    size_t size[2];
    (void)state;
    for (int i = 0; i < 2; i++) {
        ef_diag diag = {0};
        ef_plan *plan = new_plan();
        assert_true(ef_plan_write(plan, FILE_NAME, &diag));
        FILE *file = fopen(FILE_NAME, "rb");
        assert_non_null(file);
        if (!file)
            return;
        size[i] = fread(bytes[i], 1, sizeof bytes[i], file);
        fclose(file);
        ef_plan_free(plan);
    }
    unlink(FILE_NAME);
    assert_int_equal(size[0], size[1]);
    assert_memory_equal(bytes[0], bytes[1], size[0]);
}

static void shared_regions_are_kept_once(void **state)
{
    (void)state;
    ef_plan *plan = new_plan();
    ef_plan_step *step = ef_arena_alloc(plan->arena, 2 * sizeof *step);
    ef_plan_region *region = ef_arena_alloc(plan->arena, 3 * sizeof *region);
    step[0] = step[1] = plan->step[0];
    region[0] = region[1] = region[2] = plan->region[0];
    region[2].us = 3;
    step[0].region = step[1].region = 2;
    plan->step = step;
    plan->region = region;
    plan->regions = 3;
    plan->steps = 2;
    ef_plan_compact(plan);
    assert_int_equal(plan->regions, 1);
    assert_int_equal(plan->step[1].region, 0);
    assert_true(plan->region[0].us == 3);
    ef_plan_free(plan);
}

/* ---- plans that are not whole ---- */

static void refused(ef_plan *plan, const char *words)
{
    ef_diag diag = {0};
    assert_false(ef_plan_write(plan, FILE_NAME, &diag));
    if (!strstr(diag.text, words))
        fail_msg("'%s' does not say '%s'", diag.text, words);
    assert_int_not_equal(access(FILE_NAME, F_OK), 0);
    ef_plan_free(plan);
}

static ef_mvalue *values(ef_plan *plan)
{
    ef_mvalue *copy = ef_arena_alloc(plan->arena, plan->values * sizeof *copy);
    memcpy(copy, plan->value, plan->values * sizeof *copy);
    plan->value = copy;
    return copy;
}

static void inconsistent_plans_are_not_written(void **state)
{
    (void)state;
    ef_plan *p = new_plan();
    p->region[0].language = "fortran";
    refused(p, "unknown language 'fortran'");
    p = new_plan();
    p->region[0].entry = "other";
    refused(p, "no function 'other'");
    p = new_plan();
    p->region[0].us = -1;
    refused(p, "no number");
    p = new_plan();
    p->region[0].candidate = "program p\ninput z: f16[2]\noutput o = exp(z)\n";
    refused(p, "differ");
    p = new_plan();
    p->region[0].program = "program p\n";
    refused(p, "program.ef:");
    p = new_plan();
    values(p)[0].rank = 0;
    refused(p, "has not the type of input 0");
    p = new_plan();
    values(p)[1].name = p->value[0].name;
    refused(p, "two values are called");
    p = new_plan();
    values(p)[0].input = 9;
    refused(p, "is input 9 of 3");
    p = new_plan();
    p->step[0].outs = 0;
    refused(p, "is never computed");
    p = new_plan();
    p->step[0].region = 1;
    refused(p, "has no region");
    p = new_plan();
    p->target = "";
    refused(p, "target has no name");
}

static void malformed_calls_are_not_written(void **state)
{
    static const char *const arguments[] = {"",
                                            "[]",
                                            "{\"args\":[],\"kwargs\":[]}",
                                            "{\"args\":[{\"tensor\":2}],\"kwargs\":{}}",
                                            "{\"args\":[{\"tensor\":-1}],\"kwargs\":{}}",
                                            "{\"args\":[{\"float\":\"1\"}],\"kwargs\":{}}",
                                            "{\"args\":[{\"poem\":\"roses\"}],\"kwargs\":{}}",
                                            "{\"args\":[{\"graph\":1}],\"kwargs\":{}}",
                                            "{\"args\":[{}],\"kwargs\":{}}",
                                            "{\"args\":[],\"kwargs\":{},\"more\":1}"};
    static const char *const results[] = {"", "1", "{\"tensor\":1}", "[{\"float\":\"inf\"}]", "{\"tensor\":true}"};
    (void)state;
    for (size_t i = 0; i < sizeof arguments / sizeof *arguments; i++) {
        ef_plan *p = new_module_plan();
        p->step[0].arguments = arguments[i];
        refused(p, "aten.foo.default: malformed arguments");
    }
    for (size_t i = 0; i < sizeof results / sizeof *results; i++) {
        ef_plan *p = new_module_plan();
        p->step[0].results = results[i];
        refused(p, "aten.foo.default: malformed results");
    }
}

static void other_archives_are_not_read(void **state)
{
    static const char newer[] = "{\"format\": \"efz\", \"format_version\": 99}";
    static const ef_archive_entry entries[] = {{"manifest.json", newer, sizeof newer - 1}, {"extra", "", 0}};
    (void)state;
    ef_diag diag = {0}, none = {0}, absent = {0};
    assert_true(ef_archive_write(FILE_NAME, entries, 2, &diag));
    assert_null(ef_plan_read(FILE_NAME, &diag));
    assert_non_null(strstr(diag.text, FILE_NAME ": has format version 99"));
    assert_true(ef_archive_write(FILE_NAME, entries + 1, 1, &none));
    assert_null(ef_plan_read(FILE_NAME, &none));
    assert_string_equal(none.text, FILE_NAME ": is not an optimised module");
    unlink(FILE_NAME);
    assert_null(ef_plan_read(FILE_NAME, &absent));
    assert_non_null(strstr(absent.text, "No such file"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(regions_come_back),
        cmocka_unit_test(modules_come_back),
        cmocka_unit_test(the_same_plan_gives_the_same_file),
        cmocka_unit_test(shared_regions_are_kept_once),
        cmocka_unit_test(inconsistent_plans_are_not_written),
        cmocka_unit_test(malformed_calls_are_not_written),
        cmocka_unit_test(other_archives_are_not_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
