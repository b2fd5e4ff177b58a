/* Launching compiled GPU kernels: see launch.h. The declarations are those of the CUDA driver's interface that it keeps
 * between versions; nothing here needs its headers. */
#include "codegen/launch.h"

#include <dlfcn.h>
#include <pthread.h>
#include <string.h>

#include "support/vec.h"

/* ---- the driver ---- */

enum { ATTRIBUTE_OVERLAP = 6 }; /* CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION */

typedef struct {
    int id;
    int unused;
    union {
        int allowed;
        char room[64];
    } value;
} cu_attribute;

typedef struct {
    unsigned grid[3], block[3];
    unsigned shared;
    void *stream;
    cu_attribute *attribute;
    unsigned attributes;
} cu_config;

/* CUDA_KERNEL_NODE_PARAMS, second version. */
typedef struct {
    void *function;
    unsigned grid[3], block[3];
    unsigned shared;
    void **parameters, **extra;
    void *kernel, *context;
} cu_node;

/* CUgraphEdgeData: a programmatic edge goes out where the first kernel lets the next one begin. */
typedef struct {
    unsigned char from_port, to_port, type, reserved[5];
} cu_edge;

enum { PORT_PROGRAMMATIC = 1, EDGE_PROGRAMMATIC = 1 };

static struct {
    int (*launch)(const cu_config *config, void *function, void **parameters, void **extra);
    int (*capturing)(void *stream, int *status);
    int (*current)(void **context);
    int (*primary)(void **context, int device);
    int (*push)(void *context);
    int (*pop)(void **context);
    int (*error)(int result, const char **text);
    int (*capture_mode)(int *mode);
    /* Of newer drivers: 12.3 */
    int (*graph_create)(void **graph, unsigned flags);
    int (*graph_add)(void **node, void *graph, void *const *from, size_t count, const cu_node *params);
    int (*graph_connect)(void *graph, void *const *from, void *const *to, const cu_edge *edge, size_t count);
    int (*graph_instantiate)(void **exec, void *graph, unsigned long long flags);
    int (*graph_set)(void *exec, void *node, const cu_node *params);
    int (*graph_launch)(void *exec, void *stream);
    int (*graph_free)(void *graph);
    int (*exec_free)(void *exec);
    int (*encode)(void *map, unsigned type, unsigned rank, void *address, const uint64_t *extent,
                  const uint64_t *stride, const uint32_t *block, const uint32_t *step, unsigned interleave,
                  unsigned swizzle, unsigned promotion, unsigned fill);
    bool found, graphs;
} driver;

typedef struct {
    const char *name;
    void *to;
} symbol;

static bool find_symbols(void *library, const symbol *symbols, size_t count)
{
    bool all = library != NULL;
    for (size_t i = 0; i < count && library; i++) {
        void *address = dlsym(library, symbols[i].name);
        memcpy(symbols[i].to, &address, sizeof address);
        all = all && address;
    }
    return all;
}

static void find_driver(void)
{
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    const symbol launching[] = {
        {"cuLaunchKernelEx", &driver.launch},  {"cuStreamIsCapturing", &driver.capturing},
        {"cuCtxGetCurrent", &driver.current},  {"cuDevicePrimaryCtxRetain", &driver.primary},
        {"cuCtxPushCurrent_v2", &driver.push}, {"cuCtxPopCurrent_v2", &driver.pop},
        {"cuGetErrorString", &driver.error},   {"cuThreadExchangeStreamCaptureMode", &driver.capture_mode},
    };
    const symbol graphs[] = {
        {"cuGraphCreate", &driver.graph_create},
        {"cuGraphAddKernelNode_v2", &driver.graph_add},
        {"cuGraphAddDependencies_v2", &driver.graph_connect},
        {"cuGraphInstantiateWithFlags", &driver.graph_instantiate},
        {"cuGraphExecKernelNodeSetParams_v2", &driver.graph_set},
        {"cuGraphLaunch", &driver.graph_launch},
        {"cuGraphDestroy", &driver.graph_free},
        {"cuGraphExecDestroy", &driver.exec_free},
    };
    const symbol maps[] = {{"cuTensorMapEncodeTiled", &driver.encode}};
    find_symbols(library, maps, 1);
    driver.found = find_symbols(library, launching, sizeof launching / sizeof *launching);
    driver.graphs = driver.found && find_symbols(library, graphs, sizeof graphs / sizeof *graphs);
}

/* ---- recording ---- */

/* A CUtensorMap, and what it was made of. */
typedef struct {
    _Alignas(64) char bytes[128];
    ef_tensor_map of;
    bool made; /* for this address */
    uint64_t address;
} map;

