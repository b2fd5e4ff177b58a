/* equiforge explain OUT.efz, or --from A --to B: the equations, each by one rule, from which A = B follows. */
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

/* What the session says of two programs that were not found equal, but by their files where the names are the same. */
static void print_reason(FILE *out, const equiforge_session *session, const equiforge_explanation *e,
                         const char *const *file, bool same_name)
{
    if (e->equal || !same_name)
        fprintf(out, "%s\n", equiforge_message(session));
    else if (e->saturated)
        fprintf(out, "%s and %s are not equal under the rules: the search was complete\n", file[0], file[1]);
    else
        fprintf(out, "%s and %s were not found equal: the search stopped at its %s\n", file[0], file[1], e->stop);
}

static int explain(equiforge_session *session, equiforge_program *const *program, const char *const *file,
                   const equiforge_limits *limits, bool json)
{
    equiforge_inspection left, right;
    equiforge_inspect(program[0], &left);
    equiforge_inspect(program[1], &right);
    equiforge_explanation explanation;
    equiforge_status status = equiforge_explain(program[0], program[1], limits, &explanation);
    if (status == EQUIFORGE_BAD_INPUT || !explanation.stop)
        return cli_report(session, status);
    if (!json)
        print_text(&explanation);
    else if (!print_json(&explanation))
        return EQUIFORGE_FAILED;
    if (status != EQUIFORGE_OK) /* it belongs to the verdict, but not into JSON */
        print_reason(json ? stderr : stdout, session, &explanation, file, strcmp(left.name, right.name) == 0);
    return status;
}

static int explain_files(const char *const *file, const equiforge_limits *limits, bool json)
{
    equiforge_session *session = equiforge_session_new();
    equiforge_program *program[2] = {NULL, NULL};
    equiforge_status status = equiforge_open(session, file[0], &program[0]);
    if (status == EQUIFORGE_OK)
        status = equiforge_open(session, file[1], &program[1]);
    int exit_status =
        status == EQUIFORGE_OK ? explain(session, program, file, limits, json) : cli_report(session, status);
    equiforge_close(program[1]);
    equiforge_close(program[0]);
    equiforge_session_free(session);
    return exit_status;
}

static int explain_plan(const char *file, const equiforge_limits *limits, bool json)
{
    equiforge_session *session = equiforge_session_new();
    equiforge_plan *plan;
    equiforge_explanation explanation;
    equiforge_status status = equiforge_plan_open(session, file, &plan);
    if (status == EQUIFORGE_OK)
        status = equiforge_plan_explain(plan, limits, &explanation);
    if (status != EQUIFORGE_OK)
        cli_report(session, status);
    else if (!json)
        print_text(&explanation);
    else if (!print_json(&explanation))
        status = EQUIFORGE_FAILED;
    equiforge_plan_close(plan);
    equiforge_session_free(session);
    return status;
}

int cli_explain(int argc, char **argv)
{
    const char *pair[2] = {NULL, NULL}, *file = NULL; /* from, to */
    bool json = false, two = false;
    equiforge_limits limits = {0};
    const cli_option options[] = {{"--json", CLI_FLAG, &json},
                                  {"--from", CLI_TEXT, &pair[0]},
                                  {"--to", CLI_TEXT, &pair[1]},
                                  {"--time-limit", CLI_SECONDS, &limits.time_limit},
                                  {"--node-limit", CLI_COUNT, &limits.node_limit}};
    for (int i = 1; i < argc; i++)
        two = two || strncmp(argv[i], "--from", 6) == 0 || strncmp(argv[i], "--to", 4) == 0;
    if (!cli_arguments(argc, argv, options, 5, two ? NULL : &file))
        return EQUIFORGE_BAD_INPUT;
    if (two && (!pair[0] || !pair[1]))
        return cli_fail("explain: %s FILE is missing; see equiforge explain --help", pair[0] ? "--to" : "--from");
    if (!two && !cli_is_plan(file) && !cli_is_there(file))
        return cli_fail("explain: %s: no such file", file);
    if (!two && !cli_is_plan(file))
        return cli_fail("explain: takes an optimised module (.efz), or two programs: --from A --to B");
    return two ? explain_files(pair, &limits, json) : explain_plan(file, &limits, json);
}
