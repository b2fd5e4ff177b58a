/* Families: see families.h. */
#include "tune/families.h"

#include <inttypes.h>
#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "egraph/runner.h"
#include "support/deepstack.h"
#include "support/interrupt.h"
#include "support/processors.h"
#include "target/cost.h"
#include "target/first.h"

/* ---- one family ---- */

static uint64_t structure_hash(const ef_kgraph *graph)
{
    ef_strbuf text = {0};
    ef_kgraph_print(graph, &text);
    uint64_t hash = ef_hash(text.text, text.length);
    ef_strbuf_free(&text);
    return hash;
}

/* The largest value that is not above the wanted one. */
static uint32_t nearest(const uint64_t *value, uint32_t count, uint64_t wanted)
{
    uint32_t i = count - 1;
    while (i > 0 && value[i] > wanted)
        i--;
    return i;
}

/* Where a kernel may begin before another one has ended: which of its loads need not wait for that. */
static uint64_t hash_waiting(const ef_kgraph *g, uint32_t kernel)
{
    const ef_kernel *k = g->kernels.at[kernel];
    uint64_t hash = kernel == 0 ? 1 : k->beside ? 2 : 3;
    for (ef_kid id = 0; id < ef_kernel_nodes(k); id++) {
        const ef_knode *node = ef_kernel_node(k, id);
        if (node->op == EF_K_BUFFER)
            hash = ef_hash(&(uint64_t[]){hash, g->buffers.at[node->attr].kind == EF_BUFFER_INPUT}, 2 * sizeof hash);
    }
    return hash;
}

/* The number of a kernel and of the values that its parameters may have. */
static uint64_t kernel_identity(const ef_family *f, uint32_t kernel)
{
    uint64_t hash = ef_kgraph_kernel(f->graph, kernel);
    if (f->target && f->target->overlaps)
        hash = ef_hash(&(uint64_t[]){hash, hash_waiting(f->graph, kernel)}, 2 * sizeof hash);
    for (uint32_t i = 0; i < f->graph->params.count; i++)
        if (f->owner[i] == kernel) {
            uint64_t more[] = {hash, f->values[i], f->domain[i][0]};
            hash = ef_hash(more, sizeof more);
        }
    return hash | 1;
}

static void describe_kernels(ef_family *f, ef_arena *arena)
{
    uint32_t kernels = f->graph->kernels.count, params = f->graph->params.count;
    f->identity = ef_arena_alloc(arena, kernels * sizeof *f->identity);
    f->kernel_estimate = ef_arena_alloc(arena, kernels * sizeof *f->kernel_estimate);
    f->uses = ef_arena_alloc(arena, (size_t)kernels * params * sizeof *f->uses);
    f->key = ef_arena_alloc(arena, params * sizeof *f->key);
    f->joint = ef_arena_alloc(arena, params * sizeof *f->joint);
    for (uint32_t i = 0; i < params; i++) {
        f->key[i] = (uint64_t)f->graph->params.at[i].kind << 32 | f->graph->params.at[i].axis;
        f->joint[i] = f->graph->params.at[i].kind == EF_PARAM_OVERLAP && f->values[i] > 1;
    }
    for (uint32_t k = 0; k < kernels; k++) {
        f->identity[k] = kernel_identity(f, k);
        for (uint32_t i = 0; i < params; i++)
            f->uses[(size_t)k * params + i] = f->owner[i] == EF_NONE && ef_kgraph_kernel_uses(f->graph, k, i);
    }
}

static void describe(ef_family *f, ef_arena *arena, const ef_families_options *options)
{
    uint32_t count = f->graph->params.count;
    f->target = options->target ? ef_target_named(options->target) : NULL;
    bool gpu = f->target && f->target->gpu;
    f->schedule = ef_schedule_default(f->graph, options->backend, gpu ? f->target->units : options->threads);
    f->values = ef_arena_alloc(arena, count * sizeof *f->values);
    f->owner = ef_arena_alloc(arena, count * sizeof *f->owner);
    f->start = ef_arena_alloc(arena, count * sizeof *f->start);
    f->domain = ef_arena_alloc(arena, count * sizeof *f->domain);
    for (uint32_t i = 0; i < count; i++) {
        f->values[i] = ef_schedule_domain(f->graph, options->backend, i, f->domain[i]);
        if (gpu && f->graph->params.at[i].kind == EF_PARAM_OVERLAP && !f->target->overlaps)
            f->values[i] = 1; /* 0: it does not */
        f->owner[i] = f->graph->params.at[i].kernel;
        f->start[i] = nearest(f->domain[i], f->values[i], f->schedule.value[i]);
    }
    describe_kernels(f, arena);
}

