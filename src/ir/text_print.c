/* The printer of the text form. What it prints is canonical: parsing it gives the same program, and that prints as the
 * same bytes.
 *
 * Every named statement is a line, and what has no name prints inside the expressions that use it, as it was written.
 * Because equal nodes are one node, something large may have several uses, or nest too deep (in a program that a search
 * built nothing has a name): such a node gets a statement t0, t1, … before its first use. The first name of a value is
 * used from its line on; further names print as NAME = FIRST. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ir/text.h"

/* When a node without a name gets one. */
typedef struct {
    uint32_t size;  /* used more than once and with more nodes than this */
    uint32_t depth; /* or deeper than this */
} limits;

static const limits written = {.size = 8, .depth = 200};
static const limits built = {.size = 1, .depth = 5};
static const limits never = {.size = UINT32_MAX, .depth = UINT32_MAX};

typedef struct {
    const ef_dag *dag;
    const ef_ctx *ctx;
    ef_strbuf *out;
    limits limit;
    const char **name; /* by node; all arrays are NULL when printing one expression */
    uint32_t *uses, *size, *depth;
    uint8_t *seen; /* passes that have visited the node */
    uint8_t *var_seen;
    ef_intern *taken; /* names */
    uint32_t autos;
    uint32_t budget; /* one expression: 1 + the nodes left to print; else 0 */
    ef_arena *arena;
} printer;

/* ---- attributes ---- */

/* Whole numbers in full: 4096 and 30, not 3e+01. */
static void print_number(printer *p, double value)
{
    if (fabs(value) < 1e9 && value == trunc(value))
        ef_strbuf_printf(p->out, "%.0f", value);
    else
        ef_strbuf_double(p->out, value);
}

/* An order of variables that does not depend on when derived ones were made, so that text read back prints alike.
 * Named ones come first, as they were declared. */
static int compare_vars(const ef_ctx *ctx, ef_var a, ef_var b);

static int compare_numbers(uint64_t a, uint64_t b)
{
    return a < b ? -1 : a > b;
}

static int compare_dims(const ef_ctx *ctx, ef_dim a, ef_dim b)
{
    const ef_var *x, *y;
    if (a == b)
        return 0;
    unsigned nx = ef_dim_atoms(ctx, a, &x), ny = ef_dim_atoms(ctx, b, &y);
    for (unsigned i = 0; i < nx && i < ny; i++)
        if (x[i] != y[i])
            return compare_vars(ctx, x[i], y[i]);
    return compare_numbers(nx, ny);
}

static int compare_parts(const ef_ctx *ctx, ef_dims a, ef_dims b)
{
    const ef_dim *x, *y;
    unsigned nx = ef_dims_at(ctx, a, &x), ny = ef_dims_at(ctx, b, &y);
    for (unsigned i = 0; i < nx && i < ny; i++)
        if (x[i] != y[i])
            return compare_dims(ctx, x[i], y[i]);
    return compare_numbers(nx, ny);
}

static int compare_axes(const ef_ctx *ctx, ef_axis a, ef_axis b)
{
    if (ef_axis_level(a) != ef_axis_level(b))
        return compare_numbers(ef_axis_level(a), ef_axis_level(b));
    return compare_vars(ctx, ef_axis_var(a), ef_axis_var(b));
}

static int compare_vars(const ef_ctx *ctx, ef_var a, ef_var b)
{
    const ef_var_info *x = ef_var_at(ctx, a), *y = ef_var_at(ctx, b);
    int order = 0;
    if (a == b || x->kind != y->kind)
        return compare_numbers(x->kind, y->kind);
    switch (x->kind) {
    case EF_VAR_NAMED: return compare_numbers(a, b);
    case EF_VAR_SLICE:
        order = compare_dims(ctx, x->parent, y->parent);
        order = order ? order : compare_numbers(x->start, y->start);
        return order ? order : compare_numbers(x->stop, y->stop);
    case EF_VAR_JOINED:
    case EF_VAR_TWIN: return compare_dims(ctx, x->parent, y->parent);
    case EF_VAR_CONCAT: return compare_parts(ctx, x->parts, y->parts);
    case EF_VAR_COUNT: return compare_axes(ctx, x->axis, y->axis);
    }
    return 0;
}

