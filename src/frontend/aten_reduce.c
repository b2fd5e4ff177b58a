/* Reductions of ATen: sums, extrema, moments, norms, softmax. The IR reduces one dimension at a time and keeps it as 1;
 * here lists of dimensions are taken in turn, from the last, and then dropped unless they are kept. */
#include <math.h>

#include "frontend/aten.h"

/* The dimensions that a node reduces, as indices from the last, innermost first. */
typedef struct {
    unsigned count, index[EF_MAX_RANK];
    bool keep;
} reduced;

/* ---- helpers ---- */

ef_dn ef_aten_reduce(ef_aten *c, ef_reducer_kind kind, ef_dn x, const unsigned *index, unsigned count)
{
    for (unsigned i = 0; i < count; i++)
        x = ef_dn_reduce(c->draft, kind, index[i], x);
    return x;
}

double ef_aten_extent(const ef_aten *c, ef_dn x, const unsigned *index, unsigned count)
{
    double n = 1;
    for (unsigned i = 0; x != EF_NONE && i < count; i++)
        n *= (double)ef_dn_size(c->draft, x, index[i]);
    return n;
}

/* No list, or an empty one, means all dimensions. */
static bool which(ef_aten *c, ef_dn x, const char *name, uint32_t position, reduced *r)
{
    int64_t dim[EF_MAX_RANK];
    bool given, seen[EF_MAX_RANK] = {false};
    unsigned rank = ef_aten_rank(c, x), n = ef_aten_ints(c, name, position, dim, EF_MAX_RANK, &given);
    if (x == EF_NONE)
        return ef_aten_give(c, 0, EF_NONE);
    for (unsigned i = 0; i < n; i++) {
        unsigned index = ef_aten_dim(dim[i], rank);
        if (index == EF_MAX_RANK)
            return ef_aten_refuse(c, "no such dimension");
        seen[index] = true;
    }
    *r = (reduced){.keep = ef_aten_flag(c, "keepdim", position + 1, false)};
    for (unsigned i = 0; i < rank; i++)
        if (n == 0 || seen[i])
            r->index[r->count++] = i;
    return true;
}

/* Result k: what was reduced, with its type, and without its dimensions unless they are kept. */
static bool give(ef_aten *c, uint32_t k, ef_dn x, const reduced *r)
{
    int64_t size[EF_MAX_RANK];
    unsigned rank = ef_aten_rank(c, x), kept = 0;
    for (unsigned i = rank; i-- > 0;) {
        bool gone = false;
        for (unsigned j = 0; j < r->count; j++)
            gone = gone || r->index[j] == i;
        if (!gone)
            size[kept++] = (int64_t)ef_dn_size(c->draft, x, i);
    }
    if (!r->keep)
        x = ef_dn_reshape(c->draft, x, size, kept);
    return ef_aten_give(c, k, ef_dn_cast(c->draft, ef_aten_result_type(c, k), x));
}

static ef_dn self(ef_aten *c)
{
    return ef_aten_operand(c, "self", 0);
}

static ef_dn self_as_result(ef_aten *c)
{
    return ef_dn_cast(c->draft, ef_aten_result_type(c, 0), self(c));
}

static ef_dn mean(ef_aten *c, ef_dn x, const reduced *r)
{
    return ef_n(c, EF_DIV, ef_aten_reduce(c, EF_RED_SUM, x, r->index, r->count),
                ef_aten_extent(c, x, r->index, r->count));
}

/* ---- sums and extrema ---- */

static bool lower_sum(ef_aten *c, int param)
{
    reduced r = {0};
    ef_dn x = self_as_result(c);
    (void)param;
    return which(c, x, "dim", 1, &r) && give(c, 0, ef_aten_reduce(c, EF_RED_SUM, x, r.index, r.count), &r);
}

static bool lower_mean(ef_aten *c, int param)
{
    reduced r = {0};
    ef_dn x = self_as_result(c);
    (void)param;
    return which(c, x, "dim", 1, &r) && give(c, 0, mean(c, x, &r), &r);
}

static bool lower_prod(ef_aten *c, int param)
{
    reduced r = {0};
    ef_dn x = self_as_result(c);
    (void)param;
    return which(c, x, "dim", 1, &r) && give(c, 0, ef_aten_reduce(c, EF_RED_PROD, x, r.index, r.count), &r);
}

static bool lower_extremum(ef_aten *c, int reducer)
{
    reduced r = {0};
    ef_dn x = self(c);
    if (ef_aten_dtype(c, x) == EF_BOOL)
        x = ef_dn_cast(c->draft, EF_I32, x);
    return which(c, x, "dim", 1, &r) &&
           give(c, 0, ef_aten_reduce(c, (ef_reducer_kind)reducer, x, r.index, r.count), &r);
}

