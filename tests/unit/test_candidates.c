/* Every candidate of a program, as code: lowered, compiled, run, and compared with the float64 evaluator (design,
 * sections 6 and 7).
 *
 * The search sees the sizes of the program's file, so that its policy meets real extents; then the dimensions become
 * small and odd. Where a program names an extent as a number (the mean of 4096), the number and the dimension are
 * changed in the text first: algebra may use that they are equal. */
#include "batch.h"
#include "codegen/oracle.h"
#include "search/extract.h"

#define MAX_DIMS 11
#define MAX_CHUNK 250 /* candidates of one C file */

typedef struct {
    const char *name;
    uint64_t extent;
} dimension;

/* Extents after saturation. That of k takes the place of the number in the text. */
typedef struct {
    const char *name;
    dimension dim[MAX_DIMS];
} sizing;

#define LITERAL_MIN 256u /* what the policy still takes for a large extent */

/* clang-format off */
static const sizing sizings[] = {
    {"odd", {{"k", 257}, {"m", 3}, {"n", 37}, {"f", 51}, {"b", 3}, {"h", 2}, {"d", 11}, {"s", 101}, {"q", 13},
             {"e", 9}}},
    {"even", {{"k", 512}, {"m", 8}, {"n", 32}, {"f", 64}, {"b", 2}, {"h", 4}, {"d", 16}, {"s", 64}, {"q", 32},
              {"e", 16}}},
    {"long", {{"k", 257}, {"m", 3}, {"n", 100}, {"f", 77}, {"b", 3}, {"h", 2}, {"d", 20}, {"s", 1001}, {"q", 29},
              {"e", 24}}},
};
/* clang-format on */

/* How much is run: a share of the candidates, or all of them at all sizes when asked for. */
typedef struct {
    uint32_t keep, most; /* candidates that are built, and that run: every n-th where there are more */
    unsigned sizings;
    double seconds; /* for extraction */
} effort;

static effort effort_of(void)
{
    const char *mode = getenv("EF_CANDIDATES"), *most = getenv("EF_CANDIDATES_MOST");
    effort e = {.keep = 20000, .most = 100, .sizings = 1, .seconds = 10};
    if (mode && strcmp(mode, "full") == 0)
        e = (effort){.keep = 1000000, .most = 1000000, .sizings = 3, .seconds = 300};
#if defined(__SANITIZE_ADDRESS__)
    e.most = 20;
#endif
    unsigned long number = most ? strtoul(most, NULL, 10) : 0;
    if (number > 0 && number <= UINT32_MAX)
        e.most = (uint32_t)number;
    return e;
}

/* ---- the program ---- */

static const char *path;

typedef struct {
    ef_ctx *ctx;
    ef_program *program;
    ef_search *search;
    ef_extraction *extraction;
} subject;

static void read_text(ef_strbuf *text)
{
    char buffer[4096];
    FILE *file = fopen(path, "r");
    if (!file) {
        fail_msg("%s cannot be read", path);
        return;
    }
    for (size_t n = sizeof buffer; n == sizeof buffer;) {
        n = fread(buffer, 1, sizeof buffer, file);
        ef_strbuf_add(text, buffer, n);
    }
    fclose(file);
}

/* The last number of a line "… , 4096)": an extent that the program's arithmetic speaks of; 0 when there is none. */
static unsigned long literal_of(const char *text)
{
    unsigned long found = 0;
    for (const char *at = text; (at = strstr(at, ", ")); at++) {
        char *end;
        unsigned long value = strtoul(at + 2, &end, 10);
        if (end > at + 2 && *end == ')' && value >= LITERAL_MIN)
            found = value;
    }
    return found;
}

static void replace(const char *text, unsigned long from, uint64_t to, ef_strbuf *out)
{
    char number[32];
    snprintf(number, sizeof number, "%lu", from);
    size_t length = strlen(number);
    while (*text) {
        bool here = from && strncmp(text, number, length) == 0 && (text[length] == ')' || text[length] == '\n');
        if (here)
            ef_strbuf_printf(out, "%llu", (unsigned long long)to);
        else
            ef_strbuf_add(out, text, 1);
        text += here ? length : 1;
    }
}