/* The axes of a set in that order. */
static unsigned sorted_axes(const printer *p, ef_axes set, ef_axis *sorted)
{
    const ef_axis *axes;
    unsigned n = ef_axes_at(p->ctx, set, &axes);
    for (unsigned i = 0; i < n; i++) {
        unsigned at = i;
        for (; at > 0 && compare_axes(p->ctx, sorted[at - 1], axes[i]) > 0; at--)
            sorted[at] = sorted[at - 1];
        sorted[at] = axes[i];
    }
    return n;
}

static void print_dims(printer *p, const ef_dim *dims, unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        ef_strbuf_puts(p->out, i ? ", " : "");
        ef_dim_print(p->ctx, dims[i], p->out);
    }
}

static void print_reduce(printer *p, ef_op op, uint64_t attr)
{
    uint32_t at = ef_attr_reduce_at(attr);
    ef_reducer_print(p->ctx, ef_attr_reducer(attr), p->out);
    if (op == EF_REDUCE && at == EF_FIRST)
        ef_strbuf_puts(p->out, ", first");
    else if (op == EF_REDUCE)
        ef_strbuf_printf(p->out, ", -%u", at + 1);
    else {
        ef_strbuf_puts(p->out, ", ");
        ef_axis_print(p->ctx, at, p->out);
    }
}

/* Outermost first; the attribute counts from the last. */
static void print_transpose(printer *p, uint64_t attr, unsigned rank)
{
    for (unsigned i = 0; i < rank; i++)
        ef_strbuf_printf(p->out, "%s%u", i ? ", " : "", rank - 1 - ef_perm_at(attr, rank - 1 - i));
}

/* What stands between the brackets; nothing for an operator without attribute. */
static void print_attribute(printer *p, ef_expr e, const ef_expr *operand)
{
    ef_op op = ef_dag_op(p->dag, e);
    uint64_t attr = ef_dag_attr(p->dag, e);
    const ef_dim *dims;
    ef_dim one = (ef_dim)attr;
    unsigned count;
    if (ef_ops[op].attr == EF_ATTR_NONE)
        return;
    ef_strbuf_puts(p->out, "[");
    switch (ef_ops[op].attr) {
    case EF_ATTR_DIM: print_dims(p, &one, 1); break;
    case EF_ATTR_DIMS:
        count = ef_dims_at(p->ctx, (ef_dims)attr, &dims);
        print_dims(p, dims, count);
        break;
    case EF_ATTR_DTYPE: ef_strbuf_puts(p->out, ef_dtype_names[attr]); break;
    case EF_ATTR_INDEX: ef_strbuf_printf(p->out, "-%u", (unsigned)attr + 1); break;
    case EF_ATTR_PERM: print_transpose(p, attr, ef_type_at(p->ctx, ef_dag_type(p->dag, operand[0]))->rank); break;
    case EF_ATTR_SLICE:
        ef_strbuf_printf(p->out, "-%u, %u:%u", ef_slice_index(attr) + 1, ef_slice_start(attr), ef_slice_stop(attr));
        break;
    case EF_ATTR_FIELD: ef_strbuf_printf(p->out, "%u", (unsigned)attr); break;
    case EF_ATTR_REDUCE:
    case EF_ATTR_REDUCE_P: print_reduce(p, op, attr); break;
    case EF_ATTR_AXIS: ef_axis_print(p->ctx, (ef_axis)attr, p->out); break;
    default: break;
    }
    ef_strbuf_puts(p->out, "]");
}

/* ---- expressions ---- */

static void print_expr(printer *p, ef_expr e);

