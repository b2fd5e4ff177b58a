/* Kernel graphs: what code generators print (paper, section 6.1; design, section 7).
 *
 * A program whose values are tiled expressions is cut into kernels at combination and collection. Each kernel runs its
 * body once for every coordinate of its GRID; parallel reductions inside it are LOOPS with carried state. Both are
 * iterators: an iterator walks along one parallel axis, and the coordinate that it is at says which part of a cut
 * dimension a value holds.
 *
 * The body is a graph of typed nodes, much like an expression, with three differences. Parallel state is gone: each
 * dimension says by which iterator it is cut, if any. Reducers are gone: a loop has a state, and the new state is an
 * ordinary node over the old one. And what is stored is a buffer. A node belongs to the innermost loop that it depends
 * on, so values that do not change in a loop stand before it; equal nodes are one node.
 *
 * Extents of tiles are not here: they are the schedule (schedule.h). */
#ifndef EF_KERNEL_KERNEL_H
#define EF_KERNEL_KERNEL_H

#include "ir/expr.h"
#include "support/hash.h"
#include "support/vec.h"

typedef uint32_t ef_kid; /* a node of a kernel; operands have smaller ids */

#define EF_K_MAX_LOOPS 64u
#define EF_K_MAX_LEADS 2u
#define EF_K_MAX_KERNELS 4096u

/* Operators of nodes: those of the IR (ef_op) that compute or move data, and these. */
enum {
    EF_K_BUFFER = EF_OP_COUNT, /* a stored tensor, whole; attr: buffer */
    EF_K_PICK,   /* the operand without its leading dimension, at an iterator's position; attr: iterator */
    EF_K_STATE,  /* the state of a loop when an iteration begins; attr: loop << 8 | leaf */
    EF_K_LOOP,   /* a loop as a whole: where it stands among the nodes; attr: loop */
    EF_K_RESULT, /* the state after the loop; operand: the loop; attr: as for a state */
    EF_K_OP_COUNT
};
#define ef_k_loop_of(attr) ((uint32_t)((attr) >> 8))
#define ef_k_leaf_of(attr) ((uint32_t)((attr) & 255u))

/* A dimension, and the iterator that cuts it along its first variable (EF_NONE: whole). */
typedef struct {
    ef_dim dim;
    uint32_t cut;
} ef_kdim;

typedef struct {
    uint32_t op; /* ef_op or EF_K_… */
    uint8_t dtype, rank, count, unused;
    uint64_t attr;
    ef_kid child[EF_MAX_FIELDS];
    ef_kdim dim[EF_MAX_RANK]; /* dim[0] is the LAST dimension, as in types */
    uint64_t loops;           /* the loops that it depends on, one bit each */
} ef_knode;

typedef enum { EF_ITER_GRID, EF_ITER_LOOP, EF_ITER_PICK } ef_iter_kind;

typedef struct {
    ef_iter_kind kind;
    ef_axis axis;   /* GRID, LOOP: the axis whose coordinates it takes */
    ef_dim count;   /* PICK: the dimension, made by a collection, whose positions it takes */
    uint32_t outer; /* the iterator whose block it divides; EF_NONE: the whole dimension */
    uint32_t param; /* the schedule parameter that is its tile extent; EF_NONE for PICK */
    uint32_t loop;  /* LOOP, PICK */
} ef_iter;

typedef struct {
    uint32_t iter;
    ef_reducer reducer;
    unsigned leaves;
    ef_reducer base[EF_MAX_LEAVES]; /* each leaf starts as the identity of its base reducer */
    ef_kid state[EF_MAX_LEAVES], next[EF_MAX_LEAVES];
    ef_kid in[EF_MAX_LEAVES]; /* its operand; nodes that `next` need not use */
    ef_kid node;              /* its EF_K_LOOP */
    ef_kid
        result[EF_MAX_LEAVES]; /* what it leaves: its EF_K_RESULT, but NaN where that has come to mean nothing seen */
    unsigned keeps;
    ef_kid keep[EF_MAX_LEAVES]; /* bool nodes: an iteration in which none of them holds anywhere changes nothing */
} ef_kloop;

/* A leaf of the root, and where it goes. */
typedef struct {
    ef_kid value;
    uint32_t buffer;
    uint32_t leads, lead[EF_K_MAX_LEADS]; /* grid iterators that became leading dimensions, outermost first */
    uint64_t once;                        /* iterators over which the value is replicated: only coordinate 0 stores */
} ef_kstore;

