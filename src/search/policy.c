/* The search's policy: see policy.h.
 *
 * Worth storing: program outputs, results of matmuls and reductions, stored partial results, and operands of matmuls
 * whose computation reduces something (recomputing those for every tile may cost more than storing them once).
 *
 * Worth pairing: two reductions over one axis that one pointwise expression or tuple uses, and a reduction with one
 * whose result its operand uses. Pairing adds `x = get[0](tuple(x, y))`; the fusion rules do the rest. */
#include "search/policy.h"

#include <string.h>

#include "ir/twin.h"

#define MAX_COMPONENTS 4
#define LOOP_MIN 16 /* a matrix unit's least tile */

static ef_policy_state *state_of(const ef_scope *scope)
{
    return scope->policy;
}

/* ---- walking classes ---- */

/* One is kept for the whole search, so that a walk costs what it visits. */
typedef struct walk {
    EF_VEC(ef_id) list;
    EF_VEC(uint32_t) mark; /* by id: the stamp of the walk that saw the class */
    uint32_t stamp;
} walk;

static void walk_start(ef_egraph *g, walk *w)
{
    uint32_t old = w->mark.count;
    ef_vec_reserve(&w->mark, g->op.count);
    if (g->op.count > old)
        memset(w->mark.at + old, 0, (g->op.count - old) * sizeof *w->mark.at);
    w->mark.count = g->op.count;
    w->stamp++;
    w->list.count = 0;
}

static void walk_push(ef_egraph *g, walk *w, ef_id id)
{
    id = ef_find(g, id);
    if (w->mark.at[id] == w->stamp)
        return;
    w->mark.at[id] = w->stamp;
    ef_vec_push(&w->list, id);
}

static bool tensor_level(ef_egraph *g, ef_id class)
{
    return ef_type_axes(g->ctx, ef_egraph_type(g, class)) == 0;
}

static bool type_has(ef_egraph *g, ef_id class, ef_var var)
{
    const ef_type_info *t = ef_type_at(g->ctx, ef_egraph_type(g, class));
    for (unsigned i = 0; i < t->rank; i++)
        if (ef_dim_has(g->ctx, t->dim[i], var))
            return true;
    return false;
}

static bool dimension_has(ef_egraph *g, ef_id class, unsigned index, ef_var var)
{
    const ef_type_info *t = ef_type_at(g->ctx, ef_egraph_type(g, class));
    return !t->is_tuple && index < t->rank && ef_dim_has(g->ctx, t->dim[index], var);
}

/* Whether a node needs a dimension of this variable whole: it reduces or contracts it, or takes parts of it or makes it
 * of parts, through which no view of it moves. The twins of a variable are read from what is stored: see is_renaming.
 */
static bool binds_var(ef_egraph *g, ef_id n, ef_var var)
{
    ef_id operand = ef_node_children(g, n)[0];
    uint64_t attr = g->attr.at[n];
    switch (g->op.at[n]) {
    case EF_REDUCE: return dimension_has(g, operand, ef_attr_reduce_at(attr), var);
    case EF_MATMUL: return dimension_has(g, operand, 0, var);
    case EF_SLICE: return dimension_has(g, operand, ef_slice_index(attr), var);
    case EF_CONCAT: return dimension_has(g, n, (unsigned)attr, var);
    case EF_RESHAPE:
        return ef_var_at(g->ctx, var)->kind != EF_VAR_TWIN && type_has(g, n, var) && !type_has(g, operand, var);
    default: return false;
    }
}

static bool reduces_something(ef_egraph *g, ef_id n, ef_var var)
{
    (void)var;
    return g->op.at[n] == EF_REDUCE || g->op.at[n] == EF_MATMUL;
}

/* ---- cones: what the computation of a class contains, at tensor level, through all alternatives ---- */

static bool leaves_cone(ef_egraph *g, ef_id n)
{
    return (ef_ops[g->op.at[n]].class == EF_PARALLEL && g->op.at[n] != EF_COLLECT) || g->op.at[n] == EF_REDUCE_P;
}

/* Computed for all classes at once, and again in each update. */
typedef struct cone {
    ef_var var;          /* which variable it must reduce; EF_NONE for any reduction or matmul */
    EF_VEC(uint8_t) has; /* by class root, as of then */
} cone;

static bool cone_test(ef_egraph *g, const cone *c, ef_id n)
{
    return c->var == EF_NONE ? reduces_something(g, n, 0) : binds_var(g, n, c->var);
}

/* From the nodes that say yes up to all that uses them. What was seen before and answers differently now is marked as
 * changed. */
