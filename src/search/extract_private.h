/* The parts of extraction, private to extract*.c (see extract.h for what a candidate is).
 *
 *   extract_slots.c    slots, and the e-nodes that may fill them
 *   extract_cones.c    pointwise expressions of a slot: one for every set of values that it can be computed from
 *   extract_exclude.c  stored values that no program has both of
 *   extract_forms.c    canonical forms: what ~ compares
 *   extract_cost.c     what a kernel loads, computes and holds; dominance
 *   extract_loops.c    independent reductions run in one loop
 *   extract_kernel_conditions.c, extract_program_conditions.c
 *                      what is no kernel of a candidate, and no candidate
 *   extract_kernels.c  Algorithm 1 inside of one kernel
 *   extract_compose.c  Algorithm 1 over stored values: programs from kernels
 *   extract_emit.c     expressions from picks
 *   extract.c          the public function, budgets
 *
 * A SLOT is an e-class in one of three roles: a STORED tensor, the ROOT of a kernel (computed, not loaded), or a value
 * in a kernel's BODY. A program picks an option for every stored slot that it needs, and, in each kernel by itself, a
 * way for every slot of the kernel. */
#ifndef EF_SEARCH_EXTRACT_PRIVATE_H
#define EF_SEARCH_EXTRACT_PRIVATE_H

#include "search/extract.h"

typedef uint32_t ef_slot_id;

typedef enum { EF_SLOT_STORED, EF_SLOT_ROOT, EF_SLOT_BODY } ef_slot_role;

/* How an e-node fills a slot. */
typedef enum {
    EF_OPTION_LEAF,      /* an input, a constant, positions */
    EF_OPTION_MOVES,     /* stored: the elements of stored tensors at other places, or a field */
    EF_OPTION_KERNEL,    /* stored: what a kernel computes, its root slot */
    EF_OPTION_LOADS,     /* body: a view of a stored slot */
    EF_OPTION_POINTWISE, /* body, root: pointwise, or a view that only replicates what the kernel computed */
    EF_OPTION_COMPUTES   /* body, root: any other operator */
} ef_option_kind;

/* `node` is EF_NONE for a kernel without a grid, whose tensor is the root itself, and for a load without a view. */
typedef struct {
    ef_option_kind kind;
    ef_id node;
    double cost;           /* optimistic, microseconds, of this node alone */
    uint32_t first, count; /* its child slots, in `child` */
} ef_option;

/* A pointwise expression: an option whose operands are slots or further cones. */
#define EF_CONE_LEAVES 64
#define EF_CONE_OPERANDS 3
typedef struct {
    ef_slot_id slot;
    uint32_t option;
    uint32_t inner[EF_CONE_OPERANDS]; /* cone of each operand, EF_NONE: the operand is a leaf */
    double cost;
    uint32_t leaves;
    ef_slot_id leaf[EF_CONE_LEAVES]; /* sorted */
} ef_cone;

/* Reductions side by side as one loop: the loops that are its parts, as (slot, way), and what the slots of the fused
 * kernel are picked to be. */
#define EF_FUSION_PARTS EF_MAX_LEAVES
#define EF_FUSION_PICKS (4 * EF_MAX_LEAVES)
typedef struct {
    ef_axis axis;
    uint32_t parts, picks;
    uint32_t part[EF_FUSION_PARTS][2], pick[EF_FUSION_PICKS][2];
} ef_fusion;

/* A slot that may use a tuple: as a whole, or a field of it. */
typedef struct {
    ef_slot_id slot;
    uint32_t option;
    unsigned use; /* EF_USED_… */
} ef_user;
#define EF_USED_WHOLE 1u
#define EF_USED_FIELD(i) (2u << (i))

/* What a body slot may be picked to be: an option, or a cone. */
typedef struct {
    uint32_t option, cone; /* one of them is EF_NONE */
    double cost;
    uint32_t first, count; /* the slots that it needs, in `child` */
} ef_way;

