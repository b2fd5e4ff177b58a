/* The manifest: see manifest.h. Plain fields stand in tables that writing and reading share. */
#include "plan/manifest.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

typedef enum { TEXT, TEXT_OR_NULL, TEXT_OR_NO_KEY, COUNT, COUNT_64, REAL, FLAG } kind;

typedef struct {
    const char *key;
    kind kind;
    size_t offset;
} field;

#define FIELD(type, name, kind) {#name, kind, offsetof(type, name)}
#define END {NULL, TEXT, 0}

static const field plan_fields[] = {
    FIELD(ef_plan, name, TEXT),
    FIELD(ef_plan, target, TEXT),
    FIELD(ef_plan, version, TEXT),
    FIELD(ef_plan, elapsed_s, REAL),
    FIELD(ef_plan, user_inputs, COUNT),
    FIELD(ef_plan, in_spec, TEXT_OR_NULL),
    FIELD(ef_plan, out_spec, TEXT_OR_NULL),
    END,
};
static const field region_fields[] = {
    FIELD(ef_plan_region, language, TEXT),
    FIELD(ef_plan_region, entry, TEXT),
    FIELD(ef_plan_region, schedule, TEXT),
    FIELD(ef_plan_region, device, TEXT),
    FIELD(ef_plan_region, threads, COUNT),
    FIELD(ef_plan_region, kernels, COUNT),
    FIELD(ef_plan_region, families, COUNT),
    FIELD(ef_plan_region, candidates, COUNT_64),
    FIELD(ef_plan_region, measured, COUNT_64),
    FIELD(ef_plan_region, original, FLAG),
    FIELD(ef_plan_region, us, REAL),
    FIELD(ef_plan_region, warm_us, REAL),
    FIELD(ef_plan_region, original_us, REAL),
    FIELD(ef_plan_region, floor_us, REAL),
    FIELD(ef_plan_region, rel_l2, REAL),
    FIELD(ef_plan_region, kept, TEXT_OR_NO_KEY),
    END,
};
static const field equation_fields[] = {
    FIELD(ef_equation, output, TEXT),
    FIELD(ef_equation, rule, TEXT),
    FIELD(ef_equation, before, TEXT),
    FIELD(ef_equation, after, TEXT),
    END,
};
static const field value_fields[] = {
    FIELD(ef_mvalue, name, TEXT),
    FIELD(ef_mvalue, torch_dtype, TEXT),
    END,
};
static const field call_fields[] = {
    FIELD(ef_plan_step, target, TEXT),
    FIELD(ef_plan_step, reason, TEXT_OR_NULL),
    END,
};
static const field mutation_fields[] = {
    FIELD(ef_mmutation, value, COUNT),
    FIELD(ef_mmutation, target, COUNT),
    END,
};

/* By ef_mvalue_kind: its name, and what more it has. */
static const struct {
    const char *name;
    field more;
} value_kinds[] = {
    [EF_MV_INPUT] = {"input", FIELD(ef_mvalue, input, COUNT)},
    [EF_MV_PARAMETER] = {"parameter", FIELD(ef_mvalue, target, TEXT)},
    [EF_MV_BUFFER] = {"buffer", FIELD(ef_mvalue, target, TEXT)},
    [EF_MV_CONSTANT] = {"constant", FIELD(ef_mvalue, target, TEXT)},
    [EF_MV_RESULT] = {"result", FIELD(ef_mvalue, step, COUNT)},
};
#define VALUE_KINDS (sizeof value_kinds / sizeof *value_kinds)

/* ---- fields ---- */

static json_t *write_field(const field *f, const void *at)
{
    const char *text = f->kind <= TEXT_OR_NO_KEY ? *(const char *const *)at : NULL;
    switch (f->kind) {
    case TEXT:
    case TEXT_OR_NULL: return text ? json_string(text) : json_null();
    case TEXT_OR_NO_KEY: return text ? json_string(text) : NULL;
    case COUNT: return json_integer(*(const uint32_t *)at);
    case COUNT_64: return json_integer((json_int_t) * (const uint64_t *)at);
    case REAL: return json_real(*(const double *)at);
    case FLAG: return json_boolean(*(const bool *)at);
    }
    return NULL;
}

static void write_fields(json_t *object, const field *f, const void *from)
{
    for (; f->key; f++)
        json_object_set_new(object, f->key, write_field(f, (const char *)from + f->offset));
}

static bool read_text(ef_arena *arena, const json_t *json, const char **out)
{
    if (json_is_string(json))
        *out = ef_arena_strndup(arena, json_string_value(json), json_string_length(json));
    return json_is_string(json);
}

