/* Random instances of fuse-repair (see repair.h): programs in which a reduction uses the result of another one.
 *
 *     tuple(reduce_p[r1, p](g), reduce_p[r2, p](y)),    y reduces or contracts f(x, view[p](reduce_p[r1, p](g)))
 *
 * f is drawn from a grammar of dependences that have a repair function, and now and then from one of those that have
 * none, or whose local values would overflow or mean something where the whole does not: those must be refused. Shapes
 * are of rank 1 to 4 with units and broadcasts; p cuts the last dimension or the one before, at either level, inside
 * the scope of another axis or not. Inputs that carry masks are noted, so that whole tiles, but no whole rows, are
 * masked (ruletest.c). */
#include <math.h>
#include <stdio.h>

#include "rules/instances.h"

#define MAX_VALUES 3 /* nested products of so many consumers */

typedef struct {
    ef_instance *out;
    ef_draw *d;
    ef_ctx *ctx;
    ef_dag *dag;
    ef_axis axis;        /* p */
    ef_axes scope;       /* p, and perhaps an axis around it */
    ef_dim dim[4];       /* of a whole value, from the last */
    unsigned rank, cut;  /* cut: the dimension that p cuts */
    ef_expr z;           /* what the producer looks at */
    ef_expr result;      /* the producer, outside of p */
    ef_expr s;           /* the producer's value that f uses, inside */
    ef_expr also;        /* a factor that depends on it as well, EF_NONE for none */
    ef_reducer producer; /* max, min or sum */
    bool bounded;        /* z is, but for masks, or s is on the side where the producer begins */
} maker;

/* ---- terms ---- */

static ef_expr add(maker *m, ef_op op, uint64_t attr, const ef_expr *x, unsigned count)
{
    for (unsigned i = 0; i < count; i++)
        if (x[i] == EF_NONE)
            return EF_NONE;
    return ef_dag_add(m->dag, op, attr, x, count, NULL);
}

static ef_expr op1(maker *m, ef_op op, ef_expr a)
{
    return add(m, op, 0, &a, 1);
}

static ef_expr op2(maker *m, ef_op op, ef_expr a, ef_expr b)
{
    return add(m, op, 0, (ef_expr[]){a, b}, 2);
}

static ef_expr number(maker *m, double value)
{
    return ef_dag_const(m->dag, value);
}

static ef_expr view(maker *m, ef_axes axes, ef_expr x)
{
    return x == EF_NONE ? EF_NONE : ef_dag_view(m->dag, axes, x, NULL);
}

static bool chance(maker *m, unsigned percent)
{
    return ef_draw_chance(m->d, percent);
}

static unsigned below(maker *m, unsigned bound)
{
    return ef_draw_below(m->d, bound);
}

static ef_expr input_of(maker *m, const ef_type_info *type)
{
    char name[16];
    int length = snprintf(name, sizeof name, "x%u", m->d->inputs++);
    uint32_t input = ef_input_declare(m->ctx, name, (unsigned)length, ef_type_intern(m->ctx, type), NULL);
    return view(m, m->scope, ef_dag_input(m->dag, input));
}

/* A fresh input inside the scope, some of its dimensions broadcast. */
typedef enum { PLAIN, MASKS, CONDITION } role;

static ef_expr input(maker *m, role kind, unsigned keep_percent, bool keep_cut)
{
    ef_type_info type = {.dtype = kind == CONDITION ? EF_BOOL : EF_F32, .rank = (uint8_t)m->rank};
    for (unsigned i = 0; i < m->rank; i++)
        type.dim[i] = (i == m->cut ? keep_cut : chance(m, keep_percent)) ? m->dim[i] : EF_UNIT;
    while (type.rank > m->cut + 1u && type.dim[type.rank - 1] == EF_UNIT && chance(m, 50))
        type.rank--;
    if (kind != PLAIN)
        m->out->masks.inputs |= UINT64_C(1) << m->d->inputs;
    return input_of(m, &type);
}

static ef_expr weight(maker *m)
{
    return input(m, PLAIN, 60, chance(m, 80));
}

static ef_expr masked(maker *m, ef_expr x, double value)
{
    return add(m, EF_SELECT, 0, (ef_expr[]){input(m, CONDITION, 60, true), x, number(m, value)}, 3);
}

