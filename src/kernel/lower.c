/* Lowering: the nodes of one kernel (paper, section 6.1; design, section 7).
 *
 * Parallel state becomes cuts: a dimension that an axis partitions is cut by the iterator that the axis is bound to.
 * Replicated views leave nothing behind, which is what moves values that do not change in a loop out of it. Inside a
 * kernel, a value of tensor level is a buffer, or an index map over buffers (shape operators, iota, literals and what
 * is computed from these alone). */
#include "kernel/lower.h"

#include <string.h>

/* ---- nodes ---- */

uint32_t ef_knode_region(const ef_knode *node)
{
    return node->loops ? 63u - (uint32_t)__builtin_clzll(node->loops) : EF_NONE;
}

/* The loops that the position of an iterator depends on: its own and those of the blocks that it divides. */
static uint64_t iterator_loops(const ef_kernel *k, uint32_t iter)
{
    uint64_t loops = 0;
    for (; iter != EF_NONE; iter = k->iters.at[iter].outer)
        if (k->iters.at[iter].kind != EF_ITER_GRID)
            loops |= UINT64_C(1) << k->iters.at[iter].loop;
    return loops;
}

static uint64_t loops_of(const ef_kernel *k, const ef_knode *node)
{
    uint64_t loops = node->op == EF_K_STATE ? UINT64_C(1) << ef_k_loop_of(node->attr) : 0;
    if (node->op == EF_K_PICK)
        loops |= iterator_loops(k, (uint32_t)node->attr);
    for (unsigned i = 0; i < node->count; i++)
        loops |= ef_kernel_node(k, node->child[i])->loops;
    for (unsigned i = 0; i < node->rank; i++)
        loops |= iterator_loops(k, node->dim[i].cut);
    return loops;
}

ef_kid ef_kernel_intern(ef_kernel *k, ef_knode node)
{
    if (node.op != EF_K_LOOP) /* the loops of a loop are those of its body, which only ef_loop_close knows */
        node.loops = loops_of(k, &node);
    int fresh;
    ef_kid id = ef_intern_put(k->nodes, &node, sizeof node, &fresh);
    if (fresh) {
        const char *nothing = NULL;
        ef_vec_push(&k->names, nothing);
    }
    return id;
}

ef_kid ef_lower_node(ef_lowering *l, ef_knode node)
{
    return ef_kernel_intern(l->kernel, node);
}

static ef_knode blank(uint32_t op, uint64_t attr, ef_dtype dtype)
{
    ef_knode node;
    memset(&node, 0, sizeof node); /* padding takes part in the hash */
    node.op = op;
    node.attr = attr;
    node.dtype = (uint8_t)dtype;
    for (unsigned i = 0; i < EF_MAX_RANK; i++)
        node.dim[i].cut = EF_NONE;
    return node;
}

ef_kid ef_lower_const(ef_lowering *l, double value)
{
    return ef_lower_node(l, blank(EF_CONST, ef_attr_number(value), EF_NUM));
}

ef_kid ef_lower_buffer(ef_lowering *l, uint32_t buffer)
{
    const ef_kbuffer *b = &l->former->graph->buffers.at[buffer];
    ef_knode node = blank(EF_K_BUFFER, buffer, (ef_dtype)b->dtype);
    node.rank = b->rank;
    for (unsigned i = 0; i < b->rank; i++)
        node.dim[i].dim = b->dim[i];
    return ef_lower_node(l, node);
}

/* Merges dimensions by broadcasting: a dimension that is not a unit wins. */
static void broadcast_dims(ef_knode *out, const ef_knode *in, unsigned first)
{
    for (unsigned i = first; i < in->rank; i++)
        if (i >= out->rank || out->dim[i].dim == EF_UNIT)
            out->dim[i] = in->dim[i];
    if (in->rank > out->rank)
        out->rank = in->rank;
}

ef_kid ef_lower_pointwise(ef_lowering *l, ef_op op, uint64_t attr, ef_dtype dtype, const ef_kid *child, unsigned count)
{
    ef_knode node = blank(op, attr, dtype);
    node.count = (uint8_t)count;
    for (unsigned i = 0; i < count; i++) {
        node.child[i] = child[i];
        broadcast_dims(&node, ef_kernel_node(l->kernel, child[i]), 0);
    }
    return ef_lower_node(l, node);
}

