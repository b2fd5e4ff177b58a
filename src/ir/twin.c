/* Twins: see twin.h. */
#include "ir/twin.h"

#include <string.h>

#define MANY 16 /* a tensor has 8 dimensions: no more twins of one variable are ever apart */

/* The variables that stand in some dimensions. */
typedef struct {
    ef_var var[2 * EF_MAX_RANK * EF_MAX_ATOMS];
    unsigned count;
} names;

static bool meets(const ef_ctx *ctx, const names *n, ef_dim dim)
{
    const ef_var *atoms;
    for (unsigned i = 0, count = ef_dim_atoms(ctx, dim, &atoms); i < count; i++)
        for (unsigned k = 0; k < n->count; k++)
            if (n->var[k] == atoms[i])
                return true;
    return false;
}

static void take(const ef_ctx *ctx, names *n, ef_dim dim)
{
    const ef_var *atoms;
    for (unsigned i = 0, count = ef_dim_atoms(ctx, dim, &atoms); i < count; i++)
        if (n->count < sizeof n->var / sizeof *n->var)
            n->var[n->count++] = atoms[i];
}

/* The dimension, or the first twin of it, that has no name taken already; takes it. */
static bool set_apart(ef_ctx *ctx, names *taken, ef_dim *dim)
{
    for (unsigned i = 0; meets(ctx, taken, *dim); i++)
        if (i == MANY || (*dim = ef_dim_twin(ctx, *dim)) == EF_NONE)
            return false;
    take(ctx, taken, *dim);
    return true;
}

bool ef_twin_dims(ef_ctx *ctx, ef_dim *outermost_first, unsigned rank)
{
    names taken = {.count = 0};
    for (unsigned i = 0; i < rank; i++)
        if (!set_apart(ctx, &taken, &outermost_first[i]))
            return false;
    return true;
}

static bool is_apart(const ef_ctx *ctx, const ef_type_info *t)
{
    names taken = {.count = 0};
    for (unsigned i = 0; i < t->rank; i++) {
        if (meets(ctx, &taken, t->dim[i]))
            return false;
        take(ctx, &taken, t->dim[i]);
    }
    return true;
}

bool ef_twin_renames(const ef_ctx *ctx, const ef_type_info *from, const ef_type_info *to)
{
    const ef_var *a, *b;
    if (from->is_tuple || to->is_tuple || from->rank != to->rank)
        return false;
    for (unsigned i = 0; i < from->rank; i++) {
        unsigned n = ef_dim_atoms(ctx, from->dim[i], &a);
        if (n != ef_dim_atoms(ctx, to->dim[i], &b))
            return false;
        for (unsigned k = 0; k < n; k++)
            if (ef_var_at(ctx, a[k])->extent != ef_var_at(ctx, b[k])->extent)
                return false;
    }
    return true;
}

/* ---- operators ---- */

typedef struct {
    ef_dag *dag;
    ef_ctx *ctx;
    ef_op op;
    unsigned count;
    ef_type_info operand[EF_MAX_FIELDS]; /* as they are; their dimensions become what is wanted of them */
    ef_type_info was[EF_MAX_FIELDS];
} joint;

static bool same_but_for_twins(const joint *j, ef_dim a, ef_dim b)
{
    return a == b || ef_dim_base(j->ctx, a) == ef_dim_base(j->ctx, b);
}

/* Operands that meet at one dimension of the result take the name that the first of them has, or a twin of that. */
static bool join_dimension(joint *j, unsigned at, names *taken)
{
    ef_dim all = EF_UNIT;
    for (unsigned i = 0; i < j->count; i++) {
        ef_dim d = at < j->operand[i].rank ? j->operand[i].dim[at] : EF_UNIT;
        if (all != EF_UNIT && d != EF_UNIT && !same_but_for_twins(j, all, d))
            return false;
        all = all == EF_UNIT ? d : all;
    }
    if (!set_apart(j->ctx, taken, &all))
        return false;
    for (unsigned i = 0; i < j->count; i++)
        if (at < j->operand[i].rank && j->operand[i].dim[at] != EF_UNIT)
            j->operand[i].dim[at] = all;
    return true;
}

/* Dimensions `first` and further ones broadcast. */
static bool join_from(joint *j, unsigned first, names *taken)
{
    for (unsigned at = EF_MAX_RANK; at-- > first;)
        if (!join_dimension(j, at, taken))
            return false;
    return true;
}

static bool join_matmul(joint *j)
{
    names taken = {.count = 0};
    ef_type_info *a = &j->operand[0], *b = &j->operand[1];
    if (a->rank < 2 || b->rank < 2 || !same_but_for_twins(j, a->dim[0], b->dim[1]) || !join_from(j, 2, &taken) ||
        !set_apart(j->ctx, &taken, &a->dim[1]))
        return false;
    if (!set_apart(j->ctx, &taken, &a->dim[0])) /* the columns must not meet what is contracted either */
        return false;
    b->dim[1] = a->dim[0];
    return set_apart(j->ctx, &taken, &b->dim[0]);
}

/* All dimensions meet but the one that is concatenated. */
static bool join_concat(joint *j, unsigned index, names *taken)
{
    for (unsigned at = EF_MAX_RANK; at-- > 0;)
        if (at != index && !join_dimension(j, at, taken))
            return false;
    for (unsigned i = 0; i < j->count; i++) {
        names others = *taken;
        if (index >= j->operand[i].rank || !set_apart(j->ctx, &others, &j->operand[i].dim[index]))
            return false;
    }
    return true;
}

