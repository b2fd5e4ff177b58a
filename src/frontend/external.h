/* External calls as JSON: the form that module.h describes. */
#ifndef EF_FRONTEND_EXTERNAL_H
#define EF_FRONTEND_EXTERNAL_H

#include "frontend/translate.h"

/* Both are NUL-terminated text in the arena; tensors are numbered by `in` and `out`: the position among the step's
 * values of each tensor, in the order in which they stand in the node's arguments and outputs. */
const char *ef_external_arguments(ef_arena *arena, const ef_xnode *node, const uint32_t *in);
const char *ef_external_results(ef_arena *arena, const ef_xnode *node, const uint32_t *out);
/* A literal result or argument. */
const char *ef_external_literal(ef_arena *arena, const ef_xarg *arg);
/* The target of a call, with `functional` without the underscore of in-place operators. */
const char *ef_external_target(ef_arena *arena, const ef_call *call);

#endif
