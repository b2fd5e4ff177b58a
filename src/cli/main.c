/* equiforge: finds the verb and runs it. */
#include <stdio.h>
#include <string.h>

#include "cli.h"

static const struct {
    const char *name;
    int (*run)(int argc, char **argv);
    const char *usage;   /* how it is called, and what it does */
    const char *options; /* for its own help */
} verbs[] = {
    {"inspect", cli_inspect,
     "inspect FILE [--text|--torch|--json]\n"
     "  Inputs, outputs and operators of a program (.ef), an exported module (.pt2) or an optimised one (.efz).\n",
     "  --text             prints the programs in text form, with a module's external calls as comments, instead\n"
     "  --torch            prints a program as PyTorch source instead\n"
     "  --json             one JSON object\n"},
    {"rules", cli_rules,
     "rules [--check [--instances N] [--seed S]] [--json]\n"
     "  Lists the rules. --check tests each on random instances against a float64 evaluator.\n",
     "  --check            test the rules instead\n"
     "  --instances N      with --check: instances of each rule (200)\n"
     "  --seed S           with --check: of the random instances (1)\n"
     "  --json             one JSON object\n"},
    {"search", cli_search,
     "search FILE [--target T] [--compaction none|after|early] [--time-limit S] [--node-limit N]\n"
     "                [--extract-limit S] [--show N] [--parts] [--stats] [--json]\n"
     "  Saturates the e-graph of a program, extracts candidates, and reports on both.\n",
     "  --time-limit S     seconds of saturation (600)\n"
     "  --node-limit N     e-nodes (1000000)\n"
     "  --extract-limit S  seconds of extraction (4)\n"
     "  --show N           prints the N most promising candidates (0)\n"
     "  --compaction MODE  early: equivalent partial programs are pruned; after: equivalent complete programs are\n"
     "                     grouped; none: every program counts (early)\n"
     "  --target T         whose costs give the candidates their order: auto, a generic GPU, or a name that\n"
     "                     `equiforge targets` lists (auto)\n"
     "  --parts            searches the parts of a large program, each distinct one once and several at once, and\n"
     "                     combines them, as optimize does; time limits are those of all searches (60 each)\n"
     "  --stats            what each rule did\n"
     "  --json             one JSON object\n"
     "Meeting a limit is no failure: what was found so far counts.\n"},
    {"optimize", cli_optimize,
     "optimize FILE [-o OUT.efz] [--target T] [--budget TIME] [--limit N] [--store PATH] [--threads N]\n"
     "                [--seed S] [--json]\n"
     "  Finds a fast implementation of a module (.pt2) or program (.ef) for a device by search and measurement.\n",
     "  -o OUT.efz         the file to write: code, plan, derivation, measurements (none)\n"
     "  --target T         auto, or a name that `equiforge targets` lists (auto)\n"
     "  --budget TIME      for search and measurements: 90s, 5m, 1h (5m)\n"
     "  --limit N          implementations to measure at most (as many as the budget allows)\n"
     "  --store PATH       where measurements are kept ($EQUIFORGE_STORE, else store-N.db in "
     "$XDG_CACHE_HOME/equiforge,\n"
     "                     else in ~/.cache/equiforge; N: the version of stores)\n"
     "  --threads N        that programs run with, at most 1024 (one a processor)\n"
     "  --seed S           of inputs and of the order in which schedules are tried (1)\n"
     "  --json             one JSON object\n"
     "Ctrl-C finishes with the best so far. The next run goes on where this one stopped.\n"},
    {"explain", cli_explain,
     "explain OUT.efz | --from A --to B [--time-limit S] [--node-limit N] [--json]\n"
     "  Why program A equals program B, or an implementation the program that it was found for: equations, each by "
     "one\n"
     "  rule, from which it follows; derived anew and checked.\n",
     "  --from A, --to B   the two programs, with the same types of outputs\n"
     "  --time-limit S     seconds of saturation (600)\n"
     "  --node-limit N     e-nodes (1000000)\n"
     "  --json             one JSON object\n"
     "The last lines are the verdict:\n"
     "  equal              every output of B equals its counterpart in A under the rules\n"
     "  contained          the search from A alone arrived at B; when not, B was added and the search went on\n"
     "  checked            a separate checker, which trusts neither search nor proof, accepted every step\n"
     "Exit status 1 when they were not found equal or the checker rejects the proof.\n"},
    {"targets", cli_targets,
     "targets [--json]\n"
     "  The devices that optimize can be for, and which of them this machine has.\n",
     "  --json             one JSON object\n"},
    {"bench", cli_bench,
     "bench [--suite NAME,...] [--only NAME,...] [--target T] [--budget TIME] [--devices N|all] [--limit TIME]\n"
     "                [--results FILE] [--save FOLDER] [--baselines] [--skip NAME,...] [--plot FILE.svg] [--json]\n"
     "  Measures workloads against eager PyTorch, torch.compile and PyTorch's attention kernels. Needs PyTorch.\n",
     "  --suite NAME,...   programs, attention, layers, all of these, or search for the cost of searching (programs)\n"
     "  --only NAME,...    cases of these names or, where there is none, whose names contain them\n"
     "  --target T         auto, cpu (at reduced sizes), h200, … (auto)\n"
     "  --budget TIME      of each optimisation (5m)\n"
     "  --devices N|all    GPUs of that kind on which cases run side by side, one at a time on each. They do not "
     "disturb\n"
     "                     each other's times, but share the processors: a budget compiles less (1; a CPU is one)\n"
     "  --limit TIME       9m: no case is begun that would not end within it, as the longest so far tells\n"
     "  --results FILE     gets the result of each case at once, a JSON object a line; what is in it without an "
     "error,\n"
     "                     for the same target, budget, device and versions of EquiForge, PyTorch and Triton, is not\n"
     "                     measured again unless a baseline found too little memory beside other processes\n"
     "  --save FOLDER      gets each optimised module before it is measured, without weights: lora/B1 is "
     "lora_B1.efz; a\n"
     "                     case whose file is not there is measured again whatever --results has\n"
     "  --baselines        measures the others only\n"
     "  --skip NAME,...    baselines to leave out\n"
     "  --plot FILE.svg    draws speed against the fastest baseline\n"
     "  --json             one JSON object; times are cold and warm\n"
     "Each case that ends has its figures in a line on standard error. Ctrl-C ends the running ones; the table shows "
     "what\n"
     "there is. Each case is tuned afresh, with a store of its own, unless $EQUIFORGE_STORE names one, which then may\n"
     "have the best already. Exit status 1 when a case failed or was left out.\n"},
    {"report", cli_report_page,
     "report OUT.efz -o PAGE.html\n"
     "  One self-contained page about an optimised module: code, schedules, measurements, derivations.\n",
     "  -o PAGE.html       where to write it\n"},
    {"run", cli_run,
     "run FILE [--check] [--repeat N] [--dims NAME=N,...] [--tile AXIS=N,...] [--threads N] [--seed S] [--emit] "
     "[--json]\n"
     "  Compiles a program to C with the system's compiler, runs and times it on this processor; of an optimised "
     "module\n"
     "  (.efz) the code that is in it, which you must trust, on the device that it is for.\n",
     "  --check            compare with a float64 evaluator, on several distributions of inputs; exit status 1 when\n"
     "                     the error is too large for the outputs' types\n"
     "  --repeat N         timed calls, of which the median counts (10)\n"
     "  --dims NAME=N,...  other sizes of dimensions (the program's)\n"
     "  --tile AXIS=N,...  tile sizes along axes: s.0 is the blocks of s, s.1 the loop inside (chosen by size)\n"
     "  --threads N        at most 1024 (one a processor)\n"
     "  --seed S           of the random inputs (1)\n"
     "  --emit             print the C code\n"
     "  --json             one JSON object\n"},
    {"emit", cli_emit,
     "emit FILE [--language triton|c] [--name NAME] [--dims NAME=N,...] [--schedule NAME=N,...]\n"
     "  Prints a program as code: a Python module with Triton kernels, or C with OpenMP.\n",
     "  --language L       triton or c (triton)\n"
     "  --name NAME        of the function (the program's name, or program where that means something else)\n"
     "  --dims NAME=N,...  other sizes of dimensions (the program's)\n"
     "  --schedule ...     values of the schedule: s.1=64 tiles of an axis in all kernels, k0.warps=4 in the first; a "
     "text\n"
     "                     as optimize and the head of printed modules give it, with blanks between, is taken, too\n"
     "Besides tiles, kernels for GPUs have\n"
     "  warps              1, 2, 4, 8 or 16: of 32 threads\n"
     "  stages             1, 2, 3, 4, 5, 6, 7 or 8: rounds of a loop whose loads are in flight\n"
     "  unit               0 or 1: products on the matrix unit\n"
     "  load               0 or 1: through tensor descriptors\n"
     "  group              1, 2, 4, 8 or 16: rows of blocks that are walked together\n"
     "  order              0 or 1: the last block first\n"
     "  persist            0, 1, 2 or 4: so many blocks a multiprocessor go round over the grid; 0: as many as it has\n"
     "  overlap            0, 1, 2, 3 or 4: begins when the kernel before it has ended (0), or while that runs: early\n"
     "                     (1) or late (3), or so and dealt out evenly (2, 4); from compute capability 9.0 on\n"},
};

