/* A family's schedules, put together from those of its kernels. Private to the tuner; see tuner.h.
 *
 * What a kernel takes depends on its own parameters and on those that shape the buffers it uses: for each choice of the
 * latter there is one ef_tune_kernel, whichever families have the kernel.
 *
 * A SHAPE is a choice of all parameters that shape buffers; a RECORD is an ef_tune_kernel: what is known of one kernel
 * under what of the shape it uses. So a schedule is a shape, and for each kernel of the family a point of the record
 * that the kernel has under this shape. */
#ifndef EF_TUNE_ASSEMBLE_H
#define EF_TUNE_ASSEMBLE_H

#include "tune/propose.h"
#include "tune/tuner.h"

/* Of all families. */
typedef struct {
    ef_intern *identity; /* ids are places in the list */
    EF_VEC(ef_tune_kernel *) list;
    ef_tune_outlook outlook;
} ef_tune_records;

typedef struct {
    uint32_t number, params, kernels;
    uint32_t *values, *owner, *start; /* by parameter */
    uint64_t *key;                    /* by parameter that shapes buffers */
    uint64_t *identity;               /* by kernel */
    double *kernel_estimate;          /* by kernel */
    bool *uses;                       /* kernel * params + parameter: of those that shape buffers */
    bool *joint;                      /* by parameter: as in ef_tune_space */
    bool hiding;                      /* the same */
    uint32_t *scratch, *part, *point; /* a schedule being made; that of one kernel; points by kernel */
    uint32_t *record;                 /* by kernel: of the schedule being made */
    double (*cost)(const void *user, uint32_t kernel, const uint32_t *choice, double *room); /* NULL: not known */
    const void *user;
    double size;               /* how many schedules there are */
    double overhead;           /* what a whole schedule takes beside its kernels */
    ef_tune_points points;     /* whole schedules */
    ef_intern *shapes;         /* choices of what shapes buffers that are considered */
    EF_VEC(uint32_t) of_shape; /* shape * kernels + kernel: records */
    uint32_t shape;            /* of the schedule being made */
    uint32_t asked, in_vain;   /* asks; results since something got better */
    uint32_t lost, broken;     /* failures of which the kernel is not known; is, and it was not for want of room */
    uint32_t width; /* kernels that change at once: fewer after failures, which say nothing of whose they are */
    bool timed;     /* the times of kernels are told; else they follow from those of whole schedules, one at a time */
} ef_tune_family;

void ef_tune_records_init(ef_tune_records *records);
void ef_tune_records_free(ef_tune_records *records);
/* Finds anew how far off estimates are. */
void ef_tune_records_compare(ef_tune_records *records);

ef_tune_family *ef_tune_family_new(const ef_tune_space *space, uint32_t number);
void ef_tune_family_free(ef_tune_family *family);
bool ef_tune_family_has(const ef_tune_family *family, const uint32_t *choice);
/* `kernel_us`: by kernel, or NULL. `waited`: it was asked. */
void ef_tune_family_tell(ef_tune_family *family, ef_tune_records *records, uint32_t point, double us,
                         const double *kernel_us, bool waited);
/* It failed because of this kernel, for want of room or not: the others' schedules may be asked again. */
void ef_tune_family_blame(ef_tune_family *family, ef_tune_records *records, uint32_t point, uint32_t kernel,
                          bool no_room, bool waited);
/* Looks for cheap schedules of its kernels. */
void ef_tune_family_survey(ef_tune_family *family, ef_tune_records *records);
/* Its kernels are others from now on. What was told of it, but for failures, is not of these: it may be asked again,
 * the best of it first. `awaited`: points that were asked, whose results will be of the new kernels. The old ones,
 * which other families may have, are not judged by this one any more. */
void ef_tune_family_change_kernels(ef_tune_family *family, ef_tune_records *records, const uint64_t *identity,
                                   const uint32_t *awaited, uint32_t count);
/* Those of its kernels that no family judges are judged by this one. */
void ef_tune_family_judge(ef_tune_family *family, ef_tune_records *records);
bool ef_tune_family_dry(const ef_tune_family *family);
/* Whether some schedules of it failed and none worked, or those of a kernel of it, in whatever family. */
bool ef_tune_family_hopeless(ef_tune_family *family, ef_tune_records *records);
/* A new point, which counts as tried from now on. The family must not be dry. */
uint32_t ef_tune_assemble(ef_tune_family *family, ef_tune_records *records, ef_rng *rng);
/* The best schedule with other values of joint parameters, that may be asked: a point, which counts as tried from now
 * on. False: there is none. */
bool ef_tune_family_vary(ef_tune_family *family, ef_tune_records *records, uint32_t *point);
/* Whether there are at least so many of these. */
bool ef_tune_family_varies(ef_tune_family *family, uint64_t least);
/* What the family may come to: the sum of what its kernels may, for the best of the shapes considered. 0: nothing is
 * known of a kernel. */
double ef_tune_family_promise(ef_tune_family *family, ef_tune_records *records);
/* The best schedule of each kernel together, if it was not measured as a whole: microseconds to expect, and the point.
 * INFINITY: there is none. */
double ef_tune_family_together(ef_tune_family *family, ef_tune_records *records, uint32_t *point);

#endif
