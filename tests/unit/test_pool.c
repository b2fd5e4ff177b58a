/* The pool with workers that misbehave: each fault costs the job that it happened in and nothing else.
 *
 * The worker is this program itself, called with --worker. What it does with a request stands in the request. */
#define _GNU_SOURCE
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "tune/pool.h"

/* ---- the worker ---- */

static const char *text_of(const json_t *request, const char *key)
{
    const char *text = json_string_value(json_object_get(request, key));
    return text ? text : "";
}

static void nap(double seconds)
{
    struct timespec t = {(time_t)seconds, (long)((seconds - (double)(time_t)seconds) * 1e9)};
    nanosleep(&t, NULL);
}

static void misbehave(const char *how)
{
    if (strcmp(how, "crash") == 0)
        raise(SIGKILL); /* sanitizers make exits of other signals */
    if (strcmp(how, "exit") == 0) {
        fprintf(stderr, "first line\nthe reason\n\n");
        exit(3);
    }
    if (strcmp(how, "hang") == 0)
        nap(1000);
    if (strcmp(how, "garbage") == 0)
        puts("this is no JSON");
    if (strcmp(how, "array") == 0)
        puts("[1, 2, 3]");
    if (strcmp(how, "other id") == 0)
        puts("{\"id\": 1, \"ok\": true}");
    if (strcmp(how, "endless") == 0)
        for (char block[65536] = {0}; fwrite(block, 1, sizeof block, stdout);)
            ;
    if (strcmp(how, "half") == 0) {
        printf("{\"id\": ");
        fflush(stdout);
        exit(0);
    }
    if (strcmp(how, "slow") == 0)
        nap(0.3);
}

static int work(const char *kind)
{
    char *line = NULL;
    size_t room = 0;
    bool has_program = false;
    if (strcmp(kind, "dead") == 0)
        return 7;
    setvbuf(stdout, NULL, _IOLBF, 1 << 16);
    while (getline(&line, &room, stdin) > 0) {
        json_t *request = json_loads(line, 0, NULL);
        const char *what = text_of(request, "do"), *how = text_of(request, "how");
        misbehave(how);
        bool ends = strcmp(how, "refuse and end") == 0, refused = ends || strcmp(how, "refuse") == 0;
        bool measures = strcmp(what, "measure") == 0;
        has_program = has_program || strcmp(what, "program") == 0;
        json_t *reply =
            json_pack("{s:O, s:b, s:b, s:I, s:i, s:s}", "id", json_object_get(request, "id"), "ok",
                      !refused && (has_program || !measures), "ends", ends, "length", (json_int_t)strlen(line), "pid",
                      (int)getpid(), "error", refused ? "not today" : "there is no program");
        char *text = json_dumps(reply, JSON_COMPACT);
        puts(text);
        fflush(stdout);
        free(text);
        json_decref(reply);
        json_decref(request);
        if (ends)
            nap(0.3);
        if (ends)
            exit(1);
    }
    free(line);
    return 0;
}

/* ---- the tests ---- */

static char self[4096];

static ef_pool *open_pool(const char *kind, unsigned compilers, bool quiet)
{
    ef_diag diag = {0};
    const char *argv[] = {self, "--worker", kind, NULL};
    ef_pool *pool = ef_pool_new(&(ef_pool_options){argv, compilers, quiet, 5}, &diag);
    memset(argv, 0, sizeof argv); /* the pool has a copy */
    assert_non_null(pool);
    return pool;
}

typedef uint64_t (*sender)(ef_pool *pool, json_t *request, double timeout);

static uint64_t send_request(ef_pool *pool, sender to, const char *what, const char *how, double timeout)
{
    json_t *request = json_pack("{s:s, s:s}", "do", what, "how", how);
    uint64_t id = to(pool, request, timeout);
    json_decref(request);
    return id;
}

