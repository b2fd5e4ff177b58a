/* Gathering candidates: see gather.h. */
#include "tune/gather.h"

#include <stdlib.h>
#include <string.h>

#include "egraph/runner.h"
#include "search/extract.h"
#include "search/partition.h"
#include "tune/part_search.h"

#define PARTITIONS 3u /* of least estimated time, that are combined */
#define PER_PART 24u  /* candidates of a part that are combined */
#define NEAR 1.05     /* partitions whose estimates are as near as that to the least are searched by size */

struct ef_gather_store {
    ef_partitions *set;
    ef_part_search *search; /* by part */
    bool *taken;            /* by part: its search is one of those that are wanted */
    uint32_t *number;       /* by part: its entry in `searches`, EF_NONE when there is none */
    EF_VEC(ef_program *) composed;
    ef_arena *arena;
};

typedef struct {
    const ef_program *program;
    const ef_gather_options *options;
    ef_gathered *out;
    struct ef_gather_store *store;
    ef_diag *diag;
} gathering;

/* ---- searching ---- */

/* In the order in which they are searched: the least estimated time first, but of those that are near it the one of the
 * smallest parts. A search takes several times as long for a few operators more, and estimates know no better. */
static void order_partitions(const ef_partitions *set, uint32_t *list)
{
    for (uint32_t p = 0; p < set->list.count; p++) {
        uint32_t at = p;
        bool near = set->list.at[p].seconds <= NEAR * set->list.at[0].seconds;
        for (; near && at > 0 && set->list.at[list[at - 1]].limit > set->list.at[p].limit; at--)
            list[at] = list[at - 1];
        list[at] = p;
    }
}

/* Takes the results that are wanted of a partition, up to a part of which nothing but itself was found, as if parts had
 * been searched one after the other. */
static void take_partition(gathering *g, uint32_t partition)
{
    const ef_partition *p = &g->store->set->list.at[partition];
    for (uint32_t i = 0; i < p->parts; i++) {
        uint32_t like = g->store->set->part.at[p->part[i]].like;
        ef_part_search *search = &g->store->search[like];
        if (search->done && !g->store->taken[like]) {
            if (search->diag.failed)
                ef_fail(g->diag, "%s", search->diag.text);
            ef_part_search_bring(search, ef_dag_ctx(g->program->dag), g->diag);
            if (search->found) {
                g->store->number[like] = g->out->searches.count;
                ef_vec_push(&g->out->searches, search->report);
                g->out->found += search->found->candidates;
            }
            g->store->taken[like] = true;
        }
        if (!search->found || search->found->original)
            return;
    }
}

/* Forgets what was found ahead and not wanted. */
static void drop_others(gathering *g)
{
    for (uint32_t i = 0; i < g->store->set->part.count; i++)
        if (!g->store->taken[i])
            ef_part_search_free(&g->store->search[i]);
}

/* The first partitions that are of use; the first one when none is. */
static uint32_t choose_partitions(gathering *g, uint32_t chosen[PARTITIONS])
{
    const ef_partitions *set = g->store->set;
    uint32_t count = 0, partitions = set->list.count, *order = ef_xcalloc(partitions + 1, sizeof *order);
    order_partitions(set, order);
    ef_part_searches job = {.program = g->program,
                            .set = set,
                            .order = order,
                            .wanted = PARTITIONS,
                            .keep = partitions > 1 && g->options->keep > PER_PART ? PER_PART : g->options->keep,
                            .options = g->options,
                            .search = g->store->search};
    double start = ef_seconds();
    g->out->threads = ef_part_searches_run(&job);
    g->out->seconds = ef_seconds() - start;
    for (uint32_t p = 0; p < partitions && count < PARTITIONS; p++) {
        take_partition(g, order[p]);
        if (ef_part_searches_useful(&job, order[p]))
            chosen[count++] = order[p];
    }
    if (count == 0 && partitions)
        chosen[count++] = order[0];
    drop_others(g);
    free(order);
    return count;
}

/* ---- combining ---- */

/* What was found of the part that it is like; NULL: not searched, or nothing. */
static const ef_extraction *found_of(const gathering *g, uint32_t part)
{
    return g->store->search[g->store->set->part.at[part].like].found;
}

static void keep_candidate(gathering *g, ef_dag *dag, const ef_expr *output, double cost)
{
    ef_vec_push(&g->out->list, ((ef_gathered_candidate){dag, output, cost}));
}

/* A partition that is the program itself: its candidates are the program's. */
static void take_whole(gathering *g, uint32_t part, uint32_t room)
{
    const ef_extraction *found = found_of(g, part);
    for (uint32_t i = 0; found && i < found->candidate.count && i < room; i++)
        keep_candidate(g, found->dag, found->candidate.at[i].output, found->candidate.at[i].cost);
}

static void offer(gathering *g, ef_composer *composer, uint32_t part)
{
    const ef_extraction *found = found_of(g, part);
    ef_part_candidate candidate[PER_PART];
    uint32_t count = 0;
    for (; found && count < found->candidate.count && count < PER_PART; count++) {
        const ef_candidate *c = &found->candidate.at[count];
        candidate[count] = (ef_part_candidate){found->dag, c->output, c->cost};
    }
    ef_composer_offer(composer, part, candidate, count);
}

static void keep_program(gathering *g, ef_program *program, double cost)
{
    ef_expr *output = ef_arena_alloc(g->store->arena, program->outputs * sizeof *output);
    for (uint32_t i = 0; i < program->outputs; i++)
        output[i] = program->output[i].expr;
    ef_vec_push(&g->store->composed, program);
    keep_candidate(g, program->dag, output, cost);
}

