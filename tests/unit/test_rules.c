/* The rules are true: every rule of the rule files in src/rules, on random instances (src/rules/ruletest.c). And the
 * test is one that can fail: wrong rules of every kind are caught. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "rules/repair.h"
#include "rules/ruletest.h"

static ef_ruleset *parse(const char *text)
{
    ef_diag diag = {0};
    ef_ruleset *set = ef_xcalloc(1, sizeof *set);
    set->arena = ef_arena_new();
    if (!ef_rules_parse(set, "test", text, &diag))
        fail_msg("%s", diag.text);
    return set;
}

/* ---- what the check said ---- */

typedef struct {
    ef_strbuf failures;
    unsigned least; /* applied instances of the rule that has the fewest */
} record;

static void note(void *user, const ef_rule *rule, const char *failure, unsigned instances)
{
    record *r = user;
    (void)rule;
    if (failure)
        ef_strbuf_puts(&r->failures, failure);
    if (instances < r->least)
        r->least = instances;
}

static record check(const ef_ruleset *set, unsigned instances, uint64_t seed, ef_rulecheck *sum)
{
    record r = {.least = UINT32_MAX};
    bool holds = ef_rules_check(set, instances, seed, sum, note, &r);
    assert_int_equal(holds, sum->failures == 0);
    return r;
}

static void expect_true(ef_ruleset *set, unsigned at_least)
{
    ef_rulecheck sum;
    record r = check(set, EF_RULES_INSTANCES, 1, &sum);
    if (sum.failures)
        print_error("%s", r.failures.text);
    assert_int_equal(sum.failures, 0);
    assert_true(sum.rules >= at_least);
    assert_true(r.least >= EF_RULES_INSTANCES);
    ef_strbuf_free(&r.failures);
    ef_ruleset_free(set);
}

/* ---- the rules ---- */

static void test_rules_hold(void **state)
{
    (void)state;
    expect_true(ef_rules_builtin(), 100);
}

static void test_scalar_rules_hold(void **state)
{
    (void)state;
    expect_true(ef_rules_scalar(), 30);
}

/* ---- wrong rules ---- */

