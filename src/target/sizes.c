/* Sizes of tiles: see sizes.h. */
#include "target/sizes.h"

#include <math.h>

#define MOST_UNROLLED 16 /* iterations over stored parts */

static bool has_dim(const ef_knode *n, unsigned d)
{
    return d < n->rank && n->dim[d].dim != EF_UNIT;
}

/* Pads one of the dimensions that are rows, columns or terms of a product, so that all of them together are enough: the
 * last one that is given. */
static void widen(ef_sizes *z, const ef_kdim *const *dim, unsigned count)
{
    double size = 1;
    for (unsigned i = 0; i < count; i++)
        size *= ef_padded_extent(z, dim[i]);
    if (count == 0 || size >= EF_LEAST_DOT || z->wide == EF_MOST_WIDE)
        return;
    z->pad[z->wide] = ef_padded_extent(z, dim[count - 1]) * EF_LEAST_DOT / size;
    z->widened[z->wide++] = *dim[count - 1];
}

static void widen_product(ef_sizes *z, const ef_knode *n)
{
    const ef_knode *operand[2] = {ef_kernel_node(z->k, n->child[0]), ef_kernel_node(z->k, n->child[1])};
    for (unsigned side = 0; side < 2; side++) { /* what one operand has alone is rows or columns */
        const ef_kdim *dim[EF_MAX_RANK];
        unsigned count = 0, own = 1 - side;
        for (unsigned d = n->rank; d-- > 2;)
            if (has_dim(operand[side], d) && !has_dim(operand[!side], d))
                dim[count++] = &n->dim[d];
        if (has_dim(n, own))
            dim[count++] = &n->dim[own];
        widen(z, dim, count);
    }
    const ef_kdim *inner = &operand[0]->dim[0];
    widen(z, &inner, inner->dim != EF_UNIT);
}

ef_sizes ef_sizes_of(const ef_kgraph *g, const ef_schedule *s, uint32_t kernel)
{
    const ef_kernel *k = g->kernels.at[kernel];
    ef_sizes z = {.g = g, .s = s, .k = k};
    for (uint32_t i = 0; i < k->loops.count && i < EF_K_MAX_LOOPS; i++) {
        uint32_t iter = k->loops.at[i].iter;
        z.trips[i] = (double)ef_sched_trips(g, s, k, iter);
        z.unrolled[i] = z.trips[i] <= 1 || (k->iters.at[iter].kind == EF_ITER_PICK && z.trips[i] <= MOST_UNROLLED);
    }
    for (ef_kid id = 0; id < ef_kernel_nodes(k) && ef_sched_value(g, s, kernel, EF_PARAM_UNIT) != 0; id++) {
        const ef_knode *n = ef_kernel_node(k, id);
        if (n->op == EF_TILE_MATMUL && (has_dim(n, 0) || n->rank > 2))
            widen_product(&z, n);
    }
    return z;
}

double ef_padded(double extent)
{
    int exponent;
    double part = frexp(extent < 1 ? 1 : extent, &exponent); /* from a half on, below one */
    return ldexp(1, part <= 0.5 * (1 + 1e-9) ? exponent - 1 : exponent);
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
    for (unsigned i = 0; i < z->wide; i++)
        if (z->widened[i].dim == d->dim && z->widened[i].cut == d->cut)
            return z->pad[i];
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
