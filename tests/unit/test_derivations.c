/* Derivations (paper, Figure 5 and section 7): after the saturation of a program its e-graph contains implementations
 * that people wrote by hand (tests/derivations/PROGRAM_FORM.ef), with proofs that the checker accepts. That they
 * compute the same is also shown without the search, by evaluation; and what computes something else is not found. */
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
#include "ir/resize.h"
#include "search/check.h"
#include "search/extract.h"
#include "search/organisation.h"
#include "search/saturate.h"
#include "support/rng.h"

typedef struct {
    const char *program, *form;
    const char *keep; /* a dimension whose extent the text also says in a literal: it keeps its size */
    bool wanted;      /* correct, and not yet contained */
    bool other_order; /* fused in an order that the search does not make: found to be equal once it is there */
    bool dominated;   /* contained, but no candidate: another one is better in every respect */
    bool unreached;   /* contained, but extraction does not get through the program in a minute */
} derivation;

static const derivation derivations[] = {
    {.program = "mha_decode_b1", .form = "rolling"},
    {.program = "mha_decode_b1", .form = "split"},
    {.program = "mha_decode_b16", .form = "rolling"},
    {.program = "mha_decode_b16", .form = "split"},
    {.program = "mha_prefill_b1", .form = "rolling"},
    {.program = "variants/base2", .form = "rolling"},
    {.program = "variants/causal_small", .form = "rolling"},
    {.program = "variants/gqa_decode", .form = "rolling", .dominated = true},
    {.program = "variants/gqa_decode", .form = "grouped", .dominated = true},
    {.program = "variants/gqa_decode", .form = "rows"},
    {.program = "variants/logsumexp", .form = "rolling"},
    {.program = "variants/mla_decode", .form = "absorbed", .unreached = true},
    {.program = "variants/mla_decode", .form = "rows_split", .unreached = true},
    {.program = "variants/mla_rope_decode", .form = "absorbed", .unreached = true},
    {.program = "variants/mla_rope_decode", .form = "rows_split", .unreached = true},
    {.program = "variants/qknorm_attention", .form = "rolling", .unreached = true},
    {.program = "variants/qknorm_attention", .form = "logits", .unreached = true},
    {.program = "variants/rope_attention", .form = "turned_tiles", .unreached = true},
    {.program = "variants/rope_attention", .form = "turned_keys", .unreached = true},
    {.program = "variants/self_attention", .form = "rolling", .unreached = true},
    {.program = "variants/sinks", .form = "rolling"},
    {.program = "variants/sink_window", .form = "split", .keep = "s"},
    {.program = "variants/sliding_window", .form = "rolling"},
    {.program = "variants/safe_softmax", .form = "rolling"},
    {.program = "variants/softcap", .form = "rolling"},
    {.program = "variants/two_maps", .form = "split", .unreached = true},
    {.program = "gated_mlp_b16", .form = "fused"},
    {.program = "layernorm_gemm_b16", .form = "two_kernels", .dominated = true},
    {.program = "layernorm_gemm_b16", .form = "one_pass", .keep = "k", .dominated = true},
    {.program = "layernorm_gemm_b16", .form = "whole_rows", .keep = "k"},
    {.program = "lora_b1", .form = "partials"},
    {.program = "lora_b16", .form = "one_kernel", .dominated = true},
    {.program = "lora_b16", .form = "one_loop", .other_order = true},
    {.program = "lora_b16", .form = "two_kernels"},
    {.program = "ngpt_b16", .form = "rows", .dominated = true},
    {.program = "ngpt_b16", .form = "whole_rows"},
    {.program = "rmsnorm_linear_b16", .form = "fused"},
    {.program = "rmsnorm_mlp_b1", .form = "fused"},
    {.program = "rmsnorm_mlp_b16", .form = "fused"},
    {.program = "rmsnorm_swiglu_b16", .form = "two_kernels"},
    {.program = "rmsnorm_swiglu_b16", .form = "split_last"},
};

