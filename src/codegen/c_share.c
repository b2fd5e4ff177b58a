/* Kernels that share a function. Compilers take longer over generated code than anything else does with it, so that
 * much of it costs more than it is worth.
 *
 * Two kernels whose code differs in nothing but the names of buffers and loop variables are one function, called with
 * other buffers: a program of many equal layers is compiled in the time of one of them.
 *
 * Where there are many functions all the same, those that differ besides in sizes are one, which has the sizes as
 * arguments: a program of many layers, each of another width, is compiled in the time of a few. What compilers make of
 * constants only stays: divisors of whole numbers, the sizes of arrays (the largest of all) and what pragmas say. */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "codegen/c_print.h"

#define MANY 24u                /* functions of a program; about a second of a compiler's time */
#define MOST_SIZES 64u          /* arguments of one function */
#define STACK_ROOM (384u << 10) /* bytes of arrays in one function, when each is as large as in any of its kernels */

/* ---- words ---- */

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

/* A number with its point, exponent and suffix. */
static size_t number_length(const char *text)
{
    size_t length = 0;
    while (in_word(text[length]) || text[length] == '.' ||
           ((text[length] == '+' || text[length] == '-') && length > 0 && strchr("eEpP", text[length - 1])))
        length++;
    return length;
}

/* The length of what comes next: a word, a number, a comment, a line for the preprocessor, or one other character. */
static size_t next_length(const char *text)
{
    size_t length = 0;
    if (text[0] == '/' && text[1] == '*') {
        const char *end = strstr(text, "*/");
        return end ? (size_t)(end - text) + 2 : strlen(text);
    }
    if (text[0] == '#')
        return strcspn(text, "\n");
    if (isdigit((unsigned char)text[0]))
        return number_length(text);
    while (in_word(text[length]))
        length++;
    return length ? length : 1;
}

static bool is_comment(const char *text)
{
    return text[0] == '/' && text[1] == '*';
}

static bool is_name(const char *text)
{
    return in_word(*text) && !isdigit((unsigned char)*text);
}

/* ---- sizes in code ---- */

/* What a number in code is: part of the code, the length of an array of elements of 4 or 8 bytes, what only has to be
 * large enough, or a size, perhaps as an operand, as that of a mean. */
typedef enum { NO_SIZE, LENGTH_4, LENGTH_8, LARGEST, SIZE, SIZE_F, SIZE_D } number_kind;
static const char *const size_types[] = {[SIZE] = "long", [SIZE_F] = "float", [SIZE_D] = "double"};

static bool follows(const char *code, const char *at, const char *text)
{
    size_t length = strlen(text);
    return (size_t)(at - code) >= length && strncmp(at - length, text, length) == 0;
}

/* Of a number with a point, an exponent or a suffix. What functions are called with stays: compilers know some values
 * better than others, as powers. */
static number_kind kind_of_operand(const char *code, const char *at, size_t length)
{
    static const char *const before[] = {"/ ", "* ", "+ ", "- ", "= "};
    char last = at[length - 1];
    bool operand = false;
    for (unsigned i = 0; i < sizeof before / sizeof *before; i++)
        operand = operand || follows(code, at, before[i]);
    if (!operand || strchr("xX", at[1]))
        return NO_SIZE;
    return last == 'f' ? SIZE_F : isdigit((unsigned char)last) ? SIZE_D : NO_SIZE;
}

static number_kind kind_of(const char *code, const char *at, size_t length)
{
    static const char array[] = "] __attribute__((aligned(";
    if (!isdigit((unsigned char)*at))
        return NO_SIZE;
    for (size_t i = 0; i < length; i++)
        if (!isdigit((unsigned char)at[i]))
            return kind_of_operand(code, at, length);
    if (length > 18 || follows(code, at, "/ ") || follows(code, at, "% "))
        return NO_SIZE;
    if (follows(code, at, "SCRATCH = "))
        return LARGEST;
    if (!follows(code, at, "[") || strncmp(at + length, array, strlen(array)) != 0)
        return SIZE;
    while (at > code && at[-1] != '\n')
        at--;
    at += strspn(at, " ");
    return strncmp(at, "float ", 6) == 0 || strncmp(at, "int ", 4) == 0 ? LENGTH_4 : LENGTH_8;
}

/* Code with its names of buffers and loop variables replaced by numbers, in the order in which they come, and without
 * comments: equal where two functions differ in names only. `sizes`: without sizes as well. */
