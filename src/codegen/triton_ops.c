/* Pointwise operators on tiles. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "codegen/triton_print.h"

/* ---- literals ---- */

t_value ef_t_constant(double value)
{
    return (t_value){.type = T_FLOAT, .literal = true, .value = value};
}

const char *ef_t_literal(ef_t *t, double value, t_type type)
{
    if (type == T_BOOL)
        return value != 0 ? "True" : "False";
    if (isnan(value) || isinf(value))
        return isnan(value) ? "float(\"nan\")" : value > 0 ? "float(\"inf\")" : "float(\"-inf\")";
    if (type == T_INT || type == T_LONG)
        return ef_t_text(t, "%" PRId64, (int64_t)value);
    ef_strbuf number = {0};
    ef_strbuf_double(&number, value);
    const char *text = ef_t_text(t, "%s%s", number.text, strpbrk(number.text, ".e") ? "" : ".0");
    ef_strbuf_free(&number);
    return text;
}

const char *ef_t_as(ef_t *t, t_value value, t_type type)
{
    if (value.literal)
        return ef_t_literal(t, value.value, type);
    if (value.type == type || (value.type > type && type != T_BOOL))
        return value.text;
    if (type == T_BOOL)
        return ef_t_text(t, "(%s != 0)", value.text);
    return ef_t_text(t, "tl.cast(%s, %s)", value.text, ef_t_type_names[type]);
}

/* ---- formulas ---- */

/* On floats: $1 and $2 stand for the operands. */
static const char *const formulas[EF_OP_COUNT] = {
    [EF_NEG] = "-$1",
    [EF_EXP] = "tl.exp($1)",
    [EF_EXP2] = "tl.exp2($1)",
    [EF_LOG] = "tl.log($1)",
    [EF_LOG2] = "tl.log2($1)",
    [EF_SQRT] = "tl.sqrt($1)",
    [EF_RSQRT] = "tl.rsqrt($1)",
    [EF_RECIP] = "1.0 / $1",
    [EF_TANH] = "_tanh($1)",
    [EF_SIGMOID] = "tl.sigmoid($1)",
    [EF_ERF] = "tl.erf($1)",
    [EF_ABS] = "tl.abs($1)",
    [EF_SIN] = "tl.sin($1)",
    [EF_COS] = "tl.cos($1)",
    [EF_FLOOR] = "tl.floor($1)",
    [EF_ADD] = "$1 + $2",
    [EF_SUB] = "$1 - $2",
    [EF_MUL] = "$1 * $2",
    [EF_DIV] = "$1 / $2",
    [EF_POW] = "_pow($1, $2)",
    [EF_MOD] = "_mod($1, $2)",
    [EF_FLOORDIV] = "_floordiv($1, $2)",
    [EF_MAX] = "tl.maximum($1, $2, propagate_nan=tl.PropagateNan.ALL)",
    [EF_MIN] = "tl.minimum($1, $2, propagate_nan=tl.PropagateNan.ALL)",
};

/* On integers, where they differ. */
static const char *const whole_formulas[EF_OP_COUNT] = {
    [EF_FLOOR] = "$1",
    [EF_MOD] = "_mod_int($1, $2)",
    [EF_FLOORDIV] = "_floordiv_int($1, $2)",
    [EF_MAX] = "tl.maximum($1, $2)",
    [EF_MIN] = "tl.minimum($1, $2)",
};

static const char *const logic[EF_OP_COUNT] = {
    [EF_LT] = "$1 < $2",  [EF_LE] = "$1 <= $2", [EF_GT] = "$1 > $2", [EF_GE] = "$1 >= $2", [EF_EQ] = "$1 == $2",
    [EF_NE] = "$1 != $2", [EF_AND] = "$1 & $2", [EF_OR] = "$1 | $2", [EF_NOT] = "$1 == 0",
};

static const char *fill(ef_t *t, const char *formula, const char *a, const char *b)
{
    ef_strbuf text = {0};
    for (const char *p = formula; *p; p++) {
        if (*p == '$')
            ef_strbuf_puts(&text, *++p == '1' ? a : b);
        else
            ef_strbuf_add(&text, p, 1);
    }
    const char *copy = ef_t_text(t, "%s", text.text);
    ef_strbuf_free(&text);
    return copy;
}

static t_type meet(const t_value *x, unsigned first, unsigned count)
{
    ef_operand operand[3] = {{0}};
    for (unsigned i = first; i < count; i++)
        operand[i - first] = (ef_operand){x[i].literal, x[i].value, x[i].type};
    return (t_type)ef_operands_meet(operand, count - first, T_INT, T_FLOAT);
}

