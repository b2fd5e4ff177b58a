/* The repair prover: see prove.h. The e-graphs are small and bounded; what is not proved in bounds is refused. */
#include "rules/prove.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "egraph/runner.h"
#include "rules/language.h"

#define PROOF_NODES 30000
#define PROOF_ITERATIONS 12
#define SIMPLIFY_ITERATIONS 9

/* The scalar rules are parsed once a process, whichever thread asks first: they never change. */
static ef_ruleset *parsed;

static void parse_scalar_rules(void)
{
    parsed = ef_rules_scalar();
}

static const ef_ruleset *scalar_rules(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, parse_scalar_rules);
    return parsed;
}

ef_expr ef_prove_input(ef_dag *dag, const char *prefix, unsigned index)
{
    char name[32];
    ef_ctx *ctx = ef_dag_ctx(dag);
    int length = snprintf(name, sizeof name, "%%%s%u", prefix, index); /* no program can name such an input */
    ef_type type = ef_type_tensor(ctx, EF_NUM, NULL, 0); /* one type with literals, so that terms may become them */
    return ef_dag_input(dag, ef_input_declare(ctx, name, (unsigned)length, type, NULL));
}

ef_expr ef_prove_expr(ef_dag *dag, ef_scalar term, ef_expr c, const ef_expr *s, const ef_expr *t)
{
    ef_scalar_info info = *ef_scalar_at(ef_dag_ctx(dag), term);
    ef_expr operand[3];
    if (info.kind == EF_SCALAR_CONST)
        return ef_dag_const(dag, info.value);
    if (info.kind == EF_SCALAR_PARAM)
        return info.param == EF_PARAM_C ? c : info.param == EF_PARAM_S ? s[info.index] : t[info.index];
    for (unsigned i = 0; i < info.operands; i++)
        operand[i] = ef_prove_expr(dag, info.operand[i], c, s, t);
    return ef_dag_add(dag, info.op, 0, operand, info.operands, NULL);
}

static ef_runner *start(ef_egraph *g, ef_scope *scope)
{
    const ef_ruleset *rules = scalar_rules();
    *scope = (ef_scope){.ctx = g->ctx, .graph = g};
    return ef_runner_new(scope, rules->rules.at, rules->rules.count, NULL);
}

static const ef_limits one_round = {.node_limit = PROOF_NODES, .iteration_limit = 1, .match_limit = 4000};

bool ef_prove_equal(ef_dag *dag, ef_expr a, ef_expr b)
{
    ef_egraph *g = ef_egraph_new(ef_dag_ctx(dag));
    ef_scope scope;
    ef_id left = ef_egraph_add_expr(g, dag, a), right = ef_egraph_add_expr(g, dag, b);
    ef_runner *runner = start(g, &scope);
    bool equal = ef_find(g, left) == ef_find(g, right);
    for (unsigned i = 0; i < PROOF_ITERATIONS && !equal; i++) {
        ef_stop stop = ef_runner_run(runner, &one_round)->stop;
        equal = ef_find(g, left) == ef_find(g, right);
        if (stop != EF_STOP_ITERATIONS)
            break;
    }
    ef_runner_free(runner);
    ef_egraph_free(g);
    return equal;
}

/* ---- simplification ---- */

static unsigned op_cost(ef_op op)
{
    switch (op) {
    case EF_ADD:
    case EF_SUB:
    case EF_MUL:
    case EF_MAX:
    case EF_MIN: return 2;
    case EF_NEG: return 3; /* a subtraction is shorter */
    case EF_EXP:
    case EF_EXP2: return 20;
    default: return 8;
    }
}

typedef struct {
    unsigned *cost; /* by class */
    ef_id *node;
} selection;

static void choose(ef_egraph *g, selection *c)
{
    for (ef_id i = 0; i < g->op.count; i++)
        c->cost[i] = UINT32_MAX;
    for (bool better = true; better;) {
        better = false;
        for (ef_id n = 0; n < g->op.count; n++) {
            unsigned cost = ef_ops[g->op.at[n]].class == EF_LEAF ? 1 : op_cost((ef_op)g->op.at[n]);
            ef_id class = ef_find(g, n);
            for (unsigned i = 0; i < g->arity.at[n] && cost != UINT32_MAX; i++) {
                unsigned child = c->cost[ef_find(g, ef_node_children(g, n)[i])];
                cost = child == UINT32_MAX ? UINT32_MAX : cost + child;
            }
            if (g->dead.at[n] || cost >= c->cost[class])
                continue;
            c->cost[class] = cost;
            c->node[class] = n;
            better = true;
        }
    }
}

/* Parameters travel as inputs: index 0 is c, then the producer leaves s and t in turn. */
static ef_scalar read_back(ef_egraph *g, const selection *c, ef_id class, const uint32_t *input_of, unsigned inputs)
{
    ef_id n = c->node[ef_find(g, class)];
    ef_scalar operand[3];
    if (g->op.at[n] == EF_CONST)
        return ef_scalar_const(g->ctx, ef_attr_to_number(g->attr.at[n]));
    for (unsigned i = 0; g->op.at[n] == EF_INPUT && i < inputs; i++)
        if (input_of[i] == (uint32_t)g->attr.at[n])
            return i == 0 ? ef_scalar_param(g->ctx, EF_PARAM_C, 0)
                          : ef_scalar_param(g->ctx, i % 2 ? EF_PARAM_S : EF_PARAM_T, (i - 1) / 2);
    for (unsigned i = 0; i < g->arity.at[n]; i++)
        operand[i] = read_back(g, c, ef_node_children(g, n)[i], input_of, inputs);
    return ef_scalar_apply(g->ctx, (ef_op)g->op.at[n], operand);
}

ef_scalar ef_prove_simplify(ef_ctx *ctx, ef_scalar term)
{
    ef_dag *dag = ef_dag_new(ctx);
    ef_expr c = ef_prove_input(dag, "c", 0), s[EF_MAX_LEAVES], t[EF_MAX_LEAVES];
    uint32_t input_of[1 + 2 * EF_MAX_LEAVES] = {(uint32_t)ef_dag_attr(dag, c)};
    for (unsigned i = 0; i < EF_MAX_LEAVES; i++) {
        s[i] = ef_prove_input(dag, "s", i);
        t[i] = ef_prove_input(dag, "t", i);
        input_of[1 + 2 * i] = (uint32_t)ef_dag_attr(dag, s[i]);
        input_of[2 + 2 * i] = (uint32_t)ef_dag_attr(dag, t[i]);
    }
    ef_egraph *g = ef_egraph_new(ctx);
    ef_scope scope;
    ef_id root = ef_egraph_add_expr(g, dag, ef_prove_expr(dag, term, c, s, t));
    ef_runner *runner = start(g, &scope);
    for (unsigned i = 0; i < SIMPLIFY_ITERATIONS && ef_runner_run(runner, &one_round)->stop == EF_STOP_ITERATIONS;)
        i++;
    selection best = {ef_xcalloc(g->op.count, sizeof(unsigned)), ef_xcalloc(g->op.count, sizeof(ef_id))};
    choose(g, &best);
    ef_scalar result = read_back(g, &best, root, input_of, 1 + 2 * EF_MAX_LEAVES);
    free(best.cost);
    free(best.node);
    ef_runner_free(runner);
    ef_egraph_free(g);
    ef_dag_free(dag);
    return result;
}