static void print_form(const char *code, bool sizes, ef_intern *locals, ef_strbuf *out)
{
    for (size_t length, done = 0; code[done]; done += length) {
        const char *at = code + done;
        length = next_length(at);
        if (is_comment(at))
            continue;
        if (is_name(at) && is_local(at, length))
            ef_strbuf_printf(out, "$%u", ef_intern_put(locals, at, length, NULL));
        else if (sizes && kind_of(code, at, length) != NO_SIZE)
            ef_strbuf_printf(out, "?%u", kind_of(code, at, length));
        else
            ef_strbuf_add(out, at, length);
    }
}

static uint32_t form_of(const ef_c_function *f, bool sizes, ef_intern *forms, int *fresh)
{
    ef_strbuf form = {0};
    ef_intern *locals = ef_intern_new();
    print_form(f->parameters, false, locals, &form);
    print_form(f->body, sizes, locals, &form);
    uint32_t id = ef_intern_put(forms, form.text, form.length, fresh);
    ef_intern_free(locals);
    ef_strbuf_free(&form);
    return id;
}

/* ---- one function for several sizes ---- */

/* Functions that differ in names and sizes, and the numbers in their code that are sizes, in order. */
typedef struct {
    ef_c_function *all;
    EF_VEC(uint32_t) member; /* of all */
    uint32_t numbers;
    number_kind *kind;  /* by number */
    ef_intern *texts;   /* of numbers */
    uint32_t *value;    /* member * numbers + number: its text */
    uint32_t *argument; /* by number: which argument it is, EF_NONE: none */
    ef_intern *column;  /* values of arguments, by member */
    ef_strbuf parameters;
} family;

/* Adds the numbers of a function to the list; the first one's say what they are. */
static uint32_t read_numbers(family *f, const char *code, uint32_t *value)
{
    uint32_t count = 0;
    for (size_t length, done = 0; code[done]; done += length) {
        const char *at = code + done;
        length = next_length(at);
        number_kind kind = kind_of(code, at, length);
        if (kind == NO_SIZE)
            continue;
        if (value) {
            f->kind[count] = kind;
            value[count] = ef_intern_put(f->texts, at, length, NULL);
        }
        count++;
    }
    return count;
}

static void read_family(family *f)
{
    uint32_t members = f->member.count;
    f->numbers = read_numbers(f, f->all[f->member.at[0]].body, NULL);
    f->kind = ef_xcalloc(f->numbers + 1, sizeof *f->kind);
    f->argument = ef_xcalloc(f->numbers + 1, sizeof *f->argument);
    f->value = ef_xcalloc((size_t)members * f->numbers + 1, sizeof *f->value);
    for (uint32_t m = 0; m < members; m++)
        read_numbers(f, f->all[f->member.at[m]].body, f->value + (size_t)m * f->numbers);
}

static void print_text(const family *f, uint32_t text, ef_strbuf *out)
{
    size_t length;
    const char *at = ef_intern_at(f->texts, text, &length);
    ef_strbuf_add(out, at, length);
}

/* The member of which a number is the largest. */
static uint32_t largest(const family *f, uint32_t number, uint64_t *value)
{
    uint32_t at = 0;
    *value = 0;
    for (uint32_t m = 0; m < f->member.count; m++) {
        ef_strbuf text = {0};
        print_text(f, f->value[(size_t)m * f->numbers + number], &text);
        uint64_t own = strtoull(text.text, NULL, 10);
        ef_strbuf_free(&text);
        at = own > *value ? m : at;
        *value = own > *value ? own : *value;
    }
    return at;
}

/* Finds the arguments: numbers that are equal in each of the functions are one. False: it would be too many, or the
 * arrays too large for a stack. */
static bool find_arguments(family *f)
{
    uint32_t members = f->member.count, *column = ef_xcalloc(members + 1, sizeof *column);
    uint64_t room = 0, most = 0;
    for (uint32_t n = 0; n < f->numbers; n++) {
        bool differ = false;
        int fresh = 0;
        f->argument[n] = EF_NONE;
        for (uint32_t m = 0; m < members; m++) {
            column[m] = f->value[(size_t)m * f->numbers + n];
            differ = differ || column[m] != column[0];
        }
        if (f->kind[n] < SIZE) /* the first member's code is printed */
            f->value[n] = column[largest(f, n, &most)];
        else if (differ)
            f->argument[n] = ef_intern_put(f->column, column, members * sizeof *column, &fresh);
        room += f->kind[n] == LENGTH_4 ? 4 * most : f->kind[n] == LENGTH_8 ? 8 * most : 0;
        if (fresh)
            ef_strbuf_printf(&f->parameters, "%s size%u, ", size_types[f->kind[n]], f->argument[n]);
    }
    free(column);
    return ef_intern_count(f->column) <= MOST_SIZES && room <= STACK_ROOM;
}

