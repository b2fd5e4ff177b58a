/* What is no kernel of a candidate (see extract.h), but for dominance, which is in extract_cost.c.
 *
 * The conditions speak of complete kernels. Each is asked of partial ones, whose picks are loaded and whose open slots
 * are marked, and says no when no completion can meet it. */
#include <string.h>

#include "search/extract_private.h"

/* The stored slots, by number, that a slot could load but is computed. */
static void add_again(ef_extractor *x, ef_slot_id id, uint32_t picked, uint64_t *again)
{
    const ef_eslot *s = &x->slots.at[id];
    for (uint32_t k = s->first; k < s->first + s->count; k++) {
        const ef_option *o = ef_option_at(x, k);
        if (o->kind != EF_OPTION_LOADS || k == picked)
            continue;
        uint32_t stored = x->slots.at[x->child.at[o->first]].stored;
        if (stored != EF_NONE)
            ef_set_bit(again, stored);
    }
}

static void add_cone_again(ef_extractor *x, uint32_t cone, uint64_t *again)
{
    ef_cones_under(x, &cone, 1);
    for (uint32_t i = 0; i < x->cones_under.count; i++)
        add_again(x, x->cones.at[x->cones_under.at[i]].slot, EF_NONE, again);
}

void ef_find_again(ef_extractor *x)
{
    x->way_again = ef_xcalloc((size_t)x->way_list.count * x->stored_words + 1, sizeof *x->way_again);
    for (ef_slot_id id = 0; id < x->slots.count && !ef_out_of_budget(x); id++) {
        const ef_eslot s = x->slots.at[id];
        for (uint32_t k = s.first_way; k < s.first_way + s.all_ways; k++) {
            const ef_way *w = &x->way_list.at[k];
            uint64_t *again = x->way_again + (size_t)k * x->stored_words;
            if (w->option == EF_NONE)
                add_cone_again(x, w->cone, again);
            else
                add_again(x, id, w->option, again);
        }
    }
}

/* What the loaded kernel loads, and what it computes although it could load it. */
void ef_find_loads(ef_extractor *x, const uint32_t *pick, uint32_t picks, uint64_t *loads, uint64_t *again)
{
    memset(loads, 0, x->stored_words * sizeof *loads);
    memset(again, 0, x->stored_words * sizeof *again);
    for (uint32_t i = 0; i < picks; i++) {
        const ef_option *o = ef_picked_option(x, pick[2 * i]);
        const uint64_t *own = x->way_again + (size_t)pick[2 * i + 1] * x->stored_words;
        uint32_t stored = o && o->kind == EF_OPTION_LOADS ? x->slots.at[x->child.at[o->first]].stored : EF_NONE;
        if (stored != EF_NONE)
            ef_set_bit(loads, stored);
        for (uint32_t w = 0; w < x->stored_words; w++)
            again[w] |= own[w];
    }
}

/* A stored value is loaded wherever a kernel needs it: loading it and computing it again are never both worth it. */
static bool meet(const ef_extractor *x, const uint64_t *a, const uint64_t *b)
{
    for (uint32_t w = 0; w < x->stored_words; w++)
        if (a[w] & b[w])
            return true;
    return false;
}

/* Whether an option moves elements, or takes a field, of a tile that is loaded although the moved tensor can be. */
static bool moves_a_load(const ef_extractor *x, ef_slot_id id, const ef_option *o)
{
    ef_op op = ef_option_op(x, o);
    if (o->kind == EF_OPTION_LOADS || o->count != 1 || !(op == EF_GET || ef_is_shape(op)))
        return false;
    const ef_option *inner = ef_picked_option(x, x->child.at[o->first]);
    if (!inner || inner->kind != EF_OPTION_LOADS)
        return false;
    const ef_eslot *s = &x->slots.at[id];
    for (uint32_t k = s->first; k < s->first + s->count; k++) {
        if (ef_option_at(x, k)->kind != EF_OPTION_LOADS)
            continue;
        const ef_eslot *stored = &x->slots.at[x->child.at[ef_option_at(x, k)->first]];
        for (uint32_t i = stored->first; i < stored->first + stored->count; i++) {
            const ef_option *move = ef_option_at(x, i);
            if (move->kind == EF_OPTION_MOVES && ef_option_op(x, move) == op &&
                x->child.at[move->first] == x->child.at[inner->first])
                return true;
        }
    }
    return false;
}

