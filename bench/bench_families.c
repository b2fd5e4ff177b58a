/* The families of a program in the order of the static ranking, each under its first schedule: what the ranking expects
 * of it and of its kernels, and its code. For work on rankings and first schedules without the device.
 *
 *     build/bench/bench_families FILE.ef TARGET [FOLDER [FAMILIES]] */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "target/room.h"
#include "tune/device.h"
#include "tune/families.h"

#define KEEP 64u
#define SEARCH_S 20.0

static void write_file(const char *folder, uint32_t number, const char *text)
{
    char path[1024];
    snprintf(path, sizeof path, "%s/f%03" PRIu32 ".py", folder, number);
    FILE *file = fopen(path, "w");
    if (!file)
        return;
    fputs(text, file);
    fclose(file);
}

static void show(const ef_device *device, const ef_family *f, uint32_t number, const char *folder)
{
    ef_diag diag = {0};
    ef_strbuf source = {0};
    bool printed = device->print(f->graph, &f->schedule, "ef_candidate", &source, &diag);
    printf("%4" PRIu32 " %016" PRIx64 " %9.1f us, %" PRIu32 " kernels:", number, f->hash, f->estimate,
           f->graph->kernels.count);
    for (uint32_t k = 0; k < f->graph->kernels.count; k++)
        printf(" %.1f%s", f->kernel_estimate[k],
               f->target && !ef_room_fits(f->graph, &f->schedule, k, f->target) ? " (no room)" : "");
    printf("%s%s\n", printed ? "" : "; ", printed ? "" : diag.text);
    if (printed && folder)
        write_file(folder, number, source.text);
    ef_strbuf_free(&source);
}

int main(int argc, char **argv)
{
    if (argc < 3 || argc > 5) {
        fprintf(stderr, "usage: bench_families FILE.ef TARGET [FOLDER [FAMILIES]]\n");
        return 2;
    }
    ef_diag diag = {0};
    ef_device device;
    ef_ctx *ctx = ef_ctx_new();
    ef_program *program = ef_program_read(ctx, argv[1], &diag);
    if (!program || !ef_device_find(argv[2], NULL, 0, &device, &diag)) {
        fprintf(stderr, "bench_families: %s\n", diag.text);
        return 2;
    }
    ef_families_options options = {.saturation_s = SEARCH_S,
                                   .extraction_s = SEARCH_S,
                                   .keep = argc > 4 ? (uint32_t)strtoul(argv[4], NULL, 10) : KEEP,
                                   .backend = device.backend,
                                   .threads = device.threads,
                                   .target = device.name};
    ef_families *families = ef_families_new(program, &options, &diag);
    if (!families) {
        fprintf(stderr, "bench_families: %s\n", diag.text);
        return 1;
    }
    for (uint32_t i = 0; i < families->list.count; i++)
        show(&device, &families->list.at[i], i, argc > 3 ? argv[3] : NULL);
    ef_families_free(families);
    ef_program_free(program);
    ef_ctx_free(ctx);
    return 0;
}
