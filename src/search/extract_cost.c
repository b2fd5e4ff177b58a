/* Costs: what no schedule can avoid, and when a kernel is dominated.
 *
 * The type of a value says how often it is computed: once for every coordinate of the axes that it is partial in, and
 * of the grid axes that only replicate it. */
#include <math.h>
#include <string.h>

#include "search/extract_private.h"

/* Weights of arithmetic in the measures that decide what a candidate is: of a GPU whose matrix unit does 400 TFLOP/s
 * and whose other units do 25 T operations a second. The costs that give an order are of the target: ef_rates. */
#define MICROSECONDS_PER_FLOP 2.5e-9
#define MICROSECONDS_PER_OP 4e-8
#define CACHE 3  /* times as fast as memory: what several blocks load comes from there */
#define SPLITS 8 /* blocks along a dimension whose partial results are stored */

static const double nominal_tile[EF_NOMINAL_TILES] = {128, 16};

static double extent_of(ef_extractor *x, ef_dim dim)
{
    return ef_dim_is_count(x->ctx, dim) ? SPLITS : (double)ef_dim_extent(x->ctx, dim);
}

/* What is counted, and in which kernel: one whose blocks lie along the axes `grid`. */
typedef struct {
    ef_axes grid;
    double tile;  /* extent of tiles */
    bool partial; /* each coordinate of an axis that a value is partial in counts */
    bool bytes;   /* else elements */
} census;

/* Coordinates of an axis of a value. */
static double coordinates(ef_extractor *x, const ef_type_info *t, ef_axis axis, bool partial, double tile)
{
    double extent = (double)ef_var_at(x->ctx, ef_axis_var(axis))->extent;
    bool both = ef_type_place(t, axis ^ ef_axis_of(0, 1)) != NULL;
    if (ef_axis_level(axis) == 0 && (both || partial))
        return fmin(SPLITS, extent);
    return fmax(1, ceil(extent / (both ? SPLITS : 1) / tile));
}

/* Elements or bytes of a value in all blocks of a kernel. Blocks along an axis of the grid that does not cut the value
 * all have the same. */
static double amount(ef_extractor *x, ef_type type, const census *c)
{
    const ef_type_info *t = ef_type_at(x->ctx, type);
    const ef_axis *grid;
    double n = t->is_tuple ? 0 : c->bytes ? ef_dtype_bytes((ef_dtype)t->dtype) : 1;
    for (unsigned i = 0; i < t->fields; i++)
        n += amount(x, t->field[i], c);
    if (t->is_tuple)
        return n;
    for (unsigned i = 0; i < t->rank; i++)
        n *= extent_of(x, t->dim[i]);
    for (unsigned i = 0; i < t->places && c->partial; i++)
        if (t->place[i].kind == EF_PARTIAL)
            n *= coordinates(x, t, t->place[i].axis, true, c->tile);
    for (unsigned i = 0, count = ef_axes_at(x->ctx, c->grid, &grid); i < count; i++) {
        const ef_place *p = ef_type_place(t, grid[i]);
        if (!p || p->kind == EF_REPLICATE)
            n *= coordinates(x, t, grid[i], false, c->tile);
    }
    return n;
}

/* Bytes of a tensor, once. */
static double bytes_of(ef_extractor *x, ef_type type)
{
    return amount(x, type, &(census){.tile = 1, .bytes = true});
}

/* The part of a tensor's elements that are elements of an input, each once: what is broadcast is read once. 0: it is
 * not moved from an input, as far as so many moves show; then all count. */
static double distinct_part(ef_extractor *x, ef_id class, unsigned moves)
{
    ef_egraph *g = x->g;
    double here = 1, most = 0;
    if (moves == 0)
        return 0;
    for (ef_id n = ef_class_first(g, class); n != EF_NONE; n = ef_class_next(g, n))
        if (g->op.at[n] == EF_INPUT)
            return 1;
    const ef_type_info *t = ef_type_at(x->ctx, ef_egraph_type(g, class));
    for (unsigned i = 0; i < t->rank; i++)
        here *= extent_of(x, t->dim[i]);
    for (ef_id n = ef_class_first(g, class); n != EF_NONE && most <= 0; n = ef_class_next(g, n)) {
        ef_op op = (ef_op)g->op.at[n];
        if (op != EF_BROADCAST && op != EF_RESHAPE && op != EF_TRANSPOSE)
            continue;
        ef_id child = ef_node_children(g, n)[0];
        const ef_type_info *from = ef_type_at(x->ctx, ef_egraph_type(g, child));
        most = distinct_part(x, child, moves - 1);
        for (unsigned i = 0; i < from->rank; i++)
            most *= extent_of(x, from->dim[i]);
        most /= here;
    }
    return most;
}

