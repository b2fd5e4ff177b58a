/* Samples of outputs: see sample.h. */
#include "tune/sample.h"

#include <stdlib.h>
#include <string.h>

#include "ir/independent.h"
#include "support/rng.h"
#include "support/strbuf.h"
#include "tune/work.h"

/* Seconds that one processor takes for float64, roughly: conversions of inputs are among it. */
#define MULTIPLICATION_S 2.5e-10
#define ELEMENT_S 8e-9
#define BYTE_S 2e-9
#define LEAST 4u  /* positions of a dimension */
#define GAIN 0.97 /* a dimension that saves less when it is halved is left whole */
#define POSITIONS "ef_positions_of_"

/* ---- how much of each dimension ---- */

static double cost_of(const ef_program *program, uint32_t threads)
{
    ef_work work = ef_work_of(program);
    double shared = work.multiplications * MULTIPLICATION_S + work.elements * ELEMENT_S;
    return shared / (threads ? threads : 1) + work.bytes * BYTE_S;
}

static double cost_when(const ef_program *program, ef_ctx *ctx, ef_var var, uint64_t extent, uint32_t threads)
{
    uint64_t was = ef_var_at(ctx, var)->extent;
    ef_var_resize(ctx, var, extent);
    double cost = cost_of(program, threads);
    ef_var_resize(ctx, var, was);
    return cost;
}

/* Halves, again and again, the dimension by which that saves most, until it costs no more than `seconds`. */
static void shrink(const ef_program *program, ef_ctx *ctx, const ef_var *var, uint32_t count, double seconds,
                   uint32_t threads)
{
    double cost = cost_of(program, threads);
    while (cost > seconds) {
        double least = GAIN * cost;
        ef_var best = EF_NONE;
        for (uint32_t i = 0; i < count; i++) {
            uint64_t half = (ef_var_at(ctx, var[i])->extent + 1) / 2;
            double then = half < LEAST ? cost : cost_when(program, ctx, var[i], half, threads);
            bool longer = best != EF_NONE && then < 1.001 * least && half > ef_var_at(ctx, best)->extent / 2;
            if (then < 0.999 * least || (then <= least && longer)) {
                least = then;
                best = var[i];
            }
        }
        if (best == EF_NONE)
            return;
        ef_var_resize(ctx, best, (ef_var_at(ctx, best)->extent + 1) / 2);
        cost = cost_of(program, threads);
    }
}

/* ---- which positions ---- */

/* One of each of `count` equal parts; of the first part the first, of the last the last. */
static const uint64_t *spread(ef_arena *arena, uint64_t extent, uint64_t count, ef_rng *rng)
{
    uint64_t *at = ef_arena_alloc(arena, count * sizeof *at);
    for (uint64_t i = 0; i < count; i++) {
        uint64_t begin = i * extent / count, end = (i + 1) * extent / count;
        at[i] = begin + ef_rng_next(rng) % (end - begin);
    }
    at[0] = 0;
    at[count - 1] = extent - 1;
    return at;
}

static bool is_taken(const ef_program *program, const ef_ctx *ctx, const char *prefix)
{
    for (uint32_t i = 0; i < program->inputs; i++)
        if (strncmp(ef_input_name(ctx, program->input[i]), prefix, strlen(prefix)) == 0)
            return true;
    return false;
}

/* How the names of inputs begin that say positions; no input of the program is called so. */
static const char *free_prefix(const ef_program *program, const ef_ctx *ctx, ef_arena *arena)
{
    ef_strbuf prefix = {0};
    ef_strbuf_puts(&prefix, POSITIONS);
    while (is_taken(program, ctx, prefix.text))
        ef_strbuf_puts(&prefix, "_");
    const char *kept = ef_arena_strndup(arena, prefix.text, prefix.length);
    ef_strbuf_free(&prefix);
    return kept;
}

