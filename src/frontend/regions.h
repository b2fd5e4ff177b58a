/* Regions: cutting a translated graph into programs around its external calls (design, section 9).
 *
 * Every node of the draft has a STAGE: the number of regions that run before it. It is at least the number that must,
 * because an external call between them needs a region's results, and as large as what uses the node allows, so that
 * masks and scores stand together. All nodes of one stage are one region: there are as few regions as the alternation
 * of calls and computation allows, and no region waits for itself. What costs nothing to compute again, numbers, iota,
 * and views of what a region is given, belongs to no stage: each region that needs it has its own. */
#ifndef EF_FRONTEND_REGIONS_H
#define EF_FRONTEND_REGIONS_H

#include "frontend/module_store.h"
#include "frontend/translate.h"
#include "support/hash.h"

/* Fills in the values, steps, outputs and mutations of a module. */
bool ef_regions_plan(ef_module *module, ef_translation *l, ef_diag *diag);

/* emit.c: one region as a program. The draft's nodes are absent, given as inputs, or computed. */
typedef enum { EF_ABSENT, EF_GIVEN, EF_COMPUTED } ef_presence;

typedef struct {
    const uint8_t *presence; /* by draft node: ef_presence */
    uint32_t inputs, outputs;
    const ef_dn *input, *output;
    const char *const *input_name, *const *output_name;
    const ef_dtype *input_dtype, *output_dtype;
    const char *name;
} ef_region;

/* The program, in a context of its own; both belong to the module. NULL and a message when it is not well-typed. */
ef_program *ef_region_emit(ef_module *module, ef_translation *l, const ef_region *region, ef_diag *diag);

/* A name that the text form takes as it is, made of `wanted`, and that `taken` did not have; it has it now. */
const char *ef_fresh_name(ef_arena *arena, ef_intern *taken, const char *wanted);

#endif
