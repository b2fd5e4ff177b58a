/* Kernels side by side: two kernels with one grid, neither of which uses what the other stores, are one kernel where
 * that saves more than a launch.
 *
 * It does where their loops read the same tiles, as the two maps of differential attention read the same values: loops
 * over one axis become one loop whose state is both states. And where neither has a product there is little that two
 * bodies in one block can be in each other's way with. Other kernels stay apart: two accumulators with nothing in
 * common only take each other's room.
 *
 * A kernel of one block that computes single numbers from few is computed by each block of those that read them: that
 * takes less than a launch and a wait for memory.
 *
 * And a kernel that computes element by element is one with the first that reads its result, where a block of that one
 * reads few of the elements and few other blocks read the same: a residual update with the norm after it. The result is
 * stored too where others read it (paper, section 7.3). */
#include <math.h>
#include <string.h>

#include "kernel/lower.h"

#define FEW_ELEMENTS 512.0 /* that a kernel reads to be computed in all blocks of another one */
#define FEW_READERS 4u
#define FEW_SUMMED 32       /* elements of a sum, in a chain; blocks that compute the same */
#define FEW_COMPUTED 4096.0 /* elements that a block computes for itself, and stores */
#define SHARED_PART 0.4     /* of what the loops of one of the kernels read, at least */

/* How two kernels become one. */
typedef enum {
    MERGE_BESIDE,  /* both bodies in each block of one grid */
    MERGE_ABSORBS, /* what the first stores is computed where the second reads it, all of it, and not stored */
    MERGE_CHAINS   /* … the tile that is read; and stored */
} merge_kind;

typedef struct {
    ef_kgraph *g;
    uint32_t at[2]; /* the kernels, the earlier one first */
    unsigned into;  /* which of them has the grid and the parameters of the result */
    merge_kind kind;
    const ef_kernel *from[2];
    ef_kernel *to;
    ef_kid *node[2];      /* by node: its copy */
    uint32_t *iter[2];    /* by iterator */
    uint32_t *loop[2];    /* by loop */
    uint32_t *partner[2]; /* by loop: the other kernel's loop that it becomes one with */
    bool *copying[2];     /* by loop: its body is being copied */
    bool failed;
} merging;

/* ---- what a kernel reads ---- */

static bool *needed_nodes(const ef_kernel *k)
{
    bool *needed = ef_xcalloc(ef_kernel_nodes(k) + 1, sizeof *needed);
    for (uint32_t i = 0; i < k->stores.count; i++)
        ef_kernel_need(k, k->stores.at[i].value, needed);
    return needed;
}

static uint64_t mix(uint64_t a, uint64_t b)
{
    return ef_hash((uint64_t[]){a, b}, 2 * sizeof a);
}

static uint64_t iter_hash(const ef_kernel *k, uint32_t at)
{
    uint64_t hash = 1;
    for (; at != EF_NONE; at = k->iters.at[at].outer) {
        const ef_iter *i = &k->iters.at[at];
        hash = mix(hash, mix(i->kind, i->kind == EF_ITER_PICK ? i->count : i->axis));
    }
    return hash;
}

static bool moves_one(const ef_knode *n)
{
    return n->count == 1 && ef_knode_moves(n);
}

/* A tile that a loop reads: which one, in any kernel, and the elements of all of them. */
typedef struct {
    uint64_t hash;
    double elements;
} tile;

typedef EF_VEC(tile) tile_list;

/* The tile that a node is; without a hash when it is computed or stands in no loop. */
static tile tile_of(const ef_kgraph *g, const ef_kernel *k, ef_kid id)
{
    const ef_knode *n = ef_kernel_node(k, id);
    tile t = {1, 1};
    if (n->loops == 0)
        return (tile){0};
    for (unsigned i = 0; i < n->rank; i++)
        t.elements *= (double)ef_dim_extent(g->ctx, n->dim[i].dim);
    for (; moves_one(n); n = ef_kernel_node(k, n->child[0])) {
        t.hash = mix(t.hash, mix(n->op, n->op == EF_K_PICK ? iter_hash(k, (uint32_t)n->attr) : n->attr));
        for (unsigned i = 0; i < n->rank; i++)
            t.hash = mix(t.hash, mix(n->dim[i].dim, iter_hash(k, n->dim[i].cut)));
    }
    t.hash = mix(t.hash, n->attr);
    return n->op == EF_K_BUFFER ? t : (tile){0};
}