typedef struct {
    ef_id class;
    ef_slot_role role;
    uint32_t first, count;      /* its options */
    uint32_t first_way, ways;   /* body and root slots */
    uint32_t all_ways;          /* with those that are no choice, after the others: see extract_loops.c */
    uint32_t first_user, users; /* tuples in a body */
    uint32_t stored;            /* stored: its number among those that kernels may fill; EF_NONE: none fills it */
    bool given;                 /* stored: an input, maybe with its elements moved; its first option says how */
    double distinct;            /* stored: the part of its elements that memory has; 0: not known yet */
    double least;               /* optimistic cost of the cheapest way to fill it and what it needs */
} ef_eslot;

typedef enum { EF_FORM_ATOM, EF_FORM_PRODUCT, EF_FORM_SUM } ef_form_kind;

/* A canonical form: products and sums are flat, sums of the hashes of members and of inverse members. */
typedef struct {
    ef_form_kind kind;
    uint64_t over[2], under[2];
} ef_form;

/* What a kernel costs whatever its schedule, at small tiles and at large ones. */
#define EF_NOMINAL_TILES 2
typedef struct {
    double loads[EF_NOMINAL_TILES]; /* bytes, each pass of each block counts */
    double work[EF_NOMINAL_TILES];  /* microseconds of arithmetic */
    double held[EF_NOMINAL_TILES];  /* bytes of a block's largest tile */
    double share[EF_NOMINAL_TILES]; /* of one block in the kernel: the less, the more blocks run side by side */
} ef_measure;

/* A complete kernel body. */
typedef struct {
    ef_slot_id root;
    uint32_t picks;
    uint32_t *pick; /* (slot, way) pairs */
    uint32_t needs; /* stored slots that it loads, inputs not counted */
    ef_slot_id *need;
    uint64_t *loads;       /* bits: stored numbers that it loads */
    uint64_t *again;       /* bits: stored numbers whose values it computes although it could load them */
    uint64_t canon[2];     /* canonical form */
    uint64_t organisation; /* the same up to pointwise algebra */
    ef_measure measure;
    double cost;    /* optimistic, microseconds, with its launch */
    bool contracts; /* has a matmul */
    bool pointwise; /* has neither a matmul nor a reduction */
    bool output;    /* fills an output of the program */
    bool restores;  /* no candidate, see only_restores */
    bool direct;    /* loads a tensor without a view, being a kernel without a grid */
} ef_body;

/* What a program costs whatever its schedules: what its kernels do together, and one block of each after the other. */
typedef struct {
    double kernels;
    double loads[EF_NOMINAL_TILES], work[EF_NOMINAL_TILES];
    double block_loads[EF_NOMINAL_TILES], block_work[EF_NOMINAL_TILES];
    double held[EF_NOMINAL_TILES];
} ef_total;

/* A way to fill a stored slot in a program. */
typedef struct {
    uint32_t option, body; /* body: EF_NONE when no kernel fills it */
} ef_choice;

typedef struct {
    ef_choice *at;
    uint32_t count, capacity;
} ef_choice_list;

/* The kernels that may fill a stored slot: those that no other dominates. */
typedef struct {
    bool known;
    ef_choice_list best;
    ef_total least; /* in every figure the least of them */
    double cost;    /* of the cheapest */
} ef_kernel_set;

/* A partial program, or a partial kernel: picks, then holes in the order in which they appeared. */
typedef struct {
    double cost, bound;
    uint32_t step;   /* of the bound, in steps that mean the same */
    uint64_t serial; /* ties: first come, first served */
    uint32_t picks, holes;
    uint32_t *data; /* picks: (slot, way or choice) pairs; then holes */
} ef_partial;

/* A complete program: its choices are loaded when `partial` is. */
typedef struct {
    ef_partial partial;
    uint64_t canon[2];
    ef_total total;
} ef_complete;

typedef struct {
    EF_VEC(ef_partial) heap;
    uint64_t serial;
} ef_partials;

