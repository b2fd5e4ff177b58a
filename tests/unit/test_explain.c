/* Proofs (src/egraph/explain.c) and their checker (src/search/check.c): what the e-graph says is equal can be shown
 * from rule instances alone, and the checker refuses whatever is not shown. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "search/check.h"
#include "search/policy.h"
#include "search/saturate.h"
#include "support/rng.h"

static void assert_fine(bool fine, const ef_diag *diag)
{
    if (!fine)
        fail_msg("%s", diag->text);
}

/* ---- the engine alone: a few rules, saturated over one expression ---- */

typedef struct {
    ef_ctx *ctx;
    ef_program *program;
    ef_ruleset rules;
    ef_egraph *graph;
} engine;

static engine engine_new(const char *rules, const char *program)
{
    ef_diag diag = {0};
    engine e = {.ctx = ef_ctx_new(), .rules = {.arena = ef_arena_new()}};
    assert_fine(ef_rules_parse(&e.rules, "test.rules", rules, &diag), &diag);
    e.program = ef_program_parse(e.ctx, program, strlen(program), "test.ef", &diag);
    assert_fine(e.program != NULL, &diag);
    e.graph = ef_egraph_new(e.ctx);
    return e;
}

static void engine_free(engine *e)
{
    ef_egraph_free(e->graph);
    ef_program_free(e->program);
    ef_vec_free(&e->rules.rules);
    ef_arena_free(e->rules.arena);
    ef_ctx_free(e->ctx);
}

static ef_id engine_add(engine *e, unsigned output)
{
    return ef_egraph_add_expr(e->graph, e->program->dag, e->program->output[output].expr);
}

static void engine_run(engine *e)
{
    ef_scope scope = {.ctx = e->ctx, .graph = e->graph};
    ef_runner *runner = ef_runner_new(&scope, e->rules.rules.at, e->rules.rules.count, NULL);
    ef_runner_run(runner, &(ef_limits){.node_limit = 3000, .iteration_limit = 8});
    assert_false(e->graph->error.failed);
    ef_runner_free(runner);
}

/* The outputs of a program are equal by the rules: saturates, explains and checks. */
static ef_proof *engine_prove(engine *e)
{
    ef_diag diag = {0};
    ef_id a = engine_add(e, 0), b = engine_add(e, 1);
    engine_run(e);
    ef_proof *proof = ef_explain(e->graph, e->rules.rules.at, e->rules.rules.count, a, b, &diag);
    assert_fine(proof != NULL, &diag);
    assert_fine(ef_proof_check(proof, &e->rules, &diag), &diag);
    return proof;
}

static void prove(const char *rules, const char *program, uint32_t most_steps)
{
    engine e = engine_new(rules, program);
    ef_proof *proof = engine_prove(&e);
    assert_in_range(proof->steps, 0, most_steps);
    ef_proof_free(proof);
    engine_free(&e);
}

#define HEAD                                                                                                         \
    "program p\ndim m = 6\ndim k = 10\ninput x: f32[m, k]\ninput y: f32[m, k]\ninput z: f32[m, k]\ninput s: f32[m, " \
    "1]\n"
#define ASSOCIATE "rule associate\n add(add(?x, ?y), ?z) => add(?x, add(?y, ?z))\n"
#define NEG "rule neg-neg\n neg(neg(?x)) => ?x\n"

static void test_small_proofs(void **state)
{
    (void)state;
    prove(NEG, HEAD "output a = neg(neg(x))\noutput b = x\n", 1);
    prove(NEG, HEAD "output a = exp(mul(y, neg(neg(x))))\noutput b = exp(mul(x, y))\n", 1);
    prove(ASSOCIATE, HEAD "output a = add(add(x, y), z)\noutput b = add(add(z, x), y)\n", 3);
    prove("rule sub\n sub(?x, ?y) <=> add(?x, neg(?y))\n" NEG, HEAD "output a = sub(x, neg(y))\noutput b = add(y, x)\n",
          2);
    prove("rule get\n get[1](tuple(?x, ?y)) => ?y\n" NEG,
          HEAD "output a = get[1](tuple(x, neg(neg(y))))\noutput b = y\n", 2);
}

