/* The tuner against a simulated GPU: how good a schedule it finds in so many seconds of measuring. Families, kernels
 * and domains are a program's own; times are made up.
 *
 *     build/bench/bench_tuner FILE.ef TARGET [SEEDS [FAMILIES [ERROR]]]
 *
 * A kernel takes what cost.h says times a factor of its own (a normal deviate of FACTOR in the logarithm), times one
 * that grows, differently for each kernel, with the distance of each parameter from a place drawn for it (BIAS: what
 * the model is wrong about systematically), times one of each schedule (SCATTER); all three times ERROR. What costs
 * know little of, as the order of blocks, makes less of a difference (NEUTRAL: kernels that were measured on an H200
 * differed by 3 to 5 % in it; the tuner assumes the same). So the best schedule by cost is not the best. Some kernels
 * never compile; one fails where it needs more than a part, drawn for it, of what there is of registers or shared
 * memory; one in WRONG schedules is wrong. All of that depends on the kernel, the schedule and the seed alone.
 *
 * Time goes by as in a run: COMPILERS compile COMPILE_S a kernel that was not compiled before, one candidate after the
 * other is measured, MEASURE_S each, and so many more are asked ahead (flight.c). At the end the best few are compared
 * (optimize.c). Printed is that time, in microseconds, after so many seconds: the geometric mean over seeds. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/deepstack.h"
#include "target/cost.h"
#include "target/room.h"
#include "tune/families.h"

#define SEARCH_S 5.0
#define FAMILIES 12u
#define SEEDS 8u
#define FACTOR 0.25
#define BIAS 0.3
#define SCATTER 0.1
#define NEUTRAL 0.3
#define NOISE 0.01 /* of a measurement */
#define WRONG 0.02
#define BROKEN 0.04 /* of kernels */
#define LEAST_ROOM 0.6
#define MOST_ROOM 1.4
#define OVERHEAD_US 1.0 /* of a candidate, beside its kernels */
#define COMPILERS 16u
#define AHEAD 3u
#define COMPILE_S 0.3
#define MEASURE_S 0.1
#define FINALISTS 4u

static const double moment[] = {6, 9, 12, 18, 30}; /* seconds of measuring */
#define MOMENTS (sizeof moment / sizeof *moment)

typedef struct {
    const ef_family *f;
    ef_cost **cost; /* by kernel */
} sim_family;

typedef struct {
    const ef_families *families;
    sim_family *list;
    uint64_t seed;
    double error;
    ef_tuner *tuner;
    ef_intern *compiled;
    double compiler[COMPILERS], measurer; /* free from then on */
    uint64_t measured, failed;
} simulation;

/* ---- the device ---- */

static double deviate(uint64_t hash)
{
    double u = (double)(ef_hash(&(uint64_t[]){hash, 1}, 16) >> 11) / 9007199254740992.0,
           v = (double)(ef_hash(&(uint64_t[]){hash, 2}, 16) >> 11) / 9007199254740992.0;
    return sqrt(-2 * log(u + 1e-16)) * cos(6.283185307179586 * v);
}

static double uniform(uint64_t hash)
{
    return (double)(ef_hash(&(uint64_t[]){hash, 3}, 16) >> 11) / 9007199254740992.0;
}

static bool belongs(const ef_family *f, uint32_t kernel, uint32_t param)
{
    return f->owner[param] == kernel || f->uses[(size_t)kernel * f->graph->params.count + param];
}

static bool is_neutral(const ef_family *f, uint32_t param)
{
    ef_param_kind kind = f->graph->params.at[param].kind;
    return kind == EF_PARAM_LOAD || kind == EF_PARAM_GROUP || kind == EF_PARAM_ORDER || kind == EF_PARAM_PERSIST ||
           kind == EF_PARAM_OVERLAP;
}

