/* equiforge optimize FILE: finds a fast implementation of a module or program for a device by search and measurement.
 */
#include <inttypes.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli.h"

static equiforge_session *running;

/* The first Ctrl-C finishes with the best so far, the second one ends the process. */
static void interrupt(int number)
{
    equiforge_interrupt(running, EQUIFORGE_FINISH);
    signal(number, SIG_DFL);
}

/* ---- arguments ---- */

/* "90", "90s", "5m", "1h": a second at least. */
static bool read_budget(const char *text, double *seconds)
{
    static const struct {
        const char *name;
        double seconds;
    } units[] = {{"", 1}, {"s", 1}, {"m", 60}, {"h", 3600}};
    char *end;
    double number = strtod(text, &end);
    if (text[0] < '0' || text[0] > '9' || !isfinite(number) || number <= 0)
        return false;
    for (size_t i = 0; i < sizeof units / sizeof *units; i++)
        if (strcmp(end, units[i].name) == 0) {
            *seconds = number * units[i].seconds;
            return *seconds >= 1 && *seconds <= 1e6;
        }
    return false;
}

static bool known_target(const char *target)
{
    const equiforge_target *targets;
    for (size_t i = 0, count = equiforge_targets(&targets); i < count; i++)
        if (strcmp(targets[i].name, target) == 0)
            return true;
    return strcmp(target, "auto") == 0;
}

/* ---- progress ---- */

static void print_line(const equiforge_progress *p)
{
    fprintf(stderr, "\r\033[K%s", p->stage);
    if (p->families)
        fprintf(stderr, ", %" PRIu32 " of %" PRIu32 " structures", p->left, p->families);
    if (p->measured)
        fprintf(stderr, ", %" PRIu64 " measured", p->measured);
    if (p->best_us > 0)
        fprintf(stderr, ", best %.1f us", p->best_us);
    if (p->best_us > 0 && p->original_us > 0)
        fprintf(stderr, " (%.2fx", p->original_us / p->best_us);
    if (p->best_us > 0 && p->floor_us > 0)
        fprintf(stderr, ", %.1fx the floor", p->best_us / p->floor_us);
    if (p->best_us > 0 && p->original_us > 0)
        fprintf(stderr, ")");
    fprintf(stderr, ", %.0f s left", p->left_s);
    fflush(stderr);
}

static bool progress(void *user, const equiforge_progress *p)
{
    if (*(const bool *)user)
        print_line(p);
    return true;
}

/* ---- results ---- */

/* Of the original to the best. NAN: one of them is not known. */
static double speedup_of(const equiforge_optimum *o)
{
    return o->original_us > 0 && o->best_us > 0 ? o->original_us / o->best_us : NAN;
}

static bool print_json(const equiforge_optimum *o)
{
    return cli_json(json_pack(
        "{s:o, s:f, s:o, s:f, s:f, s:I, s:f, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:f, s:b, s:b, s:b, s:s, s:s, s:s, "
        "s:s, s:s}",
        "original_us", cli_known(o->original_us), "best_us", o->best_us, "speedup", cli_known(speedup_of(o)), "warm_us",
        o->warm_us, "floor_us", o->floor_us, "kernels", (json_int_t)o->kernels, "rel_l2", o->rel_l2, "measured",
        (json_int_t)o->measured, "failed", (json_int_t)o->failed, "families", (json_int_t)o->families, "candidates",
        (json_int_t)o->candidates, "regions", (json_int_t)o->regions, "distinct", (json_int_t)o->distinct, "externals",
        (json_int_t)o->externals, "elapsed_s", o->elapsed_s, "original", o->original, "stored", o->stored, "stopped",
        o->stopped, "schedule", o->schedule, "program", o->program, "device", o->device, "note", o->note, "measures",
        o->externals ? "kernels" : "whole"));
}

/* Why the best is what was given; "" where it is not. The programs of regions as they are, are measured too. */
static const char *why_original(const equiforge_optimum *o)
{
    if (!o->original)
        return "";
    return o->measured + o->failed <= o->distinct - o->kept ? ": nothing else was tried within the budget"
                                                            : ": nothing beats the original";
}

