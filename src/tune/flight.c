/* Candidates on their way: see flight.h. */
#include "tune/flight.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "egraph/runner.h"
#include "tune/request.h"
#include "tune/work.h"

#define COMPILE_TIMEOUT_S 30.0 /* what takes longer is unrolled too far to be fast */
#define PROGRAM_TIMEOUT_S 600.0
#define MEASURE_TIMEOUT_S 6.0 /* … and so many times what the best takes: a worker that is replaced prepares again */
#define MEASURE_TIMES 25.0
#define LAST_S 2.0     /* beyond the end, for what is being measured then */
#define ORIGINAL 0.85  /* of the time of the program as it is: what is faster is checked as one of the best */
#define CALLS_S 0.5    /* timed calls of one candidate may take so long … */
#define CALLS_TIMES 6. /* … and so many times the best */
#define AHEAD 3u       /* compiled candidates that may wait to be measured, beside those that are being compiled */

/* ---- the program ---- */

ef_flight *ef_flight_new(const ef_program *program, const ef_device *device, ef_pool *pool, uint64_t seed,
                         double seconds, double end_s, ef_diag *diag)
{
    ef_strbuf reference = {0};
    if (!device->reference(program, "ef_reference", &reference, diag)) {
        ef_strbuf_free(&reference);
        return NULL;
    }
    ef_flight *f = ef_xcalloc(1, sizeof *f);
    f->arena = ef_arena_new();
    f->device = device;
    f->pool = pool;
    f->most = ef_pool_compilers(pool) + AHEAD;
    f->spent = json_object();
    f->bytes = ef_work_of(program).bytes;
    f->program_request = ef_request_program(program, reference.text, seed, seconds, end_s);
    f->program_job = ef_pool_program(f->pool, f->program_request, PROGRAM_TIMEOUT_S);
    ef_strbuf_free(&reference);
    return f;
}

void ef_flight_store(ef_flight *f, ef_store *store, const char *program, const char *identity)
{
    f->store = store;
    f->program = program;
    f->identity = identity;
}

/* Adds up what a reply says that was spent. */
static void add_spent(ef_flight *f, const char *on, const json_t *reply)
{
    const char *what;
    json_t *seconds, *sum = json_object_get(f->spent, on), *of = json_object_get(reply, "spent");
    if (!json_is_object(of))
        return;
    if (!sum)
        json_object_set_new(f->spent, on, sum = json_object());
    json_object_foreach(of, what, seconds)
    {
        double before = json_number_value(json_object_get(sum, what));
        json_object_set_new(sum, what, json_real(before + json_number_value(seconds)));
    }
}

/* ---- the store ---- */

typedef struct {
    const ef_family *family;
    uint32_t number, *choice;
    double *kernel_us;
    ef_tuner *tuner;
} recalling;

/* A list of so many times: what took none was not measured. */
static bool read_times(const json_t *list, double *us, uint32_t count)
{
    if (!json_is_array(list) || json_array_size(list) != count)
        return false;
    for (uint32_t i = 0; i < count; i++) {
        us[i] = json_number_value(json_array_get(list, i));
        if (!(us[i] > 0 && isfinite(us[i])))
            return false;
    }
    return count > 0;
}

static void recall_one(void *user, const ef_store_result *r)
{
    recalling *to = user;
    json_t *list = r->kernel_us[0] ? json_loads(r->kernel_us, 0, NULL) : NULL;
    bool timed = read_times(list, to->kernel_us, to->family->graph->kernels.count);
    bool parsed = ef_family_parse(to->family, r->schedule, to->choice);
    if (parsed && strcmp(r->status, "fine") == 0)
        ef_tuner_known(to->tuner, to->number, to->choice, r->us, timed ? to->kernel_us : NULL);
    else if (parsed)
        ef_tuner_known_failure(to->tuner, to->number, to->choice, r->guilty, strcmp(r->status, "memory") == 0);
    json_decref(list);
}

static void found_one(void *user, const ef_store_result *r)
{
    (void)r;
    *(bool *)user = true;
}

