/* What a kernel does as products of tile extents, private to rank*.c: linear terms in the logarithms of the extents. */
#ifndef EF_TARGET_RANK_TERMS_H
#define EF_TARGET_RANK_TERMS_H

#include "kernel/kernel.h"
#include "target/target.h"

#define EF_RANK_PARAMS 192u /* of a graph, at most */

/* constant + sum of factor[p] * log(extent of parameter p) */
typedef struct {
    double constant;
    float factor[EF_RANK_PARAMS];
} ef_term;

/* What terms count. The times are in microseconds at the rate that bounds them, room is a part of what there is. */
typedef enum {
    EF_BOUND_MEMORY,     /* bytes between the kernel and memory */
    EF_BOUND_CACHE,      /* all bytes that blocks load and store */
    EF_BOUND_PRODUCTS,   /* on the matrix unit, or where it does not pay, outside of it */
    EF_BOUND_VECTOR,     /* other arithmetic */
    EF_BOUND_UNIT_LOADS, /* the same for one block on one unit */
    EF_BOUND_UNIT_WORK,
    EF_BOUND_ROOM, /* of one unit, for what a block holds at a time */
    EF_BOUNDS
} ef_bound;

typedef struct {
    ef_bound bound;
    ef_term log; /* the logarithm of what is counted */
} ef_charge;

typedef struct {
    ef_charge *at;
    uint32_t count, capacity;
} ef_charges;

/* Adds all charges of a kernel. */
void ef_rank_charges(const ef_kgraph *graph, uint32_t kernel, const ef_target *target, ef_charges *out);

#endif
