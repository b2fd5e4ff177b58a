/* Kernels that are the same code at other places: two kernels whose code differs in nothing but the names of buffers
 * and loop variables are one function, called with other buffers. A program of many equal layers is compiled in the
 * time of one of them: compilers take longer over generated code than anything else does with it. */
#include <ctype.h>
#include <string.h>

#include "codegen/c_print.h"

/* How names begin that a kernel gives to its own buffers and variables: parameters and loop variables. What stands for
 * nothing but its place in the kernel (v7, state0_0) is equal in equal kernels anyway. */
static bool is_local(const char *word, size_t length)
{
    static const char *const before_number[] = {"in", "tmp", "out"}, *const before_name[] = {"at_", "i_", "n_"};
    for (unsigned i = 0; i < sizeof before_number / sizeof *before_number; i++) {
        size_t n = strlen(before_number[i]);
        if (length > n && strncmp(word, before_number[i], n) == 0 && isdigit((unsigned char)word[n]))
            return true;
    }
    for (unsigned i = 0; i < sizeof before_name / sizeof *before_name; i++)
        if (length > strlen(before_name[i]) && strncmp(word, before_name[i], strlen(before_name[i])) == 0)
            return true;
    return false;
}

static bool in_word(char c)
{
    return isalnum((unsigned char)c) || c == '_';
}

/* The length of what comes next: a word, a comment, or one other character. */
static size_t next_length(const char *text)
{
    size_t length = 0;
    if (text[0] == '/' && text[1] == '*') {
        const char *end = strstr(text, "*/");
        return end ? (size_t)(end - text) + 2 : strlen(text);
    }
    while (in_word(text[length]))
        length++;
    return length ? length : 1;
}

void ef_c_normal_form(const char *code, ef_strbuf *out)
{
    ef_intern *locals = ef_intern_new();
    for (size_t length; *code; code += length) {
        length = next_length(code);
        if (in_word(*code) && is_local(code, length))
            ef_strbuf_printf(out, "$%u", ef_intern_put(locals, code, length, NULL));
        else if (code[0] != '/' || length == 1)
            ef_strbuf_add(out, code, length);
    }
    ef_intern_free(locals);
}

uint32_t ef_c_used_buffers(ef_c *c, const char *code, const bool *candidate, uint32_t *buffer)
{
    ef_intern *names = ef_intern_new();
    uint32_t count = 0, *of_name = ef_xcalloc(c->graph->buffers.count + 1, sizeof *of_name);
    bool *taken = ef_xcalloc(c->graph->buffers.count + 1, sizeof *taken);
    for (uint32_t i = 0; i < c->graph->buffers.count; i++)
        if (candidate[i]) {
            const char *name = ef_c_buffer_name(c, i);
            of_name[ef_intern_put(names, name, strlen(name), NULL)] = i;
        }
    for (size_t length; *code; code += length) {
        length = next_length(code);
        uint32_t name = in_word(*code) ? ef_intern_find(names, code, length) : UINT32_MAX;
        if (name == UINT32_MAX || taken[name])
            continue;
        taken[name] = true;
        buffer[count++] = of_name[name];
    }
    ef_intern_free(names);
    free(of_name);
    free(taken);
    return count;
}
