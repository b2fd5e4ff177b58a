/* Saturation of one program: see saturate.h. */
#include "search/saturate.h"

#include "search/policy.h"

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

bool ef_search_saturate(ef_search *s, ef_diag *diag)
{
    s->stats = ef_runner_run(s->runner, &s->limits);
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
