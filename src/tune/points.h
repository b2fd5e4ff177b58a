/* Points: schedules that were asked or told, with their times, and the best few of them, the elite. Of a kernel
 * (propose.h) or of a family as a whole (assemble.h). Private to the tuner; see tuner.h.
 *
 * A point that was asked is not asked again, unless it is opened: because another kernel of the candidate failed, and
 * nothing was heard of this one, or because its family has other kernels now. */
#ifndef EF_TUNE_POINTS_H
#define EF_TUNE_POINTS_H

#include <stdbool.h>

#include "support/hash.h"
#include "support/vec.h"

#define EF_TUNE_ELITE 8u

typedef struct {
    double us;        /* the mean of what was told; NAN: nothing was; INFINITY: it failed */
    uint32_t count;   /* how often a time was told */
    uint32_t waiting; /* results that are on their way */
    bool open;        /* it may be asked (again) */
} ef_tune_time;

typedef struct {
    uint32_t params;
    ef_intern *choice; /* ids are points */
    EF_VEC(ef_tune_time) time;
    uint32_t elite[EF_TUNE_ELITE], elites; /* points, best first */
    uint32_t former_best;                  /* what elite[0] took the place of; UINT32_MAX: nothing */
    uint32_t worked, failed, open;         /* how many points did, or are */
    uint32_t in_vain;                      /* how many were told since the best got better */
} ef_tune_points;

void ef_tune_points_init(ef_tune_points *points, uint32_t params);
void ef_tune_points_free(ef_tune_points *points);
/* The point of a choice, which is not open from now on; `fresh` (may be NULL): it was, or is new. */
uint32_t ef_tune_points_take(ef_tune_points *points, const uint32_t *choice, int *fresh);
/* Whether a choice may be asked: it is new, or open. */
bool ef_tune_points_askable(const ef_tune_points *points, const uint32_t *choice);
const uint32_t *ef_tune_points_choice(const ef_tune_points *points, uint32_t point);
/* A time of a point, again and again: the mean counts. INFINITY counts for points that nothing else was told of. */
void ef_tune_points_tell(ef_tune_points *points, uint32_t point, double us);
void ef_tune_points_open(ef_tune_points *points, uint32_t point);
/* Forgets times, which makes points open; failures stay. */
void ef_tune_points_forget(ef_tune_points *points);
/* How many points are not open. */
uint32_t ef_tune_points_taken(const ef_tune_points *points);
/* Of the best point; INFINITY: there is none. */
double ef_tune_points_best(const ef_tune_points *points);

#endif
