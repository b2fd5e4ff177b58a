/* Lowering, private to src/kernel: form.c cuts the program, lower.c makes the nodes of one kernel, reduce.c its loops,
 * wrap.c the kernels of operators that are not tiled, merge.c makes one kernel of two, join.c has fewer variables of
 * what it may. */
#ifndef EF_KERNEL_LOWER_H
#define EF_KERNEL_LOWER_H

#include "kernel/kernel.h"

#define EF_LEAVES (2 * EF_MAX_FIELDS) /* tensors in a tuple, at most */
#define EF_OWNER_NONE EF_NONE         /* not computed inside another value's kernel */

/* Cutting a program. */
typedef struct {
    const ef_program *program;
    const ef_dag *dag;
    ef_ctx *ctx;
    ef_kgraph *graph;
    ef_diag *diag;
    uint32_t *owner;        /* by expression: the root in whose grid-less kernel it is computed, EF_OWNER_NONE */
    uint32_t *stored;       /* by expression: its first buffer, EF_NONE while it has none */
    const char **name;      /* by expression: the statement's name, or NULL */
    uint32_t *input_buffer; /* by input id */
    ef_axes collected;      /* axes that some collection turns into a dimension */
    bool *statistic;        /* by expression: it is stored in f32 (see ef_kbuffer) */
    bool *rounded;          /* by expression: it may be stored in its own narrow type */
    bool mixed;             /* the program computes in f32 what its types say is narrow */
    bool eager;             /* one kernel an operator, each result in its own type */
} ef_former;

typedef struct {
    ef_axis axis;
    uint32_t iter;
} ef_binding;

/* Making one kernel. */
typedef struct {
    ef_former *former;
    ef_ctx *ctx;
    ef_kernel *kernel;
    uint32_t number; /* stands for the kernel in parameters until it has its place */
    ef_binding bound[2 * EF_MAX_PLACES];
    unsigned bounds;
    ef_intern *memo; /* expression with its iterators -> index into values */
    EF_VEC(ef_kid) values;
} ef_lowering;

/* form.c */
/* The buffers of an expression that is stored, making its kernel first; EF_NONE after a message. */
uint32_t ef_form_stored(ef_former *f, ef_expr e);
bool ef_form_is_compute(const ef_former *f, ef_expr e);
unsigned ef_type_leaves(const ef_ctx *ctx, ef_type type, ef_type *leaf); /* at most EF_LEAVES */
uint32_t ef_form_param(ef_lowering *l, ef_axis axis);

/* lower.c */
/* The nodes of an expression, one a leaf (at most EF_LEAVES). 0 after a message. */
unsigned ef_lower(ef_lowering *l, ef_expr e, ef_kid *out);
/* The node of an expression that is a tensor. */
bool ef_lower_tensor(ef_lowering *l, ef_expr e, ef_kid *out);
/* The same, computing the expression here although it is of tensor level. */
unsigned ef_lower_here(ef_lowering *l, ef_expr e, ef_kid *out);
ef_kid ef_lower_node(ef_lowering *l, ef_knode node);
ef_kid ef_lower_const(ef_lowering *l, double value);
ef_kid ef_lower_buffer(ef_lowering *l, uint32_t buffer);
/* A pointwise operator; dimensions broadcast. */
ef_kid ef_lower_pointwise(ef_lowering *l, ef_op op, uint64_t attr, ef_dtype dtype, const ef_kid *child, unsigned count);
/* The node seen through other cuts; itself when they are its own. */
ef_kid ef_lower_view(ef_lowering *l, ef_kid x, const ef_kdim *dim);
ef_kid ef_lower_matmul(ef_lowering *l, ef_dtype dtype, ef_kid a, ef_kid b);
ef_kid ef_lower_reduce(ef_lowering *l, ef_kid x, ef_reducer reducer, unsigned index);
void ef_lower_bind(ef_lowering *l, ef_axis axis, uint32_t iter);
/* The iterator of an axis in scope, EF_NONE when there is none. */
uint32_t ef_lower_iter(const ef_lowering *l, ef_axis axis);
uint32_t ef_lower_iterator(ef_lowering *l, ef_iter iter);

/* reduce.c */
/* Opens a loop over an iterator that still has no loop; EF_NONE after a message. */
uint32_t ef_loop_open(ef_lowering *l, ef_iter iter);
/* Closes it over its operand (a node a leaf): the results, one a leaf. */
bool ef_loop_close(ef_lowering *l, uint32_t loop, ef_reducer reducer, const ef_kid *operand, unsigned leaves,
                   ef_kid *result);

/* nothing.c: what y, an operand of a repaired reduction's consumer, is in rows in which the producer's leaf g has seen
 * nothing, before (g) and after (next): the consumer's identity, NaN, or not known. */
typedef enum { EF_NOTHING_UNKNOWN, EF_NOTHING_IDENTITY, EF_NOTHING_NAN } ef_nothing;
ef_nothing ef_lower_nothing(const ef_lowering *l, ef_reducer base, ef_kid g, ef_kid next, ef_kid y,
                            ef_reducer consumer);

/* A repaired reducer inside of a loop's: its first leaf, and, for each leaf of its consumer,
 * for which of the producer's leaves (a bit mask, from the loop's first leaf) it is known what stands where they have
 * seen nothing: such contributions to the state are the identity. */
typedef struct {
    unsigned first;
    ef_reducer reducer;
    uint32_t settled[EF_MAX_LEAVES];
} ef_loop_repair;

/* mask.c: finds under which conditions an iteration changes the state. */
void ef_loop_find_masks(ef_lowering *l, uint32_t loop, ef_reducer reducer, const ef_kid *in,
                        const ef_loop_repair *repair, unsigned repairs);

/* join.c: makes one variable, in this kernel, of variables that it has side by side only. */
void ef_join_variables(ef_kgraph *graph, ef_kernel *kernel);

/* merge.c: makes one kernel of two, where that saves more than a launch (merge.h). Parameters may be left that no
 * kernel has. */
void ef_merge_kernels(ef_kgraph *graph);
/* order.c: puts kernels that others need not wait for where they can run while these do. */
void ef_order_kernels(ef_kgraph *graph);
/* lower.c: the node's number in a kernel; which loops it depends on follows, but for a loop as a whole. */
ef_kid ef_kernel_intern(ef_kernel *kernel, ef_knode node);
/* form.c */
void ef_kernel_free(ef_kernel *kernel);
/* Marks the buffers that a kernel reads for what it stores. `read`: by buffer. */
void ef_kernel_buffers_read(const ef_kernel *kernel, bool *read);
/* Whether a kernel stores one of these buffers. */
bool ef_kernel_stores_any(const ef_kernel *kernel, const bool *buffer);

/* collected.c: whether a dimension is counted in tiles of a variable: along this axis of it, EF_NONE: any. */
bool ef_dim_counts(const ef_kgraph *graph, ef_dim dim, ef_var var, ef_axis axis);
/* collected.c: gives kernels tiles of their own along axes whose number of tiles is nothing to them. */
void ef_kgraph_own_tiles(ef_kgraph *graph);

/* parts.c: finds the axes of which not all parts need to be there. */
void ef_kgraph_find_parts(ef_kgraph *graph);

/* wrap.c: lowers an operator that is not tiled, with a grid over its output dimensions. */
unsigned ef_wrap(ef_lowering *l, ef_expr e, bool copy, ef_kid *out);

#endif