void ef_flight_recall(ef_flight *f, const ef_families *families, uint32_t family, ef_tuner *tuner)
{
    ef_family *of = &families->list.at[family];
    bool widened = false;
    ef_store_results(f->store, f->program, f->identity, ef_family_wide_hash(of), found_one, &widened);
    if (widened && ef_family_widen(of))
        ef_tuner_change_kernels(tuner, family, of->identity);
    recalling to = {of, family, ef_xcalloc(of->graph->params.count + 1, sizeof(uint32_t)),
                    ef_xcalloc(of->graph->kernels.count + 1, sizeof(double)), tuner};
    ef_store_results(f->store, f->program, f->identity, of->hash, recall_one, &to);
    free(to.choice);
    free(to.kernel_us);
}

static void keep(ef_flight *f, const ef_families *families, const ef_trip *t, const char *status, const char *error)
{
    ef_strbuf schedule = {0};
    const ef_family *family = &families->list.at[t->family];
    if (!f->store)
        return;
    ef_family_print(family, t->choice, &schedule);
    bool fine = isfinite(t->us);
    json_t *list = json_array();
    for (uint32_t k = 0; fine && t->kernel_us && k < family->graph->kernels.count; k++)
        json_array_append_new(list, json_real(t->kernel_us[k]));
    char *times = json_array_size(list) ? json_dumps(list, JSON_COMPACT | JSON_REAL_PRECISION(9)) : NULL;
    ef_store_put(f->store, &(ef_store_result){f->program, f->identity, t->hash, schedule.text ? schedule.text : "",
                                              fine ? t->us : 0, t->warm_us, t->rel_l2, status, error,
                                              times ? times : "", fine ? UINT32_MAX : t->guilty, 0});
    free(times);
    json_decref(list);
    ef_strbuf_free(&schedule);
}

/* ---- on the way ---- */

bool ef_flight_has_room(const ef_flight *f)
{
    return f->trips.count < f->most;
}

const char *ef_flight_broken(const ef_flight *f)
{
    return ef_pool_broken(f->pool);
}

static char *copy_of(const char *text)
{
    size_t size = strlen(text) + 1;
    char *copy = ef_xcalloc(size, 1);
    memcpy(copy, text, size);
    return copy;
}

/* Keeps the artifact of one of the fastest, in the place of a slower one. */
static bool keep_artifact(ef_flight *f, ef_trip *t)
{
    ef_kept_artifact *slowest = &f->kept[0];
    for (uint32_t i = 0; i < EF_FLIGHT_KEEPS; i++) {
        if (!f->kept[i].artifact || f->kept[i].source == t->source) {
            slowest = &f->kept[i];
            break;
        }
        slowest = f->kept[i].us > slowest->us ? &f->kept[i] : slowest;
    }
    bool same = slowest->artifact && slowest->source == t->source;
    if (slowest->artifact && !same && slowest->us <= t->us)
        return false;
    if (slowest->artifact && strcmp(slowest->artifact, t->artifact) != 0)
        unlink(slowest->artifact);
    free(slowest->artifact);
    *slowest = (ef_kept_artifact){t->source, same && slowest->us == 0 ? 0 : t->us, t->artifact};
    t->artifact = NULL;
    return true;
}

static void remove_artifact(char *artifact)
{
    if (artifact)
        unlink(artifact);
    free(artifact);
}

static void drop_artifact(ef_trip *t)
{
    remove_artifact(t->artifact);
    t->artifact = NULL;
}

static void land(ef_flight *f, const ef_families *families, ef_trip *t, const char *status, const char *error)
{
    bool fine = strcmp(status, "fine") == 0;
    t->us = fine ? t->us : INFINITY;
    f->measured += fine;
    f->failed += !fine;
    if (fine && t->checked && (f->best.us <= 0 || t->us < f->best.us))
        f->best = *t;
    if (!fine)
        snprintf(f->last_error, sizeof f->last_error, "%s", error);
    ef_vec_push(&f->known, ((ef_known_source){t->source, t->us, t->warm_us, t->rel_l2, t->kernel_us, t->checked,
                                              t->no_room, t->guilty}));
    keep(f, families, t, status, error);
    if (!fine || !t->artifact || !keep_artifact(f, t))
        drop_artifact(t);
    f->best.artifact = NULL;
    ef_vec_push(&f->landed, *t);
}

static const ef_known_source *same_source(const ef_flight *f, uint64_t source)
{
    for (uint32_t i = 0; i < f->known.count; i++)
        if (f->known.at[i].source == source)
            return &f->known.at[i];
    return NULL;
}

