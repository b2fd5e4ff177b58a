/* evaluate FILE NAME=N,... SEED OUT: evaluates a program in float64 on random inputs, for tests in Python to compare
 * with. OUT gets every input and then every output: rank, extents (uint64) and elements (double), in native order.
 * Inputs are normal, rounded to float16, so that no type changes them; integers are small, bools random. Matrices after
 * the first input are weights, most likely: they are scaled down by their rows, or products would leave float16. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ir/eval.h"
#include "support/rng.h"

typedef struct {
    uint64_t seed;
    const ef_ctx *ctx;
    FILE *out;
} writer;

static void write_tensor(FILE *out, const ef_tensor *t)
{
    uint64_t rank = t->rank, elements = 1;
    fwrite(&rank, sizeof rank, 1, out);
    fwrite(t->extent, sizeof *t->extent, t->rank, out);
    for (unsigned d = 0; d < t->rank; d++)
        elements *= t->extent[d];
    fwrite(t->data, sizeof *t->data, elements, out);
}

static void draw(void *user, uint32_t input, ef_tensor *t)
{
    const writer *w = user;
    ef_rng rng = {w->seed * 1000 + input};
    ef_dtype dtype = (ef_dtype)ef_type_at(w->ctx, ef_input_type(w->ctx, input))->dtype;
    uint64_t elements = 1;
    double scale = 1; /* a power of two, which rounds nothing */
    for (unsigned d = 0; d < t->rank; d++)
        elements *= t->extent[d];
    while (input > 0 && t->rank == 2 && scale * scale * (double)t->extent[0] > 1)
        scale /= 2;
    for (uint64_t i = 0; i < elements; i++)
        t->data[i] = dtype == EF_BOOL            ? (double)ef_rng_below(&rng, 2)
                     : !ef_dtype_is_float(dtype) ? (double)ef_rng_below(&rng, 8)
                                                 : round(ef_rng_normal(&rng) * 64) / 64 * scale;
}

static int fail(const char *message)
{
    fprintf(stderr, "%s\n", message);
    return 2;
}

int main(int argc, char **argv)
{
    ef_diag diag = {0};
    ef_ctx *ctx = ef_ctx_new();
    if (argc != 5)
        return fail("usage: evaluate FILE NAME=N,... SEED OUT");
    ef_program *program = ef_program_read(ctx, argv[1], &diag);
    if (!program)
        return fail(diag.text);
    for (char *dim = strtok(argv[2], ","); dim; dim = strtok(NULL, ",")) {
        ef_var var = ef_var_find(ctx, dim, (unsigned)strcspn(dim, "="));
        if (var == EF_NONE || !strchr(dim, '='))
            return fail("no such dimension");
        ef_var_resize(ctx, var, strtoull(strchr(dim, '=') + 1, NULL, 10));
    }
    writer w = {strtoull(argv[3], NULL, 10), ctx, NULL};
    /* Inputs are roots too, so that they are written as they were drawn. */
    uint32_t count = program->inputs + program->outputs;
    ef_arena *arena = ef_arena_new();
    ef_expr *roots = ef_arena_alloc(arena, count * sizeof *roots);
    for (uint32_t i = 0; i < program->inputs; i++)
        roots[i] = ef_dag_input(program->dag, program->input[i]);
    for (uint32_t i = 0; i < program->outputs; i++)
        roots[program->inputs + i] = program->output[i].expr;
    ef_evaluation *values = ef_evaluate(program->dag, roots, count, NULL, draw, &w, 0, &diag);
    if (!values)
        return fail(diag.text);
    w.out = fopen(argv[4], "wb");
    if (!w.out)
        return fail("cannot write");
    for (uint32_t i = 0; i < count; i++)
        for (uint32_t k = 0; k < ef_evaluation_count(values, i); k++)
            write_tensor(w.out, ef_evaluation_at(values, i, k));
    ef_evaluation_free(values);
    ef_program_free(program);
    ef_ctx_free(ctx);
    ef_arena_free(arena);
    return fclose(w.out) != 0;
}
