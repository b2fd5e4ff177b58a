/* Random instances of rules: operators that move elements (see instances_walk.h). */
#include <stdio.h>
#include <string.h>

#include "rules/instances_walk.h"

/* Cuts the places anew after the dimensions changed. */
static bool replace_places(ef_walk *w, ef_type_info *x)
{
    for (unsigned i = 0; i < x->places; i++) {
        ef_place place;
        if (x->place[i].kind != EF_PARTITION)
            continue;
        if (!ef_type_cut(w->ctx, x, x->place[i].axis, &place) || place.kind != EF_PARTITION)
            return false;
        x->place[i] = place;
    }
    return true;
}

static bool set_dims(ef_type_info *x, const ef_dim *outermost_first, unsigned rank)
{
    if (rank > 6)
        return false;
    memset(x->dim, 0, sizeof x->dim);
    x->rank = (uint8_t)rank;
    for (unsigned i = 0; i < rank; i++)
        x->dim[i] = outermost_first[rank - 1 - i];
    return true;
}

/* Another grouping of the same variables, with units thrown in. */
static bool regroup(ef_walk *w, ef_type_info *x)
{
    ef_var group[EF_MAX_RANK * EF_MAX_ATOMS];
    ef_dim dims[EF_MAX_RANK * EF_MAX_ATOMS];
    unsigned rank = 0, grouped = 0, join = ef_draw_below(w->d, 70);
    for (unsigned i = x->rank; i-- > 0;) {
        const ef_var *atoms;
        bool counted = ef_dim_is_count(w->ctx, x->dim[i]);
        for (unsigned a = 0, n = ef_dim_atoms(w->ctx, x->dim[i], &atoms); a < n; a++) {
            bool cut = ef_draw_in_scope(w->d, x, ef_dim_of_var(w->ctx, atoms[a]));
            if (grouped && (cut || counted || grouped == EF_MAX_ATOMS || !ef_draw_chance(w->d, join))) {
                dims[rank++] = ef_dim_product(w->ctx, group, grouped);
                grouped = 0;
            }
            if (grouped == 0 && ef_draw_chance(w->d, 12))
                dims[rank++] = EF_UNIT;
            group[grouped++] = atoms[a];
        }
    }
    if (grouped)
        dims[rank++] = ef_dim_product(w->ctx, group, grouped);
    if (ef_draw_chance(w->d, 12))
        dims[rank++] = EF_UNIT;
    return set_dims(x, dims, rank);
}

/* One product dimension falls apart. */
static bool split_one(ef_walk *w, ef_type_info *x)
{
    ef_dim dims[EF_MAX_RANK + 1];
    unsigned from = ef_draw_below(w->d, x->rank ? x->rank : 1), rank = 0;
    if (x->rank == EF_MAX_RANK)
        return false;
    for (unsigned i = x->rank; i-- > 0;) {
        const ef_var *atoms;
        unsigned n = ef_dim_atoms(w->ctx, x->dim[i], &atoms);
        if (n >= 2 && (from == i || ef_draw_chance(w->d, 50))) {
            ef_var outer = atoms[0], rest[EF_MAX_ATOMS];
            memcpy(rest, atoms + 1, (n - 1) * sizeof *rest);
            dims[rank++] = ef_dim_of_var(w->ctx, outer);
            dims[rank++] = ef_dim_product(w->ctx, rest, n - 1);
            for (unsigned k = i; k-- > 0;)
                dims[rank++] = x->dim[k];
            return set_dims(x, dims, rank);
        }
        dims[rank++] = x->dim[i];
    }
    return false;
}

/* The same shape with some dimensions by the name of their twin. */
static bool rename_some(ef_walk *w, ef_type_info *x)
{
    bool all = ef_draw_chance(w->d, 30);
    for (unsigned i = 0; i < x->rank; i++) {
        ef_dim twin = all || ef_draw_chance(w->d, 50) ? ef_dim_twin(w->ctx, x->dim[i]) : x->dim[i];
        x->dim[i] = twin == EF_NONE ? x->dim[i] : twin;
    }
    return true;
}

