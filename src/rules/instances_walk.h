/* The walk that draws the left side of a rule, private to instances*.c.
 *
 * The left side is drawn from the top down. The result's type is drawn first; every operator of the pattern then says
 * which types of its operands would give it that type, choosing its free attributes on the way; and a variable becomes
 * a leaf of the type that is wished of it (draw.h). A variable that occurs again keeps what it became, so wishes are
 * only wishes: what counts is that the whole is well-typed in the end. Most draws fail early and cheaply. */
#ifndef EF_RULES_INSTANCES_WALK_H
#define EF_RULES_INSTANCES_WALK_H

#include "rules/instances.h"

typedef struct {
    ef_instance *out;
    ef_draw *d;
    ef_ctx *ctx;
    const ef_pattern *pattern;
    ef_axes seen;                   /* the axes of views and combinations so far: others rather meet them */
    ef_type sibling[EF_MAX_FIELDS]; /* the fields wished of the enclosing tuple */
    unsigned siblings;
    uint32_t literals, positives; /* variables that conditions want to be literals */
} ef_walk;

/* The expression of a pattern node that is wished to have this type; EF_NONE when there is none. */
ef_expr ef_walk_draw(ef_walk *w, unsigned at, ef_type want);
/* Draws the operands, of the `count` wished types (0: there is none), and the node over them. */
ef_expr ef_walk_operands(ef_walk *w, const ef_pattern_node *p, ef_op op, uint64_t attr, const ef_type *want,
                         unsigned count);
/* A node over operands, EF_NONE when one of them is. */
ef_expr ef_walk_add(ef_walk *w, ef_op op, uint64_t attr, const ef_expr *x, unsigned count);

/* The value of a slot where it is known already. */
bool ef_walk_slot_known(const ef_walk *w, const ef_slot *slot, uint64_t *value);
/* Gives a slot its value where it is not known, and returns what it has. */
uint64_t ef_walk_slot_give(ef_walk *w, const ef_slot *slot, uint64_t value);

/* Applies f to every tensor of a type; 0 when f fails. */
typedef bool (*ef_tensor_fn)(ef_walk *w, ef_type_info *tensor, uint64_t arg);
ef_type ef_walk_each_tensor(ef_walk *w, ef_type type, uint64_t arg, ef_tensor_fn f);
/* The same value, local to the coordinates of an axis that its shape does not have. */
bool ef_walk_make_partial(ef_walk *w, ef_type_info *x, uint64_t axis);
bool ef_walk_make_replicate(ef_walk *w, ef_type_info *x, uint64_t axis);

ef_dims ef_walk_dims(ef_walk *w, const ef_type_info *type);
/* The type of a pattern node that is settled already, a variable which has become a tensor; else NULL. */
const ef_type_info *ef_walk_settled(const ef_walk *w, unsigned at);
/* The state of an operand that does not have the cut dimension. One answer a variable: both its levels agree. */
ef_kind ef_walk_absent_kind(uint32_t random, ef_axis axis);

/* One operator each: instances_tensor.c, instances_shape.c, instances_parallel.c. */
typedef ef_expr ef_walk_operator(ef_walk *w, const ef_pattern_node *p, ef_type want);
ef_walk_operator ef_walk_pointwise, ef_walk_matmul, ef_walk_reduce, ef_walk_reduce_p;
ef_walk_operator ef_walk_reshape, ef_walk_transpose, ef_walk_slice, ef_walk_concat, ef_walk_broadcast;
ef_walk_operator ef_walk_tuple, ef_walk_get, ef_walk_view, ef_walk_combine, ef_walk_collect;

#endif
