/* The best implementation: see optimum.h. */
#include "tune/optimum.h"

#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define ENTRY "ef_program"
#define ENOUGH 0.9 /* of the wanted budget: that much was spent is as good */

static const char *take(ef_arena *arena, ef_strbuf *text)
{
    const char *copy = ef_arena_strndup(arena, text->text ? text->text : "", text->length);
    ef_strbuf_free(text);
    return copy;
}

void ef_optimum_describe(ef_optimum *o, const ef_families *families, const ef_trip *best, const ef_device *device,
                         ef_arena *arena, ef_diag *diag)
{
    const ef_family *family = &families->list.at[best->family];
    ef_strbuf source = {0}, text = {0}, program = {0};
    ef_schedule schedule = ef_family_schedule(family, best->choice);
    device->print(family->graph, &schedule, ENTRY, &source, diag);
    ef_schedule_free(&schedule);
    ef_family_print(family, best->choice, &text);
    ef_family_program(families, best->family, &program);
    o->entry = ENTRY;
    o->source = take(arena, &source);
    o->schedule = take(arena, &text);
    o->program = take(arena, &program);
    o->kernels = family->graph->kernels.count;
    o->family = family->hash;
}

/* ---- as JSON ---- */

void ef_optimum_keep(const ef_optimum *o, ef_store *store, const char *program, double budget_s)
{
    json_t *json = json_pack(
        "{s:f, s:f, s:f, s:f, s:f, s:I, s:I, s:I, s:I, s:I, s:I, s:b, s:s, s:s, s:s, s:s}", "us", o->us, "warm_us",
        o->warm_us, "original_us", o->original_us, "floor_us", o->floor_us, "rel_l2", o->rel_l2, "kernels",
        (json_int_t)o->kernels, "families", (json_int_t)o->families, "measured", (json_int_t)o->measured, "failed",
        (json_int_t)o->failed, "candidates", (json_int_t)o->candidates, "family", (json_int_t)o->family, "original",
        o->original, "schedule", o->schedule, "source", o->source, "entry", o->entry, "program", o->program);
    char *text = json ? json_dumps(json, JSON_COMPACT | JSON_REAL_PRECISION(17)) : NULL;
    if (text)
        ef_store_put_best(store, program, o->device, text, isfinite(budget_s) ? budget_s : 1e300);
    free(text);
    json_decref(json);
}

static const char *text_of(const json_t *json, const char *key, ef_arena *arena)
{
    const char *text = json_string_value(json_object_get(json, key));
    return ef_arena_strndup(arena, text ? text : "", text ? strlen(text) : 0);
}

static double number_of(const json_t *json, const char *key)
{
    return json_number_value(json_object_get(json, key));
}

static uint64_t count_of(const json_t *json, const char *key)
{
    return (uint64_t)json_integer_value(json_object_get(json, key));
}

bool ef_optimum_recall(ef_optimum *o, ef_store *store, const char *program, double budget_s, ef_arena *arena)
{
    double spent = 0;
    const char *text = ef_store_best(store, program, o->device, &spent, arena);
    json_t *json = text && spent >= ENOUGH * budget_s ? json_loads(text, 0, NULL) : NULL;
    bool fine = json_is_object(json) && number_of(json, "us") > 0;
    if (fine) {
        *o = (ef_optimum){.us = number_of(json, "us"),
                          .warm_us = number_of(json, "warm_us"),
                          .original_us = number_of(json, "original_us"),
                          .floor_us = number_of(json, "floor_us"),
                          .rel_l2 = number_of(json, "rel_l2"),
                          .kernels = (uint32_t)count_of(json, "kernels"),
                          .families = (uint32_t)count_of(json, "families"),
                          .measured = count_of(json, "measured"),
                          .failed = count_of(json, "failed"),
                          .candidates = count_of(json, "candidates"),
                          .family = count_of(json, "family"),
                          .original = json_is_true(json_object_get(json, "original")),
                          .stored = true,
                          .schedule = text_of(json, "schedule", arena),
                          .source = text_of(json, "source", arena),
                          .entry = text_of(json, "entry", arena),
                          .program = text_of(json, "program", arena),
                          .device = o->device};
    }
    json_decref(json);
    return fine;
}
