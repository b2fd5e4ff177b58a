/* Elements of values as scalar C expressions. Index maps leave no code (maps.h). Every element that is computed gets a
 * variable, once in a loop nest. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "codegen/c_print.h"

/* ---- addresses ---- */

ef_index ef_c_tile_address(ef_c *c, const ef_knode *node, const ef_index *index)
{
    c_atom atom[C_MAX_ATOMS] = {{0}};
    ef_index sum = ef_index_const(c->ix, 0);
    for (unsigned i = 0, n = ef_c_atoms(c, node, atom); i < n; i++)
        sum = ef_index_add(c->ix, ef_index_scale(c->ix, sum, (int64_t)atom[i].room), index[i]);
    return sum;
}

ef_index ef_c_address(ef_c *c, ef_kid id, const ef_index *index, ef_kid *base)
{
    ef_index inner[C_MAX_ATOMS] = {0}, copy[C_MAX_ATOMS];
    while (!c->node[id].tile && ef_map_step(&c->maps, id, index, &id, inner)) {
        memcpy(copy, inner, sizeof copy);
        index = copy;
    }
    const ef_knode *node = ef_kernel_node(c->kernel, id);
    *base = id;
    if (node->op == EF_K_BUFFER)
        return ef_map_address(&c->maps, (uint32_t)node->attr, node, NULL, 0, index);
    return ef_c_tile_address(c, node, index);
}

/* ---- scalars ---- */

void ef_c_forget(ef_c *c)
{
    ef_intern_free(c->memo);
    c->memo = ef_intern_new();
    c->values.count = c->types.count = 0;
}

const char *ef_c_literal(ef_c *c, double value, c_type type)
{
    ef_strbuf number = {0};
    if (isnan(value) || isinf(value))
        return isnan(value) ? "NAN" : value > 0 ? "INFINITY" : "(-INFINITY)";
    if (type == C_INT || type == C_LONG)
        return ef_c_text(c, value < 0 ? "(%" PRId64 ")" : "%" PRId64, (int64_t)value);
    ef_strbuf_double(&number, value);
    bool whole = !strpbrk(number.text, ".e");
    const char *text =
        ef_c_text(c, value < 0 ? "(%s%s%s)" : "%s%s%s", number.text, whole ? ".0" : "", type == C_FLOAT ? "f" : "");
    ef_strbuf_free(&number);
    return text;
}

const char *ef_c_as(ef_c *c, c_value value, c_type type)
{
    if (value.literal)
        return ef_c_literal(c, value.value, type);
    if (type < C_FLOAT || value.type >= type)
        return value.text;
    return ef_c_text(c, "(%s)%s", ef_c_type_names[type], value.text);
}

static c_value name_value(ef_c *c, c_type type, const char *expression)
{
    const char *name = ef_c_text(c, "v%u", c->number++);
    ef_c_line(c, "const %s %s = %s;", ef_c_type_names[type], name, expression);
    return (c_value){name, type, false, 0};
}

static c_value load(ef_c *c, const ef_knode *node, const ef_index *index)
{
    uint32_t buffer = (uint32_t)node->attr;
    ef_dtype dtype = (ef_dtype)c->graph->buffers.at[buffer].dtype;
    const char *at = ef_c_index(c, ef_map_address(&c->maps, buffer, node, NULL, 0, index));
    const char *convert = dtype == EF_F16 ? "ef_f16(" : dtype == EF_BF16 ? "ef_bf16(" : "(";
    return name_value(c, ef_c_type(dtype), ef_c_text(c, "%s%s[%s])", convert, ef_c_buffer_name(c, buffer), at));
}

/* ---- pointwise operators ---- */

/* Functions and formulas on floats: $1 and $2 stand for the operands, ~ for the type's suffix of the C
 * library, ^ for that of the support code. */
static const char *const formulas[EF_OP_COUNT] = {
    [EF_NEG] = "-$1",
    [EF_EXP] = "ef_exp^($1)",
    [EF_EXP2] = "ef_exp2^($1)",
    [EF_LOG] = "log~($1)",
    [EF_LOG2] = "log2~($1)",
    [EF_SQRT] = "sqrt~($1)",
    [EF_RSQRT] = "1 / sqrt~($1)",
    [EF_RECIP] = "1 / $1",
    [EF_TANH] = "ef_tanh^($1)",
    [EF_SIGMOID] = "ef_sigmoid^($1)",
    [EF_ERF] = "erf~($1)",
    [EF_ABS] = "fabs~($1)",
    [EF_SIN] = "sin~($1)",
    [EF_COS] = "cos~($1)",
    [EF_FLOOR] = "floor~($1)",
    [EF_ADD] = "$1 + $2",
    [EF_SUB] = "$1 - $2",
    [EF_MUL] = "$1 * $2",
    [EF_DIV] = "$1 / $2",
    [EF_POW] = "pow~($1, $2)",
    [EF_MOD] = "ef_mod^($1, $2)",
    [EF_FLOORDIV] = "ef_floordiv^($1, $2)",
    [EF_MAX] = "ef_max^($1, $2)",
    [EF_MIN] = "ef_min^($1, $2)",
};