#define MOVES 6u

/* The part of a tensor's bytes that a load takes from memory. */
static double loaded_part(ef_extractor *x, const ef_option *load)
{
    ef_eslot *s = &x->slots.at[x->child.at[load->first]];
    if (s->distinct <= 0)
        s->distinct = distinct_part(x, s->class, MOVES);
    if (s->distinct <= 0)
        s->distinct = 1;
    return s->distinct;
}

/* Bytes of one tile, in single precision; of a tuple the largest. */
static double tile_bytes(ef_extractor *x, ef_type type, double tile)
{
    const ef_type_info *t = ef_type_at(x->ctx, type);
    double n = t->is_tuple ? 0 : 4;
    for (unsigned i = 0; i < t->fields; i++)
        n = fmax(n, tile_bytes(x, t->field[i], tile));
    for (unsigned i = 0; i < t->rank; i++) {
        double extent = extent_of(x, t->dim[i]);
        for (unsigned p = 0; p < t->places; p++)
            if (t->place[p].kind == EF_PARTITION && t->place[p].dim == i) {
                double cut = (double)ef_var_at(x->ctx, ef_axis_var(t->place[p].axis))->extent;
                extent *= fmin(1, tile / cut);
                break;
            }
        n *= fmax(1, extent);
    }
    return n;
}

bool ef_product_fits(ef_extractor *x, ef_id product)
{
    const ef_id *operand = ef_node_children(x->g, product);
    double room = x->options->room, tile = nominal_tile[EF_NOMINAL_TILES - 1];
    return room <= 0 || (tile_bytes(x, ef_egraph_type(x->g, product), tile) <= room &&
                         tile_bytes(x, ef_egraph_type(x->g, operand[0]), tile) <= room &&
                         tile_bytes(x, ef_egraph_type(x->g, operand[1]), tile) <= room);
}

static double op_weight(ef_op op)
{
    switch (op) {
    case EF_VIEW: /* something, so that no expression contains itself */
    case EF_RESHAPE:
    case EF_TRANSPOSE:
    case EF_BROADCAST:
    case EF_SLICE: return 1e-6;
    case EF_EXP:
    case EF_EXP2:
    case EF_LOG:
    case EF_LOG2:
    case EF_SQRT:
    case EF_RSQRT:
    case EF_RECIP:
    case EF_DIV:
    case EF_TANH:
    case EF_SIGMOID:
    case EF_SIN:
    case EF_COS:
    case EF_POW:
    case EF_MOD:
    case EF_FLOORDIV: return 4;
    case EF_ERF: return 8;
    default: return 1;
    }
}

static double work_of(ef_extractor *x, const ef_option *o, ef_type type, ef_axes grid, double tile)
{
    ef_egraph *g = x->g;
    census each = {grid, tile, true, false}, whole = {grid, tile, false, false};
    ef_op op = ef_option_op(x, o);
    if (o->kind == EF_OPTION_POINTWISE)
        return op_weight(op) * amount(x, type, &each) * MICROSECONDS_PER_OP;
    if (o->kind != EF_OPTION_COMPUTES)
        return 0;
    ef_type from = ef_egraph_type(g, ef_node_children(g, o->node)[0]);
    switch (op) {
    case EF_TILE_MATMUL:
        return 2 * amount(x, type, &whole) * extent_of(x, ef_type_at(x->ctx, from)->dim[0]) * MICROSECONDS_PER_FLOP;
    case EF_REDUCE: return amount(x, from, &whole) * MICROSECONDS_PER_OP;
    case EF_REDUCE_P:
        /* accumulating costs nothing more than reducing the tile, but for the repair */
        return ef_reducer_at(x->ctx, ef_attr_reducer(ef_option_attr(x, o)))->kind == EF_RED_REPAIRED
                   ? 4 * amount(x, from, &each) * MICROSECONDS_PER_OP
                   : 0;
    default: return 0;
    }
}

