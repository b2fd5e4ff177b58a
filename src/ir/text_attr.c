/* What stands between the brackets of an operator, by the kind of its attribute (op.h), and reducers with their repair
 * terms. */
#include <string.h>

#include "ir/text.h"

/* ---- reducers ---- */

/* c, s, t, s0, t1, …: a parameter of a repair term over `leaves` producer leaves. */
static bool parameter(ef_text *s, size_t at, const char *text, unsigned length, unsigned leaves, ef_scalar *term)
{
    int which = text[0] == 'c' ? EF_PARAM_C : text[0] == 's' ? EF_PARAM_S : text[0] == 't' ? EF_PARAM_T : -1;
    unsigned index = length == 2 ? (unsigned)(text[1] - '0') : 0;
    bool numbered = length == 2 && ef_text_is_digit((unsigned char)text[1]) && text[0] != 'c';
    if (which < 0 || !(length == 1 || numbered))
        return ef_text_fail(s, at, "a repair term is made of c, s, t, numbers and pointwise operators");
    if (index >= leaves || (length == 1 && text[0] != 'c' && leaves > 1))
        return ef_text_fail(s, at, "the first reducer has %u %s: write %s", leaves, leaves > 1 ? "leaves" : "leaf",
                            leaves > 1 ? "s0, s1, … and t0, t1, …" : "s and t");
    *term = ef_scalar_param(s->ctx, (ef_param)which, index);
    return true;
}

static bool scalar(ef_text *s, unsigned depth, unsigned leaves, ef_scalar *term)
{
    const char *text;
    unsigned length, count = 0;
    ef_scalar operand[4];
    double value = 0;
    int c = ef_text_next(s);
    size_t at = s->at;
    if (depth >= EF_TEXT_DEPTH)
        return ef_text_fail(s, at, "brackets are nested more than %u deep", EF_TEXT_DEPTH);
    length = ef_text_name_length(s, at);
    if (!ef_text_is_name_start(c) || ef_text_is_word(s->text + at, length, "inf") ||
        ef_text_is_word(s->text + at, length, "nan")) {
        if (!ef_text_number_value(s, &value))
            return false;
        *term = ef_scalar_const(s->ctx, value);
        return true;
    }
    if (!ef_text_name(s, "a repair term", &text, &length))
        return false;
    if (!ef_text_accept(s, '('))
        return parameter(s, at, text, length, leaves, term);
    ef_op op = ef_op_named(text, length);
    if (op == EF_OP_COUNT || !ef_op_pointwise(op) || op == EF_CAST)
        return ef_text_fail(s, at, "a repair term applies pointwise operators only, and no cast");
    do {
        if (count == 3)
            break;
        if (!scalar(s, depth + 1, leaves, &operand[count++]))
            return false;
    } while (ef_text_accept(s, ','));
    if (count != (unsigned)ef_ops[op].arity || ef_text_next(s) == ',')
        return ef_text_fail(s, at, "%s wants %d operand%s", ef_ops[op].name, ef_ops[op].arity,
                            ef_ops[op].arity == 1 ? "" : "s");
    *term = ef_scalar_apply(s->ctx, op, operand);
    return ef_text_expect(s, ')');
}

