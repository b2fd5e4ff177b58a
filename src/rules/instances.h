/* Random well-typed instances of a rule's left side, and their right sides (design, section 4). */
#ifndef EF_RULES_INSTANCES_H
#define EF_RULES_INSTANCES_H

#include "egraph/pattern.h"
#include "rules/draw.h"

typedef struct {
    ef_draw draw; /* the world that the expressions live in */
    const ef_rule *rule;
    ef_expr left, right;
    ef_expr var[EF_PATTERN_VARS];
    uint64_t attr[EF_PATTERN_ATTRS];
    struct {
        ef_op op;
        uint64_t attr;
    } op[EF_PATTERN_OPS];
} ef_instance;

typedef enum {
    EF_INSTANCE_NONE,      /* no well-typed left side came out of this seed */
    EF_INSTANCE_CONDITION, /* a condition does not hold */
    EF_INSTANCE_TYPE,      /* same_type: the rule does not apply here */
    EF_INSTANCE_SAME,      /* both sides are one expression: nothing to test */
    EF_INSTANCE_APPLIES,
    EF_INSTANCE_ILL_TYPED /* a rule without same_type has an ill-typed or differently typed right side */
} ef_instance_kind;

/* Draws an instance from the seed. Whatever comes back, it is freed by ef_instance_free. With EF_INSTANCE_ILL_TYPED
 * `right` may be EF_NONE, and diag says why. */
ef_instance_kind ef_instance_draw(ef_instance *x, const ef_rule *rule, uint64_t seed, ef_diag *diag);
void ef_instance_free(ef_instance *x);

#endif
