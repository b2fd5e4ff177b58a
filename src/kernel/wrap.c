/* Operators that are not tiled (design, section 7): each becomes a kernel of its own, the unfused implementation that
 * every program has. The grid cuts all output dimensions; what a matmul or a reduction contracts is a loop. Cuts are
 * given by position, so that dimensions of one variable (a square product) do not get in each other's way. */
#include <string.h>

#include "kernel/lower.h"

typedef struct {
    uint32_t cut[EF_MAX_RANK]; /* by output dimension, from the last */
    unsigned rank;
} grid;

static uint32_t cut_of(ef_lowering *l, ef_dim dim, ef_iter_kind kind, unsigned level)
{
    const ef_var *atoms;
    if (ef_dim_atoms(l->ctx, dim, &atoms) == 0 || ef_var_at(l->ctx, atoms[0])->kind == EF_VAR_COUNT)
        return EF_NONE;
    ef_iter iter = {.kind = kind, .axis = ef_axis_of(atoms[0], level), .outer = EF_NONE};
    return kind == EF_ITER_GRID ? ef_lower_iterator(l, iter) : ef_loop_open(l, iter);
}

/* Iterators from the outermost dimension inwards. */
static grid grid_of(ef_lowering *l, const ef_dim *dim, unsigned rank)
{
    grid g = {.rank = rank};
    for (unsigned i = rank; i-- > 0;)
        g.cut[i] = cut_of(l, dim[i], EF_ITER_GRID, 0);
    l->kernel->grid = l->kernel->iters.count;
    return g;
}

/* x cut like the output, dimension by dimension from `first` on; units and dimensions before stay as they are. */
static ef_kid cut_like(ef_lowering *l, ef_kid x, const grid *g, unsigned first, ef_kdim *dim)
{
    const ef_knode *node = ef_kernel_node(l->kernel, x);
    memcpy(dim, node->dim, sizeof node->dim);
    for (unsigned i = first; i < node->rank && i < g->rank; i++)
        if (dim[i].dim != EF_UNIT)
            dim[i].cut = g->cut[i];
    return x;
}

static unsigned operands(ef_lowering *l, ef_expr e, ef_kid *x)
{
    const ef_expr *child;
    unsigned count = ef_dag_children(l->former->dag, e, &child);
    for (unsigned i = 0; i < count; i++)
        if (!ef_lower_tensor(l, child[i], x + i))
            return 0;
    return count;
}

static unsigned wrap_pointwise(ef_lowering *l, ef_expr e, const ef_type_info *out, const grid *g, ef_kid *result)
{
    ef_kid x[EF_MAX_FIELDS];
    ef_kdim dim[EF_MAX_RANK];
    unsigned count = operands(l, e, x);
    for (unsigned i = 0; i < count; i++) {
        cut_like(l, x[i], g, 0, dim);
        x[i] = ef_lower_view(l, x[i], dim);
    }
    result[0] = ef_lower_pointwise(l, ef_dag_op(l->former->dag, e), ef_dag_attr(l->former->dag, e),
                                   (ef_dtype)out->dtype, x, count);
    return count ? 1 : 0;
}

/* The contracted dimension in tiles, summed by a loop; where it is a unit there is nothing to loop over. */
static unsigned contract(ef_lowering *l, ef_reducer reducer, uint32_t loop, ef_kid value, ef_kid *result)
{
    if (loop == EF_NONE)
        result[0] = value;
    else if (!ef_loop_close(l, loop, reducer, &value, 1, result))
        return 0;
    return 1;
}

static unsigned wrap_matmul(ef_lowering *l, ef_expr e, const ef_type_info *out, const grid *g, ef_kid *result)
{
    ef_kid x[2];
    ef_kdim a[EF_MAX_RANK], b[EF_MAX_RANK];
    if (operands(l, e, x) != 2)
        return 0;
    uint32_t loop = cut_of(l, ef_kernel_node(l->kernel, x[0])->dim[0].dim, EF_ITER_LOOP, 1);
    uint32_t inner = loop == EF_NONE ? EF_NONE : l->kernel->loops.at[loop].iter;
    cut_like(l, x[0], g, 1, a);
    cut_like(l, x[1], g, 2, b);
    a[0].cut = b[1].cut = inner;
    b[0].cut = g->cut[0];
    x[0] = ef_lower_view(l, x[0], a);
    x[1] = ef_lower_view(l, x[1], b);
    return contract(l, EF_RED_SUM, loop, ef_lower_matmul(l, (ef_dtype)out->dtype, x[0], x[1]), result);
}

static unsigned wrap_reduce(ef_lowering *l, ef_expr e, const grid *g, ef_kid *result)
{
    uint64_t attr = ef_dag_attr(l->former->dag, e);
    unsigned index = ef_attr_reduce_at(attr);
    ef_reducer reducer = ef_attr_reducer(attr);
    ef_kid x;
    ef_kdim dim[EF_MAX_RANK];
    if (operands(l, e, &x) != 1)
        return 0;
    cut_like(l, x, g, 0, dim);
    uint32_t loop = cut_of(l, dim[index].dim, EF_ITER_LOOP, 1);
    dim[index].cut = loop == EF_NONE ? EF_NONE : l->kernel->loops.at[loop].iter;
    x = ef_lower_view(l, x, dim);
    return contract(l, reducer, loop, ef_lower_reduce(l, x, reducer, index), result);
}

/* A value that is only moved, into an output. */
static unsigned wrap_copy(ef_lowering *l, ef_expr e, const grid *g, ef_kid *result)
{
    ef_kdim dim[EF_MAX_RANK];
    if (!ef_lower_tensor(l, e, result))
        return 0;
    cut_like(l, result[0], g, 0, dim);
    result[0] = ef_lower_view(l, result[0], dim);
    return 1;
}

/* Whatever has no grid of its own is computed whole in one block. */
static unsigned wrap_whole(ef_lowering *l, ef_expr e, ef_kid *result)
{
    l->kernel->grid = 0;
    return ef_lower_here(l, e, result);
}

unsigned ef_wrap(ef_lowering *l, ef_expr e, bool copy, ef_kid *out)
{
    const ef_dag *dag = l->former->dag;
    const ef_type_info *type = ef_type_at(l->ctx, ef_dag_type(dag, e));
    ef_op op = ef_dag_op(dag, e);
    bool whole = !copy && (type->is_tuple || op == EF_REDUCE_P || op == EF_TILE_MATMUL ||
                           (op == EF_REDUCE && ef_attr_reduce_at(ef_dag_attr(dag, e)) == EF_FIRST));
    if (whole)
        return wrap_whole(l, e, out);
    grid g = grid_of(l, type->dim, type->rank);
    if (copy)
        return wrap_copy(l, e, &g, out);
    if (op == EF_MATMUL)
        return wrap_matmul(l, e, type, &g, out);
    return op == EF_REDUCE ? wrap_reduce(l, e, &g, out) : wrap_pointwise(l, e, type, &g, out);
}
