/* Compiled regions, kept: see compiled.h. */
#include "tune/compiled.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "support/hash.h"
#include "support/strbuf.h"
#include "support/vec.h"
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

/* ---- the bound ---- */

#define LIMIT (UINT64_C(1) << 30) /* bytes, unless told */
#define LEFT_S (24 * 3600)        /* what is made for so long was left by a process that died */

/* What the environment says, if that is a size: "500M". */
static uint64_t find_limit(void)
{
    static const struct {
        const char *name;
        unsigned shift;
    } units[] = {{"", 0}, {"K", 10}, {"M", 20}, {"G", 30}};
    const char *told = getenv("EQUIFORGE_NATIVE_LIMIT");
    char *end;
    if (!told || told[0] < '0' || told[0] > '9')
        return LIMIT;
    errno = 0;
    uint64_t number = strtoull(told, &end, 10);
    for (size_t i = 0; i < sizeof units / sizeof *units; i++)
        if (errno == 0 && strcmp(end, units[i].name) == 0 && number <= UINT64_MAX >> units[i].shift)
            return number << units[i].shift;
    return LIMIT;
}

typedef struct {
    char name[64];
    uint64_t bytes;
    struct timespec used; /* the file's time: it is set with every use */
} kept;

typedef EF_VEC(kept) kept_list;

static int by_use(const void *a, const void *b)
{
    const struct timespec *x = &((const kept *)a)->used, *y = &((const kept *)b)->used;
    if (x->tv_sec != y->tv_sec)
        return x->tv_sec < y->tv_sec ? -1 : 1;
    return x->tv_nsec < y->tv_nsec ? -1 : x->tv_nsec > y->tv_nsec;
}

/* Adds a file to the list when it is a library that is kept; one that was never finished goes away in time. */
static void look_at(int directory, const char *name, kept_list *list)
{
    kept file = {0};
    struct stat about;
    size_t key = strspn(name, "0123456789abcdef");
    if (key != 16 || strlen(name) >= sizeof file.name || fstatat(directory, name, &about, AT_SYMLINK_NOFOLLOW) != 0 ||
        !S_ISREG(about.st_mode))
        return;
    snprintf(file.name, sizeof file.name, "%s", name);
    file.bytes = (uint64_t)about.st_size;
    file.used = about.st_mtim;
    if (strcmp(name + key, ".so") == 0)
        ef_vec_push(list, file);
    else if (time(NULL) - about.st_mtim.tv_sec > LEFT_S)
        unlinkat(directory, name, 0);
}

/* Removes what was used longest ago until the rest is within the limit. Others may do the same at once: what is gone is
 * gone, and whoever has a library open keeps it. */
static void prune(const char *directory)
{
    int fd = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *entries = fd >= 0 ? fdopendir(fd) : NULL;
    kept_list list = {0};
    uint64_t total = 0, limit = find_limit();
    if (!entries) {
        if (fd >= 0)
            close(fd);
        return;
    }
    for (const struct dirent *entry = readdir(entries); entry; entry = readdir(entries))
        look_at(fd, entry->d_name, &list);
    for (uint32_t i = 0; i < list.count; i++)
        total += list.at[i].bytes;
    if (total > limit)
        qsort(list.at, list.count, sizeof *list.at, by_use);
    for (uint32_t i = 0; i < list.count && total > limit; i++) {
        unlinkat(fd, list.at[i].name, 0);
        total -= list.at[i].bytes;
    }
    ef_vec_free(&list);
    closedir(entries);
}

/* ---- keeping ---- */

static void move_in(const place *p)
{
    if (rename(p->made, p->kept) == 0)
        prune(p->directory);
    else
        unlink(p->made);
}

/* Whether it is kept; it is used now. */
static bool is_kept(const place *p)
{
    bool there = access(p->kept, R_OK) == 0;
    if (there)
        (void)utimensat(AT_FDCWD, p->kept, NULL, 0);
    return there;
}

ef_library *ef_compiled(const char *source, size_t length, ef_diag *diag)
{
    place p;
    ef_diag inner = {0};
    if (!find_place(source, length, &p))
        return ef_compile(source, length, &options, diag);
    ef_library *library = is_kept(&p) ? ef_library_open(p.kept, NULL) : NULL;
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
    if (faulty || !find_place(source, length, &p) || is_kept(&p))
        return;
    if (copy_file(path, p.made))
        move_in(&p);
    else
        unlink(p.made);
}
