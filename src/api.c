/* The public interface (include/equiforge.h): handles over the internal types, results copied into plain structures.
 *
 * Each result lives in an arena of its handle that the next such call replaces. */
#include "api.h"

#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

#include "codegen/emit.h"
#include "codegen/torch.h"
#include "codegen/trial.h"
#include "ir/expr.h"
#include "rules/language.h"
#include "rules/ruletest.h"
#include "search/extract.h"
#include "search/saturate.h"
#include "support/arena.h"
#include "support/deepstack.h"
#include "support/processors.h"
#include "support/vec.h"
#include "target/target.h"
#include "tune/gather.h"

const char *equiforge_version(void)
{
    return EQUIFORGE_VERSION;
}

/* ---- sessions ---- */

equiforge_session *equiforge_session_new(void)
{
    equiforge_session *session = ef_xcalloc(1, sizeof *session);
    session->ctx = ef_ctx_new();
    return session;
}

void equiforge_session_free(equiforge_session *session)
{
    if (!session)
        return;
    ef_vec_free(&session->rules);
    ef_ruleset_free(session->builtin);
    ef_ruleset_free(session->scalar);
    ef_arena_free(session->report);
    ef_arena_free(session->inspection);
    ef_arena_free(session->optimum);
    ef_arena_free(session->python);
    ef_ctx_free(session->ctx);
    free(session);
}

const char *equiforge_message(const equiforge_session *session)
{
    return session->diag.text;
}

ef_diag *ef_api_diag(equiforge_session *session)
{
    session->diag = (ef_diag){0};
    return &session->diag;
}

ef_arena *ef_api_arena(ef_arena **arena)
{
    ef_arena_free(*arena);
    return *arena = ef_arena_new();
}

/* The builder's text, which it frees, as a string of the arena. */
static const char *take_text(ef_arena *arena, ef_strbuf *text)
{
    const char *copy = ef_arena_strndup(arena, text->text ? text->text : "", text->length);
    ef_strbuf_free(text);
    return copy;
}

/* ---- programs ---- */

static bool ends_with(const char *text, const char *end)
{
    size_t length = strlen(text), end_length = strlen(end);
    return length >= end_length && strcmp(text + length - end_length, end) == 0;
}

/* A module whose whole work is one region is that region's program. */
static ef_program *only_region(const ef_module *module, const char *path, ef_diag *diag)
{
    if (module->steps == 1 && module->regions == 1)
        return module->step[0].program;
    ef_fail(diag, "%.300s: %u regions and %u external calls: only optimize and inspect take such a module", path,
            module->regions, module->steps - module->regions);
    return NULL;
}

equiforge_status equiforge_open(equiforge_session *session, const char *path, equiforge_program **program)
{
    ef_diag *diag = ef_api_diag(session);
    bool archive = ef_module_is_archive(path);
    *program = NULL;
    if (!archive && !ends_with(path, ".ef")) {
        ef_fail(diag, "%.300s: neither a program in text form (.ef) nor an exported module (.pt2)", path);
        return EQUIFORGE_BAD_INPUT;
    }
    ef_module *module = archive ? ef_module_read(path, diag) : NULL;
    ef_program *ir = !archive ? ef_program_read(session->ctx, path, diag) : NULL;
    if (module)
        ir = only_region(module, path, diag);
    if (!ir) {
        ef_module_free(module);
        return EQUIFORGE_BAD_INPUT;
    }
    *program = ef_xcalloc(1, sizeof **program);
    (*program)->session = session;
    (*program)->ir = ir;
    (*program)->module = module;
    return EQUIFORGE_OK;
}

void equiforge_close(equiforge_program *program)
{
    if (!program)
        return;
    ef_arena_free(program->inspection);
    ef_arena_free(program->torch);
    ef_arena_free(program->search);
    ef_arena_free(program->explanation);
    ef_arena_free(program->run);
    if (program->module)
        ef_module_free(program->module);
    else
        ef_program_free(program->ir);
    free(program);
}