static tile_list tiles_of(const ef_kgraph *g, const ef_kernel *k)
{
    tile_list list = {0};
    bool *needed = needed_nodes(k);
    for (ef_kid id = 0; id < ef_kernel_nodes(k); id++) {
        const ef_knode *n = ef_kernel_node(k, id);
        for (unsigned i = 0; i < n->count && needed[id] && !moves_one(n); i++) {
            tile t = tile_of(g, k, n->child[i]);
            bool seen = t.hash == 0;
            for (uint32_t j = 0; j < list.count && !seen; j++)
                seen = list.at[j].hash == t.hash;
            if (!seen)
                ef_vec_push(&list, t);
        }
    }
    free(needed);
    return list;
}

static bool share_tiles(const ef_kgraph *g, const ef_kernel *a, const ef_kernel *b)
{
    tile_list x = tiles_of(g, a), y = tiles_of(g, b);
    double shared = 0, of_x = 0, of_y = 0;
    for (uint32_t i = 0; i < x.count; i++)
        of_x += x.at[i].elements;
    for (uint32_t j = 0; j < y.count; j++) {
        of_y += y.at[j].elements;
        for (uint32_t i = 0; i < x.count; i++)
            shared += x.at[i].hash == y.at[j].hash ? y.at[j].elements : 0;
    }
    ef_vec_free(&x);
    ef_vec_free(&y);
    return shared > 0 && shared >= SHARED_PART * (of_x < of_y ? of_x : of_y);
}

static bool has_product(const ef_kernel *k)
{
    for (ef_kid id = 0; id < ef_kernel_nodes(k); id++)
        if (ef_kernel_node(k, id)->op == EF_TILE_MATMUL)
            return true;
    return false;
}

static bool same_grid(const ef_kernel *a, const ef_kernel *b)
{
    bool same = a->grid == b->grid && a->grid > 0;
    for (uint32_t i = 0; same && i < a->grid; i++)
        same = a->iters.at[i].axis == b->iters.at[i].axis && a->iters.at[i].outer == b->iters.at[i].outer;
    return same;
}

/* ---- what depends on what ---- */

/* The kernels that each one waits for, directly or not: a bit matrix of `words` a row. */
static uint64_t *find_dependencies(const ef_kgraph *g, uint32_t words)
{
    uint32_t count = g->kernels.count, *writer = ef_xcalloc(g->buffers.count + 1, sizeof *writer);
    uint64_t *after = ef_xcalloc((size_t)count * words + 1, sizeof *after);
    for (uint32_t b = 0; b < g->buffers.count; b++)
        writer[b] = EF_NONE;
    for (uint32_t i = 0; i < count; i++)
        for (uint32_t s = 0; s < g->kernels.at[i]->stores.count; s++)
            writer[g->kernels.at[i]->stores.at[s].buffer] = i;
    for (uint32_t i = 0; i < count; i++) { /* kernels stand in an order in which they can run */
        const ef_kernel *k = g->kernels.at[i];
        bool *needed = needed_nodes(k);
        for (ef_kid id = 0; id < ef_kernel_nodes(k); id++) {
            const ef_knode *n = ef_kernel_node(k, id);
            uint32_t from = needed[id] && n->op == EF_K_BUFFER ? writer[n->attr] : EF_NONE;
            if (from == EF_NONE || from == i)
                continue;
            after[(size_t)i * words + from / 64] |= UINT64_C(1) << from % 64;
            for (uint32_t w = 0; w < words; w++)
                after[(size_t)i * words + w] |= after[(size_t)from * words + w];
        }
        free(needed);
    }
    free(writer);
    return after;
}

static bool waits(const uint64_t *after, uint32_t words, uint32_t kernel, uint32_t on)
{
    return after[(size_t)kernel * words + on / 64] >> on % 64 & 1;
}

/* ---- copying both bodies ---- */

static ef_kid copy_node(merging *m, unsigned side, ef_kid id);

/* One parameter for each axis of a kernel. */
static uint32_t copy_param(const merging *m, uint32_t param)
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

static uint32_t copy_iter(merging *m, unsigned side, uint32_t at, uint32_t loop)
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

static void copy_body(merging *m, unsigned side, uint32_t loop, unsigned first)
{
    const ef_kloop *l = &m->from[side]->loops.at[loop];
    uint32_t number = m->loop[side][loop];
    for (unsigned i = 0; i < l->leaves && !m->failed; i++) {
        ef_kid in = copy_node(m, side, l->in[i]), next = copy_node(m, side, l->next[i]);
        ef_kid state = copy_node(m, side, l->state[i]);
        ef_kloop *to = &m->to->loops.at[number];
        to->in[first + i] = in;
        to->next[first + i] = next;
        to->state[first + i] = state;
        to->base[first + i] = l->base[i];
    }
}

