/* Times of schedules: see cost.h. Figures without a comment are rounded, and of NVIDIA GPUs since Ampere. */
#include "target/cost.h"

#include <math.h>
#include <stdlib.h>

#include "support/vec.h"
#include "target/masked.h"
#include "target/operands.h"
#include "target/reads.h"
#include "target/room.h"
#include "target/sizes.h"

#define LATENCY_US 0.75 /* of a load from memory, under load */
#define CACHED_US 0.3   /* of one from the cache; in loops the next ones are under way */
#define CACHED_STEP_US 0.1
#define RARELY 0.05      /* a part of a tile that most blocks have none of: few wait for it */
#define LINE 128.0       /* bytes: what a loop along rows finds near when it goes on */
#define START_US 0.2     /* of a block: its addresses */
#define STEP_US 0.05     /* of an iteration by itself: it waits for its loads, and a barrier */
#define LEAST_COPY 4.0   /* bytes a thread, of a copy that a loop with products asks for iterations before */
#define PRODUCT_US 0.03  /* of a product in an iteration, beyond its work */
#define REDUCED_US 0.08  /* of a reduction over the threads of a block … */
#define IN_WARP_US 0.045 /* … of one warp */
#define SECTOR 32.0      /* bytes: the least that memory gives */
#define ROW_CLOCKS \
    2.5               /* of a row of a tile, or of each line of it: requests of a multiprocessor, one after the other */
#define BANKS 128.0   /* bytes a clock that come from shared memory */
#define CONFLICT 8.0  /* rows that begin in the same bank are read one after the other */
#define CONVERTED 4.0 /* instructions for an element that is computed in the layout of an operand, each operation */
#define LANES 128.0   /* additions a clock and multiprocessor; special functions: an eighth */
#define SPECIAL 8.0   /* so many additions */
#define LOADED 0.3    /* of an element that is loaded: addresses, masks */
#define CHAINED_US 0.04  /* of an operand that is computed in the iteration and goes through shared memory */
#define MOST_BLOCK 256.0 /* extents of a block that a descriptor has */
#define WARPS_FULL 5.0   /* of a multiprocessor: fewer do not fill its lanes */
#define WARPS_MATRIX 4.0 /* one for each of its matrix units */
#define MOST_WARPS 64.0  /* of a multiprocessor */
#define MOST_BLOCKS 32.0
#define THREADS 32.0         /* of a warp */
#define LEAST_REGISTERS 48.0 /* of a thread: addresses and indices */
#define REGISTER 4.0         /* bytes */
#define BLOCK_SHARED 1024.0  /* bytes that each block takes besides */
#define GROUP_ROWS 64.0      /* rows of a product that four warps work on together, at the full rate */
#define ALONE 0.6            /* of that rate, without */
#define BOUNDS 5.0           /* bounds of like length add up, by this norm; much shorter ones are hidden */
#define APART                                                                                                     \
    0.75               /* of the lesser of matrix unit and lanes, where a multiprocessor has one block: its warps \
                        * wait for each other … */
#define TOGETHER 0.2   /* … and where others go on meanwhile */
#define GATHERED 32.0  /* additions, of an element that is taken out of a tile in registers */
#define LONG_ROW 512.0 /* terms of a row that is computed by sums, where a product outside of the matrix unit … */
/* … has several of them: Triton deals them out to threads anew, and spills: 14 kB and 450 us for 2 rows and 16 columns
 * on an H200, below 1 kB or nothing for other shapes. No place for a first schedule. */
#define TURNED_US 20.0
#define AHEAD_US 0.8  /* that loads of inputs gain, at most, while the kernel before runs */
#define PAD_ROWS 16.0 /* otherwise */
#define PAD_COLUMNS 8.0

typedef struct {
    ef_kid id;
    uint32_t buffer;
    double part;  /* of the tile's elements that are this buffer's */
    unsigned row; /* the dimension along which elements lie side by side in memory; EF_MAX_RANK: not known */
    bool operand; /* of a product */
} load;

struct ef_cost {
    const ef_kgraph *g;
    const ef_kernel *k;
    const ef_target *target;
    uint32_t number;
    bool *needed; /* by node */
    bool chained; /* a product has an operand that is made of another product */
    ef_operands operands;
    EF_VEC(load) loads;
    EF_VEC(ef_kid) work;               /* nodes that compute */
    double *scratch;                   /* by buffer: bytes loaded and stored */
    ef_masked *masked[EF_K_MAX_LOOPS]; /* by loop */
};

