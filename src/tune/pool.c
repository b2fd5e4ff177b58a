/* The pool: see pool.h. One thread, one poll() over all workers. */
#define _GNU_SOURCE
#include "tune/pool.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "support/processors.h"
#include "support/vec.h"
#include "tune/process.h"
#include "tune/scratch.h"

#define MAX_COMPILERS 128u
#define MAX_STRIKES 3u /* deaths in a row while setting up: such a worker will never live */

/* What a worker is doing. Setting up is asking its name and, to measure, giving it the program. */
typedef enum { PHASE_DEAD, PHASE_HELLO, PHASE_PROGRAM, PHASE_IDLE, PHASE_JOB } phase;

typedef struct {
    uint64_t id;
    json_t *request;
    double timeout;
} job;

typedef EF_VEC(job) jobs;

typedef struct {
    ef_process process;
    phase phase;
    bool measures, paused, told; /* told: it holds the current program */
    unsigned strikes;
    job job;         /* PHASE_JOB */
    uint64_t asked;  /* the id of what it was asked */
    double deadline; /* seconds on the monotonic clock */
    char log[320];
} worker;

struct ef_pool {
    ef_pool_options options;
    ef_arena *arena; /* the command line */
    ef_scratch *scratch;
    worker *worker; /* the first one measures */
    unsigned workers, replaced, running;
    jobs compile, measure; /* waiting, oldest first */
    job program;           /* request NULL: none */
    bool program_answered;
    EF_VEC(ef_reply) done;
    uint64_t last;
    json_t *hello;
    char broken[256]; /* why there are no workers any more; "" while there are */
};

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* ---- replies ---- */

static void answer(ef_pool *pool, uint64_t id, ef_reply_status status, json_t *json, const char *error)
{
    ef_reply reply = {.job = id, .status = status, .json = json};
    snprintf(reply.error, sizeof reply.error, "%s", error ? error : "");
    for (char *c = reply.error; *c; c++)
        *c = (unsigned char)*c < 0x20 ? ' ' : *c;
    ef_vec_push(&pool->done, reply);
}

static void finish_job(ef_pool *pool, job *done, ef_reply_status status, json_t *json, const char *error)
{
    answer(pool, done->id, status, json, error);
    json_decref(done->request);
    *done = (job){0};
}

static void answer_program(ef_pool *pool, ef_reply_status status, json_t *json, const char *error)
{
    if (!pool->program_answered)
        answer(pool, pool->program.id, status, json, error);
    else
        json_decref(json);
    pool->program_answered = true;
}

static void drop_all(ef_pool *pool, jobs *waiting)
{
    for (uint32_t i = 0; i < waiting->count; i++)
        finish_job(pool, &waiting->at[i], EF_REPLY_LOST, NULL, pool->broken);
    waiting->count = 0;
}

/* Without a measuring worker, or without any that compiles, nothing can be done. */
static void give_up(ef_pool *pool, const char *why)
{
    if (!pool->broken[0])
        snprintf(pool->broken, sizeof pool->broken, "%s", why);
    drop_all(pool, &pool->compile);
    drop_all(pool, &pool->measure);
    if (pool->program.request)
        answer_program(pool, EF_REPLY_LOST, NULL, pool->broken);
}

/* ---- requests ---- */

static bool ask(ef_pool *pool, worker *w, json_t *request, phase next, double timeout)
{
    w->asked = ++pool->last;
    json_object_set_new(request, "id", json_integer((json_int_t)w->asked));
    char *text = json_dumps(request, JSON_COMPACT);
    bool fine = text && ef_process_write(&w->process, text, strlen(text));
    free(text);
    w->phase = next;
    w->deadline = now() + timeout;
    return fine;
}

static void start(ef_pool *pool, worker *w)
{
    ef_diag diag = {0};
    w->told = w->paused = false;
    if (!ef_process_start(&w->process, pool->options.command, w->log, ef_scratch_path(pool->scratch), &diag)) {
        w->phase = PHASE_DEAD;
        w->strikes = MAX_STRIKES;
        give_up(pool, diag.text);
        return;
    }
    json_t *hello = json_pack("{s:s, s:s}", "do", "hello", "role", w->measures ? "measure" : "compile");
    ask(pool, w, hello, PHASE_HELLO, pool->options.start_s);
    json_decref(hello);
}

