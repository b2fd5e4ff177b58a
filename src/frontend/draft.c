/* Drafts: builders. See draft.h. */
#include "frontend/draft.h"

#include <string.h>

#include "ir/expr.h"
#include "ir/reducer.h"

ef_draft *ef_draft_new(void)
{
    ef_draft *d = ef_xcalloc(1, sizeof *d);
    d->slots = ef_slots_new();
    return d;
}

void ef_draft_free(ef_draft *d)
{
    if (!d)
        return;
    ef_slots_free(d->slots);
    ef_vec_free(&d->nodes);
    free(d);
}

static const ef_dnode *at(const ef_draft *d, ef_dn node)
{
    return &d->nodes.at[node];
}

uint64_t ef_dn_size(const ef_draft *d, ef_dn node, unsigned index)
{
    return index < at(d, node)->rank ? ef_slot_size(d->slots, at(d, node)->dim[index]) : 1;
}

uint64_t ef_dn_elements(const ef_draft *d, ef_dn node)
{
    uint64_t n = 1;
    for (unsigned i = 0; i < at(d, node)->rank; i++)
        n *= ef_dn_size(d, node, i);
    return n;
}

/* ---- adding nodes ---- */

static bool fits(const ef_draft *d, const ef_dnode *node)
{
    uint64_t elements = 1;
    for (unsigned i = 0; i < node->rank; i++) {
        uint64_t size = ef_slot_size(d->slots, node->dim[i]);
        if (size > EF_MAX_EXTENT / elements)
            return false;
        elements *= size;
    }
    return true;
}

static ef_dn push(ef_draft *d, const ef_dnode *node)
{
    if (!fits(d, node))
        return EF_NONE;
    ef_slot_together(d->slots, node->dim, node->rank);
    ef_vec_push(&d->nodes, *node);
    return d->nodes.count - 1;
}

static bool sizes_fit(const int64_t *size, unsigned rank)
{
    bool good = rank <= EF_MAX_RANK;
    for (unsigned i = 0; good && i < rank; i++)
        good = size[i] > 0 && (uint64_t)size[i] <= EF_MAX_EXTENT;
    return good;
}

static void fresh_dims(ef_draft *d, ef_dnode *node, const int64_t *size, unsigned rank)
{
    node->rank = (uint8_t)rank;
    for (unsigned i = 0; i < rank; i++)
        node->dim[rank - 1 - i] = ef_slot_new(d->slots, (uint64_t)size[i]);
}

/* A node with x's shape, type and nature, and x for its operand. */
static ef_dnode over(const ef_draft *d, ef_op op, ef_dn x)
{
    ef_dnode node = *at(d, x);
    node.op = (uint8_t)op;
    node.attr = 0;
    node.count = 1;
    memset(node.child, 0, sizeof node.child);
    node.child[0] = x;
    return node;
}

ef_dn ef_dn_input(ef_draft *d, uint64_t number, ef_dtype dtype, const int64_t *size, unsigned rank)
{
    ef_dnode node = {.op = EF_INPUT, .dtype = (uint8_t)dtype, .attr = number};
    if (!sizes_fit(size, rank))
        return EF_NONE;
    fresh_dims(d, &node, size, rank);
    return push(d, &node);
}

ef_dn ef_dn_number(ef_draft *d, double value)
{
    ef_dnode node = {.op = EF_CONST, .dtype = EF_NUM, .made = true, .uniform = true, .number = value};
    node.attr = ef_attr_number(value);
    return push(d, &node);
}

ef_dn ef_dn_iota(ef_draft *d, uint64_t size)
{
    ef_dnode node = {.op = EF_IOTA, .dtype = EF_I64, .rank = 1, .made = true};
    node.dim[0] = ef_slot_new(d->slots, size);
    return push(d, &node);
}

