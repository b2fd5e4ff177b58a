/* Index maps: see maps.h. */
#include "codegen/maps.h"

#include <string.h>

/* ---- positions ---- */

static unsigned dim_atoms(const ef_maps *m, ef_dim dim)
{
    const ef_var *atoms;
    return ef_dim_atoms(m->graph->ctx, dim, &atoms);
}

unsigned ef_map_dim_at(const ef_maps *m, const ef_knode *node, unsigned dim)
{
    unsigned at = 0;
    for (unsigned i = node->rank; i-- > dim + 1;)
        at += dim_atoms(m, node->dim[i].dim);
    return at;
}

ef_index ef_map_position(const ef_maps *m, ef_dim dim, const ef_index *index)
{
    const ef_var *atoms;
    ef_index sum = ef_index_const(m->ix, 0);
    for (unsigned i = 0, n = ef_dim_atoms(m->graph->ctx, dim, &atoms); i < n; i++)
        sum = ef_index_add(m->ix, ef_index_scale(m->ix, sum, (int64_t)ef_sched_var(m->graph, m->schedule, atoms[i])),
                           index[i]);
    return sum;
}

/* The other way round; returns how many entries. */
static unsigned delinear(const ef_maps *m, ef_dim dim, ef_index position, ef_index *index)
{
    const ef_var *atoms;
    unsigned n = ef_dim_atoms(m->graph->ctx, dim, &atoms);
    for (unsigned i = n; i-- > 0;) {
        uint64_t extent = ef_sched_var(m->graph, m->schedule, atoms[i]);
        index[i] = i == 0 ? position : ef_index_mod(m->ix, position, extent);
        position = ef_index_div(m->ix, position, extent);
    }
    return n;
}

void ef_map_spread(const ef_maps *m, const ef_knode *node, const ef_knode *child, const ef_index *index,
                   ef_index *inner)
{
    for (unsigned i = child->rank; i-- > 0;) {
        unsigned n = dim_atoms(m, child->dim[i].dim);
        memcpy(inner, index + ef_map_dim_at(m, node, i), n * sizeof *inner);
        inner += n;
    }
}

static ef_index cut_start(const ef_maps *m, uint32_t cut)
{
    return cut == EF_NONE ? ef_index_const(m->ix, 0) : m->start[cut];
}

static void step_view(const ef_maps *m, const ef_knode *node, const ef_knode *child, const ef_index *index,
                      ef_index *inner)
{
    for (unsigned i = node->rank; i-- > 0;) {
        unsigned n = dim_atoms(m, node->dim[i].dim);
        memcpy(inner, index, n * sizeof *inner);
        if (n)
            inner[0] = ef_index_add(
                m->ix, inner[0], ef_index_sub(m->ix, cut_start(m, node->dim[i].cut), cut_start(m, child->dim[i].cut)));
        index += n;
        inner += n;
    }
}

static void step_transpose(const ef_maps *m, const ef_knode *node, const ef_knode *child, const ef_index *index,
                           ef_index *inner)
{
    for (unsigned j = child->rank; j-- > 0;) {
        unsigned i = 0, n = dim_atoms(m, child->dim[j].dim);
        while (ef_perm_at(node->attr, i) != j)
            i++;
        memcpy(inner, index + ef_map_dim_at(m, node, i), n * sizeof *inner);
        inner += n;
    }
}

static unsigned all_atoms(const ef_maps *m, const ef_knode *node, ef_var *var)
{
    const ef_var *atoms;
    unsigned n = 0;
    for (unsigned i = node->rank; i-- > 0;)
        for (unsigned a = 0, count = ef_dim_atoms(m->graph->ctx, node->dim[i].dim, &atoms); a < count; a++)
            var[n++] = atoms[a];
    return n;
}

/* Both shapes fall into parts of equally many elements, from the outermost on; inside a part an entry goes through the
 * position in memory order. A part of one variable each keeps its entry: it may be cut, or have another name. */
