/* Inputs and outputs of the program, from its graph and its signature: see pt2.h. */
#include <stdio.h>
#include <string.h>

#include "frontend/pt2.h"

/* ---- inputs ---- */

static const struct {
    const char *tag, *target; /* of the specification, and its member that says where the tensor comes from */
    ef_xinput_kind kind;
} input_kinds[] = {
    {"user_input", NULL, EF_XI_USER},
    {"constant_input", NULL, EF_XI_USER},
    {"parameter", "parameter_name", EF_XI_PARAMETER},
    {"buffer", "buffer_name", EF_XI_BUFFER},
    {"tensor_constant", "tensor_constant_name", EF_XI_CONSTANT},
    {"custom_obj", "custom_obj_name", EF_XI_OTHER},
    {"token", NULL, EF_XI_OTHER},
};

static bool input_kind(pt2_reader *r, json_t *spec, json_t **body, ef_xinput *input)
{
    const char *tag = pt2_union(r, spec, body);
    for (size_t i = 0; tag && i < sizeof input_kinds / sizeof *input_kinds; i++)
        if (strcmp(tag, input_kinds[i].tag) == 0) {
            input->kind = input_kinds[i].kind;
            input->target = input_kinds[i].target ? pt2_string(r, *body, input_kinds[i].target) : "";
            return input->target != NULL;
        }
    return tag && pt2_fail(r, "'%.40s' inputs cannot be read by this version", tag);
}

static bool refuse_dynamic(pt2_reader *r, const char *name)
{
    r->where[0] = '\0';
    return pt2_fail(r, "input '%.80s' has a dynamic size; export the module without dynamic_shapes", name);
}

/* A tensor, which becomes a value, or a constant. */
static bool input_value(pt2_reader *r, pt2_scope *scope, json_t *argument, ef_xinput *input)
{
    json_t *body;
    const char *tag = pt2_union(r, argument, &body);
    if (!tag)
        return false;
    if (strcmp(tag, "as_sym_int") == 0 || strcmp(tag, "as_sym_float") == 0 || strcmp(tag, "as_sym_bool") == 0) {
        const char *name = json_string_value(json_object_get(body, "as_name"));
        return refuse_dynamic(r, name ? name : "");
    }
    input->value = EF_NONE;
    if (strcmp(tag, "as_tensor") != 0)
        return input->kind == EF_XI_OTHER || pt2_argument(r, scope, argument, &input->literal);
    const char *name = pt2_string(r, body, "name");
    if (!name)
        return false;
    input->value = pt2_define(r, scope, name, input->kind == EF_XI_OTHER ? EF_XV_OTHER : EF_XV_TENSOR);
    if (input->value == EF_NONE)
        return false;
    return !r->values.at[input->value].symbolic || refuse_dynamic(r, name);
}

/* The graph's input and the signature's must speak of the same name. */
static bool same_tensor(pt2_reader *r, json_t *argument, json_t *spec)
{
    json_t *named = json_object_get(argument, "as_tensor"), *arg = json_object_get(spec, "arg");
    json_t *user = json_object_get(arg, "as_tensor");
    const char *name = json_string_value(json_object_get(named, "name"));
    const char *other = json_string_value(json_object_get(user ? user : arg, "name"));
    if (!name && !user)
        return true;
    return (name && other && strcmp(name, other) == 0) || pt2_fail(r, "graph and signature differ");
}

/* The name of a caller's input that is no tensor. */
static bool literal_name(pt2_reader *r, json_t *spec, ef_xinput *input)
{
    input->literal.name = json_object_get(spec, "name") ? pt2_string(r, spec, "name") : "";
    return input->literal.name != NULL;
}

static bool read_input(pt2_reader *r, pt2_scope *scope, json_t *argument, json_t *spec)
{
    ef_xinput input = {0};
    json_t *body;
    if (!input_kind(r, spec, &body, &input) || !same_tensor(r, argument, body) ||
        !input_value(r, scope, argument, &input))
        return false;
    if (input.value == EF_NONE && !literal_name(r, body, &input))
        return false;
    if (input.kind == EF_XI_BUFFER)
        input.persistent = json_is_true(json_object_get(body, "persistent"));
    if (input.kind != EF_XI_USER && input.kind != EF_XI_OTHER && !pt2_payload(r, input.target, &input))
        return false;
    ef_vec_push(&r->inputs, input);
    return true;
}

