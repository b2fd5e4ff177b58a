/* Many kernel graphs in one C file, so that the compiler starts once for hundreds of them. Shared by the tests that run
 * generated code. */
#ifndef EF_TESTS_BATCH_H
#define EF_TESTS_BATCH_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "codegen/verify.h"
#include "support/rng.h"

#define BATCH_THREADS 2

typedef struct {
    ef_strbuf source;
    EF_VEC(uint64_t) work; /* by program: the size of its workspace */
    ef_library *library;
} batch;

/* Prints one more program; returns its number. */
static inline unsigned batch_add(batch *b, const ef_kgraph *graph, const ef_schedule *schedule, const char *name)
{
    ef_diag diag = {0};
    char function[32];
    if (b->work.count == 0)
        ef_codegen_c_runtime(&b->source);
    snprintf(function, sizeof function, "case_%u", b->work.count);
    uint64_t work = ef_codegen_c(graph, schedule, function, &b->source, &diag);
    if (!work)
        fail_msg("%s: %s", name, diag.text);
    ef_vec_push(&b->work, work);
    return b->work.count - 1;
}

/* Without optimisation: it takes longer than what it saves in running such code. */
static inline void batch_compile(batch *b)
{
    ef_diag diag = {0};
    setenv("OMP_WAIT_POLICY", "passive", 0); /* read when the runtime is loaded with the first library */
    b->library = ef_compile(b->source.text, b->source.length, &(ef_compile_options){.level = 0}, &diag);
    if (!b->library)
        fail_msg("%s", diag.text);
}

/* The program ready to run; its workspace is the caller's to free. */
static inline ef_native batch_native(const batch *b, unsigned number)
{
    ef_diag diag = {0};
    char function[32];
    snprintf(function, sizeof function, "case_%u", number);
    /* Most run on one thread: starting others is what takes time at small sizes. */
    ef_native native = {.threads = number % 16 ? 1 : BATCH_THREADS, .work = ef_aligned(b->work.at[number])};
    native.entry = ef_library_entry(b->library, function, &diag);
    if (!native.entry)
        fail_msg("%s", diag.text);
    return native;
}

static inline void batch_free(batch *b)
{
    ef_library_free(b->library);
    ef_strbuf_free(&b->source);
    ef_vec_free(&b->work);
    *b = (batch){0};
}

/* Tile extents: 0 the default's, 1 all of one element, else random ones, some larger than any dimension. */
static inline void batch_draw_tiles(ef_schedule *s, unsigned variant, ef_rng *rng)
{
    static const uint64_t tiles[] = {1, 2, 3, 4, 8, 33, 1000};
    for (uint32_t i = 0; i < s->count && variant > 0; i++)
        s->value[i] = variant == 1 ? 1 : tiles[ef_rng_below(rng, sizeof tiles / sizeof *tiles)];
}

#endif
