/* Products of ATen: matrix products of all ranks, einsum, and attention. */
#include <math.h>
#include <string.h>

#include "frontend/aten.h"

static ef_dn operand(ef_aten *c, const char *name, uint32_t position)
{
    return ef_dn_cast(c->draft, ef_aten_result_type(c, 0), ef_aten_operand(c, name, position));
}

static bool give(ef_aten *c, ef_dn x)
{
    return ef_aten_give(c, 0, ef_dn_cast(c->draft, ef_aten_result_type(c, 0), x));
}

/* Puts a dimension of size 1 at an index from the last. */
static ef_dn with_unit(ef_aten *c, ef_dn x, unsigned index)
{
    int64_t size[EF_MAX_RANK + 1];
    unsigned rank = ef_aten_rank(c, x), at = rank - index;
    ef_aten_sizes(c, x, size);
    memmove(size + at + 1, size + at, index * sizeof *size);
    size[at] = 1;
    return ef_dn_reshape(c->draft, x, size, rank + 1);
}

static ef_dn without(ef_aten *c, ef_dn x, unsigned index)
{
    int64_t size[EF_MAX_RANK];
    unsigned rank = ef_aten_rank(c, x), at = rank - 1 - index;
    if (x == EF_NONE)
        return EF_NONE;
    ef_aten_sizes(c, x, size);
    memmove(size + at, size + at + 1, index * sizeof *size);
    return ef_dn_reshape(c->draft, x, size, rank - 1);
}

/* ---- matrix products ---- */

/* Vectors become matrices of one row or column, whose dimension then goes away again. */
ef_dn ef_aten_matmul(ef_aten *c, ef_dn a, ef_dn b)
{
    unsigned rank_a = ef_aten_rank(c, a), rank_b = ef_aten_rank(c, b);
    if (a == EF_NONE || b == EF_NONE || rank_a == 0 || rank_b == 0)
        return EF_NONE;
    a = rank_a == 1 ? with_unit(c, a, 1) : a;
    b = rank_b == 1 ? with_unit(c, b, 0) : b;
    ef_dn y = ef_dn_matmul(c->draft, a, b);
    y = rank_a == 1 ? without(c, y, 1) : y;
    return rank_b == 1 ? without(c, y, 0) : y;
}

/* mm, bmm, matmul, mv, dot */
static bool lower_matmul(ef_aten *c, int param)
{
    (void)param;
    return give(c, ef_aten_matmul(c, operand(c, "self", 0), operand(c, "other", 1)));
}

static bool lower_linear(ef_aten *c, int param)
{
    (void)param;
    ef_dn x = operand(c, "input", 0), w = operand(c, "weight", 1);
    if (ef_aten_rank(c, w) == 2)
        w = ef_dn_swap(c->draft, w, 0, 1);
    ef_dn y = ef_aten_matmul(c, x, w);
    if (ef_aten_has(c, "bias", 2))
        y = ef_b(c, EF_ADD, y, operand(c, "bias", 2));
    return give(c, y);
}

/* addmm, baddbmm, addmv: beta * self + alpha * a b; with beta 0 self does not count, whatever it holds. */
static bool lower_added(ef_aten *c, int param)
{
    (void)param;
    double beta = ef_aten_number(c, "beta", 3, 1), alpha = ef_aten_number(c, "alpha", 4, 1);
    ef_dn ab = ef_aten_matmul(c, operand(c, "mat1", 1), operand(c, "mat2", 2)), x = operand(c, "self", 0);
    int64_t size[EF_MAX_RANK];
    ab = alpha == 1 ? ab : ef_n(c, EF_MUL, ab, alpha);
    x = beta == 1 ? x : ef_n(c, EF_MUL, x, beta);
    ab = beta == 0 ? ab : ef_b(c, EF_ADD, x, ab);
    return give(c, ef_dn_broadcast(c->draft, ab, size, ef_aten_result_sizes(c, 0, size)));
}

/* outer, ger */
static bool lower_outer(ef_aten *c, int param)
{
    (void)param;
    ef_dn a = operand(c, "self", 0), b = operand(c, "vec2", 1);
    return give(c, ef_b(c, EF_MUL, a == EF_NONE ? a : with_unit(c, a, 0), b));
}

/* ---- einsum ---- */

#define LETTERS 52
#define ABSENT UINT32_MAX

typedef struct {
    unsigned count;
    uint8_t letter[EF_MAX_RANK]; /* outermost first */
} subscript;