/* ---- before the schedule is known ---- */

/* Whether a tile is loaded, from whichever tensors. */
static bool is_loaded(const ef_cost *c, ef_kid id)
{
    ef_read reads[EF_MOST_READS];
    return ef_kernel_reads(c->g, c->k, id, reads) > 0;
}

/* … and as it is: of one tensor. */
static bool is_plain(const ef_cost *c, ef_kid id)
{
    ef_read reads[EF_MOST_READS];
    return ef_kernel_reads(c->g, c->k, id, reads) == 1;
}

static void need(ef_cost *c, ef_kid id)
{
    c->needed[id] = true;
}

static void mark_loop(ef_cost *c, const ef_kloop *loop)
{
    for (unsigned i = 0; i < loop->leaves; i++) {
        need(c, loop->next[i]);
        need(c, loop->result[i]);
    }
    for (unsigned i = 0; i < loop->keeps; i++)
        need(c, loop->keep[i]);
}

static void mark_needed(ef_cost *c)
{
    const ef_kernel *k = c->k;
    for (uint32_t i = 0; i < k->stores.count; i++)
        need(c, k->stores.at[i].value);
    for (uint32_t i = 0; i < k->loops.count; i++)
        mark_loop(c, &k->loops.at[i]);
    for (ef_kid id = ef_kernel_nodes(k); id-- > 0;) {
        const ef_knode *n = ef_kernel_node(k, id);
        for (unsigned i = 0; c->needed[id] && i < n->count; i++)
            need(c, n->child[i]);
    }
}

/* The dimension of a loaded tile that ends in the last variable of the buffer. */
static unsigned row_of(const ef_kgraph *g, const ef_knode *n, const ef_kbuffer *b)
{
    const ef_var *atoms, *own;
    unsigned count = b->rank ? ef_dim_atoms(g->ctx, b->dim[0], &atoms) : 0;
    for (unsigned d = 0; count > 0 && d < n->rank; d++) {
        unsigned many = ef_dim_atoms(g->ctx, n->dim[d].dim, &own);
        if (many > 0 && own[many - 1] == atoms[count - 1])
            return d;
    }
    return EF_MAX_RANK;
}

static bool is_operand(const ef_cost *c, ef_kid id)
{
    for (uint32_t i = 0; i < c->operands.list.count; i++) {
        const ef_kids *loads = &c->operands.list.at[i].loads;
        for (uint32_t j = 0; j < loads->count; j++)
            if (loads->at[j] == id)
                return true;
    }
    return false;
}

static void add_load(ef_cost *c, ef_kid id)
{
    ef_read reads[EF_MOST_READS];
    const ef_knode *n = ef_kernel_node(c->k, id);
    for (uint32_t i = 0; i < c->loads.count; i++)
        if (c->loads.at[i].id == id)
            return;
    for (unsigned i = 0, count = ef_kernel_reads(c->g, c->k, id, reads); i < count; i++) {
        const ef_kbuffer *buffer = &c->g->buffers.at[reads[i].buffer];
        ef_vec_push(&c->loads,
                    ((load){id, reads[i].buffer, reads[i].part, row_of(c->g, n, buffer), is_operand(c, id)}));
    }
}

static bool has_chain(const ef_kernel *k)
{
    bool found = false, *made = ef_xcalloc(ef_kernel_nodes(k) + 1, sizeof *made); /* of a product */
    for (ef_kid id = 0; id < ef_kernel_nodes(k); id++) {
        const ef_knode *n = ef_kernel_node(k, id);
        for (unsigned i = 0; i < n->count; i++)
            made[id] = made[id] || made[n->child[i]];
        if (n->op == EF_K_RESULT)
            made[id] = made[k->loops.at[ef_k_loop_of(n->attr)].next[ef_k_leaf_of(n->attr)]];
        found = found || (n->op == EF_TILE_MATMUL && made[id]);
        made[id] = made[id] || n->op == EF_TILE_MATMUL;
    }
    free(made);
    return found;
}

