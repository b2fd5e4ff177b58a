/* Partition and composition (paper, section 5.2): parts cover a program, stand for what they were cut from, are found
 * to be the same when only names differ, and put together again compute what the whole does. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "ir/eval.h"
#include "search/derive.h"
#include "search/extract.h"
#include "search/partition.h"
#include "support/rng.h"
#include "target/target.h"
#include "tune/gather.h"

typedef struct {
    ef_ctx *ctx;
    ef_program *program;
    ef_partitions *set;
} cutting;

static cutting cut_text(const char *text, const ef_partition_options *options)
{
    ef_diag diag = {0};
    cutting c = {.ctx = ef_ctx_new()};
    c.program = ef_program_parse(c.ctx, text, strlen(text), "p.ef", &diag);
    if (!c.program)
        fail_msg("%s", diag.text);
    c.set = ef_partition_program(c.program, options);
    return c;
}

static cutting cut_file(const char *path)
{
    ef_diag diag = {0};
    cutting c = {.ctx = ef_ctx_new()};
    c.program = ef_program_read(c.ctx, path, &diag);
    if (!c.program)
        fail_msg("%s", diag.text);
    c.set = ef_partition_program(c.program, NULL);
    return c;
}

static void cutting_free(cutting *c)
{
    ef_partitions_free(c->set);
    ef_program_free(c->program);
    ef_ctx_free(c->ctx);
}

/* A stack of equal layers, each with tensors of its own. */
static char *stack(unsigned layers)
{
    ef_strbuf text = {0};
    ef_strbuf_puts(&text, "program stack\ndim m = 32\ndim k = 64\ndim f = 128\ninput x0: f32[m, k]\n");
    for (unsigned i = 0; i < layers; i++)
        ef_strbuf_printf(&text, "input g%u: f32[k]\ninput w%u: f32[k, f]\ninput v%u: f32[f, k]\n", i, i, i);
    for (unsigned i = 0; i < layers; i++) {
        ef_strbuf_printf(&text, "s%u = rsqrt(add(div(reduce[sum, -1](mul(x%u, x%u)), 64), 1e-6))\n", i, i, i);
        ef_strbuf_printf(&text, "h%u = matmul(mul(mul(x%u, s%u), g%u), w%u)\n", i, i, i, i, i);
        ef_strbuf_printf(&text, "%sx%u = add(x%u, matmul(mul(h%u, sigmoid(h%u)), v%u))\n",
                         i + 1 == layers ? "output " : "", i + 1, i, i, i, i);
    }
    return text.text;
}

/* ---- what a partition is ---- */

/* Inputs of a part are inputs of the whole or results of parts before it, and every output of the whole is there. */
static void assert_runs_in_order(const cutting *c, const ef_partition *p)
{
    uint8_t *known = ef_xcalloc(ef_dag_count(c->program->dag) + 1, 1);
    for (ef_expr e = 0; e < ef_dag_count(c->program->dag); e++)
        known[e] = ef_dag_op(c->program->dag, e) == EF_INPUT;
    for (uint32_t i = 0; i < p->parts; i++) {
        const ef_part *part = &c->set->part.at[p->part[i]];
        for (uint32_t k = 0; k < part->program->inputs; k++)
            assert_true(known[part->input[k]]);
        assert_true(part->program->outputs > 0);
        for (uint32_t k = 0; k < part->program->outputs; k++) {
            known[part->output[k]] = 1;
            assert_int_equal(ef_dag_type(part->program->dag, part->program->output[k].expr),
                             ef_dag_type(c->program->dag, part->output[k]));
        }
        assert_true(part->heavy <= p->limit || part->heavy == 1);
    }
    for (uint32_t i = 0; i < c->program->outputs; i++)
        assert_true(known[c->program->output[i].expr]);
    free(known);
}

