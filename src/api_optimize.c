/* The public interface to optimising (include/equiforge.h): one program, one device, one store. */
#include <stdio.h>
#include <string.h>

#include "api.h"
#include "plan/plan.h"
#include "support/deepstack.h"
#include "tune/optimize.h"
#include "tune/optimum.h"
#include "tune/worker.h"

typedef struct {
    equiforge_program *program;
    const ef_device *device;
    ef_store *store;
    const equiforge_optimize_options *options;
    ef_optimum *found;
    ef_diag *diag;
    bool fine;
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

static void optimize_deep(void *user)
{
    optimize_call *call = user;
    ef_optimize_options options = {
        .budget_s = call->options->budget_s, .seed = call->options->seed, .limit = call->options->limit, .user = call};
    options.progress = call->options->progress ? pass_progress : NULL;
    call->fine = ef_optimize(call->program->ir, call->device, call->store, &options,
                             ef_api_arena(&call->program->optimum), call->found, call->diag);
}

static equiforge_optimum report_optimum(const ef_optimum *o, const char *note)
{
    return (equiforge_optimum){
        .original_us = o->original_us,
        .best_us = o->us,
        .warm_us = o->warm_us,
        .floor_us = o->floor_us,
        .rel_l2 = o->rel_l2,
        .elapsed_s = o->elapsed_s,
        .kernels = o->kernels,
        .candidates = o->candidates,
        .families = o->families,
        .measured = o->measured,
        .failed = o->failed,
        .original = o->original,
        .stored = o->stored,
        .stopped = o->stopped,
        .schedule = o->schedule,
        .source = o->source,
        .entry = o->entry,
        .program = o->program,
        .device = o->device,
        .note = note,
    };
}

/* ---- the file ---- */

/* The module with its implementation. */
static bool write_plan(ef_program *program, const ef_device *device, const ef_optimum *o, const char *path,
                       ef_diag *diag)
{
    ef_module *module = ef_module_of_program(program, diag);
    if (!module)
        return false;
    ef_plan *plan = ef_plan_new(module, device->name);
    plan->elapsed_s = o->elapsed_s;
    plan->region[0] = ef_optimum_region(o, device);
    bool fine = ef_plan_write(plan, path, diag);
    ef_plan_free(plan);
    ef_module_free(module);
    return fine;
}

equiforge_status equiforge_optimize(equiforge_program *program, const equiforge_optimize_options *options,
                                    equiforge_optimum *optimum)
{
    char path[1024] = "";
    ef_device device;
    ef_optimum found = {0};
    ef_diag *diag = ef_api_diag(program->session), note = {0};
    *optimum = (equiforge_optimum){0};
    if (!ef_device_find(options->target ? options->target : "auto", options->threads, &device, diag))
        return EQUIFORGE_BAD_INPUT;
    if (options->store)
        snprintf(path, sizeof path, "%s", options->store);
    else if (!ef_store_default_path(path, sizeof path))
        path[0] = 0; /* SQLite keeps a store without a name in memory */
    ef_store *store = ef_store_open(path, &note);
    optimize_call call = {program, &device, store, options, &found, diag, false};
    ef_with_deep_stack(optimize_deep, &call);
    ef_store_close(store);
    if (!call.fine)
        return EQUIFORGE_FAILED;
    *optimum = report_optimum(&found, ef_arena_strndup(program->optimum, note.text, strlen(note.text)));
    if (options->output && !write_plan(program->ir, &device, &found, options->output, diag))
        return EQUIFORGE_FAILED;
    return EQUIFORGE_OK;
}

int equiforge_worker(uint32_t threads)
{
    return ef_worker_run(threads);
}
