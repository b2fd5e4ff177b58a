/* Expressions in other words: under other dimensions, or in another context.
 *
 * A context is for one thread at a time. Who works beside others works in a copy of it, and what he made is carried
 * back when he is done. */
#ifndef EF_IR_TRANSFER_H
#define EF_IR_TRANSFER_H

#include "ir/expr.h"

/* A context in which all that there is has the same ids, and which shares no memory with this one. Several threads may
 * copy a context that none changes. */
ef_ctx *ef_ctx_copy(const ef_ctx *ctx);

/* What becomes of named dimensions: what is said here, else the one of the same name. */
typedef struct {
    const ef_ctx *from;
    ef_ctx *to; /* may be the same */
    uint32_t vars;
    const ef_var *from_var, *to_var;
} ef_renaming;

/* The attribute of an operator other than an input under the other dimensions. False when there is none: a dimension
 * has no such name there, or becomes too large. */
bool ef_attr_rename(const ef_renaming *renaming, ef_op op, uint64_t *attr);
/* The same expressions, of the same numbers, in another context. NULL and a message when an input or a named dimension
 * is not known there. */
ef_dag *ef_dag_transfer(const ef_dag *dag, ef_ctx *to, ef_diag *diag);

#endif
