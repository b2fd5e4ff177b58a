/* The tuner against synthetic landscapes: it finds what is best within a budget, asks nothing twice, and takes failures
 * and late answers as they come. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "support/hash.h"
#include "support/rng.h"
#include "tune/assemble.h"
#include "tune/tuner.h"

#define NONE UINT32_MAX
#define MAX_PARAMS 12

/* Microseconds of a schedule; INFINITY: it fails. */
typedef double (*landscape)(uint32_t family, const uint32_t *choice);

typedef struct {
    uint32_t params, values[MAX_PARAMS], owner[MAX_PARAMS], start[MAX_PARAMS];
    double estimate;
} space;

static void add(ef_tuner *tuner, const space *s)
{
    ef_tuner_add(
        tuner,
        &(ef_tune_space){
            .params = s->params, .values = s->values, .owner = s->owner, .start = s->start, .estimate = s->estimate});
}

/* Asks and tells up to `budget` times, with `late` answers outstanding. Returns the best; counts asks. */
static double play(ef_tuner *tuner, landscape cost, uint32_t params, uint32_t budget, uint32_t late, uint32_t *asked)
{
    ef_tune_point queue[64], point;
    ef_intern *seen = ef_intern_new();
    uint32_t waiting = 0;
    double best;
    *asked = 0;
    for (;;) {
        ef_ask ask = *asked < budget ? ef_tuner_ask(tuner, &point) : EF_ASK_DONE;
        if (ask == EF_ASK_POINT) {
            uint32_t key[MAX_PARAMS + 1] = {point.family};
            int fresh;
            memcpy(key + 1, point.choice, params * sizeof *key);
            ef_intern_put(seen, key, sizeof key, &fresh);
            assert_true(fresh); /* never twice */
            queue[waiting++] = point;
            ++*asked;
            ef_tuner_expect(tuner, budget - *asked);
        }
        if (waiting > late || (waiting && ask != EF_ASK_POINT)) {
            ef_tuner_tell(tuner, queue[0].ticket, cost(queue[0].family, queue[0].choice), NULL);
            memmove(queue, queue + 1, --waiting * sizeof *queue);
        } else if (ask == EF_ASK_DONE && !waiting) {
            break;
        }
        assert_false(ask == EF_ASK_WAIT && !waiting && *asked == 0);
    }
    ef_intern_free(seen);
    return ef_tuner_best(tuner, &point, &best) ? best : INFINITY;
}

/* ---- landscapes ---- */

static double bowl(uint32_t family, const uint32_t *x)
{
    static const int best[] = {3, 9, 0, 11, 5, 7};
    double sum = 100;
    (void)family;
    for (int i = 0; i < 6; i++)
        sum += (double)(((int)x[i] - best[i]) * ((int)x[i] - best[i]));
    return sum;
}

/* What one parameter takes the other must give: tiles that just fill a cache. */
static double valley(uint32_t family, const uint32_t *x)
{
    double sum = 100;
    (void)family;
    sum += 10 * fabs((double)x[0] + x[1] - 13) + fabs((double)x[0] - 9);
    sum += 10 * fabs((double)x[2] + x[3] + x[4] - 17) + fabs((double)x[2] - 2) + fabs((double)x[3] - 8);
    return sum;
}

/* Three kernels after each other, and what shapes the buffer between them: it changes what is best for the others. */
static double pipeline(uint32_t family, const uint32_t *x)
{
    double sum = 50;
    (void)family;
    for (uint32_t k = 0; k < 3; k++) {
        const uint32_t *own = x + 1 + 3 * k;
        double wanted = (double)((x[0] + 2 * k) % 10);
        sum += fabs((double)own[0] - wanted) + fabs((double)own[1] - 4) + (own[2] == 1 ? 0 : 6);
    }
    return sum + 4 * fabs((double)x[0] - 6);
}

/* Like the bowl, but more than half of all schedules fail, the first one too. */
static double broken(uint32_t family, const uint32_t *x)
{
    return (x[0] + x[1] + x[2]) % 2 || x[3] > 11 || x[4] < 2 ? INFINITY : bowl(family, x);
}

/* Twenty families; the best one starts as one of the worst and has a good estimate. */
static double crowd(uint32_t family, const uint32_t *x)
{
    double start = family == 13 ? 620 : 570 + 4 * family, gain = family == 13 ? 20 : 3;
    for (int i = 0; i < 4; i++)
        start -= gain * fmin(x[i], 6);
    return start;
}

static double never(uint32_t family, const uint32_t *x)
{
    (void)family, (void)x;
    return INFINITY;
}

static double flat(uint32_t family, const uint32_t *x)
{
    return family + x[0] + x[2];
}

static const space one_kernel = {6, {12, 12, 12, 12, 12, 12}, {0}, {6, 6, 6, 6, 6, 6}, 1};
static const space three_kernels = {
    10, {10, 10, 10, 2, 10, 10, 2, 10, 10, 2}, {NONE, 0, 0, 0, 1, 1, 1, 2, 2, 2}, {2, 5, 5, 0, 5, 5, 0, 5, 5, 0}, 1};

/* ---- tests ---- */

static double optimum_of(const space *s, landscape cost, uint64_t seed, uint32_t budget, uint32_t late)
{
    uint32_t asked;
    ef_tuner *tuner = ef_tuner_new(seed);
    add(tuner, s);
    double best = play(tuner, cost, s->params, budget, late, &asked);
    ef_tuner_free(tuner);
    return best;
}

/* How many of ten seeds come within `slack` of the optimum. */
static int successes(const space *s, landscape cost, double optimum, double slack, uint32_t budget, uint32_t late)
{
    int count = 0;
    for (uint64_t seed = 1; seed <= 10; seed++)
        count += optimum_of(s, cost, seed, budget, late) <= optimum + slack;
    return count;
}