static bool read_count(const json_t *json, uint64_t limit, uint64_t *out)
{
    *out = (uint64_t)json_integer_value(json);
    return json_is_integer(json) && json_integer_value(json) >= 0 && *out <= limit;
}

static bool read_field(ef_arena *arena, const field *f, const json_t *json, void *at)
{
    uint64_t count;
    switch (f->kind) {
    case TEXT: return read_text(arena, json, at);
    case TEXT_OR_NULL: return json_is_null(json) || read_text(arena, json, at);
    case TEXT_OR_NO_KEY: return !json || read_text(arena, json, at);
    case COUNT:
        if (!read_count(json, EF_NONE - 1, &count))
            return false;
        *(uint32_t *)at = (uint32_t)count;
        return true;
    case COUNT_64: return read_count(json, INT64_MAX, at);
    case REAL: *(double *)at = json_number_value(json); return json_is_number(json);
    case FLAG: *(bool *)at = json_is_true(json); return json_is_boolean(json);
    }
    return false;
}

static bool read_fields(ef_arena *arena, const json_t *object, const field *f, void *into, ef_diag *diag)
{
    for (; f->key; f++)
        if (!read_field(arena, f, json_object_get(object, f->key), (char *)into + f->offset))
            return ef_fail(diag, "'%s' is missing or wrong", f->key);
    return true;
}

/* A list of an object, with room for its elements; its length in *count. */
static const json_t *list_of(const json_t *object, const char *key, uint32_t *count, ef_diag *diag)
{
    const json_t *list = json_object_get(object, key);
    *count = (uint32_t)json_array_size(list);
    if (json_is_array(list))
        return list;
    ef_fail(diag, "'%s' is not a list", key);
    return NULL;
}

/* ---- values ---- */

static json_t *write_value(const ef_mvalue *v)
{
    json_t *object = json_object(), *shape = json_array();
    const field *more = &value_kinds[v->kind].more;
    write_fields(object, value_fields, v);
    for (uint32_t d = 0; d < v->rank; d++)
        json_array_append_new(shape, v->size[d] < 0 ? json_null() : json_integer(v->size[d]));
    json_object_set_new(object, "shape", shape);
    json_object_set_new(object, "dtype",
                        v->dtype < EF_DTYPE_COUNT ? json_string(ef_dtype_names[v->dtype]) : json_null());
    json_object_set_new(object, "kind", json_string(value_kinds[v->kind].name));
    json_object_set_new(object, more->key, write_field(more, (const char *)v + more->offset));
    return object;
}

static bool read_kind(ef_arena *arena, const json_t *object, ef_mvalue *v)
{
    const char *name = json_string_value(json_object_get(object, "kind"));
    for (uint32_t k = 0; name && k < VALUE_KINDS; k++) {
        const field *more = &value_kinds[k].more;
        if (strcmp(name, value_kinds[k].name) != 0)
            continue;
        v->kind = (ef_mvalue_kind)k;
        return read_field(arena, more, json_object_get(object, more->key), (char *)v + more->offset);
    }
    return false;
}

static bool read_dtype(const json_t *json, ef_mvalue *v)
{
    v->dtype = EF_DTYPE_COUNT;
    for (int d = 0; json_is_string(json) && d < EF_DTYPE_COUNT; d++)
        if (d != EF_NUM && strcmp(json_string_value(json), ef_dtype_names[d]) == 0)
            v->dtype = (ef_dtype)d;
    return json_is_null(json) || v->dtype < EF_DTYPE_COUNT;
}

static bool read_value(ef_arena *arena, const json_t *object, ef_mvalue *v, ef_diag *diag)
{
    const json_t *shape = list_of(object, "shape", &v->rank, diag);
    if (!shape || !read_fields(arena, object, value_fields, v, diag))
        return false;
    int64_t *size = ef_arena_alloc(arena, v->rank * sizeof *size);
    for (uint32_t d = 0; d < v->rank; d++)
        if (json_is_null(json_array_get(shape, d)))
            size[d] = -1; /* the data decide it */
        else if (!read_count(json_array_get(shape, d), INT64_MAX, (uint64_t *)&size[d]))
            return ef_fail(diag, "'%.80s' has an impossible size", v->name);
    v->size = size;
    v->source = EF_NONE;
    if (!read_dtype(json_object_get(object, "dtype"), v))
        return ef_fail(diag, "'%.80s' has an unknown element type", v->name);
    return read_kind(arena, object, v) || ef_fail(diag, "'%.80s' is of no kind", v->name);
}

/* ---- steps and results ---- */

