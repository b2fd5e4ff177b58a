/* Dimensions, axes and shapes of the text form; they are interned while they are read.
 *
 *     dimension = factor {"*" factor}                                    m*k
 *     factor    = (NAME | "1" | "(" dimension {"+" dimension} ")" | "|" axis "|") {"[" start ":" stop "]" | "'"}
 *     axis      = factor "." level                                      k.0, k'.0, k[0:64].1
 *
 * A shape may also have plain numbers (text_unify.c). */
#include <inttypes.h>
#include <string.h>

#include "ir/text.h"

static uint32_t var_bytes(ef_text *s, ef_var var)
{
    const ef_var_info *info = ef_var_at(s->ctx, var);
    const ef_dim *parts;
    uint32_t bytes = 0;
    while (s->var_bytes.count <= var)
        ef_vec_push(&s->var_bytes, 0);
    if (s->var_bytes.at[var])
        return s->var_bytes.at[var];
    switch (info->kind) {
    case EF_VAR_NAMED: bytes = (uint32_t)strlen(info->name); break;
    case EF_VAR_SLICE: bytes = ef_text_dim_bytes(s, info->parent) + 6; break;
    case EF_VAR_CONCAT:
        for (unsigned i = 0, n = ef_dims_at(s->ctx, info->parts, &parts); i < n && bytes <= EF_TEXT_DIM; i++)
            bytes += ef_text_dim_bytes(s, parts[i]) + 3;
        break;
    case EF_VAR_JOINED: bytes = ef_text_dim_bytes(s, info->parent); break;
    case EF_VAR_TWIN: bytes = ef_text_dim_bytes(s, info->parent) + 1; break;
    case EF_VAR_COUNT: bytes = var_bytes(s, ef_axis_var(info->axis)) + 4; break;
    }
    s->var_bytes.at[var] = bytes;
    return bytes;
}

uint32_t ef_text_dim_bytes(ef_text *s, ef_dim dim)
{
    const ef_var *atoms;
    uint32_t bytes = 1;
    for (unsigned i = 0, n = ef_dim_atoms(s->ctx, dim, &atoms); i < n && bytes <= EF_TEXT_DIM; i++)
        bytes += var_bytes(s, atoms[i]) + 1;
    return bytes;
}

/* Multiplies extents; a collected dimension has none (0) and counts as 1. */
static bool extent_ok(const ef_text *s, const ef_var *atoms, unsigned count)
{
    uint64_t extent = 1;
    for (unsigned i = 0; i < count; i++) {
        uint64_t e = ef_var_at(s->ctx, atoms[i])->extent;
        if (e > EF_MAX_EXTENT / extent)
            return false;
        extent *= e ? e : 1;
    }
    return true;
}

bool ef_text_dim_ok(ef_text *s, size_t at, ef_dim dim)
{
    const ef_var *atoms;
    unsigned count = ef_dim_atoms(s->ctx, dim, &atoms);
    if (ef_text_dim_bytes(s, dim) > EF_TEXT_DIM)
        return ef_text_fail(s, at, "a dimension is derived in too many steps: its text has more than %u characters",
                            EF_TEXT_DIM);
    if (count > EF_MAX_ATOMS)
        return ef_text_fail(s, at, "a dimension is a product of at most %d variables", EF_MAX_ATOMS);
    if (!extent_ok(s, atoms, count))
        return ef_text_fail(s, at, "a dimension has at most %" PRIu64 " elements", EF_MAX_EXTENT);
    return true;
}

static bool dimension(ef_text *s, unsigned depth, ef_dim *dim);

/* [start:stop] behind a dimension; both at most `limit`. */
bool ef_text_span(ef_text *s, uint64_t limit, uint64_t *start, uint64_t *stop)
{
    ef_text_next(s);
    size_t at = s->at;
    if (!ef_text_integer(s, "the first position", limit, start) || !ef_text_expect(s, ':') ||
        !ef_text_integer(s, "the position behind the last", limit, stop))
        return false;
    return *start < *stop || ef_text_fail(s, at, "the slice is empty: the second position must be larger");
}

