/* Settings: see settings.h. */
#include "codegen/settings.h"

#include <inttypes.h>
#include <string.h>

/* ---- "name=number,name=number" ---- */

typedef struct {
    const char *name;
    unsigned length;
    uint64_t value;
} setting;

/* Reads one setting and moves on; false at the end or, with a message, at what is none. */
static bool next_setting(const char **text, const char *what, setting *s, ef_diag *diag)
{
    const char *start = *text, *equals = strchr(start, '='), *end = start + strcspn(start, ",");
    char *stop;
    if (*start == 0)
        return false;
    if (!equals || equals > end || equals == start)
        return ef_fail(diag, "'%.60s' is no %s: write NAME=N,NAME=N", start, what);
    *s = (setting){start, (unsigned)(equals - start), strtoull(equals + 1, &stop, 10)};
    if (equals[1] < '0' || equals[1] > '9' || stop != end || s->value > EF_MAX_EXTENT)
        return ef_fail(diag, "'%.*s' needs a whole number", (int)(end - start < 60 ? end - start : 60), start);
    *text = *end ? end + 1 : end;
    return true;
}

static bool in_derived(ef_ctx *ctx, ef_var var)
{
    for (ef_var v = 0; v < ef_var_count(ctx); v++) {
        const ef_var_info *info = ef_var_at(ctx, v);
        const ef_dim *part = &info->parent;
        unsigned parts = info->kind == EF_VAR_SLICE    ? 1
                         : info->kind == EF_VAR_CONCAT ? ef_dims_at(ctx, info->parts, &part)
                                                       : 0;
        for (unsigned i = 0; i < parts; i++) {
            const ef_var *atoms = NULL;
            ef_dim base = ef_dim_base(ctx, part[i]);
            for (unsigned a = 0, n = base == EF_NONE ? 0 : ef_dim_atoms(ctx, base, &atoms); a < n; a++)
                if (atoms[a] == var)
                    return true;
        }
    }
    return false;
}

bool ef_settings_dims(ef_ctx *ctx, const char *dims, ef_diag *diag)
{
    setting s = {0};
    while (next_setting(&dims, "list of dimensions", &s, diag)) {
        ef_var var = ef_var_find(ctx, s.name, s.length);
        if (var == EF_NONE)
            return ef_fail(diag, "the program has no dimension %.*s", (int)s.length, s.name);
        if (s.value < 2)
            return ef_fail(diag, "dimension %.*s=%" PRIu64 " is too small: it needs an extent of at least 2",
                           (int)s.length, s.name, s.value);
        if (in_derived(ctx, var))
            return ef_fail(diag, "dimension %.*s is sliced or concatenated: its extent is fixed", (int)s.length,
                           s.name);
        ef_var_resize(ctx, var, s.value);
    }
    return !diag->failed;
}

bool ef_settings_schedule(const ef_kgraph *g, ef_schedule *schedule, const char *text, ef_diag *diag)
{
    setting s = {0};
    while (next_setting(&text, "list of tiles", &s, diag))
        if (!ef_schedule_set(g, schedule, s.name, s.length, s.value))
            return ef_fail(diag,
                           "no kernel has a parameter '%.*s': write NAME.0 for blocks or NAME.1 for the loop inside",
                           (int)s.length, s.name);
    return !diag->failed;
}

/* ---- extents ---- */

uint64_t *ef_settings_extents(const ef_ctx *ctx)
{
    uint32_t vars = ef_var_count(ctx);
    uint64_t *extent = ef_xcalloc(vars + 1, sizeof *extent);
    for (ef_var v = 0; v < vars; v++)
        extent[v] = ef_var_at(ctx, v)->extent;
    return extent;
}

void ef_settings_restore(ef_ctx *ctx, uint64_t *extent, uint32_t vars)
{
    for (ef_var v = 0; v < vars; v++)
        ef_var_resize(ctx, v, extent[v]);
    free(extent);
}
