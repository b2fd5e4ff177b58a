/* Running generated C: see execute.h. The compiler is started directly, without a shell; the file names that it gets
 * are made here. */
#define _GNU_SOURCE /* environ */
#include "codegen/execute.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

struct ef_library {
    void *handle;
    bool stays; /* it cannot be unloaded safely */
};

typedef struct {
    char dir[256], source[400], object[400], log[400];
} workplace;

/* ---- files ---- */

static void name_files(workplace *w, const char *name)
{
    snprintf(w->source, sizeof w->source, "%s/%.100s.c", w->dir, name);
    snprintf(w->object, sizeof w->object, "%s/%.100s.so", w->dir, name);
    snprintf(w->log, sizeof w->log, "%s/%.100s.log", w->dir, name);
}

static bool workplace_open(workplace *w, ef_diag *diag)
{
    const char *base = getenv("TMPDIR");
    base = base && base[0] == '/' && strlen(base) < 200 ? base : "/tmp";
    snprintf(w->dir, sizeof w->dir, "%s/equiforge-XXXXXX", base);
    if (!mkdtemp(w->dir)) /* mode 0700 */
        return ef_fail(diag, "cannot make a directory in %s: %s; set TMPDIR to a place that can be written", base,
                       strerror(errno));
    name_files(w, "program");
    return true;
}

static void workplace_close(const workplace *w)
{
    unlink(w->source);
    unlink(w->object);
    unlink(w->log);
    rmdir(w->dir);
}

static bool write_file(const char *path, const char *text, size_t length, ef_diag *diag)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    size_t written = 0;
    while (fd >= 0 && written < length) {
        ssize_t n = write(fd, text + written, length - written);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            break;
        written += (size_t)n;
    }
    bool fine = fd >= 0 && close(fd) == 0 && written == length;
    return fine || ef_fail(diag, "cannot write %s: %s", path, strerror(errno));
}

/* The first line of the compiler's messages that says "error", else the first. */
static void first_complaint(const char *path, char *line, size_t room)
{
    char text[1024];
    FILE *file = fopen(path, "r");
    line[0] = 0;
    while (file && fgets(text, sizeof text, file)) {
        char *end = strchr(text, '\n');
        if (end)
            *end = 0;
        bool error = strstr(text, "error") != NULL;
        if (line[0] == 0 || error)
            snprintf(line, room, "%.*s", (int)room - 1, text);
        if (error)
            break;
    }
    if (file)
        fclose(file);
}

/* ---- the compiler ---- */

static bool wait_for(pid_t child, int *status)
{
    while (waitpid(child, status, 0) < 0)
        if (errno != EINTR)
            return false;
    return true;
}

static bool run_compiler(const workplace *w, const ef_compile_options *options, ef_diag *diag)
{
    char level[8];
    snprintf(level, sizeof level, "-O%u", options->level > 3 ? 3 : options->level);
    /* Real arithmetic is not assumed: infinities and NaN keep their meaning. */
    const char *arguments[] = {"cc",
                               "-std=c17",
                               level,
                               "-fopenmp",
                               "-fno-math-errno",
                               "-fno-trapping-math",
                               "-ffp-contract=fast",
                               "-w",
                               "-shared",
                               "-fPIC",
                               "-o",
                               w->object,
                               w->source,
                               "-lm",
                               NULL,
                               NULL};
    if (!options->portable)
        arguments[14] = "-march=native";
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, w->log, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    posix_spawn_file_actions_adddup2(&actions, STDERR_FILENO, STDOUT_FILENO);
    pid_t child;
    int status, error = posix_spawnp(&child, "cc", &actions, NULL, (char *const *)arguments, environ);
    posix_spawn_file_actions_destroy(&actions);
    if (error)
        return ef_fail(diag, "cannot start the C compiler 'cc': %s; install gcc or clang", strerror(error));
    if (!wait_for(child, &status))
        return ef_fail(diag, "the C compiler was lost: %s", strerror(errno));
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
        return true;
    char line[300];
    first_complaint(w->log, line, sizeof line);
    return ef_fail(diag, "the C compiler failed on generated code: %s", line[0] ? line : "no message");
}

/* The threads of the OpenMP runtime outlive the library that started them, so the runtime must stay loaded. Whether it
 * does from now on. */
