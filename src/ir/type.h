/* Types: logical shapes over named dimensions, and parallel state (paper, section 3.1; design, section 3).
 *
 * A dimension VARIABLE is a named extent (rows of Q, keys, head dimension). A DIMENSION of a tensor is an ordered
 * product of variables: 32 heads of 128 merged into 4096 columns are the dimension h*d. The empty product is the unit
 * dimension, extent 1, id 0. Extent-1 variables do not exist: they are the unit dimension. Where one variable would
 * stand in two dimensions of a tensor, as in the scores of self-attention, the second is its TWIN s' (twin.h).
 *
 * A parallel AXIS is (variable, level): level 0 is the outer split (blocks), level 1 the inner tile (the loop inside a
 * block). An axis cuts the dimension whose FIRST variable is the axis's own; a tensor without that variable is
 * replicated. So a set of axes alone says how any tensor is viewed: `view[{m.0, k.1}] x` is the canonical chain of
 * partition and replicate operators, sorted by axis, of the paper. Axes sort by level, then by variable.
 *
 * A tensor type is {dtype, shape, place of each axis in scope}; the shape is logical and never changes under parallel
 * operators. Everything here is interned in an ef_ctx: equal things have equal ids. */
#ifndef EF_IR_TYPE_H
#define EF_IR_TYPE_H

#include <stdbool.h>
#include <stdint.h>

#include "support/diag.h"
#include "support/strbuf.h"

typedef uint32_t ef_var;
typedef uint32_t ef_dim;  /* 0 is the unit dimension */
typedef uint32_t ef_dims; /* list of dimensions, interned, outermost first */
typedef uint32_t ef_axis; /* level << 24 | variable */
typedef uint32_t ef_axes; /* sorted set of axes, interned; 0 is the empty set */
typedef uint32_t ef_type; /* 0 is "no type" */

#define EF_UNIT 0u
#define EF_NONE UINT32_MAX
#define EF_MAX_RANK 8
#define EF_MAX_ATOMS 8
#define EF_MAX_PLACES 16
#define EF_MAX_AXES (2 * EF_MAX_PLACES) /* of a set */
#define EF_MAX_FIELDS 8
#define EF_MAX_EXTENT (UINT64_C(1) << 40) /* of a dimension and of a whole tensor */
#define EF_MAX_VARS (1u << 24)

/* Ordered so that the type of a float operation is the larger of its operands' types, except f16 with bf16: f32.
 * EF_NUM is the type of literals: it gives way to any other. */
typedef enum { EF_BOOL, EF_NUM, EF_I32, EF_I64, EF_F16, EF_BF16, EF_F32, EF_F64, EF_DTYPE_COUNT } ef_dtype;
extern const char *const ef_dtype_names[EF_DTYPE_COUNT];
ef_dtype ef_dtype_join(ef_dtype a, ef_dtype b);
unsigned ef_dtype_bytes(ef_dtype dtype); /* of one stored element */
static inline bool ef_dtype_is_float(ef_dtype d)
{
    return d >= EF_F16;
}

typedef enum {
    EF_VAR_NAMED,
    EF_VAR_SLICE,  /* positions [start, stop) of a dimension */
    EF_VAR_CONCAT, /* several dimensions one after the other */
    EF_VAR_TWIN,   /* the same positions as another variable, by another name: s', see twin.h */
    EF_VAR_JOINED, /* several variables as one; in kernels, not in programs */
    EF_VAR_COUNT   /* the coordinates of a parallel axis: what a collection makes; extent symbolic (0) */
} ef_var_kind;

typedef struct {
    const char *name; /* EF_VAR_NAMED only */
    ef_var_kind kind;
    uint64_t extent;
    ef_dim parent; /* SLICE; JOINED: what is one now; TWIN: of one variable */
    uint32_t start, stop;
    ef_dims parts; /* CONCAT */
    ef_axis axis;  /* COUNT */
} ef_var_info;

typedef enum { EF_PARTITION, EF_REPLICATE, EF_PARTIAL } ef_kind;

typedef struct {
    ef_axis axis;
    uint16_t kind; /* ef_kind */
    uint16_t dim;  /* PARTITION: the index, from the last, of the dimension that is cut */
} ef_place;

typedef struct {
    uint8_t is_tuple, dtype, rank, places, fields, unused[3];
    ef_dim dim[EF_MAX_RANK];       /* dim[0] is the LAST dimension */
    ef_place place[EF_MAX_PLACES]; /* sorted by axis */
    ef_type field[EF_MAX_FIELDS];
} ef_type_info;

typedef struct ef_ctx ef_ctx;

ef_ctx *ef_ctx_new(void);
void ef_ctx_free(ef_ctx *ctx);

/* Variables. A named variable is declared once: a second declaration with another extent fails (EF_NONE). Extents are
 * at least 2. */
ef_var ef_var_named(ef_ctx *ctx, const char *name, unsigned length, uint64_t extent, ef_diag *diag);
ef_var ef_var_find(const ef_ctx *ctx, const char *name, unsigned length); /* EF_NONE when absent */
uint32_t ef_var_count(const ef_ctx *ctx);
const ef_var_info *ef_var_at(const ef_ctx *ctx, ef_var var);
/* One variable for several, the outermost first. */
ef_var ef_var_joined(ef_ctx *ctx, const ef_var *atoms, unsigned count);
/* Changes the extent of a named variable: how the checker re-evaluates a program at small sizes. Its twins change with
 * it; other derived variables (slices, concatenations) keep theirs. Extents that depend on each other: resize.h. */
