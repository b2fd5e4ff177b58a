/* The saturation loop: see runner.h. */
#include "egraph/runner.h"

#include <string.h>
#include <time.h>

#include "support/interrupt.h"

const char *const ef_stop_names[] = {"saturated",  "node limit",   "iteration limit",
                                     "time limit", "memory limit", "error"};

typedef struct {
    uint32_t since;        /* tick of the last run, 0 before the first */
    uint32_t banned_until; /* iteration */
    uint32_t bans;
} rule_state;

struct ef_runner {
    ef_scope scope;
    const ef_rule *rules;
    unsigned count;
    void (*between)(const ef_scope *);
    bool (*runs)(const ef_rule *); /* NULL: all rules do */
    rule_state *state;
    ef_run_stats stats;
    uint32_t iteration;
    EF_VEC(ef_match) matches;
    uint32_t match_limit;
    double deadline;
};

double ef_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

ef_runner *ef_runner_new(const ef_scope *scope, const ef_rule *rules, unsigned count, void (*between)(const ef_scope *))
{
    ef_runner *r = ef_xcalloc(1, sizeof *r);
    r->scope = *scope;
    r->rules = rules;
    r->count = count;
    r->between = between;
    r->state = ef_xcalloc(count, sizeof *r->state);
    r->stats.rule = ef_xcalloc(count, sizeof *r->stats.rule);
    return r;
}

void ef_runner_free(ef_runner *r)
{
    if (!r)
        return;
    ef_vec_free(&r->matches);
    free(r->state);
    free(r->stats.rule);
    free(r);
}

void ef_runner_only(ef_runner *r, bool (*runs)(const ef_rule *rule))
{
    r->runs = runs;
}

static bool keep_match(void *user, const ef_match *match)
{
    ef_runner *r = user;
    ef_vec_push(&r->matches, *match);
    return r->match_limit == 0 || r->matches.count <= r->match_limit;
}

/* Whether a limit is met, and which. */
static bool stopped(ef_runner *r, const ef_limits *limits)
{
    ef_egraph *g = r->scope.graph;
    if (g->error.failed)
        r->stats.stop = EF_STOP_ERROR;
    else if (limits->node_limit && g->live > limits->node_limit)
        r->stats.stop = EF_STOP_NODES;
    else if (ef_interrupted() || (r->deadline > 0 && ef_seconds() > r->deadline))
        r->stats.stop = EF_STOP_TIME;
    else if (limits->memory_limit && ef_egraph_memory(g) > limits->memory_limit)
        r->stats.stop = EF_STOP_MEMORY;
    else
        return false;
    return true;
}

static unsigned operators(const ef_pattern *p)
{
    unsigned count = 0;
    for (unsigned i = 0; i < p->count; i++)
        count += p->node[i].kind == EF_PAT_OP || p->node[i].kind == EF_PAT_ANYOP;
    return count;
}

/* Whether the right side has fewer operators than the left one, of which it is made: such a rule makes the graph
 * smaller sooner or later, and what is there twice until it runs is multiplied by all others. */
static bool shrinks(const ef_rule *rule)
{
    return !rule->builder && operators(&rule->right) < operators(&rule->left);
}

/* Searches and applies one rule. False when a limit was met. */
static bool run_rule(ef_runner *r, unsigned index, const ef_limits *limits)
{
    const ef_rule *rule = &r->rules[index];
    rule_state *state = &r->state[index];
    ef_rule_stats *stats = &r->stats.rule[index];
    ef_egraph *g = r->scope.graph;
    double start = ef_seconds();
    r->matches.count = 0;
    r->match_limit =
        limits->match_limit && !shrinks(rule) ? limits->match_limit << (state->bans < 16 ? state->bans : 16) : 0;
    uint32_t since = state->since && !rule->deep ? state->since + 1 : 0;
    bool fine = ef_pattern_search(&r->scope, rule, since, r->deadline, keep_match, r);
    double searched = ef_seconds();
    r->stats.search_seconds += searched - start;
    stats->seconds += searched - start;
    r->stats.matches += r->matches.count;
    stats->matches += r->matches.count;
    if (r->match_limit && r->matches.count > r->match_limit) {
        state->banned_until = r->iteration + (4u << (state->bans < 8 ? state->bans : 8));
        state->bans++;
        return !stopped(r, limits);
    }
    for (uint32_t i = 0; i < r->matches.count && fine; i++) {
        int result = ef_rule_apply(&r->scope, rule, index, &r->matches.at[i]);
        stats->merges += result > 0;
        stats->refused += result < 0;
        if ((i & 255u) == 255u || g->error.failed)
            fine = !stopped(r, limits);
    }
    if (fine) /* else a later run looks at all of it again */
        state->since = g->tick;
    double applied = ef_seconds();
    ef_egraph_rebuild(g);
    double rebuilt = ef_seconds();
    r->stats.apply_seconds += applied - searched;
    r->stats.rebuild_seconds += rebuilt - applied;
    stats->seconds += rebuilt - searched;
    return !stopped(r, limits) && fine;
}

const ef_run_stats *ef_runner_run(ef_runner *r, const ef_limits *limits)
{
    ef_egraph *g = r->scope.graph;
    double start = ef_seconds();
    r->deadline = limits->time_limit > 0 ? start + limits->time_limit : 0;
    for (uint32_t first = r->iteration;; r->iteration++) {
        if (limits->iteration_limit && r->iteration - first >= limits->iteration_limit) {
            r->stats.stop = EF_STOP_ITERATIONS;
            break;
        }
        uint32_t nodes = g->op.count, unions = g->unions;
        bool banned = false, fine = true;
        ef_egraph_tick(g);
        for (unsigned i = 0; i < r->count && fine; i++) {
            if (r->runs && !r->runs(&r->rules[i]))
                continue;
            if (r->state[i].banned_until > r->iteration)
                banned = true;
            else
                fine = run_rule(r, i, limits);
            banned = banned || r->state[i].banned_until > r->iteration;
        }
        r->stats.iterations++;
        if (!fine)
            break;
        if (r->between)
            r->between(&r->scope);
        ef_egraph_rebuild(g);
        if (stopped(r, limits))
            break;
        if (g->op.count == nodes && g->unions == unions && g->changed.count == 0 && !banned) {
            r->stats.stop = EF_STOP_SATURATED;
            break;
        }
    }
    ef_egraph_rebuild(g);
    r->stats.seconds += ef_seconds() - start;
    return &r->stats;
}
