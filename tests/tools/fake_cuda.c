/* A libcuda.so.1 that launches nothing: it writes down what it is asked, for tests on machines without a GPU.
 *
 * A function's handle is the address of a text, its parameters' sizes in bytes, m for the map of a tensor: "88m4". What
 * is written down is one line a launch, "launch SIZES grid X Y Z threads N shared BYTES stream S overlap 0|1 context C:
 * VALUE …", values in hexadecimal. Its only declarations are those of the driver's interface; tests declare the rest
 * for themselves. */
#include <pthread.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
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
static int quiet, refused;
static uint64_t counted[3], lost;
static _Thread_local int capture_mode; /* as CUstreamCaptureMode: global */
static _Thread_local void *current = (void *)0x1000;

static void print(const char *format, ...)
{
    va_list rest;
    va_start(rest, format);
    if (length < sizeof written)
        length += (size_t)vsnprintf(written + length, sizeof written - length, format, rest);
    va_end(rest);
}

/* What a CUtensorMap of this driver is. */
typedef struct {
    uint64_t address;
    uint32_t type, swizzle, rank, extent[5], stride[5], block[5];
} tensor_map;

static void print_map(const char *at)
{
    tensor_map m;
    memcpy(&m, at, sizeof m);
    print(" map(%llx %u %u", (unsigned long long)m.address, m.type, m.swizzle);
    for (uint32_t i = 0; i < m.rank; i++)
        print(" %ux%u/%u", m.extent[i], m.block[i], m.stride[i]);
    print(")");
}

static void print_value(const char *at, int size)
{
    uint64_t value = 0;
    memcpy(&value, at, (size_t)size);
    print(" %llx", (unsigned long long)value);
}

