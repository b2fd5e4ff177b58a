/* Cutting a program into parts: see partition.h. */
#include "search/partition.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/hash.h"

#define LONGEST 400 /* operators in a part, beside the limit */
#define SHORT 16    /* dimensions below it are never looped over, see policy.c */
#define EQUAL (1 + 1e-9)
#define MOST_VARS 256 /* named variables of a part; a part with more is like no other */

typedef struct {
    const ef_program *program;
    const ef_dag *dag;
    ef_ctx *ctx;
    ef_partition_options options;
    ef_partitions *set;
    uint8_t *cheap;     /* by expression: no operator that a part is made of */
    uint8_t *output;    /* by expression: the program's result */
    uint32_t *last;     /* by expression: the last position that uses it, SIZE when the program returns it */
    uint32_t *position; /* by expression: where it stands in the order, EF_NONE: nowhere */
    uint32_t size;      /* operators */
    ef_expr *order;
    double *flops;         /* by position */
    uint8_t *heavy;        /* by position */
    EF_VEC(uint32_t) seen; /* by expression: the interval that looked at it */
    uint32_t looks;
    ef_intern *described;
    EF_VEC(uint32_t) first_described;
} cutter;

/* ---- what operators cost ---- */

static double elements(const cutter *c, ef_expr e)
{
    const ef_type_info *t = ef_type_at(c->ctx, ef_dag_type(c->dag, e));
    double product = t->is_tuple ? 0 : 1;
    for (unsigned i = 0; i < t->rank; i++)
        product *= (double)ef_dim_extent(c->ctx, t->dim[i]);
    return product;
}

static double bytes_of(const cutter *c, ef_expr e)
{
    static const uint8_t bytes[EF_DTYPE_COUNT] = {[EF_BOOL] = 1, [EF_NUM] = 4,  [EF_I32] = 4, [EF_I64] = 8,
                                                  [EF_F16] = 2,  [EF_BF16] = 2, [EF_F32] = 4, [EF_F64] = 8};
    const ef_type_info *t = ef_type_at(c->ctx, ef_dag_type(c->dag, e));
    return t->is_tuple ? 0 : elements(c, e) * bytes[t->dtype];
}

static double flops_of(const cutter *c, ef_expr e)
{
    const ef_expr *child;
    unsigned n = ef_dag_children(c->dag, e, &child);
    ef_op op = ef_dag_op(c->dag, e);
    if (op == EF_MATMUL) {
        const ef_type_info *a = ef_type_at(c->ctx, ef_dag_type(c->dag, child[0]));
        return 2 * elements(c, e) * (double)ef_dim_extent(c->ctx, a->dim[0]);
    }
    return op == EF_REDUCE ? elements(c, child[0]) : n && ef_op_pointwise(op) ? elements(c, e) : 0;
}

/* Whether an operator reduces or contracts a dimension that a loop could go along: what makes a search large. */
static bool is_heavy(const cutter *c, ef_expr e)
{
    const ef_expr *child;
    ef_op op = ef_dag_op(c->dag, e);
    unsigned index = op == EF_REDUCE ? ef_attr_reduce_at(ef_dag_attr(c->dag, e)) : 0;
    if ((op != EF_MATMUL && op != EF_REDUCE) || index >= EF_MAX_RANK)
        return op == EF_REDUCE;
    ef_dag_children(c->dag, e, &child);
    return ef_dim_extent(c->ctx, ef_type_at(c->ctx, ef_dag_type(c->dag, child[0]))->dim[index]) >= SHORT;
}

/* Whether an operator reads its operand as it is, at other places or in another type. */
static bool only_reads(ef_op op)
{
    return ef_ops[op].class == EF_SHAPE || op == EF_CAST;
}

/* Whether an expression only reads elements of inputs, or is made of positions and literals. */
static bool is_cheap(const cutter *c, ef_expr e)
{
    const ef_expr *child;
    ef_op op = ef_dag_op(c->dag, e);
    unsigned n = ef_dag_children(c->dag, e, &child);
    if (ef_ops[op].class == EF_LEAF)
        return true;
    if (!(ef_ops[op].class == EF_SHAPE || ef_op_pointwise(op)))
        return false;
    for (unsigned i = 0; i < n; i++)
        if (!(c->cheap[child[i]] == 2 || (c->cheap[child[i]] && only_reads(op))))
            return false;
    return true;
}

