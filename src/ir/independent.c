/* Independent dimensions: see independent.h. */
#include "ir/independent.h"

#include <stdlib.h>
#include <string.h>

#include "support/arena.h"
#include "support/vec.h"

bool *ef_program_needed(const ef_program *program)
{
    const ef_expr *child;
    bool *needed = ef_xcalloc(ef_dag_count(program->dag) + 1, sizeof *needed);
    for (uint32_t i = 0; i < program->outputs; i++)
        needed[program->output[i].expr] = true;
    for (ef_expr e = ef_dag_count(program->dag); e-- > 0;)
        for (unsigned i = 0, n = needed[e] ? ef_dag_children(program->dag, e, &child) : 0; i < n; i++)
            needed[child[i]] = true;
    return needed;
}

/* Whether a part, a twin or the like of the variable stands in the dimension. */
static bool dim_derives(const ef_ctx *ctx, ef_dim dim, ef_var var)
{
    const ef_var *atom;
    for (unsigned i = 0, count = ef_dim_atoms(ctx, dim, &atom); i < count; i++) {
        const ef_var_info *info = ef_var_at(ctx, atom[i]);
        const ef_dim *part = &info->parent;
        unsigned parts = info->kind == EF_VAR_CONCAT  ? ef_dims_at(ctx, info->parts, &part)
                         : info->kind == EF_VAR_NAMED ? 0
                                                      : 1;
        for (unsigned k = 0; k < parts; k++)
            if (ef_dim_has(ctx, part[k], var) || dim_derives(ctx, part[k], var))
                return true;
    }
    return false;
}

static const ef_type_info *type_of(const ef_program *p, ef_expr e)
{
    return ef_type_at(ef_dag_ctx(p->dag), ef_dag_type(p->dag, e));
}

/* Positions that an iota counts are the variable's own, or it cannot be told which they are. */
static bool iota_mixes(const ef_ctx *ctx, ef_dim dim, ef_var var, bool indexed)
{
    const ef_var *atom;
    return ef_dim_has(ctx, dim, var) && !(indexed && ef_dim_atoms(ctx, dim, &atom) == 1);
}

/* Whether a node mixes positions along the variable, or knows which one it is at and may not. */
static bool mixes(const ef_program *p, ef_expr e, ef_var var, bool indexed)
{
    const ef_ctx *ctx = ef_dag_ctx(p->dag);
    const ef_expr *child;
    unsigned count = ef_dag_children(p->dag, e, &child);
    uint64_t attr = ef_dag_attr(p->dag, e);
    for (unsigned d = 0; d < type_of(p, e)->rank; d++)
        if (dim_derives(ctx, type_of(p, e)->dim[d], var))
            return true;
    switch (ef_dag_op(p->dag, e)) {
    case EF_IOTA: return iota_mixes(ctx, (ef_dim)attr, var, indexed);
    case EF_MATMUL: return ef_dim_has(ctx, type_of(p, child[0])->dim[0], var);
    case EF_REDUCE: return ef_dim_has(ctx, type_of(p, child[0])->dim[ef_attr_reduce_at(attr)], var);
    case EF_SLICE: return ef_dim_has(ctx, type_of(p, child[0])->dim[ef_slice_index(attr)], var);
    case EF_CONCAT:
        for (unsigned i = 0; i < count; i++)
            if (ef_dim_has(ctx, type_of(p, child[i])->dim[attr], var))
                return true;
        return false;
    default: return false;
    }
}

int ef_independent_place(const ef_ctx *ctx, ef_type type, ef_var var)
{
    const ef_type_info *info = ef_type_at(ctx, type);
    const ef_var *atom;
    int place = info->is_tuple ? -2 : -1;
    for (unsigned d = 0; d < info->rank; d++)
        if (ef_dim_has(ctx, info->dim[d], var))
            place = place == -1 && ef_dim_atoms(ctx, info->dim[d], &atom) == 1 ? (int)(info->rank - 1 - d) : -2;
    return place;
}

bool ef_independent(const ef_program *p, const bool *needed, ef_var var, bool indexed)
{
    const ef_ctx *ctx = ef_dag_ctx(p->dag);
    if (ef_var_at(ctx, var)->kind != EF_VAR_NAMED)
        return false;
    for (ef_expr e = 0; e < ef_dag_count(p->dag); e++)
        if (needed[e] && mixes(p, e, var, indexed))
            return false;
    for (uint32_t i = 0; i < p->inputs; i++)
        if (ef_independent_place(ctx, ef_input_type(ctx, p->input[i]), var) == -2)
            return false;
    for (uint32_t i = 0; i < p->outputs; i++)
        if (ef_independent_place(ctx, ef_dag_type(p->dag, p->output[i].expr), var) < 0)
            return false;
    return true;
}