/* Of a kernel and its schedule, or of what costs know of it. */
static uint64_t schedule_hash(const simulation *s, const ef_family *f, uint32_t kernel, const uint32_t *choice,
                              bool all)
{
    uint64_t hash = ef_hash(&(uint64_t[]){f->identity[kernel], s->seed}, 16);
    for (uint32_t i = 0; i < f->graph->params.count; i++)
        if (belongs(f, kernel, i) && (all || !is_neutral(f, i)))
            hash = ef_hash(&(uint64_t[]){hash, choice[i]}, 16);
    return hash;
}

typedef enum { FINE, NO_ROOM, BREAKS, IS_WRONG } fate;

static fate fate_of(const simulation *s, const sim_family *sf, uint32_t kernel, const uint32_t *choice,
                    const ef_schedule *schedule)
{
    const ef_family *f = sf->f;
    uint64_t own = ef_hash(&(uint64_t[]){f->identity[kernel], s->seed}, 16),
             hash = schedule_hash(s, f, kernel, choice, true);
    ef_room room = ef_room_of(f->graph, schedule, kernel, f->target);
    double most = LEAST_ROOM + (MOST_ROOM - LEAST_ROOM) * uniform(own + 7);
    if (f != &s->families->list.at[0] && uniform(own + 8) < BROKEN)
        return BREAKS;
    if (ef_room_excess(&room, f->target) > fmin(most, 1))
        return NO_ROOM;
    return uniform(hash + 9) < WRONG ? IS_WRONG : FINE;
}

static double kernel_us(const simulation *s, const sim_family *sf, uint32_t kernel, const uint32_t *choice,
                        const ef_schedule *schedule)
{
    const ef_family *f = sf->f;
    uint64_t own = ef_hash(&(uint64_t[]){f->identity[kernel], s->seed}, 16);
    double factor = FACTOR * deviate(own) + SCATTER * deviate(schedule_hash(s, f, kernel, choice, false)) +
                    NEUTRAL * SCATTER * deviate(schedule_hash(s, f, kernel, choice, true));
    for (uint32_t i = 0, number = 0; i < f->graph->params.count; i++) {
        if (!belongs(f, kernel, i) || f->values[i] < 2)
            continue;
        uint64_t param = own + 100 + 2 * number++;
        double away = (double)choice[i] / (f->values[i] - 1) - uniform(param);
        factor += (is_neutral(f, i) ? NEUTRAL : 1) * BIAS * fabs(deviate(param + 1)) * 2 * away * away;
    }
    return ef_cost_us(sf->cost[kernel], schedule, NULL) * exp(s->error * factor);
}

/* Microseconds of a whole schedule; INFINITY when it fails: of which kernel, UINT32_MAX: not known, and why. */
static double measure(const simulation *s, uint32_t family, const uint32_t *choice, double *us, uint32_t *guilty,
                      fate *why)
{
    const sim_family *sf = &s->list[family];
    ef_schedule schedule = ef_family_schedule(sf->f, choice);
    double sum = OVERHEAD_US;
    *guilty = UINT32_MAX;
    *why = FINE;
    for (uint32_t k = 0; k < sf->f->graph->kernels.count && *guilty == UINT32_MAX; k++) {
        fate what = fate_of(s, sf, k, choice, &schedule);
        *guilty = what == NO_ROOM || what == BREAKS ? k : UINT32_MAX;
        *why = what == FINE ? *why : what;
        us[k] = what == FINE ? kernel_us(s, sf, k, choice, &schedule) : 0;
        sum += us[k];
    }
    ef_schedule_free(&schedule);
    return *why == FINE ? sum : INFINITY;
}

/* ---- a run ---- */

typedef struct {
    ef_tune_point point;
    double at; /* it lands */
    double us, *kernel_us;
    uint32_t guilty;
    fate why;
} trip;