ef_cost *ef_cost_new(const ef_kgraph *graph, uint32_t kernel, const ef_target *target)
{
    ef_cost *c = ef_xcalloc(1, sizeof *c);
    c->g = graph;
    c->k = graph->kernels.at[kernel];
    c->target = target;
    c->number = kernel;
    c->needed = ef_xcalloc(ef_kernel_nodes(c->k) + 1, sizeof *c->needed);
    c->scratch = ef_xcalloc(graph->buffers.count + 1, sizeof *c->scratch);
    c->chained = has_chain(c->k);
    mark_needed(c);
    ef_operands_find(graph, c->k, c->needed, &c->operands);
    for (uint32_t i = 0; i < c->k->loops.count && i < EF_K_MAX_LOOPS; i++)
        c->masked[i] = ef_masked_new(graph, c->k, &c->k->loops.at[i]);
    for (ef_kid id = 0; id < ef_kernel_nodes(c->k); id++) {
        const ef_knode *n = ef_kernel_node(c->k, id);
        if (!c->needed[id] || is_loaded(c, id))
            continue;
        for (unsigned i = 0; i < n->count; i++)
            add_load(c, n->child[i]);
        if (n->op == EF_TILE_MATMUL || n->op == EF_REDUCE || (n->op < EF_OP_COUNT && ef_op_pointwise((ef_op)n->op)))
            ef_vec_push(&c->work, id);
    }
    for (uint32_t i = 0; i < c->k->stores.count; i++)
        add_load(c, c->k->stores.at[i].value);
    return c;
}

void ef_cost_free(ef_cost *c)
{
    for (uint32_t i = 0; i < EF_K_MAX_LOOPS; i++)
        if (c->masked[i])
            ef_masked_free(c->masked[i]);
    ef_operands_free(&c->operands);
    free(c->needed);
    free(c->scratch);
    ef_vec_free(&c->loads);
    ef_vec_free(&c->work);
    free(c);
}

/* ---- sizes ---- */

typedef struct {
    const ef_cost *c;
    const ef_schedule *s;
    ef_sizes sizes;
    double blocks, warps, stages;
    double trips[EF_K_MAX_LOOPS]; /* that are visited */
    bool unit;
    double latency[EF_K_MAX_LOOPS + 1]; /* of what it loads */
    double copied_us; /* of operands that no loop loads: they go to shared memory one after the other */
    /* of one block */
    double sectors;                       /* bytes moved, in whole sectors */
    double lines;                         /* rows of tiles that are loaded, in lines of memory */
    double step_us[EF_K_MAX_LOOPS + 1];   /* of an iteration by itself; the last: without a loop */
    double alone[EF_K_MAX_LOOPS + 1];     /* of loads that cannot be asked for before, because they are small */
    double work_us[EF_K_MAX_LOOPS + 1];   /* lanes_us of an iteration */
    double shared_us[EF_K_MAX_LOOPS + 1]; /* of its reads of shared memory */
    double matrix_us, lanes_us;           /* of the whole of a multiprocessor's units */
    double before_us;                     /* lanes_us of what stands before the loops */
    double repeated;                      /* so many warps do the same work */
    bool ahead;                           /* inputs are loaded already */
} block;

/* How often a block computes a node. */
static double times(const block *b, const ef_knode *n)
{
    double product = 1;
    for (uint32_t i = 0; i < b->c->k->loops.count; i++)
        product *= n->loops >> i & 1 ? b->trips[i] : 1;
    return product;
}

static void add_step(block *b, const ef_knode *n, double us)
{
    double often;
    uint32_t place = ef_innermost(&b->sizes, n, &often);
    b->step_us[place] += us * often;
}

/* Whether a buffer is in the cache when the kernel begins. */
static bool is_cached(const block *b, uint32_t buffer)
{
    const ef_kbuffer *at = &b->c->g->buffers.at[buffer];
    return at->kind == EF_BUFFER_TEMP &&
           (double)ef_sched_buffer(b->c->g, b->s, buffer) * ef_dtype_bytes((ef_dtype)at->dtype) <
               b->c->target->cache_bytes / 2;
}

/* ---- what runs at once ---- */

/* Whether a kernel loads its inputs before it waits for the one before it, as far as it matters: where loops are
 * printed as such, they load all but small tiles. */
static bool loads_ahead(const ef_kgraph *g, const ef_schedule *s, uint32_t kernel)
{
    const ef_kernel *k = g->kernels.at[kernel];
    if (kernel == 0 || k->beside || !ef_sched_value(g, s, kernel, EF_PARAM_OVERLAP) ||
        ef_sched_value(g, s, kernel, EF_PARAM_PERSIST))
        return false;
    ef_sizes sizes = ef_sizes_of(g, s, kernel);
    for (uint32_t i = 0; i < k->loops.count; i++)
        if (!sizes.unrolled[i])
            return false;
    return true;
}