static bool reducer(ef_text *s, unsigned depth, ef_reducer *result)
{
    static const char *const names[] = {"sum", "max", "min", "prod", "product", "repaired"};
    const char *text;
    unsigned length, kind = 0;
    ef_reducer left, right;
    ef_scalar h[EF_MAX_LEAVES];
    ef_text_next(s);
    size_t at = s->at;
    if (depth >= EF_TEXT_DEPTH)
        return ef_text_fail(s, at, "brackets are nested more than %u deep", EF_TEXT_DEPTH);
    if (!ef_text_name(s, "a reducer", &text, &length))
        return false;
    while (kind < 6 && !ef_text_is_word(text, length, names[kind]))
        kind++;
    if (kind == 6)
        return ef_text_fail(s, at,
                            "unknown reducer: one of sum, max, min, prod, product(R, R), repaired(R, R, term, …)");
    *result = kind; /* the base reducers' fixed ids */
    if (kind <= EF_RED_PROD)
        return true;
    if (!ef_text_expect(s, '(') || !reducer(s, depth + 1, &left) || !ef_text_expect(s, ',') ||
        !reducer(s, depth + 1, &right))
        return false;
    unsigned leaves = ef_reducer_at(s->ctx, left)->leaves, terms = ef_reducer_at(s->ctx, right)->leaves;
    if (leaves + terms > EF_MAX_LEAVES)
        return ef_text_fail(s, at, "a reducer has at most %d leaves", EF_MAX_LEAVES);
    for (unsigned i = 0; kind == EF_RED_REPAIRED && i < terms; i++)
        if (!ef_text_expect(s, ',') || !scalar(s, depth + 1, leaves, &h[i]))
            return false;
    *result =
        kind == EF_RED_PRODUCT ? ef_reducer_product(s->ctx, left, right) : ef_reducer_repaired(s->ctx, left, right, h);
    return ef_text_expect(s, ')');
}

/* ---- attributes ---- */

/* -1, -2, …: a dimension counted from the last. */
static bool index_from_last(ef_text *s, uint64_t *index)
{
    if (ef_text_next(s) != '-')
        return ef_text_expected(s, "a dimension counted from the last one: -1, -2, …");
    s->at++;
    if (!ef_text_integer(s, "a dimension's number", EF_MAX_RANK, index))
        return false;
    if (*index == 0)
        return ef_text_fail(s, s->at, "dimensions are counted from the last one: -1, -2, …");
    *index -= 1;
    return true;
}

bool ef_text_dtype(ef_text *s, uint8_t *dtype)
{
    const char *text;
    unsigned length;
    ef_text_next(s);
    size_t at = s->at;
    if (!ef_text_name(s, "an element type", &text, &length))
        return false;
    for (int i = 0; i < EF_DTYPE_COUNT; i++) {
        if (i != EF_NUM && ef_text_is_word(text, length, ef_dtype_names[i])) {
            *dtype = s->wide && ef_dtype_is_float((ef_dtype)i) ? EF_F64 : (uint8_t)i;
            return true;
        }
    }
    return ef_text_fail(s, at, "unknown element type: one of bool, i32, i64, f16, bf16, f32, f64");
}

/* [REDUCER, -1], [REDUCER, first] or [REDUCER, AXIS]. */
static bool attr_reduce(ef_text *s, ef_text_node *node)
{
    ef_reducer reducer_id = 0;
    ef_axis parallel = 0;
    uint64_t index = 0;
    if (!reducer(s, 0, &reducer_id) || !ef_text_expect(s, ','))
        return false;
    int c = ef_text_next(s);
    size_t at = s->at;
    if (c == '-') {
        if (!index_from_last(s, &index))
            return false;
        node->attr = ef_attr_reduce(reducer_id, index);
        return true;
    }
    if (ef_text_accept_word(s, "first") && ef_text_next(s) == ']') {
        node->attr = ef_attr_reduce(reducer_id, EF_FIRST);
        return true;
    }
    s->at = at;
    if (!ef_text_is_name_start(c) && c != '(' && c != '|')
        return ef_text_expected(s, "-1, -2, … or first or an axis such as k.0");
    node->op = EF_REDUCE_P;
    if (!ef_text_axis(s, 0, &parallel))
        return false;
    node->attr = ef_attr_reduce(reducer_id, parallel);
    return true;
}

/* Input dimensions, outermost first, as in NumPy; text_build.c turns them around. */
static bool attr_transpose(ef_text *s, ef_text_node *node)
{
    uint64_t from = 0;
    node->attr = 0;
    if (ef_text_next(s) == ']')
        return true;
    do {
        ef_text_next(s);
        if (node->shape.rank == EF_MAX_RANK)
            return ef_text_fail(s, s->at, "a tensor has at most %d dimensions", EF_MAX_RANK);
        if (!ef_text_integer(s, "a dimension's number, counted from the first one as 0, 1, …", EF_MAX_RANK - 1, &from))
            return false;
        node->attr |= from << 4 * node->shape.rank++;
    } while (ef_text_accept(s, ','));
    return true;
}

