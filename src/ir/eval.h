/* The evaluator: a straightforward float64 interpreter that gives every operator, tensor-level and tiled, its meaning.
 * It is the oracle of all rule tests, of lowering and of numeric verification (design, section 3).
 *
 * A value whose type has axes in scope is one tensor per coordinate of these axes. Partition slices the dimension that
 * the axis cuts: level 0 into blocks of the axis's tile extent, level 1 the block (or the whole dimension, when level 0
 * is not in scope) into tiles. Extents need not divide: last tiles are short, tiles past the end are empty. */
#ifndef EF_IR_EVAL_H
#define EF_IR_EVAL_H

#include "ir/expr.h"

/* The tile extent, in units of the variable, of each axis. Axes without an entry use `fallback` (>= 1). */
typedef struct {
    ef_axis axis;
    uint64_t extent;
} ef_tile;

typedef struct {
    const ef_tile *tiles;
    unsigned count;
    uint64_t fallback;
} ef_tiling;

/* One tensor: row-major, outermost dimension first. */
typedef struct {
    unsigned rank;
    uint64_t extent[EF_MAX_RANK + 1];
    double *data;
} ef_tensor;

/* Where input data come from: fills `out` (extents set, data allocated) for an input id. */
typedef void (*ef_input_fn)(void *user, uint32_t input, ef_tensor *out);

typedef struct ef_evaluation ef_evaluation;

/* Evaluates `roots` (any types). Fails with a message, whose kind is EF_TOO_LARGE, when the values
 * would exceed `limit` elements in all (0: 2^28). */
ef_evaluation *ef_evaluate(const ef_dag *dag, const ef_expr *roots, unsigned count, const ef_tiling *tiling,
                           ef_input_fn inputs, void *user, uint64_t limit, ef_diag *diag);
void ef_evaluation_free(ef_evaluation *evaluation);
/* The number of tensors of a root: one per coordinate of the axes in scope and per tuple leaf (coordinates outermost,
 * axes in sorted order, first axis slowest; leaves innermost). */
uint32_t ef_evaluation_count(const ef_evaluation *evaluation, unsigned root);
const ef_tensor *ef_evaluation_at(const ef_evaluation *evaluation, unsigned root, uint32_t which);
/* The largest difference |a - b| / (floor + max |b|) over all elements of two roots; NaN equals NaN and an infinity
 * equals itself; infinity when shapes differ or one side alone is not finite. */
double ef_evaluation_difference(const ef_evaluation *a, unsigned root_a, const ef_evaluation *b, unsigned root_b,
                                double floor);

#endif
