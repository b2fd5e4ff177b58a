/* Archives: see archive.h. */
#include "support/archive.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zip.h>

#include "support/arena.h"
#include "support/file.h"
#include "support/hash.h"

typedef struct {
    const char *name;
    uint64_t size;
} entry_info;

struct ef_archive {
    char *path; /* for messages */
    zip_t *zip;
    uint32_t count;
    entry_info *entry;
    ef_intern *names; /* name -> number */
};

/* ---- opening ---- */

static const char *zip_reason(int code, char *text, size_t size)
{
    zip_error_t error;
    zip_error_init_with_code(&error, code);
    snprintf(text, size, "%s", zip_error_strerror(&error));
    zip_error_fini(&error);
    return text;
}

/* A regular file: a pipe or a device would block or never end. */
static int open_regular(const char *path, uint64_t *size, ef_diag *diag)
{
    struct stat info;
    int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &info) != 0) {
        ef_fail(diag, "%.300s: %s", path, strerror(errno));
    } else if (!S_ISREG(info.st_mode)) {
        ef_fail(diag, "%.300s: is not a regular file", path);
    } else {
        *size = (uint64_t)info.st_size;
        return fd;
    }
    if (fd >= 0)
        close(fd);
    return -1;
}

static zip_t *open_zip(const char *path, uint64_t *size, ef_diag *diag)
{
    char text[160];
    int code = 0, fd = open_regular(path, size, diag);
    if (fd < 0)
        return NULL;
    zip_t *zip = zip_fdopen(fd, ZIP_CHECKCONS, &code);
    if (!zip) {
        close(fd);
        ef_fail(diag, "%.300s: is not a whole zip archive: %s", path, zip_reason(code, text, sizeof text));
    }
    return zip;
}

/* Relative, inside, and printable. Entries are never unpacked to disk, but whoever does so later shall be safe. */
static bool name_fine(const char *name)
{
    if (name[0] == '\0' || name[0] == '/')
        return false;
    for (const char *part = name; part; part = strchr(part, '/')) {
        part += *part == '/';
        if (part[0] == '.' && part[1] == '.' && (part[2] == '/' || part[2] == '\0'))
            return false;
    }
    for (const unsigned char *c = (const unsigned char *)name; *c; c++)
        if (*c < 0x20 || *c == 0x7f || *c == '\\')
            return false;
    return true;
}

static bool check_entry(ef_archive *a, uint32_t i, uint64_t file_size, uint64_t *packed, uint64_t *unpacked,
                        ef_diag *diag)
{
    const zip_uint64_t wanted = ZIP_STAT_NAME | ZIP_STAT_SIZE | ZIP_STAT_COMP_SIZE | ZIP_STAT_COMP_METHOD;
    zip_stat_t stat;
    int fresh;
    if (zip_stat_index(a->zip, i, ZIP_FL_ENC_RAW, &stat) != 0 || (stat.valid & wanted) != wanted)
        return ef_fail(diag, "%.300s: entry %u cannot be read", a->path, i);
    if (!name_fine(stat.name))
        return ef_fail(diag, "%.300s: entry %u has the name '%.80s', which is not a relative path", a->path, i,
                       stat.name);
    if ((stat.valid & ZIP_STAT_ENCRYPTION_METHOD) && stat.encryption_method != ZIP_EM_NONE)
        return ef_fail(diag, "%.300s: entry '%.80s' is encrypted", a->path, stat.name);
    if (stat.comp_method != ZIP_CM_STORE && stat.comp_method != ZIP_CM_DEFLATE)
        return ef_fail(diag, "%.300s: entry '%.80s' is packed by a method other than deflate", a->path, stat.name);
    /* Each byte of the file belongs to one entry at most: entries that overlap are a bomb. */
    if (stat.comp_size > file_size - *packed || stat.size / EF_ARCHIVE_RATIO > file_size ||
        (*unpacked + stat.size) / EF_ARCHIVE_RATIO > file_size ||
        (stat.comp_method == ZIP_CM_STORE && stat.size != stat.comp_size))
        return ef_fail(diag, "%.300s: entry '%.80s' claims an impossible size of %llu bytes", a->path, stat.name,
                       (unsigned long long)stat.size);
    *packed += stat.comp_size;
    *unpacked += stat.size;
    ef_intern_put(a->names, stat.name, strlen(stat.name), &fresh);
    if (!fresh)
        return ef_fail(diag, "%.300s: entry '%.80s' stands in it twice", a->path, stat.name);
    a->entry[i] = (entry_info){stat.name, stat.size};
    return true;
}

ef_archive *ef_archive_open(const char *path, ef_diag *diag)
{
    uint64_t file_size = 0, packed = 0, unpacked = 0;
    zip_t *zip = open_zip(path, &file_size, diag);
    if (!zip)
        return NULL;
    ef_archive *a = ef_xcalloc(1, sizeof *a);
    zip_int64_t count = zip_get_num_entries(zip, 0);
    a->path = strdup(path);
    a->zip = zip;
    a->names = ef_intern_new();
    bool fine = count >= 0 && count <= EF_ARCHIVE_ENTRIES;
    if (!fine)
        ef_fail(diag, "%.300s: %lld entries are more than an archive may have", path, (long long)count);
    a->count = fine ? (uint32_t)count : 0;
    a->entry = ef_xcalloc(a->count, sizeof *a->entry);
    for (uint32_t i = 0; fine && i < a->count; i++)
        fine = check_entry(a, i, file_size, &packed, &unpacked, diag);
    if (fine)
        return a;
    ef_archive_close(a);
    return NULL;
}

