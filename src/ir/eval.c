/* The evaluator: see eval.h (paper, section 3; design, section 3).
 *
 * A type says all about the size of a value: the axes in scope give the coordinates, and at each coordinate the places
 * give the local extents. So every node first allocates its result from its type (new_leaf), and an operator only
 * fills it in. Nearly all operators that move data are one primitive, a walk over a box with strides (struct box).
 *
 * Nodes are evaluated once each, children first. Everything lives in one arena until the evaluation is freed; tensors
 * never change once their node is done, so views that do not cut share the data of their operand. */
#include "ir/eval.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/arena.h"
#include "support/vec.h"

#define MAX_RANK (EF_MAX_RANK + 1)
#define DEFAULT_LIMIT (UINT64_C(1) << 28)
#define MAX_LIMIT (UINT64_C(1) << 48) /* so that sizes in bytes do not overflow */
/* What a tensor costs of the limit besides its elements: its own header, in doubles. */
#define HEADER (sizeof(ef_tensor) / sizeof(double))

/* The coordinates of a set of axes, mixed radix, the first axis slowest. */
typedef struct {
    unsigned count;
    ef_axis axis[EF_MAX_PLACES];
    uint64_t extent[EF_MAX_PLACES];
    uint64_t total;
} space;

/* A tensor per coordinate, or a tuple of values. */
typedef struct value {
    const ef_type_info *type;
    space space;
    ef_tensor *at;        /* one per coordinate; NULL for a tuple */
    struct value **field; /* type->fields of them */
} value;

typedef struct {
    ef_var var;
    uint64_t extent;
} counted;

typedef struct {
    uint32_t count;
    const ef_tensor **at;
} root_list;

struct ef_evaluation {
    ef_arena *arena;
    unsigned roots;
    root_list *root;
};

/* The evaluation while it runs. */
typedef struct {
    const ef_dag *dag;
    const ef_ctx *ctx;
    const ef_tiling *tiling;
    ef_arena *arena;
    ef_input_fn inputs;
    void *user;
    uint64_t limit, used;
    EF_VEC(counted) counts; /* extents of the dimensions that collections made */
    ef_diag *diag;
    ef_expr now; /* the node being evaluated, for messages */
} machine;

typedef struct {
    ef_op op;
    uint64_t attr;
    ef_type type;
    unsigned count;
    value **x;
} node;

/* ---- failing and counting ---- */

