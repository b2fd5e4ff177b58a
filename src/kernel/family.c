/* Families (paper, section 6; design, section 7): the execution structure of a kernel graph, as text for people and as
 * a hash for comparing. What a value or a buffer is called, the order of nodes, and the order of operands of
 * commutative operators play no part in the hash. */
#include <string.h>

#include "kernel/lower.h"

const char *ef_knode_op_name(const ef_knode *node)
{
    static const char *const own[] = {"buffer", "pick", "state", "loop", "result"};
    return node->op < EF_OP_COUNT ? ef_ops[node->op].name : own[node->op - EF_OP_COUNT];
}

/* ---- text ---- */

static void print_iter(const ef_kgraph *g, const ef_kernel *k, uint32_t at, ef_strbuf *out)
{
    const ef_iter *iter = &k->iters.at[at];
    if (iter->kind == EF_ITER_PICK)
        ef_dim_print(g->ctx, iter->count, out);
    else
        ef_axis_print(g->ctx, iter->axis, out);
    ef_strbuf_printf(out, "#%u", at);
}

static void print_dims(const ef_kgraph *g, const ef_kernel *k, const ef_knode *node, ef_strbuf *out)
{
    ef_strbuf_printf(out, ": %s[", ef_dtype_names[node->dtype]);
    for (unsigned i = node->rank; i-- > 0;) {
        ef_dim_print(g->ctx, node->dim[i].dim, out);
        if (node->dim[i].cut != EF_NONE) {
            ef_strbuf_puts(out, " by ");
            print_iter(g, k, node->dim[i].cut, out);
        }
        ef_strbuf_puts(out, i ? ", " : "");
    }
    ef_strbuf_puts(out, "]");
}

void ef_kernel_need(const ef_kernel *k, ef_kid id, bool *needed)
{
    const ef_knode *node = ef_kernel_node(k, id);
    if (needed[id])
        return;
    needed[id] = true;
    for (unsigned i = 0; i < node->count; i++)
        ef_kernel_need(k, node->child[i], needed);
    if (node->op != EF_K_LOOP)
        return;
    const ef_kloop *loop = &k->loops.at[node->attr];
    for (unsigned i = 0; i < loop->leaves; i++)
        ef_kernel_need(k, loop->next[i], needed);
    for (unsigned i = 0; i < loop->keeps; i++)
        ef_kernel_need(k, loop->keep[i], needed);
}

bool *ef_kernel_needed(const ef_kernel *k)
{
    bool *needed = ef_xcalloc(ef_kernel_nodes(k) + 1, sizeof *needed);
    for (uint32_t s = 0; s < k->stores.count; s++)
        ef_kernel_need(k, k->stores.at[s].value, needed);
    return needed;
}

bool ef_kernel_has_product(const ef_kernel *k)
{
    for (ef_kid id = 0; id < ef_kernel_nodes(k); id++)
        if (ef_kernel_node(k, id)->op == EF_TILE_MATMUL)
            return true;
    return false;
}

bool ef_kernel_is_uneven(const ef_kernel *k)
{
    for (uint32_t i = 0; i < k->loops.count; i++)
        if (k->loops.at[i].keeps)
            return true;
    return false;
}

static void print_attr(const ef_kgraph *g, const ef_kernel *k, const ef_knode *node, ef_strbuf *out)
{
    switch (node->op) {
    case EF_CONST: ef_strbuf_double(out, ef_attr_to_number(node->attr)); break;
    case EF_K_BUFFER: ef_strbuf_puts(out, g->buffers.at[node->attr].name); break;
    case EF_K_PICK: print_iter(g, k, (uint32_t)node->attr, out); break;
    case EF_K_STATE:
    case EF_K_RESULT: ef_strbuf_printf(out, "loop %u, %u", ef_k_loop_of(node->attr), ef_k_leaf_of(node->attr)); break;
    case EF_REDUCE:
        ef_reducer_print(g->ctx, ef_attr_reducer(node->attr), out);
        ef_strbuf_printf(out, ", -%u", ef_attr_reduce_at(node->attr) + 1);
        break;
    case EF_SLICE: ef_strbuf_printf(out, "%u:%u", ef_slice_start(node->attr), ef_slice_stop(node->attr)); break;
    case EF_TRANSPOSE:
        for (unsigned i = node->rank; i-- > 0;)
            ef_strbuf_printf(out, "%u%s", node->rank - 1u - ef_perm_at(node->attr, i), i ? ", " : "");
        break;
    default: break;
    }
}