static void step_reshape(const ef_maps *m, const ef_knode *node, const ef_knode *child, const ef_index *index,
                         ef_index *inner)
{
    ef_var a[EF_MAX_RANK * EF_MAX_ATOMS], b[EF_MAX_RANK * EF_MAX_ATOMS];
    unsigned na = all_atoms(m, node, a), nb = all_atoms(m, child, b);
    for (unsigned i = 0, j = 0; i < na || j < nb;) {
        unsigned from_a = i, from_b = j;
        uint64_t pa = 1, pb = 1;
        do {
            bool take_a = (pa <= pb && i < na) || j == nb;
            *(take_a ? &pa : &pb) *= ef_sched_var(m->graph, m->schedule, take_a ? a[i++] : b[j++]);
        } while (pa != pb && (i < na || j < nb));
        if (i - from_a == 1 && j - from_b == 1) {
            inner[from_b] = index[from_a];
            continue;
        }
        ef_index position = ef_index_const(m->ix, 0);
        for (unsigned k = from_a; k < i; k++) {
            int64_t extent = (int64_t)ef_sched_var(m->graph, m->schedule, a[k]);
            position = ef_index_add(m->ix, ef_index_scale(m->ix, position, extent), index[k]);
        }
        for (unsigned k = j; k-- > from_b;) {
            uint64_t extent = ef_sched_var(m->graph, m->schedule, b[k]);
            inner[k] = k == from_b ? position : ef_index_mod(m->ix, position, extent);
            position = ef_index_div(m->ix, position, extent);
        }
    }
}

void ef_map_replace(const ef_maps *m, const ef_knode *node, const ef_knode *child, unsigned dim, ef_index position,
                    const ef_index *index, ef_index *inner)
{
    for (unsigned i = child->rank; i-- > 0;) {
        unsigned n = dim_atoms(m, child->dim[i].dim);
        if (i == dim)
            delinear(m, child->dim[i].dim, position, inner);
        else
            memcpy(inner, index + ef_map_dim_at(m, node, i), n * sizeof *inner);
        inner += n;
    }
}

static void step_slice(const ef_maps *m, const ef_knode *node, const ef_knode *child, const ef_index *index,
                       ef_index *inner)
{
    unsigned dim = ef_slice_index(node->attr);
    ef_index position = ef_map_position(m, node->dim[dim].dim, index + ef_map_dim_at(m, node, dim));
    position = ef_index_add(m->ix, position, ef_index_const(m->ix, ef_slice_start(node->attr)));
    ef_map_replace(m, node, child, dim, position, index, inner);
}

bool ef_map_step(const ef_maps *m, ef_kid id, const ef_index *index, ef_kid *child, ef_index *inner)
{
    const ef_knode *node = ef_kernel_node(m->kernel, id);
    if (node->count != 1)
        return false;
    const ef_knode *operand = ef_kernel_node(m->kernel, node->child[0]);
    switch (node->op) {
    case EF_VIEW: step_view(m, node, operand, index, inner); break;
    case EF_TRANSPOSE: step_transpose(m, node, operand, index, inner); break;
    case EF_RESHAPE: step_reshape(m, node, operand, index, inner); break;
    case EF_BROADCAST: ef_map_spread(m, node, operand, index, inner); break;
    case EF_SLICE: step_slice(m, node, operand, index, inner); break;
    case EF_K_PICK:
        inner[0] = m->start[node->attr];
        ef_map_spread(m, node, node, index, inner + 1);
        break;
    default: return false;
    }
    *child = node->child[0];
    return true;
}

/* ---- addresses ---- */

ef_index ef_map_address(const ef_maps *m, uint32_t buffer, const ef_knode *node, const ef_index *lead, unsigned leads,
                        const ef_index *index)
{
    const ef_kbuffer *b = &m->graph->buffers.at[buffer];
    ef_index sum = ef_index_const(m->ix, 0);
    for (unsigned i = b->rank; i-- > 0;) {
        bool leading = b->rank - 1 - i < leads;
        ef_dim dim = leading ? b->dim[i] : node->dim[i].dim;
        ef_index at = leading ? lead[b->rank - 1 - i] : ef_map_position(m, dim, index);
        index += leading ? 0 : dim_atoms(m, dim);
        sum = ef_index_add(m->ix, ef_index_scale(m->ix, sum, (int64_t)ef_sched_dim(m->graph, m->schedule, dim)), at);
    }
    return sum;
}
