/* Sizes under a schedule: see schedule.h. */
#include "kernel/schedule.h"

#include <string.h>

#define ALIGN 64u

static uint64_t least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* ---- sizes ---- */

#define HUGE_SIZE (UINT64_C(1) << 56) /* what does not fit any machine: sums and bytes of it still fit 64 bits */

uint64_t ef_sched_times(uint64_t a, uint64_t b)
{
    uint64_t product;
    return __builtin_mul_overflow(a, b, &product) || product > HUGE_SIZE ? HUGE_SIZE : product;
}

uint32_t ef_sched_param(const ef_kgraph *g, ef_axis axis)
{
    uint32_t found = EF_NONE;
    for (uint32_t i = 0; i < g->params.count; i++)
        if (g->params.at[i].kind == EF_PARAM_TILE && g->params.at[i].axis == axis &&
            (found == EF_NONE || g->params.at[i].kernel == EF_NONE))
            found = i;
    return found;
}

unsigned ef_sched_parts(const ef_kgraph *g, const ef_schedule *s, ef_axis axis, ef_part_run run[EF_K_MAX_RUNS])
{
    const ef_kparts *parts = NULL;
    unsigned runs = 0;
    for (uint32_t i = 0; i < g->parts.count; i++)
        parts = g->parts.at[i].axis == axis ? &g->parts.at[i] : parts;
    uint64_t tile = parts ? s->value[ef_sched_param(g, axis)] : 1;
    for (unsigned i = 0; parts && i < parts->runs; i++) {
        uint64_t first = parts->run[i].from / tile, end = (parts->run[i].to - 1) / tile + 1;
        uint64_t before = runs ? run[runs - 1].first + run[runs - 1].count : 0;
        if (runs && first <= before)
            run[runs - 1].count += end > before ? end - before : 0;
        else
            run[runs++] = (ef_part_run){first, end - first};
    }
    return runs;
}

static uint64_t count_parts(const ef_part_run *run, unsigned runs)
{
    uint64_t count = 0;
    for (unsigned i = 0; i < runs; i++)
        count += run[i].count;
    return count;
}

uint64_t ef_sched_var(const ef_kgraph *g, const ef_schedule *s, ef_var var)
{
    const ef_var_info *info = ef_var_at(g->ctx, var);
    ef_part_run run[EF_K_MAX_RUNS];
    if (info->kind != EF_VAR_COUNT)
        return info->extent;
    unsigned runs = ef_sched_parts(g, s, info->axis, run);
    if (runs)
        return count_parts(run, runs);
    uint64_t whole = ef_sched_var(g, s, ef_axis_var(info->axis));
    uint32_t param = ef_sched_param(g, info->axis);
    if (ef_axis_level(info->axis) > 0 && ef_sched_param(g, ef_axis_of(ef_axis_var(info->axis), 0)) != EF_NONE)
        whole = least(whole, s->value[ef_sched_param(g, ef_axis_of(ef_axis_var(info->axis), 0))]);
    uint64_t tile = param == EF_NONE ? whole : least(s->value[param], whole);
    return (whole + tile - 1) / tile;
}

uint64_t ef_sched_dim(const ef_kgraph *g, const ef_schedule *s, ef_dim dim)
{
    const ef_var *atoms;
    uint64_t product = 1;
    for (unsigned i = 0, n = ef_dim_atoms(g->ctx, dim, &atoms); i < n; i++)
        product = ef_sched_times(product, ef_sched_var(g, s, atoms[i]));
    return product;
}

uint64_t ef_sched_whole(const ef_kgraph *g, const ef_schedule *s, const ef_kernel *k, uint32_t iter)
{
    const ef_iter *i = &k->iters.at[iter];
    if (i->kind == EF_ITER_PICK)
        return ef_sched_dim(g, s, i->count);
    return i->outer == EF_NONE ? ef_sched_var(g, s, ef_axis_var(i->axis)) : ef_sched_tile(g, s, k, i->outer);
}

uint64_t ef_sched_tile(const ef_kgraph *g, const ef_schedule *s, const ef_kernel *k, uint32_t iter)
{
    const ef_iter *i = &k->iters.at[iter];
    return i->kind == EF_ITER_PICK ? 1 : least(s->value[i->param], ef_sched_whole(g, s, k, iter));
}

