/* Inside a family: what was tried, and what to try next. Private to the tuner; see tuner.h. */
#ifndef EF_TUNE_PROPOSE_H
#define EF_TUNE_PROPOSE_H

#include "support/hash.h"
#include "support/rng.h"
#include "support/vec.h"
#include "tune/tuner.h"

#define EF_TUNE_ELITE 8u

typedef struct {
    uint32_t params, groups;
    uint32_t *values, *start, *group;      /* by parameter */
    uint32_t *scratch;                     /* a schedule being made */
    double estimate, best, size;           /* size: how many schedules there are */
    ef_intern *tried;                      /* choices, asked or known: ids are points */
    EF_VEC(double) us;                     /* by point; NAN: not told yet */
    uint32_t elite[EF_TUNE_ELITE], elites; /* points, best first */
    uint32_t asked;                        /* in this round */
    uint32_t turn, stale;                  /* the group whose parameters change, and for how long in vain */
} ef_tune_family;

ef_tune_family *ef_tune_family_new(const ef_tune_space *space);
void ef_tune_family_free(ef_tune_family *family);
bool ef_tune_family_has(const ef_tune_family *family, const uint32_t *choice);
/* The point of a choice. */
uint32_t ef_tune_family_point(ef_tune_family *family, const uint32_t *choice, int *fresh);
const uint32_t *ef_tune_family_choice(const ef_tune_family *family, uint32_t point);
void ef_tune_family_tell(ef_tune_family *family, uint32_t point, double us);
/* Whether everything was tried. */
bool ef_tune_family_dry(const ef_tune_family *family);
/* A new point, which counts as tried from now on. The family must not be dry. */
uint32_t ef_tune_propose(ef_tune_family *family, ef_rng *rng);

#endif
