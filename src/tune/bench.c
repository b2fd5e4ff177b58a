/* Measuring on the CPU: see bench.h. */
#define _GNU_SOURCE /* the sizes of caches */
#include "tune/bench.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "support/processors.h"
#include "tune/sample.h"
#include "tune/work.h"

#define EVALUATOR_WORK 2e7 /* element operations: some tenths of a second of the evaluator's */
#define SMALL_WORK 1e8     /* … and of compiled code's, by one thread */
#define CACHE_TIMES 2.0    /* all copies together, in sizes of the last cache */
#define ALONE 8.0          /* an input set so much larger than the cache needs no copy: it drives itself out */
#define MAX_COPIES 512u
#define WARM_CALLS 5u
#define ENOUGH_US 3e4 /* of timed calls, when they are as many as were asked for */
#define TOO_LONG_US 2e6
#define HOPELESS 4.0  /* times the best: such a candidate is called once */
#define BEHIND 1.5    /* … twice */
#define NEAR 1.1      /* … and what is nearer than this is checked on every distribution */
#define CALL_US 200.0 /* a call may be late by this */
#define BASELINE_CALLS 7u
#define EXPECT_CALLS 5        /* of the sample, from whose time that is expected */
#define LEAST_DRAWS 2u        /* distributions, however little time there is */
#define REFERENCE_S 20.0      /* for exact results, when the time for preparation is not limited … */
#define REFERENCE_LEAST_S 1.0 /* … and at least, when it is: what compiling a sample beside the whole takes, about */
#define READ_CALLS 5
#define READ_BYTES_S 1e9 /* at least, of memory that is written to for the first time */

/* Shares of the time for preparation: */
#define TOO_SLOW 0.8         /* a baseline that takes so long is not called at its own sizes */
#define BASELINE_SHARE 0.1   /* for calls of the baseline after the first one */
#define DRAW_SHARE 0.6       /* after which only the first distributions are prepared, on a busy machine */
#define REFERENCE_SHARE 0.15 /* for exact results */
#define COPY_SHARE 0.1       /* for copies of inputs after the second one */
#define READ_SHARE 0.1       /* for reading memory, to know how fast that is */

/* What is computed exactly: the program, or of a large one a sample. */
typedef struct {
    ef_ctx *ctx;
    ef_program *program;
    ef_kgraph *graph; /* as it is, one kernel an operator */
    ef_schedule schedule;
    ef_native native;
    int threads;     /* that compute exact results; the native code's own are those that are timed */
    ef_data data;    /* inputs of the distribution that is being prepared; outputs, sampled, of what is being checked */
    uint64_t *count; /* elements of the outputs */
} part;

struct ef_bench {
    ef_ctx *ctx;
    ef_program *program;
    ef_kgraph *graph;
    ef_schedule schedule;
    ef_sample sample;
    part part;
    bool sampled;
    uint64_t seed;
    double unit;            /* the scale of the first distribution, in which the others are measured */
    double draw_until, end; /* microseconds; as now_us */
    uint32_t draws, copies;
    ef_data data[EF_DRAW_COUNT]; /* inputs by distribution */
    ef_reference *reference[EF_DRAW_COUNT];
    double eager[EF_DRAW_COUNT], accepted[EF_DRAW_COUNT]; /* errors */
    double **want[EF_DRAW_COUNT]; /* outputs in float64, when something compiled computed them */
    ef_native whole;              /* the program as it is, at its own sizes; sampled: else the part's */
    double baseline_us;
    double first_us;  /* of the part as it is, called once on the first distribution */
    bool late;        /* as baseline */
    bool estimated;   /* the whole is never called: it takes too long */
    void **whole_out; /* by output: what it makes of the first distribution; NULL: not computed */
    ef_data *copy;    /* of the first distribution; without a second one it is that itself */
    char *work;
    uint64_t work_bytes;
};

static double now_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec * 1e-3;
}

/* ---- memory ---- */

static uint64_t buffer_bytes(const ef_bench *b, uint32_t buffer)
{
    return ef_sched_buffer(b->graph, &b->schedule, buffer) *
           ef_dtype_bytes((ef_dtype)b->graph->buffers.at[buffer].dtype);
}

static double data_bytes(const ef_bench *b)
{
    double bytes = 0;
    for (uint32_t i = 0; i < b->graph->inputs; i++)
        bytes += (double)buffer_bytes(b, i);
    for (uint32_t i = 0; i < b->graph->outputs.count; i++)
        bytes += (double)buffer_bytes(b, b->graph->outputs.at[i]);
    return bytes;
}

