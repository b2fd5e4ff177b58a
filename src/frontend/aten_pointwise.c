/* Pointwise operators of ATen. Operands are brought to the type that the exporter noted for the result: its promotion
 * rules need no second implementation. */
#include <math.h>
#include <string.h>

#include "frontend/aten.h"

/* ---- helpers ---- */

/* An argument as a number of the result's type. */
static ef_dn number(ef_aten *c, const char *name, uint32_t position)
{
    return ef_dn_cast(c->draft, ef_aten_result_type(c, 0), ef_aten_operand(c, name, position));
}

/* The first argument. */
static ef_dn self(ef_aten *c)
{
    return number(c, "self", 0);
}

static bool give(ef_aten *c, ef_dn x)
{
    return ef_aten_give(c, 0, ef_dn_cast(c->draft, ef_aten_result_type(c, 0), x));
}

static bool is_int(ef_dtype dtype)
{
    return dtype == EF_I32 || dtype == EF_I64;
}

static ef_dn scaled(ef_aten *c, ef_dn x, double factor)
{
    return factor == 1 ? x : ef_n(c, EF_MUL, x, factor);
}

static ef_dn relu(ef_aten *c, ef_dn x)
{
    return ef_n(c, EF_MAX, x, 0);
}

static ef_dn clamp(ef_aten *c, ef_dn x, double low, double high)
{
    return ef_n(c, EF_MIN, ef_n(c, EF_MAX, x, low), high);
}

static ef_dn ceiling(ef_aten *c, ef_dn x)
{
    return ef_u(c, EF_NEG, ef_u(c, EF_FLOOR, ef_u(c, EF_NEG, x)));
}

static ef_dn truncated(ef_aten *c, ef_dn x)
{
    return ef_dn_select(c->draft, ef_n(c, EF_LT, x, 0), ceiling(c, x), ef_u(c, EF_FLOOR, x));
}

/* Near 0, where 1 would be taken from what is nearly 1, 2 t / (1 - t) with t = tanh(x / 2). */
static ef_dn exp_minus_one(ef_aten *c, ef_dn x)
{
    ef_dn t = ef_u(c, EF_TANH, ef_n(c, EF_MUL, x, 0.5));
    ef_dn near = ef_b(c, EF_DIV, ef_n(c, EF_MUL, t, 2), ef_dn_from(c->draft, EF_SUB, 1, t));
    ef_dn far = ef_n(c, EF_SUB, ef_u(c, EF_EXP, x), 1);
    return ef_dn_select(c->draft, ef_n(c, EF_LT, ef_u(c, EF_ABS, x), 0.5), near, far);
}

/* Near 0, where 1 + x has few digits of x, the series of 2 artanh(s) with s = x / (2 + x): below 1/4 it ends with an
 * error of 3e-15 of it. */
static ef_dn log_of_one_plus(ef_aten *c, ef_dn x)
{
    ef_dn s = ef_b(c, EF_DIV, x, ef_n(c, EF_ADD, x, 2)), square = ef_b(c, EF_MUL, s, s);
    ef_dn series = ef_n(c, EF_MUL, square, 1.0 / 13);
    for (int odd = 11; odd > 1; odd -= 2)
        series = ef_b(c, EF_MUL, square, ef_n(c, EF_ADD, series, 1.0 / odd));
    ef_dn near = ef_b(c, EF_MUL, ef_n(c, EF_MUL, s, 2), ef_n(c, EF_ADD, series, 1));
    ef_dn far = ef_u(c, EF_LOG, ef_n(c, EF_ADD, x, 1));
    return ef_dn_select(c->draft, ef_n(c, EF_LT, ef_u(c, EF_ABS, x), 0.25), near, far);
}

/* log(1 + exp(x)) without overflow, and with all digits where it is small. */
static ef_dn softplus(ef_aten *c, ef_dn x)
{
    ef_dn tail = ef_u(c, EF_EXP, ef_u(c, EF_NEG, ef_u(c, EF_ABS, x)));
    return ef_b(c, EF_ADD, relu(c, x), log_of_one_plus(c, tail));
}