static void cone_compute(ef_egraph *g, walk *w, cone *c)
{
    static const ef_op seeds[] = {EF_REDUCE, EF_MATMUL, EF_SLICE, EF_CONCAT, EF_RESHAPE}; /* what may say yes */
    walk_start(g, w);
    for (unsigned k = 0; k < sizeof seeds / sizeof *seeds; k++)
        for (uint32_t i = 0; i < g->by_op[seeds[k]].count; i++) {
            ef_id n = g->by_op[seeds[k]].at[i];
            if (!g->dead.at[n] && cone_test(g, c, n))
                walk_push(g, w, n);
        }
    for (uint32_t i = 0; i < w->list.count; i++)
        for (uint32_t p = g->first_parent.at[w->list.at[i]]; p != EF_NONE; p = g->parent.at[p].next) {
            ef_id n = g->parent.at[p].node;
            if (!g->dead.at[n] && !leaves_cone(g, n))
                walk_push(g, w, n);
        }
    uint32_t old = c->has.count;
    ef_vec_reserve(&c->has, g->op.count);
    memset(c->has.at + old, 0, g->op.count - old);
    c->has.count = g->op.count;
    for (uint32_t i = 0; i < w->list.count; i++) {
        ef_id class = w->list.at[i];
        if (class < old && !c->has.at[class])
            ef_vec_push(&g->changed, class);
        c->has.at[class] = 1; /* and stays so: a class only grows */
    }
}

static cone *cone_of(const ef_scope *scope, ef_var var)
{
    ef_policy_state *s = state_of(scope);
    for (uint32_t i = 0; i < s->cones.count; i++)
        if (s->cones.at[i].var == var)
            return &s->cones.at[i];
    ef_vec_push(&s->cones, (cone){.var = var});
    cone *c = &s->cones.at[s->cones.count - 1];
    cone_compute(scope->graph, s->walk, c);
    return c;
}

/* Classes that are newer than the last update are walked, down to those that are not. */
static bool in_cone(const ef_scope *scope, ef_id class, ef_var var)
{
    ef_egraph *g = scope->graph;
    walk *w = state_of(scope)->walk;
    const cone *c = cone_of(scope, var);
    class = ef_find(g, class);
    if (class < c->has.count)
        return c->has.at[class];
    walk_start(g, w);
    walk_push(g, w, class);
    for (uint32_t i = 0; i < w->list.count; i++) {
        class = w->list.at[i];
        if (class < c->has.count && c->has.at[class])
            return true;
        for (ef_id n = class < c->has.count ? EF_NONE : ef_class_first(g, class); n != EF_NONE;
             n = ef_class_next(g, n)) {
            if (leaves_cone(g, n))
                continue;
            if (cone_test(g, c, n))
                return true;
            for (unsigned k = 0; k < g->arity.at[n]; k++)
                walk_push(g, w, ef_node_children(g, n)[k]);
        }
    }
    return false;
}

static void update_cones(const ef_scope *scope)
{
    ef_policy_state *s = state_of(scope);
    for (uint32_t i = 0; i < s->cones.count; i++)
        cone_compute(scope->graph, s->walk, &s->cones.at[i]);
}

static bool policy_reduces(const ef_scope *scope, ef_id class, ef_var var)
{
    return in_cone(scope, class, var);
}

/* ---- storable ---- */

static bool policy_storable(const ef_scope *scope, ef_id class)
{
    const ef_policy_state *s = state_of(scope);
    class = ef_find(scope->graph, class);
    return class < s->storable.count && s->storable.at[class];
}

/* ---- views of inputs: classes that are an input, or only move the elements of inputs ---- */

static bool moves_elements(ef_egraph *g, ef_id n)
{
    return ef_ops[g->op.at[n]].class == EF_SHAPE || g->op.at[n] == EF_VIEW;
}

static bool all_seen(ef_egraph *g, const walk *w, ef_id n)
{
    for (unsigned c = 0; c < g->arity.at[n]; c++)
        if (w->mark.at[ef_find(g, ef_node_children(g, n)[c])] != w->stamp)
            return false;
    return true;
}

/* From the leaves up. Classes that were not known to be views of inputs are marked as changed. */
static void update_views_of_inputs(const ef_scope *scope)
{
    ef_egraph *g = scope->graph;
    ef_policy_state *s = state_of(scope);
    walk *w = s->walk;
    walk_start(g, w);
    for (unsigned op = 0; op < EF_OP_COUNT; op++)
        for (uint32_t i = 0; ef_ops[op].class == EF_LEAF && i < g->by_op[op].count; i++)
            if (!g->dead.at[g->by_op[op].at[i]])
                walk_push(g, w, g->by_op[op].at[i]);
    for (uint32_t i = 0; i < w->list.count; i++)
        for (uint32_t p = g->first_parent.at[w->list.at[i]]; p != EF_NONE; p = g->parent.at[p].next) {
            ef_id n = g->parent.at[p].node;
            if (!g->dead.at[n] && moves_elements(g, n) && all_seen(g, w, n))
                walk_push(g, w, n);
        }
    uint32_t old = s->view_of_input.count;
    ef_vec_reserve(&s->view_of_input, g->op.count);
    memset(s->view_of_input.at + old, 0, g->op.count - old);
    s->view_of_input.count = g->op.count;
    for (uint32_t i = 0; i < w->list.count; i++) {
        if (!s->view_of_input.at[w->list.at[i]])
            ef_vec_push(&g->changed, w->list.at[i]);
        s->view_of_input.at[w->list.at[i]] = 1;
    }
}

