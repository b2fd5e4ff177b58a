/* Algorithm 1 over stored values: programs from kernels (see extract.h).
 *
 * A partial program has a choice for some stored slots (a kernel with its body, moved elements of other tensors) and
 * holes for others. Inputs are never holes. No two partial programs of a pass are equivalent (extract.h) where kernels
 * were compacted early. Complete programs are compared in every mode, and with those of other passes. */
#include <string.h>

#include "search/extract_private.h"
#include "support/hash.h"
#include "support/interrupt.h"

/* ---- what a choice needs ---- */

/* Each slot is pushed once an epoch, so the stack holds no more than there are. */
static void push_new(ef_extractor *x, const ef_slot_id *slot, uint32_t count, uint32_t *top)
{
    for (uint32_t i = 0; i < count; i++)
        if (x->stamp[slot[i]] != x->epoch) {
            x->stamp[slot[i]] = x->epoch;
            x->stack[(*top)++] = slot[i];
        }
}

/* Whether some chosen path leads from what a choice needs back to the slot that it fills. */
static bool closes_cycle(ef_extractor *x, ef_slot_id id, const ef_choice *c)
{
    uint32_t top = 0, count;
    const ef_slot_id *need = ef_needs_of(x, c, &count);
    x->epoch++;
    push_new(x, need, count, &top);
    while (top) {
        ef_slot_id s = x->stack[--top];
        if (s == id)
            return true;
        if (!ef_chosen(x, s))
            continue;
        need = ef_needs_of(x, ef_chosen(x, s), &count);
        push_new(x, need, count, &top);
    }
    return false;
}

/* ---- what is no candidate ---- */

static bool is_dominated(const ef_extractor *x, const ef_partial *p)
{
    for (uint32_t i = 0; i < p->picks; i++) {
        const ef_choice_list *best = &x->kernels[p->data[2 * i]].best;
        uint32_t body = x->choices.at[p->data[2 * i + 1]].body;
        bool good = body == EF_NONE;
        for (uint32_t k = 0; k < best->count && !good; k++)
            good = best->at[k].body == body;
        if (!good)
            return true;
    }
    return false;
}

/* ---- programs ---- */

/* Builds the expressions of a complete program, whose choices are loaded. */
static void build(ef_extractor *x, const ef_partial *p, const uint64_t canon[2])
{
    ef_candidate c = {.cost = p->cost, .canon = {canon[0], canon[1]}};
    bool built = true;
    ef_expr *memo = ef_xcalloc(x->slots.count, sizeof *memo);
    memset(memo, 0xff, x->slots.count * sizeof *memo);
    c.output = ef_xcalloc(x->search->outputs, sizeof *c.output);
    for (uint32_t i = 0; i < x->search->outputs; i++) {
        c.output[i] = ef_emit_stored(x, ef_slot_of(x, x->search->output[i], EF_SLOT_STORED), memo);
        built = built && c.output[i] != EF_NONE;
    }
    free(memo);
    if (built)
        ef_vec_push(&x->result->candidate, c);
    else
        free(c.output);
}

/* The canonical form of a partial program: what fills each slot, and the holes. */
static void signature(const ef_extractor *x, const ef_partial *p, uint64_t out[2])
{
    out[0] = out[1] = 0x77;
    for (uint32_t i = 0; i < p->picks; i++) {
        const ef_choice *c = &x->choices.at[p->data[2 * i + 1]];
        const ef_option *o = ef_option_at(x, c->option);
        uint64_t h = ef_mix(ef_mix(ef_option_op(x, o), ef_option_attr(x, o)), p->data[2 * i]);
        const uint64_t none[2] = {1, 2}, *body = c->body == EF_NONE ? none : x->bodies.at[c->body].canon;
        for (uint32_t k = 0; c->body == EF_NONE && k < o->count; k++)
            h = ef_mix(h, x->child.at[o->first + k]);
        out[0] += ef_mix(ef_mix(h, body[0]), 11);
        out[1] += ef_mix(ef_mix(h, body[1]), 13);
    }
    for (uint32_t i = 0; i < p->holes; i++) {
        out[0] += ef_mix(p->data[2 * (size_t)p->picks + i], 17);
        out[1] += ef_mix(p->data[2 * (size_t)p->picks + i], 19);
    }
}

