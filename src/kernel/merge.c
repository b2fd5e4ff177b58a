/* One kernel made of two: see merge.h. Copies what both compute into a new kernel, whose nodes, iterators and loops
 * have numbers of their own; equal nodes become one. */
#include <string.h>

#include "kernel/merge.h"

/* ---- nodes, iterators and loops ---- */

/* One parameter for each axis of a kernel. */
static uint32_t copy_param(const ef_merging *m, uint32_t param)
{
    ef_kparam p = m->g->params.at[param];
    uint32_t own = m->at[m->into];
    if (p.kernel == EF_NONE || p.kernel == own)
        return param;
    p.kernel = own;
    for (uint32_t i = 0; i < m->g->params.count; i++)
        if (m->g->params.at[i].axis == p.axis && m->g->params.at[i].kernel == own)
            return i;
    ef_vec_push(&m->g->params, p); /* the other one goes when no kernel is left that has it */
    return m->g->params.count - 1;
}

static uint32_t copy_iter(ef_merging *m, unsigned side, uint32_t at, uint32_t loop)
{
    ef_iter iter = m->from[side]->iters.at[at];
    if (iter.outer != EF_NONE)
        iter.outer = m->iter[side][iter.outer];
    if (iter.kind != EF_ITER_PICK)
        iter.param = copy_param(m, iter.param);
    iter.loop = loop;
    ef_vec_push(&m->to->iters, iter);
    return m->to->iters.count - 1;
}

static void copy_body(ef_merging *m, unsigned side, uint32_t loop, unsigned first)
{
    const ef_kloop *l = &m->from[side]->loops.at[loop];
    uint32_t number = m->loop[side][loop];
    for (unsigned i = 0; i < l->leaves && !m->failed; i++) {
        ef_kid in = ef_merge_copy(m, side, l->in[i]), next = ef_merge_copy(m, side, l->next[i]);
        ef_kid state = ef_merge_copy(m, side, l->state[i]);
        ef_kloop *to = &m->to->loops.at[number];
        to->in[first + i] = in;
        to->next[first + i] = next;
        to->state[first + i] = state;
        to->base[first + i] = l->base[i];
    }
}

/* An iteration that changes nothing in one part of the state may change something in the other. */
static void copy_conditions(ef_merging *m, unsigned side, uint32_t loop)
{
    const ef_kloop *l = &m->from[side]->loops.at[loop];
    uint32_t number = m->loop[side][loop];
    for (unsigned i = 0; i < l->keeps && !m->failed; i++) {
        ef_kid keep = ef_merge_copy(m, side, l->keep[i]);
        ef_kloop *to = &m->to->loops.at[number];
        bool seen = false;
        for (unsigned k = 0; k < to->keeps; k++)
            seen = seen || to->keep[k] == keep;
        if (!seen)
            to->keep[to->keeps++] = keep;
    }
}

/* The loop as a node, behind all that its body needs. */
static void add_loop_node(ef_merging *m, uint32_t number)
{
    ef_kloop *to = &m->to->loops.at[number];
    ef_knode node;
    memset(&node, 0, sizeof node);
    node.op = EF_K_LOOP;
    node.attr = number;
    for (unsigned i = 0; i < EF_MAX_RANK; i++)
        node.dim[i].cut = EF_NONE;
    for (unsigned i = 0; i < to->leaves; i++)
        node.loops |= ef_kernel_node(m->to, to->next[i])->loops;
    node.loops &= ~(UINT64_C(1) << number);
    to->node = ef_kernel_intern(m->to, node);
}

/* The sides of a loop: its own, and its partner's. */
static unsigned sides_of(const ef_merging *m, unsigned side, uint32_t loop, unsigned who[2], uint32_t number[2])
{
    uint32_t partner = m->partner[side][loop];
    who[0] = partner != EF_NONE ? 0 : side;
    who[1] = 1;
    number[0] = side == who[0] ? loop : partner;
    number[1] = side == 1 ? loop : partner;
    return partner != EF_NONE ? 2 : 1;
}

