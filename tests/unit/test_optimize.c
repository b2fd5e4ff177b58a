/* The course of an optimisation with a simulated worker: what is said of the program as it is, and that the workers
 * have something to do.
 *
 * The worker is this program itself, called with --worker. The source of the program as it is is marked. */
#define _GNU_SOURCE
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "tune/canonical.h"
#include "tune/flight.h"
#include "tune/module.h"
#include "tune/optimize.h"

static const char text[] = "program two\n"
                           "dim m = 512\ndim n = 512\n"
                           "input x: f32[m, n]\n"
                           "y = cast[f16](exp(x))\n"
                           "output z = reduce[sum, -1](mul(y, y))\n";

#define MARK "/* the program as it is */"
#define MARK_NARROW "/* narrow */"

/* ---- the worker ---- */

static void nap(double seconds)
{
    nanosleep(&(struct timespec){(time_t)seconds, (long)((seconds - (double)(time_t)seconds) * 1e9)}, NULL);
}

static const char *text_of(const json_t *request, const char *key)
{
    const char *value = json_string_value(json_object_get(request, key));
    return value ? value : "";
}

/* Tells the other workers that something was compiled, or waits until it was. */
static bool compiled_somewhere(bool here)
{
    char path[512];
    snprintf(path, sizeof path, "%s/compiled", getenv("TMPDIR"));
    FILE *file = here ? fopen(path, "w") : NULL;
    if (file)
        fclose(file);
    for (int i = 0; i < 1000 && access(path, F_OK) != 0; i++)
        nap(0.01);
    return access(path, F_OK) == 0;
}

static json_t *answer(const char *kind, const json_t *request)
{
    const char *what = text_of(request, "do");
    char path[512];
    if (strcmp(what, "compile") == 0 && strcmp(kind, "no room") == 0)
        return json_pack("{s:b, s:s, s:s, s:i}", "ok", 0, "status", "memory", "error", "OutOfResources", "kernel",
                         strstr(text_of(request, "source"), MARK) ? 0 : 7);
    if (strcmp(what, "compile") == 0 && strcmp(kind, "first kernel") == 0)
        return json_pack("{s:b, s:s, s:s, s:i}", "ok", 0, "status", "memory", "error", "OutOfResources", "kernel", 0);
    if (strcmp(what, "compile") == 0 && strcmp(kind, "exhausted") == 0)
        return json_pack("{s:b, s:s, s:s}", "ok", 0, "status", "exhausted", "error", "OutOfMemoryError");
    if (strcmp(what, "measure") == 0 && strstr(kind, "timed")) /* the first kernel took no time, or some */
        return json_pack("{s:b, s:f, s:f, s:f, s:i, s:[f, f]}", "ok", 1, "us", 9.0, "warm_us", 9.0, "rel_l2", 1e-7,
                         "checked", 1, "kernel_us", strcmp(kind, "timed") == 0 ? 3.0 : 0.0, 2.0);
    if (strcmp(what, "compile") == 0) {
        bool original = strstr(text_of(request, "source"), MARK);
        if (strcmp(kind, "patient") == 0)
            compiled_somewhere(true);
        if (original && strstr(kind, "compiler"))
            nap(strcmp(kind, "slow compiler") == 0 ? 0.5 : 1000);
        if (strcmp(kind, "steady compiling") == 0)
            nap(0.5);
        snprintf(path, sizeof path, "%s/%s.%s", text_of(request, "dir"), text_of(request, "key"),
                 original                                          ? "original"
                 : strstr(text_of(request, "source"), MARK_NARROW) ? "narrow"
                                                                   : "other");
        return json_pack("{s:b, s:s}", "ok", 1, "artifact", path);
    }
    if (strcmp(what, "program") == 0 && strcmp(kind, "unknown") == 0)
        return json_pack("{s:b, s:f, s:[f], s:f, s:b}", "ok", 1, "eager_us", 0.0, "eager_error", 1e-7, "bandwidth", 0.0,
                         "estimated", 1);
    if (strcmp(what, "program") == 0 && strcmp(kind, "late") == 0)
        return json_pack("{s:b, s:f, s:[f], s:f, s:b}", "ok", 1, "eager_us", 5e6, "eager_error", 1e-7, "bandwidth",
                         1e10, "late", 1);
    if (strcmp(what, "program") == 0 && strcmp(kind, "endless") == 0)
        nap(1000);
    if (strcmp(what, "program") == 0 && strcmp(kind, "patient") == 0 && !compiled_somewhere(false))
        return json_pack("{s:b, s:s, s:s}", "ok", 0, "status", "exhausted", "error", "nothing is compiled");
    if (strcmp(what, "program") == 0)
        return json_pack("{s:b, s:f, s:[f], s:f, s:b}", "ok", 1, "eager_us", 5e6, "eager_error", 1e-7, "bandwidth",
                         1e10, "estimated", strcmp(kind, "measured") != 0 && strcmp(kind, "busy") != 0);
    if (strcmp(what, "measure") == 0 && strstr(kind, "wrong")) {
        static int narrow;
        bool is_narrow = strstr(text_of(request, "artifact"), ".narrow");
        if (is_narrow && narrow++ == (strcmp(kind, "second wrong") == 0))
            return json_pack("{s:b, s:s, s:s}", "ok", 0, "status", "wrong", "error", "too far off");
        return json_pack("{s:b, s:f, s:f, s:f, s:i}", "ok", 1, "us", is_narrow ? 50.0 : 80.0, "warm_us", 40.0, "rel_l2",
                         1e-7, "checked", 1);
    }
    if (strcmp(what, "measure") == 0) {
        bool original = strstr(text_of(request, "artifact"), ".original") && strcmp(kind, "unknown") != 0;
        nap(strcmp(kind, original ? "slow" : "busy") == 0 ? 1000 : 0.003);
        return json_pack("{s:b, s:f, s:f, s:f, s:i}", "ok", 1, "us", original ? 100.0 : 200.0, "warm_us", 50.0,
                         "rel_l2", 1e-7, "checked", 1);
    }
    return json_pack("{s:b}", "ok", 1);
}

