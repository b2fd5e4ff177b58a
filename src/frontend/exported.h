/* Exported programs: what `torch.export.save` writes, as data.
 *
 * An exported program is a flat list of nodes in execution order over numbered values. Targets and arguments stand as
 * PyTorch wrote them: operators are not decomposed, in-place operators (`aten.add_.Tensor`) are not made functional,
 * and defaults are left out. Meaning begins one stage later, in the translation to the IR.
 *
 * The data model follows torch/_export/serde/schema.py, schema version 8, which torch 2.9 to 2.14 write. What differs:
 *  - names are numbers: every name is one index into `value`, unique over the whole program;
 *  - submodules that only switch gradients or autocast off are put in place of their call;
 *  - symbolic integers with a known value are integers.
 *
 * Everything belongs to the program and is freed with it. Nothing is written to disk. */
#ifndef EF_FRONTEND_EXPORTED_H
#define EF_FRONTEND_EXPORTED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "ir/type.h"
#include "support/diag.h"

#define EF_X_MAX_RANK 64

/* Element types, with PyTorch's numbers (c10::ScalarType in schema.py); gaps are unknown. */
typedef enum {
    EF_X_UINT8 = 1,
    EF_X_INT8 = 2,
    EF_X_INT16 = 3,
    EF_X_INT32 = 4,
    EF_X_INT64 = 5,
    EF_X_FLOAT16 = 6,
    EF_X_FLOAT32 = 7,
    EF_X_FLOAT64 = 8,
    EF_X_COMPLEX32 = 9,
    EF_X_COMPLEX64 = 10,
    EF_X_COMPLEX128 = 11,
    EF_X_BOOL = 12,
    EF_X_BFLOAT16 = 13,
    EF_X_UINT16 = 28,
    EF_X_FLOAT8_E4M3FN = 29,
    EF_X_FLOAT8_E5M2 = 30,
    EF_X_FLOAT8_E4M3FNUZ = 31,
    EF_X_FLOAT8_E5M2FNUZ = 32,
    EF_X_FLOAT8_E8M0FNU = 33,
    EF_X_UINT32 = 34,
    EF_X_UINT64 = 35,
    EF_X_SCALAR_COUNT
} ef_xscalar;

/* PyTorch's name ("bfloat16", as in torch.bfloat16) and the bytes of an element; "" and 0 where there is none. */
typedef struct {
    const char *name;
    uint32_t bytes;
} ef_xscalar_info;
extern const ef_xscalar_info ef_xscalars[EF_X_SCALAR_COUNT];

/* torch.memory_format and torch.layout, with schema.py's numbers. */
typedef enum { EF_X_CONTIGUOUS = 1, EF_X_CHANNELS_LAST, EF_X_CHANNELS_LAST_3D, EF_X_PRESERVE } ef_xmemory_format;
#define EF_X_STRIDED 7

/* ---- values ---- */

typedef enum {
    EF_XV_TENSOR,
    EF_XV_SYM_INT, /* a number that is only known at run time */
    EF_XV_SYM_FLOAT,
    EF_XV_SYM_BOOL,
    EF_XV_OTHER /* a token or a custom object */
} ef_xvalue_kind;

#define EF_X_DYNAMIC (-1) /* in place of a size or stride that is only known at run time */

/* One value: an input of the program or a result of a node, never both, and of one node only. Sizes are outermost
 * first; strides and offset count elements. `symbolic`: some size is EF_X_DYNAMIC; inputs are never symbolic. */
typedef struct {
    const char *name; /* as in the archive; unique */
    ef_xvalue_kind kind;
    ef_xscalar dtype; /* the rest is for tensors */
    bool symbolic;
    bool strided; /* false: sparse, quantised … */
    uint32_t rank;
    const int64_t *size, *stride;
    const char *device; /* "cpu", "cuda:0" */
} ef_xvalue;

/* ---- arguments ---- */

typedef enum {
    EF_XA_NONE,
    EF_XA_TENSOR,           /* value */
    EF_XA_TENSORS,          /* values, count */
    EF_XA_OPTIONAL_TENSORS, /* values, count; EF_NONE stands for None */
    EF_XA_INT,              /* integer */
    EF_XA_INTS,             /* integers, count */
    EF_XA_FLOAT,            /* number; may be infinite or NaN */
    EF_XA_FLOATS,           /* numbers, count */
    EF_XA_BOOL,             /* boolean */
    EF_XA_BOOLS,            /* integers (0 or 1), count */
    EF_XA_STRING,           /* text */
    EF_XA_STRINGS,          /* texts, count */
    EF_XA_SCALAR_TYPE,      /* integer: ef_xscalar */
    EF_XA_MEMORY_FORMAT,    /* integer: ef_xmemory_format */
    EF_XA_LAYOUT,           /* integer: EF_X_STRIDED or another */
    EF_XA_DEVICE,           /* text: "cuda:0" */
    EF_XA_SYM,              /* value: a symbolic integer, float or bool */
    EF_XA_SYM_INTS,         /* values, integers, count: values[i], or integers[i] where values[i] is EF_NONE */
    EF_XA_GRAPH, /* text: where the exported module has it, "submod_1.true_graph_0"; boolean: it writes in place */
    EF_XA_OTHER  /* text: JSON as in the archive; complex numbers, operators, lists of lists … */
} ef_xarg_kind;