static ef_expr reduced(maker *m, ef_reducer reducer, unsigned index, ef_expr x)
{
    return add(m, EF_REDUCE, ef_attr_reduce(reducer, index), &x, 1);
}

static ef_expr over_axis(maker *m, ef_reducer reducer, ef_expr x)
{
    return add(m, EF_REDUCE_P, ef_attr_reduce(reducer, m->axis), &x, 1);
}

static ef_expr inside(maker *m, ef_expr outside)
{
    return view(m, ef_axes_intern(m->ctx, &m->axis, 1), outside);
}

static ef_expr field(maker *m, uint64_t which, ef_expr tuple)
{
    return add(m, EF_GET, which, &tuple, 1);
}

/* ---- the world ---- */

static void draw_world(maker *m)
{
    static const uint8_t ranks[] = {1, 2, 2, 2, 3, 3, 4};
    const ef_var *pool = m->d->pool;
    const unsigned place[] = {0, 2, 3};
    ef_axis axes[2] = {ef_axis_of(pool[1], chance(m, 50))};
    unsigned count = 1;
    m->axis = axes[0];
    m->rank = ranks[below(m, sizeof ranks)];
    m->cut = m->rank > 1 && chance(m, 25);
    for (unsigned i = 0, next = 0; i < m->rank; i++) {
        ef_var own = i == m->cut ? pool[1] : pool[place[next++]];
        m->dim[i] = i != m->cut && chance(m, 20) ? EF_UNIT : ef_dim_of_var(m->ctx, own);
        if (i != m->cut && count == 1 && chance(m, 25))
            axes[count++] = ef_axis_of(own, 0);
    }
    if (m->rank < 4 && chance(m, 10)) /* a merged dimension */
        m->dim[m->cut] = ef_dim_product(m->ctx, (ef_var[]){pool[1], pool[3]}, 2);
    m->scope = ef_axes_intern(m->ctx, axes, count);
    m->out->masks.dim = m->dim[m->cut];
}

/* ---- producers ---- */

static double nothing(const maker *m)
{
    return ef_reducer_identity(m->producer);
}

/* A tile of scores: a matmul, or an input that carries masks. */
static ef_expr scores(maker *m)
{
    if (m->cut != 0 || m->rank < 2 || !chance(m, 25))
        return input(m, MASKS, 75, true);
    ef_type_info q = {.dtype = EF_F32, .rank = (uint8_t)m->rank}, k = q;
    for (unsigned i = 0; i < m->rank; i++)
        q.dim[i] = k.dim[i] = m->dim[i];
    q.dim[0] = k.dim[1] = ef_dim_of_var(m->ctx, m->d->pool[4]);
    return op2(m, EF_TILE_MATMUL, input_of(m, &q), input_of(m, &k));
}

static ef_expr logits(maker *m)
{
    ef_expr z = scores(m);
    for (unsigned i = below(m, 3); i > 0; i--)
        switch (below(m, 5)) {
        case 0: z = op2(m, EF_MUL, z, number(m, chance(m, 50) ? 0.3 : 2)); break;
        case 1: z = op2(m, EF_DIV, z, number(m, 4)); break;
        case 2: z = op2(m, EF_ADD, z, weight(m)); break;
        case 3:
            z = op2(m, EF_MUL, op1(m, EF_TANH, op2(m, EF_DIV, z, number(m, 5))), number(m, 5));
            m->bounded = true;
            break;
        default: z = add(m, EF_CAST, EF_F16, &z, 1); break;
        }
    if (chance(m, 30))
        z = masked(m, z, nothing(m));
    else if (chance(m, 20))
        z = op2(m, EF_ADD, z, input(m, MASKS, 60, true));
    return z;
}

/* s: the running maximum or minimum, as it is or with a floor of its own (a sink). */
static void extremum(maker *m)
{
    m->z = logits(m);
    m->result = over_axis(m, m->producer, reduced(m, m->producer, m->cut, m->z));
    ef_op op = m->producer == EF_RED_MAX ? EF_MAX : EF_MIN;
    bool sink = chance(m, 15);
    m->bounded = m->bounded || sink;
    m->s = inside(m, sink && chance(m, 50) ? op2(m, op, m->result, number(m, 0.7)) : m->result);
    if (sink)
        m->s = op2(m, op, m->s, number(m, 0.7));
}