/* A field of a tuple that is put together in the kernel is that part of it. */
static bool takes_apart(const ef_extractor *x, const ef_option *o)
{
    const ef_option *inner = ef_option_op(x, o) == EF_GET ? ef_picked_option(x, x->child.at[o->first]) : NULL;
    return inner && ef_option_op(x, inner) == EF_TUPLE;
}

/* Whether a cone moves elements of a leaf that is loaded. */
static bool cone_moves_a_load(ef_extractor *x, uint32_t cone)
{
    ef_cones_under(x, &cone, 1);
    for (uint32_t i = 0; i < x->cones_under.count; i++) {
        const ef_cone *c = &x->cones.at[x->cones_under.at[i]];
        if (c->inner[0] == EF_NONE && moves_a_load(x, c->slot, ef_option_at(x, c->option)))
            return true;
    }
    return false;
}

/* A leaf of a cone that is a cone itself makes a larger cone. */
static bool nests(const ef_extractor *x, const ef_way *cone)
{
    for (uint32_t c = cone->first; c < cone->first + cone->count; c++) {
        const ef_way *leaf = ef_picked(x, x->child.at[c]);
        if (leaf && leaf->option == EF_NONE)
            return true;
    }
    return false;
}

bool ef_respells(ef_extractor *x, const ef_partial *p)
{
    for (uint32_t i = 0; i < p->picks; i++) {
        const ef_option *o = ef_picked_option(x, p->data[2 * i]);
        const ef_way *w = ef_picked(x, p->data[2 * i]);
        if (o ? moves_a_load(x, p->data[2 * i], o) || takes_apart(x, o) : nests(x, w) || cone_moves_a_load(x, w->cone))
            return true;
    }
    return false;
}

/* Whether the kernel of stored number `own` loads what no program with it stores, or computes itself in its course. */
bool ef_kernel_contradicts(const ef_extractor *x, uint32_t own, const uint64_t *loads, const uint64_t *again)
{
    if (ef_bit(loads, own) || ef_bit(again, own) || meet(x, loads, again) ||
        meet(x, loads, x->excludes + (size_t)own * x->stored_words))
        return true;
    for (uint32_t i = 0; i < x->stored; i++)
        if (ef_bit(loads, i) && meet(x, loads, x->excludes + (size_t)i * x->stored_words))
            return true;
    return false;
}

/* ---- small reductions ---- */

/* The longest dimension whose reduction costs next to nothing where its operand is at hand: one warp's width. */
#define SMALL_REDUCTION 32

bool ef_is_small_reduction(const ef_extractor *x, const ef_option *o)
{
    if (o->kind != EF_OPTION_COMPUTES || ef_option_op(x, o) != EF_REDUCE)
        return false;
    const ef_type_info *t = ef_type_at(x->ctx, ef_slot_type(x, x->child.at[o->first]));
    unsigned at = ef_attr_reduce_at(ef_option_attr(x, o));
    if (at >= t->rank || ef_dim_extent(x->ctx, t->dim[at]) > SMALL_REDUCTION)
        return false;
    for (unsigned p = 0; p < t->places; p++)
        if (t->place[p].kind == EF_PARTITION && t->place[p].dim == at)
            return false;
    return true;
}

bool ef_is_cut_reduction(const ef_extractor *x, const ef_option *o, ef_axes axes)
{
    if (!ef_is_small_reduction(x, o))
        return false;
    const ef_type_info *t = ef_type_at(x->ctx, ef_slot_type(x, x->child.at[o->first]));
    const ef_axis *axis;
    const ef_var *atoms;
    unsigned n = ef_axes_at(x->ctx, axes, &axis);
    unsigned count = ef_dim_atoms(x->ctx, t->dim[ef_attr_reduce_at(ef_option_attr(x, o))], &atoms);
    for (unsigned i = 0; i < n; i++)
        for (unsigned k = 0; k < count; k++)
            if (ef_axis_var(axis[i]) == atoms[k])
                return true;
    return false;
}

/* Whether no kernel of stored number `own` has this way: what it would load or compute no program has beside `own`, it
 * is a small reduction of what the grid cuts, or one of its operands is nothing either. */
