/* Twins: another name for a dimension, where a tensor would have it twice (design, section 3, "Axes are named by what
 * they cut").
 *
 * The scores of self-attention have rows and columns of one sequence. As f16[s, s] nothing can cut them, since an axis
 * of s would mean both. So columns get the TWIN of s: the scores are f16[s, s'], and s' is a variable with axes of its
 * own, of the extent of s for ever. Going from one name to the other moves nothing: it is a reshape to a shape that
 * differs in names only, which the search moves towards the inputs and kernels leave out.
 *
 * Whoever builds a program from text or from a graph adds its operators through ef_twin_add, which puts such reshapes
 * where they are needed: people write s and s, and never have to write s'. */
#ifndef EF_IR_TWIN_H
#define EF_IR_TWIN_H

#include "ir/expr.h"

/* The same shape in which no variable stands twice: from the first dimension on, each one that meets itself again
 * becomes a twin. False when that cannot be (a collected dimension). */
bool ef_twin_dims(ef_ctx *ctx, ef_dim *outermost_first, unsigned rank);
/* ef_dag_add, except that operands whose dimensions differ in ' alone are made to fit, and that the dimensions of a
 * result of pointwise operators, matmul, broadcast and reshape are apart where they can be. EF_NONE and a message when
 * it is ill-typed without regard to ' too. */
ef_expr ef_twin_add(ef_dag *dag, ef_op op, uint64_t attr, const ef_expr *children, unsigned count, ef_diag *diag);
/* Whether two shapes differ in the names of variables alone: the same products of the same extents. One that is
 * reshaped to the other keeps its elements, their order, and what its dimensions are made of. */
bool ef_twin_renames(const ef_ctx *ctx, const ef_type_info *from, const ef_type_info *to);

#endif
