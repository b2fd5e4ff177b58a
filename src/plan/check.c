/* Whether a plan is whole and consistent: see plan.h. A file may say anything, and so may a driver with an error. */
#include "plan/check.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "codegen/settings.h"
#include "support/hash.h"

#define MAX_RANK 64

/* Letters, digits, "_" and what `more` has; not empty, not longer than a name can be. */
static bool is_word(const char *text, const char *more)
{
    size_t length = text ? strlen(text) : 0;
    for (size_t i = 0; i < length; i++)
        if (!isalnum((unsigned char)text[i]) && text[i] != '_' && !strchr(more, text[i]))
            return false;
    return length > 0 && length < 1000;
}

/* ---- values ---- */

static bool check_value(const ef_plan *plan, uint32_t i, ef_diag *diag)
{
    const ef_mvalue *v = &plan->value[i];
    uint64_t elements = 1;
    if (!is_word(v->name, ""))
        return ef_fail(diag, "value %u has no name", i);
    if (!is_word(v->torch_dtype, ""))
        return ef_fail(diag, "value '%.80s' has no element type", v->name);
    if (v->dtype < EF_DTYPE_COUNT && strcmp(v->torch_dtype, ef_torch_dtype(v->dtype)) != 0)
        return ef_fail(diag, "value '%.80s' has two element types", v->name);
    if (v->rank > MAX_RANK)
        return ef_fail(diag, "value '%.80s' has %u dimensions", v->name, v->rank);
    for (uint32_t d = 0; d < v->rank; d++) {
        if (v->size[d] == -1 && v->kind == EF_MV_RESULT)
            continue;
        if (v->size[d] < 0 || (v->size[d] && (uint64_t)v->size[d] > EF_MAX_EXTENT / elements))
            return ef_fail(diag, "value '%.80s' has an impossible size", v->name);
        elements *= v->size[d] ? (uint64_t)v->size[d] : 1;
    }
    if (v->kind == EF_MV_INPUT && v->input >= plan->user_inputs)
        return ef_fail(diag, "value '%.80s' is input %u of %u", v->name, v->input, plan->user_inputs);
    if (v->kind == EF_MV_RESULT && v->step >= plan->steps)
        return ef_fail(diag, "value '%.80s' is a result of step %u of %u", v->name, v->step, plan->steps);
    if (v->kind != EF_MV_INPUT && v->kind != EF_MV_RESULT && (!v->target || !v->target[0]))
        return ef_fail(diag, "value '%.80s' stands nowhere in the module", v->name);
    return true;
}

static bool check_values(const ef_plan *plan, ef_diag *diag)
{
    ef_intern *names = ef_intern_new();
    uint8_t *given = ef_xcalloc(plan->user_inputs, 1);
    bool fine = true;
    for (uint32_t i = 0; i < plan->values && fine; i++) {
        const ef_mvalue *v = &plan->value[i];
        int fresh;
        fine = check_value(plan, i, diag);
        if (!fine)
            break;
        ef_intern_put(names, v->name, strlen(v->name), &fresh);
        if (!fresh)
            fine = ef_fail(diag, "two values are called '%.80s'", v->name);
        else if (v->kind == EF_MV_INPUT && given[v->input]++)
            fine = ef_fail(diag, "two values are input %u", v->input);
    }
    free(given);
    ef_intern_free(names);
    return fine;
}

/* ---- regions ---- */

static bool same_interface(const ef_program *a, const ef_program *b, ef_diag *diag)
{
    if (a->inputs != b->inputs || a->outputs != b->outputs)
        return ef_fail(diag, "program and implementation differ in their number of inputs or outputs");
    for (uint32_t i = 0; i < a->inputs; i++)
        if (a->input[i] != b->input[i])
            return ef_fail(diag, "program and implementation differ in input %u", i);
    for (uint32_t i = 0; i < a->outputs; i++)
        if (ef_dag_type(a->dag, a->output[i].expr) != ef_dag_type(b->dag, b->output[i].expr))
            return ef_fail(diag, "program and implementation differ in the type of output '%.80s'", a->output[i].name);
    return true;
}

