/* Axes that are collected somewhere: the number of their tiles is a dimension, which makes the tiles' extent one for
 * all kernels (ef_form_param). Kernels to which the collected dimension is nothing have an extent of their own: how a
 * kernel cuts its columns does not say in how many parts the next one sums over them. */
#include "kernel/lower.h"

bool ef_dim_counts(const ef_kgraph *g, ef_dim dim, ef_var var, ef_axis axis)
{
    const ef_var *atom;
    for (unsigned i = 0, count = ef_dim_atoms(g->ctx, dim, &atom); i < count; i++) {
        const ef_var_info *info = ef_var_at(g->ctx, atom[i]);
        if (info->kind == EF_VAR_COUNT && ef_axis_var(info->axis) == var && (axis == EF_NONE || info->axis == axis))
            return true;
    }
    return false;
}

static bool buffer_counts(const ef_kgraph *g, uint32_t buffer, ef_var var)
{
    const ef_kbuffer *b = &g->buffers.at[buffer];
    for (unsigned d = 0; d < b->rank; d++)
        if (ef_dim_counts(g, b->dim[d], var, EF_NONE))
            return true;
    return false;
}

/* Whether a kernel reads, computes or stores anything that has the tiles of a variable as a dimension. */
static bool kernel_counts(const ef_kgraph *g, const ef_kernel *k, ef_var var)
{
    for (ef_kid id = 0; id < ef_kernel_nodes(k); id++) {
        const ef_knode *n = ef_kernel_node(k, id);
        if (n->op == EF_K_BUFFER && buffer_counts(g, (uint32_t)n->attr, var))
            return true;
        for (unsigned d = 0; d < n->rank; d++)
            if (ef_dim_counts(g, n->dim[d].dim, var, EF_NONE))
                return true;
    }
    for (uint32_t i = 0; i < k->stores.count; i++)
        if (buffer_counts(g, k->stores.at[i].buffer, var))
            return true;
    for (uint32_t i = 0; i < k->iters.count; i++)
        if (k->iters.at[i].kind == EF_ITER_PICK && ef_dim_counts(g, k->iters.at[i].count, var, EF_NONE))
            return true;
    return false;
}

static uint32_t own_param(ef_kgraph *g, ef_axis axis, uint32_t kernel)
{
    for (uint32_t i = 0; i < g->params.count; i++)
        if (g->params.at[i].axis == axis && g->params.at[i].kernel == kernel)
            return i;
    ef_vec_push(&g->params, ((ef_kparam){EF_PARAM_TILE, axis, kernel}));
    return g->params.count - 1;
}

static bool has_parts(const ef_kgraph *g, ef_axis axis)
{
    for (uint32_t i = 0; i < g->parts.count; i++)
        if (g->parts.at[i].axis == axis)
            return true;
    return false;
}

void ef_kgraph_own_tiles(ef_kgraph *g)
{
    for (uint32_t k = 0; k < g->kernels.count; k++)
        for (uint32_t i = 0; i < g->kernels.at[k]->iters.count; i++) {
            ef_iter *iter = &g->kernels.at[k]->iters.at[i];
            if (iter->kind == EF_ITER_PICK || g->params.at[iter->param].kernel != EF_NONE || has_parts(g, iter->axis) ||
                kernel_counts(g, g->kernels.at[k], ef_axis_var(iter->axis)))
                continue;
            iter->param = own_param(g, iter->axis, k);
        }
}
