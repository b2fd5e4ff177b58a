/* What is proved and what is tried of a repair (see repair.h). */
#include <math.h>
#include <stdlib.h>

#include "rules/prove.h"
#include "rules/repair_parts.h"
#include "support/rng.h"

#define LARGE_POINTS 512 /* at which f is tried for overflow */

/* (a) and (b), by the e-graph. */
bool ef_repair_proved(ef_synthesis *y, const ef_consumer_leaf *leaf)
{
    static const ef_op combine[] = {EF_ADD, EF_MAX, EF_MIN, EF_MUL};
    ef_expr s[EF_MAX_LEAVES], t[EF_MAX_LEAVES];
    ef_repair_inputs(y, s, t);
    ef_expr repaired = ef_prove_expr(y->dag, leaf->h, leaf->fs, s, t);
    ef_expr a = ef_prove_input(y->dag, "a", 0), b = ef_prove_input(y->dag, "b", 0);
    ef_expr joined = ef_dag_add(y->dag, combine[leaf->base], 0, (ef_expr[]){a, b}, 2, NULL);
    ef_expr ha = ef_prove_expr(y->dag, leaf->h, a, s, t), hb = ef_prove_expr(y->dag, leaf->h, b, s, t);
    ef_expr parts = ef_dag_add(y->dag, combine[leaf->base], 0, (ef_expr[]){ha, hb}, 2, NULL);
    return ef_prove_equal(y->dag, repaired, leaf->ft) &&
           ef_prove_equal(y->dag, ef_prove_expr(y->dag, leaf->h, joined, s, t), parts);
}

static bool close_to(double a, double b)
{
    return a == b || (isnan(a) && isnan(b)) || fabs(a - b) <= 1e-9 * (1 + fabs(a) + fabs(b));
}

/* (a) and (c) at random points. Points where f itself is not finite say nothing. */
bool ef_repair_checked(ef_synthesis *y, const ef_consumer_leaf *leaf)
{
    ef_rng rng = {17};
    unsigned informative = 0;
    for (unsigned round = 0; round < 64; round++) {
        ef_point p = {0}, q = {0};
        for (unsigned i = 0; i < EF_MAX_FREE; i++)
            p.x[i] = q.x[i] = ef_rng_normal(&rng);
        for (unsigned i = 0; i < EF_MAX_LEAVES; i++) {
            p.s[i] = 0.1 + fabs(ef_rng_normal(&rng));
            q.s[i] = p.s[i] + fabs(ef_rng_normal(&rng));
        }
        double before = ef_repair_value(y, leaf->fs, &p), after = ef_repair_value(y, leaf->fs, &q);
        double identity = ef_reducer_identity(leaf->base);
        if (!isfinite(before) || !isfinite(after))
            continue;
        informative++;
        if (!close_to(ef_scalar_eval(y->ctx, leaf->h, before, p.s, q.s), after) ||
            ef_scalar_eval(y->ctx, leaf->h, identity, p.s, q.s) != identity)
            return false;
    }
    return informative >= 16;
}

/* Sums of such terms are zero only where every term is. */
static bool never_negative(const ef_synthesis *y, ef_expr e)
{
    const ef_expr *child;
    unsigned count = ef_dag_children(y->dag, e, &child);
    switch (ef_dag_op(y->dag, e)) {
    case EF_CONST: return ef_attr_to_number(ef_dag_attr(y->dag, e)) >= 0;
    case EF_EXP:
    case EF_EXP2:
    case EF_ABS:
    case EF_SQRT:
    case EF_SIGMOID: return true;
    case EF_MUL:
        if (child[0] == child[1])
            return true;
        return never_negative(y, child[0]) && never_negative(y, child[1]);
    case EF_ADD:
    case EF_DIV: return count == 2 && never_negative(y, child[0]) && never_negative(y, child[1]);
    default: return false;
    }
}

/* ---- what h divides by ---- */

