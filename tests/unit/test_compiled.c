/* The folder of compiled libraries stays within its limit, whoever adds to it. */
#include <dirent.h>
#include <fcntl.h>
#include <ftw.h>
#include <setjmp.h>
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

#include <cmocka.h>

#include "tune/compiled.h"

#define BYTES 1000 /* of a file that stands for a library */
#define MOST 32    /* files in a folder */

static char cache[64], folder[128], library[128];

/* A cache of its own, and a file that stands for a compiled library. */
static int set_up(void **state)
{
    static const char bytes[BYTES];
    (void)state;
    snprintf(cache, sizeof cache, "/tmp/equiforge-compiled-XXXXXX");
    if (!mkdtemp(cache))
        return -1;
    snprintf(folder, sizeof folder, "%s/equiforge/native", cache);
    snprintf(library, sizeof library, "%s/library", cache);
    setenv("XDG_CACHE_HOME", cache, 1);
    unsetenv("EQUIFORGE_NATIVE_LIMIT");
    FILE *file = fopen(library, "wb");
    return file && fwrite(bytes, 1, sizeof bytes, file) == sizeof bytes && fclose(file) == 0 ? 0 : -1;
}

static int remove_one(const char *path, const struct stat *info, int kind)
{
    (void)info;
    return kind == FTW_D ? 0 : remove(path);
}

static int tear_down(void **state)
{
    char parent[128];
    (void)state;
    snprintf(parent, sizeof parent, "%s/equiforge", cache);
    return ftw(cache, remove_one, 8) == 0 && rmdir(folder) == 0 && rmdir(parent) == 0 ? rmdir(cache) : -1;
}

/* Paths of all entries of the folder. */
static unsigned find_files(char path[MOST][400])
{
    unsigned count = 0;
    DIR *list = opendir(folder);
    if (!list)
        fail_msg("%s is not there", folder);
    for (const struct dirent *entry = list ? readdir(list) : NULL; entry; entry = readdir(list))
        if (entry->d_name[0] != '.' && count < MOST)
            snprintf(path[count++], 400, "%s/%s", folder, entry->d_name);
    if (list)
        closedir(list);
    return count;
}

static unsigned count_files(void)
{
    char path[MOST][400];
    return find_files(path);
}

static void make_old(const char *path, time_t seconds)
{
    const struct timespec old[2] = {{time(NULL) - seconds, 0}, {time(NULL) - seconds, 0}};
    assert_int_equal(utimensat(AT_FDCWD, path, old, 0), 0);
}

static void keep(unsigned number)
{
    char source[32];
    snprintf(source, sizeof source, "source %u", number);
    ef_compiled_keep(source, strlen(source), library);
}

/* Makes the only file that is younger than an hour so many hours old, and says which it is. */
static void age(unsigned hours, char name[400])
{
    char path[MOST][400];
    for (unsigned i = 0, n = find_files(path); i < n; i++) {
        struct stat about;
        assert_int_equal(stat(path[i], &about), 0);
        if (time(NULL) - about.st_mtim.tv_sec > 3000)
            continue;
        make_old(path[i], 3600 * (time_t)hours);
        memcpy(name, path[i], sizeof path[i]);
    }
}

static void what_was_used_longest_ago_goes(void **state)
{
    char name[4][400];
    (void)state;
    for (unsigned i = 0; i < 4; i++) {
        keep(i);
        age(10 - i, name[i]);
    }
    assert_int_equal(count_files(), 4);
    keep(0); /* which is a use */
    setenv("EQUIFORGE_NATIVE_LIMIT", "3K", 1);
    keep(4);
    assert_int_equal(count_files(), 3);
    assert_int_equal(access(name[0], F_OK), 0);
    assert_int_not_equal(access(name[1], F_OK), 0);
    assert_int_not_equal(access(name[2], F_OK), 0);
    assert_int_equal(access(name[3], F_OK), 0);
    setenv("EQUIFORGE_NATIVE_LIMIT", "0", 1);
    keep(5);
    assert_int_equal(count_files(), 0);
}

static void what_is_no_size_is_no_limit(void **state)
{
    static const char *const odd[] = {"", "-1", "1T", "1.5M", "M", "0 ", "99999999999999999999", "99999999999999G"};
    (void)state;
    keep(0);
    for (unsigned i = 0; i < sizeof odd / sizeof *odd; i++) {
        setenv("EQUIFORGE_NATIVE_LIMIT", odd[i], 1);
        keep(i + 1);
        assert_int_equal(count_files(), i + 2);
    }
}

/* What a process left that died while it compiled goes away in time; what is none of ours stays. */
static void leftovers_go(void **state)
{
    char path[3][300];
    static const char *const name[] = {"0123456789abcdef.77.c", "fedcba9876543210.78.so", "readme"};
    (void)state;
    keep(0);
    for (unsigned i = 0; i < 3; i++) {
        snprintf(path[i], sizeof path[i], "%s/%s", folder, name[i]);
        int file = open(path[i], O_CREAT | O_WRONLY, 0600);
        assert_true(file >= 0);
        close(file);
        if (i != 1) /* which may be in the making */
            make_old(path[i], 100000);
    }
    keep(1);
    assert_int_not_equal(access(path[0], F_OK), 0);
    assert_int_equal(access(path[1], F_OK), 0);
    assert_int_equal(access(path[2], F_OK), 0);
}

static void several_processes_add_at_once(void **state)
{
    pid_t child[4];
    (void)state;
    setenv("EQUIFORGE_NATIVE_LIMIT", "5K", 1);
    for (unsigned i = 0; i < 4; i++) {
        child[i] = fork();
        assert_true(child[i] >= 0);
        for (unsigned n = 0; child[i] == 0 && n < 50; n++)
            keep(100 * i + n);
        if (child[i] == 0)
            _exit(0);
    }
    for (unsigned i = 0; i < 4; i++) {
        int status;
        assert_int_equal(waitpid(child[i], &status, 0), child[i]);
        assert_int_equal(status, 0);
    }
    assert_in_range(count_files(), 1, 5);
}

/* A library that is open works when its file is gone, and is compiled again for others. */
static void what_is_open_stays(void **state)
{
    static const char source[] =
        "#include <stdint.h>\nvoid f(void *const *in, void *const *out, char *work, int threads)\n"
        "{ (void)in; (void)work; ((int *)out[0])[0] = threads; }\n";
    ef_diag diag = {0};
    int result = 0;
    void *out[] = {&result};
    (void)state;
    setenv("EQUIFORGE_NATIVE_LIMIT", "0", 1);
    ef_library *opened = ef_compiled(source, strlen(source), &diag);
    assert_non_null(opened);
    assert_int_equal(count_files(), 0);
    ef_entry f = ef_library_entry(opened, "f", &diag);
    assert_non_null(f);
    f(NULL, out, NULL, 7);
    assert_int_equal(result, 7);
    ef_library_free(opened);
    setenv("EQUIFORGE_NATIVE_LIMIT", "1M", 1);
    ef_library *again = ef_compiled(source, strlen(source), &diag);
    assert_non_null(again);
    assert_int_equal(count_files(), 1);
    ef_library_free(again);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(what_was_used_longest_ago_goes), TEST(what_is_no_size_is_no_limit), TEST(leftovers_go),
        TEST(several_processes_add_at_once),  TEST(what_is_open_stays),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