static int work(const char *kind)
{
    char *line = NULL;
    size_t room = 0;
    while (getline(&line, &room, stdin) > 0) {
        json_t *request = json_loads(line, 0, NULL), *reply = answer(kind, request);
        json_object_set(reply, "id", json_object_get(request, "id"));
        char *said = json_dumps(reply, JSON_COMPACT | JSON_REAL_PRECISION(9));
        puts(said);
        fflush(stdout);
        free(said);
        json_decref(reply);
        json_decref(request);
    }
    free(line);
    return 0;
}

/* ---- the tests ---- */

static char self[4096];
static const char *kind;

static void command(const ef_device *device, const char **argv, ef_arena *arena)
{
    (void)device, (void)arena;
    memcpy(argv, (const char *[]){self, "--worker", kind, NULL}, 4 * sizeof *argv);
}

static bool (*print_cpu)(const ef_kgraph *graph, const ef_schedule *schedule, const char *entry, ef_strbuf *out,
                         ef_diag *diag);
static ef_strbuf original; /* its source */

static bool print_marked(const ef_kgraph *graph, const ef_schedule *schedule, const char *entry, ef_strbuf *out,
                         ef_diag *diag)
{
    bool fine = print_cpu(graph, schedule, entry, out, diag);
    if (fine && out->length == original.length && memcmp(out->text, original.text, out->length) == 0)
        ef_strbuf_puts(out, MARK);
    if (fine && ef_kgraph_is_narrow(graph))
        ef_strbuf_puts(out, MARK_NARROW);
    return fine;
}

static void print_original(const ef_program *program, const ef_device *device)
{
    ef_diag diag = {0};
    ef_families *families = ef_families_new(
        program, &(ef_families_options){.keep = 1, .backend = device->backend, .threads = device->threads}, &diag);
    ef_family *family = &families->list.at[0];
    ef_schedule schedule = ef_family_schedule(family, family->start);
    assert_true(device->print(family->graph, &schedule, EF_FLIGHT_ENTRY, &original, &diag));
    ef_schedule_free(&schedule);
    ef_families_free(families);
}

static bool identity(const ef_device *device, char *name, size_t room, ef_diag *diag)
{
    (void)device, (void)diag;
    snprintf(name, room, "a simulated device");
    return true;
}

typedef struct {
    ef_ctx *ctx;
    ef_program *program;
    ef_device device;
    ef_pool *pool;
    ef_store *store;
    ef_arena *arena;
    char path[64];
} setting;

static setting open_setting(const char *worker)
{
    ef_diag diag = {0};
    setting s = {.ctx = ef_ctx_new(), .arena = ef_arena_new(), .path = "/tmp/equiforge-test-XXXXXX"};
    kind = worker;
    s.program = ef_program_parse(s.ctx, text, strlen(text), "two", &diag);
    assert_true(ef_device_find("cpu", NULL, 1, &s.device, &diag));
    s.device.command = command;
    s.device.identity = identity;
    s.device.quiet = false;
    print_original(s.program, &s.device);
    print_cpu = s.device.print;
    s.device.print = print_marked;
    s.device.print_timed = NULL;
    close(mkstemp(s.path));
    s.store = ef_store_open(s.path, &diag);
    assert_false(diag.failed);
    return s;
}

static void close_setting(setting *s)
{
    char beside[80];
    ef_pool_free(s->pool);
    ef_store_close(s->store);
    ef_program_free(s->program);
    ef_ctx_free(s->ctx);
    ef_arena_free(s->arena);
    ef_strbuf_free(&original);
    unlink(s->path);
    for (int i = 0; i < 2; i++) {
        snprintf(beside, sizeof beside, "%s%s", s->path, i ? "-wal" : "-shm");
        unlink(beside);
    }
}

static ef_optimum optimum_of(setting *s, const ef_optimize_options *options)
{
    ef_diag diag = {0};
    ef_optimum o;
    if (!ef_optimize(s->program, &s->device, &s->pool, s->store, options, s->arena, &o, &diag))
        fail_msg("%s", diag.text);
    return o;
}

/* Its estimated time is far above that of all candidates, but a call is faster than these. */
static void test_estimate_too_high(void **state)
{
    (void)state;
    setting s = open_setting("fast");
    ef_optimum o = optimum_of(&s, &(ef_optimize_options){.budget_s = 4, .compilers = 2, .limit = 12});
    assert_true(o.original);
    assert_false(o.estimated);
    assert_float_equal(o.us, 100, 1e-6);
    assert_float_equal(o.original_us, 100, 1e-6);
    close_setting(&s);
}

