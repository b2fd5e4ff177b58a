/* Slots: which e-nodes may fill an e-class in which role (see extract.h for the conditions on candidates). */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "search/extract_private.h"

#define IMPOSSIBLE 1e299 /* a least cost: no way is known */

bool ef_tensor_level(ef_egraph *g, ef_id class)
{
    return ef_type_axes(g->ctx, ef_egraph_type(g, class)) == 0;
}

/* A value without a grid: all of its dimensions are unit dimensions or collected, or its own computation reduces them.
 */
static bool gridless(ef_extractor *x, ef_id class)
{
    const ef_policy *policy = x->scope.policy;
    const ef_type_info *t = ef_type_at(x->ctx, ef_egraph_type(x->g, class));
    const ef_var *atoms;
    for (unsigned i = 0; i < t->fields; i++) {
        ef_id field = ef_egraph_lookup(x->g, EF_GET, i, &class, 1);
        if (field == EF_NONE || !gridless(x, field))
            return false;
    }
    for (unsigned i = 0; i < t->rank; i++)
        if (ef_dim_atoms(x->ctx, t->dim[i], &atoms) && !ef_dim_is_count(x->ctx, t->dim[i]) &&
            !policy->reduces(&x->scope, class, atoms[0]))
            return false;
    return true;
}

/* Operators that compute on tiles: everything but unrefined tensor operators and kernel boundaries. */
static bool computes(ef_egraph *g, ef_id n)
{
    ef_op op = (ef_op)g->op.at[n];
    if (op == EF_REDUCE_P)
        return ef_axis_level(ef_attr_reduce_at(g->attr.at[n])) == 1;
    return op != EF_MATMUL && ef_ops[op].class != EF_PARALLEL && ef_ops[op].class != EF_LEAF;
}

static bool moves(ef_op op)
{
    return ef_ops[op].class == EF_SHAPE || op == EF_GET;
}

/* A view replicates what the kernel computed: before a loop, or at a coarser grid. */
static bool replicates(ef_egraph *g, ef_id n)
{
    const ef_axis *axes;
    const ef_type_info *t = ef_type_at(g->ctx, ef_egraph_type(g, n));
    for (unsigned i = 0, count = ef_axes_at(g->ctx, (ef_axes)g->attr.at[n], &axes); i < count; i++) {
        const ef_place *place = t->is_tuple ? NULL : ef_type_place(t, axes[i]);
        if (!place || place->kind != EF_REPLICATE)
            return false;
    }
    return true;
}

/* A factor that is the same at all coordinates of a sum's axis moves out of the sum by a rule; inside it only repeats
 * work. So products with such a factor are no way to compute what is summed over a loop. */
static bool factor_repeats(ef_egraph *g, ef_id n)
{
    const ef_type_info *t = ef_type_at(g->ctx, ef_egraph_type(g, n));
    if (g->op.at[n] != EF_MUL && g->op.at[n] != EF_DIV)
        return false;
    for (unsigned i = 0; i < t->places; i++) {
        if (t->place[i].kind != EF_PARTIAL || ef_axis_level(t->place[i].axis) != 1)
            continue;
        for (unsigned c = 0; c < 2; c++) {
            const ef_type_info *in = ef_type_at(g->ctx, ef_egraph_type(g, ef_node_children(g, n)[c]));
            const ef_place *place = ef_type_place(in, t->place[i].axis);
            if (!place || place->kind == EF_REPLICATE)
                return true;
        }
    }
    return false;
}

/* Whether this is a way to compute a tile. */
static bool computes_here(ef_extractor *x, ef_id n)
{
    return computes(x->g, n) && !factor_repeats(x->g, n) && (x->g->op.at[n] != EF_TILE_MATMUL || ef_product_fits(x, n));
}

/* ---- options ---- */

ef_slot_id ef_slot_of(ef_extractor *x, ef_id class, ef_slot_role role)
{
    uint32_t key[] = {ef_find(x->g, class), role};
    int fresh;
    ef_slot_id id = ef_intern_put(x->slot_ids, key, sizeof key, &fresh);
    if (fresh)
        ef_vec_push(&x->slots, ((ef_eslot){.class = key[0], .role = role, .stored = EF_NONE}));
    return id;
}

