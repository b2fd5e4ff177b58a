/* Pairs of kernels, as kernels become fewer: see merge.h. What is known of a kernel, and of two that are not to become
 * one, stays known when others have: a graph of a thousand kernels has many pairs, and many of them merge. */
#include <string.h>

#include "kernel/merge.h"

/* ---- what a kernel reads ---- */

static void describe(ef_pairs *p, const ef_kernel *k, ef_paired *out)
{
    bool *needed = ef_kernel_needed(k);
    *out = (ef_paired){.number = p->numbers++, .buffer = ef_xcalloc(ef_kernel_nodes(k) + 1, sizeof(uint32_t))};
    for (ef_kid id = 0; id < ef_kernel_nodes(k); id++)
        if (needed[id] && ef_kernel_node(k, id)->op == EF_K_BUFFER)
            out->buffer[out->count++] = (uint32_t)ef_kernel_node(k, id)->attr;
    free(needed);
}

bool ef_pairs_reads(const ef_pairs *p, uint32_t kernel, uint32_t from)
{
    const ef_kernel *k = p->g->kernels.at[from];
    for (uint32_t s = 0; s < k->stores.count; s++)
        for (uint32_t i = 0; i < p->kernel.at[kernel].count; i++)
            if (p->kernel.at[kernel].buffer[i] == k->stores.at[s].buffer)
                return true;
    return false;
}

/* ---- what waits for what ---- */

static void find_dependencies(ef_pairs *p)
{
    const ef_kgraph *g = p->g;
    uint32_t count = g->kernels.count, words = p->words, *writer = ef_xcalloc(g->buffers.count + 1, sizeof *writer);
    memset(p->after, 0, (size_t)count * words * sizeof *p->after);
    for (uint32_t b = 0; b < g->buffers.count; b++)
        writer[b] = EF_NONE;
    for (uint32_t i = 0; i < count; i++)
        for (uint32_t s = 0; s < g->kernels.at[i]->stores.count; s++)
            writer[g->kernels.at[i]->stores.at[s].buffer] = i;
    for (uint32_t i = 0; i < count; i++) /* kernels stand in an order in which they can run */
        for (uint32_t r = 0; r < p->kernel.at[i].count; r++) {
            uint32_t from = writer[p->kernel.at[i].buffer[r]];
            if (from == EF_NONE || from == i)
                continue;
            p->after[(size_t)i * words + from / 64] |= UINT64_C(1) << from % 64;
            for (uint32_t w = 0; w < words; w++)
                p->after[(size_t)i * words + w] |= p->after[(size_t)from * words + w];
        }
    free(writer);
}

bool ef_pairs_waits(const ef_pairs *p, uint32_t kernel, uint32_t on)
{
    return p->after[(size_t)kernel * p->words + on / 64] >> on % 64 & 1;
}

/* ---- the whole ---- */

ef_pairs ef_pairs_of(ef_kgraph *g)
{
    ef_pairs p = {.g = g, .words = (g->kernels.count + 63) / 64, .refused = ef_intern_new()};
    p.after = ef_xcalloc((size_t)g->kernels.count * p.words + 1, sizeof *p.after);
    for (uint32_t i = 0; i < g->kernels.count; i++) {
        ef_paired one;
        describe(&p, g->kernels.at[i], &one);
        ef_vec_push(&p.kernel, one);
    }
    find_dependencies(&p);
    return p;
}

void ef_pairs_free(ef_pairs *p)
{
    for (uint32_t i = 0; i < p->kernel.count; i++)
        free(p->kernel.at[i].buffer);
    ef_vec_free(&p->kernel);
    ef_intern_free(p->refused);
    free(p->after);
}

bool ef_pairs_refused(const ef_pairs *p, uint32_t a, uint32_t b)
{
    uint32_t pair[] = {p->kernel.at[a].number, p->kernel.at[b].number};
    return ef_intern_find(p->refused, pair, sizeof pair) != UINT32_MAX;
}

void ef_pairs_refuse(ef_pairs *p, uint32_t a, uint32_t b)
{
    uint32_t pair[] = {p->kernel.at[a].number, p->kernel.at[b].number};
    ef_intern_put(p->refused, pair, sizeof pair, NULL);
}

/* Puts the merged kernel into the place of the first, and what waits for it behind it. */
static void replace(ef_pairs *p, uint32_t a, uint32_t b, ef_kernel *merged)
{
    ef_kgraph *g = p->g;
    uint32_t count = g->kernels.count, kept = 0, *place = ef_xcalloc(count + 1, sizeof *place);
    ef_kernel **list = ef_xcalloc(count + 1, sizeof(ef_kernel *));
    ef_paired *described = ef_xcalloc(count + 1, sizeof *described);
    /* what the second waits for comes first, what waits for the first comes last, each in its order */
    for (unsigned turn = 0; turn < 2; turn++) {
        for (uint32_t i = 0; i < count; i++) {
            bool late = i > a && i != b && (ef_pairs_waits(p, i, a) || ef_pairs_waits(p, i, b));
            if (i == a || i == b || late != (turn == 1))
                continue;
            place[i] = kept;
            described[kept] = p->kernel.at[i];
            list[kept++] = g->kernels.at[i];
        }
        if (turn == 0) {
            place[a] = place[b] = kept;
            describe(p, merged, &described[kept]);
            list[kept++] = merged;
        }
    }
    for (uint32_t i = 0; i < g->params.count; i++)
        if (g->params.at[i].kernel != EF_NONE)
            g->params.at[i].kernel = place[g->params.at[i].kernel];
    ef_kernel_free(g->kernels.at[a]);
    ef_kernel_free(g->kernels.at[b]);
    free(p->kernel.at[a].buffer);
    free(p->kernel.at[b].buffer);
    memcpy(g->kernels.at, list, kept * sizeof(ef_kernel *));
    memcpy(p->kernel.at, described, kept * sizeof *described);
    g->kernels.count = p->kernel.count = kept;
    for (uint32_t i = 0; i < kept; i++) /* what the new kernel reads has a reader that it was not tried with */
        p->kernel.at[i].tried = p->kernel.at[i].tried && !ef_pairs_reads(p, place[a], i);
    free(described);
    free(list);
    free(place);
}

bool ef_pairs_merge(ef_pairs *p, uint32_t a, uint32_t b, ef_merge_kind kind)
{
    ef_kernel *merged = ef_kernels_merged(p->g, a, b, kind);
    if (!merged) {
        ef_pairs_refuse(p, a, b);
        return false;
    }
    replace(p, a, b, merged);
    find_dependencies(p);
    return true;
}
