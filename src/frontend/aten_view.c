/* Views of ATen: the same elements under another shape, in another order, a part of them, or repeated; and what joins
 * tensors. A flip and a gather by position are no views of the IR. */
#include <string.h>

#include "frontend/aten.h"

static ef_dn self(ef_aten *c)
{
    return ef_aten_operand(c, "self", 0);
}

static bool is_dim(ef_aten *c, ef_dn x, int64_t dim, unsigned *index)
{
    *index = ef_aten_dim(dim, ef_aten_rank(c, x));
    return x != EF_NONE && *index < ef_aten_rank(c, x);
}

/* ---- reshapes: whatever the node says, its result's sizes are known ---- */

static bool lower_reshape(ef_aten *c, int param)
{
    int64_t size[EF_MAX_RANK];
    ef_dn x = self(c);
    (void)param;
    if (ef_aten_has(c, "dtype", EF_NONE))
        return ef_aten_refuse(c, "bits under another type");
    x = ef_dn_cast(c->draft, ef_aten_result_type(c, 0), x);
    return ef_aten_give(c, 0, ef_dn_reshape(c->draft, x, size, ef_aten_result_sizes(c, 0, size)));
}

static bool lower_expand(ef_aten *c, int param)
{
    int64_t size[EF_MAX_RANK];
    (void)param;
    return ef_aten_give(c, 0, ef_dn_broadcast(c->draft, self(c), size, ef_aten_result_sizes(c, 0, size)));
}

/* ---- other orders of dimensions ---- */

typedef enum { REVERSED, LAST_TWO } order;

static bool lower_order(ef_aten *c, int which)
{
    unsigned from[EF_MAX_RANK];
    ef_dn x = self(c);
    unsigned rank = ef_aten_rank(c, x);
    if (which == LAST_TWO && rank >= 2)
        return ef_aten_give(c, 0, ef_dn_swap(c->draft, x, 0, 1));
    for (unsigned i = 0; i < rank; i++)
        from[i] = rank - 1 - i;
    return ef_aten_give(c, 0, ef_dn_permute(c->draft, x, from));
}

static bool lower_permute(ef_aten *c, int param)
{
    int64_t dims[EF_MAX_RANK];
    unsigned from[EF_MAX_RANK], index, count = ef_aten_ints(c, "dims", 1, dims, EF_MAX_RANK, NULL);
    ef_dn x = self(c);
    (void)param;
    for (unsigned i = 0; i < count; i++) {
        if (!is_dim(c, x, dims[i], &index))
            return ef_aten_give(c, 0, EF_NONE);
        from[i] = ef_aten_rank(c, x) - 1 - index;
    }
    return ef_aten_give(c, 0, count == ef_aten_rank(c, x) ? ef_dn_permute(c->draft, x, from) : EF_NONE);
}

static bool lower_transpose(ef_aten *c, int param)
{
    unsigned a, b;
    ef_dn x = self(c);
    (void)param;
    if (ef_aten_rank(c, x) == 0)
        return ef_aten_give(c, 0, x);
    if (!is_dim(c, x, ef_aten_int(c, "dim0", 1, 0), &a) || !is_dim(c, x, ef_aten_int(c, "dim1", 2, 0), &b))
        return ef_aten_give(c, 0, EF_NONE);
    return ef_aten_give(c, 0, ef_dn_swap(c->draft, x, a, b));
}

/* The dimensions that are not moved keep their order around those that are. */
static bool lower_movedim(ef_aten *c, int param)
{
    int64_t source[EF_MAX_RANK], target[EF_MAX_RANK];
    unsigned from[EF_MAX_RANK] = {0}, a, b, n = ef_aten_ints(c, "source", 1, source, EF_MAX_RANK, NULL);
    bool taken[EF_MAX_RANK] = {false}, placed[EF_MAX_RANK] = {false};
    ef_dn x = self(c);
    unsigned rank = ef_aten_rank(c, x), next = 0;
    (void)param;
    if (n != ef_aten_ints(c, "destination", 2, target, EF_MAX_RANK, NULL))
        return ef_aten_give(c, 0, EF_NONE);
    for (unsigned i = 0; i < n; i++) {
        if (!is_dim(c, x, source[i], &a) || !is_dim(c, x, target[i], &b))
            return ef_aten_give(c, 0, EF_NONE);
        from[rank - 1 - b] = rank - 1 - a;
        taken[rank - 1 - a] = placed[rank - 1 - b] = true;
    }
    for (unsigned i = 0; i < rank; i++) {
        if (placed[i])
            continue;
        while (next < rank && taken[next])
            next++;
        from[i] = next++;
    }
    return ef_aten_give(c, 0, ef_dn_permute(c->draft, x, from));
}