bool ef_way_is_barren(const ef_extractor *x, uint32_t own, uint32_t k)
{
    const ef_way *w = &x->way_list.at[k];
    const ef_option *o = w->option == EF_NONE ? NULL : ef_option_at(x, w->option);
    uint32_t loads = o && o->kind == EF_OPTION_LOADS ? x->slots.at[x->child.at[o->first]].stored : EF_NONE;
    if (loads != EF_NONE && (loads == own || ef_bit(x->excludes + (size_t)own * x->stored_words, loads)))
        return true;
    if (ef_bit(x->way_again + (size_t)k * x->stored_words, own) || (o && ef_is_cut_reduction(x, o, x->grid)))
        return true;
    for (uint32_t c = w->first; c < w->first + w->count; c++)
        if (ef_bit(x->barren, x->child.at[c]))
            return true;
    return false;
}

void ef_find_barren(ef_extractor *x, ef_slot_id root, uint32_t own)
{
    const uint64_t *reach = x->reach + (size_t)root * x->words;
    memset(x->barren, 0, x->words * sizeof *x->barren);
    for (bool more = true; more;) {
        more = false;
        for (ef_slot_id id = x->slots.count; id-- > 0;) { /* operands mostly have larger numbers */
            const ef_eslot *s = &x->slots.at[id];
            if (!ef_bit(reach, id) || ef_bit(x->barren, id))
                continue;
            bool barren = true;
            for (uint32_t k = s->first_way; k < s->first_way + s->ways && barren; k++)
                barren = ef_way_is_barren(x, own, k);
            if (barren) {
                ef_set_bit(x->barren, id);
                more = true;
            }
        }
    }
}

/* Whether the picks from `from` on lead to `to`, or may once its holes are picked. */
static bool may_need(ef_extractor *x, ef_slot_id from, ef_slot_id to)
{
    uint32_t top = 0;
    x->epoch++;
    x->stack[top++] = from;
    while (top) {
        ef_slot_id s = x->stack[--top];
        const ef_way *w = ef_picked(x, s);
        if (s == to || (!w && ef_bit(x->reach + (size_t)s * x->words, to)))
            return true;
        for (uint32_t i = 0; w && i < w->count; i++) {
            ef_slot_id child = x->child.at[w->first + i];
            if (x->stamp[child] != x->epoch)
                x->stack[top++] = child;
            x->stamp[child] = x->epoch;
        }
    }
    return false;
}

/* Whether the kernel has a value, however it is completed, without `without`. */
static bool has_value(ef_extractor *x, const ef_partial *p, ef_slot_id id, ef_slot_id without)
{
    const ef_eslot *s = &x->slots.at[id];
    bool has = x->pick[id] || (s->count == 1 && ef_option_at(x, s->first)->kind == EF_OPTION_LEAF);
    for (uint32_t k = 0; k < p->holes && !has; k++)
        has = p->data[2 * (size_t)p->picks + k] == id;
    return has && !may_need(x, id, without);
}

/* Whether a value is at hand: the kernel has it, or all that it is a pointwise function of. */
static bool is_at_hand(ef_extractor *x, const ef_partial *p, ef_slot_id id, ef_slot_id without)
{
    const ef_eslot *s = &x->slots.at[id];
    bool at_hand = has_value(x, p, id, without);
    for (uint32_t k = s->first_way; k < s->first_way + s->ways && !at_hand; k++) {
        const ef_way *w = &x->way_list.at[k];
        at_hand = w->option == EF_NONE;
        for (uint32_t c = w->first; c < w->first + w->count && at_hand; c++)
            at_hand = has_value(x, p, x->child.at[c], without);
    }
    return at_hand;
}

bool ef_loads_small_reduction(ef_extractor *x, const ef_partial *p)
{
    for (uint32_t i = 0; i < p->picks; i++) {
        ef_slot_id id = p->data[2 * i];
        const ef_option *load = ef_picked_option(x, id);
        if (!load || load->kind != EF_OPTION_LOADS || x->slots.at[x->child.at[load->first]].stored == EF_NONE)
            continue;
        const ef_eslot s = x->slots.at[id];
        for (uint32_t k = s.first; k < s.first + s.count; k++)
            if (ef_is_small_reduction(x, ef_option_at(x, k)) &&
                is_at_hand(x, p, x->child.at[ef_option_at(x, k)->first], id))
                return true;
    }
    return false;
}

static bool only_moves(const ef_extractor *x, uint32_t cone)
{
    const ef_cone *c = &x->cones.at[cone];
    ef_op op = ef_option_op(x, ef_option_at(x, c->option));
    return (ef_is_shape(op) || op == EF_VIEW) && (c->inner[0] == EF_NONE || only_moves(x, c->inner[0]));
}

