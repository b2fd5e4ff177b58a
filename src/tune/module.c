/* Optimising a module: see module.h. */
#include "tune/module.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "egraph/runner.h"
#include "support/interrupt.h"
#include "support/reasons.h"
#include "tune/canonical.h"
#include "tune/optimum.h"
#include "tune/work.h"

#define BUDGET_S 300
#define TOO_LITTLE_S 2.0 /* a region with less of the budget is not searched: it is measured as it is */
#define LEAST_S 1.0      /* … which takes this, about; with less for each the regions with the most work come first */
#define LATE_SHARE 0.1   /* of the budget, by which the last region may begin late … */
#define LATE_S 2.0       /* … and this */

/* A program that stands in one or more steps. */
typedef struct {
    char hash[33];
    const ef_program *program;
    uint32_t uses, region; /* in the plan: that of its first step */
    double weight;         /* estimated work of all its uses */
    ef_optimum optimum;
} distinct;

typedef struct {
    const ef_module *module;
    const ef_device *device;
    ef_store *store;
    const ef_optimize_options *options;
    ef_plan *plan;
    ef_pool *pool; /* one for all regions */
    ef_diag *diag;
    EF_VEC(distinct) programs;
    double start, budget;
    bool stopped;
    uint32_t kept;
    const char *hopeless; /* no worker ever answered, for this reason: none will; NULL: one may */
    const char *identity; /* of the device, "" when it has none; NULL: not asked yet */
} course;

/* ---- what there is to do ---- */

/* Relative seconds: products, other elements, memory. Only the proportions count. */
static double weight_of(const ef_program *program)
{
    ef_work work = ef_work_of(program);
    return work.multiplications * 2e-11 + work.elements * 1e-9 + work.bytes * 1e-10;
}

static void add_step(course *c, ef_plan_step *step, const ef_program *program)
{
    distinct added = {.program = program, .region = step->region, .uses = 1, .weight = weight_of(program)};
    ef_canonical_hash(program, added.hash);
    for (uint32_t i = 0; i < c->programs.count; i++) {
        distinct *known = &c->programs.at[i];
        if (strcmp(known->hash, added.hash) != 0)
            continue;
        known->uses++;
        known->weight += added.weight;
        step->region = known->region;
        return;
    }
    ef_vec_push(&c->programs, added);
}

static int lightest_first(const void *a, const void *b)
{
    double x = ((const distinct *)a)->weight, y = ((const distinct *)b)->weight;
    return (x > y) - (x < y);
}

static int heaviest_first(const void *a, const void *b)
{
    return lightest_first(b, a);
}

static void order_programs(course *c)
{
    bool hurried = c->budget < LEAST_S * c->programs.count;
    if (c->programs.count)
        qsort(c->programs.at, c->programs.count, sizeof *c->programs.at, hurried ? heaviest_first : lightest_first);
}

/* ---- doing it ---- */

static bool pass_progress(void *user, const ef_progress *p)
{
    course *c = user;
    ef_progress whole = *p;
    whole.elapsed_s = ef_seconds() - c->start;
    whole.left_s = fmax(c->budget - whole.elapsed_s, 0);
    c->stopped = !c->options->progress(c->options->user, &whole);
    return !c->stopped;
}

/* PyTorch runs what cannot be measured. The next region has new workers, if this one took them down; where none ever
 * answered there will be none. */
static bool keep_original(course *c, distinct *d, const char *why)
{
    if (!ef_optimum_as_it_is(&d->optimum, d->program, why, c->plan->arena, c->diag))
        return false;
    c->kept++;
    if (c->pool && ef_pool_broken(c->pool)) {
        c->hopeless = ef_pool_hello(c->pool) ? NULL : d->optimum.kept;
        ef_pool_free(c->pool);
        c->pool = NULL;
    }
    return true;
}

/* Whether nothing more is begun: PyTorch can run what is left. */
static bool is_over(const course *c)
{
    double elapsed = ef_seconds() - c->start;
    return c->options->unmeasured && elapsed > c->budget + LATE_SHARE * c->budget + LATE_S;
}

/* Whether the store knows enough of it. */
static bool recall(course *c, distinct *d, const ef_optimize_options *options)
{
    char identity[600] = "";
    ef_diag ignored = {0};
    if (!c->identity) {
        bool known = c->device->identity(c->device, identity, sizeof identity, &ignored);
        c->identity = ef_arena_strndup(c->plan->arena, identity, known ? strlen(identity) : 0);
    }
    d->optimum = (ef_optimum){.device = c->identity};
    return ef_optimum_recall(&d->optimum, c->store, d->hash, c->device, (ef_effort){options->budget_s, options->limit},
                             c->plan->arena);
}

/* After a stop what is left is measured as it is, which a plan needs. What the store knows needs neither workers nor
 * time. */