typedef struct {
    ef_search *search;
    ef_egraph *g;
    ef_ctx *ctx;
    const ef_extract_options *options;
    ef_rates rates;
    ef_scope scope;
    double start;
    EF_VEC(ef_eslot) slots;
    EF_VEC(ef_option) option_list;
    EF_VEC(ef_way) way_list;
    EF_VEC(ef_cone) cones;
    EF_VEC(ef_user) users;
    EF_VEC(ef_slot_id) child;
    ef_intern *slot_ids;
    uint32_t stored, stored_words; /* stored slots that kernels may fill */
    EF_VEC(ef_slot_id) stored_slot;
    uint64_t *reach; /* bit matrix: which slots a slot of a kernel can need in the kernel, itself included */
    uint32_t words;
    uint64_t *needs;    /* bit matrix by stored slot: which stored slots its kernels may load, directly or not */
    uint64_t *excludes; /* bit matrix by stored number: which two no program stores both */
    EF_VEC(ef_body) bodies;
    EF_VEC(ef_fusion) fusions;
    ef_intern *body_ids;
    ef_kernel_set *kernels; /* by stored slot */
    EF_VEC(ef_choice) choices;
    EF_VEC(ef_complete) complete; /* that no other dominates */
    ef_intern *choice_ids;
    ef_intern *seen, *delivered;      /* signatures: of partial kernels and programs; of complete programs */
    size_t bytes;                     /* of queued partial programs */
    double steps;                     /* bounds within 1 / steps of each other mean the same */
    bool cut;                         /* a limit ended something early */
    uint64_t kernel_cap, program_cap; /* states of one kernel, of programs, in this pass; 0: none */
    /* scratch, by slot */
    uint32_t *pick; /* way + 1 in kernels, choice + 1 in programs */
    ef_form *form;
    uint32_t *stamp, epoch; /* visited marks */
    uint32_t *demanded;     /* the option that a slot must become */
    ef_form *cone_form;     /* by cone */
    uint32_t *cone_stamp;
    EF_VEC(uint32_t) cones_under, cone_seen; /* ef_cones_under; by cone: when it was seen */
    uint32_t cone_epoch;
    ef_expr *cone_expr; /* by cone, of the emitter that made it (extract_emit.c) */
    uint32_t *cone_made, emitters;
    uint64_t *way_again;     /* by way: bits of the stored values that it computes although it could load them */
    ef_measure *way_measure; /* by way, in the kernel that is being enumerated: see ef_measure_begin */
    uint32_t *measured, measuring;
    ef_axes grid;
    ef_slot_id *stack;
    uint64_t *bits, *standing; /* two sets of stored numbers each: of a kernel, of a program */
    uint64_t *barren;          /* bits: slots that nothing can fill in the kernels at hand */
    uint64_t *open;            /* bits: slots that completions of the partial kernel at hand can refer to */
    ef_extraction *result;
} ef_extractor;

static inline uint64_t ef_mix(uint64_t h, uint64_t x)
{
    h = (h ^ x) * UINT64_C(0x9fb21c651e98df25);
    return h ^ (h >> 29);
}
static inline bool ef_bit(const uint64_t *bits, uint32_t i)
{
    return bits[i / 64] >> (i % 64) & 1;
}
static inline void ef_set_bit(uint64_t *bits, uint32_t i)
{
    bits[i / 64] |= UINT64_C(1) << (i % 64);
}
static inline const ef_option *ef_option_at(const ef_extractor *x, uint32_t option)
{
    return &x->option_list.at[option];
}
/* A tensor that is there: no choice to make. */
static inline bool ef_is_given(const ef_extractor *x, ef_slot_id stored)
{
    return x->slots.at[stored].given;
}
/* The operator of an option; EF_OP_COUNT where it has no e-node. */
static inline ef_op ef_option_op(const ef_extractor *x, const ef_option *o)
{
    return o->node == EF_NONE ? EF_OP_COUNT : (ef_op)x->g->op.at[o->node];
}
static inline bool ef_is_shape(ef_op op)
{
    return op < EF_OP_COUNT && ef_ops[op].class == EF_SHAPE;
}
static inline uint64_t ef_option_attr(const ef_extractor *x, const ef_option *o)
{
    return o->node == EF_NONE ? 0 : x->g->attr.at[o->node];
}
static inline ef_type ef_slot_type(const ef_extractor *x, ef_slot_id id)
{
    return ef_egraph_type(x->g, x->slots.at[id].class);
}
/* The way that a slot of the loaded kernel is picked to be, or NULL. */
static inline const ef_way *ef_picked(const ef_extractor *x, ef_slot_id id)
{
    return x->pick[id] ? &x->way_list.at[x->pick[id] - 1] : NULL;
}
/* Its option where that is one, and not a cone. */
static inline const ef_option *ef_picked_option(const ef_extractor *x, ef_slot_id id)
{
    const ef_way *w = ef_picked(x, id);
    return w && w->option != EF_NONE ? &x->option_list.at[w->option] : NULL;
}

