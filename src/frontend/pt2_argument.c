/* Arguments and results of nodes: tagged unions in the archive's JSON (see pt2.h).
 *
 * Arguments and results look alike; what differs is that an argument names values that exist and a result makes them.
 * Numbers that are symbolic in form only, with a known value, come out as plain numbers. */
#include <stdio.h>
#include <string.h>

#include "frontend/pt2.h"

typedef struct {
    pt2_reader *r;
    pt2_scope *scope;
    bool define;
} place;

static bool value_of(const place *p, const char *name, ef_xvalue_kind kind, uint32_t *out)
{
    *out = p->define ? pt2_define(p->r, p->scope, name, kind) : pt2_lookup(p->r, p->scope, name);
    if (*out == EF_NONE)
        return false;
    if (p->r->values.at[*out].kind != kind)
        return pt2_fail(p->r, "'%.80s' is used as something that it is not", name);
    return true;
}

/* ---- tensors: {"name": …} ---- */

static bool tensor_value(const place *p, json_t *tensor, uint32_t *out)
{
    const char *name = pt2_string(p->r, tensor, "name");
    return name && value_of(p, name, EF_XV_TENSOR, out);
}

/* {"as_tensor": …} or {"as_none": true} */
static bool optional_value(const place *p, json_t *optional, uint32_t *out)
{
    json_t *value;
    const char *tag = pt2_union(p->r, optional, &value);
    *out = EF_NONE;
    if (tag && strcmp(tag, "as_tensor") == 0)
        return tensor_value(p, value, out);
    return tag && (strcmp(tag, "as_none") == 0 || pt2_fail(p->r, "'%.40s' is not a tensor", tag));
}

static bool read_none(const place *p, json_t *json, ef_xarg *out)
{
    (void)p, (void)json, (void)out;
    return true;
}

static bool read_tensor(const place *p, json_t *json, ef_xarg *out)
{
    return tensor_value(p, json, &out->value);
}

static bool read_optional_tensor(const place *p, json_t *json, ef_xarg *out)
{
    if (!optional_value(p, json, &out->value))
        return false;
    out->kind = out->value == EF_NONE ? EF_XA_NONE : EF_XA_TENSOR;
    return true;
}

static bool is_list(const place *p, json_t *json)
{
    return json_is_array(json) || pt2_fail(p->r, "a list was expected");
}

static bool value_list(const place *p, json_t *json, ef_xarg *out, bool (*element)(const place *, json_t *, uint32_t *))
{
    if (!is_list(p, json))
        return false;
    uint32_t count = (uint32_t)json_array_size(json);
    uint32_t *values = ef_arena_alloc(p->r->store->arena, count * sizeof *values);
    for (uint32_t i = 0; i < count; i++)
        if (!element(p, json_array_get(json, i), &values[i]))
            return false;
    out->values = values;
    out->count = count;
    return true;
}

static bool read_tensors(const place *p, json_t *json, ef_xarg *out)
{
    return value_list(p, json, out, tensor_value);
}

static bool read_optional_tensors(const place *p, json_t *json, ef_xarg *out)
{
    return value_list(p, json, out, optional_value);
}

/* ---- numbers, truth values, texts ---- */

static bool read_int(const place *p, json_t *json, ef_xarg *out)
{
    return pt2_integer(p->r, json, &out->integer);
}

static bool read_float(const place *p, json_t *json, ef_xarg *out)
{
    return pt2_number(p->r, json, &out->number);
}

static bool read_bool(const place *p, json_t *json, ef_xarg *out)
{
    out->boolean = json_is_true(json);
    return json_is_boolean(json) || pt2_fail(p->r, "true or false was expected");
}

static bool read_text(const place *p, json_t *json, ef_xarg *out)
{
    if (!json_is_string(json))
        return pt2_fail(p->r, "a text was expected");
    out->text = pt2_copy(p->r, json_string_value(json));
    return true;
}

static bool read_ints(const place *p, json_t *json, ef_xarg *out)
{
    if (!is_list(p, json))
        return false;
    out->count = (uint32_t)json_array_size(json);
    int64_t *integers = ef_arena_alloc(p->r->store->arena, out->count * sizeof *integers);
    for (uint32_t i = 0; i < out->count; i++)
        if (!pt2_integer(p->r, json_array_get(json, i), &integers[i]))
            return false;
    out->integers = integers;
    return true;
}

static bool read_bools(const place *p, json_t *json, ef_xarg *out)
{
    if (!is_list(p, json))
        return false;
    out->count = (uint32_t)json_array_size(json);
    int64_t *integers = ef_arena_alloc(p->r->store->arena, out->count * sizeof *integers);
    ef_xarg one = {0};
    for (uint32_t i = 0; i < out->count; i++) {
        if (!read_bool(p, json_array_get(json, i), &one))
            return false;
        integers[i] = one.boolean;
    }
    out->integers = integers;
    return true;
}