static equiforge_tensor describe(ef_ctx *ctx, ef_arena *arena, const char *name, ef_type type)
{
    const ef_type_info *info = ef_type_at(ctx, type);
    ef_strbuf text = {0};
    ef_type_print(ctx, type, &text);
    equiforge_tensor tensor = {
        .name = ef_arena_strndup(arena, name, strlen(name)), .type = take_text(arena, &text), .dtype = "tuple"};
    if (info->is_tuple)
        return tensor;
    const char **dim = ef_arena_alloc(arena, info->rank * sizeof *dim);
    uint64_t *size = ef_arena_alloc(arena, info->rank * sizeof *size);
    for (unsigned i = 0; i < info->rank; i++) {
        ef_dim d = info->dim[info->rank - 1u - i]; /* inside, the last dimension comes first */
        ef_dim_print(ctx, d, &text);
        dim[i] = take_text(arena, &text);
        size[i] = ef_dim_extent(ctx, d);
    }
    tensor.dtype = ef_dtype_names[info->dtype];
    tensor.rank = info->rank;
    tensor.dim = dim;
    tensor.size = size;
    return tensor;
}

/* Marks what the outputs need. Children have smaller numbers than their parents. */
static uint8_t *needed_by_outputs(const ef_program *ir)
{
    uint32_t count = ef_dag_count(ir->dag);
    uint8_t *needed = ef_xcalloc(count, 1);
    const ef_expr *child;
    for (uint32_t i = 0; i < ir->outputs; i++)
        needed[ir->output[i].expr] = 1;
    for (ef_expr e = count; e-- > 0;)
        for (unsigned i = 0, n = needed[e] ? ef_dag_children(ir->dag, e, &child) : 0; i < n; i++)
            needed[child[i]] = 1;
    return needed;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const equiforge_operator *)a)->name, ((const equiforge_operator *)b)->name);
}

static size_t count_operators(const ef_program *ir, equiforge_operator out[EF_OP_COUNT])
{
    uint32_t uses[EF_OP_COUNT] = {0};
    uint8_t *needed = needed_by_outputs(ir);
    size_t count = 0;
    for (ef_expr e = 0; e < ef_dag_count(ir->dag); e++)
        uses[ef_dag_op(ir->dag, e)] += needed[e];
    free(needed);
    for (int op = 0; op < EF_OP_COUNT; op++)
        if (uses[op] && op != EF_INPUT && op != EF_CONST)
            out[count++] = (equiforge_operator){ef_ops[op].name, uses[op]};
    qsort(out, count, sizeof *out, by_name);
    return count;
}

void ef_api_inspect(const ef_program *ir, ef_arena *arena, equiforge_inspection *inspection)
{
    ef_ctx *ctx = ef_dag_ctx(ir->dag);
    equiforge_tensor *inputs = ef_arena_alloc(arena, ir->inputs * sizeof *inputs);
    equiforge_tensor *outputs = ef_arena_alloc(arena, ir->outputs * sizeof *outputs);
    equiforge_operator *operators = ef_arena_alloc(arena, EF_OP_COUNT * sizeof *operators);
    for (uint32_t i = 0; i < ir->inputs; i++)
        inputs[i] = describe(ctx, arena, ef_input_name(ctx, ir->input[i]), ef_input_type(ctx, ir->input[i]));
    for (uint32_t i = 0; i < ir->outputs; i++)
        outputs[i] = describe(ctx, arena, ir->output[i].name, ef_dag_type(ir->dag, ir->output[i].expr));
    ef_strbuf text = {0};
    ef_program_print(ir, &text);
    *inspection = (equiforge_inspection){
        .text = take_text(arena, &text),
        .name = ef_arena_strndup(arena, ir->name, strlen(ir->name)),
        .inputs = ir->inputs,
        .outputs = ir->outputs,
        .operators = count_operators(ir, operators),
        .input = inputs,
        .output = outputs,
        .op = operators,
    };
}

equiforge_status equiforge_inspect(equiforge_program *program, equiforge_inspection *inspection)
{
    ef_api_diag(program->session);
    ef_api_inspect(program->ir, ef_api_arena(&program->inspection), inspection);
    return EQUIFORGE_OK;
}