typedef struct {
    bool fixed;
    uint32_t which; /* address */
    uint64_t value;
    map *map; /* NULL: the address or value itself */
} parameter;

typedef struct {
    cu_config config;
    cu_attribute attribute;
    void *function;
    uint32_t first, count; /* parameters */
    void *node;            /* in the graph */
} entry;

/* Launching a graph costs the host as much as a third of one kernel, however many are in it. */
typedef enum { GRAPH_NONE, GRAPH_READY, GRAPH_IMPOSSIBLE } graph_state;

/* A graph that can be launched. Results of a loop come to lie at two or three addresses in turns: there is an instance
 * for each, whose parameters are not set anew. */
enum { INSTANCES = 4 };

typedef struct {
    void *exec;
    uint64_t *set; /* the addresses that it has */
    uint64_t used; /* the last call */
} instance;

struct ef_launches {
    void *context, *stream;
    uint32_t addresses;
    bool captured;
    pthread_mutex_t turn; /* one call at a time */
    EF_VEC(entry) entries;
    EF_VEC(parameter) parameters;
    graph_state state;
    void *graph;
    uint64_t *built; /* the addresses that the graph was made with */
    instance instances[INSTANCES];
    uint32_t made;  /* instances */
    uint64_t calls; /* of the graph */
};

ef_launches *ef_launches_new(const ef_launch_place *place, ef_diag *diag)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    void *context = NULL;
    pthread_once(&once, find_driver);
    if (!driver.found) {
        ef_fail(diag, "no NVIDIA driver (libcuda.so.1) that launches kernels with attributes");
        return NULL;
    }
    /* PyTorch keeps primary contexts to its end, so this is never given back. */
    if ((driver.current(&context) != 0 || !context) && driver.primary(&context, place->device) != 0) {
        ef_fail(diag, "CUDA device %d has no context", place->device);
        return NULL;
    }
    ef_launches *list = ef_xcalloc(1, sizeof *list);
    list->context = context;
    list->stream = (void *)(uintptr_t)place->stream; // NOLINT(performance-no-int-to-ptr): a handle
    list->addresses = place->addresses;
    list->captured = place->captured;
    list->state = driver.graphs && !place->captured ? GRAPH_NONE : GRAPH_IMPOSSIBLE;
    list->built = ef_xcalloc(place->addresses + 1, sizeof *list->built);
    pthread_mutex_init(&list->turn, NULL);
    return list;
}

/* While any stream of the process is captured, the driver refuses to make or free graphs that can be launched, and the
 * capture is lost: PyTorch captures so that no thread may. What is made and freed here has nothing to do with the
 * stream, so it is done in the mode that allows it; Python frees lists whenever it collects garbage. Returns the
 * thread's mode, for `back`. */
enum { CAPTURE_RELAXED = 2 };

static int allow(void)
{
    int mode = CAPTURE_RELAXED;
    driver.capture_mode(&mode);
    return mode;
}

static void back(int mode)
{
    driver.capture_mode(&mode);
}

static void forget_graph(ef_launches *list)
{
    int mode = allow();
    for (uint32_t i = 0; i < list->made; i++) {
        driver.exec_free(list->instances[i].exec);
        free(list->instances[i].set);
    }
    if (list->graph)
        driver.graph_free(list->graph);
    back(mode);
    list->made = 0;
    list->graph = NULL;
}

void ef_launches_free(ef_launches *list)
{
    if (!list)
        return;
    forget_graph(list);
    pthread_mutex_destroy(&list->turn);
    free(list->built);
    for (uint32_t i = 0; i < list->parameters.count; i++)
        free(list->parameters.at[i].map);
    ef_vec_free(&list->entries);
    ef_vec_free(&list->parameters);
    free(list);
}

void ef_launches_add(ef_launches *list, const ef_launch *launch)
{
    entry e = {.config = {.grid = {launch->grid[0], launch->grid[1], launch->grid[2]},
                          .block = {launch->threads, 1, 1},
                          .shared = launch->shared,
                          .stream = list->stream,
                          .attributes = launch->overlap},
               .attribute = {.id = ATTRIBUTE_OVERLAP, .value.allowed = 1},
               .function = (void *)(uintptr_t)launch->function, // NOLINT(performance-no-int-to-ptr): a handle
               .first = list->parameters.count};
    ef_vec_push(&list->entries, e);
}

static bool add_parameter(ef_launches *list, parameter p)
{
    entry *last = list->entries.count ? &list->entries.at[list->entries.count - 1] : NULL;
    if (!last || last->count == EF_LAUNCH_PARAMETERS)
        return false;
    last->count++;
    ef_vec_push(&list->parameters, p);
    return true;
}

