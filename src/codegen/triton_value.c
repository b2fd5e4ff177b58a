/* Elements of values as expressions on tiles: see triton_print.h. Every value that is computed gets a name, once while
 * the loop that it depends on is open. */
#include <inttypes.h>
#include <string.h>

#include "codegen/triton_print.h"

static unsigned all_axes(const t_frame *frame)
{
    return (1u << frame->rank) - 1u;
}

/* Floats are computed in at least 32 bits. */
static t_value widened(ef_t *t, const ef_knode *node, t_value value)
{
    ef_dtype stored = (ef_dtype)t->graph->buffers.at[node->attr].dtype; /* may be narrower than the node's */
    if (stored == EF_F16 || stored == EF_BF16)
        value.text = ef_t_name(t, value.level, ef_t_identifier(t, t->graph->buffers.at[node->attr].name),
                               ef_t_text(t, "%s.to(tl.float32)", value.text));
    return value;
}

/* ---- positions and parts ---- */

static unsigned axes_of(ef_t *t, const t_frame *frame, ef_index at)
{
    unsigned axes = 0;
    for (unsigned i = 0; i < frame->rank; i++)
        axes |= ef_index_depends(t->ix, at, frame->at[i].name) ? 1u << i : 0;
    return axes;
}

static t_value positions(ef_t *t, const t_frame *frame, const ef_knode *node, const ef_index *index)
{
    ef_index at = ef_map_position(&t->maps, node->dim[0].dim, index);
    bool narrow = ef_sched_dim(t->graph, t->schedule, node->dim[0].dim) < (UINT64_C(1) << 31);
    int64_t constant;
    if (ef_index_is_const(t->ix, at, &constant))
        return ef_t_constant((double)constant);
    t_value value = {.type = narrow ? T_INT : T_LONG, .axes = axes_of(t, frame, at), .level = ef_t_level(t, at)};
    const char *text = ef_t_index(t, ef_t_wide_index(t, frame, at));
    value.text = ef_t_name_load(t, value.level, "at",
                                !narrow && value.axes ? ef_t_text(t, "(%s).to(tl.int64)", text)
                                : narrow && t->wide   ? ef_t_text(t, "tl.cast(%s, tl.int32)", text)
                                                      : text);
    return value;
}

/* The part that the position lies in. Each part is read at a legal index, whichever is chosen. */
static t_value concat(ef_t *t, const t_frame *frame, const ef_knode *node, const ef_index *index)
{
    unsigned dim = (unsigned)node->attr;
    ef_index position = ef_map_position(&t->maps, node->dim[dim].dim, index + ef_map_dim_at(&t->maps, node, dim)),
             start = ef_index_const(t->ix, 0);
    t_type type = ef_t_type((ef_dtype)node->dtype);
    t_value all = {0};
    for (unsigned i = 0; i < node->count; i++) {
        const ef_knode *part = ef_kernel_node(t->kernel, node->child[i]);
        uint64_t extent = ef_sched_dim(t->graph, t->schedule, part->dim[dim].dim);
        ef_index inner[EF_MAP_ENTRIES] = {0}, local = ef_index_sub(t->ix, position, start);
        if (node->count > 1)
            local = ef_index_clamp(t->ix, local, extent);
        ef_map_replace(&t->maps, node, part, dim, local, index, inner);
        t_value one = ef_t_element(t, frame, node->child[i], inner, false);
        if (i == 0) {
            all = one;
        } else {
            unsigned level = ef_t_level(t, position);
            const char *at = ef_t_index(t, ef_t_wide_index(t, frame, position));
            const char *text = ef_t_text(t, "tl.where(%s < %s, %s, %s)", at, ef_t_index(t, start),
                                         ef_t_as(t, all, type), ef_t_as(t, one, type));
            level = all.level > level ? all.level : level;
            level = one.level > level ? one.level : level;
            all = (t_value){.type = type, .axes = all.axes | one.axes | axes_of(t, frame, position), .level = level};
            all.text = ef_t_name(t, level, "part", text);
        }
        start = ef_index_add(t->ix, start, ef_index_const(t->ix, (int64_t)extent));
    }
    return all;
}

/* ---- computed tiles ---- */

/* The place in the frame along which a tile's own axis lies; T_MAX_AXES when the tile is read otherwise. */
static unsigned place_of(const ef_t *t, const t_frame *frame, uint32_t own, const uint32_t *axis, unsigned entries,
                         const ef_index *index)
{
    for (unsigned e = 0; e < entries; e++) {
        if (axis[e] != own)
            continue;
        for (unsigned i = 0; i < frame->rank; i++)
            if (frame->at[i].name == index[e] && frame->at[i].pad == t->axes.at[own].pad)
                return i;
        return T_MAX_AXES;
    }
    return ef_t_find(frame, own); /* what is still to be added up has axes of its own */
}