bool pt2_inputs(pt2_reader *r, pt2_scope *scope, json_t *graph, json_t *signature)
{
    json_t *arguments = pt2_array(r, graph, "inputs"),
           *specs = arguments ? pt2_array(r, signature, "input_specs") : NULL;
    if (!specs)
        return false;
    if (json_array_size(arguments) != json_array_size(specs))
        return pt2_fail(r, "%zu inputs in the graph, %zu in the signature", json_array_size(arguments),
                        json_array_size(specs));
    for (uint32_t i = 0; i < json_array_size(specs); i++) {
        snprintf(r->where, sizeof r->where, "input %u", i);
        if (!read_input(r, scope, json_array_get(arguments, i), json_array_get(specs, i)))
            return false;
    }
    r->where[0] = '\0';
    return true;
}

/* ---- outputs ---- */

static const struct {
    const char *tag, *target;
    ef_xoutput_kind kind;
} output_kinds[] = {
    {"user_output", NULL, EF_XO_USER},
    {"loss_output", NULL, EF_XO_LOSS},
    {"buffer_mutation", "buffer_name", EF_XO_BUFFER_MUTATION},
    {"parameter_mutation", "parameter_name", EF_XO_PARAMETER_MUTATION},
    {"user_input_mutation", "user_input_name", EF_XO_INPUT_MUTATION},
    {"gradient_to_parameter", "parameter_name", EF_XO_GRADIENT},
    {"gradient_to_user_input", "user_input_name", EF_XO_GRADIENT},
    {"token", NULL, EF_XO_OTHER},
};

static bool output_kind(pt2_reader *r, json_t *spec, json_t **body, ef_xoutput *output)
{
    const char *tag = pt2_union(r, spec, body);
    for (size_t i = 0; tag && i < sizeof output_kinds / sizeof *output_kinds; i++)
        if (strcmp(tag, output_kinds[i].tag) == 0) {
            output->kind = output_kinds[i].kind;
            output->target = output_kinds[i].target ? pt2_string(r, *body, output_kinds[i].target) : "";
            return output->target != NULL;
        }
    return tag && pt2_fail(r, "'%.40s' outputs cannot be read by this version", tag);
}

/* What a mutation writes to must be among the inputs. */
static bool target_exists(pt2_reader *r, const ef_xoutput *output)
{
    static const ef_xinput_kind kinds[] = {[EF_XO_BUFFER_MUTATION] = EF_XI_BUFFER,
                                           [EF_XO_PARAMETER_MUTATION] = EF_XI_PARAMETER,
                                           [EF_XO_INPUT_MUTATION] = EF_XI_USER};
    if (output->kind < EF_XO_BUFFER_MUTATION || output->kind > EF_XO_INPUT_MUTATION)
        return true;
    for (uint32_t i = 0; i < r->inputs.count; i++) {
        const ef_xinput *in = &r->inputs.at[i];
        if (in->kind != kinds[output->kind] || in->value == EF_NONE)
            continue;
        const char *name = in->kind == EF_XI_USER ? r->values.at[in->value].name : in->target;
        if (strcmp(name, output->target) == 0)
            return true;
    }
    return pt2_fail(r, "writes to '%.80s', which is no input", output->target);
}

static bool read_output(pt2_reader *r, pt2_scope *scope, json_t *argument, json_t *spec)
{
    ef_xoutput output = {0};
    json_t *body;
    output.value = EF_NONE;
    if (!output_kind(r, spec, &body, &output) || !same_tensor(r, argument, body) || !target_exists(r, &output))
        return false;
    if (output.kind != EF_XO_OTHER && !pt2_argument(r, scope, argument, &output.literal))
        return false;
    if (output.literal.kind == EF_XA_TENSOR || output.literal.kind == EF_XA_SYM)
        output.value = output.literal.value;
    ef_vec_push(&r->outputs, output);
    return true;
}

bool pt2_outputs(pt2_reader *r, pt2_scope *scope, json_t *graph, json_t *signature)
{
    json_t *arguments = pt2_array(r, graph, "outputs"),
           *specs = arguments ? pt2_array(r, signature, "output_specs") : NULL;
    if (!specs)
        return false;
    if (json_array_size(arguments) != json_array_size(specs))
        return pt2_fail(r, "%zu outputs in the graph, %zu in the signature", json_array_size(arguments),
                        json_array_size(specs));
    for (uint32_t i = 0; i < json_array_size(specs); i++) {
        snprintf(r->where, sizeof r->where, "output %u", i);
        if (!read_output(r, scope, json_array_get(arguments, i), json_array_get(specs, i)))
            return false;
    }
    r->where[0] = '\0';
    return true;
}
