/* Random well-typed instances of a rule's left side, and their right sides (design, section 4). */
#ifndef EF_RULES_INSTANCES_H
#define EF_RULES_INSTANCES_H

#include "egraph/pattern.h"
#include "rules/draw.h"

/* Inputs that hold `value` (a condition: false) at some positions along one dimension, never at all of them. */
typedef struct {
    uint64_t inputs; /* bit i: input i */
    ef_dim dim;
    double value;
} ef_masks;

/* Of a rule with a builder: whether it has to find a right side. */
typedef enum { EF_EXPECT_FUSED, EF_EXPECT_ANYTHING, EF_EXPECT_REFUSED } ef_expectation;

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
    ef_masks masks;          /* of a rule with a builder */
    ef_expectation expected; /* likewise */
} ef_instance;

typedef enum {
    EF_INSTANCE_NONE,      /* no well-typed left side came out of this seed */
    EF_INSTANCE_CONDITION, /* a condition does not hold */
    EF_INSTANCE_TYPE,      /* same_type: the rule does not apply here */
    EF_INSTANCE_SAME,      /* both sides are one expression: nothing to test */
    EF_INSTANCE_REFUSED,   /* a builder found no right side, and need not */
    EF_INSTANCE_APPLIES,
    EF_INSTANCE_ILL_TYPED, /* a rule without same_type has an ill-typed or differently typed right side */
    EF_INSTANCE_LOST,      /* a builder found no right side where there is one */
    EF_INSTANCE_WRONG,     /* a builder found one where there is none */
    EF_INSTANCE_KINDS
} ef_instance_kind;

/* Draws an instance from the seed. Whatever comes back, it is freed by ef_instance_free. With EF_INSTANCE_ILL_TYPED
 * `right` may be EF_NONE, and diag says why. */
ef_instance_kind ef_instance_draw(ef_instance *x, const ef_rule *rule, uint64_t seed, ef_diag *diag);
void ef_instance_free(ef_instance *x);

/* instances_repair.c: ef_instance_draw for fuse-repair, in a world that has been started. */
ef_instance_kind ef_instance_draw_repair(ef_instance *x);

#endif
