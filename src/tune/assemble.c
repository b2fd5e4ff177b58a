/* Families as what their kernels make of them: see assemble.h. */
#include "tune/assemble.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "support/arena.h"

#define TRIES 24u
#define RESHAPE_SHARE 0.15 /* of proposals without costs: what shapes buffers changes … */
#define IN_VAIN_SHARE 0.45 /* … and this much more often after long in vain: */
#define IN_VAIN 60.0       /* results */
#define REVISIT 0.6        /* of these: another shape that was tried, and promises most */
#define CONSIDER_SHARE 0.3 /* of proposals with costs: another shape is considered … */
#define CONSIDER 3u        /* … and of each until there are so many */
#define RANDOM_SHARE 0.02  /* … everything is random, also where kernels were never seen to work */
#define SMALL_GAIN 0.15    /* of the largest gain that a kernel promises: one that promises less is left as it is */
#define MOST_CHANGED 4u    /* kernels at once: each takes time to compile, and may fail */
#define ADVANCE 0.98       /* of the best: a sum of best kernels that is below is measured as a whole */
#define FAILURES 3u        /* of whole schedules, without a success: nothing is promised then */
#define MOST_BROKEN 8u     /* … or with kernels that are broken, whatever the shape */
#define LOW_PART 4u        /* of the kernels that were measured, by how far off their estimates are: the low one */
#define LOST_PENALTY 0.15  /* that a family promises more, for each schedule that failed before one worked */

/* ---- records ---- */

void ef_tune_records_init(ef_tune_records *r)
{
    *r = (ef_tune_records){.identity = ef_intern_new(), .outlook = {1, 1, 8}};
}