bool ef_kernels_hide(const ef_kgraph *graph, const ef_schedule *schedule)
{
    for (uint32_t k = 1; k < graph->kernels.count; k++) {
        const ef_kernel *kernel = graph->kernels.at[k];
        bool beside = kernel->beside && ef_sched_value(graph, schedule, k, EF_PARAM_OVERLAP);
        if (beside || (ef_kernel_has_product(kernel) && loads_ahead(graph, schedule, k)))
            return true;
    }
    return false;
}

/* ---- one block ---- */

/* Of a load in a loop, or before all loops. */
static double latency_us(const block *b, const ef_knode *n, uint32_t buffer, unsigned row, double along, uint32_t loop)
{
    if (is_cached(b, buffer))
        return loop == EF_K_MAX_LOOPS ? CACHED_US : CACHED_STEP_US;
    bool goes_along = loop < EF_K_MAX_LOOPS && row < n->rank && n->dim[row].cut == b->c->k->loops.at[loop].iter;
    return LATENCY_US * (goes_along ? fmin(1, along / LINE) : 1);
}

/* Bytes of a row of a tile, as far as they lie side by side. */
static double along_of(const block *b, const ef_knode *n, uint32_t buffer, unsigned row)
{
    return row < n->rank
               ? ef_extent(&b->sizes, &n->dim[row]) * ef_dtype_bytes((ef_dtype)b->c->g->buffers.at[buffer].dtype)
               : LINE;
}

static double tile_bytes(const block *b, const ef_knode *n, uint32_t buffer)
{
    return ef_elements(&b->sizes, n) * ef_dtype_bytes((ef_dtype)b->c->g->buffers.at[buffer].dtype);
}

static void move_tile(block *b, const ef_knode *n, uint32_t buffer, double part, unsigned row)
{
    double bytes = part * tile_bytes(b, n, buffer) * times(b, n);
    b->sectors += bytes * fmax(1, SECTOR / along_of(b, n, buffer, row));
    b->c->scratch[buffer] += bytes;
}

/* Requests of what is loaded: a short row takes one as well. */
static void request(block *b, const ef_knode *n, const load *l)
{
    double along = along_of(b, n, l->buffer, l->row);
    b->lines += l->part * tile_bytes(b, n, l->buffer) * times(b, n) / fmin(along, LINE);
}

static void wait_for(block *b, const ef_knode *n, const load *l)
{
    double often;
    uint32_t place = ef_innermost(&b->sizes, n, &often);
    double us = latency_us(b, n, l->buffer, l->row, along_of(b, n, l->buffer, l->row), place);
    b->latency[place] = fmax(b->latency[place], us);
    b->copied_us += b->unit && l->operand && place == EF_K_MAX_LOOPS ? us : 0;
    if (tile_bytes(b, n, l->buffer) * often < LEAST_COPY * THREADS * b->warps)
        b->alone[place] = CACHED_US; /* it is read by many blocks */
}

static void count_moves(block *b)
{
    const ef_cost *c = b->c;
    for (uint32_t i = 0; i < c->loads.count; i++) {
        const load *l = &c->loads.at[i];
        const ef_knode *n = ef_kernel_node(c->k, l->id);
        if (b->ahead && c->g->buffers.at[l->buffer].kind == EF_BUFFER_INPUT)
            continue;
        move_tile(b, n, l->buffer, l->part, l->row);
        request(b, n, l);
        if (l->part > RARELY)
            wait_for(b, n, l);
    }
    for (uint32_t i = 0; i < c->k->stores.count; i++) {
        const ef_knode *n = ef_kernel_node(c->k, c->k->stores.at[i].value);
        uint32_t buffer = c->k->stores.at[i].buffer;
        move_tile(b, n, buffer, 1, row_of(c->g, n, &c->g->buffers.at[buffer]));
    }
}

/* Microseconds of so many additions on all lanes of a multiprocessor. */
static double lanes_us(const block *b, double additions)
{
    return additions / (LANES * b->c->target->clock) * 1e6;
}

