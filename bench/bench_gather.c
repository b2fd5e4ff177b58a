/* What the search of a module takes, without measuring anything: the families of each region, as `equiforge optimize`
 * gets them, with the time, the memory and the best estimate of the ranking, and what its parts took.
 *
 *     build/bench/bench_gather FILE TARGET [SECONDS [FOLDER]]
 *
 * FILE is a .pt2 or .ef file, whose weights are not read; SECONDS limit saturation and extraction of a region, each
 * (60: what a budget of 5 minutes gives). FOLDER gets the program of each part. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>

#include "egraph/runner.h"
#include "frontend/module.h"
#include "support/deepstack.h"
#include "target/floor.h"
#include "target/target.h"
#include "tune/families.h"

#define KEEP 64u
#define SECONDS 60.0

typedef struct {
    const char *path, *folder;
    const ef_target *target;
    double seconds;
    int status;
} job;

static double peak_mb(void)
{
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return (double)usage.ru_maxrss / 1024;
}

/* The first one is the program itself. */
static const ef_family *best_of(const ef_families *families)
{
    const ef_family *best = NULL;
    for (uint32_t i = 1; i < families->list.count; i++) {
        const ef_family *f = &families->list.at[i];
        if (f->estimate > 0 && (!best || f->estimate < best->estimate))
            best = f;
    }
    return best;
}

static void write_part(const char *folder, uint32_t region, uint32_t number, const ef_program *program)
{
    char path[1024];
    ef_strbuf text = {0};
    snprintf(path, sizeof path, "%s/region%u_part%u.ef", folder, region, number);
    FILE *file = fopen(path, "w");
    if (!file)
        return;
    ef_program_print(program, &text);
    fputs(text.text, file);
    fclose(file);
    ef_strbuf_free(&text);
}

static void show_parts(const ef_gathered *gathered)
{
    for (uint32_t i = 0; i < gathered->searches.count; i++) {
        const ef_gathered_search *s = &gathered->searches.at[i];
        printf("    part %2u: %2u heavy, %8.1f us; %6u e-nodes, %s in %.2f s; %llu candidates%s of %llu states in %.2f "
               "s\n",
               i, s->heavy, s->estimate_us, s->enodes, ef_stop_names[s->stop], s->saturation_s,
               (unsigned long long)s->candidates,
               s->original   ? " (itself)"
               : s->complete ? ""
                             : " so far",
               (unsigned long long)s->expanded, s->extraction_s);
    }
    for (uint32_t p = 0; p < gathered->partitions.count; p++) {
        const ef_gathered_partition *q = &gathered->partitions.at[p];
        printf("    partition of at most %2u: %8.1f us; parts", q->limit, q->estimate_us);
        for (uint32_t i = 0; i < q->parts; i++)
            printf(q->search[i] == EF_NONE ? " -" : " %u", q->search[i]);
        if (q->combined)
            printf("; %.3g combinations, %llu looked at, %llu programs", q->combinations, (unsigned long long)q->built,
                   (unsigned long long)q->composed);
        printf("\n");
    }
}

static bool search_region(const job *j, uint32_t number, const ef_program *program)
{
    ef_diag diag = {0};
    ef_families_options options = {.saturation_s = j->seconds,
                                   .extraction_s = j->seconds,
                                   .keep = KEEP,
                                   .backend = EF_BACKEND_TRITON,
                                   .threads = 1,
                                   .target = j->target->name};
    double start = ef_seconds();
    ef_families *families = ef_families_new(program, &options, &diag);
    double elapsed = ef_seconds() - start;
    if (!families || diag.failed)
        fprintf(stderr, "%s: region %u: %s\n", j->path, number, diag.text);
    if (!families)
        return false;
    const ef_family *best = best_of(families);
    printf("%7u %10u %9u %11llu %9u %8.1f %9.0f %9.1f", number,
           families->gathered ? families->gathered->partitions.count : 0,
           families->gathered ? families->gathered->searches.count : 0, (unsigned long long)families->candidates,
           families->list.count, elapsed, peak_mb(), ef_floor_of(program, j->target).us);
    if (best)
        printf(" %12.1f %8u\n", best->estimate, best->graph->kernels.count);
    else
        printf(" %12s %8s\n", "", "");
    if (families->gathered)
        show_parts(families->gathered);
    for (uint32_t i = 0; j->folder && families->gathered && i < families->gathered->searches.count; i++)
        write_part(j->folder, number, i, families->gathered->searches.at[i].program);
    ef_families_free(families);
    return true;
}

static void search_module(void *user)
{
    job *j = user;
    ef_diag diag = {0};
    ef_module *module = ef_module_read(j->path, &diag);
    if (!module) {
        fprintf(stderr, "bench_gather: %s\n", diag.text);
        j->status = 2;
        return;
    }
    printf("%s: %u regions, %u external calls\n", j->path, module->regions, module->steps - module->regions);
    printf(" region partitions  searches  candidates  families  seconds   peak MB  floor us  estimate us  kernels\n");
    for (uint32_t i = 0, number = 0; i < module->steps; i++)
        if (module->step[i].kind == EF_MS_REGION && !search_region(j, number++, module->step[i].program))
            j->status = 1;
    ef_module_free(module);
}

int main(int argc, char **argv)
{
    job j = {.path = argc > 1 ? argv[1] : NULL,
             .seconds = argc > 3 ? strtod(argv[3], NULL) : SECONDS,
             .folder = argc > 4 ? argv[4] : NULL};
    j.target = argc > 2 ? ef_target_named(argv[2]) : NULL;
    if (argc < 3 || argc > 5 || !j.target || j.seconds <= 0) {
        fprintf(stderr, "usage: bench_gather FILE TARGET [SECONDS [FOLDER]]\n");
        return 2;
    }
    ef_with_deep_stack(search_module, &j);
    return j.status;
}
