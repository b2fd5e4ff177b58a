/* Lists of reasons, for one line of text. */
#ifndef EF_SUPPORT_REASONS_H
#define EF_SUPPORT_REASONS_H

#include <stdint.h>

#include "support/strbuf.h"

/* Appends why something is so with some of `count` things, as NULL is not: each reason once, with how many it is one
 * of where there are several; only the first few. */
void ef_reasons_print(const char *const *why, uint32_t count, ef_strbuf *out);

#endif
