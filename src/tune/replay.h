/* Running an implementation again: compiled, checked and timed by a worker process, as when it was found. So code from
 * a file can take nothing down but its worker. */
#ifndef EF_TUNE_REPLAY_H
#define EF_TUNE_REPLAY_H

#include "tune/device.h"

typedef struct {
    uint32_t repeat; /* timed calls at least, 0: as many as the worker likes */
    uint64_t seed;   /* of the inputs */
    bool check;      /* against float64 */
} ef_replay_options;

typedef struct {
    double us, warm_us; /* of the implementation: cold, and with the same inputs again and again */
    double original_us; /* of the program as it is */
    double rel_l2;      /* with check */
} ef_replay_result;

/* False and a message when it cannot be compiled or run, or is wrong. */
bool ef_replay(const ef_program *program, const char *source, const char *entry, const ef_device *device,
               const ef_replay_options *options, ef_replay_result *result, ef_diag *diag);

#endif
