/* The best implementation: described, and kept in the store as JSON. */
#ifndef EF_TUNE_OPTIMUM_H
#define EF_TUNE_OPTIMUM_H

#include "plan/plan.h"
#include "tune/flight.h"
#include "tune/optimize.h"

/* Fills in what an implementation consists of: source, schedule, program, kernels; and why it is equal to the program,
 * when that is found in `derive_s` seconds. */
void ef_optimum_describe(ef_optimum *optimum, const ef_families *families, const ef_trip *best, const ef_device *device,
                         double derive_s, ef_arena *arena, ef_diag *diag);
/* What is left where nothing can be measured: the program itself, as PyTorch source (codegen/torch.h). `why` is kept.
 */
bool ef_optimum_as_it_is(ef_optimum *optimum, const ef_program *program, const char *why, ef_arena *arena,
                         ef_diag *diag);
/* What a result had, or may have: a budget in seconds, INFINITY: more would find nothing; and so many measurements, 0:
 * as many as fit. */
typedef struct {
    double budget_s;
    uint64_t limit;
} ef_effort;

/* Keeps what was found with this effort; not in the place of a result without a limit, if this one met its own. */
void ef_optimum_keep(const ef_optimum *optimum, ef_store *store, const char *program, ef_effort spent);
/* What is kept for this program and optimum->device, which is the identity of `device`; false when there is none, it is
 * damaged, or it was found with less effort than is `wanted`. */
bool ef_optimum_recall(ef_optimum *optimum, ef_store *store, const char *program, const ef_device *device,
                       ef_effort wanted, ef_arena *arena);

/* The same as the region of a plan; shares its strings. */
ef_plan_region ef_optimum_region(const ef_optimum *optimum, const ef_device *device);

#endif
