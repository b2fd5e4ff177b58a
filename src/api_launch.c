/* The public interface to launching compiled GPU kernels, for the Python package; api_python.c has the call as Python's
 * own. */
#include "api.h"
#include "codegen/launch.h"

equiforge_launches *equiforge_launches_new(equiforge_session *session, int device, uint64_t stream, uint32_t addresses,
                                           bool captured)
{
    ef_launch_place place = {.device = device, .stream = stream, .addresses = addresses, .captured = captured};
    return (equiforge_launches *)ef_launches_new(&place, ef_api_diag(session));
}

void equiforge_launches_free(equiforge_launches *launches)
{
    ef_launches_free((ef_launches *)launches);
}

void equiforge_launches_add(equiforge_launches *launches, uint64_t function, uint32_t x, uint32_t y, uint32_t z,
                            uint32_t threads, uint32_t shared, bool overlap)
{
    ef_launch launch = {
        .function = function, .grid = {x, y, z}, .threads = threads, .shared = shared, .overlap = overlap};
    ef_launches_add((ef_launches *)launches, &launch);
}

bool equiforge_launches_address(equiforge_launches *launches, uint32_t which)
{
    return ef_launches_address((ef_launches *)launches, which);
}

bool equiforge_launches_value(equiforge_launches *launches, uint64_t value)
{
    return ef_launches_value((ef_launches *)launches, value);
}

bool equiforge_launches_map(equiforge_launches *launches, bool fixed, uint64_t address, uint32_t type, uint32_t swizzle,
                            uint32_t rank, const uint64_t *extents, const uint64_t *strides, const uint32_t *block)
{
    ef_tensor_map map = {.type = type, .swizzle = swizzle, .rank = rank};
    for (uint32_t i = 0; i < rank && i < EF_LAUNCH_RANK; i++) {
        map.extent[i] = extents[i];
        map.block[i] = block[i];
        map.stride[i] = i + 1 < rank ? strides[i] : 0;
    }
    return ef_launches_map((ef_launches *)launches, fixed, address, &map);
}

int equiforge_launches_run(equiforge_launches *launches, const uint64_t *address)
{
    return ef_launches_call((ef_launches *)launches, address);
}

const char *equiforge_launch_error(int result)
{
    return ef_launch_error(result);
}
