/* equiforge worker: a worker process of an optimisation; started by `optimize`, of no use to people. */
#include "cli.h"

int cli_worker(int argc, char **argv)
{
    uint32_t threads = 0;
    const cli_option options[] = {{"--threads", CLI_THREADS, &threads}};
    if (!cli_arguments(argc, argv, options, 1, NULL))
        return EQUIFORGE_BAD_INPUT;
    return equiforge_worker(threads);
}
