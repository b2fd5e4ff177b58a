/* Random instances of a rule: see instances.h and instances_walk.h. */
#include "rules/instances.h"

#include <string.h>

#include "rules/instances_walk.h"

/* ---- attributes ---- */

bool ef_walk_slot_known(const ef_walk *w, const ef_slot *slot, uint64_t *value)
{
    *value = slot->kind == EF_SLOT_VALUE ? slot->value : w->out->attr[slot->value];
    return slot->kind == EF_SLOT_VALUE || !slot->binds;
}

uint64_t ef_walk_slot_give(ef_walk *w, const ef_slot *slot, uint64_t value)
{
    if (slot->kind == EF_SLOT_VALUE)
        return slot->value;
    if (slot->binds)
        w->out->attr[slot->value] = value;
    return w->out->attr[slot->value];
}

/* ---- nodes and types ---- */

ef_expr ef_walk_add(ef_walk *w, ef_op op, uint64_t attr, const ef_expr *x, unsigned count)
{
    for (unsigned i = 0; i < count; i++)
        if (x[i] == EF_NONE)
            return EF_NONE;
    return ef_dag_add_exact(w->d->dag, op, attr, x, count, NULL);
}

ef_expr ef_walk_operands(ef_walk *w, const ef_pattern_node *p, ef_op op, uint64_t attr, const ef_type *want,
                         unsigned count)
{
    ef_expr x[EF_PATTERN_CHILDREN];
    if (count != p->children)
        return EF_NONE;
    for (unsigned i = 0; i < count; i++)
        if (!want[i] || (x[i] = ef_walk_draw(w, p->child[i], want[i])) == EF_NONE)
            return EF_NONE;
    return ef_walk_add(w, op, attr, x, count);
}

ef_type ef_walk_each_tensor(ef_walk *w, ef_type type, uint64_t arg, ef_tensor_fn f)
{
    ef_type_info info = *ef_type_at(w->ctx, type);
    if (!info.is_tuple)
        return f(w, &info, arg) ? ef_type_intern(w->ctx, &info) : 0;
    for (unsigned i = 0; i < info.fields; i++)
        if (!(info.field[i] = ef_walk_each_tensor(w, info.field[i], arg, f)))
            return 0;
    return ef_type_intern(w->ctx, &info);
}

ef_dims ef_walk_dims(ef_walk *w, const ef_type_info *type)
{
    ef_dim dims[EF_MAX_RANK];
    for (unsigned i = 0; i < type->rank; i++)
        dims[i] = type->dim[type->rank - 1 - i];
    return ef_dims_intern(w->ctx, dims, type->rank);
}

const ef_type_info *ef_walk_settled(const ef_walk *w, unsigned at)
{
    const ef_pattern_node *p = &w->pattern->node[at];
    if (p->kind != EF_PAT_VAR || p->binds)
        return NULL;
    const ef_type_info *type = ef_type_at(w->ctx, ef_dag_type(w->d->dag, w->out->var[p->index]));
    return type->is_tuple ? NULL : type;
}

ef_kind ef_walk_absent_kind(uint32_t random, ef_axis axis)
{
    return random >> (ef_axis_var(axis) % 16u) & random >> 16 & 1u ? EF_PARTIAL : EF_REPLICATE;
}

/* ---- variables and all operators ---- */

static ef_expr draw_variable(ef_walk *w, const ef_pattern_node *p, ef_type want)
{
    if (!p->binds)
        return w->out->var[p->index];
    bool number = !ef_type_at(w->ctx, want)->is_tuple && ef_type_at(w->ctx, want)->dtype != EF_BOOL;
    bool positive = w->positives >> p->index & 1u, literal = positive || (w->literals >> p->index & 1u);
    ef_expr x;
    if (literal || (number && ef_draw_chance(w->d, 6))) {
        double value = ef_draw_number(w->d);
        x = ef_dag_const(w->d->dag, positive && value < 0 ? -value : value);
    } else {
        x = ef_draw_leaf(w->d, want);
    }
    return w->out->var[p->index] = x;
}

