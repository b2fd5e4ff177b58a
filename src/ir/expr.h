/* Expressions: a hash-consed DAG of typed nodes, and programs (paper, Figure 3; design, section 3).
 *
 * Every node is type-checked when it is added (infer.c); an ill-typed one is refused with a message. */
#ifndef EF_IR_EXPR_H
#define EF_IR_EXPR_H

#include "ir/op.h"
#include "ir/reducer.h"
#include "ir/type.h"
#include "support/arena.h"

typedef uint32_t ef_expr;
typedef struct ef_dag ef_dag;

/* The type of op[attr](children), or 0 and a message. Pure: the one place where the typing rules stand. */
ef_type ef_infer(ef_ctx *ctx, ef_op op, uint64_t attr, const ef_type *children, unsigned count, ef_diag *diag);

/* The element type that a pointwise operator makes of its operands'. */
ef_dtype ef_pointwise_dtype(ef_op op, uint64_t attr, const ef_dtype *operands, unsigned count);

ef_dag *ef_dag_new(ef_ctx *ctx);
void ef_dag_free(ef_dag *dag);
ef_ctx *ef_dag_ctx(const ef_dag *dag);
/* EF_NONE and a message when ill-typed. Views come out canonical (ef_dag_view). */
ef_expr ef_dag_add(ef_dag *dag, ef_op op, uint64_t attr, const ef_expr *children, unsigned count, ef_diag *diag);
/* The same without canonicalising views: for proofs, whose steps must show how views merge. */
ef_expr ef_dag_add_exact(ef_dag *dag, ef_op op, uint64_t attr, const ef_expr *children, unsigned count, ef_diag *diag);
ef_expr ef_dag_input(ef_dag *dag, uint32_t input);
ef_expr ef_dag_const(ef_dag *dag, double value);
/* A view in canonical form: views of views are one node, literals are not viewed, and level-1 axes that only replicate
 * (values that do not change in a loop) stand alone, outside of all others. */
ef_expr ef_dag_view(ef_dag *dag, ef_axes axes, ef_expr x, ef_diag *diag);
uint32_t ef_dag_count(const ef_dag *dag);
ef_op ef_dag_op(const ef_dag *dag, ef_expr e);
uint64_t ef_dag_attr(const ef_dag *dag, ef_expr e);
unsigned ef_dag_children(const ef_dag *dag, ef_expr e, const ef_expr **children);
ef_type ef_dag_type(const ef_dag *dag, ef_expr e);

/* Splits `axes` for a view of a value of type `type`: *inner is applied first, *outer (level-1 axes that only
 * replicate) on top. Shared by ef_dag_view and the e-graph. */
void ef_view_split(ef_ctx *ctx, ef_axes axes, ef_type type, ef_axes *inner, ef_axes *outer);

/* A program: named inputs and outputs over a DAG, with the statements' names so that it prints as it was written. */
typedef struct {
    const char *name;
    ef_expr expr;
} ef_named;

typedef struct ef_program {
    ef_dag *dag;
    const char *name;
    const char *comment; /* leading comment block, "" when none */
    uint32_t inputs, outputs, statements;
    uint32_t *input; /* input ids, in order */
    ef_named *output, *statement;
    ef_arena *arena; /* owns names and arrays; NULL when the caller's arena does */
} ef_program;

/* text.c: parses a whole program; `file` is used in messages "file:line:column: …". NULL and a message on bad input.
 * The program's DAG is new, in `ctx`; several programs may share a context (their inputs and dimensions then agree by
 * name). */
ef_program *ef_program_parse(ef_ctx *ctx, const char *text, size_t length, const char *file, ef_diag *diag);
/* The same with every type of floats read as f64: the program that gives reference results when it is compiled. */
ef_program *ef_program_parse_f64(ef_ctx *ctx, const char *text, size_t length, ef_diag *diag);
/* Reads a file; refuses what is larger than 8 MiB. */
ef_program *ef_program_read(ef_ctx *ctx, const char *path, ef_diag *diag);
void ef_program_print(const ef_program *program, ef_strbuf *out);
/* Another form of a program: its outputs are computed by these expressions. */
void ef_program_print_form(const ef_program *program, ef_dag *dag, const ef_expr *output, ef_strbuf *out);
void ef_program_free(ef_program *program);
/* One expression as nested text on one line; with_types adds ": type" at the end. */
void ef_expr_print(const ef_dag *dag, ef_expr e, ef_strbuf *out);

#endif
