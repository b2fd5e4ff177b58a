/* Ending work early: see interrupt.h. */
#include "support/interrupt.h"

#include <stddef.h>

static _Thread_local ef_interrupt here;

ef_interrupt ef_interrupt_set(ef_interrupt interrupt)
{
    ef_interrupt before = here;
    here = interrupt;
    return before;
}

ef_interrupt ef_interrupt_get(void)
{
    return here;
}

ef_ending ef_interrupt_asked(void)
{
    return here.flag ? (ef_ending)atomic_load(here.flag) : EF_GO_ON;
}

bool ef_interrupted(void)
{
    for (const ef_interrupt *i = &here; i; i = i->outer)
        if (i->flag && (ef_ending)atomic_load(i->flag) >= i->from)
            return true;
    return false;
}