unsigned ef_sched_runs(const ef_kgraph *g, const ef_schedule *s, const ef_kernel *k, uint32_t iter,
                       ef_part_run run[EF_K_MAX_RUNS])
{
    const ef_iter *i = &k->iters.at[iter];
    return i->kind == EF_ITER_GRID ? ef_sched_parts(g, s, i->axis, run) : 0;
}

uint64_t ef_sched_trips(const ef_kgraph *g, const ef_schedule *s, const ef_kernel *k, uint32_t iter)
{
    ef_part_run run[EF_K_MAX_RUNS];
    unsigned runs = ef_sched_runs(g, s, k, iter, run);
    if (runs)
        return count_parts(run, runs);
    uint64_t tile = ef_sched_tile(g, s, k, iter);
    return tile ? (ef_sched_whole(g, s, k, iter) + tile - 1) / tile : 0;
}

uint64_t ef_sched_buffer(const ef_kgraph *g, const ef_schedule *s, uint32_t buffer)
{
    const ef_kbuffer *b = &g->buffers.at[buffer];
    uint64_t product = 1;
    for (unsigned i = 0; i < b->rank; i++)
        product = ef_sched_times(product, ef_sched_dim(g, s, b->dim[i]));
    return product;
}

/* ---- buffers ---- */

static bool overlap_in_time(const ef_kbuffer *a, const ef_kbuffer *b)
{
    return a->born <= b->dies && b->born <= a->dies;
}

static uint64_t bytes_of(const ef_kgraph *g, const ef_schedule *s, uint32_t buffer)
{
    uint64_t bytes = ef_sched_buffer(g, s, buffer) * ef_dtype_bytes((ef_dtype)g->buffers.at[buffer].dtype);
    return (bytes + ALIGN - 1) / ALIGN * ALIGN;
}

/* First fit: the lowest place where no buffer that lives at the same time is in the way. */
uint64_t ef_sched_plan(const ef_kgraph *g, const ef_schedule *s, uint64_t *offset)
{
    uint64_t end = 0;
    for (uint32_t i = 0; i < g->buffers.count; i++) {
        const ef_kbuffer *b = &g->buffers.at[i];
        uint64_t at = 0, size = bytes_of(g, s, i);
        offset[i] = 0;
        if (b->kind != EF_BUFFER_TEMP || b->born == EF_NONE)
            continue;
        for (bool moved = true; moved;) {
            moved = false;
            for (uint32_t j = 0; j < i; j++) {
                const ef_kbuffer *other = &g->buffers.at[j];
                uint64_t other_end = offset[j] + bytes_of(g, s, j);
                if (other->kind != EF_BUFFER_TEMP || other->born == EF_NONE || !overlap_in_time(b, other) ||
                    at >= other_end || offset[j] >= at + size)
                    continue;
                at = other_end;
                moved = true;
            }
        }
        offset[i] = at;
        end = at + size > end ? at + size : end;
    }
    return end;
}

/* ---- schedules ---- */

ef_schedule ef_schedule_copy(const ef_schedule *schedule)
{
    ef_schedule copy = *schedule;
    copy.value = ef_xcalloc(copy.count + 1, sizeof *copy.value);
    memcpy(copy.value, schedule->value, copy.count * sizeof *copy.value);
    return copy;
}

void ef_schedule_free(ef_schedule *schedule)
{
    free(schedule->value);
    *schedule = (ef_schedule){0};
}

uint64_t ef_sched_blocks(const ef_kgraph *g, const ef_schedule *s, const ef_kernel *k)
{
    uint64_t blocks = 1;
    for (uint32_t i = 0; i < k->grid; i++)
        blocks = ef_sched_times(blocks, ef_sched_trips(g, s, k, i));
    return blocks;
}

uint64_t ef_sched_value(const ef_kgraph *g, const ef_schedule *s, uint32_t kernel, ef_param_kind kind)
{
    /* Costs ask often: what is chosen for a kernel as a whole stands last, kernel by kernel (form.c). */
    uint32_t behind = (g->kernels.count - kernel) * (EF_PARAM_KINDS - 1), likely = g->params.count - behind + kind - 1;
    if (likely < g->params.count && g->params.at[likely].kind == kind && g->params.at[likely].kernel == kernel)
        return s->value[likely];
    for (uint32_t i = 0; i < g->params.count; i++)
        if (g->params.at[i].kind == kind && g->params.at[i].kernel == kernel)
            return s->value[i];
    return 0;
}