void ef_archive_close(ef_archive *a)
{
    if (!a)
        return;
    zip_discard(a->zip);
    ef_intern_free(a->names);
    free(a->entry);
    free(a->path);
    free(a);
}

/* ---- reading ---- */

uint32_t ef_archive_count(const ef_archive *a)
{
    return a->count;
}

const char *ef_archive_name(const ef_archive *a, uint32_t entry)
{
    return a->entry[entry].name;
}

uint64_t ef_archive_size(const ef_archive *a, uint32_t entry)
{
    return a->entry[entry].size;
}

uint32_t ef_archive_find(const ef_archive *a, const char *name)
{
    return ef_intern_find(a->names, name, strlen(name));
}

/* Exactly `size` bytes; into `out`, or nowhere when that is NULL. */
static bool read_exactly(zip_file_t *file, char *out, uint64_t size)
{
    char nowhere[1 << 14];
    while (size) {
        uint64_t step = !out && size > sizeof nowhere ? sizeof nowhere : size;
        zip_int64_t n = zip_fread(file, out ? out : nowhere, step);
        if (n <= 0)
            return false;
        out = out ? out + n : NULL;
        size -= (uint64_t)n;
    }
    return true;
}

/* The sum is checked by the read that meets the end. */
static bool at_end(zip_file_t *file)
{
    char byte;
    return zip_fread(file, &byte, 1) == 0;
}

bool ef_archive_read(ef_archive *a, uint32_t entry, uint64_t offset, void *out, uint64_t size, ef_diag *diag)
{
    const entry_info *e = &a->entry[entry];
    if (offset > e->size || size > e->size - offset)
        return ef_fail(diag, "%.300s: entry '%.80s' is too short", a->path, e->name);
    zip_file_t *file = zip_fopen_index(a->zip, entry, 0);
    bool fine = file && read_exactly(file, NULL, offset) && read_exactly(file, out, size) &&
                read_exactly(file, NULL, e->size - offset - size) && at_end(file);
    if (file)
        zip_fclose(file);
    return fine || ef_fail(diag, "%.300s: entry '%.80s' is damaged", a->path, e->name);
}

char *ef_archive_text(ef_archive *a, uint32_t entry, uint64_t limit, ef_diag *diag)
{
    uint64_t size = ef_archive_size(a, entry);
    if (size > limit) {
        ef_fail(diag, "%.300s: entry '%.80s' is %llu bytes long, more than the %llu that can be read", a->path,
                a->entry[entry].name, (unsigned long long)size, (unsigned long long)limit);
        return NULL;
    }
    char *text = ef_xcalloc(size + 1, 1);
    if (ef_archive_read(a, entry, 0, text, size, diag))
        return text;
    free(text);
    return NULL;
}

bool ef_archive_verify(ef_archive *a, ef_diag *diag)
{
    char nothing;
    for (uint32_t i = 0; i < a->count; i++)
        if (!ef_archive_read(a, i, 0, &nothing, 0, diag))
            return false;
    return true;
}

/* ---- writing ---- */

static bool add_entries(zip_t *zip, const ef_archive_entry *entry, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        zip_source_t *source = zip_source_buffer(zip, entry[i].bytes, entry[i].size, 0);
        zip_int64_t at = source ? zip_file_add(zip, entry[i].name, source, ZIP_FL_ENC_UTF_8) : -1;
        if (at < 0) {
            zip_source_free(source);
            return false;
        }
        /* 1 January 1980, where zip's time begins: the same entries give the same bytes. */
        if (zip_file_set_dostime(zip, (zip_uint64_t)at, 0, 0x21, 0) != 0)
            return false;
    }
    return true;
}

/* The archive's bytes, built in memory. */
static bool pack(zip_source_t *target, const ef_archive_entry *entry, uint32_t count)
{
    zip_t *zip = zip_open_from_source(target, ZIP_TRUNCATE, NULL);
    if (!zip)
        return false;
    zip_source_keep(target); /* closing the archive gives up its hold */
    if (add_entries(zip, entry, count) && zip_close(zip) == 0)
        return true;
    zip_discard(zip);
    return false;
}

static bool write_packed(const char *path, zip_source_t *packed, ef_diag *diag)
{
    zip_stat_t stat;
    if (zip_source_stat(packed, &stat) != 0 || zip_source_open(packed) != 0)
        return ef_fail(diag, "%.300s: cannot be packed", path);
    char *bytes = ef_xcalloc(stat.size, 1);
    bool fine = zip_source_read(packed, bytes, stat.size) == (zip_int64_t)stat.size;
    zip_source_close(packed);
    fine = fine ? ef_write_file(path, bytes, stat.size, diag) : ef_fail(diag, "%.300s: cannot be packed", path);
    free(bytes);
    return fine;
}

bool ef_archive_write(const char *path, const ef_archive_entry *entry, uint32_t count, ef_diag *diag)
{
    zip_source_t *target = zip_source_buffer_create(NULL, 0, 0, NULL);
    bool fine = target && pack(target, entry, count);
    fine = fine ? write_packed(path, target, diag) : ef_fail(diag, "%.300s: cannot be packed", path);
    zip_source_free(target);
    return fine;
}