static void test_separable(void **state)
{
    (void)state; /* of 3 million schedules */
    assert_true(successes(&one_kernel, bowl, 100, 0, 300, 0) >= 9);
    assert_int_equal(successes(&one_kernel, bowl, 100, 3, 200, 0), 10);
}

static void test_coupled(void **state)
{
    (void)state;
    assert_true(successes(&one_kernel, valley, 100, 0, 600, 0) >= 8);
    assert_true(successes(&one_kernel, valley, 100, 4, 600, 0) >= 9);
}

static void test_several_kernels(void **state)
{
    (void)state; /* of 8 thousand million schedules */
    assert_true(successes(&three_kernels, pipeline, 50, 0, 900, 0) >= 4);
    assert_int_equal(successes(&three_kernels, pipeline, 50, 4, 900, 0), 10);
}

static void test_failures_and_late_answers(void **state)
{
    (void)state;
    assert_int_equal(successes(&one_kernel, broken, 100, 4, 700, 0), 10);
    assert_int_equal(successes(&one_kernel, bowl, 100, 3, 400, 16), 10);
    assert_true(isinf(optimum_of(&one_kernel, never, 1, 200, 4)));
}

static void test_halving(void **state)
{
    uint32_t asked;
    ef_tuner *tuner = ef_tuner_new(7);
    (void)state;
    for (uint32_t f = 0; f < 20; f++) {
        space s = {4, {8, 8, 8, 8}, {0}, {0}, f == 13 ? 1 : 10 + f};
        add(tuner, &s);
    }
    double best = play(tuner, crowd, 4, 260, 3, &asked);
    ef_tune_point point;
    assert_true(ef_tuner_best(tuner, &point, &best));
    assert_int_equal(point.family, 13);
    assert_true(best <= 620 - 20 * 22);
    assert_true(ef_tuner_left(tuner) <= 2);
    ef_tuner_free(tuner);
}

/* A small space is asked from end to end, and then it is done. */
static void test_exhaustion(void **state)
{
    uint32_t asked;
    (void)state;
    ef_tuner *tuner = ef_tuner_new(1);
    add(tuner, &(space){3, {3, 1, 4}, {NONE, 0, 0}, {1, 0, 1}, 1});
    add(tuner, &(space){3, {1, 1, 1}, {0}, {0}, 1});
    play(tuner, flat, 3, 1000, 5, &asked);
    assert_int_equal(asked, 13);
    ef_tuner_free(tuner);
}

/* When nothing gets better for long it stops by itself. */
static void test_patience(void **state)
{
    uint32_t asked;
    (void)state;
    ef_tuner *tuner = ef_tuner_new(1);
    add(tuner, &one_kernel);
    assert_true(play(tuner, bowl, 6, 100000, 4, &asked) <= 100);
    assert_in_range(asked, 50, 2000);
    ef_tuner_free(tuner);
}

/* ---- a simulated device that says what kernels take ---- */

#define DEVICE_KERNELS 6
#define DEVICE_FAMILIES 5
#define LAUNCH_US 2.0

/* A kernel: its time at the optimum, and what every step away from it costs. All have 3 parameters of 10 values. */
typedef struct {
    double least, step;
    int best[3];
    uint32_t start[3];
} device_kernel;

/* Kernels 0 to 2 are a program in three, of which the first schedules are far off; 3 is the same in one, which begins
 * well and comes to no good; 4 and 5 are others. */
static const device_kernel device[DEVICE_KERNELS] = {
    {10, 7, {6, 3, 7}, {3, 6, 4}}, {12, 7, {2, 7, 4}, {5, 4, 7}}, {8, 7, {7, 2, 6}, {4, 5, 3}},
    {90, 3, {5, 5, 5}, {5, 4, 5}}, {38, 3, {4, 6, 5}, {5, 5, 5}}, {42, 3, {6, 4, 5}, {5, 5, 5}},
};
static const struct {
    uint32_t kernels, kernel[3];
    double estimate;
} device_family[DEVICE_FAMILIES] = {
    {1, {3}, 100}, {3, {0, 1, 2}, 60}, {3, {0, 1, 4}, 70}, {2, {4, 5, 0}, 65}, {3, {0, 5, 2}, 75},
};

typedef struct {
    ef_intern *asked[DEVICE_KERNELS]; /* distinct schedules of a kernel */
    uint32_t measured;
    double first[DEVICE_FAMILIES]; /* the first time of a family */
    bool refuses;                  /* some schedules fail, because of a kernel */
} simulation;

static double simulate(simulation *s, uint32_t family, const uint32_t *choice, double *kernel_us)
{
    double sum = 0;
    for (uint32_t k = 0; k < device_family[family].kernels; k++) {
        const device_kernel *d = &device[device_family[family].kernel[k]];
        int fresh;
        kernel_us[k] = d->least;
        for (int i = 0; i < 3; i++)
            kernel_us[k] += d->step * abs((int)choice[3 * k + (uint32_t)i] - d->best[i]);
        ef_intern_put(s->asked[device_family[family].kernel[k]], choice + (size_t)3 * k, 3 * sizeof *choice, &fresh);
        sum += kernel_us[k] + LAUNCH_US;
    }
    s->measured++;
    s->first[family] = s->first[family] > 0 ? s->first[family] : sum;
    return sum;
}

/* The first kernel that has no room under a schedule; NONE: all have. */
static uint32_t refused(const simulation *s, uint32_t family, const uint32_t *choice)
{
    for (uint32_t k = 0; k < device_family[family].kernels && s->refuses; k++)
        if (choice[3 * k] < 4 || choice[3 * k + 1] == 9)
            return k;
    return NONE;
}

static simulation simulation_new(void)
{
    simulation s = {.measured = 0};
    for (uint32_t i = 0; i < DEVICE_KERNELS; i++)
        s.asked[i] = ef_intern_new();
    return s;
}

static void simulation_free(simulation *s)
{
    for (uint32_t i = 0; i < DEVICE_KERNELS; i++)
        ef_intern_free(s->asked[i]);
}

