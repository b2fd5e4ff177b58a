/* The store: it remembers, several processes share it, kill -9 leaves it whole, and a damaged one is no failure. */
#define _GNU_SOURCE
#include <ftw.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <sqlite3.h>
#include <cmocka.h>

#include "tune/canonical.h"
#include "tune/store.h"

static char dir[64], path[128];

static int make_directory(void **state)
{
    (void)state;
    strcpy(dir, "/tmp/equiforge-test-XXXXXX");
    if (!mkdtemp(dir))
        return -1;
    snprintf(path, sizeof path, "%s/a/b/store.db", dir);
    return 0;
}

static int remove_entry(const char *name, const struct stat *info, int kind, struct FTW *at)
{
    (void)info;
    (void)kind;
    (void)at;
    return remove(name);
}

static int remove_directory(void **state)
{
    (void)state;
    return nftw(dir, remove_entry, 8, FTW_DEPTH | FTW_PHYS);
}

static void put(ef_store *store, const char *program, uint64_t family, const char *schedule, double us)
{
    ef_store_put(store,
                 &(ef_store_result){program, "cpu", family, schedule, us, us / 2, 1e-4, "fine", "", "", UINT32_MAX, 0});
}

static void add_up(void *user, const ef_store_result *r)
{
    double *sum = user;
    *sum += r->us;
}

static double sum_of(ef_store *store, const char *program, uint64_t family)
{
    double sum = 0;
    ef_store_results(store, program, "cpu", family, add_up, &sum);
    return sum;
}

/* Opens a store that must be fine, without a note. */
static ef_store *reopen(void)
{
    ef_diag note = {0};
    ef_store *store = ef_store_open(path, &note);
    assert_false(note.failed);
    return store;
}

static void test_remembers(void **state)
{
    double budget = 0;
    ef_arena *arena = ef_arena_new();
    (void)state;
    ef_store *store = reopen();
    put(store, "p", 1, "a=1", 10);
    put(store, "p", 1, "a=2", 20);
    put(store, "p", 1, "a=2", 30); /* replaces */
    put(store, "p", UINT64_MAX, "", 5);
    put(store, "q", 1, "a=1", 7);
    assert_null(ef_store_best(store, "p", "cpu", &budget, arena));
    ef_store_put_best(store, "p", "cpu", "{\"us\": 1}", 60);
    ef_store_close(store);
    store = reopen();
    assert_true(sum_of(store, "p", 1) == 40);
    assert_true(sum_of(store, "p", UINT64_MAX) == 5);
    assert_true(sum_of(store, "p", 2) == 0);
    assert_int_equal(ef_store_count(store, "p", "cpu"), 3);
    assert_int_equal(ef_store_count(store, "p", "another device"), 0);
    assert_string_equal(ef_store_best(store, "p", "cpu", &budget, arena), "{\"us\": 1}");
    assert_true(budget == 60);
    assert_null(ef_store_best(store, "q", "cpu", &budget, arena));
    ef_store_close(store);
    ef_arena_free(arena);
}

static void add_guilty(void *user, const ef_store_result *r)
{
    uint32_t *guilty = user;
    *guilty = *guilty * 10 + (r->guilty == UINT32_MAX ? 9 : r->guilty);
}

/* The kernel because of which something failed is kept, and so is the order in which results came. */
static void test_guilty(void **state)
{
    static const struct {
        const char *schedule;
        uint32_t guilty;
    } result[] = {{"b=1", 0}, {"a=1", 3}, {"c=1", UINT32_MAX}};
    uint32_t guilty = 0;
    (void)state;
    ef_store *store = reopen();
    for (int i = 0; i < 3; i++) {
        ef_store_put(store, &(ef_store_result){"p", "cpu", 1, result[i].schedule, 0, 0, 0, "memory", "too large", "",
                                               result[i].guilty, 0});
        nanosleep(&(struct timespec){.tv_nsec = 3000000L}, NULL);
    }
    ef_store_close(store);
    store = reopen();
    ef_store_results(store, "p", "cpu", 1, add_guilty, &guilty);
    assert_int_equal(guilty, 39);
    ef_store_close(store);
}

static void check_integrity(void)
{
    sqlite3 *db;
    sqlite3_stmt *statement;
    assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
    assert_int_equal(sqlite3_prepare_v2(db, "PRAGMA integrity_check", -1, &statement, NULL), SQLITE_OK);
    assert_int_equal(sqlite3_step(statement), SQLITE_ROW);
    assert_string_equal((const char *)sqlite3_column_text(statement, 0), "ok");
    sqlite3_finalize(statement);
    sqlite3_close(db);
}