/* Text of a tile whose axes lie at these places. */
static const char *placed(ef_t *t, const t_frame *frame, const t_node *node, const unsigned *place, unsigned *level)
{
    const char *text = node->value.text;
    unsigned order[T_MAX_AXES], sorted = true;
    for (unsigned i = 0; i < node->rank; i++) {
        unsigned before = 0;
        for (unsigned j = 0; j < node->rank; j++)
            before += place[j] < place[i];
        order[before] = i;
        sorted = sorted && before == i;
    }
    ef_strbuf out = {0};
    *level = node->value.level;
    if (!sorted) {
        ef_strbuf_printf(&out, "tl.permute(%s, (", text);
        for (unsigned i = 0; i < node->rank; i++)
            ef_strbuf_printf(&out, "%s%u", i ? ", " : "", order[i]);
        ef_strbuf_puts(&out, "))");
        const char *turned = ef_t_view(t, *level, "turned", text, out.text);
        text = turned == out.text ? ef_t_name(t, *level, "turned", out.text) : turned;
        out.length = 0;
    }
    if (node->rank < frame->rank && node->rank > 0) {
        ef_strbuf_printf(&out, "%s[", text);
        for (unsigned i = 0; i < frame->rank; i++) {
            bool has = false;
            for (unsigned j = 0; j < node->rank; j++)
                has = has || place[j] == i;
            ef_strbuf_printf(&out, "%s%s", i ? ", " : "", has ? ":" : "None");
        }
        ef_strbuf_puts(&out, "]");
        text = ef_t_view(t, *level, "spread", text, ef_t_text(t, "%s", out.text));
    }
    ef_strbuf_free(&out);
    return text;
}

/* The index of a tile's own axis where the tile is not read from its beginning, element by element: the tile is
 * gathered along the axis first, or the one element is taken out. What is masked may lie outside of the tile, and reads
 * an element at its edge. `node` is a copy that becomes what is read. */
static bool gather(ef_t *t, const t_frame *frame, t_node *node, unsigned own, ef_index at, unsigned *place)
{
    unsigned axes = axes_of(t, frame, at), level = ef_t_level(t, at);
    const t_axis *axis = &t->axes.at[node->axis[own]];
    ef_strbuf one = {0}, all = {0};
    *place = T_MAX_AXES;
    for (unsigned i = 0; i < frame->rank; i++)
        *place = axes == 1u << i ? i : *place;
    if (axes && *place == T_MAX_AXES)
        return ef_t_fail(t, "a computed tile is read along two axes at once");
    node->value.level = level > node->value.level ? level : node->value.level;
    for (unsigned i = 0; i < node->rank; i++) {
        uint64_t pad = i == own && axes ? frame->at[*place].pad : t->axes.at[node->axis[i]].pad;
        ef_strbuf_printf(&one, "%s%" PRIu64, i ? ", " : "", i == own ? pad : 1);
        ef_strbuf_printf(&all, "%s%" PRIu64, i ? ", " : "", pad);
    }
    const char *text;
    if (axes)
        text = ef_t_text(t,
                         "tl.gather(%s, tl.broadcast_to(tl.reshape(tl.minimum(tl.maximum(%s, 0), %" PRIu64
                         "), [%s]), [%s]), axis=%u)",
                         node->value.text, ef_t_index(t, at), axis->pad - 1, one.text, all.text, own);
    else
        text = ef_t_text(t, "tl.sum(tl.where(%s == %s, %s, 0), axis=%u)", ef_t_spread(t, axis->name, node->rank, own),
                         ef_t_index(t, at), node->value.text, own);
    node->value.text = ef_t_name(t, node->value.level, "taken", text);
    ef_strbuf_free(&one);
    ef_strbuf_free(&all);
    return true;
}

