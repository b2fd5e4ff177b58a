/* What is too much work to be worth a search: of all ways of computing a program those that multiply far more than the
 * least one does. Where a projection of a history moves to the query, the history need not be projected, and nobody
 * wants to know in how many ways that can be tiled and fused. */
#ifndef EF_SEARCH_WASTE_H
#define EF_SEARCH_WASTE_H

#include "egraph/egraph.h"

/* The nodes of tensor-level programs that are part of no way of computing the outputs with at most EF_WASTE times the
 * multiplications of the least one. Work that is shared counts as often as it is used, in both. Calls `found` for each;
 * returns how many. */
#define EF_WASTE 8
uint32_t ef_waste_find(ef_egraph *g, const ef_id *output, uint32_t outputs, void (*found)(ef_egraph *g, ef_id node));

#endif
