/* Who measures: what a result depends on besides the program. Results of one identity are not used for another. */
#ifndef EF_TUNE_IDENTITY_H
#define EF_TUNE_IDENTITY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* "cpu: MODEL, N threads". */
void ef_identity_cpu(uint32_t threads, char *text, size_t room);
/* "torch 2.13.0, triton 3.6.0" as the Python that workers run in has them; false when it has not both. Imports neither,
 * which would take seconds. */
bool ef_identity_torch(char *text, size_t room);
/* The first line of `cc --version`; "none" when there is no compiler. */
void ef_identity_compiler(char *text, size_t room);

#endif
