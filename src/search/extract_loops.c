/* Loops: independent reductions over one axis run in one loop.
 *
 * Two loops of a kernel over the same axis, of which neither uses the other's result, and which the e-graph has as one
 * fused reduction too, are that reduction: it loads no tile more often, and the state of both is alive either way. So
 * fusion side by side is no choice while a kernel is enumerated. It picks single reductions, and repaired ones, whose
 * loads differ; when it is complete, its loops are fused in all ways that leave nothing to fuse. */
#include <string.h>

#include "search/extract_private.h"
#include "support/hash.h"

/* ---- the fused reductions of the e-graph ---- */

static bool is_loop(const ef_extractor *x, const ef_option *o)
{
    return o && ef_option_op(x, o) == EF_REDUCE_P && ef_axis_level(ef_attr_reduce_at(ef_option_attr(x, o))) == 1;
}

bool ef_is_product_loop(const ef_extractor *x, const ef_option *o)
{
    return is_loop(x, o) && ef_reducer_at(x->ctx, ef_attr_reducer(ef_option_attr(x, o)))->kind == EF_RED_PRODUCT;
}

/* The way of a slot that is the option of this operator and attribute over a child slot (EF_NONE: any). */
static uint32_t find_way(const ef_extractor *x, ef_slot_id id, ef_op op, uint64_t attr, ef_slot_id child)
{
    const ef_eslot *s = &x->slots.at[id];
    for (uint32_t k = s->first_way; k < s->first_way + s->all_ways; k++) {
        const ef_way *w = &x->way_list.at[k];
        const ef_option *o = w->option == EF_NONE ? NULL : ef_option_at(x, w->option);
        if (o && ef_option_op(x, o) == op && (op == EF_TUPLE || ef_option_attr(x, o) == attr) &&
            (child == EF_NONE || x->child.at[w->first] == child))
            return k;
    }
    return EF_NONE;
}

static bool add_pick(ef_fusion *f, ef_slot_id slot, uint32_t way)
{
    if (f->picks == EF_FUSION_PICKS || way == EF_NONE)
        return false;
    f->pick[f->picks][0] = slot;
    f->pick[f->picks++][1] = way;
    return true;
}

/* Adds the parts of a fused reduction: `whole` is its tuple, or a tuple inside of that, `operand` what it reduces. */
static bool add_parts(ef_extractor *x, ef_fusion *f, ef_slot_id whole, ef_slot_id operand, ef_reducer reducer)
{
    const ef_reducer_info *r = ef_reducer_at(x->ctx, reducer);
    ef_id class = x->slots.at[whole].class;
    if (r->kind != EF_RED_PRODUCT) {
        uint32_t single = find_way(x, whole, EF_REDUCE_P, ef_attr_reduce(reducer, f->axis), operand);
        if (single == EF_NONE || f->parts == EF_FUSION_PARTS)
            return false;
        f->part[f->parts][0] = whole;
        f->part[f->parts++][1] = single;
        return true;
    }
    uint32_t tuple = find_way(x, operand, EF_TUPLE, 0, EF_NONE);
    if (!add_pick(f, operand, tuple))
        return false;
    for (unsigned field = 0; field < 2; field++) {
        ef_id part = ef_egraph_lookup(x->g, EF_GET, field, &class, 1);
        uint32_t key[] = {part == EF_NONE ? EF_NONE : ef_find(x->g, part), EF_SLOT_BODY};
        ef_slot_id slot = ef_intern_find(x->slot_ids, key, sizeof key);
        if (part == EF_NONE || slot == UINT32_MAX || !add_pick(f, slot, find_way(x, slot, EF_GET, field, whole)) ||
            !add_parts(x, f, slot, x->child.at[x->way_list.at[tuple].first + field], field ? r->right : r->left))
            return false;
    }
    return true;
}