static void mark_cheap(cutter *c, ef_expr e)
{
    const ef_expr *child;
    ef_op op = ef_dag_op(c->dag, e);
    if (!is_cheap(c, e))
        return;
    uint8_t positions = op == EF_INPUT ? 1 : 2;
    for (unsigned i = 0, n = ef_dag_children(c->dag, e, &child); i < n; i++)
        positions = c->cheap[child[i]] < positions ? c->cheap[child[i]] : positions;
    c->cheap[e] = positions; /* 1: of inputs, 2: of nothing but positions and literals */
}

/* Marks what the outputs need, and lists its operators in the order of the program. */
static void find_order(cutter *c)
{
    uint32_t count = ef_dag_count(c->dag);
    uint8_t *needed = ef_xcalloc(count + 1, 1);
    const ef_expr *child;
    for (uint32_t i = 0; i < c->program->outputs; i++)
        needed[c->program->output[i].expr] = c->output[c->program->output[i].expr] = 1;
    for (ef_expr e = count; e-- > 0;)
        for (unsigned i = 0, n = needed[e] ? ef_dag_children(c->dag, e, &child) : 0; i < n; i++)
            needed[child[i]] = 1;
    for (ef_expr e = 0; e < count; e++) {
        c->position[e] = EF_NONE;
        mark_cheap(c, e);
        if (!needed[e] || (c->cheap[e] && !c->output[e]))
            continue;
        c->position[e] = c->size;
        c->order[c->size] = e;
        c->size++;
    }
    free(needed);
}

/* Calls f for the values that an operator reads: operators, and inputs through what is cheap. */
static void each_read(const cutter *c, ef_expr e, void (*f)(void *user, ef_expr read), void *user)
{
    const ef_expr *child;
    for (unsigned i = 0, n = ef_dag_children(c->dag, e, &child); i < n; i++) {
        if (c->position[child[i]] != EF_NONE || ef_dag_op(c->dag, child[i]) == EF_INPUT)
            f(user, child[i]);
        else
            each_read(c, child[i], f, user);
    }
}

/* ---- the order ---- */

/* Operators from the last one to the first, and by expression: its place there, and its readers that come first and
 * last in the program, of those that have a place. */
typedef struct {
    cutter *c;
    uint32_t count, *place, *readers;
    ef_expr *list, *first, *last, at;
    double bytes;
} ordering;

static bool looked_at(cutter *c, ef_expr read)
{
    bool before = c->seen.at[read] == c->looks;
    c->seen.at[read] = c->looks;
    return before;
}

static void count_reader(void *user, ef_expr read)
{
    ordering *o = user;
    o->readers[read] += !looked_at(o->c, read);
}

static void note_reader(void *user, ef_expr read)
{
    ordering *o = user;
    if (o->first[read] == EF_NONE || o->place[o->at] > o->place[o->first[read]])
        o->first[read] = o->at;
    if (o->last[read] == EF_NONE || o->place[o->at] < o->place[o->last[read]])
        o->last[read] = o->at;
}

/* Bytes that cross each cut between here and there when the operator stands there: what is not read later anyway. */
static void add_kept(void *user, ef_expr read)
{
    ordering *o = user;
    const cutter *c = o->c;
    ef_expr later = o->last[read];
    if (looked_at(o->c, read) || (later != EF_NONE && o->place[later] <= o->place[o->first[o->at]]))
        return;
    if (c->position[read] != EF_NONE)
        o->bytes += (c->output[read] ? 1 : 2) * bytes_of(c, read);
    else if (o->readers[read] > 1)
        o->bytes += bytes_of(c, read);
}

/* Whether an operator may as well wait for the first one that reads it: it is little work, and what it reads is less
 * to store than what it makes. */
static bool can_wait(ordering *o, ef_expr e)
{
    const cutter *c = o->c;
    if (is_heavy(c, e) || c->output[e] || o->first[e] == EF_NONE)
        return false;
    o->at = e;
    o->bytes = 0;
    o->c->looks++;
    each_read(c, e, add_kept, o);
    return o->bytes < 2 * bytes_of(c, e);
}

static void put(ordering *o, ef_expr e, uint32_t place)
{
    memmove(o->list + place + 1, o->list + place, (o->count - place) * sizeof *o->list);
    o->list[place] = e;
    o->count++;
    for (uint32_t i = place; i < o->count; i++)
        o->place[o->list[i]] = i;
}

