/* What a repaired reduction's operand y is where its producer has seen nothing (reducer.h): in a row whose producer
 * leaf g is its reducer's identity and stays it.
 *
 * From g it follows what its own operands are: all scores of a row are -inf where their maximum is, all squares 0 where
 * their sum is. With these y is evaluated over the graph, as far as values are known; NaN takes with it whatever is
 * computed from it. A softmax gives exp(-inf - -inf), NaN; x * rsqrt(sum(x * x) + eps) gives 0. Then the loop can do as
 * if such contributions were the identity, without NaN in its state, and what is known is chosen after it.
 *
 * What is known, is known of one row: operators that mix rows give nothing. When in doubt, nothing is known. */
#include <math.h>
#include <stdlib.h>

#include "kernel/lower.h"

typedef enum { UNSEEN, UNKNOWN, KNOWN } knowledge;

typedef struct {
    const ef_kernel *kernel;
    const ef_knode *row; /* g: its dimensions that are no units are those of a row */
    uint8_t *state;      /* by node: knowledge */
    double *value;
} facts;

/* Whether a value that is reduced along a dimension keeps to its row. */
static bool keeps_row(const facts *f, unsigned dim)
{
    return dim >= f->row->rank || f->row->dim[dim].dim == EF_UNIT;
}

static bool is_positive(const facts *f, ef_kid id)
{
    const ef_knode *node = ef_kernel_node(f->kernel, id);
    double value = node->op == EF_CONST ? ef_attr_to_number(node->attr) : 0;
    return value > 0 && isfinite(value);
}

/* Whether a sum of such values is 0 only where all of them are. */
static bool never_negative(const ef_knode *node)
{
    return node->op == EF_EXP || node->op == EF_EXP2 || node->op == EF_ABS || node->op == EF_SIGMOID ||
           (node->op == EF_MUL && node->child[0] == node->child[1]);
}

/* Notes that the node is `value` everywhere in the row, and what follows for its operands. */
static void assume(facts *f, ef_kid id, double value)
{
    const ef_knode *node = ef_kernel_node(f->kernel, id);
    const ef_kid *child = node->child;
    if (f->state[id] == KNOWN)
        return;
    f->state[id] = KNOWN;
    f->value[id] = value;
    switch (node->op) {
    case EF_REDUCE: {
        ef_reducer base = ef_attr_reducer(node->attr);
        bool all = base == EF_RED_SUM ? value == 0 && never_negative(ef_kernel_node(f->kernel, child[0]))
                                      : value == ef_reducer_identity(base) && base != EF_RED_PROD;
        if (all && keeps_row(f, ef_attr_reduce_at(node->attr)))
            assume(f, child[0], value);
        return;
    }
    case EF_MAX:
    case EF_MIN:
        if (value == ef_reducer_identity(node->op == EF_MAX ? EF_RED_MAX : EF_RED_MIN)) {
            assume(f, child[0], value);
            assume(f, child[1], value);
        }
        return;
    case EF_MUL:
        if (child[0] == child[1] && value == 0)
            assume(f, child[0], 0);
        else if ((value == 0 || isinf(value)) && is_positive(f, child[1]))
            assume(f, child[0], value);
        else if ((value == 0 || isinf(value)) && is_positive(f, child[0]))
            assume(f, child[1], value);
        return;
    case EF_ABS:
        if (value == 0)
            assume(f, child[0], 0);
        return;
    case EF_CAST:
        if (value != 0 && node->dtype != EF_BOOL)
            assume(f, child[0], value);
        return;
    case EF_VIEW: assume(f, child[0], value); return;
    default: return;
    }
}

static bool know(facts *f, ef_kid id, double *value);

/* Operators that give NaN whenever an operand is NaN. */
static bool passes_nan(uint32_t op)
{
    return ef_op_pointwise((ef_op)op) && op != EF_SELECT && op != EF_POW && op != EF_NOT && op != EF_CAST &&
           !(op >= EF_LT && op <= EF_OR);
}

static bool know_pointwise(facts *f, const ef_knode *node, double *value)
{
    double x[3] = {0};
    bool known[3] = {false}, all = true, zero = false;
    if (node->op == EF_SELECT && know(f, node->child[0], x))
        return know(f, node->child[x[0] != 0 ? 1 : 2], value);
    for (unsigned i = 0; i < node->count; i++) {
        known[i] = know(f, node->child[i], &x[i]);
        all = all && known[i];
        zero = zero || (known[i] && x[i] == 0);
        if (known[i] && isnan(x[i]) && passes_nan(node->op))
            return *value = NAN, true;
    }
    if (node->op == EF_SELECT) { /* the same either way */
        *value = x[1];
        return known[1] && known[2] && (x[1] == x[2] || (isnan(x[1]) && isnan(x[2])));
    }
    if (node->op == EF_MUL && !all && zero)
        return *value = 0, true;
    *value = all ? ef_op_apply((ef_op)node->op, node->attr, x) : 0;
    return all;
}

/* Sums of zeros and of NaN, extrema of anything. */
static bool know_reduced(facts *f, const ef_knode *node, double *value)
{
    ef_reducer base = ef_attr_reducer(node->attr);
    return keeps_row(f, ef_attr_reduce_at(node->attr)) && know(f, node->child[0], value) &&
           (isnan(*value) || base == EF_RED_MAX || base == EF_RED_MIN || *value == ef_reducer_identity(base));
}

/* The rows of a product are those of its first operand, its columns those of its second. */
static bool know_product(facts *f, const ef_knode *node, double *value)
{
    for (unsigned i = 0; i < 2; i++)
        if (keeps_row(f, i) && know(f, node->child[i], value) && (isnan(*value) || *value == 0))
            return true;
    return false;
}

static bool evaluate(facts *f, const ef_knode *node, double *value)
{
    switch (node->op) {
    case EF_CONST: *value = ef_attr_to_number(node->attr); return true;
    case EF_VIEW: return know(f, node->child[0], value);
    case EF_REDUCE: return know_reduced(f, node, value);
    case EF_TILE_MATMUL: return know_product(f, node, value);
    default: return node->op < EF_OP_COUNT && ef_op_pointwise((ef_op)node->op) && know_pointwise(f, node, value);
    }
}

static bool know(facts *f, ef_kid id, double *value)
{
    if (f->state[id] == UNSEEN)
        f->state[id] = evaluate(f, ef_kernel_node(f->kernel, id), &f->value[id]) ? KNOWN : UNKNOWN;
    *value = f->value[id];
    return f->state[id] == KNOWN;
}

ef_nothing ef_lower_nothing(const ef_lowering *l, ef_reducer base, ef_kid g, ef_kid next, ef_kid y, ef_reducer consumer)
{
    uint32_t nodes = ef_kernel_nodes(l->kernel);
    facts f = {l->kernel, ef_kernel_node(l->kernel, g), ef_xcalloc(nodes, 1), ef_xcalloc(nodes, sizeof *f.value)};
    double value = 0, identity = ef_reducer_identity(base);
    assume(&f, g, identity);
    assume(&f, next, identity);
    bool known = know(&f, y, &value);
    free(f.state);
    free(f.value);
    if (known && isnan(value))
        return EF_NOTHING_NAN;
    return known && value == ef_reducer_identity(consumer) ? EF_NOTHING_IDENTITY : EF_NOTHING_UNKNOWN;
}
