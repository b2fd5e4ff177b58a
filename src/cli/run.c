/* equiforge run FILE: compiles a program or an optimised module, runs it, and says how fast and how exact it is. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"

static bool print_json(const equiforge_run_result *r, bool check, bool emit)
{
    json_t *object = json_pack("{s:f, s:I}", "us", r->us, "kernels", (json_int_t)r->kernels);
    if (check) {
        json_object_set_new(object, "rel_l2", json_real(r->rel_l2));
        json_object_set_new(object, "inputs", json_string(r->inputs));
    }
    if (emit)
        json_object_set_new(object, "source", json_string(r->source));
    return cli_json(object);
}

static void print_text(const char *file, const equiforge_run_result *r, bool check, bool emit)
{
    if (emit)
        fputs(r->source, stdout);
    printf("%s%s: %.1f us, %zu kernel%s\n", emit ? "// " : "", file, r->us, r->kernels, r->kernels == 1 ? "" : "s");
    if (check)
        printf("%srelative L2 error %.3g (%s inputs)\n", emit ? "// " : "", r->rel_l2, r->inputs);
}

/* ---- optimised modules ---- */

static bool print_plan_json(const equiforge_plan_result *r, bool check)
{
    json_t *regions = json_array();
    for (size_t i = 0; i < r->regions; i++) {
        const equiforge_region_result *one = &r->region[i];
        json_array_append_new(regions, json_pack("{s:f, s:o, s:f, s:I}", "us", one->us, "original_us",
                                                 cli_known(one->original_us), "rel_l2", one->rel_l2, "uses",
                                                 (json_int_t)one->uses));
    }
    json_t *object = json_pack("{s:f, s:o, s:I, s:o}", "us", r->us, "original_us", cli_known(r->original_us),
                               "external", (json_int_t)r->externals, "regions", regions);
    if (check)
        json_object_set_new(object, "rel_l2", json_real(r->rel_l2));
    return cli_json(object);
}

static void print_plan_text(const char *file, const equiforge_plan_result *r, bool check)
{
    printf("%s: %.1f us, as given ", file, r->us);
    if (r->original_us > 0)
        printf("%.1f us", r->original_us);
    else
        printf("not measured");
    printf(", %zu region%s\n", r->regions, r->regions == 1 ? "" : "s");
    if (check)
        printf("relative L2 error %.3g\n", r->rel_l2);
    if (r->externals)
        printf("%zu calls stay in PyTorch and were not run\n", r->externals);
}

static int run_plan(const char *file, const equiforge_run_options *run, bool json)
{
    equiforge_session *session = equiforge_session_new();
    equiforge_plan *plan;
    equiforge_plan_result result;
    equiforge_status status = equiforge_plan_open(session, file, &plan);
    if (status == EQUIFORGE_OK)
        status = equiforge_plan_run(plan, run, &result);
    if (status != EQUIFORGE_OK)
        cli_report(session, status);
    else if (!json)
        print_plan_text(file, &result, run->check);
    else if (!print_plan_json(&result, run->check))
        status = EQUIFORGE_FAILED;
    equiforge_plan_close(plan);
    equiforge_session_free(session);
    return status;
}

int cli_run(int argc, char **argv)
{
    const char *file = NULL;
    bool json = false, emit = false;
    equiforge_run_options run = {.repeat = 10, .seed = 1};
    const cli_option options[] = {
        {"--json", CLI_FLAG, &json},          {"--check", CLI_FLAG, &run.check},        {"--emit", CLI_FLAG, &emit},
        {"--repeat", CLI_COUNT, &run.repeat}, {"--threads", CLI_THREADS, &run.threads}, {"--seed", CLI_SEED, &run.seed},
        {"--dims", CLI_TEXT, &run.dims},      {"--tile", CLI_TEXT, &run.tiles}};
    if (!cli_arguments(argc, argv, options, sizeof options / sizeof *options, &file))
        return EQUIFORGE_BAD_INPUT;
    if (cli_is_plan(file) && (run.dims || run.tiles || emit))
        return cli_fail("run: --dims, --tile and --emit are for programs in text form");
    if (cli_is_plan(file))
        return run_plan(file, &run, json);
    equiforge_bind_threads(run.threads);
    equiforge_session *session = equiforge_session_new();
    equiforge_program *program;
    equiforge_run_result result;
    equiforge_status status = equiforge_open(session, file, &program);
    if (status == EQUIFORGE_OK)
        status = equiforge_run(program, &run, &result);
    if (status != EQUIFORGE_OK)
        cli_report(session, status);
    else if (!json)
        print_text(file, &result, run.check, emit);
    else if (!print_json(&result, run.check, emit))
        status = EQUIFORGE_FAILED;
    equiforge_close(program);
    equiforge_session_free(session);
    return status;
}
