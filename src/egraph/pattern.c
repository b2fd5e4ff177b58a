/* Pattern matching and rule application: see pattern.h. */
#include "egraph/pattern.h"

#include <string.h>

#include "egraph/runner.h"
#include "support/interrupt.h"

/* ---- attributes ---- */

unsigned ef_attr_slots(ef_op op, uint64_t attr, uint64_t slot[2])
{
    switch (ef_ops[op].attr) {
    case EF_ATTR_NONE: return 0;
    case EF_ATTR_REDUCE:
    case EF_ATTR_REDUCE_P:
        slot[0] = ef_attr_reducer(attr);
        slot[1] = ef_attr_reduce_at(attr);
        return 2;
    default: slot[0] = attr; return 1;
    }
}

static uint64_t slot_value(ef_ctx *ctx, const ef_rule *rule, const ef_slot *slot, const uint64_t *attrs)
{
    if (slot->kind == EF_SLOT_VALUE)
        return slot->value;
    if (slot->kind == EF_SLOT_VAR)
        return attrs[slot->value];
    const ef_attr_term *term = &rule->term[slot->value];
    uint64_t a = slot_value(ctx, rule, &term->a, attrs);
    if (term->kind == EF_TERM_SET)
        return ef_axes_intern(ctx, &(ef_axis){(ef_axis)a}, 1);
    uint64_t b = slot_value(ctx, rule, &term->b, attrs);
    switch (term->kind) {
    case EF_TERM_UNION: return ef_axes_union(ctx, (ef_axes)a, (ef_axes)b);
    case EF_TERM_MINUS: return ef_axes_minus(ctx, (ef_axes)a, (ef_axes)b);
    default: return ef_reducer_product(ctx, (ef_reducer)a, (ef_reducer)b);
    }
}

uint64_t ef_pattern_attr(ef_ctx *ctx, const ef_rule *rule, const ef_pattern_node *node, ef_op op, const uint64_t *attrs)
{
    if (node->slots == 0)
        return 0;
    uint64_t first = slot_value(ctx, rule, &node->slot[0], attrs);
    if (node->slots == 1)
        return first;
    (void)op;
    return ef_attr_reduce(first, slot_value(ctx, rule, &node->slot[1], attrs));
}

/* ---- conditions ---- */

bool ef_condition_holds(const ef_scope *scope, const ef_condition *condition, const ef_condition_arg *vars,
                        const ef_condition_arg *root, uint64_t *attrs)
{
    ef_condition_arg args[EF_CONDITION_ARGS] = {0};
    for (unsigned i = 0; i < condition->args; i++) {
        switch (condition->arg[i].kind) {
        case EF_ARG_VAR: args[i] = vars[condition->arg[i].index]; break;
        case EF_ARG_ROOT: args[i] = *root; break;
        case EF_ARG_ATTR: args[i].attr = attrs[condition->arg[i].index]; break;
        case EF_ARG_NUMBER: args[i].attr = condition->arg[i].number; break;
        }
    }
    uint64_t out = 0;
    if (!condition->fn(scope, args, condition->args, &out))
        return false;
    if (condition->binds >= 0)
        attrs[condition->binds] = out;
    return true;
}

static ef_condition_arg class_arg(ef_egraph *g, ef_id id)
{
    ef_condition_arg arg = {.type = ef_egraph_type(g, id), .id = ef_find(g, id)};
    arg.constant = ef_egraph_constant(g, id, &arg.value);
    return arg;
}

/* All conditions, binding what they bind; or the policy's alone, which then must bind nothing. */
static bool conditions_hold(const ef_scope *scope, const ef_rule *rule, ef_match *match, bool policy_alone)
{
    if (rule->conditions == 0)
        return true;
    ef_condition_arg vars[EF_PATTERN_VARS], root = class_arg(scope->graph, match->root);
    for (unsigned i = 0; i < rule->vars; i++)
        vars[i] = class_arg(scope->graph, match->var[i]);
    for (unsigned i = 0; i < rule->conditions; i++)
        if ((!policy_alone || (rule->condition[i].policy && rule->condition[i].binds < 0)) &&
            !ef_condition_holds(scope, &rule->condition[i], vars, &root, match->attr))
            return false;
    return true;
}

/* Whether the search still wants a match that it found before others were applied. */
static bool still_wanted(const ef_scope *scope, const ef_rule *rule, const ef_match *match)
{
    bool asks = false;
    for (unsigned i = 0; scope->policy && i < rule->conditions; i++)
        asks = asks || (rule->condition[i].policy && rule->condition[i].binds < 0);
    if (!asks)
        return true;
    ef_match copy = *match;
    return conditions_hold(scope, rule, &copy, true);
}

/* ---- matching ---- */

typedef struct {
    const ef_scope *scope;
    ef_egraph *g;
    const ef_rule *rule;
    ef_id at[EF_PATTERN_NODES];           /* the class (any id of it) at each pattern position */
    uint64_t operators[EF_PATTERN_NODES]; /* which operators a class needs one of to match there */
    double deadline;
    uint32_t steps; /* e-nodes tried */
    ef_match match;
    ef_yield_fn yield;
    void *user;
} matcher;

