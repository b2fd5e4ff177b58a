/* Index arithmetic: see index.h. */
#include "codegen/index.h"

#include <inttypes.h>
#include <string.h>

#include "support/hash.h"
#include "support/vec.h"

#define MAX_TERMS 24

typedef enum { NAME, QUOTIENT, REMAINDER, CLAMPED, WHOLE } symbol_kind;

typedef struct {
    symbol_kind kind;
    ef_index operand; /* all but NAME */
    uint64_t by;      /* QUOTIENT, REMAINDER: divisor; CLAMPED: limit */
    uint64_t limit;   /* values are below it; 0: not known */
    char name[96];    /* NAME */
} symbol;

typedef struct {
    uint32_t symbol, unused;
    int64_t coefficient;
} term;

typedef struct {
    int64_t constant;
    uint32_t terms, unused;
    term term[MAX_TERMS];
} sum;

struct ef_indexer {
    ef_intern *sums, *names;
    EF_VEC(symbol) symbols;
};

ef_indexer *ef_indexer_new(void)
{
    ef_indexer *x = ef_xcalloc(1, sizeof *x);
    x->sums = ef_intern_new();
    x->names = ef_intern_new();
    return x;
}

void ef_indexer_free(ef_indexer *x)
{
    ef_intern_free(x->sums);
    ef_intern_free(x->names);
    ef_vec_free(&x->symbols);
    free(x);
}

static ef_index intern(ef_indexer *x, const sum *s)
{
    return ef_intern_put(x->sums, s, offsetof(sum, term) + s->terms * sizeof(term), NULL);
}

/* A full copy: what is stored ends after its terms. */
static sum sum_at(const ef_indexer *x, ef_index a)
{
    sum s = {0};
    size_t size;
    const void *bytes = ef_intern_at(x->sums, a, &size);
    memcpy(&s, bytes, size);
    return s;
}

static ef_index of_symbol(ef_indexer *x, symbol_kind kind, ef_index operand, uint64_t by, uint64_t limit,
                          const char *name)
{
    symbol key;
    memset(&key, 0, sizeof key);
    key.kind = kind;
    key.operand = operand;
    key.by = by;
    if (name)
        strncpy(key.name, name, sizeof key.name - 1);
    int fresh;
    uint32_t at = ef_intern_put(x->names, &key, sizeof key, &fresh);
    if (fresh) {
        key.limit = limit;
        ef_vec_push(&x->symbols, key);
    }
    sum s = {.terms = 1, .term = {{.symbol = at, .coefficient = 1}}};
    return intern(x, &s);
}

ef_index ef_index_const(ef_indexer *x, int64_t value)
{
    sum s = {.constant = value};
    return intern(x, &s);
}

ef_index ef_index_name(ef_indexer *x, const char *name, uint64_t limit)
{
    return of_symbol(x, NAME, 0, 0, limit, name);
}

bool ef_index_is_const(const ef_indexer *x, ef_index a, int64_t *value)
{
    sum s = sum_at(x, a);
    *value = s.constant;
    return s.terms == 0;
}

/* ---- sums ---- */

static void add_term(sum *s, uint32_t at, int64_t coefficient)
{
    unsigned i = 0;
    while (i < s->terms && s->term[i].symbol < at)
        i++;
    if (i < s->terms && s->term[i].symbol == at) {
        s->term[i].coefficient += coefficient;
        if (s->term[i].coefficient == 0)
            memmove(s->term + i, s->term + i + 1, (--s->terms - i) * sizeof *s->term);
        return;
    }
    memmove(s->term + i + 1, s->term + i, (s->terms++ - i) * sizeof *s->term);
    s->term[i] = (term){.symbol = at, .coefficient = coefficient};
}

static ef_index add_scaled(ef_indexer *x, ef_index a, ef_index b, int64_t factor)
{
    sum s = sum_at(x, a), t = sum_at(x, b);
    if (s.terms + t.terms >= MAX_TERMS) { /* the long sum becomes one term */
        ef_index whole = of_symbol(x, WHOLE, a, 0, 0, NULL);
        return add_scaled(x, whole, t.terms > MAX_TERMS / 2 ? of_symbol(x, WHOLE, b, 0, 0, NULL) : b, factor);
    }
    s.constant += factor * t.constant;
    for (unsigned i = 0; i < t.terms; i++)
        add_term(&s, t.term[i].symbol, factor * t.term[i].coefficient);
    return intern(x, &s);
}

