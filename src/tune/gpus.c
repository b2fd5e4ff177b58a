/* GPUs of this machine: see gpus.h. */
#include "tune/gpus.h"

#include <ctype.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* ---- the driver's files ---- */

/* The driver has a folder a GPU, named by its place. EQUIFORGE_TEST_GPUS: another folder of them, for tests. */
static const char *root(void)
{
    const char *told = getenv("EQUIFORGE_TEST_GPUS");
    return told && told[0] ? told : "/proc/driver/nvidia/gpus";
}

/* What follows the colon of a line "KEY: …", without blanks at its ends; false for another line. */
static bool value_of(const char *line, const char *key, char *text, size_t room)
{
    const char *colon = strchr(line, ':');
    if (!colon || strncmp(line, key, strlen(key)) != 0)
        return false;
    colon += 1 + strspn(colon + 1, " \t");
    snprintf(text, room, "%.*s", (int)strcspn(colon, "\n"), colon);
    for (char *c = text; *c; c++)
        *c = (unsigned char)*c < 0x20 ? ' ' : *c;
    for (size_t length = strlen(text); length && text[length - 1] == ' ';)
        text[--length] = 0;
    return true;
}

static bool read_gpu(const char *place, ef_gpu *gpu)
{
    char path[600], line[256];
    *gpu = (ef_gpu){0};
    snprintf(gpu->place, sizeof gpu->place, "%.31s", place);
    snprintf(path, sizeof path, "%.500s/%.60s/information", root(), place);
    FILE *file = fopen(path, "r");
    while (file && fgets(line, sizeof line, file))
        if (!value_of(line, "Model", gpu->model, sizeof gpu->model))
            value_of(line, "GPU UUID", gpu->uuid, sizeof gpu->uuid);
    if (file)
        fclose(file);
    return gpu->model[0] != 0;
}

/* ---- places ---- */

/* Domain, bus, device, function: hexadecimal, with ':', ':' and '.' between them. */
static bool read_place(const char *text, unsigned long part[4])
{
    static const char after[4] = {':', ':', '.', 0};
    for (int i = 0; i < 4; i++) {
        char *end;
        if (!isxdigit((unsigned char)*text))
            return false;
        part[i] = strtoul(text, &end, 16);
        if (*end != after[i])
            return false;
        text = end + 1;
    }
    return true;
}

static int by_place(const void *a, const void *b)
{
    unsigned long x[4], y[4];
    if (!read_place(((const ef_gpu *)a)->place, x) || !read_place(((const ef_gpu *)b)->place, y))
        return strcmp(((const ef_gpu *)a)->place, ((const ef_gpu *)b)->place);
    for (int i = 0; i < 4; i++)
        if (x[i] != y[i])
            return x[i] < y[i] ? -1 : 1;
    return 0;
}

bool ef_gpu_same_place(const char *a, const char *b)
{
    unsigned long x[4], y[4];
    return read_place(a, x) && read_place(b, y) && memcmp(x, y, sizeof x) == 0;
}

/* ---- what is shown ---- */

/* Which GPU an entry of CUDA_VISIBLE_DEVICES shows: `count` for none. A MIG device is a part of some GPU, and which one
 * is not said here: any. */
static uint32_t shown_by(const char *entry, const ef_gpu *gpu, uint32_t count)
{
    char *end;
    unsigned long number = strtoul(entry, &end, 10);
    bool is_number = entry[0] >= '0' && entry[0] <= '9' && *end == 0;
    for (uint32_t i = 0; i < count && is_number; i++)
        if (i == number)
            return i;
    for (uint32_t i = 0; i < count && strncmp(entry, "GPU-", 4) == 0; i++)
        if (strncasecmp(gpu[i].uuid, entry, strlen(entry)) == 0)
            return i;
    return count;
}

/* As CUDA reads it: the list ends at the first entry that shows nothing. */
static void mark_shown(const char *list, const ef_gpu *gpu, uint32_t count, bool *shown)
{
    char entry[96];
    for (const char *at = list, *comma; at; at = comma ? comma + 1 : NULL) {
        at += strspn(at, " ");
        comma = strchr(at, ',');
        snprintf(entry, sizeof entry, "%.*s", (int)strcspn(at, ","), at);
        if (strncmp(entry, "MIG-", 4) == 0) {
            memset(shown, true, count);
            return;
        }
        uint32_t which = shown_by(entry, gpu, count);
        if (which >= count)
            return;
        shown[which] = true;
    }
}

static uint32_t read_all(ef_gpu gpu[EF_GPUS])
{
    uint32_t count = 0;
    DIR *dir = opendir(root());
    struct dirent *entry = dir ? readdir(dir) : NULL;
    for (; entry && count < EF_GPUS; entry = readdir(dir))
        count += entry->d_name[0] != '.' && read_gpu(entry->d_name, &gpu[count]);
    if (dir)
        closedir(dir);
    qsort(gpu, count, sizeof *gpu, by_place);
    return count;
}

uint32_t ef_gpus(ef_gpu gpu[EF_GPUS], bool all)
{
    bool shown[EF_GPUS] = {0};
    uint32_t count = read_all(gpu), kept = 0;
    const char *list = getenv("CUDA_VISIBLE_DEVICES");
    if (!list || all)
        return count;
    mark_shown(list, gpu, count, shown);
    for (uint32_t i = 0; i < count; i++)
        if (shown[i])
            gpu[kept++] = gpu[i];
    return kept;
}
