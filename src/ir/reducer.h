/* Reducers: interned values outside the e-graph (paper, sections 3.3 and 4.2; design, section 3).
 *
 * A reducer has a state of one tensor (base) or of a pair (built): product(r1, r2) runs two independent reducers side
 * by side; repaired(r1, r2, h) runs a producer r1 and a consumer r2 whose inputs depend on the producer's value. Its
 * state is (s, c) and its inputs are (g, y) with y computed from the LOCAL producer value g:
 *     s' = r1(s, g);   c' = r2(h(c, s, s'), h(y, g, s')).
 * h has one scalar term for every leaf of r2's state, over the parameters c (that leaf), s (old producer leaves) and t
 * (new producer leaves), applied pointwise with broadcasting. Where a leaf of the producer is still its reducer's
 * identity, nothing has been seen: what goes with that is the identity of r2 as soon as something is seen, and stays as
 * it is (h(c, s, s) = c) until then. So a row that is masked altogether ends as what y is there, which is NaN for a
 * softmax as in the program that it comes from, and a masked tile before others leaves no trace. */
#ifndef EF_IR_REDUCER_H
#define EF_IR_REDUCER_H

#include "ir/op.h"
#include "ir/type.h"

typedef uint32_t ef_reducer;
typedef uint32_t ef_scalar;

#define EF_MAX_LEAVES 8

typedef enum { EF_RED_SUM, EF_RED_MAX, EF_RED_MIN, EF_RED_PROD, EF_RED_PRODUCT, EF_RED_REPAIRED } ef_reducer_kind;

typedef struct {
    ef_reducer_kind kind;
    ef_reducer left, right; /* PRODUCT, REPAIRED */
    unsigned leaves;        /* tensors in the state */
    unsigned terms;         /* REPAIRED: leaves of `right` */
    ef_scalar h[EF_MAX_LEAVES];
} ef_reducer_info;

/* The base reducers have fixed ids: the enumerators EF_RED_SUM … EF_RED_PROD. */
ef_reducer ef_reducer_product(ef_ctx *ctx, ef_reducer left, ef_reducer right);
ef_reducer ef_reducer_repaired(ef_ctx *ctx, ef_reducer left, ef_reducer right, const ef_scalar *h);
const ef_reducer_info *ef_reducer_at(const ef_ctx *ctx, ef_reducer reducer);
/* The base reducers of the leaves, left to right. */
unsigned ef_reducer_leaves(const ef_ctx *ctx, ef_reducer reducer, ef_reducer leaf[EF_MAX_LEAVES]);
double ef_reducer_identity(ef_reducer base);
/* Folds one input (leaves `in`) into `state`, both arrays of scalars, one per leaf: the meaning of the reducer. */
void ef_reducer_update(const ef_ctx *ctx, ef_reducer reducer, double *state, const double *in);
/* Whether a value of this type can be the operand of reduce[reducer, parallel p]: the tuple structure fits, and every
 * producer leaf broadcasts to the consumer leaves that it repairs. */
bool ef_reducer_fits(const ef_ctx *ctx, ef_reducer reducer, ef_type operand);
void ef_reducer_print(const ef_ctx *ctx, ef_reducer reducer, ef_strbuf *out);

/* Scalar terms: pointwise operators over parameters, hash-consed. */
typedef enum { EF_SCALAR_PARAM, EF_SCALAR_CONST, EF_SCALAR_APPLY } ef_scalar_kind;
typedef enum { EF_PARAM_C, EF_PARAM_S, EF_PARAM_T } ef_param;

typedef struct {
    ef_scalar_kind kind;
    ef_op op;          /* APPLY: a pointwise operator (no cast) */
    uint32_t operands; /* APPLY */
    ef_scalar operand[3];
    ef_param param; /* PARAM */
    uint32_t index; /* PARAM S, T: which producer leaf */
    double value;   /* CONST */
} ef_scalar_info;

ef_scalar ef_scalar_param(ef_ctx *ctx, ef_param param, uint32_t index);
ef_scalar ef_scalar_const(ef_ctx *ctx, double value);
ef_scalar ef_scalar_apply(ef_ctx *ctx, ef_op op, const ef_scalar *operands);
const ef_scalar_info *ef_scalar_at(const ef_ctx *ctx, ef_scalar scalar);
double ef_scalar_eval(const ef_ctx *ctx, ef_scalar scalar, double c, const double *s, const double *t);
/* "mul(c, exp(sub(s, t)))"; producer leaves are s0, s1, … and t0, t1, … when there are several. */
void ef_scalar_print(const ef_ctx *ctx, ef_scalar scalar, unsigned producer_leaves, ef_strbuf *out);

#endif