static bool blank(const char *text)
{
    while (*text == ' ' || *text == '\t' || *text == '\n')
        text++;
    return !*text;
}

/* The last line that the worker left on its standard error, cut to fit. */
static void last_words(const worker *w, char *line, size_t room)
{
    char text[512];
    FILE *file = fopen(w->log, "r");
    line[0] = 0;
    if (!file)
        return;
    if (fseek(file, -8192, SEEK_END) != 0 && fseek(file, 0, SEEK_SET) != 0)
        text[0] = 0;
    while (fgets(text, sizeof text, file))
        if (!blank(text))
            snprintf(line, room, "%.*s", (int)(strcspn(text, "\n") < room ? strcspn(text, "\n") : room - 1), text);
    fclose(file);
}

static const char too_late[] = "did not answer in time";

/* A worker is no more: what it was doing is lost, and another takes its place unless that is hopeless. */
static void lose(ef_pool *pool, worker *w, const char *what)
{
    char how[80] = "", words[120] = "", why[256];
    ef_process_end(&w->process, what ? NULL : how, sizeof how);
    last_words(w, words, sizeof words);
    snprintf(why, sizeof why, "the worker %s%s%s%s", what ? what : "was ended by ", how, words[0] ? ": " : "", words);
    if (w->phase == PHASE_JOB) {
        finish_job(pool, &w->job, EF_REPLY_LOST, NULL, why);
        pool->done.at[pool->done.count - 1].late = what == too_late;
    }
    w->strikes = w->phase == PHASE_JOB || w->phase == PHASE_IDLE ? 0 : w->strikes + 1;
    w->phase = PHASE_DEAD;
    if (w->strikes < MAX_STRIKES) {
        pool->replaced++;
        start(pool, w);
        return;
    }
    pool->running--;
    if (w->measures || pool->running < 2)
        give_up(pool, why);
}

/* ---- handing out jobs ---- */

static bool take(jobs *waiting, job *next)
{
    if (waiting->count == 0)
        return false;
    *next = waiting->at[0];
    memmove(waiting->at, waiting->at + 1, --waiting->count * sizeof *next);
    return true;
}

static void set_pause(ef_pool *pool, bool pause)
{
    for (unsigned i = 1; i < pool->workers; i++) {
        worker *w = &pool->worker[i];
        if (w->paused == pause || w->phase == PHASE_DEAD)
            continue;
        ef_process_pause(&w->process, pause);
        w->paused = pause;
        w->deadline += pause ? -now() : now(); /* while paused: what is left */
    }
}

/* The measuring worker comes first: while it is at work in a quiet pool, nobody gets anything to compile. */
static void hand_out(ef_pool *pool)
{
    bool measuring = false;
    for (unsigned i = 0; i < pool->workers; i++) {
        worker *w = &pool->worker[i];
        bool rest = w->paused || (measuring && pool->options.quiet);
        bool fine = true;
        if (w->phase == PHASE_IDLE && w->measures && pool->program.request && !w->told)
            fine = ask(pool, w, pool->program.request, PHASE_PROGRAM, pool->program.timeout);
        else if (w->phase == PHASE_IDLE && !rest && take(w->measures ? &pool->measure : &pool->compile, &w->job))
            fine = ask(pool, w, w->job.request, PHASE_JOB, w->job.timeout);
        if (!fine)
            lose(pool, w, NULL);
        measuring = measuring || (w->measures && w->phase == PHASE_JOB);
    }
    if (pool->options.quiet)
        set_pause(pool, measuring);
}

/* ---- hearing from workers ---- */

static const char *error_of(const json_t *reply)
{
    const char *text = json_string_value(json_object_get(reply, "error"));
    return text ? text : "no reason given";
}

/* Takes over the reference to `reply`. */
static void heard(ef_pool *pool, worker *w, json_t *reply)
{
    bool ok = json_is_true(json_object_get(reply, "ok")), ends = json_is_true(json_object_get(reply, "ends"));
    ef_reply_status status = ok ? EF_REPLY_FINE : EF_REPLY_REFUSED;
    const char *error = ok ? NULL : error_of(reply);
    phase was = w->phase;
    if (was == PHASE_HELLO && !ok) {
        json_decref(reply);
        lose(pool, w, "cannot start");
        return;
    }
    w->phase = PHASE_IDLE;
    if (was != PHASE_HELLO || !w->measures) /* the program may be what kills it, again and again */
        w->strikes = 0;
    if (was == PHASE_JOB) {
        finish_job(pool, &w->job, status, reply, error);
    } else if (was == PHASE_PROGRAM) {
        w->told = true;
        answer_program(pool, status, reply, error);
    } else if (w->measures && !pool->hello) {
        pool->hello = reply;
    } else {
        json_decref(reply);
    }
    if (ends) /* it gets nothing more, which would be lost with it */
        lose(pool, w, "has lost its device");
}

