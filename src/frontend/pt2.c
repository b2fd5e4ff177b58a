/* Reading a `.pt2` archive into the data model of exported.h: see pt2.h for the layout. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "frontend/pt2.h"

const ef_xscalar_info ef_xscalars[EF_X_SCALAR_COUNT] = {
    [0] = {"", 0},
    [EF_X_UINT8] = {"uint8", 1},
    [EF_X_INT8] = {"int8", 1},
    [EF_X_INT16] = {"int16", 2},
    [EF_X_INT32] = {"int32", 4},
    [EF_X_INT64] = {"int64", 8},
    [EF_X_FLOAT16] = {"float16", 2},
    [EF_X_FLOAT32] = {"float32", 4},
    [EF_X_FLOAT64] = {"float64", 8},
    [EF_X_COMPLEX32] = {"complex32", 4},
    [EF_X_COMPLEX64] = {"complex64", 8},
    [EF_X_COMPLEX128] = {"complex128", 16},
    [EF_X_BOOL] = {"bool", 1},
    [EF_X_BFLOAT16] = {"bfloat16", 2},
    [EF_X_UINT16] = {"uint16", 2},
    [EF_X_FLOAT8_E4M3FN] = {"float8_e4m3fn", 1},
    [EF_X_FLOAT8_E5M2] = {"float8_e5m2", 1},
    [EF_X_FLOAT8_E4M3FNUZ] = {"float8_e4m3fnuz", 1},
    [EF_X_FLOAT8_E5M2FNUZ] = {"float8_e5m2fnuz", 1},
    [EF_X_FLOAT8_E8M0FNU] = {"float8_e8m0fnu", 1},
    [EF_X_UINT32] = {"uint32", 4},
    [EF_X_UINT64] = {"uint64", 8},
};

bool ef_xnode_in_place(const ef_xnode *node)
{
    const char *name = strrchr(node->target, '.'), *start = node->target;
    if (!name)
        return false;
    for (const char *c = node->target; c < name; c++)
        if (*c == '.')
            start = c + 1;
    return name > start && name[-1] == '_' && name - start > 1 && name[-2] != '_';
}

const ef_xarg *ef_xnode_arg(const ef_xnode *node, const char *name, uint32_t position)
{
    for (uint32_t i = 0; i < node->args; i++)
        if (strcmp(node->arg[i].name, name) == 0)
            return &node->arg[i];
    if (position < node->args && !node->arg[position].keyword)
        return &node->arg[position];
    return NULL;
}

/* ---- the archive ---- */

static bool has_entry(const pt2_store *store, const char *name)
{
    char full[512];
    snprintf(full, sizeof full, "%s%s", store->root, name);
    return ef_archive_find(store->archive, full) != EF_NONE;
}

/* Whether a small entry has exactly this text. */
static bool entry_says(pt2_reader *r, const char *name, const char *text)
{
    char full[512];
    snprintf(full, sizeof full, "%s%s", r->store->root, name);
    char *found = ef_archive_text(r->store->archive, ef_archive_find(r->store->archive, full), 1 << 10, r->diag);
    bool same = found && strcmp(found, text) == 0;
    free(found);
    return same;
}

/* The one folder that everything stands in is named after the file that was first written. */
static bool find_root(pt2_reader *r)
{
    pt2_store *store = r->store;
    const char *first = ef_archive_count(store->archive) ? ef_archive_name(store->archive, 0) : "";
    size_t length = strcspn(first, "/") + 1;
    if (first[length - 1] == '/' && length < 256) {
        store->root = ef_arena_strndup(store->arena, first, length);
        if (has_entry(store, "archive_format"))
            return true;
        if (has_entry(store, "data.pkl") || has_entry(store, "constants.pkl"))
            return pt2_fail(r, "was written by torch.save or torch.jit.save; write it with torch.export.save");
    }
    if (ef_archive_find(store->archive, "serialized_exported_program.json") != EF_NONE)
        return pt2_fail(r, "was saved by a torch older than 2.9; load it and save it again with a newer one");
    if (ef_archive_find(store->archive, "manifest.json") != EF_NONE)
        return pt2_fail(r, "is an optimised module: inspect, run, explain and report take it");
    return pt2_fail(r, "is not an archive of torch.export.save");
}

