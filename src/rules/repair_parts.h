/* The parts of repair synthesis, private to repair*.c (see repair.h): repair_depend.c finds how the consumer depends on
 * the producer, repair_image.c turns that into scalar terms, repair_check.c proves and tries them, repair_memory.c
 * remembers, and repair.c puts the fused reduction together. */
#ifndef EF_RULES_REPAIR_PARTS_H
#define EF_RULES_REPAIR_PARTS_H

#include "egraph/pattern.h"
#include "rules/memory.h"

#define EF_MAX_FREE 24 /* independent sub-terms of one f */

/* How a term depends on the producer's result s: not, a function of s alone, shifted or scaled by one. */
typedef enum { EF_INDEPENDENT, EF_ONLY, EF_SHIFT, EF_SCALE, EF_WAYS } ef_way;

typedef struct {
    ef_id class;
    bool has[EF_WAYS];
    ef_scalar term[EF_WAYS];     /* ONLY: the value; SHIFT: tau; SCALE: sigma; over parameters s */
    ef_id node[EF_WAYS];         /* the e-node that shows it */
    uint8_t operand[EF_WAYS][3]; /* which way of each operand it used */
} ef_dependence;

/* Numbers by class that are forgotten all at once. */
typedef struct {
    EF_VEC(uint32_t) stamp;
    EF_VEC(uint32_t) value;
    uint32_t now;
} ef_class_map;

typedef struct {
    const ef_scope *scope;
    ef_egraph *g;
    ef_ctx *ctx;
    ef_axis axis;
    ef_axes axes; /* {axis} */
    ef_reducer producer, consumer;
    ef_id leaf[EF_MAX_LEAVES], local[EF_MAX_LEAVES]; /* the producer's results outside p; its local values inside */
    unsigned leaves;
    EF_VEC(ef_dependence) known;
    ef_rule_memory *memory;
    /* scalar image of f and of the producer's operands */
    ef_dag *dag;
    ef_id free_class[EF_MAX_FREE];
    unsigned free_count;
    bool expand; /* the image opens independent sub-terms down to the free inputs that the producer's operand reads */
} ef_synthesis;

/* One leaf of the consumer. */
typedef struct {
    ef_reducer base;
    ef_scalar h;
    ef_expr fs, ft;  /* f(x, s), f(x, t) as scalars */
    ef_scalar scale; /* what h divides by, where f scales */
} ef_consumer_leaf;

/* The scalar images of the producer's operands and of f over common inputs, of which f opens the terms that the
 * operands read. */
typedef struct {
    ef_expr operand[EF_MAX_LEAVES], f;
} ef_joint_image;

/* Values of the inputs of an image: x by index, s (or t) by index. */
typedef struct {
    double x[EF_MAX_FREE], s[EF_MAX_LEAVES];
} ef_point;

typedef enum { EF_ANY_SIGN, EF_NEVER_NEGATIVE, EF_POSITIVE } ef_sign;

/* repair_depend.c. How a class depends on the producer's result; all its e-nodes are looked at, in order. */
const ef_dependence *ef_repair_depends(ef_synthesis *y, ef_id class);
/* f(x, g): the class with the producer's local values in the place of its results, seen one way; EF_NONE when some node
 * of it would be ill-typed. */
ef_id ef_repair_rebuild(ef_synthesis *y, ef_id class, ef_way w);
bool ef_repair_literal(ef_synthesis *y, ef_id class, double *value);
/* Whether a node reduces or contracts the dimension that p cuts. */
bool ef_repair_reduces(const ef_egraph *g, ef_axis axis, ef_id n);
/* Whether a closed function of s is above 0 wherever it is defined. */
bool ef_repair_positive(ef_synthesis *y, ef_scalar sigma);

/* repair_image.c. One element's view of f, EF_NONE when it has too many inputs. */
ef_expr ef_repair_image(ef_synthesis *y, ef_id class, ef_way w, const ef_expr *s);
bool ef_repair_image_jointly(ef_synthesis *y, ef_id consumer, ef_way used, ef_joint_image *j);
double ef_repair_value(const ef_synthesis *y, ef_expr e, const ef_point *p);
void ef_repair_inputs(ef_synthesis *y, ef_expr *s, ef_expr *t);

/* repair_check.c. Conditions (a) and (b) by the e-graph, and (a) and (c) at random points. */
bool ef_repair_proved(ef_synthesis *y, const ef_consumer_leaf *leaf);
bool ef_repair_checked(ef_synthesis *y, const ef_consumer_leaf *leaf);
/* The sign of a closed function of the producer's leaves, once each has seen something. */
ef_sign ef_repair_sign(const ef_synthesis *y, const ef_joint_image *j, const ef_reducer *base, ef_scalar term);
/* Whether f is the consumer's identity wherever the producer's operand is its identity, once that leaf has seen
 * something, and the same whatever the other leaves are as long as it has not. */
bool ef_repair_identities(const ef_synthesis *y, const ef_joint_image *j, unsigned which, ef_reducer base,
                          ef_reducer consumer_base);
/* Whether f with local values is finite wherever it is finite with those of the end. */
bool ef_repair_finite(const ef_synthesis *y, const ef_joint_image *j, const ef_reducer *base, ef_scalar h);

/* repair_memory.c. */
struct ef_rule_memory {
    ef_intern *lemmas; /* what was asked of the prover … */
    EF_VEC(uint8_t) lemma_holds;
    EF_VEC(uint32_t) simplified; /* pairs (scalar term, its simplest form) */
    ef_intern *matches;          /* pairs that were tried … */
    struct {
        struct ef_refusal *at; /* … and how that went */
        uint32_t count, capacity;
    } refusals;
    ef_class_map known;     /* in a synthesis: 1 + where a class stands among the dependences */
    ef_class_map looked;    /* … and which classes it has looked at */
    EF_VEC(ef_id) visited;  /* … listed */
    struct ef_cones *cones; /* by axis: the classes whose computation reduces the dimension that it cuts */
};

void ef_class_map_clear(ef_class_map *map, ef_egraph *g);
static inline uint32_t ef_class_map_get(const ef_class_map *map, ef_id class) /* 0: none */
{
    return class < map->stamp.count && map->stamp.at[class] == map->now ? map->value.at[class] : 0;
}
void ef_class_map_set(ef_class_map *map, ef_egraph *g, ef_id class, uint32_t value);

/* Notes that the outcome depends on the nodes of this class. */
void ef_repair_look(ef_synthesis *y, ef_id class);
/* Whether the computation of a class outside of p's scope uses the producer's result, or another reduction of the same
 * dimension: such a value is complete only after a pass of its own over p. */
bool ef_repair_whole_pass(ef_synthesis *y, ef_id class);
/* Whether the match was refused before and would be again, since nothing changed that the refusal depended on. */
bool ef_repair_refused(ef_synthesis *y, const ef_match *match);
/* Says that it was refused, on account of what was looked at since the synthesis began; `shapeless` when some field of
 * a tuple could not be looked at. */
void ef_repair_refuse(ef_synthesis *y, const ef_match *match, bool shapeless);
void ef_repair_begin(ef_synthesis *y);

#endif
