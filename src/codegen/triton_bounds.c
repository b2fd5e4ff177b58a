/* Where masked loops begin and end: intervals of positions, from interval arithmetic over the positions of a tile.
 *
 * A condition is taken apart into comparisons. Each side of a comparison is affine in the positions of the tile and in
 * where tiles begin; its least and greatest value over the tile are indices again. That the comparison may hold
 * somewhere is then an inequality in where the loop's tile begins, hence an interval of it. What is not made of
 * positions and literals may hold anywhere.
 *
 * A loop visits only tiles in which its condition may hold. Where the condition holds everywhere in a tile, nothing is
 * masked: those tiles are a segment of their own. */
#include <inttypes.h>
#include <math.h>

#include "codegen/triton_print.h"

#define MAX_VISITS 1000u /* of shared values, which may be reached along very many paths */
#define MAX_INTERVALS 4u

typedef struct {
    bool from, to;      /* whether it has these ends */
    ef_index low, high; /* low <= v < high */
} interval;

/* A union of intervals. */
typedef struct {
    unsigned count;
    interval at[MAX_INTERVALS];
} intervals;

typedef struct {
    bool known;
    ef_index low, high;
} range;

typedef struct {
    ef_t *t;
    ef_index variable; /* where the loop's tile begins */
    unsigned entries, visits;
    ef_index name[EF_MAP_ENTRIES]; /* the positions in the tile, below their rooms */
    uint64_t room[EF_MAP_ENTRIES];
} question;

static const intervals anywhere = {1, {{0}}};

/* ---- sets ---- */

static ef_index least(ef_t *t, ef_index a, ef_index b, bool smallest, bool *known)
{
    int64_t difference;
    *known = ef_index_is_const(t->ix, ef_index_sub(t->ix, a, b), &difference);
    return (difference < 0) == smallest ? a : b;
}

/* An end that is not known to be the tighter one is left out: the set may be too large, never too small. */
static interval both(ef_t *t, interval a, interval b)
{
    interval out = {a.from || b.from, a.to || b.to, a.from ? a.low : b.low, a.to ? a.high : b.high};
    bool known;
    if (a.from && b.from) {
        ef_index low = least(t, a.low, b.low, false, &known);
        out.low = known ? low : a.low;
    }
    if (a.to && b.to) {
        ef_index high = least(t, a.high, b.high, true, &known);
        out.high = known ? high : a.high;
    }
    return out;
}

static intervals meet(ef_t *t, const intervals *a, const intervals *b)
{
    intervals out = {0};
    if (a->count * b->count > MAX_INTERVALS)
        return *a;
    for (unsigned i = 0; i < a->count; i++)
        for (unsigned j = 0; j < b->count; j++)
            out.at[out.count++] = both(t, a->at[i], b->at[j]);
    return out;
}

static intervals join(const intervals *a, const intervals *b)
{
    intervals out = *a;
    if (a->count + b->count > MAX_INTERVALS)
        return anywhere;
    for (unsigned i = 0; i < b->count; i++)
        out.at[out.count++] = b->at[i];
    for (unsigned i = 0; i < out.count; i++)
        if (!out.at[i].from && !out.at[i].to)
            return anywhere;
    return out;
}

/* ---- ranges ---- */

static range range_of_index(question *q, ef_index at)
{
    ef_indexer *ix = q->t->ix;
    range r = {true, at, at};
    for (unsigned i = 0; i < q->entries; i++) {
        int64_t step;
        if (!ef_index_coefficient(ix, at, q->name[i], &step))
            return (range){0};
        ef_index least_at = ef_index_const(ix, step < 0 ? step * (int64_t)(q->room[i] - 1) : 0);
        ef_index most_at = ef_index_const(ix, step > 0 ? step * (int64_t)(q->room[i] - 1) : 0);
        ef_index moved = ef_index_scale(ix, q->name[i], step);
        r.low = ef_index_add(ix, ef_index_sub(ix, r.low, moved), least_at);
        r.high = ef_index_add(ix, ef_index_sub(ix, r.high, moved), most_at);
    }
    return r;
}