bool ef_plan_programs_open(const ef_plan_region *region, ef_plan_programs *programs, ef_diag *diag)
{
    programs->ctx = ef_ctx_new();
    programs->program = ef_program_parse(programs->ctx, region->program, strlen(region->program), "program.ef", diag);
    programs->candidate = programs->program ? ef_program_parse(programs->ctx, region->candidate,
                                                               strlen(region->candidate), "candidate.ef", diag)
                                            : NULL;
    if (programs->candidate && same_interface(programs->program, programs->candidate, diag))
        return true;
    ef_plan_programs_close(programs);
    return false;
}

void ef_plan_programs_close(ef_plan_programs *programs)
{
    ef_program_free(programs->candidate);
    ef_program_free(programs->program);
    ef_ctx_free(programs->ctx);
    *programs = (ef_plan_programs){0};
}

static bool check_numbers(const ef_plan_region *r, ef_diag *diag)
{
    const double numbers[] = {r->us, r->warm_us, r->original_us, r->floor_us, r->rel_l2};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        if (!isfinite(numbers[i]) || numbers[i] < 0)
            return ef_fail(diag, "a measurement is no number");
    if (r->threads > 1024 || r->kernels > 1u << 20)
        return ef_fail(diag, "more threads or kernels than can be");
    return true;
}

/* As far as it goes without kernels, which another version may form otherwise. */
static bool check_schedule(const ef_plan_region *r, ef_diag *diag)
{
    ef_diag inner = {0};
    for (const char *at = r->schedule; *at; at++)
        if (iscntrl((unsigned char)*at))
            return ef_fail(diag, "the schedule of the implementation is not one line");
    ef_backend backend = strcmp(r->language, "c") == 0 ? EF_BACKEND_C : EF_BACKEND_TRITON;
    return ef_settings_check(backend, r->kernels, r->schedule, &inner) ||
           ef_fail(diag, "the schedule of the implementation is damaged: %s", inner.text);
}

static bool check_region(const ef_plan_region *r, ef_diag *diag)
{
    if (!r->program || !r->candidate || !r->source || !r->schedule || !r->device)
        return ef_fail(diag, "the implementation is not complete");
    if (!r->language ||
        (strcmp(r->language, "c") != 0 && strcmp(r->language, "triton") != 0 && strcmp(r->language, "torch") != 0))
        return ef_fail(diag, "code in the unknown language '%.40s'", r->language ? r->language : "");
    if (!is_word(r->entry, "") || isdigit((unsigned char)r->entry[0]) || !strstr(r->source, r->entry))
        return ef_fail(diag, "the code has no function '%.80s'", r->entry ? r->entry : "");
    for (uint32_t i = 0; i < r->equations; i++) {
        const ef_equation *e = &r->equation[i];
        if (!e->output || !e->rule || !e->before || !e->after)
            return ef_fail(diag, "equation %u of the derivation is not complete", i);
    }
    return check_numbers(r, diag) && check_schedule(r, diag);
}

/* ---- steps ---- */

static bool same_type(const ef_ctx *ctx, ef_type type, const ef_mvalue *v)
{
    const ef_type_info *info = ef_type_at(ctx, type);
    if (info->is_tuple || info->places || info->dtype != v->dtype || info->rank != v->rank)
        return false;
    for (uint32_t d = 0; d < v->rank; d++)
        if (ef_dim_extent(ctx, info->dim[v->rank - 1 - d]) != (uint64_t)v->size[d])
            return false;
    return true;
}

static bool check_types(const ef_plan *plan, const ef_plan_step *step, const ef_plan_programs *p, ef_diag *diag)
{
    if (step->ins != p->program->inputs || step->outs != p->program->outputs)
        return ef_fail(diag, "the program has %u inputs and %u outputs, the step %u and %u", p->program->inputs,
                       p->program->outputs, step->ins, step->outs);
    for (uint32_t i = 0; i < step->ins; i++)
        if (!same_type(p->ctx, ef_input_type(p->ctx, p->program->input[i]), &plan->value[step->in[i]]))
            return ef_fail(diag, "value '%.80s' has not the type of input %u", plan->value[step->in[i]].name, i);
    for (uint32_t i = 0; i < step->outs; i++)
        if (!same_type(p->ctx, ef_dag_type(p->program->dag, p->program->output[i].expr), &plan->value[step->out[i]]))
            return ef_fail(diag, "value '%.80s' has not the type of output %u", plan->value[step->out[i]].name, i);
    return true;
}