/* What the operand has of a shape that it is broadcast to. */
static bool join_broadcast(joint *j, ef_dims list)
{
    const ef_dim *dims;
    ef_type_info *in = &j->operand[0];
    unsigned rank = ef_dims_at(j->ctx, list, &dims);
    for (unsigned i = 0; i < in->rank && i < rank; i++) {
        ef_dim want = dims[rank - 1 - i];
        if (in->dim[i] != EF_UNIT && !same_but_for_twins(j, in->dim[i], want))
            return false;
        in->dim[i] = in->dim[i] == EF_UNIT ? EF_UNIT : want;
    }
    return in->rank <= rank;
}

/* Makes the operands' dimensions those that the operator wants to see. */
static bool join(joint *j, uint64_t attr)
{
    names taken = {.count = 0};
    switch (j->op) {
    case EF_CONCAT: return join_concat(j, (unsigned)attr, &taken);
    case EF_BROADCAST: return join_broadcast(j, (ef_dims)attr);
    case EF_RESHAPE: return true;
    default: return ef_op_pointwise(j->op) ? join_from(j, 0, &taken) : join_matmul(j);
    }
}

static ef_dims dims_of(ef_ctx *ctx, const ef_type_info *t)
{
    ef_dim dims[EF_MAX_RANK];
    for (unsigned i = 0; i < t->rank; i++)
        dims[i] = t->dim[t->rank - 1 - i];
    return ef_dims_intern(ctx, dims, t->rank);
}

/* The operand under its wanted dimensions; positions along a dimension are the same by either name. */
static ef_expr renamed(joint *j, ef_expr x, unsigned i)
{
    const ef_expr *child;
    if (memcmp(j->was[i].dim, j->operand[i].dim, sizeof j->was[i].dim) == 0)
        return x;
    if (!is_apart(j->ctx, &j->operand[i]))
        return EF_NONE;
    if (ef_dag_op(j->dag, x) == EF_IOTA)
        return ef_dag_add(j->dag, EF_IOTA, j->operand[i].dim[0], NULL, 0, NULL);
    ef_op op = EF_RESHAPE;
    if (ef_dag_op(j->dag, x) == EF_BROADCAST) {
        ef_dag_children(j->dag, x, &child);
        if (ef_type_is_literal(j->ctx, ef_dag_type(j->dag, child[0]))) {
            op = EF_BROADCAST;
            x = child[0];
        }
    }
    return ef_dag_add(j->dag, op, dims_of(j->ctx, &j->operand[i]), &x, 1, NULL);
}

static ef_expr add_joint(ef_dag *dag, ef_op op, uint64_t attr, const ef_expr *children, unsigned count)
{
    joint j = {.dag = dag, .ctx = ef_dag_ctx(dag), .op = op, .count = count};
    ef_expr operand[EF_MAX_FIELDS];
    for (unsigned i = 0; i < count; i++) {
        j.operand[i] = j.was[i] = *ef_type_at(j.ctx, ef_dag_type(dag, children[i]));
        if (j.operand[i].is_tuple)
            return EF_NONE;
    }
    if (!join(&j, attr))
        return EF_NONE;
    for (unsigned i = 0; i < count; i++)
        if ((operand[i] = renamed(&j, children[i], i)) == EF_NONE)
            return EF_NONE;
    return ef_dag_add(dag, op, attr, operand, count, NULL);
}

/* The shape that an operator names, with its dimensions apart; EF_NONE when that cannot be. */
static ef_dims shape_apart(ef_ctx *ctx, ef_dims list)
{
    const ef_dim *dims;
    ef_dim apart[EF_MAX_RANK];
    unsigned rank = ef_dims_at(ctx, list, &dims);
    if (rank > EF_MAX_RANK)
        return EF_NONE;
    memcpy(apart, dims, rank * sizeof *apart);
    return ef_twin_dims(ctx, apart, rank) ? ef_dims_intern(ctx, apart, rank) : EF_NONE;
}

ef_expr ef_twin_add(ef_dag *dag, ef_op op, uint64_t attr, const ef_expr *children, unsigned count, ef_diag *diag)
{
    ef_diag inner = {0};
    ef_ctx *ctx = ef_dag_ctx(dag);
    bool shapes = op == EF_BROADCAST || op == EF_RESHAPE;
    bool joins = shapes || op == EF_CONCAT || ef_op_pointwise(op) || ef_ops[op].class == EF_CONTRACTION;
    ef_expr plain = ef_dag_add(dag, op, attr, children, count, &inner), apart = EF_NONE;
    if (plain != EF_NONE && (!joins || is_apart(ctx, ef_type_at(ctx, ef_dag_type(dag, plain)))))
        return plain;
    if (shapes && (attr = shape_apart(ctx, (ef_dims)attr)) == EF_NONE)
        joins = false;
    if (joins && count <= EF_MAX_FIELDS)
        apart = add_joint(dag, op, attr, children, count);
    if (apart != EF_NONE)
        return apart;
    if (plain == EF_NONE)
        ef_fail(diag, "%s", inner.text);
    return plain;
}
