/* The parser of the text form: characters to the syntax tree of text.h, by recursive descent, one statement a line.
 *
 * The text is untrusted: every size is limited, every failure is one line "file:line:column: what is wrong and what
 * would be right". Names are defined before they are used, so a program cannot be cyclic. */
#include <string.h>

#include "ir/text.h"

/* ---- expressions ---- */

static uint32_t expression(ef_text *s, unsigned depth);

/* Names of operators that are written differently from what they are. */
static const struct {
    const char *name;
    ef_op op;
    uint8_t cuts;
} aliases[] = {
    {"full", EF_BROADCAST, 0},
    {"partition", EF_VIEW, EF_TEXT_ANYWHERE},
    {"replicate", EF_VIEW, EF_TEXT_NOWHERE},
};

/* The distance in edits between a word and an operator's name, capped. */
static unsigned distance(const char *a, unsigned na, const char *b)
{
    unsigned nb = (unsigned)strlen(b), row[16];
    if (na > 15 || nb > 15)
        return 99;
    for (unsigned j = 0; j <= nb; j++)
        row[j] = j;
    for (unsigned i = 1; i <= na; i++) {
        unsigned corner = row[0];
        row[0] = i;
        for (unsigned j = 1; j <= nb; j++) {
            unsigned change = corner + (a[i - 1] != b[j - 1]);
            corner = row[j];
            unsigned least = row[j] < row[j - 1] ? row[j] + 1 : row[j - 1] + 1;
            row[j] = change < least ? change : least;
        }
    }
    return row[nb];
}

/* Keeps the name that is nearer to the word. */
static void nearer(const char *text, unsigned length, const char *name, unsigned *least, const char **best)
{
    unsigned d = distance(text, length, name);
    if (d < *least) {
        *least = d;
        *best = name;
    }
}

static bool unknown_operator(ef_text *s, size_t at, const char *text, unsigned length)
{
    const char *best = NULL;
    unsigned least = length < 4 ? 2 : 3;
    int shown = length > 40 ? 40 : (int)length;
    for (int op = EF_IOTA; op < EF_OP_COUNT; op++)
        if (op != EF_REDUCE_P)
            nearer(text, length, ef_ops[op].name, &least, &best);
    for (unsigned i = 0; i < sizeof aliases / sizeof *aliases; i++)
        nearer(text, length, aliases[i].name, &least, &best);
    return best ? ef_text_fail(s, at, "unknown operator %.*s: did you mean %s?", shown, text, best)
                : ef_text_fail(s, at, "unknown operator %.*s", shown, text);
}

static bool find_operator(ef_text *s, ef_text_node *node, const char *text, unsigned length, bool *full)
{
    for (unsigned i = 0; i < sizeof aliases / sizeof *aliases; i++) {
        if (ef_text_is_word(text, length, aliases[i].name)) {
            node->op = (uint8_t)aliases[i].op;
            node->cuts = aliases[i].cuts;
            *full = aliases[i].op == EF_BROADCAST;
            return true;
        }
    }
    ef_op op = ef_op_named(text, length);
    if (op == EF_OP_COUNT || op == EF_INPUT || op == EF_CONST || op == EF_REDUCE_P)
        return unknown_operator(s, node->at, text, length);
    node->op = (uint8_t)op;
    node->cuts = EF_TEXT_ANYWHERE;
    return true;
}

