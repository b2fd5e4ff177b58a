/* Gathering candidates: see gather.h. */
#include "tune/gather.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "egraph/runner.h"
#include "search/extract.h"
#include "search/partition.h"
#include "support/interrupt.h"

#define PARTITIONS 3u     /* of least estimated time, that are combined */
#define PER_PART 24u      /* candidates of a part that are combined */
#define EXTRACTION_S 4.0  /* of one search: more rarely finds anything cheaper */
#define UNSATURATED_S 2.0 /* of one whose e-graph is not saturated: it lacks what programs are made of */
#define NEAR 1.05         /* partitions whose estimates are as near as that to the least are searched by size */

struct ef_gather_store {
    ef_partitions *set;
    ef_extraction **found; /* by part; NULL: not searched, or nothing was found */
    bool *searched;        /* by part */
    uint32_t *search;      /* by part: its entry in `searches`, EF_NONE when there is none */
    EF_VEC(ef_program *) composed;
    ef_arena *arena;
};

typedef struct {
    const ef_program *program;
    const ef_gather_options *options;
    ef_gathered *out;
    struct ef_gather_store *store;
    ef_diag *diag;
    double saturation_s, extraction_s; /* left of the time limits */
} gathering;

/* ---- searching ---- */

/* A part that is all there is has the program's own names. */
static const ef_program *program_of(const gathering *g, uint32_t part)
{
    const ef_partitions *set = g->store->set;
    for (uint32_t p = 0; p < set->list.count; p++)
        if (set->list.at[p].parts == 1 && set->part.at[set->list.at[p].part[0]].like == part)
            return g->program;
    return set->part.at[part].program;
}

/* Distinct parts of the first of these partitions, `wanted` at most, that are not searched yet. */
static uint32_t count_left(const gathering *g, const uint32_t *list, uint32_t partitions, uint32_t wanted)
{
    const ef_partitions *set = g->store->set;
    bool *counted = ef_xcalloc(set->part.count + 1, sizeof *counted);
    uint32_t count = 0;
    for (uint32_t p = 0; p < wanted && p < partitions; p++)
        for (uint32_t i = 0; i < set->list.at[list[p]].parts; i++) {
            uint32_t like = set->part.at[set->list.at[list[p]].part[i]].like;
            count += !counted[like] && !g->store->searched[like];
            counted[like] = true;
        }
    free(counted);
    return count;
}

static void note_search(gathering *g, uint32_t number, const ef_search *search)
{
    const ef_part *part = &g->store->set->part.at[number];
    const ef_extraction *found = g->store->found[number];
    g->store->search[number] = g->out->searches.count;
    ef_vec_push(&g->out->searches, ((ef_gathered_search){.program = part->program,
                                                         .heavy = part->heavy,
                                                         .estimate_us = part->seconds * 1e6,
                                                         .enodes = search->graph->live,
                                                         .eclasses = search->graph->classes,
                                                         .iterations = search->stats->iterations,
                                                         .stop = search->stats->stop,
                                                         .saturation_s = search->stats->seconds,
                                                         .extraction_s = found->seconds,
                                                         .expanded = found->expanded,
                                                         .candidates = found->candidates,
                                                         .complete = found->complete,
                                                         .original = found->original}));
}

/* A search may take its share of what time is left, one of `left`; what it leaves others have. None when there is none.
 */
static void search_part(gathering *g, uint32_t number, uint32_t keep, uint32_t left)
{
    double share = 1.0 / (left ? left : 1), start = ef_seconds();
    if (g->saturation_s <= 0 || g->extraction_s <= 0)
        return;
    ef_search_options limits = {.time_limit = g->saturation_s * share};
    ef_extract_options wanted = {.compaction = EF_COMPACT_EARLY,
                                 .time_limit = fmin(g->extraction_s * share, EXTRACTION_S),
                                 .keep = keep,
                                 .rates = g->options->rates,
                                 .room = g->options->room};
    ef_search *search = ef_search_new(program_of(g, number), &limits, g->diag);
    bool fine = search && ef_search_saturate(search, g->diag);
    double between = ef_seconds();
    if (fine && search->stats->stop != EF_STOP_SATURATED && g->store->set->list.count > 1)
        wanted.time_limit = fmin(wanted.time_limit, UNSATURATED_S);
    if (fine) {
        g->store->found[number] = ef_extract(search, &wanted);
        g->out->found += g->store->found[number]->candidates;
        note_search(g, number, search);
    }
    ef_search_free(search);
    g->saturation_s -= between - start;
    g->extraction_s -= ef_seconds() - between;
}

