/* Types, dimensions, axes: see type.h. */
#include "ir/type.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "ir/context.h"

const char *const ef_dtype_names[EF_DTYPE_COUNT] = {
    [EF_BOOL] = "bool", [EF_NUM] = "num",   [EF_I32] = "i32", [EF_I64] = "i64",
    [EF_F16] = "f16",   [EF_BF16] = "bf16", [EF_F32] = "f32", [EF_F64] = "f64",
};

unsigned ef_dtype_bytes(ef_dtype dtype)
{
    static const unsigned bytes[EF_DTYPE_COUNT] = {[EF_BOOL] = 1, [EF_NUM] = 4,  [EF_I32] = 4, [EF_I64] = 8,
                                                   [EF_F16] = 2,  [EF_BF16] = 2, [EF_F32] = 4, [EF_F64] = 8};
    return bytes[dtype];
}

ef_dtype ef_dtype_join(ef_dtype a, ef_dtype b)
{
    if ((a == EF_F16 && b == EF_BF16) || (a == EF_BF16 && b == EF_F16))
        return EF_F32;
    return a > b ? a : b;
}

/* ---- context ---- */

ef_ctx *ef_ctx_new(void)
{
    ef_ctx *ctx = ef_xcalloc(1, sizeof *ctx);
    ctx->arena = ef_arena_new();
    ctx->var_names = ef_intern_new();
    ctx->derived = ef_intern_new();
    ctx->dims = ef_intern_new();
    ctx->dim_lists = ef_intern_new();
    ctx->axis_sets = ef_intern_new();
    ctx->types = ef_intern_new();
    ctx->input_names = ef_intern_new();
    ctx->reducers = ef_intern_new();
    ctx->scalars = ef_intern_new();
    ef_dim_product(ctx, NULL, 0);                                              /* the unit dimension is id 0 */
    ef_axes_intern(ctx, NULL, 0);                                              /* the empty set is id 0 */
    ef_intern_put(ctx->axis_sets, &(ef_axis){EF_NONE}, sizeof(ef_axis), NULL); /* EF_AXES_TOO_MANY is id 1 */
    ef_type_intern(ctx, &(ef_type_info){.is_tuple = 1}); /* "no type" is id 0: an empty tuple, which nothing has */
    ef_reducers_init(ctx);
    return ctx;
}

void ef_ctx_free(ef_ctx *ctx)
{
    if (!ctx)
        return;
    ef_vec_free(&ctx->vars);
    ef_vec_free(&ctx->named);
    ef_vec_free(&ctx->derived_vars);
    ef_vec_free(&ctx->inputs);
    ef_intern *tables[] = {ctx->var_names, ctx->derived,     ctx->dims,     ctx->dim_lists, ctx->axis_sets,
                           ctx->types,     ctx->input_names, ctx->reducers, ctx->scalars};
    for (unsigned i = 0; i < sizeof tables / sizeof *tables; i++)
        ef_intern_free(tables[i]);
    ef_arena_free(ctx->arena);
    free(ctx);
}

/* ---- variables ---- */

ef_var ef_var_named(ef_ctx *ctx, const char *name, unsigned length, uint64_t extent, ef_diag *diag)
{
    if (ctx->vars.count >= EF_MAX_VARS) {
        ef_fail(diag, "too many dimensions");
        return EF_NONE;
    }
    if (extent < 2 || extent > EF_MAX_EXTENT) {
        ef_fail(diag, "extent %" PRIu64 " of dimension %.*s is out of range", extent, (int)length, name);
        return EF_NONE;
    }
    int fresh;
    uint32_t at = ef_intern_put(ctx->var_names, name, length, &fresh);
    if (!fresh) {
        ef_var var = ctx->named.at[at];
        if (ctx->vars.at[var].extent == extent)
            return var;
        ef_fail(diag, "dimension %.*s has extent %" PRIu64 " and cannot also have %" PRIu64, (int)length, name,
                ctx->vars.at[var].extent, extent);
        return EF_NONE;
    }
    ef_var var = ctx->vars.count;
    ef_var_info info = {.name = ef_arena_strndup(ctx->arena, name, length), .kind = EF_VAR_NAMED, .extent = extent};
    ef_vec_push(&ctx->vars, info);
    ef_vec_push(&ctx->named, var);
    return var;
}