static void print_child(printer *p, ef_expr e)
{
    if (p->name && p->name[e] && ef_dag_op(p->dag, e) != EF_CONST)
        ef_strbuf_puts(p->out, p->name[e]);
    else
        print_expr(p, e);
}

/* One bracket an axis: views innermost first by axis, combinations, which undo them, the other way round. */
static void print_parallel(printer *p, ef_expr e, ef_expr operand)
{
    bool view = ef_dag_op(p->dag, e) == EF_VIEW;
    const ef_type_info *cut = ef_type_at(p->ctx, ef_dag_type(p->dag, view ? e : operand));
    ef_axis axes[2 * EF_MAX_PLACES];
    unsigned n = sorted_axes(p, (ef_axes)ef_dag_attr(p->dag, e), axes);
    for (unsigned i = 0; i < n; i++) {
        ef_axis axis = view ? axes[n - 1 - i] : axes[i];
        const ef_place *place = cut->is_tuple ? NULL : ef_type_place(cut, axis);
        bool partition = place && place->kind == EF_PARTITION;
        ef_strbuf_puts(p->out, !view ? "combination[" : !place ? "view[" : partition ? "partition[" : "replicate[");
        if (partition)
            ef_strbuf_printf(p->out, "-%u, ", place->dim + 1u);
        ef_axis_print(p->ctx, axis, p->out);
        ef_strbuf_puts(p->out, "](");
    }
    print_child(p, operand);
    for (unsigned i = 0; i < n; i++)
        ef_strbuf_puts(p->out, ")");
}

static void print_full(printer *p, ef_expr e, double value)
{
    const ef_dim *dims;
    unsigned count = ef_dims_at(p->ctx, (ef_dims)ef_dag_attr(p->dag, e), &dims);
    ef_strbuf_puts(p->out, "full[");
    print_dims(p, dims, count);
    ef_strbuf_puts(p->out, "; ");
    print_number(p, value);
    ef_strbuf_puts(p->out, "]");
}

static void print_call(printer *p, ef_expr e, const ef_expr *operand, unsigned count)
{
    ef_strbuf_puts(p->out, ef_ops[ef_dag_op(p->dag, e)].name);
    print_attribute(p, e, operand);
    if (count == 0)
        return;
    ef_strbuf_puts(p->out, "(");
    for (unsigned i = 0; i < count; i++) {
        ef_strbuf_puts(p->out, i ? ", " : "");
        print_child(p, operand[i]);
    }
    ef_strbuf_puts(p->out, ")");
}

/* The definition of a node, whether it has a name or not. */
static void print_expr(printer *p, ef_expr e)
{
    const ef_expr *operand;
    unsigned count = ef_dag_children(p->dag, e, &operand);
    if (p->budget == 1) {
        ef_strbuf_puts(p->out, "...");
        return;
    }
    p->budget -= p->budget > 0;
    switch (ef_dag_op(p->dag, e)) {
    case EF_INPUT: ef_strbuf_puts(p->out, ef_input_name(p->ctx, (uint32_t)ef_dag_attr(p->dag, e))); return;
    case EF_CONST: print_number(p, ef_attr_to_number(ef_dag_attr(p->dag, e))); return;
    case EF_VIEW:
    case EF_COMBINE: print_parallel(p, e, operand[0]); return;
    case EF_BROADCAST:
        if (ef_dag_op(p->dag, operand[0]) == EF_CONST) {
            print_full(p, e, ef_attr_to_number(ef_dag_attr(p->dag, operand[0])));
            return;
        }
        break;
    case EF_REDUCE_P: /* its text name is reduce */
        ef_strbuf_puts(p->out, "reduce");
        print_attribute(p, e, operand);
        ef_strbuf_puts(p->out, "(");
        print_child(p, operand[0]);
        ef_strbuf_puts(p->out, ")");
        return;
    default: break;
    }
    print_call(p, e, operand, count);
}

void ef_expr_print(const ef_dag *dag, ef_expr e, ef_strbuf *out)
{
    printer p = {.dag = dag, .ctx = ef_dag_ctx(dag), .out = out, .limit = never, .budget = 4000};
    print_expr(&p, e);
}

