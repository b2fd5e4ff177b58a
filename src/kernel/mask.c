/* Masked reductions (design, section 7): iterations that a mask empties are not visited.
 *
 * A reduction's operand may be its reducer's identity wherever a condition fails: select(c, x, -inf) under a maximum,
 * select(c, x, 0) under a sum, a sum of x and such a mask under a maximum. An iteration in which the conditions of all
 * operands hold nowhere leaves the state as it is. For a repaired reducer the producer's operand decides, if it is
 * known what the consumer is where the producer sees nothing (nothing.c): then what goes with it is the identity as
 * well, and h(c, s, s) = c. Code generators decide whether a condition can hold somewhere in a tile from the tile's
 * range of positions. When in doubt, nothing is skipped: a condition found here is sufficient, not necessary. */
#include <math.h>
#include <string.h>

#include "kernel/lower.h"

static bool is_literal(const ef_lowering *l, ef_kid id, double value)
{
    const ef_knode *node = ef_kernel_node(l->kernel, id);
    return node->op == EF_CONST && ef_attr_to_number(node->attr) == value;
}

static bool is_positive(const ef_lowering *l, ef_kid id)
{
    const ef_knode *node = ef_kernel_node(l->kernel, id);
    return node->op == EF_CONST && ef_attr_to_number(node->attr) > 0 && isfinite(ef_attr_to_number(node->attr));
}

static ef_kid logic(ef_lowering *l, ef_op op, ef_kid a, ef_kid b)
{
    return ef_lower_pointwise(l, op, 0, EF_BOOL, (ef_kid[]){a, b}, op == EF_NOT ? 1 : 2);
}

/* Values that are shared may be reached along very many paths: a search that takes too long has found nothing. */
#define MAX_VISITS 1000u

typedef struct {
    ef_lowering *l;
    unsigned visits;
    const ef_loop_repair *repair;
    unsigned repairs;
} search;

static ef_kid find(search *s, ef_kid id, double value);

static ef_kid find_either(search *s, const ef_knode *node, double value)
{
    ef_kid a = find(s, node->child[0], value);
    return a != EF_NONE ? a : find(s, node->child[1], value);
}

/* A condition such that the node is `value` wherever it does not hold; EF_NONE when none is known. */
static ef_kid find(search *s, ef_kid id, double value)
{
    const ef_knode *node = ef_kernel_node(s->l->kernel, id);
    ef_kid a, b;
    if (s->visits++ >= MAX_VISITS)
        return EF_NONE;
    switch (node->op) {
    case EF_SELECT:
        if (is_literal(s->l, node->child[2], value))
            return node->child[0];
        return is_literal(s->l, node->child[1], value) ? logic(s->l, EF_NOT, node->child[0], EF_NONE) : EF_NONE;
    case EF_ADD: return value == -INFINITY ? find_either(s, node, value) : EF_NONE;
    case EF_MUL:
        if (value != -INFINITY || !(is_positive(s->l, node->child[0]) || is_positive(s->l, node->child[1])))
            return EF_NONE;
        return find_either(s, node, value);
    case EF_MAX:
        a = value == -INFINITY ? find(s, node->child[0], value) : EF_NONE;
        b = a == EF_NONE ? EF_NONE : find(s, node->child[1], value);
        return b == EF_NONE ? EF_NONE : logic(s->l, EF_OR, a, b);
    case EF_REDUCE:
        return ef_reducer_identity(ef_attr_reducer(node->attr)) == value ? find(s, node->child[0], value) : EF_NONE;
    case EF_CAST:
    case EF_VIEW:
    case EF_TRANSPOSE:
    case EF_RESHAPE:
    case EF_BROADCAST: return find(s, node->child[0], value);
    default: return EF_NONE;
    }
}

/* Whether leaves that see nothing (a bit mask) decide for a repaired reducer, which begins at a leaf of the loop's. */
static bool decides(const search *s, ef_reducer reducer, unsigned first, uint32_t leaves)
{
    for (unsigned i = 0; i < s->repairs; i++) {
        const ef_loop_repair *r = &s->repair[i];
        bool all = r->first == first && r->reducer == reducer;
        for (unsigned k = 0; all && k < ef_reducer_at(s->l->ctx, reducer)->terms; k++)
            all = (r->settled[k] & leaves) != 0;
        if (all)
            return true;
    }
    return false;
}

/* The conditions of the leaves that decide, from the loop's leaf `first`, and which these are; 0 when one is not known.
 */
static uint32_t find_leaves(search *s, ef_reducer reducer, unsigned first, const ef_kid *in, ef_kid *keep,
                            unsigned *keeps)
{
    const ef_reducer_info info = *ef_reducer_at(s->l->ctx, reducer);
    if (info.leaves == 1)
        return (keep[(*keeps)++] = find(s, in[first], ef_reducer_identity(reducer))) != EF_NONE ? 1u << first : 0;
    uint32_t left = find_leaves(s, info.left, first, in, keep, keeps);
    if (!left)
        return 0;
    if (info.kind == EF_RED_REPAIRED)
        return decides(s, reducer, first, left) ? left : 0;
    uint32_t right = find_leaves(s, info.right, first + ef_reducer_at(s->l->ctx, info.left)->leaves, in, keep, keeps);
    return right ? left | right : 0;
}

void ef_loop_find_masks(ef_lowering *l, uint32_t loop, ef_reducer reducer, const ef_kid *in,
                        const ef_loop_repair *repair, unsigned repairs)
{
    ef_kid keep[EF_MAX_LEAVES];
    unsigned keeps = 0;
    search s = {.l = l, .repair = repair, .repairs = repairs};
    if (!find_leaves(&s, reducer, 0, in, keep, &keeps))
        return;
    ef_kloop *at = &l->kernel->loops.at[loop];
    at->keeps = keeps;
    memcpy(at->keep, keep, keeps * sizeof *keep);
}
