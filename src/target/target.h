/* Device models (design, sections 7 and 8): what bounds a kernel on a device, as far as its data sheet says it.
 *
 * Rates are those of the data sheet, of dense operands, unless a comment in models.c says that they were measured:
 * estimates made from them are optimistic. */
#ifndef EF_TARGET_TARGET_H
#define EF_TARGET_TARGET_H

#include <stdint.h>

#include "ir/type.h"
#include "search/extract.h"

typedef struct {
    const char *name; /* as --target takes it */
    bool gpu;
    uint32_t units;                /* streaming multiprocessors, or processors */
    double clock;                  /* Hz, boosted */
    double memory;                 /* bytes/s of device memory */
    double cache;                  /* bytes/s of the last cache level, all units together */
    double cache_bytes;            /* of it */
    double shared_bytes;           /* of one unit: shared memory, or its own cache */
    double register_bytes;         /* of one unit */
    double unit_load;              /* bytes/s that one unit can load */
    double matrix[EF_DTYPE_COUNT]; /* FLOP/s of the matrix unit for operands of the type, 0: it has none */
    double vector;                 /* FLOP/s of multiply-adds in single precision, outside of the matrix unit */
    bool overlaps;    /* a kernel may begin while the one before it ends (compute capability 9.0 and later) */
    double launch_us; /* of one more kernel in a CUDA graph, or of one more parallel region */
} ef_target;

extern const ef_target ef_targets[];
extern const unsigned ef_target_count;

/* The model of a target; NULL when there is none of this name. */
const ef_target *ef_target_named(const char *name);
/* The same with as many units as `threads`, for a CPU; 0: as the machine has processors. */
ef_target ef_target_with_threads(const ef_target *target, uint32_t threads);
/* What extraction orders candidates by. */
ef_rates ef_target_rates(const ef_target *target);
/* Bytes that one block has for a tile, in registers or shared memory; 0: as many as there is memory. */
double ef_target_room(const ef_target *target);
/* FLOP/s of products of operands of a type, with so many rows: few rows do not fill the matrix unit. */
double ef_target_products(const ef_target *target, ef_dtype dtype, double rows);

#endif