static range range_of(question *q, ef_kid id, const ef_index *index)
{
    ef_t *t = q->t;
    const ef_knode *node = ef_kernel_node(t->kernel, id);
    ef_index inner[EF_MAP_ENTRIES] = {0};
    range r[2] = {{0}, {0}};
    ef_kid child;
    if (q->visits++ >= MAX_VISITS)
        return r[0];
    if (ef_map_step(&t->maps, id, index, &child, inner))
        return range_of(q, child, inner);
    if (node->op == EF_IOTA)
        return range_of_index(q, ef_map_position(&t->maps, node->dim[0].dim, index));
    if (node->op == EF_CONST) {
        double value = ef_attr_to_number(node->attr);
        ef_index constant = ef_index_const(t->ix, fabs(value) < 1e15 ? (int64_t)value : 0);
        return (range){fabs(value) < 1e15 && value == floor(value), constant, constant};
    }
    if (node->op != EF_ADD && node->op != EF_SUB && node->op != EF_NEG)
        return r[0];
    for (unsigned i = 0; i < node->count; i++) {
        ef_map_spread(&t->maps, node, ef_kernel_node(t->kernel, node->child[i]), index, inner);
        r[i] = range_of(q, node->child[i], inner);
    }
    if (node->op == EF_NEG)
        return (range){r[0].known, ef_index_scale(t->ix, r[0].high, -1), ef_index_scale(t->ix, r[0].low, -1)};
    if (!r[0].known || !r[1].known)
        return (range){0};
    if (node->op == EF_ADD)
        return (range){true, ef_index_add(t->ix, r[0].low, r[1].low), ef_index_add(t->ix, r[0].high, r[1].high)};
    return (range){true, ef_index_sub(t->ix, r[0].low, r[1].high), ef_index_sub(t->ix, r[0].high, r[1].low)};
}

/* ---- conditions ---- */

/* Where `value` is at least 0. */
static intervals not_negative(question *q, ef_index value)
{
    ef_indexer *ix = q->t->ix;
    int64_t step;
    if (!ef_index_coefficient(ix, value, q->variable, &step) || (step != 1 && step != -1))
        return anywhere;
    ef_index rest = ef_index_sub(ix, value, ef_index_scale(ix, q->variable, step));
    if (step > 0)
        return (intervals){1, {{.from = true, .low = ef_index_scale(ix, rest, -1)}}};
    return (intervals){1, {{.to = true, .high = ef_index_add(ix, rest, ef_index_const(ix, 1))}}};
}

static intervals compare(question *q, ef_op op, range a, range b)
{
    ef_indexer *ix = q->t->ix;
    ef_index one = ef_index_const(ix, 1);
    if (!a.known || !b.known)
        return anywhere;
    ef_index b_above = ef_index_sub(ix, b.high, a.low), a_above = ef_index_sub(ix, a.high, b.low);
    switch (op) {
    case EF_LE: return not_negative(q, b_above);
    case EF_LT: return not_negative(q, ef_index_sub(ix, b_above, one));
    case EF_GE: return not_negative(q, a_above);
    case EF_GT: return not_negative(q, ef_index_sub(ix, a_above, one));
    case EF_EQ: {
        intervals below = not_negative(q, b_above), above = not_negative(q, a_above);
        return meet(q->t, &below, &above);
    }
    default: return anywhere;
    }
}