/* One dimension of a name of its own, with as many elements. */
static bool flatten(ef_walk *w, ef_type_info *x)
{
    char name[32];
    uint64_t volume = 1;
    for (unsigned i = 0; i < x->rank; i++)
        volume *= ef_dim_extent(w->ctx, x->dim[i]);
    if (volume < 2)
        return false;
    int length = snprintf(name, sizeof name, "flat%llu", (unsigned long long)volume);
    ef_dim dim = ef_dim_of_var(w->ctx, ef_var_named(w->ctx, name, (unsigned)length, volume, NULL));
    return set_dims(x, &dim, 1);
}

/* Where the operand is a concatenation along a known dimension: that one as two parts of as many elements together,
 * which other tensors of the instance are cut into as well. */
static bool two_parts(ef_walk *w, ef_type_info *x, const ef_pattern_node *concat)
{
    char name[32];
    uint64_t index, extent, size[2];
    ef_dim part[2];
    if (!ef_walk_slot_known(w, &concat->slot[0], &index) || index >= x->rank ||
        (extent = ef_dim_extent(w->ctx, x->dim[index])) < 2)
        return false;
    size[0] = ef_draw_chance(w->d, 70) ? extent / 2 : 1 + ef_draw_below(w->d, (uint32_t)extent - 1);
    size[1] = extent - size[0];
    for (unsigned i = 0; i < 2; i++) {
        int length = snprintf(name, sizeof name, "%s%llu_%u", ef_draw_chance(w->d, 50) ? "part" : "piece",
                              (unsigned long long)size[i], i);
        part[i] =
            size[i] == 1 ? EF_UNIT : ef_dim_of_var(w->ctx, ef_var_named(w->ctx, name, (unsigned)length, size[i], NULL));
    }
    x->dim[index] = ef_dim_concat(w->ctx, part, 2);
    return true;
}

ef_expr ef_walk_reshape(ef_walk *w, const ef_pattern_node *p, ef_type want)
{
    ef_type_info x = *ef_type_at(w->ctx, want);
    if (x.is_tuple)
        return EF_NONE;
    uint64_t dims = ef_walk_slot_give(w, &p->slot[0], ef_walk_dims(w, &x));
    uint32_t way = ef_draw_below(w->d, 100);
    bool ok = true;
    const ef_pattern_node *child = &w->pattern->node[p->child[0]];
    if (child->kind == EF_PAT_OP && child->op == EF_CONCAT && child->slot[0].kind == EF_SLOT_VALUE)
        ok = two_parts(w, &x, child);
    else if (way < (w->d->uses[EF_CONCAT] ? 60u : 20u)) /* two shapes must fit there */
        ok = rename_some(w, &x);
    else if (way < 40 && w->d->uses[EF_MATMUL])
        ok = split_one(w, &x);
    else if (way < 45)
        while (x.rank && x.dim[x.rank - 1] == EF_UNIT && ef_draw_chance(w->d, 80))
            x.rank--;
    else if (way < 90)
        ok = regroup(w, &x);
    else
        ok = flatten(w, &x);
    if (!ok || !replace_places(w, &x))
        return EF_NONE;
    ef_type operand = ef_type_intern(w->ctx, &x);
    return ef_walk_operands(w, p, EF_RESHAPE, dims, &operand, 1);
}

static uint64_t draw_order(ef_walk *w, unsigned rank)
{
    uint8_t order[EF_MAX_RANK];
    uint64_t perm = 0;
    uint32_t way = ef_draw_below(w->d, 100);
    for (unsigned i = 0; i < rank; i++)
        order[i] = (uint8_t)i;
    if (way < 40 && rank >= 2) {
        order[0] = 1;
        order[1] = 0;
    }
    for (unsigned i = rank; way >= 55 && i > 1; i--) {
        unsigned j = ef_draw_below(w->d, i);
        uint8_t kept = order[i - 1];
        order[i - 1] = order[j];
        order[j] = kept;
    }
    for (unsigned i = 0; i < rank; i++)
        perm |= (uint64_t)order[i] << (4 * i);
    return perm;
}

ef_expr ef_walk_transpose(ef_walk *w, const ef_pattern_node *p, ef_type want)
{
    const ef_type_info *result = ef_type_at(w->ctx, want);
    ef_type_info x = *result;
    if (x.is_tuple)
        return EF_NONE;
    uint64_t perm = ef_walk_slot_give(w, &p->slot[0], draw_order(w, x.rank));
    for (unsigned i = 0; i < x.rank; i++) {
        if (ef_perm_at(perm, i) >= x.rank)
            return EF_NONE;
        x.dim[ef_perm_at(perm, i)] = result->dim[i];
    }
    for (unsigned i = 0; i < x.places; i++)
        if (x.place[i].kind == EF_PARTITION)
            x.place[i].dim = (uint16_t)ef_perm_at(perm, result->place[i].dim);
    ef_type operand = ef_type_intern(w->ctx, &x);
    return ef_walk_operands(w, p, EF_TRANSPOSE, perm, &operand, 1);
}

