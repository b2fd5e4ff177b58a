/* A private directory for the files of one run, below $TMPDIR or /tmp. It goes away with the run; what a run that was
 * killed left behind goes away with the next one: a directory whose lock is free belongs to nobody. */
#ifndef EF_TUNE_SCRATCH_H
#define EF_TUNE_SCRATCH_H

#include "support/diag.h"

typedef struct ef_scratch ef_scratch;

/* NULL and a message when no directory can be made. */
ef_scratch *ef_scratch_new(ef_diag *diag);
/* At most 250 bytes. */
const char *ef_scratch_path(const ef_scratch *scratch);
void ef_scratch_free(ef_scratch *scratch);

#endif