void ef_loops_build(ef_extractor *x)
{
    for (ef_slot_id id = 0; id < x->slots.count; id++) {
        const ef_eslot s = x->slots.at[id];
        for (uint32_t k = s.first_way; k < s.first_way + s.all_ways && s.role == EF_SLOT_BODY; k++) {
            const ef_way *w = &x->way_list.at[k];
            const ef_option *o = w->option == EF_NONE ? NULL : ef_option_at(x, w->option);
            if (!o || !ef_is_product_loop(x, o))
                continue;
            ef_fusion f = {.axis = ef_attr_reduce_at(ef_option_attr(x, o))};
            if (add_pick(&f, id, k) &&
                add_parts(x, &f, id, x->child.at[w->first], ef_attr_reducer(ef_option_attr(x, o))))
                ef_vec_push(&x->fusions, f);
        }
    }
}

/* ---- fusing the loops of a complete kernel ---- */

/* Whether the value of a slot uses that of another. */
static bool depends(ef_extractor *x, ef_slot_id id, ef_slot_id on)
{
    uint32_t top = 0;
    x->epoch++;
    x->stack[top++] = id;
    while (top) {
        ef_slot_id s = x->stack[--top];
        const ef_way *w = ef_picked(x, s);
        if (s == on)
            return true;
        if (!w || x->stamp[s] == x->epoch)
            continue;
        x->stamp[s] = x->epoch;
        for (uint32_t c = 0; c < w->count; c++)
            if (x->stamp[x->child.at[w->first + c]] != x->epoch)
                x->stack[top++] = x->child.at[w->first + c];
    }
    return false;
}

/* Whether all parts are loops of the loaded kernel, and none uses another. */
static bool applies(ef_extractor *x, const ef_fusion *f)
{
    for (uint32_t i = 0; i < f->parts; i++)
        if (x->pick[f->part[i][0]] != f->part[i][1] + 1)
            return false;
    for (uint32_t i = 0; i < f->parts; i++)
        for (uint32_t k = 0; k < f->parts; k++)
            if (i != k && depends(x, f->part[i][0], f->part[k][0]))
                return false;
    return true;
}

typedef struct {
    ef_slot_id root;
    uint32_t *undo; /* (slot, pick) pairs */
    uint32_t undone, capacity;
    void (*found)(ef_extractor *x, ef_slot_id root, void *user);
    void *user;
} fusing;

static void set_pick(ef_extractor *x, fusing *f, ef_slot_id slot, uint32_t way)
{
    if (f->undone + 2 > f->capacity) {
        f->capacity = 2 * f->capacity + 64;
        f->undo = ef_xrealloc(f->undo, f->capacity * sizeof *f->undo);
    }
    f->undo[f->undone++] = slot;
    f->undo[f->undone++] = x->pick[slot];
    x->pick[slot] = way + 1;
}

/* Applies each fusion that can be, and goes on; a kernel in which none can is complete. Fusions of the same parts in
 * another order lead to the same kernels: what was fused once is not tried again later (`from`), but still keeps a
 * kernel without it from being complete. */
static void fuse(ef_extractor *x, fusing *f, uint32_t from)
{
    bool maximal = true;
    for (uint32_t i = 0; i < x->fusions.count; i++) {
        const ef_fusion *fusion = &x->fusions.at[i];
        if (!applies(x, fusion))
            continue;
        maximal = false;
        if (i < from)
            continue;
        uint32_t mark = f->undone;
        for (uint32_t k = 0; k < fusion->picks; k++)
            set_pick(x, f, fusion->pick[k][0], fusion->pick[k][1]);
        fuse(x, f, i + 1);
        for (; f->undone > mark; f->undone -= 2)
            x->pick[f->undo[f->undone - 2]] = f->undo[f->undone - 1];
    }
    if (maximal)
        f->found(x, f->root, f->user);
}

void ef_loops_fuse(ef_extractor *x, ef_slot_id root, void (*found)(ef_extractor *x, ef_slot_id root, void *user),
                   void *user)
{
    fusing f = {.root = root, .found = found, .user = user};
    fuse(x, &f, 0);
    free(f.undo);
}
