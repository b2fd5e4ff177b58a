/* The checks of a plan that are about one region. Private to src/plan. */
#ifndef EF_PLAN_CHECK_H
#define EF_PLAN_CHECK_H

#include "plan/plan.h"

/* A region's two programs, parsed in one context. */
typedef struct {
    ef_ctx *ctx;
    ef_program *program, *candidate;
} ef_plan_programs;

/* Parses both and compares their inputs and outputs. False and a message when they do not go together. */
bool ef_plan_programs_open(const ef_plan_region *region, ef_plan_programs *programs, ef_diag *diag);
void ef_plan_programs_close(ef_plan_programs *programs);

/* Whether an external call's arguments and results are well-formed and count its values right. */
bool ef_plan_check_call(const ef_plan_step *step, ef_diag *diag);

#endif
