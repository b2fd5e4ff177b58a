/* Whether the arguments and results of an external call are well-formed (frontend/module.h says how they look): a
 * runtime may then walk them without asking. */
#include <jansson.h>
#include <string.h>

#include "plan/check.h"

#define MAX_DEPTH 32

static bool is_one_of(const char *text, const char *const *values)
{
    while (*values && strcmp(*values, text) != 0)
        values++;
    return *values != NULL;
}

/* {"tensor": i}, {"float": "inf"}, {"dtype": "float16"}, … */
static bool object_fine(const json_t *json, uint32_t tensors, bool result)
{
    static const char *const floats[] = {"inf", "-inf", "nan", NULL};
    static const char *const named[] = {"dtype", "device", "layout", "memory_format", "graph", NULL};
    const char *key = json_object_iter_key(json_object_iter((json_t *)json));
    const json_t *value = key ? json_object_get(json, key) : NULL;
    if (!key || json_object_size(json) != 1)
        return false;
    if (strcmp(key, "tensor") == 0)
        return json_is_integer(value) && json_integer_value(value) >= 0 && json_integer_value(value) < tensors;
    if (result || !json_is_string(value))
        return false;
    return strcmp(key, "float") == 0 ? is_one_of(json_string_value(value), floats) : is_one_of(key, named);
}

static bool argument_fine(const json_t *json, uint32_t tensors, bool result, unsigned depth)
{
    if (depth > MAX_DEPTH)
        return false;
    if (json_is_object(json))
        return object_fine(json, tensors, result);
    for (size_t i = 0; i < json_array_size(json); i++)
        if (!argument_fine(json_array_get(json, i), tensors, result, depth + 1))
            return false;
    return !result || json_is_array(json) || json_is_null(json);
}

static bool arguments_fine(const json_t *json, uint32_t tensors)
{
    const char *key;
    json_t *value, *list = json_object_get(json, "args"), *named = json_object_get(json, "kwargs");
    if (json_object_size(json) != 2 || !json_is_array(list) || !json_is_object(named) ||
        !argument_fine(list, tensors, false, 0))
        return false;
    json_object_foreach(named, key, value) if (!argument_fine(value, tensors, false, 1)) return false;
    return true;
}

bool ef_plan_check_call(const ef_plan_step *step, ef_diag *diag)
{
    json_t *arguments = step->arguments ? json_loads(step->arguments, JSON_REJECT_DUPLICATES, NULL) : NULL;
    json_t *results = step->results ? json_loads(step->results, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY, NULL) : NULL;
    bool fine = arguments_fine(arguments, step->ins)
                    ? results && argument_fine(results, step->outs, true, 0)
                    : ef_fail(diag, "%.80s: malformed arguments, or some that no file can hold", step->target);
    json_decref(arguments);
    json_decref(results);
    return fine || ef_fail(diag, "%.80s: malformed results", step->target);
}