/* Reads letters up to `end` or a comma; spaces do not count. An ellipsis is refused. */
static bool read_subscript(const char **text, subscript *s)
{
    s->count = 0;
    for (; **text && **text != ',' && **text != '-'; ++*text) {
        char ch = **text;
        bool lower = ch >= 'a' && ch <= 'z', upper = ch >= 'A' && ch <= 'Z';
        if (ch == ' ')
            continue;
        if ((!lower && !upper) || s->count == EF_MAX_RANK)
            return false;
        s->letter[s->count++] = (uint8_t)(lower ? ch - 'a' : ch - 'A' + 26);
    }
    return true;
}

static unsigned position_of(const subscript *s, uint8_t letter)
{
    for (unsigned i = 0; i < s->count; i++)
        if (s->letter[i] == letter)
            return i;
    return ABSENT;
}

static bool repeats(const subscript *s)
{
    for (unsigned i = 0; i < s->count; i++)
        if (position_of(s, s->letter[i]) != i)
            return true;
    return false;
}

/* Sums over the letters that nobody else has. */
static ef_dn sum_private(ef_aten *c, ef_dn x, subscript *s, const subscript *other, const subscript *out)
{
    for (unsigned i = s->count; i-- > 0;) {
        if ((other && position_of(other, s->letter[i]) != ABSENT) || position_of(out, s->letter[i]) != ABSENT)
            continue;
        unsigned index = s->count - 1 - i;
        x = without(c, ef_dn_reduce(c->draft, EF_RED_SUM, index, x), index);
        memmove(s->letter + i, s->letter + i + 1, index);
        s->count--;
    }
    return x;
}

/* x with the letters in this order; all of them are there. */
static ef_dn arrange(ef_aten *c, ef_dn x, const subscript *from, const subscript *to)
{
    unsigned order[EF_MAX_RANK];
    for (unsigned i = 0; i < to->count; i++)
        order[i] = position_of(from, to->letter[i]);
    return ef_dn_permute(c->draft, x, order);
}

static void append(subscript *s, const subscript *letters)
{
    for (unsigned i = 0; i < letters->count; i++)
        s->letter[s->count++] = letters->letter[i];
}

/* The sizes of a group of letters merged into one. */
static int64_t merged(ef_aten *c, ef_dn x, const subscript *s, const subscript *group)
{
    int64_t size = 1;
    for (unsigned i = 0; i < group->count; i++)
        size *= (int64_t)ef_dn_size(c->draft, x, s->count - 1 - position_of(s, group->letter[i]));
    return size;
}

static unsigned list_sizes(ef_aten *c, ef_dn x, const subscript *s, const subscript *group, int64_t *size)
{
    for (unsigned i = 0; i < group->count; i++)
        size[i] = (int64_t)ef_dn_size(c->draft, x, s->count - 1 - position_of(s, group->letter[i]));
    return group->count;
}

/* One contraction: shared letters that the result has are batch, other shared ones are summed; when there are none it
 * is a broadcast product. The result is [batch letters, a's own as one, b's own as one]. */
static ef_dn contract(ef_aten *c, ef_dn a, const subscript *s, ef_dn b, const subscript *t, const subscript *out)
{
    subscript batch = {0}, sum = {0}, left = {0}, right = {0}, order = {0};
    for (unsigned i = 0; i < s->count; i++) {
        subscript one = {1, {s->letter[i]}};
        bool shared = position_of(t, s->letter[i]) != ABSENT, kept = position_of(out, s->letter[i]) != ABSENT;
        append(!shared ? &left : kept ? &batch : &sum, &one);
    }
    for (unsigned i = 0; i < t->count; i++)
        if (position_of(s, t->letter[i]) == ABSENT) {
            subscript one = {1, {t->letter[i]}};
            append(&right, &one);
        }
    int64_t size[2 * EF_MAX_RANK], m = merged(c, a, s, &left), k = merged(c, a, s, &sum), n = merged(c, b, t, &right);
    unsigned rank = list_sizes(c, a, s, &batch, size);
    if (batch.count + left.count + right.count > EF_MAX_RANK || batch.count + 2 > EF_MAX_RANK)
        return EF_NONE;
    append(&order, &batch);
    append(&order, &left);
    append(&order, &sum);
    a = arrange(c, a, s, &order);
    size[rank] = m;
    size[rank + 1] = k;
    a = ef_dn_reshape(c->draft, a, size, rank + 2);
    order = batch;
    append(&order, &sum);
    append(&order, &right);
    b = arrange(c, b, t, &order);
    size[rank] = k;
    size[rank + 1] = n;
    b = ef_dn_reshape(c->draft, b, size, rank + 2);
    return sum.count ? ef_dn_matmul(c->draft, a, b) : ef_b(c, EF_MUL, a, b);
}

