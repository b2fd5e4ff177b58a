/* Kernel formation (paper, section 6.1; design, section 7): cuts a program into kernels at combination and collection.
 *
 * Kernels are made on demand, from the outputs down: a kernel that reads a stored value has that value's kernel made
 * first, which puts them in an order in which they can run. A value that loses axes while others stay in scope (a
 * collection inside a block) is stored whole too: the axes that stay join the grid, and its readers view it. */
#include <stdio.h>
#include <string.h>

#include "ir/independent.h"
#include "kernel/lower.h"

unsigned ef_type_leaves(const ef_ctx *ctx, ef_type type, ef_type *leaf)
{
    const ef_type_info *info = ef_type_at(ctx, type);
    if (!info->is_tuple) {
        leaf[0] = type;
        return 1;
    }
    unsigned n = 0;
    for (unsigned i = 0; i < info->fields && n < EF_LEAVES; i++)
        n += ef_type_leaves(ctx, info->field[i], leaf + n);
    return n;
}

/* ---- what is computed, and where ---- */

static bool is_compute_op(ef_op op)
{
    return ef_op_pointwise(op) || ef_ops[op].class == EF_CONTRACTION || ef_ops[op].class == EF_REDUCTION ||
           op == EF_COMBINE || op == EF_COLLECT;
}

/* Whether a value is made of positions and literals alone: it is computed wherever it is used. */
static bool from_positions(const ef_former *f, ef_expr e)
{
    const ef_expr *child;
    ef_op op = ef_dag_op(f->dag, e);
    if (op == EF_INPUT || !(ef_op_pointwise(op) || ef_ops[op].class == EF_LEAF || ef_ops[op].class == EF_SHAPE))
        return false;
    for (unsigned i = 0, n = ef_dag_children(f->dag, e, &child); i < n; i++)
        if (f->stored[child[i]] != EF_NONE - 1) /* the mark of such a value, see find_owners */
            return false;
    return true;
}

bool ef_form_is_compute(const ef_former *f, ef_expr e)
{
    return is_compute_op(ef_dag_op(f->dag, e)) && f->stored[e] != EF_NONE - 1;
}

static bool all_units(const ef_former *f, ef_expr e)
{
    ef_type leaf[EF_LEAVES];
    for (unsigned i = 0, n = ef_type_leaves(f->ctx, ef_dag_type(f->dag, e), leaf); i < n; i++) {
        const ef_type_info *info = ef_type_at(f->ctx, leaf[i]);
        for (unsigned d = 0; d < info->rank; d++)
            if (info->dim[d] != EF_UNIT)
                return false;
    }
    return true;
}

/* Whether a value of tensor level is computed whole in one block: then its operands may be, in the same one. */
static bool is_whole(const ef_former *f, ef_expr e)
{
    ef_op op = ef_dag_op(f->dag, e);
    if (op == EF_REDUCE_P || op == EF_TILE_MATMUL)
        return true;
    return !f->eager && (ef_op_pointwise(op) || op == EF_REDUCE) && all_units(f, e);
}

#define FOREIGN (EF_NONE - 1) /* some user is outside of any grid-less kernel */

static void add_user(ef_former *f, ef_expr e, uint32_t owner)
{
    if (f->owner[e] == EF_NONE)
        f->owner[e] = owner;
    else if (f->owner[e] != owner)
        f->owner[e] = FOREIGN;
}

/* Users come after their operands: one pass downwards knows all users of a value when it reaches the value. */
static void find_owners(ef_former *f, ef_expr top)
{
    for (ef_expr e = 0; e < top; e++)
        if (from_positions(f, e))
            f->stored[e] = EF_NONE - 1;
    for (uint32_t o = 0; o < f->program->outputs; o++)
        f->owner[f->program->output[o].expr] = FOREIGN;
    for (ef_expr e = top; e-- > 0;) {
        const ef_expr *child;
        if (f->owner[e] == EF_NONE)
            continue; /* no output needs it */
        bool level = ef_type_axes(f->ctx, ef_dag_type(f->dag, e)) == 0;
        uint32_t give = FOREIGN;
        if (level && ef_form_is_compute(f, e)) {
            if (f->owner[e] == FOREIGN || !is_whole(f, e))
                f->owner[e] = e;
            if (is_whole(f, e))
                give = f->owner[e];
        } else if (level && ef_dag_op(f->dag, e) != EF_VIEW) {
            give = f->owner[e];
        }
        for (unsigned i = 0, n = ef_dag_children(f->dag, e, &child); i < n; i++)
            add_user(f, child[i], give);
    }
}