typedef struct {
    const char *name;
    ef_expr root;  /* the expression it stores */
    uint32_t grid; /* the first iterators are the grid */
    EF_VEC(ef_iter) iters;
    EF_VEC(ef_kloop) loops;
    EF_VEC(ef_kstore) stores;
    ef_intern *nodes;           /* ef_knode; ids are ef_kid */
    EF_VEC(const char *) names; /* by node: what the program calls it, or NULL */
    bool beside;                /* it reads nothing that the kernel before it stores: both may run at once */
} ef_kernel;

typedef enum { EF_BUFFER_INPUT, EF_BUFFER_TEMP, EF_BUFFER_OUTPUT } ef_buffer_kind;

/* How elements are stored is a choice for temporaries. What eager PyTorch surely has in the program's own narrow type
 * is stored in that: inputs, results of casts, and of products where nothing says that they are computed in f32. All
 * else is stored in f32, as PyTorch computes it inside of its operations and behind casts; so are statistics (what a
 * reduction leaves, partial results, what is computed from these alone), which are few and decide what is computed from
 * them. Where verification finds that narrow temporaries cost too much, ef_kgraph_widen stores all in f32. */
typedef struct {
    ef_buffer_kind kind;
    uint8_t dtype, rank; /* dtype: of the elements as they are stored; code generators convert on loading and storing */
    ef_dim dim[EF_MAX_RANK]; /* dim[0] is the last */
    const char *name;
    uint32_t index;      /* INPUT: position in the graph's inputs; OUTPUT: position in its outputs */
    uint32_t born, dies; /* TEMP: first kernel that writes, last kernel that reads */
} ef_kbuffer;

/* What a schedule chooses. Which values are legal depends on the backend (schedule.h). */
typedef enum {
    EF_PARAM_TILE,    /* the extent of the tiles along an axis, in units of the axis's variable */
    EF_PARAM_WARPS,   /* of 32 threads, per block */
    EF_PARAM_STAGES,  /* iterations of a loop whose loads are in flight together */
    EF_PARAM_UNIT,    /* 0: products as multiplications and sums; 1: on the matrix unit */
    EF_PARAM_LOAD,    /* 0: tiles are loaded through pointers; 1: through tensor descriptors, where that is possible */
    EF_PARAM_GROUP,   /* rows of output tiles that are walked together, so that the cache keeps what they share */
    EF_PARAM_ORDER,   /* 0: blocks in the order of their numbers; 1: in the opposite order */
    EF_PARAM_PERSIST, /* 0: a block of threads for each block of the grid; else at most so many on a multiprocessor,
                       * which go round over the grid */
    EF_PARAM_OVERLAP, /* an ef_begin: when it begins (compute capability 9.0 and later) */
    EF_PARAM_KINDS
} ef_param_kind;

/* When a kernel begins: when the one before it has ended, that of another call or program before the first; or while
 * that runs, as soon as it has itself waited for the one before, or once it is through with its loops. Then a
 * multiprocessor takes any number of its blocks that it has room for; or, evenly, its share of them at most. */
typedef enum {
    EF_BEGIN_AFTER,
    EF_BEGIN_EARLY,
    EF_BEGIN_EARLY_EVENLY,
    EF_BEGIN_LATE,
    EF_BEGIN_LATE_EVENLY,
    EF_BEGINS
} ef_begin;

/* A choice that is left open, of one kernel, or of all kernels: an extent that shapes a buffer (kernel EF_NONE). */
typedef struct {
    ef_param_kind kind;
    ef_axis axis; /* TILE; EF_NONE otherwise */
    uint32_t kernel;
} ef_kparam;

/* Runs of positions outside of which nothing that is reduced along an axis is seen: parts of it that meet none of them
 * are left out (parts.c). */
#define EF_K_MAX_RUNS 4u
typedef struct {
    uint64_t from, to; /* without `to` */
} ef_krun;

typedef struct {
    ef_axis axis;
    unsigned runs;
    ef_krun run[EF_K_MAX_RUNS]; /* ascending */
} ef_kparts;

