/* Conditions of rules, by name: what makes a rule true, and (policy) where the search applies it. */
#include <string.h>

#include "rules/group.h"
#include "rules/language.h"
#include "rules/parts.h"
#include "rules/policy.h"
#include "rules/rename.h"

#define CONDITION(name) static bool name(const ef_scope *scope, const ef_condition_arg *a, unsigned n, uint64_t *out)
#define UNUSED (void)scope, (void)a, (void)n, (void)out

static const ef_type_info *info_of(const ef_scope *scope, const ef_condition_arg *a)
{
    return ef_type_at(scope->ctx, a->type);
}

static ef_dim dim_at(const ef_type_info *t, uint64_t index)
{
    if (index == EF_FIRST)
        return t->rank ? t->dim[t->rank - 1] : EF_UNIT;
    return index < t->rank ? t->dim[index] : EF_UNIT;
}

static bool tensor(const ef_scope *scope, const ef_condition_arg *a)
{
    return a->type && !info_of(scope, a)->is_tuple;
}

static const ef_policy *policy_of(const ef_scope *scope)
{
    return scope->policy;
}

/* ---- truth ---- */

/* const_along(?x, i): x is broadcast along dimension i */
CONDITION(const_along)
{
    UNUSED;
    return tensor(scope, &a[0]) && a[1].attr != EF_FIRST && dim_at(info_of(scope, &a[0]), a[1].attr) == EF_UNIT;
}

CONDITION(varies_along)
{
    UNUSED;
    return tensor(scope, &a[0]) && a[1].attr != EF_FIRST && dim_at(info_of(scope, &a[0]), a[1].attr) != EF_UNIT;
}

/* whole(?x, i): dimension i is not cut, so it is never an empty tile */
CONDITION(whole)
{
    UNUSED;
    const ef_type_info *t = info_of(scope, &a[0]);
    for (unsigned i = 0; i < t->places; i++)
        if (t->place[i].kind == EF_PARTITION && t->place[i].dim == a[1].attr)
            return false;
    return true;
}

CONDITION(positive)
{
    UNUSED;
    return a[0].constant && a[0].value > 0;
}

/* same_rank(?x, ?y) */
CONDITION(same_rank)
{
    UNUSED;
    return tensor(scope, &a[0]) && tensor(scope, &a[1]) && info_of(scope, &a[0])->rank == info_of(scope, &a[1])->rank;
}

CONDITION(same_dims)
{
    UNUSED;
    const ef_type_info *x = info_of(scope, &a[0]), *y = info_of(scope, &a[1]);
    return tensor(scope, &a[0]) && tensor(scope, &a[1]) && x->rank == y->rank &&
           memcmp(x->dim, y->dim, sizeof x->dim) == 0;
}

CONDITION(literal)
{
    UNUSED;
    return a[0].type && ef_type_is_literal(scope->ctx, a[0].type);
}

/* ?C = over(?V, ?x, i): the axes of V that cut variables of dimension i of x */
CONDITION(over)
{
    UNUSED;
    const ef_axis *axis;
    ef_axis found[2 * EF_MAX_PLACES];
    unsigned count = 0;
    if (!tensor(scope, &a[1]))
        return a[2].attr == EF_FIRST;
    ef_dim dim = a[2].attr == EF_FIRST ? EF_UNIT : dim_at(info_of(scope, &a[1]), a[2].attr);
    for (unsigned i = 0, total = ef_axes_at(scope->ctx, (ef_axes)a[0].attr, &axis); i < total; i++)
        if (ef_dim_has(scope->ctx, dim, ef_axis_var(axis[i])))
            found[count++] = axis[i];
    *out = ef_axes_intern(scope->ctx, found, count);
    return true;
}

/* ?C = over_axis(?V, ?p): the axes of V that cut what p cuts */
CONDITION(over_axis)
{
    UNUSED;
    const ef_axis *axis;
    ef_axis found[2 * EF_MAX_PLACES];
    unsigned count = 0;
    for (unsigned i = 0, total = ef_axes_at(scope->ctx, (ef_axes)a[0].attr, &axis); i < total; i++)
        if (ef_axis_var(axis[i]) == ef_axis_var((ef_axis)a[1].attr))
            found[count++] = axis[i];
    *out = ef_axes_intern(scope->ctx, found, count);
    return true;
}

/* subset(?W, ?V) */
CONDITION(subset)
{
    UNUSED;
    return ef_axes_subset(scope->ctx, (ef_axes)a[0].attr, (ef_axes)a[1].attr);
}