/* Operands of one class: a pairing that holds only because of the union that it is to explain would be circular. */
static void test_commutative_pairings(void **state)
{
    (void)state;
    prove(NEG, HEAD "output a = mul(neg(neg(x)), x)\noutput b = mul(x, neg(neg(neg(neg(x)))))\n", 3);
    prove("rule half\n max(?x, ?x) => ?x\n" NEG,
          HEAD "output a = max(max(x, neg(neg(x))), max(neg(neg(x)), x))\noutput b = x\n", 4);
    prove("rule absorb\n max(?x, min(?x, ?y)) => ?x\n",
          HEAD "output a = max(min(y, max(min(z, x), x)), x)\noutput b = max(x, min(x, z))\n", 3);
}

/* Literals: folded, matched as numbers, and asked for by a condition. */
static void test_literals(void **state)
{
    (void)state;
    prove("rule one\n mul(?x, 1) => ?x\n", HEAD "output a = mul(x, add(0.25, mul(0.5, 1.5)))\noutput b = x\n", 4);
    prove("rule scale\n reduce[max, ?i](mul(?x, ?c)) => mul(reduce[max, ?i](?x), ?c)\n where positive(?c), same_type\n"
          "rule get\n get[0](tuple(?x, ?y)) => ?x\n",
          HEAD "output a = reduce[max, -1](mul(x, get[0](tuple(2, 3))))\noutput b = mul(2, reduce[max, -1](x))\n", 2);
}

/* A comparison of literals is a truth value, which no literal stands for: it is not folded. */
static void test_comparison_of_literals(void **state)
{
    (void)state;
    prove(NEG, HEAD "output a = select(lt(1, 2), neg(neg(x)), y)\noutput b = select(lt(1, 2), x, y)\n", 1);
}

#define TWO "get[0](tuple(2, 3))"
#define GET "rule get\n get[0](tuple(?x, ?y)) => ?x\n"

/* A class with more parents than the literal that it becomes: its parents are folded, and conditions asked again. */
static void test_late_constants(void **state)
{
    (void)state;
    prove(GET, HEAD "output a = add(x, add(mul(" TWO ", 4), neg(" TWO ")))\noutput b = add(x, 6)\n", 8);
    prove("rule scale\n reduce[max, ?i](mul(?x, ?c)) => mul(reduce[max, ?i](?x), ?c)\n"
          " where positive(?c), same_type\n" GET,
          HEAD "output a = mul(reduce[max, -1](mul(x, " TWO ")), add(s, " TWO "))\n"
               "output b = mul(mul(" TWO ", reduce[max, -1](x)), add(s, " TWO "))\n",
          4);
}

static void contradict(const char *rules, const char *program, const char *part)
{
    engine e = engine_new(rules, program);
    ef_scope scope = {.ctx = e.ctx, .graph = e.graph};
    engine_add(&e, 0);
    ef_runner *runner = ef_runner_new(&scope, e.rules.rules.at, e.rules.rules.count, NULL);
    assert_int_equal(ef_runner_run(runner, &(ef_limits){.iteration_limit = 8})->stop, EF_STOP_ERROR);
    if (!strstr(e.graph->error.text, part))
        fail_msg("\"%s\" lacks \"%s\"", e.graph->error.text, part);
    ef_runner_free(runner);
    engine_free(&e);
}

static void test_two_constants(void **state)
{
    (void)state;
    contradict("rule wrong\n add(?x, 1) => ?x\n", HEAD "output a = mul(x, add(2, 1))\n", "values differ: ");
    contradict("rule wrong\n neg(?x) => 5\n" GET, HEAD "output a = mul(mul(x, " TWO "), mul(" TWO ", neg(" TWO ")))\n",
               "rule constant-fold makes neg and neg one, but their values differ: 5 and -2");
    prove("rule associate\n mul(mul(?x, ?y), ?z) => mul(?x, mul(?y, ?z))\n",
          HEAD "output a = mul(x, mul(mul(0.1, 0.2), 0.3))\noutput b = mul(mul(mul(x, 0.1), 0.2), 0.3)\n", 12);
}

