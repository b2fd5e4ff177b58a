/* Extraction with early compaction (paper, section 5.1, Algorithm 1; design, section 6).
 *
 * A complete program picks one e-node for every reachable SLOT and is acyclic. A slot is an e-class in one of two
 * roles: the plain value, or the root of a kernel that stores it (so that one kernel may compute a tile that another
 * loads). Partial programs have holes: slots that nothing was picked for yet. They are expanded one hole at a time,
 * best first by an optimistic cost; before that each is tested for equivalence (~p) with those already seen.
 *
 * A CANDIDATE is a complete program, up to ~, of which all of this is true:
 *  - a value that a kernel stores is loaded wherever a kernel may load it, never computed again;
 *  - of a fused reduction all parts are used, of a repaired one the consumer's, or the tuple as a whole is;
 *  - a whole dimension is reduced inside a tile, where a loop over it could be, only if something else takes values of
 *    that tile as well (else it is that loop with one trip);
 *  - in what is summed over a loop no factor is the same at all coordinates of the axis: it stands outside of the sum;
 *  - nothing is a view at a coarser grid of what the kernel can compute at its own.
 * `complete` means that all candidates of the e-graph, so defined, were enumerated, and that there are some.
 *
 * The equivalence ~ identifies operand order and grouping of commutative pointwise operators, and the spellings of one
 * parallel view (a view of a transposed tensor or the transposed view). It keeps apart different matmul structures,
 * reduction organisations and stored intermediates, and cancels nothing. ~p compares the canonical forms of partial
 * programs, holes by slot, together with the canonical forms of those picked slots that completions can refer to and
 * with what completions still have to do for the conditions above: then both have the same completions. */
#ifndef EF_SEARCH_EXTRACT_H
#define EF_SEARCH_EXTRACT_H

#include "search/saturate.h"

typedef enum { EF_COMPACT_NONE, EF_COMPACT_AFTER, EF_COMPACT_EARLY } ef_compaction;

typedef struct {
    ef_compaction compaction;
    double time_limit;    /* seconds, 0: 60 */
    uint64_t state_limit; /* expanded partial programs, 0: none */
    uint32_t keep;        /* programs to build, the most promising ones; 0: none, only count */
    size_t memory_limit;  /* bytes of queued partial programs and of signatures, 0: 4 GiB */
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
    double seconds;
} ef_extraction;

ef_extraction *ef_extract(ef_search *search, const ef_extract_options *options);
void ef_extraction_free(ef_extraction *extraction);

#endif
