/* Points and the best of them: see points.h. */
#include "tune/points.h"

#include <math.h>
#include <string.h>

#define PROGRESS 0.99 /* of the best: less is noise */

static const uint32_t nothing; /* without parameters there is one choice */

static const void *bytes_of(const ef_tune_points *p, const uint32_t *choice)
{
    return p->params ? choice : &nothing;
}

static size_t size_of(const ef_tune_points *p)
{
    return (p->params ? p->params : 1) * sizeof(uint32_t);
}

void ef_tune_points_init(ef_tune_points *p, uint32_t params)
{
    *p = (ef_tune_points){.params = params, .choice = ef_intern_new(), .former_best = UINT32_MAX};
}

void ef_tune_points_free(ef_tune_points *p)
{
    ef_intern_free(p->choice);
    ef_vec_free(&p->time);
}

uint32_t ef_tune_points_take(ef_tune_points *p, const uint32_t *choice, int *fresh)
{
    int is_new;
    uint32_t id = ef_intern_put(p->choice, bytes_of(p, choice), size_of(p), &is_new);
    if (is_new) {
        ef_vec_push(&p->time, ((ef_tune_time){.us = NAN}));
    } else if (p->time.at[id].open) {
        p->time.at[id].open = false;
        p->open--;
        is_new = 1;
    }
    if (fresh)
        *fresh = is_new;
    return id;
}

bool ef_tune_points_askable(const ef_tune_points *p, const uint32_t *choice)
{
    uint32_t id = ef_intern_find(p->choice, bytes_of(p, choice), size_of(p));
    return id == UINT32_MAX || p->time.at[id].open;
}

const uint32_t *ef_tune_points_choice(const ef_tune_points *p, uint32_t point)
{
    return ef_intern_at(p->choice, point, NULL);
}

/* Takes a point out of the best, if it is there. */
static void demote(ef_tune_points *p, uint32_t point)
{
    for (uint32_t i = 0; i < p->elites; i++)
        if (p->elite[i] == point) {
            memmove(p->elite + i, p->elite + i + 1, (--p->elites - i) * sizeof *p->elite);
            return;
        }
}

static void promote(ef_tune_points *p, uint32_t point)
{
    double us = p->time.at[point].us;
    uint32_t at = p->elites < EF_TUNE_ELITE ? p->elites++ : EF_TUNE_ELITE;
    for (; at > 0 && us < p->time.at[p->elite[at - 1]].us; at--)
        if (at < EF_TUNE_ELITE)
            p->elite[at] = p->elite[at - 1];
    if (at < EF_TUNE_ELITE)
        p->elite[at] = point;
}

void ef_tune_points_tell(ef_tune_points *p, uint32_t point, double us)
{
    ef_tune_time *t = &p->time.at[point];
    p->in_vain += isnan(t->us);
    if (!isfinite(us)) {
        p->failed += isnan(t->us);
        t->us = t->count ? t->us : INFINITY;
        return;
    }
    if (us < PROGRESS * ef_tune_points_best(p))
        p->in_vain = 0;
    p->failed -= isinf(t->us) ? 1 : 0;
    p->worked += t->count == 0;
    t->us = t->count ? (t->us * t->count + us) / (t->count + 1) : us;
    t->count++;
    uint32_t best = p->elites ? p->elite[0] : UINT32_MAX;
    demote(p, point);
    promote(p, point);
    p->former_best = p->elite[0] != best ? best : p->former_best;
}

void ef_tune_points_open(ef_tune_points *p, uint32_t point)
{
    p->open += !p->time.at[point].open;
    p->time.at[point].open = true;
}

void ef_tune_points_forget(ef_tune_points *p)
{
    for (uint32_t i = 0; i < p->time.count; i++)
        if (p->time.at[i].count) {
            p->time.at[i].us = NAN;
            p->time.at[i].count = 0;
            ef_tune_points_open(p, i);
        }
    p->elites = p->worked = p->in_vain = 0;
    p->former_best = UINT32_MAX;
}

uint32_t ef_tune_points_taken(const ef_tune_points *p)
{
    return ef_intern_count(p->choice) - p->open;
}

double ef_tune_points_best(const ef_tune_points *p)
{
    return p->elites ? p->time.at[p->elite[0]].us : INFINITY;
}
