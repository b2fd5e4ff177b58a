/* Loops that fill tiles: one nest over the extents of the value, the last dimension innermost. */
#include <string.h>

#include "codegen/c_print.h"

#define STACK_ROOM (192u << 10) /* bytes of tiles on a thread's stack; the rest lies in scratch memory */
#define ALIGN 64u

unsigned ef_c_open(ef_c *c, const c_atom *atom, unsigned count, ef_index *index, const char *pragma)
{
    unsigned loops = 0, last = count;
    for (unsigned i = 0; i < count; i++)
        if (!atom[i].fixed || atom[i].room > 1)
            last = i;
    for (unsigned i = 0; i < count; i++) {
        if (atom[i].fixed && atom[i].room == 1) {
            index[i] = ef_index_const(c->ix, 0);
            continue;
        }
        const char *name = ef_c_text(c, "i_%s_%u", ef_c_var_name(c, atom[i].var), c->number++);
        index[i] = ef_index_name(c->ix, name, atom[i].room);
        if (i == last && pragma)
            ef_c_line(c, "%s", pragma);
        ef_c_line(c, "for (long %s = 0; %s < %s; %s++) {", name, name, atom[i].len, name);
        c->indent++;
        loops++;
    }
    return loops;
}

void ef_c_close(ef_c *c, unsigned loops)
{
    while (loops-- > 0) {
        c->indent--;
        ef_c_line(c, "}");
    }
}

void ef_c_declare(ef_c *c, ef_kid id, const char *name)
{
    const ef_knode *node = ef_kernel_node(c->kernel, id);
    static const unsigned bytes[] = {[C_INT] = 4, [C_LONG] = 8, [C_FLOAT] = 4, [C_DOUBLE] = 8};
    c_type type = ef_c_type((ef_dtype)node->dtype);
    uint64_t room = ef_c_room(c, node), size = (room * bytes[type] + ALIGN - 1) / ALIGN * ALIGN;
    if (c->stack + size <= STACK_ROOM) {
        ef_c_line(c, "%s %s[%llu] __attribute__((aligned(64)));", ef_c_type_names[type], name,
                  (unsigned long long)room);
        c->stack += size;
        return;
    }
    ef_c_line(c, "%s *const restrict %s = (%s *)(void *)(scratch + %llu);", ef_c_type_names[type], name,
              ef_c_type_names[type], (unsigned long long)c->scratch);
    c->scratch += size;
}

void ef_c_fill(ef_c *c, ef_kid id, double value)
{
    const ef_knode *node = ef_kernel_node(c->kernel, id);
    const char *literal = ef_c_literal(c, value, ef_c_type((ef_dtype)node->dtype));
    ef_c_line(c, "for (long i = 0; i < %llu; i++)", (unsigned long long)ef_c_room(c, node));
    ef_c_line(c, "    %s[i] = %s;", c->node[id].name, literal);
}

static void describe(ef_c *c, ef_kid id)
{
    const char *name = c->kernel->names.at[id];
    const ef_knode *node = ef_kernel_node(c->kernel, id);
    ef_strbuf dims = {0};
    for (unsigned i = node->rank; i-- > 0;) {
        ef_dim_print(c->graph->ctx, node->dim[i].dim, &dims);
        ef_strbuf_puts(&dims, i ? ", " : "");
    }
    ef_c_line(c, "/* %s%s%s [%s] */", name ? name : "", name ? " = " : "", ef_knode_op_name(node),
              dims.text ? dims.text : "");
    ef_strbuf_free(&dims);
}

void ef_c_write(ef_c *c, ef_kid id, const char *tile)
{
    const ef_knode *node = ef_kernel_node(c->kernel, id);
    c_atom atom[C_MAX_ATOMS];
    ef_index index[C_MAX_ATOMS];
    unsigned count = ef_c_atoms(c, node, atom);
    ef_c_forget(c);
    unsigned loops = ef_c_open(c, atom, count, index, "#pragma omp simd");
    if (loops == 0)
        ef_c_line(c, "{");
    c->indent += loops == 0;
    c_value value = ef_c_element(c, id, index, true);
    ef_c_line(c, "%s[%s] = %s;", tile, ef_c_index(c, ef_c_tile_address(c, node, index)),
              ef_c_as(c, value, ef_c_type((ef_dtype)node->dtype)));
    ef_c_close(c, loops ? loops : 1);
}