static double memory_bytes(void)
{
    return (double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGESIZE);
}

static double last_cache(void)
{
    long size = sysconf(_SC_LEVEL3_CACHE_SIZE);
    size = size > 0 ? size : sysconf(_SC_LEVEL2_CACHE_SIZE);
    return size > 0 ? (double)size : 32e6;
}

/* As many copies as the caches cannot hold, within a quarter of the memory and some `seconds`. */
static void make_copies(ef_bench *b, double seconds)
{
    double until = seconds > 0 ? now_us() + COPY_SHARE * seconds * 1e6 : INFINITY;
    double bytes = data_bytes(b) + 1, wanted = ceil(CACHE_TIMES * last_cache() / bytes) + 1;
    double room = floor(memory_bytes() / 4 / bytes);
    wanted = fmin(fmin(fmax(wanted, 2), MAX_COPIES), fmax(room, 1));
    b->copies = bytes > ALONE * last_cache() ? 1 : (uint32_t)wanted;
    b->copy = ef_xcalloc(b->copies, sizeof *b->copy);
    if (b->copies == 1)
        b->copy[0] = b->data[0];
    for (uint32_t i = 0; i < b->copies && b->copies > 1; i++) {
        if (i >= 2 && now_us() > until) {
            b->copies = i;
            break;
        }
        b->copy[i] = ef_data_new(b->graph, &b->schedule);
        for (uint32_t k = 0; k < b->graph->inputs; k++)
            memcpy(b->copy[i].in[k], b->data[0].in[k], buffer_bytes(b, k));
    }
}

/* ---- the part that is computed exactly ---- */

static void part_free(part *p)
{
    ef_native_close(&p->native);
    if (p->graph) {
        ef_data_free(&p->data);
        ef_schedule_free(&p->schedule);
        ef_kgraph_free(p->graph);
    }
    free(p->count);
    ef_program_free(p->program);
    ef_ctx_free(p->ctx);
    *p = (part){0};
}

/* Its graph and the memory for it; `wide`: in float64, one kernel an operator with intermediate results to match. */
static bool part_open(part *p, const ef_bench *b, const ef_bench_options *o, bool wide, ef_diag *diag)
{
    *p = (part){.ctx = ef_ctx_new()};
    p->program = ef_sample_program(&b->sample, p->ctx, o->text, o->length, wide, diag);
    p->graph = !p->program ? NULL : wide ? ef_kgraph_new(p->program, diag) : ef_kgraph_eager(p->program, diag);
    if (!p->graph)
        return false;
    p->schedule = ef_schedule_default(p->graph, EF_BACKEND_C, b->schedule.threads);
    ef_work work = ef_work_of(p->program);
    p->threads = work.multiplications + work.elements < SMALL_WORK ? 1 : (int)p->schedule.threads;
    p->data = ef_data_new(p->graph, &p->schedule);
    p->count = ef_xcalloc(p->graph->outputs.count + 1, sizeof *p->count);
    for (uint32_t i = 0; i < p->graph->outputs.count; i++)
        p->count[i] = ef_sched_buffer(p->graph, &p->schedule, p->graph->outputs.at[i]);
    return true;
}

static void tell_positions(const ef_bench *b, part *p, uint32_t input)
{
    const ef_kbuffer *buffer = &p->graph->buffers.at[input];
    const ef_sample_dim *dim = ef_sample_position(&b->sample, buffer->name);
    for (uint64_t i = 0; dim && i < dim->count; i++)
        ef_element_put((ef_dtype)buffer->dtype, p->data.in[input], i, (double)dim->at[i]);
}

/* The part's inputs of a distribution. */
static void part_inputs(const ef_bench *b, part *p, uint32_t d)
{
    for (uint32_t i = 0; i < b->graph->inputs; i++)
        ef_sample_gather(&b->sample, b->ctx, ef_input_type(b->ctx, b->program->input[i]),
                         ef_dtype_bytes((ef_dtype)b->graph->buffers.at[i].dtype), b->data[d].in[i], p->data.in[i]);
    for (uint32_t i = b->graph->inputs; i < p->graph->inputs; i++)
        tell_positions(b, p, i);
}

