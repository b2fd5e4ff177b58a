/* The public interface to optimised modules: reading `.efz` files, and running their regions on the CPU; and the way
 * to the Python package, which runs them on GPUs. */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "api.h"
#include "codegen/execute.h"
#include "codegen/torch.h"
#include "plan/manifest.h"
#include "plan/plan.h"
#include "support/processors.h"
#include "tune/compiled.h"
#include "tune/python.h"

equiforge_status equiforge_plan_open(equiforge_session *session, const char *path, equiforge_plan **plan)
{
    *plan = NULL;
    ef_plan *read = ef_plan_read(path, ef_api_diag(session));
    if (!read)
        return EQUIFORGE_BAD_INPUT;
    *plan = ef_xcalloc(1, sizeof **plan);
    (*plan)->session = session;
    (*plan)->plan = read;
    (*plan)->native = ef_xcalloc(read->regions + 1, sizeof *(*plan)->native);
    return EQUIFORGE_OK;
}

void equiforge_plan_close(equiforge_plan *plan)
{
    if (!plan)
        return;
    for (uint32_t i = 0; i < plan->plan->regions; i++)
        ef_native_close(&plan->native[i]);
    ef_arena_free(plan->result);
    ef_arena_free(plan->explanation);
    ef_plan_free(plan->plan);
    free(plan->native);
    free(plan->description);
    free(plan);
}

/* The region as it was given, as PyTorch source; NULL when that cannot be printed. */
static json_t *torch_source(const ef_plan_region *region)
{
    ef_ctx *ctx = ef_ctx_new();
    ef_strbuf text = {0};
    ef_program *program = ef_program_parse(ctx, region->program, strlen(region->program), "region", NULL);
    json_t *source = program && ef_codegen_torch(program, "region", &text, NULL) ? json_string(text.text) : NULL;
    ef_strbuf_free(&text);
    ef_program_free(program);
    ef_ctx_free(ctx);
    return source;
}

const char *equiforge_plan_describe(equiforge_plan *plan)
{
    json_t *manifest = plan->description ? NULL : ef_manifest_write(plan->plan, ef_api_diag(plan->session));
    if (!manifest)
        return plan->description;
    json_t *regions = json_object_get(manifest, "regions");
    for (uint32_t i = 0; i < plan->plan->regions; i++) {
        const ef_plan_region *region = &plan->plan->region[i];
        json_t *object = json_array_get(regions, i);
        json_object_set_new(object, "source", json_string(region->source));
        json_object_set_new(object, "program", json_string(region->program));
        json_object_set_new(object, "candidate", json_string(region->candidate));
        /* On a GPU, PyTorch itself may be the fastest that was found. */
        json_t *torch = region->original && strcmp(region->language, "triton") == 0 ? torch_source(region) : NULL;
        if (strcmp(region->language, "torch") == 0)
            torch = json_string(region->source);
        if (torch)
            json_object_set_new(object, "torch", torch);
    }
    plan->description = json_dumps(manifest, JSON_COMPACT | JSON_REAL_PRECISION(17));
    json_decref(manifest);
    return plan->description;
}

/* The workspace that generated C asks for, in a constant beside it. */
static bool open_native(ef_native *native, const ef_plan_region *region, ef_diag *diag)
{
    char name[300];
    native->library = ef_compiled(region->source, strlen(region->source), diag);
    if (!native->library)
        return false;
    snprintf(name, sizeof name, "%.250s_work", region->entry);
    const uint64_t *work = ef_library_symbol(native->library, name);
    native->entry = ef_library_entry(native->library, region->entry, diag);
    if (!native->entry || !work)
        return ef_fail(diag, "the code of %.200s has no %.250s", region->entry, work ? region->entry : name);
    if (*work > UINT64_C(1) << 40)
        return ef_fail(diag, "the code of %.200s wants more memory than there is", region->entry);
    native->work = ef_aligned(*work);
    return true;
}

equiforge_status equiforge_plan_prepare(equiforge_plan *plan, uint32_t region, uint32_t threads)
{
    ef_diag *diag = ef_api_diag(plan->session);
    if (region >= plan->plan->regions || strcmp(plan->plan->region[region].language, "c") != 0) {
        ef_fail(diag, "region %u is no code for the CPU", region);
        return EQUIFORGE_BAD_INPUT;
    }
    ef_native *native = &plan->native[region];
    if (!native->library && !open_native(native, &plan->plan->region[region], diag)) {
        ef_native_close(native);
        *native = (ef_native){0};
        return EQUIFORGE_FAILED;
    }
    native->threads = (int)(threads ? threads : ef_processors());
    return EQUIFORGE_OK;
}

void equiforge_plan_call(equiforge_plan *plan, uint32_t region, void *const *in, void *const *out)
{
    ef_native_call(&plan->native[region], in, out);
}

const char *const *equiforge_python(equiforge_session *session, const char *module)
{
    const char **words = ef_arena_alloc(ef_api_arena(&session->python), (EF_PYTHON_WORDS + 1) * sizeof *words);
    *ef_python_command(module, words, session->python) = NULL;
    return words;
}
