/* Intervals of what is computed from positions: see holds.h. */
#include "kernel/holds.h"

#include <math.h>

typedef struct {
    bool known;
    double low, high;
} range;

static ef_dim only_dim(const ef_knode *n, bool *only)
{
    ef_dim own = EF_UNIT;
    for (unsigned i = 0; i < n->rank; i++) {
        *only = *only && (n->dim[i].dim == EF_UNIT || own == EF_UNIT);
        own = n->dim[i].dim != EF_UNIT ? n->dim[i].dim : own;
    }
    return own;
}

/* The operand of a node that only says where its elements stand; EF_NONE: it does more. */
static ef_kid moved(const ef_kernel *k, const ef_knode *n)
{
    const ef_knode *child = n->count == 1 ? ef_kernel_node(k, n->child[0]) : NULL;
    bool only = true; /* units come or go around one dimension */
    if (child && (n->op == EF_VIEW || n->op == EF_BROADCAST || n->op == EF_TRANSPOSE))
        return n->child[0];
    if (!child || n->op != EF_RESHAPE || only_dim(n, &only) != only_dim(child, &only))
        return EF_NONE;
    return only ? n->child[0] : EF_NONE;
}

/* The variable whose positions a node counts; EF_NONE: it is another one. */
static ef_var counted(const ef_kgraph *g, const ef_knode *n)
{
    const ef_var *atom;
    return n->op == EF_IOTA && n->rank == 1 && ef_dim_atoms(g->ctx, n->dim[0].dim, &atom) == 1 ? atom[0] : EF_NONE;
}

static range positions(const ef_positions *at, ef_var var)
{
    const ef_var_info *info = ef_var_at(at->graph->ctx, var);
    for (unsigned i = 0; i < at->spans; i++)
        if (at->span[i].var == var)
            return (range){true, at->span[i].from, at->span[i].to};
    return (range){info->kind != EF_VAR_COUNT, 0, (double)info->extent - 1};
}

/* Conversions go up where numbers do. */
static range converted(range x, ef_dtype to)
{
    bool fits = x.known && fabs(x.low) < 0x1p31 && fabs(x.high) < 0x1p31;
    switch (to) {
    case EF_I32:
    case EF_I64: return (range){fits, trunc(x.low), trunc(x.high)};
    case EF_F32: return (range){fits, (float)x.low, (float)x.high};
    case EF_F64: return x;
    default: return (range){0};
    }
}

static range product(range x, range y)
{
    double a = x.low * y.low, b = x.low * y.high, c = x.high * y.low, d = x.high * y.high;
    bool finite = isfinite(a) && isfinite(b) && isfinite(c) && isfinite(d);
    return (range){x.known && y.known && finite, fmin(fmin(a, b), fmin(c, d)), fmax(fmax(a, b), fmax(c, d))};
}

static range number(ef_positions *at, const ef_kernel *k, ef_kid id)
{
    const ef_knode *n = ef_kernel_node(k, id);
    ef_kid child = moved(k, n);
    ef_var var = counted(at->graph, n);
    if (at->visits++ > at->most_visits)
        return (range){0};
    if (child != EF_NONE)
        return number(at, k, child);
    if (n->op == EF_CONST) {
        double value = ef_attr_to_number(n->attr);
        return (range){true, value, value};
    }
    if (var != EF_NONE)
        return positions(at, var);
    if (n->op == EF_CAST)
        return converted(number(at, k, n->child[0]), (ef_dtype)n->dtype);
    if (n->dtype == EF_F16 || n->dtype == EF_BF16) /* large positions are none of these */
        return (range){0};
    if (n->op == EF_NEG) {
        range x = number(at, k, n->child[0]);
        return (range){x.known, -x.high, -x.low};
    }
    if (n->op != EF_ADD && n->op != EF_SUB && n->op != EF_MUL)
        return (range){0};
    range x = number(at, k, n->child[0]), y = number(at, k, n->child[1]);
    if (n->op == EF_MUL)
        return product(x, y);
    if (n->op == EF_SUB)
        y = (range){y.known, -y.high, -y.low};
    return (range){x.known && y.known, x.low + y.low, x.high + y.high};
}