static subject subject_new(const sizing *size, const effort *e)
{
    subject s = {.ctx = ef_ctx_new()};
    ef_strbuf text = {0}, changed = {0};
    ef_diag diag = {0};
    read_text(&text);
    if (!text.text) {
        fail_msg("%s is empty", path);
        return s;
    }
    replace(text.text, literal_of(text.text), size->dim[0].extent, &changed);
    s.program = ef_program_parse(s.ctx, changed.text, changed.length, path, &diag);
    if (!s.program)
        fail_msg("%s", diag.text);
    s.search = ef_search_new(s.program, &(ef_search_options){0}, &diag);
    assert_non_null(s.search);
    if (!ef_search_saturate(s.search, &diag))
        fail_msg("%s: %s", path, diag.text);
    s.extraction = ef_extract(s.search, &(ef_extract_options){.compaction = EF_COMPACT_EARLY,
                                                              .time_limit = e->seconds,
                                                              .keep = e->keep,
                                                              .memory_limit = (size_t)2 << 30});
    ef_strbuf_free(&text);
    ef_strbuf_free(&changed);
    return s;
}

static void subject_free(subject *s)
{
    ef_extraction_free(s->extraction);
    ef_search_free(s->search);
    ef_program_free(s->program);
    ef_ctx_free(s->ctx);
}

static void resize(const subject *s, const sizing *size)
{
    for (unsigned i = 0; i < MAX_DIMS && size->dim[i].name; i++) {
        ef_var var = ef_var_find(s->ctx, size->dim[i].name, 1);
        if (var != EF_NONE)
            ef_var_resize(s->ctx, var, size->dim[i].extent);
    }
}

/* ---- candidates as code ---- */

typedef struct {
    ef_kgraph *graph;
    ef_schedule schedule;
    unsigned number; /* in the C file */
    uint32_t index;  /* of the candidate */
} code;

typedef struct {
    const subject *subject;
    ef_oracle *oracle;
    ef_named *output;
    code chunk[MAX_CHUNK];
    unsigned count;
    unsigned run, widened;
} run_state;

static void open_oracle(run_state *r, batch *b)
{
    ef_diag diag = {0};
    r->oracle = ef_oracle_new(r->subject->program, &diag);
    ef_codegen_c_runtime(&b->source);
    if (!r->oracle || !ef_oracle_print(r->oracle, "oracle", &b->source, &diag))
        fail_msg("%s: %s", path, diag.text);
    batch_compile(b);
    if (!ef_oracle_prepare(r->oracle, b->library, "oracle", 1, &diag))
        fail_msg("%s: %s", path, diag.text);
}

/* The kernels of a candidate, as a program whose names are the original's. */
static ef_kgraph *kernels_of(const run_state *r, uint32_t index)
{
    ef_diag diag = {0};
    ef_program as = *r->subject->program;
    const ef_extraction *e = r->subject->extraction;
    as.dag = e->dag;
    as.output = r->output;
    as.statements = 0;
    for (uint32_t i = 0; i < as.outputs; i++)
        as.output[i] = (ef_named){r->subject->program->output[i].name, e->candidate.at[index].output[i]};
    ef_kgraph *graph = ef_kgraph_new(&as, &diag);
    if (!graph)
        fail_msg("%s, candidate %u: %s", path, index, diag.text);
    return graph;
}

static void lower(run_state *r, uint32_t index)
{
    ef_rng rng = {index};
    code *c = &r->chunk[r->count++];
    *c = (code){.graph = kernels_of(r, index), .index = index};
    c->schedule = ef_schedule_default(c->graph, EF_BACKEND_C, BATCH_THREADS);
    batch_draw_tiles(&c->schedule, index % 8, &rng);
}

