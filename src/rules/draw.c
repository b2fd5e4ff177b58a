/* Random dimensions, types and leaves: see draw.h. */
#include "rules/draw.h"

#include <stdio.h>
#include <string.h>

#define VOLUME_LIMIT 400u /* elements of a drawn tensor: evaluation must stay cheap */

/* ---- the world ---- */

uint32_t ef_draw_below(ef_draw *d, uint32_t bound)
{
    return ef_rng_below(&d->rng, bound);
}

bool ef_draw_chance(ef_draw *d, uint32_t percent)
{
    return ef_draw_below(d, 100) < percent;
}

void ef_draw_start(ef_draw *d, uint64_t seed)
{
    static const uint8_t extents[] = {2, 2, 2, 3, 3, 3, 4, 4, 5, 5, 6, 7, 8, 9}; /* small ones more often */
    *d = (ef_draw){.ctx = ef_ctx_new(), .rng = {seed}, .counted = EF_NONE};
    d->dag = ef_dag_new(d->ctx);
    for (unsigned i = 0; i < EF_DRAW_VARS; i++)
        d->pool[i] = ef_var_named(d->ctx, &"mknhd"[i], 1, extents[ef_draw_below(d, sizeof extents)], NULL);
}

void ef_draw_stop(ef_draw *d)
{
    ef_dag_free(d->dag);
    ef_ctx_free(d->ctx);
}

double ef_draw_number(ef_draw *d)
{
    static const double numbers[] = {0.5, 2, -1.5, 3, 1, -1, 0.25, 4};
    double number = numbers[ef_draw_below(d, sizeof numbers / sizeof *numbers)];
    return d->scalar && number < 0 ? -number : number;
}

/* ---- dimensions ---- */

bool ef_draw_in_scope(const ef_draw *d, const ef_type_info *type, ef_dim dim)
{
    const ef_var *atoms;
    for (unsigned i = 0, n = ef_dim_atoms(d->ctx, dim, &atoms); i < n; i++)
        if (ef_type_place(type, ef_axis_of(atoms[i], 0)) || ef_type_place(type, ef_axis_of(atoms[i], 1)))
            return true;
    return false;
}

static ef_dim named_dim(ef_draw *d)
{
    return ef_dim_of_var(d->ctx, d->pool[ef_draw_below(d, EF_DRAW_VARS)]);
}

static ef_dim sliced_dim(ef_draw *d)
{
    ef_dim whole = named_dim(d);
    uint32_t extent = (uint32_t)ef_dim_extent(d->ctx, whole), start = ef_draw_below(d, extent);
    return ef_dim_slice(d->ctx, whole, start, start + 1 + ef_draw_below(d, extent - start));
}

static ef_dim concatenated_dim(ef_draw *d)
{
    ef_dim parts[3] = {named_dim(d), ef_draw_chance(d, 20) ? EF_UNIT : named_dim(d), named_dim(d)};
    return ef_dim_concat(d->ctx, parts, 2 + ef_draw_below(d, 2));
}

static ef_dim merged_dim(ef_draw *d)
{
    unsigned first = ef_draw_below(d, EF_DRAW_VARS), step = 1 + ef_draw_below(d, EF_DRAW_VARS - 1);
    ef_var both[] = {d->pool[first], d->pool[(first + step) % EF_DRAW_VARS]};
    return ef_dim_product(d->ctx, both, 2);
}

static ef_dim any_dim(ef_draw *d)
{
    uint32_t choice = ef_draw_below(d, 100);
    if (choice < 22)
        return EF_UNIT;
    if (choice < 32)
        return merged_dim(d);
    if (choice < (d->uses[EF_SLICE] ? 50u : 35u))
        return sliced_dim(d);
    if (choice < (d->uses[EF_CONCAT] ? 70u : 38u))
        return concatenated_dim(d);
    return named_dim(d);
}

static bool shares_variable(const ef_draw *d, const ef_type_info *type, ef_dim dim)
{
    const ef_var *a, *b;
    for (unsigned i = 0, n = ef_dim_atoms(d->ctx, dim, &a); i < n; i++)
        for (unsigned r = 0; r < type->rank; r++)
            for (unsigned j = 0, m = ef_dim_atoms(d->ctx, type->dim[r], &b); j < m; j++)
                if (a[i] == b[j])
                    return true;
    return false;
}

