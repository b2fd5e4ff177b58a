/* Conditions of the rules that group rows (group.c); conditions.c lists them. */
#ifndef EF_RULES_GROUP_H
#define EF_RULES_GROUP_H

#include "egraph/pattern.h"

ef_condition_function ef_merged_batch, ef_batch_as_rows_a, ef_batch_as_rows_b, ef_grouped, ef_regroups_rows;
ef_condition_function ef_regrouped, ef_regrouped_but, ef_moves_in;
ef_condition_function ef_last_to_unit, ef_swapped_last, ef_keeps_last_two, ef_root_dims, ef_is_spread, ef_is_shared;

#endif
