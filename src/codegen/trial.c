/* Trials: see trial.h. */
#include "codegen/trial.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "codegen/settings.h"
#include "support/deepstack.h"
#include "support/processors.h"

/* The evaluator works element by element: more multiplications than this take minutes. */
#define MAX_MULTIPLICATIONS 4e8

/* ---- checking ---- */

/* Multiplications in the matrix products that the outputs need. */
static double work_of(const ef_program *program)
{
    ef_ctx *ctx = ef_dag_ctx(program->dag);
    double work = 0;
    for (ef_expr e = 0; e < ef_dag_count(program->dag); e++) {
        const ef_expr *child;
        ef_op op = ef_dag_op(program->dag, e);
        if (op != EF_MATMUL && op != EF_TILE_MATMUL)
            continue;
        ef_dag_children(program->dag, e, &child);
        const ef_type_info *out = ef_type_at(ctx, ef_dag_type(program->dag, e));
        double product = (double)ef_dim_extent(ctx, ef_type_at(ctx, ef_dag_type(program->dag, child[0]))->dim[0]);
        for (unsigned d = 0; d < out->rank; d++)
            product *= (double)ef_dim_extent(ctx, out->dim[d]);
        work += product;
    }
    return work;
}

/* The oracle, with its own compiled code, which must stay loaded as long. */
static ef_oracle *oracle_of(const ef_program *program, uint64_t seed, ef_library **library, ef_diag *diag)
{
    ef_strbuf source = {0};
    ef_oracle *oracle = ef_oracle_new(program, diag);
    ef_codegen_c_runtime(&source);
    if (oracle && ef_oracle_print(oracle, "program", &source, diag))
        *library = ef_compile(source.text, source.length, &(ef_compile_options){.level = 2}, diag);
    ef_strbuf_free(&source);
    if (*library && ef_oracle_prepare(oracle, *library, "program", seed, diag))
        return oracle;
    ef_oracle_free(oracle);
    return NULL;
}

/* Whether the program computes what it says. Where narrow temporaries cost too much, they are widened. */
static bool check(const ef_program *program, ef_kgraph *g, const ef_schedule *s, ef_native *native, uint64_t seed,
                  ef_trial_result *result, ef_diag *diag)
{
    double work = work_of(program);
    ef_library *library = NULL;
    if (work > MAX_MULTIPLICATIONS)
        return ef_fail(diag,
                       "%s is too large to check: %.2g multiplications in float64; choose smaller sizes, for example "
                       "--dims NAME=64,NAME=16",
                       program->name, work);
    ef_oracle *oracle = oracle_of(program, seed, &library, diag);
    if (!oracle) {
        ef_library_free(library);
        return false;
    }
    ef_verdict v = ef_oracle_check(oracle, g, s, native);
    if (!v.valid && ef_kgraph_widen(g)) {
        ef_native_close(native);
        if (ef_native_open(native, g, s, diag))
            v = ef_oracle_check(oracle, g, s, native);
    }
    ef_oracle_free(oracle);
    ef_library_free(library);
    result->rel_l2 = v.largest;
    result->draw = v.draw;
    return v.valid || ef_fail(diag, "%s is wrong: relative L2 error %.3g, at most %.3g is accepted (%s inputs)",
                              program->name, v.error, v.bound, ef_draw_names[v.draw]);
}

/* ---- trials ---- */

/* The bytes of inputs, outputs and workspace. */
static double memory_of(const ef_kgraph *g, const ef_schedule *s, uint64_t work)
{
    double bytes = (double)work;
    for (uint32_t i = 0; i < g->buffers.count; i++)
        if (g->buffers.at[i].kind != EF_BUFFER_TEMP)
            bytes += (double)ef_sched_buffer(g, s, i) * ef_dtype_bytes((ef_dtype)g->buffers.at[i].dtype);
    return bytes;
}

static ef_trial_status run(const ef_program *program, ef_kgraph *g, const ef_schedule *s,
                           const ef_trial_options *options, ef_trial_result *result, ef_diag *diag)
{
    ef_native native;
    uint64_t work = ef_codegen_c(g, s, "ef_program", &result->source, diag);
    double memory = (double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGESIZE);
    if (work && memory_of(g, s, work) > memory * 3 / 4)
        ef_fail(diag, "%s needs %.2g GB of memory; choose smaller sizes, for example --dims NAME=64,NAME=16",
                program->name, memory_of(g, s, work) * 1e-9);
    if (diag->failed || !ef_native_open(&native, g, s, diag))
        return EF_TRIAL_FAILED;
    ef_data data = ef_data_new(g, s);
    bool fine = !options->check || check(program, g, s, &native, options->seed, result, diag);
    if (fine && options->repeat) {
        ef_data_draw(g, s, &data, EF_DRAW_NORMAL, (ef_draw_size){1, 1}, options->seed);
        result->us = ef_native_time(&native, data.in, data.out, options->repeat);
    }
    ef_data_free(&data);
    ef_native_close(&native);
    return fine ? EF_TRIAL_FINE : EF_TRIAL_FAILED;
}

static ef_trial_status form_and_run(const ef_program *program, const ef_trial_options *options, ef_trial_result *result,
                                    ef_diag *diag)
{
    ef_trial_status status = EF_TRIAL_BAD_INPUT;
    ef_kgraph *graph = ef_kgraph_new(program, diag);
    if (!graph)
        return EF_TRIAL_FAILED;
    ef_schedule schedule =
        ef_schedule_default(graph, EF_BACKEND_C, options->threads ? options->threads : ef_processors());
    result->kernels = graph->kernels.count;
    result->family = ef_kgraph_family(graph);
    if (!options->tiles || ef_settings_schedule(graph, &schedule, options->tiles, diag))
        status = run(program, graph, &schedule, options, result, diag);
    ef_schedule_free(&schedule);
    ef_kgraph_free(graph);
    return status;
}

typedef struct {
    const ef_program *program;
    const ef_trial_options *options;
    ef_trial_result *result;
    ef_diag *diag;
    ef_trial_status status;
} trial;

static void resize_and_run(void *arg)
{
    trial *t = arg;
    ef_ctx *ctx = ef_dag_ctx(t->program->dag);
    uint32_t vars = ef_var_count(ctx);
    uint64_t *extent = ef_settings_extents(ctx);
    if (!t->options->dims || ef_settings_dims(t->program, t->options->dims, t->diag))
        t->status = form_and_run(t->program, t->options, t->result, t->diag);
    ef_settings_restore(ctx, extent, vars);
}

/* Lowering follows chains of operators as deep as they are. */
ef_trial_status ef_trial(const ef_program *program, const ef_trial_options *options, ef_trial_result *result,
                         ef_diag *diag)
{
    trial t = {program, options, result, diag, EF_TRIAL_BAD_INPUT};
    *result = (ef_trial_result){0};
    ef_with_deep_stack(resize_and_run, &t);
    return t.status;
}
