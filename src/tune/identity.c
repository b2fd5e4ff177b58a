/* Identities: see identity.h. */
#include "tune/identity.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/strbuf.h"
#include "tune/python.h"

static void trim(char *text)
{
    text[strcspn(text, "\n")] = 0;
    for (char *c = text; *c; c++)
        *c = (unsigned char)*c < 0x20 ? ' ' : *c;
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

void ef_identity_compiler(char *text, size_t room)
{
    char line[200];
    FILE *out = popen("cc --version 2>/dev/null", "r");
    snprintf(text, room, "none");
    if (out && fgets(line, sizeof line, out)) {
        trim(line);
        snprintf(text, room, "%s", line);
    }
    if (out)
        pclose(out);
}

static int by_text(const void *a, const void *b)
{
    return strcmp(a, b);
}

/* The driver has a folder a GPU, named by its place on the bus; CUDA's order is that of the places unless told. */
bool ef_identity_gpu(uint32_t number, char *text, size_t room)
{
    static const char root[] = "/proc/driver/nvidia/gpus";
    char path[300], line[256], places[16][64];
    uint32_t count = 0;
    DIR *dir = opendir(root);
    for (struct dirent *entry; dir && count < 16 && (entry = readdir(dir));)
        if (entry->d_name[0] != '.')
            snprintf(places[count++], sizeof places[0], "%.60s", entry->d_name);
    if (dir)
        closedir(dir);
    qsort(places, count, sizeof places[0], by_text);
    if (number >= count)
        return false;
    snprintf(path, sizeof path, "%s/%s/information", root, places[number]);
    FILE *file = fopen(path, "r");
    bool found = false;
    while (file && !found && fgets(line, sizeof line, file)) {
        const char *colon = strchr(line, ':');
        found = strncmp(line, "Model", 5) == 0 && colon;
        if (found)
            snprintf(text, room, "%.120s", colon + 1 + strspn(colon + 1, " \t"));
    }
    if (file)
        fclose(file);
    if (found)
        trim(text);
    return found;
}

bool ef_identity_torch(char *text, size_t room)
{
    static const char script[] = "from importlib.metadata import version as v; "
                                 "print('torch ' + v('torch') + ', triton ' + v('triton'))";
    const char *argv[EF_PYTHON_WORDS + 1];
    char line[200];
    ef_arena *arena = ef_arena_new();
    ef_strbuf command = {0};
    ef_python_command("equiforge", argv, arena);
    ef_strbuf_printf(&command, "'%s' -c \"%s\" 2>/dev/null", argv[0], script);
    FILE *out = strchr(argv[0], '\'') ? NULL : popen(command.text, "r");
    bool found = out && fgets(line, sizeof line, out);
    if (out)
        pclose(out);
    if (found) {
        trim(line);
        snprintf(text, room, "%s", line);
    }
    ef_strbuf_free(&command);
    ef_arena_free(arena);
    return found;
}