/* The operands in parentheses; they gather on a stack, because theirs come in between. */
static bool operands(ef_text *s, ef_text_node *node, unsigned depth)
{
    uint32_t base = s->stack.count;
    if (!ef_text_expect(s, '('))
        return false;
    if (ef_text_next(s) != ')') {
        do {
            uint32_t operand = expression(s, depth + 1);
            if (operand == EF_NONE)
                return false;
            ef_vec_push(&s->stack, operand);
        } while (ef_text_accept(s, ','));
    }
    node->count = s->stack.count - base;
    node->first = s->operands.count;
    for (uint32_t i = base; i < s->stack.count; i++)
        ef_vec_push(&s->operands, s->stack.at[i]);
    s->stack.count = base;
    if (!ef_text_accept(s, ')'))
        return ef_text_expected(s, "',' or ')'");
    int arity = ef_ops[node->op].arity;
    if (arity < 0 ? node->count == 0 || node->count > EF_MAX_FIELDS : node->count != (unsigned)arity)
        return arity < 0 ? ef_text_fail(s, node->at, "%s wants 1 to %d operands, not %u", ef_ops[node->op].name,
                                        EF_MAX_FIELDS, node->count)
                         : ef_text_fail(s, node->at, "%s wants %d operand%s, not %u", ef_ops[node->op].name, arity,
                                        arity == 1 ? "" : "s", node->count);
    return true;
}

static bool call(ef_text *s, ef_text_node *node, const char *text, unsigned length, unsigned depth)
{
    bool full = false, parallel = false;
    if (!find_operator(s, node, text, length, &full))
        return false;
    parallel = node->op == EF_VIEW && text[0] == 'p';
    if (ef_text_accept(s, '[')) {
        if (!ef_text_attributes(s, node, full) || !ef_text_expect(s, ']'))
            return false;
    } else if (ef_ops[node->op].attr != EF_ATTR_NONE) {
        return ef_text_expected(s, "'[' and this operator's attributes");
    }
    if (parallel && node->cuts == EF_TEXT_ANYWHERE)
        return ef_text_fail(s, node->at, "partition says which dimension it cuts, as in partition[-1, k.0](x)");
    return full || ef_ops[node->op].arity == 0 || operands(s, node, depth);
}

/* Whether some later line defines this name: worth a hint. */
static bool defined_later(const ef_text *s, const char *text, unsigned length)
{
    for (size_t at = s->at; at < s->length; at++) {
        if (s->text[at] != '\n')
            continue;
        ef_text line = *s;
        line.at = at + 1;
        if (!ef_text_accept_word(&line, "output"))
            ef_text_accept_word(&line, "input");
        ef_text_next(&line);
        if (ef_text_name_length(&line, line.at) == length && memcmp(s->text + line.at, text, length) == 0) {
            line.at += length;
            int c = ef_text_next(&line);
            if (c == '=' || c == ':')
                return true;
        }
    }
    return false;
}

static bool reference(ef_text *s, ef_text_node *node, const char *text, unsigned length)
{
    uint32_t def = ef_intern_find(s->def_names, text, length);
    int shown = length > 60 ? 60 : (int)length;
    if (def == UINT32_MAX && ef_intern_find(s->dim_names, text, length) != UINT32_MAX)
        return ef_text_fail(s, node->at, "%.*s is a dimension, not a value: iota[%.*s] counts along it", shown, text,
                            shown, text);
    if (def == UINT32_MAX)
        return ef_text_fail(s, node->at, "%.*s is not defined%s", shown, text,
                            defined_later(s, text, length)
                                ? " yet: move the line that defines it above this one"
                                : ": add a line that defines it above this one, or declare it as an input");
    node->attr = def;
    return true;
}

