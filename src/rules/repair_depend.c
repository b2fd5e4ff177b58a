/* How a term depends on the producer's result (see repair.h), derived bottom-up over the e-graph, and f(x, g): the term
 * with the producer's local value in the place of its result. */
#include <math.h>
#include <string.h>

#include "rules/repair_parts.h"

static ef_scalar apply2(ef_ctx *ctx, ef_op op, ef_scalar a, ef_scalar b)
{
    return ef_scalar_apply(ctx, op, (ef_scalar[]){a, b, 0});
}

static ef_scalar apply1(ef_ctx *ctx, ef_op op, ef_scalar a)
{
    return ef_scalar_apply(ctx, op, (ef_scalar[]){a, 0, 0});
}

static ef_dependence *lookup(ef_synthesis *y, ef_id class)
{
    uint32_t at = ef_class_map_get(&y->memory->known, class);
    return at ? &y->known.at[at - 1] : NULL;
}

bool ef_repair_reduces(const ef_egraph *g, ef_axis axis, ef_id n)
{
    unsigned index = 0;
    const ef_var *atoms;
    if (g->op.at[n] == EF_REDUCE_P)
        return ef_axis_var(ef_attr_reduce_at(g->attr.at[n])) == ef_axis_var(axis);
    if (g->op.at[n] == EF_COLLECT) /* the stored parts of such a reduction */
        return ef_axis_var((ef_axis)g->attr.at[n]) == ef_axis_var(axis);
    if (g->op.at[n] == EF_REDUCE)
        index = ef_attr_reduce_at(g->attr.at[n]);
    else if (g->op.at[n] != EF_MATMUL && g->op.at[n] != EF_TILE_MATMUL)
        return false;
    const ef_type_info *t = ef_type_at(g->ctx, ef_egraph_type((ef_egraph *)g, ef_node_children(g, n)[0]));
    for (unsigned i = 0, count = index < t->rank ? ef_dim_atoms(g->ctx, t->dim[index], &atoms) : 0; i < count; i++)
        if (atoms[i] == ef_axis_var(axis))
            return true;
    return false;
}

/* Adopts a way of seeing the class, unless one is known. */
static void adopt(ef_dependence *d, ef_way w, ef_scalar term, ef_id node, const ef_way *operand, unsigned count)
{
    if (d->has[w])
        return;
    d->has[w] = true;
    d->term[w] = term;
    d->node[w] = node;
    for (unsigned i = 0; i < count; i++)
        d->operand[w][i] = (uint8_t)operand[i];
}

/* A closed function of s is also a shift of 0 and a scale of 1 by itself. */
static bool as_shift(const ef_dependence *d, ef_way *w, ef_scalar *tau)
{
    *w = d->has[EF_SHIFT] ? EF_SHIFT : EF_ONLY;
    *tau = d->term[*w];
    return d->has[*w];
}

static bool as_scale(const ef_dependence *d, ef_way *w, ef_scalar *sigma)
{
    *w = d->has[EF_SCALE] ? EF_SCALE : EF_ONLY;
    *sigma = d->term[*w];
    return d->has[*w];
}

bool ef_repair_literal(ef_synthesis *y, ef_id class, double *value)
{
    return ef_egraph_constant(y->g, class, value) && ef_type_is_literal(y->ctx, ef_egraph_type(y->g, class));
}

/* Shifts: sums and differences of shifted and independent operands. */
static void see_sum(ef_synthesis *y, ef_dependence *d, ef_id n, const ef_dependence *a, const ef_dependence *b)
{
    ef_op op = (ef_op)y->g->op.at[n];
    ef_way wa, wb;
    ef_scalar ta, tb;
    bool sa = as_shift(a, &wa, &ta), sb = as_shift(b, &wb, &tb);
    if (sa && b->has[EF_INDEPENDENT])
        adopt(d, EF_SHIFT, ta, n, (ef_way[]){wa, EF_INDEPENDENT}, 2);
    else if (a->has[EF_INDEPENDENT] && sb)
        adopt(d, EF_SHIFT, op == EF_SUB ? apply1(y->ctx, EF_NEG, tb) : tb, n, (ef_way[]){EF_INDEPENDENT, wb}, 2);
    else if (sa && sb)
        adopt(d, EF_SHIFT, apply2(y->ctx, op, ta, tb), n, (ef_way[]){wa, wb}, 2);
    if (as_scale(a, &wa, &ta) && as_scale(b, &wb, &tb) && ta == tb)
        adopt(d, EF_SCALE, ta, n, (ef_way[]){wa, wb}, 2);
}

