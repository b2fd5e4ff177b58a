/* How well static costs order what a finished optimisation measured: from its store, one row of a table a program.
 *
 *     build/bench/bench_rank STORE.db TARGET DEVICE [-k] FILE.ef …
 *
 * DEVICE: how the store calls the device that measured. Programs that the store does not know are left out. Columns:
 *   - measured: schedules with a time, of so many families; the program as it was given does not count;
 *   - rho: Spearman's correlation of the costs (cost.h) of schedules with their times; of families, by the cost of
 * their first schedule and their best time; and of each single kernel's, where kernels were timed or are alone in their
 *     family (equal kernels under equal schedules count once);
 *   - off: the mean of |log(time / cost)| of kernels, less their median;
 *   - winner: the place of the family of the best time among all families that the search finds, by what they cost
 *     first, and the place of its schedule among those that were measured, by cost;
 *   - first: the time of the schedule that was measured first, and of the one that costs least, as parts of the best.
 * With -k, instead, one line a kernel: program, family, kernel, cost and time in microseconds, room (room.h), status
 * and schedule, separated by tabs; of what failed there is no time. On a CPU schedules have no costs: families alone
 * count. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <jansson.h>

#include "support/deepstack.h"
#include "target/cost.h"
#include "target/room.h"
#include "tune/canonical.h"
#include "tune/families.h"
#include "tune/store.h"

#define KEEP 256u
#define SEARCH_S 60.0

/* What was thought, and what it took. */
typedef struct {
    double cost, us;
} pair;

typedef struct {
    EF_VEC(pair) at;
} pairs;

typedef struct {
    const ef_families *families;
    const ef_family *f; /* whose results are read, and what it is called */
    const char *name;
    bool kernels; /* are printed */
    pairs whole, kernel, family;
    ef_intern *seen; /* kernels with their schedules */
    pair winner;
    double winner_estimate; /* of its family */
    double best, first_us;  /* of this family; of what came first of all */
    int64_t first_at;
} study;

typedef struct {
    const char *store, *device, *const *path;
    const ef_target *target;
    int paths;
    bool kernels;
    int status;
} job;

/* ---- figures ---- */

static double value(const pair *p, bool took)
{
    return took ? p->us : p->cost;
}

static int by_cost(const void *a, const void *b)
{
    const pair *x = a, *y = b;
    return x->cost < y->cost ? -1 : x->cost > y->cost;
}

/* The mean rank of equals. */
static double rank_of(const pairs *all, const pair *p, bool took)
{
    double below = 0, equal = 0;
    for (uint32_t i = 0; i < all->at.count; i++) {
        below += value(&all->at.at[i], took) < value(p, took);
        equal += value(&all->at.at[i], took) == value(p, took);
    }
    return below + (equal + 1) / 2;
}

/* Pearson's correlation of the ranks. */
static double spearman(const pairs *all)
{
    double mean = (all->at.count + 1) / 2.0, product = 0, a = 0, b = 0;
    for (uint32_t i = 0; i < all->at.count; i++) {
        double x = rank_of(all, &all->at.at[i], false) - mean, y = rank_of(all, &all->at.at[i], true) - mean;
        product += x * y;
        a += x * x;
        b += y * y;
    }
    return a > 0 && b > 0 ? product / sqrt(a * b) : NAN;
}

/* The mean distance of the logarithms of time / cost from their median. */
static double off(const pairs *all)
{
    uint32_t count = all->at.count;
    double sum = 0;
    pairs miss = {0};
    for (uint32_t i = 0; i < count; i++)
        ef_vec_push(&miss.at, ((pair){log(all->at.at[i].us / all->at.at[i].cost), 0}));
    if (count)
        qsort(miss.at.at, count, sizeof *miss.at.at, by_cost);
    for (uint32_t i = 0; i < count; i++)
        sum += fabs(miss.at.at[i].cost - miss.at.at[count / 2].cost);
    ef_vec_free(&miss.at);
    return count ? sum / count : NAN;
}

/* ---- one family ---- */

