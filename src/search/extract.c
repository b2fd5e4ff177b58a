/* Extraction with early compaction: see extract.h for what it gives, extract_private.h for its parts. */
#include "search/extract.h"

#include <string.h>

#include "search/extract_private.h"
#include "support/hash.h"
#include "support/interrupt.h"

/* 4 TB/s, 400 TFLOP/s, 2 us a launch. */
static const ef_rates generic = {2.5e-7, 2.5e-9, 2, 0};

#define SEEN_BYTES 48 /* a signature that was seen: the key, its place, and its part of a sparse hash table */

double ef_time_limit(const ef_extractor *x)
{
    return x->options->time_limit > 0 ? x->options->time_limit : 60;
}

bool ef_out_of_budget(const ef_extractor *x)
{
    const ef_extract_options *o = x->options;
    if (o->state_limit && x->result->expanded >= o->state_limit)
        return true;
    size_t bytes = x->bytes + (size_t)ef_intern_count(x->seen) * SEEN_BYTES;
    if (bytes > (o->memory_limit ? o->memory_limit : (size_t)4 << 30))
        return true;
    return ef_interrupted() || ef_seconds() - x->start > ef_time_limit(x);
}

/* ---- transitive closure ---- */

/* Tarjan's algorithm over the rows of a bit matrix, with a stack of its own. A component is closed when its root is
 * left: by then all that its members lead to is closed, and the row of the root gathers it for all of them. */
typedef struct {
    uint64_t *matrix;
    uint32_t n, words;
    uint32_t *number, *low; /* by node: when it was reached, 0: not yet; the earliest it leads back to */
    uint32_t *next;         /* by node: where to go on in its row */
    uint32_t *path, *open;  /* stacks: of the walk, of nodes whose component is not closed */
    uint32_t depth, opened, reached;
    bool *closed; /* by node */
} closure;

static uint64_t *row_of(const closure *c, uint32_t i)
{
    return c->matrix + (size_t)i * c->words;
}

static void enter(closure *c, uint32_t i)
{
    c->number[i] = c->low[i] = ++c->reached;
    c->path[c->depth++] = c->open[c->opened++] = i;
}

/* The next node in a row, from `at` on; n: none. */
static uint32_t next_in_row(const closure *c, uint32_t i, uint32_t at)
{
    for (uint32_t w = at / 64; at < c->n && w < c->words; w++) {
        uint64_t bits = row_of(c, i)[w] & (w == at / 64 ? ~UINT64_C(0) << (at % 64) : ~UINT64_C(0));
        if (bits)
            return w * 64 + (uint32_t)__builtin_ctzll(bits);
    }
    return c->n;
}

static void join_row(const closure *c, uint64_t *to, uint32_t from)
{
    for (uint32_t w = 0; w < c->words; w++)
        to[w] |= row_of(c, from)[w];
}

/* Everything that the members of the component of `root` lead to is closed or a member. */
static void close_component(closure *c, uint32_t root)
{
    uint32_t first = c->opened;
    while (c->open[--first] != root)
        ;
    uint64_t *all = ef_xcalloc(c->words, sizeof *all);
    for (uint32_t m = first; m < c->opened; m++) {
        uint32_t i = c->open[m];
        for (uint32_t k = next_in_row(c, i, 0); k < c->n; k = next_in_row(c, i, k + 1))
            if (!ef_bit(all, k) && c->closed[k])
                join_row(c, all, k);
        join_row(c, all, i);
    }
    for (uint32_t m = first; m < c->opened; m++) {
        memcpy(row_of(c, c->open[m]), all, c->words * sizeof *all);
        c->closed[c->open[m]] = true;
    }
    c->opened = first;
    free(all);
}

static void close_from(closure *c, uint32_t start)
{
    enter(c, start);
    while (c->depth) {
        uint32_t i = c->path[c->depth - 1], k = next_in_row(c, i, c->next[i]);
        if (k < c->n) {
            c->next[i] = k + 1;
            if (!c->number[k])
                enter(c, k);
            else if (!c->closed[k] && c->number[k] < c->low[i])
                c->low[i] = c->number[k];
            continue;
        }
        c->depth--;
        if (c->low[i] == c->number[i])
            close_component(c, i);
        if (c->depth && c->low[i] < c->low[c->path[c->depth - 1]])
            c->low[c->path[c->depth - 1]] = c->low[i];
    }
}

