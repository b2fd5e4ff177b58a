/* Derivations: see derive.h. */
#include "search/derive.h"

#include <stdlib.h>
#include <string.h>

#include "egraph/explain.h"
#include "search/check.h"
#include "search/policy.h"
#include "support/deepstack.h"

typedef struct {
    const ef_program *from, *to;
    const ef_search_options *options;
    ef_arena *arena;
    ef_derivation *out;
    ef_diag *diag;
    ef_search *search;
    ef_id *found; /* the outputs of `to` */
    bool fine;
} derivation;

/* Whether each output of `to` stands in the class of its counterpart; finds those that are there. */
static bool outputs_meet(derivation *d)
{
    ef_egraph *graph = d->search->graph;
    bool all = true;
    for (uint32_t i = 0; i < d->to->outputs; i++) {
        d->found[i] = ef_egraph_find_expr(graph, d->to->dag, d->to->output[i].expr);
        all = all && d->found[i] != EF_NONE && ef_find(graph, d->found[i]) == ef_find(graph, d->search->output[i]);
    }
    return all;
}

/* Adds what is missing of `to`, as outputs like the others, and saturates on. */
static bool saturate_with(derivation *d)
{
    for (uint32_t i = 0; i < d->to->outputs; i++) {
        d->found[i] = ef_egraph_add_expr(d->search->graph, d->to->dag, d->to->output[i].expr);
        if (d->found[i] == EF_NONE)
            return ef_fail(d->diag, "output %s cannot be represented", d->to->output[i].name);
        ef_vec_push(&d->search->policy->outputs, d->found[i]);
    }
    return ef_search_saturate(d->search, d->diag);
}

static const char *expression(ef_arena *arena, const ef_dag *dag, ef_expr e)
{
    ef_strbuf text = {0};
    ef_expr_print(dag, e, &text);
    const char *copy = ef_arena_strndup(arena, text.text, text.length);
    ef_strbuf_free(&text);
    return copy;
}

static ef_equation equation(const derivation *d, const char *output, const ef_proof *proof, uint32_t i)
{
    const ef_ruleset *rules = d->search->rules;
    const ef_proof_step *step = &proof->step[i];
    const char *rule = ef_proof_rule_name(rules->rules.at, rules->rules.count, step->rule);
    return (ef_equation){ef_arena_strndup(d->arena, output, strlen(output)),
                         ef_arena_strndup(d->arena, rule, strlen(rule)), expression(d->arena, proof->dag, step->before),
                         expression(d->arena, proof->dag, step->after)};
}

/* Proves and checks each output; the equations of all of them stand in one array. */
static bool prove(derivation *d)
{
    EF_VEC(ef_equation) list = {0};
    const ef_ruleset *rules = d->search->rules;
    bool fine = true;
    for (uint32_t i = 0; i < d->from->outputs && fine; i++) {
        const ef_named *from = &d->from->output[i], *to = &d->to->output[i];
        ef_proof *proof = ef_explain_exprs(d->search->graph, rules->rules.at, rules->rules.count, d->from->dag,
                                           from->expr, d->to->dag, to->expr, d->diag);
        for (uint32_t k = 0; proof && k < proof->steps; k++)
            ef_vec_push(&list, equation(d, from->name, proof, k));
        fine = proof && ef_proof_check(proof, rules, d->diag);
        ef_proof_free(proof);
    }
    ef_equation *kept = ef_arena_alloc(d->arena, list.count * sizeof *kept);
    if (list.count)
        memcpy(kept, list.at, list.count * sizeof *kept);
    d->out->checked = fine;
    d->out->equations = list.count;
    d->out->equation = kept;
    ef_vec_free(&list);
    return fine;
}

/* Where the search left off without the two being equal: what that says. */
static bool not_equal(const derivation *d)
{
    const char *from = d->from->name, *to = d->to->name;
    if (d->out->saturated)
        return ef_fail(d->diag, "%.100s and %.100s are not equal under the rules: the search was complete", from, to);
    return ef_fail(d->diag, "%.100s and %.100s were not found equal: the search stopped at its %s", from, to,
                   d->out->stop);
}

static bool derive(derivation *d)
{
    ef_derivation *out = d->out;
    /* Programs that are one as they stand need no search. */
    if (!outputs_meet(d) && !ef_search_saturate(d->search, d->diag))
        return false;
    out->contained = out->equal = outputs_meet(d);
    if (!out->contained) {
        if (!saturate_with(d))
            return false;
        out->equal = outputs_meet(d);
    }
    ef_stop stop = d->search->stats ? d->search->stats->stop : EF_STOP_SATURATED;
    out->stop = ef_stop_names[stop];
    out->saturated = stop == EF_STOP_SATURATED;
    return out->equal ? prove(d) : not_equal(d);
}

static void derive_deep(void *user)
{
    derivation *d = user;
    d->search = ef_search_new(d->from, d->options, d->diag);
    d->found = ef_xcalloc(d->to->outputs, sizeof *d->found);
    d->fine = d->search && derive(d);
    free(d->found);
    ef_search_free(d->search);
}

bool ef_derive(const ef_program *from, const ef_program *to, const ef_search_options *options, ef_arena *arena,
               ef_derivation *out, ef_diag *diag)
{
    derivation d = {.from = from, .to = to, .options = options, .arena = arena, .out = out, .diag = diag};
    *out = (ef_derivation){0};
    ef_with_deep_stack(derive_deep, &d);
    return d.fine;
}
