/* equiforge explain --from A --to B: the equations, each by one rule, from which A = B follows. */
#include <stdio.h>
#include <string.h>

#include "cli.h"

static bool print_json(const equiforge_explanation *e)
{
    json_t *steps = json_array();
    for (size_t i = 0; i < e->steps; i++) {
        const equiforge_step *step = &e->step[i];
        json_array_append_new(steps, json_pack("{s:s, s:s, s:s, s:s}", "output", step->output, "rule", step->rule,
                                               "before", step->before, "after", step->after));
    }
    return cli_json(json_pack("{s:b, s:b, s:o, s:b, s:b, s:s}", "equal", e->equal, "contained", e->contained, "steps",
                              steps, "checked", e->checked, "saturated", e->saturated, "stop", e->stop));
}

static const char *yes(bool value)
{
    return value ? "yes" : "no";
}

static void print_text(const equiforge_explanation *e)
{
    for (size_t i = 0; i < e->steps; i++) {
        const equiforge_step *step = &e->step[i];
        if (i == 0 || strcmp(step->output, e->step[i - 1].output) != 0)
            printf("output %s\n", step->output);
        printf("  %s\n    %s\n    = %s\n", step->rule, step->before, step->after);
    }
    printf("equal: %s, contained: %s, steps: %zu, checked: %s\n", yes(e->equal), yes(e->contained), e->steps,
           yes(e->checked));
}

static int explain(equiforge_session *session, equiforge_program *from, equiforge_program *to,
                   const equiforge_limits *limits, bool json)
{
    equiforge_explanation explanation;
    equiforge_status status = equiforge_explain(from, to, limits, &explanation);
    if (status == EQUIFORGE_BAD_INPUT || !explanation.stop)
        return cli_report(session, status);
    if (!json)
        print_text(&explanation);
    else if (!print_json(&explanation))
        return EQUIFORGE_FAILED;
    return status == EQUIFORGE_OK ? EQUIFORGE_OK : cli_report(session, status);
}

int cli_explain(int argc, char **argv)
{
    const char *from_file = NULL, *to_file = NULL;
    bool json = false;
    equiforge_limits limits = {0};
    const cli_option options[] = {{"--json", CLI_FLAG, &json},
                                  {"--from", CLI_TEXT, &from_file},
                                  {"--to", CLI_TEXT, &to_file},
                                  {"--time-limit", CLI_SECONDS, &limits.time_limit},
                                  {"--node-limit", CLI_COUNT, &limits.node_limit}};
    if (!cli_arguments(argc, argv, options, 5, NULL))
        return EQUIFORGE_BAD_INPUT;
    if (!from_file || !to_file)
        return cli_fail("explain: %s FILE is missing; see equiforge explain --help", from_file ? "--to" : "--from");
    equiforge_session *session = equiforge_session_new();
    equiforge_program *from = NULL, *to = NULL;
    equiforge_status status = equiforge_open(session, from_file, &from);
    if (status == EQUIFORGE_OK)
        status = equiforge_open(session, to_file, &to);
    int exit_status = status == EQUIFORGE_OK ? explain(session, from, to, &limits, json) : cli_report(session, status);
    equiforge_close(to);
    equiforge_close(from);
    equiforge_session_free(session);
    return exit_status;
}
