/* The operators of the IR (paper, section 3; design, section 3), as one table.
 *
 * A node is (operator, attribute, children). The attribute is one 64-bit word whose meaning the table gives; interned
 * ids (dimensions, axis sets, reducers, inputs) keep it that small. Indices of dimensions count FROM THE LAST
 * dimension: 0 is the last one, 1 the one before; so they do not change when a leading dimension comes or goes, and
 * operands of different rank align as in NumPy. The text form prints them as -1, -2, … */
#ifndef EF_IR_OP_H
#define EF_IR_OP_H

#include <stdbool.h>
#include <stdint.h>

/* What the 64-bit attribute holds. */
typedef enum {
    EF_ATTR_NONE,
    EF_ATTR_INPUT,    /* input id */
    EF_ATTR_NUMBER,   /* the bits of a double */
    EF_ATTR_DIM,      /* dimension id */
    EF_ATTR_DIMS,     /* id of an interned list of dimensions */
    EF_ATTR_DTYPE,    /* ef_dtype */
    EF_ATTR_INDEX,    /* dimension index from the last */
    EF_ATTR_PERM,     /* 4 bits an output index: the input index that it takes */
    EF_ATTR_SLICE,    /* index 8 bits, start 28 bits, stop 28 bits */
    EF_ATTR_FIELD,    /* tuple field */
    EF_ATTR_REDUCE,   /* reducer 32 bits low, index (or EF_FIRST) above */
    EF_ATTR_REDUCE_P, /* reducer 32 bits low, axis above */
    EF_ATTR_AXES,     /* id of an interned set of axes */
    EF_ATTR_AXIS      /* axis */
} ef_attr_kind;

/* How an operator treats its operands: what rules quantify over. */
typedef enum {
    EF_LEAF,
    EF_UNARY,
    EF_BINARY,
    EF_TERNARY,
    EF_CONTRACTION,
    EF_REDUCTION,
    EF_SHAPE,
    EF_TUPLING,
    EF_PARALLEL
} ef_op_class;

/*        enumerator       text            arity (-1: any)  class        attribute */
#define EF_OPS(X)                                                     \
    X(EF_INPUT, "input", 0, EF_LEAF, EF_ATTR_INPUT)                   \
    X(EF_CONST, "const", 0, EF_LEAF, EF_ATTR_NUMBER)                  \
    X(EF_IOTA, "iota", 0, EF_LEAF, EF_ATTR_DIM)                       \
    X(EF_NEG, "neg", 1, EF_UNARY, EF_ATTR_NONE)                       \
    X(EF_EXP, "exp", 1, EF_UNARY, EF_ATTR_NONE)                       \
    X(EF_EXP2, "exp2", 1, EF_UNARY, EF_ATTR_NONE)                     \
    X(EF_LOG, "log", 1, EF_UNARY, EF_ATTR_NONE)                       \
    X(EF_LOG2, "log2", 1, EF_UNARY, EF_ATTR_NONE)                     \
    X(EF_SQRT, "sqrt", 1, EF_UNARY, EF_ATTR_NONE)                     \
    X(EF_RSQRT, "rsqrt", 1, EF_UNARY, EF_ATTR_NONE)                   \
    X(EF_RECIP, "recip", 1, EF_UNARY, EF_ATTR_NONE)                   \
    X(EF_TANH, "tanh", 1, EF_UNARY, EF_ATTR_NONE)                     \
    X(EF_SIGMOID, "sigmoid", 1, EF_UNARY, EF_ATTR_NONE)               \
    X(EF_ERF, "erf", 1, EF_UNARY, EF_ATTR_NONE)                       \
    X(EF_ABS, "abs", 1, EF_UNARY, EF_ATTR_NONE)                       \
    X(EF_SIN, "sin", 1, EF_UNARY, EF_ATTR_NONE)                       \
    X(EF_COS, "cos", 1, EF_UNARY, EF_ATTR_NONE)                       \
    X(EF_FLOOR, "floor", 1, EF_UNARY, EF_ATTR_NONE)                   \
    X(EF_NOT, "not", 1, EF_UNARY, EF_ATTR_NONE)                       \
    X(EF_CAST, "cast", 1, EF_UNARY, EF_ATTR_DTYPE)                    \
    X(EF_ADD, "add", 2, EF_BINARY, EF_ATTR_NONE)                      \
    X(EF_SUB, "sub", 2, EF_BINARY, EF_ATTR_NONE)                      \
    X(EF_MUL, "mul", 2, EF_BINARY, EF_ATTR_NONE)                      \
    X(EF_DIV, "div", 2, EF_BINARY, EF_ATTR_NONE)                      \
    X(EF_POW, "pow", 2, EF_BINARY, EF_ATTR_NONE)                      \
    X(EF_MOD, "mod", 2, EF_BINARY, EF_ATTR_NONE)                      \
    X(EF_FLOORDIV, "floordiv", 2, EF_BINARY, EF_ATTR_NONE)            \
    X(EF_MAX, "max", 2, EF_BINARY, EF_ATTR_NONE)                      \
    X(EF_MIN, "min", 2, EF_BINARY, EF_ATTR_NONE)                      \
    X(EF_LT, "lt", 2, EF_BINARY, EF_ATTR_NONE)                        \
    X(EF_LE, "le", 2, EF_BINARY, EF_ATTR_NONE)                        \
    X(EF_GT, "gt", 2, EF_BINARY, EF_ATTR_NONE)                        \
    X(EF_GE, "ge", 2, EF_BINARY, EF_ATTR_NONE)                        \
    X(EF_EQ, "eq", 2, EF_BINARY, EF_ATTR_NONE)                        \
    X(EF_NE, "ne", 2, EF_BINARY, EF_ATTR_NONE)                        \
    X(EF_AND, "and", 2, EF_BINARY, EF_ATTR_NONE)                      \
    X(EF_OR, "or", 2, EF_BINARY, EF_ATTR_NONE)                        \
    X(EF_SELECT, "select", 3, EF_TERNARY, EF_ATTR_NONE)               \
    X(EF_MATMUL, "matmul", 2, EF_CONTRACTION, EF_ATTR_NONE)           \
    X(EF_TILE_MATMUL, "tile_matmul", 2, EF_CONTRACTION, EF_ATTR_NONE) \
    X(EF_REDUCE, "reduce", 1, EF_REDUCTION, EF_ATTR_REDUCE)           \
    X(EF_REDUCE_P, "reduce_p", 1, EF_REDUCTION, EF_ATTR_REDUCE_P)     \
    X(EF_RESHAPE, "reshape", 1, EF_SHAPE, EF_ATTR_DIMS)               \
    X(EF_TRANSPOSE, "transpose", 1, EF_SHAPE, EF_ATTR_PERM)           \
    X(EF_SLICE, "slice", 1, EF_SHAPE, EF_ATTR_SLICE)                  \
    X(EF_CONCAT, "concat", -1, EF_SHAPE, EF_ATTR_INDEX)               \
    X(EF_BROADCAST, "broadcast", 1, EF_SHAPE, EF_ATTR_DIMS)           \
    X(EF_TUPLE, "tuple", -1, EF_TUPLING, EF_ATTR_NONE)                \
    X(EF_GET, "get", 1, EF_TUPLING, EF_ATTR_FIELD)                    \
    X(EF_VIEW, "view", 1, EF_PARALLEL, EF_ATTR_AXES)                  \
    X(EF_COMBINE, "combination", 1, EF_PARALLEL, EF_ATTR_AXES)        \
    X(EF_COLLECT, "collection", 1, EF_PARALLEL, EF_ATTR_AXIS)