double ef_flight_best_us(const ef_flight *f)
{
    double original = f->device->measures_original ? ORIGINAL * f->original_us : 0;
    return f->best.us > 0 && (original <= 0 || f->best.us < original) ? f->best.us : original;
}

static void send_to_measure(ef_flight *f, ef_trip *t, const char *artifact)
{
    char key[32];
    double best_us = ef_flight_best_us(f), expected_us = fmax(best_us, t->check ? f->original_us : 0);
    double seconds = MEASURE_TIMEOUT_S + MEASURE_TIMES * 1e-6 * fmax(expected_us, best_us > 0 ? 0 : f->original_us);
    char *copy = copy_of(artifact);
    free(t->artifact);
    t->artifact = copy;
    seconds = t->most_s > 0 ? t->most_s : seconds;
    if (!t->check && f->until > 0)
        seconds = fmin(seconds, fmax(f->until - ef_seconds(), 0) + LAST_S);
    snprintf(key, sizeof key, "m%" PRIu64, f->number++);
    int check = t->check ? t->check : best_us > 0 ? 1 : EF_CHECK_ALL;
    json_t *request =
        json_pack("{s:s, s:s, s:s, s:s, s:i, s:b, s:b, s:b, s:i, s:f, s:f}", "do", "measure", "key", key, "artifact",
                  artifact, "entry", EF_FLIGHT_ENTRY, "repeat", (int)t->repeat, "kernels", !t->check, "hiding",
                  t->hiding, "against", t->check > 0, "check", check, "best_us", t->check ? 0.0 : best_us, "seconds",
                  t->seconds > 0 ? t->seconds : CALLS_S + CALLS_TIMES * 1e-6 * best_us);
    t->measuring = true;
    t->job = ef_pool_measure(f->pool, request, seconds);
    json_decref(request);
    ef_vec_push(&f->trips, *t);
}

static const char *kept_artifact(const ef_flight *f, uint64_t source)
{
    for (uint32_t i = 0; i < EF_FLIGHT_KEEPS; i++)
        if (f->kept[i].artifact && f->kept[i].source == source)
            return f->kept[i].artifact;
    return NULL;
}

/* What the measuring worker said of the device that kernels are compiled for. */
static void add_device(const ef_flight *f, json_t *request)
{
    static const char *const field[] = {"arch", "shared"};
    for (size_t i = 0; i < sizeof field / sizeof *field; i++) {
        json_t *value = json_object_get(ef_pool_hello(f->pool), field[i]);
        if (value)
            json_object_set(request, field[i], value);
    }
}

/* The kernel without which the schedule could be printed: with its first schedule instead. UINT32_MAX: there is none.
 */
static uint32_t unprinted(const ef_flight *f, const ef_family *family, const ef_schedule *schedule)
{
    uint32_t guilty = UINT32_MAX;
    ef_schedule other = ef_schedule_copy(schedule);
    for (uint32_t k = 0; k < family->graph->kernels.count && guilty == UINT32_MAX; k++) {
        ef_diag ignored = {0};
        ef_strbuf source = {0};
        for (uint32_t i = 0; i < other.count; i++)
            other.value[i] = family->owner[i] == k ? family->schedule.value[i] : schedule->value[i];
        guilty = f->device->print(family->graph, &other, EF_FLIGHT_ENTRY, &source, &ignored) ? k : UINT32_MAX;
        ef_strbuf_free(&source);
    }
    ef_schedule_free(&other);
    return guilty;
}

static bool print(const ef_flight *f, const ef_family *family, const ef_schedule *schedule, ef_strbuf *source,
                  ef_diag *diag)
{
    if (!f->device->print(family->graph, schedule, EF_FLIGHT_ENTRY, source, diag))
        return false;
    if (f->device->print_timed && family->graph->kernels.count > 1)
        f->device->print_timed(family->graph, EF_FLIGHT_ENTRY, source);
    return true;
}