static void print_node(const ef_kgraph *g, const ef_kernel *k, ef_kid id, ef_strbuf *out)
{
    const ef_knode *node = ef_kernel_node(k, id);
    uint32_t region = ef_knode_region(node);
    ef_strbuf_printf(out, "  %%%u = %s", id, ef_knode_op_name(node));
    ef_strbuf attr = {0};
    print_attr(g, k, node, &attr);
    if (attr.length)
        ef_strbuf_printf(out, "[%s]", attr.text);
    ef_strbuf_free(&attr);
    for (unsigned i = 0; i < node->count; i++)
        ef_strbuf_printf(out, "%s%%%u", i ? ", " : " ", node->child[i]);
    if (node->op == EF_K_LOOP) {
        const ef_kloop *loop = &k->loops.at[node->attr];
        ef_strbuf_printf(out, " %u over ", (unsigned)node->attr);
        print_iter(g, k, loop->iter, out);
        for (unsigned i = 0; i < loop->leaves; i++)
            ef_strbuf_printf(out, "%s%%%u", i ? ", " : " next ", loop->next[i]);
        for (unsigned i = 0; i < loop->keeps; i++)
            ef_strbuf_printf(out, "%s%%%u", i ? ", " : " where ", loop->keep[i]);
    } else {
        print_dims(g, k, node, out);
    }
    if (region != EF_NONE)
        ef_strbuf_printf(out, " in loop %u", region);
    ef_strbuf_puts(out, "\n");
}

static void print_kernel(const ef_kgraph *g, const ef_kernel *k, ef_strbuf *out)
{
    bool *needed = ef_kernel_needed(k);
    ef_strbuf_printf(out, "kernel %s grid(", k->name);
    for (uint32_t i = 0; i < k->grid; i++) {
        ef_strbuf_puts(out, i ? ", " : "");
        print_iter(g, k, i, out);
    }
    ef_strbuf_puts(out, ")\n");
    for (ef_kid id = 0; id < ef_kernel_nodes(k); id++)
        if (needed[id])
            print_node(g, k, id, out);
    for (uint32_t s = 0; s < k->stores.count; s++) {
        const ef_kstore *store = &k->stores.at[s];
        ef_strbuf_printf(out, "  store %%%u to %s", store->value, g->buffers.at[store->buffer].name);
        for (unsigned i = 0; i < store->leads; i++) {
            ef_strbuf_puts(out, " at ");
            print_iter(g, k, store->lead[i], out);
        }
        ef_strbuf_puts(out, store->once ? " once\n" : "\n");
    }
    free(needed);
}

void ef_kgraph_print(const ef_kgraph *g, ef_strbuf *out)
{
    for (uint32_t i = 0; i < g->kernels.count; i++)
        print_kernel(g, g->kernels.at[i], out);
}

/* ---- hash ---- */

typedef struct {
    const ef_kgraph *graph;
    const ef_kernel *kernel;
    const uint64_t *buffer; /* by buffer: what is in it */
    uint64_t *node;         /* by node; 0: not known yet */
    const bool *gone;       /* by iterator: left out; NULL: none is */
} hashing;

static uint64_t mix(uint64_t a, uint64_t b)
{
    return ef_hash((uint64_t[]){a, b}, 2 * sizeof a);
}

/* The iterator that cuts where this one would: itself, or the one whose block it leaves whole. */
static uint32_t stays(const hashing *h, uint32_t at)
{
    while (at != EF_NONE && h->gone && h->gone[at])
        at = h->kernel->iters.at[at].outer;
    return at;
}

static uint64_t hash_iter(const hashing *h, uint32_t at)
{
    at = stays(h, at);
    if (at == EF_NONE)
        return 1;
    const ef_iter *iter = &h->kernel->iters.at[at];
    uint64_t what = iter->kind == EF_ITER_PICK ? iter->count : iter->axis;
    return mix(mix(iter->kind, what), hash_iter(h, iter->outer));
}

static uint64_t hash_node(hashing *h, ef_kid id);

static uint64_t hash_loop(hashing *h, const ef_kloop *loop)
{
    uint64_t sum = mix(hash_iter(h, loop->iter), loop->reducer);
    for (unsigned i = 0; i < loop->leaves; i++)
        sum = mix(sum, hash_node(h, loop->next[i]));
    return sum;
}