/* ---- parts ---- */

/* x without a dimension of size 1. */
static ef_dn drop(ef_aten *c, ef_dn x, unsigned index)
{
    int64_t size[EF_MAX_RANK];
    unsigned rank = ef_aten_sizes(c, x, size), at = rank - 1 - index;
    if (x == EF_NONE)
        return EF_NONE;
    memmove(size + at, size + at + 1, index * sizeof *size);
    return ef_dn_reshape(c->draft, x, size, rank - 1);
}

/* Every step-th position from `start` on, `count` of them: a column of the dimension as rows of `step`, which a zero
 * or more make whole at the end. */
static ef_dn every(ef_aten *c, ef_dn x, unsigned index, uint64_t start, uint64_t step, uint64_t count)
{
    int64_t size[EF_MAX_RANK + 1];
    unsigned rank = ef_aten_sizes(c, x, size), at = rank - 1 - index;
    uint64_t column = start % step, rows = start / step + count;
    if (rank == EF_MAX_RANK)
        return EF_NONE;
    if (rows * step > (uint64_t)size[at]) {
        size[at] = (int64_t)(rows * step) - size[at];
        ef_dn part[2] = {x, ef_dn_full(c->draft, 0, ef_aten_dtype(c, x), size, rank)};
        x = ef_dn_concat(c->draft, index, part, 2);
    } else
        x = ef_dn_slice(c->draft, x, index, 0, rows * step);
    memmove(size + at + 1, size + at, (rank - at) * sizeof *size);
    size[at] = (int64_t)rows;
    size[at + 1] = (int64_t)step;
    x = ef_dn_reshape(c->draft, x, size, rank + 1);
    x = drop(c, ef_dn_slice(c->draft, x, index, column, column + 1), index);
    return ef_dn_slice(c->draft, x, index, start / step, rows);
}

static bool lower_slice(ef_aten *c, int param)
{
    ef_dn x = self(c);
    unsigned index;
    (void)param;
    if (!is_dim(c, x, ef_aten_int(c, "dim", 1, 0), &index))
        return ef_aten_give(c, 0, EF_NONE);
    int64_t size = (int64_t)ef_dn_size(c->draft, x, index), start = ef_aten_int(c, "start", 2, 0);
    int64_t stop = ef_aten_int(c, "end", 3, size), step = ef_aten_int(c, "step", 4, 1);
    start = start < 0 ? start + size : start;
    stop = stop < 0 ? stop + size : stop;
    start = start < 0 ? 0 : start;
    stop = stop > size ? size : stop;
    step = step > size ? size : step;
    if (start >= stop || step < 1)
        return ef_aten_give(c, 0, EF_NONE);
    if (step > 1)
        return ef_aten_give(
            c, 0, every(c, x, index, (uint64_t)start, (uint64_t)step, (uint64_t)((stop - start + step - 1) / step)));
    return ef_aten_give(c, 0, ef_dn_slice(c->draft, x, index, (uint64_t)start, (uint64_t)stop));
}

static bool lower_narrow(ef_aten *c, int param)
{
    ef_dn x = self(c);
    unsigned index;
    int64_t start = ef_aten_int(c, "start", 2, -1), length = ef_aten_int(c, "length", 3, 0);
    (void)param;
    if (!is_dim(c, x, ef_aten_int(c, "dim", 1, 0), &index) || start < 0 || length < 1 ||
        start > (int64_t)EF_MAX_EXTENT || length > (int64_t)EF_MAX_EXTENT)
        return ef_aten_give(c, 0, EF_NONE);
    return ef_aten_give(c, 0, ef_dn_slice(c->draft, x, index, (uint64_t)start, (uint64_t)(start + length)));
}

