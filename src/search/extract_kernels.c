/* Algorithm 1 inside of one kernel (paper, section 5.1): all bodies of a root slot.
 *
 * A partial kernel has ways for some slots and holes for others; what it loads are the leaves. It is expanded one hole
 * at a time. In mode `early` it is first compared with those already seen: the canonical form of the root, holes by
 * slot; the forms of the picked slots that its holes can still refer to; what it loads or computes although it could
 * load it; and which parts of open fused reductions are used. Partial kernels that agree in these have the same
 * completions.
 *
 * What a kernel is does not depend on the program around it, so in mode `early` its bodies are found once for all
 * programs. The other modes enumerate them again in every partial program, as a search over whole programs would. */
#include <string.h>

#include "search/extract_private.h"
#include "support/hash.h"
#include "support/interrupt.h"

void ef_load_picks(ef_extractor *x, const uint32_t *pick, uint32_t picks)
{
    for (uint32_t i = 0; i < picks; i++)
        x->pick[pick[2 * i]] = pick[2 * i + 1] + 1;
}

void ef_clear_picks(ef_extractor *x, const uint32_t *pick, uint32_t picks)
{
    for (uint32_t i = 0; i < picks; i++)
        x->pick[pick[2 * i]] = 0;
}

/* ---- walks over the loaded kernel ---- */

/* Whether picking way w for slot `id` closes a cycle: some picked path leads from its needs back to the slot. */
static bool closes_cycle(ef_extractor *x, ef_slot_id id, const ef_way *w)
{
    uint32_t top = 0;
    x->epoch++;
    for (uint32_t i = 0; i < w->count; i++)
        x->stack[top++] = x->child.at[w->first + i];
    while (top) {
        ef_slot_id s = x->stack[--top];
        if (s == id)
            return true;
        const ef_way *p = ef_picked(x, s);
        if (!p || x->stamp[s] == x->epoch)
            continue;
        x->stamp[s] = x->epoch;
        for (uint32_t i = 0; i < p->count; i++)
            if (x->stamp[x->child.at[p->first + i]] != x->epoch)
                x->stack[top++] = x->child.at[p->first + i];
    }
    return false;
}

/* The slots that completions can refer to: from the holes on, through slots without a pick, up to those with one. */
static void mark_open(ef_extractor *x, const ef_partial *p)
{
    uint32_t top = 0;
    memset(x->open, 0, x->words * sizeof *x->open);
    for (uint32_t k = 0; k < p->holes; k++) {
        ef_slot_id id = p->data[2 * (size_t)p->picks + k];
        ef_set_bit(x->open, id);
        x->stack[top++] = id;
    }
    while (top) {
        const ef_eslot *s = &x->slots.at[x->stack[--top]];
        if (x->pick[x->stack[top]])
            continue;
        for (uint32_t k = s->first_way; k < s->first_way + s->ways; k++) {
            const ef_way *w = &x->way_list.at[k];
            for (uint32_t c = w->first; c < w->first + w->count; c++)
                if (!ef_bit(x->open, x->child.at[c])) {
                    ef_set_bit(x->open, x->child.at[c]);
                    x->stack[top++] = x->child.at[c];
                }
        }
    }
}

/* ---- ~p ---- */

/* The signature of a partial kernel, whose picks are loaded and whose open slots are marked. */
static void signature(ef_extractor *x, const ef_partial *p, const uint64_t *loads, const uint64_t *again,
                      uint64_t out[2])
{
    uint64_t h[2];
    x->epoch++;
    ef_form_hash(ef_form_of_slot(x, p->data[0]), out);
    out[0] = ef_mix(out[0], p->data[0]);
    for (uint32_t i = 0; i < p->picks; i++) {
        ef_slot_id s = p->data[2 * i];
        const ef_option *o = ef_picked_option(x, s);
        if (o && ef_option_op(x, o) == EF_REDUCE_P) /* what it may be fused with depends on the slot */
            out[0] += ef_mix(s, 9), out[1] += ef_mix(s, 10);
        if (!ef_bit(x->open, s))
            continue;
        ef_form_hash(ef_form_of_slot(x, s), h);
        unsigned used = ef_type_at(x->ctx, ef_slot_type(x, s))->is_tuple ? ef_uses_now(x, p, s) : 0;
        out[0] += ef_mix(ef_mix(h[0], s), 5 + used);
        out[1] += ef_mix(ef_mix(h[1], s), 7 + used);
    }
    for (uint32_t w = 0; w < x->stored_words; w++) {
        out[0] = ef_mix(ef_mix(out[0], loads[w]), again[w]);
        out[1] = ef_mix(ef_mix(out[1], loads[w] + 3), again[w]);
    }
}