/* Scales: products and quotients; a shift times or over a literal stays a shift. */
static void see_product(ef_synthesis *y, ef_dependence *d, ef_id n, const ef_dependence *a, const ef_dependence *b)
{
    ef_op op = (ef_op)y->g->op.at[n];
    const ef_id *child = ef_node_children(y->g, n);
    ef_way wa, wb;
    ef_scalar ta, tb;
    double c;
    if (as_scale(a, &wa, &ta)) {
        if (b->has[EF_INDEPENDENT])
            adopt(d, EF_SCALE, ta, n, (ef_way[]){wa, EF_INDEPENDENT}, 2);
        else if (as_scale(b, &wb, &tb))
            adopt(d, EF_SCALE, apply2(y->ctx, op, ta, tb), n, (ef_way[]){wa, wb}, 2);
    } else if (a->has[EF_INDEPENDENT] && as_scale(b, &wb, &tb)) {
        adopt(d, EF_SCALE, op == EF_DIV ? apply1(y->ctx, EF_RECIP, tb) : tb, n, (ef_way[]){EF_INDEPENDENT, wb}, 2);
    }
    if (ef_repair_literal(y, child[1], &c) && as_shift(a, &wa, &ta))
        adopt(d, EF_SHIFT, apply2(y->ctx, op, ta, ef_scalar_const(y->ctx, c)), n, (ef_way[]){wa, EF_INDEPENDENT}, 2);
    else if (op == EF_MUL && ef_repair_literal(y, child[0], &c) && as_shift(b, &wb, &tb))
        adopt(d, EF_SHIFT, apply2(y->ctx, op, tb, ef_scalar_const(y->ctx, c)), n, (ef_way[]){EF_INDEPENDENT, wb}, 2);
}

static void see_unary(ef_synthesis *y, ef_dependence *d, ef_id n, const ef_dependence *a)
{
    ef_op op = (ef_op)y->g->op.at[n];
    ef_way w;
    ef_scalar t;
    switch (op) {
    case EF_NEG:
        if (as_shift(a, &w, &t))
            adopt(d, EF_SHIFT, apply1(y->ctx, EF_NEG, t), n, &w, 1);
        if (as_scale(a, &w, &t))
            adopt(d, EF_SCALE, t, n, &w, 1);
        break;
    case EF_CAST:
        if (as_shift(a, &w, &t))
            adopt(d, EF_SHIFT, t, n, &w, 1);
        if (as_scale(a, &w, &t))
            adopt(d, EF_SCALE, t, n, &w, 1);
        break;
    case EF_EXP:
    case EF_EXP2:
        if (as_shift(a, &w, &t))
            adopt(d, EF_SCALE, apply1(y->ctx, op, t), n, &w, 1);
        break;
    case EF_SQRT:
    case EF_RSQRT:
    case EF_RECIP:
    case EF_ABS:
        if (as_scale(a, &w, &t))
            adopt(d, EF_SCALE, apply1(y->ctx, op, t), n, &w, 1);
        break;
    default: break;
    }
}

/* max, min, select: both branches move together; a masked branch (0 for scales, an infinity for shifts) stays put. */
static void see_branches(ef_synthesis *y, ef_dependence *d, ef_id n, const ef_dependence *a, const ef_dependence *b,
                         unsigned first)
{
    const ef_id *child = ef_node_children(y->g, n);
    ef_way wa, wb, ways[3] = {EF_INDEPENDENT, EF_INDEPENDENT, EF_INDEPENDENT};
    ef_scalar ta, tb;
    double c;
    bool select = first == 1;
    if (as_shift(a, &wa, &ta) && as_shift(b, &wb, &tb) && ta == tb) {
        ways[first] = wa, ways[first + 1] = wb;
        adopt(d, EF_SHIFT, ta, n, ways, first + 2);
    }
    for (unsigned i = 0; select && i < 2; i++) {
        const ef_dependence *moving = i ? b : a;
        unsigned still = first + 1 - i;
        ways[1] = ways[2] = EF_INDEPENDENT;
        if (!ef_repair_literal(y, child[still], &c))
            continue;
        if (isinf(c) && as_shift(moving, &ways[first + i], &ta))
            adopt(d, EF_SHIFT, ta, n, ways, 3);
        if (c == 0 && as_scale(moving, &ways[first + i], &ta))
            adopt(d, EF_SCALE, ta, n, ways, 3);
    }
    if (select && as_scale(a, &wa, &ta) && as_scale(b, &wb, &tb) && ta == tb) {
        ways[0] = EF_INDEPENDENT, ways[1] = wa, ways[2] = wb;
        adopt(d, EF_SCALE, ta, n, ways, 3);
    }
}

/* Whether every producer leaf is constant along dimension `index` (from the last). */
static bool leaves_constant_along(ef_synthesis *y, unsigned index)
{
    for (unsigned i = 0; i < y->leaves; i++) {
        const ef_type_info *t = ef_type_at(y->ctx, ef_egraph_type(y->g, y->leaf[i]));
        if (index < t->rank && t->dim[index] != EF_UNIT)
            return false;
    }
    return true;
}

