/* The saturation loop (design, section 5): rules in order, incremental matching, back-off, limits.
 *
 * A rule looks only at classes below which something changed since it last ran. A rule that finds more than its match
 * limit in one iteration is banned for some iterations and its limit doubles, so that it cannot starve the others.
 * Rules whose right side is smaller than the left one have no such limit: without them the others multiply.
 * Results depend on nothing but the input: no clock decides anything except the time limit. */
#ifndef EF_EGRAPH_RUNNER_H
#define EF_EGRAPH_RUNNER_H

#include "egraph/pattern.h"

typedef struct {
    uint32_t node_limit, iteration_limit, match_limit; /* 0: none */
    double time_limit;                                 /* seconds, 0: none */
    size_t memory_limit;                               /* bytes, 0: none */
} ef_limits;

typedef enum {
    EF_STOP_SATURATED,
    EF_STOP_NODES,
    EF_STOP_ITERATIONS,
    EF_STOP_TIME,
    EF_STOP_MEMORY,
    EF_STOP_ERROR
} ef_stop;
extern const char *const ef_stop_names[];

typedef struct {
    uint64_t matches, merges, refused; /* refused: the right side was ill-typed there */
    double seconds;
} ef_rule_stats;

typedef struct {
    ef_stop stop;
    uint32_t iterations;
    double seconds, search_seconds, apply_seconds, rebuild_seconds;
    uint64_t matches;
    ef_rule_stats *rule; /* one per rule, owned by the runner */
} ef_run_stats;

typedef struct ef_runner ef_runner;

/* `between` runs after each iteration (the search's policy); NULL for none. Rules must outlive the runner. */
ef_runner *ef_runner_new(const ef_scope *scope, const ef_rule *rules, unsigned count,
                         void (*between)(const ef_scope *));
void ef_runner_free(ef_runner *runner);
/* Which rules run from now on; NULL: all. Rules that come in later see all that is there. */
void ef_runner_only(ef_runner *runner, bool (*runs)(const ef_rule *rule));
/* Runs until nothing changes or a limit is met; may be called again after more nodes were added. */
const ef_run_stats *ef_runner_run(ef_runner *runner, const ef_limits *limits);
double ef_seconds(void); /* monotonic */

#endif
