/* Measuring on the CPU: see bench.h. */
#define _GNU_SOURCE /* the sizes of caches */
#include "tune/bench.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "tune/work.h"

#define EVALUATOR_WORK 2e7 /* element operations: some tenths of a second */
#define CACHE_TIMES 2.0    /* all copies together, in sizes of the last cache */
#define MAX_COPIES 512u
#define WARM_CALLS 5u
#define ENOUGH_US 3e4 /* of timed calls, when they are as many as were asked for */
#define TOO_LONG_US 2e6
#define HOPELESS 4.0 /* times the best: such a candidate is timed three times only */

struct ef_bench {
    ef_ctx *ctx;
    ef_program *program;
    ef_kgraph *graph;
    ef_schedule schedule;
    uint32_t draws, copies;
    ef_data data[EF_DRAW_COUNT]; /* inputs by distribution */
    ef_reference *reference[EF_DRAW_COUNT];
    double accepted[EF_DRAW_COUNT];
    double **want[EF_DRAW_COUNT]; /* outputs in float64, when something compiled computed them */
    uint64_t *count;              /* elements of the outputs */
    ef_data *copy;                /* of the first distribution */
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

/* As many copies as the caches cannot hold, within a quarter of the memory. */
static void make_copies(ef_bench *b)
{
    double bytes = data_bytes(b) + 1, wanted = ceil(CACHE_TIMES * last_cache() / bytes) + 1;
    double room = floor(memory_bytes() / 4 / bytes);
    wanted = fmin(fmin(fmax(wanted, 2), MAX_COPIES), fmax(room, 1));
    b->copies = (uint32_t)wanted;
    b->copy = ef_xcalloc(b->copies, sizeof *b->copy);
    for (uint32_t i = 0; i < b->copies; i++) {
        b->copy[i] = ef_data_new(b->graph, &b->schedule);
        for (uint32_t k = 0; k < b->graph->inputs; k++)
            memcpy(b->copy[i].in[k], b->data[0].in[k], buffer_bytes(b, k));
    }
}

/* ---- inputs ---- */

static uint64_t finite_outputs(const ef_bench *b, const ef_native *native, ef_data *data, ef_draw draw, double scale,
                               uint64_t seed)
{
    ef_data_draw(b->graph, &b->schedule, data, draw, scale, seed);
    ef_native_call(native, data->in, data->out);
    return ef_data_finite(b->graph, &b->schedule, data);
}

/* How large the large inputs can be without that the program leaves the range of float32 (oracle.h). */
static double scale_of_large(const ef_bench *b, uint64_t seed, ef_diag *diag)
{
    static const double scales[] = {100, 16, 4, 1};
    ef_native native;
    unsigned i = 0;
    ef_kgraph *graph = ef_kgraph_new(b->program, diag);
    if (!graph)
        return 1;
    ef_schedule schedule = ef_schedule_default(graph, EF_BACKEND_C, b->schedule.threads);
    if (ef_native_open(&native, graph, &schedule, diag)) {
        ef_data data = ef_data_new(b->graph, &b->schedule);
        uint64_t normal = finite_outputs(b, &native, &data, EF_DRAW_NORMAL, 1, seed);
        while (scales[i] > 1 && finite_outputs(b, &native, &data, EF_DRAW_LARGE, scales[i], seed) < normal)
            i++;
        ef_data_free(&data);
        ef_native_close(&native);
    }
    ef_schedule_free(&schedule);
    ef_kgraph_free(graph);
    return scales[i];
}

/* ---- references ---- */

static bool evaluate(ef_bench *b, ef_diag *diag)
{
    for (uint32_t d = 0; d < b->draws; d++) {
        b->reference[d] = ef_reference_new(b->program, b->graph, &b->schedule, &b->data[d], diag);
        if (!b->reference[d])
            return false;
    }
    return true;
}

/* Elements of one buffer as those of another type. */
static void convert(ef_dtype to, void *out, ef_dtype from, const void *in, uint64_t count)
{
    for (uint64_t e = 0; e < count; e++)
        ef_element_put(to, out, e, ef_element_get(from, in, e));
}

static void run_wide(ef_bench *b, const ef_kgraph *wide, const ef_schedule *schedule, const ef_native *native,
                     uint32_t d)
{
    ef_data data = ef_data_new(wide, schedule);
    for (uint32_t i = 0; i < wide->inputs; i++)
        convert((ef_dtype)wide->buffers.at[i].dtype, data.in[i], (ef_dtype)b->graph->buffers.at[i].dtype,
                b->data[d].in[i], ef_sched_buffer(wide, schedule, i));
    ef_native_call(native, data.in, data.out);
    b->want[d] = ef_xcalloc(data.outputs + 1, sizeof *b->want[d]);
    for (uint32_t i = 0; i < data.outputs; i++) {
        b->want[d][i] = ef_xcalloc(b->count[i] + 1, sizeof(double));
        convert(EF_F64, b->want[d][i], (ef_dtype)wide->buffers.at[wide->outputs.at[i]].dtype, data.out[i], b->count[i]);
    }
    ef_data_free(&data);
    b->reference[d] = ef_reference_computed(b->graph->outputs.count, b->want[d], b->count);
}

static bool compute_with(ef_bench *b, const ef_program *program, ef_diag *diag)
{
    ef_native native;
    ef_kgraph *wide = ef_kgraph_new(program, diag);
    if (!wide)
        return false;
    ef_schedule schedule = ef_schedule_default(wide, EF_BACKEND_C, b->schedule.threads);
    bool fine = ef_native_open(&native, wide, &schedule, diag);
    for (uint32_t d = 0; fine && d < b->draws; d++)
        run_wide(b, wide, &schedule, &native, d);
    if (fine)
        ef_native_close(&native);
    ef_schedule_free(&schedule);
    ef_kgraph_free(wide);
    return fine;
}

static bool compute(ef_bench *b, const char *text, size_t length, ef_diag *diag)
{
    ef_ctx *ctx = ef_ctx_new();
    ef_program *program = ef_program_parse_f64(ctx, text, length, diag);
    bool fine = program && compute_with(b, program, diag);
    ef_program_free(program);
    ef_ctx_free(ctx);
    return fine;
}

/* ---- timing ---- */

typedef struct {
    ef_entry entry;
    char *work;
    int threads;
} callee;

static double call_us(const callee *c, const ef_data *data)
{
    double start = now_us();
    c->entry(data->in, data->out, c->work, c->threads);
    return now_us() - start;
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

static double time_cold(const ef_bench *b, const callee *c, uint32_t repeat, double best_us)
{
    double time[MAX_CALLS], total = 0;
    uint32_t count = 0;
    repeat = repeat < 1 ? 1 : repeat > MAX_CALLS ? MAX_CALLS : repeat;
    call_us(c, &b->copy[b->copies - 1]);
    while (count < MAX_CALLS && (count < repeat || total < ENOUGH_US)) {
        time[count] = call_us(c, &b->copy[count % b->copies]);
        total += time[count++];
        if (count >= 3 && (total > TOO_LONG_US || (best_us > 0 && total > HOPELESS * best_us * count)))
            break;
    }
    return median(time, count);
}

static double time_warm(const ef_bench *b, const callee *c)
{
    double time[WARM_CALLS];
    call_us(c, &b->copy[0]);
    for (uint32_t i = 0; i < WARM_CALLS; i++)
        time[i] = call_us(c, &b->copy[0]);
    return median(time, WARM_CALLS);
}

/* Reading a block that no cache holds, by all threads, is the most that memory gives. */
static double read_bandwidth(uint32_t threads, ef_diag *diag)
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
    long count = (long)fmin(fmax(4 * last_cache(), 64e6), memory_bytes() / 8) / 4;
    float *block = ef_aligned((uint64_t)count * sizeof *block), sum;
    void *in[] = {block, &count}, *out[] = {&sum};
    ef_data data = {.inputs = 2, .outputs = 1, .in = in, .out = out};
    ef_library *library = ef_compile(source, sizeof source - 1, &(ef_compile_options){.level = 3}, diag);
    callee c = {.entry = library ? ef_library_entry(library, "ef_read", diag) : NULL, .threads = (int)threads};
    double best = INFINITY;
    for (int i = 0; c.entry && i < 5; i++)
        best = fmin(best, call_us(&c, &data));
    ef_library_free(library);
    free(block);
    return isfinite(best) ? (double)count * sizeof *block / (best * 1e-6) : 0;
}

/* ---- the baseline ---- */

static double error_on(ef_bench *b, const callee *c, uint64_t work_bytes, uint32_t d)
{
    /* What is not written stays NaN, and what is read before it is written is NaN. */
    for (uint32_t i = 0; i < b->graph->outputs.count; i++)
        memset(b->data[d].out[i], 0xff, buffer_bytes(b, b->graph->outputs.at[i]));
    memset(c->work, 0xff, work_bytes);
    c->entry(b->data[d].in, b->data[d].out, c->work, c->threads);
    return ef_reference_error(b->reference[d], b->graph, &b->data[d]);
}

static bool run_baseline(ef_bench *b, ef_bench_baseline *baseline, ef_diag *diag)
{
    static double bandwidth; /* of this machine: measured once */
    ef_native native;
    if (!ef_native_open(&native, b->graph, &b->schedule, diag))
        return false;
    callee c = {native.entry, native.work, native.threads};
    *baseline = (ef_bench_baseline){.draws = b->draws};
    for (uint32_t d = 0; d < b->draws; d++) {
        baseline->error[d] = error_on(b, &c, 0, d);
        b->accepted[d] = ef_error_bound(baseline->error[d]);
    }
    baseline->us = time_cold(b, &c, 10, 0);
    ef_native_close(&native);
    if (bandwidth == 0)
        bandwidth = read_bandwidth(b->schedule.threads, diag);
    baseline->bandwidth = bandwidth;
    return !diag->failed;
}

/* ---- benches ---- */

static bool prepare(ef_bench *b, const char *text, size_t length, uint64_t seed, ef_bench_baseline *baseline,
                    ef_diag *diag)
{
    ef_work work = ef_work_of(b->program);
    double bytes = data_bytes(b), outputs = 0;
    for (uint32_t i = 0; i < b->graph->outputs.count; i++)
        outputs += (double)b->count[i] * sizeof(double);
    /* A distribution's inputs and references stay; the float64 program needs up to four times the inputs meanwhile. */
    if (5 * bytes + outputs > memory_bytes() / 2)
        return ef_fail(diag, "%s needs %.2g GB to be measured; choose smaller sizes", b->program->name,
                       (5 * bytes + outputs) * 1e-9);
    while (b->draws < EF_DRAW_COUNT && (b->draws + 1) * (bytes + outputs) < memory_bytes() / 4)
        b->draws++;
    b->draws = b->draws ? b->draws : 1;
    double large = scale_of_large(b, seed, diag);
    if (diag->failed)
        return false;
    for (uint32_t d = 0; d < b->draws; d++) {
        b->data[d] = ef_data_new(b->graph, &b->schedule);
        ef_data_draw(b->graph, &b->schedule, &b->data[d], (ef_draw)d, large, seed);
    }
    bool cheap = work.multiplications + work.elements < EVALUATOR_WORK;
    if (!(cheap ? evaluate(b, diag) : compute(b, text, length, diag)))
        return false;
    make_copies(b);
    return run_baseline(b, baseline, diag);
}

ef_bench *ef_bench_new(const char *text, size_t length, uint32_t threads, uint64_t seed, ef_bench_baseline *baseline,
                       ef_diag *diag)
{
    ef_bench *b = ef_xcalloc(1, sizeof *b);
    b->ctx = ef_ctx_new();
    b->program = ef_program_parse(b->ctx, text, length, "program", diag);
    b->graph = b->program ? ef_kgraph_eager(b->program, diag) : NULL;
    if (b->graph) {
        b->schedule = ef_schedule_default(b->graph, EF_BACKEND_C, threads ? threads : ef_processors());
        b->count = ef_xcalloc(b->graph->outputs.count + 1, sizeof *b->count);
        for (uint32_t i = 0; i < b->graph->outputs.count; i++)
            b->count[i] = ef_sched_buffer(b->graph, &b->schedule, b->graph->outputs.at[i]);
        if (prepare(b, text, length, seed, baseline, diag))
            return b;
    }
    ef_bench_free(b);
    return NULL;
}

void ef_bench_free(ef_bench *b)
{
    if (!b)
        return;
    for (uint32_t d = 0; d < b->draws; d++) {
        for (uint32_t i = 0; b->graph && b->want[d] && i < b->graph->outputs.count; i++)
            free(b->want[d][i]);
        free(b->want[d]);
        ef_reference_free(b->reference[d]);
        ef_data_free(&b->data[d]);
    }
    for (uint32_t i = 0; i < b->copies && b->copy; i++)
        ef_data_free(&b->copy[i]);
    free(b->copy);
    free(b->count);
    free(b->work);
    ef_schedule_free(&b->schedule);
    if (b->graph)
        ef_kgraph_free(b->graph);
    ef_program_free(b->program);
    ef_ctx_free(b->ctx);
    free(b);
}

/* ---- candidates ---- */

static bool check(ef_bench *b, const callee *c, uint64_t work_bytes, ef_bench_timing *timing, ef_diag *diag)
{
    for (uint32_t d = 0; d < b->draws; d++) {
        double error = error_on(b, c, work_bytes, d);
        if (error > timing->rel_l2 || isnan(error)) {
            timing->rel_l2 = error;
            timing->draw = (ef_draw)d;
        }
        if (!(error <= b->accepted[d]))
            return ef_fail(diag, "relative L2 error %.3g on %s inputs, at most %.3g is accepted", error,
                           ef_draw_names[d], b->accepted[d]);
    }
    return true;
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

ef_bench_status ef_bench_measure(ef_bench *b, const char *artifact, const char *entry, uint32_t repeat, bool verify,
                                 double best_us, ef_bench_timing *timing, ef_diag *diag)
{
    char symbol[160];
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
        if (verify && !check(b, &c, *bytes, timing, diag))
            status = EF_BENCH_WRONG;
    }
    if (status == EF_BENCH_FINE) {
        timing->us = time_cold(b, &c, repeat, best_us);
        timing->warm_us = time_warm(b, &c);
    }
    ef_library_free(library);
    return status;
}
