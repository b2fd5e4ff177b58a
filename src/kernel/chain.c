/* Chains: a kernel that computes element by element is one with the first that reads its result, where a block of that
 * one reads few of the elements and few other blocks read the same: a residual update with the norm after it. What is
 * read need not go through memory, and a launch is saved; the elements that several blocks compute for themselves are
 * few. The result is stored too where others read it, by the first of the blocks that have the same tile (paper,
 * section 7.3). */
#include "kernel/merge.h"

#define FEW_SUMMED 32       /* elements of a sum, in a chain; blocks that compute the same */
#define FEW_COMPUTED 4096.0 /* elements that a block computes for itself, and stores */

/* ---- the tile that a block reads of what another kernel stores ---- */

/* The iterators, of the new kernel, that cut a tile, by variable. */
typedef struct {
    unsigned count;
    ef_var var[EF_MAX_RANK];
    uint32_t iter[EF_MAX_RANK];
} cuts;

static uint32_t cut_along(const cuts *c, ef_var var)
{
    for (unsigned i = 0; i < c->count; i++)
        if (c->var[i] == var)
            return c->iter[i];
    return EF_NONE;
}

/* Cuts dimensions along their first variables. False when one is not to be cut so. */
static bool cut_dims(const ef_merging *m, const cuts *c, ef_knode *n)
{
    const ef_var *atom;
    unsigned done = 0;
    for (unsigned i = 0; i < n->rank; i++) {
        unsigned atoms = ef_dim_atoms(m->g->ctx, n->dim[i].dim, &atom);
        n->dim[i].cut = atoms ? cut_along(c, atom[0]) : EF_NONE;
        done += n->dim[i].cut != EF_NONE;
    }
    return done == c->count;
}

/* Whether a node of the second kernel is what the first stores, seen through views and in other shapes. */
bool ef_chain_reads(const ef_merging *m, ef_kid id)
{
    const ef_knode *n = ef_kernel_node(m->from[1], id);
    while (n->op == EF_VIEW || n->op == EF_RESHAPE)
        n = ef_kernel_node(m->from[1], n->child[0]);
    return m->kind == EF_MERGE_CHAINS && n->op == EF_K_BUFFER && n->attr == m->from[0]->stores.at[0].buffer;
}

/* Whether a node moves elements of what is computed of it: those of a tile that is computed lie where they are. */
bool ef_chain_moves(const ef_merging *m, ef_kid id)
{
    const ef_kernel *k = m->from[1];
    const ef_knode *n = ef_kernel_node(k, id);
    if (m->kind != EF_MERGE_CHAINS || !ef_knode_moves(n) || n->op == EF_RESHAPE)
        return false;
    bool *needed = ef_xcalloc(ef_kernel_nodes(k) + 1, sizeof *needed), chained = false;
    ef_kernel_need(k, id, needed);
    for (ef_kid i = 0; i < ef_kernel_nodes(k); i++)
        chained = chained || (needed[i] && ef_chain_reads(m, i));
    free(needed);
    return chained;
}

static bool cuts_along(const ef_kernel *k, ef_var var)
{
    for (uint32_t i = 0; i < k->grid; i++)
        if (ef_axis_var(k->iters.at[i].axis) == var)
            return true;
    return false;
}

/* Whether a tile of what the first kernel stores is little, and few blocks of the second compute the same. */
static bool is_little(const ef_merging *m, const cuts *c)
{
    double elements = 1, again = 1;
    for (uint32_t i = 0; i < m->from[0]->grid; i++) {
        ef_var var = ef_axis_var(m->from[0]->iters.at[i].axis);
        double extent = (double)ef_var_at(m->g->ctx, var)->extent;
        bool whole = cut_along(c, var) == EF_NONE;
        elements *= whole ? extent : 1;
        again *= whole && cuts_along(m->to, var) ? extent : 1;
    }
    return elements <= FEW_COMPUTED && again <= FEW_SUMMED;
}

/* What the first kernel stores, computed for a tile; fails when it cannot be cut so. */
static ef_kid compute_tile(ef_merging *m, const cuts *c)
{
    const ef_kernel *k = m->from[0];
    ef_merge_forget(m, 0); /* what was copied is of another tile */
    for (uint32_t i = 0; i < k->grid; i++)
        m->iter[0][i] = cut_along(c, ef_axis_var(k->iters.at[i].axis));
    m->failed = m->failed || !is_little(m, c);
    ef_kid id = ef_merge_copy(m, 0, k->stores.at[0].value);
    if (m->failed)
        return EF_NONE;
    ef_knode made = *ef_kernel_node(m->to, id), wanted = made;
    m->failed = !cut_dims(m, c, &wanted);
    for (unsigned i = 0; i < made.rank; i++)
        m->failed = m->failed || made.dim[i].cut != wanted.dim[i].cut;
    return m->failed ? EF_NONE : id;
}

static ef_kid reshape_tile(ef_merging *m, ef_kid id, const cuts *c)
{
    ef_knode n = *ef_kernel_node(m->from[1], id);
    if (n.op == EF_K_BUFFER)
        return compute_tile(m, c);
    ef_kid child = reshape_tile(m, n.child[0], c);
    if (n.op == EF_VIEW || m->failed)
        return child;
    n.child[0] = child;
    m->failed = !cut_dims(m, c, &n);
    return m->failed ? EF_NONE : ef_kernel_intern(m->to, n);
}