/* ---- one operand ---- */

static bool lower_unary(ef_aten *c, int op)
{
    return give(c, ef_u(c, (ef_op)op, self(c)));
}

static bool lower_not(ef_aten *c, int param)
{
    (void)param;
    ef_dn x = ef_aten_operand(c, "self", 0);
    if (ef_aten_dtype(c, x) == EF_BOOL)
        return ef_aten_give(c, 0, ef_u(c, EF_NOT, x));
    return ef_aten_result_type(c, 0) == EF_BOOL ? ef_aten_give(c, 0, ef_n(c, EF_EQ, x, 0))
                                                : ef_aten_refuse(c, "bits of integers");
}

enum {
    SQUARE,
    SIGN,
    RELU,
    RELU6,
    SILU,
    MISH,
    HARDSWISH,
    HARDSIGMOID,
    SELU,
    LOG10,
    LOG1P,
    EXPM1,
    TAN,
    CEIL,
    TRUNC,
    FRAC,
    LOGSIGMOID,
    SINC
};

static bool lower_formula(ef_aten *c, int formula)
{
    ef_dn x = self(c), y = EF_NONE;
    switch (formula) {
    case SQUARE: y = ef_b(c, EF_MUL, x, x); break;
    case SIGN:
        y = ef_dn_select(
            c->draft, ef_n(c, EF_GT, x, 0), ef_dn_number(c->draft, 1),
            ef_dn_select(c->draft, ef_n(c, EF_LT, x, 0), ef_dn_number(c->draft, -1), ef_dn_number(c->draft, 0)));
        break;
    case RELU: y = relu(c, x); break;
    case RELU6: y = clamp(c, x, 0, 6); break;
    case SILU: y = ef_b(c, EF_MUL, x, ef_u(c, EF_SIGMOID, x)); break;
    case MISH: y = ef_b(c, EF_MUL, x, ef_u(c, EF_TANH, softplus(c, x))); break;
    case HARDSWISH: y = ef_n(c, EF_DIV, ef_b(c, EF_MUL, x, clamp(c, ef_n(c, EF_ADD, x, 3), 0, 6)), 6); break;
    case HARDSIGMOID: y = ef_n(c, EF_DIV, clamp(c, ef_n(c, EF_ADD, x, 3), 0, 6), 6); break;
    case SELU: {
        const double alpha = 1.6732632423543772848170429916717, scale = 1.0507009873554804934193349852946;
        ef_dn low = ef_n(c, EF_MUL, exp_minus_one(c, ef_n(c, EF_MIN, x, 0)), alpha);
        y = ef_n(c, EF_MUL, ef_b(c, EF_ADD, relu(c, x), low), scale);
        break;
    }
    case LOG10: y = ef_n(c, EF_DIV, ef_u(c, EF_LOG, x), log(10)); break;
    case LOG1P: y = log_of_one_plus(c, x); break;
    case EXPM1: y = exp_minus_one(c, x); break;
    case TAN: y = ef_b(c, EF_DIV, ef_u(c, EF_SIN, x), ef_u(c, EF_COS, x)); break;
    case CEIL: y = ceiling(c, x); break;
    case TRUNC: y = truncated(c, x); break;
    case FRAC: y = ef_b(c, EF_SUB, x, truncated(c, x)); break;
    case LOGSIGMOID: y = ef_u(c, EF_NEG, softplus(c, ef_u(c, EF_NEG, x))); break;
    case SINC: {
        ef_dn px = ef_n(c, EF_MUL, x, acos(-1));
        y = ef_dn_select(c->draft, ef_n(c, EF_EQ, x, 0), ef_dn_number(c->draft, 1),
                         ef_b(c, EF_DIV, ef_u(c, EF_SIN, px), px));
        break;
    }
    default: break;
    }
    return give(c, y);
}

