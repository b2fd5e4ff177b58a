/* The first schedule for a GPU: tiles that fit the registers of a block, long rows of what is read once, and about two
 * blocks a multiprocessor. The tuner goes on from here. */
#include "kernel/guess.h"

#include <string.h>

#define UNITS 132u          /* multiprocessors, unless told */
#define BLOCKS 2u           /* for each */
#define MOST_ELEMENTS 8192u /* of one tile */
#define MOST_LOADED 16384u  /* of one that products read: it stays in shared memory */
#define PADDED 16u          /* what the matrix unit pads to */
#define MOST_LONE 4096u     /* of a product of one row a batch, which is padded */
#define SHALLOW 16u         /* a product that sums up fewer is no work for the matrix unit */
#define FEW_ROWS 16u        /* a product with no more is bound by reading its second operand */

enum { ROW = 1, COLUMN = 2, INNER = 4, LAST = 8 };

/* What is known of one kernel. */
typedef struct {
    unsigned *role; /* by iterator */
    unsigned products;
    uint32_t units;       /* of the device */
    uint64_t rows, depth; /* of all products the most rows, and the most that one sums up */
} study;

static uint64_t power_of_two(uint64_t at_least)
{
    uint64_t power = 1;
    while (power < at_least)
        power *= 2;
    return power;
}

static void add_role(study *s, uint32_t iter, unsigned what)
{
    if (iter != EF_NONE)
        s->role[iter] |= what;
}

static void look(const ef_kgraph *g, const ef_kernel *k, study *s)
{
    for (ef_kid id = 0; id < ef_kernel_nodes(k); id++) {
        const ef_knode *n = ef_kernel_node(k, id);
        if (n->op == EF_TILE_MATMUL) {
            const ef_knode *b = ef_kernel_node(k, n->child[1]);
            uint64_t rows = ef_dim_extent(g->ctx, n->dim[1].dim);
            for (unsigned i = 2; i < n->rank; i++) { /* a batch that shares its second operand is rows, too */
                if (i < b->rank && b->dim[i].dim != EF_UNIT)
                    continue;
                rows = ef_sched_times(rows, ef_dim_extent(g->ctx, n->dim[i].dim));
                add_role(s, n->dim[i].cut, ROW);
            }
            s->rows = rows > s->rows ? rows : s->rows;
            const ef_knode *a = ef_kernel_node(k, n->child[0]);
            uint64_t depth = a->rank ? ef_dim_extent(g->ctx, a->dim[0].dim) : 1;
            s->depth = depth > s->depth ? depth : s->depth;
            s->products++;
            add_role(s, n->dim[0].cut, COLUMN);
            add_role(s, n->dim[1].cut, ROW);
            add_role(s, ef_kernel_node(k, n->child[0])->dim[0].cut, INNER);
        } else if (n->op == EF_VIEW && n->rank) {
            add_role(s, n->dim[0].cut, LAST);
        }
    }
}

/* A loop over columns whose product is an operand again: the columns of the second product stay whole, so that the
 * first is computed once. */
static bool is_chained(const ef_kernel *k, const study *s)
{
    for (uint32_t i = k->grid; i < k->iters.count; i++)
        if ((s->role[i] & INNER) && (s->role[i] & COLUMN))
            return true;
    return false;
}

static uint64_t tile_of(const ef_kgraph *g, const ef_kernel *k, const study *s, uint32_t at)
{
    const ef_iter *iter = &k->iters.at[at];
    uint64_t extent = ef_var_at(g->ctx, ef_axis_var(iter->axis))->extent;
    unsigned role = s->role[at];
    bool grid = iter->kind == EF_ITER_GRID;
    if (role & INNER)
        return 64;
    if (role & COLUMN)
        return is_chained(k, s) && grid && extent <= 256 ? extent : s->rows <= FEW_ROWS || !grid ? 64 : 128;
    if (role & ROW)
        return extent <= 64 ? extent : 64;
    if (!grid) /* a row that is kept whole is read once, whatever is computed from it */
        return extent <= MOST_ELEMENTS ? extent : 1024;
    return role & LAST ? 1024 : 1;
}

