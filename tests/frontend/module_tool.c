/* module_tool FILE: a module's plan, and what its regions compute, for the tests in tests/frontend.
 *
 * Prints the plan as one line of JSON. Then each line "REGION FOLDER" on standard input evaluates the region that is
 * step REGION: its inputs are FOLDER/in0, in1, …, its outputs go to FOLDER/out0, …, all as raw float64 in row-major
 * order; the answer is a line "ok" or the reason why not. "text REGION" answers with the region as text, and a
 * last line "== ok", or "== " and what was wrong when the text was read back. External calls are the caller's affair:
 * PyTorch runs them. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "frontend/module.h"
#include "ir/eval.h"

static json_t *ids(const uint32_t *list, uint32_t count)
{
    json_t *array = json_array();
    for (uint32_t i = 0; i < count; i++)
        json_array_append_new(array, json_integer(list[i]));
    return array;
}

static json_t *value_json(const ef_mvalue *v)
{
    static const char *const kinds[] = {"input", "parameter", "buffer", "constant", "result"};
    json_t *size = json_array();
    for (uint32_t i = 0; i < v->rank; i++)
        json_array_append_new(size, json_integer(v->size[i]));
    return json_pack("{s:s, s:s, s:i, s:s?, s:s, s:o}", "name", v->name, "kind", kinds[v->kind], "input", (int)v->input,
                     "target", v->target, "dtype", v->torch_dtype, "size", size);
}

static json_t *step_json(const ef_mstep *s)
{
    json_t *step = json_pack("{s:o, s:o}", "in", ids(s->in, s->ins), "out", ids(s->out, s->outs));
    if (s->kind == EF_MS_REGION)
        return step;
    json_object_set_new(step, "target", json_string(s->target));
    json_object_set_new(step, "reason", json_string(s->reason));
    json_object_set_new(step, "arguments", json_loads(s->arguments, JSON_DECODE_ANY, NULL));
    json_object_set_new(step, "results", json_loads(s->results, JSON_DECODE_ANY, NULL));
    return step;
}

static void print_plan(const ef_module *m)
{
    json_t *values = json_array(), *steps = json_array(), *outputs = json_array(), *mutations = json_array();
    for (uint32_t i = 0; i < m->values; i++)
        json_array_append_new(values, value_json(&m->value[i]));
    for (uint32_t i = 0; i < m->steps; i++)
        json_array_append_new(steps, step_json(&m->step[i]));
    for (uint32_t i = 0; i < m->outputs; i++)
        json_array_append_new(outputs, m->output[i].value != EF_NONE
                                           ? json_integer(m->output[i].value)
                                           : json_pack("[o]", json_loads(m->output[i].literal, JSON_DECODE_ANY, NULL)));
    for (uint32_t i = 0; i < m->mutations; i++)
        json_array_append_new(mutations, json_pack("[i, i]", (int)m->mutation[i].value, (int)m->mutation[i].target));
    json_t *plan = json_pack("{s:s, s:i, s:o, s:o, s:o, s:o}", "name", m->name, "regions", (int)m->regions, "values",
                             values, "steps", steps, "outputs", outputs, "mutations", mutations);
    json_dumpf(plan, stdout, JSON_COMPACT);
    putchar('\n');
    json_decref(plan);
}

typedef struct {
    const ef_program *program;
    const char *folder;
    bool failed;
} source;

static FILE *open_data(const char *folder, const char *kind, uint32_t i, const char *mode)
{
    char path[4200];
    snprintf(path, sizeof path, "%s/%s%" PRIu32, folder, kind, i);
    return fopen(path, mode);
}

static uint64_t elements(const ef_tensor *t)
{
    uint64_t n = 1;
    for (unsigned i = 0; i < t->rank; i++)
        n *= t->extent[i];
    return n;
}

static void read_input(void *user, uint32_t input, ef_tensor *out)
{
    source *s = user;
    for (uint32_t i = 0; i < s->program->inputs; i++) {
        if (s->program->input[i] != input)
            continue;
        FILE *file = open_data(s->folder, "in", i, "rb");
        s->failed = s->failed || !file || fread(out->data, sizeof(double), elements(out), file) != elements(out);
        if (file)
            fclose(file);
    }
}

static bool evaluate(const ef_program *p, const char *folder, ef_diag *diag)
{
    ef_expr *roots = ef_xcalloc(p->outputs, sizeof *roots);
    source s = {p, folder, false};
    for (uint32_t i = 0; i < p->outputs; i++)
        roots[i] = p->output[i].expr;
    ef_tiling tiling = {.fallback = 1};
    ef_evaluation *e = ef_evaluate(p->dag, roots, p->outputs, &tiling, read_input, &s, 0, diag);
    for (uint32_t i = 0; e && i < p->outputs && !s.failed; i++) {
        const ef_tensor *t = ef_evaluation_at(e, i, 0);
        FILE *file = open_data(folder, "out", i, "wb");
        s.failed = !file || fwrite(t->data, sizeof(double), elements(t), file) != elements(t);
        if (file)
            fclose(file);
    }
    free(roots);
    if (e)
        ef_evaluation_free(e);
    return e && (!s.failed || ef_fail(diag, "a file cannot be read or written"));
}

static void print_text(const ef_program *program)
{
    ef_strbuf text = {0}, again = {0};
    ef_diag diag = {0};
    ef_ctx *ctx = ef_ctx_new();
    ef_program_print(program, &text);
    ef_program *read = ef_program_parse(ctx, text.text, text.length, "text", &diag);
    if (read)
        ef_program_print(read, &again);
    const char *said = !read ? diag.text : strcmp(text.text, again.text) == 0 ? "ok" : "it reads back differently";
    printf("%s== %s\n", text.text, said);
    ef_program_free(read);
    ef_ctx_free(ctx);
    ef_strbuf_free(&text);
    ef_strbuf_free(&again);
}

/* The region that a number names, NULL when there is none; *rest is what follows it. */
static const ef_program *region_of(const ef_module *m, const char *line, char **rest)
{
    unsigned long step = strtoul(line, rest, 10);
    for (uint32_t i = 0; i < m->steps; i++)
        if (i == step && *rest != line)
            return m->step[i].program;
    return NULL;
}

static void answer(const ef_module *m, char *line)
{
    char *rest;
    ef_diag diag = {0};
    bool text = strncmp(line, "text ", 5) == 0;
    const ef_program *program = region_of(m, text ? line + 5 : line, &rest);
    char *end = strchr(line, '\n');
    if (end)
        *end = 0;
    if (!program)
        puts("no such region");
    else if (text)
        print_text(program);
    else
        puts(evaluate(program, rest + (*rest == ' '), &diag) ? "ok" : diag.text);
}

int main(int argc, char **argv)
{
    char line[4096];
    ef_diag diag = {0};
    ef_module *m = argc == 2 ? ef_module_read(argv[1], &diag) : NULL;
    if (!m) {
        fprintf(stderr, "%s\n", diag.failed ? diag.text : "module_tool FILE");
        return 2;
    }
    print_plan(m);
    fflush(stdout);
    while (fgets(line, sizeof line, stdin)) {
        answer(m, line);
        fflush(stdout);
    }
    ef_module_free(m);
    return 0;
}