/* What the part has of the outputs that stand in `out`. */
static void part_outputs(ef_bench *b, void *const *out)
{
    for (uint32_t i = 0; i < b->graph->outputs.count; i++)
        if (b->sampled)
            ef_sample_gather(&b->sample, b->ctx, ef_dag_type(b->program->dag, b->program->output[i].expr),
                             ef_dtype_bytes((ef_dtype)b->graph->buffers.at[b->graph->outputs.at[i]].dtype), out[i],
                             b->part.data.out[i]);
        else
            memcpy(b->part.data.out[i], out[i], buffer_bytes(b, b->graph->outputs.at[i]));
}

/* ---- references ---- */

static bool evaluate(ef_bench *b, uint32_t d, ef_diag *diag)
{
    const part *p = &b->part;
    b->reference[d] = ef_reference_new(p->program, p->graph, &p->schedule, &p->data, diag);
    return b->reference[d];
}

/* Computes the outputs of a part. What is little work is one thread's: on a busy machine several wait for each other,
 * at every kernel, longer than the work takes. */
static void call_part(const part *p)
{
    p->native.entry(p->data.in, p->data.out, p->native.work, p->threads);
}

/* Elements of one buffer as those of another type. */
static void convert(ef_dtype to, void *out, ef_dtype from, const void *in, uint64_t count)
{
    if (to == EF_F64) {
        ef_elements_get(from, in, out, count);
        return;
    }
    for (uint64_t e = 0; e < count; e++)
        ef_element_put(to, out, e, ef_element_get(from, in, e));
}

/* By the program in float64, of the inputs that the part has. */
static void compute(ef_bench *b, uint32_t d, part *wide)
{
    const part *p = &b->part;
    for (uint32_t i = 0; i < p->graph->inputs; i++)
        convert((ef_dtype)wide->graph->buffers.at[i].dtype, wide->data.in[i], (ef_dtype)p->graph->buffers.at[i].dtype,
                p->data.in[i], ef_sched_buffer(wide->graph, &wide->schedule, i));
    call_part(wide);
    b->want[d] = ef_xcalloc(p->graph->outputs.count + 1, sizeof *b->want[d]);
    for (uint32_t i = 0; i < p->graph->outputs.count; i++) {
        const ef_kbuffer *out = &wide->graph->buffers.at[wide->graph->outputs.at[i]];
        b->want[d][i] = ef_xcalloc(p->count[i] + 1, sizeof(double));
        convert(EF_F64, b->want[d][i], (ef_dtype)out->dtype, wide->data.out[i], p->count[i]);
    }
    b->reference[d] = ef_reference_computed(p->graph->outputs.count, b->want[d], p->count);
}

/* Outputs of the part that are in the range of their type, and not at its edge, where rounding decides. */
static uint64_t outputs_within(const part *p)
{
    uint64_t within = 0;
    for (uint32_t i = 0; i < p->graph->outputs.count; i++) {
        ef_dtype dtype = (ef_dtype)p->graph->buffers.at[p->graph->outputs.at[i]].dtype;
        for (uint64_t e = 0; e < p->count[i]; e++)
            within += fabs(ef_element_get(dtype, p->data.out[i], e)) < (dtype == EF_F16 ? 0x1p15 : INFINITY);
    }
    return within;
}

static void forget_reference(ef_bench *b, uint32_t d)
{
    for (uint32_t i = 0; b->graph && b->want[d] && i < b->graph->outputs.count; i++)
        free(b->want[d][i]);
    free(b->want[d]);
    b->want[d] = NULL;
    ef_reference_free(b->reference[d]);
    b->reference[d] = NULL;
}

typedef struct {
    ef_bench *bench;
    part *wide;
} making;

/* The program as it is needs one distribution, and candidates more, but at the end there will be none. */
static bool is_late(const ef_bench *b, uint32_t d)
{
    double now = now_us();
    return (d >= LEAST_DRAWS && now > b->draw_until) || (d > 0 && now > b->end);
}

/* Inputs of a distribution, its exact results, and how far the program as it is is from them. False, without a message,
 * when there is no time for one more attempt. */
static bool make_reference(void *user, ef_draw d, unsigned attempt, ef_drawn *drawn, ef_diag *diag)
{
    const making *m = user;
    ef_bench *b = m->bench;
    part *p = &b->part;
    ef_draw_size size = {b->unit, ef_draw_scale(d, attempt)};
    if (is_late(b, d))
        return false;
    ef_data_draw(b->graph, &b->schedule, &b->data[d], d, size, b->seed);
    part_inputs(b, p, d);
    forget_reference(b, d);
    if (m->wide)
        compute(b, d, m->wide);
    else if (!evaluate(b, d, diag))
        return false;
    double start = now_us();
    call_part(p);
    b->first_us = d == EF_DRAW_NORMAL ? now_us() - start : b->first_us;
    b->eager[d] = ef_reference_error(b->reference[d], p->graph, &p->data);
    b->accepted[d] = ef_error_bound(b->eager[d]);
    *drawn = (ef_drawn){b->eager[d], outputs_within(p)};
    return true;
}