static const struct {
    const char *rule, *says;
} wrong[] = {
    {"mul(?x, add(?y, ?z)) => add(mul(?x, ?y), ?z)", "normal inputs"},
    {"mul(?x, add(?y, ?z)) => add(mul(?x, ?y), ?z)\n where same_type", "normal inputs"},
    {"sub(?x, ?y) => sub(?y, ?x)", "normal inputs"},
    {"add(?x, ?y) => add(?x, mul(?y, 1.00000002))", "normal inputs"},
    {"max(?x, ?y) => ?x\n where same_type", "normal inputs"},
    /* algebra without its condition */
    {"matmul(mul(?s, ?a), ?b) => mul(?s, matmul(?a, ?b))", "ill-typed"},
    {"matmul(mul(?s, ?a), ?b) => mul(?s, matmul(?a, ?b))\n where same_type", "normal inputs"},
    {"matmul(?a, mul(?b, ?t)) => mul(matmul(?a, ?b), ?t)\n where same_type", "normal inputs"},
    {"matmul(?a, ?b) => matmul(?b, ?a)\n where same_type", "normal inputs"},
    {"transpose[?P](matmul(?a, ?b)) => matmul(?a, ?b)\n where same_type", "normal inputs"},
    {"transpose[?P](?x) => ?x\n where same_type", "normal inputs"},
    {"reduce[max, ?i](mul(?x, ?c)) => mul(reduce[max, ?i](?x), ?c)\n where same_type", "normal inputs"},
    {"reduce[sum, ?i](add(?x, ?y)) => add(reduce[sum, ?i](?x), reduce[sum, ?i](?y))\n where same_type",
     "normal inputs"},
    {"reduce[max, ?i](add(?x, ?y)) => add(reduce[max, ?i](?x), reduce[max, ?i](?y))\n where same_type",
     "normal inputs"},
    /* true of whole tensors, wrong of empty tiles: the maximum over nothing is not ?k */
    {"max(reduce[max, ?i](?x), ?k) => reduce[max, ?i](max(?x, ?k)) "
     "\n where const_along(?k, ?i), varies_along(?x, ?i), same_type",
     "inputs"},
    /* true of real numbers, but exp overflows */
    {"exp(sub(?x, ?y)) => div(exp(?x), exp(?y))", "inf on large inputs"},
    {"div(exp(sub(?x, ?m)), reduce[sum, ?i](exp(sub(?x, ?m)))) => div(exp(?x), reduce[sum, ?i](exp(?x))) "
     "\n where const_along(?m, ?i), varies_along(?x, ?i), same_type",
     "inf on large inputs"},
    /* division by what may be zero */
    {"?x => div(mul(?x, ?x), ?x)\n where same_type", "tiny and zero inputs"},
    /* masks: -inf - -inf */
    {"max(?x, ?y) => add(max(sub(?x, ?y), 0), ?y)\n where same_type", "inf on"},
    /* parallel operators */
    {"view[?V](reduce[?r, ?i](?x)) => reduce[?r, ?i](view[?V](?x))", "the right side"},
    {"view[?V](matmul(?a, ?b)) => matmul(view[?V](?a), view[?V](?b))", "the right side"},
    {"matmul(?a, ?b) => tile_matmul(view[{?k}](?a), view[{?k}](?b))\n where ?k = loop_axis(?a, -1)", "the right side"},
    {"matmul(?a, ?b) => reduce_p[max, ?k](tile_matmul(view[{?k}](?a), view[{?k}](?b)))\n where ?k = loop_axis(?a, -1), "
     "same_type",
     "inputs"},
    {"reduce[?r, ?i](?x) => reduce_p[sum, ?p](reduce[?r, ?i](view[{?p}](?x)))\n where ?p = loop_axis(?x, ?i), "
     "same_type",
     "inputs"},
    {"reduce_p[?r, ?p](?x) => reduce[sum, first](collection[?p](?x))\n where same_type", "normal inputs"},
    {"reduce_p[sum, ?p](mul(?x, ?y)) => mul(reduce_p[sum, ?p](?x), reduce_p[sum, ?p](?y))\n where same_type",
     "normal inputs"},
    {"tuple(reduce_p[?r, ?p](?x), reduce_p[?s, ?p](?y)) => reduce_p[product(?s, ?r), ?p](tuple(?x, ?y))\n where "
     "same_type",
     "normal inputs"},
    {"combination[?V](?f:binary(view[?V](?x), ?y)) => ?f(?x, combination[?V](?y))", "ill-typed"},
    {"tuple(get[0](?t), get[1](?t)) => ?t", "another type"},
    /* nothing to apply to */
    {"exp(?x) => ?x\n where literal(?x), varies_along(?x, -1)", "may never apply"},
};

static void test_wrong_rules_are_caught(void **state)
{
    (void)state;
    unsigned missed = 0;
    for (unsigned i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        ef_strbuf text = {0};
        ef_rulecheck sum;
        ef_strbuf_printf(&text, "rule wrong\n  %s\n", wrong[i].rule);
        ef_ruleset *set = parse(text.text);
        record r = check(set, EF_RULES_INSTANCES, 1, &sum);
        bool caught = sum.failures == 1 && strstr(r.failures.text, wrong[i].says);
        if (!caught)
            print_error("\"%s\" expected for %s, not\n%s", wrong[i].says, wrong[i].rule,
                        sum.failures ? r.failures.text : "that it holds\n");
        missed += !caught;
        ef_strbuf_free(&r.failures);
        ef_strbuf_free(&text);
        ef_ruleset_free(set);
    }
    assert_int_equal(missed, 0);
}

/* ---- wrong builders ---- */

static ef_id refuses_all(const ef_scope *scope, const ef_rule *rule, const ef_match *match)
{
    (void)scope, (void)rule, (void)match;
    return EF_NONE;
}

/* Fuses without repairing: what was accumulated under an old maximum stays as it was. */
static ef_id repairs_nothing(const ef_scope *scope, const ef_rule *rule, const ef_match *match)
{
    ef_egraph *g = scope->graph;
    ef_id fused = ef_repair_build(scope, rule, match);
    if (fused == EF_NONE)
        return EF_NONE;
    uint64_t attr = g->attr.at[fused];
    ef_reducer_info info = *ef_reducer_at(g->ctx, ef_attr_reducer(attr));
    for (unsigned i = 0; i < info.terms; i++)
        info.h[i] = ef_scalar_param(g->ctx, EF_PARAM_C, 0);
    ef_reducer none = ef_reducer_repaired(g->ctx, info.left, info.right, info.h);
    return ef_egraph_add(g, EF_REDUCE_P, ef_attr_reduce(none, ef_attr_reduce_at(attr)), ef_node_origins(g, fused), 1);
}

