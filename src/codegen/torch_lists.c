/* What a caller of printed PyTorch source must know: see torch.h for INPUTS, OUTPUTS and BATCH.
 *
 * A dimension is in BATCH when no operator mixes positions along it or knows which one it is at: then every piece along
 * it can be computed by itself. */
#include <inttypes.h>

#include "codegen/torch_print.h"

static void print_signature(const ef_torch *p, const char *title, const char *name, ef_type id)
{
    const ef_type_info *type = ef_type_at(p->ctx, id);
    if (title)
        ef_strbuf_printf(p->out, "%s = [\n", title);
    ef_strbuf_printf(p->out, "    (\"%s\", \"%s\", (", name,
                     type->dtype == EF_NUM ? "f32" : ef_dtype_names[type->dtype]);
    for (unsigned d = type->rank; d-- > 0;)
        ef_strbuf_printf(p->out, "%" PRIu64 "%s", ef_dim_extent(p->ctx, type->dim[d]),
                         d || type->rank == 1 ? ", " : "");
    ef_strbuf_puts(p->out, ")),\n");
}

static void print_signatures(const ef_torch *p)
{
    for (uint32_t i = 0; i < p->program->inputs; i++)
        print_signature(p, i ? NULL : "INPUTS", ef_input_name(p->ctx, p->program->input[i]),
                        ef_input_type(p->ctx, p->program->input[i]));
    ef_strbuf_puts(p->out, p->program->inputs ? "]\n" : "INPUTS = []\n");
    for (uint32_t i = 0; i < p->program->outputs; i++)
        print_signature(p, i ? NULL : "OUTPUTS", p->program->output[i].name,
                        ef_dag_type(p->dag, p->program->output[i].expr));
    ef_strbuf_puts(p->out, "]\n");
}

static bool dim_has(const ef_torch *p, ef_dim dim, ef_var var)
{
    const ef_var *atom;
    for (unsigned i = 0, count = ef_dim_atoms(p->ctx, dim, &atom); i < count; i++)
        if (atom[i] == var)
            return true;
    return false;
}

/* Whether a part, a twin or the like of the variable stands in the dimension. */
static bool dim_derives(const ef_torch *p, ef_dim dim, ef_var var)
{
    const ef_var *atom;
    for (unsigned i = 0, count = ef_dim_atoms(p->ctx, dim, &atom); i < count; i++) {
        const ef_var_info *info = ef_var_at(p->ctx, atom[i]);
        const ef_dim *part = &info->parent;
        unsigned parts = info->kind == EF_VAR_CONCAT  ? ef_dims_at(p->ctx, info->parts, &part)
                         : info->kind == EF_VAR_NAMED ? 0
                                                      : 1;
        for (unsigned k = 0; k < parts; k++)
            if (dim_has(p, part[k], var) || dim_derives(p, part[k], var))
                return true;
    }
    return false;
}

/* Whether a node mixes positions along the variable, or knows which one it is at. */
static bool mixes(const ef_torch *p, ef_expr e, ef_var var)
{
    const ef_expr *child;
    unsigned count = ef_dag_children(p->dag, e, &child);
    uint64_t attr = ef_dag_attr(p->dag, e);
    for (unsigned d = 0; d < ef_torch_type(p, e)->rank; d++)
        if (dim_derives(p, ef_torch_type(p, e)->dim[d], var))
            return true;
    switch (ef_dag_op(p->dag, e)) {
    case EF_IOTA: return dim_has(p, (ef_dim)attr, var);
    case EF_MATMUL: return dim_has(p, ef_torch_type(p, child[0])->dim[0], var);
    case EF_REDUCE: return dim_has(p, ef_torch_type(p, child[0])->dim[ef_attr_reduce_at(attr)], var);
    case EF_SLICE: return dim_has(p, ef_torch_type(p, child[0])->dim[ef_slice_index(attr)], var);
    case EF_CONCAT:
        for (unsigned i = 0; i < count; i++)
            if (dim_has(p, ef_torch_type(p, child[i])->dim[attr], var))
                return true;
        return false;
    default: return false;
    }
}

/* Where the variable alone is a dimension of the type, from the first; -1 nowhere, -2 not so simple. */
static int place_of(const ef_torch *p, ef_type id, ef_var var)
{
    const ef_type_info *type = ef_type_at(p->ctx, id);
    const ef_var *atom;
    int place = type->is_tuple ? -2 : -1;
    for (unsigned d = 0; d < type->rank; d++)
        if (dim_has(p, type->dim[d], var))
            place = place == -1 && ef_dim_atoms(p->ctx, type->dim[d], &atom) == 1 ? (int)(type->rank - 1 - d) : -2;
    return place;
}

static bool is_batch(const ef_torch *p, ef_var var)
{
    if (ef_var_at(p->ctx, var)->kind != EF_VAR_NAMED)
        return false;
    for (ef_expr e = 0; e < ef_dag_count(p->dag); e++)
        if (p->node[e].uses && mixes(p, e, var))
            return false;
    for (uint32_t i = 0; i < p->program->inputs; i++)
        if (place_of(p, ef_input_type(p->ctx, p->program->input[i]), var) == -2)
            return false;
    for (uint32_t i = 0; i < p->program->outputs; i++)
        if (place_of(p, ef_dag_type(p->dag, p->program->output[i].expr), var) < 0)
            return false;
    return true;
}

static void print_batches(const ef_torch *p)
{
    ef_strbuf_puts(p->out, "BATCH = {\n");
    for (ef_var var = 0; var < ef_var_count(p->ctx); var++) {
        if (!is_batch(p, var))
            continue;
        ef_strbuf_printf(p->out, "    \"%s\": ([", ef_var_at(p->ctx, var)->name);
        for (uint32_t i = 0; i < p->program->inputs; i++) {
            int place = place_of(p, ef_input_type(p->ctx, p->program->input[i]), var);
            ef_strbuf_puts(p->out, i ? ", " : "");
            if (place < 0)
                ef_strbuf_puts(p->out, "None");
            else
                ef_strbuf_printf(p->out, "%d", place);
        }
        ef_strbuf_puts(p->out, "], [");
        for (uint32_t i = 0; i < p->program->outputs; i++)
            ef_strbuf_printf(p->out, "%s%d", i ? ", " : "",
                             place_of(p, ef_dag_type(p->dag, p->program->output[i].expr), var));
        ef_strbuf_puts(p->out, "]),\n");
    }
    ef_strbuf_puts(p->out, "}\n");
}

void ef_torch_lists(const ef_torch *p)
{
    print_signatures(p);
    print_batches(p);
}