static void add_option(ef_extractor *x, ef_slot_id id, ef_option_kind kind, ef_id node, const ef_id *children,
                       unsigned count, ef_slot_role role)
{
    ef_slot_id child[EF_MAX_CHILDREN] = {0};
    ef_option o = {.kind = kind, .node = node, .first = x->child.count, .count = count};
    for (unsigned i = 0; i < count; i++) {
        child[i] = ef_slot_of(x, children[i], role);
        if (child[i] == id)
            return;
    }
    for (unsigned i = 0; i < count; i++)
        ef_vec_push(&x->child, child[i]);
    o.cost = ef_option_cost(x, &o, ef_slot_type(x, id));
    ef_vec_push(&x->option_list, o);
}

/* The axes that cut a value, of a tuple those of its last field. *even: all fields have the same; *counts: it holds
 * partial results. */
static ef_axes cut_axes(ef_egraph *g, ef_type type, bool *even, bool *counts)
{
    const ef_type_info *t = ef_type_at(g->ctx, type);
    ef_axis axis[EF_MAX_PLACES];
    unsigned count = 0;
    ef_axes cut = 0;
    for (unsigned i = 0; i < t->fields; i++) {
        ef_axes own = cut_axes(g, t->field[i], even, counts);
        *even = *even && (i == 0 || own == cut);
        cut = own;
    }
    if (t->is_tuple)
        return cut;
    for (unsigned d = 0; d < t->rank; d++)
        *counts = *counts || ef_dim_is_count(g->ctx, t->dim[d]);
    for (unsigned k = 0; k < t->places; k++)
        if (t->place[k].kind == EF_PARTITION)
            axis[count++] = t->place[k].axis;
    return ef_axes_intern(g->ctx, axis, count);
}

/* A tuple whose fields are not cut along the same axes: blocks would compute a field that one of them stores. Partial
 * results are judged where they are merged. */
static bool uneven(ef_egraph *g, ef_id class)
{
    bool even = true, counts = false;
    cut_axes(g, ef_egraph_type(g, class), &even, &counts);
    return !even && !counts;
}

/* The same for partial results that are merged side by side; the state of a repaired reduction stays together. */
static bool merges_uneven(ef_egraph *g, ef_type type, ef_reducer reducer)
{
    const ef_reducer_info *r = ef_reducer_at(g->ctx, reducer);
    const ef_type_info *t = ef_type_at(g->ctx, type);
    bool even = true, counts = false;
    if (r->kind != EF_RED_PRODUCT)
        return false;
    return cut_axes(g, t->field[0], &even, &counts) != cut_axes(g, t->field[1], &even, &counts) ||
           merges_uneven(g, t->field[0], r->left) || merges_uneven(g, t->field[1], r->right);
}

static bool is_uneven_merge(ef_egraph *g, ef_id n)
{
    return g->op.at[n] == EF_REDUCE && ef_attr_reduce_at(g->attr.at[n]) == EF_FIRST &&
           merges_uneven(g, ef_egraph_type(g, ef_node_children(g, n)[0]), ef_attr_reducer(g->attr.at[n]));
}

/* A tensor: an input, moved elements of other tensors, or what a kernel stores. */
static void stored_options(ef_extractor *x, ef_slot_id id)
{
    ef_egraph *g = x->g;
    ef_id class = x->slots.at[id].class;
    const ef_policy *policy = x->scope.policy;
    bool worth = ef_type_at(x->ctx, ef_slot_type(x, id))->is_tuple || policy->storable(&x->scope, class);
    bool no_grid = worth && gridless(x, class), implicit = false;
    for (ef_id n = ef_class_first(g, class); n != EF_NONE; n = ef_class_next(g, n)) {
        ef_op op = (ef_op)g->op.at[n];
        const ef_id *child = ef_node_children(g, n);
        if (ef_ops[op].class == EF_LEAF)
            add_option(x, id, EF_OPTION_LEAF, n, NULL, 0, EF_SLOT_STORED);
        else if (op == EF_COMBINE && !uneven(g, child[0]))
            add_option(x, id, EF_OPTION_KERNEL, n, child, 1, EF_SLOT_ROOT);
        else if (op != EF_COMBINE && moves(op))
            add_option(x, id, EF_OPTION_MOVES, n, child, g->arity.at[n], EF_SLOT_STORED);
        else
            implicit = implicit || (no_grid && (computes(g, n) || op == EF_COLLECT));
    }
    if (implicit)
        add_option(x, id, EF_OPTION_KERNEL, EF_NONE, &class, 1, EF_SLOT_ROOT);
}

