/* Searching parts, several at once: see part_search.h. */
#include "tune/part_search.h"

#include <math.h>
#include <pthread.h>
#include <stdlib.h>

#include "egraph/runner.h"
#include "ir/transfer.h"
#include "support/deepstack.h"
#include "support/interrupt.h"
#include "support/processors.h"

#define SATURATION_S 10.0        /* of one of several parts: what has not saturated by then hardly ever does … */
#define PART_NODES 150000u       /* … nor does this: of e-graphs that saturated the largest seen had 108,000 nodes */
#define EXTRACTION_S 4.0         /* of one search: more rarely finds anything cheaper */
#define UNSATURATED_S 2.0        /* of one whose e-graph is not saturated: it lacks what programs are made of */
#define MEMORY ((size_t)4 << 30) /* bytes, of all e-graphs together, and of all extractions */

typedef enum { WAITING, RUNNING, DONE } stage;

typedef struct {
    const ef_part_searches *job;
    uint8_t *stage; /* by part */
    unsigned threads;
    double end; /* of all time limits */
    pthread_mutex_t lock;
    pthread_cond_t changed; /* a search ended */
    atomic_int ending;      /* nothing more is wanted */
    ef_interrupt outer;     /* what the caller works under */
} searching;

/* What a thread has left of the time limits. */
typedef struct {
    double saturation_s, extraction_s;
} allowance;

/* ---- which part is next ---- */

static uint32_t like(const ef_part_searches *job, uint32_t partition, uint32_t i)
{
    return job->set->part.at[job->set->list.at[partition].part[i]].like;
}

static bool in_vain(const ef_part_search *search)
{
    return search->done && (!search->found || search->found->original);
}

static bool is_useless(const ef_part_searches *job, uint32_t partition)
{
    for (uint32_t i = 0; i < job->set->list.at[partition].parts; i++)
        if (in_vain(&job->search[like(job, partition, i)]))
            return true;
    return false;
}

bool ef_part_searches_useful(const ef_part_searches *job, uint32_t partition)
{
    for (uint32_t i = 0; i < job->set->list.at[partition].parts; i++) {
        const ef_part_search *search = &job->search[like(job, partition, i)];
        if (!search->done || in_vain(search))
            return false;
    }
    return true;
}

/* The next part to search, EF_NONE when there is none now. *left: how many there are, as far as this partition.
 * *over: none will be wanted any more. Of a partition those after one that was searched in vain are not wanted; those
 * before it are, whichever ended first, so that what is searched does not depend on that. */
static uint32_t next_part(const searching *s, uint32_t *left, bool *over)
{
    const ef_part_searches *job = s->job;
    const ef_partitions *set = job->set;
    bool *counted = ef_xcalloc(set->part.count + 1, sizeof *counted), running = false;
    uint32_t next = EF_NONE, before = 0;
    *left = 0;
    for (uint32_t p = 0; p < set->list.count && (before < job->wanted || (next == EF_NONE && running)); p++) {
        before += !is_useless(job, job->order[p]);
        for (uint32_t i = 0; i < set->list.at[job->order[p]].parts; i++) {
            uint32_t part = like(job, job->order[p], i);
            if (in_vain(&job->search[part]))
                break;
            running = running || s->stage[part] == RUNNING;
            if (counted[part] || s->stage[part] != WAITING)
                continue;
            counted[part] = true;
            next = next == EF_NONE ? part : next;
            ++*left;
        }
    }
    free(counted);
    *over = next == EF_NONE && !running;
    return next;
}

/* ---- one search ---- */

/* A part that is all there is has the program's own names. */
static const ef_program *program_of(const ef_part_searches *job, uint32_t part)
{
    const ef_partitions *set = job->set;
    for (uint32_t p = 0; p < set->list.count; p++)
        if (set->list.at[p].parts == 1 && set->part.at[set->list.at[p].part[0]].like == part)
            return job->program;
    return set->part.at[part].program;
}

static void describe(ef_part_search *to, const ef_part *part, const ef_search *search)
{
    to->report = (ef_gathered_search){.program = part->program,
                                      .heavy = part->heavy,
                                      .estimate_us = part->seconds * 1e6,
                                      .enodes = search->graph->live,
                                      .eclasses = search->graph->classes,
                                      .iterations = search->stats->iterations,
                                      .stop = search->stats->stop,
                                      .saturation_s = search->stats->seconds,
                                      .extraction_s = to->found->seconds,
                                      .expanded = to->found->expanded,
                                      .candidates = to->found->candidates,
                                      .complete = to->found->complete,
                                      .original = to->found->original};
}

/* Searches a part within a share of what its thread has left for so many, from which it takes the time that it needs.
 * In vain when nothing is left. */