/* ---- parameters ---- */

/* Until a kernel has its place it is known by its root's number, with this bit. */
#define UNPLACED 0x80000000u

uint32_t ef_form_param(ef_lowering *l, ef_axis axis)
{
    ef_kgraph *g = l->former->graph;
    bool shared = ef_axes_has(l->ctx, l->former->collected, axis);
    ef_kparam param = {EF_PARAM_TILE, axis, shared ? EF_NONE : l->number | UNPLACED};
    for (uint32_t i = 0; i < g->params.count; i++)
        if (g->params.at[i].axis == param.axis && g->params.at[i].kernel == param.kernel)
            return i;
    ef_vec_push(&g->params, param);
    return g->params.count - 1;
}

static void place_kernel(ef_former *f, ef_lowering *l)
{
    ef_kgraph *g = f->graph;
    for (uint32_t i = 0; i < g->params.count; i++)
        if (g->params.at[i].kernel == (l->number | UNPLACED))
            g->params.at[i].kernel = g->kernels.count;
    ef_vec_push(&g->kernels, l->kernel);
}

/* What is chosen for a kernel as a whole. */
static void add_kernel_params(ef_kgraph *g)
{
    for (uint32_t i = 0; i < g->kernels.count; i++)
        for (unsigned kind = EF_PARAM_TILE + 1; kind < EF_PARAM_KINDS; kind++) {
            ef_kparam param = {(ef_param_kind)kind, EF_NONE, i};
            ef_vec_push(&g->params, param);
        }
}

/* ---- kernels ---- */

void ef_kernel_free(ef_kernel *k)
{
    ef_vec_free(&k->iters);
    ef_vec_free(&k->loops);
    ef_vec_free(&k->stores);
    ef_vec_free(&k->names);
    ef_intern_free(k->nodes);
    free(k);
}

static bool is_narrow(uint8_t dtype)
{
    return dtype == EF_F16 || dtype == EF_BF16;
}

/* Whether values are few and others are computed from them: see ef_kbuffer. Operands have smaller numbers. */
static bool is_statistic(const ef_former *f, ef_expr e)
{
    const ef_expr *child;
    unsigned count = ef_dag_children(f->dag, e, &child);
    ef_op op = ef_dag_op(f->dag, e);
    bool all = count > 0;
    switch (op) {
    case EF_CONST:
    case EF_IOTA:
    case EF_REDUCE:
    case EF_TUPLE:
    case EF_GET:
    case EF_COLLECT: return true;
    default: break;
    }
    if (!ef_op_pointwise(op) && ef_ops[op].class != EF_SHAPE && op != EF_VIEW && op != EF_COMBINE && op != EF_REDUCE_P)
        return false;
    for (unsigned i = 0; i < count; i++)
        all = all && f->statistic[child[i]];
    return all;
}

/* Whether the program has values in f32 that its types do not show: it makes some narrower or gives some back, of
 * narrow inputs. Casts to f32 are no operations. */
static bool is_mixed(const ef_former *f, ef_expr top)
{
    for (ef_expr e = 0; e < top; e++)
        if (ef_dag_op(f->dag, e) == EF_CAST && is_narrow((uint8_t)ef_dag_attr(f->dag, e)))
            return true;
    for (uint32_t i = 0; i < f->program->outputs; i++)
        if (ef_type_at(f->ctx, ef_dag_type(f->dag, f->program->output[i].expr))->dtype == EF_F32)
            return true;
    return false;
}

/* Whether eager PyTorch surely has a value in its narrow type: it is an input, the result of a cast or, in a program
 * that is not mixed, of a product. Others may be the inside of an operation, as the squares of a norm, which has them
 * in f32: these leave the range of f16 where the results do not. */
