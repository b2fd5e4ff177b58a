/* Candidates on their way: printed, compiled, measured, stored. Between the driver (optimize.c) and the pool.
 *
 * Several are on the way at once: compile workers and the measuring worker are to be busy together. Schedules that
 * print the same source are one; the second one has the result of the first. */
#ifndef EF_TUNE_FLIGHT_H
#define EF_TUNE_FLIGHT_H

#include "tune/device.h"
#include "tune/families.h"
#include "tune/pool.h"
#include "tune/store.h"

/* One candidate's way. The caller sets the first part; the rest is set when it has landed. */
typedef struct {
    uint32_t family, repeat;
    const uint32_t *choice; /* lives as long as the tuner */
    uint64_t ticket;
    double seconds; /* that its timed calls may take, about; 0: any time */
    int check;      /* 0: on all distributions when it comes near the best, else on one; or on so many, and timed to the
                     * end however slow it is */
    double most_s;  /* … and all of its measuring, else it has failed; 0: as is usual */
    double us, warm_us, rel_l2; /* us INFINITY: it failed */
    bool late;                  /* because its measuring took longer */
    uint32_t guilty;            /* because of this kernel of the family; UINT32_MAX: not known which … */
    bool no_room;               /* … for want of registers or shared memory */
    bool checked;               /* on all distributions */
    double against_us;          /* of the program as it is, called in turns with it; 0: it was not */
    double *kernel_us;          /* by kernel, of the flight's; NULL: not known */
    uint64_t source, hash;      /* of the source; the family's when it was printed */
    /* Private: */
    uint64_t job;
    bool measuring, narrow; /* narrow: printed with narrow temporaries */
    bool hiding;            /* the family's */
    char *artifact;
} ef_trip;

typedef struct {
    uint64_t source;
    double us, warm_us, rel_l2, *kernel_us;
    bool checked, no_room;
    uint32_t guilty;
} ef_known_source;

/* One of the fastest, which need not be compiled again to be measured once more; or what was compiled ahead. */
typedef struct {
    uint64_t source;
    double us; /* 0: no faster one takes its place */
    char *artifact;
} ef_kept_artifact;

/* A compilation that nobody waits for, or what it made. */
typedef struct {
    uint64_t source, job;
    bool ahead;     /* what it makes is kept */
    char *artifact; /* NULL: it goes on */
} ef_loose_compilation;

#define EF_FLIGHT_KEEPS 6u
#define EF_FLIGHT_ENTRY "ef_program" /* of what is printed */

typedef struct {
    const ef_device *device;
    ef_pool *pool;
    ef_store *store; /* NULL: nothing is kept */
    const char *program, *identity;
    ef_arena *arena;
    EF_VEC(ef_trip) trips;  /* on the way */
    EF_VEC(ef_trip) landed; /* not handed out yet */
    EF_VEC(ef_known_source) known;
    EF_VEC(ef_loose_compilation) loose; /* of what was cancelled, or is to be launched */
    uint64_t number, program_job, measured, failed;
    json_t *program_request;
    json_t *spent;  /* seconds of workers by what they did, by what it was spent on */
    double until;   /* nothing is to take longer */
    uint32_t draws; /* distributions */
    ef_kept_artifact kept[EF_FLIGHT_KEEPS];
    ef_trip best;                                  /* of those that were measured and checked on all distributions */
    double original_us, floor_us, bytes, ready_at; /* 0: not known yet */
    bool ready;
    bool late;      /* no candidate can be checked: time was over before there was enough for that */
    bool estimated; /* the time of the program as it is, which takes too long to be called, or too much memory */
    uint32_t most;  /* trips that may be on the way at once */
    char last_error[256];
} ef_flight;

/* Hands the workers of a pool the program, which they should have prepared in some `seconds`; in `end_s` seconds no
 * candidate will be launched any more (0: there is no such end). The pool stays the caller's, and has one flight at a
 * time: what is still being prepared when the flight is freed ends. NULL and a message when the device's workers cannot
 * be told the program. */
ef_flight *ef_flight_new(const ef_program *program, const ef_device *device, ef_pool *pool, uint64_t seed,
                         double seconds, double end_s, ef_diag *diag);
void ef_flight_free(ef_flight *flight);
/* Waits up to `seconds` until the program is prepared. False while it is not; with a message when it cannot be. */
bool ef_flight_ready(ef_flight *flight, double seconds, ef_diag *diag);
/* Results are kept in the store from now on, under this program and device. Strings must outlive the flight. */
void ef_flight_store(ef_flight *flight, ef_store *store, const char *program, const char *identity);
/* Tells the tuner what the store knows of a family. One that had to be widened before is so again. */
void ef_flight_recall(ef_flight *flight, const ef_families *families, uint32_t family, ef_tuner *tuner);

bool ef_flight_has_room(const ef_flight *flight);
void ef_flight_launch(ef_flight *flight, const ef_families *families, const ef_trip *trip);
/* Compiles ahead what is to be launched, once or more often: while the program is prepared, say. */
void ef_flight_compile(ef_flight *flight, const ef_families *families, uint32_t family, const uint32_t *choice);
/* The compiled candidate, while the flight lives; NULL: it is not kept. */
const char *ef_flight_artifact(const ef_flight *flight, const ef_families *families, uint32_t family,
                               const uint32_t *choice);
/* The next candidate that has landed; false when none does within `seconds`. */
bool ef_flight_land(ef_flight *flight, const ef_families *families, double seconds, ef_trip *trip);
/* Whether it was printed before its family was widened: its time is not that of the family's code. Trips that are on
 * the way then set out again; one that was handed out before stays as it is. */
bool ef_flight_outdated(const ef_families *families, const ef_trip *trip);
/* The time of the best so far, or of the program as it is where that is a candidate; 0: none is known. */
double ef_flight_best_us(const ef_flight *flight);
/* Forgets all that are on the way, and what is known of sources: from now on everything is measured anew. What is being
 * compiled goes on, and what was compiled is there: it need not be compiled again when it is launched again. */
void ef_flight_cancel(ef_flight *flight);
/* Removes what was compiled for candidates that were cancelled, and not launched again; ends compilations of such where
 * they take processors from what is measured. */
void ef_flight_end_loose(ef_flight *flight);
/* Why there are no workers any more; NULL while there are. */
const char *ef_flight_broken(const ef_flight *flight);

#endif
