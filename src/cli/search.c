/* equiforge search FILE: saturates the e-graph of a program, extracts candidates, and reports on both. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "cli.h"

static bool one_of(const char *text, const char *const *values)
{
    while (*values && strcmp(*values, text) != 0)
        values++;
    return *values != NULL;
}

static bool is_target(const char *name)
{
    const equiforge_target *targets;
    bool known = strcmp(name, "auto") == 0;
    for (size_t i = 0, count = equiforge_targets(&targets); i < count && !known; i++)
        known = strcmp(targets[i].name, name) == 0;
    return known;
}

/* The target gives candidates their order; saturation is the same for all. */
static bool acceptable(const char *target, const char *compaction, equiforge_limits *limits)
{
    static const char *const modes[] = {"none", "after", "early", NULL};
    if (target && !is_target(target)) {
        cli_fail("search: unknown target '%s'; `equiforge targets` lists them", target);
        return false;
    }
    limits->target = target;
    if (compaction && !one_of(compaction, modes)) {
        cli_fail("search: --compaction takes none, after or early, not '%s'", compaction);
        return false;
    }
    if (compaction && strcmp(compaction, "none") == 0)
        limits->compaction = EQUIFORGE_COMPACT_NONE;
    else if (compaction && strcmp(compaction, "after") == 0)
        limits->compaction = EQUIFORGE_COMPACT_AFTER;
    return true;
}

static json_t *candidates_json(const equiforge_search_result *r)
{
    json_t *list = json_array();
    for (size_t i = 0; i < r->kept; i++)
        json_array_append_new(
            list, json_pack("{s:f, s:s}", "cost_us", r->candidate[i].cost_us, "text", r->candidate[i].text));
    return list;
}

static json_t *stats_json(const equiforge_search_result *r)
{
    json_t *list = json_array();
    for (size_t i = 0; i < r->rules; i++) {
        const equiforge_rule_use *use = &r->rule[i];
        json_array_append_new(list, json_pack("{s:s, s:I, s:I, s:I, s:f}", "rule", use->rule, "matches",
                                              (json_int_t)use->matches, "merges", (json_int_t)use->merges, "refused",
                                              (json_int_t)use->refused, "seconds", use->seconds));
    }
    return list;
}

static json_t *parts_json(const equiforge_search_result *r)
{
    json_t *list = json_array();
    for (size_t i = 0; i < r->parts; i++) {
        const equiforge_part *p = &r->part[i];
        json_array_append_new(list,
                              json_pack("{s:I, s:I, s:s, s:f, s:f, s:f, s:I, s:I, s:b, s:b}", "heavy",
                                        (json_int_t)p->heavy, "enodes", (json_int_t)p->enodes, "stop", p->stop,
                                        "estimate_us", p->estimate_us, "saturation_s", p->saturation_s, "extraction_s",
                                        p->extraction_s, "expanded", (json_int_t)p->expanded, "candidates",
                                        (json_int_t)p->candidates, "complete", p->complete, "original", p->original));
    }
    return list;
}

static json_t *partitions_json(const equiforge_search_result *r)
{
    json_t *list = json_array();
    for (size_t i = 0; i < r->partitions; i++) {
        const equiforge_partition *p = &r->partition[i];
        json_t *part = json_array();
        for (uint32_t k = 0; k < p->parts; k++)
            json_array_append_new(part, p->part[k] == UINT32_MAX ? json_null() : json_integer(p->part[k]));
        json_array_append_new(list, json_pack("{s:I, s:o, s:f, s:b, s:f, s:I, s:I}", "limit", (json_int_t)p->limit,
                                              "parts", part, "estimate_us", p->estimate_us, "combined", p->combined,
                                              "combinations", p->combined ? p->combinations : 0.0, "built",
                                              (json_int_t)p->built, "composed", (json_int_t)p->composed));
    }
    return list;
}

static bool print_json(const equiforge_search_result *r, bool stats)
{
    json_t *object = json_pack(
        "{s:I, s:I, s:I, s:b, s:s, s:f, s:f, s:f, s:I, s:I, s:b}", "enodes", (json_int_t)r->enodes, "eclasses",
        (json_int_t)r->eclasses, "iterations", (json_int_t)r->iterations, "saturated", r->saturated, "stop", r->stop,
        "saturation_s", r->saturation_s, "peak_mb", r->peak_mb, "extraction_s", r->extraction_s, "expanded",
        (json_int_t)r->expanded, "candidates", (json_int_t)r->candidates, "complete", r->complete);
    json_object_set_new(object, "programs", candidates_json(r));
    if (r->partitions) {
        json_object_set_new(object, "at_once", json_integer(r->at_once));
        json_object_set_new(object, "search_s", json_real(r->search_s));
        json_object_set_new(object, "parts", parts_json(r));
        json_object_set_new(object, "partitions", partitions_json(r));
    }
    if (stats)
        json_object_set_new(object, "statistics", stats_json(r));
    return cli_json(object);
}

