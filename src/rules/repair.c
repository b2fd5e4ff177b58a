/* Repair synthesis: see repair.h. */
#include "rules/repair.h"

#include <math.h>
#include <string.h>

#include "rules/language.h"
#include "rules/prove.h"
#include "support/rng.h"

#define MAX_FREE 24      /* independent sub-terms of one f */
#define LARGE_POINTS 512 /* at which f is tried for overflow */

/* How a term depends on the producer's result. */
typedef enum { INDEPENDENT, ONLY, SHIFT, SCALE, WAYS } way;

typedef struct {
    ef_id class;
    uint8_t state; /* 1 in progress, 2 known */
    bool has[WAYS];
    ef_scalar term[WAYS];     /* ONLY: the value; SHIFT: tau; SCALE: sigma; over parameters s */
    ef_id node[WAYS];         /* the e-node that shows it */
    uint8_t operand[WAYS][3]; /* which way of each operand it used */
} dependence;

typedef struct {
    const ef_scope *scope;
    ef_egraph *g;
    ef_ctx *ctx;
    ef_axis axis;
    ef_axes axes; /* {axis} */
    ef_reducer producer, consumer;
    ef_id leaf[EF_MAX_LEAVES], local[EF_MAX_LEAVES]; /* the producer's results outside p; its local values inside */
    unsigned leaves;
    EF_VEC(dependence) known;
    EF_VEC(ef_id) asked; /* classes that needs_whole_pass has answered for, with the answers */
    EF_VEC(uint8_t) answer;
    /* scalar image of f and of the producer's operands */
    ef_dag *dag;
    ef_id free_class[MAX_FREE];
    unsigned free_count;
    bool expand; /* the image opens independent sub-terms down to the free inputs that the producer's operand reads */
} synthesis;

static ef_scalar apply2(ef_ctx *ctx, ef_op op, ef_scalar a, ef_scalar b)
{
    return ef_scalar_apply(ctx, op, (ef_scalar[]){a, b, 0});
}

static ef_scalar apply1(ef_ctx *ctx, ef_op op, ef_scalar a)
{
    return ef_scalar_apply(ctx, op, (ef_scalar[]){a, 0, 0});
}

/* ---- dependence ---- */

static dependence *lookup(synthesis *y, ef_id class)
{
    for (uint32_t i = 0; i < y->known.count; i++)
        if (y->known.at[i].class == class)
            return &y->known.at[i];
    return NULL;
}

/* Whether a node reduces or contracts the dimension that p cuts. */
static bool reduces_same(synthesis *y, ef_id n)
{
    ef_egraph *g = y->g;
    unsigned index = 0;
    const ef_var *atoms;
    if (g->op.at[n] == EF_REDUCE_P)
        return ef_axis_var(ef_attr_reduce_at(g->attr.at[n])) == ef_axis_var(y->axis);
    if (g->op.at[n] == EF_COLLECT) /* the stored parts of such a reduction */
        return ef_axis_var((ef_axis)g->attr.at[n]) == ef_axis_var(y->axis);
    if (g->op.at[n] == EF_REDUCE)
        index = ef_attr_reduce_at(g->attr.at[n]);
    else if (g->op.at[n] != EF_MATMUL && g->op.at[n] != EF_TILE_MATMUL)
        return false;
    const ef_type_info *t = ef_type_at(y->ctx, ef_egraph_type(g, ef_node_children(g, n)[0]));
    for (unsigned i = 0, count = index < t->rank ? ef_dim_atoms(y->ctx, t->dim[index], &atoms) : 0; i < count; i++)
        if (atoms[i] == ef_axis_var(y->axis))
            return true;
    return false;
}

/* Whether the computation of a class outside of p's scope uses the producer's result, or another reduction of the same
 * dimension: such a value is complete only after a pass of its own over p. */
static bool search_whole_pass(synthesis *y, ef_id class)
{
    ef_egraph *g = y->g;
    EF_VEC(ef_id) list = {0};
    uint8_t *seen = ef_xcalloc(g->op.count, 1);
    bool found = false;
    class = ef_find(g, class);
    ef_vec_push(&list, class);
    seen[class] = 1;
    for (uint32_t i = 0; i < list.count && !found; i++) {
        for (unsigned k = 0; k < y->leaves; k++)
            found = found || list.at[i] == ef_find(g, y->leaf[k]);
        for (ef_id n = ef_class_first(g, list.at[i]); n != EF_NONE && !found; n = ef_class_next(g, n)) {
            found = reduces_same(y, n);
            if (ef_ops[g->op.at[n]].class == EF_PARALLEL || g->op.at[n] == EF_REDUCE_P || g->op.at[n] == EF_GET)
                continue;
            for (unsigned c = 0; c < g->arity.at[n]; c++) {
                ef_id child = ef_find(g, ef_node_children(g, n)[c]);
                if (!seen[child])
                    ef_vec_push(&list, child);
                seen[child] = 1;
            }
        }
    }
    ef_vec_free(&list);
    free(seen);
    return found;
}

static bool needs_whole_pass(synthesis *y, ef_id class)
{
    class = ef_find(y->g, class);
    for (uint32_t i = 0; i < y->asked.count; i++)
        if (y->asked.at[i] == class)
            return y->answer.at[i];
    bool found = search_whole_pass(y, class);
    ef_vec_push(&y->asked, class);
    ef_vec_push(&y->answer, found);
    return found;
}

static const dependence *depends(synthesis *y, ef_id class);

/* Adopts a way of seeing the class, unless one is known. */
static void adopt(dependence *d, way w, ef_scalar term, ef_id node, const way *operand, unsigned count)
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
static bool as_shift(const dependence *d, way *w, ef_scalar *tau)
{
    *w = d->has[SHIFT] ? SHIFT : ONLY;
    *tau = d->term[*w];
    return d->has[*w];
}