static const char *taken(ef_arena *arena, ef_strbuf *text)
{
    const char *copy = ef_arena_strndup(arena, text->text ? text->text : "", (unsigned)text->length);
    ef_strbuf_free(text);
    return copy;
}

/* The first member's code with arguments in place of sizes. */
static const char *print_general(const family *f, ef_arena *arena)
{
    ef_strbuf out = {0};
    const char *code = f->all[f->member.at[0]].body;
    uint32_t n = 0;
    for (size_t length, done = 0; code[done]; done += length) {
        const char *at = code + done;
        length = next_length(at);
        bool is_size = kind_of(code, at, length) != NO_SIZE;
        if (!is_size)
            ef_strbuf_add(&out, at, length);
        else if (f->argument[n] != EF_NONE)
            ef_strbuf_printf(&out, "size%u", f->argument[n]);
        else
            print_text(f, f->value[n], &out);
        n += is_size;
    }
    return taken(arena, &out);
}

/* What a function is called with, by member. */
static const char *print_arguments(const family *f, uint32_t member, ef_arena *arena)
{
    ef_strbuf out = {0};
    for (uint32_t i = 0; i < ef_intern_count(f->column); i++) {
        print_text(f, ((const uint32_t *)ef_intern_at(f->column, i, NULL))[member], &out);
        ef_strbuf_puts(&out, ", ");
    }
    return taken(arena, &out);
}

static void become_one(family *f, ef_arena *arena)
{
    uint32_t first = f->member.at[0];
    f->all[first].body = print_general(f, arena);
    f->all[first].sizes = taken(arena, &f->parameters);
    for (uint32_t m = 0; m < f->member.count; m++) {
        f->all[f->member.at[m]].like = first;
        f->all[f->member.at[m]].arguments = print_arguments(f, m, arena);
    }
}

static void generalise(ef_c_function *all, family *f, ef_arena *arena)
{
    if (f->member.count < 2)
        return;
    f->all = all;
    f->column = ef_intern_new();
    f->texts = ef_intern_new();
    read_family(f);
    if (find_arguments(f))
        become_one(f, arena);
    ef_intern_free(f->column);
    ef_intern_free(f->texts);
    ef_strbuf_free(&f->parameters);
    free(f->kind);
    free(f->value);
    free(f->argument);
}

/* ---- all functions ---- */

void ef_c_share(ef_c_function *all, uint32_t count, ef_arena *arena)
{
    ef_intern *forms = ef_intern_new(), *general = ef_intern_new();
    uint32_t *first = ef_xcalloc(count + 1, sizeof *first), *equal = ef_xcalloc(count + 1, sizeof *equal);
    family *families = ef_xcalloc(count + 1, sizeof *families);
    int fresh;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t form = form_of(&all[i], false, forms, &fresh);
        first[form] = fresh ? i : first[form];
        all[i].like = equal[i] = first[form];
        all[i].sizes = all[i].arguments = "";
    }
    if (ef_intern_count(forms) > MANY) {
        for (uint32_t i = 0; i < count; i++)
            if (equal[i] == i)
                ef_vec_push(&families[form_of(&all[i], true, general, NULL)].member, i);
        for (uint32_t i = 0; i < ef_intern_count(general); i++)
            generalise(all, &families[i], arena);
        for (uint32_t i = 0; i < count; i++) {
            const ef_c_function *own = &all[equal[i]];
            all[i].like = own->like;
            all[i].arguments = own->arguments;
        }
    }
    for (uint32_t i = 0; i < count; i++)
        ef_vec_free(&families[i].member);
    free(families);
    free(first);
    free(equal);
    ef_intern_free(general);
    ef_intern_free(forms);
}

/* ---- buffers ---- */

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
        uint32_t name = is_name(code) ? ef_intern_find(names, code, length) : UINT32_MAX;
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
