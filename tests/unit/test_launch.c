/* Lists of launches, with a driver that writes down what it is asked (tests/tools/fake_cuda.c). */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "codegen/launch.h"

const char *fake_cuda_written(void);
void fake_cuda_reset(uint64_t fail, uint64_t capture, int silent);
void fake_cuda_context(uint64_t context);
void fake_cuda_refuse(int what);
void fake_cuda_graphs(uint64_t found[3]);
uint64_t fake_cuda_lost(void);
int cuThreadExchangeStreamCaptureMode(int *mode);

static uint64_t function_of(const char *sizes)
{
    return (uint64_t)(uintptr_t)sizes;
}

/* Two kernels with a temporary at 0x700 between them. */
static ef_launches *two(uint64_t stream, bool captured)
{
    ef_launches *list = ef_launches_new(&(ef_launch_place){0, stream, 2, captured}, NULL);
    assert_non_null(list);
    ef_launches_add(list, &(ef_launch){function_of("8848"), {5, 6, 7}, 128, 40000, false});
    assert_true(ef_launches_address(list, 0));
    assert_true(ef_launches_value(list, UINT64_C(0xfffffffffffffffd)));
    assert_true(ef_launches_value(list, 0x3f800000));
    assert_true(ef_launches_value(list, 0x700));
    ef_launches_add(list, &(ef_launch){function_of("8821"), {9, 1, 1}, 64, 0, true});
    assert_true(ef_launches_value(list, 0x700));
    assert_true(ef_launches_address(list, 1));
    assert_true(ef_launches_value(list, 0x12345));
    assert_true(ef_launches_value(list, 1));
    return list;
}

static const uint64_t addresses[] = {0x10, 0x20};

static void test_what_is_launched(void **state)
{
    (void)state;
    fake_cuda_reset(0, 0, 0);
    ef_launches *list = two(0xab, false);
    assert_int_equal(ef_launches_call(list, addresses), 0);
    assert_string_equal(
        fake_cuda_written(),
        "launch 8848 grid 5 6 7 threads 128 shared 40000 stream ab overlap 0 context 1000: 10 fffffffffffffffd "
        "3f800000 700\n"
        "launch 8821 grid 9 1 1 threads 64 shared 0 stream ab overlap 1 context 1000: 700 20 2345 1\n");
    ef_launches_free(list);
    ef_launches_free(NULL);
}

/* Two maps of tensors, one of them a temporary. What changes its address is described anew. */
static void test_maps(void **state)
{
    (void)state;
    const ef_tensor_map map = {.type = 6, .swizzle = 3, .rank = 2, {4096, 16}, {8192}, {64, 32}},
                        line = {.type = 7, .rank = 1, .extent = {100}, .block = {8}}, none = {.rank = 0};
    ef_launches *list = ef_launches_new(&(ef_launch_place){.addresses = 2}, NULL);
    ef_launches_add(list, &(ef_launch){function_of("mm4"), {5, 1, 1}, 128, 0, false});
    assert_false(ef_launches_map(list, false, 2, &map));
    assert_false(ef_launches_map(list, false, 1, &none));
    assert_true(ef_launches_map(list, false, 1, &map));
    assert_true(ef_launches_map(list, true, 0x700, &line));
    assert_true(ef_launches_value(list, 9));
    for (unsigned i = 0; i < 4; i++) { /* one by one, then as a graph */
        fake_cuda_reset(0, 0, 0);
        assert_int_equal(ef_launches_call(list, (uint64_t[]){0x10, i < 3 ? 0x20 : 0x30}), 0);
        assert_string_equal(fake_cuda_written(),
                            i < 3 ? "launch mm4 grid 5 1 1 threads 128 shared 0 stream 0 overlap 0 context 1000: "
                                    "map(20 6 3 4096x64/0 16x32/8192) map(700 7 0 100x8/0) 9\n"
                                  : "launch mm4 grid 5 1 1 threads 128 shared 0 stream 0 overlap 0 context 1000: "
                                    "map(30 6 3 4096x64/0 16x32/8192) map(700 7 0 100x8/0) 9\n");
    }
    fake_cuda_refuse(3);
    assert_int_equal(ef_launches_call(list, (uint64_t[]){0x10, 0x50}), 1);
    fake_cuda_refuse(0);
    assert_int_equal(ef_launches_call(list, (uint64_t[]){0x10, 0x50}), 0);
    ef_launches_free(list);
    fake_cuda_reset(0, 0, 0);
    list = ef_launches_new(&(ef_launch_place){.addresses = 1}, NULL);
    ef_launches_add(list, &(ef_launch){function_of("m"), {5, 1, 1}, 128, 0, false});
    assert_true(ef_launches_map(list, false, 0, &line));
    assert_int_equal(ef_launches_call(list, (uint64_t[]){0}), 0); /* an empty tensor's address */
    assert_non_null(strstr(fake_cuda_written(), "map(0 7 0 100x8/0)"));
    ef_launches_free(list);
}

