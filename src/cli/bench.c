/* equiforge bench: a module of the Python package, which has PyTorch to measure against. This process becomes it. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli.h"

int cli_bench(int argc, char **argv)
{
    equiforge_session *session = equiforge_session_new();
    const char *const *command = equiforge_python(session, "equiforge.bench");
    size_t words = 0;
    while (command[words])
        words++;
    char **all = words ? calloc(words + (size_t)argc + 1, sizeof *all) : NULL;
    if (!all)
        return EQUIFORGE_FAILED;
    for (size_t i = 0; i < words; i++)
        all[i] = (char *)command[i];
    for (int i = 1; i < argc; i++)
        all[words + (size_t)i - 1] = argv[i];
    execvp(command[0], all);
    cli_fail("bench: cannot start %s: %s; EQUIFORGE_PYTHON names a Python that has PyTorch", command[0],
             strerror(errno));
    free(all);
    equiforge_session_free(session);
    return EQUIFORGE_FAILED;
}
