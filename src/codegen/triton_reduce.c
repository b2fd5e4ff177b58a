/* Reductions along a dimension of a tile. What is beyond a tile's length is the reducer's identity. A tile that is too
 * large for registers is reduced in parts. */
#include <inttypes.h>

#include "codegen/triton_print.h"

const char *ef_t_reduce_axes(ef_t *t, ef_reducer reducer, unsigned axes, const char *text)
{
    static const char *const call[] = {"tl.sum(%s, axis=%u)", "tl.max(%s, axis=%u)", "tl.min(%s, axis=%u)",
                                       "tl.reduce(%s, %u, _product)"};
    for (unsigned i = T_MAX_AXES; i-- > 0;) {
        ef_strbuf one = {0};
        if (!(axes >> i & 1))
            continue;
        ef_strbuf_printf(&one, call[reducer], text, i);
        text = ef_t_text(t, "%s", one.text);
        ef_strbuf_free(&one);
    }
    if (reducer == EF_RED_PROD)
        t->helpers |= T_HELP_PROD;
    return text;
}

const char *ef_t_combined(ef_t *t, ef_reducer reducer, t_type type, const char *a, const char *b)
{
    const char *nan = type >= T_FLOAT ? ", propagate_nan=tl.PropagateNan.ALL" : "";
    switch (reducer) {
    case EF_RED_SUM: return ef_t_text(t, "%s + %s", a, b);
    case EF_RED_PROD: return ef_t_text(t, "%s * %s", a, b);
    default: return ef_t_text(t, "tl.%s(%s, %s%s)", reducer == EF_RED_MAX ? "maximum" : "minimum", a, b, nan);
    }
}

/* The axes of a frame that belong to one dimension of a node. */
static unsigned axes_of_dim(ef_t *t, const t_frame *frame, const ef_knode *node, unsigned dim)
{
    uint32_t axis[EF_MAP_ENTRIES];
    unsigned of[EF_MAP_ENTRIES], axes = 0, n = ef_t_axes(t, node, axis);
    ef_t_entry_dims(t, node, of);
    for (unsigned i = 0; i < n; i++)
        if (of[i] == dim && axis[i] != EF_NONE)
            axes |= 1u << ef_t_find(frame, axis[i]);
    return axes;
}

/* The operand with a type in which it can be reduced. max(c x) = c max(x) for a positive literal c: the factor is left
 * to what comes out. */
static t_value operand(ef_t *t, const t_frame *frame, const ef_knode *node, unsigned axes, double *factor)
{
    ef_reducer reducer = ef_attr_reducer(node->attr);
    bool extreme = (reducer == EF_RED_MAX || reducer == EF_RED_MIN) && ef_dtype_is_float((ef_dtype)node->dtype);
    ef_index index[EF_MAP_ENTRIES];
    *factor = 1;
    ef_t_indices(t, frame, ef_kernel_node(t->kernel, node->child[0]), index);
    t_value x = extreme ? ef_t_factored(t, frame, node->child[0], index, factor)
                        : ef_t_element(t, frame, node->child[0], index, false);
    t_type type = ef_t_type((ef_dtype)node->dtype);
    if (x.type < type || x.literal) {
        x.text = ef_t_as(t, x, type);
        x.type = type;
    }
    return ef_t_full(t, frame, ef_t_masked(t, frame, axes, x, ef_reducer_identity(reducer)));
}

/* In parts: a tile of the part's shape collects, and is reduced in the end. */
static t_value in_parts(ef_t *t, const ef_knode *node, t_frame *frame, unsigned axes, uint32_t axis, uint64_t part,
                        double *factor)
{
    ef_reducer reducer = ef_attr_reducer(node->attr);
    t_type type = ef_t_type((ef_dtype)node->dtype);
    const char *sum = ef_t_text(t, "sum_%u", t->counter++);
    t_frame parts = *frame;
    t_value start = {.literal = true, .value = ef_reducer_identity(reducer), .type = type};
    parts.at[ef_t_find(&parts, axis)].pad = part;
    unsigned level = t->level;
    ef_t_line(t, level, "%s = %s", sum, ef_t_full(t, &parts, start).text);
    const char *head = ef_t_open_part(t, axis, part, (t_frame *[]){&parts}, 1);
    t_value x = operand(t, &parts, node, axes, factor);
    ef_t_line(t, t->level, "%s = %s", sum, ef_t_combined(t, reducer, type, sum, x.text));
    ef_t_close(t, head);
    return (t_value){.text = sum, .type = type, .level = level};
}

void ef_t_reduce(ef_t *t, ef_kid id)
{
    ef_knode node = *ef_kernel_node(t->kernel, id);
    const char *given = t->kernel->names.at[id];
    double factor;
    t_frame frame;
    uint64_t part = 0;
    const ef_knode *x = ef_kernel_node(t->kernel, node.child[0]);
    if (!ef_t_own_frame(t, x, &frame))
        return;
    unsigned axes = axes_of_dim(t, &frame, x, ef_attr_reduce_at(node.attr));
    uint32_t axis = ef_t_choose_part(&frame, axes, T_CHUNK_ELEMENTS, &part);
    t_value value = axis == EF_NONE ? operand(t, &frame, &node, axes, &factor)
                                    : in_parts(t, &node, &frame, axes, axis, part, &factor);
    if (ef_t_elements(&frame) > T_MAX_ELEMENTS && axis == EF_NONE) {
        ef_t_too_large(t, "reduced", ef_t_elements(&frame));
        return;
    }
    value.text = ef_t_reduce_axes(t, ef_attr_reducer(node.attr), axes, value.text);
    if (factor != 1)
        value.text = ef_t_text(t, "%s * %s", value.text, ef_t_literal(t, factor, value.type));
    value.text = ef_t_name(t, value.level, given ? ef_t_identifier(t, given) : "reduced", value.text);
    value.zero = 0;
    ef_t_make(t, id, &frame, ~axes, value);
}
