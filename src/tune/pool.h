/* The pool: compile workers and one measuring worker, kept alive (design, section 8).
 *
 * A worker is a process of a given command line that answers one JSON object a line with one JSON object a line, in
 * order (docs/workers.md has the requests). The pool hands jobs to workers, several compilations and one measurement at
 * a time, and gives back replies as they come. A worker that dies, does not answer in time, or answers nonsense is
 * killed and replaced; what it was doing is answered LOST. So whatever a candidate does costs that candidate.
 *
 * A measuring worker holds a prepared program; a new one is given it again before its next job. */
#ifndef EF_TUNE_POOL_H
#define EF_TUNE_POOL_H

#include <jansson.h>
#include <stdint.h>

#include "support/diag.h"

typedef struct ef_pool ef_pool;

typedef struct {
    const char *const *command; /* a worker's argv; ends with NULL */
    unsigned compilers;         /* 0: one a processor */
    bool quiet;                 /* compile workers stand still while something is measured: they share its processor */
    double start_s;             /* how long a worker may take for its first reply; 0: 120 */
} ef_pool_options;

typedef enum {
    EF_REPLY_FINE,    /* the worker did it: "ok" is true */
    EF_REPLY_REFUSED, /* it says that it cannot be done: "ok" is false */
    EF_REPLY_LOST     /* the worker died or hung over it, or there are no workers any more */
} ef_reply_status;

typedef struct {
    uint64_t job;
    ef_reply_status status;
    json_t *json;    /* FINE, REFUSED: the reply; the receiver decrefs it. NULL when LOST */
    bool late;       /* LOST: the worker did not answer in time */
    char error[256]; /* REFUSED, LOST: one line */
} ef_reply;

/* Starts the workers without waiting for them. NULL and a message when there is no place for their files. */
ef_pool *ef_pool_new(const ef_pool_options *options, ef_diag *diag);
/* Kills the workers and removes their files. */
void ef_pool_free(ef_pool *pool);
/* A private directory for artifacts; gone with the pool, or when a later pool finds it left over by a dead process. */
const char *ef_pool_directory(const ef_pool *pool);

/* Jobs. Each takes a reference to `request`, without its "id", and returns the number that its reply will have; it may
 * take `timeout` seconds. `program` is what the measuring worker is to hold from now on, every new one again. */
uint64_t ef_pool_compile(ef_pool *pool, json_t *request, double timeout);
uint64_t ef_pool_program(ef_pool *pool, json_t *request, double timeout);
uint64_t ef_pool_measure(ef_pool *pool, json_t *request, double timeout);

/* Waits up to `seconds` for a reply. False when none came. */
bool ef_pool_wait(ef_pool *pool, double seconds, ef_reply *reply);
/* Forgets the jobs that wait. Workers finish what they are at; the replies to that come all the same. */
void ef_pool_drop(ef_pool *pool);
/* Whether a worker is at this compilation. */
bool ef_pool_compiles(const ef_pool *pool, uint64_t id);
/* Ends a worker that is at it, for nobody wants it any more: another takes its place. There is no reply. */
void ef_pool_abandon(ef_pool *pool, uint64_t id);
/* Forgets the program, and ends the worker that prepares it, if one does: the next program need not wait for that.
 * There is no reply. */
void ef_pool_abandon_program(ef_pool *pool);
/* Why there are no workers any more; NULL while there are. */
const char *ef_pool_broken(const ef_pool *pool);
/* What the measuring worker said of itself, or NULL while it has not; the pool's own. */
const json_t *ef_pool_hello(const ef_pool *pool);
/* How many workers compile. */
unsigned ef_pool_compilers(const ef_pool *pool);
/* Workers that were replaced so far. */
unsigned ef_pool_replaced(const ef_pool *pool);

#endif
