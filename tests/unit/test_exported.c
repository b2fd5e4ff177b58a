/* Exported programs: arguments and the bytes of parameters, as PyTorch 2.13 wrote them (tests/frontend). What `inspect`
 * shows is tested in tests/cli/test_pt2.py. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "frontend/exported.h"

#define ARCHIVES "tests/frontend/archives/2.13/"

static ef_exported *read_archive(const char *path)
{
    ef_diag diag = {0};
    ef_exported *program = ef_exported_read(path, &diag);
    if (!program)
        fail_msg("%s", diag.text);
    return program;
}

static uint32_t input_of(const ef_exported *p, const char *target)
{
    for (uint32_t i = 0; i < p->inputs; i++)
        if (p->input[i].kind != EF_XI_USER && strcmp(p->input[i].target, target) == 0)
            return i;
    fail_msg("no input %s", target);
    return 0;
}

/* The nth call of an operator. */
static const ef_xnode *node_of(const ef_exported *p, const char *target, unsigned nth)
{
    for (uint32_t i = 0; i < p->nodes; i++)
        if (strcmp(p->node[i].target, target) == 0 && nth-- == 0)
            return &p->node[i];
    fail_msg("no node %s", target);
    return NULL;
}

/* ---- bytes ---- */

static void expect_floats(ef_exported *p, const char *target, const float *expected, unsigned count)
{
    ef_diag diag = {0};
    float found[64];
    uint32_t input = input_of(p, target);
    assert_int_equal(ef_xvalue_elements(&p->value[p->input[input].value]), count);
    if (!ef_exported_data(p, input, found, count * sizeof *found, &diag))
        fail_msg("%s", diag.text);
    for (unsigned i = 0; i < count; i++)
        assert_true(found[i] == expected[i]);
}

static void views_of_a_storage_come_out_contiguous(void **state)
{
    (void)state;
    ef_exported *p = read_archive(ARCHIVES "storage.pt2");
    expect_floats(p, "turned", (float[]){0, 5, 10, 1, 6, 11, 2, 7, 12, 3, 8, 13, 4, 9, 14}, 15);
    expect_floats(p, "part", (float[]){8, 9, 10, 14, 15, 16}, 6);
    expect_floats(p, "column", (float[]){3, 9, 15, 21}, 4);
    expect_floats(p, "wide", (float[]){0, 1, 2, 0, 1, 2, 0, 1, 2, 0, 1, 2}, 12);
    expect_floats(p, "scalar", (float[]){7}, 1);
    expect_floats(p, "hidden", (float[]){0, 1, 2}, 3);
    ef_exported_free(p);
}

static void views_of_a_storage_share_its_entry(void **state)
{
    (void)state;
    ef_exported *p = read_archive(ARCHIVES "storage.pt2");
    const ef_xinput *whole = &p->input[input_of(p, "whole")], *part = &p->input[input_of(p, "part")];
    assert_string_equal(whole->entry, part->entry);
    assert_int_equal(whole->offset, 0);
    assert_int_equal(part->offset, 8 * sizeof(float));
    assert_true(part->persistent);
    assert_false(p->input[input_of(p, "hidden")].persistent);
    ef_exported_free(p);
}

static void wrong_sizes_are_refused(void **state)
{
    (void)state;
    float room[64];
    ef_diag diag = {0}, none = {0};
    ef_exported *p = read_archive(ARCHIVES "storage.pt2");
    assert_false(ef_exported_data(p, input_of(p, "part"), room, 5 * sizeof *room, &diag));
    assert_true(diag.failed);
    assert_false(ef_exported_data(p, p->inputs - 1, room, sizeof *room, &none)); /* the caller's input has no bytes */
    assert_true(none.failed);
    ef_exported_free(p);
}

static void every_element_type_is_read(void **state)
{
    static const struct {
        const char *name, *type;
        unsigned bytes;
    } expected[] = {{"a_float16", "float16", 2}, {"a_bfloat16", "bfloat16", 2}, {"a_float64", "float64", 8},
                    {"a_int64", "int64", 8},     {"a_int32", "int32", 4},       {"a_int16", "int16", 2},
                    {"a_int8", "int8", 1},       {"a_uint8", "uint8", 1},       {"truth", "bool", 1}};
    (void)state;
    char room[64];
    ef_diag diag = {0};
    ef_exported *p = read_archive(ARCHIVES "types.pt2");
    for (size_t i = 0; i < sizeof expected / sizeof *expected; i++) {
        uint32_t input = input_of(p, expected[i].name);
        const ef_xvalue *v = &p->value[p->input[input].value];
        assert_string_equal(ef_xscalars[v->dtype].name, expected[i].type);
        assert_true(ef_exported_data(p, input, room, ef_xvalue_elements(v) * expected[i].bytes, &diag));
    }
    ef_exported_free(p);
}

/* ---- arguments ---- */