/* What a hole adds at least. */
static void add_hole(const ef_extractor *x, ef_total *sum, ef_slot_id hole)
{
    const ef_eslot *s = &x->slots.at[hole];
    for (uint32_t k = s->first; k < s->first + s->count; k++)
        if (ef_option_at(x, k)->kind != EF_OPTION_KERNEL)
            return;
    ef_total_join(sum, &x->kernels[hole].least);
}

/* What a partial program costs at least, without its holes up to `from`. */
static ef_total total_of(const ef_extractor *x, const ef_partial *p, uint32_t from)
{
    ef_total sum = {0};
    for (uint32_t i = 0; i < p->picks; i++)
        if (ef_body_of(x, p, i))
            ef_total_add(&sum, &ef_body_of(x, p, i)->measure);
    for (uint32_t i = from; i < p->holes; i++)
        add_hole(x, &sum, p->data[2 * (size_t)p->picks + i]);
    return sum;
}

static bool is_outdone(const ef_extractor *x, const ef_total *t)
{
    for (uint32_t i = 0; i < x->complete.count; i++)
        if (ef_total_dominates(&x->complete.at[i].total, t))
            return true;
    return false;
}

/* Adds a complete program, and removes those that it makes no candidates. */
static void add_complete(ef_extractor *x, const ef_partial *p, const uint64_t canon[2], const ef_total *total)
{
    ef_complete c = {.partial = *p, .canon = {canon[0], canon[1]}, .total = *total};
    uint32_t kept = 0;
    for (uint32_t i = 0; i < x->complete.count; i++) {
        if (ef_total_dominates(&c.total, &x->complete.at[i].total))
            free(x->complete.at[i].partial.data);
        else
            x->complete.at[kept++] = x->complete.at[i];
    }
    x->complete.count = kept;
    c.partial.data = ef_xcalloc(2 * (size_t)p->picks + 1, sizeof *c.partial.data);
    memcpy(c.partial.data, p->data, 2 * (size_t)p->picks * sizeof *p->data);
    ef_vec_push(&x->complete, c);
}

static void finish(ef_extractor *x, const ef_partial *p)
{
    uint64_t canon[2];
    int fresh = 1;
    ef_load_picks(x, p->data, p->picks);
    bool good = !ef_splits_gridless(x, p);
    for (uint32_t i = 0; i < p->picks && good; i++)
        good = !ef_is_pointless(x, p, i);
    if (good) {
        x->result->built++;
        signature(x, p, canon);
        if (x->options->compaction == EF_COMPACT_NONE)
            x->result->candidates++;
        ef_intern_put(x->delivered, canon, sizeof canon, &fresh);
        ef_total total = total_of(x, p, 0);
        if (fresh && !is_dominated(x, p) && !is_outdone(x, &total))
            add_complete(x, p, canon, &total);
    }
    ef_clear_picks(x, p->data, p->picks);
}

static int cheapest_first(const void *a, const void *b)
{
    const ef_complete *p = a, *q = b;
    if (p->partial.cost != q->partial.cost)
        return p->partial.cost < q->partial.cost ? -1 : 1;
    return p->canon[0] < q->canon[0] ? -1 : p->canon[0] > q->canon[0];
}

/* Counts the candidates, and builds those that are to be kept. */
static void deliver(ef_extractor *x)
{
    ef_extraction *r = x->result;
    if (x->complete.count)
        qsort(x->complete.at, x->complete.count, sizeof *x->complete.at, cheapest_first);
    if (x->options->compaction != EF_COMPACT_NONE)
        r->candidates = x->complete.count;
    for (uint32_t i = 0; i < x->complete.count; i++) {
        const ef_complete *c = &x->complete.at[i];
        r->fingerprint[0] += ef_mix(c->canon[0], 11);
        r->fingerprint[1] += ef_mix(c->canon[1], 13);
        if (r->candidate.count < x->options->keep) {
            ef_load_picks(x, c->partial.data, c->partial.picks);
            build(x, &c->partial, c->canon);
            ef_clear_picks(x, c->partial.data, c->partial.picks);
        }
        free(c->partial.data);
    }
    ef_vec_free(&x->complete);
}

/* ---- Algorithm 1 ---- */

/* A hole that no other hole can need comes next: all that load it are known then. */
static bool free_hole_first(const ef_extractor *x, uint32_t *hole, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        bool needed = false;
        for (uint32_t k = 0; k < count && !needed; k++)
            needed = k != i && ef_bit(x->needs + (size_t)hole[k] * x->words, hole[i]);
        if (needed)
            continue;
        uint32_t t = hole[0];
        hole[0] = hole[i];
        hole[i] = t;
        return true;
    }
    return false;
}

