/* Repair synthesis (paper, section 4.2): which reductions fuse, with which repair function, and which must not.
 *
 * Each case is a plain tensor program. After saturation the e-graph is searched for repaired reducers; their printed
 * form is what the synthesis found. Every one of them is then proved equal to what it replaces by the independent
 * checker, which evaluates both sides. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "egraph/explain.h"
#include "search/check.h"
#include "search/saturate.h"

typedef struct {
    const char *name, *body;
    const char *expected; /* a reducer that must be found; NULL: no repaired reducer may be found at all */
} repair_case;

#define HEAD \
    "program case\ndim b = 3\ndim s = 40\ndim e = 5\ninput x: f32[b, s]\ninput v: f32[s, e]\ninput y: f32[b, s]\n"

static const repair_case cases[] = {
    {"softmax normaliser", "m = reduce[max, -1](x)\noutput l = reduce[sum, -1](exp(sub(x, m)))\n",
     "repaired(max, sum, mul(c, exp(sub(s, t))))"},
    {"softmax weighted sum",
     "m = reduce[max, -1](x)\np = exp(sub(x, m))\noutput o = matmul(div(p, reduce[sum, -1](p)), v)\n",
     "repaired(max, product(sum, sum), mul(c, exp(sub(s, t))), mul(c, exp(sub(s, t))))"},
    {"scale inside",
     "z = mul(x, 0.3)\nm = reduce[max, -1](z)\np = exp(sub(z, m))\noutput o = matmul(div(p, reduce[sum, -1](p)), v)\n",
     "repaired(max, product(sum, sum), mul(c, exp(sub(s, t))), mul(c, exp(sub(s, t))))"},
    {"scale after the shift", "m = reduce[max, -1](x)\noutput l = reduce[sum, -1](exp(mul(sub(x, m), 0.5)))\n",
     "repaired(max, sum, mul(c, exp(mul(0.5, sub(s, t)))))"},
    {"additive mask",
     "z = add(mul(x, 0.3), y)\nm = reduce[max, -1](z)\np = exp(sub(z, m))\noutput o = matmul(div(p, reduce[sum, "
     "-1](p)), v)\n",
     "repaired(max, product(sum, sum), mul(c, exp(sub(s, t))), mul(c, exp(sub(s, t))))"},
    {"causal select",
     "z = select(ge(reshape[b, 1](iota[b]), iota[s]), x, -inf)\nm = reduce[max, -1](z)\np = exp(sub(z, m))\n"
     "output o = matmul(div(p, reduce[sum, -1](p)), v)\n",
     "repaired(max, product(sum, sum), mul(c, exp(sub(s, t))), mul(c, exp(sub(s, t))))"},
    {"base 2", "m = reduce[max, -1](x)\np = exp2(sub(x, m))\noutput o = matmul(div(p, reduce[sum, -1](p)), v)\n",
     "repaired(max, product(sum, sum), mul(c, exp2(sub(s, t))), mul(c, exp2(sub(s, t))))"},
    {"tanh soft-cap",
     "z = mul(tanh(div(x, 50)), 50)\nm = reduce[max, -1](z)\np = exp(sub(z, m))\noutput o = matmul(div(p, reduce[sum, "
     "-1](p)), v)\n",
     "repaired(max, product(sum, sum), mul(c, exp(sub(s, t))), mul(c, exp(sub(s, t))))"},
    {"sink logits",
     "m = max(reduce[max, -1](x), 0.7)\np = exp(sub(x, m))\nl = add(reduce[sum, -1](p), exp(sub(0.7, m)))\n"
     "output o = matmul(div(p, l), v)\n",
     "repaired(max, product(sum, sum), mul(c, exp(sub(s, t))), mul(c, exp(sub(s, t))))"},
    {"log-sum-exp", "m = reduce[max, -1](x)\noutput o = add(m, log(reduce[sum, -1](exp(sub(x, m)))))\n",
     "repaired(max, sum, mul(c, exp(sub(s, t))))"},
    {"a factor that is complete only after a pass of its own",
     "m = reduce[max, -1](x)\np = exp(sub(x, m))\noutput o = matmul(mul(div(p, reduce[sum, -1](p)), p), v)\n",
     "repaired(max, sum, mul(c, exp(sub(s, t))))"},
    {"weighted sum over a running norm", "n = reduce[sum, -1](mul(x, x))\noutput o = matmul(div(x, sqrt(n)), v)\n",
     "repaired(sum, sum, mul(rsqrt(t), mul(c, sqrt(s))))"},
    {"max of values shifted by a running max",
     "m = reduce[max, -1](x)\noutput o = reduce[max, -1](sub(add(x, y), m))\n",
     "repaired(max, max, sub(add(c, s), t))"},
    {"max of other values, which may be there where the running max saw nothing",
     "m = reduce[max, -1](x)\noutput o = reduce[max, -1](sub(mul(x, y), m))\n", NULL},
    {"weights that are masked after the softmax",
     "m = reduce[max, -1](x)\noutput l = reduce[sum, -1](select(gt(y, 0), exp(sub(x, m)), 0))\n",
     "repaired(max, sum, mul(c, exp(sub(s, t))))"},
    {"values that may outgrow the running max, and overflow before it is complete",
     "m = reduce[max, -1](x)\noutput o = reduce[sum, -1](exp(sub(add(x, y), m)))\n", NULL},
    {"values that outgrow a running max far below 0",
     "m = reduce[max, -1](x)\noutput o = reduce[sum, -1](exp(sub(mul(x, 0.5), m)))\n", NULL},
    {"a mask that only the maximum sees",
     "m = reduce[max, -1](add(x, y))\noutput l = reduce[sum, -1](exp(sub(x, m)))\n", NULL},
    {"a norm whose terms vanish where the values do not",
     "n = reduce[sum, -1](mul(mul(x, y), mul(x, y)))\noutput o = reduce[sum, -1](div(x, sqrt(n)))\n", NULL},
    {"a factor that may be zero on a part",
     "m = reduce[max, -1](x)\noutput l = reduce[sum, -1](mul(exp(x), max(m, 0)))\n", NULL},
    {"a factor that vanishes for small norms",
     "n = reduce[sum, -1](mul(x, x))\noutput l = reduce[sum, -1](mul(x, max(sub(n, 0.05), 0)))\n", NULL},
    {"a difference that may vanish on a part",
     "n = reduce[sum, -1](mul(y, y))\noutput l = reduce[sum, -1](mul(y, sub(n, 4)))\n", NULL},
    {"a logarithm that may vanish on a part",
     "n = reduce[sum, -1](mul(y, y))\noutput l = reduce[sum, -1](mul(y, log(n)))\n", NULL},
    {"squared deviation from the mean",
     "m = div(reduce[sum, -1](x), 40)\nd = sub(x, m)\noutput o = reduce[sum, -1](mul(d, d))\n", NULL},
    {"sum of sigmoids of a shifted value", "m = reduce[max, -1](x)\noutput o = reduce[sum, -1](sigmoid(sub(x, m)))\n",
     NULL},
    {"max of products with a value of unknown sign", "n = reduce[sum, -1](x)\noutput o = reduce[max, -1](mul(y, n))\n",
     NULL},
    {"sum over a norm that may cancel", "n = reduce[sum, -1](x)\noutput o = reduce[sum, -1](div(tanh(y), n))\n", NULL},
    {"norm of other values, which may vanish alone",
     "n = reduce[sum, -1](mul(y, y))\noutput o = reduce[sum, -1](div(tanh(x), n))\n", NULL},
};

