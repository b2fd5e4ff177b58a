/* What a tile is loaded from: see reads.h. */
#include "target/reads.h"

/* The part of a concatenation that is its operand's, by the sizes of the dimension along which they differ. */
static double part_of(const ef_kgraph *g, const ef_knode *whole, const ef_knode *operand)
{
    unsigned along = (unsigned)whole->attr;
    double all = 0, own = 0;
    if (along < whole->rank && along < operand->rank) {
        all = (double)ef_dim_extent(g->ctx, whole->dim[along].dim);
        own = (double)ef_dim_extent(g->ctx, operand->dim[along].dim);
    }
    return all > 0 && own > 0 && own <= all ? own / all : 1;
}

static bool collect(const ef_kgraph *g, const ef_kernel *k, ef_kid id, double part, ef_read *reads, unsigned *count)
{
    const ef_knode *n = ef_kernel_node(k, id);
    if (n->op == EF_K_BUFFER) {
        if (*count == EF_MOST_READS)
            return false;
        reads[(*count)++] = (ef_read){(uint32_t)n->attr, part};
        return true;
    }
    if (!ef_knode_moves(n) || n->count == 0)
        return false;
    for (unsigned i = 0; i < n->count; i++) {
        double own = n->op == EF_CONCAT ? part * part_of(g, n, ef_kernel_node(k, n->child[i])) : part;
        if (!collect(g, k, n->child[i], own, reads, count))
            return false;
    }
    return true;
}

unsigned ef_kernel_reads(const ef_kgraph *graph, const ef_kernel *kernel, ef_kid id, ef_read reads[EF_MOST_READS])
{
    unsigned count = 0;
    return collect(graph, kernel, id, 1, reads, &count) ? count : 0;
}
