/* The Python package from C: see python.h. */
#define _GNU_SOURCE /* dladdr */
#include "tune/python.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Takes the package's folder ("": none) and the module's name from its arguments, and becomes the module. */
static const char starter[] = "import runpy, sys\n"
                              "folder = sys.argv.pop(1)\n"
                              "if folder: sys.path.insert(0, folder)\n"
                              "runpy.run_module(sys.argv.pop(1), run_name='__main__', alter_sys=True)\n";

static const char *keep(ef_arena *arena, const char *text)
{
    return ef_arena_strndup(arena, text, strlen(text));
}

/* The folder of this library, "." when the system does not say. */
static const char *library_folder(ef_arena *arena)
{
    Dl_info info;
    const char *slash = NULL;
    if (dladdr(starter, &info) && info.dli_fname)
        slash = strrchr(info.dli_fname, '/');
    return slash ? ef_arena_strndup(arena, info.dli_fname, (size_t)(slash - info.dli_fname)) : ".";
}

/* FOLDER/RELATIVE where that is there, else NULL. */
static const char *file(ef_arena *arena, const char *folder, const char *relative)
{
    char path[1200];
    int length = snprintf(path, sizeof path, "%s/%s", folder, relative);
    return length > 0 && (size_t)length < sizeof path && access(path, R_OK) == 0 ? keep(arena, path) : NULL;
}

const char **ef_python_command(const char *module, const char **argv, ef_arena *arena)
{
    const char *told = getenv("EQUIFORGE_PYTHON"), *folder = library_folder(arena);
    /* In an installed package the library stands in it; a build folder stands beside the tree's `python`. */
    const char *package = file(arena, folder, "_native.py") ? file(arena, folder, "..") : NULL;
    const char *tree = package ? NULL : file(arena, folder, "../python");
    const char *own = tree ? file(arena, folder, "../.venv/bin/python") : NULL;
    *argv++ = told && told[0] ? keep(arena, told) : own ? own : "python3";
    *argv++ = "-c";
    *argv++ = starter;
    *argv++ = package ? package : tree ? tree : "";
    *argv++ = keep(arena, module);
    return argv;
}