ef_index ef_index_add(ef_indexer *x, ef_index a, ef_index b)
{
    return add_scaled(x, a, b, 1);
}

ef_index ef_index_sub(ef_indexer *x, ef_index a, ef_index b)
{
    return add_scaled(x, a, b, -1);
}

ef_index ef_index_scale(ef_indexer *x, ef_index a, int64_t factor)
{
    return factor == 0 ? ef_index_const(x, 0) : add_scaled(x, ef_index_const(x, 0), a, factor);
}

/* ---- quotients and remainders ---- */

/* An upper bound of a sum (exclusive), 0 when none is known or a term may be negative. */
static uint64_t limit_of(const ef_indexer *x, const sum *s)
{
    uint64_t limit = s->constant < 0 ? 0 : (uint64_t)s->constant + 1;
    for (unsigned i = 0; limit && i < s->terms; i++) {
        uint64_t most = x->symbols.at[s->term[i].symbol].limit;
        if (most == 0 || s->term[i].coefficient < 0)
            return 0;
        limit += (most - 1) * (uint64_t)s->term[i].coefficient;
    }
    return limit;
}

/* a = by * multiple + rest, the terms that `by` divides apart from the others. */
static void split(ef_indexer *x, ef_index a, uint64_t by, ef_index *multiple, ef_index *rest)
{
    sum s = sum_at(x, a), m = {0}, r = {0};
    int64_t d = (int64_t)by;
    m.constant = s.constant / d;
    r.constant = s.constant % d;
    for (unsigned i = 0; i < s.terms; i++) {
        term t = s.term[i];
        sum *to = t.coefficient % d == 0 ? &m : &r;
        add_term(to, t.symbol, t.coefficient % d == 0 ? t.coefficient / d : t.coefficient);
    }
    *multiple = intern(x, &m);
    *rest = intern(x, &r);
}

ef_index ef_index_div(ef_indexer *x, ef_index a, uint64_t by)
{
    ef_index multiple, rest;
    if (by == 1)
        return a;
    split(x, a, by, &multiple, &rest);
    sum r = sum_at(x, rest);
    uint64_t limit = limit_of(x, &r);
    if (limit && limit <= by)
        return multiple;
    if (limit == 0) /* the rest may be negative alone */
        return of_symbol(x, QUOTIENT, a, by, 0, NULL);
    return ef_index_add(x, multiple, of_symbol(x, QUOTIENT, rest, by, (limit + by - 1) / by, NULL));
}

ef_index ef_index_mod(ef_indexer *x, ef_index a, uint64_t by)
{
    ef_index multiple, rest;
    if (by == 1)
        return ef_index_const(x, 0);
    split(x, a, by, &multiple, &rest);
    sum r = sum_at(x, rest);
    uint64_t limit = limit_of(x, &r);
    if (limit && limit <= by)
        return rest;
    return of_symbol(x, REMAINDER, limit == 0 ? a : rest, by, by, NULL);
}

ef_index ef_index_clamp(ef_indexer *x, ef_index a, uint64_t limit)
{
    return of_symbol(x, CLAMPED, a, limit, limit, NULL);
}

/* ---- reading ---- */

static bool depends(const ef_indexer *x, ef_index a, uint32_t on)
{
    sum s = sum_at(x, a);
    for (unsigned i = 0; i < s.terms; i++) {
        const symbol *at = &x->symbols.at[s.term[i].symbol];
        if (s.term[i].symbol == on || (at->kind != NAME && depends(x, at->operand, on)))
            return true;
    }
    return false;
}

bool ef_index_coefficient(ef_indexer *x, ef_index a, ef_index name, int64_t *coefficient)
{
    sum s = sum_at(x, a), n = sum_at(x, name);
    uint32_t on = n.term[0].symbol;
    *coefficient = 0;
    for (unsigned i = 0; i < s.terms; i++) {
        const symbol *at = &x->symbols.at[s.term[i].symbol];
        if (s.term[i].symbol == on)
            *coefficient = s.term[i].coefficient;
        else if (at->kind != NAME && depends(x, at->operand, on))
            return false;
    }
    return true;
}

bool ef_index_depends(ef_indexer *x, ef_index a, ef_index name)
{
    sum n = sum_at(x, name);
    return depends(x, a, n.term[0].symbol);
}

