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

/* Where the library of a source is kept, and under which name it is made: one of this process's own, for others may be
 * at the same. */
typedef struct {
    char directory[900], name[64], kept[1024], made[1024];
} place;

static bool find_place(const char *source, size_t length, place *p)
{
    if (!folder(p->directory, sizeof p->directory))
        return false;
    uint64_t key = key_of(source, length);
    snprintf(p->name, sizeof p->name, "%016" PRIx64 ".%ld", key, (long)getpid());
    snprintf(p->kept, sizeof p->kept, "%s/%016" PRIx64 ".so", p->directory, key);
    snprintf(p->made, sizeof p->made, "%s/%s.so", p->directory, p->name);
    return true;
}

static void move_in(const place *p)
{
    if (rename(p->made, p->kept) != 0)
        unlink(p->made);
}

ef_library *ef_compiled(const char *source, size_t length, ef_diag *diag)
{
    place p;
    ef_diag inner = {0};
    if (!find_place(source, length, &p))
        return ef_compile(source, length, &options, diag);
    ef_library *library = access(p.kept, R_OK) == 0 ? ef_library_open(p.kept, NULL) : NULL;
    if (library)
        return library;
    if (!ef_compile_to(source, length, &options, p.directory, p.name, &inner))
        return ef_compile(source, length, &options, diag);
    library = ef_library_open(p.made, diag);
    move_in(&p);
    return library;
}

static bool copy_file(const char *from, const char *to)
{
    char chunk[65536];
    FILE *in = fopen(from, "rb"), *out = in ? fopen(to, "wb") : NULL;
    bool fine = out != NULL;
    while (fine && !feof(in)) {
        size_t n = fread(chunk, 1, sizeof chunk, in);
        fine = !ferror(in) && fwrite(chunk, 1, n, out) == n;
    }
    if (in)
        fclose(in);
    if (out && fclose(out) != 0)
        fine = false;
    return fine;
}

void ef_compiled_keep(const char *source, size_t length, const char *path)
{
    place p;
    bool faulty = getenv("EQUIFORGE_TEST_FAULT"); /* the library may be of another source */
    if (faulty || !find_place(source, length, &p) || access(p.kept, R_OK) == 0)
        return;
    if (copy_file(path, p.made))
        move_in(&p);
    else
        unlink(p.made);
}
