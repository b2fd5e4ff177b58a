/* Extraction (paper, section 5.1): every candidate computes the program, and compaction loses none.
 *
 * Candidates are evaluated in float64 at small, odd sizes and random tilings and compared with the program. The sets of
 * distinct candidates of `after` and `early` are compared wherever both enumerations finish. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "ir/eval.h"
#include "kernel/kernel.h"
#include "search/extract.h"
#include "support/rng.h"
#include "target/target.h"

#define RANDOM_PROGRAMS 60
#ifndef FIRST_SEED
#define FIRST_SEED 1000
#endif

typedef struct {
    ef_ctx *ctx;
    ef_program *program;
    ef_search *search;
} saturated;

/* A path, or the text of a program. */
static saturated saturate(const char *source)
{
    ef_diag diag = {0};
    saturated s = {.ctx = ef_ctx_new()};
    if (strchr(source, '\n'))
        s.program = ef_program_parse(s.ctx, source, strlen(source), "inline", &diag);
    else
        s.program = ef_program_read(s.ctx, source, &diag);
    if (!s.program)
        fail_msg("%s: %s", diag.text, source);
    s.search = ef_search_new(s.program, &(ef_search_options){0}, &diag);
    assert_non_null(s.search);
    if (!ef_search_saturate(s.search, &diag))
        fail_msg("%s: %s", source, diag.text);
    return s;
}

static void release(saturated *s)
{
    ef_search_free(s->search);
    ef_program_free(s->program);
    ef_ctx_free(s->ctx);
}

/* How inputs are drawn: normal numbers; with stretches of zeros along the last and the first dimension; and, where the
 * program knows -inf, with stretches of that along the last one, as masks have. */
typedef struct {
    uint64_t seed;
    enum { NORMAL, ZEROS, MASKS } kind;
} distribution;

static void random_input(void *user, uint32_t input, ef_tensor *out)
{
    const distribution *d = user;
    ef_rng rng = {d->seed + 7919u * input};
    uint64_t size = 1, row = out->rank ? out->extent[out->rank - 1] : 1;
    for (unsigned i = 0; i < out->rank; i++)
        size *= out->extent[i];
    for (uint64_t i = 0; i < size; i++)
        out->data[i] = ef_rng_normal(&rng);
    if (d->kind == NORMAL || size == 0)
        return;
    uint64_t slice = size / (out->rank ? out->extent[0] : 1), rows = size / row;
    if (rows > 1 && ef_rng_below(&rng, 2)) { /* whole rows */
        uint64_t first = ef_rng_below(&rng, (uint32_t)rows), count = 1 + ef_rng_below(&rng, 2);
        for (uint64_t i = first * row; i < (first + count) * row && i < size; i++)
            out->data[i] = 0;
    }
    if (out->rank && out->extent[0] > 1 && ef_rng_below(&rng, 2)) /* a whole slice of the first dimension */
        memset(out->data + ef_rng_below(&rng, (uint32_t)out->extent[0]) * slice, 0, slice * sizeof *out->data);
    if (row > 1 && ef_rng_below(&rng, 2)) { /* whole columns, or a masked stretch of every row */
        uint64_t first = ef_rng_below(&rng, (uint32_t)row), count = 1 + ef_rng_below(&rng, 2);
        double value = d->kind == MASKS && input == 0 ? -INFINITY : 0;
        for (uint64_t r = 0; r < rows; r++)
            for (uint64_t i = first; i < first + count && i < row; i++)
                out->data[r * row + i] = value;
    }
}

/* Whether a number is written in the program: rules that speak of an extent hold for variables of that extent. */
static bool is_literal(const ef_program *program, double value)
{
    for (ef_expr e = 0; e < ef_dag_count(program->dag); e++)
        if (ef_dag_op(program->dag, e) == EF_CONST && ef_attr_to_number(ef_dag_attr(program->dag, e)) == value)
            return true;
    return false;
}

/* Whether the program reduces a variable: rules ask for the extent of what is reduced. */
static bool is_reduced(const saturated *s, ef_var var)
{
    for (ef_expr e = 0; e < ef_dag_count(s->program->dag); e++) {
        const ef_expr *child;
        const ef_var *atoms;
        if (ef_dag_op(s->program->dag, e) != EF_REDUCE)
            continue;
        ef_dag_children(s->program->dag, e, &child);
        const ef_type_info *t = ef_type_at(s->ctx, ef_dag_type(s->program->dag, child[0]));
        unsigned count = ef_dim_atoms(s->ctx, t->dim[ef_attr_reduce_at(ef_dag_attr(s->program->dag, e))], &atoms);
        for (unsigned i = 0; i < count; i++)
            if (atoms[i] == var)
                return true;
    }
    return false;
}

