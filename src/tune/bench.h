/* The measuring side of the CPU worker: one program's inputs, references and timing (design, sections 7 and 8).
 *
 * Inputs are drawn in several distributions, at the program's own sizes. References are the program in float64: the
 * evaluator's where it takes no time, else the program as the C generator prints it with every float an f64, one kernel
 * an operator. Where that takes long they are of a sample of the outputs (sample.h), and candidates must agree besides
 * with all that the program as it is computes from the first distribution: as far as both may be off. The program as it
 * is, in its own types, is the baseline: its time is what candidates are compared with, its error bounds theirs.
 *
 * The time that counts is COLD: calls go round over copies of the inputs that are together larger than the last cache,
 * and the median counts. WARM is the same copy again and again. Both cost more than a candidate far from the best is
 * worth: it is called once or twice. */
#ifndef EF_TUNE_BENCH_H
#define EF_TUNE_BENCH_H

#include "codegen/verify.h"

typedef struct ef_bench ef_bench;

typedef struct {
    const char *text; /* the program's */
    size_t length;
    uint32_t threads; /* 0: as many as there are processors */
    uint64_t seed;    /* of inputs and samples */
    double seconds;   /* that the baseline may take, about; 0: as many as it takes */
    double end_s;     /* after which nothing but the program as it is will be measured; 0: there is no such end */
    double known_us;  /* the baseline's time, when it is known already; else 0 */
} ef_bench_options;

typedef struct {
    double us;                   /* cold, of the program as it is */
    double error[EF_DRAW_COUNT]; /* relative L2, by distribution */
    uint32_t draws;              /* distributions in use: memory may not hold all, time not suffice for all */
    double bandwidth;            /* bytes a second that reading memory gives */
    bool late;                   /* time was over after the first distribution: no candidate can be checked */
    bool estimated;              /* a call takes too long: its time is estimated from the sample's, roughly */
    double sample;               /* the part of the work that exact results were computed of; 1: of all */
} ef_bench_baseline;

/* How a candidate is measured. One that comes near `best_us` is checked on all distributions; one that is far behind is
 * called once or twice. */
typedef struct {
    uint32_t repeat; /* calls, at least … */
    double seconds;  /* … unless they take longer, about; 0: any time */
    double best_us;  /* 0: there is no best yet */
    uint32_t check;  /* distributions at least, the first ones; 0: it is not checked at all */
    bool kernels;    /* what each kernel takes is wanted */
    bool against;    /* the program as it is is called in turns with it, unless that takes too long */
} ef_bench_how;

#define EF_BENCH_KERNELS 128u /* whose times are told, of one program */

typedef struct {
    double us, warm_us;
    double rel_l2;     /* the largest, of all distributions that were checked */
    ef_draw draw;      /* where that was */
    uint32_t checked;  /* distributions */
    double against_us; /* cold, of the program as it is, in turns; 0: it was not called */
    uint32_t kernels;  /* whose times are known */
    double kernel_us[EF_BENCH_KERNELS];
} ef_bench_timing;

typedef enum { EF_BENCH_FINE, EF_BENCH_WRONG, EF_BENCH_LOAD, EF_BENCH_MEMORY } ef_bench_status;

/* How long exact results of a program on one distribution should take, roughly: those of its smallest sample. */
double ef_bench_reference_s(const char *text, size_t length, uint32_t threads);

/* Prepares a program in text form. NULL and a message when it cannot be run here, or not in time. */
ef_bench *ef_bench_new(const ef_bench_options *options, ef_bench_baseline *baseline, ef_diag *diag);
void ef_bench_free(ef_bench *bench);

/* Loads a compiled program with this entry (device.c prints such files), compares it with the references and times it.
 */
ef_bench_status ef_bench_measure(ef_bench *bench, const char *artifact, const char *entry, const ef_bench_how *how,
                                 ef_bench_timing *timing, ef_diag *diag);

#endif
