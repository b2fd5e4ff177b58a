/* PyTorch source of tensor-level programs: see torch.h.
 *
 * One pass over the expressions that the outputs need, in order. What has a name in the program, several users or
 * much below it becomes a statement; the rest stands inside its user. Numbers that do not depend on inputs are folded,
 * because torch wants a tensor somewhere.
 *
 * Element types: torch's promotion rules are the program's, except that tensors of rank 0 and numbers give way to all
 * others, and that integers become float32 (not `dtype`) in real functions. Operands are cast where these differ. */
#include "codegen/torch.h"

#include <ctype.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "support/hash.h"

#define MAX_DEPTH 4 /* of what stands inside its user */

typedef struct {
    uint32_t uses;
    uint8_t depth;
    bool folded;      /* a number, `value` */
    const char *name; /* of the variable that holds it, once it is printed */
    double value;
} node_info;

typedef struct {
    const ef_program *program;
    const ef_dag *dag;
    ef_ctx *ctx;
    node_info *node;
    const char **input; /* names of the inputs */
    bool *var_used;     /* variables whose extents the code needs */
    ef_intern *taken;
    ef_arena *arena;
    ef_strbuf *out;
    uint32_t autos;
} printer;

/* Templates: $0, $1, $2 are the operands. NULL: printed by code of its own. */
static const char *const templates[EF_OP_COUNT] = {
    [EF_NEG] = "-$0",
    [EF_EXP] = "torch.exp($0)",
    [EF_EXP2] = "torch.exp2($0)",
    [EF_LOG] = "torch.log($0)",
    [EF_LOG2] = "torch.log2($0)",
    [EF_SQRT] = "torch.sqrt($0)",
    [EF_RSQRT] = "torch.rsqrt($0)",
    [EF_RECIP] = "torch.reciprocal($0)",
    [EF_TANH] = "torch.tanh($0)",
    [EF_SIGMOID] = "torch.sigmoid($0)",
    [EF_ERF] = "torch.erf($0)",
    [EF_ABS] = "torch.abs($0)",
    [EF_SIN] = "torch.sin($0)",
    [EF_COS] = "torch.cos($0)",
    [EF_FLOOR] = "torch.floor($0)",
    [EF_NOT] = "torch.logical_not($0)",
    [EF_ADD] = "$0 + $1",
    [EF_SUB] = "$0 - $1",
    [EF_MUL] = "$0 * $1",
    [EF_DIV] = "$0 / $1",
    [EF_POW] = "torch.pow($0, $1)",
    [EF_MOD] = "torch.remainder($0, $1)",
    [EF_MAX] = "torch.maximum($0, $1)",
    [EF_MIN] = "torch.minimum($0, $1)",
    [EF_LT] = "$0 < $1",
    [EF_LE] = "$0 <= $1",
    [EF_GT] = "$0 > $1",
    [EF_GE] = "$0 >= $1",
    [EF_EQ] = "$0 == $1",
    [EF_NE] = "$0 != $1",
    [EF_AND] = "$0 & $1",
    [EF_OR] = "$0 | $1",
    [EF_SELECT] = "torch.where($0, $1, $2)",
    [EF_MATMUL] = "torch.matmul($0, $1)",
};

static const char *const torch_types[EF_DTYPE_COUNT] = {
    [EF_BOOL] = "torch.bool", [EF_NUM] = "torch.float64", [EF_I32] = "torch.int32", [EF_I64] = "torch.int64",
    [EF_F16] = "f16",         [EF_BF16] = "bf16",         [EF_F32] = "f32",         [EF_F64] = "f64"};

static void print_value(printer *p, ef_expr e, ef_strbuf *out);

static const ef_type_info *type_of(const printer *p, ef_expr e)
{
    return ef_type_at(p->ctx, ef_dag_type(p->dag, e));
}

/* ---- what is needed, and how often ---- */