/* Looks for a better schedule to start with. Gives what it costs by kernel, in microseconds. */
static void begin_well(ef_family *f, double *kernel_us)
{
    ef_schedule schedule = ef_first_schedule(f->graph, f->target, kernel_us);
    ef_schedule_free(&f->schedule);
    f->schedule = schedule;
    f->hiding = ef_kernels_hide(f->graph, &schedule);
    for (uint32_t i = 0; i < f->graph->params.count; i++)
        f->start[i] = nearest(f->domain[i], f->values[i], f->schedule.value[i]);
}

#define WIDE UINT64_C(0x9e3779b97f4a7c15)

uint64_t ef_family_wide_hash(const ef_family *f)
{
    return ef_kgraph_is_narrow(f->graph) ? ef_hash(&(uint64_t[]){f->hash, WIDE}, 2 * sizeof(uint64_t)) : f->hash;
}

bool ef_family_widen(ef_family *f)
{
    uint64_t wide = ef_family_wide_hash(f);
    if (!ef_kgraph_widen(f->graph))
        return false;
    f->hash = wide;
    for (uint32_t k = 0; k < f->graph->kernels.count; k++)
        f->identity[k] = kernel_identity(f, k);
    return true;
}

/* What a kernel costs under a choice on a GPU. */
static double cost(const void *user, uint32_t kernel, const uint32_t *choice, double *room)
{
    const ef_family *f = user;
    for (uint32_t i = 0; i < f->schedule.count; i++)
        f->scratch.value[i] = f->domain[i][choice[i]];
    return ef_cost_us(f->cost[kernel], &f->scratch, room);
}

ef_tune_space ef_family_space(const ef_family *f)
{
    return (ef_tune_space){.params = f->graph->params.count,
                           .values = f->values,
                           .owner = f->owner,
                           .start = f->start,
                           .estimate = f->estimate,
                           .kernels = f->graph->kernels.count,
                           .identity = f->identity,
                           .kernel_estimate = f->kernel_estimate,
                           .uses = f->uses,
                           .key = f->key,
                           .joint = f->joint,
                           .hiding = f->hiding,
                           .cost = f->cost ? cost : NULL,
                           .user = f};
}

ef_schedule ef_family_schedule(const ef_family *f, const uint32_t *choice)
{
    ef_schedule schedule = ef_schedule_copy(&f->schedule);
    for (uint32_t i = 0; i < schedule.count; i++)
        schedule.value[i] = f->domain[i][choice[i]];
    return schedule;
}

/* ---- schedules as text ---- */

void ef_family_print(const ef_family *f, const uint32_t *choice, ef_strbuf *out)
{
    const char *between = "";
    for (uint32_t i = 0; i < f->graph->params.count; i++) {
        if (f->values[i] < 2)
            continue;
        ef_strbuf_puts(out, between);
        between = " ";
        ef_schedule_name(f->graph, i, out);
        ef_strbuf_printf(out, "=%" PRIu64, f->domain[i][choice[i]]);
    }
    ef_strbuf_puts(out, "");
}

/* One "name=value", which must be the parameter's, with a value of its domain. */
static bool parse_one(const ef_family *f, uint32_t param, const char **text, uint32_t *choice)
{
    ef_strbuf name = {0};
    char *end = NULL;
    ef_schedule_name(f->graph, param, &name);
    bool fine = strncmp(*text, name.text, name.length) == 0 && (*text)[name.length] == '=';
    uint64_t value = fine ? strtoull(*text + name.length + 1, &end, 10) : 0;
    ef_strbuf_free(&name);
    if (!fine || (*end != ' ' && *end != 0))
        return false;
    *text = *end ? end + 1 : end;
    *choice = nearest(f->domain[param], f->values[param], value);
    return f->domain[param][*choice] == value;
}

bool ef_family_parse(const ef_family *f, const char *text, uint32_t *choice)
{
    for (uint32_t i = 0; i < f->graph->params.count; i++) {
        choice[i] = 0;
        if (f->values[i] > 1 && !parse_one(f, i, &text, &choice[i]))
            return false;
    }
    return *text == 0;
}

