/* The e-graph: see egraph.h. */
#include "egraph/egraph.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

_Static_assert(EF_OP_COUNT <= 64, "a class's operators fit one word");

/* ---- the hash-cons table: linear probing, backward-shift deletion ---- */

static uint64_t mix(uint64_t h, uint64_t x)
{
    h = (h ^ x) * UINT64_C(0x9fb21c651e98df25);
    return h ^ (h >> 32);
}

static uint64_t hash_of(uint32_t op, uint64_t attr, const ef_id *children, unsigned count)
{
    uint64_t h = mix(UINT64_C(0x8ebc6af09c88c6e3) + op, attr);
    for (unsigned i = 0; i < count; i++)
        h = mix(h, children[i] + UINT64_C(0x100000001));
    return h;
}

static bool is_node(const ef_egraph *g, ef_id n, uint64_t hash, uint32_t op, uint64_t attr, const ef_id *children,
                    unsigned count)
{
    return g->hash.at[n] == hash && g->op.at[n] == op && g->attr.at[n] == attr && g->arity.at[n] == count &&
           memcmp(ef_node_children(g, n), children, count * sizeof *children) == 0;
}

/* The slot that holds the node, or the empty slot where it would go. */
static uint32_t probe(const ef_egraph *g, uint64_t hash, uint32_t op, uint64_t attr, const ef_id *children,
                      unsigned count)
{
    uint32_t i = (uint32_t)hash & g->mask;
    while (g->slot[i] && !is_node(g, g->slot[i] - 1, hash, op, attr, children, count))
        i = (i + 1) & g->mask;
    return i;
}

static void table_grow(ef_egraph *g)
{
    uint32_t *old = g->slot, old_mask = g->mask;
    g->mask = g->mask * 2 + 1;
    g->slot = ef_xcalloc((size_t)g->mask + 1, sizeof *g->slot);
    for (uint32_t s = 0; s <= old_mask; s++) {
        if (!old[s])
            continue;
        uint32_t i = (uint32_t)g->hash.at[old[s] - 1] & g->mask;
        while (g->slot[i])
            i = (i + 1) & g->mask;
        g->slot[i] = old[s];
    }
    free(old);
}

static void table_put(ef_egraph *g, uint32_t slot, ef_id node)
{
    g->slot[slot] = node + 1;
    if (++g->used * 2 > g->mask)
        table_grow(g);
}

static void table_remove(ef_egraph *g, ef_id node)
{
    uint32_t i = (uint32_t)g->hash.at[node] & g->mask;
    while (g->slot[i] != node + 1) {
        if (!g->slot[i])
            return;
        i = (i + 1) & g->mask;
    }
    g->used--;
    for (uint32_t j = (i + 1) & g->mask; g->slot[j]; j = (j + 1) & g->mask) {
        uint32_t home = (uint32_t)g->hash.at[g->slot[j] - 1] & g->mask;
        if (((j - home) & g->mask) >= ((j - i) & g->mask)) { /* j's entry may move back to the hole at i */
            g->slot[i] = g->slot[j];
            i = j;
        }
    }
    g->slot[i] = 0;
}

/* ---- life ---- */

ef_egraph *ef_egraph_new(ef_ctx *ctx)
{
    ef_egraph *g = ef_xcalloc(1, sizeof *g);
    g->ctx = ctx;
    g->mask = 1023;
    g->slot = ef_xcalloc((size_t)g->mask + 1, sizeof *g->slot);
    g->type_cache = ef_intern_new();
    g->tick = 1;
    return g;
}

void ef_egraph_free(ef_egraph *g)
{
    if (!g)
        return;
    ef_vec_free(&g->uf.parent);
    ef_vec_free(&g->op);
    ef_vec_free(&g->arity);
    ef_vec_free(&g->attr);
    ef_vec_free(&g->first_child);
    ef_vec_free(&g->dead);
    ef_vec_free(&g->hash);
    ef_vec_free(&g->next_in_class);
    ef_vec_free(&g->proof);
    ef_vec_free(&g->child);
    ef_vec_free(&g->origin);
    ef_vec_free(&g->type);
    ef_vec_free(&g->operators);
    ef_vec_free(&g->last_in_class);
    ef_vec_free(&g->first_parent);
    ef_vec_free(&g->last_parent);
    ef_vec_free(&g->parents);
    ef_vec_free(&g->constant);
    ef_vec_free(&g->is_constant);
    for (int i = 0; i < EF_TOUCH_DEPTH; i++)
        ef_vec_free(&g->touched[i]);
    ef_vec_free(&g->parent);
    for (int i = 0; i < EF_OP_COUNT; i++)
        ef_vec_free(&g->by_op[i]);
    free(g->slot);
    ef_vec_free(&g->dirty);
    ef_vec_free(&g->constants);
    ef_vec_free(&g->changed);
    ef_vec_free(&g->applications);
    ef_vec_free(&g->application_ids);
    ef_vec_free(&g->type_cache_value);
    ef_intern_free(g->type_cache);
    free(g);
}

