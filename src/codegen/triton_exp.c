/* Exponentials, the costly part of attention after its products.
 *
 * The hardware's exponential has base 2: exp(x) = exp2(x log2(e)). The factor goes inwards through sums, literal
 * factors and choices, so that exp(c x - m) is exp2 of one fused multiplication and addition, and the factor of m is
 * applied to a whole row once.
 *
 * Guards of running states stand where they cost least (kernel/reduce.c: where a producer is still its identity, the
 * state is 0). Where g = max(a) is -inf, so is all of a; then exp(a - b) with b >= g is 0 when b is replaced by
 * anything finite, and no element needs a choice. And a sum that has seen nothing is 0 whatever finite factor it gets,
 * so the choice is made on the factor. */
#include <math.h>

#include "codegen/triton_print.h"

#define LOG2_E 1.4426950408889634

static bool is_number(const ef_t *t, ef_kid id, double value)
{
    const ef_knode *node = ef_kernel_node(t->kernel, id);
    return node->op == EF_CONST && ef_attr_to_number(node->attr) == value;
}

static t_value operand(ef_t *t, const t_frame *frame, const ef_knode *node, unsigned i, const ef_index *index,
                       ef_index *inner)
{
    ef_map_spread(&t->maps, node, ef_kernel_node(t->kernel, node->child[i]), index, inner);
    return ef_t_element(t, frame, node->child[i], inner, false);
}

/* An operator on values that no node stands for. */
static t_value apply(ef_t *t, ef_op op, t_value a, t_value b)
{
    ef_knode node = {.op = op, .dtype = EF_F32, .count = 2};
    t_value x[] = {a, b};
    return ef_t_pointwise(t, &node, ef_ops[op].name, x);
}

static t_value choice(ef_t *t, t_value condition, t_value a, t_value b)
{
    ef_knode node = {.op = EF_SELECT, .dtype = EF_F32, .count = 3};
    t_value x[] = {condition, a, b};
    return ef_t_pointwise(t, &node, "guarded", x);
}

static bool is_scale_free(const ef_t *t, ef_kid id)
{
    return is_number(t, id, 0) || is_number(t, id, INFINITY) || is_number(t, id, -INFINITY);
}

/* The factor of a product with a positive literal, and the other operand; 0 when it is none. */
static double literal_factor(const ef_t *t, const ef_knode *node, unsigned *other)
{
    for (unsigned i = 0; i < 2 && node->op == EF_MUL; i++) {
        const ef_knode *c = ef_kernel_node(t->kernel, node->child[i]);
        *other = 1 - i;
        if (c->op == EF_CONST && ef_attr_to_number(c->attr) > 0 && isfinite(ef_attr_to_number(c->attr)))
            return ef_attr_to_number(c->attr);
    }
    return 0;
}

t_value ef_t_factored(ef_t *t, const t_frame *frame, ef_kid id, const ef_index *index, double *factor)
{
    const ef_knode *node = ef_kernel_node(t->kernel, id);
    ef_index inner[EF_MAP_ENTRIES] = {0};
    ef_kid child;
    unsigned other = 0;
    *factor = 1;
    if (t->node[id].made || node->dtype == EF_F64)
        return ef_t_element(t, frame, id, index, false);
    if (ef_map_step(&t->maps, id, index, &child, inner))
        return ef_t_factored(t, frame, child, inner, factor);
    double c = literal_factor(t, node, &other);
    if (c > 0) {
        ef_map_spread(&t->maps, node, ef_kernel_node(t->kernel, node->child[other]), index, inner);
        t_value value = ef_t_factored(t, frame, node->child[other], inner, factor);
        *factor *= c;
        return value;
    }
    if (node->op == EF_SELECT && is_scale_free(t, node->child[2])) {
        t_value x[3] = {operand(t, frame, node, 0, index, inner)};
        ef_map_spread(&t->maps, node, ef_kernel_node(t->kernel, node->child[1]), index, inner);
        x[1] = ef_t_factored(t, frame, node->child[1], inner, factor);
        x[2] = ef_t_constant(ef_attr_to_number(ef_kernel_node(t->kernel, node->child[2])->attr));
        return ef_t_pointwise(t, node, "masked", x);
    }
    return ef_t_element(t, frame, id, index, false);
}

/* The node times a positive factor. */
static t_value scaled(ef_t *t, const t_frame *frame, ef_kid id, const ef_index *index, double factor)
{
    const ef_knode *node = ef_kernel_node(t->kernel, id);
    ef_index inner[EF_MAP_ENTRIES] = {0};
    double own;
    if (!t->node[id].made && node->dtype != EF_F64 && (node->op == EF_ADD || node->op == EF_SUB)) {
        t_value x[2];
        for (unsigned i = 0; i < 2; i++) {
            ef_map_spread(&t->maps, node, ef_kernel_node(t->kernel, node->child[i]), index, inner);
            x[i] = scaled(t, frame, node->child[i], inner, factor);
        }
        return ef_t_pointwise(t, node, "scaled", x);
    }
    t_value value = ef_t_factored(t, frame, id, index, &own);
    return apply(t, EF_MUL, value, ef_t_constant(own * factor));
}

