/* Verification: see verify.h. */
#include "codegen/verify.h"

#include <math.h>
#include <pthread.h>
#include <string.h>

#include "support/rng.h"

const char *const ef_draw_names[EF_DRAW_COUNT] = {"normal", "large", "tiny", "zero", "shifted", "masked"};

/* ---- conversions, by the definition of the formats ---- */

/* Rounds to `bits` bits of mantissa at the exponent of x, but not below the smallest exponent of a normal number. */
static double round_to(double x, int bits, int smallest)
{
    int exponent;
    if (x == 0 || !isfinite(x))
        return x;
    frexp(x, &exponent);
    exponent = exponent < smallest ? smallest : exponent;
    double unit = ldexp(1, exponent - bits);
    return nearbyint(x / unit) * unit;
}

static uint16_t f16_bits(double x)
{
    uint16_t sign = signbit(x) ? 0x8000 : 0;
    x = fabs(round_to(x, 11, -13));
    if (isnan(x))
        return 0x7e00;
    if (x >= 65520)
        return sign | 0x7c00;
    if (x < 0x1p-14)
        return sign | (uint16_t)(x * 0x1p24);
    int exponent;
    double mantissa = frexp(x, &exponent);
    return (uint16_t)(sign | (exponent + 14) << 10 | ((int)(mantissa * 2048) - 1024));
}

static double f16_decode(uint16_t h)
{
    int exponent = h >> 10 & 31, mantissa = h & 1023;
    double x = exponent == 31 ? (mantissa ? NAN : INFINITY)
               : exponent     ? ldexp(1024 + mantissa, exponent - 25)
                              : ldexp(mantissa, -24);
    return h & 0x8000 ? -x : x;
}

/* All of them: references of large programs read 10^9. */
static double f16_table[1 << 16];

static void fill_f16_table(void)
{
    for (uint32_t h = 0; h < 1u << 16; h++)
        f16_table[h] = f16_decode((uint16_t)h);
}

static double f16_value(uint16_t h)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, fill_f16_table);
    return f16_table[h];
}

