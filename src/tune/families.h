/* From a program to the families that are worth measuring: search, extraction, kernel graphs, one entry for every
 * distinct execution structure (paper, sections 6.1 and 6.2). The program itself, one kernel an operator, is always the
 * first one. */
#ifndef EF_TUNE_FAMILIES_H
#define EF_TUNE_FAMILIES_H

#include "kernel/schedule.h"
#include "target/cost.h"
#include "target/rank.h"
#include "tune/gather.h"
#include "tune/tuner.h"

typedef struct {
    ef_kgraph *graph;
    uint64_t hash;    /* of the structure as text: the same in every process */
    double estimate;  /* microseconds: on a GPU under the first schedule, else optimistic */
    uint32_t *values; /* by parameter: how many values it has */
    uint32_t *owner, *start;
    uint64_t (*domain)[EF_SCHEDULE_VALUES];
    uint64_t *identity;      /* by kernel: equal kernels of all families have one */
    double *kernel_estimate; /* by kernel: the same; 0: not known */
    bool hiding;             /* kernels hide each other, under the first schedule (ef_kernels_hide) */
    bool *uses;              /* kernel * parameters + parameter: it depends on this one, which shapes buffers */
    uint64_t *key;           /* by parameter that shapes buffers: which it is in all families */
    bool *joint;             /* by parameter: it does as much to the kernel before its own (EF_PARAM_OVERLAP) */
    const ef_target *target; /* NULL: nothing is known of the device */
    ef_schedule schedule;    /* the one to start with */
    ef_cost **cost;          /* by kernel, on a GPU; NULL elsewhere */
    ef_schedule scratch;     /* one whose cost is asked */
    const ef_expr *output;   /* of the candidate, in `dag` */
    ef_dag *dag;
} ef_family;

typedef struct {
    const ef_program *program;
    ef_arena *arena;
    ef_gathered *gathered; /* NULL: nothing was searched */
    EF_VEC(ef_family) list;
    uint64_t candidates; /* that extraction found, in all searches */
    bool whole;          /* with more time, and more families to keep, there would be none but these */
} ef_families;

typedef struct {
    double saturation_s, extraction_s, ranking_s; /* limits; ranking 0: as long as it takes */
    uint32_t keep;                                /* families at most */
    ef_backend backend;
    uint32_t threads;
    const char *target; /* whose model ranks families; NULL: the order of extraction stands */
} ef_families_options;

/* NULL and a message when not even the program itself has a kernel graph. A search that fails leaves the program
 * alone; `diag` says why then. */
ef_families *ef_families_new(const ef_program *program, const ef_families_options *options, ef_diag *diag);
void ef_families_free(ef_families *families);

/* What the tuner has to know of a family; valid as long as the family. Costs use memory of the family: they are asked
 * by one thread at a time. */
ef_tune_space ef_family_space(const ef_family *family);
/* Stores its temporaries in f32 from now on, which makes it and its kernels others; false when it does already. */
bool ef_family_widen(ef_family *family);
/* The hash that it has when it is widened. */
uint64_t ef_family_wide_hash(const ef_family *family);
/* The schedule of a choice. Freed by ef_schedule_free. */
ef_schedule ef_family_schedule(const ef_family *family, const uint32_t *choice);
/* A schedule as text, "k0.m.0=16 k0.k.1=64", what there is to choose only; and back. False when the text is of another
 * family. */
void ef_family_print(const ef_family *family, const uint32_t *choice, ef_strbuf *out);
bool ef_family_parse(const ef_family *family, const char *text, uint32_t *choice);
/* The candidate as a program in text form. */
void ef_family_program(const ef_families *families, uint32_t family, ef_strbuf *out);

#endif
