/* Sizes of a kernel's tiles under a schedule. Private to src/target. */
#ifndef EF_TARGET_SIZES_H
#define EF_TARGET_SIZES_H

#include "kernel/schedule.h"

typedef struct {
    const ef_kgraph *g;
    const ef_schedule *s;
    const ef_kernel *k;
    double trips[EF_K_MAX_LOOPS];  /* by loop */
    bool unrolled[EF_K_MAX_LOOPS]; /* it has one iteration, or few over stored parts: they stand in the loop around */
} ef_sizes;

/* All three must outlive it. */
ef_sizes ef_sizes_of(const ef_kgraph *graph, const ef_schedule *schedule, const ef_kernel *kernel);

/* The next power of two: tiles of Triton are such. */
double ef_padded(double extent);
/* Elements along a dimension of a tile, and of a node's tile; padded: with each dimension padded. */
double ef_extent(const ef_sizes *z, const ef_kdim *dim);
double ef_elements(const ef_sizes *z, const ef_knode *node);
double ef_padded_extent(const ef_sizes *z, const ef_kdim *dim);
double ef_padded_elements(const ef_sizes *z, const ef_knode *node);

/* The innermost loop that is printed as one in which a node stands, EF_K_MAX_LOOPS: none. often: how many times it
 * stands in an iteration of that. */
uint32_t ef_innermost(const ef_sizes *z, const ef_knode *node, double *often);

#endif