static bool is_rounded(const ef_former *f, ef_expr e)
{
    const ef_expr *child;
    unsigned count = ef_dag_children(f->dag, e, &child);
    ef_op op = ef_dag_op(f->dag, e);
    bool all = count > 0;
    if (op == EF_INPUT || op == EF_CAST)
        return true;
    if (ef_ops[op].class == EF_CONTRACTION)
        return !f->mixed;
    if (ef_ops[op].class != EF_SHAPE && ef_ops[op].class != EF_PARALLEL)
        return false;
    for (unsigned i = 0; i < count; i++)
        all = all && f->rounded[child[i]];
    return all;
}

/* A tensor that is stored between kernels; `narrow`: in its own type, where that is narrower than f32. */
static uint32_t new_buffer(ef_former *f, const ef_type_info *info, bool narrow, const char *name)
{
    ef_kbuffer b = {.kind = EF_BUFFER_TEMP, .dtype = info->dtype, .rank = info->rank, .name = name};
    if (b.dtype == EF_NUM || (is_narrow(b.dtype) && !narrow))
        b.dtype = EF_F32;
    memcpy(b.dim, info->dim, sizeof b.dim);
    ef_vec_push(&f->graph->buffers, b);
    return f->graph->buffers.count - 1;
}

/* The text, of the graph's arena. `format` takes a name and may take a number. */
static const char *text_of(ef_former *f, const char *format, const char *name, unsigned number)
    __attribute__((format(printf, 2, 0)));
static const char *text_of(ef_former *f, const char *format, const char *name, unsigned number)
{
    char text[256];
    snprintf(text, sizeof text, format, name, number);
    return ef_arena_strndup(f->graph->arena, text, (unsigned)strlen(text));
}

/* A name from a value or from what it is seen through. */
static const char *name_of(const ef_former *f, ef_expr e)
{
    const ef_expr *child;
    while (!f->name[e] && ef_dag_children(f->dag, e, &child) == 1)
        e = child[0];
    return f->name[e] ? f->name[e] : "value";
}

/* The combinations and collections around what a kernel computes. */
static ef_expr peel(const ef_former *f, ef_expr e, ef_axis lead[EF_K_MAX_LEADS], unsigned *leads)
{
    const ef_expr *child;
    *leads = 0;
    for (;; e = child[0]) {
        ef_op op = ef_dag_op(f->dag, e);
        if (op != EF_COMBINE && op != EF_COLLECT)
            return e;
        if (op == EF_COLLECT && *leads == EF_K_MAX_LEADS)
            return EF_NONE;
        if (op == EF_COLLECT)
            lead[(*leads)++] = (ef_axis)ef_dag_attr(f->dag, e);
        ef_dag_children(f->dag, e, &child);
    }
}

/* Axes in scope become the grid; inner ones divide the blocks of outer ones. */
static bool bind_grid(ef_lowering *l, ef_axes scope)
{
    const ef_axis *axis;
    unsigned n = ef_axes_at(l->ctx, scope, &axis);
    if (n > EF_MAX_PLACES)
        return ef_fail(l->former->diag, "cannot make kernels: a grid of more than %d axes", EF_MAX_PLACES);
    for (unsigned i = 0; i < n; i++) {
        ef_axis block = ef_axis_of(ef_axis_var(axis[i]), 0);
        uint32_t outer = axis[i] == block ? EF_NONE : ef_lower_iter(l, block);
        ef_lower_bind(l, axis[i],
                      ef_lower_iterator(l, (ef_iter){.kind = EF_ITER_GRID, .axis = axis[i], .outer = outer}));
    }
    l->kernel->grid = l->kernel->iters.count;
    return true;
}

/* How one leaf is stored: which iterators become dimensions, and over which it is the same. */
static bool store_leaf(ef_lowering *l, const ef_type_info *info, const ef_axis *lead, unsigned leads, ef_kstore *store)
{
    store->leads = leads;
    for (unsigned i = 0; i < leads; i++)
        store->lead[i] = ef_lower_iter(l, lead[i]);
    for (unsigned i = 0; i < info->places; i++) {
        const ef_place *p = &info->place[i];
        bool leading = false;
        for (unsigned k = 0; k < leads; k++)
            leading = leading || lead[k] == p->axis;
        if (leading || p->kind == EF_PARTITION)
            continue;
        if (p->kind == EF_PARTIAL)
            return ef_fail(l->former->diag, "cannot make kernels: partial results are stored without a collection");
        store->once |= UINT64_C(1) << ef_lower_iter(l, p->axis);
    }
    return true;
}