static void find_repaired(const repair_case *c)
{
    ef_diag diag = {0};
    ef_strbuf text = {0}, found = {0};
    ef_strbuf_printf(&text, "%s%s", HEAD, c->body);
    ef_ctx *ctx = ef_ctx_new();
    ef_program *program = ef_program_parse(ctx, text.text, text.length, c->name, &diag);
    if (!program)
        fail_msg("%s: %s", c->name, diag.text);
    ef_search *search = ef_search_new(program, &(ef_search_options){.split_min = 8}, &diag);
    assert_non_null(search);
    if (!ef_search_saturate(search, &diag))
        fail_msg("%s: %s", c->name, diag.text);
    assert_int_equal(search->stats->stop, EF_STOP_SATURATED);
    ef_egraph *g = search->graph;
    unsigned repaired = 0, expected = 0;
    for (uint32_t i = 0; i < g->by_op[EF_REDUCE_P].count; i++) {
        ef_id n = g->by_op[EF_REDUCE_P].at[i];
        ef_reducer reducer = ef_attr_reducer(g->attr.at[n]);
        if (ef_reducer_at(ctx, reducer)->kind != EF_RED_REPAIRED)
            continue;
        ef_strbuf one = {0};
        ef_reducer_print(ctx, reducer, &one);
        repaired++;
        expected += c->expected && strcmp(one.text, c->expected) == 0;
        if (!strstr(found.text ? found.text : "", one.text))
            ef_strbuf_printf(&found, "\n  %s", one.text);
        ef_strbuf_free(&one);
        /* The fused reduction against the pair that it replaces: proved, and evaluated by the checker. */
        ef_id tuple = ef_class_find(g, n, EF_TUPLE);
        if (tuple == EF_NONE || ef_type_axes(ctx, ef_egraph_type(g, n)) != 0)
            continue;
        ef_proof *proof = ef_explain(g, search->rules->rules.at, search->rules->rules.count, tuple, n, &diag);
        if (!proof || !ef_proof_check(proof, search->rules, &diag))
            fail_msg("%s: %s", c->name, diag.text);
        ef_proof_free(proof);
    }
    if (c->expected && expected == 0)
        fail_msg("%s: %s was not derived; found:%s", c->name, c->expected, found.text ? found.text : " nothing");
    if (!c->expected && repaired)
        fail_msg("%s must be refused; found:%s", c->name, found.text);
    ef_strbuf_free(&text);
    ef_strbuf_free(&found);
    ef_search_free(search);
    ef_program_free(program);
    ef_ctx_free(ctx);
}

