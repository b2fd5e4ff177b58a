/* EquiForge: finds fast equivalents of tensor programs by equality saturation.
 *
 * This header is the whole public interface of libequiforge. Handles are opaque; every function that can fail returns
 * a status and leaves one line of text for equiforge_message. A session and everything opened in it belong to one
 * thread at a time; sessions are independent of each other.
 *
 * Results are plain structures that the library fills in. The strings and arrays in them belong to the handle that
 * the call was made on, and stay valid until that handle is freed or the same call is made on it again.
 *
 * "The paper" is the EquiForge paper; its sections are named where a function does what they describe. */
#ifndef EQUIFORGE_H
#define EQUIFORGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__)
#define EF_API __attribute__((visibility("default")))
#else
#define EF_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* The values are also the exit statuses of the command line. */
typedef enum {
    EQUIFORGE_OK = 0,
    EQUIFORGE_FAILED = 1,   /* the work was done, and a check did not hold or a rule was caught in an error */
    EQUIFORGE_BAD_INPUT = 2 /* a file or an argument is not acceptable: the message says which and where */
} equiforge_status;

/* "0.1.0" */
EF_API const char *equiforge_version(void);

/* ---- sessions ---- */

/* Owns what its programs share: dimensions and inputs, which agree by name within one session. */
typedef struct equiforge_session equiforge_session;

EF_API equiforge_session *equiforge_session_new(void);
/* Programs opened in the session must be closed first. NULL is allowed. */
EF_API void equiforge_session_free(equiforge_session *session);
/* What went wrong in the last call that did not return EQUIFORGE_OK: one line without a newline at its end, for files
 * "file:line:column: what is wrong" where the place is known. "" when nothing did. */
EF_API const char *equiforge_message(const equiforge_session *session);

/* ---- programs (paper, section 3) ---- */

typedef struct equiforge_program equiforge_program;

/* Reads a program in text form (.ef), of at most 8 MiB, or a module exported by PyTorch (.pt2) without external calls,
 * which is one program. EQUIFORGE_BAD_INPUT when the file cannot be read, is not a
 * well-typed program, or gives another size or type to a dimension or input that the session knows; *program is NULL
 * then. */
EF_API equiforge_status equiforge_open(equiforge_session *session, const char *path, equiforge_program **program);
/* NULL is allowed. */
EF_API void equiforge_close(equiforge_program *program);

/* An input or output. A dimension has its symbolic form ("h*d"; those written as plain numbers get names too) and its
 * size in elements, outermost first. A tuple has dtype "tuple" and rank 0; `type` says what is in it. */
typedef struct {
    const char *name;
    const char *type;  /* in the text form, "f16[1, h, s, d]" */
    const char *dtype; /* "f16" */
    size_t rank;
    const char *const *dim;
    const uint64_t *size;
} equiforge_tensor;

typedef struct {
    const char *name;
    uint32_t count;
} equiforge_operator;

/* What a program or module consists of. Operators are in alphabetical order. In a program they are counted once per
 * distinct expression that the outputs need, without inputs and literals; in a module (.pt2) they are PyTorch's,
 * "aten.mul.Tensor", once per call. External calls are those that stay as they are, with how many of each; a program in
 * text form has none. Parameters are a module's own tensors: parameters, buffers and constants. */
typedef struct {
    const char *name;
    size_t inputs, parameters, outputs, operators, externals;
    const equiforge_tensor *input, *parameter, *output;
    const equiforge_operator *op;
    const equiforge_operator *external;
    const char *text; /* in the text form; a module's regions and external calls (as comments) in order, of an
                       * optimised one the implementations */
} equiforge_inspection;

/* What a file consists of: a program in text form (.ef), a module exported by PyTorch (.pt2), which is checked whole,
 * weights included, or an optimised module (.efz), whose operators are those of its programs as they were given.
 * EQUIFORGE_BAD_INPUT when it cannot be read. Owned by the session. */
EF_API equiforge_status equiforge_inspect_file(equiforge_session *session, const char *path,
                                               equiforge_inspection *inspection);
