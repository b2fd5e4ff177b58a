/* Choosing a kernel's next schedule: see propose.h and tuner.h. */
#include "tune/propose.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "support/arena.h"

#define SMALL_DOMAIN 4u /* any other value is a neighbour */
#define TRIES 24u
#define RANDOM_SHARE 0.1
#define MUTATION_SHARE 0.2
#define PATTERN_SHARE 0.2 /* while the last step that helped was not taken again */

/* ---- kernels ---- */

static uint32_t *copy(const uint32_t *from, uint32_t count)
{
    uint32_t *to = ef_xcalloc(count + 1, sizeof *to);
    if (count)
        memcpy(to, from, count * sizeof *to);
    return to;
}

ef_tune_kernel *ef_tune_kernel_new(uint32_t params, const uint32_t *values, const uint32_t *start)
{
    ef_tune_kernel *k = ef_xcalloc(1, sizeof *k);
    k->params = params;
    k->values = copy(values, params);
    k->start = copy(start, params);
    k->scratch = ef_xcalloc(params + 1, sizeof *k->scratch);
    k->best = INFINITY;
    k->before = UINT32_MAX;
    k->size = 1;
    k->tried = ef_intern_new();
    for (uint32_t i = 0; i < params; i++)
        k->size *= values[i];
    return k;
}

void ef_tune_kernel_free(ef_tune_kernel *k)
{
    free(k->values);
    free(k->start);
    free(k->scratch);
    ef_intern_free(k->tried);
    ef_vec_free(&k->time);
    free(k);
}

uint32_t ef_tune_kernel_point(ef_tune_kernel *k, const uint32_t *choice, int *fresh)
{
    uint32_t none = 0; /* a kernel without parameters has one schedule */
    const void *bytes = k->params ? choice : &none;
    uint32_t id = ef_intern_put(k->tried, bytes, k->params ? k->params * sizeof *choice : sizeof none, fresh);
    if (*fresh)
        ef_vec_push(&k->time, ((ef_tune_time){NAN, 0}));
    return id;
}

const uint32_t *ef_tune_kernel_choice(const ef_tune_kernel *k, uint32_t point)
{
    return ef_intern_at(k->tried, point, NULL);
}

/* Takes a point out of the best, if it is there. */
static void demote(ef_tune_kernel *k, uint32_t point)
{
    for (uint32_t i = 0; i < k->elites; i++)
        if (k->elite[i] == point) {
            memmove(k->elite + i, k->elite + i + 1, (--k->elites - i) * sizeof *k->elite);
            return;
        }
}

static void promote(ef_tune_kernel *k, uint32_t point)
{
    double us = k->time.at[point].us;
    uint32_t at = k->elites < EF_TUNE_ELITE ? k->elites++ : EF_TUNE_ELITE;
    for (; at > 0 && us < k->time.at[k->elite[at - 1]].us; at--)
        if (at < EF_TUNE_ELITE)
            k->elite[at] = k->elite[at - 1];
    if (at < EF_TUNE_ELITE)
        k->elite[at] = point;
}

void ef_tune_kernel_tell(ef_tune_kernel *k, uint32_t point, double us)
{
    ef_tune_time *t = &k->time.at[point];
    if (!isfinite(us)) {
        t->us = t->count ? t->us : INFINITY;
        return;
    }
    t->us = t->count ? (t->us * t->count + us) / (t->count + 1) : us;
    t->count++;
    k->told++;
    uint32_t best = k->elites ? k->elite[0] : UINT32_MAX;
    demote(k, point);
    promote(k, point);
    k->before = k->elite[0] != best ? best : k->before;
    k->best = k->time.at[k->elite[0]].us;
}

bool ef_tune_kernel_dry(const ef_tune_kernel *k)
{
    return (double)ef_intern_count(k->tried) >= k->size;
}

/* ---- proposals: each makes k->scratch ---- */

static void begin_at(ef_tune_kernel *k, const uint32_t *choice)
{
    if (k->params)
        memcpy(k->scratch, choice, k->params * sizeof *choice);
}

static const uint32_t *best_choice(const ef_tune_kernel *k)
{
    return k->elites ? ef_tune_kernel_choice(k, k->elite[0]) : k->start;
}