const char *equiforge_torch(equiforge_program *program)
{
    ef_strbuf text = {0};
    bool fine = ef_codegen_torch(program->ir, program->ir->name, &text, ef_api_diag(program->session));
    const char *source = take_text(ef_api_arena(&program->torch), &text);
    return fine ? source : NULL;
}

/* ---- rules ---- */

static void list_rules(equiforge_session *session, const ef_ruleset *set)
{
    for (uint32_t i = 0; i < set->rules.count; i++) {
        const ef_rule *rule = &set->rules.at[i];
        ef_vec_push(&session->rules, ((equiforge_rule){rule->name, rule->group, rule->text}));
    }
}

size_t equiforge_rules(equiforge_session *session, const equiforge_rule **rules)
{
    if (!session->builtin) {
        session->builtin = ef_rules_builtin();
        session->scalar = ef_rules_scalar();
        list_rules(session, session->builtin);
        list_rules(session, session->scalar);
    }
    *rules = session->rules.at;
    return session->rules.count;
}

typedef struct {
    ef_arena *arena;
    EF_VEC(equiforge_rule_failure) failures;
} check_report;

static void note_failure(void *user, const ef_rule *rule, const char *failure, unsigned instances)
{
    check_report *report = user;
    (void)instances;
    if (!failure)
        return;
    size_t length = strlen(failure);
    while (length && failure[length - 1] == '\n')
        length--;
    const char *name = ef_arena_strndup(report->arena, rule->name, strlen(rule->name));
    const char *reason = ef_arena_strndup(report->arena, failure, length);
    ef_vec_push(&report->failures, ((equiforge_rule_failure){name, reason}));
}

equiforge_status equiforge_rules_check(equiforge_session *session, uint32_t instances, uint64_t seed,
                                       equiforge_rules_report *report)
{
    check_report found = {.arena = ef_api_arena(&session->report)};
    const equiforge_rule *listed;
    ef_diag *diag = ef_api_diag(session);
    equiforge_rules(session, &listed); /* loads both sets */
    const ef_ruleset *sets[] = {session->builtin, session->scalar};
    *report = (equiforge_rules_report){0};
    for (int i = 0; i < 2; i++) {
        ef_rulecheck checked = {0};
        ef_rules_check(sets[i], instances ? instances : EF_RULES_INSTANCES, seed, &checked, note_failure, &found);
        report->rules += checked.rules;
        report->instances += checked.instances;
    }
    report->failures = found.failures.count;
    equiforge_rule_failure *kept = ef_arena_alloc(found.arena, report->failures * sizeof *kept);
    if (report->failures)
        memcpy(kept, found.failures.at, report->failures * sizeof *kept);
    report->failure = kept;
    ef_vec_free(&found.failures);
    if (report->failures)
        ef_fail(diag, "%zu of %u rules failed", report->failures, report->rules);
    return report->failures ? EQUIFORGE_FAILED : EQUIFORGE_OK;
}

/* ---- search ---- */

ef_search_options ef_api_options(const equiforge_limits *limits)
{
    ef_search_options options = {0};
    if (limits) {
        options.time_limit = limits->time_limit;
        options.node_limit = limits->node_limit;
    }
    return options;
}

/* The fields that are not plain numbers come from the caller, who may not write C. */
static bool limits_fine(const equiforge_limits *limits, ef_diag *diag)
{
    if (limits && (unsigned)limits->compaction > EQUIFORGE_COMPACT_NONE)
        return ef_fail(diag, "there is no compaction %u", (unsigned)limits->compaction);
    return true;
}

static double peak_mb(void)
{
    struct rusage usage;
    return getrusage(RUSAGE_SELF, &usage) == 0 ? (double)usage.ru_maxrss / 1024 : 0; /* Linux counts in KiB */
}

