/* Type inference: the typing rules of all operators (paper, section 3; design, section 3, "Typing").
 *
 * One function per family. Each returns the type of the result, or 0 after writing a message. Two points go beyond the
 * paper's table, because a tile program needs them: a pointwise or tile operator may mix PARTIAL operands with others
 * (the value is then local to the coordinate; it is PARTITION where some operand is, else PARTIAL), and literals may
 * stand in any parallel scope. */
#include <inttypes.h>
#include <string.h>

#include "ir/context.h"
#include "ir/expr.h"

static ef_type fail(ef_diag *diag, const char *message)
{
    ef_fail(diag, "%s", message);
    return 0;
}

/* A failure that shows types. */
static ef_type fail_types(ef_ctx *ctx, ef_diag *diag, const char *message, ef_type a, ef_type b)
{
    if (!diag || diag->failed)
        return 0;
    ef_strbuf text = {0};
    ef_type_print(ctx, a, &text);
    if (b) {
        ef_strbuf_puts(&text, " and ");
        ef_type_print(ctx, b, &text);
    }
    ef_fail(diag, "%s: %.300s", message, text.text);
    ef_strbuf_free(&text);
    return 0;
}

/* ---- pointwise ---- */

/* Merges the shape of an operand into `out` by NumPy broadcasting. */
static bool merge_shape(ef_type_info *out, const ef_type_info *in)
{
    for (unsigned i = 0; i < in->rank; i++) {
        if (i >= out->rank || out->dim[i] == EF_UNIT)
            out->dim[i] = in->dim[i];
        else if (in->dim[i] != EF_UNIT && in->dim[i] != out->dim[i])
            return false;
    }
    if (in->rank > out->rank)
        out->rank = in->rank;
    return true;
}

/* Whether an operand placed at `q` may meet a result that is PARTITION(dim): it is cut the same way or broadcasts. */
static bool meets_partition(const ef_type_info *in, const ef_place *q, unsigned dim)
{
    if (q->kind == EF_PARTITION)
        return q->dim == dim;
    return dim >= in->rank || in->dim[dim] == EF_UNIT;
}

/* The place of one axis in the result of a pointwise operator over `count` operands (literals left out). */
static bool pointwise_place(ef_ctx *ctx, const ef_type *operands, unsigned count, unsigned at, ef_place *out)
{
    *out = (ef_place){ef_type_at(ctx, operands[0])->place[at].axis, EF_REPLICATE, 0};
    for (unsigned i = 0; i < count; i++) {
        const ef_place *p = &ef_type_at(ctx, operands[i])->place[at];
        if (p->axis != out->axis)
            return false;
        if (p->kind == EF_PARTITION)
            *out = *p;
        else if (p->kind == EF_PARTIAL && out->kind == EF_REPLICATE)
            out->kind = EF_PARTIAL;
    }
    for (unsigned i = 0; out->kind == EF_PARTITION && i < count; i++) {
        const ef_type_info *in = ef_type_at(ctx, operands[i]);
        if (!meets_partition(in, &in->place[at], out->dim))
            return false;
    }
    return true;
}

ef_dtype ef_pointwise_dtype(ef_op op, uint64_t attr, const ef_dtype *operands, unsigned count)
{
    ef_dtype join = EF_BOOL;
    for (unsigned i = op == EF_SELECT ? 1 : 0; i < count; i++)
        join = ef_dtype_join(join, operands[i]);
    switch (op) {
    case EF_LT:
    case EF_LE:
    case EF_GT:
    case EF_GE:
    case EF_EQ:
    case EF_NE:
    case EF_AND:
    case EF_OR:
    case EF_NOT: return EF_BOOL;
    case EF_CAST: return (ef_dtype)attr;
    case EF_DIV:
    case EF_EXP:
    case EF_EXP2:
    case EF_LOG:
    case EF_LOG2:
    case EF_SQRT:
    case EF_RSQRT:
    case EF_RECIP:
    case EF_TANH:
    case EF_SIGMOID:
    case EF_ERF:
    case EF_SIN:
    case EF_COS:
    case EF_POW: return join == EF_I32 || join == EF_I64 ? EF_F32 : join; /* real-valued even on integers */
    default: return join;
    }
}

