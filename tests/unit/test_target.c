/* Device models and static ranking (paper, section 6.2): estimates are optimistic, and they prefer what must be
 * faster. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "codegen/settings.h"
#include "codegen/triton.h"
#include "support/rng.h"
#include "target/cost.h"
#include "target/first.h"
#include "target/floor.h"
#include "target/masked.h"
#include "target/rank.h"
#include "target/room.h"

typedef struct {
    ef_ctx *ctx;
    ef_program *program;
    ef_kgraph *graph;
} loaded;

static loaded cut(ef_ctx *ctx, ef_program *program, ef_diag *diag)
{
    loaded l = {.ctx = ctx, .program = program};
    l.graph = program ? ef_kgraph_new(program, diag) : NULL;
    if (!l.graph) {
        fail_msg("%s", diag->text);
        abort(); /* the analyser does not know that it has ended */
    }
    return l;
}

static loaded load(const char *path)
{
    ef_diag diag = {0};
    ef_ctx *ctx = ef_ctx_new();
    return cut(ctx, ef_program_read(ctx, path, &diag), &diag);
}

static loaded load_text(const char *text)
{
    ef_diag diag = {0};
    ef_ctx *ctx = ef_ctx_new();
    return cut(ctx, ef_program_parse(ctx, text, strlen(text), "text", &diag), &diag);
}

static void release(loaded *l)
{
    ef_kgraph_free(l->graph);
    ef_program_free(l->program);
    ef_ctx_free(l->ctx);
}

static double rank(const char *path, const char *target)
{
    ef_diag diag = {0};
    ef_ranking r;
    loaded l = load(path);
    if (!ef_rank(l.graph, ef_target_named(target), 2, &r, &diag))
        fail_msg("%s: %s", path, diag.text);
    double us = r.us;
    ef_ranking_free(&r);
    release(&l);
    return us;
}

static const char *const paths[] = {
    "tests/programs/gated_mlp_b16.ef",
    "tests/programs/layernorm_gemm_b1.ef",
    "tests/programs/lora_b8.ef",
    "tests/programs/mha_decode_b1.ef",
    "tests/programs/mha_prefill_b1.ef",
    "tests/programs/ngpt_b16.ef",
    "tests/programs/rmsnorm_swiglu_b16.ef",
    "tests/derivations/gated_mlp_b16_fused.ef",
    "tests/derivations/layernorm_gemm_b16_whole_rows.ef",
    "tests/derivations/lora_b1_partials.ef",
    "tests/derivations/lora_b16_one_loop.ef",
    "tests/derivations/mha_decode_b16_rolling.ef",
    "tests/derivations/mha_decode_b16_split.ef",
    "tests/derivations/mha_prefill_b1_rolling.ef",
    "tests/derivations/mla_decode_absorbed.ef",
    "tests/derivations/ngpt_b16_whole_rows.ef",
    "tests/derivations/rmsnorm_linear_b16_fused.ef",
    "tests/derivations/rmsnorm_mlp_b16_fused.ef",
    "tests/derivations/rmsnorm_swiglu_b16_two_kernels.ef",
};
#define PATHS (sizeof paths / sizeof *paths)

/* Nothing goes below the roofline, on any device, and the parts add up to the whole. */
static void test_floor_is_below(void **state)
{
    (void)state;
    for (unsigned p = 0; p < PATHS; p++)
        for (unsigned t = 0; t < ef_target_count; t++) {
            ef_diag diag = {0};
            ef_ranking r;
            loaded l = load(paths[p]);
            ef_target device = ef_target_with_threads(&ef_targets[t], 2);
            double floor_us = ef_floor_of(l.program, &device).us, sum = 0;
            if (!ef_rank(l.graph, &ef_targets[t], 2, &r, &diag))
                fail_msg("%s on %s: %s", paths[p], ef_targets[t].name, diag.text);
            for (uint32_t k = 0; k < l.graph->kernels.count; k++)
                sum += r.kernel_us[k];
            if (!(r.us >= floor_us * 0.999) || !(fabs(sum - r.us) <= 1e-6 * r.us))
                fail_msg("%s on %s: ranked %g us, kernels %g us, floor %g us", paths[p], ef_targets[t].name, r.us, sum,
                         floor_us);
            ef_ranking_free(&r);
            release(&l);
        }
}