static bool match_from(matcher *m, unsigned position); /* false: the caller wants no more matches */

static bool match_slots(matcher *m, const ef_pattern_node *p, ef_op op, uint64_t attr)
{
    uint64_t value[2];
    unsigned slots = ef_attr_slots(op, attr, value);
    for (unsigned i = 0; i < slots; i++) {
        const ef_slot *slot = &p->slot[i];
        if (slot->kind == EF_SLOT_VAR && slot->binds)
            m->match.attr[slot->value] = value[i];
        else if (value[i] != (slot->kind == EF_SLOT_VAR ? m->match.attr[slot->value] : slot->value))
            return false;
    }
    return true;
}

static bool is_late(const matcher *m)
{
    return ef_interrupted() || (m->deadline > 0 && ef_seconds() > m->deadline);
}

/* Tries one e-node at a position: operator, attribute, then the rest of the pattern under its children. */
static bool match_node(matcher *m, unsigned position, ef_id n)
{
    ef_egraph *g = m->g;
    const ef_pattern_node *p = &m->rule->left.node[position];
    ef_op op = (ef_op)g->op.at[n];
    if ((++m->steps & 63u) == 0 && is_late(m))
        return false;
    if (g->arity.at[n] != p->children)
        return true;
    if (p->kind == EF_PAT_OP) {
        if (op != p->op || !match_slots(m, p, op, g->attr.at[n]))
            return true;
    } else {
        if (ef_ops[op].class != p->class)
            return true;
        if (!p->binds && (m->match.op[p->index].op != op || m->match.op[p->index].attr != g->attr.at[n]))
            return true;
        m->match.op[p->index].op = op;
        m->match.op[p->index].attr = g->attr.at[n];
    }
    m->match.node[position] = n;
    m->match.swaps &= ~(1u << position);
    for (unsigned i = 0; i < p->children; i++)
        m->at[p->child[i]] = ef_node_origins(g, n)[i];
    if (!match_from(m, position + 1))
        return false;
    if (p->children != 2 || !ef_op_commutative(op) ||
        ef_find(g, ef_node_origins(g, n)[0]) == ef_find(g, ef_node_origins(g, n)[1]))
        return true;
    m->match.node[position] = n;
    m->match.swaps |= 1u << position;
    m->at[p->child[0]] = ef_node_origins(g, n)[1];
    m->at[p->child[1]] = ef_node_origins(g, n)[0];
    if (p->kind == EF_PAT_ANYOP) {
        m->match.op[p->index].op = op;
        m->match.op[p->index].attr = g->attr.at[n];
    } else {
        match_slots(m, p, op, g->attr.at[n]);
    }
    bool more = match_from(m, position + 1);
    m->match.swaps &= ~(1u << position);
    return more;
}

static bool match_from(matcher *m, unsigned position)
{
    ef_egraph *g = m->g;
    if (position == m->rule->left.count) {
        ef_match found = m->match;
        return !conditions_hold(m->scope, m->rule, &found, false) || m->yield(m->user, &found);
    }
    const ef_pattern_node *p = &m->rule->left.node[position];
    ef_id class = m->at[position];
    double value;
    switch (p->kind) {
    case EF_PAT_VAR:
        if (p->binds)
            m->match.var[p->index] = class;
        else if (ef_find(g, m->match.var[p->index]) != ef_find(g, class))
            return true;
        return match_from(m, position + 1);
    case EF_PAT_NUMBER:
        return !ef_egraph_constant(g, class, &value) || value != p->number || match_from(m, position + 1);
    default: break;
    }
    if (!(g->operators.at[ef_find(g, class)] & m->operators[position]))
        return true;
    for (ef_id n = ef_class_first(g, class); n != EF_NONE; n = ef_class_next(g, n))
        if (!match_node(m, position, n))
            return false;
    return true;
}

static bool match_root(matcher *m, ef_id n, unsigned depth, uint32_t since)
{
    ef_egraph *g = m->g;
    ef_id class = ef_find(g, n);
    if (g->dead.at[n] || (since && g->touched[depth].at[class] < since))
        return true;
    m->match.root = n;
    m->at[0] = n;
    return match_node(m, 0, n);
}

static uint64_t operators_at(const ef_pattern_node *p)
{
    uint64_t set = 0;
    for (int op = 0; op < EF_OP_COUNT; op++)
        if (p->kind == EF_PAT_OP ? op == (int)p->op : p->kind == EF_PAT_ANYOP && ef_ops[op].class == p->class)
            set |= UINT64_C(1) << op;
    return set;
}

/* A pattern that is one variable matches every class. */
static bool match_classes(matcher *m, uint32_t since)
{
    ef_egraph *g = m->g;
    for (ef_id n = 0, count = g->op.count; n < count; n++) {
        if (ef_find(g, n) != n || (since && g->touched[0].at[n] < since))
            continue;
        m->match.root = m->at[0] = n;
        if (!match_from(m, 0) || is_late(m))
            return false;
    }
    return true;
}