#define NEW_VIEWS 4 /* views of views that were made since the last update, and are looked through */

static bool is_view_of_input(const ef_scope *scope, ef_id class, unsigned depth)
{
    ef_egraph *g = scope->graph;
    const ef_policy_state *s = state_of(scope);
    class = ef_find(g, class);
    if (class < s->view_of_input.count)
        return s->view_of_input.at[class];
    for (ef_id n = ef_class_first(g, class); n != EF_NONE; n = ef_class_next(g, n)) {
        bool all = depth < NEW_VIEWS && moves_elements(g, n);
        for (unsigned c = 0; all && c < g->arity.at[n]; c++)
            all = is_view_of_input(scope, ef_node_children(g, n)[c], depth + 1);
        if (all || ef_ops[g->op.at[n]].class == EF_LEAF)
            return true;
    }
    return false;
}

static bool policy_parameter(const ef_scope *scope, ef_id class)
{
    double value;
    return !ef_egraph_constant(scope->graph, class, &value) && is_view_of_input(scope, class, 0);
}

static bool has_parent(ef_egraph *g, ef_id class, ef_op op)
{
    for (uint32_t p = g->first_parent.at[class]; p != EF_NONE; p = g->parent.at[p].next)
        if (!g->dead.at[g->parent.at[p].node] && g->op.at[g->parent.at[p].node] == op)
            return true;
    return false;
}

/* Whether node n is a renaming (ir/twin.h): kernels read what was stored by any name. */
static bool is_renaming(ef_egraph *g, ef_id n)
{
    if (g->op.at[n] != EF_RESHAPE)
        return false;
    ef_type from = ef_egraph_type(g, ef_node_children(g, n)[0]), to = ef_egraph_type(g, n);
    return from != to && ef_twin_renames(g->ctx, ef_type_at(g->ctx, from), ef_type_at(g->ctx, to));
}

/* Whether a matmul has the class as its operand, by whatever name. */
static bool feeds_matmul(ef_egraph *g, ef_id class, unsigned depth)
{
    if (has_parent(g, class, EF_MATMUL))
        return true;
    for (uint32_t p = g->first_parent.at[class]; depth && p != EF_NONE; p = g->parent.at[p].next) {
        ef_id n = g->parent.at[p].node;
        if (!g->dead.at[n] && is_renaming(g, n) && feeds_matmul(g, ef_find(g, n), depth - 1))
            return true;
    }
    return false;
}

static bool worth_storing(const ef_scope *scope, ef_id class)
{
    ef_egraph *g = scope->graph;
    const ef_policy_state *s = state_of(scope);
    if (!tensor_level(g, class) || is_view_of_input(scope, class, 0))
        return false;
    for (uint32_t i = 0; i < s->outputs.count; i++)
        if (ef_find(g, s->outputs.at[i]) == class)
            return true;
    for (ef_id n = ef_class_first(g, class); n != EF_NONE; n = ef_class_next(g, n))
        if (is_renaming(g, n))
            return false; /* what it renames is stored instead */
    for (ef_id n = ef_class_first(g, class); n != EF_NONE; n = ef_class_next(g, n))
        if (g->op.at[n] == EF_MATMUL || g->op.at[n] == EF_REDUCE || g->op.at[n] == EF_COLLECT)
            return true;
    if (has_parent(g, class, EF_SLICE) || has_parent(g, class, EF_CONCAT))
        return true; /* tiles of parts are read from what was stored: views do not move through a cut part */
    return feeds_matmul(g, class, 2) && in_cone(scope, class, EF_NONE);
}

static void update_storable(const ef_scope *scope)
{
    ef_egraph *g = scope->graph;
    ef_policy_state *s = state_of(scope);
    uint32_t old = s->storable.count;
    ef_vec_reserve(&s->storable, g->op.count);
    memset(s->storable.at + old, 0, g->op.count - old);
    s->storable.count = g->op.count;
    for (ef_id class = 0; class < g->op.count; class++) {
        if (ef_find(g, class) != class || s->storable.at[class] || !worth_storing(scope, class))
            continue;
        s->storable.at[class] = 1;
        ef_vec_push(&g->changed, class);
    }
}

/* ---- pairs ---- */

/* A set of single reductions, by their index among the singles. */
#define SET_WORDS 4
typedef struct {
    uint64_t word[SET_WORDS];
} set;

