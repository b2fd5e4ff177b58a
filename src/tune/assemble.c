/* Families as what their kernels make of them: see assemble.h. */
#include "tune/assemble.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "support/arena.h"

#define TRIES 24u
#define UNFIT 200u         /* proposals that do not fit, before a kernel is left as it is */
#define RESHAPE_SHARE 0.15 /* of proposals: what shapes buffers changes … */
#define STALE_SHARE 0.45   /* … and this much more often after long in vain: */
#define STALE 60.0         /* proposals */
#define REVISIT 0.6        /* of these: another shape that was tried, and promises most */
#define RANDOM_SHARE 0.02  /* … everything is random, also where kernels were never seen to work */
#define SMALL_SHARE 0.01   /* of a schedule's time: such a kernel is not worth changing */
#define ADVANCE 0.98       /* of the best: a sum of best kernels that is below is measured as a whole */
#define OPTIMISM 0.7 /* of a time above its estimate: what tries may save, by the root of log(all tries) / tries */
#define MOST_OPTIMISM 0.8
#define FAILURES 3u /* of whole schedules, without a success: nothing is promised then */

/* ---- families ---- */

static void *copy(const void *from, size_t count, size_t size)
{
    void *to = ef_xcalloc(count + 1, size);
    if (from && count)
        memcpy(to, from, count * size);
    return to;
}

ef_tune_family *ef_tune_family_new(const ef_tune_space *space, uint32_t number)
{
    ef_tune_family *f = ef_xcalloc(1, sizeof *f);
    f->number = number;
    f->params = space->params;
    for (uint32_t i = 0; i < f->params; i++)
        if (space->owner[i] != UINT32_MAX && space->owner[i] >= f->kernels)
            f->kernels = space->owner[i] + 1;
    f->kernels = space->kernels > f->kernels ? space->kernels : f->kernels;
    f->kernels = f->kernels ? f->kernels : 1;
    f->values = copy(space->values, f->params, sizeof *f->values);
    f->owner = copy(space->owner, f->params, sizeof *f->owner);
    f->start = copy(space->start, f->params, sizeof *f->start);
    f->key = copy(space->key, f->params, sizeof *f->key);
    f->identity = copy(space->kernels ? space->identity : NULL, f->kernels, sizeof *f->identity);
    f->kernel_estimate = copy(space->kernels ? space->kernel_estimate : NULL, f->kernels, sizeof *f->kernel_estimate);
    f->uses = copy(space->kernels ? space->uses : NULL, (size_t)f->kernels * f->params, sizeof *f->uses);
    f->scratch = ef_xcalloc(f->params + 1, sizeof *f->scratch);
    f->part = ef_xcalloc(f->params + 1, sizeof *f->part);
    f->point = ef_xcalloc(f->kernels + 1, sizeof *f->point);
    f->record = ef_xcalloc(f->kernels + 1, sizeof *f->record);
    f->fits = space->fits;
    f->user = space->user;
    f->estimate = space->estimate;
    f->best = INFINITY;
    f->size = 1;
    f->width = f->kernels;
    f->timed = true;
    f->tried = ef_intern_new();
    f->shapes = ef_intern_new();
    for (uint32_t i = 0; i < f->params; i++)
        f->size *= f->values[i];
    return f;
}

void ef_tune_family_free(ef_tune_family *f)
{
    free(f->values);
    free(f->owner);
    free(f->start);
    free(f->key);
    free(f->identity);
    free(f->kernel_estimate);
    free(f->uses);
    free(f->scratch);
    free(f->part);
    free(f->point);
    free(f->record);
    ef_intern_free(f->tried);
    ef_intern_free(f->shapes);
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
    if (*fresh) {
        ef_vec_push(&f->us, NAN);
    } else if (f->us.at[id] == EF_TUNE_AGAIN) {
        f->us.at[id] = NAN;
        f->again--;
        *fresh = 1;
    }
    return id;
}

const uint32_t *ef_tune_family_choice(const ef_tune_family *f, uint32_t point)
{
    return ef_intern_at(f->tried, point, NULL);
}

