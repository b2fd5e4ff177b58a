/* The CPU worker: answers the requests of the pool (pool.h) on standard input and output; `equiforge worker` runs it.
 *
 * One request a line, one reply a line, in order; docs/workers.md has the fields. What a candidate does to this process
 * is the pool's business. The end of the input ends the process, also in the midst of a request: then the pool's
 * process is gone. */
#ifndef EF_TUNE_WORKER_H
#define EF_TUNE_WORKER_H

#include <stdint.h>

/* Works until the input ends. `threads`: that programs run with, 0: one a processor. Returns an exit status. */
int ef_worker_run(uint32_t threads);

#endif
