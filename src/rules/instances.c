/* Random instances of a rule: see instances.h.
 *
 * The left side is drawn from the top down. The result's type is drawn first; every operator of the pattern then says
 * which types of its operands would give it that type, choosing its free attributes on the way; and a variable becomes
 * a leaf of the type that is wished of it (draw.h). A variable that occurs again keeps what it became, so wishes are
 * only wishes: what counts is that the whole is well-typed in the end. Most draws fail early and cheaply. */
#include "rules/instances.h"

#include <stdio.h>
#include <string.h>

typedef struct {
    ef_instance *out;
    ef_draw *d;
    ef_ctx *ctx;
    const ef_pattern *pattern;
    ef_axes seen;                   /* the axes of views and combinations so far: others rather meet them */
    ef_type sibling[EF_MAX_FIELDS]; /* the fields wished of the enclosing tuple */
    unsigned siblings;
    uint32_t literals, positives; /* variables that conditions want to be literals */
} walk;

static ef_expr draw_node(walk *w, unsigned at, ef_type want);

/* ---- attributes ---- */

/* The value of a slot where it is known already. */
static bool slot_known(const walk *w, const ef_slot *slot, uint64_t *value)
{
    *value = slot->kind == EF_SLOT_VALUE ? slot->value : w->out->attr[slot->value];
    return slot->kind == EF_SLOT_VALUE || !slot->binds;
}

/* Gives a slot its value where it is not known, and returns what it has. */
static uint64_t slot_give(walk *w, const ef_slot *slot, uint64_t value)
{
    if (slot->kind == EF_SLOT_VALUE)
        return slot->value;
    if (slot->binds)
        w->out->attr[slot->value] = value;
    return w->out->attr[slot->value];
}

/* ---- nodes and types ---- */

static ef_expr add_node(walk *w, ef_op op, uint64_t attr, const ef_expr *x, unsigned count)
{
    for (unsigned i = 0; i < count; i++)
        if (x[i] == EF_NONE)
            return EF_NONE;
    return ef_dag_add_exact(w->d->dag, op, attr, x, count, NULL);
}

/* Draws the operands, of the wished types, and the node over them. */
static ef_expr with_operands(walk *w, const ef_pattern_node *p, ef_op op, uint64_t attr, const ef_type *want)
{
    ef_expr x[EF_PATTERN_CHILDREN];
    for (unsigned i = 0; i < p->children; i++)
        if (!want[i] || (x[i] = draw_node(w, p->child[i], want[i])) == EF_NONE)
            return EF_NONE;
    return add_node(w, op, attr, x, p->children);
}

/* Applies f to every tensor of a type; 0 when f fails. */
typedef bool (*tensor_fn)(walk *w, ef_type_info *tensor, uint64_t arg);

static ef_type each_tensor(walk *w, ef_type type, uint64_t arg, tensor_fn f)
{
    ef_type_info info = *ef_type_at(w->ctx, type);
    if (!info.is_tuple)
        return f(w, &info, arg) ? ef_type_intern(w->ctx, &info) : 0;
    for (unsigned i = 0; i < info.fields; i++)
        if (!(info.field[i] = each_tensor(w, info.field[i], arg, f)))
            return 0;
    return ef_type_intern(w->ctx, &info);
}

static ef_dims dims_of(walk *w, const ef_type_info *type)
{
    ef_dim dims[EF_MAX_RANK];
    for (unsigned i = 0; i < type->rank; i++)
        dims[i] = type->dim[type->rank - 1 - i];
    return ef_dims_intern(w->ctx, dims, type->rank);
}

/* A wished dimension that is already settled: that of a variable which has become something. 0 when it is open. */
static const ef_type_info *settled(const walk *w, unsigned at)
{
    const ef_pattern_node *p = &w->pattern->node[at];
    if (p->kind != EF_PAT_VAR || p->binds)
        return NULL;
    const ef_type_info *type = ef_type_at(w->ctx, ef_dag_type(w->d->dag, w->out->var[p->index]));
    return type->is_tuple ? NULL : type;
}