static bool lower_gelu(ef_aten *c, int param)
{
    (void)param;
    ef_dn x = self(c), inner;
    if (strcmp(ef_aten_text(c, "approximate", EF_NONE, "none"), "tanh") == 0) {
        ef_dn cube = ef_b(c, EF_MUL, ef_b(c, EF_MUL, x, x), x);
        ef_dn sum = ef_b(c, EF_ADD, x, ef_n(c, EF_MUL, cube, 0.044715));
        inner = ef_u(c, EF_TANH, ef_n(c, EF_MUL, sum, sqrt(2 / acos(-1))));
    } else
        inner = ef_u(c, EF_ERF, ef_n(c, EF_MUL, x, sqrt(0.5)));
    return give(c, ef_b(c, EF_MUL, ef_n(c, EF_MUL, x, 0.5), ef_n(c, EF_ADD, inner, 1)));
}

static bool lower_softplus(ef_aten *c, int param)
{
    (void)param;
    double beta = ef_aten_number(c, "beta", 1, 1), threshold = ef_aten_number(c, "threshold", 2, 20);
    ef_dn x = self(c), scaled_x = scaled(c, x, beta), y = softplus(c, scaled_x);
    y = beta == 1 ? y : ef_n(c, EF_DIV, y, beta);
    bool shows = threshold < 20 || ef_aten_dtype(c, x) == EF_F64; /* that PyTorch leaves out what is beyond */
    return give(c, !shows ? y : ef_dn_select(c->draft, ef_n(c, EF_GT, scaled_x, threshold), x, y));
}

/* leaky_relu, prelu: x where it is positive, else a multiple. */
static bool lower_leaky(ef_aten *c, int prelu)
{
    ef_dn x = self(c), slope = ef_dn_number(c->draft, ef_aten_number(c, "negative_slope", 1, 0.01));
    if (prelu) {
        int64_t size[EF_MAX_RANK];
        slope = ef_aten_operand(c, "weight", 1);
        if (ef_aten_rank(c, x) > 2 && ef_aten_rank(c, slope) == 1) { /* one slope a channel, dimension 1 */
            for (unsigned i = 0; i < ef_aten_rank(c, x) - 1; i++)
                size[i] = i ? 1 : (int64_t)ef_dn_size(c->draft, slope, 0);
            slope = ef_dn_reshape(c->draft, slope, size, ef_aten_rank(c, x) - 1);
        }
    }
    return give(c, ef_dn_select(c->draft, ef_n(c, EF_GT, x, 0), x, ef_b(c, EF_MUL, x, slope)));
}

/* elu and celu: scale * (x > 0 ? x : alpha * (exp(input_scale * x) - 1)). */
static bool lower_elu(ef_aten *c, int celu)
{
    double alpha = ef_aten_number(c, "alpha", 1, 1), scale = celu ? 1 : ef_aten_number(c, "scale", 2, 1);
    double input_scale = celu ? 1 / alpha : ef_aten_number(c, "input_scale", 3, 1);
    ef_dn x = self(c), low = scaled(c, exp_minus_one(c, scaled(c, ef_n(c, EF_MIN, x, 0), input_scale)), alpha);
    return give(c, scaled(c, ef_dn_select(c->draft, ef_n(c, EF_GT, x, 0), x, low), scale));
}

static bool lower_threshold(ef_aten *c, int param)
{
    (void)param;
    ef_dn x = self(c), value = ef_dn_number(c->draft, ef_aten_number(c, "value", 2, 0));
    return give(c, ef_dn_select(c->draft, ef_n(c, EF_LE, x, ef_aten_number(c, "threshold", 1, 0)), value, x));
}

static bool lower_clamp(ef_aten *c, int param)
{
    (void)param;
    ef_dn x = self(c);
    if (ef_aten_has(c, "min", 1))
        x = ef_b(c, EF_MAX, x, number(c, "min", 1));
    if (ef_aten_has(c, "max", 2))
        x = ef_b(c, EF_MIN, x, number(c, "max", 2));
    return give(c, x);
}

