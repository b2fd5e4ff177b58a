/* What a tile is loaded from: stored tensors, their elements moved or put together (a history and what is appended). */
#ifndef EF_TARGET_READS_H
#define EF_TARGET_READS_H

#include "kernel/kernel.h"

#define EF_MOST_READS 8u

typedef struct {
    uint32_t buffer;
    double part; /* of the tile's elements that are this buffer's */
} ef_read;

/* The stored tensors whose elements a node has; 0: it is computed, or has those of more than EF_MOST_READS. */
unsigned ef_kernel_reads(const ef_kgraph *graph, const ef_kernel *kernel, ef_kid id, ef_read reads[EF_MOST_READS]);

#endif