static bool set_has(const set *s, unsigned i)
{
    return s->word[i / 64] >> (i % 64) & 1u;
}

static bool set_join(set *s, const set *t)
{
    bool grew = false;
    for (unsigned i = 0; i < SET_WORDS; i++) {
        grew = grew || (t->word[i] & ~s->word[i]);
        s->word[i] |= t->word[i];
    }
    return grew;
}

static bool set_within(const set *inner, const set *outer)
{
    for (unsigned i = 0; i < SET_WORDS; i++)
        if (inner->word[i] & ~outer->word[i])
            return false;
    return true;
}

static bool set_meets(const set *a, const set *b)
{
    for (unsigned i = 0; i < SET_WORDS; i++)
        if (a->word[i] & b->word[i])
            return true;
    return false;
}

static bool set_empty(const set *s)
{
    return set_within(s, &(set){{0}});
}

static unsigned set_count(const set *s)
{
    unsigned n = 0;
    for (unsigned i = 0; i < SET_WORDS; i++)
        n += (unsigned)__builtin_popcountll(s->word[i]);
    return n;
}

/* A class that is a reduction over `axis`. Singles are tensors; tuples have singles as their components. */
typedef struct {
    ef_id class;
    ef_axis axis;
    ef_axes scope;     /* axes in scope around it */
    uint64_t elements; /* of a tensor */
    ef_id age;
    bool tuple, repaired;
    set components, used; /* used: whose results the operands use inside the axis's scope */
} reduction;

/* The sets of singles that one expression of a class uses together; one set per way of computing the class. */
#define FAMILY_SETS 24
typedef struct {
    uint8_t state, count; /* state: 0 unknown, 1 in progress, 2 known */
    set sets[FAMILY_SETS];
} family;

typedef struct pairing {
    const ef_scope *scope;
    ef_egraph *g;
    EF_VEC(reduction) list; /* singles first */
    uint32_t singles;
    EF_VEC(set) below; /* by class root: the singles that it is computed from by pointwise operators and tuples alone */
    EF_VEC(uint32_t) family_at; /* by class root: 1 + index into families, 0 for none yet */
    EF_VEC(family) families;
    ef_intern *asked; /* operands whose used results are known … */
    EF_VEC(set) answers;
} pairing;

/* Where reductions are fused: over a loop or split at tensor level, over the loop inside its own split. Propagation
 * carries the result to all grids. */
static bool fuses_here(ef_egraph *g, ef_id n)
{
    ef_axis axis = ef_attr_reduce_at(g->attr.at[n]), split = ef_axis_of(ef_axis_var(axis), 0);
    ef_axes scope = ef_type_axes(g->ctx, ef_egraph_type(g, n));
    return scope == 0 || (ef_axis_level(axis) == 1 && scope == ef_axes_intern(g->ctx, &split, 1));
}

/* The id of the first node that the class ever had: an order that follows the program. */
static ef_id oldest(ef_egraph *g, ef_id class)
{
    ef_id first = ef_find(g, class);
    for (ef_id n = first; n != EF_NONE; n = g->next_in_class.at[n])
        first = n < first ? n : first;
    return first;
}

static uint64_t elements(ef_egraph *g, ef_id class)
{
    const ef_type_info *t = ef_type_at(g->ctx, ef_egraph_type(g, class));
    uint64_t product = 1;
    for (unsigned i = 0; i < t->rank; i++)
        product *= ef_dim_extent(g->ctx, t->dim[i]);
    return product;
}

/* The order of the fields of fused reductions, which have one: small states first, as people write them (a softmax's
 * denominator before its weighted sum), then by age. */
static int by_size_and_age(const void *a, const void *b)
{
    const reduction *x = a, *y = b;
    if (x->elements != y->elements)
        return x->elements < y->elements ? -1 : 1;
    return x->age != y->age ? (x->age < y->age ? -1 : 1) : (x->axis > y->axis) - (x->axis < y->axis);
}

static void find_reductions(pairing *p, bool tuples)
{
    uint32_t start = p->list.count;
    ef_egraph *g = p->g;
    for (uint32_t i = 0; i < g->by_op[EF_REDUCE_P].count; i++) {
        ef_id n = g->by_op[EF_REDUCE_P].at[i];
        if (g->dead.at[n] || !fuses_here(g, n))
            continue;
        reduction r = {.class = ef_find(g, n), .axis = ef_attr_reduce_at(g->attr.at[n])};
        r.scope = ef_type_axes(g->ctx, ef_egraph_type(g, n));
        r.tuple = ef_type_at(g->ctx, ef_egraph_type(g, n))->is_tuple;
        r.repaired = ef_reducer_at(g->ctx, ef_attr_reducer(g->attr.at[n]))->kind == EF_RED_REPAIRED;
        bool seen = r.tuple != tuples || (!tuples && p->list.count == 64 * SET_WORDS);
        for (uint32_t k = 0; k < p->list.count && !seen; k++)
            seen = p->list.at[k].class == r.class && p->list.at[k].axis == r.axis;
        r.age = oldest(g, r.class);
        r.elements = elements(g, r.class);
        if (!seen)
            ef_vec_push(&p->list, r);
    }
    if (p->list.count > start)
        qsort(p->list.at + start, p->list.count - start, sizeof *p->list.at, by_size_and_age);
}