static bool as_scale(const dependence *d, way *w, ef_scalar *sigma)
{
    *w = d->has[SCALE] ? SCALE : ONLY;
    *sigma = d->term[*w];
    return d->has[*w];
}

static bool literal_of(synthesis *y, ef_id class, double *value)
{
    return ef_egraph_constant(y->g, class, value) && ef_type_is_literal(y->ctx, ef_egraph_type(y->g, class));
}

/* Shifts: sums and differences of shifted and independent operands. */
static void see_sum(synthesis *y, dependence *d, ef_id n, const dependence *a, const dependence *b)
{
    ef_op op = (ef_op)y->g->op.at[n];
    way wa, wb;
    ef_scalar ta, tb;
    bool sa = as_shift(a, &wa, &ta), sb = as_shift(b, &wb, &tb);
    if (sa && b->has[INDEPENDENT])
        adopt(d, SHIFT, ta, n, (way[]){wa, INDEPENDENT}, 2);
    else if (a->has[INDEPENDENT] && sb)
        adopt(d, SHIFT, op == EF_SUB ? apply1(y->ctx, EF_NEG, tb) : tb, n, (way[]){INDEPENDENT, wb}, 2);
    else if (sa && sb)
        adopt(d, SHIFT, apply2(y->ctx, op, ta, tb), n, (way[]){wa, wb}, 2);
    if (as_scale(a, &wa, &ta) && as_scale(b, &wb, &tb) && ta == tb)
        adopt(d, SCALE, ta, n, (way[]){wa, wb}, 2);
}

/* Scales: products and quotients; a shift times or over a literal stays a shift. */
static void see_product(synthesis *y, dependence *d, ef_id n, const dependence *a, const dependence *b)
{
    ef_op op = (ef_op)y->g->op.at[n];
    const ef_id *child = ef_node_children(y->g, n);
    way wa, wb;
    ef_scalar ta, tb;
    double c;
    if (as_scale(a, &wa, &ta)) {
        if (b->has[INDEPENDENT])
            adopt(d, SCALE, ta, n, (way[]){wa, INDEPENDENT}, 2);
        else if (as_scale(b, &wb, &tb))
            adopt(d, SCALE, apply2(y->ctx, op, ta, tb), n, (way[]){wa, wb}, 2);
    } else if (a->has[INDEPENDENT] && as_scale(b, &wb, &tb)) {
        adopt(d, SCALE, op == EF_DIV ? apply1(y->ctx, EF_RECIP, tb) : tb, n, (way[]){INDEPENDENT, wb}, 2);
    }
    if (literal_of(y, child[1], &c) && as_shift(a, &wa, &ta))
        adopt(d, SHIFT, apply2(y->ctx, op, ta, ef_scalar_const(y->ctx, c)), n, (way[]){wa, INDEPENDENT}, 2);
    else if (op == EF_MUL && literal_of(y, child[0], &c) && as_shift(b, &wb, &tb))
        adopt(d, SHIFT, apply2(y->ctx, op, tb, ef_scalar_const(y->ctx, c)), n, (way[]){INDEPENDENT, wb}, 2);
}

static void see_unary(synthesis *y, dependence *d, ef_id n, const dependence *a)
{
    ef_op op = (ef_op)y->g->op.at[n];
    way w;
    ef_scalar t;
    switch (op) {
    case EF_NEG:
        if (as_shift(a, &w, &t))
            adopt(d, SHIFT, apply1(y->ctx, EF_NEG, t), n, &w, 1);
        if (as_scale(a, &w, &t))
            adopt(d, SCALE, t, n, &w, 1);
        break;
    case EF_CAST:
        if (as_shift(a, &w, &t))
            adopt(d, SHIFT, t, n, &w, 1);
        if (as_scale(a, &w, &t))
            adopt(d, SCALE, t, n, &w, 1);
        break;
    case EF_EXP:
    case EF_EXP2:
        if (as_shift(a, &w, &t))
            adopt(d, SCALE, apply1(y->ctx, op, t), n, &w, 1);
        break;
    case EF_SQRT:
    case EF_RSQRT:
    case EF_RECIP:
    case EF_ABS:
        if (as_scale(a, &w, &t))
            adopt(d, SCALE, apply1(y->ctx, op, t), n, &w, 1);
        break;
    default: break;
    }
}

/* max, min, select: both branches move together; a masked branch (0 for scales, an infinity for shifts) stays put. */
static void see_branches(synthesis *y, dependence *d, ef_id n, const dependence *a, const dependence *b, unsigned first)
{
    const ef_id *child = ef_node_children(y->g, n);
    way wa, wb, ways[3] = {INDEPENDENT, INDEPENDENT, INDEPENDENT};
    ef_scalar ta, tb;
    double c;
    bool select = first == 1;
    if (as_shift(a, &wa, &ta) && as_shift(b, &wb, &tb) && ta == tb) {
        ways[first] = wa, ways[first + 1] = wb;
        adopt(d, SHIFT, ta, n, ways, first + 2);
    }
    for (unsigned i = 0; select && i < 2; i++) {
        const dependence *moving = i ? b : a;
        unsigned still = first + 1 - i;
        ways[1] = ways[2] = INDEPENDENT;
        if (!literal_of(y, child[still], &c))
            continue;
        if (isinf(c) && as_shift(moving, &ways[first + i], &ta))
            adopt(d, SHIFT, ta, n, ways, 3);
        if (c == 0 && as_scale(moving, &ways[first + i], &ta))
            adopt(d, SCALE, ta, n, ways, 3);
    }
    if (select && as_scale(a, &wa, &ta) && as_scale(b, &wb, &tb) && ta == tb) {
        ways[0] = INDEPENDENT, ways[1] = wa, ways[2] = wb;
        adopt(d, SCALE, ta, n, ways, 3);
    }
}

/* Whether every producer leaf is constant along dimension `index` (from the last). */
static bool leaves_constant_along(synthesis *y, unsigned index)
{
    for (unsigned i = 0; i < y->leaves; i++) {
        const ef_type_info *t = ef_type_at(y->ctx, ef_egraph_type(y->g, y->leaf[i]));
        if (index < t->rank && t->dim[index] != EF_UNIT)
            return false;
    }
    return true;
}

