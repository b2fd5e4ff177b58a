/* Searching the parts of a program (search/partition.h), several at once.
 *
 * Each search has a thread and a context of its own, which begins as a copy of the program's: what it finds depends
 * neither on other searches nor on which one ends first. Parts are searched in the order of the partitions that want
 * them. Of a partition what follows a part of which nothing but itself was found is not wanted, and another partition
 * takes its place. A thread for which nothing is left looks ahead, at the parts of partitions that may come to be
 * wanted so; that ends with the last search that is wanted, and what was found there and is not wanted is no result.
 *
 * Limits of time are of wall time. A thread has them to itself: a search may take its share of what its thread has
 * left, by how many searches are left for each thread, and what it does not take the next ones have. Of one of several
 * parts the e-graph ends besides when it is larger, or takes longer, than those that saturate: often it is that of the
 * whole program, and its smaller parts should not wait for it. Limits of memory are of all threads together. */
#ifndef EF_TUNE_PART_SEARCH_H
#define EF_TUNE_PART_SEARCH_H

#include "search/partition.h"
#include "tune/gather.h"

typedef struct {
    bool done;            /* it was searched, maybe in vain */
    ef_extraction *found; /* NULL: nothing; in the program's context once it was brought there */
    ef_ctx *ctx;          /* its own; NULL: none any more */
    ef_gathered_search report;
    ef_diag diag; /* that the search was caught in an error */
} ef_part_search;

typedef struct {
    const ef_program *program;
    const ef_partitions *set;
    const uint32_t *order; /* of set->list: the partitions that are wanted first */
    uint32_t wanted;       /* partitions, of which every part has candidates other than itself */
    uint32_t keep;         /* candidates of a part at most */
    const ef_gather_options *options;
    ef_part_search *search; /* by part; zeros */
} ef_part_searches;

/* The searches until so many partitions are of use, or there are no more, or the work is interrupted. Returns how many
 * ran at once at most. The program's context must not be changed meanwhile. */
unsigned ef_part_searches_run(const ef_part_searches *job);
/* Whether every part of a partition was searched and has candidates other than itself. */
bool ef_part_searches_useful(const ef_part_searches *job, uint32_t partition);
/* Carries what a search found into the program's context. */
void ef_part_search_bring(ef_part_search *search, ef_ctx *ctx, ef_diag *diag);
void ef_part_search_free(ef_part_search *search);

#endif