/* ---- the enumeration ---- */

/* A hole that no other hole can reach comes next: once it is picked nothing refers to it again, so its pick leaves the
 * signature and equivalent partial kernels meet early. Among those the one with the fewest ways. The choice depends on
 * the set of holes alone, so equivalent partial kernels go the same way. */
static void free_hole_first(const ef_extractor *x, uint32_t *hole, uint32_t count)
{
    uint32_t best = 0;
    uint64_t best_rank = UINT64_MAX;
    for (uint32_t i = 0; i < count; i++) {
        uint64_t reached = 0;
        for (uint32_t k = 0; k < count; k++)
            reached += k != i && ef_bit(x->reach + (size_t)hole[k] * x->words, hole[i]);
        uint64_t rank = reached << 48 | (uint64_t)x->slots.at[hole[i]].ways << 32 | hole[i];
        if (rank < best_rank) {
            best_rank = rank;
            best = i;
        }
    }
    if (count) {
        uint32_t t = hole[0];
        hole[0] = hole[best];
        hole[best] = t;
    }
}

static bool is_constant(const ef_extractor *x, ef_slot_id id)
{
    const ef_eslot *s = &x->slots.at[id];
    return s->count == 1 && ef_option_at(x, s->first)->kind == EF_OPTION_LEAF;
}

/* The partial kernel with way k picked for its first hole. */
static ef_partial extend(ef_extractor *x, const ef_partial *p, uint32_t k)
{
    const ef_way *w = &x->way_list.at[k];
    const uint32_t *hole = p->data + 2 * (size_t)p->picks;
    ef_partial q = {.cost = p->cost + w->cost, .picks = p->picks + 1};
    q.data = ef_xcalloc(2 * (size_t)q.picks + p->holes + w->count, sizeof *q.data);
    memcpy(q.data, p->data, 2 * (size_t)p->picks * sizeof *q.data);
    q.data[2 * p->picks] = hole[0];
    q.data[2 * p->picks + 1] = k;
    uint32_t *out = q.data + 2 * (size_t)q.picks;
    for (uint32_t i = 1; i < p->holes; i++)
        out[q.holes++] = hole[i];
    for (uint32_t i = 0; i < w->count; i++) {
        ef_slot_id c = x->child.at[w->first + i];
        bool known = x->pick[c] != 0 || c == hole[0] || is_constant(x, c);
        for (uint32_t e = 0; e < q.holes && !known; e++)
            known = out[e] == c;
        if (!known)
            out[q.holes++] = c;
    }
    q.bound = q.cost;
    for (uint32_t i = 0; i < q.holes; i++)
        q.bound += x->slots.at[out[i]].least;
    free_hole_first(x, out, q.holes);
    return q;
}

/* Whether a kernel option fills an output of the program. */
static bool option_is_output(ef_extractor *x, uint32_t option)
{
    for (uint32_t i = 0; i < x->search->outputs; i++) {
        const ef_eslot *s = &x->slots.at[ef_slot_of(x, x->search->output[i], EF_SLOT_STORED)];
        if (option >= s->first && option < s->first + s->count)
            return true;
    }
    return false;
}

/* Whether a pointwise kernel only makes, of values that another kernel stored, as many of the same shape: who loads its
 * results can load those instead, and compute the rest. */
static bool only_restores(const ef_extractor *x, const ef_body *b)
{
    const ef_type_info *t = ef_type_at(x->ctx, ef_slot_type(x, b->root));
    const ef_type_info *shape = t->is_tuple ? ef_type_at(x->ctx, t->field[0]) : t;
    unsigned stored = 0, given = 0;
    for (uint32_t i = 0; i < b->picks && b->pointwise && !b->output; i++) {
        const ef_option *o = ef_picked_option(x, b->pick[2 * i]);
        if (!o || o->kind != EF_OPTION_LOADS ||
            !ef_same_shape(shape, ef_type_at(x->ctx, ef_slot_type(x, b->pick[2 * i]))))
            continue;
        if (x->slots.at[x->child.at[o->first]].stored == EF_NONE)
            given++;
        else
            stored++;
    }
    return stored && stored + given <= (t->is_tuple ? t->fields : 1);
}

typedef struct {
    uint32_t option;
    ef_choice_list *found;
} finishing;