/* clamp_min, clamp_max, hardtanh */
static bool lower_bound(ef_aten *c, int op)
{
    if (op != EF_SELECT)
        return give(c, ef_b(c, (ef_op)op, self(c), number(c, op == EF_MAX ? "min" : "max", 1)));
    return give(c, clamp(c, self(c), ef_aten_number(c, "min_val", 1, -1), ef_aten_number(c, "max_val", 2, 1)));
}

static bool lower_logit(ef_aten *c, int param)
{
    (void)param;
    ef_dn x = self(c);
    if (ef_aten_has(c, "eps", 1)) {
        double eps = ef_aten_number(c, "eps", 1, 0);
        x = clamp(c, x, eps, 1 - eps);
    }
    return give(c, ef_u(c, EF_LOG, ef_b(c, EF_DIV, x, ef_dn_from(c->draft, EF_SUB, 1, x))));
}

enum { IS_NAN, IS_INF, IS_FINITE };

static bool lower_class(ef_aten *c, int what)
{
    ef_dn x = ef_aten_operand(c, "self", 0);
    if (!ef_dtype_is_float(ef_aten_dtype(c, x)))
        return ef_aten_refuse(c, "classification of what is no float");
    ef_dn y =
        what == IS_NAN ? ef_b(c, EF_NE, x, x) : ef_n(c, what == IS_INF ? EF_EQ : EF_LT, ef_u(c, EF_ABS, x), INFINITY);
    return ef_aten_give(c, 0, y);
}

/* ---- two operands ---- */

/* On bools a sum is "or" and a product "and". */
static bool lower_arithmetic(ef_aten *c, int op)
{
    ef_dn a = self(c), b = number(c, "other", 1);
    double alpha = ef_aten_number(c, "alpha", 2, 1);
    if (ef_aten_result_type(c, 0) == EF_BOOL) {
        if (op != EF_ADD && op != EF_MUL)
            return ef_aten_refuse(c, "arithmetic on bools");
        op = op == EF_ADD ? EF_OR : EF_AND;
    } else if (op == EF_ADD || op == EF_SUB)
        b = scaled(c, b, alpha);
    return give(c, ef_b(c, (ef_op)op, a, b));
}

static bool lower_rsub(ef_aten *c, int param)
{
    (void)param;
    return give(c, ef_b(c, EF_SUB, number(c, "other", 1), scaled(c, self(c), ef_aten_number(c, "alpha", 2, 1))));
}

/* PyTorch raises when integers are divided by the number 0; by a tensor's zeros the IR gives 0. */
static bool by_zero(const ef_aten *c, ef_dn divisor)
{
    const ef_dnode *node = divisor == EF_NONE ? NULL : &c->draft->nodes.at[divisor];
    return node && (node->op == EF_CONST || node->uniform) && node->number == 0 &&
           !ef_dtype_is_float(ef_aten_result_type(c, 0));
}

static bool lower_remainder(ef_aten *c, int op)
{
    ef_dn a = self(c), b = number(c, "other", 1);
    if (ef_aten_result_type(c, 0) == EF_BOOL)
        return ef_aten_refuse(c, "arithmetic on bools");
    return by_zero(c, b) ? ef_aten_refuse(c, "division of integers by 0") : give(c, ef_b(c, (ef_op)op, a, b));
}

/* The quotient without its fraction, the remainder with the sign of the dividend: from those of magnitudes. */
static bool lower_truncating(ef_aten *c, int op)
{
    ef_dn a = self(c), b = number(c, "other", 1);
    if (by_zero(c, b) || ef_aten_result_type(c, 0) == EF_BOOL)
        return ef_aten_refuse(c, "division of integers by 0, or of bools");
    ef_dn y = ef_b(c, (ef_op)op, ef_u(c, EF_ABS, a), ef_u(c, EF_ABS, b));
    ef_dn negative = ef_n(c, EF_LT, a, 0);
    if (op == EF_FLOORDIV)
        negative = ef_b(c, EF_NE, negative, ef_n(c, EF_LT, b, 0));
    return give(c, ef_dn_select(c->draft, negative, ef_u(c, EF_NEG, y), y));
}