static ef_tuner *device_tuner(uint64_t seed)
{
    ef_tuner *tuner = ef_tuner_new(seed);
    for (uint32_t f = 0; f < DEVICE_FAMILIES; f++) {
        uint32_t values[9], owner[9], start[9], count = device_family[f].kernels;
        uint64_t identity[3], key[9] = {0};
        double estimate[3] = {0};
        bool uses[27] = {false};
        for (uint32_t k = 0; k < count; k++) {
            identity[k] = 1 + device_family[f].kernel[k];
            estimate[k] = 0.8 * device[device_family[f].kernel[k]].least;
            for (uint32_t i = 0; i < 3; i++) {
                values[3 * k + i] = 10;
                owner[3 * k + i] = k;
                start[3 * k + i] = device[device_family[f].kernel[k]].start[i];
            }
        }
        ef_tuner_add(tuner, &(ef_tune_space){.params = 3 * count,
                                             .values = values,
                                             .owner = owner,
                                             .start = start,
                                             .estimate = device_family[f].estimate,
                                             .kernels = count,
                                             .identity = identity,
                                             .kernel_estimate = estimate,
                                             .uses = uses,
                                             .key = key});
    }
    return tuner;
}

typedef struct {
    uint32_t family, choice[9];
    double us, kernel_us[3];
    uint32_t guilty; /* because of this kernel it failed; NONE: it did not */
} told_result;

/* Measures up to `budget` schedules; what was told goes to `log`. Returns the best. */
static double play_device(ef_tuner *tuner, simulation *s, uint32_t budget, told_result *log, ef_tune_point *point)
{
    double us;
    for (uint32_t i = 0; i < budget; i++) {
        told_result *r = &log[i];
        ef_tuner_expect(tuner, budget - i);
        if (ef_tuner_ask(tuner, point) != EF_ASK_POINT)
            break;
        r->family = point->family;
        memcpy(r->choice, point->choice, (size_t)3 * device_family[point->family].kernels * sizeof *r->choice);
        r->us = simulate(s, point->family, point->choice, r->kernel_us);
        r->guilty = refused(s, point->family, point->choice);
        if (r->guilty != NONE)
            ef_tuner_fail(tuner, point->ticket, r->guilty, true);
        else
            ef_tuner_tell(tuner, point->ticket, r->us, r->kernel_us);
    }
    return ef_tuner_best(tuner, point, &us) ? us : INFINITY;
}

#define DEVICE_BUDGET 160u

/* Family 1 is the best by far, and its first schedule more than twice as slow as the first one's: tuned kernel by
 * kernel it wins. No result is slower than the best first schedule. */
static void test_bad_start(void **state)
{
    (void)state;
    unsigned won = 0, optimal = 0;
    for (uint64_t seed = 1; seed <= 10; seed++) {
        told_result log[DEVICE_BUDGET];
        ef_tune_point point;
        simulation s = simulation_new();
        ef_tuner *tuner = device_tuner(seed);
        double best = play_device(tuner, &s, DEVICE_BUDGET, log, &point);
        assert_true(s.first[1] > 2 * s.first[0]);
        assert_true(best <= s.first[0]);
        won += point.family == 1;
        optimal += best <= 30 + 3 * LAUNCH_US + 1e-9;
        ef_tuner_free(tuner);
        simulation_free(&s);
    }
    assert_true(won >= 8);
    assert_true(optimal >= 6);
}

/* What was found for kernels 0 and 1 in family 1 serves family 2, which begins with it. */
static void test_shared_kernels(void **state)
{
    (void)state;
    ef_tuner *tuner = device_tuner(3);
    ef_tune_point point;
    uint32_t tuned[9] = {6, 3, 7, 2, 7, 4, 0, 9, 0};
    double kernel_us[3] = {10, 12, 148};
    assert_true(ef_tuner_known(tuner, 1, tuned, 176, kernel_us));
    for (bool found = false; !found;) {
        simulation s = simulation_new();
        assert_int_equal(ef_tuner_ask(tuner, &point), EF_ASK_POINT);
        double us = simulate(&s, point.family, point.choice, kernel_us);
        found = point.family == 2;
        if (found) {
            assert_memory_equal(point.choice, tuned, 6 * sizeof *tuned);
            assert_memory_equal(point.choice + 6, device[4].start, 3 * sizeof *tuned);
        }
        ef_tuner_tell(tuner, point.ticket, us, kernel_us);
        simulation_free(&s);
    }
    ef_tuner_free(tuner);
}

/* What was told before is not asked again, and counts, failures as well: the rest of the budget gives what all of it
 * would have. */
static void check_resuming(bool refuses)
{
    told_result log[DEVICE_BUDGET] = {0}, again[DEVICE_BUDGET] = {0};
    ef_tune_point point;
    simulation s = simulation_new();
    s.refuses = refuses;
    ef_tuner *tuner = device_tuner(5);
    double before = play_device(tuner, &s, DEVICE_BUDGET / 2, log, &point);
    uint32_t failed = 0;
    ef_tuner_free(tuner); /* killed */
    tuner = device_tuner(5);
    for (uint32_t i = 0; i < DEVICE_BUDGET / 2; i++) {
        const told_result *r = &log[i];
        failed += r->guilty != NONE;
        if (r->guilty != NONE)
            assert_true(ef_tuner_known_failure(tuner, r->family, r->choice, r->guilty, true));
        else
            assert_true(ef_tuner_known(tuner, r->family, r->choice, r->us, r->kernel_us));
    }
    assert_true(refuses ? failed >= 10 : failed == 0);
    double us;
    assert_true(ef_tuner_best(tuner, &point, &us));
    assert_true(us == before);
    double after = play_device(tuner, &s, DEVICE_BUDGET / 2, again, &point);
    for (uint32_t i = 0; i < DEVICE_BUDGET / 2; i++)
        for (uint32_t k = 0; k < DEVICE_BUDGET / 2; k++)
            assert_false(log[i].family == again[k].family &&
                         memcmp(log[i].choice, again[k].choice,
                                (size_t)3 * device_family[log[i].family].kernels * sizeof *log[i].choice) == 0);
    assert_true(after <= before);
    ef_tuner_free(tuner);
    simulation_free(&s);
}

