/* Extraction with early compaction: see extract.h. */
#include "search/extract.h"

#include <math.h>
#include <string.h>

#include "support/hash.h"

#define MAX_CHILD_SLOTS EF_MAX_CHILDREN

typedef uint32_t slot_id;

/* One way to fill a slot. */
typedef struct {
    ef_id node;
    double cost;           /* optimistic, microseconds, of this node alone */
    uint32_t first, count; /* its child slots, in `child` */
} option;

typedef struct {
    ef_id class;
    bool root;                  /* the class as a kernel's root */
    bool stores;                /* a kernel's result, stored, may fill it */
    uint32_t first, count;      /* its options */
    uint32_t first_need, needs; /* the child slots of all its options, in `need` */
    double least;               /* optimistic cost of the cheapest way to fill it and what it needs */
} slot;

/* A canonical form: see below. */
typedef enum { FORM_ATOM, FORM_PRODUCT, FORM_SUM } form_kind;

typedef struct {
    form_kind kind;
    uint64_t over[2], under[2]; /* products and sums: sums of the hashes of members, and of inverse members */
} form;

/* A partial program: picks sorted by slot; holes in the order in which they appeared. */
typedef struct {
    double cost, bound;
    uint64_t serial; /* ties: first come, first served */
    uint32_t picks, holes;
    uint32_t *data; /* picks (slot, option) pairs, then holes */
} partial;

typedef struct {
    partial *at;
    uint32_t count, capacity;
} partials;

typedef struct {
    ef_search *search;
    ef_egraph *g;
    ef_ctx *ctx;
    const ef_extract_options *options;
    ef_scope scope;
    EF_VEC(slot) slots;
    EF_VEC(option) option_list;
    EF_VEC(slot_id) child, need;
    ef_intern *slot_ids;
    uint64_t *reach; /* bit matrix: which slots a slot can need, itself included */
    uint32_t words;
    EF_VEC(partial) heap;
    partials children; /* of the program that is being expanded */
    size_t heap_bytes;
    uint64_t serial;
    ef_intern *seen;
    /* scratch, by slot */
    uint32_t *pick; /* option + 1 */
    form *canon;
    uint8_t *mark;
    slot_id *stack;        /* explicit stack for walks */
    uint64_t *open;        /* bits: the slots that completions of the partial program at hand can refer to */
    uint64_t *cone_open;   /* bits: those that the holes in a cone reach */
    EF_VEC(slot_id) fused; /* slots that a fused reduction may fill */
    ef_extraction *result;
} extractor;

static uint64_t mix(uint64_t h, uint64_t x)
{
    h = (h ^ x) * UINT64_C(0x9fb21c651e98df25);
    return h ^ (h >> 29);
}

/* ---- which e-nodes may fill a slot ---- */

static bool tensor_level(ef_egraph *g, ef_id class)
{
    return ef_type_axes(g->ctx, ef_egraph_type(g, class)) == 0;
}

/* A value without a grid: all of its dimensions are unit dimensions or collected, or its own computation reduces them.
 */
static bool gridless(extractor *x, ef_id class)
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