bool ef_tune_family_hopeless(const ef_tune_family *f)
{
    return f->elites == 0 && f->failures >= FAILURES;
}

bool ef_tune_family_dry(const ef_tune_family *f)
{
    return (double)ef_intern_count(f->tried) - f->again >= f->size;
}

/* Whether the schedule in scratch may be asked. */
static bool is_open(const ef_tune_family *f)
{
    uint32_t none = 0;
    const uint32_t *bytes = f->params ? f->scratch : &none;
    uint32_t id = ef_intern_find(f->tried, bytes, (f->params ? f->params : 1) * sizeof *bytes);
    return id == UINT32_MAX || f->us.at[id] == EF_TUNE_AGAIN;
}

/* ---- the kernels of a schedule ---- */

static uint32_t part_of(const ef_tune_family *f, const uint32_t *choice, uint32_t kernel, uint32_t *part)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < f->params; i++)
        if (f->owner[i] == kernel)
            part[count++] = choice[i];
    return count;
}

static void set_part(const ef_tune_family *f, uint32_t kernel, const uint32_t *part, uint32_t *choice)
{
    for (uint32_t i = 0; i < f->params; i++)
        if (f->owner[i] == kernel)
            choice[i] = *part++;
}

/* What the kernel is under a schedule's buffers. Without identities each family has kernels of its own. */
static uint64_t identity_of(const ef_tune_family *f, const uint32_t *choice, uint32_t kernel)
{
    bool shared = f->identity[kernel] != 0;
    uint64_t id[2] = {shared ? f->identity[kernel] : f->number, shared ? 0 : kernel + 1};
    uint64_t hash = ef_hash(id, sizeof id);
    for (uint32_t i = 0; i < f->params; i++)
        if (f->owner[i] == UINT32_MAX && f->values[i] > 1 && (!shared || f->uses[kernel * f->params + i])) {
            uint64_t more[3] = {hash, shared ? f->key[i] : i, choice[i]};
            hash = ef_hash(more, sizeof more);
        }
    return hash;
}

static uint32_t find_record(const ef_tune_records *records, uint64_t identity)
{
    for (uint32_t i = 0; i < records->count; i++)
        if (records->at[i].identity == identity)
            return i;
    return UINT32_MAX;
}

/* The record of a kernel under a schedule's buffers; a new one begins at `start`, a whole schedule. */
static uint32_t record_of(ef_tune_family *f, ef_tune_records *records, const uint32_t *choice, uint32_t kernel,
                          const uint32_t *start)
{
    uint64_t identity = identity_of(f, choice, kernel);
    uint32_t at = find_record(records, identity);
    if (at != UINT32_MAX)
        return at;
    uint32_t *values = ef_xcalloc(f->params + 1, sizeof *values), count = part_of(f, f->values, kernel, values);
    part_of(f, start, kernel, f->part);
    ef_vec_push(records, ((ef_tune_record){identity, ef_tune_kernel_new(count, values, f->part)}));
    free(values);
    return records->count - 1;
}

static const uint32_t *best_choice(const ef_tune_family *f)
{
    return f->elites ? ef_tune_family_choice(f, f->elite[0]) : f->start;
}

/* Finds records and points of all kernels of a schedule. */
static void look_up(ef_tune_family *f, ef_tune_records *records, const uint32_t *choice)
{
    int fresh;
    for (uint32_t k = 0; k < f->kernels; k++) {
        f->record[k] = record_of(f, records, choice, k, choice);
        part_of(f, choice, k, f->part);
        f->point[k] = ef_tune_kernel_point(records->at[f->record[k]].kernel, f->part, &fresh);
    }
}

static uint32_t count_shapes(const ef_tune_family *f)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < f->params; i++)
        count += f->owner[i] == UINT32_MAX;
    return count;
}

static bool has_shapes(const ef_tune_family *f)
{
    for (uint32_t i = 0; i < f->params; i++)
        if (f->owner[i] == UINT32_MAX && f->values[i] > 1)
            return true;
    return false;
}