static void choose(ef_sample *s, const ef_program *program, ef_ctx *ctx, double seconds, uint32_t threads,
                   uint64_t seed)
{
    ef_var var[EF_SAMPLE_DIMS];
    uint64_t extent[EF_SAMPLE_DIMS];
    uint32_t count = 0;
    bool *needed = ef_program_needed(program);
    ef_rng rng = {seed};
    s->prefix = free_prefix(program, ctx, s->arena);
    for (ef_var v = 0; v < ef_var_count(ctx) && count < EF_SAMPLE_DIMS; v++)
        if (ef_independent(program, needed, v, true)) {
            extent[count] = ef_var_at(ctx, v)->extent;
            var[count++] = v;
        }
    free(needed);
    double whole = cost_of(program, threads);
    shrink(program, ctx, var, count, seconds, threads);
    s->seconds = cost_of(program, threads);
    s->share = s->seconds / whole;
    for (uint32_t i = 0; i < count; i++) {
        const ef_var_info *info = ef_var_at(ctx, var[i]);
        if (info->extent < extent[i])
            s->dim[s->dims++] = (ef_sample_dim){ef_arena_strndup(s->arena, info->name, strlen(info->name)), extent[i],
                                                info->extent, spread(s->arena, extent[i], info->extent, &rng)};
    }
}

ef_sample ef_sample_choose(const char *text, size_t length, double seconds, uint32_t threads, uint64_t seed,
                           ef_diag *diag)
{
    ef_sample s = {.arena = ef_arena_new(), .share = 1};
    ef_ctx *ctx = ef_ctx_new();
    ef_program *program = ef_program_parse(ctx, text, length, "program", diag);
    if (program)
        choose(&s, program, ctx, seconds, threads, seed);
    ef_program_free(program);
    ef_ctx_free(ctx);
    return s;
}

void ef_sample_free(ef_sample *s)
{
    if (s->arena)
        ef_arena_free(s->arena);
    *s = (ef_sample){0};
}

/* ---- the program ---- */

static const ef_sample_dim *find(const ef_sample *s, const char *name)
{
    for (uint32_t i = 0; i < s->dims && name; i++)
        if (strcmp(s->dim[i].name, name) == 0)
            return &s->dim[i];
    return NULL;
}

const ef_sample_dim *ef_sample_position(const ef_sample *s, const char *input)
{
    size_t length = s->prefix ? strlen(s->prefix) : 0;
    return length && strncmp(input, s->prefix, length) == 0 ? find(s, input + length) : NULL;
}

/* The dimension that alone is a tensor's, when it is sampled. */
static const ef_sample_dim *sampled(const ef_sample *s, const ef_ctx *ctx, ef_dim dim)
{
    const ef_var *atom;
    return ef_dim_atoms(ctx, dim, &atom) == 1 ? find(s, ef_var_at(ctx, atom[0])->name) : NULL;
}

typedef struct {
    const ef_sample *sample;
    ef_ctx *ctx;
    ef_program *program;
    ef_dag *dag; /* the new one */
    ef_diag *diag;
} rewriting;

/* What counts positions becomes an input. */
static ef_expr told(rewriting *r, const ef_sample_dim *dim, ef_type type)
{
    ef_strbuf name = {0};
    ef_strbuf_printf(&name, "%s%s", r->sample->prefix, dim->name);
    uint32_t input = ef_input_declare(r->ctx, name.text, (unsigned)name.length, type, r->diag), at = 0;
    ef_strbuf_free(&name);
    if (input == EF_NONE)
        return EF_NONE;
    while (at < r->program->inputs && r->program->input[at] != input)
        at++;
    if (at == r->program->inputs) {
        uint32_t *more = ef_arena_alloc(r->program->arena, (at + 1) * sizeof *more);
        memcpy(more, r->program->input, at * sizeof *more);
        more[at] = input;
        r->program->input = more;
        r->program->inputs++;
    }
    return ef_dag_input(r->dag, input);
}

