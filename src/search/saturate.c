/* Saturation of one program: see saturate.h. */
#include "search/saturate.h"

#include <math.h>
#include <string.h>

#include "search/policy.h"
#include "search/waste.h"

#define ALGEBRA_SHARE 0.2 /* of the time limit */
#define ALGEBRA_NODES 50000

static const char *rule_name(void *user, uint32_t rule)
{
    const ef_ruleset *set = user;
    if (rule == EF_RULE_TUPLE_INTRO)
        return "tuple-introduce";
    return rule < set->rules.count ? set->rules.at[rule].name : "constant-fold";
}

ef_search *ef_search_new(const ef_program *program, const ef_search_options *options, ef_diag *diag)
{
    ef_search *s = ef_xcalloc(1, sizeof *s);
    s->ctx = ef_dag_ctx(program->dag);
    s->program = program;
    s->graph = ef_egraph_new(s->ctx);
    s->rules = ef_rules_builtin();
    s->graph->rule_name = rule_name;
    s->graph->rule_user = s->rules;
    s->policy =
        ef_policy_new(options->split_min ? options->split_min : 256, options->whole_max ? options->whole_max : 256);
    s->limits = (ef_limits){
        .node_limit = options->node_limit ? options->node_limit : 1000000,
        .time_limit = options->time_limit > 0 ? options->time_limit : 600,
        .memory_limit = options->memory_limit ? options->memory_limit : (size_t)4 << 30,
        .match_limit = 20000,
    };
    s->everything = options->everything;
    s->outputs = program->outputs;
    s->output = ef_xcalloc(s->outputs, sizeof *s->output);
    for (uint32_t i = 0; i < s->outputs; i++) {
        s->output[i] = ef_egraph_add_expr(s->graph, program->dag, program->output[i].expr);
        if (s->output[i] == EF_NONE) {
            ef_fail(diag, "output %s cannot be represented", program->output[i].name);
            ef_search_free(s);
            return NULL;
        }
        ef_vec_push(&s->policy->outputs, s->output[i]);
    }
    ef_scope scope = {s->ctx, s->graph, s->policy};
    s->runner = ef_runner_new(&scope, s->rules->rules.at, s->rules->rules.count, ef_policy_update);
    return s;
}

/* ---- algebra first, where it saves much ---- */

static bool is_algebra(const ef_rule *rule)
{
    return strcmp(rule->group, "algebraic") == 0 || strcmp(rule->group, "structural") == 0;
}

/* Whether algebra alone came to an end. */
static bool run_algebra(ef_search *s)
{
    ef_limits limits = s->limits;
    limits.time_limit *= ALGEBRA_SHARE;
    limits.node_limit = limits.node_limit < ALGEBRA_NODES ? limits.node_limit : ALGEBRA_NODES;
    ef_runner_only(s->runner, is_algebra);
    const ef_run_stats *stats = ef_runner_run(s->runner, &limits);
    ef_runner_only(s->runner, NULL);
    return stats->stop == EF_STOP_SATURATED;
}

/* Whether there are two products, one of which may move into the other. */
static bool has_products(const ef_search *s)
{
    return s->graph->by_op[EF_MATMUL].count > 1;
}

static void nothing(ef_egraph *g, ef_id node)
{
    (void)g, (void)node;
}

/* Whether algebra finds a way of far less work, in an e-graph of its own: the order in which rules run decides which of
 * several equal forms are fused, so a program in which there is nothing to save is searched at once. */
static bool saves_much(const ef_search *s)
{
    ef_search_options options = {.node_limit = s->limits.node_limit,
                                 .time_limit = s->limits.time_limit,
                                 .memory_limit = s->limits.memory_limit,
                                 .split_min = s->policy->policy.split_min,
                                 .whole_max = s->policy->policy.whole_max};
    ef_search *trial = ef_search_new(s->program, &options, NULL);
    bool saves = trial && run_algebra(trial) && ef_waste_find(trial->graph, trial->output, trial->outputs, nothing) > 0;
    ef_search_free(trial);
    return saves;
}

bool ef_search_bring_back(ef_search *s)
{
    s->everything = true;
    s->aside = 0;
    return ef_egraph_bring_back(s->graph) > 0;
}

bool ef_search_saturate(ef_search *s, ef_diag *diag)
{
    double start = ef_seconds();
    if (!s->everything && !s->stats && has_products(s) && saves_much(s) && run_algebra(s)) {
        s->aside = ef_waste_find(s->graph, s->output, s->outputs, ef_egraph_set_aside);
        ef_policy_forget(s->policy);
    }
    ef_limits limits = s->limits;
    if (limits.time_limit > 0) /* 0 would be none */
        limits.time_limit = fmax(limits.time_limit - (ef_seconds() - start), 1e-3);
    s->stats = ef_runner_run(s->runner, &limits);
    if (s->graph->error.failed)
        return ef_fail(diag, "%s", s->graph->error.text);
    return true;
}

void ef_search_free(ef_search *s)
{
    if (!s)
        return;
    ef_runner_free(s->runner);
    ef_policy_free(s->policy);
    ef_ruleset_free(s->rules);
    ef_egraph_free(s->graph);
    free(s->output);
    free(s);
}