/* The same for an open program. Cannot fail. */
EF_API equiforge_status equiforge_inspect(equiforge_program *program, equiforge_inspection *inspection);

/* The program as a Python module that imports torch only: a function of the program's name that takes the inputs, and
 * `dtype=torch.float64` for exact results; the module's comments say more. NULL and a message when the program is not
 * tensor-level. Owned by the program. */
EF_API const char *equiforge_torch(equiforge_program *program);

/* ---- rules (paper, section 4 and table 1) ---- */

typedef struct {
    const char *name;
    const char *group;
    const char *text; /* in the rule language, "left => right" */
} equiforge_rule;

/* The built-in rules, in the order in which a search applies them; the last group, "scalar", is for proving repairs
 * only. Returns how many there are. */
EF_API size_t equiforge_rules(equiforge_session *session, const equiforge_rule **rules);

typedef struct {
    const char *rule;
    const char *reason; /* lines of text with the smallest instance found, without a newline at the end */
} equiforge_rule_failure;

typedef struct {
    uint32_t rules;
    uint64_t instances; /* evaluated in all */
    size_t failures;    /* rules that failed */
    const equiforge_rule_failure *failure;
} equiforge_rules_report;

/* Tests every rule: builds `instances` (0: 200) random well-typed instances of its left side from `seed`, applies it
 * and compares both sides in float64. EQUIFORGE_FAILED when a rule failed; the report is complete then too. */
EF_API equiforge_status equiforge_rules_check(equiforge_session *session, uint32_t instances, uint64_t seed,
                                              equiforge_rules_report *report);

/* ---- search (paper, section 2) ---- */

/* How extraction tells programs apart (paper, section 5.1): every complete program, equivalent ones grouped after they
 * are complete, or equivalent partial programs pruned before they are expanded. */
typedef enum { EQUIFORGE_COMPACT_EARLY, EQUIFORGE_COMPACT_AFTER, EQUIFORGE_COMPACT_NONE } equiforge_compaction;

typedef struct {
    double time_limit;    /* of saturation, seconds, 0: 600 */
    uint32_t node_limit;  /* e-nodes, 0: 1,000,000 */
    double extract_limit; /* of extraction, seconds, 0: 4 */
    uint32_t keep;        /* candidate programs to return as text, the most promising ones */
    equiforge_compaction compaction;
    const char *target; /* whose costs give candidates their order; NULL or "auto": a generic GPU */
    bool parts; /* searches the parts of a large program, as optimising does, and combines their candidates: then
                 * limits of time, 0: 60 s each, are those of all searches, as many of which run at once as there are
                 * processors, node_limit is each one's (0: 150,000 where there are several), and compaction is not
                 * heeded */
} equiforge_limits;

/* A candidate: a complete tiled program. */
typedef struct {
    double cost_us;   /* optimistic estimate, microseconds */
    const char *text; /* in the text form */
} equiforge_candidate;

/* What one rule did during saturation. */
typedef struct {
    const char *rule;
    uint64_t matches; /* of its left side */
    uint64_t merges;  /* matches that made two e-classes one */
    uint64_t refused; /* matches whose right side has no type */
    double seconds;   /* searching, applying and restoring congruence */
} equiforge_rule_use;

/* What the search of one part took (paper, section 5.2). Parts that are the same up to names are searched once. */
typedef struct {
    uint32_t heavy; /* products and reductions of long dimensions */
    uint32_t enodes;
    const char *stop;   /* why saturation ended */
    double estimate_us; /* of its work and of what it reads and writes, by which partitions are ranked */
    double saturation_s, extraction_s;
    uint64_t expanded, candidates;
    bool complete;
    bool original; /* nothing was found but the part as it was given */
} equiforge_part;

/* A partition of the program into connected, convex parts. */
typedef struct {
    uint32_t limit; /* of products and reductions in a part */
    uint32_t parts;
    const uint32_t
        *part; /* for each the index of the search that its candidates are from; UINT32_MAX: there was none */
    double estimate_us;
    bool combined;            /* all its parts have candidates, and combinations of them were made */
    double combinations;      /* that there are */
    uint64_t built, composed; /* … of them were looked at, best first, and made into programs */
} equiforge_partition;