static void report_search(equiforge_program *program, const ef_search *search, equiforge_search_result *result)
{
    ef_arena *arena = ef_api_arena(&program->search);
    const ef_run_stats *stats = search->stats;
    const ef_ruleset *set = search->rules;
    equiforge_rule_use *use = ef_arena_alloc(arena, set->rules.count * sizeof *use);
    for (uint32_t i = 0; i < set->rules.count; i++) {
        const ef_rule_stats *rule = &stats->rule[i];
        const char *name = set->rules.at[i].name;
        use[i] = (equiforge_rule_use){ef_arena_strndup(arena, name, strlen(name)), rule->matches, rule->merges,
                                      rule->refused, rule->seconds};
    }
    *result = (equiforge_search_result){
        .enodes = search->graph->live,
        .eclasses = search->graph->classes,
        .iterations = stats->iterations,
        .saturated = stats->stop == EF_STOP_SATURATED,
        .stop = ef_stop_names[stats->stop],
        .saturation_s = stats->seconds,
        .peak_mb = peak_mb(),
        .rules = set->rules.count,
        .rule = use,
    };
}

static const char *candidate_text(const ef_program *program, ef_dag *dag, const ef_expr *outputs, ef_arena *arena)
{
    ef_strbuf text = {0};
    ef_program_print_form(program, dag, outputs, &text);
    const char *copy = ef_arena_strndup(arena, text.text, text.length);
    ef_strbuf_free(&text);
    return copy;
}

static void for_target(ef_extract_options *options, const ef_target *target)
{
    options->rates = ef_target_rates(target);
    options->room = ef_target_room(target);
}

static void extract(equiforge_program *program, ef_search *search, const equiforge_limits *limits,
                    equiforge_search_result *result)
{
    static const ef_compaction modes[] = {EF_COMPACT_EARLY, EF_COMPACT_AFTER, EF_COMPACT_NONE};
    ef_extract_options options = {.time_limit = 4};
    if (limits) {
        options.compaction = modes[limits->compaction];
        options.keep = limits->keep;
        if (limits->extract_limit > 0)
            options.time_limit = limits->extract_limit;
        if (limits->target && ef_target_named(limits->target))
            for_target(&options, ef_target_named(limits->target));
    } else {
        options.compaction = EF_COMPACT_EARLY;
    }
    ef_extraction *extraction = ef_extract(search, &options);
    equiforge_candidate *kept = ef_arena_alloc(program->search, extraction->candidate.count * sizeof *kept);
    for (uint32_t i = 0; i < extraction->candidate.count; i++)
        kept[i] = (equiforge_candidate){
            extraction->candidate.at[i].cost,
            candidate_text(program->ir, extraction->dag, extraction->candidate.at[i].output, program->search)};
    result->expanded = extraction->expanded;
    result->candidates = extraction->candidates;
    result->complete = extraction->complete;
    result->extraction_s = extraction->seconds;
    result->kept = extraction->candidate.count;
    result->candidate = kept;
    ef_extraction_free(extraction);
}

typedef struct {
    equiforge_program *program;
    const equiforge_limits *limits;
    equiforge_search_result *result;
    ef_diag *diag;
    bool fine;
} search_call;

/* ---- by parts ---- */

#define PARTS_S 60.0 /* as optimising within five minutes does */

/* The searches of parts, and their sums. */
static void report_parts(const ef_gathered *g, ef_arena *arena, equiforge_search_result *r)
{
    equiforge_part *part = ef_arena_alloc(arena, (g->searches.count + 1) * sizeof *part);
    r->saturated = r->complete = g->searches.count > 0;
    r->stop = ef_stop_names[EF_STOP_SATURATED];
    for (uint32_t i = 0; i < g->searches.count; i++) {
        const ef_gathered_search *s = &g->searches.at[i];
        part[i] =
            (equiforge_part){s->heavy,        s->enodes,   ef_stop_names[s->stop], s->estimate_us, s->saturation_s,
                             s->extraction_s, s->expanded, s->candidates,          s->complete,    s->original};
        r->enodes += s->enodes;
        r->eclasses += s->eclasses;
        r->iterations += s->iterations;
        r->saturation_s += s->saturation_s;
        r->extraction_s += s->extraction_s;
        r->expanded += s->expanded;
        r->candidates += s->candidates;
        r->complete = r->complete && s->complete;
        if (r->saturated && s->stop != EF_STOP_SATURATED)
            r->stop = ef_stop_names[s->stop];
        r->saturated = r->saturated && s->stop == EF_STOP_SATURATED;
    }
    r->parts = g->searches.count;
    r->part = part;
    r->at_once = g->threads;
    r->search_s = g->seconds;
}

