/* Conditions at drawn positions: see masked.h. */
#include "target/masked.h"

#include "ir/expr.h"
#include "support/rng.h"

#define DRAWS 128u
#define MOST_VARS 8u
#define MOST_VISITS 200u

typedef struct {
    const ef_kgraph *g;
    const ef_kernel *k;
    unsigned vars, visits;
    ef_var var[MOST_VARS]; /* whose positions are drawn */
    double at[MOST_VARS];
    ef_rng rng;
    bool unknown;
} drawing;

/* Where a position along a variable is in this drawing. */
static double position(drawing *d, ef_dim dim)
{
    const ef_var *atom;
    if (ef_dim_atoms(d->g->ctx, dim, &atom) != 1) {
        d->unknown = true;
        return 0;
    }
    for (unsigned i = 0; i < d->vars; i++)
        if (d->var[i] == atom[0])
            return d->at[i];
    if (d->vars == MOST_VARS) {
        d->unknown = true;
        return 0;
    }
    d->var[d->vars] = atom[0];
    d->at[d->vars] = (double)ef_rng_below(&d->rng, (uint32_t)ef_var_at(d->g->ctx, atom[0])->extent);
    return d->at[d->vars++];
}

static double value(drawing *d, ef_kid id);

static double pair(drawing *d, const ef_knode *n)
{
    double a = value(d, n->child[0]), b = value(d, n->child[1]);
    switch (n->op) {
    case EF_ADD: return a + b;
    case EF_SUB: return a - b;
    case EF_MUL: return a * b;
    case EF_GE: return a >= b;
    case EF_GT: return a > b;
    case EF_LE: return a <= b;
    case EF_LT: return a < b;
    case EF_EQ: return a == b;
    case EF_NE: return a != b;
    case EF_AND: return a != 0 && b != 0;
    case EF_OR: return a != 0 || b != 0;
    default: d->unknown = true; return 0;
    }
}

static double value(drawing *d, ef_kid id)
{
    const ef_knode *n = ef_kernel_node(d->k, id);
    if (d->visits++ > MOST_VISITS)
        d->unknown = true;
    if (d->unknown)
        return 0;
    if (n->op == EF_IOTA && n->rank == 1)
        return position(d, n->dim[0].dim);
    if (n->op == EF_CONST)
        return ef_attr_to_number(n->attr);
    if (n->op == EF_NOT)
        return value(d, n->child[0]) == 0;
    if (n->op == EF_NEG)
        return -value(d, n->child[0]);
    bool moves = n->op == EF_VIEW || n->op == EF_CAST ||
                 (n->op < EF_OP_COUNT && ef_ops[n->op].class == EF_SHAPE && n->op != EF_SLICE);
    if (n->count == 1 && moves)
        return value(d, n->child[0]);
    if (n->count == 2)
        return pair(d, n);
    d->unknown = true;
    return 0;
}

double ef_visited_part(const ef_kgraph *graph, const ef_kernel *kernel, const ef_kloop *loop)
{
    unsigned seen = 0;
    drawing d = {.g = graph, .k = kernel, .rng = {1}};
    for (unsigned i = 0; i < DRAWS && loop->keeps; i++) {
        bool any = false;
        d.vars = d.visits = 0;
        for (unsigned k = 0; k < loop->keeps; k++)
            any = value(&d, loop->keep[k]) != 0 || any;
        seen += any;
    }
    return loop->keeps == 0 || d.unknown ? 1 : (double)seen / DRAWS;
}
