/* Descent from a guess: see first.h. */
#include "target/first.h"

#include <stdlib.h>

#include "support/vec.h"
#include "target/cost.h"

#define BETTER 0.99 /* a schedule costs less than another when it costs so many times as much */
#define SWEEPS 4u   /* over the parameters of a kernel */

/* A parameter and its values. */
typedef struct {
    uint32_t param;
    unsigned values;
    uint64_t value[EF_SCHEDULE_VALUES];
} choice;

typedef struct {
    ef_cost *cost;
    EF_VEC(choice) own;
} kernel;

typedef struct {
    const ef_kgraph *g;
    const ef_target *target;
    ef_schedule s;
    kernel *kernel;
    double *us; /* by kernel, under the schedule */
    EF_VEC(choice) shared;
} descent;

static bool is_costed(ef_param_kind kind)
{
    return kind == EF_PARAM_TILE || kind == EF_PARAM_WARPS || kind == EF_PARAM_STAGES || kind == EF_PARAM_UNIT ||
           kind == EF_PARAM_LOAD;
}

static void add_choices(descent *d)
{
    for (uint32_t i = 0; i < d->g->params.count; i++) {
        const ef_kparam *p = &d->g->params.at[i];
        choice c = {.param = i};
        c.values = ef_schedule_domain(d->g, EF_BACKEND_TRITON, i, c.value);
        if (!is_costed(p->kind) || c.values < 2)
            continue;
        if (p->kernel == EF_NONE)
            ef_vec_push(&d->shared, c);
        else
            ef_vec_push(&d->kernel[p->kernel].own, c);
    }
}

/* Kernels begin while the ones before them end, and the first one while what ran before the program ends. */
static void begin_early(descent *d)
{
    for (uint32_t i = 0; i < d->g->params.count; i++)
        if (d->g->params.at[i].kind == EF_PARAM_OVERLAP)
            d->s.value[i] = EF_BEGIN_EARLY_EVENLY;
}

static double cost(const descent *d, uint32_t k)
{
    return ef_cost_us(d->kernel[k].cost, &d->s, NULL);
}

/* ---- one kernel ---- */

/* Tries a value; keeps it when the kernel costs less. */
static bool try_value(descent *d, uint32_t k, uint32_t param, uint64_t value)
{
    uint64_t before = d->s.value[param];
    if (value == before)
        return false;
    d->s.value[param] = value;
    double us = cost(d, k);
    if (us < BETTER * d->us[k]) {
        d->us[k] = us;
        return true;
    }
    d->s.value[param] = before;
    return false;
}

static unsigned place_of(const choice *c, uint64_t value)
{
    unsigned place = 0;
    while (place + 1 < c->values && c->value[place] < value)
        place++;
    return place;
}

/* Two parameters a step each: one up and the other one down, where the size of a tile stays and its shape changes, or
 * both up, as warps with tiles. */
static bool try_pair(descent *d, uint32_t k, const choice *up, const choice *other, bool both_up)
{
    uint64_t first = d->s.value[up->param], second = d->s.value[other->param];
    unsigned at = place_of(up, first), from = place_of(other, second);
    if (at + 1 >= up->values || (both_up ? from + 1 >= other->values : from == 0))
        return false;
    d->s.value[up->param] = up->value[at + 1];
    if (try_value(d, k, other->param, other->value[both_up ? from + 1 : from - 1]))
        return true;
    d->s.value[up->param] = first;
    return false;
}

static bool sweep(descent *d, uint32_t k)
{
    bool better = false;
    const kernel *own = &d->kernel[k];
    for (uint32_t i = 0; i < own->own.count; i++)
        for (unsigned v = 0; v < own->own.at[i].values; v++)
            better = try_value(d, k, own->own.at[i].param, own->own.at[i].value[v]) || better;
    for (uint32_t i = 0; i < own->own.count; i++)
        for (uint32_t j = 0; j < own->own.count; j++)
            for (unsigned up = 0; up < 2 && i != j; up++)
                better = try_pair(d, k, &own->own.at[i], &own->own.at[j], up) || better;
    return better;
}

static void descend(descent *d, uint32_t k, unsigned sweeps)
{
    d->us[k] = cost(d, k);
    for (unsigned i = 0; i < sweeps && sweep(d, k); i++) {
    }
}

/* ---- what shapes buffers, and so several kernels ---- */

typedef struct {
    uint64_t *value;
    double *us;
} state;

static void save(const descent *d, state *to)
{
    for (uint32_t i = 0; i < d->s.count; i++)
        to->value[i] = d->s.value[i];
    for (uint32_t k = 0; k < d->g->kernels.count; k++)
        to->us[k] = d->us[k];
}