static void print_text(const char *file, const equiforge_optimum *o)
{
    printf("%s on %s\n", file, o->device);
    if (o->original_us > 0)
        printf("  original    %.1f us\n", o->original_us);
    else
        printf("  original    not measured\n");
    if (!o->regions) {
        printf("  regions     0, and %" PRIu32 " external calls: there is nothing to optimise\n", o->externals);
        return;
    }
    printf("  best        %.1f us", o->best_us);
    if (isfinite(speedup_of(o)))
        printf(", %.2fx", speedup_of(o));
    printf("%s%s\n", o->externals ? " (kernels only: external calls are not measured here)" : "", why_original(o));
    printf("  warm        %.1f us\n", o->warm_us);
    if (o->floor_us > 0)
        printf("  floor       %.1f us: the best is at %.2fx\n", o->floor_us, o->best_us / o->floor_us);
    printf("  kernels     %" PRIu64 "\n", o->kernels);
    printf("  error       %.3g (relative L2)\n", o->rel_l2);
    if (o->regions != 1 || o->externals)
        printf("  regions     %" PRIu32 ", %" PRIu32 " of them distinct, and %" PRIu32 " external calls\n", o->regions,
               o->distinct, o->externals);
    if (o->schedule[0])
        printf("  schedule    %s\n", o->schedule);
    printf("  measured    %" PRIu64 " implementations of %" PRIu64 " structures in %.1f s%s\n", o->measured,
           o->families, o->elapsed_s,
           o->stored    ? " (from the store)"
           : o->stopped ? " (interrupted)"
                        : "");
}

static int optimize(const char *file, equiforge_optimize_options *options, bool json)
{
    bool terminal = isatty(STDERR_FILENO);
    equiforge_session *session = running = equiforge_session_new();
    equiforge_optimum optimum;
    struct sigaction action = {.sa_handler = interrupt};
    options->progress = progress;
    options->user = &terminal;
    sigaction(SIGINT, &action, NULL);
    equiforge_status status = equiforge_optimize(session, file, options, &optimum);
    if (terminal)
        fprintf(stderr, "\r\033[K");
    if (status != EQUIFORGE_OK)
        cli_report(session, status);
    else if (optimum.note[0])
        cli_fail("optimize: %s", optimum.note);
    if (status == EQUIFORGE_OK && !json)
        print_text(file, &optimum);
    else if (status == EQUIFORGE_OK && !print_json(&optimum))
        status = EQUIFORGE_FAILED;
    signal(SIGINT, SIG_DFL);
    equiforge_session_free(session);
    return status;
}

int cli_optimize(int argc, char **argv)
{
    const char *file = NULL, *budget = NULL;
    bool json = false;
    equiforge_optimize_options wanted = {.seed = 1};
    const cli_option options[] = {{"--json", CLI_FLAG, &json},        {"--target", CLI_TEXT, &wanted.target},
                                  {"--budget", CLI_TEXT, &budget},    {"--store", CLI_TEXT, &wanted.store},
                                  {"-o", CLI_TEXT, &wanted.output},   {"--threads", CLI_THREADS, &wanted.threads},
                                  {"--seed", CLI_SEED, &wanted.seed}, {"--limit", CLI_SEED, &wanted.limit}};
    if (!cli_arguments(argc, argv, options, sizeof options / sizeof *options, &file))
        return EQUIFORGE_BAD_INPUT;
    if (budget && !read_budget(budget, &wanted.budget_s))
        return cli_fail("optimize: --budget takes a time from 1s to 1000000s, like 90s, 5m or 1h, not '%s'", budget);
    if (wanted.target && !known_target(wanted.target))
        return cli_fail("optimize: unknown target '%s'; `equiforge targets` lists them", wanted.target);
    if (wanted.store && cli_is_no_store(wanted.store))
        return cli_fail("optimize: %s is no store, and is left as it is", wanted.store);
    if (wanted.output && cli_is_one_file(file, wanted.output))
        return cli_fail("optimize: '%s' would be overwritten: -o takes another file", file);
    return optimize(file, &wanted, json);
}
