/* Translation: from an exported graph to a draft and external calls.
 *
 * The graph is walked once, in order. Each tensor value has CONTENTS, a node of the draft; a node of the graph either
 * becomes draft nodes (aten.h) or an external call, whose results are inputs of the draft.
 *
 * PyTorch writes to tensors in place, and views share memory; the IR is pure. So writing gives a value new contents:
 * the values that it is a view of get theirs, with the written part replaced, and other views of the same memory are
 * computed anew when they are read next (functionalisation). What has been written to an input of the module at the end
 * is a mutation. Where a write cannot be followed, nothing is translated: the module then is external calls alone,
 * which PyTorch runs as it would have. */
#ifndef EF_FRONTEND_TRANSLATE_H
#define EF_FRONTEND_TRANSLATE_H

#include "frontend/draft.h"
#include "frontend/exported.h"

/* A tensor as it was at some moment: contents in the draft, or (node = EF_NONE) a value that the IR cannot hold. */
typedef struct {
    uint32_t value; /* of the exported program */
    ef_dn node;
} ef_ref;

/* An external call. `args`: every tensor among the arguments, in the order in which they stand there. */
typedef struct {
    const ef_xnode *node; /* NULL: a copy of its one argument, named `copy` */
    bool functional;      /* an in-place operator: call the one that returns the result instead */
    const char *reason;
    uint32_t args;
    const ef_ref *arg;
    uint32_t copy; /* index among the copies */
} ef_call;

typedef struct {
    ef_dn node;
    uint32_t parent;  /* the value that it is a view of; EF_NONE */
    uint32_t maker;   /* the graph's node that made the view; EF_NONE: it is its parent under another name */
    uint32_t storage; /* whose memory it shares, by number */
    uint32_t version; /* of the storage, when the contents were computed */
} ef_contents;

typedef struct {
    uint32_t version;
    bool opaque; /* an external call has made a view of it */
} ef_storage;

typedef struct ef_translation {
    const ef_exported *exported;
    ef_draft *draft;
    ef_arena *arena;
    bool lower;       /* false: everything stays external */
    const char *lost; /* why a write could not be followed, or NULL */
    ef_contents *contents;
    uint32_t *caller; /* by value: the call that made it, EF_NONE */
    bool *used;       /* by value */
    EF_VEC(ef_storage) storages;
    EF_VEC(ef_call) calls;
    EF_VEC(uint32_t) named; /* by draft node: the first value that had it for contents, EF_NONE */
    ef_ref *output;         /* by output of the exported program */
    EF_VEC(ef_ref) mutated; /* node: new contents of the input `value` */
    uint32_t copies;
    uint32_t standing_in; /* while a view is taken apart: this value is read as `stand_in` */
    ef_dn stand_in;
} ef_translation;

/* The number of the value that copy i is: beyond those of the exported program. */
#define ef_copy_value(l, i) ((l)->exported->values + (i))

ef_translation *ef_translate(const ef_exported *exported);
void ef_translation_free(ef_translation *l);

/* aliasing.c: the contents of a value now; EF_NONE when they are not in the IR. */
ef_dn ef_contents_read(ef_translation *l, uint32_t value);
/* Gives a value new contents, and with it everything that shares its memory. False, with l->lost, when that cannot be
 * followed. */
bool ef_contents_write(ef_translation *l, uint32_t value, ef_dn node);
/* A value with memory of its own. */
void ef_contents_new(ef_translation *l, uint32_t value, ef_dn node);
/* A value that shares memory with `parent`. */
void ef_contents_view(ef_translation *l, uint32_t value, ef_dn node, uint32_t parent, uint32_t maker);

/* translate.c: translates one node of the graph into `result` (by result, EF_NONE where nobody uses it); NULL or a
 * reason. */
const char *ef_translate_node(ef_translation *l, uint32_t node, uint32_t *results, uint32_t **value, ef_dn **result);

#endif
