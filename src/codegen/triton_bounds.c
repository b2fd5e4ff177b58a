/* Where a loop begins and ends. */
#include <inttypes.h>

#include "codegen/triton_print.h"

ef_index ef_t_outer_end(ef_t *t, uint32_t iter)
{
    uint32_t outer = t->kernel->iters.at[iter].outer;
    uint64_t whole = ef_sched_whole(t->graph, t->schedule, t->kernel, iter);
    unsigned level;
    if (outer == EF_NONE)
        return ef_index_const(t->ix, (int64_t)whole);
    const char *len = ef_t_iter_len(t, outer, &level);
    ef_index length = len ? ef_index_name(t->ix, len, whole + 1) : ef_index_const(t->ix, (int64_t)whole);
    return ef_index_add(t->ix, t->iter[outer].start, length);
}

void ef_t_bounds(ef_t *t, const ef_kloop *loop, const char **begin, const char **end)
{
    uint32_t outer = t->kernel->iters.at[loop->iter].outer;
    *begin = outer == EF_NONE ? "0" : ef_t_index(t, t->iter[outer].start);
    *end = ef_t_index(t, ef_t_outer_end(t, loop->iter));
}