ef_dn ef_dn_full(ef_draft *d, double value, ef_dtype dtype, const int64_t *size, unsigned rank)
{
    ef_dn number = ef_dn_number(d, value);
    return ef_dn_exact_cast(d, dtype, rank ? ef_dn_broadcast(d, number, size, rank) : number);
}

/* ---- other dimension names ---- */

/* x with every dimension that is `from` being `to`, built anew down to the numbers and iotas. */
static ef_dn rebuild(ef_draft *d, ef_dn x, ef_slot from, ef_slot to)
{
    ef_dnode node = *at(d, x);
    bool changed = false;
    for (unsigned i = 0; i < node.count; i++) {
        ef_dn child = rebuild(d, node.child[i], from, to);
        changed = changed || child != node.child[i];
        node.child[i] = child;
    }
    for (unsigned i = 0; i < node.rank; i++)
        if (ef_slot_equal(d->slots, node.dim[i], from)) {
            node.dim[i] = to;
            changed = true;
        }
    return changed ? push(d, &node) : x;
}

/* x under other dimensions of the same sizes, index by index. */
static ef_dn renamed(ef_draft *d, ef_dn x, const ef_slot *dim)
{
    bool equal = true;
    for (unsigned i = 0; x != EF_NONE && at(d, x)->made && i < at(d, x)->rank; i++)
        if (!ef_slot_equal(d->slots, at(d, x)->dim[i], dim[i]))
            x = rebuild(d, x, at(d, x)->dim[i], dim[i]);
    for (unsigned i = 0; x != EF_NONE && i < at(d, x)->rank; i++)
        equal = equal && ef_slot_equal(d->slots, at(d, x)->dim[i], dim[i]);
    if (x == EF_NONE || equal)
        return x;
    ef_dnode node = over(d, EF_RESHAPE, x);
    memcpy(node.dim, dim, node.rank * sizeof *dim);
    return push(d, &node);
}

/* ---- pointwise ---- */

typedef struct {
    unsigned rank;
    ef_slot dim[EF_MAX_RANK];
    bool made[EF_MAX_RANK]; /* nothing but what is made of numbers and iota has the dimension */
} meeting;

/* How much an operand's names count: those of large tensors that are not made of numbers stay. */
static unsigned weight(const ef_draft *d, ef_dn x)
{
    unsigned dims = 0;
    for (unsigned i = 0; i < at(d, x)->rank; i++)
        dims += at(d, x)->dim[i] != EF_SLOT_UNIT;
    return at(d, x)->made ? 0 : 1 + dims;
}

/* Unifies the dimensions of operands that broadcast against each other, from index `first` on. Where that fails the
 * most weighty operand's dimension is the meeting's. */
static bool meet(ef_draft *d, const ef_dn *x, unsigned count, unsigned first, meeting *m)
{
    for (unsigned i = first; i < EF_MAX_RANK; i++) {
        ef_dn lead = EF_NONE;
        m->dim[i] = EF_SLOT_UNIT;
        m->made[i] = true;
        for (unsigned k = 0; k < count; k++) {
            if (i >= at(d, x[k])->rank || at(d, x[k])->dim[i] == EF_SLOT_UNIT)
                continue;
            if (lead == EF_NONE || weight(d, x[k]) > weight(d, lead))
                lead = x[k];
            m->made[i] = m->made[i] && at(d, x[k])->made;
        }
        for (unsigned k = 0; lead != EF_NONE && k < count; k++) {
            ef_slot lead_dim = m->dim[i] = at(d, lead)->dim[i];
            ef_slot dim = i < at(d, x[k])->rank ? at(d, x[k])->dim[i] : EF_SLOT_UNIT;
            if (dim != EF_SLOT_UNIT && ef_slot_size(d->slots, dim) != ef_slot_size(d->slots, lead_dim))
                return false;
            if (dim != EF_SLOT_UNIT && !ef_slot_unify(d->slots, lead_dim, dim))
                ef_slot_tie(d->slots, lead_dim, dim);
        }
    }
    for (unsigned k = 0; k < count; k++)
        m->rank = m->rank > at(d, x[k])->rank ? m->rank : at(d, x[k])->rank;
    return true;
}

