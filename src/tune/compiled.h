/* Compiled regions, kept: the system's compiler takes seconds for what loads in a millisecond.
 *
 * Libraries lie in $XDG_CACHE_HOME/equiforge/native, else ~/.cache/equiforge/native, under a name made of the source,
 * the compiler and the processor. What was measured best is put there. The folder is its owner's alone; it can be
 * deleted at any time. It takes 1 GiB, or $EQUIFORGE_NATIVE_LIMIT bytes (500M, 4G; 0 keeps none): whoever adds a
 * library removes those that were used longest ago. */
#ifndef EF_TUNE_COMPILED_H
#define EF_TUNE_COMPILED_H

#include "codegen/execute.h"

/* Compiles a whole file for this processor, or loads it as it was compiled before. Without a folder to keep it in it is
 * compiled. NULL and one line when that fails. */
ef_library *ef_compiled(const char *source, size_t length, ef_diag *diag);
/* Keeps a library that was compiled for this processor from this source, or from this and more. That it cannot be kept
 * is no error: it is compiled again then. */
void ef_compiled_keep(const char *source, size_t length, const char *path);

#endif
