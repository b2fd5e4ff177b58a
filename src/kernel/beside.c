/* Kernels side by side: two kernels with one grid, neither of which uses what the other stores, are one kernel where
 * that saves more than a launch.
 *
 * It does where their loops read the same tiles, as the two maps of differential attention read the same values: loops
 * over one axis become one loop whose state is both states, and a tile is loaded once for both. And where neither has a
 * product there is little that two bodies in one block can be in each other's way with. Other kernels stay apart: two
 * accumulators with nothing in common only take each other's room. */
#include "kernel/merge.h"

#define SHARED_PART 0.4 /* of what the loops of one of the kernels read, at least */

/* ---- what a kernel reads ---- */

static uint64_t mix(uint64_t a, uint64_t b)
{
    return ef_hash((uint64_t[]){a, b}, 2 * sizeof a);
}

static uint64_t iter_hash(const ef_kernel *k, uint32_t at)
{
    uint64_t hash = 1;
    for (; at != EF_NONE; at = k->iters.at[at].outer) {
        const ef_iter *i = &k->iters.at[at];
        hash = mix(hash, mix(i->kind, i->kind == EF_ITER_PICK ? i->count : i->axis));
    }
    return hash;
}

static bool moves_one(const ef_knode *n)
{
    return n->count == 1 && ef_knode_moves(n);
}

/* A tile that a loop reads: which one, in any kernel, and the elements of all of them. */
typedef struct {
    uint64_t hash;
    double elements;
} tile;

typedef EF_VEC(tile) tile_list;

/* The tile that a node is; without a hash when it is computed or stands in no loop. */
static tile tile_of(const ef_kgraph *g, const ef_kernel *k, ef_kid id)
{
    const ef_knode *n = ef_kernel_node(k, id);
    tile t = {1, 1};
    if (n->loops == 0)
        return (tile){0};
    for (unsigned i = 0; i < n->rank; i++)
        t.elements *= (double)ef_dim_extent(g->ctx, n->dim[i].dim);
    for (; moves_one(n); n = ef_kernel_node(k, n->child[0])) {
        t.hash = mix(t.hash, mix(n->op, n->op == EF_K_PICK ? iter_hash(k, (uint32_t)n->attr) : n->attr));
        for (unsigned i = 0; i < n->rank; i++)
            t.hash = mix(t.hash, mix(n->dim[i].dim, iter_hash(k, n->dim[i].cut)));
    }
    t.hash = mix(t.hash, n->attr);
    return n->op == EF_K_BUFFER ? t : (tile){0};
}

static tile_list tiles_of(const ef_kgraph *g, const ef_kernel *k)
{
    tile_list list = {0};
    bool *needed = ef_kernel_needed(k);
    for (ef_kid id = 0; id < ef_kernel_nodes(k); id++) {
        const ef_knode *n = ef_kernel_node(k, id);
        for (unsigned i = 0; i < n->count && needed[id] && !moves_one(n); i++) {
            tile t = tile_of(g, k, n->child[i]);
            bool seen = t.hash == 0;
            for (uint32_t j = 0; j < list.count && !seen; j++)
                seen = list.at[j].hash == t.hash;
            if (!seen)
                ef_vec_push(&list, t);
        }
    }
    free(needed);
    return list;
}

static bool share_tiles(const tile_list *x, const tile_list *y)
{
    double shared = 0, of_x = 0, of_y = 0;
    for (uint32_t i = 0; i < x->count; i++)
        of_x += x->at[i].elements;
    for (uint32_t j = 0; j < y->count; j++) {
        of_y += y->at[j].elements;
        for (uint32_t i = 0; i < x->count; i++)
            shared += x->at[i].hash == y->at[j].hash ? y->at[j].elements : 0;
    }
    return shared > 0 && shared >= SHARED_PART * (of_x < of_y ? of_x : of_y);
}