static json_t *write_ids(const uint32_t *ids, uint32_t count)
{
    json_t *list = json_array();
    for (uint32_t i = 0; i < count; i++)
        json_array_append_new(list, json_integer(ids[i]));
    return list;
}

static bool read_ids(ef_arena *arena, const json_t *object, const char *key, const uint32_t **out, uint32_t *count,
                     ef_diag *diag)
{
    const json_t *list = list_of(object, key, count, diag);
    uint32_t *ids = ef_arena_alloc(arena, *count * sizeof *ids);
    uint64_t id;
    for (uint32_t i = 0; i < *count; i++) {
        if (!read_count(json_array_get(list, i), EF_NONE - 1, &id))
            return ef_fail(diag, "'%s' holds something that is no value", key);
        ids[i] = (uint32_t)id;
    }
    *out = ids;
    return list != NULL;
}

/* JSON inside of JSON: strings in memory, values in the file. */
static json_t *write_text(const char *text)
{
    return json_loads(text, JSON_DECODE_ANY, NULL);
}

static const char *read_json(ef_arena *arena, const json_t *json)
{
    char *text = json ? json_dumps(json, JSON_COMPACT | JSON_ENCODE_ANY | JSON_REAL_PRECISION(17)) : NULL;
    const char *copy = text ? ef_arena_strndup(arena, text, strlen(text)) : NULL;
    free(text);
    return copy;
}

static json_t *write_step(const ef_plan_step *step)
{
    json_t *object = json_object();
    json_object_set_new(object, "in", write_ids(step->in, step->ins));
    json_object_set_new(object, "out", write_ids(step->out, step->outs));
    if (step->kind == EF_MS_REGION) {
        json_object_set_new(object, "region", json_integer(step->region));
        return object;
    }
    write_fields(object, call_fields, step);
    json_object_set_new(object, "arguments", write_text(step->arguments));
    json_object_set_new(object, "results", write_text(step->results));
    return object;
}

static bool read_step(ef_arena *arena, const json_t *object, ef_plan_step *step, ef_diag *diag)
{
    static const field region[] = {FIELD(ef_plan_step, region, COUNT), END};
    if (!read_ids(arena, object, "in", &step->in, &step->ins, diag) ||
        !read_ids(arena, object, "out", &step->out, &step->outs, diag))
        return false;
    step->kind = json_object_get(object, "region") ? EF_MS_REGION : EF_MS_EXTERNAL;
    step->region = EF_NONE;
    if (step->kind == EF_MS_REGION)
        return read_fields(arena, object, region, step, diag);
    step->arguments = read_json(arena, json_object_get(object, "arguments"));
    step->results = read_json(arena, json_object_get(object, "results"));
    return read_fields(arena, object, call_fields, step, diag);
}

static json_t *write_output(const ef_moutput *output)
{
    return output->value == EF_NONE ? json_pack("{s:o}", "literal", write_text(output->literal))
                                    : json_pack("{s:I}", "value", (json_int_t)output->value);
}

static bool read_output(ef_arena *arena, const json_t *object, ef_moutput *output)
{
    uint64_t value = EF_NONE;
    const json_t *json = json_object_get(object, "value");
    output->literal = read_json(arena, json_object_get(object, "literal"));
    bool fine = json ? read_count(json, EF_NONE - 1, &value) && !output->literal : output->literal != NULL;
    output->value = (uint32_t)value;
    return fine;
}

/* ---- the whole ---- */

json_t *ef_manifest_write(const ef_plan *plan, ef_diag *diag)
{
    json_t *object = json_object(), *values = json_array(), *steps = json_array(), *regions = json_array();
    json_t *outputs = json_array(), *mutations = json_array();
    bool fine = true;
    json_object_set_new(object, "format", json_string("efz"));
    json_object_set_new(object, "format_version", json_integer(EF_PLAN_VERSION));
    write_fields(object, plan_fields, plan);
    for (uint32_t i = 0; i < plan->values; i++)
        fine = json_array_append_new(values, write_value(&plan->value[i])) == 0 && fine;
    for (uint32_t i = 0; i < plan->steps; i++)
        fine = json_array_append_new(steps, write_step(&plan->step[i])) == 0 && fine;
    for (uint32_t i = 0; i < plan->regions; i++) {
        json_array_append_new(regions, json_object());
        write_fields(json_array_get(regions, i), region_fields, &plan->region[i]);
    }
    for (uint32_t i = 0; i < plan->outputs; i++)
        fine = json_array_append_new(outputs, write_output(&plan->output[i])) == 0 && fine;
    for (uint32_t i = 0; i < plan->mutations; i++) {
        json_array_append_new(mutations, json_object());
        write_fields(json_array_get(mutations, i), mutation_fields, &plan->mutation[i]);
    }
    json_object_set_new(object, "values", values);
    json_object_set_new(object, "steps", steps);
    json_object_set_new(object, "outputs", outputs);
    json_object_set_new(object, "mutations", mutations);
    json_object_set_new(object, "regions", regions);
    if (fine)
        return object;
    ef_fail(diag, "the plan has no JSON form");
    json_decref(object);
    return NULL;
}

