/* The tuner: see tuner.h. tuner.c has families and how they compete, assemble.c what a family is, propose.c how a
 * kernel chooses its next schedule. */
#include "tune/tuner.h"

#include <math.h>
#include <string.h>

#include "tune/assemble.h"

#define FIRST_EXPECTATION 400u
#define TRIES_SHARE 4.0     /* a kernel gets one in so many of the measurements that are left … */
#define MOST_TRIES 8.0      /* … and so many at most, as far as promises go */
#define UNKNOWN 0.6         /* of the best: what a family promises of which nothing is known … */
#define UNKNOWN_ASK 0.1     /* … and so much more with each ask */
#define PATIENCE 128u       /* measurements without progress, when one family is left, before it is enough … */
#define KERNEL_PATIENCE 32u /* … and so many for each kernel of the best: there is more to try … */
#define PATIENCE_SHARE 2    /* … and this part of all … */
#define LONG_PATIENCE 4     /* … and so many times that when others are left */
#define PROGRESS 0.995      /* less is noise; but several small steps are progress together */
#define LAST_SHARE 10       /* joint parameters get one in so many of all measurements, at most */
#define CHANCE 1.01         /* what is put together from the best of many noisy times takes longer */

typedef struct {
    uint32_t family, point;
    bool told;
} ticket;

struct ef_tuner {
    ef_rng rng;
    EF_VEC(ef_tune_family *) families;
    ef_tune_records records; /* kernels */
    EF_VEC(ticket) tickets;
    uint32_t outstanding;
    uint64_t expected, since_progress, asked;
    double best, progress; /* progress: the best when there last was some */
};

ef_tuner *ef_tuner_new(uint64_t seed)
{
    ef_tuner *t = ef_xcalloc(1, sizeof *t);
    t->rng.state = seed;
    t->expected = FIRST_EXPECTATION;
    t->best = t->progress = INFINITY;
    ef_tune_records_init(&t->records);
    return t;
}

void ef_tuner_free(ef_tuner *t)
{
    if (!t)
        return;
    for (uint32_t i = 0; i < t->families.count; i++)
        ef_tune_family_free(t->families.at[i]);
    ef_tune_records_free(&t->records);
    ef_vec_free(&t->families);
    ef_vec_free(&t->tickets);
    free(t);
}

uint32_t ef_tuner_add(ef_tuner *t, const ef_tune_space *space)
{
    uint32_t number = t->families.count;
    ef_vec_push(&t->families, ef_tune_family_new(space, number));
    return number;
}

/* The point of a choice that nothing was told of yet; false: there is none. */
static bool take_known(ef_tune_family *f, const uint32_t *choice, uint32_t *point)
{
    int fresh;
    *point = ef_tune_points_take(&f->points, choice, &fresh);
    return fresh;
}

bool ef_tuner_known(ef_tuner *t, uint32_t family, const uint32_t *choice, double us, const double *kernel_us)
{
    ef_tune_family *f = t->families.at[family];
    uint32_t point;
    if (!ef_tune_family_has(f, choice))
        return false;
    if (take_known(f, choice, &point))
        ef_tune_family_tell(f, &t->records, point, us, kernel_us, false);
    t->best = fmin(t->best, ef_tune_points_best(&f->points));
    return true;
}

/* `waited`: as in ef_tune_family_tell. */
static void fail(ef_tuner *t, ef_tune_family *f, uint32_t point, uint32_t kernel, bool no_room, bool waited)
{
    if (f->kernels == 1 || kernel < f->kernels)
        ef_tune_family_blame(f, &t->records, point, f->kernels == 1 ? 0 : kernel, no_room, waited);
    else
        ef_tune_family_tell(f, &t->records, point, INFINITY, NULL, waited);
}

bool ef_tuner_known_failure(ef_tuner *t, uint32_t family, const uint32_t *choice, uint32_t kernel, bool no_room)
{
    ef_tune_family *f = t->families.at[family];
    uint32_t point;
    if (!ef_tune_family_has(f, choice))
        return false;
    if (take_known(f, choice, &point))
        fail(t, f, point, kernel, no_room, false);
    return true;
}

void ef_tuner_survey(ef_tuner *t)
{
    for (uint32_t i = 0; i < t->families.count; i++)
        ef_tune_family_survey(t->families.at[i], &t->records);
}

