/* The public interface to what the command line does with optimised modules: run, explain, report. */
#include <stdlib.h>
#include <string.h>

#include "api.h"
#include "plan/check.h"
#include "plan/report.h"
#include "support/file.h"
#include "support/reasons.h"
#include "tune/replay.h"

/* ---- running ---- */

static uint32_t uses(const ef_plan *plan, uint32_t region)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < plan->steps; i++)
        count += plan->step[i].kind == EF_MS_REGION && plan->step[i].region == region;
    return count;
}

/* Whether all regions have code that can be run here. */
static bool has_code(const ef_plan *plan, ef_diag *diag)
{
    ef_strbuf text = {0};
    const char **why = ef_xcalloc(plan->regions + 1, sizeof *why);
    uint32_t kept = 0;
    for (uint32_t i = 0; i < plan->regions; i++) {
        if (strcmp(plan->region[i].language, "torch") != 0)
            continue;
        why[i] = plan->region[i].kept ? plan->region[i].kept : "nothing could be measured";
        kept++;
    }
    ef_reasons_print(why, plan->regions, &text);
    free(why);
    if (kept)
        ef_fail(diag, "%u of %u regions were left to PyTorch, and so cannot be run by the command line: %s", kept,
                plan->regions, text.text);
    ef_strbuf_free(&text);
    return kept == 0;
}

static bool run_region(const ef_plan *plan, uint32_t region, const equiforge_run_options *options,
                       ef_replay_result *result, ef_diag *diag)
{
    const ef_plan_region *r = &plan->region[region];
    ef_plan_programs programs;
    ef_device device;
    const ef_replay_options replay = {options->repeat, options->seed, options->check};
    if (!ef_device_find(plan->target, NULL, options->threads ? options->threads : r->threads, &device, diag) ||
        !ef_plan_programs_open(r, &programs, diag))
        return false;
    bool fine = ef_replay(programs.program, r->source, r->entry, &device, &replay, result, diag);
    ef_plan_programs_close(&programs);
    return fine;
}

equiforge_status equiforge_plan_run(equiforge_plan *plan, const equiforge_run_options *options,
                                    equiforge_plan_result *result)
{
    const ef_plan *p = plan->plan;
    ef_diag *diag = ef_api_diag(plan->session);
    equiforge_region_result *region = ef_arena_alloc(ef_api_arena(&plan->result), p->regions * sizeof *region);
    bool known = true;
    *result = (equiforge_plan_result){.region = region};
    if (!has_code(p, diag))
        return EQUIFORGE_FAILED;
    for (uint32_t i = 0; i < p->steps; i++)
        result->externals += p->step[i].kind == EF_MS_EXTERNAL;
    for (uint32_t i = 0; i < p->regions; i++) {
        ef_replay_result found = {0};
        if (!run_region(p, i, options, &found, diag))
            return EQUIFORGE_FAILED;
        region[i] = (equiforge_region_result){found.us, found.original_us, found.rel_l2, uses(p, i)};
        result->regions = i + 1;
        result->us += region[i].uses * found.us;
        known = known && found.original_us > 0;
        result->original_us += region[i].uses * found.original_us;
        result->rel_l2 = found.rel_l2 > result->rel_l2 ? found.rel_l2 : result->rel_l2;
    }
    result->original_us = known ? result->original_us : 0;
    return EQUIFORGE_OK;
}

/* ---- explaining ---- */

/* The equations of one region behind those of the regions before it. */
static bool explain_region(const ef_plan *plan, uint32_t region, const ef_search_options *options, ef_arena *arena,
                           equiforge_explanation *all, ef_diag *diag)
{
    ef_plan_programs programs;
    ef_derivation derivation;
    equiforge_explanation one;
    if (!ef_plan_programs_open(&plan->region[region], &programs, diag))
        return false;
    bool fine = ef_derive(programs.program, programs.candidate, options, arena, &derivation, diag);
    ef_plan_programs_close(&programs);
    ef_api_explanation(&derivation, arena, &one);
    equiforge_step *step = ef_arena_alloc(arena, (all->steps + one.steps) * sizeof *step);
    if (all->steps)
        memcpy(step, all->step, all->steps * sizeof *step);
    if (one.steps)
        memcpy(step + all->steps, one.step, one.steps * sizeof *step);
    one.step = step;
    one.steps += all->steps;
    one.contained = one.contained && all->contained;
    one.saturated = one.saturated && all->saturated;
    *all = one;
    return fine;
}

equiforge_status equiforge_plan_explain(equiforge_plan *plan, const equiforge_limits *limits,
                                        equiforge_explanation *explanation)
{
    ef_diag *diag = ef_api_diag(plan->session);
    ef_arena *arena = ef_api_arena(&plan->explanation);
    ef_search_options options = ef_api_options(limits);
    *explanation = (equiforge_explanation){.contained = true, .equal = true, .saturated = true, .stop = "saturated"};
    explanation->checked = plan->plan->regions == 0; /* nothing was replaced */
    for (uint32_t i = 0; i < plan->plan->regions; i++)
        if (!explain_region(plan->plan, i, &options, arena, explanation, diag))
            return EQUIFORGE_FAILED;
    return EQUIFORGE_OK;
}

/* ---- the report ---- */

equiforge_status equiforge_plan_report(equiforge_plan *plan, const char *path)
{
    ef_diag *diag = ef_api_diag(plan->session);
    if (!ef_may_write_file(path, diag))
        return EQUIFORGE_BAD_INPUT;
    return ef_plan_report(plan->plan, path, diag) ? EQUIFORGE_OK : EQUIFORGE_FAILED;
}
