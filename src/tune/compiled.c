/* Compiled regions, kept: see compiled.h. */
#include "tune/compiled.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "support/hash.h"
#include "support/strbuf.h"
#include "tune/identity.h"

static const ef_compile_options options = {.level = 3};

/* The folder, made where it is missing; false when there is none that is ours alone. */
static bool folder(char *path, size_t room)
{
    const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    bool given = cache && cache[0] == '/';
    struct stat about;
    if (!given && !(home && home[0] == '/'))
        return false;
    int length = snprintf(path, room, "%s%s/equiforge/native", given ? cache : home, given ? "" : "/.cache");
    if (length < 0 || (size_t)length >= room)
        return false;
    for (char *slash = strchr(path + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = 0;
        mkdir(path, 0700);
        *slash = '/';
    }
    mkdir(path, 0700);
    /* What others can write there they could make us run. */
    return stat(path, &about) == 0 && S_ISDIR(about.st_mode) && about.st_uid == geteuid() && !(about.st_mode & 022);
}

/* What the code of a source depends on. */
static uint64_t key_of(const char *source, size_t length)
{
    char text[512];
    ef_strbuf key = {0};
    ef_identity_cpu(0, text, sizeof text);
    ef_strbuf_puts(&key, text);
    ef_identity_compiler(text, sizeof text);
    ef_strbuf_puts(&key, text);
    ef_strbuf_add(&key, source, length);
    uint64_t hash = ef_hash(key.text, key.length);
    ef_strbuf_free(&key);
    return hash;
}

ef_library *ef_compiled(const char *source, size_t length, ef_diag *diag)
{
    char directory[900], name[64], kept[1024], made[1024];
    if (!folder(directory, sizeof directory))
        return ef_compile(source, length, &options, diag);
    uint64_t key = key_of(source, length);
    snprintf(kept, sizeof kept, "%s/%016" PRIx64 ".so", directory, key);
    ef_library *library = access(kept, R_OK) == 0 ? ef_library_open(kept, NULL) : NULL;
    if (library)
        return library;
    /* Under a name of this process's own first: others may be at the same. */
    snprintf(name, sizeof name, "%016" PRIx64 ".%ld", key, (long)getpid());
    snprintf(made, sizeof made, "%s/%s.so", directory, name);
    ef_diag inner = {0};
    if (!ef_compile_to(source, length, &options, directory, name, &inner))
        return ef_compile(source, length, &options, diag);
    library = ef_library_open(made, diag);
    if (rename(made, kept) != 0)
        unlink(made);
    return library;
}