static bool lower_div(ef_aten *c, int param)
{
    (void)param;
    const char *mode = ef_aten_text(c, "rounding_mode", EF_NONE, "");
    if (strcmp(mode, "floor") == 0)
        return lower_remainder(c, EF_FLOORDIV);
    if (strcmp(mode, "trunc") == 0 && !ef_dtype_is_float(ef_aten_result_type(c, 0)))
        return lower_truncating(c, EF_FLOORDIV);
    ef_dn y = ef_b(c, EF_DIV, self(c), number(c, "other", 1));
    return give(c, *mode ? truncated(c, y) : y);
}

static bool lower_power(ef_aten *c, int param)
{
    (void)param;
    ef_dn x = self(c), y = number(c, "exponent", 1);
    double exponent = 0, base = 0;
    if (x == EF_NONE || y == EF_NONE)
        return ef_aten_give(c, 0, EF_NONE);
    bool known = c->draft->nodes.at[y].op == EF_CONST;
    if (known)
        exponent = c->draft->nodes.at[y].number;
    if (c->draft->nodes.at[x].op == EF_CONST)
        base = c->draft->nodes.at[x].number;
    if (known && exponent == 2)
        return give(c, ef_b(c, EF_MUL, x, x));
    if (known && exponent == 3)
        return give(c, ef_b(c, EF_MUL, ef_b(c, EF_MUL, x, x), x));
    if (known && exponent == 0.5)
        return give(c, ef_u(c, EF_SQRT, x));
    if (known && exponent == -0.5)
        return give(c, ef_u(c, EF_RSQRT, x));
    if (known && exponent == -1 && !is_int(ef_aten_result_type(c, 0)))
        return give(c, ef_u(c, EF_RECIP, x));
    if (base == 2)
        return give(c, ef_u(c, EF_EXP2, y));
    return give(c, ef_b(c, EF_POW, x, y));
}

static bool lower_extremum(ef_aten *c, int op)
{
    ef_dn a = self(c), b = number(c, "other", 1);
    if (ef_aten_result_type(c, 0) == EF_BOOL)
        op = op == EF_MAX ? EF_OR : EF_AND;
    return give(c, ef_b(c, (ef_op)op, a, b));
}

/* Bools are compared with bools, or as numbers. */
static bool lower_comparison(ef_aten *c, int op)
{
    ef_dn a = ef_aten_operand(c, "self", 0), b = ef_aten_operand(c, "other", 1);
    bool bool_a = ef_aten_dtype(c, a) == EF_BOOL, bool_b = ef_aten_dtype(c, b) == EF_BOOL;
    bool equality = op == EF_EQ || op == EF_NE;
    if (bool_a && !(bool_b && equality))
        a = ef_dn_cast(c->draft, EF_I32, a);
    if (bool_b && !(bool_a && equality))
        b = ef_dn_cast(c->draft, EF_I32, b);
    return ef_aten_give(c, 0, ef_b(c, (ef_op)op, a, b));
}

static ef_dn truth(ef_aten *c, ef_dn x)
{
    return ef_aten_dtype(c, x) == EF_BOOL || x == EF_NONE ? x : ef_n(c, EF_NE, x, 0);
}

static bool lower_logic(ef_aten *c, int op)
{
    ef_dn a = truth(c, ef_aten_operand(c, "self", 0)), b = truth(c, ef_aten_operand(c, "other", 1));
    return ef_aten_give(c, 0, ef_b(c, (ef_op)op, a, b));
}

/* Bitwise operators mean logic on bools only. */
static bool lower_bitwise(ef_aten *c, int op)
{
    if (ef_aten_result_type(c, 0) != EF_BOOL)
        return ef_aten_refuse(c, "bits of integers");
    return lower_logic(c, op);
}

