/* Normalisations of ATen, written as PyTorch documents them: statistics over some dimensions, then a gain and a shift.
 */
#include "frontend/aten.h"

static ef_dn operand(ef_aten *c, const char *name, uint32_t position)
{
    return ef_aten_has(c, name, position) ? ef_aten_operand(c, name, position) : EF_NONE;
}

static bool give(ef_aten *c, uint32_t k, ef_dn x)
{
    int64_t size[EF_MAX_RANK];
    if (k >= c->results || c->value[k] == EF_NONE)
        return true;
    unsigned rank = ef_aten_result_sizes(c, k, size);
    return ef_aten_give(c, k, ef_dn_cast(c->draft, ef_aten_result_type(c, k), ef_dn_reshape(c->draft, x, size, rank)));
}

/* The last `count` dimensions. */
static void innermost(unsigned count, unsigned *index)
{
    for (unsigned i = 0; i < count; i++)
        index[i] = i;
}

static ef_dn mean(ef_aten *c, ef_dn x, const unsigned *index, unsigned count)
{
    return ef_n(c, EF_DIV, ef_aten_reduce(c, EF_RED_SUM, x, index, count), ef_aten_extent(c, x, index, count));
}

ef_dn ef_aten_standardise(ef_aten *c, ef_dn x, const unsigned *index, unsigned count, double eps, ef_dn *mean_out,
                          ef_dn *scale_out)
{
    ef_dn m = mean(c, x, index, count), dev = ef_b(c, EF_SUB, x, m);
    ef_dn var = mean(c, ef_b(c, EF_MUL, dev, dev), index, count), scale = ef_u(c, EF_RSQRT, ef_n(c, EF_ADD, var, eps));
    if (mean_out)
        *mean_out = m;
    if (scale_out)
        *scale_out = scale;
    return ef_b(c, EF_MUL, dev, scale);
}

/* weight and bias of a normalisation; either may be missing. */
static ef_dn affine(ef_aten *c, ef_dn x, ef_dn weight, ef_dn bias)
{
    x = weight == EF_NONE ? x : ef_b(c, EF_MUL, x, weight);
    return bias == EF_NONE ? x : ef_b(c, EF_ADD, x, bias);
}

/* layer_norm and native_layer_norm, which returns mean and scale too. */
static bool lower_layer_norm(ef_aten *c, int param)
{
    int64_t shape[EF_MAX_RANK];
    unsigned index[EF_MAX_RANK], count = ef_aten_ints(c, "normalized_shape", 1, shape, EF_MAX_RANK, NULL);
    ef_dn x = ef_aten_operand(c, "input", 0), m, scale;
    (void)param;
    innermost(count, index);
    ef_dn y = ef_aten_standardise(c, x, index, count, ef_aten_number(c, "eps", 4, 1e-5), &m, &scale);
    y = affine(c, y, operand(c, "weight", 2), operand(c, "bias", 3));
    return give(c, 0, y) && give(c, 1, m) && give(c, 2, scale);
}

/* rms_norm and _fused_rms_norm. Without eps it is the smallest step of the type that PyTorch computes in. */
static bool lower_rms_norm(ef_aten *c, int param)
{
    int64_t shape[EF_MAX_RANK];
    unsigned index[EF_MAX_RANK], count = ef_aten_ints(c, "normalized_shape", 1, shape, EF_MAX_RANK, NULL);
    ef_dn x = ef_aten_operand(c, "input", 0);
    ef_dtype type = ef_aten_result_type(c, 0);
    double smallest = type == EF_F64 ? 0x1p-52 : 0x1p-23;
    (void)param;
    innermost(count, index);
    ef_dn scale = ef_n(c, EF_ADD, mean(c, ef_b(c, EF_MUL, x, x), index, count), ef_aten_number(c, "eps", 3, smallest));
    scale = ef_u(c, EF_RSQRT, scale);
    return give(c, 0, affine(c, ef_b(c, EF_MUL, x, scale), operand(c, "weight", 2), EF_NONE)) && give(c, 1, scale);
}

/* A vector with one element a channel, against [batch, channels, …]. */
static ef_dn channels(ef_aten *c, ef_dn x, unsigned rank)
{
    int64_t size[EF_MAX_RANK] = {0};
    if (x == EF_NONE || ef_aten_rank(c, x) != 1)
        return EF_NONE;
    size[0] = (int64_t)ef_dn_size(c->draft, x, 0);
    for (unsigned i = 1; i + 1 < rank; i++)
        size[i] = 1;
    return ef_dn_reshape(c->draft, x, size, rank - 1);
}

/* group_norm and native_group_norm: [batch, groups, channels of a group and everything after]. */
static bool lower_group_norm(ef_aten *c, int native)
{
    int64_t size[EF_MAX_RANK + 1], grouped[3];
    ef_dn x = ef_aten_operand(c, "input", 0), m, scale;
    int64_t groups = ef_aten_int(c, native ? "group" : "num_groups", native ? 6 : 1, 1);
    unsigned rank = ef_aten_sizes(c, x, size), index[1] = {0};
    if (x == EF_NONE || rank < 2 || groups < 1 || size[1] % groups)
        return ef_aten_give(c, 0, EF_NONE);
    grouped[0] = size[0];
    grouped[1] = groups;
    grouped[2] = (int64_t)ef_dn_elements(c->draft, x) / (size[0] * groups);
    double eps = ef_aten_number(c, "eps", native ? 7 : 4, 1e-5);
    ef_dn y = ef_aten_standardise(c, ef_dn_reshape(c->draft, x, grouped, 3), index, 1, eps, &m, &scale);
    y = ef_dn_reshape(c->draft, y, size, rank);
    ef_dn weight = operand(c, "weight", native ? 1 : 2), bias = operand(c, "bias", native ? 2 : 3);
    y = affine(c, y, channels(c, weight, rank), channels(c, bias, rank));
    return give(c, 0, y) && give(c, 1, m) && give(c, 2, scale);
}