/* What must be faster ranks before: fused before one kernel an operator, and the order of the data sheets. */
static void test_order(void **state)
{
    (void)state;
    static const char *const better[][2] = {
        {"tests/derivations/mha_decode_b16_rolling.ef", "tests/programs/mha_decode_b16.ef"},
        {"tests/derivations/mha_prefill_b1_rolling.ef", "tests/programs/mha_prefill_b1.ef"},
        {"tests/derivations/rmsnorm_mlp_b16_fused.ef", "tests/programs/rmsnorm_mlp_b16.ef"},
        {"tests/derivations/rmsnorm_swiglu_b16_two_kernels.ef", "tests/programs/rmsnorm_swiglu_b16.ef"},
        {"tests/derivations/gated_mlp_b16_fused.ef", "tests/programs/gated_mlp_b16.ef"},
        {"tests/derivations/ngpt_b16_whole_rows.ef", "tests/programs/ngpt_b16.ef"},
        /* one query of 32 heads leaves most of a GPU idle unless its keys are split */
        {"tests/derivations/mha_decode_b1_split.ef", "tests/derivations/mha_decode_b1_rolling.ef"},
    };
    for (unsigned i = 0; i < sizeof better / sizeof *better; i++) {
        double fast = rank(better[i][0], "h200"), slow = rank(better[i][1], "h200");
        print_message("%s: %.1f us, %s: %.1f us\n", better[i][0], fast, better[i][1], slow);
        if (!(fast < slow))
            fail_msg("%s: %g us, %s: %g us", better[i][0], fast, better[i][1], slow);
    }
    static const char *const devices[] = {"b200", "h200", "h100", "a100", "cpu"};
    for (unsigned i = 0; i + 1 < sizeof devices / sizeof *devices; i++)
        assert_true(rank("tests/derivations/mha_decode_b16_rolling.ef", devices[i]) <
                    rank("tests/derivations/mha_decode_b16_rolling.ef", devices[i + 1]));
}

static void test_names(void **state)
{
    (void)state;
    static const char *const names[] = {"cpu", "a100", "h100", "h200", "b200", "rtx4090", "rtx5090"};
    assert_int_equal(ef_target_count, sizeof names / sizeof *names);
    for (unsigned i = 0; i < ef_target_count; i++) {
        const ef_target *t = ef_target_named(names[i]);
        assert_non_null(t);
        assert_true(t->memory > 0 && t->cache >= t->memory && t->vector > 0 && t->units > 0 && t->launch_us > 0);
        assert_true(!t->gpu || t->matrix[EF_BF16] > t->vector);
    }
    assert_null(ef_target_named("tpu"));
}

static void set(const loaded *l, ef_schedule *schedule, const char *name, uint64_t value)
{
    assert_true(ef_schedule_set(l->graph, schedule, name, (unsigned)strlen(name), value));
}

/* Scores of all keys at once have no room, nor have operands of many stages, nor scores beside what they add up to. */
static void test_room(void **state)
{
    (void)state;
    const ef_target *h200 = ef_target_named("h200");
    loaded l = load("tests/derivations/mha_prefill_b1_rolling.ef");
    ef_schedule schedule = ef_schedule_default(l.graph, EF_BACKEND_TRITON, h200->units);
    set(&l, &schedule, "q.0", 128);
    set(&l, &schedule, "s.1", 128);
    set(&l, &schedule, "warps", 8);
    set(&l, &schedule, "stages", 3);
    assert_true(ef_room_fits(l.graph, &schedule, 0, h200)); /* the best that a sweep found */
    set(&l, &schedule, "q.0", 256);
    set(&l, &schedule, "s.1", 256);
    set(&l, &schedule, "warps", 16);
    set(&l, &schedule, "stages", 1);
    assert_false(ef_room_fits(l.graph, &schedule, 0, h200));
    set(&l, &schedule, "q.0", 128);
    set(&l, &schedule, "s.1", 128);
    set(&l, &schedule, "warps", 8);
    set(&l, &schedule, "stages", 8);
    assert_false(ef_room_fits(l.graph, &schedule, 0, h200));
    set(&l, &schedule, "stages", 2);
    set(&l, &schedule, "s.1", 4096);
    assert_false(ef_room_fits(l.graph, &schedule, 0, h200));
    ef_schedule_free(&schedule);
    release(&l);
}

/* A device of more multiprocessors gets more blocks. */
static void test_first_schedules(void **state)
{
    (void)state;
    loaded l = load("tests/derivations/mha_decode_b1_split.ef");
    uint64_t blocks[2];
    for (unsigned i = 0; i < 2; i++) {
        ef_schedule schedule = ef_schedule_default(l.graph, EF_BACKEND_TRITON, i ? 264 : 66);
        blocks[i] = ef_sched_blocks(l.graph, &schedule, l.graph->kernels.at[0]);
        ef_schedule_free(&schedule);
    }
    assert_true(blocks[0] >= 66 && blocks[1] >= 264 && blocks[1] > blocks[0]);
    assert_false(ef_target_named("a100")->overlaps);
    assert_true(ef_target_named("h200")->overlaps);
    release(&l);
}

/* A kernel that begins early has loaded what it can of its inputs when it has waited: where no loop loads them and it
 * does not go round. Its first schedule then begins early; that of another product does not. */