static void test_resumes(void **state)
{
    (void)state;
    check_resuming(false);
    check_resuming(true);
}

/* Families of kernels {0, 1}, {0, 2} and {3, 1}; the first one always fails as a whole, though its kernels are the
 * fastest, and work in the others. It gets only a few measurements. */
static void test_dead_family(void **state)
{
    static const uint32_t kernel[3][2] = {{0, 1}, {0, 2}, {3, 1}};
    static const double least[4] = {10, 10, 40, 40};
    (void)state;
    ef_tuner *tuner = ef_tuner_new(1);
    for (uint32_t f = 0; f < 3; f++) {
        uint32_t values[2] = {200, 200}, owner[2] = {0, 1}, start[2] = {100, 100};
        uint64_t identity[2] = {1 + kernel[f][0], 1 + kernel[f][1]}, key[2] = {0};
        double estimate[2] = {0.8 * least[kernel[f][0]], 0.8 * least[kernel[f][1]]};
        bool uses[4] = {false};
        ef_tuner_add(tuner, &(ef_tune_space){.params = 2,
                                             .values = values,
                                             .owner = owner,
                                             .start = start,
                                             .estimate = estimate[0] + estimate[1],
                                             .kernels = 2,
                                             .identity = identity,
                                             .kernel_estimate = estimate,
                                             .uses = uses,
                                             .key = key});
    }
    uint32_t asked[3] = {0};
    ef_tune_point point;
    for (uint32_t i = 0; i < 200; i++) {
        ef_tuner_expect(tuner, 200 - i);
        if (ef_tuner_ask(tuner, &point) != EF_ASK_POINT)
            break;
        asked[point.family]++;
        double us[2];
        for (int k = 0; k < 2; k++)
            us[k] = least[kernel[point.family][k]] + fabs((double)point.choice[k] - 60);
        ef_tuner_tell(tuner, point.ticket, point.family ? us[0] + us[1] : INFINITY, point.family ? us : NULL);
    }
    assert_in_range(asked[0], 1, 4);
    assert_true(asked[1] + asked[2] >= 100);
    ef_tuner_free(tuner);
}

/* A family's kernels become others: what was told of it is no result any more, but the best of it is asked first. */
static void test_renewed(void **state)
{
    static const uint32_t values[2] = {5, 5}, owner[2] = {0, 1}, start[2] = {0, 0}, good[2] = {3, 2}, bad[2] = {1, 1};
    static const uint64_t narrow[2] = {1, 2}, wide[2] = {1, 3}, key[2] = {0};
    static const double estimate[2] = {1, 1}, told[2] = {4, 5};
    static const bool uses[4] = {false};
    ef_tune_point point;
    double us;
    (void)state;
    ef_tuner *tuner = ef_tuner_new(1);
    ef_tuner_add(tuner, &(ef_tune_space){.params = 2,
                                         .values = values,
                                         .owner = owner,
                                         .start = start,
                                         .kernels = 2,
                                         .identity = narrow,
                                         .kernel_estimate = estimate,
                                         .uses = uses,
                                         .key = key});
    ef_tuner_known(tuner, 0, bad, 20, (const double[]){10, 10});
    ef_tuner_known(tuner, 0, good, 10, told);
    ef_tuner_change_kernels(tuner, 0, narrow);
    assert_true(ef_tuner_best(tuner, &point, &us) && us == 10);
    ef_tuner_change_kernels(tuner, 0, wide);
    assert_false(ef_tuner_best(tuner, &point, &us));
    uint32_t asked = 0;
    while (ef_tuner_ask(tuner, &point) == EF_ASK_POINT) {
        if (asked++ == 0)
            assert_memory_equal(point.choice, good, sizeof good);
        ef_tuner_tell(tuner, point.ticket, 30, (const double[]){15, 15});
    }
    assert_int_equal(asked, 25);
    assert_true(ef_tuner_best(tuner, &point, &us) && us == 30);
    ef_tuner_free(tuner);
}

/* Where all fail each is tried all the same. */
static void test_all_dead(void **state)
{
    uint32_t asked;
    (void)state;
    ef_tuner *tuner = ef_tuner_new(1);
    add(tuner, &(space){1, {9}, {0}, {1}, 1});
    add(tuner, &(space){1, {9}, {0}, {1}, 1});
    play(tuner, never, 1, 100, 2, &asked);
    assert_int_equal(asked, 18);
    ef_tuner_free(tuner);
}

/* Two kernels that do not say what they take were blamed for a failure of the whole; when it works with one of them,
 * that has a time. */
static void test_blamed_in_vain(void **state)
{
    static const uint32_t values[2] = {4, 4}, owner[2] = {0, 1}, start[2] = {0, 0}, first[2] = {0, 0},
                          second[2] = {0, 1};
    (void)state;
    ef_tune_records records;
    ef_tune_records_init(&records);
    ef_tune_family *f =
        ef_tune_family_new(&(ef_tune_space){.params = 2, .values = values, .owner = owner, .start = start}, 0);
    ef_tune_family_tell(f, &records, ef_tune_points_take(&f->points, first, NULL), INFINITY, NULL, false);
    ef_tune_family_tell(f, &records, ef_tune_points_take(&f->points, second, NULL), 10, NULL, false);
    double sum = 0;
    assert_int_equal(records.list.count, 2);
    for (uint32_t i = 0; i < 2; i++) {
        assert_int_equal(records.list.at[i]->points.elites, 1);
        assert_true(ef_tune_points_best(&records.list.at[i]->points) > 0);
        sum += ef_tune_points_best(&records.list.at[i]->points);
    }
    assert_float_equal(sum, 10, 1e-9);
    ef_tune_records_free(&records);
    ef_tune_family_free(f);
}