static void listen_to(ef_pool *pool, worker *w)
{
    size_t length;
    bool there = ef_process_receive(&w->process);
    const char *line = ef_process_line(&w->process, &length);
    if (!line) {
        if (!there)
            lose(pool, w, NULL);
        return;
    }
    json_t *reply = json_loadb(line, length, 0, NULL);
    bool expected = w->phase == PHASE_HELLO || w->phase == PHASE_PROGRAM || w->phase == PHASE_JOB;
    json_int_t id = json_integer_value(json_object_get(reply, "id"));
    if (!expected || !json_is_object(reply) || id != (json_int_t)w->asked) {
        json_decref(reply);
        lose(pool, w, "answered nonsense");
        return;
    }
    heard(pool, w, reply);
}

static void check_time(ef_pool *pool, worker *w)
{
    bool waits = w->phase == PHASE_HELLO || w->phase == PHASE_PROGRAM || w->phase == PHASE_JOB;
    if (waits && !w->paused && now() > w->deadline)
        lose(pool, w, too_late);
}

static void poll_workers(ef_pool *pool, double seconds)
{
    struct pollfd fd[MAX_COMPILERS + 1];
    for (unsigned i = 0; i < pool->workers; i++) {
        worker *w = &pool->worker[i];
        short events = w->process.out.length ? POLLIN | POLLOUT : POLLIN;
        fd[i] = (struct pollfd){.fd = w->phase == PHASE_DEAD ? -1 : w->process.fd, .events = events};
        if (!w->paused && w->phase != PHASE_DEAD && w->phase != PHASE_IDLE && w->deadline - now() < seconds)
            seconds = w->deadline - now() > 0 ? w->deadline - now() + 0.001 : 0;
    }
    if (poll(fd, pool->workers, (int)(seconds * 1000 + 0.999)) < 0)
        return; /* interrupted: the caller looks at its flags */
    for (unsigned i = 0; i < pool->workers; i++) {
        worker *w = &pool->worker[i];
        if (fd[i].fd < 0)
            continue;
        if (fd[i].revents & POLLOUT && !ef_process_send(&w->process))
            lose(pool, w, NULL);
        else if (fd[i].revents & (POLLIN | POLLHUP | POLLERR))
            listen_to(pool, w);
        else
            check_time(pool, w);
    }
}

/* ---- the pool ---- */

/* The worker that is at a compilation; NULL: none is. */
static worker *compiler_of(const ef_pool *pool, uint64_t id)
{
    for (unsigned i = 1; i < pool->workers; i++)
        if (pool->worker[i].phase == PHASE_JOB && pool->worker[i].job.id == id)
            return &pool->worker[i];
    return NULL;
}

bool ef_pool_compiles(const ef_pool *pool, uint64_t id)
{
    return compiler_of(pool, id) != NULL;
}

void ef_pool_abandon(ef_pool *pool, uint64_t id)
{
    worker *w = compiler_of(pool, id);
    if (!w)
        return;
    ef_process_end(&w->process, NULL, 0);
    json_decref(w->job.request);
    w->job = (job){0};
    start(pool, w);
}

void ef_pool_abandon_program(ef_pool *pool)
{
    worker *w = &pool->worker[0];
    json_decref(pool->program.request);
    pool->program = (job){0};
    pool->program_answered = true;
    if (w->phase != PHASE_PROGRAM)
        return;
    ef_process_end(&w->process, NULL, 0);
    start(pool, w);
}

static const char *const *copy_command(ef_arena *arena, const char *const *command)
{
    size_t count = 0;
    while (command[count])
        count++;
    const char **copy = ef_arena_alloc(arena, (count + 1) * sizeof *copy);
    for (size_t i = 0; i < count; i++)
        copy[i] = ef_arena_strndup(arena, command[i], strlen(command[i]));
    return copy;
}