/* Makes `matrix` transitive: bit k of row i when some path leads from i to k. */
static void close_over(uint64_t *matrix, uint32_t n, uint32_t words)
{
    closure c = {.matrix = matrix, .n = n, .words = words};
    uint32_t *numbers = ef_xcalloc(5 * (size_t)n + 1, sizeof *numbers);
    c.closed = ef_xcalloc((size_t)n + 1, sizeof *c.closed);
    c.number = numbers;
    c.low = numbers + n;
    c.next = numbers + 2 * (size_t)n;
    c.path = numbers + 3 * (size_t)n;
    c.open = numbers + 4 * (size_t)n;
    for (uint32_t i = 0; i < n; i++)
        if (!c.number[i])
            close_from(&c, i);
    free(c.closed);
    free(numbers);
}

/* Which slots a slot of a kernel can need in the kernel. */
static void compute_reach(ef_extractor *x)
{
    uint32_t n = x->slots.count;
    x->words = (n + 63) / 64;
    x->reach = ef_xcalloc((size_t)n * x->words, sizeof *x->reach);
    for (uint32_t i = 0; i < n; i++) {
        const ef_eslot *s = &x->slots.at[i];
        ef_set_bit(x->reach + (size_t)i * x->words, i);
        for (uint32_t k = s->first_way; k < s->first_way + s->ways; k++)
            for (uint32_t c = 0; c < x->way_list.at[k].count; c++)
                ef_set_bit(x->reach + (size_t)i * x->words, x->child.at[x->way_list.at[k].first + c]);
    }
    close_over(x->reach, n, x->words);
}

/* Which stored slots a stored slot can need. */
static void compute_needs(ef_extractor *x)
{
    uint32_t n = x->slots.count;
    x->needs = ef_xcalloc((size_t)n * x->words, sizeof *x->needs);
    for (uint32_t i = 0; i < n && !ef_out_of_budget(x); i++) {
        const ef_eslot s = x->slots.at[i];
        uint64_t *to = x->needs + (size_t)i * x->words;
        for (uint32_t k = s.first; k < s.first + s.count && s.role == EF_SLOT_STORED; k++) {
            const ef_option *o = ef_option_at(x, k);
            for (uint32_t c = 0; c < o->count && o->kind == EF_OPTION_MOVES; c++)
                ef_set_bit(to, x->child.at[o->first + c]);
            for (uint32_t b = 0; b < n && o->kind == EF_OPTION_KERNEL; b++) {
                const ef_eslot *body = &x->slots.at[b];
                if (!ef_bit(x->reach + (size_t)x->child.at[o->first] * x->words, b))
                    continue;
                for (uint32_t w = body->first; w < body->first + body->count; w++)
                    if (ef_option_at(x, w)->kind == EF_OPTION_LOADS)
                        ef_set_bit(to, x->child.at[ef_option_at(x, w)->first]);
            }
        }
    }
    close_over(x->needs, n, x->words);
}

/* False when the budget ended before all was there that programs are composed from. */
static bool build(ef_extractor *x)
{
    static void (*const stages[])(ef_extractor *) = {ef_slots_build,      ef_cones_build, compute_reach, compute_needs,
                                                     ef_exclusions_build, ef_loops_build, ef_find_again};
    ef_vec_reserve(&x->slots, 1); /* arrays that are never null, however few programs there are */
    ef_vec_reserve(&x->option_list, 1);
    ef_vec_reserve(&x->way_list, 1);
    ef_vec_reserve(&x->cones, 1);
    ef_vec_reserve(&x->users, 1);
    ef_vec_reserve(&x->fusions, 1);
    ef_vec_reserve(&x->child, 1);
    ef_vec_reserve(&x->bodies, 1);
    ef_vec_reserve(&x->choices, 1);
    x->slot_ids = ef_intern_new();
    x->body_ids = ef_intern_new();
    x->choice_ids = ef_intern_new();
    x->seen = ef_intern_new();
    x->delivered = ef_intern_new();
    for (unsigned i = 0; i < sizeof stages / sizeof *stages; i++) {
        stages[i](x);
        if (ef_out_of_budget(x))
            return false;
    }
    uint32_t n = x->slots.count;
    x->cone_form = ef_xcalloc((size_t)x->cones.count + 1, sizeof *x->cone_form);
    x->cone_stamp = ef_xcalloc((size_t)x->cones.count + 1, sizeof *x->cone_stamp);
    x->cone_expr = ef_xcalloc((size_t)x->cones.count + 1, sizeof *x->cone_expr);
    x->cone_made = ef_xcalloc((size_t)x->cones.count + 1, sizeof *x->cone_made);
    x->way_measure = ef_xcalloc((size_t)x->way_list.count + 1, sizeof *x->way_measure);
    x->measured = ef_xcalloc((size_t)x->way_list.count + 1, sizeof *x->measured);
    x->pick = ef_xcalloc(n, sizeof *x->pick);
    x->form = ef_xcalloc(n, sizeof *x->form);
    x->stamp = ef_xcalloc(n, sizeof *x->stamp);
    x->demanded = ef_xcalloc(n, sizeof *x->demanded);
    x->stack = ef_xcalloc((size_t)x->child.count + n + 1, sizeof *x->stack);
    x->bits = ef_xcalloc(2 * (size_t)x->stored_words, sizeof *x->bits);
    x->standing = ef_xcalloc(2 * (size_t)x->stored_words, sizeof *x->standing);
    x->barren = ef_xcalloc(x->words, sizeof *x->barren);
    x->open = ef_xcalloc(x->words, sizeof *x->open);
    x->kernels = ef_xcalloc(n, sizeof *x->kernels);
    return true;
}

