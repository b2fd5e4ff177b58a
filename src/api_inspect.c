/* equiforge_inspect_file: what a file of any kind consists of. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api.h"
#include "frontend/exported.h"
#include "plan/check.h"
#include "support/archive.h"
#include "support/hash.h"
#include "support/strbuf.h"

/* ---- what all kinds need ---- */

/* A size below 0 is known at run time only. The element type's name must stay. */
static equiforge_tensor tensor_of(ef_arena *arena, const char *name, const char *dtype, uint32_t rank,
                                  const int64_t *sizes)
{
    ef_strbuf text = {0};
    equiforge_tensor tensor = {.name = ef_arena_strndup(arena, name, strlen(name)), .rank = rank, .dtype = dtype};
    const char **dim = ef_arena_alloc(arena, rank * sizeof *dim);
    uint64_t *size = ef_arena_alloc(arena, rank * sizeof *size);
    ef_strbuf_printf(&text, "%s[", dtype);
    for (uint32_t i = 0; i < rank; i++) {
        char number[24];
        snprintf(number, sizeof number, "%lld", (long long)sizes[i]);
        dim[i] = sizes[i] < 0 ? "?" : ef_arena_strndup(arena, number, strlen(number));
        size[i] = sizes[i] < 0 ? 0 : (uint64_t)sizes[i];
        ef_strbuf_printf(&text, "%s%s", i ? ", " : "", dim[i]);
    }
    ef_strbuf_puts(&text, "]");
    tensor.type = ef_arena_strndup(arena, text.text, text.length);
    tensor.dim = dim;
    tensor.size = size;
    ef_strbuf_free(&text);
    return tensor;
}

/* Counts names. */
typedef struct {
    ef_intern *names;
    EF_VEC(uint32_t) count;
} counter;

static counter counter_new(void)
{
    return (counter){.names = ef_intern_new()};
}

static void count_one(counter *c, const char *name, uint32_t times)
{
    int fresh;
    uint32_t id = ef_intern_put(c->names, name, strlen(name), &fresh);
    if (fresh)
        ef_vec_push(&c->count, 0);
    ef_vec_reserve(&c->count, id + 1);
    c->count.at[id] += times;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const equiforge_operator *)a)->name, ((const equiforge_operator *)b)->name);
}

/* What was counted, by name; frees the counter. */
static const equiforge_operator *counted(counter *c, ef_arena *arena, size_t *count)
{
    equiforge_operator *op = ef_arena_alloc(arena, c->count.count * sizeof *op);
    for (uint32_t i = 0; i < c->count.count; i++) {
        size_t length;
        const char *name = ef_intern_at(c->names, i, &length);
        op[i] = (equiforge_operator){ef_arena_strndup(arena, name, length), c->count.at[i]};
    }
    *count = c->count.count;
    if (*count)
        qsort(op, *count, sizeof *op, by_name);
    ef_intern_free(c->names);
    ef_vec_free(&c->count);
    return op;
}

/* ---- modules ---- */

/* The IR's name where it has the type, else PyTorch's. */
static const char *dtype_name(ef_xscalar dtype)
{
    static const struct {
        ef_xscalar dtype;
        ef_dtype ir;
    } known[] = {{EF_X_BOOL, EF_BOOL},     {EF_X_INT32, EF_I32},   {EF_X_INT64, EF_I64},  {EF_X_FLOAT16, EF_F16},
                 {EF_X_BFLOAT16, EF_BF16}, {EF_X_FLOAT32, EF_F32}, {EF_X_FLOAT64, EF_F64}};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (known[i].dtype == dtype)
            return ef_dtype_names[known[i].ir];
    return ef_xscalars[dtype].name;
}

static equiforge_tensor describe(ef_arena *arena, const char *name, const ef_xvalue *v)
{
    return tensor_of(arena, name, dtype_name(v->dtype), v->rank, v->size);
}

static bool is_tensor(const ef_exported *m, uint32_t value)
{
    return value != EF_NONE && m->value[value].kind == EF_XV_TENSOR;
}

