/* How much of a masked loop is visited (kernel/mask.c), on average over blocks: from the conditions' values at drawn
 * positions. Private to src/target. */
#ifndef EF_TARGET_MASKED_H
#define EF_TARGET_MASKED_H

#include "kernel/kernel.h"

/* From 0 to 1; 1 where the loop has no conditions, or ones that depend on more than positions. Always the same. */
double ef_visited_part(const ef_kgraph *graph, const ef_kernel *kernel, const ef_kloop *loop);

#endif
