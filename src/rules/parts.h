/* Conditions of the rules that take products apart where their operands are put together or cut (parts.c); conditions.c
 * lists them. */
#ifndef EF_RULES_PARTS_H
#define EF_RULES_PARTS_H

#include "egraph/pattern.h"

ef_condition_function ef_renames_at, ef_contracted_as, ef_slices_at, ef_is_unlike, ef_is_operand;

#endif
