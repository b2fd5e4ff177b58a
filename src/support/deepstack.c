/* Large stacks: see deepstack.h. */
#include "support/deepstack.h"

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>

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

static bool run_with(work *w, size_t size)
{
    pthread_attr_t attr;
    pthread_t thread;
    if (pthread_attr_init(&attr) != 0)
        return false;
    bool started = pthread_attr_setstacksize(&attr, size) == 0 && pthread_create(&thread, &attr, run, w) == 0;
    pthread_attr_destroy(&attr);
    return started && pthread_join(thread, NULL) == 0;
}

void ef_with_deep_stack(void (*fn)(void *), void *arg)
{
    work w = {fn, arg, ef_interrupt_get()};
    for (size_t size = LARGEST; size >= SMALLEST; size /= 2)
        if (run_with(&w, size))
            return;
    fn(arg);
}
