/* Work of programs: see work.h. */
#include "tune/work.h"

#include <stdlib.h>

#include "ir/independent.h"

static double elements_of(const ef_ctx *ctx, ef_type type)
{
    const ef_type_info *info = ef_type_at(ctx, type);
    double product = 1, sum = 0;
    for (unsigned i = 0; i < info->fields; i++)
        sum += elements_of(ctx, info->field[i]);
    for (unsigned i = 0; i < info->rank; i++)
        product *= (double)ef_dim_extent(ctx, info->dim[i]);
    return info->is_tuple ? sum : product;
}

double ef_type_bytes(const ef_ctx *ctx, ef_type type)
{
    const ef_type_info *info = ef_type_at(ctx, type);
    double sum = 0;
    for (unsigned i = 0; i < info->fields; i++)
        sum += ef_type_bytes(ctx, info->field[i]);
    return info->is_tuple ? sum : elements_of(ctx, type) * ef_dtype_bytes((ef_dtype)info->dtype);
}

ef_work ef_work_of(const ef_program *program)
{
    const ef_ctx *ctx = ef_dag_ctx(program->dag);
    ef_work work = {0};
    bool *needed = ef_program_needed(program);
    for (ef_expr e = 0; e < ef_dag_count(program->dag); e++) {
        const ef_expr *child;
        ef_op op = ef_dag_op(program->dag, e);
        double elements = needed[e] ? elements_of(ctx, ef_dag_type(program->dag, e)) : 0;
        if (op == EF_MATMUL || op == EF_TILE_MATMUL) {
            ef_dag_children(program->dag, e, &child);
            const ef_type_info *left = ef_type_at(ctx, ef_dag_type(program->dag, child[0]));
            work.multiplications += elements * (double)ef_dim_extent(ctx, left->dim[0]);
        } else if (op != EF_INPUT) {
            work.elements += elements;
        }
    }
    free(needed);
    for (uint32_t i = 0; i < program->inputs; i++)
        work.bytes += ef_type_bytes(ctx, ef_input_type(ctx, program->input[i]));
    for (uint32_t i = 0; i < program->outputs; i++)
        work.bytes += ef_type_bytes(ctx, ef_dag_type(program->dag, program->output[i].expr));
    return work;
}