/* A call does not end: it is slower than the best, and that its time is no measured one is said again when the answer
 * comes from the store. */
static void test_slow_original(void **state)
{
    (void)state;
    setting s = open_setting("slow");
    ef_optimize_options options = {.budget_s = 4, .compilers = 2, .limit = 12};
    ef_optimum o = optimum_of(&s, &options);
    for (int again = 0; again < 2; again++) {
        assert_false(o.original);
        assert_true(o.estimated);
        assert_float_equal(o.us, 200, 1e-6);
        assert_true(o.original_us >= 4 * o.us);
        assert_true(o.stored == (again == 1));
        o = optimum_of(&s, &options);
    }
    close_setting(&s);
}

/* On a GPU the program as it is, of which one call did not fit into memory, is no candidate; its kernels are one. What
 * is not known of its time is no reason to keep it. */
static void test_original_without_memory(void **state)
{
    (void)state;
    for (int known = 0; known < 2; known++) {
        setting s = open_setting(known ? "fast" : "unknown");
        s.device.measures_original = false;
        ef_optimum o = optimum_of(&s, &(ef_optimize_options){.budget_s = 4, .compilers = 2, .limit = 12});
        assert_true(o.estimated);
        assert_float_equal(o.us, known ? 100 : 200, 1e-6);
        assert_float_equal(o.original_us, known ? 5e6 : 0, 1e-6);
        assert_true(known || !o.original);
        close_setting(&s);
    }
}

typedef struct {
    uint64_t measured, most;
} pace;

static bool count_results(void *user, const ef_progress *p)
{
    pace *seen = user;
    if (p->stage == EF_STAGE_TUNE && p->measured - seen->measured > seen->most)
        seen->most = p->measured - seen->measured;
    seen->measured = p->measured;
    return true;
}

/* Others set out after each result, not after all that were on the way. */
static void test_pace(void **state)
{
    (void)state;
    pace seen = {0};
    setting s = open_setting("measured");
    ef_optimum o = optimum_of(
        &s,
        &(ef_optimize_options){.budget_s = 4, .compilers = 2, .limit = 40, .progress = count_results, .user = &seen});
    assert_true(o.measured >= 20);
    assert_in_range(seen.most, 1, 2);
    close_setting(&s);
}

/* ---- what later runs are answered with ---- */

static uint64_t rows(const setting *s)
{
    char hash[33];
    ef_canonical_hash(s->program, hash);
    return ef_store_count(s->store, hash, "a simulated device");
}

/* A result that met its limit is one for that limit, and a larger one or none goes on from it. */
static void test_limited(void **state)
{
    (void)state;
    setting s = open_setting("measured");
    ef_optimize_options limited = {.budget_s = 3, .compilers = 2, .limit = 6}, less = limited, more = limited,
                        none = limited;
    less.limit = 3, more.limit = 12, none.limit = 0;
    assert_false(optimum_of(&s, &limited).stored);
    assert_true(optimum_of(&s, &limited).stored);
    assert_true(optimum_of(&s, &less).stored);
    uint64_t before = rows(&s);
    assert_false(optimum_of(&s, &more).stored);
    assert_true(rows(&s) >= before + 4); /* others than before */
    assert_true(optimum_of(&s, &limited).stored);
    assert_false(optimum_of(&s, &none).stored);
    assert_true(optimum_of(&s, &none).stored);
    assert_true(optimum_of(&s, &more).stored);
    close_setting(&s);
}

/* Nor does a limited run with more time take the place of a result without a limit. */
static void test_limited_after_all(void **state)
{
    (void)state;
    setting s = open_setting("measured");
    ef_optimize_options some = {.budget_s = 3, .compilers = 2, .keep = 2}, limited = some;
    limited.budget_s = 30, limited.limit = 3;
    assert_false(optimum_of(&s, &some).stored);
    assert_false(optimum_of(&s, &limited).stored); /* more families than are kept would be found */
    assert_true(optimum_of(&s, &some).stored);
    close_setting(&s);
}

static bool stop_when_measured(void *user, const ef_progress *p)
{
    (void)user;
    return p->measured < 4;
}

static void test_stopped_is_not_done(void **state)
{
    (void)state;
    setting s = open_setting("measured");
    ef_optimum o =
        optimum_of(&s, &(ef_optimize_options){.budget_s = 20, .compilers = 2, .progress = stop_when_measured});
    assert_true(o.stopped);
    assert_true(rows(&s) >= 4);
    o = optimum_of(&s, &(ef_optimize_options){.budget_s = o.elapsed_s, .compilers = 2});
    assert_false(o.stored);
    close_setting(&s);
}

/* The machine is so busy that nothing but the program as it is was measured. */
static void test_nothing_tried_is_not_done(void **state)
{
    (void)state;
    setting s = open_setting("busy");
    ef_optimize_options options = {.budget_s = 2, .compilers = 2};
    ef_optimum o = optimum_of(&s, &options);
    assert_true(o.original);
    assert_int_equal(rows(&s), 1);
    assert_false(optimum_of(&s, &options).stored);
    close_setting(&s);
}

