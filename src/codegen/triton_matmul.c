/* Products. On the matrix unit, operands keep their 16 bits, values that were computed in float32 are rounded to their
 * type in the program first, as they are when operators run one by one, and sums are float32. Rows are added where
 * there are fewer than the unit takes. Elsewhere the terms are a tile of their own, added up along the inner axes,
 * after the loop around them where that is possible.
 *
 * Batch dimensions that only one operand has are rows or columns of the other kind of tile: many small products of one
 * shared matrix are one larger product. */
#include <inttypes.h>
#include <string.h>

#include "codegen/triton_print.h"

/* ---- which axes ---- */

typedef struct {
    unsigned count;
    uint32_t axis[EF_MAP_ENTRIES];
} axis_list;

static void append(axis_list *list, const axis_list *more)
{
    memcpy(list->axis + list->count, more->axis, more->count * sizeof *more->axis);
    list->count += more->count;
}

static void append_dim(ef_t *t, const ef_knode *node, unsigned dim, axis_list *list)
{
    uint32_t axis[EF_MAP_ENTRIES];
    unsigned of[EF_MAP_ENTRIES], n = ef_t_axes(t, node, axis);
    ef_t_entry_dims(t, node, of);
    for (unsigned i = 0; i < n; i++)
        if (of[i] == dim && axis[i] != EF_NONE)
            list->axis[list->count++] = axis[i];
}

typedef struct {
    axis_list batch, rows, inner, columns;
} axis_kinds;

static bool has_dim(const ef_knode *node, unsigned dim)
{
    return dim < node->rank && node->dim[dim].dim != EF_UNIT;
}

static void sort_axes(ef_t *t, const ef_knode *node, axis_kinds *kinds)
{
    const ef_knode *a = ef_kernel_node(t->kernel, node->child[0]), *b = ef_kernel_node(t->kernel, node->child[1]);
    *kinds = (axis_kinds){0};
    for (unsigned i = node->rank; i-- > 2;)
        append_dim(t, node, i, !has_dim(b, i) ? &kinds->rows : !has_dim(a, i) ? &kinds->columns : &kinds->batch);
    append_dim(t, node, 1, &kinds->rows);
    append_dim(t, node, 0, &kinds->columns);
    append_dim(t, a, 0, &kinds->inner);
}

/* The indices of an operand: its dimensions take the axes of the product's, its inner dimension the inner axes. */
static void operand_indices(ef_t *t, const t_frame *frame, const ef_knode *node, const ef_knode *operand,
                            unsigned inner, const axis_list *inner_axes, ef_index *index)
{
    uint32_t own[EF_MAP_ENTRIES], of_node[EF_MAP_ENTRIES];
    unsigned dim[EF_MAP_ENTRIES], n = ef_t_axes(t, operand, own), used = 0;
    ef_t_axes(t, node, of_node);
    ef_t_entry_dims(t, operand, dim);
    for (unsigned i = 0, within = 0; i < n; i++) {
        uint32_t axis = EF_NONE;
        within = i > 0 && dim[i] == dim[i - 1] ? within + 1 : 0;
        if (own[i] != EF_NONE)
            axis = dim[i] == inner ? inner_axes->axis[used++] : of_node[ef_map_dim_at(&t->maps, node, dim[i]) + within];
        unsigned place = axis == EF_NONE ? T_MAX_AXES : ef_t_find(frame, axis);
        index[i] = place == T_MAX_AXES ? ef_index_const(t->ix, 0) : frame->at[place].index;
    }
}

/* ---- the plan ---- */

/* The type of operands on the matrix unit; EF_BOOL when it takes none of this kind. */
static ef_dtype unit_dtype(ef_dtype a, ef_dtype b)
{
    if (a == EF_NUM || b == EF_NUM)
        return a == b ? EF_F32 : unit_dtype(a == EF_NUM ? b : a, a == EF_NUM ? b : a);
    ef_dtype both = ef_dtype_join(a, b);
    return both == EF_F16 || both == EF_BF16 || both == EF_F32 ? both : EF_BOOL;
}

static bool twice(const axis_list *all)
{
    for (unsigned i = 0; i < all->count; i++)
        for (unsigned j = 0; j < i; j++)
            if (all->axis[i] == all->axis[j])
                return true;
    return false;
}