ef_kid ef_lower_view(ef_lowering *l, ef_kid x, const ef_kdim *dim)
{
    const ef_knode *in = ef_kernel_node(l->kernel, x);
    bool same = true;
    for (unsigned i = 0; i < in->rank; i++)
        same = same && in->dim[i].cut == dim[i].cut;
    if (same)
        return x;
    ef_knode node = blank(EF_VIEW, 0, (ef_dtype)in->dtype);
    node.rank = in->rank;
    node.count = 1;
    node.child[0] = x;
    memcpy(node.dim, dim, in->rank * sizeof *dim);
    return ef_lower_node(l, node);
}

ef_kid ef_lower_matmul(ef_lowering *l, ef_dtype dtype, ef_kid a, ef_kid b)
{
    const ef_knode *x = ef_kernel_node(l->kernel, a), *y = ef_kernel_node(l->kernel, b);
    ef_knode node = blank(EF_TILE_MATMUL, 0, dtype);
    node.count = 2;
    node.child[0] = a;
    node.child[1] = b;
    node.rank = 2;
    node.dim[1] = x->dim[1];
    node.dim[0] = y->dim[0];
    broadcast_dims(&node, x, 2);
    broadcast_dims(&node, y, 2);
    return ef_lower_node(l, node);
}

ef_kid ef_lower_reduce(ef_lowering *l, ef_kid x, ef_reducer reducer, unsigned index)
{
    const ef_knode *in = ef_kernel_node(l->kernel, x);
    if (in->dim[index].dim == EF_UNIT)
        return x; /* one element is its own reduction */
    ef_knode node = blank(EF_REDUCE, ef_attr_reduce(reducer, index), (ef_dtype)in->dtype);
    node.count = 1;
    node.child[0] = x;
    broadcast_dims(&node, in, 0);
    node.dim[index] = (ef_kdim){EF_UNIT, EF_NONE};
    return ef_lower_node(l, node);
}

/* ---- axes ---- */

void ef_lower_bind(ef_lowering *l, ef_axis axis, uint32_t iter)
{
    l->bound[l->bounds++] = (ef_binding){axis, iter};
}

/* The last binding counts: an axis may be bound again by another loop. */
uint32_t ef_lower_iter(const ef_lowering *l, ef_axis axis)
{
    for (unsigned i = l->bounds; i-- > 0;)
        if (l->bound[i].axis == axis)
            return l->bound[i].iter;
    return EF_NONE;
}

uint32_t ef_lower_iterator(ef_lowering *l, ef_iter iter)
{
    if (iter.kind != EF_ITER_PICK)
        iter.param = ef_form_param(l, iter.axis);
    ef_vec_push(&l->kernel->iters, iter);
    return l->kernel->iters.count - 1;
}

/* The cuts of a value of this type: places are sorted by level, so the innermost axis comes last. */
static void dims_of(const ef_lowering *l, const ef_type_info *info, ef_kdim *dim)
{
    for (unsigned i = 0; i < EF_MAX_RANK; i++)
        dim[i] = (ef_kdim){i < info->rank ? info->dim[i] : 0, EF_NONE};
    for (unsigned i = 0; i < info->places; i++)
        if (info->place[i].kind == EF_PARTITION)
            dim[info->place[i].dim].cut = ef_lower_iter(l, info->place[i].axis);
}

/* ---- expressions ---- */

static ef_knode typed(const ef_lowering *l, uint32_t op, uint64_t attr, ef_type type)
{
    const ef_type_info *info = ef_type_at(l->ctx, type);
    ef_knode node = blank(op, attr, (ef_dtype)info->dtype);
    node.rank = info->rank;
    dims_of(l, info, node.dim);
    return node;
}

/* A view cuts every tensor of its operand as the types say. */
static unsigned view_leaves(ef_lowering *l, ef_type type, ef_kid *x, unsigned count)
{
    ef_type leaf[EF_LEAVES];
    ef_kdim dim[EF_MAX_RANK];
    ef_type_leaves(l->ctx, type, leaf);
    for (unsigned i = 0; i < count; i++) {
        dims_of(l, ef_type_at(l->ctx, leaf[i]), dim);
        x[i] = ef_lower_view(l, x[i], dim);
    }
    return count;
}

