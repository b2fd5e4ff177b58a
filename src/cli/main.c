/* equiforge: finds the verb and runs it. */
#include <stdio.h>
#include <string.h>

#include "cli.h"

static const struct {
    const char *name;
    int (*run)(int argc, char **argv);
    const char *usage;
} verbs[] = {
    {"inspect", cli_inspect,
     "inspect FILE [--json]\n"
     "  Inputs, outputs and operators of a program.\n"},
    {"rules", cli_rules,
     "rules [--check [--instances N] [--seed S]] [--json]\n"
     "  Lists the rules. --check tests each on N random instances against a float64 evaluator.\n"},
    {"search", cli_search,
     "search FILE [--target T] [--compaction none|after|early] [--time-limit S] [--node-limit N]\n"
     "                [--extract-limit S] [--show N] [--stats] [--json]\n"
     "  Saturates the e-graph of a program and reports its size. --stats adds what each rule did.\n"},
    {"explain", cli_explain,
     "explain --from A --to B [--time-limit S] [--node-limit N] [--json]\n"
     "  Why program A equals program B: equations, each by one rule, from which it follows; checked.\n"},
    {"run", cli_run,
     "run FILE [--check] [--repeat N] [--dims NAME=N,...] [--tile AXIS=N,...] [--threads N] [--seed S] [--emit] "
     "[--json]\n"
     "  Compiles a program to C, runs and times it on this processor. --check compares it with a float64 evaluator,\n"
     "  --dims gives dimensions other sizes, --tile sets the tiles along axes (s.0: blocks of s, s.1: the loop "
     "inside).\n"},
};

#define VERBS (sizeof verbs / sizeof *verbs)

static void print_usage(FILE *out)
{
    fputs("usage: equiforge VERB [ARGUMENTS]\n\n", out);
    for (size_t i = 0; i < VERBS; i++)
        fprintf(out, "%s", verbs[i].usage);
    fputs("\nPrograms are files in text form (.ef). --json prints one JSON object. Exit status: 0 done, 1 the work\n"
          "failed, 2 bad usage or bad input. equiforge --version prints the version.\n",
          out);
}

static int run_verb(size_t verb, int argc, char **argv)
{
    for (int i = 1; i < argc; i++)
        if (strcmp(argv[i], "--help") == 0) {
            printf("usage: equiforge %s", verbs[verb].usage);
            return 0;
        }
    return verbs[verb].run(argc, argv);
}

int main(int argc, char **argv)
{
    if (argc < 2) {
        print_usage(stderr);
        return EQUIFORGE_BAD_INPUT;
    }
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "help") == 0) {
        print_usage(stdout);
        return cli_finish(0);
    }
    if (strcmp(argv[1], "--version") == 0) {
        printf("equiforge %s\n", equiforge_version());
        return cli_finish(0);
    }
    for (size_t i = 0; i < VERBS; i++)
        if (strcmp(argv[1], verbs[i].name) == 0)
            return cli_finish(run_verb(i, argc - 1, argv + 1));
    return cli_fail("unknown %s '%s'; see equiforge --help", argv[1][0] == '-' ? "option" : "verb", argv[1]);
}