/* The axis of a level that cuts dimension i of x, when it can be introduced here. */
static bool axis_for(const ef_scope *scope, const ef_condition_arg *a, unsigned level, uint64_t *out)
{
    const ef_var *atoms;
    if (!tensor(scope, &a[0]) || a[1].attr == EF_FIRST)
        return false;
    ef_dim dim = dim_at(info_of(scope, &a[0]), a[1].attr);
    if (ef_dim_atoms(scope->ctx, dim, &atoms) == 0 || ef_dim_is_count(scope->ctx, dim))
        return false;
    ef_axis axis = ef_axis_of(atoms[0], level);
    *out = axis;
    ef_axes set = ef_axes_intern(scope->ctx, &axis, 1);
    return ef_infer(scope->ctx, EF_VIEW, set, &a[0].type, 1, NULL) != 0;
}

/* ?p = loop_axis(?x, i): level 1 */
CONDITION(loop_axis)
{
    UNUSED;
    return axis_for(scope, a, 1, out);
}

/* ?p = split_axis(?x, i): level 0 */
CONDITION(split_axis)
{
    UNUSED;
    return axis_for(scope, a, 0, out);
}

/* ?p = block_axis(root, i): level 0, for an output dimension */
CONDITION(block_axis)
{
    UNUSED;
    return axis_for(scope, a, 0, out);
}

/* ?V = batch_axes(root): level-0 axes of all dimensions but the last two */
CONDITION(batch_axes)
{
    UNUSED;
    ef_axis axes[EF_MAX_RANK];
    unsigned count = 0;
    if (!tensor(scope, &a[0]))
        return false;
    const ef_type_info *t = info_of(scope, &a[0]);
    for (unsigned i = 2; i < t->rank; i++) {
        const ef_var *atoms;
        if (ef_dim_atoms(scope->ctx, t->dim[i], &atoms) && !ef_dim_is_count(scope->ctx, t->dim[i]))
            axes[count++] = ef_axis_of(atoms[0], 0);
    }
    *out = ef_axes_intern(scope->ctx, axes, count);
    return count > 0;
}

/* ?C = bound(?V, ?t): the axes of V that cut what a parallel reduction in the tuple's class binds. Any choice is true:
 * it only keeps views of the tuple from piling up where they cannot move on. */
CONDITION(bound)
{
    UNUSED;
    ef_egraph *g = scope->graph;
    ef_id t = a[1].id;
    *out = 0;
    for (unsigned depth = 0; g && t != EF_NONE && depth < 4; depth++) {
        ef_id node = ef_class_find(g, t, EF_REDUCE_P);
        if (node != EF_NONE) {
            ef_condition_arg args[] = {a[0], {.attr = ef_attr_reduce_at(g->attr.at[node])}};
            return over_axis(scope, args, 2, out);
        }
        node = ef_class_find(g, t, EF_GET);
        t = node == EF_NONE ? EF_NONE : ef_node_children(g, node)[0];
    }
    return true;
}

/* adds_leading_units(?D, ?x): reshape[D] only puts unit dimensions in front of x's shape */
CONDITION(adds_leading_units)
{
    UNUSED;
    const ef_dim *d;
    unsigned rank = ef_dims_at(scope->ctx, (ef_dims)a[0].attr, &d);
    const ef_type_info *t = info_of(scope, &a[1]);
    if (!tensor(scope, &a[1]) || rank <= t->rank)
        return false;
    for (unsigned i = 0; i < rank; i++)
        if (d[rank - 1 - i] != (i < t->rank ? t->dim[i] : EF_UNIT))
            return false;
    return true;
}

/* gain(?x, root): x varies along the last dimension and is broadcast along others: what may move to a weight */
CONDITION(gain)
{
    UNUSED;
    const ef_type_info *x = info_of(scope, &a[0]), *r = info_of(scope, &a[1]);
    bool broadcast = x->rank < r->rank;
    for (unsigned i = 1; i < x->rank; i++)
        broadcast = broadcast || x->dim[i] != r->dim[i];
    return !scope->policy || (broadcast && x->rank && x->dim[0] != EF_UNIT);
}

/* The multiplications of a matmul with this many rows, columns and products for each, over the batch of a and b. */
static double products(const ef_scope *scope, const ef_type_info *a, const ef_type_info *b, double rows, double inner,
                       double columns)
{
    double batch = 1;
    for (unsigned i = 2; i < a->rank || i < b->rank; i++) {
        double x = (double)ef_dim_extent(scope->ctx, dim_at(a, i)), y = (double)ef_dim_extent(scope->ctx, dim_at(b, i));
        batch *= x > y ? x : y;
    }
    return batch * rows * inner * columns;
}