/* ---- reductions along a dimension ---- */

static const char *combined(ef_c *c, ef_reducer reducer, c_type type, const char *a, const char *b)
{
    const char *suffix = type == C_DOUBLE ? "d" : "f";
    switch (reducer) {
    case EF_RED_SUM: return ef_c_text(c, "%s + %s", a, b);
    case EF_RED_PROD: return ef_c_text(c, "%s * %s", a, b);
    default: break;
    }
    if (type < C_FLOAT)
        return ef_c_text(c, "%s %c %s ? %s : %s", a, reducer == EF_RED_MAX ? '>' : '<', b, a, b);
    return ef_c_text(c, "ef_%s%s(%s, %s)", reducer == EF_RED_MAX ? "max" : "min", suffix, a, b);
}

/* The reduced dimension's loops are the innermost: one scalar accumulates. */
static void reduce_inner(ef_c *c, const ef_knode *node, c_atom *kept, unsigned keeps, c_atom *gone, unsigned goes,
                         const unsigned *place, const char *tile)
{
    static const char *const clause[] = {"+", "ef_max", "ef_min", "*"};
    ef_reducer reducer = ef_attr_reducer(node->attr);
    c_type type = ef_c_type((ef_dtype)node->dtype);
    ef_index index[C_MAX_ATOMS], out[C_MAX_ATOMS], in[C_MAX_ATOMS];
    unsigned loops = ef_c_open(c, kept, keeps, out, NULL);
    if (loops == 0)
        ef_c_line(c, "{");
    c->indent += loops == 0;
    const char *sum = ef_c_text(c, "r%u", c->number++);
    ef_c_line(c, "%s %s = %s;", ef_c_type_names[type], sum, ef_c_literal(c, ef_reducer_identity(reducer), type));
    bool simd = type == C_FLOAT || reducer == EF_RED_SUM || reducer == EF_RED_PROD;
    unsigned inner = ef_c_open(c, gone, goes, in,
                               simd ? ef_c_text(c, "#pragma omp simd reduction(%s : %s)", clause[reducer], sum) : NULL);
    for (unsigned i = 0; i < keeps + goes; i++)
        index[i] = place[i] < keeps ? out[place[i]] : in[place[i] - keeps];
    c_value value = ef_c_element(c, node->child[0], index, false);
    ef_c_line(c, "%s = %s;", sum, combined(c, reducer, type, ef_c_as(c, value, type), sum));
    ef_c_close(c, inner);
    ef_c_line(c, "%s[%s] = %s;", tile, ef_c_index(c, ef_c_tile_address(c, node, out)), sum);
    ef_c_close(c, loops ? loops : 1);
}

/* The reduced dimension is not the last: the tile accumulates, along its own last dimension. */
static void reduce_outer(ef_c *c, ef_kid id, const c_atom *atom, unsigned count, unsigned dim, const char *tile)
{
    const ef_knode *node = ef_kernel_node(c->kernel, id);
    ef_reducer reducer = ef_attr_reducer(node->attr);
    c_type type = ef_c_type((ef_dtype)node->dtype);
    ef_index index[C_MAX_ATOMS], out[C_MAX_ATOMS];
    unsigned keeps = 0;
    ef_c_fill(c, id, ef_reducer_identity(reducer));
    unsigned loops = ef_c_open(c, atom, count, index, "#pragma omp simd");
    for (unsigned i = 0; i < count; i++)
        if (atom[i].dim != dim)
            out[keeps++] = index[i];
    c_value value = ef_c_element(c, node->child[0], index, false);
    const char *at = ef_c_text(c, "%s[%s]", tile, ef_c_index(c, ef_c_tile_address(c, node, out)));
    ef_c_line(c, "%s = %s;", at, combined(c, reducer, type, ef_c_as(c, value, type), at));
    ef_c_close(c, loops);
}

