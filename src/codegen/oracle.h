/* What every implementation of a program is checked against (design, section 7, "Numerics").
 *
 * For each way of drawing inputs, the oracle has the program's outputs in float64 and the error of EAGER: the program
 * with one kernel an operator, which accumulates in float32 and rounds each result to its own type, as PyTorch does. It
 * is printed by the same generator. An implementation is valid when its error is at most twice eager's, and below
 * EF_ERROR_LIMIT; where eager is exact, or leaves the range of its types (its error is infinite then), a floor and that
 * limit alone count.
 *
 * The scale of inputs (verify.h) is one that suits the program with its intermediate results in float32. */
#ifndef EF_CODEGEN_ORACLE_H
#define EF_CODEGEN_ORACLE_H

#include "codegen/verify.h"

typedef struct ef_oracle ef_oracle;

/* NULL and a message when the program has no kernels. The program's context must not change its extents while the
 * oracle lives; the program must outlive it. */
ef_oracle *ef_oracle_new(const ef_program *program, ef_diag *diag);
void ef_oracle_free(ef_oracle *oracle);
/* Prints the programs NAME_eager and NAME_wide that it needs. */
bool ef_oracle_print(const ef_oracle *oracle, const char *name, ef_strbuf *out, ef_diag *diag);
/* Draws inputs, evaluates the program and runs eager, from the library that has the two programs. `seed`: of the
 * inputs. The evaluator works element by element: this is what takes time. */
bool ef_oracle_prepare(ef_oracle *oracle, ef_library *library, const char *name, uint64_t seed, ef_diag *diag);

typedef struct {
    bool valid;
    ef_draw draw;                                        /* where the error is largest beside its bound */
    double error, eager, bound;                          /* there */
    double errors[EF_DRAW_COUNT], eagers[EF_DRAW_COUNT]; /* of all draws */
    double largest;                                      /* of the errors */
} ef_verdict;

/* Runs an implementation on all draws. */
ef_verdict ef_oracle_check(const ef_oracle *oracle, const ef_kgraph *graph, const ef_schedule *schedule,
                           const ef_native *native);

#endif
