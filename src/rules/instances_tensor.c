/* Random instances of rules: pointwise operators, matmuls and reductions (see instances_walk.h). */
#include "rules/instances_walk.h"

/* ---- pointwise ---- */

static bool gives(ef_op op, ef_dtype dtype)
{
    bool is_bool = dtype == EF_BOOL;
    switch (op) {
    case EF_CAST:
    case EF_SELECT: return true;
    case EF_NOT:
    case EF_LT:
    case EF_LE:
    case EF_GT:
    case EF_GE:
    case EF_EQ:
    case EF_NE:
    case EF_AND:
    case EF_OR: return is_bool;
    default: return !is_bool;
    }
}

static ef_op draw_operator(ef_walk *w, ef_op_class class, ef_dtype dtype)
{
    for (unsigned tries = 0; tries < 400; tries++) {
        ef_op op = (ef_op)ef_draw_below(w->d, EF_OP_COUNT);
        if (ef_ops[op].class == class && gives(op, dtype))
            return op;
    }
    return EF_OP_COUNT;
}

static ef_dtype operand_dtype(ef_walk *w, ef_op op, unsigned which, ef_dtype result)
{
    static const ef_dtype numbers[] = {EF_F32, EF_F32, EF_F32, EF_F16, EF_BF16, EF_I32, EF_F64, EF_NUM};
    ef_dtype any = numbers[ef_draw_below(w->d, 7)];
    switch (op) {
    case EF_NOT:
    case EF_AND:
    case EF_OR: return EF_BOOL;
    case EF_LT:
    case EF_LE:
    case EF_GT:
    case EF_GE: return any;
    case EF_EQ:
    case EF_NE:
    case EF_CAST: return ef_draw_chance(w->d, 20) ? EF_BOOL : any;
    case EF_SELECT: return which == 0 ? EF_BOOL : result;
    default: return ef_draw_chance(w->d, 85) || any > result ? result : any;
    }
}

/* Where an operand stands in the scope of the result. `keeper`: it has all that the result has. */
static void place_operand(ef_type_info *x, const ef_type_info *want, bool keeper, uint32_t random)
{
    for (unsigned i = 0; i < want->places; i++) {
        const ef_place *p = &want->place[i];
        bool has = p->dim < x->rank && x->dim[p->dim] == want->dim[p->dim];
        ef_kind kind = (ef_kind)p->kind;
        if ((kind == EF_PARTITION && !has) || (kind == EF_PARTIAL && !keeper))
            kind = ef_walk_absent_kind(random, p->axis);
        x->place[i] = (ef_place){p->axis, (uint16_t)kind, kind == EF_PARTITION ? p->dim : 0};
    }
}

/* An operand that broadcasts to the result: some dimensions become units, leading units go. */
static ef_type_info draw_operand(ef_walk *w, const ef_type_info *want, bool keeper, unsigned keep_percent)
{
    ef_type_info x = *want;
    for (unsigned i = 0; !keeper && i < x.rank; i++)
        if (!ef_draw_chance(w->d, keep_percent))
            x.dim[i] = EF_UNIT;
    while (!keeper && x.rank && x.dim[x.rank - 1] == EF_UNIT && ef_draw_chance(w->d, 60))
        x.rank--;
    place_operand(&x, want, keeper, (uint32_t)(ef_rng_next(&w->d->rng) >> 32));
    return x;
}

ef_expr ef_walk_pointwise(ef_walk *w, const ef_pattern_node *p, ef_type want)
{
    const ef_type_info *result = ef_type_at(w->ctx, want);
    ef_type operand[EF_PATTERN_CHILDREN] = {0};
    if (result->is_tuple)
        return EF_NONE;
    ef_op op = p->op;
    uint64_t attr = result->dtype;
    if (p->kind == EF_PAT_ANYOP && p->binds) {
        op = draw_operator(w, p->class, (ef_dtype)result->dtype);
        if (op == EF_OP_COUNT)
            return EF_NONE;
        w->out->op[p->index].op = op;
        w->out->op[p->index].attr = op == EF_CAST ? attr : 0;
    }
    if (p->kind == EF_PAT_ANYOP) {
        op = w->out->op[p->index].op;
        attr = w->out->op[p->index].attr;
    } else {
        attr = op == EF_CAST && p->slots ? ef_walk_slot_give(w, &p->slot[0], attr) : 0;
    }
    unsigned keeper = ef_draw_below(w->d, p->children), keep_percent = ef_draw_chance(w->d, 45) ? 100 : 60;
    for (unsigned i = 0; i < p->children; i++) {
        ef_type_info x = draw_operand(w, result, i == keeper, keep_percent);
        x.dtype = (uint8_t)operand_dtype(w, op, i, (ef_dtype)result->dtype);
        operand[i] = ef_type_intern(w->ctx, &x);
    }
    return ef_walk_operands(w, p, op, attr, operand, p->children);
}