/* Two matches of one batch: after the first, the tuple is fused, and the second is not wanted any more. */
static void test_policy_of_a_batch(void **state)
{
    (void)state;
    engine e = engine_new("rule fuse\n tuple(reduce_p[?r, ?p](?x), reduce_p[?s, ?p](?y)) => "
                          "reduce_p[product(?r, ?s), ?p](tuple(?x, ?y))\n where same_type\n policy unfused(root, ?p)\n",
                          HEAD "xs = reduce[sum, -1](view[k.1](x))\n"
                               "output a = get[0](tuple(reduce[sum, k.1](xs), reduce[sum, k.1](neg(xs))))\n"
                               "output b = reduce[sum, k.1](reduce[sum, -1](view[k.1](y)))\n");
    ef_id tuple = ef_node_origins(e.graph, engine_add(&e, 0))[0];
    assert_true(ef_egraph_union(e.graph, ef_node_origins(e.graph, tuple)[0], engine_add(&e, 1), EF_NONE));
    ef_egraph_rebuild(e.graph);
    ef_policy_state *policy = ef_policy_new(256, 256);
    ef_scope scope = {.ctx = e.ctx, .graph = e.graph, .policy = policy};
    ef_runner *runner = ef_runner_new(&scope, e.rules.rules.at, e.rules.rules.count, NULL);
    const ef_run_stats *stats = ef_runner_run(runner, &(ef_limits){.iteration_limit = 8});
    assert_int_equal(stats->rule[0].matches, 2);
    assert_int_equal(stats->rule[0].merges, 1);
    ef_runner_free(runner);
    ef_policy_free(policy);
    engine_free(&e);
}

/* A view of a value that a loop does not change is two nodes; a view of a literal, or by no axis, is none. */
static void test_views(void **state)
{
    (void)state;
    const char *binary =
        "rule view-binary\n view[?V](?f:binary(?x, ?y)) => ?f(view[?V](?x), view[?V](?y))\n where same_type\n";
    prove(binary, HEAD "output a = view[m.0, k.1](mul(x, s))\noutput b = mul(view[m.0, k.1](x), view[m.0, k.1](s))\n",
          1);
    prove(binary, HEAD "output a = view[m.0, k.1](mul(2, s))\noutput b = mul(view[m.0, k.1](s), 2)\n", 2);
    engine e = engine_new(
        "rule view-binary\n view[?V](?f:binary(?x, ?y)) => ?f(view[?V](?x), view[?V](?y))\n where same_type\n" NEG,
        HEAD "output a = view[m.0, k.1](mul(x, neg(neg(s))))\n"
             "output b = mul(view[m.0, k.1](neg(neg(x))), view[m.0, k.1](s))\n");
    ef_proof *proof = engine_prove(&e);
    unsigned doubles = 0;
    for (ef_expr t = 0; t < ef_dag_count(proof->dag); t++) {
        const ef_expr *child;
        ef_dag_children(proof->dag, t, &child);
        doubles += ef_dag_op(proof->dag, t) == EF_VIEW && ef_dag_op(proof->dag, child[0]) == EF_VIEW;
    }
    assert_true(doubles > 0 && proof->steps <= 3);
    ef_proof_free(proof);
    engine_free(&e);
    prove("rule view-reduce\n view[?V](reduce[?r, ?i](?x)) => view[?C](reduce[?r, ?i](view[?V - ?C](?x)))\n"
          " where ?C = over(?V, ?x, ?i), same_type\n",
          HEAD "output a = view[m.0](reduce[sum, -1](x))\noutput b = reduce[sum, -1](view[m.0](x))\n", 1);
    prove("rule view-reduce\n view[?V](reduce[?r, ?i](?x)) => view[?C](reduce[?r, ?i](view[?V - ?C](?x)))\n"
          " where ?C = over(?V, ?x, ?i), same_type\n" NEG,
          HEAD "output a = neg(neg(view[k.0](reduce[sum, -1](x))))\noutput b = view[k.0](reduce[sum, -1](x))\n", 1);
}

static void test_refusals_of_explain(void **state)
{
    (void)state;
    ef_diag diag = {0};
    engine e = engine_new(NEG, HEAD "output a = exp(x)\noutput b = exp(y)\n");
    ef_id a = engine_add(&e, 0), b = engine_add(&e, 1);
    assert_null(ef_explain(e.graph, e.rules.rules.at, e.rules.rules.count, a, b, &diag));
    assert_string_equal(diag.text, "the terms are not equal in the e-graph");
    assert_true(ef_egraph_union(e.graph, ef_node_origins(e.graph, a)[0], ef_node_origins(e.graph, b)[0], EF_NONE));
    ef_egraph_rebuild(e.graph);
    assert_int_equal(ef_find(e.graph, a), ef_find(e.graph, b));
    diag = (ef_diag){0};
    assert_null(ef_explain(e.graph, e.rules.rules.at, e.rules.rules.count, a, b, &diag));
    assert_non_null(strstr(diag.text, "without a record"));
    engine_free(&e);
}

