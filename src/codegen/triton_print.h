/* The Triton generator's parts, private to triton*.c: triton.c prints the module, triton_kernel.c the grid, loops and
 * stores of one kernel, triton_axis.c the axes of tiles, triton_value.c elements, triton_load.c what they are loaded
 * from, triton_ops.c pointwise operators, triton_exp.c exponentials, triton_reduce.c reductions along axes,
 * triton_matmul.c products, triton_bounds.c where masked loops begin and end.
 *
 * A value is evaluated in a FRAME: an ordered list of axes, one for each variable of each dimension that is longer than
 * 1. Along each axis stands an arange, so the index of a variable is an expression over aranges and scalars, index maps
 * leave no code (maps.h), and a pointwise operator is one line on tiles. Products, reductions and loop states are
 * computed once, in a frame of their own; another frame reads them by adding axes of length 1.
 *
 * Text is printed to the LEVEL that a value depends on: 0 is the body of the kernel, each open loop is one more. What
 * an outer level needs is thus printed before the loop, whenever it is asked for. Before all of level 0 stands what is
 * loaded there: a reduction waits for all threads, and a load after it would begin only then. In a kernel with loops
 * that holds for tiles of few elements a thread, which lie in registers meanwhile; the others, and rows that are padded
 * for the matrix unit (ef_t_load_row), are loaded where they are used. */
#ifndef EF_CODEGEN_TRITON_PRINT_H
#define EF_CODEGEN_TRITON_PRINT_H

#include "codegen/maps.h"
#include "codegen/nodes.h"
#include "codegen/triton.h"

#define T_MAX_AXES 8u                   /* of a frame */
#define T_MAX_LEVELS 72u                /* of nested loops */
#define T_MAX_ELEMENTS EF_MOST_ELEMENTS /* of a tile: more do not fit the registers of a block */
#define T_CHUNK_ELEMENTS 16384u         /* of a tile that is walked through in parts because it is too large */
#define T_LEAST_DOT 16u                 /* extents of a product on the matrix unit */

/* Types of elements in generated code. Floats narrower than f64 are computed in float32. */
typedef enum { T_BOOL, T_INT, T_LONG, T_FLOAT, T_DOUBLE } t_type;
extern const char *const ef_t_type_names[];

/* A variable of a dimension, as far as one block holds it. */
typedef struct {
    ef_var var;
    uint32_t cut;       /* the iterator that cuts it, EF_NONE */
    unsigned nth;       /* which one of several with this variable and cut in one value */
    uint64_t room, pad; /* the largest length; rounded up to a power of two */
    const char *name;   /* of its arange */
    bool printed;       /* it stands in the kernel */
} t_axis;

/* One axis of a frame: a whole axis, or a part of one that a loop of the generator's own walks along. */
typedef struct {
    uint32_t axis;
    uint64_t pad;
    ef_index name;    /* the arange, as it stands in this frame */
    ef_index index;   /* the position along the axis: the arange, moved by where the part begins */
    const char *mask; /* of one dimension: true inside; NULL when all are inside */
    unsigned level;   /* of the mask */
} t_span;

typedef struct {
    unsigned rank;
    t_span at[T_MAX_AXES];
} t_frame;

/* A value in a frame. */
typedef struct {
    const char *text;
    t_type type;
    bool literal;
    double value;  /* of a literal */
    unsigned axes; /* one bit for each axis of the frame along which it varies; it has length 1 along the others */
    unsigned level;
    unsigned zero; /* one bit for each axis beyond whose length it is 0 */
} t_value;

typedef struct {
    ef_index start, position; /* as in the C generator: the first position of its tile, and which tile it is */
    ef_index variable;        /* the scalar variable `name`, below `limit` */
    const char *name;         /* NULL: it takes one position and needs no variable */
    const char *len;          /* NULL: always `room` */
    uint64_t room, limit;
    unsigned level;
} t_iter;

/* What is known of a node. */
typedef struct {
    bool made;
    bool assumed;  /* a condition that is known to hold where it is used now */
    bool spread;   /* it depends on a state that has more axes than it */
    t_value value; /* of a computed tile */
    unsigned rank; /* its own axes, in the order in which it has them */
    uint32_t axis[T_MAX_AXES];
} t_node;

typedef struct {
    ef_index name;
    unsigned level;
    uint64_t limit; /* its values are below it */
} t_scalar;

/* Values that stand in the printed text already, by what they are. */
typedef struct {
    ef_intern *keys;
    EF_VEC(t_value) value;
    EF_VEC(uint32_t) serial; /* of the value's level when it was printed */
} t_memo;

