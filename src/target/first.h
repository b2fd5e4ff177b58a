/* First schedules for a GPU: those that cost least (cost.h) of the ones that a search goes through which changes one or
 * two parameters at a time, from the guess of the code generator (kernel/schedule.h) on. Kernels without products
 * overlap where the target can do that, and others where they then load inputs ahead; other parameters that the cost
 * knows nothing of keep the guessed values. The same graph has the same schedule always. */
#ifndef EF_TARGET_FIRST_H
#define EF_TARGET_FIRST_H

#include "kernel/schedule.h"
#include "target/target.h"

/* kernel_us: by kernel, what it costs then, with its launch; EF_COST_NEVER or more: no schedule was found for which
 * there is room. Freed by ef_schedule_free. */
ef_schedule ef_first_schedule(const ef_kgraph *graph, const ef_target *target, double *kernel_us);

#endif