static t_value read_tile(ef_t *t, const t_frame *frame, ef_kid id, const ef_index *index)
{
    t_node node = t->node[id]; /* changes while axes are gathered */
    uint32_t axis[EF_MAP_ENTRIES];
    unsigned entries = ef_t_axes(t, ef_kernel_node(t->kernel, id), axis), place[T_MAX_AXES], axes = 0;
    for (unsigned i = 0; i < node.rank && !node.value.literal;) {
        unsigned entry = 0;
        place[i] = place_of(t, frame, node.axis[i], axis, entries, index);
        while (entry < entries && axis[entry] != node.axis[i])
            entry++;
        if (place[i] == T_MAX_AXES && (entry == entries || !gather(t, frame, &node, i, index[entry], &place[i]))) {
            ef_t_fail(t, "%s, a computed tile, is read in parts", ef_knode_op_name(ef_kernel_node(t->kernel, id)));
            return ef_t_constant(0);
        }
        if (place[i] == T_MAX_AXES) { /* one element was taken out */
            memmove(node.axis + i, node.axis + i + 1, (--node.rank - i) * sizeof *node.axis);
            continue;
        }
        if (axes >> place[i] & 1) {
            ef_t_fail(t, "a computed tile is read along a diagonal");
            return ef_t_constant(0);
        }
        axes |= 1u << place[i++];
    }
    t_value value = node.value;
    value.zero = 0;
    value.axes = axes;
    if (!value.literal)
        value.text = placed(t, frame, &node, place, &value.level);
    return value;
}

void ef_t_make(ef_t *t, ef_kid id, const t_frame *frame, unsigned keep, t_value value)
{
    t_node *node = &t->node[id];
    node->made = true;
    node->value = value;
    node->rank = 0;
    for (unsigned i = 0; i < frame->rank && !value.literal; i++)
        if (keep >> i & 1)
            node->axis[node->rank++] = frame->at[i].axis;
}

t_value ef_t_full(ef_t *t, const t_frame *frame, t_value value)
{
    unsigned all = all_axes(frame);
    const char *shape = ef_t_shape(t, frame, all);
    if (value.literal)
        value.text = ef_t_text(t, "tl.full(%s, %s, %s)", shape, ef_t_literal(t, value.value, value.type),
                               ef_t_type_names[value.type]);
    else if (value.axes != all)
        value.text =
            ef_t_text(t, "tl.broadcast_to(%s, %s)", value.axes ? value.text : ef_t_text(t, "%s", value.text), shape);
    value.literal = false;
    value.axes = all;
    return value;
}

t_value ef_t_masked(ef_t *t, const t_frame *frame, unsigned axes, t_value value, double identity)
{
    unsigned level, wanted = identity == 0 ? axes & ~value.zero : axes;
    const char *mask = ef_t_mask(t, frame, wanted, &level);
    if (!mask || (value.literal && value.value == identity))
        return value;
    for (unsigned i = 0; i < frame->rank; i++)
        value.axes |= (wanted >> i & 1) && frame->at[i].mask ? 1u << i : 0;
    const char *text = ef_t_text(t, "tl.where(%s, %s, %s)", mask, ef_t_as(t, value, value.type),
                                 ef_t_literal(t, identity, value.type));
    value.level = level > value.level ? level : value.level;
    value.text = ef_t_name(t, value.level, "inside", text);
    value.literal = false;
    return value;
}

/* ---- elements ---- */

/* A row that is divided by one number is multiplied by its inverse: a division takes the time of a special function,
 * and each warp divides for itself where the quotients are an operand of a product. The inverse of a tiny number would
 * be infinite, so divisors below 1e-30 and their rows are scaled by 1e30. */
static bool divide_row(ef_t *t, const t_frame *frame, const ef_knode *node, const char *base, const t_value x[2],
                       t_value *value)
{
    uint64_t quotients = 1;
    if (x[0].literal || x[1].literal || x[0].type != T_FLOAT || x[1].type != T_FLOAT ||
        ef_t_type((ef_dtype)node->dtype) > T_FLOAT)
        return false;
    for (unsigned i = 0; i < frame->rank; i++)
        quotients *= x[0].axes & ~x[1].axes & 1u << i ? frame->at[i].pad : 1;
    if (quotients < EF_QUOTIENTS)
        return false;
    unsigned level = x[1].level;
    const char *y = x[1].text;
    const char *scale = ef_t_name(t, level, "scale", ef_t_text(t, "tl.where(tl.abs(%s) < 1e-30, 1e30, 1.0)", y));
    const char *inverse = ef_t_name(t, level, "inverse", ef_t_text(t, "1.0 / (%s * %s)", y, scale));
    *value =
        (t_value){.axes = x[0].axes | x[1].axes, .level = x[0].level > level ? x[0].level : level, .type = T_FLOAT};
    value->text = ef_t_name(t, value->level, base, ef_t_text(t, "%s * %s * %s", x[0].text, scale, inverse));
    return true;
}