/* Logic wants booleans, arithmetic wants numbers. */
static bool pointwise_operands_ok(ef_ctx *ctx, ef_op op, const ef_type *children, unsigned count, ef_diag *diag)
{
    for (unsigned i = 0; i < count; i++) {
        bool is_bool = ef_type_at(ctx, children[i])->dtype == EF_BOOL;
        bool logic = op == EF_AND || op == EF_OR || op == EF_NOT || (op == EF_SELECT && i == 0);
        bool either = op == EF_CAST || op == EF_SELECT || op == EF_EQ || op == EF_NE;
        if (logic && !is_bool)
            return ef_fail(diag, "%s wants a bool operand here: compare with 0 first", ef_ops[op].name);
        if (!logic && !either && is_bool)
            return ef_fail(diag, "%s wants a number, not a bool: cast first", ef_ops[op].name);
    }
    return true;
}

static ef_type infer_pointwise(ef_ctx *ctx, ef_op op, uint64_t attr, const ef_type *children, unsigned count,
                               ef_diag *diag)
{
    ef_type_info out = {0};
    ef_type scoped[3];
    ef_dtype dtype[3];
    unsigned n = 0;
    for (unsigned i = 0; i < count; i++)
        if (ef_type_at(ctx, children[i])->is_tuple)
            return fail(diag, "a pointwise operator wants tensors, not tuples: use get");
    if (!pointwise_operands_ok(ctx, op, children, count, diag))
        return 0;
    for (unsigned i = 0; i < count; i++) {
        if (!merge_shape(&out, ef_type_at(ctx, children[i])))
            return fail_types(ctx, diag, "operands' dimensions do not broadcast", children[0], children[i]);
        dtype[i] = (ef_dtype)ef_type_at(ctx, children[i])->dtype;
        if (!ef_type_is_literal(ctx, children[i]))
            scoped[n++] = children[i];
    }
    out.dtype = (uint8_t)ef_pointwise_dtype(op, attr, dtype, count);
    out.places = n ? ef_type_at(ctx, scoped[0])->places : 0;
    for (unsigned i = 1; i < n; i++)
        if (ef_type_at(ctx, scoped[i])->places != out.places)
            return fail_types(ctx, diag, "operands are not in the same parallel scope", scoped[0], scoped[i]);
    for (unsigned at = 0; at < out.places; at++)
        if (!pointwise_place(ctx, scoped, n, at, &out.place[at]))
            return fail_types(ctx, diag, "operands' parallel states do not match", scoped[0], scoped[n - 1]);
    return ef_type_intern(ctx, &out);
}

/* ---- matmul ---- */

static bool matmul_place(const ef_type_info *a, const ef_type_info *b, const ef_place *p, const ef_place *q,
                         ef_place *out)
{
    *out = (ef_place){p->axis, EF_REPLICATE, 0};
    if (p->axis != q->axis)
        return false;
    bool pa = p->kind == EF_PARTITION, pb = q->kind == EF_PARTITION;
    if (!pa && !pb) {
        out->kind = p->kind == EF_PARTIAL || q->kind == EF_PARTIAL ? EF_PARTIAL : EF_REPLICATE;
        return true;
    }
    if ((pa && p->dim == 0) || (pb && q->dim == 1)) { /* K: both sides, or the tiles do not fit */
        out->kind = EF_PARTIAL;
        return pa && pb && p->dim == 0 && q->dim == 1;
    }
    out->kind = EF_PARTITION;
    out->dim = pa ? p->dim : q->dim;
    if (out->dim >= 2)
        return meets_partition(a, p, out->dim) && meets_partition(b, q, out->dim);
    return !(pa && pb);
}

