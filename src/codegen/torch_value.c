/* Expressions as PyTorch source: see torch_print.h.
 *
 * Element types: torch's promotion rules are the program's, except that tensors of rank 0 and numbers give way to all
 * others, and that integers become float32 (not `dtype`) in real functions. Operands are cast where these differ. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "codegen/torch_print.h"

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
    [EF_FLOORDIV] = "$0 // $1",
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

/* The same where torch may raise: functions that the module then begins with (torch.c). */
static const char *const integer_divisions[EF_OP_COUNT] = {
    [EF_MOD] = "_mod_int($0, $1)",
    [EF_FLOORDIV] = "_floordiv_int($0, $1)",
};

static bool is_infix(const char *template)
{
    return template[0] == '$' || template[0] == '-';
}

const char *const ef_torch_types[EF_DTYPE_COUNT] = {
    [EF_BOOL] = "torch.bool", [EF_NUM] = "torch.float64", [EF_I32] = "torch.int32", [EF_I64] = "torch.int64",
    [EF_F16] = "f16",         [EF_BF16] = "bf16",         [EF_F32] = "f32",         [EF_F64] = "f64"};

/* ---- numbers, shapes ---- */

static void print_number(double value, ef_dtype dtype, ef_strbuf *out)
{
    if (dtype == EF_BOOL)
        ef_strbuf_puts(out, value != 0 ? "True" : "False");
    else if (isnan(value))
        ef_strbuf_puts(out, "torch.nan");
    else if (isinf(value))
        ef_strbuf_puts(out, value > 0 ? "torch.inf" : "-torch.inf");
    else if (fabs(value) <= 0x1p53 && value == trunc(value))
        ef_strbuf_printf(out, "%.0f", value);
    else
        ef_strbuf_double(out, value);
}

/* "1", "n_h * n_d"; derived variables by their extents. */
static void print_dim(ef_torch *p, ef_dim dim, ef_strbuf *out)
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

static void print_shape(ef_torch *p, const ef_type_info *type, ef_strbuf *out)
{
    ef_strbuf_puts(out, "(");
    for (unsigned d = type->rank; d-- > 0;) {
        print_dim(p, type->dim[d], out);
        ef_strbuf_puts(out, d || type->rank == 1 ? ", " : "");
    }
    ef_strbuf_puts(out, ")");
}

/* Sizes as the arguments of a method: "(n_b, 1)", and a tuple when there are none. */
static void print_sizes(ef_torch *p, const ef_type_info *type, ef_strbuf *out)
{
    ef_strbuf_puts(out, type->rank ? "" : "(");
    print_shape(p, type, out);
    ef_strbuf_puts(out, type->rank ? "" : ")");
}

/* ---- operands ---- */

/* A folded number as a tensor of rank 0. */
static void print_full(ef_torch *p, ef_expr e, ef_strbuf *out)
{
    ef_dtype dtype = (ef_dtype)ef_torch_type(p, e)->dtype;
    ef_strbuf_puts(out, "torch.full((), ");
    print_number(p->node[e].value, dtype, out);
    ef_strbuf_printf(out, ", dtype=%s, device=device)", ef_torch_types[dtype]);
}

bool ef_torch_is_mean(const ef_torch *p, ef_expr e)
{
    const ef_expr *child, *x;
    ef_dag_children(p->dag, e, &child);
    if (ef_dag_op(p->dag, e) != EF_DIV || ef_dag_op(p->dag, child[0]) != EF_REDUCE || p->node[child[0]].statement ||
        !p->node[child[1]].folded)
        return false;
    uint64_t attr = ef_dag_attr(p->dag, child[0]);
    ef_dag_children(p->dag, child[0], &x);
    const ef_type_info *type = ef_torch_type(p, x[0]);
    return ef_attr_reducer(attr) == EF_RED_SUM && ef_dtype_is_float((ef_dtype)type->dtype) &&
           type->dtype == ef_torch_type(p, e)->dtype &&
           p->node[child[1]].value == (double)ef_dim_extent(p->ctx, type->dim[ef_attr_reduce_at(attr)]);
}

/* Whether the value prints as something that needs brackets inside a larger expression. */
static bool loose(const ef_torch *p, ef_expr e)
{
    if (p->node[e].folded)
        return p->node[e].value < 0;
    const char *template = templates[ef_dag_op(p->dag, e)];
    return !p->node[e].name && template && is_infix(template) && !ef_torch_is_mean(p, e);
}

void ef_torch_tensor(ef_torch *p, ef_expr e, ef_strbuf *out)
{
    if (p->node[e].folded)
        print_full(p, e, out);
    else if (p->node[e].name)
        ef_strbuf_puts(out, p->node[e].name);
    else
        ef_torch_value(p, e, out);
}

