/* A libcuda.so.1 that launches nothing: it writes down what it is asked, for tests on machines without a GPU.
 *
 * A function's handle is the address of a text, its parameters' sizes in bytes: "884". What is written down is one line
 * a launch, "launch SIZES grid X Y Z threads N shared BYTES stream S overlap 0|1 context C: VALUE …", values in
 * hexadecimal. Its only declarations are those of the driver's interface; tests declare the rest for themselves. */
#include <pthread.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))

typedef struct {
    int id, unused;
    union {
        int value;
        char room[64];
    } value;
} attribute;

typedef struct {
    unsigned grid[3], block[3], shared;
    void *stream;
    attribute *attributes;
    unsigned count;
} config;

static pthread_mutex_t turn = PTHREAD_MUTEX_INITIALIZER;
static char written[1 << 20];
static size_t length;
static uint64_t launches, failing, capturing;
static int quiet;
static _Thread_local void *current = (void *)0x1000;

static void print(const char *format, ...)
{
    va_list rest;
    va_start(rest, format);
    if (length < sizeof written)
        length += (size_t)vsnprintf(written + length, sizeof written - length, format, rest);
    va_end(rest);
}

static void print_value(const char *at, int size)
{
    uint64_t value = 0;
    memcpy(&value, at, (size_t)size);
    print(" %llx", (unsigned long long)value);
}

static void print_launch(const config *c, const char *sizes, void **parameter)
{
    int overlap = 0;
    for (unsigned i = 0; i < c->count; i++)
        overlap |= c->attributes[i].id == 6 && c->attributes[i].value.value;
    print("launch %s grid %u %u %u threads %u shared %u stream %zx overlap %d context %zx:", sizes, c->grid[0],
          c->grid[1], c->grid[2], c->block[0] * c->block[1] * c->block[2], c->shared, (size_t)c->stream, overlap,
          (size_t)current);
    for (size_t i = 0; sizes[i]; i++)
        print_value(parameter[i], sizes[i] - '0');
    print("\n");
}

/* ---- what tests ask ---- */

EXPORT const char *fake_cuda_written(void);
EXPORT const char *fake_cuda_written(void)
{
    return written;
}

/* Forgets what was written; the launch of this number from here on (1: the next) fails, 0: none does; the stream is in
 * capture, 0: none is. `silent`: nothing is written. */
EXPORT void fake_cuda_reset(uint64_t fail, uint64_t capture, int silent);
EXPORT void fake_cuda_reset(uint64_t fail, uint64_t capture, int silent)
{
    length = 0;
    written[0] = 0;
    launches = 0;
    failing = fail;
    capturing = capture;
    quiet = silent;
}

/* The context of this thread; 0: none. */
EXPORT void fake_cuda_context(uint64_t context);
EXPORT void fake_cuda_context(uint64_t context)
{
    current = (void *)(uintptr_t)context; // NOLINT(performance-no-int-to-ptr): a handle
}

/* ---- the driver ---- */

EXPORT int cuLaunchKernelEx(const config *c, void *function, void **parameter, void **extra);
EXPORT int cuLaunchKernelEx(const config *c, void *function, void **parameter, void **extra)
{
    (void)extra;
    if (quiet)
        return 0;
    pthread_mutex_lock(&turn);
    int result = ++launches == failing ? 719 : 0;
    if (!result)
        print_launch(c, function, parameter);
    pthread_mutex_unlock(&turn);
    return result;
}

EXPORT int cuStreamIsCapturing(void *stream, int *status);
EXPORT int cuStreamIsCapturing(void *stream, int *status)
{
    *status = (uintptr_t)stream == capturing;
    return 0;
}

EXPORT int cuCtxGetCurrent(void **context);
EXPORT int cuCtxGetCurrent(void **context)
{
    *context = current;
    return 0;
}

/* Of device 0, which is the only one. */
EXPORT int cuDevicePrimaryCtxRetain(void **context, int device);
EXPORT int cuDevicePrimaryCtxRetain(void **context, int device)
{
    *context = (void *)0x1000;
    return device ? 101 : 0;
}

/* A stack of one. */
static _Thread_local void *pushed;

EXPORT int cuCtxPushCurrent_v2(void *context);
EXPORT int cuCtxPushCurrent_v2(void *context)
{
    pushed = current;
    current = context;
    return 0;
}

EXPORT int cuCtxPopCurrent_v2(void **context);
EXPORT int cuCtxPopCurrent_v2(void **context)
{
    *context = current;
    current = pushed;
    return 0;
}

EXPORT int cuGetErrorString(int result, const char **text);
EXPORT int cuGetErrorString(int result, const char **text)
{
    *text = result == 719 ? "unspecified launch failure" : "another error";
    return 0;
}
