/* Reductions as loops (paper, sections 4.2 and 6.1; design, section 4).
 *
 * A reducer's update is written out as nodes over the state at the beginning of an iteration and the iteration's
 * operand. For a repaired reducer, whose operand is (g, y) with y = f(x, g),
 *
 *     s' = r1(s, g);   c' = r2(h(c, s, s'), h(y, g, s')),
 *
 * and h(y, g, s') = f(x, s'): where the graph of y reaches g, y is made again with g replaced by s', which saves
 * rescaling the tile. Where it does not (y was stored), h is applied.
 *
 * Where a leaf of the producer is still its identity, nothing has been seen (reducer.h). What goes with that is dropped
 * when something is seen. Until then it may be NaN, of which the state had better be free: products with 0 are cheaper
 * than choices. So where it is known what stands in rows that see nothing (nothing.c), the state is the identity in the
 * loop, and the NaN is chosen after it. Where that is not known, the state itself carries it. */
#include "kernel/lower.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

uint32_t ef_loop_open(ef_lowering *l, ef_iter iter)
{
    ef_kernel *k = l->kernel;
    if (k->loops.count == EF_K_MAX_LOOPS || l->bounds + 1 >= sizeof l->bound / sizeof *l->bound) {
        ef_fail(l->former->diag, "cannot make kernels: one of them has more than %u loops", EF_K_MAX_LOOPS);
        return EF_NONE;
    }
    iter.loop = k->loops.count;
    ef_kloop loop = {.iter = ef_lower_iterator(l, iter)};
    ef_vec_push(&k->loops, loop);
    return iter.loop;
}

/* ---- substitution ---- */

typedef struct {
    unsigned count;
    ef_kid from[2 * EF_MAX_LEAVES], to[2 * EF_MAX_LEAVES];
    uint64_t finished; /* loops whose results the replaced values are made of: their other results go with these */
} substitution;

typedef struct {
    ef_lowering *l;
    const substitution *s;
    EF_VEC(ef_kid) made; /* by node: the node that stands for it, EF_NONE when not known yet */
    bool blocked;        /* a loop inside reads what is replaced, or went into it */
} rebuilding;

static ef_kid rebuild(rebuilding *r, ef_kid id);

/* The loop would have to be made again; its body says whether it is concerned. */
static bool loop_reads(rebuilding *r, uint32_t loop)
{
    const ef_kloop *body = &r->l->kernel->loops.at[loop];
    for (unsigned i = 0; i < body->leaves; i++)
        if (rebuild(r, body->next[i]) != body->next[i])
            return true;
    return false;
}

static ef_kid rebuild_operands(rebuilding *r, ef_kid id)
{
    ef_knode node = *ef_kernel_node(r->l->kernel, id);
    bool changed = false;
    if (node.op == EF_K_LOOP && (r->s->finished >> node.attr & 1 || loop_reads(r, (uint32_t)node.attr)))
        r->blocked = true;
    for (unsigned i = 0; i < node.count; i++) {
        ef_kid child = rebuild(r, node.child[i]);
        changed = changed || child != node.child[i];
        node.child[i] = child;
    }
    return changed ? ef_lower_node(r->l, node) : id;
}

static ef_kid rebuild(rebuilding *r, ef_kid id)
{
    for (unsigned i = 0; i < r->s->count; i++)
        if (r->s->from[i] == id)
            return r->s->to[i];
    for (ef_kid nothing = EF_NONE; r->made.count <= id;)
        ef_vec_push(&r->made, nothing);
    if (r->made.at[id] == EF_NONE) {
        r->made.at[id] = id; /* states are read by their own loop's body: no way round */
        ef_kid made = rebuild_operands(r, id);
        r->made.at[id] = made;
    }
    return r->made.at[id];
}

/* The loops whose results a value is, or is made of element by element: their other results may be relative to it. What
 * is reduced to the value was there before it. */
