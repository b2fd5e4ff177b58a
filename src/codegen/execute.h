/* Running generated C: compiles it with the system's compiler, loads it and calls it (design, section 7).
 *
 * Sources and libraries live in a private temporary directory that is gone before the functions return. Programs run in
 * this process; what must survive a wrong program runs it in a worker process. */
#ifndef EF_CODEGEN_EXECUTE_H
#define EF_CODEGEN_EXECUTE_H

#include "codegen/c.h"

typedef struct ef_library ef_library;

typedef struct {
    unsigned level; /* of optimisation, 0 to 3 */
    bool portable;  /* do not use what only this machine's processor has */
} ef_compile_options;

/* Compiles a whole file. NULL and one line, with the compiler's first complaint, when that fails. */
ef_library *ef_compile(const char *source, size_t length, const ef_compile_options *options, ef_diag *diag);
/* The same in two steps, for a process that compiles and another that runs: writes DIR/NAME.so, by way of files
 * DIR/NAME.*; then loads it. */
bool ef_compile_to(const char *source, size_t length, const ef_compile_options *options, const char *dir,
                   const char *name, ef_diag *diag);
ef_library *ef_library_open(const char *path, ef_diag *diag);
void ef_library_free(ef_library *library);
/* The address of a symbol, NULL when there is none. */
void *ef_library_symbol(ef_library *library, const char *name);

typedef void (*ef_entry)(void *const *in, void *const *out, char *work, int threads);
/* The program of this name; NULL and a message when the library has none. */
ef_entry ef_library_entry(ef_library *library, const char *name, ef_diag *diag);

/* One program, ready to run. */
typedef struct {
    ef_library *library;
    ef_entry entry;
    char *work; /* aligned to 64 bytes */
    int threads;
} ef_native;

/* Prints, compiles and loads a kernel graph. */
bool ef_native_open(ef_native *native, const ef_kgraph *graph, const ef_schedule *schedule, ef_diag *diag);
void ef_native_close(ef_native *native);
void ef_native_call(const ef_native *native, void *const *in, void *const *out);
/* The median time of a call in microseconds, over `repeats` calls after two that do not count. */
double ef_native_time(const ef_native *native, void *const *in, void *const *out, unsigned repeats);

/* Memory for buffers, aligned to 64 bytes, zeroed; freed by free. */
void *ef_aligned(uint64_t bytes);

#endif