static bool lower_root(ef_lowering *l, ef_expr e, bool copy, uint32_t first)
{
    ef_former *f = l->former;
    ef_axis lead[EF_K_MAX_LEADS];
    ef_type leaf[EF_LEAVES];
    ef_kid value[EF_LEAVES];
    unsigned leads, made;
    ef_expr body = peel(f, e, lead, &leads);
    if (body == EF_NONE)
        return ef_fail(f->diag, "cannot make kernels: more than %u nested collections", EF_K_MAX_LEADS);
    if (copy || body == e) {
        made = ef_wrap(l, e, copy, value);
        leads = 0;
        body = e;
    } else {
        made = bind_grid(l, ef_type_axes(f->ctx, ef_dag_type(f->dag, body))) ? ef_lower(l, body, value) : 0;
    }
    ef_type_leaves(f->ctx, ef_dag_type(f->dag, body), leaf);
    for (unsigned i = 0; i < made; i++) {
        ef_kstore store = {.value = value[i], .buffer = first + i};
        if (!store_leaf(l, ef_type_at(f->ctx, leaf[i]), lead, leads, &store))
            return false;
        ef_vec_push(&l->kernel->stores, store);
    }
    return made > 0;
}

static bool form_kernel(ef_former *f, ef_expr e, bool copy, uint32_t first)
{
    if (f->graph->kernels.count == EF_K_MAX_KERNELS)
        return ef_fail(f->diag, "cannot make kernels: the program needs more than %u", EF_K_MAX_KERNELS);
    ef_kernel *k = ef_xcalloc(1, sizeof *k);
    k->root = copy ? EF_NONE : e;
    k->nodes = ef_intern_new();
    ef_lowering l = {.former = f, .ctx = f->ctx, .kernel = k, .memo = ef_intern_new(), .number = first};
    bool fine = lower_root(&l, e, copy, first);
    ef_intern_free(l.memo);
    ef_vec_free(&l.values);
    if (!fine) {
        ef_kernel_free(k);
        return false;
    }
    k->name = text_of(f, "%s_%u", name_of(f, e), f->graph->kernels.count);
    place_kernel(f, &l);
    return true;
}

static uint32_t buffers_of(ef_former *f, ef_expr e, const char *name)
{
    ef_type leaf[EF_LEAVES];
    uint32_t first = f->graph->buffers.count;
    unsigned count = ef_type_leaves(f->ctx, ef_dag_type(f->dag, e), leaf);
    for (unsigned i = 0; i < count; i++)
        new_buffer(f, ef_type_at(f->ctx, leaf[i]), f->eager ? !f->mixed : f->rounded[e] && !f->statistic[e],
                   count > 1 ? text_of(f, "%s_%u", name, i) : name);
    return first;
}

uint32_t ef_form_stored(ef_former *f, ef_expr e)
{
    if (f->stored[e] == EF_NONE) {
        uint32_t first = buffers_of(f, e, name_of(f, e));
        f->stored[e] = first;
        if (!form_kernel(f, e, false, first))
            return EF_NONE;
    }
    return f->stored[e];
}

/* ---- inputs and outputs ---- */

static void add_inputs(ef_former *f)
{
    ef_kgraph *g = f->graph;
    uint32_t *input = ef_arena_alloc(g->arena, f->program->inputs * sizeof *input);
    for (uint32_t i = 0; i < f->program->inputs; i++) {
        const ef_type_info *info = ef_type_at(f->ctx, ef_input_type(f->ctx, f->program->input[i]));
        ef_kbuffer b = {.kind = EF_BUFFER_INPUT,
                        .dtype = info->dtype,
                        .rank = info->rank,
                        .index = i,
                        .name = ef_input_name(f->ctx, f->program->input[i])};
        memcpy(b.dim, info->dim, sizeof b.dim);
        input[i] = f->program->input[i];
        f->input_buffer[input[i]] = g->buffers.count;
        ef_vec_push(&g->buffers, b);
    }
    g->inputs = f->program->inputs;
    g->input = input;
}

