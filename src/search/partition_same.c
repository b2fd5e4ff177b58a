/* Parts that are the same up to the names of their inputs and dimensions, and going from one to another: see
 * partition.h. */
#include <string.h>

#include "search/partition.h"
#include "support/hash.h"

/* ---- description ---- */

typedef struct {
    const ef_dag *dag;
    ef_ctx *ctx;
    ef_strbuf *out;
    ef_var *var;
    uint32_t vars, most;
    uint32_t *number; /* by expression: 1 + its number */
    uint32_t numbers, inputs;
} describer;

static void describe_dim(describer *d, ef_dim dim);

static void describe_var(describer *d, ef_var var)
{
    const ef_var_info *info = ef_var_at(d->ctx, var);
    const ef_dim *parts;
    uint32_t i = 0;
    switch (info->kind) {
    case EF_VAR_SLICE:
        ef_strbuf_printf(d->out, "[%u:%u", info->start, info->stop);
        describe_dim(d, info->parent);
        break;
    case EF_VAR_TWIN:
        ef_strbuf_puts(d->out, "'");
        describe_dim(d, info->parent);
        break;
    case EF_VAR_CONCAT:
        ef_strbuf_puts(d->out, "(");
        for (unsigned k = 0, n = ef_dims_at(d->ctx, info->parts, &parts); k < n; k++)
            describe_dim(d, parts[k]);
        ef_strbuf_puts(d->out, ")");
        break;
    case EF_VAR_JOINED: describe_dim(d, info->parent); break;              /* not in a program */
    case EF_VAR_COUNT: ef_strbuf_printf(d->out, "|%u", info->axis); break; /* not in a program that is not tiled */
    case EF_VAR_NAMED:
        while (i < d->vars && i < d->most && d->var[i] != var)
            i++;
        if (i == d->vars) {
            if (i < d->most)
                d->var[i] = var;
            d->vars++;
            ef_strbuf_printf(d->out, "=%llu", (unsigned long long)info->extent);
        }
        ef_strbuf_printf(d->out, "d%u", i);
        break;
    }
}

static void describe_dim(describer *d, ef_dim dim)
{
    const ef_var *atoms;
    for (unsigned i = 0, n = ef_dim_atoms(d->ctx, dim, &atoms); i < n; i++)
        describe_var(d, atoms[i]);
    ef_strbuf_puts(d->out, ",");
}

static void describe_attr(describer *d, ef_op op, uint64_t attr)
{
    const ef_dim *dims;
    switch (ef_ops[op].attr) {
    case EF_ATTR_DIM: describe_dim(d, (ef_dim)attr); break;
    case EF_ATTR_DIMS:
        for (unsigned i = 0, n = ef_dims_at(d->ctx, (ef_dims)attr, &dims); i < n; i++)
            describe_dim(d, dims[i]);
        break;
    default: ef_strbuf_printf(d->out, "%llx", (unsigned long long)attr); break;
    }
}

static void describe(describer *d, ef_expr e)
{
    const ef_expr *child;
    ef_op op = ef_dag_op(d->dag, e);
    unsigned n = ef_dag_children(d->dag, e, &child);
    if (d->number[e])
        return;
    for (unsigned i = 0; i < n; i++)
        describe(d, child[i]);
    ef_strbuf_printf(d->out, "%s", ef_ops[op].name);
    if (op == EF_INPUT) { /* inputs stand in the order of their first use: that is their name here */
        const ef_type_info *t = ef_type_at(d->ctx, ef_dag_type(d->dag, e));
        ef_strbuf_printf(d->out, "%u:%u", d->inputs++, t->dtype);
        for (unsigned i = t->rank; i-- > 0;)
            describe_dim(d, t->dim[i]);
    } else {
        describe_attr(d, op, ef_dag_attr(d->dag, e));
    }
    for (unsigned i = 0; i < n; i++)
        ef_strbuf_printf(d->out, " %u", d->number[child[i]]);
    ef_strbuf_puts(d->out, "\n");
    d->number[e] = ++d->numbers;
}

void ef_part_describe(const ef_program *program, ef_strbuf *out, ef_var *var, uint32_t *vars, uint32_t most)
{
    describer d = {.dag = program->dag, .ctx = ef_dag_ctx(program->dag), .out = out, .var = var, .most = most};
    d.number = ef_xcalloc(ef_dag_count(program->dag) + 1, sizeof *d.number);
    for (uint32_t i = 0; i < program->outputs; i++) {
        describe(&d, program->output[i].expr);
        ef_strbuf_printf(out, "output %u\n", d.number[program->output[i].expr]);
    }
    *vars = d.vars;
    free(d.number);
}

/* ---- translation ---- */

static ef_dim map_dim(const ef_part_translation *t, ef_dim dim);

static ef_dims map_dims(const ef_part_translation *t, ef_dims list)
{
    ef_ctx *ctx = ef_dag_ctx(t->to);
    const ef_dim *dims;
    ef_dim mapped[EF_MAX_FIELDS + EF_MAX_RANK];
    unsigned n = ef_dims_at(ctx, list, &dims);
    if (n > EF_MAX_FIELDS + EF_MAX_RANK)
        return list;
    memcpy(mapped, dims, n * sizeof *mapped); /* interning may move the list */
    for (unsigned i = 0; i < n; i++)
        mapped[i] = map_dim(t, mapped[i]);
    return ef_dims_intern(ctx, mapped, n);
}

