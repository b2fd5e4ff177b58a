/* From a random program to running code (design, sections 4 to 7): saturated within limits, some candidates extracted,
 * lowered under random schedules, compiled, run, and compared with the float64 evaluator.
 *
 *     EF_FUZZ_PROGRAMS=N EF_FUZZ_SEED=S build/tests/test_endtoend */
#include <math.h>

#include "batch.h"
#include "codegen/oracle.h"
#include "generate.h"
#include "search/extract.h"

#define A_FILE 24 /* programs of one C file */
#define KEEP 4    /* candidates of a program */

typedef struct {
    ef_kgraph *graph;
    ef_schedule schedule;
    unsigned number;
    bool again;
} code;

/* A program and its implementations: itself, and candidates. */
typedef struct {
    uint64_t seed;
    ef_strbuf text;
    ef_ctx *ctx;
    ef_program *program;
    ef_search *search;
    ef_extraction *extraction;
    ef_oracle *oracle;
    code form[KEEP + 1];
    unsigned forms;
} subject;

static struct {
    unsigned programs, forms, widened, refused;
} total;

static void fail_subject(const subject *s, const char *what)
{
    fail_msg("seed %llu: %s\n%s", (unsigned long long)s->seed, what, s->text.text);
}

static ef_program candidate(const subject *s, uint32_t index)
{
    ef_program as = *s->program;
    as.dag = s->extraction->dag;
    as.statements = 0;
    as.output = ef_xcalloc(as.outputs + 1, sizeof *as.output);
    for (uint32_t i = 0; i < as.outputs; i++)
        as.output[i] = (ef_named){s->program->output[i].name, s->extraction->candidate.at[index].output[i]};
    return as;
}

/* The programs are too long for cmocka's messages. */
static void fail_form(const subject *s, unsigned form, const ef_verdict *v)
{
    ef_strbuf text = {0};
    ef_strbuf_puts(&text, s->text.text);
    if (form > 0) {
        ef_program as = candidate(s, form - 1);
        ef_program_print(&as, &text);
        free(as.output);
    }
    for (uint32_t i = 0; i < s->form[form].schedule.count; i++) {
        ef_strbuf_puts(&text, i ? "," : "\n");
        ef_schedule_name(s->form[form].graph, i, &text);
        ef_strbuf_printf(&text, "=%llu", (unsigned long long)s->form[form].schedule.value[i]);
    }
    fprintf(stderr, "%s\n", text.text);
    fail_msg("seed %llu, form %u, %s inputs: relative L2 error %g, eager %g", (unsigned long long)s->seed, form,
             ef_draw_names[v->draw], v->error, v->eager);
}

/* ---- forms ---- */

static void add_form(subject *s, const ef_program *program, batch *b, ef_rng *rng)
{
    ef_diag diag = {0};
    code *c = &s->form[s->forms++];
    c->graph = ef_kgraph_new(program, &diag);
    if (!c->graph)
        fail_subject(s, diag.text);
    c->schedule = ef_schedule_default(c->graph, EF_BACKEND_C, BATCH_THREADS);
    batch_draw_tiles(&c->schedule, ef_rng_below(rng, 6), rng);
    c->number = batch_add(b, c->graph, &c->schedule, s->text.text);
}

static void search(subject *s)
{
    ef_diag diag = {0};
    /* The policy takes small extents for large ones. */
    s->search = ef_search_new(
        s->program, &(ef_search_options){.node_limit = 6000, .time_limit = 2, .split_min = 5, .whole_max = 5}, &diag);
    if (!s->search || !ef_search_saturate(s->search, &diag))
        fail_subject(s, diag.text);
    s->extraction = ef_extract(
        s->search,
        &(ef_extract_options){.compaction = EF_COMPACT_EARLY, .time_limit = 1, .state_limit = 1500, .keep = KEEP});
}

static void subject_new(subject *s, uint64_t seed, batch *b)
{
    ef_diag diag = {0};
    ef_rng rng = {seed ^ 0x5bd1e995};
    char name[32];
    *s = (subject){.seed = seed, .ctx = ef_ctx_new()};
    generate_program(seed, &s->text);
    s->program = ef_program_parse(s->ctx, s->text.text, s->text.length, "random", &diag);
    if (!s->program)
        fail_subject(s, diag.text);
    search(s);
    s->oracle = ef_oracle_new(s->program, &diag);
    snprintf(name, sizeof name, "oracle_%llu", (unsigned long long)seed);
    add_form(s, s->program, b, &rng);
    if (!s->oracle || !ef_oracle_print(s->oracle, name, &b->source, &diag))
        fail_subject(s, diag.text);
    for (uint32_t i = 0; i < s->extraction->candidate.count && i < KEEP; i++) {
        ef_program as = candidate(s, i);
        add_form(s, &as, b, &rng);
        free(as.output);
    }
}