static double bf16_value(uint16_t h)
{
    uint32_t bits = (uint32_t)h << 16;
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static uint16_t bf16_bits(double x)
{
    float y = (float)round_to(x, 8, -125);
    uint32_t bits;
    memcpy(&bits, &y, sizeof bits);
    return (uint16_t)(bits >> 16);
}

void ef_element_put(ef_dtype dtype, void *memory, uint64_t at, double x)
{
    switch (dtype) {
    case EF_BOOL: ((uint8_t *)memory)[at] = x != 0; break;
    case EF_I32: ((int32_t *)memory)[at] = (int32_t)x; break;
    case EF_I64: ((int64_t *)memory)[at] = (int64_t)x; break;
    case EF_F16: ((uint16_t *)memory)[at] = f16_bits(x); break;
    case EF_BF16: ((uint16_t *)memory)[at] = bf16_bits(x); break;
    case EF_F64: ((double *)memory)[at] = x; break;
    default: ((float *)memory)[at] = (float)x; break;
    }
}

double ef_element_get(ef_dtype dtype, const void *memory, uint64_t at)
{
    switch (dtype) {
    case EF_BOOL: return ((const uint8_t *)memory)[at];
    case EF_I32: return ((const int32_t *)memory)[at];
    case EF_I64: return (double)((const int64_t *)memory)[at];
    case EF_F16: return f16_value(((const uint16_t *)memory)[at]);
    case EF_BF16: return bf16_value(((const uint16_t *)memory)[at]);
    case EF_F64: return ((const double *)memory)[at];
    default: return ((const float *)memory)[at];
    }
}

#define CONVERT(type, value)               \
    for (uint64_t e = 0; e < count; e++) { \
        type x = ((const type *)from)[e];  \
        to[e] = value;                     \
    }                                      \
    break

void ef_elements_get(ef_dtype dtype, const void *from, double *to, uint64_t count)
{
    f16_value(0); /* fills the table */
    switch (dtype) {
    case EF_F16: CONVERT(uint16_t, f16_table[x]);
    case EF_BF16: CONVERT(uint16_t, bf16_value(x));
    case EF_F32: CONVERT(float, x);
    default:
        for (uint64_t e = 0; e < count; e++)
            to[e] = ef_element_get(dtype, from, e);
    }
}

/* ---- data ---- */

static uint64_t bytes_of(const ef_kgraph *g, const ef_schedule *s, uint32_t buffer)
{
    return ef_sched_buffer(g, s, buffer) * ef_dtype_bytes((ef_dtype)g->buffers.at[buffer].dtype);
}

ef_data ef_data_new(const ef_kgraph *g, const ef_schedule *s)
{
    ef_data data = {.inputs = g->inputs, .outputs = g->outputs.count};
    data.in = ef_xcalloc(data.inputs + 1, sizeof *data.in);
    data.out = ef_xcalloc(data.outputs + 1, sizeof *data.out);
    for (uint32_t i = 0; i < data.inputs; i++)
        data.in[i] = ef_aligned(bytes_of(g, s, i));
    for (uint32_t i = 0; i < data.outputs; i++)
        data.out[i] = ef_aligned(bytes_of(g, s, g->outputs.at[i]));
    return data;
}

void ef_data_free(ef_data *data)
{
    for (uint32_t i = 0; i < data->inputs; i++)
        free(data->in[i]);
    for (uint32_t i = 0; i < data->outputs; i++)
        free(data->out[i]);
    free(data->in);
    free(data->out);
    *data = (ef_data){0};
}

/* Rows of zeros and rows that a mask blanks: every third. */
#define BLANK_ROW(row) ((row) % 3 == 1)

/* Results of tiny inputs would leave f16 at its lower end; a softmax of large scores takes another key for their last
 * bits. At 30 off centre E[x^2] - E[x]^2 is no variance in single precision any more, and in half precision that does
 * not matter. */
static const double draw_scales[EF_DRAW_COUNT][EF_DRAW_SCALES] = {
    [EF_DRAW_NORMAL] = {1, 0.3, 0.1, 0.03, 0.01},  [EF_DRAW_LARGE] = {100, 30, 3, 0.3, 0.03},
    [EF_DRAW_TINY] = {1e-3, 1e-2, 0.05, 0.2, 0.5}, [EF_DRAW_ZERO] = {1, 0.3, 0.1, 0.03, 0.01},
    [EF_DRAW_SHIFTED] = {30, 10, 3, 1, 0.3},       [EF_DRAW_MASKED] = {1, 0.3, 0.1, 0.03, 0.01}};

double ef_draw_scale(ef_draw draw, unsigned attempt)
{
    return draw_scales[draw][attempt];
}

bool ef_draw_is_far(ef_draw draw)
{
    return draw == EF_DRAW_LARGE || draw == EF_DRAW_TINY || draw == EF_DRAW_SHIFTED;
}

double ef_draw_error_limit(ef_draw draw)
{
    return EF_ERROR_LIMIT / (ef_draw_is_far(draw) ? EF_ERROR_FACTOR : 1);
}

bool ef_draw_fit(ef_draw draw, uint64_t normal, ef_draw_try attempt, void *user, unsigned *taken, ef_drawn *drawn,
                 ef_diag *diag)
{
    double least = INFINITY;
    unsigned best = EF_DRAW_SCALES - 1;
    for (*taken = 0; *taken < EF_DRAW_SCALES; (*taken)++) {
        if (!attempt(user, draw, *taken, drawn, diag))
            return false;
        if (drawn->error <= ef_draw_error_limit(draw) && (!ef_draw_is_far(draw) || drawn->within >= normal))
            return true;
        if (drawn->error < least) {
            least = drawn->error;
            best = *taken;
        }
    }
    *taken = best;
    return best + 1 == EF_DRAW_SCALES || attempt(user, draw, best, drawn, diag);
}

static double draw_one(ef_draw draw, ef_dtype dtype, bool mask, bool blank, double scale, bool summed, ef_rng *rng)
{
    double x = ef_rng_normal(rng);
    if (!ef_dtype_is_float(dtype))
        return draw == EF_DRAW_MASKED && blank ? 0 : ef_rng_below(rng, dtype == EF_BOOL ? 2 : 8);
    if (mask && draw == EF_DRAW_MASKED)
        return blank || ef_rng_below(rng, 3) == 0 ? -INFINITY : 0;
    switch (draw) {
    case EF_DRAW_ZERO: return blank ? 0 : scale * x;
    case EF_DRAW_SHIFTED: return summed ? x + scale : x;
    default: return scale * x;
    }
}

/* Or products of several would leave the range of f16. */
static double unit_of(const ef_kgraph *g, const ef_schedule *s, uint32_t input)
{
    return 1 / sqrt((double)ef_sched_dim(g, s, g->fan_in[input]));
}

/* So many numbers are drawn, and repeated in larger inputs: a prime, so that no two rows are alike. */
#define PERIOD 1048573u

static void repeat(char *memory, uint64_t period, uint64_t bytes)
{
    for (uint64_t done = period; done < bytes; done += done < bytes - done ? done : bytes - done)
        memcpy(memory + done, memory, done < bytes - done ? done : bytes - done);
}

/* Blank rows of what was repeated: other rows than in the first period. */
static void blank_rows(ef_dtype dtype, void *memory, uint64_t rows, uint64_t row, double value)
{
    unsigned size = ef_dtype_bytes(dtype);
    uint64_t first = 1; /* of BLANK_ROW */
    for (uint64_t e = 0; rows > first && e < row; e++)
        ef_element_put(dtype, memory, first * row + e, value);
    for (uint64_t r = first + 1; r < rows; r++)
        if (BLANK_ROW(r))
            memcpy((char *)memory + r * row * size, (char *)memory + first * row * size, row * size);
}

/* Inputs that are called a mask hold 0 and -inf, whole rows of -inf among them, in the masked draw. */
static void draw_input(const ef_kgraph *g, const ef_schedule *s, uint32_t input, void *memory, ef_draw draw,
                       ef_draw_size size, uint64_t seed)
{
    const ef_kbuffer *b = &g->buffers.at[input];
    ef_dtype dtype = (ef_dtype)b->dtype;
    ef_rng rng = {seed * 1000003 + input};
    uint64_t count = ef_sched_buffer(g, s, input), row = b->rank ? ef_sched_dim(g, s, b->dim[0]) : 1;
    bool mask = strstr(b->name, "mask"), single = count == row, periodic = count > PERIOD;
    double unit = ef_dtype_is_float(dtype) ? size.unit * unit_of(g, s, input) : 1;
    bool summed = input < 64 && g->summed >> input & 1;
    for (uint64_t e = 0; e < (periodic ? PERIOD : count); e++) {
        bool blank = !periodic && (single ? draw == EF_DRAW_ZERO && input == 0 : BLANK_ROW(e / row));
        ef_element_put(dtype, memory, e, unit * draw_one(draw, dtype, mask, blank, size.scale, summed, &rng));
    }
    if (!periodic)
        return;
    repeat(memory, (uint64_t)PERIOD * ef_dtype_bytes(dtype), count * ef_dtype_bytes(dtype));
    if (single && draw == EF_DRAW_ZERO && input == 0)
        memset(memory, 0, count * ef_dtype_bytes(dtype));
    else if (!single && draw == EF_DRAW_ZERO && ef_dtype_is_float(dtype))
        blank_rows(dtype, memory, count / row, row, 0);
    else if (!single && draw == EF_DRAW_MASKED && (mask || !ef_dtype_is_float(dtype)))
        blank_rows(dtype, memory, count / row, row, mask && ef_dtype_is_float(dtype) ? -INFINITY : 0);
}

void ef_data_draw(const ef_kgraph *g, const ef_schedule *s, ef_data *data, ef_draw draw, ef_draw_size size,
                  uint64_t seed)
{
    for (uint32_t i = 0; i < data->inputs; i++)
        draw_input(g, s, i, data->in[i], draw, size, seed);
}

uint64_t ef_data_finite(const ef_kgraph *g, const ef_schedule *s, const ef_data *data)
{
    uint64_t finite = 0;
    for (uint32_t i = 0; i < data->outputs; i++) {
        const ef_kbuffer *b = &g->buffers.at[g->outputs.at[i]];
        for (uint64_t e = 0, count = ef_sched_buffer(g, s, g->outputs.at[i]); e < count; e++)
            finite += isfinite(ef_element_get((ef_dtype)b->dtype, data->out[i], e));
    }
    return finite;
}

/* ---- the reference ---- */

struct ef_reference {
    ef_evaluation *evaluation; /* NULL: computed elsewhere */
    uint32_t roots;            /* of the evaluation; else outputs */
    double *const *output;
    const uint64_t *count;
};

typedef struct {
    const ef_kgraph *graph;
    const ef_data *data;
} source;

static void fill(void *user, uint32_t input, ef_tensor *out)
{
    const source *s = user;
    uint64_t count = 1;
    for (unsigned i = 0; i < out->rank; i++)
        count *= out->extent[i];
    for (uint32_t i = 0; i < s->graph->inputs; i++)
        for (uint64_t e = 0; s->graph->input[i] == input && e < count; e++)
            out->data[e] = ef_element_get((ef_dtype)s->graph->buffers.at[i].dtype, s->data->in[i], e);
}

/* The evaluator's tiles: the same results whatever they are, up to rounding; collected axes must agree. */
static ef_tile *tiles_of(const ef_kgraph *g, const ef_schedule *s, unsigned *count)
{
    ef_tile *tile = ef_xcalloc(g->params.count + 1, sizeof *tile);
    *count = 0;
    for (uint32_t i = 0; i < g->params.count; i++)
        if (g->params.at[i].kind == EF_PARAM_TILE)
            tile[(*count)++] = (ef_tile){g->params.at[i].axis, s->value[i]};
    return tile;
}

ef_reference *ef_reference_new(const ef_program *program, const ef_kgraph *graph, const ef_schedule *schedule,
                               const ef_data *data, ef_diag *diag)
{
    ef_tiling tiling = {.fallback = UINT64_MAX};
    source from = {graph, data};
    ef_expr *roots = ef_xcalloc(program->outputs + 1, sizeof *roots);
    ef_tile *tiles = tiles_of(graph, schedule, &tiling.count);
    tiling.tiles = tiles;
    for (uint32_t i = 0; i < program->outputs; i++)
        roots[i] = program->output[i].expr;
    ef_evaluation *evaluation = ef_evaluate(program->dag, roots, program->outputs, &tiling, fill, &from, 0, diag);
    free(roots);
    free(tiles);
    if (!evaluation)
        return NULL;
    ef_reference *reference = ef_xcalloc(1, sizeof *reference);
    reference->evaluation = evaluation;
    reference->roots = program->outputs;
    return reference;
}

void ef_reference_free(ef_reference *reference)
{
    if (!reference)
        return;
    ef_evaluation_free(reference->evaluation);
    free(reference);
}

/* The difference of an element. What does not fit f16 becomes an infinity, and may at the edge; steps between the
 * smallest numbers are no errors. */
static double distance(ef_dtype dtype, double got, double want)
{
    if (dtype == EF_F16 && fabs(want) > 65000)
        return fabs(got) > 64000 && (got > 0) == (want > 0) ? 0 : INFINITY;
    if (dtype == EF_F16 && fabs(got - want) <= 0x1p-24)
        return 0;
    if (got == want || (isnan(got) && isnan(want)))
        return 0;
    return isfinite(got) && isfinite(want) ? got - want : INFINITY;
}

ef_reference *ef_reference_computed(uint32_t outputs, double *const *output, const uint64_t *count)
{
    ef_reference *reference = ef_xcalloc(1, sizeof *reference);
    *reference = (ef_reference){.roots = outputs, .output = output, .count = count};
    return reference;
}

typedef struct {
    double wrong, size; /* squares */
} distances;

static void compare_one(distances *sum, ef_dtype dtype, double got, double want)
{
    double d = distance(dtype, got, want);
    sum->wrong += d * d;
    sum->size += isfinite(want) && fabs(want) < 1e150 ? want * want : 0;
}

static void compare(distances *sum, ef_dtype dtype, const void *got, const double *want, uint64_t count)
{
    for (uint64_t e = 0; e < count; e++)
        compare_one(sum, dtype, ef_element_get(dtype, got, e), want[e]);
}

void ef_reference_compare(ef_dtype dtype, const void *got, const void *want, uint64_t count, double *wrong,
                          double *size)
{
    distances sum = {*wrong, *size};
    for (uint64_t e = 0; e < count; e++)
        compare_one(&sum, dtype, ef_element_get(dtype, got, e), ef_element_get(dtype, want, e));
    *wrong = sum.wrong;
    *size = sum.size;
}

double ef_reference_ratio(double wrong, double size)
{
    return wrong == 0 ? 0 : sqrt(wrong / (size > 0 ? size : 1e-12));
}

double ef_reference_error(const ef_reference *reference, const ef_kgraph *graph, const ef_data *data)
{
    distances sum = {0};
    uint32_t output = 0;
    for (uint32_t r = 0; r < reference->roots; r++) {
        uint32_t parts = reference->evaluation ? ef_evaluation_count(reference->evaluation, r) : 1;
        for (uint32_t i = 0; i < parts; i++, output++) {
            ef_dtype dtype = (ef_dtype)graph->buffers.at[graph->outputs.at[output]].dtype;
            if (!reference->evaluation) {
                compare(&sum, dtype, data->out[output], reference->output[r], reference->count[r]);
                continue;
            }
            const ef_tensor *t = ef_evaluation_at(reference->evaluation, r, i);
            uint64_t count = 1;
            for (unsigned d = 0; d < t->rank; d++)
                count *= t->extent[d];
            compare(&sum, dtype, data->out[output], t->data, count);
        }
    }
    return ef_reference_ratio(sum.wrong, sum.size);
}

double ef_error_bound(double eager)
{
    double twice = EF_ERROR_FACTOR * eager + EF_ERROR_FLOOR;
    return twice < EF_ERROR_LIMIT ? twice : EF_ERROR_LIMIT;
}