static bool check_format(pt2_reader *r)
{
    if (!entry_says(r, "archive_format", "pt2"))
        return pt2_fail(r, "is not an archive of torch.export.save");
    if (has_entry(r->store, "archive_version") && !entry_says(r, "archive_version", "0"))
        return pt2_fail(r, "has a newer layout than this version can read");
    if (has_entry(r->store, "byteorder") && !entry_says(r, "byteorder", "little"))
        return pt2_fail(r, "was saved on a big-endian machine");
    return true;
}

/* The name of the one program: models/NAME.json. */
static char *model_name(pt2_reader *r)
{
    static const char folder[] = "models/", end[] = ".json";
    size_t root = strlen(r->store->root);
    char *found = NULL;
    for (uint32_t i = 0; i < ef_archive_count(r->store->archive); i++) {
        const char *name = ef_archive_name(r->store->archive, i);
        size_t length = strlen(name), least = root + sizeof folder + sizeof end - 2;
        if (length <= least || length > least + 100 || strncmp(name, r->store->root, root) != 0 ||
            strncmp(name + root, folder, sizeof folder - 1) != 0 || strcmp(name + length - sizeof end + 1, end) != 0)
            continue;
        if (found) {
            pt2_fail(r, "holds several programs; save each to a file of its own");
            return NULL;
        }
        found = ef_arena_strndup(r->store->arena, name + root + sizeof folder - 1, length - least);
    }
    if (!found)
        pt2_fail(r, "holds no exported program");
    return found;
}

static json_t *payloads(pt2_reader *r, json_t **file, const char *folder, const char *model, const char *kind)
{
    char name[256];
    snprintf(name, sizeof name, "data/%s/%s.pt", folder, model);
    if (has_entry(r->store, name)) {
        pt2_fail(r, "was saved by a torch older than 2.9; load it and save it again with a newer one");
        return NULL;
    }
    snprintf(name, sizeof name, "data/%s/%s_%s_config.json", folder, model, kind);
    *file = pt2_load(r, name);
    return *file ? pt2_object(r, *file, "config") : NULL;
}

/* ---- the program ---- */

static bool check_schema(pt2_reader *r, json_t *model)
{
    int64_t major = 0;
    json_t *version = pt2_object(r, model, "schema_version");
    if (!version || !pt2_integer(r, json_object_get(version, "major"), &major))
        return false;
    if (major != 8)
        return pt2_fail(r, "has schema version %lld; this version reads 8, which torch 2.9 to 2.14 write",
                        (long long)major);
    json_t *torch = json_object_get(model, "torch_version");
    r->program->torch_version = json_is_string(torch) ? pt2_copy(r, json_string_value(torch)) : "";
    return true;
}

/* How arguments and results nest, from the outermost entry of the module call graph. */
static void read_nesting(pt2_reader *r, json_t *module)
{
    json_t *outer = json_array_get(json_object_get(module, "module_call_graph"), 0);
    json_t *signature = json_object_get(outer, "signature");
    const char *in = json_string_value(json_object_get(signature, "in_spec"));
    const char *out = json_string_value(json_object_get(signature, "out_spec"));
    r->program->in_spec = pt2_copy(r, in ? in : "");
    r->program->out_spec = pt2_copy(r, out ? out : "");
}

static void read_dialect(pt2_reader *r, json_t *model)
{
    const char *first = json_string_value(json_array_get(json_object_get(model, "verifiers"), 0));
    r->program->training = first && strcmp(first, "TRAINING") == 0;
}

