/* Cones: the pointwise expressions that a slot may be (see extract.h).
 *
 * Between loads, reductions and matmuls a kernel computes pointwise, and the e-graph spells each such expression in
 * many ways: distributed, regrouped, with the square root here or there. Of those that use the same values, or fewer,
 * one with the least arithmetic is enough: with it, every program stays what it was but for that arithmetic. So the
 * ways of a slot are its loads, reductions and so on, and one cone for every set of LEAVES that no other set is within.
 *
 * A cone names its operands: leaves, which are slots that are picked apart, and further cones. Cones are found by
 * fixpoint, since pointwise options may be cyclic (x = neg(neg(x))); every operator costs something, so a cone inside
 * of itself never pays. */
#include <string.h>

#include "search/extract_private.h"

#define CONES_A_SLOT 256

typedef struct {
    uint32_t at[CONES_A_SLOT];
    uint32_t count;
} cone_set;

static bool is_constant(const ef_extractor *x, ef_slot_id id)
{
    const ef_eslot *s = &x->slots.at[id];
    return s->role == EF_SLOT_BODY && s->count == 1 && ef_option_at(x, s->first)->kind == EF_OPTION_LEAF;
}

/* Whether a slot may be a load of this stored one. */
static bool may_load(const ef_extractor *x, ef_slot_id id, ef_slot_id stored)
{
    const ef_eslot *s = &x->slots.at[id];
    for (uint32_t k = s->first; k < s->first + s->count; k++)
        if (ef_option_at(x, k)->kind == EF_OPTION_LOADS && x->child.at[ef_option_at(x, k)->first] == stored)
            return true;
    return false;
}

/* Whether a slot can be picked by itself under an operator of slot `of`: something fills it but pointwise options, what
 * no kernel with the axes of `of` computes, and loads of what `of` would load then. */
static bool is_leaf(const ef_extractor *x, ef_slot_id id, ef_slot_id of)
{
    const ef_eslot *s = &x->slots.at[id];
    ef_axes axes = ef_type_axes(x->ctx, ef_slot_type(x, of));
    for (uint32_t k = s->first; k < s->first + s->count; k++) {
        const ef_option *o = ef_option_at(x, k);
        bool needless = o->kind == EF_OPTION_POINTWISE || o->kind == EF_OPTION_LEAF ||
                        (o->kind == EF_OPTION_LOADS && may_load(x, of, x->child.at[o->first])) ||
                        ef_is_cut_reduction(x, o, axes);
        if (!needless)
            return true;
    }
    return false;
}

static bool within(const ef_cone *a, const ef_cone *b)
{
    uint32_t k = 0;
    for (uint32_t i = 0; i < a->leaves; i++) {
        while (k < b->leaves && b->leaf[k] < a->leaf[i])
            k++;
        if (k == b->leaves || b->leaf[k] != a->leaf[i])
            return false;
    }
    return true;
}

static bool add_leaf(ef_cone *c, ef_slot_id leaf)
{
    uint32_t i = 0;
    while (i < c->leaves && c->leaf[i] < leaf)
        i++;
    if (i < c->leaves && c->leaf[i] == leaf)
        return true;
    if (c->leaves == EF_CONE_LEAVES)
        return false;
    memmove(c->leaf + i + 1, c->leaf + i, (c->leaves - i) * sizeof *c->leaf);
    c->leaf[i] = leaf;
    c->leaves++;
    return true;
}

/* Adds the cone unless one is at least as good, and removes those that it makes needless. */
static bool insert(ef_extractor *x, cone_set *set, const ef_cone *c)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < set->count; i++) {
        const ef_cone *have = &x->cones.at[set->at[i]];
        if (have->cost <= c->cost * (1 + 1e-9) && within(have, c))
            return false;
    }
    for (uint32_t i = 0; i < set->count; i++) {
        const ef_cone *have = &x->cones.at[set->at[i]];
        if (!(c->cost <= have->cost && within(c, have)))
            set->at[kept++] = set->at[i];
    }
    set->count = kept;
    if (kept == CONES_A_SLOT) {
        x->cut = true;
        return false;
    }
    set->at[set->count++] = x->cones.count;
    ef_vec_push(&x->cones, *c);
    return true;
}

