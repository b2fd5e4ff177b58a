/* The store: see store.h. */
#include "tune/store.h"

#include <errno.h>
#include <inttypes.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define BUSY_MS 10000
#define RETRY_MS 10

struct ef_store {
    sqlite3 *db; /* NULL: results are kept nowhere */
    sqlite3_stmt *put, *results, *count, *put_best, *best;
    bool warned;
};

static const char schema[] = "CREATE TABLE IF NOT EXISTS result ("
                             "  program TEXT NOT NULL, device TEXT NOT NULL, family INTEGER NOT NULL,"
                             "  schedule TEXT NOT NULL, us REAL, warm_us REAL, rel_l2 REAL,"
                             "  status TEXT NOT NULL, error TEXT NOT NULL, kernel_us TEXT NOT NULL,"
                             "  guilty INTEGER, at INTEGER NOT NULL,"
                             "  PRIMARY KEY (program, device, family, schedule)) WITHOUT ROWID;"
                             "CREATE TABLE IF NOT EXISTS best ("
                             "  program TEXT NOT NULL, device TEXT NOT NULL, json TEXT NOT NULL,"
                             "  budget_s REAL NOT NULL, at INTEGER NOT NULL,"
                             "  PRIMARY KEY (program, device)) WITHOUT ROWID;";

/* ---- the file ---- */

bool ef_store_default_path(char *path, unsigned room)
{
    const char *told = getenv("EQUIFORGE_STORE"), *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    int length = -1;
    if (told && told[0])
        length = snprintf(path, room, "%s", told);
    else if (cache && cache[0] == '/')
        length = snprintf(path, room, "%s/equiforge/store-%d.db", cache, EF_STORE_VERSION);
    else if (home && home[0] == '/')
        length = snprintf(path, room, "%s/.cache/equiforge/store-%d.db", home, EF_STORE_VERSION);
    return length > 0 && (unsigned)length < room;
}

