/* Optimising one program: search, families, tuning by measurement, the best implementation (design, sections 1 and 8).
 *
 * The program itself, one kernel an operator, is always measured too, so what comes back is never slower. Where a call
 * of it takes too long for the budget that is done at the end, once, and ended when it is known to be slower than the
 * best: its time is a lower bound or an estimate then, and said to be one. Every result is stored at once: a run that
 * was interrupted goes on where it was, and a program that was optimised to the end within as much time, and
 * under no lower limit of measurements, is answered from the store. */
#ifndef EF_TUNE_OPTIMIZE_H
#define EF_TUNE_OPTIMIZE_H

#include "search/derive.h"
#include "tune/device.h"
#include "tune/store.h"

typedef enum { EF_STAGE_SEARCH, EF_STAGE_PREPARE, EF_STAGE_TUNE, EF_STAGE_CONFIRM } ef_stage;
extern const char *const ef_stage_names[];

typedef struct {
    ef_stage stage;
    uint32_t families, left;               /* found; still in the running */
    uint64_t measured, failed;             /* candidates so far */
    double best_us, original_us, floor_us; /* 0: not known yet */
    double elapsed_s, left_s;
} ef_progress;

typedef struct {
    double budget_s;    /* for search, measurements and derivation; 0: 300; equiforge.h says what may be late */
    double whole_s;     /* of the module that it is a region of: the budget, of which budget_s is a share … */
    double left_s;      /* … and what is left of it; 0: it is no region */
    uint64_t seed;      /* of inputs and of the tuner */
    uint32_t compilers; /* workers, 0: one a processor */
    bool plain;         /* no search: only the program as it is is measured */
    uint32_t keep;      /* families at most, 0: 64 */
    uint64_t limit;     /* measured candidates at most, failures too; 0: as many as the budget allows */
    bool unmeasured;    /* of a module: its plan is wanted even when nothing in it could be measured */
    /* Called some times a second while measuring, and after each result; false: finish with the best so far. May be
     * NULL. What this thread works under (support/interrupt.h) ends it too. */
    bool (*progress)(void *user, const ef_progress *progress);
    void *user;
} ef_optimize_options;

/* Strings belong to the arena of the call. */
typedef struct {
    double us, warm_us, original_us, floor_us; /* floor: the time that moving inputs and outputs takes */
    double rel_l2;                             /* the largest over all distributions */
    double elapsed_s;
    uint32_t kernels, families;
    uint64_t measured, failed, candidates; /* in this run: measured schedules, failures; what extraction found */
    uint64_t family;
    bool stored;    /* answered from the store */
    bool original;  /* the program itself is the best that was found */
    bool estimated; /* original_us is: a call of the program as it is took several times as long as the best, and was
                     * ended, or did not fit into the device's memory; then it may be 0, for not known */
    bool stopped;   /* something asked to stop */
    const char *schedule, *source, *entry;
    const char *program;   /* the candidate, in text form */
    const char *reference; /* the program that it implements, in text form: the one that was asked for, or one that
                            * differs from it in names only */
    uint32_t equations;    /* why the two are equal; 0: they are one, or it was not found again in time */
    const ef_equation *equation;
    const char *device; /* who measured, with versions */
    const char *spent;  /* seconds of the run and of its workers, as JSON; NULL when it was answered from the store */
    const char *kept;   /* why nothing could be measured, and PyTorch is to run the program; NULL: it was */
} ef_optimum;

/* Makes the pool, *pool, when it is NULL and workers are needed; the caller frees it, after other programs. False and a
 * message when nothing could be measured. */
bool ef_optimize(const ef_program *program, const ef_device *device, ef_pool **pool, ef_store *store,
                 const ef_optimize_options *options, ef_arena *arena, ef_optimum *optimum, ef_diag *diag);

#endif