/* ---- the checker refuses what is not shown ---- */

static void refuse(const ef_proof *proof, const ef_ruleset *rules, const char *part)
{
    ef_diag diag = {0};
    assert_false(ef_proof_check(proof, rules, &diag));
    if (!strstr(diag.text, part))
        fail_msg("\"%s\" lacks \"%s\"", diag.text, part);
}

static void test_corrupted_steps(void **state)
{
    (void)state;
    engine e = engine_new(NEG "rule exp-neg\n exp(neg(?x)) => recip(exp(?x))\n",
                          HEAD "output a = exp(neg(neg(neg(x))))\noutput b = recip(exp(x))\n");
    ef_proof *proof = engine_prove(&e);
    assert_int_equal(proof->steps, 2);
    for (uint32_t i = 0; i < 2; i++) {
        ef_proof_step saved = proof->step[i], other = proof->step[1 - i];
        proof->step[i].rule = saved.rule == 0;
        refuse(proof, &e.rules, "does not match");
        proof->step[i].rule = 2;
        refuse(proof, &e.rules, "no such rule");
        proof->step[i].rule = EF_STEP_FOLD;
        refuse(proof, &e.rules, "not literals");
        proof->step[i].rule = EF_STEP_TUPLE;
        refuse(proof, &e.rules, "tuple-introduce");
        proof->step[i] = saved;
        proof->step[i].after = other.after;
        refuse(proof, &e.rules, "right side differs");
        proof->step[i].after = 1000;
        refuse(proof, &e.rules, "no such term");
        proof->step[i] = other; /* the other twice: this one is dropped */
        refuse(proof, &e.rules, "does not follow");
        proof->step[i] = saved;
    }
    ef_expr to = proof->to;
    proof->to = 0;
    refuse(proof, &e.rules, "does not follow");
    proof->to = to;
    ef_diag diag = {0};
    assert_fine(ef_proof_check(proof, &e.rules, &diag), &diag);
    ef_proof_free(proof);
    engine_free(&e);
}

/* A rule that is false passes as an instance of itself, and is refused by its numbers. */
static void test_false_rule(void **state)
{
    (void)state;
    engine e =
        engine_new("rule wrong\n sub(?x, ?y) => sub(?y, ?x)\n", HEAD "output a = sub(x, y)\noutput b = sub(y, x)\n");
    ef_diag diag = {0};
    ef_id a = engine_add(&e, 0), b = engine_add(&e, 1);
    engine_run(&e);
    ef_proof *proof = ef_explain(e.graph, e.rules.rules.at, e.rules.rules.count, a, b, &diag);
    assert_fine(proof != NULL, &diag);
    refuse(proof, &e.rules, "different numbers");
    assert_int_equal(ef_var_at(e.ctx, ef_var_find(e.ctx, "m", 1))->extent, 6);
    assert_int_equal(ef_var_at(e.ctx, ef_var_find(e.ctx, "k", 1))->extent, 10);
    ef_proof_free(proof);
    engine_free(&e);
}

/* A step between two outputs of a program, by the first rule. */
static void judge(const char *rules, const char *program, const char *complaint)
{
    engine e = engine_new(rules, program);
    ef_diag diag = {0};
    ef_proof_step step = {0, e.program->output[0].expr, e.program->output[1].expr};
    ef_proof proof = {.dag = e.program->dag, .steps = 1, .step = &step, .from = step.before, .to = step.after};
    if (complaint)
        refuse(&proof, &e.rules, complaint);
    else
        assert_fine(ef_proof_check(&proof, &e.rules, &diag), &diag);
    engine_free(&e);
}