/* The same with every letter a dimension; *s becomes the result's letters. */
static ef_dn contract_pair(ef_aten *c, ef_dn a, subscript *s, ef_dn b, subscript *t, const subscript *out)
{
    int64_t size[EF_MAX_RANK];
    subscript result = {0};
    for (unsigned pass = 0; pass < 3; pass++) { /* batch, a's own, b's own */
        const subscript *from = pass == 2 ? t : s, *other = pass == 2 ? s : t;
        for (unsigned i = 0; i < from->count; i++) {
            subscript one = {1, {from->letter[i]}};
            bool shared = position_of(other, from->letter[i]) != ABSENT;
            bool kept = position_of(out, from->letter[i]) != ABSENT;
            if (shared != (pass == 0) || (shared && !kept))
                continue;
            if (result.count == EF_MAX_RANK)
                return EF_NONE;
            size[result.count] = (int64_t)ef_dn_size(c->draft, pass == 2 ? b : a, from->count - 1 - i);
            append(&result, &one);
        }
    }
    ef_dn y = ef_dn_reshape(c->draft, contract(c, a, s, b, t, out), size, result.count);
    *s = result;
    return y;
}

/* The letters that later operands or the result still need. */
static subscript needed(const subscript *list, unsigned from, unsigned count, const subscript *out)
{
    bool seen[LETTERS] = {false};
    subscript all = {0};
    for (unsigned i = from; i <= count; i++) {
        const subscript *s = i == count ? out : &list[i];
        for (unsigned k = 0; k < s->count; k++)
            if (!seen[s->letter[k]] && all.count < EF_MAX_RANK) {
                seen[s->letter[k]] = true;
                all.letter[all.count++] = s->letter[k];
            }
    }
    return all;
}

/* Without "->": the letters that occur once, in alphabetical order, capitals first. */
static void implicit_result(const subscript *list, unsigned count, subscript *out)
{
    for (unsigned at = 0; at < LETTERS; at++) {
        uint8_t letter = (uint8_t)((at + 26) % LETTERS);
        unsigned uses = 0;
        for (unsigned i = 0; i < count; i++)
            uses += position_of(&list[i], letter) != ABSENT;
        if (uses == 1 && out->count < EF_MAX_RANK)
            out->letter[out->count++] = letter;
    }
}

static bool lower_einsum(ef_aten *c, int param)
{
    (void)param;
    ef_dn x[EF_MAX_FIELDS];
    subscript list[EF_MAX_FIELDS], out = {0};
    unsigned count = ef_aten_operands(c, "tensors", 1, x, EF_MAX_FIELDS);
    const char *text = ef_aten_text(c, "equation", 0, "");
    for (unsigned i = 0; i < count; i++) {
        x[i] = ef_dn_cast(c->draft, ef_aten_result_type(c, 0), x[i]);
        if (!read_subscript(&text, &list[i]) || repeats(&list[i]) || list[i].count != ef_aten_rank(c, x[i]))
            return ef_aten_refuse(c, "an einsum with an ellipsis or a diagonal");
        text += *text == ',';
    }
    if (text[0] == '-' && text[1] == '>') {
        text += 2;
        if (!read_subscript(&text, &out) || repeats(&out))
            return ef_aten_refuse(c, "an einsum with an ellipsis");
    } else
        implicit_result(list, count, &out);
    if (count == 0)
        return ef_aten_give(c, 0, EF_NONE);
    for (unsigned i = 1; i < count && x[0] != EF_NONE; i++) {
        subscript rest = needed(list, i + 1, count, &out);
        x[0] = sum_private(c, x[0], &list[0], &list[i], &rest);
        x[i] = sum_private(c, x[i], &list[i], &list[0], &rest);
        x[0] = contract_pair(c, x[0], &list[0], x[i], &list[i], &rest);
    }
    x[0] = x[0] == EF_NONE ? EF_NONE : sum_private(c, x[0], &list[0], NULL, &out);
    return give(c, x[0] == EF_NONE ? EF_NONE : arrange(c, x[0], &list[0], &out));
}

/* ---- attention ---- */

/* Repeats the heads of keys or values so that each serves a group of query heads. */
static ef_dn repeat_heads(ef_aten *c, ef_dn x, uint64_t heads)
{
    int64_t size[EF_MAX_RANK + 1];
    unsigned rank = ef_aten_rank(c, x);
    uint64_t own = ef_dn_size(c->draft, x, 2);
    if (own == heads)
        return x;
    if (rank == EF_MAX_RANK || own == 0 || heads % own)
        return EF_NONE;
    x = with_unit(c, x, 2);
    ef_aten_sizes(c, x, size);
    size[rank - 2] = (int64_t)(heads / own);
    x = ef_dn_broadcast(c->draft, x, size, rank + 1);
    size[rank - 3] = (int64_t)heads;
    memmove(size + rank - 2, size + rank - 1, 2 * sizeof *size);
    return ef_dn_reshape(c->draft, x, size, rank);
}

