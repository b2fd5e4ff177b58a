/* Reading `.pt2` archives: what the parts of the reader share. Private to src/frontend.
 *
 * The archive (torch.export.save of 2.9 to 2.14, archive version 0) is a zip file with one folder at its root:
 *   archive_format                             "pt2"
 *   archive_version                            "0"
 *   byteorder                                  "little"
 *   models/NAME.json                           the program: graph and signature
 *   data/weights/NAME_weights_config.json      parameters and persistent buffers: which entry holds their bytes
 *   data/weights/weight_0 …                    one storage each
 *   data/constants/NAME_constants_config.json  the same for other buffers and constants
 *   data/constants/tensor_0 …
 *   data/sample_inputs/NAME.pt                 pickled; never read
 *
 * Files: pt2.c opens the archive and checks versions; pt2_json.c reaches into JSON with messages; pt2_graph.c reads
 * values and nodes; pt2_argument.c reads arguments; pt2_signature.c reads inputs and outputs; pt2_data.c finds and
 * copies the bytes of parameters. */
#ifndef EF_FRONTEND_PT2_H
#define EF_FRONTEND_PT2_H

#include <jansson.h>

#include "frontend/exported.h"
#include "support/archive.h"
#include "support/arena.h"
#include "support/hash.h"
#include "support/vec.h"

#define PT2_MAX_JSON (UINT64_C(64) << 20) /* bytes of one JSON entry */
#define PT2_MAX_DEPTH 64                  /* submodules inside of each other */

/* The archive stays open for ef_exported_data. */
typedef struct ef_exported_store {
    ef_arena *arena;
    ef_archive *archive;
    char *path, *root; /* root: the folder, "model/" */
} pt2_store;

/* The names of one graph. A submodule sees its own names only. */
typedef struct {
    json_t *tensors, *sym_ints; /* name -> what it is, in the archive's words */
    const char *path;           /* where the exported module has its submodules: "", "submod_1." */
    ef_intern *names;
    EF_VEC(uint32_t) value; /* by the name's number */
} pt2_scope;

typedef struct {
    ef_exported *program;
    pt2_store *store;
    ef_diag *diag;
    char where[200];             /* for messages: "node 'add_1' (aten.add.Tensor)" */
    json_t *weights, *constants; /* FQN -> payload */
    ef_intern *names;            /* of all values */
    EF_VEC(ef_xvalue) values;
    EF_VEC(ef_xnode) nodes;
    EF_VEC(ef_xinput) inputs;
    EF_VEC(ef_xoutput) outputs;
} pt2_reader;

/* ---- pt2_json.c ---- */

/* One line "FILE: WHERE: message". Returns false. */
bool pt2_fail(pt2_reader *r, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* A member of an object. The getters fail with a message when the object or the member is missing or of another type;
 * an object or array in the archive is borrowed from its parent. */
json_t *pt2_object(pt2_reader *r, json_t *parent, const char *key);
json_t *pt2_array(pt2_reader *r, json_t *parent, const char *key);
/* A string of the arena; NULL and a message when there is none. */
const char *pt2_string(pt2_reader *r, json_t *parent, const char *key);
bool pt2_integer(pt2_reader *r, json_t *value, int64_t *out);
/* Numbers, and "Infinity", "-Infinity", "NaN". */
bool pt2_number(pt2_reader *r, json_t *value, double *out);
/* A tagged union: an object with one member that is not null. Its name, and its value in *value; NULL and a message
 * when it is something else. */
const char *pt2_union(pt2_reader *r, json_t *object, json_t **value);
char *pt2_copy(pt2_reader *r, const char *text);
/* The JSON text of a value, in the arena. */
const char *pt2_dump(pt2_reader *r, json_t *value);
/* A JSON entry of the archive, NULL and a message when it is missing or is no JSON object. The caller's. */
json_t *pt2_load(pt2_reader *r, const char *name);

/* ---- pt2_graph.c ---- */

/* Adds a value for a name of this scope; EF_NONE and a message when the name is taken or unknown. */
uint32_t pt2_define(pt2_reader *r, pt2_scope *scope, const char *name, ef_xvalue_kind kind);
/* The value of a name; EF_NONE and a message when it is not defined (yet). */
uint32_t pt2_lookup(pt2_reader *r, pt2_scope *scope, const char *name);
/* {dtype, sizes, strides, layout, device} */
bool pt2_tensor_meta(pt2_reader *r, json_t *meta, ef_xvalue *value);
bool pt2_scope_open(pt2_reader *r, pt2_scope *scope, json_t *graph);
void pt2_scope_close(pt2_scope *scope);
/* Words of [A-Za-z0-9_], none of which begins with a digit, with dots between them. */
bool pt2_is_path(const char *name);
/* All nodes of a graph whose inputs are defined in `scope`. */
bool pt2_nodes(pt2_reader *r, pt2_scope *scope, json_t *graph, unsigned depth);

/* ---- pt2_argument.c ---- */

/* Reads an argument whose values are defined. */
bool pt2_argument(pt2_reader *r, pt2_scope *scope, json_t *argument, ef_xarg *out);
/* Reads an output of a node and defines its values. */
bool pt2_result(pt2_reader *r, pt2_scope *scope, json_t *argument, ef_xarg *out);

/* ---- pt2_signature.c ---- */

bool pt2_inputs(pt2_reader *r, pt2_scope *scope, json_t *graph, json_t *signature);
bool pt2_outputs(pt2_reader *r, pt2_scope *scope, json_t *graph, json_t *signature);

/* ---- pt2_data.c ---- */

/* Fills in where the bytes of an input stand; `target` names it in the payload configuration. */
bool pt2_payload(pt2_reader *r, const char *target, ef_xinput *input);

#endif