static bool optimize_one(course *c, distinct *d, double left_weight)
{
    double left = fmax(c->budget - (ef_seconds() - c->start), 0.1);
    ef_diag diag = {0};
    const char *unmeasured = c->hopeless  ? c->hopeless
                             : is_over(c) ? "the budget was over before they were measured"
                                          : NULL;
    ef_optimize_options options = *c->options;
    options.budget_s = left_weight > 0 ? left * d->weight / left_weight : left;
    options.plain = c->options->plain || c->stopped || options.budget_s < TOO_LITTLE_S;
    options.budget_s = fmax(options.budget_s, 0.1);
    options.whole_s = c->budget;
    options.left_s = left;
    options.user = c;
    options.progress = c->options->progress && !c->stopped ? pass_progress : NULL;
    if (unmeasured)
        return recall(c, d, &options) || keep_original(c, d, unmeasured);
    bool fine = ef_optimize(d->program, c->device, &c->pool, c->store, &options, c->plan->arena, &d->optimum, &diag);
    c->stopped = c->stopped || d->optimum.stopped;
    if (!fine && ef_interrupted())
        return ef_fail(c->diag, "%s", diag.text);
    return fine || keep_original(c, d, diag.text);
}

static bool optimize_all(course *c)
{
    double weight = 0;
    for (uint32_t i = 0; i < c->programs.count; i++)
        weight += c->programs.at[i].weight;
    for (uint32_t i = 0; i < c->programs.count; i++) {
        if (!optimize_one(c, &c->programs.at[i], weight))
            return false;
        weight -= c->programs.at[i].weight;
    }
    return true;
}

/* ---- the result ---- */

static const char *describe_kept(const course *c)
{
    ef_strbuf text = {0};
    const char **why = ef_xcalloc(c->programs.count + 1, sizeof *why);
    for (uint32_t i = 0; i < c->programs.count; i++)
        why[i] = c->programs.at[i].optimum.kept;
    if (c->kept < c->programs.count)
        ef_strbuf_printf(&text, "%" PRIu32 " of %" PRIu32 " distinct regions stay as they are: ", c->kept,
                         c->programs.count);
    ef_reasons_print(why, c->programs.count, &text);
    const char *copy = ef_arena_strndup(c->plan->arena, text.text, text.length);
    ef_strbuf_free(&text);
    free(why);
    return copy;
}

static void sum_up(const course *c, ef_module_summary *s)
{
    bool estimated = false, known = true;
    *s = (ef_module_summary){.stored = true, .original = true, .stopped = c->stopped};
    for (uint32_t i = 0; i < c->programs.count; i++) {
        const distinct *d = &c->programs.at[i];
        const ef_optimum *o = &d->optimum;
        s->us += d->uses * o->us;
        s->warm_us += d->uses * o->warm_us;
        s->original_us += d->uses * o->original_us;
        s->floor_us += d->uses * o->floor_us;
        s->kernels += (uint64_t)d->uses * o->kernels;
        s->rel_l2 = fmax(s->rel_l2, o->rel_l2);
        s->measured += o->measured;
        s->failed += o->failed;
        s->candidates += o->candidates;
        s->families += o->families;
        s->regions += d->uses;
        estimated = estimated || o->estimated;
        known = known && (o->kept || o->original_us > 0);
        s->stored = s->stored && o->stored;
        s->original = s->original && o->original;
    }
    s->original_us = known ? s->original_us : 0;
    s->distinct = c->programs.count;
    s->kept = c->kept;
    s->message =
        c->kept  ? describe_kept(c)
        : !known ? "the original's time is not known: a call of it takes more memory than the device has left"
        : estimated
            ? c->device->measures_original
                  ? "the original's time is an estimate or a lower bound: its call was ended, as slower than the best"
                  : "the original's time is an estimate: a call of it takes more memory than the device has left"
            : NULL;
    s->externals = c->plan->steps - s->regions;
    s->elapsed_s = c->plan->elapsed_s;
}

ef_plan *ef_optimize_module(const ef_module *module, const ef_device *device, ef_store *store,
                            const ef_optimize_options *options, ef_module_summary *summary, ef_diag *diag)
{
    course c = {.module = module, .device = device, .store = store, .options = options, .diag = diag};
    c.start = ef_seconds();
    c.budget = options->budget_s > 0 ? options->budget_s : BUDGET_S;
    c.plan = ef_plan_new(module, device->name);
    for (uint32_t i = 0; i < module->steps; i++)
        if (module->step[i].kind == EF_MS_REGION)
            add_step(&c, &c.plan->step[i], module->step[i].program);
    order_programs(&c);
    bool fine = optimize_all(&c);
    if (fine && c.kept && c.kept == c.programs.count && !options->unmeasured)
        fine = ef_fail(diag, "%s", c.programs.at[0].optimum.kept);
    c.plan->elapsed_s = ef_seconds() - c.start;
    for (uint32_t i = 0; fine && i < c.programs.count; i++)
        c.plan->region[c.programs.at[i].region] = ef_optimum_region(&c.programs.at[i].optimum, device);
    sum_up(&c, summary);
    ef_pool_free(c.pool);
    ef_vec_free(&c.programs);
    ef_plan_compact(c.plan);
    if (fine)
        return c.plan;
    ef_plan_free(c.plan);
    return NULL;
}