/* Implementations with one mistake: `right` of a derivation's text becomes `wrong`. */
static const struct {
    const char *program, *form, *right, *wrong;
} mistakes[] = {
    {"mha_decode_b1", "rolling", "repaired(max, product(sum, sum), mul(c, exp(sub(s, t))), mul(c, exp(sub(s, t))))",
     "product(max, product(sum, sum))"},
    {"mha_decode_b1", "rolling", "exp(sub(s, t))), mul", "exp(sub(t, s))), mul"},
    {"mha_decode_b1", "rolling", "0.08838834764831843", "0.5"},
    {"mha_decode_b1", "rolling", "div(acc, l)", "div(acc, get[0](roll))"},
    {"mha_decode_b1", "split", "mul(c, exp(sub(s, t)))), first", "c), first"},
    {"variants/base2", "rolling", "mul(c, exp2(sub(s, t)))), s.1", "mul(c, exp(sub(s, t)))), s.1"},
    {"variants/causal_small", "rolling", "ge(row, col)", "ge(col, row)"},
    {"variants/causal_small", "rolling", "select(ge(row, col), mul(tile_matmul(qt, kt), 0.35355339059327373), -inf)",
     "mul(tile_matmul(qt, kt), 0.35355339059327373)"},
    {"variants/rope_attention", "turned_tiles", "neg(slice[-1, 32:64](kt))", "slice[-1, 32:64](kt)"},
    {"variants/mla_rope_decode", "absorbed", "add(latent, turned)", "latent"},
    {"variants/mla_rope_decode", "absorbed", "(slice[-1, 0:128](heads)))", "(slice[-1, 128:256](heads)))"},
    {"variants/self_attention", "rolling", "ge(row, col)", "ge(col, row)"},
    {"variants/sinks", "rolling", "add(get[0](get[1](roll)), exp(sub(kb, m)))", "get[0](get[1](roll))"},
    {"variants/sink_window", "split", "lt(at, 3)", "lt(at, 4)"},
    {"variants/sliding_window", "rolling", "lt(ago, 8)", "lt(ago, 9)"},
    {"variants/two_maps", "split", "exp(sub(st2, mt2))", "exp(sub(st2, mt1))"},
    {"variants/softcap", "rolling", "div(raw, 50)", "raw"},
    {"rmsnorm_linear_b16", "fused", "mul(xt, gt)", "xt"},
    {"rmsnorm_linear_b16", "fused", "tuple(reduce[sum, -1](mul(xt, xt)), ", "tuple(reduce[max, -1](mul(xt, xt)), "},
    {"lora_b16", "two_kernels", "add(base, ", "sub(base, "},
};

#define COUNT(table) (sizeof(table) / sizeof *(table))

/* ---- a program, an implementation and the search, in one context ---- */

typedef struct {
    ef_ctx *ctx;
    ef_program *program, *form;
    ef_search *search;
    char name[160];
} session;

static _Noreturn void give_up(const char *name, const char *why)
{
    fail_msg("%s: %s", name, why);
    abort(); /* not reached, but cmocka's declarations do not say so */
}

static void assert_fine(bool fine, const session *s, const ef_diag *diag)
{
    if (!fine)
        give_up(s->name, diag->text);
}

/* The text of a derivation with `right` replaced. */
static char *read_text(const char *path, const char *right, const char *wrong)
{
    char text[1 << 14], *changed = malloc(2 * sizeof text);
    FILE *file = fopen(path, "rb");
    if (!file || !changed)
        give_up(path, "cannot be opened");
    text[fread(text, 1, sizeof text - 1, file)] = 0;
    fclose(file);
    char *at = right ? strstr(text, right) : text + strlen(text);
    if (!at)
        give_up(path, "does not say what is to be replaced");
    snprintf(changed, 2 * sizeof text, "%.*s%s%s", (int)(at - text), text, right ? wrong : "",
             at + (right ? strlen(right) : 0));
    return changed;
}

static session session_new(const char *program, const char *form, const char *right, const char *wrong)
{
    ef_diag diag = {0};
    session s = {.ctx = ef_ctx_new()};
    char path[160];
    const char *slash = strchr(program, '/');
    snprintf(path, sizeof path, "tests/programs/%s.ef", program);
    snprintf(s.name, sizeof s.name, "tests/derivations/%s_%s.ef", slash ? slash + 1 : program, form);
    char *text = read_text(s.name, right, wrong);
    s.program = ef_program_read(s.ctx, path, &diag);
    assert_fine(s.program != NULL, &s, &diag);
    s.form = ef_program_parse(s.ctx, text, strlen(text), s.name, &diag);
    assert_fine(s.form != NULL, &s, &diag);
    assert_int_equal(s.program->outputs, 1);
    assert_int_equal(s.form->outputs, 1);
    assert_int_equal(ef_dag_type(s.program->dag, s.program->output[0].expr),
                     ef_dag_type(s.form->dag, s.form->output[0].expr));
    free(text);
    return s;
}

static void session_free(session *s)
{
    ef_search_free(s->search);
    ef_program_free(s->form);
    ef_program_free(s->program);
    ef_ctx_free(s->ctx);
}

static void saturate(session *s)
{
    ef_diag diag = {0};
    s->search = ef_search_new(s->program, &(ef_search_options){.node_limit = 200000, .time_limit = 100}, &diag);
    assert_fine(s->search != NULL, s, &diag);
    assert_fine(ef_search_saturate(s->search, &diag), s, &diag);
    assert_int_equal(s->search->stats->stop, EF_STOP_SATURATED);
}