static uint64_t finished_loops(const ef_kernel *k, ef_kid id, bool *seen)
{
    const ef_knode *node = ef_kernel_node(k, id);
    uint64_t loops = node->op == EF_K_LOOP ? UINT64_C(1) << node->attr : 0;
    if (seen[id] || node->op == EF_REDUCE || node->op == EF_TILE_MATMUL)
        return 0;
    seen[id] = true;
    for (unsigned i = 0; i < node->count; i++)
        loops |= finished_loops(k, node->child[i], seen);
    return loops;
}

/* x with the replacements made; x itself when there is nothing to replace or a loop stands in between. */
static ef_kid substitute(ef_lowering *l, ef_kid x, const substitution *s)
{
    rebuilding r = {.l = l, .s = s};
    ef_kid made = rebuild(&r, x);
    ef_vec_free(&r.made);
    return r.blocked ? x : made;
}

/* ---- reducers as nodes ---- */

static ef_kid base_update(ef_lowering *l, ef_reducer base, ef_kid state, ef_kid in)
{
    static const ef_op op[] = {EF_ADD, EF_MAX, EF_MIN, EF_MUL};
    ef_dtype dtype = (ef_dtype)ef_kernel_node(l->kernel, state)->dtype;
    return ef_lower_pointwise(l, op[base], 0, dtype, (ef_kid[]){state, in}, 2);
}

/* A condition or none (EF_NONE) or the other. */
static ef_kid either(ef_lowering *l, ef_kid a, ef_kid b)
{
    if (a == EF_NONE || b == EF_NONE || a == b)
        return a == EF_NONE ? b : a;
    return ef_lower_pointwise(l, EF_OR, 0, EF_BOOL, (ef_kid[]){a, b}, 2);
}

static ef_kid compared(ef_lowering *l, ef_op op, ef_kid x, double value)
{
    return ef_lower_pointwise(l, op, 0, EF_BOOL, (ef_kid[]){x, ef_lower_const(l, value)}, 2);
}

/* Whether one of some leaves (a bit mask) is its reducer's identity: nothing was seen there. EF_NONE for no leaves. */
static ef_kid nothing_seen(ef_lowering *l, const ef_reducer *base, const ef_kid *x, uint32_t leaves)
{
    ef_kid any = EF_NONE;
    for (unsigned i = 0; i < EF_MAX_LEAVES; i++)
        if (leaves >> i & 1)
            any = either(l, any, compared(l, EF_EQ, x[i], ef_reducer_identity(base[i])));
    return any;
}

/* Whether one of them had seen nothing before and has now. */
static ef_kid first_seen(ef_lowering *l, const ef_reducer *base, const ef_kid *x, const ef_kid *next, uint32_t leaves)
{
    ef_kid any = EF_NONE;
    for (unsigned i = 0; i < EF_MAX_LEAVES; i++) {
        double identity = ef_reducer_identity(base[i]);
        if (!(leaves >> i & 1))
            continue;
        ef_kid both[] = {compared(l, EF_EQ, x[i], identity), compared(l, EF_NE, next[i], identity)};
        any = either(l, any, ef_lower_pointwise(l, EF_AND, 0, EF_BOOL, both, 2));
    }
    return any;
}

/* `condition` ? value : otherwise; no condition (EF_NONE) never holds. */
static ef_kid choose(ef_lowering *l, ef_kid condition, double value, ef_kid otherwise)
{
    if (condition == EF_NONE)
        return otherwise;
    ef_dtype dtype = (ef_dtype)ef_kernel_node(l->kernel, otherwise)->dtype;
    return ef_lower_pointwise(l, EF_SELECT, 0, dtype, (ef_kid[]){condition, ef_lower_const(l, value), otherwise}, 3);
}