/* Moving the elements of a tile is pointwise: it goes through other such operators. */
static ef_option_kind compute_kind(ef_egraph *g, ef_id n)
{
    ef_op op = (ef_op)g->op.at[n];
    bool moved = ef_ops[op].class == EF_SHAPE && g->arity.at[n] == 1;
    return moved || ef_op_pointwise(op) ? EF_OPTION_POINTWISE : EF_OPTION_COMPUTES;
}

/* Whether a value is computed in its own shape, so that nothing is gained by computing it in another one: pointwise, or
 * by a reduction. Products differ in what their rows are. */
static bool has_own_shape(ef_egraph *g, ef_id class)
{
    for (ef_id n = ef_class_first(g, class); n != EF_NONE; n = ef_class_next(g, n)) {
        ef_op op = (ef_op)g->op.at[n];
        if (ef_op_pointwise(op) || ef_ops[op].class == EF_REDUCTION)
            return true;
    }
    return false;
}

/* The tensor that kernels make of a value, where the e-graph has it. */
static ef_id combined(ef_egraph *g, ef_id class)
{
    ef_axes axes = ef_type_axes(g->ctx, ef_egraph_type(g, class));
    return axes ? ef_egraph_lookup(g, EF_COMBINE, axes, &class, 1) : EF_NONE;
}

/* Whether a kernel gives its result another shape for nothing: what it would store without has the same elements in the
 * same order. */
static bool reshapes_result(ef_egraph *g, ef_id n, ef_id class)
{
    if (g->op.at[n] == EF_RESHAPE && has_own_shape(g, class))
        return true;
    ef_id with = combined(g, class), without = EF_NONE, reshaped = EF_NONE;
    if (g->op.at[n] == EF_RESHAPE && with != EF_NONE)
        without = combined(g, ef_node_children(g, n)[0]);
    if (without != EF_NONE)
        reshaped = ef_egraph_lookup(g, EF_RESHAPE, g->attr.at[n], &without, 1);
    return reshaped != EF_NONE && ef_find(g, reshaped) == ef_find(g, with);
}

/* What a kernel stores is computed; a field of a whole tuple is not, the tuple is. */
static void root_options(ef_extractor *x, ef_slot_id id)
{
    ef_egraph *g = x->g;
    ef_id class = x->slots.at[id].class;
    bool whole = ef_tensor_level(g, class);
    for (ef_id n = ef_class_first(g, class); n != EF_NONE; n = ef_class_next(g, n)) {
        ef_op op = (ef_op)g->op.at[n];
        if ((op == EF_COLLECT || computes_here(x, n)) && !(whole && moves(op)) && !reshapes_result(g, n, class))
            add_option(x, id, compute_kind(g, n), n, ef_node_children(g, n), g->arity.at[n], EF_SLOT_BODY);
    }
}

/* Whether a tensor of the class can be loaded as it stands, by a kernel without a grid. */
static bool loadable(ef_egraph *g, ef_id class)
{
    for (ef_id n = ef_class_first(g, class); n != EF_NONE; n = ef_class_next(g, n)) {
        ef_op op = (ef_op)g->op.at[n];
        if (op == EF_COMBINE || op == EF_INPUT || op == EF_IOTA || ef_ops[op].class == EF_SHAPE)
            return true;
    }
    return false;
}

