/* What is no candidate among programs (see extract.h), but for dominance: conditions on what kernels store for others
 * and compute for themselves. The choices of the partial program are loaded. */
#include <string.h>

#include "search/extract_private.h"

const ef_choice *ef_chosen(const ef_extractor *x, ef_slot_id id)
{
    return x->pick[id] ? &x->choices.at[x->pick[id] - 1] : NULL;
}

/* The stored slots that a choice needs; of a kernel, those that are not given. */
const ef_slot_id *ef_needs_of(const ef_extractor *x, const ef_choice *c, uint32_t *count)
{
    if (c->body != EF_NONE) {
        *count = x->bodies.at[c->body].needs;
        return x->bodies.at[c->body].need;
    }
    const ef_option *o = ef_option_at(x, c->option);
    *count = o->count;
    return x->child.at + o->first;
}

const ef_body *ef_body_of(const ef_extractor *x, const ef_partial *p, uint32_t i)
{
    uint32_t body = x->choices.at[p->data[2 * i + 1]].body;
    return body == EF_NONE ? NULL : &x->bodies.at[body];
}

ef_standing ef_stand(ef_extractor *x, const ef_partial *p)
{
    ef_standing s = {x->standing, x->standing + x->stored_words};
    memset(s.stored, 0, 2 * (size_t)x->stored_words * sizeof *s.stored);
    for (uint32_t i = 0; i < p->picks; i++) {
        const ef_body *b = ef_body_of(x, p, i);
        uint32_t number = x->slots.at[p->data[2 * i]].stored;
        if (!b)
            continue;
        ef_set_bit(s.stored, number);
        for (uint32_t w = 0; w < x->stored_words; w++)
            s.barred[w] |= b->again[w] | x->excludes[(size_t)number * x->stored_words + w];
    }
    return s;
}

/* Whether a kernel computes a value that another one stores and it could load, or two values would be stored of which
 * one is enough. */
bool ef_program_contradicts(const ef_extractor *x, ef_standing s, ef_slot_id hole, const ef_body *b)
{
    uint32_t number = x->slots.at[hole].stored;
    const uint64_t *excludes = x->excludes + (size_t)number * x->stored_words;
    if (ef_bit(s.barred, number))
        return true;
    for (uint32_t w = 0; w < x->stored_words; w++)
        if ((b->again[w] | excludes[w]) & s.stored[w])
            return true;
    return false;
}

/* The tensor whose elements a stored slot has, through moves of fields only. */
static ef_slot_id tuple_of(const ef_extractor *x, ef_slot_id id)
{
    const ef_choice *c = ef_chosen(x, id);
    while (c && ef_option_at(x, c->option)->kind == EF_OPTION_MOVES &&
           ef_option_op(x, ef_option_at(x, c->option)) == EF_GET) {
        id = x->child.at[ef_option_at(x, c->option)->first];
        c = ef_chosen(x, id);
    }
    return id;
}

static bool is_output(const ef_extractor *x, ef_slot_id id)
{
    for (uint32_t i = 0; i < x->search->outputs; i++)
        if (tuple_of(x, ef_slot_of((ef_extractor *)x, x->search->output[i], EF_SLOT_STORED)) == id)
            return true;
    return false;
}

/* Whether a load could be the value that the storing kernel computes, in the same block: it is viewed as it was
 * combined, and the slot has another way. */
static bool could_fuse(const ef_extractor *x, ef_slot_id slot, const ef_option *load, const ef_option *combine)
{
    return load->node != EF_NONE && combine->node != EF_NONE && ef_option_attr(x, load) == ef_option_attr(x, combine) &&
           x->slots.at[slot].ways > 1;
}

static bool shaped_alike(const ef_extractor *x, ef_slot_id a, ef_slot_id b)
{
    return ef_same_shape(ef_type_at(x->ctx, ef_slot_type(x, a)), ef_type_at(x->ctx, ef_slot_type(x, b)));
}

/* Whether the kernel of pick k could compute, instead of loading it (load, way n of it), what pick i stores; or the
 * kernel of pick i could go on to compute what pick k stores. */
