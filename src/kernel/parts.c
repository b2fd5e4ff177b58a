/* Parts of a split reduction that a mask empties are not there (design, section 7).
 *
 * Where each block reduces one part of a dimension and stores its state, a part in which the masks of its loop hold
 * nowhere leaves the state as it begins, which changes nothing when the states are merged by the same reducer. Where it
 * follows from the positions alone which parts these are, neither their blocks nor their states need to be there: the
 * axis then has only the parts that meet certain runs of positions (schedule.h says which, given their size). Without
 * that, a window at the end of a long history would be left to the few blocks whose parts it lies in.
 *
 * When in doubt, all parts are there. */
#include "kernel/holds.h"
#include "kernel/lower.h"

#define MOST_VISITS 20000u

/* A loop over an axis's parts. */
typedef struct {
    const ef_kernel *kernel;
    const ef_kloop *loop;
} part_loop;

typedef struct {
    const ef_kgraph *g;
    ef_axis axis;
    EF_VEC(part_loop) loops;
    ef_positions at;
    bool unknown;
    ef_kparts found;
} asking;

/* Whether some loop does something at these positions, `to` not included. */
static ef_holds any_condition(asking *a, uint64_t from, uint64_t to)
{
    ef_holds any = EF_HOLDS_NEVER;
    a->at.span[0].from = (double)from;
    a->at.span[0].to = (double)to - 1;
    for (uint32_t i = 0; i < a->loops.count && any != EF_HOLDS_ALWAYS; i++) {
        ef_holds one = ef_loop_holds(&a->at, a->loops.at[i].kernel, a->loops.at[i].loop);
        any = one > any ? one : any;
    }
    return any;
}

static void add_run(asking *a, uint64_t from, uint64_t to)
{
    ef_kparts *f = &a->found;
    if (f->runs && f->run[f->runs - 1].to == from)
        f->run[f->runs - 1].to = to;
    else if (f->runs == EF_K_MAX_RUNS)
        a->unknown = true;
    else
        f->run[f->runs++] = (ef_krun){from, to};
}

/* Halves what is not the same everywhere. */
static void find_runs(asking *a, uint64_t from, uint64_t to)
{
    ef_holds here = any_condition(a, from, to);
    if (a->unknown || here == EF_HOLDS_NEVER)
        return;
    if (here == EF_HOLDS_ALWAYS) {
        add_run(a, from, to);
    } else if (to - from == 1 || a->at.visits > MOST_VISITS) {
        a->unknown = true;
    } else {
        find_runs(a, from, from + (to - from) / 2);
        find_runs(a, from + (to - from) / 2, to);
    }
}

/* ---- what is stored of parts ---- */

/* A buffer that holds a leaf of a reducer's states, by part. */
typedef struct {
    ef_axis axis; /* EF_NONE: it does not */
    ef_reducer reducer;
    unsigned leaf;
} state_buffer;

/* The loop over the iterator's parts, and its leaf, that a store has the final state of. */
static const ef_kloop *stored_loop(const ef_kernel *k, const ef_kstore *store, uint32_t iter, unsigned *leaf)
{
    for (uint32_t i = 0; i < k->loops.count; i++) {
        const ef_kloop *loop = &k->loops.at[i];
        if (k->iters.at[loop->iter].outer != iter || loop->keeps == 0)
            continue;
        for (*leaf = 0; *leaf < loop->leaves; (*leaf)++)
            if (loop->result[*leaf] == store->value)
                return loop;
    }
    return NULL;
}

/* Notes what a kernel stores along one of its iterators; false when it is anything but states of masked loops. */
static bool note_stores(asking *a, const ef_kernel *k, uint32_t iter, state_buffer *buffer)
{
    for (uint32_t s = 0; s < k->stores.count; s++) {
        const ef_kstore *store = &k->stores.at[s];
        unsigned leaf;
        bool leads = false;
        for (unsigned i = 0; i < store->leads; i++)
            leads = leads || store->lead[i] == iter;
        const ef_kloop *loop = leads ? stored_loop(k, store, iter, &leaf) : NULL;
        if (!loop)
            return false;
        buffer[store->buffer] = (state_buffer){a->axis, loop->reducer, leaf};
        if (a->loops.count == 0 || a->loops.at[a->loops.count - 1].loop != loop)
            ef_vec_push(&a->loops, ((part_loop){k, loop}));
    }
    return true;
}