/* What a literal operand decides: the other operand, or EF_NONE. Loops that run once begin with such literals. */
static unsigned decided(ef_op op, const t_value *x, unsigned count)
{
    for (unsigned i = 0; count == 2 && i < 2; i++) {
        if (!x[i].literal)
            continue;
        double v = x[i].value;
        if ((op == EF_ADD && v == 0) || (op == EF_MUL && v == 1) || (op == EF_MAX && v == -INFINITY) ||
            (op == EF_MIN && v == INFINITY) || (op == EF_AND && v != 0) || (op == EF_OR && v == 0))
            return 1 - i;
    }
    if ((op == EF_SUB && x[1].literal && x[1].value == 0) || (op == EF_DIV && x[1].literal && x[1].value == 1))
        return 0;
    if (op == EF_SELECT && x[0].literal)
        return x[0].value != 0 ? 1 : 2;
    return EF_NONE;
}

static bool all_literal(ef_op op, const ef_knode *node, const t_value *x, double *value)
{
    double v[3] = {0};
    for (unsigned i = 0; i < node->count; i++) {
        if (!x[i].literal)
            return false;
        v[i] = x[i].value;
    }
    *value = ef_op_apply(op, node->attr, v);
    return true;
}

static const char *cast_text(ef_t *t, ef_dtype to, t_value x)
{
    t_type type = ef_t_type(to);
    if (type == T_BOOL || x.type < type || x.literal)
        return ef_t_as(t, x, type);
    if (type >= T_FLOAT && x.type >= T_FLOAT) /* arithmetic is over the reals: floats are not rounded */
        return x.text;
    return ef_t_text(t, "tl.cast(%s, %s)", x.text, ef_t_type_names[type]);
}

/* A literal as a tensor of rank 0. */
static const char *as_tensor(ef_t *t, t_value x, t_type type)
{
    const char *text = ef_t_as(t, x, type);
    return x.literal ? ef_t_text(t, "tl.full((), %s, %s)", text, ef_t_type_names[type]) : text;
}

static const char *expression(ef_t *t, const ef_knode *node, const t_value *x, t_type *type)
{
    ef_op op = (ef_op)node->op;
    t_type result = ef_t_type((ef_dtype)node->dtype);
    *type = meet(x, op == EF_SELECT, node->count);
    if (op == EF_AND || op == EF_OR || op == EF_NOT)
        *type = T_BOOL;
    const t_value *y = &x[node->count > 1];
    if (logic[op]) {
        t_type operands = *type;
        *type = T_BOOL;
        if (op == EF_NOT)
            return ef_t_text(t, "%s == 0", ef_t_as(t, x[0], T_BOOL));
        return fill(t, logic[op], ef_t_as(t, x[0], operands), ef_t_as(t, *y, operands));
    }
    if (op == EF_CAST) {
        *type = result > T_FLOAT || result < T_FLOAT || x[0].type <= T_FLOAT ? result : x[0].type;
        return cast_text(t, (ef_dtype)node->dtype, x[0]);
    }
    bool whole = *type < T_FLOAT && result < T_FLOAT;
    if (*type < result)
        *type = result;
    if (op == EF_SELECT)
        return ef_t_text(t, "tl.where(%s, %s, %s)", ef_t_as(t, x[0], T_BOOL), ef_t_as(t, x[1], *type),
                         ef_t_as(t, x[2], *type));
    if (op == EF_MOD || op == EF_FLOORDIV) {
        t->helpers |= whole ? T_HELP_DIVIDE_INT : T_HELP_DIVIDE;
        return fill(t, whole ? whole_formulas[op] : formulas[op], as_tensor(t, x[0], *type), as_tensor(t, *y, *type));
    }
    t->helpers |= op == EF_TANH ? T_HELP_TANH : op == EF_POW ? T_HELP_POW : 0u;
    return fill(t, whole && whole_formulas[op] ? whole_formulas[op] : formulas[op], ef_t_as(t, x[0], *type),
                ef_t_as(t, *y, *type));
}

t_value ef_t_pointwise(ef_t *t, const ef_knode *node, const char *base, const t_value *x)
{
    unsigned same = decided((ef_op)node->op, x, node->count);
    double constant;
    t_value value = {0};
    if (all_literal((ef_op)node->op, node, x, &constant))
        return ef_t_constant(constant);
    if (same != EF_NONE)
        return x[same];
    for (unsigned i = 0; i < node->count; i++) {
        value.axes |= x[i].axes;
        value.level = x[i].level > value.level ? x[i].level : value.level;
    }
    const char *text = expression(t, node, x, &value.type);
    value.text = ef_t_name(t, value.level, base, text);
    return value;
}