ef_dim ef_draw_dim(ef_draw *d, const ef_type_info *type)
{
    for (unsigned tries = 0; tries < 8; tries++) {
        ef_dim dim = any_dim(d);
        /* a variable twice in one shape is legal but cannot be cut: rare */
        if (!ef_draw_in_scope(d, type, dim) && (!shares_variable(d, type, dim) || ef_draw_chance(d, 8)))
            return dim;
    }
    return EF_UNIT;
}

static uint64_t volume(const ef_draw *d, const ef_type_info *type)
{
    uint64_t product = 1;
    for (unsigned i = 0; i < type->rank; i++) {
        uint64_t extent = ef_dim_extent(d->ctx, type->dim[i]);
        product *= extent ? extent : 4; /* symbolic: a collection's */
    }
    return product;
}

/* ---- parallel states ---- */

static void insert_place(ef_type_info *type, ef_place place)
{
    unsigned at = type->places++;
    for (; at > 0 && type->place[at - 1].axis > place.axis; at--)
        type->place[at] = type->place[at - 1];
    type->place[at] = place;
}

bool ef_draw_place(ef_draw *d, ef_type_info *type, ef_axis axis, ef_kind absent)
{
    ef_place place;
    if (type->places >= 6 || ef_type_place(type, axis) || !ef_type_cut(d->ctx, type, axis, &place))
        return false;
    if (place.kind == EF_REPLICATE)
        place.kind = (uint16_t)absent;
    /* Both levels of a variable mostly have one state; a loop may also replicate what the split made partial. */
    const ef_place *other = ef_type_place(type, ef_axis_of(ef_axis_var(axis), 1 - ef_axis_level(axis)));
    if (other && place.kind != EF_PARTITION) {
        bool loop = ef_axis_level(axis) == 1 && other->kind == EF_PARTIAL && ef_draw_chance(d, 20);
        place.kind = loop ? EF_REPLICATE : other->kind;
    }
    insert_place(type, place);
    return true;
}

ef_axis ef_draw_axis(ef_draw *d, const ef_type_info *type)
{
    const ef_var *atoms;
    ef_var var = d->pool[ef_draw_below(d, EF_DRAW_VARS)];
    if (type->rank && ef_draw_chance(d, 60)) {
        ef_dim dim = type->dim[ef_draw_below(d, type->rank)];
        if (ef_dim_atoms(d->ctx, dim, &atoms) && !ef_dim_is_count(d->ctx, dim))
            var = atoms[0];
    }
    return ef_axis_of(var, ef_draw_chance(d, 40));
}

/* The axes of another type, in the same order, so that both stand in one scope. */
static bool place_like(ef_draw *d, ef_type_info *type, ef_type like)
{
    const ef_axis *axes;
    unsigned n = ef_axes_at(d->ctx, ef_type_axes(d->ctx, like), &axes);
    ef_axis copy[2 * EF_MAX_PLACES];
    memcpy(copy, axes, n * sizeof *axes);
    for (unsigned i = 0; i < n; i++)
        if (!ef_draw_place(d, type, copy[i], ef_draw_chance(d, 50) ? EF_PARTIAL : EF_REPLICATE))
            return false;
    return true;
}

static void place_some(ef_draw *d, ef_type_info *type)
{
    bool views = d->uses[EF_VIEW];
    unsigned count = views ? 1 + ef_draw_below(d, 3) : ef_draw_chance(d, 45) ? 0 : 1 + ef_draw_below(d, 3);
    for (unsigned i = 0; i < count; i++) {
        ef_axis axis = ef_draw_axis(d, type);
        if (type->places && ef_draw_chance(d, 30)) { /* a loop inside a split: only there are tiles empty */
            axis = type->place[ef_draw_below(d, type->places)].axis;
            axis = ef_axis_of(ef_axis_var(axis), 1 - ef_axis_level(axis));
        }
        ef_draw_place(d, type, axis, ef_draw_chance(d, views ? 25 : 45) ? EF_PARTIAL : EF_REPLICATE);
    }
}