static bool supported(const printer *p, ef_expr e, ef_diag *diag)
{
    ef_op op = ef_dag_op(p->dag, e);
    if (ef_ops[op].class == EF_PARALLEL || op == EF_TILE_MATMUL || op == EF_REDUCE_P)
        return ef_fail(diag, "%s is tiled (%s): only whole-tensor programs print as PyTorch", p->program->name,
                       ef_ops[op].name);
    uint64_t attr = ef_dag_attr(p->dag, e);
    if (op == EF_REDUCE && (ef_attr_reducer(attr) > EF_RED_PROD || ef_attr_reduce_at(attr) == EF_FIRST))
        return ef_fail(diag, "%s has a reduction that only tiled programs have", p->program->name);
    return true;
}

static void fold(printer *p, ef_expr e)
{
    ef_op op = ef_dag_op(p->dag, e);
    node_info *n = &p->node[e];
    const ef_expr *child;
    unsigned count = ef_dag_children(p->dag, e, &child);
    double x[3] = {0};
    if (op == EF_CONST) {
        n->folded = true;
        n->value = ef_attr_to_number(ef_dag_attr(p->dag, e));
    }
    if (!ef_op_pointwise(op))
        return;
    n->folded = true;
    for (unsigned i = 0; i < count; i++) {
        n->folded = n->folded && p->node[child[i]].folded;
        x[i] = p->node[child[i]].value;
    }
    if (n->folded)
        n->value = ef_op_apply(op, ef_dag_attr(p->dag, e), x);
}

/* Counts uses (children have smaller numbers than their users), then folds and measures depth upwards. */
static bool survey(printer *p, ef_diag *diag)
{
    uint32_t count = ef_dag_count(p->dag);
    for (uint32_t i = 0; i < p->program->outputs; i++)
        p->node[p->program->output[i].expr].uses++;
    for (ef_expr e = count; e-- > 0;) {
        const ef_expr *child;
        if (!p->node[e].uses)
            continue;
        if (!supported(p, e, diag))
            return false;
        for (unsigned i = 0, n = ef_dag_children(p->dag, e, &child); i < n; i++)
            p->node[child[i]].uses++;
    }
    for (ef_expr e = 0; e < count; e++)
        if (p->node[e].uses)
            fold(p, e);
    return true;
}

/* ---- names ---- */

/* A Python identifier that nothing else has. */
static const char *fresh_name(printer *p, const char *wanted)
{
    static const char *const reserved[] = {
        "torch",   "dtype", "sizes", "device", "t",     "f16",      "bf16", "f32",   "f64",    "and",      "as",
        "assert",  "async", "await", "break",  "class", "continue", "def",  "del",   "elif",   "else",     "except",
        "finally", "for",   "from",  "global", "if",    "import",   "in",   "is",    "lambda", "nonlocal", "not",
        "or",      "pass",  "raise", "return", "try",   "while",    "with", "yield", "None",   "True",     "False"};
    ef_strbuf text = {0};
    ef_strbuf_puts(&text, wanted);
    if (!text.length || isdigit((unsigned char)text.text[0]) || (wanted[0] == 'n' && wanted[1] == '_'))
        ef_strbuf_puts(&text, "_");
    for (size_t i = 0; i < sizeof reserved / sizeof *reserved; i++)
        if (strcmp(text.text, reserved[i]) == 0)
            ef_strbuf_puts(&text, "_");
    while (ef_intern_find(p->taken, text.text, text.length) != UINT32_MAX)
        ef_strbuf_puts(&text, "_");
    ef_intern_put(p->taken, text.text, text.length, NULL);
    const char *name = ef_arena_strndup(p->arena, text.text, text.length);
    ef_strbuf_free(&text);
    return name;
}

static void name_inputs(printer *p)
{
    for (uint32_t i = 0; i < p->program->inputs; i++) {
        p->input[i] = fresh_name(p, ef_input_name(p->ctx, p->program->input[i]));
        for (ef_expr e = 0; e < ef_dag_count(p->dag); e++)
            if (ef_dag_op(p->dag, e) == EF_INPUT && ef_dag_attr(p->dag, e) == p->program->input[i])
                p->node[e].name = p->input[i];
    }
}

/* ---- numbers, shapes ---- */

