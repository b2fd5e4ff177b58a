/* The Python package from C: GPU workers and benchmarks are modules of it. */
#ifndef EF_TUNE_PYTHON_H
#define EF_TUNE_PYTHON_H

#include "support/arena.h"

#define EF_PYTHON_WORDS 5 /* that ef_python_command writes */

/* Writes the words that start a module of the package, "equiforge.worker", without a NULL; its arguments come after
 * them. Returns the place behind the last. Strings belong to the arena.
 *
 * The interpreter is $EQUIFORGE_PYTHON (the package's own command sets it), else .venv of the source tree that this
 * library was built in, else python3. The package is the one around this library, else the source tree's, else whatever
 * the interpreter has. */
const char **ef_python_command(const char *module, const char **argv, ef_arena *arena);

#endif
