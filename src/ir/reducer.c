/* Reducers: see reducer.h. */
#include "ir/reducer.h"

#include <math.h>
#include <string.h>

#include "ir/context.h"

static const char *const base_names[] = {"sum", "max", "min", "prod"};

static ef_reducer intern(ef_ctx *ctx, const ef_reducer_info *info)
{
    return ef_intern_put(ctx->reducers, info, sizeof *info, NULL);
}

void ef_reducers_init(ef_ctx *ctx)
{
    for (int kind = EF_RED_SUM; kind <= EF_RED_PROD; kind++) {
        ef_reducer_info info;
        memset(&info, 0, sizeof info);
        info.kind = (ef_reducer_kind)kind;
        info.leaves = 1;
        intern(ctx, &info);
    }
}

const ef_reducer_info *ef_reducer_at(const ef_ctx *ctx, ef_reducer reducer)
{
    return ef_intern_at(ctx->reducers, reducer, NULL);
}

static ef_reducer pair(ef_ctx *ctx, ef_reducer_kind kind, ef_reducer left, ef_reducer right, const ef_scalar *h)
{
    ef_reducer_info info;
    memset(&info, 0, sizeof info);
    info.kind = kind;
    info.left = left;
    info.right = right;
    info.leaves = ef_reducer_at(ctx, left)->leaves + ef_reducer_at(ctx, right)->leaves;
    if (info.leaves > EF_MAX_LEAVES)
        return EF_NONE;
    if (h) {
        info.terms = ef_reducer_at(ctx, right)->leaves;
        memcpy(info.h, h, info.terms * sizeof *h);
    }
    return intern(ctx, &info);
}

ef_reducer ef_reducer_product(ef_ctx *ctx, ef_reducer left, ef_reducer right)
{
    return pair(ctx, EF_RED_PRODUCT, left, right, NULL);
}

ef_reducer ef_reducer_repaired(ef_ctx *ctx, ef_reducer left, ef_reducer right, const ef_scalar *h)
{
    return pair(ctx, EF_RED_REPAIRED, left, right, h);
}

unsigned ef_reducer_leaves(const ef_ctx *ctx, ef_reducer reducer, ef_reducer leaf[EF_MAX_LEAVES])
{
    const ef_reducer_info *info = ef_reducer_at(ctx, reducer);
    if (info->leaves == 1) {
        leaf[0] = reducer;
        return 1;
    }
    unsigned n = ef_reducer_leaves(ctx, info->left, leaf);
    return n + ef_reducer_leaves(ctx, info->right, leaf + n);
}

double ef_reducer_identity(ef_reducer base)
{
    static const double identity[] = {0, -INFINITY, INFINITY, 1};
    return identity[base];
}

static double base_update(ef_reducer_kind kind, double state, double in)
{
    static const ef_op op[] = {EF_ADD, EF_MAX, EF_MIN, EF_MUL};
    return ef_op_apply(op[kind], 0, (double[]){state, in});
}

/* h applied to all consumer leaves: value[] seen under producer `from` becomes value[] under producer `to`. */
static void repair(const ef_ctx *ctx, const ef_reducer_info *info, double *value, const double *from, const double *to)
{
    ef_reducer producer[EF_MAX_LEAVES], leaf[EF_MAX_LEAVES];
    unsigned producers = ef_reducer_leaves(ctx, info->left, producer), n = ef_reducer_leaves(ctx, info->right, leaf);
    bool nothing = false, first = false;
    for (unsigned i = 0; i < producers; i++) {
        double identity = ef_reducer_identity(producer[i]);
        nothing = nothing || from[i] == identity;
        first = first || (from[i] == identity && to[i] != identity);
    }
    for (unsigned i = 0; i < n; i++)
        if (first)
            value[i] = ef_reducer_identity(leaf[i]);
        else if (!nothing)
            value[i] = ef_scalar_eval(ctx, info->h[i], value[i], from, to);
}

void ef_reducer_update(const ef_ctx *ctx, ef_reducer reducer, double *state, const double *in)
{
    const ef_reducer_info *info = ef_reducer_at(ctx, reducer);
    if (info->leaves == 1) {
        state[0] = base_update(info->kind, state[0], in[0]);
        return;
    }
    unsigned n = ef_reducer_at(ctx, info->left)->leaves;
    double before[EF_MAX_LEAVES], y[EF_MAX_LEAVES];
    memcpy(before, state, n * sizeof *before);
    ef_reducer_update(ctx, info->left, state, in);
    memcpy(y, in + n, (info->leaves - n) * sizeof *y);
    if (info->kind == EF_RED_REPAIRED) {
        repair(ctx, info, state + n, before, state);
        repair(ctx, info, y, in, state);
    }
    ef_reducer_update(ctx, info->right, state + n, y);
}