/* The tiles of one part must fit: the inner axis is walked along in parts when they do not. */
static bool choose_part(ef_t *t, t_product *p)
{
    unsigned inner_a = ((1u << p->inner) - 1) << (p->batch + p->rows);
    unsigned inner_terms = p->dot ? 0 : inner_a;
    uint64_t part_b = 0;
    p->part_axis = ef_t_choose_part(&p->a, inner_a, T_CHUNK_ELEMENTS, &p->part);
    uint32_t axis = ef_t_choose_part(&p->b, ((1u << p->inner) - 1) << p->batch, T_CHUNK_ELEMENTS, &part_b);
    if (axis != EF_NONE && (p->part_axis == EF_NONE || part_b < p->part)) {
        p->part_axis = axis;
        p->part = part_b;
    }
    axis = ef_t_choose_part(&p->terms, inner_terms, T_CHUNK_ELEMENTS, &part_b);
    if (axis != EF_NONE && (p->part_axis == EF_NONE || part_b < p->part)) {
        p->part_axis = axis;
        p->part = part_b;
    }
    unsigned place = p->part_axis == EF_NONE ? T_MAX_AXES : ef_t_find(&p->terms, p->part_axis);
    if (place != T_MAX_AXES)
        p->terms.at[place].pad = p->part;
    return ef_t_elements(&p->terms) <= T_MAX_ELEMENTS || ef_t_too_large(t, "multiplied", ef_t_elements(&p->terms));
}

bool ef_t_product(ef_t *t, ef_kid id, t_product *p)
{
    const ef_knode *node = ef_kernel_node(t->kernel, id);
    const ef_knode *a = ef_kernel_node(t->kernel, node->child[0]), *b = ef_kernel_node(t->kernel, node->child[1]);
    axis_kinds kinds;
    axis_list in_a = {0}, in_b = {0}, terms = {0};
    *p = (t_product){.id = id, .part_axis = EF_NONE};
    sort_axes(t, node, &kinds);
    p->batch = kinds.batch.count, p->rows = kinds.rows.count;
    p->inner = kinds.inner.count, p->columns = kinds.columns.count;
    /* A stored operand may be wider than it is in the program, whose type the product has. */
    p->dtype = node->dtype == EF_F16 || node->dtype == EF_BF16 ? (ef_dtype)node->dtype
                                                               : unit_dtype((ef_dtype)a->dtype, (ef_dtype)b->dtype);
    p->dot = t->tensor_cores && p->dtype != EF_BOOL && p->inner && p->columns;
    append(&in_a, &kinds.batch), append(&in_a, &kinds.rows), append(&in_a, &kinds.inner);
    append(&in_b, &kinds.batch), append(&in_b, &kinds.inner), append(&in_b, &kinds.columns);
    append(&terms, &kinds.batch), append(&terms, &kinds.rows);
    if (!p->dot)
        append(&terms, &kinds.inner);
    else if (p->rows == 0)
        append(&terms, &(axis_list){1, {ef_t_extra_rows(t)}});
    append(&terms, &kinds.columns);
    if (twice(&in_a) || twice(&in_b) || twice(&terms))
        return ef_t_fail(t, "a product has one dimension as rows, columns or inside");
    if (!ef_t_frame(t, in_a.axis, in_a.count, &p->a) || !ef_t_frame(t, in_b.axis, in_b.count, &p->b) ||
        !ef_t_frame(t, terms.axis, terms.count, &p->terms))
        return false;
    unsigned added = p->dot ? p->rows == 0 : p->inner;
    p->rest = ((1u << added) - 1) << (p->batch + (p->dot ? 0 : p->rows));
    return choose_part(t, p);
}

/* ---- printing ---- */

/* The text with each group of a frame's axes as one axis; groups without axes leave nothing. */
static const char *regrouped(ef_t *t, const t_frame *frame, const char *text, const unsigned *group, unsigned groups)
{
    ef_strbuf out = {0};
    bool change = false;
    for (unsigned i = 0, at = 0; i < groups; i++) {
        uint64_t size = 1;
        for (unsigned j = 0; j < group[i]; j++)
            size *= frame->at[at++].pad;
        if (group[i] > 0)
            ef_strbuf_printf(&out, "%s%" PRIu64, out.length ? ", " : "", size);
        change = change || group[i] > 1;
    }
    const char *copy = change ? ef_t_text(t, "tl.reshape(%s, [%s])", text, out.text) : text;
    ef_strbuf_free(&out);
    return copy;
}

/* Whether an operand can be taken as it lies in memory. */
static bool is_raw(ef_t *t, ef_kid id, ef_dtype dtype)
{
    ef_kid stored = ef_t_stored(t, id);
    return stored != EF_NONE && dtype != EF_F32 &&
           t->graph->buffers.at[ef_kernel_node(t->kernel, stored)->attr].dtype == dtype;
}

/* Whether an operand is the product of two elements that lie in memory as float16. Rounded to float16 it is the same in
 * float16 and in float32, where it is exact. */
static bool is_half_product(ef_t *t, ef_kid id, ef_dtype dtype)
{
    const ef_knode *node = ef_kernel_node(t->kernel, ef_t_below(t, id));
    return dtype == EF_F16 && node->op == EF_MUL && is_raw(t, node->child[0], dtype) &&
           is_raw(t, node->child[1], dtype);
}

