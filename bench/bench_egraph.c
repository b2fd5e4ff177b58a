/* The e-graph engine alone: symbolic differentiation and simplification, the usual stress test of equality saturation
 * (after the math rules of egg: Willsey et al., POPL 2021).
 *
 * The IR has no derivative operator, so here `erf(f)` stands for the differential df; nothing else in this file uses
 * it. All values are scalars. Associativity, distributivity and factoring make the space as large as one likes, so each
 * run ends at its node limit; the table shows growing limits, where anything that is not linear in the number of
 * e-nodes shows as a falling rate.
 *
 * Usage: bench_egraph [LIMIT...], by default 10000 100000 1000000 e-nodes. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "egraph/runner.h"
#include "rules/language.h"

/* No rule here makes a zero or a one: everything times zero is zero, so one class would swallow the e-graph. */
static const char rule_text[] =
    "group differentiation\n"
    "rule d-add erf(add(?f, ?g)) => add(erf(?f), erf(?g))\n"
    "rule d-mul erf(mul(?f, ?g)) => add(mul(?f, erf(?g)), mul(?g, erf(?f)))\n"
    "rule d-square erf(pow(?f, 2)) => mul(2, mul(?f, erf(?f)))\n"
    "rule d-sin erf(sin(?f)) => mul(cos(?f), erf(?f))\n"
    "rule d-cos erf(cos(?f)) => neg(mul(sin(?f), erf(?f)))\n"
    "rule d-exp erf(exp(?f)) => mul(exp(?f), erf(?f))\n"
    "rule d-log erf(log(?f)) => mul(recip(?f), erf(?f))\n"
    "group simplification\n"
    "rule add-associate add(add(?a, ?b), ?c) => add(?a, add(?b, ?c))\n"
    "rule mul-associate mul(mul(?a, ?b), ?c) => mul(?a, mul(?b, ?c))\n"
    "rule distribute mul(?a, add(?b, ?c)) <=> add(mul(?a, ?b), mul(?a, ?c))\n"
    "rule neg-mul neg(mul(?a, ?b)) => mul(neg(?a), ?b)\n"
    "rule neg-add neg(add(?a, ?b)) <=> add(neg(?a), neg(?b))\n"
    "rule neg-neg neg(neg(?a)) => ?a\n"
    "rule square mul(?a, ?a) <=> pow(?a, 2)\n"
    "rule recip-mul recip(mul(?a, ?b)) <=> mul(recip(?a), recip(?b))\n"
    "rule exp-sum mul(exp(?a), exp(?b)) <=> exp(add(?a, ?b))\n"
    "rule log-product log(mul(?a, ?b)) <=> add(log(?a), log(?b))\n"
    "rule sin-sum sin(add(?a, ?b)) => add(mul(sin(?a), cos(?b)), mul(cos(?a), sin(?b)))\n"
    "rule cos-sum cos(add(?a, ?b)) => add(mul(cos(?a), cos(?b)), neg(mul(sin(?a), sin(?b))))\n";

typedef struct {
    ef_dag *dag;
    ef_expr x, y, z;
} terms;

static ef_expr variable(ef_dag *dag, const char *name)
{
    ef_ctx *ctx = ef_dag_ctx(dag);
    ef_type scalar = ef_type_tensor(ctx, EF_NUM, NULL, 0);
    return ef_dag_input(dag, ef_input_declare(ctx, name, (unsigned)strlen(name), scalar, NULL));
}

static ef_expr one(ef_dag *dag, ef_op op, ef_expr a)
{
    return ef_dag_add(dag, op, 0, &a, 1, NULL);
}

static ef_expr two(ef_dag *dag, ef_op op, ef_expr a, ef_expr b)
{
    return ef_dag_add(dag, op, 0, (ef_expr[]){a, b}, 2, NULL);
}