static bool same_grid(const ef_kernel *a, const ef_kernel *b)
{
    bool same = a->grid == b->grid && a->grid > 0;
    for (uint32_t i = 0; same && i < a->grid; i++)
        same = a->iters.at[i].axis == b->iters.at[i].axis && a->iters.at[i].outer == b->iters.at[i].outer;
    return same;
}

/* ---- loops that become one ---- */

static bool outermost(const ef_kernel *k, uint32_t loop)
{
    return ef_kernel_node(k, k->loops.at[loop].node)->loops == 0;
}

/* The one outermost loop of a kernel over what an iterator walks along; EF_NONE: none, or several. */
static uint32_t only_loop(const ef_kernel *k, uint64_t hash)
{
    uint32_t found = EF_NONE;
    for (uint32_t i = 0; i < k->loops.count; i++) {
        if (!outermost(k, i) || iter_hash(k, k->loops.at[i].iter) != hash)
            continue;
        if (found != EF_NONE)
            return EF_NONE;
        found = i;
    }
    return found;
}

void ef_beside_partners(ef_merging *m)
{
    for (uint32_t i = 0; i < m->from[0]->loops.count; i++) {
        uint64_t hash = iter_hash(m->from[0], m->from[0]->loops.at[i].iter);
        uint32_t other = only_loop(m->from[1], hash);
        if (only_loop(m->from[0], hash) != i || other == EF_NONE ||
            m->from[0]->loops.at[i].leaves + m->from[1]->loops.at[other].leaves > EF_MAX_LEAVES)
            continue;
        m->partner[0][i] = other;
        m->partner[1][other] = i;
    }
}

/* ---- pairs ---- */

/* By the numbers of kernels: what they read, once it was asked for. */
typedef struct {
    bool known, product;
    tile_list tiles;
} reading;

typedef struct {
    ef_pairs pairs;
    EF_VEC(reading) readings;
} side_by_side;

static const reading *reading_of(side_by_side *s, uint32_t kernel)
{
    const ef_kernel *k = s->pairs.g->kernels.at[kernel];
    uint32_t number = s->pairs.kernel.at[kernel].number;
    while (s->readings.count <= number)
        ef_vec_push(&s->readings, (reading){0});
    reading *r = &s->readings.at[number];
    if (!r->known)
        *r = (reading){true, ef_kernel_has_product(k), tiles_of(s->pairs.g, k)};
    return r;
}

/* Whether two kernels can be one, and that is worth it. */
static bool suit(side_by_side *s, uint32_t a, uint32_t b)
{
    const ef_kgraph *g = s->pairs.g;
    if (!same_grid(g->kernels.at[a], g->kernels.at[b]) || !ef_merge_few_loops(g, a, b))
        return false;
    reading_of(s, a); /* the list may move */
    const reading *y = reading_of(s, b), *x = reading_of(s, a);
    return (!x->product && !y->product) || share_tiles(&x->tiles, &y->tiles);
}

static bool become_one(side_by_side *s, uint32_t a, uint32_t b)
{
    if (ef_pairs_waits(&s->pairs, b, a) || ef_pairs_refused(&s->pairs, a, b))
        return false;
    if (suit(s, a, b))
        return ef_pairs_merge(&s->pairs, a, b, EF_MERGE_BESIDE);
    ef_pairs_refuse(&s->pairs, a, b);
    return false;
}

/* Whether two kernels became one: the first that can. */
static bool merge_some(side_by_side *s)
{
    for (uint32_t b = 1; b < s->pairs.g->kernels.count; b++)
        for (uint32_t a = 0; a < b; a++)
            if (become_one(s, a, b))
                return true;
    return false;
}

void ef_merge_beside(ef_kgraph *g)
{
    side_by_side s = {.pairs = ef_pairs_of(g)};
    while (merge_some(&s)) {
    }
    for (uint32_t i = 0; i < s.readings.count; i++)
        ef_vec_free(&s.readings.at[i].tiles);
    ef_vec_free(&s.readings);
    ef_pairs_free(&s.pairs);
}