/* Puts operators that make much of little right before those that need it: a cut between stores the little. A mixture
 * of streams is larger than its coefficients. */
static void delay(cutter *c)
{
    uint32_t all = ef_dag_count(c->dag) + 1;
    ordering o = {.c = c};
    uint32_t **own[] = {&o.place, &o.readers, &o.list, &o.first, &o.last};
    for (unsigned i = 0; i < sizeof own / sizeof *own; i++)
        *own[i] = ef_xcalloc(all, sizeof **own[i]);
    memset(o.first, 0xff, all * sizeof *o.first);
    memset(o.last, 0xff, all * sizeof *o.last);
    for (uint32_t i = 0; i < c->size; i++) {
        c->looks++;
        each_read(c, c->order[i], count_reader, &o);
    }
    for (uint32_t i = c->size; i-- > 0;) {
        ef_expr e = c->order[i];
        put(&o, e, can_wait(&o, e) ? o.place[o.first[e]] + 1 : o.count);
        o.at = e;
        each_read(c, e, note_reader, &o);
    }
    for (uint32_t i = 0; i < c->size; i++) {
        c->order[i] = o.list[c->size - 1 - i];
        c->position[c->order[i]] = i;
    }
    for (unsigned i = 0; i < sizeof own / sizeof *own; i++)
        free(*own[i]);
}

static void describe_order(cutter *c)
{
    for (uint32_t i = 0; i < c->size; i++) {
        c->flops[i] = flops_of(c, c->order[i]);
        c->heavy[i] = is_heavy(c, c->order[i]);
    }
}

typedef struct {
    cutter *c;
    uint32_t at;
} use;

static void note_use(void *user, ef_expr read)
{
    use *u = user;
    u->c->last[read] = u->at;
}

static void find_last_uses(cutter *c)
{
    for (uint32_t i = 0; i < c->size; i++)
        each_read(c, c->order[i], note_use, &(use){c, i});
    for (uint32_t i = 0; i < c->program->outputs; i++)
        c->last[c->program->output[i].expr] = c->size;
}

/* ---- the cut of least time ---- */

typedef struct {
    cutter *c;
    uint32_t from;
    double bytes;
} reads;

static void add_read(void *user, ef_expr read)
{
    reads *r = user;
    bool inside = r->c->position[read] != EF_NONE && r->c->position[read] >= r->from;
    if (inside || r->c->seen.at[read] == r->c->looks)
        return;
    r->c->seen.at[read] = r->c->looks;
    r->bytes += bytes_of(r->c, read);
}

/* Bytes that an interval writes: what is used after it. */
static double written(const cutter *c, uint32_t from, uint32_t to)
{
    double bytes = 0;
    for (uint32_t i = from; i < to; i++)
        bytes += c->last[c->order[i]] >= to ? bytes_of(c, c->order[i]) : 0;
    return bytes;
}

static double seconds_of(const cutter *c, double flops, double bytes)
{
    return flops / c->options.flops + bytes / c->options.bytes + c->options.launch;
}

/* best[j]: the least time of the first j operators; from[j]: where their last part begins. */
static double cut(cutter *c, uint32_t limit, uint32_t *from)
{
    double *best = ef_xcalloc(c->size + 1, sizeof *best);
    for (uint32_t j = 1; j <= c->size; j++)
        best[j] = INFINITY;
    for (uint32_t i = 0; i < c->size; i++) {
        reads r = {.c = c, .from = i};
        double flops = 0;
        uint32_t heavy = 0;
        c->looks++;
        for (uint32_t j = i; j < c->size && j - i < LONGEST; j++) {
            heavy += c->heavy[j];
            flops += c->flops[j];
            each_read(c, c->order[j], add_read, &r);
            if (heavy > limit && j > i)
                break;
            double total = best[i] + seconds_of(c, flops, r.bytes + written(c, i, j + 1));
            if (total < best[j + 1]) {
                best[j + 1] = total;
                from[j + 1] = i;
            }
        }
    }
    double result = best[c->size];
    free(best);
    return result;
}

static double seconds_between(cutter *c, uint32_t from, uint32_t to)
{
    reads r = {.c = c, .from = from};
    double flops = 0;
    c->looks++;
    for (uint32_t i = from; i < to; i++) {
        flops += c->flops[i];
        each_read(c, c->order[i], add_read, &r);
    }
    return seconds_of(c, flops, r.bytes + written(c, from, to));
}

