/* What a kernel does as products of tile extents: see rank_terms.h. */
#include "target/rank_terms.h"

#include <math.h>
#include <string.h>

#include "kernel/schedule.h"
#include "support/vec.h"
#include "target/reads.h"

typedef struct {
    const ef_kgraph *g;
    const ef_kernel *k;
    const ef_target *target;
    ef_charges *out;
    bool *loaded; /* by node: charged already */
    bool *moved;  /* by buffer: the same */
} study;

/* ---- sizes, in logarithms ---- */

static ef_term constant(double value)
{
    return (ef_term){.constant = log(value)};
}

static void add(ef_term *sum, const ef_term *t, double sign)
{
    sum->constant += sign * t->constant;
    for (unsigned i = 0; i < EF_RANK_PARAMS; i++)
        sum->factor[i] += (float)sign * t->factor[i];
}

static ef_term of_param(uint32_t param)
{
    ef_term t = {0};
    if (param < EF_RANK_PARAMS)
        t.factor[param] = 1;
    return t;
}

static ef_term of_var(const ef_kgraph *g, ef_var var)
{
    const ef_var_info *info = ef_var_at(g->ctx, var);
    if (info->kind != EF_VAR_COUNT)
        return constant((double)info->extent);
    ef_term t = of_var(g, ef_axis_var(info->axis));
    uint32_t param = ef_sched_param(g, info->axis), block = ef_sched_param(g, ef_axis_of(ef_axis_var(info->axis), 0));
    if (ef_axis_level(info->axis) > 0 && block != EF_NONE)
        t = of_param(block);
    ef_term tile = param == EF_NONE ? t : of_param(param);
    add(&t, &tile, -1);
    return t;
}

static ef_term of_dim(const ef_kgraph *g, ef_dim dim)
{
    const ef_var *atoms;
    ef_term t = {0};
    for (unsigned i = 0, n = ef_dim_atoms(g->ctx, dim, &atoms); i < n; i++) {
        ef_term own = of_var(g, atoms[i]);
        add(&t, &own, 1);
    }
    return t;
}

static ef_term tile_of(const study *s, uint32_t iter)
{
    const ef_iter *i = &s->k->iters.at[iter];
    return i->kind == EF_ITER_PICK ? (ef_term){0} : of_param(i->param);
}

static ef_term trips_of(const study *s, uint32_t iter)
{
    const ef_iter *i = &s->k->iters.at[iter];
    ef_term t, tile = tile_of(s, iter);
    if (i->kind == EF_ITER_PICK)
        return of_dim(s->g, i->count);
    t = i->outer == EF_NONE ? of_var(s->g, ef_axis_var(i->axis)) : tile_of(s, i->outer);
    add(&t, &tile, -1);
    return t;
}

static ef_term dim_of(const study *s, const ef_kdim *d)
{
    ef_term t = of_dim(s->g, d->dim);
    const ef_var *atoms;
    if (d->cut == EF_NONE || ef_dim_atoms(s->g->ctx, d->dim, &atoms) == 0)
        return t;
    ef_term first = of_var(s->g, atoms[0]), tile = tile_of(s, d->cut);
    add(&t, &first, -1);
    add(&t, &tile, 1);
    return t;
}

static ef_term elements(const study *s, const ef_knode *n)
{
    ef_term t = {0};
    for (unsigned i = 0; i < n->rank; i++) {
        ef_term own = dim_of(s, &n->dim[i]);
        add(&t, &own, 1);
    }
    return t;
}

static ef_term blocks(const study *s)
{
    ef_term t = {0};
    for (uint32_t i = 0; i < s->k->grid; i++) {
        ef_term own = trips_of(s, i);
        add(&t, &own, 1);
    }
    return t;
}

/* How often a block computes a node. */
static ef_term times(const study *s, const ef_knode *n)
{
    ef_term t = {0};
    for (uint32_t loop = 0; loop < s->k->loops.count; loop++)
        if (n->loops >> loop & 1) {
            ef_term own = trips_of(s, s->k->loops.at[loop].iter);
            add(&t, &own, 1);
        }
    return t;
}

/* ---- charges ---- */

/* Charges exp(t) * `amount`. */
static void charge(const study *s, ef_bound bound, ef_term t, double amount)
{
    if (!(amount > 0))
        return;
    t.constant += log(amount);
    ef_vec_push(s->out, ((ef_charge){bound, t}));
}

/* In one block, and so in all of them. */
static void charge_blocks(const study *s, ef_bound all, ef_bound one, ef_term in_block, double amount, double rate,
                          double unit_rate)
{
    charge(s, one, in_block, amount * 1e6 / unit_rate);
    ef_term of_blocks = blocks(s);
    add(&in_block, &of_blocks, 1);
    charge(s, all, in_block, amount * 1e6 / rate);
}

/* What stays in the cache from one kernel to the next one. */
static bool stays_in_cache(const study *s, const ef_kbuffer *b)
{
    double bytes = ef_dtype_bytes((ef_dtype)b->dtype);
    for (unsigned i = 0; i < b->rank; i++)
        bytes *= exp(of_dim(s->g, b->dim[i]).constant);
    return b->kind == EF_BUFFER_TEMP && bytes < s->target->cache_bytes / 2;
}