#define MAX_VARS 64

/* Sizes that no tile divides, but for the variables that algebra speaks of. */
static void shrink(const saturated *s, uint64_t seed, bool kept[MAX_VARS])
{
    ef_rng rng = {seed};
    assert_true(ef_var_count(s->ctx) <= MAX_VARS);
    for (ef_var var = 0; var < ef_var_count(s->ctx); var++)
        if (!kept[var])
            ef_var_resize(s->ctx, var, 2 + ef_rng_below(&rng, 6));
}

/* Tiles 1 to 4 for every axis of every variable; some hundreds for those that kept their size. */
static unsigned draw_tiles(ef_ctx *ctx, ef_rng *rng, const bool *kept, ef_tile *tile, unsigned limit)
{
    unsigned n = 0;
    for (ef_var var = 0; var < ef_var_count(ctx); var++)
        for (unsigned level = 0; level < 2 && n < limit; level++)
            tile[n++] = (ef_tile){ef_axis_of(var, level), (kept[var] ? 300 : 1) + ef_rng_below(rng, 4)};
    return n;
}

/* Rows that are masked entirely give NaN in a softmax: every candidate must give NaN there, and nowhere else. */
static double poisoned_difference(const ef_evaluation *want, const ef_evaluation *have, uint32_t output)
{
    const ef_tensor *a = ef_evaluation_at(want, output, 0), *b = ef_evaluation_at(have, output, 0);
    double largest = 0, scale = 1e-3;
    uint64_t size = 1;
    for (unsigned i = 0; i < a->rank; i++)
        size *= a->extent[i];
    for (uint64_t i = 0; i < size; i++) {
        if (isnan(a->data[i]) && isnan(b->data[i]))
            continue;
        if (!isfinite(a->data[i]) || !isfinite(b->data[i])) {
            largest = a->data[i] == b->data[i] ? largest : INFINITY;
            continue;
        }
        largest = fmax(largest, fabs(a->data[i] - b->data[i]));
        scale = fmax(scale, fabs(a->data[i]));
    }
    return largest / scale;
}

static void compare(const saturated *s, const char *path, const ef_extraction *e, uint32_t index, const bool *kept,
                    distribution *d)
{
    ef_tile tile[2 * MAX_VARS];
    ef_rng rng = {d->seed};
    ef_diag diag = {0};
    uint32_t outputs = s->program->outputs;
    ef_expr root[16];
    assert_true(outputs <= 16);
    for (uint32_t i = 0; i < outputs; i++)
        root[i] = s->program->output[i].expr;
    bool masks = is_literal(s->program, -INFINITY);
    ef_tiling tiling = {tile, draw_tiles(s->ctx, &rng, kept, tile, 2 * MAX_VARS), 2};
    ef_evaluation *want = ef_evaluate(s->program->dag, root, outputs, &tiling, random_input, d, 0, &diag);
    ef_evaluation *have =
        ef_evaluate(e->dag, e->candidate.at[index].output, outputs, &tiling, random_input, d, 0, &diag);
    if (!want || !have)
        fail_msg("%s, candidate %u: %s", path, index, diag.text);
    for (uint32_t i = 0; i < outputs; i++) {
        double difference =
            masks ? poisoned_difference(want, have, i) : ef_evaluation_difference(want, i, have, i, 1e-3);
        if (difference <= 1e-9)
            continue;
        ef_strbuf text = {0};
        ef_expr_print(e->dag, e->candidate.at[index].output[i], &text);
        fail_msg("%s, candidate %u, output %u, inputs %d: differs by %g: %s", path, index, i, (int)d->kind, difference,
                 text.text);
    }
    ef_evaluation_free(want);
    ef_evaluation_free(have);
}