/* The picks that the root needs, listed from the loaded ones. False when they are cyclic. */
static bool list_picks(ef_extractor *x, ef_body *b)
{
    uint32_t n = 0;
    x->epoch++;
    b->pick = ef_xcalloc(2 * (size_t)x->slots.count, sizeof *b->pick);
    b->pick[2 * n++] = b->root;
    x->stamp[b->root] = x->epoch;
    for (uint32_t i = 0; i < n; i++) {
        const ef_way *w = ef_picked(x, b->pick[2 * i]);
        b->pick[2 * i + 1] = x->pick[b->pick[2 * i]] - 1;
        for (uint32_t c = w->first; c < w->first + w->count; c++) {
            ef_slot_id child = x->child.at[c];
            if (x->stamp[child] == x->epoch || is_constant(x, child))
                continue;
            x->stamp[child] = x->epoch;
            b->pick[2 * n++] = child;
        }
    }
    b->picks = n;
    b->pick = ef_xrealloc(b->pick, 2 * (size_t)n * sizeof *b->pick);
    for (uint32_t i = 0; i < n; i++)
        if (closes_cycle(x, b->pick[2 * i], ef_picked(x, b->pick[2 * i])))
            return false;
    return true;
}

/* The stored slots that a body loads, each once. */
static void list_loads(ef_extractor *x, ef_body *b)
{
    b->need = ef_xcalloc((size_t)b->picks + 1, sizeof *b->need);
    for (uint32_t i = 0; i < b->picks; i++) {
        const ef_option *o = ef_picked_option(x, b->pick[2 * i]);
        if (!o || o->kind != EF_OPTION_LOADS)
            continue;
        ef_slot_id stored = x->child.at[o->first];
        bool known = ef_is_given(x, stored);
        b->direct = b->direct || o->node == EF_NONE;
        for (uint32_t k = 0; k < b->needs && !known; k++)
            known = b->need[k] == stored;
        if (!known)
            b->need[b->needs++] = stored;
    }
}

/* The number of the body that the loaded picks are. */
static uint32_t intern_body(ef_extractor *x, ef_body *b, uint32_t option)
{
    uint32_t words = x->stored_words;
    uint64_t *key = ef_xcalloc(words + 3, sizeof *key);
    int fresh;
    ef_find_loads(x, b->pick, b->picks, x->bits, key + 3);
    x->epoch++;
    ef_form_hash(ef_form_of_slot(x, b->root), key + 1);
    key[0] = b->root;
    uint32_t id = ef_intern_put(x->body_ids, key, (words + 3) * sizeof *key, &fresh);
    if (fresh) {
        b->loads = ef_xcalloc(2 * (size_t)words, sizeof *b->loads);
        b->again = b->loads + words;
        memcpy(b->loads, x->bits, words * sizeof *b->loads);
        memcpy(b->again, key + 3, words * sizeof *b->again);
        memcpy(b->canon, key + 1, sizeof b->canon);
        x->epoch++;
        b->organisation = ef_organisation_of_slot(x, b->root);
        list_loads(x, b);
        ef_body_measure(x, b);
        b->output = option_is_output(x, option);
        b->restores = only_restores(x, b);
        ef_vec_push(&x->bodies, *b);
    } else {
        free(b->pick);
    }
    free(key);
    return id;
}

static void finish(ef_extractor *x, ef_slot_id root, void *user)
{
    const finishing *f = user;
    ef_body b = {.root = root};
    if (!list_picks(x, &b) || ef_is_loaded(x, root)) {
        free(b.pick);
        return;
    }
    uint32_t id = intern_body(x, &b, f->option);
    if (!x->bodies.at[id].restores)
        ef_vec_push(f->found, ((ef_choice){f->option, id}));
}

/* Whether a complete kernel that was found dominates all completions. */
static bool is_dominated(ef_extractor *x, const ef_partial *p, const uint64_t *loads, const ef_choice_list *found)
{
    ef_measure m = ef_measure_picks(x, p->data, p->picks, false);
    for (uint32_t i = 0; i < found->count; i++)
        if (ef_dominates(x, &x->bodies.at[found->at[i].body], &m, loads))
            return true;
    return false;
}