size_t ef_egraph_memory(const ef_egraph *g)
{
    size_t per_node = sizeof(uint32_t) + 8 + 2 + 1 + 8 + 4 + 1 + 8 + 4 + sizeof(ef_proof_edge) + 4 + 4 + 8 + 8 + 1 +
                      4 * EF_TOUCH_DEPTH + 4;
    return per_node * g->op.capacity + 8 * (size_t)g->child.capacity + 8 * (size_t)g->parent.capacity +
           4 * ((size_t)g->mask + 1) + sizeof(ef_application) * g->applications.capacity +
           4 * (size_t)g->application_ids.capacity;
}

/* ---- adding nodes ---- */

static void push_parent(ef_egraph *g, ef_id class, ef_id node)
{
    uint32_t entry = g->parent.count;
    ef_vec_reserve(&g->parent, entry + 1);
    g->parent.count++;
    g->parent.at[entry].node = node;
    g->parent.at[entry].next = EF_NONE;
    if (g->first_parent.at[class] == EF_NONE)
        g->first_parent.at[class] = entry;
    else
        g->parent.at[g->last_parent.at[class]].next = entry;
    g->last_parent.at[class] = entry;
    g->parents.at[class]++;
}

/* Canonical children; a commutative operator's are sorted. */
static void canonical(ef_egraph *g, ef_op op, const ef_id *children, unsigned count, ef_id *out)
{
    for (unsigned i = 0; i < count; i++)
        out[i] = ef_find(g, children[i]);
    if (count == 2 && out[0] > out[1] && ef_op_commutative(op)) {
        ef_id t = out[0];
        out[0] = out[1];
        out[1] = t;
    }
}

ef_type ef_egraph_infer(ef_egraph *g, ef_op op, uint64_t attr, const ef_type *types, unsigned count)
{
    struct {
        uint64_t attr;
        uint32_t op;
        ef_type types[EF_MAX_CHILDREN + 1];
    } key = {.attr = attr, .op = op};
    int fresh;
    memcpy(key.types, types, count * sizeof *types);
    uint32_t at = ef_intern_put(g->type_cache, &key, offsetof(__typeof__(key), types) + count * sizeof *types, &fresh);
    if (fresh)
        ef_vec_push(&g->type_cache_value, ef_infer(g->ctx, op, attr, types, count, NULL));
    return g->type_cache_value.at[at];
}

/* The value of a node whose operands are all constants; false when there is none. Only what has a literal's type is
 * folded: a comparison of literals is a truth value, which no literal stands for. */
static bool fold(ef_egraph *g, ef_id n, ef_op op, uint64_t attr, const ef_id *children, unsigned count, double *value)
{
    double x[3];
    bool known =
        (op == EF_CONST || (ef_op_pointwise(op) && op != EF_CAST)) && ef_type_is_literal(g->ctx, ef_egraph_type(g, n));
    for (unsigned i = 0; known && i < count; i++)
        known = ef_egraph_constant(g, children[i], &x[i]) && ef_type_is_literal(g->ctx, ef_egraph_type(g, children[i]));
    if (known)
        *value = op == EF_CONST ? ef_attr_to_number(attr) : ef_op_apply(op, attr, x);
    return known;
}

