/* From the syntax tree of the text form to a typed program.
 *
 * The type checker (infer.c) decides; here its messages get their place, and what the text says twice is compared: the
 * dimension that a partition or combination names must be the one that its axis cuts. Combinations of combinations
 * become one node, views do so in ef_dag_view. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ir/text.h"
#include "ir/twin.h"

typedef struct {
    ef_text *source;
    ef_dag *dag;
} builder;

static ef_expr fail(builder *b, const ef_text_node *node, const char *message)
{
    ef_text_fail(b->source, node->at, "%s", message);
    return EF_NONE;
}

/* ---- limits on what the type checker made ---- */

static bool tensor_ok(ef_text *s, size_t at, const ef_type_info *info)
{
    uint64_t elements = 1;
    for (unsigned i = 0; i < info->rank; i++) {
        uint64_t extent = ef_dim_extent(s->ctx, info->dim[i]);
        if (!ef_text_dim_ok(s, at, info->dim[i]))
            return false;
        if (extent > EF_MAX_EXTENT / elements)
            return ef_text_fail(s, at, "a tensor has at most %" PRIu64 " elements", EF_MAX_EXTENT);
        elements *= extent ? extent : 1; /* a collected dimension has no number yet */
    }
    return true;
}

/* Checks each type once; its fields have been checked before it. */
static bool type_ok(ef_text *s, size_t at, ef_type type)
{
    const ef_type_info *info = ef_type_at(s->ctx, type);
    uint32_t weight = 1;
    while (s->type_weight.count <= type)
        ef_vec_push(&s->type_weight, 0);
    if (s->type_weight.at[type])
        return true;
    if (!info->is_tuple && !tensor_ok(s, at, info))
        return false;
    for (unsigned i = 0; i < info->fields; i++) {
        if (!type_ok(s, at, info->field[i]))
            return false;
        weight += s->type_weight.at[info->field[i]];
    }
    if (weight > EF_TEXT_TUPLE)
        return ef_text_fail(s, at, "a tuple has at most %u fields at all its levels", EF_TEXT_TUPLE);
    s->type_weight.at[type] = (uint8_t)weight;
    return true;
}

/* ---- type errors ---- */

/* Two dimensions of one extent and different names are what is behind most mismatches: the message names them. */
static bool same_extent(ef_text *s, ef_dim a, ef_dim b, ef_strbuf *hint)
{
    if (a == b || a == EF_UNIT || b == EF_UNIT || ef_dim_extent(s->ctx, a) != ef_dim_extent(s->ctx, b))
        return false;
    ef_strbuf_puts(hint, "; ");
    ef_dim_print(s->ctx, a, hint);
    ef_strbuf_puts(hint, " and ");
    ef_dim_print(s->ctx, b, hint);
    ef_strbuf_puts(hint, " are equally long but two dimensions: use one of them for both");
    return true;
}

static void add_hint(builder *b, const ef_text_node *node, const ef_expr *operand, ef_strbuf *hint)
{
    ef_text *s = b->source;
    if (node->count < 2)
        return;
    const ef_type_info *x = ef_type_at(s->ctx, ef_dag_type(b->dag, operand[0]));
    const ef_type_info *y = ef_type_at(s->ctx, ef_dag_type(b->dag, operand[1]));
    bool contraction = ef_ops[node->op].class == EF_CONTRACTION;
    if (x->is_tuple || y->is_tuple || (contraction && (x->rank < 2 || y->rank < 2)))
        return;
    if (contraction && same_extent(s, x->dim[0], y->dim[1], hint))
        return;
    for (unsigned i = contraction ? 2 : 0; i < x->rank && i < y->rank; i++)
        if (same_extent(s, x->dim[i], y->dim[i], hint))
            return;
}

static ef_expr type_error(builder *b, const ef_text_node *node, const ef_expr *operand, const ef_diag *inner)
{
    ef_strbuf hint = {0};
    if (b->source->diag && !b->source->diag->failed)
        add_hint(b, node, operand, &hint);
    ef_text_fail(b->source, node->at, "%.250s%s", inner->text, hint.text ? hint.text : "");
    ef_strbuf_free(&hint);
    return EF_NONE;
}

