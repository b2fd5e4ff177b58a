/* Saturation ends on the shapes that whole models have (design, section 4, "Keeping the space small"): residual chains,
 * and many reductions that depend on each other. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "search/derive.h"
#include "search/saturate.h"
#include "support/strbuf.h"

/* The e-nodes of a program's saturated e-graph; fails when the search stops before. */
static uint32_t nodes_of(const char *text)
{
    ef_diag diag = {0};
    ef_ctx *ctx = ef_ctx_new();
    ef_program *program = ef_program_parse(ctx, text, strlen(text), "p.ef", &diag);
    if (!program)
        fail_msg("%s", diag.text);
    ef_search *search = ef_search_new(program, &(ef_search_options){.node_limit = 200000, .time_limit = 200}, &diag);
    assert_true(search && ef_search_saturate(search, &diag));
    assert_int_equal(search->stats->stop, EF_STOP_SATURATED);
    uint32_t live = search->graph->live;
    ef_search_free(search);
    ef_program_free(program);
    ef_ctx_free(ctx);
    return live;
}

/* A stream to which every layer adds something: no layer is multiplied out over those before it. */
static uint32_t residual_nodes(unsigned layers)
{
    ef_strbuf text = {0};
    ef_strbuf_puts(&text, "program residual\ndim m = 16\ndim k = 512\ndim f = 1024\ninput x0: f16[m, k]\n");
    for (unsigned i = 0; i < layers; i++)
        ef_strbuf_printf(&text, "input w%u: f16[k, f]\ninput v%u: f16[f, k]\n", i, i);
    for (unsigned i = 0; i < layers; i++)
        ef_strbuf_printf(&text, "%sx%u = add(x%u, matmul(max(matmul(x%u, w%u), 0), v%u))\n",
                         i + 1 == layers ? "output " : "", i + 1, i, i, i, i);
    uint32_t nodes = nodes_of(text.text);
    ef_strbuf_free(&text);
    return nodes;
}

static void test_residual_chains(void **state)
{
    (void)state;
    uint32_t six = residual_nodes(6), twelve = residual_nodes(12);
    print_message("residual chains: %u e-nodes for 6 layers, %u for 12\n", six, twelve);
    assert_true(twelve < 4 * six); /* no worse than what one kernel may hold of all others */
}

static void test_dependent_reductions(void **state)
{
    (void)state;
    ef_strbuf text = {0};
    ef_strbuf_puts(&text, "program chain\ndim m = 16\ndim k = 4096\ninput y0: f32[m, k]\n");
    for (unsigned i = 0; i < 16; i++)
        ef_strbuf_printf(&text, "%sy%u = mul(y%u, rsqrt(add(reduce[sum, -1](mul(y%u, y%u)), 1e-6)))\n",
                         i == 15 ? "output " : "", i + 1, i, i, i);
    assert_true(nodes_of(text.text) < 20000);
    ef_strbuf_free(&text);
}

/* Latent attention of one query whose heads are normalised, with gains: what is one row moves everywhere, unless it
 * stays where it is small, and equal shapes of shapes are one at once, or all other rules apply to each. */
static void test_gains_of_one_row(void **state)
{
    (void)state;
    uint32_t nodes = nodes_of("program p\ndim h = 32\ndim d = 128\ndim c = 512\ndim s = 16384\n"
                              "input q0: f16[1, h, 1, d]\ninput gq: f16[d]\ninput latent: f16[1, s, c]\n"
                              "input wk: f16[c, h*d]\ninput inverse: f16[1, h, s]\ninput gk: f16[d]\n"
                              "n = rsqrt(add(div(reduce[sum, -1](mul(q0, q0)), 128), 1e-06))\n"
                              "q = mul(mul(q0, n), gq)\n"
                              "k0 = transpose[0, 2, 1, 3](reshape[1, s, h, d](matmul(latent, wk)))\n"
                              "k = mul(mul(k0, reshape[1, h, s, 1](inverse)), gk)\n"
                              "output y = matmul(q, transpose[0, 1, 3, 2](k))\n");
    print_message("gains of one row: %u e-nodes\n", nodes);
    assert_true(nodes < 12000);
}

/* A row that is added to the only row of an operand is no bias: two products for one gain nothing. */
static void test_a_sum_of_single_rows_is_one_product(void **state)
{
    (void)state;
    static const char program[] = "program sum\ndim k = 512\ndim n = 512\ninput a: f16[1, k]\ninput b: f16[1, k]\n"
                                  "input w: f16[k, n]\noutput y = matmul(%s, w)\n";
    char sum[sizeof program + 32], single[sizeof program + 32];
    snprintf(sum, sizeof sum, program, "add(exp(a), exp(b))");
    snprintf(single, sizeof single, program, "mul(exp(a), exp(b))");
    assert_true(nodes_of(sum) <= nodes_of(single));
}

/* What is set aside of a program as too much work, and the e-nodes of its search; of all that it might be, too. */
typedef struct {
    uint32_t aside, nodes, everything;
} effort;