static void print_number(double value, ef_dtype dtype, ef_strbuf *out)
{
    if (dtype == EF_BOOL)
        ef_strbuf_puts(out, value != 0 ? "True" : "False");
    else if (isnan(value))
        ef_strbuf_puts(out, "torch.nan");
    else if (isinf(value))
        ef_strbuf_puts(out, value > 0 ? "torch.inf" : "-torch.inf");
    else if (fabs(value) < 1e9 && value == trunc(value))
        ef_strbuf_printf(out, "%.0f", value);
    else
        ef_strbuf_double(out, value);
}

/* "1", "n_h * n_d"; derived variables by their extents. */
static void print_dim(printer *p, ef_dim dim, ef_strbuf *out)
{
    const ef_var *atom;
    unsigned count = ef_dim_atoms(p->ctx, ef_dim_base(p->ctx, dim), &atom);
    if (!count)
        ef_strbuf_puts(out, "1");
    for (unsigned i = 0; i < count; i++) {
        const ef_var_info *info = ef_var_at(p->ctx, atom[i]);
        ef_strbuf_puts(out, i ? " * " : "");
        if (info->kind == EF_VAR_NAMED) {
            ef_strbuf_printf(out, "n_%s", info->name);
            p->var_used[atom[i]] = true;
        } else {
            ef_strbuf_printf(out, "%" PRIu64, ef_dim_extent(p->ctx, ef_dim_of_var(p->ctx, atom[i])));
        }
    }
}

static void print_shape(printer *p, const ef_type_info *type, ef_strbuf *out)
{
    ef_strbuf_puts(out, "(");
    for (unsigned d = type->rank; d-- > 0;) {
        print_dim(p, type->dim[d], out);
        ef_strbuf_puts(out, d || type->rank == 1 ? ", " : "");
    }
    ef_strbuf_puts(out, ")");
}

/* ---- operands ---- */

/* A folded number as a tensor of rank 0. */
static void print_full(printer *p, ef_expr e, ef_strbuf *out)
{
    ef_dtype dtype = (ef_dtype)type_of(p, e)->dtype;
    ef_strbuf_puts(out, "torch.full((), ");
    print_number(p->node[e].value, dtype, out);
    ef_strbuf_printf(out, ", dtype=%s, device=device)", torch_types[dtype]);
}

/* Whether the value prints as something that needs brackets inside a larger expression. */
static bool loose(const printer *p, ef_expr e)
{
    if (p->node[e].folded)
        return p->node[e].value < 0;
    const char *template = templates[ef_dag_op(p->dag, e)];
    return !p->node[e].name && template && strncmp(template, "torch.", 6) != 0;
}

static void print_tensor(printer *p, ef_expr e, ef_strbuf *out)
{
    if (p->node[e].folded)
        print_full(p, e, out);
    else if (p->node[e].name)
        ef_strbuf_puts(out, p->node[e].name);
    else
        print_value(p, e, out);
}

static void print_bracketed(printer *p, ef_expr e, ef_strbuf *out)
{
    bool brackets = loose(p, e) && !p->node[e].folded;
    ef_strbuf_puts(out, brackets ? "(" : "");
    print_tensor(p, e, out);
    ef_strbuf_puts(out, brackets ? ")" : "");
}

/* Whether torch itself brings operand `which` to type `want`: another operand has that type and does not give way. */
static bool promotes(const printer *p, const ef_expr *child, unsigned first, unsigned count, unsigned which,
                     ef_dtype want)
{
    if (type_of(p, child[which])->dtype == EF_NUM)
        return false;
    for (unsigned i = first; i < count; i++)
        if (i != which && !p->node[child[i]].folded && type_of(p, child[i])->rank &&
            type_of(p, child[i])->dtype == want)
            return true;
    return false;
}

/* How an operand stands in its operator. */
typedef struct {
    ef_dtype want; /* the type that the operator computes in */
    bool number;   /* a plain number is accepted */
    bool infix;    /* beside others, without brackets of the operator's own */
} position;