/* With limits.parts figures of searches are those of all parts together, also where several ran at once. */
typedef struct {
    uint32_t enodes, eclasses; /* distinct e-nodes, e-classes */
    uint32_t iterations;
    bool saturated;      /* no rule can add anything */
    const char *stop;    /* "saturated", "node limit", "time limit", "memory limit" */
    double saturation_s; /* seconds */
    double peak_mb;      /* peak resident memory of the process so far, MiB */
    size_t rules;
    const equiforge_rule_use *rule; /* in the order of equiforge_rules, without the scalar group */
    uint64_t expanded;              /* partial programs that extraction expanded */
    uint64_t candidates;            /* complete programs found, distinct ones unless compaction is off */
    bool complete;                  /* extraction saw all that there are */
    double extraction_s;            /* seconds */
    size_t kept;
    const equiforge_candidate *candidate;
    size_t parts, partitions; /* with limits.parts; of partitions the least estimate first */
    const equiforge_part *part;
    const equiforge_partition *partition;
    uint32_t at_once; /* with limits.parts: searches that ran at once at most */
    double search_s;  /* … and the seconds that all of them took */
} equiforge_search_result;

/* Saturates the e-graph of a program and extracts candidates from it. Meeting a limit is no failure. NULL limits are
 * all 0. EQUIFORGE_FAILED when a rule was caught making two expressions of different types equal. */
EF_API equiforge_status equiforge_search(equiforge_program *program, const equiforge_limits *limits,
                                         equiforge_search_result *result);

/* ---- explanations ---- */

/* One equation of a proof, an instance of one rule: `before` and `after` are expressions on one line each. */
typedef struct {
    const char *output; /* the output of `from` whose proof the equation is part of */
    const char *rule;
    const char *before, *after;
} equiforge_step;

typedef struct {
    bool contained;   /* every output of `to` was already in the saturated e-graph of `from`, in its output's class */
    bool equal;       /* every output of `to` is equal to its counterpart in `from` */
    bool saturated;   /* when not equal: the search was complete, so these rules cannot show it */
    const char *stop; /* as in equiforge_search_result */
    bool checked;     /* the separate checker accepted every proof */
    size_t steps;
    const equiforge_step *step; /* by output, then in the order in which the search found them */
} equiforge_explanation;

/* Whether `to` is equal to `from`, and why. Both must be of one session, and have the same number of outputs with the
 * same types: they are compared in order (else EQUIFORGE_BAD_INPUT). `from` is saturated alone first; what is not
 * found there is added, and saturation goes on. Each proof is a list of equations from which the equality follows by
 * congruence: equals may replace equals anywhere, and operands of commutative operators stand in any order. A separate
 * checker that trusts neither the search nor the proof validates them. EQUIFORGE_FAILED when not equal, or when the
 * checker rejects a proof; the explanation is filled in then too. Owned by `from`. */
EF_API equiforge_status equiforge_explain(equiforge_program *from, equiforge_program *to,
                                          const equiforge_limits *limits, equiforge_explanation *explanation);

/* ---- running (paper, section 6.1) ---- */

typedef struct {
    const char *dims;  /* "s=64,d=16": extents of named dimensions instead of the program's, NULL: none */
    const char *tiles; /* "s.1=64,h.0=1": tile extents along axes instead of the default's, NULL: none */
    uint32_t repeat;   /* timed calls; 0: it is not timed */
    uint32_t threads;  /* 0: one a processor */
    uint64_t seed;     /* of the random inputs */
    bool check;        /* against a float64 evaluator, on several distributions of inputs */
} equiforge_run_options;

typedef struct {
    double us;          /* the median time of a call in microseconds */
    double rel_l2;      /* with check: the largest relative L2 error, over all distributions */
    const char *inputs; /* with check: the distribution with that error */
    size_t kernels;
    const char *source; /* the program as C, without the support code */
} equiforge_run_result;