static bool read_graph(pt2_reader *r, json_t *model)
{
    pt2_scope scope;
    json_t *module = pt2_object(r, model, "graph_module"), *graph = module ? pt2_object(r, module, "graph") : NULL;
    json_t *signature = graph ? pt2_object(r, module, "signature") : NULL;
    if (!signature)
        return false;
    bool fine = pt2_scope_open(r, &scope, graph) && pt2_inputs(r, &scope, graph, signature) &&
                pt2_nodes(r, &scope, graph, 0) && pt2_outputs(r, &scope, graph, signature);
    pt2_scope_close(&scope);
    read_nesting(r, module);
    read_dialect(r, model);
    return fine;
}

static bool read_archive(pt2_reader *r)
{
    char name[256];
    json_t *weights = NULL, *constants = NULL, *model = NULL;
    const char *base = find_root(r) && check_format(r) ? model_name(r) : NULL;
    r->weights = base ? payloads(r, &weights, "weights", base, "weights") : NULL;
    r->constants = r->weights ? payloads(r, &constants, "constants", base, "constants") : NULL;
    if (r->constants) {
        snprintf(name, sizeof name, "models/%s.json", base);
        model = pt2_load(r, name);
    }
    bool fine = model && check_schema(r, model) && read_graph(r, model);
    json_decref(weights);
    json_decref(constants);
    json_decref(model);
    return fine;
}

/* An array of the arena in place of one that grows. */
static const void *kept(ef_arena *arena, const void *at, uint32_t count, size_t size)
{
    void *copy = ef_arena_alloc(arena, count * size);
    if (count)
        memcpy(copy, at, count * size);
    return copy;
}

static void keep(pt2_reader *r)
{
    ef_exported *p = r->program;
    ef_arena *arena = r->store->arena;
    p->value = kept(arena, r->values.at, p->values = r->values.count, sizeof *p->value);
    p->input = kept(arena, r->inputs.at, p->inputs = r->inputs.count, sizeof *p->input);
    p->node = kept(arena, r->nodes.at, p->nodes = r->nodes.count, sizeof *p->node);
    p->output = kept(arena, r->outputs.at, p->outputs = r->outputs.count, sizeof *p->output);
}

/* "folder/model.pt2" is "model". */
static const char *base_name(ef_arena *arena, const char *path)
{
    const char *slash = strrchr(path, '/'), *start = slash ? slash + 1 : path, *dot = strrchr(start, '.');
    return ef_arena_strndup(arena, start, dot && dot > start ? (size_t)(dot - start) : strlen(start));
}

ef_exported *ef_exported_read(const char *path, ef_diag *diag)
{
    ef_diag own = {0};
    pt2_reader r = {.diag = diag ? diag : &own};
    ef_archive *archive = ef_archive_open(path, r.diag);
    if (!archive)
        return NULL;
    ef_arena *arena = ef_arena_new();
    r.store = ef_arena_alloc(arena, sizeof *r.store);
    *r.store = (pt2_store){arena, archive, ef_arena_strndup(arena, path, strlen(path)), NULL};
    r.program = ef_arena_alloc(arena, sizeof *r.program);
    r.program->store = r.store;
    r.program->name = base_name(arena, path);
    r.names = ef_intern_new();
    bool fine = read_archive(&r);
    if (fine)
        keep(&r);
    ef_intern_free(r.names);
    ef_vec_free(&r.values);
    ef_vec_free(&r.nodes);
    ef_vec_free(&r.inputs);
    ef_vec_free(&r.outputs);
    if (fine)
        return r.program;
    ef_exported_free(r.program);
    return NULL;
}

void ef_exported_free(ef_exported *program)
{
    if (!program)
        return;
    ef_archive_close(program->store->archive);
    ef_arena_free(program->store->arena);
}

bool ef_exported_verify(ef_exported *program, ef_diag *diag)
{
    return ef_archive_verify(program->store->archive, diag);
}