/* ---- schedules with costs ---- */

typedef struct {
    double least[2]; /* cost of kernel 0 and 1 at their best */
} cost_table;

/* Two kernels of two parameters of 12 values; what they need of memory grows with the second one. */
static double table_cost(const void *user, uint32_t kernel, const uint32_t *choice, double *room)
{
    const cost_table *t = user;
    const uint32_t *own = choice + 2 * kernel;
    *room = own[1] / 10.0;
    return *room > 1 ? EF_TUNE_NEVER * *room : t->least[kernel] + fabs((double)own[0] - 8) + 11 - own[1];
}

static void add_costed(ef_tuner *tuner, const cost_table *table, uint64_t first, uint64_t second)
{
    static const uint32_t values[4] = {12, 12, 12, 12}, owner[4] = {0, 0, 1, 1}, start[4] = {8, 10, 8, 10};
    static const bool uses[8] = {false};
    static const uint64_t key[4] = {0};
    ef_tuner_add(tuner, &(ef_tune_space){.params = 4,
                                         .values = values,
                                         .owner = owner,
                                         .start = start,
                                         .kernels = 2,
                                         .identity = (const uint64_t[]){first, second},
                                         .kernel_estimate = table->least,
                                         .uses = uses,
                                         .key = key,
                                         .cost = table_cost,
                                         .user = table});
}

/* A kernel that is known to have failed is changed alone: the others' schedules, which nothing was heard of, are tried
 * with another one of it; and one that had no room gives way to what needs less. So it is when a run is resumed. */
static void test_blamed(void **state)
{
    static const cost_table table = {{10, 10}};
    ef_tune_point point;
    (void)state;
    ef_tuner *tuner = ef_tuner_new(1), *resumed = ef_tuner_new(2);
    add_costed(tuner, &table, 1, 2);
    add_costed(resumed, &table, 1, 2);
    assert_int_equal(ef_tuner_ask(tuner, &point), EF_ASK_POINT);
    uint32_t first[4], failed = point.choice[3];
    memcpy(first, point.choice, sizeof first);
    ef_tuner_fail(tuner, point.ticket, 1, true);
    assert_true(ef_tuner_known_failure(resumed, 0, point.choice, 1, true));
    for (int i = 0; i < 4; i++) {
        assert_int_equal(ef_tuner_ask(tuner, &point), EF_ASK_POINT);
        if (i == 0)
            assert_memory_equal(point.choice, first, 2 * sizeof *first);
        assert_memory_not_equal(point.choice + 2, first + 2, 2 * sizeof *first);
        assert_true(point.choice[3] < failed);
        ef_tuner_fail(tuner, point.ticket, 1, true);
        assert_true(ef_tuner_known_failure(resumed, 0, point.choice, 1, true));
        failed = point.choice[3];
    }
    assert_int_equal(ef_tuner_left(tuner), 1);
    assert_int_equal(ef_tuner_left(resumed), 1);
    /* It never worked: but no other family is there. */
    assert_int_equal(ef_tuner_ask(tuner, &point), EF_ASK_POINT);
    assert_int_equal(ef_tuner_ask(resumed, &point), EF_ASK_POINT);
    assert_memory_equal(point.choice, first, 2 * sizeof *first);
    assert_true(point.choice[3] < failed);
    ef_tuner_free(tuner);
    ef_tuner_free(resumed);
}

/* A family's kernels become others while results are awaited: those are of the new ones. The old ones, of which another
 * family has one, wait for nothing, may be asked again, and are judged by that family. */
static void test_changed_while_asked(void **state)
{
    static const cost_table wide = {{99, 99}}, narrow = {{10, 10}};
    static const uint32_t values[4] = {12, 12, 12, 12}, owner[4] = {0, 0, 1, 1}, start[4] = {8, 10, 8, 10};
    static const bool uses[8] = {false};
    static const uint64_t key[4] = {0}, identity[2][2] = {{1, 2}, {3, 2}}, changed[2] = {11, 12};
    static const double estimate[2] = {10, 10};
    (void)state;
    for (int late = 0; late < 2; late++) { /* the other one has its first schedule before or after */
        ef_tune_records records;
        ef_tune_family *f[2];
        ef_rng rng = {1};
        ef_tune_records_init(&records);
        for (uint32_t i = 0; i < 2; i++)
            f[i] = ef_tune_family_new(&(ef_tune_space){.params = 4,
                                                       .values = values,
                                                       .owner = owner,
                                                       .start = start,
                                                       .kernels = 2,
                                                       .identity = identity[i],
                                                       .kernel_estimate = estimate,
                                                       .uses = uses,
                                                       .key = key,
                                                       .cost = table_cost,
                                                       .user = i ? &narrow : &wide},
                                      i);
        uint32_t point = ef_tune_assemble(f[0], &records, &rng);
        const ef_tune_kernel *shared = records.list.at[f[0]->record[1]];
        const ef_tune_time *time = &shared->points.time.at[f[0]->point[1]];
        assert_int_equal(time->waiting, 1);
        if (!late)
            ef_tune_family_survey(f[1], &records);
        assert_ptr_equal(shared->judge.user, &wide);
        ef_tune_family_change_kernels(f[0], &records, changed, &point, 1);
        ef_tune_family_judge(f[0], &records);
        ef_tune_family_judge(f[1], &records);
        if (late)
            ef_tune_family_survey(f[1], &records);
        assert_int_equal(time->waiting, 0);
        assert_true(time->open);
        assert_ptr_equal(shared->judge.user, &narrow);
        assert_non_null(shared->judge.cost);
        const ef_tune_kernel *own = records.list.at[f[0]->record[1]];
        assert_ptr_equal(own->judge.user, &wide);
        assert_int_equal(own->points.time.at[0].waiting, 1);
        ef_tune_family_tell(f[0], &records, point, 30, (const double[]){15, 15}, true);
        assert_int_equal(own->points.time.at[0].waiting, 0);
        assert_true(own->points.elites == 1 && shared->points.elites == 0);
        for (int i = 0; i < 2; i++)
            ef_tune_family_free(f[i]);
        ef_tune_records_free(&records);
    }
}

