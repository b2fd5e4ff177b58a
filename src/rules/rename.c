/* Renamings: a reshape to a shape that differs from its operand's in the names of variables alone (ir/twin.h).
 *
 * A renaming of a result is the same renaming of the operands: every name becomes its new one wherever it stands. That
 * is true of all operators, as long as no operand has the new name already for something else. */
#include "rules/rename.h"

#include <string.h>

#include "ir/twin.h"

#define MOST (EF_MAX_RANK * EF_MAX_ATOMS)

typedef struct {
    ef_ctx *ctx;
    ef_var from[MOST], to[MOST];
    unsigned count;
} renaming;

static const ef_type_info *tensor(const ef_scope *scope, const ef_condition_arg *a)
{
    const ef_type_info *t = a->type ? ef_type_at(scope->ctx, a->type) : NULL;
    return t && !t->is_tuple ? t : NULL;
}

/* One name becomes one name, and two names stay two. */
static bool add_name(renaming *r, ef_var from, ef_var to)
{
    for (unsigned i = 0; i < r->count; i++)
        if (r->from[i] == from || r->to[i] == to)
            return r->from[i] == from && r->to[i] == to;
    if (ef_var_at(r->ctx, from)->extent != ef_var_at(r->ctx, to)->extent || r->count == MOST)
        return false;
    r->from[r->count] = from;
    r->to[r->count++] = to;
    return true;
}

static bool add_dim(renaming *r, ef_dim from, ef_dim to)
{
    const ef_var *a, *b;
    unsigned n = ef_dim_atoms(r->ctx, from, &a);
    if (n != ef_dim_atoms(r->ctx, to, &b))
        return false;
    for (unsigned i = 0; i < n; i++)
        if (!add_name(r, a[i], b[i]))
            return false;
    return true;
}

/* From the shape `from` (the last dimension first) to the list; false when that is no renaming, or renames nothing. */
static bool read(renaming *r, const ef_scope *scope, const ef_dim *from, unsigned rank, ef_dims list)
{
    const ef_dim *to;
    bool any = false;
    *r = (renaming){.ctx = scope->ctx};
    if (ef_dims_at(scope->ctx, list, &to) != rank)
        return false;
    for (unsigned i = 0; i < rank; i++)
        if (!add_dim(r, from[i], to[rank - 1 - i]))
            return false;
    for (unsigned i = 0; i < r->count; i++)
        any = any || r->from[i] != r->to[i];
    return any;
}

/* A name that is not renamed keeps itself, unless it is a new one. */
static bool new_name(renaming *r, ef_var old, ef_var *out)
{
    for (unsigned i = 0; i < r->count; i++)
        if (r->from[i] == old) {
            *out = r->to[i];
            return true;
        }
    *out = old;
    return add_name(r, old, old);
}

static bool apply(renaming *r, const ef_type_info *x, uint64_t *out)
{
    ef_dim dims[EF_MAX_RANK];
    for (unsigned i = 0; i < x->rank; i++) {
        const ef_var *atoms;
        ef_var mapped[EF_MAX_ATOMS];
        unsigned n = ef_dim_atoms(r->ctx, x->dim[i], &atoms);
        for (unsigned k = 0; k < n; k++)
            if (!new_name(r, atoms[k], &mapped[k]))
                return false;
        dims[x->rank - 1 - i] = ef_dim_product(r->ctx, mapped, n);
    }
    *out = ef_dims_intern(r->ctx, dims, x->rank);
    return true;
}

/* ?X = renamed(?D, ?x, ?y, ?z): x's shape when the result of a pointwise operator on x, y, z is renamed to D */
bool ef_renamed(const ef_scope *scope, const ef_condition_arg *a, unsigned n, uint64_t *out)
{
    ef_dim dim[EF_MAX_RANK] = {0};
    unsigned rank = 0;
    renaming r;
    for (unsigned i = 1; i < n; i++) {
        const ef_type_info *t = tensor(scope, &a[i]);
        if (!t)
            return false;
        for (unsigned k = 0; k < t->rank; k++)
            dim[k] = dim[k] == EF_UNIT ? t->dim[k] : dim[k];
        rank = t->rank > rank ? t->rank : rank;
    }
    return read(&r, scope, dim, rank, (ef_dims)a[0].attr) && apply(&r, tensor(scope, &a[1]), out);
}