static void charge_memory(const study *s, uint32_t buffer)
{
    const ef_kbuffer *b = &s->g->buffers.at[buffer];
    ef_term t = {0};
    if (s->moved[buffer] || stays_in_cache(s, b))
        return;
    s->moved[buffer] = true;
    for (unsigned i = 0; i < b->rank; i++) {
        ef_term own = of_dim(s->g, b->dim[i]);
        add(&t, &own, 1);
    }
    charge(s, EF_BOUND_MEMORY, t, ef_dtype_bytes((ef_dtype)b->dtype) * 1e6 / s->target->memory);
}

static void charge_load(const study *s, ef_kid id)
{
    ef_read reads[EF_MOST_READS];
    const ef_knode *n = ef_kernel_node(s->k, id);
    unsigned count = s->loaded[id] ? 0 : ef_kernel_reads(s->g, s->k, id, reads);
    s->loaded[id] = true;
    for (unsigned i = 0; i < count; i++) {
        double bytes = reads[i].part * ef_dtype_bytes((ef_dtype)s->g->buffers.at[reads[i].buffer].dtype);
        ef_term tile = elements(s, n), often = times(s, n);
        charge(s, EF_BOUND_ROOM, tile, bytes / (s->target->shared_bytes + s->target->register_bytes));
        add(&tile, &often, 1);
        charge_blocks(s, EF_BOUND_CACHE, EF_BOUND_UNIT_LOADS, tile, bytes, s->target->cache, s->target->unit_load);
        charge_memory(s, reads[i].buffer);
    }
}

static double cycles(ef_op op)
{
    static const ef_op dear[] = {EF_EXP,  EF_EXP2, EF_LOG, EF_LOG2, EF_SQRT, EF_RSQRT,   EF_RECIP,
                                 EF_TANH, EF_SIN,  EF_COS, EF_DIV,  EF_ERF,  EF_SIGMOID, EF_POW};
    for (unsigned i = 0; i < sizeof dear / sizeof *dear; i++)
        if (op == dear[i])
            return 8; /* a special function, at a fourth of the rate of others; a multiply-add counts two */
    return 2;
}

static void charge_work(const study *s, const ef_knode *n)
{
    double vector = s->target->vector, units = s->target->units;
    ef_term often = times(s, n), size = elements(s, n);
    if (n->op == EF_TILE_MATMUL) {
        const ef_knode *a = ef_kernel_node(s->k, n->child[0]);
        ef_term depth = dim_of(s, &a->dim[0]);
        double rate = ef_target_products(s->target, (ef_dtype)a->dtype, exp(of_dim(s->g, n->dim[1].dim).constant));
        add(&size, &depth, 1);
        add(&size, &often, 1);
        charge_blocks(s, EF_BOUND_PRODUCTS, EF_BOUND_UNIT_WORK, size, 2, rate, rate / units);
        return;
    }
    if (n->op >= EF_OP_COUNT)
        return;
    if (n->op == EF_REDUCE)
        size = elements(s, ef_kernel_node(s->k, n->child[0]));
    else if (!ef_op_pointwise((ef_op)n->op))
        return;
    add(&size, &often, 1);
    charge_blocks(s, EF_BOUND_VECTOR, EF_BOUND_UNIT_WORK, size, cycles((ef_op)n->op), vector, vector / units);
}

static void charge_states(const study *s)
{
    for (uint32_t i = 0; i < s->k->loops.count; i++)
        for (unsigned leaf = 0; leaf < s->k->loops.at[i].leaves; leaf++)
            charge(s, EF_BOUND_ROOM, elements(s, ef_kernel_node(s->k, s->k->loops.at[i].state[leaf])),
                   4 / (s->target->shared_bytes + s->target->register_bytes));
}

static void charge_stores(const study *s)
{
    for (uint32_t i = 0; i < s->k->stores.count; i++) {
        const ef_kstore *store = &s->k->stores.at[i];
        double bytes = ef_dtype_bytes((ef_dtype)s->g->buffers.at[store->buffer].dtype);
        charge_blocks(s, EF_BOUND_CACHE, EF_BOUND_UNIT_LOADS, elements(s, ef_kernel_node(s->k, store->value)), bytes,
                      s->target->cache, s->target->unit_load);
        charge_memory(s, store->buffer);
        charge_load(s, store->value);
    }
}

void ef_rank_charges(const ef_kgraph *graph, uint32_t kernel, const ef_target *target, ef_charges *out)
{
    const ef_kernel *k = graph->kernels.at[kernel];
    study s = {graph, k, target, out, NULL, NULL};
    s.loaded = ef_xcalloc(ef_kernel_nodes(k) + 1, sizeof *s.loaded);
    s.moved = ef_xcalloc(graph->buffers.count + 1, sizeof *s.moved);
    for (ef_kid id = 0; id < ef_kernel_nodes(k); id++) {
        const ef_knode *n = ef_kernel_node(k, id);
        if (ef_kernel_reads(graph, k, id, (ef_read[EF_MOST_READS]){{0}}))
            continue; /* charged where something is computed from it */
        charge_work(&s, n);
        for (unsigned i = 0; i < n->count; i++)
            charge_load(&s, n->child[i]);
    }
    charge_states(&s);
    charge_stores(&s);
    free(s.loaded);
    free(s.moved);
}