ef_var ef_var_find(const ef_ctx *ctx, const char *name, unsigned length)
{
    uint32_t at = ef_intern_find(ctx->var_names, name, length);
    return at == UINT32_MAX ? EF_NONE : ctx->named.at[at];
}

uint32_t ef_var_count(const ef_ctx *ctx)
{
    return ctx->vars.count;
}

const ef_var_info *ef_var_at(const ef_ctx *ctx, ef_var var)
{
    return &ctx->vars.at[var];
}

void ef_var_resize(ef_ctx *ctx, ef_var var, uint64_t extent)
{
    if (ctx->vars.at[var].kind != EF_VAR_NAMED)
        return;
    while (var != EF_NONE) {
        ctx->vars.at[var].extent = extent;
        uint32_t key[] = {EF_VAR_TWIN, var}, at = ef_intern_find(ctx->derived, key, sizeof key);
        var = at == UINT32_MAX ? EF_NONE : ctx->derived_vars.at[at];
    }
}

void ef_concat_resize(ef_ctx *ctx)
{
    for (ef_var v = 0; v < ctx->vars.count; v++) { /* what a variable is made of is older */
        const ef_dim *parts;
        uint64_t extent = 0;
        if (ctx->vars.at[v].kind != EF_VAR_CONCAT)
            continue;
        for (unsigned i = 0, n = ef_dims_at(ctx, ctx->vars.at[v].parts, &parts); i < n; i++)
            extent += ef_dim_extent(ctx, parts[i]);
        ctx->vars.at[v].extent = extent;
    }
}

/* One variable per key: equal slices, concatenations and counts are the same variable. */
static ef_var derived_var(ef_ctx *ctx, const uint32_t *key, unsigned words, ef_var_info info)
{
    int fresh;
    uint32_t at = ef_intern_put(ctx->derived, key, words * sizeof *key, &fresh);
    if (fresh) {
        ef_vec_push(&ctx->derived_vars, ctx->vars.count);
        ef_vec_push(&ctx->vars, info);
    }
    return ctx->derived_vars.at[at];
}

ef_var ef_var_joined(ef_ctx *ctx, const ef_var *atoms, unsigned count)
{
    ef_dim dim = ef_dim_product(ctx, atoms, count);
    uint32_t key[] = {EF_VAR_JOINED, dim};
    ef_var var = derived_var(ctx, key, 2, (ef_var_info){.kind = EF_VAR_JOINED, .parent = dim});
    ctx->vars.at[var].extent = ef_dim_extent(ctx, dim); /* what it is made of may have been resized */
    return var;
}

/* ---- dimensions ---- */

ef_dim ef_dim_product(ef_ctx *ctx, const ef_var *atoms, unsigned count)
{
    uint64_t extent = 1;
    for (unsigned i = 0; i < count; i++) {
        uint64_t factor = ctx->vars.at[atoms[i]].extent;
        if (count > EF_MAX_ATOMS || (factor && extent > EF_MAX_EXTENT / factor))
            return EF_NONE;
        extent *= factor ? factor : 1;
    }
    return ef_intern_put(ctx->dims, atoms, count * sizeof *atoms, NULL);
}

ef_dim ef_dim_of_var(ef_ctx *ctx, ef_var var)
{
    return ef_dim_product(ctx, &var, 1);
}

unsigned ef_dim_atoms(const ef_ctx *ctx, ef_dim dim, const ef_var **atoms)
{
    size_t size;
    *atoms = ef_intern_at(ctx->dims, dim, &size);
    return (unsigned)(size / sizeof **atoms);
}

bool ef_dim_has(const ef_ctx *ctx, ef_dim dim, ef_var var)
{
    const ef_var *atoms;
    for (unsigned i = 0, n = ef_dim_atoms(ctx, dim, &atoms); i < n; i++)
        if (atoms[i] == var)
            return true;
    return false;
}

uint64_t ef_dim_extent(const ef_ctx *ctx, ef_dim dim)
{
    const ef_var *atoms;
    uint64_t extent = 1;
    for (unsigned i = 0, n = ef_dim_atoms(ctx, dim, &atoms); i < n; i++)
        extent *= ctx->vars.at[atoms[i]].extent;
    return extent;
}

