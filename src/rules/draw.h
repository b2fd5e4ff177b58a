/* Random dimensions, types and leaves for the instances of `rules --check` (design, section 4).
 *
 * One ef_draw is one small world: a context, an expression DAG, and a few named dimensions of extents 2 to 9 (extent 1
 * is the unit dimension). Types are drawn with ranks 0 to 5, merged, sliced and concatenated dimensions, and parallel
 * states. A leaf is an expression of a wished type, whatever its states are: fresh inputs, viewed where the type is
 * partitioned or replicated, and summed over a viewed dimension where it is partial. */
#ifndef EF_RULES_DRAW_H
#define EF_RULES_DRAW_H

#include "ir/expr.h"
#include "support/rng.h"

#define EF_DRAW_VARS 5

typedef struct {
    ef_ctx *ctx;
    ef_dag *dag;
    ef_rng rng;
    ef_var pool[EF_DRAW_VARS];
    uint32_t inputs;
    bool scalar;            /* all values are scalars, as in the repair prover */
    bool uses[EF_OP_COUNT]; /* the operators that the instance needs shapes for */
    ef_axis counted;        /* the axis whose collection leads every drawn shape, EF_NONE for none */
} ef_draw;

void ef_draw_start(ef_draw *d, uint64_t seed);
void ef_draw_stop(ef_draw *d);

uint32_t ef_draw_below(ef_draw *d, uint32_t bound);
bool ef_draw_chance(ef_draw *d, uint32_t percent);

/* Whether some variable of the dimension is cut or replicated by an axis of the type. */
bool ef_draw_in_scope(const ef_draw *d, const ef_type_info *type, ef_dim dim);
/* A dimension (perhaps the unit) none of whose variables the type's axes cut. */
ef_dim ef_draw_dim(ef_draw *d, const ef_type_info *type);
/* Puts an axis into a tensor's scope: partition where it cuts, else `absent`. False where it cannot stand. */
bool ef_draw_place(ef_draw *d, ef_type_info *type, ef_axis axis, ef_kind absent);
/* A random axis: of a dimension of the type or of any variable. */
ef_axis ef_draw_axis(ef_draw *d, const ef_type_info *type);
/* A tensor type; in the scope of `like` (a tensor or tuple type) when that is not 0. */
ef_type ef_draw_tensor(ef_draw *d, ef_type like);
/* A reducer that fits the operand, EF_NONE when there is none. */
ef_reducer ef_draw_reducer(ef_draw *d, ef_type operand);
double ef_draw_number(ef_draw *d);

/* An expression of exactly this type, EF_NONE when none can be made. */
ef_expr ef_draw_leaf(ef_draw *d, ef_type type);

#endif