static void arguments_have_their_kinds(void **state)
{
    (void)state;
    ef_exported *p = read_archive(ARCHIVES "arguments.pt2");
    const ef_xnode *split = node_of(p, "aten.split_with_sizes.default", 0);
    const ef_xarg *sizes = ef_xnode_arg(split, "split_sizes", EF_NONE);
    assert_int_equal(sizes->kind, EF_XA_INTS);
    assert_int_equal(sizes->count, 3);
    assert_int_equal(sizes->integers[1], 2);
    assert_int_equal(split->output[0].kind, EF_XA_TENSORS);
    assert_int_equal(split->output[0].count, 3);
    const ef_xnode *index = node_of(p, "aten.index.Tensor", 0);
    const ef_xarg *indices = ef_xnode_arg(index, "indices", EF_NONE);
    assert_int_equal(indices->kind, EF_XA_OPTIONAL_TENSORS);
    assert_int_equal(indices->values[0], EF_NONE);
    assert_int_not_equal(indices->values[1], EF_NONE);
    const ef_xarg *fill = ef_xnode_arg(node_of(p, "aten.masked_fill.Scalar", 0), "value", EF_NONE);
    assert_int_equal(fill->kind, EF_XA_FLOAT);
    assert_true(isinf(fill->number) && fill->number < 0);
    const ef_xarg *tanh = ef_xnode_arg(node_of(p, "aten.gelu.default", 0), "approximate", EF_NONE);
    assert_string_equal(tanh->text, "tanh");
    assert_true(tanh->keyword);
    const ef_xnode *full = node_of(p, "aten.full.default", 0);
    assert_int_equal(ef_xnode_arg(full, "dtype", EF_NONE)->integer, EF_X_FLOAT16);
    assert_string_equal(ef_xnode_arg(full, "device", EF_NONE)->text, "cpu");
    assert_null(ef_xnode_arg(full, "layout", EF_NONE));
    assert_int_equal(node_of(p, "aten.topk.default", 0)->outputs, 2);
    ef_exported_free(p);
}

static void names_are_unique_over_submodules(void **state)
{
    (void)state;
    ef_exported *p = read_archive(ARCHIVES "regions.pt2");
    for (uint32_t i = 0; i < p->values; i++)
        for (uint32_t j = 0; j < i; j++)
            assert_string_not_equal(p->value[i].name, p->value[j].name);
    /* The product after the region uses the result of the region inside the region. */
    const ef_xnode *exp = node_of(p, "aten.exp.default", 0), *mul = node_of(p, "aten.mul.Tensor", 1);
    assert_int_equal(mul->arg[0].value, exp->output[0].value);
    assert_string_equal(exp->source, "File \"make_archives.py\", line 97, in forward");
    ef_exported_free(p);
}

static void results_may_be_anything(void **state)
{
    (void)state;
    ef_exported *p = read_archive(ARCHIVES "results.pt2");
    static const ef_xarg_kind kinds[] = {EF_XA_TENSOR, EF_XA_TENSOR, EF_XA_TENSOR, EF_XA_NONE,  EF_XA_INT,
                                         EF_XA_FLOAT,  EF_XA_BOOL,   EF_XA_STRING, EF_XA_TENSOR};
    assert_int_equal(p->outputs, sizeof kinds / sizeof *kinds);
    for (uint32_t i = 0; i < p->outputs; i++) {
        assert_int_equal(p->output[i].literal.kind, kinds[i]);
        assert_true((p->output[i].value == EF_NONE) == (kinds[i] != EF_XA_TENSOR));
    }
    assert_int_equal(p->output[0].value, p->output[1].value);
    assert_int_equal(p->output[2].value, p->input[1].value); /* an input as it is */
    assert_int_equal(p->input[2].value, EF_NONE);
    assert_string_equal(p->input[2].literal.name, "scale");
    assert_true(p->input[2].literal.number == 1.5);
    ef_exported_free(p);
}

static void operators_in_place_are_told_by_their_name(void **state)
{
    static const struct {
        const char *target;
        bool in_place;
    } cases[] = {{"aten.add_.Tensor", true},      {"aten.add.Tensor", false},
                 {"aten.copy_.default", true},    {"aten.__and__.Tensor", false},
                 {"_operator.mul", false},        {"aten._softmax.default", false},
                 {"mylib.update_.default", true}, {"aten", false}};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_int_equal(ef_xnode_in_place(&(ef_xnode){.target = cases[i].target}), cases[i].in_place);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(views_of_a_storage_come_out_contiguous),
        cmocka_unit_test(views_of_a_storage_share_its_entry),
        cmocka_unit_test(wrong_sizes_are_refused),
        cmocka_unit_test(every_element_type_is_read),
        cmocka_unit_test(arguments_have_their_kinds),
        cmocka_unit_test(names_are_unique_over_submodules),
        cmocka_unit_test(results_may_be_anything),
        cmocka_unit_test(operators_in_place_are_told_by_their_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
