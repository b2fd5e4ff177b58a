/* Derivations: see derive.h. */
#include "search/derive.h"

#include <stdlib.h>
#include <string.h>

#include "egraph/explain.h"
#include "search/check.h"
#include "search/partition.h"
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
    if (!ef_search_saturate(d->search, d->diag))
        return false;
    out->contained = out->equal = outputs_meet(d);
    if (!out->contained) {
        ef_search_bring_back(d->search); /* it may be what the search would not make */
        if (!saturate_with(d))
            return false;
        out->equal = outputs_meet(d);
    }
    ef_stop stop = d->search->stats ? d->search->stats->stop : EF_STOP_SATURATED;
    out->stop = ef_stop_names[stop];
    out->saturated = stop == EF_STOP_SATURATED;
    return out->equal ? prove(d) : not_equal(d);
}

/* ---- programs that were put together from parts ---- */

typedef struct {
    derivation *whole;
    const ef_partitions *set;
    ef_expr *match; /* by expression of the first program: the one of the second that computes it; EF_NONE: unknown */
    EF_VEC(ef_equation) list;
    double end; /* of the time limit */
} by_parts;

/* Copies into `into` what of the second program can be said in the inputs of a part; by expression of the second
 * program, EF_NONE for the rest. */
static ef_expr *say_in_part(const by_parts *b, const ef_part *part, ef_dag *into)
{
    const ef_dag *to = b->whole->to->dag;
    uint32_t count = ef_dag_count(to);
    ef_expr *said = ef_xcalloc(count + 1, sizeof *said);
    for (ef_expr e = 0; e < count; e++) {
        const ef_expr *child;
        ef_expr mapped[EF_MAX_CHILDREN];
        unsigned n = ef_dag_children(to, e, &child);
        said[e] = EF_NONE;
        for (uint32_t i = 0; i < part->program->inputs && said[e] == EF_NONE; i++)
            if (b->match[part->input[i]] == e)
                said[e] = ef_dag_input(into, part->program->input[i]);
        bool whole = said[e] == EF_NONE && ef_dag_op(to, e) != EF_INPUT;
        for (unsigned i = 0; i < n && whole; i++)
            whole = (mapped[i] = said[child[i]]) != EF_NONE;
        if (whole)
            said[e] = ef_dag_add_exact(into, ef_dag_op(to, e), ef_dag_attr(to, e), mapped, n, NULL);
    }
    return said;
}

/* The expression of the second program that stands in the class of a part's output; its copy is *copy. */
static ef_expr find_output(const by_parts *b, const ef_search *search, const ef_part *part, uint32_t output,
                           const ef_dag *dag, const ef_expr *said, ef_expr *copy)
{
    const ef_dag *to = b->whole->to->dag;
    ef_type type = ef_dag_type(b->whole->from->dag, part->output[output]);
    for (ef_expr e = ef_dag_count(to); e-- > 0;) {
        if (said[e] == EF_NONE || ef_dag_type(to, e) != type)
            continue;
        ef_id found = ef_egraph_find_expr(search->graph, dag, said[e]);
        if (found == EF_NONE || ef_find(search->graph, found) != ef_find(search->graph, search->output[output]))
            continue;
        *copy = said[e];
        return e;
    }
    return EF_NONE;
}

/* Proves that a part equals what the second program has in its place. */
static bool derive_part(by_parts *b, const ef_part *part)
{
    derivation *whole = b->whole;
    ef_search_options options = *whole->options;
    ef_derivation proof = {0};
    uint32_t outputs = part->program->outputs;
    options.time_limit = b->end - ef_seconds();
    if (options.time_limit <= 0)
        return false;
    ef_search *search = ef_search_new(part->program, &options, NULL);
    bool fine = search && ef_search_saturate(search, NULL);
    ef_dag *dag = ef_dag_new(ef_dag_ctx(whole->from->dag));
    ef_expr *said = say_in_part(b, part, dag);
    ef_named *output = ef_xcalloc(outputs + 1, sizeof *output);
    for (uint32_t i = 0; i < outputs && fine; i++) {
        output[i].name = part->program->output[i].name;
        b->match[part->output[i]] = find_output(b, search, part, i, dag, said, &output[i].expr);
        fine = b->match[part->output[i]] != EF_NONE;
    }
    ef_program to = {.dag = dag, .name = part->program->name, .outputs = outputs, .output = output};
    derivation d = {part->program, &to, &options, whole->arena, &proof, NULL, search, NULL, false};
    fine = fine && prove(&d);
    for (uint32_t i = 0; i < proof.equations && fine; i++)
        ef_vec_push(&b->list, proof.equation[i]);
    free(output);
    free(said);
    ef_dag_free(dag);
    ef_search_free(search);
    return fine;
}

/* Looks for one partition all of whose parts stand in the second program, one after the other. What a part computes
 * is known by its class in that part's e-graph, so nothing has to be told of how the program was put together. */
static bool derive_partition(by_parts *b, const ef_partition *partition)
{
    const ef_program *from = b->whole->from, *to = b->whole->to;
    uint32_t count = ef_dag_count(from->dag);
    b->list.count = 0;
    for (ef_expr e = 0; e < count; e++) {
        b->match[e] = EF_NONE;
        for (ef_expr t = 0; t < ef_dag_count(to->dag) && ef_dag_op(from->dag, e) == EF_INPUT; t++)
            if (ef_dag_op(to->dag, t) == EF_INPUT && ef_dag_attr(to->dag, t) == ef_dag_attr(from->dag, e))
                b->match[e] = t;
    }
    bool fine = true;
    for (uint32_t i = 0; i < partition->parts && fine; i++)
        fine = derive_part(b, &b->set->part.at[partition->part[i]]);
    for (uint32_t i = 0; i < from->outputs && fine; i++)
        fine = b->match[from->output[i].expr] == to->output[i].expr;
    return fine;
}

static bool derive_by_parts(derivation *d)
{
    ef_partitions *set = ef_partition_program(d->from, NULL);
    by_parts b = {
        .whole = d, .set = set, .end = ef_seconds() + (d->options->time_limit > 0 ? d->options->time_limit : 600)};
    b.match = ef_xcalloc(ef_dag_count(d->from->dag) + 1, sizeof *b.match);
    bool found = false;
    for (uint32_t p = set->list.count; p-- > 0 && !found;) /* small parts first: they are searched in no time */
        found = set->list.at[p].parts > 1 && derive_partition(&b, &set->list.at[p]);
    if (found) {
        ef_equation *kept = ef_arena_alloc(d->arena, (b.list.count + 1) * sizeof *kept);
        if (b.list.count)
            memcpy(kept, b.list.at, b.list.count * sizeof *kept);
        *d->out = (ef_derivation){.contained = true, .equal = true, .saturated = true, .checked = true};
        d->out->stop = ef_stop_names[EF_STOP_SATURATED];
        d->out->equations = b.list.count;
        d->out->equation = kept;
    }
    ef_vec_free(&b.list);
    free(b.match);
    ef_partitions_free(set);
    return found;
}

/* Programs that are one as they stand need no search. */
static bool is_the_same(derivation *d)
{
    if (!outputs_meet(d))
        return false;
    *d->out =
        (ef_derivation){.contained = true, .equal = true, .saturated = true, .stop = ef_stop_names[EF_STOP_SATURATED]};
    return prove(d);
}

static void derive_deep(void *user)
{
    derivation *d = user;
    d->search = ef_search_new(d->from, d->options, d->diag);
    d->found = ef_xcalloc(d->to->outputs, sizeof *d->found);
    d->fine = d->search && (is_the_same(d) || derive_by_parts(d) || derive(d));
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
