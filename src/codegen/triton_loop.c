/* Loops with carried state. Each leaf of the state is a tile that the loop assigns at the end of an iteration.
 *
 * Where the new state is the scaled old one plus a product, the product adds to the state directly. Where the terms of
 * the product are still to be added up, the state is the tile of the terms, and they are added up after the loop: what
 * stands between is linear. In the same way whole tiles of a sum, and of a maximum or minimum of what is loaded, are
 * collected and reduced after the loop. A loop that takes one position is no loop: its state begins as a literal. */
#include <inttypes.h>
#include <string.h>

#include "codegen/triton_print.h"

#define MOST_UNROLLED 16u

typedef enum { LEAF_PLAIN, LEAF_PRODUCT, LEAF_TILE } leaf_kind;

typedef struct {
    leaf_kind kind;
    ef_kid scaled, added; /* PRODUCT, TILE: what the product or the operand is added to, and what is added */
    t_product product;
    t_frame frame;      /* of the state */
    unsigned rest;      /* axes to reduce after the loop … */
    ef_reducer reducer; /* … in this way */
    const char *name;
    t_type type;
} leaf;

/* ---- what a leaf is ---- */

static bool same_dims(const ef_knode *a, const ef_knode *b)
{
    return a->rank == b->rank && memcmp(a->dim, b->dim, sizeof a->dim) == 0;
}

static bool is_zero(const ef_t *t, ef_kid id)
{
    const ef_knode *node = ef_kernel_node(t->kernel, id);
    return node->op == EF_CONST && ef_attr_to_number(node->attr) == 0;
}

/* Whether a chain of single users that multiply leads from the old state to `to`. */
static bool is_linear(ef_t *t, ef_kid state, ef_kid to)
{
    for (ef_kid at = state; at != to;) {
        if (t->use[at].users != 1)
            return false;
        ef_kid user = t->use[at].user;
        const ef_knode *node = ef_kernel_node(t->kernel, user);
        bool first = node->child[0] == at, second = node->count > 1 && node->child[1] == at;
        bool fine = (node->op == EF_MUL && first != second) || (node->op == EF_DIV && first && !second) ||
                    node->op == EF_NEG || (node->op == EF_SELECT && !first && second && is_zero(t, node->child[2])) ||
                    (node->op == EF_SELECT && !first && !second && is_zero(t, node->child[1]));
        if (!fine)
            return false;
        at = user;
    }
    return t->use[to].users == 1;
}

/* What stands between the old state and `to` has the state's axes, which are more than its own. */
static void mark_spread(ef_t *t, ef_kid state, ef_kid to)
{
    for (ef_kid at = state;; at = t->use[at].user) {
        t->node[at].spread = true;
        if (at == to)
            return;
    }
}

static bool plan_product(ef_t *t, const ef_kloop *loop, unsigned i, leaf *l)
{
    const ef_knode *added = ef_kernel_node(t->kernel, l->added);
    if (!ef_t_product(t, l->added, &l->product))
        return false;
    if (l->product.rest && !is_linear(t, loop->state[i], l->scaled))
        return true;
    if (added->dtype == EF_F64 || ef_t_type((ef_dtype)added->dtype) == T_FLOAT) {
        l->kind = LEAF_PRODUCT;
        l->frame = l->product.terms;
        l->rest = l->product.rest;
        if (l->rest)
            mark_spread(t, loop->state[i], l->scaled);
    }
    return true;
}

#define MOST_RESCALED 512u /* elements of a tile that is rescaled in each iteration rather than added up */

/* How many elements of a tile are collected. Loaded ones always, unless they are reduced in parts: a loop that takes
 * the maximum, say, of a loaded tile is turned into one that collects by Triton itself, whose 3.6 fails then if the
 * result is used more than once. */
static uint64_t most_collected(ef_t *t, const ef_knode *reduced, bool plain)
{
    if (!plain)
        return MOST_RESCALED;
    return ef_t_stored(t, reduced->child[0]) != EF_NONE ? T_CHUNK_ELEMENTS : T_CHUNK_ELEMENTS / 2;
}

/* The reduction of a dimension of tiles: whole tiles are combined, and reduced after the loop. */
static bool plan_tile(ef_t *t, const ef_kloop *loop, unsigned i, leaf *l)
{
    const ef_knode *added = ef_kernel_node(t->kernel, l->added);
    const ef_knode *x = ef_kernel_node(t->kernel, added->child[0]);
    uint32_t axis[EF_MAP_ENTRIES];
    unsigned of[EF_MAP_ENTRIES], n = ef_t_axes(t, x, axis);
    t_frame frame;
    if (!ef_t_own_frame(t, x, &frame))
        return false;
    if (ef_t_elements(&frame) > most_collected(t, added, l->scaled == loop->state[i]) ||
        !is_linear(t, loop->state[i], l->scaled))
        return true;
    ef_t_entry_dims(t, x, of);
    for (unsigned e = 0; e < n; e++)
        if (of[e] == ef_attr_reduce_at(added->attr) && axis[e] != EF_NONE)
            l->rest |= 1u << ef_t_find(&frame, axis[e]);
    l->kind = LEAF_TILE;
    l->reducer = ef_attr_reducer(added->attr);
    l->frame = frame;
    mark_spread(t, loop->state[i], l->scaled);
    return true;
}

