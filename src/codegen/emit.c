/* Printing programs: see emit.h. */
#include "codegen/emit.h"

#include <ctype.h>
#include <inttypes.h>
#include <string.h>

#include "codegen/c.h"
#include "codegen/settings.h"
#include "codegen/triton.h"
#include "support/deepstack.h"

#define MAX_NAME 1000 /* bytes */

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

/* ---- the name ---- */

/* What a function cannot be called: the languages' own words, and what generated modules call otherwise. */
static const char *const taken[EF_BACKEND_COUNT] = {
    [EF_BACKEND_C] = " auto break case char const continue default do double else enum extern float for goto if inline "
                     "int long main register restrict return short signed sizeof static struct switch typedef union "
                     "unsigned void volatile while ",
    [EF_BACKEND_TRITON] =
        " False None True and as assert async await break class continue def del elif else except finally for from "
        "global if import in is lambda nonlocal not or pass raise return try while with "
        "BUFFERS INPUTS OUTPUTS TensorDescriptor float gdc_launch_dependents gdc_wait launch min range tl torch triton "
        "tuple "};

static bool is_taken(const char *name, ef_backend backend)
{
    ef_strbuf word = {0};
    ef_strbuf_printf(&word, " %s ", name);
    bool found = strstr(taken[backend], word.text) != NULL;
    ef_strbuf_free(&word);
    size_t digits = name[0] == 'k' ? strspn(name + 1, "0123456789") : 0;
    return found || (digits && name[1 + digits] == '_'); /* a kernel */
}

static bool check_name(const char *name, ef_backend backend, ef_diag *diag)
{
    bool word = name[0] && !isdigit((unsigned char)name[0]) && strlen(name) <= MAX_NAME;
    for (const char *at = name; *at; at++)
        word = word && (isalnum((unsigned char)*at) || *at == '_');
    if (!word)
        return ef_fail(diag, "no function can be called '%.60s': letters, digits and '_', at most %d", name, MAX_NAME);
    return !is_taken(name, backend) ||
           ef_fail(diag, "the function cannot be called '%.60s' in the generated code: give it another --name", name);
}

/* ---- printing ---- */

static void emit(void *user)
{
    emission *e = user;
    ef_ctx *ctx = ef_dag_ctx(e->program->dag);
    uint32_t vars = ef_var_count(ctx);
    uint64_t *extent = ef_settings_extents(ctx);
    e->bad = !check_name(e->options->name, e->options->backend, e->diag) ||
             (e->options->dims && !ef_settings_dims(e->program, e->options->dims, e->diag));
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
