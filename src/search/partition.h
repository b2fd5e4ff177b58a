/* Partition of large programs (paper, section 5.2; design, section 9).
 *
 * A program that is too large for one search is cut into PARTS: intervals of its operators in the program's order, so
 * parts are convex and run one after the other; what falls apart inside an interval is several parts. Each part is a
 * program of its own, whose inputs are inputs of the whole and results of parts before it, all of them stored tensors.
 * Views and casts of inputs, and what is made of positions and literals alone, cost nothing and belong to every part
 * that uses them.
 *
 * The order is the program's, but for operators that make much of little, as a mixture of streams by few coefficients:
 * they stand right before what needs them, so that a cut between stores the little.
 *
 * A partition puts at most `limit` products and reductions of long dimensions into one part, and of all such cuts it is
 * the one of least estimated time: for each part its arithmetic, the bytes that it reads and writes, and a launch. What
 * crosses a cut counts however much arithmetic there is: a search may find less of that, as where keys that are
 * projections of a cache need not be computed. Several limits give several partitions. Parts that are the same up to
 * the names of inputs and dimensions, as the layers of a model are, need one search (`like`).
 *
 * COMPOSITION chooses one candidate for each part, best first by the sum of their costs, and builds no combination that
 * is not asked for. The result is one tiled program, so all that comes after a search takes it as any other. */
#ifndef EF_SEARCH_PARTITION_H
#define EF_SEARCH_PARTITION_H

#include "ir/expr.h"
#include "support/vec.h"

typedef struct {
    const uint32_t *limits; /* of reductions and products in a part, one partition each; NULL: 4, 6, 8, 16, 32 */
    unsigned count;
    double flops, bytes; /* a second, 0: 2e14 and 2e12 */
    double launch;       /* seconds, 0: 3e-6 */
} ef_partition_options;

typedef struct {
    ef_program *program;
    ef_expr *input;  /* of the whole program: what each input of the part stands for, in order */
    ef_expr *output; /* … and each output */
    uint32_t heavy;  /* reductions and products */
    double seconds;  /* estimated */
    uint32_t like;   /* the first part that is the same up to renaming: its own index when it is the first */
    uint32_t vars;   /* named variables in the order of their first use, which is that of the part it is like */
    ef_var *var;
} ef_part;

typedef struct {
    uint32_t limit, parts, *part; /* indices into ef_partitions.part, in an order in which they can run */
    double seconds;
} ef_partition;

typedef struct {
    const ef_program *program; /* not owned */
    EF_VEC(ef_part) part;
    EF_VEC(ef_partition) list; /* the least estimated time first; different ones only */
    ef_arena *arena;
} ef_partitions;

/* Never fails: a program of few operators has one partition, which is itself. */
ef_partitions *ef_partition_program(const ef_program *program, const ef_partition_options *options);
void ef_partitions_free(ef_partitions *set);

/* ---- composition ---- */

/* A candidate of a part: one expression per output of the part, of the same types, over the part's inputs. */
typedef struct {
    const ef_dag *dag;
    const ef_expr *output;
    double cost;
} ef_part_candidate;

typedef struct ef_composer ef_composer;

/* The combinations of one partition. Candidates are offered once a distinct part (`like`), the cheapest first. */
ef_composer *ef_composer_new(const ef_partitions *set, uint32_t partition);
void ef_composer_offer(ef_composer *composer, uint32_t part, const ef_part_candidate *candidates, uint32_t count);
/* The next combination: the index of a candidate for each part of the partition, in its order. False when there are no
 * more, or some part has no candidate. *cost is their sum. */
bool ef_composer_next(ef_composer *composer, uint32_t *choice, double *cost);
uint64_t ef_composer_built(const ef_composer *composer); /* combinations that were built so far */
/* The program of a combination, in the context of the whole. NULL and a message when a candidate does not fit. */
ef_program *ef_composer_program(const ef_composer *composer, const uint32_t *choice, ef_diag *diag);
void ef_composer_free(ef_composer *composer);

/* partition_same.c, for the parts above. Describes a part so that parts which are the same up to renaming have the same
 * description, and lists its named variables in order. */
void ef_part_describe(const ef_program *program, ef_strbuf *out, ef_var *var, uint32_t *vars, uint32_t most);
/* Copies e into `to`; inputs become what `input` says (by input id), variables what `var` does (EF_NONE: themselves).
 */
typedef struct {
    ef_dag *to;
    uint32_t vars;
    const ef_var *from_var, *to_var;
    uint32_t inputs;
    const uint32_t *from_input;
    const ef_expr *to_input;
} ef_part_translation;
ef_expr ef_part_translate(const ef_part_translation *t, const ef_dag *dag, ef_expr e, ef_diag *diag);

#endif
