/* Where the search applies its rules (design, section 4, "Keeping the space small"): the interface that rule conditions
 * ask. src/search implements it; without a policy (rules --check, the checker) rules apply wherever they are true. */
#ifndef EF_RULES_POLICY_H
#define EF_RULES_POLICY_H

#include "egraph/pattern.h"
#include "rules/memory.h"

typedef struct ef_policy {
    ef_rule_memory *memory; /* what rules remember of the graph; owned by the search */
    uint64_t split_min;     /* the least extent of a dimension that is split for stored partial results */
    uint64_t loop_min;      /* the least extent of a dimension that is looped over; shorter ones fit into registers */
    uint64_t whole_max;     /* the largest contracted extent that a tile may hold whole */
    /* Whether the class is worth a kernel of its own. */
    bool (*storable)(const ef_scope *scope, ef_id class);
    /* Whether the class is an input, or only moves or views the elements of one. */
    bool (*parameter)(const ef_scope *scope, ef_id class);
    /* Whether the computation of a class reduces or contracts the variable. */
    bool (*reduces)(const ef_scope *scope, ef_id class, ef_var var);
    /* Whether `operand`, computed inside the scope of `axis`, uses the result of the reduction over `axis` whose
     * operand is `reduced`. */
    bool (*depends)(const ef_scope *scope, ef_id operand, ef_id reduced, ef_axis axis);
} ef_policy;

#endif