static t_value power_of_two(ef_t *t, t_value x)
{
    ef_knode node = {.op = EF_EXP2, .dtype = EF_F32, .count = 1};
    return ef_t_pointwise(t, &node, "exp", &x);
}

bool ef_t_exp(ef_t *t, const t_frame *frame, const ef_knode *node, const ef_index *index, t_value *value)
{
    ef_index inner[EF_MAP_ENTRIES] = {0};
    const ef_knode *x = ef_kernel_node(t->kernel, node->child[0]);
    if (node->op != EF_EXP || node->dtype == EF_F64 || t->node[node->child[0]].made ||
        (x->op != EF_SUB && x->op != EF_ADD && x->op != EF_MUL && x->op != EF_SELECT))
        return false;
    ef_map_spread(&t->maps, node, x, index, inner);
    *value = power_of_two(t, scaled(t, frame, node->child[0], inner, LOG2_E));
    return true;
}

/* select(max(a) = -inf, 0, exp(a - max(.., max(a)))): the value that is subtracted becomes finite instead. */
static bool guarded_exp(ef_t *t, const t_frame *frame, const ef_knode *node, const ef_index *index, t_value *value)
{
    const ef_knode *test = ef_kernel_node(t->kernel, node->child[0]), *e = ef_kernel_node(t->kernel, node->child[2]);
    if (e->op != EF_EXP || e->dtype == EF_F64 || test->op != EF_EQ || !is_number(t, test->child[1], -INFINITY))
        return false;
    const ef_knode *difference = ef_kernel_node(t->kernel, e->child[0]);
    const ef_knode *largest = ef_kernel_node(t->kernel, test->child[0]);
    if (difference->op != EF_SUB || largest->op != EF_REDUCE || ef_attr_reducer(largest->attr) != EF_RED_MAX ||
        largest->child[0] != difference->child[0] || t->use[node->child[2]].users != 1)
        return false;
    const ef_knode *b = ef_kernel_node(t->kernel, difference->child[1]);
    if (b->op != EF_MAX || (b->child[0] != test->child[0] && b->child[1] != test->child[0]))
        return false;
    ef_index at_e[EF_MAP_ENTRIES] = {0}, at_d[EF_MAP_ENTRIES] = {0}, inner[EF_MAP_ENTRIES] = {0};
    ef_map_spread(&t->maps, node, e, index, at_e);
    ef_map_spread(&t->maps, e, difference, at_e, at_d);
    t_value subtracted = operand(t, frame, difference, 1, at_d, inner);
    t_value finite = choice(t, apply(t, EF_EQ, subtracted, ef_t_constant(-INFINITY)), ef_t_constant(0), subtracted);
    ef_map_spread(&t->maps, difference, ef_kernel_node(t->kernel, difference->child[0]), at_d, inner);
    t_value a = scaled(t, frame, difference->child[0], inner, LOG2_E);
    *value = power_of_two(t, apply(t, EF_SUB, a, apply(t, EF_MUL, finite, ef_t_constant(LOG2_E))));
    return true;
}

/* select(nothing seen, 0, state * factor): the choice is made on the factor. */
static bool guarded_state(ef_t *t, const t_frame *frame, const ef_knode *node, const ef_index *index, t_value *value)
{
    const ef_knode *product = ef_kernel_node(t->kernel, node->child[2]);
    ef_index at[EF_MAP_ENTRIES] = {0}, inner[EF_MAP_ENTRIES] = {0};
    if (product->op != EF_MUL || ef_kernel_node(t->kernel, product->child[0])->op != EF_K_STATE)
        return false;
    t_value condition = operand(t, frame, node, 0, index, inner);
    ef_map_spread(&t->maps, node, product, index, at);
    t_value state = operand(t, frame, product, 0, at, inner), factor = operand(t, frame, product, 1, at, inner);
    if (state.literal || (condition.axes & ~factor.axes) || factor.axes == state.axes)
        return false;
    *value = apply(t, EF_MUL, state, choice(t, condition, ef_t_constant(0), factor));
    return true;
}

bool ef_t_guarded(ef_t *t, const t_frame *frame, const ef_knode *node, const ef_index *index, t_value *value)
{
    return node->op == EF_SELECT && is_number(t, node->child[1], 0) &&
           (guarded_exp(t, frame, node, index, value) || guarded_state(t, frame, node, index, value));
}