typedef struct {
    const ef_kgraph *graph;
    const ef_schedule *schedule;
    const ef_kernel *kernel;
    uint32_t number; /* of the kernel */
    ef_arena *arena;
    ef_indexer *ix;
    ef_maps maps;
    ef_index *start; /* by iterator, of the maps */
    t_iter *iter;
    t_node *node;
    ef_use *use; /* by node */
    EF_VEC(t_axis) axes;
    EF_VEC(t_scalar) scalars; /* what indices are made of, besides aranges */
    unsigned level;           /* of the innermost open loop */
    ef_strbuf body[T_MAX_LEVELS];
    ef_strbuf loads;               /* of level 0, and what they need: before the rest of it */
    ef_strbuf waiting;             /* behind these: loads of level 0 of what the kernel waits for */
    bool looping;                  /* it has a loop that is printed as one */
    uint32_t serial[T_MAX_LEVELS]; /* how often each level was opened: names of earlier times are gone */
    t_memo elements, texts;        /* by node and indices; by text */
    unsigned counter;              /* of names */
    bool descriptors;              /* loads through the copy engine where that is possible */
    bool beside;                   /* runs at once with the kernel before it, for which it waits in the end */
    bool ahead;                    /* waits for the kernel before it behind its loads of the program's inputs */
    struct t_kernel *out;          /* what is printed so far */
    uint64_t persist;              /* as t_kernel's */
    bool tensor_cores, wide;       /* products on the matrix unit; addresses need 64 bits */
    bool *reads;                   /* by buffer: the kernel has it as an argument */
    unsigned helpers;              /* one bit for each T_HELP_… that the module needs */
    ef_diag *diag;
} ef_t;

/* A view of a buffer as a matrix of long rows, whose blocks the copy engine loads: an argument of the kernel. */
typedef struct {
    const char *name;
    uint32_t buffer;
    uint64_t rows, columns, block_rows, block_columns;
} t_descriptor;

/* Functions that the module defines when a kernel needs them. */
enum {
    T_HELP_PROD = 1,
    T_HELP_TANH = 2,
    T_HELP_POW = 4,
    T_HELP_DIVIDE = 8,
    T_HELP_DIVIDE_INT = 16,
    T_HELP_RESIDENT = 32,
    T_HELP_EVENLY = 64
};

/* A kernel as text, with what its launch needs. */
typedef struct t_kernel {
    ef_arena *arena; /* of the names of descriptors */
    ef_strbuf text;
    const char *function;
    uint64_t blocks,
        persist; /* persist: blocks of threads on each multiprocessor that go round over them; 0: one each */
    bool evenly; /* its blocks are dealt out evenly */
    bool *reads; /* by buffer */
    EF_VEC(t_descriptor) descriptors;
    unsigned helpers;
} t_kernel;