/* The parts themselves as their only candidates: their composition is the program again. */
static void assert_composes_to_itself(const cutting *c, uint32_t which)
{
    const ef_partition *p = &c->set->list.at[which];
    ef_composer *composer = ef_composer_new(c->set, which);
    uint32_t *choice = ef_xcalloc(p->parts + 1, sizeof *choice);
    ef_diag diag = {0};
    double cost;
    ef_expr **outputs = ef_xcalloc(p->parts + 1, sizeof *outputs);
    for (uint32_t i = 0; i < p->parts; i++) {
        const ef_part *part = &c->set->part.at[c->set->part.at[p->part[i]].like];
        outputs[i] = ef_xcalloc(part->program->outputs + 1, sizeof **outputs);
        for (uint32_t k = 0; k < part->program->outputs; k++)
            outputs[i][k] = part->program->output[k].expr;
        ef_composer_offer(composer, p->part[i], &(ef_part_candidate){part->program->dag, outputs[i], 1}, 1);
    }
    assert_true(ef_composer_next(composer, choice, &cost));
    assert_true(cost == p->parts);
    ef_program *again = ef_composer_program(composer, choice, &diag);
    if (!again) {
        fail_msg("%s", diag.text);
        return;
    }
    ef_strbuf a = {0}, b = {0};
    for (uint32_t i = 0; i < again->outputs; i++) {
        ef_expr_print(again->dag, again->output[i].expr, &a);
        ef_expr_print(c->program->dag, c->program->output[i].expr, &b);
    }
    assert_string_equal(a.text, b.text);
    assert_false(ef_composer_next(composer, choice, &cost));
    ef_strbuf_free(&a);
    ef_strbuf_free(&b);
    ef_program_free(again);
    for (uint32_t i = 0; i < p->parts; i++)
        free(outputs[i]);
    free(outputs);
    free(choice);
    ef_composer_free(composer);
}

static void test_parts_make_the_whole(void **state)
{
    (void)state;
    static const char *const files[] = {"tests/programs/variants/llama_layer.ef", "tests/programs/mhc.ef",
                                        "tests/programs/qknorm_mla.ef",           "tests/programs/diff_attn.ef",
                                        "tests/programs/layernorm_gemm_b16.ef",   "tests/programs/gated_mlp_b1.ef"};
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        cutting c = cut_file(files[i]);
        assert_true(c.set->list.count > 0);
        for (uint32_t k = 0; k < c.set->list.count; k++) {
            assert_runs_in_order(&c, &c.set->list.at[k]);
            assert_true(k == 0 || c.set->list.at[k - 1].seconds <= c.set->list.at[k].seconds);
            if (strstr(files[i], "mhc") == NULL) /* as nested text it is too long to compare */
                assert_composes_to_itself(&c, k);
        }
        cutting_free(&c);
    }
}

/* The projections of a latent cache stand in one part with the attention that reads them, without what comes before and
 * after: the keys of 16,384 positions are never cut off from their use. */
static void test_projections_stay_with_attention(void **state)
{
    (void)state;
    cutting c = cut_file("tests/programs/qknorm_mla.ef");
    bool found = false;
    for (uint32_t k = 0; k < c.set->list.count; k++) {
        const ef_partition *p = &c.set->list.at[k];
        uint32_t products = 0;
        for (uint32_t i = 0; i < p->parts && p->parts == 3; i++) {
            const ef_program *part = c.set->part.at[p->part[i]].program;
            uint32_t here = 0;
            for (ef_expr e = 0; e < ef_dag_count(part->dag); e++)
                here += ef_dag_op(part->dag, e) == EF_MATMUL;
            products = here > products ? here : products;
        }
        found = found || products == 4;
    }
    assert_true(found);
    cutting_free(&c);
}

/* Streams are mixed before the products, and the mixture is needed after them: each part has one product. What is
 * stored between parts are results of products with their bias, and no mixture. */