/* ---- walks over the DAG, without recursion: a program that a search built may be deep ---- */

/* Calls leave(p, e) for every node below and at `root` that this pass has not seen and that enter(p, e) lets in,
 * operands first. */
static void walk(printer *p, ef_expr root, uint8_t pass, bool (*enter)(printer *, ef_expr),
                 void (*leave)(printer *, ef_expr))
{
    typedef struct {
        ef_expr e;
        unsigned next;
    } frame;
    EF_VEC(frame) stack = {0};
    if (!(p->seen[root] & pass) && enter(p, root))
        ef_vec_push(&stack, ((frame){root, 0}));
    while (stack.count) {
        frame *top = &stack.at[stack.count - 1];
        const ef_expr *operand;
        unsigned count = ef_dag_children(p->dag, top->e, &operand);
        if (top->next == count) {
            if (!(p->seen[top->e] & pass))
                leave(p, top->e);
            p->seen[top->e] |= pass;
            stack.count--;
            continue;
        }
        ef_expr child = operand[top->next++];
        if (!(p->seen[child] & pass) && enter(p, child))
            ef_vec_push(&stack, ((frame){child, 0}));
    }
    ef_vec_free(&stack);
}

static bool always(printer *p, ef_expr e)
{
    (void)p;
    (void)e;
    return true;
}

static void count_uses(printer *p, ef_expr e)
{
    const ef_expr *operand;
    for (unsigned i = 0, n = ef_dag_children(p->dag, e, &operand); i < n; i++)
        p->uses[operand[i]]++;
}

/* ---- dimensions that must be declared ---- */

static void see_dim(printer *p, ef_dim dim);

static void see_var(printer *p, ef_var var)
{
    const ef_var_info *info = ef_var_at(p->ctx, var);
    const ef_dim *parts;
    if (p->var_seen[var])
        return;
    p->var_seen[var] = 1;
    if (info->kind == EF_VAR_SLICE || info->kind == EF_VAR_TWIN)
        see_dim(p, info->parent);
    else if (info->kind == EF_VAR_COUNT)
        see_var(p, ef_axis_var(info->axis));
    else if (info->kind == EF_VAR_CONCAT)
        for (unsigned i = 0, n = ef_dims_at(p->ctx, info->parts, &parts); i < n; i++)
            see_dim(p, parts[i]);
}

static void see_dim(printer *p, ef_dim dim)
{
    const ef_var *atoms;
    for (unsigned i = 0, n = ef_dim_atoms(p->ctx, dim, &atoms); i < n; i++)
        see_var(p, atoms[i]);
}

static void see_attribute(printer *p, ef_expr e)
{
    uint64_t attr = ef_dag_attr(p->dag, e);
    const ef_dim *dims;
    const ef_axis *axes;
    switch (ef_ops[ef_dag_op(p->dag, e)].attr) {
    case EF_ATTR_DIM: see_dim(p, (ef_dim)attr); break;
    case EF_ATTR_DIMS:
        for (unsigned i = 0, n = ef_dims_at(p->ctx, (ef_dims)attr, &dims); i < n; i++)
            see_dim(p, dims[i]);
        break;
    case EF_ATTR_AXES:
        for (unsigned i = 0, n = ef_axes_at(p->ctx, (ef_axes)attr, &axes); i < n; i++)
            see_var(p, ef_axis_var(axes[i]));
        break;
    case EF_ATTR_AXIS: see_var(p, ef_axis_var((ef_axis)attr)); break;
    case EF_ATTR_REDUCE_P: see_var(p, ef_axis_var(ef_attr_reduce_at(attr))); break;
    default: break;
    }
}

/* First pass: uses and dimensions. */
static void first_pass(printer *p, ef_expr e)
{
    count_uses(p, e);
    see_attribute(p, e);
}

/* ---- statements ---- */

