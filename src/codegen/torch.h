/* A tensor-level program as plain PyTorch: what a tiled program must agree with on a GPU, and what it must beat. */
#ifndef EF_CODEGEN_TORCH_H
#define EF_CODEGEN_TORCH_H

#include "ir/expr.h"

/* Appends a Python module that imports torch only. It defines
 *
 *   NAME(*inputs, dtype=None, sizes={})   the output, or a tuple of several
 *   INPUTS, OUTPUTS                      lists of (name, dtype, shape), dtype as in the text form
 *   SUMMED                               numbers of the inputs that are added up, see ir/independent.h
 *   FAN_IN                               by input: elements that it is contracted over as a weight, see there; or 1
 *   DRAWS                                {draw: (scales, largest error, whether outputs must stay in range)}, of
 *                                        codegen/verify.h
 *   BATCH                                {dimension: ([its place in each input or None], [its place in each output])}
 *
 * Without `dtype` every operator has the element type that the program gives it: the eager baseline. With
 * dtype=torch.float64 all floating-point types are that one: the reference. BATCH lists the dimensions along which the
 * program computes each position by itself, so that a large reference can be computed piece by piece: call it with a
 * piece of each input and the dimension's size there, NAME(..., sizes={"b": 1}).
 *
 * Large tensors are deleted as soon as nothing needs them any more: a call takes no more memory than the operators do.
 *
 * False and a message when the program is not tensor-level. `name` must be a Python identifier. */
bool ef_codegen_torch(const ef_program *program, const char *name, ef_strbuf *out, ef_diag *diag);

#endif