/* Whether a dimension shares a variable with another one of the meeting, or with `also`. */
static bool meets(ef_draft *d, const meeting *m, unsigned index, ef_slot also)
{
    bool found = ef_slot_overlap(d->slots, m->dim[index], also);
    for (unsigned k = 0; k < m->rank && !found; k++)
        found = k != index && ef_slot_overlap(d->slots, m->dim[index], m->dim[k]);
    return found;
}

static void set_apart(ef_draft *d, meeting *m, unsigned index, ef_slot also)
{
    ef_slot dim = m->dim[index];
    if (m->made[index]) { /* positions that nobody else knows: rows and columns of a mask from one arange */
        m->dim[index] = ef_slot_new(d->slots, ef_slot_size(d->slots, dim));
        return;
    }
    for (unsigned which = 0; meets(d, m, index, also); which++)
        m->dim[index] = ef_slot_twin(d->slots, dim, which);
}

/* No two dimensions share a variable: where they would, what is made of numbers gets a new one, else the inner a twin.
 * Nor do they share one with what is contracted. */
static void keep_apart(ef_draft *d, meeting *m, ef_slot contracted)
{
    for (unsigned i = 0; i < m->rank; i++) {
        for (unsigned k = i + 1; k < m->rank; k++)
            if (ef_slot_overlap(d->slots, m->dim[i], m->dim[k]))
                set_apart(d, m, m->made[k] && !m->made[i] ? k : i, contracted);
        if (ef_slot_overlap(d->slots, m->dim[i], contracted))
            set_apart(d, m, i, contracted);
    }
}

/* An operand under the meeting's names. */
static ef_dn join_meeting(ef_draft *d, ef_dn x, const meeting *m)
{
    ef_slot dim[EF_MAX_RANK];
    for (unsigned i = 0; i < at(d, x)->rank; i++)
        dim[i] = at(d, x)->dim[i] == EF_SLOT_UNIT ? EF_SLOT_UNIT : m->dim[i];
    return renamed(d, x, dim);
}

/* A tensor of one number is that number where the others have its dimensions anyway. */
static void use_numbers(ef_draft *d, ef_op op, ef_dn *x, unsigned count)
{
    for (unsigned k = 0; k < count; k++) {
        const ef_dnode *node = at(d, x[k]);
        if (!node->uniform || node->op == EF_CONST || (node->dtype == EF_BOOL && op != EF_EQ && op != EF_NE))
            continue;
        bool spare = true;
        for (unsigned i = 0; i < node->rank && spare; i++) {
            bool other = false;
            for (unsigned j = 0; j < count; j++)
                if (j != k && at(d, x[j])->op != EF_CONST)
                    other = other || (i < at(d, x[j])->rank &&
                                      (node->dim[i] == EF_SLOT_UNIT || at(d, x[j])->dim[i] != EF_SLOT_UNIT));
            spare = other;
        }
        if (spare)
            x[k] = ef_dn_number(d, at(d, x[k])->number);
    }
}

/* An operand that is repeated only along dimensions that the others have anyway need not be. */
static void use_unrepeated(const ef_draft *d, ef_dn *x, unsigned count)
{
    for (unsigned k = 0; k < count; k++) {
        const ef_dnode *node = at(d, x[k]);
        const ef_dnode *before = node->op == EF_BROADCAST ? at(d, node->child[0]) : node;
        bool spare = before != node && before->op != EF_CONST;
        for (unsigned i = 0; spare && i < node->rank; i++) {
            bool repeated = i >= before->rank || (before->dim[i] == EF_SLOT_UNIT && node->dim[i] != EF_SLOT_UNIT);
            bool other = !repeated;
            for (unsigned j = 0; j < count && !other; j++)
                other = j != k && i < at(d, x[j])->rank &&
                        (node->dim[i] == EF_SLOT_UNIT || at(d, x[j])->dim[i] != EF_SLOT_UNIT);
            spare = other;
        }
        if (spare)
            x[k] = node->child[0];
    }
}

