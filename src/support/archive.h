/* Archives: named entries in one zip file, for `.pt2` and `.efz` files (design, section 10).
 *
 * Archives come from anywhere, so opening one checks it before a byte is unpacked: the number of entries, their names,
 * and their sizes against the size of the file, which a zip bomb cannot pass. Reading an entry checks its sum. Nothing
 * is ever unpacked to disk. libzip does the format. */
#ifndef EF_SUPPORT_ARCHIVE_H
#define EF_SUPPORT_ARCHIVE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "support/diag.h"

typedef struct ef_archive ef_archive;

#define EF_ARCHIVE_ENTRIES 1000000u /* at most, in one archive */
#define EF_ARCHIVE_RATIO 200u       /* unpacked bytes for each byte of the file, at most; text packs 10 to 50 times */

/* Opens a file for reading and checks it. NULL and one line "PATH: what is wrong". */
ef_archive *ef_archive_open(const char *path, ef_diag *diag);
void ef_archive_close(ef_archive *archive);

/* Entries, numbered as they stand in the file. Names are relative paths without "..", control characters or
 * backslashes, and differ from each other. */
uint32_t ef_archive_count(const ef_archive *archive);
const char *ef_archive_name(const ef_archive *archive, uint32_t entry);
uint64_t ef_archive_size(const ef_archive *archive, uint32_t entry); /* unpacked bytes */
/* The entry of this name, UINT32_MAX when there is none. */
uint32_t ef_archive_find(const ef_archive *archive, const char *name);

/* Copies bytes [offset, offset + size) of an entry. Reads to its end, so that its sum is checked. */
bool ef_archive_read(ef_archive *archive, uint32_t entry, uint64_t offset, void *out, uint64_t size, ef_diag *diag);
/* A whole entry with a NUL behind it, freed by free; NULL and a message when it is larger than `limit`, or damaged. */
char *ef_archive_text(ef_archive *archive, uint32_t entry, uint64_t limit, ef_diag *diag);
/* Reads every entry and checks its sum. */
bool ef_archive_verify(ef_archive *archive, ef_diag *diag);

/* What goes into a new archive. */
typedef struct {
    const char *name;
    const void *bytes;
    size_t size;
} ef_archive_entry;

/* Writes a whole archive, or leaves the path as it was (see ef_write_file). The same entries give the same bytes. */
bool ef_archive_write(const char *path, const ef_archive_entry *entry, uint32_t count, ef_diag *diag);

#endif