/* The differential of (x + y) sin(x y + z) exp(x + z) + (x^2 + x y + y^2) log(x z) cos(x + y + z). */
static ef_expr derivative(const terms *t)
{
    ef_dag *d = t->dag;
    ef_expr xy = two(d, EF_MUL, t->x, t->y), sum = two(d, EF_ADD, t->x, t->y);
    ef_expr wave = two(d, EF_MUL, sum, one(d, EF_SIN, two(d, EF_ADD, xy, t->z)));
    ef_expr first = two(d, EF_MUL, wave, one(d, EF_EXP, two(d, EF_ADD, t->x, t->z)));
    ef_expr x2 = two(d, EF_POW, t->x, ef_dag_const(d, 2)), y2 = two(d, EF_MUL, t->y, t->y);
    ef_expr squares = two(d, EF_ADD, x2, two(d, EF_ADD, xy, y2));
    ef_expr logs = two(d, EF_MUL, squares, one(d, EF_LOG, two(d, EF_MUL, t->x, t->z)));
    ef_expr second = two(d, EF_MUL, logs, one(d, EF_COS, two(d, EF_ADD, sum, t->z)));
    return one(d, EF_ERF, two(d, EF_ADD, first, second));
}

static void print_row(const ef_egraph *g, const ef_run_stats *s)
{
    double searching = s->search_seconds, applying = s->apply_seconds, rebuilding = s->rebuild_seconds;
    printf("%9" PRIu32 " %9" PRIu32 " %6" PRIu32 " %10" PRIu64
           " %8.3f %8.3f %8.3f %8.3f %8.3f %10.0f %10.0f %7.0f  %s\n",
           g->live, g->classes, s->iterations, s->matches, s->seconds, searching, applying, rebuilding,
           s->seconds - searching - applying - rebuilding, g->op.count / s->seconds, (double)s->matches / s->seconds,
           (double)ef_egraph_memory(g) / (1 << 20), ef_stop_names[s->stop]);
}

static bool run(uint32_t node_limit)
{
    ef_ctx *ctx = ef_ctx_new();
    terms t = {.dag = ef_dag_new(ctx)};
    ef_ruleset rules = {.arena = ef_arena_new()};
    ef_diag diag = {0};
    t.x = variable(t.dag, "x");
    t.y = variable(t.dag, "y");
    t.z = variable(t.dag, "z");
    bool good = ef_rules_parse(&rules, "bench_egraph", rule_text, &diag);
    if (!good)
        fprintf(stderr, "%s\n", diag.text);
    ef_egraph *g = ef_egraph_new(ctx);
    if (good) {
        ef_scope scope = {.ctx = ctx, .graph = g};
        ef_runner *runner = ef_runner_new(&scope, rules.rules.at, rules.rules.count, NULL);
        ef_egraph_add_expr(g, t.dag, derivative(&t));
        print_row(g, ef_runner_run(runner, &(ef_limits){.node_limit = node_limit, .match_limit = 20000}));
        ef_runner_free(runner);
        good = !g->error.failed;
        if (!good)
            fprintf(stderr, "%s\n", g->error.text);
    }
    ef_egraph_free(g);
    ef_vec_free(&rules.rules);
    ef_arena_free(rules.arena);
    ef_dag_free(t.dag);
    ef_ctx_free(ctx);
    return good;
}

int main(int argc, char **argv)
{
    static const uint32_t limits[] = {10000, 100000, 1000000};
    bool good = true;
    printf("%9s %9s %6s %10s %8s %8s %8s %8s %8s %10s %10s %7s  %s\n", "e-nodes", "e-classes", "rounds", "matches",
           "seconds", "search", "apply", "rebuild", "other", "e-nodes/s", "matches/s", "MiB", "stop");
    for (unsigned i = 0; argc < 2 && i < sizeof limits / sizeof *limits; i++)
        good = run(limits[i]) && good;
    for (int i = 1; i < argc; i++)
        good = run((uint32_t)strtoul(argv[i], NULL, 10)) && good;
    return good ? 0 : 1;
}