/* The repaired normaliser of a softmax is itself a producer: s is its maximum, `also` its sum. */
static void softmax(maker *m)
{
    m->z = logits(m);
    ef_scalar c = ef_scalar_param(m->ctx, EF_PARAM_C, 0), s = ef_scalar_param(m->ctx, EF_PARAM_S, 0);
    ef_scalar t = ef_scalar_param(m->ctx, EF_PARAM_T, 0);
    ef_scalar change = ef_scalar_apply(m->ctx, EF_SUB, (ef_scalar[]){s, t, 0});
    ef_scalar h = ef_scalar_apply(m->ctx, EF_MUL,
                                  (ef_scalar[]){c, ef_scalar_apply(m->ctx, EF_EXP, (ef_scalar[]){change, 0, 0}), 0});
    ef_expr local = reduced(m, EF_RED_MAX, m->cut, m->z);
    ef_expr sum = reduced(m, EF_RED_SUM, m->cut, op1(m, EF_EXP, op2(m, EF_SUB, m->z, local)));
    m->result = over_axis(m, ef_reducer_repaired(m->ctx, EF_RED_MAX, EF_RED_SUM, &h), op2(m, EF_TUPLE, local, sum));
    m->s = inside(m, field(m, 0, m->result));
    m->also = inside(m, field(m, 1, m->result));
}

/* Two reductions side by side, of which f uses one. */
static void pair(maker *m)
{
    ef_expr other = chance(m, 50)
                        ? reduced(m, EF_RED_MAX, m->cut, logits(m))
                        : reduced(m, EF_RED_SUM, m->cut, op2(m, EF_MUL, weight(m), input(m, PLAIN, 60, true)));
    m->z = logits(m);
    ef_expr own = reduced(m, EF_RED_MAX, m->cut, m->z);
    if (other == EF_NONE || own == EF_NONE)
        return;
    bool first = chance(m, 50);
    ef_reducer beside = ef_dag_op(m->dag, other) == EF_REDUCE ? ef_attr_reducer(ef_dag_attr(m->dag, other)) : EF_NONE;
    ef_reducer both = ef_reducer_product(m->ctx, first ? EF_RED_MAX : beside, first ? beside : EF_RED_MAX);
    m->result = over_axis(m, both, first ? op2(m, EF_TUPLE, own, other) : op2(m, EF_TUPLE, other, own));
    m->s = inside(m, field(m, !first, m->result));
}

/* The running norm of x, in one of its forms: what f divides by. */
static void norm(maker *m)
{
    ef_expr x = input(m, PLAIN, 75, true), q = op2(m, EF_MUL, x, x);
    switch (below(m, 4)) {
    case 0: q = op1(m, EF_ABS, x); break;
    case 1: q = op2(m, EF_MUL, q, number(m, 0.5)); break;
    case 2: q = op2(m, EF_ADD, q, op1(m, EF_ABS, weight(m))); break;
    default: break;
    }
    m->z = x;
    m->result = over_axis(m, EF_RED_SUM, reduced(m, EF_RED_SUM, m->cut, q));
    bool early = chance(m, 50); /* the form is taken outside of p's scope */
    ef_expr n = early ? m->result : inside(m, m->result);
    switch (below(m, 4)) {
    case 0: n = op1(m, EF_SQRT, n); break;
    case 1: n = op1(m, EF_SQRT, op2(m, EF_ADD, op2(m, EF_MUL, n, number(m, 0.25)), number(m, 1e-5))); break;
    case 2: n = op2(m, EF_ADD, n, number(m, 1)); break;
    default: break;
    }
    m->s = early ? inside(m, n) : n;
}

/* ---- dependences that have a repair function ---- */

/* z - s for a maximum, s - z for a minimum: never positive, and -inf where z is masked. */
static ef_expr shifted(maker *m, ef_expr z)
{
    bool up = m->producer == EF_RED_MAX;
    if (chance(m, 20))
        z = masked(m, z, nothing(m));
    switch (below(m, 3)) {
    case 0: return op2(m, EF_ADD, up ? z : m->s, op1(m, EF_NEG, up ? m->s : z));
    case 1: return op1(m, EF_NEG, op2(m, EF_SUB, up ? m->s : z, up ? z : m->s));
    default: return op2(m, EF_SUB, up ? z : m->s, up ? m->s : z);
    }
}