static bool is_matrix(const ef_ctx *ctx, uint32_t input)
{
    const ef_type_info *type = ef_type_at(ctx, ef_input_type(ctx, input));
    return !type->is_tuple && type->rank == 2 && ef_dtype_is_float((ef_dtype)type->dtype);
}

/* Whether all variables of `dim` stand in the input's shape. */
static bool is_own(const ef_ctx *ctx, uint32_t input, ef_dim dim)
{
    const ef_type_info *type = ef_type_at(ctx, ef_input_type(ctx, input));
    const ef_var *atom;
    unsigned found = 0, count = ef_dim_atoms(ctx, dim, &atom);
    for (unsigned i = 0; i < count; i++)
        found += ef_dim_has(ctx, type->dim[0], atom[i]) || ef_dim_has(ctx, type->dim[1], atom[i]);
    return found == count;
}

/* Sets the fan-in of the matrices that `second`, which is contracted along `along`, grows with. */
static void contract(const ef_program *p, ef_expr second, ef_dim along, bool *reached, ef_dim *fan_in)
{
    const ef_dag *dag = p->dag;
    memset(reached, 0, (second + 1) * sizeof *reached);
    reached[second] = true;
    for (ef_expr e = second + 1; e-- > 0;) {
        const ef_expr *child;
        ef_op op = ef_dag_op(dag, e);
        unsigned n = ef_dag_children(dag, e, &child);
        bool through = ef_op_pointwise(op) || ef_ops[op].class == EF_SHAPE || ef_ops[op].class == EF_PARALLEL;
        unsigned until = through ? n : op == EF_MATMUL || op == EF_TILE_MATMUL ? 1 : 0;
        for (unsigned i = 0; reached[e] && i < until; i++)
            reached[child[i]] = true;
        for (uint32_t i = 0; reached[e] && op == EF_INPUT && i < p->inputs; i++)
            if (p->input[i] == ef_dag_attr(dag, e) && fan_in[i] == EF_UNIT && is_matrix(ef_dag_ctx(dag), p->input[i]) &&
                is_own(ef_dag_ctx(dag), p->input[i], along))
                fan_in[i] = along;
    }
}

void ef_program_fan_in(const ef_program *program, ef_dim *fan_in)
{
    uint32_t count = ef_dag_count(program->dag);
    bool *reached = ef_xcalloc(count + 1, sizeof *reached);
    for (uint32_t i = 0; i < program->inputs; i++)
        fan_in[i] = EF_UNIT;
    for (ef_expr e = 0; e < count; e++) {
        const ef_expr *child;
        ef_op op = ef_dag_op(program->dag, e);
        ef_dag_children(program->dag, e, &child);
        if (op == EF_MATMUL || op == EF_TILE_MATMUL)
            contract(program, child[1], ef_dim_base(ef_dag_ctx(program->dag), type_of(program, child[1])->dim[1]),
                     reached, fan_in);
    }
    free(reached);
}

uint64_t ef_program_summed(const ef_program *program)
{
    const ef_dag *dag = program->dag;
    uint32_t count = ef_dag_count(dag);
    uint64_t *reads = ef_xcalloc(count + 1, sizeof *reads), summed = 0; /* by expression: inputs */
    for (ef_expr e = 0; e < count; e++) {
        const ef_expr *child;
        ef_op op = ef_dag_op(dag, e);
        unsigned n = ef_dag_children(dag, e, &child);
        for (uint32_t i = 0; i < program->inputs && i < 64 && op == EF_INPUT; i++)
            if (program->input[i] == ef_dag_attr(dag, e))
                reads[e] = UINT64_C(1) << i;
        for (unsigned i = 0; i < n && (ef_op_pointwise(op) || ef_ops[op].class == EF_SHAPE); i++)
            reads[e] |= reads[child[i]];
        if (op == EF_REDUCE && ef_attr_reducer(ef_dag_attr(dag, e)) == EF_RED_SUM)
            summed |= reads[child[0]];
    }
    free(reads);
    return summed;
}