/* For a process that runs and times programs, before the first one: has OpenMP bind its threads, each to a processor of
 * its own, when they are as many (0: they are) and the environment names no OMP_PROC_BIND, which this sets. Where other
 * processes are busy, two threads would share a processor else. */
EF_API void equiforge_bind_threads(uint32_t threads);
/* Runs a program on this machine's processor: cuts it into kernels, prints them as C, compiles them with the system's
 * compiler ('cc'), loads and calls them. Operators that are not tiled become kernels of their own. EQUIFORGE_BAD_INPUT
 * when the options do not fit the program; EQUIFORGE_FAILED when it cannot be compiled, checked, or is wrong. The
 * result is filled in as far as the run came. Owned by the program. */
EF_API equiforge_status equiforge_run(equiforge_program *program, const equiforge_run_options *options,
                                      equiforge_run_result *result);

/* ---- optimising (paper, section 6; design, section 1) ---- */

/* How an optimisation stands. A time of 0 is not known yet. */
typedef struct {
    const char *stage;        /* "search", "prepare", "tune", "confirm" */
    uint32_t families, left;  /* execution structures found, and still in the running */
    uint64_t measured;        /* implementations that were checked and timed so far */
    uint64_t failed;          /* implementations that were wrong, could not be compiled, or took a worker down */
    double best_us;           /* the fastest so far, microseconds */
    double original_us;       /* the program as it was given */
    double floor_us;          /* moving inputs and outputs alone takes that long on this device */
    double elapsed_s, left_s; /* of the budget, seconds */
} equiforge_progress;

typedef struct {
    const char *target; /* a name that equiforge_targets lists as available; NULL: "auto" */
    const char *gpu;   /* the place on the bus of the GPU to measure on, "0000:3b:00.0"; NULL: the first of the target's
                        * kind that CUDA_VISIBLE_DEVICES shows */
    double budget_s;   /* for search, measurements and derivation, seconds, 0: 300. The end may be later: by a tenth and
                        * two seconds, to end with what is checked; until workers have started, have results of each
                        * distinct region in float64, and have called it once, which ends after a minute and twice its
                        * share of the budget, or twice what those results should take where that is more and is left
                        * (ten minutes at most; on the CPU earlier, once they have started), and it stays as it is; and,
                        * where a call of a region as it is took too long to be measured, by one such call, to know what
                        * is faster. On the CPU a region of which those results alone should take well over what is left
                        * of the whole budget (one and a half times that, a tenth and two seconds) is refused at once:
                        * it stays as it is */
    const char *store; /* where measurements are kept; NULL: $EQUIFORGE_STORE, else
                        * $XDG_CACHE_HOME/equiforge/store-N.db, else ~/.cache/equiforge/store-N.db, where N is the
                        * version of stores. A file that is told and is of another version is renamed to NAME.bad */
    const char *output; /* the .efz file to write, whole or not at all; NULL: none */
    uint32_t threads;   /* of the CPU, that programs run with; 0: one a processor */
    uint64_t seed;      /* of inputs and of the order in which schedules are tried */
    uint64_t limit;     /* implementations of a region to measure at most, 0: as many as the budget allows */
    bool unmeasured;    /* a result is wanted even when nothing can be measured: PyTorch runs everything then */
    /* Called some times a second while measuring, perhaps from another thread than the caller's, which waits meanwhile.
     * False: as equiforge_interrupt with EQUIFORGE_FINISH. May be NULL. */
    bool (*progress)(void *user, const equiforge_progress *progress);
    void *user; /* for progress */
} equiforge_optimize_options;