bool ef_launches_address(ef_launches *list, uint32_t which)
{
    return which < list->addresses && add_parameter(list, (parameter){.which = which});
}

bool ef_launches_value(ef_launches *list, uint64_t value)
{
    return add_parameter(list, (parameter){.fixed = true, .value = value});
}

bool ef_launches_map(ef_launches *list, bool fixed, uint64_t address, const ef_tensor_map *of)
{
    if (!driver.encode || of->rank < 1 || of->rank > EF_LAUNCH_RANK || (!fixed && address >= list->addresses))
        return false;
    map *m = aligned_alloc(_Alignof(map), sizeof *m);
    if (!m)
        abort();
    *m = (map){.of = *of};
    if (add_parameter(list, (parameter){.fixed = fixed, .which = (uint32_t)address, .value = address, .map = m}))
        return true;
    free(m);
    return false;
}

/* ---- launching ---- */

enum { PROMOTION_128_BYTES = 2 }; /* what a copy brings into the second cache at least */

/* Makes the map of the tensor that is at this address now. */
static int make_map(map *m, uint64_t address)
{
    static const uint32_t step[EF_LAUNCH_RANK] = {1, 1, 1, 1, 1};
    const ef_tensor_map *of = &m->of;
    if (m->made && m->address == address)
        return 0;
    void *start = (void *)(uintptr_t)address; // NOLINT(performance-no-int-to-ptr): of a device
    int result = driver.encode(m->bytes, of->type, of->rank, start, of->extent, of->stride, of->block, step, 0,
                               of->swizzle, PROMOTION_128_BYTES, 0);
    m->made = result == 0;
    m->address = address;
    return result;
}

static bool is_empty(const entry *e)
{
    return !e->config.grid[0] || !e->config.grid[1] || !e->config.grid[2];
}

/* Where the parameters of a launch are. The driver copies them before it returns. */
static int point(ef_launches *list, const entry *e, const uint64_t *address, void *pointer[EF_LAUNCH_PARAMETERS])
{
    int result = 0;
    for (uint32_t i = 0; i < e->count && result == 0; i++) {
        parameter *p = &list->parameters.at[e->first + i];
        pointer[i] = p->fixed ? (void *)&p->value : (void *)&address[p->which];
        if (!p->map)
            continue;
        result = make_map(p->map, p->fixed ? p->value : address[p->which]);
        pointer[i] = p->map->bytes;
    }
    return result;
}

/* Whether it may begin while what is before it runs. Behind a kernel that has no blocks it may not: it counts on what
 * that one would have waited for. */
static bool begins_early(const ef_launches *list, uint32_t number)
{
    return list->entries.at[number].config.attributes && (number == 0 || !is_empty(&list->entries.at[number - 1]));
}

static int launch_each(ef_launches *list, const uint64_t *address)
{
    void *pointer[EF_LAUNCH_PARAMETERS];
    int result = 0;
    for (uint32_t i = 0; i < list->entries.count && result == 0; i++) {
        entry *e = &list->entries.at[i];
        if (is_empty(e))
            continue;
        cu_config config = e->config;
        config.attributes = begins_early(list, i);
        config.attribute = &e->attribute;
        result = point(list, e, address, pointer);
        result = result ? result : driver.launch(&config, e->function, pointer, NULL);
    }
    return result;
}

/* ---- launching as a graph ---- */

static cu_node node_of(const ef_launches *list, const entry *e, void **pointer)
{
    return (cu_node){.function = e->function,
                     .grid = {e->config.grid[0], e->config.grid[1], e->config.grid[2]},
                     .block = {e->config.block[0], 1, 1},
                     .shared = e->config.shared,
                     .parameters = pointer,
                     .context = list->context};
}

/* A list without addresses may be called with none. */
static void copy(const ef_launches *list, uint64_t *to, const uint64_t *address)
{
    for (uint32_t i = 0; i < list->addresses; i++)
        to[i] = address[i];
}

static bool has(const ef_launches *list, const instance *x, const uint64_t *address)
{
    for (uint32_t i = 0; i < list->addresses; i++)
        if (x->set[i] != address[i])
            return false;
    return true;
}

/* With the addresses that the graph was made with. NULL when the driver refuses. */
static instance *new_instance(ef_launches *list)
{
    instance x = {0};
    int mode = allow(), result = driver.graph_instantiate(&x.exec, list->graph, 0);
    back(mode);
    if (result)
        return NULL;
    x.set = ef_xcalloc(list->addresses + 1, sizeof *x.set);
    copy(list, x.set, list->built);
    list->instances[list->made] = x;
    return &list->instances[list->made++];
}

