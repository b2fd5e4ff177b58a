/* External calls as JSON: see external.h. */
#include "frontend/external.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "support/strbuf.h"

/* Strings of an archive may hold anything. */
static void put_string(ef_strbuf *out, const char *text)
{
    ef_strbuf_puts(out, "\"");
    for (const unsigned char *c = (const unsigned char *)text; *c; c++) {
        if (*c == '"' || *c == '\\')
            ef_strbuf_printf(out, "\\%c", *c);
        else if (*c < 0x20)
            ef_strbuf_printf(out, "\\u%04x", *c);
        else
            ef_strbuf_add(out, (const char *)c, 1);
    }
    ef_strbuf_puts(out, "\"");
}

static void put_named(ef_strbuf *out, const char *key, const char *text)
{
    ef_strbuf_printf(out, "{\"%s\": ", key);
    put_string(out, text);
    ef_strbuf_puts(out, "}");
}

static void put_number(ef_strbuf *out, double number)
{
    if (isnan(number) || isinf(number))
        put_named(out, "float", isnan(number) ? "nan" : number > 0 ? "inf" : "-inf");
    else {
        ef_strbuf text = {0};
        ef_strbuf_double(&text, number);
        ef_strbuf_add(out, text.text, text.length);
        if (text.text && !strpbrk(text.text, ".e")) /* a float stays one */
            ef_strbuf_puts(out, ".0");
        ef_strbuf_free(&text);
    }
}

/* `next`: the number that the next tensor has; NULL where there are none, as in a literal. */
static void put_tensor(ef_strbuf *out, uint32_t value, const uint32_t **next)
{
    if (value == EF_NONE || !next)
        ef_strbuf_puts(out, "null");
    else
        ef_strbuf_printf(out, "{\"tensor\": %" PRIu32 "}", *(*next)++);
}

static void put_list(ef_strbuf *out, const ef_xarg *arg, const uint32_t **next)
{
    ef_strbuf_puts(out, "[");
    for (uint32_t i = 0; i < arg->count; i++) {
        ef_strbuf_puts(out, i ? ", " : "");
        switch (arg->kind) {
        case EF_XA_TENSORS:
        case EF_XA_OPTIONAL_TENSORS: put_tensor(out, arg->values[i], next); break;
        case EF_XA_SYM_INTS:
            if (arg->values[i] != EF_NONE)
                put_tensor(out, arg->values[i], next);
            else
                ef_strbuf_printf(out, "%" PRId64, arg->integers[i]);
            break;
        case EF_XA_BOOLS: ef_strbuf_puts(out, arg->integers[i] ? "true" : "false"); break;
        case EF_XA_INTS: ef_strbuf_printf(out, "%" PRId64, arg->integers[i]); break;
        case EF_XA_FLOATS: put_number(out, arg->numbers[i]); break;
        default: put_string(out, arg->texts[i]); break;
        }
    }
    ef_strbuf_puts(out, "]");
}

static const char *memory_format(int64_t format)
{
    switch (format) {
    case EF_X_CHANNELS_LAST: return "channels_last";
    case EF_X_CHANNELS_LAST_3D: return "channels_last_3d";
    case EF_X_PRESERVE: return "preserve_format";
    default: return "contiguous_format";
    }
}

static void put_argument(ef_strbuf *out, const ef_xarg *arg, const uint32_t **next)
{
    switch (arg->kind) {
    case EF_XA_NONE: ef_strbuf_puts(out, "null"); break;
    case EF_XA_TENSOR:
    case EF_XA_SYM: put_tensor(out, arg->value, next); break;
    case EF_XA_INT: ef_strbuf_printf(out, "%" PRId64, arg->integer); break;
    case EF_XA_FLOAT: put_number(out, arg->number); break;
    case EF_XA_BOOL: ef_strbuf_puts(out, arg->boolean ? "true" : "false"); break;
    case EF_XA_STRING: put_string(out, arg->text); break;
    case EF_XA_SCALAR_TYPE: put_named(out, "dtype", ef_xscalars[arg->integer].name); break;
    case EF_XA_MEMORY_FORMAT: put_named(out, "memory_format", memory_format(arg->integer)); break;
    case EF_XA_LAYOUT: put_named(out, "layout", arg->integer == EF_X_STRIDED ? "strided" : "other"); break;
    case EF_XA_DEVICE: put_named(out, "device", arg->text); break;
    case EF_XA_GRAPH: put_named(out, "graph", arg->text); break;
    case EF_XA_OTHER: put_named(out, "other", arg->text); break;
    default: put_list(out, arg, next); break;
    }
}

static const char *take(ef_arena *arena, ef_strbuf *text)
{
    const char *copy = ef_arena_strndup(arena, text->text ? text->text : "", text->length);
    ef_strbuf_free(text);
    return copy;
}

const char *ef_external_arguments(ef_arena *arena, const ef_xnode *node, const uint32_t *in)
{
    ef_strbuf args = {0}, kwargs = {0};
    for (uint32_t i = 0; i < node->args; i++) {
        ef_strbuf *out = node->arg[i].keyword ? &kwargs : &args;
        ef_strbuf_puts(out, out->length ? ", " : "");
        if (node->arg[i].keyword) {
            put_string(out, node->arg[i].name);
            ef_strbuf_puts(out, ": ");
        }
        put_argument(out, &node->arg[i], &in);
    }
    ef_strbuf both = {0};
    ef_strbuf_printf(&both, "{\"args\": [%s], \"kwargs\": {%s}}", args.text ? args.text : "",
                     kwargs.text ? kwargs.text : "");
    ef_strbuf_free(&args);
    ef_strbuf_free(&kwargs);
    return take(arena, &both);
}

const char *ef_external_results(ef_arena *arena, const ef_xnode *node, const uint32_t *out)
{
    ef_strbuf text = {0};
    bool list = node->outputs != 1 || node->listed;
    if (node->outputs == 0)
        return "null";
    if (list)
        ef_strbuf_puts(&text, "[");
    for (uint32_t i = 0; i < node->outputs; i++) {
        ef_strbuf_puts(&text, i ? ", " : "");
        put_argument(&text, &node->output[i], &out);
    }
    if (list)
        ef_strbuf_puts(&text, "]");
    return take(arena, &text);
}

const char *ef_external_literal(ef_arena *arena, const ef_xarg *arg)
{
    ef_strbuf text = {0};
    put_argument(&text, arg, NULL);
    return take(arena, &text);
}

const char *ef_external_target(ef_arena *arena, const ef_call *call)
{
    const char *target = call->node->target, *dot = strrchr(target, '.');
    if (!call->functional || !dot || dot == target || dot[-1] != '_')
        return target;
    ef_strbuf text = {0};
    ef_strbuf_add(&text, target, (size_t)(dot - target) - 1);
    ef_strbuf_puts(&text, dot);
    return take(arena, &text);
}