/* ---- types ---- */

static ef_dtype any_dtype(ef_draw *d)
{
    static const ef_dtype dtypes[] = {EF_F32, EF_F32, EF_F32,  EF_F32, EF_F32, EF_F32, EF_F32,  EF_F32,
                                      EF_F16, EF_F16, EF_BF16, EF_F64, EF_I32, EF_I64, EF_BOOL, EF_BOOL};
    return dtypes[ef_draw_below(d, sizeof dtypes / sizeof *dtypes)];
}

/* The shape of `like`'s first tensor, some of its dimensions broadcast. */
static void shape_like(ef_draw *d, ef_type_info *type, ef_type like)
{
    const ef_type_info *other = ef_type_at(d->ctx, like);
    while (other->is_tuple)
        other = ef_type_at(d->ctx, other->field[0]);
    type->rank = other->rank;
    bool same = ef_draw_chance(d, 50);
    for (unsigned i = 0; i < other->rank; i++)
        type->dim[i] = same || ef_draw_chance(d, 60) ? other->dim[i] : EF_UNIT;
}

static void any_shape(ef_draw *d, ef_type_info *type)
{
    static const uint8_t ranks[] = {0, 1, 1, 2, 2, 2, 2, 2, 3, 3, 3, 3, 4, 4, 5};
    unsigned rank = ranks[ef_draw_below(d, sizeof ranks)];
    while (type->rank < rank) {
        /* a square now and then: what confuses rows with columns is well-typed there */
        bool square = type->rank && ef_draw_chance(d, 12);
        type->dim[type->rank] = square ? type->dim[type->rank - 1] : ef_draw_dim(d, type);
        type->rank++;
        if (volume(d, type) > VOLUME_LIMIT)
            type->dim[type->rank - 1] = EF_UNIT;
    }
}

ef_type ef_draw_tensor(ef_draw *d, ef_type like)
{
    ef_type_info type = {0};
    if (d->scalar)
        return ef_type_tensor(d->ctx, EF_NUM, NULL, 0);
    type.dtype = (uint8_t)any_dtype(d);
    if (like && ef_draw_chance(d, 70)) {
        shape_like(d, &type, like);
    } else {
        any_shape(d, &type);
        if (d->counted != EF_NONE)
            type.dim[type.rank++] = ef_dim_count(d->ctx, d->counted);
    }
    if (!like)
        place_some(d, &type);
    else if (!place_like(d, &type, like))
        return 0;
    return ef_type_intern(d->ctx, &type);
}

/* ---- reducers ---- */

/* How a consumer's leaf is repaired, by its reducer: anything will do here, rules hold for every reducer. */
static ef_scalar repair_term(ef_draw *d, ef_reducer leaf)
{
    ef_scalar c = ef_scalar_param(d->ctx, EF_PARAM_C, 0), s = ef_scalar_param(d->ctx, EF_PARAM_S, 0);
    ef_scalar t = ef_scalar_param(d->ctx, EF_PARAM_T, 0);
    ef_scalar change = ef_scalar_apply(d->ctx, EF_SUB, (ef_scalar[]){s, t});
    if (leaf == EF_RED_MAX || leaf == EF_RED_MIN)
        return ef_scalar_apply(d->ctx, EF_ADD, (ef_scalar[]){c, change});
    if (leaf == EF_RED_PROD)
        return c;
    return ef_scalar_apply(d->ctx, EF_MUL, (ef_scalar[]){c, ef_scalar_apply(d->ctx, EF_EXP, &change)});
}

static ef_reducer repaired(ef_draw *d, ef_reducer left, ef_reducer right)
{
    ef_reducer leaf[EF_MAX_LEAVES];
    ef_scalar h[EF_MAX_LEAVES];
    for (unsigned i = 0, n = ef_reducer_leaves(d->ctx, right, leaf); i < n; i++)
        h[i] = repair_term(d, leaf[i]);
    return ef_reducer_repaired(d->ctx, left, right, h);
}