static bool could_merge(const ef_extractor *x, const ef_partial *p, uint32_t i, uint32_t k, uint32_t n,
                        const ef_option *load)
{
    const ef_body *from = ef_body_of(x, p, i), *to = ef_body_of(x, p, k);
    const ef_option *combine = ef_option_at(x, x->choices.at[p->data[2 * i + 1]].option);
    if (to->pointwise && combine->node != EF_NONE && shaped_alike(x, p->data[2 * i], p->data[2 * k]))
        return true;
    return could_fuse(x, to->pick[2 * n], load, combine) && !(to->contracts && from->contracts);
}

/* The load, of pick k's kernel, of what a stored slot holds, next after *n of its picks; NULL: no more. */
static const ef_option *next_load(const ef_extractor *x, const ef_partial *p, uint32_t k, ef_slot_id stored,
                                  uint32_t *n)
{
    const ef_body *b = ef_body_of(x, p, k);
    for (; b && *n < b->picks; (*n)++) {
        const ef_way *w = &x->way_list.at[b->pick[2 * *n + 1]];
        const ef_option *load = w->option == EF_NONE ? NULL : ef_option_at(x, w->option);
        if (load && load->kind == EF_OPTION_LOADS && tuple_of(x, x->child.at[load->first]) == stored)
            return load;
    }
    return NULL;
}

/* A value that one kernel stores and one other loads, on the same grid and at the same coordinates, is fused into that
 * kernel: nothing is computed twice, and a store, a load and a launch are saved. Two kernels that both contract stay
 * apart: together they hold two accumulators. What is only computed pointwise from it, at the same shape, is computed
 * where it is stored. */
static bool stores_for_nothing(const ef_extractor *x, const ef_partial *p, uint32_t i)
{
    ef_slot_id stored = p->data[2 * i];
    uint32_t reader = EF_NONE;
    if (!ef_body_of(x, p, i) || is_output(x, stored))
        return false;
    for (uint32_t k = 0; k < p->picks; k++) {
        const ef_option *load;
        for (uint32_t n = 0; (load = next_load(x, p, k, stored, &n)); n++) {
            if ((reader != EF_NONE && reader != k) || !could_merge(x, p, i, k, n, load))
                return false;
            reader = k;
        }
    }
    return reader != EF_NONE;
}

/* Whether a cone of a kernel is all that uses what pick i stores, from nothing else that is computed, and could have
 * been stored in its place: then the kernel that stores computes it, once. */
static bool leaves_work_to_reader(ef_extractor *x, const ef_partial *p, uint32_t i)
{
    ef_slot_id stored = p->data[2 * i], leaf[EF_CONE_LEAVES];
    uint32_t reader = EF_NONE, leaves = 0;
    if (!ef_body_of(x, p, i) || is_output(x, stored))
        return false;
    for (uint32_t k = 0; k < p->picks; k++)
        for (uint32_t n = 0; next_load(x, p, k, stored, &n); n++) {
            if ((reader != EF_NONE && reader != k) || leaves == EF_CONE_LEAVES)
                return false;
            reader = k;
            leaf[leaves++] = ef_body_of(x, p, k)->pick[2 * n];
        }
    if (reader == EF_NONE)
        return false;
    /* all these loads are operands of one cone, and of nothing else */
    const ef_body *b = ef_body_of(x, p, reader);
    ef_slot_id user = EF_NONE;
    const ef_way *cone = NULL;
    for (uint32_t n = 0; n < b->picks; n++) {
        const ef_way *w = &x->way_list.at[b->pick[2 * n + 1]];
        for (uint32_t c = w->first; c < w->first + w->count; c++)
            for (uint32_t l = 0; l < leaves; l++) {
                if (x->child.at[c] != leaf[l])
                    continue;
                if (w->option != EF_NONE || (user != EF_NONE && user != b->pick[2 * n]))
                    return false;
                user = b->pick[2 * n];
                cone = w;
            }
    }
    if (!cone)
        return false;
    for (uint32_t c = cone->first; c < cone->first + cone->count; c++) {
        bool own = false;
        for (uint32_t l = 0; l < leaves; l++)
            own = own || x->child.at[c] == leaf[l];
        for (uint32_t n = 0; n < b->picks && !own; n++)
            if (b->pick[2 * n] == x->child.at[c]) {
                const ef_way *w = &x->way_list.at[b->pick[2 * n + 1]];
                const ef_option *o = w->option == EF_NONE ? NULL : ef_option_at(x, w->option);
                own = o && o->kind == EF_OPTION_LOADS && ef_is_given(x, x->child.at[o->first]);
            }
        if (!own)
            return false;
    }
    const ef_eslot *s = &x->slots.at[user];
    for (uint32_t k = s->first; k < s->first + s->count; k++) {
        const ef_option *o = ef_option_at(x, k);
        if (o->kind != EF_OPTION_LOADS || x->slots.at[x->child.at[o->first]].stored == EF_NONE)
            continue;
        if (leaves > 1 || shaped_alike(x, x->child.at[o->first], stored))
            return true;
    }
    return false;
}

