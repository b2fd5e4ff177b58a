/* Choosing a family's next schedule: see propose.h and tuner.h. */
#include "tune/propose.h"

#include <math.h>
#include <string.h>

#define SMALL_DOMAIN 4u /* any other value is a neighbour */
#define TRIES 24u
#define RANDOM_SHARE 0.1
#define MUTATION_SHARE 0.2

/* ---- families ---- */

static uint32_t *copy(const uint32_t *from, uint32_t count)
{
    uint32_t *to = ef_xcalloc(count + 1, sizeof *to);
    memcpy(to, from, count * sizeof *to);
    return to;
}

/* Numbers the owners in the order in which they appear; what shapes buffers first. */
static void number_groups(ef_tune_family *f, const uint32_t *owner)
{
    uint32_t *seen = ef_xcalloc(f->params + 1, sizeof *seen);
    for (int pass = 0; pass < 2; pass++)
        for (uint32_t i = 0; i < f->params; i++) {
            uint32_t g = 0;
            if (f->values[i] < 2 || (owner[i] == UINT32_MAX) != (pass == 0))
                continue;
            while (g < f->groups && seen[g] != owner[i])
                g++;
            if (g == f->groups)
                seen[f->groups++] = owner[i];
            f->group[i] = g;
        }
    free(seen);
}

ef_tune_family *ef_tune_family_new(const ef_tune_space *space)
{
    ef_tune_family *f = ef_xcalloc(1, sizeof *f);
    f->params = space->params;
    f->values = copy(space->values, f->params);
    f->start = copy(space->start, f->params);
    f->group = ef_xcalloc(f->params + 1, sizeof *f->group);
    f->scratch = ef_xcalloc(f->params + 1, sizeof *f->scratch);
    f->estimate = space->estimate;
    f->best = INFINITY;
    f->size = 1;
    f->tried = ef_intern_new();
    for (uint32_t i = 0; i < f->params; i++)
        f->size *= f->values[i];
    number_groups(f, space->owner);
    return f;
}

void ef_tune_family_free(ef_tune_family *f)
{
    free(f->values);
    free(f->start);
    free(f->group);
    free(f->scratch);
    ef_intern_free(f->tried);
    ef_vec_free(&f->us);
    free(f);
}

bool ef_tune_family_has(const ef_tune_family *f, const uint32_t *choice)
{
    for (uint32_t i = 0; i < f->params; i++)
        if (choice[i] >= f->values[i])
            return false;
    return true;
}

uint32_t ef_tune_family_point(ef_tune_family *f, const uint32_t *choice, int *fresh)
{
    uint32_t none = 0; /* a family without parameters has one schedule */
    const void *bytes = f->params ? choice : &none;
    uint32_t id = ef_intern_put(f->tried, bytes, f->params ? f->params * sizeof *choice : sizeof none, fresh);
    if (*fresh)
        ef_vec_push(&f->us, NAN);
    return id;
}

const uint32_t *ef_tune_family_choice(const ef_tune_family *f, uint32_t point)
{
    return ef_intern_at(f->tried, point, NULL);
}

void ef_tune_family_tell(ef_tune_family *f, uint32_t point, double us)
{
    f->us.at[point] = us;
    if (!isfinite(us))
        return;
    uint32_t at = f->elites < EF_TUNE_ELITE ? f->elites++ : EF_TUNE_ELITE;
    for (; at > 0 && us < f->us.at[f->elite[at - 1]]; at--)
        if (at < EF_TUNE_ELITE)
            f->elite[at] = f->elite[at - 1];
    if (at < EF_TUNE_ELITE)
        f->elite[at] = point;
    f->stale = us < f->best ? 0 : f->stale;
    f->best = fmin(f->best, us);
}

bool ef_tune_family_dry(const ef_tune_family *f)
{
    return (double)ef_intern_count(f->tried) >= f->size;
}

/* ---- proposals: each makes f->scratch ---- */

static void begin_at(ef_tune_family *f, const uint32_t *choice)
{
    if (f->params)
        memcpy(f->scratch, choice, f->params * sizeof *choice);
}

static const uint32_t *best_choice(const ef_tune_family *f)
{
    return f->elites ? ef_tune_family_choice(f, f->elite[0]) : f->start;
}

/* Another value of a parameter: a step of 1, now and then 2, or any other of a small domain. Returns whether it grew.
 */
