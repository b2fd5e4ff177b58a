/* Modules: memory, and programs in text form as modules of one region. See module.h. */
#include "frontend/module.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "frontend/exported.h"
#include "frontend/regions.h"
#include "support/deepstack.h"

const char *ef_torch_dtype(ef_dtype dtype)
{
    static const char *const names[EF_DTYPE_COUNT] = {
        [EF_BOOL] = "bool",   [EF_NUM] = "",          [EF_I32] = "int32",   [EF_I64] = "int64",
        [EF_F16] = "float16", [EF_BF16] = "bfloat16", [EF_F32] = "float32", [EF_F64] = "float64",
    };
    return dtype < EF_DTYPE_COUNT ? names[dtype] : "";
}

ef_module *ef_module_new(void)
{
    ef_arena *arena = ef_arena_new();
    ef_module *module = ef_arena_alloc(arena, sizeof *module);
    module->store = ef_arena_alloc(arena, sizeof *module->store);
    module->store->arena = arena;
    return module;
}

void ef_module_free(ef_module *module)
{
    if (!module)
        return;
    struct ef_module_store *store = module->store;
    for (uint32_t i = 0; i < store->programs.count; i++)
        ef_program_free(store->programs.at[i]);
    for (uint32_t i = 0; i < store->contexts.count; i++)
        ef_ctx_free(store->contexts.at[i]);
    ef_vec_free(&store->programs);
    ef_vec_free(&store->contexts);
    ef_exported_free(module->exported);
    ef_arena_free(store->arena);
}

/* ---- programs as modules ---- */

static bool describe(ef_module *module, const ef_ctx *ctx, const char *name, ef_type type, ef_mvalue *value,
                     ef_diag *diag)
{
    const ef_type_info *info = ef_type_at(ctx, type);
    if (info->is_tuple)
        return ef_fail(diag, "%.200s is a tuple: a module's inputs and outputs are tensors", name);
    int64_t *size = ef_arena_alloc(module->store->arena, info->rank * sizeof *size);
    for (unsigned i = 0; i < info->rank; i++)
        size[i] = (int64_t)ef_dim_extent(ctx, info->dim[info->rank - 1u - i]);
    value->name = ef_arena_strndup(module->store->arena, name, strlen(name));
    value->source = EF_NONE;
    value->dtype = (ef_dtype)info->dtype;
    value->torch_dtype = ef_torch_dtype((ef_dtype)info->dtype);
    value->rank = info->rank;
    value->size = size;
    return true;
}

/* An output may have an input's name only when it is that input; elsewhere names of a program are unique. Several
 * outputs may be one expression: each is a value of its own. */
static bool fill(ef_module *module, ef_program *p, ef_diag *diag)
{
    const ef_ctx *ctx = ef_dag_ctx(p->dag);
    ef_arena *arena = module->store->arena;
    ef_mvalue *value = ef_arena_alloc(arena, (p->inputs + p->outputs) * sizeof *value);
    ef_mstep *step = ef_arena_alloc(arena, sizeof *step);
    ef_moutput *output = ef_arena_alloc(arena, p->outputs * sizeof *output);
    uint32_t *ids = ef_arena_alloc(arena, (p->inputs + p->outputs) * sizeof *ids);
    for (uint32_t i = 0; i < p->inputs + p->outputs; i++) {
        bool input = i < p->inputs;
        const char *name = input ? ef_input_name(ctx, p->input[i]) : p->output[i - p->inputs].name;
        ef_type type = input ? ef_input_type(ctx, p->input[i]) : ef_dag_type(p->dag, p->output[i - p->inputs].expr);
        if (!describe(module, ctx, name, type, &value[i], diag))
            return false;
        value[i].kind = input ? EF_MV_INPUT : EF_MV_RESULT;
        value[i].input = input ? i : 0;
        ids[i] = i;
        if (!input)
            output[i - p->inputs].value = i;
    }
    *step = (ef_mstep){.kind = EF_MS_REGION, .ins = p->inputs, .outs = p->outputs, .program = p};
    step->in = ids;
    step->out = ids + p->inputs;
    module->name = ef_arena_strndup(arena, p->name, strlen(p->name));
    module->value = value;
    module->values = p->inputs + p->outputs;
    module->step = step;
    module->steps = module->regions = 1;
    module->output = output;
    module->outputs = p->outputs;
    module->user_inputs = p->inputs;
    return true;
}