static void copy_loop(ef_merging *m, unsigned side, uint32_t loop)
{
    unsigned who[2], count, leaves = 0;
    uint32_t of[2], number = m->to->loops.count;
    bool masked = true;
    if (m->loop[side][loop] != EF_NONE) {
        m->failed = m->failed || m->copying[side][loop]; /* two pairs of loops that wait for each other */
        return;
    }
    ef_vec_push(&m->to->loops, (ef_kloop){0});
    count = sides_of(m, side, loop, who, of);
    uint32_t iter = copy_iter(m, who[0], m->from[who[0]]->loops.at[of[0]].iter, number);
    m->to->loops.at[number].iter = iter;
    for (unsigned i = 0; i < count; i++) {
        const ef_kloop *l = &m->from[who[i]]->loops.at[of[i]];
        ef_kloop *to = &m->to->loops.at[number];
        to->reducer = i ? ef_reducer_product(m->g->ctx, to->reducer, l->reducer) : l->reducer;
        to->leaves += l->leaves;
        m->iter[who[i]][l->iter] = iter;
        m->loop[who[i]][of[i]] = number;
        m->copying[who[i]][of[i]] = true;
        masked = masked && l->keeps > 0;
    }
    for (unsigned i = 0; i < count; leaves += m->from[who[i]]->loops.at[of[i]].leaves, i++) {
        copy_body(m, who[i], of[i], leaves);
        if (masked)
            copy_conditions(m, who[i], of[i]);
    }
    if (m->failed)
        return;
    add_loop_node(m, number);
    for (unsigned i = 0; i < count; i++)
        m->copying[who[i]][of[i]] = false;
    leaves = 0;
    for (unsigned i = 0; i < count; i++) {
        const ef_kloop *l = &m->from[who[i]]->loops.at[of[i]];
        for (unsigned k = 0; k < l->leaves; k++) {
            ef_kid result = ef_merge_copy(m, who[i], l->result[k]);
            m->to->loops.at[number].result[leaves++] = result;
        }
    }
}

/* What a node says of iterators and loops, in the new kernel's numbers. */
static uint64_t copy_attr(const ef_merging *m, unsigned side, const ef_knode *n)
{
    if (n->op == EF_K_PICK)
        return m->iter[side][n->attr];
    if (n->op != EF_K_STATE && n->op != EF_K_RESULT)
        return n->attr;
    uint32_t loop = ef_k_loop_of(n->attr), leaf = ef_k_leaf_of(n->attr);
    if (side == 1 && m->partner[1][loop] != EF_NONE)
        leaf += m->from[0]->loops.at[m->partner[1][loop]].leaves;
    return (uint64_t)m->loop[side][loop] << 8 | leaf;
}

static uint32_t *numbers(uint32_t count)
{
    uint32_t *list = ef_xcalloc(count + 1, sizeof *list);
    memset(list, 0xff, (count + 1) * sizeof *list);
    return list;
}

void ef_merge_forget(ef_merging *m, unsigned side)
{
    free(m->node[side]);
    m->node[side] = numbers(ef_kernel_nodes(m->from[side]));
}

/* Whether a node is its operand: a view that cuts nothing any more. */
static bool is_operand(const ef_merging *m, const ef_knode *n)
{
    const ef_knode *operand = n->op == EF_VIEW ? ef_kernel_node(m->to, n->child[0]) : NULL;
    bool same = operand != NULL;
    for (unsigned i = 0; same && i < n->rank; i++)
        same = n->dim[i].cut == operand->dim[i].cut;
    return same;
}