static void test_attributes_and_conditions(void **state)
{
    (void)state;
    const char *loop = "rule reduce-loop\n reduce[?r, ?i](?x) => reduce_p[?r, ?p](reduce[?r, ?i](view[{?p}](?x)))\n"
                       " where ?p = loop_axis(?x, ?i), same_type\n";
    const char *factor = "rule sum-factor\n reduce[sum, ?i](mul(?x, ?s)) => mul(reduce[sum, ?i](?x), ?s)\n"
                         " where const_along(?s, ?i), same_type\n";
    const char *rows = "rule tile\n ?x => combination[?V](view[?V](?x))\n where ?V = rows(root)\n";
#define SUM "output a = reduce[sum, -1](x)\n"
    judge(loop, HEAD SUM "output b = reduce[sum, k.1](reduce[sum, -1](view[k.1](x)))\n", NULL);
    judge(loop, HEAD SUM "output b = reduce[sum, k.0](reduce[sum, -1](view[k.0](x)))\n", "right side differs");
    judge(loop, HEAD SUM "output b = reduce[sum, k.1](reduce[max, -1](view[k.1](x)))\n", "right side differs");
    judge(loop, HEAD SUM "output b = reduce[max, k.1](reduce[sum, -1](view[k.1](x)))\n", "right side differs");
    judge(loop, HEAD SUM "output b = reduce[sum, -1](y)\n", "right side differs");
    judge(factor, HEAD "output a = reduce[sum, -1](mul(s, x))\noutput b = mul(reduce[sum, -1](x), s)\n", NULL);
    judge(factor, HEAD "output a = reduce[sum, -1](mul(s, x))\noutput b = mul(s, reduce[sum, -1](x))\n", NULL);
    judge(factor, HEAD "output a = reduce[sum, -1](mul(y, x))\noutput b = mul(reduce[sum, -1](x), y)\n", "types");
    judge(factor,
          HEAD "dim j = 7\ninput u: f32[m, m]\ninput v: f32[m, m]\noutput a = reduce[sum, -1](mul(u, v))\n"
               "output b = mul(reduce[sum, -1](v), s)\n",
          "const_along");
    judge(rows, HEAD "output a = exp(x)\noutput b = combination[m.0](view[m.0](exp(x)))\n", NULL);
    judge(rows, HEAD "output a = exp(x)\noutput b = combination[m.0, k.0](view[m.0, k.0](exp(x)))\n", NULL);
    judge(rows, HEAD "output a = exp(x)\noutput b = combination[k.1](view[k.1](exp(x)))\n", "right side differs");
    judge("rule count\n reduce[sum, ?i](sub(?x, ?m)) => sub(reduce[sum, ?i](?x), mul(const[?n](), ?m))\n"
          " where const_along(?m, ?i), ?n = extent(?x, ?i), same_type\n",
          HEAD "output a = reduce[sum, -1](sub(x, s))\noutput b = sub(reduce[sum, -1](x), mul(10, s))\n", NULL);
    judge("rule count\n reduce[sum, ?i](sub(?x, ?m)) => sub(reduce[sum, ?i](?x), mul(const[?n](), ?m))\n"
          " where const_along(?m, ?i), ?n = extent(?x, ?i), same_type\n",
          HEAD "output a = reduce[sum, -1](sub(x, s))\noutput b = sub(reduce[sum, -1](x), mul(9, s))\n",
          "right side differs");
}

/* ---- whole searches ---- */

typedef struct {
    ef_ctx *ctx;
    ef_program *program;
    ef_search *search;
} session;

static session session_new(const char *text)
{
    ef_diag diag = {0};
    session s = {.ctx = ef_ctx_new()};
    s.program = ef_program_parse(s.ctx, text, strlen(text), "test.ef", &diag);
    assert_fine(s.program != NULL, &diag);
    s.search =
        ef_search_new(s.program, &(ef_search_options){.node_limit = 4000, .time_limit = 20, .split_min = 32}, &diag);
    assert_fine(s.search != NULL, &diag);
    assert_fine(ef_search_saturate(s.search, &diag), &diag);
    return s;
}

static void session_free(session *s)
{
    ef_search_free(s->search);
    ef_program_free(s->program);
    ef_ctx_free(s->ctx);
}

static ef_proof *explain(session *s, ef_id a, ef_id b)
{
    ef_diag diag = {0};
    ef_proof *proof =
        ef_explain(s->search->graph, s->search->rules->rules.at, s->search->rules->rules.count, a, b, &diag);
    assert_fine(proof != NULL, &diag);
    return proof;
}

static void explain_and_check(session *s, ef_id a, ef_id b)
{
    ef_diag diag = {0};
    ef_proof *proof = explain(s, a, b);
    assert_fine(ef_proof_check(proof, s->search->rules, &diag), &diag);
    ef_proof_free(proof);
}

/* All that is equal to an output (up to 24 nodes, spread over the class). */
static void check_outputs(session *s)
{
    ef_egraph *g = s->search->graph;
    for (uint32_t i = 0; i < s->search->outputs; i++) {
        uint32_t size = 0, at = 0;
        for (ef_id n = ef_find(g, s->search->output[i]); n != EF_NONE; n = g->next_in_class.at[n])
            size++;
        for (ef_id n = ef_find(g, s->search->output[i]); n != EF_NONE; n = g->next_in_class.at[n])
            if (at++ % (size / 24 + 1) == 0)
                explain_and_check(s, s->search->output[i], n);
    }
}

