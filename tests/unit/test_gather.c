/* Gathering candidates: what several threads find is what one finds, and comes out of their contexts as it was. */
#define _GNU_SOURCE /* sched_setaffinity */
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "egraph/runner.h"
#include "ir/transfer.h"
#include "search/extract.h"
#include "support/interrupt.h"
#include "target/target.h"
#include "tune/families.h"
#include "tune/gather.h"

static ef_program *read_program(ef_ctx *ctx, const char *path)
{
    ef_diag diag = {0};
    ef_program *program = ef_program_read(ctx, path, &diag);
    if (!program)
        fail_msg("%s", diag.text);
    return program;
}

/* The text of a program with these outputs. */
static char *text_of(const ef_program *program, ef_dag *dag, const ef_expr *output)
{
    ef_strbuf text = {0};
    ef_program candidate = *program;
    candidate.dag = dag;
    candidate.statements = 0;
    candidate.output = calloc(program->outputs, sizeof *candidate.output);
    assert_non_null(candidate.output);
    for (uint32_t i = 0; i < program->outputs; i++)
        candidate.output[i] = (ef_named){program->output[i].name, output[i]};
    ef_program_print(&candidate, &text);
    free(candidate.output);
    return text.text;
}

/* ---- contexts ---- */

/* A program and what is found of it in a copy of its context print alike there and back in its own, where other things
 * were made meanwhile. */
static void carry(const char *path)
{
    ef_diag diag = {0};
    ef_ctx *ctx = ef_ctx_new();
    ef_program *program = read_program(ctx, path);
    ef_ctx *copy = ef_ctx_copy(ctx);
    ef_program there = *program;
    there.dag = ef_dag_transfer(program->dag, copy, &diag);
    assert_non_null(there.dag);
    ef_strbuf own = {0}, other = {0};
    ef_program_print(program, &own);
    ef_program_print(&there, &other);
    assert_string_equal(own.text, other.text);
    ef_var_named(ctx, "something_else", 14, 77, NULL);
    ef_dim_twin(ctx, ef_dim_of_var(ctx, ef_var_find(ctx, "something_else", 14)));

    ef_search_options limits = {.node_limit = 20000, .time_limit = 100};
    ef_extract_options wanted = {.compaction = EF_COMPACT_EARLY, .time_limit = 100, .state_limit = 2000, .keep = 40};
    ef_search *search = ef_search_new(&there, &limits, &diag);
    assert_non_null(search);
    assert_true(ef_search_saturate(search, &diag));
    ef_extraction *found = ef_extract(search, &wanted);
    ef_search_free(search);
    ef_dag *dag = ef_dag_transfer(found->dag, ctx, &diag);
    if (!dag)
        fail_msg("%s: %s", path, diag.text);
    assert_true(found->candidate.count > 0 && ef_dag_count(dag) == ef_dag_count(found->dag));
    for (uint32_t i = 0; i < found->candidate.count; i++) {
        char *here = text_of(program, dag, found->candidate.at[i].output);
        char *was = text_of(&there, found->dag, found->candidate.at[i].output);
        assert_string_equal(here, was);
        free(here);
        free(was);
    }
    ef_dag_free(dag);
    ef_extraction_free(found);
    ef_dag_free(there.dag);
    ef_ctx_free(copy);
    ef_strbuf_free(&own);
    ef_strbuf_free(&other);
    ef_program_free(program);
    ef_ctx_free(ctx);
}

static void test_contexts_are_copied(void **state)
{
    (void)state;
    static const char *const files[] = {
        "tests/programs/variants/softcap.ef",        "tests/programs/variants/sink_window.ef",
        "tests/programs/variants/self_attention.ef", "tests/programs/variants/rope_attention.ef",
        "tests/programs/variants/gqa_decode.ef",     "tests/programs/layernorm_gemm_b16.ef",
        "tests/programs/rmsnorm_swiglu_b16.ef",      "tests/programs/swa_gqa.ef",
    };
    for (unsigned i = 0; i < sizeof files / sizeof *files; i++)
        carry(files[i]);
}

static void test_unknown_names_are_not_carried(void **state)
{
    (void)state;
    ef_diag diag = {0};
    ef_ctx *ctx = ef_ctx_new(), *other = ef_ctx_new();
    ef_program *program = read_program(ctx, "tests/programs/variants/softcap.ef");
    assert_null(ef_dag_transfer(program->dag, other, &diag));
    assert_true(diag.failed);
    ef_program_free(program);
    ef_ctx_free(other);
    ef_ctx_free(ctx);
}