static uint64_t compile(ef_pool *pool, const char *how)
{
    return send_request(pool, ef_pool_compile, "compile", how, 2);
}

static uint64_t measure(ef_pool *pool, const char *how)
{
    return send_request(pool, ef_pool_measure, "measure", how, 2);
}

/* The reply to a job; those to others are dropped. */
static ef_reply_status reply_to(ef_pool *pool, uint64_t job, char *error)
{
    ef_reply reply;
    for (;;) {
        assert_true(ef_pool_wait(pool, 30, &reply));
        json_decref(reply.json);
        if (reply.job != job)
            continue;
        if (error)
            snprintf(error, sizeof reply.error, "%s", reply.error);
        return reply.status;
    }
}

static const char *const faults[] = {"crash", "exit", "hang", "garbage", "array", "other id", "endless", "half"};
#define FAULTS (sizeof faults / sizeof *faults)

static void test_jobs(void **state)
{
    ef_pool *pool = open_pool("good", 3, false);
    uint64_t program = send_request(pool, ef_pool_program, "program", "", 5), job[40];
    (void)state;
    assert_int_equal(reply_to(pool, program, NULL), EF_REPLY_FINE);
    assert_non_null(ef_pool_hello(pool));
    for (int i = 0; i < 40; i++)
        job[i] = i % 2 ? measure(pool, "") : compile(pool, "");
    int fine = 0;
    ef_reply reply;
    for (int i = 0; i < 40; i++) {
        assert_true(ef_pool_wait(pool, 30, &reply));
        fine += reply.status == EF_REPLY_FINE && reply.job >= job[0] && reply.job <= job[39];
        json_decref(reply.json);
    }
    assert_int_equal(fine, 40);
    assert_false(ef_pool_wait(pool, 0.05, &reply));
    assert_int_equal(ef_pool_replaced(pool), 0);
    ef_pool_free(pool);
}

/* Requests and replies that fill the socket's buffers. */
static void test_long_lines(void **state)
{
    ef_pool *pool = open_pool("good", 1, false);
    size_t length = 3000000;
    char *text = malloc(length + 1);
    ef_reply reply;
    (void)state;
    memset(text, 'x', length);
    text[length] = 0;
    json_t *request = json_pack("{s:s, s:s}", "do", "compile", "source", text);
    ef_pool_compile(pool, request, 20);
    json_decref(request);
    assert_true(ef_pool_wait(pool, 30, &reply));
    assert_int_equal(reply.status, EF_REPLY_FINE);
    assert_true(json_integer_value(json_object_get(reply.json, "length")) > (json_int_t)length);
    json_decref(reply.json);
    free(text);
    ef_pool_free(pool);
}

static void test_refusals(void **state)
{
    char error[256];
    ef_pool *pool = open_pool("good", 1, false);
    (void)state;
    assert_int_equal(reply_to(pool, compile(pool, "refuse"), error), EF_REPLY_REFUSED);
    assert_string_equal(error, "not today");
    assert_int_equal(reply_to(pool, measure(pool, ""), error), EF_REPLY_REFUSED);
    assert_string_equal(error, "there is no program");
    assert_int_equal(ef_pool_replaced(pool), 0);
    ef_pool_free(pool);
}

/* The fault's own job is lost; the next one is done by a new worker, which holds the program again. */
static void test_faults_while_measuring(void **state)
{
    char error[256];
    ef_pool *pool = open_pool("good", 1, false);
    (void)state;
    assert_int_equal(reply_to(pool, send_request(pool, ef_pool_program, "program", "", 5), NULL), EF_REPLY_FINE);
    for (unsigned i = 0; i < FAULTS; i++) {
        uint64_t bad = measure(pool, faults[i]), good = measure(pool, "");
        assert_int_equal(reply_to(pool, bad, error), EF_REPLY_LOST);
        assert_int_equal(reply_to(pool, good, NULL), EF_REPLY_FINE);
        assert_int_equal(ef_pool_replaced(pool), i + 1);
        if (i == 0)
            assert_non_null(strstr(error, "signal 9"));
        if (i == 1)
            assert_non_null(strstr(error, "exit 3: the reason"));
        if (i == 2)
            assert_non_null(strstr(error, "in time"));
    }
    assert_null(ef_pool_broken(pool));
    ef_pool_free(pool);
}