/* Times are microseconds, sums over all regions of a call. Texts are "" when there are several distinct regions. */
typedef struct {
    double original_us, best_us; /* cold: the inputs are in no cache. On the CPU best_us is never above original_us;
                                  * on a GPU it may be, and `original` says so: what was given is PyTorch's there, whose
                                  * time may be an estimate (`note`), or not known, where it takes more memory than
                                  * there is. original_us is 0 when that of one region is not known */
    double warm_us;              /* the same inputs again and again */
    double floor_us;             /* moving inputs and outputs alone takes that long */
    double rel_l2; /* the largest relative L2 error against float64, over several distributions of inputs */
    double elapsed_s;
    uint32_t regions, distinct; /* parts that were optimised; how many of them differ by more than names */
    uint32_t externals;         /* calls of PyTorch that stay between them, whose time is in no sum */
    uint32_t kept;              /* distinct regions of which nothing could be measured (their workers did not start,
                                 * say, or, with `unmeasured`, the budget was over before, by a tenth and two seconds):
                                 * PyTorch runs them as they are; their time is in no sum */
    uint64_t kernels;
    uint64_t candidates; /* programs that the search found */
    uint64_t families;   /* execution structures among them that took part */
    uint64_t measured;   /* implementations measured; failed: that did not work */
    uint64_t failed;
    bool original;        /* nothing faster than what was given was found */
    bool stored;          /* all this was known already */
    bool stopped;         /* progress said so */
    const char *schedule; /* "k0.m.0=16 k0.k.1=64" */
    const char *source;   /* code of the implementation, a whole file, and the function in it */
    const char *entry;
    const char *program; /* the implementation as a tiled program, in text form */
    const char *device;  /* what measured it, or would have if there were regions, with versions */
    const char *note;    /* what to know about regions that were kept, or about the store, one line; "": nothing */
} equiforge_optimum;

/* Finds a fast implementation of a module for a device by search and measurement: a .pt2 file of torch.export, or a
 * program in text form. Candidates run in worker processes, whose command line tool is $EQUIFORGE_WORKER, else
 * `equiforge` beside this library, else in PATH; on GPUs they are Python's (equiforge_python). Every measurement is
 * stored when it is made: an optimisation that was interrupted, or is done again with a larger budget or limit, goes on
 * where it was, and one that was done is answered at once. EQUIFORGE_BAD_INPUT when the file cannot be read or there is
 * no such target here; EQUIFORGE_FAILED when nothing at all can be measured, the output cannot be written, or it was
 * abandoned. Owned by the session. */
EF_API equiforge_status equiforge_optimize(equiforge_session *session, const char *path,
                                           const equiforge_optimize_options *options, equiforge_optimum *optimum);

/* How an optimisation is to end early: with the best so far, which takes a few more seconds; or without a result, in a
 * second or two, as EQUIFORGE_FAILED. Either way every measurement is in the store. */
typedef enum { EQUIFORGE_FINISH = 1, EQUIFORGE_ABANDON = 2 } equiforge_ending;

/* Ends the optimisation that runs in this session, or else the next one. To be called from any other thread, or from a
 * signal handler, while the session lives. */
EF_API void equiforge_interrupt(equiforge_session *session, equiforge_ending how);

/* What optimize can be for. */
typedef struct {
    const char *name;
    const char *kind; /* "cpu", "gpu" */
    bool available;   /* on this machine */
} equiforge_target;

/* All targets; returns how many. Owned by the library. */
EF_API size_t equiforge_targets(const equiforge_target **targets);

/* Serves as a worker process of an optimisation on the CPU: requests on standard input, replies on standard output, one
 * JSON object a line. Returns an exit status when the input ends. `threads` as above. */
EF_API int equiforge_worker(uint32_t threads);

/* ---- the Python package ---- */

/* The words that start a module of the package, "equiforge.bench"; its arguments follow. Ends with NULL; owned by the
 * session. The interpreter is $EQUIFORGE_PYTHON, else one that is found. */
EF_API const char *const *equiforge_python(equiforge_session *session, const char *module);

/* ---- optimised modules (design, sections 1 and 10) ---- */

/* What an .efz file holds (docs/efz.md): regions with their code, calls of PyTorch, and how values go between them.
 * Weights are not in it. */
typedef struct equiforge_plan equiforge_plan;

/* Reads a file and checks all of it; runs nothing. EQUIFORGE_BAD_INPUT when it is damaged, of another version or no
 * such file; *plan is NULL then. The session must outlive the plan. */
