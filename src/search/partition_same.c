/* Parts that are the same up to the names of their inputs and dimensions, and going from one to another: see
 * partition.h. */
#include <string.h>

#include "ir/transfer.h"
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

static ef_expr translate(const ef_part_translation *t, const ef_dag *dag, ef_expr e, ef_expr *made, ef_diag *diag)
{
    const ef_renaming renaming = {ef_dag_ctx(dag), ef_dag_ctx(t->to), t->vars, t->from_var, t->to_var};
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
    if (ef_attr_rename(&renaming, op, &attr))
        return made[e] = ef_dag_add(t->to, op, attr, operand, n, diag);
    ef_fail(diag, "a dimension of %s cannot be that of another part", ef_ops[op].name);
    return EF_NONE;
}

ef_expr ef_part_translate(const ef_part_translation *t, const ef_dag *dag, ef_expr e, ef_diag *diag)
{
    ef_expr *made = ef_xcalloc(e + 1, sizeof *made);
    memset(made, 0xff, (e + 1) * sizeof *made);
    ef_expr result = translate(t, dag, e, made, diag);
    free(made);
    return result;
}
