/* equiforge rules: lists the rules; --check tests each on random instances. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "cli.h"

static bool list_json(const equiforge_rule *rule, size_t count)
{
    json_t *list = json_array();
    for (size_t i = 0; i < count; i++)
        json_array_append_new(list, json_pack("{s:s, s:s}", "name", rule[i].name, "group", rule[i].group));
    return cli_json(json_pack("{s:o}", "rules", list));
}

static void list_text(const equiforge_rule *rule, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (i == 0 || strcmp(rule[i].group, rule[i - 1].group) != 0)
            printf("%s%s\n", i ? "\n" : "", rule[i].group);
        printf("  %-32s %s\n", rule[i].name, rule[i].text);
    }
    printf("\n%zu rules\n", count);
}

static bool check_json(const equiforge_rules_report *report)
{
    json_t *failed = json_array();
    for (size_t i = 0; i < report->failures; i++)
        json_array_append_new(
            failed, json_pack("{s:s, s:s}", "rule", report->failure[i].rule, "reason", report->failure[i].reason));
    return cli_json(json_pack("{s:I, s:I, s:I, s:o}", "rules", (json_int_t)report->rules, "instances",
                              (json_int_t)report->instances, "failures", (json_int_t)report->failures, "failed",
                              failed));
}

static void check_text(const equiforge_rules_report *report)
{
    for (size_t i = 0; i < report->failures; i++)
        puts(report->failure[i].reason);
    printf("rules: %" PRIu32 ", instances: %" PRIu64 ", failures: %zu\n", report->rules, report->instances,
           report->failures);
}

static int list(equiforge_session *session, bool json)
{
    const equiforge_rule *rule;
    size_t count = equiforge_rules(session, &rule);
    if (json)
        return list_json(rule, count) ? EQUIFORGE_OK : EQUIFORGE_FAILED;
    list_text(rule, count);
    return EQUIFORGE_OK;
}

static int check(equiforge_session *session, uint32_t instances, uint64_t seed, bool json)
{
    equiforge_rules_report report;
    equiforge_status status = equiforge_rules_check(session, instances, seed, &report);
    if (status == EQUIFORGE_BAD_INPUT)
        return cli_report(session, status);
    if (!json)
        check_text(&report);
    else if (!check_json(&report))
        status = EQUIFORGE_FAILED;
    return status == EQUIFORGE_OK ? EQUIFORGE_OK : cli_report(session, status);
}

int cli_rules(int argc, char **argv)
{
    bool json = false, wanted = false;
    uint32_t instances = 0;
    uint64_t seed = UINT64_MAX;
    const cli_option options[] = {{"--json", CLI_FLAG, &json},
                                  {"--check", CLI_FLAG, &wanted},
                                  {"--instances", CLI_COUNT, &instances},
                                  {"--seed", CLI_SEED, &seed}};
    if (!cli_arguments(argc, argv, options, 4, NULL))
        return EQUIFORGE_BAD_INPUT;
    if (!wanted && (instances || seed != UINT64_MAX))
        return cli_fail("rules: --instances and --seed go with --check");
    equiforge_session *session = equiforge_session_new();
    int status = wanted ? check(session, instances, seed == UINT64_MAX ? 1 : seed, json) : list(session, json);
    equiforge_session_free(session);
    return status;
}