static bool make_references(ef_bench *b, part *wide, ef_diag *diag)
{
    uint64_t normal = 0;
    unsigned scale;
    ef_drawn drawn;
    making m = {b, wide};
    b->unit = 1;
    for (uint32_t d = 0; d < b->draws; d++) {
        b->data[d] = ef_data_new(b->graph, &b->schedule);
        if (!ef_draw_fit((ef_draw)d, normal, make_reference, &m, &scale, &drawn, diag)) {
            if (diag->failed)
                return false;
            forget_reference(b, d);
            ef_data_free(&b->data[d]);
            b->late = d < LEAST_DRAWS;
            b->draws = d;
            break;
        }
        if (d != EF_DRAW_NORMAL)
            continue;
        normal = drawn.within;
        b->unit = ef_draw_scale(EF_DRAW_NORMAL, scale);
    }
    return true;
}

static bool refer(ef_bench *b, const ef_bench_options *o, ef_diag *diag)
{
    part wide = {0};
    ef_work work = ef_work_of(b->part.program);
    if (work.multiplications + work.elements < EVALUATOR_WORK)
        return make_references(b, NULL, diag);
    bool fine = part_open(&wide, b, o, true, diag) && ef_native_open(&wide.native, wide.graph, &wide.schedule, diag) &&
                make_references(b, &wide, diag);
    part_free(&wide);
    return fine;
}

/* ---- timing ---- */

typedef void (*timed_entry)(void *const *in, void *const *out, char *work, int threads, double *us);

typedef struct {
    ef_entry entry;
    char *work;
    int threads;
    timed_entry timed; /* says what each kernel takes; NULL: that is not asked */
    uint32_t kernels;
    double *kernel_us; /* of the last call */
} callee;

static double call_us(const callee *c, const ef_data *data)
{
    double start = now_us();
    if (c->timed)
        c->timed(data->in, data->out, c->work, c->threads, c->kernel_us);
    else
        c->entry(data->in, data->out, c->work, c->threads);
    return now_us() - start;
}

/* A call that needs no other before it, to warm up. */
static bool is_long(double us)
{
    return us > TOO_LONG_US / 10;
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *time, uint32_t count)
{
    qsort(time, count, sizeof *time, ascending);
    return count % 2 ? time[count / 2] : 0.5 * (time[count / 2 - 1] + time[count / 2]);
}

#define MAX_CALLS 1000u

/* Whether the calls so far are enough: to know that it is no good, or of all the time there is. */
static bool is_enough(const double *time, uint32_t count, double total, const ef_bench_how *how)
{
    double least = time[0];
    for (uint32_t i = 1; i < count; i++)
        least = fmin(least, time[i]);
    if (how->best_us > 0 && least > (count > 1 ? BEHIND : HOPELESS) * how->best_us + CALL_US)
        return true;
    return (how->seconds > 0 && total > how->seconds * 1e6) || total > (count < 3 ? 2 : 1) * TOO_LONG_US;
}

/* Of so many calls the kernels' times are kept, and those of the program as it is. */
#define KERNEL_CALLS 64u

typedef struct {
    uint32_t calls, others;
    double us[EF_BENCH_KERNELS][KERNEL_CALLS], other[KERNEL_CALLS];
    const callee *against; /* NULL: nothing is called in turns */
} kernel_times;

static void keep_kernels(const callee *c, kernel_times *times)
{
    if (!c->timed || times->calls == KERNEL_CALLS)
        return;
    for (uint32_t k = 0; k < c->kernels; k++)
        times->us[k][times->calls] = c->kernel_us[k];
    times->calls++;
}

static void tell_kernels(const callee *c, kernel_times *times, ef_bench_timing *t)
{
    t->kernels = times->calls ? c->kernels : 0;
    for (uint32_t k = 0; k < t->kernels; k++)
        t->kernel_us[k] = median(times->us[k], times->calls);
}