typedef struct {
    ef_ctx *ctx;
    ef_arena *arena;
    const char *name;
    uint32_t inputs;
    uint64_t summed;             /* inputs of the program that it adds up, see ir/independent.h */
    const ef_dim *fan_in;        /* of its inputs, see there */
    const uint32_t *input;       /* input ids, in the program's order */
    EF_VEC(uint32_t) outputs;    /* buffers: the leaves of the outputs, in order */
    EF_VEC(ef_type) output_type; /* the type of each; its buffer may have the shape before a reshape */
    EF_VEC(ef_kbuffer) buffers;  /* the inputs come first */
    EF_VEC(ef_kernel *) kernels; /* in an order in which they can run */
    EF_VEC(ef_kparam) params;
    EF_VEC(ef_kparts) parts; /* axes of which not all parts are there */
} ef_kgraph;

/* The kernel graph of a program. Tensor-level operators that are not tiled become kernels of their own, tiled along
 * their output dimensions, so every program has one. NULL and a message when a form is not supported. The context must
 * outlive the graph; the program need not. */
ef_kgraph *ef_kgraph_new(const ef_program *program, ef_diag *diag);
/* The program as eager PyTorch runs it: one kernel an operator, each result rounded to its own type. For programs of
 * tensor level; what is tiled becomes kernels as above, with every temporary in its own type. */
ef_kgraph *ef_kgraph_eager(const ef_program *program, ef_diag *diag);
/* Whether some temporary is stored in less than f32; and stores them all in f32 at least, false when they are already.
 * Nodes keep the types that the program gives them. */
bool ef_kgraph_is_narrow(const ef_kgraph *graph);
bool ef_kgraph_widen(ef_kgraph *graph);
void ef_kgraph_free(ef_kgraph *graph);

static inline const ef_knode *ef_kernel_node(const ef_kernel *kernel, ef_kid id)
{
    return ef_intern_at(kernel->nodes, id, NULL);
}
static inline uint32_t ef_kernel_nodes(const ef_kernel *kernel)
{
    return ef_intern_count(kernel->nodes);
}
/* Whether its elements are those of its operands, moved. */
static inline bool ef_knode_moves(const ef_knode *node)
{
    return node->op == EF_VIEW || node->op == EF_K_PICK ||
           (node->op < EF_OP_COUNT && ef_ops[node->op].class == EF_SHAPE);
}
/* The loop that a node belongs to, EF_NONE: none. Loops are numbered from the outside inwards. */
uint32_t ef_knode_region(const ef_knode *node);
/* Marks a node and what it needs: operands, and of a loop its body and its conditions. `needed`: by node. */
void ef_kernel_need(const ef_kernel *kernel, ef_kid id, bool *needed);
/* By node: whether what the kernel stores needs it. Freed by the caller. */
bool *ef_kernel_needed(const ef_kernel *kernel);
/* Whether it has a matrix product, of tiles. */
bool ef_kernel_has_product(const ef_kernel *kernel);
/* Whether its blocks differ in work, because masks leave out iterations. */
bool ef_kernel_is_uneven(const ef_kernel *kernel);
/* A name of a node's operator. */
const char *ef_knode_op_name(const ef_knode *node);
/* The execution structure as text: kernels, iterators, nodes, buffers, without names of values. Two candidates of one
 * context with the same text are one family: any schedule of one is a schedule of the other. */
void ef_kgraph_print(const ef_kgraph *graph, ef_strbuf *out);
uint64_t ef_kgraph_family(const ef_kgraph *graph);
/* The same with some iterators left out, as if their one position were the whole of what they divide: the structure
 * that the graph has under such a schedule. `gone`: by iterator, those of all kernels one after the other. */
uint64_t ef_kgraph_family_without(const ef_kgraph *graph, const bool *gone);

/* One kernel by itself: what it does to tensors of these types, and its parameters. Kernels of graphs of one context
 * that have the same number take the same time under the same values of their parameters, one after the other. */
uint64_t ef_kgraph_kernel(const ef_kgraph *graph, uint32_t kernel);
/* Whether a parameter that shapes buffers matters to a kernel. */
bool ef_kgraph_kernel_uses(const ef_kgraph *graph, uint32_t kernel, uint32_t param);

/* cover.c: the distinct families of some graphs of one program. representative[i] is i itself, an earlier graph of the
 * same family, or a graph with a schedule under which it runs as graph i does: one whose loop or grid axis takes the
 * whole extent where graph i has none. Returns how many represent themselves. */
uint32_t ef_kgraph_families(const ef_kgraph *const *graph, uint32_t count, uint32_t *representative);

#endif