ef_reducer ef_draw_reducer(ef_draw *d, ef_type operand)
{
    const ef_type_info *info = ef_type_at(d->ctx, operand);
    if (!info->is_tuple)
        return ef_draw_chance(d, 40) ? EF_RED_SUM : ef_draw_below(d, 4);
    if (info->fields != 2)
        return EF_NONE;
    ef_type fields[] = {info->field[0], info->field[1]};
    ef_reducer left = ef_draw_reducer(d, fields[0]), right = ef_draw_reducer(d, fields[1]);
    if (left == EF_NONE || right == EF_NONE)
        return EF_NONE;
    if (ef_draw_chance(d, 35)) {
        ef_reducer max_first = ef_type_at(d->ctx, fields[0])->is_tuple ? left : EF_RED_MAX;
        ef_reducer r = repaired(d, max_first, right);
        if (r != EF_NONE && ef_reducer_fits(d->ctx, r, operand))
            return r;
    }
    return ef_reducer_product(d->ctx, left, right);
}

/* ---- leaves ---- */

static ef_expr input(ef_draw *d, const ef_type_info *type)
{
    char name[16];
    int length = snprintf(name, sizeof name, "x%u", d->inputs++);
    /* how many tiles an inner axis has is known where it is collected, not at an input */
    for (unsigned i = 0; i < type->rank; i++) {
        const ef_var *atoms;
        if (ef_dim_is_count(d->ctx, type->dim[i]) && ef_dim_atoms(d->ctx, type->dim[i], &atoms) &&
            ef_axis_level(ef_var_at(d->ctx, atoms[0])->axis) > 0)
            return EF_NONE;
    }
    return ef_dag_input(d->dag, ef_input_declare(d->ctx, name, (unsigned)length, ef_type_intern(d->ctx, type), NULL));
}

static ef_expr add_node(ef_draw *d, ef_op op, uint64_t attr, const ef_expr *x, unsigned count)
{
    for (unsigned i = 0; i < count; i++)
        if (x[i] == EF_NONE)
            return EF_NONE;
    return ef_dag_add_exact(d->dag, op, attr, x, count, NULL);
}

static ef_expr view(ef_draw *d, const ef_axis *axes, unsigned count, ef_expr x)
{
    return count && x != EF_NONE ? add_node(d, EF_VIEW, ef_axes_intern(d->ctx, axes, count), &x, 1) : x;
}

/* A value without partial states: an input, viewed. */
static ef_expr viewed(ef_draw *d, const ef_type_info *want)
{
    ef_type_info base = *want;
    ef_axis axes[EF_MAX_PLACES];
    for (unsigned i = 0; i < want->places; i++)
        axes[i] = want->place[i].axis;
    memset(base.place, 0, sizeof base.place);
    base.places = 0;
    return view(d, axes, want->places, input(d, &base));
}

static bool partial_var(const ef_type_info *want, ef_var var)
{
    for (unsigned i = 0; i < want->places; i++)
        if (want->place[i].kind == EF_PARTIAL && ef_axis_var(want->place[i].axis) == var)
            return true;
    return false;
}

/* Puts the variable of every partial axis in front of the shape, once; returns how many, or EF_MAX_RANK + 1. */
static unsigned add_summed_dims(ef_draw *d, ef_type_info *base, const ef_type_info *want)
{
    unsigned added = 0;
    for (unsigned i = 0; i < want->places; i++) {
        ef_dim dim = ef_dim_of_var(d->ctx, ef_axis_var(want->place[i].axis));
        bool seen = want->place[i].kind != EF_PARTIAL;
        for (unsigned k = 0; k < added; k++)
            seen = seen || base->dim[want->rank + k] == dim;
        if (seen)
            continue;
        if (base->rank == EF_MAX_RANK)
            return EF_MAX_RANK + 1;
        base->dim[base->rank++] = dim;
        added++;
    }
    return added;
}

static ef_dims dims_of(ef_draw *d, const ef_type_info *type)
{
    ef_dim dims[EF_MAX_RANK];
    for (unsigned i = 0; i < type->rank; i++)
        dims[i] = type->dim[type->rank - 1 - i];
    return ef_dims_intern(d->ctx, dims, type->rank);
}

