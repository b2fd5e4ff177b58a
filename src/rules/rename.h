/* Conditions of the rules that move a renaming towards the inputs (rename.c); conditions.c lists them. */
#ifndef EF_RULES_RENAME_H
#define EF_RULES_RENAME_H

#include "egraph/pattern.h"

bool ef_renamed(const ef_scope *scope, const ef_condition_arg *a, unsigned n, uint64_t *out);
bool ef_renamed_like(const ef_scope *scope, const ef_condition_arg *a, unsigned n, uint64_t *out);
bool ef_renamed_before(const ef_scope *scope, const ef_condition_arg *a, unsigned n, uint64_t *out);
bool ef_renamed_but(const ef_scope *scope, const ef_condition_arg *a, unsigned n, uint64_t *out);
bool ef_renamed_columns(const ef_scope *scope, const ef_condition_arg *a, unsigned n, uint64_t *out);
bool ef_renamed_count(const ef_scope *scope, const ef_condition_arg *a, unsigned n, uint64_t *out);
bool ef_no_twin(const ef_scope *scope, const ef_condition_arg *a, unsigned n, uint64_t *out);

#endif