/* ---- results ---- */

static void add_elite(ef_tune_family *f, uint32_t point, double us)
{
    uint32_t at = f->elites < EF_TUNE_ELITE ? f->elites++ : EF_TUNE_ELITE;
    for (; at > 0 && us < f->us.at[f->elite[at - 1]]; at--)
        if (at < EF_TUNE_ELITE)
            f->elite[at] = f->elite[at - 1];
    if (at < EF_TUNE_ELITE)
        f->elite[at] = point;
    f->best = fmin(f->best, us);
}

static bool is_new(const ef_tune_family *f, const ef_tune_records *records, uint32_t kernel)
{
    return isnan(records->at[f->record[kernel]].kernel->time.at[f->point[kernel]].us);
}

/* Without times of kernels: what has none takes what the others leave, by its estimate. That a kernel was blamed for a
 * failure is no time: a whole schedule works with it now. */
static void share_out(const ef_tune_family *f, const ef_tune_records *records, double us, double *kernel_us)
{
    double known = 0, estimates = 0;
    for (uint32_t k = 0; k < f->kernels; k++) {
        kernel_us[k] = records->at[f->record[k]].kernel->time.at[f->point[k]].us;
        if (isfinite(kernel_us[k]))
            known += kernel_us[k];
        else
            estimates += f->kernel_estimate[k] + 1e-9;
    }
    for (uint32_t k = 0; k < f->kernels; k++)
        kernel_us[k] =
            isfinite(kernel_us[k]) ? NAN : fmax(us - known, 0.01 * us) * (f->kernel_estimate[k] + 1e-9) / estimates;
}

static void tell_kernels(ef_tune_family *f, ef_tune_records *records, double us, const double *kernel_us)
{
    double *shared = ef_xcalloc(f->kernels + 1, sizeof *shared), sum = 0;
    if (!kernel_us)
        share_out(f, records, us, shared);
    for (uint32_t k = 0; k < f->kernels; k++) {
        double time = kernel_us ? kernel_us[k] : shared[k];
        if (time >= 0)
            ef_tune_kernel_tell(records->at[f->record[k]].kernel, f->point[k], time);
        sum += kernel_us ? time : 0;
    }
    if (kernel_us && us < f->best)
        f->overhead = fmax(us - sum, 0);
    free(shared);
}

void ef_tune_family_tell(ef_tune_family *f, ef_tune_records *records, uint32_t point, double us,
                         const double *kernel_us)
{
    f->us.at[point] = us;
    f->stale = us < f->best ? 0 : f->stale + 1;
    part_of(f, ef_tune_family_choice(f, point), UINT32_MAX, f->part);
    if (has_shapes(f))
        ef_intern_put(f->shapes, f->part, count_shapes(f) * sizeof *f->part, NULL);
    look_up(f, records, ef_tune_family_choice(f, point));
    if (isfinite(us)) {
        f->timed = f->kernels == 1 || kernel_us;
        tell_kernels(f, records, us, f->kernels == 1 ? &us : kernel_us);
        add_elite(f, point, us);
        f->width = 2 * f->width < f->kernels ? 2 * f->width : f->kernels;
        return;
    }
    f->failures++;
    f->width = f->width > 1 ? f->width / 2 : 1;
    for (uint32_t k = 0; k < f->kernels; k++)
        if (is_new(f, records, k))
            ef_tune_kernel_tell(records->at[f->record[k]].kernel, f->point[k], INFINITY);
}

bool ef_tune_family_renew(ef_tune_family *f, const uint64_t *identity)
{
    if (memcmp(f->identity, identity, f->kernels * sizeof *identity) == 0)
        return false;
    memcpy(f->identity, identity, f->kernels * sizeof *identity);
    if (f->params && f->elites)
        memcpy(f->start, best_choice(f), f->params * sizeof *f->start);
    for (uint32_t i = 0; i < f->us.count; i++)
        if (isfinite(f->us.at[i]) && f->us.at[i] != EF_TUNE_AGAIN) {
            f->us.at[i] = EF_TUNE_AGAIN;
            f->again++;
        }
    f->best = INFINITY;
    f->overhead = 0;
    f->elites = f->failures = f->stale = 0;
    return true;
}