bool ef_repair_positive(ef_synthesis *y, ef_scalar sigma)
{
    const ef_scalar_info *info = ef_scalar_at(y->ctx, sigma);
    if (info->kind == EF_SCALAR_CONST)
        return info->value > 0;
    if (info->kind == EF_SCALAR_PARAM)
        return false;
    if (info->op == EF_EXP || info->op == EF_EXP2)
        return true;
    return (info->op == EF_MUL || info->op == EF_DIV) && ef_repair_positive(y, info->operand[0]) &&
           ef_repair_positive(y, info->operand[1]);
}

/* Reductions inside the operand: linear ones pass a scale, extremal ones a shift. */
static void see_reduction(ef_synthesis *y, ef_dependence *d, ef_id n, const ef_dependence *a, bool constant)
{
    ef_reducer_kind kind = ef_reducer_at(y->ctx, ef_attr_reducer(y->g->attr.at[n]))->kind;
    bool extremal = kind == EF_RED_MAX || kind == EF_RED_MIN;
    if (constant && a->has[EF_SCALE] && (kind == EF_RED_SUM || (extremal && ef_repair_positive(y, a->term[EF_SCALE]))))
        adopt(d, EF_SCALE, a->term[EF_SCALE], n, (ef_way[]){EF_SCALE}, 1);
    if (constant && a->has[EF_SHIFT] && extremal)
        adopt(d, EF_SHIFT, a->term[EF_SHIFT], n, (ef_way[]){EF_SHIFT}, 1);
}

static void see_matmul(ef_synthesis *y, ef_dependence *d, ef_id n, const ef_dependence *a, const ef_dependence *b)
{
    if (a->has[EF_SCALE] && b->has[EF_INDEPENDENT] && leaves_constant_along(y, 0))
        adopt(d, EF_SCALE, a->term[EF_SCALE], n, (ef_way[]){EF_SCALE, EF_INDEPENDENT}, 2);
    if (a->has[EF_INDEPENDENT] && b->has[EF_SCALE] && leaves_constant_along(y, 1))
        adopt(d, EF_SCALE, b->term[EF_SCALE], n, (ef_way[]){EF_INDEPENDENT, EF_SCALE}, 2);
}

/* A view by p brings a value into p's scope: replicated, it may be a function of s; cut, it must not depend on s. */
static void see_view(ef_synthesis *y, ef_dependence *d, ef_id n)
{
    ef_egraph *g = y->g;
    ef_id outside = ef_node_children(g, n)[0];
    const ef_type_info *t = ef_type_at(y->ctx, ef_egraph_type(g, n));
    const ef_place *place = t->is_tuple ? NULL : ef_type_place(t, y->axis);
    if (!ef_repair_whole_pass(y, outside)) {
        adopt(d, EF_INDEPENDENT, 0, n, NULL, 0);
        return;
    }
    if (!place || place->kind != EF_REPLICATE || (ef_axes)g->attr.at[n] != y->axes)
        return;
    const ef_dependence *o = ef_repair_depends(y, outside);
    for (ef_way w = EF_ONLY; w < EF_WAYS; w++)
        if (o->has[w])
            adopt(d, w, o->term[w], n, (ef_way[]){w}, 1);
}