static ef_holds opposite(ef_holds t)
{
    return t == EF_HOLDS_NEVER ? EF_HOLDS_ALWAYS : t == EF_HOLDS_ALWAYS ? EF_HOLDS_NEVER : EF_HOLDS_SOMETIMES;
}

/* Whether x < y, or x <= y. */
static ef_holds below(range x, range y, bool equal)
{
    if (!x.known || !y.known)
        return EF_HOLDS_SOMETIMES;
    if (x.high < y.low || (equal && x.high == y.low))
        return EF_HOLDS_ALWAYS;
    return x.low > y.high || (!equal && x.low == y.high) ? EF_HOLDS_NEVER : EF_HOLDS_SOMETIMES;
}

static ef_holds compare(uint32_t op, range x, range y)
{
    bool same = x.known && y.known && x.low == x.high && y.low == y.high && x.low == y.low;
    bool apart = x.known && y.known && (x.high < y.low || x.low > y.high);
    ef_holds equal = same ? EF_HOLDS_ALWAYS : apart ? EF_HOLDS_NEVER : EF_HOLDS_SOMETIMES;
    switch (op) {
    case EF_LT: return below(x, y, false);
    case EF_LE: return below(x, y, true);
    case EF_GT: return below(y, x, false);
    case EF_GE: return below(y, x, true);
    case EF_EQ: return equal;
    case EF_NE: return opposite(equal);
    default: return EF_HOLDS_SOMETIMES;
    }
}

ef_holds ef_positions_hold(ef_positions *at, const ef_kernel *k, ef_kid id)
{
    const ef_knode *n = ef_kernel_node(k, id);
    ef_kid child = moved(k, n);
    if (at->visits++ > at->most_visits)
        return EF_HOLDS_SOMETIMES;
    if (child != EF_NONE)
        return ef_positions_hold(at, k, child);
    if (n->op == EF_CONST)
        return ef_attr_to_number(n->attr) != 0 ? EF_HOLDS_ALWAYS : EF_HOLDS_NEVER;
    if (n->op == EF_NOT)
        return opposite(ef_positions_hold(at, k, n->child[0]));
    if (n->op >= EF_LT && n->op <= EF_NE)
        return compare(n->op, number(at, k, n->child[0]), number(at, k, n->child[1]));
    if (n->op != EF_AND && n->op != EF_OR)
        return EF_HOLDS_SOMETIMES;
    ef_holds x = ef_positions_hold(at, k, n->child[0]), y = ef_positions_hold(at, k, n->child[1]);
    return (n->op == EF_AND) == (x < y) ? x : y;
}

ef_holds ef_loop_holds(ef_positions *at, const ef_kernel *k, const ef_kloop *loop)
{
    ef_holds any = loop->keeps ? EF_HOLDS_NEVER : EF_HOLDS_ALWAYS;
    for (unsigned i = 0; i < loop->keeps && any != EF_HOLDS_ALWAYS; i++) {
        ef_holds one = ef_positions_hold(at, k, loop->keep[i]);
        any = one > any ? one : any;
    }
    return any;
}

unsigned ef_loop_positions(const ef_kgraph *g, const ef_kernel *k, const ef_kloop *loop, ef_var var[EF_HOLDS_VARS])
{
    unsigned count = 0;
    bool *needed = ef_xcalloc(ef_kernel_nodes(k) + 1, sizeof *needed);
    for (unsigned i = 0; i < loop->keeps; i++)
        needed[loop->keep[i]] = true;
    for (ef_kid id = ef_kernel_nodes(k); id-- > 0;) {
        const ef_knode *n = ef_kernel_node(k, id);
        ef_var own = needed[id] ? counted(g, n) : EF_NONE;
        for (unsigned i = 0; needed[id] && i < n->count; i++)
            needed[n->child[i]] = true;
        for (unsigned i = 0; i < count; i++)
            own = var[i] == own ? EF_NONE : own;
        if (own != EF_NONE && count < EF_HOLDS_VARS)
            var[count++] = own;
    }
    free(needed);
    return count;
}
