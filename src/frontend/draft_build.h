/* What the files that build drafts share. Private to src/frontend/draft*.c. */
#ifndef EF_FRONTEND_DRAFT_BUILD_H
#define EF_FRONTEND_DRAFT_BUILD_H

#include "frontend/draft.h"

/* Valid until a node is added. */
static inline const ef_dnode *ef_dn_at(const ef_draft *draft, ef_dn node)
{
    return &draft->nodes.at[node];
}

/* Adds a node whose shape is known; EF_NONE when it is too large. */
ef_dn ef_dn_push(ef_draft *draft, const ef_dnode *node);
/* A node with x's shape, type and nature, and x for its operand. */
ef_dnode ef_dn_over(const ef_draft *draft, ef_op op, ef_dn x);

/* draft_simple.c: operands of a pointwise operator of two or more, each replaced by what does as well. */
void ef_simple_operands(ef_draft *draft, ef_op op, ef_dn *x, unsigned count);
/* What a pointwise operator over numbers is: `result` says the number, type and shape. */
ef_dn ef_simple_number(ef_draft *draft, const ef_dnode *result);
/* A batched product of tensors whose batch dimensions a view has merged, with the dimensions themselves; EF_NONE when
 * it is none. */
ef_dn ef_simple_matmul(ef_draft *draft, ef_dn a, ef_dn b);

#endif