static void test_inputs_loaded_ahead(void **state)
{
    static const char text[] = "program p\ndim a = 16\ndim b = 4096\ndim c = 512\ndim e = 1536\n"
                               "input x: f16[a, b]\ninput w: f16[b, c]\ninput v: f16[c, e]\n"
                               "output r = matmul(matmul(x, w), v)\n";
    (void)state;
    loaded l = load_text(text);
    const ef_target *h200 = ef_target_named("h200");
    double us[8];
    assert_int_equal(l.graph->kernels.count, 2);
    ef_schedule s = ef_first_schedule(l.graph, h200, us);
    assert_true(ef_sched_value(l.graph, &s, 1, EF_PARAM_OVERLAP) == EF_BEGIN_EARLY_EVENLY);
    assert_true(ef_kernels_hide(l.graph, &s));
    ef_cost *second = ef_cost_new(l.graph, 1, h200);
    double ahead = ef_cost_us(second, &s, NULL);
    set(&l, &s, "k1.persist", 1);
    assert_true(ef_cost_us(second, &s, NULL) > ahead);
    set(&l, &s, "k1.persist", 0);
    set(&l, &s, "k1.overlap", EF_BEGIN_AFTER);
    assert_true(ef_cost_us(second, &s, NULL) > ahead);
    set(&l, &s, "k1.c.1", 64);
    double in_turn = ef_cost_us(second, &s, NULL);
    assert_false(ef_kernels_hide(l.graph, &s));
    set(&l, &s, "k1.overlap", EF_BEGIN_EARLY);
    assert_true(ef_cost_us(second, &s, NULL) == in_turn);
    ef_cost_free(second);
    ef_schedule_free(&s);
    release(&l);
}

/* Of a product of a product with few rows each warp has columns of its own, so that more of them repeat nothing. */
static void test_few_rows_deal_out_columns(void **state)
{
    (void)state;
    loaded l = load("tests/derivations/mha_decode_b1_split.ef");
    double us[8];
    ef_schedule s = ef_first_schedule(l.graph, ef_target_named("h200"), us);
    ef_cost *first = ef_cost_new(l.graph, 0, ef_target_named("h200"));
    set(&l, &s, "k0.warps", 8);
    assert_true(ef_cost_us(first, &s, NULL) < 1.1 * us[0]);
    ef_cost_free(first);
    ef_schedule_free(&s);
    release(&l);
}

/* Operands that no loop loads go to shared memory for the matrix unit one after the other, each when it has come. */
static void test_operands_in_turn(void **state)
{
    static const char text[] = "program p\ndim a = 16\ndim b = 64\ndim c = 32\ninput x: f16[a, b]\n"
                               "input w: f16[b, c]\noutput r = matmul(x, w)\n";
    static const char *const whole[] = {"k0.a.0", "k0.b.1", "k0.c.0"};
    static const uint64_t extent[] = {16, 64, 32};
    (void)state;
    loaded l = load_text(text);
    ef_schedule s = ef_schedule_default(l.graph, EF_BACKEND_TRITON, 132);
    const ef_target *h200 = ef_target_named("h200");
    ef_cost *c = ef_cost_new(l.graph, 0, h200);
    for (unsigned i = 0; i < 3; i++)
        set(&l, &s, whole[i], extent[i]);
    set(&l, &s, "k0.unit", 1);
    assert_true(ef_cost_us(c, &s, NULL) > h200->launch_us + 2 * 0.75); /* twice what a load from memory takes */
    ef_cost_free(c);
    ef_schedule_free(&s);
    release(&l);
}

/* Rows that are sums are not multiplied several at a time outside of the matrix unit, where they are long. */
static void test_long_rows_of_sums(void **state)
{
    static const char text[] = "program p\ndim a = 16\ndim s = 4\ndim c = 512\ndim e = 512\ninput x: f16[a, s, c]\n"
                               "input w: f16[c, e]\n"
                               "sums = reduce[sum, -2](partition[-3, a.0](replicate[e.0](x)))\n"
                               "tile = tile_matmul(reshape[a, c](sums), partition[-1, e.0](replicate[a.0](w)))\n"
                               "output r = combination[-2, a.0](combination[-1, e.0](tile))\n";
    (void)state;
    loaded l = load_text(text);
    double us[8];
    ef_schedule s = ef_first_schedule(l.graph, ef_target_named("h200"), us);
    ef_cost *c = ef_cost_new(l.graph, 0, ef_target_named("h200"));
    set(&l, &s, "k0.unit", 0);
    set(&l, &s, "k0.e.0", 16);
    for (uint64_t rows = 1; rows <= 2; rows++) {
        set(&l, &s, "k0.a.0", rows);
        us[rows - 1] = ef_cost_us(c, &s, NULL);
    }
    assert_true(us[1] > 3 * us[0] && us[1] < EF_COST_NEVER);
    ef_cost_free(c);
    ef_schedule_free(&s);
    release(&l);
}

