/* Reaching into the JSON of an archive, which may hold anything: see pt2.h. */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "frontend/pt2.h"

bool pt2_fail(pt2_reader *r, const char *format, ...)
{
    char text[320];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    return ef_fail(r->diag, "%.200s: %s%s%s", r->store->path, r->where, r->where[0] ? ": " : "", text);
}

json_t *pt2_object(pt2_reader *r, json_t *parent, const char *key)
{
    json_t *value = json_object_get(parent, key);
    if (json_is_object(value))
        return value;
    pt2_fail(r, "'%s' is not an object", key);
    return NULL;
}

json_t *pt2_array(pt2_reader *r, json_t *parent, const char *key)
{
    json_t *value = json_object_get(parent, key);
    if (json_is_array(value))
        return value;
    pt2_fail(r, "'%s' is not a list", key);
    return NULL;
}

const char *pt2_string(pt2_reader *r, json_t *parent, const char *key)
{
    json_t *value = json_object_get(parent, key);
    if (json_is_string(value))
        return pt2_copy(r, json_string_value(value));
    pt2_fail(r, "'%s' is not a text", key);
    return NULL;
}

bool pt2_integer(pt2_reader *r, json_t *value, int64_t *out)
{
    if (!json_is_integer(value))
        return pt2_fail(r, "a whole number was expected");
    *out = json_integer_value(value);
    return true;
}

bool pt2_number(pt2_reader *r, json_t *value, double *out)
{
    static const struct {
        const char *name;
        double value;
    } special[] = {{"Infinity", INFINITY}, {"-Infinity", -INFINITY}, {"NaN", NAN}};
    if (json_is_number(value)) {
        *out = json_number_value(value);
        return true;
    }
    for (size_t i = 0; json_is_string(value) && i < sizeof special / sizeof *special; i++)
        if (strcmp(json_string_value(value), special[i].name) == 0) {
            *out = special[i].value;
            return true;
        }
    return pt2_fail(r, "a number was expected");
}

const char *pt2_union(pt2_reader *r, json_t *object, json_t **value)
{
    const char *key, *found = NULL;
    json_t *member;
    unsigned members = 0;
    json_object_foreach(object, key, member)
    {
        if (json_is_null(member))
            continue;
        found = key;
        *value = member;
        members++;
    }
    if (members == 1)
        return found;
    pt2_fail(r, "an object with one member was expected");
    return NULL;
}

char *pt2_copy(pt2_reader *r, const char *text)
{
    return ef_arena_strndup(r->store->arena, text, strlen(text));
}

const char *pt2_dump(pt2_reader *r, json_t *value)
{
    char *text = json_dumps(value, JSON_COMPACT | JSON_ENCODE_ANY | JSON_SORT_KEYS);
    const char *copy = pt2_copy(r, text ? text : "null");
    free(text);
    return copy;
}

json_t *pt2_load(pt2_reader *r, const char *name)
{
    char full[512];
    snprintf(full, sizeof full, "%s%s", r->store->root, name);
    uint32_t entry = ef_archive_find(r->store->archive, full);
    if (entry == EF_NONE) {
        pt2_fail(r, "holds no '%.200s'", name);
        return NULL;
    }
    char *text = ef_archive_text(r->store->archive, entry, PT2_MAX_JSON, r->diag);
    if (!text)
        return NULL;
    json_error_t error;
    json_t *value = json_loadb(text, ef_archive_size(r->store->archive, entry), JSON_REJECT_DUPLICATES, &error);
    free(text);
    if (json_is_object(value))
        return value;
    if (value)
        pt2_fail(r, "%.100s: is not an object", name);
    else
        pt2_fail(r, "%.100s:%d:%d: %s", name, error.line, error.column, error.text);
    json_decref(value);
    return NULL;
}