static trip launch(simulation *s, const ef_tune_point *point, double now)
{
    const ef_family *f = s->list[point->family].f;
    uint32_t kernels = f->graph->kernels.count, fresh_kernels = 0, first = 0;
    trip t = {.point = *point, .kernel_us = ef_xcalloc(kernels + 1, sizeof(double))};
    t.us = measure(s, point->family, point->choice, t.kernel_us, &t.guilty, &t.why);
    bool compiles = t.guilty == UINT32_MAX;
    for (uint32_t k = 0; k < kernels && (compiles || k <= t.guilty); k++) {
        uint64_t hash = schedule_hash(s, f, k, point->choice, true);
        int fresh;
        ef_intern_put(s->compiled, &hash, sizeof hash, &fresh);
        fresh_kernels += (uint32_t)fresh;
    }
    for (uint32_t i = 1; i < COMPILERS; i++)
        first = s->compiler[i] < s->compiler[first] ? i : first;
    s->compiler[first] = fmax(s->compiler[first], now) + COMPILE_S * fresh_kernels;
    t.at = s->compiler[first];
    if (compiles)
        t.at = s->measurer = fmax(s->measurer, t.at) + MEASURE_S;
    return t;
}

static void tell(simulation *s, const trip *t)
{
    uint64_t hash = ef_hash(&(uint64_t[]){t->point.ticket, s->seed}, 16);
    double noise = 1 + NOISE * deviate(hash);
    s->measured += isfinite(t->us);
    s->failed += !isfinite(t->us);
    for (uint32_t k = 0; k < s->list[t->point.family].f->graph->kernels.count; k++)
        t->kernel_us[k] *= 1 + NOISE * deviate(hash + k + 1);
    if (isfinite(t->us))
        ef_tuner_tell(s->tuner, t->point.ticket, t->us * noise, t->kernel_us);
    else
        ef_tuner_fail(s->tuner, t->point.ticket, t->guilty, t->why == NO_ROOM);
}

/* What is found when it ends now. */
static double finish(simulation *s)
{
    ef_tune_point point[FINALISTS];
    double us[FINALISTS], best = INFINITY, times[256];
    uint32_t guilty;
    fate why;
    uint32_t count = ef_tuner_finalists(s->tuner, FINALISTS, point, us);
    for (uint32_t i = 0; i < count; i++)
        best = fmin(best, measure(s, point[i].family, point[i].choice, times, &guilty, &why));
    return best;
}

static void play(simulation *s, double *found, uint64_t *measured)
{
    trip way[COMPILERS + AHEAD];
    uint32_t ahead = 0;
    double now = 0, end = moment[MOMENTS - 1]; /* which it is planned for */
    for (size_t m = 0; m < MOMENTS;) {
        ef_tune_point point;
        while (ahead < COMPILERS + AHEAD && ef_tuner_ask(s->tuner, &point) == EF_ASK_POINT)
            way[ahead++] = launch(s, &point, now);
        uint32_t next = 0;
        for (uint32_t i = 1; i < ahead; i++)
            next = way[i].at < way[next].at ? i : next;
        for (; m < MOMENTS && (!ahead || way[next].at > moment[m]); m++) {
            found[m] = finish(s);
            measured[m] = s->measured;
        }
        if (!ahead)
            break;
        now = way[next].at;
        tell(s, &way[next]);
        free(way[next].kernel_us);
        way[next] = way[--ahead];
        if (s->measured >= 4)
            ef_tuner_expect(s->tuner, (uint64_t)(fmax(end - now, 0) * (double)s->measured / now));
    }
    for (uint32_t i = 0; i < ahead; i++)
        free(way[i].kernel_us);
}

static simulation simulation_new(const ef_families *families, sim_family *list, uint64_t seed)
{
    simulation s = {.families = families, .list = list, .seed = seed, .tuner = ef_tuner_new(seed)};
    s.compiled = ef_intern_new();
    for (uint32_t i = 0; i < families->list.count; i++) {
        ef_tune_space space = ef_family_space(&families->list.at[i]);
        ef_tuner_add(s.tuner, &space);
    }
    return s;
}