/* Draws parameters of a kernel until it has room; else its first ones stay. */
static void draw_kernel(const loaded *l, ef_schedule *schedule, uint32_t kernel, const ef_target *target, ef_rng *rng)
{
    uint64_t domain[EF_SCHEDULE_VALUES];
    ef_schedule first = ef_schedule_copy(schedule);
    bool fits = false;
    for (unsigned tries = 0; tries < 40 && !fits; tries++) {
        for (uint32_t p = 0; p < schedule->count; p++)
            if (l->graph->params.at[p].kernel == kernel)
                schedule->value[p] =
                    domain[ef_rng_below(rng, ef_schedule_domain(l->graph, EF_BACKEND_TRITON, p, domain))];
        fits = ef_room_fits(l->graph, schedule, kernel, target);
    }
    for (uint32_t p = 0; p < schedule->count && !fits; p++)
        schedule->value[p] = first.value[p];
    ef_schedule_free(&first);
}

/* What the code generator refuses because of its size has no room: also products and reductions along several
 * variables, of which one is walked along. */
static void test_refused_tiles_have_no_room(void **state)
{
    static const char *const more[] = {"tests/programs/swa_gqa.ef", "tests/programs/attn_sinks.ef",
                                       "tests/programs/diff_attn.ef"};
    (void)state;
    const ef_target *h200 = ef_target_named("h200");
    ef_rng rng = {1};
    for (size_t i = 0; i < PATHS + sizeof more / sizeof *more; i++) {
        const char *path = i < PATHS ? paths[i] : more[i - PATHS];
        loaded l = load(path);
        for (unsigned draw = 0; draw < 24; draw++) {
            ef_diag diag = {0};
            ef_strbuf text = {0};
            bool fits = true;
            ef_schedule schedule = ef_schedule_default(l.graph, EF_BACKEND_TRITON, h200->units);
            for (uint32_t k = 0; k < l.graph->kernels.count; k++) {
                draw_kernel(&l, &schedule, k, h200, &rng);
                fits = fits && ef_room_fits(l.graph, &schedule, k, h200);
            }
            if (!ef_codegen_triton(l.graph, &schedule, "f", &text, &diag) && fits && diag.kind == EF_TOO_LARGE)
                fail_msg("%s, draw %u: there is room, but %s", path, draw, diag.text);
            assert_true((diag.kind == EF_TOO_LARGE) == (strstr(diag.text, " elements is ") != NULL));
            ef_strbuf_free(&text);
            ef_schedule_free(&schedule);
        }
        release(&l);
    }
    ef_diag diag = {0};
    ef_strbuf text = {0};
    loaded l = load("tests/derivations/mha_prefill_b1_rolling.ef");
    ef_schedule schedule = ef_schedule_default(l.graph, EF_BACKEND_TRITON, h200->units);
    set(&l, &schedule, "q.0", 1024);
    set(&l, &schedule, "s.1", 4096);
    assert_false(ef_room_fits(l.graph, &schedule, 0, h200));
    assert_false(ef_codegen_triton(l.graph, &schedule, "f", &text, &diag));
    assert_int_equal(diag.kind, EF_TOO_LARGE);
    ef_strbuf_free(&text);
    ef_schedule_free(&schedule);
    release(&l);
}

static double cost(const loaded *l, const ef_schedule *schedule, uint32_t kernel)
{
    ef_cost *c = ef_cost_new(l->graph, kernel, ef_target_named("h200"));
    double room, us = ef_cost_us(c, schedule, &room);
    ef_room needed = ef_room_of(l->graph, schedule, kernel, ef_target_named("h200"));
    assert_true(room == ef_room_excess(&needed, ef_target_named("h200")));
    ef_cost_free(c);
    return us;
}

/* Few blocks, nothing under way while a loop works, and no room cost more. */
static void test_cost(void **state)
{
    (void)state;
    const ef_target *h200 = ef_target_named("h200");
    loaded l = load("tests/derivations/mha_decode_b1_split.ef");
    ef_schedule schedule = ef_schedule_default(l.graph, EF_BACKEND_TRITON, h200->units);
    double us[2];
    for (unsigned i = 0; i < 2; i++) {
        set(&l, &schedule, "s.0", i ? 512 : 4096);
        us[i] = cost(&l, &schedule, 0);
    }
    assert_true(us[1] < 0.5 * us[0]); /* 256 blocks, and 32 */
    set(&l, &schedule, "stages", 1);
    assert_true(cost(&l, &schedule, 0) > us[1]);
    assert_true(cost(&l, &schedule, 1) < EF_COST_NEVER);
    set(&l, &schedule, "s.1", 512);
    set(&l, &schedule, "warps", 1);
    assert_true(cost(&l, &schedule, 0) >= EF_COST_NEVER);
    ef_schedule_free(&schedule);
    release(&l);
}