/* ---- expressions ---- */

static ef_expr build(builder *b, uint32_t at);

/* Adds a node whose attribute is known, and checks what came out. */
static ef_expr add(builder *b, const ef_text_node *node, uint64_t attr, const ef_expr *operand)
{
    ef_diag inner = {0};
    ef_expr e = ef_twin_add(b->dag, (ef_op)node->op, attr, operand, node->count, &inner);
    if (e == EF_NONE)
        return type_error(b, node, operand, &inner);
    return type_ok(b->source, node->at, ef_dag_type(b->dag, e)) ? e : EF_NONE;
}

/* The dimensions of a shape, outermost first. */
static unsigned shape_dims(const ef_text *s, ef_text_shape shape, ef_dim *dims)
{
    for (unsigned i = 0; i < shape.rank; i++) {
        ef_text_dim d = s->dims.at[shape.first + i];
        dims[i] = d.number == EF_NONE ? d.dim : s->numbers.at[d.number].dim;
    }
    return shape.rank;
}

static ef_expr add_shape(builder *b, const ef_text_node *node, const ef_expr *operand)
{
    ef_dim dims[EF_MAX_RANK] = {0};
    ef_type_info after = {0};
    unsigned rank = shape_dims(b->source, node->shape, dims);
    if (node->op == EF_IOTA)
        return add(b, node, dims[0], operand);
    memcpy(after.dim, dims, rank * sizeof *dims);
    after.rank = (uint8_t)rank;
    if (!tensor_ok(b->source, node->at, &after)) /* before the type checker multiplies the extents */
        return EF_NONE;
    return add(b, node, ef_dims_intern(b->source->ctx, dims, rank), operand);
}

/* From the text's order, outermost first, to op.h's, from the last. */
static ef_expr add_transpose(builder *b, const ef_text_node *node, const ef_expr *operand)
{
    const ef_type_info *in = ef_type_at(b->source->ctx, ef_dag_type(b->dag, operand[0]));
    unsigned rank = node->shape.rank;
    uint64_t perm = 0;
    if (!in->is_tuple && in->rank != rank) {
        ef_text_fail(b->source, node->at, "transpose lists %u dimensions of a tensor that has %u", rank, in->rank);
        return EF_NONE;
    }
    for (unsigned i = 0; i < rank; i++) {
        unsigned from = ef_perm_at(node->attr, i);
        if (from >= rank) {
            ef_text_fail(b->source, node->at, "transpose lists each of the dimensions 0 to %u once", rank - 1);
            return EF_NONE;
        }
        perm |= (uint64_t)(rank - 1 - from) << 4 * (rank - 1 - i);
    }
    return add(b, node, perm, operand);
}

/* Compares where the text says that an axis cuts with where it does. */
static bool cut_ok(builder *b, const ef_text_node *node, bool cuts, unsigned dim)
{
    const char *name = node->op == EF_COMBINE ? "combination" : "partition";
    if (node->cuts == EF_TEXT_ANYWHERE || (node->cuts == EF_TEXT_NOWHERE && !cuts))
        return true;
    if (node->cuts == EF_TEXT_NOWHERE)
        return ef_text_fail(b->source, node->at, "this axis cuts dimension -%u: write partition[-%u, AXIS]", dim + 1,
                            dim + 1);
    if (!cuts)
        return ef_text_fail(b->source, node->at,
                            node->op == EF_COMBINE
                                ? "this axis is not partitioned in the operand: there is nothing to join"
                                : "this axis cuts no dimension of the operand: write replicate[AXIS]");
    return node->cuts == dim ||
           ef_text_fail(b->source, node->at, "this axis cuts dimension -%u, not -%u: write %s[-%u, AXIS]", dim + 1,
                        node->cuts + 1u, name, dim + 1);
}