double ef_pointwise_work(ef_extractor *x, const ef_option *o, ef_type type)
{
    return work_of(x, o, type, ef_type_axes(x->ctx, type), nominal_tile[0]);
}

double ef_option_cost(ef_extractor *x, const ef_option *o, ef_type type)
{
    switch (o->kind) {
    case EF_OPTION_KERNEL: return x->rates.kernel + bytes_of(x, type) * x->rates.byte;
    case EF_OPTION_LOADS: return bytes_of(x, type) * loaded_part(x, o) * x->rates.byte;
    case EF_OPTION_LEAF:
    case EF_OPTION_MOVES: return 0;
    default: return work_of(x, o, type, ef_type_axes(x->ctx, type), nominal_tile[0]);
    }
}

/* ---- measures ---- */

/* Loops over an axis in which a load stands: a tile that two loops need is loaded twice. */
static unsigned passes(ef_extractor *x, const uint32_t *pick, uint32_t picks, ef_slot_id load, ef_axis axis)
{
    unsigned n = 0;
    for (uint32_t i = 0; i < picks; i++) {
        const ef_option *loop = ef_picked_option(x, pick[2 * i]);
        if (!loop || ef_option_op(x, loop) != EF_REDUCE_P || ef_attr_reduce_at(ef_option_attr(x, loop)) != axis)
            continue;
        uint32_t top = 0;
        x->epoch++;
        x->stack[top++] = x->child.at[loop->first];
        while (top) {
            ef_slot_id id = x->stack[--top];
            const ef_way *w = ef_picked(x, id);
            if (x->stamp[id] == x->epoch || !w)
                continue;
            x->stamp[id] = x->epoch;
            if (id == load) {
                n++;
                break;
            }
            const ef_option *o = ef_picked_option(x, id);
            if (o && ef_option_op(x, o) == EF_REDUCE_P && ef_attr_reduce_at(ef_option_attr(x, o)) == axis)
                continue; /* another loop */
            for (uint32_t c = 0; c < w->count; c++)
                x->stack[top++] = x->child.at[w->first + c];
        }
    }
    return n ? n : 1;
}

static double cone_work(ef_extractor *x, uint32_t cone, ef_axes grid, double tile)
{
    double work = 0;
    ef_cones_under(x, &cone, 1);
    for (uint32_t i = 0; i < x->cones_under.count; i++) {
        const ef_cone *c = &x->cones.at[x->cones_under.at[i]];
        work += work_of(x, ef_option_at(x, c->option), ef_slot_type(x, c->slot), grid, tile);
    }
    return work;
}

static unsigned times_loaded(ef_extractor *x, const uint32_t *pick, uint32_t picks, ef_slot_id id)
{
    const ef_type_info *t = ef_type_at(x->ctx, ef_slot_type(x, id));
    unsigned times = 1;
    for (unsigned i = 0; i < t->places && !t->is_tuple; i++)
        if (t->place[i].kind == EF_PARTITION && ef_axis_level(t->place[i].axis) == 1) {
            unsigned n = passes(x, pick, picks, id, t->place[i].axis);
            times = n > times ? n : times;
        }
    return times;
}

/* The axes of a kernel's blocks: those of its root, and those whose partial results it collects. */
static ef_axes grid_of(ef_extractor *x, ef_slot_id root)
{
    const ef_eslot *s = &x->slots.at[root];
    ef_axes grid = ef_type_axes(x->ctx, ef_slot_type(x, root));
    for (uint32_t k = s->first; k < s->first + s->count; k++)
        if (ef_option_op(x, ef_option_at(x, k)) == EF_COLLECT) {
            ef_axis axis = (ef_axis)ef_option_attr(x, ef_option_at(x, k));
            grid = ef_axes_union(x->ctx, grid, ef_axes_intern(x->ctx, &axis, 1));
        }
    return grid;
}

static double blocks_along(ef_extractor *x, ef_axes grid, double tile)
{
    const ef_axis *axis;
    double n = 1;
    for (unsigned i = 0, count = ef_axes_at(x->ctx, grid, &axis); i < count; i++)
        n *= ceil((double)ef_var_at(x->ctx, ef_axis_var(axis[i]))->extent / tile);
    return n;
}