static ef_expr rewrite(rewriting *r, const ef_dag *old, ef_expr e, const ef_expr *map)
{
    const ef_expr *child;
    ef_expr children[EF_MAX_FIELDS];
    unsigned count = ef_dag_children(old, e, &child);
    ef_op op = ef_dag_op(old, e);
    const ef_sample_dim *dim = op == EF_IOTA ? sampled(r->sample, r->ctx, (ef_dim)ef_dag_attr(old, e)) : NULL;
    if (dim)
        return told(r, dim, ef_dag_type(old, e));
    if (op == EF_INPUT)
        return ef_dag_input(r->dag, (uint32_t)ef_dag_attr(old, e));
    for (unsigned i = 0; i < count; i++)
        if ((children[i] = map[child[i]]) == EF_NONE)
            return EF_NONE;
    return ef_dag_add_exact(r->dag, op, ef_dag_attr(old, e), children, count, r->diag);
}

static bool rewrite_all(rewriting *r)
{
    ef_dag *old = r->program->dag;
    ef_expr *map = ef_xcalloc(ef_dag_count(old) + 1, sizeof *map);
    bool *needed = ef_program_needed(r->program), fine = true;
    for (ef_expr e = 0; e < ef_dag_count(old); e++)
        map[e] = needed[e] ? rewrite(r, old, e, map) : EF_NONE;
    for (uint32_t i = 0; i < r->program->outputs; i++) {
        r->program->output[i].expr = map[r->program->output[i].expr];
        fine = fine && r->program->output[i].expr != EF_NONE;
    }
    r->program->dag = r->dag;
    r->program->statements = 0;
    ef_dag_free(old);
    free(needed);
    free(map);
    return fine;
}

ef_program *ef_sample_program(const ef_sample *s, ef_ctx *ctx, const char *text, size_t length, bool wide,
                              ef_diag *diag)
{
    ef_program *program =
        wide ? ef_program_parse_f64(ctx, text, length, diag) : ef_program_parse(ctx, text, length, "program", diag);
    if (!program || s->dims == 0)
        return program;
    for (uint32_t i = 0; i < s->dims; i++)
        ef_var_resize(ctx, ef_var_find(ctx, s->dim[i].name, (unsigned)strlen(s->dim[i].name)), s->dim[i].count);
    rewriting r = {s, ctx, program, ef_dag_new(ctx), diag};
    if (rewrite_all(&r))
        return program;
    ef_program_free(program);
    return NULL;
}

/* ---- tensors ---- */

typedef struct {
    unsigned rank;
    uint64_t count[EF_MAX_RANK], stride[EF_MAX_RANK]; /* from the last dimension; strides in bytes of the whole */
    const uint64_t *at[EF_MAX_RANK];                  /* NULL: all positions */
} layout;

static char *gather(const layout *l, unsigned dim, const char *from, char *to)
{
    if (dim == 0 && !l->at[0]) {
        memcpy(to, from, l->count[0] * l->stride[0]);
        return to + l->count[0] * l->stride[0];
    }
    for (uint64_t i = 0; i < l->count[dim]; i++) {
        const char *row = from + (l->at[dim] ? l->at[dim][i] : i) * l->stride[dim];
        if (dim > 0) {
            to = gather(l, dim - 1, row, to);
        } else {
            memcpy(to, row, l->stride[0]);
            to += l->stride[0];
        }
    }
    return to;
}

void ef_sample_gather(const ef_sample *s, const ef_ctx *ctx, ef_type type, unsigned bytes, const void *from, void *to)
{
    const ef_type_info *info = ef_type_at(ctx, type);
    layout l = {.rank = info->rank};
    uint64_t stride = bytes;
    for (unsigned i = 0; i < info->rank; i++) {
        const ef_sample_dim *dim = sampled(s, ctx, info->dim[i]);
        uint64_t extent = ef_dim_extent(ctx, info->dim[i]);
        l.count[i] = dim ? dim->count : extent;
        l.at[i] = dim ? dim->at : NULL;
        l.stride[i] = stride;
        stride *= extent;
    }
    if (l.rank == 0)
        memcpy(to, from, bytes);
    else
        gather(&l, l.rank - 1, from, to);
}