/* ---- matmul ---- */

static ef_dim draw_contracted(ef_walk *w, const ef_pattern_node *p, const ef_type_info *want)
{
    const ef_type_info *a = ef_walk_settled(w, p->child[0]), *b = ef_walk_settled(w, p->child[1]);
    if (a || b)
        return a ? a->dim[0] : b->dim[1];
    for (unsigned i = 0; i < want->places; i++) { /* what is partial comes from a cut contraction, as a rule */
        ef_place place;
        if (want->place[i].kind == EF_PARTIAL && ef_draw_chance(w->d, 70) &&
            ef_type_cut(w->ctx, want, want->place[i].axis, &place) && place.kind == EF_REPLICATE)
            return ef_dim_of_var(w->ctx, ef_axis_var(want->place[i].axis));
    }
    ef_dim square = want->dim[ef_draw_below(w->d, 2)];
    if (ef_draw_chance(w->d, 10) && !ef_draw_in_scope(w->d, want, square))
        return square;
    return ef_draw_dim(w->d, want);
}

/* The state of a factor at one axis; `own` is the result's dimension that only this factor has. */
static ef_place place_factor(ef_walk *w, const ef_type_info *x, const ef_place *p, ef_dim contracted, unsigned own,
                             bool left, uint32_t random)
{
    const ef_var *atoms;
    ef_place out = {p->axis, EF_REPLICATE, 0};
    bool cut = ef_dim_atoms(w->ctx, contracted, &atoms) && atoms[0] == ef_axis_var(p->axis);
    if (p->kind == EF_PARTIAL && cut)
        return (ef_place){p->axis, EF_PARTITION, left ? 0 : 1};
    if (p->kind == EF_PARTIAL)
        out.kind = left ? EF_PARTIAL : (uint16_t)ef_walk_absent_kind(random, p->axis);
    if (p->kind == EF_PARTITION && (p->dim == own || (p->dim >= 2 && p->dim < x->rank && x->dim[p->dim] != EF_UNIT)))
        return *p;
    if (p->kind == EF_PARTITION)
        out.kind = (uint16_t)ef_walk_absent_kind(random, p->axis);
    return out;
}

static ef_type draw_factor(ef_walk *w, const ef_type_info *want, ef_dim contracted, bool left, bool keeps_batch,
                           bool swap)
{
    ef_type_info x = *want;
    uint32_t random = (uint32_t)(ef_rng_next(&w->d->rng) >> 32);
    for (unsigned i = 2; !keeps_batch && i < x.rank; i++)
        if (ef_draw_chance(w->d, 40))
            x.dim[i] = EF_UNIT;
    while (!keeps_batch && x.rank > 2 && x.dim[x.rank - 1] == EF_UNIT && ef_draw_chance(w->d, 70))
        x.rank--;
    x.dim[left ? 0 : 1] = contracted;
    if (x.dtype == EF_BOOL)
        x.dtype = EF_F32;
    for (unsigned i = 0; i < want->places; i++)
        x.place[i] = place_factor(w, &x, &want->place[i], contracted, left ? 1 : 0, left != swap, random);
    /* a contracted cut sits at the factor's own index, whichever factor leads the partial states */
    for (unsigned i = 0; i < x.places; i++)
        if (x.place[i].kind == EF_PARTITION && want->place[i].kind == EF_PARTIAL)
            x.place[i].dim = left ? 0 : 1;
    return ef_type_intern(w->ctx, &x);
}

ef_expr ef_walk_matmul(ef_walk *w, const ef_pattern_node *p, ef_type want)
{
    const ef_type_info *result = ef_type_at(w->ctx, want);
    if (result->is_tuple || result->rank < 2)
        return EF_NONE;
    ef_dim contracted = draw_contracted(w, p, result);
    bool keeper = ef_draw_chance(w->d, 50), both = ef_draw_chance(w->d, 40), swap = ef_draw_chance(w->d, 50);
    ef_type factors[EF_PATTERN_CHILDREN] = {draw_factor(w, result, contracted, true, both || keeper, swap),
                                            draw_factor(w, result, contracted, false, both || !keeper, swap)};
    return ef_walk_operands(w, p, p->op, 0, factors, 2);
}

/* ---- reductions ---- */