/* Fixpoint of "computed from, by pointwise operators, gets of known fields and tuples". */
static void compute_below(pairing *p)
{
    ef_egraph *g = p->g;
    ef_vec_reserve(&p->below, g->op.count);
    p->below.count = g->op.count;
    memset(p->below.at, 0, g->op.count * sizeof *p->below.at);
    for (uint32_t i = 0; i < p->singles; i++)
        p->below.at[p->list.at[i].class].word[i / 64] |= (uint64_t)1 << (i % 64);
    for (bool grew = true; grew;) {
        grew = false;
        for (ef_id n = 0; n < g->op.count; n++) {
            ef_op op = (ef_op)g->op.at[n];
            if (g->dead.at[n] || !(ef_op_pointwise(op) || op == EF_TUPLE || op == EF_TILE_MATMUL))
                continue;
            for (unsigned c = 0; c < g->arity.at[n]; c++)
                grew =
                    set_join(&p->below.at[ef_find(g, n)], &p->below.at[ef_find(g, ef_node_children(g, n)[c])]) || grew;
        }
    }
}

static void components(pairing *p, ef_id class, ef_axis axis, set *out)
{
    ef_egraph *g = p->g;
    class = ef_find(g, class);
    const ef_type_info *t = ef_type_at(g->ctx, ef_egraph_type(g, class));
    for (uint32_t i = 0; i < p->singles && !t->is_tuple; i++)
        if (p->list.at[i].class == class && p->list.at[i].axis == axis)
            out->word[i / 64] |= (uint64_t)1 << (i % 64);
    for (unsigned i = 0; i < t->fields; i++) {
        ef_id field = ef_egraph_lookup(g, EF_GET, i, &class, 1);
        if (field != EF_NONE)
            components(p, field, axis, out);
    }
}

static bool in_scope_of(ef_egraph *g, ef_type type, ef_axis axis)
{
    const ef_type_info *t = ef_type_at(g->ctx, type);
    for (unsigned i = 0; i < t->fields; i++)
        if (in_scope_of(g, t->field[i], axis))
            return true;
    return !t->is_tuple && ef_type_place(t, axis);
}

static void find_results_used(pairing *p, walk *w, ef_id operand, ef_axis axis, set *out)
{
    ef_egraph *g = p->g;
    walk_start(g, w);
    walk_push(g, w, operand);
    for (uint32_t i = 0; i < w->list.count; i++)
        for (ef_id n = ef_class_first(g, w->list.at[i]); n != EF_NONE; n = ef_class_next(g, n)) {
            const ef_id *child = ef_node_children(g, n);
            if (g->op.at[n] == EF_GET)
                continue; /* the field itself is viewed by another node of the class; its tuple brings in others */
            if (g->op.at[n] == EF_VIEW && ef_axes_has(g->ctx, (ef_axes)g->attr.at[n], axis)) {
                ef_id inside = ef_find(g, child[0]);
                for (unsigned k = 0; k < p->singles && inside < p->below.count; k++)
                    if (set_has(&p->below.at[inside], k) && p->list.at[k].axis == axis)
                        out->word[k / 64] |= (uint64_t)1 << (k % 64);
                continue;
            }
            for (unsigned k = 0; k < g->arity.at[n]; k++)
                if (in_scope_of(g, ef_egraph_type(g, child[k]), axis))
                    walk_push(g, w, child[k]);
        }
}

/* The reductions over `axis` whose results an operand uses inside the axis's scope: through replicated views. Once an
 * update. */
static void results_used(pairing *p, walk *w, ef_id operand, ef_axis axis, set *out)
{
    ef_id key[] = {ef_find(p->g, operand), axis};
    int fresh;
    uint32_t at = ef_intern_put(p->asked, key, sizeof key, &fresh);
    if (fresh) {
        set used = {{0}};
        find_results_used(p, w, operand, axis, &used);
        ef_vec_push(&p->answers, used);
    }
    set_join(out, &p->answers.at[at]);
}

static void complete(pairing *p, walk *w, reduction *r)
{
    ef_egraph *g = p->g;
    components(p, r->class, r->axis, &r->components);
    for (ef_id n = ef_class_first(g, r->class); n != EF_NONE; n = ef_class_next(g, n))
        if (g->op.at[n] == EF_REDUCE_P && ef_attr_reduce_at(g->attr.at[n]) == r->axis)
            results_used(p, w, ef_node_children(g, n)[0], r->axis, &r->used);
}