static const char narrow_text[] = "program narrow\n"
                                  "dim m = 512\ndim n = 512\n"
                                  "input x: f16[m, n]\n"
                                  "y = cast[f16](exp(x))\n"
                                  "output z = reduce[sum, -1](mul(y, y))\n";

static void add_result(void *user, const ef_store_result *r)
{
    assert_float_equal(r->us, 80, 1e-6);
    ++*(int *)user;
}

/* Several schedules of a family are on the way, and one of them is wrong with narrow temporaries: no time of narrow
 * code stands for wide code. */
static void check_widening(const char *worker, double first_us)
{
    ef_diag diag = {0};
    setting s = open_setting(worker);
    ef_program_free(s.program);
    ef_ctx_free(s.ctx);
    s.ctx = ef_ctx_new();
    s.program = ef_program_parse(s.ctx, narrow_text, strlen(narrow_text), "narrow", &diag);
    ef_families *families =
        ef_families_new(s.program, &(ef_families_options){.keep = 1, .backend = s.device.backend, .threads = 1}, &diag);
    ef_family *family = &families->list.at[0];
    assert_true(ef_kgraph_is_narrow(family->graph));
    uint32_t choice[2][64], params = family->graph->params.count, other = 0;
    while (family->values[other] < 2)
        other++;
    for (int i = 0; i < 2; i++)
        memcpy(choice[i], family->start, params * sizeof **choice);
    choice[1][other] = (choice[1][other] + 1) % family->values[other];
    uint64_t narrow_hash = family->hash, narrow_identity = family->identity[0];
    s.pool = ef_device_pool(&s.device, 1, &diag);
    ef_flight *flight = ef_flight_new(s.program, &s.device, s.pool, 1, 1, 0, &diag);
    ef_flight_store(flight, s.store, "narrow", "device");
    while (!ef_flight_ready(flight, 1, &diag))
        assert_false(diag.failed);
    for (int i = 0; i < 2; i++)
        ef_flight_launch(flight, families, &(ef_trip){.choice = choice[i], .ticket = (uint64_t)i, .repeat = 1});
    ef_trip trip[2];
    for (int i = 0; i < 2; i++)
        assert_true(ef_flight_land(flight, families, 10, &trip[i]));
    assert_float_equal(trip[0].us, first_us, 1e-6);
    assert_float_equal(trip[1].us, 80, 1e-6);
    assert_true(ef_flight_outdated(families, &trip[0]) == (first_us < 80));
    assert_true(family->hash != narrow_hash && family->identity[0] != narrow_identity);
    assert_float_equal(flight->best.us, 80, 1e-6);
    assert_true(flight->best.hash == family->hash);
    int wide = 0;
    ef_store_results(s.store, "narrow", "device", family->hash, add_result, &wide);
    assert_int_equal(wide, first_us < 80 ? 1 : 2);
    ef_flight_free(flight);
    ef_families_free(families);
    close_setting(&s);
}

static void test_late_narrow(void **state)
{
    (void)state;
    check_widening("first wrong", 80);
}

static void test_early_narrow(void **state)
{
    (void)state;
    check_widening("second wrong", 50);
}

/* Which kernel failed is what the worker says, if there is one of that number; also of a source seen before. */
static void test_guilty_kernel(void **state)
{
    ef_diag diag = {0};
    ef_trip trip;
    (void)state;
    setting s = open_setting("no room");
    ef_families *families =
        ef_families_new(s.program, &(ef_families_options){.keep = 1, .backend = s.device.backend, .threads = 1}, &diag);
    const ef_family *family = &families->list.at[0];
    uint32_t other[64], changed = 0;
    memcpy(other, family->start, family->graph->params.count * sizeof *other);
    while (family->values[changed] < 2)
        changed++;
    other[changed] = (other[changed] + 1) % family->values[changed];
    const uint32_t *choice[3] = {family->start, family->start, other};
    s.pool = ef_device_pool(&s.device, 1, &diag);
    ef_flight *flight = ef_flight_new(s.program, &s.device, s.pool, 1, 1, 0, &diag);
    while (!ef_flight_ready(flight, 1, &diag))
        assert_false(diag.failed);
    for (uint64_t i = 0; i < 3; i++) {
        ef_flight_launch(flight, families, &(ef_trip){.choice = choice[i], .ticket = i, .repeat = 1});
        assert_true(ef_flight_land(flight, families, 10, &trip));
        assert_true(isinf(trip.us) && trip.no_room);
        assert_int_equal(trip.guilty, i < 2 ? 0 : UINT32_MAX);
    }
    ef_flight_free(flight);
    ef_families_free(families);
    close_setting(&s);
}

static ef_families *few_families(const setting *s)
{
    ef_diag diag = {0};
    return ef_families_new(s->program, &(ef_families_options){.keep = 1, .backend = s->device.backend, .threads = 1},
                           &diag);
}

static ef_flight *ready_flight_of(setting *s, unsigned compilers)
{
    ef_diag diag = {0};
    s->pool = ef_device_pool(&s->device, compilers, &diag);
    ef_flight *flight = ef_flight_new(s->program, &s->device, s->pool, 1, 1, 0, &diag);
    while (!ef_flight_ready(flight, 1, &diag))
        assert_false(diag.failed);
    return flight;
}