/* The larger one where that is infinite: infinity less itself is none. */
static bool lower_logaddexp(ef_aten *c, int param)
{
    (void)param;
    ef_dn a = self(c), b = number(c, "other", 1), high = ef_b(c, EF_MAX, a, b);
    ef_dn tail = ef_u(c, EF_EXP, ef_u(c, EF_NEG, ef_u(c, EF_ABS, ef_b(c, EF_SUB, a, b))));
    ef_dn infinite = ef_n(c, EF_EQ, ef_u(c, EF_ABS, high), INFINITY);
    return give(c, ef_dn_select(c->draft, infinite, high, ef_b(c, EF_ADD, high, log_of_one_plus(c, tail))));
}

/* ---- three operands ---- */

static bool lower_where(ef_aten *c, int param)
{
    (void)param;
    ef_dn condition = truth(c, ef_aten_operand(c, "condition", 0));
    if (!ef_aten_has(c, "self", 1))
        return ef_aten_refuse(c, "its result's size depends on its operand");
    return give(c, ef_dn_select(c->draft, condition, number(c, "self", 1), number(c, "other", 2)));
}

static bool lower_masked_fill(ef_aten *c, int param)
{
    (void)param;
    return give(c, ef_dn_select(c->draft, truth(c, ef_aten_operand(c, "mask", 1)), number(c, "value", 2), self(c)));
}

/* addcmul, addcdiv: self + value * a op b. */
static bool lower_addc(ef_aten *c, int op)
{
    ef_dn ab = ef_b(c, (ef_op)op, number(c, "tensor1", 1), number(c, "tensor2", 2));
    return give(c, ef_b(c, EF_ADD, self(c), scaled(c, ab, ef_aten_number(c, "value", 3, 1))));
}

static bool lower_lerp(ef_aten *c, int param)
{
    (void)param;
    ef_dn a = self(c), step = ef_b(c, EF_SUB, number(c, "end", 1), a);
    return give(c, ef_b(c, EF_ADD, a, ef_b(c, EF_MUL, step, number(c, "weight", 2))));
}

/* glu: the first half of a dimension times sigmoid of the second. */
static bool lower_glu(ef_aten *c, int param)
{
    (void)param;
    ef_dn x = self(c);
    unsigned index = ef_aten_dim(ef_aten_int(c, "dim", 1, -1), ef_aten_rank(c, x));
    if (x == EF_NONE || index >= ef_aten_rank(c, x))
        return ef_aten_give(c, 0, EF_NONE);
    uint64_t half = ef_dn_size(c->draft, x, index) / 2;
    ef_dn a = ef_dn_slice(c->draft, x, index, 0, half), b = ef_dn_slice(c->draft, x, index, half, 2 * half);
    return give(c, ef_b(c, EF_MUL, a, ef_u(c, EF_SIGMOID, b)));
}

/* ---- the same elements, or others in their place ---- */

static bool lower_identity(ef_aten *c, int param)
{
    (void)param;
    ef_dn x = ef_aten_operand(c, "self", 0);
    if (x == EF_NONE)
        x = ef_aten_operand(c, "input", 0);
    return give(c, x);
}

static bool lower_dropout(ef_aten *c, int param)
{
    if (ef_aten_flag(c, "train", 2, false) && ef_aten_number(c, "p", 1, 0.5) != 0)
        return ef_aten_refuse(c, "dropout in training");
    return lower_identity(c, param);
}

/* copy_, fill_, zero_: other contents of the first argument's shape. */
static bool lower_contents(ef_aten *c, int zero)
{
    int64_t size[EF_MAX_RANK];
    unsigned rank = ef_aten_result_sizes(c, 0, size);
    ef_dn x = zero ? ef_dn_number(c->draft, 0) : ef_aten_operand(c, "src", 1);
    if (x == EF_NONE)
        x = ef_aten_operand(c, "value", 1);
    x = ef_dn_exact_cast(c->draft, ef_aten_result_type(c, 0), x);
    return ef_aten_give(c, 0, ef_dn_broadcast(c->draft, x, size, rank));
}