/* The state of an operand that does not have the cut dimension. One answer a variable: both its levels agree. */
static ef_kind absent_kind(uint32_t random, ef_axis axis)
{
    return random >> (ef_axis_var(axis) % 16u) & random >> 16 & 1u ? EF_PARTIAL : EF_REPLICATE;
}

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

static ef_op draw_operator(walk *w, ef_op_class class, ef_dtype dtype)
{
    for (unsigned tries = 0; tries < 400; tries++) {
        ef_op op = (ef_op)ef_draw_below(w->d, EF_OP_COUNT);
        if (ef_ops[op].class == class && gives(op, dtype))
            return op;
    }
    return EF_OP_COUNT;
}

static ef_dtype operand_dtype(walk *w, ef_op op, unsigned which, ef_dtype result)
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
            kind = absent_kind(random, p->axis);
        x->place[i] = (ef_place){p->axis, (uint16_t)kind, kind == EF_PARTITION ? p->dim : 0};
    }
}

/* An operand that broadcasts to the result: some dimensions become units, leading units go. */
static ef_type_info draw_operand(walk *w, const ef_type_info *want, bool keeper, unsigned keep_percent)
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

static ef_expr draw_pointwise(walk *w, const ef_pattern_node *p, ef_type want)
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
        attr = op == EF_CAST && p->slots ? slot_give(w, &p->slot[0], attr) : 0;
    }
    unsigned keeper = ef_draw_below(w->d, p->children), keep_percent = ef_draw_chance(w->d, 45) ? 100 : 60;
    for (unsigned i = 0; i < p->children; i++) {
        ef_type_info x = draw_operand(w, result, i == keeper, keep_percent);
        x.dtype = (uint8_t)operand_dtype(w, op, i, (ef_dtype)result->dtype);
        operand[i] = ef_type_intern(w->ctx, &x);
    }
    return with_operands(w, p, op, attr, operand);
}

/* ---- matmul ---- */