/* The number that a pointwise operator over numbers is, in its shape. */
static ef_dn folded(ef_draft *d, const ef_dnode *result)
{
    ef_dn number = ef_dn_number(d, result->number);
    if (number == EF_NONE || result->rank == 0)
        return ef_dn_exact_cast(d, (ef_dtype)result->dtype, number);
    ef_dnode node = over(d, EF_BROADCAST, number);
    node.rank = result->rank;
    memcpy(node.dim, result->dim, sizeof node.dim);
    return ef_dn_exact_cast(d, (ef_dtype)result->dtype, push(d, &node));
}

static ef_dn pointwise(ef_draft *d, ef_op op, uint64_t attr, const ef_dn *operands, unsigned count)
{
    ef_dnode node = {.op = (uint8_t)op, .count = (uint8_t)count, .attr = attr, .made = true, .uniform = true};
    meeting m = {0};
    ef_dtype dtype[3];
    double number[3];
    ef_dn x[3];
    for (unsigned i = 0; i < count; i++)
        if ((x[i] = operands[i]) == EF_NONE)
            return EF_NONE;
    for (unsigned i = 0; i < count; i++)
        dtype[i] = (ef_dtype)at(d, x[i])->dtype;
    if (count > 1) {
        use_numbers(d, op, x, count);
        use_unrepeated(d, x, count);
    }
    if (!meet(d, x, count, 0, &m))
        return EF_NONE;
    keep_apart(d, &m, EF_SLOT_UNIT);
    for (unsigned i = 0; i < count; i++) {
        if ((x[i] = join_meeting(d, x[i], &m)) == EF_NONE)
            return EF_NONE;
        const ef_dnode *in = at(d, x[i]);
        node.child[i] = x[i];
        node.made = node.made && in->made;
        node.uniform = node.uniform && in->uniform;
        number[i] = in->number;
        dtype[i] = (ef_dtype)in->dtype;
    }
    node.dtype = (uint8_t)ef_pointwise_dtype(op, attr, dtype, count);
    node.rank = (uint8_t)m.rank;
    memcpy(node.dim, m.dim, m.rank * sizeof *m.dim);
    node.number = node.uniform ? ef_op_apply(op, attr, number) : 0;
    return node.uniform && op != EF_CAST ? folded(d, &node) : push(d, &node);
}

ef_dn ef_dn_apply(ef_draft *d, ef_op op, uint64_t attr, const ef_dn *operands, unsigned count)
{
    return pointwise(d, op, attr, operands, count);
}

ef_dn ef_dn_unary(ef_draft *d, ef_op op, ef_dn x)
{
    return pointwise(d, op, 0, &x, 1);
}

static ef_dn under_casts(const ef_draft *d, ef_dn x)
{
    while (at(d, x)->op == EF_CAST)
        x = at(d, x)->child[0];
    return x;
}

/* A comparison of a choice between two numbers with a number is the condition itself, its opposite, or neither: what
 * people write with tril(ones) == 0 is the triangle. EF_NONE when x is no such choice. */
static ef_dn decided(ef_draft *d, ef_op op, ef_dn x, double number)
{
    x = under_casts(d, x);
    const ef_dnode *node = at(d, x);
    if (node->op != EF_SELECT || at(d, node->child[1])->op != EF_CONST || at(d, node->child[2])->op != EF_CONST)
        return EF_NONE;
    double yes[2] = {at(d, node->child[1])->number, number}, no[2] = {at(d, node->child[2])->number, number};
    bool if_yes = ef_op_apply(op, 0, yes) != 0, if_no = ef_op_apply(op, 0, no) != 0;
    if (if_yes == if_no)
        return EF_NONE;
    return if_yes ? node->child[0] : ef_dn_unary(d, EF_NOT, node->child[0]);
}

