/* The e-graph (Willsey et al., "egg", POPL 2021; design, section 5).
 *
 * Ids are 32-bit. An id names an e-node and, through the union-find, the e-class that the node is in; the class's own
 * data sit at its root id. Storage is one array per field. Nodes are hash-consed over their canonical children; the
 * operands of commutative operators are kept sorted, so operand order never makes two nodes. Congruence is restored
 * by ef_egraph_rebuild after a batch of unions (deferred rebuilding).
 *
 * The e-class analysis is the type, and the value of a constant expression. A union of two types is a bug of a rule:
 * it is refused, and reported with both terms and the rule's name (g->error); so is one of two constants.
 *
 * Every union is justified by congruence or by a rule application, which explain.c turns into a chain of terms. For
 * this each node keeps the children it was created with. */
#ifndef EF_EGRAPH_EGRAPH_H
#define EF_EGRAPH_EGRAPH_H

#include <math.h>

#include "egraph/unionfind.h"
#include "ir/expr.h"
#include "support/hash.h"

typedef uint32_t ef_id;

#define EF_MAX_CHILDREN 16
#define EF_TOUCH_DEPTH 5 /* the deepest pattern that incremental matching follows */

/* Why two nodes are equal. */
#define EF_BY_CONGRUENCE 0u /* else 1 + index of an application record */

typedef struct {
    ef_id to;             /* neighbour in the proof forest, EF_NONE at a root */
    uint32_t why;         /* EF_BY_CONGRUENCE or application + 1 */
    uint32_t forward : 1, /* the application rewrites from this node to `to` */
        when : 31;        /* unions before this one: what justifies an edge is older than the edge */
} ef_proof_edge;

/* One application of a rule: the nodes that its left side matched and those that its right side became, in the
 * pattern's own order. */
typedef struct {
    uint32_t rule, ids; /* first id in the pool */
    uint16_t left, right;
    uint32_t swaps; /* bit i: left position i matched with its operands exchanged */
} ef_application;

typedef struct ef_egraph {
    ef_ctx *ctx;
    ef_unionfind uf;
    /* per node */
    EF_VEC(uint16_t) op;
    EF_VEC(uint8_t) arity;
    EF_VEC(uint64_t) attr;
    EF_VEC(uint32_t) first_child; /* in `child` and `origin` */
    EF_VEC(uint8_t) dead;         /* not 0: became equal to another node of its class (EF_DEAD), or is set aside */
    EF_VEC(uint64_t) hash;
    EF_VEC(ef_id) next_in_class;
    EF_VEC(ef_proof_edge) proof;
    EF_VEC(ef_id) child;  /* canonical as of the last rebuild */
    EF_VEC(ef_id) origin; /* as created */
    /* per class, at the root */
    EF_VEC(ef_type) type;
    EF_VEC(uint64_t) operators;                 /* bit o: some node of the class has operator o */
    EF_VEC(ef_id) last_in_class;                /* list head is the root node itself */
    EF_VEC(uint32_t) first_parent, last_parent; /* into `parent`, EF_NONE when empty */
    EF_VEC(uint32_t) parents;                   /* length of that list */
    EF_VEC(double) constant;                    /* meaningful where is_constant */
    EF_VEC(uint8_t) is_constant;
    EF_VEC(uint32_t) touched[EF_TOUCH_DEPTH]; /* last tick at which something within this depth changed */
    struct {
        struct {
            ef_id node;
            uint32_t next;
        } *at;
        uint32_t count, capacity;
    } parent;
    /* whole graph */
    EF_VEC(ef_id) by_op[EF_OP_COUNT]; /* nodes of each operator in order of creation, dead ones included */
    uint32_t *slot, mask, used;       /* hash-cons table: node + 1 */
    EF_VEC(uint32_t) dirty;           /* pairs (first, last) of parent entries to repair: those of classes that lost */
    EF_VEC(ef_id) constants;          /* classes that became constants: their parents are to be folded */
    EF_VEC(ef_id) changed;            /* classes that changed since the last ef_egraph_tick */
    EF_VEC(ef_application) applications;
    EF_VEC(ef_id) application_ids;
    EF_VEC(ef_type) type_cache_value;
    ef_intern *type_cache; /* (op, attr, child types) -> index into type_cache_value */
    uint32_t tick, live, classes, unions;
    ef_diag error;
    const char *(*rule_name)(void *user, uint32_t rule); /* for messages */
    void *rule_user;
} ef_egraph;

