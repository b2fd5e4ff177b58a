/* The C generator's parts, private to c*.c: c.c prints kernels and loops, c_plan.c decides what becomes a tile,
 * c_value.c prints the elements of values, c_tile.c the loops that fill tiles, c_matmul.c matrix products, c_mask.c
 * which iterations of a loop can be left out, c_share.c finds kernels that are the same code. */
#ifndef EF_CODEGEN_C_PRINT_H
#define EF_CODEGEN_C_PRINT_H

#include "codegen/c.h"
#include "codegen/maps.h"
#include "codegen/nodes.h"

#define C_MAX_ATOMS EF_MAP_ENTRIES

extern const char *const ef_c_runtime[]; /* ends with NULL */

/* Types of scalars in generated code. Floats narrower than f64 are computed in float. */
typedef enum { C_INT, C_LONG, C_FLOAT, C_DOUBLE } c_type;

/* One variable of a dimension of a value, and how far it reaches inside a tile. */
typedef struct {
    ef_var var;
    unsigned dim;    /* which dimension, from the last */
    uint64_t room;   /* the largest length */
    const char *len; /* the length, a number or a variable */
    bool fixed;      /* it is `room` */
} c_atom;

typedef struct {
    ef_index start;    /* the first position, in the whole dimension */
    ef_index position; /* the coordinate: which tile it is */
    const char *len;
    uint64_t room;
    bool fixed;
    const char *name; /* the variable that holds the start; NULL: it needs none */
} c_iter;

/* What is known of a node. */
typedef struct {
    bool tile, done;  /* done: printed as part of another node */
    const char *name; /* of its tile */
    unsigned cost;
} c_node;

typedef struct {
    const ef_kgraph *graph;
    const ef_schedule *schedule;
    const ef_kernel *kernel;
    ef_arena *arena;
    ef_indexer *ix;
    ef_maps maps;
    ef_index *start; /* by iterator, of the maps */
    ef_strbuf *out;
    unsigned indent;
    c_iter *iter;
    c_node *node;
    ef_use *use;     /* by node */
    ef_intern *memo; /* (node, indices) -> index into values, within one loop nest */
    EF_VEC(const char *) values;
    EF_VEC(uint8_t) types; /* of values: c_type */
    unsigned number;       /* of the next variable */
    uint64_t stack;        /* bytes of tiles on the stack */
    uint64_t scratch;      /* bytes of tiles in the thread's scratch memory */
    bool failed;
} ef_c;

/* A scalar in generated code. */
typedef struct {
    const char *text;
    c_type type;
    bool literal;
    double value; /* of a literal */
} c_value;

/* c.c */
void ef_c_line(ef_c *c, const char *format, ...) __attribute__((format(printf, 2, 3)));
const char *ef_c_text(ef_c *c, const char *format, ...) __attribute__((format(printf, 2, 3)));
const char *ef_c_index(ef_c *c, ef_index index);
const char *ef_c_identifier(ef_c *c, const char *name); /* with what C does not accept replaced */
const char *ef_c_var_name(ef_c *c, ef_var var);
const char *ef_c_buffer_name(ef_c *c, uint32_t buffer);
c_type ef_c_type(ef_dtype dtype);
extern const char *const ef_c_type_names[];
unsigned ef_c_atoms(ef_c *c, const ef_knode *node, c_atom *atom); /* outermost first */
unsigned ef_c_atom_count(const ef_c *c, const ef_knode *node);
uint64_t ef_c_room(ef_c *c, const ef_knode *node); /* elements of its tile */

/* c_plan.c */
void ef_c_plan(ef_c *c);
/* The node whose tile or buffer an operand is, when only index maps stand between; EF_NONE otherwise. */
ef_kid ef_c_base(ef_c *c, ef_kid id);

/* c_value.c */
/* The address of an element in the tile or buffer that the node is a map over. */
ef_index ef_c_address(ef_c *c, ef_kid id, const ef_index *index, ef_kid *base);
ef_index ef_c_tile_address(ef_c *c, const ef_knode *node, const ef_index *index);
/* Starts a loop nest: no element is known yet. */
void ef_c_forget(ef_c *c);
/* The element at these indices, one an atom. Prints what it needs. `root`: computed although the node has a tile. */
c_value ef_c_element(ef_c *c, ef_kid id, const ef_index *index, bool root);
const char *ef_c_as(ef_c *c, c_value value, c_type type);
const char *ef_c_literal(ef_c *c, double value, c_type type);

/* c_tile.c */
/* Opens loops over the atoms and sets their indices; returns how many. `pragma` stands before the innermost. */
unsigned ef_c_open(ef_c *c, const c_atom *atom, unsigned count, ef_index *index, const char *pragma);
void ef_c_close(ef_c *c, unsigned loops);
void ef_c_declare(ef_c *c, ef_kid id, const char *name);
void ef_c_fill(ef_c *c, ef_kid id, double value);
void ef_c_tile(ef_c *c, ef_kid id);
/* The element-wise update of a tile in place. */
void ef_c_write(ef_c *c, ef_kid id, const char *tile);
void ef_c_store(ef_c *c, const ef_kstore *store);

/* c_share.c */
/* The function of a kernel's code. */
typedef struct {
    const char *parameters; /* the text of those that are its buffers */
    const char *body;
    uint32_t *buffer, buffers; /* of the kernel, in the order of the parameters */
    /* Set by ef_c_share: */
    uint32_t like;         /* the kernel whose function it calls, perhaps its own … */
    const char *arguments; /* … with these more arguments … */
    const char *sizes;     /* … for these more parameters: of that function */
} ef_c_function;
/* Finds which of a program's functions, by kernel, are one. Changes the code of those that are one for several sizes.
 */
void ef_c_share(ef_c_function *all, uint32_t count, ef_arena *arena);
/* Those of the candidates (by buffer of the graph) that code names, in the order in which it does; how many. */
uint32_t ef_c_used_buffers(ef_c *c, const char *code, const bool *candidate, uint32_t *buffer);

/* c_mask.c */
/* An expression that is true when an iteration of the loop may change its state; NULL: it always may. */
const char *ef_c_may_change(ef_c *c, const ef_kloop *loop);

/* c_matmul.c */
/* How an operand of a product is read. */
typedef enum { C_READ_TILE, C_READ_ROWS, C_READ_COLUMNS } c_reading;
c_reading ef_c_reading(ef_c *c, const ef_knode *matmul, unsigned operand, ef_kid *base);
/* Adds the product to the tile `name`, which has the node's extents. */
void ef_c_matmul(ef_c *c, ef_kid id, const char *name);

#endif
