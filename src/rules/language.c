/* The rule language: see language.h. One recursive-descent parser, one token of look-ahead by characters. */
#include "rules/language.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "rules/embedded.h"

typedef struct {
    ef_ruleset *set;
    const char *file, *text, *at;
    ef_diag *diag;
    ef_rule *rule;
    const char *group;
    /* names of the rule's variables, by kind */
    struct {
        const char *name[EF_PATTERN_VARS];
        unsigned length[EF_PATTERN_VARS], count;
    } vars, attrs, ops;
    ef_op_class op_class[EF_PATTERN_OPS];
} parser;

typedef __typeof__(((parser *)0)->vars) names;

/* ---- characters ---- */

static bool fail(parser *p, const char *what)
{
    int line = 1;
    for (const char *c = p->text; c < p->at; c++)
        line += *c == '\n';
    return ef_fail(p->diag, "%s:%d: %s near \"%.20s\"", p->file, line, what, p->at);
}

static void skip(parser *p)
{
    for (;;) {
        while (isspace((unsigned char)*p->at))
            p->at++;
        if (*p->at != '#')
            return;
        while (*p->at && *p->at != '\n')
            p->at++;
    }
}

static bool token(parser *p, const char *text)
{
    skip(p);
    size_t n = strlen(text);
    if (strncmp(p->at, text, n) != 0)
        return false;
    if (isalpha((unsigned char)text[0]) && (isalnum((unsigned char)p->at[n]) || p->at[n] == '_' || p->at[n] == '-'))
        return false;
    p->at += n;
    return true;
}

static bool expect(parser *p, const char *text)
{
    char message[64];
    if (token(p, text))
        return true;
    snprintf(message, sizeof message, "\"%s\" expected", text);
    return fail(p, message);
}

static unsigned word(parser *p, const char **start)
{
    skip(p);
    *start = p->at;
    while (isalnum((unsigned char)*p->at) || *p->at == '_')
        p->at++;
    return (unsigned)(p->at - *start);
}

/* ---- variables ---- */

/* The index of a name; *fresh tells whether it is new. -1 when there are too many. */
static int name_index(names *set, unsigned limit, const char *name, unsigned length, bool *fresh)
{
    for (unsigned i = 0; i < set->count; i++)
        if (set->length[i] == length && memcmp(set->name[i], name, length) == 0) {
            *fresh = false;
            return (int)i;
        }
    if (set->count == limit)
        return -1;
    *fresh = true;
    set->name[set->count] = name;
    set->length[set->count] = length;
    return (int)set->count++;
}

static int known(const names *set, const char *name, unsigned length)
{
    for (unsigned i = 0; i < set->count; i++)
        if (set->length[i] == length && memcmp(set->name[i], name, length) == 0)
            return (int)i;
    return -1;
}

/* ---- attributes ---- */

/* A literal attribute: reducer or dtype name, `first`, -1 (index from the last), 0 … */
static bool literal(parser *p, uint32_t *value)
{
    static const char *const reducers[] = {"sum", "max", "min", "prod"};
    for (uint32_t i = 0; i < 4; i++)
        if (token(p, reducers[i])) {
            *value = i;
            return true;
        }
    for (uint32_t i = 0; i < EF_DTYPE_COUNT; i++)
        if (token(p, ef_dtype_names[i])) {
            *value = i;
            return true;
        }
    if (token(p, "first")) {
        *value = EF_FIRST;
        return true;
    }
    skip(p);
    char *end;
    long n = strtol(p->at, &end, 10);
    if (end == p->at)
        return fail(p, "attribute expected");
    p->at = end;
    *value = n < 0 ? (uint32_t)(-n - 1) : (uint32_t)n;
    return true;
}

static bool slot(parser *p, bool right, ef_slot *out);

