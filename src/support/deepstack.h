/* Work that may recurse as deep as a program is long: chains of tens of thousands of operators. */
#ifndef EF_SUPPORT_DEEPSTACK_H
#define EF_SUPPORT_DEEPSTACK_H

/* Calls fn(arg) and waits for it, on a thread whose stack is large (1 GiB, of which only what is used takes memory), or
 * as large as the system gives; on this thread when it gives none. */
void ef_with_deep_stack(void (*fn)(void *), void *arg);
/* The same on so many threads at once, or as many as the system gives. All work under the interrupt of this thread. */
void ef_with_deep_stacks(unsigned threads, void (*fn)(void *), void *arg);

#endif
