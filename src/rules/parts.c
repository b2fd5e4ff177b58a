/* Products of parts: what is contracted may be put together on both sides, as queries and keys are of a half that is
 * turned by its position and one that is not. The product is then the sum of the products of the parts, and each of
 * these goes its own way: a projection of a latent history moves to the query, a part that all heads share is read
 * once. Columns of a product are the product with those columns. */
#include "rules/parts.h"

#include <string.h>

static const ef_type_info *tensor(const ef_scope *scope, const ef_condition_arg *a)
{
    const ef_type_info *t = a->type ? ef_type_at(scope->ctx, a->type) : NULL;
    return t && !t->is_tuple ? t : NULL;
}

/* renames_at(?D, i, ?x): shape D has x's dimensions, but for dimension i */
bool ef_renames_at(const ef_scope *scope, const ef_condition_arg *a, unsigned n, uint64_t *out)
{
    (void)n, (void)out;
    const ef_type_info *x = tensor(scope, &a[2]);
    const ef_dim *dims;
    if (!x || ef_dims_at(scope->ctx, (ef_dims)a[0].attr, &dims) != x->rank)
        return false;
    for (unsigned i = 0; i < x->rank; i++)
        if (i != a[1].attr && dims[x->rank - 1 - i] != x->dim[i])
            return false;
    return true;
}

static bool meets(const ef_ctx *ctx, ef_dim a, ef_dim b)
{
    const ef_var *x, *y;
    for (unsigned i = 0, n = ef_dim_atoms(ctx, a, &x); i < n; i++)
        for (unsigned k = 0, m = ef_dim_atoms(ctx, b, &y); k < m; k++)
            if (x[i] == y[k])
                return true;
    return false;
}

/* ?C = contracted_as(?c, ?a): c's shape with its rows by the name of a's columns, which are as many */
bool ef_contracted_as(const ef_scope *scope, const ef_condition_arg *a, unsigned n, uint64_t *out)
{
    (void)n;
    const ef_type_info *c = tensor(scope, &a[0]), *x = tensor(scope, &a[1]);
    ef_dim dims[EF_MAX_RANK];
    if (!c || !x || c->rank < 2 || x->rank < 2 ||
        ef_dim_extent(scope->ctx, c->dim[1]) != ef_dim_extent(scope->ctx, x->dim[0]))
        return false;
    for (unsigned i = 0; i < c->rank; i++) {
        dims[c->rank - 1 - i] = i == 1 ? x->dim[0] : c->dim[i];
        if (i != 1 && meets(scope->ctx, c->dim[i], x->dim[0]))
            return false;
    }
    *out = ef_dims_intern(scope->ctx, dims, c->rank);
    return true;
}

/* slices_at(?S, i): slice[S] cuts dimension i */
bool ef_slices_at(const ef_scope *scope, const ef_condition_arg *a, unsigned n, uint64_t *out)
{
    (void)scope, (void)n, (void)out;
    return ef_slice_index(a[0].attr) == a[1].attr;
}

/* Whether a class is a product, and whether it repeats something. */
static unsigned kinds(const ef_scope *scope, ef_id class)
{
    return (ef_class_find(scope->graph, class, EF_MATMUL) != EF_NONE ? 1u : 0u) |
           (ef_class_find(scope->graph, class, EF_BROADCAST) != EF_NONE ? 2u : 0u);
}

/* unlike(?x, ?y): policy; one of two parts is a product or repeats something, and the other one does not, so there is
 * something to gain from having them apart */
bool ef_is_unlike(const ef_scope *scope, const ef_condition_arg *a, unsigned n, uint64_t *out)
{
    (void)n, (void)out;
    return !scope->policy || kinds(scope, a[0].id) != kinds(scope, a[1].id);
}

#define STEPS 4 /* from a part of an operand to the product */

static bool leads_to_product(ef_egraph *g, ef_id class, unsigned depth)
{
    class = ef_find(g, class);
    for (uint32_t p = g->first_parent.at[class]; p != EF_NONE; p = g->parent.at[p].next) {
        ef_id node = g->parent.at[p].node;
        ef_op op = (ef_op)g->op.at[node];
        if (g->dead.at[node])
            continue;
        if (op == EF_MATMUL)
            return true;
        if (depth && (op == EF_RESHAPE || op == EF_TRANSPOSE || op == EF_CONCAT) &&
            leads_to_product(g, node, depth - 1))
            return true;
    }
    return false;
}

/* operand(root): policy; a product has it as an operand, or as a part of one, in some order and by some name */
bool ef_is_operand(const ef_scope *scope, const ef_condition_arg *a, unsigned n, uint64_t *out)
{
    (void)n, (void)out;
    return !scope->policy || leads_to_product(scope->graph, a[0].id, STEPS);
}