/* Whether a new state is the old one combined with a reduction of tiles that can be collected. */
static bool is_collected(ef_t *t, const ef_kloop *loop, unsigned i, const leaf *l)
{
    const ef_knode *next = ef_kernel_node(t->kernel, loop->next[i]), *added = ef_kernel_node(t->kernel, l->added);
    if (added->op != EF_REDUCE || l->type < T_FLOAT)
        return false;
    ef_reducer reducer = ef_attr_reducer(added->attr);
    if (next->op == EF_ADD)
        return reducer == EF_RED_SUM;
    return ((next->op == EF_MAX && reducer == EF_RED_MAX) || (next->op == EF_MIN && reducer == EF_RED_MIN)) &&
           l->scaled == loop->state[i] && ef_t_stored(t, added->child[0]) != EF_NONE;
}

static bool plan_leaf(ef_t *t, const ef_kloop *loop, unsigned i, leaf *l)
{
    const ef_knode *state = ef_kernel_node(t->kernel, loop->state[i]);
    const ef_knode *next = ef_kernel_node(t->kernel, loop->next[i]);
    l->type = ef_t_type((ef_dtype)state->dtype);
    bool combines = next->op == EF_ADD || next->op == EF_MAX || next->op == EF_MIN;
    if (combines && t->use[loop->next[i]].users == 1) {
        const ef_knode *added = ef_kernel_node(t->kernel, next->child[1]);
        l->scaled = next->child[0];
        l->added = next->child[1];
        bool single = t->use[l->added].users == 1 && same_dims(added, next);
        if (single && next->op == EF_ADD && added->op == EF_TILE_MATMUL && !plan_product(t, loop, i, l))
            return false;
        if (single && is_collected(t, loop, i, l) && !plan_tile(t, loop, i, l))
            return false;
    }
    return l->kind != LEAF_PLAIN || ef_t_own_frame(t, state, &l->frame);
}

/* ---- printing ---- */

static t_value next_state(ef_t *t, const ef_kloop *loop, unsigned i, const leaf *l)
{
    t_value value;
    if (l->kind == LEAF_PLAIN) {
        value = ef_t_value(t, &l->frame, loop->next[i]);
    } else if (l->kind == LEAF_PRODUCT) {
        t_value scaled = ef_t_full(t, &l->frame, ef_t_value(t, &l->frame, l->scaled));
        value = ef_t_terms(t, &l->product, scaled.text);
    } else {
        const ef_knode *added = ef_kernel_node(t->kernel, l->added);
        t_value x = ef_t_masked(t, &l->frame, l->rest, ef_t_value(t, &l->frame, added->child[0]),
                                ef_reducer_identity(l->reducer));
        t_value scaled = ef_t_full(t, &l->frame, ef_t_value(t, &l->frame, l->scaled));
        value = ef_t_full(t, &l->frame, x);
        value.text = ef_t_combined(t, l->reducer, l->type, scaled.text, ef_t_as(t, value, l->type));
        value.type = l->type;
    }
    value.text = value.literal || value.type < l->type ? ef_t_as(t, value, l->type) : value.text;
    if (value.literal)
        value = ef_t_full(t, &l->frame, (t_value){.literal = true, .value = value.value, .type = l->type});
    return ef_t_full(t, &l->frame, value);
}

static void make_results(ef_t *t, const ef_kloop *loop, const leaf *l)
{
    for (unsigned i = 0; i < loop->leaves; i++) {
        t_value value = {.text = l[i].name, .type = l[i].type, .level = t->level};
        if (l[i].rest)
            value.text = ef_t_name(t, t->level, "total", ef_t_reduce_axes(t, l[i].reducer, l[i].rest, l[i].name));
        ef_t_make(t, loop->state[i], &l[i].frame, ~l[i].rest, value);
    }
}

static bool in_loop(const ef_t *t, ef_kid id, uint32_t number)
{
    return ef_kernel_node(t->kernel, id)->loops >> number & 1;
}

