/* Choosing a kernel's next schedule: see propose.h and tuner.h. */
#include "tune/propose.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "support/arena.h"
#include "tune/tuner.h"

#define SMALL_DOMAIN 4u /* any other value is a neighbour */
#define TRIES 24u
#define RANDOM_SHARE 0.1
#define MUTATION_SHARE 0.1
#define PAIR_SHARE 0.7    /* of steps: two parameters change */
#define PATTERN_SHARE 0.2 /* while the last step that helped was not taken again */

/* Where there are costs: */
#define WALK 240u        /* steps of the walk that looks for cheap schedules */
#define CHEAP 24u        /* of them are kept */
#define WARMTH 0.1       /* a step up by this part is taken once in e times */
#define JUMP_SHARE 0.2   /* of steps: a parameter takes any value */
#define DRAWS 24u        /* steps that are compared, beside the cheap ones */
#define FREE_SHARE 0.1   /* of proposals: a draw, whatever it costs */
#define NEAR 1.5         /* steps: how far a measurement says something of others */
#define FARTHEST 3.0     /* steps of one parameter */
#define NEUTRAL 0.3      /* steps that one is of which costs do not depend: it matters less, by far, than tiles do */
#define DOUBT 0.3        /* of a cost, as a logarithm, where nothing near was measured */
#define LEAST_DOUBT 0.15 /* … and of every tiling that was not, however near others are */
#define PRIOR 0.5        /* measurements, that all others together weigh */
#define FAILED 0.7       /* what a failure adds to the logarithm of the times near it … */
#define NO_ROOM 1.5      /* … and one for want of room to what needs as much */
#define LESS_ROOM 0.85   /* of what failed for want of room is tried next, as long as nothing worked */
#define MORE_ROOM 1.01   /* than what worked may be too much again */
#define START_SLACK 1.1  /* the start is tried first when it costs so many times the cheapest at most */

/* What it may come to: */
#define FIRST_HOPE 0.75 /* of the estimate, of a kernel that was not measured … */
#define WAITING 0.05    /* … and so much more for each result that is awaited … */
#define BLAMED 0.3      /* … or failed */
#define FLOOR 0.7       /* of the estimate is the least it can take … */
#define LEAST_GAIN 0.2  /* … unless it is near that already: then this part less */
#define UNKNOWN_GAIN 0.5
#define ON_THE_MOVE 0.3 /* tries before the last one that helped count as this many in vain */
#define FREAK 20.0      /* what takes so many times what it should is a fault of the schedule, as a failure is */
#define HOPELESS 4u     /* failures, of a kernel that never worked … */
#define MOST_SHRUNK 8u  /* … or so often less room was needed in vain */

static uint32_t *copy(const uint32_t *from, uint32_t count)
{
    uint32_t *to = ef_xcalloc(count + 1, sizeof *to);
    if (count)
        memcpy(to, from, count * sizeof *to);
    return to;
}

ef_tune_kernel *ef_tune_kernel_new(uint32_t params, const uint32_t *values, const uint32_t *start, double estimate,
                                   const ef_tune_judge *judge)
{
    ef_tune_kernel *k = ef_xcalloc(1, sizeof *k);
    k->params = params;
    k->values = copy(values, params);
    k->start = copy(start, params);
    k->scratch = ef_xcalloc(params + 1, sizeof *k->scratch);
    k->neutral = ef_xcalloc(params + 1, sizeof *k->neutral);
    k->estimate = estimate;
    k->judge = *judge;
    k->room_limit = INFINITY;
    k->size = 1;
    ef_tune_points_init(&k->points, params);
    for (uint32_t i = 0; i < params; i++)
        k->size *= values[i];
    return k;
}

void ef_tune_kernel_free(ef_tune_kernel *k)
{
    free(k->values);
    free(k->start);
    free(k->scratch);
    free(k->neutral);
    free(k->judge.choice);
    free(k->judge.place);
    ef_tune_points_free(&k->points);
    ef_vec_free(&k->cost);
    ef_vec_free(&k->cheap);
    ef_vec_free(&k->cheap_us);
    free(k);
}

void ef_tune_kernel_judge(ef_tune_kernel *k, const ef_tune_judge *judge)
{
    free(k->judge.choice);
    free(k->judge.place);
    k->judge = *judge;
}