static uint64_t hash_attr(hashing *h, const ef_knode *node)
{
    switch (node->op) {
    case EF_K_BUFFER: return h->buffer[node->attr];
    case EF_K_PICK: return hash_iter(h, (uint32_t)node->attr);
    case EF_K_LOOP: return hash_loop(h, &h->kernel->loops.at[node->attr]);
    case EF_K_STATE:
        return mix(hash_iter(h, h->kernel->loops.at[ef_k_loop_of(node->attr)].iter), ef_k_leaf_of(node->attr));
    case EF_K_RESULT: return ef_k_leaf_of(node->attr);
    default: return node->attr;
    }
}

/* The node of a loop's result that this is, itself or as the choice of NaN; EF_NONE: of none that is left out. */
static ef_kid operand_of_loop(const hashing *h, ef_kid id)
{
    const ef_knode *node = ef_kernel_node(h->kernel, id), *result = node;
    if (!h->gone)
        return EF_NONE;
    if (node->op == EF_SELECT)
        result = ef_kernel_node(h->kernel, node->child[2]);
    if (result->op != EF_K_RESULT)
        return EF_NONE;
    const ef_kloop *loop = &h->kernel->loops.at[ef_k_loop_of(result->attr)];
    unsigned leaf = ef_k_leaf_of(result->attr);
    return h->gone[loop->iter] && (node == result || loop->result[leaf] == id) ? loop->in[leaf] : EF_NONE;
}

/* What a node is when iterators are left out: a view that no longer cuts is its operand, and the result of a loop that
 * has one iteration is the loop's operand. */
static ef_kid behind(const hashing *h, ef_kid id)
{
    for (;;) {
        const ef_knode *node = ef_kernel_node(h->kernel, id);
        ef_kid operand = operand_of_loop(h, id);
        if (node->op == EF_VIEW) {
            const ef_knode *child = ef_kernel_node(h->kernel, node->child[0]);
            for (unsigned i = 0; i < node->rank; i++)
                if (stays(h, node->dim[i].cut) != stays(h, child->dim[i].cut))
                    return id;
            id = node->child[0];
        } else if (operand != EF_NONE) {
            id = operand;
        } else {
            return id;
        }
    }
}

static uint64_t hash_node(hashing *h, ef_kid id)
{
    id = behind(h, id);
    const ef_knode *node = ef_kernel_node(h->kernel, id);
    if (h->node[id])
        return h->node[id];
    uint64_t sum = mix(mix(node->op, node->dtype), hash_attr(h, node));
    bool swaps = node->op < EF_OP_COUNT && ef_op_commutative((ef_op)node->op);
    uint64_t any_order = 0;
    for (unsigned i = 0; i < node->count; i++) {
        uint64_t child = hash_node(h, node->child[i]);
        any_order += mix(child, 7);
        sum = swaps ? sum : mix(sum, child);
    }
    for (unsigned i = 0; i < node->rank; i++)
        sum = mix(mix(sum, node->dim[i].dim), hash_iter(h, node->dim[i].cut));
    return h->node[id] = mix(sum, any_order) | 1;
}

static uint64_t hash_store(hashing *h, const ef_kstore *store)
{
    uint64_t sum = hash_node(h, store->value);
    for (unsigned i = 0; i < store->leads; i++)
        sum = mix(sum, hash_iter(h, store->lead[i]));
    for (uint32_t i = 0; i < h->kernel->grid; i++)
        if (!h->gone || !h->gone[i])
            sum = mix(sum, hash_iter(h, i) + (store->once >> i & 1));
    return sum;
}

uint64_t ef_kgraph_family(const ef_kgraph *g)
{
    return ef_kgraph_family_without(g, NULL);
}

uint64_t ef_kgraph_family_without(const ef_kgraph *g, const bool *gone)
{
    uint64_t *buffer = ef_xcalloc(g->buffers.count + 1, sizeof *buffer), all = g->kernels.count;
    for (uint32_t i = 0; i < g->inputs; i++)
        buffer[i] = mix(g->input[i], 3);
    for (uint32_t i = 0; i < g->kernels.count; i++) {
        hashing h = {.graph = g, .kernel = g->kernels.at[i], .buffer = buffer, .gone = gone};
        h.node = ef_xcalloc(ef_kernel_nodes(h.kernel) + 1, sizeof *h.node);
        uint64_t together = 0;
        for (uint32_t s = 0; s < h.kernel->stores.count; s++)
            together = mix(together, buffer[h.kernel->stores.at[s].buffer] = hash_store(&h, &h.kernel->stores.at[s]));
        all += together; /* kernels may stand in any order that the data allow */
        gone = gone ? gone + h.kernel->iters.count : NULL;
        free(h.node);
    }
    for (uint32_t i = 0; i < g->outputs.count; i++)
        all = mix(all, buffer[g->outputs.at[i]]);
    free(buffer);
    return all;
}