/* `first`: what the last call took, when the caller made one; else 0. A long call needs no other to warm up. */
static double time_calls(const ef_bench *b, const callee *c, const ef_bench_how *how, double first,
                         kernel_times *kernels)
{
    double time[MAX_CALLS], total = 0;
    uint32_t count = 0, repeat = how->repeat < 1 ? 1 : how->repeat > MAX_CALLS ? MAX_CALLS : how->repeat;
    time[0] = first > 0 ? first : call_us(c, &b->copy[b->copies - 1]);
    if (is_enough(time, 1, time[0], how)) {
        keep_kernels(c, kernels);
        return time[0];
    }
    while (count < MAX_CALLS && (count < repeat || total < ENOUGH_US)) {
        time[count] = call_us(c, &b->copy[count % b->copies]);
        total += time[count++];
        keep_kernels(c, kernels);
        if (kernels->against && kernels->others < KERNEL_CALLS)
            total += kernels->other[kernels->others++] = call_us(kernels->against, &b->copy[count % b->copies]);
        if (is_enough(time, count, total, how))
            break;
    }
    return median(time, count);
}

static double time_cold(const ef_bench *b, const callee *c, const ef_bench_how *how, double first,
                        const callee *against, ef_bench_timing *t)
{
    kernel_times *kernels = ef_xcalloc(1, sizeof *kernels);
    kernels->against = against;
    double us = time_calls(b, c, how, first, kernels);
    if (t)
        tell_kernels(c, kernels, t);
    if (t && kernels->others)
        t->against_us = median(kernels->other, kernels->others);
    free(kernels);
    return us;
}

/* What no cache holds anyway, or takes long, has one time. */
static double time_warm(const ef_bench *b, const callee *c, double cold_us)
{
    double time[WARM_CALLS];
    if (b->copies == 1 || cold_us * WARM_CALLS > TOO_LONG_US / 4)
        return cold_us;
    call_us(c, &b->copy[0]);
    for (uint32_t i = 0; i < WARM_CALLS; i++)
        time[i] = call_us(c, &b->copy[0]);
    return fmin(median(time, WARM_CALLS), cold_us);
}

/* Reading a block that no cache holds, by all threads, is the most that memory gives. When there are few `seconds` the
 * block is smaller. */
static double read_bandwidth(uint32_t threads, double seconds, ef_diag *diag)
{
    static const char source[] = "void ef_read(void *const *in, void *const *out, char *work, int threads)\n"
                                 "{\n"
                                 "    const float *x = in[0];\n"
                                 "    long n = *(const long *)in[1];\n"
                                 "    float sum = 0;\n"
                                 "    (void)work;\n"
                                 "#pragma omp parallel for simd num_threads(threads) reduction(+ : sum)\n"
                                 "    for (long i = 0; i < n; i++)\n"
                                 "        sum += x[i];\n"
                                 "    *(float *)out[0] = sum;\n"
                                 "}\n";
    double share = seconds > 0 ? READ_SHARE * seconds : INFINITY;
    double bytes = fmin(fmin(4 * last_cache(), share * READ_BYTES_S), memory_bytes() / 8);
    long count = (long)fmax(bytes, 64e6) / 4;
    float *block = ef_aligned((uint64_t)count * sizeof *block), sum;
    void *in[] = {block, &count}, *out[] = {&sum};
    ef_data data = {.inputs = 2, .outputs = 1, .in = in, .out = out};
    ef_library *library = ef_compile(source, sizeof source - 1, &(ef_compile_options){.level = 3}, diag);
    callee c = {.entry = library ? ef_library_entry(library, "ef_read", diag) : NULL, .threads = (int)threads};
    double best = INFINITY, until = now_us() + share * 1e6;
    for (int i = 0; c.entry && i < READ_CALLS && (i < 2 || now_us() < until); i++)
        best = fmin(best, call_us(&c, &data));
    ef_library_free(library);
    free(block);
    return isfinite(best) ? (double)count * sizeof *block / (best * 1e-6) : 0;
}

/* ---- checks ---- */

/* Runs it on a distribution; what is not written stays NaN, and what is read before it is written is NaN. */
static double run_on(ef_bench *b, const callee *c, uint64_t work_bytes, uint32_t d)
{
    for (uint32_t i = 0; i < b->graph->outputs.count; i++)
        memset(b->data[d].out[i], 0xff, buffer_bytes(b, b->graph->outputs.at[i]));
    memset(c->work, 0xff, work_bytes);
    return call_us(c, &b->data[d]);
}

static double error_of_part(ef_bench *b, uint32_t d)
{
    part_outputs(b, b->data[d].out);
    return ef_reference_error(b->reference[d], b->part.graph, &b->part.data);
}

