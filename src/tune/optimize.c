/* Optimising one program: see optimize.h. This file has the course of a run; flight.c has candidates on their way
 * through the pool, optimum.c how the best one is kept. */
#include "tune/optimize.h"

#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "egraph/runner.h"
#include "support/deepstack.h"
#include "support/interrupt.h"
#include "tune/canonical.h"
#include "tune/compiled.h"
#include "tune/flight.h"
#include "tune/optimum.h"
#include "tune/request.h"
#include "tune/work.h"

#define BUDGET_S 300
#define KEEP 64u /* families at most, and at least so many; between them one for … */
#define KEEP_LEAST 24u
#define FAMILY_S 2.5     /* … so many seconds of the budget: each gets several measurements */
#define SEARCH_SHARE 0.2 /* of the budget, for saturation and for extraction, at most */
#define RANK_SHARE 0.05  /* … for lowering and ranking */
#define PREPARE_SHARE 0.45
#define CONFIRM_SHARE 0.1
#define CONFIRM_S 10.0
#define CONFIRM_CALLS 9.0 /* of the best, at least: on every distribution, and timed */
#define DERIVE_S 20.0     /* at most; the work of the search, and some more, should be enough for one thread */
#define DERIVE_TIMES 1.5
#define DERIVE_SHARE 0.15
#define LATE_SHARE 0.1   /* of the budget, by which the end may be late, to end with what is checked … */
#define LATE_S 2.0       /* … and this */
#define SURE_TIMES 1.5   /* what is left is too short by: the estimate goes by no machine, and may be too high */
#define SETTLE_S 2.0     /* for a call of the program as it is, at last, beside … */
#define SETTLE_TIMES 4.0 /* … so many times what the best takes */
#define FINALISTS 4u
#define FINAL_REPEAT 25u
#define TUNE_REPEAT 7u
#define PREPARE_LEAST_S 60.0 /* workers may take that long to start, and to make inputs and references, … */
#define PREPARE_TIMES 2.0    /* … and so many times the budget, … */
#define PREPARE_MOST_S 600.0 /* … but no longer than this */
#define SET_UP_S 30.0        /* and, once they have started, no longer beyond what references should take */

const char *const ef_stage_names[] = {"search", "prepare", "tune", "confirm"};

typedef struct {
    const ef_program *program;
    const ef_device *device;
    ef_pool **pool;
    const ef_optimize_options *options;
    ef_arena *arena;
    ef_diag *diag;
    ef_optimum *out;
    ef_flight *flight;
    ef_families *families;
    ef_tuner *tuner;
    double start, end, searched_s, tuned_at;
    double greeted_at;    /* when the measuring worker was known to have started; 0: not yet */
    double reference_s;   /* that references should take; 0: not known */
    double search_work_s; /* that the search would have taken on one thread */
    ef_trip original;     /* the program as it is, as a candidate; us 0: not measured yet */
    uint64_t tried;       /* other candidates that were measured, or failed, while tuning */
    bool limited;         /* as many were measured as may be */
    char hash[33];
} run;

/* ---- progress ---- */

static void tell(const run *r, ef_stage stage, bool *go_on)
{
    double now = ef_seconds(), best = 0;
    ef_tune_point point;
    ef_progress p = {.stage = stage, .elapsed_s = now - r->start, .left_s = fmax(r->end - now, 0)};
    p.families = r->families ? r->families->list.count : 0;
    p.left = r->tuner ? ef_tuner_left(r->tuner) : 0;
    p.measured = r->flight ? r->flight->measured : 0;
    p.failed = r->flight ? r->flight->failed : 0;
    p.best_us = r->tuner && ef_tuner_best(r->tuner, &point, &best) ? best : 0;
    p.original_us = r->flight ? r->flight->original_us : 0;
    p.floor_us = r->flight ? r->flight->floor_us : 0;
    *go_on = r->options->progress(r->options->user, &p);
}

/* Tells how it stands. False: somebody asked to end. What is only measured as it is, after such an end, ends for
 * EF_ABANDON alone. */
static bool report(run *r, ef_stage stage)
{
    bool go_on = r->options->plain || ef_interrupt_asked() < EF_FINISH;
    if (go_on && r->options->progress)
        tell(r, stage, &go_on);
    r->out->stopped = r->out->stopped || !go_on;
    return go_on && !ef_interrupted();
}