/* So many additions where a node is computed. */
static void add_lanes(block *b, const ef_knode *n, double additions)
{
    double once = lanes_us(b, additions), us = times(b, n) * once, often;
    uint32_t place = ef_innermost(&b->sizes, n, &often);
    b->lanes_us += us;
    b->work_us[place] += often * once;
    b->before_us += b->c->k->loops.count && place == EF_K_MAX_LOOPS ? us : 0;
}

/* How a product is laid out over the warps of a block. */
typedef struct {
    double rows, columns, depth, batch; /* padded to what the unit takes */
    double copies[2];                   /* of each operand: warps that hold the same part of it */
} layout;

static layout layout_of(const block *b, double rows, double columns, double depth, double batch)
{
    layout l = {fmax(rows, PAD_ROWS), fmax(columns, PAD_COLUMNS), fmax(depth, PAD_ROWS), batch, {1, 1}};
    double down = fmin(b->warps, l.rows / PAD_ROWS), across = fmin(b->warps / down, l.columns / PAD_COLUMNS);
    if (batch > 1)
        return l;
    l.copies[0] = b->warps / down;
    l.copies[1] = b->warps / across;
    return l;
}

/* Whether the copy engine brings a tile, by a descriptor: a full block of a matrix, whose rows it spreads over the
 * banks. */
static bool by_descriptor(const block *b, const ef_knode *n)
{
    unsigned sides = 0;
    if (ef_sched_value(b->c->g, b->s, b->c->number, EF_PARAM_LOAD) == 0)
        return false;
    for (unsigned d = 0; d < n->rank; d++) {
        double extent = ef_extent(&b->sizes, &n->dim[d]);
        sides += extent > 1;
        if (extent > MOST_BLOCK || ef_padded_extent(&b->sizes, &n->dim[d]) != extent)
            return false;
    }
    return sides == 2;
}

static bool has_conflicts(const block *b, const ef_operand *o)
{
    for (uint32_t i = 0; i < o->shared.count; i++) {
        const ef_knode *n = ef_kernel_node(b->c->k, o->shared.at[i]);
        if (ef_elements(&b->sizes, n) > CONFLICT * BANKS && !by_descriptor(b, n))
            return true;
    }
    return false;
}

/* Whether all loads of an operand are large enough to be copied to shared memory iterations before: what is computed of
 * them is computed by the warps that multiply it. */
static bool is_staged(const block *b, const ef_operand *o)
{
    for (uint32_t i = 0; i < o->loads.count; i++) {
        const ef_knode *n = ef_kernel_node(b->c->k, o->loads.at[i]);
        double bytes = ef_elements(&b->sizes, n) * ef_dtype_bytes((ef_dtype)n->dtype);
        if (bytes < LEAST_COPY * THREADS * b->warps)
            return false;
    }
    return true;
}

/* What an element of a node takes. */
static double additions(const block *b, const ef_knode *n)
{
    ef_op op = (ef_op)n->op;
    static const ef_op dear[] = {EF_EXP,  EF_EXP2, EF_LOG, EF_LOG2, EF_SQRT, EF_RSQRT,   EF_RECIP,
                                 EF_TANH, EF_SIN,  EF_COS, EF_DIV,  EF_ERF,  EF_SIGMOID, EF_POW};
    if (op == EF_DIV && ef_padded_elements(&b->sizes, n) >=
                            EF_QUOTIENTS * ef_padded_elements(&b->sizes, ef_kernel_node(b->c->k, n->child[1])))
        return 2;
    for (unsigned i = 0; i < sizeof dear / sizeof *dear; i++)
        if (op == dear[i])
            return SPECIAL;
    return 1;
}

/* What the warps read of an operand, and compute of it, each for itself. */
static void count_operand(block *b, const ef_knode *product, const ef_operand *o, const layout *l)
{
    double often, copies = l->copies[o->side], work = 0;
    uint32_t place = ef_innermost(&b->sizes, product, &often);
    double bytes = l->batch * (o->side ? l->columns : l->rows) * l->depth *
                   ef_dtype_bytes((ef_dtype)ef_kernel_node(b->c->k, product->child[o->side])->dtype);
    double reads = copies * bytes * (has_conflicts(b, o) ? CONFLICT : 1);
    b->shared_us[place] += often * reads / (BANKS * b->c->target->clock) * 1e6;
    for (uint32_t i = 0; i < o->work.count; i++) {
        const ef_knode *n = ef_kernel_node(b->c->k, o->work.at[i]);
        work += additions(b, n) * ef_padded_elements(&b->sizes, n);
    }
    if (o->work.count && !o->derived && is_staged(b, o))
        add_lanes(b, product,
                  (copies - 1) * (work + CONVERTED * l->batch * (o->side ? l->columns : l->rows) * l->depth));
}

