/* Modules: a file (.pt2 or .ef) as a plan of steps over tensors (design, section 9).
 *
 * A step is either a REGION, a program of the IR that can be searched, compiled and tuned by itself, or an EXTERNAL
 * call: an operator of PyTorch that the IR cannot say and that runs as it is. A .ef file is a module of one region.
 *
 * Steps stand in an order in which they can run. Values are pure: no step changes the contents of another value, with
 * one exception that PyTorch makes itself: results of external calls may share memory with what the call was given.
 * What the original module wrote to its buffers and inputs stands in `mutation`: the runtime copies the value into the
 * target after the last step.
 *
 * Each region of a .pt2 file has a context of its own, so dimension and input names of one region mean nothing in
 * another, and regions may be searched at the same time. Everything belongs to the module and is freed with it. */
#ifndef EF_FRONTEND_MODULE_H
#define EF_FRONTEND_MODULE_H

#include "ir/expr.h"

typedef enum {
    EF_MV_INPUT,     /* given by the caller: `input` is its position among the flattened arguments */
    EF_MV_PARAMETER, /* of the state dict, under `target` */
    EF_MV_BUFFER,    /* … */
    EF_MV_CONSTANT,  /* a tensor that the code made, lifted by the exporter */
    EF_MV_RESULT     /* of step `step` */
} ef_mvalue_kind;

/* A tensor. Its elements are contiguous, the sizes outermost first; of the result of an external call, a size may be
 * -1: only the data decide it. The name is a word of [A-Za-z0-9_], unique in the module. `dtype` is EF_DTYPE_COUNT when
 * the IR has no such type (only external calls touch the value then), and `torch_dtype` "" when it is no tensor but a
 * number that the data decide. */
typedef struct {
    const char *name;
    ef_mvalue_kind kind;
    uint32_t input;
    const char *target;
    const char *entry; /* parameter, buffer, constant: its entry in the archive, NULL when there is none */
    uint32_t source;   /* the same: index of the exported program's input (ef_exported_data); EF_NONE: none */
    uint32_t step;
    ef_dtype dtype;
    const char *torch_dtype; /* "float16", "uint8" */
    uint32_t rank;
    const int64_t *size;
} ef_mvalue;

typedef enum { EF_MS_REGION, EF_MS_EXTERNAL } ef_mstep_kind;

/* One step. `in` and `out` are value ids.
 *
 * REGION: `in` are the program's inputs and `out` its outputs, in the program's order; types agree. No value stands
 * twice among `in` or among `out`.
 *
 * EXTERNAL: `target` is PyTorch's name without "torch.ops." ("aten.embedding.default"), and `arguments` JSON:
 *   {"args": [ARGUMENT, …], "kwargs": {NAME: ARGUMENT, …}}
 * ARGUMENT is null, true, false, a number, a string, a list of ARGUMENT, or an object with one key:
 *   {"tensor": i}           the i-th of `in`, from 0
 *   {"float": "inf"}        "inf", "-inf", "nan"
 *   {"dtype": "float16"}    torch.float16
 *   {"device": "cpu"}, {"layout": "strided"}, {"memory_format": "contiguous_format"}
 *   {"graph": "true_graph_0"}  a submodule of the exported module, with dots for those inside of others
 * `results` says in the same way how the tensors come back, i counting `out`: {"tensor": 0}, a list for a tuple or a
 * list of results, null for what nobody uses. `reason` is one line on why the call is external. */
typedef struct {
    ef_mstep_kind kind;
    uint32_t ins, outs;
    const uint32_t *in, *out;
    ef_program *program;
    const char *target, *arguments, *results, *reason;
} ef_mstep;

/* One of the module's results in the flattened order: a value, or (value = EF_NONE) a literal as JSON: null, a number,
 * true, false, a string, {"float": "inf"}. */
typedef struct {
    uint32_t value;
    const char *literal;
} ef_moutput;

/* After the last step `value` is copied into `target`, a value that is no result. */
typedef struct {
    uint32_t value, target;
} ef_mmutation;

typedef struct ef_module {
    const char *name;
    uint32_t values, steps, outputs, mutations;
    uint32_t user_inputs; /* flattened arguments of the call, tensors and others */
    uint32_t regions;     /* steps that are regions */
    const ef_mvalue *value;
    const ef_mstep *step;
    const ef_moutput *output;
    const ef_mmutation *mutation;
    const char *in_spec, *out_spec; /* PyTorch's pytree text; NULL for a .ef file */
    struct ef_exported *exported;   /* of a .pt2 file: where the data are (ef_exported_data); else NULL */
    struct ef_module_store *store;  /* memory */
} ef_module;

/* Whether a file is named .pt2 or begins as archives do. */
bool ef_module_is_archive(const char *path);
/* Reads a file of either kind, as ef_module_is_archive tells. NULL and one line, "FILE: what is wrong", when it cannot
 * be read. */
ef_module *ef_module_read(const char *path, ef_diag *diag);
/* A program as a module of one region; the program stays the caller's and must outlive the module. Fails when an input
 * or output is a tuple. */
ef_module *ef_module_of_program(ef_program *program, ef_diag *diag);
void ef_module_free(ef_module *module);

/* The regions as text, in order, with the external calls between them as comments. */
void ef_module_print(const ef_module *module, ef_strbuf *out);

/* PyTorch's name of an element type of the IR ("float16"), "" for EF_NUM. */
const char *ef_torch_dtype(ef_dtype dtype);

#endif