static const char *new_name(printer *p)
{
    char text[16];
    int length;
    do
        length = snprintf(text, sizeof text, "t%u", p->autos++);
    while (ef_intern_find(p->taken, text, (size_t)length) != UINT32_MAX);
    return ef_arena_strndup(p->arena, text, (size_t)length);
}

static void print_line(printer *p, const char *prefix, const char *name, ef_expr e)
{
    ef_strbuf_printf(p->out, "%s%s = ", prefix, name);
    if (p->name[e])
        print_child(p, e);
    else
        print_expr(p, e);
    ef_strbuf_puts(p->out, "\n");
    if (!p->name[e])
        p->name[e] = name;
}

static bool unnamed(printer *p, ef_expr e)
{
    return !p->name[e];
}

static void measure(printer *p, ef_expr e)
{
    const ef_expr *operand;
    const ef_axis *axes;
    unsigned levels = 1;
    p->size[e] = 1;
    p->depth[e] = 0;
    for (unsigned i = 0, n = ef_dag_children(p->dag, e, &operand); i < n; i++) {
        bool inside = !p->name[operand[i]];
        uint32_t size = inside ? p->size[operand[i]] : 1, depth = inside ? p->depth[operand[i]] : 0;
        p->size[e] = p->size[e] > UINT32_MAX / 2 - size ? UINT32_MAX / 2 : p->size[e] + size;
        p->depth[e] = depth > p->depth[e] ? depth : p->depth[e];
    }
    if (ef_ops[ef_dag_op(p->dag, e)].attr == EF_ATTR_AXES)
        levels = ef_axes_at(p->ctx, (ef_axes)ef_dag_attr(p->dag, e), &axes);
    p->depth[e] += levels;
}

/* Second pass: names what should not print inside, operands first. */
static void second_pass(printer *p, ef_expr e)
{
    measure(p, e);
    if ((p->uses[e] > 1 && p->size[e] > p->limit.size) || p->depth[e] > p->limit.depth)
        print_line(p, "", new_name(p), e);
}

/* A named statement: first what it needs on lines of their own, then itself. */
static void print_statement(printer *p, const char *prefix, const char *name, ef_expr e)
{
    const ef_expr *operand;
    if (!p->name[e] && !(p->seen[e] & 2)) {
        for (unsigned i = 0, n = ef_dag_children(p->dag, e, &operand); i < n; i++)
            walk(p, operand[i], 2, unnamed, second_pass);
        measure(p, e);
        p->seen[e] |= 2;
    }
    print_line(p, prefix, name, e);
}

/* ---- programs ---- */

static void print_comment(const char *comment, ef_strbuf *out)
{
    while (*comment) {
        size_t length = strcspn(comment, "\n");
        ef_strbuf_puts(out, length ? "# " : "#");
        ef_strbuf_add(out, comment, length);
        ef_strbuf_puts(out, "\n");
        comment += length + (comment[length] == '\n');
    }
}

static void print_dim_lines(const printer *p)
{
    for (ef_var var = 0; var < ef_var_count(p->ctx); var++) {
        const ef_var_info *info = ef_var_at(p->ctx, var);
        if (p->var_seen[var] && info->kind == EF_VAR_NAMED)
            ef_strbuf_printf(p->out, "dim %s = %llu\n", info->name, (unsigned long long)info->extent);
    }
}

static void print_input_lines(printer *p, const ef_program *program)
{
    for (uint32_t i = 0; i < program->inputs; i++) {
        ef_strbuf_printf(p->out, "input %s: ", ef_input_name(p->ctx, program->input[i]));
        ef_type_print(p->ctx, ef_input_type(p->ctx, program->input[i]), p->out);
        ef_strbuf_puts(p->out, "\n");
    }
}