static bool read_floats(const place *p, json_t *json, ef_xarg *out)
{
    if (!is_list(p, json))
        return false;
    out->count = (uint32_t)json_array_size(json);
    double *numbers = ef_arena_alloc(p->r->store->arena, out->count * sizeof *numbers);
    for (uint32_t i = 0; i < out->count; i++)
        if (!pt2_number(p->r, json_array_get(json, i), &numbers[i]))
            return false;
    out->numbers = numbers;
    return true;
}

static bool read_texts(const place *p, json_t *json, ef_xarg *out)
{
    if (!is_list(p, json))
        return false;
    out->count = (uint32_t)json_array_size(json);
    const char **texts = ef_arena_alloc(p->r->store->arena, out->count * sizeof *texts);
    ef_xarg one = {0};
    for (uint32_t i = 0; i < out->count; i++) {
        if (!read_text(p, json_array_get(json, i), &one))
            return false;
        texts[i] = one.text;
    }
    out->texts = texts;
    return true;
}

/* {"type": "cuda", "index": 0} */
static bool read_device(const place *p, json_t *json, ef_xarg *out)
{
    char text[64];
    json_t *index = json_object_get(json, "index");
    const char *type = pt2_string(p->r, json, "type");
    if (!type)
        return false;
    if (json_is_integer(index))
        snprintf(text, sizeof text, "%.32s:%lld", type, (long long)json_integer_value(index));
    else
        snprintf(text, sizeof text, "%.32s", type);
    out->text = pt2_copy(p->r, text);
    return true;
}

/* Whether a graph, or one inside of it, has an operator that writes in place, or may: those without results do
 * something else. */
static bool writes(json_t *graph, unsigned depth)
{
    json_t *nodes = json_object_get(graph, "nodes");
    for (size_t i = 0; i < json_array_size(nodes); i++) {
        json_t *node = json_array_get(nodes, i), *args = json_object_get(node, "inputs");
        const char *target = json_string_value(json_object_get(node, "target"));
        if (!target || depth > PT2_MAX_DEPTH || ef_xnode_in_place(&(ef_xnode){.target = target}) ||
            json_array_size(json_object_get(node, "outputs")) == 0)
            return true;
        for (size_t a = 0; a < json_array_size(args); a++) {
            json_t *arg = json_object_get(json_array_get(args, a), "arg");
            json_t *inner = json_object_get(json_object_get(arg, "as_graph"), "graph");
            if (inner && writes(inner, depth + 1))
                return true;
        }
    }
    return false;
}

/* {"name": "true_graph_0", "graph": {…}}: the contents are PyTorch's to run. */
static bool read_graph(const place *p, json_t *json, ef_xarg *out)
{
    char text[512];
    const char *name = pt2_string(p->r, json, "name");
    json_t *graph = name ? pt2_object(p->r, json, "graph") : NULL;
    if (!graph)
        return false;
    if (!pt2_is_path(name))
        return pt2_fail(p->r, "a submodule is called '%.40s'", name);
    snprintf(text, sizeof text, "%.250s%.250s", p->scope ? p->scope->path : "", name);
    out->text = pt2_copy(p->r, text);
    out->boolean = writes(graph, 0);
    return true;
}

static bool read_other(const place *p, json_t *json, ef_xarg *out)
{
    out->text = pt2_dump(p->r, json);
    return true;
}

/* ---- symbolic numbers: {"as_name": …} or {"as_int": …} ---- */

/* The value of a symbolic integer when the export knows it. */
static bool known_integer(const place *p, const char *name, int64_t *out)
{
    json_t *known = json_object_get(json_object_get(p->scope->sym_ints, name), "as_int");
    *out = json_integer_value(known);
    return json_is_integer(known);
}

/* *value is EF_NONE for a known integer. */
static bool sym_int(const place *p, json_t *json, uint32_t *value, int64_t *integer)
{
    json_t *member;
    const char *tag = pt2_union(p->r, json, &member);
    *value = EF_NONE;
    if (tag && strcmp(tag, "as_int") == 0)
        return pt2_integer(p->r, member, integer);
    if (!tag || strcmp(tag, "as_name") != 0 || !json_is_string(member))
        return pt2_fail(p->r, "a symbolic number has neither name nor value");
    const char *name = json_string_value(member);
    return known_integer(p, name, integer) || value_of(p, name, EF_XV_SYM_INT, value);
}

static bool read_sym_int(const place *p, json_t *json, ef_xarg *out)
{
    if (!sym_int(p, json, &out->value, &out->integer))
        return false;
    out->kind = out->value == EF_NONE ? EF_XA_INT : EF_XA_SYM;
    return true;
}

