/* Schedules: the choices that a kernel graph leaves open (paper, section 6; design, section 7).
 *
 * A parameter is the tile extent along an axis, in units of the axis's variable: of one kernel, or of all kernels where
 * a collection makes the number of tiles a dimension of a buffer. Everything else about sizes follows. */
#ifndef EF_KERNEL_SCHEDULE_H
#define EF_KERNEL_SCHEDULE_H

#include "kernel/kernel.h"

typedef struct {
    uint32_t threads; /* of the CPU */
    uint32_t count;   /* the graph's parameters */
    uint64_t *tile;   /* by parameter, at least 1; larger than the dimension means whole */
} ef_schedule;

/* A sensible schedule for a CPU. Freed by ef_schedule_free. */
ef_schedule ef_schedule_default(const ef_kgraph *graph, uint32_t threads);
ef_schedule ef_schedule_copy(const ef_schedule *schedule);
void ef_schedule_free(ef_schedule *schedule);
/* Sets the tile extent of an axis in all kernels. False when no kernel has the axis. */
bool ef_schedule_set(const ef_kgraph *graph, ef_schedule *schedule, ef_axis axis, uint64_t extent);

#define EF_SCHEDULE_VALUES 48
/* The legal tile extents of a parameter, ascending: powers of two below the extent, and the extent. */
unsigned ef_schedule_domain(const ef_kgraph *graph, uint32_t param, uint64_t value[EF_SCHEDULE_VALUES]);

/* Sizes under a schedule. */
uint64_t ef_sched_var(const ef_kgraph *graph, const ef_schedule *schedule, ef_var var);
uint64_t ef_sched_dim(const ef_kgraph *graph, const ef_schedule *schedule, ef_dim dim);
/* The tile extent of an iterator, never larger than what it divides (1 for a pick). */
uint64_t ef_sched_tile(const ef_kgraph *graph, const ef_schedule *schedule, const ef_kernel *kernel, uint32_t iter);
/* What it divides: the block of the outer iterator or the whole variable. */
uint64_t ef_sched_whole(const ef_kgraph *graph, const ef_schedule *schedule, const ef_kernel *kernel, uint32_t iter);
/* How many positions it has. */
uint64_t ef_sched_trips(const ef_kgraph *graph, const ef_schedule *schedule, const ef_kernel *kernel, uint32_t iter);
uint64_t ef_sched_buffer(const ef_kgraph *graph, const ef_schedule *schedule, uint32_t buffer); /* elements */

/* Where temporary buffers lie in the workspace, in bytes by buffer (inputs and outputs: 0). Buffers that are never
 * needed at one time share memory. Returns the size of the workspace; `offset` has one entry a buffer. */
uint64_t ef_sched_plan(const ef_kgraph *graph, const ef_schedule *schedule, uint64_t *offset);

#endif