/* A value that another kernel stores, seen as its type says (a stored value has lost its axes by being stored). */
static unsigned lower_stored(ef_lowering *l, ef_expr e, ef_kid *out)
{
    ef_type leaf[EF_LEAVES], type = ef_dag_type(l->former->dag, e);
    uint32_t first = ef_form_stored(l->former, e);
    if (first == EF_NONE)
        return 0;
    unsigned count = ef_type_leaves(l->ctx, type, leaf);
    for (unsigned i = 0; i < count; i++)
        out[i] = ef_lower_buffer(l, first + i);
    return view_leaves(l, type, out, count);
}

static unsigned lower_get(ef_lowering *l, ef_expr tuple, uint64_t field, ef_type type, ef_kid *out)
{
    ef_kid all[EF_LEAVES];
    ef_type leaf[EF_LEAVES];
    const ef_type_info *info = ef_type_at(l->ctx, ef_dag_type(l->former->dag, tuple));
    unsigned first = 0, count = ef_type_leaves(l->ctx, type, leaf);
    if (!ef_lower(l, tuple, all))
        return 0;
    for (uint64_t i = 0; i < field; i++)
        first += ef_type_leaves(l->ctx, info->field[i], leaf);
    memcpy(out, all + first, count * sizeof *out);
    return count;
}

static unsigned lower_tuple(ef_lowering *l, const ef_expr *field, unsigned count, ef_kid *out)
{
    unsigned leaves = 0;
    for (unsigned i = 0; i < count; i++) {
        unsigned n = ef_lower(l, field[i], out + leaves);
        if (n == 0)
            return 0;
        leaves += n;
    }
    return leaves;
}

/* The reduction of a parallel axis: a loop over its coordinates. */
static unsigned lower_reduce_p(ef_lowering *l, uint64_t attr, ef_expr operand, ef_kid *out)
{
    ef_axis axis = ef_attr_reduce_at(attr), block = ef_axis_of(ef_axis_var(axis), 0);
    ef_axes scope = ef_type_axes(l->ctx, ef_dag_type(l->former->dag, operand));
    ef_iter iter = {.kind = EF_ITER_LOOP, .axis = axis, .outer = EF_NONE};
    ef_kid in[EF_LEAVES];
    if (axis != block && ef_axes_has(l->ctx, scope, block))
        iter.outer = ef_lower_iter(l, block);
    uint32_t loop = ef_loop_open(l, iter);
    if (loop == EF_NONE)
        return 0;
    unsigned bounds = l->bounds;
    ef_lower_bind(l, axis, l->kernel->loops.at[loop].iter);
    unsigned leaves = ef_lower(l, operand, in);
    l->bounds = bounds;
    return leaves && ef_loop_close(l, loop, ef_attr_reducer(attr), in, leaves, out) ? leaves : 0;
}

/* The reduction of stored partial results: a loop over the positions of their leading dimension. */
static unsigned lower_reduce_first(ef_lowering *l, uint64_t attr, ef_expr operand, ef_kid *out)
{
    ef_kid in[EF_LEAVES];
    unsigned leaves = ef_lower(l, operand, in);
    if (leaves == 0)
        return 0;
    const ef_knode *first = ef_kernel_node(l->kernel, in[0]);
    ef_iter iter = {.kind = EF_ITER_PICK, .count = first->dim[first->rank - 1].dim, .outer = EF_NONE, .param = EF_NONE};
    uint32_t loop = ef_loop_open(l, iter);
    if (loop == EF_NONE)
        return 0;
    for (unsigned i = 0; i < leaves; i++) {
        const ef_knode *x = ef_kernel_node(l->kernel, in[i]);
        ef_knode pick = blank(EF_K_PICK, l->kernel->loops.at[loop].iter, (ef_dtype)x->dtype);
        pick.count = 1;
        pick.child[0] = in[i];
        pick.rank = (uint8_t)(x->rank - 1);
        memcpy(pick.dim, x->dim, pick.rank * sizeof *x->dim);
        in[i] = ef_lower_node(l, pick);
    }
    return ef_loop_close(l, loop, ef_attr_reducer(attr), in, leaves, out) ? leaves : 0;
}