static ef_flight *ready_flight(setting *s)
{
    return ready_flight_of(s, 1);
}

static ef_tuner *tuner_of(const ef_families *families)
{
    ef_tuner *tuner = ef_tuner_new(1);
    ef_tune_space space = ef_family_space(&families->list.at[0]);
    ef_tuner_add(tuner, &space);
    return tuner;
}

/* Failures of which the kernel is known say as much when they come from the store: another schedule of the kernel may
 * work, and so may the family. */
static void test_resumed_failures(void **state)
{
    (void)state;
    setting s = open_setting("first kernel");
    ef_families *families = few_families(&s);
    assert_true(families->list.at[0].graph->kernels.count > 1);
    ef_flight *flight = ready_flight(&s);
    ef_flight_store(flight, s.store, "failing", "device");
    ef_tuner *tuner = tuner_of(families), *resumed = tuner_of(families);
    for (int i = 0; i < 5; i++) {
        ef_tune_point point;
        ef_trip trip;
        assert_int_equal(ef_tuner_ask(tuner, &point), EF_ASK_POINT);
        ef_flight_launch(flight, families, &(ef_trip){.choice = point.choice, .ticket = point.ticket, .repeat = 1});
        assert_true(ef_flight_land(flight, families, 10, &trip));
        assert_true(isinf(trip.us) && trip.no_room && trip.guilty == 0);
        ef_tuner_fail(tuner, trip.ticket, trip.guilty, trip.no_room);
    }
    assert_true(ef_store_count(s.store, "failing", "device") >= 4);
    ef_flight_recall(flight, families, 0, resumed);
    assert_int_equal(ef_tuner_left(tuner), 1);
    assert_int_equal(ef_tuner_left(resumed), 1);
    ef_tuner_free(tuner);
    ef_tuner_free(resumed);
    ef_flight_free(flight);
    ef_families_free(families);
    close_setting(&s);
}

/* Whose compilation was cancelled while it went on has the result of that one when it is launched again. */
static void test_compiled_once(void **state)
{
    (void)state;
    setting s = open_setting("slow compiler");
    ef_families *families = few_families(&s);
    ef_flight *flight = ready_flight(&s);
    ef_trip launched = {.choice = families->list.at[0].start, .repeat = 1}, trip;
    ef_flight_launch(flight, families, &launched);
    assert_false(ef_flight_land(flight, families, 0.1, &trip));
    ef_flight_cancel(flight);
    ef_flight_launch(flight, families, &launched);
    assert_true(ef_flight_land(flight, families, 10, &trip));
    assert_true(isfinite(trip.us));
    assert_int_equal(flight->number, 2); /* one compilation, one measurement */
    ef_flight_free(flight);
    ef_families_free(families);
    close_setting(&s);
}

/* Choices of a family, the first one its start. */
static void choices_of(const ef_families *families, uint32_t count, uint32_t choice[][64])
{
    const ef_family *family = &families->list.at[0];
    uint32_t params = family->graph->params.count, param = 0, value = 0;
    for (uint32_t i = 0; i < count; i++) {
        memcpy(choice[i], family->start, params * sizeof *choice[i]);
        for (; i > 0; value = 0, param++) {
            assert_true(param < params);
            value += value == family->start[param];
            if (value < family->values[param])
                break;
        }
        choice[i][param] = i > 0 ? value++ : choice[i][param];
    }
}

static double measured_us(ef_flight *flight, const ef_families *families, const uint32_t *choice)
{
    ef_trip trip;
    ef_flight_launch(flight, families, &(ef_trip){.choice = choice, .repeat = 1});
    assert_true(ef_flight_land(flight, families, 10, &trip));
    assert_true(trip.choice == choice);
    return trip.us;
}

/* What was compiled when it was cancelled, and of which the pool has the reply, is not compiled again either, and takes
 * no place of the fastest. */
static void test_compiled_when_cancelled(void **state)
{
    (void)state;
    setting s = open_setting("steady compiling");
    ef_families *families = few_families(&s);
    ef_flight *flight = ready_flight_of(&s, 2);
    ef_reply reply;
    ef_trip trip;
    uint32_t choice[2][64];
    choices_of(families, 2, choice);
    assert_false(ef_pool_wait(s.pool, 0.3, &reply)); /* until all workers have begun */
    for (int i = 0; i < 2; i++)
        ef_flight_launch(flight, families, &(ef_trip){.choice = choice[i], .repeat = 1});
    uint64_t first = flight->trips.at[0].job, second = flight->trips.at[1].job;
    do
        assert_false(ef_flight_land(flight, families, 0.01, &trip));
    while (!ef_pool_compiles(s.pool, first) || !ef_pool_compiles(s.pool, second));
    nap(0.8); /* both have answered */
    assert_true(ef_pool_wait(s.pool, 0, &reply));
    json_decref(reply.json);
    assert_false(ef_pool_compiles(s.pool, first) || ef_pool_compiles(s.pool, second));
    ef_flight_cancel(flight);
    assert_true(isfinite(measured_us(flight, families, choice[reply.job == first])));
    assert_int_equal(flight->number, 3); /* two compilations, one measurement */
    ef_flight_free(flight);
    ef_families_free(families);
    close_setting(&s);
}