/* triton_kernel.c */
/* Prints one kernel; false after a message. `kernel` is freed by the caller, whatever is returned. */
bool ef_t_kernel(const ef_kgraph *graph, const ef_schedule *schedule, uint32_t number, t_kernel *kernel, ef_diag *diag);
/* The length of an iterator's tile, NULL when it always fills its room; and the level that the length belongs to. */
const char *ef_t_iter_len(const ef_t *t, uint32_t iter, unsigned *level);
/* Opens a level for a loop whose head is printed when it closes. */
void ef_t_open(ef_t *t);
void ef_t_close(ef_t *t, const char *head);
void ef_t_region(ef_t *t, uint32_t region); /* what belongs to a loop, or to none */
bool ef_t_fail(ef_t *t, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Fails because a tile has too many elements; `use`: what they are for. */
bool ef_t_too_large(ef_t *t, const char *use, uint64_t elements);

/* triton_loop.c */
void ef_t_loop(ef_t *t, uint32_t number);

/* triton_text.c */
const char *ef_t_text(ef_t *t, const char *format, ...) __attribute__((format(printf, 2, 3)));
void ef_t_line(ef_t *t, unsigned level, const char *format, ...) __attribute__((format(printf, 3, 4)));
const char *ef_t_index(ef_t *t, ef_index index);
const char *ef_t_identifier(ef_t *t, const char *name);
const char *ef_t_var_name(ef_t *t, ef_var var);
const char *ef_t_buffer_name(ef_t *t, uint32_t buffer);
/* A name for an expression at a level; the same expression has one name while its level is open. */
const char *ef_t_name(ef_t *t, unsigned level, const char *base, const char *expression);
/* The same for what is made of positions alone, and for loads: of level 0 they stand before all else. An expression is
 * always named in the same way. */
const char *ef_t_name_load(ef_t *t, unsigned level, const char *base, const char *expression);
/* The same for loads of what a kernel before this one may have stored: of level 0 they stand behind those. */
const char *ef_t_name_stored(ef_t *t, unsigned level, const char *base, const char *expression);
void ef_t_line_load(ef_t *t, const char *line); /* of level 0, there */
/* A view of a value of a level, "x[:, None]" of x. It stands before all else that uses the value: Triton converts the
 * layout of what is spread where that stands, takes the converted value for others that it computes once more in that
 * layout, and up to 3.6 does not see when these stand before it: it fails then. */
const char *ef_t_view(ef_t *t, unsigned level, const char *base, const char *of, const char *expression);
/* Where the value of a key is; its text is NULL when it is not printed, or no longer in scope. ef_t_remember says that
 * it was filled in. */
uint32_t ef_t_recall(ef_t *t, t_memo *memo, const void *key, size_t size);
void ef_t_remember(ef_t *t, t_memo *memo, uint32_t at, t_value value);
/* A variable of the open loop, below `limit`. */
void ef_t_scalar(ef_t *t, ef_index name, uint64_t limit);
/* The level of the scalars in an index. */
unsigned ef_t_level(ef_t *t, ef_index index);
t_type ef_t_type(ef_dtype dtype);
const char *ef_t_dtype(ef_dtype dtype); /* "float16" */

/* triton_axis.c */
/* The axes of a node's entries, one an entry, EF_NONE where the length is 1. Returns how many entries. */
unsigned ef_t_axes(ef_t *t, const ef_knode *node, uint32_t axis[EF_MAP_ENTRIES]);
/* Which dimension each entry is part of. */
void ef_t_entry_dims(ef_t *t, const ef_knode *node, unsigned dim[EF_MAP_ENTRIES]);
/* A frame over these axes. False after a message when there are too many. */
bool ef_t_frame(ef_t *t, const uint32_t *axis, unsigned count, t_frame *frame);
/* The frame of a node's own axes. */
bool ef_t_own_frame(ef_t *t, const ef_knode *node, t_frame *frame);
/* The indices of a node's entries in a frame that has its axes. */
void ef_t_indices(ef_t *t, const t_frame *frame, const ef_knode *node, ef_index *index);
unsigned ef_t_find(const t_frame *frame, uint32_t axis); /* its place in the frame, T_MAX_AXES: none */
uint64_t ef_t_elements(const t_frame *frame);
/* Text: a one-dimensional value as seen at a place in a frame, "[:, None]"; and the shape of tiles, "[64, 128]". */
const char *ef_t_spread(ef_t *t, const char *text, unsigned rank, unsigned place);
const char *ef_t_shape(ef_t *t, const t_frame *frame, unsigned axes);
/* The mask of some axes of a frame, NULL when none needs one. */
const char *ef_t_mask(ef_t *t, const t_frame *frame, unsigned axes, unsigned *level);
/* Opens a loop over parts of an axis: afterwards the frames have the part instead of the axis. Closed by ef_t_close
 * with what is returned. */
const char *ef_t_open_part(ef_t *t, uint32_t axis, uint64_t part, t_frame *const *frame, unsigned frames);
/* The axis among some of a frame to walk along in parts so that it has at most `most` elements, and the length of the
 * parts; EF_NONE when it need not or cannot be. */
uint32_t ef_t_choose_part(const t_frame *frame, unsigned axes, uint64_t most, uint64_t *part);
/* The axis of rows that are added for the matrix unit. */
uint32_t ef_t_extra_rows(ef_t *t);

/* triton_value.c */
/* The node's value in a frame, at these indices. `raw`: 16-bit values are not widened, nor the operands of a pointwise
 * operator. */
t_value ef_t_element(ef_t *t, const t_frame *frame, ef_kid id, const ef_index *index, bool raw);
/* The node in a frame that has its axes. */
t_value ef_t_value(ef_t *t, const t_frame *frame, ef_kid id);
/* Gives a node the value: it is a computed tile from now on, with those axes of the frame that `keep` has. */
void ef_t_make(ef_t *t, ef_kid id, const t_frame *frame, unsigned keep, t_value value);
/* A value with its full shape in the frame. */
t_value ef_t_full(ef_t *t, const t_frame *frame, t_value value);
/* A value in which everything beyond the lengths of these axes is `identity`. */
t_value ef_t_masked(ef_t *t, const t_frame *frame, unsigned axes, t_value value, double identity);
/* triton_load.c */
/* The index with numbers of 64 bits in place of those that make it too large for 32: axes of the frame, variables of
 * loops, whose 64-bit forms are named in the loops' bodies. Where it is divided, in a kernel of large buffers, all. */
ef_index ef_t_wide_index(ef_t *t, const t_frame *frame, ef_index index);
/* The pointer expression to an address, and the axes along which it varies. */
const char *ef_t_pointer(ef_t *t, const t_frame *frame, uint32_t buffer, ef_index address, unsigned *axes,
                         unsigned *level);
/* The element of a buffer, in the type in which it lies there. */
t_value ef_t_load(ef_t *t, const t_frame *frame, const ef_knode *node, const ef_index *index);
/* The same for a frame of one axis, as the first of T_LEAST_DOT rows of which the others are 0. */
t_value ef_t_load_row(ef_t *t, const t_frame *frame, ef_kid id, const ef_index *index);
/* What a node is an index map over, up to a computed tile: itself when it is none. */
ef_kid ef_t_below(ef_t *t, ef_kid id);
/* The buffer that a node is an index map over, EF_NONE. */
ef_kid ef_t_stored(ef_t *t, ef_kid id);

/* triton_ops.c */
const char *ef_t_literal(ef_t *t, double value, t_type type);
const char *ef_t_as(ef_t *t, t_value value, t_type type);
/* A pointwise operator on values of one frame. */
t_value ef_t_pointwise(ef_t *t, const ef_knode *node, const char *base, const t_value *x);
t_value ef_t_constant(double value);

/* triton_exp.c */
/* Exponentials and guarded values that are computed in a cheaper way. False when it is none of these. */
bool ef_t_exp(ef_t *t, const t_frame *frame, const ef_knode *node, const ef_index *index, t_value *value);
/* A value and a positive literal factor: the node is their product. */
t_value ef_t_factored(ef_t *t, const t_frame *frame, ef_kid id, const ef_index *index, double *factor);
bool ef_t_guarded(ef_t *t, const t_frame *frame, const ef_knode *node, const ef_index *index, t_value *value);

/* triton_reduce.c */
void ef_t_reduce(ef_t *t, ef_kid id);
/* Reduces a value along some axes of a frame: text of what is left. */
const char *ef_t_reduce_axes(ef_t *t, ef_reducer reducer, unsigned axes, const char *text);
/* Two values as the reducer combines them. */
const char *ef_t_combined(ef_t *t, ef_reducer reducer, t_type type, const char *a, const char *b);

/* triton_matmul.c */
/* How a product is computed: a[batch, rows, inner] b[batch, inner, columns], in which frame its terms stand, and along
 * which of its axes they are still to be added. */
typedef struct {
    ef_kid id;
    bool dot; /* on the matrix unit */
    t_frame a, b, terms;
    ef_index at_a[EF_MAP_ENTRIES], at_b[EF_MAP_ENTRIES]; /* indices of the operands */
    unsigned batch, rows, inner, columns;                /* how many axes of each kind */
    unsigned rest;                                       /* axes of `terms` to add up in the end */
    uint32_t part_axis;                                  /* the inner axis that is walked along in parts, EF_NONE */
    uint64_t part;
    ef_dtype dtype; /* of the operands on the matrix unit */
} t_product;

bool ef_t_product(ef_t *t, ef_kid id, t_product *product);
/* The terms, added to `sum` unless it is NULL: a full tile in the frame of the terms. */
t_value ef_t_terms(ef_t *t, const t_product *product, const char *sum);
void ef_t_matmul(ef_t *t, ef_kid id);
/* Gives the axes of a product the least extents that the matrix unit takes; before anything is printed. */
void ef_t_widen_axes(ef_t *t, ef_kid id);

/* triton_bounds.c */
/* A part of a loop: from `begin` to before `end`, as text. */
typedef struct {
    const char *begin, *end;
    bool unmasked; /* the loop's condition holds everywhere */
} t_segment;

#define T_MAX_SEGMENTS 16u
/* The parts of a loop, in order; whole tiles that its masks empty are in none. */
unsigned ef_t_segments(ef_t *t, const ef_kloop *loop, t_segment segment[T_MAX_SEGMENTS]);
/* Where the block ends that an iterator divides. */
ef_index ef_t_outer_end(ef_t *t, uint32_t iter);

#endif