/* ?X = renamed_like(?D, ?E, ?x): x's shape when the shape E is renamed to D */
bool ef_renamed_like(const ef_scope *scope, const ef_condition_arg *a, unsigned n, uint64_t *out)
{
    (void)n;
    const ef_dim *shape;
    ef_dim dim[EF_MAX_RANK];
    unsigned rank = ef_dims_at(scope->ctx, (ef_dims)a[1].attr, &shape);
    renaming r;
    for (unsigned i = 0; i < rank && i < EF_MAX_RANK; i++)
        dim[i] = shape[rank - 1 - i];
    return rank <= EF_MAX_RANK && tensor(scope, &a[2]) && read(&r, scope, dim, rank, (ef_dims)a[0].attr) &&
           apply(&r, tensor(scope, &a[2]), out);
}

/* ?X = renamed_before(?D, ?P, ?x): x's shape when transpose[P](x) is renamed to D */
bool ef_renamed_before(const ef_scope *scope, const ef_condition_arg *a, unsigned n, uint64_t *out)
{
    (void)n;
    const ef_type_info *x = tensor(scope, &a[2]);
    ef_dim dim[EF_MAX_RANK];
    renaming r;
    for (unsigned i = 0; x && i < x->rank; i++)
        dim[i] = x->dim[ef_perm_at(a[1].attr, i)];
    return x && read(&r, scope, dim, x->rank, (ef_dims)a[0].attr) && apply(&r, x, out);
}

/* ?X = renamed_but(?D, i, ?x): x's shape when what has x's dimensions, except for dimension i, is renamed to D. What it
 * has at i is what D has there: the operator makes it, and would not make another name. */
bool ef_renamed_but(const ef_scope *scope, const ef_condition_arg *a, unsigned n, uint64_t *out)
{
    (void)n;
    const ef_type_info *x = tensor(scope, &a[2]);
    const ef_dim *to;
    ef_dim dim[EF_MAX_RANK];
    renaming r;
    if (!x || a[1].attr >= x->rank || ef_dims_at(scope->ctx, (ef_dims)a[0].attr, &to) != x->rank)
        return false;
    memcpy(dim, x->dim, sizeof dim);
    dim[a[1].attr] = to[x->rank - 1 - a[1].attr];
    return read(&r, scope, dim, x->rank, (ef_dims)a[0].attr) && apply(&r, x, out);
}

/* ?B = renamed_columns(?D, ?a, ?b): b's shape when matmul(a, b) is renamed to D, which leaves a alone */
bool ef_renamed_columns(const ef_scope *scope, const ef_condition_arg *a, unsigned n, uint64_t *out)
{
    (void)n;
    const ef_type_info *x = tensor(scope, &a[1]), *y = tensor(scope, &a[2]);
    ef_dim dim[EF_MAX_RANK] = {0};
    uint64_t same;
    renaming r;
    if (!x || !y || x->rank < 2 || y->rank < 2)
        return false;
    unsigned rank = x->rank > y->rank ? x->rank : y->rank;
    for (unsigned i = 2; i < rank; i++)
        dim[i] = i < x->rank && x->dim[i] != EF_UNIT ? x->dim[i] : i < y->rank ? y->dim[i] : EF_UNIT;
    dim[1] = x->dim[1];
    dim[0] = y->dim[0];
    if (!read(&r, scope, dim, rank, (ef_dims)a[0].attr) || !apply(&r, x, &same) || !apply(&r, y, out))
        return false;
    ef_dim back[EF_MAX_RANK];
    for (unsigned i = 0; i < x->rank; i++)
        back[i] = x->dim[x->rank - 1 - i];
    return same == ef_dims_intern(scope->ctx, back, x->rank);
}

/* ?n = renamed_count(?D, ?m): what iota counts along when iota[m] is reshaped to D by another name */
bool ef_renamed_count(const ef_scope *scope, const ef_condition_arg *a, unsigned n, uint64_t *out)
{
    (void)n;
    const ef_dim *dims;
    ef_dim only = EF_UNIT;
    unsigned rank = ef_dims_at(scope->ctx, (ef_dims)a[0].attr, &dims);
    renaming r = {.ctx = scope->ctx};
    for (unsigned i = 0; i < rank; i++) {
        if (dims[i] != EF_UNIT && only != EF_UNIT)
            return false;
        only = dims[i] != EF_UNIT ? dims[i] : only;
    }
    *out = only;
    return only != (ef_dim)a[1].attr && add_dim(&r, (ef_dim)a[1].attr, only);
}

/* no_twin(?D): no dimension of the shape has the name of a twin (where the search renames towards the first names) */
bool ef_no_twin(const ef_scope *scope, const ef_condition_arg *a, unsigned n, uint64_t *out)
{
    (void)n, (void)out;
    const ef_dim *dims;
    unsigned rank = ef_dims_at(scope->ctx, (ef_dims)a[0].attr, &dims);
    for (unsigned i = 0; scope->policy && i < rank; i++)
        if (ef_dim_base(scope->ctx, dims[i]) != dims[i])
            return false;
    return true;
}