static uint64_t compile(ef_flight *f, const char *source)
{
    char key[32];
    snprintf(key, sizeof key, "c%" PRIu64, f->number++);
    json_t *request = json_pack("{s:s, s:s, s:s, s:s, s:s}", "do", "compile", "key", key, "source", source, "entry",
                                EF_FLIGHT_ENTRY, "dir", ef_pool_directory(f->pool));
    add_device(f, request);
    uint64_t job = ef_pool_compile(f->pool, request, COMPILE_TIMEOUT_S);
    json_decref(request);
    return job;
}

void ef_flight_compile(ef_flight *f, const ef_families *families, uint32_t family, const uint32_t *choice)
{
    ef_diag ignored = {0};
    ef_strbuf source = {0};
    ef_schedule schedule = ef_family_schedule(&families->list.at[family], choice);
    if (print(f, &families->list.at[family], &schedule, &source, &ignored)) {
        uint64_t hash = ef_hash(source.text, source.length);
        ef_vec_push(&f->loose, ((ef_loose_compilation){hash, compile(f, source.text), true, NULL}));
    }
    ef_schedule_free(&schedule);
    ef_strbuf_free(&source);
}

const char *ef_flight_artifact(const ef_flight *f, const ef_families *families, uint32_t family, const uint32_t *choice)
{
    ef_diag ignored = {0};
    ef_strbuf source = {0};
    ef_schedule schedule = ef_family_schedule(&families->list.at[family], choice);
    bool printed = print(f, &families->list.at[family], &schedule, &source, &ignored);
    const char *artifact = printed ? kept_artifact(f, ef_hash(source.text, source.length)) : NULL;
    ef_schedule_free(&schedule);
    ef_strbuf_free(&source);
    return artifact;
}

/* What is being compiled already, ahead or before it was cancelled, is waited for; what has been is measured. */
static bool take_loose(ef_flight *f, ef_trip *t)
{
    for (uint32_t i = 0; i < f->loose.count; i++) {
        ef_loose_compilation found = f->loose.at[i];
        if (found.source != t->source)
            continue;
        f->loose.at[i] = f->loose.at[--f->loose.count];
        t->job = found.job;
        if (found.artifact)
            send_to_measure(f, t, found.artifact);
        else
            ef_vec_push(&f->trips, *t);
        free(found.artifact);
        return true;
    }
    return false;
}

void ef_flight_launch(ef_flight *f, const ef_families *families, const ef_trip *trip)
{
    ef_trip t = *trip;
    ef_diag diag = {0};
    ef_strbuf source = {0};
    const ef_family *family = &families->list.at[t.family];
    ef_schedule schedule = ef_family_schedule(family, t.choice);
    t.narrow = ef_kgraph_is_narrow(family->graph);
    t.hash = family->hash;
    t.hiding = family->hiding;
    t.us = t.against_us = 0;
    t.kernel_us = NULL;
    t.artifact = NULL;
    t.measuring = t.checked = t.late = t.no_room = false;
    t.guilty = UINT32_MAX;
    bool printed = print(f, family, &schedule, &source, &diag);
    if (!printed) {
        t.guilty = unprinted(f, family, &schedule);
        t.no_room = t.guilty != UINT32_MAX && diag.kind == EF_TOO_LARGE;
    }
    ef_schedule_free(&schedule);
    t.source = printed ? ef_hash(source.text, source.length) : 0;
    const ef_known_source *same = printed ? same_source(f, t.source) : NULL;
    if (!printed) {
        land(f, families, &t, t.no_room ? "memory" : "compile", diag.text);
    } else if (same) {
        t.us = same->us;
        t.warm_us = same->warm_us;
        t.rel_l2 = same->rel_l2;
        t.kernel_us = same->kernel_us;
        t.checked = same->checked;
        t.guilty = same->guilty;
        t.no_room = same->no_room;
        ef_vec_push(&f->landed, t);
    } else if (kept_artifact(f, t.source)) {
        send_to_measure(f, &t, kept_artifact(f, t.source));
    } else if (!take_loose(f, &t)) {
        t.job = compile(f, source.text);
        ef_vec_push(&f->trips, t);
    }
    ef_strbuf_free(&source);
}

static void compiled(ef_flight *f, const ef_families *families, ef_trip *t, const json_t *reply)
{
    const char *artifact = json_string_value(json_object_get(reply, "artifact"));
    if (artifact)
        send_to_measure(f, t, artifact);
    else
        land(f, families, t, "compile", "the worker names no artifact");
}

