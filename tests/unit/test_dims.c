/* Dimension variables from sizes (src/frontend/dims.h): products align, what stands in one tensor stays apart, twins
 * are shared. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "frontend/dims.h"

static int begin(void **state)
{
    *state = ef_slots_new();
    return 0;
}

static int end(void **state)
{
    ef_slots_free(*state);
    return 0;
}

static void equal_sizes_mean_nothing(void **state)
{
    ef_slots *s = *state;
    ef_slot a = ef_slot_new(s, 8), b = ef_slot_new(s, 8);
    assert_int_equal(ef_slot_new(s, 1), EF_SLOT_UNIT);
    assert_false(ef_slot_equal(s, a, b));
    assert_true(ef_slot_unify(s, a, b));
    assert_true(ef_slot_equal(s, a, b));
    assert_false(ef_slot_unify(s, a, ef_slot_new(s, 9)));
}

static void one_tensor_keeps_its_dimensions_apart(void **state)
{
    ef_slots *s = *state;
    ef_slot weight[2] = {ef_slot_new(s, 8), ef_slot_new(s, 8)}, x = ef_slot_new(s, 8);
    assert_true(ef_slot_together(s, weight, 2));
    assert_true(ef_slot_unify(s, x, weight[0]));
    assert_false(ef_slot_unify(s, x, weight[1]));
    assert_false(ef_slot_equal(s, x, weight[1]));
    assert_false(ef_slot_together(s, (ef_slot[2]){x, weight[0]}, 2));
}

static void a_view_splits_a_dimension_everywhere(void **state)
{
    ef_slots *s = *state;
    ef_slot columns = ef_slot_new(s, 32), heads[2], leaf[EF_SLOT_LEAVES];
    ef_slot_reshape(s, &columns, 1, (uint64_t[2]){4, 8}, 2, heads);
    assert_int_equal(ef_slot_leaves(s, &columns, 1, leaf), 2);
    assert_int_equal(leaf[0], ef_slot_find(s, heads[0]));
    assert_int_equal(leaf[1], ef_slot_find(s, heads[1]));
    ef_slot back[1]; /* and merges back into the same */
    ef_slot_reshape(s, heads, 2, (uint64_t[1]){32}, 1, back);
    assert_true(ef_slot_equal(s, back[0], columns));
}

static void products_align_from_the_outside_in(void **state)
{
    ef_slots *s = *state;
    /* 8 query heads of 16 meet (2 key heads, groups of 4) of 16: the heads become key heads times groups. */
    ef_slot width = ef_slot_new(s, 128), query[2], grouped[3], merged[1], leaf[EF_SLOT_LEAVES];
    ef_slot_reshape(s, &width, 1, (uint64_t[2]){8, 16}, 2, query);
    ef_slot keys[3] = {ef_slot_new(s, 2), ef_slot_new(s, 4), ef_slot_new(s, 16)};
    ef_slot_reshape(s, keys, 2, (uint64_t[1]){8}, 1, merged);
    assert_true(ef_slot_unify(s, query[0], merged[0]));
    assert_int_equal(ef_slot_leaves(s, query, 1, leaf), 2);
    assert_true(ef_slot_equal(s, leaf[0], keys[0]));
    assert_int_equal(ef_slot_leaves(s, &width, 1, leaf), 3);
    ef_slot_reshape(s, &width, 1, (uint64_t[3]){2, 4, 16}, 3, grouped);
    assert_true(ef_slot_equal(s, grouped[1], keys[1]));
}

static void what_does_not_align_is_left_alone(void **state)
{
    ef_slots *s = *state;
    ef_slot in[2] = {ef_slot_new(s, 6), ef_slot_new(s, 4)}, out[2], leaf[EF_SLOT_LEAVES];
    ef_slot_reshape(s, in, 2, (uint64_t[2]){4, 6}, 2, out);
    assert_int_equal(ef_slot_leaves(s, in, 2, leaf), 2);
    assert_false(ef_slot_equal(s, out[0], in[1]));
    assert_int_equal(ef_slot_size(s, out[0]), 4);
}

static void units_come_and_go(void **state)
{
    ef_slots *s = *state;
    ef_slot in[3] = {ef_slot_new(s, 5), EF_SLOT_UNIT, ef_slot_new(s, 7)}, out[4];
    ef_slot_reshape(s, in, 3, (uint64_t[4]){1, 5, 7, 1}, 4, out);
    assert_int_equal(out[0], EF_SLOT_UNIT);
    assert_true(ef_slot_equal(s, out[1], in[0]));
    assert_true(ef_slot_equal(s, out[2], in[2]));
    assert_int_equal(out[3], EF_SLOT_UNIT);
}

static void splitting_remembers_what_stands_together(void **state)
{
    ef_slots *s = *state;
    ef_slot tensor[2] = {ef_slot_new(s, 4), ef_slot_new(s, 32)}, heads[2];
    ef_slot_together(s, tensor, 2);
    ef_slot_reshape(s, &tensor[1], 1, (uint64_t[2]){4, 8}, 2, heads);
    assert_false(ef_slot_unify(s, heads[0], tensor[0]));
}

static void twins_are_shared(void **state)
{
    ef_slots *s = *state;
    ef_slot rows = ef_slot_new(s, 10), columns = ef_slot_twin(s, rows, 0);
    assert_int_equal(ef_slot_twin(s, rows, 0), columns);
    assert_int_equal(ef_slot_twin_of(s, columns), rows);
    ef_slot_together(s, (ef_slot[2]){rows, columns}, 2);
    /* What must stay apart from the rows, but has their size for ever, is their twin already. */
    ef_slot part = ef_slot_new(s, 10);
    ef_slot_together(s, (ef_slot[2]){rows, part}, 2);
    assert_false(ef_slot_unify(s, rows, part));
    ef_slot_tie(s, rows, part);
    assert_true(ef_slot_equal(s, part, columns));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(equal_sizes_mean_nothing, begin, end),
        cmocka_unit_test_setup_teardown(one_tensor_keeps_its_dimensions_apart, begin, end),
        cmocka_unit_test_setup_teardown(a_view_splits_a_dimension_everywhere, begin, end),
        cmocka_unit_test_setup_teardown(products_align_from_the_outside_in, begin, end),
        cmocka_unit_test_setup_teardown(what_does_not_align_is_left_alone, begin, end),
        cmocka_unit_test_setup_teardown(units_come_and_go, begin, end),
        cmocka_unit_test_setup_teardown(splitting_remembers_what_stands_together, begin, end),
        cmocka_unit_test_setup_teardown(twins_are_shared, begin, end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