ef_pool *ef_pool_new(const ef_pool_options *options, ef_diag *diag)
{
    ef_scratch *scratch = ef_scratch_new(diag);
    if (!scratch)
        return NULL;
    ef_pool *pool = ef_xcalloc(1, sizeof *pool);
    unsigned compilers = options->compilers ? options->compilers : ef_processors();
    pool->options = *options;
    pool->arena = ef_arena_new();
    pool->options.command = copy_command(pool->arena, options->command);
    pool->options.start_s = options->start_s > 0 ? options->start_s : 120;
    pool->scratch = scratch;
    pool->workers = pool->running = 1 + (compilers < MAX_COMPILERS ? compilers : MAX_COMPILERS);
    pool->worker = ef_xcalloc(pool->workers, sizeof *pool->worker);
    for (unsigned i = 0; i < pool->workers; i++) {
        worker *w = &pool->worker[i];
        w->process.fd = -1;
        w->measures = i == 0;
        snprintf(w->log, sizeof w->log, "%s/worker-%u.log", ef_scratch_path(scratch), i);
        start(pool, w);
    }
    return pool;
}

void ef_pool_drop(ef_pool *pool)
{
    for (uint32_t i = 0; i < pool->compile.count; i++)
        json_decref(pool->compile.at[i].request);
    for (uint32_t i = 0; i < pool->measure.count; i++)
        json_decref(pool->measure.at[i].request);
    pool->compile.count = pool->measure.count = 0;
}

void ef_pool_free(ef_pool *pool)
{
    if (!pool)
        return;
    for (unsigned i = 0; i < pool->workers; i++) {
        ef_process_end(&pool->worker[i].process, NULL, 0);
        json_decref(pool->worker[i].job.request);
    }
    ef_pool_drop(pool);
    for (uint32_t i = 0; i < pool->done.count; i++)
        json_decref(pool->done.at[i].json);
    json_decref(pool->program.request);
    json_decref(pool->hello);
    ef_vec_free(&pool->compile);
    ef_vec_free(&pool->measure);
    ef_vec_free(&pool->done);
    free(pool->worker);
    ef_arena_free(pool->arena);
    ef_scratch_free(pool->scratch);
    free(pool);
}

const char *ef_pool_directory(const ef_pool *pool)
{
    return ef_scratch_path(pool->scratch);
}

static uint64_t enqueue(ef_pool *pool, jobs *waiting, json_t *request, double timeout)
{
    job added = {++pool->last, json_incref(request), timeout};
    uint64_t id = added.id;
    if (pool->broken[0])
        finish_job(pool, &added, EF_REPLY_LOST, NULL, pool->broken);
    else
        ef_vec_push(waiting, added);
    return id;
}

uint64_t ef_pool_compile(ef_pool *pool, json_t *request, double timeout)
{
    return enqueue(pool, &pool->compile, request, timeout);
}

uint64_t ef_pool_measure(ef_pool *pool, json_t *request, double timeout)
{
    return enqueue(pool, &pool->measure, request, timeout);
}

uint64_t ef_pool_program(ef_pool *pool, json_t *request, double timeout)
{
    json_decref(pool->program.request);
    pool->program = (job){++pool->last, json_incref(request), timeout};
    pool->program_answered = false;
    pool->worker[0].told = false;
    if (pool->broken[0])
        answer_program(pool, EF_REPLY_LOST, NULL, pool->broken);
    return pool->program.id;
}

bool ef_pool_wait(ef_pool *pool, double seconds, ef_reply *reply)
{
    double until = now() + seconds;
    for (;;) {
        hand_out(pool);
        if (pool->done.count) {
            *reply = pool->done.at[0];
            memmove(pool->done.at, pool->done.at + 1, --pool->done.count * sizeof *reply);
            return true;
        }
        double left = until - now();
        if (left <= 0 && seconds > 0)
            return false;
        poll_workers(pool, left > 0 ? left : 0);
        if (left <= 0 && pool->done.count == 0)
            return false;
    }
}

const char *ef_pool_broken(const ef_pool *pool)
{
    return pool->broken[0] ? pool->broken : NULL;
}

const json_t *ef_pool_hello(const ef_pool *pool)
{
    return pool->hello;
}

unsigned ef_pool_compilers(const ef_pool *pool)
{
    return pool->workers - 1;
}

unsigned ef_pool_replaced(const ef_pool *pool)
{
    return pool->replaced;
}
