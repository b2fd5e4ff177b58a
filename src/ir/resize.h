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

typedef struct ef_sizes ef_sizes;

/* The dependencies among the extents below some terms. Called while the context has the program's own extents, which
 * stay behind as what is restored. The dag may grow afterwards; its new terms have no say. */
ef_sizes *ef_sizes_new(const ef_dag *dag, const ef_expr *roots, uint32_t count);
/* Gives every named variable that is free an extent of `least` to `most`, and the others what follows (concatenations,
 * too; slices keep theirs). */
void ef_sizes_draw(ef_sizes *sizes, ef_rng *rng, uint32_t least, uint32_t most);
/* Gives back the extents of the program, and frees. */
void ef_sizes_restore(ef_sizes *sizes);

#endif
