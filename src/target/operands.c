/* Walks from products to loads: see operands.h. */
#include "target/operands.h"

#include "target/reads.h"

typedef struct {
    const ef_kgraph *g;
    const ef_kernel *k;
    const bool *elsewhere; /* by node: see find_elsewhere */
    bool *seen;            /* by node, of one operand */
} search;

static bool is_pointwise(const ef_knode *n)
{
    return n->op < EF_OP_COUNT && ef_op_pointwise((ef_op)n->op);
}

static bool is_loaded(const search *s, ef_kid id)
{
    ef_read reads[EF_MOST_READS];
    return ef_kernel_reads(s->g, s->k, id, reads) > 0;
}

/* By node: whether a sum or a state is made of it, otherwise than by products. Users have higher numbers. */
static bool *find_elsewhere(const ef_kernel *k, const bool *needed)
{
    uint32_t count = ef_kernel_nodes(k);
    bool *elsewhere = ef_xcalloc(count + 1, sizeof *elsewhere), *ends = ef_xcalloc(count + 1, sizeof *ends);
    for (uint32_t i = 0; i < k->loops.count; i++)
        for (unsigned leaf = 0; leaf < k->loops.at[i].leaves; leaf++)
            ends[k->loops.at[i].next[leaf]] = true;
    for (ef_kid id = count; id-- > 0;) {
        const ef_knode *n = ef_kernel_node(k, id);
        bool hands = n->op == EF_REDUCE || (is_pointwise(n) && (ends[id] || elsewhere[id]));
        for (unsigned i = 0; needed[id] && hands && i < n->count; i++)
            elsewhere[n->child[i]] = true;
    }
    free(ends);
    return elsewhere;
}

static void walk(const search *s, ef_kid id, ef_operand *out)
{
    const ef_knode *n = ef_kernel_node(s->k, id);
    if (s->seen[id])
        return;
    s->seen[id] = true;
    if (is_loaded(s, id)) {
        ef_vec_push(&out->loads, id);
        if (s->elsewhere[id])
            ef_vec_push(&out->shared, id);
        return;
    }
    out->derived = out->derived || n->op == EF_TILE_MATMUL || n->op == EF_REDUCE;
    if (n->op == EF_TILE_MATMUL || n->op == EF_REDUCE)
        return;
    if (is_pointwise(n) && n->loops == ef_kernel_node(s->k, out->product)->loops)
        ef_vec_push(&out->work, id);
    else if (is_pointwise(n))
        return; /* before the loop */
    for (unsigned i = 0; i < n->count; i++)
        walk(s, n->child[i], out);
}

void ef_operands_find(const ef_kgraph *graph, const ef_kernel *kernel, const bool *needed, ef_operands *out)
{
    bool *elsewhere = find_elsewhere(kernel, needed);
    search s = {graph, kernel, elsewhere, NULL};
    uint32_t count = ef_kernel_nodes(kernel);
    *out = (ef_operands){0};
    for (ef_kid id = 0; id < count; id++)
        for (unsigned side = 0; needed[id] && ef_kernel_node(kernel, id)->op == EF_TILE_MATMUL && side < 2; side++) {
            ef_operand operand = {.product = id, .side = side};
            s.seen = ef_xcalloc(count + 1, sizeof *s.seen);
            walk(&s, ef_kernel_node(kernel, id)->child[side], &operand);
            free(s.seen);
            ef_vec_push(&out->list, operand);
        }
    free(elsewhere);
}

void ef_operands_free(ef_operands *operands)
{
    for (uint32_t i = 0; i < operands->list.count; i++) {
        ef_vec_free(&operands->list.at[i].work);
        ef_vec_free(&operands->list.at[i].loads);
        ef_vec_free(&operands->list.at[i].shared);
    }
    ef_vec_free(&operands->list);
}