static bool positive(synthesis *y, ef_scalar sigma)
{
    const ef_scalar_info *info = ef_scalar_at(y->ctx, sigma);
    if (info->kind == EF_SCALAR_CONST)
        return info->value > 0;
    if (info->kind == EF_SCALAR_PARAM)
        return false;
    if (info->op == EF_EXP || info->op == EF_EXP2)
        return true;
    return (info->op == EF_MUL || info->op == EF_DIV) && positive(y, info->operand[0]) && positive(y, info->operand[1]);
}

/* Reductions inside the operand: linear ones pass a scale, extremal ones a shift. */
static void see_reduction(synthesis *y, dependence *d, ef_id n, const dependence *a, bool constant)
{
    ef_reducer_kind kind = ef_reducer_at(y->ctx, ef_attr_reducer(y->g->attr.at[n]))->kind;
    bool extremal = kind == EF_RED_MAX || kind == EF_RED_MIN;
    if (constant && a->has[SCALE] && (kind == EF_RED_SUM || (extremal && positive(y, a->term[SCALE]))))
        adopt(d, SCALE, a->term[SCALE], n, (way[]){SCALE}, 1);
    if (constant && a->has[SHIFT] && extremal)
        adopt(d, SHIFT, a->term[SHIFT], n, (way[]){SHIFT}, 1);
}

static void see_matmul(synthesis *y, dependence *d, ef_id n, const dependence *a, const dependence *b)
{
    if (a->has[SCALE] && b->has[INDEPENDENT] && leaves_constant_along(y, 0))
        adopt(d, SCALE, a->term[SCALE], n, (way[]){SCALE, INDEPENDENT}, 2);
    if (a->has[INDEPENDENT] && b->has[SCALE] && leaves_constant_along(y, 1))
        adopt(d, SCALE, b->term[SCALE], n, (way[]){INDEPENDENT, SCALE}, 2);
}

/* A view by p brings a value into p's scope: replicated, it may be a function of s; cut, it must not depend on s. */
static void see_view(synthesis *y, dependence *d, ef_id n)
{
    ef_egraph *g = y->g;
    ef_id outside = ef_node_children(g, n)[0];
    const ef_type_info *t = ef_type_at(y->ctx, ef_egraph_type(g, n));
    const ef_place *place = t->is_tuple ? NULL : ef_type_place(t, y->axis);
    if (!needs_whole_pass(y, outside)) {
        adopt(d, INDEPENDENT, 0, n, NULL, 0);
        return;
    }
    if (!place || place->kind != EF_REPLICATE || (ef_axes)g->attr.at[n] != y->axes)
        return;
    const dependence *o = depends(y, outside);
    for (way w = ONLY; w < WAYS; w++)
        if (o->has[w])
            adopt(d, w, o->term[w], n, (way[]){w}, 1);
}

static void see_node(synthesis *y, dependence *d, ef_id n)
{
    ef_egraph *g = y->g;
    ef_op op = (ef_op)g->op.at[n];
    if (op == EF_VIEW && ef_axes_has(y->ctx, (ef_axes)g->attr.at[n], y->axis)) {
        see_view(y, d, n);
        return;
    }
    if (ef_ops[op].class == EF_LEAF || g->arity.at[n] > 3 || op == EF_TUPLE || op == EF_GET) {
        if (ef_ops[op].class == EF_LEAF)
            adopt(d, INDEPENDENT, 0, n, NULL, 0);
        return;
    }
    dependence a[3] = {0};
    bool independent = true, only = true;
    for (unsigned i = 0; i < g->arity.at[n]; i++) {
        double value;
        const dependence *child = depends(y, ef_node_children(g, n)[i]);
        a[i] = *child;
        independent = independent && a[i].has[INDEPENDENT];
        only = only && (a[i].has[ONLY] || literal_of(y, ef_node_children(g, n)[i], &value));
    }
    if (independent) {
        adopt(d, INDEPENDENT, 0, n, NULL, 0);
        return;
    }
    if (only && ef_op_pointwise(op) && op != EF_CAST) {
        ef_scalar term[3];
        way ways[3];
        for (unsigned i = 0; i < g->arity.at[n]; i++) {
            double value = 0;
            ways[i] = a[i].has[ONLY] ? ONLY : INDEPENDENT;
            literal_of(y, ef_node_children(g, n)[i], &value);
            term[i] = a[i].has[ONLY] ? a[i].term[ONLY] : ef_scalar_const(y->ctx, value);
        }
        adopt(d, ONLY, ef_scalar_apply(y->ctx, op, term), n, ways, g->arity.at[n]);
    }
    if (op == EF_ADD || op == EF_SUB)
        see_sum(y, d, n, &a[0], &a[1]);
    else if (op == EF_MUL || op == EF_DIV)
        see_product(y, d, n, &a[0], &a[1]);
    else if (op == EF_MAX || op == EF_MIN)
        see_branches(y, d, n, &a[0], &a[1], 0);
    else if (op == EF_SELECT && a[0].has[INDEPENDENT])
        see_branches(y, d, n, &a[1], &a[2], 1);
    else if (op == EF_REDUCE && ef_attr_reduce_at(g->attr.at[n]) != EF_FIRST)
        see_reduction(y, d, n, &a[0], leaves_constant_along(y, ef_attr_reduce_at(g->attr.at[n])));
    else if (op == EF_TILE_MATMUL || op == EF_MATMUL)
        see_matmul(y, d, n, &a[0], &a[1]);
    else if (ef_ops[op].class == EF_UNARY)
        see_unary(y, d, n, &a[0]);
}