static bool attr_slice(ef_text *s, ef_text_node *node)
{
    uint64_t index = 0, start = 0, stop = 0;
    if (!index_from_last(s, &index) || !ef_text_expect(s, ',') || !ef_text_span(s, EF_SLICE_LIMIT, &start, &stop))
        return false;
    node->attr = ef_attr_slice(index, start, stop);
    return true;
}

/* partition and combination say where the axis cuts: [-1, k.0]; [k.0] alone is for tuples. */
static bool attr_axes(ef_text *s, ef_text_node *node)
{
    ef_axis axes[EF_MAX_PLACES];
    uint64_t index = 0;
    unsigned count = 0;
    if (node->cuts != EF_TEXT_NOWHERE && ef_text_next(s) == '-') {
        if (!index_from_last(s, &index) || !ef_text_expect(s, ','))
            return false;
        node->cuts = (uint8_t)index;
    }
    do {
        ef_text_next(s);
        if (count == EF_MAX_PLACES || (count == 1 && node->cuts != EF_TEXT_ANYWHERE))
            return ef_text_expected(s, "']': too many axes");
        if (!ef_text_axis(s, 0, &axes[count++]))
            return false;
    } while (ef_text_accept(s, ','));
    ef_axes set = ef_axes_intern(s->ctx, axes, count);
    const ef_axis *distinct;
    if (ef_axes_at(s->ctx, set, &distinct) != count)
        return ef_text_fail(s, s->at, "an axis is named twice");
    node->attr = set;
    return true;
}

static bool attr_full(ef_text *s, ef_text_node *node)
{
    double value = 0;
    if (!ef_text_shape_of(s, ';', &node->shape))
        return false;
    if (!ef_text_expect(s, ';') || !ef_text_number_value(s, &value))
        return false;
    ef_text_node literal = {.at = node->at, .op = EF_CONST, .attr = ef_attr_number(value)};
    node->first = s->operands.count;
    node->count = 1;
    ef_vec_push(&s->operands, s->nodes.count);
    ef_vec_push(&s->nodes, literal);
    return true;
}

/* What stands between the brackets of an operator, which may change it: reduce over an axis is another operator. */
bool ef_text_attributes(ef_text *s, ef_text_node *node, bool full)
{
    ef_axis one = 0;
    switch (ef_ops[node->op].attr) {
    case EF_ATTR_DTYPE: {
        uint8_t dtype = 0;
        if (!ef_text_dtype(s, &dtype))
            return false;
        node->attr = dtype;
        return true;
    }
    case EF_ATTR_DIM:
        node->shape = (ef_text_shape){s->dims.count, 1};
        ef_text_dim dim;
        if (!ef_text_dimension(s, &dim))
            return false;
        ef_vec_push(&s->dims, dim);
        return true;
    case EF_ATTR_DIMS: return full ? attr_full(s, node) : ef_text_shape_of(s, ']', &node->shape);
    case EF_ATTR_INDEX: return index_from_last(s, &node->attr);
    case EF_ATTR_PERM: return attr_transpose(s, node);
    case EF_ATTR_SLICE: return attr_slice(s, node);
    case EF_ATTR_FIELD: return ef_text_integer(s, "a field's number", EF_MAX_FIELDS - 1, &node->attr);
    case EF_ATTR_REDUCE: return attr_reduce(s, node);
    case EF_ATTR_AXES: return attr_axes(s, node);
    case EF_ATTR_AXIS:
        if (!ef_text_axis(s, 0, &one))
            return false;
        node->attr = one;
        return true;
    default: return ef_text_expected(s, "'(': this operator has no attributes");
    }
}