static bool read_sym_ints(const place *p, json_t *json, ef_xarg *out)
{
    if (!is_list(p, json))
        return false;
    uint32_t count = (uint32_t)json_array_size(json);
    uint32_t *values = ef_arena_alloc(p->r->store->arena, count * sizeof *values);
    int64_t *integers = ef_arena_alloc(p->r->store->arena, count * sizeof *integers);
    out->kind = EF_XA_INTS;
    for (uint32_t i = 0; i < count; i++) {
        if (!sym_int(p, json_array_get(json, i), &values[i], &integers[i]))
            return false;
        if (values[i] != EF_NONE)
            out->kind = EF_XA_SYM_INTS;
    }
    out->values = values;
    out->integers = integers;
    out->count = count;
    return true;
}

static bool read_sym_float(const place *p, json_t *json, ef_xarg *out)
{
    json_t *member;
    const char *tag = pt2_union(p->r, json, &member);
    if (tag && strcmp(tag, "as_float") == 0) {
        out->kind = EF_XA_FLOAT;
        return pt2_number(p->r, member, &out->number);
    }
    return tag && json_is_string(member) && value_of(p, json_string_value(member), EF_XV_SYM_FLOAT, &out->value);
}

static bool read_sym_bool(const place *p, json_t *json, ef_xarg *out)
{
    json_t *member;
    const char *tag = pt2_union(p->r, json, &member);
    if (tag && strcmp(tag, "as_bool") == 0) {
        out->kind = EF_XA_BOOL;
        return read_bool(p, member, out);
    }
    return tag && json_is_string(member) && value_of(p, json_string_value(member), EF_XV_SYM_BOOL, &out->value);
}

/* ---- the union ---- */

static const struct {
    const char *tag;
    ef_xarg_kind kind;
    bool (*read)(const place *, json_t *, ef_xarg *);
    bool result; /* a node may have it as a result */
} kinds[] = {
    {"as_none", EF_XA_NONE, read_none, true},
    {"as_tensor", EF_XA_TENSOR, read_tensor, true},
    {"as_tensors", EF_XA_TENSORS, read_tensors, true},
    {"as_optional_tensor", EF_XA_TENSOR, read_optional_tensor, true},
    {"as_optional_tensors", EF_XA_OPTIONAL_TENSORS, read_optional_tensors, true},
    {"as_int", EF_XA_INT, read_int, true},
    {"as_ints", EF_XA_INTS, read_ints, false},
    {"as_float", EF_XA_FLOAT, read_float, true},
    {"as_floats", EF_XA_FLOATS, read_floats, false},
    {"as_bool", EF_XA_BOOL, read_bool, true},
    {"as_bools", EF_XA_BOOLS, read_bools, false},
    {"as_string", EF_XA_STRING, read_text, false},
    {"as_strings", EF_XA_STRINGS, read_texts, false},
    {"as_scalar_type", EF_XA_SCALAR_TYPE, read_int, false},
    {"as_memory_format", EF_XA_MEMORY_FORMAT, read_int, false},
    {"as_layout", EF_XA_LAYOUT, read_int, false},
    {"as_device", EF_XA_DEVICE, read_device, false},
    {"as_sym_int", EF_XA_SYM, read_sym_int, true},
    {"as_sym_ints", EF_XA_SYM_INTS, read_sym_ints, false},
    {"as_sym_float", EF_XA_SYM, read_sym_float, true},
    {"as_sym_bool", EF_XA_SYM, read_sym_bool, true},
    {"as_graph", EF_XA_GRAPH, read_graph, false},
    {"as_complex", EF_XA_OTHER, read_other, false},
    {"as_operator", EF_XA_OTHER, read_other, false},
    {"as_custom_obj", EF_XA_OTHER, read_other, true},
    {"as_int_lists", EF_XA_OTHER, read_other, false},
    {"as_float_lists", EF_XA_OTHER, read_other, false},
};

static bool read_union(const place *p, json_t *argument, ef_xarg *out)
{
    json_t *value;
    const char *tag = pt2_union(p->r, argument, &value);
    out->value = EF_NONE;
    for (size_t i = 0; tag && i < sizeof kinds / sizeof *kinds; i++)
        if (strcmp(tag, kinds[i].tag) == 0 && (kinds[i].result || !p->define)) {
            out->kind = kinds[i].kind;
            return kinds[i].read(p, value, out) || pt2_fail(p->r, "'%.40s' is malformed", tag);
        }
    return tag && pt2_fail(p->r, "'%.40s' cannot be read by this version", tag);
}

bool pt2_argument(pt2_reader *r, pt2_scope *scope, json_t *argument, ef_xarg *out)
{
    return read_union(&(place){r, scope, false}, argument, out);
}

bool pt2_result(pt2_reader *r, pt2_scope *scope, json_t *argument, ef_xarg *out)
{
    return read_union(&(place){r, scope, true}, argument, out);
}
