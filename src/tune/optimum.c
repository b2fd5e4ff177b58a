/* The best implementation: see optimum.h. */
#include "tune/optimum.h"

#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "codegen/settings.h"
#include "codegen/torch.h"

#define KEPT_ENTRY "region"
#define DERIVE_S 20.0 /* at most */
#define DERIVE_LEAST_S 0.5
#define ENOUGH 0.9 /* of the wanted budget: that much was spent is as good */

static const char *take(ef_arena *arena, ef_strbuf *text)
{
    const char *copy = ef_arena_strndup(arena, text->text ? text->text : "", text->length);
    ef_strbuf_free(text);
    return copy;
}

/* Why the implementation equals the program: derived anew, because by now the search's e-graph is gone. It is no reason
 * to give up what was measured when that takes too long. */
static void derive(ef_optimum *o, const ef_program *program, double seconds, ef_arena *arena)
{
    const ef_search_options limits = {.time_limit = fmin(fmax(seconds, DERIVE_LEAST_S), DERIVE_S)};
    ef_derivation derivation;
    ef_program *candidate =
        ef_program_parse(ef_dag_ctx(program->dag), o->program, strlen(o->program), "candidate", NULL);
    if (candidate && ef_derive(program, candidate, &limits, arena, &derivation, NULL)) {
        o->equations = derivation.equations;
        o->equation = derivation.equation;
    }
    ef_program_free(candidate);
}

void ef_optimum_describe(ef_optimum *o, const ef_families *families, const ef_trip *best, const ef_device *device,
                         double derive_s, ef_arena *arena, ef_diag *diag)
{
    const ef_family *family = &families->list.at[best->family];
    ef_strbuf source = {0}, text = {0}, program = {0}, reference = {0};
    ef_schedule schedule = ef_family_schedule(family, best->choice);
    device->print(family->graph, &schedule, EF_FLIGHT_ENTRY, &source, diag);
    ef_schedule_free(&schedule);
    ef_family_print(family, best->choice, &text);
    ef_family_program(families, best->family, &program);
    o->entry = EF_FLIGHT_ENTRY;
    o->source = take(arena, &source);
    o->schedule = take(arena, &text);
    o->program = take(arena, &program);
    ef_program_print(families->program, &reference);
    o->reference = take(arena, &reference);
    o->kernels = family->graph->kernels.count;
    o->family = family->hash;
    derive(o, families->program, derive_s, arena);
}

bool ef_optimum_as_it_is(ef_optimum *o, const ef_program *program, const char *why, ef_arena *arena, ef_diag *diag)
{
    ef_strbuf source = {0}, text = {0};
    if (!ef_codegen_torch(program, KEPT_ENTRY, &source, diag)) {
        ef_strbuf_free(&source);
        return false;
    }
    ef_program_print(program, &text);
    *o = (ef_optimum){.original = true,
                      .stopped = o->stopped,
                      .schedule = "",
                      .source = take(arena, &source),
                      .entry = KEPT_ENTRY,
                      .program = take(arena, &text),
                      .device = o->device ? o->device : "",
                      .kept = ef_arena_strndup(arena, why, strlen(why))};
    o->reference = o->program;
    return true;
}

/* ---- as JSON ---- */

static double number_of(const json_t *json, const char *key)
{
    return json_number_value(json_object_get(json, key));
}

static json_t *write_equations(const ef_optimum *o)
{
    json_t *list = json_array();
    for (uint32_t i = 0; i < o->equations; i++) {
        const ef_equation *e = &o->equation[i];
        json_array_append_new(list, json_pack("[s, s, s, s]", e->output, e->rule, e->before, e->after));
    }
    return list;
}

/* What is kept, and the effort; NULL: there is none, or it does not say all of that. The caller's. */
static json_t *load(ef_store *store, const char *program, const char *device, ef_effort *spent, ef_arena *arena)
{
    const char *text = ef_store_best(store, program, device, &spent->budget_s, arena);
    json_t *json = text ? json_loads(text, 0, NULL) : NULL, *limit = json_object_get(json, "limit");
    spent->limit = (uint64_t)json_integer_value(limit);
    if (json_is_integer(limit) && number_of(json, "us") > 0 && json_object_get(json, "reference"))
        return json;
    json_decref(json);
    return NULL;
}

static bool is_enough(ef_effort spent, ef_effort wanted)
{
    return spent.budget_s >= ENOUGH * wanted.budget_s &&
           (spent.limit == 0 || (wanted.limit > 0 && wanted.limit <= spent.limit));
}