static ef_id new_node(ef_egraph *g, ef_op op, uint64_t attr, const ef_id *canon, const ef_id *origin, unsigned count,
                      uint64_t hash, ef_type type)
{
    ef_id n = ef_uf_make(&g->uf);
    ef_vec_push(&g->op, (uint16_t)op);
    ef_vec_push(&g->arity, (uint8_t)count);
    ef_vec_push(&g->attr, attr);
    ef_vec_push(&g->first_child, g->child.count);
    ef_vec_push(&g->dead, 0);
    ef_vec_push(&g->hash, hash);
    ef_vec_push(&g->next_in_class, EF_NONE);
    ef_vec_push(&g->proof, ((ef_proof_edge){EF_NONE, 0, 0, 0}));
    ef_vec_push(&g->type, type);
    ef_vec_push(&g->operators, UINT64_C(1) << op);
    ef_vec_push(&g->last_in_class, n);
    ef_vec_push(&g->first_parent, EF_NONE);
    ef_vec_push(&g->last_parent, EF_NONE);
    ef_vec_push(&g->parents, 0);
    ef_vec_push(&g->constant, 0);
    ef_vec_push(&g->is_constant, 0);
    for (int d = 0; d < EF_TOUCH_DEPTH; d++)
        ef_vec_push(&g->touched[d], 0);
    for (unsigned i = 0; i < count; i++) {
        ef_vec_push(&g->child, canon[i]);
        ef_vec_push(&g->origin, origin[i]);
        if (i == 0 || canon[i] != canon[i - 1])
            push_parent(g, canon[i], n);
    }
    ef_vec_push(&g->by_op[op], n);
    ef_vec_push(&g->changed, n);
    g->live++;
    g->classes++;
    return n;
}

/* What unions of two classes report: both terms, the rule, and what differs. */
static void union_error(ef_egraph *g, ef_id a, ef_id b, uint32_t application, const char *what, const char *left,
                        const char *right)
{
    const char *name = "(congruence)";
    uint32_t rule = application == EF_NONE ? EF_NONE : g->applications.at[application].rule;
    if (application != EF_NONE)
        name = rule == EF_NONE ? "constant-fold" : g->rule_name ? g->rule_name(g->rule_user, rule) : "(unnamed)";
    ef_fail(&g->error, "rule %s makes %s and %s one, but their %s differ: %s and %s", name, ef_ops[g->op.at[a]].name,
            ef_ops[g->op.at[b]].name, what, left, right);
}

static void constant_error(ef_egraph *g, ef_id a, ef_id b, uint32_t application, double x, double y)
{
    char left[32], right[32];
    snprintf(left, sizeof left, "%.17g", x);
    snprintf(right, sizeof right, "%.17g", y);
    union_error(g, a, b, application, "values", left, right);
}

/* Every constant expression is equal to its literal: found by folding, justified as such. A class that is a constant
 * through one node stays one whatever its other nodes are, and always has a literal among them. What is no number has
 * no literal: rules speak of real arithmetic. */
static void fold_constant(ef_egraph *g, ef_id n, ef_op op, uint64_t attr, const ef_id *children, unsigned count)
{
    double value, known;
    if (!fold(g, n, op, attr, children, count, &value))
        return;
    if (op == EF_CONST) {
        g->is_constant.at[n] = 1; /* fresh, so its own root */
        g->constant.at[n] = value;
        return;
    }
    if (isnan(value))
        return;
    if (ef_egraph_constant(g, n, &known)) {
        if (!ef_constants_agree(value, known))
            constant_error(g, n, n, ef_egraph_record(g, EF_NONE, &n, 1, &n, 1, 0), known, value);
        return;
    }
    ef_id literal = ef_egraph_add(g, EF_CONST, ef_attr_number(value), NULL, 0);
    ef_egraph_union(g, n, literal, ef_egraph_record(g, EF_NONE, &n, 1, &literal, 1, 0));
}

ef_id ef_egraph_add(ef_egraph *g, ef_op op, uint64_t attr, const ef_id *children, unsigned count)
{
    ef_id canon[EF_MAX_CHILDREN] = {0};
    ef_type types[EF_MAX_CHILDREN] = {0};
    if (count > EF_MAX_CHILDREN)
        return EF_NONE;
    canonical(g, op, children, count, canon);
    uint64_t hash = hash_of(op, attr, canon, count);
    uint32_t slot = probe(g, hash, op, attr, canon, count);
    if (g->slot[slot])
        return g->slot[slot] - 1;
    for (unsigned i = 0; i < count; i++)
        types[i] = g->type.at[ef_find(g, children[i])];
    ef_type type = ef_egraph_infer(g, op, attr, types, count);
    if (!type)
        return EF_NONE;
    ef_id origin[EF_MAX_CHILDREN] = {0};
    if (count)
        memcpy(origin, children, count * sizeof *children); /* `children` may point into arrays that grow now */
    ef_id n = new_node(g, op, attr, canon, origin, count, hash, type);
    table_put(g, slot, n);
    fold_constant(g, n, op, attr, canon, count);
    return n;
}

