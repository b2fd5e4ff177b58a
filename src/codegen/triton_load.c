/* Loads: through pointers, or through descriptors of matrices, which the copy engine of newer GPUs reads.
 *
 * A descriptor is legal where the tile is a block of a matrix: two axes, one of which is contiguous, whose lengths
 * always fill the tile, at a row and a column that follow from where the tile begins. A tile must not be so small that
 * the next one in shared memory would begin where the copy engine cannot write. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "codegen/triton_print.h"

#define MOST_BLOCK 256u /* extents of a descriptor's block */
#define ALIGNMENT 16u   /* bytes */
#define LEAST_BLOCK 128 /* bytes: tiles of several iterations lie one after the other, each at a multiple of this */

#define MOST_INT 2147483647.0

/* How much a variable below `limit` may add to an index. In a kernel of large buffers that is anything where the
 * variable is divided. */
static double most_of(ef_t *t, ef_index index, ef_index name, uint64_t limit)
{
    int64_t step;
    if (!ef_index_coefficient(t->ix, index, name, &step))
        return t->wide ? HUGE_VAL : 0;
    return fabs((double)step) * (double)(limit - 1);
}

/* Grid positions have 64 bits in a kernel of large buffers, other variables 32. */
ef_index ef_t_wide_index(ef_t *t, const t_frame *frame, ef_index index)
{
    ef_index wide;
    int64_t constant;
    ef_index_is_const(t->ix, index, &constant);
    double most[T_MAX_AXES], all = fabs((double)constant);
    double least = all > MOST_INT / 2 ? 0 : MOST_INT / 2 / T_MAX_AXES; /* so little the others add together */
    for (unsigned i = 0; i < frame->rank; i++)
        all += most[i] = most_of(t, index, frame->at[i].name, frame->at[i].pad);
    for (uint32_t i = 0; t->wide && i < t->scalars.count; i++)
        all += most_of(t, index, t->scalars.at[i].name, t->scalars.at[i].limit);
    if (all <= MOST_INT)
        return index;
    for (unsigned i = 0; i < frame->rank; i++) {
        if (most[i] <= least)
            continue;
        const char *name = ef_t_index(t, frame->at[i].name);
        wide = ef_index_name(t->ix, ef_t_text(t, "%s.to(tl.int64)", name), frame->at[i].pad);
        index = ef_index_rename(t->ix, index, frame->at[i].name, wide);
    }
    for (uint32_t i = 0; t->wide && i < t->scalars.count; i++) {
        t_scalar scalar = t->scalars.at[i];
        if (!ef_index_depends(t->ix, index, scalar.name))
            continue;
        /* A plain number in Triton's interpreter. */
        const char *cast = ef_t_text(t, "tl.cast(%s, tl.int64)", ef_t_index(t, scalar.name));
        wide = ef_index_name(t->ix, ef_t_name(t, scalar.level, "long", cast), scalar.limit);
        index = ef_index_rename(t->ix, index, scalar.name, wide);
    }
    return index;
}

const char *ef_t_pointer(ef_t *t, const t_frame *frame, uint32_t buffer, ef_index address, unsigned *axes,
                         unsigned *level)
{
    ef_index names[T_MAX_AXES];
    *axes = 0;
    for (unsigned i = 0; i < frame->rank; i++) {
        names[i] = frame->at[i].name;
        *axes |= ef_index_depends(t->ix, address, names[i]) ? 1u << i : 0;
    }
    ef_index tile = ef_index_part(t->ix, address, names, frame->rank), scalar = ef_index_sub(t->ix, address, tile);
    const char *name = ef_t_buffer_name(t, buffer);
    unsigned within = ef_t_level(t, tile);
    int64_t constant;
    t->reads[buffer] = true;
    *level = ef_t_level(t, address);
    if (!ef_index_is_const(t->ix, scalar, &constant) || constant != 0)
        name = ef_t_text(t, "%s + (%s)", name, ef_t_index(t, ef_t_wide_index(t, frame, scalar)));
    if (*axes == 0)
        return name;
    return ef_t_text(t, "%s + %s", name,
                     ef_t_name_load(t, within, "off", ef_t_index(t, ef_t_wide_index(t, frame, tile))));
}

