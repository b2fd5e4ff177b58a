/* Grouping rows: dimensions that count the rows of a matmul may be counted as its batch, and back.
 *
 * In grouped-query attention the queries of one group share keys and values, which programs say by repeating those. As
 * rows of one matmul the queries of a group read them once. Two steps lead there: the batch of heads falls apart into
 * groups and their members, where the repeated operand broadcasts; and a batch dimension that one operand does not have
 * joins the rows of the other. What is computed from the result row by row is then computed from the grouped rows. */
#include "rules/group.h"

#include <string.h>

#include "rules/policy.h"

/* Dimensions, outermost first. */
typedef struct {
    unsigned rank;
    ef_dim dim[EF_MAX_RANK];
} shape;

static bool shape_of(const ef_scope *scope, const ef_condition_arg *a, shape *s)
{
    const ef_type_info *t = a->type ? ef_type_at(scope->ctx, a->type) : NULL;
    if (!t || t->is_tuple)
        return false;
    s->rank = t->rank;
    for (unsigned i = 0; i < t->rank; i++)
        s->dim[i] = t->dim[t->rank - 1 - i];
    return true;
}

static bool shape_at(const ef_scope *scope, uint64_t list, shape *s)
{
    const ef_dim *dims;
    s->rank = ef_dims_at(scope->ctx, (ef_dims)list, &dims);
    if (s->rank > EF_MAX_RANK)
        return false;
    memcpy(s->dim, dims, s->rank * sizeof *dims);
    return true;
}

static bool give(const ef_scope *scope, const shape *s, uint64_t *out)
{
    *out = ef_dims_intern(scope->ctx, s->dim, s->rank);
    return true;
}

static ef_dim joined(const ef_scope *scope, ef_dim a, ef_dim b)
{
    const ef_var *atoms;
    ef_var all[2 * EF_MAX_ATOMS];
    unsigned n = ef_dim_atoms(scope->ctx, a, &atoms);
    memcpy(all, atoms, n * sizeof *all);
    unsigned m = ef_dim_atoms(scope->ctx, b, &atoms);
    memcpy(all + n, atoms, m * sizeof *all);
    return n + m > EF_MAX_ATOMS ? EF_NONE : ef_dim_product(scope->ctx, all, n + m);
}

static void put(shape *s, unsigned at, ef_dim dim)
{
    memmove(s->dim + at + 1, s->dim + at, (s->rank - at) * sizeof *s->dim);
    s->dim[at] = dim;
    s->rank++;
}

static void drop(shape *s, unsigned at)
{
    memmove(s->dim + at, s->dim + at + 1, (--s->rank - at) * sizeof *s->dim);
}

/* ---- the batch of a matmul ---- */

/* ?A = merged_batch(?D, ?y, ?a): where reshape[D](y) joins two batch dimensions of y, a's shape with the same one apart
 */
bool ef_merged_batch(const ef_scope *scope, const ef_condition_arg *a, unsigned n, uint64_t *out)
{
    (void)n;
    shape d, y, x;
    unsigned at = 0;
    if (!shape_at(scope, a[0].attr, &d) || !shape_of(scope, &a[1], &y) || !shape_of(scope, &a[2], &x) ||
        y.rank != d.rank + 1 || d.rank < 3 || x.rank < 2 || x.rank > d.rank || x.rank == EF_MAX_RANK)
        return false;
    while (at < d.rank && d.dim[at] == y.dim[at])
        at++;
    if (at + 2 >= d.rank || joined(scope, y.dim[at], y.dim[at + 1]) != d.dim[at] ||
        memcmp(d.dim + at + 1, y.dim + at + 2, (d.rank - at - 1) * sizeof *d.dim) != 0)
        return false;
    if (x.rank + at >= d.rank) { /* where it stands in x, which may lack outer dimensions */
        unsigned own = x.rank + at - d.rank;
        if (x.dim[own] != EF_UNIT && x.dim[own] != d.dim[at])
            return false;
        bool unit = x.dim[own] == EF_UNIT;
        x.dim[own] = unit ? EF_UNIT : y.dim[at];
        put(&x, own + 1, unit ? EF_UNIT : y.dim[at + 1]);
    }
    return give(scope, &x, out);
}

