/* The CPU worker: see worker.h. */
#define _GNU_SOURCE /* dup3 */
#include "tune/worker.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "support/deepstack.h"
#include "support/processors.h"
#include "tune/bench.h"
#include "tune/identity.h"

#define GRACE_S 2 /* after the end of the input, for the requests that were read */

typedef struct {
    uint32_t threads;
    int out; /* where replies go: what a program prints must not get between them */
    ef_bench *bench;
} server;

/* ---- lines, read by a thread of their own so that the end is seen whatever happens ---- */

typedef struct line {
    struct line *next;
    char *text;
} line;

static struct {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    line *first, **last;
    bool ended;
} input = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, NULL, &input.first, false};

static void *read_lines(void *unused)
{
    char *text = NULL;
    size_t room = 0;
    (void)unused;
    while (getline(&text, &room, stdin) > 0) {
        line *read = ef_xcalloc(1, sizeof *read);
        read->text = text;
        text = NULL;
        room = 0;
        pthread_mutex_lock(&input.lock);
        *input.last = read;
        input.last = &read->next;
        pthread_cond_signal(&input.changed);
        pthread_mutex_unlock(&input.lock);
    }
    free(text);
    pthread_mutex_lock(&input.lock);
    input.ended = true;
    pthread_cond_signal(&input.changed);
    pthread_mutex_unlock(&input.lock);
    nanosleep(&(struct timespec){.tv_sec = GRACE_S}, NULL);
    if (getpgrp() == getpid()) /* the pool started it so: compilers that still run end as well */
        kill(0, SIGKILL);
    _exit(1);
}

/* The next line, freed by the caller; NULL at the end. */
static char *next_line(void)
{
    char *text = NULL;
    pthread_mutex_lock(&input.lock);
    while (!input.first && !input.ended)
        pthread_cond_wait(&input.changed, &input.lock);
    line *read = input.first;
    if (read) {
        input.first = read->next;
        if (!input.first)
            input.last = &input.first;
        text = read->text;
        free(read);
    }
    pthread_mutex_unlock(&input.lock);
    return text;
}

/* ---- requests ---- */

static const char *text_of(const json_t *request, const char *key)
{
    const char *text = json_string_value(json_object_get(request, key));
    return text ? text : "";
}

static json_t *refuse(const char *status, const char *error)
{
    return json_pack("{s:b, s:s, s:s?}", "ok", 0, "status", status, "error", error[0] ? error : "unknown");
}

static json_t *hello(server *s)
{
    double memory = (double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGESIZE);
    char device[200], compiler[200];
    ef_identity_cpu(s->threads, device, sizeof device);
    ef_identity_compiler(compiler, sizeof compiler);
    return json_pack("{s:b, s:s, s:{s:s, s:s}, s:I}", "ok", 1, "device", device, "versions", "equiforge",
                     EQUIFORGE_VERSION, "cc", compiler, "memory", (json_int_t)memory);
}

/* A hook for tests: EQUIFORGE_TEST_FAULT=FAULT@N makes the N-th candidate that this process compiles a faulty one, so
 * that the fault happens where a real one would. */
static const char *fault_of(uint64_t number)
{
    static const struct {
        const char *name, *body;
    } faults[] = {{"crash", "*(volatile int *)8 = 1;"},
                  {"hang", "for (volatile int i = 1; i;) {}"},
                  {"exit", "_Exit(0);"},
                  {"noise", "for (int i = 0; i < 9; i++) puts(\"{}\");"},
                  {"wrong", "memset(out[0], 1, 1);"},
                  {"compile", "this is no C;"}};
    const char *told = getenv("EQUIFORGE_TEST_FAULT"), *at = told ? strchr(told, '@') : NULL;
    if (!at || strtoull(at + 1, NULL, 10) != number)
        return NULL;
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++)
        if (strlen(faults[i].name) == (size_t)(at - told) && strncmp(faults[i].name, told, (size_t)(at - told)) == 0)
            return faults[i].body;
    return NULL;
}

static void print_fault(const char *body, const char *entry, ef_strbuf *out)
{
    ef_strbuf_printf(out,
                     "#include <stdint.h>\n#include <stdio.h>\n#include <stdlib.h>\n#include <string.h>\n"
                     "void %s(void *const *in, void *const *out, char *work, int threads) { %s }\n"
                     "const uint64_t %s_work = 64;\n",
                     entry, body, entry);
}

static json_t *compile(const json_t *request)
{
    static uint64_t compiled;
    ef_diag diag = {0};
    ef_strbuf faulty = {0};
    const char *source = text_of(request, "source"), *dir = text_of(request, "dir"), *key = text_of(request, "key");
    const char *fault = fault_of(++compiled);
    char path[512];
    if (fault) {
        print_fault(fault, text_of(request, "entry"), &faulty);
        source = faulty.text;
    }
    bool fine = ef_compile_to(source, strlen(source), &(ef_compile_options){.level = 3}, dir, key, &diag);
    ef_strbuf_free(&faulty);
    if (!fine)
        return refuse("compile", diag.text);
    snprintf(path, sizeof path, "%s/%s.so", dir, key);
    return json_pack("{s:b, s:s}", "ok", 1, "artifact", path);
}