static t_value compute(ef_t *t, const t_frame *frame, ef_kid id, const ef_index *index, bool raw)
{
    const ef_knode *node = ef_kernel_node(t->kernel, id);
    ef_index inner[EF_MAP_ENTRIES] = {0};
    ef_kid child;
    if (t->node[id].made)
        return read_tile(t, frame, id, index);
    if (ef_map_step(&t->maps, id, index, &child, inner))
        return ef_t_element(t, frame, child, inner, raw);
    if (node->op == EF_K_BUFFER) {
        t_value value = ef_t_load(t, frame, node, index);
        return raw ? value : widened(t, node, value);
    }
    if (node->op == EF_CONST)
        return ef_t_constant(ef_attr_to_number(node->attr));
    if (node->op == EF_IOTA)
        return positions(t, frame, node, index);
    if (node->op == EF_CONCAT)
        return concat(t, frame, node, index);
    if (node->op >= EF_OP_COUNT || !ef_op_pointwise((ef_op)node->op)) {
        ef_t_fail(t, "a %s is read before it is computed", ef_knode_op_name(node));
        return ef_t_constant(0);
    }
    t_value x[3] = {{0}}, value;
    if (ef_t_exp(t, frame, node, index, &value) || ef_t_guarded(t, frame, node, index, &value))
        return value;
    for (unsigned i = 0; i < node->count; i++) {
        ef_map_spread(&t->maps, node, ef_kernel_node(t->kernel, node->child[i]), index, inner);
        x[i] = ef_t_element(t, frame, node->child[i], inner, raw);
    }
    const char *given = t->kernel->names.at[id], *base = given ? ef_t_identifier(t, given) : ef_knode_op_name(node);
    if (node->op == EF_DIV && divide_row(t, frame, node, base, x, &value))
        return value;
    return ef_t_pointwise(t, node, base, x);
}

/* A pointwise value that lacks axes of the frame is computed in a frame of its own axes, and seen from there: so it is
 * computed once for all frames. False when it is not such a value, or not read as it is. */
static bool in_own_frame(ef_t *t, const t_frame *frame, ef_kid id, const ef_index *index, bool raw, t_value *value)
{
    const ef_knode *node = ef_kernel_node(t->kernel, id);
    uint32_t axis[EF_MAP_ENTRIES];
    unsigned entries = ef_t_axes(t, node, axis), own = 0;
    t_node tile = {0};
    for (unsigned i = 0; i < entries; i++)
        own += axis[i] != EF_NONE;
    if (own >= frame->rank || t->node[id].spread || node->op >= EF_OP_COUNT || !ef_op_pointwise((ef_op)node->op))
        return false;
    t_frame small;
    unsigned place[T_MAX_AXES];
    ef_index own_index[EF_MAP_ENTRIES];
    if (!ef_t_frame(t, axis, entries, &small))
        return false;
    for (unsigned i = 0; i < small.rank; i++) {
        place[i] = place_of(t, frame, small.at[i].axis, axis, entries, index);
        if (place[i] == T_MAX_AXES || (i > 0 && place[i] < place[i - 1]))
            return false;
    }
    ef_t_indices(t, &small, node, own_index);
    *value = ef_t_element(t, &small, id, own_index, raw);
    tile.value = *value;
    for (unsigned i = 0; i < small.rank; i++)
        if (value->axes >> i & 1)
            place[tile.rank++] = place[i];
    if (value->literal || tile.rank == 0)
        return true;
    if (tile.rank != small.rank) /* of length 1 along an axis */
        return false;
    value->axes = 0;
    for (unsigned i = 0; i < small.rank; i++)
        value->axes |= 1u << place[i];
    value->zero = 0;
    value->text = placed(t, frame, &tile, place, &value->level);
    return true;
}

t_value ef_t_element(ef_t *t, const t_frame *frame, ef_kid id, const ef_index *index, bool raw)
{
    const ef_knode *node = ef_kernel_node(t->kernel, id);
    uint32_t key[EF_MAP_ENTRIES + 2] = {id, raw}, axis[EF_MAP_ENTRIES];
    unsigned n = ef_t_axes(t, node, axis);
    if (t->node[id].assumed)
        return ef_t_constant(1);
    if (t->node[id].made || node->op == EF_CONST)
        return compute(t, frame, id, index, raw);
    memcpy(key + 2, index, n * sizeof *key);
    uint32_t at = ef_t_recall(t, &t->elements, key, (n + 2) * sizeof *key);
    if (t->elements.value.at[at].text)
        return t->elements.value.at[at];
    t_value value;
    if (!in_own_frame(t, frame, id, index, raw, &value))
        value = compute(t, frame, id, index, raw);
    if (!value.literal)
        ef_t_remember(t, &t->elements, at, value);
    return value;
}

t_value ef_t_value(ef_t *t, const t_frame *frame, ef_kid id)
{
    ef_index index[EF_MAP_ENTRIES];
    ef_t_indices(t, frame, ef_kernel_node(t->kernel, id), index);
    return ef_t_element(t, frame, id, index, false);
}