/* How much is visited of a loop over keys, in tiles, for queries in tiles: what masked.c says, and what is. */
typedef struct {
    const char *text;
    bool (*holds)(int64_t query, int64_t key); /* as far as it follows from positions */
} condition;

static bool is_causal(int64_t q, int64_t k)
{
    return k <= q;
}

static bool is_in_window(int64_t q, int64_t k)
{
    return k <= q && q - k < 100;
}

static bool is_last_1024(int64_t q, int64_t k)
{
    (void)q;
    return k >= 4096 - 1024;
}

static bool is_last_64(int64_t q, int64_t k)
{
    (void)q;
    return k >= 4096 - 64;
}

static bool is_last_16(int64_t q, int64_t k)
{
    (void)q;
    return k >= 4096 - 16;
}

static bool is_first_or_last(int64_t q, int64_t k)
{
    (void)q;
    return k < 4 || k >= 4096 - 128;
}

static bool is_any(int64_t q, int64_t k)
{
    (void)q;
    (void)k;
    return true;
}

static const condition conditions[] = {{"le(col, row)", is_causal},
                                       {"and(le(col, row), lt(sub(row, col), 100))", is_in_window},
                                       {"ge(col, 3072)", is_last_1024},
                                       {"ge(add(mul(col, 2), 64), 8128)", is_last_64 /* 2 k >= 8064 */},
                                       {"not(lt(col, 4080))", is_last_16},
                                       {"or(lt(col, 4), ge(col, 3968))", is_first_or_last},
                                       {"gt(xt, 0)", is_any}};

#define POSITIONS 4096

static double visited(const condition *c, int64_t queries, int64_t keys)
{
    uint64_t met = 0;
    for (int64_t q = 0; q < POSITIONS; q += queries)
        for (int64_t k = 0; k < POSITIONS; k += keys) {
            bool any = false;
            for (int64_t i = 0; i < queries && !any; i++)
                for (int64_t j = 0; j < keys && !any; j++)
                    any = c->holds(q + i, k + j);
            met += any;
        }
    return (double)met * (double)(queries * keys) / ((double)POSITIONS * POSITIONS);
}

/* Masks of positions leave out the tiles that they empty, as far as a schedule cuts them; others leave out nothing. */
static void test_visited_part(void **state)
{
    (void)state;
    static const char format[] =
        "program masked\ndim q = 4096\ndim s = 4096\ninput x: f32[q, s]\n"
        "row = replicate[s.1](reshape[q, 1](partition[-1, q.0](iota[q])))\n"
        "col = partition[-1, s.1](replicate[q.0](iota[s]))\nxt = partition[-1, s.1](partition[-2, q.0](x))\n"
        "kept = select(%s, xt, -inf)\n"
        "output o = combination[-2, q.0](reduce[max, s.1](reduce[max, -1](kept)))\n";
    static const uint64_t tiles[][2] = {{64, 64}, {1, 16}, {128, 32}, {512, 1024}};
    for (size_t c = 0; c < sizeof conditions / sizeof *conditions; c++) {
        char text[1024];
        ef_diag diag = {0};
        loaded l = {.ctx = ef_ctx_new()};
        snprintf(text, sizeof text, format, conditions[c].text);
        l.program = ef_program_parse(l.ctx, text, strlen(text), "masked", &diag);
        l.graph = l.program ? ef_kgraph_new(l.program, &diag) : NULL;
        if (!l.graph) {
            fail_msg("%s", diag.text);
            return;
        }
        const ef_kernel *k = l.graph->kernels.at[0];
        assert_int_equal(k->loops.at[0].keeps > 0, 1);
        ef_schedule schedule = ef_schedule_default(l.graph, EF_BACKEND_TRITON, 132);
        ef_masked *masked = ef_masked_new(l.graph, k, &k->loops.at[0]);
        for (size_t t = 0; t < sizeof tiles / sizeof *tiles; t++) {
            set(&l, &schedule, "q.0", tiles[t][0]);
            set(&l, &schedule, "s.1", tiles[t][1]);
            double part = ef_masked_part(masked, &schedule);
            double is = visited(&conditions[c], (int64_t)tiles[t][0], (int64_t)tiles[t][1]);
            if (fabs(part - is) > (strstr(conditions[c].text, "row") ? 0.04 : 1e-9) * is)
                fail_msg("%s in tiles of %u and %u: %g, not %g", conditions[c].text, (unsigned)tiles[t][0],
                         (unsigned)tiles[t][1], part, is);
            assert_true(part == ef_masked_part(masked, &schedule));
        }
        ef_masked_free(masked);
        ef_schedule_free(&schedule);
        release(&l);
    }
}