/* ---- descriptors ---- */

static const char *coordinate(ef_t *t, ef_index index)
{
    const char *text = ef_t_index(t, index);
    int64_t constant;
    return t->wide && !ef_index_is_const(t->ix, index, &constant) ? ef_t_text(t, "tl.cast(%s, tl.int32)", text) : text;
}

static const char *descriptor_name(ef_t *t, const t_descriptor *wanted)
{
    for (uint32_t i = 0; i < t->out->descriptors.count; i++) {
        const t_descriptor *d = &t->out->descriptors.at[i];
        if (d->buffer == wanted->buffer && d->columns == wanted->columns && d->block_rows == wanted->block_rows &&
            d->block_columns == wanted->block_columns)
            return d->name;
    }
    t_descriptor made = *wanted;
    const char *name = ef_t_text(t, "%s_tiles%" PRIu32, ef_t_identifier(t, t->graph->buffers.at[wanted->buffer].name),
                                 t->out->descriptors.count);
    made.name = ef_arena_strndup(t->out->arena, name, (unsigned)strlen(name));
    ef_vec_push(&t->out->descriptors, made);
    return made.name;
}

/* The load of a block of a matrix; NULL when the tile is none. */
static const char *block(ef_t *t, const t_frame *frame, uint32_t buffer, ef_index address)
{
    uint64_t bytes = ef_dtype_bytes((ef_dtype)t->graph->buffers.at[buffer].dtype);
    int64_t step[2];
    if (!t->descriptors || frame->rank != 2)
        return NULL;
    for (unsigned i = 0; i < 2; i++)
        if (frame->at[i].mask || frame->at[i].pad > MOST_BLOCK ||
            !ef_index_coefficient(t->ix, address, frame->at[i].name, &step[i]))
            return NULL;
    unsigned column = step[1] == 1 ? 1 : 0, row = 1 - column;
    uint64_t columns = (uint64_t)step[row], all = ef_sched_buffer(t->graph, t->schedule, buffer);
    if (step[column] != 1 || step[row] <= 1 || columns * bytes % ALIGNMENT || all % columns ||
        all / columns > INT32_MAX || columns > INT32_MAX || /* coordinates have 32 bits */
        frame->at[column].pad > columns || frame->at[column].pad * bytes < ALIGNMENT ||
        frame->at[0].pad * frame->at[1].pad * bytes < LEAST_BLOCK)
        return NULL;
    ef_index rest = ef_index_sub(t->ix, address, ef_index_scale(t->ix, frame->at[row].name, step[row]));
    rest = ef_index_sub(t->ix, rest, frame->at[column].name);
    ef_index at_row = ef_index_div(t->ix, rest, columns), at_column = ef_index_mod(t->ix, rest, columns);
    if (ef_index_add(t->ix, ef_index_scale(t->ix, at_row, step[row]), at_column) != rest)
        return NULL;
    t_descriptor wanted = {.buffer = buffer, .rows = all / columns, .columns = columns};
    wanted.block_rows = frame->at[row].pad;
    wanted.block_columns = frame->at[column].pad;
    return ef_t_text(t, "%s.load([%s, %s])%s", descriptor_name(t, &wanted), coordinate(t, at_row),
                     coordinate(t, at_column), column == 1 ? "" : ".T");
}

/* ---- loads ---- */

/* Only a kernel's own wait, or its launch when all before it has ended, promises that it sees what was stored before.
 * What is loaded before the wait (`early`), or by a kernel that waits in the end, is read from the second cache: in the
 * first there may be what was there before. */
static const char *load_of(ef_t *t, const char *pointer, const char *mask, bool early)
{
    const char *from = t->beside || early ? ", cache_modifier=\".cg\"" : "";
    return mask ? ef_t_text(t, "tl.load(%s, mask=%s, other=0%s)", pointer, mask, from)
                : ef_t_text(t, "tl.load(%s%s)", pointer, from);
}

#define FEW 4u /* elements a thread, which may lie in registers while loops run */

