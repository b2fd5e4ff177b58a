/* PyTorch source of tensor-level programs: see torch.h.
 *
 * One pass over the expressions that the outputs need, in order. What has a name in the program, several users or
 * much below it becomes a statement; the rest stands inside its user. Numbers that do not depend on inputs are folded,
 * because torch wants a tensor somewhere.
 *
 * Large tensors are deleted after their last use, as in a module that overwrites its variables; and what needs one last
 * is a statement, so that it is not there any more while the rest of an expression is computed. */
#include "codegen/torch.h"

#include <ctype.h>
#include <inttypes.h>
#include <string.h>

#include "codegen/torch_print.h"

#define MAX_DEPTH 4        /* of what stands inside its user */
#define LARGE (16U << 20U) /* bytes of a tensor */

/* ---- what is needed, and how often ---- */

static bool supported(const ef_torch *p, ef_expr e, ef_diag *diag)
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

static void fold(ef_torch *p, ef_expr e)
{
    ef_op op = ef_dag_op(p->dag, e);
    ef_torch_node *n = &p->node[e];
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
static bool survey(ef_torch *p, ef_diag *diag)
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
            if (!p->node[child[i]].uses++)
                p->node[child[i]].user = e;
    }
    for (ef_expr e = 0; e < count; e++)
        if (p->node[e].uses)
            fold(p, e);
    return true;
}

/* ---- names ---- */

/* A Python identifier that nothing else has. */
static const char *fresh_name(ef_torch *p, const char *wanted)
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

static void name_inputs(ef_torch *p)
{
    for (uint32_t i = 0; i < p->program->inputs; i++) {
        p->input[i] = fresh_name(p, ef_input_name(p->ctx, p->program->input[i]));
        for (ef_expr e = 0; e < ef_dag_count(p->dag); e++)
            if (ef_dag_op(p->dag, e) == EF_INPUT && ef_dag_attr(p->dag, e) == p->program->input[i])
                p->node[e].name = p->input[i];
    }
}

/* ---- statements ---- */

static const char *statement_name(const ef_torch *p, ef_expr e)
{
    for (uint32_t i = 0; i < p->program->statements; i++)
        if (p->program->statement[i].expr == e)
            return p->program->statement[i].name;
    for (uint32_t i = 0; i < p->program->outputs; i++)
        if (p->program->output[i].expr == e)
            return p->program->output[i].name;
    return NULL;
}

static bool is_large(const ef_torch *p, ef_expr e)
{
    const ef_type_info *type = ef_torch_type(p, e);
    double bytes = ef_dtype_bytes((ef_dtype)type->dtype);
    for (unsigned i = 0; i < type->rank; i++)
        bytes *= (double)ef_dim_extent(p->ctx, type->dim[i]);
    return !type->is_tuple && bytes >= LARGE;
}

/* Whether nothing needs a large variable any more once this is computed. */
static bool frees(const ef_torch *p, ef_expr e)
{
    const ef_expr *child;
    unsigned count = ef_dag_children(p->dag, e, &child);
    if (ef_torch_is_mean(p, e)) {
        e = child[0];
        count = ef_dag_children(p->dag, e, &child);
    }
    for (unsigned i = 0; i < count; i++)
        if (p->node[child[i]].statement && p->node[child[i]].user == e && is_large(p, child[i]))
            return true;
    return false;
}

static bool is_statement(const ef_torch *p, ef_expr e)
{
    const ef_torch_node *n = &p->node[e];
    if (statement_name(p, e) || n->uses > 1)
        return true;
    return !ef_torch_is_mean(p, n->user) && (n->depth >= MAX_DEPTH || frees(p, e));
}

static bool is_printed(const ef_torch *p, ef_expr e)
{
    return p->node[e].uses && !p->node[e].folded && ef_dag_op(p->dag, e) != EF_INPUT;
}

/* Which expressions are statements, and the last one that needs each. */
static void cut(ef_torch *p)
{
    uint32_t count = ef_dag_count(p->dag);
    const ef_expr *child;
    for (ef_expr e = 0; e < count; e++) {
        ef_torch_node *n = &p->node[e];
        if (!is_printed(p, e))
            continue;
        for (unsigned i = 0, of = ef_dag_children(p->dag, e, &child); i < of; i++)
            if (!p->node[child[i]].statement && !p->node[child[i]].name && p->node[child[i]].depth >= n->depth)
                n->depth = (uint8_t)(p->node[child[i]].depth + 1);
        n->statement = is_statement(p, e);
    }
    for (uint32_t i = 0; i < p->program->outputs; i++)
        p->node[p->program->output[i].expr].last = EF_NONE;
    /* What is no statement is computed where its one user is: `last` is that place already. */
    for (ef_expr e = count; e-- > 0;) {
        ef_expr at = p->node[e].statement ? e : p->node[e].last;
        for (unsigned i = 0, of = is_printed(p, e) ? ef_dag_children(p->dag, e, &child) : 0; i < of; i++)
            if (p->node[child[i]].last < at)
                p->node[child[i]].last = at;
    }
}

