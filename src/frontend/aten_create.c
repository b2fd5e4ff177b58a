/* Tensors that ATen makes from nothing: numbers everywhere, ranges, triangles. They become iota and numbers, never
 * inputs, so that the analysis of masks sees through them. */
#include <math.h>

#include "frontend/aten.h"

static bool give(ef_aten *c, ef_dn x)
{
    return ef_aten_give(c, 0, ef_dn_exact_cast(c->draft, ef_aten_result_type(c, 0), x));
}

typedef enum { ARGUMENT, ZEROS, ONES } content;

/* full, zeros, ones, their _like and new_ forms, scalar_tensor: the result's sizes and type are known. */
static bool lower_full(ef_aten *c, int what)
{
    int64_t size[EF_MAX_RANK];
    unsigned rank = ef_aten_result_sizes(c, 0, size);
    const char *name = ef_aten_has(c, "fill_value", EF_NONE) ? "fill_value" : "s";
    double value = what == ARGUMENT ? ef_aten_number(c, name, EF_NONE, 0) : what == ONES;
    if (what == ARGUMENT && ef_aten_number(c, name, EF_NONE, 1) != value && !isnan(value))
        return ef_aten_refuse(c, "a number that is not known");
    return ef_aten_give(c, 0, ef_dn_full(c->draft, value, ef_aten_result_type(c, 0), size, rank));
}

/* start + step * iota */
static ef_dn range(ef_aten *c, uint64_t count, double start, double step)
{
    ef_dn x = ef_dn_cast(c->draft, ef_aten_result_type(c, 0), ef_dn_iota(c->draft, count));
    x = step == 1 ? x : ef_n(c, EF_MUL, x, step);
    return start == 0 ? x : ef_n(c, EF_ADD, x, start);
}

static bool lower_arange(ef_aten *c, int param)
{
    int64_t size[EF_MAX_RANK];
    (void)param;
    if (ef_aten_result_sizes(c, 0, size) != 1 || size[0] < 1)
        return ef_aten_give(c, 0, EF_NONE);
    return give(
        c, range(c, (uint64_t)size[0], ef_aten_number(c, "start", EF_NONE, 0), ef_aten_number(c, "step", EF_NONE, 1)));
}

static bool lower_linspace(ef_aten *c, int param)
{
    int64_t steps = ef_aten_int(c, "steps", 2, 0);
    double start = ef_aten_number(c, "start", 0, NAN), end = ef_aten_number(c, "end", 1, NAN);
    (void)param;
    if (steps < 1 || isnan(start) || isnan(end))
        return ef_aten_refuse(c, "a number that is not known");
    return give(c, range(c, (uint64_t)steps, start, steps > 1 ? (end - start) / (double)(steps - 1) : 1));
}

ef_dn ef_aten_triangle(ef_aten *c, uint64_t rows, uint64_t columns, int64_t diagonal, bool lower)
{
    int64_t column[2] = {(int64_t)rows, 1};
    ef_dn row = ef_dn_reshape(c->draft, ef_dn_iota(c->draft, rows), column, 2), col = ef_dn_iota(c->draft, columns);
    row = diagonal == 0 ? row : ef_n(c, EF_ADD, row, (double)diagonal);
    return ef_b(c, lower ? EF_GE : EF_LE, row, col);
}

/* tril, triu: elements on the other side of a diagonal become 0. */
static bool lower_triangle(ef_aten *c, int lower)
{
    ef_dn x = ef_aten_operand(c, "self", 0), zero = ef_dn_number(c->draft, 0);
    if (x == EF_NONE || ef_aten_rank(c, x) < 2)
        return ef_aten_give(c, 0, EF_NONE);
    ef_dn kept = ef_aten_triangle(c, ef_dn_size(c->draft, x, 1), ef_dn_size(c->draft, x, 0),
                                  ef_aten_int(c, "diagonal", 1, 0), lower);
    if (ef_aten_dtype(c, x) != EF_BOOL)
        return give(c, ef_dn_select(c->draft, kept, x, zero));
    const ef_dnode *node = &c->draft->nodes.at[x];
    return give(c, node->uniform && node->number != 0 ? kept : ef_b(c, EF_AND, kept, x));
}

static bool lower_eye(ef_aten *c, int param)
{
    int64_t size[EF_MAX_RANK], column[2];
    (void)param;
    if (ef_aten_result_sizes(c, 0, size) != 2 || size[0] < 1 || size[1] < 1)
        return ef_aten_give(c, 0, EF_NONE);
    column[0] = size[0];
    column[1] = 1;
    ef_dn row = ef_dn_reshape(c->draft, ef_dn_iota(c->draft, (uint64_t)size[0]), column, 2);
    return give(c, ef_b(c, EF_EQ, row, ef_dn_iota(c->draft, (uint64_t)size[1])));
}

const ef_aten_row ef_aten_constructors[] = {
    {"full", lower_full, ARGUMENT, EF_FRESH},
    {"full_like", lower_full, ARGUMENT, EF_FRESH},
    {"new_full", lower_full, ARGUMENT, EF_FRESH},
    {"scalar_tensor", lower_full, ARGUMENT, EF_FRESH},
    {"zeros", lower_full, ZEROS, EF_FRESH},
    {"zeros_like", lower_full, ZEROS, EF_FRESH},
    {"new_zeros", lower_full, ZEROS, EF_FRESH},
    {"ones", lower_full, ONES, EF_FRESH},
    {"ones_like", lower_full, ONES, EF_FRESH},
    {"new_ones", lower_full, ONES, EF_FRESH},
    {"empty", lower_full, ZEROS, EF_FRESH},
    {"new_empty", lower_full, ZEROS, EF_FRESH},
    {"empty_like", lower_full, ZEROS, EF_FRESH},
    {"arange", lower_arange, 0, EF_FRESH},
    {"linspace", lower_linspace, 0, EF_FRESH},
    {"tril", lower_triangle, 1, EF_FRESH},
    {"triu", lower_triangle, 0, EF_FRESH},
    {"eye", lower_eye, 0, EF_FRESH},
    {0},
};