/* The work of (ab)c over that of a(bc). */
static double left_over_right(const ef_scope *scope, const ef_condition_arg *x)
{
    const ef_type_info *a = info_of(scope, &x[0]), *b = info_of(scope, &x[1]), *c = info_of(scope, &x[2]);
    double m = (double)ef_dim_extent(scope->ctx, dim_at(a, 1)), k = (double)ef_dim_extent(scope->ctx, dim_at(b, 1));
    double l = (double)ef_dim_extent(scope->ctx, dim_at(c, 1)), n = (double)ef_dim_extent(scope->ctx, dim_at(c, 0));
    ef_type_info ab = *a, bc = *b;
    for (unsigned i = 2; i < EF_MAX_RANK; i++) {
        ab.dim[i] = dim_at(a, i) != EF_UNIT ? dim_at(a, i) : dim_at(b, i);
        bc.dim[i] = dim_at(b, i) != EF_UNIT ? dim_at(b, i) : dim_at(c, i);
    }
    ab.rank = a->rank > b->rank ? a->rank : b->rank;
    bc.rank = b->rank > c->rank ? b->rank : c->rank;
    return (products(scope, a, b, m, k, l) + products(scope, &ab, c, m, l, n)) /
           (products(scope, b, c, k, l, n) + products(scope, a, &bc, m, k, n));
}

#define MUCH_MORE 2 /* times the work: no fusion makes up for that */

/* left_first(?a, ?b, ?c), right_first(?a, ?b, ?c): that order is not much more work than the other */
CONDITION(left_first)
{
    UNUSED;
    return !scope->policy || left_over_right(scope, a) <= MUCH_MORE;
}

CONDITION(right_first)
{
    UNUSED;
    return !scope->policy || left_over_right(scope, a) >= 1.0 / MUCH_MORE;
}

/* Whether a term is little beside what it is added to: one for all of its rows or columns. */
static bool is_light(const ef_scope *scope, const ef_condition_arg *a, const ef_condition_arg *other)
{
    const ef_type_info *t = info_of(scope, a), *o = info_of(scope, other);
    bool broadcasts = a->constant;
    for (unsigned i = 0; i < 2; i++)
        broadcasts = broadcasts || (dim_at(t, i) == EF_UNIT && dim_at(o, i) != EF_UNIT);
    return broadcasts;
}

/* light(?x, ?y): one of two terms is */
CONDITION(light)
{
    UNUSED;
    return !scope->policy || is_light(scope, &a[0], &a[1]) || is_light(scope, &a[1], &a[0]);
}

/* light_weight(?x, ?y): one of two terms is light or a parameter, as weights are */
CONDITION(light_weight)
{
    UNUSED;
    return light(scope, a, n, out) || policy_of(scope)->parameter(scope, a[0].id) ||
           policy_of(scope)->parameter(scope, a[1].id);
}

/* variable(?x): no literal; moving literals about multiplies forms and gains nothing */
CONDITION(variable)
{
    UNUSED;
    return !scope->policy || !a[0].constant;
}

/* Operands of a chain of one operator, as its first spelling has them. */
static unsigned chain_length(ef_egraph *g, ef_id class, ef_op op, unsigned depth)
{
    ef_id n = depth ? ef_class_find(g, class, op) : EF_NONE;
    if (n == EF_NONE)
        return 1;
    const ef_id *child = ef_node_children(g, n);
    ef_id left = child[0], right = child[1];
    return chain_length(g, left, op, depth - 1) + chain_length(g, right, op, depth - 1);
}

#define LONGEST_CHAIN 5 /* all groupings of n operands are 2^n classes */

static bool short_chain(const ef_scope *scope, const ef_condition_arg *a, ef_op op)
{
    return !scope->policy || chain_length(scope->graph, a->id, op, 2 * LONGEST_CHAIN) <= LONGEST_CHAIN;
}

/* short_sum(root), short_product(root), short_max(root): few enough operands to try all of their groupings */
CONDITION(short_sum)
{
    UNUSED;
    return short_chain(scope, &a[0], EF_ADD);
}

/* short_sums(?x, ?y): together */
CONDITION(short_sums)
{
    UNUSED;
    return !scope->policy || chain_length(scope->graph, a[0].id, EF_ADD, 2 * LONGEST_CHAIN) +
                                     chain_length(scope->graph, a[1].id, EF_ADD, 2 * LONGEST_CHAIN) <=
                                 LONGEST_CHAIN;
}

CONDITION(short_product)
{
    UNUSED;
    return short_chain(scope, &a[0], EF_MUL);
}

CONDITION(short_max)
{
    UNUSED;
    return short_chain(scope, &a[0], EF_MAX);
}

/* parameter(?x): an input, or one's elements moved or viewed: what a weight is; constant(?x): that or a literal */
CONDITION(parameter)
{
    UNUSED;
    return !scope->policy || policy_of(scope)->parameter(scope, a[0].id);
}