static void list_inputs(const ef_exported *m, ef_arena *arena, equiforge_inspection *out)
{
    equiforge_tensor *input = ef_arena_alloc(arena, m->inputs * sizeof *input);
    equiforge_tensor *parameter = ef_arena_alloc(arena, m->inputs * sizeof *parameter);
    for (uint32_t i = 0; i < m->inputs; i++) {
        const ef_xinput *in = &m->input[i];
        if (!is_tensor(m, in->value))
            continue;
        if (in->kind == EF_XI_USER)
            input[out->inputs++] = describe(arena, m->value[in->value].name, &m->value[in->value]);
        else
            parameter[out->parameters++] = describe(arena, in->target, &m->value[in->value]);
    }
    out->input = input;
    out->parameter = parameter;
}

static void list_outputs(const ef_exported *m, ef_arena *arena, equiforge_inspection *out)
{
    equiforge_tensor *output = ef_arena_alloc(arena, m->outputs * sizeof *output);
    for (uint32_t i = 0; i < m->outputs; i++)
        if (m->output[i].kind == EF_XO_USER && is_tensor(m, m->output[i].value))
            output[out->outputs++] = describe(arena, m->value[m->output[i].value].name, &m->value[m->output[i].value]);
    out->output = output;
}

static void list_operators(const ef_module *m, ef_arena *arena, equiforge_inspection *out)
{
    counter operators = counter_new(), externals = counter_new();
    for (uint32_t i = 0; i < m->exported->nodes; i++)
        count_one(&operators, m->exported->node[i].target, 1);
    for (uint32_t i = 0; i < m->steps; i++)
        if (m->step[i].kind == EF_MS_EXTERNAL)
            count_one(&externals, m->step[i].target, 1);
    out->op = counted(&operators, arena, &out->operators);
    out->external = counted(&externals, arena, &out->externals);
}

static bool inspect_module(const char *path, ef_arena *arena, equiforge_inspection *out, ef_diag *diag)
{
    ef_module *m = ef_module_read(path, diag);
    if (m && !m->exported)
        ef_fail(diag, "%.300s: no archive", path);
    bool fine = m && m->exported && ef_exported_verify(m->exported, diag);
    ef_strbuf text = {0};
    *out = (equiforge_inspection){0};
    if (fine) {
        ef_module_print(m, &text);
        out->name = ef_arena_strndup(arena, m->name, strlen(m->name));
        out->text = ef_arena_strndup(arena, text.text, text.length);
        list_inputs(m->exported, arena, out);
        list_outputs(m->exported, arena, out);
        list_operators(m, arena, out);
    }
    ef_strbuf_free(&text);
    ef_module_free(m);
    return fine;
}

/* ---- optimised modules ---- */

static equiforge_tensor describe_value(ef_arena *arena, const char *name, const ef_mvalue *v)
{
    const char *dtype = v->dtype < EF_DTYPE_COUNT ? ef_dtype_names[v->dtype] : v->torch_dtype;
    return tensor_of(arena, name, ef_arena_strndup(arena, dtype, strlen(dtype)), v->rank, v->size);
}

static void list_values(const ef_plan *plan, ef_arena *arena, equiforge_inspection *out)
{
    equiforge_tensor *input = ef_arena_alloc(arena, plan->values * sizeof *input);
    equiforge_tensor *parameter = ef_arena_alloc(arena, plan->values * sizeof *parameter);
    equiforge_tensor *output = ef_arena_alloc(arena, plan->outputs * sizeof *output);
    for (uint32_t i = 0; i < plan->values; i++) {
        const ef_mvalue *v = &plan->value[i];
        if (v->kind == EF_MV_INPUT)
            input[out->inputs++] = describe_value(arena, v->name, v);
        else if (v->kind != EF_MV_RESULT)
            parameter[out->parameters++] = describe_value(arena, v->target, v);
    }
    for (uint32_t i = 0; i < plan->outputs; i++)
        if (plan->output[i].value != EF_NONE)
            output[out->outputs++] =
                describe_value(arena, plan->value[plan->output[i].value].name, &plan->value[plan->output[i].value]);
    out->input = input;
    out->parameter = parameter;
    out->output = output;
}