void ef_tuner_change_kernels(ef_tuner *t, uint32_t family, const uint64_t *identity)
{
    ef_tune_family *f = t->families.at[family];
    EF_VEC(uint32_t) awaited = {0};
    if (memcmp(f->identity, identity, f->kernels * sizeof *identity) == 0)
        return;
    for (uint32_t i = 0; i < t->tickets.count; i++)
        if (t->tickets.at[i].family == family && !t->tickets.at[i].told)
            ef_vec_push(&awaited, t->tickets.at[i].point);
    ef_tune_family_change_kernels(f, &t->records, identity, awaited.at, awaited.count);
    ef_vec_free(&awaited);
    t->since_progress = 0;
    t->best = t->progress = INFINITY;
    for (uint32_t i = 0; i < t->families.count; i++) {
        ef_tune_family_judge(t->families.at[i], &t->records);
        t->best = fmin(t->best, ef_tune_points_best(&t->families.at[i]->points));
    }
}

void ef_tuner_expect(ef_tuner *t, uint64_t measurements)
{
    t->expected = measurements;
}

/* ---- which family ---- */

static double promise_of(ef_tuner *t, ef_tune_family *f)
{
    double promise = ef_tune_family_promise(f, &t->records);
    if (promise > 0)
        return promise;
    return isfinite(t->best) ? UNKNOWN * t->best * (1 + UNKNOWN_ASK * f->asked) : f->asked;
}

/* Of those that have something to try the one that promises most; hopeless ones last. NULL: there is none. */
static ef_tune_family *next_family(ef_tuner *t)
{
    ef_tune_family *next = NULL;
    double most = INFINITY;
    t->records.outlook.tries = fmin(fmax((double)t->expected / TRIES_SHARE, 0.1), MOST_TRIES);
    if (t->asked == 0 && t->families.at[0]->points.time.count == 0)
        return t->families.at[0];
    for (int hopeless = 0; hopeless < 2 && !next; hopeless++)
        for (uint32_t i = 0; i < t->families.count; i++) {
            ef_tune_family *f = t->families.at[i];
            if (ef_tune_family_dry(f) || ef_tune_family_hopeless(f, &t->records) != hopeless)
                continue;
            double promise = hopeless ? f->asked : promise_of(t, f);
            if (!next || promise < most) {
                most = promise;
                next = f;
            }
        }
    return next;
}

uint32_t ef_tuner_left(ef_tuner *t)
{
    uint32_t left = 0;
    for (uint32_t i = 0; i < t->families.count; i++) {
        ef_tune_family *f = t->families.at[i];
        left += !ef_tune_family_hopeless(f, &t->records) && !(promise_of(t, f) > t->best);
    }
    return left;
}

/* The family of the best schedule; NULL: none worked. */
static ef_tune_family *best_family(const ef_tuner *t)
{
    ef_tune_family *best = NULL;
    for (uint32_t i = 0; i < t->families.count; i++) {
        ef_tune_family *f = t->families.at[i];
        if (f->points.elites && (!best || ef_tune_points_best(&f->points) < ef_tune_points_best(&best->points)))
            best = f;
    }
    return best;
}

static bool settled(ef_tuner *t)
{
    const ef_tune_family *best = best_family(t);
    uint64_t patience = PATIENCE;
    if (best && (uint64_t)KERNEL_PATIENCE * best->kernels > patience)
        patience = (uint64_t)KERNEL_PATIENCE * best->kernels;
    if (t->since_progress <= patience || t->since_progress <= t->asked / PATIENCE_SHARE)
        return false;
    return t->since_progress > LONG_PATIENCE * patience || ef_tuner_left(t) <= 1;
}

/* The family of the best schedule, when it is time to vary its joint parameters: what is left is just enough for that,
 * or nothing else is worth it. NULL: it is not, or none worked. */
static ef_tune_family *last_family(ef_tuner *t, bool is_settled)
{
    if (!is_settled && t->expected > (t->asked + t->expected) / LAST_SHARE)
        return NULL;
    ef_tune_family *best = best_family(t);
    return best && (is_settled || ef_tune_family_varies(best, t->expected)) ? best : NULL;
}