static bool abandoned(const run *r)
{
    return ef_interrupted() && !ef_fail(r->diag, "it was interrupted; what was measured until then is in the store");
}

/* ---- before tuning ---- */

static void resume(run *r)
{
    for (uint32_t i = 0; i < r->families->list.count; i++)
        ef_flight_recall(r->flight, r->families, i, r->tuner);
}

/* The search has a thread of its own: this one serves the workers, which start and make inputs and references
 * meanwhile, and reports. */
typedef struct {
    const run *run;
    const ef_families_options *options;
    ef_families *families;
    ef_diag diag;
    atomic_int ending; /* of the search: an ef_ending */
    atomic_bool done;
} searching;

static void search_deep(void *user)
{
    searching *s = user;
    s->families = ef_families_new(s->run->program, s->options, &s->diag);
}

static void *search_beside(void *user)
{
    searching *s = user;
    ef_interrupt_set((ef_interrupt){.flag = &s->ending, .from = EF_FINISH});
    ef_with_deep_stack(search_deep, s);
    s->done = true;
    return NULL;
}

static void pause_for(double seconds)
{
    nanosleep(&(struct timespec){.tv_nsec = (long)(seconds * 1e9)}, NULL);
}

static bool search(run *r, const ef_families_options *options)
{
    ef_interrupt before = ef_interrupt_get();
    searching s = {.run = r, .options = options};
    pthread_t thread;
    double start = ef_seconds();
    bool beside = pthread_create(&thread, NULL, search_beside, &s) == 0;
    if (!beside)
        search_beside(&s);
    ef_interrupt_set(before);
    while (!s.done) {
        if (r->flight->ready || r->diag->failed)
            pause_for(0.02);
        else
            ef_flight_ready(r->flight, 0.05, r->diag);
        if (r->diag->failed || !report(r, EF_STAGE_SEARCH))
            s.ending = EF_FINISH;
    }
    if (beside)
        pthread_join(thread, NULL);
    r->families = s.families;
    r->searched_s = r->search_work_s = ef_seconds() - start;
    const ef_gathered *gathered = s.families ? s.families->gathered : NULL;
    for (uint32_t i = 0; gathered && i < gathered->searches.count; i++)
        r->search_work_s += gathered->searches.at[i].saturation_s + gathered->searches.at[i].extraction_s;
    r->search_work_s -= gathered ? gathered->seconds : 0;
    if (!s.families)
        return ef_fail(r->diag, "%s", s.diag.text);
    return !r->diag->failed;
}

static uint32_t affordable(double budget)
{
    return (uint32_t)fmin(KEEP, fmax(KEEP_LEAST, budget / FAMILY_S));
}

/* By when it has to end, however late workers were: with what is checked, unless nothing is. */
static double late_end(const run *r)
{
    return r->end + LATE_SHARE * (r->end - r->start) + LATE_S;
}

/* Whether there is time for results to check anything against. It is no use to begin with what takes longer. A region
 * may take more than its share, as long as the module has it: what it was to share with may not need theirs. */
static bool has_time(run *r)
{
    bool shares = r->options->whole_s > 0;
    double budget = shares ? r->options->whole_s : r->end - r->start, left = shares ? r->options->left_s : budget;
    char rest[64] = "";
    r->reference_s = r->device->reference_s ? r->device->reference_s(r->program, r->device) : 0;
    if (r->reference_s <= SURE_TIMES * (left + LATE_SHARE * budget + LATE_S))
        return true;
    if (left < 0.95 * budget)
        snprintf(rest, sizeof rest, ", and %.2g s of it are left", left);
    return ef_fail(r->diag,
                   "a budget of %.3g s is too short for %s: its results in float64, which all others are checked "
                   "against, should take about %.0f s%s",
                   budget, r->program->name, r->reference_s, rest);
}

/* By when workers have to be ready: also those of a region whose references take more than its share. */
static double prepare_end(run *r)
{
    double budget = fmax(r->end - r->start, fmin(r->reference_s, r->options->left_s));
    double end = r->start + fmin(PREPARE_LEAST_S + PREPARE_TIMES * budget, PREPARE_MOST_S);
    if (r->greeted_at <= 0 && ef_pool_hello(*r->pool))
        r->greeted_at = ef_seconds();
    if (r->greeted_at <= 0 || !r->device->reference_s)
        return end;
    return fmin(end, fmax(late_end(r), r->greeted_at + SET_UP_S) + r->reference_s);
}

