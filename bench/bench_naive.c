/* What a programmer writes first: two programs in plain C, one loop nest an operator, every result stored. The measure
 * for generated C on one thread (docs/performance.md): bench_naive, beside `equiforge run FILE --threads 1`.
 *
 * Sizes are those of tests/programs/rmsnorm_linear_b16.ef and mha_decode_b1.ef; f16 in memory, f32 in between. */
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

__extension__ typedef _Float16 half; /* no ISO C */

enum { M = 16, K = 4096, N = 4096 };           /* x[M,K], g[K], W[K,N] */
enum { HEADS = 32, KEYS = 4096, WIDTH = 128 }; /* q[HEADS,WIDTH], k and v[HEADS,KEYS,WIDTH] */
enum { REPEAT = 15 };

static double seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static half *numbers(size_t count, double scale)
{
    half *x = malloc(count * sizeof *x);
    uint32_t state = 1;
    for (size_t i = 0; x && i < count; i++) {
        state = state * 1664525u + 1013904223u;
        x[i] = (half)(scale * ((double)(state >> 8) / 8388608.0 - 1.0));
    }
    if (!x)
        exit(1);
    return x;
}

static void rmsnorm_linear(half *const *in, half *const *out)
{
    const half *x = in[0], *g = in[1], *w = in[2];
    half *normed = out[0], *y = out[1];
    for (int m = 0; m < M; m++) {
        float sum = 0;
        for (int k = 0; k < K; k++)
            sum += (float)x[m * K + k] * (float)x[m * K + k];
        float factor = 1 / sqrtf(sum / K + 1e-6f);
        for (int k = 0; k < K; k++)
            normed[m * K + k] = (half)((float)x[m * K + k] * factor * (float)g[k]);
    }
    for (int m = 0; m < M; m++) {
        float row[N] = {0};
        for (int k = 0; k < K; k++)
            for (int n = 0; n < N; n++)
                row[n] += (float)normed[m * K + k] * (float)w[k * N + n];
        for (int n = 0; n < N; n++)
            y[m * N + n] = (half)row[n];
    }
}

static void decode(half *const *in, half *const *out)
{
    const half *q = in[0], *k = in[1], *v = in[2];
    half *scores = out[0], *weights = out[1], *o = out[2];
    for (int h = 0; h < HEADS; h++)
        for (int s = 0; s < KEYS; s++) {
            float dot = 0;
            for (int d = 0; d < WIDTH; d++)
                dot += (float)q[h * WIDTH + d] * (float)k[(h * KEYS + s) * WIDTH + d];
            scores[h * KEYS + s] = (half)(dot * 0.08838834764831845f);
        }
    for (int h = 0; h < HEADS; h++) {
        float top = -INFINITY, sum = 0;
        for (int s = 0; s < KEYS; s++)
            top = fmaxf(top, (float)scores[h * KEYS + s]);
        for (int s = 0; s < KEYS; s++)
            sum += expf((float)scores[h * KEYS + s] - top);
        for (int s = 0; s < KEYS; s++)
            weights[h * KEYS + s] = (half)(expf((float)scores[h * KEYS + s] - top) / sum);
    }
    for (int h = 0; h < HEADS; h++) {
        float row[WIDTH] = {0};
        for (int s = 0; s < KEYS; s++)
            for (int d = 0; d < WIDTH; d++)
                row[d] += (float)weights[h * KEYS + s] * (float)v[(h * KEYS + s) * WIDTH + d];
        for (int d = 0; d < WIDTH; d++)
            o[h * WIDTH + d] = (half)row[d];
    }
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void measure(const char *name, void (*run)(half *const *, half *const *), half *const *in, half *const *out)
{
    double took[REPEAT];
    run(in, out);
    for (int i = 0; i < REPEAT; i++) {
        double start = seconds();
        run(in, out);
        took[i] = seconds() - start;
    }
    qsort(took, REPEAT, sizeof *took, ascending);
    printf("%-20s %8.2f ms median, %8.2f ms least\n", name, took[REPEAT / 2] * 1e3, took[0] * 1e3);
}

int main(void)
{
    const size_t cache = (size_t)HEADS * KEYS * WIDTH;
    half *linear_in[] = {numbers(M * K, 1), numbers(K, 1), numbers((size_t)K * N, 1.0 / 64)};
    half *linear_out[] = {numbers(M * K, 0), numbers(M * N, 0)};
    half *decode_in[] = {numbers(HEADS * WIDTH, 1), numbers(cache, 1), numbers(cache, 1)};
    half *decode_out[] = {numbers(HEADS * KEYS, 0), numbers(HEADS * KEYS, 0), numbers(HEADS * WIDTH, 0)};
    measure("rmsnorm_linear_b16", rmsnorm_linear, linear_in, linear_out);
    measure("mha_decode_b1", decode, decode_in, decode_out);
    for (int i = 0; i < 3; i++) {
        free(linear_in[i]);
        free(decode_in[i]);
        free(decode_out[i]);
    }
    free(linear_out[0]);
    free(linear_out[1]);
    return 0;
}
