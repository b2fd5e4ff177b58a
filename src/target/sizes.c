/* Sizes of tiles: see sizes.h. */
#include "target/sizes.h"

#include <math.h>

#define MOST_UNROLLED 16 /* iterations over stored parts */

ef_sizes ef_sizes_of(const ef_kgraph *g, const ef_schedule *s, const ef_kernel *k)
{
    ef_sizes z = {.g = g, .s = s, .k = k};
    for (uint32_t i = 0; i < k->loops.count && i < EF_K_MAX_LOOPS; i++) {
        uint32_t iter = k->loops.at[i].iter;
        z.trips[i] = (double)ef_sched_trips(g, s, k, iter);
        z.unrolled[i] = z.trips[i] <= 1 || (k->iters.at[iter].kind == EF_ITER_PICK && z.trips[i] <= MOST_UNROLLED);
    }
    return z;
}

double ef_padded(double extent)
{
    return exp2(ceil(log2(extent < 1 ? 1 : extent) - 1e-9));
}

double ef_extent(const ef_sizes *z, const ef_kdim *d)
{
    const ef_var *atom;
    double product = 1;
    for (unsigned i = 0, count = ef_dim_atoms(z->g->ctx, d->dim, &atom); i < count; i++)
        product *= i == 0 && d->cut != EF_NONE ? (double)ef_sched_tile(z->g, z->s, z->k, d->cut)
                                               : (double)ef_sched_var(z->g, z->s, atom[i]);
    return product;
}

double ef_elements(const ef_sizes *z, const ef_knode *n)
{
    double product = 1;
    for (unsigned d = 0; d < n->rank; d++)
        product *= ef_extent(z, &n->dim[d]);
    return product;
}

double ef_padded_extent(const ef_sizes *z, const ef_kdim *d)
{
    return ef_padded(ef_extent(z, d));
}

double ef_padded_elements(const ef_sizes *z, const ef_knode *n)
{
    double product = 1;
    for (unsigned d = 0; d < n->rank; d++)
        product *= ef_padded_extent(z, &n->dim[d]);
    return product;
}

uint32_t ef_innermost(const ef_sizes *z, const ef_knode *n, double *often)
{
    *often = 1;
    for (uint32_t i = n->loops ? z->k->loops.count : 0; i-- > 0;) {
        if (!(n->loops >> i & 1))
            continue;
        if (!z->unrolled[i])
            return i;
        *often *= z->trips[i];
    }
    return EF_K_MAX_LOOPS;
}