/* Equal kernels of two families are one, unless times of the one family's are of another kind. */
static void test_hiding_families(void **state)
{
    static const cost_table table = {{10, 10}};
    static const uint32_t values[4] = {12, 12, 12, 12}, owner[4] = {0, 0, 1, 1}, start[4] = {8, 10, 8, 10};
    static const bool uses[8] = {false};
    static const uint64_t key[4] = {0}, identity[2] = {1, 2};
    static const double estimate[2] = {10, 10};
    (void)state;
    for (int hiding = 0; hiding < 2; hiding++) {
        ef_tune_records records;
        ef_rng rng = {1};
        ef_tune_records_init(&records);
        for (uint32_t i = 0; i < 2; i++) {
            ef_tune_family *f = ef_tune_family_new(&(ef_tune_space){.params = 4,
                                                                    .values = values,
                                                                    .owner = owner,
                                                                    .start = start,
                                                                    .kernels = 2,
                                                                    .identity = identity,
                                                                    .kernel_estimate = estimate,
                                                                    .uses = uses,
                                                                    .key = key,
                                                                    .hiding = hiding && i,
                                                                    .cost = table_cost,
                                                                    .user = &table},
                                                   i);
            ef_tune_assemble(f, &records, &rng);
            ef_tune_family_free(f);
        }
        assert_int_equal(records.list.count, hiding ? 4 : 2);
        ef_tune_records_free(&records);
    }
}

/* A family of a kernel that never compiles comes after the others, though it promises more. */
static void test_broken_kernel(void **state)
{
    static const cost_table good = {{20, 20}}, better = {{2, 20}};
    uint32_t asked = 0;
    ef_tune_point point;
    (void)state;
    ef_tuner *tuner = ef_tuner_new(1);
    add_costed(tuner, &good, 1, 2);
    add_costed(tuner, &better, 3, 2);
    for (int i = 0; i < 60; i++) {
        double us[2] = {22, 22}, room;
        assert_int_equal(ef_tuner_ask(tuner, &point), EF_ASK_POINT);
        asked += point.family == 1;
        for (uint32_t k = 0; k < 2; k++)
            us[k] = table_cost(&good, k, point.choice, &room);
        if (point.family == 1)
            ef_tuner_fail(tuner, point.ticket, 0, false);
        else
            ef_tuner_tell(tuner, point.ticket, us[0] + us[1], us);
    }
    assert_in_range(asked, 1, 4);
    ef_tuner_free(tuner);
}

static double tiling_cost(const void *user, uint32_t kernel, const uint32_t *choice, double *room)
{
    (void)user;
    (void)kernel;
    *room = 0.5;
    return 10 + fabs((double)choice[0] - 5) + fabs((double)choice[1] - 5);
}

/* What costs know nothing of is not gone through before other tilings are tried, which cost a little more. */
static void test_neutral_parameters(void **state)
{
    static const uint32_t values[5] = {10, 10, 5, 5, 8}, owner[5] = {0}, start[5] = {5, 5, 0, 0, 0};
    static const bool uses[5] = {false};
    static const uint64_t key[5] = {0};
    bool seen[100] = {false};
    uint32_t tilings = 0;
    ef_tune_point point;
    (void)state;
    ef_tuner *tuner = ef_tuner_new(1);
    ef_tuner_add(tuner, &(ef_tune_space){.params = 5,
                                         .values = values,
                                         .owner = owner,
                                         .start = start,
                                         .kernels = 1,
                                         .identity = (const uint64_t[]){1},
                                         .kernel_estimate = (const double[]){10},
                                         .uses = uses,
                                         .key = key,
                                         .cost = tiling_cost});
    for (int i = 0; i < 30; i++) {
        double room;
        assert_int_equal(ef_tuner_ask(tuner, &point), EF_ASK_POINT);
        bool *tiling = &seen[10 * point.choice[0] + point.choice[1]];
        tilings += !*tiling;
        *tiling = true;
        double us = tiling_cost(NULL, 0, point.choice, &room);
        ef_tuner_tell(tuner, point.ticket, us, &us);
    }
    assert_in_range(tilings, 5, 28);
    ef_tuner_free(tuner);
}

/* A family is not given up because a kernel's first schedules are far slower than they should be: others of it are
 * tried. */
static void test_freak_schedules(void **state)
{
    static const cost_table good = {{20, 20}}, better = {{2, 20}};
    ef_tune_point point;
    double best = INFINITY;
    uint32_t asked = 0;
    (void)state;
    ef_tuner *tuner = ef_tuner_new(1);
    add_costed(tuner, &good, 1, 2);
    add_costed(tuner, &better, 3, 2);
    for (int i = 0; i < 60; i++) {
        double us[2], room;
        assert_int_equal(ef_tuner_ask(tuner, &point), EF_ASK_POINT);
        for (uint32_t k = 0; k < 2; k++)
            us[k] = table_cost(point.family ? &better : &good, k, point.choice, &room);
        if (point.family == 1 && point.choice[1] > 8) /* what costs least is tried first */
            us[0] = 450;
        asked += point.family == 1;
        best = fmin(best, us[0] + us[1]);
        ef_tuner_tell(tuner, point.ticket, us[0] + us[1], us);
    }
    assert_true(asked > 20 && best < 30);
    ef_tuner_free(tuner);
}