static ef_expr exponential(maker *m)
{
    ef_expr d = shifted(m, m->z);
    if (chance(m, 25))
        d = chance(m, 50) ? op2(m, EF_MUL, d, number(m, 0.5)) : op2(m, EF_DIV, d, number(m, 3));
    return op1(m, chance(m, 60) ? EF_EXP : EF_EXP2, d);
}

static ef_expr quotient(maker *m)
{
    ef_expr x = m->z;
    switch (below(m, 4)) {
    case 0: x = op1(m, EF_ABS, x); break;
    case 1: x = op2(m, EF_MUL, x, x); break;
    case 2: x = masked(m, x, 0); break;
    default: break;
    }
    return chance(m, 70) ? op2(m, EF_DIV, x, m->s) : op2(m, EF_MUL, x, op1(m, EF_RECIP, m->s));
}

/* e * w1 + w2 * e */
static ef_expr both_weights(maker *m, ef_expr e)
{
    return op2(m, EF_ADD, op2(m, EF_MUL, e, weight(m)), op2(m, EF_MUL, weight(m), e));
}

/* What scales with the producer: a sum can be repaired. Terms stay of the size that the prover masters in its limits.
 */
static ef_expr scaled(maker *m)
{
    bool large = m->also != EF_NONE;
    ef_expr e = m->producer == EF_RED_SUM ? quotient(m) : exponential(m);
    if (m->also != EF_NONE && chance(m, 70))
        e = op2(m, EF_DIV, e, m->also);
    for (unsigned i = below(m, large ? 2 : 3); i > 0; i--)
        switch (below(m, large ? 5 : 6)) {
        case 0: e = op2(m, EF_MUL, e, weight(m)); break;
        case 1: e = op2(m, EF_DIV, e, number(m, 4)); break;
        case 2: e = op1(m, EF_NEG, e); break;
        case 3: e = masked(m, e, 0); break;
        case 4: e = op2(m, EF_MUL, weight(m), e); break;
        default:
            e = both_weights(m, e);
            large = true;
            break;
        }
    return e;
}

/* ---- consumers ---- */

static bool varies_along(maker *m, ef_expr x, unsigned index)
{
    const ef_type_info *type = ef_type_at(m->ctx, ef_dag_type(m->dag, x));
    return index < type->rank && type->dim[index] != EF_UNIT;
}

/* Sums e over p's dimension: a plain sum or a contraction with another input. A sum over another dimension as well has
 * a repair only where the producer is constant along it. */
static ef_expr summed(maker *m, ef_expr e)
{
    if (e == EF_NONE || m->rank < 2 || !chance(m, 45))
        return e == EF_NONE ? EF_NONE : reduced(m, EF_RED_SUM, m->cut, e);
    unsigned beside = 1 - m->cut;
    if (chance(m, 20)) {
        if (varies_along(m, m->s, beside))
            m->out->expected = EF_EXPECT_REFUSED;
        return reduced(m, EF_RED_SUM, m->cut, reduced(m, EF_RED_SUM, beside, e));
    }
    ef_type_info v = {.dtype = EF_F32, .rank = (uint8_t)m->rank};
    const ef_type_info *type = ef_type_at(m->ctx, ef_dag_type(m->dag, e));
    if (type->rank < 2)
        return reduced(m, EF_RED_SUM, m->cut, e);
    for (unsigned i = 0; i < m->rank; i++)
        v.dim[i] = i < 2 || chance(m, 50) ? m->dim[i] : EF_UNIT;
    v.dim[1 - beside] = ef_dim_of_var(m->ctx, m->d->pool[4]);
    v.dim[beside] = m->dim[m->cut];
    ef_expr other = input_of(m, &v);
    return beside == 1 ? op2(m, EF_TILE_MATMUL, e, other) : op2(m, EF_TILE_MATMUL, other, e);
}