static effort effort_of(const char *text)
{
    ef_diag diag = {0};
    ef_ctx *ctx = ef_ctx_new();
    ef_program *program = ef_program_parse(ctx, text, strlen(text), "p.ef", &diag);
    if (!program) {
        fail_msg("%s", diag.text);
        abort(); /* not reached, but cmocka's declarations do not say so */
    }
    effort e = {0};
    for (unsigned i = 0; i < 2; i++) {
        ef_search *search = ef_search_new(program, &(ef_search_options){.time_limit = 200, .everything = i}, &diag);
        assert_true(search && ef_search_saturate(search, &diag));
        assert_int_equal(search->stats->stop, EF_STOP_SATURATED);
        if (i)
            assert_int_equal(search->aside, 0);
        else
            e.aside = search->aside;
        *(i ? &e.everything : &e.nodes) = search->graph->live;
        ef_search_free(search);
    }
    ef_program_free(program);
    ef_ctx_free(ctx);
    return e;
}

#define LATENT                                                                                            \
    "program latent\ndim h = 4\ndim m = %u\ndim d = 32\ndim s = 256\ndim l = 64\ninput q: f16[h, m, d]\n" \
    "input c: f16[s, l]\ninput w: f16[l, h*d]\nk = transpose[1, 0, 2](reshape[s, h, d](matmul(c, w)))\n"  \
    "output y = matmul(q, transpose[0, 2, 1](k))\n"

/* One query: the projection of a history moves to it, and how to project the history is not looked at. As many queries
 * as there is history: both are worth a look. */
static void test_too_much_work(void **state)
{
    (void)state;
    char text[sizeof LATENT + 16];
    snprintf(text, sizeof text, LATENT, 1u);
    effort one = effort_of(text);
    snprintf(text, sizeof text, LATENT, 256u);
    effort many = effort_of(text);
    print_message("a latent history: %u e-nodes, %u with all that is too much work\n", one.nodes, one.everything);
    assert_true(one.aside > 0 && one.nodes * 3 < one.everything * 2);
    assert_int_equal(many.aside, 0);
    assert_int_equal(many.nodes, many.everything);
}

/* A form of too much work is still found to be equal to the program when somebody has it: what was set aside comes
 * back. */
static void test_too_much_work_is_equal(void **state)
{
    (void)state;
    ef_diag diag = {0};
    char text[sizeof LATENT + 16];
    ef_ctx *ctx = ef_ctx_new();
    snprintf(text, sizeof text, LATENT, 1u);
    ef_program *from = ef_program_parse(ctx, text, strlen(text), "p.ef", &diag);
    assert_non_null(from);
    static const char tiled[] =
        "program tiled\ndim h = 4\ndim d = 32\ndim s = 256\ndim l = 64\ninput q: f16[h, 1, d]\n"
        "input c: f16[s, l]\ninput w: f16[l, h*d]\n"
        "ct = partition[-1, l.1](partition[-2, s.0](replicate[h.0](c)))\n"
        "wt = partition[-2, l.1](partition[-1, h.0](replicate[s.0](w)))\n"
        "k = combination[-1, h.0](combination[-2, s.0](reduce[sum, l.1](tile_matmul(ct, wt))))\n"
        "output y = matmul(q, transpose[0, 2, 1](transpose[1, 0, 2](reshape[s, h, d](k))))\n";
    ef_program *to = ef_program_parse(ctx, tiled, strlen(tiled), "p.ef", &diag);
    if (!to)
        fail_msg("%s", diag.text);
    ef_arena *arena = ef_arena_new();
    ef_derivation derivation;
    if (!ef_derive(from, to, &(ef_search_options){.time_limit = 200}, arena, &derivation, &diag))
        fail_msg("%s", diag.text);
    assert_true(derivation.equal && derivation.checked && !derivation.contained);
    ef_arena_free(arena);
    ef_program_free(to);
    ef_program_free(from);
    ef_ctx_free(ctx);
}

/* Attention of one token with rotary embedding: moves of moves of inputs, spelled in many ways. */
static void test_rotary_attention(void **state)
{
    (void)state;
    ef_diag diag = {0};
    ef_ctx *ctx = ef_ctx_new();
    ef_program *program = ef_program_read(ctx, "tests/programs/layers/rope_decode.ef", &diag);
    assert_non_null(program);
    ef_search *search = ef_search_new(program, &(ef_search_options){.node_limit = 100000}, &diag);
    assert_true(search && ef_search_saturate(search, &diag));
    print_message("rotary attention: %u e-nodes, %u iterations\n", search->graph->live, search->stats->iterations);
    assert_int_equal(search->stats->stop, EF_STOP_SATURATED);
    assert_true(search->graph->live < 25000 && search->stats->iterations < 30);
    ef_search_free(search);
    ef_program_free(program);
    ef_ctx_free(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gains_of_one_row),     cmocka_unit_test(test_residual_chains),
        cmocka_unit_test(test_dependent_reductions), cmocka_unit_test(test_a_sum_of_single_rows_is_one_product),
        cmocka_unit_test(test_too_much_work),        cmocka_unit_test(test_too_much_work_is_equal),
        cmocka_unit_test(test_rotary_attention),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
