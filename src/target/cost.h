/* What a kernel takes under a given schedule: an estimate that tells schedules apart, where the ranking's linear
 * program (rank.h) bounds all schedules from below.
 *
 * Counted are
 *   - what blocks load and store, each block its own tiles, again in each iteration of their loops: at the cache's
 * rate, and every tensor once at memory's; rows that are shorter than a sector of memory cost the sector;
 *   - waiting: loads are asked for as many iterations ahead as there are stages, less one; an iteration takes at least
 *     that part of their latency. With one stage, what a multiprocessor takes to load and to work is added to the
 *     length of its blocks, divided among those that are on it at one time;
 *   - products, padded to what the matrix unit takes; other arithmetic on whole padded tiles; special functions;
 *   - requests: a row of a tile takes a multiprocessor as long as a whole line of memory, however short it is;
 *   - operands of products on the matrix unit that no four warps share: each warp reads and computes its own
 * (operands.h);
 *   - the length of a block: its loads' latency, and what each iteration takes: its own work, and what it takes by
 *     itself, however little it does;
 *   - rounds: the multiprocessor with the most blocks takes longest;
 *   - the launch.
 * What a kernel loads before it waits for the one before it (EF_PARAM_OVERLAP) is hidden, for a short time.
 * Bounds of like length add up in part.
 * Schedules for which there is no room (room.h) cost EF_COST_NEVER or more: the more, the further off they are. */
#ifndef EF_TARGET_COST_H
#define EF_TARGET_COST_H

#include "kernel/schedule.h"
#include "target/target.h"

#define EF_COST_NEVER 1e12 /* microseconds */

/* What is known of a kernel before its schedule is. */
typedef struct ef_cost ef_cost;

/* The graph and the target, which is a GPU, must outlive it. */
ef_cost *ef_cost_new(const ef_kgraph *graph, uint32_t kernel, const ef_target *target);
/* Microseconds, with the launch. `room` (may be NULL): what is needed most, as a part of what there is (room.h). Uses
 * memory of its own: one thread at a time. */
double ef_cost_us(ef_cost *cost, const ef_schedule *schedule, double *room);
void ef_cost_free(ef_cost *cost);
/* Whether kernels hide each other: one runs beside another one, or a product loads its inputs while the kernel before
 * it runs. What such kernels take alone says little of what they take in the whole. */
bool ef_kernels_hide(const ef_kgraph *graph, const ef_schedule *schedule);

#endif