static void test_parts_store_what_is_little(void **state)
{
    (void)state;
    static const char text[] = "program mixed\ndim b = 16\ndim n = 4\ndim c = 512\n"
                               "input x: f16[b, n, c]\ninput m: f32[b, n', n]\ninput z: f16[b, c]\n"
                               "input w: f16[c, c']\ninput v: f16[c', c]\ninput u: f16[c, c'']\n"
                               "input d: f16[c']\ninput e: f16[c]\n"
                               "mix = matmul(exp(m), cast[f32](x))\n"
                               "h = add(matmul(z, w), d)\n"
                               "y = add(matmul(h, v), e)\n"
                               "output r = matmul(add(mix, reshape[b, 1, c](y)), u)\n";
    static const uint32_t limits[] = {1};
    cutting c = cut_text(text, &(ef_partition_options){.limits = limits, .count = 1});
    const ef_partition *p = &c.set->list.at[0];
    assert_int_equal(p->parts, 3);
    assert_runs_in_order(&c, p);
    for (uint32_t i = 0; i + 1 < p->parts; i++) {
        const ef_program *part = c.set->part.at[p->part[i]].program;
        ef_expr e = part->output[0].expr;
        const ef_expr *child;
        assert_int_equal(part->outputs, 1);
        while (ef_dag_op(part->dag, e) == EF_RESHAPE && ef_dag_children(part->dag, e, &child))
            e = child[0];
        assert_int_equal(ef_dag_op(part->dag, e), EF_ADD);
    }
    cutting_free(&c);
}

static void test_equal_layers_are_one_search(void **state)
{
    (void)state;
    char *text = stack(6);
    static const uint32_t limits[] = {3};
    cutting c = cut_text(text, &(ef_partition_options){.limits = limits, .count = 1});
    const ef_partition *p = &c.set->list.at[0];
    uint32_t distinct = 0;
    for (uint32_t i = 0; i < c.set->part.count; i++)
        distinct += c.set->part.at[i].like == i;
    print_message("six layers: %u parts, %u distinct\n", p->parts, distinct);
    assert_int_equal(p->parts, 6);
    assert_true(distinct <= 2); /* the last one does not keep its stream */
    assert_runs_in_order(&c, p);
    assert_composes_to_itself(&c, 0);
    cutting_free(&c);
    free(text);
}

/* ---- composition ---- */

/* Against all combinations, sorted. */
static void test_composition_is_best_first(void **state)
{
    (void)state;
    char *text = stack(3);
    static const uint32_t limits[] = {3};
    cutting c = cut_text(text, &(ef_partition_options){.limits = limits, .count = 1});
    const ef_partition *p = &c.set->list.at[0];
    ef_composer *composer = ef_composer_new(c.set, 0);
    ef_rng rng = {5};
    uint32_t all = 1, choice[8], seen = 0;
    double last = 0, cost;
    assert_true(p->parts <= 8);
    for (uint32_t i = 0; i < p->parts; i++) {
        uint32_t count = 0;
        ef_part_candidate list[5] = {{0}};
        for (; count < 3 + c.set->part.at[p->part[i]].like % 3; count++)
            list[count].cost = (count ? list[count - 1].cost : 1) + ef_rng_below(&rng, 4);
        if (c.set->part.at[p->part[i]].like == p->part[i])
            ef_composer_offer(composer, p->part[i], list, count);
        all *= 3 + c.set->part.at[p->part[i]].like % 3;
    }
    while (ef_composer_next(composer, choice, &cost)) {
        assert_true(cost >= last);
        last = cost;
        seen++;
        assert_true(ef_composer_built(composer) <= (uint64_t)seen * p->parts + 1); /* no product */
    }
    assert_int_equal(seen, all);
    ef_composer_free(composer);
    cutting_free(&c);
    free(text);
}

static void fill(void *user, uint32_t input, ef_tensor *out)
{
    (void)user;
    uint64_t count = 1;
    ef_rng rng = {input + 1};
    for (unsigned i = 0; i < out->rank; i++)
        count *= out->extent[i];
    for (uint64_t i = 0; i < count; i++)
        out->data[i] = 0.2 * ef_rng_normal(&rng);
}

static ef_evaluation *evaluate(const ef_program *p)
{
    ef_diag diag = {0};
    ef_tiling tiling = {.fallback = 24};
    ef_expr root = p->output[0].expr;
    ef_evaluation *e = ef_evaluate(p->dag, &root, 1, &tiling, fill, NULL, 0, &diag);
    if (!e)
        fail_msg("%s", diag.text);
    return e;
}