/* Operand `which` of `count`, the first of which may be a condition (`first` = 1). */
static void print_operand(printer *p, const ef_expr *child, unsigned first, unsigned count, unsigned which, position at,
                          ef_strbuf *out)
{
    ef_expr e = child[which];
    ef_dtype dtype = (ef_dtype)type_of(p, e)->dtype;
    bool number = p->node[e].folded && at.number;
    bool cast = !number && dtype != at.want && !promotes(p, child, first, count, which, at.want);
    bool brackets = loose(p, e) && (at.infix || cast) && (number || !p->node[e].folded);
    ef_strbuf_puts(out, brackets ? "(" : "");
    if (number)
        print_number(p->node[e].value, dtype, out);
    else
        print_tensor(p, e, out);
    ef_strbuf_puts(out, brackets ? ")" : "");
    if (cast)
        ef_strbuf_printf(out, ".to(%s)", torch_types[at.want]);
}

/* ---- operators ---- */

/* The type that the operands of a pointwise operator meet in. */
static ef_dtype meeting_type(const printer *p, ef_op op, const ef_expr *child, unsigned first, unsigned count,
                             ef_dtype result)
{
    ef_dtype join = EF_BOOL;
    for (unsigned i = first; i < count; i++)
        join = ef_dtype_join(join, (ef_dtype)type_of(p, child[i])->dtype);
    /* Whole numbers with a fraction: arithmetic is that of real numbers, whatever the type says. */
    for (unsigned i = first; i < count; i++)
        if ((join == EF_I32 || join == EF_I64) && p->node[child[i]].folded &&
            p->node[child[i]].value != trunc(p->node[child[i]].value))
            return EF_F64;
    return result == EF_BOOL || op == EF_SELECT ? join : result;
}

static void print_pointwise(printer *p, ef_expr e, ef_op op, ef_strbuf *out)
{
    const ef_expr *child;
    unsigned count = ef_dag_children(p->dag, e, &child), first = op == EF_SELECT ? 1 : 0;
    const char *template = templates[op];
    ef_dtype want = meeting_type(p, op, child, first, count, (ef_dtype)type_of(p, e)->dtype);
    bool has_number = false;
    for (unsigned i = first; i < count; i++)
        has_number = has_number || p->node[child[i]].folded;
    if (has_number && (op == EF_MAX || op == EF_MIN)) {
        unsigned tensor = p->node[child[0]].folded ? 1 : 0;
        template = op == EF_MAX ? (tensor ? "torch.clamp($1, min=$0)" : "torch.clamp($0, min=$1)")
                                : (tensor ? "torch.clamp($1, max=$0)" : "torch.clamp($0, max=$1)");
    }
    bool infix = strncmp(template, "torch.", 6) != 0;
    bool two_numbers = op == EF_SELECT && p->node[child[1]].folded && p->node[child[2]].folded;
    for (const char *c = template; *c; c++) {
        unsigned which = c[1] - (unsigned)'0';
        if (*c != '$')
            ef_strbuf_add(out, c, 1);
        else if (op == EF_SELECT && which == 0)
            print_tensor(p, child[0], out);
        else
            print_operand(p, child, first, count, which, (position){want, !(two_numbers && which == 1), infix}, out);
        c += *c == '$';
    }
}

static void print_matmul(printer *p, ef_expr e, ef_strbuf *out)
{
    const ef_expr *child;
    ef_dag_children(p->dag, e, &child);
    ef_dtype want = (ef_dtype)type_of(p, e)->dtype;
    ef_strbuf_puts(out, "torch.matmul(");
    for (unsigned i = 0; i < 2; i++) { /* torch.matmul promotes nothing */
        print_operand(p, &child[i], 0, 1, 0, (position){want, false, false}, out);
        ef_strbuf_puts(out, i ? ")" : ", ");
    }
}

static void print_reduce(printer *p, ef_expr e, ef_expr x, ef_strbuf *out)
{
    static const char *const functions[] = {
        [EF_RED_SUM] = "sum", [EF_RED_MAX] = "amax", [EF_RED_MIN] = "amin", [EF_RED_PROD] = "prod"};
    uint64_t attr = ef_dag_attr(p->dag, e);
    unsigned reducer = ef_attr_reducer(attr);
    ef_dtype dtype = (ef_dtype)type_of(p, e)->dtype;
    print_bracketed(p, x, out);
    ef_strbuf_printf(out, ".%s(-%u, keepdim=True", functions[reducer], ef_attr_reduce_at(attr) + 1);
    if (!ef_dtype_is_float(dtype) && (reducer == EF_RED_SUM || reducer == EF_RED_PROD))
        ef_strbuf_printf(out, ", dtype=%s", torch_types[dtype]);
    ef_strbuf_puts(out, ")");
}

