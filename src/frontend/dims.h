/* Dimension variables from sizes: an exported graph says 4096, the IR wants to know WHICH 4096 (design, section 3,
 * "Axes are named by what they cut").
 *
 * Every dimension of every tensor is a SLOT with a size. Slots that an operator needs to be equal are unified
 * (union-find); a slot that a view splits or merges is the ordered PRODUCT of others. A slot that is no product is a
 * LEAF and becomes one dimension variable. Unifying two products aligns their factors from the outside in, and splits
 * leaves where that needs it: heads unified with (key heads * group) become that product wherever they occur.
 *
 * Equal sizes mean nothing by themselves. Two leaves that stand in one tensor are never unified, because an axis could
 * not cut such a tensor: ef_slot_unify refuses, and the caller gives one of the two tensors other names there. Where
 * one dimension would stand in a tensor twice, the second is its TWIN (ir/twin.h). */
#ifndef EF_FRONTEND_DIMS_H
#define EF_FRONTEND_DIMS_H

#include "ir/type.h"

typedef uint32_t ef_slot;
typedef struct ef_slots ef_slots;

#define EF_SLOT_UNIT ((ef_slot)0) /* every dimension of size 1 */
#define EF_SLOT_LEAVES (EF_MAX_RANK * EF_MAX_ATOMS)

ef_slots *ef_slots_new(void);
void ef_slots_free(ef_slots *slots);
uint32_t ef_slots_count(const ef_slots *slots);

/* A dimension that is like no other so far. Size 1 gives the unit. */
ef_slot ef_slot_new(ef_slots *slots, uint64_t size);
uint64_t ef_slot_size(const ef_slots *slots, ef_slot slot);
/* The representative: equal for slots that are known to be one dimension. A product's is its own. */
ef_slot ef_slot_find(ef_slots *slots, ef_slot slot);
/* The leaves of a list of slots, outermost first, at most EF_SLOT_LEAVES; 0 when there are more (or none). */
unsigned ef_slot_leaves(ef_slots *slots, const ef_slot *slot, unsigned count, ef_slot *leaf);
/* Whether two slots have the same leaves. */
bool ef_slot_equal(ef_slots *slots, ef_slot a, ef_slot b);
/* Whether two lists of dimensions have a leaf in common. */
bool ef_slot_overlap(ef_slots *slots, ef_slot a, ef_slot b);
/* Makes two slots of one size one dimension. False, and nothing has changed, when their factors do not align or when
 * leaves that stand in one tensor would become one. */
bool ef_slot_unify(ef_slots *slots, ef_slot a, ef_slot b);
/* The twin of a dimension, number `which` of them (0 is the first): a product's is the product of its leaves' twins. */
ef_slot ef_slot_twin(ef_slots *slots, ef_slot slot, unsigned which);
/* Notes that two dimensions have one size for ever, though they must stay apart: one is a twin of the other, the twin
 * that there is already where that can be. */
void ef_slot_tie(ef_slots *slots, ef_slot a, ef_slot b);
/* The dimension that a leaf is a twin of; EF_SLOT_UNIT: none. */
ef_slot ef_slot_twin_of(ef_slots *slots, ef_slot leaf);
/* How many slots were unified into a leaf. */
unsigned ef_slot_members(ef_slots *slots, ef_slot leaf);
/* Notes that these are the dimensions of one tensor. False when a leaf stands there twice. */
bool ef_slot_together(ef_slots *slots, const ef_slot *slot, unsigned count);
/* The dimensions of these sizes that a reshape of `in` makes, outermost first: factors of `in` where sizes align, new
 * ones elsewhere (elements are then regrouped in a way that no product says). */
void ef_slot_reshape(ef_slots *slots, const ef_slot *in, unsigned in_count, const uint64_t *size, unsigned count,
                     ef_slot *out);

#endif