/* Every distinct part searched once, the best candidates put together in several ways: all compute the same. */
static void test_searched_parts_compute_the_same(void **state)
{
    (void)state;
    char *text = stack(3);
    static const uint32_t limits[] = {3};
    cutting c = cut_text(text, &(ef_partition_options){.limits = limits, .count = 1});
    ef_composer *composer = ef_composer_new(c.set, 0);
    ef_search *search[8] = {0};
    ef_extraction *found[8] = {0};
    ef_diag diag = {0};
    uint32_t choice[8];
    double cost;
    for (uint32_t i = 0; i < c.set->part.count; i++) {
        ef_part_candidate list[4];
        uint32_t count = 0;
        if (c.set->part.at[i].like != i)
            continue;
        assert_true(i < 8);
        search[i] = ef_search_new(c.set->part.at[i].program, &(ef_search_options){.time_limit = 60}, &diag);
        assert_true(search[i] && ef_search_saturate(search[i], &diag));
        found[i] = ef_extract(
            search[i],
            &(ef_extract_options){.compaction = EF_COMPACT_EARLY, .time_limit = 20, .state_limit = 3000, .keep = 4});
        for (; count < 4 && count < found[i]->candidate.count; count++)
            list[count] = (ef_part_candidate){found[i]->dag, found[i]->candidate.at[count].output,
                                              found[i]->candidate.at[count].cost};
        assert_true(count > 0);
        ef_composer_offer(composer, i, list, count);
    }
    ef_evaluation *want = evaluate(c.program);
    for (unsigned n = 0; n < 5 && ef_composer_next(composer, choice, &cost); n++) {
        ef_program *whole = ef_composer_program(composer, choice, &diag);
        if (!whole) {
            fail_msg("%s", diag.text);
            break;
        }
        ef_evaluation *got = evaluate(whole);
        assert_true(ef_evaluation_difference(got, 0, want, 0, 1) < 1e-9);
        ef_evaluation_free(got);
        ef_program_free(whole);
    }
    ef_evaluation_free(want);
    for (uint32_t i = 0; i < 8; i++) {
        ef_extraction_free(found[i]);
        ef_search_free(search[i]);
    }
    ef_composer_free(composer);
    cutting_free(&c);
    free(text);
}

/* Searches a part that is not like an earlier one, and offers its best candidate. */
static ef_extraction *search_part(const char *file, const cutting *c, ef_composer *composer, uint32_t part)
{
    ef_diag diag = {0};
    if (c->set->part.at[part].like != part)
        return NULL;
    ef_search *search = ef_search_new(c->set->part.at[part].program, &(ef_search_options){.time_limit = 100}, &diag);
    assert_true(search && ef_search_saturate(search, &diag));
    ef_extraction *found = ef_extract(
        search,
        &(ef_extract_options){.compaction = EF_COMPACT_EARLY, .time_limit = 100, .state_limit = 60000, .keep = 1});
    if (found->original)
        fail_msg("%s: nothing was found for part %u", file, part);
    ef_composer_offer(composer, part,
                      &(ef_part_candidate){found->dag, found->candidate.at[0].output, found->candidate.at[0].cost}, 1);
    ef_search_free(search);
    return found;
}

static void derive_composed(const cutting *c, ef_composer *composer, uint32_t *choice)
{
    ef_diag diag = {0};
    ef_derivation derivation;
    double cost;
    assert_true(ef_composer_next(composer, choice, &cost));
    ef_program *whole = ef_composer_program(composer, choice, &diag);
    ef_arena *arena = ef_arena_new();
    if (!whole || !ef_derive(c->program, whole, &(ef_search_options){.time_limit = 100}, arena, &derivation, &diag)) {
        fail_msg("%s", diag.text);
        return;
    }
    assert_true(derivation.equal && derivation.checked && derivation.equations > 20);
    /* One that is twice as much equals nothing that the program computes. */
    ef_expr twice[] = {whole->output[0].expr, ef_dag_const(whole->dag, 2)};
    whole->output[0].expr = ef_dag_add(whole->dag, EF_MUL, 0, twice, 2, &diag);
    assert_true(whole->output[0].expr != EF_NONE);
    assert_false(ef_derive(c->program, whole, &(ef_search_options){.time_limit = 3}, arena, &derivation, &diag));
    ef_arena_free(arena);
    ef_program_free(whole);
}