/* Calls with the second of two's addresses; the values that were launched are right. Returns how many parameters of
 * nodes were set. */
static unsigned call_with(ef_launches *list, uint64_t address)
{
    uint64_t before[3], after[3];
    char wanted[64];
    fake_cuda_reset(0, 0, 0);
    fake_cuda_graphs(before);
    assert_int_equal(ef_launches_call(list, (uint64_t[]){0x10, address}), 0);
    fake_cuda_graphs(after);
    snprintf(wanted, sizeof wanted, ": 700 %llx 2345 1\n", (unsigned long long)address);
    assert_non_null(strstr(fake_cuda_written(), ": 10 fffffffffffffffd 3f800000 700\n"));
    assert_non_null(strstr(fake_cuda_written(), wanted));
    return (unsigned)(after[1] - before[1]);
}

/* Addresses that come again, as those of a loop's results do, are not set again; of others the graph that was used
 * longest ago gets them. */
static void test_addresses_in_turns(void **state)
{
    (void)state;
    ef_launches *list = two(0, false);
    for (unsigned i = 0; i < 9; i++)
        assert_int_equal(call_with(list, i % 2 ? 0x30 : 0x20), i == 1);
    assert_int_equal(call_with(list, 0x40), 1);
    assert_int_equal(call_with(list, 0x50), 1);
    for (unsigned i = 0; i < 4; i++)
        assert_int_equal(call_with(list, 0x20 + 0x10 * i), 0); /* four there are, of which 0x20 is the oldest now */
    assert_int_equal(call_with(list, 0x60), 1);
    assert_int_equal(call_with(list, 0x50), 0);
    assert_int_equal(call_with(list, 0x20), 1);
    ef_launches_free(list);
    /* Where there is no room for another one, the first gets the addresses. */
    list = two(0, false);
    assert_int_equal(call_with(list, 0x20), 0);
    fake_cuda_refuse(4);
    for (unsigned i = 0; i < 4; i++)
        assert_int_equal(call_with(list, i % 2 ? 0x20 : 0x30), 1);
    fake_cuda_refuse(0);
    ef_launches_free(list);
    uint64_t found[3];
    fake_cuda_graphs(found);
    assert_int_equal(found[2], 0); /* all are freed */
}

static void test_unaligned_addresses(void **state)
{
    (void)state;
    fake_cuda_reset(0, 0, 0);
    ef_launches *list = two(0, false);
    assert_int_equal(ef_launches_call(list, (uint64_t[]){0x10, 0x24}), EF_LAUNCH_UNALIGNED);
    assert_int_equal(ef_launches_call(list, (uint64_t[]){0x11, 0x20}), EF_LAUNCH_UNALIGNED);
    assert_string_equal(fake_cuda_written(), "");
    ef_launches_free(list);
}

/* Temporaries of calls are no temporaries of graphs. */
static void test_streams_in_capture(void **state)
{
    (void)state;
    fake_cuda_reset(0, 0xab, 0);
    ef_launches *list = two(0xab, false), *captured = two(0xab, true), *other = two(0xcd, false);
    assert_int_equal(ef_launches_call(list, addresses), EF_LAUNCH_CAPTURING);
    assert_string_equal(fake_cuda_written(), "");
    assert_int_equal(ef_launches_call(captured, addresses), 0);
    assert_int_equal(ef_launches_call(other, addresses), 0);
    fake_cuda_reset(0, 0, 0);
    assert_int_equal(ef_launches_call(list, addresses), 0);
    ef_launches_free(list);
    ef_launches_free(captured);
    ef_launches_free(other);
}

/* Graphs are made by calls on other streams, and freed by whoever collects garbage, while a stream is captured. */
static void test_graphs_lose_no_capture(void **state)
{
    (void)state;
    uint64_t there[3];
    fake_cuda_reset(0, 0xcd, 0);
    ef_launches *list = two(0xab, false);
    for (uint64_t i = 0; i < 4; i++)
        assert_int_equal(ef_launches_call(list, (uint64_t[]){0x10, 0x20 + 0x10 * i}), 0);
    fake_cuda_graphs(there);
    assert_true(there[2] > 2);
    ef_launches_free(list);
    fake_cuda_graphs(there);
    assert_int_equal(there[2], 0);
    assert_int_equal(fake_cuda_lost(), 0);
    int mode = 0; /* the thread's own is as it was */
    cuThreadExchangeStreamCaptureMode(&mode);
    assert_int_equal(mode, 0);
}

