/* Saturation of one program (design, sections 4 and 5): the e-graph, the rules, and the policy that keeps it small. */
#ifndef EF_SEARCH_SATURATE_H
#define EF_SEARCH_SATURATE_H

#include "egraph/runner.h"
#include "rules/language.h"
#include "rules/policy.h"

typedef struct {
    uint32_t node_limit; /* 0: 1,000,000 */
    double time_limit;   /* seconds, 0: 600 */
    size_t memory_limit; /* bytes, 0: 4 GiB */
    uint64_t split_min;  /* 0: 256 */
    uint64_t whole_max;  /* 0: 256 */
    bool everything;     /* what is too much work, too */
} ef_search_options;

typedef struct ef_search {
    ef_ctx *ctx;               /* not owned */
    const ef_program *program; /* not owned */
    ef_egraph *graph;
    ef_ruleset *rules;
    ef_runner *runner;
    ef_limits limits;
    uint32_t outputs;
    ef_id *output; /* the classes of the program's outputs */
    struct ef_policy_state *policy;
    const ef_run_stats *stats;
    bool everything;
    uint32_t aside; /* nodes that were set aside as too much work */
} ef_search;

/* Builds the e-graph of a program. NULL and a message when it cannot be built. */
ef_search *ef_search_new(const ef_program *program, const ef_search_options *options, ef_diag *diag);
/* Runs to saturation or a limit. False and a message when a rule was caught in an error. Where algebra finds ways of
 * far less work than others (waste.h) it runs first, and only what is left is tiled and fused. */
bool ef_search_saturate(ef_search *search, ef_diag *diag);
/* Takes back what was set aside: the next run looks at it as well. Returns whether there was anything. */
bool ef_search_bring_back(ef_search *search);
void ef_search_free(ef_search *search);

#endif