static void test_candidates_compute_the_program(void **state)
{
    (void)state;
    static const char *const paths[] = {
        "tests/programs/gated_mlp_b16.ef",
        "tests/programs/gated_mlp_b1.ef",
        "tests/programs/lora_b16.ef",
        "tests/programs/lora_b1.ef",
        "tests/programs/ngpt_b16.ef",
        "tests/programs/rmsnorm_linear_b16.ef",
        "tests/programs/rmsnorm_linear_b1.ef",
        "tests/programs/rmsnorm_mlp_b16.ef",
        "tests/programs/rmsnorm_swiglu_b8.ef",
        "tests/programs/layernorm_gemm_b16.ef",
        "tests/programs/mha_decode_b1.ef",
        "tests/programs/mha_decode_b16.ef",
        "tests/programs/mha_prefill_b16.ef",
        "tests/programs/variants/sinks.ef",
        "tests/programs/variants/gqa_decode.ef",
        "tests/programs/variants/hidden_rows.ef",
    };
    for (unsigned p = 0; p < sizeof paths / sizeof *paths; p++) {
        saturated s = saturate(paths[p]);
        ef_extract_options options = {.compaction = EF_COMPACT_EARLY, .time_limit = 60, .keep = 60};
        ef_extraction *e = ef_extract(s.search, &options);
        assert_true(e->candidate.count > 0);
        bool kept[MAX_VARS] = {false};
        for (ef_var var = 0; var < ef_var_count(s.ctx) && var < MAX_VARS; var++)
            kept[var] = is_literal(s.program, (double)ef_var_at(s.ctx, var)->extent) && is_reduced(&s, var);
        bool masks = is_literal(s.program, -INFINITY), large = memchr(kept, true, sizeof kept);
        for (uint32_t i = 0; i < e->candidate.count; i++) {
            distribution d = {1000u * p + i, NORMAL};
            shrink(&s, d.seed, kept);
            for (; d.kind <= (masks ? MASKS : ZEROS); d.kind++)
                if (!large || (i + d.kind) % 2 == 0) /* large: one distribution each, in turn */
                    compare(&s, paths[p], e, i, kept, &d);
        }
        ef_extraction_free(e);
        release(&s);
    }
}

/* Compares the sets of candidates of the modes. False where `after` takes more states than the limit. */
static bool compare_modes(const char *source, uint64_t limit, bool all)
{
    saturated s = saturate(source);
    ef_extraction *e[3] = {NULL};
    static const ef_compaction order[] = {EF_COMPACT_AFTER, EF_COMPACT_EARLY, EF_COMPACT_NONE};
    for (unsigned i = 0; i < 2u + all; i++) {
        e[order[i]] = ef_extract(
            s.search, &(ef_extract_options){.compaction = order[i], .time_limit = 100, .state_limit = limit});
        if (!e[order[i]]->complete && order[i] == EF_COMPACT_AFTER && limit)
            break;
        if (!e[order[i]]->complete)
            fail_msg("mode %d does not end: %s", (int)order[i], source);
    }
    const ef_extraction *after = e[EF_COMPACT_AFTER], *early = e[EF_COMPACT_EARLY], *none = e[EF_COMPACT_NONE];
    if (early) {
        if (early->candidates != after->candidates || memcmp(early->fingerprint, after->fingerprint, 16) != 0)
            fail_msg("after has %llu candidates, early %llu: %s", (unsigned long long)after->candidates,
                     (unsigned long long)early->candidates, source);
        assert_true(early->expanded <= after->expanded);
        if (none)
            assert_true(none->candidates == after->built && early->expanded < after->expanded);
    }
    bool compared = early != NULL;
    for (unsigned i = 0; i < 3; i++)
        ef_extraction_free(e[i]);
    release(&s);
    return compared;
}

static void test_compaction_loses_nothing(void **state)
{
    (void)state;
    static const char *const paths[] = {
        "tests/programs/gated_mlp_b16.ef",
        "tests/programs/gated_mlp_b1.ef",
        "tests/programs/lora_b1.ef",
        "tests/programs/lora_b16.ef",
        "tests/programs/ngpt_b16.ef",
        "tests/programs/rmsnorm_linear_b1.ef",
        "tests/programs/rmsnorm_linear_b16.ef",
        "tests/programs/variants/logsumexp.ef",
    };
    for (unsigned p = 0; p < sizeof paths / sizeof *paths; p++)
        assert_true(compare_modes(paths[p], 0, true));
}

#define TWO_INPUTS "program p\ndim b = 64\ndim s = 512\ninput x: f32[b, s]\ninput y: f32[b, s]\n"
#define THREE_INPUTS TWO_INPUTS "input w: f32[b, s]\n"

