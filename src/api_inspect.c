/* equiforge_inspect_file: what a file of any kind consists of. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api.h"
#include "frontend/exported.h"
#include "support/archive.h"
#include "support/hash.h"
#include "support/strbuf.h"

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
    ef_strbuf text = {0};
    equiforge_tensor tensor = {.name = ef_arena_strndup(arena, name, strlen(name)), .rank = v->rank};
    const char **dim = ef_arena_alloc(arena, v->rank * sizeof *dim);
    uint64_t *size = ef_arena_alloc(arena, v->rank * sizeof *size);
    tensor.dtype = dtype_name(v->dtype);
    ef_strbuf_printf(&text, "%s[", tensor.dtype);
    for (uint32_t i = 0; i < v->rank; i++) {
        char number[24];
        snprintf(number, sizeof number, "%lld", (long long)v->size[i]);
        dim[i] = v->size[i] < 0 ? "?" : ef_arena_strndup(arena, number, strlen(number));
        size[i] = v->size[i] < 0 ? 0 : (uint64_t)v->size[i];
        ef_strbuf_printf(&text, "%s%s", i ? ", " : "", dim[i]);
    }
    ef_strbuf_puts(&text, "]");
    tensor.type = ef_arena_strndup(arena, text.text, text.length);
    tensor.dim = dim;
    tensor.size = size;
    ef_strbuf_free(&text);
    return tensor;
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

static int by_name(const void *a, const void *b)
{
    return strcmp(((const equiforge_operator *)a)->name, ((const equiforge_operator *)b)->name);
}

/* Distinct names in alphabetical order, with how often each occurs; NULL does not count. */
static size_t count_names(const char *const *name, uint32_t count, ef_arena *arena, const equiforge_operator **out)
{
    equiforge_operator *op = ef_arena_alloc(arena, count * sizeof *op);
    ef_intern *names = ef_intern_new();
    for (uint32_t i = 0; i < count; i++) {
        int fresh;
        if (!name[i])
            continue;
        uint32_t id = ef_intern_put(names, name[i], strlen(name[i]), &fresh);
        if (fresh)
            op[id].name = ef_arena_strndup(arena, name[i], strlen(name[i]));
        op[id].count++;
    }
    size_t distinct = ef_intern_count(names);
    ef_intern_free(names);
    if (distinct)
        qsort(op, distinct, sizeof *op, by_name);
    *out = op;
    return distinct;
}

static void list_operators(const ef_module *m, ef_arena *arena, equiforge_inspection *out)
{
    uint32_t nodes = m->exported->nodes;
    const char **target = ef_arena_alloc(arena, nodes * sizeof *target);
    const char **external = ef_arena_alloc(arena, m->steps * sizeof *external);
    for (uint32_t i = 0; i < nodes; i++)
        target[i] = m->exported->node[i].target;
    for (uint32_t i = 0; i < m->steps; i++)
        external[i] = m->step[i].kind == EF_MS_EXTERNAL ? m->step[i].target : NULL;
    out->operators = count_names(target, nodes, arena, &out->op);
    out->externals = count_names(external, m->steps, arena, &out->external);
}

static bool inspect_module(const char *path, ef_arena *arena, equiforge_inspection *out, ef_diag *diag)
{
    ef_module *m = ef_module_read(path, diag);
    bool fine = m && (m->exported ? ef_exported_verify(m->exported, diag) : ef_fail(diag, "%.300s: no archive", path));
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
} kinds[] = {{".ef", inspect_text}, {".pt2", inspect_module}};

equiforge_status equiforge_inspect_file(equiforge_session *session, const char *path, equiforge_inspection *inspection)
{
    ef_diag *diag = ef_api_diag(session);
    ef_arena *arena = ef_api_arena(&session->inspection);
    const char *dot = strrchr(path, '.');
    for (size_t i = 0; dot && i < sizeof kinds / sizeof *kinds; i++)
        if (strcmp(dot, kinds[i].end) == 0)
            return kinds[i].inspect(path, arena, inspection, diag) ? EQUIFORGE_OK : EQUIFORGE_BAD_INPUT;
    ef_fail(diag, "%.300s: is none of the kinds that can be read: .ef, .pt2", path);
    return EQUIFORGE_BAD_INPUT;
}
