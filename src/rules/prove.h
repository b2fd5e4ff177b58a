/* The repair prover: simplifies and proves scalar identities with the project's own e-graph over the scalar rules, and
 * checks them at random points (design, section 4, "Repair"). */
#ifndef EF_RULES_PROVE_H
#define EF_RULES_PROVE_H

#include "ir/expr.h"

/* The smallest term equal to `term` that the scalar rules find; exponentials and divisions cost most. */
ef_scalar ef_prove_simplify(ef_ctx *ctx, ef_scalar term);
/* Whether two rank-0 expressions over free inputs are proved equal. */
bool ef_prove_equal(ef_dag *dag, ef_expr a, ef_expr b);
/* A scalar term as a rank-0 expression, its parameters replaced: c, and producer leaves s[], t[]. */
ef_expr ef_prove_expr(ef_dag *dag, ef_scalar term, ef_expr c, const ef_expr *s, const ef_expr *t);
/* A rank-0 f64 input with this reserved name. */
ef_expr ef_prove_input(ef_dag *dag, const char *prefix, unsigned index);

#endif