/* Whether op(x, number) is x. */
static bool is_identity(ef_op op, double number)
{
    return number == 0 ? op == EF_ADD || op == EF_SUB : number == 1 && (op == EF_MUL || op == EF_DIV);
}

/* Whether `other` has every dimension of x. */
static bool has_dims_of(const ef_draft *d, ef_dn other, ef_dn x)
{
    bool all = at(d, other)->rank >= at(d, x)->rank;
    for (unsigned i = 0; all && i < at(d, x)->rank; i++)
        all = at(d, x)->dim[i] == EF_SLOT_UNIT || at(d, other)->dim[i] != EF_SLOT_UNIT;
    return all;
}

/* "and true", "or false" */
static bool is_neutral(const ef_draft *d, ef_op op, ef_dn x, ef_dn other)
{
    return (op == EF_AND || op == EF_OR) && at(d, x)->uniform && at(d, x)->number == (op == EF_AND) &&
           has_dims_of(d, other, x);
}

ef_dn ef_dn_binary(ef_draft *d, ef_op op, ef_dn a, ef_dn b)
{
    ef_dn x[2] = {a, b};
    if (a != EF_NONE && b != EF_NONE && at(d, b)->op == EF_CONST && ef_dtype_is_float((ef_dtype)at(d, a)->dtype) &&
        is_identity(op, at(d, b)->number))
        return a;
    if (a != EF_NONE && b != EF_NONE && is_neutral(d, op, a, b))
        return b;
    if (a != EF_NONE && b != EF_NONE && is_neutral(d, op, b, a))
        return a;
    if (op >= EF_LT && op <= EF_NE && a != EF_NONE && b != EF_NONE && at(d, b)->op == EF_CONST) {
        ef_dn condition = decided(d, op, a, at(d, b)->number);
        if (condition != EF_NONE)
            return condition;
    }
    return pointwise(d, op, 0, x, 2);
}

ef_dn ef_dn_with(ef_draft *d, ef_op op, ef_dn a, double b)
{
    return ef_dn_binary(d, op, a, ef_dn_number(d, b));
}

ef_dn ef_dn_from(ef_draft *d, ef_op op, double a, ef_dn b)
{
    return ef_dn_binary(d, op, ef_dn_number(d, a), b);
}

ef_dn ef_dn_select(ef_draft *d, ef_dn condition, ef_dn a, ef_dn b)
{
    ef_dn x[3] = {condition, a, b};
    if (condition != EF_NONE && at(d, condition)->op == EF_NOT)
        return ef_dn_select(d, at(d, condition)->child[0], b, a);
    return pointwise(d, EF_SELECT, 0, x, 3);
}

ef_dn ef_dn_exact_cast(ef_draft *d, ef_dtype dtype, ef_dn x)
{
    if (x == EF_NONE || at(d, x)->dtype == dtype)
        return x;
    ef_dn condition = dtype == EF_BOOL ? decided(d, EF_NE, x, 0) : EF_NONE;
    if (condition != EF_NONE)
        return condition;
    return pointwise(d, EF_CAST, dtype, &x, 1);
}

static bool small_float(ef_dtype dtype)
{
    return dtype == EF_F16 || dtype == EF_BF16 || dtype == EF_F32;
}

ef_dn ef_dn_cast(ef_draft *d, ef_dtype dtype, ef_dn x)
{
    if (x != EF_NONE && at(d, x)->op == EF_CONST && ef_dtype_is_float(dtype))
        return x; /* a number takes the type of what it meets */
    if (x != EF_NONE && small_float(dtype) && small_float((ef_dtype)at(d, x)->dtype))
        return x;
    return ef_dn_exact_cast(d, dtype, x);
}

/* ---- contractions and reductions ---- */