void ef_optimum_keep(const ef_optimum *o, ef_store *store, const char *program, ef_effort spent)
{
    ef_effort before;
    ef_arena *arena = ef_arena_new();
    json_t *known = spent.limit ? load(store, program, o->device, &before, arena) : NULL;
    bool behind = known && before.limit == 0;
    json_decref(known);
    ef_arena_free(arena);
    if (behind)
        return;
    json_t *json = json_pack(
        "{s:I, s:f, s:f, s:f, s:f, s:f, s:I, s:I, s:I, s:I, s:I, s:I, s:b, s:b, s:s, s:s, s:s, s:s, s:s, s:o, s:o*}",
        "limit", (json_int_t)spent.limit, "us", o->us, "warm_us", o->warm_us, "original_us", o->original_us, "floor_us",
        o->floor_us, "rel_l2", o->rel_l2, "kernels", (json_int_t)o->kernels, "families", (json_int_t)o->families,
        "measured", (json_int_t)o->measured, "failed", (json_int_t)o->failed, "candidates", (json_int_t)o->candidates,
        "family", (json_int_t)o->family, "original", o->original, "estimated", o->estimated, "schedule", o->schedule,
        "source", o->source, "entry", o->entry, "program", o->program, "reference", o->reference, "derivation",
        write_equations(o), "spent", o->spent ? json_loads(o->spent, 0, NULL) : NULL);
    char *text = json ? json_dumps(json, JSON_COMPACT | JSON_REAL_PRECISION(17)) : NULL;
    if (text)
        ef_store_put_best(store, program, o->device, text, isfinite(spent.budget_s) ? spent.budget_s : 1e300);
    free(text);
    json_decref(json);
}

static const char *text_of(const json_t *json, const char *key, ef_arena *arena)
{
    const char *text = json_string_value(json_object_get(json, key));
    return ef_arena_strndup(arena, text ? text : "", text ? strlen(text) : 0);
}

static uint64_t count_of(const json_t *json, const char *key)
{
    return (uint64_t)json_integer_value(json_object_get(json, key));
}

static void read_equations(ef_optimum *o, const json_t *list, ef_arena *arena)
{
    ef_equation *equation = ef_arena_alloc(arena, json_array_size(list) * sizeof *equation);
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *parts = json_array_get(list, i);
        const char **part[] = {&equation[i].output, &equation[i].rule, &equation[i].before, &equation[i].after};
        for (size_t k = 0; k < sizeof part / sizeof *part; k++) {
            const char *text = json_string_value(json_array_get(parts, k));
            *part[k] = ef_arena_strndup(arena, text ? text : "", text ? strlen(text) : 0);
        }
    }
    o->equations = (uint32_t)json_array_size(list);
    o->equation = equation;
}

/* A store may be damaged. */
static bool has_schedule(const json_t *json, ef_backend backend)
{
    ef_diag ignored = {0};
    const char *schedule = json_string_value(json_object_get(json, "schedule"));
    return schedule && ef_settings_check(backend, (uint32_t)count_of(json, "kernels"), schedule, &ignored);
}

bool ef_optimum_recall(ef_optimum *o, ef_store *store, const char *program, const ef_device *device, ef_effort wanted,
                       ef_arena *arena)
{
    ef_effort spent;
    json_t *json = load(store, program, o->device, &spent, arena);
    bool fine = json && is_enough(spent, wanted) && has_schedule(json, device->backend);
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
                          .estimated = json_is_true(json_object_get(json, "estimated")),
                          .stored = true,
                          .schedule = text_of(json, "schedule", arena),
                          .source = text_of(json, "source", arena),
                          .entry = text_of(json, "entry", arena),
                          .program = text_of(json, "program", arena),
                          .reference = text_of(json, "reference", arena),
                          .device = o->device};
        read_equations(o, json_object_get(json, "derivation"), arena);
    }
    json_decref(json);
    return fine;
}

ef_plan_region ef_optimum_region(const ef_optimum *o, const ef_device *device)
{
    static const char *const languages[EF_BACKEND_COUNT] = {[EF_BACKEND_C] = "c", [EF_BACKEND_TRITON] = "triton"};
    return (ef_plan_region){
        .program = o->reference,
        .candidate = o->program,
        .language = o->kept ? "torch" : languages[device->backend],
        .kept = o->kept,
        .source = o->source,
        .entry = o->entry,
        .schedule = o->schedule,
        .device = o->device,
        .threads = device->threads,
        .kernels = o->kernels,
        .families = o->families,
        .candidates = o->candidates,
        .measured = o->measured,
        .original = o->original,
        .us = o->us,
        .warm_us = o->warm_us,
        .original_us = o->original_us,
        .floor_us = o->floor_us,
        .rel_l2 = o->rel_l2,
        .equations = o->equations,
        .equation = o->equation,
    };
}