/* extract_slots.c */
bool ef_tensor_level(ef_egraph *g, ef_id class);
ef_slot_id ef_slot_of(ef_extractor *x, ef_id class, ef_slot_role role);
void ef_slots_build(ef_extractor *x);

/* extract_cones.c: the cones that these are made of, they among them, each once, in x->cones_under: many share parts,
 * so that walking from operand to operand would take exponential time. */
void ef_cones_under(ef_extractor *x, const uint32_t *root, unsigned roots);
/* extract_cones.c: the ways of all body and root slots. */
void ef_cones_build(ef_extractor *x);

/* extract_forms.c, of the loaded kernel. A hole is an atom. */
void ef_form_hash(ef_form f, uint64_t out[2]);
ef_form ef_form_of_slot(ef_extractor *x, ef_slot_id id);
uint64_t ef_organisation_of_slot(ef_extractor *x, ef_slot_id id);

/* extract_cost.c */
double ef_option_cost(ef_extractor *x, const ef_option *o, ef_type type);
double ef_pointwise_work(ef_extractor *x, const ef_option *o, ef_type type);
/* Whether the operands and the result of a product may be tiles of a block: at tiles of 16 they fit into its room. */
bool ef_product_fits(ef_extractor *x, ef_id product);
/* Starts on the kernels of a root slot. */
void ef_measure_begin(ef_extractor *x, ef_slot_id root);
/* What picks, which are loaded, add up to; of a kernel that is not complete the least that it may come to. */
ef_measure ef_measure_picks(ef_extractor *x, const uint32_t *pick, uint32_t picks, bool complete);
/* Measure, cost and kind of a complete kernel, whose picks are loaded. */
void ef_body_measure(ef_extractor *x, ef_body *b);
void ef_total_add(ef_total *sum, const ef_measure *kernel);
/* Sums up two totals; the least of two. */
void ef_total_join(ef_total *sum, const ef_total *more);
void ef_total_least(ef_total *least, const ef_total *other);
/* Whether a program with total a makes every one with total b or more no candidate. */
bool ef_total_dominates(const ef_total *a, const ef_total *b);
/* Whether whatever measures b or more, and loads these or more, is no candidate because of a. */
bool ef_dominates(const ef_extractor *x, const ef_body *a, const ef_measure *b, const uint64_t *loads);
/* Whether b is no candidate because of a. */
bool ef_body_dominates(const ef_extractor *x, const ef_body *a, const ef_body *b);

/* extract_exclude.c */
void ef_exclusions_build(ef_extractor *x);
bool ef_same_shape(const ef_type_info *a, const ef_type_info *b);
bool ef_is_output(ef_extractor *x, ef_slot_id stored);

/* extract_loops.c */
void ef_loops_build(ef_extractor *x);
bool ef_is_product_loop(const ef_extractor *x, const ef_option *o);
/* Fuses the loops of the loaded, complete kernel in all ways that leave nothing to fuse; calls `found` for each, with
 * its picks loaded. */
void ef_loops_fuse(ef_extractor *x, ef_slot_id root, void (*found)(ef_extractor *x, ef_slot_id root, void *user),
                   void *user);