void ef_family_program(const ef_families *families, uint32_t family, ef_strbuf *out)
{
    const ef_family *f = &families->list.at[family];
    const ef_program *program = families->program;
    if (family == 0)
        ef_program_print(program, out);
    else
        ef_program_print_form(program, f->dag, f->output, out);
}

/* ---- all families ---- */

static bool known(const ef_families *all, uint64_t hash)
{
    for (uint32_t i = 0; i < all->list.count; i++)
        if (all->list.at[i].hash == hash)
            return true;
    return false;
}

/* Adds the family of a program unless it is there. A form that has no kernel graph is no family. */
static void add(ef_families *all, const ef_program *program, double estimate, const ef_families_options *options,
                ef_diag *diag)
{
    ef_family f = {.graph = ef_kgraph_new(program, diag), .estimate = estimate, .dag = program->dag};
    if (!f.graph)
        return;
    f.hash = structure_hash(f.graph);
    if (known(all, f.hash)) {
        ef_kgraph_free(f.graph);
        return;
    }
    ef_expr *output = ef_arena_alloc(all->arena, program->outputs * sizeof *output);
    for (uint32_t i = 0; i < program->outputs; i++)
        output[i] = program->output[i].expr;
    f.output = output;
    describe(&f, all->arena, options);
    ef_vec_push(&all->list, f);
}

static void add_candidate(ef_families *all, const ef_gathered_candidate *candidate, const ef_families_options *options)
{
    ef_program program = *all->program;
    ef_diag ignored = {0};
    ef_named *output = ef_xcalloc(program.outputs + 1, sizeof *output);
    for (uint32_t i = 0; i < program.outputs; i++)
        output[i] = (ef_named){all->program->output[i].name, candidate->output[i]};
    program.dag = candidate->dag;
    program.output = output;
    program.statements = 0;
    program.statement = NULL;
    add(all, &program, candidate->cost, options, &ignored);
    free(output);
}

static void drop_one(ef_family *f)
{
    for (uint32_t k = 0; f->cost && k < f->graph->kernels.count; k++)
        ef_cost_free(f->cost[k]);
    if (f->cost)
        ef_schedule_free(&f->scratch);
    ef_schedule_free(&f->schedule);
    ef_kgraph_free(f->graph);
    *f = (ef_family){0};
}

/* Families that no other one covers, in the order of their best members, after the program itself. */
static void drop_covered(ef_families *all)
{
    uint32_t count = all->list.count, *representative = ef_xcalloc(count + 1, sizeof *representative), kept = 1;
    ef_family *list = ef_xcalloc(count + 1, sizeof *list);
    const ef_kgraph **graph = ef_xcalloc(count + 1, sizeof *graph);
    for (uint32_t i = 1; i < count; i++)
        graph[i - 1] = all->list.at[i].graph;
    ef_kgraph_families(graph, count - 1, representative);
    list[0] = all->list.at[0];
    for (uint32_t i = 1; i < count; i++) {
        ef_family *f = &all->list.at[representative[i - 1] + 1];
        if (!f->graph) /* taken */
            continue;
        list[kept] = *f;
        list[kept++].estimate = all->list.at[i].estimate;
        *f = (ef_family){0};
    }
    for (uint32_t i = 1; i < count; i++)
        drop_one(&all->list.at[i]);
    memcpy(all->list.at, list, kept * sizeof *list);
    all->list.count = kept;
    free(list);
    free(graph);
    free(representative);
}

#define UNRANKED 1e20 /* microseconds */

static int fastest_first(const void *a, const void *b)
{
    const ef_family *f = a, *g = b;
    if (f->estimate != g->estimate)
        return f->estimate < g->estimate ? -1 : 1;
    return f->hash < g->hash ? -1 : f->hash > g->hash;
}

/* Of the shorter of two kernels that run at once: what they take less than one after the other. A guess between nothing
 * and all of it. */
#define HIDDEN 0.7

static bool runs_beside(const ef_family *f, uint32_t kernel)
{
    return f->target->gpu && f->graph->kernels.at[kernel]->beside &&
           ef_sched_value(f->graph, &f->schedule, kernel, EF_PARAM_OVERLAP);
}

