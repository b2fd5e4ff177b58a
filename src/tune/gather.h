/* The candidates of a program, the promising ones first: from the search of the program as a whole and, where it is too
 * large for that, of its parts, composed (search/partition.h; paper, section 5.2). Parts that are the same up to names
 * are searched once. */
#ifndef EF_TUNE_GATHER_H
#define EF_TUNE_GATHER_H

#include "ir/expr.h"
#include "search/extract.h"
#include "support/vec.h"

typedef struct {
    ef_dag *dag;
    const ef_expr *output; /* as the program's outputs */
    double cost;           /* optimistic, microseconds */
} ef_gathered_candidate;

typedef struct {
    double saturation_s, extraction_s; /* limits of all searches together, of wall time: see part_search.h */
    uint32_t keep;                     /* candidates at most */
    ef_rates rates;                    /* of the device; all 0: of a generic GPU */
    double room;                       /* see ef_extract_options */
    unsigned threads;                  /* searches at once; 0: as many as there are processors */
    uint32_t node_limit;               /* of each e-graph; 0: what part_search.c says, and its limit of time for one */
    uint64_t state_limit;              /* of each extraction; 0: none, but part_search.c's limit of time for one */
} ef_gather_options;

/* What the search of one distinct part took and gave. */
typedef struct {
    const ef_program *program; /* of the part */
    uint32_t heavy;            /* products and reductions of long dimensions */
    double estimate_us;        /* of the partition: arithmetic, traffic at the boundary and a launch, added */
    uint32_t enodes, eclasses, iterations;
    ef_stop stop; /* why saturation ended */
    double saturation_s, extraction_s;
    uint64_t expanded, candidates;
    bool complete; /* all candidates of the e-graph were enumerated */
    bool original; /* there is none but the part as it was given */
} ef_gathered_search;

/* A partition, whether its parts were all searched and combined or not. */
typedef struct {
    uint32_t limit, parts, distinct;
    double estimate_us;
    const uint32_t *search; /* by part: which search its candidates are from; EF_NONE: there was none */
    bool combined;
    double combinations; /* that its parts' candidates allow, as many of each as are kept */
    uint64_t built;      /* of them, combinations that were looked at */
    uint64_t composed;   /* … and programs that were made */
} ef_gathered_partition;

typedef struct ef_gathered {
    EF_VEC(ef_gathered_candidate) list; /* of each partition the cheapest first, partitions in turns */
    uint64_t found;                     /* candidates of all parts that were searched */
    unsigned threads;                   /* searches that ran at once at most */
    double seconds;                     /* that all of them took */
    EF_VEC(ef_gathered_search) searches;
    EF_VEC(ef_gathered_partition) partitions; /* the least estimated time first */
    struct ef_gather_store *store;            /* memory */
} ef_gathered;

/* Never NULL. A message when a search was caught in an error; the list has what was found all the same. The program
 * must outlive the result. */
ef_gathered *ef_gather(const ef_program *program, const ef_gather_options *options, ef_diag *diag);
void ef_gathered_free(ef_gathered *gathered);

#endif