/* How a class depends on the producer's result; all its e-nodes are looked at, in order. */
static const dependence *depends(synthesis *y, ef_id class)
{
    ef_egraph *g = y->g;
    class = ef_find(g, class);
    dependence *old = lookup(y, class);
    if (old)
        return old; /* in progress: nothing is known, so that cycles add nothing */
    dependence d = {.class = class, .state = 1};
    ef_vec_push(&y->known, d);
    for (unsigned i = 0; i < y->leaves; i++)
        if (class == ef_find(g, y->leaf[i]))
            adopt(&d, ONLY, ef_scalar_param(y->ctx, EF_PARAM_S, i), EF_NONE, NULL, 0);
    bool scoped = ef_axes_has(y->ctx, ef_type_axes(y->ctx, ef_egraph_type(g, class)), y->axis);
    if (!d.has[ONLY] && !scoped && !needs_whole_pass(y, class))
        adopt(&d, INDEPENDENT, 0, EF_NONE, NULL, 0);
    for (ef_id n = ef_class_first(g, class); n != EF_NONE && !d.has[INDEPENDENT]; n = ef_class_next(g, n))
        if (!d.has[ONLY] || scoped)
            see_node(y, &d, n);
    d.state = 2;
    *lookup(y, class) = d;
    return lookup(y, class);
}

/* ---- f(x, g): substitution ---- */

static ef_id rebuild(synthesis *y, ef_id class, way w)
{
    ef_egraph *g = y->g;
    const dependence d = *depends(y, class);
    bool scoped = ef_axes_has(y->ctx, ef_type_axes(y->ctx, ef_egraph_type(g, class)), y->axis);
    double value;
    if (w == INDEPENDENT)
        return scoped || literal_of(y, class, &value) ? class : ef_egraph_view(g, y->axes, class);
    for (unsigned i = 0; i < y->leaves; i++)
        if (ef_find(g, class) == ef_find(g, y->leaf[i]))
            return y->local[i];
    ef_id n = d.node[w], child[3];
    if (g->op.at[n] == EF_VIEW)
        return rebuild(y, ef_node_children(g, n)[0], (way)d.operand[w][0]);
    for (unsigned i = 0; i < g->arity.at[n]; i++) {
        child[i] = rebuild(y, ef_node_children(g, n)[i], (way)d.operand[w][i]);
        if (child[i] == EF_NONE)
            return EF_NONE;
    }
    return ef_egraph_add(g, (ef_op)g->op.at[n], g->attr.at[n], child, g->arity.at[n]);
}

/* ---- the scalar image of f ---- */

static ef_expr free_input(synthesis *y, ef_id class)
{
    unsigned i = 0;
    while (i < y->free_count && y->free_class[i] != class)
        i++;
    if (i == MAX_FREE)
        return EF_NONE;
    if (i == y->free_count)
        y->free_class[y->free_count++] = class;
    return ef_prove_input(y->dag, "x", i);
}

static bool is_free(const synthesis *y, ef_id class)
{
    for (unsigned i = 0; i < y->free_count; i++)
        if (y->free_class[i] == class)
            return true;
    return false;
}

/* What an operator is to one element: matmul a product, a reduction or view its operand, a condition its sign. */
static ef_expr element(synthesis *y, ef_op op, ef_expr *child, unsigned count)
{
    if (op == EF_MATMUL || op == EF_TILE_MATMUL)
        return ef_dag_add(y->dag, EF_MUL, 0, child, 2, NULL);
    if (op == EF_REDUCE || op == EF_REDUCE_P || op == EF_VIEW || op == EF_CAST)
        return count ? child[0] : EF_NONE;
    if (op == EF_SELECT &&
        (child[0] = ef_dag_add(y->dag, EF_GT, 0, (ef_expr[]){child[0], ef_dag_const(y->dag, 0)}, 2, NULL)) == EF_NONE)
        return EF_NONE;
    return ef_dag_add(y->dag, op, 0, child, count, NULL);
}

#define OPEN_DEPTH 10

/* Whether pointwise operators alone lead from the class to a free input. */
static bool reaches_free(synthesis *y, ef_id class, unsigned depth)
{
    ef_egraph *g = y->g;
    class = ef_find(g, class);
    if (is_free(y, class))
        return true;
    for (ef_id n = ef_class_first(g, class); n != EF_NONE && depth < OPEN_DEPTH; n = ef_class_next(g, n))
        for (unsigned i = 0; ef_op_pointwise((ef_op)g->op.at[n]) && i < g->arity.at[n]; i++)
            if (reaches_free(y, ef_node_children(g, n)[i], depth + 1))
                return true;
    return false;
}

/* A term of x alone. For the producer's operand it is opened as far as pointwise operators and reductions of p's own
 * dimension go (a tile of one element is enough to look at); for f only where that leads to inputs that the producer's
 * operand reads as well. */
static ef_expr independent_image(synthesis *y, ef_id class, bool producer, unsigned depth)
{
    ef_egraph *g = y->g;
    double value;
    class = ef_find(g, class);
    if (is_free(y, class))
        return free_input(y, class);
    if (literal_of(y, class, &value))
        return ef_dag_const(y->dag, value);
    bool open = depth < OPEN_DEPTH && (producer || (y->expand && reaches_free(y, class, 0)));
    for (ef_id n = ef_class_first(g, class); n != EF_NONE && open; n = ef_class_next(g, n)) {
        ef_op op = (ef_op)g->op.at[n];
        ef_expr child[3];
        bool ok = (ef_op_pointwise(op) && ef_type_at(y->ctx, ef_egraph_type(g, n))->dtype != EF_BOOL) ||
                  (producer && op == EF_REDUCE && reduces_same(y, n));
        bool leads = producer;
        for (unsigned i = 0; ok && !leads && i < g->arity.at[n]; i++)
            leads = reaches_free(y, ef_node_children(g, n)[i], depth);
        for (unsigned i = 0; ok && leads && i < g->arity.at[n]; i++)
            ok = (child[i] = independent_image(y, ef_node_children(g, n)[i], producer, depth + 1)) != EF_NONE;
        if (ok && leads)
            return element(y, op, child, g->arity.at[n]);
    }
    return free_input(y, class);
}

