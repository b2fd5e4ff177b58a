/* Writing files whole or not at all (design, section 10). */
#ifndef EF_SUPPORT_FILE_H
#define EF_SUPPORT_FILE_H

#include <stdbool.h>
#include <stddef.h>

#include "support/diag.h"

/* Writes to a temporary name in the same folder, flushes it to the disk and renames it, so that `path` holds what it
 * held before or all of the new bytes, whatever happens. False and one line when it cannot be written. */
bool ef_write_file(const char *path, const void *bytes, size_t size, ef_diag *diag);
/* Whether that can be expected to work, asked before the work whose result is to be written: the folder is there and
 * takes a new file (one is made, and removed), and `path` is no folder, device or the like. False and one line. */
bool ef_may_write_file(const char *path, ef_diag *diag);

#endif