/* ---- one kernel ---- */

/* A dimension, and how many positions it has where that depends on masks. */
static uint64_t hash_dim(const ef_kgraph *g, ef_dim dim)
{
    const ef_var *atom;
    uint64_t hash = dim;
    for (unsigned i = 0, count = ef_dim_atoms(g->ctx, dim, &atom); i < count; i++) {
        const ef_var_info *info = ef_var_at(g->ctx, atom[i]);
        for (uint32_t p = 0; info->kind == EF_VAR_COUNT && p < g->parts.count; p++)
            if (g->parts.at[p].axis == info->axis)
                hash = mix(hash, ef_hash(g->parts.at[p].run, g->parts.at[p].runs * sizeof *g->parts.at[p].run));
    }
    return hash;
}

/* What stands in a buffer does not matter, only which are the same. */
static void number_buffers(const ef_kgraph *g, const ef_kernel *k, uint64_t *buffer)
{
    uint64_t count = 0;
    for (ef_kid id = 0; id < ef_kernel_nodes(k); id++) {
        const ef_knode *node = ef_kernel_node(k, id);
        if (node->op != EF_K_BUFFER || buffer[node->attr])
            continue;
        const ef_kbuffer *b = &g->buffers.at[node->attr];
        uint64_t hash = mix(++count, mix(b->dtype, b->rank));
        for (unsigned i = 0; i < b->rank; i++)
            hash = mix(hash, hash_dim(g, b->dim[i]));
        buffer[node->attr] = hash | 1;
    }
}

static uint64_t hash_params(const ef_kgraph *g, uint32_t kernel)
{
    const ef_kernel *k = g->kernels.at[kernel];
    uint64_t hash = 5;
    for (uint32_t i = 0; i < g->params.count; i++)
        if (g->params.at[i].kernel == kernel)
            hash = mix(hash, mix(g->params.at[i].kind, g->params.at[i].axis));
    for (uint32_t i = 0; i < k->iters.count; i++)
        if (k->iters.at[i].kind != EF_ITER_PICK)
            hash = mix(hash, g->params.at[k->iters.at[i].param].kernel == EF_NONE);
    return hash;
}

uint64_t ef_kgraph_kernel(const ef_kgraph *g, uint32_t kernel)
{
    const ef_kernel *k = g->kernels.at[kernel];
    uint64_t *buffer = ef_xcalloc(g->buffers.count + 1, sizeof *buffer);
    hashing h = {.graph = g, .kernel = k, .buffer = buffer};
    h.node = ef_xcalloc(ef_kernel_nodes(k) + 1, sizeof *h.node);
    number_buffers(g, k, buffer);
    uint64_t hash = hash_params(g, kernel);
    for (uint32_t s = 0; s < k->stores.count; s++)
        hash = mix(hash, mix(hash_store(&h, &k->stores.at[s]), g->buffers.at[k->stores.at[s].buffer].dtype));
    free(h.node);
    free(buffer);
    return hash | 1;
}

static bool counts_axis(const ef_kgraph *g, uint32_t buffer, ef_axis axis)
{
    const ef_kbuffer *b = &g->buffers.at[buffer];
    for (unsigned d = 0; d < b->rank; d++)
        if (ef_dim_counts(g, b->dim[d], ef_axis_var(axis), axis))
            return true;
    return false;
}

bool ef_kgraph_kernel_uses(const ef_kgraph *g, uint32_t kernel, uint32_t param)
{
    const ef_kernel *k = g->kernels.at[kernel];
    ef_axis axis = g->params.at[param].axis;
    for (uint32_t i = 0; i < k->iters.count; i++)
        if (k->iters.at[i].kind != EF_ITER_PICK && k->iters.at[i].param == param)
            return true;
    for (ef_kid id = 0; id < ef_kernel_nodes(k); id++) {
        const ef_knode *node = ef_kernel_node(k, id);
        if (node->op == EF_K_BUFFER && counts_axis(g, (uint32_t)node->attr, axis))
            return true;
    }
    for (uint32_t s = 0; s < k->stores.count; s++)
        if (counts_axis(g, k->stores.at[s].buffer, axis))
            return true;
    return false;
}