/* Operators of one result whose operands are tensors. */
static unsigned lower_plain(ef_lowering *l, ef_expr e, ef_kid *out)
{
    const ef_dag *dag = l->former->dag;
    const ef_expr *child;
    ef_op op = ef_dag_op(dag, e);
    uint64_t attr = ef_dag_attr(dag, e);
    unsigned count = ef_dag_children(dag, e, &child);
    ef_knode node = typed(l, op, attr, ef_dag_type(dag, e));
    node.count = (uint8_t)count;
    for (unsigned i = 0; i < count; i++)
        if (!ef_lower_tensor(l, child[i], &node.child[i]))
            return 0;
    if (op == EF_REDUCE)
        out[0] = ef_lower_reduce(l, node.child[0], ef_attr_reducer(attr), ef_attr_reduce_at(attr));
    else if (ef_op_pointwise(op))
        out[0] = ef_lower_pointwise(l, op, attr, (ef_dtype)node.dtype, node.child, count);
    else if (op == EF_MATMUL || op == EF_TILE_MATMUL)
        out[0] = ef_lower_matmul(l, (ef_dtype)node.dtype, node.child[0], node.child[1]);
    else
        out[0] = ef_lower_node(l, node);
    return 1;
}

unsigned ef_lower_here(ef_lowering *l, ef_expr e, ef_kid *out)
{
    const ef_dag *dag = l->former->dag;
    const ef_expr *child;
    uint64_t attr = ef_dag_attr(dag, e);
    unsigned count = ef_dag_children(dag, e, &child);
    ef_type type = ef_dag_type(dag, e);
    switch (ef_dag_op(dag, e)) {
    case EF_INPUT: out[0] = ef_lower_buffer(l, l->former->input_buffer[attr]); return 1;
    case EF_CONST: out[0] = ef_lower_const(l, ef_attr_to_number(attr)); return 1;
    case EF_TUPLE: return lower_tuple(l, child, count, out);
    case EF_GET: return lower_get(l, child[0], attr, type, out);
    case EF_VIEW: count = ef_lower(l, child[0], out); return count ? view_leaves(l, type, out, count) : 0;
    case EF_REDUCE_P: return lower_reduce_p(l, attr, child[0], out);
    case EF_REDUCE:
        return ef_attr_reduce_at(attr) == EF_FIRST ? lower_reduce_first(l, attr, child[0], out)
                                                   : lower_plain(l, e, out);
    case EF_COMBINE:
    case EF_COLLECT: return lower_stored(l, e, out);
    default: return lower_plain(l, e, out);
    }
}

/* Whether the value comes from a buffer: it is stored, or computed at tensor level and not in this kernel. */
static bool comes_stored(const ef_lowering *l, ef_expr e)
{
    const ef_former *f = l->former;
    return ef_type_axes(l->ctx, ef_dag_type(f->dag, e)) == 0 && ef_form_is_compute(f, e) &&
           f->owner[e] != l->kernel->root;
}

/* What a lowered expression depends on: itself and the iterators of its axes. */
static uint32_t remember(ef_lowering *l, ef_expr e)
{
    const ef_axis *axis;
    uint32_t key[2 * EF_MAX_PLACES * EF_MAX_FIELDS + 1];
    unsigned n = ef_axes_at(l->ctx, ef_type_axes(l->ctx, ef_dag_type(l->former->dag, e)), &axis);
    key[0] = e;
    for (unsigned i = 0; i < n; i++)
        key[i + 1] = ef_lower_iter(l, axis[i]);
    return ef_intern_put(l->memo, key, (n + 1) * sizeof *key, NULL);
}

unsigned ef_lower(ef_lowering *l, ef_expr e, ef_kid *out)
{
    ef_type leaf[EF_LEAVES];
    unsigned count = ef_type_leaves(l->ctx, ef_dag_type(l->former->dag, e), leaf);
    const uint32_t at = remember(l, e) * EF_LEAVES;
    ef_vec_reserve(&l->values, at + EF_LEAVES);
    for (; l->values.count < at + EF_LEAVES; l->values.count++)
        l->values.at[l->values.count] = EF_NONE;
    if (l->values.at[at] != EF_NONE) {
        memcpy(out, l->values.at + at, count * sizeof *out);
        return count;
    }
    unsigned made = comes_stored(l, e) ? lower_stored(l, e, out) : ef_lower_here(l, e, out);
    if (made == 0)
        return 0;
    for (unsigned i = 0; i < made && l->former->name[e]; i++)
        if (!l->kernel->names.at[out[i]])
            l->kernel->names.at[out[i]] = l->former->name[e];
    memcpy(l->values.at + at, out, made * sizeof *out);
    return made;
}

bool ef_lower_tensor(ef_lowering *l, ef_expr e, ef_kid *out)
{
    ef_kid all[EF_LEAVES];
    unsigned leaves = ef_lower(l, e, all);
    *out = all[0];
    return leaves == 1;
}