bool ef_dim_is_count(const ef_ctx *ctx, ef_dim dim)
{
    const ef_var *atoms;
    return ef_dim_atoms(ctx, dim, &atoms) == 1 && ctx->vars.at[atoms[0]].kind == EF_VAR_COUNT;
}

ef_dim ef_dim_slice(ef_ctx *ctx, ef_dim dim, uint32_t start, uint32_t stop)
{
    if (start == 0 && stop == ef_dim_extent(ctx, dim))
        return dim;
    if (stop - start == 1)
        return EF_UNIT;
    uint32_t key[] = {EF_VAR_SLICE, dim, start, stop};
    ef_var_info info = {.kind = EF_VAR_SLICE, .extent = stop - start, .parent = dim, .start = start, .stop = stop};
    return ef_dim_of_var(ctx, derived_var(ctx, key, 4, info));
}

ef_dim ef_dim_concat(ef_ctx *ctx, const ef_dim *parts, unsigned count)
{
    if (count == 1)
        return parts[0];
    uint64_t extent = 0;
    for (unsigned i = 0; i < count; i++)
        extent += ef_dim_extent(ctx, parts[i]);
    ef_dims list = ef_dims_intern(ctx, parts, count);
    uint32_t key[] = {EF_VAR_CONCAT, list};
    return ef_dim_of_var(
        ctx, derived_var(ctx, key, 2, (ef_var_info){.kind = EF_VAR_CONCAT, .extent = extent, .parts = list}));
}

ef_dim ef_dim_count(ef_ctx *ctx, ef_axis axis)
{
    uint32_t key[] = {EF_VAR_COUNT, axis};
    return ef_dim_of_var(ctx, derived_var(ctx, key, 2, (ef_var_info){.kind = EF_VAR_COUNT, .axis = axis}));
}

static ef_dim map_atoms(ef_ctx *ctx, ef_dim dim, ef_dim (*of_var)(ef_ctx *, ef_var));

/* The variable made again of parts to which `of_dim` was applied. */
static ef_dim remade(ef_ctx *ctx, ef_var var, ef_dim (*of_dim)(ef_ctx *, ef_dim))
{
    const ef_var_info info = ctx->vars.at[var];
    ef_dim part[EF_MAX_FIELDS];
    const ef_dim *parts;
    if (info.kind == EF_VAR_SLICE) {
        ef_dim parent = of_dim(ctx, info.parent);
        if (parent == info.parent) /* not sliced again: the parent may have another extent by now */
            return ef_dim_of_var(ctx, var);
        return parent == EF_NONE ? EF_NONE : ef_dim_slice(ctx, parent, info.start, info.stop);
    }
    unsigned n = ef_dims_at(ctx, info.parts, &parts);
    if (n > EF_MAX_FIELDS)
        return EF_NONE;
    memcpy(part, parts, n * sizeof *part); /* interning may move the list */
    for (unsigned i = 0; i < n; i++)
        if ((part[i] = of_dim(ctx, part[i])) == EF_NONE)
            return EF_NONE;
    return ef_dim_concat(ctx, part, n);
}

static ef_dim twin_of_var(ef_ctx *ctx, ef_var var)
{
    const ef_var_info info = ctx->vars.at[var];
    uint32_t key[] = {EF_VAR_TWIN, var};
    switch (info.kind) {
    case EF_VAR_COUNT: return EF_NONE;
    case EF_VAR_SLICE:
    case EF_VAR_CONCAT: return remade(ctx, var, ef_dim_twin);
    default: break;
    }
    ef_dim parent = ef_dim_of_var(ctx, var);
    return ef_dim_of_var(
        ctx, derived_var(ctx, key, 2, (ef_var_info){.kind = EF_VAR_TWIN, .extent = info.extent, .parent = parent}));
}

static ef_dim base_of_var(ef_ctx *ctx, ef_var var)
{
    const ef_var_info info = ctx->vars.at[var];
    switch (info.kind) {
    case EF_VAR_TWIN: return ef_dim_base(ctx, info.parent);
    case EF_VAR_SLICE:
    case EF_VAR_CONCAT: return remade(ctx, var, ef_dim_base);
    default: return ef_dim_of_var(ctx, var);
    }
}