static void release(ef_extractor *x)
{
    for (uint32_t i = 0; x->kernels && i < x->slots.count; i++)
        ef_vec_free(&x->kernels[i].best);
    for (uint32_t i = 0; i < x->bodies.count; i++) {
        free(x->bodies.at[i].pick);
        free(x->bodies.at[i].loads);
        free(x->bodies.at[i].need);
    }
    ef_vec_free(&x->slots);
    ef_vec_free(&x->option_list);
    ef_vec_free(&x->way_list);
    ef_vec_free(&x->cones);
    ef_vec_free(&x->users);
    ef_vec_free(&x->fusions);
    ef_vec_free(&x->child);
    ef_vec_free(&x->stored_slot);
    ef_vec_free(&x->bodies);
    ef_vec_free(&x->choices);
    ef_intern_free(x->slot_ids);
    ef_intern_free(x->body_ids);
    ef_intern_free(x->choice_ids);
    ef_intern_free(x->seen);
    ef_intern_free(x->delivered);
    free(x->kernels);
    free(x->reach);
    free(x->needs);
    free(x->cone_form);
    free(x->cone_stamp);
    free(x->cone_expr);
    free(x->cone_made);
    ef_vec_free(&x->cones_under);
    ef_vec_free(&x->cone_seen);
    free(x->way_again);
    free(x->way_measure);
    free(x->measured);
    free(x->excludes);
    free(x->pick);
    free(x->form);
    free(x->stamp);
    free(x->demanded);
    free(x->stack);
    free(x->bits);
    free(x->standing);
    free(x->barren);
    free(x->open);
}

static int by_cost(const void *a, const void *b)
{
    double x = ((const ef_candidate *)a)->cost, y = ((const ef_candidate *)b)->cost;
    return x < y ? -1 : x > y;
}

ef_extraction *ef_extract(ef_search *search, const ef_extract_options *options)
{
    ef_extractor x = {.search = search, .g = search->graph, .ctx = search->ctx, .options = options};
    x.start = ef_seconds();
    x.rates = options->rates.byte > 0 ? options->rates : generic;
    x.scope = (ef_scope){x.ctx, x.g, search->policy};
    x.result = ef_xcalloc(1, sizeof *x.result);
    x.result->dag = ef_dag_new(x.ctx);
    if (build(&x))
        ef_compose(&x);
    else
        x.cut = true;
    x.result->complete = !x.cut && x.result->candidates; /* no candidate: an output that nothing fills */
    if (x.result->candidates == 0) {
        x.result->original = true;
        ef_keep_original(&x);
    }
    if (x.result->candidate.count)
        qsort(x.result->candidate.at, x.result->candidate.count, sizeof(ef_candidate), by_cost);
    ef_extraction *result = x.result;
    release(&x);
    result->seconds = ef_seconds() - x.start;
    return result;
}

void ef_extraction_free(ef_extraction *e)
{
    if (!e)
        return;
    for (uint32_t i = 0; i < e->candidate.count; i++)
        free(e->candidate.at[i].output);
    ef_vec_free(&e->candidate);
    ef_dag_free(e->dag);
    free(e);
}