/* h with its parameters. Its values have the type of c. */
static ef_kid repair_term(ef_lowering *l, ef_scalar h, ef_kid c, const ef_kid *s, const ef_kid *t)
{
    const ef_scalar_info *info = ef_scalar_at(l->ctx, h);
    ef_kid x[3] = {0};
    switch (info->kind) {
    case EF_SCALAR_CONST: return ef_lower_const(l, info->value);
    case EF_SCALAR_PARAM:
        return info->param == EF_PARAM_C ? c : info->param == EF_PARAM_S ? s[info->index] : t[info->index];
    case EF_SCALAR_APPLY: break;
    }
    for (unsigned i = 0; i < info->operands; i++)
        x[i] = repair_term(l, info->operand[i], c, s, t);
    ef_dtype dtype = (ef_dtype)ef_kernel_node(l->kernel, c)->dtype;
    bool logic = info->op >= EF_LT && info->op <= EF_OR;
    return ef_lower_pointwise(l, info->op, 0, logic ? EF_BOOL : dtype, x, info->operands);
}

/* h of c, and c itself where `keep` holds: a factor becomes 1 there, a summand 0. */
static ef_kid repair_unless(ef_lowering *l, ef_kid keep, ef_scalar h, ef_kid c, const ef_kid *s, const ef_kid *t)
{
    const ef_scalar_info info = *ef_scalar_at(l->ctx, h);
    ef_dtype dtype = (ef_dtype)ef_kernel_node(l->kernel, c)->dtype;
    for (unsigned i = 0; i < 2 && info.kind == EF_SCALAR_APPLY && (info.op == EF_MUL || info.op == EF_ADD); i++) {
        const ef_scalar_info *other = ef_scalar_at(l->ctx, info.operand[i]);
        if (other->kind != EF_SCALAR_PARAM || other->param != EF_PARAM_C)
            continue;
        ef_kid x[2] = {c, c};
        x[1 - i] = choose(l, keep, info.op == EF_MUL, repair_term(l, info.operand[1 - i], c, s, t));
        return ef_lower_pointwise(l, info.op, 0, dtype, x, 2);
    }
    ef_kid repaired = repair_term(l, h, c, s, t);
    if (keep == EF_NONE || repaired == c)
        return repaired;
    return ef_lower_pointwise(l, EF_SELECT, 0, dtype, (ef_kid[]){keep, c, repaired}, 3);
}

/* `condition` ? 0 : x, for a sum. Rows of a product or a sum are 0 when the rows of its operand are: there the choice
 * costs little, and equal choices for several consumers meet in one tile. */
static ef_kid choose_zero(ef_lowering *l, ef_kid condition, ef_kid x)
{
    if (condition == EF_NONE)
        return x;
    ef_knode node = *ef_kernel_node(l->kernel, x);
    const ef_knode *c = ef_kernel_node(l->kernel, condition);
    if (node.op == EF_TILE_MATMUL && (c->rank == 0 || c->dim[0].dim == EF_UNIT))
        return ef_lower_matmul(l, (ef_dtype)node.dtype, choose_zero(l, condition, node.child[0]), node.child[1]);
    if (node.op == EF_REDUCE && ef_attr_reducer(node.attr) == EF_RED_SUM) {
        unsigned index = ef_attr_reduce_at(node.attr);
        if (index >= c->rank || c->dim[index].dim == EF_UNIT)
            return ef_lower_reduce(l, choose_zero(l, condition, node.child[0]), EF_RED_SUM, index);
    }
    return choose(l, condition, 0, x);
}

/* A loop's new state under way. */
typedef struct {
    ef_lowering *l;
    ef_kid *next; /* by leaf of the loop */
    ef_loop_repair repair[EF_MAX_LEAVES];
    unsigned repairs;
    uint32_t nan[EF_MAX_LEAVES]; /* by leaf: it is NaN where one of these leaves (a bit mask) has seen nothing */
} updating;

static void update(updating *u, ef_reducer reducer, const ef_kid *state, const ef_kid *in, ef_kid *next);