/* The relative L2 difference of all outputs from those of the program as it is. */
static double difference_of_whole(const ef_bench *b, const ef_data *data)
{
    double wrong = 0, size = 0;
    for (uint32_t i = 0; i < b->graph->outputs.count; i++) {
        const ef_kbuffer *buffer = &b->graph->buffers.at[b->graph->outputs.at[i]];
        uint64_t count = ef_sched_buffer(b->graph, &b->schedule, b->graph->outputs.at[i]);
        ef_reference_compare((ef_dtype)buffer->dtype, data->out[i], b->whole_out[i], count, &wrong, &size);
    }
    return ef_reference_ratio(wrong, size);
}

/* ---- the baseline ---- */

static bool whole_open(ef_bench *b, ef_diag *diag)
{
    return b->whole.entry || ef_native_open(&b->whole, b->graph, &b->schedule, diag);
}

static callee whole_callee(const ef_bench *b)
{
    const ef_native *n = b->sampled ? &b->whole : &b->part.native;
    return (callee){.entry = n->entry, .work = n->work, .threads = n->threads};
}

/* Calls the program as it is on the first distribution and keeps what it computes; the call's time. */
static double run_whole(ef_bench *b)
{
    callee c = whole_callee(b);
    double us = run_on(b, &c, 0, 0);
    b->whole_out = ef_xcalloc(b->graph->outputs.count + 1, sizeof *b->whole_out);
    for (uint32_t i = 0; i < b->graph->outputs.count; i++) {
        uint64_t bytes = buffer_bytes(b, b->graph->outputs.at[i]);
        b->whole_out[i] = ef_aligned(bytes);
        memcpy(b->whole_out[i], b->data[0].out[i], bytes);
    }
    return us;
}

/* How long a call of the program as it is should take, by the sample's: the least of some calls after one that warms
 * up, fewer when these take long. By one thread as well: on a busy machine several wait for each other, longer than a
 * sample takes. */
static double expected_us(const ef_bench *b, double seconds)
{
    callee c = {.entry = b->part.native.entry, .work = b->part.native.work};
    double until = now_us() + seconds * 1e6, least = INFINITY;
    for (int i = 0; i <= EXPECT_CALLS && (i < 2 || now_us() < until); i++) {
        c.threads = i % 2 ? 1 : b->part.native.threads;
        double us = call_us(&c, &b->part.data);
        least = i > 0 ? fmin(least, us) : least;
    }
    return least / b->sample.share;
}

static bool time_baseline(ef_bench *b, const ef_bench_options *o, ef_bench_baseline *baseline, ef_diag *diag)
{
    ef_bench_how how = {.repeat = BASELINE_CALLS, .seconds = BASELINE_SHARE * o->seconds};
    baseline->us = o->known_us;
    b->estimated = o->known_us > 0 && b->sampled && o->seconds > 0 && o->known_us > TOO_SLOW * o->seconds * 1e6;
    if (o->known_us > 0)
        return true;
    double expected = b->sampled && o->seconds > 0 ? expected_us(b, how.seconds) : 0;
    if (expected > TOO_SLOW * o->seconds * 1e6) {
        baseline->us = expected;
        baseline->estimated = b->estimated = true;
        return true;
    }
    if (b->sampled && !whole_open(b, diag))
        return false;
    double first = b->sampled ? run_whole(b) : is_long(b->first_us) ? b->first_us : 0;
    callee c = whole_callee(b);
    baseline->us = time_cold(b, &c, &how, first, NULL, NULL);
    return true;
}

static bool run_baseline(ef_bench *b, const ef_bench_options *o, ef_bench_baseline *baseline, ef_diag *diag)
{
    static double bandwidth; /* of this machine: measured once */
    *baseline = (ef_bench_baseline){.draws = b->draws, .sample = b->sample.share, .late = b->late};
    memcpy(baseline->error, b->eager, sizeof b->eager);
    if (!time_baseline(b, o, baseline, diag))
        return false;
    b->baseline_us = baseline->us;
    if (bandwidth == 0)
        bandwidth = read_bandwidth(b->schedule.threads, o->seconds, diag);
    baseline->bandwidth = bandwidth;
    return !diag->failed;
}

/* ---- benches ---- */

/* Without masks the last distribution is the first one. */
static bool has_masks(const ef_bench *b)
{
    for (uint32_t i = 0; i < b->graph->inputs; i++)
        if (strstr(b->graph->buffers.at[i].name, "mask") || !ef_dtype_is_float((ef_dtype)b->graph->buffers.at[i].dtype))
            return true;
    return false;
}

