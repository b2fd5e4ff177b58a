/* What stands between memory and a product on the matrix unit, in the loop of the product: which loads, and what is
 * computed of them. Private to src/target.
 *
 * Compilers (Triton) load such an operand from shared memory into the registers of the warps that multiply it and
 * compute there, so each warp that shares rows or columns with others does so for itself. A load that is used in
 * another way as well, in a sum for example, lies in shared memory as it came, its rows in the same banks. */
#ifndef EF_TARGET_OPERANDS_H
#define EF_TARGET_OPERANDS_H

#include "kernel/kernel.h"
#include "support/vec.h"

typedef EF_VEC(ef_kid) ef_kids;

typedef struct {
    ef_kid product;
    unsigned side; /* 0: rows, 1: columns */
    ef_kids work;  /* pointwise nodes, each once */
    ef_kids loads;
    ef_kids shared; /* of the loads: those that are used in another way as well */
    bool derived;   /* of another product or a sum too: threads have that already */
} ef_operand;

typedef struct {
    EF_VEC(ef_operand) list;
} ef_operands;

/* Both operands of each product that is `needed` (by node), in their order. */
void ef_operands_find(const ef_kgraph *graph, const ef_kernel *kernel, const bool *needed, ef_operands *out);
void ef_operands_free(ef_operands *operands);

#endif