/* How the consumer's operands are made again under the producer's new state. */
static substitution producer_replaced(const updating *u, unsigned producers, const ef_kid *in, const ef_kid *next)
{
    substitution s = {0};
    bool *seen = ef_xcalloc(ef_kernel_nodes(u->l->kernel), 1);
    for (unsigned i = 0; i < producers; i++) {
        s.finished |= finished_loops(u->l->kernel, in[i], seen);
        s.from[s.count] = in[i];
        s.to[s.count++] = next[i];
        const ef_knode *node = ef_kernel_node(u->l->kernel, in[i]);
        if (node->op == EF_SELECT && ef_kernel_node(u->l->kernel, node->child[1])->op == EF_CONST) {
            s.from[s.count] = node->child[2]; /* the operand before an outer reducer's choice, which y may read */
            s.to[s.count++] = next[i];
        }
    }
    free(seen);
    return s;
}

/* The producer's leaves for which it is known what y is in rows in which they see nothing, NaN for some. */
static uint32_t settled_leaves(const updating *u, const ef_reducer *base, unsigned producers, const ef_kid *in,
                               const ef_kid *next, ef_kid y, ef_reducer consumer, uint32_t *nan)
{
    uint32_t settled = 0;
    for (unsigned i = 0; i < producers; i++) {
        ef_nothing is = ef_lower_nothing(u->l, base[i], in[i], next[i], y, consumer);
        settled |= (uint32_t)(is != EF_NOTHING_UNKNOWN) << i;
        *nan |= (uint32_t)(is == EF_NOTHING_NAN) << i;
    }
    return settled;
}

/* A leaf of the consumer: the old state and the operand, both as under the producer's new state. Returns the settled
 * leaves of the producer. */
static uint32_t repair_leaf(updating *u, ef_reducer reducer, unsigned term, const ef_reducer *base, const ef_kid *state,
                            const ef_kid *in, const ef_kid *next, ef_kid *c, ef_kid *y)
{
    ef_lowering *l = u->l;
    const ef_reducer_info info = *ef_reducer_at(l->ctx, reducer);
    unsigned n = ef_reducer_at(l->ctx, info.left)->leaves, first = (unsigned)(next - u->next);
    uint32_t all = (1u << n) - 1, settled = 0, nan = 0;
    double identity = ef_reducer_identity(base[n + term]);
    *c = state[n + term];
    *y = in[n + term];
    substitution s = producer_replaced(u, n, in, next);
    ef_kid made = substitute(l, *y, &s);
    settled = settled_leaves(u, base, n, in, next, made, base[n + term], &nan);
    ef_kid nothing = nothing_seen(l, base, in, settled);
    if (made == *y) {
        ef_kid dropped = either(l, nothing, first_seen(l, base, in, next, all & ~settled));
        *y = repair_unless(l, nothing_seen(l, base, in, all), info.h[term], choose(l, dropped, identity, *y), in, next);
    } else {
        *y = base[n + term] == EF_RED_SUM ? choose_zero(l, nothing, made) : choose(l, nothing, identity, made);
    }
    if (settled == all) { /* the state is never NaN: the choice may come after h */
        *c = choose(l, nothing_seen(l, base, state, all), identity, repair_term(l, info.h[term], *c, state, next));
    } else {
        ef_kid dropped =
            either(l, nothing_seen(l, base, state, settled), first_seen(l, base, state, next, all & ~settled));
        *c = repair_unless(l, nothing_seen(l, base, state, all), info.h[term], choose(l, dropped, identity, *c), state,
                           next);
    }
    u->nan[first + n + term] |= nan << first;
    return settled;
}