/* Undoes a slice at one dimension: false where it is none. */
static bool unslice(ef_walk *w, ef_type_info *x, unsigned index, uint32_t *start, uint32_t *stop)
{
    const ef_var *atoms;
    unsigned n = ef_dim_atoms(w->ctx, x->dim[index], &atoms);
    const ef_var_info *var = n == 1 ? ef_var_at(w->ctx, atoms[0]) : NULL;
    if (n == 0) {
        x->dim[index] = ef_draw_dim(w->d, x);
        uint64_t extent = ef_dim_extent(w->ctx, x->dim[index]);
        *start = ef_draw_below(w->d, (uint32_t)extent);
        *stop = *start + 1;
        return true;
    }
    if (ef_dim_is_count(w->ctx, x->dim[index]))
        return false;
    bool sliced = var && var->kind == EF_VAR_SLICE;
    *start = sliced ? var->start : 0;
    *stop = sliced ? var->stop : (uint32_t)ef_dim_extent(w->ctx, x->dim[index]);
    if (sliced)
        x->dim[index] = var->parent;
    return sliced || ef_draw_chance(w->d, 25);
}

ef_expr ef_walk_slice(ef_walk *w, const ef_pattern_node *p, ef_type want)
{
    ef_type_info x = *ef_type_at(w->ctx, want);
    uint32_t start, stop;
    uint64_t attr;
    if (x.is_tuple || x.rank == 0)
        return EF_NONE;
    unsigned index = ef_draw_below(w->d, x.rank);
    if (!ef_walk_slot_known(w, &p->slot[0], &attr)) {
        if (!unslice(w, &x, index, &start, &stop))
            return EF_NONE;
        attr = ef_walk_slot_give(w, &p->slot[0], ef_attr_slice(index, start, stop));
    }
    ef_type operand = ef_type_intern(w->ctx, &x);
    return ef_walk_operands(w, p, EF_SLICE, attr, &operand, 1);
}

ef_expr ef_walk_concat(ef_walk *w, const ef_pattern_node *p, ef_type want)
{
    ef_type_info x = *ef_type_at(w->ctx, want);
    ef_type operand[EF_PATTERN_CHILDREN] = {0};
    const ef_var *atoms;
    const ef_dim *parts;
    uint64_t index;
    if (x.is_tuple || x.rank == 0)
        return EF_NONE;
    if (!ef_walk_slot_known(w, &p->slot[0], &index))
        index = ef_draw_below(w->d, x.rank);
    if (index >= x.rank || ef_dim_atoms(w->ctx, x.dim[index], &atoms) != 1)
        return EF_NONE;
    const ef_var_info *var = ef_var_at(w->ctx, atoms[0]);
    if (var->kind != EF_VAR_CONCAT || ef_dims_at(w->ctx, var->parts, &parts) != p->children)
        return EF_NONE;
    for (unsigned i = 0; i < p->children; i++) {
        x.dim[index] = parts[i];
        operand[i] = ef_type_intern(w->ctx, &x);
    }
    return ef_walk_operands(w, p, EF_CONCAT, ef_walk_slot_give(w, &p->slot[0], index), operand, p->children);
}

ef_expr ef_walk_broadcast(ef_walk *w, const ef_pattern_node *p, ef_type want)
{
    ef_type_info x = *ef_type_at(w->ctx, want);
    if (x.is_tuple)
        return EF_NONE;
    uint64_t dims = ef_walk_slot_give(w, &p->slot[0], ef_walk_dims(w, &x));
    for (unsigned i = 0; i < x.rank; i++)
        if (!ef_draw_in_scope(w->d, &x, x.dim[i]) && ef_draw_chance(w->d, 50))
            x.dim[i] = EF_UNIT;
    while (x.rank && x.dim[x.rank - 1] == EF_UNIT && ef_draw_chance(w->d, 50))
        x.rank--;
    ef_type operand = ef_type_intern(w->ctx, &x);
    return ef_walk_operands(w, p, EF_BROADCAST, dims, &operand, 1);
}