static void make_directories(const char *path)
{
    char above[1024];
    if (snprintf(above, sizeof above, "%s", path) >= (int)sizeof above)
        return;
    for (char *slash = strchr(above + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = 0;
        mkdir(above, 0700);
        *slash = '/';
    }
}

static int version_of(sqlite3 *db)
{
    sqlite3_stmt *s = NULL;
    int version = -1;
    if (sqlite3_prepare_v2(db, "PRAGMA user_version", -1, &s, NULL) == SQLITE_OK && sqlite3_step(s) == SQLITE_ROW)
        version = sqlite3_column_int(s, 0);
    sqlite3_finalize(s);
    return version;
}

/* Makes the tables of a new file. Two processes may both find it new: each statement may be the second of its kind. */
static int make_tables(sqlite3 *db)
{
    char text[1200];
    snprintf(text, sizeof text, "BEGIN IMMEDIATE; %s PRAGMA user_version = %d; COMMIT;", schema, EF_STORE_VERSION);
    int error = sqlite3_exec(db, text, NULL, NULL, NULL);
    if (error != SQLITE_OK)
        sqlite3_exec(db, "ROLLBACK", NULL, NULL, NULL);
    return error;
}

/* SQLITE_OK, SQLITE_SCHEMA for tables of another version, or what SQLite says. */
static int open_once(sqlite3 **db, const char *path)
{
    int error = sqlite3_open_v2(path, db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE, NULL);
    if (error != SQLITE_OK)
        return error;
    sqlite3_busy_timeout(*db, BUSY_MS);
    error = sqlite3_exec(*db, "PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL;", NULL, NULL, NULL);
    if (error != SQLITE_OK)
        return error;
    int version = version_of(*db);
    if (version == 0)
        return make_tables(*db);
    return version == EF_STORE_VERSION ? SQLITE_OK : version < 0 ? sqlite3_errcode(*db) : SQLITE_SCHEMA;
}

/* SQLite does not wait by itself for another process that makes the file or changes how it is written to. */
static int open_file(sqlite3 **db, const char *path)
{
    int error = open_once(db, path);
    for (int waited = 0; (error & 0xff) == SQLITE_BUSY && waited < BUSY_MS; waited += RETRY_MS) {
        sqlite3_close(*db);
        nanosleep(&(struct timespec){.tv_nsec = RETRY_MS * 1000000L}, NULL);
        error = open_once(db, path);
    }
    return error;
}

/* Whether a small file is whole: a large one would take too long to read at every start. */
#define CHECK_BYTES (16 << 20)

static bool whole(sqlite3 *db, const char *path)
{
    struct stat info;
    sqlite3_stmt *s = NULL;
    if (stat(path, &info) != 0 || info.st_size > CHECK_BYTES)
        return true;
    int error = sqlite3_prepare_v2(db, "PRAGMA quick_check(1)", -1, &s, NULL);
    error = error == SQLITE_OK ? sqlite3_step(s) : error;
    bool damaged = error == SQLITE_CORRUPT || error == SQLITE_NOTADB ||
                   (error == SQLITE_ROW && strcmp((const char *)sqlite3_column_text(s, 0), "ok") != 0);
    sqlite3_finalize(s);
    return !damaged;
}

static bool prepare(ef_store *s)
{
    const struct {
        sqlite3_stmt **statement;
        const char *text;
    } all[] = {
        {&s->put,
         "INSERT OR REPLACE INTO result VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11,"
         " CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER))"}, /* milliseconds: their order counts */
        {&s->results, "SELECT schedule, us, warm_us, rel_l2, status, error, kernel_us, guilty, at FROM result"
                      " WHERE program = ?1 AND device = ?2 AND family = ?3 ORDER BY at"},
        {&s->count, "SELECT count(*) FROM result WHERE program = ?1 AND device = ?2"},
        {&s->put_best, "INSERT OR REPLACE INTO best VALUES (?1, ?2, ?3, ?4, strftime('%s', 'now'))"},
        {&s->best, "SELECT json, budget_s FROM best WHERE program = ?1 AND device = ?2"},
    };
    for (unsigned i = 0; i < sizeof all / sizeof *all; i++)
        if (sqlite3_prepare_v2(s->db, all[i].text, -1, all[i].statement, NULL) != SQLITE_OK)
            return false;
    return true;
}

static void close_file(ef_store *s)
{
    sqlite3_finalize(s->put);
    sqlite3_finalize(s->results);
    sqlite3_finalize(s->count);
    sqlite3_finalize(s->put_best);
    sqlite3_finalize(s->best);
    sqlite3_close(s->db);
    *s = (ef_store){.warned = s->warned};
}

/* Renames a store that cannot be read, with what belongs to it. */
static bool set_aside(const char *path)
{
    static const char *const parts[] = {"", "-wal", "-shm"};
    char from[1024], to[1024];
    for (int i = 0; i < 3; i++) {
        if (snprintf(from, sizeof from, "%s%s", path, parts[i]) >= (int)sizeof from ||
            snprintf(to, sizeof to, "%s.bad%s", path, parts[i]) >= (int)sizeof to || (rename(from, to) != 0 && i == 0))
            return false;
    }
    return true;
}

static bool unreadable(int error)
{
    return error == SQLITE_NOTADB || error == SQLITE_CORRUPT || error == SQLITE_SCHEMA;
}

ef_store *ef_store_open(const char *path, ef_diag *note)
{
    ef_store *s = ef_xcalloc(1, sizeof *s);
    make_directories(path);
    int error = open_file(&s->db, path);
    if (error == SQLITE_OK && !whole(s->db, path))
        error = SQLITE_CORRUPT;
    if (error == SQLITE_OK && !prepare(s)) /* tables that are not there are no plain error, being busy is */
        error = sqlite3_errcode(s->db) == SQLITE_ERROR ? SQLITE_CORRUPT : sqlite3_errcode(s->db);
    if (unreadable(error)) {
        close_file(s);
        bool moved = set_aside(path);
        ef_fail(note, "the store %.300s cannot be read by this version: %s", path,
                moved ? "it is kept as .bad beside a new one" : "nothing is kept");
        error = moved ? open_file(&s->db, path) : error;
        if (error == SQLITE_OK && !prepare(s))
            error = SQLITE_CORRUPT;
    }
    if (error != SQLITE_OK) {
        ef_fail(note, "the store %.300s cannot be used: %s; results are not kept", path, sqlite3_errstr(error));
        close_file(s);
    }
    return s;
}

void ef_store_close(ef_store *s)
{
    if (!s)
        return;
    close_file(s);
    free(s);
}

/* ---- results ---- */

static void bind(sqlite3_stmt *statement, int at, const char *text)
{
    sqlite3_bind_text(statement, at, text, -1, SQLITE_STATIC);
}

/* Runs a statement that gives no rows. A store that fails from now on is like none. */
static void run(ef_store *s, sqlite3_stmt *statement)
{
    int error = sqlite3_step(statement);
    sqlite3_reset(statement);
    sqlite3_clear_bindings(statement);
    if (error == SQLITE_DONE || error == SQLITE_ROW || s->warned)
        return;
    s->warned = true;
    fprintf(stderr, "equiforge: a result cannot be kept: %s\n", sqlite3_errmsg(s->db));
}

void ef_store_put(ef_store *s, const ef_store_result *r)
{
    if (!s->db)
        return;
    bind(s->put, 1, r->program);
    bind(s->put, 2, r->device);
    sqlite3_bind_int64(s->put, 3, (sqlite3_int64)r->family);
    bind(s->put, 4, r->schedule);
    sqlite3_bind_double(s->put, 5, r->us);
    sqlite3_bind_double(s->put, 6, r->warm_us);
    sqlite3_bind_double(s->put, 7, r->rel_l2);
    bind(s->put, 8, r->status);
    bind(s->put, 9, r->error);
    bind(s->put, 10, r->kernel_us ? r->kernel_us : "");
    if (r->guilty != UINT32_MAX) /* else NULL */
        sqlite3_bind_int64(s->put, 11, r->guilty);
    run(s, s->put);
}

static const char *text_at(sqlite3_stmt *statement, int column)
{
    const char *text = (const char *)sqlite3_column_text(statement, column);
    return text ? text : "";
}

void ef_store_results(ef_store *s, const char *program, const char *device, uint64_t family, ef_store_each each,
                      void *user)
{
    if (!s->db)
        return;
    bind(s->results, 1, program);
    bind(s->results, 2, device);
    sqlite3_bind_int64(s->results, 3, (sqlite3_int64)family);
    while (sqlite3_step(s->results) == SQLITE_ROW) {
        ef_store_result r = {program,
                             device,
                             family,
                             text_at(s->results, 0),
                             sqlite3_column_double(s->results, 1),
                             sqlite3_column_double(s->results, 2),
                             sqlite3_column_double(s->results, 3),
                             text_at(s->results, 4),
                             text_at(s->results, 5),
                             text_at(s->results, 6),
                             sqlite3_column_type(s->results, 7) == SQLITE_NULL
                                 ? UINT32_MAX
                                 : (uint32_t)sqlite3_column_int64(s->results, 7),
                             sqlite3_column_int64(s->results, 8)};
        each(user, &r);
    }
    sqlite3_reset(s->results);
}

uint64_t ef_store_count(ef_store *s, const char *program, const char *device)
{
    uint64_t count = 0;
    if (!s->db)
        return 0;
    bind(s->count, 1, program);
    bind(s->count, 2, device);
    if (sqlite3_step(s->count) == SQLITE_ROW)
        count = (uint64_t)sqlite3_column_int64(s->count, 0);
    sqlite3_reset(s->count);
    return count;
}

/* ---- the best ---- */

void ef_store_put_best(ef_store *s, const char *program, const char *device, const char *json, double budget_s)
{
    if (!s->db)
        return;
    bind(s->put_best, 1, program);
    bind(s->put_best, 2, device);
    bind(s->put_best, 3, json);
    sqlite3_bind_double(s->put_best, 4, budget_s);
    run(s, s->put_best);
}

const char *ef_store_best(ef_store *s, const char *program, const char *device, double *budget_s, ef_arena *arena)
{
    const char *json = NULL;
    if (!s->db)
        return NULL;
    bind(s->best, 1, program);
    bind(s->best, 2, device);
    if (sqlite3_step(s->best) == SQLITE_ROW) {
        const char *text = text_at(s->best, 0);
        json = ef_arena_strndup(arena, text, strlen(text));
        *budget_s = sqlite3_column_double(s->best, 1);
    }
    sqlite3_reset(s->best);
    return json;
}
