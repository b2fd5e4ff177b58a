/* The PyTorch generator's parts, private to torch*.c: torch.c prints the module and its statements, torch_value.c
 * expressions, torch_lists.c what a caller must know of inputs and outputs. */
#ifndef EF_CODEGEN_TORCH_PRINT_H
#define EF_CODEGEN_TORCH_PRINT_H

#include "codegen/torch.h"
#include "support/hash.h"

typedef struct {
    uint32_t uses;
    ef_expr user, last; /* of its users the last one; the last statement that needs it, EF_NONE: the result does */
    uint8_t depth;
    bool folded;      /* a number, `value` */
    bool statement;   /* has a line of its own */
    const char *name; /* of the variable that holds it, once it is printed */
    double value;
} ef_torch_node;

typedef struct {
    const ef_program *program;
    const ef_dag *dag;
    ef_ctx *ctx;
    ef_torch_node *node;
    const char **input; /* names of the inputs */
    bool *var_used;     /* variables whose extents the code needs */
    ef_intern *taken;
    ef_arena *arena;
    ef_strbuf *out;
    uint32_t autos;
} ef_torch;

static inline const ef_type_info *ef_torch_type(const ef_torch *p, ef_expr e)
{
    return ef_type_at(p->ctx, ef_dag_type(p->dag, e));
}

/* torch_value.c */
extern const char *const ef_torch_types[EF_DTYPE_COUNT]; /* in the code: "f16", "torch.int32" */
/* An expression, spelled out although it may have a name. */
void ef_torch_value(ef_torch *p, ef_expr e, ef_strbuf *out);
/* The same by its name if it has one; a number as a tensor of rank 0. */
void ef_torch_tensor(ef_torch *p, ef_expr e, ef_strbuf *out);
/* Whether it divides the sum of a dimension by how many elements that has. PyTorch's own mean does not round the sum,
 * which may leave the range of a narrow type; so such a sum stands inside the division. */
bool ef_torch_is_mean(const ef_torch *p, ef_expr e);

/* torch_lists.c: all lists of the module (torch.h). */
void ef_torch_lists(const ef_torch *p);

#endif