/* ---- limits ---- */

/* `least`: what a dimension of several is padded to at least. */
static uint64_t elements(const ef_kgraph *g, const ef_schedule *s, const ef_kernel *k, const ef_knode *n,
                         uint64_t least, uint32_t *largest)
{
    uint64_t product = 1, most = 1;
    *largest = EF_NONE;
    for (unsigned i = 0; i < n->rank; i++) {
        const ef_var *atoms;
        uint32_t cut = n->dim[i].cut;
        for (unsigned a = 0, count = ef_dim_atoms(g->ctx, n->dim[i].dim, &atoms); a < count; a++) {
            bool is_cut = a == 0 && cut != EF_NONE;
            uint64_t extent = is_cut ? ef_sched_tile(g, s, k, cut) : ef_sched_var(g, s, atoms[a]);
            product = ef_sched_times(product, extent > 1 && extent < least ? least : power_of_two(extent));
            if (is_cut && extent > most && k->iters.at[cut].kind != EF_ITER_PICK) {
                most = extent;
                *largest = cut;
            }
        }
    }
    return product;
}

static bool is_tile(const ef_knode *n)
{
    return n->op == EF_TILE_MATMUL || n->op == EF_VIEW || n->op == EF_K_STATE ||
           (n->op < EF_OP_COUNT && ef_op_pointwise((ef_op)n->op));
}

/* Halves what is cut longest in a tile that is too large. */
static void fit(const ef_kgraph *g, ef_schedule *s, const ef_kernel *k)
{
    for (ef_kid id = 0; id < ef_kernel_nodes(k); id++) {
        const ef_knode *n = ef_kernel_node(k, id);
        uint32_t largest;
        bool batched = n->op == EF_TILE_MATMUL && n->rank > 2,
             lone = n->op == EF_TILE_MATMUL && (n->rank < 2 || n->dim[1].dim == EF_UNIT);
        uint64_t most = n->op == EF_VIEW ? MOST_LOADED : lone ? MOST_LONE : MOST_ELEMENTS;
        while (is_tile(n) && elements(g, s, k, n, batched ? PADDED : 1, &largest) > most && largest != EF_NONE) {
            uint64_t *value = &s->value[k->iters.at[largest].param];
            *value = power_of_two(ef_sched_tile(g, s, k, largest)) / 2;
        }
    }
}

/* Halves the largest grid tile until there are enough blocks; short rows are read slowly. */
static void spread(const ef_kgraph *g, ef_schedule *s, const ef_kernel *k, const study *what)
{
    bool chained = is_chained(k, what);
    while (ef_sched_blocks(g, s, k) < what->units) {
        uint32_t largest = EF_NONE;
        for (uint32_t i = 0; i < k->grid; i++)
            if (g->params.at[k->iters.at[i].param].kernel != EF_NONE && !(chained && (what->role[i] & COLUMN)) &&
                (largest == EF_NONE || ef_sched_tile(g, s, k, i) > ef_sched_tile(g, s, k, largest)))
                largest = i;
        if (largest == EF_NONE || ef_sched_tile(g, s, k, largest) <= 32)
            return;
        s->value[k->iters.at[largest].param] = power_of_two(ef_sched_tile(g, s, k, largest)) / 2;
    }
}

/* Tiles that shape buffers: as many parts as fill the device. */
static void split(const ef_kgraph *g, ef_schedule *s, const ef_kernel *k, uint32_t units)
{
    bool *open = ef_xcalloc(k->grid + 1, sizeof *open);
    for (uint32_t i = 0; i < k->grid; i++) {
        uint64_t *value = &s->value[k->iters.at[i].param];
        open[i] = *value == 0; /* one part, for now: blocks can be counted only when all tiles have a size */
        if (open[i])
            *value = ef_var_at(g->ctx, ef_axis_var(k->iters.at[i].axis))->extent;
    }
    for (uint32_t i = 0; i < k->grid; i++) {
        uint64_t *value = &s->value[k->iters.at[i].param], extent = *value;
        if (!open[i])
            continue;
        uint64_t blocks = ef_sched_blocks(g, s, k), parts = (BLOCKS * (uint64_t)units + blocks - 1) / blocks;
        uint64_t tile = power_of_two((extent + parts - 1) / parts);
        *value = tile < 64 ? 64 : tile;
    }
    free(open);
}