ef_module *ef_module_of_program(ef_program *program, ef_diag *diag)
{
    ef_module *module = ef_module_new();
    if (!fill(module, program, diag)) {
        ef_module_free(module);
        return NULL;
    }
    return module;
}

/* ---- files ---- */

static ef_module *read_text(const char *path, ef_diag *diag)
{
    ef_ctx *ctx = ef_ctx_new();
    ef_program *program = ef_program_read(ctx, path, diag);
    ef_module *module = program ? ef_module_of_program(program, diag) : NULL;
    if (!module) {
        ef_program_free(program);
        ef_ctx_free(ctx);
        return NULL;
    }
    ef_vec_push(&module->store->programs, program);
    ef_vec_push(&module->store->contexts, ctx);
    return module;
}

typedef struct {
    ef_exported *exported; /* becomes the module's */
    ef_diag *diag;
    ef_module *module;
} translation_job;

static void translate_deep(void *arg)
{
    translation_job *job = arg;
    ef_module *module = ef_module_new();
    ef_translation *translation = ef_translate(job->exported);
    module->exported = job->exported;
    module->name = job->exported->name;
    module->in_spec = job->exported->in_spec;
    module->out_spec = job->exported->out_spec;
    if (ef_regions_plan(module, translation, job->diag))
        job->module = module;
    else
        ef_module_free(module);
    ef_translation_free(translation);
}

bool ef_module_is_archive(const char *path)
{
    unsigned char start[2] = {0};
    struct stat info;
    size_t length = strlen(path);
    if (length > 4 && strcmp(path + length - 4, ".pt2") == 0)
        return true; /* whatever it holds: the reader says what is wrong */
    if (stat(path, &info) != 0 || !S_ISREG(info.st_mode))
        return false;
    FILE *file = fopen(path, "rb");
    bool archive = file && fread(start, 1, 2, file) == 2 && memcmp(start, "PK", 2) == 0;
    if (file)
        fclose(file);
    return archive;
}

ef_module *ef_module_read(const char *path, ef_diag *diag)
{
    const char *dot = strrchr(path, '.');
    if (!ef_module_is_archive(path) && !(dot && strcmp(dot, ".ef") == 0)) {
        ef_fail(diag, "%.300s: neither a program in text form (.ef) nor an exported module (.pt2)", path);
        return NULL;
    }
    if (!ef_module_is_archive(path))
        return read_text(path, diag);
    translation_job job = {.exported = ef_exported_read(path, diag), .diag = diag};
    if (job.exported)
        ef_with_deep_stack(translate_deep, &job);
    return job.module;
}

/* ---- text ---- */

static void print_call(const ef_module *m, const ef_mstep *s, ef_strbuf *out)
{
    ef_strbuf_puts(out, "# ");
    for (uint32_t i = 0; i < s->outs; i++)
        ef_strbuf_printf(out, "%s%s", i ? ", " : "", m->value[s->out[i]].name);
    ef_strbuf_printf(out, " = %s(", s->target);
    for (uint32_t i = 0; i < s->ins; i++)
        ef_strbuf_printf(out, "%s%s", i ? ", " : "", m->value[s->in[i]].name);
    ef_strbuf_printf(out, ") stays external: %s\n", s->reason);
}

void ef_module_print(const ef_module *m, ef_strbuf *out)
{
    for (uint32_t i = 0; i < m->steps; i++) {
        bool region = m->step[i].kind == EF_MS_REGION;
        if (i && (region || m->step[i - 1].kind == EF_MS_REGION))
            ef_strbuf_puts(out, "\n");
        if (region)
            ef_program_print(m->step[i].program, out);
        else
            print_call(m, &m->step[i], out);
    }
    if (!m->steps)
        ef_strbuf_puts(out, "# nothing to compute\n");
}