/* The stored expression whose leaf an output leaf is, up to reshapes; EF_NONE when it must be copied. */
static ef_expr find_stored(const ef_former *f, ef_expr e, unsigned *leaf)
{
    const ef_expr *child;
    ef_type leaves[EF_LEAVES];
    for (;;) {
        unsigned n = ef_dag_children(f->dag, e, &child);
        const ef_type_info *type = ef_type_at(f->ctx, ef_dag_type(f->dag, n ? child[0] : e));
        switch (ef_dag_op(f->dag, e)) {
        case EF_RESHAPE: e = child[0]; continue;
        case EF_GET:
            for (uint64_t i = 0, field = ef_dag_attr(f->dag, e); i < field; i++)
                *leaf += ef_type_leaves(f->ctx, type->field[i], leaves);
            e = child[0];
            continue;
        case EF_TUPLE:
            for (unsigned i = 0; i < n; i++) {
                unsigned inside = ef_type_leaves(f->ctx, ef_dag_type(f->dag, child[i]), leaves);
                e = child[i];
                if (*leaf < inside)
                    break;
                *leaf -= inside;
            }
            continue;
        default: return ef_form_is_compute(f, e) ? e : EF_NONE;
        }
    }
}

static bool copy_output(ef_former *f, ef_expr e, const ef_type_info *info, const char *name, uint32_t *buffer)
{
    if (ef_type_at(f->ctx, ef_dag_type(f->dag, e))->is_tuple)
        return ef_fail(f->diag, "cannot make kernels: output %s is a tuple of moved values; use one output a field",
                       name);
    *buffer = new_buffer(f, info, true, name);
    return form_kernel(f, e, true, *buffer);
}

static bool add_output(ef_former *f, const ef_named *output)
{
    ef_kgraph *g = f->graph;
    ef_type leaves[EF_LEAVES];
    if (ef_type_axes(f->ctx, ef_dag_type(f->dag, output->expr)) != 0)
        return ef_fail(f->diag, "cannot make kernels: output %s is in a parallel scope; combine or reduce it",
                       output->name);
    for (unsigned i = 0, n = ef_type_leaves(f->ctx, ef_dag_type(f->dag, output->expr), leaves); i < n; i++) {
        const ef_type_info *info = ef_type_at(f->ctx, leaves[i]);
        unsigned leaf = i;
        ef_expr stored = find_stored(f, output->expr, &leaf);
        uint32_t buffer = stored == EF_NONE ? EF_NONE : ef_form_stored(f, stored);
        if (stored != EF_NONE && buffer == EF_NONE)
            return false;
        buffer = buffer == EF_NONE ? EF_NONE : buffer + leaf;
        if ((buffer == EF_NONE || g->buffers.at[buffer].kind == EF_BUFFER_OUTPUT) &&
            !copy_output(f, output->expr, info, output->name, &buffer))
            return false;
        ef_kbuffer *b = &g->buffers.at[buffer];
        b->kind = EF_BUFFER_OUTPUT;
        b->index = g->outputs.count;
        b->name = text_of(f, n > 1 ? "%s_%u" : "%s", output->name, i);
        b->dtype = info->dtype == EF_NUM ? EF_F32 : info->dtype;
        ef_vec_push(&g->outputs, buffer);
        ef_vec_push(&g->output_type, leaves[i]);
    }
    return true;
}

/* ---- what nobody reads ---- */

/* The buffers that some nodes of a kernel read. */
static void add_read(const ef_kernel *k, const bool *needed, bool *read)
{
    for (ef_kid id = 0; id < ef_kernel_nodes(k); id++) {
        const ef_knode *node = ef_kernel_node(k, id);
        if (needed[id] && node->op == EF_K_BUFFER)
            read[node->attr] = true;
    }
}

void ef_kernel_buffers_read(const ef_kernel *k, bool *read)
{
    bool *needed = ef_kernel_needed(k);
    add_read(k, needed, read);
    free(needed);
}

/* Keeps the stores of a kernel that a later one or an output needs, and notes what they read. False when none is left.
 */
static bool prune_stores(const ef_kgraph *g, ef_kernel *k, bool *read)
{
    uint32_t kept = 0;
    bool *needed = ef_xcalloc(ef_kernel_nodes(k) + 1, sizeof *needed);
    for (uint32_t i = 0; i < k->stores.count; i++) {
        ef_kstore store = k->stores.at[i];
        if (g->buffers.at[store.buffer].kind != EF_BUFFER_OUTPUT && !read[store.buffer])
            continue;
        ef_kernel_need(k, store.value, needed);
        k->stores.at[kept++] = store;
    }
    k->stores.count = kept;
    add_read(k, needed, read);
    free(needed);
    return kept > 0;
}

