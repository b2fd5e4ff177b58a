/* Values and nodes: see pt2.h.
 *
 * Submodules. Export wraps code under `torch.no_grad()` and disabled autocast into calls of
 * `higher_order.wrap_with_set_grad_enabled` and `wrap_with_autocast`, whose graphs stand in their arguments. Neither
 * changes what is computed here, so the nodes of such a graph are put in place of the call: its inputs are the call's
 * arguments, the call's results are its outputs. The graphs of other calls (`higher_order.cond`) stay arguments. */
#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "frontend/pt2.h"

/* ---- values ---- */

static bool size_of(pt2_reader *r, json_t *sym_int, int64_t *out)
{
    json_t *value;
    const char *tag = pt2_union(r, sym_int, &value);
    *out = EF_X_DYNAMIC;
    if (!tag || strcmp(tag, "as_expr") == 0)
        return tag != NULL;
    if (strcmp(tag, "as_int") != 0)
        return pt2_fail(r, "'%.40s' is not a size", tag);
    return pt2_integer(r, value, out) && ((*out >= 0 && *out <= (int64_t)EF_MAX_EXTENT) ||
                                          pt2_fail(r, "%lld is not a size that can be", (long long)*out));
}

static bool sizes_of(pt2_reader *r, json_t *list, uint32_t rank, const int64_t **out, bool *symbolic)
{
    int64_t *sizes = ef_arena_alloc(r->store->arena, rank * sizeof *sizes);
    for (uint32_t i = 0; i < rank; i++) {
        if (!size_of(r, json_array_get(list, i), &sizes[i]))
            return false;
        *symbolic |= sizes[i] == EF_X_DYNAMIC;
    }
    *out = sizes;
    return true;
}

/* Room for index arithmetic: the elements of a tensor can be counted, and all positions are below EF_MAX_EXTENT. */
static bool extent_fine(pt2_reader *r, const ef_xvalue *v)
{
    uint64_t elements = 1, last = 0;
    for (uint32_t i = 0; i < v->rank; i++) {
        if (v->size[i] <= 0)
            return true;
        if ((elements *= (uint64_t)v->size[i]) > EF_MAX_EXTENT)
            return pt2_fail(r, "'%.80s' is too large", v->name);
    }
    for (uint32_t i = 0; i < v->rank; i++) {
        uint64_t steps = (uint64_t)v->size[i] - 1, stride = v->stride[i] > 0 ? (uint64_t)v->stride[i] : 0;
        if (steps && stride > (EF_MAX_EXTENT - last) / steps)
            return pt2_fail(r, "'%.80s' is too large", v->name);
        last += steps * stride;
    }
    return true;
}

bool pt2_tensor_meta(pt2_reader *r, json_t *meta, ef_xvalue *value)
{
    ef_xarg device = {0};
    int64_t dtype, layout;
    bool ignored = false;
    json_t *sizes = pt2_array(r, meta, "sizes"), *strides = sizes ? pt2_array(r, meta, "strides") : NULL;
    if (!strides || !pt2_integer(r, json_object_get(meta, "dtype"), &dtype) ||
        !pt2_integer(r, json_object_get(meta, "layout"), &layout))
        return false;
    if (json_array_size(sizes) > EF_X_MAX_RANK || json_array_size(sizes) != json_array_size(strides))
        return pt2_fail(r, "'%.80s' has %zu sizes and %zu strides", value->name, json_array_size(sizes),
                        json_array_size(strides));
    if (dtype <= 0 || dtype >= EF_X_SCALAR_COUNT || !ef_xscalars[dtype].bytes)
        return pt2_fail(r, "'%.80s' has the unknown element type %lld", value->name, (long long)dtype);
    value->dtype = (ef_xscalar)dtype;
    value->strided = layout == EF_X_STRIDED;
    value->rank = (uint32_t)json_array_size(sizes);
    json_t *on = json_pack("{s:O}", "as_device", json_object_get(meta, "device"));
    bool fine = on && pt2_argument(r, NULL, on, &device);
    json_decref(on);
    value->device = device.text;
    return (fine || pt2_fail(r, "'%.80s' is on no device", value->name)) &&
           sizes_of(r, sizes, value->rank, &value->size, &value->symbolic) &&
           sizes_of(r, strides, value->rank, &value->stride, &ignored) && extent_fine(r, value);
}

/* A name that no other value has: submodules may repeat the names of the graph around them. */
static const char *unique_name(pt2_reader *r, const char *name)
{
    char text[512];
    int fresh;
    ef_intern_put(r->names, name, strlen(name), &fresh);
    for (unsigned i = r->values.count; !fresh; i++) {
        snprintf(text, sizeof text, "%.480s.%u", name, i);
        ef_intern_put(r->names, text, strlen(text), &fresh);
        if (fresh)
            return pt2_copy(r, text);
    }
    return pt2_copy(r, name);
}

/* Binds a name of a scope to a value. */
static bool bind(pt2_reader *r, pt2_scope *scope, const char *name, uint32_t value)
{
    int fresh;
    ef_intern_put(scope->names, name, strlen(name), &fresh);
    if (!fresh)
        return pt2_fail(r, "'%.80s' is defined twice", name);
    ef_vec_push(&scope->value, value);
    return true;
}