/* The two sides of a few applications of every rule: the first, and some later ones. */
static void check_applications(session *s)
{
    ef_egraph *g = s->search->graph;
    uint32_t *seen = calloc(s->search->rules->rules.count + 2, sizeof *seen);
    for (uint32_t i = 0; i < g->applications.count; i++) {
        const ef_application *a = &g->applications.at[i];
        uint32_t rule = a->rule + 2; /* the steps of no rule wrap to 0 and 1 */
        seen[rule]++;
        if ((seen[rule] & (seen[rule] - 1)) == 0 && seen[rule] < 100)
            explain_and_check(s, g->application_ids.at[a->ids], g->application_ids.at[a->ids + a->left]);
    }
    free(seen);
}

typedef struct {
    ef_egraph *g;
    double *cost;
    ef_id *choice; /* by class root */
    ef_dag *dag;
    ef_expr *expr;
} extraction;

/* Prefers tiled programs, and reductions that are fused by repair. */
static double price(ef_egraph *g, ef_id n)
{
    bool fused =
        g->op.at[n] == EF_REDUCE_P && ef_reducer_at(g->ctx, ef_attr_reducer(g->attr.at[n]))->kind == EF_RED_REPAIRED;
    bool whole =
        ef_type_axes(g->ctx, ef_egraph_type(g, n)) == 0 && ef_ops[g->op.at[n]].arity > 0 && g->op.at[n] != EF_COMBINE;
    return (g->op.at[n] == EF_REDUCE_P && !fused ? 50 : 0) + (whole ? 100 : 0) + (g->op.at[n] == EF_MATMUL ? 1000 : 0);
}

/* Some expression of every class: the cheapest under random prices of nodes. */
static void choose(extraction *x, uint64_t seed)
{
    bool changed = true;
    for (ef_id n = 0; n < x->g->op.count; n++)
        x->cost[n] = 1e300, x->expr[n] = EF_NONE;
    while (changed) {
        changed = false;
        for (ef_id n = 0; n < x->g->op.count; n++) {
            ef_rng rng = {seed * 1000003 + n};
            double cost = 0.1 + ef_rng_unit(&rng) + price(x->g, n);
            for (unsigned i = 0; i < x->g->arity.at[n]; i++)
                cost += x->cost[ef_find(x->g, ef_node_children(x->g, n)[i])];
            ef_id class = ef_find(x->g, n);
            if (x->g->dead.at[n] || cost >= x->cost[class])
                continue;
            x->cost[class] = cost;
            x->choice[class] = n;
            changed = true;
        }
    }
}

static ef_expr extract(extraction *x, ef_id class)
{
    class = ef_find(x->g, class);
    if (x->expr[class] != EF_NONE)
        return x->expr[class];
    ef_id n = x->choice[class];
    ef_expr child[EF_MAX_CHILDREN];
    for (unsigned i = 0; i < x->g->arity.at[n]; i++)
        child[i] = extract(x, ef_node_children(x->g, n)[i]);
    x->expr[class] = ef_dag_add_exact(x->dag, (ef_op)x->g->op.at[n], x->g->attr.at[n], child, x->g->arity.at[n], NULL);
    assert_int_not_equal(x->expr[class], EF_NONE);
    return x->expr[class];
}

/* From the user's program to programs that were extracted. */
static void check_extractions(session *s)
{
    ef_egraph *g = s->search->graph;
    extraction x = {.g = g, .dag = ef_dag_new(s->ctx)};
    x.cost = calloc(g->op.count, sizeof *x.cost);
    x.choice = calloc(g->op.count, sizeof *x.choice);
    x.expr = calloc(g->op.count, sizeof *x.expr);
    for (uint64_t seed = 1; seed <= 4; seed++) {
        ef_diag diag = {0};
        choose(&x, seed);
        for (uint32_t i = 0; i < s->search->outputs; i++) {
            ef_expr to = extract(&x, s->search->output[i]);
            ef_proof *proof = ef_explain_exprs(g, s->search->rules->rules.at, s->search->rules->rules.count,
                                               s->program->dag, s->program->output[i].expr, x.dag, to, &diag);
            assert_fine(proof != NULL, &diag);
            assert_fine(ef_proof_check(proof, s->search->rules, &diag), &diag);
            ef_proof_free(proof);
        }
    }
    free(x.cost);
    free(x.choice);
    free(x.expr);
    ef_dag_free(x.dag);
}