ef_expr ef_walk_draw(ef_walk *w, unsigned at, ef_type want)
{
    const ef_pattern_node *p = &w->pattern->node[at];
    if (p->kind == EF_PAT_VAR)
        return draw_variable(w, p, want);
    if (p->kind == EF_PAT_NUMBER)
        return ef_dag_const(w->d->dag, p->number);
    if (p->kind == EF_PAT_ANYOP || ef_op_pointwise(p->op))
        return ef_walk_pointwise(w, p, want);
    switch (p->op) {
    case EF_CONST:
        return ef_dag_const(w->d->dag, ef_attr_to_number(ef_walk_slot_give(w, &p->slot[0], ef_attr_number(2))));
    case EF_IOTA:
        return ef_walk_add(w, EF_IOTA, ef_walk_slot_give(w, &p->slot[0], ef_type_at(w->ctx, want)->dim[0]), NULL, 0);
    case EF_MATMUL:
    case EF_TILE_MATMUL: return ef_walk_matmul(w, p, want);
    case EF_REDUCE: return ef_walk_reduce(w, p, want);
    case EF_REDUCE_P: return ef_walk_reduce_p(w, p, want);
    case EF_RESHAPE: return ef_walk_reshape(w, p, want);
    case EF_TRANSPOSE: return ef_walk_transpose(w, p, want);
    case EF_SLICE: return ef_walk_slice(w, p, want);
    case EF_CONCAT: return ef_walk_concat(w, p, want);
    case EF_BROADCAST: return ef_walk_broadcast(w, p, want);
    case EF_TUPLE: return ef_walk_tuple(w, p, want);
    case EF_GET: return ef_walk_get(w, p, want);
    case EF_VIEW: return ef_walk_view(w, p, want);
    case EF_COMBINE: return ef_walk_combine(w, p, want);
    case EF_COLLECT: return ef_walk_collect(w, p, want);
    default: return EF_NONE;
    }
}

/* ---- the whole left side ---- */

/* The type of the result: a tuple where the pattern makes one, in one scope. */
static ef_type draw_result(ef_walk *w, unsigned at, ef_type like)
{
    const ef_pattern_node *p = &w->pattern->node[at];
    ef_type field[EF_MAX_FIELDS];
    bool passes = p->kind == EF_PAT_OP &&
                  (p->op == EF_VIEW || p->op == EF_COMBINE || p->op == EF_REDUCE_P || p->op == EF_COLLECT);
    if (passes)
        return draw_result(w, p->child[0], like);
    bool tuple = p->kind == EF_PAT_OP && p->op == EF_TUPLE, any = p->kind == EF_PAT_VAR && !w->d->scalar;
    unsigned fields = tuple ? p->children : any && ef_draw_chance(w->d, 12) ? 2 : 0;
    for (unsigned i = 0; i < fields; i++) {
        field[i] = tuple ? draw_result(w, p->child[i], like) : ef_draw_tensor(w->d, like);
        if (!field[i])
            return 0;
        like = like ? like : field[0];
    }
    return fields ? ef_type_tuple(w->ctx, field, fields) : ef_draw_tensor(w->d, like);
}

static void read_conditions(ef_walk *w, const ef_rule *rule)
{
    for (unsigned i = 0; i < rule->conditions; i++) {
        const ef_condition *c = &rule->condition[i];
        if (c->args == 0 || c->arg[0].kind != EF_ARG_VAR)
            continue;
        w->literals |= (uint32_t)(strcmp(c->name, "literal") == 0) << c->arg[0].index;
        w->positives |= (uint32_t)(strcmp(c->name, "positive") == 0) << c->arg[0].index;
    }
}

