/* The schedules of one kernel: what was tried, and what to try next. Private to the tuner; see tuner.h. */
#ifndef EF_TUNE_PROPOSE_H
#define EF_TUNE_PROPOSE_H

#include <stdbool.h>

#include "support/hash.h"
#include "support/rng.h"
#include "support/vec.h"

#define EF_TUNE_ELITE 8u

typedef struct {
    double us;      /* the mean of what was told; NAN: nothing was; INFINITY: it failed */
    uint32_t count; /* how often */
} ef_tune_time;

typedef struct {
    uint32_t params, *values, *start;
    uint32_t *scratch;                     /* a choice being made */
    double best, size;                     /* size: how many choices there are */
    ef_intern *tried;                      /* choices, asked or known: ids are points */
    EF_VEC(ef_tune_time) time;             /* by point */
    uint32_t elite[EF_TUNE_ELITE], elites; /* points, best first */
    uint32_t told;                         /* results, without failures */
    uint32_t before;                       /* the best point before the last one; UINT32_MAX: none */
} ef_tune_kernel;

/* `values`, `start`: by parameter; copied. */
ef_tune_kernel *ef_tune_kernel_new(uint32_t params, const uint32_t *values, const uint32_t *start);
void ef_tune_kernel_free(ef_tune_kernel *kernel);
/* The point of a choice. */
uint32_t ef_tune_kernel_point(ef_tune_kernel *kernel, const uint32_t *choice, int *fresh);
const uint32_t *ef_tune_kernel_choice(const ef_tune_kernel *kernel, uint32_t point);
/* A time of a point, again and again: the mean counts. INFINITY counts for points that nothing else was told of. */
void ef_tune_kernel_tell(ef_tune_kernel *kernel, uint32_t point, double us);
/* Whether everything was tried. */
bool ef_tune_kernel_dry(const ef_tune_kernel *kernel);
/* A new point, which counts as tried from now on. The kernel must not be dry. */
uint32_t ef_tune_propose(ef_tune_kernel *kernel, ef_rng *rng);
/* Another value of `old` among `values`, at least 2: a step of 1, now and then 2, or any other of a small domain. */
uint32_t ef_tune_neighbour(uint32_t old, uint32_t values, bool up, ef_rng *rng);

#endif
