/* The first schedule for a CPU: tiles that stay in the caches of one core, with enough blocks for all threads; what
 * suits a kernel is the tuner's business. */
#include "kernel/guess.h"

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

/* Halves the largest grid tile until every thread has two blocks. */
static void spread(const ef_kgraph *g, ef_schedule *s, const ef_kernel *k)
{
    while (ef_sched_blocks(g, s, k) < 2u * s->threads) {
        uint32_t largest = EF_NONE;
        for (uint32_t i = 0; i < k->grid; i++)
            if (largest == EF_NONE || ef_sched_tile(g, s, k, i) > ef_sched_tile(g, s, k, largest))
                largest = i;
        if (largest == EF_NONE || ef_sched_tile(g, s, k, largest) <= 16)
            return;
        s->value[k->iters.at[largest].param] = (ef_sched_tile(g, s, k, largest) + 1) / 2;
    }
}

ef_schedule ef_guess_c(const ef_kgraph *g, uint32_t threads)
{
    ef_schedule s = {.backend = EF_BACKEND_C, .threads = threads ? threads : 1, .count = g->params.count};
    s.value = ef_xcalloc(s.count + 1, sizeof *s.value);
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
            if (s.value[iter->param] == 0 || (!shared && tile < s.value[iter->param]))
                s.value[iter->param] = tile;
        }
        free(role);
    }
    for (uint32_t i = 0; i < g->kernels.count; i++)
        spread(g, &s, g->kernels.at[i]);
    return s;
}