/* Scores with what the mask hides at minus infinity. */
static ef_dn masked(ef_aten *c, ef_dn scores, ef_dn mask)
{
    if (ef_aten_dtype(c, mask) == EF_BOOL)
        return ef_dn_select(c->draft, mask, scores, ef_dn_number(c->draft, -INFINITY));
    return ef_b(c, EF_ADD, scores, mask);
}

/* A row that a mask hides entirely gives 0; that is said only for masks that may do so. */
static ef_dn attention(ef_aten *c, ef_dn q, ef_dn k, ef_dn v, ef_dn mask)
{
    double scale = ef_aten_number(c, "scale", EF_NONE, 1 / sqrt((double)ef_dn_size(c->draft, q, 0)));
    ef_dn scores = ef_n(c, EF_MUL, ef_dn_matmul(c->draft, q, ef_dn_swap(c->draft, k, 0, 1)), scale);
    if (scores != EF_NONE && ef_aten_flag(c, "is_causal", EF_NONE, false)) {
        uint64_t rows = ef_dn_size(c->draft, scores, 1), columns = ef_dn_size(c->draft, scores, 0);
        scores = masked(c, scores, ef_aten_triangle(c, rows, columns, 0, true));
    }
    if (mask != EF_NONE)
        scores = masked(c, scores, mask);
    ef_dn y = ef_dn_matmul(c->draft, ef_aten_softmax(c, scores, 0), v);
    if (mask == EF_NONE || ef_dn_rows_seen(c->draft, mask))
        return y;
    ef_dn hidden = ef_n(c, EF_EQ, ef_dn_reduce(c->draft, EF_RED_MAX, 0, scores), -INFINITY);
    return ef_dn_select(c->draft, hidden, ef_dn_number(c->draft, 0), y);
}

/* The composite operator, and the fused ones that it becomes on a device: their further results are for training. */
static bool lower_attention(ef_aten *c, int param)
{
    (void)param;
    ef_dn q = operand(c, "query", 0), k = operand(c, "key", 1), v = operand(c, "value", 2);
    const char *mask = ef_aten_has(c, "attn_bias", EF_NONE) ? "attn_bias" : "attn_mask";
    if (ef_aten_number(c, "dropout_p", EF_NONE, 0) != 0)
        return ef_aten_refuse(c, "dropout in training");
    for (uint32_t i = 1; i < c->results; i++)
        if (c->value[i] != EF_NONE)
            return ef_aten_refuse(c, "results of attention for training");
    if (q == EF_NONE || k == EF_NONE || v == EF_NONE || ef_aten_rank(c, q) < 2)
        return ef_aten_give(c, 0, EF_NONE);
    if (ef_aten_flag(c, "enable_gqa", EF_NONE, false) && ef_aten_rank(c, q) > 2) {
        k = repeat_heads(c, k, ef_dn_size(c->draft, q, 2));
        v = repeat_heads(c, v, ef_dn_size(c->draft, q, 2));
    }
    return give(c, attention(c, q, k, v, ef_aten_operand(c, mask, EF_NONE)));
}

const ef_aten_row ef_aten_products[] = {
    {"mm", lower_matmul, 0, EF_FRESH},
    {"bmm", lower_matmul, 0, EF_FRESH},
    {"matmul", lower_matmul, 0, EF_FRESH},
    {"linalg_matmul", lower_matmul, 0, EF_FRESH},
    {"mv", lower_matmul, 0, EF_FRESH},
    {"dot", lower_matmul, 0, EF_FRESH},
    {"vdot", lower_matmul, 0, EF_FRESH},
    {"linear", lower_linear, 0, EF_FRESH},
    {"addmm", lower_added, 0, EF_FRESH},
    {"baddbmm", lower_added, 0, EF_FRESH},
    {"addmv", lower_added, 0, EF_FRESH},
    {"outer", lower_outer, 0, EF_FRESH},
    {"ger", lower_outer, 0, EF_FRESH},
    {"einsum", lower_einsum, 0, EF_FRESH},
    {"scaled_dot_product_attention", lower_attention, 0, EF_FRESH},
    {"_scaled_dot_product_flash_attention_for_cpu", lower_attention, 0, EF_FRESH},
    {"_scaled_dot_product_flash_attention", lower_attention, 0, EF_FRESH},
    {"_scaled_dot_product_efficient_attention", lower_attention, 0, EF_FRESH},
    {"_scaled_dot_product_cudnn_attention", lower_attention, 0, EF_FRESH},
    {0},
};
