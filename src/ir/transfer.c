/* Expressions under other dimensions and in other contexts: see transfer.h. */
#include "ir/transfer.h"

#include <string.h>

#include "ir/context.h"

/* ---- copies of contexts ---- */

static void copy_table(ef_intern *to, const ef_intern *from)
{
    for (uint32_t id = ef_intern_count(to); id < ef_intern_count(from); id++) {
        size_t size;
        const void *bytes = ef_intern_at(from, id, &size);
        ef_intern_put(to, bytes, size, NULL);
    }
}

static const char *copy_name(ef_arena *arena, const char *name)
{
    return name ? ef_arena_strndup(arena, name, strlen(name)) : NULL;
}

ef_ctx *ef_ctx_copy(const ef_ctx *ctx)
{
    ef_ctx *copy = ef_ctx_new(); /* has the first ids of every context */
    ef_intern *to[] = {copy->var_names, copy->derived,     copy->dims,     copy->dim_lists, copy->axis_sets,
                       copy->types,     copy->input_names, copy->reducers, copy->scalars};
    const ef_intern *from[] = {ctx->var_names, ctx->derived,     ctx->dims,     ctx->dim_lists, ctx->axis_sets,
                               ctx->types,     ctx->input_names, ctx->reducers, ctx->scalars};
    for (unsigned i = 0; i < sizeof to / sizeof *to; i++)
        copy_table(to[i], from[i]);
    for (uint32_t i = 0; i < ctx->vars.count; i++) {
        ef_var_info info = ctx->vars.at[i];
        info.name = copy_name(copy->arena, info.name);
        ef_vec_push(&copy->vars, info);
    }
    for (uint32_t i = 0; i < ctx->named.count; i++)
        ef_vec_push(&copy->named, ctx->named.at[i]);
    for (uint32_t i = 0; i < ctx->derived_vars.count; i++)
        ef_vec_push(&copy->derived_vars, ctx->derived_vars.at[i]);
    for (uint32_t i = 0; i < ctx->inputs.count; i++) {
        const ef_input_info *input = &ctx->inputs.at[i];
        ef_vec_push(&copy->inputs, ((ef_input_info){copy_name(copy->arena, input->name), input->type}));
    }
    return copy;
}

/* ---- dimensions ---- */

#define MOST_DIMS (EF_MAX_FIELDS + EF_MAX_RANK) /* of a list */

static ef_dim rename_dim(const ef_renaming *r, ef_dim dim);

static ef_dims rename_dims(const ef_renaming *r, ef_dims list)
{
    const ef_dim *dims;
    ef_dim renamed[MOST_DIMS];
    unsigned n = ef_dims_at(r->from, list, &dims);
    if (n > MOST_DIMS)
        return EF_NONE;
    for (unsigned i = 0; i < n; i++)
        if ((renamed[i] = rename_dim(r, dims[i])) == EF_NONE)
            return EF_NONE;
    return ef_dims_intern(r->to, renamed, n);
}

static ef_axis rename_axis(const ef_renaming *r, ef_axis axis);

static ef_dim concat_of(const ef_renaming *r, ef_dims list)
{
    const ef_dim *parts;
    ef_dim part[MOST_DIMS];
    ef_dims renamed = rename_dims(r, list);
    if (renamed == EF_NONE)
        return EF_NONE;
    unsigned n = ef_dims_at(r->to, renamed, &parts);
    memcpy(part, parts, n * sizeof *part);
    return ef_dim_concat(r->to, part, n);
}

static ef_dim joined_of(const ef_renaming *r, ef_dim parent)
{
    const ef_var *atoms;
    ef_dim dim = rename_dim(r, parent);
    if (dim == EF_NONE)
        return EF_NONE;
    unsigned n = ef_dim_atoms(r->to, dim, &atoms);
    return ef_dim_of_var(r->to, ef_var_joined(r->to, atoms, n));
}

/* The dimension that a variable becomes: a variable, or none. */
static ef_dim rename_var(const ef_renaming *r, ef_var var)
{
    const ef_var_info info = *ef_var_at(r->from, var);
    ef_dim parent;
    ef_axis axis;
    switch (info.kind) {
    case EF_VAR_SLICE:
        parent = rename_dim(r, info.parent);
        return parent == EF_NONE ? EF_NONE : ef_dim_slice(r->to, parent, info.start, info.stop);
    case EF_VAR_TWIN:
        parent = rename_dim(r, info.parent);
        return parent == EF_NONE ? EF_NONE : ef_dim_twin(r->to, parent);
    case EF_VAR_COUNT: axis = rename_axis(r, info.axis); return axis == EF_NONE ? EF_NONE : ef_dim_count(r->to, axis);
    case EF_VAR_CONCAT: return concat_of(r, info.parts);
    case EF_VAR_JOINED: return joined_of(r, info.parent);
    case EF_VAR_NAMED: break;
    }
    for (uint32_t i = 0; i < r->vars; i++)
        if (r->from_var[i] == var)
            return ef_dim_of_var(r->to, r->to_var[i]);
    ef_var there = ef_var_find(r->to, info.name, (unsigned)strlen(info.name));
    return there == EF_NONE ? EF_NONE : ef_dim_of_var(r->to, there);
}

