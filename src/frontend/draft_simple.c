/* Drafts: pointwise operators by name, and what is simpler than they are as written. PyTorch code is full of tensors of
 * one number, repetitions along dimensions that the other operand has anyway, masks that are numbers first and compared
 * with numbers then, and views around batched products: none of that needs to reach a search. See draft.h. */
#include <string.h>

#include "frontend/draft.h"
#include "frontend/draft_build.h"
#include "ir/expr.h"

/* ---- operands and results ---- */

/* A tensor of one number is that number where the others have its dimensions anyway. */
static void use_numbers(ef_draft *d, ef_op op, ef_dn *x, unsigned count)
{
    for (unsigned k = 0; k < count; k++) {
        const ef_dnode *node = ef_dn_at(d, x[k]);
        if (!node->uniform || node->op == EF_CONST || (node->dtype == EF_BOOL && op != EF_EQ && op != EF_NE))
            continue;
        bool spare = true;
        for (unsigned i = 0; i < node->rank && spare; i++) {
            bool other = false;
            for (unsigned j = 0; j < count; j++)
                if (j != k && ef_dn_at(d, x[j])->op != EF_CONST)
                    other = other || (i < ef_dn_at(d, x[j])->rank &&
                                      (node->dim[i] == EF_SLOT_UNIT || ef_dn_at(d, x[j])->dim[i] != EF_SLOT_UNIT));
            spare = other;
        }
        if (spare)
            x[k] = ef_dn_number(d, ef_dn_at(d, x[k])->number);
    }
}

/* An operand that is repeated only along dimensions that the others have anyway need not be. */
static void use_unrepeated(const ef_draft *d, ef_dn *x, unsigned count)
{
    for (unsigned k = 0; k < count; k++) {
        const ef_dnode *node = ef_dn_at(d, x[k]);
        const ef_dnode *before = node->op == EF_BROADCAST ? ef_dn_at(d, node->child[0]) : node;
        bool spare = before != node && before->op != EF_CONST;
        for (unsigned i = 0; spare && i < node->rank; i++) {
            bool repeated = i >= before->rank || (before->dim[i] == EF_SLOT_UNIT && node->dim[i] != EF_SLOT_UNIT);
            bool other = !repeated;
            for (unsigned j = 0; j < count && !other; j++)
                other = j != k && i < ef_dn_at(d, x[j])->rank &&
                        (node->dim[i] == EF_SLOT_UNIT || ef_dn_at(d, x[j])->dim[i] != EF_SLOT_UNIT);
            spare = other;
        }
        if (spare)
            x[k] = node->child[0];
    }
}

void ef_simple_operands(ef_draft *d, ef_op op, ef_dn *x, unsigned count)
{
    use_numbers(d, op, x, count);
    use_unrepeated(d, x, count);
}

/* The number that a pointwise operator over numbers is, in its shape. */
ef_dn ef_simple_number(ef_draft *d, const ef_dnode *result)
{
    ef_dn number = ef_dn_number(d, result->number);
    if (number == EF_NONE || result->rank == 0)
        return ef_dn_exact_cast(d, (ef_dtype)result->dtype, number);
    ef_dnode node = ef_dn_over(d, EF_BROADCAST, number);
    node.rank = result->rank;
    memcpy(node.dim, result->dim, sizeof node.dim);
    return ef_dn_exact_cast(d, (ef_dtype)result->dtype, ef_dn_push(d, &node));
}

/* Whether a reshape only merges what stands before the last two dimensions; *inside is then what it merges. */
static bool merges_batch(const ef_draft *d, ef_dn x, ef_dn *inside)
{
    const ef_dnode *out = ef_dn_at(d, x), *in = out->op == EF_RESHAPE ? ef_dn_at(d, out->child[0]) : out;
    *inside = out->child[0];
    return in != out && out->rank == 3 && in->rank > 3 && ef_dn_size(d, x, 0) == ef_dn_size(d, *inside, 0) &&
           ef_dn_size(d, x, 1) == ef_dn_size(d, *inside, 1);
}

/* Batched products of core ATen have one batch dimension, into which views merge several: it is those that the product
 * has. EF_NONE when it is no such product. */
ef_dn ef_simple_matmul(ef_draft *d, ef_dn a, ef_dn b)
{
    ef_dn in_a, in_b;
    if (!merges_batch(d, a, &in_a) || !merges_batch(d, b, &in_b) || ef_dn_at(d, in_a)->rank != ef_dn_at(d, in_b)->rank)
        return EF_NONE;
    for (unsigned i = 2; i < ef_dn_at(d, in_a)->rank; i++)
        if (ef_dn_size(d, in_a, i) != ef_dn_size(d, in_b, i))
            return EF_NONE;
    int64_t size[3] = {(int64_t)ef_dn_size(d, a, 2), (int64_t)ef_dn_size(d, a, 1), (int64_t)ef_dn_size(d, b, 0)};
    return ef_dn_reshape(d, ef_dn_matmul(d, in_a, in_b), size, 3);
}

/* ---- pointwise operators ---- */

ef_dn ef_dn_unary(ef_draft *d, ef_op op, ef_dn x)
{
    return ef_dn_apply(d, op, 0, &x, 1);
}

