/* Matrix products: calls of the support code's register-blocked loops, which read both operands where they lie.
 *
 * The first operand is in float or double, as the result is: a tile or a stored one, with any strides. The second may
 * be stored in a narrower type; its rows or its columns are contiguous, or it is copied into a tile first. Several
 * variables of one dimension become loops around the call, all but the last. */
#include <inttypes.h>
#include <string.h>

#include "codegen/c_print.h"

#define MANY_ROWS 16u /* of the first operand: then a second operand with contiguous columns is worth transposing */

static bool is_single(const c_atom *a)
{
    return a->fixed && a->room == 1;
}

/* The last atom of a dimension that is longer than 1, EF_NONE when there is none. */
static unsigned inner_atom(const c_atom *atom, unsigned count, unsigned dim)
{
    unsigned inner = EF_NONE;
    for (unsigned i = 0; i < count; i++)
        if (atom[i].dim == dim && !is_single(&atom[i]))
            inner = i;
    return inner;
}

/* ---- how an operand is read ---- */

typedef struct {
    ef_kid base;
    bool affine;              /* all strides are constants */
    int64_t row, column;      /* strides along the operand's last two dimensions; 0: one element, or one for all */
    bool one_row, one_column; /* one element */
} strides;

static strides strides_of(ef_c *c, ef_kid operand)
{
    c_atom atom[C_MAX_ATOMS];
    ef_index name[C_MAX_ATOMS];
    strides s = {.base = ef_c_base(c, operand), .affine = true};
    unsigned count = ef_c_atoms(c, ef_kernel_node(c->kernel, operand), atom);
    if (s.base == EF_NONE)
        return (strides){.base = EF_NONE};
    for (unsigned i = 0; i < count; i++)
        name[i] = is_single(&atom[i]) ? ef_index_const(c->ix, 0)
                                      : ef_index_name(c->ix, ef_c_text(c, "stride_%u", i), atom[i].room);
    s.one_row = inner_atom(atom, count, 1) == EF_NONE;
    s.one_column = inner_atom(atom, count, 0) == EF_NONE;
    ef_index at = ef_c_address(c, operand, name, &s.base);
    for (unsigned i = 0; i < count; i++) {
        int64_t stride = 0;
        if (!is_single(&atom[i]) && !ef_index_coefficient(c->ix, at, name[i], &stride))
            s.affine = false;
        if (i == inner_atom(atom, count, 1))
            s.row = stride;
        if (i == inner_atom(atom, count, 0))
            s.column = stride;
    }
    return s;
}

/* Whether what an operand is read from has elements of the result's type, or of one that is widened to it. */
static bool suits(const ef_c *c, ef_kid base, c_type type, bool narrow)
{
    const ef_knode *node = ef_kernel_node(c->kernel, base);
    ef_dtype dtype = (ef_dtype)node->dtype;
    if (node->op != EF_K_BUFFER)
        return ef_c_type(dtype) == type;
    dtype = (ef_dtype)c->graph->buffers.at[node->attr].dtype;
    return ef_c_type(dtype) == type && (narrow || (dtype != EF_F16 && dtype != EF_BF16));
}

static uint64_t rows_of(ef_c *c, const ef_knode *matmul)
{
    c_atom atom[C_MAX_ATOMS];
    uint64_t rows = 1;
    for (unsigned i = 0, n = ef_c_atoms(c, matmul, atom); i < n; i++)
        rows *= atom[i].dim == 1 ? atom[i].room : 1;
    return rows;
}