/* The part of the schedule that a kernel depends on, and the kernel. */
static bool is_new(study *s, uint32_t k, const uint32_t *choice)
{
    const ef_family *f = s->f;
    int fresh;
    uint64_t hash = f->identity[k];
    for (uint32_t i = 0; i < f->graph->params.count; i++)
        if (f->owner[i] == k || f->uses[(size_t)k * f->graph->params.count + i])
            hash = ef_hash(&(uint64_t[]){hash, f->domain[i][choice[i]]}, 2 * sizeof hash);
    ef_intern_put(s->seen, &hash, sizeof hash, &fresh);
    return fresh;
}

/* What a kernel took; 0: not known. */
static double took(const ef_family *f, const ef_store_result *r, const json_t *list, uint32_t kernel)
{
    uint32_t kernels = f->graph->kernels.count;
    if (strcmp(r->status, "fine") != 0)
        return 0;
    return kernels == 1                       ? r->us
           : json_array_size(list) == kernels ? json_number_value(json_array_get(list, kernel))
                                              : 0;
}

static void take_kernels(study *s, const ef_store_result *r, const uint32_t *choice, const ef_schedule *schedule,
                         double *sum)
{
    const ef_family *f = s->f;
    json_t *list = json_loads(r->kernel_us, 0, NULL);
    for (uint32_t k = 0; k < f->graph->kernels.count; k++) {
        ef_room room = ef_room_of(f->graph, schedule, k, f->target);
        double cost = ef_cost_us(f->cost[k], schedule, NULL), us = took(f, r, list, k);
        *sum += cost;
        if (s->kernels)
            printf("%s\t%016" PRIx64 "\t%" PRIu32 "\t%.2f\t%.2f\t%.0f\t%.0f\t%s\t%" PRIu32 "\t%.100s\t%s\n", s->name,
                   f->hash, k, cost, us, room.shared, room.registers, r->status, r->guilty, r->error, r->schedule);
        if (us > 0 && cost < EF_COST_NEVER && is_new(s, k, choice))
            ef_vec_push(&s->kernel.at, ((pair){cost, us}));
    }
    json_decref(list);
}

static void take(void *user, const ef_store_result *r)
{
    study *s = user;
    uint32_t *choice = ef_xcalloc(s->f->graph->params.count + 1, sizeof *choice);
    bool fine = strcmp(r->status, "fine") == 0 && r->us > 0, known = ef_family_parse(s->f, r->schedule, choice);
    double cost = 0;
    if (known && s->f->cost) {
        ef_schedule schedule = ef_family_schedule(s->f, choice);
        take_kernels(s, r, choice, &schedule, &cost);
        ef_schedule_free(&schedule);
        if (fine)
            ef_vec_push(&s->whole.at, ((pair){cost, r->us}));
    }
    free(choice);
    if (!fine)
        return;
    if (s->first_at == 0 || r->at < s->first_at) {
        s->first_at = r->at;
        s->first_us = r->us;
    }
    s->best = s->best <= 0 || r->us < s->best ? r->us : s->best;
    if (s->winner.us <= 0 || r->us < s->winner.us) {
        s->winner = (pair){cost, r->us};
        s->winner_estimate = s->f->estimate;
    }
}

/* ---- one program ---- */

static void read_store(study *s, const ef_program *program, ef_store *store, const char *device)
{
    char hash[33];
    ef_canonical_hash(program, hash);
    for (uint32_t i = 1; i < s->families->list.count; i++) { /* the program itself comes first whatever it costs */
        ef_family *f = &s->families->list.at[i];
        s->f = f;
        s->best = 0;
        ef_store_results(store, hash, device, f->hash, take, s);
        if (ef_family_wide_hash(f) != f->hash && ef_family_widen(f))
            ef_store_results(store, hash, device, f->hash, take, s);
        if (s->best > 0)
            ef_vec_push(&s->family.at, ((pair){f->estimate, s->best}));
    }
}