static void reduce(ef_c *c, ef_kid id, const char *tile)
{
    const ef_knode *node = ef_kernel_node(c->kernel, id), *child = ef_kernel_node(c->kernel, node->child[0]);
    unsigned dim = ef_attr_reduce_at(node->attr), keeps = 0, goes = 0, place[C_MAX_ATOMS];
    c_atom atom[C_MAX_ATOMS], kept[C_MAX_ATOMS], gone[C_MAX_ATOMS];
    unsigned count = ef_c_atoms(c, child, atom);
    bool last = true;
    for (unsigned i = 0; i < count; i++)
        keeps += atom[i].dim != dim;
    for (unsigned i = 0, k = 0; i < count; i++) {
        bool reduced = atom[i].dim == dim;
        place[i] = reduced ? keeps + goes : k;
        last = last && (atom[i].dim >= dim || (atom[i].fixed && atom[i].room == 1));
        if (reduced)
            gone[goes++] = atom[i];
        else
            kept[k++] = atom[i];
    }
    ef_c_forget(c);
    if (last)
        reduce_inner(c, node, kept, keeps, gone, goes, place, tile);
    else
        reduce_outer(c, id, atom, count, dim, tile);
}

void ef_c_tile(ef_c *c, ef_kid id)
{
    const ef_knode *node = ef_kernel_node(c->kernel, id);
    const char *given = c->kernel->names.at[id];
    describe(c, id);
    if (!c->node[id].name) {
        c->node[id].name = ef_c_text(c, "%s_t%u", given ? ef_c_identifier(c, given) : "tile", id);
        ef_c_declare(c, id, c->node[id].name);
    }
    if (node->op == EF_TILE_MATMUL) {
        ef_c_fill(c, id, 0);
        ef_c_matmul(c, id, c->node[id].name);
    } else if (node->op == EF_REDUCE) {
        reduce(c, id, c->node[id].name);
    } else {
        ef_c_write(c, id, c->node[id].name);
    }
}

/* ---- stores ---- */

static const char *stored_text(ef_c *c, ef_dtype dtype, c_value value)
{
    switch (dtype) {
    case EF_F16: return ef_c_text(c, "ef_to_f16(%s)", ef_c_as(c, value, C_FLOAT));
    case EF_BF16: return ef_c_text(c, "ef_to_bf16(%s)", ef_c_as(c, value, C_FLOAT));
    case EF_BOOL: return ef_c_text(c, "(uint8_t)(%s != 0)", ef_c_as(c, value, C_INT));
    default: return ef_c_as(c, value, ef_c_type(dtype));
    }
}

/* Only the first coordinate stores what is the same at all. */
static unsigned once(ef_c *c, const ef_kstore *store)
{
    unsigned conditions = 0;
    for (uint32_t i = 0; i < c->kernel->grid; i++) {
        int64_t position;
        if (!(store->once >> i & 1) || ef_index_is_const(c->ix, c->iter[i].position, &position))
            continue;
        ef_c_line(c, "if (%s == 0) {", ef_c_index(c, c->iter[i].position));
        c->indent++;
        conditions++;
    }
    return conditions;
}

void ef_c_store(ef_c *c, const ef_kstore *store)
{
    const ef_knode *node = ef_kernel_node(c->kernel, store->value);
    const ef_kbuffer *b = &c->graph->buffers.at[store->buffer];
    c_atom atom[C_MAX_ATOMS];
    ef_index index[C_MAX_ATOMS], whole[C_MAX_ATOMS], lead[EF_K_MAX_LEADS];
    unsigned count = ef_c_atoms(c, node, atom), dim = EF_MAX_RANK;
    ef_c_line(c, "/* store %s */", b->name);
    unsigned conditions = once(c, store);
    ef_c_forget(c);
    unsigned loops = ef_c_open(c, atom, count, index, "#pragma omp simd");
    if (loops == 0)
        ef_c_line(c, "{");
    c->indent += loops == 0;
    for (unsigned i = 0; i < count; i++) { /* the first variable of a dimension is the one that is cut */
        uint32_t cut = atom[i].dim == dim ? EF_NONE : node->dim[atom[i].dim].cut;
        whole[i] = cut == EF_NONE ? index[i] : ef_index_add(c->ix, index[i], c->iter[cut].start);
        dim = atom[i].dim;
    }
    for (unsigned i = 0; i < store->leads; i++)
        lead[i] = c->iter[store->lead[i]].position;
    c_value value = ef_c_element(c, store->value, index, false);
    ef_index at = ef_map_address(&c->maps, store->buffer, node, lead, store->leads, whole);
    ef_c_line(c, "%s[%s] = %s;", ef_c_buffer_name(c, store->buffer), ef_c_index(c, at),
              stored_text(c, (ef_dtype)b->dtype, value));
    ef_c_close(c, loops ? loops : 1);
    ef_c_close(c, conditions);
}