static bool lower_select(ef_aten *c, int param)
{
    ef_dn x = self(c);
    unsigned index;
    int64_t at = ef_aten_int(c, "index", 2, 0);
    (void)param;
    if (!is_dim(c, x, ef_aten_int(c, "dim", 1, 0), &index))
        return ef_aten_give(c, 0, EF_NONE);
    at = at < 0 ? at + (int64_t)ef_dn_size(c->draft, x, index) : at;
    if (at < 0)
        return ef_aten_give(c, 0, EF_NONE);
    return ef_aten_give(c, 0, drop(c, ef_dn_slice(c->draft, x, index, (uint64_t)at, (uint64_t)at + 1), index));
}

/* split, split_with_sizes, chunk, unbind: the results' sizes say where to cut. */
static bool lower_split(ef_aten *c, int unbind)
{
    ef_dn x = self(c);
    uint64_t start = 0;
    unsigned index;
    int64_t dim = ef_aten_int(c, "dim", unbind ? 1 : 2, 0);
    const char *how[] = {"split_size", "split_sizes", "chunks"};
    int64_t list[EF_MAX_RANK * EF_MAX_RANK] = {1};
    bool given = false;
    unsigned n = 1, which = 0;
    if (!is_dim(c, x, dim, &index))
        return ef_aten_give(c, 0, EF_NONE);
    uint64_t size = ef_dn_size(c->draft, x, index);
    for (; !unbind && which < 3 && !given; which += !given)
        n = ef_aten_ints(c, how[which], EF_NONE, list, EF_MAX_RANK * EF_MAX_RANK, &given);
    if (which == 3 || n == 0 || list[0] < 1 || list[0] > (int64_t)EF_MAX_EXTENT)
        return ef_aten_refuse(c, "no sizes to split by");
    if (which == 2 && !unbind) /* chunks: their number is given */
        list[0] = ((int64_t)size + list[0] - 1) / list[0];
    for (uint32_t k = 0; k < c->results; k++) { /* a result that nobody uses has no sizes, so all are counted */
        uint64_t length = (uint64_t)list[k < n ? k : n - 1];
        uint64_t stop = start + length < size ? start + length : size;
        ef_dn part = start < stop ? ef_dn_slice(c->draft, x, index, start, stop) : EF_NONE;
        if (c->value[k] != EF_NONE && !ef_aten_give(c, k, unbind ? drop(c, part, index) : part))
            return false;
        start = stop;
    }
    return true;
}

/* ---- joining and repeating ---- */

/* cat, stack: with stack each operand gets a dimension of size 1 first. */
static bool lower_join(ef_aten *c, int stack)
{
    ef_dn x[EF_MAX_RANK * EF_MAX_RANK];
    int64_t size[EF_MAX_RANK + 1];
    unsigned count = ef_aten_operands(c, "tensors", 0, x, EF_MAX_RANK * EF_MAX_RANK);
    unsigned rank = count ? ef_aten_rank(c, x[0]) + (stack ? 1 : 0) : 0;
    unsigned index = ef_aten_dim(ef_aten_int(c, "dim", 1, 0), rank);
    if (count == 0 || rank > EF_MAX_RANK || index >= rank)
        return ef_aten_give(c, 0, EF_NONE);
    for (unsigned i = 0; i < count; i++) {
        x[i] = ef_dn_cast(c->draft, ef_aten_result_type(c, 0), x[i]);
        if (!stack)
            continue;
        if (ef_aten_rank(c, x[i]) + 1 != rank)
            return ef_aten_give(c, 0, EF_NONE);
        ef_aten_sizes(c, x[i], size);
        memmove(size + rank - index, size + rank - 1 - index, index * sizeof *size);
        size[rank - 1 - index] = 1;
        x[i] = ef_dn_reshape(c->draft, x[i], size, rank);
    }
    return ef_aten_give(c, 0, ef_dn_concat(c->draft, index, x, count));
}

