/* String builder: see strbuf.h. */
#include "support/strbuf.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/arena.h"

static void reserve(ef_strbuf *b, size_t extra)
{
    size_t need = b->length + extra + 1;
    if (need <= b->capacity)
        return;
    size_t capacity = b->capacity ? b->capacity : 64;
    while (capacity < need)
        capacity *= 2;
    b->text = ef_xrealloc(b->text, capacity);
    b->capacity = capacity;
}

void ef_strbuf_add(ef_strbuf *b, const char *text, size_t length)
{
    reserve(b, length);
    if (length > 0) /* nothing may be at no address */
        memcpy(b->text + b->length, text, length);
    b->length += length;
    b->text[b->length] = '\0';
}

void ef_strbuf_puts(ef_strbuf *b, const char *text)
{
    ef_strbuf_add(b, text, strlen(text));
}

void ef_strbuf_printf(ef_strbuf *b, const char *format, ...)
{
    va_list args, again;
    va_start(args, format);
    va_copy(again, args);
    int length = vsnprintf(NULL, 0, format, args);
    va_end(args);
    if (length >= 0) {
        reserve(b, (size_t)length);
        vsnprintf(b->text + b->length, (size_t)length + 1, format, again);
        b->length += (size_t)length;
    }
    va_end(again);
}

void ef_strbuf_double(ef_strbuf *b, double value)
{
    char text[40];
    if (isnan(value)) {
        ef_strbuf_puts(b, "nan");
        return;
    }
    if (isinf(value)) {
        ef_strbuf_puts(b, value > 0 ? "inf" : "-inf");
        return;
    }
    if (fabs(value) < 1e15 && value == floor(value)) { /* whole numbers in full: 30, not 3e+01 */
        ef_strbuf_printf(b, "%.0f", value == 0 ? 0 : value);
        return;
    }
    for (int digits = 1; digits <= 17; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, value);
        if (strtod(text, NULL) == value)
            break;
    }
    ef_strbuf_puts(b, text);
}

void ef_strbuf_free(ef_strbuf *b)
{
    free(b->text);
    b->text = NULL;
    b->length = b->capacity = 0;
}
