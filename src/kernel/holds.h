/* Where a condition of a kernel holds, as far as it follows from positions: by intervals. */
#ifndef EF_KERNEL_HOLDS_H
#define EF_KERNEL_HOLDS_H

#include "kernel/kernel.h"

#define EF_HOLDS_VARS 8u

/* In this order: less than, or as much as. */
typedef enum { EF_HOLDS_NEVER, EF_HOLDS_SOMETIMES, EF_HOLDS_ALWAYS } ef_holds;

/* Positions along a variable, the last one included. */
typedef struct {
    ef_var var;
    double from, to;
} ef_span;

/* What is looked at: all positions along variables of which there is no span. */
typedef struct {
    const ef_kgraph *graph;
    unsigned spans;
    ef_span span[EF_HOLDS_VARS];
    uint32_t visits, most_visits; /* of nodes: beyond, nothing is known */
} ef_positions;

/* Whether a node, a truth value, holds at these positions. SOMETIMES also where it is not known. */
ef_holds ef_positions_hold(ef_positions *at, const ef_kernel *kernel, ef_kid id);
/* Whether an iteration of the loop does something there: one of its conditions (ef_kloop.keep) holds. Conditions it has
 * none of: ALWAYS. */
ef_holds ef_loop_holds(ef_positions *at, const ef_kernel *kernel, const ef_kloop *loop);
/* The variables whose positions such conditions depend on; of more than EF_HOLDS_VARS the first ones. Returns how many.
 */
unsigned ef_loop_positions(const ef_kgraph *graph, const ef_kernel *kernel, const ef_kloop *loop,
                           ef_var var[EF_HOLDS_VARS]);

#endif