ef_ask ef_tuner_ask(ef_tuner *t, ef_tune_point *point)
{
    uint32_t id;
    bool is_settled = settled(t);
    ef_tune_family *f = last_family(t, is_settled);
    if (!f || !ef_tune_family_vary(f, &t->records, &id)) {
        f = t->families.count == 0 || is_settled ? NULL : next_family(t);
        if (!f)
            return t->outstanding ? EF_ASK_WAIT : EF_ASK_DONE;
        id = ef_tune_assemble(f, &t->records, &t->rng);
    }
    t->asked++;
    t->since_progress++;
    t->outstanding++;
    t->expected -= t->expected > 0;
    *point = (ef_tune_point){t->tickets.count, f->number, ef_tune_points_choice(&f->points, id)};
    ef_vec_push(&t->tickets, ((ticket){f->number, id, false}));
    return EF_ASK_POINT;
}

/* ---- results ---- */

/* NULL: it was answered. */
static ef_tune_family *answer(ef_tuner *t, uint64_t number, uint32_t *point)
{
    ticket *answered = number < t->tickets.count ? &t->tickets.at[number] : NULL;
    if (!answered || answered->told)
        return NULL;
    answered->told = true;
    t->outstanding--;
    *point = answered->point;
    return t->families.at[answered->family];
}

void ef_tuner_tell(ef_tuner *t, uint64_t number, double us, const double *kernel_us)
{
    uint32_t point;
    ef_tune_family *f = answer(t, number, &point);
    if (!f)
        return;
    ef_tune_family_tell(f, &t->records, point, us, kernel_us, true);
    if (us < PROGRESS * t->progress) {
        t->since_progress = 0;
        t->progress = us;
    }
    t->best = fmin(t->best, us);
}

void ef_tuner_fail(ef_tuner *t, uint64_t number, uint32_t kernel, bool no_room)
{
    uint32_t point;
    ef_tune_family *f = answer(t, number, &point);
    if (f)
        fail(t, f, point, kernel, no_room, true);
}

/* ---- the best ---- */

typedef struct {
    ef_tune_point *point;
    double *us;
    uint32_t room, count;
} best_list;

static void put(best_list *list, const ef_tune_family *f, uint32_t point, double us)
{
    uint32_t at = list->count < list->room ? list->count++ : list->room;
    for (; at > 0 && us < list->us[at - 1]; at--)
        if (at < list->room) {
            list->us[at] = list->us[at - 1];
            list->point[at] = list->point[at - 1];
        }
    if (at == list->room)
        return;
    list->us[at] = us;
    list->point[at] = (ef_tune_point){0, f->number, ef_tune_points_choice(&f->points, point)};
}

static void put_best(best_list *list, const ef_tuner *t)
{
    for (uint32_t i = 0; i < t->families.count; i++) {
        const ef_tune_family *f = t->families.at[i];
        for (uint32_t e = 0; e < f->points.elites; e++)
            put(list, f, f->points.elite[e], f->points.time.at[f->points.elite[e]].us);
    }
}

bool ef_tuner_best(const ef_tuner *t, ef_tune_point *point, double *us)
{
    best_list list = {point, us, 1, 0};
    put_best(&list, t);
    return list.count == 1;
}

/* At most half of them were not measured as they are: sums of kernels' times may promise too much. */
uint32_t ef_tuner_finalists(ef_tuner *t, uint32_t room, ef_tune_point *point, double *us)
{
    best_list list = {point, us, room, 0};
    uint32_t families = t->families.count, *together = ef_xcalloc(families + 1, sizeof *together);
    double *sum = ef_xcalloc(families + 1, sizeof *sum);
    put_best(&list, t);
    for (uint32_t i = 0; i < families; i++)
        sum[i] = ef_tune_family_together(t->families.at[i], &t->records, &together[i]);
    for (uint32_t n = 0; n < room / 2; n++) {
        uint32_t best = 0;
        for (uint32_t i = 1; i < families; i++)
            best = sum[i] < sum[best] ? i : best;
        if (!families || !isfinite(sum[best]))
            break;
        put(&list, t->families.at[best], together[best], CHANCE * sum[best]);
        sum[best] = INFINITY;
    }
    free(together);
    free(sum);
    return list.count;
}
