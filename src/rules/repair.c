/* Repair synthesis: see repair.h. */
#include "rules/repair.h"

#include <math.h>
#include <string.h>

#include "rules/language.h"
#include "rules/policy.h"
#include "rules/prove.h"
#include "rules/repair_parts.h"

/* ---- h ---- */

/* Replaces parameters s by t. */
static ef_scalar at_new(ef_ctx *ctx, ef_scalar term)
{
    ef_scalar_info info = *ef_scalar_at(ctx, term);
    if (info.kind == EF_SCALAR_PARAM)
        return ef_scalar_param(ctx, EF_PARAM_T, info.index);
    if (info.kind == EF_SCALAR_CONST)
        return term;
    for (unsigned i = 0; i < info.operands; i++)
        info.operand[i] = at_new(ctx, info.operand[i]);
    return ef_scalar_apply(ctx, info.op, info.operand);
}

static ef_scalar apply2(ef_ctx *ctx, ef_op op, ef_scalar a, ef_scalar b)
{
    return ef_scalar_apply(ctx, op, (ef_scalar[]){a, b, 0});
}

static ef_scalar simplified(ef_synthesis *y, ef_scalar raw)
{
    for (uint32_t i = 0; i < y->memory->simplified.count; i += 2)
        if (y->memory->simplified.at[i] == raw)
            return y->memory->simplified.at[i + 1];
    ef_scalar result = ef_prove_simplify(y->ctx, raw);
    ef_vec_push(&y->memory->simplified, raw);
    ef_vec_push(&y->memory->simplified, result);
    return result;
}

/* The same f, h and reducer come back in every iteration and grid: they are settled once. */
static bool settled(ef_synthesis *y, const ef_consumer_leaf *leaf, ef_scalar raw)
{
    ef_rule_memory *m = y->memory;
    ef_strbuf key = {0};
    int fresh;
    ef_strbuf_printf(&key, "%u %u ", leaf->base, raw);
    ef_expr_print(y->dag, leaf->fs, &key);
    uint32_t at = ef_intern_put(m->lemmas, key.text, key.length, &fresh);
    ef_strbuf_free(&key);
    if (fresh) {
        ef_vec_push(&m->lemma_holds, 2);
        m->lemma_holds.at[at] = ef_repair_proved(y, leaf) && ef_repair_checked(y, leaf);
    }
    return m->lemma_holds.at[at] == 1;
}

static bool derive_leaf(ef_synthesis *y, ef_id class, ef_reducer base, ef_consumer_leaf *leaf, ef_way *used)
{
    const ef_dependence d = *ef_repair_depends(y, class);
    ef_ctx *ctx = y->ctx;
    ef_scalar c = ef_scalar_param(ctx, EF_PARAM_C, 0), s, h;
    leaf->base = base;
    bool extremal = base == EF_RED_MAX || base == EF_RED_MIN;
    if (d.has[EF_INDEPENDENT]) {
        *used = EF_INDEPENDENT;
        h = c;
    } else if (extremal && d.has[EF_SHIFT]) {
        *used = EF_SHIFT;
        s = d.term[EF_SHIFT];
        h = apply2(ctx, EF_ADD, c, apply2(ctx, EF_SUB, at_new(ctx, s), s));
    } else if (d.has[EF_SCALE] && (base == EF_RED_SUM || (extremal && ef_repair_positive(y, d.term[EF_SCALE])))) {
        *used = EF_SCALE;
        s = leaf->scale = d.term[EF_SCALE];
        h = apply2(ctx, EF_MUL, c, apply2(ctx, EF_DIV, at_new(ctx, s), s));
    } else {
        return false;
    }
    ef_expr old[EF_MAX_LEAVES], new[EF_MAX_LEAVES];
    ef_repair_inputs(y, old, new);
    leaf->fs = ef_repair_image(y, class, *used, old);
    leaf->ft = ef_repair_image(y, class, *used, new);
    if (leaf->fs == EF_NONE || leaf->ft == EF_NONE)
        return false;
    leaf->h = *used == EF_INDEPENDENT ? h : simplified(y, h);
    return *used == EF_INDEPENDENT || settled(y, leaf, h);
}

/* ---- structure ---- */

/* The classes at the leaves of a reducer's operand: a tuple's fields, found or made by get. */
static bool leaf_classes(ef_egraph *g, ef_reducer reducer, ef_id class, bool make, ef_id *leaf, unsigned *count)
{
    const ef_reducer_info *info = ef_reducer_at(g->ctx, reducer);
    if (info->leaves == 1) {
        leaf[(*count)++] = class;
        return true;
    }
    ef_id tuple = ef_class_find(g, class, EF_TUPLE), field[2];
    for (uint64_t i = 0; i < 2; i++) {
        if (tuple != EF_NONE && g->arity.at[tuple] == 2)
            field[i] = ef_node_children(g, tuple)[i];
        else
            field[i] = make ? ef_egraph_add(g, EF_GET, i, &class, 1) : ef_egraph_lookup(g, EF_GET, i, &class, 1);
        if (field[i] == EF_NONE)
            return false;
    }
    return leaf_classes(g, info->left, field[0], make, leaf, count) &&
           leaf_classes(g, info->right, field[1], make, leaf, count);
}