bool ef_pattern_search(const ef_scope *scope, const ef_rule *rule, uint32_t since, double deadline, ef_yield_fn yield,
                       void *user)
{
    ef_egraph *g = scope->graph;
    matcher m = {.scope = scope, .g = g, .rule = rule, .deadline = deadline, .yield = yield, .user = user};
    unsigned depth = rule->depth ? rule->depth - 1u : 0;
    for (unsigned i = 0; i < rule->left.count; i++)
        m.operators[i] = operators_at(&rule->left.node[i]);
    if (depth >= EF_TOUCH_DEPTH)
        since = 0, depth = 0; /* deeper than changes are followed: look everywhere */
    if (rule->left.node[0].kind == EF_PAT_VAR)
        return match_classes(&m, since);
    for (int op = 0; op < EF_OP_COUNT; op++)
        for (uint32_t i = 0, count = m.operators[0] >> op & 1u ? g->by_op[op].count : 0; i < count; i++)
            if (!match_root(&m, g->by_op[op].at[i], depth, since))
                return false;
    return true;
}

/* ---- applying ---- */

typedef struct {
    const ef_scope *scope;
    const ef_rule *rule;
    const ef_match *match;
    ef_type type[EF_PATTERN_NODES];
    ef_id id[EF_PATTERN_NODES];
} application;

/* The operator and attribute at a right-side position. */
static ef_op node_op(const application *a, const ef_pattern_node *p, uint64_t *attr)
{
    ef_ctx *ctx = a->scope->ctx;
    if (p->kind == EF_PAT_ANYOP) {
        *attr = a->match->op[p->index].attr;
        return a->match->op[p->index].op;
    }
    if (p->kind == EF_PAT_NUMBER) {
        *attr = ef_attr_number(p->number);
        return EF_CONST;
    }
    *attr = ef_pattern_attr(ctx, a->rule, p, p->op, a->match->attr);
    return p->op;
}

/* Types of the right side, before anything is added; 0 when ill-typed. */
static ef_type right_type(application *a, unsigned position)
{
    ef_egraph *g = a->scope->graph;
    const ef_pattern_node *p = &a->rule->right.node[position];
    ef_type child[EF_PATTERN_CHILDREN] = {0};
    uint64_t attr;
    if (p->kind == EF_PAT_VAR)
        return ef_egraph_type(g, a->match->var[p->index]);
    for (unsigned i = 0; i < p->children; i++)
        if (!(child[i] = right_type(a, p->child[i])))
            return 0;
    ef_op op = node_op(a, p, &attr);
    if ((op == EF_REDUCE || op == EF_REDUCE_P) && ef_attr_reducer(attr) == EF_NONE)
        return 0;
    if ((op == EF_VIEW || op == EF_COMBINE) &&
        (attr == 0 || (op == EF_VIEW && ef_type_is_literal(a->scope->ctx, child[0]))))
        return child[0];
    return ef_egraph_infer(g, op, attr, child, p->children);
}

static ef_id build(application *a, unsigned position)
{
    ef_egraph *g = a->scope->graph;
    const ef_pattern_node *p = &a->rule->right.node[position];
    ef_id child[EF_PATTERN_CHILDREN] = {0};
    uint64_t attr;
    if (p->kind == EF_PAT_VAR)
        return a->id[position] = a->match->var[p->index];
    for (unsigned i = 0; i < p->children; i++)
        if ((child[i] = build(a, p->child[i])) == EF_NONE)
            return EF_NONE;
    ef_op op = node_op(a, p, &attr);
    if (op == EF_VIEW)
        return a->id[position] = ef_egraph_view(g, (ef_axes)attr, child[0]);
    if (op == EF_COMBINE && attr == 0)
        return a->id[position] = child[0];
    return a->id[position] = ef_egraph_add(g, op, attr, child, p->children);
}

int ef_rule_apply(const ef_scope *scope, const ef_rule *rule, uint32_t rule_index, const ef_match *match)
{
    ef_egraph *g = scope->graph;
    application a = {.scope = scope, .rule = rule, .match = match};
    ef_id right;
    unsigned right_count = rule->right.count;
    if (!still_wanted(scope, rule, match))
        return 0;
    if (rule->builder) {
        right = rule->builder(scope, rule, match);
        a.id[0] = right;
        right_count = 1;
    } else {
        ef_type type = right_type(&a, 0);
        if (!type || (rule->same_type && type != ef_egraph_type(g, match->root)))
            return -1;
        right = build(&a, 0);
    }
    if (right == EF_NONE)
        return -1;
    if (ef_find(g, right) == ef_find(g, match->root))
        return 0;
    ef_id left[EF_PATTERN_NODES];
    for (unsigned i = 0; i < rule->left.count; i++) {
        const ef_pattern_node *p = &rule->left.node[i];
        left[i] = p->kind == EF_PAT_VAR ? match->var[p->index] : p->kind == EF_PAT_NUMBER ? EF_NONE : match->node[i];
    }
    uint32_t record = ef_egraph_record(g, rule_index, left, rule->left.count, a.id, right_count, match->swaps);
    return ef_egraph_union(g, match->root, right, record);
}
