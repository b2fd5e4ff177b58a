/* Messages and tokens of the text form. A token is read where it is expected, so there is no token type: the parser
 * asks for a name, a number, a character. */
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "ir/text.h"

/* ---- messages ---- */

bool ef_text_fail(ef_text *s, size_t at, const char *format, ...)
{
    char message[400];
    size_t line = 1, start = 0;
    if (!s->diag || s->diag->failed)
        return false;
    va_list args;
    va_start(args, format);
    vsnprintf(message, sizeof message, format, args);
    va_end(args);
    for (size_t i = 0; i < at; i++) {
        if (s->text[i] == '\n') {
            line++;
            start = i + 1;
        }
    }
    return ef_fail(s->diag, "%.240s:%zu:%zu: %s", s->file, line, at - start + 1, message);
}

bool ef_text_is_digit(int c)
{
    return c >= '0' && c <= '9';
}

bool ef_text_is_name_start(int c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

static bool is_name(int c)
{
    return ef_text_is_name_start(c) || ef_text_is_digit(c);
}

/* The byte at the current position, or -1 at the end. */
int ef_text_peek(const ef_text *s)
{
    return s->at < s->length ? (unsigned char)s->text[s->at] : -1;
}

/* Skips blanks; a line's end is a token. */
int ef_text_next(ef_text *s)
{
    while (s->at < s->length && (s->text[s->at] == ' ' || s->text[s->at] == '\t' || s->text[s->at] == '\r'))
        s->at++;
    return ef_text_peek(s);
}

unsigned ef_text_name_length(const ef_text *s, size_t at)
{
    size_t end = at;
    while (end < s->length && is_name((unsigned char)s->text[end]))
        end++;
    return (unsigned)(end - at);
}

/* "expected WHAT, found …" at the current position. */
bool ef_text_expected(ef_text *s, const char *what)
{
    int c = ef_text_next(s);
    if (c < 0)
        return ef_text_fail(s, s->at, "expected %s, found the end of the file", what);
    if (c == '\n')
        return ef_text_fail(s, s->at, "expected %s, found the end of the line", what);
    if (is_name(c)) {
        unsigned length = ef_text_name_length(s, s->at);
        return ef_text_fail(s, s->at, "expected %s, found '%.*s%s'", what, length > 40 ? 40 : (int)length,
                            s->text + s->at, length > 40 ? "..." : "");
    }
    if (c > ' ' && c < 0x7f)
        return ef_text_fail(s, s->at, "expected %s, found '%c'", what, c);
    return ef_text_fail(s, s->at, "expected %s, found byte 0x%02x", what, (unsigned)c);
}

/* ---- tokens ---- */

bool ef_text_accept(ef_text *s, char c)
{
    if (ef_text_next(s) != c)
        return false;
    s->at++;
    return true;
}

bool ef_text_expect(ef_text *s, char c)
{
    return ef_text_accept(s, c) || ef_text_expected(s, (char[]){'\'', c, '\'', '\0'});
}

bool ef_text_name(ef_text *s, const char *what, const char **text, unsigned *length)
{
    if (!ef_text_is_name_start(ef_text_next(s)))
        return ef_text_expected(s, what);
    *text = s->text + s->at;
    *length = ef_text_name_length(s, s->at);
    if (*length > EF_TEXT_NAME)
        return ef_text_fail(s, s->at, "a name has at most %u characters", EF_TEXT_NAME);
    s->at += *length;
    return true;
}

bool ef_text_is_word(const char *text, unsigned length, const char *word)
{
    return strlen(word) == length && memcmp(text, word, length) == 0;
}

/* Whether a word stands at the current position; moves past it when it does. */
bool ef_text_accept_word(ef_text *s, const char *word)
{
    ef_text_next(s);
    if (!ef_text_is_word(s->text + s->at, ef_text_name_length(s, s->at), word))
        return false;
    s->at += strlen(word);
    return true;
}

bool ef_text_integer(ef_text *s, const char *what, uint64_t limit, uint64_t *value)
{
    if (!ef_text_is_digit(ef_text_next(s)))
        return ef_text_expected(s, what);
    size_t start = s->at;
    for (*value = 0; ef_text_is_digit(ef_text_peek(s)); s->at++) {
        *value = *value * 10 + (uint64_t)(ef_text_peek(s) - '0');
        if (*value > limit)
            return ef_text_fail(s, start, "number too large: %s is at most %" PRIu64, what, limit);
    }
    if (ef_text_is_name_start(ef_text_peek(s)))
        return ef_text_expected(s, "the number to end here");
    return true;
}

/* The bytes of a decimal number at the current position, without its sign. */
static size_t decimal_length(const ef_text *s)
{
    size_t at = s->at;
    while (at < s->length && ef_text_is_digit((unsigned char)s->text[at]))
        at++;
    if (at == s->at)
        return 0;
    if (at + 1 < s->length && s->text[at] == '.' && ef_text_is_digit((unsigned char)s->text[at + 1]))
        for (at++; at < s->length && ef_text_is_digit((unsigned char)s->text[at]);)
            at++;
    if (at < s->length && (s->text[at] == 'e' || s->text[at] == 'E')) {
        size_t exponent = at + 1;
        if (exponent < s->length && (s->text[exponent] == '+' || s->text[exponent] == '-'))
            exponent++;
        while (exponent < s->length && ef_text_is_digit((unsigned char)s->text[exponent]))
            at = ++exponent;
    }
    return at - s->at;
}

bool ef_text_number_value(ef_text *s, double *value)
{
    char copy[64];
    ef_text_next(s);
    size_t start = s->at;
    bool negative = ef_text_accept(s, '-');
    if (ef_text_accept_word(s, "inf")) {
        *value = negative ? -INFINITY : INFINITY;
        return true;
    }
    if (!negative && ef_text_accept_word(s, "nan")) {
        *value = NAN;
        return true;
    }
    size_t length = decimal_length(s);
    if (length == 0)
        return ef_text_expected(s, "a number");
    if (length >= sizeof copy)
        return ef_text_fail(s, start, "a number has at most %zu characters", sizeof copy - 1);
    memcpy(copy, s->text + s->at, length);
    copy[length] = '\0';
    *value = strtod(copy, NULL);
    if (isinf(*value))
        return ef_text_fail(s, start, "number too large for a double: write inf when you mean infinity");
    if (negative)
        *value = -*value;
    s->at += length;
    if (is_name(ef_text_peek(s)) || ef_text_peek(s) == '.')
        return ef_text_expected(s, "the number to end here");
    return true;
}