/* The buffer that a node is, seen through any cuts; EF_NONE: none. */
static uint32_t buffer_of(const ef_kernel *k, ef_kid id)
{
    const ef_knode *n = ef_kernel_node(k, id);
    while (n->op == EF_VIEW)
        n = ef_kernel_node(k, n->child[0]);
    return n->op == EF_K_BUFFER ? (uint32_t)n->attr : EF_NONE;
}

/* Whether a loop merges stored states by the reducer that made them. */
static bool merges(const ef_kernel *k, const ef_kloop *loop, ef_axis axis, const state_buffer *buffer)
{
    for (unsigned i = 0; i < loop->leaves; i++) {
        const ef_knode *n = ef_kernel_node(k, loop->in[i]);
        while (n->op == EF_VIEW || n->op == EF_CAST || n->op == EF_BROADCAST)
            n = ef_kernel_node(k, n->child[0]);
        uint32_t from = n->op == EF_K_PICK && n->attr == loop->iter ? buffer_of(k, n->child[0]) : EF_NONE;
        if (from == EF_NONE)
            return false;
        const state_buffer *b = &buffer[from];
        if (b->axis != axis || b->reducer != loop->reducer || b->leaf != i)
            return false;
    }
    return true;
}

/* Whether a kernel does nothing with states but merge them. */
static bool only_merges(const ef_kgraph *g, const ef_kernel *k, ef_axis axis, const state_buffer *buffer)
{
    for (ef_kid id = 0; id < ef_kernel_nodes(k); id++) {
        const ef_knode *n = ef_kernel_node(k, id);
        for (unsigned i = 0; i < n->rank; i++)
            if (buffer_of(k, id) == EF_NONE && ef_dim_counts(g, n->dim[i].dim, ef_axis_var(axis), axis))
                return false;
        for (unsigned i = 0; i < n->count; i++) {
            uint32_t from = buffer_of(k, n->child[i]);
            if (n->op == EF_VIEW || from == EF_NONE || buffer[from].axis != axis)
                continue;
            if (n->op != EF_K_PICK || !merges(k, &k->loops.at[k->iters.at[n->attr].loop], axis, buffer))
                return false;
        }
    }
    return true;
}

/* Whether parts that see nothing can be left out, as far as the kernels go. */
static bool suits(asking *a, state_buffer *buffer)
{
    const ef_kgraph *g = a->g;
    for (uint32_t i = 0; i < g->kernels.count; i++) {
        const ef_kernel *k = g->kernels.at[i];
        for (uint32_t at = 0; at < k->iters.count; at++)
            if (k->iters.at[at].kind != EF_ITER_PICK && k->iters.at[at].axis == a->axis &&
                (k->iters.at[at].kind != EF_ITER_GRID || !note_stores(a, k, at, buffer)))
                return false;
    }
    for (uint32_t i = 0; i < g->outputs.count; i++)
        if (buffer[g->outputs.at[i]].axis == a->axis)
            return false;
    for (uint32_t i = 0; i < g->kernels.count; i++)
        if (!only_merges(g, g->kernels.at[i], a->axis, buffer))
            return false;
    return a->loops.count > 0;
}

static void find_axis(ef_kgraph *g, ef_axis axis)
{
    asking a = {.g = g, .axis = axis, .found = {.axis = axis}};
    a.at = (ef_positions){.graph = g, .spans = 1, .span = {{.var = ef_axis_var(axis)}}, .most_visits = MOST_VISITS};
    uint64_t extent = ef_var_at(g->ctx, ef_axis_var(axis))->extent;
    state_buffer *buffer = ef_xcalloc(g->buffers.count + 1, sizeof *buffer);
    for (uint32_t i = 0; i < g->buffers.count; i++)
        buffer[i].axis = EF_NONE;
    if (suits(&a, buffer))
        find_runs(&a, 0, extent);
    const ef_kparts *f = &a.found;
    if (!a.unknown && f->runs && (f->runs > 1 || f->run[0].from > 0 || f->run[0].to < extent))
        ef_vec_push(&g->parts, *f);
    ef_vec_free(&a.loops);
    free(buffer);
}

void ef_kgraph_find_parts(ef_kgraph *g)
{
    for (uint32_t i = 0; i < g->params.count; i++)
        if (g->params.at[i].kind == EF_PARAM_TILE && g->params.at[i].kernel == EF_NONE &&
            ef_axis_level(g->params.at[i].axis) == 0)
            find_axis(g, g->params.at[i].axis);
}
