/* Devices: what the driver must know of one, as a table of functions. One is the CPU of this machine, with generated
 * C; others are GPUs. */
#ifndef EF_TUNE_DEVICE_H
#define EF_TUNE_DEVICE_H

#include "kernel/schedule.h"
#include "tune/gpus.h"
#include "tune/pool.h"

typedef struct ef_device ef_device;

#define EF_DEVICE_ARGUMENTS 16

struct ef_device {
    const char *name;       /* of the target: "cpu", "h200" */
    const char *language;   /* of the code: "c", "triton" */
    ef_backend backend;     /* whose schedules it takes */
    bool quiet;             /* compiling disturbs measuring: it uses the same processors */
    bool measures_original; /* the program's own code is what it was given; else the worker has something faster */
    /* The command line of its workers; at most EF_DEVICE_ARGUMENTS words with the NULL at the end, which belong to the
     * arena. */
    void (*command)(const ef_device *device, const char **argv, ef_arena *arena);
    /* What results depend on besides the program: device and versions. Quick: a second optimisation asks this only. */
    bool (*identity)(const ef_device *device, char *text, size_t room, ef_diag *diag);
    /* A self-contained source file of a kernel graph under a schedule. */
    bool (*print)(const ef_kgraph *graph, const ef_schedule *schedule, const char *entry, ef_strbuf *out,
                  ef_diag *diag);
    /* Appends to it what times its kernels; NULL: the workers can do that without. */
    void (*print_timed)(const ef_kgraph *graph, const char *entry, ef_strbuf *out);
    /* The tensor-level program in the form from which its workers make references. */
    bool (*reference)(const ef_program *program, const char *entry, ef_strbuf *out, ef_diag *diag);
    /* How long its workers should take, roughly, for what all implementations are checked against; NULL: they make do
     * with any time. */
    double (*reference_s)(const ef_program *program, const ef_device *device);
    uint32_t threads; /* of a CPU; else 0 */
    ef_gpu gpu;       /* place "": none, or Triton's interpreter */
};

/* What there is to optimise for. `model`: how the driver calls the GPU, a word of its name; NULL for the CPU, and for
 * Triton's interpreter, which takes the place of a GPU in tests (with TRITON_INTERPRET=1). */
typedef struct {
    const char *name, *model;
    bool gpu;
} ef_device_name;

#define EF_DEVICES 8
extern const ef_device_name ef_device_names[EF_DEVICES];
/* Whether this machine has it. */
bool ef_device_here(const ef_device_name *name);

/* The device of a target: "auto", "cpu"; for a GPU the one at `place` on the bus, NULL: the first of its kind. False
 * and a message when this machine has none for it. */
bool ef_device_find(const char *target, const char *place, uint32_t threads, ef_device *device, ef_diag *diag);

/* Starts the device's workers. */
ef_pool *ef_device_pool(const ef_device *device, uint32_t compilers, ef_diag *diag);

#endif