static void measured(ef_flight *f, const ef_families *families, ef_trip *t, const json_t *reply)
{
    t->us = json_number_value(json_object_get(reply, "us"));
    t->warm_us = json_number_value(json_object_get(reply, "warm_us"));
    t->rel_l2 = json_number_value(json_object_get(reply, "rel_l2"));
    t->against_us = json_number_value(json_object_get(reply, "eager_us"));
    uint32_t kernels = families->list.at[t->family].graph->kernels.count;
    t->kernel_us = ef_arena_alloc(f->arena, kernels * sizeof *t->kernel_us);
    if (!read_times(json_object_get(reply, "kernel_us"), t->kernel_us, kernels))
        t->kernel_us = NULL;
    t->checked = json_integer_value(json_object_get(reply, "checked")) >= (json_int_t)f->draws;
    bool fine = t->us > 0 && isfinite(t->us);
    land(f, families, t, fine ? "fine" : "launch", fine ? "" : "the worker gives no time");
}

bool ef_flight_outdated(const ef_families *families, const ef_trip *t)
{
    return t->narrow && !ef_kgraph_is_narrow(families->list.at[t->family].graph);
}

/* A candidate that is wrong with narrow temporaries may be right with wide ones: its family has these from now on, and
 * it sets out again, with all others of the family that are on the way. */
static bool set_out_again(ef_flight *f, const ef_families *families, ef_trip *t, const char *status)
{
    bool wrong = t->narrow && status && strcmp(status, "wrong") == 0;
    if (wrong && ef_family_widen(&families->list.at[t->family]) && f->best.family == t->family)
        f->best = (ef_trip){0};
    if (!ef_flight_outdated(families, t))
        return false;
    drop_artifact(t);
    ef_flight_launch(f, families, t);
    return true;
}

static void refused(ef_flight *f, const ef_families *families, ef_trip *t, const ef_reply *reply, const char *status)
{
    const json_t *kernel = json_object_get(reply->json, "kernel");
    uint32_t kernels = families->list.at[t->family].graph->kernels.count;
    if (json_is_integer(kernel) && json_integer_value(kernel) >= 0 && json_integer_value(kernel) < kernels)
        t->guilty = (uint32_t)json_integer_value(kernel);
    t->no_room = status && strcmp(status, "memory") == 0;
    land(f, families, t, reply->status == EF_REPLY_LOST ? "lost" : status ? status : "compile", reply->error);
}

/* A reply to a compilation that nobody waits for: what it made may be launched yet. What was compiled ahead is among
 * the fastest; the rest takes no place of these. */
static void heard_loose(ef_flight *f, const ef_reply *reply)
{
    const char *artifact = json_string_value(json_object_get(reply->json, "artifact"));
    for (uint32_t i = 0; i < f->loose.count; i++) {
        ef_loose_compilation *of = &f->loose.at[i];
        if (of->job != reply->job)
            continue;
        ef_trip t = {.source = of->source, .artifact = artifact ? copy_of(artifact) : NULL};
        add_spent(f, "compile", reply->json);
        if (t.artifact && !of->ahead) {
            of->artifact = t.artifact;
            return;
        }
        f->loose.at[i] = f->loose.at[--f->loose.count];
        if (t.artifact && !keep_artifact(f, &t))
            drop_artifact(&t);
        return;
    }
}

/* Takes back what workers were not given yet, and takes what they have answered. */
static void leave_pool(ef_flight *f)
{
    ef_reply reply;
    ef_pool_drop(f->pool);
    while (ef_pool_wait(f->pool, 0, &reply)) {
        heard_loose(f, &reply);
        json_decref(reply.json);
    }
}

/* A reply of the pool, to whichever candidate it is for; it may be for one that was cancelled. */
static void heard(ef_flight *f, const ef_families *families, const ef_reply *reply)
{
    for (uint32_t i = 0; i < f->trips.count; i++) {
        ef_trip t = f->trips.at[i];
        if (t.job != reply->job)
            continue;
        f->trips.at[i] = f->trips.at[--f->trips.count];
        const char *status = json_string_value(json_object_get(reply->json, "status"));
        t.late = t.measuring && reply->late;
        add_spent(f, t.measuring ? "measure" : "compile", reply->json);
        if (set_out_again(f, families, &t, status))
            return;
        if (reply->status == EF_REPLY_FINE && t.measuring)
            measured(f, families, &t, reply->json);
        else if (reply->status == EF_REPLY_FINE)
            compiled(f, families, &t, reply->json);
        else
            refused(f, families, &t, reply, status);
        return;
    }
    heard_loose(f, reply);
}

