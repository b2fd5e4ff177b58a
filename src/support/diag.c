/* Diagnostics: see diag.h. */
#include "support/diag.h"

#include <stdarg.h>
#include <stdio.h>

bool ef_fail(ef_diag *diag, const char *format, ...)
{
    if (!diag || diag->failed)
        return false;
    diag->failed = true;
    va_list args;
    va_start(args, format);
    vsnprintf(diag->text, sizeof diag->text, format, args);
    va_end(args);
    for (char *c = diag->text; *c; c++)
        if ((unsigned char)*c < 0x20 || *c == 0x7f)
            *c = ' ';
    return false;
}