static void pairing_start(pairing *p, const ef_scope *scope)
{
    *p = (pairing){.scope = scope, .g = scope->graph, .asked = ef_intern_new()}; /* the caller freed what was there */
    find_reductions(p, false);
    p->singles = p->list.count;
    find_reductions(p, true);
    compute_below(p);
    for (uint32_t i = 0; i < p->list.count; i++)
        complete(p, state_of(scope)->walk, &p->list.at[i]);
}

static void pairing_free(pairing *p)
{
    ef_vec_free(&p->list);
    ef_vec_free(&p->below);
    ef_vec_free(&p->family_at);
    ef_vec_free(&p->families);
    ef_vec_free(&p->answers);
    ef_intern_free(p->asked);
}

/* Answers from what the last update saw; what came later is looked at in the next one. */
static bool policy_depends(const ef_scope *scope, ef_id operand, ef_id reduced, ef_axis axis)
{
    ef_egraph *g = scope->graph;
    pairing *p = state_of(scope)->pairing;
    set used = {{0}}, own = {{0}};
    if (!p)
        return true;
    results_used(p, state_of(scope)->walk, operand, axis, &used);
    reduced = ef_find(g, reduced);
    for (uint32_t e = g->first_parent.at[reduced]; e != EF_NONE; e = g->parent.at[e].next) {
        ef_id n = g->parent.at[e].node;
        if (!g->dead.at[n] && g->op.at[n] == EF_REDUCE_P && ef_attr_reduce_at(g->attr.at[n]) == axis)
            components(p, n, axis, &own);
    }
    return set_meets(&used, &own);
}

/* Adds tuple(x, y) and says that its fields are x and y. */
static void introduce_tuple(const ef_scope *scope, ef_id x, ef_id y)
{
    ef_egraph *g = scope->graph;
    ef_policy_state *s = state_of(scope);
    ef_id pair[] = {ef_find(g, x), ef_find(g, y)};
    int fresh;
    ef_intern_put(s->paired, pair, sizeof pair, &fresh);
    if (!fresh)
        return;
    ef_id tuple = ef_egraph_add(g, EF_TUPLE, 0, pair, 2);
    if (tuple == EF_NONE)
        return;
    for (uint64_t i = 0; i < 2; i++) {
        ef_id get = ef_egraph_add(g, EF_GET, i, &tuple, 1);
        ef_egraph_union(g, pair[i], get, ef_egraph_record(g, EF_RULE_TUPLE_INTRO, &pair[i], 1, &get, 1, 0));
    }
}

/* ---- spellings: the queries of a group as rows of one product, or as a batch (rules/group.h) ---- */

static ef_id first_leaf(ef_egraph *g, ef_id class)
{
    class = ef_find(g, class);
    while (class != EF_NONE && ef_type_at(g->ctx, ef_egraph_type(g, class))->is_tuple) {
        class = ef_egraph_lookup(g, EF_GET, 0, &class, 1);
        class = class == EF_NONE ? EF_NONE : ef_find(g, class);
    }
    return class;
}

/* Whether both have the same dimensions but for the last one. */
static bool same_rows(ef_egraph *g, ef_id x, ef_id y)
{
    const ef_type_info *a = ef_type_at(g->ctx, ef_egraph_type(g, x)), *b = ef_type_at(g->ctx, ef_egraph_type(g, y));
    return a->rank == b->rank && (a->rank < 2 || memcmp(a->dim + 1, b->dim + 1, (a->rank - 1u) * sizeof *a->dim) == 0);
}

static bool is_reduction(const pairing *p, ef_id class, const reduction *like)
{
    for (uint32_t i = 0; i < p->singles; i++)
        if (p->list.at[i].class == class && p->list.at[i].axis == like->axis && p->list.at[i].scope == like->scope)
            return true;
    return false;
}

/* Whether what x reduces, spelt with the rows that y has, is a reduction as well. */
static bool has_rows_of(const pairing *p, ef_id x, ef_id y, const reduction *like)
{
    ef_egraph *g = p->g;
    for (ef_id n = ef_class_first(g, x); n != EF_NONE; n = ef_class_next(g, n)) {
        ef_id from = g->op.at[n] == EF_RESHAPE ? ef_find(g, ef_node_children(g, n)[0]) : x;
        if (from != x && same_rows(g, from, y) && is_reduction(p, from, like))
            return true;
    }
    for (uint32_t e = g->first_parent.at[x]; e != EF_NONE; e = g->parent.at[e].next) {
        ef_id n = g->parent.at[e].node, to = ef_find(g, n);
        if (!g->dead.at[n] && g->op.at[n] == EF_RESHAPE && to != x && same_rows(g, to, y) && is_reduction(p, to, like))
            return true;
    }
    return false;
}

/* Whether two reductions are spelt in different ways although they could be in one: a pair of that kind is no loop that
 * another pair is not. */