/* Whether a product before had the same operand: it is in the registers already. */
static bool had_before(const ef_cost *c, uint32_t number)
{
    const ef_operand *o = &c->operands.list.at[number];
    const ef_knode *product = ef_kernel_node(c->k, o->product);
    for (uint32_t i = 0; i < number; i++) {
        const ef_operand *before = &c->operands.list.at[i];
        const ef_knode *other = ef_kernel_node(c->k, before->product);
        if (before->side == o->side && other->child[o->side] == product->child[o->side] &&
            other->loops == product->loops)
            return true;
    }
    return false;
}

/* Where products do not follow from each other: there compilers lay them out otherwise. */
static void count_operands(block *b, const ef_knode *product, const layout *l)
{
    for (uint32_t i = 0; i < b->c->operands.list.count && !b->c->chained; i++) {
        const ef_operand *o = &b->c->operands.list.at[i];
        if (ef_kernel_node(b->c->k, o->product) == product && !had_before(b->c, i))
            count_operand(b, product, o, l);
    }
}

/* Whether an operand of a product is made of sums. */
static bool is_derived(const ef_cost *c, const ef_knode *product)
{
    for (uint32_t i = 0; i < c->operands.list.count; i++) {
        const ef_operand *o = &c->operands.list.at[i];
        if (o->derived && ef_kernel_node(c->k, o->product) == product)
            return true;
    }
    return false;
}

/* Warps that have parts of a product of their own, where one is made of another. */
static double dealt_out(double rows, double columns)
{
    return rows < fmin(columns, GROUP_ROWS) ? fmax(1, columns / PAD_COLUMNS) : fmax(1, rows / PAD_ROWS);
}

static void count_product(block *b, const ef_knode *n)
{
    const ef_knode *x = ef_kernel_node(b->c->k, n->child[0]), *y = ef_kernel_node(b->c->k, n->child[1]);
    double columns = ef_extent(&b->sizes, &n->dim[0]), rows = 1, batch = 1, depth = ef_extent(&b->sizes, &x->dim[0]),
           often = times(b, n);
    rows = n->rank > 1 ? ef_extent(&b->sizes, &n->dim[1]) : 1;
    for (unsigned d = 2; d < n->rank; d++) { /* what one operand has alone is rows or columns */
        bool in_x = d < x->rank && x->dim[d].dim != EF_UNIT, in_y = d < y->rank && y->dim[d].dim != EF_UNIT;
        *(in_x && in_y ? &batch : in_x ? &rows : &columns) *= ef_extent(&b->sizes, &n->dim[d]);
    }
    double rate = b->c->target->matrix[x->dtype == EF_NUM ? EF_F16 : x->dtype] / b->c->target->units;
    if (b->unit && rate > 0) {
        if (b->c->chained) /* Triton deals out rows alone to warps then, 16 each, or columns where these are more */
            b->repeated = fmax(b->repeated, b->warps / (batch * dealt_out(ef_padded(rows), ef_padded(columns))));
        bool grouped = ef_padded(rows) >= GROUP_ROWS && b->warps >= WARPS_MATRIX;
        double work = 2 * batch * fmax(ef_padded(rows), PAD_ROWS) * fmax(ef_padded(columns), PAD_COLUMNS) *
                      fmax(ef_padded(depth), PAD_ROWS) * (x->dtype == EF_F32 ? 3 : 1);
        b->matrix_us += often * work / (rate * (grouped ? 1 : ALONE)) * 1e6;
        double parts = ef_room_parts(&b->sizes, n);
        for (unsigned i = 0; i < 2; i++) /* what is computed goes through shared memory; parts of it are gathered */
            if (!is_plain(b->c, n->child[i])) {
                double each = b->c->chained && parts > 1 ? GATHERED : 2;
                b->lanes_us += often * lanes_us(b, each * ef_padded_elements(&b->sizes, i ? y : x));
                add_step(b, n, CHAINED_US);
            }
        const layout l = layout_of(b, ef_padded(rows), ef_padded(columns), ef_padded(depth), batch);
        if (!grouped)
            count_operands(b, n, &l);
        add_step(b, n, PRODUCT_US * parts + (parts > 1 ? LATENCY_US * (1 + parts / fmax(1, b->stages - 1)) : 0));
        return;
    }
    if (rows > 1 && depth >= LONG_ROW && is_derived(b->c, n))
        add_step(b, n, TURNED_US);
    double terms = batch * ef_padded(rows) * ef_padded(columns) * ef_padded(depth);
    b->lanes_us += often * lanes_us(b, 3 * terms); /* spread over the lanes, multiplied, added */
    add_step(b, n, LATENCY_US * (ef_room_term_parts(terms, ef_padded(depth)) - 1)); /* each loads what it needs */
}

