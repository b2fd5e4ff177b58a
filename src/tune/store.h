/* The store: what was measured, in a SQLite file (design, section 8).
 *
 * Results are keyed by what they depend on: the program (a hash of its canonical form, canonical.h), the device and
 * the versions that measured (one text, identity.h), the family and the schedule. Beside them stands the best
 * implementation of each program and device as a whole. Every write is one transaction in write-ahead mode: a process
 * that is killed loses at most the write it was at, and several processes may use one file at once.
 *
 * A store is a cache. One that cannot be read is set aside (renamed to NAME.bad) and a new one begun; one that cannot
 * be written makes one message and no failure. */
#ifndef EF_TUNE_STORE_H
#define EF_TUNE_STORE_H

#include <stdint.h>

#include "support/arena.h"
#include "support/diag.h"

typedef struct ef_store ef_store;

/* Of the tables, of the code that is generated, and of what a result had to pass: another one is another store. */
#define EF_STORE_VERSION 6

/* The path of the store unless told: $EQUIFORGE_STORE, $XDG_CACHE_HOME/equiforge/store-N.db,
 * ~/.cache/equiforge/store-N.db, where N is EF_STORE_VERSION: versions side by side have a store each. False when none
 * of them is set. */
bool ef_store_default_path(char *path, unsigned room);
/* Opens or makes a store and the directories above it. Never fails: without a usable file results are kept nowhere.
 * `note`: one line when that or something else should be known, "" otherwise. */
ef_store *ef_store_open(const char *path, ef_diag *note);
void ef_store_close(ef_store *store);

typedef struct {
    const char *program, *device; /* hash; identity */
    uint64_t family;
    const char *schedule; /* text */
    double us, warm_us, rel_l2;
    const char *status;    /* "fine", "lost", or as in docs/workers.md */
    const char *error;     /* one line, "" when fine */
    const char *kernel_us; /* what each kernel took, as a JSON list; "": not known */
    uint32_t guilty;       /* the kernel because of which it failed; UINT32_MAX: not known */
    int64_t at;            /* when it was put, in milliseconds since 1970; of what is read only */
} ef_store_result;

void ef_store_put(ef_store *store, const ef_store_result *result);
/* Calls back for every result of a family, in the order in which they were put. */
typedef void (*ef_store_each)(void *user, const ef_store_result *result);
void ef_store_results(ef_store *store, const char *program, const char *device, uint64_t family, ef_store_each each,
                      void *user);
/* How many results of a program there are. */
uint64_t ef_store_count(ef_store *store, const char *program, const char *device);

/* The best implementation: a JSON text that the driver understands, and the budget in seconds that was spent on it. */
void ef_store_put_best(ef_store *store, const char *program, const char *device, const char *json, double budget_s);
/* NULL: there is none. The text is the arena's. */
const char *ef_store_best(ef_store *store, const char *program, const char *device, double *budget_s, ef_arena *arena);

#endif
