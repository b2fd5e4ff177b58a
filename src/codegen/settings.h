/* What a user sets by text: "NAME=N,NAME=N", extents of dimensions and values of a schedule. */
#ifndef EF_CODEGEN_SETTINGS_H
#define EF_CODEGEN_SETTINGS_H

#include "kernel/schedule.h"

/* Changes extents of named dimensions. False after a message. */
bool ef_settings_dims(ef_ctx *ctx, const char *dims, ef_diag *diag);
/* Sets parameters by their names (ef_schedule_set). False after a message. */
bool ef_settings_schedule(const ef_kgraph *graph, ef_schedule *schedule, const char *text, ef_diag *diag);
/* All extents, to go back to; ef_settings_restore frees them. `vars`: how many there were. */
uint64_t *ef_settings_extents(const ef_ctx *ctx);
void ef_settings_restore(ef_ctx *ctx, uint64_t *extent, uint32_t vars);

#endif
