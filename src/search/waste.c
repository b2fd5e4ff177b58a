/* What is too much work: see waste.h.
 *
 * Two passes to a fixed point over all nodes: the least work INSIDE a class, from its operands up, and the least work
 * OUTSIDE of it, of a way of computing the outputs that uses it, from the outputs down. What goes through a node is
 * then what is outside of its class, its own work and what is inside its operands. */
#include "search/waste.h"

#include <math.h>
#include <stdlib.h>

#include "support/arena.h"

typedef struct {
    ef_egraph *g;
    double *inside, *outside; /* by class root; INFINITY: none known */
} work;

static double extent_at(const ef_ctx *ctx, const ef_type_info *t, unsigned index)
{
    double extent = index < t->rank ? (double)ef_dim_extent(ctx, t->dim[index]) : 1;
    return extent > 1 ? extent : 1; /* what collections made has no extent */
}

/* The multiplications of a node itself. */
static double own_work(const ef_egraph *g, const ef_type_info *result, const ef_type_info *left)
{
    double product = extent_at(g->ctx, left, 0);
    for (unsigned i = 0; i < result->rank; i++)
        product *= extent_at(g->ctx, result, i);
    return product;
}

static double work_of(const work *w, ef_id n)
{
    ef_egraph *g = w->g;
    if (g->op.at[n] != EF_MATMUL && g->op.at[n] != EF_TILE_MATMUL)
        return 0;
    return own_work(g, ef_type_at(g->ctx, ef_egraph_type(g, n)),
                    ef_type_at(g->ctx, ef_egraph_type(g, ef_node_children(g, n)[0])));
}

/* A node with all that its operands need. */
static double with_operands(const work *w, ef_id n)
{
    double sum = work_of(w, n);
    for (unsigned i = 0; i < w->g->arity.at[n]; i++)
        sum += w->inside[ef_find(w->g, ef_node_children(w->g, n)[i])];
    return sum;
}

static bool lower(double *at, double to)
{
    if (!(to < *at * (1 - 1e-12)))
        return false;
    *at = to;
    return true;
}

static void find_inside(work *w)
{
    bool changed = true;
    while (changed) {
        changed = false;
        for (ef_id n = 0; n < w->g->op.count; n++)
            if (!w->g->dead.at[n])
                changed = lower(&w->inside[ef_find(w->g, n)], with_operands(w, n)) || changed;
    }
}

static void find_outside(work *w)
{
    bool changed = true;
    while (changed) {
        changed = false;
        for (ef_id n = w->g->op.count; n-- > 0;) {
            double through = w->g->dead.at[n] ? INFINITY : w->outside[ef_find(w->g, n)] + with_operands(w, n);
            for (unsigned i = 0; isfinite(through) && i < w->g->arity.at[n]; i++) {
                ef_id class = ef_find(w->g, ef_node_children(w->g, n)[i]);
                changed = lower(&w->outside[class], through - w->inside[class]) || changed;
            }
        }
    }
}

uint32_t ef_waste_find(ef_egraph *g, const ef_id *output, uint32_t outputs, void (*found)(ef_egraph *g, ef_id node))
{
    uint32_t count = g->op.count, total = 0;
    double least = 0;
    work w = {g, ef_xcalloc(count + 1, sizeof(double)), ef_xcalloc(count + 1, sizeof(double))};
    for (ef_id n = 0; n < count; n++)
        w.inside[n] = w.outside[n] = INFINITY;
    find_inside(&w);
    for (uint32_t i = 0; i < outputs; i++)
        least += w.inside[ef_find(g, output[i])];
    for (uint32_t i = 0; i < outputs; i++)
        w.outside[ef_find(g, output[i])] = least - w.inside[ef_find(g, output[i])];
    if (least > 0 && isfinite(least))
        find_outside(&w);
    for (ef_id n = 0; n < count && least > 0 && isfinite(least); n++)
        if (!g->dead.at[n] && !(w.outside[ef_find(g, n)] + with_operands(&w, n) <= EF_WASTE * least)) {
            found(g, n);
            total++;
        }
    free(w.inside);
    free(w.outside);
    return total;
}