uint32_t pt2_define(pt2_reader *r, pt2_scope *scope, const char *name, ef_xvalue_kind kind)
{
    json_t *meta = kind == EF_XV_TENSOR ? json_object_get(scope->tensors, name) : NULL;
    ef_xvalue value = {.name = name, .kind = kind, .dtype = EF_X_FLOAT32};
    if (kind == EF_XV_TENSOR && !json_is_object(meta)) {
        pt2_fail(r, "nothing is known of the tensor '%.80s'", name);
        return EF_NONE;
    }
    if (!bind(r, scope, name, r->values.count) || (meta && !pt2_tensor_meta(r, meta, &value)))
        return EF_NONE;
    value.name = unique_name(r, name);
    ef_vec_push(&r->values, value);
    return r->values.count - 1;
}

uint32_t pt2_lookup(pt2_reader *r, pt2_scope *scope, const char *name)
{
    uint32_t number = ef_intern_find(scope->names, name, strlen(name));
    if (number != EF_NONE)
        return scope->value.at[number];
    pt2_fail(r, "'%.80s' is used before it is defined", name);
    return EF_NONE;
}

bool pt2_scope_open(pt2_reader *r, pt2_scope *scope, json_t *graph)
{
    *scope = (pt2_scope){.path = ""};
    scope->names = ef_intern_new();
    scope->tensors = pt2_object(r, graph, "tensor_values");
    scope->sym_ints = json_object_get(graph, "sym_int_values");
    return scope->tensors != NULL;
}

void pt2_scope_close(pt2_scope *scope)
{
    ef_intern_free(scope->names);
    ef_vec_free(&scope->value);
}

/* ---- nodes ---- */

static bool arguments(pt2_reader *r, pt2_scope *scope, json_t *list, ef_xnode *node)
{
    node->args = (uint32_t)json_array_size(list);
    ef_xarg *arg = ef_arena_alloc(r->store->arena, node->args * sizeof *arg);
    for (uint32_t i = 0; i < node->args; i++) {
        json_t *named = json_array_get(list, i), *kind = json_object_get(named, "kind");
        arg[i].name = pt2_string(r, named, "name");
        if (!arg[i].name || !pt2_argument(r, scope, json_object_get(named, "arg"), &arg[i]))
            return false;
        arg[i].keyword = json_integer_value(kind) == 2; /* ArgumentKind.KEYWORD */
    }
    node->arg = arg;
    return true;
}

static bool results(pt2_reader *r, pt2_scope *scope, json_t *list, ef_xnode *node)
{
    node->outputs = (uint32_t)json_array_size(list);
    ef_xarg *output = ef_arena_alloc(r->store->arena, node->outputs * sizeof *output);
    for (uint32_t i = 0; i < node->outputs; i++) {
        output[i].name = "";
        if (!pt2_result(r, scope, json_array_get(list, i), &output[i]))
            return false;
    }
    node->output = output;
    return true;
}

/* The last line of the trace that says where: "  File …, line …, in …". */
static const char *innermost_frame(pt2_reader *r, const char *trace)
{
    const char *frame = NULL;
    for (const char *at = strstr(trace, "File \""); at; at = strstr(at + 1, "File \""))
        frame = at;
    return frame ? ef_arena_strndup(r->store->arena, frame, strcspn(frame, "\n")) : "";
}

/* "path,name,class;path,name,class": the name in the last group. */
static const char *innermost_module(pt2_reader *r, const char *stack)
{
    const char *last = strrchr(stack, ';');
    last = strchr(last ? last : stack, ',');
    return last ? ef_arena_strndup(r->store->arena, last + 1, strcspn(last + 1, ",;")) : "";
}

static void provenance(pt2_reader *r, json_t *metadata, ef_xnode *node)
{
    const char *trace = json_string_value(json_object_get(metadata, "stack_trace"));
    const char *stack = json_string_value(json_object_get(metadata, "nn_module_stack"));
    node->source = trace ? innermost_frame(r, trace) : "";
    node->module = stack ? innermost_module(r, stack) : "";
}

/* ---- submodules ---- */

/* The submodule that a call runs, with its name, when the call changes nothing about it; its arguments begin at
 * *first. */
static json_t *transparent(const char *target, json_t *args, uint32_t *first)
{
    json_t *enabled;
    if (strcmp(target, "higher_order.wrap_with_set_grad_enabled") == 0) {
        *first = 2; /* (enabled, submodule, …) */
    } else if (strcmp(target, "higher_order.wrap_with_autocast") == 0) {
        *first = 5; /* (device, dtype, enabled, cache, submodule, …); types are as they are only when it is off */
        enabled = json_object_get(json_object_get(json_array_get(args, 2), "arg"), "as_bool");
        if (!json_is_false(enabled))
            return NULL;
    } else {
        return NULL;
    }
    return json_object_get(json_object_get(json_array_get(args, *first - 1), "arg"), "as_graph");
}

