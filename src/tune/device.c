/* Devices: see device.h. */
#define _GNU_SOURCE /* dladdr */
#include "tune/device.h"

#include <dlfcn.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "codegen/c.h"
#include "codegen/execute.h"
#include "codegen/torch.h"
#include "codegen/triton.h"
#include "support/processors.h"
#include "tune/bench.h"
#include "tune/identity.h"
#include "tune/python.h"

/* ---- the CPU ---- */

static const char *keep(ef_arena *arena, const char *text)
{
    return ef_arena_strndup(arena, text, strlen(text));
}

/* Whether a file of this directory can be run; then its path. */
static bool beside(const char *file, const char *relative, char *path, size_t room)
{
    const char *slash = strrchr(file, '/');
    int length = snprintf(path, room, "%.*s/%s", slash ? (int)(slash - file) : 1, slash ? file : ".", relative);
    return length > 0 && (size_t)length < room && access(path, X_OK) == 0;
}

/* The command line, which has the worker in it: as told, else where this library lies, else in PATH. */
static const char *command_line(ef_arena *arena)
{
    static const char *const places[] = {"equiforge", "../equiforge", "../bin/equiforge"};
    const char *told = getenv("EQUIFORGE_WORKER");
    char path[1024];
    Dl_info info;
    if (told && told[0])
        return keep(arena, told);
    if (dladdr(places, &info) && info.dli_fname)
        for (unsigned i = 0; i < sizeof places / sizeof *places; i++)
            if (beside(info.dli_fname, places[i], path, sizeof path))
                return keep(arena, path);
    return "equiforge";
}

static void cpu_command(const ef_device *b, const char **argv, ef_arena *arena)
{
    char threads[16];
    snprintf(threads, sizeof threads, "%" PRIu32, b->threads);
    *argv++ = command_line(arena);
    *argv++ = "worker";
    *argv++ = "--threads";
    *argv++ = keep(arena, threads);
    *argv = NULL;
}

static bool cpu_identity(const ef_device *b, char *text, size_t room, ef_diag *diag)
{
    char device[200], compiler[200];
    (void)diag;
    ef_identity_cpu(b->threads, device, sizeof device);
    ef_identity_compiler(compiler, sizeof compiler);
    snprintf(text, room, "%s; equiforge %s; %s", device, EQUIFORGE_VERSION, compiler);
    return true;
}

static bool cpu_print(const ef_kgraph *graph, const ef_schedule *schedule, const char *entry, ef_strbuf *out,
                      ef_diag *diag)
{
    ef_codegen_c_runtime(out);
    uint64_t work = ef_codegen_c(graph, schedule, entry, out, diag);
    if (work == 0)
        return false;
    ef_strbuf_printf(out, "\n/* The bytes of `work`. */\nconst uint64_t %s_work = %" PRIu64 ";\n", entry, work);
    return true;
}

static bool cpu_reference(const ef_program *program, const char *entry, ef_strbuf *out, ef_diag *diag)
{
    (void)entry, (void)diag;
    ef_program_print(program, out);
    return true;
}

static double cpu_reference_s(const ef_program *program, const ef_device *device)
{
    ef_strbuf text = {0};
    ef_program_print(program, &text);
    double seconds = ef_bench_reference_s(text.text, text.length, device->threads);
    ef_strbuf_free(&text);
    return seconds;
}

/* ---- NVIDIA GPUs ---- */

static void gpu_command(const ef_device *d, const char **argv, ef_arena *arena)
{
    argv = ef_python_command("equiforge.worker", argv, arena);
    *argv++ = "--device";
    *argv++ = d->gpu.place[0] ? keep(arena, d->gpu.place) : "cpu"; /* Triton's interpreter */
    *argv = NULL;
}

static bool gpu_identity(const ef_device *d, char *text, size_t room, ef_diag *diag)
{
    char versions[200];
    if (!ef_identity_torch(versions, sizeof versions))
        return ef_fail(diag, "no Python that has PyTorch and Triton was found; EQUIFORGE_PYTHON names one");
    snprintf(text, room, "%s; equiforge %s; %s", d->gpu.place[0] ? d->gpu.model : "Triton's interpreter",
             EQUIFORGE_VERSION, versions);
    return true;
}

/* ---- names ---- */