c_reading ef_c_reading(ef_c *c, const ef_knode *matmul, unsigned operand, ef_kid *base)
{
    strides s = strides_of(c, matmul->child[operand]);
    *base = s.base;
    if (s.base == EF_NONE || !s.affine || !suits(c, s.base, ef_c_type((ef_dtype)matmul->dtype), operand == 1))
        return C_READ_TILE;
    if (operand == 0) { /* dot products read it in vectors */
        ef_kid other;
        bool contiguous = s.column == 1 || s.one_column;
        return contiguous || ef_c_reading(c, matmul, 1, &other) != C_READ_COLUMNS ? C_READ_ROWS : C_READ_TILE;
    }
    if (s.column == 1 || (s.one_column && s.one_row))
        return C_READ_ROWS;
    return s.row == 1 && (s.one_column || rows_of(c, matmul) < MANY_ROWS) ? C_READ_COLUMNS : C_READ_TILE;
}

/* ---- the loops and the call ---- */

/* One product while it is printed: atoms of the result and of the contracted dimension, with their indices. */
typedef struct {
    const ef_knode *node;
    unsigned count, contracted;
    c_atom atom[C_MAX_ATOMS], k[C_MAX_ATOMS];
    ef_index index[C_MAX_ATOMS], k_index[C_MAX_ATOMS];
} product;

static product product_of(ef_c *c, const ef_knode *node)
{
    product p = {.node = node};
    c_atom all[C_MAX_ATOMS];
    p.count = ef_c_atoms(c, node, p.atom);
    unsigned n = ef_c_atoms(c, ef_kernel_node(c->kernel, node->child[0]), all);
    for (unsigned i = 0; i < n; i++)
        if (all[i].dim == 0)
            p.k[p.contracted++] = all[i];
    return p;
}

/* The indices of an operand: those of the batch, then its two own dimensions. */
static void operand_index(ef_c *c, const product *p, unsigned operand, ef_index *index)
{
    const ef_knode *x = ef_kernel_node(c->kernel, p->node->child[operand]);
    unsigned n = 0;
    for (unsigned i = 0; i < p->count; i++) {
        unsigned dim = p->atom[i].dim;
        if (dim >= 2 ? dim < x->rank && x->dim[dim].dim != EF_UNIT : operand == 0 && dim == 1)
            index[n++] = p->index[i];
    }
    for (unsigned i = 0; i < p->contracted; i++)
        index[n++] = p->k_index[i];
    for (unsigned i = 0; operand == 1 && i < p->count; i++)
        if (p->atom[i].dim == 0)
            index[n++] = p->index[i];
}

/* Opens loops over all atoms of a list but one, which starts at 0. */
static unsigned open_but(ef_c *c, const c_atom *atom, unsigned count, unsigned m, unsigned n, ef_index *index)
{
    unsigned loops = 0;
    for (unsigned i = 0; i < count; i++) {
        if (i == m || i == n)
            index[i] = ef_index_const(c->ix, 0);
        else
            loops += ef_c_open(c, &atom[i], 1, &index[i], NULL);
    }
    return loops;
}

static const char *length(const c_atom *atom, unsigned at)
{
    return at == EF_NONE ? "1" : atom[at].len;
}

static const char *pointer(ef_c *c, ef_kid operand, const ef_index *index)
{
    ef_kid base;
    ef_index at = ef_c_address(c, operand, index, &base);
    const ef_knode *node = ef_kernel_node(c->kernel, base);
    const char *name = node->op == EF_K_BUFFER ? ef_c_buffer_name(c, (uint32_t)node->attr) : c->node[base].name;
    return ef_c_text(c, "%s + %s", name, ef_c_index(c, at));
}

static const char *suffix_of(const ef_c *c, ef_kid base)
{
    const ef_knode *node = ef_kernel_node(c->kernel, base);
    if (node->op == EF_K_BUFFER)
        return ef_dtype_names[c->graph->buffers.at[node->attr].dtype];
    return ef_c_type((ef_dtype)node->dtype) == C_DOUBLE ? "f64" : "f32";
}

