/* Explanations: see explain.h.
 *
 * The proof forest holds one edge per union, so two equal nodes have one path between them, and that path never changes
 * once it exists. Every edge carries the number of unions before it. What justifies an edge is a set of older
 * equalities, so explaining those in turn comes to an end; where the graph of today offers several ways to read an
 * edge, the reading that held when the edge was made (equal_at) is the one that is not circular. */
#include "egraph/explain.h"

#include <string.h>

#define ALWAYS UINT32_MAX

typedef struct {
    ef_id a, b;
} pair;

typedef struct {
    uint32_t application; /* chronological */
    ef_proof_step step;
} dated_step;

typedef struct {
    ef_egraph *g;
    const ef_rule *rules;
    unsigned count;
    ef_diag *diag;
    ef_dag *dag;
    uint32_t *depth;   /* in the proof forest, by node; roots 1 */
    ef_unionfind past; /* jumps over edges that are explained */
    ef_expr *term;     /* by node, EF_NONE until needed */
    EF_VEC(pair) todo;
    EF_VEC(dated_step) steps;
} explainer;

/* ---- the proof forest ---- */

static void compute_depths(explainer *x)
{
    const ef_proof_edge *edge = x->g->proof.at;
    EF_VEC(ef_id) chain = {0};
    for (ef_id n = 0; n < x->g->op.count; n++) {
        ef_id top = n;
        for (; top != EF_NONE && !x->depth[top]; top = edge[top].to)
            ef_vec_push(&chain, top);
        uint32_t depth = top == EF_NONE ? 0 : x->depth[top];
        while (chain.count)
            x->depth[chain.at[--chain.count]] = ++depth;
    }
    ef_vec_free(&chain);
}

/* Whether two nodes were equal when `when` unions had been made. */
static bool equal_at(explainer *x, ef_id a, ef_id b, uint32_t when)
{
    const ef_proof_edge *edge = x->g->proof.at;
    if (ef_find(x->g, a) != ef_find(x->g, b))
        return false;
    while (a != b) {
        ef_id *deeper = x->depth[a] >= x->depth[b] ? &a : &b;
        if (edge[*deeper].when >= when)
            return false;
        *deeper = edge[*deeper].to;
    }
    return true;
}

static void need(explainer *x, ef_id a, ef_id b)
{
    if (a != b)
        ef_vec_push(&x->todo, ((pair){a, b}));
}

/* ---- terms ---- */

/* The term of a node as it was created. Children have smaller ids, but chains may be long: so no recursion. */
static ef_expr term_of(explainer *x, ef_id root)
{
    ef_egraph *g = x->g;
    EF_VEC(ef_id) stack = {0};
    ef_vec_push(&stack, root);
    while (stack.count && !x->diag->failed) {
        ef_id n = stack.at[stack.count - 1];
        const ef_id *origin = ef_node_origins(g, n);
        ef_expr child[EF_MAX_CHILDREN];
        uint32_t before = stack.count;
        for (unsigned i = 0; i < g->arity.at[n]; i++)
            if ((child[i] = x->term[origin[i]]) == EF_NONE)
                ef_vec_push(&stack, origin[i]);
        if (stack.count > before)
            continue;
        stack.count--;
        x->term[n] = ef_dag_add_exact(x->dag, (ef_op)g->op.at[n], g->attr.at[n], child, g->arity.at[n], x->diag);
    }
    ef_vec_free(&stack);
    return x->term[root];
}

/* The literal that the class of a node was known to be (of this value, where one is wanted), else the node: conditions
 * may ask for literals, so an instance shows them as such. */
static ef_id literal_or(explainer *x, ef_id id, uint32_t when, const double *wanted)
{
    ef_egraph *g = x->g;
    double value;
    if (ef_egraph_constant(g, id, &value))
        for (ef_id n = ef_class_first(g, id); n != EF_NONE; n = ef_class_next(g, n))
            if (g->op.at[n] == EF_CONST && (!wanted || ef_attr_to_number(g->attr.at[n]) == *wanted) &&
                equal_at(x, n, id, when))
                return n;
    return id;
}