static ef_type infer_matmul(ef_ctx *ctx, const ef_type *children, ef_diag *diag)
{
    const ef_type_info *a = ef_type_at(ctx, children[0]), *b = ef_type_at(ctx, children[1]);
    if (a->is_tuple || b->is_tuple || a->rank < 2 || b->rank < 2)
        return fail_types(ctx, diag, "matmul wants two tensors of rank 2 or more", children[0], children[1]);
    if (a->dtype == EF_BOOL || b->dtype == EF_BOOL)
        return fail(diag, "matmul wants numbers, not bools: cast first");
    if (a->dim[0] != b->dim[1])
        return fail_types(ctx, diag, "matmul's inner dimensions differ", children[0], children[1]);
    if (a->places != b->places)
        return fail_types(ctx, diag, "matmul's operands are not in the same parallel scope", children[0], children[1]);
    ef_type_info out = *a, batch = *b;
    out.dim[0] = batch.dim[0] = out.dim[1] = batch.dim[1] = EF_UNIT;
    if (!merge_shape(&out, &batch))
        return fail_types(ctx, diag, "matmul's batch dimensions do not broadcast", children[0], children[1]);
    out.dim[1] = a->dim[1];
    out.dim[0] = b->dim[0];
    out.dtype = (uint8_t)ef_dtype_join((ef_dtype)a->dtype, (ef_dtype)b->dtype);
    for (unsigned i = 0; i < a->places; i++)
        if (!matmul_place(a, b, &a->place[i], &b->place[i], &out.place[i]))
            return fail_types(ctx, diag, "matmul's operands' parallel states do not match", children[0], children[1]);
    return ef_type_intern(ctx, &out);
}

/* ---- reductions ---- */

/* A dimension is gone: what was cut along it now holds contributions. */
static void cut_to_partial(ef_type_info *out, unsigned index)
{
    for (unsigned i = 0; i < out->places; i++)
        if (out->place[i].kind == EF_PARTITION && out->place[i].dim == index)
            out->place[i] = (ef_place){out->place[i].axis, EF_PARTIAL, 0};
}

static ef_type reduce_one(ef_ctx *ctx, ef_type operand, uint32_t index, ef_diag *diag)
{
    ef_type_info out = *ef_type_at(ctx, operand);
    if (index == EF_FIRST) {
        if (out.rank == 0 || !ef_dim_is_count(ctx, out.dim[out.rank - 1]))
            return fail_types(ctx, diag, "reduce[.., first] wants what a collection made", operand, 0);
        out.dim[--out.rank] = 0;
        cut_to_partial(&out, out.rank);
        return ef_type_intern(ctx, &out);
    }
    if (index >= out.rank)
        return fail_types(ctx, diag, "reduce: no such dimension", operand, 0);
    if (out.dtype == EF_BOOL)
        return fail(diag, "reduce wants numbers, not bools: cast first");
    if (ef_dim_is_count(ctx, out.dim[index]))
        return fail(diag, "a collected dimension is reduced by reduce[.., first]");
    out.dim[index] = EF_UNIT;
    cut_to_partial(&out, index);
    return ef_type_intern(ctx, &out);
}

static ef_type map_fields(ef_ctx *ctx, ef_type type, uint64_t arg, ef_diag *diag,
                          ef_type (*f)(ef_ctx *, ef_type, uint64_t, ef_diag *))
{
    const ef_type_info *info = ef_type_at(ctx, type);
    if (!info->is_tuple)
        return f(ctx, type, arg, diag);
    ef_type field[EF_MAX_FIELDS];
    for (unsigned i = 0; i < info->fields; i++)
        if (!(field[i] = map_fields(ctx, info->field[i], arg, diag, f)))
            return 0;
    return ef_type_tuple(ctx, field, info->fields);
}

static ef_type reduce_first(ef_ctx *ctx, ef_type type, uint64_t arg, ef_diag *diag)
{
    return reduce_one(ctx, type, (uint32_t)arg, diag);
}

static ef_type infer_reduce(ef_ctx *ctx, uint64_t attr, ef_type operand, ef_diag *diag)
{
    uint32_t index = ef_attr_reduce_at(attr);
    bool tuple = ef_type_at(ctx, operand)->is_tuple;
    if (index != EF_FIRST && (tuple || ef_reducer_at(ctx, ef_attr_reducer(attr))->leaves != 1))
        return fail(diag, "reduce along a dimension wants a tensor and a base reducer (sum, max, min, prod)");
    if (!ef_reducer_fits(ctx, ef_attr_reducer(attr), operand))
        return fail_types(ctx, diag, "the reducer's state does not fit the operand", operand, 0);
    return map_fields(ctx, operand, index, diag, reduce_first);
}