/* A consumer and its reducer. */
static ef_expr consumer(maker *m, ef_reducer *reducer)
{
    *reducer = EF_RED_SUM;
    if (m->producer == EF_RED_SUM || m->also != EF_NONE || !chance(m, 20))
        return summed(m, scaled(m));
    ef_expr d = shifted(m, m->z); /* a maximum or minimum of what moves with the producer */
    if (chance(m, 30))
        d = op2(m, EF_ADD, d, weight(m));
    *reducer = chance(m, 50) ? EF_RED_MAX : EF_RED_MIN;
    return reduced(m, *reducer, m->cut, *reducer == EF_RED_MAX ? d : op1(m, EF_NEG, d));
}

/* ---- dependences that have none ---- */

/* None for a sum of such values: what the producer changes depends on x. */
static ef_expr unrepairable(maker *m)
{
    ef_expr d = op2(m, EF_SUB, m->z, m->s), e;
    switch (below(m, 6)) {
    case 0: return op1(m, EF_SIGMOID, d);
    case 1: return op1(m, EF_TANH, d);
    case 2: return op2(m, EF_MUL, d, d);
    case 3: return d;
    case 4: e = op1(m, EF_EXP, d); return op2(m, EF_MUL, e, op2(m, EF_ADD, e, number(m, 1)));
    default: return op2(m, EF_ADD, op1(m, EF_EXP, d), chance(m, 50) ? number(m, 1) : weight(m));
    }
}

/* One whose values are there where the producer saw nothing, or overflow before the producer is complete; not so where
 * the producer is bounded. */
static ef_expr unsafe(maker *m)
{
    bool up = m->producer == EF_RED_MAX;
    if (m->bounded)
        m->out->expected = EF_EXPECT_ANYTHING;
    ef_expr other = input(m, PLAIN, 75, true), e;
    switch (below(m, 5)) {
    case 0: e = op1(m, EF_EXP, op2(m, EF_SUB, up ? m->s : m->z, up ? m->z : m->s)); break;
    case 1: e = op1(m, EF_EXP, op2(m, EF_SUB, up ? other : m->s, up ? m->s : other)); break;
    case 2: e = op1(m, EF_EXP, op2(m, EF_ADD, shifted(m, m->z), other)); break;
    case 3: e = op2(m, EF_MUL, exponential(m), op1(m, EF_EXP, up ? op1(m, EF_NEG, m->s) : m->s)); break;
    default: {
        ef_expr half = op2(m, EF_MUL, m->z, number(m, 0.5));
        e = op1(m, EF_EXP, op2(m, EF_SUB, up ? half : m->s, up ? m->s : half));
        break;
    }
    }
    return e;
}

/* Sums that may cancel, or that may vanish without what they divide. */
static ef_expr bad_norm(maker *m)
{
    ef_expr x = input(m, PLAIN, 75, true), q = x, n;
    unsigned which = below(m, 5);
    if (which >= 3)
        q = op2(m, EF_MUL, x, x);
    m->z = x;
    m->result = over_axis(m, EF_RED_SUM, reduced(m, EF_RED_SUM, m->cut, q));
    m->s = n = inside(m, m->result);
    switch (which) {
    case 0: return op2(m, EF_DIV, chance(m, 50) ? x : op1(m, EF_TANH, x), n);
    case 1: x = op2(m, EF_SUB, x, op2(m, EF_MUL, n, number(m, 0.25))); return op2(m, EF_MUL, x, x);
    case 2: return op2(m, EF_DIV, op1(m, EF_ABS, x), op1(m, EF_ABS, n));
    case 3: return op2(m, EF_DIV, op1(m, EF_TANH, input(m, PLAIN, 75, true)), n);
    default: return op2(m, EF_DIV, x, op2(m, EF_ADD, n, input(m, PLAIN, 75, true)));
    }
}

static ef_expr refused_consumer(maker *m, ef_reducer *reducer)
{
    ef_expr e;
    m->out->expected = EF_EXPECT_REFUSED;
    *reducer = EF_RED_SUM;
    if (m->producer != EF_RED_SUM) {
        e = chance(m, 50) ? unrepairable(m) : unsafe(m);
    } else {
        e = bad_norm(m);
        if (chance(m, 20)) { /* the sign of a factor is not known */
            *reducer = EF_RED_MAX;
            e = op2(m, EF_MUL, weight(m), m->s);
        }
    }
    return e == EF_NONE ? EF_NONE : reduced(m, *reducer, m->cut, e);
}

