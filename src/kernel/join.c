/* Joined variables: variables that stand side by side, in one order, wherever a kernel has one of them are one variable
 * to it. A projection whose columns are heads * d can then have tiles of any number of columns; an axis cuts the first
 * variable of a dimension alone, and there are few heads. */
#include <stdlib.h>
#include <string.h>

#include "kernel/lower.h"

#define UNSEEN (EF_NONE - 1)

/* Of a variable: those that it always has before and after it, EF_NONE where it has none or may not be joined. */
typedef struct {
    ef_var before, after;
    bool closed;
} neighbours;

typedef struct {
    ef_kgraph *g;
    ef_kernel *k;
    neighbours *of; /* by variable */
    uint32_t vars;
} joining;

static void close_var(joining *j, ef_var var)
{
    j->of[var].closed = true;
}

static void close_dim(joining *j, ef_dim dim)
{
    const ef_var *atom;
    for (unsigned i = 0, n = ef_dim_atoms(j->g->ctx, dim, &atom); i < n; i++)
        close_var(j, atom[i]);
}

static void meet(ef_var *neighbour, ef_var now)
{
    *neighbour = *neighbour == UNSEEN || *neighbour == now ? now : EF_NONE;
}

/* What is made of other variables stays what it is, and so do these. */
static void close_derived(joining *j, ef_var var)
{
    const ef_var_info *info = ef_var_at(j->g->ctx, var);
    const ef_dim *part;
    if (info->kind == EF_VAR_NAMED)
        return;
    close_var(j, var);
    if (info->kind == EF_VAR_SLICE || info->kind == EF_VAR_TWIN)
        close_dim(j, info->parent);
    else if (info->kind == EF_VAR_COUNT)
        close_var(j, ef_axis_var(info->axis));
    for (unsigned i = 0, n = info->kind == EF_VAR_CONCAT ? ef_dims_at(j->g->ctx, info->parts, &part) : 0; i < n; i++)
        close_dim(j, part[i]);
}

static void look_at(joining *j, ef_dim dim)
{
    const ef_var *atom;
    unsigned n = ef_dim_atoms(j->g->ctx, dim, &atom);
    for (unsigned i = 0; i < n; i++) {
        meet(&j->of[atom[i]].before, i > 0 ? atom[i - 1] : EF_NONE);
        meet(&j->of[atom[i]].after, i + 1 < n ? atom[i + 1] : EF_NONE);
        close_derived(j, atom[i]);
    }
}

/* Iterators walk along the first variable of what is joined, and only where they cut something: what is the same for
 * all of their positions has no other number of these. */
static void look_at_iterators(joining *j)
{
    const ef_kernel *k = j->k;
    bool *cuts = ef_xcalloc(k->iters.count + 1, sizeof *cuts);
    for (ef_kid id = 0; id < ef_kernel_nodes(k); id++)
        for (unsigned d = 0; d < ef_kernel_node(k, id)->rank; d++)
            if (ef_kernel_node(k, id)->dim[d].cut != EF_NONE)
                cuts[ef_kernel_node(k, id)->dim[d].cut] = true;
    for (uint32_t i = 0; i < k->iters.count; i++) {
        const ef_iter *iter = &k->iters.at[i];
        if (iter->kind == EF_ITER_PICK)
            continue;
        ef_var var = ef_axis_var(iter->axis);
        j->of[var].before = EF_NONE;
        /* Tiles that shape a buffer are counted in the axis's own variable. */
        if (!cuts[i] || j->g->params.at[iter->param].kernel == EF_NONE)
            close_var(j, var);
    }
    free(cuts);
}

/* Whether b follows a, and the two may be one. */
static bool follows(const joining *j, ef_var a, ef_var b)
{
    return b < j->vars && !j->of[a].closed && !j->of[b].closed && j->of[a].after == b && j->of[b].before == a;
}

/* The dimension with what may be joined joined. */
static ef_dim joined(const joining *j, ef_dim dim)
{
    const ef_var *atom;
    ef_var all[EF_MAX_ATOMS], out[EF_MAX_ATOMS];
    unsigned n = ef_dim_atoms(j->g->ctx, dim, &atom), count = 0;
    memcpy(all, atom, n * sizeof *all); /* interning may move the list */
    for (unsigned first = 0, end; first < n; first = end) {
        for (end = first + 1; end < n && follows(j, all[end - 1], all[end]);)
            end++;
        out[count++] = end - first > 1 ? ef_var_joined(j->g->ctx, all + first, end - first) : all[first];
    }
    return ef_dim_product(j->g->ctx, out, count);
}

/* The variable that begins with this one: itself, or what it is the first of. */
static ef_var joined_var(const joining *j, ef_var var)
{
    ef_var all[EF_MAX_ATOMS] = {var};
    unsigned n = 1;
    while (n < EF_MAX_ATOMS && j->of[all[n - 1]].after < j->vars && follows(j, all[n - 1], j->of[all[n - 1]].after)) {
        all[n] = j->of[all[n - 1]].after;
        n++;
    }
    return n > 1 ? ef_var_joined(j->g->ctx, all, n) : var;
}

static void rewrite(joining *j)
{
    ef_kernel *k = j->k;
    ef_intern *nodes = ef_intern_new();
    for (ef_kid id = 0; id < ef_kernel_nodes(k); id++) { /* different nodes stay different: ids are what they were */
        ef_knode node = *ef_kernel_node(k, id);
        for (unsigned d = 0; d < node.rank; d++)
            node.dim[d].dim = joined(j, node.dim[d].dim);
        ef_intern_put(nodes, &node, sizeof node, NULL);
    }
    ef_intern_free(k->nodes);
    k->nodes = nodes;
    for (uint32_t i = 0; i < k->iters.count; i++) {
        ef_iter *iter = &k->iters.at[i];
        if (iter->kind == EF_ITER_PICK)
            continue;
        iter->axis = ef_axis_of(joined_var(j, ef_axis_var(iter->axis)), ef_axis_level(iter->axis));
        j->g->params.at[iter->param].axis = iter->axis;
    }
}

void ef_join_variables(ef_kgraph *g, ef_kernel *k)
{
    joining j = {.g = g, .k = k, .vars = ef_var_count(g->ctx)};
    j.of = ef_xcalloc(j.vars + 1, sizeof *j.of);
    for (uint32_t v = 0; v < j.vars; v++)
        j.of[v] = (neighbours){UNSEEN, UNSEEN, false};
    for (ef_kid id = 0; id < ef_kernel_nodes(k); id++)
        for (unsigned d = 0; d < ef_kernel_node(k, id)->rank; d++)
            look_at(&j, ef_kernel_node(k, id)->dim[d].dim);
    look_at_iterators(&j);
    rewrite(&j);
    free(j.of);
}
