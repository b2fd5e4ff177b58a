/* Schedules: the choices that a kernel graph leaves open (paper, section 6; design, section 7).
 *
 * A schedule gives every parameter of the graph (kernel.h) a value. Tile extents are in units of the axis's variable:
 * of one kernel, or of all kernels where a collection makes the number of tiles a dimension of a buffer. Everything
 * else about sizes follows. A tuner needs no more than the count of parameters, their domains and the kernels that own
 * them: a parameter without a kernel shapes stored buffers. */
#ifndef EF_KERNEL_SCHEDULE_H
#define EF_KERNEL_SCHEDULE_H

#include "kernel/kernel.h"

/* The code generators. */
typedef enum { EF_BACKEND_C, EF_BACKEND_TRITON, EF_BACKEND_COUNT } ef_backend;

typedef struct {
    ef_backend backend;
    uint32_t threads; /* of the CPU */
    uint32_t count;   /* the graph's parameters */
    uint64_t *value;  /* by parameter; TILE: from 1 to EF_MAX_EXTENT, larger than the dimension means whole */
} ef_schedule;

/* A sensible schedule for a device of so many units: threads of the CPU, or multiprocessors (0: of a large GPU). Freed
 * by ef_schedule_free. */
ef_schedule ef_schedule_default(const ef_kgraph *graph, ef_backend backend, uint32_t units);
ef_schedule ef_schedule_copy(const ef_schedule *schedule);
void ef_schedule_free(ef_schedule *schedule);

/* A parameter's name: "s.0" when it has no kernel, else "k1.s.1", "k1.warps". */
void ef_schedule_name(const ef_kgraph *graph, uint32_t param, ef_strbuf *out);
/* What a name says without a graph: the kind of the parameter, and its kernel or EF_NONE. False: it is no name of one.
 */
bool ef_schedule_read_name(const char *name, unsigned length, ef_param_kind *kind, uint32_t *kernel);

/* Whether a parameter may have this value: whoever reads a schedule from outside asks. It may be one that no tuner
 * tries with a kernel, which is as good as another then. */
bool ef_schedule_legal(ef_backend backend, ef_param_kind kind, uint64_t value);
/* Which values those are: "1, 2, 4, 8 or 16". */
void ef_schedule_print_legal(ef_backend backend, ef_param_kind kind, ef_strbuf *out);
/* Sets a parameter by its name; without "kN." all that are called so. False when there is none. */
bool ef_schedule_set(const ef_kgraph *graph, ef_schedule *schedule, const char *name, unsigned length, uint64_t value);

#define EF_MOST_ELEMENTS 65536u /* of a tile on a GPU: code generators refuse larger ones */

#define EF_SCHEDULE_VALUES 48
/* The legal values of a parameter that are worth trying, ascending; one value for what the backend or the kernel does
 * not use. */
unsigned ef_schedule_domain(const ef_kgraph *graph, ef_backend backend, uint32_t param,
                            uint64_t value[EF_SCHEDULE_VALUES]);
/* The value of a kernel's parameter that is no tile extent. */
uint64_t ef_sched_value(const ef_kgraph *graph, const ef_schedule *schedule, uint32_t kernel, ef_param_kind kind);

/* The parameter that is the extent of tiles along an axis, that of all kernels before any kernel's; EF_NONE: none is.
 */
uint32_t ef_sched_param(const ef_kgraph *graph, ef_axis axis);

/* Sizes under a schedule. */
uint64_t ef_sched_var(const ef_kgraph *graph, const ef_schedule *schedule, ef_var var);
uint64_t ef_sched_dim(const ef_kgraph *graph, const ef_schedule *schedule, ef_dim dim);
/* The tile extent of an iterator, never larger than what it divides (1 for a pick). */
uint64_t ef_sched_tile(const ef_kgraph *graph, const ef_schedule *schedule, const ef_kernel *kernel, uint32_t iter);
/* What it divides: the block of the outer iterator or the whole variable. */
uint64_t ef_sched_whole(const ef_kgraph *graph, const ef_schedule *schedule, const ef_kernel *kernel, uint32_t iter);
/* Of an axis's parts under a schedule, which are there: runs of neighbours, in order; they are numbered through from 0.
 * Returns the runs, 0 when all parts are there. */
typedef struct {
    uint64_t first, count;
} ef_part_run;
unsigned ef_sched_parts(const ef_kgraph *graph, const ef_schedule *schedule, ef_axis axis,
                        ef_part_run run[EF_K_MAX_RUNS]);
/* The same for an iterator's positions. */
unsigned ef_sched_runs(const ef_kgraph *graph, const ef_schedule *schedule, const ef_kernel *kernel, uint32_t iter,
                       ef_part_run run[EF_K_MAX_RUNS]);
/* How many positions it has. */
uint64_t ef_sched_trips(const ef_kgraph *graph, const ef_schedule *schedule, const ef_kernel *kernel, uint32_t iter);
/* How many blocks a kernel has. */
uint64_t ef_sched_blocks(const ef_kgraph *graph, const ef_schedule *schedule, const ef_kernel *kernel);
uint64_t ef_sched_buffer(const ef_kgraph *graph, const ef_schedule *schedule, uint32_t buffer); /* elements */

/* a * b, or what is too large for any machine. */
uint64_t ef_sched_times(uint64_t a, uint64_t b);

/* So many quotients of one divisor are products with its inverse on a GPU: one division and two multiplications of each
 * are less than they. */
#define EF_QUOTIENTS 16u

/* Where temporary buffers lie in the workspace, in bytes by buffer (inputs and outputs: 0). Buffers that are never
 * needed at one time share memory, where kernels run one after the other; where some run at once (ef_kernel.beside)
 * each needs its own. Returns the size of the workspace; `offset` has one entry a buffer. */
uint64_t ef_sched_plan(const ef_kgraph *graph, const ef_schedule *schedule, uint64_t *offset);

#endif