ef_kid ef_merge_copy(ef_merging *m, unsigned side, ef_kid id)
{
    ef_knode n = *ef_kernel_node(m->from[side], id);
    if (m->node[side][id] != EF_NONE || m->failed)
        return m->node[side][id];
    if (side == 1 && ef_chain_reads(m, id))
        return m->node[1][id] = ef_chain_copy(m, id);
    if (side == 1 && ef_chain_moves(m, id)) {
        m->failed = true;
        return EF_NONE;
    }
    bool absorbs = side == 1 && m->kind == EF_MERGE_ABSORBS && n.op == EF_K_BUFFER;
    for (uint32_t i = 0; i < m->from[0]->stores.count && absorbs; i++)
        if (m->from[0]->stores.at[i].buffer == n.attr)
            return m->node[1][id] = ef_merge_copy(m, 0, m->from[0]->stores.at[i].value);
    if (n.op == EF_K_RESULT) {
        uint32_t loop = ef_k_loop_of(n.attr);
        copy_loop(m, side, loop);
        if (m->failed)
            return EF_NONE;
        n.child[0] = m->to->loops.at[m->loop[side][loop]].node;
    }
    for (unsigned i = 0; i < n.count && n.op != EF_K_RESULT; i++)
        n.child[i] = ef_merge_copy(m, side, n.child[i]);
    if (m->failed)
        return EF_NONE;
    n.attr = copy_attr(m, side, &n);
    for (unsigned i = 0; i < n.rank; i++)
        n.dim[i].cut = n.dim[i].cut == EF_NONE ? EF_NONE : m->iter[side][n.dim[i].cut];
    if (is_operand(m, &n))
        return m->node[side][id] = n.child[0];
    ef_kid copy = ef_kernel_intern(m->to, n);
    if (!m->to->names.at[copy])
        m->to->names.at[copy] = m->from[side]->names.at[id];
    return m->node[side][id] = copy;
}

/* ---- the whole ---- */

static void copy_stores(ef_merging *m, unsigned side)
{
    for (uint32_t i = 0; i < m->from[side]->stores.count && !m->failed; i++) {
        ef_kstore store = m->from[side]->stores.at[i];
        store.value = ef_merge_copy(m, side, store.value);
        ef_vec_push(&m->to->stores, store); /* the grids have the same numbers */
    }
}

ef_kernel *ef_kernels_merged(ef_kgraph *g, uint32_t a, uint32_t b, ef_merge_kind kind)
{
    ef_merging m = {.g = g, .at = {a, b}, .into = kind != EF_MERGE_BESIDE, .kind = kind};
    ef_kernel *k = m.to = ef_xcalloc(1, sizeof *k);
    m.from[0] = g->kernels.at[a];
    m.from[1] = g->kernels.at[b];
    k->name = m.from[m.into]->name;
    k->root = m.from[m.into]->root;
    k->grid = m.from[m.into]->grid;
    k->nodes = ef_intern_new();
    for (unsigned side = 0; side < 2; side++) {
        m.node[side] = numbers(ef_kernel_nodes(m.from[side]));
        m.iter[side] = numbers(m.from[side]->iters.count);
        m.loop[side] = numbers(m.from[side]->loops.count);
        m.partner[side] = numbers(m.from[side]->loops.count);
        m.copying[side] = ef_xcalloc(m.from[side]->loops.count + 1, sizeof(bool));
        for (uint32_t i = 0; i < m.from[side]->grid; i++)
            m.iter[side][i] = i;
    }
    for (uint32_t i = 0; i < k->grid; i++)
        ef_vec_push(&k->iters, m.from[m.into]->iters.at[i]);
    if (kind == EF_MERGE_BESIDE) {
        ef_beside_partners(&m);
        copy_stores(&m, 0);
    }
    copy_stores(&m, 1);
    if (kind == EF_MERGE_CHAINS && !m.failed)
        ef_chain_store(&m);
    for (unsigned side = 0; side < 2; side++) {
        free(m.node[side]);
        free(m.iter[side]);
        free(m.loop[side]);
        free(m.partner[side]);
        free(m.copying[side]);
    }
    if (!m.failed)
        return k;
    ef_kernel_free(k);
    return NULL;
}

bool ef_merge_few_loops(const ef_kgraph *g, uint32_t a, uint32_t b)
{
    return g->kernels.at[a]->loops.count + g->kernels.at[b]->loops.count <= EF_K_MAX_LOOPS;
}

void ef_merge_kernels(ef_kgraph *g)
{
    ef_merge_absorbed(g);
    ef_merge_chains(g);
    ef_merge_beside(g);
}
