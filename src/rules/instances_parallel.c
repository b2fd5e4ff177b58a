/* Random instances of rules: tuples and parallel operators (see instances_walk.h). */
#include <string.h>

#include "rules/instances_walk.h"

/* ---- tuples ---- */

ef_expr ef_walk_tuple(ef_walk *w, const ef_pattern_node *p, ef_type want)
{
    const ef_type_info *result = ef_type_at(w->ctx, want);
    if (!result->is_tuple || result->fields != p->children)
        return EF_NONE;
    w->siblings = result->fields;
    memcpy(w->sibling, result->field, sizeof w->sibling);
    return ef_walk_operands(w, p, EF_TUPLE, 0, result->field, result->fields);
}

ef_expr ef_walk_get(ef_walk *w, const ef_pattern_node *p, ef_type want)
{
    const ef_pattern_node *child = &w->pattern->node[p->child[0]];
    bool open = child->kind == EF_PAT_OP && child->op == EF_TUPLE;
    unsigned count = open ? child->children : w->siblings ? w->siblings : 2;
    ef_type field[EF_MAX_FIELDS];
    uint64_t index;
    count += !open && ef_draw_chance(w->d, 20);
    if (!ef_walk_slot_known(w, &p->slot[0], &index))
        index = ef_walk_slot_give(w, &p->slot[0], ef_draw_below(w->d, count));
    for (unsigned i = 0; i < count && count <= EF_MAX_FIELDS; i++) {
        field[i] = i == index ? want : i < w->siblings ? w->sibling[i] : ef_draw_tensor(w->d, want);
        if (!field[i])
            return EF_NONE;
    }
    if (index >= count || count > EF_MAX_FIELDS)
        return EF_NONE;
    ef_type operand = ef_type_tuple(w->ctx, field, count);
    return ef_walk_operands(w, p, EF_GET, index, &operand, 1);
}

/* ---- parallel operators ---- */

static bool drop_axis(ef_walk *w, ef_type_info *x, uint64_t axis)
{
    (void)w;
    const ef_place *place = ef_type_place(x, (ef_axis)axis);
    if (!place || place->kind == EF_PARTIAL)
        return false;
    unsigned at = (unsigned)(place - x->place);
    memmove(x->place + at, x->place + at + 1, (x->places - at - 1u) * sizeof *x->place);
    x->place[--x->places] = (ef_place){0};
    return true;
}

ef_expr ef_walk_view(ef_walk *w, const ef_pattern_node *p, ef_type want)
{
    const ef_axis *axes;
    ef_axis chosen[2 * EF_MAX_PLACES];
    unsigned count = 0, n;
    uint64_t known;
    bool fixed = ef_walk_slot_known(w, &p->slot[0], &known), all = ef_draw_chance(w->d, 40);
    ef_type operand = want;
    n = ef_axes_at(w->ctx, fixed ? (ef_axes)known : ef_type_axes(w->ctx, want), &axes);
    for (unsigned i = n; i-- > 0;) { /* inner axes first: an outer one can only go when they have gone */
        ef_type less =
            fixed || all || ef_draw_chance(w->d, 60) ? ef_walk_each_tensor(w, operand, axes[i], drop_axis) : 0;
        if (!less && fixed)
            return EF_NONE;
        if (!less)
            continue;
        chosen[count++] = axes[i];
        operand = less;
    }
    ef_axes set = ef_axes_intern(w->ctx, chosen, count);
    if (set == 0 || ef_infer(w->ctx, EF_VIEW, set, &operand, 1, NULL) != want)
        return EF_NONE;
    w->seen = ef_axes_union(w->ctx, w->seen, set);
    return ef_walk_operands(w, p, EF_VIEW, ef_walk_slot_give(w, &p->slot[0], set), &operand, 1);
}

/* Whether combining `axis` of a value of type `viewed` is a combination: every tensor, or some field, is cut. */
static bool all_cut(ef_walk *w, ef_type viewed, ef_axes set)
{
    return ef_infer(w->ctx, EF_COMBINE, set, &viewed, 1, NULL) != 0;
}

static ef_axes draw_axes(ef_walk *w, ef_type want)
{
    const ef_axis *seen;
    ef_axes set = 0;
    const ef_type_info *x = ef_type_at(w->ctx, want);
    while (x->is_tuple)
        x = ef_type_at(w->ctx, x->field[0]);
    unsigned n = ef_axes_at(w->ctx, w->seen, &seen), wanted = 1 + ef_draw_below(w->d, 2);
    for (unsigned tries = 0; tries < 6 && wanted; tries++) {
        ef_axis axis = n && ef_draw_chance(w->d, 60) ? seen[ef_draw_below(w->d, n)] : ef_draw_axis(w->d, x);
        ef_axes more = ef_axes_union(w->ctx, set, ef_axes_intern(w->ctx, &axis, 1));
        ef_type viewed = ef_infer(w->ctx, EF_VIEW, more, &want, 1, NULL);
        if (more == set || !viewed || !all_cut(w, viewed, more))
            continue;
        set = more;
        wanted--;
    }
    return set;
}

ef_expr ef_walk_combine(ef_walk *w, const ef_pattern_node *p, ef_type want)
{
    uint64_t set;
    if (!ef_walk_slot_known(w, &p->slot[0], &set))
        set = ef_walk_slot_give(w, &p->slot[0], draw_axes(w, want));
    ef_type operand = set ? ef_infer(w->ctx, EF_VIEW, set, &want, 1, NULL) : 0;
    w->seen = ef_axes_union(w->ctx, w->seen, (ef_axes)set);
    return ef_walk_operands(w, p, EF_COMBINE, set, &operand, 1);
}

static bool drop_count(ef_walk *w, ef_type_info *x, uint64_t axis)
{
    if (x->rank == 0 || x->dim[x->rank - 1] != ef_dim_count(w->ctx, (ef_axis)axis))
        return false;
    x->dim[--x->rank] = 0;
    return true;
}

ef_expr ef_walk_collect(ef_walk *w, const ef_pattern_node *p, ef_type want)
{
    uint64_t axis = ef_walk_slot_give(w, &p->slot[0], w->d->counted);
    ef_type operand = axis == EF_NONE ? 0 : ef_walk_each_tensor(w, want, axis, drop_count);
    if (operand)
        operand = ef_walk_each_tensor(w, operand, axis,
                                      ef_draw_chance(w->d, 70) ? ef_walk_make_partial : ef_walk_make_replicate);
    return ef_walk_operands(w, p, EF_COLLECT, axis, &operand, 1);
}
