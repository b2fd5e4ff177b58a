/* How much of a masked loop (kernel/mask.c) is visited under a schedule, on average over blocks: of how many of its
 * tiles it does not follow from positions (kernel/holds.h) that nothing is seen there. Private to src/target. */
#ifndef EF_TARGET_MASKED_H
#define EF_TARGET_MASKED_H

#include "kernel/schedule.h"

/* A loop, and what was found of it before. The graph must outlive it. */
typedef struct ef_masked ef_masked;

ef_masked *ef_masked_new(const ef_kgraph *graph, const ef_kernel *kernel, const ef_kloop *loop);
/* From 0 to 1; 1 where the loop has no conditions, or ones that depend on more than positions. Exact where only
 * positions along the loop matter, up to tiles that conditions empty together but none of them alone; where those of a
 * few other variables do, of tiles of them that are spread evenly. */
double ef_masked_part(ef_masked *masked, const ef_schedule *schedule);
void ef_masked_free(ef_masked *masked);

#endif