static void see(ef_extractor *x, uint32_t cone)
{
    while (x->cone_seen.count <= cone)
        ef_vec_push(&x->cone_seen, 0);
    if (x->cone_seen.at[cone] == x->cone_epoch)
        return;
    x->cone_seen.at[cone] = x->cone_epoch;
    ef_vec_push(&x->cones_under, cone);
}

void ef_cones_under(ef_extractor *x, const uint32_t *root, unsigned roots)
{
    x->cone_epoch++;
    x->cones_under.count = 0;
    for (unsigned i = 0; i < roots; i++)
        if (root[i] != EF_NONE)
            see(x, root[i]);
    for (uint32_t k = 0; k < x->cones_under.count; k++)
        for (unsigned i = 0; i < EF_CONE_OPERANDS; i++) {
            uint32_t inner = x->cones.at[x->cones_under.at[k]].inner[i];
            if (inner != EF_NONE)
                see(x, inner);
        }
}

static double own_cost(ef_extractor *x, const ef_cone *c)
{
    return ef_pointwise_work(x, ef_option_at(x, c->option), ef_slot_type(x, c->slot));
}

/* A cone costs what it and those under it do, each once. */
static double whole_cost(ef_extractor *x, const ef_cone *c)
{
    double cost = own_cost(x, c);
    ef_cones_under(x, c->inner, EF_CONE_OPERANDS);
    for (uint32_t i = 0; i < x->cones_under.count; i++)
        cost += own_cost(x, &x->cones.at[x->cones_under.at[i]]);
    return cost;
}

/* Completes `c`, whose operands before `operand` are chosen, in all ways. */
static bool combine(ef_extractor *x, cone_set *sets, const ef_option *o, uint32_t operand, const ef_cone *c)
{
    if (operand == o->count || operand == EF_CONE_OPERANDS) {
        ef_cone whole = *c;
        whole.cost = whole_cost(x, c);
        return insert(x, &sets[c->slot], &whole);
    }
    ef_slot_id child = x->child.at[o->first + operand];
    bool grew = false;
    ef_cone next = *c;
    next.inner[operand] = EF_NONE;
    if (is_constant(x, child) || (is_leaf(x, child, c->slot) && add_leaf(&next, child)))
        grew = combine(x, sets, o, operand + 1, &next);
    for (uint32_t i = 0; i < sets[child].count; i++) {
        const ef_cone *inner = &x->cones.at[sets[child].at[i]];
        bool fits = true;
        next = *c;
        next.inner[operand] = sets[child].at[i];
        for (uint32_t k = 0; k < inner->leaves && fits; k++)
            fits = add_leaf(&next, inner->leaf[k]);
        if (fits && combine(x, sets, o, operand + 1, &next))
            grew = true;
    }
    return grew;
}

static bool grow(ef_extractor *x, cone_set *sets, ef_slot_id id)
{
    const ef_eslot s = x->slots.at[id];
    bool grew = false;
    for (uint32_t k = s.first; k < s.first + s.count; k++) {
        const ef_option *o = ef_option_at(x, k);
        if (o->kind != EF_OPTION_POINTWISE)
            continue;
        ef_cone c = {.slot = id, .option = k, .inner = {EF_NONE, EF_NONE, EF_NONE}};
        if (combine(x, sets, o, 0, &c))
            grew = true;
    }
    return grew;
}

static void add_ways(ef_extractor *x, ef_slot_id id, const cone_set *set)
{
    ef_eslot *s = &x->slots.at[id];
    s->first_way = x->way_list.count;
    for (uint32_t k = s->first; k < s->first + s->count; k++) {
        const ef_option *o = ef_option_at(x, k);
        bool loads = o->kind == EF_OPTION_LOADS;
        if (o->kind != EF_OPTION_POINTWISE)
            ef_vec_push(&x->way_list, ((ef_way){k, EF_NONE, o->cost, o->first, loads ? 0 : o->count}));
    }
    for (uint32_t i = 0; i < set->count; i++) {
        const ef_cone *c = &x->cones.at[set->at[i]];
        ef_way w = {EF_NONE, set->at[i], c->cost, x->child.count, c->leaves};
        for (uint32_t k = 0; k < c->leaves; k++)
            ef_vec_push(&x->child, c->leaf[k]);
        ef_vec_push(&x->way_list, w);
    }
    s->ways = s->all_ways = x->way_list.count - s->first_way;
}

