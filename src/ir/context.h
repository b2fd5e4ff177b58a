/* The context: all interned tables of one session. Private to src/ir. */
#ifndef EF_IR_CONTEXT_H
#define EF_IR_CONTEXT_H

#include "ir/reducer.h"
#include "ir/type.h"
#include "support/hash.h"
#include "support/vec.h"

typedef struct {
    const char *name;
    ef_type type;
} ef_input_info;

struct ef_ctx {
    ef_arena *arena;
    EF_VEC(ef_var_info) vars;
    ef_intern *var_names; /* name -> index into named */
    EF_VEC(ef_var) named;
    ef_intern *derived; /* key of a derived variable -> index into derived_vars */
    EF_VEC(ef_var) derived_vars;
    ef_intern *dims, *dim_lists, *axis_sets, *types;
    ef_intern *input_names;
    EF_VEC(ef_input_info) inputs;
    ef_intern *reducers, *scalars;
};

/* reducer.c: puts the base reducers at their fixed ids. */
void ef_reducers_init(ef_ctx *ctx);

#endif