/* ?A = rows_with_batch(?a, ?b): the innermost batch dimension of a, which b does not have, joins a's rows */
bool ef_batch_as_rows_a(const ef_scope *scope, const ef_condition_arg *a, unsigned n, uint64_t *out)
{
    (void)n;
    shape x, y;
    if (!shape_of(scope, &a[0], &x) || !shape_of(scope, &a[1], &y) || x.rank < 3 || y.rank < 2 ||
        x.dim[x.rank - 3] == EF_UNIT || (y.rank >= 3 && y.dim[y.rank - 3] != EF_UNIT))
        return false;
    ef_dim rows = joined(scope, x.dim[x.rank - 3], x.dim[x.rank - 2]);
    x.dim[x.rank - 2] = rows;
    drop(&x, x.rank - 3);
    return rows != EF_NONE && give(scope, &x, out);
}

/* ?B = without_batch(?b): b's shape without its innermost batch dimension, a unit */
bool ef_batch_as_rows_b(const ef_scope *scope, const ef_condition_arg *a, unsigned n, uint64_t *out)
{
    (void)n;
    shape y;
    if (!shape_of(scope, &a[0], &y) || (y.rank >= 3 && y.dim[y.rank - 3] != EF_UNIT))
        return false;
    if (y.rank >= 3)
        drop(&y, y.rank - 3);
    return give(scope, &y, out);
}

/* ---- reshapes of rows ---- */

/* The dimensions between those that x and D have in common: the outer ones, and the last. */
typedef struct {
    shape x, d;
    unsigned outer;  /* how many are equal on the outside */
    unsigned mx, md; /* how many follow before the last one */
} regrouping;

static bool same_variables(const ef_scope *scope, const ef_dim *a, unsigned na, const ef_dim *b, unsigned nb)
{
    ef_dim p = EF_UNIT, q = EF_UNIT;
    for (unsigned i = 0; p != EF_NONE && i < na; i++)
        p = joined(scope, p, a[i]);
    for (unsigned i = 0; q != EF_NONE && i < nb; i++)
        q = joined(scope, q, b[i]);
    return p == q && p != EF_NONE;
}

static bool read(const ef_scope *scope, const ef_condition_arg *d, const ef_condition_arg *x, regrouping *r)
{
    if (!shape_at(scope, d->attr, &r->d) || !shape_of(scope, x, &r->x) || r->d.rank < 2 || r->x.rank < 2 ||
        r->d.dim[r->d.rank - 1] != r->x.dim[r->x.rank - 1])
        return false;
    for (r->outer = 0; r->outer + 1 < r->d.rank && r->outer + 1 < r->x.rank; r->outer++)
        if (r->d.dim[r->outer] != r->x.dim[r->outer])
            break;
    if (r->outer && r->outer + 1 == r->x.rank && r->outer + 1 < r->d.rank) /* x's rows are the innermost batch of D */
        r->outer--;
    r->mx = r->x.rank - 1 - r->outer;
    r->md = r->d.rank - 1 - r->outer;
    return same_variables(scope, r->x.dim + r->outer, r->mx, r->d.dim + r->outer, r->md);
}

/* ?Y = grouped(?D, ?x, ?y): y's shape beside x when it stood beside reshape[D](x), which only regroups rows */
bool ef_grouped(const ef_scope *scope, const ef_condition_arg *a, unsigned n, uint64_t *out)
{
    (void)n;
    regrouping r;
    shape y, all = {0};
    if (!read(scope, &a[0], &a[1], &r) || !shape_of(scope, &a[2], &y) || y.rank > r.d.rank)
        return false;
    while (y.rank < r.d.rank)
        put(&y, 0, EF_UNIT);
    bool units = true, equal = true;
    for (unsigned i = r.outer; i < r.outer + r.md; i++) {
        units = units && y.dim[i] == EF_UNIT;
        equal = equal && y.dim[i] == r.d.dim[i];
    }
    if (!units && !equal)
        return false;
    for (unsigned i = 0; i < r.outer; i++)
        put(&all, all.rank, y.dim[i]);
    for (unsigned i = 0; i < r.mx; i++)
        put(&all, all.rank, units ? EF_UNIT : r.x.dim[r.outer + i]);
    put(&all, all.rank, y.dim[y.rank - 1]);
    /* In a form that does not depend on y's rank; units that x has itself stay, as in what reductions leave of x. */
    while (all.rank && all.dim[0] == EF_UNIT && (units || r.x.dim[r.x.rank - all.rank] != EF_UNIT))
        drop(&all, 0);
    return give(scope, &all, out);
}

/* ---- reshapes of what is broadcast, put together or cut ---- */

static unsigned atoms_of(const ef_scope *scope, ef_dim dim)
{
    const ef_var *atoms;
    return ef_dim_atoms(scope->ctx, dim, &atoms);
}