/* What a kernel takes less because it runs while the one before it does, unless that waits for one itself: then it
 * begins when that ends. */
static double hidden_us(const ef_family *f, uint32_t kernel)
{
    if (!runs_beside(f, kernel) || runs_beside(f, kernel - 1))
        return 0;
    return HIDDEN * fmin(f->kernel_estimate[kernel], f->kernel_estimate[kernel - 1]);
}

/* What it costs under its first schedule on a GPU; elsewhere what it takes at least. */
static bool take_estimates(ef_family *f, uint32_t threads)
{
    ef_diag ignored = {0};
    ef_ranking ranking;
    if (f->target->gpu) {
        begin_well(f, f->kernel_estimate);
    } else if (ef_rank(f->graph, f->target, threads, &ranking, &ignored)) {
        memcpy(f->kernel_estimate, ranking.kernel_us, f->graph->kernels.count * sizeof *ranking.kernel_us);
        ef_ranking_free(&ranking);
    } else {
        return false;
    }
    f->estimate = 0;
    for (uint32_t k = 0; k < f->graph->kernels.count; k++)
        f->estimate += f->kernel_estimate[k] - hidden_us(f, k);
    return true;
}

typedef struct {
    ef_families *all;
    const ef_families_options *options;
    double until;
    atomic_uint next;
} ranking;

/* The work of a thread. First schedules and costs only read what families share. */
static void rank_families(void *user)
{
    ranking *r = user;
    for (uint32_t i = r->next++; i < r->all->list.count; i = r->next++) {
        ef_family *f = &r->all->list.at[i];
        if (ef_interrupted() || ef_seconds() > r->until || !take_estimates(f, r->options->threads))
            f->estimate += UNRANKED;
    }
}

/* Puts families in the order of what they could take on the device (paper, section 6.2). One that cannot be ranked, or
 * not before the time is over, comes after the others, in the order of extraction. */
static void rank(ef_families *all, const ef_families_options *options, double until)
{
    if (all->list.count < 2 || !all->list.at[1].target)
        return;
    ranking r = {.all = all, .options = options, .until = until, .next = 1};
    unsigned most = all->list.count - 1, processors = ef_processors();
    unsigned threads = !all->list.at[1].target->gpu ? 1 : processors < most ? processors : most; /* GLPK wants one */
    ef_with_deep_stacks(threads, rank_families, &r);
    if (most > 1)
        qsort(all->list.at + 1, most, sizeof *all->list.at, fastest_first);
}

/* Whether two families have the same kernels but for one. */
static bool differ_little(const ef_family *f, const ef_family *other)
{
    uint32_t count = f->graph->kernels.count, different = 0;
    if (other->graph->kernels.count != count)
        return false;
    for (uint32_t k = 0; k < count; k++) {
        bool has = false;
        for (uint32_t j = 0; j < count && !has; j++)
            has = f->identity[k] == other->identity[j];
        different += !has;
    }
    return different < 2 && count > 1;
}

/* Which families are kept before others: of each number of kernels the one that costs least, then the second of each,
 * and so on; but those that have a kernel for which there is no room come last, and before them those that differ
 * little from one that comes before. */
typedef struct {
    uint32_t family, turn;
    bool impossible, variant;
} place;

static int first_kept(const void *a, const void *b)
{
    const place *x = a, *y = b;
    if (x->impossible != y->impossible)
        return x->impossible ? 1 : -1;
    if (x->variant != y->variant)
        return x->variant ? 1 : -1;
    if (x->turn != y->turn)
        return x->turn < y->turn ? -1 : 1;
    return x->family < y->family ? -1 : x->family > y->family;
}

/* `at`: of the families from 1 to `i`, in their order. */
static void find_place(const ef_families *all, place *at, uint32_t i)
{
    const ef_family *f = &all->list.at[i];
    at[i] = (place){.family = i, .impossible = f->estimate >= EF_COST_NEVER && f->estimate < UNRANKED};
    for (uint32_t k = 1; k < i; k++)
        at[i].variant = at[i].variant || (!at[k].variant && differ_little(f, &all->list.at[k]));
    for (uint32_t k = 1; k < i; k++)
        at[i].turn += at[k].variant == at[i].variant && all->list.at[k].graph->kernels.count == f->graph->kernels.count;
}

