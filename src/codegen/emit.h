/* Printing a program as code, without running it. */
#ifndef EF_CODEGEN_EMIT_H
#define EF_CODEGEN_EMIT_H

#include "kernel/schedule.h"

typedef struct {
    ef_backend backend;
    const char *name;     /* of the function that is printed; NULL: the program's, or "program" where that is taken */
    const char *dims;     /* extents of named dimensions instead of the program's; NULL: none */
    const char *schedule; /* values instead of the default schedule's; NULL: none */
} ef_emit_options;

/* The extents of the program's context are as before when this returns. False after a message; *bad: because of the
 * options. */
bool ef_emit(const ef_program *program, const ef_emit_options *options, ef_strbuf *out, bool *bad, ef_diag *diag);

#endif