static void print_bracketed(ef_torch *p, ef_expr e, ef_strbuf *out)
{
    bool brackets = loose(p, e) && !p->node[e].folded;
    ef_strbuf_puts(out, brackets ? "(" : "");
    ef_torch_tensor(p, e, out);
    ef_strbuf_puts(out, brackets ? ")" : "");
}

/* Whether torch itself brings operand `which` to type `want`: another operand has that type and does not give way. */
static bool promotes(const ef_torch *p, const ef_expr *child, unsigned first, unsigned count, unsigned which,
                     ef_dtype want)
{
    if (ef_torch_type(p, child[which])->dtype == EF_NUM)
        return false;
    for (unsigned i = first; i < count; i++)
        if (i != which && !p->node[child[i]].folded && ef_torch_type(p, child[i])->rank &&
            ef_torch_type(p, child[i])->dtype == want)
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
static void print_operand(ef_torch *p, const ef_expr *child, unsigned first, unsigned count, unsigned which,
                          position at, ef_strbuf *out)
{
    ef_expr e = child[which];
    ef_dtype dtype = (ef_dtype)ef_torch_type(p, e)->dtype;
    bool number = p->node[e].folded && at.number;
    bool cast = !number && dtype != at.want && !promotes(p, child, first, count, which, at.want);
    bool brackets = loose(p, e) && (at.infix || cast) && (number || !p->node[e].folded);
    ef_strbuf_puts(out, brackets ? "(" : "");
    if (number)
        print_number(p->node[e].value, dtype, out);
    else
        ef_torch_tensor(p, e, out);
    ef_strbuf_puts(out, brackets ? ")" : "");
    if (cast)
        ef_strbuf_printf(out, ".to(%s)", ef_torch_types[at.want]);
}

/* ---- operators ---- */

/* The type that the operands of a pointwise operator meet in. */
static ef_dtype meeting_type(const ef_torch *p, ef_op op, const ef_expr *child, unsigned first, unsigned count,
                             ef_dtype result)
{
    ef_dtype join = EF_BOOL;
    for (unsigned i = first; i < count; i++)
        join = ef_dtype_join(join, (ef_dtype)ef_torch_type(p, child[i])->dtype);
    /* Whole numbers with a fraction: arithmetic is that of real numbers, whatever the type says. */
    for (unsigned i = first; i < count; i++)
        if ((join == EF_I32 || join == EF_I64) && p->node[child[i]].folded &&
            p->node[child[i]].value != trunc(p->node[child[i]].value))
            return EF_F64;
    return result == EF_BOOL || op == EF_SELECT ? join : result;
}

/* By a function of the module (torch.c): at other sizes it is no mean. */
static void print_mean(ef_torch *p, ef_expr sum, double count, ef_strbuf *out)
{
    const ef_expr *operand;
    ef_dag_children(p->dag, sum, &operand);
    ef_strbuf_puts(out, "_mean(");
    ef_torch_tensor(p, operand[0], out);
    ef_strbuf_printf(out, ", -%u, %.0f)", ef_attr_reduce_at(ef_dag_attr(p->dag, sum)) + 1, count);
}

static void print_pointwise(ef_torch *p, ef_expr e, ef_op op, ef_strbuf *out)
{
    const ef_expr *child;
    unsigned count = ef_dag_children(p->dag, e, &child), first = op == EF_SELECT ? 1 : 0;
    const char *template = templates[op];
    if (ef_torch_is_mean(p, e)) {
        print_mean(p, child[0], p->node[child[1]].value, out);
        return;
    }
    ef_dtype want = meeting_type(p, op, child, first, count, (ef_dtype)ef_torch_type(p, e)->dtype);
    bool has_number = false;
    for (unsigned i = first; i < count; i++)
        has_number = has_number || p->node[child[i]].folded;
    if (has_number && (op == EF_MAX || op == EF_MIN)) {
        unsigned tensor = p->node[child[0]].folded ? 1 : 0;
        template = op == EF_MAX ? (tensor ? "torch.clamp($1, min=$0)" : "torch.clamp($0, min=$1)")
                                : (tensor ? "torch.clamp($1, max=$0)" : "torch.clamp($0, max=$1)");
    }
    bool divisor = count == 2 && p->node[child[1]].folded && p->node[child[1]].value != 0;
    if (integer_divisions[op] && !divisor && !ef_dtype_is_float(want))
        template = integer_divisions[op];
    bool infix = is_infix(template);
    bool two_numbers = op == EF_SELECT && p->node[child[1]].folded && p->node[child[2]].folded;
    for (const char *c = template; *c; c++) {
        unsigned which = c[1] - (unsigned)'0';
        if (*c != '$')
            ef_strbuf_add(out, c, 1);
        else if (op == EF_SELECT && which == 0)
            ef_torch_tensor(p, child[0], out);
        else
            print_operand(p, child, first, count, which, (position){want, !(two_numbers && which == 1), infix}, out);
        c += *c == '$';
    }
}

static void print_matmul(ef_torch *p, ef_expr e, ef_strbuf *out)
{
    const ef_expr *child;
    ef_dag_children(p->dag, e, &child);
    ef_dtype want = (ef_dtype)ef_torch_type(p, e)->dtype;
    ef_strbuf_puts(out, "torch.matmul(");
    for (unsigned i = 0; i < 2; i++) { /* torch.matmul promotes nothing */
        print_operand(p, &child[i], 0, 1, 0, (position){want, false, false}, out);
        ef_strbuf_puts(out, i ? ")" : ", ");
    }
}

static void print_reduce(ef_torch *p, ef_expr e, ef_expr x, ef_strbuf *out)
{
    static const char *const functions[] = {
        [EF_RED_SUM] = "sum", [EF_RED_MAX] = "amax", [EF_RED_MIN] = "amin", [EF_RED_PROD] = "prod"};
    uint64_t attr = ef_dag_attr(p->dag, e);
    unsigned reducer = ef_attr_reducer(attr);
    ef_dtype dtype = (ef_dtype)ef_torch_type(p, e)->dtype;
    print_bracketed(p, x, out);
    ef_strbuf_printf(out, ".%s(-%u, keepdim=True", functions[reducer], ef_attr_reduce_at(attr) + 1);
    if (!ef_dtype_is_float(dtype) && (reducer == EF_RED_SUM || reducer == EF_RED_PROD))
        ef_strbuf_printf(out, ", dtype=%s", ef_torch_types[dtype]);
    ef_strbuf_puts(out, ")");
}

static void print_transpose(ef_torch *p, ef_expr e, ef_expr x, ef_strbuf *out)
{
    unsigned rank = ef_torch_type(p, e)->rank;
    print_bracketed(p, x, out);
    if (rank == 0)
        return;
    ef_strbuf_puts(out, ".permute(");
    for (unsigned i = rank; i-- > 0;)
        ef_strbuf_printf(out, "%u%s", rank - 1 - ef_perm_at(ef_dag_attr(p->dag, e), i), i ? ", " : ")");
}

static void print_broadcast(ef_torch *p, ef_expr e, ef_expr x, ef_strbuf *out)
{
    const ef_type_info *type = ef_torch_type(p, e);
    if (!p->node[x].folded) {
        print_bracketed(p, x, out);
        ef_strbuf_puts(out, ".expand");
        print_sizes(p, type, out);
        return;
    }
    ef_strbuf_puts(out, "torch.full(");
    print_shape(p, type, out);
    ef_strbuf_puts(out, ", ");
    print_number(p->node[x].value, (ef_dtype)type->dtype, out);
    ef_strbuf_printf(out, ", dtype=%s, device=device)", ef_torch_types[type->dtype]);
}

static void print_list(ef_torch *p, const ef_expr *child, unsigned count, ef_dtype want, ef_strbuf *out)
{
    for (unsigned i = 0; i < count; i++) {
        if (want == EF_DTYPE_COUNT)
            ef_torch_tensor(p, child[i], out);
        else
            print_operand(p, child, 0, count, i, (position){want, false, false}, out);
        ef_strbuf_puts(out, i + 1 < count || count == 1 ? ", " : "");
    }
}

void ef_torch_value(ef_torch *p, ef_expr e, ef_strbuf *out)
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
        ef_strbuf_printf(out, ".to(%s)", ef_torch_types[attr]);
        break;
    case EF_MATMUL: print_matmul(p, e, out); break;
    case EF_REDUCE: print_reduce(p, e, child[0], out); break;
    case EF_RESHAPE:
        print_bracketed(p, child[0], out);
        ef_strbuf_puts(out, ".reshape");
        print_sizes(p, ef_torch_type(p, e), out);
        break;
    case EF_TRANSPOSE: print_transpose(p, e, child[0], out); break;
    case EF_SLICE:
        print_bracketed(p, child[0], out);
        ef_strbuf_printf(out, ".narrow(-%u, %u, %u)", ef_slice_index(attr) + 1, ef_slice_start(attr),
                         ef_slice_stop(attr) - ef_slice_start(attr));
        break;
    case EF_CONCAT:
        ef_strbuf_puts(out, "torch.cat([");
        print_list(p, child, count, (ef_dtype)ef_torch_type(p, e)->dtype, out);
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