static bool wait_until_ready(run *r)
{
    while (!abandoned(r) && !ef_flight_ready(r->flight, 0.1, r->diag)) {
        if (r->diag->failed)
            return false;
        if (!report(r, EF_STAGE_PREPARE))
            return ef_fail(r->diag, "stopped before anything was measured");
        if (ef_seconds() > prepare_end(r))
            return ef_fail(r->diag,
                           "%s was not ready to be measured after %.0f s%s: busy processors need a larger budget",
                           r->program->name, ef_seconds() - r->start,
                           ef_pool_hello(*r->pool) ? "" : ", nor had its worker started");
    }
    return !r->diag->failed;
}

static bool prepare(run *r)
{
    double budget = r->end - r->start;
    ef_families_options options = {.saturation_s = SEARCH_SHARE * budget,
                                   .extraction_s = SEARCH_SHARE * budget,
                                   .ranking_s = RANK_SHARE * budget,
                                   .keep = r->options->plain  ? 1
                                           : r->options->keep ? r->options->keep
                                                              : affordable(budget),
                                   .backend = r->device->backend,
                                   .threads = r->device->threads,
                                   .target = r->device->name};
    report(r, EF_STAGE_SEARCH);
    if (!has_time(r))
        return false;
    if (!*r->pool)
        *r->pool = ef_device_pool(r->device, r->options->compilers, r->diag);
    r->flight = *r->pool ? ef_flight_new(r->program, r->device, *r->pool, r->options->seed, PREPARE_SHARE * budget,
                                         fmax(r->end - ef_seconds(), 0.1), r->diag)
                         : NULL;
    if (!r->flight || !search(r, &options))
        return false;
    r->out->families = r->families->list.count;
    r->out->candidates = r->families->candidates;
    r->tuner = ef_tuner_new(r->options->seed);
    for (uint32_t i = 0; i < r->families->list.count; i++) {
        ef_tune_space space = ef_family_space(&r->families->list.at[i]);
        ef_tuner_add(r->tuner, &space);
    }
    if (r->device->measures_original && !r->flight->ready)
        ef_flight_compile(r->flight, r->families, 0, r->families->list.at[0].start);
    ef_tuner_survey(r->tuner); /* now, while workers prepare */
    return wait_until_ready(r);
}

/* ---- tuning ---- */

static bool is_original(const run *r, uint32_t family, const uint32_t *choice)
{
    const ef_family *original = &r->families->list.at[0];
    uint32_t count = original->graph->params.count;
    return family == 0 && (count == 0 || !choice || memcmp(choice, original->start, count * sizeof *choice) == 0);
}

/* How many more measurements fit: by what one took so far. */
static void expect(run *r, double until)
{
    double spent = ef_seconds() - r->flight->ready_at;
    if (r->flight->measured >= 4)
        ef_tuner_expect(r->tuner, (uint64_t)(fmax(until - ef_seconds(), 0) * (double)r->flight->measured / spent));
}

/* The program as it is is a candidate itself, but a call of it takes so long that its time was only estimated. */
static bool original_is_too_slow(const run *r)
{
    return r->flight->estimated && r->device->measures_original;
}

/* Hands out schedules while the workers can take more, but for results that are known at once: those come first. */
static ef_ask launch_more(run *r)
{
    ef_tune_point point;
    while (ef_flight_has_room(r->flight) && r->flight->landed.count == 0) {
        ef_ask ask = ef_tuner_ask(r->tuner, &point);
        if (ask != EF_ASK_POINT)
            return ask;
        if (point.family == 0 && original_is_too_slow(r)) {
            ef_tuner_tell(r->tuner, point.ticket, INFINITY, NULL);
            continue;
        }
        ef_trip trip = {.family = point.family, .choice = point.choice, .ticket = point.ticket, .repeat = TUNE_REPEAT};
        ef_flight_launch(r->flight, r->families, &trip);
    }
    return EF_ASK_POINT;
}

static bool at_limit(const run *r)
{
    uint64_t started = r->flight->measured + r->flight->failed + r->flight->trips.count;
    return r->options->limit && started >= r->options->limit;
}

/* What the confirmation takes: some calls of the best, more where they are short. */
static double confirm_s(const run *r)
{
    double budget = r->end - r->start, best_s = 1e-6 * (r->flight->best.us > 0 ? r->flight->best.us : 0);
    return fmax(fmin(CONFIRM_SHARE * budget, CONFIRM_S), fmin(CONFIRM_CALLS * best_s, budget / 3));
}

