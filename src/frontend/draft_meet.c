/* Drafts: operators whose operands meet, dimension by dimension: pointwise ones, products, concatenations. Here slots
 * are unified, and operands renamed where that cannot be. See draft.h. */
#include <string.h>

#include "frontend/draft.h"
#include "frontend/draft_build.h"
#include "ir/expr.h"

#define REBUILT 1000u /* nodes, for another name of what is made of numbers */

/* ---- other dimension names ---- */

/* x with every dimension that is `from` being `to`, built anew down to the numbers and iotas; EF_NONE when it is made
 * of more than the budget. */
static ef_dn rebuild(ef_draft *d, ef_dn x, ef_slot from, ef_slot to, unsigned *budget)
{
    ef_dnode node = *ef_dn_at(d, x);
    bool changed = false;
    if (*budget == 0)
        return EF_NONE;
    --*budget;
    for (unsigned i = 0; i < node.count; i++) {
        ef_dn child = rebuild(d, node.child[i], from, to, budget);
        if (child == EF_NONE)
            return EF_NONE;
        changed = changed || child != node.child[i];
        node.child[i] = child;
    }
    for (unsigned i = 0; i < node.rank; i++)
        if (ef_slot_equal(d->slots, node.dim[i], from)) {
            node.dim[i] = to;
            changed = true;
        }
    return changed ? ef_dn_push(d, &node) : x;
}

/* x under other dimensions of the same sizes, index by index. */
static ef_dn renamed(ef_draft *d, ef_dn x, const ef_slot *dim)
{
    bool equal = true;
    for (unsigned i = 0; ef_dn_at(d, x)->made && i < ef_dn_at(d, x)->rank; i++) {
        unsigned budget = REBUILT;
        ef_slot old = ef_dn_at(d, x)->dim[i];
        ef_dn again = ef_slot_equal(d->slots, old, dim[i]) ? x : rebuild(d, x, old, dim[i], &budget);
        x = again == EF_NONE ? x : again;
    }
    for (unsigned i = 0; i < ef_dn_at(d, x)->rank; i++)
        equal = equal && ef_slot_equal(d->slots, ef_dn_at(d, x)->dim[i], dim[i]);
    if (equal)
        return x;
    ef_dnode node = ef_dn_over(d, EF_RESHAPE, x);
    memcpy(node.dim, dim, node.rank * sizeof *dim);
    return ef_dn_push(d, &node);
}

/* ---- meetings ---- */

typedef struct {
    unsigned rank;
    ef_slot dim[EF_MAX_RANK];
    bool made[EF_MAX_RANK]; /* nothing but what is made of numbers and iota has the dimension */
} meeting;

/* How much an operand's names count: those of large tensors that are not made of numbers stay. */
static unsigned weight(const ef_draft *d, ef_dn x)
{
    unsigned dims = 0;
    for (unsigned i = 0; i < ef_dn_at(d, x)->rank; i++)
        dims += ef_dn_at(d, x)->dim[i] != EF_SLOT_UNIT;
    return ef_dn_at(d, x)->made ? 0 : 1 + dims;
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
            if (i >= ef_dn_at(d, x[k])->rank || ef_dn_at(d, x[k])->dim[i] == EF_SLOT_UNIT)
                continue;
            if (lead == EF_NONE || weight(d, x[k]) > weight(d, lead))
                lead = x[k];
            m->made[i] = m->made[i] && ef_dn_at(d, x[k])->made;
        }
        for (unsigned k = 0; lead != EF_NONE && k < count; k++) {
            ef_slot lead_dim = m->dim[i] = ef_dn_at(d, lead)->dim[i];
            ef_slot dim = i < ef_dn_at(d, x[k])->rank ? ef_dn_at(d, x[k])->dim[i] : EF_SLOT_UNIT;
            if (dim != EF_SLOT_UNIT && ef_slot_size(d->slots, dim) != ef_slot_size(d->slots, lead_dim))
                return false;
            if (dim != EF_SLOT_UNIT && !ef_slot_unify(d->slots, lead_dim, dim))
                ef_slot_tie(d->slots, lead_dim, dim);
        }
    }
    for (unsigned k = 0; k < count; k++)
        m->rank = m->rank > ef_dn_at(d, x[k])->rank ? m->rank : ef_dn_at(d, x[k])->rank;
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
    ef_slot dim[EF_MAX_RANK] = {EF_SLOT_UNIT};
    for (unsigned i = 0; i < ef_dn_at(d, x)->rank; i++)
        dim[i] = ef_dn_at(d, x)->dim[i] == EF_SLOT_UNIT ? EF_SLOT_UNIT : m->dim[i];
    return renamed(d, x, dim);
}

/* ---- operators ---- */

ef_dn ef_dn_apply(ef_draft *d, ef_op op, uint64_t attr, const ef_dn *operands, unsigned count)
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
        dtype[i] = (ef_dtype)ef_dn_at(d, x[i])->dtype;
    if (count > 1) {
        ef_simple_operands(d, op, x, count);
    }
    if (!meet(d, x, count, 0, &m))
        return EF_NONE;
    keep_apart(d, &m, EF_SLOT_UNIT);
    for (unsigned i = 0; i < count; i++) {
        if ((x[i] = join_meeting(d, x[i], &m)) == EF_NONE)
            return EF_NONE;
        const ef_dnode *in = ef_dn_at(d, x[i]);
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
    return node.uniform && op != EF_CAST ? ef_simple_number(d, &node) : ef_dn_push(d, &node);
}