bool ef_flight_ready(ef_flight *f, double seconds, ef_diag *diag)
{
    ef_reply reply;
    if (f->ready)
        return true;
    if (!ef_pool_wait(f->pool, seconds, &reply))
        return false;
    if (reply.job == f->program_job && reply.status == EF_REPLY_FINE) {
        double bandwidth = json_number_value(json_object_get(reply.json, "bandwidth"));
        f->original_us = json_number_value(json_object_get(reply.json, "eager_us"));
        f->floor_us = bandwidth > 0 ? f->bytes / bandwidth * 1e6 : 0;
        f->estimated = json_is_true(json_object_get(reply.json, "estimated"));
        f->late = json_is_true(json_object_get(reply.json, "late"));
        f->draws = (uint32_t)json_array_size(json_object_get(reply.json, "eager_error"));
        f->ready_at = ef_seconds();
        add_spent(f, "program", reply.json);
        f->ready = true;
        /* A worker that takes the place of this one need not find that out again. */
        json_object_set_new(f->program_request, "eager_us", json_real(f->original_us));
    } else if (reply.job == f->program_job) {
        ef_fail(diag, "the program cannot be measured: %s", reply.error);
    } else {
        heard_loose(f, &reply);
    }
    json_decref(reply.json);
    return f->ready;
}

bool ef_flight_land(ef_flight *f, const ef_families *families, double seconds, ef_trip *trip)
{
    ef_reply reply;
    double until = ef_seconds() + seconds;
    for (;;) {
        while (f->landed.count) {
            *trip = f->landed.at[0];
            memmove(f->landed.at, f->landed.at + 1, --f->landed.count * sizeof *trip);
            if (!set_out_again(f, families, trip, NULL))
                return true;
        }
        double left = until - ef_seconds();
        if (left <= 0 || f->trips.count == 0 || !ef_pool_wait(f->pool, left, &reply))
            return false;
        heard(f, families, &reply);
        json_decref(reply.json);
    }
}

void ef_flight_cancel(ef_flight *f)
{
    for (uint32_t i = 0; i < f->trips.count; i++) {
        const ef_trip *t = &f->trips.at[i];
        if (!t->measuring)
            ef_vec_push(&f->loose, ((ef_loose_compilation){t->source, t->job, false, NULL}));
        free(t->artifact);
    }
    f->trips.count = f->landed.count = f->known.count = 0;
    leave_pool(f);
    for (uint32_t i = f->loose.count; i-- > 0;) /* what waited for a worker is forgotten */
        if (!f->loose.at[i].artifact && !ef_pool_compiles(f->pool, f->loose.at[i].job))
            f->loose.at[i] = f->loose.at[--f->loose.count];
}

void ef_flight_end_loose(ef_flight *f)
{
    for (uint32_t i = f->loose.count; i-- > 0;) {
        char *artifact = f->loose.at[i].artifact;
        if (!artifact && !f->device->quiet)
            continue;
        if (!artifact)
            ef_pool_abandon(f->pool, f->loose.at[i].job);
        remove_artifact(artifact);
        f->loose.at[i] = f->loose.at[--f->loose.count];
    }
}

void ef_flight_free(ef_flight *f)
{
    if (!f)
        return;
    leave_pool(f);
    if (!f->ready)
        ef_pool_abandon_program(f->pool);
    for (uint32_t i = 0; i < f->trips.count; i++)
        free(f->trips.at[i].artifact);
    for (uint32_t i = 0; i < f->loose.count; i++)
        remove_artifact(f->loose.at[i].artifact);
    ef_vec_free(&f->trips);
    ef_vec_free(&f->landed);
    ef_vec_free(&f->known);
    ef_vec_free(&f->loose);
    for (uint32_t i = 0; i < EF_FLIGHT_KEEPS; i++)
        free(f->kept[i].artifact);
    json_decref(f->program_request);
    json_decref(f->spent);
    ef_arena_free(f->arena);
    free(f);
}
