/* How well the static ranking orders families: Spearman's correlation between their estimates and the best times that a
 * finished optimisation left in a store.
 *
 *     build/bench/bench_rank FILE.ef STORE.db [TARGET [DEVICE [kernels]]]
 *
 * DEVICE: how the store calls the device that measured, where that is another one than this machine's. With "kernels",
 * also what each kernel cost by estimate and took, under every schedule of which the store knows that. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include <jansson.h>

#include "target/cost.h"
#include "tune/canonical.h"
#include "tune/device.h"
#include "tune/families.h"
#include "tune/store.h"

#define KEEP 256u
#define SEARCH_S 20.0

typedef struct {
    double estimate, us;
    uint32_t kernels, measured;
    const ef_family *family; /* whose kernels are printed, or NULL */
} entry;

/* What each kernel costs by estimate under a schedule, beside what it took. */
static void print_kernels(const ef_family *f, const ef_store_result *result)
{
    json_t *took = json_loads(result->kernel_us, 0, NULL);
    uint32_t *choice = ef_xcalloc(f->graph->params.count + 1, sizeof *choice);
    if (json_array_size(took) == f->graph->kernels.count && ef_family_parse(f, result->schedule, choice)) {
        ef_schedule schedule = ef_family_schedule(f, choice);
        for (uint32_t k = 0; k < f->graph->kernels.count; k++) {
            ef_cost *cost = ef_cost_new(f->graph, k, f->target);
            printf("kernel %016" PRIx64 " %" PRIu32 " %.1f %.1f %s\n", f->hash, k, ef_cost_us(cost, &schedule, NULL),
                   json_number_value(json_array_get(took, k)), result->schedule);
            ef_cost_free(cost);
        }
        ef_schedule_free(&schedule);
    }
    json_decref(took);
    free(choice);
}

static void take_best(void *user, const ef_store_result *result)
{
    entry *e = user;
    e->measured++;
    if (e->family)
        print_kernels(e->family, result);
    if (result->us > 0 && (e->us <= 0 || result->us < e->us))
        e->us = result->us;
}

/* The mean rank of equals. */
static double rank_of(const entry *all, uint32_t count, uint32_t at, bool measured)
{
    double mine = measured ? all[at].us : all[at].estimate, below = 0, equal = 0;
    for (uint32_t i = 0; i < count; i++) {
        double other = measured ? all[i].us : all[i].estimate;
        below += other < mine;
        equal += other == mine;
    }
    return below + (equal + 1) / 2;
}

/* Pearson's correlation of the ranks. */
static double spearman(const entry *all, uint32_t count)
{
    double mean = (count + 1) / 2.0, product = 0, a = 0, b = 0;
    for (uint32_t i = 0; i < count; i++) {
        double x = rank_of(all, count, i, false) - mean, y = rank_of(all, count, i, true) - mean;
        product += x * y;
        a += x * x;
        b += y * y;
    }
    return a > 0 && b > 0 ? product / sqrt(a * b) : 0;
}

static uint32_t gather(const ef_program *program, const ef_families *families, ef_store *store, const char *identity,
                       bool kernels, entry *all)
{
    char hash[33];
    uint32_t count = 0;
    ef_canonical_hash(program, hash);
    for (uint32_t i = 1; i < families->list.count; i++) { /* the program itself has no estimate */
        const ef_family *f = &families->list.at[i];
        entry e = {.estimate = f->estimate, .kernels = f->graph->kernels.count, .family = kernels ? f : NULL};
        ef_store_results(store, hash, identity, f->hash, take_best, &e);
        if (ef_family_wide_hash(f) != f->hash)
            ef_store_results(store, hash, identity, ef_family_wide_hash(f), take_best, &e);
        if (e.us > 0)
            all[count++] = e;
    }
    return count;
}

static int run(const char *path, const char *store_path, const char *target, const char *told, bool kernels)
{
    ef_diag diag = {0};
    ef_device device;
    char identity[600];
    ef_ctx *ctx = ef_ctx_new();
    ef_program *program = ef_program_read(ctx, path, &diag);
    if (!program || !ef_device_find(target, NULL, 0, &device, &diag) ||
        !(told ? snprintf(identity, sizeof identity, "%s", told) > 0
               : device.identity(&device, identity, sizeof identity, &diag))) {
        fprintf(stderr, "bench_rank: %s\n", diag.text);
        return 2;
    }
    ef_families_options options = {.saturation_s = SEARCH_S,
                                   .extraction_s = SEARCH_S,
                                   .keep = KEEP,
                                   .backend = device.backend,
                                   .threads = device.threads,
                                   .target = device.name};
    ef_families *families = ef_families_new(program, &options, &diag);
    ef_store *store = ef_store_open(store_path, &diag);
    entry *all = ef_xcalloc(families ? families->list.count + 1 : 1, sizeof *all);
    uint32_t count = families ? gather(program, families, store, identity, kernels, all) : 0;
    printf("%s: %u families measured\n  kernels  estimate us  best us  measured\n", path, count);
    for (uint32_t i = 0; i < count; i++)
        printf("  %7u  %11.1f  %7.1f  %8u\n", all[i].kernels, all[i].estimate, all[i].us, all[i].measured);
    printf("Spearman's rank correlation: %.2f\n", spearman(all, count));
    free(all);
    ef_store_close(store);
    ef_families_free(families);
    ef_program_free(program);
    ef_ctx_free(ctx);
    return 0;
}

int main(int argc, char **argv)
{
    if (argc < 3 || argc > 6) {
        fprintf(stderr, "usage: bench_rank FILE.ef STORE.db [TARGET [DEVICE [kernels]]]\n");
        return 2;
    }
    return run(argv[1], argv[2], argc > 3 ? argv[3] : "cpu", argc > 4 ? argv[4] : NULL, argc > 5);
}