void ef_var_resize(ef_ctx *ctx, ef_var var, uint64_t extent);
/* Concatenations become as long as what they are made of. */
void ef_concat_resize(ef_ctx *ctx);

/* Dimensions. */
ef_dim ef_dim_of_var(ef_ctx *ctx, ef_var var);
ef_dim ef_dim_product(ef_ctx *ctx, const ef_var *atoms, unsigned count);    /* EF_NONE: too many atoms, too large */
unsigned ef_dim_atoms(const ef_ctx *ctx, ef_dim dim, const ef_var **atoms); /* number of variables */
bool ef_dim_has(const ef_ctx *ctx, ef_dim dim, ef_var var);                 /* as one of them */
uint64_t ef_dim_extent(const ef_ctx *ctx, ef_dim dim);
bool ef_dim_is_count(const ef_ctx *ctx, ef_dim dim); /* made by a collection */
ef_dim ef_dim_slice(ef_ctx *ctx, ef_dim dim, uint32_t start, uint32_t stop);
ef_dim ef_dim_concat(ef_ctx *ctx, const ef_dim *parts, unsigned count);
ef_dim ef_dim_count(ef_ctx *ctx, ef_axis axis);
ef_dim ef_dim_twin(ef_ctx *ctx, ef_dim dim); /* s as s', h*d as h'*d', s[0:4] as s'[0:4]; EF_NONE of a count */
ef_dim ef_dim_base(ef_ctx *ctx, ef_dim dim); /* without any ' */
ef_dims ef_dims_intern(ef_ctx *ctx, const ef_dim *dims, unsigned count);
unsigned ef_dims_at(const ef_ctx *ctx, ef_dims list, const ef_dim **dims);

/* Axes and sets of axes. */
#define ef_axis_of(var, level) ((ef_axis)(var) | (ef_axis)(level) << 24)
#define ef_axis_var(axis) ((axis) & 0xffffffu)
#define ef_axis_level(axis) ((axis) >> 24)
/* What a set of more than EF_MAX_AXES axes becomes, and every union with it. Nothing has such a type: a view or
 * combination over it, and a tuple in its scope, are ill-typed. */
#define EF_AXES_TOO_MANY ((ef_axes)1)
ef_axes ef_axes_intern(ef_ctx *ctx, const ef_axis *axes, unsigned count); /* sorts and removes doubles */
unsigned ef_axes_at(const ef_ctx *ctx, ef_axes set, const ef_axis **axes);
ef_axes ef_axes_union(ef_ctx *ctx, ef_axes a, ef_axes b);
ef_axes ef_axes_minus(ef_ctx *ctx, ef_axes a, ef_axes b);
bool ef_axes_has(const ef_ctx *ctx, ef_axes set, ef_axis axis);
bool ef_axes_subset(const ef_ctx *ctx, ef_axes inner, ef_axes outer);

/* Types. */
ef_type ef_type_intern(ef_ctx *ctx, const ef_type_info *info); /* unused entries must be zero */
const ef_type_info *ef_type_at(const ef_ctx *ctx, ef_type type);
ef_type ef_type_tensor(ef_ctx *ctx, ef_dtype dtype, const ef_dim *outermost_first, unsigned rank);
ef_type ef_type_tuple(ef_ctx *ctx, const ef_type *fields, unsigned count);
/* A literal's type: EF_NUM, rank 0, no state. It may stand in any parallel scope without a replicate. */
bool ef_type_is_literal(const ef_ctx *ctx, ef_type type);
/* The place of an axis in a tensor type, or NULL when the axis is absent. */
const ef_place *ef_type_place(const ef_type_info *info, ef_axis axis);
/* All axes in scope; for a tuple those of all fields. */
ef_axes ef_type_axes(ef_ctx *ctx, ef_type type);
/* How a view by `axis` would place a tensor of this type: PARTITION(dim) when exactly one dimension begins with the
 * axis's variable, REPLICATE when the variable does not occur. False when the variable occurs twice, or not first. */
bool ef_type_cut(const ef_ctx *ctx, const ef_type_info *info, ef_axis axis, ef_place *place);
/* Those of a set that cut something of a type, for a tuple some field: replication says nothing about what is computed.
 */
ef_axes ef_type_cutting(ef_ctx *ctx, ef_axes axes, ef_type type);

/* Inputs, by name: one name has one type in a context. EF_NONE and a message when the types differ. */
uint32_t ef_input_declare(ef_ctx *ctx, const char *name, unsigned length, ef_type type, ef_diag *diag);
uint32_t ef_input_find(const ef_ctx *ctx, const char *name, unsigned length);
const char *ef_input_name(const ef_ctx *ctx, uint32_t input);
ef_type ef_input_type(const ef_ctx *ctx, uint32_t input);

/* Printing, in the syntax that text.c reads back. */
void ef_var_print(const ef_ctx *ctx, ef_var var, ef_strbuf *out);
void ef_dim_print(const ef_ctx *ctx, ef_dim dim, ef_strbuf *out);
void ef_axis_print(const ef_ctx *ctx, ef_axis axis, ef_strbuf *out);
void ef_type_print(const ef_ctx *ctx, ef_type type, ef_strbuf *out);

#endif
