/* The organisation of a program: what it stores, loads, reduces and contracts, and from which of these values each
 * pointwise expression is computed, but not how. A function of one value alone counts as that value, so that a factor
 * may stand before or after a matmul. Programs of one organisation differ in pointwise algebra and in how they spell
 * views.
 */
#include "search/organisation.h"

#include <stdlib.h>

#include "support/vec.h"

typedef struct {
    const ef_dag *dag;
    ef_ctx *ctx;
    uint64_t *memo; /* by expression, 0: not known yet */
} walk;

typedef struct {
    uint64_t *at;
    uint32_t count, capacity;
} hashes;

static uint64_t mix(uint64_t h, uint64_t x)
{
    h = (h ^ x) * UINT64_C(0x9fb21c651e98df25);
    return h ^ (h >> 29);
}

static uint64_t organise(walk *w, ef_expr e);

static bool tensor_level(const walk *w, ef_expr e)
{
    return ef_type_axes(w->ctx, ef_dag_type(w->dag, e)) == 0;
}

static bool moves(ef_op op)
{
    return op == EF_TRANSPOSE || op == EF_RESHAPE || op == EF_BROADCAST || op == EF_SLICE || op == EF_GET;
}

/* A view of moved elements is the moved view: axes collect on the way down to the tensor, moves above them. */
static uint64_t organise_view(walk *w, ef_expr e, ef_axes axes)
{
    const ef_expr *child;
    ef_op op = ef_dag_op(w->dag, e);
    unsigned count = ef_dag_children(w->dag, e, &child);
    if (op == EF_VIEW)
        return organise_view(w, child[0], ef_axes_union(w->ctx, axes, (ef_axes)ef_dag_attr(w->dag, e)));
    axes = ef_type_cutting(w->ctx, axes, ef_dag_type(w->dag, e));
    if (moves(op) && count == 1)
        return mix(mix(organise_view(w, child[0], axes), op), ef_dag_attr(w->dag, e));
    return axes ? mix(organise(w, e), axes + UINT64_C(1001)) : organise(w, e);
}

/* Adds what a pointwise expression is computed from, each value once. */
static void add_leaves(walk *w, ef_expr e, hashes *out)
{
    const ef_expr *child;
    ef_op op = ef_dag_op(w->dag, e);
    unsigned count = ef_dag_children(w->dag, e, &child);
    if (op == EF_CONST)
        return;
    if (ef_op_pointwise(op) || (op == EF_VIEW && !tensor_level(w, child[0]))) {
        for (unsigned i = 0; i < count; i++)
            add_leaves(w, child[i], out);
        return;
    }
    uint64_t h = organise(w, e);
    for (uint32_t i = 0; i < out->count; i++)
        if (out->at[i] == h)
            return;
    ef_vec_push(out, h);
}

/* Reductions side by side are a set of parts: adds those of a reducer whose operand is `e`, and says which one the path
 * of fields taken (first field last in `path`) leads to, by *part. False when they are not put together here. */
static bool add_parts(walk *w, ef_expr e, ef_reducer reducer, uint64_t path, uint64_t at, uint64_t *sum, uint64_t *part)
{
    const ef_expr *child;
    const ef_reducer_info *r = ef_reducer_at(w->ctx, reducer);
    if (r->kind != EF_RED_PRODUCT) {
        uint64_t own = mix(mix(0x55, reducer), organise(w, e));
        *sum += mix(0x56, own);
        if (at == path)
            *part = own;
        return true;
    }
    if (ef_dag_op(w->dag, e) != EF_TUPLE || ef_dag_children(w->dag, e, &child) != 2)
        return false;
    return add_parts(w, child[0], r->left, path, at << 1, sum, part) &&
           add_parts(w, child[1], r->right, path, at << 1 | 1, sum, part);
}

/* A field of reductions side by side; 0 when it is something else. */
static uint64_t organise_part(walk *w, ef_expr e)
{
    const ef_expr *child;
    uint64_t path = 0, sum = 0, part = 0;
    unsigned depth = 0;
    for (; ef_dag_op(w->dag, e) == EF_GET && ef_dag_attr(w->dag, e) < 2 && depth < 32; depth++) {
        path |= ef_dag_attr(w->dag, e) << depth;
        ef_dag_children(w->dag, e, &child);
        e = child[0];
    }
    ef_op op = ef_dag_op(w->dag, e);
    uint64_t attr = ef_dag_attr(w->dag, e);
    if (op != EF_REDUCE && op != EF_REDUCE_P)
        return 0;
    ef_dag_children(w->dag, e, &child);
    if (!add_parts(w, child[0], ef_attr_reducer(attr), path | UINT64_C(1) << depth, 1, &sum, &part) || (depth && !part))
        return 0;
    return mix(mix(mix(0x57, ef_attr_reduce_at(attr)), sum), part);
}

static uint64_t organise_node(walk *w, ef_expr e)
{
    const ef_expr *child;
    ef_op op = ef_dag_op(w->dag, e);
    unsigned count = ef_dag_children(w->dag, e, &child);
    if (op == EF_VIEW && !tensor_level(w, child[0]))
        return organise(w, child[0]);
    if (op == EF_GET || op == EF_REDUCE || op == EF_REDUCE_P) {
        uint64_t part = organise_part(w, e);
        if (part)
            return part;
    }
    if (op == EF_VIEW || (moves(op) && count == 1))
        return organise_view(w, e, 0);
    if (ef_op_pointwise(op)) {
        hashes leaves = {0};
        uint64_t sum = 0x33;
        add_leaves(w, e, &leaves);
        for (uint32_t i = 0; i < leaves.count; i++)
            sum += mix(0x44, leaves.at[i]);
        if (leaves.count == 1)
            sum = leaves.at[0];
        ef_vec_free(&leaves);
        return sum;
    }
    uint64_t h = mix(mix(0x81, op), ef_dag_attr(w->dag, e));
    for (unsigned i = 0; i < count; i++)
        h = mix(h, organise(w, child[i]));
    return h;
}

static uint64_t organise(walk *w, ef_expr e)
{
    if (w->memo[e] == 0)
        w->memo[e] = organise_node(w, e) | 1;
    return w->memo[e];
}

uint64_t ef_organisation(const ef_dag *dag, const ef_expr *output, uint32_t outputs)
{
    walk w = {.dag = dag, .ctx = ef_dag_ctx(dag)};
    uint64_t h = 0x99;
    w.memo = ef_xcalloc((size_t)ef_dag_count(dag) + 1, sizeof *w.memo);
    for (uint32_t i = 0; i < outputs; i++)
        h = mix(h, organise(&w, output[i]));
    free(w.memo);
    return h;
}