/* An iteration that changes nothing in one part of the state may change something in the other. */
static void copy_conditions(merging *m, unsigned side, uint32_t loop)
{
    const ef_kloop *l = &m->from[side]->loops.at[loop];
    uint32_t number = m->loop[side][loop];
    for (unsigned i = 0; i < l->keeps && !m->failed; i++) {
        ef_kid keep = copy_node(m, side, l->keep[i]);
        ef_kloop *to = &m->to->loops.at[number];
        bool seen = false;
        for (unsigned k = 0; k < to->keeps; k++)
            seen = seen || to->keep[k] == keep;
        if (!seen)
            to->keep[to->keeps++] = keep;
    }
}

/* The loop as a node, behind all that its body needs. */
static void add_loop_node(merging *m, uint32_t number)
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
static unsigned sides_of(const merging *m, unsigned side, uint32_t loop, unsigned who[2], uint32_t number[2])
{
    uint32_t partner = m->partner[side][loop];
    who[0] = partner != EF_NONE ? 0 : side;
    who[1] = 1;
    number[0] = side == who[0] ? loop : partner;
    number[1] = side == 1 ? loop : partner;
    return partner != EF_NONE ? 2 : 1;
}

static void copy_loop(merging *m, unsigned side, uint32_t loop)
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
            ef_kid result = copy_node(m, who[i], l->result[k]);
            m->to->loops.at[number].result[leaves++] = result;
        }
    }
}

/* What a node says of iterators and loops, in the new kernel's numbers. */
static uint64_t copy_attr(const merging *m, unsigned side, const ef_knode *n)
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
static bool cut_dims(const merging *m, const cuts *c, ef_knode *n)
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
static bool reads_chained(const merging *m, ef_kid id)
{
    const ef_knode *n = ef_kernel_node(m->from[1], id);
    while (n->op == EF_VIEW || n->op == EF_RESHAPE)
        n = ef_kernel_node(m->from[1], n->child[0]);
    return m->kind == MERGE_CHAINS && n->op == EF_K_BUFFER && n->attr == m->from[0]->stores.at[0].buffer;
}