/* ---- operands ---- */

/* Explains why the operands of two nodes are equal, as they were at that time. */
static bool need_operands(explainer *x, ef_op op, const ef_id *a, const ef_id *b, unsigned count, uint32_t when)
{
    ef_egraph *g = x->g;
    bool crossed = false, straight = true;
    for (unsigned i = 0; i < count; i++)
        straight = straight && ef_find(g, a[i]) == ef_find(g, b[i]);
    if (count == 2 && ef_op_commutative(op)) {
        crossed = ef_find(g, a[0]) == ef_find(g, b[1]) && ef_find(g, a[1]) == ef_find(g, b[0]);
        if (straight && crossed)
            crossed = !(equal_at(x, a[0], b[0], when) && equal_at(x, a[1], b[1], when));
    }
    if (!straight && !crossed)
        return ef_fail(x->diag, "a union of two %s nodes was made without a record", ef_ops[op].name);
    for (unsigned i = 0; i < count; i++)
        need(x, a[i], b[crossed ? 1 - i : i]);
    return true;
}

static bool need_congruence(explainer *x, ef_id a, ef_id b, uint32_t when)
{
    ef_egraph *g = x->g;
    if (g->op.at[a] != g->op.at[b] || g->attr.at[a] != g->attr.at[b] || g->arity.at[a] != g->arity.at[b])
        return ef_fail(x->diag, "a union of %s and %s was made without a record", ef_ops[g->op.at[a]].name,
                       ef_ops[g->op.at[b]].name);
    return need_operands(x, (ef_op)g->op.at[a], ef_node_origins(g, a), ef_node_origins(g, b), g->arity.at[a], when);
}

/* ---- instances of rules ---- */

typedef struct {
    explainer *x;
    const ef_rule *rule;
    const ef_id *left, *right; /* by pattern position */
    uint32_t swaps, when;
} instance;

static ef_expr node_over(explainer *x, ef_id n, const ef_expr *child, unsigned count)
{
    return ef_dag_add_exact(x->dag, (ef_op)x->g->op.at[n], x->g->attr.at[n], child, count, x->diag);
}

static ef_expr variable(instance *in, ef_id bound, const double *wanted)
{
    ef_id shown = literal_or(in->x, bound, in->when, wanted);
    need(in->x, bound, shown);
    return term_of(in->x, shown);
}

/* A position of the left side; `actual` is the operand that stands there. */
static ef_expr left_term(instance *in, unsigned position, ef_id actual)
{
    explainer *x = in->x;
    const ef_pattern_node *p = &in->rule->left.node[position];
    ef_expr child[EF_PATTERN_CHILDREN];
    if (p->kind == EF_PAT_VAR) {
        need(x, actual, in->left[position]);
        return variable(in, in->left[position], NULL);
    }
    if (p->kind == EF_PAT_NUMBER)
        return variable(in, actual, &p->number);
    ef_id n = in->left[position];
    bool swapped = in->swaps >> position & 1u;
    need(x, actual, n);
    for (unsigned i = 0; i < p->children; i++)
        child[i] = left_term(in, p->child[i], ef_node_origins(x->g, n)[swapped ? 1 - i : i]);
    return node_over(x, n, child, p->children);
}

/* A view that became two nodes: `outer` over an inner one, which no record names. It was a node of the class that
 * `outer` views, over something equal to the operand. */
static ef_expr double_view(instance *in, ef_id outer, ef_id operand, ef_expr operand_term)
{
    explainer *x = in->x;
    ef_egraph *g = x->g;
    ef_id middle = ef_node_origins(g, outer)[0];
    ef_axes axes = ef_axes_minus(g->ctx, ef_type_axes(g->ctx, ef_egraph_type(g, middle)),
                                 ef_type_axes(g->ctx, ef_egraph_type(g, operand)));
    for (ef_id n = ef_find(g, middle); n != EF_NONE; n = g->next_in_class.at[n]) {
        if (g->op.at[n] != EF_VIEW || g->attr.at[n] != axes || !equal_at(x, n, middle, in->when) ||
            !equal_at(x, ef_node_origins(g, n)[0], operand, in->when))
            continue;
        need(x, n, middle);
        need(x, ef_node_origins(g, n)[0], operand);
        ef_expr inner = node_over(x, n, &operand_term, 1);
        return inner == EF_NONE ? EF_NONE : node_over(x, outer, &inner, 1);
    }
    ef_fail(x->diag, "rule %s: the inner view of a right side is not in the e-graph", in->rule->name);
    return EF_NONE;
}