static ef_expr add_view(builder *b, const ef_text_node *node, const ef_expr *operand)
{
    ef_ctx *ctx = b->source->ctx;
    const ef_type_info *in = ef_type_at(ctx, ef_dag_type(b->dag, operand[0]));
    const ef_axis *axes;
    ef_place place;
    ef_axes_at(ctx, (ef_axes)node->attr, &axes);
    if (in->is_tuple && node->cuts != EF_TEXT_ANYWHERE)
        return fail(b, node, "partition and replicate want a tensor: write view[AXIS] for a tuple");
    if (!in->is_tuple && ef_type_cut(ctx, in, axes[0], &place) && !ef_type_place(in, axes[0]) &&
        !cut_ok(b, node, place.kind == EF_PARTITION, place.dim))
        return EF_NONE;
    return add(b, node, node->attr, operand);
}

static ef_expr add_combination(builder *b, const ef_text_node *node, const ef_expr *operand)
{
    ef_ctx *ctx = b->source->ctx;
    ef_type type = ef_dag_type(b->dag, operand[0]);
    const ef_type_info *in = ef_type_at(ctx, type);
    const ef_axis *axes;
    ef_diag inner = {0};
    ef_axes_at(ctx, (ef_axes)node->attr, &axes);
    if (in->is_tuple && node->cuts != EF_TEXT_ANYWHERE)
        return fail(b, node, "the fields of a tuple may be cut differently: write combination[AXIS] for a tuple");
    const ef_place *place = in->is_tuple ? NULL : ef_type_place(in, axes[0]);
    if (!in->is_tuple && !cut_ok(b, node, place && place->kind == EF_PARTITION, place ? place->dim : 0))
        return EF_NONE;
    if (!ef_infer(ctx, EF_COMBINE, node->attr, &type, 1, &inner))
        return type_error(b, node, operand, &inner);
    if (ef_dag_op(b->dag, operand[0]) != EF_COMBINE)
        return add(b, node, node->attr, operand);
    ef_axes both = ef_axes_union(ctx, (ef_axes)node->attr, (ef_axes)ef_dag_attr(b->dag, operand[0]));
    const ef_expr *below;
    ef_dag_children(b->dag, operand[0], &below);
    ef_expr child[EF_MAX_FIELDS] = {below[0]};
    return add(b, node, both, child);
}

static ef_expr build(builder *b, uint32_t at)
{
    const ef_text_node *node = &b->source->nodes.at[at];
    ef_expr operand[EF_MAX_FIELDS] = {0};
    if (node->op == EF_INPUT)
        return b->source->defs.at[node->attr].expr;
    if (node->op == EF_CONST)
        return ef_dag_const(b->dag, ef_attr_to_number(node->attr));
    for (unsigned i = 0; i < node->count; i++)
        if ((operand[i] = build(b, b->source->operands.at[node->first + i])) == EF_NONE)
            return EF_NONE;
    switch (node->op) {
    case EF_IOTA:
    case EF_RESHAPE:
    case EF_BROADCAST: return add_shape(b, node, operand);
    case EF_TRANSPOSE: return add_transpose(b, node, operand);
    case EF_VIEW: return add_view(b, node, operand);
    case EF_COMBINE: return add_combination(b, node, operand);
    default: return add(b, node, node->attr, operand);
    }
}

/* ---- programs ---- */

static ef_expr build_input(builder *b, const ef_text_def *def, uint32_t *input)
{
    ef_text *s = b->source;
    ef_diag inner = {0};
    ef_dim dims[EF_MAX_RANK];
    unsigned rank = shape_dims(s, def->shape, dims);
    if (!ef_twin_dims(s->ctx, dims, rank))
        shape_dims(s, def->shape, dims);
    ef_type type = ef_type_tensor(s->ctx, (ef_dtype)def->dtype, dims, rank);
    if (!type_ok(s, def->at, type))
        return EF_NONE;
    *input = ef_input_declare(s->ctx, def->name, (unsigned)strlen(def->name), type, &inner);
    if (*input == EF_NONE) {
        ef_text_fail(s, def->at, "%s", inner.text);
        return EF_NONE;
    }
    return ef_dag_input(b->dag, *input);
}

