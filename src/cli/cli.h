/* What the verbs share: arguments, messages and JSON output (design, section 12). The command line is a client of
 * equiforge.h like any other.
 *
 * Results go to stdout, for people or (--json) as one JSON object and nothing else; everything else goes to stderr.
 * Verbs return an exit status: 0 done, 1 the work failed, 2 bad usage or bad input. */
#ifndef EF_CLI_CLI_H
#define EF_CLI_CLI_H

#include <jansson.h>

#include "equiforge.h"

typedef enum {
    CLI_FLAG,    /* bool */
    CLI_TEXT,    /* const char * */
    CLI_COUNT,   /* uint32_t, at least 1 */
    CLI_THREADS, /* uint32_t, from 1 to 1024 */
    CLI_SEED,    /* uint64_t */
    CLI_SECONDS  /* double, above 0 */
} cli_kind;

typedef struct {
    const char *name; /* "--json" */
    cli_kind kind;
    void *value; /* what the kind says */
} cli_option;

/* Reads the arguments after the verb (argv[0] is the verb): options in any order, "--name value" or "--name=value", and
 * one FILE where `file` is not NULL. False after a message. */
bool cli_arguments(int argc, char **argv, const cli_option *options, size_t count, const char **file);

/* Whether a file is an optimised module, by its name: ".efz". */
bool cli_is_plan(const char *file);

/* Whether two names are of one file that is there. */
bool cli_is_one_file(const char *a, const char *b);
/* Whether a file is there that is no database, and so no store. */
bool cli_is_no_store(const char *file);
bool cli_is_there(const char *file);

/* One line on stderr. Returns 2. */
int cli_fail(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* The session's message on stderr. Returns the status. */
int cli_report(const equiforge_session *session, equiforge_status status);
/* A time or ratio as JSON; null where it is not known: what is no positive number. */
json_t *cli_known(double x);
/* Prints the object on stdout and frees it. False after a message when it has no JSON form. */
bool cli_json(json_t *object);
/* Flushes stdout. The status, or 1 after a message when the output cannot be written. */
int cli_finish(int status);

int cli_inspect(int argc, char **argv);
int cli_rules(int argc, char **argv);
int cli_search(int argc, char **argv);
int cli_bench(int argc, char **argv);
int cli_explain(int argc, char **argv);
int cli_run(int argc, char **argv);
int cli_report_page(int argc, char **argv);
int cli_optimize(int argc, char **argv);
int cli_targets(int argc, char **argv);
int cli_worker(int argc, char **argv);
int cli_emit(int argc, char **argv);

#endif
