/* Drafts: nodes, leaves and shapes. See draft.h. */
#include "frontend/draft.h"

#include <string.h>

#include "frontend/draft_build.h"

ef_draft *ef_draft_new(void)
{
    ef_draft *d = ef_xcalloc(1, sizeof *d);
    d->slots = ef_slots_new();
    return d;
}

void ef_draft_free(ef_draft *d)
{
    if (!d)
        return;
    ef_slots_free(d->slots);
    ef_vec_free(&d->nodes);
    free(d);
}

uint64_t ef_dn_size(const ef_draft *d, ef_dn node, unsigned index)
{
    return index < ef_dn_at(d, node)->rank ? ef_slot_size(d->slots, ef_dn_at(d, node)->dim[index]) : 1;
}

uint64_t ef_dn_elements(const ef_draft *d, ef_dn node)
{
    uint64_t n = 1;
    for (unsigned i = 0; i < ef_dn_at(d, node)->rank; i++)
        n *= ef_dn_size(d, node, i);
    return n;
}

/* ---- adding nodes ---- */

static bool fits(const ef_draft *d, const ef_dnode *node)
{
    uint64_t elements = 1;
    for (unsigned i = 0; i < node->rank; i++) {
        uint64_t size = ef_slot_size(d->slots, node->dim[i]);
        if (size > EF_MAX_EXTENT / elements)
            return false;
        elements *= size;
    }
    return true;
}

ef_dn ef_dn_push(ef_draft *d, const ef_dnode *node)
{
    if (!fits(d, node))
        return EF_NONE;
    ef_slot_together(d->slots, node->dim, node->rank);
    ef_vec_push(&d->nodes, *node);
    return d->nodes.count - 1;
}

static bool sizes_fit(const int64_t *size, unsigned rank)
{
    bool good = rank <= EF_MAX_RANK;
    for (unsigned i = 0; good && i < rank; i++)
        good = size[i] > 0 && (uint64_t)size[i] <= EF_MAX_EXTENT;
    return good;
}

static void fresh_dims(ef_draft *d, ef_dnode *node, const int64_t *size, unsigned rank)
{
    node->rank = (uint8_t)rank;
    for (unsigned i = 0; i < rank; i++)
        node->dim[rank - 1 - i] = ef_slot_new(d->slots, (uint64_t)size[i]);
}

/* A node with x's shape, type and nature, and x for its operand. */
ef_dnode ef_dn_over(const ef_draft *d, ef_op op, ef_dn x)
{
    ef_dnode node = *ef_dn_at(d, x);
    node.op = (uint8_t)op;
    node.attr = 0;
    node.count = 1;
    memset(node.child, 0, sizeof node.child);
    node.child[0] = x;
    return node;
}

ef_dn ef_dn_input(ef_draft *d, uint64_t number, ef_dtype dtype, const int64_t *size, unsigned rank)
{
    ef_dnode node = {.op = EF_INPUT, .dtype = (uint8_t)dtype, .attr = number};
    if (!sizes_fit(size, rank))
        return EF_NONE;
    fresh_dims(d, &node, size, rank);
    return ef_dn_push(d, &node);
}

ef_dn ef_dn_number(ef_draft *d, double value)
{
    ef_dnode node = {.op = EF_CONST, .dtype = EF_NUM, .made = true, .uniform = true, .number = value};
    node.attr = ef_attr_number(value);
    return ef_dn_push(d, &node);
}

ef_dn ef_dn_iota(ef_draft *d, uint64_t size)
{
    ef_dnode node = {.op = EF_IOTA, .dtype = EF_I64, .rank = 1, .made = true};
    node.dim[0] = ef_slot_new(d->slots, size);
    return ef_dn_push(d, &node);
}

ef_dn ef_dn_full(ef_draft *d, double value, ef_dtype dtype, const int64_t *size, unsigned rank)
{
    ef_dn number = ef_dn_number(d, value);
    return ef_dn_exact_cast(d, dtype, rank ? ef_dn_broadcast(d, number, size, rank) : number);
}

/* ---- reductions and shapes ---- */

ef_dn ef_dn_reduce(ef_draft *d, uint32_t reducer, unsigned index, ef_dn x)
{
    if (x == EF_NONE || index >= ef_dn_at(d, x)->rank)
        return EF_NONE;
    ef_dn parts = ef_dn_reduce_parts(d, reducer, index, x);
    if (parts != EF_NONE)
        return parts;
    ef_dnode node = ef_dn_over(d, EF_REDUCE, x);
    node.attr = ef_attr_reduce(reducer, index);
    node.made = node.uniform = false;
    node.dim[index] = EF_SLOT_UNIT;
    return ef_dn_push(d, &node);
}

static bool same_sizes(const ef_draft *d, ef_dn x, const int64_t *size, unsigned rank)
{
    bool same = ef_dn_at(d, x)->rank == rank;
    for (unsigned i = 0; same && i < rank; i++)
        same = ef_dn_size(d, x, rank - 1 - i) == (uint64_t)size[i];
    return same;
}

