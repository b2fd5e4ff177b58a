/* The C generator: prints a kernel graph under a schedule as C with OpenMP (paper, section 6.1; design, section 7).
 *
 * A generated file is the support code, once, and then programs. A program NAME is one function:
 *
 *     void NAME(void *const *in, void *const *out, char *work, int threads);
 *     (work: ef_codegen_c's return value in bytes, aligned to 64; in and out: in the graph's order)
 */
#ifndef EF_CODEGEN_C_H
#define EF_CODEGEN_C_H

#include "kernel/schedule.h"

/* The support code, which stands once at the head of a file. */
void ef_codegen_c_runtime(ef_strbuf *out);
/* Prints a program and returns the size of its workspace in bytes; 0 after a message. */
uint64_t ef_codegen_c(const ef_kgraph *graph, const ef_schedule *schedule, const char *name, ef_strbuf *out,
                      ef_diag *diag);

/* Appends to a printed program what times its kernels:
 *
 *     void NAME_timed(void *const *in, void *const *out, char *work, int threads, double *us);
 *     const int NAME_kernels;
 *
 * does the same as NAME and says what each kernel took. */
void ef_codegen_c_timed(const ef_kgraph *graph, const char *name, ef_strbuf *out);

#endif