static bool dimension_slice(ef_text *s, size_t at, ef_dim *dim)
{
    uint64_t start = 0, stop = 0, extent = ef_dim_extent(s->ctx, *dim);
    if (extent == 0)
        return ef_text_fail(s, at, "a collected dimension cannot be sliced");
    if (!ef_text_span(s, extent < UINT32_MAX ? extent : UINT32_MAX, &start, &stop) || !ef_text_expect(s, ']'))
        return false;
    *dim = ef_dim_slice(s->ctx, *dim, (uint32_t)start, (uint32_t)stop);
    return ef_text_dim_ok(s, at, *dim);
}

/* (a + b + …), or a dimension in parentheses. */
static bool dimension_concat(ef_text *s, unsigned depth, size_t at, ef_dim *dim)
{
    ef_dim parts[EF_TEXT_DIM / 4];
    unsigned count = 0;
    do {
        if (count == EF_TEXT_DIM / 4)
            return ef_text_fail(s, at, "too many parts in one dimension");
        if (!dimension(s, depth, &parts[count]))
            return false;
        count++;
    } while (ef_text_accept(s, '+'));
    for (unsigned i = 0; count > 1 && i < count; i++)
        if (ef_dim_extent(s->ctx, parts[i]) == 0)
            return ef_text_fail(s, at, "a collected dimension cannot be concatenated");
    *dim = ef_dim_concat(s->ctx, parts, count);
    return ef_text_expect(s, ')') && ef_text_dim_ok(s, at, *dim);
}

static bool dimension_name(ef_text *s, ef_dim *dim)
{
    const char *text;
    unsigned length;
    size_t at = s->at;
    if (!ef_text_name(s, "a dimension", &text, &length))
        return false;
    uint32_t known = ef_intern_find(s->dim_names, text, length);
    if (known == UINT32_MAX)
        return ef_text_fail(s, at, "dimension %.*s is not declared: add a line 'dim %.*s = EXTENT' above",
                            length > 60 ? 60 : (int)length, text, length > 60 ? 60 : (int)length, text);
    *dim = s->named.at[known];
    return true;
}

/* What a ' behind a dimension makes of it. */
static bool dimension_twin(ef_text *s, size_t at, ef_dim *dim)
{
    ef_dim twin = ef_dim_twin(s->ctx, *dim);
    if (twin == EF_NONE)
        return ef_text_fail(s, at, "a collected dimension, or one of many parts, has no other name");
    *dim = twin;
    return ef_text_dim_ok(s, at, twin);
}

/* A variable, 1, (dimension), (a + b) or |axis|, and slices and twins of it. */
static bool factor(ef_text *s, unsigned depth, ef_dim *dim)
{
    int c = ef_text_next(s);
    size_t at = s->at;
    ef_axis counted = 0;
    uint64_t value = 0;
    if (depth >= EF_TEXT_DEPTH)
        return ef_text_fail(s, at, "brackets are nested more than %u deep", EF_TEXT_DEPTH);
    if (ef_text_is_digit(c)) {
        if (!ef_text_integer(s, "an extent", EF_MAX_EXTENT, &value))
            return false;
        if (value != 1)
            return ef_text_fail(s, at, "a number cannot stand here: declare 'dim NAME = %" PRIu64 "' and use NAME",
                                value);
        *dim = EF_UNIT;
    } else if (ef_text_accept(s, '(')) {
        if (!dimension_concat(s, depth + 1, at, dim))
            return false;
    } else if (ef_text_accept(s, '|')) {
        if (!ef_text_axis(s, depth + 1, &counted) || !ef_text_expect(s, '|'))
            return false;
        *dim = ef_dim_count(s->ctx, counted);
        if (!ef_text_dim_ok(s, at, *dim))
            return false;
    } else if (!dimension_name(s, dim)) {
        return false;
    }
    for (;;) {
        if (ef_text_accept(s, '[')) {
            if (!dimension_slice(s, at, dim))
                return false;
        } else if (ef_text_accept(s, '\'')) {
            if (!dimension_twin(s, at, dim))
                return false;
        } else {
            return true;
        }
    }
}

