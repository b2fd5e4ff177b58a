/* Launching compiled GPU kernels: a recorded list of launches, on one stream, in one call (design, section 7).
 *
 * What compiled the kernels (Triton, in Python) would launch each by itself, and look at every argument again each
 * time, which costs more than most kernels take. Here a list is recorded once; a call fills in the addresses of the
 * tensors that differ from call to call and hands all launches to NVIDIA's driver: from the second call on as one CUDA
 * graph, which costs the host less than one launch does, where the driver can (CUDA 12.3); addresses that come in turns
 * are not set anew. The driver, libcuda.so.1, is opened when it is first needed: nothing is linked with it. */
#ifndef EF_CODEGEN_LAUNCH_H
#define EF_CODEGEN_LAUNCH_H

#include <stdbool.h>
#include <stdint.h>

#include "support/diag.h"

#define EF_LAUNCH_ALIGNMENT 16   /* kernels are compiled for tensors that begin at multiples of it */
#define EF_LAUNCH_PARAMETERS 256 /* of a kernel, at most */
#define EF_LAUNCH_RANK 5u        /* of a tensor whose tiles are copied by the copy engine, at most */

/* What a call returns that launched nothing; 0: all was launched; above: the driver's error, a CUresult. */
enum { EF_LAUNCH_UNALIGNED = -1, EF_LAUNCH_CAPTURING = -2 };

typedef struct ef_launches ef_launches;

typedef struct {
    uint64_t function; /* the driver's handle, a CUfunction, of the context that is current when it is added */
    uint32_t grid[3];  /* blocks; none: nothing is launched */
    uint32_t threads;  /* of a block */
    uint32_t shared;   /* bytes of dynamic shared memory of a block */
    bool overlap;      /* programmatic dependent launch: it may begin before the kernel in front of it has ended */
} ef_launch;

typedef struct {
    int device;         /* as the driver counts; in its primary context where this thread has no context yet */
    uint64_t stream;    /* a CUstream; 0: the default stream */
    uint32_t addresses; /* of a call */
    bool captured;      /* for calls while the stream is captured into a CUDA graph, and for no others */
} ef_launch_place;

/* What the copy engine knows of a tensor, besides its address (CUtensorMap). The dimension along which elements lie
 * side by side comes first. */
typedef struct {
    uint32_t type, swizzle; /* the driver's numbers: CUtensorMapDataType, CUtensorMapSwizzle */
    uint32_t rank;
    uint64_t extent[EF_LAUNCH_RANK]; /* elements */
    uint64_t stride[EF_LAUNCH_RANK]; /* bytes between neighbours, of all dimensions but the first: rank - 1 */
    uint32_t block[EF_LAUNCH_RANK];  /* elements of a tile */
} ef_tensor_map;

/* An empty list. NULL and one line without a driver that can do this (CUDA 11.8 or newer), or without such a device. */
ef_launches *ef_launches_new(const ef_launch_place *place, ef_diag *diag);
void ef_launches_free(ef_launches *list);
/* Adds a launch, whose parameters follow in order. */
void ef_launches_add(ef_launches *list, const ef_launch *launch);
/* A parameter of the last launch: the address of this number in the call. False when there are too many, or when there
 * is no such address. */
bool ef_launches_address(ef_launches *list, uint32_t which);
/* A parameter that never changes, of 1, 2, 4 or 8 bytes, the lowest of `value`. */
bool ef_launches_value(ef_launches *list, uint64_t value);

/* A parameter that describes a tensor to the copy engine: that at an address of the call, or `fixed` at this one. False
 * also for another rank than 1 to EF_LAUNCH_RANK, and when the driver knows no such parameters (CUDA 12.0). */
bool ef_launches_map(ef_launches *list, bool fixed, uint64_t address, const ef_tensor_map *map);

/* Launches everything; nothing waits for the device. Threads may call it at once: launches of one call follow each
 * other on the stream without those of another between them. All or nothing but for errors of the driver:
 * EF_LAUNCH_UNALIGNED when an address is no multiple of EF_LAUNCH_ALIGNMENT, EF_LAUNCH_CAPTURING when the stream is
 * captured and the list is not made for that. */
int ef_launches_call(ef_launches *list, const uint64_t *address);
/* How many addresses a call has. */
uint32_t ef_launches_addresses(const ef_launches *list);
/* The driver's text for an error. */
const char *ef_launch_error(int result);

#endif