/* One element's view of f. */
static ef_expr image(synthesis *y, ef_id class, way w, const ef_expr *s)
{
    ef_egraph *g = y->g;
    const dependence d = *depends(y, class);
    double value;
    class = ef_find(g, class);
    for (unsigned i = 0; i < y->leaves; i++)
        if (class == ef_find(g, y->leaf[i]))
            return s[i];
    if (literal_of(y, class, &value))
        return ef_dag_const(y->dag, value);
    if (w == INDEPENDENT)
        return independent_image(y, class, false, 0);
    ef_id n = d.node[w];
    ef_expr child[3];
    for (unsigned i = 0; i < g->arity.at[n]; i++)
        if ((child[i] = image(y, ef_node_children(g, n)[i], (way)d.operand[w][i], s)) == EF_NONE)
            return EF_NONE;
    return element(y, (ef_op)g->op.at[n], child, g->arity.at[n]);
}

/* Evaluates a rank-0 expression: x by index, s (or t) by index. */
typedef struct {
    double x[MAX_FREE], s[EF_MAX_LEAVES];
} point;

static double value_at(const synthesis *y, ef_expr e, const point *p)
{
    const ef_expr *child;
    double x[3];
    unsigned count = ef_dag_children(y->dag, e, &child);
    if (ef_dag_op(y->dag, e) == EF_CONST)
        return ef_attr_to_number(ef_dag_attr(y->dag, e));
    if (ef_dag_op(y->dag, e) == EF_INPUT) {
        const char *name = ef_input_name(y->ctx, (uint32_t)ef_dag_attr(y->dag, e));
        unsigned index = (unsigned)strtoul(name + 2, NULL, 10);
        return name[1] == 'x' ? p->x[index] : p->s[index];
    }
    for (unsigned i = 0; i < count; i++)
        x[i] = value_at(y, child[i], p);
    return ef_op_apply(ef_dag_op(y->dag, e), ef_dag_attr(y->dag, e), x);
}

/* ---- proofs and checks ---- */

typedef struct {
    ef_reducer base;
    ef_scalar h;
    ef_expr fs, ft;  /* f(x, s), f(x, t) as scalars */
    ef_scalar scale; /* what h divides by, where f scales */
} consumer_leaf;

static void producer_inputs(synthesis *y, ef_expr *s, ef_expr *t)
{
    for (unsigned i = 0; i < EF_MAX_LEAVES; i++) {
        s[i] = i < y->leaves ? ef_prove_input(y->dag, "s", i) : EF_NONE;
        t[i] = i < y->leaves ? ef_prove_input(y->dag, "t", i) : EF_NONE;
    }
}

/* (a) and (b), by the e-graph. */
static bool proved(synthesis *y, const consumer_leaf *leaf)
{
    static const ef_op combine[] = {EF_ADD, EF_MAX, EF_MIN, EF_MUL};
    ef_expr s[EF_MAX_LEAVES], t[EF_MAX_LEAVES];
    producer_inputs(y, s, t);
    ef_expr repaired = ef_prove_expr(y->dag, leaf->h, leaf->fs, s, t);
    ef_expr a = ef_prove_input(y->dag, "a", 0), b = ef_prove_input(y->dag, "b", 0);
    ef_expr joined = ef_dag_add(y->dag, combine[leaf->base], 0, (ef_expr[]){a, b}, 2, NULL);
    ef_expr ha = ef_prove_expr(y->dag, leaf->h, a, s, t), hb = ef_prove_expr(y->dag, leaf->h, b, s, t);
    ef_expr parts = ef_dag_add(y->dag, combine[leaf->base], 0, (ef_expr[]){ha, hb}, 2, NULL);
    return ef_prove_equal(y->dag, repaired, leaf->ft) &&
           ef_prove_equal(y->dag, ef_prove_expr(y->dag, leaf->h, joined, s, t), parts);
}

static bool close_to(double a, double b)
{
    return a == b || (isnan(a) && isnan(b)) || fabs(a - b) <= 1e-9 * (1 + fabs(a) + fabs(b));
}

/* (a) and (c) at random points. Points where f itself is not finite say nothing. */
static bool checked_at_points(synthesis *y, const consumer_leaf *leaf)
{
    ef_rng rng = {17};
    unsigned informative = 0;
    for (unsigned round = 0; round < 64; round++) {
        point p = {0}, q = {0};
        for (unsigned i = 0; i < MAX_FREE; i++)
            p.x[i] = q.x[i] = ef_rng_normal(&rng);
        for (unsigned i = 0; i < EF_MAX_LEAVES; i++) {
            p.s[i] = 0.1 + fabs(ef_rng_normal(&rng));
            q.s[i] = p.s[i] + fabs(ef_rng_normal(&rng));
        }
        double before = value_at(y, leaf->fs, &p), after = value_at(y, leaf->fs, &q);
        double identity = ef_reducer_identity(leaf->base);
        if (!isfinite(before) || !isfinite(after))
            continue;
        informative++;
        if (!close_to(ef_scalar_eval(y->ctx, leaf->h, before, p.s, q.s), after) ||
            ef_scalar_eval(y->ctx, leaf->h, identity, p.s, q.s) != identity)
            return false;
    }
    return informative >= 16;
}

/* Sums of such terms are zero only where every term is. */
static bool never_negative(const synthesis *y, ef_expr e)
{
    const ef_expr *child;
    unsigned count = ef_dag_children(y->dag, e, &child);
    switch (ef_dag_op(y->dag, e)) {
    case EF_CONST: return ef_attr_to_number(ef_dag_attr(y->dag, e)) >= 0;
    case EF_EXP:
    case EF_EXP2:
    case EF_ABS:
    case EF_SQRT:
    case EF_SIGMOID: return true;
    case EF_MUL:
        if (child[0] == child[1])
            return true;
        return never_negative(y, child[0]) && never_negative(y, child[1]);
    case EF_ADD:
    case EF_DIV: return count == 2 && never_negative(y, child[0]) && never_negative(y, child[1]);
    default: return false;
    }
}