/* Whether a reshape only merges what stands before the last two dimensions; *inside is then what it merges. */
static bool merges_batch(const ef_draft *d, ef_dn x, ef_dn *inside)
{
    const ef_dnode *out = at(d, x), *in = out->op == EF_RESHAPE ? at(d, out->child[0]) : out;
    *inside = out->child[0];
    return in != out && out->rank == 3 && in->rank > 3 && ef_dn_size(d, x, 0) == ef_dn_size(d, *inside, 0) &&
           ef_dn_size(d, x, 1) == ef_dn_size(d, *inside, 1);
}

/* Batched products of core ATen have one batch dimension, into which views merge several: it is those that the product
 * has. EF_NONE when it is no such product. */
static ef_dn matmul_of_batches(ef_draft *d, ef_dn a, ef_dn b)
{
    ef_dn in_a, in_b;
    if (!merges_batch(d, a, &in_a) || !merges_batch(d, b, &in_b) || at(d, in_a)->rank != at(d, in_b)->rank)
        return EF_NONE;
    for (unsigned i = 2; i < at(d, in_a)->rank; i++)
        if (ef_dn_size(d, in_a, i) != ef_dn_size(d, in_b, i))
            return EF_NONE;
    int64_t size[3] = {(int64_t)ef_dn_size(d, a, 2), (int64_t)ef_dn_size(d, a, 1), (int64_t)ef_dn_size(d, b, 0)};
    return ef_dn_reshape(d, ef_dn_matmul(d, in_a, in_b), size, 3);
}

ef_dn ef_dn_matmul(ef_draft *d, ef_dn a, ef_dn b)
{
    meeting m = {0};
    if (a == EF_NONE || b == EF_NONE || at(d, a)->rank < 2 || at(d, b)->rank < 2 ||
        ef_dn_size(d, a, 0) != ef_dn_size(d, b, 1))
        return EF_NONE;
    ef_dn batches = matmul_of_batches(d, a, b);
    if (batches != EF_NONE)
        return batches;
    ef_dn x[2] = {a, b};
    bool inner = ef_slot_unify(d->slots, at(d, a)->dim[0], at(d, b)->dim[1]);
    if (!inner)
        ef_slot_tie(d->slots, at(d, a)->dim[0], at(d, b)->dim[1]);
    ef_slot k = inner || !at(d, a)->made ? at(d, a)->dim[0] : at(d, b)->dim[1];
    if (!meet(d, x, 2, 2, &m))
        return EF_NONE;
    m.dim[1] = at(d, a)->dim[1];
    m.dim[0] = at(d, b)->dim[0];
    m.made[1] = at(d, a)->made;
    m.made[0] = at(d, b)->made;
    keep_apart(d, &m, k);
    ef_slot da[EF_MAX_RANK], db[EF_MAX_RANK];
    for (unsigned i = 0; i < EF_MAX_RANK; i++) {
        da[i] = i == 0 ? k : i < at(d, a)->rank && at(d, a)->dim[i] != EF_SLOT_UNIT ? m.dim[i] : EF_SLOT_UNIT;
        db[i] = i == 1 ? k : i < at(d, b)->rank && at(d, b)->dim[i] != EF_SLOT_UNIT ? m.dim[i] : EF_SLOT_UNIT;
    }
    a = renamed(d, a, da);
    b = renamed(d, b, db);
    if (a == EF_NONE || b == EF_NONE)
        return EF_NONE;
    ef_dnode node = {.op = EF_MATMUL, .count = 2, .rank = (uint8_t)m.rank};
    node.child[0] = a;
    node.child[1] = b;
    node.dtype = (uint8_t)ef_dtype_join((ef_dtype)at(d, a)->dtype, (ef_dtype)at(d, b)->dtype);
    memcpy(node.dim, m.dim, m.rank * sizeof *m.dim);
    return push(d, &node);
}