static bool draw_left(ef_instance *x)
{
    ef_walk w = {.out = x, .d = &x->draw, .ctx = x->draw.ctx, .pattern = &x->rule->left};
    read_conditions(&w, x->rule);
    x->draw.scalar = strcmp(x->rule->group, "scalar") == 0;
    for (unsigned i = 0; i < w.pattern->count; i++)
        if (w.pattern->node[i].kind == EF_PAT_OP)
            x->draw.uses[w.pattern->node[i].op] = true;
    const ef_type_info none = {0};
    if (x->draw.uses[EF_COLLECT])
        x->draw.counted = ef_draw_axis(&x->draw, &none);
    ef_type want = draw_result(&w, 0, 0);
    x->left = want ? ef_walk_draw(&w, 0, want) : EF_NONE;
    return x->left != EF_NONE;
}

/* ---- conditions and the right side ---- */

static bool conditions_hold(ef_instance *x)
{
    const ef_scope scope = {.ctx = x->draw.ctx};
    ef_condition_arg vars[EF_PATTERN_VARS], root = {.type = ef_dag_type(x->draw.dag, x->left), .id = EF_NONE};
    for (unsigned i = 0; i < x->rule->vars; i++) {
        ef_expr e = x->var[i];
        vars[i] = (ef_condition_arg){.type = ef_dag_type(x->draw.dag, e), .id = EF_NONE};
        vars[i].constant = ef_dag_op(x->draw.dag, e) == EF_CONST;
        vars[i].value = vars[i].constant ? ef_attr_to_number(ef_dag_attr(x->draw.dag, e)) : 0;
    }
    for (unsigned i = 0; i < x->rule->conditions; i++)
        if (!x->rule->condition[i].policy && !ef_condition_holds(&scope, &x->rule->condition[i], vars, &root, x->attr))
            return false;
    return true;
}

/* The right side, bottom-up, as ef_rule_apply builds it. */
static ef_expr build_right(ef_instance *x, unsigned at, ef_diag *diag)
{
    const ef_pattern_node *p = &x->rule->right.node[at];
    ef_expr child[EF_PATTERN_CHILDREN] = {0};
    if (p->kind == EF_PAT_VAR)
        return x->var[p->index];
    if (p->kind == EF_PAT_NUMBER)
        return ef_dag_const(x->draw.dag, p->number);
    for (unsigned i = 0; i < p->children; i++)
        if ((child[i] = build_right(x, p->child[i], diag)) == EF_NONE)
            return EF_NONE;
    bool any = p->kind == EF_PAT_ANYOP;
    ef_op op = any ? x->op[p->index].op : p->op;
    uint64_t attr = any ? x->op[p->index].attr : ef_pattern_attr(x->draw.ctx, x->rule, p, op, x->attr);
    if ((op == EF_REDUCE || op == EF_REDUCE_P) && ef_attr_reducer(attr) == EF_NONE)
        return EF_NONE;
    if (op == EF_VIEW)
        return ef_dag_view(x->draw.dag, (ef_axes)attr, child[0], diag);
    if (op == EF_COMBINE && attr == 0)
        return child[0];
    return ef_dag_add(x->draw.dag, op, attr, child, p->children, diag);
}

ef_instance_kind ef_instance_draw(ef_instance *x, const ef_rule *rule, uint64_t seed, ef_diag *diag)
{
    *x = (ef_instance){.rule = rule, .left = EF_NONE, .right = EF_NONE};
    ef_draw_start(&x->draw, seed);
    if (rule->builder)
        return ef_instance_draw_repair(x);
    if (!draw_left(x))
        return EF_INSTANCE_NONE;
    if (!conditions_hold(x))
        return EF_INSTANCE_CONDITION;
    x->right = build_right(x, 0, diag);
    if (x->right == EF_NONE || ef_dag_type(x->draw.dag, x->right) != ef_dag_type(x->draw.dag, x->left))
        return rule->same_type ? EF_INSTANCE_TYPE : EF_INSTANCE_ILL_TYPED;
    return x->right == x->left ? EF_INSTANCE_SAME : EF_INSTANCE_APPLIES;
}

void ef_instance_free(ef_instance *x)
{
    ef_draw_stop(&x->draw);
}
