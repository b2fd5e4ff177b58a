/* Settings: see settings.h. */
#include "codegen/settings.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* ---- "name=number,name=number" ---- */

#define BLANKS " \t\n" /* as between the values of a schedule that was printed or stored */
#define SHOWN 60       /* bytes of what was written */

typedef struct {
    const char *name, *text; /* text: of the value */
    unsigned length, digits;
    uint64_t value; /* NO_NUMBER: no whole number, or too large for anything */
} setting;

#define NO_NUMBER UINT64_MAX

/* Reads one setting and moves on; false at the end or, with a message, at what is none. */
static bool next_setting(const char **text, const char *what, setting *s, ef_diag *diag)
{
    const char *start = *text + strspn(*text, BLANKS), *equals = strchr(start, '=');
    if (*start == 0)
        return false;
    if (!equals || equals == start || memchr(start, ',', (size_t)(equals - start)))
        return ef_fail(diag, "'%.*s' is no %s: write NAME=N,NAME=N", SHOWN, start, what);
    unsigned digits = (unsigned)strcspn(equals + 1, "," BLANKS);
    *s = (setting){start, equals + 1, (unsigned)(equals - start), digits, 0};
    errno = 0;
    s->value = strtoull(s->text, NULL, 10);
    if (digits == 0 || strspn(s->text, "0123456789") != digits || errno == ERANGE)
        s->value = NO_NUMBER;
    const char *end = s->text + digits;
    end += strspn(end, BLANKS);
    end += *end == ',';
    *text = end + strspn(end, BLANKS);
    return true;
}

/* A length for "%.*s". */
static int shown(unsigned length)
{
    return length < SHOWN ? (int)length : SHOWN;
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

/* Whether tensors of a type have no more elements than tensors can have. */
static bool fits(const ef_ctx *ctx, ef_type type)
{
    const ef_type_info *info = ef_type_at(ctx, type);
    uint64_t elements = 1;
    for (unsigned i = 0; info->is_tuple && i < info->fields; i++)
        if (!fits(ctx, info->field[i]))
            return false;
    for (unsigned i = 0; !info->is_tuple && i < info->rank; i++) {
        const ef_var *atoms;
        for (unsigned a = 0, n = ef_dim_atoms(ctx, info->dim[i], &atoms); a < n; a++) {
            uint64_t extent = ef_var_at(ctx, atoms[a])->extent;
            if (extent && elements > EF_MAX_EXTENT / extent)
                return false;
            elements *= extent ? extent : 1; /* how many parts there are is the schedule's */
        }
    }
    return true;
}

bool ef_settings_dims(const ef_program *program, const char *dims, ef_diag *diag)
{
    ef_ctx *ctx = ef_dag_ctx(program->dag);
    setting s = {0};
    while (next_setting(&dims, "list of dimensions", &s, diag)) {
        ef_var var = ef_var_find(ctx, s.name, s.length);
        if (s.value > EF_MAX_EXTENT)
            return ef_fail(diag, "'%.*s' needs a whole number up to %" PRIu64, shown(s.length + 1 + s.digits), s.name,
                           EF_MAX_EXTENT);
        if (var == EF_NONE)
            return ef_fail(diag, "the program has no dimension %.*s", shown(s.length), s.name);
        if (s.value < 2)
            return ef_fail(diag, "dimension %.*s=%" PRIu64 " is too small: it needs an extent of at least 2",
                           shown(s.length), s.name, s.value);
        if (in_derived(ctx, var))
            return ef_fail(diag, "dimension %.*s is sliced or concatenated: its extent is fixed", shown(s.length),
                           s.name);
        ef_var_resize(ctx, var, s.value);
    }
    for (ef_expr e = 0; e < ef_dag_count(program->dag) && !diag->failed; e++)
        if (!fits(ctx, ef_dag_type(program->dag, e)))
            ef_fail(diag, "with these dimensions a tensor has more than %" PRIu64 " elements", EF_MAX_EXTENT);
    return !diag->failed;
}

/* ---- schedules ---- */

static bool unknown(const setting *s, ef_diag *diag)
{
    return ef_fail(diag,
                   "no kernel has a parameter '%.*s': write NAME.0 for blocks or NAME.1 for the loop inside, or warps, "
                   "stages, unit, load, group, order, persist or overlap; in front of it kN. for kernel N alone",
                   shown(s->length), s->name);
}

/* Whether kernels of which no more is known may have this value. */
static bool check(ef_backend backend, uint32_t kernels, const setting *s, ef_diag *diag)
{
    ef_param_kind kind;
    uint32_t kernel;
    ef_strbuf legal = {0};
    if (!ef_schedule_read_name(s->name, s->length, &kind, &kernel))
        return unknown(s, diag);
    if (kernel != EF_NONE && kernel >= kernels)
        return ef_fail(diag, "there is no kernel of '%.*s': they are %" PRIu32 ", from k0 on", shown(s->length),
                       s->name, kernels);
    if (backend == EF_BACKEND_C && kind != EF_PARAM_TILE)
        return ef_fail(diag, "'%.*s' is of GPUs: kernels in C have tiles alone", shown(s->length), s->name);
    if (ef_schedule_legal(backend, kind, s->value))
        return true;
    ef_schedule_print_legal(backend, kind, &legal);
    ef_fail(diag, "'%.*s' is illegal: %.*s takes %s", shown(s->length + 1 + s->digits), s->name, shown(s->length),
            s->name, legal.text);
    ef_strbuf_free(&legal);
    return false;
}

bool ef_settings_schedule(const ef_kgraph *g, ef_schedule *schedule, const char *text, ef_diag *diag)
{
    setting s = {0};
    while (next_setting(&text, "schedule", &s, diag))
        if (!check(schedule->backend, g->kernels.count, &s, diag))
            return false;
        else if (!ef_schedule_set(g, schedule, s.name, s.length, s.value))
            return unknown(&s, diag);
    return !diag->failed;
}

bool ef_settings_check(ef_backend backend, uint32_t kernels, const char *text, ef_diag *diag)
{
    setting s = {0};
    while (next_setting(&text, "schedule", &s, diag))
        if (!check(backend, kernels, &s, diag))
            return false;
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