/* The search for a first schedule finds one with room that costs no more than the guess, the same one always. */
static void test_search_for_first_schedules(void **state)
{
    (void)state;
    for (size_t i = 0; i < PATHS; i++)
        for (unsigned t = 0; t < ef_target_count; t++) {
            if (!ef_targets[t].gpu)
                continue;
            double us[2][64], guessed = 0, found = 0;
            loaded l = load(paths[i]);
            assert_true(l.graph->kernels.count <= 64);
            ef_schedule first = ef_first_schedule(l.graph, &ef_targets[t], us[0]);
            ef_schedule again = ef_first_schedule(l.graph, &ef_targets[t], us[1]);
            ef_schedule guess = ef_schedule_default(l.graph, EF_BACKEND_TRITON, ef_targets[t].units);
            ef_strbuf text = {0};
            ef_diag diag = {0};
            if (!ef_codegen_triton(l.graph, &first, "f", &text, &diag))
                fail_msg("%s on %s: %s", paths[i], ef_targets[t].name, diag.text);
            ef_strbuf_free(&text);
            assert_memory_equal(first.value, again.value, first.count * sizeof *first.value);
            for (uint32_t k = 0; k < l.graph->kernels.count; k++) {
                ef_cost *c = ef_cost_new(l.graph, k, &ef_targets[t]);
                guessed += ef_cost_us(c, &guess, NULL);
                found += us[0][k];
                assert_true(us[0][k] == ef_cost_us(c, &first, NULL));
                ef_cost_free(c);
                if (!ef_room_fits(l.graph, &first, k, &ef_targets[t]))
                    fail_msg("%s, kernel %u on %s has no room", paths[i], k, ef_targets[t].name);
            }
            if (!(found <= guessed * 1.0001))
                fail_msg("%s on %s: %g us, guessed %g us", paths[i], ef_targets[t].name, found, guessed);
            ef_schedule_free(&first);
            ef_schedule_free(&again);
            ef_schedule_free(&guess);
            release(&l);
        }
}

/* Keys of a history and one that is appended: each block loads its own tile of both, as of one tensor. */
static void test_appended_tensors_are_loaded_by_tiles(void **state)
{
    (void)state;
    static const char head[] = "program history\ndim h = 8\ndim m = 16\ndim d = 128\ndim old = 16383\ndim s = 16384\n"
                               "input q: f16[h, m, d]\ninput k: f16[h, old, d]\ninput n: f16[h, 1, d]\n"
                               "input all: f16[h, s, d]\n";
    static const char *const keys[] = {"keys = reshape[h, s, d](all)\n", "keys = reshape[h, s, d](concat[-2](k, n))\n"};
    static const char product[] =
        "output o = combination[-3, h.0](combination[-1, s.0](tile_matmul(replicate[s.0](partition[-3, h.0](q)), "
        "partition[-1, s.0](partition[-3, h.0](transpose[0, 2, 1](keys))))))\n";
    double us[2];
    for (unsigned i = 0; i < 2; i++) {
        char text[1024];
        ef_diag diag = {0};
        ef_ctx *ctx = ef_ctx_new();
        snprintf(text, sizeof text, "%s%s%s", head, keys[i], product);
        ef_program *program = ef_program_parse(ctx, text, strlen(text), "history", &diag);
        ef_kgraph *graph = program ? ef_kgraph_new(program, &diag) : NULL;
        if (!graph) {
            fail_msg("%s", diag.text);
            return;
        }
        assert_int_equal(graph->kernels.count, 1);
        ef_schedule first = ef_first_schedule(graph, ef_target_named("h200"), &us[i]);
        ef_schedule_free(&first);
        ef_kgraph_free(graph);
        ef_program_free(program);
        ef_ctx_free(ctx);
    }
    print_message("keys in one tensor %.1f us, in two %.1f us\n", us[0], us[1]);
    assert_true(us[1] < 1.5 * us[0]);
}

static double cost_of_kernel(const char *path, uint32_t kernel, const char *settings, double *room)
{
    loaded l = load(path);
    ef_diag diag = {0};
    ef_schedule schedule = ef_schedule_default(l.graph, EF_BACKEND_TRITON, 0);
    if (!ef_settings_schedule(l.graph, &schedule, settings, &diag))
        fail_msg("%s", diag.text);
    ef_cost *c = ef_cost_new(l.graph, kernel, ef_target_named("h200"));
    double us = ef_cost_us(c, &schedule, room);
    ef_cost_free(c);
    ef_schedule_free(&schedule);
    release(&l);
    return us;
}

static double cost_with(const char *path, const char *settings, double *room)
{
    return cost_of_kernel(path, 0, settings, room);
}