static ef_dim map_atoms(ef_ctx *ctx, ef_dim dim, ef_dim (*of_var)(ef_ctx *, ef_var))
{
    const ef_var *atoms, *one;
    ef_var mapped[EF_MAX_ATOMS];
    unsigned n = ef_dim_atoms(ctx, dim, &atoms);
    memcpy(mapped, atoms, n * sizeof *mapped);
    for (unsigned i = 0; i < n; i++) {
        ef_dim d = of_var(ctx, mapped[i]);
        if (d == EF_NONE || ef_dim_atoms(ctx, d, &one) != 1)
            return EF_NONE;
        mapped[i] = one[0];
    }
    return ef_dim_product(ctx, mapped, n);
}

ef_dim ef_dim_twin(ef_ctx *ctx, ef_dim dim)
{
    return map_atoms(ctx, dim, twin_of_var);
}

ef_dim ef_dim_base(ef_ctx *ctx, ef_dim dim)
{
    return map_atoms(ctx, dim, base_of_var);
}

ef_dims ef_dims_intern(ef_ctx *ctx, const ef_dim *dims, unsigned count)
{
    return ef_intern_put(ctx->dim_lists, dims, count * sizeof *dims, NULL);
}

unsigned ef_dims_at(const ef_ctx *ctx, ef_dims list, const ef_dim **dims)
{
    size_t size;
    *dims = ef_intern_at(ctx->dim_lists, list, &size);
    return (unsigned)(size / sizeof **dims);
}

/* ---- axes ---- */

ef_axes ef_axes_intern(ef_ctx *ctx, const ef_axis *axes, unsigned count)
{
    ef_axis sorted[EF_MAX_AXES];
    unsigned n = 0;
    for (unsigned i = 0; i < count; i++) {
        unsigned at = n;
        while (at > 0 && sorted[at - 1] > axes[i])
            at--;
        if (at > 0 && sorted[at - 1] == axes[i])
            continue;
        if (n == EF_MAX_AXES || axes[i] == EF_NONE)
            return EF_AXES_TOO_MANY;
        memmove(sorted + at + 1, sorted + at, (n - at) * sizeof *sorted);
        sorted[at] = axes[i];
        n++;
    }
    return ef_intern_put(ctx->axis_sets, sorted, n * sizeof *sorted, NULL);
}

unsigned ef_axes_at(const ef_ctx *ctx, ef_axes set, const ef_axis **axes)
{
    size_t size;
    *axes = ef_intern_at(ctx->axis_sets, set, &size);
    return (unsigned)(size / sizeof **axes);
}

ef_axes ef_axes_union(ef_ctx *ctx, ef_axes a, ef_axes b)
{
    if (a == b || b == 0)
        return a;
    if (a == 0)
        return b;
    const ef_axis *x, *y;
    unsigned nx = ef_axes_at(ctx, a, &x), ny = ef_axes_at(ctx, b, &y);
    ef_axis both[2 * EF_MAX_AXES];
    memcpy(both, x, nx * sizeof *x);
    memcpy(both + nx, y, ny * sizeof *y);
    return ef_axes_intern(ctx, both, nx + ny);
}

bool ef_axes_has(const ef_ctx *ctx, ef_axes set, ef_axis axis)
{
    const ef_axis *axes;
    for (unsigned i = 0, n = ef_axes_at(ctx, set, &axes); i < n; i++)
        if (axes[i] == axis)
            return true;
    return false;
}

ef_axes ef_axes_minus(ef_ctx *ctx, ef_axes a, ef_axes b)
{
    if (a == 0 || b == 0)
        return a;
    const ef_axis *x;
    ef_axis rest[EF_MAX_AXES];
    unsigned n = 0;
    for (unsigned i = 0, nx = ef_axes_at(ctx, a, &x); i < nx; i++)
        if (!ef_axes_has(ctx, b, x[i]))
            rest[n++] = x[i];
    return ef_axes_intern(ctx, rest, n);
}

bool ef_axes_subset(const ef_ctx *ctx, ef_axes inner, ef_axes outer)
{
    const ef_axis *x;
    for (unsigned i = 0, n = ef_axes_at(ctx, inner, &x); i < n; i++)
        if (!ef_axes_has(ctx, outer, x[i]))
            return false;
    return true;
}