/* An operand for the matrix unit, with 0 beyond its inner length. */
static t_value unit_operand(ef_t *t, const t_frame *frame, ef_kid id, const ef_index *index, ef_dtype dtype,
                            unsigned inner)
{
    bool raw = is_raw(t, id, dtype) || is_half_product(t, id, dtype);
    t_value value = ef_t_element(t, frame, id, index, raw);
    if (value.literal || value.type != T_FLOAT) {
        value.text = value.literal ? ef_t_full(t, frame, value).text : ef_t_as(t, value, T_FLOAT);
        value.axes = value.literal ? (1u << frame->rank) - 1 : value.axes;
        value.literal = false;
        value.type = T_FLOAT;
    }
    value = ef_t_full(t, frame, ef_t_masked(t, frame, inner, value, 0));
    if (!raw && dtype != EF_F32)
        value.text = ef_t_name(t, value.level, "narrow", ef_t_text(t, "%s.to(tl.%s)", value.text, ef_t_dtype(dtype)));
    return value;
}

/* One row, padded: the others are 0. */
static bool row_is_loaded(ef_t *t, const t_product *p, ef_kid id)
{
    return p->rows == 0 && p->batch == 0 && p->inner == 1 && is_raw(t, id, p->dtype);
}

static const char *one_row(ef_t *t, const t_product *p, const char *text)
{
    const char *row = t->axes.at[p->terms.at[p->batch].axis].name;
    return p->batch ? ef_t_text(t, "tl.where(%s[None, :, None] == 0, %s[:, None, :], 0.0)", row, text)
                    : ef_t_text(t, "tl.where(%s[:, None] == 0, %s[None, :], 0.0)", row, text);
}

static t_value dot(ef_t *t, const t_product *p, const char *sum)
{
    const ef_knode *node = ef_kernel_node(t->kernel, p->id);
    unsigned inner_a = ((1u << p->inner) - 1) << (p->batch + p->rows), inner_b = ((1u << p->inner) - 1) << p->batch;
    bool row = row_is_loaded(t, p, node->child[0]);
    t_value a = row ? ef_t_load_row(t, &p->a, node->child[0], p->at_a)
                    : unit_operand(t, &p->a, node->child[0], p->at_a, p->dtype, inner_a);
    t_value b = unit_operand(t, &p->b, node->child[1], p->at_b, p->dtype, inner_b);
    const unsigned by_a[] = {p->batch, p->rows, p->inner}, by_b[] = {p->batch, p->inner, p->columns};
    const unsigned by_terms[] = {p->batch, p->rows ? p->rows : 1, p->columns};
    unsigned level = a.level > b.level ? a.level : b.level;
    if (!row)
        a.text = regrouped(t, &p->a, a.text, by_a, 3);
    b.text = regrouped(t, &p->b, b.text, by_b, 3);
    if (p->rows == 0 && !row)
        a.text = ef_t_name(t, a.level, "row", one_row(t, p, a.text));
    if (sum)
        sum = regrouped(t, &p->terms, sum, by_terms, 3);
    const char *precise = p->dtype == EF_F32 ? ", input_precision=\"tf32x3\"" : "";
    const char *text = sum ? ef_t_text(t, "tl.dot(%s, %s, %s%s)", a.text, b.text, sum, precise)
                           : ef_t_text(t, "tl.dot(%s, %s%s)", a.text, b.text, precise);
    if (p->batch > 1 || by_terms[1] > 1 || p->columns > 1)
        text = ef_t_text(t, "tl.reshape(%s, %s)", text, ef_t_shape(t, &p->terms, (1u << p->terms.rank) - 1));
    return (t_value){.text = text, .type = T_FLOAT, .axes = (1u << p->terms.rank) - 1, .level = level};
}

/* A value of an operand's frame among the terms: the operand's axes are `first` … of them, in the same order. */
static const char *among_terms(ef_t *t, const t_product *p, const t_frame *frame, t_value value)
{
    ef_strbuf out = {0};
    const char *copy = value.text;
    if (frame->rank < p->terms.rank && frame->rank > 0) {
        ef_strbuf_printf(&out, "%s[", value.text);
        for (unsigned i = 0; i < p->terms.rank; i++)
            ef_strbuf_printf(&out, "%s%s", i ? ", " : "",
                             ef_t_find(frame, p->terms.at[i].axis) == T_MAX_AXES ? "None" : ":");
        ef_strbuf_puts(&out, "]");
        copy = ef_t_view(t, value.level, "spread", value.text, ef_t_text(t, "%s", out.text));
    }
    ef_strbuf_free(&out);
    return copy;
}

