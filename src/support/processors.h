/* How many processors there are to work on. */
#ifndef EF_SUPPORT_PROCESSORS_H
#define EF_SUPPORT_PROCESSORS_H

/* Those that this process may use: its affinity, which a parent that shares the machine out may have narrowed. At
 * least 1. */
unsigned ef_processors(void);

#endif