CONDITION(constant)
{
    UNUSED;
    return a[0].constant || !scope->policy || policy_of(scope)->parameter(scope, a[0].id);
}

/* before_grid(root): at tensor level, or where only the root's own contraction is split or looped over */
CONDITION(before_grid)
{
    UNUSED;
    const ef_type_info *t = info_of(scope, &a[0]);
    for (unsigned i = 0; scope->policy && i < t->places; i++)
        if (t->place[i].kind != EF_PARTIAL)
            return false;
    return true;
}

/* fuse_here(root, ?p): at tensor level, or for a loop inside its own split; propagation carries the result to grids */
CONDITION(fuse_here)
{
    UNUSED;
    ef_axis axis = (ef_axis)a[1].attr, split = ef_axis_of(ef_axis_var(axis), 0);
    ef_axes axes = ef_type_axes(scope->ctx, a[0].type);
    return !scope->policy || axes == 0 || (ef_axis_level(axis) == 1 && axes == ef_axes_intern(scope->ctx, &split, 1));
}

/* replicates(?x, ?p): a view of x by p only replicates */
CONDITION(replicates)
{
    UNUSED;
    ef_place place;
    return tensor(scope, &a[0]) && ef_type_cut(scope->ctx, info_of(scope, &a[0]), (ef_axis)a[1].attr, &place) &&
           place.kind == EF_REPLICATE;
}

/* ?n = extent(?x, i), as a literal */
CONDITION(extent)
{
    UNUSED;
    if (!tensor(scope, &a[0]) || a[1].attr == EF_FIRST)
        return false;
    *out = ef_attr_number((double)ef_dim_extent(scope->ctx, dim_at(info_of(scope, &a[0]), a[1].attr)));
    return ef_type_axes(scope->ctx, a[0].type) == 0;
}

static uint64_t dims_outermost_first(const ef_scope *scope, const ef_dim *from_last, unsigned rank)
{
    ef_dim dims[EF_MAX_RANK];
    for (unsigned i = 0; i < rank; i++)
        dims[i] = from_last[rank - 1 - i];
    return ef_dims_intern(scope->ctx, dims, rank);
}

/* ?D = row_dims(?x): x's shape with at least two dimensions */
CONDITION(row_dims)
{
    UNUSED;
    if (!tensor(scope, &a[0]))
        return false;
    const ef_type_info *t = info_of(scope, &a[0]);
    *out = dims_outermost_first(scope, t->dim, t->rank < 2 ? 2 : t->rank);
    return true;
}

/* ?D = column_dims(?x): a row [.., 1, k] as a column [.., k, 1]; and back */
static bool turned(const ef_scope *scope, const ef_condition_arg *a, uint64_t *out)
{
    if (!tensor(scope, &a[0]))
        return false;
    const ef_type_info *t = info_of(scope, &a[0]);
    ef_dim dim[EF_MAX_RANK] = {0};
    memcpy(dim, t->dim, sizeof dim);
    dim[0] = t->dim[1];
    dim[1] = t->dim[0];
    *out = dims_outermost_first(scope, dim, t->rank < 2 ? 2 : t->rank);
    return t->dim[0] == EF_UNIT || t->dim[1] == EF_UNIT;
}

CONDITION(column_dims)
{
    UNUSED;
    return turned(scope, a, out);
}

/* ?D = vector_dims(?x): a column [.., k, 1] as a row, without leading unit dimensions where it has no others */
CONDITION(vector_dims)
{
    UNUSED;
    if (!turned(scope, a, out))
        return false;
    const ef_type_info *t = info_of(scope, &a[0]);
    bool vector = t->dim[0] == EF_UNIT;
    for (unsigned i = 2; i < t->rank; i++)
        vector = vector && t->dim[i] == EF_UNIT;
    if (vector)
        *out = ef_dims_intern(scope->ctx, &t->dim[1], 1);
    return true;
}

/* ---- permutations ---- */

static uint64_t identity_perm(unsigned rank)
{
    uint64_t perm = 0;
    for (unsigned i = 0; i < rank; i++)
        perm |= (uint64_t)i << (4 * i);
    return perm;
}

static uint64_t swap_perm(unsigned rank, unsigned i, unsigned j)
{
    uint64_t perm = identity_perm(rank);
    perm &= ~((uint64_t)15 << (4 * i) | (uint64_t)15 << (4 * j));
    return perm | (uint64_t)j << (4 * i) | (uint64_t)i << (4 * j);
}

