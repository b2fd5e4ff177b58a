/* Seeing through concatenations.
 *
 * Attention with a sink is written as softmax(cat(scores, sink)) without its last column. Nothing can cut the joined
 * dimension as it cuts the keys, and nobody needs it: a slice of what was concatenated is a part, and a reduction of it
 * joins the reductions of the parts. Both hold through pointwise operators in between. Reductions are taken apart only
 * where a part is a single position, which then needs none. */
#include "frontend/draft.h"

#include "ir/reducer.h"

#define BUDGET 64u /* nodes to look at */

/* The concatenation along a dimension that x is made of, through pointwise operators; NULL when there is none. */
static const ef_dnode *joined(const ef_draft *d, ef_dn x, unsigned index, unsigned *budget)
{
    const ef_dnode *node = &d->nodes.at[x], *found = NULL;
    if (index >= node->rank || node->dim[index] == EF_SLOT_UNIT || *budget == 0)
        return NULL;
    --*budget;
    if (node->op == EF_CONCAT && node->attr == index)
        return node;
    for (unsigned i = 0; ef_op_pointwise((ef_op)node->op) && i < node->count && !found; i++)
        found = joined(d, node->child[i], index, budget);
    return found;
}

/* Positions start to stop of x, without x; EF_NONE when they are no part. */
static ef_dn part_of(ef_draft *d, ef_dn x, unsigned index, uint64_t start, uint64_t stop, unsigned *budget)
{
    ef_dnode node = d->nodes.at[x];
    ef_dn child[EF_MAX_FIELDS];
    uint64_t from = 0;
    if (index >= node.rank || node.dim[index] == EF_SLOT_UNIT)
        return x;
    if (*budget == 0 || (!ef_op_pointwise((ef_op)node.op) && !(node.op == EF_CONCAT && node.attr == index)))
        return EF_NONE;
    --*budget;
    for (unsigned i = 0; i < node.count; i++) {
        if (node.op == EF_CONCAT) {
            uint64_t size = ef_dn_size(d, node.child[i], index);
            if (start >= from && stop <= from + size)
                return ef_dn_slice(d, node.child[i], index, start - from, stop - from);
            from += size;
        } else if ((child[i] = part_of(d, node.child[i], index, start, stop, budget)) == EF_NONE)
            return EF_NONE;
    }
    return node.op == EF_CONCAT ? EF_NONE : ef_dn_apply(d, (ef_op)node.op, node.attr, child, node.count);
}

ef_dn ef_dn_part(ef_draft *d, ef_dn x, unsigned index, uint64_t start, uint64_t stop)
{
    unsigned budget = BUDGET;
    if (!joined(d, x, index, &budget))
        return EF_NONE;
    budget = BUDGET;
    return part_of(d, x, index, start, stop, &budget);
}

ef_dn ef_dn_reduce_parts(ef_draft *d, uint32_t reducer, unsigned index, ef_dn x)
{
    static const ef_op join[] = {
        [EF_RED_SUM] = EF_ADD, [EF_RED_MAX] = EF_MAX, [EF_RED_MIN] = EF_MIN, [EF_RED_PROD] = EF_MUL};
    unsigned budget = BUDGET;
    const ef_dnode *found = joined(d, x, index, &budget);
    bool single = false;
    ef_dn whole = EF_NONE;
    uint64_t from = 0;
    if (!found)
        return EF_NONE;
    ef_dnode concat = *found;
    for (unsigned i = 0; i < concat.count; i++)
        single = single || ef_dn_size(d, concat.child[i], index) == 1;
    for (unsigned i = 0; single && i < concat.count; i++) {
        uint64_t size = ef_dn_size(d, concat.child[i], index);
        ef_dn part = ef_dn_part(d, x, index, from, from + size);
        if (part == EF_NONE)
            return EF_NONE;
        part = size == 1 ? part : ef_dn_reduce(d, reducer, index, part);
        whole = whole == EF_NONE ? part : ef_dn_binary(d, join[reducer], whole, part);
        from += size;
    }
    return whole;
}