/* One that says that it ends gets nothing more: only what it refused is lost. */
static void test_last_replies(void **state)
{
    char error[256];
    ef_pool *pool = open_pool("good", 1, false);
    (void)state;
    assert_int_equal(reply_to(pool, send_request(pool, ef_pool_program, "program", "", 5), NULL), EF_REPLY_FINE);
    for (unsigned i = 0; i < 3; i++) {
        uint64_t bad = measure(pool, "refuse and end"), good = measure(pool, "");
        assert_int_equal(reply_to(pool, bad, error), EF_REPLY_REFUSED);
        assert_non_null(strstr(error, "not today"));
        assert_int_equal(reply_to(pool, good, NULL), EF_REPLY_FINE);
        assert_int_equal(ef_pool_replaced(pool), i + 1);
    }
    assert_null(ef_pool_broken(pool));
    ef_pool_free(pool);
}

static void test_faults_while_compiling(void **state)
{
    ef_pool *pool = open_pool("good", 2, true);
    ef_reply reply;
    uint64_t bad[FAULTS], first;
    (void)state;
    assert_int_equal(reply_to(pool, send_request(pool, ef_pool_program, "program", "", 5), NULL), EF_REPLY_FINE);
    unsigned lost = 0, fine = 0;
    for (unsigned i = 0; i < FAULTS; i++) {
        bad[i] = compile(pool, faults[i]);
        compile(pool, "");
        measure(pool, "");
    }
    first = bad[0];
    for (unsigned i = 0; i < 3 * FAULTS; i++) {
        assert_true(ef_pool_wait(pool, 30, &reply));
        lost += reply.status == EF_REPLY_LOST && (reply.job - first) % 3 == 0;
        fine += reply.status == EF_REPLY_FINE;
        json_decref(reply.json);
    }
    assert_int_equal(lost, FAULTS);
    assert_int_equal(fine, 2 * FAULTS);
    ef_pool_free(pool);
}

/* A program that takes every worker down ends the run, with a reason, instead of repeating for ever. */
static void test_hopeless(void **state)
{
    char error[256];
    (void)state;
    ef_pool *pool = open_pool("good", 1, false);
    assert_int_equal(reply_to(pool, send_request(pool, ef_pool_program, "program", "crash", 5), error), EF_REPLY_LOST);
    assert_non_null(strstr(error, "signal 9"));
    assert_non_null(ef_pool_broken(pool));
    assert_int_equal(reply_to(pool, measure(pool, ""), NULL), EF_REPLY_LOST);
    ef_pool_free(pool);
    pool = open_pool("dead", 2, false);
    assert_int_equal(reply_to(pool, compile(pool, ""), error), EF_REPLY_LOST);
    assert_non_null(strstr(error, "exit 7"));
    ef_pool_free(pool);
    static const char *const nothing[] = {"/nonexistent/worker", NULL};
    ef_diag diag = {0};
    pool = ef_pool_new(&(ef_pool_options){nothing, 1, false, 1}, &diag);
    assert_int_equal(reply_to(pool, compile(pool, ""), error), EF_REPLY_LOST);
    assert_non_null(strstr(error, "/nonexistent/worker"));
    ef_pool_free(pool);
}

