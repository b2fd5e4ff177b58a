/* The measuring side of the CPU worker: one program's inputs, references and timing (design, sections 7 and 8).
 *
 * Inputs are drawn in several distributions. References are the program in float64: the evaluator's where it takes no
 * time, else the program as the C generator prints it with every float an f64, one kernel an operator; the evaluator
 * works element by element and would take minutes. The program as it is, in its own types, is the baseline: its time
 * is what candidates are compared with, its error bounds theirs.
 *
 * The time that counts is COLD: calls go round over copies of the inputs that are together larger than the last cache,
 * and the median counts. WARM is the same copy again and again. */
#ifndef EF_TUNE_BENCH_H
#define EF_TUNE_BENCH_H

#include "codegen/verify.h"

typedef struct ef_bench ef_bench;

typedef struct {
    double us;                   /* cold, of the program as it is */
    double error[EF_DRAW_COUNT]; /* relative L2, by distribution */
    uint32_t draws;              /* distributions in use: memory may not hold all */
    double bandwidth;            /* bytes a second that reading memory gives */
} ef_bench_baseline;

typedef struct {
    double us, warm_us;
    double rel_l2; /* the largest, of all distributions */
    ef_draw draw;  /* where that was */
} ef_bench_timing;

typedef enum { EF_BENCH_FINE, EF_BENCH_WRONG, EF_BENCH_LOAD, EF_BENCH_MEMORY } ef_bench_status;

/* Prepares a program in text form. NULL and a message when it cannot be run here. */
ef_bench *ef_bench_new(const char *text, size_t length, uint32_t threads, uint64_t seed, ef_bench_baseline *baseline,
                       ef_diag *diag);
void ef_bench_free(ef_bench *bench);

/* Loads a compiled program with this entry (ef_cpu_print writes such files), checks it against the references where
 * `verify`, and times it with at least `repeat` calls; fewer when it is far slower than `best_us` (0: no best yet). */
ef_bench_status ef_bench_measure(ef_bench *bench, const char *artifact, const char *entry, uint32_t repeat, bool verify,
                                 double best_us, ef_bench_timing *timing, ef_diag *diag);

#endif
