/* What a module owns. Private to src/frontend. */
#ifndef EF_FRONTEND_MODULE_STORE_H
#define EF_FRONTEND_MODULE_STORE_H

#include "frontend/module.h"
#include "support/vec.h"

struct ef_module_store {
    ef_arena *arena; /* holds the module itself too */
    EF_VEC(ef_program *) programs;
    EF_VEC(ef_ctx *) contexts;
};

/* An empty module, to be filled in. */
ef_module *ef_module_new(void);

#endif
