/* Printing programs: see emit.h. */
#include "codegen/emit.h"

#include <inttypes.h>

#include "codegen/c.h"
#include "codegen/settings.h"
#include "codegen/triton.h"
#include "support/deepstack.h"

typedef struct {
    const ef_program *program;
    const ef_emit_options *options;
    ef_strbuf *out;
    ef_diag *diag;
    bool fine, bad;
} emission;

static bool print(emission *e, const ef_kgraph *graph, const ef_schedule *schedule)
{
    if (e->options->backend == EF_BACKEND_TRITON)
        return ef_codegen_triton(graph, schedule, e->options->name, e->out, e->diag);
    ef_codegen_c_runtime(e->out);
    uint64_t work = ef_codegen_c(graph, schedule, e->options->name, e->out, e->diag);
    ef_strbuf_printf(e->out, "const unsigned long long %s_work = %" PRIu64 ";\n", e->options->name, work);
    return work > 0;
}

static void emit(void *user)
{
    emission *e = user;
    ef_ctx *ctx = ef_dag_ctx(e->program->dag);
    uint32_t vars = ef_var_count(ctx);
    uint64_t *extent = ef_settings_extents(ctx);
    e->bad = e->options->dims && !ef_settings_dims(ctx, e->options->dims, e->diag);
    ef_kgraph *graph = e->bad ? NULL : ef_kgraph_new(e->program, e->diag);
    if (graph) {
        ef_schedule schedule =
            ef_schedule_default(graph, e->options->backend, e->options->backend == EF_BACKEND_C ? 1 : 0);
        e->bad = e->options->schedule && !ef_settings_schedule(graph, &schedule, e->options->schedule, e->diag);
        e->fine = !e->bad && print(e, graph, &schedule);
        ef_schedule_free(&schedule);
    }
    ef_kgraph_free(graph);
    ef_settings_restore(ctx, extent, vars);
}

bool ef_emit(const ef_program *program, const ef_emit_options *options, ef_strbuf *out, bool *bad, ef_diag *diag)
{
    emission e = {program, options, out, diag, false, false};
    ef_with_deep_stack(emit, &e);
    *bad = e.bad;
    return e.fine;
}