/* ---- the whole ---- */

static void draw_producer(maker *m, bool refused)
{
    static const ef_reducer reducers[] = {EF_RED_MAX, EF_RED_MAX, EF_RED_MAX, EF_RED_MIN, EF_RED_SUM};
    unsigned way = below(m, 100);
    m->producer = reducers[below(m, sizeof reducers / sizeof *reducers)];
    if (!refused && way < 20)
        m->producer = EF_RED_MAX;
    m->out->masks.value = nothing(m);
    if (!refused && way < 10) {
        softmax(m);
    } else if (!refused && way < 20) {
        pair(m);
        m->out->expected = EF_EXPECT_ANYTHING;
    } else if (m->producer != EF_RED_SUM) {
        extremum(m);
    } else if (!refused) {
        norm(m);
    }
}

static ef_expr draw_left(maker *m)
{
    bool refused = chance(m, 25);
    ef_expr y, value[MAX_VALUES];
    ef_reducer reducer, of[MAX_VALUES];
    unsigned count = chance(m, 65) ? 1 : 2 + chance(m, 30);
    draw_world(m);
    draw_producer(m, refused);
    unsigned bad = refused ? below(m, count) : MAX_VALUES;
    if (refused && m->producer == EF_RED_SUM)
        count = 1, bad = 0;
    for (unsigned i = 0; i < count; i++)
        if ((value[i] = i == bad ? refused_consumer(m, &of[i]) : consumer(m, &of[i])) == EF_NONE)
            return EF_NONE;
    y = value[0];
    reducer = of[0];
    for (unsigned i = 1; i < count; i++) {
        y = op2(m, EF_TUPLE, y, value[i]);
        reducer = ef_reducer_product(m->ctx, reducer, of[i]);
    }
    return op2(m, EF_TUPLE, m->result, over_axis(m, reducer, y));
}

/* ---- applying the rule ---- */

/* The term that a node of the e-graph was made as. */
static ef_expr term_of(ef_egraph *g, ef_dag *dag, ef_id n)
{
    ef_expr child[EF_MAX_CHILDREN];
    for (unsigned i = 0; i < g->arity.at[n]; i++)
        if ((child[i] = term_of(g, dag, ef_node_origins(g, n)[i])) == EF_NONE)
            return EF_NONE;
    return ef_dag_add_exact(dag, (ef_op)g->op.at[n], g->attr.at[n], child, g->arity.at[n], NULL);
}

static bool keep_match(void *user, const ef_match *match)
{
    *(ef_match *)user = *match;
    return false;
}

static ef_instance_kind apply(ef_instance *x)
{
    ef_egraph *g = ef_egraph_new(x->draw.ctx);
    const ef_scope scope = {.ctx = x->draw.ctx, .graph = g};
    ef_match match;
    ef_instance_kind kind = EF_INSTANCE_CONDITION;
    if (ef_egraph_add_expr(g, x->draw.dag, x->left) != EF_NONE &&
        !ef_pattern_search(&scope, x->rule, 0, 0, keep_match, &match)) {
        ef_id right = x->rule->builder(&scope, x->rule, &match);
        x->right = right == EF_NONE ? EF_NONE : term_of(g, x->draw.dag, right);
        if (right == EF_NONE)
            kind = x->expected == EF_EXPECT_FUSED ? EF_INSTANCE_LOST : EF_INSTANCE_REFUSED;
        else if (x->expected == EF_EXPECT_REFUSED)
            kind = EF_INSTANCE_WRONG;
        else if (x->right == EF_NONE || ef_dag_type(x->draw.dag, x->right) != ef_dag_type(x->draw.dag, x->left))
            kind = EF_INSTANCE_ILL_TYPED;
        else
            kind = EF_INSTANCE_APPLIES;
    }
    ef_egraph_free(g);
    return kind;
}

ef_instance_kind ef_instance_draw_repair(ef_instance *x)
{
    maker m = {.out = x,
               .d = &x->draw,
               .ctx = x->draw.ctx,
               .dag = x->draw.dag,
               .z = EF_NONE,
               .result = EF_NONE,
               .s = EF_NONE,
               .also = EF_NONE};
    x->left = draw_left(&m);
    return x->left == EF_NONE ? EF_INSTANCE_NONE : apply(x);
}
