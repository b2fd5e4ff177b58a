/* Arguments and output of the verbs: see cli.h. */
#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "cli.h"

/* ---- output ---- */

int cli_fail(const char *format, ...)
{
    char text[1024];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    for (char *c = text; *c; c++) /* whatever was typed, this stays one line */
        if (iscntrl((unsigned char)*c))
            *c = ' ';
    fprintf(stderr, "equiforge: %s\n", text);
    return EQUIFORGE_BAD_INPUT;
}

int cli_report(const equiforge_session *session, equiforge_status status)
{
    fprintf(stderr, "%s\n", equiforge_message(session));
    return status;
}

json_t *cli_known(double x)
{
    return x > 0 && isfinite(x) ? json_real(x) : json_null();
}

bool cli_json(json_t *object)
{
    char *text = json_dumps(object, JSON_INDENT(2) | JSON_PRESERVE_ORDER | JSON_REAL_PRECISION(12));
    json_decref(object);
    if (!text) {
        cli_fail("the result cannot be written as JSON");
        return false;
    }
    puts(text);
    free(text);
    return true;
}

int cli_finish(int status)
{
    if (fflush(stdout) == 0 && !ferror(stdout))
        return status;
    cli_fail("cannot write to standard output: %s", strerror(errno));
    return status > EQUIFORGE_FAILED ? status : EQUIFORGE_FAILED;
}

/* ---- arguments ---- */

/* Digits only: no sign, no blanks, no other base. */
static bool whole_number(const char *text, uint64_t least, uint64_t most, uint64_t *value)
{
    char *end;
    errno = 0;
    *value = strtoull(text, &end, 10);
    return isdigit((unsigned char)text[0]) && *end == '\0' && errno == 0 && *value >= least && *value <= most;
}

static bool seconds(const char *text, double *value)
{
    char *end;
    if (text[strspn(text, "0123456789.eE+-")] != '\0') /* no blanks, hexadecimal, inf or nan */
        return false;
    *value = strtod(text, &end);
    return *text != '\0' && *end == '\0' && isfinite(*value) && *value > 0;
}

static bool store_count(uint32_t *value, const char *text, uint32_t most)
{
    uint64_t number;
    bool fine = whole_number(text, 1, most, &number);
    *value = fine ? (uint32_t)number : *value;
    return fine;
}

static bool store(const char *verb, const cli_option *option, const char *text)
{
    const char *wanted;
    switch (option->kind) {
    case CLI_TEXT: *(const char **)option->value = text; return true;
    case CLI_COUNT:
        if (store_count(option->value, text, UINT32_MAX))
            return true;
        wanted = "a whole number from 1 to 4294967295";
        break;
    case CLI_THREADS:
        if (store_count(option->value, text, 1024))
            return true;
        wanted = "a whole number from 1 to 1024";
        break;
    case CLI_SEED:
        if (whole_number(text, 0, UINT64_MAX, option->value))
            return true;
        wanted = "a whole number below 2^64";
        break;
    case CLI_SECONDS:
        if (seconds(text, option->value))
            return true;
        wanted = "a number of seconds above 0";
        break;
    default: return false;
    }
    cli_fail("%s: %s takes %s, not '%s'", verb, option->name, wanted, text);
    return false;
}

static const cli_option *named(const cli_option *options, size_t count, const char *name, size_t length)
{
    for (size_t i = 0; i < count; i++)
        if (strlen(options[i].name) == length && memcmp(options[i].name, name, length) == 0)
            return &options[i];
    return NULL;
}

/* One option with its value. Returns how many arguments it took, 0 after a message. */
static int option_at(char **argv, int left, const char *verb, const cli_option *options, size_t count)
{
    const char *equals = strchr(argv[0], '=');
    size_t length = equals ? (size_t)(equals - argv[0]) : strlen(argv[0]);
    const cli_option *option = named(options, count, argv[0], length);
    if (!option)
        return cli_fail("%s: unknown option '%s'; see equiforge %s --help", verb, argv[0], verb), 0;
    if (option->kind == CLI_FLAG) {
        if (equals)
            return cli_fail("%s: %s takes no value", verb, option->name), 0;
        *(bool *)option->value = true;
        return 1;
    }
    if (!equals && left < 2)
        return cli_fail("%s: %s needs a value", verb, option->name), 0;
    if (!store(verb, option, equals ? equals + 1 : argv[1]))
        return 0;
    return equals ? 1 : 2;
}

bool cli_arguments(int argc, char **argv, const cli_option *options, size_t count, const char **file)
{
    const char *verb = argv[0];
    for (int i = 1; i < argc;) {
        if (argv[i][0] == '-' && argv[i][1] != '\0') {
            int taken = option_at(argv + i, argc - i, verb, options, count);
            if (taken == 0)
                return false;
            i += taken;
        } else if (!file || *file) {
            cli_fail("%s: unexpected argument '%s'; see equiforge %s --help", verb, argv[i], verb);
            return false;
        } else {
            *file = argv[i++];
        }
    }
    if (file && !*file)
        cli_fail("%s: FILE is missing; see equiforge %s --help", verb, verb);
    return !file || *file;
}

bool cli_is_plan(const char *file)
{
    const char *dot = strrchr(file, '.');
    return dot && strcmp(dot, ".efz") == 0;
}

bool cli_is_no_store(const char *file)
{
    static const char magic[] = "SQLite format 3"; /* with its end: 16 bytes */
    char begin[sizeof magic];
    FILE *f = fopen(file, "rb");
    size_t count = f ? fread(begin, 1, sizeof begin, f) : 0;
    if (f)
        fclose(f);
    return count > 0 && (count < sizeof begin || memcmp(begin, magic, sizeof magic) != 0);
}

bool cli_is_there(const char *file)
{
    struct stat info;
    return stat(file, &info) == 0;
}

bool cli_is_one_file(const char *a, const char *b)
{
    struct stat x, y;
    return stat(a, &x) == 0 && stat(b, &y) == 0 && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}