/* A value with partial states: sums over viewed leading dimensions. Loop axes that only replicate come after. */
static ef_expr summed(ef_draw *d, const ef_type_info *want)
{
    ef_type_info base = *want;
    ef_axis first[EF_MAX_PLACES], later[EF_MAX_PLACES];
    unsigned nf = 0, nl = 0, added;
    for (unsigned i = 0; i < want->places; i++) {
        ef_axis axis = want->place[i].axis;
        if (want->place[i].kind == EF_REPLICATE && partial_var(want, ef_axis_var(axis)))
            later[nl++] = axis;
        else
            first[nf++] = axis;
    }
    memset(base.place, 0, sizeof base.place);
    base.places = 0;
    if ((added = add_summed_dims(d, &base, want)) > EF_MAX_RANK)
        return EF_NONE;
    ef_expr x = view(d, first, nf, input(d, &base));
    for (unsigned i = 0; i < added; i++)
        x = add_node(d, EF_REDUCE, ef_attr_reduce(EF_RED_SUM, want->rank + i), &x, 1);
    if (added)
        x = add_node(d, EF_RESHAPE, dims_of(d, want), &x, 1);
    return view(d, later, nl, x);
}

/* The same scope as `want`, but the states of a value that is there whole at every coordinate. */
static ef_type_info untouched(const ef_type_info *want)
{
    ef_type_info type = *want;
    for (unsigned i = 0; i < type.places; i++)
        if (type.place[i].kind == EF_PARTIAL)
            type.place[i].kind = EF_REPLICATE;
    return type;
}

/* The same scope as `want` for a scalar that differs from tile to tile. */
static ef_type_info tile_scalar(const ef_type_info *want)
{
    ef_type_info type = *want;
    memset(type.dim, 0, sizeof type.dim);
    type.rank = 0;
    for (unsigned i = 0; i < type.places; i++)
        if (type.place[i].kind == EF_PARTITION)
            type.place[i] = (ef_place){type.place[i].axis, EF_PARTIAL, 0};
    return type;
}

static bool has_kind(const ef_type_info *type, ef_kind kind)
{
    for (unsigned i = 0; i < type->places; i++)
        if (type->place[i].kind == kind)
            return true;
    return false;
}

static ef_expr tensor_leaf(ef_draw *d, const ef_type_info *want)
{
    ef_type_info real = *want;
    bool partial = has_kind(want, EF_PARTIAL);
    if (!partial && (!has_kind(want, EF_PARTITION) || want->dtype == EF_BOOL || !ef_draw_chance(d, 15)))
        return viewed(d, want);
    if (want->dtype == EF_BOOL)
        real.dtype = EF_F32;
    ef_type_info other = partial ? untouched(&real) : tile_scalar(&real);
    ef_expr x = partial ? summed(d, &real) : viewed(d, &real);
    /* sums over empty tiles are 0: keep away from it where it may be divided by */
    if (!partial || d->uses[EF_DIV] || ef_draw_chance(d, 80))
        x = add_node(d, EF_ADD, 0, (ef_expr[]){x, partial ? viewed(d, &other) : summed(d, &other)}, 2);
    if (want->dtype == EF_BOOL)
        x = add_node(d, EF_GT, 0, (ef_expr[]){x, ef_dag_const(d->dag, 0)}, 2);
    return x;
}

ef_expr ef_draw_leaf(ef_draw *d, ef_type type)
{
    ef_type_info want = *ef_type_at(d->ctx, type);
    ef_expr x, field[EF_MAX_FIELDS];
    if (want.is_tuple) {
        for (unsigned i = 0; i < want.fields; i++)
            if ((field[i] = ef_draw_leaf(d, want.field[i])) == EF_NONE)
                return EF_NONE;
        x = add_node(d, EF_TUPLE, 0, field, want.fields);
    } else {
        x = tensor_leaf(d, &want);
    }
    return x != EF_NONE && ef_dag_type(d->dag, x) == type ? x : EF_NONE;
}