/* The scalar images of the producer's operands and of f over common inputs, of which f opens the terms that the
 * operands read. */
typedef struct {
    ef_expr operand[EF_MAX_LEAVES], f;
} joint_image;

static bool image_jointly(synthesis *y, ef_id consumer, way used, joint_image *j)
{
    ef_expr s[EF_MAX_LEAVES], t[EF_MAX_LEAVES];
    bool complete = true;
    producer_inputs(y, s, t);
    y->free_count = 0;
    y->expand = true;
    for (unsigned i = 0; i < y->leaves; i++)
        complete = complete && (j->operand[i] = independent_image(y, y->local[i], true, 0)) != EF_NONE;
    complete = complete && (j->f = image(y, consumer, used, s)) != EF_NONE;
    y->free_count = 0;
    y->expand = false;
    return complete;
}

/* ---- what h divides by ---- */

typedef enum { ANY_SIGN, NEVER_NEGATIVE, POSITIVE } sign;

static sign least_sign(sign a, sign b)
{
    return a < b ? a : b;
}

/* The sign of a closed function of the producer's leaves, once each has seen something: a sum of terms that are never
 * negative is positive then, about a maximum nothing is known. */
static sign sign_of(const synthesis *y, const joint_image *j, const ef_reducer *base, ef_scalar term)
{
    const ef_scalar_info *t = ef_scalar_at(y->ctx, term);
    if (t->kind == EF_SCALAR_CONST)
        return t->value > 0 ? POSITIVE : t->value == 0 ? NEVER_NEGATIVE : ANY_SIGN;
    if (t->kind == EF_SCALAR_PARAM)
        return base[t->index] == EF_RED_SUM && never_negative(y, j->operand[t->index]) ? POSITIVE : ANY_SIGN;
    sign a = sign_of(y, j, base, t->operand[0]), b = t->operands > 1 ? sign_of(y, j, base, t->operand[1]) : ANY_SIGN;
    switch (t->op) {
    case EF_EXP:
    case EF_EXP2:
    case EF_SIGMOID: return POSITIVE;
    case EF_SQRT:
    case EF_RSQRT:
    case EF_RECIP: return a == POSITIVE ? POSITIVE : ANY_SIGN;
    case EF_ABS: return a == POSITIVE ? POSITIVE : NEVER_NEGATIVE;
    case EF_ADD:
        return a == POSITIVE && b != ANY_SIGN ? POSITIVE : b == POSITIVE && a != ANY_SIGN ? POSITIVE : least_sign(a, b);
    case EF_MUL:
    case EF_MIN: return least_sign(a, b);
    case EF_DIV: return b == POSITIVE ? a : ANY_SIGN;
    case EF_MAX: return a > b ? a : b;
    default: return ANY_SIGN;
    }
}

/* ---- producers that have seen nothing ---- */

/* The inputs x that an expression reads, as a bit mask. */
static uint32_t inputs_read(const synthesis *y, ef_expr e)
{
    const ef_expr *child;
    uint32_t read = 0;
    unsigned count = ef_dag_children(y->dag, e, &child);
    if (ef_dag_op(y->dag, e) == EF_INPUT) {
        const char *name = ef_input_name(y->ctx, (uint32_t)ef_dag_attr(y->dag, e));
        return name[1] == 'x' ? 1u << strtoul(name + 2, NULL, 10) : 0;
    }
    for (unsigned i = 0; i < count; i++)
        read |= inputs_read(y, child[i]);
    return read;
}

/* A random point but for the inputs in `extreme`: those are `value`. */
static point extreme_point(uint32_t extreme, double value, ef_rng *rng)
{
    point p = {0};
    for (unsigned i = 0; i < MAX_FREE; i++)
        p.x[i] = extreme >> i & 1 ? value : ef_rng_normal(rng);
    for (unsigned i = 0; i < EF_MAX_LEAVES; i++)
        p.s[i] = 0.1 + fabs(ef_rng_normal(rng));
    return p;
}

#define MOST_INPUTS 8 /* of a producer's operand: 256 subsets are tried; more inputs are refused */

/* The evaluator and the generated loops skip a contribution for which some leaf of the local producer value still is
 * the identity. That is right only when such a contribution is the consumer's identity: wherever that leaf's operand
 * G(x) is its identity, f(x, s) must be the consumer's, for every s. Any part of G's inputs may be what makes it so. */
static bool identity_implies_identity(const synthesis *y, const joint_image *j, unsigned which, ef_reducer base,
                                      ef_reducer consumer_base)
{
    static const double extremes[] = {-INFINITY, 0, INFINITY, 1};
    ef_rng rng = {23};
    ef_expr operand = j->operand[which];
    uint32_t read = inputs_read(y, operand);
    if ((base == EF_RED_SUM && !never_negative(y, operand)) || base == EF_RED_PROD ||
        __builtin_popcount(read) > MOST_INPUTS)
        return false;
    for (uint32_t extreme = read; extreme; extreme = (extreme - 1) & read)
        for (unsigned e = 0; e < 4; e++)
            for (unsigned round = 0; round < 4; round++) {
                point p = extreme_point(extreme, extremes[e], &rng);
                if (value_at(y, operand, &p) == ef_reducer_identity(base) &&
                    value_at(y, j->f, &p) != ef_reducer_identity(consumer_base))
                    return false;
            }
    return true;
}

