/* The manifest of an `.efz` file: everything but the texts of regions, as JSON. Private to src/plan. */
#ifndef EF_PLAN_MANIFEST_H
#define EF_PLAN_MANIFEST_H

#include <jansson.h>

#include "plan/plan.h"

/* A new object. NULL and a message when a string has no JSON form. */
json_t *ef_manifest_write(const ef_plan *plan, ef_diag *diag);
/* Fills in a plan whose arena is set. False and a message when something is missing or of another kind; what it means
 * is checked later (ef_plan_check). */
bool ef_manifest_read(ef_plan *plan, const json_t *json, ef_diag *diag);

/* A derivation, a list of objects. */
json_t *ef_derivation_write(const ef_plan_region *region);
bool ef_derivation_read(ef_plan *plan, ef_plan_region *region, const json_t *json, ef_diag *diag);

#endif
