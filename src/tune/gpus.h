/* The GPUs that processes started here may use, as the driver's files tell, which takes no time and no context.
 *
 * A GPU goes by its place on the bus. CUDA's numbers will not do: they depend on CUDA_VISIBLE_DEVICES and on
 * CUDA_DEVICE_ORDER, and its own order (the fastest first) is in no file. */
#ifndef EF_TUNE_GPUS_H
#define EF_TUNE_GPUS_H

#include <stdbool.h>
#include <stdint.h>

typedef struct {
    char place[32]; /* "0000:3b:00.0" */
    char model[128], uuid[64];
} ef_gpu;

#define EF_GPUS 64

/* Those that CUDA_VISIBLE_DEVICES shows, or `all`, in the order of their places; returns how many. A number in it
 * counts places, as CUDA does where all are of one model or CUDA_DEVICE_ORDER is PCI_BUS_ID; for others the worker,
 * which asks CUDA, has the last word. */
uint32_t ef_gpus(ef_gpu gpu[EF_GPUS], bool all);
/* Whether two texts name one place; drivers differ in the length of the domain and in case. */
bool ef_gpu_same_place(const char *a, const char *b);

#endif