/* Products with few rows stream their second operand: each step of the loop reads so much of it. On an H200 half as
 * much took up to twice the time; the first operand may be computed, in registers, which bounds the depth. */
#define STREAMED 8192u /* elements */
#define DEEPEST 256u

static void deepen(const ef_kgraph *g, ef_schedule *s, const ef_kernel *k, const study *what)
{
    uint64_t columns = 1;
    for (uint32_t i = 0; i < k->iters.count; i++)
        if ((what->role[i] & COLUMN) && ef_sched_tile(g, s, k, i) > columns)
            columns = ef_sched_tile(g, s, k, i);
    for (uint32_t i = k->grid; i < k->iters.count && what->rows <= FEW_ROWS; i++)
        if (what->role[i] == INNER && columns <= 64) {
            uint64_t depth = STREAMED / power_of_two(columns * what->products);
            s->value[k->iters.at[i].param] = depth < DEEPEST ? depth : DEEPEST;
        }
}

/* ---- the whole ---- */

static void guess_tiles(const ef_kgraph *g, ef_schedule *s, const ef_kernel *k, const study *what)
{
    for (uint32_t i = 0; i < k->iters.count; i++) {
        const ef_iter *iter = &k->iters.at[i];
        if (iter->kind == EF_ITER_PICK || g->params.at[iter->param].kernel == EF_NONE)
            continue;
        uint64_t tile = tile_of(g, k, what, i);
        if (s->value[iter->param] == 0 || tile < s->value[iter->param])
            s->value[iter->param] = tile;
    }
}

static void guess_kernel(const ef_kgraph *g, ef_schedule *s, uint32_t number, uint32_t units)
{
    const ef_kernel *k = g->kernels.at[number];
    study what = {.role = ef_xcalloc(k->iters.count + 1, sizeof *what.role), .units = units};
    uint32_t largest;
    uint64_t most = 0;
    look(g, k, &what);
    guess_tiles(g, s, k, &what);
    split(g, s, k, units);
    fit(g, s, k);
    spread(g, s, k, &what);
    deepen(g, s, k, &what);
    for (ef_kid id = 0; id < ef_kernel_nodes(k); id++)
        if (is_tile(ef_kernel_node(k, id))) {
            uint64_t size = elements(g, s, k, ef_kernel_node(k, id), 1, &largest);
            most = size > most ? size : most;
        }
    for (uint32_t i = 0; i < g->params.count; i++) {
        if (g->params.at[i].kernel != number)
            continue;
        switch (g->params.at[i].kind) {
        case EF_PARAM_WARPS:
            s->value[i] = what.products && what.rows <= FEW_ROWS ? 2 : most >= 4096 && !what.products ? 8 : 4;
            break;
        case EF_PARAM_STAGES: s->value[i] = what.products == 1 && what.rows <= FEW_ROWS ? 4 : 3; break;
        case EF_PARAM_UNIT: /* also for one row: measured on an H200, what is bound by memory hides the empty rows */
            s->value[i] = what.products > 0 && what.depth >= SHALLOW;
            break;
        default: break;
        }
    }
    free(what.role);
}

ef_schedule ef_guess_triton(const ef_kgraph *g, uint32_t units)
{
    ef_schedule s = {.backend = EF_BACKEND_TRITON, .count = g->params.count};
    s.value = ef_xcalloc(s.count + 1, sizeof *s.value);
    for (uint32_t i = 0; i < g->kernels.count; i++)
        guess_kernel(g, &s, i, units ? units : UNITS);
    for (uint32_t i = 0; i < s.count; i++) {
        uint64_t value[EF_SCHEDULE_VALUES];
        unsigned n = ef_schedule_domain(g, EF_BACKEND_TRITON, i, value);
        uint64_t nearest = value[0];
        for (unsigned v = 1; v < n; v++)
            if (value[v] <= s.value[i])
                nearest = value[v];
        s.value[i] = nearest;
    }
    return s;
}
