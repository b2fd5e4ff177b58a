/* Other sizes for a program: the checker and tests evaluate what was proved of one size at others.
 *
 * Extents depend on each other where a program takes tensors apart and puts them together: a concatenation is as long
 * as its parts, a reshape keeps the number of elements (a history and the token that is appended to it have the name s
 * afterwards: s = old + 1), and what is sliced is as long as the positions that are spoken of. These dependencies are
 * read from the terms; a draw gives all named variables small extents that satisfy them. Variables for which none are
 * found keep theirs, which always do. */
#ifndef EF_IR_RESIZE_H
#define EF_IR_RESIZE_H

#include "ir/expr.h"
#include "support/rng.h"

typedef struct ef_resizing ef_resizing;

/* Made while the context has the program's own extents, which stay behind as what is restored. */
ef_resizing *ef_resizing_new(ef_ctx *ctx);
/* Adds the dependencies among the extents below some terms. */
void ef_resizing_read(ef_resizing *sizes, const ef_dag *dag, const ef_expr *roots, uint32_t count);
/* The variable keeps its extent. */
void ef_resizing_keep(ef_resizing *sizes, ef_var var);
/* Gives every named variable that is free one of these extents (16 at most, each at least 2), and the others what
 * follows (concatenations, too; slices keep theirs). */
void ef_resizing_draw(ef_resizing *sizes, ef_rng *rng, const uint32_t *extents, unsigned count);
/* Gives back the extents of the program. */
void ef_resizing_restore(ef_resizing *sizes);
void ef_resizing_free(ef_resizing *sizes);

#endif
