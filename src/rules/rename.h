/* Conditions of the rules that move a renaming towards the inputs (rename.c); conditions.c lists them. */
#ifndef EF_RULES_RENAME_H
#define EF_RULES_RENAME_H

#include "egraph/pattern.h"

ef_condition_function ef_renamed, ef_renamed_like, ef_renamed_before, ef_renamed_but, ef_renamed_columns;
ef_condition_function ef_renamed_count, ef_no_twin;

#endif