static void print_transpose(printer *p, ef_expr e, ef_expr x, ef_strbuf *out)
{
    unsigned rank = type_of(p, e)->rank;
    print_bracketed(p, x, out);
    ef_strbuf_puts(out, ".permute(");
    for (unsigned i = rank; i-- > 0;)
        ef_strbuf_printf(out, "%u%s", rank - 1 - ef_perm_at(ef_dag_attr(p->dag, e), i), i ? ", " : ")");
}

static void print_broadcast(printer *p, ef_expr e, ef_expr x, ef_strbuf *out)
{
    const ef_type_info *type = type_of(p, e);
    if (!p->node[x].folded) {
        print_bracketed(p, x, out);
        ef_strbuf_puts(out, ".expand");
        print_shape(p, type, out);
        return;
    }
    ef_strbuf_puts(out, "torch.full(");
    print_shape(p, type, out);
    ef_strbuf_puts(out, ", ");
    print_number(p->node[x].value, (ef_dtype)type->dtype, out);
    ef_strbuf_printf(out, ", dtype=%s, device=device)", torch_types[type->dtype]);
}

static void print_list(printer *p, const ef_expr *child, unsigned count, ef_dtype want, ef_strbuf *out)
{
    for (unsigned i = 0; i < count; i++) {
        if (want == EF_DTYPE_COUNT)
            print_tensor(p, child[i], out);
        else
            print_operand(p, child, 0, count, i, (position){want, false, false}, out);
        ef_strbuf_puts(out, i + 1 < count || count == 1 ? ", " : "");
    }
}

static void print_value(printer *p, ef_expr e, ef_strbuf *out)
{
    const ef_expr *child;
    unsigned count = ef_dag_children(p->dag, e, &child);
    ef_op op = ef_dag_op(p->dag, e);
    uint64_t attr = ef_dag_attr(p->dag, e);
    switch (op) {
    case EF_IOTA:
        ef_strbuf_puts(out, "torch.arange(");
        print_dim(p, (ef_dim)attr, out);
        ef_strbuf_puts(out, ", device=device)");
        break;
    case EF_CAST:
        print_bracketed(p, child[0], out);
        ef_strbuf_printf(out, ".to(%s)", torch_types[attr]);
        break;
    case EF_MATMUL: print_matmul(p, e, out); break;
    case EF_REDUCE: print_reduce(p, e, child[0], out); break;
    case EF_RESHAPE:
        print_bracketed(p, child[0], out);
        ef_strbuf_puts(out, ".reshape");
        print_shape(p, type_of(p, e), out);
        break;
    case EF_TRANSPOSE: print_transpose(p, e, child[0], out); break;
    case EF_SLICE:
        print_bracketed(p, child[0], out);
        ef_strbuf_printf(out, ".narrow(-%u, %u, %u)", ef_slice_index(attr) + 1, ef_slice_start(attr),
                         ef_slice_stop(attr) - ef_slice_start(attr));
        break;
    case EF_CONCAT:
        ef_strbuf_puts(out, "torch.cat([");
        print_list(p, child, count, (ef_dtype)type_of(p, e)->dtype, out);
        ef_strbuf_printf(out, "], -%u)", (unsigned)attr + 1);
        break;
    case EF_BROADCAST: print_broadcast(p, e, child[0], out); break;
    case EF_TUPLE:
        ef_strbuf_puts(out, "(");
        print_list(p, child, count, EF_DTYPE_COUNT, out);
        ef_strbuf_puts(out, ")");
        break;
    case EF_GET:
        print_bracketed(p, child[0], out);
        ef_strbuf_printf(out, "[%u]", (unsigned)attr);
        break;
    default: print_pointwise(p, e, op, out); break;
    }
}

