/* Extraction with early compaction (paper, section 5.1, Algorithm 1; design, section 6).
 *
 * A program is a set of KERNELS, one for every tensor that it stores. A kernel picks one e-node for every class that it
 * computes, down to the tensors that it loads. Both are enumerated by Algorithm 1: partial kernels and partial programs
 * with holes, expanded one hole at a time, best first by an optimistic cost. Each partial kernel is tested for
 * equivalence (~p) with those already seen before it is expanded. Partial programs need no such test: the kernels of a
 * tensor are distinct up to ~, and which hole comes next follows from the partial program, so two of them differ in the
 * kernel of some tensor.
 *
 * A CANDIDATE is a complete program, up to ~, that no other one makes needless. Of a kernel, all of this is true:
 *  - its pointwise expressions have the least arithmetic of all that use the same values, or fewer;
 *  - of a fused reduction all parts are used, of a repaired one the consumer's, or the tuple as a whole is;
 *  - independent reductions over one axis run in one loop, where the e-graph has that loop;
 *  - a dimension that a tile may hold whole is not looped over;
 *  - in what is summed over a loop no factor is the same at all coordinates of the axis: it stands outside of the sum;
 *  - nothing is a view at a coarser grid of what the kernel can compute at its own;
 *  - the operands and results of products fit into a block of the device, where that is known, at the smallest tiles;
 *  - a reduction of a small dimension (at most 32 elements) is not loaded where its operand is at hand, nor does the
 * grid cut that dimension;
 *  - no other kernel of the same tensor dominates it: loads no other stored tensors, and is nowhere worse, and
 * somewhere better, in bytes loaded (every block and every pass of a loop counts), in arithmetic, in the largest tile
 * that a block holds and in the number of blocks, at small tiles and at large ones. And of a program:
 *  - a value that a kernel stores is loaded wherever a kernel may load it, never computed or stored again, and of
 * values that are pointwise functions of one another one is stored;
 *  - elements that one move of stored tensors brings where they are wanted are not moved twice; a kernel does not give
 * its result another shape that what it stores can be given for nothing;
 *  - no kernel only copies, or only computes pointwise from as many stored values as it stores;
 *  - what one kernel stores and one other loads at the same coordinates is fused into that one, unless both contract;
 * and what is only used in a pointwise expression that could be stored in its place, is not stored;
 *  - of a stored tuple all fields are loaded, and all are cut along the same axes, but for the state of a repaired one;
 *  - no other program dominates it, in the sums of those measures over all kernels, in the sums of what one block does
 * in each, and in the number of kernels. `complete` means that all candidates of the e-graph, so defined, were
 * enumerated, and that there are some.
 *
 * The equivalence ~ identifies operand order and grouping of commutative pointwise operators, and the spellings of one
 * parallel view (a view of a transposed tensor or the transposed view). It keeps apart different matmul structures,
 * reduction organisations and stored intermediates, and cancels nothing. */
#ifndef EF_SEARCH_EXTRACT_H
#define EF_SEARCH_EXTRACT_H

#include "search/saturate.h"

typedef enum { EF_COMPACT_NONE, EF_COMPACT_AFTER, EF_COMPACT_EARLY } ef_compaction;

/* What things cost at least, in microseconds: the order in which candidates are looked for and returned. All 0: a
 * generic GPU. Which candidates there are does not depend on it. */
typedef struct {
    double byte, flop, kernel; /* of memory traffic, of products; a launch */
    double block_byte;         /* of what one block loads, which few blocks cannot all hide; 0: nothing */
} ef_rates;

typedef struct {
    ef_compaction compaction;
    double time_limit;    /* seconds, 0: 60 */
    uint64_t state_limit; /* expanded partial programs, 0: none */
    uint32_t keep;        /* programs to build, the most promising ones; 0: none, only count */
    ef_rates rates;
    double room;         /* bytes that a block has for a tile; 0: any. What a product takes whole must fit */
    size_t memory_limit; /* bytes of queued partial programs and of signatures, 0: 4 GiB */
} ef_extract_options;

typedef struct {
    ef_expr *output;   /* in ef_extraction.dag, one per program output */
    double cost;       /* optimistic, microseconds */
    uint64_t canon[2]; /* hash of the canonical form: equal for equivalent programs */
} ef_candidate;

typedef struct {
    ef_dag *dag;
    EF_VEC(ef_candidate) candidate;
    uint64_t expanded;       /* partial programs that were expanded */
    uint64_t built;          /* complete programs that were reached, before compaction */
    uint64_t candidates;     /* distinct complete programs */
    uint64_t fingerprint[2]; /* of the set of distinct programs, whatever the order */
    bool complete;           /* all candidates were enumerated, and there are some */
    bool original;           /* none was found: the one there is is the program as it was given */
    double seconds;
} ef_extraction;

ef_extraction *ef_extract(ef_search *search, const ef_extract_options *options);
void ef_extraction_free(ef_extraction *extraction);

#endif