static bool slot_atom(parser *p, bool right, ef_slot *out)
{
    const char *name;
    bool fresh;
    *out = (ef_slot){0};
    skip(p);
    if (*p->at == '?') {
        p->at++;
        unsigned length = word(p, &name);
        int index = name_index(&p->attrs, EF_PATTERN_ATTRS, name, length, &fresh);
        if (index < 0)
            return fail(p, "too many attribute variables");
        if (right && fresh)
            return fail(p, "attribute variable is not bound");
        *out = (ef_slot){EF_SLOT_VAR, fresh, (uint32_t)index};
        return true;
    }
    ef_attr_term term = {0};
    bool set = right && token(p, "{"), product = right && !set && token(p, "product");
    if (!set && !product)
        return literal(p, &out->value);
    if (p->rule->terms == EF_ATTR_TERMS)
        return fail(p, "too many computed attributes");
    term.kind = set ? EF_TERM_SET : EF_TERM_PRODUCT;
    if (set) {
        if (!slot(p, right, &term.a) || !expect(p, "}"))
            return false;
    } else if (!expect(p, "(") || !slot(p, right, &term.a) || !expect(p, ",") || !slot(p, right, &term.b) ||
               !expect(p, ")")) {
        return false;
    }
    *out = (ef_slot){EF_SLOT_TERM, false, p->rule->terms};
    p->rule->term[p->rule->terms++] = term;
    return true;
}

static bool slot(parser *p, bool right, ef_slot *out)
{
    if (!slot_atom(p, right, out))
        return false;
    while (right) {
        skip(p);
        bool plus = *p->at == '+', minus = *p->at == '-';
        if (!plus && !minus)
            return true;
        p->at++;
        ef_attr_term term = {.kind = plus ? EF_TERM_UNION : EF_TERM_MINUS, .a = *out};
        if (p->rule->terms == EF_ATTR_TERMS)
            return fail(p, "too many computed attributes");
        if (!slot_atom(p, right, &term.b))
            return false;
        *out = (ef_slot){EF_SLOT_TERM, false, p->rule->terms};
        p->rule->term[p->rule->terms++] = term;
    }
    return true;
}

/* ---- terms ---- */

static bool term(parser *p, ef_pattern *pattern, bool right, uint8_t *position);

static bool operands(parser *p, ef_pattern *pattern, bool right, uint8_t at)
{
    if (!expect(p, "("))
        return false;
    while (!token(p, ")")) {
        uint8_t child;
        if (pattern->node[at].children == EF_PATTERN_CHILDREN)
            return fail(p, "too many operands");
        if (pattern->node[at].children && !expect(p, ","))
            return false;
        if (!term(p, pattern, right, &child))
            return false;
        pattern->node[at].child[pattern->node[at].children++] = child;
    }
    return true;
}

static bool variable(parser *p, ef_pattern *pattern, bool right, uint8_t at)
{
    static const struct {
        const char *name;
        ef_op_class class;
    } classes[] = {{"unary", EF_UNARY}, {"binary", EF_BINARY}, {"ternary", EF_TERNARY}};
    ef_pattern_node *n = &pattern->node[at];
    const char *name;
    bool fresh;
    unsigned length = word(p, &name);
    bool typed = *p->at == ':'; /* no look-ahead past the line's end */
    p->at += typed;
    bool op = typed || known(&p->ops, name, length) >= 0;
    int index = op ? name_index(&p->ops, EF_PATTERN_OPS, name, length, &fresh)
                   : name_index(&p->vars, EF_PATTERN_VARS, name, length, &fresh);
    if (index < 0 || length == 0)
        return fail(p, "too many variables");
    if (right && fresh)
        return fail(p, "variable is not bound on the left");
    n->index = (uint8_t)index;
    n->binds = fresh;
    n->kind = op ? EF_PAT_ANYOP : EF_PAT_VAR;
    if (!op)
        return true;
    for (unsigned i = 0; typed && i < 3; i++)
        if (token(p, classes[i].name))
            p->op_class[index] = classes[i].class;
    n->class = p->op_class[index];
    return operands(p, pattern, right, at);
}

static bool term(parser *p, ef_pattern *pattern, bool right, uint8_t *position)
{
    if (pattern->count == EF_PATTERN_NODES)
        return fail(p, "pattern too large");
    uint8_t at = *position = pattern->count++;
    ef_pattern_node *n = &pattern->node[at];
    memset(n, 0, sizeof *n);
    skip(p);
    if (*p->at == '?') {
        p->at++;
        return variable(p, pattern, right, at);
    }
    if (isdigit((unsigned char)*p->at) || *p->at == '-') {
        char *end;
        n->kind = EF_PAT_NUMBER;
        n->number = strtod(p->at, &end);
        p->at = end;
        return true;
    }
    const char *name;
    unsigned length = word(p, &name);
    n->kind = EF_PAT_OP;
    n->op = ef_op_named(name, length);
    if (n->op == EF_OP_COUNT)
        return fail(p, "unknown operator");
    uint64_t unused[2];
    unsigned slots = ef_attr_slots(n->op, 0, unused);
    for (unsigned i = 0; i < slots; i++) {
        if (!expect(p, i ? "," : "[") || !slot(p, right, &n->slot[i]))
            return false;
        n->slots++;
    }
    if (slots && !expect(p, "]"))
        return false;
    return operands(p, pattern, right, at);
}