static ef_type drop_partial(ef_ctx *ctx, ef_type type, uint64_t axis, ef_diag *diag)
{
    ef_type_info out = *ef_type_at(ctx, type);
    const ef_place *p = ef_type_place(&out, (ef_axis)axis);
    if (!p || p->kind != EF_PARTIAL)
        return fail_types(ctx, diag, "a parallel reduction wants an operand that is partial over its axis", type, 0);
    if (ef_axis_level((ef_axis)axis) == 0 && ef_type_place(&out, ef_axis_of(ef_axis_var((ef_axis)axis), 1)))
        return fail_types(ctx, diag, "reduction over an outer axis while the inner one is in scope", type, 0);
    unsigned at = (unsigned)(p - out.place);
    memmove(out.place + at, out.place + at + 1, (out.places - at - 1u) * sizeof *out.place);
    out.place[--out.places] = (ef_place){0};
    return ef_type_intern(ctx, &out);
}

static ef_type infer_reduce_p(ef_ctx *ctx, uint64_t attr, ef_type operand, ef_diag *diag)
{
    if (!ef_reducer_fits(ctx, ef_attr_reducer(attr), operand))
        return fail_types(ctx, diag, "the reducer's state does not fit the operand", operand, 0);
    return map_fields(ctx, operand, ef_attr_reduce_at(attr), diag, drop_partial);
}

/* ---- shapes ---- */

/* The variables of a shape, outermost first, with the unit dimensions gone. */
static unsigned flatten(ef_ctx *ctx, const ef_dim *outermost_first, unsigned rank, ef_var *flat)
{
    unsigned n = 0;
    for (unsigned i = 0; i < rank; i++) {
        const ef_var *atoms;
        unsigned count = ef_dim_atoms(ctx, outermost_first[i], &atoms);
        for (unsigned a = 0; a < count; a++)
            flat[n++] = atoms[a];
    }
    return n;
}

/* Re-places the partitions of a reshaped tensor: each axis cuts the dimension that now begins with its variable. */
static bool reshape_places(ef_ctx *ctx, ef_type_info *out)
{
    for (unsigned i = 0; i < out->places; i++) {
        ef_place place;
        if (out->place[i].kind != EF_PARTITION)
            continue;
        if (!ef_type_cut(ctx, out, out->place[i].axis, &place) || place.kind != EF_PARTITION)
            return false;
        out->place[i] = place;
    }
    return true;
}

/* Whether some axis in scope is of this variable. */
static bool in_scope(const ef_type_info *info, ef_var var)
{
    return ef_type_place(info, ef_axis_of(var, 0)) || ef_type_place(info, ef_axis_of(var, 1));
}

/* Whether tiles may be reshaped from the variables a to b: read from the outermost on, both fall into parts of equally
 * many elements, and a variable that an axis in scope cuts is a part of its own on both sides. What stands in the other
 * parts is whole, and may be split, joined and renamed. */
static bool reshape_keeps_cuts(const ef_ctx *ctx, const ef_type_info *in, const ef_var *a, unsigned na, const ef_var *b,
                               unsigned nb)
{
    for (unsigned i = 0, j = 0; i < na || j < nb;) {
        uint64_t pa = 1, pb = 1;
        unsigned from_a = i, from_b = j;
        do {
            bool take_a = pa <= pb && i < na;
            if (!take_a && j == nb)
                return false;
            *(take_a ? &pa : &pb) *= ef_var_at(ctx, take_a ? a[i++] : b[j++])->extent;
        } while (pa != pb);
        bool same = i - from_a == 1 && j - from_b == 1 && a[from_a] == b[from_b];
        for (unsigned k = from_a; k < i && !same; k++)
            if (in_scope(in, a[k]))
                return false;
        for (unsigned k = from_b; k < j && !same; k++)
            if (in_scope(in, b[k]))
                return false;
    }
    return true;
}

