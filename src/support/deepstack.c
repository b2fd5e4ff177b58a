/* Large stacks: see deepstack.h. */
#include "support/deepstack.h"

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>

#include "support/arena.h"
#include "support/interrupt.h"

#define LARGEST ((size_t)1 << 30)
#define SMALLEST ((size_t)16 << 20)

typedef struct {
    void (*fn)(void *);
    void *arg;
    ef_interrupt interrupt; /* of the thread that waits */
} work;

static void *run(void *user)
{
    const work *w = user;
    ef_interrupt_set(w->interrupt);
    w->fn(w->arg);
    return NULL;
}

static bool start_with(pthread_t *thread, work *w, size_t size)
{
    pthread_attr_t attr;
    if (pthread_attr_init(&attr) != 0)
        return false;
    bool started = pthread_attr_setstacksize(&attr, size) == 0 && pthread_create(thread, &attr, run, w) == 0;
    pthread_attr_destroy(&attr);
    return started;
}

void ef_with_deep_stacks(unsigned threads, void (*fn)(void *), void *arg)
{
    work w = {fn, arg, ef_interrupt_get()};
    pthread_t *thread = ef_xcalloc(threads + 1, sizeof *thread);
    unsigned started = 0;
    for (size_t size = LARGEST; size >= SMALLEST && started < threads; size /= 2)
        while (started < threads && start_with(&thread[started], &w, size))
            started++;
    if (started == 0)
        fn(arg);
    while (started > 0)
        pthread_join(thread[--started], NULL);
    free(thread);
}

void ef_with_deep_stack(void (*fn)(void *), void *arg)
{
    ef_with_deep_stacks(1, fn, arg);
}