static bool prepare(ef_bench *b, const ef_bench_options *o, ef_bench_baseline *baseline, ef_diag *diag)
{
    double bytes = data_bytes(b), now = now_us();
    b->draw_until = o->seconds > 0 ? now + DRAW_SHARE * o->seconds * 1e6 : INFINITY;
    b->end = o->end_s > 0 ? now + o->end_s * 1e6 : INFINITY;
    /* A distribution's inputs and outputs stay, and once more what the baseline computes. */
    if (2 * bytes > memory_bytes() / 2)
        return ef_fail(diag, "%s needs %.2g GB to be measured; choose smaller sizes", b->program->name,
                       2 * bytes * 1e-9);
    uint32_t distinct = has_masks(b) ? EF_DRAW_COUNT : EF_DRAW_MASKED;
    while (b->draws < distinct && (b->draws + 1) * bytes < memory_bytes() / 4)
        b->draws++;
    b->draws = b->draws ? b->draws : 1;
    double seconds = o->seconds > 0 ? fmax(REFERENCE_SHARE * o->seconds, REFERENCE_LEAST_S) : REFERENCE_S;
    b->sample = ef_sample_choose(o->text, o->length, seconds / b->draws, b->schedule.threads, o->seed, diag);
    b->sampled = b->sample.dims > 0;
    if (!part_open(&b->part, b, o, false, diag) ||
        !ef_native_open(&b->part.native, b->part.graph, &b->part.schedule, diag))
        return false;
    if (!refer(b, o, diag))
        return false;
    make_copies(b, o->seconds);
    return run_baseline(b, o, baseline, diag);
}

double ef_bench_reference_s(const char *text, size_t length, uint32_t threads)
{
    ef_diag ignored = {0};
    ef_sample least = ef_sample_choose(text, length, REFERENCE_LEAST_S / EF_DRAW_COUNT, threads, 1, &ignored);
    double seconds = least.seconds;
    ef_sample_free(&least);
    return seconds;
}

ef_bench *ef_bench_new(const ef_bench_options *o, ef_bench_baseline *baseline, ef_diag *diag)
{
    ef_bench *b = ef_xcalloc(1, sizeof *b);
    b->ctx = ef_ctx_new();
    b->seed = o->seed;
    b->program = ef_program_parse(b->ctx, o->text, o->length, "program", diag);
    b->graph = b->program ? ef_kgraph_eager(b->program, diag) : NULL;
    if (b->graph) {
        b->schedule = ef_schedule_default(b->graph, EF_BACKEND_C, o->threads ? o->threads : ef_processors());
        if (prepare(b, o, baseline, diag))
            return b;
    }
    ef_bench_free(b);
    return NULL;
}

void ef_bench_free(ef_bench *b)
{
    if (!b)
        return;
    for (uint32_t i = 0; i < b->copies && b->copies > 1; i++)
        ef_data_free(&b->copy[i]);
    for (uint32_t d = 0; d < b->draws; d++) {
        forget_reference(b, d);
        if (b->data[d].in)
            ef_data_free(&b->data[d]);
    }
    for (uint32_t i = 0; b->graph && b->whole_out && i < b->graph->outputs.count; i++)
        free(b->whole_out[i]);
    free(b->whole_out);
    free(b->copy);
    free(b->work);
    ef_native_close(&b->whole);
    part_free(&b->part);
    ef_sample_free(&b->sample);
    ef_schedule_free(&b->schedule);
    if (b->graph)
        ef_kgraph_free(b->graph);
    ef_program_free(b->program);
    ef_ctx_free(b->ctx);
    free(b);
}

/* ---- candidates ---- */

/* On one distribution; sets the call's time. */
static bool check_on(ef_bench *b, const callee *c, uint64_t work_bytes, uint32_t d, ef_bench_timing *timing, double *us,
                     ef_diag *diag)
{
    *us = run_on(b, c, work_bytes, d);
    double error = error_of_part(b, d);
    timing->checked++;
    if (error > timing->rel_l2 || isnan(error)) {
        timing->rel_l2 = error;
        timing->draw = (ef_draw)d;
    }
    if (!(error <= b->accepted[d]))
        return ef_fail(diag, "relative L2 error %.3g on %s inputs, at most %.3g is accepted", error, ef_draw_names[d],
                       b->accepted[d]);
    if (d > 0 || !b->whole_out)
        return true;
    /* Both are off, each by as much as it may. */
    double most = b->accepted[d] + 1.25 * b->eager[d], difference = difference_of_whole(b, &b->data[d]);
    return difference <= most ||
           ef_fail(diag,
                   "outputs outside of the sample differ by %.3g from those of the program as it is, at most "
                   "%.3g is accepted",
                   difference, most);
}