void ef_measure_begin(ef_extractor *x, ef_slot_id root)
{
    x->grid = grid_of(x, root);
    x->measuring++;
}

/* What one pick adds, if it is loaded once. */
static const ef_measure *measure_way(ef_extractor *x, ef_slot_id id, uint32_t way)
{
    ef_measure *m = &x->way_measure[way];
    if (x->measured[way] == x->measuring)
        return m;
    ef_type type = ef_slot_type(x, id);
    const ef_way *w = &x->way_list.at[way];
    const ef_option *o = w->option == EF_NONE ? NULL : ef_option_at(x, w->option);
    for (unsigned k = 0; k < EF_NOMINAL_TILES; k++) {
        double tile = nominal_tile[k];
        bool loads = o && o->kind == EF_OPTION_LOADS;
        m->loads[k] = loads ? amount(x, type, &(census){x->grid, tile, false, true}) : 0;
        m->work[k] = o ? work_of(x, o, type, x->grid, tile) : cone_work(x, w->cone, x->grid, tile);
        m->held[k] = tile_bytes(x, type, tile);
        m->share[k] = 1 / blocks_along(x, x->grid, tile);
    }
    x->measured[way] = x->measuring;
    return m;
}

ef_measure ef_measure_picks(ef_extractor *x, const uint32_t *pick, uint32_t picks, bool complete)
{
    ef_measure sum = {0};
    for (uint32_t i = 0; i < picks; i++) {
        const ef_measure *m = measure_way(x, pick[2 * i], pick[2 * i + 1]);
        unsigned times = complete && m->loads[0] > 0 ? times_loaded(x, pick, picks, pick[2 * i]) : 1;
        for (unsigned k = 0; k < EF_NOMINAL_TILES; k++) {
            sum.loads[k] += times * m->loads[k];
            sum.work[k] += m->work[k];
            sum.held[k] = fmax(sum.held[k], m->held[k]);
            sum.share[k] = m->share[k];
        }
    }
    return sum;
}

/* Blocks that the kernel of a root may have along an axis: those of small tiles of the dimension that it cuts, and of
 * all variables of that, which kernels join; or of one position each where it counts matrices. */
static double most_blocks(ef_extractor *x, ef_type root, ef_axis axis)
{
    const ef_type_info *t = ef_type_at(x->ctx, root);
    double extent = (double)ef_var_at(x->ctx, ef_axis_var(axis))->extent, tile = nominal_tile[EF_NOMINAL_TILES - 1];
    while (t->is_tuple)
        t = ef_type_at(x->ctx, t->field[t->fields - 1]);
    const ef_place *p = ef_type_place(t, axis);
    if (p && p->kind == EF_PARTITION && p->dim > 1)
        return extent;
    return fmax(1, ceil((p && p->kind == EF_PARTITION ? extent_of(x, t->dim[p->dim]) : extent) / tile));
}

/* Microseconds of moving bytes: at the rate of memory each once, at the cache's what blocks load, and at one block's
 * what each of them loads, were there as many as there can be. */
static double moving_us(ef_extractor *x, const ef_body *b, double bytes)
{
    const ef_axis *axis;
    double blocks = 1;
    for (unsigned i = 0, count = ef_axes_at(x->ctx, x->grid, &axis); i < count; i++)
        blocks *= most_blocks(x, ef_slot_type(x, b->root), axis[i]);
    double loads = b->measure.loads[0], us = fmax(bytes, loads / CACHE) * x->rates.byte;
    return fmax(us, fmax(bytes, loads) / blocks * x->rates.block_byte);
}