/* ---- statements ---- */

static const char *statement_name(const printer *p, ef_expr e)
{
    for (uint32_t i = 0; i < p->program->statements; i++)
        if (p->program->statement[i].expr == e)
            return p->program->statement[i].name;
    for (uint32_t i = 0; i < p->program->outputs; i++)
        if (p->program->output[i].expr == e)
            return p->program->output[i].name;
    return NULL;
}

static void print_statement(printer *p, ef_expr e)
{
    node_info *n = &p->node[e];
    const ef_expr *child;
    const char *name = statement_name(p, e);
    for (unsigned i = 0, count = ef_dag_children(p->dag, e, &child); i < count; i++)
        if (!p->node[child[i]].name && p->node[child[i]].depth >= n->depth)
            n->depth = (uint8_t)(p->node[child[i]].depth + 1);
    if (!name && n->uses == 1 && n->depth < MAX_DEPTH)
        return;
    ef_strbuf text = {0};
    print_value(p, e, &text);
    if (!name) {
        ef_strbuf automatic = {0};
        ef_strbuf_printf(&automatic, "t%u", p->autos++);
        n->name = fresh_name(p, automatic.text);
        ef_strbuf_free(&automatic);
    } else {
        n->name = fresh_name(p, name);
    }
    ef_strbuf_printf(p->out, "    %s = %s\n", n->name, text.text);
    ef_strbuf_free(&text);
}

static void print_outputs(printer *p)
{
    ef_strbuf_puts(p->out, "    return ");
    for (uint32_t i = 0; i < p->program->outputs; i++) {
        ef_expr e = p->program->output[i].expr;
        const ef_type_info *type = type_of(p, e);
        print_tensor(p, e, p->out);
        /* A number that met nothing has no type yet. */
        ef_strbuf_puts(p->out, type->dtype == EF_NUM && !type->is_tuple ? ".to(f32)" : "");
        ef_strbuf_puts(p->out, i + 1 < p->program->outputs ? ", " : "\n");
    }
}

/* ---- what is said of inputs and outputs ---- */

static void print_signature(const printer *p, const char *title, const char *name, ef_type id)
{
    const ef_type_info *type = ef_type_at(p->ctx, id);
    if (title)
        ef_strbuf_printf(p->out, "%s = [\n", title);
    ef_strbuf_printf(p->out, "    (\"%s\", \"%s\", (", name,
                     type->dtype == EF_NUM ? "f32" : ef_dtype_names[type->dtype]);
    for (unsigned d = type->rank; d-- > 0;)
        ef_strbuf_printf(p->out, "%" PRIu64 "%s", ef_dim_extent(p->ctx, type->dim[d]),
                         d || type->rank == 1 ? ", " : "");
    ef_strbuf_puts(p->out, ")),\n");
}

static void print_signatures(const printer *p)
{
    for (uint32_t i = 0; i < p->program->inputs; i++)
        print_signature(p, i ? NULL : "INPUTS", ef_input_name(p->ctx, p->program->input[i]),
                        ef_input_type(p->ctx, p->program->input[i]));
    ef_strbuf_puts(p->out, p->program->inputs ? "]\n" : "INPUTS = []\n");
    for (uint32_t i = 0; i < p->program->outputs; i++)
        print_signature(p, i ? NULL : "OUTPUTS", p->program->output[i].name,
                        ef_dag_type(p->dag, p->program->output[i].expr));
    ef_strbuf_puts(p->out, "]\n");
}

static bool dim_has(const printer *p, ef_dim dim, ef_var var)
{
    const ef_var *atom;
    for (unsigned i = 0, count = ef_dim_atoms(p->ctx, dim, &atom); i < count; i++)
        if (atom[i] == var)
            return true;
    return false;
}