ef_id ef_egraph_lookup(ef_egraph *g, ef_op op, uint64_t attr, const ef_id *children, unsigned count)
{
    ef_id canon[EF_MAX_CHILDREN] = {0};
    canonical(g, op, children, count, canon);
    return g->slot[probe(g, hash_of(op, attr, canon, count), op, attr, canon, count)] - 1;
}

ef_id ef_egraph_view(ef_egraph *g, ef_axes axes, ef_id x)
{
    ef_type type = ef_egraph_type(g, x);
    ef_axes inner, outer;
    if (axes == 0 || ef_type_is_literal(g->ctx, type))
        return x;
    if (!ef_egraph_infer(g, EF_VIEW, axes, &type, 1))
        return EF_NONE;
    ef_view_split(g->ctx, axes, type, &inner, &outer);
    if (inner)
        x = ef_egraph_add(g, EF_VIEW, inner, &x, 1);
    if (outer && x != EF_NONE)
        x = ef_egraph_add(g, EF_VIEW, outer, &x, 1);
    return x;
}

/* Applies `put` to every node of an expression, children first. */
static ef_id each_node(ef_egraph *g, const ef_dag *dag, ef_expr e,
                       ef_id (*put)(ef_egraph *, ef_op, uint64_t, const ef_id *, unsigned))
{
    ef_id *id = ef_xcalloc((size_t)e + 1, sizeof *id);
    uint8_t *needed = ef_xcalloc((size_t)e + 1, 1);
    const ef_expr *child;
    needed[e] = 1;
    for (ef_expr n = e + 1; n-- > 0;)
        for (unsigned i = 0, count = needed[n] ? ef_dag_children(dag, n, &child) : 0; i < count; i++)
            needed[child[i]] = 1;
    ef_id result = 0;
    for (ef_expr n = 0; n <= e && result != EF_NONE; n++) {
        ef_id children[EF_MAX_CHILDREN];
        if (!needed[n])
            continue;
        unsigned count = ef_dag_children(dag, n, &child);
        for (unsigned i = 0; i < count; i++)
            children[i] = id[child[i]];
        result = id[n] = put(g, ef_dag_op(dag, n), ef_dag_attr(dag, n), children, count);
    }
    free(id);
    free(needed);
    return result;
}

ef_id ef_egraph_add_expr(ef_egraph *g, const ef_dag *dag, ef_expr e)
{
    return each_node(g, dag, e, ef_egraph_add);
}

ef_id ef_egraph_find_expr(ef_egraph *g, const ef_dag *dag, ef_expr e)
{
    return each_node(g, dag, e, ef_egraph_lookup);
}

/* ---- classes ---- */

bool ef_egraph_constant(ef_egraph *g, ef_id id, double *value)
{
    id = ef_find(g, id);
    *value = g->constant.at[id];
    return g->is_constant.at[id];
}

static ef_id skip_dead(const ef_egraph *g, ef_id n)
{
    while (n != EF_NONE && g->dead.at[n])
        n = g->next_in_class.at[n];
    return n;
}

ef_id ef_class_first(ef_egraph *g, ef_id id)
{
    return skip_dead(g, ef_find(g, id));
}

ef_id ef_class_next(ef_egraph *g, ef_id node)
{
    return skip_dead(g, g->next_in_class.at[node]);
}

ef_id ef_class_find(ef_egraph *g, ef_id id, ef_op op)
{
    if (!(g->operators.at[ef_find(g, id)] >> op & 1u))
        return EF_NONE;
    ef_id n = ef_class_first(g, id);
    while (n != EF_NONE && g->op.at[n] != op)
        n = ef_class_next(g, n);
    return n;
}

/* ---- unions ---- */