static void test_errors_end_the_list(void **state)
{
    (void)state;
    fake_cuda_reset(1, 0, 0);
    ef_launches *list = two(0, false);
    assert_int_equal(ef_launches_call(list, addresses), 719);
    assert_string_equal(fake_cuda_written(), "");
    assert_string_equal(ef_launch_error(719), "unspecified launch failure");
    ef_launches_free(list);
}

static void test_empty_grids(void **state)
{
    (void)state;
    fake_cuda_reset(0, 0, 0);
    ef_launches *list = ef_launches_new(&(ef_launch_place){0}, NULL);
    assert_int_equal(ef_launches_call(list, NULL), 0);
    ef_launches_add(list, &(ef_launch){function_of(""), {4, 0, 1}, 32, 0, false});
    assert_int_equal(ef_launches_call(list, NULL), 0);
    assert_string_equal(fake_cuda_written(), "");
    ef_launches_free(list);
}

static void test_limits(void **state)
{
    (void)state;
    ef_launches *list = ef_launches_new(&(ef_launch_place){.addresses = 1}, NULL);
    assert_false(ef_launches_value(list, 0));
    ef_launches_add(list, &(ef_launch){function_of(""), {1, 1, 1}, 32, 0, false});
    assert_false(ef_launches_address(list, 1));
    for (int i = 0; i < EF_LAUNCH_PARAMETERS; i++)
        assert_true(ef_launches_address(list, 0));
    assert_false(ef_launches_value(list, 0));
    ef_launches_free(list);
}

static void *without_context(void *list)
{
    fake_cuda_context(0);
    ef_diag diag = {0};
    assert_null(ef_launches_new(&(ef_launch_place){.device = 1}, &diag));
    assert_string_equal(diag.text, "CUDA device 1 has no context");
    assert_int_equal(ef_launches_call(list, addresses), 0);
    assert_null(ef_launches_new(&(ef_launch_place){.device = 1}, &diag)); /* and there is none again */
    ef_launches *own = two(0, false);
    assert_int_equal(ef_launches_call(own, addresses), 0);
    ef_launches_free(own);
    return NULL;
}

/* A new thread has no context: the list's is used, or the device's. */
static void test_threads_without_context(void **state)
{
    (void)state;
    fake_cuda_reset(0, 0, 0);
    ef_launches *list = two(0, false);
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, without_context, list), 0);
    pthread_join(thread, NULL);
    assert_int_equal(ef_launches_call(list, addresses), 0);
    int found = 0;
    for (const char *at = fake_cuda_written(); (at = strstr(at, "context 1000:")); at++)
        found++;
    assert_int_equal(found, 6);
    ef_launches_free(list);
}

enum { CALLS = 500 };

static void *calls(void *list)
{
    for (int i = 0; i < CALLS; i++)
        ef_launches_call(list, addresses);
    return NULL;
}

/* The launches of two calls, which have the same temporaries, do not mix. */
static void test_threads_take_turns(void **state)
{
    (void)state;
    fake_cuda_reset(0, 0, 0);
    ef_launches *list = two(0, false);
    pthread_t thread[3];
    for (int i = 0; i < 3; i++)
        assert_int_equal(pthread_create(&thread[i], NULL, calls, list), 0);
    for (int i = 0; i < 3; i++)
        pthread_join(thread[i], NULL);
    const char *at = fake_cuda_written();
    for (int i = 0; i < 3 * CALLS; i++) {
        assert_int_equal(strncmp(at, "launch 8848", 11), 0);
        at = strchr(at, '\n') + 1;
        assert_int_equal(strncmp(at, "launch 8821", 11), 0);
        at = strchr(at, '\n') + 1;
    }
    assert_string_equal(at, "");
    ef_launches_free(list);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_is_launched),
        cmocka_unit_test(test_maps),
        cmocka_unit_test(test_addresses_in_turns),
        cmocka_unit_test(test_unaligned_addresses),
        cmocka_unit_test(test_streams_in_capture),
        cmocka_unit_test(test_graphs_lose_no_capture),
        cmocka_unit_test(test_errors_end_the_list),
        cmocka_unit_test(test_empty_grids),
        cmocka_unit_test(test_limits),
        cmocka_unit_test(test_threads_without_context),
        cmocka_unit_test(test_threads_take_turns),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