/* Outputs that share subterms: one pick for a slot serves all of them. */
static void test_shared_subterms(void **state)
{
    (void)state;
    static const char *const text[] = {
        THREE_INPUTS "s1 = reduce[sum, -1](mul(x, y))\noutput o = mul(exp(mul(mul(x, y), w)), s1)\n"
                     "output t = mul(y, w)\n",
        THREE_INPUTS "output o = reduce[sum, -1](mul(mul(x, y), w))\noutput t = mul(y, w)\n",
        THREE_INPUTS "output o = mul(mul(x, y), w)\noutput t = reduce[max, -1](mul(y, w))\noutput u = mul(x, w)\n",
        THREE_INPUTS "a = add(x, add(y, w))\noutput o = sub(a, reduce[max, -1](a))\noutput t = add(y, w)\n",
        TWO_INPUTS "m = reduce[max, -1](x)\np = exp(sub(x, m))\noutput l = reduce[sum, -1](p)\n"
                   "output o = mul(p, y)\n",
        TWO_INPUTS "output o = div(mul(x, y), y)\noutput t = sub(x, x)\n",
        TWO_INPUTS "n = reduce[sum, -1](mul(x, x))\noutput o = mul(x, rsqrt(n))\noutput t = mul(y, sqrt(n))\n",
    };
    for (unsigned i = 0; i < sizeof text / sizeof *text; i++)
        assert_true(compare_modes(text[i], 0, false));
}

/* A random program: values of the shapes [b, s], [b, 1], [s, s] and operators that keep to these. */
static void random_program(uint64_t seed, ef_strbuf *text)
{
    static const char *const unary[] = {"exp", "sqrt", "rsqrt", "neg", "recip", "sigmoid"};
    static const char *const binary[] = {"mul", "add", "sub", "div", "mul", "max"};
    ef_rng rng = {seed};
    enum { ROWS, COLUMN, SQUARE } shape[16];
    unsigned count = 3, first, operators = 3 + ef_rng_below(&rng, 8), outputs = 1 + ef_rng_below(&rng, 3);
    if (outputs > operators)
        outputs = operators;
    shape[0] = shape[1] = ROWS, shape[2] = SQUARE;
    ef_strbuf_printf(text, "program random\ndim b = 64\ndim s = 512\ninput v0: f32[b, s]\ninput v1: f32[b, s]\n"
                           "input v2: f32[s, s]\n");
    first = 3 + operators - outputs;
    for (; count < 3 + operators; count++) {
        unsigned a, b, kind = ef_rng_below(&rng, 10);
        do
            a = ef_rng_below(&rng, 4) ? count - 1 - ef_rng_below(&rng, count < 4 ? count : 4)
                                      : ef_rng_below(&rng, count);
        while (shape[a] == SQUARE);
        do
            b = ef_rng_below(&rng, count);
        while (shape[b] == SQUARE);
        shape[count] = shape[a] == ROWS || (kind >= 6 && shape[b] == ROWS) ? ROWS : COLUMN;
        ef_strbuf_printf(text, "%sv%u = ", count >= first ? "output " : "", count);
        if (kind < 2) {
            ef_strbuf_printf(text, "%s(v%u)\n", unary[ef_rng_below(&rng, 6)], a);
            shape[count] = shape[a];
        } else if (kind < 5 && shape[a] == ROWS) {
            ef_strbuf_printf(text, "reduce[%s, -1](v%u)\n", ef_rng_below(&rng, 3) ? "sum" : "max", a);
            shape[count] = COLUMN;
        } else if (kind < 6 && shape[a] == ROWS) {
            ef_strbuf_printf(text, "matmul(v%u, v2)\n", a);
            shape[count] = ROWS;
        } else {
            ef_strbuf_printf(text, "%s(v%u, v%u)\n", binary[ef_rng_below(&rng, 6)], a, b);
            shape[count] = shape[a] == ROWS || shape[b] == ROWS ? ROWS : COLUMN;
        }
    }
}

static void test_random_programs(void **state)
{
    (void)state;
    unsigned compared = 0;
    for (uint64_t seed = 0; seed < RANDOM_PROGRAMS; seed++) {
        ef_strbuf text = {0};
        random_program(FIRST_SEED + seed, &text);
        compared += compare_modes(text.text, 200000, false);
        ef_strbuf_free(&text);
    }
    assert_true(compared >= RANDOM_PROGRAMS / 2);
}

