/* Schedules: see schedule.h. The default aims at tiles that stay in the caches of one core, with enough blocks for all
 * threads; what suits a kernel is the tuner's business. */
#include "kernel/schedule.h"

#include <string.h>

#define ALIGN 64u

static uint64_t least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* ---- sizes ---- */

#define HUGE_SIZE (UINT64_C(1) << 56) /* what does not fit any machine: sums and bytes of it still fit 64 bits */

static uint64_t times(uint64_t a, uint64_t b)
{
    uint64_t product;
    return __builtin_mul_overflow(a, b, &product) || product > HUGE_SIZE ? HUGE_SIZE : product;
}

static uint32_t find_param(const ef_kgraph *g, ef_axis axis)
{
    uint32_t found = EF_NONE;
    for (uint32_t i = 0; i < g->params.count; i++)
        if (g->params.at[i].axis == axis && (found == EF_NONE || g->params.at[i].kernel == EF_NONE))
            found = i;
    return found;
}

uint64_t ef_sched_var(const ef_kgraph *g, const ef_schedule *s, ef_var var)
{
    const ef_var_info *info = ef_var_at(g->ctx, var);
    if (info->kind != EF_VAR_COUNT)
        return info->extent;
    uint64_t whole = ef_sched_var(g, s, ef_axis_var(info->axis));
    uint32_t param = find_param(g, info->axis);
    if (ef_axis_level(info->axis) > 0 && find_param(g, ef_axis_of(ef_axis_var(info->axis), 0)) != EF_NONE)
        whole = least(whole, s->tile[find_param(g, ef_axis_of(ef_axis_var(info->axis), 0))]);
    uint64_t tile = param == EF_NONE ? whole : least(s->tile[param], whole);
    return (whole + tile - 1) / tile;
}

uint64_t ef_sched_dim(const ef_kgraph *g, const ef_schedule *s, ef_dim dim)
{
    const ef_var *atoms;
    uint64_t product = 1;
    for (unsigned i = 0, n = ef_dim_atoms(g->ctx, dim, &atoms); i < n; i++)
        product = times(product, ef_sched_var(g, s, atoms[i]));
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
    return i->kind == EF_ITER_PICK ? 1 : least(s->tile[i->param], ef_sched_whole(g, s, k, iter));
}

uint64_t ef_sched_trips(const ef_kgraph *g, const ef_schedule *s, const ef_kernel *k, uint32_t iter)
{
    uint64_t tile = ef_sched_tile(g, s, k, iter);
    return (ef_sched_whole(g, s, k, iter) + tile - 1) / tile;
}