/* Each dimension's copies stand beside it, outside for repeat and inside for repeat_interleave, and merge with it. */
static ef_dn repeat(ef_aten *c, ef_dn x, unsigned index, int64_t times, bool inside)
{
    int64_t size[EF_MAX_RANK + 1];
    unsigned rank = ef_aten_sizes(c, x, size), at = rank - 1 - index;
    if (x == EF_NONE || times < 1 || times > (int64_t)EF_MAX_EXTENT / size[at] || rank == EF_MAX_RANK)
        return times == 1 ? x : EF_NONE;
    int64_t old = size[at];
    memmove(size + at + 1, size + at, (rank - at) * sizeof *size);
    size[at + inside] = 1;
    x = ef_dn_reshape(c->draft, x, size, rank + 1);
    size[at + inside] = times;
    x = ef_dn_broadcast(c->draft, x, size, rank + 1);
    memmove(size + at, size + at + 1, (rank - at) * sizeof *size);
    size[at] = old * times;
    return ef_dn_reshape(c->draft, x, size, rank);
}

static bool lower_repeat(ef_aten *c, int param)
{
    int64_t times[EF_MAX_RANK], size[EF_MAX_RANK], out[EF_MAX_RANK];
    ef_dn x = self(c);
    unsigned rank = ef_aten_sizes(c, x, size), n = ef_aten_ints(c, "repeats", 1, times, EF_MAX_RANK, NULL);
    unsigned out_rank = ef_aten_result_sizes(c, 0, out);
    (void)param;
    if (x == EF_NONE || out_rank < rank || n > out_rank)
        return ef_aten_give(c, 0, EF_NONE);
    memmove(size + out_rank - rank, size, rank * sizeof *size);
    for (unsigned i = 0; i < out_rank - rank; i++)
        size[i] = 1;
    x = ef_dn_reshape(c->draft, x, size, out_rank);
    for (unsigned i = 0; i < n; i++)
        if (times[n - 1 - i] != 1)
            x = repeat(c, x, i, times[n - 1 - i], false);
    return ef_aten_give(c, 0, x);
}

static bool lower_repeat_interleave(ef_aten *c, int param)
{
    ef_dn x = self(c);
    unsigned index;
    int64_t flat[1];
    (void)param;
    if (x == EF_NONE || ef_aten_int(c, "repeats", 1, 0) < 1)
        return ef_aten_refuse(c, "repeats that are data");
    if (!ef_aten_has(c, "dim", 2)) {
        flat[0] = (int64_t)ef_dn_elements(c->draft, x);
        x = ef_dn_reshape(c->draft, x, flat, 1);
    }
    if (!is_dim(c, x, ef_aten_int(c, "dim", 2, 0), &index))
        return ef_aten_give(c, 0, EF_NONE);
    return ef_aten_give(c, 0, repeat(c, x, index, ef_aten_int(c, "repeats", 1, 0), true));
}

/* roll: each dimension's tail comes first. */
static bool lower_roll(ef_aten *c, int param)
{
    int64_t shift[EF_MAX_RANK], dim[EF_MAX_RANK], flat[1], size[EF_MAX_RANK];
    ef_dn x = self(c), whole = x;
    unsigned n = ef_aten_ints(c, "shifts", 1, shift, EF_MAX_RANK, NULL);
    unsigned dims = ef_aten_ints(c, "dims", 2, dim, EF_MAX_RANK, NULL);
    (void)param;
    if (x != EF_NONE && dims == 0 && n == 1) { /* all elements in a row */
        flat[0] = (int64_t)ef_dn_elements(c->draft, x);
        x = ef_dn_reshape(c->draft, x, flat, 1);
        dim[0] = 0;
        dims = 1;
    }
    for (unsigned i = 0; i < n && n == dims; i++) {
        unsigned index;
        if (!is_dim(c, x, dim[i], &index))
            return ef_aten_give(c, 0, EF_NONE);
        int64_t extent = (int64_t)ef_dn_size(c->draft, x, index), by = (shift[i] % extent + extent) % extent;
        uint64_t cut = (uint64_t)(extent - by);
        ef_dn part[2] = {by ? ef_dn_slice(c->draft, x, index, cut, (uint64_t)extent) : x,
                         ef_dn_slice(c->draft, x, index, 0, cut)};
        x = by ? ef_dn_concat(c->draft, index, part, 2) : x;
    }
    unsigned rank = ef_aten_sizes(c, whole, size);
    return ef_aten_give(c, 0, n == dims ? ef_dn_reshape(c->draft, x, size, rank) : EF_NONE);
}