uint32_t ef_egraph_record(ef_egraph *g, uint32_t rule, const ef_id *left, unsigned left_count, const ef_id *right,
                          unsigned right_count, uint32_t swaps)
{
    ef_application a = {rule, g->application_ids.count, (uint16_t)left_count, (uint16_t)right_count, swaps};
    for (unsigned i = 0; i < left_count; i++)
        ef_vec_push(&g->application_ids, left[i]);
    for (unsigned i = 0; i < right_count; i++)
        ef_vec_push(&g->application_ids, right[i]);
    ef_vec_push(&g->applications, a);
    return g->applications.count - 1;
}

/* Makes `a` the root of its proof tree, then hangs it below `b`. */
static void proof_link(ef_egraph *g, ef_id a, ef_id b, uint32_t why)
{
    ef_id node = a, to = EF_NONE;
    ef_proof_edge edge = {b, why, true, g->unions & 0x7fffffffu};
    while (node != EF_NONE) {
        ef_proof_edge old = g->proof.at[node];
        g->proof.at[node] = edge;
        to = old.to;
        edge = (ef_proof_edge){node, old.why, !old.forward, old.when};
        node = to;
    }
}

static void type_error(ef_egraph *g, ef_id a, ef_id b, uint32_t application)
{
    ef_strbuf left = {0}, right = {0};
    ef_type_print(g->ctx, ef_egraph_type(g, a), &left);
    ef_type_print(g->ctx, ef_egraph_type(g, b), &right);
    union_error(g, a, b, application, "types", left.text, right.text);
    ef_strbuf_free(&left);
    ef_strbuf_free(&right);
}

static bool unite(ef_egraph *g, ef_id a, ef_id b, uint32_t why, uint32_t application)
{
    ef_id ra = ef_find(g, a), rb = ef_find(g, b);
    if (ra == rb)
        return false;
    if (g->type.at[ra] != g->type.at[rb]) {
        type_error(g, a, b, application);
        return false;
    }
    if (g->is_constant.at[ra] && g->is_constant.at[rb] && !ef_constants_agree(g->constant.at[ra], g->constant.at[rb])) {
        constant_error(g, a, b, application, g->constant.at[ra], g->constant.at[rb]);
        return false;
    }
    proof_link(g, a, b, why);
    /* The class with more parents wins, so that a node is repaired O(log n) times; the older one on a tie. */
    bool a_wins = g->parents.at[ra] != g->parents.at[rb] ? g->parents.at[ra] > g->parents.at[rb] : ra < rb;
    ef_id winner = a_wins ? ra : rb, loser = a_wins ? rb : ra;
    ef_uf_link(&g->uf, winner, loser);
    g->next_in_class.at[g->last_in_class.at[winner]] = loser;
    g->last_in_class.at[winner] = g->last_in_class.at[loser];
    g->operators.at[winner] |= g->operators.at[loser];
    if (g->first_parent.at[winner] == EF_NONE)
        g->first_parent.at[winner] = g->first_parent.at[loser];
    else if (g->first_parent.at[loser] != EF_NONE)
        g->parent.at[g->last_parent.at[winner]].next = g->first_parent.at[loser];
    if (g->last_parent.at[loser] != EF_NONE)
        g->last_parent.at[winner] = g->last_parent.at[loser];
    if (g->is_constant.at[loser] && !g->is_constant.at[winner]) {
        g->is_constant.at[winner] = 1;
        g->constant.at[winner] = g->constant.at[loser];
        ef_vec_push(&g->constants, winner); /* the loser's parents are repaired anyway */
    }
    g->parents.at[winner] += g->parents.at[loser];
    if (g->first_parent.at[loser] != EF_NONE) {
        ef_vec_push(&g->dirty, g->first_parent.at[loser]);
        ef_vec_push(&g->dirty, g->last_parent.at[loser]);
    }
    ef_vec_push(&g->changed, winner);
    g->classes--;
    g->unions++;
    return true;
}

bool ef_egraph_union(ef_egraph *g, ef_id a, ef_id b, uint32_t application)
{
    return unite(g, a, b, application == EF_NONE ? EF_BY_CONGRUENCE : application + 1, application);
}

