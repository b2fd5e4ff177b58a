/* How much a tensor-level program has to do: for budgets, for the floor, and to know what an evaluator can afford. */
#ifndef EF_TUNE_WORK_H
#define EF_TUNE_WORK_H

#include "ir/expr.h"

typedef struct {
    double multiplications; /* in matrix products */
    double elements;        /* of all other values that the outputs need */
    double bytes;           /* of inputs and outputs: what no implementation can avoid to move */
} ef_work;

ef_work ef_work_of(const ef_program *program);
/* The bytes of a type, all fields of a tuple. */
double ef_type_bytes(const ef_ctx *ctx, ef_type type);

#endif