static double derive_s(const run *r)
{
    return fmin(DERIVE_TIMES * r->search_work_s, fmin(DERIVE_SHARE * (r->end - r->start), DERIVE_S));
}

/* As long as nothing was measured there is nothing to confirm. */
static double tuned_until(const run *r)
{
    return r->flight->measured ? r->end - derive_s(r) - confirm_s(r) : r->end;
}

/* Tells the tuner of families that were widened. */
static void follow(run *r)
{
    for (uint32_t i = 0; i < r->families->list.count; i++)
        ef_tuner_change_kernels(r->tuner, i, r->families->list.at[i].identity);
}

/* True when the tuner has nothing more to ask. */
static bool tune(run *r)
{
    ef_trip done;
    for (double until;
         until = tuned_until(r), ef_seconds() < until && report(r, EF_STAGE_TUNE) && !ef_flight_broken(r->flight);) {
        r->flight->until = until;
        ef_ask ask = at_limit(r) ? EF_ASK_WAIT : launch_more(r);
        if (r->flight->trips.count == 0 && r->flight->landed.count == 0 && ask != EF_ASK_POINT)
            return ask == EF_ASK_DONE;
        /* One at a time: another sets out as soon as there is room. */
        bool landed = ef_flight_land(r->flight, r->families, 0.1, &done);
        follow(r);
        if (landed) {
            bool original = is_original(r, done.family, done.choice);
            if (isfinite(done.us) && original)
                r->original = done;
            r->tried += !original && !done.late;
            if (isfinite(done.us))
                ef_tuner_tell(r->tuner, done.ticket, done.us, done.kernel_us);
            else
                ef_tuner_fail(r->tuner, done.ticket, done.guilty, done.no_room);
        }
        expect(r, until);
    }
    return false;
}

/* ---- the end ---- */

/* How many distributions the program itself can be checked on: it is the program, and may be slow. */
static int original_checks(const run *r, double seconds)
{
    double calls = 1e-6 * r->flight->original_us > 0 ? seconds / (1e-6 * r->flight->original_us) : EF_CHECK_ALL;
    return calls < 1 ? 1 : calls > EF_CHECK_ALL ? EF_CHECK_ALL : (int)calls;
}

/* Launches those that are to be measured once more, the best first, the program itself last. */
static void launch_finalists(run *r, double seconds)
{
    ef_tune_point point[FINALISTS];
    double us[FINALISTS];
    uint32_t count = r->flight->late ? 0 : ef_tuner_finalists(r->tuner, FINALISTS, point, us), sent = 0;
    for (uint32_t i = 0; i < count; i++) {
        ef_trip trip = {.family = point[i].family,
                        .choice = point[i].choice,
                        .repeat = FINAL_REPEAT,
                        .check = EF_CHECK_ALL,
                        .seconds = seconds / (FINALISTS + 1)};
        /* What takes long is not done again for those that are behind. */
        bool affordable = sent == 0 || 1e-6 * CONFIRM_CALLS * us[i] < seconds / (FINALISTS + 1);
        if (is_original(r, trip.family, trip.choice) || !affordable)
            continue;
        ef_flight_launch(r->flight, r->families, &trip);
        sent++;
    }
    ef_trip original = {.family = 0,
                        .choice = r->families->list.at[0].start,
                        .repeat = FINAL_REPEAT,
                        .check = original_checks(r, seconds / (FINALISTS + 1)),
                        .seconds = seconds / (FINALISTS + 1)};
    /* One that takes long is not called again. */
    if (!original_is_too_slow(r) && !(r->original.us > 0 && 3e-6 * r->original.us > seconds))
        ef_flight_launch(r->flight, r->families, &original);
    ef_flight_end_loose(r->flight);
}

/* Whether it was measured, and is not slower than the program as it is, as far as that was measured. */
static bool stands(const run *r, const ef_trip *trip)
{
    return trip->us > 0 && isfinite(trip->us) && !ef_flight_outdated(r->families, trip) &&
           (!r->device->measures_original || r->flight->estimated || is_original(r, trip->family, trip->choice) ||
            trip->us <= r->flight->original_us);
}

/* What is said of the program as it is was measured in turns with the best, where that was done: so the machine was as
 * busy for the one as for the other. The best must be faster there as well. */