static void update_repaired(updating *u, ef_reducer reducer, const ef_kid *state, const ef_kid *in, ef_kid *next)
{
    const ef_reducer_info info = *ef_reducer_at(u->l->ctx, reducer);
    ef_reducer base[EF_MAX_LEAVES] = {0};
    ef_kid c[EF_MAX_LEAVES] = {0}, y[EF_MAX_LEAVES] = {0};
    unsigned n = ef_reducer_at(u->l->ctx, info.left)->leaves, first = (unsigned)(next - u->next);
    ef_loop_repair repair = {.first = first, .reducer = reducer};
    ef_reducer_leaves(u->l->ctx, reducer, base);
    update(u, info.left, state, in, next);
    for (unsigned i = 0; i < info.terms; i++)
        repair.settled[i] = repair_leaf(u, reducer, i, base, state, in, next, &c[i], &y[i]) << first;
    u->repair[u->repairs++] = repair;
    update(u, info.right, c, y, next + n);
}

static void update(updating *u, ef_reducer reducer, const ef_kid *state, const ef_kid *in, ef_kid *next)
{
    const ef_reducer_info *info = ef_reducer_at(u->l->ctx, reducer);
    if (info->leaves == 1) {
        next[0] = base_update(u->l, (ef_reducer)info->kind, state[0], in[0]);
    } else if (info->kind == EF_RED_REPAIRED) {
        update_repaired(u, reducer, state, in, next);
    } else {
        ef_reducer left = info->left, right = info->right;
        unsigned n = ef_reducer_at(u->l->ctx, left)->leaves;
        update(u, left, state, in, next);
        update(u, right, state + n, in + n, next + n);
    }
}

/* ---- loops ---- */

/* A node that only has the type of another one. */
static ef_kid like(ef_lowering *l, ef_kid x, uint32_t op, uint64_t attr, ef_kid child)
{
    ef_knode node = *ef_kernel_node(l->kernel, x);
    memset(node.child, 0, sizeof node.child);
    node.op = op;
    node.attr = attr;
    node.count = child != EF_NONE;
    if (child != EF_NONE)
        node.child[0] = child;
    return ef_lower_node(l, node);
}

bool ef_loop_close(ef_lowering *l, uint32_t loop, ef_reducer reducer, const ef_kid *operand, unsigned leaves,
                   ef_kid *result)
{
    ef_kloop *at = &l->kernel->loops.at[loop];
    ef_kid in[EF_MAX_LEAVES] = {0}, state[EF_MAX_LEAVES] = {0}, next[EF_MAX_LEAVES] = {0};
    at->reducer = reducer;
    at->leaves = ef_reducer_leaves(l->ctx, reducer, at->base);
    if (at->leaves != leaves)
        return ef_fail(l->former->diag, "cannot make kernels: a reduction's operand does not fit its reducer");
    for (unsigned i = 0; i < leaves; i++) {
        in[i] = operand[i];
        state[i] = like(l, in[i], EF_K_STATE, (uint64_t)loop << 8 | i, EF_NONE);
    }
    updating u = {.l = l, .next = next};
    update(&u, reducer, state, in, next);
    ef_loop_find_masks(l, loop, reducer, in, u.repair, u.repairs);
    at = &l->kernel->loops.at[loop];
    ef_knode node;
    memset(&node, 0, sizeof node);
    node.op = EF_K_LOOP;
    node.attr = loop;
    for (unsigned i = 0; i < leaves; i++) {
        at->in[i] = in[i];
        at->state[i] = state[i];
        at->next[i] = next[i];
        node.loops |= ef_kernel_node(l->kernel, next[i])->loops;
    }
    for (unsigned i = 0; i < EF_MAX_RANK; i++)
        node.dim[i].cut = EF_NONE;
    node.loops &= ~(UINT64_C(1) << loop);
    at->node = ef_lower_node(l, node);
    ef_kid plain[EF_MAX_LEAVES] = {0};
    for (unsigned i = 0; i < leaves; i++)
        plain[i] = like(l, state[i], EF_K_RESULT, (uint64_t)loop << 8 | i, at->node);
    for (unsigned i = 0; i < leaves; i++)
        result[i] = at->result[i] = choose(l, nothing_seen(l, at->base, plain, u.nan[i]), NAN, plain[i]);
    return true;
}