/* Writes results 0, 1, 2, … of its own program. */
static void write_results(int number, int count)
{
    char program[32], schedule[32];
    ef_diag note = {0};
    ef_store *store = ef_store_open(path, &note);
    snprintf(program, sizeof program, "w%d", number);
    for (int i = 0; i < count && !note.failed; i++) {
        snprintf(schedule, sizeof schedule, "a=%d", i);
        put(store, program, 1, schedule, 1);
        ef_store_put_best(store, program, "cpu", schedule, i);
    }
    ef_store_close(store);
    _exit(note.failed);
}

static void test_several_processes(void **state)
{
    pid_t child[4];
    int status;
    (void)state;
    for (int i = 0; i < 4; i++)
        if ((child[i] = fork()) == 0)
            write_results(i, 100);
    for (int i = 0; i < 4; i++) {
        assert_int_equal(waitpid(child[i], &status, 0), child[i]);
        assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
    ef_store *store = reopen();
    for (int i = 0; i < 4; i++) {
        char program[32];
        snprintf(program, sizeof program, "w%d", i);
        assert_int_equal(ef_store_count(store, program, "cpu"), 100);
    }
    ef_store_close(store);
    check_integrity();
}

/* At any moment: while the file is made, in the midst of a write. */
static void test_kill(void **state)
{
    (void)state;
    for (int i = 0; i < 30; i++) {
        pid_t child = fork();
        if (child == 0)
            write_results(9, 1000000);
        nanosleep(&(struct timespec){.tv_nsec = 300000L * i}, NULL);
        kill(child, SIGKILL);
        waitpid(child, NULL, 0);
        ef_store *store = reopen();
        put(store, "after", 1, "a=1", 1);
        assert_int_equal(ef_store_count(store, "after", "cpu"), 1);
        ef_store_close(store);
        check_integrity();
    }
}

static void write_file(const char *text, size_t length)
{
    FILE *file = fopen(path, "r+");
    file = file ? file : fopen(path, "w");
    if (!file) {
        fail_msg("cannot write %s", path);
        return;
    }
    assert_int_equal(fwrite(text, 1, length, file), length);
    fclose(file);
}

static void test_damaged(void **state)
{
    struct stat info;
    char bad[140];
    (void)state;
    ef_store_close(reopen());
    char garbage[8192];
    memset(garbage, 'g', sizeof garbage);
    write_file(garbage, sizeof garbage);
    ef_diag note = {0};
    ef_store *store = ef_store_open(path, &note);
    assert_true(note.failed);
    assert_non_null(strstr(note.text, "cannot be read"));
    put(store, "p", 1, "a=1", 3);
    assert_true(sum_of(store, "p", 1) == 3);
    ef_store_close(store);
    snprintf(bad, sizeof bad, "%s.bad", path);
    assert_int_equal(stat(bad, &info), 0);
    ef_store_close(reopen());
    check_integrity();
}

/* The header is fine, what comes after it is not. */
static void test_damaged_inside(void **state)
{
    (void)state;
    ef_store *store = reopen();
    for (int i = 0; i < 500; i++) {
        char schedule[200];
        snprintf(schedule, sizeof schedule, "%0150d", i);
        put(store, "p", 1, schedule, 1);
    }
    ef_store_close(store);
    FILE *file = fopen(path, "r+");
    assert_non_null(file);
    fseek(file, 4096, SEEK_SET);
    for (int i = 0; i < 30000; i++)
        fputc(i * 7 & 255, file);
    fclose(file);
    ef_diag note = {0};
    store = ef_store_open(path, &note);
    assert_true(note.failed);
    put(store, "p", 1, "a=1", 3);
    assert_true(sum_of(store, "p", 1) == 3);
    ef_store_close(store);
}

static void test_another_version(void **state)
{
    sqlite3 *db;
    (void)state;
    ef_store_close(reopen());
    assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
    assert_int_equal(sqlite3_exec(db, "PRAGMA user_version = 77", NULL, NULL, NULL), SQLITE_OK);
    sqlite3_close(db);
    ef_diag note = {0};
    ef_store_close(ef_store_open(path, &note));
    assert_true(note.failed);
    ef_store_close(reopen());
}

/* No place for a file: results are kept nowhere, and that is said. */
static void test_no_place(void **state)
{
    double budget;
    (void)state;
    ef_arena *arena = ef_arena_new();
    ef_diag note = {0};
    ef_store *store = ef_store_open("/proc/nowhere/store.db", &note);
    assert_true(note.failed);
    put(store, "p", 1, "a=1", 3);
    assert_true(sum_of(store, "p", 1) == 0);
    assert_null(ef_store_best(store, "p", "cpu", &budget, arena));
    ef_store_close(store);
    ef_arena_free(arena);
}

/* Each version has its own: they do not set aside each other's. */
static void test_default_path(void **state)
{
    char found[200], expected[200];
    (void)state;
    setenv("EQUIFORGE_STORE", "/a/b.db", 1);
    assert_true(ef_store_default_path(found, sizeof found));
    assert_string_equal(found, "/a/b.db");
    unsetenv("EQUIFORGE_STORE");
    setenv("XDG_CACHE_HOME", "/c", 1);
    assert_true(ef_store_default_path(found, sizeof found));
    snprintf(expected, sizeof expected, "/c/equiforge/store-%d.db", EF_STORE_VERSION);
    assert_string_equal(found, expected);
    unsetenv("XDG_CACHE_HOME");
    setenv("HOME", "/h", 1);
    assert_true(ef_store_default_path(found, sizeof found));
    snprintf(expected, sizeof expected, "/h/.cache/equiforge/store-%d.db", EF_STORE_VERSION);
    assert_string_equal(found, expected);
    unsetenv("HOME");
    assert_false(ef_store_default_path(found, sizeof found));
}

/* ---- what programs are keyed by ---- */

static void hash_of(const char *text, char hash[33])
{
    ef_diag diag = {0};
    ef_ctx *ctx = ef_ctx_new();
    ef_program *program = ef_program_parse(ctx, text, strlen(text), "text", &diag);
    assert_non_null(program);
    ef_canonical_hash(program, hash);
    ef_program_free(program);
    ef_ctx_free(ctx);
}

static void test_names_do_not_count(void **state)
{
    static const char first[] = "program a\ndim m = 4\ndim k = 8\ninput x: f16[m, k]\ninput y: f16[k, m]\n"
                                "t = exp(x)\noutput o = reduce[sum, -1](matmul(t, y))\n";
    static const char renamed[] = "# comment\nprogram b\ndim other = 9\ndim q = 8\ndim r = 4\ninput sum: f16[r, q]\n"
                                  "input z: f16[q, r]\noutput w = reduce[sum, -1](matmul(exp(sum), z))\n";
    static const char *const different[] = {
        /* a size, a type, an operator, inputs in another order, an operand instead of another */
        "program a\ndim m = 4\ndim k = 9\ninput x: f16[m, k]\ninput y: f16[k, m]\n"
        "output o = reduce[sum, -1](matmul(exp(x), y))\n",
        "program a\ndim m = 4\ndim k = 8\ninput x: f32[m, k]\ninput y: f16[k, m]\n"
        "output o = reduce[sum, -1](matmul(exp(x), y))\n",
        "program a\ndim m = 4\ndim k = 8\ninput x: f16[m, k]\ninput y: f16[k, m]\n"
        "output o = reduce[max, -1](matmul(exp(x), y))\n",
        "program a\ndim m = 4\ndim k = 8\ninput y: f16[k, m]\ninput x: f16[m, k]\n"
        "output o = reduce[sum, -1](matmul(exp(x), y))\n",
        "program a\ndim m = 4\ndim k = 8\ninput x: f16[m, k]\ninput y: f16[k, m]\n"
        "output o = reduce[sum, -1](matmul(x, exp(y)))\n",
        "program a\ndim m = 4\ndim k = 8\ninput x: f16[m, k]\ninput y: f16[k, m]\n"
        "output o = reduce[sum, -2](matmul(exp(x), y))\n",
    };
    char a[33], b[33];
    (void)state;
    hash_of(first, a);
    hash_of(renamed, b);
    assert_string_equal(a, b);
    for (unsigned i = 0; i < sizeof different / sizeof *different; i++) {
        hash_of(different[i], b);
        assert_string_not_equal(a, b);
    }
}

#define ON_DISK(test) cmocka_unit_test_setup_teardown(test, make_directory, remove_directory)

int main(void)
{
    const struct CMUnitTest tests[] = {
        ON_DISK(test_remembers),
        ON_DISK(test_guilty),
        ON_DISK(test_several_processes),
        ON_DISK(test_kill),
        ON_DISK(test_damaged),
        ON_DISK(test_damaged_inside),
        ON_DISK(test_another_version),
        cmocka_unit_test(test_no_place),
        cmocka_unit_test(test_default_path),
        cmocka_unit_test(test_names_do_not_count),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