/* A region, and all steps that have it. */
static bool check_uses(const ef_plan *plan, uint32_t region, ef_diag *diag)
{
    ef_plan_programs programs;
    bool fine = check_region(&plan->region[region], diag), used = false;
    if (!fine || !ef_plan_programs_open(&plan->region[region], &programs, diag))
        return false;
    for (uint32_t i = 0; i < plan->steps && fine; i++)
        if (plan->step[i].kind == EF_MS_REGION && plan->step[i].region == region) {
            fine = check_types(plan, &plan->step[i], &programs, diag);
            used = true;
        }
    ef_plan_programs_close(&programs);
    return fine && (used || ef_fail(diag, "region %u has no step", region));
}

/* Values are defined in order: those that are no result first. */
static bool check_step(const ef_plan *plan, uint32_t at, uint8_t *defined, ef_diag *diag)
{
    const ef_plan_step *step = &plan->step[at];
    for (uint32_t i = 0; i < step->ins; i++)
        if (step->in[i] >= plan->values || !defined[step->in[i]])
            return ef_fail(diag, "step %u uses value %u before it is there", at, step->in[i]);
    for (uint32_t i = 0; i < step->outs; i++) {
        uint32_t v = step->out[i];
        if (v >= plan->values || defined[v] || plan->value[v].kind != EF_MV_RESULT || plan->value[v].step != at)
            return ef_fail(diag, "step %u cannot define value %u", at, v);
        defined[v] = 1;
    }
    if (step->kind == EF_MS_REGION)
        return step->region < plan->regions || ef_fail(diag, "step %u has no region", at);
    return (is_word(step->target, ".:") || ef_fail(diag, "step %u calls nothing", at)) &&
           ef_plan_check_call(step, diag);
}

static bool check_results(const ef_plan *plan, const uint8_t *defined, ef_diag *diag)
{
    for (uint32_t i = 0; i < plan->outputs; i++) {
        uint32_t v = plan->output[i].value;
        if (v == EF_NONE ? !plan->output[i].literal : (v >= plan->values || !defined[v]))
            return ef_fail(diag, "output %u has no value", i);
    }
    for (uint32_t i = 0; i < plan->mutations; i++) {
        const ef_mmutation *m = &plan->mutation[i];
        if (m->value >= plan->values || m->target >= plan->values || !defined[m->value] ||
            plan->value[m->target].kind == EF_MV_RESULT)
            return ef_fail(diag, "mutation %u has no value or target", i);
        const ef_mvalue *a = &plan->value[m->value], *b = &plan->value[m->target];
        if (a->rank != b->rank || memcmp(a->size, b->size, a->rank * sizeof *a->size) != 0 ||
            strcmp(a->torch_dtype, b->torch_dtype) != 0)
            return ef_fail(diag, "mutation %u writes a tensor of another type", i);
    }
    return true;
}

bool ef_plan_check_module(const ef_plan *plan, ef_diag *diag)
{
    if (!is_word(plan->target, "-"))
        return ef_fail(diag, "the target has no name");
    uint8_t *defined = ef_xcalloc(plan->values, 1);
    bool fine = check_values(plan, diag);
    for (uint32_t i = 0; i < plan->values && fine; i++)
        defined[i] = plan->value[i].kind != EF_MV_RESULT;
    for (uint32_t i = 0; i < plan->steps && fine; i++)
        fine = check_step(plan, i, defined, diag);
    for (uint32_t i = 0; i < plan->values && fine; i++)
        fine = defined[i] || ef_fail(diag, "value '%.80s' is never computed", plan->value[i].name);
    fine = fine && check_results(plan, defined, diag);
    free(defined);
    return fine;
}

bool ef_plan_check(const ef_plan *plan, ef_diag *diag)
{
    bool fine = ef_plan_check_module(plan, diag);
    for (uint32_t i = 0; i < plan->regions && fine; i++)
        fine = check_uses(plan, i, diag);
    return fine;
}
