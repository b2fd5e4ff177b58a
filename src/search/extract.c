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
    bool root;             /* the class as a kernel's root */
    uint32_t first, count; /* its options */
    double least;          /* optimistic cost of the cheapest way to fill it and what it needs */
} slot;

/* A partial program: picks sorted by slot; holes in the order in which they appeared. */
typedef struct {
    double cost, bound;
    uint64_t serial; /* ties: first come, first served */
    uint32_t picks, holes;
    uint32_t *data; /* picks (slot, option) pairs, then holes */
} partial;

typedef struct {
    ef_search *search;
    ef_egraph *g;
    ef_ctx *ctx;
    const ef_extract_options *options;
    ef_scope scope;
    EF_VEC(slot) slots;
    EF_VEC(option) option_list;
    EF_VEC(slot_id) child;
    ef_intern *slot_ids;
    uint64_t *reach; /* bit matrix: which slots a slot can need, itself included */
    uint32_t words;
    EF_VEC(partial) heap;
    size_t heap_bytes;
    uint64_t serial;
    ef_intern *seen;
    /* scratch, by slot */
    uint32_t *pick; /* option + 1 */
    uint64_t (*canon)[2];
    uint8_t *mark;
    slot_id *stack; /* explicit stack for walks */
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

/* ---- optimistic cost: what no schedule can avoid, on a machine of 4 TB/s and 400 TFLOP/s ---- */

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

static double node_cost(extractor *x, ef_id n)
{
    ef_egraph *g = x->g;
    double size = elements(x, ef_egraph_type(g, n));
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
        slot_id children[MAX_CHILD_SLOTS];
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

/* ---- equivalent options, before any program is built ----
 *
 * The FORMS of a slot are the canonical pointwise expressions that its options spell over atoms; a slot that can be
 * filled otherwise (loaded, reduced, …) is an atom as well. An option whose forms another option of the slot has too
 * adds spellings, not programs: early compaction drops it. */

#define MAX_FORMS 48

typedef enum { FORM_ATOM, FORM_PRODUCT, FORM_SUM } form_kind;

typedef struct {
    form_kind kind;
    uint64_t h[2]; /* products and sums: the sum of their members' hashes, inverses negated */
} form;

typedef struct {
    uint8_t state; /* 0 unknown, 1 in progress, 2 known */
    bool overflow; /* too many, or a cycle: nothing can be said */
    uint32_t count;
    form at[MAX_FORMS];
} forms;

static void forms_add(forms *f, form one)
{
    for (uint32_t i = 0; i < f->count; i++)
        if (f->at[i].kind == one.kind && f->at[i].h[0] == one.h[0] && f->at[i].h[1] == one.h[1])
            return;
    if (f->count == MAX_FORMS)
        f->overflow = true;
    else
        f->at[f->count++] = one;
}

/* A form as a member of a product or sum. */
static form member(form f, form_kind of)
{
    if (f.kind == of)
        return f;
    return (form){of, {mix(mix(0x61, f.h[0]), f.kind), mix(mix(0x62, f.h[1]), f.kind)}};
}

static form inverse(form f)
{
    return (form){f.kind, {-f.h[0], -f.h[1]}};
}

static form join(form a, form b)
{
    return (form){a.kind, {a.h[0] + b.h[0], a.h[1] + b.h[1]}};
}

static form form_of(ef_op op, uint64_t attr, const form *x, unsigned count)
{
    switch (op) {
    case EF_MUL: return join(member(x[0], FORM_PRODUCT), member(x[1], FORM_PRODUCT));
    case EF_DIV: return join(member(x[0], FORM_PRODUCT), inverse(member(x[1], FORM_PRODUCT)));
    case EF_RECIP: return inverse(member(x[0], FORM_PRODUCT));
    case EF_ADD: return join(member(x[0], FORM_SUM), member(x[1], FORM_SUM));
    case EF_SUB: return join(member(x[0], FORM_SUM), inverse(member(x[1], FORM_SUM)));
    case EF_NEG: return inverse(member(x[0], FORM_SUM));
    case EF_SQRT:
    case EF_RSQRT: {
        form root = {FORM_ATOM, {mix(x[0].h[0], 0x71u + x[0].kind), mix(x[0].h[1], 0x72u + x[0].kind)}};
        root = member(root, FORM_PRODUCT);
        return op == EF_RSQRT ? inverse(root) : root;
    }
    default: break;
    }
    form f = {FORM_ATOM, {mix(mix(0x81, op), attr), mix(mix(0x82, op), attr)}};
    uint64_t sum[2] = {0, 0};
    for (unsigned i = 0; i < count; i++) {
        form m = member(x[i], FORM_PRODUCT);
        sum[0] += m.h[0], sum[1] += m.h[1];
        if (!ef_op_commutative(op))
            f.h[0] = mix(f.h[0], m.h[0]), f.h[1] = mix(f.h[1], m.h[1]);
    }
    if (ef_op_commutative(op))
        f.h[0] = mix(f.h[0], sum[0]), f.h[1] = mix(f.h[1], sum[1]);
    return f;
}

static const forms *forms_of_slot(extractor *x, forms *all, slot_id id);

static void forms_of_option(extractor *x, forms *all, const option *o, forms *out)
{
    ef_op op = (ef_op)x->g->op.at[o->node];
    uint32_t at[3] = {0, 0, 0};
    const forms *child[3];
    for (uint32_t i = 0; i < o->count; i++) {
        child[i] = forms_of_slot(x, all, x->child.at[o->first + i]);
        if (child[i]->overflow || child[i]->count == 0) {
            out->overflow = true;
            return;
        }
    }
    for (bool more = true; more && !out->overflow;) {
        form operand[3];
        for (uint32_t i = 0; i < o->count; i++)
            operand[i] = child[i]->at[at[i]];
        forms_add(out, form_of(op, x->g->attr.at[o->node], operand, o->count));
        more = false;
        for (uint32_t i = 0; i < o->count && !more; i++) { /* the next combination */
            more = ++at[i] < child[i]->count;
            if (!more)
                at[i] = 0;
        }
    }
}

static const forms *forms_of_slot(extractor *x, forms *all, slot_id id)
{
    forms *f = &all[id];
    if (f->state == 1)
        f->overflow = true;
    if (f->state)
        return f;
    f->state = 1;
    const slot *s = &x->slots.at[id];
    bool atom = s->count == 0;
    for (uint32_t k = s->first; k < s->first + s->count; k++) {
        if (ef_op_pointwise((ef_op)x->g->op.at[x->option_list.at[k].node]))
            forms_of_option(x, all, &x->option_list.at[k], f);
        else
            atom = true;
    }
    if (atom)
        forms_add(f, (form){FORM_ATOM, {mix(0x91, id), mix(0x92, id)}});
    f->state = 2;
    return f;
}

static bool forms_within(const forms *inner, const forms *outer)
{
    for (uint32_t i = 0; i < inner->count; i++) {
        bool found = false;
        for (uint32_t k = 0; k < outer->count && !found; k++)
            found = inner->at[i].kind == outer->at[k].kind && inner->at[i].h[0] == outer->at[k].h[0] &&
                    inner->at[i].h[1] == outer->at[k].h[1];
        if (!found)
            return false;
    }
    return true;
}

static void drop_spellings(extractor *x)
{
    forms *all = ef_xcalloc(x->slots.count, sizeof *all);
    for (slot_id id = 0; id < x->slots.count; id++)
        forms_of_slot(x, all, id);
    for (slot_id id = 0; id < x->slots.count; id++) {
        slot *s = &x->slots.at[id];
        forms *own = ef_xcalloc(s->count, sizeof *own);
        bool *drop = ef_xcalloc(s->count, sizeof *drop);
        for (uint32_t k = 0; k < s->count; k++)
            if (ef_op_pointwise((ef_op)x->g->op.at[x->option_list.at[s->first + k].node]))
                forms_of_option(x, all, &x->option_list.at[s->first + k], &own[k]);
        for (uint32_t a = 0; a < s->count; a++)
            for (uint32_t b = 0; b < s->count && !drop[a]; b++)
                drop[a] = a != b && !drop[b] && own[a].count && !own[a].overflow && !own[b].overflow &&
                          forms_within(&own[a], &own[b]);
        uint32_t kept = 0;
        for (uint32_t k = 0; k < s->count; k++)
            if (!drop[k])
                x->option_list.at[s->first + kept++] = x->option_list.at[s->first + k];
        s->count = kept;
        free(own);
        free(drop);
    }
    free(all);
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
}

/* ---- canonical forms ---- */

/* Terms of a flattened sum or product: hashes are added, so that order and grouping do not matter. */
typedef struct {
    uint64_t sum[2];
    unsigned terms;
} flat;

static void canon_of(extractor *x, slot_id id, uint64_t out[2]);

static void flat_add(flat *f, const uint64_t h[2], unsigned inverse)
{
    f->sum[0] += mix(mix(0x51, h[0]), inverse);
    f->sum[1] += mix(mix(0x52, h[1]), inverse);
    f->terms++;
}

static ef_op picked_op(const extractor *x, slot_id id, const option **o)
{
    if (!x->pick[id])
        return EF_OP_COUNT;
    *o = &x->option_list.at[x->pick[id] - 1];
    return (ef_op)x->g->op.at[(*o)->node];
}

/* Multiplies the canonical factors of a slot into `f`: products, quotients and roots of one factor open up. */
static void factors(extractor *x, slot_id id, unsigned inverse, flat *f)
{
    const option *o;
    ef_op op = picked_op(x, id, &o);
    if (op == EF_MUL || op == EF_DIV) {
        factors(x, x->child.at[o->first], inverse, f);
        factors(x, x->child.at[o->first + 1], op == EF_DIV ? !inverse : inverse, f);
    } else if (op == EF_RECIP) {
        factors(x, x->child.at[o->first], !inverse, f);
    } else if (op == EF_RSQRT || op == EF_SQRT) {
        uint64_t h[2];
        canon_of(x, x->child.at[o->first], h);
        h[0] = mix(h[0], EF_SQRT), h[1] = mix(h[1], EF_SQRT);
        flat_add(f, h, op == EF_RSQRT ? !inverse : inverse);
    } else {
        uint64_t h[2];
        canon_of(x, id, h);
        flat_add(f, h, inverse);
    }
}

static void summands(extractor *x, slot_id id, unsigned inverse, flat *f)
{
    const option *o;
    ef_op op = picked_op(x, id, &o);
    if (op == EF_ADD || op == EF_SUB) {
        summands(x, x->child.at[o->first], inverse, f);
        summands(x, x->child.at[o->first + 1], op == EF_SUB ? !inverse : inverse, f);
    } else if (op == EF_NEG) {
        summands(x, x->child.at[o->first], !inverse, f);
    } else {
        uint64_t h[2];
        canon_of(x, id, h);
        flat_add(f, h, inverse);
    }
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
    } else if (op == EF_TRANSPOSE || op == EF_RESHAPE || op == EF_BROADCAST || op == EF_SLICE) {
        canon_view(x, x->child.at[o->first], axes, out);
        out[0] = mix(mix(out[0], op), x->g->attr.at[o->node]);
        out[1] = mix(mix(out[1], op + 77u), x->g->attr.at[o->node]);
    } else {
        axes = cutting(x, axes, ef_egraph_type(x->g, x->slots.at[id].class));
        canon_of(x, id, out);
        if (axes == 0)
            return;
        out[0] = mix(out[0], axes + 1001u);
        out[1] = mix(out[1], axes + 2003u);
    }
}

static void canon_node(extractor *x, slot_id id, uint64_t out[2])
{
    const option *o = NULL;
    ef_op op = picked_op(x, id, &o);
    if (op == EF_OP_COUNT) { /* a hole */
        out[0] = mix(0xabc1, id);
        out[1] = mix(0xabc2, id);
        return;
    }
    if (op == EF_MUL || op == EF_DIV || op == EF_RECIP || op == EF_ADD || op == EF_SUB || op == EF_NEG ||
        op == EF_RSQRT || op == EF_SQRT) {
        flat f = {{0}, 0};
        bool product = op == EF_MUL || op == EF_DIV || op == EF_RECIP || op == EF_RSQRT || op == EF_SQRT;
        if (product)
            factors(x, id, 0, &f);
        else
            summands(x, id, 0, &f);
        out[0] = mix(mix(f.sum[0], f.terms), product);
        out[1] = mix(mix(f.sum[1], f.terms), product);
        return;
    }
    if (op == EF_VIEW || op == EF_TRANSPOSE || op == EF_RESHAPE || op == EF_BROADCAST || op == EF_SLICE) {
        canon_view(x, id, 0, out);
        return;
    }
    uint64_t h[2], sum[2] = {0, 0};
    out[0] = mix(mix(0x1001, op), x->g->attr.at[o->node]);
    out[1] = mix(mix(0x2002, op), x->g->attr.at[o->node]);
    for (uint32_t i = 0; i < o->count; i++) {
        canon_of(x, x->child.at[o->first + i], h);
        sum[0] += h[0], sum[1] += h[1];
        if (!ef_op_commutative(op))
            out[0] = mix(out[0], h[0]), out[1] = mix(out[1], h[1]);
    }
    if (ef_op_commutative(op))
        out[0] = mix(out[0], sum[0]), out[1] = mix(out[1], sum[1]);
}

static void canon_of(extractor *x, slot_id id, uint64_t out[2])
{
    if (!x->mark[id]) {
        uint64_t h[2];
        canon_node(x, id, h);
        x->canon[id][0] = h[0];
        x->canon[id][1] = h[1];
        x->mark[id] = 1;
    }
    out[0] = x->canon[id][0];
    out[1] = x->canon[id][1];
}

/* ---- partial programs ---- */

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

/* The signature of a partial program: canonical outputs, and canonical picked slots that its holes can reach. */
static void signature(extractor *x, const partial *p, uint64_t out[2])
{
    uint64_t h[2];
    memset(x->mark, 0, x->slots.count);
    out[0] = out[1] = 0x77;
    for (uint32_t i = 0; i < x->search->outputs; i++) {
        canon_of(x, slot_of(x, x->search->output[i], false), h);
        out[0] = mix(out[0], h[0]);
        out[1] = mix(out[1], h[1]);
    }
    const uint32_t *hole = p->data + 2 * (size_t)p->picks;
    for (uint32_t i = 0; i < p->picks && p->holes; i++) {
        slot_id s = p->data[2 * i];
        bool reached = false;
        for (uint32_t k = 0; k < p->holes && !reached; k++)
            reached = x->reach[(size_t)hole[k] * x->words + s / 64] >> (s % 64) & 1;
        if (!reached)
            continue;
        canon_of(x, s, h);
        out[0] += mix(mix(h[0], s), 5);
        out[1] += mix(mix(h[1], s), 7);
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

/* ---- complete programs ---- */

static ef_expr emit(extractor *x, slot_id id, ef_expr *memo)
{
    if (memo[id] != EF_NONE)
        return memo[id];
    const option *o = &x->option_list.at[x->pick[id] - 1];
    ef_expr child[MAX_CHILD_SLOTS];
    for (uint32_t i = 0; i < o->count; i++)
        child[i] = emit(x, x->child.at[o->first + i], memo);
    return memo[id] =
               ef_dag_add(x->result->dag, (ef_op)x->g->op.at[o->node], x->g->attr.at[o->node], child, o->count, NULL);
}

static void keep_candidate(extractor *x, const partial *p, const uint64_t canon[2])
{
    if (x->result->candidate.count >= x->options->keep)
        return;
    ef_candidate c = {.cost = p->cost, .canon = {canon[0], canon[1]}};
    ef_expr *memo = ef_xcalloc(x->slots.count, sizeof *memo);
    memset(memo, 0xff, x->slots.count * sizeof *memo);
    c.output = ef_xcalloc(x->search->outputs, sizeof *c.output);
    for (uint32_t i = 0; i < x->search->outputs; i++)
        c.output[i] = emit(x, slot_of(x, x->search->output[i], false), memo);
    free(memo);
    ef_vec_push(&x->result->candidate, c);
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

/* Whether the partial program is new; in early mode equivalent ones are pruned before they are queued. */
static bool is_new(extractor *x, const partial *q)
{
    uint64_t sign[2];
    int fresh = 1;
    if (x->options->compaction != EF_COMPACT_EARLY)
        return true;
    load_picks(x, q);
    signature(x, q, sign);
    clear_picks(x, q);
    ef_intern_put(x->seen, sign, sizeof sign, &fresh);
    return fresh;
}

/* Whether the tuple of a fused reduction is picked as a whole: stored as partial results, or inside another tuple. */
static bool tuple_is_used(extractor *x, ef_id class)
{
    ef_egraph *g = x->g;
    for (uint32_t e = g->first_parent.at[ef_find(g, class)]; e != EF_NONE; e = g->parent.at[e].next) {
        ef_id n = g->parent.at[e].node;
        if (g->dead.at[n] || g->op.at[n] == EF_GET)
            continue;
        for (uint32_t role = 0; role < 2; role++) {
            uint32_t key[] = {ef_find(g, n), role};
            slot_id s = ef_intern_find(x->slot_ids, key, sizeof key);
            if (s != UINT32_MAX && x->pick[s] && x->option_list.at[x->pick[s] - 1].node == n)
                return true;
        }
    }
    return false;
}

/* Whether a field of a fused reduction is taken, or still can be. */
static bool field_in_use(extractor *x, const partial *p, ef_id tuple, uint64_t field)
{
    ef_egraph *g = x->g;
    ef_id get = ef_egraph_lookup(g, EF_GET, field, &tuple, 1);
    const uint32_t *hole = p->data + 2 * (size_t)p->picks;
    if (get == EF_NONE)
        return true; /* the tuple itself is what is used */
    for (uint32_t role = 0; role < 2; role++) {
        uint32_t key[] = {ef_find(g, get), role};
        slot_id s = ef_intern_find(x->slot_ids, key, sizeof key);
        if (s == UINT32_MAX)
            continue;
        if (x->pick[s]) {
            ef_id n = x->option_list.at[x->pick[s] - 1].node;
            if (g->op.at[n] == EF_GET && ef_find(g, ef_node_children(g, n)[0]) == ef_find(g, tuple))
                return true;
            continue;
        }
        for (uint32_t k = 0; k < p->holes; k++)
            if (x->reach[(size_t)hole[k] * x->words + s / 64] >> (s % 64) & 1)
                return true;
    }
    return false;
}

/* Fused reductions of which a part goes unused are left out: the reduction without that part is a candidate as well.
 * The producer of a repaired reduction is used by its consumer. */
static bool wastes_fusion(extractor *x, const partial *p)
{
    ef_egraph *g = x->g;
    for (uint32_t i = 0; i < p->picks; i++) {
        ef_id n = x->option_list.at[p->data[2 * i + 1]].node;
        if ((g->op.at[n] != EF_REDUCE_P && g->op.at[n] != EF_REDUCE) || x->slots.at[p->data[2 * i]].root)
            continue;
        const ef_reducer_info *r = ef_reducer_at(x->ctx, ef_attr_reducer(g->attr.at[n]));
        ef_id class = x->slots.at[p->data[2 * i]].class;
        if (r->leaves == 1 || tuple_is_used(x, class))
            continue;
        if (!field_in_use(x, p, class, 1) || (r->kind == EF_RED_PRODUCT && !field_in_use(x, p, class, 0)))
            return true;
    }
    return false;
}

/* A stored value is loaded wherever a kernel needs it: storing it and computing it again are never both worth it. */
static bool recomputes_stored(const extractor *x, const partial *p)
{
    for (uint32_t i = 0; i < p->picks; i++) {
        const slot *s = &x->slots.at[p->data[2 * i]];
        if (s->root)
            continue;
        for (uint32_t k = s->first; k < s->first + s->count; k++) {
            const option *o = &x->option_list.at[k];
            if (x->g->op.at[o->node] != EF_VIEW || p->data[2 * i + 1] == k)
                continue;
            uint32_t stored = x->pick[x->child.at[o->first]];
            if (stored && x->g->op.at[x->option_list.at[stored - 1].node] == EF_COMBINE)
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

/* A whole dimension in a tile is the loop with one trip, which the loop's schedules include. It is another program only
 * where the whole tile serves something else as well, as in a row that is reduced and then used. */
static bool whole_for_nothing(extractor *x, const partial *p)
{
    const uint32_t *hole = p->data + 2 * (size_t)p->picks;
    for (uint32_t i = 0; i < p->picks; i++) {
        const option *o = &x->option_list.at[p->data[2 * i + 1]];
        if (!whole_instead_of_loop(x, &x->slots.at[p->data[2 * i]], o))
            continue;
        uint32_t top = 0, count = 0;
        bool shared = false;
        memset(x->mark, 0, x->slots.count);
        for (uint32_t c = 0; c < o->count; c++)
            x->stack[top++] = x->child.at[o->first + c];
        while (count < top) { /* the operand's pointwise cone; the stack is its list */
            slot_id s = x->stack[count++];
            x->mark[s] = 1;
            if (!x->pick[s] || !ef_op_pointwise((ef_op)x->g->op.at[x->option_list.at[x->pick[s] - 1].node]))
                continue;
            const option *q = &x->option_list.at[x->pick[s] - 1];
            for (uint32_t c = 0; c < q->count; c++)
                if (!x->mark[x->child.at[q->first + c]]) {
                    x->mark[x->child.at[q->first + c]] = 1;
                    x->stack[top++] = x->child.at[q->first + c];
                }
        }
        for (uint32_t k = 0; k < p->picks && !shared; k++) {
            slot_id t = p->data[2 * k];
            if (k == i || x->mark[t])
                continue;
            const option *q = &x->option_list.at[p->data[2 * k + 1]];
            for (uint32_t c = 0; c < q->count && !shared; c++) {
                slot_id child = x->child.at[q->first + c];
                shared = x->mark[child] && !is_scalar(x, child);
            }
        }
        for (uint32_t k = 0; k < p->holes && !shared; k++)
            for (uint32_t c = 0; c < top && !shared; c++)
                shared = x->reach[(size_t)hole[k] * x->words + x->stack[c] / 64] >> (x->stack[c] % 64) & 1;
        if (!shared)
            return true;
    }
    return false;
}

static void expand(extractor *x, partial *p)
{
    slot_id hole = p->data[2 * (size_t)p->picks];
    const slot *s = &x->slots.at[hole];
    x->result->expanded++;
    for (uint32_t k = s->first; k < s->first + s->count; k++) {
        load_picks(x, p);
        bool good = !closes_cycle(x, hole, &x->option_list.at[k]);
        partial q = {0};
        if (good) {
            q = extend(x, p, k);
            x->pick[hole] = k + 1;
            good = !wastes_fusion(x, &q) && !recomputes_stored(x, &q) && !whole_for_nothing(x, &q);
            x->pick[hole] = 0;
        }
        clear_picks(x, p);
        if (good && is_new(x, &q))
            heap_push(x, q);
        else
            free(q.data);
    }
}

static bool out_of_budget(const extractor *x, double start)
{
    const ef_extract_options *o = x->options;
    double limit = o->time_limit > 0 ? o->time_limit : 60;
    if (o->state_limit && x->result->expanded >= o->state_limit)
        return true;
    if (x->heap_bytes > (o->memory_limit ? o->memory_limit : (size_t)4 << 30))
        return true;
    return (x->result->expanded & 255) == 0 && ef_seconds() - start > limit;
}

ef_extraction *ef_extract(ef_search *search, const ef_extract_options *options)
{
    double start = ef_seconds();
    extractor x = {.search = search, .g = search->graph, .ctx = search->ctx, .options = options};
    x.scope = (ef_scope){x.ctx, x.g, search->policy};
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
    heap_push(&x, first);
    while (x.heap.count && !out_of_budget(&x, start)) {
        partial p = heap_pop(&x);
        if (p.holes)
            expand(&x, &p);
        else
            finish(&x, &p);
        free(p.data);
    }
    x.result->complete = x.heap.count == 0;
    for (uint32_t i = 0; i < x.heap.count; i++)
        free(x.heap.at[i].data);
    ef_vec_free(&x.heap);
    ef_vec_free(&x.slots);
    ef_vec_free(&x.option_list);
    ef_vec_free(&x.child);
    ef_intern_free(x.slot_ids);
    ef_intern_free(x.seen);
    free(x.reach);
    free(x.pick);
    free(x.canon);
    free(x.mark);
    free(x.stack);
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
