/* Dimensions written as plain numbers: f16[16, 4096] instead of f16[m, k].
 *
 * Each number starts as a variable of its own. Shapes are followed through the syntax tree, and where an operator needs
 * two dimensions to be equal, a number becomes what it meets (union-find; a named dimension wins). The rest get names
 * d0, d1, … This pass only guesses: what it cannot follow is "unknown", and the type checker has the last word.
 * Programs without such numbers never come here. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "ir/text.h"

#define UNIT 0u
#define UNKNOWN 1u
#define NO_SHAPE 255u
#define READABLE 64u /* bytes of a dimension that a number may stand for */

/* A dimension as far as it is known: `dim`, or a number that is still free. */
typedef struct {
    uint32_t parent;
    bool fixed;
    ef_dim dim;
    uint64_t extent;
} slot;

/* Slots, the last dimension first, as in op.h. */
typedef struct {
    unsigned rank; /* NO_SHAPE: not known */
    uint32_t dim[EF_MAX_RANK];
} guess;

typedef struct {
    ef_text *source;
    EF_VEC(slot) slots;
    guess *defs;           /* of the inputs and statements so far */
    uint32_t first_number; /* slot of number 0 */
    bool failed;
} unifier;

static uint32_t find(unifier *u, uint32_t s)
{
    while (u->slots.at[s].parent != s)
        s = u->slots.at[s].parent = u->slots.at[u->slots.at[s].parent].parent;
    return s;
}

static uint32_t new_slot(unifier *u, bool fixed, ef_dim dim, uint64_t extent)
{
    slot s = {u->slots.count, fixed, dim, extent};
    ef_vec_push(&u->slots, s);
    return u->slots.count - 1;
}

static uint32_t fixed(unifier *u, ef_dim dim)
{
    return dim == EF_UNIT ? UNIT : new_slot(u, true, dim, ef_dim_extent(u->source->ctx, dim));
}

/* The two are equal, if the program is right. */
static uint32_t unify(unifier *u, uint32_t a, uint32_t b)
{
    a = find(u, a);
    b = find(u, b);
    if (a == UNKNOWN || b == UNKNOWN)
        return a == UNKNOWN ? b : a;
    slot *x = &u->slots.at[a], *y = &u->slots.at[b];
    if (a == b || x->extent != y->extent || (x->fixed && y->fixed))
        return a;
    bool keep_x = x->fixed || (!y->fixed && a < b);
    slot *kept = keep_x ? x : y;
    if (!kept->fixed || ef_text_dim_bytes(u->source, kept->dim) <= READABLE)
        (keep_x ? y : x)->parent = keep_x ? a : b;
    return keep_x ? a : b;
}

/* Operands of one operator at one dimension: equal, unless one has extent 1. */
static uint32_t meet(unifier *u, uint32_t a, uint32_t b)
{
    return a == UNIT ? b : b == UNIT ? a : unify(u, a, b);
}

static guess unknown(void)
{
    return (guess){.rank = NO_SHAPE};
}

static guess broadcast(unifier *u, guess a, guess b)
{
    if (a.rank == NO_SHAPE || b.rank == NO_SHAPE)
        return unknown();
    for (unsigned i = 0; i < b.rank; i++)
        a.dim[i] = i < a.rank ? meet(u, a.dim[i], b.dim[i]) : b.dim[i];
    a.rank = a.rank > b.rank ? a.rank : b.rank;
    return a;
}

static guess written(unifier *u, ef_text_shape shape)
{
    guess g = {.rank = shape.rank};
    for (unsigned i = 0; i < shape.rank; i++) {
        ef_text_dim d = u->source->dims.at[shape.first + shape.rank - 1 - i];
        g.dim[i] = d.number == EF_NONE ? fixed(u, d.dim) : u->first_number + d.number;
    }
    return g;
}

static guess matmul(unifier *u, guess a, guess b)
{
    if (a.rank == NO_SHAPE || b.rank == NO_SHAPE || a.rank < 2 || b.rank < 2)
        return unknown();
    unify(u, a.dim[0], b.dim[1]);
    uint32_t rows = a.dim[1], columns = b.dim[0];
    a.dim[0] = a.dim[1] = b.dim[0] = b.dim[1] = UNIT;
    guess out = broadcast(u, a, b);
    out.dim[1] = rows;
    out.dim[0] = columns;
    return out;
}