/* The number of elements, or UINT64_MAX when no tensor may have so many. */
static uint64_t elements(const ef_ctx *ctx, const ef_dim *dims, unsigned rank)
{
    uint64_t product = 1;
    for (unsigned i = 0; i < rank; i++) {
        uint64_t extent = ef_dim_extent(ctx, dims[i]);
        if (extent && product > EF_MAX_EXTENT / extent)
            return UINT64_MAX;
        product *= extent;
    }
    return product;
}

static ef_type infer_reshape(ef_ctx *ctx, ef_dims list, ef_type operand, ef_diag *diag)
{
    ef_type_info out = *ef_type_at(ctx, operand);
    const ef_dim *dims;
    ef_dim old[EF_MAX_RANK];
    ef_var a[EF_MAX_RANK * EF_MAX_ATOMS], b[EF_MAX_RANK * EF_MAX_ATOMS];
    unsigned rank = ef_dims_at(ctx, list, &dims);
    if (rank > EF_MAX_RANK)
        return fail(diag, "reshape: too many dimensions");
    for (unsigned i = 0; i < out.rank; i++)
        old[i] = out.dim[out.rank - 1 - i];
    uint64_t before = elements(ctx, old, out.rank), after = elements(ctx, dims, rank);
    if (before == UINT64_MAX || after == UINT64_MAX)
        return fail_types(ctx, diag, "reshape of a tensor that is too large", operand, 0);
    unsigned na = flatten(ctx, old, out.rank, a), nb = flatten(ctx, dims, rank, b);
    bool regroups = na == nb && memcmp(a, b, na * sizeof *a) == 0;
    if (before != after)
        return fail_types(ctx, diag, "reshape changes the number of elements", operand, 0);
    if (!regroups && (before == 0 || !reshape_keeps_cuts(ctx, &out, a, na, b, nb)))
        return fail_types(ctx, diag, "reshape of a tile must leave alone the dimension variables that are cut", operand,
                          0);
    memset(out.dim, 0, sizeof out.dim);
    out.rank = (uint8_t)rank;
    for (unsigned i = 0; i < rank; i++)
        out.dim[i] = dims[rank - 1 - i];
    if (!reshape_places(ctx, &out))
        return fail_types(ctx, diag, "reshape would hide a cut dimension", operand, 0);
    return ef_type_intern(ctx, &out);
}

static ef_type infer_transpose(ef_ctx *ctx, uint64_t perm, ef_type operand, ef_diag *diag)
{
    const ef_type_info *in = ef_type_at(ctx, operand);
    ef_type_info out = *in;
    unsigned seen = 0, where[EF_MAX_RANK] = {0};
    for (unsigned i = 0; i < in->rank; i++) {
        unsigned from = ef_perm_at(perm, i);
        if (from >= in->rank || (seen & 1u << from))
            return fail_types(ctx, diag, "transpose wants each dimension once", operand, 0);
        seen |= 1u << from;
        out.dim[i] = in->dim[from];
        where[from] = i;
    }
    if (in->rank < 16 && in->rank && perm >> (4 * in->rank))
        return fail_types(ctx, diag, "transpose wants as many indices as dimensions", operand, 0);
    for (unsigned i = 0; i < out.places; i++)
        if (out.place[i].kind == EF_PARTITION)
            out.place[i].dim = (uint16_t)where[out.place[i].dim];
    return ef_type_intern(ctx, &out);
}

static bool cuts(const ef_type_info *info, unsigned index)
{
    for (unsigned i = 0; i < info->places; i++)
        if (info->place[i].kind == EF_PARTITION && info->place[i].dim == index)
            return true;
    return false;
}

static ef_type infer_slice(ef_ctx *ctx, uint64_t attr, ef_type operand, ef_diag *diag)
{
    ef_type_info out = *ef_type_at(ctx, operand);
    uint32_t index = ef_slice_index(attr), start = ef_slice_start(attr), stop = ef_slice_stop(attr);
    if (index >= out.rank || start >= stop || stop > ef_dim_extent(ctx, out.dim[index]))
        return fail_types(ctx, diag, "slice is empty or out of range", operand, 0);
    if (cuts(&out, index))
        return fail_types(ctx, diag, "slice of a cut dimension", operand, 0);
    out.dim[index] = ef_dim_slice(ctx, out.dim[index], start, stop);
    return ef_type_intern(ctx, &out);
}