/* Collects the tensor types of the leaves when the tuple structure fits. */
static bool leaf_types(const ef_ctx *ctx, ef_reducer reducer, ef_type type, ef_type *leaf, unsigned *count)
{
    const ef_reducer_info *info = ef_reducer_at(ctx, reducer);
    const ef_type_info *t = ef_type_at(ctx, type);
    if (info->leaves == 1) {
        leaf[(*count)++] = type;
        return !t->is_tuple && t->dtype != EF_BOOL;
    }
    return t->is_tuple && t->fields == 2 && leaf_types(ctx, info->left, t->field[0], leaf, count) &&
           leaf_types(ctx, info->right, t->field[1], leaf, count);
}

/* Whether a producer leaf broadcasts to a consumer leaf, at every coordinate of their axes. */
static bool broadcasts(const ef_ctx *ctx, ef_type from, ef_type to)
{
    const ef_type_info *s = ef_type_at(ctx, from), *c = ef_type_at(ctx, to);
    if (s->rank > c->rank || s->places != c->places)
        return false;
    for (unsigned i = 0; i < s->rank; i++)
        if (s->dim[i] != EF_UNIT && s->dim[i] != c->dim[i])
            return false;
    for (unsigned i = 0; i < s->places; i++) {
        const ef_place *p = &s->place[i], *q = &c->place[i];
        if (p->axis != q->axis || (p->kind == EF_PARTITION && (q->kind != EF_PARTITION || q->dim != p->dim)))
            return false;
        if (q->kind == EF_PARTITION && p->kind != EF_PARTITION && q->dim < s->rank && s->dim[q->dim] != EF_UNIT)
            return false;
    }
    return true;
}

static bool repairs_fit(const ef_ctx *ctx, ef_reducer reducer, const ef_type *leaf)
{
    const ef_reducer_info *info = ef_reducer_at(ctx, reducer);
    if (info->leaves == 1)
        return true;
    unsigned n = ef_reducer_at(ctx, info->left)->leaves;
    if (!repairs_fit(ctx, info->left, leaf) || !repairs_fit(ctx, info->right, leaf + n))
        return false;
    for (unsigned s = 0; info->kind == EF_RED_REPAIRED && s < n; s++)
        for (unsigned c = n; c < info->leaves; c++)
            if (!broadcasts(ctx, leaf[s], leaf[c]))
                return false;
    return true;
}

static bool same_scope(const ef_ctx *ctx, const ef_type *leaf, unsigned count)
{
    const ef_type_info *first = ef_type_at(ctx, leaf[0]);
    for (unsigned i = 1; i < count; i++) {
        const ef_type_info *other = ef_type_at(ctx, leaf[i]);
        if (other->places != first->places)
            return false;
        for (unsigned k = 0; k < first->places; k++)
            if (other->place[k].axis != first->place[k].axis)
                return false;
    }
    return true;
}

bool ef_reducer_fits(const ef_ctx *ctx, ef_reducer reducer, ef_type operand)
{
    ef_type leaf[EF_MAX_LEAVES] = {0};
    unsigned count = 0;
    return leaf_types(ctx, reducer, operand, leaf, &count) && same_scope(ctx, leaf, count) &&
           repairs_fit(ctx, reducer, leaf);
}

void ef_reducer_print(const ef_ctx *ctx, ef_reducer reducer, ef_strbuf *out)
{
    const ef_reducer_info *info = ef_reducer_at(ctx, reducer);
    if (info->leaves == 1) {
        ef_strbuf_puts(out, base_names[info->kind]);
        return;
    }
    ef_strbuf_puts(out, info->kind == EF_RED_PRODUCT ? "product(" : "repaired(");
    ef_reducer_print(ctx, info->left, out);
    ef_strbuf_puts(out, ", ");
    ef_reducer_print(ctx, info->right, out);
    for (unsigned i = 0; i < info->terms; i++) {
        ef_strbuf_puts(out, ", ");
        ef_scalar_print(ctx, info->h[i], ef_reducer_at(ctx, info->left)->leaves, out);
    }
    ef_strbuf_puts(out, ")");
}