/* Where the tile may begin so that the condition (`not`: its opposite) may hold somewhere in it. */
static intervals where_it_may(question *q, ef_kid id, const ef_index *index, bool not)
{
    static const ef_op opposite[EF_OP_COUNT] = {[EF_LT] = EF_GE, [EF_LE] = EF_GT, [EF_GT] = EF_LE,
                                                [EF_GE] = EF_LT, [EF_EQ] = EF_NE, [EF_NE] = EF_EQ};
    const ef_knode *node = ef_kernel_node(q->t->kernel, id);
    ef_index inner[EF_MAP_ENTRIES] = {0};
    ef_kid child;
    if (q->visits++ >= MAX_VISITS)
        return anywhere;
    if (ef_map_step(&q->t->maps, id, index, &child, inner))
        return where_it_may(q, child, inner, not);
    bool junction = node->op == EF_AND || node->op == EF_OR;
    if (!junction && node->op != EF_NOT && !(node->op >= EF_LT && node->op <= EF_NE))
        return anywhere;
    intervals part[2] = {anywhere, anywhere};
    range r[2] = {{0}, {0}};
    for (unsigned i = 0; i < node->count; i++) {
        ef_map_spread(&q->t->maps, node, ef_kernel_node(q->t->kernel, node->child[i]), index, inner);
        if (node->op == EF_NOT)
            return where_it_may(q, node->child[0], inner, !not);
        if (junction)
            part[i] = where_it_may(q, node->child[i], inner, not);
        else
            r[i] = range_of(q, node->child[i], inner);
    }
    if (!junction)
        return compare(q, not ? opposite[node->op] : (ef_op)node->op, r[0], r[1]);
    return (node->op == EF_AND) != not ? meet(q->t, &part[0], &part[1]) : join(&part[0], &part[1]);
}

static intervals ask(ef_t *t, const ef_kloop *loop, ef_kid condition, bool not)
{
    question q = {.t = t, .variable = t->iter[loop->iter].variable};
    uint32_t axis[EF_MAP_ENTRIES];
    q.entries = ef_t_axes(t, ef_kernel_node(t->kernel, condition), axis);
    for (unsigned i = 0; i < q.entries; i++) {
        q.room[i] = axis[i] == EF_NONE ? 1 : t->axes.at[axis[i]].room;
        q.name[i] = ef_index_name(t->ix, ef_t_text(t, "somewhere_%u", i), q.room[i]);
    }
    return where_it_may(&q, condition, q.name, not);
}

/* ---- segments ---- */

ef_index ef_t_outer_end(ef_t *t, uint32_t iter)
{
    uint32_t outer = t->kernel->iters.at[iter].outer;
    uint64_t whole = ef_sched_whole(t->graph, t->schedule, t->kernel, iter);
    unsigned level;
    if (outer == EF_NONE)
        return ef_index_const(t->ix, (int64_t)whole);
    const char *len = ef_t_iter_len(t, outer, &level);
    ef_index length = len ? ef_index_name(t->ix, len, whole + 1) : ef_index_const(t->ix, (int64_t)whole);
    return ef_index_add(t->ix, t->iter[outer].start, length);
}

/* A bound of the loop as text; numbers are kept as such. */
typedef struct {
    bool constant;
    int64_t value;
    const char *text;
} bound;

static bound of_index(ef_t *t, ef_index index)
{
    bound b = {0};
    b.constant = ef_index_is_const(t->ix, index, &b.value);
    b.text = ef_t_index(t, index);
    return b;
}

static bound pick(ef_t *t, bool smaller, bound a, bound b)
{
    if (a.constant && b.constant)
        return (a.value < b.value) == smaller ? a : b;
    const char *text = ef_t_text(t, "tl.%s(%s, %s)", smaller ? "minimum" : "maximum", a.text, b.text);
    return (bound){.text = ef_t_name_load(t, t->level, "bound", text)};
}

/* The first position of a tile that is not below `at` (`up`), or of the tile that `at` lies in; tiles count from
 * `start`, and nothing lies before it. */
