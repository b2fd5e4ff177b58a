/* Contents of values, and what writing to one does to the others: see translate.h. */
#include <string.h>

#include "frontend/translate.h"

void ef_contents_new(ef_translation *l, uint32_t value, ef_dn node)
{
    ef_storage storage = {0};
    ef_vec_push(&l->storages, storage);
    l->contents[value] = (ef_contents){node, EF_NONE, EF_NONE, l->storages.count - 1, 0};
}

void ef_contents_view(ef_translation *l, uint32_t value, ef_dn node, uint32_t parent, uint32_t maker)
{
    uint32_t storage = l->contents[parent].storage;
    l->contents[value] = (ef_contents){node, parent, maker, storage, l->storages.at[storage].version};
}

/* Makes a view anew from what its parent holds now. */
static ef_dn made_again(ef_translation *l, uint32_t value)
{
    const ef_contents *v = &l->contents[value];
    uint32_t results, *list;
    ef_dn *result;
    if (v->maker == EF_NONE)
        return ef_contents_read(l, v->parent);
    if (ef_translate_node(l, v->maker, &results, &list, &result))
        return EF_NONE;
    for (uint32_t i = 0; i < results; i++)
        if (list[i] == value)
            return result[i];
    return EF_NONE;
}

ef_dn ef_contents_read(ef_translation *l, uint32_t value)
{
    ef_contents *v = &l->contents[value];
    if (value == l->standing_in)
        return l->stand_in;
    uint32_t version = l->storages.at[v->storage].version;
    if (v->version != version && v->node != EF_NONE) {
        v->node = made_again(l, value);
        v->version = version;
        if (v->node == EF_NONE)
            l->lost = "a view of what was written cannot be computed again";
    }
    return v->node;
}

/* ---- writing through views ---- */

/* What `whole` becomes when the part of it that `view` shows becomes `part`. `view` was built from `origin`, which
 * stands for `whole`. */
static ef_dn put(ef_draft *d, ef_dn view, ef_dn origin, ef_dn whole, ef_dn part)
{
    if (view == origin)
        return part;
    ef_dnode node = d->nodes.at[view];
    ef_dn child = node.child[0];
    int64_t size[EF_MAX_RANK];
    unsigned order[EF_MAX_RANK], rank = d->nodes.at[child].rank, index = ef_slice_index(node.attr);
    for (unsigned i = 0; i < rank; i++)
        size[i] = (int64_t)ef_dn_size(d, child, rank - 1 - i);
    switch (node.op) {
    case EF_RESHAPE: return put(d, child, origin, whole, ef_dn_reshape(d, part, size, rank));
    case EF_TRANSPOSE:
        for (unsigned i = 0; i < rank; i++)
            order[rank - 1 - ef_perm_at(node.attr, rank - 1 - i)] = i;
        return put(d, child, origin, whole, ef_dn_permute(d, part, order));
    case EF_SLICE: {
        uint64_t start = ef_slice_start(node.attr), stop = ef_slice_stop(node.attr);
        ef_dn piece[3];
        unsigned pieces = 0;
        if (child != origin || index >= rank)
            return EF_NONE;
        if (start > 0)
            piece[pieces++] = ef_dn_slice(d, whole, index, 0, start);
        piece[pieces++] = part;
        if (stop < (uint64_t)size[rank - 1 - index])
            piece[pieces++] = ef_dn_slice(d, whole, index, stop, (uint64_t)size[rank - 1 - index]);
        return ef_dn_concat(d, index, piece, pieces);
    }
    default: return EF_NONE;
    }
}

/* The new contents of the value that `value` is a view of. */
static ef_dn write_up(ef_translation *l, uint32_t value, ef_dn part)
{
    const ef_contents *v = &l->contents[value];
    const ef_xvalue *parent = &l->exported->value[v->parent];
    ef_dn whole = l->contents[v->parent].node;
    if (v->maker == EF_NONE || whole == EF_NONE || parent->rank > EF_MAX_RANK)
        return whole == EF_NONE ? EF_NONE : part;
    l->standing_in = v->parent;
    l->stand_in = ef_dn_input(l->draft, EF_NONE, (ef_dtype)l->draft->nodes.at[whole].dtype, parent->size, parent->rank);
    ef_dn view = made_again(l, value), origin = l->stand_in;
    l->standing_in = EF_NONE;
    return view == EF_NONE ? EF_NONE : put(l->draft, view, origin, whole, part);
}

bool ef_contents_write(ef_translation *l, uint32_t value, ef_dn node)
{
    ef_storage *storage = &l->storages.at[l->contents[value].storage];
    if (storage->opaque)
        l->lost = "it writes to memory that an external call has a view of";
    for (uint32_t v = value; v != EF_NONE && !l->lost; v = l->contents[v].parent)
        ef_contents_read(l, v); /* before anything changes */
    uint32_t version = ++storage->version;
    for (uint32_t v = value; v != EF_NONE && !l->lost; v = l->contents[v].parent) {
        if (node == EF_NONE)
            l->lost = "it writes through a view that the IR cannot undo";
        ef_dn up = l->contents[v].parent == EF_NONE || l->lost ? EF_NONE : write_up(l, v, node);
        l->contents[v].node = node;
        l->contents[v].version = version;
        node = up;
    }
    return !l->lost;
}