/* The same on integers, where they differ. */
static const char *const whole_formulas[EF_OP_COUNT] = {
    [EF_ABS] = "$1 < 0 ? -$1 : $1", [EF_FLOOR] = "$1",
    [EF_MOD] = "ef_mod($1, $2)",    [EF_FLOORDIV] = "ef_floordiv($1, $2)",
    [EF_MAX] = "$1 > $2 ? $1 : $2", [EF_MIN] = "$1 < $2 ? $1 : $2",
};

static const char *const logic[EF_OP_COUNT] = {
    [EF_LT] = "$1 < $2",  [EF_LE] = "$1 <= $2", [EF_GT] = "$1 > $2", [EF_GE] = "$1 >= $2", [EF_EQ] = "$1 == $2",
    [EF_NE] = "$1 != $2", [EF_AND] = "$1 & $2", [EF_OR] = "$1 | $2", [EF_NOT] = "!$1",
};

static const char *fill(ef_c *c, const char *formula, const char *a, const char *b, c_type type)
{
    ef_strbuf text = {0};
    for (const char *p = formula; *p; p++) {
        if (*p == '$')
            ef_strbuf_puts(&text, *++p == '1' ? a : b);
        else if (*p == '~' || *p == '^')
            ef_strbuf_puts(&text, type != C_DOUBLE ? "f" : *p == '~' ? "" : "d");
        else
            ef_strbuf_add(&text, p, 1);
    }
    const char *copy = ef_c_text(c, "%s", text.text);
    ef_strbuf_free(&text);
    return copy;
}

static const char *cast_text(ef_c *c, ef_dtype to, c_value x)
{
    switch (to) {
    case EF_BOOL: return ef_c_text(c, "%s != 0", ef_c_as(c, x, x.literal ? C_FLOAT : x.type));
    case EF_I32: return ef_c_text(c, "(int)%s", ef_c_as(c, x, x.literal ? C_INT : x.type));
    case EF_I64: return ef_c_text(c, "(int64_t)%s", ef_c_as(c, x, x.literal ? C_LONG : x.type));
    default: return ef_c_as(c, x, ef_c_type(to));
    }
}

static c_type meet(const c_value *x, unsigned first, unsigned count)
{
    ef_operand operand[3] = {{0}};
    for (unsigned i = first; i < count; i++)
        operand[i - first] = (ef_operand){x[i].literal, x[i].value, x[i].type};
    return (c_type)ef_operands_meet(operand, count - first, C_INT, C_FLOAT);
}

static c_value pointwise(ef_c *c, const ef_knode *node, const c_value *x)
{
    ef_op op = (ef_op)node->op;
    c_type type = meet(x, op == EF_SELECT, node->count), result = ef_c_type((ef_dtype)node->dtype);
    if (logic[op])
        return name_value(c, C_INT,
                          fill(c, logic[op], ef_c_as(c, x[0], type), ef_c_as(c, x[node->count > 1], type), type));
    if (op == EF_CAST)
        return name_value(c, result, cast_text(c, (ef_dtype)node->dtype, x[0]));
    if (op == EF_SELECT) {
        type = type > result || (type < C_FLOAT && result < C_FLOAT) ? type : result;
        return name_value(
            c, type,
            ef_c_text(c, "%s ? %s : %s", ef_c_as(c, x[0], C_INT), ef_c_as(c, x[1], type), ef_c_as(c, x[2], type)));
    }
    bool whole = type < C_FLOAT && result < C_FLOAT;
    if (!whole)
        type = type > result ? type : result;
    else if (op == EF_MUL)
        type = result; /* positions are narrow integers: products may not be */
    const char *formula = whole && whole_formulas[op] ? whole_formulas[op] : formulas[op];
    return name_value(c, type, fill(c, formula, ef_c_as(c, x[0], type), ef_c_as(c, x[node->count > 1], type), type));
}