static ef_expr right_term(instance *in, unsigned position)
{
    explainer *x = in->x;
    ef_egraph *g = x->g;
    const ef_pattern_node *p = &in->rule->right.node[position];
    ef_id n = in->right[position], operand[EF_PATTERN_CHILDREN];
    ef_expr child[EF_PATTERN_CHILDREN];
    if (p->kind == EF_PAT_VAR)
        return variable(in, n, NULL);
    for (unsigned i = 0; i < p->children; i++) {
        operand[i] = in->right[p->child[i]];
        if ((child[i] = right_term(in, p->child[i])) == EF_NONE)
            return EF_NONE;
    }
    bool vanishes = p->kind == EF_PAT_OP && (p->op == EF_VIEW || p->op == EF_COMBINE) && p->children == 1;
    if (vanishes && n == operand[0])
        return child[0];
    if (vanishes && p->op == EF_VIEW && ef_find(g, ef_node_origins(g, n)[0]) != ef_find(g, operand[0]))
        return double_view(in, n, operand[0], child[0]);
    if (!need_operands(x, (ef_op)g->op.at[n], ef_node_origins(g, n), operand, p->children, in->when))
        return EF_NONE;
    return node_over(x, n, child, p->children);
}

/* ---- steps ---- */

static bool add_step(explainer *x, uint32_t application, uint32_t rule, ef_expr before, ef_expr after)
{
    if (before == EF_NONE || after == EF_NONE || x->diag->failed)
        return ef_fail(x->diag, "an explanation needs a term that has no type");
    if (before != after)
        ef_vec_push(&x->steps, ((dated_step){application, {rule, before, after}}));
    return true;
}

static bool rule_step(explainer *x, uint32_t application, uint32_t when)
{
    const ef_application *a = &x->g->applications.at[application];
    const ef_rule *rule = &x->rules[a->rule];
    const ef_id *ids = x->g->application_ids.at + a->ids;
    instance in = {x, rule, ids, ids + a->left, a->swaps, when};
    ef_expr before = left_term(&in, 0, in.left[0]);
    ef_expr after = rule->builder ? term_of(x, in.right[0]) : right_term(&in, 0);
    return add_step(x, application, a->rule, before, after);
}

/* op(literals) = literal: the operands are shown as the literals that they were known to be. */
static bool fold_step(explainer *x, uint32_t application, uint32_t when)
{
    const ef_application *a = &x->g->applications.at[application];
    ef_id n = x->g->application_ids.at[a->ids], literal = x->g->application_ids.at[a->ids + 1];
    ef_expr child[EF_MAX_CHILDREN];
    for (unsigned i = 0; i < x->g->arity.at[n]; i++) {
        ef_id origin = ef_node_origins(x->g, n)[i], shown = literal_or(x, origin, when, NULL);
        need(x, origin, shown);
        child[i] = term_of(x, shown);
    }
    return add_step(x, application, EF_STEP_FOLD, node_over(x, n, child, x->g->arity.at[n]), term_of(x, literal));
}