/* The node's index, or EF_NONE. */
static uint32_t expression(ef_text *s, unsigned depth)
{
    const char *text;
    unsigned length;
    int c = ef_text_next(s);
    double value;
    ef_text_node node = {.at = (uint32_t)s->at, .op = EF_INPUT};
    if (depth >= EF_TEXT_DEPTH) {
        ef_text_fail(s, s->at, "operators are nested more than %u deep: name a part of this on a line above",
                     EF_TEXT_DEPTH);
        return EF_NONE;
    }
    length = ef_text_name_length(s, s->at);
    bool word = ef_text_is_name_start(c) && !ef_text_is_word(s->text + s->at, length, "inf") &&
                !ef_text_is_word(s->text + s->at, length, "nan");
    if (word) {
        if (!ef_text_name(s, "an expression", &text, &length))
            return EF_NONE;
        c = ef_text_next(s);
        if (!(c == '(' || c == '[' ? call(s, &node, text, length, depth) : reference(s, &node, text, length)))
            return EF_NONE;
    } else if (ef_text_is_name_start(c) || ef_text_is_digit(c) || c == '-') {
        if (!ef_text_number_value(s, &value))
            return EF_NONE;
        node.op = EF_CONST;
        node.attr = ef_attr_number(value);
    } else {
        ef_text_expected(s, "an expression");
        return EF_NONE;
    }
    if (s->nodes.count >= EF_TEXT_NODES) {
        ef_text_fail(s, node.at, "a program has at most %u operators", EF_TEXT_NODES);
        return EF_NONE;
    }
    ef_vec_push(&s->nodes, node);
    return s->nodes.count - 1;
}

/* ---- lines ---- */

/* Moves past a comment; its text must be clean UTF-8, because it is printed again. */
static bool comment_text(ef_text *s)
{
    while (s->at < s->length && s->text[s->at] != '\n') {
        unsigned char c = (unsigned char)s->text[s->at];
        unsigned more = c < 0x80                ? 0
                        : c >= 0xc2 && c < 0xe0 ? 1
                        : (c & 0xf0) == 0xe0    ? 2
                        : c >= 0xf0 && c < 0xf5 ? 3
                                                : 9;
        bool carriage = c == '\r' && s->at + 1 < s->length && s->text[s->at + 1] == '\n';
        bool good = more < 9 && s->at + more < s->length && !(c < 0x20 && c != '\t' && !carriage) && c != 0x7f;
        for (unsigned i = 1; good && i <= more; i++)
            good = (s->text[s->at + i] & 0xc0) == 0x80;
        if (!good)
            return ef_text_fail(s, s->at, "unexpected byte 0x%02x in a comment", c);
        s->at += 1 + more;
    }
    return true;
}

static bool end_of_line(ef_text *s)
{
    int c = ef_text_next(s);
    if (c == '#') {
        if (!comment_text(s))
            return false;
        c = ef_text_peek(s);
    }
    if (c >= 0 && c != '\n')
        return ef_text_expected(s, "the end of the line");
    s->at += c == '\n';
    return true;
}

/* Keeps the comment lines above `program`, without their "# ". */
static bool leading_comment(ef_text *s)
{
    for (int c = ef_text_next(s); c == '#' || c == '\n'; c = ef_text_next(s)) {
        s->at++;
        if (c == '\n')
            continue;
        s->at += ef_text_peek(s) == ' ';
        size_t start = s->at;
        if (!comment_text(s))
            return false;
        size_t end = s->at;
        while (end > start && (s->text[end - 1] == ' ' || s->text[end - 1] == '\t' || s->text[end - 1] == '\r'))
            end--;
        ef_strbuf_add(&s->comment, s->text + start, end - start);
        ef_strbuf_puts(&s->comment, "\n");
    }
    return true;
}

static bool dim_line(ef_text *s)
{
    const char *text;
    unsigned length;
    uint64_t extent;
    int fresh;
    ef_diag inner = {0};
    ef_text_next(s);
    size_t at = s->at;
    if (!ef_text_name(s, "a dimension's name", &text, &length) || !ef_text_expect(s, '='))
        return false;
    ef_text_next(s);
    size_t value = s->at;
    if (!ef_text_integer(s, "an extent", EF_MAX_EXTENT, &extent))
        return false;
    if (extent == 0)
        return ef_text_fail(s, value, "a dimension has at least 1 element");
    ef_intern_put(s->dim_names, text, length, &fresh);
    if (!fresh)
        return ef_text_fail(s, at, "dimension %.*s is declared twice", length > 60 ? 60 : (int)length, text);
    ef_var var = extent == 1 ? 0 : ef_var_named(s->ctx, text, length, extent, &inner);
    if (var == EF_NONE)
        return ef_text_fail(s, at, "%s", inner.text);
    ef_vec_push(&s->named, extent == 1 ? EF_UNIT : ef_dim_of_var(s->ctx, var));
    return true;
}