/* Causal attention as it was measured on an H200: 275 us with 64 rows and 4 warps, two blocks a multiprocessor, 506
 * with 8 warps, of which half repeat what the others do, 333 with 128 rows and 8 warps, which have one block alone. */
static void test_attention_costs_what_was_measured(void **state)
{
    (void)state;
    static const char file[] = "tests/derivations/mha_prefill_b1_rolling.ef";
    double room, best = cost_with(file, "q.0=64,s.1=64,e.0=128,warps=4,stages=3,unit=1", &room);
    assert_true(room < 0.6);
    assert_true(cost_with(file, "q.0=64,s.1=64,e.0=128,warps=8,stages=3,unit=1", NULL) > 1.5 * best);
    assert_true(cost_with(file, "q.0=128,s.1=128,e.0=128,warps=8,stages=3,unit=1", NULL) > best);
}

/* Products of few rows with a large matrix, as an H200 measured them. */
static void test_products_of_few_rows_cost_what_was_measured(void **state)
{
    (void)state;
    static const char norm[] = "tests/derivations/rmsnorm_linear_b16_fused.ef",
                      gated[] = "tests/derivations/gated_mlp_b16_fused.ef";
    /* 14.2 us; by pointers 28, since the rows, which are summed as well, begin in the same banks */
    double best = cost_with(norm, "m.0=16,n.0=32,k.1=256,warps=4,stages=6,unit=1,load=1", NULL);
    assert_true(best > 8 && best < 19);
    assert_true(cost_with(norm, "m.0=16,n.0=32,k.1=256,warps=4,stages=6,unit=1,load=0", NULL) > 1.25 * best);
    /* 22 and 32: each warp computes the rows for itself */
    double eight = cost_with(norm, "m.0=16,n.0=32,k.1=256,warps=8,stages=6,unit=1,load=1", NULL);
    assert_true(eight > 1.1 * best);
    assert_true(cost_with(norm, "m.0=16,n.0=32,k.1=256,warps=16,stages=6,unit=1,load=1", NULL) > 1.2 * eight);
    /* 18.1 where the operand is loaded as it is, also with 2 warps; 19 with 8, 29 with 16 */
    double plain = cost_with(gated, "m.0=16,n.0=32,k.1=256,warps=4,stages=4,unit=1,load=1", NULL);
    assert_true(plain > 15 && plain < 22);
    assert_true(fabs(cost_with(gated, "m.0=16,n.0=32,k.1=256,warps=2,stages=4,unit=1,load=1", NULL) / plain - 1) < 0.1);
    assert_true(cost_with(gated, "m.0=16,n.0=32,k.1=256,warps=16,stages=4,unit=1,load=1", NULL) > 1.2 * plain);
    /* 33: one iteration is asked for ahead */
    assert_true(cost_with(gated, "m.0=16,n.0=32,k.1=256,warps=4,stages=2,unit=1,load=1", NULL) > 1.1 * plain);
}

/* The matrix unit takes 16 rows, so all tiles along the rows have them: compilers wanted 250,880 bytes of shared memory
 * of 232,448 for this. */
static void test_rows_that_are_added_take_room(void **state)
{
    (void)state;
    static const char file[] = "tests/derivations/rmsnorm_linear_b16_fused.ef";
    double room, whole;
    cost_with(file, "m.0=8,n.0=32,k.1=512,warps=4,stages=6,unit=1", &room);
    assert_true(room > 1);
    cost_with(file, "m.0=8,n.0=32,k.1=256,warps=4,stages=6,unit=1", &room);
    cost_with(file, "m.0=16,n.0=32,k.1=256,warps=4,stages=6,unit=1", &whole);
    assert_true(room < 1 && fabs(room - whole) < 1e-9);
}

/* A product over heads and positions in a head goes on in parts of the longest of these alone: 16 of 128 positions of
 * 32 heads are 64 KiB of weights, of which five iterations' do not fit (354,304 bytes, as Triton says). */
static void test_parts_are_of_one_variable(void **state)
{
    (void)state;
    static const char text[] = "program o\ndim a = 8\ndim b = 4\ndim d = 128\ndim n = 4096\n"
                               "input x: f16[b, a, d]\ninput W: f16[a*b*d, n]\n"
                               "output y = combination[-1, n.0](tile_matmul(replicate[n.0](reshape[1, "
                               "a*b*d](transpose[1, 0, 2](x))), partition[-1, n.0](W)))\n";
    ef_diag diag = {0};
    ef_ctx *ctx = ef_ctx_new();
    ef_program *program = ef_program_parse(ctx, text, strlen(text), "o", &diag);
    ef_kgraph *graph = program ? ef_kgraph_new(program, &diag) : NULL;
    if (!graph) {
        fail_msg("%s", diag.text);
        return;
    }
    const ef_target *h200 = ef_target_named("h200");
    ef_schedule schedule = ef_schedule_default(graph, EF_BACKEND_TRITON, 0);
    assert_true(ef_settings_schedule(graph, &schedule, "n.0=64,unit=1,warps=16,stages=6", &diag));
    assert_false(ef_room_fits(graph, &schedule, 0, h200));
    double shared = ef_room_of(graph, &schedule, 0, h200).shared;
    print_message("64 columns, six stages: %.0f bytes of shared memory\n", shared);
    assert_true(shared > 5 * 65536 && shared < 6 * 65536 + 65536);
    ef_schedule_free(&schedule);
    ef_kgraph_free(graph);
    ef_program_free(program);
    ef_ctx_free(ctx);
}