/* Says that everything fuses. */
static ef_id fuses_all(const ef_scope *scope, const ef_rule *rule, const ef_match *match)
{
    ef_id fused = ef_repair_build(scope, rule, match);
    return fused == EF_NONE ? match->root : fused;
}

static void test_wrong_builders_are_caught(void **state)
{
    (void)state;
    static const struct {
        ef_builder_fn builder;
        const char *says;
    } builders[] = {{refuses_all, "no right side is found where there is one"},
                    {repairs_nothing, "the sides differ"},
                    {fuses_all, "a right side is found where there is none"}};
    for (unsigned i = 0; i < sizeof builders / sizeof *builders; i++) {
        ef_rulecheck sum;
        ef_ruleset *set = parse("rule fuse\n  tuple(reduce_p[?r, ?p](?g), reduce_p[?s, ?p](?y)) => native repair\n");
        set->rules.at[0].builder = builders[i].builder;
        record r = check(set, 50, 1, &sum);
        assert_int_equal(sum.failures, 1);
        assert_non_null(strstr(r.failures.text, builders[i].says));
        ef_strbuf_free(&r.failures);
        ef_ruleset_free(set);
    }
}

static void test_wrong_scalar_rules_are_caught(void **state)
{
    (void)state;
    ef_rulecheck sum;
    ef_ruleset *set = parse("group scalar\n"
                            "rule sum-of-exponents\n  exp(add(?x, ?y)) => add(exp(?x), exp(?y))\n"
                            "rule root\n  recip(sqrt(?x)) => recip(?x)\n"
                            "rule true\n  recip(sqrt(?x)) => rsqrt(?x)\n");
    record r = check(set, 50, 1, &sum);
    assert_int_equal(sum.rules, 3);
    assert_int_equal(sum.failures, 2);
    assert_non_null(strstr(r.failures.text, "sum-of-exponents"));
    assert_null(strstr(r.failures.text, "true:"));
    ef_strbuf_free(&r.failures);
    ef_ruleset_free(set);
}

/* ---- the report ---- */

static void test_failure_shows_the_instance(void **state)
{
    (void)state;
    ef_rulecheck sum;
    ef_ruleset *set = parse("rule crossed\n  sub(?x, ?y) => sub(?y, ?x)\n");
    record r = check(set, 50, 1, &sum);
    const char *text = r.failures.text;
    assert_non_null(strstr(text, "crossed: the sides differ by "));
    assert_non_null(strstr(text, "left  sub("));
    assert_non_null(strstr(text, "right sub("));
    assert_non_null(strstr(text, "where x0: "));
    assert_non_null(strstr(text, "sizes m="));
    ef_strbuf_free(&r.failures);
    ef_ruleset_free(set);
}

static void test_deterministic_from_the_seed(void **state)
{
    (void)state;
    ef_rulecheck sum[3];
    record r[3];
    const char *rule = "rule crossed\n  sub(?x, ?y) => sub(?y, ?x)\n";
    /* the third set has another rule in front, which changes nothing */
    const char *more =
        "rule twice\n  neg(neg(?x)) => ?x\n  where same_type\nrule crossed\n  sub(?x, ?y) => sub(?y, ?x)\n";
    for (unsigned i = 0; i < 3; i++) {
        ef_ruleset *set = parse(i < 2 ? rule : more);
        r[i] = check(set, 40, 7, &sum[i]);
        ef_ruleset_free(set);
    }
    assert_string_equal(r[0].failures.text, r[1].failures.text);
    assert_string_equal(r[0].failures.text, r[2].failures.text);
    for (unsigned i = 0; i < 3; i++)
        ef_strbuf_free(&r[i].failures);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rules_hold),
        cmocka_unit_test(test_scalar_rules_hold),
        cmocka_unit_test(test_wrong_rules_are_caught),
        cmocka_unit_test(test_wrong_builders_are_caught),
        cmocka_unit_test(test_wrong_scalar_rules_are_caught),
        cmocka_unit_test(test_failure_shows_the_instance),
        cmocka_unit_test(test_deterministic_from_the_seed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