EF_API equiforge_status equiforge_plan_open(equiforge_session *session, const char *path, equiforge_plan **plan);
/* NULL is allowed. */
EF_API void equiforge_plan_close(equiforge_plan *plan);
/* The plan as one JSON object: the file's manifest (docs/efz.md), and in its regions "source", "program", "candidate",
 * and "torch" (a Python module with the function `region`) where PyTorch on a GPU was not beaten. Owned by the plan.
 * NULL when it has no JSON form. */
EF_API const char *equiforge_plan_describe(equiforge_plan *plan);

/* Compiles and loads a region whose language is "c", to run with so many threads (0: one a processor). This runs the
 * system's compiler, and calls run code of the file: trust its origin. EQUIFORGE_BAD_INPUT when there is no such
 * region; EQUIFORGE_FAILED when it cannot be compiled. */
EF_API equiforge_status equiforge_plan_prepare(equiforge_plan *plan, uint32_t region, uint32_t threads);
/* Runs a prepared region on contiguous tensors of its program's inputs and outputs, in order. One call of a region at a
 * time: its workspace belongs to it. */
EF_API void equiforge_plan_call(equiforge_plan *plan, uint32_t region, void *const *in, void *const *out);

typedef struct {
    double us, original_us; /* of one call, cold: as implemented, and as given (0: not known) */
    double rel_l2;          /* with check: the largest relative L2 error, over several distributions of inputs */
    uint32_t uses;          /* how often the module calls it */
} equiforge_region_result;

/* Of a module: the sum of its regions over their uses (original_us is 0 when one is not known), the largest error. What
 * stays in PyTorch is not run. */
typedef struct {
    double us, original_us, rel_l2;
    size_t regions, externals;
    const equiforge_region_result *region;
} equiforge_plan_result;

/* Compiles, checks and times the implementations on random inputs, in worker processes of the target's device. THIS
 * RUNS CODE FROM THE FILE. Of the options, `dims` and `tiles` must be NULL: implementations are for one size.
 * EQUIFORGE_FAILED when the device is not here, or an implementation cannot be compiled or is wrong. Owned by the plan.
 */
EF_API equiforge_status equiforge_plan_run(equiforge_plan *plan, const equiforge_run_options *options,
                                           equiforge_plan_result *result);
/* Why the implementations equal the programs as they were given: derived again from the two, and validated by the
 * separate checker, whatever the file says; as equiforge_explain, for all regions one after the other. Owned by the
 * plan. */
EF_API equiforge_status equiforge_plan_explain(equiforge_plan *plan, const equiforge_limits *limits,
                                               equiforge_explanation *explanation);
/* Writes one self-contained HTML page. EQUIFORGE_FAILED when it cannot be written. */
EF_API equiforge_status equiforge_plan_report(equiforge_plan *plan, const char *path);

/* ---- launching code for GPUs ---- */

/* A recorded list of launches of compiled kernels, on one stream of one CUDA device, that one call hands to the driver:
 * the Python package records what Triton compiled. NVIDIA's driver is opened when it is first needed. */
typedef struct equiforge_launches equiforge_launches;

/* What equiforge_launches_run returns, beside 0 and the driver's errors (CUresult), when it launched nothing. */
#define EQUIFORGE_LAUNCH_UNALIGNED (-1) /* an address is no multiple of 16, for which kernels are compiled */
#define EQUIFORGE_LAUNCH_CAPTURING (-2) /* the stream is captured into a graph; the list was made for calls */

/* An empty list for a stream (CUstream; 0: the default one) of a device, to be called with so many addresses. It is for
 * the context that is current; where there is none, for the device's primary one. `captured`: it is for calls while the
 * stream is captured into a graph. NULL, and a message, without a driver that can do it or without a context. */
EF_API equiforge_launches *equiforge_launches_new(equiforge_session *session, int device, uint64_t stream,
                                                  uint32_t addresses, bool captured);