uint32_t ef_tune_neighbour(uint32_t old, uint32_t values, bool up, ef_rng *rng)
{
    if (values <= SMALL_DOMAIN) {
        uint32_t other = ef_rng_below(rng, values - 1);
        return other + (other >= old);
    }
    uint32_t step = ef_rng_below(rng, 4) == 0 ? 2 : 1;
    if ((up && old + step >= values) || (!up && old < step))
        up = !up;
    return up ? old + step : old - step;
}

/* Returns whether the value grew. */
static bool change(ef_tune_kernel *k, uint32_t param, bool up, ef_rng *rng)
{
    uint32_t old = k->scratch[param];
    k->scratch[param] = ef_tune_neighbour(old, k->values[param], up, rng);
    return k->scratch[param] > old;
}

/* A parameter that has a choice; UINT32_MAX when there is none. */
static uint32_t pick(const ef_tune_kernel *k, ef_rng *rng)
{
    uint32_t count = 0, chosen = UINT32_MAX;
    for (uint32_t i = 0; i < k->params; i++)
        if (k->values[i] > 1 && ef_rng_below(rng, ++count) == 0)
            chosen = i;
    return chosen;
}

/* One parameter changes, or two: what one takes the other may have to give. */
static void local_change(ef_tune_kernel *k, ef_rng *rng)
{
    begin_at(k, best_choice(k));
    uint32_t first = pick(k, rng), second = pick(k, rng);
    bool up = ef_rng_below(rng, 2);
    if (first == UINT32_MAX)
        return;
    up = change(k, first, up, rng);
    if (second != first && ef_rng_below(rng, 2))
        change(k, second, !up, rng);
}

/* The step that led to the best once more (Hooke and Jeeves, 1961). */
static void repeat_step(ef_tune_kernel *k)
{
    const uint32_t *best = best_choice(k), *before = ef_tune_kernel_choice(k, k->before);
    for (uint32_t i = 0; i < k->params; i++) {
        int64_t next = 2 * (int64_t)best[i] - before[i];
        k->scratch[i] = next < 0 ? 0 : next >= k->values[i] ? k->values[i] - 1 : (uint32_t)next;
    }
    k->before = UINT32_MAX;
}

/* Some changes of one of the best. */
static void mutate(ef_tune_kernel *k, ef_rng *rng)
{
    begin_at(k, k->elites ? ef_tune_kernel_choice(k, k->elite[ef_rng_below(rng, k->elites)]) : k->start);
    uint32_t changes = 1 + ef_rng_below(rng, 3);
    for (uint32_t i = 0; i < changes; i++) {
        uint32_t param = pick(k, rng);
        if (param != UINT32_MAX)
            change(k, param, ef_rng_below(rng, 2), rng);
    }
}

static void sample(ef_tune_kernel *k, ef_rng *rng)
{
    for (uint32_t i = 0; i < k->params; i++)
        k->scratch[i] = ef_rng_below(rng, k->values[i]);
}

/* The next untried choice after scratch, in the order of a counter. There is one. */
static void step_on(ef_tune_kernel *k)
{
    for (;;) {
        uint32_t i = 0;
        while (i < k->params && ++k->scratch[i] == k->values[i])
            k->scratch[i++] = 0;
        if (ef_intern_find(k->tried, k->scratch, k->params * sizeof *k->scratch) == UINT32_MAX)
            return;
    }
}

static void choose(ef_tune_kernel *k, ef_rng *rng)
{
    double dice = ef_rng_unit(rng);
    if (k->before != UINT32_MAX && k->elites && ef_rng_unit(rng) < PATTERN_SHARE)
        repeat_step(k);
    else if (dice < RANDOM_SHARE)
        sample(k, rng);
    else if (dice < RANDOM_SHARE + MUTATION_SHARE)
        mutate(k, rng);
    else
        local_change(k, rng);
}

uint32_t ef_tune_propose(ef_tune_kernel *k, ef_rng *rng)
{
    int fresh = 0;
    begin_at(k, k->start);
    uint32_t point = ef_tune_kernel_point(k, k->scratch, &fresh);
    for (unsigned tries = 0; !fresh && tries < TRIES; tries++) {
        choose(k, rng);
        point = ef_tune_kernel_point(k, k->scratch, &fresh);
    }
    if (!fresh) {
        step_on(k);
        point = ef_tune_kernel_point(k, k->scratch, &fresh);
    }
    return point;
}
