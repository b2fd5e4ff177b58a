/* Random numbers: see rng.h. Generator: Steele, Lea, Flood, "Fast splittable pseudorandom number generators". */
#include "support/rng.h"

#include <math.h>

uint64_t ef_rng_next(ef_rng *rng)
{
    uint64_t z = (rng->state += UINT64_C(0x9e3779b97f4a7c15));
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

uint32_t ef_rng_below(ef_rng *rng, uint32_t bound)
{
    return (uint32_t)(((ef_rng_next(rng) >> 32) * bound) >> 32);
}

double ef_rng_unit(ef_rng *rng)
{
    return (double)(ef_rng_next(rng) >> 11) * 0x1p-53;
}

double ef_rng_normal(ef_rng *rng)
{
    double u = 1.0 - ef_rng_unit(rng), v = ef_rng_unit(rng);
    return sqrt(-2.0 * log(u)) * cos(6.283185307179586 * v);
}