static void explain_failure(const run_state *r, const code *c, const ef_verdict *v)
{
    ef_strbuf text = {0};
    const ef_extraction *e = r->subject->extraction;
    for (uint32_t i = 0; i < r->subject->program->outputs; i++)
        ef_expr_print(e->dag, e->candidate.at[c->index].output[i], &text);
    for (uint32_t i = 0; i < c->schedule.count; i++) {
        ef_strbuf_puts(&text, "\n");
        ef_schedule_name(c->graph, i, &text);
        ef_strbuf_printf(&text, " = %llu", (unsigned long long)c->schedule.value[i]);
    }
    fail_msg("%s, candidate %u, %s inputs: relative L2 error %g, eager %g: %s", path, c->index, ef_draw_names[v->draw],
             v->error, v->eager, text.text);
}

/* Compiles and runs a chunk. Candidates whose narrow temporaries leave the bound stay in it, widened. */
static void run_chunk(run_state *r, bool again)
{
    batch b = {0};
    unsigned kept = 0;
    for (unsigned i = 0; i < r->count; i++)
        r->chunk[i].number = batch_add(&b, r->chunk[i].graph, &r->chunk[i].schedule, path);
    if (r->count)
        batch_compile(&b);
    for (unsigned i = 0; i < r->count; i++) {
        code *c = &r->chunk[i];
        ef_native native = batch_native(&b, c->number);
        ef_verdict v = ef_oracle_check(r->oracle, c->graph, &c->schedule, &native);
        free(native.work);
        if (!v.valid && !again && ef_kgraph_widen(c->graph)) {
            r->chunk[kept++] = *c;
            continue;
        }
        if (!v.valid)
            explain_failure(r, c, &v);
        ef_schedule_free(&c->schedule);
        ef_kgraph_free(c->graph);
    }
    batch_free(&b);
    r->run += again ? 0 : r->count;
    r->widened += kept;
    r->count = kept;
    if (kept)
        run_chunk(r, true);
}

/* How many families the candidates are. */
static uint32_t families_of(const run_state *r, uint32_t candidates)
{
    ef_kgraph **graph = ef_xcalloc(candidates + 1, sizeof *graph);
    uint32_t *representative = ef_xcalloc(candidates + 1, sizeof *representative);
    for (uint32_t i = 0; i < candidates; i++)
        graph[i] = kernels_of(r, i);
    uint32_t families = ef_kgraph_families((const ef_kgraph *const *)graph, candidates, representative);
    for (uint32_t i = 0; i < candidates; i++)
        ef_kgraph_free(graph[i]);
    free(representative);
    free(graph);
    return families;
}

static void run_sizing(const sizing *size, const effort *e)
{
    subject s = subject_new(size, e);
    if (!s.extraction)
        return;
    run_state r = {.subject = &s};
    batch oracle = {0};
    uint32_t candidates = s.extraction->candidate.count;
    assert_true(candidates > 0);
    resize(&s, size);
    r.output = ef_xcalloc(s.program->outputs + 1, sizeof *r.output);
    open_oracle(&r, &oracle);
    for (uint32_t i = 0, step = (candidates + e->most - 1) / e->most; i < candidates; i += step) {
        lower(&r, i);
        if (r.count == MAX_CHUNK)
            run_chunk(&r, false);
    }
    run_chunk(&r, false);
    print_message("%s, %s sizes: %u of %u candidates run (%s), %u need wide temporaries; %u families\n", path,
                  size->name, r.run, candidates,
                  s.extraction->complete ? "all there are" : "extraction stopped at its limit", r.widened,
                  families_of(&r, candidates));
    ef_oracle_free(r.oracle);
    batch_free(&oracle);
    free(r.output);
    subject_free(&s);
}

static void every_candidate_computes_the_program(void **state)
{
    (void)state;
    effort e = effort_of();
    for (unsigned i = 0; i < e.sizings; i++)
        run_sizing(&sizings[i], &e);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_candidate_computes_the_program)};
    if (argc != 2) {
        fprintf(stderr, "usage: %s PROGRAM.ef\n", argv[0]);
        return 2;
    }
    path = argv[1];
    return cmocka_run_group_tests(tests, NULL, NULL);
}
