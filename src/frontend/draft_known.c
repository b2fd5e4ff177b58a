/* What is known before anything runs: values made of numbers and iota alone, computed element by element.
 *
 * Mask code of models computes much that is the same everywhere (whether positions that count up by one ever start
 * again, for example), and gathers by positions that count up: the first is a number, the second no gather. Only
 * integers and truth values, whose arithmetic is exact, are looked at. */
#include <math.h>
#include <string.h>

#include "frontend/draft.h"

#define BUDGET (1u << 22) /* nodes to visit for one question */

typedef struct {
    const ef_draft *draft;
    uint32_t budget;
} reader;

/* From a place in the result, the last dimension first, to the place in operand k. */
static void place_in(const ef_draft *d, const ef_dnode *node, unsigned k, const uint64_t *at, uint64_t *place)
{
    ef_dn x = node->child[k];
    uint64_t flat = 0;
    memset(place, 0, EF_MAX_RANK * sizeof *place);
    if (node->op == EF_RESHAPE) {
        for (unsigned i = node->rank; i-- > 0;)
            flat = flat * ef_slot_size(d->slots, node->dim[i]) + at[i];
        for (unsigned i = 0; i < d->nodes.at[x].rank; i++) {
            place[i] = flat % ef_dn_size(d, x, i);
            flat /= ef_dn_size(d, x, i);
        }
        return;
    }
    for (unsigned i = 0; i < node->rank; i++) {
        unsigned to = node->op == EF_TRANSPOSE ? ef_perm_at(node->attr, i) : i;
        uint64_t shift = node->op == EF_SLICE && i == ef_slice_index(node->attr) ? ef_slice_start(node->attr) : 0;
        place[to] = ef_dn_size(d, x, to) == 1 ? 0 : at[i] + shift;
    }
}

/* The element at a place; NaN once the budget is spent. */
static double read(reader *r, ef_dn x, const uint64_t *at)
{
    const ef_dnode *node = &r->draft->nodes.at[x];
    uint64_t place[EF_MAX_RANK];
    double operand[EF_MAX_FIELDS] = {0};
    unsigned part = 0;
    if (node->op == EF_CONST)
        return node->number;
    if (node->op == EF_IOTA)
        return (double)at[0];
    if (r->budget == 0)
        return NAN;
    r->budget--;
    if (node->op == EF_CONCAT) {
        memcpy(place, at, sizeof place);
        for (; place[node->attr] >= ef_dn_size(r->draft, node->child[part], (unsigned)node->attr); part++)
            place[node->attr] -= ef_dn_size(r->draft, node->child[part], (unsigned)node->attr);
        return read(r, node->child[part], place);
    }
    for (unsigned k = 0; k < node->count; k++) {
        place_in(r->draft, node, k, at, place);
        operand[k] = read(r, node->child[k], place);
    }
    return ef_op_pointwise((ef_op)node->op) ? ef_op_apply((ef_op)node->op, node->attr, operand) : operand[0];
}

/* The next place of a tensor; false after the last. */
static bool next(const ef_draft *d, ef_dn x, uint64_t *at)
{
    for (unsigned i = 0; i < d->nodes.at[x].rank; i++) {
        if (++at[i] < ef_dn_size(d, x, i))
            return true;
        at[i] = 0;
    }
    return false;
}

static bool is_exact(const ef_dnode *node)
{
    return node->made && !ef_dtype_is_float((ef_dtype)node->dtype);
}

ef_dn ef_dn_known(ef_draft *d, ef_dn x)
{
    reader r = {d, BUDGET};
    uint64_t at[EF_MAX_RANK] = {0};
    int64_t size[EF_MAX_RANK];
    if (x == EF_NONE)
        return x;
    ef_dnode node = d->nodes.at[x];
    if (!is_exact(&node) || node.uniform || node.count == 0)
        return x;
    double first = read(&r, x, at);
    while (next(d, x, at))
        if (read(&r, x, at) != first)
            return x;
    for (unsigned i = 0; i < node.rank; i++)
        size[i] = (int64_t)ef_dn_size(d, x, node.rank - 1u - i);
    return isnan(first) ? x : ef_dn_full(d, first, (ef_dtype)node.dtype, size, node.rank);
}

bool ef_dn_counts(const ef_draft *d, ef_dn x, unsigned *index)
{
    reader r = {d, BUDGET};
    uint64_t at[EF_MAX_RANK] = {0};
    unsigned found = 0;
    if (x == EF_NONE || !is_exact(&d->nodes.at[x]))
        return false;
    *index = 0;
    for (unsigned i = 0; i < d->nodes.at[x].rank; i++)
        if (ef_dn_size(d, x, i) > 1) {
            *index = i;
            found++;
        }
    for (at[*index] = 0; found <= 1 && at[*index] < ef_dn_size(d, x, *index); at[*index]++)
        if (read(&r, x, at) != (double)at[*index])
            return false;
    return found <= 1;
}

bool ef_dn_rows_seen(const ef_draft *d, ef_dn mask)
{
    const ef_dnode *node = &d->nodes.at[mask];
    reader r = {d, BUDGET};
    uint64_t at[EF_MAX_RANK] = {0}, columns = ef_dn_size(d, mask, 0), rows = ef_dn_size(d, mask, 1);
    if (!node->made)
        return false;
    do {
        uint64_t row = at[1], diagonal = row + columns >= rows ? row + columns - rows : 0;
        uint64_t likely[3] = {0, row < columns ? row : columns - 1, diagonal < columns ? diagonal : columns - 1};
        bool seen = false;
        for (unsigned i = 0; i < 3 && !seen; i++) {
            at[0] = likely[i];
            double value = read(&r, mask, at);
            seen = node->dtype == EF_BOOL ? value == 1 : value > -INFINITY;
        }
        if (!seen)
            return false;
        at[0] = columns - 1;
    } while (next(d, mask, at));
    return true;
}
