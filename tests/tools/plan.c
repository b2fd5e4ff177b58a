/* plan FILE OUT.efz [triton]: a file (.pt2 or .ef) as a plan whose regions are compiled as they are, without search or
 * tuning, so that tests of the runtime take no time. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "codegen/triton.h"
#include "plan/plan.h"
#include "support/deepstack.h"
#include "tune/device.h"

typedef struct {
    const char *in, *out;
    bool triton;
    ef_diag diag;
    bool fine;
} job;

static bool fill(ef_plan *plan, ef_plan_region *region, const ef_program *program, bool triton, ef_diag *diag)
{
    ef_device device;
    ef_strbuf source = {0};
    ef_kgraph *graph = ef_device_find("cpu", NULL, 2, &device, diag) ? ef_kgraph_eager(program, diag) : NULL;
    if (!graph)
        return false;
    ef_schedule schedule = ef_schedule_default(graph, triton ? EF_BACKEND_TRITON : EF_BACKEND_C, triton ? 0 : 2);
    bool fine = triton ? ef_codegen_triton(graph, &schedule, "region", &source, diag)
                       : device.print(graph, &schedule, "region", &source, diag);
    if (fine) {
        region->candidate = region->program;
        region->language = triton ? "triton" : "c";
        region->source = ef_arena_strndup(plan->arena, source.text, source.length);
        region->entry = "region";
        region->schedule = "";
        region->device = "none";
        region->threads = 2;
        region->kernels = graph->kernels.count;
        region->original = true;
        region->us = region->warm_us = region->original_us = region->floor_us = 1;
    }
    ef_strbuf_free(&source);
    ef_schedule_free(&schedule);
    ef_kgraph_free(graph);
    return fine;
}

static void make(void *user)
{
    job *j = user;
    ef_module *module = ef_module_read(j->in, &j->diag);
    ef_plan *plan = module ? ef_plan_new(module, "cpu") : NULL;
    j->fine = plan != NULL;
    for (uint32_t i = 0; j->fine && i < plan->steps; i++)
        if (plan->step[i].kind == EF_MS_REGION)
            j->fine = fill(plan, &plan->region[plan->step[i].region], module->step[i].program, j->triton, &j->diag);
    j->fine = j->fine && ef_plan_write(plan, j->out, &j->diag);
    ef_plan_free(plan);
    ef_module_free(module);
}

int main(int argc, char **argv)
{
    if (argc < 3)
        return fputs("usage: plan FILE OUT.efz [triton]\n", stderr), 2;
    job j = {.in = argv[1], .out = argv[2], .triton = argc > 3};
    ef_with_deep_stack(make, &j);
    if (!j.fine)
        fprintf(stderr, "%s\n", j.diag.text);
    return !j.fine;
}
