/* Optimising a module: each of its regions, into a plan (design, section 9).
 *
 * Regions that are the same program up to names are optimised once. What a region gets of the budget goes by its
 * estimated work, times how often it stands in the module; what one does not use goes to those after it, the one with
 * the most work last. One of which results to check against alone outlast its share takes more, as long as that is
 * left. Where there is hardly time to measure each as it is the one with the most work is first, and where PyTorch can
 * run the module (`unmeasured`) it runs those that no time is left for and the store does not know. External calls stay
 * as they are. */
#ifndef EF_TUNE_MODULE_H
#define EF_TUNE_MODULE_H

#include "plan/plan.h"
#include "tune/optimize.h"

/* Sums over all regional steps of a call, and over all that was done. original_us is 0, not known, when that of one
 * region is, of those that were measured. */
typedef struct {
    double us, warm_us, original_us, floor_us, rel_l2, elapsed_s;
    uint64_t kernels, measured, failed, candidates, families;
    uint32_t regions, distinct, externals;
    bool stored;   /* all regions were answered from the store */
    bool original; /* nothing faster was found for any of them */
    bool stopped;
    uint32_t kept;       /* distinct regions that could not be measured, or not in time: PyTorch runs them */
    const char *message; /* why, and how many; in the plan's arena; NULL: none */
} ef_module_summary;

/* NULL and a message when nothing can be measured, of any region, unless `options` want a plan all the same. */
ef_plan *ef_optimize_module(const ef_module *module, const ef_device *device, ef_store *store,
                            const ef_optimize_options *options, ef_module_summary *summary, ef_diag *diag);

#endif