/* ---- conditions ---- */

static bool argument(parser *p, ef_condition *c)
{
    const char *name;
    if (c->args == EF_CONDITION_ARGS)
        return fail(p, "too many arguments");
    skip(p);
    if (*p->at == '?') {
        p->at++;
        unsigned length = word(p, &name);
        int var = known(&p->vars, name, length), attr = known(&p->attrs, name, length);
        if (var < 0 && attr < 0)
            return fail(p, "unknown variable");
        c->arg[c->args].kind = var >= 0 ? EF_ARG_VAR : EF_ARG_ATTR;
        c->arg[c->args].index = (uint8_t)(var >= 0 ? var : attr);
    } else if (token(p, "root")) {
        c->arg[c->args].kind = EF_ARG_ROOT;
    } else {
        uint32_t value;
        if (!literal(p, &value))
            return false;
        c->arg[c->args].kind = EF_ARG_NUMBER;
        c->arg[c->args].number = value;
    }
    c->args++;
    return true;
}

static bool condition(parser *p, bool policy)
{
    ef_rule *rule = p->rule;
    const char *name;
    bool fresh;
    if (token(p, "same_type")) {
        rule->same_type = true;
        return true;
    }
    if (rule->conditions == EF_RULE_CONDITIONS)
        return fail(p, "too many conditions");
    ef_condition *c = &rule->condition[rule->conditions++];
    *c = (ef_condition){.binds = -1, .policy = policy};
    skip(p);
    if (*p->at == '?') {
        p->at++;
        unsigned length = word(p, &name);
        int index = name_index(&p->attrs, EF_PATTERN_ATTRS, name, length, &fresh);
        if (index < 0 || !fresh)
            return fail(p, "a condition binds a new attribute variable");
        c->binds = (int8_t)index;
        if (!expect(p, "="))
            return false;
    }
    unsigned length = word(p, &name);
    c->fn = ef_condition_named(name, length);
    c->name = ef_arena_strndup(p->set->arena, name, length);
    if (!c->fn)
        return fail(p, "unknown condition");
    if (!expect(p, "("))
        return false;
    while (!token(p, ")"))
        if ((c->args && !expect(p, ",")) || !argument(p, c))
            return false;
    return true;
}

static bool condition_list(parser *p, bool policy)
{
    do {
        if (!condition(p, policy))
            return false;
    } while (token(p, ","));
    return true;
}

/* ---- rules ---- */

/* Whether a condition looks at what the variable matched: then a change of its class may make the rule match. */
static bool is_read(const ef_rule *rule, unsigned var)
{
    for (unsigned i = 0; i < rule->conditions; i++)
        for (unsigned k = 0; k < rule->condition[i].args; k++)
            if (rule->condition[i].arg[k].kind == EF_ARG_VAR && rule->condition[i].arg[k].index == var)
                return true;
    return false;
}

/* How many levels of classes a match depends on. */
static uint8_t depth_of(const ef_rule *rule, unsigned at)
{
    const ef_pattern_node *n = &rule->left.node[at];
    uint8_t deepest = 0;
    if (n->kind == EF_PAT_VAR)
        return is_read(rule, n->index);
    for (unsigned i = 0; i < n->children; i++) {
        uint8_t d = depth_of(rule, n->child[i]);
        deepest = d > deepest ? d : deepest;
    }
    return (uint8_t)(deepest + 1);
}

static void finish(parser *p, ef_rule *rule)
{
    rule->vars = (uint8_t)p->vars.count;
    rule->attrs = (uint8_t)p->attrs.count;
    rule->ops = (uint8_t)p->ops.count;
    rule->depth = depth_of(rule, 0);
    rule->group = p->group;
}