/* Takes a name for a definition, which must be new. */
static bool define(ef_text *s, ef_text_def *def)
{
    static const char *const reserved[] = {"program", "dim", "input", "output", "inf", "nan"};
    const char *text;
    unsigned length;
    ef_text_next(s);
    def->at = (uint32_t)s->at;
    if (!ef_text_name(s, "a name", &text, &length))
        return false;
    int shown = length > 60 ? 60 : (int)length;
    for (unsigned i = 0; i < 6; i++)
        if (ef_text_is_word(text, length, reserved[i]))
            return ef_text_fail(s, def->at, "%s is a reserved word: choose another name", reserved[i]);
    uint32_t old = ef_intern_find(s->def_names, text, length);
    if (old != UINT32_MAX)
        return ef_text_fail(s, def->at, "%.*s is defined already: choose another name", shown, text);
    def->name = ef_arena_strndup(s->arena, text, length);
    return true;
}

/* From here on the name is known: a statement cannot mean itself. */
static void defined(ef_text *s, ef_text_def def)
{
    ef_intern_put(s->def_names, s->text + def.at, ef_text_name_length(s, def.at), NULL);
    ef_vec_push(&s->defs, def);
}

static bool input_line(ef_text *s)
{
    ef_text_def def = {.is_input = true};
    if (!define(s, &def) || !ef_text_expect(s, ':') || !ef_text_dtype(s, &def.dtype) || !ef_text_expect(s, '[') ||
        !ef_text_shape_of(s, ']', &def.shape) || !ef_text_expect(s, ']'))
        return false;
    defined(s, def);
    return true;
}

static bool statement_line(ef_text *s, bool is_output)
{
    ef_text_def def = {.is_output = is_output};
    if (!define(s, &def) || !ef_text_expect(s, '='))
        return false;
    def.root = expression(s, 0);
    if (def.root == EF_NONE)
        return false;
    defined(s, def);
    return true;
}

static bool line(ef_text *s)
{
    int c = ef_text_next(s);
    if (c < 0 || c == '\n' || c == '#')
        return end_of_line(s);
    if (++s->lines > EF_TEXT_LINES)
        return ef_text_fail(s, s->at, "a program has at most %u lines", EF_TEXT_LINES);
    if (!ef_text_is_name_start(c))
        return ef_text_expected(s, "dim, input, output or NAME = EXPRESSION");
    bool good = ef_text_accept_word(s, "dim")      ? dim_line(s)
                : ef_text_accept_word(s, "input")  ? input_line(s)
                : ef_text_accept_word(s, "output") ? statement_line(s, true)
                                                   : statement_line(s, false);
    return good && end_of_line(s);
}

bool ef_text_parse(ef_text *s)
{
    const char *text;
    unsigned length;
    if (s->length > EF_TEXT_BYTES)
        return ef_text_fail(s, 0, "the program is larger than %u MiB", EF_TEXT_BYTES >> 20);
    if (!leading_comment(s))
        return false;
    if (!ef_text_accept_word(s, "program"))
        return ef_text_expected(s, "'program NAME' first");
    if (!ef_text_name(s, "the program's name", &text, &length) || !end_of_line(s))
        return false;
    s->name = ef_arena_strndup(s->arena, text, length);
    while (s->at < s->length)
        if (!line(s))
            return false;
    for (uint32_t i = 0; i < s->defs.count; i++)
        if (s->defs.at[i].is_output)
            return true;
    return ef_text_fail(s, s->length, "the program has no output: add a line 'output NAME = EXPRESSION'");
}
