/* Text of generated Triton: lines at levels, names, types. */
#include <ctype.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "codegen/triton_print.h"

const char *const ef_t_type_names[] = {[T_BOOL] = "tl.int1",
                                       [T_INT] = "tl.int32",
                                       [T_LONG] = "tl.int64",
                                       [T_FLOAT] = "tl.float32",
                                       [T_DOUBLE] = "tl.float64"};

t_type ef_t_type(ef_dtype dtype)
{
    static const t_type type[EF_DTYPE_COUNT] = {[EF_BOOL] = T_BOOL, [EF_NUM] = T_FLOAT, [EF_I32] = T_INT,
                                                [EF_I64] = T_LONG,  [EF_F16] = T_FLOAT, [EF_BF16] = T_FLOAT,
                                                [EF_F32] = T_FLOAT, [EF_F64] = T_DOUBLE};
    return type[dtype];
}

const char *ef_t_dtype(ef_dtype dtype)
{
    static const char *const name[EF_DTYPE_COUNT] = {[EF_BOOL] = "int1",   [EF_NUM] = "float32", [EF_I32] = "int32",
                                                     [EF_I64] = "int64",   [EF_F16] = "float16", [EF_BF16] = "bfloat16",
                                                     [EF_F32] = "float32", [EF_F64] = "float64"};
    return name[dtype];
}

bool ef_t_fail(ef_t *t, const char *format, ...)
{
    va_list args;
    char text[300];
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    return ef_fail(t->diag, "cannot print kernel %s as Triton: %s", t->kernel->name, text);
}

bool ef_t_too_large(ef_t *t, const char *use, uint64_t elements)
{
    if (!t->diag->failed)
        t->diag->kind = EF_TOO_LARGE;
    return ef_t_fail(t, "a tile of %" PRIu64 " elements is %s", elements, use);
}

static char *vtext(ef_t *t, const char *format, va_list args)
{
    va_list again;
    va_copy(again, args);
    int length = vsnprintf(NULL, 0, format, again);
    va_end(again);
    char *text = ef_arena_alloc(t->arena, (size_t)length + 1);
    vsnprintf(text, (size_t)length + 1, format, args);
    return text;
}

const char *ef_t_text(ef_t *t, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    const char *text = vtext(t, format, args);
    va_end(args);
    return text;
}

void ef_t_line(ef_t *t, unsigned level, const char *format, ...)
{
    va_list args;
    for (unsigned i = 0; i <= level; i++)
        ef_strbuf_puts(&t->body[level], "    ");
    va_start(args, format);
    ef_strbuf_puts(&t->body[level], vtext(t, format, args));
    va_end(args);
    ef_strbuf_puts(&t->body[level], "\n");
}

const char *ef_t_index(ef_t *t, ef_index index)
{
    ef_strbuf text = {0};
    ef_index_print_triton(t->ix, index, &text);
    const char *copy = ef_t_text(t, "%s", text.text);
    ef_strbuf_free(&text);
    return copy;
}

const char *ef_t_identifier(ef_t *t, const char *name)
{
    char text[48];
    unsigned n = 0;
    if (isdigit((unsigned char)name[0]))
        text[n++] = '_';
    for (; *name && n + 1 < sizeof text; name++)
        text[n++] = isalnum((unsigned char)*name) ? *name : '_';
    text[n] = 0;
    return ef_t_text(t, "%s", text);
}

const char *ef_t_var_name(ef_t *t, ef_var var)
{
    ef_strbuf text = {0};
    ef_var_print(t->graph->ctx, var, &text);
    const char *name = ef_t_identifier(t, text.text);
    ef_strbuf_free(&text);
    return name;
}

/* Buffers of one name differ by their number; a kernel's arguments are these names. */
const char *ef_t_buffer_name(ef_t *t, uint32_t buffer)
{
    const ef_kbuffer *b = &t->graph->buffers.at[buffer];
    if (b->kind == EF_BUFFER_INPUT)
        return ef_t_text(t, "%s_ptr", ef_t_identifier(t, b->name));
    return ef_t_text(t, "%s_%s%" PRIu32, ef_t_identifier(t, b->name), b->kind == EF_BUFFER_TEMP ? "tmp" : "out",
                     buffer);
}

uint32_t ef_t_recall(ef_t *t, t_memo *memo, const void *key, size_t size)
{
    uint32_t at = ef_intern_put(memo->keys, key, size, NULL);
    while (memo->value.count <= at) {
        t_value nothing = {0};
        uint32_t none = 0;
        ef_vec_push(&memo->value, nothing);
        ef_vec_push(&memo->serial, none);
    }
    t_value *value = &memo->value.at[at];
    if (value->level > t->level || memo->serial.at[at] != t->serial[value->level])
        value->text = NULL;
    return at;
}

void ef_t_remember(ef_t *t, t_memo *memo, uint32_t at, t_value value)
{
    memo->value.at[at] = value;
    memo->serial.at[at] = t->serial[value.level];
}

void ef_t_line_load(ef_t *t, const char *line)
{
    ef_strbuf_printf(&t->loads, "    %s\n", line);
}