ef_egraph *ef_egraph_new(ef_ctx *ctx);
void ef_egraph_free(ef_egraph *g);

static inline ef_id ef_find(ef_egraph *g, ef_id id)
{
    return ef_uf_find(&g->uf, id);
}

/* Adds a node (or finds it). EF_NONE when it is ill-typed. Views must be canonical: use ef_egraph_view. */
ef_id ef_egraph_add(ef_egraph *g, ef_op op, uint64_t attr, const ef_id *children, unsigned count);
/* The node if it is there already, else EF_NONE; adds nothing. */
ef_id ef_egraph_lookup(ef_egraph *g, ef_op op, uint64_t attr, const ef_id *children, unsigned count);
/* A view in canonical form (see ef_dag_view): at most two nodes. Views of view nodes are merged by a rule. */
ef_id ef_egraph_view(ef_egraph *g, ef_axes axes, ef_id x);
/* Adds a whole expression; EF_NONE only when memory of ids is out. */
ef_id ef_egraph_add_expr(ef_egraph *g, const ef_dag *dag, ef_expr e);
/* Finds a whole expression; EF_NONE when some node of it is not in the graph. */
ef_id ef_egraph_find_expr(ef_egraph *g, const ef_dag *dag, ef_expr e);
/* The type of op[attr] over these child types (cached ef_infer), 0 when ill-typed. */
ef_type ef_egraph_infer(ef_egraph *g, ef_op op, uint64_t attr, const ef_type *types, unsigned count);

/* Makes two classes one. `application` is EF_NONE for none recorded (then the union cannot be explained), else an index
 * into applications. Returns whether they were different; types that differ are an error (see g->error). */
bool ef_egraph_union(ef_egraph *g, ef_id a, ef_id b, uint32_t application);
uint32_t ef_egraph_record(ef_egraph *g, uint32_t rule, const ef_id *left, unsigned left_count, const ef_id *right,
                          unsigned right_count, uint32_t swaps);
/* Restores congruence. Returns the number of unions that it made. */
uint32_t ef_egraph_rebuild(ef_egraph *g);
/* Starts a new tick: what changed since the last one is propagated to `touched`. */
void ef_egraph_tick(ef_egraph *g);

static inline ef_type ef_egraph_type(ef_egraph *g, ef_id id)
{
    return g->type.at[ef_find(g, id)];
}
/* Whether two values of one constant are equal up to rounding: (0.1 * 0.2) * 0.3 is 0.1 * (0.2 * 0.3). */
static inline bool ef_constants_agree(double a, double b)
{
    return a == b || (isnan(a) && isnan(b)) || (isfinite(a) && fabs(a - b) <= 1e-9 * fmax(fabs(a), fabs(b)));
}
/* Whether the class is a constant, and its value. */
bool ef_egraph_constant(ef_egraph *g, ef_id id, double *value);
/* Bytes held. */
size_t ef_egraph_memory(const ef_egraph *g);

/* Sets a node aside: it stays what its terms are equal to, but nothing matches it, and nobody finds it in its class. A
 * class may have no other nodes. An equal node that is not set aside brings it back. */
#define EF_DEAD 1u
#define EF_ASIDE 2u
void ef_egraph_set_aside(ef_egraph *g, ef_id node);
/* Brings back all that were set aside; returns how many. */
uint32_t ef_egraph_bring_back(ef_egraph *g);

/* Iterates over the live nodes of a class: for (n = ef_class_first(g, id); n != EF_NONE; n = ef_class_next(g, n)). */
ef_id ef_class_first(ef_egraph *g, ef_id id);
ef_id ef_class_next(ef_egraph *g, ef_id node);
static inline const ef_id *ef_node_children(const ef_egraph *g, ef_id node)
{
    return g->child.at + g->first_child.at[node];
}
static inline const ef_id *ef_node_origins(const ef_egraph *g, ef_id node)
{
    return g->origin.at + g->first_child.at[node];
}
/* A live node of this operator in the class, or EF_NONE. */
ef_id ef_class_find(ef_egraph *g, ef_id id, ef_op op);

#endif