/* The difference of neighbours, after something is put before or behind. */
static bool lower_diff(ef_aten *c, int param)
{
    ef_dn part[3] = {EF_NONE, self(c), EF_NONE}, x;
    unsigned index, from = 1, parts = 1;
    (void)param;
    if (ef_aten_int(c, "n", 1, 1) != 1 || ef_aten_result_type(c, 0) == EF_BOOL ||
        !is_dim(c, part[1], ef_aten_int(c, "dim", 2, -1), &index))
        return ef_aten_refuse(c, "differences of another kind");
    if (ef_aten_has(c, "prepend", EF_NONE)) {
        part[0] = ef_aten_operand(c, "prepend", EF_NONE);
        from = 0;
        parts++;
    }
    if (ef_aten_has(c, "append", EF_NONE)) {
        part[2] = ef_aten_operand(c, "append", EF_NONE);
        parts++;
    }
    x = ef_dn_concat(c->draft, index, part + from, parts);
    if (x == EF_NONE)
        return ef_aten_give(c, 0, x);
    uint64_t size = ef_dn_size(c->draft, x, index);
    return ef_aten_give(
        c, 0, ef_b(c, EF_SUB, ef_dn_slice(c->draft, x, index, 1, size), ef_dn_slice(c->draft, x, index, 0, size - 1)));
}

/* Elements by positions that count up: dimension i of x is the one of the result that counts in its index. */
static ef_dn index_by_counting(ef_aten *c, ef_dn x, const ef_dn *position, unsigned count)
{
    int64_t size[EF_MAX_RANK];
    unsigned from[EF_MAX_RANK], where[EF_MAX_RANK], rank = ef_aten_rank(c, x);
    if (count != rank)
        return EF_NONE;
    for (unsigned i = 0; i < rank; i++)
        if (!ef_dn_counts(c->draft, position[i], &where[i]) ||
            ef_dn_elements(c->draft, position[i]) != ef_dn_size(c->draft, x, rank - 1 - i))
            return EF_NONE;
    for (unsigned i = 0; i < rank; i++) { /* the result's dimensions, outermost first, are those with larger indices */
        unsigned before = 0;
        for (unsigned k = 0; k < rank; k++) {
            bool single = ef_dn_elements(c->draft, position[i]) == 1 || ef_dn_elements(c->draft, position[k]) == 1;
            if (k != i && where[k] == where[i] && !single)
                return EF_NONE;
            before += where[k] > where[i] || (where[k] == where[i] && k < i);
        }
        from[before] = i;
    }
    return ef_dn_reshape(c->draft, ef_dn_permute(c->draft, x, from), size, ef_aten_result_sizes(c, 0, size));
}

/* Elements by position are external, except where all are one number or the positions move nothing. */
static bool lower_index(ef_aten *c, int param)
{
    int64_t size[EF_MAX_RANK];
    ef_dn x = self(c), position[EF_MAX_RANK], y = EF_NONE;
    unsigned count = ef_aten_operands(c, "indices", 1, position, EF_MAX_RANK);
    (void)param;
    if (x != EF_NONE && c->draft->nodes.at[x].uniform)
        y = ef_dn_full(c->draft, c->draft->nodes.at[x].number, ef_aten_result_type(c, 0), size,
                       ef_aten_result_sizes(c, 0, size));
    else if (count)
        y = index_by_counting(c, x, position, count);
    return y == EF_NONE ? ef_aten_refuse(c, "elements by position") : ef_aten_give(c, 0, y);
}

