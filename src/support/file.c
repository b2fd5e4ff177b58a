/* Writing files whole or not at all: see file.h. */
#include "support/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "support/arena.h"

static bool write_all(int fd, const char *bytes, size_t size)
{
    while (size) {
        ssize_t n = write(fd, bytes, size);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return false;
        bytes += n;
        size -= (size_t)n;
    }
    return true;
}

/* The folder of a path; the caller's. */
static char *folder_of(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? strndup(path, slash == path ? 1 : (size_t)(slash - path)) : strdup(".");
}

/* A rename is only on the disk when the folder is. Not every file system can do this, and none needs it for the file
 * to be whole. */
static void flush_folder(const char *path)
{
    char *folder = folder_of(path);
    int fd = folder ? open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
    if (fd >= 0) {
        fsync(fd);
        close(fd);
    }
    free(folder);
}

/* mkstemp's files are for their owner alone; a result has the mode that any new file gets. */
static void ordinary_mode(int fd)
{
    mode_t mask = umask(0);
    umask(mask);
    fchmod(fd, 0666 & ~mask);
}

static bool write_temporary(int fd, const void *bytes, size_t size)
{
    ordinary_mode(fd);
    bool written = write_all(fd, bytes, size) && fsync(fd) == 0;
    int error = errno;
    written = close(fd) == 0 && written;
    if (!written && error)
        errno = error;
    return written;
}

/* Makes a file of a new name beside `path`; *name is the caller's. Negative: it cannot be made, as errno says. */
static int open_temporary(const char *path, char **name)
{
    static const char end[] = ".XXXXXX";
    size_t length = strlen(path);
    *name = ef_xcalloc(length + sizeof end, 1);
    memcpy(*name, path, length);
    memcpy(*name + length, end, sizeof end);
    return mkstemp(*name);
}

bool ef_write_file(const char *path, const void *bytes, size_t size, ef_diag *diag)
{
    char *name;
    int fd = open_temporary(path, &name);
    bool done = fd >= 0 && write_temporary(fd, bytes, size) && rename(name, path) == 0;
    if (done) {
        flush_folder(path);
    } else {
        ef_fail(diag, "%.300s: cannot be written: %s", path, strerror(errno));
        if (fd >= 0)
            unlink(name);
    }
    free(name);
    return done;
}

/* Permissions do not tell it: not on a file system that is read-only or takes no new files, and not of a name that is
 * too long. */
static bool makes_files(const char *path)
{
    char *name;
    int fd = open_temporary(path, &name), error = errno;
    if (fd >= 0) {
        close(fd);
        unlink(name);
    }
    free(name);
    errno = error;
    return fd >= 0;
}

bool ef_may_write_file(const char *path, ef_diag *diag)
{
    struct stat info;
    char *folder = folder_of(path);
    bool fine = folder && stat(folder, &info) == 0 && S_ISDIR(info.st_mode);
    if (!fine)
        ef_fail(diag, "%.300s: cannot be written: there is no folder %.150s", path, folder ? folder : "");
    else if (stat(path, &info) == 0 && !S_ISREG(info.st_mode))
        fine = ef_fail(diag, "%.300s: cannot be written: is not a regular file", path);
    else if (path[0] == 0 || path[strlen(path) - 1] == '/')
        fine = ef_fail(diag, "%.300s: cannot be written: is not the name of a file", path);
    else if (!makes_files(path))
        fine = ef_fail(diag, "%.300s: cannot be written: %s", path, strerror(errno));
    free(folder);
    return fine;
}