/* The first expression that is not in the e-graph although its operands are. */
static void print_missing(const session *s)
{
    ef_egraph *g = s->search->graph;
    for (ef_expr e = 0; e <= s->form->output[0].expr; e++) {
        const ef_expr *child;
        ef_op op = ef_dag_op(s->form->dag, e); /* chains of views, and of combinations, are one node */
        bool operands = op != EF_VIEW && op != EF_COMBINE;
        for (unsigned i = 0, n = ef_dag_children(s->form->dag, e, &child); i < n; i++)
            operands = operands && ef_egraph_find_expr(g, s->form->dag, child[i]) != EF_NONE;
        if (!operands || ef_egraph_find_expr(g, s->form->dag, e) != EF_NONE)
            continue;
        ef_strbuf out = {0};
        ef_expr_print(s->form->dag, e, &out);
        print_message("%s: not contained: %.600s\n", s->name, out.text);
        ef_strbuf_free(&out);
        return;
    }
}

static bool contained(const session *s)
{
    ef_egraph *g = s->search->graph;
    ef_id id = ef_egraph_find_expr(g, s->form->dag, s->form->output[0].expr);
    return id != EF_NONE && ef_find(g, id) == ef_find(g, s->search->output[0]);
}

/* Adds the form to the e-graph and goes on. */
static void saturate_with_form(session *s)
{
    ef_diag diag = {0};
    assert_int_not_equal(ef_egraph_add_expr(s->search->graph, s->form->dag, s->form->output[0].expr), EF_NONE);
    assert_fine(ef_search_saturate(s->search, &diag), s, &diag);
    assert_int_equal(s->search->stats->stop, EF_STOP_SATURATED);
}

/* ---- numbers ---- */

#define MAX_TILES 64

typedef struct {
    ef_tile tile[MAX_TILES];
    ef_tiling tiling;
} tile_choice;

typedef struct {
    uint64_t seed;
    double scale;
} source;

static void fill(void *user, uint32_t input, ef_tensor *out)
{
    const source *s = user;
    ef_rng rng = {s->seed * 1000003 + input};
    uint64_t count = 1;
    for (unsigned i = 0; i < out->rank; i++)
        count *= out->extent[i];
    for (uint64_t i = 0; i < count; i++)
        out->data[i] = s->scale * ef_rng_normal(&rng);
}

/* Small extents that tiles need not divide, and which reach past the window of sliding_window. */
static ef_resizing *sizes_of(const session *s, const char *keep)
{
    ef_resizing *sizes = ef_resizing_new(s->ctx);
    ef_resizing_read(sizes, s->program->dag, &s->program->output[0].expr, 1);
    ef_resizing_read(sizes, s->form->dag, &s->form->output[0].expr, 1);
    if (keep)
        ef_resizing_keep(sizes, ef_var_find(s->ctx, keep, (unsigned)strlen(keep)));
    return sizes;
}

static void draw_tiles(const session *s, tile_choice *t, ef_rng *rng)
{
    t->tiling = (ef_tiling){.tiles = t->tile, .fallback = 2};
    for (ef_var v = 0; v < ef_var_count(s->ctx) && t->tiling.count + 2 <= MAX_TILES; v++) {
        uint64_t block = 1 + ef_rng_below(rng, 8), tile = 1 + ef_rng_below(rng, 4);
        t->tile[t->tiling.count++] = (ef_tile){ef_axis_of(v, 0), block};
        t->tile[t->tiling.count++] = (ef_tile){ef_axis_of(v, 1), tile};
    }
}

static bool all_finite(const ef_evaluation *e)
{
    const ef_tensor *t = ef_evaluation_at(e, 0, 0);
    uint64_t count = 1;
    for (unsigned i = 0; i < t->rank; i++)
        count *= t->extent[i];
    while (count > 0 && isfinite(t->data[count - 1]))
        count--;
    return count == 0;
}

static double difference(const session *s, const tile_choice *tiles, const source *from)
{
    ef_diag diag = {0};
    ef_evaluation *want =
        ef_evaluate(s->program->dag, &s->program->output[0].expr, 1, &tiles->tiling, fill, (void *)from, 0, &diag);
    assert_fine(want != NULL, s, &diag);
    ef_evaluation *got =
        ef_evaluate(s->form->dag, &s->form->output[0].expr, 1, &tiles->tiling, fill, (void *)from, 0, &diag);
    assert_fine(got != NULL, s, &diag);
    assert_true(all_finite(want));
    double worst = ef_evaluation_difference(got, 0, want, 0, 1);
    ef_evaluation_free(want);
    ef_evaluation_free(got);
    return worst;
}