static void count_work(block *b)
{
    for (uint32_t i = 0; i < b->c->work.count; i++) {
        const ef_knode *n = ef_kernel_node(b->c->k, b->c->work.at[i]);
        if (n->op == EF_TILE_MATMUL) {
            count_product(b, n);
            continue;
        }
        bool reduced = n->op == EF_REDUCE;
        double size = ef_padded_elements(&b->sizes, reduced ? ef_kernel_node(b->c->k, n->child[0]) : n);
        size = fmax(size, b->warps * THREADS); /* a smaller tile is in all threads */
        add_lanes(b, n, size * additions(b, n));
        /* In loops sums are of whole tiles, and added up after the loop. */
        if (reduced && (ef_knode_region(n) == EF_NONE || ef_attr_reducer(n->attr) != EF_RED_SUM))
            add_step(b, n, b->warps > 1 ? REDUCED_US : IN_WARP_US);
    }
    for (uint32_t i = 0; i < b->c->loads.count; i++) { /* addresses, masks, conversions */
        const ef_knode *n = ef_kernel_node(b->c->k, b->c->loads.at[i].id);
        add_lanes(b, n, LOADED * fmax(ef_padded_elements(&b->sizes, n), b->warps * THREADS));
    }
}

/* Microseconds until a block's loops run as they go on to: nothing hides that where all blocks begin at once. */
static double begin_us(const block *b)
{
    double first = 0;
    for (uint32_t i = 0; i < b->c->k->loops.count; i++)
        first = fmax(first, b->sizes.unrolled[i] ? 0 : b->latency[i]);
    return START_US + fmax(b->latency[EF_K_MAX_LOOPS], b->copied_us) + first + b->step_us[EF_K_MAX_LOOPS] +
           b->before_us / fmin(1, b->warps / WARPS_FULL);
}

/* Microseconds of an iteration of a block that is alone: its work, or its part of waiting for loads that are so many
 * iterations ahead. */
static double step_us(const block *b, uint32_t loop)
{
    double work = b->shared_us[loop] + b->repeated * b->work_us[loop] / fmin(1, b->warps / WARPS_FULL);
    double own = STEP_US + b->step_us[loop] + b->alone[loop] + work;
    return fmax(own, (b->latency[loop] + own) / fmin(fmax(b->stages - 1, 1), b->trips[loop]));
}

static double loops_us(const block *b)
{
    double us = 0;
    for (uint32_t i = 0; i < b->c->k->loops.count; i++) {
        const ef_knode *node = ef_kernel_node(b->c->k, b->c->k->loops.at[i].node);
        us += b->sizes.unrolled[i] ? 0 : times(b, node) * b->trips[i] * step_us(b, i);
    }
    return us;
}

/* Blocks that are on a multiprocessor at one time. */
static double together(const block *b, const ef_room *room)
{
    const ef_target *t = b->c->target;
    double threads = b->warps * THREADS;
    double registers = fmax(LEAST_REGISTERS * REGISTER * threads, room->registers * 1.5);
    double most = fmin(MOST_BLOCKS, MOST_WARPS / b->warps);
    most = fmin(most, t->register_bytes / registers);
    return fmax(1, floor(fmin(most, t->shared_bytes / (room->shared + BLOCK_SHARED))));
}

/* ---- the whole ---- */

/* Microseconds at memory's rate: every tensor once. */
static double memory_us(const block *b)
{
    double bytes = 0;
    for (uint32_t i = 0; i < b->c->g->buffers.count; i++) {
        if (b->c->scratch[i] <= 0)
            continue;
        const ef_kbuffer *buffer = &b->c->g->buffers.at[i];
        double whole = (double)ef_sched_buffer(b->c->g, b->s, i) * ef_dtype_bytes((ef_dtype)buffer->dtype);
        bytes += is_cached(b, i) ? 0 : fmin(whole, b->c->scratch[i] * b->blocks);
    }
    return bytes / b->c->target->memory * 1e6;
}

