/* Single numbers: a kernel of one block that computes them from few is computed by each block of those that read them.
 * That takes less than a launch and a wait for memory. */
#include <math.h>

#include "kernel/merge.h"

#define FEW_ELEMENTS 512.0 /* that a kernel reads to be computed in all blocks of another one */
#define FEW_READERS 4u

/* What a kernel reads, each tensor once; infinite where that depends on a schedule. */
static double elements_read(const ef_kgraph *g, const ef_kernel *k)
{
    bool *needed = ef_kernel_needed(k);
    const ef_var *atom;
    double sum = 0;
    for (ef_kid id = 0; id < ef_kernel_nodes(k); id++) {
        const ef_knode *n = ef_kernel_node(k, id);
        double elements = n->op == EF_K_BUFFER && needed[id];
        for (unsigned d = 0; d < n->rank && elements > 0; d++)
            for (unsigned i = 0, count = ef_dim_atoms(g->ctx, n->dim[d].dim, &atom); i < count; i++) {
                const ef_var_info *info = ef_var_at(g->ctx, atom[i]);
                elements *= info->kind == EF_VAR_COUNT ? INFINITY : (double)info->extent;
            }
        sum += elements;
    }
    free(needed);
    return sum;
}

/* Whether it computes, in one block, single numbers from few, which are no outputs. */
static bool is_small(const ef_kgraph *g, const ef_kernel *k)
{
    bool small = k->grid == 0 && !ef_kernel_has_product(k) && elements_read(g, k) <= FEW_ELEMENTS;
    for (uint32_t s = 0; small && s < k->stores.count; s++) {
        const ef_knode *n = ef_kernel_node(k, k->stores.at[s].value);
        small = g->buffers.at[k->stores.at[s].buffer].kind == EF_BUFFER_TEMP && k->stores.at[s].leads == 0;
        for (unsigned d = 0; small && d < n->rank; d++)
            small = n->dim[d].dim == EF_UNIT;
    }
    return small;
}

static bool reads(const ef_kernel *k, const ef_kernel *from)
{
    bool *needed = ef_kernel_needed(k), any = false;
    for (ef_kid id = 0; id < ef_kernel_nodes(k); id++) {
        const ef_knode *n = ef_kernel_node(k, id);
        for (uint32_t s = 0; s < from->stores.count && needed[id] && n->op == EF_K_BUFFER; s++)
            any = any || from->stores.at[s].buffer == n->attr;
    }
    free(needed);
    return any;
}

static void remove_kernel(ef_kgraph *g, uint32_t at)
{
    ef_kernel_free(g->kernels.at[at]);
    g->kernels.count--;
    for (uint32_t i = at; i < g->kernels.count; i++)
        g->kernels.at[i] = g->kernels.at[i + 1];
    for (uint32_t i = 0; i < g->params.count; i++) {
        ef_kparam *p = &g->params.at[i];
        p->kernel = p->kernel == EF_NONE || p->kernel < at ? p->kernel : p->kernel == at ? 0 : p->kernel - 1;
    }
}

/* Computes what a small kernel stores in all that read it, and removes it; nothing where one of them cannot. */
static bool absorb(ef_kgraph *g, uint32_t at)
{
    uint32_t reader[FEW_READERS], count = 0, done = 0;
    ef_kernel *with[FEW_READERS];
    for (uint32_t i = at + 1; i < g->kernels.count; i++)
        if (reads(g->kernels.at[i], g->kernels.at[at])) {
            if (count == FEW_READERS || !ef_merge_few_loops(g, at, i))
                return false;
            reader[count++] = i;
        }
    for (bool fine = true; fine && done < count; done += fine) {
        with[done] = ef_kernels_merged(g, at, reader[done], EF_MERGE_ABSORBS);
        fine = with[done] != NULL;
    }
    for (uint32_t i = 0; i < done; i++)
        if (done == count) {
            ef_kernel_free(g->kernels.at[reader[i]]);
            g->kernels.at[reader[i]] = with[i];
        } else {
            ef_kernel_free(with[i]);
        }
    if (done == count)
        remove_kernel(g, at);
    return done == count;
}

void ef_merge_absorbed(ef_kgraph *g)
{
    for (uint32_t i = 0; i < g->kernels.count;)
        i += !(is_small(g, g->kernels.at[i]) && absorb(g, i));
}