static ef_type infer_concat(ef_ctx *ctx, uint32_t index, const ef_type *children, unsigned count, ef_diag *diag)
{
    if (count == 0 || count > EF_MAX_FIELDS)
        return fail(diag, "concat wants one to eight operands");
    ef_type_info out = *ef_type_at(ctx, children[0]);
    ef_dim parts[EF_MAX_FIELDS];
    for (unsigned i = 0; i < count; i++) {
        ef_type_info in = *ef_type_at(ctx, children[i]);
        if (in.is_tuple || index >= in.rank || cuts(&in, index) || ef_dim_is_count(ctx, in.dim[index]))
            return fail_types(ctx, diag, "concat: no such dimension, or it is cut", children[i], 0);
        out.dtype = (uint8_t)ef_dtype_join((ef_dtype)out.dtype, (ef_dtype)in.dtype);
        parts[i] = in.dim[index];
        in.dim[index] = out.dim[index];
        in.dtype = out.dtype;
        if (in.rank != out.rank || memcmp(in.dim, out.dim, sizeof in.dim) != 0 || in.places != out.places ||
            memcmp(in.place, out.place, sizeof in.place) != 0)
            return fail_types(ctx, diag, "concat: the other dimensions must be equal", children[0], children[i]);
    }
    out.dim[index] = ef_dim_concat(ctx, parts, count);
    return ef_type_intern(ctx, &out);
}

static ef_type infer_broadcast(ef_ctx *ctx, ef_dims list, ef_type operand, ef_diag *diag)
{
    ef_type_info out = *ef_type_at(ctx, operand);
    const ef_dim *dims;
    unsigned rank = ef_dims_at(ctx, list, &dims);
    if (rank > EF_MAX_RANK || rank < out.rank)
        return fail_types(ctx, diag, "broadcast cannot remove dimensions", operand, 0);
    for (unsigned i = 0; i < rank; i++) {
        ef_dim dim = dims[rank - 1 - i];
        if (i < out.rank && out.dim[i] != EF_UNIT && out.dim[i] != dim)
            return fail_types(ctx, diag, "broadcast changes a dimension that is not 1", operand, 0);
        ef_var a[EF_MAX_ATOMS];
        unsigned atoms = flatten(ctx, &dim, 1, a);
        for (unsigned k = 0; k < atoms; k++) /* the new elements of a dimension in scope would have to be tiles */
            for (unsigned level = 0; (i >= out.rank || out.dim[i] == EF_UNIT) && level < 2; level++)
                if (ef_type_place(&out, ef_axis_of(a[k], level)))
                    return fail_types(ctx, diag, "broadcast to a dimension that an axis in scope cuts", operand, 0);
        out.dim[i] = dim;
    }
    out.rank = (uint8_t)rank;
    return ef_type_intern(ctx, &out);
}

/* ---- parallel operators ---- */

/* Level 1 cuts what level 0 left, so level 0 must come first and in the same way. */
static bool levels_agree(const ef_type_info *info, const ef_place *place)
{
    ef_axis axis = place->axis;
    if (ef_axis_level(axis) == 0)
        return !ef_type_place(info, ef_axis_of(ef_axis_var(axis), 1));
    const ef_place *outer = ef_type_place(info, ef_axis_of(ef_axis_var(axis), 0));
    return !outer || place->kind != EF_PARTITION || (outer->kind == EF_PARTITION && outer->dim == place->dim);
}

static ef_type add_axis(ef_ctx *ctx, ef_type type, uint64_t axis, ef_diag *diag)
{
    ef_type_info out = *ef_type_at(ctx, type);
    ef_place place;
    if (ef_type_is_literal(ctx, type))
        return fail(diag, "a literal stands in every parallel scope: it takes no view");
    if (ef_type_place(&out, (ef_axis)axis) || out.places == EF_MAX_PLACES)
        return fail_types(ctx, diag, "the axis is in scope already", type, 0);
    if (!ef_type_cut(ctx, &out, (ef_axis)axis, &place))
        return fail_types(ctx, diag, "the axis's dimension variable must begin exactly one dimension, or be absent",
                          type, 0);
    if (!levels_agree(&out, &place))
        return fail_types(ctx, diag, "levels of one dimension in the wrong order or cut differently", type, 0);
    unsigned at = out.places++;
    for (; at > 0 && out.place[at - 1].axis > axis; at--)
        out.place[at] = out.place[at - 1];
    out.place[at] = place;
    return ef_type_intern(ctx, &out);
}