static bound to_tile(ef_t *t, ef_index at, ef_index start, int64_t tile, bool up)
{
    ef_index offset = ef_index_sub(t->ix, at, start);
    int64_t constant;
    if (up)
        offset = ef_index_add(t->ix, offset, ef_index_const(t->ix, tile - 1));
    if (ef_index_is_const(t->ix, offset, &constant))
        return of_index(t,
                        ef_index_add(t->ix, start, ef_index_const(t->ix, constant < 0 ? 0 : constant / tile * tile)));
    int64_t first;
    bool zero = ef_index_is_const(t->ix, start, &first) && first == 0;
    const char *text = ef_t_text(t, "tl.maximum(0, %s) // %" PRId64 " * %" PRId64, ef_t_index(t, offset), tile, tile);
    text = zero ? text : ef_t_text(t, "%s + %s", ef_t_index(t, start), text);
    return (bound){.text = ef_t_name_load(t, t->level, "bound", text)};
}

typedef struct {
    ef_t *t;
    ef_index start, end;
    int64_t tile;
    t_segment *out;
    unsigned count;
} cutting;

static void add_segment(cutting *c, bound begin, bound end, bool unmasked)
{
    if (begin.constant && end.constant && begin.value >= end.value)
        return;
    c->out[c->count++] = (t_segment){begin.text, end.text, unmasked};
}

/* What lies in one interval, the tiles without masks apart. `not`: where the condition may fail. */
static void cut(cutting *c, bound begin, bound end, const intervals *not)
{
    ef_t *t = c->t;
    const interval *before = NULL, *after = NULL;
    for (unsigned i = 0; i < not->count; i++) {
        before = not->at[i].to && !not->at[i].from ? &not->at[i] : before;
        after = not->at[i].from && !not->at[i].to ? &not->at[i] : after;
    }
    if (not->count != (unsigned)(before != NULL) + (after != NULL)) {
        add_segment(c, begin, end, false);
        return;
    }
    bound first = begin, last = end;
    if (before) {
        first = pick(t, false, begin, to_tile(t, before->high, c->start, c->tile, true));
        first = pick(t, true, first, end);
        add_segment(c, begin, first, false);
    }
    if (after) {
        last = pick(t, true, end, to_tile(t, after->low, c->start, c->tile, true));
        last = pick(t, false, first, last);
    }
    add_segment(c, first, last, true);
    if (after)
        add_segment(c, last, end, false);
}

/* At most one beginning and one end: a prefix, then the rest, without what the prefix has. */
static bool in_order(intervals *set)
{
    if (set->count == 1)
        return true;
    if (set->count != 2)
        return false;
    if (set->at[0].from) {
        interval first = set->at[1];
        set->at[1] = set->at[0];
        set->at[0] = first;
    }
    return !set->at[0].from && set->at[1].from;
}

unsigned ef_t_segments(ef_t *t, const ef_kloop *loop, t_segment segment[T_MAX_SEGMENTS])
{
    uint32_t outer = t->kernel->iters.at[loop->iter].outer;
    cutting c = {.t = t, .tile = (int64_t)t->iter[loop->iter].room, .out = segment};
    c.start = outer == EF_NONE ? ef_index_const(t->ix, 0) : t->iter[outer].start;
    c.end = ef_t_outer_end(t, loop->iter);
    bound begin = of_index(t, c.start), end = of_index(t, c.end), done = begin;
    intervals may = anywhere, not = anywhere;
    for (unsigned i = 0; i < loop->keeps; i++) {
        intervals one = ask(t, loop, loop->keep[i], false);
        may = i == 0 ? one : join(&may, &one);
    }
    if (loop->keeps == 1 && t->use[loop->keep[0]].needed)
        not = ask(t, loop, loop->keep[0], true);
    if (!in_order(&may))
        may = anywhere;
    for (unsigned i = 0; i < may.count; i++) {
        const interval *at = &may.at[i];
        bound low = at->from ? to_tile(t, at->low, c.start, c.tile, false) : begin;
        bound high = at->to ? pick(t, true, of_index(t, at->high), end) : end;
        low = i == 0 ? low : pick(t, false, low, done);
        cut(&c, low, high, &not);
        if (at->to && i + 1 < may.count)
            done = to_tile(t, at->high, c.start, c.tile, true);
    }
    return c.count;
}
