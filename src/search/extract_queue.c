/* The queue of partial programs: best first, but among bounds that mean the same the one that is nearest to
 * completion: else a plateau of equal costs is searched in breadth and nothing is ever finished. */
#include <math.h>

#include "search/extract_private.h"

static bool before(const ef_partial *a, const ef_partial *b)
{
    if (a->step != b->step)
        return a->step < b->step;
    return a->picks != b->picks ? a->picks > b->picks : a->serial < b->serial;
}

static size_t bytes_of(const ef_partial *p)
{
    return sizeof *p + (2 * (size_t)p->picks + p->holes) * sizeof *p->data;
}

void ef_queue_push(ef_extractor *x, ef_partials *q, ef_partial p)
{
    p.serial = q->serial++;
    p.step = (uint32_t)(log(p.bound + 1) * x->steps);
    ef_vec_push(&q->heap, p);
    x->bytes += bytes_of(&p);
    uint32_t i = q->heap.count - 1;
    while (i && before(&p, &q->heap.at[(i - 1) / 2])) {
        q->heap.at[i] = q->heap.at[(i - 1) / 2];
        i = (i - 1) / 2;
    }
    q->heap.at[i] = p;
}

ef_partial ef_queue_pop(ef_extractor *x, ef_partials *q)
{
    ef_partial top = q->heap.at[0], last = q->heap.at[--q->heap.count];
    x->bytes -= bytes_of(&top);
    uint32_t i = 0;
    for (;;) {
        uint32_t c = 2 * i + 1;
        if (c >= q->heap.count)
            break;
        if (c + 1 < q->heap.count && before(&q->heap.at[c + 1], &q->heap.at[c]))
            c++;
        if (!before(&q->heap.at[c], &last))
            break;
        q->heap.at[i] = q->heap.at[c];
        i = c;
    }
    if (q->heap.count)
        q->heap.at[i] = last;
    return top;
}

void ef_queue_free(ef_extractor *x, ef_partials *q)
{
    for (uint32_t i = 0; i < q->heap.count; i++) {
        x->bytes -= bytes_of(&q->heap.at[i]);
        free(q->heap.at[i].data);
    }
    ef_vec_free(&q->heap);
}
