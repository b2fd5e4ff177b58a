/* The oracle of verification: see oracle.h. */
#include "codegen/oracle.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* A form of the program that the oracle runs itself. */
typedef struct {
    ef_kgraph *graph;
    ef_schedule schedule;
    ef_native native; /* its library is another's */
} reference_run;

struct ef_oracle {
    const ef_program *program;
    reference_run eager, wide;
    ef_data drawn[EF_DRAW_COUNT]; /* inputs; outputs are those of eager */
    ef_reference *reference[EF_DRAW_COUNT];
    double error[EF_DRAW_COUNT]; /* eager's */
    double unit;                 /* the scale of the normal draw */
};

/* ---- making it ---- */

static bool form(reference_run *run, const ef_program *program, bool wide, ef_diag *diag)
{
    run->graph = ef_kgraph_eager(program, diag);
    if (!run->graph)
        return false;
    if (wide)
        ef_kgraph_widen(run->graph);
    run->schedule = ef_schedule_default(run->graph, EF_BACKEND_C, 1);
    return true;
}

ef_oracle *ef_oracle_new(const ef_program *program, ef_diag *diag)
{
    ef_oracle *o = ef_xcalloc(1, sizeof *o);
    o->program = program;
    if (form(&o->eager, program, false, diag) && form(&o->wide, program, true, diag))
        return o;
    ef_oracle_free(o);
    return NULL;
}

static void run_free(reference_run *run)
{
    ef_schedule_free(&run->schedule);
    ef_kgraph_free(run->graph);
    free(run->native.work);
}

void ef_oracle_free(ef_oracle *o)
{
    if (!o)
        return;
    for (unsigned i = 0; i < EF_DRAW_COUNT; i++)
        ef_reference_free(o->reference[i]);
    for (unsigned i = 0; i < EF_DRAW_COUNT; i++)
        ef_data_free(&o->drawn[i]);
    run_free(&o->eager);
    run_free(&o->wide);
    free(o);
}

static bool print(const reference_run *run, const char *name, const char *kind, ef_strbuf *out, ef_diag *diag)
{
    char function[128];
    snprintf(function, sizeof function, "%.100s_%s", name, kind);
    return ef_codegen_c(run->graph, &run->schedule, function, out, diag) > 0;
}

bool ef_oracle_print(const ef_oracle *o, const char *name, ef_strbuf *out, ef_diag *diag)
{
    return print(&o->eager, name, "eager", out, diag) && print(&o->wide, name, "wide", out, diag);
}

/* ---- preparing ---- */

static bool open_run(reference_run *run, ef_library *library, const char *name, const char *kind, ef_diag *diag)
{
    char function[128];
    ef_strbuf again = {0};
    snprintf(function, sizeof function, "%.100s_%s", name, kind);
    run->native = (ef_native){.threads = 1, .entry = ef_library_entry(library, function, diag)};
    run->native.work = ef_aligned(ef_codegen_c(run->graph, &run->schedule, function, &again, diag));
    ef_strbuf_free(&again);
    return run->native.entry != NULL;
}

static double error_of(const ef_oracle *o, const reference_run *run, ef_draw draw)
{
    ef_native_call(&run->native, o->drawn[draw].in, o->drawn[draw].out);
    return ef_reference_error(o->reference[draw], run->graph, &o->drawn[draw]);
}

typedef struct {
    ef_oracle *oracle;
    uint64_t seed, normal; /* finite outputs of the normal draw */
} drawing;

/* The inputs of a draw and the program's outputs in float64. What leaves float32 inside of the program may be finite in
 * the end, and wrong: 1 / sqrt(infinity) is 0. What leaves it in the end need not be evaluated to be known to. */
static bool draw_inputs(void *user, ef_draw draw, unsigned attempt, ef_drawn *drawn, ef_diag *diag)
{
    const drawing *d = user;
    ef_oracle *o = d->oracle;
    const reference_run *run = &o->wide;
    ef_data *data = &o->drawn[draw];
    ef_draw_size size = {o->unit, ef_draw_scale(draw, attempt)};
    ef_data_draw(run->graph, &run->schedule, data, draw, size, d->seed);
    ef_native_call(&run->native, data->in, data->out);
    *drawn = (ef_drawn){INFINITY, ef_data_finite(run->graph, &run->schedule, data)};
    if (ef_draw_is_far(draw) && drawn->within < d->normal && attempt + 1 < EF_DRAW_SCALES)
        return true;
    ef_reference_free(o->reference[draw]);
    o->reference[draw] = ef_reference_new(o->program, o->eager.graph, &o->eager.schedule, data, diag);
    drawn->error = o->reference[draw] ? ef_reference_error(o->reference[draw], run->graph, data) : INFINITY;
    return o->reference[draw] != NULL;
}

bool ef_oracle_prepare(ef_oracle *o, ef_library *library, const char *name, uint64_t seed, ef_diag *diag)
{
    if (!open_run(&o->eager, library, name, "eager", diag) || !open_run(&o->wide, library, name, "wide", diag))
        return false;
    drawing d = {.oracle = o, .seed = seed};
    o->unit = 1;
    for (ef_draw draw = 0; draw < EF_DRAW_COUNT; draw++) {
        o->drawn[draw] = ef_data_new(o->eager.graph, &o->eager.schedule);
        unsigned scale;
        ef_drawn drawn;
        if (!ef_draw_fit(draw, d.normal, draw_inputs, &d, &scale, &drawn, diag))
            return false;
        if (draw == EF_DRAW_NORMAL) {
            d.normal = drawn.within;
            o->unit = ef_draw_scale(draw, scale);
        }
        o->error[draw] = error_of(o, &o->eager, draw);
    }
    return true;
}

/* ---- checking ---- */

ef_verdict ef_oracle_check(const ef_oracle *o, const ef_kgraph *graph, const ef_schedule *schedule,
                           const ef_native *native)
{
    ef_verdict v = {.valid = true};
    ef_data data = ef_data_new(graph, schedule);
    for (unsigned i = 0; i < EF_DRAW_COUNT; i++) {
        ef_native_call(native, o->drawn[i].in, data.out);
        double error = ef_reference_error(o->reference[i], graph, &data), bound = ef_error_bound(o->error[i]);
        if (i == 0 || error / bound > v.error / v.bound) {
            v.draw = (ef_draw)i;
            v.error = error;
            v.eager = o->error[i];
            v.bound = bound;
        }
        v.errors[i] = error;
        v.eagers[i] = o->error[i];
        v.largest = error > v.largest ? error : v.largest;
        v.valid = v.valid && error <= bound;
    }
    ef_data_free(&data);
    return v;
}