/* A field of a tuple may be replicated where another one is cut: all its coordinates hold one value. */
static ef_type drop_cut(ef_ctx *ctx, ef_type type, uint64_t axis, bool field, ef_diag *diag)
{
    ef_type_info out = *ef_type_at(ctx, type);
    const ef_place *p = ef_type_place(&out, (ef_axis)axis);
    if (!p || (p->kind != EF_PARTITION && !(field && p->kind == EF_REPLICATE)))
        return fail_types(ctx, diag, "combination wants an operand that is partitioned by its axis", type, 0);
    if (ef_axis_level((ef_axis)axis) == 0 && ef_type_place(&out, ef_axis_of(ef_axis_var((ef_axis)axis), 1)))
        return fail_types(ctx, diag, "combination of an outer axis while the inner one is in scope", type, 0);
    unsigned at = (unsigned)(p - out.place);
    memmove(out.place + at, out.place + at + 1, (out.places - at - 1u) * sizeof *out.place);
    out.place[--out.places] = (ef_place){0};
    return ef_type_intern(ctx, &out);
}

static ef_type drop_partition(ef_ctx *ctx, ef_type type, uint64_t axis, ef_diag *diag)
{
    return drop_cut(ctx, type, axis, false, diag);
}

static ef_type drop_field_partition(ef_ctx *ctx, ef_type type, uint64_t axis, ef_diag *diag)
{
    return drop_cut(ctx, type, axis, true, diag);
}

static ef_type collect(ef_ctx *ctx, ef_type type, uint64_t axis, ef_diag *diag)
{
    ef_type_info out = *ef_type_at(ctx, type);
    const ef_place *p = ef_type_place(&out, (ef_axis)axis);
    if (!p || p->kind == EF_PARTITION || out.rank == EF_MAX_RANK)
        return fail_types(ctx, diag, "collection wants an operand that is partial or replicated over its axis", type,
                          0);
    if (ef_axis_level((ef_axis)axis) == 0 && ef_type_place(&out, ef_axis_of(ef_axis_var((ef_axis)axis), 1)))
        return fail_types(ctx, diag, "collection of an outer axis while the inner one is in scope", type, 0);
    unsigned at = (unsigned)(p - out.place);
    memmove(out.place + at, out.place + at + 1, (out.places - at - 1u) * sizeof *out.place);
    out.place[--out.places] = (ef_place){0};
    out.dim[out.rank++] = ef_dim_count(ctx, (ef_axis)axis);
    return ef_type_intern(ctx, &out);
}

static ef_type each_axis(ef_ctx *ctx, ef_axes set, ef_type type, bool downwards, ef_diag *diag,
                         ef_type (*f)(ef_ctx *, ef_type, uint64_t, ef_diag *))
{
    const ef_axis *axes;
    unsigned n = ef_axes_at(ctx, set, &axes);
    if (set == EF_AXES_TOO_MANY)
        return fail(diag, "too many axes");
    for (unsigned i = 0; i < n && type; i++)
        type = map_fields(ctx, type, axes[downwards ? n - 1 - i : i], diag, f);
    return type;
}

/* ---- all operators ---- */

static ef_type infer_leaf(ef_ctx *ctx, ef_op op, uint64_t attr)
{
    if (op == EF_INPUT)
        return ef_input_type(ctx, (uint32_t)attr);
    if (op == EF_CONST)
        return ef_type_tensor(ctx, EF_NUM, NULL, 0);
    ef_dim dim = (ef_dim)attr;
    return ef_type_tensor(ctx, EF_I64, &dim, 1);
}

