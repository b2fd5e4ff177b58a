/* The tuner: which schedule of which family to measure next (paper, section 6.3; design, section 8).
 *
 * Ask and tell: it never measures anything. It knows a family as a list of parameters, each with a number of values in
 * an order in which neighbours resemble each other, and an owner: one kernel, or none where the parameter shapes stored
 * buffers. A CHOICE is one value, by number, for each parameter: a schedule. A POINT is a choice that was asked or
 * told. Same seed, same calls: same answers.
 *
 * Whole schedules are asked, but kernels are tuned: a result says what each kernel took, so one measurement tries
 * another schedule of several kernels at once, and what is found for a kernel serves every family that has it
 * (assemble.h). How a kernel chooses its next schedule: propose.h. Kernels that do not say what they took are changed
 * one at a time.
 *
 * Families compete by what they may come to, not by what they took: the sum over kernels of the best time so far, less
 * what trying may still save of it, which is the more the farther it is above what the kernel is estimated to take, the
 * less it was tried, and the more measurements are left. The family of the least sum is asked (optimism in the face of
 * uncertainty; Lai and Robbins, 1985): none is dropped, but once its optimistic sum cannot win it gets nothing more. A
 * kernel that was never measured promises what it is estimated to take, by how far estimates of others were off;
 * results that are awaited count as tries, so that asks far ahead spread. The first ask is of the first family. A
 * family of which the first few schedules fail, and none worked, comes after all others, however fast its kernels are
 * in these. What is returned was measured as a whole.
 *
 * Some parameters are JOINT: when a kernel begins is for the one before it as much. No kernel's own times tell what is
 * best for all. So the last measurements, a tenth of all at most, go to the best whole schedule with other values of
 * these, of all kernels alike and of one; and so do some before it ends because nothing got better for long. */
#ifndef EF_TUNE_TUNER_H
#define EF_TUNE_TUNER_H

#include <stdbool.h>
#include <stdint.h>

typedef struct ef_tuner ef_tuner;

#define EF_TUNE_NEVER 1e12 /* microseconds */

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
    const bool *joint;             /* by parameter: it does as much to the kernels beside its own; NULL: none does */
    bool hiding; /* kernels hide each other: their times are other ones than those of families whose kernels do not */
    /* What a kernel is thought to take under a schedule, in microseconds, EF_TUNE_NEVER or more: it is not worth
     * trying; `room`: what it needs of what there is of memory, as a part; 0: not known. NULL: nothing is known. */
    double (*cost)(const void *user, uint32_t kernel, const uint32_t *choice, double *room);
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
/* A failure of an earlier run: as in ef_tuner_fail. */
bool ef_tuner_known_failure(ef_tuner *tuner, uint32_t family, const uint32_t *choice, uint32_t kernel, bool no_room);
/* Looks for cheap schedules of all kernels now, which the first ask does otherwise. */
void ef_tuner_survey(ef_tuner *tuner);
/* A family's kernels are what `identity` says, from now on: what was told of its schedules is forgotten, and they may
 * be asked again; what was asked is told of the new ones. Nothing happens when they are what they were. */
void ef_tuner_change_kernels(ef_tuner *tuner, uint32_t family, const uint64_t *identity);
/* How many more measurements can be afforded: what can still be tuned depends on that. 400 unless told. */
void ef_tuner_expect(ef_tuner *tuner, uint64_t measurements);
ef_ask ef_tuner_ask(ef_tuner *tuner, ef_tune_point *point);
/* The result of an ask: microseconds, INFINITY for a failure; `number` is the point's ticket. Each once, in any order.
 * `kernel_us`: what each kernel took; NULL when that is not known. */
void ef_tuner_tell(ef_tuner *tuner, uint64_t number, double us, const double *kernel_us);
/* Instead of a result: it failed because of one kernel, UINT32_MAX: not known which; `no_room`: for want of registers
 * or shared memory. The schedules of its other kernels are tried again with another one of this. */
void ef_tuner_fail(ef_tuner *tuner, uint64_t number, uint32_t kernel, bool no_room);
/* The best point told or known; false when none succeeded. */
bool ef_tuner_best(const ef_tuner *tuner, ef_tune_point *point, double *us);
/* What should be measured once more before one is chosen, at most `room` points: the best ones, and of each family that
 * has one its kernels' best schedules together, which was perhaps never measured as a whole, at most half of
 * them such; what should take least first. Returns how many. */
uint32_t ef_tuner_finalists(ef_tuner *tuner, uint32_t room, ef_tune_point *point, double *us);
/* Families that may still become the best. */
uint32_t ef_tuner_left(ef_tuner *tuner);

#endif
