/* The proof checker (design, section 5): a small program that trusts neither the e-graph nor the matcher nor the
 * explanation. It checks every equation of a proof against the text of its rule and by evaluation, and that the claim
 * follows from the equations. */
#ifndef EF_SEARCH_CHECK_H
#define EF_SEARCH_CHECK_H

#include "egraph/explain.h"
#include "rules/language.h"

/* False and one line that names the step, its rule and what is wrong. Resizes the dimensions of the proof's context
 * while it runs, and restores them. */
bool ef_proof_check(const ef_proof *proof, const ef_ruleset *rules, ef_diag *diag);

#endif