/* A parent whose child changed class: its key changes; it may now be equal to another node. */
static void repair_parent(ef_egraph *g, ef_id n)
{
    ef_id canon[EF_MAX_CHILDREN];
    unsigned count = g->arity.at[n];
    ef_op op = (ef_op)g->op.at[n];
    ef_id *children = g->child.at + g->first_child.at[n];
    canonical(g, op, children, count, canon);
    if (g->dead.at[n] == EF_DEAD || memcmp(canon, children, count * sizeof *canon) == 0)
        return;
    table_remove(g, n);
    memcpy(children, canon, count * sizeof *canon);
    g->hash.at[n] = hash_of(op, g->attr.at[n], canon, count);
    uint32_t slot = probe(g, g->hash.at[n], op, g->attr.at[n], canon, count);
    if (!g->slot[slot]) {
        table_put(g, slot, n);
        ef_vec_push(&g->changed, ef_find(g, n));
        fold_constant(g, n, op, g->attr.at[n], canon, count);
        return;
    }
    ef_id equal = g->slot[slot] - 1;
    if (g->dead.at[n] == EF_ASIDE || g->dead.at[equal] != EF_ASIDE)
        g->live -= g->dead.at[n] == 0;
    else
        g->dead.at[equal] = 0; /* in place of n */
    g->dead.at[n] = EF_DEAD;
    unite(g, n, equal, EF_BY_CONGRUENCE, EF_NONE);
}

static void repair_parents(ef_egraph *g, uint32_t first, uint32_t last)
{
    for (uint32_t p = first;; p = g->parent.at[p].next) {
        repair_parent(g, g->parent.at[p].node);
        if (p == last)
            return;
    }
}

void ef_egraph_set_aside(ef_egraph *g, ef_id node)
{
    if (g->dead.at[node])
        return;
    g->dead.at[node] = EF_ASIDE;
    g->live--;
}

uint32_t ef_egraph_bring_back(ef_egraph *g)
{
    uint32_t count = 0;
    for (ef_id n = 0; n < g->op.count; n++)
        if (g->dead.at[n] == EF_ASIDE) {
            g->dead.at[n] = 0;
            g->live++;
            count++;
            ef_vec_push(&g->changed, ef_find(g, n));
        }
    return count;
}

/* The parents of a class that became a constant may be constants now. */
static void fold_parents(ef_egraph *g, ef_id class)
{
    for (uint32_t p = g->first_parent.at[class]; p != EF_NONE; p = g->parent.at[p].next) {
        ef_id n = g->parent.at[p].node, children[EF_MAX_CHILDREN];
        if (g->dead.at[n])
            continue;
        memcpy(children, ef_node_children(g, n), g->arity.at[n] * sizeof *children); /* the array may grow */
        fold_constant(g, n, (ef_op)g->op.at[n], g->attr.at[n], children, g->arity.at[n]);
    }
}

uint32_t ef_egraph_rebuild(ef_egraph *g)
{
    uint32_t before = g->unions;
    for (uint32_t i = 0, c = 0; i < g->dirty.count || c < g->constants.count;) { /* both grow while it runs */
        if (i < g->dirty.count) {
            repair_parents(g, g->dirty.at[i], g->dirty.at[i + 1]);
            i += 2;
        } else {
            fold_parents(g, ef_find(g, g->constants.at[c++]));
        }
    }
    g->dirty.count = g->constants.count = 0;
    return g->unions - before;
}

void ef_egraph_tick(ef_egraph *g)
{
    EF_VEC(ef_id) front = {0}, next = {0};
    g->tick++;
    for (uint32_t i = 0; i < g->changed.count; i++)
        ef_vec_push(&front, ef_find(g, g->changed.at[i]));
    g->changed.count = 0;
    for (int depth = 0; depth < EF_TOUCH_DEPTH; depth++) {
        next.count = 0;
        for (uint32_t i = 0; i < front.count; i++) {
            ef_id class = front.at[i];
            if (g->touched[depth].at[class] == g->tick)
                continue;
            g->touched[depth].at[class] = g->tick;
            ef_vec_push(&next, class);
            for (uint32_t p = g->first_parent.at[class]; p != EF_NONE; p = g->parent.at[p].next)
                if (!g->dead.at[g->parent.at[p].node])
                    ef_vec_push(&next, ef_find(g, g->parent.at[p].node));
        }
        __typeof__(front) swap = front;
        front.at = next.at, front.count = next.count, front.capacity = next.capacity;
        next.at = swap.at, next.count = swap.count, next.capacity = swap.capacity;
    }
    ef_vec_free(&front);
    ef_vec_free(&next);
}