/* Makes known which kernels may fill a slot. */
static void survey(ef_extractor *x, ef_slot_id hole)
{
    ef_choice_list kernels = {0};
    if (!x->kernels[hole].known && x->options->compaction == EF_COMPACT_EARLY)
        ef_kernels_of(x, hole, &kernels);
    ef_vec_free(&kernels);
}

/* A partial program that is being expanded: its choices are loaded. */
typedef struct {
    const ef_partial *p;
    ef_slot_id hole;
    bool settled; /* all that load what fills the hole are known */
    ef_standing stand;
    ef_total total; /* without the hole */
} expansion;

/* Whether a slot is needed anew. */
static bool opens(const ef_extractor *x, const ef_partial *p, ef_slot_id id)
{
    if (ef_is_given(x, id) || x->pick[id])
        return false;
    for (uint32_t e = 1; e < p->holes; e++)
        if (p->data[2 * (size_t)p->picks + e] == id)
            return false;
    return true;
}

static ef_partial with_choice(ef_extractor *x, const expansion *e, const ef_choice *c, double cost)
{
    const ef_partial *p = e->p;
    const uint32_t *hole = p->data + 2 * (size_t)p->picks;
    uint32_t count;
    const ef_slot_id *need = ef_needs_of(x, c, &count);
    ef_partial q = {.cost = p->cost + cost, .picks = p->picks + 1};
    q.data = ef_xcalloc(2 * (size_t)q.picks + p->holes + count, sizeof *q.data);
    memcpy(q.data, p->data, 2 * (size_t)p->picks * sizeof *q.data);
    q.data[2 * p->picks] = hole[0];
    q.data[2 * p->picks + 1] = ef_intern_put(x->choice_ids, c, sizeof *c, NULL);
    if (q.data[2 * p->picks + 1] == x->choices.count)
        ef_vec_push(&x->choices, *c);
    uint32_t *out = q.data + 2 * (size_t)q.picks;
    for (uint32_t i = 1; i < p->holes; i++)
        out[q.holes++] = hole[i];
    for (uint32_t i = 0; i < count; i++)
        if (opens(x, p, need[i]))
            out[q.holes++] = need[i];
    q.bound = q.cost;
    for (uint32_t i = 0; i < q.holes; i++)
        q.bound += x->kernels[out[i]].cost;
    return q;
}

/* Queues the partial program with a choice for its first hole, where that may still become a candidate. */
static void extend(ef_extractor *x, ef_partials *queue, const expansion *e, ef_choice c)
{
    const ef_body *b = c.body == EF_NONE ? NULL : &x->bodies.at[c.body];
    bool early = x->options->compaction == EF_COMPACT_EARLY;
    uint32_t count;
    const ef_slot_id *need = ef_needs_of(x, &c, &count);
    ef_total total = e->total;
    double cost = b ? b->cost : 0; /* bodies move when others are found */
    if ((b && ef_program_contradicts(x, e->stand, e->hole, b)) || closes_cycle(x, e->hole, &c))
        return;
    if (b)
        ef_total_add(&total, &b->measure);
    for (uint32_t i = 0; i < count && early; i++)
        if (opens(x, e->p, need[i])) {
            survey(x, need[i]);
            add_hole(x, &total, need[i]);
        }
    if (early && is_outdone(x, &total))
        return;
    ef_partial q = with_choice(x, e, &c, cost);
    x->pick[e->hole] = q.data[2 * e->p->picks + 1] + 1;
    bool good = !ef_makes_detour(x, &q, e->p->picks) && (!e->settled || !ef_is_pointless(x, &q, e->p->picks));
    x->pick[e->hole] = 0;
    if (good)
        ef_queue_push(x, queue, q);
    else
        free(q.data);
}