static bool change(ef_tune_family *f, uint32_t param, bool up, ef_rng *rng)
{
    uint32_t n = f->values[param], old = f->scratch[param], other;
    if (n <= SMALL_DOMAIN) {
        other = ef_rng_below(rng, n - 1);
        other += other >= old;
    } else {
        uint32_t step = ef_rng_below(rng, 4) == 0 ? 2 : 1;
        if ((up && old + step >= n) || (!up && old < step))
            up = !up;
        other = up ? old + step : old - step;
    }
    f->scratch[param] = other;
    return other > old;
}

/* A parameter of a group (groups: of any) that has a choice; UINT32_MAX when there is none. */
static uint32_t pick(const ef_tune_family *f, uint32_t group, ef_rng *rng)
{
    uint32_t count = 0, chosen = UINT32_MAX;
    for (uint32_t i = 0; i < f->params; i++)
        if (f->values[i] > 1 && (group == f->groups || f->group[i] == group) && ef_rng_below(rng, ++count) == 0)
            chosen = i;
    return chosen;
}

/* One parameter of the group changes, or two: what one takes the other may have to give. */
static void local_change(ef_tune_family *f, uint32_t group, ef_rng *rng)
{
    begin_at(f, best_choice(f));
    uint32_t first = pick(f, group, rng), second = pick(f, group, rng);
    bool up = ef_rng_below(rng, 2);
    if (first == UINT32_MAX)
        return;
    up = change(f, first, up, rng);
    if (second != first && ef_rng_below(rng, 2))
        change(f, second, !up, rng);
}

/* Kernel by kernel from two of the best, then some changes anywhere. */
static void mutate(ef_tune_family *f, ef_rng *rng)
{
    const uint32_t *mother = best_choice(f), *father = mother;
    if (f->elites) {
        mother = ef_tune_family_choice(f, f->elite[ef_rng_below(rng, f->elites)]);
        father = ef_tune_family_choice(f, f->elite[ef_rng_below(rng, f->elites)]);
    }
    begin_at(f, mother);
    for (uint32_t g = 0; g < f->groups; g++) {
        bool take = ef_rng_below(rng, 2);
        for (uint32_t i = 0; i < f->params; i++)
            if (take && f->values[i] > 1 && f->group[i] == g)
                f->scratch[i] = father[i];
    }
    uint32_t changes = 1 + ef_rng_below(rng, 3);
    for (uint32_t i = 0; i < changes; i++) {
        uint32_t param = pick(f, f->groups, rng);
        if (param != UINT32_MAX)
            change(f, param, ef_rng_below(rng, 2), rng);
    }
}

static void sample(ef_tune_family *f, ef_rng *rng)
{
    for (uint32_t i = 0; i < f->params; i++)
        f->scratch[i] = ef_rng_below(rng, f->values[i]);
}

/* The next untried schedule after scratch, in the order of a counter. There is one. */
static void step_on(ef_tune_family *f)
{
    for (;;) {
        uint32_t i = 0;
        while (i < f->params && ++f->scratch[i] == f->values[i])
            f->scratch[i++] = 0;
        if (ef_intern_find(f->tried, f->scratch, f->params * sizeof *f->scratch) == UINT32_MAX)
            return;
    }
}

/* How many local changes of a group in vain are enough: about its neighbours. */
static uint32_t patience(const ef_tune_family *f)
{
    uint32_t count = 1;
    for (uint32_t i = 0; i < f->params; i++)
        if (f->values[i] > 1 && f->group[i] == f->turn)
            count += 2;
    return count;
}

static void choose(ef_tune_family *f, ef_rng *rng)
{
    double dice = ef_rng_unit(rng);
    if (dice < RANDOM_SHARE) {
        sample(f, rng);
    } else if (dice < RANDOM_SHARE + MUTATION_SHARE || f->groups == 0) {
        mutate(f, rng);
    } else {
        if (++f->stale > patience(f)) {
            f->turn = (f->turn + 1) % f->groups;
            f->stale = 0;
        }
        local_change(f, f->turn, rng);
    }
}

uint32_t ef_tune_propose(ef_tune_family *f, ef_rng *rng)
{
    int fresh = 0;
    begin_at(f, f->start);
    uint32_t point = ef_tune_family_point(f, f->scratch, &fresh);
    for (unsigned tries = 0; !fresh && tries < TRIES; tries++) {
        choose(f, rng);
        point = ef_tune_family_point(f, f->scratch, &fresh);
    }
    if (!fresh) {
        step_on(f);
        point = ef_tune_family_point(f, f->scratch, &fresh);
    }
    return point;
}