/* Operators of all programs as they were given, and calls that stay. */
static bool list_plan_operators(const ef_plan *plan, ef_arena *arena, equiforge_inspection *out, ef_diag *diag)
{
    counter operators = counter_new(), externals = counter_new();
    bool fine = true;
    for (uint32_t i = 0; i < plan->steps && fine; i++) {
        ef_plan_programs programs;
        equiforge_inspection one;
        if (plan->step[i].kind == EF_MS_EXTERNAL) {
            count_one(&externals, plan->step[i].target, 1);
            continue;
        }
        fine = ef_plan_programs_open(&plan->region[plan->step[i].region], &programs, diag);
        if (!fine)
            break;
        ef_api_inspect(programs.program, arena, &one);
        for (size_t k = 0; k < one.operators; k++)
            count_one(&operators, one.op[k].name, one.op[k].count);
        ef_plan_programs_close(&programs);
    }
    out->op = counted(&operators, arena, &out->operators);
    out->external = counted(&externals, arena, &out->externals);
    return fine;
}

/* The implementations in the order of the steps. */
static const char *plan_text(const ef_plan *plan, ef_arena *arena)
{
    ef_strbuf text = {0};
    for (uint32_t i = 0; i < plan->steps; i++) {
        const ef_plan_step *step = &plan->step[i];
        const ef_plan_region *region = step->kind == EF_MS_REGION ? &plan->region[step->region] : NULL;
        if (!region)
            ef_strbuf_printf(&text, "# step %u: %s stays in PyTorch\n", i, step->target);
        else
            ef_strbuf_printf(&text, "# step %u: region %u in %s, schedule: %s\n%s", i, step->region, region->language,
                             region->schedule[0] ? region->schedule : "none", region->candidate);
    }
    const char *copy = ef_arena_strndup(arena, text.text ? text.text : "", text.length);
    ef_strbuf_free(&text);
    return copy;
}

/* Reading a plan does not touch the module that may stand beside it. */
static bool sums_agree(const char *path, ef_diag *diag)
{
    ef_archive *archive = ef_archive_open(path, diag);
    bool fine = archive && ef_archive_verify(archive, diag);
    ef_archive_close(archive);
    return fine;
}

static bool inspect_plan(const char *path, ef_arena *arena, equiforge_inspection *out, ef_diag *diag)
{
    ef_plan *plan = ef_plan_read(path, diag);
    *out = (equiforge_inspection){0};
    if (!plan)
        return false;
    out->name = ef_arena_strndup(arena, plan->name, strlen(plan->name));
    out->text = plan_text(plan, arena);
    list_values(plan, arena, out);
    bool fine = sums_agree(path, diag) && list_plan_operators(plan, arena, out, diag);
    ef_plan_free(plan);
    return fine;
}

/* ---- any file ---- */

static bool inspect_text(const char *path, ef_arena *arena, equiforge_inspection *out, ef_diag *diag)
{
    ef_ctx *ctx = ef_ctx_new();
    ef_program *ir = ef_program_read(ctx, path, diag);
    if (ir)
        ef_api_inspect(ir, arena, out);
    ef_program_free(ir);
    ef_ctx_free(ctx);
    return ir != NULL;
}

static const struct {
    const char *end;
    bool (*inspect)(const char *path, ef_arena *arena, equiforge_inspection *out, ef_diag *diag);
} kinds[] = {{".ef", inspect_text}, {".pt2", inspect_module}, {".efz", inspect_plan}};

equiforge_status equiforge_inspect_file(equiforge_session *session, const char *path, equiforge_inspection *inspection)
{
    ef_diag *diag = ef_api_diag(session);
    ef_arena *arena = ef_api_arena(&session->inspection);
    const char *dot = strrchr(path, '.');
    for (size_t i = 0; dot && i < sizeof kinds / sizeof *kinds; i++)
        if (strcmp(dot, kinds[i].end) == 0)
            return kinds[i].inspect(path, arena, inspection, diag) ? EQUIFORGE_OK : EQUIFORGE_BAD_INPUT;
    ef_fail(diag, "%.300s: is none of the kinds that can be read: .ef, .pt2, .efz", path);
    return EQUIFORGE_BAD_INPUT;
}