/* Searches the parts of the first of these partitions that were not searched yet, up to one of which nothing but itself
 * is found: whether the partition is of use. `wanted`: partitions that are, with this one. */
static bool search_partition(gathering *g, const uint32_t *list, uint32_t partitions, uint32_t wanted)
{
    const ef_partitions *set = g->store->set;
    const ef_partition *partition = &set->list.at[list[0]];
    uint32_t keep = set->list.count > 1 && g->options->keep > PER_PART ? PER_PART : g->options->keep;
    bool useful = true;
    for (uint32_t i = 0; i < partition->parts && useful && !ef_interrupted(); i++) {
        uint32_t like = set->part.at[partition->part[i]].like;
        if (!g->store->searched[like])
            search_part(g, like, keep, count_left(g, list, partitions, wanted));
        g->store->searched[like] = true;
        useful = g->store->found[like] && !g->store->found[like]->original;
    }
    return useful;
}

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

/* The first partitions that are of use; the first one when none is. */
static uint32_t choose_partitions(gathering *g, uint32_t chosen[PARTITIONS])
{
    const ef_partitions *set = g->store->set;
    uint32_t count = 0, partitions = set->list.count, *list = ef_xcalloc(partitions + 1, sizeof *list);
    order_partitions(set, list);
    for (uint32_t p = 0; p < partitions && count < PARTITIONS && !ef_interrupted(); p++)
        if (search_partition(g, list + p, partitions - p, PARTITIONS - count))
            chosen[count++] = list[p];
    if (count == 0 && partitions)
        chosen[count++] = list[0];
    free(list);
    return count;
}

/* ---- combining ---- */

static void keep_candidate(gathering *g, ef_dag *dag, const ef_expr *output, double cost)
{
    ef_vec_push(&g->out->list, ((ef_gathered_candidate){dag, output, cost}));
}

/* A partition that is the program itself: its candidates are the program's. */
static void take_whole(gathering *g, uint32_t part, uint32_t room)
{
    const ef_extraction *found = g->store->found[part];
    for (uint32_t i = 0; found && i < found->candidate.count && i < room; i++)
        keep_candidate(g, found->dag, found->candidate.at[i].output, found->candidate.at[i].cost);
}

static void offer(gathering *g, ef_composer *composer, uint32_t part)
{
    const ef_extraction *found = g->store->found[part];
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
    const ef_extraction *found = g->store->found[g->store->set->part.at[part].like];
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
            search[i] = g->store->search[like];
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
    store->found = ef_xcalloc(store->set->part.count + 1, sizeof *store->found);
    store->searched = ef_xcalloc(store->set->part.count + 1, sizeof *store->searched);
    store->search = ef_xcalloc(store->set->part.count + 1, sizeof *store->search);
    memset(store->search, 0xff, store->set->part.count * sizeof *store->search);
    store->arena = ef_arena_new();
    out->store = store;
    gathering g = {.program = program,
                   .options = options,
                   .out = out,
                   .store = store,
                   .diag = diag,
                   .saturation_s = options->saturation_s,
                   .extraction_s = options->extraction_s};
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
        if (store->found[i])
            ef_extraction_free(store->found[i]);
    ef_vec_free(&store->composed);
    ef_arena_free(store->arena);
    free(store->found);
    free(store->searched);
    free(store->search);
    ef_partitions_free(store->set);
    free(store);
    ef_vec_free(&gathered->list);
    ef_vec_free(&gathered->searches);
    ef_vec_free(&gathered->partitions);
    free(gathered);
}