/* Shortens the list to `keep`. Estimates prefer few kernels, and the cheapest of them differ little: so families of
 * each number of kernels take turns. */
static void shorten(ef_families *all, uint32_t keep)
{
    uint32_t count = all->list.count, kept = 1;
    place *at = ef_xcalloc(count + 1, sizeof *at);
    ef_family *list = ef_xcalloc(count + 1, sizeof *list);
    for (uint32_t i = 1; i < count; i++)
        find_place(all, at, i);
    if (count > 2)
        qsort(at + 1, count - 1, sizeof *at, first_kept);
    list[0] = all->list.at[0];
    for (uint32_t i = 1; i < count && kept < keep; i++) {
        list[kept++] = all->list.at[at[i].family];
        all->list.at[at[i].family] = (ef_family){0};
    }
    for (uint32_t i = 1; i < count; i++)
        drop_one(&all->list.at[i]);
    memcpy(all->list.at, list, kept * sizeof *list);
    all->list.count = kept;
    free(list);
    free(at);
}

#define LOOK_AT 8u /* times as many candidates as families that are kept: many are covered by others */

/* Whether more time would find nothing more, and no more than `keep` was found. */
static bool is_whole(const ef_gathered *g, uint32_t keep)
{
    for (uint32_t i = 0; i < g->searches.count; i++)
        if (g->searches.at[i].stop == EF_STOP_TIME || !g->searches.at[i].complete)
            return false;
    return g->searches.count > 0 && g->list.count < keep;
}

/* Half of the time for ranking is there for lowering. */
static void search(ef_families *all, const ef_families_options *options, ef_diag *diag)
{
    const ef_target *target = options->target ? ef_target_named(options->target) : NULL;
    ef_gather_options wanted = {
        .saturation_s = options->saturation_s, .extraction_s = options->extraction_s, .keep = LOOK_AT * options->keep};
    if (target) {
        wanted.rates = ef_target_rates(target);
        wanted.room = ef_target_room(target);
    }
    all->gathered = ef_gather(all->program, &wanted, diag);
    all->candidates = all->gathered->found;
    double start = ef_seconds(), limit = options->ranking_s > 0 ? options->ranking_s : INFINITY;
    all->whole = is_whole(all->gathered, wanted.keep);
    for (uint32_t i = 0; i < all->gathered->list.count && !ef_interrupted(); i++)
        if (i < options->keep || ef_seconds() < start + limit / 2)
            add_candidate(all, &all->gathered->list.at[i], options);
        else
            all->whole = false;
    drop_covered(all);
    all->whole = all->whole && all->list.count <= options->keep && !ef_interrupted();
    rank(all, options, start + limit);
    shorten(all, options->keep);
}

/* Of a family that is kept. */
static void make_costs(ef_family *f, ef_arena *arena)
{
    if (!f->target || !f->target->gpu)
        return;
    f->cost = ef_arena_alloc(arena, f->graph->kernels.count * sizeof *f->cost);
    for (uint32_t k = 0; k < f->graph->kernels.count; k++)
        f->cost[k] = ef_cost_new(f->graph, k, f->target);
    f->scratch = ef_schedule_copy(&f->schedule);
}

ef_families *ef_families_new(const ef_program *program, const ef_families_options *options, ef_diag *diag)
{
    ef_families *all = ef_xcalloc(1, sizeof *all);
    all->program = program;
    all->arena = ef_arena_new();
    /* The worst of all estimates: what it is worth is measured anyway, first of all. */
    add(all, program, 1e30, options, diag);
    if (all->list.count == 0) {
        ef_families_free(all);
        return NULL;
    }
    ef_family *own = &all->list.at[0];
    if (own->target && own->target->gpu) {
        double *us = ef_xcalloc(own->graph->kernels.count + 1, sizeof *us);
        begin_well(own, us);
        free(us);
    }
    if (options->keep > 1)
        search(all, options, diag);
    for (uint32_t i = 0; i < all->list.count; i++)
        make_costs(&all->list.at[i], all->arena);
    return all;
}

void ef_families_free(ef_families *families)
{
    if (!families)
        return;
    for (uint32_t i = 0; i < families->list.count; i++)
        drop_one(&families->list.at[i]);
    ef_vec_free(&families->list);
    ef_gathered_free(families->gathered);
    ef_arena_free(families->arena);
    free(families);
}
