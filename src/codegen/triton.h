/* The Triton generator: prints a kernel graph under a schedule as one Python module (paper, section 6.1; design,
 * section 7). The module imports torch and triton only and runs without EquiForge. It has
 *
 *     INPUTS, OUTPUTS    lists of (name, torch dtype, shape)
 *     BUFFERS            list of (torch dtype, elements): temporaries
 * device launch(inputs, outputs, temps)    lists of contiguous tensors; launches on the current stream, allocates
 * nothing NAME(*inputs)      allocates outputs and temporaries, and returns the output or a tuple of them
 *
 * A block of the grid is one Triton program. A tile is a block of registers, whose extents are rounded up to powers of
 * two; what is beyond a tile's length is masked. All sizes are literals. */
#ifndef EF_CODEGEN_TRITON_H
#define EF_CODEGEN_TRITON_H

#include "kernel/schedule.h"

/* False and a message when the graph cannot be printed under this schedule: a tile is too large for registers, or a
 * computed tile is read in parts, which registers do not allow. */
bool ef_codegen_triton(const ef_kgraph *graph, const ef_schedule *schedule, const char *name, ef_strbuf *out,
                       ef_diag *diag);

#endif