static bool is_rename(const ef_draft *d, ef_dn reshape)
{
    const ef_dnode *out = ef_dn_at(d, reshape), *in = ef_dn_at(d, out->child[0]);
    bool same = out->rank == in->rank;
    for (unsigned i = 0; same && i < in->rank; i++)
        same = ef_slot_size(d->slots, out->dim[i]) == ef_slot_size(d->slots, in->dim[i]);
    return same;
}

ef_dn ef_dn_reshape(ef_draft *d, ef_dn x, const int64_t *size, unsigned rank)
{
    ef_slot in[EF_MAX_RANK], out[EF_MAX_RANK];
    uint64_t wanted[EF_MAX_RANK], elements = 1;
    if (x == EF_NONE || !sizes_fit(size, rank))
        return EF_NONE;
    if (same_sizes(d, x, size, rank))
        return x;
    for (unsigned i = 0; i < rank; i++) {
        wanted[i] = (uint64_t)size[i];
        if (wanted[i] > EF_MAX_EXTENT / elements)
            return EF_NONE;
        elements *= wanted[i];
    }
    if (elements != ef_dn_elements(d, x))
        return EF_NONE;
    if (ef_dn_at(d, x)->op == EF_RESHAPE && !is_rename(d, x)) {
        x = ef_dn_at(d, x)->child[0];
        if (same_sizes(d, x, size, rank))
            return x;
    }
    ef_dnode node = ef_dn_over(d, EF_RESHAPE, x);
    for (unsigned i = 0; i < node.rank; i++)
        in[i] = node.dim[node.rank - 1 - i];
    ef_slot_reshape(d->slots, in, node.rank, wanted, rank, out);
    memset(node.dim, 0, sizeof node.dim);
    node.rank = (uint8_t)rank;
    for (unsigned i = 0; i < rank; i++)
        node.dim[i] = out[rank - 1 - i];
    return ef_dn_push(d, &node);
}

ef_dn ef_dn_permute(ef_draft *d, ef_dn x, const unsigned *from)
{
    bool identity = true;
    unsigned rank = x == EF_NONE ? 0 : ef_dn_at(d, x)->rank, seen = 0;
    for (unsigned i = 0; i < rank; i++)
        seen |= from[i] < rank ? 1u << from[i] : 0;
    if (x == EF_NONE || seen != (1u << rank) - 1)
        return EF_NONE;
    bool twice = ef_dn_at(d, x)->op == EF_TRANSPOSE;
    uint64_t before = ef_dn_at(d, x)->attr;
    x = twice ? ef_dn_at(d, x)->child[0] : x;
    ef_dnode node = ef_dn_over(d, EF_TRANSPOSE, x);
    for (unsigned i = 0; i < rank; i++) {
        unsigned to = rank - 1 - i, take = twice ? ef_perm_at(before, rank - 1 - from[i]) : rank - 1 - from[i];
        identity = identity && take == to;
        node.dim[to] = ef_dn_at(d, x)->dim[take];
        node.attr |= (uint64_t)take << 4 * to;
    }
    return identity ? x : ef_dn_push(d, &node);
}

ef_dn ef_dn_swap(ef_draft *d, ef_dn x, unsigned a, unsigned b)
{
    unsigned from[EF_MAX_RANK];
    if (x == EF_NONE)
        return EF_NONE;
    unsigned rank = ef_dn_at(d, x)->rank;
    for (unsigned i = 0; i < rank; i++)
        from[i] = i;
    from[rank - 1 - a] = rank - 1 - b;
    from[rank - 1 - b] = rank - 1 - a;
    return ef_dn_permute(d, x, from);
}

ef_dn ef_dn_slice(ef_draft *d, ef_dn x, unsigned index, uint64_t start, uint64_t stop)
{
    if (x == EF_NONE || start >= stop || stop > ef_dn_size(d, x, index) || stop > EF_SLICE_LIMIT)
        return EF_NONE;
    if (stop - start == ef_dn_size(d, x, index))
        return x;
    ef_dn part = ef_dn_part(d, x, index, start, stop);
    if (part != EF_NONE)
        return part;
    ef_dnode node = ef_dn_over(d, EF_SLICE, x);
    node.attr = ef_attr_slice(index, start, stop);
    node.dim[index] = ef_slot_new(d->slots, stop - start);
    return ef_dn_push(d, &node);
}

ef_dn ef_dn_broadcast(ef_draft *d, ef_dn x, const int64_t *size, unsigned rank)
{
    if (x == EF_NONE || !sizes_fit(size, rank) || rank < ef_dn_at(d, x)->rank)
        return EF_NONE;
    if (same_sizes(d, x, size, rank))
        return x;
    ef_dnode node = ef_dn_over(d, EF_BROADCAST, x);
    for (unsigned i = 0; i < rank; i++) {
        uint64_t wanted = (uint64_t)size[rank - 1 - i];
        if (i < node.rank && node.dim[i] != EF_SLOT_UNIT && ef_slot_size(d->slots, node.dim[i]) != wanted)
            return EF_NONE;
        if (i >= node.rank || node.dim[i] == EF_SLOT_UNIT)
            node.dim[i] = ef_slot_new(d->slots, wanted);
    }
    node.rank = (uint8_t)rank;
    return ef_dn_push(d, &node);
}