ef_dn ef_dn_matmul(ef_draft *d, ef_dn a, ef_dn b)
{
    meeting m = {0};
    if (a == EF_NONE || b == EF_NONE || ef_dn_at(d, a)->rank < 2 || ef_dn_at(d, b)->rank < 2 ||
        ef_dn_size(d, a, 0) != ef_dn_size(d, b, 1))
        return EF_NONE;
    ef_dn batches = ef_simple_matmul(d, a, b);
    if (batches != EF_NONE)
        return batches;
    ef_dn x[2] = {a, b};
    bool inner = ef_slot_unify(d->slots, ef_dn_at(d, a)->dim[0], ef_dn_at(d, b)->dim[1]);
    if (!inner)
        ef_slot_tie(d->slots, ef_dn_at(d, a)->dim[0], ef_dn_at(d, b)->dim[1]);
    ef_slot k = inner || !ef_dn_at(d, a)->made ? ef_dn_at(d, a)->dim[0] : ef_dn_at(d, b)->dim[1];
    if (!meet(d, x, 2, 2, &m))
        return EF_NONE;
    m.dim[1] = ef_dn_at(d, a)->dim[1];
    m.dim[0] = ef_dn_at(d, b)->dim[0];
    m.made[1] = ef_dn_at(d, a)->made;
    m.made[0] = ef_dn_at(d, b)->made;
    keep_apart(d, &m, k);
    ef_slot da[EF_MAX_RANK], db[EF_MAX_RANK];
    for (unsigned i = 0; i < EF_MAX_RANK; i++) {
        da[i] = i == 0                                                               ? k
                : i < ef_dn_at(d, a)->rank && ef_dn_at(d, a)->dim[i] != EF_SLOT_UNIT ? m.dim[i]
                                                                                     : EF_SLOT_UNIT;
        db[i] = i == 1                                                               ? k
                : i < ef_dn_at(d, b)->rank && ef_dn_at(d, b)->dim[i] != EF_SLOT_UNIT ? m.dim[i]
                                                                                     : EF_SLOT_UNIT;
    }
    a = renamed(d, a, da);
    b = renamed(d, b, db);
    if (a == EF_NONE || b == EF_NONE)
        return EF_NONE;
    ef_dnode node = {.op = EF_MATMUL, .count = 2, .rank = (uint8_t)m.rank};
    node.child[0] = a;
    node.child[1] = b;
    node.dtype = (uint8_t)ef_dtype_join((ef_dtype)ef_dn_at(d, a)->dtype, (ef_dtype)ef_dn_at(d, b)->dtype);
    memcpy(node.dim, m.dim, m.rank * sizeof *m.dim);
    return ef_dn_push(d, &node);
}

/* Up to eight operands. */
static ef_dn concat_few(ef_draft *d, unsigned index, const ef_dn *x, unsigned count)
{
    meeting m = {0};
    uint64_t size = 0;
    if (count == 1)
        return x[0];
    ef_dnode node = ef_dn_over(d, EF_CONCAT, x[0]);
    node.uniform = false;
    node.attr = index;
    node.count = (uint8_t)count;
    for (unsigned i = 0; i < node.rank; i++) {
        m.dim[i] = ef_dn_at(d, x[0])->dim[i];
        for (unsigned k = 1; k < count && i != index; k++)
            if (!ef_slot_unify(d->slots, m.dim[i], ef_dn_at(d, x[k])->dim[i]))
                ef_slot_tie(d->slots, m.dim[i], ef_dn_at(d, x[k])->dim[i]);
    }
    for (unsigned k = 0; k < count; k++) {
        m.dim[index] = ef_dn_at(d, x[k])->dim[index];
        if ((node.child[k] = join_meeting(d, x[k], &m)) == EF_NONE)
            return EF_NONE;
        size += ef_slot_size(d->slots, m.dim[index]);
        node.made = node.made && ef_dn_at(d, x[k])->made;
        node.dtype = (uint8_t)ef_dtype_join((ef_dtype)node.dtype, (ef_dtype)ef_dn_at(d, x[k])->dtype);
    }
    node.dim[index] = ef_slot_new(d->slots, size);
    return ef_dn_push(d, &node);
}

ef_dn ef_dn_concat(ef_draft *d, unsigned index, const ef_dn *x, unsigned count)
{
    ef_dn group[EF_MAX_FIELDS];
    unsigned n = 0;
    for (unsigned i = 0; i < count; i++) {
        bool good =
            x[i] != EF_NONE && index < ef_dn_at(d, x[i])->rank && ef_dn_at(d, x[i])->rank == ef_dn_at(d, x[0])->rank;
        for (unsigned k = 0; good && k < ef_dn_at(d, x[i])->rank; k++)
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