/* What a schedule's shape of buffers may come to. */
static double promise_of(const ef_tune_family *f, const ef_tune_records *records, const uint32_t *choice)
{
    double sum = f->overhead, tries = 1;
    for (uint32_t i = 0; i < records->count; i++)
        tries += records->at[i].kernel->told;
    for (uint32_t k = 0; k < f->kernels; k++) {
        uint32_t at = find_record(records, identity_of(f, choice, k));
        const ef_tune_kernel *kernel = at == UINT32_MAX ? NULL : records->at[at].kernel;
        if (!kernel || !kernel->elites)
            return f->best; /* of a kernel that nothing is known of nothing is promised */
        double saved = fmin(OPTIMISM * sqrt(log(tries) / (1.0 + kernel->told)), MOST_OPTIMISM);
        sum += kernel->best - saved * fmax(kernel->best - f->kernel_estimate[k], 0);
    }
    return sum;
}

double ef_tune_family_promise(const ef_tune_family *f, const ef_tune_records *records)
{
    return ef_tune_family_hopeless(f) ? INFINITY : promise_of(f, records, best_choice(f));
}

/* ---- proposals ---- */

/* One of the parameters that shape buffers changes. */
static void reshape(ef_tune_family *f, ef_rng *rng)
{
    uint32_t count = 0, chosen = UINT32_MAX;
    for (uint32_t i = 0; i < f->params; i++)
        if (f->owner[i] == UINT32_MAX && f->values[i] > 1 && ef_rng_below(rng, ++count) == 0)
            chosen = i;
    if (chosen != UINT32_MAX)
        f->scratch[chosen] = ef_tune_neighbour(f->scratch[chosen], f->values[chosen], ef_rng_below(rng, 2), rng);
}

/* Of the shapes that were tried, but for the best, the one that promises most. */
static void revisit(ef_tune_family *f, const ef_tune_records *records)
{
    double most = INFINITY;
    uint32_t chosen = UINT32_MAX, *best = ef_xcalloc(f->params + 1, sizeof *best);
    part_of(f, best_choice(f), UINT32_MAX, best);
    size_t size;
    for (uint32_t i = 0; i < ef_intern_count(f->shapes); i++) {
        const uint32_t *shape = ef_intern_at(f->shapes, i, &size);
        set_part(f, UINT32_MAX, shape, f->scratch);
        double promise = promise_of(f, records, f->scratch);
        if (promise < most && memcmp(shape, best, size) != 0) {
            most = promise;
            chosen = i;
        }
    }
    set_part(f, UINT32_MAX, chosen == UINT32_MAX ? best : ef_intern_at(f->shapes, chosen, NULL), f->scratch);
    free(best);
}

/* A new choice of one kernel; false when it has none. What does not fit counts as tried, and failed. */
static bool renew(ef_tune_family *f, const ef_tune_records *records, uint32_t kernel, ef_rng *rng)
{
    ef_tune_kernel *k = records->at[f->record[kernel]].kernel;
    for (unsigned tries = 0; tries < UNFIT && !ef_tune_kernel_dry(k); tries++) {
        uint32_t point = ef_tune_propose(k, rng);
        set_part(f, kernel, ef_tune_kernel_choice(k, point), f->scratch);
        if (!f->fits || f->fits(f->user, kernel, f->scratch))
            return true;
        ef_tune_kernel_tell(k, point, INFINITY);
    }
    set_part(f, kernel, k->elites ? ef_tune_kernel_choice(k, k->elite[0]) : k->start, f->scratch);
    return false;
}