/* The part of a loop's iterations that a block visits, of the blocks that are there. */
static double visited(const block *b, uint32_t loop)
{
    const ef_kernel *k = b->c->k;
    ef_part_run run[EF_K_MAX_RUNS];
    double part = ef_masked_part(b->c->masked[loop], b->s);
    uint32_t outer = k->iters.at[k->loops.at[loop].iter].outer;
    if (outer == EF_NONE || ef_sched_runs(b->c->g, b->s, k, outer, run) == 0)
        return part;
    double tile = (double)ef_sched_tile(b->c->g, b->s, k, outer);
    double all = ceil((double)ef_sched_whole(b->c->g, b->s, k, outer) / tile);
    return fmin(1, part * all / (double)ef_sched_trips(b->c->g, b->s, k, outer));
}

static void measure_loops(block *b)
{
    b->sizes = ef_sizes_of(b->c->g, b->s, b->c->number);
    for (uint32_t i = 0; i < b->c->k->loops.count && i < EF_K_MAX_LOOPS; i++)
        b->trips[i] = fmax(1, b->sizes.trips[i] * visited(b, i));
}

/* What is bound by several of these at once takes longer than each. */
static double norm(double a, double b, double c)
{
    return pow(pow(a, BOUNDS) + pow(b, BOUNDS) + pow(c, BOUNDS), 1 / BOUNDS);
}

/* With its inputs loaded before it begins to count, or not. */
static double kernel_us(ef_cost *c, const ef_schedule *s, const ef_room *needed, bool ahead)
{
    const ef_target *t = c->target;
    block b = {.c = c, .s = s, .repeated = 1, .blocks = (double)ef_sched_blocks(c->g, s, c->k), .ahead = ahead};
    b.warps = fmax(1, (double)ef_sched_value(c->g, s, c->number, EF_PARAM_WARPS));
    b.stages = fmax(1, (double)ef_sched_value(c->g, s, c->number, EF_PARAM_STAGES));
    b.unit = ef_sched_value(c->g, s, c->number, EF_PARAM_UNIT) != 0;
    for (uint32_t i = 0; i < c->g->buffers.count; i++)
        c->scratch[i] = 0;
    measure_loops(&b);
    double most = ceil(b.blocks / t->units); /* of one multiprocessor */
    double persist = (double)ef_sched_value(c->g, s, c->number, EF_PARAM_PERSIST);
    double at_once = fmin(together(&b, needed), most);
    at_once = persist > 0 ? fmin(at_once, persist) : at_once;
    double rounds = ceil(most / at_once);
    count_moves(&b);
    count_work(&b);
    double loads_us = fmax(b.sectors / t->unit_load, b.lines * ROW_CLOCKS / t->clock) * 1e6;
    double matrix_us = b.repeated * b.matrix_us / fmin(1, at_once * b.warps / WARPS_MATRIX);
    double busy_us = b.repeated * b.lanes_us / fmin(1, at_once * b.warps / WARPS_FULL);
    double work_us = fmax(matrix_us, busy_us) + (at_once > 1 ? TOGETHER : APART) * fmin(matrix_us, busy_us);
    double unit_us = most * fmax(loads_us, work_us), begin = begin_us(&b);
    double length = rounds * loops_us(&b) + (rounds - 1) * begin;
    double all_us = fmax(memory_us(&b), b.blocks * b.sectors / t->cache * 1e6);
    if (b.stages < 2) /* a block waits for its loads, then works */
        length += unit_us / at_once;
    return t->launch_us + begin + norm(unit_us, length, all_us);
}

double ef_cost_us(ef_cost *c, const ef_schedule *s, double *room)
{
    ef_room needed = ef_room_of(c->g, s, c->number, c->target);
    double over = ef_room_excess(&needed, c->target);
    if (room)
        *room = over;
    if (over > 1)
        return EF_COST_NEVER * over;
    double us = kernel_us(c, s, &needed, false);
    if (!loads_ahead(c->g, s, c->number))
        return us;
    return fmax(us - AHEAD_US, kernel_us(c, s, &needed, true));
}
