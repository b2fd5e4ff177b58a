/* Plans in memory: see plan.h. */
#include "plan/plan.h"

#include <string.h>

static const char *copy(ef_arena *arena, const char *text)
{
    return text ? ef_arena_strndup(arena, text, strlen(text)) : NULL;
}

static const uint32_t *copy_ids(ef_arena *arena, const uint32_t *ids, uint32_t count)
{
    uint32_t *kept = ef_arena_alloc(arena, count * sizeof *kept);
    if (count)
        memcpy(kept, ids, count * sizeof *kept);
    return kept;
}

static void copy_values(ef_plan *plan, const ef_module *module)
{
    ef_mvalue *value = ef_arena_alloc(plan->arena, module->values * sizeof *value);
    for (uint32_t i = 0; i < module->values; i++) {
        const ef_mvalue *from = &module->value[i];
        int64_t *size = ef_arena_alloc(plan->arena, from->rank * sizeof *size);
        if (from->rank)
            memcpy(size, from->size, from->rank * sizeof *size);
        value[i] = *from;
        value[i].name = copy(plan->arena, from->name);
        value[i].target = copy(plan->arena, from->target);
        value[i].entry = copy(plan->arena, from->entry);
        value[i].torch_dtype = copy(plan->arena, from->torch_dtype);
        value[i].size = size;
    }
    plan->value = value;
    plan->values = module->values;
}

static void copy_steps(ef_plan *plan, const ef_module *module)
{
    plan->step = ef_arena_alloc(plan->arena, module->steps * sizeof *plan->step);
    plan->region = ef_arena_alloc(plan->arena, module->steps * sizeof *plan->region);
    plan->steps = module->steps;
    for (uint32_t i = 0; i < module->steps; i++) {
        const ef_mstep *from = &module->step[i];
        plan->step[i] = (ef_plan_step){
            .kind = from->kind,
            .region = EF_NONE,
            .ins = from->ins,
            .outs = from->outs,
            .in = copy_ids(plan->arena, from->in, from->ins),
            .out = copy_ids(plan->arena, from->out, from->outs),
            .target = copy(plan->arena, from->target),
            .arguments = copy(plan->arena, from->arguments),
            .results = copy(plan->arena, from->results),
            .reason = copy(plan->arena, from->reason),
        };
        if (from->kind != EF_MS_REGION)
            continue;
        ef_strbuf text = {0};
        ef_program_print(from->program, &text);
        plan->region[plan->regions].program = copy(plan->arena, text.text);
        plan->step[i].region = plan->regions++;
        ef_strbuf_free(&text);
    }
}

static void copy_results(ef_plan *plan, const ef_module *module)
{
    ef_moutput *output = ef_arena_alloc(plan->arena, module->outputs * sizeof *output);
    ef_mmutation *mutation = ef_arena_alloc(plan->arena, module->mutations * sizeof *mutation);
    for (uint32_t i = 0; i < module->outputs; i++)
        output[i] = (ef_moutput){module->output[i].value, copy(plan->arena, module->output[i].literal)};
    if (module->mutations)
        memcpy(mutation, module->mutation, module->mutations * sizeof *mutation);
    plan->output = output;
    plan->outputs = module->outputs;
    plan->mutation = mutation;
    plan->mutations = module->mutations;
}

ef_plan *ef_plan_new(const ef_module *module, const char *target)
{
    ef_arena *arena = ef_arena_new();
    ef_plan *plan = ef_arena_alloc(arena, sizeof *plan);
    plan->arena = arena;
    plan->name = copy(arena, module->name);
    plan->target = copy(arena, target);
    plan->version = EQUIFORGE_VERSION;
    plan->user_inputs = module->user_inputs;
    plan->in_spec = copy(arena, module->in_spec);
    plan->out_spec = copy(arena, module->out_spec);
    copy_values(plan, module);
    copy_steps(plan, module);
    copy_results(plan, module);
    return plan;
}

void ef_plan_compact(ef_plan *plan)
{
    uint32_t kept = 0;
    uint32_t *number = ef_arena_alloc(plan->arena, plan->regions * sizeof *number);
    for (uint32_t i = 0; i < plan->steps; i++)
        if (plan->step[i].kind == EF_MS_REGION)
            number[plan->step[i].region] = 1;
    for (uint32_t i = 0; i < plan->regions; i++) {
        if (!number[i])
            continue;
        plan->region[kept] = plan->region[i];
        number[i] = kept++;
    }
    for (uint32_t i = 0; i < plan->steps; i++)
        if (plan->step[i].kind == EF_MS_REGION)
            plan->step[i].region = number[plan->step[i].region];
    plan->regions = kept;
}

void ef_plan_free(ef_plan *plan)
{
    if (plan)
        ef_arena_free(plan->arena);
}