static void compare_in_turns(run *r, ef_trip *best, const ef_trip *original)
{
    if (!r->device->measures_original || !(best->against_us > 0) || is_original(r, best->family, best->choice))
        return;
    if (best->us <= best->against_us)
        r->flight->original_us = best->against_us;
    else if (isfinite(original->us))
        *best = *original;
}

/* What was measured before its family was widened is measured once more. */
static void measure_anew(run *r, ef_trip *trip)
{
    if (!ef_flight_outdated(r->families, trip))
        return;
    ef_flight_launch(r->flight, r->families, trip);
    trip->us = INFINITY;
    trip->narrow = false;
}

/* The program as it is, whose time was only estimated, is called after all, however late it is: once, and no longer
 * than so many times what the best takes. What takes longer is slower. When it is neither measured nor slower there is
 * nothing to say of the best; without a best the program itself is one, if a call ends in some `seconds`. */
static void settle_original(run *r, ef_trip *best, double seconds)
{
    bool alone = !isfinite(best->us);
    double call_s = alone ? SETTLE_S : 1e-6 * best->us, most_us = SETTLE_TIMES * best->us;
    ef_trip done = {.us = INFINITY}, original = {.family = 0,
                                                 .choice = r->families->list.at[0].start,
                                                 .repeat = 1,
                                                 .check = 1,
                                                 .seconds = call_s,
                                                 .most_s = alone ? fmax(seconds, SETTLE_S) : SETTLE_S + 1e-6 * most_us};
    ef_flight_cancel(r->flight);
    ef_flight_launch(r->flight, r->families, &original);
    ef_flight_end_loose(r->flight);
    while (!ef_flight_land(r->flight, r->families, 0.1, &done)) {
        report(r, EF_STAGE_CONFIRM);
        if (r->flight->trips.count == 0 || ef_flight_broken(r->flight) || ef_interrupted())
            break;
    }
    if (isfinite(done.us)) {
        r->flight->original_us = done.us;
        r->flight->estimated = false;
        *best = best->us <= done.us ? *best : done;
    } else if (done.late && !alone) {
        r->flight->original_us = fmax(r->flight->original_us, most_us);
    } else {
        best->us = INFINITY;
    }
}

/* The best few schedules of all families and the program itself, measured once more, longer and side by side: the
 * fastest of many noisy measurements is not the fastest. Without workers, or when the time is over, the fastest of
 * those that were checked stands, unless it is slower than the program itself. */
static void confirm(run *r, ef_trip *best)
{
    double late = late_end(r) - derive_s(r);
    if (ef_flight_outdated(r->families, &r->original))
        r->original = (ef_trip){0};
    ef_trip done, checked = r->flight->best, original = r->original;
    original.us = original.us > 0 ? original.us : INFINITY;
    *best = (ef_trip){.us = INFINITY};
    ef_flight_cancel(r->flight);
    launch_finalists(r, confirm_s(r));
    while (r->flight->trips.count + r->flight->landed.count && !ef_flight_broken(r->flight) && !ef_interrupted()) {
        report(r, EF_STAGE_CONFIRM);
        if (ef_seconds() > late && stands(r, isfinite(best->us) ? best : &checked))
            break;
        if (!ef_flight_land(r->flight, r->families, 0.1, &done))
            continue;
        if (is_original(r, done.family, done.choice) && isfinite(done.us) && r->device->measures_original) {
            r->flight->original_us = done.us;
            original = done;
        }
        if (done.us < best->us)
            *best = done;
        measure_anew(r, best);
        measure_anew(r, &original);
    }
    if (!isfinite(best->us) && checked.us > 0 && stands(r, &checked))
        *best = checked;
    if (isfinite(original.us) && original.us < best->us)
        *best = original;
    compare_in_turns(r, best, &original);
    if (original_is_too_slow(r) && !ef_interrupted())
        settle_original(r, best, late - ef_seconds());
    ef_flight_cancel(r->flight);
}

/* Seconds of the run: when the search was over, workers were ready, and tuning and confirming ended; and of workers. */
static const char *spent(const run *r)
{
    json_t *json =
        json_pack("{s:f, s:f, s:f, s:f, s:I, s:O}", "searched", r->searched_s, "ready", r->flight->ready_at - r->start,
                  "tuned", r->tuned_at - r->start, "confirmed", ef_seconds() - r->start, "replaced",
                  (json_int_t)ef_pool_replaced(*r->pool), "workers", r->flight->spent);
    char *text = json ? json_dumps(json, JSON_COMPACT | JSON_REAL_PRECISION(4)) : NULL;
    const char *kept = text ? ef_arena_strndup(r->arena, text, strlen(text)) : NULL;
    free(text);
    json_decref(json);
    return kept;
}