/* Whether a part, a twin or the like of the variable stands in the dimension. */
static bool dim_derives(const printer *p, ef_dim dim, ef_var var)
{
    const ef_var *atom;
    for (unsigned i = 0, count = ef_dim_atoms(p->ctx, dim, &atom); i < count; i++) {
        const ef_var_info *info = ef_var_at(p->ctx, atom[i]);
        const ef_dim *part = &info->parent;
        unsigned parts = info->kind == EF_VAR_CONCAT  ? ef_dims_at(p->ctx, info->parts, &part)
                         : info->kind == EF_VAR_NAMED ? 0
                                                      : 1;
        for (unsigned k = 0; k < parts; k++)
            if (dim_has(p, part[k], var) || dim_derives(p, part[k], var))
                return true;
    }
    return false;
}

/* Whether a node mixes positions along the variable, or knows which one it is at. */
static bool mixes(const printer *p, ef_expr e, ef_var var)
{
    const ef_expr *child;
    unsigned count = ef_dag_children(p->dag, e, &child);
    uint64_t attr = ef_dag_attr(p->dag, e);
    for (unsigned d = 0; d < type_of(p, e)->rank; d++)
        if (dim_derives(p, type_of(p, e)->dim[d], var))
            return true;
    switch (ef_dag_op(p->dag, e)) {
    case EF_IOTA: return dim_has(p, (ef_dim)attr, var);
    case EF_MATMUL: return dim_has(p, type_of(p, child[0])->dim[0], var);
    case EF_REDUCE: return dim_has(p, type_of(p, child[0])->dim[ef_attr_reduce_at(attr)], var);
    case EF_SLICE: return dim_has(p, type_of(p, child[0])->dim[ef_slice_index(attr)], var);
    case EF_CONCAT:
        for (unsigned i = 0; i < count; i++)
            if (dim_has(p, type_of(p, child[i])->dim[attr], var))
                return true;
        return false;
    default: return false;
    }
}

/* Where the variable alone is a dimension of the type, from the first; -1 nowhere, -2 not so simple. */
static int place_of(const printer *p, ef_type id, ef_var var)
{
    const ef_type_info *type = ef_type_at(p->ctx, id);
    const ef_var *atom;
    int place = type->is_tuple ? -2 : -1;
    for (unsigned d = 0; d < type->rank; d++)
        if (dim_has(p, type->dim[d], var))
            place = place == -1 && ef_dim_atoms(p->ctx, type->dim[d], &atom) == 1 ? (int)(type->rank - 1 - d) : -2;
    return place;
}

static bool is_batch(const printer *p, ef_var var)
{
    if (ef_var_at(p->ctx, var)->kind != EF_VAR_NAMED)
        return false;
    for (ef_expr e = 0; e < ef_dag_count(p->dag); e++)
        if (p->node[e].uses && mixes(p, e, var))
            return false;
    for (uint32_t i = 0; i < p->program->inputs; i++)
        if (place_of(p, ef_input_type(p->ctx, p->program->input[i]), var) == -2)
            return false;
    for (uint32_t i = 0; i < p->program->outputs; i++)
        if (place_of(p, ef_dag_type(p->dag, p->program->output[i].expr), var) < 0)
            return false;
    return true;
}

static void print_batches(const printer *p)
{
    ef_strbuf_puts(p->out, "BATCH = {\n");
    for (ef_var var = 0; var < ef_var_count(p->ctx); var++) {
        if (!is_batch(p, var))
            continue;
        ef_strbuf_printf(p->out, "    \"%s\": ([", ef_var_at(p->ctx, var)->name);
        for (uint32_t i = 0; i < p->program->inputs; i++) {
            int place = place_of(p, ef_input_type(p->ctx, p->program->input[i]), var);
            ef_strbuf_puts(p->out, i ? ", " : "");
            if (place < 0)
                ef_strbuf_puts(p->out, "None");
            else
                ef_strbuf_printf(p->out, "%d", place);
        }
        ef_strbuf_puts(p->out, "], [");
        for (uint32_t i = 0; i < p->program->outputs; i++)
            ef_strbuf_printf(p->out, "%s%d", i ? ", " : "",
                             place_of(p, ef_dag_type(p->dag, p->program->output[i].expr), var));
        ef_strbuf_puts(p->out, "]),\n");
    }
    ef_strbuf_puts(p->out, "}\n");
}

/* ---- the module ---- */

