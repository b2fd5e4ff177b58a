/* The tuner against synthetic landscapes: it finds what is best within a budget, asks nothing twice, and takes failures
 * and late answers as they come. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "support/hash.h"
#include "support/rng.h"
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
    ef_tuner_add(tuner, &(ef_tune_space){s->params, s->values, s->owner, s->start, s->estimate});
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
            ef_tuner_tell(tuner, queue[0].ticket, cost(queue[0].family, queue[0].choice));
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
    double start = family == 13 ? 170 : 120 + 4 * family, gain = family == 13 ? 20 : 3;
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
    assert_true(best <= 170 - 20 * 22);
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

static void test_known_results(void **state)
{
    uint32_t known[6] = {3, 9, 0, 11, 5, 7}, foreign[6] = {12, 0, 0, 0, 0, 0};
    ef_tune_point point;
    double us;
    (void)state;
    ef_tuner *tuner = ef_tuner_new(1);
    add(tuner, &one_kernel);
    assert_false(ef_tuner_known(tuner, 0, foreign, 1));
    assert_true(ef_tuner_known(tuner, 0, known, 100));
    assert_true(ef_tuner_known(tuner, 0, one_kernel.start, INFINITY));
    assert_true(ef_tuner_best(tuner, &point, &us) && us == 100 && memcmp(point.choice, known, sizeof known) == 0);
    for (int i = 0; i < 100 && ef_tuner_ask(tuner, &point) == EF_ASK_POINT; i++) {
        assert_memory_not_equal(point.choice, known, sizeof known);
        assert_memory_not_equal(point.choice, one_kernel.start, sizeof known);
        ef_tuner_tell(tuner, point.ticket, bowl(0, point.choice));
        ef_tuner_tell(tuner, point.ticket, 1); /* a second answer counts for nothing */
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
        ef_tuner_tell(a, p.ticket, pipeline(0, p.choice));
        ef_tuner_tell(b, q.ticket, pipeline(0, q.choice));
    }
    ef_tuner_free(a), ef_tuner_free(b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_separable),       cmocka_unit_test(test_coupled),
        cmocka_unit_test(test_several_kernels), cmocka_unit_test(test_failures_and_late_answers),
        cmocka_unit_test(test_halving),         cmocka_unit_test(test_exhaustion),
        cmocka_unit_test(test_patience),        cmocka_unit_test(test_known_results),
        cmocka_unit_test(test_deterministic),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
