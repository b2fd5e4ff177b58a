/* Static ranking (paper, section 6.2; design, section 8): an optimistic latency of a kernel graph over all its
 * schedules, by a linear program. Families are ranked by it for CPUs; for GPUs by what a schedule that is searched for
 * costs (first.h).
 *
 * The variables are the logarithms of the tile extents. The extent of a tile, how often it is loaded, how many blocks
 * there are are products of extents and of their inverses: in logarithms, sums. What a kernel loads and computes is a
 * sum of such products, each the exponential of a linear term, that is, a convex function; tangents to it make it
 * piecewise linear, and from below. A kernel takes at least
 *   - the bytes that it must move between it and memory, at memory's rate: every tensor once, those that stay in the
 *     cache between kernels not at all;
 *   - all bytes that its blocks load, again and again, at the cache's rate;
 *   - its products and its other arithmetic, at the rates of their units;
 *   - and what one block loads and computes, at the rates of one unit of the device: few blocks leave units idle;
 * with tiles that fit into a unit. The number of blocks is not rounded to waves. The launch comes on top. */
#ifndef EF_TARGET_RANK_H
#define EF_TARGET_RANK_H

#include "kernel/kernel.h"
#include "target/target.h"

typedef struct {
    double us;         /* optimistic latency of all kernels, one after the other */
    double *kernel_us; /* by kernel, with its launch */
} ef_ranking;

/* False and a message when the linear program has no solution or is too large. `threads`: of a CPU, else 0. */
bool ef_rank(const ef_kgraph *graph, const ef_target *target, uint32_t threads, ef_ranking *ranking, ef_diag *diag);
void ef_ranking_free(ef_ranking *ranking);

#endif