/* A view loads a stored tensor, or replicates what the kernel computed (before a loop, or at a coarser grid). */
static bool view_is_legal(ef_egraph *g, ef_id n)
{
    ef_id inner = ef_node_children(g, n)[0];
    if (tensor_level(g, inner))
        return true;
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

/* A replicated view of what the kernel computed at a coarser grid: every block computes it anyway. */
static bool regrids(ef_egraph *g, ef_id n)
{
    const ef_axis *axes;
    return g->op.at[n] == EF_VIEW && !tensor_level(g, ef_node_children(g, n)[0]) &&
           ef_axes_at(g->ctx, (ef_axes)g->attr.at[n], &axes) && ef_axis_level(axes[0]) == 0;
}

/* Whether e-node n may fill a slot of this class and role. */
static bool fills(extractor *x, ef_id class, bool root, bool no_grid, ef_id n)
{
    ef_egraph *g = x->g;
    ef_op op = (ef_op)g->op.at[n];
    if (op == EF_CONST)
        return true;
    if (factor_repeats(g, n))
        return false;
    if (root)
        return computes(g, n) || op == EF_COLLECT;
    if (!tensor_level(g, class))
        return op == EF_VIEW ? view_is_legal(g, n) : computes(g, n);
    if (op == EF_COMBINE || ef_ops[op].class == EF_LEAF)
        return true;
    if (ef_ops[op].class == EF_SHAPE || op == EF_GET) /* moves the elements of a stored tensor */
        return true;
    return no_grid && (computes(g, n) || op == EF_COLLECT);
}

/* ---- optimistic cost: what no schedule can avoid ----
 *
 * A generic device, 4 TB/s, 400 TFLOP/s and 2 us a launch, until src/target describes the real one. */

#define MICROSECONDS_PER_BYTE 2.5e-7
#define MICROSECONDS_PER_FLOP 2.5e-9
#define MICROSECONDS_PER_KERNEL 2.0

static double elements(extractor *x, ef_type type)
{
    const ef_type_info *t = ef_type_at(x->ctx, type);
    double n = t->is_tuple ? 0 : 1;
    for (unsigned i = 0; i < t->fields; i++)
        n += elements(x, t->field[i]);
    for (unsigned i = 0; i < t->rank; i++)
        n *= ef_dim_is_count(x->ctx, t->dim[i]) ? 8 : (double)ef_dim_extent(x->ctx, t->dim[i]);
    return n;
}

/* Work outside of all grids runs in one block of the device's some hundred. */
#define BLOCKS 128

static double node_cost(extractor *x, ef_id n)
{
    ef_egraph *g = x->g;
    double size = elements(x, ef_egraph_type(g, n));
    if (tensor_level(g, n) && computes(g, n) && g->op.at[n] != EF_GET && ef_ops[g->op.at[n]].class != EF_SHAPE) {
        double read = 0;
        for (unsigned i = 0; i < g->arity.at[n]; i++)
            read += elements(x, ef_egraph_type(g, ef_node_children(g, n)[i]));
        return BLOCKS * 2 * (size + read) * MICROSECONDS_PER_BYTE;
    }
    switch ((ef_op)g->op.at[n]) {
    case EF_COMBINE: return MICROSECONDS_PER_KERNEL + 2 * size * MICROSECONDS_PER_BYTE;
    case EF_VIEW: {
        ef_id inner = ef_node_children(g, n)[0];
        return tensor_level(g, inner) ? 2 * elements(x, ef_egraph_type(g, inner)) * MICROSECONDS_PER_BYTE : 0;
    }
    case EF_TILE_MATMUL: {
        const ef_type_info *a = ef_type_at(x->ctx, ef_egraph_type(g, ef_node_children(g, n)[0]));
        return 2 * size * (double)ef_dim_extent(x->ctx, a->dim[0]) * MICROSECONDS_PER_FLOP;
    }
    case EF_CONST:
    case EF_INPUT:
    case EF_IOTA:
    case EF_GET:
    case EF_TUPLE: return 0;
    default: return size * MICROSECONDS_PER_FLOP;
    }
}

/* ---- slots ---- */

static slot_id slot_of(extractor *x, ef_id class, bool root)
{
    uint32_t key[] = {ef_find(x->g, class), root};
    int fresh;
    slot_id id = ef_intern_put(x->slot_ids, key, sizeof key, &fresh);
    if (fresh)
        ef_vec_push(&x->slots, ((slot){.class = key[0], .root = root}));
    return id;
}

static void add_options(extractor *x, slot_id id)
{
    ef_egraph *g = x->g;
    slot s = x->slots.at[id];
    s.first = x->option_list.count;
    bool no_grid = tensor_level(g, s.class) && gridless(x, s.class);
    for (ef_id n = ef_class_first(g, s.class); n != EF_NONE; n = ef_class_next(g, n)) {
        if (!fills(x, s.class, s.root, no_grid, n))
            continue;
        slot_id children[MAX_CHILD_SLOTS] = {0};
        bool own = false;
        for (unsigned i = 0; i < g->arity.at[n]; i++) {
            children[i] = slot_of(x, ef_node_children(g, n)[i], g->op.at[n] == EF_COMBINE);
            own = own || children[i] == id;
        }
        if (own)
            continue;
        option o = {n, node_cost(x, n), x->child.count, g->arity.at[n]};
        for (unsigned i = 0; i < o.count; i++)
            ef_vec_push(&x->child, children[i]);
        ef_vec_push(&x->option_list, o);
    }
    s.count = x->option_list.count - s.first;
    x->slots.at[id] = s;
}

/* Computing at the block's own grid and at a coarser one are one program: the first stays, where there is one. */
static void drop_regrids(extractor *x, slot *s)
{
    uint32_t kept = 0;
    bool computed = false;
    for (uint32_t k = s->first; k < s->first + s->count; k++)
        computed = computed || x->g->op.at[x->option_list.at[k].node] != EF_VIEW;
    for (uint32_t k = s->first; k < s->first + s->count; k++)
        if (!computed || !regrids(x->g, x->option_list.at[k].node))
            x->option_list.at[s->first + kept++] = x->option_list.at[k];
    s->count = kept;
}

/* Options whose slots cannot be filled go; the least cost of every slot comes by fixpoint (shared parts count once for
 * each use: a guide for the queue, not a bound that anything is cut by). */
static void compute_least(extractor *x)
{
    for (uint32_t i = 0; i < x->slots.count; i++)
        x->slots.at[i].least = 1e300;
    for (bool better = true; better;) {
        better = false;
        for (uint32_t i = 0; i < x->slots.count; i++) {
            slot *s = &x->slots.at[i];
            for (uint32_t k = s->first; k < s->first + s->count; k++) {
                const option *o = &x->option_list.at[k];
                double cost = o->cost;
                for (uint32_t c = 0; c < o->count; c++)
                    cost += x->slots.at[x->child.at[o->first + c]].least;
                if (cost < s->least * (1 - 1e-12)) {
                    s->least = cost;
                    better = true;
                }
            }
        }
    }
    for (uint32_t i = 0; i < x->slots.count; i++) {
        slot *s = &x->slots.at[i];
        uint32_t kept = 0;
        for (uint32_t k = s->first; k < s->first + s->count; k++) {
            option o = x->option_list.at[k];
            bool possible = true;
            for (uint32_t c = 0; c < o.count; c++)
                possible = possible && x->slots.at[x->child.at[o.first + c]].least < 1e299;
            if (possible)
                x->option_list.at[s->first + kept++] = o;
        }
        s->count = kept;
        drop_regrids(x, s);
    }
}

static void compute_reach(extractor *x)
{
    uint32_t n = x->slots.count;
    x->words = (n + 63) / 64;
    x->reach = ef_xcalloc((size_t)n * x->words, sizeof *x->reach);
    for (uint32_t i = 0; i < n; i++)
        x->reach[(size_t)i * x->words + i / 64] |= (uint64_t)1 << (i % 64);
    for (bool grew = true; grew;) {
        grew = false;
        for (uint32_t i = 0; i < n; i++)
            for (uint32_t k = x->slots.at[i].first; k < x->slots.at[i].first + x->slots.at[i].count; k++)
                for (uint32_t c = 0; c < x->option_list.at[k].count; c++) {
                    const uint64_t *from = x->reach + (size_t)x->child.at[x->option_list.at[k].first + c] * x->words;
                    uint64_t *to = x->reach + (size_t)i * x->words;
                    for (uint32_t w = 0; w < x->words; w++) {
                        grew = grew || (from[w] & ~to[w]);
                        to[w] |= from[w];
                    }
                }
    }
}

/* ---- canonical forms ----
 *
 * Products and sums are flat: the hashes of their members are added, those of divisors and subtrahends apart, so that
 * order and grouping do not matter. Nothing cancels: x / x still depends on x, and a hole in it must stay visible. The
 * form of an operator is a function of the forms of its operands alone, so equal parts may stand for each other. */

static bool form_equal(form a, form b)
{
    return a.kind == b.kind && a.over[0] == b.over[0] && a.over[1] == b.over[1] && a.under[0] == b.under[0] &&
           a.under[1] == b.under[1];
}

static form atom(uint64_t h0, uint64_t h1)
{
    return (form){.kind = FORM_ATOM, .over = {h0, h1}};
}

/* A form as a member of a product or sum. */
static form member(form f, form_kind of)
{
    if (f.kind == of)
        return f;
    return (form){
        of,
        {mix(mix(mix(0x61, f.over[0]), f.under[0]), f.kind), mix(mix(mix(0x62, f.over[1]), f.under[1]), f.kind)},
        {0, 0}};
}

static form inverse(form f)
{
    return (form){f.kind, {f.under[0], f.under[1]}, {f.over[0], f.over[1]}};
}

static form join(form a, form b)
{
    return (form){
        a.kind, {a.over[0] + b.over[0], a.over[1] + b.over[1]}, {a.under[0] + b.under[0], a.under[1] + b.under[1]}};
}

/* One hash of a form, the same for a thing and the product that has it as its only factor. */
static void form_hash(form f, uint64_t out[2])
{
    f = member(f, FORM_PRODUCT);
    out[0] = mix(mix(0x51, f.over[0]), f.under[0]);
    out[1] = mix(mix(0x52, f.over[1]), f.under[1]);
}

static form form_of(ef_op op, uint64_t attr, const form *x, unsigned count)
{
    uint64_t h[2], sum[2] = {0, 0};
    switch (op) {
    case EF_MUL: return join(member(x[0], FORM_PRODUCT), member(x[1], FORM_PRODUCT));
    case EF_DIV: return join(member(x[0], FORM_PRODUCT), inverse(member(x[1], FORM_PRODUCT)));
    case EF_RECIP: return inverse(member(x[0], FORM_PRODUCT));
    case EF_ADD: return join(member(x[0], FORM_SUM), member(x[1], FORM_SUM));
    case EF_SUB: return join(member(x[0], FORM_SUM), inverse(member(x[1], FORM_SUM)));
    case EF_NEG: return inverse(member(x[0], FORM_SUM));
    case EF_SQRT:
    case EF_RSQRT: {
        form_hash(x[0], h);
        form root = member(atom(mix(0x71, h[0]), mix(0x72, h[1])), FORM_PRODUCT);
        return op == EF_RSQRT ? inverse(root) : root;
    }
    default: break;
    }
    form f = atom(mix(mix(0x81, op), attr), mix(mix(0x82, op), attr));
    for (unsigned i = 0; i < count; i++) {
        form_hash(x[i], h);
        sum[0] += h[0], sum[1] += h[1];
        if (!ef_op_commutative(op))
            f.over[0] = mix(f.over[0], h[0]), f.over[1] = mix(f.over[1], h[1]);
    }
    if (ef_op_commutative(op))
        f.over[0] = mix(f.over[0], sum[0]), f.over[1] = mix(f.over[1], sum[1]);
    return f;
}

/* ---- equivalent options, before any program is built ----
 *
 * A slot without pointwise options is an atom. A slot whose options all spell one pointwise expression over atoms has
 * that FORM, whatever else the program picks; any other slot has none. Of options with the same form one is enough:
 * wherever the other is picked, this one can be, with the picks of all shared slots as they are. */

typedef struct {
    enum { SPELT_NOT_YET, SPELT_IN_PROGRESS, SPELT_ONE, SPELT_MANY } state;
    form form;
} spelling;

static bool spell_slot(extractor *x, spelling *all, slot_id id);

/* The form of an option, if its slots leave no choice. */
static bool spell_option(extractor *x, spelling *all, const option *o, form *out)
{
    form operand[MAX_CHILD_SLOTS];
    for (uint32_t i = 0; i < o->count; i++) {
        slot_id child = x->child.at[o->first + i];
        if (!spell_slot(x, all, child))
            return false;
        operand[i] = all[child].form;
    }
    *out = form_of((ef_op)x->g->op.at[o->node], x->g->attr.at[o->node], operand, o->count);
    return true;
}

static bool spell_slot(extractor *x, spelling *all, slot_id id)
{
    spelling *f = &all[id];
    if (f->state != SPELT_NOT_YET) /* in progress: a cycle of pointwise options */
        return f->state == SPELT_ONE;
    f->state = SPELT_IN_PROGRESS;
    const slot *s = &x->slots.at[id];
    uint32_t pointwise = 0;
    bool one = true;
    for (uint32_t k = s->first; k < s->first + s->count; k++)
        pointwise += ef_op_pointwise((ef_op)x->g->op.at[x->option_list.at[k].node]);
    for (uint32_t k = s->first; k < s->first + s->count && pointwise && one; k++) {
        form own;
        one = pointwise == s->count && spell_option(x, all, &x->option_list.at[k], &own) &&
              (k == s->first || form_equal(own, f->form));
        if (one)
            f->form = own;
    }
    if (!pointwise)
        f->form = atom(mix(0x91, id), mix(0x92, id));
    f->state = one ? SPELT_ONE : SPELT_MANY;
    return one;
}

static void drop_spellings(extractor *x)
{
    spelling *all = ef_xcalloc(x->slots.count, sizeof *all);
    for (slot_id id = 0; id < x->slots.count; id++) {
        slot *s = &x->slots.at[id];
        form *kept_form = ef_xcalloc(s->count + 1, sizeof *kept_form);
        uint32_t kept = 0, forms = 0, end = s->first + s->count;
        for (uint32_t k = s->first; k < end; k++) {
            option o = x->option_list.at[k];
            form own;
            bool again = false;
            if (ef_op_pointwise((ef_op)x->g->op.at[o.node]) && spell_option(x, all, &o, &own)) {
                for (uint32_t f = 0; f < forms && !again; f++)
                    again = form_equal(own, kept_form[f]);
                if (!again)
                    kept_form[forms++] = own;
            }
            if (!again)
                x->option_list.at[s->first + kept++] = o;
        }
        s->count = kept;
        free(kept_form);
    }
    free(all);
}

static void list_needs(extractor *x)
{
    for (slot_id id = 0; id < x->slots.count; id++) {
        slot *s = &x->slots.at[id];
        s->first_need = x->need.count;
        for (uint32_t k = s->first; k < s->first + s->count; k++)
            for (uint32_t c = 0; c < x->option_list.at[k].count; c++) {
                slot_id child = x->child.at[x->option_list.at[k].first + c];
                s->stores = s->stores || x->g->op.at[x->option_list.at[k].node] == EF_COMBINE;
                if (!x->mark[child])
                    ef_vec_push(&x->need, child);
                x->mark[child] = 1;
            }
        s->needs = x->need.count - s->first_need;
        for (uint32_t c = s->first_need; c < x->need.count; c++)
            x->mark[x->need.at[c]] = 0;
    }
}

/* The reducer of a reduction that gives a tuple; else NULL. */
static const ef_reducer_info *fused_reducer(const extractor *x, ef_id n)
{
    if (x->g->op.at[n] != EF_REDUCE_P && x->g->op.at[n] != EF_REDUCE)
        return NULL;
    const ef_reducer_info *r = ef_reducer_at(x->ctx, ef_attr_reducer(x->g->attr.at[n]));
    return r->leaves == 1 ? NULL : r;
}

static void build_slots(extractor *x)
{
    for (uint32_t i = 0; i < x->search->outputs; i++)
        slot_of(x, x->search->output[i], false);
    for (slot_id id = 0; id < x->slots.count; id++) /* grows while it runs */
        add_options(x, id);
    compute_least(x);
    if (x->options->compaction == EF_COMPACT_EARLY)
        drop_spellings(x);
    compute_reach(x);
    x->pick = ef_xcalloc(x->slots.count, sizeof *x->pick);
    x->canon = ef_xcalloc(x->slots.count, sizeof *x->canon);
    x->mark = ef_xcalloc(x->slots.count, sizeof *x->mark);
    x->stack = ef_xcalloc((size_t)x->slots.count + MAX_CHILD_SLOTS, sizeof *x->stack);
    list_needs(x);
    x->open = ef_xcalloc(x->words, sizeof *x->open);
    x->cone_open = ef_xcalloc(x->words, sizeof *x->cone_open);
    for (slot_id id = 0; id < x->slots.count; id++) {
        const slot *s = &x->slots.at[id];
        bool fused = false;
        for (uint32_t k = s->first; k < s->first + s->count && !s->root; k++)
            fused = fused || fused_reducer(x, x->option_list.at[k].node);
        if (fused)
            ef_vec_push(&x->fused, id);
    }
}

/* ---- the canonical forms of what is picked ---- */

static form canon_of(extractor *x, slot_id id);

static ef_op picked_op(const extractor *x, slot_id id, const option **o)
{
    if (!x->pick[id])
        return EF_OP_COUNT;
    *o = &x->option_list.at[x->pick[id] - 1];
    return (ef_op)x->g->op.at[(*o)->node];
}

static bool moves(ef_op op)
{
    return op == EF_TRANSPOSE || op == EF_RESHAPE || op == EF_BROADCAST || op == EF_SLICE;
}

/* The axes of a set that cut something of a type: replication says nothing about what is computed. */
static ef_axes cutting(extractor *x, ef_axes axes, ef_type type)
{
    const ef_type_info *t = ef_type_at(x->ctx, type);
    const ef_axis *axis;
    ef_axis kept[2 * EF_MAX_PLACES];
    unsigned count = 0;
    ef_place place;
    ef_axes all = 0;
    for (unsigned i = 0; i < t->fields; i++)
        all = ef_axes_union(x->ctx, all, cutting(x, axes, t->field[i]));
    if (t->is_tuple)
        return all;
    for (unsigned i = 0, n = ef_axes_at(x->ctx, axes, &axis); i < n; i++)
        if (ef_type_cut(x->ctx, t, axis[i], &place) && place.kind == EF_PARTITION)
            kept[count++] = axis[i];
    return ef_axes_intern(x->ctx, kept, count);
}

/* A view of moved elements is the moved view: axes collect on the way down to the tensor, moves above them. */
static void canon_view(extractor *x, slot_id id, ef_axes axes, uint64_t out[2])
{
    const option *o;
    ef_op op = picked_op(x, id, &o);
    if (op == EF_VIEW) {
        canon_view(x, x->child.at[o->first], ef_axes_union(x->ctx, axes, (ef_axes)x->g->attr.at[o->node]), out);
        return;
    }
    axes = cutting(x, axes, ef_egraph_type(x->g, x->slots.at[id].class));
    if (moves(op)) {
        canon_view(x, x->child.at[o->first], axes, out);
        out[0] = mix(mix(out[0], op), x->g->attr.at[o->node]);
        out[1] = mix(mix(out[1], op + 77u), x->g->attr.at[o->node]);
    } else {
        form_hash(canon_of(x, id), out);
        if (axes == 0)
            return;
        out[0] = mix(out[0], axes + 1001u);
        out[1] = mix(out[1], axes + 2003u);
    }
}

static form canon_node(extractor *x, slot_id id)
{
    const option *o = NULL;
    ef_op op = picked_op(x, id, &o);
    if (op == EF_OP_COUNT) /* a hole */
        return atom(mix(0xabc1, id), mix(0xabc2, id));
    if (op == EF_VIEW || moves(op)) {
        uint64_t h[2];
        canon_view(x, id, 0, h);
        return atom(h[0], h[1]);
    }
    form operand[MAX_CHILD_SLOTS];
    for (uint32_t i = 0; i < o->count; i++)
        operand[i] = canon_of(x, x->child.at[o->first + i]);
    return form_of(op, x->g->attr.at[o->node], operand, o->count);
}

static form canon_of(extractor *x, slot_id id)
{
    if (!x->mark[id]) {
        form f = canon_node(x, id);
        x->canon[id] = f;
        x->mark[id] = 1;
    }
    return x->canon[id];
}

/* ---- partial programs ---- */

static bool bit(const uint64_t *bits, uint32_t i)
{
    return bits[i / 64] >> (i % 64) & 1;
}

static void load_picks(extractor *x, const partial *p)
{
    for (uint32_t i = 0; i < p->picks; i++)
        x->pick[p->data[2 * i]] = p->data[2 * i + 1] + 1;
}

static void clear_picks(extractor *x, const partial *p)
{
    for (uint32_t i = 0; i < p->picks; i++)
        x->pick[p->data[2 * i]] = 0;
}

static void open_slot(extractor *x, slot_id id, uint32_t *top)
{
    if (bit(x->open, id))
        return;
    x->open[id / 64] |= (uint64_t)1 << (id % 64);
    x->stack[(*top)++] = id;
}

static void add_reach(const extractor *x, slot_id from, uint64_t *bits)
{
    for (uint32_t w = 0; w < x->words; w++)
        bits[w] |= x->reach[(size_t)from * x->words + w];
}

/* The slots that completions can refer to: from the holes on, through slots without a pick, up to those with one. */
static void load_holes(extractor *x, const partial *p)
{
    uint32_t top = 0;
    memset(x->open, 0, x->words * sizeof *x->open);
    for (uint32_t k = 0; k < p->holes; k++)
        open_slot(x, p->data[2 * (size_t)p->picks + k], &top);
    while (top) {
        const slot *s = &x->slots.at[x->stack[--top]];
        if (x->pick[x->stack[top]])
            continue;
        for (uint32_t c = s->first_need; c < s->first_need + s->needs; c++)
            open_slot(x, x->need.at[c], &top);
    }
}

/* Whether picking o for slot `id` closes a cycle: some picked path leads from o's children back to the slot. */
static bool closes_cycle(extractor *x, slot_id id, const option *o)
{
    uint32_t top = 0;
    memset(x->mark, 0, x->slots.count);
    for (uint32_t i = 0; i < o->count; i++)
        if (!x->mark[x->child.at[o->first + i]]) {
            x->mark[x->child.at[o->first + i]] = 1;
            x->stack[top++] = x->child.at[o->first + i];
        }
    while (top) {
        slot_id s = x->stack[--top];
        if (s == id)
            return true;
        if (!x->pick[s])
            continue;
        const option *p = &x->option_list.at[x->pick[s] - 1];
        for (uint32_t i = 0; i < p->count; i++) {
            slot_id c = x->child.at[p->first + i];
            if (!x->mark[c]) {
                x->mark[c] = 1;
                x->stack[top++] = c;
            }
        }
    }
    return false;
}

/* Best first, but among bounds that mean the same the one that is nearest to completion: else a plateau of equal costs
 * is searched in breadth and nothing is ever finished. */
static bool before(const partial *a, const partial *b)
{
    double x = floor(a->bound * 4), y = floor(b->bound * 4); /* quarters of a microsecond */
    if (x != y)
        return x < y;
    return a->picks != b->picks ? a->picks > b->picks : a->serial < b->serial;
}

static void heap_push(extractor *x, partial p)
{
    ef_vec_push(&x->heap, p);
    x->heap_bytes += sizeof p + (2 * (size_t)p.picks + p.holes) * sizeof *p.data;
    uint32_t i = x->heap.count - 1;
    while (i && before(&p, &x->heap.at[(i - 1) / 2])) {
        x->heap.at[i] = x->heap.at[(i - 1) / 2];
        i = (i - 1) / 2;
    }
    x->heap.at[i] = p;
}

static partial heap_pop(extractor *x)
{
    partial top = x->heap.at[0], last = x->heap.at[--x->heap.count];
    x->heap_bytes -= sizeof top + (2 * (size_t)top.picks + top.holes) * sizeof *top.data;
    uint32_t i = 0;
    for (;;) {
        uint32_t c = 2 * i + 1;
        if (c >= x->heap.count)
            break;
        if (c + 1 < x->heap.count && before(&x->heap.at[c + 1], &x->heap.at[c]))
            c++;
        if (!before(&x->heap.at[c], &last))
            break;
        x->heap.at[i] = x->heap.at[c];
        i = c;
    }
    if (x->heap.count)
        x->heap.at[i] = last;
    return top;
}

/* A hole that no other hole can reach comes next: once it is picked nothing refers to it again, so its pick leaves the
 * signature and equivalent partial programs meet early. Among those the one with the fewest options. The choice depends
 * on the set of holes alone, so equivalent partial programs go the same way. */
static void free_hole_first(const extractor *x, uint32_t *hole, uint32_t count)
{
    uint32_t best = 0;
    uint64_t best_rank = UINT64_MAX;
    for (uint32_t i = 0; i < count; i++) {
        uint64_t reached = 0;
        for (uint32_t k = 0; k < count; k++)
            reached += k != i && (x->reach[(size_t)hole[k] * x->words + hole[i] / 64] >> (hole[i] % 64) & 1);
        uint64_t rank = reached << 48 | (uint64_t)x->slots.at[hole[i]].count << 32 | hole[i];
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

/* The partial program with option k picked for its first hole. */
static partial extend(extractor *x, const partial *p, uint32_t k)
{
    const option *o = &x->option_list.at[k];
    const uint32_t *hole = p->data + 2 * (size_t)p->picks;
    partial q = {.cost = p->cost + o->cost, .serial = x->serial++, .picks = p->picks + 1};
    q.data = ef_xcalloc(2 * (size_t)q.picks + p->holes + o->count, sizeof *q.data);
    memcpy(q.data, p->data, 2 * (size_t)p->picks * sizeof *q.data);
    q.data[2 * p->picks] = hole[0];
    q.data[2 * p->picks + 1] = k;
    uint32_t *out = q.data + 2 * (size_t)q.picks;
    for (uint32_t i = 1; i < p->holes; i++)
        out[q.holes++] = hole[i];
    for (uint32_t i = 0; i < o->count; i++) {
        slot_id c = x->child.at[o->first + i];
        bool known = x->pick[c] != 0 || c == hole[0];
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

/* ---- what is no candidate ----
 *
 * These conditions speak of complete programs. A partial program is cut when none of its completions can meet them;
 * what its completions still have to meet is its DUTIES, which the signature contains: partial programs that are spelt
 * differently may differ in them. */

typedef enum { NEVER, PERHAPS, ALREADY } chance;

/* Whether e-node n is picked, or still can be. */
static chance node_picked(const extractor *x, ef_id n)
{
    chance best = NEVER;
    for (uint32_t role = 0; role < 2; role++) {
        uint32_t key[] = {ef_find(x->g, n), role};
        slot_id id = ef_intern_find(x->slot_ids, key, sizeof key);
        if (id == UINT32_MAX)
            continue;
        const slot *s = &x->slots.at[id];
        if (x->pick[id] && x->option_list.at[x->pick[id] - 1].node == n)
            return ALREADY;
        if (x->pick[id] || !bit(x->open, id))
            continue;
        for (uint32_t k = s->first; k < s->first + s->count; k++)
            if (x->option_list.at[k].node == n)
                best = PERHAPS;
    }
    return best;
}

/* Whether the tuple of a fused reduction is used as a whole: stored as partial results, or inside another tuple. */
static chance tuple_used(const extractor *x, ef_id class)
{
    ef_egraph *g = x->g;
    chance best = NEVER;
    for (uint32_t e = g->first_parent.at[ef_find(g, class)]; e != EF_NONE && best != ALREADY;
         e = g->parent.at[e].next) {
        ef_id n = g->parent.at[e].node;
        if (g->dead.at[n] || g->op.at[n] == EF_GET)
            continue;
        chance c = node_picked(x, n);
        best = c > best ? c : best;
    }
    return best;
}

/* Whether a field of a fused reduction is taken. */
static chance field_taken(const extractor *x, ef_id tuple, uint64_t field)
{
    ef_egraph *g = x->g;
    ef_id get = ef_egraph_lookup(g, EF_GET, field, &tuple, 1);
    if (get == EF_NONE)
        return ALREADY; /* the tuple itself is what is used */
    chance best = NEVER;
    for (ef_id n = ef_class_first(g, get); n != EF_NONE && best != ALREADY; n = ef_class_next(g, n)) {
        if (g->op.at[n] != EF_GET || ef_find(g, ef_node_children(g, n)[0]) != ef_find(g, tuple))
            continue;
        chance c = node_picked(x, n);
        best = c > best ? c : best;
    }
    return best;
}

/* Every part of a fused reduction is used: the reduction without that part is a candidate as well. The producer of a
 * repaired reduction is used by its consumer. Gives the fields that are still to be taken, as bits. */
static bool wastes_fusion(const extractor *x, slot_id id, const ef_reducer_info *r, unsigned *missing)
{
    ef_id class = x->slots.at[id].class;
    chance used = tuple_used(x, class);
    *missing = 0;
    for (unsigned field = r->kind == EF_RED_PRODUCT ? 0 : 1; field < 2 && used != ALREADY; field++) {
        chance taken = field_taken(x, class, field);
        if (taken == NEVER && used == NEVER)
            return true;
        if (taken != ALREADY)
            *missing |= 1u << field;
    }
    return false;
}

static bool wastes_some_fusion(const extractor *x)
{
    for (uint32_t i = 0; i < x->fused.count; i++) {
        slot_id id = x->fused.at[i];
        unsigned missing;
        const ef_reducer_info *r = x->pick[id] ? fused_reducer(x, x->option_list.at[x->pick[id] - 1].node) : NULL;
        if (r && wastes_fusion(x, id, r, &missing))
            return true;
    }
    return false;
}

/* The tensor, stored by a kernel, that option k of a slot loads and the picked option computes anew; else EF_NONE. */
static slot_id load_instead(const extractor *x, slot_id id, uint32_t k)
{
    const option *o = &x->option_list.at[k];
    if (x->slots.at[id].root || x->g->op.at[o->node] != EF_VIEW || x->pick[id] == k + 1)
        return EF_NONE;
    slot_id stored = x->child.at[o->first];
    return x->slots.at[stored].stores ? stored : EF_NONE;
}

/* A stored value is loaded wherever a kernel needs it: storing it and computing it again are never both worth it. */
static bool recomputes_stored(const extractor *x, const partial *p)
{
    for (uint32_t i = 0; i < p->picks; i++) {
        const slot *s = &x->slots.at[p->data[2 * i]];
        for (uint32_t k = s->first; k < s->first + s->count; k++) {
            slot_id stored = load_instead(x, p->data[2 * i], k);
            const option *o;
            if (stored != EF_NONE && picked_op(x, stored, &o) == EF_COMBINE)
                return true;
        }
    }
    return false;
}

static bool is_scalar(extractor *x, slot_id id)
{
    const ef_type_info *t = ef_type_at(x->ctx, ef_egraph_type(x->g, x->slots.at[id].class));
    for (unsigned i = 0; i < t->rank; i++)
        if (t->dim[i] != EF_UNIT)
            return false;
    return true;
}

/* Whether an option reduces or contracts a whole dimension inside a tile although the slot has a loop for it too. */
static bool whole_instead_of_loop(const extractor *x, const slot *s, const option *o)
{
    ef_egraph *g = x->g;
    if (g->op.at[o->node] != EF_REDUCE && g->op.at[o->node] != EF_TILE_MATMUL)
        return false;
    for (uint32_t k = s->first; k < s->first + s->count; k++) {
        ef_id n = x->option_list.at[k].node;
        if (g->op.at[n] == EF_REDUCE_P && ef_reducer_at(x->ctx, ef_attr_reducer(g->attr.at[n]))->leaves == 1)
            return true;
    }
    return false;
}

/* Marks and lists (in x->stack) the pointwise cone of an option's operands, its leaves included. */
static uint32_t mark_cone(extractor *x, const option *o)
{
    uint32_t top = 0;
    memset(x->mark, 0, x->slots.count);
    for (uint32_t next = 0;; next++) {
        for (uint32_t c = 0; o && c < o->count; c++) {
            slot_id child = x->child.at[o->first + c];
            if (!x->mark[child]) {
                x->mark[child] = 1;
                x->stack[top++] = child;
            }
        }
        if (next == top)
            return top;
        o = NULL;
        ef_op op = picked_op(x, x->stack[next], &o);
        if (op == EF_OP_COUNT || !ef_op_pointwise(op))
            o = NULL;
    }
}

/* Whether the option of a picked slot takes something of the marked cone without being inside of it: a reduction that
 * is a leaf of the cone uses the tile once more. */
static bool takes_from_cone(extractor *x, slot_id reduction, slot_id t)
{
    const option *o = &x->option_list.at[x->pick[t] - 1];
    if (t == reduction || (x->mark[t] && ef_op_pointwise((ef_op)x->g->op.at[o->node])))
        return false;
    for (uint32_t c = 0; c < o->count; c++) {
        slot_id child = x->child.at[o->first + c];
        if (x->mark[child] && !is_scalar(x, child))
            return true;
    }
    return false;
}

/* A whole dimension in a tile is the loop with one trip, which the loop's schedules include. It is another program only
 * where the whole tile serves something else as well, as in a row that is reduced and then used. */
static bool whole_for_nothing(extractor *x, const partial *p)
{
    for (uint32_t i = 0; i < p->picks; i++) {
        slot_id id = p->data[2 * i];
        const option *o = &x->option_list.at[p->data[2 * i + 1]];
        if (!whole_instead_of_loop(x, &x->slots.at[id], o))
            continue;
        uint32_t cone = mark_cone(x, o);
        bool shared = false;
        for (uint32_t c = 0; c < cone && !shared; c++)
            shared = bit(x->open, x->stack[c]);
        for (uint32_t k = 0; k < p->picks && !shared; k++)
            shared = takes_from_cone(x, id, p->data[2 * k]);
        if (!shared)
            return true;
    }
    return false;
}

static void mix_duty(uint64_t out[2], uint64_t kind, uint64_t a, uint64_t b)
{
    out[0] += mix(mix(mix(0xd001, kind), a), b);
    out[1] += mix(mix(mix(0xd002, kind), a), b);
}

/* Tensors that may not be stored, because a kernel computes their values anew. */
static void store_duties(extractor *x, const partial *p, uint64_t out[2])
{
    memset(x->mark, 0, x->slots.count);
    for (uint32_t i = 0; i < p->picks; i++) {
        const slot *s = &x->slots.at[p->data[2 * i]];
        for (uint32_t k = s->first; k < s->first + s->count; k++) {
            slot_id stored = load_instead(x, p->data[2 * i], k);
            if (stored == EF_NONE || x->mark[stored] || x->pick[stored] || !bit(x->open, stored))
                continue;
            x->mark[stored] = 1;
            mix_duty(out, 1, stored, 0);
        }
    }
}

/* Parts of fused reductions that are still to be used; and, where the reduction is not picked yet, those that are. */
static void fusion_duties(const extractor *x, uint64_t out[2])
{
    for (uint32_t i = 0; i < x->fused.count; i++) {
        slot_id id = x->fused.at[i];
        ef_id class = x->slots.at[id].class;
        unsigned missing = 0;
        if (x->pick[id]) {
            const ef_reducer_info *r = fused_reducer(x, x->option_list.at[x->pick[id] - 1].node);
            if (r && !wastes_fusion(x, id, r, &missing) && missing)
                mix_duty(out, 2, id, missing);
        } else if (bit(x->open, id)) {
            unsigned done = (tuple_used(x, class) == ALREADY) | (field_taken(x, class, 0) == ALREADY) << 1 |
                            (field_taken(x, class, 1) == ALREADY) << 2;
            mix_duty(out, 3, id, done);
        }
    }
}

/* Whole reductions of tiles that nothing else is sure to use: what may come to use them, and what of them. */
static void whole_duties(extractor *x, const partial *p, uint64_t out[2])
{
    for (uint32_t i = 0; i < p->picks; i++) {
        slot_id id = p->data[2 * i];
        const option *o = &x->option_list.at[p->data[2 * i + 1]];
        if (!whole_instead_of_loop(x, &x->slots.at[id], o))
            continue;
        uint32_t cone = mark_cone(x, o);
        uint64_t duty[2] = {0, 0};
        bool sure = false;
        memset(x->cone_open, 0, x->words * sizeof *x->cone_open);
        for (uint32_t c = 0; c < cone; c++) {
            if (!x->pick[x->stack[c]])
                add_reach(x, x->stack[c], x->cone_open);
            if (bit(x->open, x->stack[c]))
                mix_duty(duty, 5, id, x->stack[c]);
        }
        for (uint32_t k = 0; k < p->picks && !sure; k++) {
            slot_id t = p->data[2 * k];
            if (!takes_from_cone(x, id, t))
                continue;
            sure = !bit(x->cone_open, t); /* else it may become a part of the cone */
            mix_duty(duty, 6, id, t);
        }
        if (!sure) {
            mix_duty(out, 4, id, 0);
            out[0] += duty[0];
            out[1] += duty[1];
        }
    }
}

/* The signature of a partial program: canonical outputs, canonical picked slots that its holes can reach, and duties.
 * Partial programs with the same signature have the same completions. */
static void signature(extractor *x, const partial *p, uint64_t out[2])
{
    uint64_t h[2];
    memset(x->mark, 0, x->slots.count);
    out[0] = out[1] = 0x77;
    for (uint32_t i = 0; i < x->search->outputs; i++) {
        form_hash(canon_of(x, slot_of(x, x->search->output[i], false)), h);
        out[0] = mix(out[0], h[0]);
        out[1] = mix(out[1], h[1]);
    }
    if (!p->holes)
        return;
    for (uint32_t i = 0; i < p->picks; i++) {
        slot_id s = p->data[2 * i];
        if (!bit(x->open, s))
            continue;
        form_hash(canon_of(x, s), h);
        out[0] += mix(mix(h[0], s), 5);
        out[1] += mix(mix(h[1], s), 7);
    }
    store_duties(x, p, out);
    fusion_duties(x, out);
    whole_duties(x, p, out);
}

/* ---- complete programs ---- */

/* EF_NONE when the program has no such expression. */
static ef_expr emit(extractor *x, slot_id id, ef_expr *memo)
{
    if (memo[id] != EF_NONE || !x->pick[id])
        return memo[id];
    const option *o = &x->option_list.at[x->pick[id] - 1];
    ef_expr child[MAX_CHILD_SLOTS];
    for (uint32_t i = 0; i < o->count; i++) {
        child[i] = emit(x, x->child.at[o->first + i], memo);
        if (child[i] == EF_NONE)
            return EF_NONE;
    }
    return memo[id] =
               ef_dag_add(x->result->dag, (ef_op)x->g->op.at[o->node], x->g->attr.at[o->node], child, o->count, NULL);
}

static void keep_candidate(extractor *x, const partial *p, const uint64_t canon[2])
{
    if (x->result->candidate.count >= x->options->keep)
        return;
    ef_candidate c = {.cost = p->cost, .canon = {canon[0], canon[1]}};
    bool built = true;
    ef_expr *memo = ef_xcalloc(x->slots.count, sizeof *memo);
    memset(memo, 0xff, x->slots.count * sizeof *memo);
    c.output = ef_xcalloc(x->search->outputs, sizeof *c.output);
    for (uint32_t i = 0; i < x->search->outputs; i++) {
        c.output[i] = emit(x, slot_of(x, x->search->output[i], false), memo);
        built = built && c.output[i] != EF_NONE;
    }
    free(memo);
    if (built)
        ef_vec_push(&x->result->candidate, c);
    else
        free(c.output);
}

static void finish(extractor *x, const partial *p)
{
    uint64_t canon[2];
    int fresh = 1;
    x->result->built++;
    load_picks(x, p);
    signature(x, p, canon);
    if (x->options->compaction == EF_COMPACT_AFTER) /* in early mode the queue has compared it already */
        ef_intern_put(x->seen, canon, sizeof canon, &fresh);
    if (fresh) {
        x->result->candidates++;
        x->result->fingerprint[0] += mix(canon[0], 11);
        x->result->fingerprint[1] += mix(canon[1], 13);
        keep_candidate(x, p, canon);
    }
    clear_picks(x, p);
}

/* ---- Algorithm 1 ---- */

/* Whether the partial program, whose picks and holes are loaded, is new; in early mode equivalent ones are pruned
 * before they are queued. */
static bool is_new(extractor *x, const partial *q)
{
    uint64_t sign[2];
    int fresh = 1;
    if (x->options->compaction != EF_COMPACT_EARLY)
        return true;
    signature(x, q, sign);
    ef_intern_put(x->seen, sign, sizeof sign, &fresh);
    return fresh;
}

static int by_cost(const void *a, const void *b)
{
    double x = ((const ef_candidate *)a)->cost, y = ((const ef_candidate *)b)->cost;
    return x < y ? -1 : x > y;
}

/* Where nothing can be extracted the program stands as it was written: one kernel an operator. */
static void keep_original(extractor *x)
{
    const ef_program *program = x->search->program;
    ef_dag *from = program->dag;
    uint32_t count = ef_dag_count(from);
    ef_expr *copy = ef_xcalloc(count, sizeof *copy);
    ef_candidate c = {.output = ef_xcalloc(program->outputs, sizeof *c.output)};
    for (ef_expr e = 0; e < count; e++) {
        const ef_expr *child;
        ef_expr mapped[MAX_CHILD_SLOTS];
        unsigned n = ef_dag_children(from, e, &child);
        for (unsigned i = 0; i < n; i++)
            mapped[i] = copy[child[i]];
        copy[e] = ef_dag_add_exact(x->result->dag, ef_dag_op(from, e), ef_dag_attr(from, e), mapped, n, NULL);
        if (ef_ops[ef_dag_op(from, e)].class != EF_LEAF)
            c.cost += MICROSECONDS_PER_KERNEL + 4 * elements(x, ef_dag_type(from, e)) * MICROSECONDS_PER_BYTE;
    }
    for (uint32_t i = 0; i < program->outputs; i++)
        c.output[i] = copy[program->output[i].expr];
    free(copy);
    x->result->candidates = 1;
    if (x->options->keep)
        ef_vec_push(&x->result->candidate, c);
    else
        free(c.output);
}

/* All programs with one more hole picked that may still become a candidate. */
static void children_of(extractor *x, const partial *p, partials *out)
{
    slot_id hole = p->data[2 * (size_t)p->picks];
    const slot *s = &x->slots.at[hole];
    out->count = 0;
    for (uint32_t k = s->first; k < s->first + s->count; k++) {
        load_picks(x, p);
        bool good = !closes_cycle(x, hole, &x->option_list.at[k]);
        partial q = {0};
        if (good)
            q = extend(x, p, k);
        clear_picks(x, p);
        if (!good)
            continue;
        load_picks(x, &q);
        load_holes(x, &q);
        good = !wastes_some_fusion(x) && !recomputes_stored(x, &q) && !whole_for_nothing(x, &q);
        clear_picks(x, &q);
        if (good)
            ef_vec_push(out, q);
        else
            free(q.data);
    }
}

static void expand(extractor *x, const partial *p)
{
    x->result->expanded++;
    children_of(x, p, &x->children);
    for (uint32_t i = 0; i < x->children.count; i++) {
        partial q = x->children.at[i];
        load_picks(x, &q);
        load_holes(x, &q);
        bool fresh = is_new(x, &q);
        clear_picks(x, &q);
        if (fresh)
            heap_push(x, q);
        else
            free(q.data);
    }
}

static int cheapest_last(const void *a, const void *b)
{
    const partial *p = a, *q = b;
    return before(p, q) ? 1 : before(q, p) ? -1 : 0;
}

#define DIVE_STEPS 20000

/* Depth first, cheapest option first: when the budget ends before anything is complete, some program is better than
 * none. */
static void dive(extractor *x, partial first)
{
    partials stack = {0};
    ef_vec_push(&stack, first);
    for (unsigned step = 0; stack.count && step < DIVE_STEPS && x->result->candidates == 0; step++) {
        partial p = stack.at[--stack.count];
        if (p.holes) {
            children_of(x, &p, &x->children);
            if (x->children.count > 1)
                qsort(x->children.at, x->children.count, sizeof(partial), cheapest_last);
            for (uint32_t i = 0; i < x->children.count; i++)
                ef_vec_push(&stack, x->children.at[i]);
        } else {
            finish(x, &p);
        }
        free(p.data);
    }
    for (uint32_t i = 0; i < stack.count; i++)
        free(stack.at[i].data);
    ef_vec_free(&stack);
}

#define SEEN_BYTES 48 /* a signature that was seen: the key, its place, and its part of a sparse hash table */
static size_t seen_bytes(const extractor *x)
{
    return (size_t)ef_intern_count(x->seen) * SEEN_BYTES;
}

static bool out_of_budget(const extractor *x, double start)
{
    const ef_extract_options *o = x->options;
    double limit = o->time_limit > 0 ? o->time_limit : 60;
    if (o->state_limit && x->result->expanded >= o->state_limit)
        return true;
    if (x->heap_bytes + seen_bytes(x) > (o->memory_limit ? o->memory_limit : (size_t)4 << 30))
        return true;
    return (x->result->expanded & 255) == 0 && ef_seconds() - start > limit;
}

ef_extraction *ef_extract(ef_search *search, const ef_extract_options *options)
{
    double start = ef_seconds();
    extractor x = {.search = search, .g = search->graph, .ctx = search->ctx, .options = options};
    x.scope = (ef_scope){x.ctx, x.g, search->policy};
    ef_vec_reserve(&x.slots, 1); /* arrays that are never null, however few programs there are */
    ef_vec_reserve(&x.option_list, 1);
    ef_vec_reserve(&x.child, 1);
    x.slot_ids = ef_intern_new();
    x.seen = ef_intern_new();
    x.result = ef_xcalloc(1, sizeof *x.result);
    x.result->dag = ef_dag_new(x.ctx);
    build_slots(&x);
    partial first = {.holes = 0, .data = ef_xcalloc(search->outputs, sizeof *first.data)};
    for (uint32_t i = 0; i < search->outputs; i++) {
        slot_id s = slot_of(&x, search->output[i], false);
        bool known = false;
        for (uint32_t k = 0; k < first.holes && !known; k++)
            known = first.data[k] == s;
        if (!known)
            first.data[first.holes++] = s;
    }
    partial again = first; /* for the dive */
    again.data = ef_xcalloc(search->outputs, sizeof *again.data);
    memcpy(again.data, first.data, search->outputs * sizeof *again.data);
    heap_push(&x, first);
    while (x.heap.count && !out_of_budget(&x, start)) {
        partial p = heap_pop(&x);
        if (p.holes)
            expand(&x, &p);
        else
            finish(&x, &p);
        free(p.data);
    }
    x.result->complete = x.heap.count == 0 && x.result->candidates; /* no candidate: an output that nothing fills */
    if (x.result->candidates == 0)
        dive(&x, again);
    else
        free(again.data);
    if (x.result->candidates == 0)
        keep_original(&x);
    if (x.result->candidate.count)
        qsort(x.result->candidate.at, x.result->candidate.count, sizeof(ef_candidate), by_cost);
    for (uint32_t i = 0; i < x.heap.count; i++)
        free(x.heap.at[i].data);
    ef_vec_free(&x.heap);
    ef_vec_free(&x.children);
    ef_vec_free(&x.slots);
    ef_vec_free(&x.option_list);
    ef_vec_free(&x.child);
    ef_vec_free(&x.need);
    ef_intern_free(x.slot_ids);
    ef_intern_free(x.seen);
    free(x.reach);
    free(x.pick);
    free(x.canon);
    free(x.mark);
    free(x.stack);
    free(x.open);
    free(x.cone_open);
    ef_vec_free(&x.fused);
    x.result->seconds = ef_seconds() - start;
    return x.result;
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
