/* What repair synthesis remembers (see memory.h): lemmas, refusals, and which classes need a pass over a dimension.
 *
 * A pair of reductions that does not fuse now may fuse later, when the classes that its consumer is made of have grown.
 * So a refusal is kept with the classes that it looked at, and the pair is tried again only when one of them changed.
 */
#include "rules/repair_parts.h"

#include <stdlib.h>
#include <string.h>

#define PATIENCE 6 /* refusals after which only changes close below the pair count */

typedef struct ef_refusal {
    uint32_t count, tick; /* how often, and when last */
    bool shapeless;       /* some field of a tuple had no class of its own yet: anything may change that */
    ef_id *looked;        /* the classes, as of then */
    uint32_t size;
} ef_refusal;

/* The classes whose computation reduces a variable's dimension, from its reductions up through what uses them; and what
 * uses some other results. */
typedef struct {
    ef_var var;
    ef_id other[EF_MAX_LEAVES]; /* such results, as of the tick */
    unsigned others;
    uint32_t tick;
    EF_VEC(uint8_t) has;
} cone;

struct ef_cones {
    EF_VEC(cone) list;
    EF_VEC(ef_id) queue;
};

ef_rule_memory *ef_rule_memory_new(void)
{
    ef_rule_memory *m = ef_xcalloc(1, sizeof *m);
    m->lemmas = ef_intern_new();
    m->matches = ef_intern_new();
    m->cones = ef_xcalloc(1, sizeof *m->cones);
    return m;
}

void ef_rule_memory_free(ef_rule_memory *m)
{
    if (!m)
        return;
    for (uint32_t i = 0; i < m->refusals.count; i++)
        free(m->refusals.at[i].looked);
    for (uint32_t i = 0; i < m->cones->list.count; i++)
        ef_vec_free(&m->cones->list.at[i].has);
    ef_vec_free(&m->cones->list);
    ef_vec_free(&m->cones->queue);
    free(m->cones);
    ef_vec_free(&m->refusals);
    ef_vec_free(&m->lemma_holds);
    ef_vec_free(&m->simplified);
    ef_vec_free(&m->known.stamp);
    ef_vec_free(&m->known.value);
    ef_vec_free(&m->looked.stamp);
    ef_vec_free(&m->looked.value);
    ef_vec_free(&m->visited);
    ef_intern_free(m->lemmas);
    ef_intern_free(m->matches);
    free(m);
}

/* ---- numbers by class ---- */

static void grow(ef_class_map *map, ef_egraph *g)
{
    uint32_t old = map->stamp.count;
    if (g->op.count <= old)
        return;
    ef_vec_reserve(&map->stamp, g->op.count);
    ef_vec_reserve(&map->value, g->op.count);
    memset(map->stamp.at + old, 0, (g->op.count - old) * sizeof *map->stamp.at);
    map->stamp.count = map->value.count = g->op.count;
}

void ef_class_map_clear(ef_class_map *map, ef_egraph *g)
{
    grow(map, g);
    map->now++;
}

void ef_class_map_set(ef_class_map *map, ef_egraph *g, ef_id class, uint32_t value)
{
    if (class >= map->stamp.count)
        grow(map, g);
    map->stamp.at[class] = map->now;
    map->value.at[class] = value;
}

void ef_repair_look(ef_synthesis *y, ef_id class)
{
    ef_rule_memory *m = y->memory;
    class = ef_find(y->g, class);
    if (ef_class_map_get(&m->looked, class))
        return;
    ef_class_map_set(&m->looked, y->g, class, 1);
    ef_vec_push(&m->visited, class);
}

void ef_repair_begin(ef_synthesis *y)
{
    ef_class_map_clear(&y->memory->known, y->g);
    ef_class_map_clear(&y->memory->looked, y->g);
    y->memory->visited.count = 0;
}

/* ---- passes ---- */

/* What the computation of a class is followed through: not the views by which it is cut. */
static bool ends_cone(const ef_egraph *g, ef_id n)
{
    return ef_ops[g->op.at[n]].class == EF_PARALLEL || g->op.at[n] == EF_REDUCE_P || g->op.at[n] == EF_GET;
}

static void reach(ef_egraph *g, struct ef_cones *all, cone *c, ef_id class)
{
    class = ef_find(g, class);
    if (!c->has.at[class])
        ef_vec_push(&all->queue, class);
    c->has.at[class] = 1;
}

