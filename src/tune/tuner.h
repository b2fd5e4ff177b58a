/* The tuner: which schedule of which family to measure next (paper, section 6.3; design, section 8).
 *
 * Ask and tell: it never measures anything. It knows a family as a list of parameters, each with a number of values in
 * an order in which neighbours resemble each other, and an owner: one kernel, or none where the parameter shapes stored
 * buffers. Same seed, same calls: same answers.
 *
 * Whole schedules are asked, but kernels are tuned: a result says what each kernel took, so one measurement tries
 * another schedule of several kernels at once, and what is found for a kernel serves every family that has it
 * (assemble.h). A kernel's next schedule is a local change of its best one, a mutation of one of the best few, or
 * random (propose.h). Kernels that do not say what they took are changed one at a time.
 *
 * Successive halving (Jamieson and Talwalkar, 2016): rounds, in each of which every family left gets the same number of
 * measurements; the better half goes on, and with it a few that the static estimate likes best. What a family is worth
 * is the sum of its kernels' best times and what it takes beside them, not its first schedule's time; what was tried
 * little is taken to be worth more. A family of which the first few schedules fail, and none worked, comes after all
 * others, however fast its kernels are in these. What is returned was measured as a whole. */
#ifndef EF_TUNE_TUNER_H
#define EF_TUNE_TUNER_H

#include <stdbool.h>
#include <stdint.h>

typedef struct ef_tuner ef_tuner;

typedef struct {
    uint32_t params;
    const uint32_t *values; /* by parameter: how many values it has, at least 1 */
    const uint32_t *owner;  /* by parameter: its kernel, UINT32_MAX: it shapes stored buffers */
    const uint32_t *start;  /* by parameter: the value to begin with */
    double estimate;        /* optimistic latency in any unit; lower is better */
    /* Of kernels; 0 kernels: as many as there are owners, of which nothing else is known. */
    uint32_t kernels;
    const uint64_t *identity;      /* kernels that have the same are one, with the same parameters in the same order */
    const double *kernel_estimate; /* optimistic latency in microseconds; 0: not known */
    const bool *uses;              /* kernel * params + parameter: it depends on this parameter that shapes buffers … */
    const uint64_t *key;           /* … which is, by parameter, this one in whatever family */
    /* Whether a kernel is worth trying under a schedule; NULL: it always is. */
    bool (*fits)(const void *user, uint32_t kernel, const uint32_t *choice);
    const void *user; /* lives as long as the tuner */
} ef_tune_space;

typedef struct {
    uint64_t ticket;
    uint32_t family;
    const uint32_t *choice; /* by parameter; valid as long as the tuner */
} ef_tune_point;

typedef enum {
    EF_ASK_POINT,
    EF_ASK_WAIT, /* not before more is told */
    EF_ASK_DONE  /* nothing is left, or nothing got better for long */
} ef_ask;

ef_tuner *ef_tuner_new(uint64_t seed);
void ef_tuner_free(ef_tuner *tuner);
/* Adds a family before the first ask; they are numbered from 0. */
uint32_t ef_tuner_add(ef_tuner *tuner, const ef_tune_space *space);
/* A result of an earlier run, INFINITY for a failure: it is not asked again. False when it is none of the family's. */
bool ef_tuner_known(ef_tuner *tuner, uint32_t family, const uint32_t *choice, double us, const double *kernel_us);
/* A family's kernels are what `identity` says, from now on: what was told of its schedules is forgotten, and they may
 * be asked again; what was asked is told of the new ones. Nothing happens when they are what they were. */
void ef_tuner_renew(ef_tuner *tuner, uint32_t family, const uint64_t *identity);
/* How many more measurements can be afforded: divides what is left among the rounds. 400 unless told; a family gets one
 * in the first round then, and several when it is told that they fit. */
void ef_tuner_expect(ef_tuner *tuner, uint64_t measurements);
ef_ask ef_tuner_ask(ef_tuner *tuner, ef_tune_point *point);
/* The result of an ask: microseconds, INFINITY for a failure; `number` is the point's ticket. Each once, in any order.
 * `kernel_us`: what each kernel took; NULL when that is not known. */
void ef_tuner_tell(ef_tuner *tuner, uint64_t number, double us, const double *kernel_us);
/* The best point told or known; false when none succeeded. */
bool ef_tuner_best(const ef_tuner *tuner, ef_tune_point *point, double *us);
/* The best points, at most `room`, best first. Returns how many. */
uint32_t ef_tuner_top(const ef_tuner *tuner, uint32_t room, ef_tune_point *point, double *us);
/* Families that still take part in the current round. */
uint32_t ef_tuner_left(const ef_tuner *tuner);

#endif
