/* Launching as a built-in function of Python's. The declarations are those of Python's stable interface (3.10 and
 * newer): nothing here needs its headers, or is linked with it. */
#include <stdlib.h>
#include <string.h>

#include "api.h"
#include "codegen/launch.h"

enum { ADDRESSES = 64 }; /* of a call, for which no memory is asked */

static struct {
    unsigned long long (*number)(void *integer); /* -1, and an exception, for what is none */
    void *(*integer)(long number);
    void *(*exception)(void);
    int (*wrong_argument)(void); /* sets TypeError */
    void *(*unlock)(void);
    void (*lock)(void *state);
} python;

void equiforge_launches_python(void *const functions[EQUIFORGE_PYTHON_FUNCTIONS])
{
    void *const to[EQUIFORGE_PYTHON_FUNCTIONS] = {
        &python.number, &python.integer, &python.exception, &python.wrong_argument, &python.unlock, &python.lock,
    };
    for (size_t i = 0; i < EQUIFORGE_PYTHON_FUNCTIONS; i++)
        memcpy(to[i], &functions[i], sizeof functions[i]);
}

static void *(*address_of)(void *tensor);

void equiforge_launches_tensors(void *(*address)(void *tensor))
{
    address_of = address;
}

static int call_unlocked(ef_launches *list, const uint64_t *address)
{
    void *state = python.unlock();
    int result = ef_launches_call(list, address);
    python.lock(state);
    return result;
}

static bool read_numbers(void *const *arguments, intptr_t count, uint64_t *address)
{
    for (intptr_t i = 0; i < count; i++) {
        address[i] = python.number(arguments[i]);
        if (address[i] == UINT64_MAX && python.exception())
            return false;
    }
    return true;
}

static bool read_tensors(void *const *arguments, intptr_t count, uint64_t *address)
{
    for (intptr_t i = 0; i < count; i++)
        address[i] = (uintptr_t)address_of(arguments[i]);
    return true;
}

static void *call(void *self, void *const *arguments, intptr_t count,
                  bool (*read)(void *const *arguments, intptr_t count, uint64_t *address))
{
    uintptr_t handle = (uintptr_t)python.number(self);
    ef_launches *list = (ef_launches *)handle; // NOLINT(performance-no-int-to-ptr): made by equiforge_launches_new
    if (count != (intptr_t)ef_launches_addresses(list)) {
        python.wrong_argument();
        return NULL;
    }
    uint64_t few[ADDRESSES], *address = count <= ADDRESSES ? few : ef_xcalloc((size_t)count, sizeof *address);
    void *result = read(arguments, count, address) ? python.integer(call_unlocked(list, address)) : NULL;
    if (address != few)
        free(address);
    return result;
}

void *equiforge_launches_call(void *self, void *const *arguments, intptr_t count)
{
    return call(self, arguments, count, read_numbers);
}

void *equiforge_launches_call_tensors(void *self, void *const *arguments, intptr_t count)
{
    return call(self, arguments, count, read_tensors);
}