static void count_read(void *user, ef_expr read)
{
    (void)read;
    ++*(unsigned *)user;
}

/* Whether an operator adds up tensors. */
static bool adds(const cutter *c, ef_expr e)
{
    unsigned count = 0;
    ef_op op = ef_dag_op(c->dag, e);
    each_read(c, e, count_read, &count);
    return (op == EF_ADD || op == EF_SUB) && count > 1;
}

/* Where the cut between two intervals is best, of places that cost the same: behind what is added to a result. A bias
 * belongs to its product; a factor may as well be the reader's, which may move it through products. */
static uint32_t settle(cutter *c, uint32_t from, uint32_t at, uint32_t to)
{
    double before = seconds_between(c, from, at) + seconds_between(c, at, to);
    for (uint32_t i = at + 1; i < to && adds(c, c->order[i - 1]); i++)
        if (seconds_between(c, from, i) + seconds_between(c, i, to) < before * EQUAL)
            at = i;
    return at;
}

/* ---- parts ---- */

/* An interval falls apart where no operator of one piece reads what another computes or reads. */
static uint32_t root_of(uint32_t *piece, uint32_t i)
{
    while (piece[i] != i)
        i = piece[i] = piece[piece[i]];
    return i;
}

typedef struct {
    cutter *c;
    uint32_t from, to, at, *piece, *reader; /* reader, by expression: an operator of the interval that reads it */
} joining;

static void join_reads(void *user, ef_expr read)
{
    joining *j = user;
    uint32_t position = j->c->position[read], other = EF_NONE;
    if (position != EF_NONE && position >= j->from)
        other = position;
    else if (j->c->seen.at[read] == j->c->looks)
        other = j->reader[read];
    j->c->seen.at[read] = j->c->looks;
    j->reader[read] = j->at;
    if (other != EF_NONE)
        j->piece[root_of(j->piece, other - j->from)] = root_of(j->piece, j->at - j->from);
}

/* Making the program of a part. */
typedef struct {
    cutter *c;
    ef_program *program;
    ef_expr *made; /* by expression of the whole: the part's, EF_NONE before */
    const uint8_t *inside;
    EF_VEC(ef_expr) inputs;
} maker;

/* An input that stands for a value of the whole; a name that is taken for another type gets one more letter. */
static ef_expr boundary(maker *m, ef_expr e)
{
    char name[40];
    ef_ctx *ctx = m->c->ctx;
    ef_type type = ef_dag_type(m->c->dag, e);
    int length = snprintf(name, sizeof name, "v%u", e);
    uint32_t input;
    while ((input = ef_input_find(ctx, name, (unsigned)length)) != UINT32_MAX && ef_input_type(ctx, input) != type &&
           length < 38) {
        name[length++] = '_';
        name[length] = 0;
    }
    input = ef_input_declare(ctx, name, (unsigned)length, type, NULL);
    return input == EF_NONE ? EF_NONE : ef_dag_input(m->program->dag, input);
}

static ef_expr make(maker *m, ef_expr e)
{
    const ef_expr *child;
    ef_expr operand[EF_MAX_FIELDS];
    const cutter *c = m->c;
    if (m->made[e] != EF_NONE)
        return m->made[e];
    ef_op op = ef_dag_op(c->dag, e);
    bool outside = op == EF_INPUT || (c->position[e] != EF_NONE && !m->inside[c->position[e]]);
    if (outside) {
        ef_vec_push(&m->inputs, e);
        return m->made[e] =
                   op == EF_INPUT ? ef_dag_input(m->program->dag, (uint32_t)ef_dag_attr(c->dag, e)) : boundary(m, e);
    }
    unsigned n = ef_dag_children(c->dag, e, &child);
    for (unsigned i = 0; i < n; i++)
        operand[i] = make(m, child[i]);
    return m->made[e] = ef_dag_add(m->program->dag, op, ef_dag_attr(c->dag, e), operand, n, NULL);
}