/* extract_kernels.c: the kernels that may fill a stored slot, into `out`. In mode `early` they are found once;
 * otherwise each call enumerates all of them anew, once for every way in which they are reached, dominated ones as
 * well. */
void ef_kernels_of(ef_extractor *x, ef_slot_id stored, ef_choice_list *out);
void ef_load_picks(ef_extractor *x, const uint32_t *pick, uint32_t picks);
void ef_clear_picks(ef_extractor *x, const uint32_t *pick, uint32_t picks);

/* extract_kernel_conditions.c, of the loaded kernel. */
/* Fills x->way_again. */
void ef_find_again(ef_extractor *x);
/* What it loads, and what it computes although it could load it. */
void ef_find_loads(ef_extractor *x, const uint32_t *pick, uint32_t picks, uint64_t *loads, uint64_t *again);
bool ef_kernel_contradicts(const ef_extractor *x, uint32_t own, const uint64_t *loads, const uint64_t *again);
bool ef_respells(ef_extractor *x, const ef_partial *p);
/* Fills x->barren for the kernels of a stored number: the slots under their root that nothing can fill. */
void ef_find_barren(ef_extractor *x, ef_slot_id root, uint32_t own);
bool ef_way_is_barren(const ef_extractor *x, uint32_t own, uint32_t way);
/* A reduction of a dimension so small that it costs next to nothing where its operand is at hand. */
bool ef_is_small_reduction(const ef_extractor *x, const ef_option *o);
/* Whether it is one of a dimension that one of the axes cuts: each block then computes what only one has to. */
bool ef_is_cut_reduction(const ef_extractor *x, const ef_option *o, ef_axes axes);
/* Whether the kernel loads what another one stores although it is a small reduction of what is at hand. */
bool ef_loads_small_reduction(ef_extractor *x, const ef_partial *p);
bool ef_wastes_fusion(ef_extractor *x, const ef_partial *p);
bool ef_is_loaded(const ef_extractor *x, ef_slot_id id);
/* How its picks use a tuple: EF_USED_…. */
unsigned ef_uses_now(const ef_extractor *x, const ef_partial *p, ef_slot_id tuple);

/* extract_program_conditions.c, of the partial program whose choices are loaded. */
/* What the kernels of a partial program store, and what no further kernel may store, and what none may load. */
typedef struct {
    uint64_t *stored, *barred;
} ef_standing;
const ef_choice *ef_chosen(const ef_extractor *x, ef_slot_id id);
const ef_slot_id *ef_needs_of(const ef_extractor *x, const ef_choice *c, uint32_t *count);
const ef_body *ef_body_of(const ef_extractor *x, const ef_partial *p, uint32_t i); /* of pick i */
ef_standing ef_stand(ef_extractor *x, const ef_partial *p);
bool ef_program_contradicts(const ef_extractor *x, ef_standing s, ef_slot_id hole, const ef_body *b);
bool ef_is_pointless(ef_extractor *x, const ef_partial *p, uint32_t i); /* what pick i stores */
/* Whether what pick i moves is moved by two choices although one would do. */
bool ef_makes_detour(const ef_extractor *x, const ef_partial *p, uint32_t i);
bool ef_splits_gridless(ef_extractor *x, const ef_partial *p);

/* extract_compose.c */
void ef_compose(ef_extractor *x);

/* extract_queue.c: best first. */
void ef_queue_push(ef_extractor *x, ef_partials *q, ef_partial p);
ef_partial ef_queue_pop(ef_extractor *x, ef_partials *q);
void ef_queue_free(ef_extractor *x, ef_partials *q);

/* extract_emit.c: the program of a complete set of choices (x->pick holds choices). */
ef_expr ef_emit_stored(ef_extractor *x, ef_slot_id id, ef_expr *memo);
void ef_keep_original(ef_extractor *x);

double ef_time_limit(const ef_extractor *x); /* seconds */
bool ef_out_of_budget(const ef_extractor *x);

#endif