/* What a choice is thought to take; 0: nothing is known. */
static double cost_of(const ef_tune_kernel *k, const uint32_t *choice, double *room)
{
    *room = 0;
    if (!k->judge.cost)
        return 0;
    for (uint32_t i = 0; i < k->params; i++)
        k->judge.choice[k->judge.place[i]] = choice[i];
    return k->judge.cost(k->judge.user, k->judge.kernel, k->judge.choice, room);
}

uint32_t ef_tune_kernel_point(ef_tune_kernel *k, const uint32_t *choice, int *fresh)
{
    uint32_t point = ef_tune_points_take(&k->points, choice, fresh);
    if (k->cost.count <= point) {
        ef_tune_cost cost;
        cost.us = cost_of(k, choice, &cost.room);
        ef_vec_push(&k->cost, cost);
    }
    return point;
}

void ef_tune_kernel_tell(ef_tune_kernel *k, uint32_t point, double us)
{
    double room = k->cost.at[point].room;
    ef_tune_points_tell(&k->points, point, us);
    if (isfinite(us) && room >= k->room_limit)
        k->room_limit = MORE_ROOM * room;
}

void ef_tune_kernel_no_room(ef_tune_kernel *k, uint32_t point)
{
    double room = k->cost.at[point].room;
    k->room_failed += isnan(k->points.time.at[point].us);
    ef_tune_points_tell(&k->points, point, INFINITY);
    if (room > 0 && room < k->room_limit) {
        k->room_limit = k->points.worked ? room : LESS_ROOM * room;
        k->shrunk++;
    }
}

bool ef_tune_kernel_dry(const ef_tune_kernel *k)
{
    return ef_tune_points_taken(&k->points) >= k->size;
}

uint32_t ef_tune_kernel_current(const ef_tune_kernel *k)
{
    const ef_tune_points *p = &k->points;
    if (p->elites)
        return p->elite[0];
    for (uint32_t i = 0; i < p->time.count; i++)
        if (p->time.at[i].waiting && isnan(p->time.at[i].us))
            return i;
    return UINT32_MAX;
}

/* ---- steps: each makes k->scratch ---- */

static void begin_at(ef_tune_kernel *k, const uint32_t *choice)
{
    if (k->params)
        memcpy(k->scratch, choice, k->params * sizeof *choice);
}

/* Where nothing worked, for want of room, what needed least. */
static const uint32_t *smallest(const ef_tune_kernel *k)
{
    uint32_t least = UINT32_MAX;
    for (uint32_t i = 0; i < k->cost.count && k->room_failed; i++)
        if (isinf(k->points.time.at[i].us) && (least == UINT32_MAX || k->cost.at[i].room < k->cost.at[least].room))
            least = i;
    return least == UINT32_MAX ? k->start : ef_tune_points_choice(&k->points, least);
}

