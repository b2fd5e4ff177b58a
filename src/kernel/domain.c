/* Schedules as data: what each parameter is called, which values it may take, and the first guess.
 *
 * A parameter that a backend does not use has one value, so a tuner that knows nothing of kinds never varies it. */
#include <ctype.h>
#include <inttypes.h>
#include <string.h>

#include "kernel/guess.h"

/* ---- names ---- */

static const char *const kind_names[EF_PARAM_KINDS] = {
    [EF_PARAM_WARPS] = "warps", [EF_PARAM_STAGES] = "stages", [EF_PARAM_UNIT] = "unit",        [EF_PARAM_LOAD] = "load",
    [EF_PARAM_GROUP] = "group", [EF_PARAM_ORDER] = "order",   [EF_PARAM_RESIDENT] = "resident"};

static void print_kind(const ef_kgraph *g, const ef_kparam *param, ef_strbuf *out)
{
    if (param->kind == EF_PARAM_TILE)
        ef_axis_print(g->ctx, param->axis, out);
    else
        ef_strbuf_puts(out, kind_names[param->kind]);
}

void ef_schedule_name(const ef_kgraph *g, uint32_t param, ef_strbuf *out)
{
    const ef_kparam *p = &g->params.at[param];
    if (p->kernel != EF_NONE)
        ef_strbuf_printf(out, "k%" PRIu32 ".", p->kernel);
    print_kind(g, p, out);
}

/* Whether a parameter has this name, in full or without its kernel. */
static bool has_name(const ef_kgraph *g, uint32_t param, const char *name, unsigned length)
{
    ef_strbuf full = {0}, brief = {0};
    ef_schedule_name(g, param, &full);
    print_kind(g, &g->params.at[param], &brief);
    bool has = (full.length == length && memcmp(full.text, name, length) == 0) ||
               (brief.length == length && memcmp(brief.text, name, length) == 0);
    ef_strbuf_free(&full);
    ef_strbuf_free(&brief);
    return has;
}

bool ef_schedule_set(const ef_kgraph *g, ef_schedule *schedule, const char *name, unsigned length, uint64_t value)
{
    bool found = false;
    for (uint32_t i = 0; i < g->params.count; i++)
        if (has_name(g, i, name, length)) {
            schedule->value[i] = g->params.at[i].kind == EF_PARAM_TILE && value == 0 ? 1 : value;
            found = true;
        }
    return found;
}

/* ---- domains ---- */

static unsigned tiles(const ef_kgraph *g, const ef_kparam *param, uint64_t value[EF_SCHEDULE_VALUES])
{
    uint64_t extent = ef_var_at(g->ctx, ef_axis_var(param->axis))->extent;
    unsigned n = 0;
    for (uint64_t v = 1; v < extent && n + 1 < EF_SCHEDULE_VALUES; v *= 2)
        value[n++] = v;
    value[n++] = extent;
    return n;
}

unsigned ef_schedule_domain(const ef_kgraph *g, ef_backend backend, uint32_t param, uint64_t value[EF_SCHEDULE_VALUES])
{
    const ef_kparam *p = &g->params.at[param];
    (void)backend;
    if (p->kind == EF_PARAM_TILE)
        return tiles(g, p, value);
    value[0] = 0;
    return 1;
}

ef_schedule ef_schedule_default(const ef_kgraph *graph, ef_backend backend, uint32_t threads)
{
    ef_schedule s = ef_guess_c(graph, threads);
    s.backend = backend;
    return s;
}