/* max and min: of two tensors, of a whole tensor, or along a dimension with positions, which the IR has not. */
static bool lower_max_min(ef_aten *c, int reducer)
{
    if (ef_aten_has(c, "other", EF_NONE)) {
        ef_op op = reducer == EF_RED_MAX ? EF_MAX : EF_MIN;
        ef_dn b = ef_aten_operand(c, "other", EF_NONE), a = self_as_result(c);
        return ef_aten_give(c, 0, ef_b(c, op, a, ef_dn_cast(c->draft, ef_aten_result_type(c, 0), b)));
    }
    if (c->results > 1 && c->value[1] != EF_NONE)
        return ef_aten_refuse(c, "positions of extrema");
    return lower_extremum(c, reducer);
}

/* any, all */
static bool lower_truth(ef_aten *c, int reducer)
{
    reduced r = {0};
    ef_dn x = self(c);
    if (!which(c, x, "dim", 1, &r))
        return false;
    if (ef_aten_dtype(c, x) != EF_BOOL)
        x = ef_n(c, EF_NE, x, 0);
    x = ef_aten_reduce(c, (ef_reducer_kind)reducer, ef_dn_cast(c->draft, EF_I32, x), r.index, r.count);
    return give(c, 0, ef_n(c, EF_NE, x, 0), &r);
}

/* Sums up to each position are no reduction of the IR; where all elements are one number they are its multiples. */
static bool lower_cumsum(ef_aten *c, int param)
{
    int64_t size[EF_MAX_RANK], range[EF_MAX_RANK];
    ef_dn x = self_as_result(c);
    unsigned rank = ef_aten_sizes(c, x, size), index = ef_aten_dim(ef_aten_int(c, "dim", 1, 0), rank);
    (void)param;
    if (x == EF_NONE || index >= rank || !c->draft->nodes.at[x].uniform)
        return ef_aten_refuse(c, "sums up to each position");
    for (unsigned i = 0; i < rank; i++)
        range[i] = i == rank - 1 - index ? size[i] : 1;
    double number = c->draft->nodes.at[x].number;
    ef_dn count = ef_n(c, EF_ADD, ef_dn_iota(c->draft, (uint64_t)size[rank - 1 - index]), 1);
    count = ef_dn_reshape(c->draft, ef_dn_cast(c->draft, ef_aten_result_type(c, 0), count), range, rank);
    return ef_aten_give(c, 0, ef_dn_broadcast(c->draft, ef_n(c, EF_MUL, count, number), size, rank));
}

/* ---- moments ---- */

typedef enum { VAR, STD, VAR_MEAN, STD_MEAN } moment;

static bool lower_variance(ef_aten *c, int what)
{
    reduced r = {0};
    ef_dn x = self_as_result(c);
    bool unbiased = ef_aten_flag(c, "unbiased", EF_NONE, true);
    double correction = ef_aten_number(c, "correction", EF_NONE, unbiased ? 1 : 0);
    if (!which(c, x, "dim", EF_NONE, &r))
        return false;
    r.keep = ef_aten_flag(c, "keepdim", EF_NONE, false);
    ef_dn m = mean(c, x, &r), dev = ef_b(c, EF_SUB, x, m);
    ef_dn sum = ef_aten_reduce(c, EF_RED_SUM, ef_b(c, EF_MUL, dev, dev), r.index, r.count);
    double n = ef_aten_extent(c, x, r.index, r.count) - correction;
    ef_dn y = ef_n(c, EF_DIV, sum, n > 0 ? n : 0);
    if (what == STD || what == STD_MEAN)
        y = ef_u(c, EF_SQRT, y);
    return give(c, 0, y, &r) && (what < VAR_MEAN || give(c, 1, m, &r));
}

/* ---- norms ---- */

static ef_dn vector_norm(ef_aten *c, ef_dn x, double p, const reduced *r)
{
    ef_dn magnitude = ef_u(c, EF_ABS, x);
    if (p == 2)
        return ef_u(c, EF_SQRT, ef_aten_reduce(c, EF_RED_SUM, ef_b(c, EF_MUL, x, x), r->index, r->count));
    if (p == 1)
        return ef_aten_reduce(c, EF_RED_SUM, magnitude, r->index, r->count);
    if (isinf(p))
        return ef_aten_reduce(c, p > 0 ? EF_RED_MAX : EF_RED_MIN, magnitude, r->index, r->count);
    if (p == 0) {
        ef_dn some = ef_dn_cast(c->draft, EF_F32, ef_n(c, EF_NE, x, 0));
        return ef_aten_reduce(c, EF_RED_SUM, some, r->index, r->count);
    }
    ef_dn sum = ef_aten_reduce(c, EF_RED_SUM, ef_n(c, EF_POW, magnitude, p), r->index, r->count);
    return ef_n(c, EF_POW, sum, 1 / p);
}

