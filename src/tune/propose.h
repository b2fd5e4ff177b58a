/* The schedules of one kernel: what was tried, what to try next, and what it may come to. Private to the tuner; see
 * tuner.h.
 *
 * Where schedules have a cost (tuner.h), a proposal is the most promising of many draws: what a schedule costs, times
 * how far off costs were of the schedules like it that were measured, less what is not known of it: a surrogate, as in
 * sequential model-based optimisation (Hutter, Hoos and Leyton-Brown, 2011). Draws are steps from the best ones, and
 * the cheapest schedules that a random walk over costs came by. Without costs a proposal is one such step. */
#ifndef EF_TUNE_PROPOSE_H
#define EF_TUNE_PROPOSE_H

#include "support/rng.h"
#include "tune/points.h"

/* Asks what schedules of the kernel cost. */
typedef struct {
    /* As in ef_tune_space; NULL: nothing is known. */
    double (*cost)(const void *user, uint32_t kernel, const uint32_t *choice, double *room);
    const void *user;
    uint32_t kernel, *choice; /* a whole schedule of a family, with parameters that shape buffers set; the kernel's */
    uint32_t *place;          /* where in it the kernel's own parameters are */
} ef_tune_judge;

typedef struct {
    double us;   /* 0: not known */
    double room; /* as in ef_tune_space */
} ef_tune_cost;

typedef struct {
    uint32_t params, *values, *start;
    uint32_t *scratch; /* a choice being made */
    bool *neutral;     /* by parameter: costs do not depend on it, as far as is known */
    double size;       /* how many choices there are */
    double estimate;   /* of the best schedule, microseconds or whatever unit; 0: not known */
    ef_tune_judge judge;
    ef_tune_points points;
    EF_VEC(ef_tune_cost) cost; /* by point */
    EF_VEC(uint32_t) cheap;    /* choices of few costs, the cheapest first; `params` numbers each */
    EF_VEC(double) cheap_us;   /* what they cost */
    double room_limit;         /* schedules that need so much room are taken to fail for it */
    uint32_t room_failed;      /* how many did … */
    uint32_t shrunk;           /* … of which each needed less than those before */
    bool surveyed;
} ef_tune_kernel;

/* What is known of kernels in general. */
typedef struct {
    double off; /* how far times are from estimates, a factor: of the middle one of the kernels that were measured … */
    double low; /* … and a low one: kernels that were tried little are still far from what they may come to */
    double tries; /* that a kernel may still get, about */
} ef_tune_outlook;

/* `values`, `start`: by parameter; copied. The judge's lists become the kernel's. */
ef_tune_kernel *ef_tune_kernel_new(uint32_t params, const uint32_t *values, const uint32_t *start, double estimate,
                                   const ef_tune_judge *judge);
void ef_tune_kernel_free(ef_tune_kernel *kernel);
/* Another judge; its lists become the kernel's. */
void ef_tune_kernel_judge(ef_tune_kernel *kernel, const ef_tune_judge *judge);
/* The point of a choice. */
uint32_t ef_tune_kernel_point(ef_tune_kernel *kernel, const uint32_t *choice, int *fresh);
/* What it took; INFINITY: it failed, whatever for. */
void ef_tune_kernel_tell(ef_tune_kernel *kernel, uint32_t point, double us);
/* It failed because there was no room for it. */
void ef_tune_kernel_no_room(ef_tune_kernel *kernel, uint32_t point);
/* Looks for cheap schedules, once; whatever asks for what it may come to does so as well. */
void ef_tune_kernel_survey(ef_tune_kernel *kernel);
/* Whether everything was tried. */
bool ef_tune_kernel_dry(const ef_tune_kernel *kernel);
/* Whether it failed several times and never worked, or there is no room for any schedule. */
bool ef_tune_kernel_hopeless(ef_tune_kernel *kernel);
/* A point to try, which counts as tried from now on; false: none was found. */
bool ef_tune_propose(ef_tune_kernel *kernel, ef_rng *rng, uint32_t *point);
/* The best point; else one that is on its way; UINT32_MAX: there is neither. */
uint32_t ef_tune_kernel_current(const ef_tune_kernel *kernel);
/* What it may come to. 0: nothing is known. */
double ef_tune_kernel_promise(ef_tune_kernel *kernel, const ef_tune_outlook *outlook);
/* Another value of `old` among `values`, at least 2: a step of 1, now and then 2, or any other of a small domain. */
uint32_t ef_tune_neighbour(uint32_t old, uint32_t values, bool up, ef_rng *rng);

#endif