/* x = get[i](t): t's class has a tuple whose field i is x. */
static bool tuple_step(explainer *x, uint32_t application, uint32_t when)
{
    ef_egraph *g = x->g;
    const ef_application *a = &g->applications.at[application];
    ef_id part = g->application_ids.at[a->ids], get = g->application_ids.at[a->ids + 1];
    ef_id t = ef_node_origins(g, get)[0];
    uint64_t field = g->attr.at[get];
    ef_expr child[EF_MAX_CHILDREN];
    for (ef_id n = ef_find(g, t); n != EF_NONE; n = g->next_in_class.at[n]) {
        if (g->op.at[n] != EF_TUPLE || field >= g->arity.at[n] || !equal_at(x, n, t, when) ||
            !equal_at(x, ef_node_origins(g, n)[field], part, when))
            continue;
        need(x, n, t);
        need(x, ef_node_origins(g, n)[field], part);
        for (unsigned i = 0; i < g->arity.at[n]; i++)
            child[i] = term_of(x, i == field ? part : ef_node_origins(g, n)[i]);
        ef_expr tuple = node_over(x, n, child, g->arity.at[n]);
        return add_step(x, application, EF_STEP_TUPLE, term_of(x, part),
                        tuple == EF_NONE ? EF_NONE : node_over(x, get, &tuple, 1));
    }
    return ef_fail(x->diag, "an introduced tuple is not in the e-graph");
}

/* Explains the edge from a node to its neighbour. */
static bool explain_edge(explainer *x, ef_id n)
{
    ef_proof_edge edge = x->g->proof.at[n];
    if (edge.why == EF_BY_CONGRUENCE)
        return need_congruence(x, n, edge.to, edge.when);
    uint32_t application = edge.why - 1, rule = x->g->applications.at[application].rule;
    if (rule == EF_STEP_FOLD)
        return fold_step(x, application, edge.when);
    if (rule == EF_STEP_TUPLE)
        return tuple_step(x, application, edge.when);
    if (rule >= x->count)
        return ef_fail(x->diag, "a union names rule %u, which does not exist", rule);
    return rule_step(x, application, edge.when);
}

/* Follows the path between two nodes; what was explained before is jumped over. */
static bool explain_pair(explainer *x, ef_id a, ef_id b)
{
    if (ef_find(x->g, a) != ef_find(x->g, b))
        return ef_fail(x->diag, "the terms are not equal in the e-graph");
    a = ef_uf_find(&x->past, a);
    b = ef_uf_find(&x->past, b);
    while (a != b) {
        ef_id *deeper = x->depth[a] >= x->depth[b] ? &a : &b;
        if (!explain_edge(x, *deeper))
            return false;
        ef_uf_link(&x->past, x->g->proof.at[*deeper].to, *deeper);
        *deeper = ef_uf_find(&x->past, *deeper);
    }
    return true;
}

/* ---- whole proofs ---- */

static explainer start(ef_egraph *g, const ef_rule *rules, unsigned count, ef_diag *diag)
{
    explainer x = {.g = g, .rules = rules, .count = count, .diag = diag, .dag = ef_dag_new(g->ctx)};
    x.depth = ef_xcalloc(g->op.count + 1, sizeof *x.depth);
    x.term = ef_xcalloc(g->op.count + 1, sizeof *x.term);
    for (ef_id n = 0; n < g->op.count; n++) {
        x.term[n] = EF_NONE;
        ef_uf_make(&x.past);
    }
    compute_depths(&x);
    return x;
}

static int by_application(const void *a, const void *b)
{
    const dated_step *x = a, *y = b;
    return (x->application > y->application) - (x->application < y->application);
}

/* The steps in order, each equation once. */
static void collect(explainer *x, ef_proof *proof)
{
    ef_intern *seen = ef_intern_new();
    if (x->steps.count)
        qsort(x->steps.at, x->steps.count, sizeof *x->steps.at, by_application);
    proof->step = ef_xcalloc(x->steps.count + 1, sizeof *proof->step);
    for (uint32_t i = 0; i < x->steps.count; i++) {
        int fresh;
        ef_intern_put(seen, &x->steps.at[i].step, sizeof x->steps.at[i].step, &fresh);
        if (fresh)
            proof->step[proof->steps++] = x->steps.at[i].step;
    }
    ef_intern_free(seen);
}

