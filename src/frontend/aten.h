/* ATen in terms of the IR: one table row for each operator, in files by family.
 *
 * A row's function reads its node's arguments, builds the meaning in the draft, and gives the results. Composite
 * operators (those that torch.export keeps for training, as `linear` and `layer_norm`) and core ATen (`addmm`,
 * `native_layer_norm`) stand in one table; overloads share a row, because arguments have names. PyTorch's defaults for
 * what a node leaves out stand at the call that reads it.
 *
 * A function that cannot say what its node says refuses, with a reason; the call then stays external (module.h). The
 * sizes and types of all results are compared with what the exporter noted, so a wrong shape is never passed on. */
#ifndef EF_FRONTEND_ATEN_H
#define EF_FRONTEND_ATEN_H

#include "frontend/draft.h"
#include "frontend/exported.h"
#include "ir/reducer.h"

typedef struct ef_aten ef_aten;

/* How results relate to the memory of the first argument. */
typedef enum {
    EF_FRESH,      /* new memory */
    EF_SHARED,     /* the same memory, always */
    EF_SAME,       /* the argument itself, where type and sizes are the same */
    EF_CONTIGUOUS, /* a view where the argument is contiguous, else a copy */
} ef_alias;

typedef bool (*ef_aten_fn)(ef_aten *c, int param);

typedef struct {
    const char *name; /* without namespace, overload and the underscore of in-place operators */
    ef_aten_fn lower;
    int param;
    ef_alias alias;
} ef_aten_row;

/* The tables, each ended by a row without a name. */
extern const ef_aten_row ef_aten_pointwise[], ef_aten_reductions[], ef_aten_products[], ef_aten_normalisations[],
    ef_aten_views[], ef_aten_constructors[];

/* The row of a target ("aten.add_.Tensor"), or NULL. */
const ef_aten_row *ef_aten_find(const char *target);

/* One node being lowered. */
struct ef_aten {
    ef_draft *draft;
    const ef_exported *exported;
    const ef_xnode *node;
    ef_dn (*read)(void *user, uint32_t value); /* the present contents of a tensor value, EF_NONE when not in the IR */
    void *user;
    uint32_t results; /* tensors, those in lists one by one */
    uint32_t *value;  /* of each result; EF_NONE: nobody uses it */
    ef_dn *result;    /* EF_NONE until given */
    const char *reason;
};

/* The IR's type for a scalar of PyTorch, EF_DTYPE_COUNT when it has none. */
ef_dtype ef_aten_type(ef_xscalar scalar);

/* ---- arguments, by name or else by position; `none` is what a missing or None argument gives ---- */

bool ef_aten_has(const ef_aten *c, const char *name, uint32_t position);
/* A tensor, or a number as itself. EF_NONE when it is neither. */
ef_dn ef_aten_operand(ef_aten *c, const char *name, uint32_t position);
/* The tensors of a list; `count` of them at most. Returns how many, 0 when one is missing or there are more. */
unsigned ef_aten_operands(ef_aten *c, const char *name, uint32_t position, ef_dn *x, unsigned count);
double ef_aten_number(const ef_aten *c, const char *name, uint32_t position, double none);
int64_t ef_aten_int(const ef_aten *c, const char *name, uint32_t position, int64_t none);
bool ef_aten_flag(const ef_aten *c, const char *name, uint32_t position, bool none);
const char *ef_aten_text(const ef_aten *c, const char *name, uint32_t position, const char *none);
/* A list of integers, or one as a list; at most `count` (else 0). *given tells an empty list from none. */
unsigned ef_aten_ints(const ef_aten *c, const char *name, uint32_t position, int64_t *list, unsigned count,
                      bool *given);
/* A dimension of a tensor of this rank as an index from the last; negative ones count from the end, as in PyTorch.
 * EF_MAX_RANK when there is no such dimension. */
unsigned ef_aten_dim(int64_t dim, unsigned rank);

/* ---- operands ---- */

unsigned ef_aten_rank(const ef_aten *c, ef_dn x);
/* Sizes, outermost first; returns the rank. */
unsigned ef_aten_sizes(const ef_aten *c, ef_dn x, int64_t *size);
ef_dtype ef_aten_dtype(const ef_aten *c, ef_dn x);

/* ---- results ---- */

/* The type and sizes that the exporter noted for result k. */
ef_dtype ef_aten_result_type(const ef_aten *c, uint32_t k);
unsigned ef_aten_result_sizes(const ef_aten *c, uint32_t k, int64_t *size);
/* Gives result k. EF_NONE: false, with a reason unless there is one. */
bool ef_aten_give(ef_aten *c, uint32_t k, ef_dn x);
bool ef_aten_refuse(ef_aten *c, const char *reason);

/* ---- building, short ---- */

static inline ef_dn ef_u(ef_aten *c, ef_op op, ef_dn x)
{
    return ef_dn_unary(c->draft, op, x);
}

static inline ef_dn ef_b(ef_aten *c, ef_op op, ef_dn a, ef_dn b)
{
    return ef_dn_binary(c->draft, op, a, b);
}

/* op(x, number) */
static inline ef_dn ef_n(ef_aten *c, ef_op op, ef_dn x, double number)
{
    return ef_dn_with(c->draft, op, x, number);
}

/* Several dimensions (indices from the last), which stay as 1. */
ef_dn ef_aten_reduce(ef_aten *c, ef_reducer_kind kind, ef_dn x, const unsigned *index, unsigned count);
/* Their elements' number. */
double ef_aten_extent(const ef_aten *c, ef_dn x, const unsigned *index, unsigned count);
/* exp(x - max) / sum along a dimension. */
ef_dn ef_aten_softmax(ef_aten *c, ef_dn x, unsigned index);
/* (x - mean) / sqrt(var + eps) along dimensions; *mean and *scale are what it was made with, unless NULL. */
ef_dn ef_aten_standardise(ef_aten *c, ef_dn x, const unsigned *index, unsigned count, double eps, ef_dn *mean,
                          ef_dn *scale);
/* PyTorch's matmul for all ranks. */
ef_dn ef_aten_matmul(ef_aten *c, ef_dn a, ef_dn b);
/* Elements where column - row <= diagonal (lower) or >= diagonal, of the last two sizes: a bool of these sizes. */
ef_dn ef_aten_triangle(ef_aten *c, uint64_t rows, uint64_t columns, int64_t diagonal, bool lower);

#endif