ef_dn ef_dn_reduce(ef_draft *d, uint32_t reducer, unsigned index, ef_dn x)
{
    if (x == EF_NONE || index >= at(d, x)->rank)
        return EF_NONE;
    ef_dn parts = ef_dn_reduce_parts(d, reducer, index, x);
    if (parts != EF_NONE)
        return parts;
    ef_dnode node = over(d, EF_REDUCE, x);
    node.attr = ef_attr_reduce(reducer, index);
    node.made = node.uniform = false;
    node.dim[index] = EF_SLOT_UNIT;
    return push(d, &node);
}

/* ---- shapes ---- */

static bool same_sizes(const ef_draft *d, ef_dn x, const int64_t *size, unsigned rank)
{
    bool same = at(d, x)->rank == rank;
    for (unsigned i = 0; same && i < rank; i++)
        same = ef_dn_size(d, x, rank - 1 - i) == (uint64_t)size[i];
    return same;
}

static bool is_rename(const ef_draft *d, ef_dn reshape)
{
    const ef_dnode *out = at(d, reshape), *in = at(d, out->child[0]);
    bool same = out->rank == in->rank;
    for (unsigned i = 0; same && i < in->rank; i++)
        same = ef_slot_size(d->slots, out->dim[i]) == ef_slot_size(d->slots, in->dim[i]);
    return same;
}

ef_dn ef_dn_reshape(ef_draft *d, ef_dn x, const int64_t *size, unsigned rank)
{
    ef_slot in[EF_MAX_RANK], out[EF_MAX_RANK];
    uint64_t wanted[EF_MAX_RANK], elements = 1;
    if (x == EF_NONE || !sizes_fit(size, rank))
        return EF_NONE;
    if (same_sizes(d, x, size, rank))
        return x;
    for (unsigned i = 0; i < rank; i++) {
        wanted[i] = (uint64_t)size[i];
        if (wanted[i] > EF_MAX_EXTENT / elements)
            return EF_NONE;
        elements *= wanted[i];
    }
    if (elements != ef_dn_elements(d, x))
        return EF_NONE;
    if (at(d, x)->op == EF_RESHAPE && !is_rename(d, x)) {
        x = at(d, x)->child[0];
        if (same_sizes(d, x, size, rank))
            return x;
    }
    ef_dnode node = over(d, EF_RESHAPE, x);
    for (unsigned i = 0; i < node.rank; i++)
        in[i] = node.dim[node.rank - 1 - i];
    ef_slot_reshape(d->slots, in, node.rank, wanted, rank, out);
    memset(node.dim, 0, sizeof node.dim);
    node.rank = (uint8_t)rank;
    for (unsigned i = 0; i < rank; i++)
        node.dim[i] = out[rank - 1 - i];
    return push(d, &node);
}

ef_dn ef_dn_permute(ef_draft *d, ef_dn x, const unsigned *from)
{
    bool identity = true;
    if (x == EF_NONE)
        return EF_NONE;
    unsigned rank = at(d, x)->rank;
    bool twice = at(d, x)->op == EF_TRANSPOSE;
    uint64_t before = at(d, x)->attr;
    x = twice ? at(d, x)->child[0] : x;
    ef_dnode node = over(d, EF_TRANSPOSE, x);
    for (unsigned i = 0; i < rank; i++) {
        unsigned to = rank - 1 - i, take = twice ? ef_perm_at(before, rank - 1 - from[i]) : rank - 1 - from[i];
        identity = identity && take == to;
        node.dim[to] = at(d, x)->dim[take];
        node.attr |= (uint64_t)take << 4 * to;
    }
    return identity ? x : push(d, &node);
}

ef_dn ef_dn_swap(ef_draft *d, ef_dn x, unsigned a, unsigned b)
{
    unsigned from[EF_MAX_RANK];
    if (x == EF_NONE)
        return EF_NONE;
    unsigned rank = at(d, x)->rank;
    for (unsigned i = 0; i < rank; i++)
        from[i] = i;
    from[rank - 1 - a] = rank - 1 - b;
    from[rank - 1 - b] = rank - 1 - a;
    return ef_dn_permute(d, x, from);
}

