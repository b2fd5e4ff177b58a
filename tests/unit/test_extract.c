/* Extraction (paper, section 5.1): every candidate computes the program, and compaction loses none.
 *
 * Candidates are evaluated in float64 at small, odd sizes and random tilings and compared with the program. The sets of
 * distinct candidates of `after` and `early` are compared wherever both enumerations finish. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "ir/eval.h"
#include "search/extract.h"
#include "support/rng.h"

typedef struct {
    ef_ctx *ctx;
    ef_program *program;
    ef_search *search;
} saturated;

static saturated saturate(const char *path)
{
    ef_diag diag = {0};
    saturated s = {.ctx = ef_ctx_new()};
    s.program = ef_program_read(s.ctx, path, &diag);
    if (!s.program)
        fail_msg("%s", diag.text);
    s.search = ef_search_new(s.program, &(ef_search_options){0}, &diag);
    assert_non_null(s.search);
    if (!ef_search_saturate(s.search, &diag))
        fail_msg("%s: %s", path, diag.text);
    return s;
}

static void release(saturated *s)
{
    ef_search_free(s->search);
    ef_program_free(s->program);
    ef_ctx_free(s->ctx);
}

static void random_input(void *user, uint32_t input, ef_tensor *out)
{
    ef_rng rng = {*(uint64_t *)user + 7919u * input};
    uint64_t size = 1;
    for (unsigned i = 0; i < out->rank; i++)
        size *= out->extent[i];
    for (uint64_t i = 0; i < size; i++)
        out->data[i] = ef_rng_normal(&rng);
}

/* Sizes that no tile divides. One named dimension may keep its own: algebra over an extent is true for that alone. */
static void shrink(ef_ctx *ctx, uint64_t seed, ef_var kept)
{
    ef_rng rng = {seed};
    for (ef_var var = 0; var < ef_var_count(ctx); var++)
        if (var != kept)
            ef_var_resize(ctx, var, 2 + ef_rng_below(&rng, 6));
}

/* Tiles 1 to 4 for every axis of every variable; some hundreds for the one that kept its size. */
static unsigned draw_tiles(ef_ctx *ctx, ef_rng *rng, ef_var kept, ef_tile *tile, unsigned limit)
{
    unsigned n = 0;
    for (ef_var var = 0; var < ef_var_count(ctx); var++)
        for (unsigned level = 0; level < 2 && n < limit; level++)
            tile[n++] = (ef_tile){ef_axis_of(var, level), (var == kept ? 300 : 1) + ef_rng_below(rng, 4)};
    return n;
}

static void compare(const saturated *s, const char *path, const ef_extraction *e, uint32_t index, uint64_t seed)
{
    ef_tile tile[64];
    ef_rng rng = {seed};
    ef_diag diag = {0};
    ef_var kept = strstr(path, "layernorm") ? ef_var_find(s->ctx, "k", 1) : EF_NONE;
    shrink(s->ctx, seed, kept);
    ef_tiling tiling = {tile, draw_tiles(s->ctx, &rng, kept, tile, 64), 2};
    ef_evaluation *want =
        ef_evaluate(s->program->dag, &s->program->output[0].expr, 1, &tiling, random_input, &seed, 0, &diag);
    ef_evaluation *have =
        ef_evaluate(e->dag, &e->candidate.at[index].output[0], 1, &tiling, random_input, &seed, 0, &diag);
    if (!want || !have)
        fail_msg("%s, candidate %u: %s", path, index, diag.text);
    double difference = ef_evaluation_difference(want, 0, have, 0, 1e-3);
    if (!(difference <= 1e-9)) {
        ef_strbuf text = {0};
        ef_expr_print(e->dag, e->candidate.at[index].output[0], &text);
        fail_msg("%s, candidate %u differs by %g: %s", path, index, difference, text.text);
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
    };
    for (unsigned p = 0; p < sizeof paths / sizeof *paths; p++) {
        saturated s = saturate(paths[p]);
        ef_extract_options options = {
            .compaction = EF_COMPACT_EARLY, .state_limit = 60000, .time_limit = 60, .keep = 60};
        ef_extraction *e = ef_extract(s.search, &options);
        assert_true(e->candidate.count > 0);
        for (uint32_t i = 0; i < e->candidate.count; i++)
            compare(&s, paths[p], e, i, 1000u * p + i);
        ef_extraction_free(e);
        release(&s);
    }
}

static void test_compaction_loses_nothing(void **state)
{
    (void)state;
    static const char *const paths[] = {
        "tests/programs/gated_mlp_b16.ef",
        "tests/programs/gated_mlp_b1.ef",
        "tests/programs/ngpt_b16.ef",
        "tests/programs/variants/logsumexp.ef",
    };
    for (unsigned p = 0; p < sizeof paths / sizeof *paths; p++) {
        saturated s = saturate(paths[p]);
        ef_extraction *e[3];
        for (unsigned mode = 0; mode < 3; mode++) {
            e[mode] = ef_extract(s.search, &(ef_extract_options){.compaction = (ef_compaction)mode, .time_limit = 100});
            assert_true(e[mode]->complete);
        }
        assert_true(e[EF_COMPACT_EARLY]->candidates == e[EF_COMPACT_AFTER]->candidates);
        assert_true(memcmp(e[EF_COMPACT_EARLY]->fingerprint, e[EF_COMPACT_AFTER]->fingerprint, 16) == 0);
        assert_true(e[EF_COMPACT_EARLY]->expanded < e[EF_COMPACT_AFTER]->expanded);
        assert_true(e[EF_COMPACT_NONE]->candidates == e[EF_COMPACT_AFTER]->built);
        for (unsigned mode = 0; mode < 3; mode++)
            ef_extraction_free(e[mode]);
        release(&s);
    }
}

/* A budget returns promising candidates first, and says that it is not complete. */
static void test_budget(void **state)
{
    (void)state;
    saturated s = saturate("tests/programs/ngpt_b16.ef");
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_candidates_compute_the_program),
        cmocka_unit_test(test_compaction_loses_nothing),
        cmocka_unit_test(test_budget),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