static const uint32_t *elite(const ef_tune_kernel *k, uint32_t number)
{
    return number < k->points.elites ? ef_tune_points_choice(&k->points, k->points.elite[number]) : smallest(k);
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

/* One parameter of scratch changes, or two: what one takes the other may have to give. */
static void step(ef_tune_kernel *k, ef_rng *rng)
{
    uint32_t first = pick(k, rng), second = pick(k, rng);
    bool up = ef_rng_below(rng, 2);
    if (first == UINT32_MAX)
        return;
    up = change(k, first, up, rng);
    if (second != first && ef_rng_unit(rng) < PAIR_SHARE)
        change(k, second, !up, rng);
}

/* The step that led to the best once more (Hooke and Jeeves, 1961). */
static void repeat_step(ef_tune_kernel *k)
{
    const uint32_t *best = elite(k, 0), *before = ef_tune_points_choice(&k->points, k->points.former_best);
    for (uint32_t i = 0; i < k->params; i++) {
        int64_t next = 2 * (int64_t)best[i] - before[i];
        k->scratch[i] = next < 0 ? 0 : next >= k->values[i] ? k->values[i] - 1 : (uint32_t)next;
    }
    k->points.former_best = UINT32_MAX;
}

/* Some changes of one of the best. */
static void mutate(ef_tune_kernel *k, ef_rng *rng)
{
    begin_at(k, elite(k, k->points.elites ? ef_rng_below(rng, k->points.elites) : 0));
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

static void draw(ef_tune_kernel *k, ef_rng *rng)
{
    double dice = ef_rng_unit(rng);
    if (k->points.former_best != UINT32_MAX && k->points.elites && ef_rng_unit(rng) < PATTERN_SHARE) {
        repeat_step(k);
    } else if (dice < RANDOM_SHARE) {
        sample(k, rng);
    } else if (dice < RANDOM_SHARE + MUTATION_SHARE) {
        mutate(k, rng);
    } else {
        begin_at(k, elite(k, 0));
        step(k, rng);
    }
}

/* ---- cheap schedules ---- */

static const uint32_t *cheap(const ef_tune_kernel *k, uint32_t number)
{
    return k->cheap.at + (size_t)number * k->params;
}

/* Keeps scratch, what is neutral as it is in the start, if it is one of the cheapest. */
static void keep(ef_tune_kernel *k, double us)
{
    uint32_t at = k->cheap_us.count, width = k->params;
    for (uint32_t i = 0; i < width; i++)
        if (k->neutral[i] && k->scratch[i] != k->start[i]) {
            double room; /* it may not be neutral here */
            k->scratch[i] = k->start[i];
            us = cost_of(k, k->scratch, &room);
        }
    if (us >= EF_TUNE_NEVER || (at == CHEAP && us >= k->cheap_us.at[at - 1]))
        return;
    for (uint32_t i = 0; i < at; i++)
        if (memcmp(cheap(k, i), k->scratch, width * sizeof *k->scratch) == 0)
            return;
    if (at < CHEAP) {
        ef_vec_push(&k->cheap_us, us);
        for (uint32_t i = 0; i < width; i++)
            ef_vec_push(&k->cheap, 0);
    } else {
        at--;
    }
    for (; at > 0 && us < k->cheap_us.at[at - 1]; at--)
        k->cheap_us.at[at] = k->cheap_us.at[at - 1];
    uint32_t *place = k->cheap.at + (size_t)at * width;
    memmove(place + width, place, ((size_t)(k->cheap_us.count - 1 - at) * width) * sizeof *place);
    memcpy(place, k->scratch, width * sizeof *place);
    k->cheap_us.at[at] = us;
}

/* Whether any value of a parameter makes a schedule cost something else. */
static bool matters(ef_tune_kernel *k, const uint32_t *choice, uint32_t param)
{
    double room, us = cost_of(k, choice, &room);
    begin_at(k, choice);
    for (k->scratch[param] = 0; k->scratch[param] < k->values[param]; k->scratch[param]++)
        if (cost_of(k, k->scratch, &room) != us)
            return true;
    return false;
}

/* A random walk from the start, downhill for the most part. The same for the same kernel. */
void ef_tune_kernel_survey(ef_tune_kernel *k)
{
    double room;
    if (k->surveyed || !k->judge.cost)
        return;
    k->surveyed = true;
    if (k->params == 0) {
        k->estimate = cost_of(k, k->start, &room);
        return;
    }
    for (uint32_t i = 0; i < k->params; i++)
        k->neutral[i] = !matters(k, k->start, i);
    ef_rng rng = {ef_hash(k->values, k->params * sizeof *k->values)};
    uint32_t *here = copy(k->start, k->params);
    double us = cost_of(k, here, &room);
    begin_at(k, here);
    keep(k, us);
    for (uint32_t i = 0; i < WALK; i++) {
        if (i == WALK / 2 && k->cheap_us.count) {
            us = k->cheap_us.at[0];
            memcpy(here, cheap(k, 0), k->params * sizeof *here);
        }
        begin_at(k, here);
        uint32_t param = pick(k, &rng);
        if (param != UINT32_MAX && ef_rng_unit(&rng) < JUMP_SHARE)
            k->scratch[param] = ef_rng_below(&rng, k->values[param]);
        else
            step(k, &rng);
        double then = cost_of(k, k->scratch, &room);
        if (then < us * (1 - WARMTH * log(1 - ef_rng_unit(&rng)))) {
            us = then;
            memcpy(here, k->scratch, k->params * sizeof *here);
        }
        keep(k, then);
    }
    free(here);
    k->estimate = k->cheap_us.count ? k->cheap_us.at[0] : EF_TUNE_NEVER;
}

/* ---- the surrogate ---- */

/* How much a measurement says of another schedule, from 0 to 1. */
static double likeness(const ef_tune_kernel *k, const uint32_t *x, const uint32_t *y)
{
    double sum = 0;
    for (uint32_t i = 0; i < k->params; i++) {
        double steps = fmin(fabs((double)x[i] - y[i]), FARTHEST) * (k->neutral[i] ? NEUTRAL : 1);
        sum += steps * steps;
    }
    return exp(-sum / (2 * NEAR * NEAR));
}

/* The logarithm of how many times its cost a point took. */
static double miss(const ef_tune_kernel *k, uint32_t point)
{
    return log(k->points.time.at[point].us / k->cost.at[point].us);
}

static bool has_miss(const ef_tune_kernel *k, uint32_t point)
{
    return isfinite(k->points.time.at[point].us) && k->cost.at[point].us > 0 && k->cost.at[point].us < EF_TUNE_NEVER;
}

static double mean_miss(const ef_tune_kernel *k)
{
    double sum = 0, count = 0;
    for (uint32_t i = 0; i < k->points.time.count; i++)
        if (has_miss(k, i)) {
            sum += miss(k, i);
            count++;
        }
    return count > 0 ? sum / count : 0;
}

/* Whether they differ in what costs depend on. */
static bool tiled_alike(const ef_tune_kernel *k, const uint32_t *x, const uint32_t *y)
{
    for (uint32_t i = 0; i < k->params; i++)
        if (!k->neutral[i] && x[i] != y[i])
            return false;
    return true;
}

/* The logarithm of what a schedule may take, optimistically: its cost; the mean miss of what was measured, weighted by
 * how like it these are (and `mean`, the mean_miss, with a weight of its own); less a doubt that shrinks where much was
 * tried nearby, and is small where only what is neutral differs; and more where it needs as much room as what failed
 * for want of it. */
static double score(const ef_tune_kernel *k, const uint32_t *choice, double mean)
{
    double room, us = cost_of(k, choice, &room), sum = PRIOR * mean, weights = PRIOR, all = PRIOR;
    bool tried = false;
    if (us >= EF_TUNE_NEVER || us <= 0)
        return INFINITY;
    for (uint32_t i = 0; i < k->points.time.count; i++) {
        double near = likeness(k, choice, ef_tune_points_choice(&k->points, i));
        bool failed = isinf(k->points.time.at[i].us) && k->cost.at[i].room < k->room_limit;
        all += k->points.time.at[i].open ? 0 : near;
        tried = tried || (!k->points.time.at[i].open && tiled_alike(k, choice, ef_tune_points_choice(&k->points, i)));
        if (!failed && !has_miss(k, i))
            continue;
        sum += near * (failed ? mean + FAILED : miss(k, i));
        weights += near;
    }
    double doubt = DOUBT * sqrt(PRIOR / all);
    doubt = tried ? NEUTRAL * doubt : fmax(doubt, LEAST_DOUBT);
    return log(us) + sum / weights - doubt + (room >= k->room_limit ? NO_ROOM : 0);
}

typedef struct {
    uint32_t *choice;
    double score;
} best_draw;

static void compare(const ef_tune_kernel *k, best_draw *best, const uint32_t *choice, double mean)
{
    if (!ef_tune_points_askable(&k->points, choice))
        return;
    double own = score(k, choice, mean);
    if (own < best->score) {
        best->score = own;
        memcpy(best->choice, choice, k->params * sizeof *choice);
    }
}

/* Makes scratch the most promising of many. False: none is new and has room. */
static bool draw_best(ef_tune_kernel *k, ef_rng *rng)
{
    double mean = mean_miss(k);
    best_draw best = {ef_xcalloc(k->params + 1, sizeof(uint32_t)), INFINITY};
    for (uint32_t i = 0; i < k->cheap_us.count; i++)
        compare(k, &best, cheap(k, i), mean);
    for (uint32_t i = 0; i < DRAWS; i++) {
        draw(k, rng);
        compare(k, &best, k->scratch, mean);
    }
    begin_at(k, best.choice);
    free(best.choice);
    return isfinite(best.score);
}

/* ---- proposals ---- */

static bool has_room(const ef_tune_kernel *k)
{
    double room;
    return cost_of(k, k->scratch, &room) < EF_TUNE_NEVER && room < k->room_limit;
}

/* The next open choice after scratch, in the order of a counter. There is one. */
static void step_on(ef_tune_kernel *k)
{
    do {
        uint32_t i = 0;
        while (i < k->params && ++k->scratch[i] == k->values[i])
            k->scratch[i++] = 0;
    } while (!ef_tune_points_askable(&k->points, k->scratch));
}

/* Makes scratch a draw that is open and has room. What has none counts as tried: it is never asked. */
static bool draw_any(ef_tune_kernel *k, ef_rng *rng)
{
    for (unsigned tries = 0; tries < TRIES; tries++) {
        draw(k, rng);
        if (ef_tune_points_askable(&k->points, k->scratch) && has_room(k))
            return true;
    }
    for (unsigned tries = 0; tries < TRIES && !ef_tune_kernel_dry(k); tries++) {
        step_on(k);
        if (has_room(k))
            return true;
        ef_tune_kernel_point(k, k->scratch, NULL);
    }
    return false;
}

/* Makes scratch one that was to be tried and was not, because another kernel of the candidate failed. */
static bool take_open(ef_tune_kernel *k)
{
    for (uint32_t i = 0; k->points.open && i < k->points.time.count; i++)
        if (k->points.time.at[i].open) {
            begin_at(k, ef_tune_points_choice(&k->points, i));
            return true;
        }
    return false;
}

static bool is_start(ef_tune_kernel *k)
{
    double room;
    begin_at(k, k->start);
    return k->points.time.count == 0 && cost_of(k, k->start, &room) <= START_SLACK * k->estimate + 1e-9;
}

static bool choose(ef_tune_kernel *k, ef_rng *rng)
{
    ef_tune_kernel_survey(k);
    if (take_open(k))
        return true;
    if (k->judge.cost) {
        if (is_start(k) || (ef_rng_unit(rng) >= FREE_SHARE && draw_best(k, rng)))
            return true;
    } else {
        begin_at(k, k->start);
        if (ef_tune_points_askable(&k->points, k->scratch))
            return true;
    }
    return draw_any(k, rng);
}

bool ef_tune_propose(ef_tune_kernel *k, ef_rng *rng, uint32_t *point)
{
    if (ef_tune_kernel_dry(k) || !choose(k, rng))
        return false;
    *point = ef_tune_kernel_point(k, k->scratch, NULL);
    return true;
}

/* ---- what it may come to ---- */

bool ef_tune_kernel_hopeless(ef_tune_kernel *k)
{
    ef_tune_kernel_survey(k);
    return k->points.worked == 0 &&
           (k->points.failed - k->room_failed >= HOPELESS || k->shrunk >= MOST_SHRUNK || k->estimate >= EF_TUNE_NEVER);
}

static uint32_t waiting(const ef_tune_kernel *k)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < k->points.time.count; i++)
        count += k->points.time.at[i].waiting && isnan(k->points.time.at[i].us);
    return count;
}

/* Of a kernel that was measured: between its best time and the least that it may come to, nearer to the former the more
 * was tried since the best got better, beside what can still be tried. */
double ef_tune_kernel_promise(ef_tune_kernel *k, const ef_tune_outlook *outlook)
{
    ef_tune_kernel_survey(k);
    const ef_tune_points *p = &k->points;
    double best = ef_tune_points_best(p), on_way = waiting(k), expected = k->estimate * outlook->off;
    if (!p->elites || (best > FREAK * expected && expected > 0))
        return fmin(best, expected * FIRST_HOPE * (1 + WAITING * on_way + BLAMED * (p->failed + p->worked)));
    double least = (1 - UNKNOWN_GAIN) * best;
    if (k->estimate > 0)
        least = fmin(FLOOR * k->estimate * outlook->low, (1 - LEAST_GAIN) * best);
    double tried = p->in_vain + ON_THE_MOVE * (p->worked + p->failed - p->in_vain) + on_way;
    return ef_tune_kernel_dry(k) ? best : best - (best - least) * outlook->tries / (outlook->tries + tried);
}