static void print_launch(const config *c, const char *sizes, int overlap, void **parameter)
{
    print("launch %s grid %u %u %u threads %u shared %u stream %zx overlap %d context %zx:", sizes, c->grid[0],
          c->grid[1], c->grid[2], c->block[0] * c->block[1] * c->block[2], c->shared, (size_t)c->stream, overlap,
          (size_t)current);
    for (size_t i = 0; sizes[i]; i++)
        if (sizes[i] == 'm')
            print_map(parameter[i]);
        else
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

/* From here on graphs are refused, 1 when they are made, 2 when parameters are set, 4 when they are instantiated; or,
 * 3, maps of tensors. 0: nothing. */
EXPORT void fake_cuda_refuse(int what);
EXPORT void fake_cuda_refuse(int what)
{
    refused = what;
}

/* How many graphs were launched, nodes were given other parameters, and graphs, executable ones too, are there. */
EXPORT void fake_cuda_graphs(uint64_t found[3]);
EXPORT void fake_cuda_graphs(uint64_t found[3])
{
    memcpy(found, counted, sizeof counted);
}

/* How often an executable graph was made or freed in a way that loses what another stream captures. */
EXPORT uint64_t fake_cuda_lost(void);
EXPORT uint64_t fake_cuda_lost(void)
{
    return lost;
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
    int result = ++launches == failing ? 719 : 0, overlap = 0;
    for (unsigned i = 0; i < c->count; i++)
        overlap |= c->attributes[i].id == 6 && c->attributes[i].value.value;
    if (!result)
        print_launch(c, function, overlap, parameter);
    pthread_mutex_unlock(&turn);
    return result;
}

/* ---- graphs ---- */

typedef struct {
    const char *function;
    unsigned grid[3], block[3], shared;
    void **parameter, **extra, *kernel, *context;
} node_params;

typedef struct {
    unsigned char from, to, type, reserved[5];
} edge_data;

typedef struct {
    config config;
    const char *sizes;
    char value[16][128];
    int overlap, connected;
} node;

typedef struct {
    node node[4];
    int nodes;
} graph;

/* With a copy of what it was made of, which stays as long. */
typedef struct {
    graph *of, graph;
} graph_exec;

static void set_node(node *n, const node_params *p)
{
    n->sizes = p->function;
    n->config = (config){.shared = p->shared};
    memcpy(n->config.grid, p->grid, sizeof p->grid);
    memcpy(n->config.block, p->block, sizeof p->block);
    for (int i = 0; n->sizes[i]; i++)
        memcpy(n->value[i], p->parameter[i], n->sizes[i] == 'm' ? sizeof n->value[i] : (size_t)(n->sizes[i] - '0'));
}

EXPORT int cuGraphCreate(graph **made, unsigned flags);
EXPORT int cuGraphCreate(graph **made, unsigned flags)
{
    (void)flags;
    if (refused == 1)
        return 801;
    *made = calloc(1, sizeof **made);
    counted[2]++;
    return 0;
}

EXPORT int cuGraphAddKernelNode_v2(node **made, graph *g, node *const *from, size_t count, const node_params *params);
EXPORT int cuGraphAddKernelNode_v2(node **made, graph *g, node *const *from, size_t count, const node_params *params)
{
    (void)from;
    (void)count;
    *made = &g->node[g->nodes++];
    set_node(*made, params);
    return 0;
}

/* From each node to the next. */
EXPORT int cuGraphAddDependencies_v2(graph *g, node *const *from, node *const *to, const edge_data *edge, size_t count);
EXPORT int cuGraphAddDependencies_v2(graph *g, node *const *from, node *const *to, const edge_data *edge, size_t count)
{
    (void)g;
    if (count != 1 || *to != *from + 1 || edge->from != edge->type)
        return 1;
    (*to)->connected = 1;
    (*to)->overlap = edge->type;
    return 0;
}

EXPORT int cuGraphInstantiateWithFlags(graph_exec **exec, graph *g, unsigned long long flags);
EXPORT int cuGraphInstantiateWithFlags(graph_exec **exec, graph *g, unsigned long long flags)
{
    (void)flags;
    lost += capture_mode != 2;
    if (refused == 4)
        return 2;
    for (int i = 1; i < g->nodes; i++)
        if (!g->node[i].connected)
            return 1;
    *exec = calloc(1, sizeof **exec);
    **exec = (graph_exec){g, *g};
    counted[2]++;
    return 0;
}

EXPORT int cuGraphExecKernelNodeSetParams_v2(graph_exec *exec, node *n, const node_params *params);
EXPORT int cuGraphExecKernelNodeSetParams_v2(graph_exec *exec, node *n, const node_params *params)
{
    if (refused == 2)
        return 910;
    counted[1]++;
    set_node(&exec->graph.node[n - exec->of->node], params);
    return 0;
}

EXPORT int cuGraphLaunch(graph_exec *exec, void *stream);
EXPORT int cuGraphLaunch(graph_exec *exec, void *stream)
{
    pthread_mutex_lock(&turn);
    counted[0]++;
    graph *g = &exec->graph;
    for (int i = 0; i < g->nodes && !quiet; i++) {
        void *parameter[16];
        for (int k = 0; k < 16; k++)
            parameter[k] = g->node[i].value[k];
        g->node[i].config.stream = stream;
        print_launch(&g->node[i].config, g->node[i].sizes, g->node[i].overlap, parameter);
    }
    pthread_mutex_unlock(&turn);
    return 0;
}

EXPORT int cuGraphDestroy(graph *g);
EXPORT int cuGraphDestroy(graph *g)
{
    free(g);
    counted[2]--;
    return 0;
}

EXPORT int cuGraphExecDestroy(graph_exec *exec);
EXPORT int cuGraphExecDestroy(graph_exec *exec)
{
    lost += capture_mode != 2;
    free(exec);
    counted[2]--;
    return 0;
}

/* ---- maps of tensors ---- */

EXPORT int cuTensorMapEncodeTiled(void *map, unsigned type, unsigned rank, void *address, const uint64_t *extent,
                                  const uint64_t *stride, const uint32_t *block, const uint32_t *step,
                                  unsigned interleave, unsigned swizzle, unsigned promotion, unsigned fill);
EXPORT int cuTensorMapEncodeTiled(void *map, unsigned type, unsigned rank, void *address, const uint64_t *extent,
                                  const uint64_t *stride, const uint32_t *block, const uint32_t *step,
                                  unsigned interleave, unsigned swizzle, unsigned promotion, unsigned fill)
{
    tensor_map m = {.address = (uintptr_t)address, .type = type, .swizzle = swizzle, .rank = rank};
    if ((uintptr_t)map % 64 || interleave || promotion != 2 || fill || refused == 3)
        return 1;
    for (unsigned i = 0; i < rank; i++) {
        if (step[i] != 1)
            return 1;
        m.extent[i] = (uint32_t)extent[i];
        m.block[i] = block[i];
        m.stride[i] = i ? (uint32_t)stride[i - 1] : 0;
    }
    memcpy(map, &m, sizeof m);
    return 0;
}

/* ---- streams and contexts ---- */

EXPORT int cuStreamIsCapturing(void *stream, int *status);
EXPORT int cuStreamIsCapturing(void *stream, int *status)
{
    *status = (uintptr_t)stream == capturing;
    return 0;
}

EXPORT int cuThreadExchangeStreamCaptureMode(int *mode);
EXPORT int cuThreadExchangeStreamCaptureMode(int *mode)
{
    int before = capture_mode;
    capture_mode = *mode;
    *mode = before;
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