/* Keeps the result for later runs that want no more than this one had. One that was stopped, lost its workers, or came
 * to nothing but the program as it is, had not what it was given: a later run is to go on from what was measured. */
static void keep(const run *r, bool settled, ef_store *store)
{
    double budget = settled && r->families->whole ? INFINITY : r->end - r->start;
    bool tuned = !r->options->plain && !r->out->stopped && !ef_flight_broken(r->flight);
    if (tuned && (settled || r->limited || r->tried))
        ef_optimum_keep(r->out, store, r->hash, (ef_effort){budget, r->limited ? r->options->limit : 0});
}

/* What was measured is what will be called: it need not be compiled again. */
static void keep_compiled(const run *r, const ef_trip *best)
{
    const char *artifact = r->device->backend == EF_BACKEND_C
                               ? ef_flight_artifact(r->flight, r->families, best->family, best->choice)
                               : NULL;
    if (artifact)
        ef_compiled_keep(r->out->source, strlen(r->out->source), artifact);
}

static bool finish(run *r, bool settled, ef_store *store)
{
    ef_trip best;
    r->tuned_at = ef_seconds();
    report(r, EF_STAGE_CONFIRM);
    confirm(r, &best);
    if (abandoned(r))
        return false;
    const char *why = ef_flight_broken(r->flight) ? ef_flight_broken(r->flight) : r->flight->last_error;
    if (!isfinite(best.us) && original_is_too_slow(r))
        return ef_fail(r->diag,
                       "one call of %s as it is takes about %.2g seconds, too long to compare anything with it in "
                       "this time%s%s",
                       r->program->name, 1e-6 * r->flight->original_us, why[0] ? ": " : "", why);
    if (!isfinite(best.us))
        return ef_fail(r->diag, "nothing that was measured is right, not even the program as it is: %s", why);
    ef_optimum *o = r->out;
    o->us = best.us;
    o->warm_us = best.warm_us;
    o->rel_l2 = best.rel_l2;
    o->original_us = r->flight->original_us;
    o->floor_us = r->flight->floor_us;
    o->estimated = r->flight->estimated;
    o->spent = spent(r);
    o->measured = r->flight->measured;
    o->failed = r->flight->failed;
    o->original = is_original(r, best.family, best.choice) ||
                  (!r->device->measures_original && o->original_us > 0 && best.us >= o->original_us);
    ef_optimum_describe(o, r->families, &best, r->device, fmax(derive_s(r), r->end - ef_seconds()), r->arena, r->diag);
    o->elapsed_s = ef_seconds() - r->start;
    if (r->diag->failed || abandoned(r))
        return false;
    keep_compiled(r, &best);
    keep(r, settled, store);
    return true;
}

static bool optimize(run *r, ef_store *store)
{
    if (!prepare(r))
        return false;
    ef_flight_store(r->flight, store, r->hash, r->out->device);
    resume(r);
    bool settled = !r->options->plain && !r->flight->late && tune(r);
    r->limited = !settled && at_limit(r);
    return !r->diag->failed && finish(r, settled, store);
}

bool ef_optimize(const ef_program *program, const ef_device *device, ef_pool **pool, ef_store *store,
                 const ef_optimize_options *options, ef_arena *arena, ef_optimum *optimum, ef_diag *diag)
{
    run r = {.program = program,
             .device = device,
             .pool = pool,
             .options = options,
             .arena = arena,
             .diag = diag,
             .out = optimum,
             .start = ef_seconds()};
    char identity[600];
    double budget = options->budget_s > 0 ? options->budget_s : BUDGET_S;
    *optimum = (ef_optimum){0};
    r.end = r.start + budget;
    if (!device->identity(device, identity, sizeof identity, diag))
        return false;
    optimum->device = ef_arena_strndup(arena, identity, strlen(identity));
    ef_canonical_hash(program, r.hash);
    if (ef_optimum_recall(optimum, store, r.hash, device, (ef_effort){budget, options->limit}, arena)) {
        optimum->elapsed_s = ef_seconds() - r.start;
        return true;
    }
    bool fine = optimize(&r, store);
    ef_tuner_free(r.tuner);
    ef_families_free(r.families);
    ef_flight_free(r.flight);
    return fine;
}