/* The nine programs are enumerated completely, in seconds, and have few enough candidates to compile and run each. */
static void test_programs_are_enumerated(void **state)
{
    (void)state;
    static const char *const names[] = {"gated_mlp", "layernorm_gemm", "lora",        "mha_decode",    "mha_prefill",
                                        "ngpt",      "rmsnorm_linear", "rmsnorm_mlp", "rmsnorm_swiglu"};
    for (unsigned p = 0; p < 2 * sizeof names / sizeof *names; p++) {
        char path[160];
        snprintf(path, sizeof path, "tests/programs/%s_b%d.ef", names[p / 2], p % 2 ? 16 : 1);
        saturated s = saturate(path);
        ef_extraction *e =
            ef_extract(s.search, &(ef_extract_options){.compaction = EF_COMPACT_EARLY, .time_limit = 300});
        if (!e->complete || e->candidates < 4 || e->candidates > 2000)
            fail_msg("%s: %llu candidates%s", path, (unsigned long long)e->candidates, e->complete ? "" : " so far");
        ef_extraction_free(e);
        release(&s);
    }
}

static unsigned count_text(const char *text, const char *part)
{
    unsigned count = 0;
    for (const char *at = text; (at = strstr(at, part)); at++)
        count++;
    return count;
}

/* Normalisations of a small matrix along its rows and columns in turn, as Sinkhorn's, are one kernel, and found soon
 * however long the chain is; results that an output or another kernel needs as well lose no candidate. */
static void test_small_reductions(void **state)
{
    (void)state;
    ef_strbuf text = {0}, found = {0};
    ef_strbuf_printf(&text, "program p\ndim b = 16\ndim n = 4\ninput x: f32[b, n, n']\nm0 = exp(x)\n");
    for (unsigned i = 0; i < 20; i++)
        ef_strbuf_printf(&text, "r%u = div(m%u, reduce[sum, -1](m%u))\nm%u = div(r%u, reduce[sum, -2](r%u))\n", i, i, i,
                         i + 1, i, i);
    ef_strbuf_puts(&text, "output o = exp(m20)\n");
    saturated s = saturate(text.text);
    ef_extraction *e = ef_extract(s.search, &(ef_extract_options){.compaction = EF_COMPACT_EARLY, .keep = 10});
    assert_true(e->complete && e->candidate.count == 1 && e->expanded < 20000);
    ef_named output = {"o", e->candidate.at[0].output[0]};
    ef_program candidate = {.dag = e->dag,
                            .name = "p",
                            .comment = "",
                            .inputs = s.program->inputs,
                            .input = s.program->input,
                            .outputs = 1,
                            .output = &output};
    ef_program_print(&candidate, &found);
    assert_int_equal(count_text(found.text, "combination["), 1);
    ef_extraction_free(e);
    release(&s);
    ef_strbuf_free(&text);
    ef_strbuf_free(&found);
    static const char small[] = "program p\ndim b = 16\ndim n = 4\ndim c = 64\ninput x: f32[b, n, n']\n"
                                "input y: f32[b, n, c]\n";
    static const char *const shared[] = {
        "t = exp(x)\noutput s = reduce[sum, -1](t)\noutput o = div(t, s)\n",
        "t = exp(x)\ns = reduce[sum, -1](t)\noutput o = mul(matmul(div(t, s), y), s)\noutput q = add(s, 1)\n",
        "s = reduce[max, -2](x)\nt = sub(x, s)\noutput o = reduce[sum, -1](mul(t, t))\noutput q = mul(t, s)\n",
    };
    for (unsigned i = 0; i < sizeof shared / sizeof *shared; i++) {
        ef_strbuf_puts(&text, small);
        ef_strbuf_puts(&text, shared[i]);
        if (!compare_modes(text.text, 0, false))
            fail_msg("not complete: %s", shared[i]);
        ef_strbuf_free(&text);
    }
}

/* A budget returns promising candidates first, and says that it is not complete. */
static void test_budget(void **state)
{
    (void)state;
    saturated s = saturate("tests/programs/rmsnorm_mlp_b16.ef");
    ef_extraction *few =
        ef_extract(s.search, &(ef_extract_options){.compaction = EF_COMPACT_EARLY, .state_limit = 5000, .keep = 1});
    ef_extraction *all =
        ef_extract(s.search, &(ef_extract_options){.compaction = EF_COMPACT_EARLY, .time_limit = 100, .keep = 1000});
    assert_false(few->complete);
    assert_true(all->complete && all->candidate.count == all->candidates);
    double best = all->candidate.at[0].cost;
    for (uint32_t i = 0; i < all->candidate.count; i++)
        best = all->candidate.at[i].cost < best ? all->candidate.at[i].cost : best;
    assert_true(few->candidate.count == 1 && few->candidate.at[0].cost <= 1.2 * best);
    ef_extraction_free(few);
    ef_extraction_free(all);
    release(&s);
}