/* A point of large values, the producer's local value g at it in s, and in t what that may have become in the end. */
static void large_point(const synthesis *y, const joint_image *j, const ef_reducer *base, point *p, point *t,
                        ef_rng *rng)
{
    static const double magnitude[] = {1, 100, 10000, 100000, 1000000};
    for (unsigned i = 0; i < MAX_FREE; i++)
        p->x[i] = ef_rng_normal(rng) * magnitude[ef_rng_below(rng, 4)];
    for (unsigned i = 0; i < y->leaves; i++) /* the sums of a repaired producer are of moderate size */
        p->s[i] = i > 0 && base[i] == EF_RED_SUM ? 0.1 + fabs(ef_rng_normal(rng)) : value_at(y, j->operand[i], p);
    *t = *p;
    for (unsigned i = 0; i < y->leaves; i++) {
        double change = fabs(ef_rng_normal(rng)) * magnitude[ef_rng_below(rng, 5)];
        t->s[i] += base[i] == EF_RED_MIN ? -change : change;
    }
}

/* No form that overflows where the original did not: where f(x, t) is finite, so must be f(x, g), and h(f(x, g), g, t)
 * must be what it was proved to be. exp(x - s) is of this kind when s is the maximum of x, but not when it is that of
 * something else. */
static bool finite_locally(const synthesis *y, const joint_image *j, const ef_reducer *base, ef_scalar h)
{
    ef_rng rng = {29};
    for (unsigned round = 0; round < LARGE_POINTS; round++) {
        point p = {0}, t = {0};
        large_point(y, j, base, &p, &t, &rng);
        double before = value_at(y, j->f, &p), after = value_at(y, j->f, &t);
        bool seen = true;
        for (unsigned i = 0; i < y->leaves; i++)
            seen = seen && isfinite(p.s[i]) && p.s[i] != ef_reducer_identity(base[i]);
        if (seen && isfinite(after) && !close_to(ef_scalar_eval(y->ctx, h, before, p.s, t.s), after))
            return false;
    }
    return true;
}

/* ---- h ---- */

/* Replaces parameters s by t. */
static ef_scalar at_new(ef_ctx *ctx, ef_scalar term)
{
    ef_scalar_info info = *ef_scalar_at(ctx, term);
    if (info.kind == EF_SCALAR_PARAM)
        return ef_scalar_param(ctx, EF_PARAM_T, info.index);
    if (info.kind == EF_SCALAR_CONST)
        return term;
    for (unsigned i = 0; i < info.operands; i++)
        info.operand[i] = at_new(ctx, info.operand[i]);
    return ef_scalar_apply(ctx, info.op, info.operand);
}

static ef_scalar simplified(synthesis *y, ef_scalar raw)
{
    for (uint32_t i = 0; i < y->g->simplified.count; i += 2)
        if (y->g->simplified.at[i] == raw)
            return y->g->simplified.at[i + 1];
    ef_scalar result = ef_prove_simplify(y->ctx, raw);
    ef_vec_push(&y->g->simplified, raw);
    ef_vec_push(&y->g->simplified, result);
    return result;
}

/* The same f, h and reducer come back in every iteration and grid: they are settled once. */
static bool settled(synthesis *y, const consumer_leaf *leaf, ef_scalar raw)
{
    ef_egraph *g = y->g;
    ef_strbuf key = {0};
    int fresh;
    ef_strbuf_printf(&key, "%u %u ", leaf->base, raw);
    ef_expr_print(y->dag, leaf->fs, &key);
    uint32_t at = ef_intern_put(g->lemmas, key.text, key.length, &fresh);
    ef_strbuf_free(&key);
    if (fresh) {
        ef_vec_push(&g->lemma_holds, 2);
        g->lemma_holds.at[at] = proved(y, leaf) && checked_at_points(y, leaf);
    }
    return g->lemma_holds.at[at] == 1;
}

static bool derive_leaf(synthesis *y, ef_id class, ef_reducer base, consumer_leaf *leaf, way *used)
{
    const dependence d = *depends(y, class);
    ef_ctx *ctx = y->ctx;
    ef_scalar c = ef_scalar_param(ctx, EF_PARAM_C, 0), s, h;
    leaf->base = base;
    bool extremal = base == EF_RED_MAX || base == EF_RED_MIN;
    if (d.has[INDEPENDENT]) {
        *used = INDEPENDENT;
        h = c;
    } else if (extremal && d.has[SHIFT]) {
        *used = SHIFT;
        s = d.term[SHIFT];
        h = apply2(ctx, EF_ADD, c, apply2(ctx, EF_SUB, at_new(ctx, s), s));
    } else if (d.has[SCALE] && (base == EF_RED_SUM || (extremal && positive(y, d.term[SCALE])))) {
        *used = SCALE;
        s = leaf->scale = d.term[SCALE];
        h = apply2(ctx, EF_MUL, c, apply2(ctx, EF_DIV, at_new(ctx, s), s));
    } else {
        return false;
    }
    ef_expr old[EF_MAX_LEAVES], new[EF_MAX_LEAVES];
    producer_inputs(y, old, new);
    leaf->fs = image(y, class, *used, old);
    leaf->ft = image(y, class, *used, new);
    if (leaf->fs == EF_NONE || leaf->ft == EF_NONE)
        return false;
    leaf->h = *used == INDEPENDENT ? h : simplified(y, h);
    return *used == INDEPENDENT || settled(y, leaf, h);
}

/* ---- structure ---- */

/* The classes at the leaves of a reducer's operand: a tuple's fields, found or made by get. */
static bool leaf_classes(ef_egraph *g, ef_reducer reducer, ef_id class, bool make, ef_id *leaf, unsigned *count)
{
    const ef_reducer_info *info = ef_reducer_at(g->ctx, reducer);
    if (info->leaves == 1) {
        leaf[(*count)++] = class;
        return true;
    }
    ef_id tuple = ef_class_find(g, class, EF_TUPLE), field[2];
    for (uint64_t i = 0; i < 2; i++) {
        if (tuple != EF_NONE && g->arity.at[tuple] == 2)
            field[i] = ef_node_children(g, tuple)[i];
        else
            field[i] = make ? ef_egraph_add(g, EF_GET, i, &class, 1) : ef_egraph_lookup(g, EF_GET, i, &class, 1);
        if (field[i] == EF_NONE)
            return false;
    }
    return leaf_classes(g, info->left, field[0], make, leaf, count) &&
           leaf_classes(g, info->right, field[1], make, leaf, count);
}