const ef_device_name ef_device_names[EF_DEVICES] = {
    {"cpu", NULL, false},   {"interpreter", NULL, true}, {"a100", "A100", true},        {"h100", "H100", true},
    {"h200", "H200", true}, {"b200", "B200", true},      {"rtx4090", "RTX 4090", true}, {"rtx5090", "RTX 5090", true},
};

static bool is_of(const ef_gpu *gpu, const ef_device_name *name)
{
    return name->model && strstr(gpu->model, name->model);
}

/* A GPU of this kind, at `place` unless that is NULL. Who names a place has it from CUDA, which numbers GPUs otherwise
 * than we do. */
static bool find_gpu(const ef_device_name *name, const char *place, ef_gpu *found)
{
    ef_gpu gpu[EF_GPUS];
    uint32_t count = ef_gpus(gpu, place != NULL);
    for (uint32_t i = 0; i < count; i++)
        if (is_of(&gpu[i], name) && (!place || ef_gpu_same_place(gpu[i].place, place))) {
            *found = gpu[i];
            return true;
        }
    return false;
}

static bool interpreted(void)
{
    const char *interpret = getenv("TRITON_INTERPRET");
    return interpret && strcmp(interpret, "1") == 0;
}

bool ef_device_here(const ef_device_name *name)
{
    ef_gpu gpu;
    return !name->gpu || (name->model ? find_gpu(name, NULL, &gpu) : interpreted());
}

static void make_gpu(const ef_device_name *name, const ef_gpu *gpu, ef_device *device)
{
    *device = (ef_device){.name = name->name,
                          .language = "triton",
                          .backend = EF_BACKEND_TRITON,
                          .command = gpu_command,
                          .identity = gpu_identity,
                          .print = ef_codegen_triton,
                          .reference = ef_codegen_torch,
                          .gpu = *gpu};
}

static void find_cpu(uint32_t threads, ef_device *device)
{
    *device = (ef_device){.name = "cpu",
                          .language = "c",
                          .backend = EF_BACKEND_C,
                          .quiet = true,
                          .measures_original = true,
                          .command = cpu_command,
                          .identity = cpu_identity,
                          .print = cpu_print,
                          .print_timed = ef_codegen_c_timed,
                          .reference = cpu_reference,
                          .reference_s = cpu_reference_s,
                          .threads = threads ? threads : ef_processors()};
}

static void list_names(ef_strbuf *out)
{
    for (unsigned i = 0; i < EF_DEVICES; i++)
        ef_strbuf_printf(out, ", %s", ef_device_names[i].name);
}

/* The target that a name stands for: "auto" is the best that is here, or what the GPU at `place` is. */
static const ef_device_name *named(const char *target, const char *place, ef_diag *diag)
{
    ef_gpu gpu;
    ef_strbuf known = {0};
    bool any = strcmp(target, "auto") == 0;
    for (unsigned i = EF_DEVICES; i-- > 0;) { /* GPUs first */
        const ef_device_name *name = &ef_device_names[i];
        bool chosen = name->model ? find_gpu(name, place, &gpu) : !name->gpu && !place;
        if (any ? chosen : strcmp(target, name->name) == 0)
            return name;
    }
    if (any) {
        ef_fail(diag, "the GPU at %.40s is none that can be optimised for", place);
        return NULL;
    }
    list_names(&known);
    ef_fail(diag, "unknown target '%.60s'; known are auto%s", target, known.text);
    ef_strbuf_free(&known);
    return NULL;
}

bool ef_device_find(const char *target, const char *place, uint32_t threads, ef_device *device, ef_diag *diag)
{
    const ef_device_name *name = named(target, place, diag);
    ef_gpu gpu = {0};
    if (!name)
        return false;
    if (!name->gpu) {
        find_cpu(threads, device);
        return true;
    }
    if (name->model && place && !find_gpu(name, place, &gpu))
        return ef_fail(diag, "the GPU at %.40s is no %s", place, name->model);
    if (name->model ? !find_gpu(name, place, &gpu) : !interpreted())
        return ef_fail(diag, "this machine has no %s", name->name);
    make_gpu(name, &gpu, device);
    return true;
}

ef_pool *ef_device_pool(const ef_device *device, uint32_t compilers, ef_diag *diag)
{
    const char *argv[EF_DEVICE_ARGUMENTS];
    ef_arena *arena = ef_arena_new();
    device->command(device, argv, arena);
    ef_pool *pool = ef_pool_new(&(ef_pool_options){argv, compilers, device->quiet, 0}, diag);
    ef_arena_free(arena);
    return pool;
}
