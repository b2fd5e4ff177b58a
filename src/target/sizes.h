/* Sizes of a kernel's tiles under a schedule. Private to src/target. */
#ifndef EF_TARGET_SIZES_H
#define EF_TARGET_SIZES_H

#include "kernel/schedule.h"

#define EF_MOST_WIDE 12u
#define EF_LEAST_DOT 16.0 /* rows, columns and terms of a product on the matrix unit */

typedef struct {
    const ef_kgraph *g;
    const ef_schedule *s;
    const ef_kernel *k;
    double trips[EF_K_MAX_LOOPS];  /* by loop */
    bool unrolled[EF_K_MAX_LOOPS]; /* it has one iteration, or few over stored parts: they stand in the loop around */
    unsigned wide;                 /* dimensions that are padded further, in all tiles of the kernel: the matrix unit */
    ef_kdim widened[EF_MOST_WIDE]; /* takes no fewer rows, columns and terms */
    double pad[EF_MOST_WIDE];
} ef_sizes;

/* Of a kernel, by its number. Graph and schedule must outlive it. */
ef_sizes ef_sizes_of(const ef_kgraph *graph, const ef_schedule *schedule, uint32_t kernel);

/* The next power of two: tiles of Triton are such. */
double ef_padded(double extent);
/* Elements along a dimension of a tile, and of a node's tile; padded: with each dimension padded, as the kernel's
 * products want it. */
double ef_extent(const ef_sizes *z, const ef_kdim *dim);
double ef_elements(const ef_sizes *z, const ef_knode *node);
double ef_padded_extent(const ef_sizes *z, const ef_kdim *dim);
double ef_padded_elements(const ef_sizes *z, const ef_knode *node);

/* The innermost loop that is printed as one in which a node stands, EF_K_MAX_LOOPS: none. often: how many times it
 * stands in an iteration of that. */
uint32_t ef_innermost(const ef_sizes *z, const ef_knode *node, double *often);

#endif