static void subject_free(subject *s)
{
    for (unsigned i = 0; i < s->forms; i++) {
        ef_schedule_free(&s->form[i].schedule);
        ef_kgraph_free(s->form[i].graph);
    }
    ef_oracle_free(s->oracle);
    ef_extraction_free(s->extraction);
    ef_search_free(s->search);
    ef_program_free(s->program);
    ef_ctx_free(s->ctx);
    ef_strbuf_free(&s->text);
}

/* ---- running ---- */

static ef_verdict run_form(const subject *s, const code *c, const batch *b)
{
    ef_native native = batch_native(b, c->number);
    ef_verdict v = ef_oracle_check(s->oracle, c->graph, &c->schedule, &native);
    free(native.work);
    return v;
}

/* An implementation that is right may still be refused: where the scores of a softmax are so large that only their
 * maximum counts, eager is exact, and scores that are computed twice in different orders differ by more than their
 * maximum's rounding. So on large inputs nothing is wrong, it is only counted. On others wrong is what is off by more
 * than any implementation may be, and by more than twice what eager is where float32 cannot do better (the cosines of
 * tiny numbers, less their maximum). */
static void judge(const subject *s, unsigned form, const ef_verdict *v)
{
    for (unsigned i = 0; i < EF_DRAW_COUNT; i++) {
        double twice = isfinite(v->eagers[i]) ? EF_ERROR_FACTOR * v->eagers[i] : 0;
        if (i != EF_DRAW_LARGE && !(v->errors[i] <= fmax(EF_ERROR_LIMIT, twice)))
            fail_form(s, form, v);
    }
    total.refused += !v->valid;
}

static void run_subject(subject *s, const batch *b)
{
    ef_diag diag = {0};
    char name[32];
    snprintf(name, sizeof name, "oracle_%llu", (unsigned long long)s->seed);
    if (!ef_oracle_prepare(s->oracle, b->library, name, s->seed, &diag))
        fail_subject(s, diag.text);
    for (unsigned i = 0; i < s->forms; i++) {
        ef_verdict v = run_form(s, &s->form[i], b);
        s->form[i].again = !v.valid && ef_kgraph_widen(s->form[i].graph);
        if (!s->form[i].again)
            judge(s, i, &v);
        total.widened += s->form[i].again;
    }
    total.programs++;
    total.forms += s->forms;
}

/* Forms whose narrow temporaries leave the bound, with wide ones. */
static void run_again(subject *s, unsigned count)
{
    batch b = {0};
    for (unsigned i = 0; i < count; i++)
        for (unsigned f = 0; f < s[i].forms; f++)
            if (s[i].form[f].again)
                s[i].form[f].number = batch_add(&b, s[i].form[f].graph, &s[i].form[f].schedule, s[i].text.text);
    if (b.work.count)
        batch_compile(&b);
    for (unsigned i = 0; i < count; i++)
        for (unsigned f = 0; f < s[i].forms; f++) {
            if (!s[i].form[f].again)
                continue;
            ef_verdict v = run_form(&s[i], &s[i].form[f], &b);
            judge(&s[i], f, &v);
        }
    batch_free(&b);
}

static uint64_t setting(const char *name, uint64_t otherwise)
{
    const char *text = getenv(name);
    return text ? strtoull(text, NULL, 10) : otherwise;
}

static void random_programs_become_code_that_computes_them(void **state)
{
    (void)state;
#if defined(__SANITIZE_ADDRESS__)
    uint64_t programs = setting("EF_FUZZ_PROGRAMS", 48);
#else
    uint64_t programs = setting("EF_FUZZ_PROGRAMS", 240);
#endif
    uint64_t seed = setting("EF_FUZZ_SEED", 1);
    for (uint64_t done = 0; done < programs;) {
        static subject s[A_FILE];
        batch b = {0};
        unsigned count = 0;
        for (; count < A_FILE && done < programs; count++, done++)
            subject_new(&s[count], seed++, &b);
        batch_compile(&b);
        for (unsigned i = 0; i < count; i++)
            run_subject(&s[i], &b);
        run_again(s, count);
        for (unsigned i = 0; i < count; i++)
            subject_free(&s[i]);
        batch_free(&b);
    }
    print_message("%u programs, %u implementations, %u with wide temporaries, %u less exact than eager allows\n",
                  total.programs, total.forms, total.widened, total.refused);
    assert_true(total.refused * 20 <= total.forms);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(random_programs_become_code_that_computes_them)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
