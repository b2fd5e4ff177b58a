/* Plans: an optimised module, ready to run, and the `.efz` files that hold one (design, sections 1 and 10).
 *
 * A plan is a module (frontend/module.h) whose regions have an implementation each: code for the target, the schedule
 * it was printed with, what was measured, and why it equals the region as it was given. Weights are not part of it:
 * they stay with the module, whose names and shapes the plan has.
 *
 * The optimising driver makes a plan with ef_plan_new, fills in its regions and writes it; everyone else reads one.
 * docs/efz.md describes the file. Reading one runs nothing of it. */
#ifndef EF_PLAN_PLAN_H
#define EF_PLAN_PLAN_H

#include "frontend/module.h"
#include "search/derive.h"

#define EF_PLAN_VERSION 1 /* of the file */

/* An implementation. Several steps may have the same one: its inputs and outputs are taken in order, so names do not
 * matter. Times are microseconds, of one call with the inputs in no cache; warm_us with the same inputs again. */
typedef struct {
    const char *program;   /* the region as it was given, in text form */
    const char *candidate; /* what it was replaced by, in text form; equal to `program` by the derivation */
    const char *language;  /* "c", "triton"; "torch": as it was given, by PyTorch, since nothing could be measured */
    const char *kept;      /* why nothing could be measured; NULL: it was, or the file does not say why */
    const char *source;    /* a whole file */
    const char *entry;     /* the function in it */
    const char *schedule;  /* "k0.m.0=16 k0.k.1=64" */
    const char *device;    /* who measured, with versions */
    uint32_t threads;      /* of a CPU that it was measured with; 0: none */
    uint32_t kernels, families;
    uint64_t candidates, measured;             /* found by the search; implementations that were timed */
    bool original;                             /* nothing faster than the program as it was given was found */
    double us, warm_us, original_us, floor_us; /* 0: not known */
    double rel_l2; /* the largest relative L2 error against float64, over all distributions of inputs */
    uint32_t equations;
    const ef_equation *equation; /* the derivation; none: not derived, or `candidate` is `program` itself */
} ef_plan_region;

/* As ef_mstep, with the number of a region in place of its program. */
typedef struct {
    ef_mstep_kind kind;
    uint32_t region;
    uint32_t ins, outs;
    const uint32_t *in, *out;
    const char *target, *arguments, *results, *reason;
} ef_plan_step;

typedef struct ef_plan {
    const char *name;
    const char *target;  /* "cpu", "h200": what was optimised for */
    const char *version; /* of EquiForge */
    double elapsed_s;    /* of the optimisation */
    uint32_t values, steps, regions, outputs, mutations, user_inputs;
    const ef_mvalue *value; /* `entry` and `source` are those of the module's archive; NULL and EF_NONE when read */
    ef_plan_step *step;
    ef_plan_region *region;
    const ef_moutput *output;
    const ef_mmutation *mutation;
    const char *in_spec, *out_spec; /* NULL: the module was a program in text form */
    ef_arena *arena;                /* owns everything; whoever fills in a region puts its strings here */
} ef_plan;

/* A plan with one region for each step that is one; the caller fills in all but `program`. Regions that have the same
 * implementation may be made one: set `region` of the steps, then call ef_plan_compact. Copies all that it needs. */
ef_plan *ef_plan_new(const ef_module *module, const char *target);
/* Drops the regions that no step has. */
void ef_plan_compact(ef_plan *plan);
void ef_plan_free(ef_plan *plan);

/* Whether a plan is whole and consistent: every value is defined once and before it is used, the programs are
 * well-typed and have the types of their steps' values, implementations have the types of their programs. */
bool ef_plan_check(const ef_plan *plan, ef_diag *diag);
/* The same but for the regions, which have no implementations yet. */
bool ef_plan_check_module(const ef_plan *plan, ef_diag *diag);
/* Writes a checked plan, whole or not at all. */
bool ef_plan_write(const ef_plan *plan, const char *path, ef_diag *diag);
/* Reads and checks a file. NULL and one line "FILE: what is wrong". */
ef_plan *ef_plan_read(const char *path, ef_diag *diag);

#endif