/* The least number of dimensions from *i and *k on that have the same variables in both shapes: ends behind them. */
static bool next_group(const ef_scope *scope, const shape *from, const shape *to, unsigned *i, unsigned *k)
{
    ef_dim p = from->dim[(*i)++], q = to->dim[(*k)++];
    while (p != q) {
        bool longer = atoms_of(scope, p) > atoms_of(scope, q);
        if ((longer && *k == to->rank) || (!longer && *i == from->rank))
            return false;
        if (longer)
            q = joined(scope, q, to->dim[(*k)++]);
        else
            p = joined(scope, p, from->dim[(*i)++]);
        if (p == EF_NONE || q == EF_NONE)
            return false;
    }
    return true;
}

/* y's shape beside what had the shape `from` and has the shape `to` now. y, of as many dimensions, is broadcast along
 * those that it has as units. */
static bool regroup(const ef_scope *scope, const shape *from, const shape *to, const shape *y, shape *out)
{
    unsigned i = 0, k = 0;
    out->rank = 0;
    while (i < from->rank || k < to->rank) {
        if (i < from->rank && from->dim[i] == EF_UNIT) {
            i++;
            continue;
        }
        if (k < to->rank && to->dim[k] == EF_UNIT) {
            out->dim[out->rank++] = EF_UNIT;
            k++;
            continue;
        }
        unsigned first = i, start = k;
        if (i == from->rank || k == to->rank || !next_group(scope, from, to, &i, &k))
            return false;
        bool units = true, equal = true;
        for (unsigned d = first; d < i; d++) {
            units = units && y->dim[d] == EF_UNIT;
            equal = equal && y->dim[d] == from->dim[d];
        }
        if (!units && !equal)
            return false;
        for (unsigned d = start; d < k; d++)
            out->dim[out->rank++] = units ? EF_UNIT : to->dim[d];
    }
    return true;
}

/* ?Y = regrouped(?D, ?x, ?y): y's shape beside reshape[D](x) when it stands beside x, along which it is broadcast */
bool ef_regrouped(const ef_scope *scope, const ef_condition_arg *a, unsigned n, uint64_t *out)
{
    (void)n;
    shape d, x, y, all;
    if (!shape_at(scope, a[0].attr, &d) || !shape_of(scope, &a[1], &x) || !shape_of(scope, &a[2], &y) ||
        ef_type_is_literal(scope->ctx, a[2].type) || y.rank > x.rank)
        return false;
    bool broadcasts = y.rank < x.rank; /* what is said otherwise by leading units is, too */
    while (y.rank < x.rank)
        put(&y, 0, EF_UNIT);
    for (unsigned i = 0; i < x.rank; i++) {
        broadcasts = broadcasts || y.dim[i] != x.dim[i];
        if (y.dim[i] != EF_UNIT && y.dim[i] != x.dim[i])
            return false;
    }
    if (!broadcasts || !regroup(scope, &x, &d, &y, &all))
        return false;
    while (all.rank > 1 && all.dim[0] == EF_UNIT) /* a form that does not depend on y's rank */
        drop(&all, 0);
    shape own = y;
    while (own.rank > 1 && own.dim[0] == EF_UNIT)
        drop(&own, 0);
    if (own.rank == all.rank && memcmp(own.dim, all.dim, own.rank * sizeof *own.dim) == 0)
        shape_of(scope, &a[2], &all); /* y itself will do */
    return give(scope, &all, out);
}

/* moves_in(?D, ?x): policy; reshape[D](x) is better said of what x is made of: x reduces nothing, or its columns are
 * cut into heads. Shapes of what reductions and products make move out of them (rows-binary and others), to what is
 * stored.
 */
bool ef_moves_in(const ef_scope *scope, const ef_condition_arg *a, unsigned n, uint64_t *out)
{
    (void)n, (void)out;
    const ef_policy *policy = scope->policy;
    shape d, x;
    if (!policy)
        return true;
    if (!shape_at(scope, a[0].attr, &d) || !shape_of(scope, &a[1], &x) || d.rank == 0 || x.rank == 0)
        return false;
    return d.dim[d.rank - 1] != x.dim[x.rank - 1] || !policy->reduces(scope, a[1].id, EF_NONE);
}