/* A dimension for a reduced index: one whose axes are then partial in the result, or a free one. */
static void reduced_dim(ef_walk *w, ef_type_info *x, unsigned index)
{
    for (unsigned i = 0; i < x->places; i++) {
        ef_axis axis = x->place[i].axis;
        ef_place place;
        if (x->place[i].kind != EF_PARTIAL || !ef_draw_chance(w->d, 65) || !ef_type_cut(w->ctx, x, axis, &place) ||
            place.kind != EF_REPLICATE)
            continue;
        x->dim[index] = ef_dim_of_var(w->ctx, ef_axis_var(axis));
        for (unsigned k = 0; k < x->places; k++)
            if (ef_axis_var(x->place[k].axis) == ef_axis_var(axis))
                x->place[k] = (ef_place){x->place[k].axis, EF_PARTITION, (uint16_t)index};
        return;
    }
    x->dim[index] = ef_draw_dim(w->d, x);
}

static bool lead_with_count(ef_walk *w, ef_type_info *x, uint64_t axis)
{
    if (x->rank == EF_MAX_RANK)
        return false;
    x->dim[x->rank++] = ef_dim_count(w->ctx, (ef_axis)axis);
    return true;
}

static bool unit_index(ef_walk *w, const ef_type_info *x, uint64_t *index)
{
    unsigned units = 0;
    for (unsigned i = 0; i < x->rank; i++)
        if (x->dim[i] == EF_UNIT && ef_draw_below(w->d, ++units) == 0)
            *index = i;
    return units > 0;
}

ef_expr ef_walk_reduce(ef_walk *w, const ef_pattern_node *p, ef_type want)
{
    ef_type_info x = *ef_type_at(w->ctx, want);
    ef_type operand;
    uint64_t index;
    if (!ef_walk_slot_known(w, &p->slot[1], &index) &&
        (x.is_tuple || ef_draw_chance(w->d, 15) || !unit_index(w, &x, &index)))
        index = EF_FIRST;
    if (index == EF_FIRST) {
        operand =
            ef_walk_each_tensor(w, want, ef_axis_of(w->d->pool[ef_draw_below(w->d, EF_DRAW_VARS)], 0), lead_with_count);
    } else {
        if (x.is_tuple || index >= x.rank || x.dim[index] != EF_UNIT)
            return EF_NONE;
        reduced_dim(w, &x, (unsigned)index);
        operand = ef_type_intern(w->ctx, &x);
    }
    if (!operand)
        return EF_NONE;
    uint64_t reducer = ef_walk_slot_give(w, &p->slot[0], ef_draw_reducer(w->d, operand));
    index = ef_walk_slot_give(w, &p->slot[1], index);
    return ef_walk_operands(w, p, EF_REDUCE, ef_attr_reduce(reducer, index), &operand, 1);
}

/* Makes a value local to the coordinates of an axis that its shape does not have. */
static bool make_local(ef_walk *w, ef_type_info *x, uint64_t axis, ef_kind kind)
{
    ef_type_info before = *x;
    return !(ef_axis_level((ef_axis)axis) == 0 && ef_type_place(x, ef_axis_of(ef_axis_var((ef_axis)axis), 1))) &&
           ef_draw_place(w->d, x, (ef_axis)axis, kind) && ef_type_place(x, (ef_axis)axis)->kind == (uint16_t)kind &&
           x->places == before.places + 1u;
}

bool ef_walk_make_partial(ef_walk *w, ef_type_info *x, uint64_t axis)
{
    return make_local(w, x, axis, EF_PARTIAL);
}

bool ef_walk_make_replicate(ef_walk *w, ef_type_info *x, uint64_t axis)
{
    return make_local(w, x, axis, EF_REPLICATE);
}

ef_expr ef_walk_reduce_p(ef_walk *w, const ef_pattern_node *p, ef_type want)
{
    uint64_t axis;
    const ef_type_info none = {0};
    if (!ef_walk_slot_known(w, &p->slot[1], &axis))
        axis = ef_draw_axis(w->d, &none);
    ef_type operand = ef_walk_each_tensor(w, want, axis, ef_walk_make_partial);
    if (!operand)
        return EF_NONE;
    uint64_t reducer = ef_walk_slot_give(w, &p->slot[0], ef_draw_reducer(w->d, operand));
    ef_walk_slot_give(w, &p->slot[1], axis);
    if (reducer == EF_NONE)
        return EF_NONE;
    return ef_walk_operands(w, p, EF_REDUCE_P, ef_attr_reduce(reducer, axis), &operand, 1);
}