static void report_partitions(const ef_gathered *g, ef_arena *arena, equiforge_search_result *r)
{
    equiforge_partition *list = ef_arena_alloc(arena, (g->partitions.count + 1) * sizeof *list);
    for (uint32_t i = 0; i < g->partitions.count; i++) {
        const ef_gathered_partition *p = &g->partitions.at[i];
        uint32_t *part = ef_arena_alloc(arena, (p->parts + 1) * sizeof *part);
        memcpy(part, p->search, p->parts * sizeof *part);
        list[i] = (equiforge_partition){p->limit,    p->parts,        part,     p->estimate_us,
                                        p->combined, p->combinations, p->built, p->composed};
    }
    r->partitions = g->partitions.count;
    r->partition = list;
}

static void search_parts(search_call *call)
{
    const equiforge_limits *limits = call->limits;
    const ef_target *target = limits->target ? ef_target_named(limits->target) : NULL;
    ef_gather_options options = {.saturation_s = limits->time_limit > 0 ? limits->time_limit : PARTS_S,
                                 .extraction_s = limits->extract_limit > 0 ? limits->extract_limit : PARTS_S,
                                 .keep = limits->keep ? limits->keep : 64,
                                 .node_limit = limits->node_limit};
    if (target) {
        options.rates = ef_target_rates(target);
        options.room = ef_target_room(target);
    }
    ef_arena *arena = call->program->search = ef_arena_new();
    equiforge_search_result *r = call->result;
    ef_gathered *g = ef_gather(call->program->ir, &options, call->diag);
    call->fine = !call->diag->failed;
    report_parts(g, arena, r);
    report_partitions(g, arena, r);
    equiforge_candidate *kept = ef_arena_alloc(arena, (g->list.count + 1) * sizeof *kept);
    for (; r->kept < g->list.count && r->kept < limits->keep; r->kept++) {
        const ef_gathered_candidate *c = &g->list.at[r->kept];
        kept[r->kept] = (equiforge_candidate){c->cost, candidate_text(call->program->ir, c->dag, c->output, arena)};
    }
    r->candidate = kept;
    ef_gathered_free(g);
}

static void search_deep(void *user)
{
    search_call *call = user;
    if (call->limits && call->limits->parts) {
        search_parts(call);
        call->result->peak_mb = peak_mb();
        return;
    }
    ef_search_options options = ef_api_options(call->limits);
    ef_search *search = ef_search_new(call->program->ir, &options, call->diag);
    if (!search)
        return;
    call->fine = ef_search_saturate(search, call->diag);
    report_search(call->program, search, call->result);
    if (call->fine)
        extract(call->program, search, call->limits, call->result);
    call->result->peak_mb = peak_mb();
    ef_search_free(search);
}

equiforge_status equiforge_search(equiforge_program *program, const equiforge_limits *limits,
                                  equiforge_search_result *result)
{
    search_call call = {program, limits, result, ef_api_diag(program->session), false};
    *result = (equiforge_search_result){0};
    if (!limits_fine(limits, call.diag))
        return EQUIFORGE_BAD_INPUT;
    ef_with_deep_stack(search_deep, &call);
    return call.fine ? EQUIFORGE_OK : EQUIFORGE_FAILED;
}

/* ---- explanations ---- */

static bool comparable(const equiforge_program *from, const equiforge_program *to, ef_diag *diag)
{
    const ef_program *a = from->ir, *b = to->ir;
    if (from->session != to->session)
        return ef_fail(diag, "the programs belong to different sessions");
    if (ef_dag_ctx(a->dag) != ef_dag_ctx(b->dag))
        return ef_fail(diag,
                       "exported modules do not share dimensions: compare programs in text form (inspect --text)");
    if (a->outputs != b->outputs)
        return ef_fail(diag, "%s has %u outputs and %s has %u: only programs with the same outputs can be compared",
                       a->name, a->outputs, b->name, b->outputs);
    for (uint32_t i = 0; i < a->outputs; i++) {
        ef_type left = ef_dag_type(a->dag, a->output[i].expr), right = ef_dag_type(b->dag, b->output[i].expr);
        if (left == right)
            continue;
        ef_strbuf text = {0};
        ef_strbuf_printf(&text, "output %s of %s is ", a->output[i].name, a->name);
        ef_type_print(ef_dag_ctx(a->dag), left, &text);
        ef_strbuf_printf(&text, " and output %s of %s is ", b->output[i].name, b->name);
        ef_type_print(ef_dag_ctx(a->dag), right, &text);
        ef_fail(diag, "%s: the types must be the same", text.text);
        ef_strbuf_free(&text);
        return false;
    }
    return true;
}