/* Verbs that programs call, of which people need not know. */
static int run_hidden(int argc, char **argv, int *status)
{
    if (strcmp(argv[1], "worker") != 0)
        return 0;
    *status = cli_worker(argc - 1, argv + 1);
    return 1;
}

#define VERBS (sizeof verbs / sizeof *verbs)

static void print_usage(FILE *out)
{
    fputs("usage: equiforge VERB [ARGUMENTS]\n\n", out);
    for (size_t i = 0; i < VERBS; i++)
        fprintf(out, "%s", verbs[i].usage);
    fputs("\nequiforge VERB --help explains the options and their defaults. Programs are files in text form (.ef), as\n"
          "in docs/language.md. --json prints one JSON object. Exit status: 0 done, 1 the work failed, 2 bad usage or\n"
          "bad input. equiforge --version prints the version.\n",
          out);
}

static bool is_help(const char *argument)
{
    return strcmp(argument, "--help") == 0 || strcmp(argument, "-h") == 0;
}

static int run_verb(size_t verb, int argc, char **argv)
{
    for (int i = 1; i < argc; i++)
        if (is_help(argv[i])) {
            printf("usage: equiforge %s\n%s", verbs[verb].usage, verbs[verb].options);
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
    if (is_help(argv[1]) || strcmp(argv[1], "help") == 0) {
        print_usage(stdout);
        return cli_finish(0);
    }
    if (strcmp(argv[1], "--version") == 0) {
        printf("equiforge %s\n", equiforge_version());
        return cli_finish(0);
    }
    int status;
    if (run_hidden(argc, argv, &status))
        return status;
    for (size_t i = 0; i < VERBS; i++)
        if (strcmp(argv[1], verbs[i].name) == 0)
            return cli_finish(run_verb(i, argc - 1, argv + 1));
    return cli_fail("unknown %s '%s'; see equiforge --help", argv[1][0] == '-' ? "option" : "verb", argv[1]);
}