bool pt2_is_path(const char *name)
{
    bool word = false; /* inside of one */
    for (const char *c = name; *c; word = *c++ != '.')
        if (!(isalpha((unsigned char)*c) || *c == '_' || (word && (isdigit((unsigned char)*c) || *c == '.'))))
            return false;
    return word;
}

static const char *tensor_name(json_t *argument)
{
    return json_string_value(json_object_get(json_object_get(argument, "as_tensor"), "name"));
}

/* Gives a value of one scope a name in another: arguments become a submodule's inputs, its outputs the results. */
static bool pass(pt2_reader *r, pt2_scope *from, json_t *argument, pt2_scope *to, json_t *parameter)
{
    const char *name = tensor_name(argument), *as = tensor_name(parameter);
    if (!name || !as)
        return !name == !as || pt2_fail(r, "passes something that is no tensor to a submodule");
    uint32_t value = pt2_lookup(r, from, name);
    return value != EF_NONE && bind(r, to, as, value);
}

/* A call's outputs are its submodule's, one by one, or one list of them. */
static json_t *flat_outputs(json_t *outputs)
{
    json_t *list = json_object_get(json_array_get(outputs, 0), "as_tensors");
    if (json_array_size(outputs) != 1 || !json_is_array(list))
        return json_incref(outputs);
    json_t *flat = json_array(), *tensor;
    size_t i;
    json_array_foreach(list, i, tensor) json_array_append_new(flat, json_pack("{s:O}", "as_tensor", tensor));
    return flat;
}

static bool inline_submodule(pt2_reader *r, pt2_scope *scope, json_t *node, json_t *named, uint32_t first,
                             unsigned depth)
{
    pt2_scope inner;
    char path[512];
    const char *name = pt2_string(r, named, "name");
    json_t *graph = name ? pt2_object(r, named, "graph") : NULL;
    if (!graph || !pt2_is_path(name))
        return graph && pt2_fail(r, "a submodule is called '%.40s'", name);
    snprintf(path, sizeof path, "%.250s%.250s.", scope->path, name);
    json_t *args = json_object_get(node, "inputs"), *outputs = flat_outputs(json_object_get(node, "outputs"));
    bool fine = pt2_scope_open(r, &inner, graph);
    inner.path = pt2_copy(r, path);
    json_t *in = fine ? pt2_array(r, graph, "inputs") : NULL, *out = in ? pt2_array(r, graph, "outputs") : NULL;
    fine =
        out &&
        ((json_array_size(in) + first == json_array_size(args) && json_array_size(out) == json_array_size(outputs)) ||
         pt2_fail(r, "does not fit its submodule"));
    for (uint32_t i = 0; fine && i < json_array_size(in); i++)
        fine = pass(r, scope, json_object_get(json_array_get(args, i + first), "arg"), &inner, json_array_get(in, i));
    fine = fine && pt2_nodes(r, &inner, graph, depth + 1);
    for (uint32_t i = 0; fine && i < json_array_size(out); i++)
        fine = pass(r, &inner, json_array_get(out, i), scope, json_array_get(outputs, i));
    json_decref(outputs);
    pt2_scope_close(&inner);
    return fine;
}

/* ---- a graph ---- */

static bool node(pt2_reader *r, pt2_scope *scope, json_t *json, uint32_t index, unsigned depth)
{
    static const char prefix[] = "torch.ops.";
    uint32_t first = 0;
    ef_xnode out = {0};
    snprintf(r->where, sizeof r->where, "node %u", index);
    json_t *name = json_object_get(json, "name");
    json_t *args = pt2_array(r, json, "inputs"), *outputs = args ? pt2_array(r, json, "outputs") : NULL;
    out.target = outputs ? pt2_string(r, json, "target") : NULL;
    if (!out.target)
        return false;
    if (strncmp(out.target, prefix, sizeof prefix - 1) == 0)
        out.target += sizeof prefix - 1;
    out.name = json_is_string(name) ? pt2_copy(r, json_string_value(name)) : "";
    snprintf(r->where, sizeof r->where, "node %u '%.60s' (%.100s)", index, out.name, out.target);
    json_t *named = transparent(out.target, args, &first);
    if (named)
        return inline_submodule(r, scope, json, named, first, depth);
    out.listed = json_is_false(json_object_get(json, "is_hop_single_tensor_return"));
    provenance(r, json_object_get(json, "metadata"), &out);
    if (!arguments(r, scope, args, &out) || !results(r, scope, outputs, &out))
        return false;
    ef_vec_push(&r->nodes, out);
    return true;
}

bool pt2_nodes(pt2_reader *r, pt2_scope *scope, json_t *graph, unsigned depth)
{
    json_t *list = pt2_array(r, graph, "nodes");
    if (!list || depth > PT2_MAX_DEPTH)
        return list && pt2_fail(r, "submodules are nested too deeply");
    for (uint32_t i = 0; i < json_array_size(list); i++)
        if (!node(r, scope, json_array_get(list, i), i, depth))
            return false;
    r->where[0] = '\0';
    return true;
}
