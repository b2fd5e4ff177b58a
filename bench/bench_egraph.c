/* The e-graph engine alone: symbolic differentiation and simplification, the classic stress test of equality
 * saturation (Willsey et al., "egg", POPL 2021, appendix of micro-benchmarks "math").
 *
 * The IR has no derivative operator, so here `mod(f, x)` stands for df/dx; nothing else in this file uses it. All values
 * are scalars of the literals' type, so that a term may become a literal. Associativity, distributivity and factoring
 * make the space as large as one likes, so each run ends at its node limit; the table shows growing limits, where
 * anything that is not linear in the number of e-nodes shows as a falling rate.
 *
 * Usage: bench_egraph [LIMIT...], by default 10000 100000 1000000 e-nodes. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "egraph/runner.h"
#include "rules/language.h"

static const char rule_text[] =
    "group differentiation\n"
    "rule d-self mod(?x, ?x) => 1\n"
    "rule d-literal mod(?c, ?x) => 0 where literal(?c)\n"
    "rule d-other mod(input[1](), input[0]()) => 0\n"
    "rule d-another mod(input[2](), input[0]()) => 0\n"
    "rule d-add mod(add(?f, ?g), ?x) => add(mod(?f, ?x), mod(?g, ?x))\n"
    "rule d-mul mod(mul(?f, ?g), ?x) => add(mul(?f, mod(?g, ?x)), mul(?g, mod(?f, ?x)))\n"
    "rule d-sin mod(sin(?f), ?x) => mul(cos(?f), mod(?f, ?x))\n"
    "rule d-cos mod(cos(?f), ?x) => neg(mul(sin(?f), mod(?f, ?x)))\n"
    "rule d-exp mod(exp(?f), ?x) => mul(exp(?f), mod(?f, ?x))\n"
    "rule d-log mod(log(?f), ?x) => mul(recip(?f), mod(?f, ?x))\n"
    "group simplification\n"
    "rule add-associate add(add(?a, ?b), ?c) => add(?a, add(?b, ?c))\n"
    "rule mul-associate mul(mul(?a, ?b), ?c) => mul(?a, mul(?b, ?c))\n"
    "rule distribute mul(?a, add(?b, ?c)) <=> add(mul(?a, ?b), mul(?a, ?c))\n"
    "rule factor-one add(?a, mul(?a, ?b)) => mul(?a, add(1, ?b))\n"
    "rule double add(?a, ?a) => mul(2, ?a)\n"
    "rule add-zero add(?a, 0) => ?a\n"
    "rule mul-zero mul(?a, 0) => 0\n"
    "rule mul-one mul(?a, 1) => ?a\n"
    "rule neg neg(?a) <=> mul(-1, ?a)\n"
    "rule sub sub(?a, ?b) <=> add(?a, mul(-1, ?b))\n"
    "rule square mul(?a, ?a) <=> pow(?a, 2)\n"
    "rule power mul(?a, pow(?a, ?n)) => pow(?a, add(?n, 1))\n"
    "rule powers mul(pow(?a, ?m), pow(?a, ?n)) => pow(?a, add(?m, ?n))\n"
    "rule exp-sum mul(exp(?a), exp(?b)) <=> exp(add(?a, ?b))\n"
    "rule pythagoras add(mul(sin(?a), sin(?a)), mul(cos(?a), cos(?a))) => 1\n"
    "rule sin-sum sin(add(?a, ?b)) => add(mul(sin(?a), cos(?b)), mul(cos(?a), sin(?b)))\n"
    "rule cos-sum cos(add(?a, ?b)) => sub(mul(cos(?a), cos(?b)), mul(sin(?a), sin(?b)))\n";

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

/* d/dx of ((x + y + 1) sin(x y + z)) exp(x + z) + (x^2 + 2 x y + y^2) log(x z) cos(x + y + z). */
static ef_expr derivative(const terms *t)
{
    ef_dag *d = t->dag;
    ef_expr xy = two(d, EF_MUL, t->x, t->y), sum = two(d, EF_ADD, t->x, t->y);
    ef_expr wave = one(d, EF_SIN, two(d, EF_ADD, xy, t->z));
    ef_expr first = two(d, EF_MUL, two(d, EF_MUL, two(d, EF_ADD, sum, ef_dag_const(d, 1)), wave),
                        one(d, EF_EXP, two(d, EF_ADD, t->x, t->z)));
    ef_expr squares = two(d, EF_ADD, two(d, EF_POW, t->x, ef_dag_const(d, 2)),
                          two(d, EF_ADD, two(d, EF_MUL, ef_dag_const(d, 2), xy), two(d, EF_MUL, t->y, t->y)));
    ef_expr second = two(d, EF_MUL, two(d, EF_MUL, squares, one(d, EF_LOG, two(d, EF_MUL, t->x, t->z))),
                         one(d, EF_COS, two(d, EF_ADD, sum, t->z)));
    return two(d, EF_MOD, two(d, EF_ADD, first, second), t->x);
}

static void print_row(const ef_egraph *g, const ef_run_stats *s)
{
    double searching = s->search_seconds, applying = s->apply_seconds, rebuilding = s->rebuild_seconds;
    printf("%9" PRIu32 " %9" PRIu32 " %6" PRIu32 " %10" PRIu64 " %8.3f %8.3f %8.3f %8.3f %8.3f %10.0f %10.0f %7.0f  %s\n",
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
    t.x = variable(t.dag, "x"); /* inputs 0, 1, 2: the rules name them so */
    t.y = variable(t.dag, "y");
    t.z = variable(t.dag, "z");
    bool good = ef_rules_parse(&rules, "bench_egraph", rule_text, &diag);
    if (!good)
        fprintf(stderr, "%s\n", diag.text);
    ef_egraph *g = ef_egraph_new(ctx);
    if (good) {
        ef_scope scope = {ctx, g, NULL};
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