static bool read_values(ef_plan *plan, const json_t *json, ef_diag *diag)
{
    const json_t *list = list_of(json, "values", &plan->values, diag);
    ef_mvalue *value = ef_arena_alloc(plan->arena, plan->values * sizeof *value);
    for (uint32_t i = 0; i < plan->values; i++)
        if (!read_value(plan->arena, json_array_get(list, i), &value[i], diag))
            return false;
    plan->value = value;
    return list != NULL;
}

static bool read_steps(ef_plan *plan, const json_t *json, ef_diag *diag)
{
    const json_t *list = list_of(json, "steps", &plan->steps, diag);
    plan->step = ef_arena_alloc(plan->arena, plan->steps * sizeof *plan->step);
    for (uint32_t i = 0; i < plan->steps; i++)
        if (!read_step(plan->arena, json_array_get(list, i), &plan->step[i], diag))
            return false;
    return list != NULL;
}

static bool read_results(ef_plan *plan, const json_t *json, ef_diag *diag)
{
    const json_t *outputs = list_of(json, "outputs", &plan->outputs, diag);
    const json_t *mutations = outputs ? list_of(json, "mutations", &plan->mutations, diag) : NULL;
    if (!mutations)
        return false;
    ef_moutput *output = ef_arena_alloc(plan->arena, plan->outputs * sizeof *output);
    ef_mmutation *mutation = ef_arena_alloc(plan->arena, plan->mutations * sizeof *mutation);
    for (uint32_t i = 0; i < plan->outputs; i++)
        if (!read_output(plan->arena, json_array_get(outputs, i), &output[i]))
            return ef_fail(diag, "output %u has no value", i);
    for (uint32_t i = 0; i < plan->mutations; i++)
        if (!read_fields(plan->arena, json_array_get(mutations, i), mutation_fields, &mutation[i], diag))
            return false;
    plan->output = output;
    plan->mutation = mutation;
    return true;
}

bool ef_manifest_read(ef_plan *plan, const json_t *json, ef_diag *diag)
{
    const char *format = json_string_value(json_object_get(json, "format"));
    json_int_t version = json_integer_value(json_object_get(json, "format_version"));
    if (!format || strcmp(format, "efz") != 0)
        return ef_fail(diag, "is not an optimised module");
    if (version != EF_PLAN_VERSION)
        return ef_fail(diag, "has format version %lld; this version of EquiForge reads %d: optimise the module again",
                       (long long)version, EF_PLAN_VERSION);
    const json_t *regions = list_of(json, "regions", &plan->regions, diag);
    if (!regions || !read_fields(plan->arena, json, plan_fields, plan, diag) || !read_values(plan, json, diag) ||
        !read_steps(plan, json, diag) || !read_results(plan, json, diag))
        return false;
    plan->region = ef_arena_alloc(plan->arena, plan->regions * sizeof *plan->region);
    for (uint32_t i = 0; i < plan->regions; i++)
        if (!read_fields(plan->arena, json_array_get(regions, i), region_fields, &plan->region[i], diag))
            return false;
    return true;
}

/* ---- derivations ---- */

json_t *ef_derivation_write(const ef_plan_region *region)
{
    json_t *list = json_array();
    for (uint32_t i = 0; i < region->equations; i++) {
        json_array_append_new(list, json_object());
        write_fields(json_array_get(list, i), equation_fields, &region->equation[i]);
    }
    return list;
}

bool ef_derivation_read(ef_plan *plan, ef_plan_region *region, const json_t *json, ef_diag *diag)
{
    if (!json_is_array(json))
        return ef_fail(diag, "a derivation is not a list");
    uint32_t count = (uint32_t)json_array_size(json);
    ef_equation *equation = ef_arena_alloc(plan->arena, count * sizeof *equation);
    for (uint32_t i = 0; i < count; i++)
        if (!read_fields(plan->arena, json_array_get(json, i), equation_fields, &equation[i], diag))
            return false;
    region->equation = equation;
    region->equations = count;
    return true;
}
