/* Ending work early. Another thread, or a signal handler, sets a flag; what may go on for long asks for it where it
 * asks the clock. A thread works under a flag, and so do the threads with large stacks that it starts (deepstack.h):
 * nothing in between has to pass the flag on. */
#ifndef EF_SUPPORT_INTERRUPT_H
#define EF_SUPPORT_INTERRUPT_H

#include <stdatomic.h>
#include <stdbool.h>

typedef enum {
    EF_GO_ON,
    EF_FINISH, /* with what there is so far */
    EF_ABANDON /* without a result */
} ef_ending;

/* A flag (an ef_ending; NULL: none), and from which ending on the work at hand is to end. It ends as well where `outer`
 * asks for it: NULL, or what it is a part of. */
typedef struct ef_interrupt {
    const atomic_int *flag;
    ef_ending from;
    const struct ef_interrupt *outer;
} ef_interrupt;

/* What this thread works under from now on; returns what it worked under so far. */
ef_interrupt ef_interrupt_set(ef_interrupt interrupt);
ef_interrupt ef_interrupt_get(void);
/* What was asked for, of this work alone. */
ef_ending ef_interrupt_asked(void);
/* Whether the work at hand is to end. */
bool ef_interrupted(void);

#endif