/* batch_norm with the statistics that were learned. */
static bool lower_batch_norm(ef_aten *c, int param)
{
    ef_dn x = ef_aten_operand(c, "input", 0), m = operand(c, "running_mean", 3), v = operand(c, "running_var", 4);
    unsigned rank = ef_aten_rank(c, x);
    (void)param;
    if (ef_aten_flag(c, "training", EF_NONE, false) || m == EF_NONE || v == EF_NONE)
        return ef_aten_refuse(c, "batch statistics");
    for (uint32_t i = 1; i < c->results; i++)
        if (c->value[i] != EF_NONE)
            return ef_aten_refuse(c, "batch statistics");
    ef_dn scale = ef_u(c, EF_RSQRT, ef_n(c, EF_ADD, v, ef_aten_number(c, "eps", EF_NONE, 1e-5)));
    ef_dn y = ef_b(c, EF_MUL, ef_b(c, EF_SUB, x, channels(c, m, rank)), channels(c, scale, rank));
    return give(c, 0,
                affine(c, y, channels(c, operand(c, "weight", 1), rank), channels(c, operand(c, "bias", 2), rank)));
}

/* Batch norm with the statistics of the batch itself, where nothing keeps them. */
static bool lower_batch_statistics(ef_aten *c, int param)
{
    ef_dn x = ef_aten_operand(c, "input", 0), m, scale;
    unsigned rank = ef_aten_rank(c, x), index[EF_MAX_RANK];
    (void)param;
    if (!ef_aten_flag(c, "training", EF_NONE, false) || ef_aten_has(c, "running_mean", EF_NONE) || rank < 2)
        return ef_aten_refuse(c, "running statistics");
    innermost(rank - 2, index);
    index[rank - 2] = rank - 1; /* all but the channels */
    ef_dn y = ef_aten_standardise(c, x, index, rank - 1, ef_aten_number(c, "eps", EF_NONE, 1e-5), &m, &scale);
    y = affine(c, y, channels(c, operand(c, "weight", 1), rank), channels(c, operand(c, "bias", 2), rank));
    return give(c, 0, y) && give(c, 1, m) && give(c, 2, scale);
}

/* instance_norm with the statistics of each sample and channel. */
static bool lower_instance_norm(ef_aten *c, int param)
{
    ef_dn x = ef_aten_operand(c, "input", 0);
    unsigned rank = ef_aten_rank(c, x), index[EF_MAX_RANK];
    (void)param;
    if (!ef_aten_flag(c, "use_input_stats", 5, true) || rank < 3)
        return ef_aten_refuse(c, "running statistics");
    innermost(rank - 2, index);
    ef_dn y = ef_aten_standardise(c, x, index, rank - 2, ef_aten_number(c, "eps", 7, 1e-5), NULL, NULL);
    return give(c, 0,
                affine(c, y, channels(c, operand(c, "weight", 1), rank), channels(c, operand(c, "bias", 2), rank)));
}

/* x1 · x2 / (max(|x1|, eps) max(|x2|, eps)) along a dimension. */
static bool lower_cosine(ef_aten *c, int param)
{
    ef_dn a = ef_aten_operand(c, "x1", 0), b = ef_aten_operand(c, "x2", 1), ab = ef_b(c, EF_MUL, a, b);
    unsigned index = ef_aten_dim(ef_aten_int(c, "dim", 2, 1), ef_aten_rank(c, ab));
    double eps = ef_aten_number(c, "eps", 3, 1e-8);
    ef_dn norm[2] = {a, b};
    (void)param;
    for (unsigned i = 0; i < 2; i++) {
        if (ef_aten_rank(c, norm[i]) != ef_aten_rank(c, ab))
            return ef_aten_give(c, 0, EF_NONE);
        ef_dn square = ef_dn_reduce(c->draft, EF_RED_SUM, index, ef_b(c, EF_MUL, norm[i], norm[i]));
        norm[i] = ef_n(c, EF_MAX, ef_u(c, EF_SQRT, square), eps);
    }
    ef_dn sum = ef_dn_reduce(c->draft, EF_RED_SUM, index, ab);
    return give(c, 0, ef_b(c, EF_DIV, sum, ef_b(c, EF_MUL, norm[0], norm[1])));
}

const ef_aten_row ef_aten_normalisations[] = {
    {"layer_norm", lower_layer_norm, 0, EF_FRESH},
    {"native_layer_norm", lower_layer_norm, 0, EF_FRESH},
    {"rms_norm", lower_rms_norm, 0, EF_FRESH},
    {"_fused_rms_norm", lower_rms_norm, 0, EF_FRESH},
    {"group_norm", lower_group_norm, 0, EF_FRESH},
    {"native_group_norm", lower_group_norm, 1, EF_FRESH},
    {"batch_norm", lower_batch_norm, 0, EF_FRESH},
    {"_native_batch_norm_legit_no_training", lower_batch_norm, 0, EF_FRESH},
    {"_native_batch_norm_legit", lower_batch_statistics, 0, EF_FRESH},
    {"instance_norm", lower_instance_norm, 0, EF_FRESH},
    {"cosine_similarity", lower_cosine, 0, EF_FRESH},
    {0},
};