static ef_dn under_casts(const ef_draft *d, ef_dn x)
{
    while (ef_dn_at(d, x)->op == EF_CAST)
        x = ef_dn_at(d, x)->child[0];
    return x;
}

/* A comparison of a choice between two numbers with a number is the condition itself, its opposite, or neither: what
 * people write with tril(ones) == 0 is the triangle. EF_NONE when x is no such choice. */
static ef_dn decided(ef_draft *d, ef_op op, ef_dn x, double number)
{
    x = under_casts(d, x);
    const ef_dnode *node = ef_dn_at(d, x);
    if (node->op != EF_SELECT || ef_dn_at(d, node->child[1])->op != EF_CONST ||
        ef_dn_at(d, node->child[2])->op != EF_CONST)
        return EF_NONE;
    double yes[2] = {ef_dn_at(d, node->child[1])->number, number},
           no[2] = {ef_dn_at(d, node->child[2])->number, number};
    bool if_yes = ef_op_apply(op, 0, yes) != 0, if_no = ef_op_apply(op, 0, no) != 0;
    if (if_yes == if_no)
        return EF_NONE;
    return if_yes ? node->child[0] : ef_dn_unary(d, EF_NOT, node->child[0]);
}

/* Whether op(x, number) is x. */
static bool is_identity(ef_op op, double number)
{
    return number == 0 ? op == EF_ADD || op == EF_SUB : number == 1 && (op == EF_MUL || op == EF_DIV);
}

/* Whether `other` has every dimension of x. */
static bool has_dims_of(const ef_draft *d, ef_dn other, ef_dn x)
{
    bool all = ef_dn_at(d, other)->rank >= ef_dn_at(d, x)->rank;
    for (unsigned i = 0; all && i < ef_dn_at(d, x)->rank; i++)
        all = ef_dn_at(d, x)->dim[i] == EF_SLOT_UNIT || ef_dn_at(d, other)->dim[i] != EF_SLOT_UNIT;
    return all;
}

/* "and true", "or false" */
static bool is_neutral(const ef_draft *d, ef_op op, ef_dn x, ef_dn other)
{
    return (op == EF_AND || op == EF_OR) && ef_dn_at(d, x)->uniform && ef_dn_at(d, x)->number == (op == EF_AND) &&
           has_dims_of(d, other, x);
}

ef_dn ef_dn_binary(ef_draft *d, ef_op op, ef_dn a, ef_dn b)
{
    ef_dn x[2] = {a, b};
    if (a != EF_NONE && b != EF_NONE && ef_dn_at(d, b)->op == EF_CONST &&
        ef_dtype_is_float((ef_dtype)ef_dn_at(d, a)->dtype) && is_identity(op, ef_dn_at(d, b)->number))
        return a;
    if (a != EF_NONE && b != EF_NONE && is_neutral(d, op, a, b))
        return b;
    if (a != EF_NONE && b != EF_NONE && is_neutral(d, op, b, a))
        return a;
    if (op >= EF_LT && op <= EF_NE && a != EF_NONE && b != EF_NONE && ef_dn_at(d, b)->op == EF_CONST) {
        ef_dn condition = decided(d, op, a, ef_dn_at(d, b)->number);
        if (condition != EF_NONE)
            return condition;
    }
    return ef_dn_apply(d, op, 0, x, 2);
}

ef_dn ef_dn_with(ef_draft *d, ef_op op, ef_dn a, double b)
{
    return ef_dn_binary(d, op, a, ef_dn_number(d, b));
}

ef_dn ef_dn_from(ef_draft *d, ef_op op, double a, ef_dn b)
{
    return ef_dn_binary(d, op, ef_dn_number(d, a), b);
}

ef_dn ef_dn_select(ef_draft *d, ef_dn condition, ef_dn a, ef_dn b)
{
    ef_dn x[3] = {condition, a, b};
    if (condition != EF_NONE && ef_dn_at(d, condition)->op == EF_NOT)
        return ef_dn_select(d, ef_dn_at(d, condition)->child[0], b, a);
    return ef_dn_apply(d, EF_SELECT, 0, x, 3);
}

ef_dn ef_dn_exact_cast(ef_draft *d, ef_dtype dtype, ef_dn x)
{
    if (x == EF_NONE || ef_dn_at(d, x)->dtype == dtype)
        return x;
    ef_dn condition = dtype == EF_BOOL ? decided(d, EF_NE, x, 0) : EF_NONE;
    if (condition != EF_NONE)
        return condition;
    return ef_dn_apply(d, EF_CAST, dtype, &x, 1);
}

static bool small_float(ef_dtype dtype)
{
    return dtype == EF_F16 || dtype == EF_BF16 || dtype == EF_F32;
}

ef_dn ef_dn_cast(ef_draft *d, ef_dtype dtype, ef_dn x)
{
    if (x != EF_NONE && ef_dn_at(d, x)->op == EF_CONST && ef_dtype_is_float(dtype))
        return x; /* a number takes the type of what it meets */
    ef_dtype from = x == EF_NONE ? dtype : (ef_dtype)ef_dn_at(d, x)->dtype;
    if (x != EF_NONE && small_float(dtype) && small_float(from) && (from != EF_F32 || dtype == EF_F32))
        return x;
    return ef_dn_exact_cast(d, dtype, x);
}