/* Of the layers that are too large for one search, every small part has candidates other than itself; what is put
 * together of the best ones is derived part by part, and something else is not. */
static void test_parts_of_layers_have_candidates(void **state)
{
    (void)state;
    static const char *const files[] = {"tests/programs/mhc.ef", "tests/programs/diff_attn.ef"};
    for (unsigned i = 0; i < sizeof files / sizeof *files; i++) {
        cutting c = cut_file(files[i]);
        uint32_t smallest = 0, choice[16];
        for (uint32_t p = 1; p < c.set->list.count; p++)
            smallest = c.set->list.at[p].limit < c.set->list.at[smallest].limit ? p : smallest;
        const ef_partition *partition = &c.set->list.at[smallest];
        ef_composer *composer = ef_composer_new(c.set, smallest);
        ef_extraction *found[16] = {0};
        assert_in_range(partition->parts, 3, 16);
        for (uint32_t k = 0; k < partition->parts; k++)
            found[k] = search_part(files[i], &c, composer, partition->part[k]);
        derive_composed(&c, composer, choice);
        ef_composer_free(composer);
        for (uint32_t k = 0; k < partition->parts; k++)
            ef_extraction_free(found[k]);
        cutting_free(&c);
    }
}

/* A decoder layer for one token, of real widths: the program as it is searched for a device, within little time. Each
 * distinct part is searched once, every part of the smallest ones has candidates, and far fewer of their combinations
 * are looked at than there are. */
static void test_a_decoder_layer_is_searched_by_parts(void **state)
{
    (void)state;
    ef_diag diag = {0};
    ef_ctx *ctx = ef_ctx_new();
    ef_program *program = ef_program_read(ctx, "tests/programs/layers/llama_decode.ef", &diag);
    if (!program) {
        fail_msg("%s", diag.text);
        return;
    }
    const ef_target *target = ef_target_named("h200");
    ef_gather_options options = {.saturation_s = 20,
                                 .extraction_s = 20,
                                 .keep = 96,
                                 .rates = ef_target_rates(target),
                                 .room = ef_target_room(target)};
    ef_gathered *g = ef_gather(program, &options, &diag);
    assert_false(diag.failed);
    assert_true(g->partitions.count > 1 && g->list.count > 10);
    for (uint32_t i = 0; i < g->searches.count; i++)
        for (uint32_t k = 0; k < i; k++)
            assert_ptr_not_equal(g->searches.at[i].program, g->searches.at[k].program);
    bool smallest = false;
    for (uint32_t p = 0; p < g->partitions.count; p++) {
        const ef_gathered_partition *q = &g->partitions.at[p];
        assert_true(p == 0 || g->partitions.at[p - 1].estimate_us <= q->estimate_us);
        assert_true(q->distinct <= q->parts && q->composed <= q->combinations);
        if (q->limit != 4)
            continue;
        smallest = q->combined && q->composed > 0;
        assert_true(q->combinations > 100 && (double)q->built < q->combinations);
        for (uint32_t i = 0; i < q->parts; i++)
            assert_true(q->search[i] != EF_NONE && !g->searches.at[q->search[i]].original);
    }
    assert_true(smallest);
    ef_gathered_free(g);
    ef_program_free(program);
    ef_ctx_free(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_parts_make_the_whole),
        cmocka_unit_test(test_projections_stay_with_attention),
        cmocka_unit_test(test_parts_store_what_is_little),
        cmocka_unit_test(test_equal_layers_are_one_search),
        cmocka_unit_test(test_composition_is_best_first),
        cmocka_unit_test(test_searched_parts_compute_the_same),
        cmocka_unit_test(test_parts_of_layers_have_candidates),
        cmocka_unit_test(test_a_decoder_layer_is_searched_by_parts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