static bool stop(const machine *m, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Says which node cannot be evaluated, and why. False. */
static bool stop(const machine *m, const char *format, ...)
{
    char why[256];
    va_list args;
    va_start(args, format);
    vsnprintf(why, sizeof why, format, args);
    va_end(args);
    return ef_fail(m->diag, "cannot evaluate node %u (%s): %s", m->now, ef_ops[ef_dag_op(m->dag, m->now)].name, why);
}

static uint64_t times(uint64_t a, uint64_t b)
{
    uint64_t product;
    return __builtin_mul_overflow(a, b, &product) ? UINT64_MAX : product;
}

static uint64_t ceil_div(uint64_t a, uint64_t b)
{
    return a / b + (a % b != 0);
}

static uint64_t least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static bool charge(machine *m, uint64_t elements)
{
    if (elements > m->limit - m->used) {
        stop(m, "the values exceed the limit of %" PRIu64 " elements; use smaller extents or larger tiles", m->limit);
        if (m->diag)
            m->diag->kind = EF_TOO_LARGE;
        return false;
    }
    m->used += elements;
    return true;
}

static uint64_t volume(const ef_tensor *t)
{
    uint64_t product = 1;
    for (unsigned d = 0; d < t->rank; d++)
        product = t->extent[d] == 0 ? 0 : times(product, t->extent[d]);
    return product;
}

static bool same_extents(const ef_tensor *a, const ef_tensor *b)
{
    return a->rank == b->rank && memcmp(a->extent, b->extent, a->rank * sizeof *a->extent) == 0;
}

/* ---- extents of variables, axes and tiles ---- */

/* The tile extent of an axis; without a tiling all is one tile. */
static uint64_t axis_tile(const machine *m, ef_axis axis)
{
    if (!m->tiling)
        return UINT64_MAX;
    uint64_t extent = m->tiling->fallback;
    for (unsigned i = 0; i < m->tiling->count; i++)
        if (m->tiling->tiles[i].axis == axis)
            extent = m->tiling->tiles[i].extent;
    return extent ? extent : 1;
}

/* The number of elements of a variable. What a collection made has as many as its axis has coordinates: known from the
 * collection, or, for an input that another kernel collected, from the axis when that is an outer one. */
static bool var_extent(machine *m, ef_var var, uint64_t *extent)
{
    const ef_var_info *info = ef_var_at(m->ctx, var);
    *extent = info->extent;
    if (info->kind != EF_VAR_COUNT)
        return true;
    for (uint32_t i = 0; i < m->counts.count; i++)
        if (m->counts.at[i].var == var) {
            *extent = m->counts.at[i].extent;
            return true;
        }
    if (ef_axis_level(info->axis) > 0)
        return stop(m, "the number of coordinates of an inner axis is not known here");
    if (!var_extent(m, ef_axis_var(info->axis), extent))
        return false;
    *extent = ceil_div(*extent, axis_tile(m, info->axis));
    return true;
}

/* Records how many coordinates an axis had where it was collected into this dimension. */
static bool note_count(machine *m, ef_dim dim, uint64_t extent)
{
    const ef_var *atoms;
    if (ef_dim_atoms(m->ctx, dim, &atoms) != 1)
        return true;
    for (uint32_t i = 0; i < m->counts.count; i++)
        if (m->counts.at[i].var == atoms[0])
            return m->counts.at[i].extent == extent ||
                   stop(m, "one axis is collected with %" PRIu64 " and with %" PRIu64 " coordinates",
                        m->counts.at[i].extent, extent);
    counted entry = {atoms[0], extent};
    ef_vec_push(&m->counts, entry);
    return true;
}

/* ---- coordinates ---- */

static unsigned space_find(const space *s, ef_axis axis)
{
    unsigned i = 0;
    while (i < s->count && s->axis[i] != axis)
        i++;
    return i;
}

/* An inner axis runs over the block of the outer one when both are in scope, else over the whole dimension. */
static bool space_of(machine *m, const ef_type_info *type, space *s)
{
    s->count = type->places;
    s->total = 1;
    for (unsigned i = 0; i < s->count; i++)
        s->axis[i] = type->place[i].axis;
    for (unsigned i = 0; i < s->count; i++) {
        ef_axis axis = s->axis[i], outer = ef_axis_of(ef_axis_var(axis), 0);
        uint64_t whole;
        if (axis != outer && space_find(s, outer) < s->count)
            whole = axis_tile(m, outer);
        else if (!var_extent(m, ef_axis_var(axis), &whole))
            return false;
        s->extent[i] = ceil_div(whole, axis_tile(m, axis));
        s->total = times(s->total, s->extent[i]);
    }
    return true;
}

static void space_digits(const space *s, uint64_t coordinate, uint64_t digit[EF_MAX_PLACES])
{
    for (unsigned i = s->count; i-- > 0; coordinate /= s->extent[i])
        digit[i] = coordinate % s->extent[i];
}

/* Whether each coordinate of `big` has one in `small`. */
static bool space_within(machine *m, const space *small, const space *big)
{
    for (unsigned i = 0; i < small->count; i++) {
        unsigned at = space_find(big, small->axis[i]);
        if (at == big->count)
            return stop(m, "an axis is missing from the scope of a value");
        if (small->extent[i] != big->extent[at])
            return stop(m, "an axis has %" PRIu64 " coordinates in one value and %" PRIu64 " in another",
                        small->extent[i], big->extent[at]);
    }
    return true;
}

/* The coordinate of `small` that a coordinate of `big` belongs to. */
static uint64_t project(const space *big, uint64_t coordinate, const space *small)
{
    uint64_t digit[EF_MAX_PLACES] = {0}, at = 0;
    if (small->count == 0)
        return 0;
    if (small->count == big->count)
        return coordinate;
    space_digits(big, coordinate, digit);
    for (unsigned i = 0; i < small->count; i++)
        at = at * small->extent[i] + digit[space_find(big, small->axis[i])];
    return at;
}

/* The coordinate that lies at `digit` of axis number `which` and is `rest` in the space without this axis. */
static uint64_t insert_digit(const space *s, unsigned which, uint64_t rest, uint64_t digit)
{
    uint64_t inner = 1;
    for (unsigned i = which + 1; i < s->count; i++)
        inner *= s->extent[i];
    return (rest / inner * s->extent[which] + digit) * inner + rest % inner;
}

/* ---- values ---- */

/* The part of one dimension (index from the last) that a value holds at a coordinate. */
typedef struct {
    uint64_t start, length;
} range;

static bool local_range(machine *m, const value *x, const uint64_t *digit, unsigned dim, range *r)
{
    const ef_var *atoms;
    unsigned n = ef_dim_atoms(m->ctx, x->type->dim[dim], &atoms);
    uint64_t rest = 1, extent;
    *r = (range){0, 1};
    for (unsigned a = 0; a < n; a++) {
        if (!var_extent(m, atoms[a], &extent))
            return false;
        if (a == 0)
            r->length = extent;
        else
            rest = times(rest, extent);
    }
    /* Places are sorted by level, so the tile is cut from the block. */
    for (unsigned i = 0; i < x->type->places; i++) {
        const ef_place *p = &x->type->place[i];
        if (p->kind != EF_PARTITION || p->dim != dim)
            continue;
        uint64_t tile = axis_tile(m, p->axis), before = least(times(digit[i], tile), r->length);
        r->start += before;
        r->length = least(tile, r->length - before);
    }
    r->start = times(r->start, rest);
    r->length = times(r->length, rest);
    return true;
}

static bool new_data(machine *m, ef_tensor *t)
{
    uint64_t elements = volume(t);
    if (!charge(m, elements))
        return false;
    t->data = ef_arena_alloc(m->arena, elements * sizeof *t->data);
    return true;
}

/* A tensor value of this type: the extents at each coordinate and, when asked, zeroed data. */
static value *new_leaf(machine *m, ef_type type, bool with_data)
{
    value *x = ef_arena_alloc(m->arena, sizeof *x);
    x->type = ef_type_at(m->ctx, type);
    if (x->type->is_tuple) {
        stop(m, "a tensor is expected, not a tuple");
        return NULL;
    }
    if (!space_of(m, x->type, &x->space) || !charge(m, times(x->space.total, HEADER)))
        return NULL;
    x->at = ef_arena_alloc(m->arena, x->space.total * sizeof *x->at);
    for (uint64_t c = 0; c < x->space.total; c++) {
        uint64_t digit[EF_MAX_PLACES];
        space_digits(&x->space, c, digit);
        ef_tensor *t = &x->at[c];
        t->rank = x->type->rank;
        for (unsigned d = 0; d < t->rank; d++) {
            range r;
            if (!local_range(m, x, digit, t->rank - 1 - d, &r))
                return NULL;
            t->extent[d] = r.length;
        }
        if (with_data && !new_data(m, t))
            return NULL;
    }
    return x;
}

static value *new_tuple(machine *m, ef_type type)
{
    value *x = ef_arena_alloc(m->arena, sizeof *x);
    x->type = ef_type_at(m->ctx, type);
    if (!charge(m, HEADER + x->type->fields))
        return NULL;
    x->field = ef_arena_alloc(m->arena, x->type->fields * sizeof *x->field);
    return x;
}

/* For an operator that acts on tuples field by field. */
typedef value *(*leaf_fn)(machine *m, uint64_t attr, ef_type type, const value *x);

static value *each_leaf(machine *m, uint64_t attr, ef_type type, const value *x, leaf_fn leaf)
{
    if (!x->type->is_tuple)
        return leaf(m, attr, type, x);
    value *out = new_tuple(m, type);
    for (unsigned i = 0; out && i < x->type->fields; i++)
        if (!(out->field[i] = each_leaf(m, attr, out->type->field[i], x->field[i], leaf)))
            return NULL;
    return out;
}

/* The leaves of a value, left to right, at most `room` of them; false when there are more. */
static bool flatten(value *x, value **leaf, unsigned room, unsigned *count)
{
    if (x->type->is_tuple) {
        for (unsigned i = 0; i < x->type->fields; i++)
            if (!flatten(x->field[i], leaf, room, count))
                return false;
        return true;
    }
    if (*count == room)
        return false;
    leaf[(*count)++] = x;
    return true;
}

/* ---- boxes: tensors walked in step ---- */

#define MAX_OPERANDS EF_MAX_LEAVES

/* Several tensors walked in step, row-major over one box; each advances by its own stride in each dimension. */
typedef struct {
    unsigned rank, operands;
    uint64_t extent[MAX_RANK];
    uint64_t stride[MAX_OPERANDS][MAX_RANK];
    uint64_t index[MAX_RANK];
    uint64_t offset[MAX_OPERANDS];
    uint64_t total;
} box;

static void box_of(box *b, const ef_tensor *shape)
{
    b->rank = shape->rank;
    b->operands = 0;
    memcpy(b->extent, shape->extent, sizeof b->extent);
    b->total = volume(shape);
}

static void row_major(const ef_tensor *t, uint64_t stride[MAX_RANK])
{
    uint64_t step = 1;
    for (unsigned d = t->rank; d-- > 0; step *= t->extent[d])
        stride[d] = step;
}

/* Adds an operand that broadcasts to the box, aligned at the last dimension; false when it does not. */
static bool box_broadcast(box *b, const ef_tensor *t)
{
    uint64_t stride[MAX_RANK], *to = b->stride[b->operands];
    if (t->rank > b->rank)
        return false;
    row_major(t, stride);
    unsigned lead = b->rank - t->rank;
    for (unsigned d = 0; d < b->rank; d++) {
        bool spread = d < lead || (t->extent[d - lead] == 1 && b->extent[d] != 1);
        if (!spread && t->extent[d - lead] != b->extent[d])
            return false;
        to[d] = spread ? 0 : stride[d - lead];
    }
    b->operands++;
    return true;
}

static void box_start(box *b)
{
    memset(b->index, 0, b->rank * sizeof *b->index);
    memset(b->offset, 0, b->operands * sizeof *b->offset);
}

static void box_next(box *b)
{
    for (unsigned d = b->rank; d-- > 0;) {
        bool wraps = ++b->index[d] == b->extent[d];
        for (unsigned o = 0; o < b->operands; o++)
            b->offset[o] += b->stride[o][d] - (wraps ? b->stride[o][d] * b->extent[d] : 0);
        if (!wraps)
            return;
        b->index[d] = 0;
    }
}

/* Copies a box of `shape`'s extents between two tensors with their own strides. */
static void copy_box(const ef_tensor *shape, double *to, const uint64_t *to_stride, const double *from,
                     const uint64_t *from_stride)
{
    box b;
    box_of(&b, shape);
    b.operands = 2;
    memcpy(b.stride[0], to_stride, b.rank * sizeof *to_stride);
    memcpy(b.stride[1], from_stride, b.rank * sizeof *from_stride);
    box_start(&b);
    for (uint64_t i = 0; i < b.total; i++, box_next(&b))
        to[b.offset[0]] = from[b.offset[1]];
}

/* Copies `part` into `whole`, or back, where `part` lies at position `start` of `whole`; false if it sticks out. */
typedef enum { INTO_WHOLE, INTO_PART } direction;

static bool copy_part(const ef_tensor *whole, const ef_tensor *part, const uint64_t *start, direction way)
{
    uint64_t whole_stride[MAX_RANK], part_stride[MAX_RANK], offset = 0;
    if (whole->rank != part->rank)
        return false;
    row_major(whole, whole_stride);
    row_major(part, part_stride);
    for (unsigned d = 0; d < whole->rank; d++) {
        if (start[d] > whole->extent[d] || part->extent[d] > whole->extent[d] - start[d])
            return false;
        offset += start[d] * whole_stride[d];
    }
    if (volume(part) == 0)
        return true;
    if (way == INTO_WHOLE)
        copy_box(part, whole->data + offset, whole_stride, part->data, part_stride);
    else
        copy_box(part, part->data, part_stride, whole->data + offset, whole_stride);
    return true;
}

/* ---- leaves ---- */

static value *eval_input(machine *m, const node *n)
{
    value *out = new_leaf(m, n->type, true);
    if (!out)
        return NULL;
    if (out->type->places > 0) {
        stop(m, "an input has no parallel state");
        return NULL;
    }
    ef_tensor given = out->at[0];
    m->inputs(m->user, (uint32_t)n->attr, &given);
    if (!same_extents(&given, &out->at[0])) {
        stop(m, "the input data of %s do not have the extents of its type", ef_input_name(m->ctx, (uint32_t)n->attr));
        return NULL;
    }
    out->at[0].data = given.data;
    return out;
}

static value *eval_const(machine *m, const node *n)
{
    value *out = new_leaf(m, n->type, true);
    if (out)
        out->at[0].data[0] = ef_attr_to_number(n->attr);
    return out;
}

static value *eval_iota(machine *m, const node *n)
{
    value *out = new_leaf(m, n->type, true);
    if (out)
        for (uint64_t i = 0, extent = volume(&out->at[0]); i < extent; i++)
            out->at[0].data[i] = (double)i;
    return out;
}

/* ---- pointwise and matmul ---- */

static value *eval_pointwise(machine *m, const node *n)
{
    value *out = new_leaf(m, n->type, true);
    bool by_zero =
        (n->op == EF_MOD || n->op == EF_FLOORDIV) && !ef_dtype_is_float((ef_dtype)ef_type_at(m->ctx, n->type)->dtype);
    for (unsigned o = 0; out && o < n->count; o++)
        if (!space_within(m, &n->x[o]->space, &out->space))
            return NULL;
    for (uint64_t c = 0; out && c < out->space.total; c++) {
        box b;
        const double *from[3];
        box_of(&b, &out->at[c]);
        for (unsigned o = 0; o < n->count; o++) {
            const ef_tensor *t = &n->x[o]->at[project(&out->space, c, &n->x[o]->space)];
            from[o] = t->data;
            if (!box_broadcast(&b, t)) {
                stop(m, "the extents of operand %u do not broadcast to the result's", o + 1);
                return NULL;
            }
        }
        box_start(&b);
        for (uint64_t i = 0; i < b.total; i++, box_next(&b)) {
            double x[3] = {0, 0, 0};
            for (unsigned o = 0; o < n->count; o++)
                x[o] = from[o][b.offset[o]];
            out->at[c].data[i] = by_zero && x[1] == 0 ? 0 : ef_op_apply(n->op, n->attr, x);
        }
    }
    return out;
}

/* One matrix product: out, which is zero, += a b, the sum in the order of k. */
static void multiply(double *out, const double *a, const double *b, uint64_t rows, uint64_t inner, uint64_t columns)
{
    for (uint64_t i = 0; i < rows; i++)
        for (uint64_t k = 0; k < inner; k++)
            for (uint64_t j = 0; j < columns; j++)
                out[i * columns + j] += a[i * inner + k] * b[k * columns + j];
}

/* The same tensor without its last two dimensions. */
static ef_tensor batch_of(const ef_tensor *t)
{
    ef_tensor batch = *t;
    batch.rank -= 2;
    return batch;
}

static bool matmul_at(const ef_tensor *out, const ef_tensor *a, const ef_tensor *b)
{
    if (out->rank < 2 || a->rank < 2 || b->rank < 2)
        return false;
    uint64_t rows = out->extent[out->rank - 2], columns = out->extent[out->rank - 1], inner = a->extent[a->rank - 1];
    if (a->extent[a->rank - 2] != rows || b->extent[b->rank - 2] != inner || b->extent[b->rank - 1] != columns)
        return false;
    ef_tensor batch = batch_of(out), a_batch = batch_of(a), b_batch = batch_of(b);
    box walk;
    box_of(&walk, &batch);
    if (!box_broadcast(&walk, &a_batch) || !box_broadcast(&walk, &b_batch))
        return false;
    box_start(&walk);
    for (uint64_t i = 0; i < walk.total; i++, box_next(&walk))
        multiply(out->data + i * rows * columns, a->data + walk.offset[0] * rows * inner,
                 b->data + walk.offset[1] * inner * columns, rows, inner, columns);
    return true;
}

static value *eval_matmul(machine *m, const node *n)
{
    value *out = new_leaf(m, n->type, true);
    const value *a = n->x[0], *b = n->x[1];
    if (!out || !space_within(m, &a->space, &out->space) || !space_within(m, &b->space, &out->space))
        return NULL;
    for (uint64_t c = 0; c < out->space.total; c++)
        if (!matmul_at(&out->at[c], &a->at[project(&out->space, c, &a->space)],
                       &b->at[project(&out->space, c, &b->space)])) {
            stop(m, "the extents of the factors do not fit");
            return NULL;
        }
    return out;
}

/* ---- reductions ---- */

/* A fold that is under way: the state of a reducer, one tensor a leaf. */
typedef struct {
    const ef_ctx *ctx;
    ef_reducer reducer;
    unsigned leaves;
    double identity[EF_MAX_LEAVES];
    ef_tensor *state[EF_MAX_LEAVES];
    box walk[EF_MAX_LEAVES];                        /* over one leaf, with the leaves that broadcast to it */
    unsigned operand[EF_MAX_LEAVES][EF_MAX_LEAVES]; /* which leaf each operand of a walk is */
} fold;

/* Starts from the identity. A leaf's new value depends on itself and on leaves that broadcast to it, no others. */
static void fold_start(fold *f)
{
    for (unsigned l = 0; l < f->leaves; l++) {
        ef_tensor *state = f->state[l];
        for (uint64_t i = 0, n = volume(state); i < n; i++)
            state->data[i] = f->identity[l];
        box_of(&f->walk[l], state);
        for (unsigned o = 0; o < f->leaves; o++) {
            f->operand[l][f->walk[l].operands] = o;
            box_broadcast(&f->walk[l], f->state[o]);
        }
    }
}

/* Folds one input (one tensor a leaf, of the state's extents). Leaves depend on earlier leaves only (consumers come
 * after their producers), so going from the last to the first each still sees the old state of those. */
static void fold_step(fold *f, const double *const *in)
{
    double state[EF_MAX_LEAVES], given[EF_MAX_LEAVES];
    for (unsigned l = f->leaves; l-- > 0;) {
        box *b = &f->walk[l];
        box_start(b);
        for (uint64_t i = 0; i < b->total; i++, box_next(b)) {
            memcpy(state, f->identity, sizeof state);
            memcpy(given, f->identity, sizeof given);
            for (unsigned k = 0; k < b->operands; k++) {
                unsigned o = f->operand[l][k];
                state[o] = f->state[o]->data[b->offset[k]];
                given[o] = in[o][b->offset[k]];
            }
            ef_reducer_update(f->ctx, f->reducer, state, given);
            f->state[l]->data[i] = state[l];
        }
    }
}

/* The operand and the result of a reduction, leaf by leaf. */
typedef struct {
    fold fold;
    value *in[EF_MAX_LEAVES], *out[EF_MAX_LEAVES];
} reduction;

static value *new_result(machine *m, ef_type type)
{
    const ef_type_info *info = ef_type_at(m->ctx, type);
    if (!info->is_tuple)
        return new_leaf(m, type, true);
    value *out = new_tuple(m, type);
    for (unsigned i = 0; out && i < info->fields; i++)
        if (!(out->field[i] = new_result(m, info->field[i])))
            return NULL;
    return out;
}

static value *reduction_start(machine *m, const node *n, reduction *r)
{
    ef_reducer base[EF_MAX_LEAVES];
    unsigned in = 0, made = 0;
    *r = (reduction){.fold = {.ctx = m->ctx, .reducer = ef_attr_reducer(n->attr)}};
    r->fold.leaves = ef_reducer_leaves(m->ctx, r->fold.reducer, base);
    for (unsigned l = 0; l < r->fold.leaves; l++)
        r->fold.identity[l] = ef_reducer_identity(base[l]);
    value *out = new_result(m, n->type);
    if (!out)
        return NULL;
    if (!flatten(n->x[0], r->in, EF_MAX_LEAVES, &in) || !flatten(out, r->out, EF_MAX_LEAVES, &made) || in == 0 ||
        in != r->fold.leaves || made != in) {
        stop(m, "the operand does not have the structure of the reducer's state");
        return NULL;
    }
    for (unsigned l = 0; l < in; l++)
        if (!space_within(m, &r->out[l]->space, &r->in[l]->space) ||
            !space_within(m, &r->in[0]->space, &r->in[l]->space) ||
            !space_within(m, &r->in[l]->space, &r->in[0]->space))
            return NULL;
    return out;
}

static void reduction_at(reduction *r, uint64_t coordinate)
{
    for (unsigned l = 0; l < r->fold.leaves; l++)
        r->fold.state[l] = &r->out[l]->at[coordinate];
    fold_start(&r->fold);
}

/* reduce[rho, parallel(p)]: over the coordinates of p, in order. */
static value *eval_reduce_p(machine *m, const node *n)
{
    reduction r;
    value *out = reduction_start(m, n, &r);
    if (!out)
        return NULL;
    const space *from = &r.in[0]->space;
    unsigned p = space_find(from, ef_attr_reduce_at(n->attr));
    if (p == from->count || r.out[0]->space.count + 1 != from->count) {
        stop(m, "the reduced axis is not in scope");
        return NULL;
    }
    for (uint64_t c = 0; c < r.out[0]->space.total; c++) {
        reduction_at(&r, c);
        for (uint64_t j = 0; j < from->extent[p]; j++) {
            const double *given[EF_MAX_LEAVES];
            for (unsigned l = 0; l < r.fold.leaves; l++) {
                const ef_tensor *t = &r.in[l]->at[insert_digit(from, p, c, j)];
                if (!same_extents(t, r.fold.state[l])) {
                    stop(m, "the extents of the values to reduce differ");
                    return NULL;
                }
                given[l] = t->data;
            }
            fold_step(&r.fold, given);
        }
    }
    return out;
}

/* Whether the leading dimensions of all leaves have this extent and the others are those of the state. */
static bool leads(const reduction *r, uint64_t c, uint64_t extent)
{
    for (unsigned l = 0; l < r->fold.leaves; l++) {
        const ef_tensor *in = &r->in[l]->at[c], *out = &r->out[l]->at[c];
        if (in->rank != out->rank + 1 || in->extent[0] != extent ||
            memcmp(in->extent + 1, out->extent, out->rank * sizeof *out->extent) != 0)
            return false;
    }
    return true;
}

/* reduce[rho, first]: over the leading dimension, which a collection made. */
static value *reduce_first(machine *m, const node *n)
{
    reduction r;
    value *out = reduction_start(m, n, &r);
    for (uint64_t c = 0; out && c < r.out[0]->space.total; c++) {
        uint64_t extent = r.in[0]->at[c].rank ? r.in[0]->at[c].extent[0] : 0;
        if (!leads(&r, c, extent)) {
            stop(m, "the values to reduce have no common leading dimension");
            return NULL;
        }
        reduction_at(&r, c);
        for (uint64_t j = 0; j < extent; j++) {
            const double *given[EF_MAX_LEAVES];
            for (unsigned l = 0; l < r.fold.leaves; l++)
                given[l] = r.in[l]->at[c].data + j * volume(r.fold.state[l]);
            fold_step(&r.fold, given);
        }
    }
    return out;
}

/* reduce[rho, axis(i)] of a tensor, which keeps the dimension with extent 1. */
static value *eval_reduce(machine *m, const node *n)
{
    unsigned index = ef_attr_reduce_at(n->attr);
    ef_reducer reducer = ef_attr_reducer(n->attr);
    const value *x = n->x[0];
    if (index == EF_FIRST)
        return reduce_first(m, n);
    if (x->type->is_tuple || ef_reducer_at(m->ctx, reducer)->leaves != 1 || index >= x->type->rank) {
        stop(m, "only a tensor can be reduced along one of its dimensions");
        return NULL;
    }
    value *out = new_leaf(m, n->type, true);
    if (!out || !space_within(m, &x->space, &out->space))
        return NULL;
    for (uint64_t c = 0; c < out->space.total; c++) {
        const ef_tensor *in = &x->at[project(&out->space, c, &x->space)];
        ef_tensor kept = *in, *to = &out->at[c];
        kept.extent[in->rank - 1 - index] = 1;
        if (!same_extents(&kept, to)) {
            stop(m, "the extents of the operand do not fit the result");
            return NULL;
        }
        uint64_t inner = 1, extent = in->extent[in->rank - 1 - index];
        for (unsigned d = in->rank - index; d < in->rank; d++)
            inner *= in->extent[d];
        for (uint64_t i = 0, total = volume(to); i < total; i++) {
            to->data[i] = ef_reducer_identity(reducer);
            for (uint64_t j = 0; j < extent; j++)
                ef_reducer_update(m->ctx, reducer, &to->data[i],
                                  &in->data[(i / inner * extent + j) * inner + i % inner]);
        }
    }
    return out;
}

/* ---- shapes ---- */

/* For the operators that move the data of one operand: fills `out` at one coordinate, or says that it does not fit. */
typedef bool (*move_fn)(machine *m, const node *n, const ef_tensor *in, ef_tensor *out);

static value *eval_move(machine *m, const node *n, bool with_data, move_fn move)
{
    value *out = new_leaf(m, n->type, with_data);
    if (!out || !space_within(m, &n->x[0]->space, &out->space))
        return NULL;
    for (uint64_t c = 0; c < out->space.total; c++)
        if (!move(m, n, &n->x[0]->at[project(&out->space, c, &n->x[0]->space)], &out->at[c])) {
            stop(m, "the extents of the operand do not fit the result");
            return NULL;
        }
    return out;
}

static bool reshape_at(machine *m, const node *n, const ef_tensor *in, ef_tensor *out)
{
    (void)m, (void)n;
    out->data = in->data;
    return volume(in) == volume(out);
}

static value *eval_reshape(machine *m, const node *n)
{
    return eval_move(m, n, false, reshape_at);
}

static bool transpose_at(machine *m, const node *n, const ef_tensor *in, ef_tensor *out)
{
    (void)m;
    uint64_t in_stride[MAX_RANK], from[MAX_RANK], to[MAX_RANK];
    if (in->rank != out->rank)
        return false;
    row_major(in, in_stride);
    row_major(out, to);
    for (unsigned d = 0; d < out->rank; d++) {
        unsigned taken = ef_perm_at(n->attr, out->rank - 1 - d);
        if (taken >= in->rank || in->extent[in->rank - 1 - taken] != out->extent[d])
            return false;
        from[d] = in_stride[in->rank - 1 - taken];
    }
    copy_box(out, out->data, to, in->data, from);
    return true;
}

static value *eval_transpose(machine *m, const node *n)
{
    return eval_move(m, n, true, transpose_at);
}

static bool slice_at(machine *m, const node *n, const ef_tensor *in, ef_tensor *out)
{
    (void)m;
    uint64_t start[MAX_RANK] = {0};
    unsigned index = ef_slice_index(n->attr);
    if (index >= in->rank || in->rank != out->rank)
        return false;
    unsigned at = in->rank - 1 - index;
    start[at] = ef_slice_start(n->attr);
    return out->extent[at] == ef_slice_stop(n->attr) - start[at] && copy_part(in, out, start, INTO_PART);
}

static value *eval_slice(machine *m, const node *n)
{
    return eval_move(m, n, true, slice_at);
}

static bool broadcast_at(machine *m, const node *n, const ef_tensor *in, ef_tensor *out)
{
    (void)m, (void)n;
    box b;
    uint64_t to[MAX_RANK];
    box_of(&b, out);
    if (!box_broadcast(&b, in))
        return false;
    row_major(out, to);
    copy_box(out, out->data, to, in->data, b.stride[0]);
    return true;
}

static value *eval_broadcast(machine *m, const node *n)
{
    return eval_move(m, n, true, broadcast_at);
}

static bool concat_at(const node *n, const value *out, uint64_t c)
{
    ef_tensor *whole = &out->at[c];
    uint64_t start[MAX_RANK] = {0};
    if (n->attr >= whole->rank)
        return false;
    unsigned at = whole->rank - 1 - (unsigned)n->attr;
    for (unsigned o = 0; o < n->count; o++) {
        const ef_tensor *part = &n->x[o]->at[project(&out->space, c, &n->x[o]->space)];
        for (unsigned d = 0; d < whole->rank; d++)
            if (d < part->rank && d != at && part->extent[d] != whole->extent[d])
                return false;
        if (!copy_part(whole, part, start, INTO_WHOLE))
            return false;
        start[at] += part->extent[at];
    }
    return start[at] == whole->extent[at];
}

static value *eval_concat(machine *m, const node *n)
{
    value *out = new_leaf(m, n->type, true);
    for (unsigned o = 0; out && o < n->count; o++)
        if (!space_within(m, &n->x[o]->space, &out->space))
            return NULL;
    for (uint64_t c = 0; out && c < out->space.total; c++)
        if (!concat_at(n, out, c)) {
            stop(m, "the extents of the parts do not fit the result");
            return NULL;
        }
    return out;
}

/* ---- tuples ---- */

static value *eval_tuple(machine *m, const node *n)
{
    value *out = new_tuple(m, n->type);
    for (unsigned i = 0; out && i < n->count; i++)
        out->field[i] = n->x[i];
    return out;
}

static value *eval_get(machine *m, const node *n)
{
    const value *x = n->x[0];
    if (x->type->is_tuple && n->attr < x->type->fields)
        return x->field[n->attr];
    stop(m, "the operand has no such field");
    return NULL;
}

/* ---- parallel operators ---- */

/* Where the part that `inner` holds at its coordinate starts within what `outer` holds at the matching coordinate. */
static bool offset_within(machine *m, const value *inner, uint64_t ci, const value *outer, uint64_t co,
                          uint64_t start[MAX_RANK])
{
    uint64_t inner_digit[EF_MAX_PLACES] = {0}, outer_digit[EF_MAX_PLACES] = {0};
    unsigned rank = inner->type->rank;
    memset(start, 0, MAX_RANK * sizeof *start);
    space_digits(&inner->space, ci, inner_digit);
    space_digits(&outer->space, co, outer_digit);
    for (unsigned i = 0; i < rank; i++) {
        range in, out;
        if (!local_range(m, inner, inner_digit, i, &in) || !local_range(m, outer, outer_digit, i, &out))
            return false;
        if (in.start < out.start)
            return stop(m, "a tile lies outside of its block");
        start[rank - 1 - i] = in.start - out.start;
    }
    return true;
}

static value *view_leaf(machine *m, uint64_t attr, ef_type type, const value *x)
{
    (void)attr;
    value *out = new_leaf(m, type, false);
    if (!out || !space_within(m, &x->space, &out->space))
        return NULL;
    for (uint64_t c = 0; c < out->space.total; c++) {
        uint64_t from = project(&out->space, c, &x->space), start[MAX_RANK];
        const ef_tensor *whole = &x->at[from];
        ef_tensor *part = &out->at[c];
        if (!offset_within(m, out, c, x, from, start))
            return NULL;
        if (same_extents(whole, part))
            part->data = whole->data;
        else if (!new_data(m, part))
            return NULL;
        else if (!copy_part(whole, part, start, INTO_PART)) {
            stop(m, "a tile lies outside of its block");
            return NULL;
        }
    }
    return out;
}

static value *eval_view(machine *m, const node *n)
{
    return each_leaf(m, n->attr, n->type, n->x[0], view_leaf);
}

static value *combine_leaf(machine *m, uint64_t attr, ef_type type, const value *x)
{
    (void)attr;
    value *out = new_leaf(m, type, true);
    uint64_t copied = 0, wanted = 0;
    if (!out || !space_within(m, &out->space, &x->space))
        return NULL;
    for (uint64_t c = 0; c < x->space.total; c++) {
        uint64_t to = project(&x->space, c, &out->space), start[MAX_RANK];
        if (!offset_within(m, x, c, out, to, start))
            return NULL;
        if (!copy_part(&out->at[to], &x->at[c], start, INTO_WHOLE)) {
            stop(m, "a tile lies outside of its block");
            return NULL;
        }
        copied += volume(&x->at[c]);
    }
    for (uint64_t c = 0; c < out->space.total; c++)
        wanted += volume(&out->at[c]);
    for (unsigned i = 0; i < x->space.count;
         i++) /* a field that is replicated where another one is cut is copied often */
        if (!ef_type_place(out->type, x->space.axis[i]) &&
            ef_type_place(x->type, x->space.axis[i])->kind == EF_REPLICATE)
            wanted *= x->space.extent[i];
    if (copied != wanted) {
        stop(m, "the tiles do not make up the tensor");
        return NULL;
    }
    return out;
}

static value *eval_combine(machine *m, const node *n)
{
    return each_leaf(m, n->attr, n->type, n->x[0], combine_leaf);
}

static value *collect_leaf(machine *m, uint64_t attr, ef_type type, const value *x)
{
    const ef_type_info *info = ef_type_at(m->ctx, type);
    unsigned p = space_find(&x->space, (ef_axis)attr);
    if (p == x->space.count || info->rank != x->type->rank + 1) {
        stop(m, "the collected axis is not in scope");
        return NULL;
    }
    uint64_t extent = x->space.extent[p];
    if (!note_count(m, info->dim[info->rank - 1], extent))
        return NULL;
    value *out = new_leaf(m, type, true);
    if (!out || !space_within(m, &out->space, &x->space))
        return NULL;
    for (uint64_t c = 0; c < out->space.total * extent; c++) {
        const ef_tensor *part = &x->at[insert_digit(&x->space, p, c / extent, c % extent)];
        ef_tensor *whole = &out->at[c / extent];
        uint64_t size = volume(part);
        if (whole->extent[0] != extent ||
            memcmp(whole->extent + 1, part->extent, part->rank * sizeof *part->extent) != 0) {
            stop(m, "the extents of the collected values differ");
            return NULL;
        }
        memcpy(whole->data + c % extent * size, part->data, size * sizeof *part->data);
    }
    return out;
}

static value *eval_collect(machine *m, const node *n)
{
    return each_leaf(m, n->attr, n->type, n->x[0], collect_leaf);
}

/* ---- evaluation ---- */

/* Operators without a row are pointwise. */
static value *(*const handlers[EF_OP_COUNT])(machine *, const node *) = {
    [EF_INPUT] = eval_input,         [EF_CONST] = eval_const,
    [EF_IOTA] = eval_iota,           [EF_MATMUL] = eval_matmul,
    [EF_TILE_MATMUL] = eval_matmul,  [EF_REDUCE] = eval_reduce,
    [EF_REDUCE_P] = eval_reduce_p,   [EF_RESHAPE] = eval_reshape,
    [EF_TRANSPOSE] = eval_transpose, [EF_SLICE] = eval_slice,
    [EF_CONCAT] = eval_concat,       [EF_BROADCAST] = eval_broadcast,
    [EF_TUPLE] = eval_tuple,         [EF_GET] = eval_get,
    [EF_VIEW] = eval_view,           [EF_COMBINE] = eval_combine,
    [EF_COLLECT] = eval_collect,
};

static value *eval_node(machine *m, ef_expr e, value **values)
{
    const ef_expr *children;
    m->now = e;
    node n = {.op = ef_dag_op(m->dag, e), .attr = ef_dag_attr(m->dag, e), .type = ef_dag_type(m->dag, e)};
    n.count = ef_dag_children(m->dag, e, &children);
    n.x = ef_arena_alloc(m->arena, n.count * sizeof *n.x);
    for (unsigned i = 0; i < n.count; i++)
        n.x[i] = values[children[i]];
    return handlers[n.op] ? handlers[n.op](m, &n) : eval_pointwise(m, &n);
}

/* Marks what the roots need; children have smaller ids, so one pass downwards reaches all. */
static void mark(const ef_dag *dag, const ef_expr *roots, unsigned count, bool *needed, ef_expr top)
{
    for (unsigned r = 0; r < count; r++)
        needed[roots[r]] = true;
    for (ef_expr e = top; e-- > 0;) {
        const ef_expr *children;
        for (unsigned i = 0, n = needed[e] ? ef_dag_children(dag, e, &children) : 0; i < n; i++)
            needed[children[i]] = true;
    }
}

/* ---- roots ---- */

typedef EF_VEC(const value *) leaf_list;

static bool list_leaves(machine *m, const value *x, leaf_list *list)
{
    if (!charge(m, 1)) /* nested tuples may share fields and so have far more leaves than nodes */
        return false;
    if (!x->type->is_tuple)
        ef_vec_push(list, x);
    for (unsigned i = 0; i < x->type->fields; i++)
        if (!list_leaves(m, x->field[i], list))
            return false;
    return true;
}

/* Adds the axes that are not there yet, in order. */
static bool space_join(machine *m, space *all, const space *more)
{
    for (unsigned i = 0; i < more->count; i++) {
        unsigned at = space_find(all, more->axis[i]);
        if (at < all->count)
            continue;
        if (all->count == EF_MAX_PLACES)
            return stop(m, "too many axes in scope");
        for (at = all->count++; at > 0 && all->axis[at - 1] > more->axis[i]; at--) {
            all->axis[at] = all->axis[at - 1];
            all->extent[at] = all->extent[at - 1];
        }
        all->axis[at] = more->axis[i];
        all->extent[at] = more->extent[i];
        all->total = times(all->total, more->extent[i]);
    }
    return true;
}

/* Lists the tensors of a root: coordinates of all axes outermost, leaves innermost. */
static bool list_root(machine *m, const value *x, leaf_list *leaves, root_list *out)
{
    space all = {.total = 1};
    leaves->count = 0;
    if (!list_leaves(m, x, leaves))
        return false;
    for (uint32_t l = 0; l < leaves->count; l++)
        if (!space_join(m, &all, &leaves->at[l]->space))
            return false;
    uint64_t total = times(all.total, leaves->count);
    if (!charge(m, total))
        return false;
    if (total > UINT32_MAX)
        return stop(m, "a result has too many tensors");
    out->count = (uint32_t)total;
    out->at = ef_arena_alloc(m->arena, total * sizeof *out->at);
    for (uint32_t l = 0; l < leaves->count; l++) {
        const value *leaf = leaves->at[l];
        if (!space_within(m, &leaf->space, &all))
            return false;
        for (uint64_t c = 0; c < all.total; c++)
            out->at[c * leaves->count + l] = &leaf->at[project(&all, c, &leaf->space)];
    }
    return true;
}

/* ---- the interface ---- */

static bool evaluate(machine *m, const ef_expr *roots, unsigned count, bool *needed, value **values, ef_expr top,
                     root_list *lists)
{
    mark(m->dag, roots, count, needed, top);
    for (ef_expr e = 0; e < top; e++)
        if (needed[e] && !(values[e] = eval_node(m, e, values)))
            return false;
    leaf_list leaves = {0};
    bool ok = true;
    for (unsigned r = 0; ok && r < count; r++) {
        m->now = roots[r];
        ok = list_root(m, values[roots[r]], &leaves, &lists[r]);
    }
    ef_vec_free(&leaves);
    return ok;
}

ef_evaluation *ef_evaluate(const ef_dag *dag, const ef_expr *roots, unsigned count, const ef_tiling *tiling,
                           ef_input_fn inputs, void *user, uint64_t limit, ef_diag *diag)
{
    ef_expr top = 0;
    for (unsigned r = 0; r < count; r++) {
        if (roots[r] >= ef_dag_count(dag)) {
            ef_fail(diag, "cannot evaluate: there is no node %u", roots[r]);
            return NULL;
        }
        top = roots[r] + 1 > top ? roots[r] + 1 : top;
    }
    machine m = {.dag = dag,
                 .ctx = ef_dag_ctx(dag),
                 .tiling = tiling,
                 .arena = ef_arena_new(),
                 .inputs = inputs,
                 .user = user,
                 .limit = limit ? least(limit, MAX_LIMIT) : DEFAULT_LIMIT,
                 .diag = diag};
    ef_evaluation *result = ef_xcalloc(1, sizeof *result);
    result->arena = m.arena;
    result->roots = count;
    result->root = ef_arena_alloc(m.arena, count * sizeof *result->root);
    bool *needed = ef_xcalloc(top, sizeof *needed);
    value **values = ef_xcalloc(top, sizeof *values);
    bool ok = evaluate(&m, roots, count, needed, values, top, result->root);
    free(needed);
    free(values);
    ef_vec_free(&m.counts);
    if (ok)
        return result;
    ef_evaluation_free(result);
    return NULL;
}

void ef_evaluation_free(ef_evaluation *evaluation)
{
    if (!evaluation)
        return;
    ef_arena_free(evaluation->arena);
    free(evaluation);
}

uint32_t ef_evaluation_count(const ef_evaluation *evaluation, unsigned root)
{
    return evaluation->root[root].count;
}

const ef_tensor *ef_evaluation_at(const ef_evaluation *evaluation, unsigned root, uint32_t which)
{
    return evaluation->root[root].at[which];
}

/* The difference of two elements; 0 when both are NaN or the same infinity, infinity when one alone is not finite. */
static double element_difference(double a, double b)
{
    if (a == b || (isnan(a) && isnan(b)))
        return 0;
    return isfinite(a) && isfinite(b) ? fabs(a - b) : INFINITY;
}

double ef_evaluation_difference(const ef_evaluation *a, unsigned root_a, const ef_evaluation *b, unsigned root_b,
                                double floor)
{
    uint32_t count = ef_evaluation_count(a, root_a);
    double largest = 0, scale = 0;
    if (count != ef_evaluation_count(b, root_b))
        return INFINITY;
    for (uint32_t i = 0; i < count; i++) {
        const ef_tensor *x = ef_evaluation_at(a, root_a, i), *y = ef_evaluation_at(b, root_b, i);
        if (!same_extents(x, y))
            return INFINITY;
        for (uint64_t e = 0, n = volume(x); e < n; e++) {
            largest = fmax(largest, element_difference(x->data[e], y->data[e]));
            if (isfinite(y->data[e]))
                scale = fmax(scale, fabs(y->data[e]));
        }
    }
    return largest == 0 ? 0 : largest / (floor + scale);
}