/* Eight parts of a product outside of the matrix unit wait for memory eight times: 14 to 29 us were measured of such
 * kernels with a loop of one iteration, which cost 7. */
static void test_products_in_parts_wait_for_each(void **state)
{
    (void)state;
    static const char file[] = "tests/derivations/layernorm_gemm_b16_two_kernels.ef";
    double whole = cost_of_kernel(file, 1, "k1.m.0=8,k1.n.0=16,k1.k.1=1024,k1.unit=0,k1.warps=4", NULL);
    double less = cost_of_kernel(file, 1, "k1.m.0=8,k1.n.0=16,k1.k.1=128,k1.unit=0,k1.warps=4", NULL);
    assert_true(whole > less + 4);
}

/* Each link of a chain before a product uses the one before it twice: there are more ways along it than can be walked.
 */
static void test_a_long_chain_is_walked_once(void **state)
{
    (void)state;
    ef_strbuf text = {0};
    ef_diag diag = {0};
    ef_strbuf_puts(&text, "program chain\ndim m = 64\ndim k = 128\ndim n = 64\ninput x: f16[m, k]\ninput W: f16[k, n]\n"
                          "t0 = partition[-1, k.1](replicate[n.0](partition[-2, m.0](x)))\n");
    for (unsigned i = 0; i < 64; i++)
        ef_strbuf_printf(&text, "t%u = mul(t%u, sigmoid(t%u))\n", i + 1, i, i);
    ef_strbuf_puts(&text,
                   "w = partition[-2, k.1](partition[-1, n.0](replicate[m.0](W)))\n"
                   "output y = combination[-2, m.0](combination[-1, n.0](reduce[sum, k.1](tile_matmul(t64, w))))\n");
    loaded l = {.ctx = ef_ctx_new()};
    l.program = ef_program_parse(l.ctx, text.text, text.length, "chain.ef", &diag);
    l.graph = l.program ? ef_kgraph_new(l.program, &diag) : NULL;
    if (!l.graph)
        fail_msg("%s", diag.text);
    ef_schedule schedule = ef_schedule_default(l.graph, EF_BACKEND_TRITON, ef_target_named("h200")->units);
    assert_true(cost(&l, &schedule, 0) > 0);
    ef_schedule_free(&schedule);
    ef_strbuf_free(&text);
    release(&l);
}

/* A loop of one iteration is none: what stands in it is no tile beside those of the loop around it. */
static void test_a_loop_of_one_iteration_takes_no_room(void **state)
{
    (void)state;
    double whole, cut;
    cost_with("tests/triton/programs/head_in_parts.ef", "d.1=128,q.0=64,s.1=64,e.0=128,warps=4,stages=3,unit=1",
              &whole);
    cost_with("tests/derivations/mha_prefill_b1_rolling.ef", "q.0=64,s.1=64,e.0=128,warps=4,stages=3,unit=1", &cut);
    assert_true(fabs(whole - cut) < 0.02);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_refused_tiles_have_no_room),
        cmocka_unit_test(test_cost),
        cmocka_unit_test(test_visited_part),
        cmocka_unit_test(test_search_for_first_schedules),
        cmocka_unit_test(test_attention_costs_what_was_measured),
        cmocka_unit_test(test_products_of_few_rows_cost_what_was_measured),
        cmocka_unit_test(test_rows_that_are_added_take_room),
        cmocka_unit_test(test_a_loop_of_one_iteration_takes_no_room),
        cmocka_unit_test(test_products_in_parts_wait_for_each),
        cmocka_unit_test(test_a_long_chain_is_walked_once),
        cmocka_unit_test(test_parts_are_of_one_variable),
        cmocka_unit_test(test_room),
        cmocka_unit_test(test_first_schedules),
        cmocka_unit_test(test_inputs_loaded_ahead),
        cmocka_unit_test(test_few_rows_deal_out_columns),
        cmocka_unit_test(test_operands_in_turn),
        cmocka_unit_test(test_long_rows_of_sums),
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_floor_is_below),
        cmocka_unit_test(test_order),
        cmocka_unit_test(test_appended_tensors_are_loaded_by_tiles),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