/* ---- elements ---- */

static c_value positions(ef_c *c, const ef_index *index, const ef_knode *node)
{
    ef_index at = ef_map_position(&c->maps, node->dim[0].dim, index);
    bool narrow = ef_sched_dim(c->graph, c->schedule, node->dim[0].dim) < (1u << 24);
    return name_value(c, narrow ? C_INT : C_LONG,
                      ef_c_text(c, "(%s)(%s)", narrow ? "int" : "int64_t", ef_c_index(c, at)));
}

/* The part that the position lies in. Each part is read at a legal index, whichever is chosen. */
static c_value concat(ef_c *c, const ef_knode *node, const ef_index *index)
{
    unsigned dim = (unsigned)node->attr;
    ef_index position = ef_map_position(&c->maps, node->dim[dim].dim, index + ef_map_dim_at(&c->maps, node, dim)),
             start = ef_index_const(c->ix, 0);
    c_value all = {0};
    for (unsigned i = 0; i < node->count; i++) {
        const ef_knode *part = ef_kernel_node(c->kernel, node->child[i]);
        uint64_t extent = ef_sched_dim(c->graph, c->schedule, part->dim[dim].dim);
        ef_index inner[C_MAX_ATOMS] = {0}, local = ef_index_sub(c->ix, position, start);
        if (node->count > 1)
            local = ef_index_clamp(c->ix, local, extent);
        ef_map_replace(&c->maps, node, part, dim, local, index, inner);
        c_value one = ef_c_element(c, node->child[i], inner, false);
        c_type type = ef_c_type((ef_dtype)node->dtype);
        if (i == 0)
            all = one;
        else
            all = name_value(c, type,
                             ef_c_text(c, "%s < %s ? %s : %s", ef_c_index(c, position), ef_c_index(c, start),
                                       ef_c_as(c, all, type), ef_c_as(c, one, type)));
        start = ef_index_add(c->ix, start, ef_index_const(c->ix, (int64_t)extent));
    }
    return all;
}

static c_value compute(ef_c *c, ef_kid id, const ef_index *index)
{
    const ef_knode *node = ef_kernel_node(c->kernel, id);
    ef_index inner[C_MAX_ATOMS] = {0};
    ef_kid child;
    if (ef_map_step(&c->maps, id, index, &child, inner))
        return ef_c_element(c, child, inner, false);
    if (node->op == EF_K_BUFFER)
        return load(c, node, index);
    if (node->op == EF_CONST)
        return (c_value){NULL, C_FLOAT, true, ef_attr_to_number(node->attr)};
    if (node->op == EF_IOTA)
        return positions(c, index, node);
    if (node->op == EF_CONCAT)
        return concat(c, node, index);
    c_value x[3] = {{0}};
    for (unsigned i = 0; i < node->count; i++) {
        ef_map_spread(&c->maps, node, ef_kernel_node(c->kernel, node->child[i]), index, inner);
        x[i] = ef_c_element(c, node->child[i], inner, false);
    }
    return pointwise(c, node, x);
}

static c_value tile_element(ef_c *c, ef_kid id, const ef_index *index)
{
    const ef_knode *node = ef_kernel_node(c->kernel, id);
    const char *at = ef_c_index(c, ef_c_tile_address(c, node, index));
    return (c_value){ef_c_text(c, "%s[%s]", c->node[id].name, at), ef_c_type((ef_dtype)node->dtype), false, 0};
}

c_value ef_c_element(ef_c *c, ef_kid id, const ef_index *index, bool root)
{
    const ef_knode *node = ef_kernel_node(c->kernel, id);
    uint32_t key[C_MAX_ATOMS + 1] = {id};
    unsigned n = ef_c_atom_count(c, node);
    if (c->node[id].tile && !root)
        return tile_element(c, id, index);
    memcpy(key + 1, index, n * sizeof *key);
    int fresh;
    uint32_t at = ef_intern_put(c->memo, key, (n + 1) * sizeof *key, &fresh);
    if (!fresh && c->values.at[at])
        return (c_value){c->values.at[at], (c_type)c->types.at[at], false, 0};
    for (const char *nothing = NULL; c->values.count <= at;) {
        ef_vec_push(&c->values, nothing);
        ef_vec_push(&c->types, (uint8_t)0);
    }
    c_value value = compute(c, id, index);
    if (!value.literal) {
        c->values.at[at] = value.text;
        c->types.at[at] = (uint8_t)value.type;
    }
    return value;
}