/* A compilation that was cancelled, and ends while others are measured, is there when it is launched again, however
 * many faster ones are kept; what is not launched again is removed. */
static void test_compiled_beside(void **state)
{
    (void)state;
    for (int end = 0; end < 2; end++) {
        setting s = open_setting("slow compiler");
        ef_families *families = few_families(&s);
        ef_flight *flight = ready_flight(&s);
        uint32_t choice[EF_FLIGHT_KEEPS + 2][64];
        ef_trip trip;
        choices_of(families, EF_FLIGHT_KEEPS + 2, choice);
        for (uint32_t i = 1; i <= EF_FLIGHT_KEEPS; i++)
            assert_true(isfinite(measured_us(flight, families, choice[i])));
        ef_flight_launch(flight, families, &(ef_trip){.choice = choice[0], .repeat = 1});
        assert_false(ef_flight_land(flight, families, 0.1, &trip));
        ef_flight_cancel(flight);
        assert_int_equal(flight->loose.count, 1);
        assert_true(isfinite(measured_us(flight, families, choice[EF_FLIGHT_KEEPS + 1]))); /* when that has ended */
        uint64_t before = flight->number;
        assert_true(flight->loose.count == 1 && flight->loose.at[0].artifact);
        if (end) {
            ef_flight_end_loose(flight);
            assert_int_equal(flight->loose.count, 0);
        }
        assert_true(isfinite(measured_us(flight, families, choice[0])));
        assert_int_equal(flight->number, before + (end ? 2 : 1));
        ef_flight_free(flight);
        ef_families_free(families);
        close_setting(&s);
    }
}

/* What nobody waits for any more does not hold up what comes after it. */
static void test_loose_compilation(void **state)
{
    (void)state;
    setting s = open_setting("endless compiler");
    s.device.quiet = true;
    ef_families *families = few_families(&s);
    const ef_family *family = &families->list.at[0];
    uint32_t other[64], changed = 0;
    memcpy(other, family->start, family->graph->params.count * sizeof *other);
    while (family->values[changed] < 2)
        changed++;
    other[changed] = (other[changed] + 1) % family->values[changed];
    ef_flight *flight = ready_flight(&s);
    ef_trip trip;
    ef_flight_launch(flight, families, &(ef_trip){.choice = family->start, .repeat = 1});
    assert_false(ef_flight_land(flight, families, 0.1, &trip));
    ef_flight_cancel(flight);
    ef_flight_launch(flight, families, &(ef_trip){.choice = other, .repeat = 1});
    ef_flight_end_loose(flight);
    assert_true(ef_flight_land(flight, families, 10, &trip));
    assert_true(isfinite(trip.us) && trip.choice == other);
    ef_flight_free(flight);
    ef_families_free(families);
    close_setting(&s);
}

/* The program as it is is compiled while it is prepared, and is not compiled again however often it is launched. */
static void test_compiled_ahead(void **state)
{
    (void)state;
    setting s = open_setting("patient");
    assert_true(optimum_of(&s, &(ef_optimize_options){.budget_s = 4, .compilers = 2, .limit = 3}).measured > 0);
    ef_pool_free(s.pool);
    ef_diag diag = {0};
    ef_trip trip;
    ef_families *families = few_families(&s);
    s.pool = ef_device_pool(&s.device, 1, &diag);
    ef_flight *flight = ef_flight_new(s.program, &s.device, s.pool, 1, 1, 0, &diag);
    ef_flight_compile(flight, families, 0, families->list.at[0].start);
    while (!ef_flight_ready(flight, 1, &diag))
        assert_false(diag.failed);
    for (int i = 0; i < 3; i++) {
        ef_flight_launch(flight, families, &(ef_trip){.choice = families->list.at[0].start, .repeat = 1});
        assert_true(ef_flight_land(flight, families, 10, &trip));
        assert_true(isfinite(trip.us));
        ef_flight_cancel(flight);
    }
    assert_int_equal(flight->number, 4); /* one compilation, three measurements */
    ef_flight_free(flight);
    ef_families_free(families);
    close_setting(&s);
}

static ef_trip only_trip(const char *worker)
{
    ef_trip trip;
    setting s = open_setting(worker);
    ef_families *families = few_families(&s);
    assert_int_equal(families->list.at[0].graph->kernels.count, 2);
    ef_flight *flight = ready_flight(&s);
    ef_flight_launch(flight, families, &(ef_trip){.choice = families->list.at[0].start, .repeat = 1});
    assert_true(ef_flight_land(flight, families, 10, &trip));
    ef_flight_free(flight);
    ef_families_free(families);
    close_setting(&s);
    static double some;
    trip.kernel_us = trip.kernel_us ? &some : NULL; /* which was the flight's */
    return trip;
}

/* That a tensor has no place in the device's memory is not for want of room for tiles. */
static void test_exhausted(void **state)
{
    (void)state;
    ef_trip trip = only_trip("exhausted");
    assert_true(isinf(trip.us) && !trip.no_room);
}

/* A kernel that took no time was not measured. */
static void test_times(void **state)
{
    (void)state;
    assert_non_null(only_trip("timed").kernel_us);
    assert_null(only_trip("timed badly").kernel_us);
}

/* ---- too little time ---- */

static double hour(const ef_program *program, const ef_device *device)
{
    (void)program, (void)device;
    return 3600;
}