/* ---- threads ---- */

typedef struct {
    ef_ctx *ctx;
    ef_program *program;
    ef_gathered *found;
} gathering;

/* Limits that no clock has a part in. */
static gathering gather(const char *path, unsigned threads, uint32_t nodes)
{
    ef_diag diag = {0};
    gathering g = {.ctx = ef_ctx_new()};
    const ef_target *target = ef_target_named("h200");
    ef_gather_options options = {.saturation_s = 2000,
                                 .extraction_s = 2000,
                                 .keep = 60,
                                 .rates = ef_target_rates(target),
                                 .room = ef_target_room(target),
                                 .threads = threads,
                                 .node_limit = nodes,
                                 .state_limit = 2000};
    g.program = read_program(g.ctx, path);
    g.found = ef_gather(g.program, &options, &diag);
    if (diag.failed)
        fail_msg("%s", diag.text);
    return g;
}

static void gathering_free(gathering *g)
{
    ef_gathered_free(g->found);
    ef_program_free(g->program);
    ef_ctx_free(g->ctx);
}

static void assert_same_searches(const ef_gathered *a, const ef_gathered *b)
{
    assert_int_equal(a->searches.count, b->searches.count);
    for (uint32_t i = 0; i < a->searches.count; i++) {
        const ef_gathered_search *x = &a->searches.at[i], *y = &b->searches.at[i];
        assert_int_equal(x->enodes, y->enodes);
        assert_int_equal(x->eclasses, y->eclasses);
        assert_int_equal(x->iterations, y->iterations);
        assert_int_equal(x->stop, y->stop);
        assert_int_equal(x->candidates, y->candidates);
        assert_true(x->complete == y->complete && x->original == y->original);
    }
    assert_int_equal(a->partitions.count, b->partitions.count);
    for (uint32_t p = 0; p < a->partitions.count; p++) {
        const ef_gathered_partition *x = &a->partitions.at[p], *y = &b->partitions.at[p];
        assert_true(x->combined == y->combined && x->built == y->built && x->composed == y->composed);
        assert_memory_equal(x->search, y->search, x->parts * sizeof *x->search);
    }
}

static void assert_same(const gathering *a, const gathering *b)
{
    assert_true(a->found->list.count > 0 && a->found->list.count == b->found->list.count);
    assert_int_equal(a->found->found, b->found->found);
    assert_same_searches(a->found, b->found);
    for (uint32_t i = 0; i < a->found->list.count; i++) {
        const ef_gathered_candidate *x = &a->found->list.at[i], *y = &b->found->list.at[i];
        char *left = text_of(a->program, x->dag, x->output), *right = text_of(b->program, y->dag, y->output);
        assert_true(x->cost == y->cost);
        assert_string_equal(left, right);
        free(left);
        free(right);
    }
}

/* One thread, four, and four again: however the system schedules them. */
static void find_the_same(const char *path, uint32_t nodes)
{
    gathering one = gather(path, 1, nodes), four = gather(path, 4, nodes), again = gather(path, 4, nodes);
    assert_int_equal(one.found->threads, 1);
    assert_in_range(four.found->threads, 2, 4);
    assert_same(&one, &four);
    assert_same(&four, &again);
    gathering_free(&one);
    gathering_free(&four);
    gathering_free(&again);
}

static void test_threads_find_the_same(void **state)
{
    (void)state;
    static const char *const files[] = {
        "tests/programs/variants/self_attention.ef",
        "tests/programs/variants/two_maps.ef",
        "tests/programs/variants/mla_decode.ef",
        "tests/programs/attn_sinks.ef",
    };
    for (unsigned i = 0; i < sizeof files / sizeof *files; i++)
        find_the_same(files[i], 20000);
    for (unsigned i = 0; i < 20; i++) /* parts in which nothing is found end first, or last */
        find_the_same("tests/programs/variants/two_maps.ef", 450 + 10 * i);
}

/* ---- families ---- */