/* A program that is abandoned holds nothing up: the next one is for a new worker. */
static void test_abandoned_program(void **state)
{
    ef_pool *pool = open_pool("good", 1, false);
    ef_reply reply;
    (void)state;
    assert_int_equal(reply_to(pool, measure(pool, ""), NULL), EF_REPLY_REFUSED); /* it is there */
    send_request(pool, ef_pool_program, "program", "hang", 1000);
    assert_false(ef_pool_wait(pool, 0.3, &reply));
    ef_pool_abandon_program(pool);
    assert_int_equal(reply_to(pool, measure(pool, ""), NULL), EF_REPLY_REFUSED); /* there is no program */
    for (int again = 0; again < 2; again++) {
        assert_int_equal(reply_to(pool, send_request(pool, ef_pool_program, "program", "", 5), NULL), EF_REPLY_FINE);
        ef_pool_abandon_program(pool); /* one that is prepared, and none */
        ef_pool_abandon_program(pool);
    }
    assert_null(ef_pool_broken(pool));
    ef_pool_free(pool);
}

/* While something is measured, those that compile stand still: nothing comes from them, and no time runs out. */
static void test_quiet(void **state)
{
    ef_pool *pool = open_pool("good", 1, true);
    ef_reply reply;
    (void)state;
    assert_int_equal(reply_to(pool, send_request(pool, ef_pool_program, "program", "", 5), NULL), EF_REPLY_FINE);
    assert_int_equal(reply_to(pool, compile(pool, ""), NULL), EF_REPLY_FINE); /* both are there */
    uint64_t slow = send_request(pool, ef_pool_measure, "measure", "slow", 2);
    uint64_t quick = send_request(pool, ef_pool_compile, "compile", "", 0.2);
    assert_true(ef_pool_wait(pool, 10, &reply));
    assert_int_equal(reply.job, slow);
    json_decref(reply.json);
    assert_int_equal(reply_to(pool, quick, NULL), EF_REPLY_FINE);
    ef_pool_free(pool);
}

/* Unless told how many, as many compile as there are processors for this process: it may share the machine. */
static void test_affinity(void **state)
{
    cpu_set_t all, one;
    (void)state;
    assert_int_equal(sched_getaffinity(0, sizeof all, &all), 0);
    int first = 0;
    while (!CPU_ISSET(first, &all))
        first++;
    CPU_ZERO(&one);
    CPU_SET(first, &one);
    assert_int_equal(sched_setaffinity(0, sizeof one, &one), 0);
    ef_pool *pool = open_pool("good", 0, false);
    assert_int_equal(ef_pool_compilers(pool), 1);
    ef_pool_free(pool);
    assert_int_equal(sched_setaffinity(0, sizeof all, &all), 0);
}

/* What workers leave is gone with the pool: processes and files. */
static void test_nothing_is_left(void **state)
{
    ef_reply reply;
    struct stat info;
    char dir[300];
    (void)state;
    ef_pool *pool = open_pool("good", 1, true);
    snprintf(dir, sizeof dir, "%s", ef_pool_directory(pool));
    compile(pool, "");
    assert_true(ef_pool_wait(pool, 10, &reply));
    pid_t pid = (pid_t)json_integer_value(json_object_get(reply.json, "pid"));
    json_decref(reply.json);
    assert_int_equal(kill(pid, 0), 0);
    assert_int_equal(stat(dir, &info), 0);
    ef_pool_free(pool);
    assert_int_equal(kill(pid, 0), -1);
    assert_int_equal(stat(dir, &info), -1);
}

int main(int argc, char **argv)
{
    if (argc == 3 && strcmp(argv[1], "--worker") == 0)
        return work(argv[2]);
    ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
    self[length > 0 ? length : 0] = 0;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_jobs),
        cmocka_unit_test(test_long_lines),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_faults_while_measuring),
        cmocka_unit_test(test_last_replies),
        cmocka_unit_test(test_faults_while_compiling),
        cmocka_unit_test(test_hopeless),
        cmocka_unit_test(test_quiet),
        cmocka_unit_test(test_affinity),
        cmocka_unit_test(test_nothing_is_left),
        cmocka_unit_test(test_abandoned_program),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
