/* Requests: see request.h. */
#include "tune/request.h"

static void add_tensor(json_t *list, const ef_ctx *ctx, const char *name, ef_type type)
{
    const ef_type_info *info = ef_type_at(ctx, type);
    json_t *shape = json_array();
    for (unsigned i = info->rank; i-- > 0;)
        json_array_append_new(shape, json_integer((json_int_t)ef_dim_extent(ctx, info->dim[i])));
    for (unsigned i = 0; i < info->fields; i++)
        add_tensor(list, ctx, name, info->field[i]);
    if (info->is_tuple)
        json_decref(shape);
    else
        json_array_append_new(
            list, json_pack("{s:s, s:s, s:o}", "name", name, "dtype", ef_dtype_names[info->dtype], "shape", shape));
}

json_t *ef_request_program(const ef_program *program, const char *reference, uint64_t seed, double seconds,
                           double end_s)
{
    const ef_ctx *ctx = ef_dag_ctx(program->dag);
    json_t *inputs = json_array(), *outputs = json_array();
    for (uint32_t i = 0; i < program->inputs; i++)
        add_tensor(inputs, ctx, ef_input_name(ctx, program->input[i]), ef_input_type(ctx, program->input[i]));
    for (uint32_t i = 0; i < program->outputs; i++)
        add_tensor(outputs, ctx, program->output[i].name, ef_dag_type(program->dag, program->output[i].expr));
    return json_pack("{s:s, s:s, s:o, s:o, s:s, s:I, s:f, s:f}", "do", "program", "name", "ef_reference", "inputs",
                     inputs, "outputs", outputs, "reference", reference, "seed", (json_int_t)(seed & INT64_MAX),
                     "seconds", seconds, "end", end_s);
}
