/* Families that others cover (paper, section 6.2; design, section 7).
 *
 * A graph with a loop over an axis, or with a grid axis, has a schedule in which that axis's tile is the whole extent:
 * then it runs as the graph without that loop or grid axis. So the other graph adds nothing to the search, and is
 * dropped. Whether one graph covers another is seen by leaving iterators out and comparing structures; which iterators
 * those must be is seen from a sum over the iterators of a graph, before any structure is hashed. Axes that a
 * collection makes a dimension of a buffer stay: they shape what is stored. */
#include <string.h>

#include "kernel/kernel.h"

#define MAX_FREE 14 /* iterators that may be left out, all combinations of which are looked at */

typedef struct {
    const ef_kgraph *graph;
    uint64_t family, sum; /* sum: over iterators, so that leaving one out is a subtraction */
    uint32_t iters;       /* of all kernels */
    uint32_t free_count, free[MAX_FREE];
    uint64_t weight[MAX_FREE];
} entry;

static uint64_t weight_of(const ef_iter *iter)
{
    uint64_t what[] = {iter->kind, iter->kind == EF_ITER_PICK ? iter->count : iter->axis};
    return ef_hash(what, sizeof what);
}

static entry entry_of(const ef_kgraph *g)
{
    entry e = {.graph = g, .family = ef_kgraph_family(g)};
    for (uint32_t i = 0; i < g->kernels.count; i++) {
        const ef_kernel *k = g->kernels.at[i];
        for (uint32_t j = 0; j < k->iters.count; j++, e.iters++) {
            const ef_iter *iter = &k->iters.at[j];
            uint64_t weight = weight_of(iter);
            e.sum += weight;
            if (iter->kind == EF_ITER_PICK || g->params.at[iter->param].kernel == EF_NONE || e.free_count == MAX_FREE)
                continue;
            e.free[e.free_count] = e.iters;
            e.weight[e.free_count++] = weight;
        }
    }
    return e;
}

/* The graphs by the sums of their iterators. */
typedef struct {
    const entry *at;
    uint32_t count;
    ef_intern *sums; /* of uint64_t */
    uint32_t *first; /* by sum: the first graph that has it */
    uint32_t *next;  /* by graph: the next with the same sum */
} catalogue;

static catalogue catalogue_of(const entry *e, uint32_t count)
{
    catalogue c = {.at = e, .count = count, .sums = ef_intern_new()};
    c.first = ef_xcalloc(count + 1, sizeof *c.first);
    c.next = ef_xcalloc(count + 1, sizeof *c.next);
    for (uint32_t i = count; i-- > 0;) {
        int fresh;
        uint32_t at = ef_intern_put(c.sums, &e[i].sum, sizeof e[i].sum, &fresh);
        c.next[i] = fresh ? EF_NONE : c.first[at];
        c.first[at] = i;
    }
    return c;
}

static void catalogue_free(catalogue *c)
{
    ef_intern_free(c->sums);
    free(c->first);
    free(c->next);
}

/* Gives graphs that run as this one does without some iterators to it. */
static void cover(const catalogue *c, uint32_t general, uint32_t *representative)
{
    const entry *g = &c->at[general];
    bool *gone = ef_xcalloc(g->iters + 1, sizeof *gone);
    for (uint32_t set = 1; set < 1u << g->free_count; set++) {
        uint64_t sum = g->sum;
        for (uint32_t i = 0; i < g->free_count; i++)
            sum -= set >> i & 1 ? g->weight[i] : 0;
        uint32_t at = ef_intern_find(c->sums, &sum, sizeof sum);
        if (at == EF_NONE)
            continue;
        for (uint32_t i = 0; i < g->free_count; i++)
            gone[g->free[i]] = set >> i & 1;
        uint64_t family = ef_kgraph_family_without(g->graph, gone);
        for (uint32_t i = c->first[at]; i != EF_NONE; i = c->next[i])
            if (representative[i] == i && c->at[i].family == family)
                representative[i] = general;
    }
    free(gone);
}

uint32_t ef_kgraph_families(const ef_kgraph *const *graph, uint32_t count, uint32_t *representative)
{
    entry *e = ef_xcalloc(count + 1, sizeof *e);
    ef_intern *families = ef_intern_new();
    uint32_t *first = ef_xcalloc(count + 1, sizeof *first), distinct = 0;
    for (uint32_t i = 0; i < count; i++) {
        int fresh;
        e[i] = entry_of(graph[i]);
        uint32_t at = ef_intern_put(families, &e[i].family, sizeof e[i].family, &fresh);
        first[at] = fresh ? i : first[at];
        representative[i] = first[at];
    }
    catalogue c = catalogue_of(e, count);
    for (uint32_t i = 0; i < count; i++)
        if (representative[i] == i)
            cover(&c, i, representative);
    catalogue_free(&c);
    for (uint32_t i = 0; i < count; i++) { /* who covers may be covered in turn */
        while (representative[representative[i]] != representative[i])
            representative[i] = representative[representative[i]];
        distinct += representative[i] == i;
    }
    ef_intern_free(families);
    free(first);
    free(e);
    return distinct;
}
