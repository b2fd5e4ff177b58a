/* The roofline of a program: see floor.h. */
#include "target/floor.h"

#include <math.h>

#include "support/vec.h"

static double elements(const ef_ctx *ctx, ef_type type)
{
    const ef_type_info *t = ef_type_at(ctx, type);
    double n = t->is_tuple ? 0 : 1;
    for (unsigned i = 0; i < t->fields; i++)
        n += elements(ctx, t->field[i]);
    for (unsigned i = 0; i < t->rank; i++)
        n *= (double)ef_dim_extent(ctx, t->dim[i]);
    return n;
}

static double bytes(const ef_ctx *ctx, ef_type type)
{
    const ef_type_info *t = ef_type_at(ctx, type);
    double n = 0;
    for (unsigned i = 0; i < t->fields; i++)
        n += bytes(ctx, t->field[i]);
    return t->is_tuple ? n : elements(ctx, type) * ef_dtype_bytes((ef_dtype)t->dtype);
}

static void mark_needed(const ef_program *p, bool *needed)
{
    const ef_expr *child;
    for (uint32_t i = 0; i < p->outputs; i++)
        needed[p->output[i].expr] = true;
    for (ef_expr e = ef_dag_count(p->dag); e-- > 0;)
        for (unsigned i = 0, n = needed[e] ? ef_dag_children(p->dag, e, &child) : 0; i < n; i++)
            needed[child[i]] = true;
}

/* How much of a value is used, from 0 to 1: of one that is only sliced, the slices at most. */
static double used_part(const ef_program *p, const bool *needed, ef_expr value)
{
    const ef_expr *child;
    double whole = elements(ef_dag_ctx(p->dag), ef_dag_type(p->dag, value)), part = 0;
    for (uint32_t i = 0; i < p->outputs; i++)
        if (p->output[i].expr == value)
            return 1;
    for (ef_expr e = value + 1; e < ef_dag_count(p->dag); e++) {
        bool user = false;
        for (unsigned i = 0, n = needed[e] ? ef_dag_children(p->dag, e, &child) : 0; i < n; i++)
            user = user || child[i] == value;
        if (!user)
            continue;
        if (ef_dag_op(p->dag, e) != EF_SLICE)
            return 1;
        part += elements(ef_dag_ctx(p->dag), ef_dag_type(p->dag, e)) / whole;
    }
    return fmin(1, part);
}

ef_floor ef_floor_of(const ef_program *p, const ef_target *target)
{
    const ef_ctx *ctx = ef_dag_ctx(p->dag);
    ef_floor f = {0};
    bool *needed = ef_xcalloc(ef_dag_count(p->dag) + 1, sizeof *needed);
    mark_needed(p, needed);
    for (ef_expr e = 0; e < ef_dag_count(p->dag); e++) {
        if (!needed[e] || ef_dag_op(p->dag, e) != EF_INPUT)
            continue;
        double part = used_part(p, needed, e);
        f.bytes += part * bytes(ctx, ef_dag_type(p->dag, e));
        f.operations += part * elements(ctx, ef_dag_type(p->dag, e));
    }
    for (uint32_t i = 0; i < p->outputs; i++) {
        f.bytes += bytes(ctx, ef_dag_type(p->dag, p->output[i].expr));
        f.operations += elements(ctx, ef_dag_type(p->dag, p->output[i].expr));
    }
    free(needed);
    double fastest = target->vector;
    for (unsigned d = 0; d < EF_DTYPE_COUNT; d++)
        fastest = fmax(fastest, target->matrix[d]);
    f.us = target->launch_us + 1e6 * fmax(f.bytes / target->memory, f.operations / fastest);
    return f;
}