/* What shapes buffers makes another kernel of each, but one that is broken in several shapes is broken. */
static void test_broken_in_every_shape(void **state)
{
    static const cost_table good = {{20, 20}};
    static const uint32_t values[3] = {12, 12, 40}, owner[3] = {0, 0, NONE}, start[3] = {8, 10, 20};
    static const uint64_t key[3] = {0, 0, 7};
    static const bool uses[3] = {false, false, true};
    uint32_t asked = 0;
    ef_tune_point point;
    (void)state;
    ef_tuner *tuner = ef_tuner_new(1);
    add_costed(tuner, &good, 1, 2);
    ef_tuner_add(tuner, &(ef_tune_space){.params = 3,
                                         .values = values,
                                         .owner = owner,
                                         .start = start,
                                         .kernels = 1,
                                         .identity = (const uint64_t[]){3},
                                         .kernel_estimate = (const double[]){2},
                                         .uses = uses,
                                         .key = key,
                                         .cost = table_cost,
                                         .user = &(const cost_table){{2, 2}}});
    for (int i = 0; i < 100; i++) {
        assert_int_equal(ef_tuner_ask(tuner, &point), EF_ASK_POINT);
        asked += point.family == 1;
        if (point.family == 1)
            ef_tuner_fail(tuner, point.ticket, 0, false);
        else
            ef_tuner_tell(tuner, point.ticket, 50, (const double[]){25, 25});
    }
    assert_in_range(asked, 1, 8);
    ef_tuner_free(tuner);
}

/* Nothing is asked for which there is no room, and asks ahead of all results go to every family that may win. */
static void test_asks_ahead(void **state)
{
    static const cost_table table[3] = {{{10, 10}}, {{10.2, 10.2}}, {{9.8, 9.8}}};
    uint32_t asked[3] = {0};
    ef_tune_point point;
    (void)state;
    ef_tuner *tuner = ef_tuner_new(1);
    for (uint32_t f = 0; f < 3; f++)
        add_costed(tuner, &table[f], 1 + 2 * f, 2 + 2 * f);
    for (uint32_t i = 0; i < 19; i++) {
        assert_int_equal(ef_tuner_ask(tuner, &point), EF_ASK_POINT);
        asked[point.family]++;
        assert_true(point.choice[1] <= 10 && point.choice[3] <= 10);
    }
    for (uint32_t f = 0; f < 3; f++)
        assert_true(asked[f] >= 4);
    ef_tuner_free(tuner);
}

/* Kernels whose times depend on one parameter, and another one of which whole schedules are faster the more like its
 * neighbours' it is: one value is the best for all, another for the last. No kernel's own time tells. */
enum { CHAIN = 6 };

static double chained(const uint32_t *x, double *kernel_us)
{
    double sum = 0;
    for (uint32_t k = 0; k < CHAIN; k++) {
        kernel_us[k] = 10 + fabs((double)x[2 * k] - (double)(k + 2));
        sum += kernel_us[k];
    }
    for (uint32_t k = 0; k < CHAIN; k++) {
        uint32_t wanted = k + 1 == CHAIN ? 1 : 3;
        sum += x[2 * k + 1] == wanted ? 0 : 2;
    }
    return sum;
}

/* `all`: how many measurements can be afforded. */
static double play_chained(bool joint, uint32_t all)
{
    uint32_t values[2 * CHAIN], owner[2 * CHAIN], start[2 * CHAIN] = {0};
    uint64_t identity[CHAIN];
    bool is_joint[2 * CHAIN], uses[2 * CHAIN * CHAIN] = {0};
    double estimate[CHAIN], kernel_us[CHAIN], us = INFINITY;
    for (uint32_t k = 0; k < CHAIN; k++) {
        identity[k] = k + 1;
        estimate[k] = 10;
        for (uint32_t i = 2 * k; i < 2 * k + 2; i++) {
            values[i] = i % 2 ? 5 : 12;
            owner[i] = k;
            is_joint[i] = joint && i % 2;
        }
    }
    ef_tuner *tuner = ef_tuner_new(3);
    ef_tuner_add(tuner, &(ef_tune_space){.params = 2 * CHAIN,
                                         .values = values,
                                         .owner = owner,
                                         .start = start,
                                         .estimate = 60,
                                         .kernels = CHAIN,
                                         .identity = identity,
                                         .kernel_estimate = estimate,
                                         .uses = uses,
                                         .joint = is_joint});
    ef_tune_point point;
    for (uint32_t i = 0; i < all && ef_tuner_ask(tuner, &point) == EF_ASK_POINT; i++) {
        ef_tuner_expect(tuner, all - i - 1);
        us = chained(point.choice, kernel_us);
        ef_tuner_tell(tuner, point.ticket, us, kernel_us);
    }
    assert_true(ef_tuner_best(tuner, &point, &us));
    ef_tuner_free(tuner);
    return us;
}

static void test_joint_parameters(void **state)
{
    (void)state;
    double joint = play_chained(true, 160), alone = play_chained(false, 160);
    assert_true(joint < 60 + 2.5); /* 60 is the least */
    assert_true(alone > joint + 2.5);
    /* Nor does it end with them untried because nothing else got better for long. */
    assert_true(play_chained(true, 100000) == 60);
}

/* Steps of which each alone is less than noise. */
static void test_small_steps_are_progress(void **state)
{
    (void)state;
    static const uint32_t values[] = {4000}, owner[] = {0}, start[] = {0};
    ef_tuner *tuner = ef_tuner_new(5);
    ef_tuner_add(tuner, &(ef_tune_space){.params = 1, .values = values, .owner = owner, .start = start, .estimate = 1});
    ef_tune_point point;
    double us = 1000;
    for (uint32_t i = 0; i < 1500; i++) {
        assert_int_equal(ef_tuner_ask(tuner, &point), EF_ASK_POINT);
        ef_tuner_tell(tuner, point.ticket, us, NULL);
        us *= 0.9995;
    }
    ef_tuner_free(tuner);
}