/* `name` is the parameter's in the operator's schema; `keyword`: it must be passed by name. Only the fields that the
 * kind's comment names are set. */
typedef struct {
    const char *name;
    bool keyword;
    ef_xarg_kind kind;
    bool boolean;
    uint32_t value;
    uint32_t count;
    int64_t integer;
    double number;
    const char *text;
    const uint32_t *values;
    const int64_t *integers;
    const double *numbers;
    const char *const *texts;
} ef_xarg;

/* ---- nodes ---- */

/* A call. `target` without the "torch.ops." in front: "aten.add.Tensor", "higher_order.flex_attention",
 * "_operator.mul", "mylib.my_op.default". An output is TENSOR, TENSORS (chunk, split, …: one list of
 * tensors), SYM, NONE, a known number or OTHER; an operator that returns a tuple of n tensors (topk) has n outputs. */
typedef struct {
    const char *name;
    const char *target;
    uint32_t args, outputs;
    const ef_xarg *arg, *output;
    bool listed;        /* the call returns a list, of one tensor too */
    const char *source; /* "File …, line …, in …" of the innermost frame, "" when unknown */
    const char *module; /* the module it was called in, "model.layers.0.mlp", "" for the outermost or unknown */
} ef_xnode;

/* Whether the node writes to its first argument: the name of an in-place operator ends with "_". Nobody records such
 * writes elsewhere when the program was exported for training, which is what torch.export does. */
bool ef_xnode_in_place(const ef_xnode *node);

/* The argument by name, or by position when names differ between versions (EF_NONE: by name only). NULL when left out:
 * it then has the schema's default. */
const ef_xarg *ef_xnode_arg(const ef_xnode *node, const char *name, uint32_t position);

/* ---- inputs and outputs ---- */

typedef enum {
    EF_XI_USER,      /* given by the caller, in order */
    EF_XI_PARAMETER, /* target: "layers.0.weight" */
    EF_XI_BUFFER,    /* target; persistent: part of the state dict */
    EF_XI_CONSTANT,  /* a tensor made in the code, target: "lifted_tensor_0" */
    EF_XI_OTHER      /* a token or a custom object */
} ef_xinput_kind;

/* A caller's input that is no tensor is a constant: value is EF_NONE and `literal` holds it (its name too). The bytes
 * of parameters, buffers and constants stand in an entry of the archive that several may share (tied weights, views
 * of one storage); entry is NULL when the archive has none: non-persistent, or saved without weights. */
typedef struct {
    ef_xinput_kind kind;
    uint32_t value;
    ef_xarg literal;
    const char *target;
    bool persistent;
    const char *entry;     /* "data/weights/weight_3" */
    uint64_t offset;       /* of the first element in the entry, bytes */
    const int64_t *stride; /* in the entry, elements; the sizes are the value's */
} ef_xinput;

typedef enum {
    EF_XO_USER,
    EF_XO_LOSS,
    EF_XO_BUFFER_MUTATION,    /* the new contents of buffer `target` */
    EF_XO_PARAMETER_MUTATION, /* … of parameter `target` */
    EF_XO_INPUT_MUTATION,     /* … of the caller's input with the value name `target` */
    EF_XO_GRADIENT,           /* of `target` */
    EF_XO_OTHER               /* a token */
} ef_xoutput_kind;

/* value, or EF_NONE and a literal (None, a number, a string). */
typedef struct {
    ef_xoutput_kind kind;
    uint32_t value;
    ef_xarg literal;
    const char *target;
} ef_xoutput;

/* ---- the program ---- */

/* in_spec, out_spec: how the caller's arguments and results nest, as PyTorch's pytree text. */
typedef struct ef_exported {
    const char *name;          /* of the file, without folders and ".pt2" */
    const char *torch_version; /* "2.13.0+cpu" */
    bool training;             /* exported for training: not functional, composites kept */
    uint32_t values, inputs, nodes, outputs;
    const ef_xvalue *value;
    const ef_xinput *input;
    const ef_xnode *node;
    const ef_xoutput *output;
    const char *in_spec, *out_spec;
    struct ef_exported_store *store; /* the archive and the memory */
} ef_exported;

/* Reads and checks an archive: every value is defined before it is used, and once; every size, stride and offset fits
 * its entry. NULL and one line "FILE: what is wrong" when not, or when it holds something that this version cannot
 * read (dynamic shapes, an older layout): the line then says what to do. */
ef_exported *ef_exported_read(const char *path, ef_diag *diag);
void ef_exported_free(ef_exported *program);

/* Checks the sums of all entries, weights included: reading checks those of the entries that it reads. */
bool ef_exported_verify(ef_exported *program, ef_diag *diag);

/* Elements of a tensor value; 0 when symbolic. */
uint64_t ef_xvalue_elements(const ef_xvalue *value);

/* Writes the elements of input `input` (parameter, buffer or constant) into `out`, contiguous in row-major order;
 * `size` must be the elements' size in bytes. False and a message when there are none, or the archive is damaged. */
bool ef_exported_data(ef_exported *program, uint32_t input, void *out, uint64_t size, ef_diag *diag);

#endif
