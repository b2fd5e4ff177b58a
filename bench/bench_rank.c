/* How well the static ranking orders families: Spearman's correlation between their estimates and the best times that a
 * finished optimisation left in a store.
 *
 *     build/bench/bench_rank FILE.ef STORE.db [TARGET] */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "tune/canonical.h"
#include "tune/device.h"
#include "tune/families.h"
#include "tune/store.h"

#define KEEP 64u
#define SEARCH_S 20.0

typedef struct {
    double estimate, us;
    uint32_t kernels, measured;
} entry;

static void take_best(void *user, const ef_store_result *result)
{
    entry *e = user;
    e->measured++;
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
                       entry *all)
{
    char hash[33];
    uint32_t count = 0;
    ef_canonical_hash(program, hash);
    for (uint32_t i = 1; i < families->list.count; i++) { /* the program itself has no estimate */
        const ef_family *f = &families->list.at[i];
        entry e = {.estimate = f->estimate, .kernels = f->graph->kernels.count};
        ef_store_results(store, hash, identity, f->hash, take_best, &e);
        if (ef_family_wide_hash(f) != f->hash)
            ef_store_results(store, hash, identity, ef_family_wide_hash(f), take_best, &e);
        if (e.us > 0)
            all[count++] = e;
    }
    return count;
}

static int run(const char *path, const char *store_path, const char *target)
{
    ef_diag diag = {0};
    ef_device device;
    char identity[600];
    ef_ctx *ctx = ef_ctx_new();
    ef_program *program = ef_program_read(ctx, path, &diag);
    if (!program || !ef_device_find(target, NULL, 0, &device, &diag) ||
        !device.identity(&device, identity, sizeof identity, &diag)) {
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
    uint32_t count = families ? gather(program, families, store, identity, all) : 0;
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
    if (argc != 3 && argc != 4) {
        fprintf(stderr, "usage: bench_rank FILE.ef STORE.db [TARGET]\n");
        return 2;
    }
    return run(argv[1], argv[2], argc == 4 ? argv[3] : "cpu");
}