static void body_options(ef_extractor *x, ef_slot_id id)
{
    ef_egraph *g = x->g;
    ef_id class = x->slots.at[id].class;
    bool whole = ef_tensor_level(g, class), no_grid = whole && gridless(x, class);
    ef_id constant = ef_class_find(g, class, EF_CONST);
    if (constant != EF_NONE) {
        add_option(x, id, EF_OPTION_LEAF, constant, NULL, 0, EF_SLOT_BODY);
        return;
    }
    for (ef_id n = ef_class_first(g, class); n != EF_NONE; n = ef_class_next(g, n)) {
        ef_op op = (ef_op)g->op.at[n];
        const ef_id *child = ef_node_children(g, n);
        if (op == EF_VIEW && ef_tensor_level(g, child[0]))
            add_option(x, id, EF_OPTION_LOADS, n, child, 1, EF_SLOT_STORED);
        else if (op == EF_VIEW && replicates(g, n))
            add_option(x, id, EF_OPTION_POINTWISE, n, child, 1, EF_SLOT_BODY);
        else if ((no_grid || !whole) && computes_here(x, n) && !is_uneven_merge(g, n) &&
                 !(op == EF_RESHAPE && has_own_shape(g, class)))
            add_option(x, id, compute_kind(g, n), n, child, g->arity.at[n], EF_SLOT_BODY);
    }
    if (whole && loadable(g, class))
        add_option(x, id, EF_OPTION_LOADS, EF_NONE, &class, 1, EF_SLOT_STORED);
}

static void add_options(ef_extractor *x, ef_slot_id id)
{
    uint32_t first = x->option_list.count;
    switch (x->slots.at[id].role) {
    case EF_SLOT_STORED: stored_options(x, id); break;
    case EF_SLOT_ROOT: root_options(x, id); break;
    case EF_SLOT_BODY: body_options(x, id); break;
    }
    x->slots.at[id].first = first;
    x->slots.at[id].count = x->option_list.count - first;
}

/* ---- what can be filled ---- */

/* A replicated view of what the kernel computed at a coarser grid: every block computes it anyway. */
static bool regrids(const ef_extractor *x, const ef_option *o)
{
    const ef_axis *axes;
    return ef_option_op(x, o) == EF_VIEW && o->kind == EF_OPTION_POINTWISE &&
           ef_axes_at(x->ctx, (ef_axes)ef_option_attr(x, o), &axes) && ef_axis_level(axes[0]) == 0;
}

/* How many moves make a tensor from inputs by this option; UINT32_MAX: none do. */
static uint32_t moves_from_inputs(const ef_extractor *x, const ef_option *o, const uint32_t *moves)
{
    uint32_t most = 0;
    if (o->kind == EF_OPTION_LEAF)
        return 0;
    for (uint32_t c = 0; c < o->count; c++)
        most = moves[x->child.at[o->first + c]] > most ? moves[x->child.at[o->first + c]] : most;
    return most == UINT32_MAX ? most : most + 1;
}

/* Inputs with their elements moved are given, by the fewest moves. */
static void find_given(ef_extractor *x)
{
    uint32_t *moves = ef_xcalloc(x->slots.count + 1, sizeof *moves);
    memset(moves, 0xff, x->slots.count * sizeof *moves);
    for (bool fewer = true; fewer;) {
        fewer = false;
        for (ef_slot_id id = 0; id < x->slots.count; id++) {
            ef_eslot *s = &x->slots.at[id];
            bool stored = s->role == EF_SLOT_STORED;
            for (uint32_t k = s->first; k < s->first + s->count && stored; k++)
                stored = ef_option_at(x, k)->kind != EF_OPTION_KERNEL;
            for (uint32_t k = s->first; k < s->first + s->count && stored; k++) {
                ef_option o = x->option_list.at[k];
                uint32_t own = moves_from_inputs(x, &o, moves);
                if (own >= moves[id])
                    continue;
                x->option_list.at[k] = x->option_list.at[s->first];
                x->option_list.at[s->first] = o;
                moves[id] = own;
                s->given = fewer = true;
            }
        }
    }
    for (ef_slot_id id = 0; id < x->slots.count; id++)
        if (x->slots.at[id].given)
            x->slots.at[id].count = 1;
    free(moves);
}

