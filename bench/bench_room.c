/* What the room model (target/room.h) says of drawn schedules, beside the modules for which a compiler can say what
 * they need: bench_room.py compiles them.
 *
 *     build/bench/bench_room FILE.ef TARGET FOLDER [FAMILIES [DRAWS]]
 *
 * Of each family the first schedule and DRAWS others are written to FOLDER, and a line a kernel to standard output:
 * module, kernel, 1 when it has room, bytes of shared memory, of registers, of registers at most. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "support/rng.h"
#include "target/room.h"
#include "tune/device.h"
#include "tune/families.h"

#define KEEP 8u
#define DRAWS 4u
#define SEARCH_S 10.0
#define CHANGED 4u /* of so many parameters, one is drawn */

static bool write_module(const ef_device *device, const ef_family *f, const ef_schedule *schedule, const char *path)
{
    ef_diag diag = {0};
    ef_strbuf source = {0};
    bool fine = device->print(f->graph, schedule, "ef_candidate", &source, &diag);
    FILE *file = fine ? fopen(path, "w") : NULL;
    if (file)
        fputs(source.text, file);
    else
        printf("%s refused %s\n", path, diag.text);
    if (file)
        fclose(file);
    ef_strbuf_free(&source);
    return file != NULL;
}

static void show(const ef_device *device, const ef_family *f, const ef_schedule *schedule, const char *path)
{
    if (!write_module(device, f, schedule, path))
        return;
    for (uint32_t k = 0; k < f->graph->kernels.count; k++) {
        ef_room room = ef_room_of(f->graph, schedule, k, f->target);
        printf("%s %" PRIu32 " %d %.0f %.0f %.0f\n", path, k, ef_room_fits(f->graph, schedule, k, f->target),
               room.shared, room.registers, room.register_room);
    }
}

int main(int argc, char **argv)
{
    if (argc < 4 || argc > 6) {
        fprintf(stderr, "usage: bench_room FILE.ef TARGET FOLDER [FAMILIES [DRAWS]]\n");
        return 2;
    }
    ef_diag diag = {0};
    ef_device device;
    ef_ctx *ctx = ef_ctx_new();
    ef_program *program = ef_program_read(ctx, argv[1], &diag);
    if (!program || !ef_device_find(argv[2], NULL, 0, &device, &diag)) {
        fprintf(stderr, "bench_room: %s\n", diag.text);
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
        fprintf(stderr, "bench_room: %s\n", diag.text);
        return 1;
    }
    uint32_t draws = argc > 5 ? (uint32_t)strtoul(argv[5], NULL, 10) : DRAWS;
    ef_rng rng = {1};
    for (uint32_t i = 0; i < families->list.count; i++)
        for (uint32_t d = 0; d <= draws; d++) {
            const ef_family *f = &families->list.at[i];
            char path[1024];
            ef_schedule schedule = ef_schedule_copy(&f->schedule);
            for (uint32_t p = 0; p < schedule.count && d > 0; p++)
                if (ef_rng_below(&rng, CHANGED) == 0)
                    schedule.value[p] = f->domain[p][ef_rng_below(&rng, f->values[p])];
            snprintf(path, sizeof path, "%s/f%03" PRIu32 "_%" PRIu32 ".py", argv[3], i, d);
            show(&device, f, &schedule, path);
            ef_schedule_free(&schedule);
        }
    ef_families_free(families);
    ef_program_free(program);
    ef_ctx_free(ctx);
    return 0;
}
