/* libFuzzer entry for the text form. Whatever parses must print as text that parses again and prints as the same
 * bytes: in a new context, in the old one, and when all names of statements are taken away first. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ir/expr.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Parses what was printed and prints it again; aborts, which is what the fuzzer looks for, when that differs. */
static void again(ef_ctx *ctx, const ef_strbuf *printed)
{
    ef_diag diag = {0};
    ef_strbuf second = {0};
    ef_program *program = ef_program_parse(ctx, printed->text, printed->length, "printed", &diag);
    if (!program) {
        fprintf(stderr, "does not parse again: %s\n%s", diag.text, printed->text);
        abort();
    }
    ef_program_print(program, &second);
    if (strcmp(printed->text, second.text) != 0) {
        fprintf(stderr, "prints differently:\n%s---\n%s", printed->text, second.text);
        abort();
    }
    ef_strbuf_free(&second);
    ef_program_free(program);
}

static void print_and_parse(ef_ctx *ctx, const ef_program *program)
{
    ef_strbuf printed = {0};
    ef_ctx *fresh = ef_ctx_new();
    ef_program_print(program, &printed);
    again(fresh, &printed);
    again(ctx, &printed);
    ef_ctx_free(fresh);
    ef_strbuf_free(&printed);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    ef_ctx *ctx = ef_ctx_new();
    ef_diag diag = {0};
    ef_strbuf expression = {0};
    ef_program *program = ef_program_parse(ctx, (const char *)data, size, "input", &diag);
    if (!program) {
        if (!diag.failed || strncmp(diag.text, "input:", 6) != 0 || strchr(diag.text, '\n'))
            abort();
        ef_ctx_free(ctx);
        return 0;
    }
    print_and_parse(ctx, program);
    ef_program nameless = *program;
    nameless.statements = 0;
    print_and_parse(ctx, &nameless);
    ef_expr_print(program->dag, program->output[0].expr, &expression);
    ef_strbuf_free(&expression);
    ef_program_free(program);
    ef_ctx_free(ctx);
    return 0;
}
