/* Expressions: see expr.h. Nodes are stored as arrays, one per field; equal nodes are one node. */
#include "ir/expr.h"

#include <string.h>

#include "support/hash.h"
#include "support/vec.h"

#define MAX_CHILDREN 16

struct ef_dag {
    ef_ctx *ctx;
    ef_intern *nodes; /* key: op, children count, attr, children */
    EF_VEC(ef_type) types;
};

typedef struct {
    uint32_t op, count;
    uint64_t attr;
    ef_expr child[MAX_CHILDREN];
} node_key;

ef_dag *ef_dag_new(ef_ctx *ctx)
{
    ef_dag *dag = ef_xcalloc(1, sizeof *dag);
    dag->ctx = ctx;
    dag->nodes = ef_intern_new();
    return dag;
}

void ef_dag_free(ef_dag *dag)
{
    if (!dag)
        return;
    ef_intern_free(dag->nodes);
    ef_vec_free(&dag->types);
    free(dag);
}

ef_ctx *ef_dag_ctx(const ef_dag *dag)
{
    return dag->ctx;
}

uint32_t ef_dag_count(const ef_dag *dag)
{
    return dag->types.count;
}

static const node_key *key_at(const ef_dag *dag, ef_expr e)
{
    return ef_intern_at(dag->nodes, e, NULL);
}

ef_op ef_dag_op(const ef_dag *dag, ef_expr e)
{
    return (ef_op)key_at(dag, e)->op;
}

uint64_t ef_dag_attr(const ef_dag *dag, ef_expr e)
{
    return key_at(dag, e)->attr;
}

unsigned ef_dag_children(const ef_dag *dag, ef_expr e, const ef_expr **children)
{
    const node_key *key = key_at(dag, e);
    *children = key->child;
    return key->count;
}

ef_type ef_dag_type(const ef_dag *dag, ef_expr e)
{
    return dag->types.at[e];
}

ef_expr ef_dag_add_exact(ef_dag *dag, ef_op op, uint64_t attr, const ef_expr *children, unsigned count, ef_diag *diag)
{
    node_key key = {.op = op, .count = count, .attr = attr};
    ef_type types[MAX_CHILDREN];
    if (count > MAX_CHILDREN) {
        ef_fail(diag, "%s has too many operands", ef_ops[op].name);
        return EF_NONE;
    }
    for (unsigned i = 0; i < count; i++) {
        key.child[i] = children[i];
        types[i] = dag->types.at[children[i]];
    }
    size_t size = offsetof(node_key, child) + count * sizeof *children;
    uint32_t old = ef_intern_find(dag->nodes, &key, size);
    if (old != UINT32_MAX)
        return old;
    ef_type type = ef_infer(dag->ctx, op, attr, types, count, diag);
    if (!type)
        return EF_NONE;
    ef_vec_push(&dag->types, type);
    return ef_intern_put(dag->nodes, &key, size, NULL);
}

void ef_view_split(ef_ctx *ctx, ef_axes axes, ef_type type, ef_axes *inner, ef_axes *outer)
{
    const ef_type_info *info = ef_type_at(ctx, type);
    const ef_axis *axis;
    ef_axis in[2 * EF_MAX_PLACES], out[2 * EF_MAX_PLACES];
    unsigned n = ef_axes_at(ctx, axes, &axis), ni = 0, no = 0;
    for (unsigned i = 0; i < n; i++) {
        ef_place place;
        bool moves = ef_axis_level(axis[i]) == 0 || info->is_tuple || !ef_type_cut(ctx, info, axis[i], &place) ||
                     place.kind == EF_PARTITION;
        if (moves)
            in[ni++] = axis[i];
        else
            out[no++] = axis[i];
    }
    *inner = ef_axes_intern(ctx, in, ni);
    *outer = ef_axes_intern(ctx, out, no);
}

ef_expr ef_dag_view(ef_dag *dag, ef_axes axes, ef_expr x, ef_diag *diag)
{
    ef_type type = ef_dag_type(dag, x);
    if (axes == 0 || ef_type_is_literal(dag->ctx, type))
        return x;
    if (!ef_infer(dag->ctx, EF_VIEW, axes, &type, 1, diag))
        return EF_NONE;
    while (ef_dag_op(dag, x) == EF_VIEW) {
        axes = ef_axes_union(dag->ctx, axes, (ef_axes)ef_dag_attr(dag, x));
        x = key_at(dag, x)->child[0];
    }
    ef_axes inner, outer;
    ef_view_split(dag->ctx, axes, ef_dag_type(dag, x), &inner, &outer);
    if (inner)
        x = ef_dag_add_exact(dag, EF_VIEW, inner, &x, 1, diag);
    if (outer && x != EF_NONE)
        x = ef_dag_add_exact(dag, EF_VIEW, outer, &x, 1, diag);
    return x;
}

ef_expr ef_dag_add(ef_dag *dag, ef_op op, uint64_t attr, const ef_expr *children, unsigned count, ef_diag *diag)
{
    if (op == EF_VIEW && count == 1 && attr != 0)
        return ef_dag_view(dag, (ef_axes)attr, children[0], diag);
    if (op == EF_COMBINE && count == 1 && ef_dag_op(dag, children[0]) == EF_COMBINE) {
        ef_axes both = ef_axes_union(dag->ctx, (ef_axes)attr, (ef_axes)ef_dag_attr(dag, children[0]));
        return ef_dag_add_exact(dag, op, both, key_at(dag, children[0])->child, 1, diag);
    }
    return ef_dag_add_exact(dag, op, attr, children, count, diag);
}

ef_expr ef_dag_input(ef_dag *dag, uint32_t input)
{
    return ef_dag_add_exact(dag, EF_INPUT, input, NULL, 0, NULL);
}

ef_expr ef_dag_const(ef_dag *dag, double value)
{
    return ef_dag_add_exact(dag, EF_CONST, ef_attr_number(value), NULL, 0, NULL);
}