/* constant_pad_nd: pairs (before, after) from the last dimension; negative ones cut. */
static bool lower_pad(ef_aten *c, int param)
{
    int64_t pad[2 * EF_MAX_RANK], size[EF_MAX_RANK];
    ef_dn x = self(c);
    unsigned rank = ef_aten_rank(c, x), n = ef_aten_ints(c, "pad", 1, pad, 2 * EF_MAX_RANK, NULL);
    double value = ef_aten_number(c, "value", EF_NONE, 0);
    (void)param;
    if (strcmp(ef_aten_text(c, "mode", EF_NONE, "constant"), "constant") != 0)
        return ef_aten_refuse(c, "padding with elements");
    for (unsigned i = 0; i < n / 2 && i < rank && x != EF_NONE; i++) {
        ef_dn part[3];
        unsigned parts = 0;
        int64_t extent = (int64_t)ef_dn_size(c->draft, x, i), low = pad[2 * i], high = pad[2 * i + 1];
        if (low < -extent || high < -extent)
            return ef_aten_give(c, 0, EF_NONE);
        int64_t from = low < 0 ? -low : 0, to = high < 0 ? extent + high : extent;
        x = from < to ? ef_dn_slice(c->draft, x, i, (uint64_t)from, (uint64_t)to) : EF_NONE;
        ef_aten_sizes(c, x, size);
        for (unsigned side = 0; side < 2; side++) {
            if (pad[2 * i + side] > 0) {
                size[rank - 1 - i] = pad[2 * i + side];
                part[parts++] = ef_dn_full(c->draft, value, ef_aten_dtype(c, x), size, rank);
            }
            if (side == 0)
                part[parts++] = x;
        }
        x = ef_dn_concat(c->draft, i, part, parts);
    }
    return ef_aten_give(c, 0, x);
}

const ef_aten_row ef_aten_views[] = {
    {"view", lower_reshape, 0, EF_SHARED},
    {"view_as", lower_reshape, 0, EF_SHARED},
    {"_unsafe_view", lower_reshape, 0, EF_FRESH},
    {"reshape", lower_reshape, 0, EF_CONTIGUOUS},
    {"reshape_as", lower_reshape, 0, EF_CONTIGUOUS},
    {"flatten", lower_reshape, 0, EF_CONTIGUOUS},
    {"ravel", lower_reshape, 0, EF_CONTIGUOUS},
    {"unflatten", lower_reshape, 0, EF_SHARED},
    {"squeeze", lower_reshape, 0, EF_SHARED},
    {"unsqueeze", lower_reshape, 0, EF_SHARED},
    {"view_copy", lower_reshape, 0, EF_FRESH},
    {"expand", lower_expand, 0, EF_SHARED},
    {"expand_as", lower_expand, 0, EF_SHARED},
    {"broadcast_to", lower_expand, 0, EF_SHARED},
    {"permute", lower_permute, 0, EF_SHARED},
    {"transpose", lower_transpose, 0, EF_SHARED},
    {"swapaxes", lower_transpose, 0, EF_SHARED},
    {"swapdims", lower_transpose, 0, EF_SHARED},
    {"t", lower_order, REVERSED, EF_SHARED},
    {"numpy_T", lower_order, REVERSED, EF_SHARED},
    {"mT", lower_order, LAST_TWO, EF_SHARED},
    {"adjoint", lower_order, LAST_TWO, EF_SHARED},
    {"movedim", lower_movedim, 0, EF_SHARED},
    {"moveaxis", lower_movedim, 0, EF_SHARED},
    {"slice", lower_slice, 0, EF_SHARED},
    {"narrow", lower_narrow, 0, EF_SHARED},
    {"select", lower_select, 0, EF_SHARED},
    {"split", lower_split, 0, EF_SHARED},
    {"split_with_sizes", lower_split, 0, EF_SHARED},
    {"chunk", lower_split, 0, EF_SHARED},
    {"unsafe_split", lower_split, 0, EF_FRESH},
    {"unsafe_chunk", lower_split, 0, EF_FRESH},
    {"split_with_sizes_copy", lower_split, 0, EF_FRESH},
    {"unbind", lower_split, 1, EF_SHARED},
    {"cat", lower_join, 0, EF_FRESH},
    {"concat", lower_join, 0, EF_FRESH},
    {"concatenate", lower_join, 0, EF_FRESH},
    {"stack", lower_join, 1, EF_FRESH},
    {"repeat", lower_repeat, 0, EF_FRESH},
    {"tile", lower_repeat, 0, EF_FRESH},
    {"repeat_interleave", lower_repeat_interleave, 0, EF_FRESH},
    {"diff", lower_diff, 0, EF_FRESH},
    {"index", lower_index, 0, EF_FRESH},
    {"roll", lower_roll, 0, EF_FRESH},
    {"constant_pad_nd", lower_pad, 0, EF_FRESH},
    {"pad", lower_pad, 0, EF_FRESH},
    {0},
};