static void restore(descent *d, const state *from)
{
    for (uint32_t i = 0; i < d->s.count; i++)
        d->s.value[i] = from->value[i];
    for (uint32_t k = 0; k < d->g->kernels.count; k++)
        d->us[k] = from->us[k];
}

static double total(const descent *d)
{
    double us = 0;
    for (uint32_t k = 0; k < d->g->kernels.count; k++)
        us += d->us[k];
    return us;
}

/* All values, each with what the kernels then choose. */
static void choose_shared(descent *d, const choice *c, state *best, state *start)
{
    save(d, start);
    save(d, best);
    double least = total(d);
    for (unsigned v = 0; v < c->values; v++) {
        if (c->value[v] == start->value[c->param])
            continue;
        restore(d, start);
        d->s.value[c->param] = c->value[v];
        for (uint32_t k = 0; k < d->g->kernels.count; k++)
            if (ef_kgraph_kernel_uses(d->g, k, c->param))
                descend(d, k, 1);
        if (total(d) < BETTER * least) {
            least = total(d);
            save(d, best);
        }
    }
    restore(d, best);
}

static state new_state(const descent *d)
{
    return (state){ef_xcalloc(d->s.count + 1, sizeof(uint64_t)), ef_xcalloc(d->g->kernels.count + 1, sizeof(double))};
}

static bool is_of_loop(const ef_kernel *at, uint32_t param)
{
    for (uint32_t i = 0; i < at->iters.count; i++)
        if (at->iters.at[i].kind == EF_ITER_LOOP && at->iters.at[i].param == param)
            return true;
    return false;
}

/* The same from another start: loops of one iteration, and the smallest blocks. No path leads there where only the last
 * step gains, as inputs that no loop loads are loaded while the kernel before runs. */
static void try_whole(descent *d, uint32_t k, state *before)
{
    const kernel *own = &d->kernel[k];
    save(d, before);
    for (uint32_t i = 0; i < own->own.count; i++) {
        const choice *c = &own->own.at[i];
        if (d->g->params.at[c->param].kind == EF_PARAM_TILE)
            d->s.value[c->param] = c->value[is_of_loop(d->g->kernels.at[k], c->param) ? c->values - 1 : 0];
    }
    descend(d, k, SWEEPS);
    if (d->us[k] > BETTER * before->us[k])
        restore(d, before);
}

static bool may_load_ahead(const descent *d, uint32_t k)
{
    return d->target->overlaps && k > 0 && !d->g->kernels.at[k]->beside && ef_kernel_has_product(d->g->kernels.at[k]);
}

/* Kernels with products that have gained nothing by it do not: their blocks would take the room of those before. */
static void begin_in_turn(descent *d)
{
    for (uint32_t i = 0; i < d->g->params.count; i++) {
        const ef_kparam *p = &d->g->params.at[i];
        if (p->kind != EF_PARAM_OVERLAP || p->kernel == 0 || !ef_kernel_has_product(d->g->kernels.at[p->kernel]))
            continue;
        uint64_t early = d->s.value[i];
        d->s.value[i] = EF_BEGIN_AFTER;
        d->s.value[i] = cost(d, p->kernel) > d->us[p->kernel] ? early : EF_BEGIN_AFTER;
    }
}

static void free_state(state *s)
{
    free(s->value);
    free(s->us);
}

ef_schedule ef_first_schedule(const ef_kgraph *graph, const ef_target *target, double *kernel_us)
{
    descent d = {.g = graph, .target = target, .us = kernel_us};
    d.s = ef_schedule_default(graph, EF_BACKEND_TRITON, target->units);
    d.kernel = ef_xcalloc(graph->kernels.count + 1, sizeof *d.kernel);
    for (uint32_t k = 0; k < graph->kernels.count; k++)
        d.kernel[k].cost = ef_cost_new(graph, k, target);
    add_choices(&d);
    if (target->overlaps)
        begin_early(&d);
    for (uint32_t k = 0; k < graph->kernels.count; k++)
        descend(&d, k, SWEEPS);
    state best = new_state(&d), start = new_state(&d);
    for (uint32_t i = 0; i < d.shared.count; i++)
        choose_shared(&d, &d.shared.at[i], &best, &start);
    for (uint32_t k = 0; k < graph->kernels.count && d.shared.count > 0; k++)
        descend(&d, k, SWEEPS);
    for (uint32_t k = 0; k < graph->kernels.count; k++)
        if (may_load_ahead(&d, k))
            try_whole(&d, k, &start);
    if (target->overlaps)
        begin_in_turn(&d);
    free_state(&best);
    free_state(&start);
    for (uint32_t k = 0; k < graph->kernels.count; k++) {
        ef_cost_free(d.kernel[k].cost);
        ef_vec_free(&d.kernel[k].own);
    }
    ef_vec_free(&d.shared);
    free(d.kernel);
    return d.s;
}