/* Whether a kernel stores a tuple of which a field is never loaded. */
static bool wastes_field(ef_extractor *x, const ef_partial *p, uint32_t i)
{
    ef_slot_id stored = p->data[2 * i];
    const ef_type_info *t = ef_type_at(x->ctx, ef_slot_type(x, stored));
    unsigned used = 0, all = (1u << t->fields) - 1;
    if (!t->is_tuple)
        return false;
    for (uint32_t k = 0; k < p->picks; k++) {
        const ef_choice *c = &x->choices.at[p->data[2 * k + 1]];
        const ef_option *o = ef_option_at(x, c->option);
        uint32_t count;
        const ef_slot_id *need = ef_needs_of(x, c, &count);
        for (uint32_t n = 0; n < count; n++)
            if (need[n] == stored)
                used |= c->body == EF_NONE && ef_option_op(x, o) == EF_GET ? 1u << ef_option_attr(x, o) : all;
    }
    return (used & all) != all;
}

/* The stored slot whose elements pick i moves; EF_NONE: it moves none, or those of several. */
static ef_slot_id moved_slot(const ef_extractor *x, const ef_partial *p, uint32_t i)
{
    const ef_option *o = ef_option_at(x, x->choices.at[p->data[2 * i + 1]].option);
    return o->kind == EF_OPTION_MOVES && o->count == 1 ? x->child.at[o->first] : EF_NONE;
}

static bool moves_directly(const ef_extractor *x, ef_slot_id to, ef_slot_id from)
{
    const ef_eslot *s = &x->slots.at[to];
    for (uint32_t k = s->first; k < s->first + s->count; k++) {
        const ef_option *o = ef_option_at(x, k);
        if (o->kind == EF_OPTION_MOVES && o->count == 1 && x->child.at[o->first] == from)
            return true;
    }
    return false;
}

/* Whether elements that pick i moves are moved once more although one move would do. */
bool ef_makes_detour(const ef_extractor *x, const ef_partial *p, uint32_t i)
{
    ef_slot_id own = p->data[2 * i], from = moved_slot(x, p, i);
    for (uint32_t k = 0; k < p->picks && from != EF_NONE; k++) {
        if (moved_slot(x, p, k) == own && moves_directly(x, p->data[2 * k], from))
            return true;
        ef_slot_id next = p->data[2 * k] == from ? moved_slot(x, p, k) : EF_NONE;
        if (next != EF_NONE && moves_directly(x, own, next))
            return true;
    }
    return false;
}

/* Conditions on what pick i stores and all that load it. */
bool ef_is_pointless(ef_extractor *x, const ef_partial *p, uint32_t i)
{
    return stores_for_nothing(x, p, i) || leaves_work_to_reader(x, p, i) || wastes_field(x, p, i);
}

/* Whether a kernel without a grid loads, as it stands, what another one without a grid computes: they are one. */
static bool is_implicit(const ef_extractor *x, ef_slot_id id)
{
    const ef_choice *c = ef_chosen(x, id);
    if (!c)
        return false;
    const ef_option *o = ef_option_at(x, c->option);
    if (o->kind == EF_OPTION_KERNEL)
        return o->node == EF_NONE;
    for (uint32_t i = 0; i < o->count; i++)
        if (is_implicit(x, x->child.at[o->first + i]))
            return true;
    return false;
}

bool ef_splits_gridless(ef_extractor *x, const ef_partial *p)
{
    for (uint32_t i = 0; i < p->picks; i++) {
        const ef_body *b = ef_body_of(x, p, i);
        for (uint32_t n = 0; b && b->direct && n < b->picks; n++) {
            const ef_way *w = &x->way_list.at[b->pick[2 * n + 1]];
            const ef_option *load = w->option == EF_NONE ? NULL : ef_option_at(x, w->option);
            if (load && load->kind == EF_OPTION_LOADS && load->node == EF_NONE &&
                is_implicit(x, x->child.at[load->first]))
                return true;
        }
    }
    return false;
}
