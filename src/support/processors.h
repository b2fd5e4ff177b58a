/* How many processors there are to work on. */
#ifndef EF_SUPPORT_PROCESSORS_H
#define EF_SUPPORT_PROCESSORS_H

/* Those that this process may use: its affinity, which a parent that shares the machine out may have narrowed. At
 * least 1. */
unsigned ef_processors(void);

/* Has this process's OpenMP bind its threads, each to a processor of its own, when they are as many as the processors
 * and the environment does not say otherwise. It is for processes that time code, before the runtime is loaded, which
 * reads this once: the system starts threads beside each other where other processes are busy, and a thread that spins
 * for one on its own processor waits for whole slices of time, at each end of a loop. */
void ef_bind_threads(unsigned threads);

#endif
