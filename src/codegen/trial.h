/* A trial of a program on this machine: kernels, C, compiler, run, time, check (design, sections 7 and 12). */
#ifndef EF_CODEGEN_TRIAL_H
#define EF_CODEGEN_TRIAL_H

#include "codegen/oracle.h"

typedef struct {
    const char *dims;  /* "s=64,d=16": extents of named dimensions instead of the program's; NULL: none */
    const char *tiles; /* "s.1=64,h.0=1": tile extents instead of the default's; NULL: none */
    uint32_t repeat;   /* timed calls, 0: none */
    uint32_t threads;  /* 0: all processors */
    uint64_t seed;
    bool check;
} ef_trial_options;

typedef struct {
    double us;     /* median */
    double rel_l2; /* the largest over all draws, when checked */
    uint32_t draw; /* where it was largest beside what it may be */
    uint32_t kernels;
    uint64_t family;
    ef_strbuf source; /* the program as C, without the support code; freed by the caller */
} ef_trial_result;

typedef enum { EF_TRIAL_FINE, EF_TRIAL_FAILED, EF_TRIAL_BAD_INPUT } ef_trial_status;

/* The extents of the program's context are as before when this returns. */
ef_trial_status ef_trial(const ef_program *program, const ef_trial_options *options, ef_trial_result *result,
                         ef_diag *diag);

#endif
