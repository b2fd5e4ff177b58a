/* `.efz` files: see plan.h and docs/efz.md.
 *
 *   manifest.json                 values, steps, measurements
 *   regions/N/program.ef          the region as it was given
 *   regions/N/candidate.ef        its implementation as a tiled program
 *   regions/N/kernels.c (.py)     its code
 *   regions/N/derivation.json     why the two are equal
 *
 *   module.json, module.pt2       perhaps: how the whole module compared, and the module as PyTorch exports it; for the
 *                                 Python package, not read here
 *
 * Nothing else may stand in one: a file that holds more was not written by this program. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "plan/manifest.h"
#include "support/archive.h"
#include "support/vec.h"

#define MAX_TEXT (UINT64_C(16) << 20) /* bytes of one entry */
#define MAX_REGIONS 100000u
#define FILES 4 /* of a region */

/* The text files of a region, and where they stand in memory. */
static const struct {
    const char *name;
    size_t offset;
} texts[] = {{"program.ef", offsetof(ef_plan_region, program)}, {"candidate.ef", offsetof(ef_plan_region, candidate)}};

static const char *code_name(const ef_plan_region *region)
{
    return region->language && strcmp(region->language, "c") != 0 ? "kernels.py" : "kernels.c";
}

static const char *entry_name(ef_arena *arena, uint32_t region, const char *file)
{
    char name[64];
    int length = snprintf(name, sizeof name, "regions/%u/%s", region, file);
    return ef_arena_strndup(arena, name, (size_t)length);
}

/* ---- writing ---- */

typedef EF_VEC(ef_archive_entry) entries;

static void add_text(entries *list, ef_arena *arena, uint32_t region, const char *file, const char *text)
{
    ef_archive_entry entry = {entry_name(arena, region, file), text, strlen(text)};
    ef_vec_push(list, entry);
}

/* JSON as a string of the arena; frees the value. */
static const char *json_text(ef_arena *arena, json_t *json)
{
    char *text = json_dumps(json, JSON_INDENT(1) | JSON_REAL_PRECISION(17));
    const char *copy = text ? ef_arena_strndup(arena, text, strlen(text)) : NULL;
    free(text);
    json_decref(json);
    return copy;
}

static bool add_region(entries *list, ef_arena *arena, const ef_plan_region *region, uint32_t number)
{
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        add_text(list, arena, number, texts[i].name, *(const char *const *)((const char *)region + texts[i].offset));
    add_text(list, arena, number, code_name(region), region->source);
    const char *derivation = json_text(arena, ef_derivation_write(region));
    if (derivation)
        add_text(list, arena, number, "derivation.json", derivation);
    return derivation != NULL;
}

bool ef_plan_write(const ef_plan *plan, const char *path, ef_diag *diag)
{
    ef_diag inner = {0};
    entries list = {0};
    if (!ef_plan_check(plan, &inner))
        return ef_fail(diag, "%.200s: the plan is not whole: %.250s", path, inner.text);
    ef_arena *arena = ef_arena_new();
    json_t *manifest = ef_manifest_write(plan, diag);
    const char *text = manifest ? json_text(arena, manifest) : NULL;
    bool fine = text != NULL;
    if (fine) {
        ef_archive_entry entry = {"manifest.json", text, strlen(text)};
        ef_vec_push(&list, entry);
    }
    for (uint32_t i = 0; i < plan->regions && fine; i++)
        fine = add_region(&list, arena, &plan->region[i], i);
    fine = fine ? ef_archive_write(path, list.at, list.count, diag)
                : ef_fail(diag, "%.200s: the plan cannot be written as JSON", path);
    ef_vec_free(&list);
    ef_arena_free(arena);
    return fine;
}

/* ---- reading ---- */

/* An entry as a NUL-terminated text, freed by the caller. */
static char *read_entry(ef_archive *archive, const char *name, ef_diag *diag)
{
    uint32_t entry = ef_archive_find(archive, name);
    char *text = entry == EF_NONE ? NULL : ef_archive_text(archive, entry, MAX_TEXT, diag);
    if (entry == EF_NONE)
        ef_fail(diag, "'%.80s' is missing", name);
    else if (text && strlen(text) != ef_archive_size(archive, entry)) {
        ef_fail(diag, "'%.80s' is not a text", name);
        free(text);
        return NULL;
    }
    return text;
}

static bool read_text(ef_archive *archive, ef_plan *plan, uint32_t region, const char *file, const char **out,
                      ef_diag *diag)
{
    char *text = read_entry(archive, entry_name(plan->arena, region, file), diag);
    if (text)
        *out = ef_arena_strndup(plan->arena, text, strlen(text));
    free(text);
    return text != NULL;
}

static json_t *read_json(ef_archive *archive, const char *name, ef_diag *diag)
{
    json_error_t error;
    char *text = read_entry(archive, name, diag);
    json_t *json = text ? json_loads(text, JSON_REJECT_DUPLICATES, &error) : NULL;
    if (text && !json)
        ef_fail(diag, "%.80s:%d:%d: %.160s", name, error.line, error.column, error.text);
    free(text);
    return json;
}

static bool read_region(ef_archive *archive, ef_plan *plan, uint32_t number, ef_diag *diag)
{
    ef_plan_region *region = &plan->region[number];
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        if (!read_text(archive, plan, number, texts[i].name, (const char **)((char *)region + texts[i].offset), diag))
            return false;
    if (!read_text(archive, plan, number, code_name(region), &region->source, diag))
        return false;
    json_t *json = read_json(archive, entry_name(plan->arena, number, "derivation.json"), diag);
    bool fine = json && ef_derivation_read(plan, region, json, diag);
    json_decref(json);
    return fine;
}

static bool read_plan(ef_archive *archive, ef_plan *plan, ef_diag *diag)
{
    if (ef_archive_find(archive, "manifest.json") == EF_NONE)
        return ef_fail(diag, "is not an optimised module");
    json_t *manifest = read_json(archive, "manifest.json", diag);
    bool fine = manifest && ef_manifest_read(plan, manifest, diag);
    json_decref(manifest);
    uint32_t module =
        (ef_archive_find(archive, "module.pt2") != EF_NONE) + (ef_archive_find(archive, "module.json") != EF_NONE);
    if (fine && (plan->regions > MAX_REGIONS || ef_archive_count(archive) != 1 + module + FILES * plan->regions))
        fine = ef_fail(diag, "holds %u entries for %u regions", ef_archive_count(archive), plan->regions);
    for (uint32_t i = 0; i < plan->regions && fine; i++)
        fine = read_region(archive, plan, i, diag);
    return fine && ef_plan_check(plan, diag);
}

ef_plan *ef_plan_read(const char *path, ef_diag *diag)
{
    ef_diag inner = {0};
    ef_archive *archive = ef_archive_open(path, diag);
    if (!archive)
        return NULL;
    ef_arena *arena = ef_arena_new();
    ef_plan *plan = ef_arena_alloc(arena, sizeof *plan);
    plan->arena = arena;
    bool fine = read_plan(archive, plan, &inner);
    ef_archive_close(archive);
    if (fine)
        return plan;
    bool named = strncmp(inner.text, path, strlen(path)) == 0; /* the archive's messages begin with the path */
    ef_fail(diag, "%.200s%s%.300s", named ? "" : path, named ? "" : ": ", inner.text);
    ef_plan_free(plan);
    return NULL;
}
