/* Axes of tiles, and frames: see triton_print.h. */
#include <inttypes.h>
#include <string.h>

#include "codegen/triton_print.h"

static uint64_t power_of_two(uint64_t at_least)
{
    uint64_t power = 1;
    while (power < at_least)
        power *= 2;
    return power;
}

/* The axis of a variable under a cut, made when it is first asked for. EF_NONE when it has one position. */
static uint32_t axis_of(ef_t *t, ef_var var, uint32_t cut, unsigned nth)
{
    const t_iter *iter = cut == EF_NONE ? NULL : &t->iter[cut];
    uint64_t room = iter ? iter->room : ef_sched_var(t->graph, t->schedule, var);
    if (room == 1)
        return EF_NONE;
    for (uint32_t i = 0; i < t->axes.count; i++)
        if (t->axes.at[i].var == var && t->axes.at[i].cut == cut && t->axes.at[i].nth == nth)
            return i;
    t_axis axis = {.var = var, .cut = cut, .nth = nth, .room = room, .pad = power_of_two(room)};
    axis.name = ef_t_text(t, "i_%s_%" PRIu32, ef_t_var_name(t, var), t->axes.count);
    ef_vec_push(&t->axes, axis);
    return t->axes.count - 1;
}

unsigned ef_t_axes(ef_t *t, const ef_knode *node, uint32_t axis[EF_MAP_ENTRIES])
{
    ef_var seen[EF_MAP_ENTRIES];
    uint32_t cuts[EF_MAP_ENTRIES];
    unsigned n = 0;
    for (unsigned i = node->rank; i-- > 0;) {
        const ef_var *vars;
        unsigned count = ef_dim_atoms(t->graph->ctx, node->dim[i].dim, &vars);
        for (unsigned a = 0; a < count; a++, n++) {
            unsigned nth = 0;
            seen[n] = vars[a];
            cuts[n] = a == 0 ? node->dim[i].cut : EF_NONE;
            while (cuts[n] != EF_NONE && !t->iter[cuts[n]].name) /* its one tile is all that it divides */
                cuts[n] = t->kernel->iters.at[cuts[n]].outer;
            for (unsigned j = 0; j < n; j++)
                nth += seen[j] == seen[n] && cuts[j] == cuts[n];
            axis[n] = axis_of(t, vars[a], cuts[n], nth);
        }
    }
    return n;
}

void ef_t_entry_dims(ef_t *t, const ef_knode *node, unsigned dim[EF_MAP_ENTRIES])
{
    unsigned n = 0;
    for (unsigned i = node->rank; i-- > 0;) {
        const ef_var *vars;
        for (unsigned a = 0, count = ef_dim_atoms(t->graph->ctx, node->dim[i].dim, &vars); a < count; a++)
            dim[n++] = i;
    }
}

const char *ef_t_spread(ef_t *t, const char *text, unsigned rank, unsigned place)
{
    ef_strbuf out = {0};
    if (rank < 2)
        return text;
    ef_strbuf_printf(&out, "%s[", text);
    for (unsigned i = 0; i < rank; i++)
        ef_strbuf_printf(&out, "%s%s", i ? ", " : "", i == place ? ":" : "None");
    ef_strbuf_puts(&out, "]");
    const char *copy = ef_t_text(t, "%s", out.text);
    ef_strbuf_free(&out);
    return copy;
}

/* What is true inside the axis, of positions along it. */
static const char *mask_of(ef_t *t, const t_axis *axis, const char *position, uint64_t pad, unsigned *level)
{
    const char *len = axis->cut == EF_NONE ? NULL : ef_t_iter_len(t, axis->cut, level);
    if (len)
        return ef_t_text(t, "%s < %s", position, len);
    *level = 0;
    return axis->room % pad == 0 ? NULL : ef_t_text(t, "%s < %" PRIu64, position, axis->room);
}

/* Aranges are printed at the top, once. */
static void print_arange(ef_t *t, uint32_t at)
{
    t_axis *axis = &t->axes.at[at];
    if (!axis->printed)
        ef_t_line_load(t, ef_t_text(t, "%s = tl.arange(0, %" PRIu64 ")", axis->name, axis->pad));
    axis->printed = true;
}

bool ef_t_frame(ef_t *t, const uint32_t *axis, unsigned count, t_frame *frame)
{
    *frame = (t_frame){0};
    for (unsigned i = 0; i < count; i++)
        frame->rank += axis[i] != EF_NONE;
    if (frame->rank > T_MAX_AXES)
        return ef_t_fail(t, "a tile has more than %u axes", T_MAX_AXES);
    for (unsigned i = 0, place = 0; i < count; i++) {
        if (axis[i] == EF_NONE)
            continue;
        print_arange(t, axis[i]);
        const t_axis *a = &t->axes.at[axis[i]];
        t_span *span = &frame->at[place];
        *span = (t_span){.axis = axis[i], .pad = a->pad};
        span->name = ef_index_name(t->ix, ef_t_spread(t, a->name, frame->rank, place), a->room);
        span->index = span->name;
        span->mask = mask_of(t, a, a->name, a->pad, &span->level);
        place++;
    }
    return true;
}