/* Parameters of kernels that are no more shape nothing. */
static void prune_params(ef_kgraph *g)
{
    uint32_t *place = ef_xcalloc(g->params.count + 1, sizeof *place), kept = 0;
    for (uint32_t i = 0; i < g->kernels.count; i++)
        for (uint32_t j = 0; j < g->kernels.at[i]->iters.count; j++)
            if (g->kernels.at[i]->iters.at[j].param != EF_NONE)
                place[g->kernels.at[i]->iters.at[j].param] = 1;
    for (uint32_t i = 0; i < g->params.count; i++) {
        bool used = place[i];
        place[i] = kept;
        if (used)
            g->params.at[kept++] = g->params.at[i];
    }
    g->params.count = kept;
    for (uint32_t i = 0; i < g->kernels.count; i++)
        for (uint32_t j = 0; j < g->kernels.at[i]->iters.count; j++)
            if (g->kernels.at[i]->iters.at[j].param != EF_NONE)
                g->kernels.at[i]->iters.at[j].param = place[g->kernels.at[i]->iters.at[j].param];
    free(place);
}

/* A stored tuple may have fields that nothing uses; what they alone need goes with them. */
static void prune(ef_kgraph *g)
{
    bool *read = ef_xcalloc(g->buffers.count + 1, sizeof *read);
    uint32_t *place = ef_xcalloc(g->kernels.count + 1, sizeof *place), kept = 0;
    for (uint32_t i = g->kernels.count; i-- > 0;)
        place[i] = prune_stores(g, g->kernels.at[i], read);
    for (uint32_t i = 0; i < g->kernels.count; i++) {
        ef_kernel *k = g->kernels.at[i];
        bool keep = place[i];
        place[i] = kept;
        if (keep)
            g->kernels.at[kept++] = k;
        else
            ef_kernel_free(k);
    }
    for (uint32_t i = 0; i < g->params.count; i++)
        if (g->params.at[i].kernel != EF_NONE)
            g->params.at[i].kernel = place[g->params.at[i].kernel];
    g->kernels.count = kept;
    prune_params(g);
    free(read);
    free(place);
}

bool ef_kernel_stores_any(const ef_kernel *kernel, const bool *read)
{
    for (uint32_t s = 0; s < kernel->stores.count; s++)
        if (read[kernel->stores.at[s].buffer])
            return true;
    return false;
}

/* From the kernel that stores a buffer to the last one that reads it; and which kernels read nothing of the one before
 * them. */
static void find_lives(ef_kgraph *g)
{
    bool *read = ef_xcalloc(g->buffers.count + 1, sizeof *read);
    for (uint32_t i = 0; i < g->buffers.count; i++)
        g->buffers.at[i].born = EF_NONE;
    for (uint32_t i = 0; i < g->kernels.count; i++) {
        ef_kernel *k = g->kernels.at[i];
        memset(read, 0, g->buffers.count * sizeof *read);
        ef_kernel_buffers_read(k, read);
        k->beside = i > 0 && !ef_kernel_stores_any(g->kernels.at[i - 1], read);
        for (uint32_t s = 0; s < k->stores.count; s++) {
            ef_kbuffer *b = &g->buffers.at[k->stores.at[s].buffer];
            b->born = b->dies = i;
        }
        for (uint32_t b = 0; b < g->buffers.count; b++)
            if (read[b])
                g->buffers.at[b].dies = i;
    }
    free(read);
}

/* ---- the whole ---- */