/* ---- types ---- */

ef_type ef_type_intern(ef_ctx *ctx, const ef_type_info *info)
{
    return ef_intern_put(ctx->types, info, sizeof *info, NULL);
}

const ef_type_info *ef_type_at(const ef_ctx *ctx, ef_type type)
{
    return ef_intern_at(ctx->types, type, NULL);
}

ef_type ef_type_tensor(ef_ctx *ctx, ef_dtype dtype, const ef_dim *outermost_first, unsigned rank)
{
    ef_type_info info = {.dtype = (uint8_t)dtype, .rank = (uint8_t)rank};
    for (unsigned i = 0; i < rank; i++)
        info.dim[i] = outermost_first[rank - 1 - i];
    return ef_type_intern(ctx, &info);
}

ef_type ef_type_tuple(ef_ctx *ctx, const ef_type *fields, unsigned count)
{
    ef_type_info info = {.is_tuple = 1, .fields = (uint8_t)count};
    for (unsigned i = 0; i < count; i++)
        info.field[i] = fields[i];
    return ef_type_intern(ctx, &info);
}

bool ef_type_is_literal(const ef_ctx *ctx, ef_type type)
{
    const ef_type_info *info = ef_type_at(ctx, type);
    return !info->is_tuple && info->dtype == EF_NUM && info->rank == 0 && info->places == 0;
}

const ef_place *ef_type_place(const ef_type_info *info, ef_axis axis)
{
    for (unsigned i = 0; i < info->places; i++)
        if (info->place[i].axis == axis)
            return &info->place[i];
    return NULL;
}

ef_axes ef_type_axes(ef_ctx *ctx, ef_type type)
{
    const ef_type_info *info = ef_type_at(ctx, type);
    ef_axes set = 0;
    if (info->is_tuple) {
        for (unsigned i = 0; i < info->fields; i++)
            set = ef_axes_union(ctx, set, ef_type_axes(ctx, info->field[i]));
        return set;
    }
    ef_axis axes[EF_MAX_PLACES];
    for (unsigned i = 0; i < info->places; i++)
        axes[i] = info->place[i].axis;
    return ef_axes_intern(ctx, axes, info->places);
}

bool ef_type_cut(const ef_ctx *ctx, const ef_type_info *info, ef_axis axis, ef_place *place)
{
    ef_var var = ef_axis_var(axis);
    *place = (ef_place){axis, EF_REPLICATE, 0};
    for (unsigned i = 0; i < info->rank; i++) {
        const ef_var *atoms;
        unsigned n = ef_dim_atoms(ctx, info->dim[i], &atoms);
        for (unsigned a = 0; a < n; a++) {
            if (atoms[a] != var)
                continue;
            if (a > 0 || place->kind == EF_PARTITION)
                return false;
            place->kind = EF_PARTITION;
            place->dim = (uint16_t)i;
        }
    }
    return true;
}

ef_axes ef_type_cutting(ef_ctx *ctx, ef_axes axes, ef_type type)
{
    const ef_type_info *t = ef_type_at(ctx, type);
    const ef_axis *axis;
    ef_axis kept[EF_MAX_AXES];
    unsigned count = 0;
    ef_place place;
    ef_axes all = 0;
    for (unsigned i = 0; i < t->fields; i++)
        all = ef_axes_union(ctx, all, ef_type_cutting(ctx, axes, t->field[i]));
    if (t->is_tuple)
        return all;
    for (unsigned i = 0, n = ef_axes_at(ctx, axes, &axis); i < n; i++)
        if (ef_type_cut(ctx, t, axis[i], &place) && place.kind == EF_PARTITION)
            kept[count++] = axis[i];
    return ef_axes_intern(ctx, kept, count);
}

/* ---- inputs ---- */

uint32_t ef_input_declare(ef_ctx *ctx, const char *name, unsigned length, ef_type type, ef_diag *diag)
{
    int fresh;
    uint32_t input = ef_intern_put(ctx->input_names, name, length, &fresh);
    if (fresh) {
        ef_input_info info = {ef_arena_strndup(ctx->arena, name, length), type};
        ef_vec_push(&ctx->inputs, info);
    } else if (ctx->inputs.at[input].type != type) {
        ef_fail(diag, "input %.*s has another type than where it was declared first", (int)length, name);
        return EF_NONE;
    }
    return input;
}