bool ef_t_own_frame(ef_t *t, const ef_knode *node, t_frame *frame)
{
    uint32_t axis[EF_MAP_ENTRIES];
    unsigned count = ef_t_axes(t, node, axis);
    return ef_t_frame(t, axis, count, frame);
}

unsigned ef_t_find(const t_frame *frame, uint32_t axis)
{
    for (unsigned i = 0; i < frame->rank; i++)
        if (frame->at[i].axis == axis)
            return i;
    return T_MAX_AXES;
}

void ef_t_indices(ef_t *t, const t_frame *frame, const ef_knode *node, ef_index *index)
{
    uint32_t axis[EF_MAP_ENTRIES];
    for (unsigned i = 0, n = ef_t_axes(t, node, axis); i < n; i++) {
        unsigned place = axis[i] == EF_NONE ? T_MAX_AXES : ef_t_find(frame, axis[i]);
        index[i] = place == T_MAX_AXES ? ef_index_const(t->ix, 0) : frame->at[place].index;
    }
}

uint64_t ef_t_elements(const t_frame *frame)
{
    uint64_t product = 1;
    for (unsigned i = 0; i < frame->rank; i++)
        product = ef_sched_times(product, frame->at[i].pad);
    return product;
}

const char *ef_t_shape(ef_t *t, const t_frame *frame, unsigned axes)
{
    ef_strbuf out = {0};
    ef_strbuf_puts(&out, "[");
    for (unsigned i = 0, any = 0; i < frame->rank; i++)
        if (axes >> i & 1)
            ef_strbuf_printf(&out, "%s%" PRIu64, any++ ? ", " : "", frame->at[i].pad);
    ef_strbuf_puts(&out, "]");
    const char *copy = ef_t_text(t, "%s", out.text);
    ef_strbuf_free(&out);
    return copy;
}

const char *ef_t_mask(ef_t *t, const t_frame *frame, unsigned axes, unsigned *level)
{
    const char *all = NULL;
    *level = 0;
    for (unsigned i = 0; i < frame->rank; i++) {
        const t_span *span = &frame->at[i];
        if (!(axes >> i & 1) || !span->mask)
            continue;
        const char *name = ef_t_name_load(t, span->level, "in", span->mask);
        const char *one = ef_t_spread(t, name, frame->rank, i);
        all = all ? ef_t_text(t, "%s & %s", all, one) : one;
        *level = span->level > *level ? span->level : *level;
    }
    return all;
}

uint32_t ef_t_choose_part(const t_frame *frame, unsigned axes, uint64_t most, uint64_t *part)
{
    uint32_t best = EF_NONE;
    uint64_t all = ef_t_elements(frame), largest = 1;
    for (unsigned i = 0; i < frame->rank; i++)
        if ((axes >> i & 1) && frame->at[i].pad > largest) {
            largest = frame->at[i].pad;
            best = frame->at[i].axis;
        }
    if (all <= most || best == EF_NONE)
        return EF_NONE;
    for (*part = largest; all > most && *part > T_LEAST_DOT; all /= 2)
        *part /= 2;
    return *part == largest ? EF_NONE : best;
}

const char *ef_t_open_part(ef_t *t, uint32_t axis, uint64_t part, t_frame *const *frame, unsigned frames)
{
    const t_axis *whole = &t->axes.at[axis];
    unsigned level;
    const char *at = ef_t_text(t, "part_%u", t->counter++), *range = ef_t_text(t, "i_part_%u", t->counter++);
    const char *len = whole->cut == EF_NONE ? NULL : ef_t_iter_len(t, whole->cut, &level);
    ef_t_line_load(t, ef_t_text(t, "%s = tl.arange(0, %" PRIu64 ")", range, part));
    ef_t_open(t);
    ef_index first = ef_index_name(t->ix, at, whole->room);
    ef_t_scalar(t, first, whole->room);
    for (unsigned f = 0; f < frames; f++) {
        unsigned place = ef_t_find(frame[f], axis);
        if (place == T_MAX_AXES)
            continue;
        t_span *span = &frame[f]->at[place];
        span->pad = part;
        span->name = ef_index_name(t->ix, ef_t_spread(t, range, frame[f]->rank, place), part);
        span->index = ef_index_add(t->ix, first, span->name);
        span->mask = mask_of(t, whole, ef_t_text(t, "%s + %s", at, range), part, &level);
        span->level = t->level;
    }
    if (!len)
        len = ef_t_text(t, "%" PRIu64, whole->room);
    return ef_t_text(t, "for %s in tl.range(0, %s, %" PRIu64 "):", at, len, part);
}

uint32_t ef_t_extra_rows(ef_t *t)
{
    for (uint32_t i = 0; i < t->axes.count; i++)
        if (t->axes.at[i].var == EF_NONE)
            return i;
    t_axis axis = {.var = EF_NONE, .cut = EF_NONE, .room = 1, .pad = T_LEAST_DOT, .name = "i_row"};
    ef_vec_push(&t->axes, axis);
    return t->axes.count - 1;
}