static bool keep_runtime(void)
{
    static const char *const runtimes[] = {"libgomp.so.1", "libomp.so.5", "libomp.so", "libiomp5.so"};
    bool kept = false;
    for (unsigned i = 0; i < sizeof runtimes / sizeof *runtimes; i++)
        kept = dlopen(runtimes[i], RTLD_NOW | RTLD_NOLOAD | RTLD_NODELETE) != NULL || kept;
    return kept;
}

bool ef_compile_to(const char *source, size_t length, const ef_compile_options *options, const char *dir,
                   const char *name, ef_diag *diag)
{
    workplace w;
    if (strlen(dir) >= sizeof w.dir || strlen(name) > 100 || strchr(name, '/'))
        return ef_fail(diag, "there is no place for compiled code at %.200s", dir);
    snprintf(w.dir, sizeof w.dir, "%s", dir);
    name_files(&w, name);
    bool fine = write_file(w.source, source, length, diag) && run_compiler(&w, options, diag);
    unlink(w.source);
    unlink(w.log);
    return fine;
}

ef_library *ef_library_open(const char *path, ef_diag *diag)
{
    void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!handle) {
        ef_fail(diag, "cannot load compiled code: %s", dlerror());
        return NULL;
    }
    ef_library *library = ef_xcalloc(1, sizeof *library);
    library->handle = handle;
    library->stays = !keep_runtime();
    return library;
}

ef_library *ef_compile(const char *source, size_t length, const ef_compile_options *options, ef_diag *diag)
{
    workplace w;
    ef_library *library = NULL;
    if (!workplace_open(&w, diag))
        return NULL;
    if (write_file(w.source, source, length, diag) && run_compiler(&w, options, diag))
        library = ef_library_open(w.object, diag);
    workplace_close(&w);
    return library;
}

void ef_library_free(ef_library *library)
{
    if (!library)
        return;
    if (!library->stays)
        dlclose(library->handle);
    free(library);
}

void *ef_library_symbol(ef_library *library, const char *name)
{
    return dlsym(library->handle, name);
}

ef_entry ef_library_entry(ef_library *library, const char *name, ef_diag *diag)
{
    void *symbol = ef_library_symbol(library, name);
    ef_entry entry = NULL;
    if (!symbol)
        ef_fail(diag, "compiled code has no program %s", name);
    memcpy(&entry, &symbol, sizeof entry);
    return entry;
}

/* ---- running ---- */

void *ef_aligned(uint64_t bytes)
{
    void *memory = NULL;
    bytes = (bytes + 63) / 64 * 64;
    if (bytes > SIZE_MAX / 2 || posix_memalign(&memory, 64, bytes ? bytes : 64) != 0) {
        fprintf(stderr, "equiforge: out of memory\n");
        abort();
    }
    memset(memory, 0, bytes);
    return memory;
}

bool ef_native_open(ef_native *native, const ef_kgraph *graph, const ef_schedule *schedule, ef_diag *diag)
{
    ef_strbuf source = {0};
    *native = (ef_native){.threads = (int)schedule->threads};
    ef_codegen_c_runtime(&source);
    uint64_t size = ef_codegen_c(graph, schedule, "ef_program", &source, diag);
    if (size)
        native->library = ef_compile(source.text, source.length, &(ef_compile_options){.level = 3}, diag);
    ef_strbuf_free(&source);
    if (!native->library)
        return false;
    native->entry = ef_library_entry(native->library, "ef_program", diag);
    native->work = ef_aligned(size);
    if (native->entry)
        return true;
    ef_native_close(native);
    return false;
}

void ef_native_close(ef_native *native)
{
    ef_library_free(native->library);
    free(native->work);
    *native = (ef_native){0};
}

void ef_native_call(const ef_native *native, void *const *in, void *const *out)
{
    native->entry(in, out, native->work, native->threads);
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec * 1e-3;
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double ef_native_time(const ef_native *native, void *const *in, void *const *out, unsigned repeats)
{
    double *time = ef_xcalloc(repeats + 1, sizeof *time);
    for (unsigned i = 0; i < 2; i++)
        ef_native_call(native, in, out);
    for (unsigned i = 0; i < repeats; i++) {
        double start = now();
        ef_native_call(native, in, out);
        time[i] = now() - start;
    }
    qsort(time, repeats, sizeof *time, ascending);
    double median = repeats ? time[repeats / 2] : 0;
    free(time);
    return median;
}
