/* What programs do with positions and elements, found by looking at their operators.
 *
 * Dimensions along which a program computes each position by itself. A piece of the outputs then needs only that piece
 * of the inputs: references of large programs are computed piece by piece, or of a sample of positions. */
#ifndef EF_IR_INDEPENDENT_H
#define EF_IR_INDEPENDENT_H

#include "ir/expr.h"

/* By expression: whether the outputs need it. Freed by the caller. */
bool *ef_program_needed(const ef_program *program);
/* Where the variable alone is a dimension of the type, from the first; -1 nowhere, -2 not so simple. */
int ef_independent_place(const ef_ctx *ctx, ef_type type, ef_var var);
/* Whether no operator mixes positions along the variable, and all outputs have it. `indexed`: a position may also know
 * which one it is (iota), so pieces must be told. */
bool ef_independent(const ef_program *program, const bool *needed, ef_var var, bool indexed);

/* Bits: the inputs, the first 64 at most, whose elements are added up as they are or as a pointwise function of them,
 * with no product in between: a mean, a variance, a norm. What they have in common may cancel there, or be lost. */
uint64_t ef_program_summed(const ef_program *program);

/* By input of the program: along which dimension of its own it is contracted as a weight, EF_UNIT when it is none.
 * Weights are matrices that are the second operand of a product, as they are, as a pointwise function of them, or as
 * the first factor of a product that is; a cache of keys (more dimensions) is none. `fan_in`: one an input. */
void ef_program_fan_in(const ef_program *program, ef_dim *fan_in);

#endif