static bool lower_norm(ef_aten *c, int linalg)
{
    reduced r = {0};
    ef_dn x = self_as_result(c);
    if (!which(c, x, "dim", 2, &r))
        return false;
    return give(c, 0, vector_norm(c, x, ef_aten_number(c, linalg ? "ord" : "p", 1, 2), &r), &r);
}

/* ---- softmax ---- */

/* One dimension of an argument. */
static bool one(ef_aten *c, ef_dn x, unsigned *index)
{
    *index = ef_aten_dim(ef_aten_int(c, "dim", 1, -1), ef_aten_rank(c, x));
    return x != EF_NONE && *index < ef_aten_rank(c, x) ? true : ef_aten_refuse(c, "softmax of a single number");
}

static bool give_cast(ef_aten *c, ef_dn x)
{
    return ef_aten_give(c, 0, ef_dn_cast(c->draft, ef_aten_result_type(c, 0), x));
}

ef_dn ef_aten_softmax(ef_aten *c, ef_dn x, unsigned index)
{
    ef_dn high = ef_dn_reduce(c->draft, EF_RED_MAX, index, x), p = ef_u(c, EF_EXP, ef_b(c, EF_SUB, x, high));
    return ef_b(c, EF_DIV, p, ef_dn_reduce(c->draft, EF_RED_SUM, index, p));
}

/* `safe`: rows where everything is masked give 0. */
static bool lower_softmax(ef_aten *c, int safe)
{
    unsigned index;
    ef_dn x = self_as_result(c);
    if (!one(c, x, &index))
        return false;
    ef_dn y = ef_aten_softmax(c, x, index);
    if (safe) {
        ef_dn high = ef_dn_reduce(c->draft, EF_RED_MAX, index, x);
        y = ef_dn_select(c->draft, ef_n(c, EF_EQ, high, -INFINITY), ef_dn_number(c->draft, 0), y);
    }
    return give_cast(c, y);
}

static bool lower_log_softmax(ef_aten *c, int param)
{
    unsigned index;
    ef_dn x = self_as_result(c);
    (void)param;
    if (!one(c, x, &index))
        return false;
    ef_dn shifted = ef_b(c, EF_SUB, x, ef_dn_reduce(c->draft, EF_RED_MAX, index, x));
    ef_dn sum = ef_dn_reduce(c->draft, EF_RED_SUM, index, ef_u(c, EF_EXP, shifted));
    return give_cast(c, ef_b(c, EF_SUB, shifted, ef_u(c, EF_LOG, sum)));
}

/* Where the largest is infinite it is the result, too: infinity less itself is none. */
static bool lower_logsumexp(ef_aten *c, int param)
{
    reduced r = {0};
    ef_dn x = self_as_result(c);
    (void)param;
    if (!which(c, x, "dim", 1, &r))
        return false;
    ef_dn high = ef_aten_reduce(c, EF_RED_MAX, x, r.index, r.count);
    ef_dn sum = ef_aten_reduce(c, EF_RED_SUM, ef_u(c, EF_EXP, ef_b(c, EF_SUB, x, high)), r.index, r.count);
    ef_dn infinite = ef_n(c, EF_EQ, ef_u(c, EF_ABS, high), INFINITY);
    return give(c, 0, ef_dn_select(c->draft, infinite, high, ef_b(c, EF_ADD, high, ef_u(c, EF_LOG, sum))), &r);
}

const ef_aten_row ef_aten_reductions[] = {
    {"sum", lower_sum, 0, EF_FRESH},
    {"cumsum", lower_cumsum, 0, EF_FRESH},
    {"mean", lower_mean, 0, EF_FRESH},
    {"prod", lower_prod, 0, EF_FRESH},
    {"amax", lower_extremum, EF_RED_MAX, EF_FRESH},
    {"amin", lower_extremum, EF_RED_MIN, EF_FRESH},
    {"max", lower_max_min, EF_RED_MAX, EF_FRESH},
    {"min", lower_max_min, EF_RED_MIN, EF_FRESH},
    {"any", lower_truth, EF_RED_MAX, EF_FRESH},
    {"all", lower_truth, EF_RED_MIN, EF_FRESH},
    {"var", lower_variance, VAR, EF_FRESH},
    {"std", lower_variance, STD, EF_FRESH},
    {"var_mean", lower_variance, VAR_MEAN, EF_FRESH},
    {"std_mean", lower_variance, STD_MEAN, EF_FRESH},
    {"norm", lower_norm, 0, EF_FRESH},
    {"linalg_vector_norm", lower_norm, 1, EF_FRESH},
    {"softmax", lower_softmax, 0, EF_FRESH},
    {"_softmax", lower_softmax, 0, EF_FRESH},
    {"_safe_softmax", lower_softmax, 1, EF_FRESH},
    {"log_softmax", lower_log_softmax, 0, EF_FRESH},
    {"_log_softmax", lower_log_softmax, 0, EF_FRESH},
    {"logsumexp", lower_logsumexp, 0, EF_FRESH},
    {0},
};