static bool form(ef_former *f, ef_expr top)
{
    f->mixed = is_mixed(f, top);
    for (ef_expr e = 0; e < top; e++) {
        f->owner[e] = f->stored[e] = EF_NONE;
        f->statistic[e] = is_statistic(f, e);
        f->rounded[e] = is_rounded(f, e);
        if (ef_dag_op(f->dag, e) == EF_COLLECT) {
            ef_axis axis = (ef_axis)ef_dag_attr(f->dag, e);
            f->collected = ef_axes_union(f->ctx, f->collected, ef_axes_intern(f->ctx, &axis, 1));
        }
    }
    for (uint32_t i = 0; i < f->program->statements; i++)
        f->name[f->program->statement[i].expr] = text_of(f, "%s", f->program->statement[i].name, 0);
    find_owners(f, top);
    add_inputs(f);
    for (uint32_t i = 0; i < f->program->outputs; i++)
        if (!add_output(f, &f->program->output[i]))
            return false;
    prune(f->graph);
    ef_kgraph_find_parts(f->graph);
    if (!f->eager) {
        ef_merge_kernels(f->graph);
        prune(f->graph); /* values that only kernels read that are one with their own now */
    }
    ef_kgraph_own_tiles(f->graph);
    prune_params(f->graph);
    for (uint32_t i = 0; i < f->graph->kernels.count; i++)
        ef_join_variables(f->graph, f->graph->kernels.at[i]);
    ef_order_kernels(f->graph);
    add_kernel_params(f->graph);
    find_lives(f->graph);
    return true;
}

static ef_kgraph *graph_of(const ef_program *program, bool eager, ef_diag *diag)
{
    ef_ctx *ctx = ef_dag_ctx(program->dag);
    ef_expr top = ef_dag_count(program->dag);
    ef_former f = {.program = program, .dag = program->dag, .ctx = ctx, .diag = diag, .eager = eager};
    uint32_t inputs = 0;
    for (uint32_t i = 0; i < program->inputs; i++)
        inputs = program->input[i] + 1 > inputs ? program->input[i] + 1 : inputs;
    f.graph = ef_xcalloc(1, sizeof *f.graph);
    f.graph->ctx = ctx;
    f.graph->summed = ef_program_summed(program);
    f.graph->arena = ef_arena_new();
    ef_dim *fan_in = ef_arena_alloc(f.graph->arena, (program->inputs + 1) * sizeof *fan_in);
    ef_program_fan_in(program, fan_in);
    f.graph->fan_in = fan_in;
    f.graph->name = ef_arena_strndup(f.graph->arena, program->name, strlen(program->name));
    f.owner = ef_xcalloc(top + 1, sizeof *f.owner);
    f.stored = ef_xcalloc(top + 1, sizeof *f.stored);
    f.name = ef_xcalloc(top + 1, sizeof *f.name);
    f.statistic = ef_xcalloc(top + 1, sizeof *f.statistic);
    f.rounded = ef_xcalloc(top + 1, sizeof *f.rounded);
    f.input_buffer = ef_xcalloc(inputs + 1, sizeof *f.input_buffer);
    bool fine = form(&f, top);
    free(f.owner);
    free(f.stored);
    free(f.name);
    free(f.statistic);
    free(f.rounded);
    free(f.input_buffer);
    if (fine)
        return f.graph;
    ef_kgraph_free(f.graph);
    return NULL;
}

ef_kgraph *ef_kgraph_new(const ef_program *program, ef_diag *diag)
{
    return graph_of(program, false, diag);
}

ef_kgraph *ef_kgraph_eager(const ef_program *program, ef_diag *diag)
{
    return graph_of(program, true, diag);
}

static bool is_narrow_temporary(const ef_kbuffer *b)
{
    return b->kind == EF_BUFFER_TEMP && is_narrow(b->dtype);
}

bool ef_kgraph_is_narrow(const ef_kgraph *graph)
{
    for (uint32_t i = 0; i < graph->buffers.count; i++)
        if (is_narrow_temporary(&graph->buffers.at[i]))
            return true;
    return false;
}

bool ef_kgraph_widen(ef_kgraph *graph)
{
    bool changed = ef_kgraph_is_narrow(graph);
    for (uint32_t i = 0; i < graph->buffers.count; i++)
        if (is_narrow_temporary(&graph->buffers.at[i]))
            graph->buffers.at[i].dtype = EF_F32;
    return changed;
}

void ef_kgraph_free(ef_kgraph *graph)
{
    if (!graph)
        return;
    for (uint32_t i = 0; i < graph->kernels.count; i++)
        ef_kernel_free(graph->kernels.at[i]);
    ef_vec_free(&graph->kernels);
    ef_vec_free(&graph->buffers);
    ef_vec_free(&graph->params);
    ef_vec_free(&graph->parts);
    ef_vec_free(&graph->outputs);
    ef_vec_free(&graph->output_type);
    ef_arena_free(graph->arena);
    free(graph);
}