static double no_time(const ef_program *program, const ef_device *device)
{
    (void)program, (void)device;
    return 0;
}

/* What cannot be checked in time is not begun with, and it is said what it would take. */
static void test_too_short(void **state)
{
    ef_diag diag = {0};
    ef_optimum o;
    (void)state;
    setting s = open_setting("endless");
    s.device.reference_s = hour;
    ef_optimize_options options = {.budget_s = 2, .compilers = 1};
    assert_false(ef_optimize(s.program, &s.device, &s.pool, s.store, &options, s.arena, &o, &diag));
    assert_null(s.pool);
    assert_non_null(strstr(diag.text, "a budget of 2 s is too short for two"));
    assert_non_null(strstr(diag.text, "about 3600 s"));
    close_setting(&s);
}

static double first_s, other_s; /* of the programs that are called two, and others */

static double known_time(const ef_program *program, const ef_device *device)
{
    (void)device;
    return strcmp(program->name, "two") == 0 ? first_s : other_s;
}

static const char other_text[] = "program other\n"
                                 "dim m = 512\ndim n = 512\n"
                                 "input x: f32[m, n]\n"
                                 "y = cast[f16](exp(x))\n"
                                 "output z = reduce[max, -1](mul(y, y))\n";

/* Of a module of the setting's program and another one, of as much work. */
static ef_module_summary summary_of_two(setting *s, const ef_optimize_options *options)
{
    ef_diag diag = {0};
    ef_module_summary summary;
    ef_program *program = ef_program_parse(s->ctx, other_text, strlen(other_text), "other", &diag);
    ef_module *module = ef_module_of_program(s->program, &diag), *other = ef_module_of_program(program, &diag);
    ef_module both = *module;
    both.steps = both.regions = 2;
    both.step = (const ef_mstep[]){module->step[0], other->step[0]};
    ef_plan *plan = ef_optimize_module(&both, &s->device, s->store, options, &summary, &diag);
    if (!plan)
        fail_msg("%s", diag.text);
    summary.message = summary.message ? ef_arena_strndup(s->arena, summary.message, strlen(summary.message)) : "";
    ef_plan_free(plan);
    ef_module_free(other);
    ef_module_free(module);
    ef_program_free(program);
    return summary;
}

/* A region may take more than its share of a module's budget, as far as there is more. */
static void test_share_too_short(void **state)
{
    (void)state;
    setting s = open_setting("measured");
    s.device.reference_s = known_time;
    first_s = other_s = 6; /* twice the shares */
    ef_module_summary summary =
        summary_of_two(&s, &(ef_optimize_options){.budget_s = 6, .compilers = 1, .limit = 3, .unmeasured = true});
    assert_string_equal(summary.message, "");
    assert_int_equal(summary.kept, 0);
    close_setting(&s);
}

/* It is the budget that is named, not a region's share. */
static void test_module_too_short(void **state)
{
    (void)state;
    setting s = open_setting("measured");
    s.device.reference_s = known_time;
    first_s = other_s = 3600;
    ef_module_summary summary =
        summary_of_two(&s, &(ef_optimize_options){.budget_s = 6, .compilers = 1, .unmeasured = true});
    assert_int_equal(summary.kept, 2);
    assert_non_null(strstr(summary.message, "a budget of 6 s is too short for two: "));
    assert_non_null(strstr(summary.message, "a budget of 6 s is too short for other: "));
    assert_null(strstr(summary.message, "left"));
    close_setting(&s);
}

/* It goes by what others have left of it. */
static void test_rest_too_short(void **state)
{
    ef_diag diag = {0};
    ef_optimum o;
    (void)state;
    setting s = open_setting("measured");
    ef_optimize_options options = {
        .budget_s = 2, .whole_s = 20, .left_s = 4, .compilers = 1, .limit = 3, .plain = true};
    s.device.reference_s = known_time;
    first_s = 15;
    assert_false(ef_optimize(s.program, &s.device, &s.pool, s.store, &options, s.arena, &o, &diag));
    assert_non_null(strstr(diag.text, "a budget of 20 s is too short for two: "));
    assert_non_null(strstr(diag.text, "about 15 s, and 4 s of it are left"));
    options.left_s = 10;
    assert_int_equal(optimum_of(&s, &options).measured, 1);
    close_setting(&s);
}

/* What should take a little more than there is may take less: the estimate knows nothing of the machine. */
static void test_estimate_has_a_margin(void **state)
{
    (void)state;
    setting s = open_setting("measured");
    s.device.reference_s = known_time;
    first_s = 5;
    assert_int_equal(optimum_of(&s, &(ef_optimize_options){.budget_s = 2, .compilers = 1, .plain = true}).measured, 1);
    close_setting(&s);
}

static bool until_a_second(void *user, const ef_progress *p)
{
    (void)user;
    return p->elapsed_s < 1;
}

