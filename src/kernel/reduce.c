/* Reductions as loops (paper, sections 4.2 and 6.1; design, section 4).
 *
 * A reducer's update is written out as nodes over the state at the beginning of an iteration and the iteration's
 * operand. For a repaired reducer, whose operand is (g, y) with y = f(x, g),
 *
 *     s' = r1(s, g);   c' = r2(h(c, s, s'), h(y, g, s')),
 *
 * and h(y, g, s') = f(x, s'): where the graph of y reaches g, y is made again with g replaced by s', which saves
 * rescaling the tile. Where it does not (y was stored), h is applied. Where a producer is still its identity, nothing
 * has been seen, and what goes with it is the consumer's identity (reducer.h); otherwise -inf - -inf would come out. */
#include "kernel/lower.h"

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
} substitution;

typedef struct {
    ef_lowering *l;
    const substitution *s;
    EF_VEC(ef_kid) made; /* by node: the node that stands for it, EF_NONE when not known yet */
    bool blocked;        /* a loop inside reads what is replaced */
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
    if (node.op == EF_K_LOOP && loop_reads(r, (uint32_t)node.attr))
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

/* Whether some leaf is its reducer's identity: nothing was seen there. */
static ef_kid nothing_seen(ef_lowering *l, const ef_reducer *base, const ef_kid *x, unsigned count)
{
    ef_kid any = EF_NONE;
    for (unsigned i = 0; i < count; i++) {
        ef_kid operand[] = {x[i], ef_lower_const(l, ef_reducer_identity(base[i]))};
        ef_kid one = ef_lower_pointwise(l, EF_EQ, 0, EF_BOOL, operand, 2);
        any = i == 0 ? one : ef_lower_pointwise(l, EF_OR, 0, EF_BOOL, (ef_kid[]){any, one}, 2);
    }
    return any;
}

static ef_kid choose(ef_lowering *l, ef_kid condition, double value, ef_kid otherwise)
{
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

/* `condition` ? 0 : x, for a sum. Rows of a product or a sum are 0 when the rows of its operand are: there the choice
 * costs little, and equal choices for several consumers meet in one tile. */
static ef_kid choose_zero(ef_lowering *l, ef_kid condition, ef_kid x)
{
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

static void update(ef_lowering *l, ef_reducer reducer, const ef_kid *state, const ef_kid *in, ef_kid *next);

/* The consumer's operands as seen under the producer's new state. */
static void repair_operands(ef_lowering *l, const ef_reducer_info *info, const ef_reducer *base, const ef_kid *in,
                            const ef_kid *next, ef_kid *y)
{
    unsigned n = ef_reducer_at(l->ctx, info->left)->leaves;
    ef_kid nothing = nothing_seen(l, base, in, n);
    substitution s = {0};
    for (unsigned i = 0; i < n; i++) {
        s.from[s.count] = in[i];
        s.to[s.count++] = next[i];
        const ef_knode *node = ef_kernel_node(l->kernel, in[i]);
        if (node->op == EF_SELECT && ef_kernel_node(l->kernel, node->child[1])->op == EF_CONST) {
            s.from[s.count] = node->child[2]; /* the operand before an outer reducer's choice, which y may read */
            s.to[s.count++] = next[i];
        }
    }
    for (unsigned i = 0; i < info->terms; i++) {
        ef_kid made = substitute(l, in[n + i], &s);
        if (made == in[n + i])
            y[i] = choose(l, nothing, ef_reducer_identity(base[n + i]), repair_term(l, info->h[i], made, in, next));
        else if (base[n + i] == EF_RED_SUM)
            y[i] = choose_zero(l, nothing, made);
        else
            y[i] = choose(l, nothing, ef_reducer_identity(base[n + i]), made);
    }
}

static void update_repaired(ef_lowering *l, ef_reducer reducer, const ef_kid *state, const ef_kid *in, ef_kid *next)
{
    const ef_reducer_info info = *ef_reducer_at(l->ctx, reducer);
    ef_reducer base[EF_MAX_LEAVES] = {0};
    ef_kid c[EF_MAX_LEAVES] = {0}, y[EF_MAX_LEAVES] = {0};
    unsigned n = ef_reducer_at(l->ctx, info.left)->leaves;
    ef_reducer_leaves(l->ctx, reducer, base);
    update(l, info.left, state, in, next);
    ef_kid nothing = nothing_seen(l, base, state, n);
    for (unsigned i = 0; i < info.terms; i++)
        c[i] =
            choose(l, nothing, ef_reducer_identity(base[n + i]), repair_term(l, info.h[i], state[n + i], state, next));
    repair_operands(l, &info, base, in, next, y);
    update(l, info.right, c, y, next + n);
}

static void update(ef_lowering *l, ef_reducer reducer, const ef_kid *state, const ef_kid *in, ef_kid *next)
{
    const ef_reducer_info *info = ef_reducer_at(l->ctx, reducer);
    if (info->leaves == 1) {
        next[0] = base_update(l, (ef_reducer)info->kind, state[0], in[0]);
    } else if (info->kind == EF_RED_REPAIRED) {
        update_repaired(l, reducer, state, in, next);
    } else {
        ef_reducer left = info->left, right = info->right;
        unsigned n = ef_reducer_at(l->ctx, left)->leaves;
        update(l, left, state, in, next);
        update(l, right, state + n, in + n, next + n);
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
    update(l, reducer, state, in, next);
    ef_loop_find_masks(l, loop, reducer, in);
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
    for (unsigned i = 0; i < leaves; i++)
        result[i] = like(l, state[i], EF_K_RESULT, (uint64_t)loop << 8 | i, at->node);
    return true;
}
