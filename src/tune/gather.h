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
    double saturation_s, extraction_s; /* limits of all searches together */
    uint32_t keep;                     /* candidates at most */
    ef_rates rates;                    /* of the device; all 0: of a generic GPU */
    double room;                       /* see ef_extract_options */
} ef_gather_options;

typedef struct ef_gathered {
    EF_VEC(ef_gathered_candidate) list; /* of each partition the cheapest first, partitions in turns */
    uint64_t found;                     /* candidates of all parts that were searched */
    uint32_t partitions, searches;
    struct ef_gather_store *store; /* memory */
} ef_gathered;

/* Never NULL. A message when a search was caught in an error; the list has what was found all the same. The program
 * must outlive the result. */
ef_gathered *ef_gather(const ef_program *program, const ef_gather_options *options, ef_diag *diag);
void ef_gathered_free(ef_gathered *gathered);

#endif