/* Fills in the lists of a part's program; results are those that something outside uses. */
static void finish(maker *m, ef_part *part, const ef_expr *results, uint32_t count, unsigned number)
{
    ef_program *p = m->program;
    ef_arena *arena = p->arena;
    char name[40];
    int length = snprintf(name, sizeof name, "part%u", number);
    p->name = ef_arena_strndup(arena, name, (size_t)length);
    p->comment = "";
    p->outputs = p->statements = count;
    p->output = p->statement = ef_arena_alloc(arena, (count + 1) * sizeof *p->output);
    part->output = ef_arena_alloc(arena, (count + 1) * sizeof *part->output);
    for (uint32_t i = 0; i < count; i++) {
        length = snprintf(name, sizeof name, "r%u", results[i]);
        p->output[i] = (ef_named){ef_arena_strndup(arena, name, (size_t)length), make(m, results[i])};
        part->output[i] = results[i];
    }
    p->inputs = m->inputs.count;
    p->input = ef_arena_alloc(arena, (p->inputs + 1) * sizeof *p->input);
    part->input = ef_arena_alloc(arena, (p->inputs + 1) * sizeof *part->input);
    for (uint32_t i = 0; i < p->inputs; i++) {
        part->input[i] = m->inputs.at[i];
        p->input[i] = (uint32_t)ef_dag_attr(p->dag, m->made[m->inputs.at[i]]);
    }
    part->program = p;
}

static void find_like(cutter *c, ef_part *part, uint32_t number)
{
    ef_strbuf text = {0};
    ef_var var[MOST_VARS];
    int fresh;
    ef_part_describe(part->program, &text, var, &part->vars, MOST_VARS);
    if (part->vars > MOST_VARS)
        ef_strbuf_printf(&text, "%u", number);
    uint32_t at = ef_intern_put(c->described, text.text, text.length, &fresh);
    if (fresh)
        ef_vec_push(&c->first_described, number);
    part->like = c->first_described.at[at];
    part->vars = part->vars < MOST_VARS ? part->vars : MOST_VARS;
    part->var = ef_arena_alloc(part->program->arena, (part->vars + 1) * sizeof *part->var);
    memcpy(part->var, var, part->vars * sizeof *var);
    ef_strbuf_free(&text);
}

/* Adds the part of the marked operators of an interval. */
static uint32_t add_part(cutter *c, const uint8_t *inside, uint32_t from, uint32_t to)
{
    ef_arena *arena = ef_arena_new();
    maker m = {.c = c, .inside = inside, .program = ef_arena_alloc(arena, sizeof *m.program)};
    uint32_t count = ef_dag_count(c->dag), number = c->set->part.count, results = 0;
    ef_part part = {0};
    double flops = 0, bytes = 0;
    memset(m.program, 0, sizeof *m.program);
    m.program->arena = arena;
    m.program->dag = ef_dag_new(c->ctx);
    m.made = ef_xcalloc(count + 1, sizeof *m.made);
    memset(m.made, 0xff, count * sizeof *m.made);
    ef_expr *result = ef_xcalloc(to - from + 1, sizeof *result);
    for (uint32_t i = from; i < to; i++) {
        if (!inside[i])
            continue;
        part.heavy += c->heavy[i];
        flops += c->flops[i];
        if (c->last[c->order[i]] >= to)
            result[results++] = c->order[i];
    }
    finish(&m, &part, result, results, number);
    for (uint32_t i = 0; i < results; i++)
        bytes += bytes_of(c, result[i]);
    for (uint32_t i = 0; i < m.inputs.count; i++)
        bytes += bytes_of(c, m.inputs.at[i]);
    part.seconds = seconds_of(c, flops, bytes);
    find_like(c, &part, number);
    ef_vec_push(&c->set->part, part);
    ef_vec_free(&m.inputs);
    free(m.made);
    free(result);
    return number;
}

/* The parts of one interval, appended to a list. */
static void add_interval(cutter *c, uint32_t from, uint32_t to, uint32_t *list, uint32_t *count)
{
    uint32_t size = to - from;
    uint8_t *inside = ef_xcalloc(c->size + 1, 1), *done = ef_xcalloc(size + 1, 1);
    joining j = {.c = c, .from = from, .to = to, .piece = ef_xcalloc(size + 1, sizeof *j.piece)};
    j.reader = ef_xcalloc(ef_dag_count(c->dag) + 1, sizeof *j.reader);
    for (uint32_t i = 0; i < size; i++)
        j.piece[i] = i;
    c->looks++;
    for (j.at = from; j.at < to; j.at++)
        each_read(c, c->order[j.at], join_reads, &j);
    for (uint32_t i = 0; i < size; i++) {
        uint32_t root = root_of(j.piece, i);
        if (done[root])
            continue;
        done[root] = 1;
        memset(inside, 0, c->size);
        for (uint32_t k = i; k < size; k++)
            inside[from + k] = root_of(j.piece, k) == root;
        list[(*count)++] = add_part(c, inside, from, to);
    }
    free(inside);
    free(done);
    free(j.piece);
    free(j.reader);
}