/* Everything before the statements, and what they need to know. */
static void print_head(printer *p, const ef_program *program)
{
    for (uint32_t i = 0; i < program->inputs; i++) {
        const char *name = ef_input_name(p->ctx, program->input[i]);
        const ef_type_info *type = ef_type_at(p->ctx, ef_input_type(p->ctx, program->input[i]));
        ef_intern_put(p->taken, name, strlen(name), NULL);
        for (unsigned k = 0; k < type->rank; k++)
            see_dim(p, type->dim[k]);
    }
    for (uint32_t i = 0; i < program->statements; i++) {
        ef_intern_put(p->taken, program->statement[i].name, strlen(program->statement[i].name), NULL);
        walk(p, program->statement[i].expr, 1, always, first_pass);
    }
    for (uint32_t i = 0; i < program->outputs; i++) {
        ef_intern_put(p->taken, program->output[i].name, strlen(program->output[i].name), NULL);
        walk(p, program->output[i].expr, 1, always, first_pass);
    }
    if (program->comment)
        print_comment(program->comment, p->out);
    ef_strbuf_printf(p->out, "program %s\n", program->name);
    print_dim_lines(p);
    print_input_lines(p, program);
}

/* Statements in order; an output among them is marked, those that are not follow at the end. */
static void print_statements(printer *p, const ef_program *program)
{
    ef_intern *outputs = ef_intern_new();
    uint8_t *printed = ef_xcalloc(program->outputs + 1, 1);
    for (uint32_t i = 0; i < program->outputs; i++)
        ef_intern_put(outputs, program->output[i].name, strlen(program->output[i].name), NULL);
    for (uint32_t i = 0; i < program->statements; i++) {
        const ef_named *s = &program->statement[i];
        uint32_t output = ef_intern_find(outputs, s->name, strlen(s->name));
        print_statement(p, output == UINT32_MAX ? "" : "output ", s->name, s->expr);
        if (output != UINT32_MAX)
            printed[output] = 1;
    }
    for (uint32_t i = 0; i < program->outputs; i++)
        if (!printed[i])
            print_statement(p, "output ", program->output[i].name, program->output[i].expr);
    free(printed);
    ef_intern_free(outputs);
}

void ef_program_print(const ef_program *program, ef_strbuf *out)
{
    uint32_t count = ef_dag_count(program->dag);
    printer p = {.dag = program->dag, .ctx = ef_dag_ctx(program->dag), .out = out};
    p.limit = program->statements ? written : built;
    p.arena = ef_arena_new();
    p.taken = ef_intern_new();
    p.name = ef_arena_alloc(p.arena, (count + 1) * sizeof *p.name);
    p.uses = ef_arena_alloc(p.arena, (count + 1) * sizeof *p.uses);
    p.size = ef_arena_alloc(p.arena, (count + 1) * sizeof *p.size);
    p.depth = ef_arena_alloc(p.arena, (count + 1) * sizeof *p.depth);
    p.seen = ef_arena_alloc(p.arena, count + 1);
    p.var_seen = ef_arena_alloc(p.arena, ef_var_count(p.ctx) + 1);
    for (ef_expr e = 0; e < count; e++) { /* leaves print as themselves everywhere */
        if (ef_dag_op(p.dag, e) == EF_INPUT)
            p.name[e] = ef_input_name(p.ctx, (uint32_t)ef_dag_attr(p.dag, e));
        else if (ef_dag_op(p.dag, e) == EF_CONST)
            p.name[e] = "";
    }
    print_head(&p, program);
    print_statements(&p, program);
    ef_intern_free(p.taken);
    ef_arena_free(p.arena);
}

void ef_program_print_form(const ef_program *program, ef_dag *dag, const ef_expr *output, ef_strbuf *out)
{
    ef_named *named = ef_xcalloc(program->outputs + 1, sizeof *named);
    for (uint32_t i = 0; i < program->outputs; i++)
        named[i] = (ef_named){program->output[i].name, output[i]};
    ef_program form = {.dag = dag,
                       .name = program->name,
                       .comment = "",
                       .inputs = program->inputs,
                       .input = program->input,
                       .outputs = program->outputs,
                       .output = named};
    ef_program_print(&form, out);
    free(named);
}
