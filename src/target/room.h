/* Whether a kernel's block can hold its tiles on a GPU: a schedule of which it is known beforehand that the compiler
 * refuses it, or spills whole tiles, need not be measured.
 *
 * Counted are, with tiles padded to powers of two as Triton's are, and rows, columns and terms of products to at least
 * 16 for the matrix unit, in all tiles that have these dimensions,
 *   - in registers: the largest tile that is computed, the states of a loop, the terms of products, and what each warp
 *     holds of the operands of a product on the matrix unit;
 *   - in shared memory: what a loop with products loads, for each of its stages but one (for all, where four warps work
 * on a product together); what few stored parts add up to, whose loop stands unrolled in another; operands of products
 * that do not change in the loop, and one that is computed;
 *   - elements of a product's tile, of which code generators take so many at most.
 * What compilers made of drawn schedules: docs/performance.md, "Room". */
#ifndef EF_TARGET_ROOM_H
#define EF_TARGET_ROOM_H

#include "kernel/schedule.h"
#include "target/sizes.h"
#include "target/target.h"

typedef struct {
    double registers; /* bytes of one block at least */
    double shared;
    double register_room; /* bytes that its threads can have at most, 255 registers each */
    double elements;      /* of the largest tile that cannot be walked through in parts */
} ef_room;

ef_room ef_room_of(const ef_kgraph *graph, const ef_schedule *schedule, uint32_t kernel, const ef_target *target);
/* In how many parts of its inner dimension a product goes, because its operands are too large: a loop of its own. */
double ef_room_parts(const ef_sizes *z, const ef_knode *product);
/* The same of one outside of the matrix unit with so many terms, padded, summed up over a padded depth. */
double ef_room_term_parts(double terms, double depth);
/* What is needed most, as a part of what there is: more than 1 does not fit. */
double ef_room_excess(const ef_room *room, const ef_target *target);
/* Always of a CPU. */
bool ef_room_fits(const ef_kgraph *graph, const ef_schedule *schedule, uint32_t kernel, const ef_target *target);

#endif
