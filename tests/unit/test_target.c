/* Device models and static ranking (paper, section 6.2): estimates are optimistic, they prefer what must be faster, and
 * their solutions round to legal schedules. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "target/floor.h"
#include "target/rank.h"
#include "target/room.h"

typedef struct {
    ef_ctx *ctx;
    ef_program *program;
    ef_kgraph *graph;
} loaded;

static loaded load(const char *path)
{
    ef_diag diag = {0};
    loaded l = {.ctx = ef_ctx_new()};
    l.program = ef_program_read(l.ctx, path, &diag);
    if (!l.program)
        fail_msg("%s", diag.text);
    l.graph = ef_kgraph_new(l.program, &diag);
    if (!l.graph)
        fail_msg("%s: %s", path, diag.text);
    return l;
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

/* Rounded schedules are of the domains. */
static void test_schedules_are_legal(void **state)
{
    (void)state;
    for (unsigned p = 0; p < PATHS; p++)
        for (unsigned gpu = 0; gpu < 2; gpu++) {
            ef_diag diag = {0};
            ef_ranking r;
            uint64_t domain[EF_SCHEDULE_VALUES];
            loaded l = load(paths[p]);
            assert_true(ef_rank(l.graph, ef_target_named(gpu ? "h200" : "cpu"), 2, &r, &diag));
            assert_int_equal(r.schedule.count, l.graph->params.count);
            for (uint32_t i = 0; i < l.graph->params.count; i++) {
                unsigned count = ef_schedule_domain(l.graph, r.schedule.backend, i, domain);
                bool legal = l.graph->params.at[i].kind != EF_PARAM_TILE;
                for (unsigned k = 0; k < count && !legal; k++)
                    legal = domain[k] == r.schedule.value[i];
                if (!legal)
                    fail_msg("%s: parameter %u is %llu", paths[p], i, (unsigned long long)r.schedule.value[i]);
            }
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

/* First schedules have room on every GPU; scores of all keys at once have none, nor have operands of many stages. */
static void test_room(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++) {
        loaded l = load(paths[i]);
        for (unsigned t = 0; t < ef_target_count; t++) {
            const ef_target *target = &ef_targets[t];
            ef_schedule schedule =
                ef_schedule_default(l.graph, target->gpu ? EF_BACKEND_TRITON : EF_BACKEND_C, target->units);
            for (uint32_t k = 0; k < l.graph->kernels.count; k++)
                if (!ef_room_fits(l.graph, &schedule, k, target)) {
                    ef_room room = ef_room_of(l.graph, &schedule, k, target);
                    fail_msg("%s, kernel %u on %s: %g of %g bytes of registers, %g of shared memory", paths[i], k,
                             target->name, room.registers, room.register_room, room.shared);
                }
            ef_schedule_free(&schedule);
        }
        release(&l);
    }
    const ef_target *h200 = ef_target_named("h200");
    loaded l = load("tests/derivations/mha_prefill_b1_rolling.ef");
    ef_schedule schedule = ef_schedule_default(l.graph, EF_BACKEND_TRITON, h200->units);
    set(&l, &schedule, "q.0", 128);
    set(&l, &schedule, "s.1", 128);
    set(&l, &schedule, "warps", 8);
    set(&l, &schedule, "stages", 3);
    assert_true(ef_room_fits(l.graph, &schedule, 0, h200)); /* the best that a sweep found */
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_room),           cmocka_unit_test(test_first_schedules),     cmocka_unit_test(test_names),
        cmocka_unit_test(test_floor_is_below), cmocka_unit_test(test_schedules_are_legal), cmocka_unit_test(test_order),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