/* Outermost first: every free number of the result takes the same dimension, or a product of known ones. */
static guess reshape(unifier *u, const ef_text_node *node, guess in)
{
    guess out = written(u, node->shape);
    unsigned from = in.rank;
    for (unsigned i = out.rank; i-- > 0;) {
        uint32_t target = find(u, out.dim[i]);
        ef_var atoms[EF_MAX_ATOMS];
        unsigned count = 0;
        uint64_t extent = 1;
        bool free_number = !u->slots.at[target].fixed;
        if (free_number && in.rank == NO_SHAPE)
            goto lost;
        while (in.rank != NO_SHAPE && from > 0 && extent < u->slots.at[target].extent) {
            uint32_t part = find(u, in.dim[--from]);
            const ef_var *more;
            extent *= u->slots.at[part].extent;
            if (count == 0 && extent == u->slots.at[target].extent) {
                out.dim[i] = target = unify(u, target, part);
                free_number = false;
                break;
            }
            unsigned n = u->slots.at[part].fixed ? ef_dim_atoms(u->source->ctx, u->slots.at[part].dim, &more) : 99;
            if (count + n > EF_MAX_ATOMS || part == UNKNOWN) {
                if (free_number)
                    goto lost;
                in.rank = NO_SHAPE;
                break;
            }
            memcpy(atoms + count, more, n * sizeof *atoms);
            count += n;
        }
        if (free_number && (extent != u->slots.at[target].extent || count == 0))
            goto lost;
        if (free_number)
            unify(u, target, fixed(u, ef_dim_product(u->source->ctx, atoms, count)));
    }
    return out;
lost:
    u->failed = true;
    ef_text_fail(u->source, node->at,
                 "this reshape splits or joins dimensions that are written as numbers: declare them "
                 "with 'dim NAME = EXTENT', as in reshape[m, h, d](x) of f16[m, h*d]");
    return unknown();
}

static guess transpose(const ef_text_node *node, guess in)
{
    guess out = in;
    if (in.rank > EF_MAX_RANK || in.rank != node->shape.rank)
        return unknown();
    for (unsigned i = 0; i < in.rank; i++) {
        unsigned from = ef_perm_at(node->attr, i);
        if (from >= in.rank)
            return unknown();
        out.dim[in.rank - 1 - i] = in.dim[in.rank - 1 - from];
    }
    return out;
}

static guess slice(unifier *u, const ef_text_node *node, guess in)
{
    uint32_t start = ef_slice_start(node->attr), stop = ef_slice_stop(node->attr), index = ef_slice_index(node->attr);
    if (in.rank == NO_SHAPE || index >= in.rank)
        return unknown();
    const slot *s = &u->slots.at[find(u, in.dim[index])];
    if (start == 0 && stop == s->extent)
        return in;
    in.dim[index] = UNKNOWN;
    if (s->fixed && stop <= s->extent)
        in.dim[index] = fixed(u, ef_dim_slice(u->source->ctx, s->dim, start, stop));
    return in;
}

static guess concat(unifier *u, const ef_text_node *node, const guess *in)
{
    guess out = in[0];
    ef_dim parts[EF_MAX_FIELDS];
    bool known = true;
    if (out.rank == NO_SHAPE || node->attr >= out.rank)
        return unknown();
    for (unsigned i = 0; i < node->count; i++) {
        if (in[i].rank != out.rank)
            return unknown();
        const slot *s = &u->slots.at[find(u, in[i].dim[node->attr])];
        known = known && s->fixed && s->extent != 0;
        parts[i] = s->dim;
        for (unsigned k = 0; k < out.rank; k++)
            if (k != node->attr)
                out.dim[k] = unify(u, out.dim[k], in[i].dim[k]);
    }
    out.dim[node->attr] = known ? fixed(u, ef_dim_concat(u->source->ctx, parts, node->count)) : UNKNOWN;
    if (known && ef_text_dim_bytes(u->source, u->slots.at[out.dim[node->attr]].dim) > EF_TEXT_DIM)
        out.dim[node->attr] = UNKNOWN;
    return out;
}

