/* String builder: grows, always NUL-terminated; freed by ef_strbuf_free. */
#ifndef EF_SUPPORT_STRBUF_H
#define EF_SUPPORT_STRBUF_H

#include <stddef.h>

typedef struct ef_strbuf {
    char *text;
    size_t length, capacity;
} ef_strbuf;

void ef_strbuf_add(ef_strbuf *buffer, const char *text, size_t length);
void ef_strbuf_puts(ef_strbuf *buffer, const char *text);
void ef_strbuf_printf(ef_strbuf *buffer, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* The shortest decimal text that reads back as exactly `value`; inf, -inf and nan by name. */
void ef_strbuf_double(ef_strbuf *buffer, double value);
void ef_strbuf_free(ef_strbuf *buffer);

#endif