/* What is an input, viewed, is loaded: one way to do so is enough. */
static bool keep_input(ef_extractor *x, ef_eslot *s)
{
    for (uint32_t k = s->first; k < s->first + s->count; k++) {
        ef_option o = x->option_list.at[k];
        if (o.kind != EF_OPTION_LOADS || !ef_is_given(x, x->child.at[o.first]))
            continue;
        x->option_list.at[s->first] = o;
        s->count = 1;
        return true;
    }
    return false;
}

/* Computing at the block's own grid and at a coarser one are one program: the first stays, where there is one. */
static bool has_own_grid(const ef_extractor *x, const ef_eslot *s)
{
    for (uint32_t k = s->first; k < s->first + s->count; k++) {
        const ef_option *o = ef_option_at(x, k);
        if (o->kind != EF_OPTION_LOADS && !regrids(x, o))
            return true;
    }
    return false;
}

/* By variable: the longest dimension that is cut along it. A dimension of several variables is longer than each. */
static uint64_t *longest_cut(const ef_extractor *x)
{
    uint64_t *longest = ef_xcalloc(ef_var_count(x->ctx) + 1, sizeof *longest);
    for (ef_slot_id id = 0; id < x->slots.count; id++) {
        const ef_type_info *t = ef_type_at(x->ctx, ef_slot_type(x, id));
        for (unsigned i = 0; i < t->places; i++) {
            const ef_place *p = &t->place[i];
            uint64_t extent = p->kind == EF_PARTITION ? ef_dim_extent(x->ctx, t->dim[p->dim]) : 0;
            uint64_t *known = &longest[ef_axis_var(p->axis)];
            *known = extent > *known ? extent : *known;
        }
    }
    return longest;
}

/* A loop over a dimension that a tile can hold whole is that, with one trip. */
static bool loops_over_little(const ef_extractor *x, const ef_option *o, const uint64_t *longest)
{
    if (ef_option_op(x, o) != EF_REDUCE_P)
        return false;
    const ef_policy *policy = x->scope.policy;
    return longest[ef_axis_var(ef_attr_reduce_at(ef_option_attr(x, o)))] <= policy->whole_max;
}

static bool holds_whole(const ef_extractor *x, const ef_eslot *s)
{
    for (uint32_t k = s->first; k < s->first + s->count; k++) {
        ef_op op = ef_option_op(x, ef_option_at(x, k));
        if (op == EF_TILE_MATMUL || op == EF_REDUCE || op == EF_GET)
            return true;
    }
    return false;
}

static void drop_needless(ef_extractor *x, ef_eslot *s, const uint64_t *longest)
{
    uint32_t kept = 0;
    if (keep_input(x, s))
        return;
    bool own = has_own_grid(x, s), whole = holds_whole(x, s);
    for (uint32_t k = s->first; k < s->first + s->count; k++) {
        const ef_option *o = ef_option_at(x, k);
        if (!(own && regrids(x, o)) && !(whole && loops_over_little(x, o, longest)))
            x->option_list.at[s->first + kept++] = *o;
    }
    s->count = kept;
}

/* The cheapest known way to fill each slot, as the set of all slots that it needs, the slot itself included: what is
 * shared counts once, so that tuples of values of one loop do not seem dearer than values by themselves. */
typedef struct {
    uint32_t words;
    uint64_t *needs; /* bit matrix by slot */
    double *own;     /* by slot: the cost of its option */
    uint32_t *when;  /* by slot: the round in which it got cheaper last, from 1 on; 0: never */
    uint64_t *all;   /* scratch */
} cheapest;

/* What an option costs with all that it needs, whose set is put into `all`; infinite where something is not known to be
 * possible yet, or needs the slot itself. */
static double cost_with_needs(const ef_extractor *x, const cheapest *c, ef_slot_id id, const ef_option *o)
{
    double cost = o->cost;
    memset(c->all, 0, c->words * sizeof *c->all);
    for (uint32_t k = 0; k < o->count; k++) {
        ef_slot_id child = x->child.at[o->first + k];
        if (x->slots.at[child].least >= IMPOSSIBLE)
            return INFINITY;
        for (uint32_t w = 0; w < c->words; w++)
            c->all[w] |= c->needs[(size_t)child * c->words + w];
    }
    if (ef_bit(c->all, id))
        return INFINITY;
    for (uint32_t w = 0; w < c->words; w++)
        for (uint64_t bits = c->all[w]; bits; bits &= bits - 1)
            cost += c->own[64 * (size_t)w + (unsigned)__builtin_ctzll(bits)];
    ef_set_bit(c->all, id);
    return cost;
}