static void fill_cone(ef_egraph *g, struct ef_cones *all, cone *c)
{
    static const ef_op seeds[] = {EF_REDUCE, EF_REDUCE_P, EF_COLLECT, EF_MATMUL, EF_TILE_MATMUL};
    ef_axis axis = ef_axis_of(c->var, 0);
    ef_vec_reserve(&c->has, g->op.count);
    memset(c->has.at, 0, g->op.count);
    c->has.count = g->op.count;
    all->queue.count = 0;
    for (unsigned k = 0; k < sizeof seeds / sizeof *seeds; k++)
        for (uint32_t i = 0; i < g->by_op[seeds[k]].count; i++) {
            ef_id n = g->by_op[seeds[k]].at[i];
            if (!g->dead.at[n] && ef_repair_reduces(g, axis, n))
                reach(g, all, c, n);
        }
    for (unsigned k = 0; k < c->others; k++)
        reach(g, all, c, c->other[k]);
    for (uint32_t i = 0; i < all->queue.count; i++)
        for (uint32_t p = g->first_parent.at[all->queue.at[i]]; p != EF_NONE; p = g->parent.at[p].next) {
            ef_id n = g->parent.at[p].node;
            if (!g->dead.at[n] && !ends_cone(g, n))
                reach(g, all, c, n);
        }
    c->tick = g->tick;
}

static cone *cone_for(ef_synthesis *y, const ef_id *other, unsigned others)
{
    struct ef_cones *all = y->memory->cones;
    ef_var var = ef_axis_var(y->axis);
    uint32_t i = 0;
    for (; i < all->list.count; i++) {
        const cone *c = &all->list.at[i];
        bool same = c->var == var && c->others == others;
        for (unsigned k = 0; same && k < others; k++)
            same = c->other[k] == other[k];
        if (same)
            break;
    }
    if (i == all->list.count) {
        cone fresh = {.var = var, .others = others};
        for (unsigned k = 0; k < others; k++)
            fresh.other[k] = other[k];
        ef_vec_push(&all->list, fresh);
    }
    cone *c = &all->list.at[i];
    if (c->tick != y->g->tick)
        fill_cone(y->g, all, c);
    return c;
}

/* Classes that are newer than the cone are looked into, as far as they go. */
static bool in_cone(ef_synthesis *y, const cone *c, ef_id class, unsigned depth)
{
    ef_egraph *g = y->g;
    class = ef_find(g, class);
    for (unsigned k = 0; k < y->leaves; k++)
        if (class == ef_find(g, y->leaf[k]))
            return true;
    if (class < c->has.count)
        return c->has.at[class];
    for (ef_id n = ef_class_first(g, class); n != EF_NONE && depth; n = ef_class_next(g, n)) {
        if (ef_repair_reduces(g, y->axis, n))
            return true;
        for (unsigned i = 0; !ends_cone(g, n) && i < g->arity.at[n]; i++)
            if (in_cone(y, c, ef_node_children(g, n)[i], depth - 1))
                return true;
    }
    return false;
}

/* The producer's results are reductions of the dimension themselves, as a rule; those that are not are named. */
static const cone *cone_of(ef_synthesis *y)
{
    ef_id other[EF_MAX_LEAVES] = {0};
    unsigned others = 0;
    const cone *c = cone_for(y, NULL, 0);
    for (unsigned k = 0; k < y->leaves; k++) {
        ef_id leaf = ef_find(y->g, y->leaf[k]);
        if (leaf >= c->has.count || !c->has.at[leaf])
            other[others++] = leaf;
    }
    return others ? cone_for(y, other, others) : c;
}

bool ef_repair_whole_pass(ef_synthesis *y, ef_id class)
{
    ef_repair_look(y, class);
    return in_cone(y, cone_of(y), class, 32);
}

/* ---- refusals ---- */

static ef_refusal *refusal_of(ef_synthesis *y, const ef_match *match)
{
    ef_egraph *g = y->g;
    ef_id key[] = {ef_find(g, match->root), ef_find(g, match->var[0]), ef_find(g, match->var[1]),
                   (ef_id)match->attr[1]};
    int fresh;
    uint32_t at = ef_intern_put(y->memory->matches, key, sizeof key, &fresh);
    if (fresh)
        ef_vec_push(&y->memory->refusals, (ef_refusal){0});
    return &y->memory->refusals.at[at];
}

bool ef_repair_refused(ef_synthesis *y, const ef_match *match)
{
    ef_egraph *g = y->g;
    const ef_refusal *r = refusal_of(y, match);
    if (r->count == 0)
        return false;
    if (r->count >= PATIENCE && g->touched[EF_TOUCH_DEPTH - 1].at[ef_find(g, match->root)] < g->tick)
        return true;
    for (uint32_t i = 0; i < r->size && !r->shapeless; i++)
        if (g->touched[0].at[ef_find(g, r->looked[i])] > r->tick)
            return false;
    return !r->shapeless;
}

void ef_repair_refuse(ef_synthesis *y, const ef_match *match, bool shapeless)
{
    ef_refusal *r = refusal_of(y, match);
    r->count++;
    r->tick = y->g->tick;
    r->shapeless = shapeless;
    r->size = y->memory->visited.count;
    free(r->looked);
    r->looked = ef_xcalloc(r->size + 1, sizeof *r->looked);
    memcpy(r->looked, y->memory->visited.at, r->size * sizeof *r->looked);
}