static void call(ef_c *c, product *p, c_reading reading, const char *name)
{
    unsigned m = inner_atom(p->atom, p->count, 1), n = inner_atom(p->atom, p->count, 0),
             k = inner_atom(p->k, p->contracted, 0);
    ef_index a[C_MAX_ATOMS], b[C_MAX_ATOMS];
    strides sa = strides_of(c, p->node->child[0]), sb = strides_of(c, p->node->child[1]);
    unsigned loops = open_but(c, p->atom, p->count, m, n, p->index);
    loops += open_but(c, p->k, p->contracted, k, k, p->k_index);
    operand_index(c, p, 0, a);
    operand_index(c, p, 1, b);
    int64_t row = 0;
    if (m != EF_NONE) {
        row = 1;
        for (unsigned i = m + 1; i < p->count; i++)
            row *= (int64_t)p->atom[i].room;
    }
    const char *lengths = ef_c_text(c, "%s, %s, %s", length(p->atom, m), length(p->atom, n), length(p->k, k));
    const char *first = pointer(c, p->node->child[0], a), *second = pointer(c, p->node->child[1], b);
    const char *to =
        ef_c_text(c, "%s + %s, %" PRId64, name, ef_c_index(c, ef_c_tile_address(c, p->node, p->index)), row);
    if (reading == C_READ_COLUMNS)
        ef_c_line(c, "ef_matmul_columns_%s(%s, %s, %" PRId64 ", %s, %" PRId64 ", %s);", suffix_of(c, sb.base), lengths,
                  first, sa.row, second, sb.column, to);
    else
        ef_c_line(c, "ef_matmul_rows_%s(%s, %s, %" PRId64 ", %" PRId64 ", %s, %" PRId64 ", %s);", suffix_of(c, sb.base),
                  lengths, first, sa.row, sa.column, second, sb.row, to);
    ef_c_close(c, loops);
}

/* Element by element: for integers, and operands that have no strides. */
static void general(ef_c *c, product *p, const char *name)
{
    c_type type = ef_c_type((ef_dtype)p->node->dtype);
    ef_index a[C_MAX_ATOMS], b[C_MAX_ATOMS];
    ef_c_forget(c);
    unsigned loops = ef_c_open(c, p->atom, p->count, p->index, NULL);
    if (loops == 0)
        ef_c_line(c, "{");
    c->indent += loops == 0;
    const char *sum = ef_c_text(c, "r%u", c->number++);
    ef_c_line(c, "%s %s = 0;", ef_c_type_names[type], sum);
    unsigned inner = ef_c_open(c, p->k, p->contracted, p->k_index, NULL);
    operand_index(c, p, 0, a);
    operand_index(c, p, 1, b);
    c_value x = ef_c_element(c, p->node->child[0], a, false), y = ef_c_element(c, p->node->child[1], b, false);
    ef_c_line(c, "%s += %s * %s;", sum, ef_c_as(c, x, type), ef_c_as(c, y, type));
    ef_c_close(c, inner);
    ef_c_line(c, "%s[%s] += %s;", name, ef_c_index(c, ef_c_tile_address(c, p->node, p->index)), sum);
    ef_c_close(c, loops ? loops : 1);
}

void ef_c_matmul(ef_c *c, ef_kid id, const char *name)
{
    const ef_knode *node = ef_kernel_node(c->kernel, id);
    product p = product_of(c, node);
    ef_kid a, b;
    c_reading first = C_READ_TILE, second = C_READ_TILE;
    if (ef_c_type((ef_dtype)node->dtype) >= C_FLOAT) {
        first = ef_c_reading(c, node, 0, &a);
        second = ef_c_reading(c, node, 1, &b);
    }
    bool direct = first != C_READ_TILE && second != C_READ_TILE;
    if (direct) /* a value that is no tile has no address */
        direct = (c->node[a].tile || ef_kernel_node(c->kernel, a)->op == EF_K_BUFFER) &&
                 (c->node[b].tile || ef_kernel_node(c->kernel, b)->op == EF_K_BUFFER);
    if (direct)
        call(c, &p, second, name);
    else
        general(c, &p, name);
}
