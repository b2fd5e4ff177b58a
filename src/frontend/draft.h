/* Drafts: a tensor-level graph of IR operators whose dimensions are still slots (dims.h).
 *
 * Lowering builds a draft of the whole graph, operator by operator. Each builder infers the shape of its result and
 * unifies the dimensions that its operands must share. Where two must stay apart (queries and keys of one sequence), an
 * operand gets other dimension names: it is RENAMED, which is a reshape to dimensions of the same sizes; what is made
 * of numbers and iota alone is built anew instead. Once the draft is complete, regions.c turns parts of it into
 * programs.
 *
 * Dimension indices count from the last, as in op.h; lists of sizes stand outermost first, as in PyTorch. Builders
 * return EF_NONE when the IR cannot hold the result (more than 8 dimensions, an empty or too large tensor), and take
 * EF_NONE for an operand: then the result is EF_NONE too, so calls nest without checks. */
#ifndef EF_FRONTEND_DRAFT_H
#define EF_FRONTEND_DRAFT_H

#include "frontend/dims.h"
#include "ir/op.h"
#include "support/vec.h"

typedef uint32_t ef_dn; /* a node of a draft */

typedef struct {
    uint8_t op, dtype, rank, count; /* ef_op, ef_dtype */
    bool made;                      /* of numbers and iota alone */
    bool uniform;                   /* one number everywhere: `number` */
    double number;
    uint64_t attr; /* as in op.h; INPUT: the caller's number; RESHAPE, BROADCAST, IOTA: nothing, `dim` tells */
    ef_slot dim[EF_MAX_RANK];
    ef_dn child[EF_MAX_FIELDS];
} ef_dnode;

typedef struct {
    ef_slots *slots;
    EF_VEC(ef_dnode) nodes; /* operands before what uses them */
} ef_draft;

ef_draft *ef_draft_new(void);
void ef_draft_free(ef_draft *draft);

uint64_t ef_dn_size(const ef_draft *draft, ef_dn node, unsigned index);
uint64_t ef_dn_elements(const ef_draft *draft, ef_dn node);

ef_dn ef_dn_input(ef_draft *draft, uint64_t number, ef_dtype dtype, const int64_t *size, unsigned rank);
ef_dn ef_dn_number(ef_draft *draft, double value);
ef_dn ef_dn_iota(ef_draft *draft, uint64_t size);
/* One number in every element of a tensor. */
ef_dn ef_dn_full(ef_draft *draft, double value, ef_dtype dtype, const int64_t *size, unsigned rank);
ef_dn ef_dn_unary(ef_draft *draft, ef_op op, ef_dn x);
ef_dn ef_dn_binary(ef_draft *draft, ef_op op, ef_dn a, ef_dn b);
ef_dn ef_dn_with(ef_draft *draft, ef_op op, ef_dn a, double b); /* op(a, number) */
ef_dn ef_dn_from(ef_draft *draft, ef_op op, double a, ef_dn b); /* op(number, b) */
ef_dn ef_dn_select(ef_draft *draft, ef_dn condition, ef_dn a, ef_dn b);
/* Another element type. Between f16, bf16 and f32 nothing happens, since arithmetic is that of real numbers, unless f32
 * becomes narrower: then the type says what products read and what is stored. A region's results get their types where
 * they leave it. */
ef_dn ef_dn_cast(ef_draft *draft, ef_dtype dtype, ef_dn x);
/* A cast that stands in the program even then. */
ef_dn ef_dn_exact_cast(ef_draft *draft, ef_dtype dtype, ef_dn x);
/* Any pointwise operator. */
ef_dn ef_dn_apply(ef_draft *draft, ef_op op, uint64_t attr, const ef_dn *operands, unsigned count);
ef_dn ef_dn_matmul(ef_draft *draft, ef_dn a, ef_dn b);
/* Along one dimension, which stays as 1. `reducer`: EF_RED_SUM, … (reducer.h). */
ef_dn ef_dn_reduce(ef_draft *draft, uint32_t reducer, unsigned index, ef_dn x);
ef_dn ef_dn_reshape(ef_draft *draft, ef_dn x, const int64_t *size, unsigned rank);
/* from[i]: the dimension of x, outermost first, that becomes dimension i. */
ef_dn ef_dn_permute(ef_draft *draft, ef_dn x, const unsigned *from);
ef_dn ef_dn_swap(ef_draft *draft, ef_dn x, unsigned a, unsigned b); /* indices from the last */
ef_dn ef_dn_slice(ef_draft *draft, ef_dn x, unsigned index, uint64_t start, uint64_t stop);
ef_dn ef_dn_concat(ef_draft *draft, unsigned index, const ef_dn *x, unsigned count);
ef_dn ef_dn_broadcast(ef_draft *draft, ef_dn x, const int64_t *size, unsigned rank);

/* draft_concat.c: positions start to stop of what was concatenated, as a part of one operand; the reduction of it as
 * reductions of the operands. EF_NONE when x is no such thing, or when it is better left alone. */
ef_dn ef_dn_part(ef_draft *draft, ef_dn x, unsigned index, uint64_t start, uint64_t stop);
ef_dn ef_dn_reduce_parts(ef_draft *draft, uint32_t reducer, unsigned index, ef_dn x);

/* draft_known.c: x itself, or one number everywhere where all elements are known to be that. */
ef_dn ef_dn_known(ef_draft *draft, ef_dn x);
/* Whether x is known to be 0, 1, 2, … along one dimension, *index, and has no other. */
bool ef_dn_counts(const ef_draft *draft, ef_dn x, unsigned *index);
/* Whether a mask is known to leave something in every row: truth, or a number above minus infinity. It may be false of
 * masks that do. */
bool ef_dn_rows_seen(const ef_draft *draft, ef_dn mask);

#endif
