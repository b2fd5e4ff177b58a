/* The public interface to optimising (include/equiforge.h): one file, one device, one store. */
#include <stdio.h>
#include <string.h>

#include "api.h"
#include "support/deepstack.h"
#include "support/file.h"
#include "tune/module.h"
#include "tune/worker.h"

typedef struct {
    const char *path;
    const ef_device *device;
    ef_store *store;
    const equiforge_optimize_options *options;
    ef_module_summary summary;
    ef_plan *plan;
    ef_diag *diag;
    const atomic_int *ending;
    equiforge_status status;
} optimize_call;

static bool pass_progress(void *user, const ef_progress *p)
{
    const optimize_call *call = user;
    equiforge_progress progress = {
        .stage = ef_stage_names[p->stage],
        .families = p->families,
        .left = p->left,
        .measured = p->measured,
        .failed = p->failed,
        .best_us = p->best_us,
        .original_us = p->original_us,
        .floor_us = p->floor_us,
        .elapsed_s = p->elapsed_s,
        .left_s = p->left_s,
    };
    return call->options->progress(call->options->user, &progress);
}

/* Reading, searching and printing follow chains of operators as deep as they are. */
/* Before the work begins: whether a plan, and a file, can hold what surrounds the regions. */
static bool can_be_kept(const optimize_call *call, const ef_module *module)
{
    ef_diag reason = {0};
    for (uint32_t i = 0; i < module->values; i++)
        if (!module->value[i].torch_dtype[0])
            return ef_fail(
                call->diag,
                "%.300s: '%.80s' is a number that only the data decide (of .item(), or a size); such numbers "
                "cannot be kept, only tensors",
                call->path, module->value[i].name);
    ef_plan *plan = ef_plan_new(module, call->device->name);
    bool fine = ef_plan_check_module(plan, &reason);
    ef_plan_free(plan);
    return fine || ef_fail(call->diag, "%.300s: %.600s", call->path, reason.text);
}

static void optimize_deep(void *user)
{
    optimize_call *call = user;
    ef_interrupt_set((ef_interrupt){.flag = call->ending, .from = EF_ABANDON});
    ef_optimize_options options = {.budget_s = call->options->budget_s,
                                   .seed = call->options->seed,
                                   .limit = call->options->limit,
                                   .unmeasured = call->options->unmeasured,
                                   .progress = call->options->progress ? pass_progress : NULL,
                                   .user = call};
    ef_module *module = ef_module_read(call->path, call->diag);
    call->status = EQUIFORGE_BAD_INPUT;
    if (!module || !can_be_kept(call, module)) {
        ef_module_free(module);
        return;
    }
    call->plan = ef_optimize_module(module, call->device, call->store, &options, &call->summary, call->diag);
    bool fine = call->plan && (!call->options->output || ef_plan_write(call->plan, call->options->output, call->diag));
    call->status = fine ? EQUIFORGE_OK : EQUIFORGE_FAILED;
    ef_module_free(module);
}

static const char *keep(ef_arena *arena, const char *text)
{
    return ef_arena_strndup(arena, text, strlen(text));
}

/* Who measured or, where there was nothing to measure, who would have. */
static const char *device_of(const optimize_call *call, ef_arena *arena)
{
    char identity[600];
    ef_diag unknown = {0};
    if (call->plan->regions)
        return keep(arena, call->plan->region[0].device);
    bool known = call->device->identity(call->device, identity, sizeof identity, &unknown);
    return keep(arena, known ? identity : call->device->name);
}

static void report(const optimize_call *call, const char *note, ef_arena *arena, equiforge_optimum *optimum)
{
    const ef_module_summary *s = &call->summary;
    const ef_plan_region none = {.schedule = "", .source = "", .entry = "", .candidate = "", .device = ""};
    const ef_plan_region *only = call->plan->regions == 1 ? &call->plan->region[0] : &none;
    *optimum = (equiforge_optimum){
        .original_us = s->original_us,
        .best_us = s->us,
        .warm_us = s->warm_us,
        .floor_us = s->floor_us,
        .rel_l2 = s->rel_l2,
        .elapsed_s = s->elapsed_s,
        .regions = s->regions,
        .distinct = s->distinct,
        .externals = s->externals,
        .kernels = s->kernels,
        .candidates = s->candidates,
        .families = s->families,
        .measured = s->measured,
        .failed = s->failed,
        .original = s->original,
        .stored = s->stored,
        .stopped = s->stopped,
        .schedule = keep(arena, only->schedule),
        .source = keep(arena, only->source),
        .entry = keep(arena, only->entry),
        .program = keep(arena, only->candidate),
        .device = device_of(call, arena),
        .kept = s->kept,
        .note = keep(arena, s->message ? s->message : note),
    };
}

equiforge_status equiforge_optimize(equiforge_session *session, const char *path,
                                    const equiforge_optimize_options *options, equiforge_optimum *optimum)
{
    char store_path[1024] = "";
    ef_device device;
    ef_diag *diag = ef_api_diag(session), note = {0};
    *optimum = (equiforge_optimum){0};
    if (!ef_device_find(options->target ? options->target : "auto", options->gpu, options->threads, &device, diag))
        return EQUIFORGE_BAD_INPUT;
    if (options->output && !ef_may_write_file(options->output, diag))
        return EQUIFORGE_BAD_INPUT;
    if (options->store)
        snprintf(store_path, sizeof store_path, "%s", options->store);
    else if (!ef_store_default_path(store_path, sizeof store_path))
        store_path[0] = 0; /* SQLite keeps a store without a name in memory */
    optimize_call call = {
        .path = path, .device = &device, .options = options, .diag = diag, .ending = &session->ending};
    call.store = ef_store_open(store_path, &note);
    ef_with_deep_stack(optimize_deep, &call);
    atomic_store(&session->ending, EF_GO_ON);
    ef_store_close(call.store);
    if (call.status == EQUIFORGE_OK)
        report(&call, note.text, ef_api_arena(&session->optimum), optimum);
    ef_plan_free(call.plan);
    return call.status;
}

void equiforge_interrupt(equiforge_session *session, equiforge_ending how)
{
    atomic_store(&session->ending, how == EQUIFORGE_ABANDON ? EF_ABANDON : EF_FINISH);
}

size_t equiforge_targets(const equiforge_target **targets)
{
    static equiforge_target list[EF_DEVICES];
    for (unsigned i = 0; i < EF_DEVICES; i++) {
        const ef_device_name *known = &ef_device_names[i];
        list[i] = (equiforge_target){known->name, known->gpu ? "gpu" : "cpu", ef_device_here(known)};
    }
    *targets = list;
    return EF_DEVICES;
}

int equiforge_worker(uint32_t threads)
{
    return ef_worker_run(threads);
}