void ef_body_measure(ef_extractor *x, ef_body *b)
{
    double bytes = bytes_of(x, ef_slot_type(x, b->root));
    b->measure = ef_measure_picks(x, b->pick, b->picks, true);
    for (unsigned k = 0; k < EF_NOMINAL_TILES; k++)
        b->measure.loads[k] += bytes; /* stores are as dear */
    b->pointwise = true;
    for (uint32_t i = 0; i < b->picks; i++) {
        const ef_option *o = ef_picked_option(x, b->pick[2 * i]);
        ef_op op = o && o->kind == EF_OPTION_COMPUTES ? ef_option_op(x, o) : EF_OP_COUNT;
        ef_op_class class = op < EF_OP_COUNT ? ef_ops[op].class : EF_UNARY;
        if (o && o->kind == EF_OPTION_LOADS)
            bytes += times_loaded(x, b->pick, b->picks, b->pick[2 * i]) * loaded_part(x, o) *
                     bytes_of(x, ef_slot_type(x, b->pick[2 * i]));
        b->contracts = b->contracts || class == EF_CONTRACTION;
        b->pointwise = b->pointwise && class != EF_CONTRACTION && class != EF_REDUCTION;
    }
    double work_us = b->measure.work[0] * x->rates.flop / MICROSECONDS_PER_FLOP;
    b->cost = x->rates.kernel + fmax(moving_us(x, b, bytes), work_us);
}

/* ---- dominance ---- */

typedef enum { MEASURE_WORSE, MEASURE_EQUAL, MEASURE_BETTER } comparison;

/* a against b, `count` figures each: worse if it is anywhere. */
static comparison compare_figures(const double *a, const double *b, unsigned count)
{
    comparison result = MEASURE_EQUAL;
    for (unsigned i = 0; i < count; i++) {
        if (a[i] > b[i] * (1 + 1e-9) + 1e-12)
            return MEASURE_WORSE;
        if (a[i] < b[i] * (1 - 1e-9) - 1e-12)
            result = MEASURE_BETTER;
    }
    return result;
}

static comparison compare(const ef_measure *a, const ef_measure *b)
{
    return compare_figures((const double *)a, (const double *)b, sizeof *a / sizeof(double));
}

bool ef_dominates(const ef_extractor *x, const ef_body *a, const ef_measure *b, const uint64_t *loads)
{
    for (uint32_t w = 0; w < x->stored_words; w++)
        if (a->loads[w] & ~loads[w])
            return false;
    return compare(&a->measure, b) == MEASURE_BETTER;
}

bool ef_body_dominates(const ef_extractor *x, const ef_body *a, const ef_body *b)
{
    if (ef_dominates(x, a, &b->measure, b->loads))
        return true;
    if (compare(&a->measure, &b->measure) != MEASURE_EQUAL)
        return false;
    for (uint32_t w = 0; w < x->stored_words; w++)
        if (a->loads[w] & ~b->loads[w])
            return false;
    if (memcmp(a->loads, b->loads, x->stored_words * sizeof *a->loads) != 0)
        return true;
    /* the same organisation spelt otherwise: any one of them, but the same one in every mode */
    return a->organisation == b->organisation &&
           (a->canon[0] != b->canon[0] ? a->canon[0] < b->canon[0] : a->canon[1] < b->canon[1]);
}

/* ---- programs ---- */

void ef_total_add(ef_total *sum, const ef_measure *kernel)
{
    sum->kernels++;
    for (unsigned k = 0; k < EF_NOMINAL_TILES; k++) {
        sum->loads[k] += kernel->loads[k];
        sum->work[k] += kernel->work[k];
        sum->block_loads[k] += kernel->loads[k] * kernel->share[k];
        sum->block_work[k] += kernel->work[k] * kernel->share[k];
        sum->held[k] = fmax(sum->held[k], kernel->held[k]);
    }
}

void ef_total_join(ef_total *sum, const ef_total *more)
{
    sum->kernels += more->kernels;
    for (unsigned k = 0; k < EF_NOMINAL_TILES; k++) {
        sum->loads[k] += more->loads[k];
        sum->work[k] += more->work[k];
        sum->block_loads[k] += more->block_loads[k];
        sum->block_work[k] += more->block_work[k];
        sum->held[k] = fmax(sum->held[k], more->held[k]);
    }
}

void ef_total_least(ef_total *least, const ef_total *other)
{
    double *a = (double *)least;
    const double *b = (const double *)other;
    for (unsigned i = 0; i < sizeof *least / sizeof *a; i++)
        a[i] = fmin(a[i], b[i]);
}

bool ef_total_dominates(const ef_total *a, const ef_total *b)
{
    return compare_figures((const double *)a, (const double *)b, sizeof *a / sizeof(double)) == MEASURE_BETTER;
}