/* NULL is allowed. The session may be gone before. */
EF_API void equiforge_launches_free(equiforge_launches *launches);
/* Adds a launch of a function (CUfunction) with x * y * z blocks of `threads` threads and so many bytes of dynamic
 * shared memory; `overlap`: by programmatic dependent launch. Its parameters are added next, in order. */
EF_API void equiforge_launches_add(equiforge_launches *launches, uint64_t function, uint32_t x, uint32_t y, uint32_t z,
                                   uint32_t threads, uint32_t shared, bool overlap);
/* A parameter: the address of this number of each call. False when a kernel cannot have so many parameters (256), or
 * there is no such address. */
EF_API bool equiforge_launches_address(equiforge_launches *launches, uint32_t which);
/* A parameter that never changes, of at most 8 bytes: the lowest of `value`. False as above. */
EF_API bool equiforge_launches_value(equiforge_launches *launches, uint64_t value);
/* A parameter that describes a tensor to the copy engine (CUtensorMap): that at the address of this number of each
 * call, or `fixed` at this address. `type` and `swizzle` are the driver's numbers. Of each of the `rank` dimensions (1
 * to 5), the one along which elements lie side by side first: extents in elements, the tile's extents, and of all but
 * that first one the bytes between neighbours. False as above, and where the driver knows no such parameters. */
EF_API bool equiforge_launches_map(equiforge_launches *launches, bool fixed, uint64_t address, uint32_t type,
                                   uint32_t swizzle, uint32_t rank, const uint64_t *extents, const uint64_t *strides,
                                   const uint32_t *block);
/* Launches everything, with these addresses, and waits for nothing; threads may call it at once. 0 or a number as
 * above. */
EF_API int equiforge_launches_run(equiforge_launches *launches, const uint64_t *address);
/* The same as what the Python package makes a built-in function of (METH_FASTCALL in Python's stable interface, 3.10
 * and newer), a call of which costs a fifth of one by way of ctypes: `self` is the handle as a Python integer, the
 * arguments are the addresses, as Python integers. Returns 0 or a number as above, as a new Python integer; NULL, with
 * an exception set, for other arguments. It is called with Python's lock held, which others may have while it
 * launches; after equiforge_launches_python. */
EF_API void *equiforge_launches_call(void *self, void *const *arguments, intptr_t count);
/* The same, and the arguments are PyTorch's tensors, which must have memory. */
EF_API void *equiforge_launches_call_tensors(void *self, void *const *arguments, intptr_t count);
/* Where these find Python, with which the library is not linked: PyLong_AsUnsignedLongLong, PyLong_FromLong,
 * PyErr_Occurred, PyErr_BadArgument, PyEval_SaveThread, PyEval_RestoreThread, in this process. */
#define EQUIFORGE_PYTHON_FUNCTIONS 6
EF_API void equiforge_launches_python(void *const functions[EQUIFORGE_PYTHON_FUNCTIONS]);
/* What gives the address of a tensor's memory, in this process; before the first call with tensors. */
EF_API void equiforge_launches_tensors(void *(*address)(void *tensor));
/* The driver's text for one of its errors. */
EF_API const char *equiforge_launch_error(int result);

/* ---- code (paper, section 6.1) ---- */

typedef struct {
    const char *language; /* "triton": a Python module for GPUs; "c": C with OpenMP */
    const char *name;     /* of the function; NULL: the program's name, or "program" where that means something else */
    const char *dims;     /* as in equiforge_run_options */
    const char *schedule; /* "s.1=64,k0.warps=4" or with blanks between: values instead of the default's, NULL: none */
} equiforge_emit_options;

/* Prints a program, plain or tiled, as code. C code has the function
 *     void NAME(void *const *in, void *const *out, char *work, int threads);
 * and the size of its workspace in bytes, NAME_work; Python code says how it is called. EQUIFORGE_FAILED when the
 * language cannot express it under this schedule. The source is owned by the program. */
EF_API equiforge_status equiforge_emit(equiforge_program *program, const equiforge_emit_options *options,
                                       const char **source);

#ifdef __cplusplus
}
#endif

#endif