/* The names that the statement `at` needs last, in what of it stands in `e`. */
static void print_dead(ef_torch *p, ef_expr e, ef_expr at, const char **between)
{
    const ef_expr *child;
    for (unsigned i = 0, count = ef_dag_children(p->dag, e, &child); i < count; i++) {
        ef_torch_node *n = &p->node[child[i]];
        if (!n->name && !n->folded)
            print_dead(p, child[i], at, between);
        if (!n->name || n->last != at || !is_large(p, child[i]))
            continue;
        ef_strbuf_printf(p->out, "%s%s", *between, n->name);
        *between = ", ";
        n->last = EF_NONE;
    }
}

static void print_statement(ef_torch *p, ef_expr e)
{
    ef_torch_node *n = &p->node[e];
    const char *name = statement_name(p, e);
    ef_strbuf text = {0};
    ef_torch_value(p, e, &text);
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
    const char *between = "    del ";
    print_dead(p, e, e, &between);
    ef_strbuf_puts(p->out, *between == ',' ? "\n" : "");
}

static void print_outputs(ef_torch *p)
{
    ef_strbuf_puts(p->out, "    return ");
    for (uint32_t i = 0; i < p->program->outputs; i++) {
        ef_expr e = p->program->output[i].expr;
        const ef_type_info *type = ef_torch_type(p, e);
        ef_torch_tensor(p, e, p->out);
        /* A number that met nothing has no type yet. */
        ef_strbuf_puts(p->out, type->dtype == EF_NUM && !type->is_tuple ? ".to(f32)" : "");
        ef_strbuf_puts(p->out, i + 1 < p->program->outputs ? ", " : "\n");
    }
}

/* ---- the module ---- */

static void print_comment(const ef_torch *p)
{
    ef_strbuf_printf(p->out, "# Program %s as plain PyTorch.\n", p->program->name);
    for (const char *c = p->program->comment; *c;) {
        size_t length = strcspn(c, "\n");
        ef_strbuf_printf(p->out, "%s%.*s\n", *c == '#' ? "" : "# ", (int)length, c);
        c += length + (c[length] == '\n');
    }
    ef_strbuf_puts(p->out, "import torch\n\n");
}

static void print_input_names(const ef_torch *p)
{
    for (uint32_t i = 0; i < p->program->inputs; i++)
        ef_strbuf_printf(p->out, "%s%s", i ? ", " : "", p->input[i]);
}

/* What the statements use: the extents of dimensions, the device, element types. */
static void print_prologue(ef_torch *p, const char *body)
{
    bool types = false;
    if (p->program->inputs)
        ef_strbuf_printf(p->out, "    device = %s.device\n", p->input[0]);
    else
        ef_strbuf_puts(p->out, "    device = torch.get_default_device()\n");
    for (ef_dtype t = EF_F16; t <= EF_F64; t++) {
        ef_strbuf use = {0};
        ef_strbuf_printf(&use, "(%s)", ef_torch_types[t]);
        types = types || strstr(body, use.text);
        use.length = 0;
        ef_strbuf_printf(&use, "dtype=%s,", ef_torch_types[t]);
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

/* PyTorch raises where integers are divided by 0, or gives anything. */
static const char *const integer_divisions = "\n\ndef _mod_int(a, b):\n"
                                             "    zero = b == 0\n"
                                             "    return (a % b.masked_fill(zero, 1)).masked_fill(zero, 0)\n"
                                             "\n\ndef _floordiv_int(a, b):\n"
                                             "    zero = b == 0\n"
                                             "    return (a // b.masked_fill(zero, 1)).masked_fill(zero, 0)\n";

/* The sum of a dimension divided by how many elements it has at the program's own sizes. */
static const char *const mean = "\n\ndef _mean(x, dim, count):\n"
                                "    if x.shape[dim] == count:\n"
                                "        return x.mean(dim, keepdim=True)\n"
                                "    return x.sum(dim, keepdim=True) / count\n";

static void print_module(ef_torch *p, const char *name)
{
    /* The statements are printed first, because only they say which extents they need. */
    ef_strbuf *module = p->out, body = {0};
    name_inputs(p);
    p->out = &body;
    cut(p);
    for (ef_expr e = 0; e < ef_dag_count(p->dag); e++)
        if (p->node[e].statement)
            print_statement(p, e);
    print_outputs(p);
    p->out = module;
    print_comment(p);
    ef_torch_lists(p);
    if (strstr(body.text, "_int("))
        ef_strbuf_puts(p->out, integer_divisions);
    if (strstr(body.text, "_mean("))
        ef_strbuf_puts(p->out, mean);
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
    ef_torch p = {.program = program,
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
