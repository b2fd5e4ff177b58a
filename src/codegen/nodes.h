/* What every code generator asks about nodes: who uses them, and the type in which operands meet. */
#ifndef EF_CODEGEN_NODES_H
#define EF_CODEGEN_NODES_H

#include "kernel/kernel.h"

typedef struct {
    bool needed;    /* by what the kernel stores */
    unsigned users; /* among the needed nodes, stores and loops (of the new states); twice when it is used twice */
    ef_kid user;    /* the last one; EF_NONE: a store */
} ef_use;

/* By node of the kernel; the caller frees it. */
ef_use *ef_uses_new(const ef_kernel *kernel);

/* An operand in generated code: a literal number, or a value of a type. Types are numbers, wider ones larger, integers
 * before floats. */
typedef struct {
    bool literal;
    double value;
    unsigned type;
} ef_operand;

/* The type in which operands meet: literals take the others' type, unless they are no whole numbers. `integer`, `real`:
 * the narrowest of each kind. */
unsigned ef_operands_meet(const ef_operand *operand, unsigned count, unsigned integer, unsigned real);

#endif