static void test_cases(void **state)
{
    (void)state;
    for (unsigned i = 0; i < sizeof cases / sizeof *cases; i++)
        find_repaired(&cases[i]);
}

/* The meaning of the reducer itself: two halves that each ran the rolling reduction merge to the whole, also where one
 * half is fully masked, and where both are, which gives NaN as the sum of exp(-inf - -inf) does. */
static void test_associative(void **state)
{
    (void)state;
    ef_ctx *ctx = ef_ctx_new();
    ef_scalar c = ef_scalar_param(ctx, EF_PARAM_C, 0), s = ef_scalar_param(ctx, EF_PARAM_S, 0),
              t = ef_scalar_param(ctx, EF_PARAM_T, 0);
    ef_scalar shift =
        ef_scalar_apply(ctx, EF_EXP, (ef_scalar[]){ef_scalar_apply(ctx, EF_SUB, (ef_scalar[]){s, t, 0}), 0, 0});
    ef_scalar h[] = {ef_scalar_apply(ctx, EF_MUL, (ef_scalar[]){c, shift, 0})};
    ef_reducer reducer = ef_reducer_repaired(ctx, EF_RED_MAX, EF_RED_SUM, h);
    const double x[][6] = {{1, -2, 700, 3, 690, -INFINITY},
                           {-INFINITY, -INFINITY, -INFINITY, 5, 6, 7},
                           {5, 6, 7, -INFINITY, -INFINITY, -INFINITY},
                           {-INFINITY, -INFINITY, -INFINITY, -INFINITY, -INFINITY, -INFINITY}};
    for (unsigned row = 0; row < sizeof x / sizeof *x; row++) {
        double whole[] = {-INFINITY, 0}, merged[] = {-INFINITY, 0}, m = -INFINITY, l = 0;
        for (unsigned half = 0; half < 2; half++) {
            double part[] = {-INFINITY, 0};
            for (unsigned i = 3 * half; i < 3 * half + 3; i++) {
                double in[] = {x[row][i], isinf(x[row][i]) ? NAN : 1};
                ef_reducer_update(ctx, reducer, part, in);
                ef_reducer_update(ctx, reducer, whole, in);
            }
            ef_reducer_update(ctx, reducer, merged, part);
        }
        for (unsigned i = 0; i < 6; i++)
            m = fmax(m, x[row][i]);
        for (unsigned i = 0; i < 6; i++)
            l += exp(x[row][i] - m);
        assert_true(whole[0] == m && merged[0] == m);
        if (isnan(l)) {
            assert_true(isnan(whole[1]) && isnan(merged[1]));
            continue;
        }
        assert_true(fabs(whole[1] - l) < 1e-12 * l && fabs(merged[1] - l) < 1e-12 * l);
    }
    ef_ctx_free(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_associative), cmocka_unit_test(test_cases)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