static bool dimension(ef_text *s, unsigned depth, ef_dim *dim)
{
    ef_var atoms[2 * EF_MAX_ATOMS];
    unsigned count = 0;
    ef_text_next(s);
    size_t at = s->at;
    do {
        const ef_var *more;
        if (!factor(s, depth, dim))
            return false;
        unsigned n = ef_dim_atoms(s->ctx, *dim, &more);
        memcpy(atoms + count, more, n * sizeof *atoms);
        count += n;
        if (count > EF_MAX_ATOMS)
            return ef_text_fail(s, at, "a dimension is a product of at most %d variables", EF_MAX_ATOMS);
    } while (ef_text_accept(s, '*'));
    if (!extent_ok(s, atoms, count))
        return ef_text_fail(s, at, "a dimension has at most %" PRIu64 " elements", EF_MAX_EXTENT);
    *dim = ef_dim_product(s->ctx, atoms, count);
    return ef_text_dim_ok(s, at, *dim);
}

bool ef_text_axis(ef_text *s, unsigned depth, ef_axis *result)
{
    ef_dim dim;
    uint64_t level = 0;
    ef_text_next(s);
    size_t at = s->at;
    if (!factor(s, depth, &dim))
        return false;
    if (ef_text_next(s) != '.')
        return ef_text_expected(s, "'.' and a level, as in k.0, to make an axis");
    s->at++;
    if (!ef_text_integer(s, "an axis's level", 1, &level))
        return false;
    const ef_var *atoms;
    unsigned count = ef_dim_atoms(s->ctx, dim, &atoms);
    if (count == 0)
        return ef_text_fail(s, at, "a dimension of extent 1 has no axis");
    if (count > 1)
        return ef_text_fail(s, at, "an axis cuts one variable, not a product: name its first variable");
    *result = ef_axis_of(atoms[0], (ef_axis)level);
    return true;
}

/* One dimension of a shape: here a plain number is allowed. */
bool ef_text_dimension(ef_text *s, ef_text_dim *result)
{
    uint64_t extent = 0;
    *result = (ef_text_dim){EF_UNIT, EF_NONE};
    if (!ef_text_is_digit(ef_text_next(s)))
        return dimension(s, 0, &result->dim);
    size_t start = s->at;
    if (!ef_text_integer(s, "an extent", EF_MAX_EXTENT, &extent))
        return false;
    int c = ef_text_next(s);
    if (extent == 1 || c == '*' || c == '[') {
        s->at = start;
        return dimension(s, 0, &result->dim);
    }
    if (extent == 0)
        return ef_text_fail(s, start, "a dimension has at least 1 element");
    result->number = s->numbers.count;
    ef_text_number number = {(uint32_t)start, extent, EF_UNIT};
    ef_vec_push(&s->numbers, number);
    return true;
}

/* Dimensions up to `close`, which stays. */
bool ef_text_shape_of(ef_text *s, char close, ef_text_shape *result)
{
    ef_text_dim dims[EF_MAX_RANK];
    *result = (ef_text_shape){s->dims.count, 0};
    if (ef_text_next(s) == close)
        return true;
    do {
        ef_text_next(s);
        if (result->rank == EF_MAX_RANK)
            return ef_text_fail(s, s->at, "a tensor has at most %d dimensions", EF_MAX_RANK);
        if (!ef_text_dimension(s, &dims[result->rank++]))
            return false;
    } while (ef_text_accept(s, ','));
    for (unsigned i = 0; i < result->rank; i++)
        ef_vec_push(&s->dims, dims[i]);
    return true;
}