static ef_dim rename_dim(const ef_renaming *r, ef_dim dim)
{
    const ef_var *atoms, *one;
    ef_var renamed[EF_MAX_ATOMS];
    unsigned n = ef_dim_atoms(r->from, dim, &atoms);
    for (unsigned i = 0; i < n; i++) {
        ef_dim d = rename_var(r, atoms[i]);
        if (d == EF_NONE || ef_dim_atoms(r->to, d, &one) != 1)
            return EF_NONE;
        renamed[i] = one[0];
    }
    return ef_dim_product(r->to, renamed, n);
}

static ef_axis rename_axis(const ef_renaming *r, ef_axis axis)
{
    const ef_var *one;
    ef_dim d = rename_var(r, ef_axis_var(axis));
    if (d == EF_NONE || ef_dim_atoms(r->to, d, &one) != 1)
        return EF_NONE;
    return ef_axis_of(one[0], ef_axis_level(axis));
}

static ef_axes rename_axes(const ef_renaming *r, ef_axes set)
{
    const ef_axis *axes;
    ef_axis renamed[EF_MAX_AXES];
    if (set == EF_AXES_TOO_MANY)
        return EF_NONE;
    unsigned n = ef_axes_at(r->from, set, &axes);
    for (unsigned i = 0; i < n; i++)
        if ((renamed[i] = rename_axis(r, axes[i])) == EF_NONE)
            return EF_NONE;
    return ef_axes_intern(r->to, renamed, n);
}

/* ---- reducers ---- */

static ef_scalar transfer_scalar(const ef_renaming *r, ef_scalar scalar)
{
    const ef_scalar_info *info = ef_scalar_at(r->from, scalar);
    ef_scalar operand[3] = {0};
    switch (info->kind) {
    case EF_SCALAR_CONST: return ef_scalar_const(r->to, info->value);
    case EF_SCALAR_PARAM: return ef_scalar_param(r->to, info->param, info->index);
    case EF_SCALAR_APPLY: break;
    }
    for (unsigned i = 0; i < info->operands; i++)
        operand[i] = transfer_scalar(r, info->operand[i]);
    return ef_scalar_apply(r->to, info->op, operand);
}

static ef_reducer transfer_reducer(const ef_renaming *r, ef_reducer reducer)
{
    const ef_reducer_info *info = ef_reducer_at(r->from, reducer);
    ef_scalar h[EF_MAX_LEAVES];
    if (r->from == r->to || info->leaves == 1)
        return reducer; /* the base reducers have the same ids everywhere */
    ef_reducer left = transfer_reducer(r, info->left), right = transfer_reducer(r, info->right);
    if (info->kind == EF_RED_PRODUCT)
        return ef_reducer_product(r->to, left, right);
    for (unsigned i = 0; i < info->terms; i++)
        h[i] = transfer_scalar(r, info->h[i]);
    return ef_reducer_repaired(r->to, left, right, h);
}

/* ---- expressions ---- */

bool ef_attr_rename(const ef_renaming *r, ef_op op, uint64_t *attr)
{
    uint32_t id = (uint32_t)*attr, at = ef_attr_reduce_at(*attr);
    switch (ef_ops[op].attr) {
    case EF_ATTR_DIM: *attr = id = rename_dim(r, id); break;
    case EF_ATTR_DIMS: *attr = id = rename_dims(r, id); break;
    case EF_ATTR_AXES: *attr = id = rename_axes(r, id); break;
    case EF_ATTR_AXIS: *attr = id = rename_axis(r, id); break;
    case EF_ATTR_REDUCE: *attr = ef_attr_reduce(transfer_reducer(r, ef_attr_reducer(*attr)), at); return true;
    case EF_ATTR_REDUCE_P:
        id = rename_axis(r, at);
        *attr = ef_attr_reduce(transfer_reducer(r, ef_attr_reducer(*attr)), id);
        break;
    default: return true;
    }
    return id != EF_NONE;
}

static bool transfer_attr(const ef_renaming *r, ef_op op, uint64_t *attr, ef_diag *diag)
{
    if (op != EF_INPUT)
        return ef_attr_rename(r, op, attr) || ef_fail(diag, "a dimension of %s is not known there", ef_ops[op].name);
    const char *name = ef_input_name(r->from, (uint32_t)*attr);
    *attr = ef_input_find(r->to, name, (unsigned)strlen(name));
    return (uint32_t)*attr != EF_NONE || ef_fail(diag, "input %s is not known there", name);
}

ef_dag *ef_dag_transfer(const ef_dag *dag, ef_ctx *to, ef_diag *diag)
{
    ef_renaming r = {.from = ef_dag_ctx(dag), .to = to};
    ef_dag *result = ef_dag_new(to);
    for (ef_expr e = 0; e < ef_dag_count(dag); e++) {
        const ef_expr *child;
        ef_op op = ef_dag_op(dag, e);
        uint64_t attr = ef_dag_attr(dag, e);
        unsigned n = ef_dag_children(dag, e, &child);
        bool fine = transfer_attr(&r, op, &attr, diag);
        if (fine && ef_dag_add_exact(result, op, attr, child, n, diag) != e)
            fine = ef_fail(diag, "%s is another expression there", ef_ops[op].name);
        if (!fine) {
            ef_dag_free(result);
            return NULL;
        }
    }
    return result;
}