void ef_tune_records_free(ef_tune_records *r)
{
    for (uint32_t i = 0; i < r->list.count; i++)
        ef_tune_kernel_free(r->list.at[i]);
    ef_vec_free(&r->list);
    ef_intern_free(r->identity);
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

void ef_tune_records_compare(ef_tune_records *r)
{
    double *off = ef_xcalloc(r->list.count + 1, sizeof *off);
    uint32_t count = 0;
    for (uint32_t i = 0; i < r->list.count; i++) {
        const ef_tune_kernel *k = r->list.at[i];
        if (k->points.elites && k->estimate > 0 && k->estimate < EF_TUNE_NEVER)
            off[count++] = ef_tune_points_best(&k->points) / k->estimate;
    }
    qsort(off, count, sizeof *off, ascending);
    r->outlook.off = count > 0 ? off[(count - 1) / 2] : 1;
    r->outlook.low = count > 0 ? off[(count - 1) / LOW_PART] : 1;
    free(off);
}

/* ---- families ---- */

static void *copy(const void *from, size_t count, size_t size)
{
    void *to = ef_xcalloc(count + 1, size);
    if (from && count)
        memcpy(to, from, count * size);
    return to;
}

static void copy_kernels(ef_tune_family *f, const ef_tune_space *space)
{
    for (uint32_t i = 0; i < f->params; i++)
        if (space->owner[i] != UINT32_MAX && space->owner[i] >= f->kernels)
            f->kernels = space->owner[i] + 1;
    f->kernels = space->kernels > f->kernels ? space->kernels : f->kernels;
    f->kernels = f->kernels ? f->kernels : 1;
    f->identity = copy(space->kernels ? space->identity : NULL, f->kernels, sizeof *f->identity);
    f->kernel_estimate = copy(space->kernels ? space->kernel_estimate : NULL, f->kernels, sizeof *f->kernel_estimate);
    f->uses = copy(space->kernels ? space->uses : NULL, (size_t)f->kernels * f->params, sizeof *f->uses);
    if (!space->kernels) /* the family's estimate, whatever its unit, in equal parts */
        for (uint32_t k = 0; k < f->kernels; k++)
            f->kernel_estimate[k] = space->estimate / f->kernels;
}

ef_tune_family *ef_tune_family_new(const ef_tune_space *space, uint32_t number)
{
    ef_tune_family *f = ef_xcalloc(1, sizeof *f);
    f->number = number;
    f->params = space->params;
    f->hiding = space->hiding;
    copy_kernels(f, space);
    f->values = copy(space->values, f->params, sizeof *f->values);
    f->owner = copy(space->owner, f->params, sizeof *f->owner);
    f->start = copy(space->start, f->params, sizeof *f->start);
    f->key = copy(space->key, f->params, sizeof *f->key);
    f->joint = copy(space->joint, f->params, sizeof *f->joint);
    f->scratch = ef_xcalloc(f->params + 1, sizeof *f->scratch);
    f->part = ef_xcalloc(f->params + 1, sizeof *f->part);
    f->point = ef_xcalloc(f->kernels + 1, sizeof *f->point);
    f->record = ef_xcalloc(f->kernels + 1, sizeof *f->record);
    f->cost = space->cost;
    f->user = space->user;
    f->size = 1;
    f->width = f->kernels;
    f->timed = true;
    f->shapes = ef_intern_new();
    ef_tune_points_init(&f->points, f->params);
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
    free(f->joint);
    free(f->identity);
    free(f->kernel_estimate);
    free(f->uses);
    free(f->scratch);
    free(f->part);
    free(f->point);
    free(f->record);
    ef_intern_free(f->shapes);
    ef_vec_free(&f->of_shape);
    ef_tune_points_free(&f->points);
    free(f);
}

bool ef_tune_family_has(const ef_tune_family *f, const uint32_t *choice)
{
    for (uint32_t i = 0; i < f->params; i++)
        if (choice[i] >= f->values[i])
            return false;
    return true;
}

bool ef_tune_family_dry(const ef_tune_family *f)
{
    return ef_tune_points_taken(&f->points) >= f->size;
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
    uint64_t id[2] = {shared ? f->identity[kernel] : f->number, shared ? UINT32_MAX + (uint64_t)f->hiding : kernel};
    uint64_t hash = ef_hash(id, sizeof id);
    for (uint32_t i = 0; i < f->params; i++)
        if (f->owner[i] == UINT32_MAX && f->values[i] > 1 && (!shared || f->uses[kernel * f->params + i])) {
            uint64_t more[3] = {hash, shared ? f->key[i] : i, choice[i]};
            hash = ef_hash(more, sizeof more);
        }
    return hash;
}

/* Asks this family what schedules of a kernel cost. */
static ef_tune_judge judge_of(const ef_tune_family *f, const uint32_t *choice, uint32_t kernel)
{
    ef_tune_judge judge = {f->cost, f->user, kernel, copy(choice, f->params, sizeof *choice),
                           ef_xcalloc(f->params + 1, sizeof *judge.place)};
    for (uint32_t i = 0, count = 0; i < f->params; i++)
        if (f->owner[i] == kernel)
            judge.place[count++] = i;
    return judge;
}

/* A record that no family judges is judged by this one. */
static void judge(const ef_tune_family *f, ef_tune_kernel *record, const uint32_t *choice, uint32_t kernel)
{
    if (record->judge.cost || !f->cost)
        return;
    ef_tune_judge own = judge_of(f, choice, kernel);
    ef_tune_kernel_judge(record, &own);
}

/* The record of a kernel under a schedule's buffers; a new one begins at the schedule. */
static uint32_t record_of(ef_tune_family *f, ef_tune_records *records, const uint32_t *choice, uint32_t kernel)
{
    uint64_t identity = identity_of(f, choice, kernel);
    int fresh;
    uint32_t at = ef_intern_put(records->identity, &identity, sizeof identity, &fresh);
    if (!fresh) {
        judge(f, records->list.at[at], choice, kernel);
        return at;
    }
    uint32_t *values = ef_xcalloc(f->params + 1, sizeof *values);
    ef_tune_judge own = judge_of(f, choice, kernel);
    uint32_t count = part_of(f, f->values, kernel, values);
    part_of(f, choice, kernel, f->part);
    ef_vec_push(&records->list, ef_tune_kernel_new(count, values, f->part, f->kernel_estimate[kernel], &own));
    free(values);
    return at;
}

static const uint32_t *best_choice(const ef_tune_family *f)
{
    return f->points.elites ? ef_tune_points_choice(&f->points, f->points.elite[0]) : f->start;
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

/* The shape of a schedule's buffers, which is considered from now on. */
static uint32_t consider(ef_tune_family *f, ef_tune_records *records, const uint32_t *choice)
{
    uint32_t none = 0, count = count_shapes(f);
    int fresh;
    part_of(f, choice, UINT32_MAX, f->part);
    uint32_t shape = ef_intern_put(f->shapes, count ? f->part : &none, (count ? count : 1) * sizeof none, &fresh);
    for (uint32_t k = 0; k < f->kernels && fresh; k++)
        ef_vec_push(&f->of_shape, record_of(f, records, choice, k));
    return shape;
}

static void set_shape(ef_tune_family *f, uint32_t shape)
{
    f->shape = shape;
    set_part(f, UINT32_MAX, ef_intern_at(f->shapes, shape, NULL), f->scratch);
    memcpy(f->record, f->of_shape.at + (size_t)shape * f->kernels, f->kernels * sizeof *f->record);
}

static void begin_at(ef_tune_family *f, const uint32_t *choice)
{
    if (f->params)
        memcpy(f->scratch, choice, f->params * sizeof *choice);
}

/* Finds records and points of all kernels of a schedule. */
static void look_up(ef_tune_family *f, ef_tune_records *records, const uint32_t *choice)
{
    begin_at(f, choice);
    set_shape(f, consider(f, records, choice));
    for (uint32_t k = 0; k < f->kernels; k++) {
        part_of(f, choice, k, f->part);
        f->point[k] = ef_tune_kernel_point(records->list.at[f->record[k]], f->part, NULL);
    }
}

static ef_tune_kernel *kernel_of(const ef_tune_family *f, const ef_tune_records *records, uint32_t kernel)
{
    return records->list.at[f->record[kernel]];
}

static ef_tune_time *time_of(const ef_tune_family *f, const ef_tune_records *records, uint32_t kernel)
{
    return &kernel_of(f, records, kernel)->points.time.at[f->point[kernel]];
}

/* ---- results ---- */

/* Without times of kernels: what has none takes what the others leave, by its estimate. That a kernel was blamed for a
 * failure is no time: a whole schedule works with it now. */
static void share_out(const ef_tune_family *f, const ef_tune_records *records, double us, double *kernel_us)
{
    double known = 0, estimates = 0;
    for (uint32_t k = 0; k < f->kernels; k++) {
        kernel_us[k] = time_of(f, records, k)->us;
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
            ef_tune_kernel_tell(kernel_of(f, records, k), f->point[k], time);
        sum += kernel_us ? time : 0;
    }
    if (kernel_us && us < ef_tune_points_best(&f->points))
        f->overhead = fmax(us - sum, 0);
    free(shared);
}

static void await(ef_tune_family *f, ef_tune_records *records, uint32_t point)
{
    look_up(f, records, ef_tune_points_choice(&f->points, point));
    for (uint32_t k = 0; k < f->kernels; k++)
        time_of(f, records, k)->waiting++;
}

/* Looks up what a result is of, which was awaited or not. */
static void begin_result(ef_tune_family *f, ef_tune_records *records, uint32_t point, bool waited)
{
    look_up(f, records, ef_tune_points_choice(&f->points, point));
    for (uint32_t k = 0; k < f->kernels && waited; k++)
        time_of(f, records, k)->waiting -= time_of(f, records, k)->waiting > 0;
}

void ef_tune_family_tell(ef_tune_family *f, ef_tune_records *records, uint32_t point, double us,
                         const double *kernel_us, bool waited)
{
    f->in_vain = us < ef_tune_points_best(&f->points) ? 0 : f->in_vain + 1;
    begin_result(f, records, point, waited);
    if (isfinite(us)) {
        f->timed = f->kernels == 1 || kernel_us;
        tell_kernels(f, records, us, f->kernels == 1 ? &us : kernel_us);
        f->width = 2 * f->width < f->kernels ? 2 * f->width : f->kernels;
    } else {
        f->lost++;
        f->width = f->width > 1 ? f->width / 2 : 1;
        for (uint32_t k = 0; k < f->kernels; k++)
            if (isnan(time_of(f, records, k)->us))
                ef_tune_kernel_tell(kernel_of(f, records, k), f->point[k], INFINITY);
    }
    ef_tune_points_tell(&f->points, point, us);
    ef_tune_records_compare(records);
}

/* What nothing was heard of, and nothing will be, may be asked again. */
static void release(ef_tune_family *f, ef_tune_records *records)
{
    for (uint32_t k = 0; k < f->kernels; k++)
        if (isnan(time_of(f, records, k)->us) && !time_of(f, records, k)->waiting)
            ef_tune_points_open(&kernel_of(f, records, k)->points, f->point[k]);
}

void ef_tune_family_blame(ef_tune_family *f, ef_tune_records *records, uint32_t point, uint32_t kernel, bool no_room,
                          bool waited)
{
    f->in_vain++;
    begin_result(f, records, point, waited);
    ef_tune_points_tell(&f->points, point, INFINITY);
    if (no_room)
        ef_tune_kernel_no_room(kernel_of(f, records, kernel), f->point[kernel]);
    else
        ef_tune_kernel_tell(kernel_of(f, records, kernel), f->point[kernel], INFINITY);
    f->broken += !no_room;
    release(f, records);
}

/* Its graph has the new kernels: it says nothing of the old ones any more. */
static void dismiss(const ef_tune_family *f, const ef_tune_records *records)
{
    for (uint32_t i = 0; i < records->list.count; i++)
        if (records->list.at[i]->judge.user == f->user)
            records->list.at[i]->judge.cost = NULL;
}

void ef_tune_family_judge(ef_tune_family *f, ef_tune_records *records)
{
    begin_at(f, f->start);
    for (uint32_t i = 0; i < ef_intern_count(f->shapes); i++) {
        set_shape(f, i);
        for (uint32_t k = 0; k < f->kernels; k++)
            judge(f, kernel_of(f, records, k), f->scratch, k);
    }
}

void ef_tune_family_change_kernels(ef_tune_family *f, ef_tune_records *records, const uint64_t *identity,
                                   const uint32_t *awaited, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        begin_result(f, records, awaited[i], true);
        release(f, records);
    }
    dismiss(f, records);
    memcpy(f->identity, identity, f->kernels * sizeof *identity);
    if (f->params && f->points.elites)
        memcpy(f->start, best_choice(f), f->params * sizeof *f->start);
    ef_tune_points_forget(&f->points);
    ef_intern_free(f->shapes); /* they have other records now */
    f->shapes = ef_intern_new();
    f->of_shape.count = 0;
    f->overhead = 0;
    f->lost = f->broken = f->in_vain = 0;
    for (uint32_t i = 0; i < count; i++)
        await(f, records, awaited[i]);
}

/* ---- what it may come to ---- */

/* Sets `record` to those of the shape. */
static double promise_of(ef_tune_family *f, ef_tune_records *records, uint32_t shape)
{
    double sum = f->overhead;
    set_shape(f, shape);
    for (uint32_t k = 0; k < f->kernels; k++) {
        if (ef_tune_kernel_hopeless(kernel_of(f, records, k)))
            return INFINITY;
        double own = ef_tune_kernel_promise(kernel_of(f, records, k), &records->outlook);
        if (own <= 0)
            return 0;
        sum += own;
    }
    return f->points.elites ? sum : sum * (1 + LOST_PENALTY * f->lost);
}

/* The shape that promises most, except one. */
static uint32_t best_shape(ef_tune_family *f, ef_tune_records *records, uint32_t except)
{
    double most = INFINITY;
    uint32_t best = except;
    for (uint32_t i = 0; i < ef_intern_count(f->shapes); i++) {
        double promise = i == except ? INFINITY : promise_of(f, records, i);
        if (promise < most) {
            most = promise;
            best = i;
        }
    }
    return best == UINT32_MAX ? 0 : best;
}

double ef_tune_family_promise(ef_tune_family *f, ef_tune_records *records)
{
    double most = INFINITY;
    consider(f, records, best_choice(f));
    for (uint32_t i = 0; i < ef_intern_count(f->shapes); i++)
        most = fmin(most, promise_of(f, records, i));
    return most;
}

void ef_tune_family_survey(ef_tune_family *f, ef_tune_records *records)
{
    set_shape(f, consider(f, records, best_choice(f)));
    for (uint32_t k = 0; k < f->kernels; k++)
        ef_tune_kernel_survey(kernel_of(f, records, k));
}

bool ef_tune_family_hopeless(ef_tune_family *f, ef_tune_records *records)
{
    if (f->points.elites)
        return false;
    set_shape(f, consider(f, records, f->start));
    for (uint32_t k = 0; k < f->kernels; k++)
        if (ef_tune_kernel_hopeless(kernel_of(f, records, k)))
            return true;
    return f->lost >= FAILURES || f->broken >= MOST_BROKEN;
}

/* ---- proposals ---- */

/* One of the parameters of scratch that shape buffers changes. */
static void reshape(ef_tune_family *f, ef_rng *rng)
{
    uint32_t count = 0, chosen = UINT32_MAX;
    for (uint32_t i = 0; i < f->params; i++)
        if (f->owner[i] == UINT32_MAX && f->values[i] > 1 && ef_rng_below(rng, ++count) == 0)
            chosen = i;
    if (chosen != UINT32_MAX)
        f->scratch[chosen] = ef_tune_neighbour(f->scratch[chosen], f->values[chosen], ef_rng_below(rng, 2), rng);
}

/* With costs: the shape that promises most, of more and more that are considered. Without them nothing is known of a
 * new one: it is the best one's for the most part. */
static uint32_t choose_shape(ef_tune_family *f, ef_tune_records *records, ef_rng *rng)
{
    double share = RESHAPE_SHARE + IN_VAIN_SHARE * fmin(f->in_vain / IN_VAIN, 1);
    uint32_t best = consider(f, records, best_choice(f));
    if (!has_shapes(f) || ef_tune_points_taken(&f->points) == 0)
        return best;
    if (f->cost) {
        if (ef_rng_unit(rng) < CONSIDER_SHARE || ef_intern_count(f->shapes) < CONSIDER) {
            reshape(f, rng);
            consider(f, records, f->scratch);
        }
        return best_shape(f, records, UINT32_MAX);
    }
    if (ef_rng_unit(rng) >= share)
        return best;
    if (ef_rng_unit(rng) < REVISIT && ef_intern_count(f->shapes) > 1)
        return best_shape(f, records, best);
    reshape(f, rng);
    return consider(f, records, f->scratch);
}

/* A new choice of one kernel; false when it has none. */
static bool propose_for(ef_tune_family *f, const ef_tune_records *records, uint32_t kernel, ef_rng *rng)
{
    uint32_t point;
    ef_tune_kernel *k = kernel_of(f, records, kernel);
    bool fresh = ef_tune_propose(k, rng, &point);
    if (fresh)
        set_part(f, kernel, ef_tune_points_choice(&k->points, point), f->scratch);
    return fresh;
}

/* All kernels at their best, or what is on its way, or new where there is neither; how many are new, and what the
 * others take. */
static uint32_t take_best(ef_tune_family *f, ef_tune_records *records, ef_rng *rng, double *us)
{
    uint32_t fresh = 0;
    *us = f->overhead;
    for (uint32_t k = 0; k < f->kernels; k++) {
        const ef_tune_kernel *kernel = kernel_of(f, records, k);
        uint32_t current = ef_tune_kernel_current(kernel);
        if (current == UINT32_MAX) {
            fresh += propose_for(f, records, k, rng);
            continue;
        }
        set_part(f, k, ef_tune_points_choice(&kernel->points, current), f->scratch);
        *us += kernel->points.elites ? ef_tune_points_best(&kernel->points) : INFINITY;
    }
    return fresh;
}

/* What trying may save of a kernel's time; of one that was not measured yet, all of it. */
static double gain_of(const ef_tune_family *f, const ef_tune_records *records, uint32_t kernel)
{
    ef_tune_kernel *k = kernel_of(f, records, kernel);
    double promise = ef_tune_kernel_promise(k, &records->outlook);
    return ef_tune_kernel_dry(k) ? 0 : k->points.elites ? ef_tune_points_best(&k->points) - promise : promise;
}

/* Changes the kernels that promise to gain most: as many as may change at once. */
static void vary(ef_tune_family *f, const ef_tune_records *records, uint32_t fresh, ef_rng *rng)
{
    uint32_t most = !f->timed ? 1 : f->width < MOST_CHANGED ? f->width : MOST_CHANGED;
    double *gain = ef_xcalloc(f->kernels + 1, sizeof *gain), largest = 0;
    for (uint32_t k = 0; k < f->kernels; k++) {
        gain[k] = gain_of(f, records, k);
        largest = fmax(largest, gain[k]);
    }
    while (fresh < most) {
        double highest = 0;
        uint32_t next = UINT32_MAX;
        for (uint32_t k = 0; k < f->kernels; k++) {
            double weight = gain[k] * (f->kernels > 1 ? ef_rng_unit(rng) : 1);
            if (gain[k] >= SMALL_GAIN * largest && weight > highest) {
                highest = weight;
                next = k;
            }
        }
        if (next == UINT32_MAX)
            break;
        gain[next] = 0;
        fresh += propose_for(f, records, next, rng);
    }
    free(gain);
}

static void sample(ef_tune_family *f, ef_rng *rng)
{
    for (uint32_t i = 0; i < f->params; i++)
        f->scratch[i] = ef_rng_below(rng, f->values[i]);
}

static void choose(ef_tune_family *f, ef_tune_records *records, ef_rng *rng)
{
    double us;
    if (ef_tune_points_taken(&f->points) && !f->cost && ef_rng_unit(rng) < RANDOM_SHARE) {
        sample(f, rng);
        return;
    }
    begin_at(f, best_choice(f));
    set_shape(f, choose_shape(f, records, rng));
    uint32_t fresh = take_best(f, records, rng, &us);
    /* The first time with what is known of kernels, and whenever that promises much. */
    bool promising = f->points.elites ? fresh == 0 && us < ADVANCE * ef_tune_points_best(&f->points) : f->asked == 0;
    if (promising && ef_tune_points_askable(&f->points, f->scratch))
        return;
    vary(f, records, fresh, rng);
}

/* The next untried schedule after scratch, in the order of a counter. There is one. */
static void step_on(ef_tune_family *f)
{
    do {
        uint32_t i = 0;
        while (i < f->params && ++f->scratch[i] == f->values[i])
            f->scratch[i++] = 0;
    } while (!ef_tune_points_askable(&f->points, f->scratch));
}

uint32_t ef_tune_assemble(ef_tune_family *f, ef_tune_records *records, ef_rng *rng)
{
    int fresh = 0;
    uint32_t point = 0;
    for (unsigned tries = 0; !fresh && tries < TRIES; tries++) {
        choose(f, records, rng);
        point = ef_tune_points_take(&f->points, f->scratch, &fresh);
    }
    if (!fresh) {
        step_on(f);
        point = ef_tune_points_take(&f->points, f->scratch, &fresh);
    }
    await(f, records, point);
    f->asked++;
    return point;
}

/* ---- joint parameters ---- */

/* Makes scratch the variant of this number of the best schedule: first those with one value in all joint parameters,
 * then those with another one in one. False: there are no more. */
static bool begin_variant(ef_tune_family *f, uint32_t number)
{
    uint32_t most = 0;
    begin_at(f, best_choice(f));
    for (uint32_t i = 0; i < f->params; i++)
        most = f->joint[i] && f->values[i] > most ? f->values[i] : most;
    if (number < most) {
        for (uint32_t i = 0; i < f->params; i++)
            if (f->joint[i])
                f->scratch[i] = number < f->values[i] ? number : f->values[i] - 1;
        return true;
    }
    number -= most;
    for (uint32_t i = 0; i < f->params; i++) {
        if (!f->joint[i])
            continue;
        if (number < f->values[i]) {
            f->scratch[i] = number;
            return true;
        }
        number -= f->values[i];
    }
    return false;
}

bool ef_tune_family_varies(ef_tune_family *f, uint64_t least)
{
    uint64_t count = 0;
    for (uint32_t i = 0; f->points.elites && count < least && begin_variant(f, i); i++)
        count += ef_tune_points_askable(&f->points, f->scratch);
    return count >= least;
}

bool ef_tune_family_vary(ef_tune_family *f, ef_tune_records *records, uint32_t *point)
{
    int fresh = 0;
    if (f->points.elites)
        for (uint32_t i = 0; !fresh && begin_variant(f, i); i++)
            *point = ef_tune_points_take(&f->points, f->scratch, &fresh);
    if (fresh)
        await(f, records, *point);
    f->asked += fresh != 0;
    return fresh;
}

double ef_tune_family_together(ef_tune_family *f, ef_tune_records *records, uint32_t *point)
{
    double least = INFINITY;
    uint32_t shape = UINT32_MAX;
    for (uint32_t i = 0; i < ef_intern_count(f->shapes); i++) {
        double us = f->overhead;
        set_shape(f, i);
        for (uint32_t k = 0; k < f->kernels; k++)
            us += ef_tune_points_best(&kernel_of(f, records, k)->points);
        if (us < least) {
            least = us;
            shape = i;
        }
    }
    if (shape == UINT32_MAX || !f->points.elites)
        return INFINITY;
    begin_at(f, best_choice(f));
    set_shape(f, shape);
    for (uint32_t k = 0; k < f->kernels; k++) {
        const ef_tune_points *p = &kernel_of(f, records, k)->points;
        set_part(f, k, ef_tune_points_choice(p, p->elite[0]), f->scratch);
    }
    int fresh;
    *point = ef_tune_points_take(&f->points, f->scratch, &fresh);
    if (fresh)
        ef_tune_points_open(&f->points, *point);
    return isnan(f->points.time.at[*point].us) ? least : INFINITY;
}
