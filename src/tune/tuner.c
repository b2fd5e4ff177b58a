/* The tuner: see tuner.h. tuner.c has families and rounds, assemble.c what a family is, propose.c how a kernel
 * chooses its next schedule. */
#include "tune/tuner.h"

#include <math.h>
#include <string.h>

#include "tune/assemble.h"

#define FIRST_EXPECTATION 400u
#define LEAST_QUOTA 2u     /* measurements of a family in a round, after the first round */
#define FIRST_QUOTA 8u     /* in the first round at most: a good family may start badly … */
#define FIRST_SHARE 3      /* … but this part of all measurements, one of so many, is enough for that */
#define LAST_QUOTA 16u     /* of the last family, before another may take its place */
#define PATIENCE 128u      /* measurements without progress, with one family left, before it is enough … */
#define PATIENCE_SHARE 2   /* … and this part of all */
#define KEEP_BY_ESTIMATE 4 /* one in so many places of the next round goes by estimate */

typedef struct {
    uint32_t family, point;
    bool told;
} ticket;

struct ef_tuner {
    ef_rng rng;
    EF_VEC(ef_tune_family *) families;
    ef_tune_records records; /* kernels */
    EF_VEC(uint32_t) left;   /* families of this round, best first */
    EF_VEC(ticket) tickets;
    uint32_t round, quota, outstanding;
    uint64_t expected, since_progress, asked;
    double best;
};

ef_tuner *ef_tuner_new(uint64_t seed)
{
    ef_tuner *t = ef_xcalloc(1, sizeof *t);
    t->rng.state = seed;
    t->expected = FIRST_EXPECTATION;
    t->best = INFINITY;
    return t;
}

void ef_tuner_free(ef_tuner *t)
{
    if (!t)
        return;
    for (uint32_t i = 0; i < t->families.count; i++)
        ef_tune_family_free(t->families.at[i]);
    for (uint32_t i = 0; i < t->records.count; i++)
        ef_tune_kernel_free(t->records.at[i].kernel);
    ef_vec_free(&t->records);
    ef_vec_free(&t->families);
    ef_vec_free(&t->left);
    ef_vec_free(&t->tickets);
    free(t);
}

uint32_t ef_tuner_add(ef_tuner *t, const ef_tune_space *space)
{
    uint32_t number = t->families.count;
    ef_vec_push(&t->families, ef_tune_family_new(space, number));
    ef_vec_push(&t->left, number);
    t->quota = 1;
    return number;
}

bool ef_tuner_known(ef_tuner *t, uint32_t family, const uint32_t *choice, double us, const double *kernel_us)
{
    ef_tune_family *f = t->families.at[family];
    if (!ef_tune_family_has(f, choice))
        return false;
    int fresh;
    uint32_t point = ef_tune_family_point(f, choice, &fresh);
    if (fresh)
        ef_tune_family_tell(f, &t->records, point, us, kernel_us);
    t->best = fmin(t->best, f->best);
    return true;
}

void ef_tuner_renew(ef_tuner *t, uint32_t family, const uint64_t *identity)
{
    if (!ef_tune_family_renew(t->families.at[family], identity))
        return;
    t->since_progress = 0;
    t->best = INFINITY;
    for (uint32_t i = 0; i < t->families.count; i++)
        t->best = fmin(t->best, t->families.at[i]->best);
}

void ef_tuner_expect(ef_tuner *t, uint64_t measurements)
{
    t->expected = measurements;
    if (t->round > 0 || t->families.count == 0)
        return;
    uint64_t share = (measurements + t->asked) / FIRST_SHARE / t->families.count;
    t->quota = share < 1 ? 1 : share > FIRST_QUOTA ? FIRST_QUOTA : (uint32_t)share;
}

/* ---- rounds ---- */

static double key_of(ef_tuner *t, uint32_t family, bool by_estimate)
{
    ef_tune_family *f = t->families.at[family];
    return by_estimate ? f->estimate : ef_tune_family_promise(f, &t->records);
}

/* Sorts families, equals in their old order. Insertion: they are few and nearly sorted. */
static void sort_left(ef_tuner *t, uint32_t from, bool by_estimate)
{
    for (uint32_t i = from + 1; i < t->left.count; i++)
        for (uint32_t k = i; k > from; k--) {
            uint32_t *pair = t->left.at + k - 1, swap = pair[0];
            if (!(key_of(t, pair[1], by_estimate) < key_of(t, pair[0], by_estimate)))
                break;
            pair[0] = pair[1];
            pair[1] = swap;
        }
}

static uint32_t rounds_after(uint32_t families)
{
    uint32_t rounds = 1;
    while (families > 1) {
        families = (families + 1) / 2;
        rounds++;
    }
    return rounds;
}

/* Every family that still has something to try; hopeless ones last. */
static void bring_all(ef_tuner *t)
{
    t->left.count = 0;
    for (int hopeless = 0; hopeless < 2; hopeless++)
        for (uint32_t i = 0; i < t->families.count; i++)
            if (!ef_tune_family_dry(t->families.at[i]) && ef_tune_family_hopeless(t->families.at[i]) == hopeless)
                ef_vec_push(&t->left, i);
}