/* swaps_last(?P, ?x): P exchanges the last two dimensions of x and nothing else */
CONDITION(swaps_last)
{
    UNUSED;
    return tensor(scope, &a[1]) && info_of(scope, &a[1])->rank >= 2 &&
           a[0].attr == swap_perm(info_of(scope, &a[1])->rank, 0, 1);
}

/* ?P = swap_last(?x) */
CONDITION(swap_last)
{
    UNUSED;
    if (!tensor(scope, &a[0]) || info_of(scope, &a[0])->rank < 2)
        return false;
    *out = swap_perm(info_of(scope, &a[0])->rank, 0, 1);
    return true;
}

/* ?i = sliced(?S): the dimension that slice[S] cuts */
CONDITION(sliced)
{
    UNUSED;
    *out = ef_slice_index(a[0].attr);
    return true;
}

/* ?R = compose(?P, ?Q, ?x): transpose[P](transpose[Q](x)) = transpose[R](x) */
CONDITION(compose)
{
    UNUSED;
    uint64_t perm = 0;
    if (!tensor(scope, &a[2]))
        return false;
    for (unsigned i = 0; i < info_of(scope, &a[2])->rank; i++)
        perm |= (uint64_t)ef_perm_at(a[1].attr, ef_perm_at(a[0].attr, i)) << (4 * i);
    *out = perm;
    return true;
}

/* identity_order(?P, ?x) */
CONDITION(identity_order)
{
    UNUSED;
    return tensor(scope, &a[1]) && a[0].attr == identity_perm(info_of(scope, &a[1])->rank);
}

/* ?i = index_before(?P, ?j, ?x): dimension j of x is dimension i of transpose[P](x) */
CONDITION(index_before)
{
    UNUSED;
    for (unsigned i = 0; tensor(scope, &a[2]) && i < info_of(scope, &a[2])->rank; i++)
        if (ef_perm_at(a[0].attr, i) == a[1].attr) {
            *out = i;
            return true;
        }
    return false;
}

/* ---- splitting the columns of a matmul into heads ---- */

/* Whether dimensions are the same, outermost first, units left out; `from_last` has the last one first. */
static bool same_but_for_units(const ef_dim *dims, unsigned count, const ef_dim *from_last, unsigned rank)
{
    unsigned i = 0, k = rank;
    for (;;) {
        while (i < count && dims[i] == EF_UNIT)
            i++;
        while (k > 0 && from_last[k - 1] == EF_UNIT)
            k--;
        if (i == count || k == 0)
            return i == count && k == 0;
        if (dims[i++] != from_last[--k])
            return false;
    }
}

/* Reading reshape[D](matmul(x[.., M, K], w[K, h*d])) with D = [.., M, h, d]: the shape D must split the columns. Where
 * there is more than one row units may come and go, as of a history that had heads before. */
static bool heads(const ef_scope *scope, const ef_condition_arg *a, const ef_dim **d, unsigned *rank)
{
    if (!tensor(scope, &a[1]) || !tensor(scope, &a[2]))
        return false;
    const ef_type_info *x = info_of(scope, &a[1]), *w = info_of(scope, &a[2]);
    const ef_var *all, *part;
    *rank = ef_dims_at(scope->ctx, (ef_dims)a[0].attr, d);
    if (w->rank != 2 || x->rank < 2 || *rank < 3 || *rank + 1u > EF_MAX_RANK ||
        ((*d)[*rank - 3] == EF_UNIT && *rank != x->rank + 1u) ||
        !same_but_for_units(*d, *rank - 2, x->dim + 1, x->rank - 1u))
        return false;
    unsigned n = ef_dim_atoms(scope->ctx, w->dim[0], &all), seen = 0;
    for (unsigned i = *rank - 2; i < *rank; i++) {
        unsigned count = ef_dim_atoms(scope->ctx, (*d)[i], &part);
        if (count == 0 || seen + count > n || memcmp(all + seen, part, count * sizeof *part) != 0)
            return false;
        seen += count;
    }
    return seen == n;
}

/* ?X = heads_x(?D, ?x, ?w): x as [.., 1, M, K] */
CONDITION(heads_x)
{
    UNUSED;
    const ef_dim *d;
    unsigned rank;
    if (!heads(scope, a, &d, &rank))
        return false;
    ef_dim dims[EF_MAX_RANK];
    memcpy(dims, d, rank * sizeof *dims);
    dims[rank - 3] = EF_UNIT;
    dims[rank - 2] = d[rank - 3];
    dims[rank - 1] = info_of(scope, &a[1])->dim[0];
    *out = ef_dims_intern(scope->ctx, dims, rank);
    return true;
}

