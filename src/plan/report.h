/* The report: one page that shows what an optimisation found and why it is right. */
#ifndef EF_PLAN_REPORT_H
#define EF_PLAN_REPORT_H

#include "plan/plan.h"

/* Writes one self-contained HTML file: no scripts, nothing from elsewhere. Whole or not at all; false and a message
 * when it cannot be written. */
bool ef_plan_report(const ef_plan *plan, const char *path, ef_diag *diag);

#endif