const ef_aten_row ef_aten_pointwise[] = {
    {"neg", lower_unary, EF_NEG, EF_FRESH},
    {"exp", lower_unary, EF_EXP, EF_FRESH},
    {"exp2", lower_unary, EF_EXP2, EF_FRESH},
    {"log", lower_unary, EF_LOG, EF_FRESH},
    {"log2", lower_unary, EF_LOG2, EF_FRESH},
    {"sqrt", lower_unary, EF_SQRT, EF_FRESH},
    {"rsqrt", lower_unary, EF_RSQRT, EF_FRESH},
    {"reciprocal", lower_unary, EF_RECIP, EF_FRESH},
    {"tanh", lower_unary, EF_TANH, EF_FRESH},
    {"sigmoid", lower_unary, EF_SIGMOID, EF_FRESH},
    {"erf", lower_unary, EF_ERF, EF_FRESH},
    {"abs", lower_unary, EF_ABS, EF_FRESH},
    {"sin", lower_unary, EF_SIN, EF_FRESH},
    {"cos", lower_unary, EF_COS, EF_FRESH},
    {"floor", lower_unary, EF_FLOOR, EF_FRESH},
    {"logical_not", lower_not, 0, EF_FRESH},
    {"bitwise_not", lower_not, 0, EF_FRESH},
    {"square", lower_formula, SQUARE, EF_FRESH},
    {"sign", lower_formula, SIGN, EF_FRESH},
    {"sgn", lower_formula, SIGN, EF_FRESH},
    {"relu", lower_formula, RELU, EF_FRESH},
    {"relu6", lower_formula, RELU6, EF_FRESH},
    {"silu", lower_formula, SILU, EF_FRESH},
    {"mish", lower_formula, MISH, EF_FRESH},
    {"hardswish", lower_formula, HARDSWISH, EF_FRESH},
    {"hardsigmoid", lower_formula, HARDSIGMOID, EF_FRESH},
    {"selu", lower_formula, SELU, EF_FRESH},
    {"log10", lower_formula, LOG10, EF_FRESH},
    {"log1p", lower_formula, LOG1P, EF_FRESH},
    {"expm1", lower_formula, EXPM1, EF_FRESH},
    {"tan", lower_formula, TAN, EF_FRESH},
    {"ceil", lower_formula, CEIL, EF_FRESH},
    {"trunc", lower_formula, TRUNC, EF_FRESH},
    {"fix", lower_formula, TRUNC, EF_FRESH},
    {"frac", lower_formula, FRAC, EF_FRESH},
    {"log_sigmoid", lower_formula, LOGSIGMOID, EF_FRESH},
    {"sinc", lower_formula, SINC, EF_FRESH},
    {"gelu", lower_gelu, 0, EF_FRESH},
    {"softplus", lower_softplus, 0, EF_FRESH},
    {"leaky_relu", lower_leaky, 0, EF_FRESH},
    {"prelu", lower_leaky, 1, EF_FRESH},
    {"_prelu_kernel", lower_leaky, 1, EF_FRESH},
    {"elu", lower_elu, 0, EF_FRESH},
    {"celu", lower_elu, 1, EF_FRESH},
    {"threshold", lower_threshold, 0, EF_FRESH},
    {"clamp", lower_clamp, 0, EF_FRESH},
    {"clip", lower_clamp, 0, EF_FRESH},
    {"clamp_min", lower_bound, EF_MAX, EF_FRESH},
    {"clamp_max", lower_bound, EF_MIN, EF_FRESH},
    {"hardtanh", lower_bound, EF_SELECT, EF_FRESH},
    {"logit", lower_logit, 0, EF_FRESH},
    {"isnan", lower_class, IS_NAN, EF_FRESH},
    {"isinf", lower_class, IS_INF, EF_FRESH},
    {"isfinite", lower_class, IS_FINITE, EF_FRESH},
    {"add", lower_arithmetic, EF_ADD, EF_FRESH},
    {"sub", lower_arithmetic, EF_SUB, EF_FRESH},
    {"subtract", lower_arithmetic, EF_SUB, EF_FRESH},
    {"rsub", lower_rsub, 0, EF_FRESH},
    {"mul", lower_arithmetic, EF_MUL, EF_FRESH},
    {"multiply", lower_arithmetic, EF_MUL, EF_FRESH},
    {"remainder", lower_remainder, EF_MOD, EF_FRESH},
    {"fmod", lower_truncating, EF_MOD, EF_FRESH},
    {"div", lower_div, 0, EF_FRESH},
    {"divide", lower_div, 0, EF_FRESH},
    {"true_divide", lower_div, 0, EF_FRESH},
    {"floor_divide", lower_remainder, EF_FLOORDIV, EF_FRESH},
    {"pow", lower_power, 0, EF_FRESH},
    {"maximum", lower_extremum, EF_MAX, EF_FRESH},
    {"minimum", lower_extremum, EF_MIN, EF_FRESH},
    {"logaddexp", lower_logaddexp, 0, EF_FRESH},
    {"eq", lower_comparison, EF_EQ, EF_FRESH},
    {"ne", lower_comparison, EF_NE, EF_FRESH},
    {"not_equal", lower_comparison, EF_NE, EF_FRESH},
    {"lt", lower_comparison, EF_LT, EF_FRESH},
    {"less", lower_comparison, EF_LT, EF_FRESH},
    {"le", lower_comparison, EF_LE, EF_FRESH},
    {"less_equal", lower_comparison, EF_LE, EF_FRESH},
    {"gt", lower_comparison, EF_GT, EF_FRESH},
    {"greater", lower_comparison, EF_GT, EF_FRESH},
    {"ge", lower_comparison, EF_GE, EF_FRESH},
    {"greater_equal", lower_comparison, EF_GE, EF_FRESH},
    {"logical_and", lower_logic, EF_AND, EF_FRESH},
    {"logical_or", lower_logic, EF_OR, EF_FRESH},
    {"logical_xor", lower_logic, EF_NE, EF_FRESH},
    {"bitwise_and", lower_bitwise, EF_AND, EF_FRESH},
    {"bitwise_or", lower_bitwise, EF_OR, EF_FRESH},
    {"bitwise_xor", lower_bitwise, EF_NE, EF_FRESH},
    {"__and__", lower_bitwise, EF_AND, EF_FRESH},
    {"__or__", lower_bitwise, EF_OR, EF_FRESH},
    {"__xor__", lower_bitwise, EF_NE, EF_FRESH},
    {"where", lower_where, 0, EF_FRESH},
    {"masked_fill", lower_masked_fill, 0, EF_FRESH},
    {"addcmul", lower_addc, EF_MUL, EF_FRESH},
    {"addcdiv", lower_addc, EF_DIV, EF_FRESH},
    {"lerp", lower_lerp, 0, EF_FRESH},
    {"glu", lower_glu, 0, EF_FRESH},
    {"to", lower_identity, 0, EF_SAME},
    {"_to_copy", lower_identity, 0, EF_FRESH},
    {"type_as", lower_identity, 0, EF_SAME},
    {"clone", lower_identity, 0, EF_FRESH},
    {"lift_fresh_copy", lower_identity, 0, EF_FRESH},
    {"lift_fresh", lower_identity, 0, EF_SAME},
    {"contiguous", lower_identity, 0, EF_CONTIGUOUS},
    {"alias", lower_identity, 0, EF_SAME},
    {"detach", lower_identity, 0, EF_SAME},
    {"positive", lower_identity, 0, EF_SAME},
    {"dropout", lower_dropout, 0, EF_SAME},
    {"feature_dropout", lower_dropout, 0, EF_SAME},
    {"alpha_dropout", lower_dropout, 0, EF_SAME},
    {"copy", lower_contents, 0, EF_FRESH},
    {"fill", lower_contents, 0, EF_FRESH},
    {"zero", lower_contents, 1, EF_FRESH},
    {0},
};
