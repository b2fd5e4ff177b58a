/* Operators: see op.h. */
#include "ir/op.h"

#include <math.h>
#include <string.h>

#include "ir/type.h"

const ef_op_info ef_ops[EF_OP_COUNT] = {
#define EF_OP_ROW(e, text, arity, class, attr) [e] = {text, arity, class, attr},
    EF_OPS(EF_OP_ROW)
#undef EF_OP_ROW
};

ef_op ef_op_named(const char *name, unsigned length)
{
    for (int op = 0; op < EF_OP_COUNT; op++)
        if (strlen(ef_ops[op].name) == length && memcmp(ef_ops[op].name, name, length) == 0)
            return (ef_op)op;
    return EF_OP_COUNT;
}

bool ef_op_pointwise(ef_op op)
{
    ef_op_class c = ef_ops[op].class;
    return c == EF_UNARY || c == EF_BINARY || c == EF_TERNARY;
}

bool ef_op_commutative(ef_op op)
{
    return op == EF_ADD || op == EF_MUL || op == EF_MAX || op == EF_MIN || op == EF_EQ || op == EF_NE || op == EF_AND ||
           op == EF_OR;
}

/* max and min propagate NaN, as PyTorch's do. */
static double maximum(double a, double b)
{
    return isnan(a) || isnan(b) ? NAN : fmax(a, b);
}

static double minimum(double a, double b)
{
    return isnan(a) || isnan(b) ? NAN : fmin(a, b);
}

/* The remainder that has the sign of the divisor; fmod is exact, a - b floor(a / b) is not. */
static double remainder_of(double a, double b)
{
    double r = fmod(a, b);
    return r != 0 && (r < 0) != (b < 0) ? r + b : r;
}

/* floor(a / b), also where the rounded a / b is a whole number and the exact one is not. */
static double quotient_of(double a, double b)
{
    double r = fmod(a, b);
    if (b == 0)
        return a / b;
    return nearbyint((a - r) / b) - (r != 0 && (r < 0) != (b < 0));
}

static double convert(ef_dtype to, double x)
{
    if (to == EF_BOOL)
        return x != 0;
    if (to == EF_I32 || to == EF_I64)
        return trunc(x);
    return x;
}

double ef_op_apply(ef_op op, uint64_t attr, const double *x)
{
    switch (op) {
    case EF_NEG: return -x[0];
    case EF_EXP: return exp(x[0]);
    case EF_EXP2: return exp2(x[0]);
    case EF_LOG: return log(x[0]);
    case EF_LOG2: return log2(x[0]);
    case EF_SQRT: return sqrt(x[0]);
    case EF_RSQRT: return 1 / sqrt(x[0]);
    case EF_RECIP: return 1 / x[0];
    case EF_TANH: return tanh(x[0]);
    case EF_SIGMOID: return 1 / (1 + exp(-x[0]));
    case EF_ERF: return erf(x[0]);
    case EF_ABS: return fabs(x[0]);
    case EF_SIN: return sin(x[0]);
    case EF_COS: return cos(x[0]);
    case EF_FLOOR: return floor(x[0]);
    case EF_NOT: return x[0] == 0;
    case EF_CAST: return convert((ef_dtype)attr, x[0]);
    case EF_ADD: return x[0] + x[1];
    case EF_SUB: return x[0] - x[1];
    case EF_MUL: return x[0] * x[1];
    case EF_DIV: return x[0] / x[1];
    case EF_POW: return pow(x[0], x[1]);
    case EF_MOD: return remainder_of(x[0], x[1]);
    case EF_FLOORDIV: return quotient_of(x[0], x[1]);
    case EF_MAX: return maximum(x[0], x[1]);
    case EF_MIN: return minimum(x[0], x[1]);
    case EF_LT: return x[0] < x[1];
    case EF_LE: return x[0] <= x[1];
    case EF_GT: return x[0] > x[1];
    case EF_GE: return x[0] >= x[1];
    case EF_EQ: return x[0] == x[1];
    case EF_NE: return x[0] != x[1];
    case EF_AND: return x[0] != 0 && x[1] != 0;
    case EF_OR: return x[0] != 0 || x[1] != 0;
    case EF_SELECT: return x[0] != 0 ? x[1] : x[2];
    default: return NAN;
    }
}

uint64_t ef_attr_number(double value)
{
    uint64_t bits;
    if (value == 0)
        value = 0; /* one zero, and one NaN */
    if (isnan(value))
        value = NAN;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

double ef_attr_to_number(uint64_t attr)
{
    double value;
    memcpy(&value, &attr, sizeof value);
    return value;
}
