/* Running an implementation again: see replay.h. */
#include "tune/replay.h"

#include <math.h>
#include <string.h>

#include "egraph/runner.h"
#include "tune/pool.h"
#include "tune/request.h"

#define COMPILE_TIMEOUT_S 120.0
#define PROGRAM_TIMEOUT_S 600.0
#define MEASURE_TIMEOUT_S 60.0
#define CALLS 20u

/* Waits for the reply to a job, which the caller decrefs. NULL and a message when it is none that helps. */
static json_t *reply_to(ef_pool *pool, uint64_t job, double seconds, const char *what, ef_diag *diag)
{
    ef_reply reply;
    double until = ef_seconds() + seconds;
    while (ef_seconds() < until) {
        if (!ef_pool_wait(pool, until - ef_seconds(), &reply))
            continue;
        if (reply.job == job && reply.status == EF_REPLY_FINE)
            return reply.json;
        json_decref(reply.json);
        if (reply.job != job)
            continue;
        ef_fail(diag, "%s: %s", what, reply.error);
        return NULL;
    }
    ef_fail(diag, "%s: no worker answers", what);
    return NULL;
}

static char *compile(ef_pool *pool, const char *source, const char *entry, ef_diag *diag)
{
    json_t *request = json_pack("{s:s, s:s, s:s, s:s, s:s}", "do", "compile", "key", "replay", "source", source,
                                "entry", entry, "dir", ef_pool_directory(pool));
    uint64_t job = ef_pool_compile(pool, request, COMPILE_TIMEOUT_S);
    json_decref(request);
    json_t *reply = reply_to(pool, job, COMPILE_TIMEOUT_S + 60, "the code cannot be compiled", diag);
    const char *artifact = json_string_value(json_object_get(reply, "artifact"));
    char *copy = artifact ? strdup(artifact) : NULL;
    if (reply && !copy)
        ef_fail(diag, "the worker names no artifact");
    json_decref(reply);
    return copy;
}

static bool prepare(ef_pool *pool, const ef_program *program, const char *reference, const ef_replay_options *options,
                    ef_replay_result *result, ef_diag *diag)
{
    json_t *request = ef_request_program(program, reference, options->seed, 0, 0);
    uint64_t job = ef_pool_program(pool, request, PROGRAM_TIMEOUT_S);
    json_decref(request);
    json_t *reply = reply_to(pool, job, PROGRAM_TIMEOUT_S + 60, "the program cannot be prepared", diag);
    result->original_us = json_number_value(json_object_get(reply, "eager_us"));
    json_decref(reply);
    return reply != NULL;
}

static bool measure(ef_pool *pool, const char *artifact, const char *entry, const ef_replay_options *options,
                    ef_replay_result *result, ef_diag *diag)
{
    json_t *request = json_pack("{s:s, s:s, s:s, s:s, s:i, s:i, s:f}", "do", "measure", "key", "replay", "artifact",
                                artifact, "entry", entry, "repeat", (int)(options->repeat ? options->repeat : CALLS),
                                "check", options->check ? EF_CHECK_ALL : 0, "best_us", 0.0);
    double seconds = MEASURE_TIMEOUT_S + 300e-6 * result->original_us + 10e-6 * options->repeat * result->original_us;
    uint64_t job = ef_pool_measure(pool, request, seconds);
    json_decref(request);
    json_t *reply = reply_to(pool, job, seconds + 60, "the implementation failed", diag);
    result->us = json_number_value(json_object_get(reply, "us"));
    result->warm_us = json_number_value(json_object_get(reply, "warm_us"));
    result->rel_l2 = json_number_value(json_object_get(reply, "rel_l2"));
    json_decref(reply);
    return reply && ((result->us > 0 && isfinite(result->us)) || ef_fail(diag, "the worker gives no time"));
}

bool ef_replay(const ef_program *program, const char *source, const char *entry, const ef_device *device,
               const ef_replay_options *options, ef_replay_result *result, ef_diag *diag)
{
    const char *argv[EF_DEVICE_ARGUMENTS];
    ef_strbuf reference = {0};
    ef_arena *arena = ef_arena_new();
    char *artifact = NULL;
    *result = (ef_replay_result){0};
    device->command(device, argv, arena);
    ef_pool *pool = device->reference(program, "ef_reference", &reference, diag)
                        ? ef_pool_new(&(ef_pool_options){argv, 1, device->quiet, 0}, diag)
                        : NULL;
    if (pool)
        artifact = compile(pool, source, entry, diag);
    bool fine = artifact && prepare(pool, program, reference.text, options, result, diag) &&
                measure(pool, artifact, entry, options, result, diag);
    ef_pool_free(pool);
    free(artifact);
    ef_strbuf_free(&reference);
    ef_arena_free(arena);
    return fine;
}