/* The leaves' values put back into the reducer's tuple structure. */
static ef_id gather(ef_egraph *g, ef_reducer reducer, const ef_id **leaf)
{
    const ef_reducer_info *info = ef_reducer_at(g->ctx, reducer);
    if (info->leaves == 1)
        return *(*leaf)++;
    ef_id pair[2];
    pair[0] = gather(g, info->left, leaf);
    pair[1] = gather(g, info->right, leaf);
    return ef_egraph_add(g, EF_TUPLE, 0, pair, 2);
}

static bool any_repaired(ef_ctx *ctx, ef_reducer reducer)
{
    const ef_reducer_info *info = ef_reducer_at(ctx, reducer);
    return info->kind == EF_RED_REPAIRED ||
           (info->leaves > 1 && (any_repaired(ctx, info->left) || any_repaired(ctx, info->right)));
}

/* Whether local values may stand for what they will be repaired to. */
static bool safe(ef_synthesis *y, ef_id consumer, ef_way used, const ef_reducer *producer_base,
                 const ef_consumer_leaf *leaf)
{
    ef_joint_image j = {0};
    if (!ef_repair_image_jointly(y, consumer, used, &j))
        return false;
    for (unsigned i = 0; i < y->leaves; i++)
        if (!ef_repair_identities(y, &j, i, producer_base[i], leaf->base))
            return false;
    if (used == EF_SCALE && ef_repair_sign(y, &j, producer_base, leaf->scale) != EF_POSITIVE)
        return false; /* h would divide by what may be zero while only a part was seen */
    return used == EF_INDEPENDENT || ef_repair_finite(y, &j, producer_base, leaf->h);
}

static ef_id synthesise(ef_synthesis *y, ef_id g_class, const ef_id *operand, unsigned count)
{
    ef_egraph *g = y->g;
    ef_id result[EF_MAX_LEAVES] = {0};
    ef_reducer base[EF_MAX_LEAVES], producer_base[EF_MAX_LEAVES];
    ef_scalar h[EF_MAX_LEAVES];
    bool dependent = false;
    if (any_repaired(y->ctx, y->consumer))
        return EF_NONE;
    ef_reducer_leaves(y->ctx, y->consumer, base);
    ef_reducer_leaves(y->ctx, y->producer, producer_base);
    for (unsigned i = 0; i < count; i++) {
        ef_consumer_leaf leaf = {0};
        ef_way used;
        if (!derive_leaf(y, operand[i], base[i], &leaf, &used))
            return EF_NONE;
        h[i] = leaf.h;
        dependent = dependent || used != EF_INDEPENDENT;
        if (!safe(y, operand[i], used, producer_base, &leaf))
            return EF_NONE;
        if ((result[i] = ef_repair_rebuild(y, operand[i], used)) == EF_NONE)
            return EF_NONE;
    }
    ef_reducer reducer = dependent ? ef_reducer_repaired(y->ctx, y->producer, y->consumer, h) : EF_NONE;
    const ef_id *next = result;
    ef_id pair[2] = {g_class, dependent ? gather(g, y->consumer, &next) : EF_NONE};
    if (reducer == EF_NONE || pair[1] == EF_NONE)
        return EF_NONE;
    ef_id tuple = ef_egraph_add(g, EF_TUPLE, 0, pair, 2);
    return tuple == EF_NONE ? EF_NONE : ef_egraph_add(g, EF_REDUCE_P, ef_attr_reduce(reducer, y->axis), &tuple, 1);
}

ef_id ef_repair_build(const ef_scope *scope, const ef_rule *rule, const ef_match *match)
{
    /* tuple(reduce_p[?r, ?p](?g), reduce_p[?s, ?p](?y)): attributes r, p, s in order of binding */
    (void)rule;
    ef_egraph *g = scope->graph;
    ef_synthesis y = {.scope = scope,
                      .g = g,
                      .ctx = g->ctx,
                      .producer = (ef_reducer)match->attr[0],
                      .axis = (ef_axis)match->attr[1],
                      .consumer = (ef_reducer)match->attr[2]};
    ef_id result = EF_NONE, operand[EF_MAX_LEAVES];
    const ef_policy *policy = scope->policy;
    y.memory = policy ? policy->memory : ef_rule_memory_new();
    if (!ef_repair_refused(&y, match)) {
        ef_repair_begin(&y);
        y.axes = ef_axes_intern(y.ctx, &y.axis, 1);
        y.dag = ef_dag_new(y.ctx);
        unsigned operands = 0;
        bool shaped = leaf_classes(g, y.producer, match->node[1], true, y.leaf, &y.leaves) &&
                      leaf_classes(g, y.producer, match->var[0], true, y.local, &(unsigned){0}) &&
                      leaf_classes(g, y.consumer, match->var[1], false, operand, &operands);
        if (shaped)
            result = synthesise(&y, match->var[0], operand, operands);
        if (result == EF_NONE)
            ef_repair_refuse(&y, match, !shaped);
        ef_vec_free(&y.known);
        ef_dag_free(y.dag);
    }
    if (!policy)
        ef_rule_memory_free(y.memory);
    return result;
}

ef_builder_fn ef_builder_named(const char *name, unsigned length)
{
    return length == 6 && memcmp(name, "repair", 6) == 0 ? ef_repair_build : NULL;
}