static unsigned leaves_of(const ef_ctx *ctx, ef_type type)
{
    const ef_type_info *info = ef_type_at(ctx, type);
    unsigned n = info->is_tuple ? 0 : 1;
    for (unsigned i = 0; i < info->fields; i++)
        n += leaves_of(ctx, info->field[i]);
    return n;
}

static ef_type infer_tuple(ef_ctx *ctx, const ef_type *children, unsigned count, ef_diag *diag)
{
    unsigned leaves = 0;
    if (count == 0 || count > EF_MAX_FIELDS)
        return fail(diag, "tuple wants one to eight fields");
    for (unsigned i = 0; i < count; i++)
        leaves += leaves_of(ctx, children[i]);
    if (leaves > 2 * EF_MAX_FIELDS)
        return fail(diag, "tuple holds too many tensors");
    ef_type type = ef_type_tuple(ctx, children, count);
    if (ef_type_axes(ctx, type) == EF_AXES_TOO_MANY)
        return fail(diag, "tuple stands in the scope of too many axes");
    return type;
}

static ef_type infer_tupling(ef_ctx *ctx, ef_op op, uint64_t attr, const ef_type *children, unsigned count,
                             ef_diag *diag)
{
    if (op == EF_TUPLE)
        return infer_tuple(ctx, children, count, diag);
    const ef_type_info *t = ef_type_at(ctx, children[0]);
    if (!t->is_tuple || attr >= t->fields)
        return fail_types(ctx, diag, "get wants a tuple with such a field", children[0], 0);
    return t->field[attr];
}

static ef_type infer_shape(ef_ctx *ctx, ef_op op, uint64_t attr, const ef_type *children, unsigned count, ef_diag *diag)
{
    if (count && ef_type_at(ctx, children[0])->is_tuple)
        return fail(diag, "a shape operator wants a tensor, not a tuple: use get");
    switch (op) {
    case EF_RESHAPE: return infer_reshape(ctx, (ef_dims)attr, children[0], diag);
    case EF_TRANSPOSE: return infer_transpose(ctx, attr, children[0], diag);
    case EF_SLICE: return infer_slice(ctx, attr, children[0], diag);
    case EF_BROADCAST: return infer_broadcast(ctx, (ef_dims)attr, children[0], diag);
    default: return infer_concat(ctx, (uint32_t)attr, children, count, diag);
    }
}

static ef_type infer_parallel(ef_ctx *ctx, ef_op op, uint64_t attr, ef_type operand, ef_diag *diag)
{
    if (op == EF_COLLECT)
        return map_fields(ctx, operand, attr, diag, collect);
    if (attr == 0)
        return fail(diag, "a view or combination needs at least one axis");
    if (op == EF_VIEW)
        return each_axis(ctx, (ef_axes)attr, operand, false, diag, add_axis);
    bool tuple = ef_type_at(ctx, operand)->is_tuple;
    return each_axis(ctx, (ef_axes)attr, operand, true, diag, tuple ? drop_field_partition : drop_partition);
}

ef_type ef_infer(ef_ctx *ctx, ef_op op, uint64_t attr, const ef_type *children, unsigned count, ef_diag *diag)
{
    if (ef_ops[op].arity >= 0 && (unsigned)ef_ops[op].arity != count) {
        ef_fail(diag, "%s wants %d operands, not %u", ef_ops[op].name, ef_ops[op].arity, count);
        return 0;
    }
    switch (ef_ops[op].class) {
    case EF_LEAF: return infer_leaf(ctx, op, attr);
    case EF_UNARY:
    case EF_BINARY:
    case EF_TERNARY: return infer_pointwise(ctx, op, attr, children, count, diag);
    case EF_CONTRACTION: return infer_matmul(ctx, children, diag);
    case EF_REDUCTION:
        return op == EF_REDUCE ? infer_reduce(ctx, attr, children[0], diag)
                               : infer_reduce_p(ctx, attr, children[0], diag);
    case EF_SHAPE: return infer_shape(ctx, op, attr, children, count, diag);
    case EF_TUPLING: return infer_tupling(ctx, op, attr, children, count, diag);
    case EF_PARALLEL: return infer_parallel(ctx, op, attr, children[0], diag);
    }
    return 0;
}
