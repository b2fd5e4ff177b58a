/* The order of a graph's kernels. A kernel can run while another one does if neither waits for the other. So it stands
 * behind a kernel that reads more than it does: the one that reads most of those which it can stand behind, before all
 * that wait for it. Where kernels run one after the other the order does not matter, but temporaries may live longer.
 */
#include <stdlib.h>
#include <string.h>

#include "kernel/lower.h"

typedef struct {
    ef_kgraph *g;
    uint32_t *place; /* by kernel, as they are numbered before: where it stands */
    uint32_t *at;    /* the other way round */
    bool **reads;    /* by kernel and buffer */
    double *bytes;   /* by kernel: what it reads */
    bool *paired;    /* by kernel: stands behind another one for this, or has one behind it */
} ordering;

/* What a buffer takes, but for dimensions that a schedule gives. */
static double bytes_of(const ef_kgraph *g, const ef_kbuffer *b)
{
    double bytes = ef_dtype_bytes((ef_dtype)b->dtype);
    for (unsigned d = 0; d < b->rank; d++)
        bytes *= ef_dim_is_count(g->ctx, b->dim[d]) ? 1 : (double)ef_dim_extent(g->ctx, b->dim[d]);
    return bytes;
}

static bool depends(const ordering *o, uint32_t kernel, uint32_t on)
{
    return ef_kernel_stores_any(o->g->kernels.at[on], o->reads[kernel]);
}

/* The places between which a kernel can stand: behind all that it waits for, before all that wait for it. */
static void find_window(const ordering *o, uint32_t kernel, uint32_t *from, uint32_t *to)
{
    *from = 0;
    *to = o->g->kernels.count;
    for (uint32_t other = 0; other < o->g->kernels.count; other++) {
        if (other != kernel && depends(o, kernel, other) && o->place[other] >= *from)
            *from = o->place[other] + 1;
        if (other != kernel && depends(o, other, kernel) && o->place[other] < *to)
            *to = o->place[other];
    }
}

/* The kernel behind which this one costs least; EF_NONE: there is none that reads more. */
static uint32_t find_longer(const ordering *o, uint32_t kernel)
{
    uint32_t from, to, best = EF_NONE;
    find_window(o, kernel, &from, &to);
    for (uint32_t i = from; i < to; i++) {
        uint32_t other = o->at[i];
        if (other != kernel && !o->paired[other] && o->bytes[other] > o->bytes[best == EF_NONE ? kernel : best])
            best = other;
    }
    return best;
}

static void put_behind(ordering *o, uint32_t kernel, uint32_t other)
{
    uint32_t from = o->place[kernel], to = o->place[other] + (o->place[other] < from);
    size_t many = from < to ? to - from : from - to;
    memmove(o->at + (from < to ? from : to + 1), o->at + (from < to ? from + 1 : to), many * sizeof *o->at);
    o->at[to] = kernel;
    for (uint32_t i = 0; i < o->g->kernels.count; i++)
        o->place[o->at[i]] = i;
}

static void apply(const ordering *o)
{
    ef_kgraph *g = o->g;
    ef_kernel **kernels = ef_xcalloc(g->kernels.count + 1, sizeof(ef_kernel *));
    for (uint32_t i = 0; i < g->kernels.count; i++)
        kernels[o->place[i]] = g->kernels.at[i];
    memcpy(g->kernels.at, kernels, g->kernels.count * sizeof(ef_kernel *));
    for (uint32_t i = 0; i < g->params.count; i++)
        if (g->params.at[i].kernel != EF_NONE)
            g->params.at[i].kernel = o->place[g->params.at[i].kernel];
    free(kernels);
}

void ef_order_kernels(ef_kgraph *g)
{
    uint32_t count = g->kernels.count;
    ordering o = {.g = g};
    o.place = ef_xcalloc(count + 1, sizeof *o.place);
    o.at = ef_xcalloc(count + 1, sizeof *o.at);
    o.reads = ef_xcalloc(count + 1, sizeof(bool *));
    o.bytes = ef_xcalloc(count + 1, sizeof *o.bytes);
    o.paired = ef_xcalloc(count + 1, sizeof *o.paired);
    for (uint32_t i = 0; i < count; i++) {
        o.place[i] = o.at[i] = i;
        o.reads[i] = ef_xcalloc(g->buffers.count + 1, sizeof(bool));
        ef_kernel_buffers_read(g->kernels.at[i], o.reads[i]);
        for (uint32_t b = 0; b < g->buffers.count; b++)
            o.bytes[i] += o.reads[i][b] ? bytes_of(g, &g->buffers.at[b]) : 0;
    }
    for (uint32_t i = 0; i < count; i++) {
        uint32_t other = o.paired[i] ? EF_NONE : find_longer(&o, i);
        if (other == EF_NONE)
            continue;
        put_behind(&o, i, other);
        o.paired[i] = o.paired[other] = true;
    }
    apply(&o);
    for (uint32_t i = 0; i < count; i++)
        free(o.reads[i]);
    free(o.reads);
    free(o.place);
    free(o.at);
    free(o.bytes);
    free(o.paired);
}