/* The distributions after the first, up to `count`. */
static bool check_rest(ef_bench *b, const callee *c, uint64_t work_bytes, uint32_t count, ef_bench_timing *timing,
                       ef_diag *diag)
{
    double us;
    for (uint32_t d = 1; d < b->draws && d < count; d++)
        if (!check_on(b, c, work_bytes, d, timing, &us, diag))
            return false;
    return true;
}

/* Checks and times; what is far from the best only as far as it takes to know that. */
static ef_bench_status measure(ef_bench *b, const callee *c, uint64_t work_bytes, const ef_bench_how *how,
                               ef_bench_timing *t, ef_diag *diag)
{
    double us = 0;
    /* After a worker was replaced the baseline's results are not there. */
    if (how->check && b->sampled && !b->whole_out && !b->estimated) {
        if (!whole_open(b, diag))
            return EF_BENCH_LOAD;
        run_whole(b);
    }
    if (how->check && !check_on(b, c, work_bytes, 0, t, &us, diag))
        return EF_BENCH_WRONG;
    callee whole = {0};
    if (how->against && !b->estimated && (how->seconds <= 0 || 3e-6 * b->baseline_us < how->seconds)) {
        if (b->sampled && !whole_open(b, diag))
            return EF_BENCH_LOAD;
        whole = whole_callee(b);
    }
    t->us = time_cold(b, c, how, is_long(us) ? us : 0, whole.entry ? &whole : NULL, t);
    bool near = how->best_us > 0 && t->us <= NEAR * how->best_us;
    if (how->check && !check_rest(b, c, work_bytes, near ? b->draws : how->check, t, diag))
        return EF_BENCH_WRONG;
    t->warm_us = near || how->best_us <= 0 ? time_warm(b, c, t->us) : t->us;
    return EF_BENCH_FINE;
}

static bool enough_work(ef_bench *b, uint64_t bytes)
{
    if (bytes <= b->work_bytes)
        return true;
    if ((double)bytes > memory_bytes() / 4)
        return false;
    free(b->work);
    b->work = ef_aligned(bytes);
    b->work_bytes = bytes;
    return true;
}

/* The function that times kernels, when there are several, and it is there. */
static void find_timed(ef_library *library, const char *entry, const ef_bench_how *how, callee *c)
{
    char symbol[160];
    snprintf(symbol, sizeof symbol, "%.120s_kernels", entry);
    const int *kernels = how->kernels ? ef_library_symbol(library, symbol) : NULL;
    if (!kernels || *kernels < 2 || *kernels > (int)EF_BENCH_KERNELS)
        return;
    snprintf(symbol, sizeof symbol, "%.120s_timed", entry);
    void *address = ef_library_symbol(library, symbol);
    memcpy(&c->timed, &address, sizeof address);
    c->kernels = (uint32_t)*kernels;
}

ef_bench_status ef_bench_measure(ef_bench *b, const char *artifact, const char *entry, const ef_bench_how *how,
                                 ef_bench_timing *timing, ef_diag *diag)
{
    char symbol[160];
    double kernel_us[EF_BENCH_KERNELS];
    *timing = (ef_bench_timing){0};
    ef_library *library = ef_library_open(artifact, diag);
    if (!library)
        return EF_BENCH_LOAD;
    snprintf(symbol, sizeof symbol, "%.120s_work", entry);
    const uint64_t *bytes = ef_library_symbol(library, symbol);
    ef_bench_status status = EF_BENCH_FINE;
    callee c = {.entry = ef_library_entry(library, entry, diag), .threads = (int)b->schedule.threads};
    if (!c.entry || !bytes) {
        ef_fail(diag, "compiled code does not say how much memory %.120s needs", entry);
        status = EF_BENCH_LOAD;
    } else if (!enough_work(b, *bytes)) {
        ef_fail(diag, "it needs %" PRIu64 " bytes of memory for intermediate results", *bytes);
        status = EF_BENCH_MEMORY;
    } else {
        c.work = b->work;
        c.kernel_us = kernel_us;
        find_timed(library, entry, how, &c);
        status = measure(b, &c, *bytes, how, timing, diag);
    }
    ef_library_free(library);
    return status;
}