/* Whether a node moves elements of what is computed of it: those of a tile that is computed lie where they are. */
static bool moves_chained(const merging *m, ef_kid id)
{
    const ef_kernel *k = m->from[1];
    const ef_knode *n = ef_kernel_node(k, id);
    if (m->kind != MERGE_CHAINS || !ef_knode_moves(n) || n->op == EF_RESHAPE)
        return false;
    bool *needed = ef_xcalloc(ef_kernel_nodes(k) + 1, sizeof *needed), chained = false;
    ef_kernel_need(k, id, needed);
    for (ef_kid i = 0; i < ef_kernel_nodes(k); i++)
        chained = chained || (needed[i] && reads_chained(m, i));
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
static bool is_little(const merging *m, const cuts *c)
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
static ef_kid compute_tile(merging *m, const cuts *c)
{
    const ef_kernel *k = m->from[0];
    free(m->node[0]); /* what was copied is of another tile */
    m->node[0] = numbers(ef_kernel_nodes(k));
    for (uint32_t i = 0; i < k->grid; i++)
        m->iter[0][i] = cut_along(c, ef_axis_var(k->iters.at[i].axis));
    m->failed = m->failed || !is_little(m, c);
    ef_kid id = copy_node(m, 0, k->stores.at[0].value);
    if (m->failed)
        return EF_NONE;
    ef_knode made = *ef_kernel_node(m->to, id), wanted = made;
    m->failed = !cut_dims(m, c, &wanted);
    for (unsigned i = 0; i < made.rank; i++)
        m->failed = m->failed || made.dim[i].cut != wanted.dim[i].cut;
    return m->failed ? EF_NONE : id;
}

static ef_kid reshape_tile(merging *m, ef_kid id, const cuts *c)
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

static ef_kid copy_read(merging *m, ef_kid id)
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

/* Whether a node is its operand: a view that cuts nothing any more. */
static bool is_operand(const merging *m, const ef_knode *n)
{
    const ef_knode *operand = n->op == EF_VIEW ? ef_kernel_node(m->to, n->child[0]) : NULL;
    bool same = operand != NULL;
    for (unsigned i = 0; same && i < n->rank; i++)
        same = n->dim[i].cut == operand->dim[i].cut;
    return same;
}

static ef_kid copy_node(merging *m, unsigned side, ef_kid id)
{
    ef_knode n = *ef_kernel_node(m->from[side], id);
    if (m->node[side][id] != EF_NONE || m->failed)
        return m->node[side][id];
    if (side == 1 && reads_chained(m, id))
        return m->node[1][id] = copy_read(m, id);
    if (side == 1 && moves_chained(m, id)) {
        m->failed = true;
        return EF_NONE;
    }
    bool absorbs = side == 1 && m->kind == MERGE_ABSORBS && n.op == EF_K_BUFFER;
    for (uint32_t i = 0; i < m->from[0]->stores.count && absorbs; i++)
        if (m->from[0]->stores.at[i].buffer == n.attr)
            return m->node[1][id] = copy_node(m, 0, m->from[0]->stores.at[i].value);
    if (n.op == EF_K_RESULT) {
        uint32_t loop = ef_k_loop_of(n.attr);
        copy_loop(m, side, loop);
        if (m->failed)
            return EF_NONE;
        n.child[0] = m->to->loops.at[m->loop[side][loop]].node;
    }
    for (unsigned i = 0; i < n.count && n.op != EF_K_RESULT; i++)
        n.child[i] = copy_node(m, side, n.child[i]);
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

/* ---- two kernels as one ---- */

static bool outermost(const ef_kernel *k, uint32_t loop)
{
    return ef_kernel_node(k, k->loops.at[loop].node)->loops == 0;
}

/* The one outermost loop of a kernel over what an iterator walks along; EF_NONE: none, or several. */
static uint32_t only_loop(const ef_kernel *k, uint64_t hash)
{
    uint32_t found = EF_NONE;
    for (uint32_t i = 0; i < k->loops.count; i++) {
        if (!outermost(k, i) || iter_hash(k, k->loops.at[i].iter) != hash)
            continue;
        if (found != EF_NONE)
            return EF_NONE;
        found = i;
    }
    return found;
}

static void find_partners(merging *m)
{
    for (uint32_t i = 0; i < m->from[0]->loops.count; i++) {
        uint64_t hash = iter_hash(m->from[0], m->from[0]->loops.at[i].iter);
        uint32_t other = only_loop(m->from[1], hash);
        if (only_loop(m->from[0], hash) != i || other == EF_NONE ||
            m->from[0]->loops.at[i].leaves + m->from[1]->loops.at[other].leaves > EF_MAX_LEAVES)
            continue;
        m->partner[0][i] = other;
        m->partner[1][other] = i;
    }
}

static void copy_stores(merging *m, unsigned side)
{
    for (uint32_t i = 0; i < m->from[side]->stores.count && !m->failed; i++) {
        ef_kstore store = m->from[side]->stores.at[i];
        store.value = copy_node(m, side, store.value);
        ef_vec_push(&m->to->stores, store); /* the grids have the same numbers */
    }
}

/* What the first kernel of a chain stores, by the blocks of the second: of those that have the same tile the first. */
static void store_chained(merging *m)
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

/* Kernels a and b as one; or b alone, with what it reads of a computed in it. */
static ef_kernel *merge(ef_kgraph *g, uint32_t a, uint32_t b, merge_kind kind)
{
    merging m = {.g = g, .at = {a, b}, .into = kind != MERGE_BESIDE, .kind = kind};
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
    if (kind == MERGE_BESIDE) {
        find_partners(&m);
        copy_stores(&m, 0);
    }
    copy_stores(&m, 1);
    if (kind == MERGE_CHAINS && !m.failed)
        store_chained(&m);
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

/* Puts the merged kernel into the place of the first, and what waits for it behind it. */
static void replace(ef_kgraph *g, uint32_t a, uint32_t b, ef_kernel *merged, const uint64_t *after, uint32_t words)
{
    uint32_t count = g->kernels.count, kept = 0, *place = ef_xcalloc(count + 1, sizeof *place);
    ef_kernel **list = ef_xcalloc(count + 1, sizeof(ef_kernel *));
    /* what the second waits for comes first, what waits for the first comes last, each in its order */
    for (unsigned turn = 0; turn < 2; turn++) {
        for (uint32_t i = 0; i < count; i++) {
            bool late = i > a && i != b && (waits(after, words, i, a) || waits(after, words, i, b));
            if (i == a || i == b || late != (turn == 1))
                continue;
            place[i] = kept;
            list[kept++] = g->kernels.at[i];
        }
        if (turn == 0) {
            place[a] = place[b] = kept;
            list[kept++] = merged;
        }
    }
    for (uint32_t i = 0; i < g->params.count; i++)
        if (g->params.at[i].kernel != EF_NONE)
            g->params.at[i].kernel = place[g->params.at[i].kernel];
    ef_kernel_free(g->kernels.at[a]);
    ef_kernel_free(g->kernels.at[b]);
    memcpy(g->kernels.at, list, kept * sizeof(ef_kernel *));
    g->kernels.count = kept;
    free(list);
    free(place);
}

/* Whether one kernel may have the loops of both. */
static bool few_loops(const ef_kgraph *g, uint32_t a, uint32_t b)
{
    return g->kernels.at[a]->loops.count + g->kernels.at[b]->loops.count <= EF_K_MAX_LOOPS;
}

/* Whether two kernels can be one, and that is worth it. */
static bool suit(const ef_kgraph *g, uint32_t a, uint32_t b)
{
    const ef_kernel *x = g->kernels.at[a], *y = g->kernels.at[b];
    return same_grid(x, y) && few_loops(g, a, b) && ((!has_product(x) && !has_product(y)) || share_tiles(g, x, y));
}

static bool merge_some(ef_kgraph *g)
{
    uint32_t words = (g->kernels.count + 63) / 64;
    uint64_t *after = find_dependencies(g, words);
    bool merged = false;
    for (uint32_t b = 1; b < g->kernels.count && !merged; b++)
        for (uint32_t a = 0; a < b && !merged; a++) {
            ef_kernel *k = waits(after, words, b, a) || !suit(g, a, b) ? NULL : merge(g, a, b, MERGE_BESIDE);
            merged = k != NULL;
            if (merged)
                replace(g, a, b, k, after, words);
        }
    free(after);
    return merged;
}

/* ---- small kernels ---- */

/* What a kernel reads, each tensor once; infinite where that depends on a schedule. */
static double elements_read(const ef_kgraph *g, const ef_kernel *k)
{
    bool *needed = needed_nodes(k);
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
    bool small = k->grid == 0 && !has_product(k) && elements_read(g, k) <= FEW_ELEMENTS;
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
    bool *needed = needed_nodes(k), any = false;
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
            if (count == FEW_READERS || !few_loops(g, at, i))
                return false;
            reader[count++] = i;
        }
    for (bool fine = true; fine && done < count; done += fine) {
        with[done] = merge(g, at, reader[done], MERGE_ABSORBS);
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

/* ---- chains ---- */

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
static bool suit_as_chain(const ef_kgraph *g, const ef_kernel *x, const ef_kernel *y)
{
    double again = 1;
    for (uint32_t i = 0; i < y->grid; i++) {
        ef_var var = ef_axis_var(y->iters.at[i].axis);
        again *= cuts_along(x, var) ? 1 : (double)ef_var_at(g->ctx, var)->extent;
    }
    return again <= FEW_SUMMED && plain_grid(g, y) && reads(y, x);
}

static bool chain_some(ef_kgraph *g)
{
    uint32_t words = (g->kernels.count + 63) / 64, count = g->kernels.count;
    uint64_t *after = find_dependencies(g, words);
    bool merged = false;
    for (uint32_t a = 0; a < count && !merged; a++) {
        bool simple = is_elementwise(g, g->kernels.at[a]) && plain_grid(g, g->kernels.at[a]);
        for (uint32_t b = a + 1; simple && b < count && !merged; b++) {
            bool between = !suit_as_chain(g, g->kernels.at[a], g->kernels.at[b]);
            for (uint32_t c = a + 1; c < b && !between; c++)
                between = waits(after, words, b, c) && waits(after, words, c, a);
            ef_kernel *k = between ? NULL : merge(g, a, b, MERGE_CHAINS);
            merged = k != NULL;
            if (merged)
                replace(g, a, b, k, after, words);
        }
    }
    free(after);
    return merged;
}

void ef_merge_kernels(ef_kgraph *g)
{
    for (uint32_t i = 0; i < g->kernels.count;)
        i += !(is_small(g, g->kernels.at[i]) && absorb(g, i));
    while (chain_some(g)) {
    }
    while (merge_some(g)) {
    }
}