/* The next program need not wait for one that was given up. */
static void test_given_up(void **state)
{
    ef_diag diag = {0};
    ef_optimum o;
    (void)state;
    setting s = open_setting("endless");
    s.device.reference_s = no_time;
    ef_optimize_options options = {.budget_s = 600, .compilers = 1, .progress = until_a_second, .plain = true};
    assert_false(ef_optimize(s.program, &s.device, &s.pool, s.store, &options, s.arena, &o, &diag));
    assert_string_equal(diag.text, "stopped before anything was measured");
    ef_reply reply;
    json_t *request = json_pack("{s:s}", "do", "measure");
    uint64_t job = ef_pool_measure(s.pool, request, 10);
    json_decref(request);
    bool answered = ef_pool_wait(s.pool, 20, &reply);
    assert_true(answered);
    assert_int_equal(reply.job, job);
    json_decref(reply.json);
    close_setting(&s);
}

/* Where there were no more inputs than the program itself needs, candidates are not measured, not even those that
 * earlier runs found. */
static void test_late_worker(void **state)
{
    (void)state;
    setting s = open_setting("unknown"); /* others are as fast as the program itself */
    assert_true(optimum_of(&s, &(ef_optimize_options){.budget_s = 4, .compilers = 2, .limit = 6}).measured > 1);
    ef_pool_free(s.pool);
    s.pool = NULL;
    kind = "late";
    ef_optimum o = optimum_of(&s, &(ef_optimize_options){.budget_s = 4, .compilers = 2});
    assert_int_equal(o.measured, 1);
    assert_true(o.original && !o.stored);
    assert_float_equal(o.us, 100, 1e-6);
    assert_false(optimum_of(&s, &(ef_optimize_options){.budget_s = 4, .compilers = 2}).stored);
    close_setting(&s);
}

static uint32_t refused_param;
static uint64_t refused_value;
static ef_failure refused_for;

static bool print_unless(const ef_kgraph *graph, const ef_schedule *schedule, const char *entry, ef_strbuf *out,
                         ef_diag *diag)
{
    if (schedule->value[refused_param] == refused_value) {
        diag->kind = refused_for;
        return ef_fail(diag, "refused");
    }
    return print_cpu(graph, schedule, entry, out, diag);
}

/* Of a schedule that cannot be printed it is found out which kernel is at fault; the result is there at once. That
 * there is no room is only said of what is too large. */
static void test_unprinted_kernel(void **state)
{
    ef_diag diag = {0};
    ef_trip trip;
    (void)state;
    setting s = open_setting("measured");
    ef_families *families =
        ef_families_new(s.program, &(ef_families_options){.keep = 1, .backend = s.device.backend, .threads = 1}, &diag);
    const ef_family *family = &families->list.at[0];
    uint32_t choice[64], last = family->graph->params.count;
    memcpy(choice, family->start, last * sizeof *choice);
    while (family->values[--last] < 2) { /* of the last kernel that has a choice */
    }
    choice[last] = (choice[last] + 1) % family->values[last];
    refused_param = last;
    refused_value = family->domain[last][choice[last]];
    s.device.print = print_unless;
    s.pool = ef_device_pool(&s.device, 1, &diag);
    ef_flight *flight = ef_flight_new(s.program, &s.device, s.pool, 1, 1, 0, &diag);
    while (!ef_flight_ready(flight, 1, &diag))
        assert_false(diag.failed);
    for (int large = 0; large < 2; large++) {
        refused_for = large ? EF_TOO_LARGE : EF_FAILED;
        ef_flight_launch(flight, families, &(ef_trip){.choice = choice, .repeat = 1});
        assert_true(ef_flight_land(flight, families, 0, &trip));
        assert_true(isinf(trip.us) && trip.no_room == large);
        assert_int_equal(trip.guilty, family->owner[last]);
        assert_true(trip.guilty > 0);
    }
    ef_flight_free(flight);
    ef_families_free(families);
    close_setting(&s);
}

int main(int argc, char **argv)
{
    if (argc == 3 && strcmp(argv[1], "--worker") == 0)
        return work(argv[2]);
    ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
    self[length > 0 ? length : 0] = 0;
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_estimate_too_high),
                                       cmocka_unit_test(test_slow_original),
                                       cmocka_unit_test(test_original_without_memory),
                                       cmocka_unit_test(test_pace),
                                       cmocka_unit_test(test_limited),
                                       cmocka_unit_test(test_limited_after_all),
                                       cmocka_unit_test(test_stopped_is_not_done),
                                       cmocka_unit_test(test_nothing_tried_is_not_done),
                                       cmocka_unit_test(test_late_narrow),
                                       cmocka_unit_test(test_early_narrow),
                                       cmocka_unit_test(test_guilty_kernel),
                                       cmocka_unit_test(test_resumed_failures),
                                       cmocka_unit_test(test_compiled_once),
                                       cmocka_unit_test(test_compiled_ahead),
                                       cmocka_unit_test(test_compiled_when_cancelled),
                                       cmocka_unit_test(test_compiled_beside),
                                       cmocka_unit_test(test_loose_compilation),
                                       cmocka_unit_test(test_exhausted),
                                       cmocka_unit_test(test_times),
                                       cmocka_unit_test(test_too_short),
                                       cmocka_unit_test(test_share_too_short),
                                       cmocka_unit_test(test_module_too_short),
                                       cmocka_unit_test(test_rest_too_short),
                                       cmocka_unit_test(test_estimate_has_a_margin),
                                       cmocka_unit_test(test_given_up),
                                       cmocka_unit_test(test_late_worker),
                                       cmocka_unit_test(test_unprinted_kernel)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
