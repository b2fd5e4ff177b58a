/* The text form (.ef) on its way in, private to text_*.c. text_parse.c makes a syntax tree from characters, with
 * text_lex.c, text_dims.c and text_attr.c; text_unify.c gives a variable to each dimension that is written as a plain
 * number; text_build.c turns the tree into a typed program. Dimensions, axes and reducers are interned while they are
 * read: only expressions need a tree. text_print.c is the way out. */
#ifndef EF_IR_TEXT_H
#define EF_IR_TEXT_H

#include "ir/expr.h"
#include "support/hash.h"
#include "support/vec.h"

#define EF_TEXT_BYTES (8u << 20) /* of a file */
#define EF_TEXT_LINES 65536u     /* declarations and statements */
#define EF_TEXT_NODES (1u << 20) /* of the syntax tree */
#define EF_TEXT_DEPTH 256u       /* of brackets */
#define EF_TEXT_NAME 255u        /* bytes of a name */
#define EF_TEXT_DIM 1000u        /* bytes that a dimension prints as: derived ones could double at every line */
#define EF_TEXT_TUPLE 64u        /* fields of a tuple, at all levels, for the same reason */

/* Where a partition, replicate, combination says that its axis cuts. */
#define EF_TEXT_ANYWHERE 255u
#define EF_TEXT_NOWHERE 254u

/* One dimension of a shape: known, or a plain number (an index into `numbers`). */
typedef struct {
    ef_dim dim;
    uint32_t number; /* EF_NONE: `dim` holds */
} ef_text_dim;

typedef struct {
    uint32_t first, rank; /* range of `dims`, outermost first */
} ef_text_shape;

typedef struct {
    uint32_t at;           /* byte offset */
    uint8_t op;            /* ef_op; EF_INPUT: a name */
    uint8_t cuts;          /* partition, replicate, view, combination */
    uint64_t attr;         /* as in op.h, except: a name's definition; nothing for shapes; transpose: outermost first */
    uint32_t first, count; /* operands: range of `operands` */
    ef_text_shape shape;   /* reshape, broadcast, iota; transpose: rank only */
} ef_text_node;

/* An input or a statement. */
typedef struct {
    const char *name;
    uint32_t at;
    bool is_input, is_output;
    uint8_t dtype;       /* input */
    ef_text_shape shape; /* input */
    uint32_t root;       /* statement: node */
    ef_expr expr;        /* set by text_build.c */
} ef_text_def;

typedef struct {
    uint32_t at;
    uint64_t extent;
    ef_dim dim; /* set by text_unify.c */
} ef_text_number;

typedef struct {
    ef_ctx *ctx;
    ef_diag *diag;
    const char *file, *text, *name;
    bool wide; /* read every type of floats as f64 */
    size_t length, at;
    ef_arena *arena;
    ef_strbuf comment;
    uint32_t lines;
    EF_VEC(ef_text_node) nodes;
    EF_VEC(uint32_t) operands;
    EF_VEC(uint32_t) stack; /* operands of calls that are still open */
    EF_VEC(ef_text_dim) dims;
    EF_VEC(ef_text_number) numbers;
    EF_VEC(ef_text_def) defs;
    ef_intern *def_names; /* name -> index into defs */
    ef_intern *dim_names; /* name -> index into named */
    EF_VEC(ef_dim) named;
    EF_VEC(uint32_t) var_bytes;  /* by variable: the length of its text, 0 when not known yet */
    EF_VEC(uint8_t) type_weight; /* by type: 1 + fields at all levels once it is checked, else 0 */
} ef_text;

/* text_lex.c. "file:line:column: message" for byte offset `at`; false. */
bool ef_text_fail(ef_text *source, size_t at, const char *format, ...) __attribute__((format(printf, 3, 4)));
/* "expected WHAT, found …" at the current position; false. */
bool ef_text_expected(ef_text *s, const char *what);
bool ef_text_is_digit(int c);
bool ef_text_is_name_start(int c);
/* The byte at the current position, -1 at the end; `next` skips blanks first (a line's end is none). */
int ef_text_peek(const ef_text *s);
int ef_text_next(ef_text *s);
bool ef_text_accept(ef_text *s, char c);
bool ef_text_expect(ef_text *s, char c);
unsigned ef_text_name_length(const ef_text *s, size_t at);
bool ef_text_name(ef_text *s, const char *what, const char **text, unsigned *length);
bool ef_text_is_word(const char *text, unsigned length, const char *word);
bool ef_text_accept_word(ef_text *s, const char *word);
bool ef_text_integer(ef_text *s, const char *what, uint64_t limit, uint64_t *value);
bool ef_text_number_value(ef_text *s, double *value);

/* text_dims.c */
bool ef_text_axis(ef_text *s, unsigned depth, ef_axis *axis);
/* start:stop, both at most `limit`. */
bool ef_text_span(ef_text *s, uint64_t limit, uint64_t *start, uint64_t *stop);
/* One dimension of a shape; dimensions up to `close`, which stays. */
bool ef_text_dimension(ef_text *s, ef_text_dim *dim);
bool ef_text_shape_of(ef_text *s, char close, ef_text_shape *shape);
/* Whether a dimension's text and extent are within the limits. */
bool ef_text_dim_ok(ef_text *source, size_t at, ef_dim dim);
/* The bytes that a dimension prints as; more than EF_TEXT_DIM means "too many". */
uint32_t ef_text_dim_bytes(ef_text *source, ef_dim dim);

/* text_attr.c: reads a node's attributes, which may change its operator (reduce over an axis is another one). */
bool ef_text_attributes(ef_text *s, ef_text_node *node, bool full);
bool ef_text_dtype(ef_text *s, uint8_t *dtype);

/* text_parse.c: fills nodes, defs, numbers, … */
bool ef_text_parse(ef_text *source);
/* text_unify.c: sets the dimension of every plain number. */
bool ef_text_unify(ef_text *source);

#endif
