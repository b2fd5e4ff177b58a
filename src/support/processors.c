/* Processors: see processors.h. */
#define _GNU_SOURCE /* sched_getaffinity, setenv */
#include "support/processors.h"

#include <sched.h>
#include <stdlib.h>
#include <unistd.h>

unsigned ef_processors(void)
{
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) == 0 && CPU_COUNT(&set) > 0)
        return (unsigned)CPU_COUNT(&set);
    long count = sysconf(_SC_NPROCESSORS_ONLN); /* more processors than the set has room for */
    return count > 0 ? (unsigned)count : 1;
}

void ef_bind_threads(unsigned threads)
{
    if (threads == ef_processors())
        setenv("OMP_PROC_BIND", "true", 0);
}