static void search_part(const searching *s, uint32_t part, uint32_t rounds, allowance *left, ef_part_search *to)
{
    const ef_part_searches *job = s->job;
    const ef_gather_options *o = job->options;
    bool several = job->set->list.count > 1;
    double start = ef_seconds(), most = s->end - start;
    if (left->saturation_s <= 0 || left->extraction_s <= 0 || most <= 0)
        return;
    double saturation_s = fmin(left->saturation_s, most) / rounds,
           extraction_s = fmin(left->extraction_s, most) / rounds;
    if (several && !o->node_limit)
        saturation_s = fmin(saturation_s, SATURATION_S);
    if (!o->state_limit)
        extraction_s = fmin(extraction_s, EXTRACTION_S);
    ef_search_options limits = {.node_limit = o->node_limit ? o->node_limit
                                              : several     ? PART_NODES
                                                            : 0,
                                .time_limit = saturation_s,
                                .memory_limit = MEMORY / s->threads};
    ef_extract_options wanted = {.compaction = EF_COMPACT_EARLY,
                                 .time_limit = extraction_s,
                                 .state_limit = o->state_limit,
                                 .keep = job->keep,
                                 .rates = o->rates,
                                 .room = o->room,
                                 .memory_limit = MEMORY / s->threads};
    ef_program program = *program_of(job, part);
    to->ctx = ef_ctx_copy(ef_dag_ctx(program.dag));
    program.dag = ef_dag_transfer(program.dag, to->ctx, &to->diag);
    ef_search *search = program.dag ? ef_search_new(&program, &limits, &to->diag) : NULL;
    bool fine = search && ef_search_saturate(search, &to->diag);
    double between = ef_seconds();
    if (fine && search->stats->stop != EF_STOP_SATURATED && several && !o->state_limit)
        wanted.time_limit = fmin(wanted.time_limit, UNSATURATED_S);
    if (fine) {
        to->found = ef_extract(search, &wanted);
        describe(to, &job->set->part.at[part], search);
    }
    ef_search_free(search);
    ef_dag_free(program.dag);
    left->saturation_s -= between - start;
    left->extraction_s -= ef_seconds() - between;
}

/* ---- threads ---- */

/* Searches parts until nothing is wanted any more: the work of each thread. */
static void search_parts(void *user)
{
    searching *s = user;
    allowance own = {s->job->options->saturation_s, s->job->options->extraction_s};
    ef_interrupt before = ef_interrupt_set((ef_interrupt){.flag = &s->ending, .from = EF_FINISH, .outer = &s->outer});
    pthread_mutex_lock(&s->lock);
    while (!ef_interrupted()) {
        uint32_t left;
        bool over;
        uint32_t part = next_part(s, &left, &over);
        if (over)
            break;
        if (part == EF_NONE) {
            pthread_cond_wait(&s->changed, &s->lock);
            continue;
        }
        uint32_t rounds = 1 + (left - 1) / s->threads;
        s->stage[part] = RUNNING;
        pthread_mutex_unlock(&s->lock);
        ef_part_search result = {0};
        search_part(s, part, rounds, &own, &result);
        result.done = true;
        pthread_mutex_lock(&s->lock);
        s->job->search[part] = result;
        s->stage[part] = DONE;
        pthread_cond_broadcast(&s->changed);
    }
    s->ending = EF_FINISH;
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->lock);
    ef_interrupt_set(before);
}

static unsigned distinct_parts(const ef_part_searches *job)
{
    unsigned count = 0;
    for (uint32_t i = 0; i < job->set->part.count; i++)
        count += job->set->part.at[i].like == i;
    return count;
}

unsigned ef_part_searches_run(const ef_part_searches *job)
{
    const ef_gather_options *o = job->options;
    unsigned threads = o->threads ? o->threads : ef_processors(), most = distinct_parts(job);
    searching s = {.job = job,
                   .stage = ef_xcalloc(job->set->part.count + 1, sizeof *s.stage),
                   .threads = threads < most ? threads : most,
                   .end = ef_seconds() + o->saturation_s + o->extraction_s,
                   .lock = PTHREAD_MUTEX_INITIALIZER,
                   .changed = PTHREAD_COND_INITIALIZER,
                   .outer = ef_interrupt_get()};
    if (s.threads)
        ef_with_deep_stacks(s.threads, search_parts, &s);
    pthread_cond_destroy(&s.changed);
    pthread_mutex_destroy(&s.lock);
    free(s.stage);
    return s.threads;
}

/* ---- results ---- */

void ef_part_search_bring(ef_part_search *search, ef_ctx *ctx, ef_diag *diag)
{
    if (!search->found || !search->ctx)
        return;
    ef_dag *dag = ef_dag_transfer(search->found->dag, ctx, diag);
    ef_dag_free(search->found->dag);
    search->found->dag = dag;
    if (!dag) {
        ef_extraction_free(search->found);
        search->found = NULL;
    }
    ef_ctx_free(search->ctx);
    search->ctx = NULL;
}

void ef_part_search_free(ef_part_search *search)
{
    ef_extraction_free(search->found);
    ef_ctx_free(search->ctx);
    *search = (ef_part_search){0};
}