/* ?X = regrouped_but(?D, i, ?x): x's shape when reshape[D] only regroups what stands outside of dimension i */
bool ef_regrouped_but(const ef_scope *scope, const ef_condition_arg *a, unsigned n, uint64_t *out)
{
    (void)n;
    shape d, x;
    uint64_t last = a[1].attr;
    if (!shape_at(scope, a[0].attr, &d) || !shape_of(scope, &a[2], &x) || last >= x.rank || last >= d.rank)
        return false;
    unsigned inner = (unsigned)last, outer_d = d.rank - 1 - inner, outer_x = x.rank - 1 - inner;
    if (memcmp(d.dim + outer_d + 1, x.dim + outer_x + 1, inner * sizeof *d.dim) != 0 ||
        !same_variables(scope, x.dim, outer_x, d.dim, outer_d) ||
        (outer_d == outer_x && memcmp(d.dim, x.dim, outer_d * sizeof *d.dim) == 0))
        return false;
    memcpy(d.dim + outer_d, x.dim + outer_x, (inner + 1) * sizeof *d.dim);
    return give(scope, &d, out);
}

/* regroups_rows(?D, ?x): policy; reshape[D](x) counts some of x's rows as a batch */
bool ef_regroups_rows(const ef_scope *scope, const ef_condition_arg *a, unsigned n, uint64_t *out)
{
    (void)n, (void)out;
    regrouping r;
    return !scope->policy ||
           (read(scope, &a[0], &a[1], &r) && r.mx && r.md && r.x.dim[r.x.rank - 2] != r.d.dim[r.d.rank - 2]);
}

/* ?E = last_to_unit(?D, ?x, i): D with a unit for its last dimension, which is dimension i = 0 and x's too */
bool ef_last_to_unit(const ef_scope *scope, const ef_condition_arg *a, unsigned n, uint64_t *out)
{
    (void)n;
    shape d, x;
    if (!shape_at(scope, a[0].attr, &d) || !shape_of(scope, &a[1], &x) || a[2].attr != 0 || d.rank == 0 ||
        x.rank == 0 || d.dim[d.rank - 1] != x.dim[x.rank - 1])
        return false;
    d.dim[d.rank - 1] = EF_UNIT;
    return give(scope, &d, out);
}

/* ?E = swapped_last(?D): the last two dimensions of the shape exchanged */
bool ef_swapped_last(const ef_scope *scope, const ef_condition_arg *a, unsigned n, uint64_t *out)
{
    (void)n;
    shape d;
    if (!shape_at(scope, a[0].attr, &d) || d.rank < 2)
        return false;
    ef_dim last = d.dim[d.rank - 1];
    d.dim[d.rank - 1] = d.dim[d.rank - 2];
    d.dim[d.rank - 2] = last;
    return give(scope, &d, out);
}

/* keeps_last_two(?D, ?x): shape D ends as x's does */
bool ef_keeps_last_two(const ef_scope *scope, const ef_condition_arg *a, unsigned n, uint64_t *out)
{
    (void)n, (void)out;
    shape d, x;
    return shape_at(scope, a[0].attr, &d) && shape_of(scope, &a[1], &x) && d.rank >= 2 && x.rank >= 2 &&
           d.dim[d.rank - 1] == x.dim[x.rank - 1] && d.dim[d.rank - 2] == x.dim[x.rank - 2];
}

/* ?O = dims(root) */
bool ef_root_dims(const ef_scope *scope, const ef_condition_arg *a, unsigned n, uint64_t *out)
{
    (void)n;
    shape s;
    return shape_of(scope, &a[0], &s) && give(scope, &s, out);
}

static unsigned units(const shape *s)
{
    unsigned count = 0;
    for (unsigned i = 0; i < s->rank; i++)
        count += s->dim[i] == EF_UNIT;
    return count;
}

/* spread(?y): policy; y repeats something. spread(?y, ?D): or reshape[D](y) adds the units along which it will */
bool ef_is_spread(const ef_scope *scope, const ef_condition_arg *a, unsigned n, uint64_t *out)
{
    (void)out;
    shape y, d;
    if (!scope->policy || ef_class_find(scope->graph, a[0].id, EF_BROADCAST) != EF_NONE)
        return true;
    return n > 1 && shape_of(scope, &a[0], &y) && shape_at(scope, a[1].attr, &d) && d.rank > y.rank &&
           units(&d) - units(&y) == d.rank - y.rank;
}

/* shared(?b): policy; b is one for all of a batch dimension that it has as a unit */
bool ef_is_shared(const ef_scope *scope, const ef_condition_arg *a, unsigned n, uint64_t *out)
{
    (void)n, (void)out;
    return !scope->policy || ef_type_at(scope->ctx, a[0].type)->rank >= 3;
}