/* All kernels at their best, which is new where none is known; how many are new, and what the others take. */
static uint32_t take_best(ef_tune_family *f, ef_tune_records *records, ef_rng *rng, double *us)
{
    uint32_t fresh = 0;
    *us = f->overhead;
    for (uint32_t k = 0; k < f->kernels; k++) {
        f->record[k] = record_of(f, records, f->scratch, k, best_choice(f));
        const ef_tune_kernel *kernel = records->at[f->record[k]].kernel;
        if (kernel->elites) {
            set_part(f, k, ef_tune_kernel_choice(kernel, kernel->elite[0]), f->scratch);
            *us += kernel->best;
        } else {
            fresh += renew(f, records, k, rng);
        }
    }
    return fresh;
}

/* Changes some kernels, those that take long more likely: as many as may change at once. */
static void vary(ef_tune_family *f, const ef_tune_records *records, uint32_t fresh, double us, ef_rng *rng)
{
    uint32_t most = f->timed ? f->width : 1;
    bool *done = ef_xcalloc(f->kernels + 1, sizeof *done);
    while (fresh < most) {
        double highest = 0;
        uint32_t next = UINT32_MAX;
        for (uint32_t k = 0; k < f->kernels; k++) {
            const ef_tune_kernel *kernel = records->at[f->record[k]].kernel;
            double weight = kernel->elites && kernel->best >= SMALL_SHARE * us
                                ? kernel->best * (f->kernels > 1 ? ef_rng_unit(rng) : 1)
                                : 0;
            if (!done[k] && weight > highest) {
                highest = weight;
                next = k;
            }
        }
        if (next == UINT32_MAX)
            break;
        done[next] = true;
        fresh += renew(f, records, next, rng);
    }
    free(done);
}

static void sample(ef_tune_family *f, ef_rng *rng)
{
    for (uint32_t i = 0; i < f->params; i++)
        f->scratch[i] = ef_rng_below(rng, f->values[i]);
}

static void begin_at(ef_tune_family *f, const uint32_t *choice)
{
    if (f->params)
        memcpy(f->scratch, choice, f->params * sizeof *choice);
}

static bool all_fit(const ef_tune_family *f)
{
    for (uint32_t k = 0; f->fits && k < f->kernels; k++)
        if (!f->fits(f->user, k, f->scratch))
            return false;
    return true;
}

static void choose(ef_tune_family *f, ef_tune_records *records, ef_rng *rng)
{
    double us, dice = ef_rng_unit(rng), share = RESHAPE_SHARE + STALE_SHARE * fmin(f->stale / STALE, 1);
    begin_at(f, best_choice(f));
    if (ef_intern_count(f->tried) && dice < RANDOM_SHARE) {
        sample(f, rng);
        if (all_fit(f))
            return;
        begin_at(f, best_choice(f));
    }
    if (ef_intern_count(f->tried) && has_shapes(f) && dice < RANDOM_SHARE + share) {
        if (ef_rng_unit(rng) < REVISIT && ef_intern_count(f->shapes) > 1)
            revisit(f, records);
        else
            reshape(f, rng);
    }
    uint32_t fresh = take_best(f, records, rng, &us);
    /* The first time with what is known of kernels, and whenever that promises much. */
    bool promising = f->elites ? fresh == 0 && us < ADVANCE * f->best : true;
    if (promising && is_open(f))
        return;
    vary(f, records, fresh, us, rng);
}

/* The next untried schedule after scratch, in the order of a counter. There is one. */
static void step_on(ef_tune_family *f)
{
    for (;;) {
        uint32_t i = 0;
        while (i < f->params && ++f->scratch[i] == f->values[i])
            f->scratch[i++] = 0;
        if (is_open(f))
            return;
    }
}

uint32_t ef_tune_assemble(ef_tune_family *f, ef_tune_records *records, ef_rng *rng)
{
    int fresh = 0;
    uint32_t point = 0;
    for (unsigned tries = 0; !fresh && tries < TRIES; tries++) {
        choose(f, records, rng);
        point = ef_tune_family_point(f, f->scratch, &fresh);
    }
    if (!fresh) {
        step_on(f);
        point = ef_tune_family_point(f, f->scratch, &fresh);
    }
    return point;
}