static ef_axis map_axis(const ef_part_translation *t, ef_axis axis);

static ef_dim map_var(const ef_part_translation *t, ef_var var)
{
    ef_ctx *ctx = ef_dag_ctx(t->to);
    const ef_var_info info = *ef_var_at(ctx, var);
    const ef_dim *parts;
    ef_dim part[EF_MAX_FIELDS];
    ef_dims list;
    unsigned n;
    switch (info.kind) {
    case EF_VAR_SLICE: return ef_dim_slice(ctx, map_dim(t, info.parent), info.start, info.stop);
    case EF_VAR_TWIN: return ef_dim_twin(ctx, map_dim(t, info.parent));
    case EF_VAR_COUNT: return ef_dim_count(ctx, map_axis(t, info.axis));
    case EF_VAR_CONCAT:
        list = map_dims(t, info.parts);
        n = ef_dims_at(ctx, list, &parts);
        memcpy(part, parts, (n < EF_MAX_FIELDS ? n : EF_MAX_FIELDS) * sizeof *part);
        return ef_dim_concat(ctx, part, n < EF_MAX_FIELDS ? n : EF_MAX_FIELDS);
    default: break;
    }
    for (uint32_t i = 0; i < t->vars; i++)
        if (t->from_var[i] == var)
            return ef_dim_of_var(ctx, t->to_var[i]);
    return ef_dim_of_var(ctx, var);
}

static ef_dim map_dim(const ef_part_translation *t, ef_dim dim)
{
    ef_ctx *ctx = ef_dag_ctx(t->to);
    const ef_var *atoms, *one;
    ef_var mapped[EF_MAX_ATOMS];
    unsigned n = ef_dim_atoms(ctx, dim, &atoms);
    memcpy(mapped, atoms, n * sizeof *mapped);
    for (unsigned i = 0; i < n; i++) {
        ef_dim d = map_var(t, mapped[i]);
        if (ef_dim_atoms(ctx, d, &one) == 1)
            mapped[i] = one[0];
    }
    return ef_dim_product(ctx, mapped, n);
}

static ef_axis map_axis(const ef_part_translation *t, ef_axis axis)
{
    const ef_var *one;
    return ef_dim_atoms(ef_dag_ctx(t->to), map_var(t, ef_axis_var(axis)), &one) == 1
               ? ef_axis_of(one[0], ef_axis_level(axis))
               : axis;
}

static ef_axes map_axes(const ef_part_translation *t, ef_axes set)
{
    ef_ctx *ctx = ef_dag_ctx(t->to);
    const ef_axis *axes;
    ef_axis mapped[EF_MAX_AXES];
    unsigned n = ef_axes_at(ctx, set, &axes);
    memcpy(mapped, axes, n * sizeof *mapped);
    for (unsigned i = 0; i < n; i++)
        mapped[i] = map_axis(t, mapped[i]);
    return ef_axes_intern(ctx, mapped, n);
}

static uint64_t map_attr(const ef_part_translation *t, ef_op op, uint64_t attr)
{
    switch (ef_ops[op].attr) {
    case EF_ATTR_DIM: return map_dim(t, (ef_dim)attr);
    case EF_ATTR_DIMS: return map_dims(t, (ef_dims)attr);
    case EF_ATTR_AXES: return map_axes(t, (ef_axes)attr);
    case EF_ATTR_AXIS: return map_axis(t, (ef_axis)attr);
    case EF_ATTR_REDUCE_P: return ef_attr_reduce(ef_attr_reducer(attr), map_axis(t, ef_attr_reduce_at(attr)));
    default: return attr;
    }
}

static ef_expr translate(const ef_part_translation *t, const ef_dag *dag, ef_expr e, ef_expr *made, ef_diag *diag)
{
    const ef_expr *child;
    ef_expr operand[EF_MAX_FIELDS];
    ef_op op = ef_dag_op(dag, e);
    uint64_t attr = ef_dag_attr(dag, e);
    if (made[e] != EF_NONE)
        return made[e];
    if (op == EF_INPUT) {
        for (uint32_t i = 0; i < t->inputs; i++)
            if (t->from_input[i] == attr)
                return made[e] = t->to_input[i];
        ef_fail(diag, "%s is no input of this part", ef_input_name(ef_dag_ctx(dag), (uint32_t)attr));
        return EF_NONE;
    }
    unsigned n = ef_dag_children(dag, e, &child);
    for (unsigned i = 0; i < n; i++)
        if ((operand[i] = translate(t, dag, child[i], made, diag)) == EF_NONE)
            return EF_NONE;
    return made[e] = ef_dag_add(t->to, op, map_attr(t, op, attr), operand, n, diag);
}

ef_expr ef_part_translate(const ef_part_translation *t, const ef_dag *dag, ef_expr e, ef_diag *diag)
{
    ef_expr *made = ef_xcalloc(e + 1, sizeof *made);
    memset(made, 0xff, (e + 1) * sizeof *made);
    ef_expr result = translate(t, dag, e, made, diag);
    free(made);
    return result;
}