/* Works off what is needed, and makes the proof. The explainer is at its end. */
static ef_proof *finish(explainer *x, ef_expr from, ef_expr to)
{
    ef_proof *proof = NULL;
    bool fine = !x->diag->failed && from != EF_NONE && to != EF_NONE;
    while (fine && x->todo.count) {
        pair p = x->todo.at[--x->todo.count];
        fine = explain_pair(x, p.a, p.b) && !x->diag->failed;
    }
    if (fine) {
        proof = ef_xcalloc(1, sizeof *proof);
        *proof = (ef_proof){.dag = x->dag, .from = from, .to = to};
        collect(x, proof);
    } else {
        ef_dag_free(x->dag);
    }
    free(x->depth);
    free(x->term);
    ef_vec_free(&x->past.parent);
    ef_vec_free(&x->todo);
    ef_vec_free(&x->steps);
    return proof;
}

ef_proof *ef_explain(ef_egraph *g, const ef_rule *rules, unsigned count, ef_id a, ef_id b, ef_diag *diag)
{
    ef_diag own = {0};
    explainer x = start(g, rules, count, diag ? diag : &own);
    ef_vec_push(&x.todo, ((pair){a, b}));
    ef_expr from = term_of(&x, a), to = term_of(&x, b);
    return finish(&x, from, to);
}

/* Copies an expression, and finds the node of each of its terms: one with equal operands, which is explained. */
static ef_expr take_expr(explainer *x, const ef_dag *dag, ef_expr root, ef_id *node)
{
    ef_egraph *g = x->g;
    ef_expr *copy = ef_xcalloc((size_t)root + 1, sizeof *copy), result = EF_NONE;
    ef_id *id = ef_xcalloc((size_t)root + 1, sizeof *id);
    uint8_t *needed = ef_xcalloc((size_t)root + 1, 1);
    const ef_expr *child;
    needed[root] = 1;
    for (ef_expr e = root + 1; e-- > 0;)
        for (unsigned i = 0, count = needed[e] ? ef_dag_children(dag, e, &child) : 0; i < count; i++)
            needed[child[i]] = 1;
    for (ef_expr e = 0; e <= root && !x->diag->failed; e++) {
        ef_id ids[EF_MAX_CHILDREN];
        ef_expr terms[EF_MAX_CHILDREN];
        if (!needed[e])
            continue;
        ef_op op = ef_dag_op(dag, e);
        unsigned count = ef_dag_children(dag, e, &child);
        for (unsigned i = 0; i < count; i++) {
            ids[i] = id[child[i]];
            terms[i] = copy[child[i]];
        }
        id[e] = ef_egraph_lookup(g, op, ef_dag_attr(dag, e), ids, count);
        if (id[e] == EF_NONE)
            ef_fail(x->diag, "a %s of the expression is not in the e-graph", ef_ops[op].name);
        else if (need_operands(x, op, ef_node_origins(g, id[e]), ids, count, ALWAYS))
            result = copy[e] = ef_dag_add_exact(x->dag, op, ef_dag_attr(dag, e), terms, count, x->diag);
    }
    *node = id[root];
    free(copy);
    free(id);
    free(needed);
    return x->diag->failed ? EF_NONE : result;
}

ef_proof *ef_explain_exprs(ef_egraph *g, const ef_rule *rules, unsigned count, const ef_dag *dag_a, ef_expr a,
                           const ef_dag *dag_b, ef_expr b, ef_diag *diag)
{
    ef_diag own = {0};
    ef_id left = 0, right = 0;
    explainer x = start(g, rules, count, diag ? diag : &own);
    ef_expr from = take_expr(&x, dag_a, a, &left);
    ef_expr to = from == EF_NONE ? EF_NONE : take_expr(&x, dag_b, b, &right);
    if (to != EF_NONE)
        ef_vec_push(&x.todo, ((pair){left, right}));
    return finish(&x, from, to);
}

void ef_proof_free(ef_proof *proof)
{
    if (!proof)
        return;
    ef_dag_free(proof->dag);
    free(proof->step);
    free(proof);
}

const char *ef_proof_rule_name(const ef_rule *rules, unsigned count, uint32_t rule)
{
    if (rule == EF_STEP_FOLD)
        return "constant-fold";
    if (rule == EF_STEP_TUPLE)
        return "tuple-introduce";
    return rule < count ? rules[rule].name : "unknown rule";
}