static guess collection(unifier *u, const ef_text_node *node, guess in)
{
    if (in.rank == NO_SHAPE || in.rank == EF_MAX_RANK)
        return unknown();
    in.dim[in.rank++] = fixed(u, ef_dim_count(u->source->ctx, (ef_axis)node->attr));
    return in;
}

static guess reduce(const ef_text_node *node, guess in)
{
    uint32_t index = ef_attr_reduce_at(node->attr);
    if (in.rank == NO_SHAPE || in.rank == 0)
        return unknown();
    if (index == EF_FIRST)
        in.rank--;
    else if (index < in.rank)
        in.dim[index] = UNIT;
    return in;
}

static guess walk(unifier *u, uint32_t at)
{
    const ef_text_node *node = &u->source->nodes.at[at];
    guess in[EF_MAX_FIELDS], out;
    for (unsigned i = 0; i < node->count && !u->failed; i++)
        in[i] = walk(u, u->source->operands.at[node->first + i]);
    if (u->failed)
        return unknown();
    switch (node->op) {
    case EF_INPUT: return u->defs[node->attr];
    case EF_CONST: return (guess){.rank = 0};
    case EF_IOTA: return written(u, node->shape);
    case EF_MATMUL:
    case EF_TILE_MATMUL: return matmul(u, in[0], in[1]);
    case EF_REDUCE: return reduce(node, in[0]);
    case EF_RESHAPE: return reshape(u, node, in[0]);
    case EF_TRANSPOSE: return transpose(node, in[0]);
    case EF_SLICE: return slice(u, node, in[0]);
    case EF_CONCAT: return concat(u, node, in);
    case EF_BROADCAST: return broadcast(u, written(u, node->shape), in[0]);
    case EF_COLLECT: return collection(u, node, in[0]);
    case EF_TUPLE:
    case EF_GET: return unknown();
    default: break;
    }
    out = in[0]; /* pointwise, views, combinations, parallel reductions */
    for (unsigned i = 1; i < node->count; i++)
        out = broadcast(u, out, in[i]);
    return out;
}

/* A fresh name dN; one that the context has with the same extent will do, so that parsing a file twice agrees. */
static bool name_number(ef_text *s, ef_text_number *number, uint32_t *counter)
{
    char text[16];
    for (;; ++*counter) {
        int length = snprintf(text, sizeof text, "d%" PRIu32, *counter);
        if (ef_intern_find(s->dim_names, text, (size_t)length) != UINT32_MAX)
            continue;
        ef_var var = ef_var_find(s->ctx, text, (unsigned)length);
        if (var != EF_NONE && ef_var_at(s->ctx, var)->extent != number->extent)
            continue;
        ef_diag inner = {0};
        var = ef_var_named(s->ctx, text, (unsigned)length, number->extent, &inner);
        if (var == EF_NONE)
            return ef_text_fail(s, number->at, "%s", inner.text);
        number->dim = ef_dim_of_var(s->ctx, var);
        ++*counter;
        return true;
    }
}

static bool resolve(unifier *u)
{
    uint32_t counter = 0;
    for (uint32_t i = 0; i < u->source->numbers.count; i++) {
        ef_text_number *number = &u->source->numbers.at[i];
        slot *root = &u->slots.at[find(u, u->first_number + i)];
        if (!root->fixed) {
            if (!name_number(u->source, number, &counter))
                return false;
            root->fixed = true;
            root->dim = number->dim;
        }
        number->dim = root->dim;
    }
    return true;
}

bool ef_text_unify(ef_text *s)
{
    unifier u = {.source = s};
    if (s->numbers.count == 0)
        return true;
    u.defs = ef_xcalloc(s->defs.count + 1, sizeof *u.defs);
    new_slot(&u, true, EF_UNIT, 1);
    new_slot(&u, true, EF_UNIT, 0);
    u.first_number = u.slots.count;
    for (uint32_t i = 0; i < s->numbers.count; i++)
        new_slot(&u, false, EF_UNIT, s->numbers.at[i].extent);
    for (uint32_t i = 0; i < s->defs.count && !u.failed; i++) {
        const ef_text_def *def = &s->defs.at[i];
        u.defs[i] = def->is_input ? written(&u, def->shape) : walk(&u, def->root);
    }
    bool good = !u.failed && resolve(&u);
    ef_vec_free(&u.slots);
    free(u.defs);
    return good;
}
