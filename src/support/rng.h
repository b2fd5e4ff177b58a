/* Random numbers: splitmix64. Deterministic from the seed on every machine. */
#ifndef EF_SUPPORT_RNG_H
#define EF_SUPPORT_RNG_H

#include <stdint.h>

typedef struct ef_rng {
    uint64_t state;
} ef_rng;

uint64_t ef_rng_next(ef_rng *rng);
/* Uniform in [0, bound); bound > 0. */
uint32_t ef_rng_below(ef_rng *rng, uint32_t bound);
/* Uniform in [0, 1). */
double ef_rng_unit(ef_rng *rng);
/* Standard normal. */
double ef_rng_normal(ef_rng *rng);

#endif