/* ?W = heads_w(?D, ?x, ?w): w as [K, h, d] */
CONDITION(heads_w)
{
    UNUSED;
    const ef_dim *d;
    unsigned rank;
    if (!heads(scope, a, &d, &rank))
        return false;
    ef_dim dims[] = {info_of(scope, &a[2])->dim[1], d[rank - 2], d[rank - 1]};
    *out = ef_dims_intern(scope->ctx, dims, 3);
    return true;
}

/* ?Q = heads_q(): [K, h, d] to [h, K, d] */
CONDITION(heads_q)
{
    UNUSED;
    *out = swap_perm(3, 1, 2);
    return true;
}

/* ?P = heads_p(?D): [.., h, M, d] to [.., M, h, d] */
CONDITION(heads_p)
{
    UNUSED;
    const ef_dim *d;
    *out = swap_perm(ef_dims_at(scope->ctx, (ef_dims)a[0].attr, &d), 1, 2);
    return true;
}

/* ---- products of reducers ---- */

/* ?s = nest_left(?r): product(a, product(b, c)) as product(product(a, b), c) */
CONDITION(nest_left)
{
    UNUSED;
    const ef_reducer_info *r = ef_reducer_at(scope->ctx, (ef_reducer)a[0].attr);
    if (r->kind != EF_RED_PRODUCT || ef_reducer_at(scope->ctx, r->right)->kind != EF_RED_PRODUCT)
        return false;
    const ef_reducer_info *right = ef_reducer_at(scope->ctx, r->right);
    *out = ef_reducer_product(scope->ctx, ef_reducer_product(scope->ctx, r->left, right->left), right->right);
    return *out != EF_NONE;
}

static ef_reducer mirror_product(ef_ctx *ctx, ef_reducer reducer)
{
    const ef_reducer_info r = *ef_reducer_at(ctx, reducer);
    return r.kind == EF_RED_PRODUCT ? ef_reducer_product(ctx, r.right, r.left) : EF_NONE;
}

/* ?s = mirrored(?r): product(a, b) as product(b, a) */
CONDITION(mirrored)
{
    UNUSED;
    *out = mirror_product(scope->ctx, (ef_reducer)a[0].attr);
    return *out != EF_NONE;
}

/* ?s = mirrored_left(?r): product(product(a, b), c) as product(product(b, a), c) */
CONDITION(mirrored_left)
{
    UNUSED;
    const ef_reducer_info r = *ef_reducer_at(scope->ctx, (ef_reducer)a[0].attr);
    ef_reducer left = r.kind == EF_RED_PRODUCT ? mirror_product(scope->ctx, r.left) : EF_NONE;
    *out = left == EF_NONE ? EF_NONE : ef_reducer_product(scope->ctx, left, r.right);
    return *out != EF_NONE;
}

/* ?s = mirrored_right(?r): repaired(r1, product(a, b), h, …) as repaired(r1, product(b, a), …), each h with its leaf */
CONDITION(mirrored_right)
{
    UNUSED;
    const ef_reducer_info r = *ef_reducer_at(scope->ctx, (ef_reducer)a[0].attr);
    ef_scalar h[EF_MAX_LEAVES];
    ef_reducer right = r.kind == EF_RED_REPAIRED ? mirror_product(scope->ctx, r.right) : EF_NONE;
    if (right == EF_NONE)
        return false;
    unsigned first = ef_reducer_at(scope->ctx, ef_reducer_at(scope->ctx, r.right)->left)->leaves;
    for (unsigned i = 0; i < r.terms; i++)
        h[i] = r.h[(i + first) % r.terms];
    *out = ef_reducer_repaired(scope->ctx, r.left, right, h);
    return *out != EF_NONE;
}

/* ---- policy: where the search applies a rule ---- */

/* met(?x, ?y): tuple(x, y) is there. The search fuses in one order only, so another one is somebody's own. */
CONDITION(met)
{
    UNUSED;
    ef_id fields[] = {a[0].id, a[1].id};
    return !scope->policy || (ef_find(scope->graph, a[0].id) != ef_find(scope->graph, a[1].id) &&
                              ef_egraph_lookup(scope->graph, EF_TUPLE, 0, fields, 2) != EF_NONE);
}

/* tensor_level(root): outside of all parallel scopes */
CONDITION(tensor_level)
{
    UNUSED;
    return !scope->policy || ef_type_axes(scope->ctx, a[0].type) == 0;
}

/* loop_here(root, ?p, ?x, i): at tensor level, or inside the split of the same dimension; and dimension i of x is long
 * enough to loop over */
CONDITION(loop_here)
{
    UNUSED;
    const ef_policy *policy = scope->policy;
    if (!policy)
        return true;
    if (ef_dim_extent(scope->ctx, dim_at(info_of(scope, &a[2]), a[3].attr)) < policy->loop_min)
        return false;
    ef_axis split = ef_axis_of(ef_axis_var((ef_axis)a[1].attr), 0);
    return ef_axes_subset(scope->ctx, ef_type_axes(scope->ctx, a[0].type), ef_axes_intern(scope->ctx, &split, 1));
}