/* What an earlier copy of the body computed is computed again. */
static void forget_body(ef_t *t, uint32_t number, const leaf *l)
{
    const ef_kloop *loop = &t->kernel->loops.at[number];
    for (ef_kid id = 0; id < ef_kernel_nodes(t->kernel); id++)
        t->node[id].made = t->node[id].made && !in_loop(t, id, number);
    for (unsigned i = 0; i < loop->leaves; i++) {
        ef_t_make(t, loop->state[i], &l[i].frame, ~0u,
                  (t_value){.text = l[i].name, .type = l[i].type, .level = t->level});
        if (l[i].kind != LEAF_PLAIN)
            t->node[l[i].added].made = true; /* it is computed with the state */
    }
}

static void print_segment(ef_t *t, uint32_t number, const leaf *l, const t_segment *segment)
{
    const ef_kloop *loop = &t->kernel->loops.at[number];
    t_iter *iter = &t->iter[loop->iter];
    ef_strbuf left = {0}, right = {0};
    ef_t_open(t);
    ef_t_scalar(t, iter->variable, iter->limit);
    if (iter->len)
        ef_t_line(t, t->level, "%s = tl.minimum(%" PRIu64 ", %s - %s)", iter->len, iter->room,
                  ef_t_index(t, ef_t_outer_end(t, loop->iter)), iter->name);
    forget_body(t, number, l);
    if (segment->unmasked)
        t->node[loop->keep[0]].assumed = true;
    ef_t_region(t, number);
    for (unsigned i = 0; i < loop->leaves; i++) {
        ef_strbuf_printf(&left, "%s%s", i ? ", " : "", l[i].name);
        ef_strbuf_printf(&right, "%s%s", i ? ", " : "", next_state(t, loop, i, &l[i]).text);
    }
    if (segment->unmasked)
        t->node[loop->keep[0]].assumed = false;
    ef_t_line(t, t->level, "%s = %s", left.text, right.text);
    ef_strbuf_free(&left);
    ef_strbuf_free(&right);
    /* The few stored parts of a value are read together. */
    bool unroll = t->kernel->iters.at[loop->iter].kind == EF_ITER_PICK &&
                  ef_sched_trips(t->graph, t->schedule, t->kernel, loop->iter) <= MOST_UNROLLED;
    const char *range = ef_t_text(t, "%s, %s, %" PRIu64, segment->begin, segment->end, iter->room);
    /* Without its own number of stages, a loop would wait for loads that feed no matrix unit. */
    uint64_t stages = ef_sched_value(t->graph, t->schedule, t->number, EF_PARAM_STAGES);
    ef_t_close(t, unroll ? ef_t_text(t, "for %s in tl.static_range(%s):", iter->name, range)
                         : ef_t_text(t, "for %s in tl.range(%s, num_stages=%" PRIu64 "):", iter->name, range, stages));
}

static void print_loop(ef_t *t, uint32_t number, const leaf *l)
{
    const ef_kloop *loop = &t->kernel->loops.at[number];
    t_segment segment[T_MAX_SEGMENTS];
    for (unsigned i = 0; i < loop->leaves; i++) {
        t_value start = {.literal = true, .value = ef_reducer_identity(loop->base[i]), .type = l[i].type};
        ef_t_line(t, t->level, "%s = %s", l[i].name, ef_t_full(t, &l[i].frame, start).text);
    }
    for (unsigned i = 0, n = ef_t_segments(t, loop, segment); i < n && !t->diag->failed; i++)
        print_segment(t, number, l, &segment[i]);
    make_results(t, loop, l);
}

/* The states are literals, which decide most of what is computed from them. */
static void print_once(ef_t *t, uint32_t number)
{
    const ef_kloop *loop = &t->kernel->loops.at[number];
    t_frame frame = {0};
    for (unsigned i = 0; i < loop->leaves; i++)
        ef_t_make(t, loop->state[i], &frame, 0, ef_t_constant(ef_reducer_identity(loop->base[i])));
    ef_t_region(t, number);
    for (unsigned i = 0; i < loop->leaves && !t->diag->failed; i++) {
        if (!ef_t_own_frame(t, ef_kernel_node(t->kernel, loop->state[i]), &frame))
            return;
        t_value value = ef_t_value(t, &frame, loop->next[i]);
        value = value.literal ? value : ef_t_full(t, &frame, value);
        if (!value.literal)
            value.text = ef_t_name(t, value.level, "state", value.text);
        ef_t_make(t, loop->state[i], &frame, ~0u, value);
    }
}

void ef_t_loop(ef_t *t, uint32_t number)
{
    const ef_kloop *loop = &t->kernel->loops.at[number];
    t_iter *iter = &t->iter[loop->iter];
    leaf l[EF_MAX_LEAVES] = {{0}};
    if (!iter->name) {
        iter->level = t->level;
        print_once(t, number);
        return;
    }
    iter->level = t->level + 1;
    for (unsigned i = 0; i < loop->leaves; i++) {
        l[i].name = ef_t_text(t, "state%u_%u", number, i);
        if (!plan_leaf(t, loop, i, &l[i]))
            return;
    }
    print_loop(t, number, l);
}