static bool mixes_spellings(const pairing *p, const reduction *x, const reduction *y)
{
    ef_id a = first_leaf(p->g, x->class), b = first_leaf(p->g, y->class);
    return a != EF_NONE && b != EF_NONE && !same_rows(p->g, a, b) &&
           (has_rows_of(p, a, b, x) || has_rows_of(p, b, a, x));
}

/* Every component of a consumer must depend on the producer: the others belong into a product outside of the repair. */
static bool all_depend(const pairing *p, const reduction *consumer, const set *producer)
{
    for (uint32_t i = 0; i < p->singles; i++)
        if (set_has(&consumer->components, i) && !set_within(producer, &p->list.at[i].used))
            return false;
    return true;
}

/* A consumer is paired with every producer all of whose reductions it uses. */
static void pair_dependent(pairing *p, const reduction *consumer)
{
    for (uint32_t i = 0; i < p->list.count; i++) {
        const reduction *r = &p->list.at[i];
        if (r->axis == consumer->axis && r->scope == consumer->scope && !set_empty(&r->components) &&
            set_within(&r->components, &consumer->used) && !set_meets(&r->components, &consumer->components) &&
            all_depend(p, consumer, &r->components) &&
            set_count(&r->components) + set_count(&consumer->components) <= MAX_COMPONENTS &&
            !mixes_spellings(p, r, consumer))
            introduce_tuple(p->scope, r->class, consumer->class);
    }
}

/* ---- families ---- */

static void family_add(family *f, const set *s)
{
    unsigned size = set_count(s), at = f->count;
    for (unsigned i = 0; i < f->count; i++)
        if (set_within(&f->sets[i], s) && set_within(s, &f->sets[i]))
            return;
    while (at > 0 && set_count(&f->sets[at - 1]) > size)
        at--;
    if (at == FAMILY_SETS || size > MAX_COMPONENTS)
        return;
    if (f->count < FAMILY_SETS)
        f->count++;
    memmove(f->sets + at + 1, f->sets + at, (f->count - at - 1u) * sizeof *s);
    f->sets[at] = *s;
}

static const family *family_of(pairing *p, ef_id class);

/* The families of a node: every way of one child with every way of the next. */
static void family_of_node(pairing *p, ef_id n, family *out)
{
    ef_egraph *g = p->g;
    if (g->arity.at[n] == 1) {
        const family *child = family_of(p, ef_node_children(g, n)[0]);
        for (unsigned i = 0; i < child->count; i++)
            family_add(out, &child->sets[i]);
        return;
    }
    family ways = {.count = 1};
    for (unsigned c = 0; c < g->arity.at[n]; c++) {
        family next = {0};
        const family *child = family_of(p, ef_node_children(g, n)[c]);
        for (unsigned i = 0; i < ways.count; i++)
            for (unsigned k = 0; k < child->count; k++) {
                set both = ways.sets[i];
                set_join(&both, &child->sets[k]);
                family_add(&next, &both);
            }
        ways = next;
    }
    for (unsigned i = 0; i < ways.count; i++)
        family_add(out, &ways.sets[i]);
}

/* The ways of a class that is computed from some reduction; walks no deeper than such classes go. */
static void find_family(pairing *p, ef_id class, family *f)
{
    ef_egraph *g = p->g;
    bool computed = false;
    for (uint32_t i = 0; i < p->singles; i++)
        if (p->list.at[i].class == class) {
            set one = {{0}};
            one.word[i / 64] |= (uint64_t)1 << (i % 64);
            family_add(f, &one);
            computed = true;
        }
    for (ef_id n = ef_class_first(g, class); n != EF_NONE; n = ef_class_next(g, n))
        if (ef_op_pointwise((ef_op)g->op.at[n]) || g->op.at[n] == EF_TUPLE || g->op.at[n] == EF_TILE_MATMUL) {
            family_of_node(p, n, f);
            computed = true;
        }
    if (!computed)
        family_add(f, &(set){{0}});
}

static const family *family_of(pairing *p, ef_id class)
{
    static const family unrelated = {.state = 2, .count = 1}; /* one way, without a reduction */
    class = ef_find(p->g, class);
    if (class >= p->below.count || set_empty(&p->below.at[class]))
        return &unrelated;
    uint32_t at = p->family_at.at[class];
    if (at)
        return &p->families.at[at - 1];              /* in progress: empty, so that cycles add nothing */
    ef_vec_push(&p->families, (family){.state = 1}); /* there is room for all: none moves */
    at = p->family_at.at[class] = p->families.count;
    family f = {.state = 2};
    find_family(p, class, &f);
    p->families.at[at - 1] = f;
    return &p->families.at[at - 1];
}