/* `front`: where it stands when it is of level 0; NULL: at the end of that, as of other levels. */
static const char *name(ef_t *t, ef_strbuf *front, unsigned level, const char *base, const char *expression)
{
    uint32_t at = ef_t_recall(t, &t->texts, expression, strlen(expression));
    if (t->texts.value.at[at].text)
        return t->texts.value.at[at].text;
    const char *made = ef_t_text(t, "%s_%u", base, t->counter++);
    if (front && level == 0)
        ef_strbuf_printf(front, "    %s = %s\n", made, expression);
    else
        ef_t_line(t, level, "%s = %s", made, expression);
    ef_t_remember(t, &t->texts, at, (t_value){.text = made, .level = level});
    return made;
}

const char *ef_t_name(ef_t *t, unsigned level, const char *base, const char *expression)
{
    return name(t, NULL, level, base, expression);
}

const char *ef_t_name_load(ef_t *t, unsigned level, const char *base, const char *expression)
{
    return name(t, &t->loads, level, base, expression);
}

const char *ef_t_name_stored(ef_t *t, unsigned level, const char *base, const char *expression)
{
    return name(t, t->ahead ? &t->waiting : &t->loads, level, base, expression);
}

void ef_t_scalar(ef_t *t, ef_index name, uint64_t limit)
{
    t_scalar scalar = {name, t->level, limit};
    for (uint32_t i = 0; i < t->scalars.count; i++)
        if (t->scalars.at[i].name == name) { /* of an earlier part of the same loop */
            t->scalars.at[i] = scalar;
            return;
        }
    ef_vec_push(&t->scalars, scalar);
}

unsigned ef_t_level(ef_t *t, ef_index index)
{
    unsigned level = 0;
    for (uint32_t i = 0; i < t->scalars.count; i++)
        if (t->scalars.at[i].level > level && ef_index_depends(t->ix, index, t->scalars.at[i].name))
            level = t->scalars.at[i].level;
    return level;
}

/* ---- views ---- */

static bool in_word(char c)
{
    return isalnum((unsigned char)c) || c == '_';
}

/* Where a name stands in a text, from `from` to before `to`; `to`: nowhere. */
static size_t find_name(const char *text, size_t from, size_t to, const char *name)
{
    size_t length = strlen(name);
    for (size_t at = from; at + length <= to; at++)
        if (memcmp(text + at, name, length) == 0 && (at == 0 || !in_word(text[at - 1])) && !in_word(text[at + length]))
            return at;
    return to;
}

typedef struct {
    size_t begin, end, indent;
} text_line;

static bool next_line(const ef_strbuf *lines, text_line *line)
{
    const char *text = lines->text;
    line->begin = line->end;
    if (line->begin >= lines->length)
        return false;
    while (text[line->end] != '\n')
        line->end++;
    line->end++;
    for (line->indent = 0; text[line->begin + line->indent] == ' ';)
        line->indent++;
    return true;
}

/* Whether a line gives a name a value. */
static bool defines(const ef_strbuf *lines, const text_line *line, const char *name)
{
    const char *is = strstr(lines->text + line->begin, " = ");
    size_t to = is ? (size_t)(is - lines->text) : line->end;
    return to < line->end && find_name(lines->text, line->begin, to, name) < to;
}

/* Behind the last line that gives a name a value, which is the last one of its loop where the name is a loop's state;
 * 0: none does. */
static size_t behind_definition(const ef_strbuf *lines, const char *name)
{
    size_t behind = 0;
    for (text_line line = {0}; next_line(lines, &line);)
        behind = defines(lines, &line, name) ? line.end : behind;
    return behind;
}

/* The first line from `from` on that uses a name; loops count as one line, of which `place` is the head. */
static bool first_use(const ef_strbuf *lines, size_t from, unsigned level, const char *name, text_line *use,
                      size_t *place)
{
    *use = (text_line){.end = from};
    while (next_line(lines, use)) {
        if (use->indent <= 4 * ((size_t)level + 1))
            *place = use->begin;
        if (find_name(lines->text, use->begin, use->end, name) < use->end)
            return true;
    }
    return false;
}

static void insert(ef_strbuf *lines, size_t at, const char *text)
{
    size_t length = strlen(text), rest = lines->length - at;
    ef_strbuf_puts(lines, text);
    memmove(lines->text + at + length, lines->text + at, rest);
    memcpy(lines->text + at, text, length);
}

const char *ef_t_view(ef_t *t, unsigned level, const char *base, const char *of, const char *expression)
{
    ef_strbuf *lines = &t->body[level];
    text_line use;
    size_t place = 0;
    uint32_t at = ef_t_recall(t, &t->texts, expression, strlen(expression));
    if (t->texts.value.at[at].text)
        return t->texts.value.at[at].text;
    bool used = first_use(lines, behind_definition(lines, of), level, of, &use, &place), here = used;
    const ef_strbuf *user = lines;
    for (unsigned inner = level + 1; !used && inner <= t->level; inner++) { /* in loops that are still open */
        user = &t->body[inner];
        used = first_use(user, 0, inner, of, &use, &(size_t){0});
    }
    if (!used || find_name(user->text, use.begin, use.end, expression) < use.end)
        return expression;
    const char *made = ef_t_text(t, "%s_%u", base, t->counter++);
    insert(lines, here ? place : lines->length,
           ef_t_text(t, "%*s%s = %s\n", 4 * ((int)level + 1), "", made, expression));
    ef_t_remember(t, &t->texts, at, (t_value){.text = made, .level = level});
    return made;
}