/* worth_splitting(root, ?p) */
CONDITION(worth_splitting)
{
    UNUSED;
    const ef_policy *policy = scope->policy;
    return !policy || (ef_type_axes(scope->ctx, a[0].type) == 0 &&
                       ef_var_at(scope->ctx, ef_axis_var((ef_axis)a[1].attr))->extent >= policy->split_min);
}

/* fits_whole(root, ?x, i): a tile may hold dimension i of x uncut; where the loop would be introduced too */
CONDITION(fits_whole)
{
    UNUSED;
    const ef_policy *policy = scope->policy;
    const ef_var *atoms;
    if (!policy)
        return true;
    ef_dim dim = dim_at(info_of(scope, &a[1]), a[2].attr);
    if (ef_dim_extent(scope->ctx, dim) > policy->whole_max)
        return false;
    ef_axis split = ef_dim_atoms(scope->ctx, dim, &atoms) ? ef_axis_of(atoms[0], 0) : 0;
    ef_axes axes = ef_type_axes(scope->ctx, a[0].type);
    return axes == 0 || ef_axes_subset(scope->ctx, axes, ef_axes_intern(scope->ctx, &split, 1));
}

/* level(?p, n) */
CONDITION(level)
{
    UNUSED;
    return ef_axis_level((ef_axis)a[0].attr) == a[1].attr;
}

CONDITION(storable)
{
    UNUSED;
    return !scope->policy || policy_of(scope)->storable(scope, a[0].id);
}

/* Adds the level-0 axis of every dimension of a type, but not those of `skip`, each variable once. */
static unsigned collect_grid(const ef_scope *scope, const ef_condition_arg *a, ef_type type, bool rows, ef_axis *axes,
                             unsigned count)
{
    const ef_type_info *t = ef_type_at(scope->ctx, type);
    const ef_var *atoms;
    for (unsigned i = 0; i < t->fields; i++)
        count = collect_grid(scope, a, t->field[i], rows, axes, count);
    for (unsigned i = 0; i < t->rank && count < EF_MAX_PLACES; i++) {
        if (ef_dim_atoms(scope->ctx, t->dim[i], &atoms) == 0 || ef_dim_is_count(scope->ctx, t->dim[i]))
            continue;
        if (rows && policy_of(scope)->reduces(scope, a->id, atoms[0]))
            continue;
        axes[count++] = ef_axis_of(atoms[0], 0);
    }
    return count;
}

static ef_axes grid_of(const ef_scope *scope, const ef_condition_arg *a, bool rows)
{
    ef_axis axes[2 * EF_MAX_PLACES];
    return ef_axes_intern(scope->ctx, axes, collect_grid(scope, a, a->type, rows, axes, 0));
}

/* ?V = grid(root): the level-0 axes of all dimensions */
CONDITION(grid)
{
    UNUSED;
    *out = grid_of(scope, &a[0], false);
    return *out != 0;
}

/* ?V = rows(root): the grid without the dimensions that the computation also reduces */
CONDITION(rows)
{
    UNUSED;
    *out = grid_of(scope, &a[0], scope->policy != NULL);
    return *out != 0;
}

static bool is_whole_grid(const ef_scope *scope, const ef_condition_arg *a, ef_axes axes)
{
    return ef_type_axes(scope->ctx, a->type) == 0 && policy_of(scope)->storable(scope, a->id) &&
           grid_of(scope, a, false) == axes;
}

/* whole_grid(root, ?V) */
CONDITION(whole_grid)
{
    UNUSED;
    return !scope->policy || is_whole_grid(scope, &a[0], (ef_axes)a[1].attr);
}

/* whole_grid_of(root, ?p, ?q): the grid is {p, q} */
CONDITION(whole_grid_of)
{
    UNUSED;
    ef_axis axes[] = {(ef_axis)a[1].attr, (ef_axis)a[2].attr};
    return !scope->policy || is_whole_grid(scope, &a[0], ef_axes_intern(scope->ctx, axes, n - 1));
}

/* unfused(root, ?p): the tuple is no reduction over p yet; one way of fusing a tuple is enough */
CONDITION(unfused)
{
    UNUSED;
    ef_egraph *g = scope->graph;
    if (!scope->policy)
        return true;
    for (ef_id node = ef_class_first(g, a[0].id); node != EF_NONE; node = ef_class_next(g, node))
        if (g->op.at[node] == EF_REDUCE_P && ef_attr_reduce_at(g->attr.at[node]) == a[1].attr)
            return false;
    return true;
}