static void print_parts(const equiforge_search_result *r)
{
    if (r->parts)
        printf("  searches    %zu, at most %" PRIu32 " at once, in %.2f s\n", r->parts, r->at_once, r->search_s);
    for (size_t i = 0; i < r->parts; i++) {
        const equiforge_part *p = &r->part[i];
        printf("  part %zu: %" PRIu32 " products and reductions, %" PRIu32 " e-nodes, %s in %.2f s; %" PRIu64
               " candidates%s in %.2f s\n",
               i, p->heavy, p->enodes, p->stop, p->saturation_s, p->candidates,
               p->original   ? " (itself)"
               : p->complete ? ""
                             : " so far",
               p->extraction_s);
    }
    for (size_t i = 0; i < r->partitions; i++) {
        const equiforge_partition *p = &r->partition[i];
        printf("  partition, at most %" PRIu32 " a part, %.1f us:", p->limit, p->estimate_us);
        for (uint32_t k = 0; k < p->parts; k++)
            p->part[k] == UINT32_MAX ? printf(" -") : printf(" %" PRIu32, p->part[k]);
        if (p->combined)
            printf("; %.0f combinations, %" PRIu64 " looked at, %" PRIu64 " programs", p->combinations, p->built,
                   p->composed);
        printf("\n");
    }
}

static void print_text(const char *file, const equiforge_search_result *r, bool stats)
{
    printf("%s: %s%s in %.3f s\n", file, r->saturated ? "" : "stopped at the ", r->stop, r->saturation_s);
    printf("  e-nodes     %" PRIu32 "\n", r->enodes);
    printf("  e-classes   %" PRIu32 "\n", r->eclasses);
    printf("  iterations  %" PRIu32 "\n", r->iterations);
    printf("  candidates  %" PRIu64 "%s, %" PRIu64 " partial programs expanded in %.3f s\n", r->candidates,
           r->complete ? "" : " so far (stopped at the extraction limit)", r->expanded, r->extraction_s);
    printf("  peak memory %.1f MiB\n", r->peak_mb);
    print_parts(r);
    for (size_t i = 0; i < r->kept; i++)
        printf("\n# candidate %zu, optimistic %.1f us\n%s", i + 1, r->candidate[i].cost_us, r->candidate[i].text);
    if (!stats)
        return;
    printf("\n%-32s %10s %10s %10s %10s\n", "rule", "matches", "merges", "refused", "seconds");
    for (size_t i = 0; i < r->rules; i++) {
        const equiforge_rule_use *use = &r->rule[i];
        if (use->matches)
            printf("%-32s %10" PRIu64 " %10" PRIu64 " %10" PRIu64 " %10.4f\n", use->rule, use->matches, use->merges,
                   use->refused, use->seconds);
    }
}

static int search(const char *file, const equiforge_limits *limits, bool stats, bool json)
{
    equiforge_session *session = equiforge_session_new();
    equiforge_program *program;
    equiforge_search_result result;
    equiforge_status status = equiforge_open(session, file, &program);
    if (status == EQUIFORGE_OK)
        status = equiforge_search(program, limits, &result);
    if (status != EQUIFORGE_OK)
        cli_report(session, status);
    else if (!json)
        print_text(file, &result, stats);
    else if (!print_json(&result, stats))
        status = EQUIFORGE_FAILED;
    equiforge_close(program);
    equiforge_session_free(session);
    return status;
}

int cli_search(int argc, char **argv)
{
    const char *file = NULL, *target = NULL, *compaction = NULL;
    bool json = false, stats = false;
    equiforge_limits limits = {0};
    const cli_option options[] = {{"--json", CLI_FLAG, &json},
                                  {"--stats", CLI_FLAG, &stats},
                                  {"--parts", CLI_FLAG, &limits.parts},
                                  {"--target", CLI_TEXT, &target},
                                  {"--compaction", CLI_TEXT, &compaction},
                                  {"--time-limit", CLI_SECONDS, &limits.time_limit},
                                  {"--node-limit", CLI_COUNT, &limits.node_limit},
                                  {"--extract-limit", CLI_SECONDS, &limits.extract_limit},
                                  {"--show", CLI_COUNT, &limits.keep}};
    if (!cli_arguments(argc, argv, options, 9, &file) || !acceptable(target, compaction, &limits))
        return EQUIFORGE_BAD_INPUT;
    if (limits.parts && (compaction || stats)) {
        cli_fail("search: --parts goes with neither --compaction nor --stats");
        return EQUIFORGE_BAD_INPUT;
    }
    return search(file, &limits, stats, json);
}