/* The worst of several sizes and tilings, with small and with large inputs. */
static double worst_difference(const session *s, const char *keep)
{
    double worst = 0;
    static const uint32_t extents[] = {3, 4, 5, 6, 7, 8, 9, 10, 11};
    ef_resizing *sizes = sizes_of(s, keep);
    for (uint64_t seed = 1; seed <= 12; seed++) {
        ef_rng rng = {seed};
        tile_choice tiles;
        source from = {.seed = seed, .scale = seed % 3 ? 1 : 40};
        ef_resizing_draw(sizes, &rng, extents, COUNT(extents));
        draw_tiles(s, &tiles, &rng);
        worst = fmax(worst, difference(s, &tiles, &from));
    }
    ef_resizing_free(sizes);
    return worst;
}

/* ---- tests ---- */

static void test_forms_compute_the_same(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(derivations); i++) {
        session s = session_new(derivations[i].program, derivations[i].form, NULL, NULL);
        double worst = worst_difference(&s, derivations[i].keep);
        if (!(worst <= 1e-9))
            fail_msg("%s differs from its program by %g", s.name, worst);
        session_free(&s);
    }
}

static void explain_and_check(const session *s)
{
    ef_diag diag = {0};
    const ef_ruleset *rules = s->search->rules;
    ef_proof *proof = ef_explain_exprs(s->search->graph, rules->rules.at, rules->rules.count, s->program->dag,
                                       s->program->output[0].expr, s->form->dag, s->form->output[0].expr, &diag);
    assert_fine(proof != NULL, s, &diag);
    assert_fine(ef_proof_check(proof, rules, &diag), s, &diag);
    print_message("%s: %u e-nodes, %u steps\n", s->name, s->search->graph->live, proof->steps);
    ef_proof_free(proof);
}

static void test_forms_are_contained(void **state)
{
    (void)state;
    unsigned failures = 0;
    for (size_t i = 0; i < COUNT(derivations); i++) {
        session s = session_new(derivations[i].program, derivations[i].form, NULL, NULL);
        saturate(&s);
        bool found = contained(&s);
        if (derivations[i].other_order) {
            assert_false(found);
            saturate_with_form(&s);
            found = contained(&s);
        }
        if (!found)
            print_missing(&s);
        if (found == derivations[i].wanted) {
            print_message("%s: %s\n", s.name, found ? "contained now: no longer `wanted`" : "should be contained");
            failures++;
        }
        if (found)
            explain_and_check(&s);
        session_free(&s);
    }
    assert_int_equal(failures, 0);
}

/* All candidates of these programs are enumerated, and the organisation of every form is one of theirs. */
static void test_forms_are_candidates(void **state)
{
    (void)state;
    unsigned failures = 0;
    for (size_t i = 0; i < COUNT(derivations); i++) {
        const derivation *d = &derivations[i];
        if (d->unreached)
            continue;
        session s = session_new(d->program, d->form, NULL, NULL);
        saturate(&s);
        ef_extraction *e = ef_extract(
            s.search, &(ef_extract_options){.compaction = EF_COMPACT_EARLY, .time_limit = 100, .keep = 100000});
        uint64_t form = ef_organisation(s.form->dag, &s.form->output[0].expr, 1);
        bool found = false;
        for (uint32_t c = 0; c < e->candidate.count && !found; c++)
            found = ef_organisation(e->dag, e->candidate.at[c].output, 1) == form;
        print_message("%s: %s of %llu candidates, %.2f s\n", s.name, found ? "one" : "none",
                      (unsigned long long)e->candidates, e->seconds);
        failures += found == (d->dominated || d->wanted) || !e->complete;
        ef_extraction_free(e);
        session_free(&s);
    }
    assert_int_equal(failures, 0);
}

/* Nothing that computes something else is equal; each mistake is one, since its numbers differ. */
static void test_mistakes_are_not_contained(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(mistakes); i++) {
        session s = session_new(mistakes[i].program, mistakes[i].form, mistakes[i].right, mistakes[i].wrong);
        saturate(&s);
        if (contained(&s))
            fail_msg("%s with %s is contained", s.name, mistakes[i].wrong);
        if (!(worst_difference(&s, NULL) > 1e-3))
            fail_msg("%s with %s computes the same", s.name, mistakes[i].wrong);
        session_free(&s);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_forms_compute_the_same),
        cmocka_unit_test(test_forms_are_contained),
        cmocka_unit_test(test_forms_are_candidates),
        cmocka_unit_test(test_mistakes_are_not_contained),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