static json_t *program(server *s, const json_t *request)
{
    ef_diag diag = {0};
    ef_bench_baseline base = {0};
    const char *text = text_of(request, "reference");
    ef_bench_options options = {.text = text, .length = strlen(text), .threads = s->threads};
    options.seed = (uint64_t)json_integer_value(json_object_get(request, "seed"));
    options.seconds = json_number_value(json_object_get(request, "seconds"));
    options.end_s = json_number_value(json_object_get(request, "end"));
    options.known_us = json_number_value(json_object_get(request, "eager_us"));
    ef_bench_free(s->bench);
    s->bench = ef_bench_new(&options, &base, &diag);
    if (!s->bench)
        return refuse("exhausted", diag.text);
    json_t *errors = json_array();
    for (uint32_t d = 0; d < base.draws; d++)
        json_array_append_new(errors, json_real(base.error[d] <= 1e300 ? base.error[d] : 1e300));
    return json_pack("{s:b, s:f, s:o, s:f, s:f, s:b, s:b}", "ok", 1, "eager_us", base.us, "eager_error", errors,
                     "bandwidth", base.bandwidth, "sample", base.sample, "estimated", base.estimated, "late",
                     base.late);
}

static json_t *measure(server *s, const json_t *request)
{
    static const char *const names[] = {"fine", "wrong", "launch", "exhausted"};
    ef_diag diag = {0};
    ef_bench_timing t;
    if (!s->bench)
        return refuse("launch", "there is no program yet");
    ef_bench_how how = {.repeat = (uint32_t)json_integer_value(json_object_get(request, "repeat")),
                        .seconds = json_number_value(json_object_get(request, "seconds")),
                        .best_us = json_number_value(json_object_get(request, "best_us")),
                        .check = (uint32_t)json_integer_value(json_object_get(request, "check")),
                        .kernels = json_is_true(json_object_get(request, "kernels")),
                        .against = json_is_true(json_object_get(request, "against"))};
    ef_bench_status status =
        ef_bench_measure(s->bench, text_of(request, "artifact"), text_of(request, "entry"), &how, &t, &diag);
    if (status != EF_BENCH_FINE)
        return refuse(names[status], diag.text);
    json_t *kernels = json_array();
    for (uint32_t k = 0; k < t.kernels; k++)
        json_array_append_new(kernels, json_real(t.kernel_us[k]));
    return json_pack("{s:b, s:f, s:f, s:f, s:I, s:o, s:f}", "ok", 1, "us", t.us, "warm_us", t.warm_us, "rel_l2",
                     t.rel_l2, "checked", (json_int_t)t.checked, "kernel_us", kernels, "eager_us", t.against_us);
}

static json_t *answer(server *s, const json_t *request)
{
    const char *what = text_of(request, "do");
    if (strcmp(what, "hello") == 0)
        return hello(s);
    if (strcmp(what, "compile") == 0)
        return compile(request);
    if (strcmp(what, "program") == 0)
        return program(s, request);
    if (strcmp(what, "measure") == 0)
        return measure(s, request);
    return refuse("request", "unknown request");
}

/* ---- the loop ---- */

static bool write_all(int fd, const char *text, size_t length)
{
    while (length) {
        ssize_t n = write(fd, text, length);
        if (n < 0 && errno != EINTR)
            return false;
        text += n > 0 ? n : 0;
        length -= n > 0 ? (size_t)n : 0;
    }
    return true;
}

static bool reply_to(server *s, const char *text)
{
    json_t *request = json_loads(text, 0, NULL);
    json_t *reply = json_is_object(request) ? answer(s, request) : refuse("request", "a request is one JSON object");
    json_t *id = json_object_get(request, "id");
    json_object_set(reply, "id", id ? id : json_null());
    char *line_text = json_dumps(reply, JSON_COMPACT);
    bool fine = line_text && write_all(s->out, line_text, strlen(line_text)) && write_all(s->out, "\n", 1);
    free(line_text);
    json_decref(reply);
    json_decref(request);
    return fine;
}

static void serve(void *user)
{
    server *s = user;
    for (char *text; (text = next_line());) {
        bool fine = reply_to(s, text);
        free(text);
        if (!fine)
            break;
    }
}

int ef_worker_run(uint32_t threads)
{
    pthread_t reader;
    server s = {.threads = threads ? threads : ef_processors()};
    setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0}); /* what a candidate does leaves no files */
    setenv("LC_ALL", "C", 1);                       /* what the compiler says is cut anywhere and sent as JSON */
    ef_bind_threads(s.threads);
    s.out = fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 3);
    if (s.out < 0 || dup2(STDERR_FILENO, STDOUT_FILENO) < 0 || pthread_create(&reader, NULL, read_lines, NULL) != 0)
        return 1;
    pthread_detach(reader);
    ef_with_deep_stack(serve, &s);
    ef_bench_free(s.bench);
    return 0;
}
