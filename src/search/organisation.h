/* Organisations of programs: see organisation.c. */
#ifndef EF_SEARCH_ORGANISATION_H
#define EF_SEARCH_ORGANISATION_H

#include "ir/expr.h"

/* A hash, equal for programs (of one context) of one organisation. */
uint64_t ef_organisation(const ef_dag *dag, const ef_expr *output, uint32_t outputs);

#endif
