/* Which iterations of a masked reduction can be left out: interval arithmetic over the positions of a tile.
 *
 * A condition is taken apart into comparisons. Both sides of a comparison get the range of their values over the tile's
 * positions, from which it follows whether the comparison may hold somewhere. Whatever is not made of positions and
 * literals may hold. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "codegen/c_print.h"

#define MAX_VISITS 1000u /* of shared values, which may be reached along very many paths */

/* The tile over which a condition is asked: its positions, each from 0 to its length. */
typedef struct {
    unsigned count, visits;
    c_atom atom[C_MAX_ATOMS];
    ef_index name[C_MAX_ATOMS];
} tile;

typedef struct {
    const char *low, *high; /* NULL: not known */
} range;

/* The range of an index that is affine in the tile's positions; not known when it is not, or falls with one. */
static range range_of_index(ef_c *c, tile *t, ef_index at)
{
    ef_index low = at;
    ef_strbuf high = {0};
    bool known = true;
    for (unsigned i = 0; known && i < t->count; i++) {
        int64_t step;
        known = ef_index_coefficient(c->ix, at, t->name[i], &step) && step >= 0;
        if (!known || step == 0)
            continue;
        low = ef_index_sub(c->ix, low, ef_index_scale(c->ix, t->name[i], step));
        ef_strbuf_printf(&high, " + %" PRId64 " * (%s - 1)", step, t->atom[i].len);
    }
    range r = {0};
    if (known) {
        r.low = ef_c_text(c, "(%s)", ef_c_index(c, low));
        r.high = high.length ? ef_c_text(c, "(%s%s)", r.low, high.text) : r.low;
    }
    ef_strbuf_free(&high);
    return r;
}

static range combine(ef_c *c, ef_op op, range a, range b)
{
    if (!a.low || !b.low)
        return (range){0};
    if (op == EF_ADD)
        return (range){ef_c_text(c, "(%s + %s)", a.low, b.low), ef_c_text(c, "(%s + %s)", a.high, b.high)};
    if (op == EF_SUB)
        return (range){ef_c_text(c, "(%s - %s)", a.low, b.high), ef_c_text(c, "(%s - %s)", a.high, b.low)};
    return (range){ef_c_text(c, "(-%s)", a.high), ef_c_text(c, "(-%s)", a.low)};
}

static range literal(ef_c *c, double value)
{
    bool whole = value == floor(value) && fabs(value) <= 0x1p53;
    const char *text = isfinite(value) ? ef_c_literal(c, value, whole ? C_LONG : C_DOUBLE) : NULL;
    return (range){text, text};
}

static range range_of(ef_c *c, tile *t, ef_kid id, const ef_index *index)
{
    const ef_knode *node = ef_kernel_node(c->kernel, id);
    ef_index inner[C_MAX_ATOMS] = {0};
    range r[2] = {{0}, {0}};
    ef_kid child;
    if (t->visits++ >= MAX_VISITS)
        return (range){0};
    if (ef_map_step(&c->maps, id, index, &child, inner))
        return range_of(c, t, child, inner);
    switch (node->op) {
    case EF_CONST: return literal(c, ef_attr_to_number(node->attr));
    case EF_IOTA: return range_of_index(c, t, ef_map_position(&c->maps, node->dim[0].dim, index));
    case EF_ADD:
    case EF_SUB:
    case EF_NEG: break;
    default: return (range){0};
    }
    for (unsigned i = 0; i < node->count; i++) {
        ef_map_spread(&c->maps, node, ef_kernel_node(c->kernel, node->child[i]), index, inner);
        r[i] = range_of(c, t, node->child[i], inner);
    }
    return combine(c, (ef_op)node->op, r[0], r[node->count > 1]);
}

/* Whether a comparison may hold for some pair of values in the ranges; `not`: whether it may fail. */
static const char *compare(ef_c *c, ef_op op, bool not, range a, range b)
{
    static const ef_op opposite[EF_OP_COUNT] = {[EF_LT] = EF_GE, [EF_LE] = EF_GT, [EF_GT] = EF_LE,
                                                [EF_GE] = EF_LT, [EF_EQ] = EF_NE, [EF_NE] = EF_EQ};
    if (!a.low || !b.low)
        return NULL;
    switch (not ? opposite[op] : op) {
    case EF_LT: return ef_c_text(c, "%s < %s", a.low, b.high);
    case EF_LE: return ef_c_text(c, "%s <= %s", a.low, b.high);
    case EF_GT: return ef_c_text(c, "%s > %s", a.high, b.low);
    case EF_GE: return ef_c_text(c, "%s >= %s", a.high, b.low);
    case EF_EQ: return ef_c_text(c, "(%s <= %s && %s >= %s)", a.low, b.high, a.high, b.low);
    default: return NULL;
    }
}

/* An expression that is true when the condition (`not`: its opposite) may hold somewhere; NULL: it may always. */
static const char *may_hold(ef_c *c, tile *t, ef_kid id, const ef_index *index, bool not)
{
    const ef_knode *node = ef_kernel_node(c->kernel, id);
    ef_index inner[C_MAX_ATOMS] = {0};
    range r[2] = {{0}, {0}};
    ef_kid child;
    if (t->visits++ >= MAX_VISITS)
        return NULL;
    if (ef_map_step(&c->maps, id, index, &child, inner))
        return may_hold(c, t, child, inner, not);
    bool both = (node->op == EF_AND) != not, junction = node->op == EF_AND || node->op == EF_OR;
    const char *part[2] = {NULL, NULL};
    for (unsigned i = 0; i < node->count && i < 2; i++) {
        ef_map_spread(&c->maps, node, ef_kernel_node(c->kernel, node->child[i]), index, inner);
        if (node->op == EF_NOT)
            return may_hold(c, t, node->child[0], inner, !not);
        if (junction)
            part[i] = may_hold(c, t, node->child[i], inner, not);
        else
            r[i] = range_of(c, t, node->child[i], inner);
    }
    if (node->op >= EF_LT && node->op <= EF_NE)
        return compare(c, (ef_op)node->op, not, r[0], r[1]);
    if (!junction || (!both && !(part[0] && part[1])))
        return NULL;
    if (part[0] && part[1])
        return ef_c_text(c, "(%s %s %s)", part[0], both ? "&&" : "||", part[1]);
    return part[0] ? part[0] : part[1];
}

const char *ef_c_may_change(ef_c *c, const ef_kloop *loop)
{
    const char *any = NULL;
    for (unsigned i = 0; i < loop->keeps; i++) {
        tile t = {.visits = 0};
        t.count = ef_c_atoms(c, ef_kernel_node(c->kernel, loop->keep[i]), t.atom);
        for (unsigned a = 0; a < t.count; a++)
            t.name[a] = ef_index_name(c->ix, ef_c_text(c, "somewhere_%u", a), t.atom[a].room);
        const char *one = may_hold(c, &t, loop->keep[i], t.name, false);
        if (!one)
            return NULL;
        any = any ? ef_c_text(c, "%s || %s", any, one) : one;
    }
    return any;
}