ef_index ef_index_part(ef_indexer *x, ef_index a, const ef_index *name, unsigned count)
{
    sum s = sum_at(x, a), part = {0};
    for (unsigned i = 0; i < s.terms; i++) {
        sum one = {.terms = 1, .term = {{.symbol = s.term[i].symbol, .coefficient = 1}}};
        ef_index alone = intern(x, &one);
        bool on = false;
        for (unsigned n = 0; n < count; n++)
            on = on || ef_index_depends(x, alone, name[n]);
        if (on)
            part.term[part.terms++] = s.term[i];
    }
    return intern(x, &part);
}

ef_index ef_index_rename(ef_indexer *x, ef_index a, ef_index name, ef_index other)
{
    sum s = sum_at(x, a), n = sum_at(x, name), o = sum_at(x, other), out = {.constant = s.constant};
    uint32_t on = n.term[0].symbol;
    for (unsigned i = 0; i < s.terms; i++) {
        symbol at = x->symbols.at[s.term[i].symbol]; /* a copy: the others may move */
        uint32_t as = s.term[i].symbol == on ? o.term[0].symbol : s.term[i].symbol;
        if (at.kind != NAME && depends(x, at.operand, on)) {
            ef_index operand = ef_index_rename(x, at.operand, name, other);
            sum one = sum_at(x, of_symbol(x, at.kind, operand, at.by, at.limit, NULL));
            as = one.term[0].symbol;
        }
        add_term(&out, as, s.term[i].coefficient);
    }
    return intern(x, &out);
}

/* ---- printing ---- */

/* How a language writes what is no name; clamping is a function of the support code, or two of the language. */
typedef struct {
    const char *divide;
    bool clamp_function; /* ef_clamp(value, limit) */
} syntax;

static const syntax c_syntax = {"/", true}, triton_syntax = {"//", false};

static void print_sum(const ef_indexer *x, ef_index a, const syntax *as, ef_strbuf *out);

static void print_symbol(const ef_indexer *x, const symbol *s, const syntax *as, ef_strbuf *out)
{
    if (s->kind == NAME) {
        ef_strbuf_puts(out, s->name);
        return;
    }
    if (s->kind == CLAMPED && as->clamp_function)
        ef_strbuf_puts(out, "ef_clamp(");
    else if (s->kind == CLAMPED)
        ef_strbuf_printf(out, "tl.minimum(%" PRIu64 ", tl.maximum(0, ", s->by - 1);
    else
        ef_strbuf_puts(out, s->kind == WHOLE ? "(" : "((");
    print_sum(x, s->operand, as, out);
    switch (s->kind) {
    case QUOTIENT: ef_strbuf_printf(out, ") %s %" PRIu64 ")", as->divide, s->by); break;
    case REMAINDER: ef_strbuf_printf(out, ") %% %" PRIu64 ")", s->by); break;
    case CLAMPED:
        if (as->clamp_function)
            ef_strbuf_printf(out, ", %" PRIu64 ")", s->by);
        else
            ef_strbuf_puts(out, "))");
        break;
    default: ef_strbuf_puts(out, ")"); break;
    }
}

/* Positive terms first, the constant last. */
static void print_sum(const ef_indexer *x, ef_index a, const syntax *as, ef_strbuf *out)
{
    sum s = sum_at(x, a);
    bool any = false;
    for (int sign = 1; sign >= -1; sign -= 2)
        for (unsigned i = 0; i < s.terms; i++) {
            int64_t c = s.term[i].coefficient;
            if ((c > 0) != (sign > 0))
                continue;
            ef_strbuf_puts(out, sign > 0 ? (any ? " + " : "") : (any ? " - " : "-"));
            if (c != 1 && c != -1)
                ef_strbuf_printf(out, "%" PRId64 " * ", c < 0 ? -c : c);
            print_symbol(x, &x->symbols.at[s.term[i].symbol], as, out);
            any = true;
        }
    if (!any)
        ef_strbuf_printf(out, "%" PRId64, s.constant);
    else if (s.constant)
        ef_strbuf_printf(out, " %c %" PRId64, s.constant < 0 ? '-' : '+', s.constant < 0 ? -s.constant : s.constant);
}

void ef_index_print(const ef_indexer *x, ef_index a, ef_strbuf *out)
{
    print_sum(x, a, &c_syntax, out);
}

void ef_index_print_triton(const ef_indexer *x, ef_index a, ef_strbuf *out)
{
    print_sum(x, a, &triton_syntax, out);
}
