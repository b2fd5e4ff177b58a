/* Diagnostics: one line of text that says what is wrong, where, and what to do (design, section 10). */
#ifndef EF_SUPPORT_DIAG_H
#define EF_SUPPORT_DIAG_H

#include <stdbool.h>

/* What kind of failure, where a caller must tell one from the others. */
typedef enum { EF_FAILED, EF_TOO_LARGE } ef_failure;

typedef struct ef_diag {
    bool failed;
    ef_failure kind;
    char text[512]; /* "file:line:column: message" where the place is known; never contains a newline */
} ef_diag;

/* Records the first failure (later ones are kept out). A NULL diag is allowed: then only `false` comes back. */
bool ef_fail(ef_diag *diag, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