static void check_search(const char *text)
{
    session s = session_new(text);
    check_outputs(&s);
    check_applications(&s);
    check_extractions(&s);
    session_free(&s);
}

static const char attention[] = "program attention\ndim h = 2\ndim m = 12\ndim s = 64\ndim d = 16\ndim e = 8\n"
                                "input q: f16[h, m, d]\ninput k: f16[h, s, d]\ninput v: f16[h, s, e]\n"
                                "sc = mul(matmul(q, transpose[0, 2, 1](k)), 0.25)\nmx = reduce[max, -1](sc)\n"
                                "p = exp(sub(sc, mx))\nl = reduce[sum, -1](p)\noutput o = matmul(div(p, l), v)\n";

static void test_attention(void **state)
{
    (void)state;
    check_search(attention);
}

/* A token is appended to a history: s = old + 1 at every size. */
static const char appended[] =
    "program appended\ndim h = 2\ndim old = 63\ndim old2 = 63\ndim s = 64\ndim d = 16\ndim e = 8\n"
    "input q: f16[h, 1, d]\ninput keys: f16[h, old, d]\ninput values: f16[h, old2, e]\n"
    "input k: f16[h, 1, d]\ninput v: f16[h, 1, e]\n"
    "ks = reshape[h, s, d](concat[-2](keys, k))\nvs = reshape[h, s, e](concat[-2](values, v))\n"
    "sc = mul(matmul(q, transpose[0, 2, 1](ks)), 0.25)\np = exp(sub(sc, reduce[max, -1](sc)))\n"
    "output o = matmul(div(p, reduce[sum, -1](p)), vs)\n";

static void test_appended(void **state)
{
    (void)state;
    check_search(appended);
}

/* Tiles that the mask empties hold -inf - -inf on one side and nothing on the other. */
static void test_causal_attention(void **state)
{
    (void)state;
    check_search("program causal\ndim q = 48\ndim s = 64\ndim d = 16\ndim e = 8\n"
                 "input qs: f16[q, d]\ninput ks: f16[s, d]\ninput v: f16[s, e]\n"
                 "causal = ge(reshape[q, 1](iota[q]), iota[s])\n"
                 "sc = select(causal, mul(matmul(qs, transpose[1, 0](ks)), 0.25), -inf)\n"
                 "p = exp(sub(sc, reduce[max, -1](sc)))\noutput o = matmul(div(p, reduce[sum, -1](p)), v)\n");
}

static void test_norm(void **state)
{
    (void)state;
    check_search(
        "program norm\ndim m = 8\ndim k = 64\ndim n = 24\ninput x: f16[m, k]\ninput g: f16[k]\ninput w: f16[k, n]\n"
        "var = div(reduce[sum, -1](mul(x, x)), 64)\noutput y = matmul(mul(mul(x, rsqrt(add(var, 1e-5))), g), w)\n");
}

static void test_deviation(void **state)
{
    (void)state;
    check_search("program deviation\ndim m = 8\ndim k = 64\ninput x: f16[m, k]\nmean = div(reduce[sum, -1](x), 64)\n"
                 "dev = sub(x, mean)\noutput y = div(reduce[sum, -1](mul(dev, dev)), 64)\n");
}

/* Slices speak of positions, so the dimension that they cut keeps its extent. */
static void test_rotary(void **state)
{
    (void)state;
    check_search("program rotary\ndim m = 8\ndim d = 16\ndim n = 12\ninput x: f16[m, d]\ninput c: f16[m, d]\ninput w: "
                 "f16[d, n]\n"
                 "turned = concat[-1](neg(slice[-1, 8:16](x)), slice[-1, 0:8](x))\n"
                 "output y = matmul(add(mul(x, c), reshape[m, d](turned)), w)\n");
}