/* The reduction over `axis` whose components are exactly `s`; NULL when there is none yet. */
static const reduction *reduction_of(const pairing *p, const set *s, ef_axis axis, ef_axes scope)
{
    for (uint32_t i = 0; i < p->list.count; i++) {
        const reduction *r = &p->list.at[i];
        if (r->axis == axis && r->scope == scope && set_within(&r->components, s) && set_within(s, &r->components) &&
            !r->repaired)
            return r;
    }
    return NULL;
}

/* Pairs the independent members of a family set over one axis, in increasing order, so that each set nests one way. */
static void pair_family(pairing *p, const set *s, ef_axis axis, ef_axes scope)
{
    set done = {{0}};
    for (uint32_t i = 0; i < p->singles; i++) {
        const reduction *r = &p->list.at[i];
        set used = r->used;
        if (!set_has(s, i) || r->axis != axis || r->scope != scope)
            continue;
        const reduction *before = set_empty(&done) ? NULL : reduction_of(p, &done, axis, scope);
        if (!set_empty(&done) && !before)
            return; /* the next update goes on when that product exists */
        if (before && (set_meets(&used, &before->components) || set_meets(&before->used, &r->components)))
            continue; /* dependent: repair's part */
        if (before && mixes_spellings(p, before, r))
            return;
        if (before)
            introduce_tuple(p->scope, before->class, r->class);
        set_join(&done, &r->components);
    }
}

static void pair_root(pairing *p, ef_id class)
{
    const family f = *family_of(p, class);
    for (unsigned i = 0; i < f.count; i++)
        for (uint32_t k = 0; k < p->singles; k++)
            if (set_has(&f.sets[i], k))
                pair_family(p, &f.sets[i], p->list.at[k].axis, p->list.at[k].scope);
}

/* Kernels' results, and what is stored as partial results: there reductions meet in one loop. */
static void update_pairs(const ef_scope *scope)
{
    ef_egraph *g = scope->graph;
    ef_policy_state *s = state_of(scope);
    pairing *p = s->pairing ? s->pairing : (s->pairing = ef_xcalloc(1, sizeof *p));
    pairing_free(p);
    pairing_start(p, scope);
    if (p->singles == 0)
        return;
    for (uint32_t i = 0; i < p->list.count; i++)
        pair_dependent(p, &p->list.at[i]);
    uint32_t count = p->below.count;
    ef_vec_reserve(&p->family_at, count + 1);
    memset(p->family_at.at, 0, count * sizeof *p->family_at.at);
    p->family_at.count = count;
    ef_vec_reserve(&p->families, count + 1);
    for (ef_id class = 0; class < count; class++)
        if (ef_find(g, class) == class && policy_storable(scope, class))
            pair_root(p, class);
    for (uint32_t i = 0; i < g->by_op[EF_COLLECT].count; i++) {
        ef_id n = g->by_op[EF_COLLECT].at[i], operand = ef_find(g, ef_node_children(g, n)[0]);
        if (!g->dead.at[n] && operand < count &&
            ef_axes_at(g->ctx, ef_type_axes(g->ctx, ef_egraph_type(g, operand)), &(const ef_axis *){NULL}) == 1)
            pair_root(p, operand);
    }
}

/* ---- life ---- */

ef_policy_state *ef_policy_new(uint64_t split_min, uint64_t whole_max)
{
    ef_policy_state *s = ef_xcalloc(1, sizeof *s);
    s->policy.memory = ef_rule_memory_new();
    s->policy.split_min = split_min;
    s->policy.loop_min = whole_max < LOOP_MIN ? whole_max : LOOP_MIN;
    s->policy.whole_max = whole_max;
    s->policy.storable = policy_storable;
    s->policy.parameter = policy_parameter;
    s->policy.reduces = policy_reduces;
    s->policy.depends = policy_depends;
    s->paired = ef_intern_new();
    s->walk = ef_xcalloc(1, sizeof *s->walk);
    return s;
}

void ef_policy_free(ef_policy_state *s)
{
    if (!s)
        return;
    ef_vec_free(&s->storable);
    ef_vec_free(&s->view_of_input);
    ef_vec_free(&s->outputs);
    ef_rule_memory_free(s->policy.memory);
    ef_intern_free(s->paired);
    for (uint32_t i = 0; i < s->cones.count; i++)
        ef_vec_free(&s->cones.at[i].has);
    ef_vec_free(&s->cones);
    ef_vec_free(&s->walk->list);
    ef_vec_free(&s->walk->mark);
    free(s->walk);
    if (s->pairing)
        pairing_free(s->pairing);
    free(s->pairing);
    free(s);
}

void ef_policy_forget(ef_policy_state *s)
{
    if (s->storable.count)
        memset(s->storable.at, 0, s->storable.count * sizeof *s->storable.at);
}

void ef_policy_update(const ef_scope *scope)
{
    update_cones(scope);
    update_views_of_inputs(scope);
    update_storable(scope);
    update_pairs(scope);
}