/* Of families, the place of the winner's. */
static uint32_t place(const study *s)
{
    uint32_t place = 1;
    for (uint32_t i = 1; i < s->families->list.count; i++)
        place += s->families->list.at[i].estimate < s->winner_estimate;
    return place;
}

static void print_row(study *s)
{
    uint32_t cheaper = 1, measured = s->whole.at.count;
    pair cheapest = s->winner;
    for (uint32_t i = 0; i < measured; i++) {
        cheaper += s->whole.at.at[i].cost < s->winner.cost;
        cheapest = s->whole.at.at[i].cost < cheapest.cost ? s->whole.at.at[i] : cheapest;
    }
    printf("| %s | %" PRIu32 " | %" PRIu32 " | %.2f | %.2f | %.2f | %.2f | %" PRIu32 " of %" PRIu32 " | %" PRIu32
           " | %.1f | %.2f | %.2f |\n",
           s->name, measured, s->family.at.count, spearman(&s->whole), spearman(&s->family), spearman(&s->kernel),
           off(&s->kernel), place(s), s->families->list.count - 1, cheaper, s->winner.us, s->first_us / s->winner.us,
           cheapest.us / s->winner.us);
}

static void study_one(const job *j, ef_store *store, const char *path)
{
    ef_diag diag = {0};
    ef_ctx *ctx = ef_ctx_new();
    ef_program *program = ef_program_read(ctx, path, &diag);
    ef_families_options options = {.saturation_s = SEARCH_S,
                                   .extraction_s = SEARCH_S,
                                   .keep = KEEP,
                                   .backend = j->target->gpu ? EF_BACKEND_TRITON : EF_BACKEND_C,
                                   .threads = j->target->gpu ? 0 : (uint32_t)sysconf(_SC_NPROCESSORS_ONLN),
                                   .target = j->target->name};
    char hash[33];
    if (program)
        ef_canonical_hash(program, hash);
    if (program && ef_store_count(store, hash, j->device) > 0) {
        study s = {.kernels = j->kernels, .seen = ef_intern_new()};
        const char *slash = strrchr(path, '/');
        s.name = slash ? slash + 1 : path;
        s.families = ef_families_new(program, &options, &diag);
        if (s.families)
            read_store(&s, program, store, j->device);
        if (s.families && s.winner.us > 0 && !j->kernels)
            print_row(&s);
        fflush(stdout);
        ef_families_free((ef_families *)s.families);
        ef_intern_free(s.seen);
        ef_vec_free(&s.whole.at);
        ef_vec_free(&s.kernel.at);
        ef_vec_free(&s.family.at);
    }
    if (diag.text[0])
        fprintf(stderr, "bench_rank: %s: %s\n", path, diag.text);
    ef_program_free(program);
    ef_ctx_free(ctx);
}

static void run(void *user)
{
    job *j = user;
    ef_diag note = {0};
    ef_store *store = ef_store_open(j->store, &note);
    if (note.text[0]) {
        fprintf(stderr, "bench_rank: %s\n", note.text);
        j->status = 2;
    }
    if (!j->kernels)
        printf("| program | measured | families | rho | rho of families | rho of kernels | off | winner's family | "
               "winner's "
               "schedule | best us | first | cheapest |\n|---|---|---|---|---|---|---|---|---|---|---|---|\n");
    for (int i = 0; i < j->paths && !j->status; i++)
        study_one(j, store, j->path[i]);
    ef_store_close(store);
}

int main(int argc, char **argv)
{
    job j = {.kernels = argc > 4 && strcmp(argv[4], "-k") == 0};
    int from = 4 + j.kernels;
    j.target = argc > 2 ? ef_target_named(argv[2]) : NULL;
    if (argc <= from || !j.target || access(argv[1], R_OK) != 0) {
        fprintf(stderr, "usage: bench_rank STORE.db TARGET DEVICE [-k] FILE.ef …\n");
        return 2;
    }
    j.store = argv[1];
    j.device = argv[3];
    j.path = (const char *const *)argv + from;
    j.paths = argc - from;
    ef_with_deep_stack(run, &j);
    return j.status;
}