typedef enum {
#define EF_OP_ENUM(e, text, arity, class, attr) e,
    EF_OPS(EF_OP_ENUM)
#undef EF_OP_ENUM
        EF_OP_COUNT
} ef_op;

typedef struct {
    const char *name;
    int arity;
    ef_op_class class;
    ef_attr_kind attr;
} ef_op_info;

extern const ef_op_info ef_ops[EF_OP_COUNT];

/* The operator with this text name, or EF_OP_COUNT. */
ef_op ef_op_named(const char *name, unsigned length);
/* Unary, binary and ternary pointwise operators. */
bool ef_op_pointwise(ef_op op);
/* op(a, b) = op(b, a): operand order is canonicalised by the e-graph instead of by a rule. */
bool ef_op_commutative(ef_op op);
/* The value of a pointwise operator on doubles (the meaning of the operator; booleans are 0 and 1). `attr` matters for
 * cast only: to bool gives 0/1, to an integer truncates, to a float is the identity (arithmetic is over the reals).
 * What depends on types is the evaluator's: mod and floordiv of integers by 0 are 0. */
double ef_op_apply(ef_op op, uint64_t attr, const double *x);

/* Attribute packing. */
#define EF_FIRST 255u /* in EF_ATTR_REDUCE: the leading dimension, which a collection made; reducing it removes it */
uint64_t ef_attr_number(double value);
double ef_attr_to_number(uint64_t attr);
#define ef_attr_reduce(reducer, index_or_axis) \
    ((uint64_t)(uint32_t)(reducer) | (uint64_t)(uint32_t)(index_or_axis) << 32)
#define ef_attr_reducer(attr) ((uint32_t)(attr))
#define ef_attr_reduce_at(attr) ((uint32_t)((attr) >> 32))
#define ef_attr_slice(index, start, stop) ((uint64_t)(index) | (uint64_t)(start) << 8 | (uint64_t)(stop) << 36)
#define ef_slice_index(attr) ((uint32_t)((attr) & 255u))
#define ef_slice_start(attr) ((uint32_t)((attr) >> 8 & 0xfffffffu))
#define ef_slice_stop(attr) ((uint32_t)((attr) >> 36 & 0xfffffffu))
#define EF_SLICE_LIMIT 0xfffffffu
#define ef_perm_at(attr, i) ((uint32_t)((attr) >> (4u * (i)) & 15u))

#endif