/* Whether a tile that varies along these axes is loaded before all else. */
static bool is_early(const ef_t *t, const t_frame *frame, unsigned axes)
{
    uint64_t threads = 32 * ef_sched_value(t->graph, t->schedule, t->number, EF_PARAM_WARPS), elements = 1;
    for (unsigned i = 0; i < frame->rank; i++)
        elements *= axes >> i & 1 ? frame->at[i].pad : 1;
    return !t->looping || elements <= FEW * threads;
}

t_value ef_t_load(ef_t *t, const t_frame *frame, const ef_knode *node, const ef_index *index)
{
    uint32_t buffer = (uint32_t)node->attr;
    ef_index address = ef_map_address(&t->maps, buffer, node, NULL, 0, index);
    t_value value = {.type = ef_t_type((ef_dtype)node->dtype)};
    const char *base = ef_t_identifier(t, t->graph->buffers.at[buffer].name), *text = block(t, frame, buffer, address);
    bool input = t->graph->buffers.at[buffer].kind == EF_BUFFER_INPUT;
    unsigned masked = 0;
    if (text) {
        value.axes = (1u << frame->rank) - 1;
        value.level = ef_t_level(t, address);
    } else {
        const char *pointer = ef_t_pointer(t, frame, buffer, address, &value.axes, &value.level);
        const char *mask = ef_t_mask(t, frame, value.axes, &masked);
        value.level = masked > value.level ? masked : value.level;
        text = load_of(t, pointer, mask, t->ahead && input && value.level == 0 && is_early(t, frame, value.axes));
    }
    if (!is_early(t, frame, value.axes))
        value.text = ef_t_name(t, value.level, base, text);
    else if (input)
        value.text = ef_t_name_load(t, value.level, base, text);
    else
        value.text = ef_t_name_stored(t, value.level, base, text);
    value.zero = value.axes;
    return value;
}

ef_kid ef_t_below(ef_t *t, ef_kid id)
{
    const ef_knode *node = ef_kernel_node(t->kernel, id);
    while (!t->node[id].made && node->count == 1 &&
           (node->op == EF_VIEW || node->op == EF_TRANSPOSE || node->op == EF_RESHAPE || node->op == EF_SLICE ||
            node->op == EF_BROADCAST || node->op == EF_K_PICK)) {
        id = node->child[0];
        node = ef_kernel_node(t->kernel, id);
    }
    return id;
}

ef_kid ef_t_stored(ef_t *t, ef_kid id)
{
    id = ef_t_below(t, id);
    return ef_kernel_node(t->kernel, id)->op == EF_K_BUFFER ? id : EF_NONE;
}

t_value ef_t_load_row(ef_t *t, const t_frame *frame, ef_kid id, const ef_index *index)
{
    ef_index inner[EF_MAP_ENTRIES] = {0}, copy[EF_MAP_ENTRIES];
    const char *row = t->axes.at[ef_t_extra_rows(t)].name;
    t_value value = {.type = T_FLOAT};
    unsigned masked;
    while (ef_map_step(&t->maps, id, index, &id, inner)) {
        memcpy(copy, inner, sizeof copy);
        index = copy;
    }
    const ef_knode *node = ef_kernel_node(t->kernel, id);
    uint32_t buffer = (uint32_t)node->attr;
    const char *pointer = ef_t_pointer(t, frame, buffer, ef_map_address(&t->maps, buffer, node, NULL, 0, index),
                                       &value.axes, &value.level);
    const char *mask = ef_t_mask(t, frame, value.axes, &masked);
    value.level = masked > value.level ? masked : value.level;
    const char *first = ef_t_text(t, "%s[:, None] == 0", row);
    if (mask)
        first = ef_t_text(t, "(%s) & %s[None, :]", first, mask);
    pointer = ef_t_text(t, "tl.broadcast_to((%s)[None, :], [%u, %" PRIu64 "])", pointer, T_LEAST_DOT, frame->at[0].pad);
    value.text = ef_t_name(t, value.level, ef_t_identifier(t, t->graph->buffers.at[buffer].name),
                           load_of(t, pointer, first, false));
    return value;
}