/* A chain of kernels. */
static bool build_graph(ef_launches *list, const uint64_t *address)
{
    void *pointer[EF_LAUNCH_PARAMETERS], *before = NULL;
    const cu_edge full = {0}, programmatic = {.from_port = PORT_PROGRAMMATIC, .type = EDGE_PROGRAMMATIC};
    if (driver.graph_create(&list->graph, 0) != 0)
        return false;
    for (uint32_t i = 0; i < list->entries.count; i++) {
        entry *e = &list->entries.at[i];
        if (is_empty(e))
            continue;
        if (point(list, e, address, pointer) != 0)
            return false;
        cu_node node = node_of(list, e, pointer);
        if (driver.graph_add(&e->node, list->graph, NULL, 0, &node) != 0)
            return false;
        const cu_edge *edge = begins_early(list, i) ? &programmatic : &full;
        if (before && driver.graph_connect(list->graph, &before, &e->node, edge, 1) != 0)
            return false;
        before = e->node;
    }
    copy(list, list->built, address);
    return before && new_instance(list);
}

/* That which has these addresses, else a new one, else that which was not used for longest. */
static instance *instance_for(ef_launches *list, const uint64_t *address)
{
    instance *oldest = &list->instances[0];
    for (uint32_t i = 0; i < list->made; i++) {
        instance *x = &list->instances[i];
        if (has(list, x, address))
            return x;
        oldest = x->used < oldest->used ? x : oldest;
    }
    instance *made = list->made < INSTANCES ? new_instance(list) : NULL;
    return made ? made : oldest;
}

static bool has_other_addresses(const ef_launches *list, const instance *x, const entry *e, const uint64_t *address)
{
    for (uint32_t i = 0; i < e->count; i++) {
        const parameter *p = &list->parameters.at[e->first + i];
        if (!p->fixed && address[p->which] != x->set[p->which])
            return true;
    }
    return false;
}

/* Launches that are under way keep the addresses they were launched with. */
static int launch_graph(ef_launches *list, const uint64_t *address)
{
    void *pointer[EF_LAUNCH_PARAMETERS];
    instance *x = instance_for(list, address);
    for (uint32_t i = 0; i < list->entries.count; i++) {
        entry *e = &list->entries.at[i];
        if (is_empty(e) || !has_other_addresses(list, x, e, address))
            continue;
        int result = point(list, e, address, pointer);
        cu_node node = node_of(list, e, pointer);
        result = result ? result : driver.graph_set(x->exec, e->node, &node);
        if (result) {
            list->state = GRAPH_IMPOSSIBLE; /* some nodes have the new addresses, others do not */
            return launch_each(list, address);
        }
    }
    copy(list, x->set, address);
    x->used = ++list->calls;
    return driver.graph_launch(x->exec, list->stream);
}

/* The first call of a list launches its kernels one by one: what is wrong with them shows as the driver's error for
 * that one. */
static int launch_all(ef_launches *list, const uint64_t *address)
{
    if (list->state == GRAPH_READY)
        return launch_graph(list, address);
    int result = launch_each(list, address);
    if (result == 0 && list->state == GRAPH_NONE) {
        list->state = build_graph(list, address) ? GRAPH_READY : GRAPH_IMPOSSIBLE;
        if (list->state == GRAPH_IMPOSSIBLE)
            forget_graph(list);
    }
    return result;
}

/* ---- a call ---- */

/* The default stream cannot be captured. Where the driver does not say, the launches themselves fail. */
static bool is_capturing(void *stream)
{
    int status = 0;
    return stream && driver.capturing(stream, &status) == 0 && status != 0;
}

uint32_t ef_launches_addresses(const ef_launches *list)
{
    return list->addresses;
}

int ef_launches_call(ef_launches *list, const uint64_t *address)
{
    uint64_t low = 0;
    for (uint32_t i = 0; i < list->addresses; i++)
        low |= address[i];
    if (low % EF_LAUNCH_ALIGNMENT)
        return EF_LAUNCH_UNALIGNED;
    if (!list->captured && is_capturing(list->stream))
        return EF_LAUNCH_CAPTURING;
    /* A thread that has done nothing on the device yet has no context. */
    void *before = NULL;
    driver.current(&before);
    int result = before == list->context ? 0 : driver.push(list->context);
    if (result)
        return result;
    pthread_mutex_lock(&list->turn);
    result = launch_all(list, address);
    pthread_mutex_unlock(&list->turn);
    if (before != list->context)
        driver.pop(&before);
    return result;
}

const char *ef_launch_error(int result)
{
    const char *text = NULL;
    return driver.found && driver.error(result, &text) == 0 && text ? text : "unknown error of the driver";
}