static void print_comment(const printer *p)
{
    ef_strbuf_printf(p->out, "# Program %s as plain PyTorch.\n", p->program->name);
    for (const char *c = p->program->comment; *c;) {
        size_t length = strcspn(c, "\n");
        ef_strbuf_printf(p->out, "%s%.*s\n", *c == '#' ? "" : "# ", (int)length, c);
        c += length + (c[length] == '\n');
    }
    ef_strbuf_puts(p->out, "import torch\n\n");
}

static void print_input_names(const printer *p)
{
    for (uint32_t i = 0; i < p->program->inputs; i++)
        ef_strbuf_printf(p->out, "%s%s", i ? ", " : "", p->input[i]);
}

/* What the statements use: the extents of dimensions, the device, element types. */
static void print_prologue(printer *p, const char *body)
{
    bool types = false;
    if (p->program->inputs)
        ef_strbuf_printf(p->out, "    device = %s.device\n", p->input[0]);
    else
        ef_strbuf_puts(p->out, "    device = torch.get_default_device()\n");
    for (ef_dtype t = EF_F16; t <= EF_F64; t++) {
        ef_strbuf use = {0};
        ef_strbuf_printf(&use, "(%s)", torch_types[t]);
        types = types || strstr(body, use.text);
        use.length = 0;
        ef_strbuf_printf(&use, "dtype=%s,", torch_types[t]);
        types = types || strstr(body, use.text);
        ef_strbuf_free(&use);
    }
    if (types)
        ef_strbuf_puts(p->out, "    f16, bf16, f32, f64 = "
                               "(dtype or t for t in (torch.float16, torch.bfloat16, torch.float32, torch.float64))\n");
    for (ef_var var = 0; var < ef_var_count(p->ctx); var++)
        if (p->var_used[var])
            ef_strbuf_printf(p->out, "    n_%s = sizes.get(\"%s\", %" PRIu64 ")\n", ef_var_at(p->ctx, var)->name,
                             ef_var_at(p->ctx, var)->name, ef_var_at(p->ctx, var)->extent);
    if (!p->program->inputs)
        return;
    ef_strbuf_puts(p->out, "    [");
    print_input_names(p);
    ef_strbuf_puts(p->out, "] = [t.to(dtype) if dtype and t.is_floating_point() else t for t in [");
    print_input_names(p);
    ef_strbuf_puts(p->out, "]]\n");
}

static void print_module(printer *p, const char *name)
{
    /* The statements are printed first, because only they say which extents they need. */
    ef_strbuf *module = p->out, body = {0};
    name_inputs(p);
    p->out = &body;
    for (ef_expr e = 0; e < ef_dag_count(p->dag); e++)
        if (p->node[e].uses && !p->node[e].folded && ef_dag_op(p->dag, e) != EF_INPUT)
            print_statement(p, e);
    print_outputs(p);
    p->out = module;
    print_comment(p);
    print_signatures(p);
    print_batches(p);
    ef_strbuf_printf(p->out, "\n\ndef %s(", name);
    print_input_names(p);
    ef_strbuf_printf(p->out, "%sdtype=None, sizes={}):\n", p->program->inputs ? ", " : "");
    print_prologue(p, body.text);
    ef_strbuf_puts(p->out, body.text);
    ef_strbuf_free(&body);
}

bool ef_codegen_torch(const ef_program *program, const char *name, ef_strbuf *out, ef_diag *diag)
{
    ef_arena *arena = ef_arena_new();
    printer p = {.program = program,
                 .dag = program->dag,
                 .ctx = ef_dag_ctx(program->dag),
                 .taken = ef_intern_new(),
                 .arena = arena,
                 .out = out};
    p.node = ef_arena_alloc(arena, ef_dag_count(p.dag) * sizeof *p.node);
    p.input = ef_arena_alloc(arena, (program->inputs + 1) * sizeof *p.input);
    p.var_used = ef_arena_alloc(arena, (ef_var_count(p.ctx) + 1) * sizeof *p.var_used);
    bool fine = survey(&p, diag);
    if (fine)
        print_module(&p, name);
    ef_intern_free(p.taken);
    ef_arena_free(arena);
    return fine;
}