static bool has_hope(const ef_tuner *t)
{
    for (uint32_t i = 0; i < t->families.count; i++)
        if (!ef_tune_family_dry(t->families.at[i]) && !ef_tune_family_hopeless(t->families.at[i]))
            return true;
    return false;
}

/* Half as many go on, the most promising ones of all: what was found for a kernel meanwhile may bring a family back
 * that was left out before. */
static bool next_round(ef_tuner *t)
{
    uint32_t kept = (t->left.count + 1) / 2, by_estimate = t->round < 2 ? kept / KEEP_BY_ESTIMATE : 0;
    bring_all(t);
    kept = kept < t->left.count ? kept : t->left.count;
    if (t->left.count == 0)
        return false;
    kept = kept ? kept : 1;
    sort_left(t, 0, false);
    sort_left(t, kept - (by_estimate < kept ? by_estimate : 0), true);
    t->left.count = kept;
    sort_left(t, 0, false);
    t->round++;
    uint64_t share = t->expected / rounds_after(kept) / kept, most = kept == 1 ? LAST_QUOTA : UINT32_MAX;
    t->quota = share < LEAST_QUOTA ? LEAST_QUOTA : share > most ? (uint32_t)most : (uint32_t)share;
    for (uint32_t i = 0; i < t->left.count; i++)
        t->families.at[t->left.at[i]]->asked = 0;
    return true;
}

/* The family of this round that got the fewest, the best of those; NULL: all got their share. A hopeless one gets
 * nothing more while there are others, in this round or outside of it. */
static ef_tune_family *next_family(ef_tuner *t, uint32_t *number)
{
    ef_tune_family *next = NULL;
    bool hope = has_hope(t);
    for (uint32_t i = 0; i < t->left.count; i++) {
        ef_tune_family *f = t->families.at[t->left.at[i]];
        if (ef_tune_family_dry(f) || f->asked >= t->quota || (hope && ef_tune_family_hopeless(f)) ||
            (next && f->asked >= next->asked))
            continue;
        next = f;
        *number = t->left.at[i];
    }
    return next;
}

static bool settled(const ef_tuner *t)
{
    return t->left.count == 1 && t->since_progress > PATIENCE && t->since_progress > t->asked / PATIENCE_SHARE;
}

ef_ask ef_tuner_ask(ef_tuner *t, ef_tune_point *point)
{
    uint32_t number = 0;
    if (t->families.count == 0 || settled(t))
        return t->outstanding ? EF_ASK_WAIT : EF_ASK_DONE;
    ef_tune_family *f = next_family(t, &number);
    if (!f) {
        /* Waiting for the last few would leave the workers without work. */
        if (t->outstanding > 2 && t->outstanding > t->left.count / 4)
            return EF_ASK_WAIT;
        if (!next_round(t) || !(f = next_family(t, &number)))
            return t->outstanding ? EF_ASK_WAIT : EF_ASK_DONE;
    }
    uint32_t id = ef_tune_assemble(f, &t->records, &t->rng);
    f->asked++;
    t->asked++;
    t->since_progress++;
    t->outstanding++;
    t->expected -= t->expected > 0;
    *point = (ef_tune_point){t->tickets.count, number, ef_tune_family_choice(f, id)};
    ef_vec_push(&t->tickets, ((ticket){number, id, false}));
    return EF_ASK_POINT;
}

void ef_tuner_tell(ef_tuner *t, uint64_t number, double us, const double *kernel_us)
{
    ticket *answered = number < t->tickets.count ? &t->tickets.at[number] : NULL;
    if (!answered || answered->told)
        return;
    answered->told = true;
    t->outstanding--;
    ef_tune_family_tell(t->families.at[answered->family], &t->records, answered->point, us, kernel_us);
    /* Noise is no progress. */
    if (us < 0.995 * t->best)
        t->since_progress = 0;
    t->best = fmin(t->best, us);
}

uint32_t ef_tuner_top(const ef_tuner *t, uint32_t room, ef_tune_point *point, double *us)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < t->families.count; i++) {
        const ef_tune_family *f = t->families.at[i];
        for (uint32_t e = 0; e < f->elites; e++) {
            double time = f->us.at[f->elite[e]];
            uint32_t at = count < room ? count++ : room;
            for (; at > 0 && time < us[at - 1]; at--)
                if (at < room) {
                    us[at] = us[at - 1];
                    point[at] = point[at - 1];
                }
            if (at == room)
                continue;
            us[at] = time;
            point[at] = (ef_tune_point){0, i, ef_tune_family_choice(f, f->elite[e])};
        }
    }
    return count;
}

bool ef_tuner_best(const ef_tuner *t, ef_tune_point *point, double *us)
{
    return ef_tuner_top(t, 1, point, us) == 1;
}

uint32_t ef_tuner_left(const ef_tuner *t)
{
    return t->left.count;
}