/* A layer is not enumerated in seconds, but what is best comes first: of attention with sinks the form with the history
 * in parts, which is what fills a GPU, in three kernels. */
static void test_the_best_comes_first(void **state)
{
    (void)state;
    const ef_target *target = ef_target_named("h200");
    saturated s = saturate("tests/programs/attn_sinks.ef");
    ef_extract_options options = {.state_limit = 25000,
                                  .keep = 1,
                                  .rates = ef_target_rates(target),
                                  .room = ef_target_room(target),
                                  .compaction = EF_COMPACT_EARLY};
    ef_extraction *e = ef_extract(s.search, &options);
    assert_int_equal(e->candidate.count, 1);
    ef_named output = {"y", e->candidate.at[0].output[0]};
    ef_program found = *s.program;
    found.dag = e->dag;
    found.output = &output;
    found.statements = 0;
    ef_kgraph *graph = ef_kgraph_new(&found, NULL);
    assert_non_null(graph);
    assert_int_equal(graph->kernels.count, 3);
    assert_int_equal(graph->kernels.at[1]->stores.count, 3); /* a maximum, a sum and a weighted sum of each part */
    assert_int_equal(graph->parts.count, 1);
    ef_kgraph_free(graph);
    ef_extraction_free(e);
    release(&s);
}

#define MOST_WITHOUT_TIME 0.07 /* of the processor time of saturation */

/* The time limit holds for what comes before the first program, too: of an e-graph as large as this that takes long. */
static void test_budget_of_large_programs(void **state)
{
    (void)state;
    ef_diag diag = {0};
    saturated s = {.ctx = ef_ctx_new()};
    s.program = ef_program_read(s.ctx, "tests/programs/layers/llama_decode.ef", &diag);
    assert_non_null(s.program);
    s.search = ef_search_new(s.program, &(ef_search_options){.node_limit = 60000}, &diag);
    clock_t begin = clock();
    assert_true(s.search && ef_search_saturate(s.search, &diag));
    double saturation = (double)(clock() - begin);
    begin = clock();
    ef_extraction *e =
        ef_extract(s.search, &(ef_extract_options){.compaction = EF_COMPACT_EARLY, .time_limit = 1e-3, .keep = 1});
    double none = (double)(clock() - begin); /* what each value may be filled by is listed, all else stops at once */
    print_message("large program: extraction without time took %.2g of what saturation took\n", none / saturation);
    assert_true(none < MOST_WITHOUT_TIME * saturation && e->original);
    ef_extraction_free(e);
    e = ef_extract(s.search, &(ef_extract_options){.compaction = EF_COMPACT_EARLY, .time_limit = 0.1, .keep = 1});
    print_message("large program: extraction of 0.1 s ended after %.2f s\n", e->seconds);
    assert_true(e->seconds < 1 && !e->complete && e->original && e->candidate.count == 1);
    ef_extraction_free(e);
    release(&s);
}

/* A projection with a bias, seen as heads: the bias has fewer dimensions than what it is added to. */
static void test_heads_of_a_biased_projection(void **state)
{
    (void)state;
    saturated s = saturate("program p\ndim h = 4\ndim d = 64\ndim w = 512\ninput x: f16[1, 1, w]\n"
                           "input q: f16[w, h*d]\ninput b: f16[h*d]\n"
                           "output o = reshape[1, 1, h, d](add(matmul(x, q), b))\n");
    ef_extraction *e = ef_extract(s.search, &(ef_extract_options){.compaction = EF_COMPACT_EARLY, .keep = 1});
    assert_true(e->complete && !e->original);
    ef_extraction_free(e);
    release(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_candidates_compute_the_program),
        cmocka_unit_test(test_compaction_loses_nothing),
        cmocka_unit_test(test_shared_subterms),
        cmocka_unit_test(test_random_programs),
        cmocka_unit_test(test_programs_are_enumerated),
        cmocka_unit_test(test_small_reductions),
        cmocka_unit_test(test_budget),
        cmocka_unit_test(test_the_best_comes_first),
        cmocka_unit_test(test_budget_of_large_programs),
        cmocka_unit_test(test_heads_of_a_biased_projection),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