/* independent(?x, ?y, ?p): neither operand uses the reduction of the other over p */
CONDITION(independent)
{
    UNUSED;
    return !scope->policy || (!policy_of(scope)->depends(scope, a[0].id, a[1].id, (ef_axis)a[2].attr) &&
                              !policy_of(scope)->depends(scope, a[1].id, a[0].id, (ef_axis)a[2].attr));
}

/* moves(?V, root): a value that does not change in a loop is computed before it, so its view is not propagated */
CONDITION(moves)
{
    UNUSED;
    const ef_axis *axis;
    const ef_type_info *t = info_of(scope, &a[1]);
    if (!scope->policy || t->is_tuple)
        return true;
    for (unsigned i = 0, total = ef_axes_at(scope->ctx, (ef_axes)a[0].attr, &axis); i < total; i++)
        if (ef_axis_level(axis[i]) == 0 || ef_type_place(t, axis[i])->kind == EF_PARTITION)
            return true;
    return false;
}

static const struct {
    const char *name;
    ef_condition_fn fn;
} conditions[] = {
    {"const_along", const_along},
    {"varies_along", varies_along},
    {"whole", whole},
    {"positive", positive},
    {"same_rank", same_rank},
    {"same_dims", same_dims},
    {"literal", literal},
    {"over", over},
    {"over_axis", over_axis},
    {"subset", subset},
    {"loop_axis", loop_axis},
    {"split_axis", split_axis},
    {"block_axis", block_axis},
    {"batch_axes", batch_axes},
    {"bound", bound},
    {"adds_leading_units", adds_leading_units},
    {"short_sum", short_sum},
    {"short_sums", short_sums},
    {"short_product", short_product},
    {"short_max", short_max},
    {"parameter", parameter},
    {"constant", constant},
    {"gain", gain},
    {"left_first", left_first},
    {"right_first", right_first},
    {"light", light},
    {"light_weight", light_weight},
    {"variable", variable},
    {"vector_dims", vector_dims},
    {"before_grid", before_grid},
    {"fuse_here", fuse_here},
    {"replicates", replicates},
    {"extent", extent},
    {"row_dims", row_dims},
    {"column_dims", column_dims},
    {"swaps_last", swaps_last},
    {"swap_last", swap_last},
    {"sliced", sliced},
    {"compose", compose},
    {"identity_order", identity_order},
    {"index_before", index_before},
    {"heads_x", heads_x},
    {"heads_w", heads_w},
    {"heads_q", heads_q},
    {"heads_p", heads_p},
    {"renamed", ef_renamed},
    {"renamed_like", ef_renamed_like},
    {"renamed_before", ef_renamed_before},
    {"renamed_but", ef_renamed_but},
    {"renamed_columns", ef_renamed_columns},
    {"renamed_count", ef_renamed_count},
    {"no_twin", ef_no_twin},
    {"renames_at", ef_renames_at},
    {"contracted_as", ef_contracted_as},
    {"slices_at", ef_slices_at},
    {"unlike", ef_is_unlike},
    {"operand", ef_is_operand},
    {"merged_batch", ef_merged_batch},
    {"rows_with_batch", ef_batch_as_rows_a},
    {"without_batch", ef_batch_as_rows_b},
    {"grouped", ef_grouped},
    {"regrouped", ef_regrouped},
    {"moves_in", ef_moves_in},
    {"regrouped_but", ef_regrouped_but},
    {"regroups_rows", ef_regroups_rows},
    {"last_to_unit", ef_last_to_unit},
    {"swapped_last", ef_swapped_last},
    {"keeps_last_two", ef_keeps_last_two},
    {"dims", ef_root_dims},
    {"spread", ef_is_spread},
    {"shared", ef_is_shared},
    {"nest_left", nest_left},
    {"mirrored", mirrored},
    {"mirrored_left", mirrored_left},
    {"mirrored_right", mirrored_right},
    {"met", met},
    {"tensor_level", tensor_level},
    {"loop_here", loop_here},
    {"worth_splitting", worth_splitting},
    {"fits_whole", fits_whole},
    {"level", level},
    {"storable", storable},
    {"grid", grid},
    {"rows", rows},
    {"whole_grid", whole_grid},
    {"whole_grid_of", whole_grid_of},
    {"unfused", unfused},
    {"independent", independent},
    {"moves", moves},
};

ef_condition_fn ef_condition_named(const char *name, unsigned length)
{
    for (unsigned i = 0; i < sizeof conditions / sizeof *conditions; i++)
        if (strlen(conditions[i].name) == length && memcmp(conditions[i].name, name, length) == 0)
            return conditions[i].fn;
    return NULL;
}
