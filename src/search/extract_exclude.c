/* Stored values that no program has both of.
 *
 * A value is stored once, and of values that are pointwise functions of one another, up to smaller operands, one is
 * stored: who needs the other loads as many bytes of this one, and computes the rest. Outputs are stored anyway. */
#include <string.h>

#include "search/extract_private.h"

bool ef_same_shape(const ef_type_info *a, const ef_type_info *b)
{
    return !a->is_tuple && !b->is_tuple && a->rank == b->rank && memcmp(a->dim, b->dim, sizeof a->dim) == 0;
}

bool ef_is_output(ef_extractor *x, ef_slot_id stored)
{
    for (uint32_t i = 0; i < x->search->outputs; i++)
        if (ef_slot_of(x, x->search->output[i], EF_SLOT_STORED) == stored)
            return true;
    return false;
}

/* Calls for every stored slot that a slot may be a load of. */
static void mark_loads(const ef_extractor *x, ef_slot_id id, uint64_t *row)
{
    const ef_eslot *s = &x->slots.at[id];
    for (uint32_t k = s->first; k < s->first + s->count; k++)
        if (ef_option_at(x, k)->kind == EF_OPTION_LOADS)
            ef_set_bit(row, x->child.at[ef_option_at(x, k)->first]);
}

/* The one leaf of a cone that has its shape; EF_NONE: there are none, or more. */
static ef_slot_id full_leaf(const ef_extractor *x, ef_slot_id id, const ef_way *w)
{
    ef_slot_id full = EF_NONE;
    for (uint32_t c = w->first; c < w->first + w->count; c++) {
        const ef_type_info *t = ef_type_at(x->ctx, ef_slot_type(x, x->child.at[c]));
        if (!ef_same_shape(t, ef_type_at(x->ctx, ef_slot_type(x, id))))
            continue;
        if (full != EF_NONE)
            return EF_NONE;
        full = x->child.at[c];
    }
    return full;
}

/* Bit (c, d): stored value c is a pointwise function of d and smaller values. */
static uint64_t *find_derived(ef_extractor *x)
{
    uint32_t n = x->slots.count;
    uint64_t *derived = ef_xcalloc((size_t)n * x->words, sizeof *derived);
    uint64_t *from = ef_xcalloc(x->words, sizeof *from), *to = ef_xcalloc(x->words, sizeof *to);
    for (ef_slot_id id = 0; id < n && !ef_out_of_budget(x); id++) {
        const ef_eslot *s = &x->slots.at[id];
        memset(to, 0, x->words * sizeof *to);
        if (s->role != EF_SLOT_STORED)
            mark_loads(x, id, to);
        for (uint32_t k = s->first_way; k < s->first_way + s->ways; k++) {
            ef_slot_id full = x->way_list.at[k].option == EF_NONE ? full_leaf(x, id, &x->way_list.at[k]) : EF_NONE;
            if (full == EF_NONE)
                continue;
            memset(from, 0, x->words * sizeof *from);
            mark_loads(x, full, from);
            for (uint32_t c = 0; c < n; c++)
                for (uint32_t w = 0; w < x->words && ef_bit(to, c); w++)
                    derived[(size_t)c * x->words + w] |= from[w];
        }
    }
    free(from);
    free(to);
    return derived;
}

typedef struct {
    ef_slot_id at[EF_MAX_FIELDS * 2];
    uint32_t count;
} contents;

/* A stored value and its fields. */
static void add_contents(const ef_extractor *x, ef_slot_id stored, contents *out)
{
    if (out->count == sizeof out->at / sizeof *out->at)
        return;
    out->at[out->count++] = stored;
    if (!ef_type_at(x->ctx, ef_slot_type(x, stored))->is_tuple)
        return;
    for (ef_slot_id id = 0; id < x->slots.count; id++) {
        const ef_eslot *s = &x->slots.at[id];
        for (uint32_t k = s->first; k < s->first + s->count && s->role == EF_SLOT_STORED; k++) {
            const ef_option *o = ef_option_at(x, k);
            if (o->kind == EF_OPTION_MOVES && ef_option_op(x, o) == EF_GET && x->child.at[o->first] == stored)
                add_contents(x, id, out);
        }
    }
}

/* Whether c is d with its elements moved. */
static bool moved(const ef_extractor *x, ef_slot_id c, ef_slot_id d)
{
    const ef_eslot *s = &x->slots.at[c];
    for (uint32_t k = s->first; k < s->first + s->count; k++) {
        const ef_option *o = ef_option_at(x, k);
        if (o->kind == EF_OPTION_MOVES && o->count == 1 && ef_is_shape(ef_option_op(x, o)) &&
            x->child.at[o->first] == d)
            return true;
    }
    return false;
}

static bool exclude(ef_extractor *x, const uint64_t *derived, const contents *a, const contents *b)
{
    for (uint32_t i = 0; i < a->count; i++)
        for (uint32_t k = 0; k < b->count; k++) {
            ef_slot_id c = a->at[i], d = b->at[k];
            if (c == d || moved(x, c, d) || moved(x, d, c))
                return true;
            if (!ef_is_output(x, c) && !ef_is_output(x, d) &&
                (ef_bit(derived + (size_t)c * x->words, d) || ef_bit(derived + (size_t)d * x->words, c)))
                return true;
        }
    return false;
}

void ef_exclusions_build(ef_extractor *x)
{
    uint64_t *derived = find_derived(x);
    contents *all = ef_xcalloc((size_t)x->stored + 1, sizeof *all);
    x->excludes = ef_xcalloc((size_t)x->stored * x->stored_words + 1, sizeof *x->excludes);
    for (uint32_t i = 0; i < x->stored; i++)
        add_contents(x, x->stored_slot.at[i], &all[i]);
    for (uint32_t i = 0; i < x->stored && !ef_out_of_budget(x); i++)
        for (uint32_t k = 0; k < x->stored; k++)
            if (i != k && exclude(x, derived, &all[i], &all[k]))
                ef_set_bit(x->excludes + (size_t)i * x->stored_words, k);
    free(all);
    free(derived);
}
