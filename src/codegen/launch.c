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

static struct {
    int (*launch)(const cu_config *config, void *function, void **parameters, void **extra);
    int (*capturing)(void *stream, int *status);
    int (*current)(void **context);
    int (*primary)(void **context, int device);
    int (*push)(void *context);
    int (*pop)(void **context);
    int (*error)(int result, const char **text);
    bool found;
} driver;

static void find_driver(void)
{
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    const struct {
        const char *name;
        void *to;
    } symbols[] = {{"cuLaunchKernelEx", &driver.launch},  {"cuStreamIsCapturing", &driver.capturing},
                   {"cuCtxGetCurrent", &driver.current},  {"cuDevicePrimaryCtxRetain", &driver.primary},
                   {"cuCtxPushCurrent_v2", &driver.push}, {"cuCtxPopCurrent_v2", &driver.pop},
                   {"cuGetErrorString", &driver.error}};
    driver.found = library != NULL;
    for (size_t i = 0; i < sizeof symbols / sizeof *symbols && library; i++) {
        void *symbol = dlsym(library, symbols[i].name);
        memcpy(symbols[i].to, &symbol, sizeof symbol);
        driver.found = driver.found && symbol;
    }
}

/* ---- recording ---- */

typedef struct {
    bool fixed;
    uint32_t which; /* address */
    uint64_t value;
} parameter;

typedef struct {
    cu_config config;
    cu_attribute attribute;
    void *function;
    uint32_t first, count; /* parameters */
} entry;

struct ef_launches {
    void *context, *stream;
    uint32_t addresses;
    bool captured;
    pthread_mutex_t turn; /* one call at a time */
    EF_VEC(entry) entries;
    EF_VEC(parameter) parameters;
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
    pthread_mutex_init(&list->turn, NULL);
    return list;
}

void ef_launches_free(ef_launches *list)
{
    if (!list)
        return;
    pthread_mutex_destroy(&list->turn);
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

/* ---- launching ---- */

/* The driver copies the parameters before it returns. */
static int launch_one(ef_launches *list, entry *e, const uint64_t *address)
{
    void *pointer[EF_LAUNCH_PARAMETERS];
    if (!e->config.grid[0] || !e->config.grid[1] || !e->config.grid[2])
        return 0;
    for (uint32_t i = 0; i < e->count; i++) {
        parameter *p = &list->parameters.at[e->first + i];
        pointer[i] = p->fixed ? (void *)&p->value : (void *)&address[p->which];
    }
    e->config.attribute = e->config.attributes ? &e->attribute : NULL;
    return driver.launch(&e->config, e->function, pointer, NULL);
}

/* The default stream cannot be captured. Where the driver does not say, the launches themselves fail. */
static bool is_capturing(void *stream)
{
    int status = 0;
    return stream && driver.capturing(stream, &status) == 0 && status != 0;
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
    for (uint32_t i = 0; i < list->entries.count && result == 0; i++)
        result = launch_one(list, &list->entries.at[i], address);
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
