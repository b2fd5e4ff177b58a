/* Rules as data, and matching them in an e-graph (de Moura and Bjørner, "Efficient E-matching", CADE 2007).
 *
 * A pattern is an array of nodes in pre-order, so a parent stands before its children and matching is one walk over
 * the array with backtracking. Attributes match slot by slot (reduce has two: reducer and dimension). Where a variable
 * occurs first it binds; everywhere else it compares; both are known when the rule is compiled. */
#ifndef EF_EGRAPH_PATTERN_H
#define EF_EGRAPH_PATTERN_H

#include "egraph/egraph.h"

#define EF_PATTERN_NODES 32
#define EF_PATTERN_VARS 10
#define EF_PATTERN_ATTRS 10
#define EF_PATTERN_OPS 3
#define EF_PATTERN_CHILDREN 4
#define EF_RULE_CONDITIONS 8
#define EF_CONDITION_ARGS 4
#define EF_ATTR_TERMS 16

typedef enum { EF_PAT_VAR, EF_PAT_OP, EF_PAT_ANYOP, EF_PAT_NUMBER } ef_pattern_kind;
typedef enum { EF_SLOT_VALUE, EF_SLOT_VAR, EF_SLOT_TERM } ef_slot_kind;

typedef struct {
    ef_slot_kind kind;
    bool binds;     /* VAR: first occurrence */
    uint32_t value; /* VALUE: the value; VAR: attribute variable; TERM: attribute term */
} ef_slot;

typedef struct {
    ef_pattern_kind kind;
    bool binds;        /* VAR, ANYOP: first occurrence */
    ef_op op;          /* OP */
    uint8_t index;     /* VAR: variable; ANYOP: operator variable */
    ef_op_class class; /* ANYOP: which operators */
    double number;     /* NUMBER */
    uint8_t slots, children;
    ef_slot slot[2];
    uint8_t child[EF_PATTERN_CHILDREN];
} ef_pattern_node;

typedef struct {
    uint8_t count;
    ef_pattern_node node[EF_PATTERN_NODES];
} ef_pattern;

/* Computed attributes of a right side. */
typedef enum { EF_TERM_SET, EF_TERM_UNION, EF_TERM_MINUS, EF_TERM_PRODUCT } ef_attr_term_kind;
typedef struct {
    ef_attr_term_kind kind; /* {a}, a + b, a - b: sets of axes; product(a, b): reducers */
    ef_slot a, b;
} ef_attr_term;

/* What a condition sees of an argument. */
typedef struct {
    ef_type type;  /* of a variable or of the root; 0 for attributes and numbers */
    ef_id id;      /* e-class; EF_NONE outside of an e-graph */
    uint64_t attr; /* attribute or number */
    bool constant; /* the variable is a literal */
    double value;
} ef_condition_arg;

typedef struct {
    ef_ctx *ctx;
    ef_egraph *graph; /* NULL outside of an e-graph: then policies hold */
    void *policy;     /* the search's state (src/search), NULL without */
} ef_scope;

/* True when the condition holds; `out` receives the value of a binding condition. */
typedef bool ef_condition_function(const ef_scope *scope, const ef_condition_arg *args, unsigned count, uint64_t *out);
typedef ef_condition_function *ef_condition_fn;

typedef enum { EF_ARG_VAR, EF_ARG_ATTR, EF_ARG_ROOT, EF_ARG_NUMBER } ef_arg_kind;
typedef struct {
    const char *name;
    ef_condition_fn fn;
    uint8_t args;
    struct {
        ef_arg_kind kind;
        uint8_t index;
        uint64_t number;
    } arg[EF_CONDITION_ARGS];
    int8_t binds; /* attribute variable that receives the result, -1 for none */
    bool policy;  /* where the search applies the rule, not when it is true */
} ef_condition;

typedef struct ef_match {
    ef_id var[EF_PATTERN_VARS];
    uint64_t attr[EF_PATTERN_ATTRS];
    struct {
        ef_op op;
        uint64_t attr;
    } op[EF_PATTERN_OPS];
    ef_id node[EF_PATTERN_NODES]; /* the e-node at each operator position of the left side */
    ef_id root;
    uint32_t swaps;
} ef_match;

struct ef_rule;
/* A right side that needs more than a pattern (repair): builds it and returns its class, or EF_NONE for no match. */
typedef ef_id (*ef_builder_fn)(const ef_scope *scope, const struct ef_rule *rule, const ef_match *match);

typedef struct ef_rule {
    const char *name, *group, *text;
    ef_pattern left, right;
    ef_builder_fn builder; /* instead of `right` */
    uint8_t vars, attrs, ops, terms, conditions;
    ef_attr_term term[EF_ATTR_TERMS];
    ef_condition condition[EF_RULE_CONDITIONS];
    bool same_type; /* applies only where both sides have one type: part of the rule's meaning, checked before adding */
    uint8_t depth;  /* levels of classes that a match depends on, variables that conditions read included */
    bool deep;      /* its applicability depends on nodes far below the left side: matched anew in every iteration */
} ef_rule;

/* Calls `yield` for every match below the nodes of the root operator whose class was touched at or after `since`
 * (0: all). Stops early, and returns false, when yield returns false, the clock (ef_seconds) passes `deadline` (0:
 * none) or this thread is interrupted, since a search may be long without finding anything. */
typedef bool (*ef_yield_fn)(void *user, const ef_match *match);
bool ef_pattern_search(const ef_scope *scope, const ef_rule *rule, uint32_t since, double deadline, ef_yield_fn yield,
                       void *user);

/* Applies a match. Returns 1 when two classes became one, 0 when nothing was new, -1 when the right side is ill-typed
 * here (then nothing is added). The policy's conditions are asked once more, since an earlier match of the batch may
 * have met what they wait for (then the result is 0). `rule_index` is what the application record names. */
int ef_rule_apply(const ef_scope *scope, const ef_rule *rule, uint32_t rule_index, const ef_match *match);

/* The attribute word of a pattern node from its slots under a match; and the slot count of an operator. */
uint64_t ef_pattern_attr(ef_ctx *ctx, const ef_rule *rule, const ef_pattern_node *node, ef_op op,
                         const uint64_t *attrs);
/* Splits an attribute into the slots of its operator. */
unsigned ef_attr_slots(ef_op op, uint64_t attr, uint64_t slot[2]);
/* Evaluates one condition over prepared arguments, binding its result into `attrs`. */
bool ef_condition_holds(const ef_scope *scope, const ef_condition *condition, const ef_condition_arg *vars,
                        const ef_condition_arg *root, uint64_t *attrs);

#endif