/* Whether something that an option needs got cheaper since the last round looked at it. */
static bool is_news(const ef_extractor *x, const cheapest *c, const ef_option *o, uint32_t round)
{
    bool news = round == 1;
    for (uint32_t k = 0; k < o->count && !news; k++)
        news = c->when[x->child.at[o->first + k]] + 1 >= round;
    return news;
}

#define CHEAPER (1 - 1e-6) /* times as dear: costs may go on changing a little with what they share */

static void find_cheapest(ef_extractor *x)
{
    uint32_t n = x->slots.count;
    cheapest c = {.words = (n + 63) / 64};
    c.needs = ef_xcalloc((size_t)n * c.words + 1, sizeof *c.needs);
    c.own = ef_xcalloc(64 * (size_t)c.words + 1, sizeof *c.own);
    c.when = ef_xcalloc(n + 1, sizeof *c.when);
    c.all = ef_xcalloc(c.words + 1, sizeof *c.all);
    bool better = true;
    for (uint32_t i = 0; i < n; i++)
        x->slots.at[i].least = 1e300;
    for (uint32_t round = 1; better && !ef_out_of_budget(x); round++) {
        better = false;
        for (uint32_t i = n; i-- > 0 && !ef_out_of_budget(x);) {
            ef_eslot *s = &x->slots.at[i];
            for (uint32_t k = s->first; k < s->first + s->count; k++) {
                const ef_option *o = ef_option_at(x, k);
                double cost = is_news(x, &c, o, round) ? cost_with_needs(x, &c, i, o) : INFINITY;
                if (!(cost < s->least * CHEAPER))
                    continue;
                s->least = cost;
                c.when[i] = round;
                c.own[i] = o->cost;
                memcpy(c.needs + (size_t)i * c.words, c.all, c.words * sizeof *c.all);
                better = true;
            }
        }
    }
    free(c.needs);
    free(c.own);
    free(c.when);
    free(c.all);
}

/* Options whose slots cannot be filled go; the least cost of every slot is a guide for the queue, not a bound that
 * anything is cut by. */
static void compute_least(ef_extractor *x)
{
    find_cheapest(x);
    for (uint32_t i = 0; i < x->slots.count; i++) {
        ef_eslot *s = &x->slots.at[i];
        uint32_t kept = 0;
        for (uint32_t k = s->first; k < s->first + s->count; k++) {
            ef_option o = x->option_list.at[k];
            bool possible = true;
            for (uint32_t c = 0; c < o.count; c++)
                possible = possible && x->slots.at[x->child.at[o.first + c]].least < IMPOSSIBLE;
            if (possible)
                x->option_list.at[s->first + kept++] = o;
        }
        s->count = kept;
    }
    find_given(x);
    uint64_t *longest = longest_cut(x);
    for (uint32_t i = 0; i < x->slots.count; i++)
        if (x->slots.at[i].role != EF_SLOT_STORED)
            drop_needless(x, &x->slots.at[i], longest);
    free(longest);
}

void ef_slots_build(ef_extractor *x)
{
    for (uint32_t i = 0; i < x->search->outputs; i++)
        ef_slot_of(x, x->search->output[i], EF_SLOT_STORED);
    for (ef_slot_id id = 0; id < x->slots.count; id++) /* grows while it runs */
        add_options(x, id);
    compute_least(x);
    for (ef_slot_id id = 0; id < x->slots.count; id++) {
        ef_eslot *s = &x->slots.at[id];
        for (uint32_t k = s->first; k < s->first + s->count && s->stored == EF_NONE; k++)
            if (ef_option_at(x, k)->kind == EF_OPTION_KERNEL) {
                s->stored = x->stored++;
                ef_vec_push(&x->stored_slot, id);
            }
    }
    x->stored_words = x->stored / 64 + 1;
}
