/* Lists of reasons: see reasons.h. */
#include "support/reasons.h"

#include <inttypes.h>
#include <string.h>

#define REASONS 3u /* that are given */

/* How many of them have this reason; NULL: any. */
static uint32_t number_of(const char *const *why, uint32_t count, const char *reason)
{
    uint32_t number = 0;
    for (uint32_t i = 0; i < count; i++)
        number += why[i] && (!reason || strcmp(why[i], reason) == 0);
    return number;
}

void ef_reasons_print(const char *const *why, uint32_t count, ef_strbuf *out)
{
    uint32_t all = number_of(why, count, NULL), given = 0, reasons = 0;
    for (uint32_t i = 0; i < count && reasons < REASONS; i++) {
        if (!why[i] || number_of(why, i, why[i]))
            continue;
        uint32_t number = number_of(why, count, why[i]);
        ef_strbuf_printf(out, "%s%s", reasons++ ? "; " : "", why[i]);
        if (number < all)
            ef_strbuf_printf(out, " (%" PRIu32 ")", number);
        given += number;
    }
    if (given < all)
        ef_strbuf_printf(out, "; other reasons (%" PRIu32 ")", all - given);
}