/* The right side is parsed after the conditions, which may bind what it uses: so its text is kept and read last. */
static bool rule_body(parser *p, const char *left, const char *right, const char *rest, const char **end)
{
    uint8_t root;
    ef_rule *rule = p->rule;
    p->vars.count = p->attrs.count = p->ops.count = 0;
    p->at = left;
    if (!term(p, &rule->left, false, &root))
        return false;
    p->at = rest;
    for (;;) {
        if (token(p, "where")) {
            if (!condition_list(p, false))
                return false;
        } else if (token(p, "policy")) {
            if (!condition_list(p, true))
                return false;
        } else {
            break;
        }
    }
    *end = p->at;
    p->at = right;
    if (token(p, "native")) {
        const char *name;
        unsigned length = word(p, &name);
        rule->builder = ef_builder_named(name, length);
        rule->deep = true;
        if (!rule->builder)
            return fail(p, "unknown builder");
    } else if (!term(p, &rule->right, true, &root)) {
        return false;
    }
    while (*p->at == ' ')
        p->at++;
    if (*p->at && *p->at != '\n' && strncmp(p->at, "<=>", 3) != 0)
        return fail(p, "the right side ends its line");
    finish(p, rule);
    return true;
}

/* Finds the end of a term by brackets, so that it can be parsed later. */
static void skip_term(parser *p)
{
    int depth = 0;
    skip(p);
    if (token(p, "native")) {
        const char *name;
        word(p, &name);
        return;
    }
    for (; *p->at; p->at++) {
        if (*p->at == '(' || *p->at == '[' || *p->at == '{')
            depth++;
        if (*p->at == ')' || *p->at == ']' || *p->at == '}')
            depth--;
        if (depth == 0 && (*p->at == '\n' || strncmp(p->at, " =>", 3) == 0 || strncmp(p->at, " <=>", 4) == 0))
            return;
    }
}

static const char *text_between(parser *p, const char *start, const char *end)
{
    while (end > start && isspace((unsigned char)end[-1]))
        end--;
    return ef_arena_strndup(p->set->arena, start, (size_t)(end - start));
}

static bool rule(parser *p)
{
    skip(p);
    const char *name = p->at, *end;
    while (*p->at && !isspace((unsigned char)*p->at))
        p->at++;
    size_t length = (size_t)(p->at - name);
    skip(p);
    const char *left = p->at;
    skip_term(p);
    bool both = token(p, "<=>");
    if (!both && !expect(p, "=>"))
        return false;
    skip(p);
    const char *right = p->at;
    skip_term(p);
    const char *rest = p->at;
    for (int back = 0; back <= (int)both; back++) {
        ef_rule fresh = {.name = ef_arena_strndup(p->set->arena, name, length)};
        if (back) {
            char *longer = ef_arena_alloc(p->set->arena, length + 6);
            snprintf(longer, length + 6, "%s-back", fresh.name);
            fresh.name = longer;
        }
        fresh.text = text_between(p, left, rest);
        p->rule = &fresh;
        if (!rule_body(p, back ? right : left, back ? left : right, rest, &end))
            return false;
        ef_vec_push(&p->set->rules, fresh);
    }
    p->at = end;
    return true;
}

bool ef_rules_parse(ef_ruleset *set, const char *file, const char *text, ef_diag *diag)
{
    parser p = {.set = set, .file = file, .text = text, .at = text, .diag = diag, .group = "rules"};
    for (;;) {
        skip(&p);
        if (!*p.at)
            return true;
        if (token(&p, "group")) {
            const char *name;
            unsigned length = word(&p, &name);
            p.group = ef_arena_strndup(set->arena, name, length);
        } else if (!token(&p, "rule")) {
            return fail(&p, "\"rule\" or \"group\" expected");
        } else if (!rule(&p)) {
            return false;
        }
    }
}

static ef_ruleset *load(bool scalar)
{
    ef_ruleset *set = ef_xcalloc(1, sizeof *set);
    ef_diag diag = {0};
    set->arena = ef_arena_new();
    for (unsigned i = 0; i < ef_embedded_rule_count; i++) {
        bool is_scalar = strstr(ef_embedded_rules[i].file, "scalar") != NULL;
        if (is_scalar == scalar && !ef_rules_parse(set, ef_embedded_rules[i].file, ef_embedded_rules[i].text, &diag)) {
            fprintf(stderr, "equiforge: built-in rules: %s\n", diag.text);
            abort();
        }
    }
    return set;
}

ef_ruleset *ef_rules_builtin(void)
{
    return load(false);
}

ef_ruleset *ef_rules_scalar(void)
{
    return load(true);
}

void ef_ruleset_free(ef_ruleset *set)
{
    if (!set)
        return;
    ef_vec_free(&set->rules);
    ef_arena_free(set->arena);
    free(set);
}
