/* Canonical forms: see canonical.h. */
#include "tune/canonical.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <xxhash.h>

#include "support/vec.h"

typedef struct {
    const ef_program *program;
    ef_ctx *ctx;
    ef_strbuf *out;
    uint32_t *var, vars;   /* by variable: its number + 1 */
    uint32_t *expr, exprs; /* by expression: the same */
} printer;

static void print_dim(printer *p, ef_dim dim);

/* Says what a variable is before it is first used. */
static void number_var(printer *p, ef_var var)
{
    const ef_var_info *info = ef_var_at(p->ctx, var);
    const ef_dim *part;
    if (p->var[var])
        return;
    ef_strbuf text = {0}, *out = p->out;
    p->out = &text;
    switch (info->kind) {
    case EF_VAR_SLICE:
        ef_strbuf_printf(&text, "slice %u %u ", info->start, info->stop);
        print_dim(p, info->parent);
        break;
    case EF_VAR_CONCAT:
        ef_strbuf_puts(&text, "concat");
        for (unsigned i = 0, n = ef_dims_at(p->ctx, info->parts, &part); i < n; i++) {
            ef_strbuf_puts(&text, " ");
            print_dim(p, part[i]);
        }
        break;
    default: ef_strbuf_printf(&text, "%" PRIu64, info->extent); break;
    }
    p->out = out;
    p->var[var] = ++p->vars;
    ef_strbuf_printf(out, "{d%u = %s}", p->vars - 1, text.text);
    ef_strbuf_free(&text);
}

static void print_dim(printer *p, ef_dim dim)
{
    const ef_var *atom;
    unsigned count = ef_dim_atoms(p->ctx, dim, &atom);
    if (count == 0)
        ef_strbuf_puts(p->out, "1");
    for (unsigned i = 0; i < count; i++) {
        number_var(p, atom[i]);
        ef_strbuf_printf(p->out, "%sd%u", i ? "*" : "", p->var[atom[i]] - 1);
    }
}

static void print_type(printer *p, ef_type type)
{
    const ef_type_info *info = ef_type_at(p->ctx, type);
    ef_strbuf_puts(p->out, info->is_tuple ? "(" : ef_dtype_names[info->dtype]);
    for (unsigned i = 0; i < info->fields; i++)
        print_type(p, info->field[i]);
    ef_strbuf_puts(p->out, info->is_tuple ? ")" : "[");
    for (unsigned i = info->rank; !info->is_tuple && i-- > 0;) {
        print_dim(p, info->dim[i]);
        ef_strbuf_puts(p->out, i ? ", " : "");
    }
    ef_strbuf_puts(p->out, info->is_tuple ? "" : "]");
}

static uint32_t input_number(const printer *p, uint64_t input)
{
    uint32_t i = 0;
    while (i < p->program->inputs && p->program->input[i] != input)
        i++;
    return i;
}

static void print_attr(printer *p, ef_op op, uint64_t attr)
{
    const ef_dim *dim;
    ef_strbuf_puts(p->out, "[");
    switch (ef_ops[op].attr) {
    case EF_ATTR_NONE: break;
    case EF_ATTR_INPUT: ef_strbuf_printf(p->out, "%u", input_number(p, attr)); break;
    case EF_ATTR_NUMBER: ef_strbuf_double(p->out, ef_attr_to_number(attr)); break;
    case EF_ATTR_DIM: print_dim(p, (ef_dim)attr); break;
    case EF_ATTR_DIMS:
        for (unsigned i = 0, n = ef_dims_at(p->ctx, (ef_dims)attr, &dim); i < n; i++) {
            print_dim(p, dim[i]);
            ef_strbuf_puts(p->out, ",");
        }
        break;
    case EF_ATTR_REDUCE:
        ef_reducer_print(p->ctx, ef_attr_reducer(attr), p->out);
        ef_strbuf_printf(p->out, " %u", ef_attr_reduce_at(attr));
        break;
    default: ef_strbuf_printf(p->out, "%" PRIu64, attr); break;
    }
    ef_strbuf_puts(p->out, "]");
}

/* Operands first; the walk keeps its own stack, because programs may be deep. */
static void print_expr(printer *p, ef_expr root)
{
    EF_VEC(ef_expr) stack = {0};
    ef_vec_push(&stack, root);
    while (stack.count) {
        const ef_expr *child;
        ef_expr e = stack.at[stack.count - 1];
        unsigned count = ef_dag_children(p->program->dag, e, &child);
        uint32_t before = stack.count;
        for (unsigned i = count; !p->expr[e] && i-- > 0;)
            if (!p->expr[child[i]])
                ef_vec_push(&stack, child[i]);
        if (stack.count > before)
            continue;
        stack.count--;
        if (p->expr[e])
            continue;
        ef_op op = ef_dag_op(p->program->dag, e);
        ef_strbuf_puts(p->out, ef_ops[op].name);
        print_attr(p, op, ef_dag_attr(p->program->dag, e));
        for (unsigned i = 0; i < count; i++)
            ef_strbuf_printf(p->out, " %%%u", p->expr[child[i]] - 1);
        ef_strbuf_puts(p->out, ": ");
        print_type(p, ef_dag_type(p->program->dag, e));
        p->expr[e] = ++p->exprs;
        ef_strbuf_printf(p->out, " = %%%u\n", p->exprs - 1);
    }
    ef_vec_free(&stack);
}

void ef_canonical_print(const ef_program *program, ef_strbuf *out)
{
    printer p = {.program = program, .ctx = ef_dag_ctx(program->dag), .out = out};
    p.var = ef_xcalloc(ef_var_count(p.ctx) + 1, sizeof *p.var);
    p.expr = ef_xcalloc(ef_dag_count(program->dag) + 1, sizeof *p.expr);
    for (uint32_t i = 0; i < program->inputs; i++) {
        ef_strbuf_puts(out, "input ");
        print_type(&p, ef_input_type(p.ctx, program->input[i]));
        ef_strbuf_puts(out, "\n");
    }
    for (uint32_t i = 0; i < program->outputs; i++) {
        print_expr(&p, program->output[i].expr);
        ef_strbuf_printf(out, "output %%%u\n", p.expr[program->output[i].expr] - 1);
    }
    free(p.var);
    free(p.expr);
}

void ef_canonical_hash(const ef_program *program, char hash[33])
{
    ef_strbuf text = {0};
    ef_canonical_print(program, &text);
    XXH128_hash_t h = XXH3_128bits(text.text, text.length);
    snprintf(hash, 33, "%016" PRIx64 "%016" PRIx64, h.high64, h.low64);
    ef_strbuf_free(&text);
}
