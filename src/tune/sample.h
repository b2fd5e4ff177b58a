/* A sample of a program's outputs: some positions along its independent dimensions (ir/independent.h), and the program
 * that computes just these. Exact results of a large program cost minutes; those of a sample are as exact, at the
 * program's own sizes, and cost as little as is wanted. The first and the last position are always among them. */
#ifndef EF_TUNE_SAMPLE_H
#define EF_TUNE_SAMPLE_H

#include "ir/expr.h"

/* A dimension that is sampled: `count` of its positions, ascending. */
typedef struct {
    const char *name;
    uint64_t extent, count;
    const uint64_t *at;
} ef_sample_dim;

#define EF_SAMPLE_DIMS 16u

/* No dimensions: all outputs are in it. */
typedef struct {
    uint32_t dims;
    ef_sample_dim dim[EF_SAMPLE_DIMS];
    double share;       /* of the program's work that the sample takes */
    double seconds;     /* that its exact results should take, roughly, on processors that nobody else wants */
    const char *prefix; /* of the names of inputs that say positions; the program has none of that kind */
    ef_arena *arena;
} ef_sample;

/* A sample whose exact results take some `seconds` on `threads` processors, or as little as there can be. */
ef_sample ef_sample_choose(const char *text, size_t length, double seconds, uint32_t threads, uint64_t seed,
                           ef_diag *diag);
void ef_sample_free(ef_sample *sample);

/* The program of the sample, from the text of the whole one, in a context of its own; `wide`: with every float an f64.
 * Its inputs are the program's, sampled; after them come, as ef_sample_position says, positions that it must be told.
 */
ef_program *ef_sample_program(const ef_sample *sample, ef_ctx *ctx, const char *text, size_t length, bool wide,
                              ef_diag *diag);
/* The dimension whose positions are the input of this name; NULL: it is one of the program's. */
const ef_sample_dim *ef_sample_position(const ef_sample *sample, const char *input);

/* Copies what the sample has of a tensor with elements of so many bytes. `type`: of the whole tensor. */
void ef_sample_gather(const ef_sample *sample, const ef_ctx *ctx, ef_type type, unsigned bytes, const void *from,
                      void *to);

#endif