static ef_sign least_sign(ef_sign a, ef_sign b)
{
    return a < b ? a : b;
}

/* The sign of a closed function of the producer's leaves, once each has seen something: a sum of terms that are never
 * negative is positive then, about a maximum nothing is known. */
ef_sign ef_repair_sign(const ef_synthesis *y, const ef_joint_image *j, const ef_reducer *base, ef_scalar term)
{
    const ef_scalar_info *t = ef_scalar_at(y->ctx, term);
    if (t->kind == EF_SCALAR_CONST)
        return t->value > 0 ? EF_POSITIVE : t->value == 0 ? EF_NEVER_NEGATIVE : EF_ANY_SIGN;
    if (t->kind == EF_SCALAR_PARAM)
        return base[t->index] == EF_RED_SUM && never_negative(y, j->operand[t->index]) ? EF_POSITIVE : EF_ANY_SIGN;
    ef_sign a = ef_repair_sign(y, j, base, t->operand[0]),
            b = t->operands > 1 ? ef_repair_sign(y, j, base, t->operand[1]) : EF_ANY_SIGN;
    switch (t->op) {
    case EF_EXP:
    case EF_EXP2:
    case EF_SIGMOID: return EF_POSITIVE;
    case EF_SQRT:
    case EF_RSQRT:
    case EF_RECIP: return a == EF_POSITIVE ? EF_POSITIVE : EF_ANY_SIGN;
    case EF_ABS: return a == EF_POSITIVE ? EF_POSITIVE : EF_NEVER_NEGATIVE;
    case EF_ADD:
        return a == EF_POSITIVE && b != EF_ANY_SIGN   ? EF_POSITIVE
               : b == EF_POSITIVE && a != EF_ANY_SIGN ? EF_POSITIVE
                                                      : least_sign(a, b);
    case EF_MUL:
    case EF_MIN: return least_sign(a, b);
    case EF_DIV: return b == EF_POSITIVE ? a : EF_ANY_SIGN;
    case EF_MAX: return a > b ? a : b;
    default: return EF_ANY_SIGN;
    }
}

/* ---- producers that have seen nothing ---- */

/* The inputs x that an expression reads, as a bit mask. */
static uint32_t inputs_read(const ef_synthesis *y, ef_expr e)
{
    const ef_expr *child;
    uint32_t read = 0;
    unsigned count = ef_dag_children(y->dag, e, &child);
    if (ef_dag_op(y->dag, e) == EF_INPUT) {
        const char *name = ef_input_name(y->ctx, (uint32_t)ef_dag_attr(y->dag, e));
        return name[1] == 'x' ? 1u << strtoul(name + 2, NULL, 10) : 0;
    }
    for (unsigned i = 0; i < count; i++)
        read |= inputs_read(y, child[i]);
    return read;
}

/* A random point but for the inputs in `extreme`: those are `value`. */
static ef_point extreme_point(uint32_t extreme, double value, ef_rng *rng)
{
    ef_point p = {0};
    for (unsigned i = 0; i < EF_MAX_FREE; i++)
        p.x[i] = extreme >> i & 1 ? value : ef_rng_normal(rng);
    for (unsigned i = 0; i < EF_MAX_LEAVES; i++)
        p.s[i] = 0.1 + fabs(ef_rng_normal(rng));
    return p;
}

#define MOST_INPUTS 8 /* of a producer's operand: 256 subsets are tried; more inputs are refused */

/* Whether f under a producer's leaf that has seen nothing is the same whatever the other leaves are: with the local
 * values it is then what it is with those of the end. */
static bool the_same_with_nothing(const ef_synthesis *y, ef_expr f, unsigned which, ef_reducer base, ef_point p,
                                  ef_rng *rng)
{
    double first = 0;
    for (unsigned round = 0; round < 4; round++) {
        for (unsigned i = 0; i < EF_MAX_LEAVES; i++)
            p.s[i] = i == which ? ef_reducer_identity(base) : 0.1 + fabs(ef_rng_normal(rng));
        double value = ef_repair_value(y, f, &p);
        first = round == 0 ? value : first;
        if (!close_to(value, first))
            return false;
    }
    return true;
}