/* ---- ways that are no choice ---- */

/* Whether a tuple can be more than put together: only then has it fields to take. */
static bool has_fields(const ef_extractor *x, ef_slot_id tuple)
{
    const ef_eslot *s = &x->slots.at[tuple];
    for (uint32_t k = s->first_way; k < s->first_way + s->ways; k++) {
        const ef_way *w = &x->way_list.at[k];
        if (w->option == EF_NONE || ef_option_op(x, ef_option_at(x, w->option)) != EF_TUPLE)
            return true;
    }
    return false;
}

static bool is_choice(const ef_extractor *x, const ef_way *w)
{
    const ef_option *o = w->option == EF_NONE ? NULL : ef_option_at(x, w->option);
    if (o && (ef_is_product_loop(x, o) || (ef_option_op(x, o) == EF_GET && !has_fields(x, x->child.at[o->first]))))
        return false;
    for (uint32_t c = w->first; c < w->first + w->count; c++)
        if (x->slots.at[x->child.at[c]].ways == 0)
            return false;
    return true;
}

/* Moves the ways that are no choice behind the others: loops side by side, which are fused when a kernel is complete,
 * and what needs those. */
static void hide_ways(ef_extractor *x)
{
    for (bool hid = true; hid;) {
        hid = false;
        for (ef_slot_id id = 0; id < x->slots.count; id++) {
            ef_eslot *s = &x->slots.at[id];
            for (uint32_t k = s->first_way; k < s->first_way + s->ways;) {
                ef_way w = x->way_list.at[k];
                if (is_choice(x, &w)) {
                    k++;
                    continue;
                }
                x->way_list.at[k] = x->way_list.at[s->first_way + --s->ways];
                x->way_list.at[s->first_way + s->ways] = w;
                hid = true;
            }
        }
    }
}

/* Who may use each tuple. */
static void list_users(ef_extractor *x)
{
    for (unsigned round = 0; round < 2; round++) { /* counts, then lists */
        for (ef_slot_id id = 0; id < x->slots.count; id++)
            for (uint32_t k = x->slots.at[id].first; k < x->slots.at[id].first + x->slots.at[id].count; k++) {
                const ef_option *o = ef_option_at(x, k);
                for (uint32_t c = 0; o->kind == EF_OPTION_COMPUTES && c < o->count; c++) {
                    ef_eslot *tuple = &x->slots.at[x->child.at[o->first + c]];
                    if (!ef_type_at(x->ctx, ef_egraph_type(x->g, tuple->class))->is_tuple)
                        continue;
                    unsigned used = ef_option_op(x, o) == EF_GET ? EF_USED_FIELD(ef_option_attr(x, o)) : EF_USED_WHOLE;
                    if (round)
                        x->users.at[tuple->first_user + tuple->users] = (ef_user){id, k, used};
                    tuple->users++;
                }
            }
        for (ef_slot_id id = 0; id < x->slots.count && !round; id++) {
            ef_eslot *s = &x->slots.at[id];
            s->first_user = x->users.count;
            for (; s->users; s->users--)
                ef_vec_push(&x->users, ((ef_user){0}));
        }
    }
}

void ef_cones_build(ef_extractor *x)
{
    cone_set *sets = ef_xcalloc(x->slots.count, sizeof *sets);
    for (bool grew = true; grew && !ef_out_of_budget(x);) {
        grew = false;
        for (ef_slot_id id = x->slots.count;
             id-- > 0 && !ef_out_of_budget(x);) /* operands mostly have larger numbers */
            if (x->slots.at[id].role != EF_SLOT_STORED && grow(x, sets, id))
                grew = true;
    }
    for (ef_slot_id id = 0; id < x->slots.count; id++)
        if (x->slots.at[id].role != EF_SLOT_STORED)
            add_ways(x, id, &sets[id]);
    free(sets);
    hide_ways(x);
    list_users(x);
}