uint64_t ef_sched_buffer(const ef_kgraph *g, const ef_schedule *s, uint32_t buffer)
{
    const ef_kbuffer *b = &g->buffers.at[buffer];
    uint64_t product = 1;
    for (unsigned i = 0; i < b->rank; i++)
        product = times(product, ef_sched_dim(g, s, b->dim[i]));
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

/* ---- domains and defaults ---- */

unsigned ef_schedule_domain(const ef_kgraph *g, uint32_t param, uint64_t value[EF_SCHEDULE_VALUES])
{
    uint64_t extent = ef_var_at(g->ctx, ef_axis_var(g->params.at[param].axis))->extent;
    unsigned n = 0;
    for (uint64_t v = 1; v < extent && n + 1 < EF_SCHEDULE_VALUES; v *= 2)
        value[n++] = v;
    value[n++] = extent;
    return n;
}

/* What an iterator does in its kernel: the default depends on it. */
enum { ROLE_ROW = 1, ROLE_COLUMN = 2, ROLE_INNER = 4, ROLE_LAST = 8, ROLE_BLOCK = 16 };

static void add_role(unsigned *role, uint32_t iter, unsigned what)
{
    if (iter != EF_NONE)
        role[iter] |= what;
}

#define FEW_ROWS 4u /* a product with fewer is bound by reading its second operand: long rows of it are best */

static void find_roles(const ef_kgraph *g, const ef_kernel *k, unsigned *role)
{
    for (ef_kid id = 0; id < ef_kernel_nodes(k); id++) {
        const ef_knode *n = ef_kernel_node(k, id);
        if (n->op == EF_TILE_MATMUL) {
            bool block = ef_dim_extent(g->ctx, n->dim[1].dim) >= FEW_ROWS;
            add_role(role, n->dim[0].cut, ROLE_COLUMN | (block ? ROLE_BLOCK : 0));
            add_role(role, n->dim[1].cut, ROLE_ROW);
            add_role(role, ef_kernel_node(k, n->child[0])->dim[0].cut, ROLE_INNER);
        } else if (n->op == EF_VIEW) {
            add_role(role, n->dim[0].cut, ROLE_LAST);
        }
    }
}

static uint64_t default_tile(const ef_iter *iter, unsigned role)
{
    if (role & ROLE_INNER && role & ROLE_COLUMN) /* keys: columns of the scores, rows of the values */
        return 128;
    if (role & ROLE_INNER)
        return 256;
    if (role & ROLE_COLUMN)
        return role & ROLE_BLOCK || iter->kind != EF_ITER_GRID ? 128 : 2048;
    if (role & ROLE_ROW)
        return 64;
    if (iter->kind == EF_ITER_GRID)
        return role & ROLE_LAST ? 1024 : 1;
    return 1024;
}

static uint64_t blocks_of(const ef_kgraph *g, const ef_schedule *s, const ef_kernel *k)
{
    uint64_t blocks = 1;
    for (uint32_t i = 0; i < k->grid; i++)
        blocks = times(blocks, ef_sched_trips(g, s, k, i));
    return blocks;
}

/* Halves the largest grid tile until every thread has two blocks. */
static void spread(const ef_kgraph *g, ef_schedule *s, const ef_kernel *k)
{
    while (blocks_of(g, s, k) < 2u * s->threads) {
        uint32_t largest = EF_NONE;
        for (uint32_t i = 0; i < k->grid; i++)
            if (largest == EF_NONE || ef_sched_tile(g, s, k, i) > ef_sched_tile(g, s, k, largest))
                largest = i;
        if (largest == EF_NONE || ef_sched_tile(g, s, k, largest) <= 16)
            return;
        s->tile[k->iters.at[largest].param] = (ef_sched_tile(g, s, k, largest) + 1) / 2;
    }
}

ef_schedule ef_schedule_default(const ef_kgraph *g, uint32_t threads)
{
    ef_schedule s = {.threads = threads ? threads : 1, .count = g->params.count};
    s.tile = ef_xcalloc(s.count + 1, sizeof *s.tile);
    for (uint32_t i = 0; i < g->kernels.count; i++) {
        const ef_kernel *k = g->kernels.at[i];
        unsigned *role = ef_xcalloc(k->iters.count + 1, sizeof *role);
        find_roles(g, k, role);
        for (uint32_t j = 0; j < k->iters.count; j++) {
            const ef_iter *iter = &k->iters.at[j];
            if (iter->kind == EF_ITER_PICK)
                continue;
            bool shared = g->params.at[iter->param].kernel == EF_NONE;
            uint64_t tile = shared ? 512 : default_tile(iter, role[j]);
            if (s.tile[iter->param] == 0 || (!shared && tile < s.tile[iter->param]))
                s.tile[iter->param] = tile;
        }
        free(role);
    }
    for (uint32_t i = 0; i < g->kernels.count; i++)
        spread(g, &s, g->kernels.at[i]);
    return s;
}

ef_schedule ef_schedule_copy(const ef_schedule *schedule)
{
    ef_schedule copy = *schedule;
    copy.tile = ef_xcalloc(copy.count + 1, sizeof *copy.tile);
    memcpy(copy.tile, schedule->tile, copy.count * sizeof *copy.tile);
    return copy;
}

void ef_schedule_free(ef_schedule *schedule)
{
    free(schedule->tile);
    *schedule = (ef_schedule){0};
}

bool ef_schedule_set(const ef_kgraph *g, ef_schedule *schedule, ef_axis axis, uint64_t extent)
{
    bool found = false;
    for (uint32_t i = 0; i < g->params.count; i++)
        if (g->params.at[i].axis == axis) {
            schedule->tile[i] = extent ? extent : 1;
            found = true;
        }
    return found;
}