ef_dn ef_dn_slice(ef_draft *d, ef_dn x, unsigned index, uint64_t start, uint64_t stop)
{
    if (x == EF_NONE || start >= stop || stop > ef_dn_size(d, x, index) || stop > EF_SLICE_LIMIT)
        return EF_NONE;
    if (stop - start == ef_dn_size(d, x, index))
        return x;
    ef_dn part = ef_dn_part(d, x, index, start, stop);
    if (part != EF_NONE)
        return part;
    ef_dnode node = over(d, EF_SLICE, x);
    node.attr = ef_attr_slice(index, start, stop);
    node.dim[index] = ef_slot_new(d->slots, stop - start);
    return push(d, &node);
}

/* Up to eight operands. */
static ef_dn concat_few(ef_draft *d, unsigned index, const ef_dn *x, unsigned count)
{
    meeting m = {0};
    uint64_t size = 0;
    if (count == 1)
        return x[0];
    ef_dnode node = over(d, EF_CONCAT, x[0]);
    node.uniform = false;
    node.attr = index;
    node.count = (uint8_t)count;
    for (unsigned i = 0; i < node.rank; i++) {
        m.dim[i] = at(d, x[0])->dim[i];
        for (unsigned k = 1; k < count && i != index; k++)
            if (!ef_slot_unify(d->slots, m.dim[i], at(d, x[k])->dim[i]))
                ef_slot_tie(d->slots, m.dim[i], at(d, x[k])->dim[i]);
    }
    for (unsigned k = 0; k < count; k++) {
        m.dim[index] = at(d, x[k])->dim[index];
        if ((node.child[k] = join_meeting(d, x[k], &m)) == EF_NONE)
            return EF_NONE;
        size += ef_slot_size(d->slots, m.dim[index]);
        node.made = node.made && at(d, x[k])->made;
        node.dtype = (uint8_t)ef_dtype_join((ef_dtype)node.dtype, (ef_dtype)at(d, x[k])->dtype);
    }
    node.dim[index] = ef_slot_new(d->slots, size);
    return push(d, &node);
}

ef_dn ef_dn_concat(ef_draft *d, unsigned index, const ef_dn *x, unsigned count)
{
    ef_dn group[EF_MAX_FIELDS];
    unsigned n = 0;
    for (unsigned i = 0; i < count; i++) {
        bool good = x[i] != EF_NONE && index < at(d, x[i])->rank && at(d, x[i])->rank == at(d, x[0])->rank;
        for (unsigned k = 0; good && k < at(d, x[i])->rank; k++)
            good = k == index || ef_dn_size(d, x[i], k) == ef_dn_size(d, x[0], k);
        if (!good)
            return EF_NONE;
    }
    if (count == 0)
        return EF_NONE;
    for (unsigned i = 0; i < count; i++) { /* what is full becomes the first of the next group */
        if (n == EF_MAX_FIELDS) {
            if ((group[0] = concat_few(d, index, group, n)) == EF_NONE)
                return EF_NONE;
            n = 1;
        }
        group[n++] = x[i];
    }
    return concat_few(d, index, group, n);
}

ef_dn ef_dn_broadcast(ef_draft *d, ef_dn x, const int64_t *size, unsigned rank)
{
    if (x == EF_NONE || !sizes_fit(size, rank) || rank < at(d, x)->rank)
        return EF_NONE;
    if (same_sizes(d, x, size, rank))
        return x;
    ef_dnode node = over(d, EF_BROADCAST, x);
    for (unsigned i = 0; i < rank; i++) {
        uint64_t wanted = (uint64_t)size[rank - 1 - i];
        if (i < node.rank && node.dim[i] != EF_SLOT_UNIT && ef_slot_size(d->slots, node.dim[i]) != wanted)
            return EF_NONE;
        if (i >= node.rank || node.dim[i] == EF_SLOT_UNIT)
            node.dim[i] = ef_slot_new(d->slots, wanted);
    }
    node.rank = (uint8_t)rank;
    return push(d, &node);
}