/* Equations of repair have their numbers alone: a product in place of the repaired reducer must not pass. */
static void corrupt_repairs(const char *program)
{
    session s = session_new(program);
    ef_egraph *g = s.search->graph;
    const ef_ruleset *rules = s.search->rules;
    unsigned repairs = 0;
    for (uint32_t i = 0; i < g->applications.count && repairs < 4; i++) {
        const ef_application *a = &g->applications.at[i];
        if (a->rule >= rules->rules.count || !rules->rules.at[a->rule].builder)
            continue;
        ef_proof *proof = explain(&s, g->application_ids.at[a->ids], g->application_ids.at[a->ids + a->left]);
        for (uint32_t k = 0; k < proof->steps; k++) {
            const ef_expr *child;
            ef_proof_step *step = &proof->step[k];
            if (!rules->rules.at[step->rule].builder || ef_dag_op(proof->dag, step->after) != EF_REDUCE_P)
                continue;
            uint64_t attr = ef_dag_attr(proof->dag, step->after);
            const ef_reducer_info *r = ef_reducer_at(s.ctx, ef_attr_reducer(attr));
            attr = ef_attr_reduce(ef_reducer_product(s.ctx, r->left, r->right), ef_attr_reduce_at(attr));
            ef_dag_children(proof->dag, step->after, &child);
            step->after = ef_dag_add_exact(proof->dag, EF_REDUCE_P, attr, child, 1, NULL);
            assert_int_not_equal(step->after, EF_NONE);
            refuse(proof, rules, "different numbers");
            repairs++;
            break;
        }
        ef_proof_free(proof);
    }
    assert_int_not_equal(repairs, 0);
    session_free(&s);
}

static void test_corrupted_repair(void **state)
{
    (void)state;
    corrupt_repairs(attention);
    corrupt_repairs(appended);
}

/* Where extents depend on each other a step is evaluated at others all the same, so a false one is refused. */
static void test_dependent_extents(void **state)
{
    (void)state;
#define CAT                                                                                                         \
    "program p\ndim m = 6\ndim old = 9\ndim k = 10\ninput x: f32[m, old]\ninput y: f32[m, 1]\ninput w: f32[k, m]\n" \
    "c = reshape[m, k](concat[-1](x, y))\n"
    judge("rule turn\n matmul(?x, ?w) => transpose[?P](matmul(transpose[?B](?w), transpose[?A](?x)))\n"
          " where ?P = swap_last(root), ?A = swap_last(?x), ?B = swap_last(?w)\n",
          CAT "output a = matmul(c, reshape[k, m'](w))\n"
              "output b = transpose[1, 0](matmul(transpose[1, 0](reshape[k, m'](w)), transpose[1, 0](c)))\n",
          NULL);
    judge("rule wrong\n sub(?x, ?y) => sub(?y, ?x)\n", CAT "output a = sub(c, y)\noutput b = sub(y, c)\n",
          "different numbers");
}

/* A repair by the ratio of the producer's results, where the consumer's values have nothing to do with the producer's:
 * a tile whose producer is zero drops the consumer's contributions. Only inputs with whole zero tiles show that. */
static void test_dropped_contributions(void **state)
{
    (void)state;
    const char *rule = "rule repair\n tuple(reduce_p[?r, ?p](?g), reduce_p[?s, ?p](?y)) => native repair\n";
#define TILES HEAD "xt = view[k.1](x)\nyt = view[k.1](y)\ng = reduce[sum, -1](xt)\nall = reduce[sum, k.1](g)\n"
    judge(rule,
          TILES "output a = tuple(all, reduce[sum, k.1](reduce[sum, -1](mul(yt, view[k.1](all)))))\n"
                "own = reduce[sum, -1](mul(yt, g))\n"
                "output b = reduce[repaired(sum, sum, mul(c, div(t, s))), k.1](tuple(g, own))\n",
          "different numbers");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_small_proofs),
        cmocka_unit_test(test_commutative_pairings),
        cmocka_unit_test(test_literals),
        cmocka_unit_test(test_comparison_of_literals),
        cmocka_unit_test(test_late_constants),
        cmocka_unit_test(test_two_constants),
        cmocka_unit_test(test_policy_of_a_batch),
        cmocka_unit_test(test_views),
        cmocka_unit_test(test_refusals_of_explain),
        cmocka_unit_test(test_corrupted_steps),
        cmocka_unit_test(test_false_rule),
        cmocka_unit_test(test_attributes_and_conditions),
        cmocka_unit_test(test_attention),
        cmocka_unit_test(test_appended),
        cmocka_unit_test(test_causal_attention),
        cmocka_unit_test(test_norm),
        cmocka_unit_test(test_deviation),
        cmocka_unit_test(test_rotary),
        cmocka_unit_test(test_corrupted_repair),
        cmocka_unit_test(test_dependent_extents),
        cmocka_unit_test(test_dropped_contributions),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