static void expand(ef_extractor *x, ef_partials *queue, const ef_partial *p, uint32_t own, const ef_choice_list *found)
{
    ef_slot_id hole = p->data[2 * (size_t)p->picks];
    const ef_eslot s = x->slots.at[hole];
    uint64_t *loads = x->bits, *again = x->bits + x->stored_words, sign[2];
    x->result->expanded++;
    for (uint32_t k = s.first_way; k < s.first_way + s.ways; k++) {
        if (ef_way_is_barren(x, own, k))
            continue;
        ef_load_picks(x, p->data, p->picks);
        bool good = !closes_cycle(x, hole, &x->way_list.at[k]);
        ef_partial q = {0};
        if (good)
            q = extend(x, p, k);
        x->pick[hole] = k + 1;
        if (good) {
            ef_find_loads(x, q.data, q.picks, loads, again);
            mark_open(x, &q);
            good = !ef_kernel_contradicts(x, own, loads, again) && !ef_respells(x, &q) && !ef_wastes_fusion(x, &q) &&
                   !ef_loads_small_reduction(x, &q);
        }
        if (good && x->options->compaction == EF_COMPACT_EARLY)
            good = !is_dominated(x, &q, loads, found);
        if (good && x->options->compaction == EF_COMPACT_EARLY) {
            int fresh;
            signature(x, &q, loads, again, sign);
            ef_intern_put(x->seen, sign, sizeof sign, &fresh);
            good = fresh;
        }
        x->pick[hole] = 0;
        ef_clear_picks(x, p->data, p->picks);
        if (good)
            ef_queue_push(x, queue, q);
        else
            free(q.data);
    }
}

/* A kernel that has bodies stops at the cap of the pass (see extract_compose.c); one that has none may look longer. */
#define PATIENCE 10
#define LATE 5000u /* states at most when all time is up */

static bool is_over(const ef_extractor *x, uint64_t states, bool found)
{
    if (ef_interrupted())
        return true;
    if (ef_out_of_budget(x))
        return found || states > (x->kernel_cap < LATE ? x->kernel_cap : LATE) || x->complete.count;
    return x->kernel_cap && states > x->kernel_cap * (found ? 1 : PATIENCE);
}

static void enumerate(ef_extractor *x, uint32_t own, uint32_t option, ef_choice_list *found)
{
    ef_partials queue = {0};
    uint64_t states = 0;
    uint32_t before = found->count;
    ef_partial first = {.holes = 1, .data = ef_xcalloc(1, sizeof *first.data)};
    first.data[0] = x->child.at[ef_option_at(x, option)->first];
    ef_measure_begin(x, first.data[0]);
    ef_find_barren(x, first.data[0], own);
    ef_queue_push(x, &queue, first);
    while (queue.heap.count && !is_over(x, states++, found->count > before)) {
        ef_partial p = ef_queue_pop(x, &queue);
        if (p.holes) {
            expand(x, &queue, &p, own, found);
        } else {
            ef_load_picks(x, p.data, p.picks);
            ef_loops_fuse(x, p.data[0], finish, &(finishing){option, found});
            ef_clear_picks(x, p.data, p.picks);
        }
        free(p.data);
    }
    x->cut = x->cut || queue.heap.count;
    ef_queue_free(x, &queue);
}

/* Those of the kernels found that no other dominates, each once. */
static void keep_best(ef_extractor *x, const ef_choice_list *found, ef_choice_list *best)
{
    for (uint32_t i = 0; i < found->count; i++) {
        ef_choice c = found->at[i];
        bool good = true;
        for (uint32_t k = 0; k < found->count && good; k++)
            good = found->at[k].body == c.body ||
                   !ef_body_dominates(x, &x->bodies.at[found->at[k].body], &x->bodies.at[c.body]);
        for (uint32_t k = 0; k < best->count && good; k++)
            good = best->at[k].body != c.body;
        if (good)
            ef_vec_push(best, c);
    }
}

static void summarise(const ef_extractor *x, ef_kernel_set *set)
{
    for (uint32_t i = 0; i < set->best.count; i++) {
        const ef_body *b = &x->bodies.at[set->best.at[i].body];
        ef_total t = {0};
        ef_total_add(&t, &b->measure);
        if (i == 0)
            set->least = t;
        ef_total_least(&set->least, &t);
        set->cost = i == 0 || b->cost < set->cost ? b->cost : set->cost;
    }
}

void ef_kernels_of(ef_extractor *x, ef_slot_id stored, ef_choice_list *out)
{
    const ef_eslot s = x->slots.at[stored];
    ef_kernel_set *set = &x->kernels[stored];
    bool early = x->options->compaction == EF_COMPACT_EARLY;
    out->count = 0;
    for (uint32_t k = s.first; k < s.first + s.count && !(early && set->known); k++)
        if (ef_option_at(x, k)->kind == EF_OPTION_KERNEL)
            enumerate(x, s.stored, k, out);
    if (!set->known) {
        keep_best(x, out, &set->best);
        summarise(x, set);
    }
    set->known = true;
    if (!early)
        return;
    out->count = 0;
    for (uint32_t i = 0; i < set->best.count; i++)
        ef_vec_push(out, set->best.at[i]);
}
