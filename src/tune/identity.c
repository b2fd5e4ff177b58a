/* Identities: see identity.h. */
#include "tune/identity.h"

#include <stdio.h>
#include <string.h>

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