static void compose(gathering *g, uint32_t number, uint32_t room)
{
    const ef_partitions *set = g->store->set;
    const ef_partition *partition = &set->list.at[number];
    uint32_t *choice = ef_xcalloc(partition->parts + 1, sizeof *choice);
    ef_composer *composer = ef_composer_new(set, number);
    double cost;
    for (uint32_t i = 0; i < partition->parts; i++)
        offer(g, composer, set->part.at[partition->part[i]].like);
    for (uint32_t i = 0; i < room && ef_composer_next(composer, choice, &cost); i++) {
        ef_program *program = ef_composer_program(composer, choice, NULL);
        if (program)
            keep_program(g, program, cost);
    }
    g->out->partitions.at[number].built = ef_composer_built(composer);
    ef_composer_free(composer);
    free(choice);
}

/* ---- all together ---- */

/* Puts the candidates of partitions, which end at `end`, in turns. */
static void interleave(ef_gathered *out, const uint32_t *end, uint32_t partitions)
{
    ef_gathered_candidate *old = out->list.at;
    uint32_t count = out->list.count, at[PARTITIONS] = {0};
    out->list.at = NULL;
    out->list.count = out->list.capacity = 0;
    for (uint32_t p = 1; p < partitions; p++)
        at[p] = end[p - 1];
    for (uint32_t p = 0; out->list.count < count; p = (p + 1) % partitions)
        if (at[p] < end[p])
            ef_vec_push(&out->list, old[at[p]++]);
    free(old);
}

/* Candidates of a part that are combined. */
static double offered(const gathering *g, uint32_t part, bool whole)
{
    const ef_extraction *found = found_of(g, part);
    uint32_t count = found ? found->candidate.count : 0;
    return whole || count < PER_PART ? count : PER_PART;
}

/* Describes all partitions, and of those that are combined what there is to combine. */
static void describe_partitions(gathering *g)
{
    const ef_partitions *set = g->store->set;
    for (uint32_t p = 0; p < set->list.count; p++) {
        const ef_partition *from = &set->list.at[p];
        uint32_t *search = ef_arena_alloc(g->store->arena, (from->parts + 1) * sizeof *search);
        ef_gathered_partition to = {.limit = from->limit,
                                    .parts = from->parts,
                                    .estimate_us = from->seconds * 1e6,
                                    .combinations = 1,
                                    .search = search};
        for (uint32_t i = 0; i < from->parts; i++) {
            uint32_t like = set->part.at[from->part[i]].like;
            bool first = true;
            for (uint32_t k = 0; k < i; k++)
                first = first && set->part.at[from->part[k]].like != like;
            to.distinct += first;
            search[i] = g->store->number[like];
            to.combinations *= offered(g, from->part[i], from->parts == 1);
        }
        ef_vec_push(&g->out->partitions, to);
    }
}

static void gather(gathering *g)
{
    const ef_partitions *set = g->store->set;
    uint32_t chosen[PARTITIONS], end[PARTITIONS] = {0}, room = g->options->keep;
    uint32_t partitions = choose_partitions(g, chosen);
    describe_partitions(g);
    for (uint32_t i = 0; i < partitions; i++) {
        const ef_partition *p = &set->list.at[chosen[i]];
        ef_gathered_partition *report = &g->out->partitions.at[chosen[i]];
        uint32_t share = room / (partitions - i);
        uint32_t before = g->out->list.count;
        if (p->parts == 1)
            take_whole(g, set->part.at[p->part[0]].like, share);
        else
            compose(g, chosen[i], share);
        report->combined = true;
        report->composed = g->out->list.count - before;
        room -= g->out->list.count - before;
        end[i] = g->out->list.count;
    }
    if (partitions)
        interleave(g->out, end, partitions);
}

ef_gathered *ef_gather(const ef_program *program, const ef_gather_options *options, ef_diag *diag)
{
    ef_gathered *out = ef_xcalloc(1, sizeof *out);
    struct ef_gather_store *store = ef_xcalloc(1, sizeof *store);
    store->set = ef_partition_program(program, NULL);
    store->search = ef_xcalloc(store->set->part.count + 1, sizeof *store->search);
    store->taken = ef_xcalloc(store->set->part.count + 1, sizeof *store->taken);
    store->number = ef_xcalloc(store->set->part.count + 1, sizeof *store->number);
    memset(store->number, 0xff, store->set->part.count * sizeof *store->number);
    store->arena = ef_arena_new();
    out->store = store;
    gathering g = {.program = program, .options = options, .out = out, .store = store, .diag = diag};
    gather(&g);
    return out;
}

void ef_gathered_free(ef_gathered *gathered)
{
    if (!gathered)
        return;
    struct ef_gather_store *store = gathered->store;
    for (uint32_t i = 0; i < store->composed.count; i++)
        ef_program_free(store->composed.at[i]);
    for (uint32_t i = 0; i < store->set->part.count; i++)
        ef_part_search_free(&store->search[i]);
    ef_vec_free(&store->composed);
    ef_arena_free(store->arena);
    free(store->search);
    free(store->taken);
    free(store->number);
    ef_partitions_free(store->set);
    free(store);
    ef_vec_free(&gathered->list);
    ef_vec_free(&gathered->searches);
    ef_vec_free(&gathered->partitions);
    free(gathered);
}
