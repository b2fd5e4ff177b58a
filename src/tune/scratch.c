/* Private directories: see scratch.h. */
#define _GNU_SOURCE /* nftw; flock, because POSIX locks know processes only */
#include "tune/scratch.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "support/arena.h"

#define PREFIX "equiforge-run-"

struct ef_scratch {
    char path[256];
    int lock;
};

static const char *base(void)
{
    const char *dir = getenv("TMPDIR");
    return dir && dir[0] == '/' && strlen(dir) < 200 ? dir : "/tmp";
}

static int remove_one(const char *path, const struct stat *info, int kind, struct FTW *where)
{
    (void)info, (void)kind, (void)where;
    remove(path);
    return 0;
}

static void remove_files(const char *path)
{
    nftw(path, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

/* The lock of a directory; -1 when another process has it. */
static int lock(const char *path, int flags)
{
    char name[280];
    snprintf(name, sizeof name, "%s/lock", path);
    int fd = open(name, O_RDWR | O_CLOEXEC | O_NOFOLLOW | flags, 0600);
    if (fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) != 0) {
        close(fd);
        fd = -1;
    }
    return fd;
}

/* A directory without a lock may be one that another process is just making, or was: then it is empty, and old. */
#define OLD_S 60

static void remove_if_old(const char *path, const struct stat *info)
{
    if (time(NULL) - info->st_mtime > OLD_S)
        rmdir(path);
}

static void remove_left_over(void)
{
    DIR *dir = opendir(base());
    for (struct dirent *entry = dir ? readdir(dir) : NULL; entry; entry = readdir(dir)) {
        char path[256];
        struct stat info;
        int fd;
        if (strncmp(entry->d_name, PREFIX, sizeof PREFIX - 1) != 0 ||
            snprintf(path, sizeof path, "%s/%.40s", base(), entry->d_name) >= (int)sizeof path ||
            lstat(path, &info) != 0 || !S_ISDIR(info.st_mode) || info.st_uid != geteuid())
            continue;
        fd = lock(path, 0);
        if (fd < 0) {
            remove_if_old(path, &info);
            continue;
        }
        remove_files(path);
        close(fd);
    }
    if (dir)
        closedir(dir);
}

/* Another process that cleans up may take the lock first: then there is another directory. */
static bool make(ef_scratch *scratch)
{
    struct stat info;
    for (int tries = 0; tries < 10; tries++) {
        snprintf(scratch->path, sizeof scratch->path, "%s/" PREFIX "XXXXXX", base());
        if (!mkdtemp(scratch->path)) /* mode 0700 */
            return false;
        scratch->lock = lock(scratch->path, O_CREAT);
        if (scratch->lock >= 0 && lstat(scratch->path, &info) == 0)
            return true;
        if (scratch->lock >= 0)
            close(scratch->lock);
    }
    return false;
}

ef_scratch *ef_scratch_new(ef_diag *diag)
{
    ef_scratch *scratch = ef_xcalloc(1, sizeof *scratch);
    remove_left_over();
    if (make(scratch))
        return scratch;
    ef_fail(diag, "cannot make a directory in %s: %s; set TMPDIR to a place that can be written", base(),
            strerror(errno));
    free(scratch);
    return NULL;
}

const char *ef_scratch_path(const ef_scratch *scratch)
{
    return scratch->path;
}

void ef_scratch_free(ef_scratch *scratch)
{
    if (!scratch)
        return;
    remove_files(scratch->path);
    close(scratch->lock);
    free(scratch);
}
