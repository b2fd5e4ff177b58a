/* Identities: see identity.h. */
#define _GNU_SOURCE /* pipe2 */
#include "tune/identity.h"

#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support/strbuf.h"
#include "tune/python.h"

static void trim(char *text)
{
    char *c = text;
    for (; *c && *c != '\n'; c++)
        *c = (unsigned char)*c < 0x20 ? ' ' : *c;
    *c = 0;
}

void ef_identity_cpu(uint32_t threads, char *text, size_t room)
{
    char line[256], model[128] = "unknown processor";
    FILE *file = fopen("/proc/cpuinfo", "r");
    while (file && fgets(line, sizeof line, file)) {
        const char *colon = strchr(line, ':');
        if (strncmp(line, "model name", 10) != 0 || !colon)
            continue;
        snprintf(model, sizeof model, "%.120s", colon + 1 + strspn(colon + 1, " \t"));
        break;
    }
    if (file)
        fclose(file);
    trim(model);
    snprintf(text, room, "cpu: %s, %u thread%s", model, threads, threads == 1 ? "" : "s");
}

/* The first line that a program prints, started without a shell; false when it prints none or ends in an error. */
static bool first_line(const char *const *argv, char *line, size_t room)
{
    int end[2], status = 0;
    if (pipe2(end, O_CLOEXEC) != 0)
        return false;
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
    posix_spawn_file_actions_adddup2(&actions, end[1], STDOUT_FILENO);
    pid_t child;
    bool started = posix_spawnp(&child, argv[0], &actions, NULL, (char *const *)argv, environ) == 0;
    posix_spawn_file_actions_destroy(&actions);
    close(end[1]);
    FILE *out = fdopen(end[0], "r");
    bool found = out && fgets(line, (int)room, out);
    for (char rest[256]; found && fgets(rest, sizeof rest, out);)
        ; /* so that it does not write into a closed pipe */
    if (out)
        fclose(out);
    else
        close(end[0]);
    while (started && waitpid(child, &status, 0) < 0 && errno == EINTR)
        ;
    if (found)
        trim(line);
    return started && found && status == 0;
}

void ef_identity_compiler(char *text, size_t room)
{
    static const char *const argv[] = {"cc", "--version", NULL};
    if (!first_line(argv, text, room))
        snprintf(text, room, "none");
}

bool ef_identity_torch(char *text, size_t room)
{
    static const char script[] = "from importlib.metadata import version as v; "
                                 "print('torch ' + v('torch') + ', triton ' + v('triton'))";
    const char *argv[EF_PYTHON_WORDS + 1];
    ef_arena *arena = ef_arena_new();
    ef_python_command("equiforge", argv, arena);
    bool found = first_line((const char *[]){argv[0], "-c", script, NULL}, text, room);
    ef_arena_free(arena);
    return found;
}