ef_kid ef_chain_copy(ef_merging *m, ef_kid id)
{
    const ef_knode *n = ef_kernel_node(m->from[1], id);
    cuts c = {0};
    const ef_var *atom;
    for (unsigned i = 0; i < n->rank; i++)
        if (n->dim[i].cut != EF_NONE && ef_dim_atoms(m->g->ctx, n->dim[i].dim, &atom)) {
            c.var[c.count] = atom[0];
            c.iter[c.count++] = m->iter[1][n->dim[i].cut];
        }
    return reshape_tile(m, id, &c);
}

/* What the first kernel of a chain stores, by the blocks of the second: of those that have the same tile the first. */
void ef_chain_store(ef_merging *m)
{
    ef_kstore store = m->from[0]->stores.at[0];
    cuts c = {0};
    for (uint32_t i = 0; i < m->to->grid; i++) {
        ef_var var = ef_axis_var(m->to->iters.at[i].axis);
        bool cut = false;
        for (uint32_t k = 0; k < m->from[0]->grid; k++)
            cut = cut || ef_axis_var(m->from[0]->iters.at[k].axis) == var;
        if (cut) {
            c.var[c.count] = var;
            c.iter[c.count++] = i;
        } else {
            store.once |= UINT64_C(1) << i;
        }
    }
    store.value = compute_tile(m, &c);
    ef_vec_push(&m->to->stores, store);
}

/* ---- pairs ---- */

/* Whether a kernel computes its one result element by element, but for sums of few. */
static bool is_elementwise(const ef_kgraph *g, const ef_kernel *k)
{
    bool simple = k->loops.count == 0 && k->grid > 0 && k->stores.count == 1 && k->stores.at[0].leads == 0 &&
                  k->stores.at[0].once == 0;
    for (ef_kid id = 0; simple && id < ef_kernel_nodes(k); id++) {
        const ef_knode *n = ef_kernel_node(k, id);
        unsigned summed = n->op == EF_REDUCE ? ef_attr_reduce_at(n->attr) : 0;
        if (n->op == EF_REDUCE || n->op == EF_TILE_MATMUL)
            simple = ef_dim_extent(g->ctx, ef_kernel_node(k, n->child[0])->dim[summed].dim) <= FEW_SUMMED;
        else
            simple = n->op == EF_K_BUFFER || n->op == EF_VIEW ||
                     (n->op < EF_OP_COUNT && (ef_op_pointwise((ef_op)n->op) || ef_ops[n->op].class == EF_LEAF ||
                                              ef_ops[n->op].class == EF_SHAPE));
    }
    return simple;
}

/* Whether the blocks of a kernel lie along whole dimensions, all parts of which are there. */
static bool plain_grid(const ef_kgraph *g, const ef_kernel *k)
{
    bool plain = k->grid > 0;
    for (uint32_t i = 0; plain && i < k->grid; i++) {
        plain = k->iters.at[i].outer == EF_NONE && ef_axis_level(k->iters.at[i].axis) == 0;
        for (uint32_t p = 0; p < g->parts.count; p++)
            plain = plain && g->parts.at[p].axis != k->iters.at[i].axis;
    }
    return plain;
}

/* Whether few blocks of y, that differ in what x knows nothing of, would compute the same of what x stores. */
static bool suit(const ef_kgraph *g, const ef_kernel *x, const ef_kernel *y)
{
    double again = 1;
    for (uint32_t i = 0; i < y->grid; i++) {
        ef_var var = ef_axis_var(y->iters.at[i].axis);
        again *= cuts_along(x, var) ? 1 : (double)ef_var_at(g->ctx, var)->extent;
    }
    return again <= FEW_SUMMED && plain_grid(g, y);
}

/* Whether a kernel stands between two others: what the first stores reaches the second through it as well. */
static bool has_between(const ef_pairs *p, uint32_t a, uint32_t b)
{
    for (uint32_t c = a + 1; c < b; c++)
        if (ef_pairs_waits(p, b, c) && ef_pairs_waits(p, c, a))
            return true;
    return false;
}

static bool chain(ef_pairs *p, uint32_t a, uint32_t b)
{
    if (!ef_pairs_reads(p, b, a) || ef_pairs_refused(p, a, b) || has_between(p, a, b))
        return false;
    if (suit(p->g, p->g->kernels.at[a], p->g->kernels.at[b]))
        return ef_pairs_merge(p, a, b, EF_MERGE_CHAINS);
    ef_pairs_refuse(p, a, b);
    return false;
}

/* Whether two kernels became one: the first that can. */
static bool chain_some(ef_pairs *p)
{
    for (uint32_t a = 0; a < p->g->kernels.count; a++) {
        const ef_kernel *k = p->g->kernels.at[a];
        bool simple = !p->kernel.at[a].tried && is_elementwise(p->g, k) && plain_grid(p->g, k);
        for (uint32_t b = a + 1; simple && b < p->g->kernels.count; b++)
            if (chain(p, a, b))
                return true;
        p->kernel.at[a].tried = true;
    }
    return false;
}

void ef_merge_chains(ef_kgraph *g)
{
    ef_pairs p = ef_pairs_of(g);
    while (chain_some(&p)) {
    }
    ef_pairs_free(&p);
}