/* The best schedule of each kernel together is among what is measured at last, though it was never measured. */
static void test_finalists(void **state)
{
    static const cost_table table = {{10, 10}};
    static const uint32_t one[4] = {8, 10, 1, 1}, other[4] = {1, 1, 8, 10}, both[4] = {8, 10, 8, 10};
    ef_tune_point point[3];
    double us[3];
    (void)state;
    ef_tuner *tuner = ef_tuner_new(1);
    add_costed(tuner, &table, 1, 2);
    assert_int_equal(ef_tuner_finalists(tuner, 3, point, us), 0);
    ef_tuner_known(tuner, 0, one, 32, (const double[]){10, 20});
    ef_tuner_known(tuner, 0, other, 33, (const double[]){21, 10});
    assert_int_equal(ef_tuner_finalists(tuner, 3, point, us), 3);
    assert_memory_equal(point[0].choice, both, sizeof both);
    assert_in_range((uint64_t)us[0], 20, 24);
    assert_memory_equal(point[1].choice, one, sizeof one);
    assert_true(ef_tuner_best(tuner, point, us) && us[0] == 32);
    assert_int_equal(ef_tuner_finalists(tuner, 2, point, us), 2);
    ef_tuner_known(tuner, 0, both, INFINITY, NULL);
    assert_int_equal(ef_tuner_finalists(tuner, 3, point, us), 2);
    ef_tuner_free(tuner);
}

/* Families that promise more than they keep do not keep what was measured from being measured once more. */
static void test_promises_leave_room(void **state)
{
    static const cost_table table = {{10, 10}};
    static const uint32_t one[4] = {8, 10, 1, 1}, other[4] = {1, 1, 8, 10}, good[4] = {8, 10, 8, 10};
    ef_tune_point point[4];
    double us[4];
    bool there = false;
    (void)state;
    ef_tuner *tuner = ef_tuner_new(1);
    for (uint32_t f = 0; f < 6; f++)
        add_costed(tuner, &table, 1 + 2 * f, 2 + 2 * f);
    for (uint32_t f = 0; f < 5; f++) {
        ef_tuner_known(tuner, f, one, 32, (const double[]){1, 31});
        ef_tuner_known(tuner, f, other, 33, (const double[]){32, 1});
    }
    ef_tuner_known(tuner, 5, good, 20, (const double[]){10, 10});
    uint32_t count = ef_tuner_finalists(tuner, 4, point, us);
    for (uint32_t i = 0; i < count; i++)
        there = there || point[i].family == 5;
    assert_true(count == 4 && there && point[0].family != 5);
    ef_tuner_free(tuner);
}

static void test_known_results(void **state)
{
    uint32_t known[6] = {3, 9, 0, 11, 5, 7}, foreign[6] = {12, 0, 0, 0, 0, 0};
    ef_tune_point point;
    double us;
    (void)state;
    ef_tuner *tuner = ef_tuner_new(1);
    add(tuner, &one_kernel);
    assert_false(ef_tuner_known(tuner, 0, foreign, 1, NULL));
    assert_true(ef_tuner_known(tuner, 0, known, 100, NULL));
    assert_true(ef_tuner_known(tuner, 0, one_kernel.start, INFINITY, NULL));
    assert_true(ef_tuner_best(tuner, &point, &us) && us == 100 && memcmp(point.choice, known, sizeof known) == 0);
    for (int i = 0; i < 100 && ef_tuner_ask(tuner, &point) == EF_ASK_POINT; i++) {
        assert_memory_not_equal(point.choice, known, sizeof known);
        assert_memory_not_equal(point.choice, one_kernel.start, sizeof known);
        ef_tuner_tell(tuner, point.ticket, bowl(0, point.choice), NULL);
        ef_tuner_tell(tuner, point.ticket, 1, NULL); /* a second answer counts for nothing */
    }
    assert_true(ef_tuner_best(tuner, &point, &us) && us == 100);
    ef_tuner_free(tuner);
}

static void test_deterministic(void **state)
{
    ef_tuner *a = ef_tuner_new(5), *b = ef_tuner_new(5);
    (void)state;
    add(a, &three_kernels), add(b, &three_kernels);
    for (int i = 0; i < 200; i++) {
        ef_tune_point p, q;
        ef_ask ask = ef_tuner_ask(a, &p);
        assert_int_equal(ef_tuner_ask(b, &q), ask);
        if (ask != EF_ASK_POINT)
            break;
        assert_memory_equal(p.choice, q.choice, 10 * sizeof *p.choice);
        ef_tuner_tell(a, p.ticket, pipeline(0, p.choice), NULL);
        ef_tuner_tell(b, q.ticket, pipeline(0, q.choice), NULL);
    }
    ef_tuner_free(a), ef_tuner_free(b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_separable),
        cmocka_unit_test(test_coupled),
        cmocka_unit_test(test_several_kernels),
        cmocka_unit_test(test_failures_and_late_answers),
        cmocka_unit_test(test_halving),
        cmocka_unit_test(test_exhaustion),
        cmocka_unit_test(test_patience),
        cmocka_unit_test(test_known_results),
        cmocka_unit_test(test_deterministic),
        cmocka_unit_test(test_bad_start),
        cmocka_unit_test(test_shared_kernels),
        cmocka_unit_test(test_resumes),
        cmocka_unit_test(test_dead_family),
        cmocka_unit_test(test_all_dead),
        cmocka_unit_test(test_blamed_in_vain),
        cmocka_unit_test(test_renewed),
        cmocka_unit_test(test_changed_while_asked),
        cmocka_unit_test(test_blamed),
        cmocka_unit_test(test_broken_kernel),
        cmocka_unit_test(test_broken_in_every_shape),
        cmocka_unit_test(test_freak_schedules),
        cmocka_unit_test(test_hiding_families),
        cmocka_unit_test(test_neutral_parameters),
        cmocka_unit_test(test_asks_ahead),
        cmocka_unit_test(test_joint_parameters),
        cmocka_unit_test(test_small_steps_are_progress),
        cmocka_unit_test(test_finalists),
        cmocka_unit_test(test_promises_leave_room),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