uint32_t ef_input_find(const ef_ctx *ctx, const char *name, unsigned length)
{
    return ef_intern_find(ctx->input_names, name, length);
}

const char *ef_input_name(const ef_ctx *ctx, uint32_t input)
{
    return ctx->inputs.at[input].name;
}

ef_type ef_input_type(const ef_ctx *ctx, uint32_t input)
{
    return ctx->inputs.at[input].type;
}

/* ---- printing ---- */

void ef_var_print(const ef_ctx *ctx, ef_var var, ef_strbuf *out)
{
    const ef_var_info *info = &ctx->vars.at[var];
    const ef_var *atoms;
    const ef_dim *parts;
    bool product;
    switch (info->kind) {
    case EF_VAR_NAMED: ef_strbuf_puts(out, info->name); break;
    case EF_VAR_SLICE:
        product = ef_dim_atoms(ctx, info->parent, &atoms) != 1;
        ef_strbuf_puts(out, product ? "(" : "");
        ef_dim_print(ctx, info->parent, out);
        ef_strbuf_printf(out, "%s[%u:%u]", product ? ")" : "", info->start, info->stop);
        break;
    case EF_VAR_CONCAT:
        for (unsigned i = 0, n = ef_dims_at(ctx, info->parts, &parts); i < n; i++) {
            ef_strbuf_puts(out, i ? " + " : "(");
            ef_dim_print(ctx, parts[i], out);
        }
        ef_strbuf_puts(out, ")");
        break;
    case EF_VAR_JOINED: ef_dim_print(ctx, info->parent, out); break;
    case EF_VAR_TWIN:
        ef_dim_print(ctx, info->parent, out);
        ef_strbuf_puts(out, "'");
        break;
    case EF_VAR_COUNT:
        ef_strbuf_puts(out, "|");
        ef_axis_print(ctx, info->axis, out);
        ef_strbuf_puts(out, "|");
        break;
    }
}

void ef_dim_print(const ef_ctx *ctx, ef_dim dim, ef_strbuf *out)
{
    const ef_var *atoms;
    unsigned n = ef_dim_atoms(ctx, dim, &atoms);
    if (n == 0)
        ef_strbuf_puts(out, "1");
    for (unsigned i = 0; i < n; i++) {
        ef_strbuf_puts(out, i ? "*" : "");
        ef_var_print(ctx, atoms[i], out);
    }
}

void ef_axis_print(const ef_ctx *ctx, ef_axis axis, ef_strbuf *out)
{
    ef_var_print(ctx, ef_axis_var(axis), out);
    ef_strbuf_printf(out, ".%u", ef_axis_level(axis));
}

void ef_type_print(const ef_ctx *ctx, ef_type type, ef_strbuf *out)
{
    static const char *const kinds[] = {"partition", "replicate", "partial"};
    const ef_type_info *info = ef_type_at(ctx, type);
    if (info->is_tuple) {
        ef_strbuf_puts(out, "(");
        for (unsigned i = 0; i < info->fields; i++) {
            ef_strbuf_puts(out, i ? ", " : "");
            ef_type_print(ctx, info->field[i], out);
        }
        ef_strbuf_puts(out, ")");
        return;
    }
    ef_strbuf_printf(out, "%s[", ef_dtype_names[info->dtype]);
    for (unsigned i = info->rank; i-- > 0;) {
        ef_dim_print(ctx, info->dim[i], out);
        ef_strbuf_puts(out, i ? ", " : "");
    }
    ef_strbuf_puts(out, "]");
    for (unsigned i = 0; i < info->places; i++) {
        const ef_place *p = &info->place[i];
        ef_strbuf_puts(out, i ? ", " : " {");
        ef_axis_print(ctx, p->axis, out);
        ef_strbuf_printf(out, ": %s", kinds[p->kind]);
        if (p->kind == EF_PARTITION)
            ef_strbuf_printf(out, "(-%u)", p->dim + 1u);
    }
    ef_strbuf_puts(out, info->places ? "}" : "");
}