static t_value multiply(ef_t *t, const t_product *p, const char *sum)
{
    const ef_knode *node = ef_kernel_node(t->kernel, p->id);
    t_type type = node->dtype == EF_F64 ? T_DOUBLE : T_FLOAT;
    unsigned inner_a = ((1u << p->inner) - 1) << (p->batch + p->rows), inner_b = ((1u << p->inner) - 1) << p->batch;
    t_value x[2] = {ef_t_element(t, &p->a, node->child[0], p->at_a, false),
                    ef_t_element(t, &p->b, node->child[1], p->at_b, false)};
    const t_frame *frame[2] = {&p->a, &p->b};
    for (unsigned i = 0; i < 2; i++) {
        x[i].text = ef_t_as(t, x[i], type);
        x[i].type = type;
        x[i] = ef_t_masked(t, frame[i], i ? inner_b : inner_a, x[i], 0);
        x[i] = x[i].axes || !x[i].literal ? x[i] : ef_t_full(t, frame[i], x[i]);
        if (x[i].axes == 0 && frame[i]->rank > 0)
            x[i] = ef_t_full(t, frame[i], x[i]);
    }
    const char *text = ef_t_text(t, "%s * %s", among_terms(t, p, &p->a, x[0]), among_terms(t, p, &p->b, x[1]));
    unsigned level = x[0].level > x[1].level ? x[0].level : x[1].level, axes = 0;
    for (unsigned i = 0; i < p->terms.rank; i++)
        for (unsigned k = 0; k < 2; k++) {
            unsigned place = ef_t_find(frame[k], p->terms.at[i].axis);
            axes |= place < T_MAX_AXES && (x[k].axes >> place & 1) ? 1u << i : 0;
        }
    t_value value = {.text = text, .type = type, .axes = axes, .level = level};
    if (axes != (1u << p->terms.rank) - 1 && !sum)
        return ef_t_full(t, &p->terms, value);
    value.text = sum ? ef_t_text(t, "%s + %s", sum, text) : text;
    value.axes = (1u << p->terms.rank) - 1;
    return value;
}

static void find_indices(ef_t *t, t_product *p)
{
    const ef_knode *node = ef_kernel_node(t->kernel, p->id);
    axis_kinds kinds;
    sort_axes(t, node, &kinds);
    operand_indices(t, &p->a, node, ef_kernel_node(t->kernel, node->child[0]), 0, &kinds.inner, p->at_a);
    operand_indices(t, &p->b, node, ef_kernel_node(t->kernel, node->child[1]), 1, &kinds.inner, p->at_b);
}

t_value ef_t_terms(ef_t *t, const t_product *product, const char *sum)
{
    t_product p = *product;
    if (p.part_axis == EF_NONE) {
        find_indices(t, &p);
        return p.dot ? dot(t, &p, sum) : multiply(t, &p, sum);
    }
    const char *name = ef_t_text(t, "sum_%u", t->counter++);
    const ef_knode *node = ef_kernel_node(t->kernel, p.id);
    t_value zero = {.literal = true, .type = node->dtype == EF_F64 ? T_DOUBLE : T_FLOAT};
    unsigned level = t->level;
    ef_t_line(t, level, "%s = %s", name, sum ? sum : ef_t_full(t, &p.terms, zero).text);
    const char *head = ef_t_open_part(t, p.part_axis, p.part, (t_frame *[]){&p.a, &p.b, &p.terms}, 3);
    find_indices(t, &p);
    t_value value = p.dot ? dot(t, &p, name) : multiply(t, &p, name);
    ef_t_line(t, t->level, "%s = %s", name, value.text);
    ef_t_close(t, head);
    value.text = name;
    value.level = level;
    return value;
}

void ef_t_matmul(ef_t *t, ef_kid id)
{
    t_product p;
    const char *given = t->kernel->names.at[id];
    if (!ef_t_product(t, id, &p))
        return;
    t_value value = ef_t_terms(t, &p, NULL);
    value.text = ef_t_name(t, value.level, given ? ef_t_identifier(t, given) : "product",
                           ef_t_reduce_axes(t, EF_RED_SUM, p.rest, value.text));
    ef_t_make(t, id, &p.terms, ~p.rest, value);
}

void ef_t_widen_axes(ef_t *t, ef_kid id)
{
    const ef_knode *node = ef_kernel_node(t->kernel, id);
    axis_kinds kinds;
    sort_axes(t, node, &kinds);
    const axis_list *group[] = {&kinds.rows, &kinds.inner, &kinds.columns};
    for (unsigned g = 0; g < 3; g++) {
        uint64_t size = 1;
        for (unsigned i = 0; i < group[g]->count; i++)
            size *= t->axes.at[group[g]->axis[i]].pad;
        for (; group[g]->count && size < T_LEAST_DOT; size *= 2)
            t->axes.at[group[g]->axis[group[g]->count - 1]].pad *= 2;
    }
}