/* The leaves' values put back into the reducer's tuple structure. */
static ef_id gather(ef_egraph *g, ef_reducer reducer, const ef_id **leaf)
{
    const ef_reducer_info *info = ef_reducer_at(g->ctx, reducer);
    if (info->leaves == 1)
        return *(*leaf)++;
    ef_id pair[2];
    pair[0] = gather(g, info->left, leaf);
    pair[1] = gather(g, info->right, leaf);
    return ef_egraph_add(g, EF_TUPLE, 0, pair, 2);
}

static bool any_repaired(ef_ctx *ctx, ef_reducer reducer)
{
    const ef_reducer_info *info = ef_reducer_at(ctx, reducer);
    return info->kind == EF_RED_REPAIRED ||
           (info->leaves > 1 && (any_repaired(ctx, info->left) || any_repaired(ctx, info->right)));
}

/* Whether local values may stand for what they will be repaired to. */
static bool safe(synthesis *y, ef_id consumer, way used, const ef_reducer *producer_base, const consumer_leaf *leaf)
{
    joint_image j = {0};
    if (!image_jointly(y, consumer, used, &j))
        return false;
    for (unsigned i = 0; i < y->leaves; i++)
        if (!identity_implies_identity(y, &j, i, producer_base[i], leaf->base))
            return false;
    if (used == SCALE && sign_of(y, &j, producer_base, leaf->scale) != POSITIVE)
        return false; /* h would divide by what may be zero while only a part was seen */
    return used == INDEPENDENT || finite_locally(y, &j, producer_base, leaf->h);
}

static ef_id synthesise(synthesis *y, ef_id g_class, ef_id consumer_operand)
{
    ef_egraph *g = y->g;
    ef_id operand[EF_MAX_LEAVES], result[EF_MAX_LEAVES] = {0};
    ef_reducer base[EF_MAX_LEAVES], producer_base[EF_MAX_LEAVES];
    ef_scalar h[EF_MAX_LEAVES];
    unsigned count = 0;
    bool dependent = false;
    if (any_repaired(y->ctx, y->consumer) || !leaf_classes(g, y->consumer, consumer_operand, false, operand, &count))
        return EF_NONE;
    ef_reducer_leaves(y->ctx, y->consumer, base);
    ef_reducer_leaves(y->ctx, y->producer, producer_base);
    for (unsigned i = 0; i < count; i++) {
        consumer_leaf leaf = {0};
        way used;
        if (!derive_leaf(y, operand[i], base[i], &leaf, &used))
            return EF_NONE;
        h[i] = leaf.h;
        dependent = dependent || used != INDEPENDENT;
        if (!safe(y, operand[i], used, producer_base, &leaf))
            return EF_NONE;
        if ((result[i] = rebuild(y, operand[i], used)) == EF_NONE)
            return EF_NONE;
    }
    ef_reducer reducer = dependent ? ef_reducer_repaired(y->ctx, y->producer, y->consumer, h) : EF_NONE;
    const ef_id *next = result;
    ef_id pair[2] = {g_class, dependent ? gather(g, y->consumer, &next) : EF_NONE};
    if (reducer == EF_NONE || pair[1] == EF_NONE)
        return EF_NONE;
    ef_id tuple = ef_egraph_add(g, EF_TUPLE, 0, pair, 2);
    return tuple == EF_NONE ? EF_NONE : ef_egraph_add(g, EF_REDUCE_P, ef_attr_reduce(reducer, y->axis), &tuple, 1);
}

#define PATIENCE 6

/* A pair that was refused is tried again while what it is made of may still be growing: some times in any case, then
 * only when something changed close below it. */
static uint32_t *refusals_of(ef_egraph *g, const ef_match *match)
{
    ef_id key[] = {ef_find(g, match->root), ef_find(g, match->var[0]), ef_find(g, match->var[1]),
                   (ef_id)match->attr[1]};
    int fresh;
    uint32_t at = ef_intern_put(g->refused, key, sizeof key, &fresh);
    if (fresh)
        ef_vec_push(&g->refusals, 0);
    return &g->refusals.at[at];
}

ef_id ef_repair_build(const ef_scope *scope, const ef_rule *rule, const ef_match *match)
{
    /* tuple(reduce_p[?r, ?p](?g), reduce_p[?s, ?p](?y)): attributes r, p, s in order of binding */
    (void)rule;
    ef_egraph *g = scope->graph;
    synthesis y = {.scope = scope,
                   .g = g,
                   .ctx = g->ctx,
                   .producer = (ef_reducer)match->attr[0],
                   .axis = (ef_axis)match->attr[1],
                   .consumer = (ef_reducer)match->attr[2]};
    unsigned count = 0;
    uint32_t *refusals = refusals_of(g, match);
    if (*refusals >= PATIENCE && g->touched[EF_TOUCH_DEPTH - 1].at[ef_find(g, match->root)] < g->tick)
        return EF_NONE;
    ++*refusals;
    y.axes = ef_axes_intern(y.ctx, &y.axis, 1);
    y.dag = ef_dag_new(y.ctx);
    ef_id produced = match->node[1], result = EF_NONE;
    if (leaf_classes(g, y.producer, produced, true, y.leaf, &count) &&
        leaf_classes(g, y.producer, match->var[0], true, y.local, &(unsigned){0})) {
        y.leaves = count;
        result = synthesise(&y, match->var[0], match->var[1]);
    }
    ef_vec_free(&y.known);
    ef_vec_free(&y.asked);
    ef_vec_free(&y.answer);
    ef_dag_free(y.dag);
    return result;
}

ef_builder_fn ef_builder_named(const char *name, unsigned length)
{
    return length == 6 && memcmp(name, "repair", 6) == 0 ? ef_repair_build : NULL;
}