/* Builds all definitions in order and lists them in the program. */
static bool build_all(builder *b, ef_program *program)
{
    ef_text *s = b->source;
    uint32_t inputs = 0, outputs = 0;
    for (uint32_t i = 0; i < s->defs.count; i++) {
        inputs += s->defs.at[i].is_input;
        outputs += s->defs.at[i].is_output;
    }
    program->input = ef_arena_alloc(s->arena, (inputs + 1) * sizeof *program->input);
    program->output = ef_arena_alloc(s->arena, (outputs + 1) * sizeof *program->output);
    program->statement = ef_arena_alloc(s->arena, (s->defs.count - inputs + 1) * sizeof *program->statement);
    for (uint32_t i = 0; i < s->defs.count; i++) {
        ef_text_def *def = &s->defs.at[i];
        uint32_t input = 0;
        def->expr = def->is_input ? build_input(b, def, &input) : build(b, def->root);
        if (def->expr == EF_NONE)
            return false;
        if (def->is_input)
            program->input[program->inputs++] = input;
        else
            program->statement[program->statements++] = (ef_named){def->name, def->expr};
        if (def->is_output)
            program->output[program->outputs++] = (ef_named){def->name, def->expr};
    }
    return true;
}

static ef_program *make_program(ef_text *s)
{
    ef_program *program = ef_arena_alloc(s->arena, sizeof *program);
    builder b = {s, ef_dag_new(s->ctx)};
    if (!ef_text_unify(s) || !build_all(&b, program)) {
        ef_dag_free(b.dag);
        return NULL;
    }
    program->dag = b.dag;
    program->name = s->name;
    program->comment = ef_arena_strndup(s->arena, s->comment.text ? s->comment.text : "", s->comment.length);
    program->arena = s->arena;
    return program;
}

static ef_program *parse(ef_text s)
{
    s.arena = ef_arena_new();
    s.def_names = ef_intern_new();
    s.dim_names = ef_intern_new();
    ef_program *program = ef_text_parse(&s) ? make_program(&s) : NULL;
    if (!program)
        ef_arena_free(s.arena);
    ef_intern_free(s.def_names);
    ef_intern_free(s.dim_names);
    ef_strbuf_free(&s.comment);
    ef_vec_free(&s.nodes);
    ef_vec_free(&s.operands);
    ef_vec_free(&s.stack);
    ef_vec_free(&s.dims);
    ef_vec_free(&s.numbers);
    ef_vec_free(&s.defs);
    ef_vec_free(&s.named);
    ef_vec_free(&s.var_bytes);
    ef_vec_free(&s.type_weight);
    return program;
}

ef_program *ef_program_parse(ef_ctx *ctx, const char *text, size_t length, const char *file, ef_diag *diag)
{
    return parse((ef_text){.ctx = ctx, .diag = diag, .file = file ? file : "text", .text = text, .length = length});
}

ef_program *ef_program_parse_f64(ef_ctx *ctx, const char *text, size_t length, ef_diag *diag)
{
    return parse((ef_text){.ctx = ctx, .diag = diag, .file = "text", .text = text, .length = length, .wide = true});
}

ef_program *ef_program_read(ef_ctx *ctx, const char *path, ef_diag *diag)
{
    ef_program *program = NULL;
    FILE *file = fopen(path, "rb");
    if (!file) {
        ef_fail(diag, "%.300s: cannot open: %s", path, strerror(errno));
        return NULL;
    }
    char *text = ef_xcalloc(EF_TEXT_BYTES + 1, 1);
    size_t length = fread(text, 1, EF_TEXT_BYTES + 1, file);
    if (ferror(file))
        ef_fail(diag, "%.300s: cannot read: %s", path, strerror(errno));
    else if (length > EF_TEXT_BYTES)
        ef_fail(diag, "%.300s: the program is larger than %u MiB", path, EF_TEXT_BYTES >> 20);
    else
        program = ef_program_parse(ctx, text, length, path, diag);
    fclose(file);
    free(text);
    return program;
}

/* A program that the caller put together (no arena) stays the caller's, DAG and all. */
void ef_program_free(ef_program *program)
{
    if (!program || !program->arena)
        return;
    ef_dag_free(program->dag);
    ef_arena_free(program->arena);
}