/* A contribution for which some leaf of the local producer value is the identity is dropped as soon as that leaf has
 * seen something (reducer.h). That is right only when such a contribution is the consumer's identity: wherever that
 * leaf's operand G(x) is its identity, f(x, s) must be the consumer's, for every s but those in which the leaf has seen
 * nothing. Any part of G's inputs may be what makes it so. */
bool ef_repair_identities(const ef_synthesis *y, const ef_joint_image *j, unsigned which, ef_reducer base,
                          ef_reducer consumer_base)
{
    static const double extremes[] = {-INFINITY, 0, INFINITY, 1};
    ef_rng rng = {23};
    ef_expr operand = j->operand[which];
    uint32_t read = inputs_read(y, operand);
    if ((base == EF_RED_SUM && !never_negative(y, operand)) || base == EF_RED_PROD ||
        __builtin_popcount(read) > MOST_INPUTS)
        return false;
    for (uint32_t extreme = read; extreme; extreme = (extreme - 1) & read)
        for (unsigned e = 0; e < 4; e++)
            for (unsigned round = 0; round < 4; round++) {
                ef_point p = extreme_point(extreme, extremes[e], &rng);
                if (ef_repair_value(y, operand, &p) != ef_reducer_identity(base))
                    continue;
                if (ef_repair_value(y, j->f, &p) != ef_reducer_identity(consumer_base) ||
                    !the_same_with_nothing(y, j->f, which, base, p, &rng))
                    return false;
            }
    return true;
}

/* A point of large values, the producer's local value g at it in s, and in t what that may have become in the end. */
static void large_point(const ef_synthesis *y, const ef_joint_image *j, const ef_reducer *base, ef_point *p,
                        ef_point *t, ef_rng *rng)
{
    static const double magnitude[] = {1, 100, 10000, 100000, 1000000};
    for (unsigned i = 0; i < EF_MAX_FREE; i++)
        p->x[i] = ef_rng_normal(rng) * magnitude[ef_rng_below(rng, 4)];
    for (unsigned i = 0; i < y->leaves; i++) /* the sums of a repaired producer are of moderate size */
        p->s[i] =
            i > 0 && base[i] == EF_RED_SUM ? 0.1 + fabs(ef_rng_normal(rng)) : ef_repair_value(y, j->operand[i], p);
    *t = *p;
    for (unsigned i = 0; i < y->leaves; i++) {
        double change = fabs(ef_rng_normal(rng)) * magnitude[ef_rng_below(rng, 5)];
        t->s[i] += base[i] == EF_RED_MIN ? -change : change;
    }
}

/* No form that overflows where the original did not: where f(x, t) is finite, so must be f(x, g), and h(f(x, g), g, t)
 * must be what it was proved to be. exp(x - s) is of this kind when s is the maximum of x, but not when it is that of
 * something else. */
bool ef_repair_finite(const ef_synthesis *y, const ef_joint_image *j, const ef_reducer *base, ef_scalar h)
{
    ef_rng rng = {29};
    for (unsigned round = 0; round < LARGE_POINTS; round++) {
        ef_point p = {0}, t = {0};
        large_point(y, j, base, &p, &t, &rng);
        double before = ef_repair_value(y, j->f, &p), after = ef_repair_value(y, j->f, &t);
        bool seen = true;
        for (unsigned i = 0; i < y->leaves; i++)
            seen = seen && isfinite(p.s[i]) && p.s[i] != ef_reducer_identity(base[i]);
        if (seen && isfinite(after) && !close_to(ef_scalar_eval(y->ctx, h, before, p.s, t.s), after))
            return false;
    }
    return true;
}
