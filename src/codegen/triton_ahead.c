/* What a kernel asks for before it waits for the kernels in front of it: rows of its inputs, into the L2 cache, so that
 * memory is busy while those end. Asking reads nothing, so that nothing depends on it.
 *
 * It asks for what its outermost loops read in their first iterations, and for what it reads outside of loops, where an
 * address is linear in the positions of a tile and nothing is masked. */
#include <inttypes.h>
#include <string.h>

#include "codegen/triton_print.h"

#define ALIGNMENT 16u   /* bytes: of what is asked for, and of how much */
#define MOST_ROWS 4096u /* of one tile */
#define ROW_BYTES 128u  /* of tiles of one axis, which are cut into rows */

bool ef_t_asks(const ef_t *t)
{
    return !t->persist && ef_sched_value(t->graph, t->schedule, t->number, EF_PARAM_OVERLAP) > 1;
}

void ef_t_note(ef_t *t, const t_frame *frame, uint32_t buffer, ef_index address)
{
    if (!ef_t_asks(t) || t->graph->buffers.at[buffer].kind != EF_BUFFER_INPUT)
        return;
    for (uint32_t i = 0; i < t->noted.count; i++)
        if (t->noted.at[i].buffer == buffer && t->noted.at[i].address == address)
            return;
    ef_vec_push(&t->noted, ((t_noted){.frame = *frame, .buffer = buffer, .address = address}));
}

/* Rows of a tile: `rest` + what the other axes add, so many bytes each. */
typedef struct {
    ef_index rest;
    unsigned rank; /* axes other than the one along which elements lie side by side */
    uint64_t pad[T_MAX_AXES];
    int64_t step[T_MAX_AXES]; /* elements */
    uint64_t bytes;
} rows;

/* Where a tile begins is a multiple of this. */
static uint64_t multiple_of(const ef_t *t, uint32_t iter)
{
    uint64_t multiple = t->iter[iter].room;
    uint32_t outer = t->kernel->iters.at[iter].outer;
    for (uint64_t other = outer == EF_NONE ? 0 : multiple_of(t, outer); other;) { /* what divides both */
        uint64_t rest = multiple % other;
        multiple = other;
        other = rest;
    }
    return multiple;
}

static bool is_aligned(ef_t *t, const rows *r, uint64_t bytes)
{
    int64_t elements = ALIGNMENT / (int64_t)bytes, step;
    ef_index rest = r->rest;
    for (unsigned i = 0; i < r->rank; i++)
        if (r->step[i] % elements)
            return false;
    for (uint32_t i = 0; i < t->kernel->iters.count; i++) {
        const t_iter *iter = &t->iter[i];
        if (!iter->name || !ef_index_depends(t->ix, rest, iter->variable))
            continue;
        if (!ef_index_coefficient(t->ix, rest, iter->variable, &step) || step * (int64_t)multiple_of(t, i) % elements)
            return false;
        rest = ef_index_sub(t->ix, rest, ef_index_scale(t->ix, iter->variable, step));
    }
    return r->bytes % ALIGNMENT == 0 && ef_index_is_const(t->ix, rest, &step) && step % elements == 0;
}

/* `each`: elements between iterations. */
static bool find_rows(ef_t *t, const t_noted *n, int64_t each, rows *r)
{
    uint64_t bytes = ef_dtype_bytes((ef_dtype)t->graph->buffers.at[n->buffer].dtype), all = 1;
    *r = (rows){.rest = n->address, .bytes = bytes};
    for (unsigned i = 0; i < n->frame.rank; i++) {
        const t_span *span = &n->frame.at[i];
        int64_t step;
        if (span->mask || !ef_index_coefficient(t->ix, n->address, span->name, &step) || step < 0)
            return false;
        r->rest = ef_index_sub(t->ix, r->rest, ef_index_scale(t->ix, span->name, step));
        if (step == 1 && r->bytes == bytes) {
            r->bytes = span->pad * bytes;
        } else if (step > 0) {
            r->pad[r->rank] = span->pad;
            r->step[r->rank++] = step;
            all *= span->pad;
        }
    }
    if (r->rank == 0 && r->bytes > ROW_BYTES) {
        r->pad[0] = all = r->bytes / ROW_BYTES;
        r->step[0] = (int64_t)(ROW_BYTES / bytes);
        r->bytes = ROW_BYTES;
        r->rank = 1;
    }
    return all <= MOST_ROWS && each * (int64_t)bytes % (int64_t)ALIGNMENT == 0 && is_aligned(t, r, bytes);
}

/* Takes the position of an outermost loop out of an address: its iterations are `*step` elements apart, and there are
 * `*trips`. False where it depends on another loop. */
static bool take_loop(ef_t *t, ef_index *address, uint64_t *trips, int64_t *step)
{
    *trips = 1;
    *step = 0;
    for (uint32_t i = 0; i < t->kernel->loops.count && ef_t_level(t, *address) > 0; i++) {
        const ef_kloop *loop = &t->kernel->loops.at[i];
        const t_iter *iter = &t->iter[loop->iter];
        int64_t each;
        if (!iter->name || !ef_index_depends(t->ix, *address, iter->variable))
            continue;
        if (iter->level != 1 || loop->keeps || *step || !ef_index_coefficient(t->ix, *address, iter->variable, &each) ||
            each <= 0)
            return false;
        uint32_t outer = t->kernel->iters.at[loop->iter].outer;
        ef_index start = outer == EF_NONE ? ef_index_const(t->ix, 0) : t->iter[outer].start;
        *address = ef_index_sub(t->ix, *address, ef_index_scale(t->ix, iter->variable, each));
        *address = ef_index_add(t->ix, *address, ef_index_scale(t->ix, start, each));
        *step = each * (int64_t)iter->room;
        *trips = ef_sched_trips(t->graph, t->schedule, t->kernel, loop->iter);
    }
    return ef_t_level(t, *address) == 0;
}

static void print_asked(ef_t *t, const t_noted *noted, uint64_t most)
{
    t_noted n = *noted;
    uint64_t trips;
    int64_t step;
    rows r;
    if (!take_loop(t, &n.address, &trips, &step) || !find_rows(t, &n, step, &r))
        return;
    if (step) {
        trips = trips < most ? trips : most;
        r.rest = ef_index_add(t->ix, r.rest, ef_index_scale(t->ix, ef_index_name(t->ix, "ahead", trips), step));
        ef_t_line(t, 0, "for ahead in tl.static_range(%" PRIu64 "):", trips);
    }
    ef_strbuf pointer = {0};
    ef_strbuf_printf(&pointer, "%s + (%s)", ef_t_buffer_name(t, n.buffer), ef_t_index(t, r.rest));
    for (unsigned i = 0; i < r.rank; i++)
        ef_strbuf_printf(&pointer, " + %" PRId64 " * %s", r.step[i],
                         ef_t_spread(t, ef_t_text(t, "tl.arange(0, %" PRIu64 ")", r.pad[i]), r.rank, i));
    ef_t_line(t, 0, "%s_ask(%s, %" PRIu64 ")", step ? "    " : "", pointer.text, r.bytes);
    ef_strbuf_free(&pointer);
    t->reads[n.buffer] = true;
    t->helpers |= T_HELP_ASK;
}

void ef_t_ask(ef_t *t)
{
    uint64_t most = ef_sched_value(t->graph, t->schedule, t->number, EF_PARAM_OVERLAP);
    for (uint32_t i = 0; i < t->noted.count; i++)
        print_asked(t, &t->noted.at[i], most);
}