void ef_api_explanation(const ef_derivation *d, ef_arena *arena, equiforge_explanation *e)
{
    equiforge_step *step = ef_arena_alloc(arena, d->equations * sizeof *step);
    for (uint32_t i = 0; i < d->equations; i++) {
        const ef_equation *from = &d->equation[i];
        step[i] = (equiforge_step){from->output, from->rule, from->before, from->after};
    }
    *e = (equiforge_explanation){
        .contained = d->contained,
        .equal = d->equal,
        .saturated = d->saturated,
        .stop = d->stop,
        .checked = d->checked,
        .steps = d->equations,
        .step = step,
    };
}

equiforge_status equiforge_explain(equiforge_program *from, equiforge_program *to, const equiforge_limits *limits,
                                   equiforge_explanation *explanation)
{
    ef_diag *diag = ef_api_diag(from->session);
    *explanation = (equiforge_explanation){0};
    if (!limits_fine(limits, diag) || !comparable(from, to, diag))
        return EQUIFORGE_BAD_INPUT;
    ef_search_options options = ef_api_options(limits);
    ef_derivation derivation;
    ef_arena *arena = ef_api_arena(&from->explanation);
    bool fine = ef_derive(from->ir, to->ir, &options, arena, &derivation, diag);
    ef_api_explanation(&derivation, arena, explanation);
    return fine ? EQUIFORGE_OK : EQUIFORGE_FAILED;
}

/* ---- running ---- */

void equiforge_bind_threads(uint32_t threads)
{
    ef_bind_threads(threads ? threads : ef_processors());
}

equiforge_status equiforge_run(equiforge_program *program, const equiforge_run_options *options,
                               equiforge_run_result *result)
{
    ef_diag *diag = ef_api_diag(program->session);
    ef_trial_options wanted = {.dims = options->dims,
                               .tiles = options->tiles,
                               .repeat = options->repeat,
                               .threads = options->threads,
                               .seed = options->seed,
                               .check = options->check};
    ef_trial_result trial;
    ef_trial_status status = ef_trial(program->ir, &wanted, &trial, diag);
    *result = (equiforge_run_result){.us = trial.us,
                                     .rel_l2 = trial.rel_l2,
                                     .inputs = ef_draw_names[trial.draw],
                                     .kernels = trial.kernels,
                                     .source = take_text(ef_api_arena(&program->run), &trial.source)};
    return status == EF_TRIAL_FINE ? EQUIFORGE_OK : status == EF_TRIAL_FAILED ? EQUIFORGE_FAILED : EQUIFORGE_BAD_INPUT;
}

/* ---- code ---- */

equiforge_status equiforge_emit(equiforge_program *program, const equiforge_emit_options *options, const char **source)
{
    static const char *const languages[EF_BACKEND_COUNT] = {[EF_BACKEND_C] = "c", [EF_BACKEND_TRITON] = "triton"};
    ef_diag *diag = ef_api_diag(program->session);
    ef_emit_options wanted = {.name = options->name, .dims = options->dims, .schedule = options->schedule};
    ef_strbuf text = {0};
    bool bad = true, fine = false;
    while (wanted.backend < EF_BACKEND_COUNT && strcmp(options->language, languages[wanted.backend]) != 0)
        wanted.backend++;
    if (wanted.backend == EF_BACKEND_COUNT)
        ef_fail(diag, "there is no language '%.40s': triton or c", options->language);
    else
        fine = ef_emit(program->ir, &wanted, &text, &bad, diag);
    *source = take_text(ef_api_arena(&program->run), &text);
    return fine ? EQUIFORGE_OK : bad ? EQUIFORGE_BAD_INPUT : EQUIFORGE_FAILED;
}