/* Whether a slot is loaded, or only moves what is. */
bool ef_is_loaded(const ef_extractor *x, ef_slot_id id)
{
    const ef_way *w = ef_picked(x, id);
    const ef_option *o = ef_picked_option(x, id);
    if (w && !o)
        return w->count == 1 && only_moves(x, w->cone) && ef_is_loaded(x, x->child.at[w->first]);
    if (!w || o->kind == EF_OPTION_LOADS)
        return w;
    ef_op op = ef_option_op(x, o);
    if (op != EF_GET && op != EF_TUPLE && !ef_is_shape(op))
        return false;
    bool some = false, all = true;
    for (uint32_t i = 0; i < o->count; i++) {
        bool loaded = ef_is_loaded(x, x->child.at[o->first + i]);
        some = some || loaded;
        all = all && loaded;
    }
    return op == EF_TUPLE ? some : all;
}

/* How the picks use a tuple, and how their completions may. */
typedef struct {
    unsigned now, perhaps;
} use;

static use uses_of(const ef_extractor *x, const ef_partial *p, ef_slot_id id)
{
    const ef_eslot *s = &x->slots.at[id];
    use u = {p->data[0] == id ? EF_USED_WHOLE : 0, 0}; /* the root */
    for (uint32_t i = s->first_user; i < s->first_user + s->users; i++) {
        const ef_user *user = &x->users.at[i];
        const ef_way *w = ef_picked(x, user->slot);
        if (w && w->option == user->option)
            u.now |= user->use;
        else if (!w && ef_bit(x->open, user->slot))
            u.perhaps |= user->use;
    }
    return u;
}

/* The slot that holds a field of a tuple, where it is picked. */
static ef_slot_id field_slot(const ef_extractor *x, ef_slot_id tuple, unsigned field)
{
    const ef_eslot *s = &x->slots.at[tuple];
    for (uint32_t i = s->first_user; i < s->first_user + s->users; i++) {
        const ef_user *user = &x->users.at[i];
        const ef_way *w = ef_picked(x, user->slot);
        if (user->use == EF_USED_FIELD(field) && w && w->option == user->option)
            return user->slot;
    }
    return EF_NONE;
}

/* Notes that a slot must become a field of a tuple, where it is the only one that can; false if it must become another
 * one already. */
static bool demand(ef_extractor *x, ef_slot_id tuple, unsigned field)
{
    const ef_eslot *s = &x->slots.at[tuple];
    const ef_user *only = NULL;
    for (uint32_t i = s->first_user; i < s->first_user + s->users; i++) {
        const ef_user *user = &x->users.at[i];
        if (user->use != EF_USED_FIELD(field) || x->pick[user->slot] || !ef_bit(x->open, user->slot))
            continue;
        if (only)
            return true;
        only = user;
    }
    if (!only)
        return false;
    if (x->stamp[only->slot] == x->epoch)
        return x->demanded[only->slot] == only->option;
    x->stamp[only->slot] = x->epoch;
    x->demanded[only->slot] = only->option;
    return true;
}

/* Every part of a fused reduction is used, or may come to be: the reduction without that part is a candidate as well.
 * The producer of a repaired reduction is used by its consumer. */
static bool all_used(ef_extractor *x, const ef_partial *p, ef_slot_id id, ef_reducer reducer)
{
    const ef_reducer_info *r = ef_reducer_at(x->ctx, reducer);
    use u = uses_of(x, p, id);
    if (r->leaves == 1 || (u.now | u.perhaps) & EF_USED_WHOLE)
        return true;
    for (unsigned field = r->kind == EF_RED_PRODUCT ? 0 : 1; field < 2; field++) {
        bool used = u.now & EF_USED_FIELD(field);
        if (!used && !demand(x, id, field))
            return false;
        if (used && !all_used(x, p, field_slot(x, id, field), field ? r->right : r->left))
            return false;
    }
    return true;
}

/* x->open says what is still open. */
bool ef_wastes_fusion(ef_extractor *x, const ef_partial *p)
{
    x->epoch++;
    for (uint32_t i = 0; i < p->picks; i++) {
        const ef_option *o = ef_picked_option(x, p->data[2 * i]);
        if (!o || (ef_option_op(x, o) != EF_REDUCE_P && ef_option_op(x, o) != EF_REDUCE))
            continue;
        if (!all_used(x, p, p->data[2 * i], ef_attr_reducer(ef_option_attr(x, o))))
            return true;
    }
    return false;
}

unsigned ef_uses_now(const ef_extractor *x, const ef_partial *p, ef_slot_id tuple)
{
    return uses_of(x, p, tuple).now;
}