/* ---- partitions ---- */

static void add_partition(cutter *c, uint32_t limit)
{
    uint32_t *from = ef_xcalloc(c->size + 2, sizeof *from), *ends = ef_xcalloc(c->size + 2, sizeof *ends), n = 0;
    cut(c, limit, from);
    for (uint32_t j = c->size; j > 0; j = from[j])
        ends[n++] = j;
    ef_partition p = {.limit = limit, .part = ef_arena_alloc(c->set->arena, (c->size + 1) * sizeof *p.part)};
    bool known = false;
    for (uint32_t i = n; i-- > 1;)
        ends[i] = settle(c, i + 1 < n ? ends[i + 1] : 0, ends[i], ends[i - 1]);
    for (uint32_t i = n; i-- > 0;)
        add_interval(c, i + 1 < n ? ends[i + 1] : 0, ends[i], p.part, &p.parts);
    for (uint32_t i = 0; i < p.parts; i++)
        p.seconds += c->set->part.at[p.part[i]].seconds;
    for (uint32_t k = 0; k < c->set->list.count && !known; k++) { /* a larger limit may change nothing */
        known = c->set->list.at[k].parts == p.parts;
        for (uint32_t i = 0; i < p.parts && known; i++)
            known = c->set->part.at[c->set->list.at[k].part[i]].like == c->set->part.at[p.part[i]].like;
    }
    if (!known)
        ef_vec_push(&c->set->list, p);
    free(from);
    free(ends);
}

static int by_seconds(const void *a, const void *b)
{
    const ef_partition *x = a, *y = b;
    return (x->seconds > y->seconds) - (x->seconds < y->seconds);
}

ef_partitions *ef_partition_program(const ef_program *program, const ef_partition_options *options)
{
    static const uint32_t limits[] = {4, 6, 8, 16, 32};
    cutter c = {.program = program, .dag = program->dag, .ctx = ef_dag_ctx(program->dag)};
    uint32_t count = ef_dag_count(program->dag) + 1;
    if (options)
        c.options = *options;
    if (!c.options.limits) {
        c.options.limits = limits;
        c.options.count = sizeof limits / sizeof *limits;
    }
    c.options.flops = c.options.flops > 0 ? c.options.flops : 2e14;
    c.options.bytes = c.options.bytes > 0 ? c.options.bytes : 2e12;
    c.options.launch = c.options.launch > 0 ? c.options.launch : 3e-6;
    c.set = ef_xcalloc(1, sizeof *c.set);
    c.set->program = program;
    c.set->arena = ef_arena_new();
    c.cheap = ef_xcalloc(count, 1);
    c.output = ef_xcalloc(count, 1);
    c.heavy = ef_xcalloc(count, 1);
    c.last = ef_xcalloc(count, sizeof *c.last);
    c.position = ef_xcalloc(count, sizeof *c.position);
    c.order = ef_xcalloc(count, sizeof *c.order);
    c.flops = ef_xcalloc(count, sizeof *c.flops);
    c.described = ef_intern_new();
    ef_vec_reserve(&c.seen, count);
    memset(c.seen.at, 0, count * sizeof *c.seen.at);
    find_order(&c);
    delay(&c);
    describe_order(&c);
    find_last_uses(&c);
    for (unsigned i = 0; i < c.options.count; i++)
        add_partition(&c, c.options.limits[i]);
    qsort(c.set->list.at, c.set->list.count, sizeof *c.set->list.at, by_seconds);
    void *buffers[] = {c.cheap, c.output, c.heavy, c.last, c.position, c.order, c.flops};
    for (unsigned i = 0; i < sizeof buffers / sizeof *buffers; i++)
        free(buffers[i]);
    ef_vec_free(&c.seen);
    ef_vec_free(&c.first_described);
    ef_intern_free(c.described);
    return c.set;
}

void ef_partitions_free(ef_partitions *set)
{
    if (!set)
        return;
    for (uint32_t i = 0; i < set->part.count; i++)
        ef_program_free(set->part.at[i].program);
    ef_vec_free(&set->part);
    ef_vec_free(&set->list);
    ef_arena_free(set->arena);
    free(set);
}