static ef_families *families_of(ef_program *program, unsigned processors)
{
    ef_diag diag = {0};
    cpu_set_t all, some;
    ef_families_options options = {.saturation_s = 100,
                                   .extraction_s = 100,
                                   .keep = 30,
                                   .backend = EF_BACKEND_TRITON,
                                   .threads = 1,
                                   .target = "h200"};
    assert_int_equal(sched_getaffinity(0, sizeof all, &all), 0);
    CPU_ZERO(&some);
    for (int i = 0; i < CPU_SETSIZE && (unsigned)CPU_COUNT(&some) < processors; i++)
        if (CPU_ISSET(i, &all))
            CPU_SET(i, &some);
    assert_int_equal(sched_setaffinity(0, sizeof some, &some), 0);
    ef_families *families = ef_families_new(program, &options, &diag);
    assert_int_equal(sched_setaffinity(0, sizeof all, &all), 0);
    if (!families)
        fail_msg("%s", diag.text);
    return families;
}

/* Families that several threads rank have the same order, estimates and first schedules. */
static void test_threads_rank_alike(void **state)
{
    (void)state;
    static const char *const files[] = {"tests/programs/lora_b16.ef", "tests/programs/ngpt_b1.ef"};
    for (unsigned i = 0; i < sizeof files / sizeof *files; i++) {
        ef_ctx *ctx = ef_ctx_new();
        ef_program *program = read_program(ctx, files[i]);
        ef_families *one = families_of(program, 1), *several = families_of(program, 4);
        assert_true(one->gathered->searches.at[0].complete && several->gathered->searches.at[0].complete);
        assert_true(one->list.count > 3 && one->list.count == several->list.count);
        for (uint32_t k = 0; k < one->list.count; k++) {
            const ef_family *f = &one->list.at[k], *g = &several->list.at[k];
            assert_true(f->hash == g->hash && f->estimate == g->estimate);
            assert_memory_equal(f->schedule.value, g->schedule.value, f->schedule.count * sizeof *f->schedule.value);
        }
        ef_families_free(one);
        ef_families_free(several);
        ef_program_free(program);
        ef_ctx_free(ctx);
    }
}

/* ---- limits ---- */

typedef struct {
    atomic_int flag;
    double after;
} asking;

static void *ask(void *user)
{
    asking *a = user;
    nanosleep(&(struct timespec){.tv_nsec = (long)(a->after * 1e9)}, NULL);
    a->flag = EF_FINISH;
    return NULL;
}

/* All threads end when the work is interrupted, and there is what was found until then. */
static void test_threads_are_interrupted(void **state)
{
    (void)state;
    pthread_t thread;
    asking a = {.after = 0.5};
    ef_diag diag = {0};
    ef_ctx *ctx = ef_ctx_new();
    ef_program *program = read_program(ctx, "tests/programs/mhc.ef");
    ef_gather_options options = {.saturation_s = 500, .extraction_s = 500, .keep = 60, .threads = 4};
    ef_interrupt before = ef_interrupt_set((ef_interrupt){.flag = &a.flag, .from = EF_FINISH});
    assert_int_equal(pthread_create(&thread, NULL, ask, &a), 0);
    ef_gathered *g = ef_gather(program, &options, &diag);
    assert_true(ef_interrupted());
    ef_interrupt_set(before);
    pthread_join(thread, NULL);
    assert_false(diag.failed);
    assert_true(g->seconds < 20); /* a second, where nobody else works; 1,000 and more without the interrupt */
    ef_gathered_free(g);
    ef_program_free(program);
    ef_ctx_free(ctx);
}

/* Limits are of wall time, however many parts and threads there are. */
static void test_limits_are_of_all_searches(void **state)
{
    (void)state;
    for (unsigned threads = 1; threads <= 4; threads *= 4) {
        ef_diag diag = {0};
        ef_ctx *ctx = ef_ctx_new();
        ef_program *program = read_program(ctx, "tests/programs/mhc.ef");
        ef_gather_options options = {.saturation_s = 1, .extraction_s = 1, .keep = 60, .threads = threads};
        ef_gathered *g = ef_gather(program, &options, &diag);
        assert_false(diag.failed);
        assert_true(g->searches.count > 0);
        assert_true(g->seconds < 10); /* a search without a candidate goes on for as long again */
        ef_gathered_free(g);
        ef_program_free(program);
        ef_ctx_free(ctx);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_contexts_are_copied),     cmocka_unit_test(test_unknown_names_are_not_carried),
        cmocka_unit_test(test_threads_find_the_same),   cmocka_unit_test(test_threads_rank_alike),
        cmocka_unit_test(test_threads_are_interrupted), cmocka_unit_test(test_limits_are_of_all_searches),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