static void expand(ef_extractor *x, ef_partials *queue, const ef_partial *p)
{
    expansion e = {.p = p, .settled = free_hole_first(x, p->data + 2 * (size_t)p->picks, p->holes)};
    ef_choice_list kernels = {0};
    e.hole = p->data[2 * (size_t)p->picks];
    const ef_eslot s = x->slots.at[e.hole];
    ef_kernels_of(x, e.hole, &kernels);
    x->result->expanded++;
    ef_load_picks(x, p->data, p->picks);
    e.stand = ef_stand(x, p);
    e.total = total_of(x, p, 1);
    for (uint32_t k = s.first; k < s.first + s.count; k++)
        if (ef_option_at(x, k)->kind != EF_OPTION_KERNEL)
            extend(x, queue, &e, (ef_choice){k, EF_NONE});
    for (uint32_t i = 0; i < kernels.count; i++)
        extend(x, queue, &e, kernels.at[i]);
    ef_clear_picks(x, p->data, p->picks);
    ef_vec_free(&kernels);
}

/* ---- passes ---- */

/* A budget should give the promising candidates of the whole program, and not all kernels of its first tensor. So
 * programs are composed in passes that look further each time, as in iterative deepening: at most so many partial
 * kernels of each tensor, and so many partial programs. What a pass cuts short the next one does again; the last has no
 * cap. */
static const struct {
    uint64_t kernel, program;
    double steps;
} caps[] = {{300, 3000, 2}, {5000, 30000, 6}, {40000, 100000, 12}, {300000, 500000, 20}, {0, 0, 30}};
#define PASSES (sizeof caps / sizeof *caps)

/* When all time is up, some program is better than none. */
static bool is_over(const ef_extractor *x, uint64_t states)
{
    bool patient = x->complete.count == 0 && ef_seconds() - x->start < 2 * ef_time_limit(x) && !ef_interrupted();
    return (ef_out_of_budget(x) && !patient) || (x->program_cap && states > x->program_cap && x->complete.count);
}

static void compose_once(ef_extractor *x)
{
    ef_partials queue = {0};
    ef_partial first = {.data = ef_xcalloc(x->search->outputs, sizeof *first.data)};
    uint64_t states = 0;
    for (uint32_t i = 0; i < x->search->outputs; i++) {
        ef_slot_id s = ef_slot_of(x, x->search->output[i], EF_SLOT_STORED);
        bool known = ef_is_given(x, s);
        for (uint32_t k = 0; k < first.holes && !known; k++)
            known = first.data[k] == s;
        if (!known)
            first.data[first.holes++] = s;
    }
    ef_queue_push(x, &queue, first);
    while (queue.heap.count && !is_over(x, states++)) {
        ef_partial p = ef_queue_pop(x, &queue);
        if (p.holes)
            expand(x, &queue, &p);
        else
            finish(x, &p);
        free(p.data);
    }
    x->cut = x->cut || queue.heap.count;
    ef_queue_free(x, &queue);
}

/* Forgets what a pass found out. */
static void forget(ef_extractor *x)
{
    for (uint32_t i = 0; i < x->slots.count; i++) {
        ef_vec_free(&x->kernels[i].best);
        x->kernels[i] = (ef_kernel_set){0};
    }
    ef_intern_free(x->seen);
    ef_intern_free(x->delivered);
    x->seen = ef_intern_new();
    x->delivered = ef_intern_new();
}

typedef struct {
    ef_complete *at;
    uint32_t count, capacity;
} complete_list;

/* Adds the programs of earlier passes to those of one that was cut short. */
static void merge(ef_extractor *x, complete_list *earlier)
{
    int fresh;
    for (uint32_t i = 0; i < earlier->count; i++) {
        const ef_complete *c = &earlier->at[i];
        ef_intern_put(x->delivered, c->canon, sizeof c->canon, &fresh);
        if (x->cut && fresh && !is_outdone(x, &c->total))
            add_complete(x, &c->partial, c->canon, &c->total);
        free(c->partial.data);
    }
    ef_vec_free(earlier);
}

void ef_compose(ef_extractor *x)
{
    bool limited = x->cut; /* before any program was composed */
    complete_list earlier = {0};
    unsigned pass = x->options->compaction == EF_COMPACT_EARLY ? 0 : PASSES - 1;
    for (;; pass++) {
        x->kernel_cap = caps[pass].kernel;
        x->program_cap = caps[pass].program;
        x->steps = caps[pass].steps;
        x->cut = false;
        compose_once(x);
        merge(x, &earlier);
        if (!x->cut || pass + 1 == PASSES || ef_out_of_budget(x))
            break;
        earlier = (complete_list){x->complete.at, x->complete.count, x->complete.capacity};
        memset(&x->complete, 0, sizeof x->complete);
        forget(x);
    }
    x->cut = x->cut || limited;
    deliver(x);
}
