/* What a user sets by text: "NAME=N,NAME=N", extents of dimensions and values of a schedule. */
#ifndef EF_CODEGEN_SETTINGS_H
#define EF_CODEGEN_SETTINGS_H

#include "kernel/schedule.h"

/* Changes extents of named dimensions of a program's context, within what its tensors can have. False after a message.
 */
bool ef_settings_dims(const ef_program *program, const char *dims, ef_diag *diag);
/* Sets parameters by their names (ef_schedule_set). Between them may stand commas or blanks, as in stored schedules.
 * False after a message. */
bool ef_settings_schedule(const ef_kgraph *graph, ef_schedule *schedule, const char *text, ef_diag *diag);
/* Whether a text can be a schedule of so many kernels, as far as is known without them: all values are legal. False
 * after a message. */
bool ef_settings_check(ef_backend backend, uint32_t kernels, const char *text, ef_diag *diag);
/* All extents, to go back to; ef_settings_restore frees them. `vars`: how many there were. */
uint64_t *ef_settings_extents(const ef_ctx *ctx);
void ef_settings_restore(ef_ctx *ctx, uint64_t *extent, uint32_t vars);

#endif
