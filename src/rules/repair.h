/* Repair synthesis (paper, section 4.2; design, section 4, "Repair"; after Neptune's repair relation).
 *
 * Given a producer s = reduce[r1, p](g) and a consumer c = reduce[r2, p](y) whose operand y = f(x, replicate s) uses
 * the producer's result, finds h with (a) h(f(x, s), s, t) = f(x, t)    (b) h distributes over r2's combination    (c)
 * h keeps r2's identity and rewrites both into one reduction over p with inputs (g, f(x, g)). How f depends on s is
 * derived bottom-up over the e-graph: a term is independent of s, a closed function of s alone, shifted by a function
 * of s (a + tau(s)), or scaled by one (a * sigma(s)). For a sum, h(c) = c * sigma(t) / sigma(s); for a max or min, h(c)
 * = c + tau(t) - tau(s) (or the ratio, when it is positive). h is simplified and (a), (b) are proved by the e-graph
 * over scalar rules (prove.c); (a), (c), what happens where some leaf of the producer has seen nothing, and that
 * nothing overflows before the producer is complete are checked at random points. Whatever is not proved is refused. */
#ifndef EF_RULES_REPAIR_H
#define EF_RULES_REPAIR_H

#include "egraph/pattern.h"

/* The right side of the rule fuse-repair: reduce_p[repaired(r1, r2, h), p](tuple(g, f(x, g))), or EF_NONE. */
ef_id ef_repair_build(const ef_scope *scope, const ef_rule *rule, const ef_match *match);

#endif
