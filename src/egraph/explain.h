/* Proofs from the e-graph (Nieuwenhuis and Oliveras, "Proof-producing congruence closure", RTA 2005; Flatt et al.,
 * "Small proofs from congruence closure", FMCAD 2022; design, section 5).
 *
 * A proof that `from` equals `to` is a list of equations, each an instance of one rule, from which `from = to` follows
 * by congruence closure (operands of commutative operators in either order). So it needs nobody's trust in the e-graph:
 * src/search/check.c validates each equation against the rule's text and by evaluation, and then closes them. */
#ifndef EF_EGRAPH_EXPLAIN_H
#define EF_EGRAPH_EXPLAIN_H

#include "egraph/pattern.h"

/* Steps that no rule file contains. */
#define EF_STEP_FOLD EF_NONE        /* an operator on literals is its value: "constant-fold" */
#define EF_STEP_TUPLE (EF_NONE - 1) /* x = get[i](tuple(.., x, ..)): "tuple-introduce" */

typedef struct {
    uint32_t rule; /* index into the rules, or EF_STEP_… */
    ef_expr before, after;
} ef_proof_step;

/* Terms live in `dag`, where views stand as they were made: that views of views are one view is itself a rule. */
typedef struct {
    ef_dag *dag;
    uint32_t steps;
    ef_proof_step *step; /* in the order in which the search found them */
    ef_expr from, to;
} ef_proof;

/* Why two nodes of one class are equal. NULL and a message when they are not, or when a union on the way has no record.
 * `rules` are those that the graph's application records name. */
ef_proof *ef_explain(ef_egraph *g, const ef_rule *rules, unsigned count, ef_id a, ef_id b, ef_diag *diag);
/* The same for any expressions that the e-graph contains, such as a user's program and one that was extracted. */
ef_proof *ef_explain_exprs(ef_egraph *g, const ef_rule *rules, unsigned count, const ef_dag *dag_a, ef_expr a,
                           const ef_dag *dag_b, ef_expr b, ef_diag *diag);
void ef_proof_free(ef_proof *proof);
const char *ef_proof_rule_name(const ef_rule *rules, unsigned count, uint32_t rule);

#endif