/* ---- programs ---- */

static sim_family *costs_of(const ef_families *families)
{
    sim_family *list = ef_xcalloc(families->list.count + 1, sizeof *list);
    for (uint32_t i = 0; i < families->list.count; i++) {
        const ef_family *f = &families->list.at[i];
        list[i] = (sim_family){f, ef_xcalloc(f->graph->kernels.count + 1, sizeof(ef_cost *))};
        for (uint32_t k = 0; k < f->graph->kernels.count; k++)
            list[i].cost[k] = ef_cost_new(f->graph, k, f->target);
    }
    return list;
}

static void free_costs(sim_family *list, const ef_families *families)
{
    for (uint32_t i = 0; i < families->list.count; i++) {
        for (uint32_t k = 0; k < list[i].f->graph->kernels.count; k++)
            ef_cost_free(list[i].cost[k]);
        free(list[i].cost);
    }
    free(list);
}

typedef struct {
    const char *path;
    const ef_target *target;
    uint32_t seeds, families;
    double error;
    int status;
} job;

static void simulate(const job *j, const ef_families *families)
{
    sim_family *list = costs_of(families);
    double sum[MOMENTS] = {0};
    uint32_t seeds = j->seeds ? j->seeds : 1;
    uint64_t measured[MOMENTS], count[MOMENTS] = {0}, failed = 0;
    for (uint32_t seed = 1; seed <= seeds; seed++) {
        simulation s = simulation_new(families, list, seed);
        double found[MOMENTS];
        s.error = j->error;
        play(&s, found, measured);
        for (size_t m = 0; m < MOMENTS; m++) {
            sum[m] += log(found[m]) / seeds;
            count[m] += measured[m];
        }
        failed += s.failed;
        ef_tuner_free(s.tuner);
        ef_intern_free(s.compiled);
    }
    printf("%s: %" PRIu32 " families;", j->path, families->list.count);
    for (size_t m = 0; m < MOMENTS; m++)
        printf(" %g s: %.1f us (%" PRIu64 ");", moment[m], exp(sum[m]), count[m] / seeds);
    printf(" %" PRIu64 " failed\n", failed / seeds);
    free_costs(list, families);
}

static void run(void *user)
{
    job *j = user;
    ef_diag diag = {0};
    ef_ctx *ctx = ef_ctx_new();
    ef_program *program = ef_program_read(ctx, j->path, &diag);
    ef_families_options options = {.saturation_s = SEARCH_S,
                                   .extraction_s = SEARCH_S,
                                   .keep = j->families,
                                   .backend = EF_BACKEND_TRITON,
                                   .threads = 1,
                                   .target = j->target->name};
    ef_families *families = program ? ef_families_new(program, &options, &diag) : NULL;
    if (families) {
        simulate(j, families);
    } else {
        fprintf(stderr, "bench_tuner: %s\n", diag.text);
        j->status = 1;
    }
    ef_families_free(families);
    ef_program_free(program);
    ef_ctx_free(ctx);
}

int main(int argc, char **argv)
{
    job j = {.path = argc > 1 ? argv[1] : NULL, .seeds = SEEDS, .families = FAMILIES, .error = 1};
    j.target = argc > 2 ? ef_target_named(argv[2]) : NULL;
    j.seeds = argc > 3 ? (uint32_t)strtoul(argv[3], NULL, 10) : SEEDS;
    j.families = argc > 4 ? (uint32_t)strtoul(argv[4], NULL, 10) : FAMILIES;
    j.error = argc > 5 ? strtod(argv[5], NULL) : j.error;
    if (argc < 3 || argc > 6 || !j.target || !j.target->gpu || !j.seeds || !j.families) {
        fprintf(stderr, "usage: bench_tuner FILE.ef GPU [SEEDS [FAMILIES [ERROR]]]\n");
        return 2;
    }
    ef_with_deep_stack(run, &j);
    return j.status;
}