static void see_node(ef_synthesis *y, ef_dependence *d, ef_id n)
{
    ef_egraph *g = y->g;
    ef_op op = (ef_op)g->op.at[n];
    if (op == EF_VIEW && ef_axes_has(y->ctx, (ef_axes)g->attr.at[n], y->axis)) {
        see_view(y, d, n);
        return;
    }
    /* Outside of p's scope another reduction of what p cuts is complete only after a pass of its own: made again inside
     * of the scope it would be one of a tile. */
    if (!ef_axes_has(y->ctx, ef_type_axes(y->ctx, ef_egraph_type(g, n)), y->axis) && ef_repair_reduces(g, y->axis, n))
        return;
    if (ef_ops[op].class == EF_LEAF || g->arity.at[n] > 3 || op == EF_TUPLE || op == EF_GET) {
        if (ef_ops[op].class == EF_LEAF)
            adopt(d, EF_INDEPENDENT, 0, n, NULL, 0);
        return;
    }
    ef_dependence a[3] = {0};
    bool independent = true, only = true;
    for (unsigned i = 0; i < g->arity.at[n]; i++) {
        double value;
        const ef_dependence *child = ef_repair_depends(y, ef_node_children(g, n)[i]);
        a[i] = *child;
        independent = independent && a[i].has[EF_INDEPENDENT];
        only = only && (a[i].has[EF_ONLY] || ef_repair_literal(y, ef_node_children(g, n)[i], &value));
    }
    if (independent) {
        adopt(d, EF_INDEPENDENT, 0, n, NULL, 0);
        return;
    }
    if (only && ef_op_pointwise(op) && op != EF_CAST) {
        ef_scalar term[3] = {0};
        ef_way ways[3] = {0};
        for (unsigned i = 0; i < g->arity.at[n]; i++) {
            double value = 0;
            ways[i] = a[i].has[EF_ONLY] ? EF_ONLY : EF_INDEPENDENT;
            ef_repair_literal(y, ef_node_children(g, n)[i], &value);
            term[i] = a[i].has[EF_ONLY] ? a[i].term[EF_ONLY] : ef_scalar_const(y->ctx, value);
        }
        adopt(d, EF_ONLY, ef_scalar_apply(y->ctx, op, term), n, ways, g->arity.at[n]);
    }
    if (op == EF_ADD || op == EF_SUB)
        see_sum(y, d, n, &a[0], &a[1]);
    else if (op == EF_MUL || op == EF_DIV)
        see_product(y, d, n, &a[0], &a[1]);
    else if (op == EF_MAX || op == EF_MIN)
        see_branches(y, d, n, &a[0], &a[1], 0);
    else if (op == EF_SELECT && a[0].has[EF_INDEPENDENT])
        see_branches(y, d, n, &a[1], &a[2], 1);
    else if (op == EF_REDUCE && ef_attr_reduce_at(g->attr.at[n]) != EF_FIRST)
        see_reduction(y, d, n, &a[0], leaves_constant_along(y, ef_attr_reduce_at(g->attr.at[n])));
    else if (op == EF_TILE_MATMUL || op == EF_MATMUL)
        see_matmul(y, d, n, &a[0], &a[1]);
    else if (ef_ops[op].class == EF_UNARY)
        see_unary(y, d, n, &a[0]);
}

/* How a class depends on the producer's result; all its e-nodes are looked at, in order. */
const ef_dependence *ef_repair_depends(ef_synthesis *y, ef_id class)
{
    ef_egraph *g = y->g;
    class = ef_find(g, class);
    ef_dependence *old = lookup(y, class);
    if (old)
        return old; /* in progress: nothing is known, so that cycles add nothing */
    ef_dependence d = {.class = class};
    ef_vec_push(&y->known, d);
    ef_class_map_set(&y->memory->known, g, class, y->known.count);
    ef_repair_look(y, class);
    for (unsigned i = 0; i < y->leaves; i++)
        if (class == ef_find(g, y->leaf[i]))
            adopt(&d, EF_ONLY, ef_scalar_param(y->ctx, EF_PARAM_S, i), EF_NONE, NULL, 0);
    bool scoped = ef_axes_has(y->ctx, ef_type_axes(y->ctx, ef_egraph_type(g, class)), y->axis);
    if (!d.has[EF_ONLY] && !scoped && !ef_repair_whole_pass(y, class))
        adopt(&d, EF_INDEPENDENT, 0, EF_NONE, NULL, 0);
    for (ef_id n = ef_class_first(g, class); n != EF_NONE && !d.has[EF_INDEPENDENT]; n = ef_class_next(g, n))
        if (!d.has[EF_ONLY] || scoped)
            see_node(y, &d, n);
    *lookup(y, class) = d;
    return lookup(y, class);
}

/* ---- f(x, g): substitution ---- */

ef_id ef_repair_rebuild(ef_synthesis *y, ef_id class, ef_way w)
{
    ef_egraph *g = y->g;
    const ef_dependence d = *ef_repair_depends(y, class);
    bool scoped = ef_axes_has(y->ctx, ef_type_axes(y->ctx, ef_egraph_type(g, class)), y->axis);
    double value;
    if (w == EF_INDEPENDENT)
        return scoped || ef_repair_literal(y, class, &value) ? class : ef_egraph_view(g, y->axes, class);
    for (unsigned i = 0; i < y->leaves; i++)
        if (ef_find(g, class) == ef_find(g, y->leaf[i]))
            return y->local[i];
    ef_id n = d.node[w], child[3];
    if (g->op.at[n] == EF_VIEW)
        return ef_repair_rebuild(y, ef_node_children(g, n)[0], (ef_way)d.operand[w][0]);
    for (unsigned i = 0; i < g->arity.at[n]; i++) {
        child[i] = ef_repair_rebuild(y, ef_node_children(g, n)[i], (ef_way)d.operand[w][i]);
        if (child[i] == EF_NONE)
            return EF_NONE;
    }
    return ef_egraph_add(g, (ef_op)g->op.at[n], g->attr.at[n], child, g->arity.at[n]);
}