static ef_dim draw_contracted(walk *w, const ef_pattern_node *p, const ef_type_info *want)
{
    const ef_type_info *a = settled(w, p->child[0]), *b = settled(w, p->child[1]);
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
static ef_place place_factor(walk *w, const ef_type_info *x, const ef_place *p, ef_dim contracted, unsigned own,
                             bool left, uint32_t random)
{
    const ef_var *atoms;
    ef_place out = {p->axis, EF_REPLICATE, 0};
    bool cut = ef_dim_atoms(w->ctx, contracted, &atoms) && atoms[0] == ef_axis_var(p->axis);
    if (p->kind == EF_PARTIAL && cut)
        return (ef_place){p->axis, EF_PARTITION, left ? 0 : 1};
    if (p->kind == EF_PARTIAL)
        out.kind = left ? EF_PARTIAL : (uint16_t)absent_kind(random, p->axis);
    if (p->kind == EF_PARTITION && (p->dim == own || (p->dim >= 2 && p->dim < x->rank && x->dim[p->dim] != EF_UNIT)))
        return *p;
    if (p->kind == EF_PARTITION)
        out.kind = (uint16_t)absent_kind(random, p->axis);
    return out;
}

static ef_type draw_factor(walk *w, const ef_type_info *want, ef_dim contracted, bool left, bool keeps_batch, bool swap)
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

static ef_expr draw_matmul(walk *w, const ef_pattern_node *p, ef_type want)
{
    const ef_type_info *result = ef_type_at(w->ctx, want);
    if (result->is_tuple || result->rank < 2)
        return EF_NONE;
    ef_dim contracted = draw_contracted(w, p, result);
    bool keeper = ef_draw_chance(w->d, 50), both = ef_draw_chance(w->d, 40), swap = ef_draw_chance(w->d, 50);
    ef_type factors[EF_PATTERN_CHILDREN] = {draw_factor(w, result, contracted, true, both || keeper, swap),
                                            draw_factor(w, result, contracted, false, both || !keeper, swap)};
    return with_operands(w, p, p->op, 0, factors);
}

/* ---- reductions ---- */

/* A dimension for a reduced index: one whose axes are then partial in the result, or a free one. */
static void reduced_dim(walk *w, ef_type_info *x, unsigned index)
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

static bool lead_with_count(walk *w, ef_type_info *x, uint64_t axis)
{
    if (x->rank == EF_MAX_RANK)
        return false;
    x->dim[x->rank++] = ef_dim_count(w->ctx, (ef_axis)axis);
    return true;
}

static bool unit_index(walk *w, const ef_type_info *x, uint64_t *index)
{
    unsigned units = 0;
    for (unsigned i = 0; i < x->rank; i++)
        if (x->dim[i] == EF_UNIT && ef_draw_below(w->d, ++units) == 0)
            *index = i;
    return units > 0;
}

static ef_expr draw_reduce(walk *w, const ef_pattern_node *p, ef_type want)
{
    ef_type_info x = *ef_type_at(w->ctx, want);
    ef_type operand;
    uint64_t index;
    if (!slot_known(w, &p->slot[1], &index) && (x.is_tuple || ef_draw_chance(w->d, 15) || !unit_index(w, &x, &index)))
        index = EF_FIRST;
    if (index == EF_FIRST) {
        operand = each_tensor(w, want, ef_axis_of(w->d->pool[ef_draw_below(w->d, EF_DRAW_VARS)], 0), lead_with_count);
    } else {
        if (x.is_tuple || index >= x.rank || x.dim[index] != EF_UNIT)
            return EF_NONE;
        reduced_dim(w, &x, (unsigned)index);
        operand = ef_type_intern(w->ctx, &x);
    }
    if (!operand)
        return EF_NONE;
    uint64_t reducer = slot_give(w, &p->slot[0], ef_draw_reducer(w->d, operand));
    index = slot_give(w, &p->slot[1], index);
    return with_operands(w, p, EF_REDUCE, ef_attr_reduce(reducer, index), &operand);
}

/* Makes a value local to the coordinates of an axis that its shape does not have. */
static bool make_local(walk *w, ef_type_info *x, uint64_t axis, ef_kind kind)
{
    ef_type_info before = *x;
    return !(ef_axis_level((ef_axis)axis) == 0 && ef_type_place(x, ef_axis_of(ef_axis_var((ef_axis)axis), 1))) &&
           ef_draw_place(w->d, x, (ef_axis)axis, kind) && ef_type_place(x, (ef_axis)axis)->kind == (uint16_t)kind &&
           x->places == before.places + 1u;
}

static bool make_partial(walk *w, ef_type_info *x, uint64_t axis)
{
    return make_local(w, x, axis, EF_PARTIAL);
}

static bool make_replicate(walk *w, ef_type_info *x, uint64_t axis)
{
    return make_local(w, x, axis, EF_REPLICATE);
}

static ef_expr draw_reduce_p(walk *w, const ef_pattern_node *p, ef_type want)
{
    uint64_t axis;
    const ef_type_info none = {0};
    if (!slot_known(w, &p->slot[1], &axis))
        axis = ef_draw_axis(w->d, &none);
    ef_type operand = each_tensor(w, want, axis, make_partial);
    if (!operand)
        return EF_NONE;
    uint64_t reducer = slot_give(w, &p->slot[0], ef_draw_reducer(w->d, operand));
    slot_give(w, &p->slot[1], axis);
    if (reducer == EF_NONE)
        return EF_NONE;
    return with_operands(w, p, EF_REDUCE_P, ef_attr_reduce(reducer, axis), &operand);
}

/* ---- shapes ---- */

/* Cuts the places anew after the dimensions changed. */
static bool replace_places(walk *w, ef_type_info *x)
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
static bool regroup(walk *w, ef_type_info *x)
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

/* One dimension of a name of its own, with as many elements. */
static bool flatten(walk *w, ef_type_info *x)
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

static ef_expr draw_reshape(walk *w, const ef_pattern_node *p, ef_type want)
{
    ef_type_info x = *ef_type_at(w->ctx, want);
    if (x.is_tuple)
        return EF_NONE;
    uint64_t dims = slot_give(w, &p->slot[0], dims_of(w, &x));
    uint32_t way = ef_draw_below(w->d, 100);
    bool ok = true;
    if (way < 30)
        while (x.rank && x.dim[x.rank - 1] == EF_UNIT && ef_draw_chance(w->d, 80))
            x.rank--;
    else if (way < 90)
        ok = regroup(w, &x);
    else
        ok = flatten(w, &x);
    if (!ok || !replace_places(w, &x))
        return EF_NONE;
    ef_type operand = ef_type_intern(w->ctx, &x);
    return with_operands(w, p, EF_RESHAPE, dims, &operand);
}

static uint64_t draw_order(walk *w, unsigned rank)
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

static ef_expr draw_transpose(walk *w, const ef_pattern_node *p, ef_type want)
{
    const ef_type_info *result = ef_type_at(w->ctx, want);
    ef_type_info x = *result;
    if (x.is_tuple)
        return EF_NONE;
    uint64_t perm = slot_give(w, &p->slot[0], draw_order(w, x.rank));
    for (unsigned i = 0; i < x.rank; i++) {
        if (ef_perm_at(perm, i) >= x.rank)
            return EF_NONE;
        x.dim[ef_perm_at(perm, i)] = result->dim[i];
    }
    for (unsigned i = 0; i < x.places; i++)
        if (x.place[i].kind == EF_PARTITION)
            x.place[i].dim = (uint16_t)ef_perm_at(perm, result->place[i].dim);
    ef_type operand = ef_type_intern(w->ctx, &x);
    return with_operands(w, p, EF_TRANSPOSE, perm, &operand);
}

/* Undoes a slice at one dimension: false where it is none. */
static bool unslice(walk *w, ef_type_info *x, unsigned index, uint32_t *start, uint32_t *stop)
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

static ef_expr draw_slice(walk *w, const ef_pattern_node *p, ef_type want)
{
    ef_type_info x = *ef_type_at(w->ctx, want);
    uint32_t start, stop;
    uint64_t attr;
    if (x.is_tuple || x.rank == 0)
        return EF_NONE;
    unsigned index = ef_draw_below(w->d, x.rank);
    if (!slot_known(w, &p->slot[0], &attr)) {
        if (!unslice(w, &x, index, &start, &stop))
            return EF_NONE;
        attr = slot_give(w, &p->slot[0], ef_attr_slice(index, start, stop));
    }
    ef_type operand = ef_type_intern(w->ctx, &x);
    return with_operands(w, p, EF_SLICE, attr, &operand);
}

static ef_expr draw_concat(walk *w, const ef_pattern_node *p, ef_type want)
{
    ef_type_info x = *ef_type_at(w->ctx, want);
    ef_type operand[EF_PATTERN_CHILDREN] = {0};
    const ef_var *atoms;
    const ef_dim *parts;
    uint64_t index;
    if (x.is_tuple || x.rank == 0)
        return EF_NONE;
    if (!slot_known(w, &p->slot[0], &index))
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
    return with_operands(w, p, EF_CONCAT, slot_give(w, &p->slot[0], index), operand);
}

static ef_expr draw_broadcast(walk *w, const ef_pattern_node *p, ef_type want)
{
    ef_type_info x = *ef_type_at(w->ctx, want);
    if (x.is_tuple)
        return EF_NONE;
    uint64_t dims = slot_give(w, &p->slot[0], dims_of(w, &x));
    for (unsigned i = 0; i < x.rank; i++)
        if (!ef_draw_in_scope(w->d, &x, x.dim[i]) && ef_draw_chance(w->d, 50))
            x.dim[i] = EF_UNIT;
    while (x.rank && x.dim[x.rank - 1] == EF_UNIT && ef_draw_chance(w->d, 50))
        x.rank--;
    ef_type operand = ef_type_intern(w->ctx, &x);
    return with_operands(w, p, EF_BROADCAST, dims, &operand);
}

/* ---- tuples ---- */

static ef_expr draw_tuple(walk *w, const ef_pattern_node *p, ef_type want)
{
    const ef_type_info *result = ef_type_at(w->ctx, want);
    if (!result->is_tuple || result->fields != p->children)
        return EF_NONE;
    w->siblings = result->fields;
    memcpy(w->sibling, result->field, sizeof w->sibling);
    return with_operands(w, p, EF_TUPLE, 0, result->field);
}

static ef_expr draw_get(walk *w, const ef_pattern_node *p, ef_type want)
{
    const ef_pattern_node *child = &w->pattern->node[p->child[0]];
    bool open = child->kind == EF_PAT_OP && child->op == EF_TUPLE;
    unsigned count = open ? child->children : w->siblings ? w->siblings : 2;
    ef_type field[EF_MAX_FIELDS];
    uint64_t index;
    count += !open && ef_draw_chance(w->d, 20);
    if (!slot_known(w, &p->slot[0], &index))
        index = slot_give(w, &p->slot[0], ef_draw_below(w->d, count));
    for (unsigned i = 0; i < count && count <= EF_MAX_FIELDS; i++) {
        field[i] = i == index ? want : i < w->siblings ? w->sibling[i] : ef_draw_tensor(w->d, want);
        if (!field[i])
            return EF_NONE;
    }
    if (index >= count || count > EF_MAX_FIELDS)
        return EF_NONE;
    ef_type operand = ef_type_tuple(w->ctx, field, count);
    return with_operands(w, p, EF_GET, index, &operand);
}

/* ---- parallel operators ---- */

static bool drop_axis(walk *w, ef_type_info *x, uint64_t axis)
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

static ef_expr draw_view(walk *w, const ef_pattern_node *p, ef_type want)
{
    const ef_axis *axes;
    ef_axis chosen[2 * EF_MAX_PLACES];
    unsigned count = 0, n;
    uint64_t known;
    bool fixed = slot_known(w, &p->slot[0], &known), all = ef_draw_chance(w->d, 40);
    ef_type operand = want;
    n = ef_axes_at(w->ctx, fixed ? (ef_axes)known : ef_type_axes(w->ctx, want), &axes);
    for (unsigned i = n; i-- > 0;) { /* inner axes first: an outer one can only go when they have gone */
        ef_type less = fixed || all || ef_draw_chance(w->d, 60) ? each_tensor(w, operand, axes[i], drop_axis) : 0;
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
    return with_operands(w, p, EF_VIEW, slot_give(w, &p->slot[0], set), &operand);
}

/* Whether combining `axis` of a value of type `viewed` is a combination: every tensor, or some field, is cut. */
static bool all_cut(walk *w, ef_type viewed, ef_axes set)
{
    return ef_infer(w->ctx, EF_COMBINE, set, &viewed, 1, NULL) != 0;
}

static ef_axes draw_axes(walk *w, ef_type want)
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

static ef_expr draw_combine(walk *w, const ef_pattern_node *p, ef_type want)
{
    uint64_t set;
    if (!slot_known(w, &p->slot[0], &set))
        set = slot_give(w, &p->slot[0], draw_axes(w, want));
    ef_type operand = set ? ef_infer(w->ctx, EF_VIEW, set, &want, 1, NULL) : 0;
    w->seen = ef_axes_union(w->ctx, w->seen, (ef_axes)set);
    return with_operands(w, p, EF_COMBINE, set, &operand);
}

static bool drop_count(walk *w, ef_type_info *x, uint64_t axis)
{
    if (x->rank == 0 || x->dim[x->rank - 1] != ef_dim_count(w->ctx, (ef_axis)axis))
        return false;
    x->dim[--x->rank] = 0;
    return true;
}

static ef_expr draw_collect(walk *w, const ef_pattern_node *p, ef_type want)
{
    uint64_t axis = slot_give(w, &p->slot[0], w->d->counted);
    ef_type operand = axis == EF_NONE ? 0 : each_tensor(w, want, axis, drop_count);
    if (operand)
        operand = each_tensor(w, operand, axis, ef_draw_chance(w->d, 70) ? make_partial : make_replicate);
    return with_operands(w, p, EF_COLLECT, axis, &operand);
}

/* ---- variables and all operators ---- */

static ef_expr draw_variable(walk *w, const ef_pattern_node *p, ef_type want)
{
    if (!p->binds)
        return w->out->var[p->index];
    bool number = !ef_type_at(w->ctx, want)->is_tuple && ef_type_at(w->ctx, want)->dtype != EF_BOOL;
    bool positive = w->positives >> p->index & 1u, literal = positive || (w->literals >> p->index & 1u);
    ef_expr x;
    if (literal || (number && ef_draw_chance(w->d, 6))) {
        double value = ef_draw_number(w->d);
        x = ef_dag_const(w->d->dag, positive && value < 0 ? -value : value);
    } else {
        x = ef_draw_leaf(w->d, want);
    }
    return w->out->var[p->index] = x;
}

static ef_expr draw_node(walk *w, unsigned at, ef_type want)
{
    const ef_pattern_node *p = &w->pattern->node[at];
    if (p->kind == EF_PAT_VAR)
        return draw_variable(w, p, want);
    if (p->kind == EF_PAT_NUMBER)
        return ef_dag_const(w->d->dag, p->number);
    if (p->kind == EF_PAT_ANYOP || ef_op_pointwise(p->op))
        return draw_pointwise(w, p, want);
    switch (p->op) {
    case EF_CONST: return ef_dag_const(w->d->dag, ef_attr_to_number(slot_give(w, &p->slot[0], ef_attr_number(2))));
    case EF_IOTA: return add_node(w, EF_IOTA, slot_give(w, &p->slot[0], ef_type_at(w->ctx, want)->dim[0]), NULL, 0);
    case EF_MATMUL:
    case EF_TILE_MATMUL: return draw_matmul(w, p, want);
    case EF_REDUCE: return draw_reduce(w, p, want);
    case EF_REDUCE_P: return draw_reduce_p(w, p, want);
    case EF_RESHAPE: return draw_reshape(w, p, want);
    case EF_TRANSPOSE: return draw_transpose(w, p, want);
    case EF_SLICE: return draw_slice(w, p, want);
    case EF_CONCAT: return draw_concat(w, p, want);
    case EF_BROADCAST: return draw_broadcast(w, p, want);
    case EF_TUPLE: return draw_tuple(w, p, want);
    case EF_GET: return draw_get(w, p, want);
    case EF_VIEW: return draw_view(w, p, want);
    case EF_COMBINE: return draw_combine(w, p, want);
    case EF_COLLECT: return draw_collect(w, p, want);
    default: return EF_NONE;
    }
}

/* ---- the whole left side ---- */

/* The type of the result: a tuple where the pattern makes one, in one scope. */
static ef_type draw_result(walk *w, unsigned at, ef_type like)
{
    const ef_pattern_node *p = &w->pattern->node[at];
    ef_type field[EF_MAX_FIELDS];
    bool passes = p->kind == EF_PAT_OP &&
                  (p->op == EF_VIEW || p->op == EF_COMBINE || p->op == EF_REDUCE_P || p->op == EF_COLLECT);
    if (passes)
        return draw_result(w, p->child[0], like);
    bool tuple = p->kind == EF_PAT_OP && p->op == EF_TUPLE, any = p->kind == EF_PAT_VAR && !w->d->scalar;
    unsigned fields = tuple ? p->children : any && ef_draw_chance(w->d, 12) ? 2 : 0;
    for (unsigned i = 0; i < fields; i++) {
        field[i] = tuple ? draw_result(w, p->child[i], like) : ef_draw_tensor(w->d, like);
        if (!field[i])
            return 0;
        like = like ? like : field[0];
    }
    return fields ? ef_type_tuple(w->ctx, field, fields) : ef_draw_tensor(w->d, like);
}

static void read_conditions(walk *w, const ef_rule *rule)
{
    for (unsigned i = 0; i < rule->conditions; i++) {
        const ef_condition *c = &rule->condition[i];
        if (c->args == 0 || c->arg[0].kind != EF_ARG_VAR)
            continue;
        w->literals |= (uint32_t)(strcmp(c->name, "literal") == 0) << c->arg[0].index;
        w->positives |= (uint32_t)(strcmp(c->name, "positive") == 0) << c->arg[0].index;
    }
}

static bool draw_left(ef_instance *x)
{
    walk w = {.out = x, .d = &x->draw, .ctx = x->draw.ctx, .pattern = &x->rule->left};
    read_conditions(&w, x->rule);
    x->draw.scalar = strcmp(x->rule->group, "scalar") == 0;
    for (unsigned i = 0; i < w.pattern->count; i++)
        if (w.pattern->node[i].kind == EF_PAT_OP)
            x->draw.uses[w.pattern->node[i].op] = true;
    const ef_type_info none = {0};
    if (x->draw.uses[EF_COLLECT])
        x->draw.counted = ef_draw_axis(&x->draw, &none);
    ef_type want = draw_result(&w, 0, 0);
    x->left = want ? draw_node(&w, 0, want) : EF_NONE;
    return x->left != EF_NONE;
}

/* ---- conditions and the right side ---- */

static bool conditions_hold(ef_instance *x)
{
    const ef_scope scope = {.ctx = x->draw.ctx};
    ef_condition_arg vars[EF_PATTERN_VARS], root = {.type = ef_dag_type(x->draw.dag, x->left), .id = EF_NONE};
    for (unsigned i = 0; i < x->rule->vars; i++) {
        ef_expr e = x->var[i];
        vars[i] = (ef_condition_arg){.type = ef_dag_type(x->draw.dag, e), .id = EF_NONE};
        vars[i].constant = ef_dag_op(x->draw.dag, e) == EF_CONST;
        vars[i].value = vars[i].constant ? ef_attr_to_number(ef_dag_attr(x->draw.dag, e)) : 0;
    }
    for (unsigned i = 0; i < x->rule->conditions; i++)
        if (!x->rule->condition[i].policy && !ef_condition_holds(&scope, &x->rule->condition[i], vars, &root, x->attr))
            return false;
    return true;
}

/* The right side, bottom-up, as ef_rule_apply builds it. */
static ef_expr build_right(ef_instance *x, unsigned at, ef_diag *diag)
{
    const ef_pattern_node *p = &x->rule->right.node[at];
    ef_expr child[EF_PATTERN_CHILDREN];
    if (p->kind == EF_PAT_VAR)
        return x->var[p->index];
    if (p->kind == EF_PAT_NUMBER)
        return ef_dag_const(x->draw.dag, p->number);
    for (unsigned i = 0; i < p->children; i++)
        if ((child[i] = build_right(x, p->child[i], diag)) == EF_NONE)
            return EF_NONE;
    bool any = p->kind == EF_PAT_ANYOP;
    ef_op op = any ? x->op[p->index].op : p->op;
    uint64_t attr = any ? x->op[p->index].attr : ef_pattern_attr(x->draw.ctx, x->rule, p, op, x->attr);
    if ((op == EF_REDUCE || op == EF_REDUCE_P) && ef_attr_reducer(attr) == EF_NONE)
        return EF_NONE;
    if (op == EF_VIEW)
        return ef_dag_view(x->draw.dag, (ef_axes)attr, child[0], diag);
    if (op == EF_COMBINE && attr == 0)
        return child[0];
    return ef_dag_add(x->draw.dag, op, attr, child, p->children, diag);
}

ef_instance_kind ef_instance_draw(ef_instance *x, const ef_rule *rule, uint64_t seed, ef_diag *diag)
{
    *x = (ef_instance){.rule = rule, .left = EF_NONE, .right = EF_NONE};
    ef_draw_start(&x->draw, seed);
    if (!draw_left(x))
        return EF_INSTANCE_NONE;
    if (!conditions_hold(x))
        return EF_INSTANCE_CONDITION;
    x->right = build_right(x, 0, diag);
    if (x->right == EF_NONE || ef_dag_type(x->draw.dag, x->right) != ef_dag_type(x->draw.dag, x->left))
        return rule->same_type ? EF_INSTANCE_TYPE : EF_INSTANCE_ILL_TYPED;
    return x->right == x->left ? EF_INSTANCE_SAME : EF_INSTANCE_APPLIES;
}

void ef_instance_free(ef_instance *x)
{
    ef_draw_stop(&x->draw);
}
