/* A family's schedules, put together from those of its kernels. Private to the tuner; see tuner.h.
 *
 * What a kernel takes depends on its own parameters and on those that shape the buffers it uses: for each choice of the
 * latter there is one ef_tune_kernel, whichever families have the kernel. */
#ifndef EF_TUNE_ASSEMBLE_H
#define EF_TUNE_ASSEMBLE_H

#include "tune/propose.h"
#include "tune/tuner.h"

typedef struct {
    uint64_t identity;
    ef_tune_kernel *kernel;
} ef_tune_record;

/* Of all families. */
typedef EF_VEC(ef_tune_record) ef_tune_records;

#define EF_TUNE_AGAIN (-1.0) /* the time of a schedule that may be asked again */

typedef struct {
    uint32_t number, params, kernels;
    uint32_t *values, *owner, *start; /* by parameter */
    uint64_t *key;                    /* by parameter that shapes buffers */
    uint64_t *identity;               /* by kernel */
    double *kernel_estimate;          /* by kernel */
    bool *uses;                       /* kernel * params + parameter: of those that shape buffers */
    uint32_t *scratch, *part, *point; /* a schedule being made; that of one kernel; points by kernel */
    uint32_t *record;                 /* by kernel: of the schedule being made */
    bool (*fits)(const void *user, uint32_t kernel, const uint32_t *choice); /* NULL: everything does */
    const void *user;
    double estimate, best, size; /* best: of whole schedules; size: how many there are */
    double overhead;             /* what a whole schedule takes beside its kernels */
    ef_intern *tried;            /* whole schedules, asked or known: ids are points */
    ef_intern *shapes;           /* what shapes buffers in them */
    EF_VEC(double) us;           /* by point; NAN: not told yet */
    uint32_t again;              /* points of EF_TUNE_AGAIN */
    uint32_t elite[EF_TUNE_ELITE], elites;
    uint32_t asked; /* in this round */
    uint32_t stale; /* proposals since something got better */
    uint32_t failures;
    uint32_t width; /* kernels that change at once: fewer after failures, which say nothing of whose they are */
    bool timed;     /* the times of kernels are told; else they follow from those of whole schedules, one at a time */
} ef_tune_family;

ef_tune_family *ef_tune_family_new(const ef_tune_space *space, uint32_t number);
void ef_tune_family_free(ef_tune_family *family);
bool ef_tune_family_has(const ef_tune_family *family, const uint32_t *choice);
/* The point of a whole schedule. */
uint32_t ef_tune_family_point(ef_tune_family *family, const uint32_t *choice, int *fresh);
const uint32_t *ef_tune_family_choice(const ef_tune_family *family, uint32_t point);
/* `kernel_us`: by kernel, or NULL. */
void ef_tune_family_tell(ef_tune_family *family, ef_tune_records *records, uint32_t point, double us,
                         const double *kernel_us);
/* Its kernels are others from now on. What was told of it, but for failures, is not of these: it may be asked again,
 * the best of it first. False: they are what they were. */
bool ef_tune_family_renew(ef_tune_family *family, const uint64_t *identity);
bool ef_tune_family_dry(const ef_tune_family *family);
/* Whether some schedules of it failed and none worked. */
bool ef_tune_family_hopeless(const ef_tune_family *family);
/* A new point, which counts as tried from now on. The family must not be dry. */
uint32_t ef_tune_assemble(ef_tune_family *family, ef_tune_records *records, ef_rng *rng);
/* What the family may come to: the sum of its kernels' best times, each less the less it was tried, or their estimates
 * where there is none. INFINITY: nothing is known of a kernel, or the family is hopeless, whatever its kernels take
 * in others. */
double ef_tune_family_promise(const ef_tune_family *family, const ef_tune_records *records);

#endif
