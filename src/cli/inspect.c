/* equiforge inspect FILE: inputs, outputs and operators of a program or module. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "cli.h"

static json_t *tensors_json(const equiforge_tensor *tensor, size_t count)
{
    json_t *list = json_array();
    for (size_t i = 0; i < count; i++) {
        json_t *dims = json_array(), *shape = json_array();
        for (size_t d = 0; d < tensor[i].rank; d++) {
            json_array_append_new(dims, json_string(tensor[i].dim[d]));
            json_array_append_new(shape, json_integer((json_int_t)tensor[i].size[d]));
        }
        json_array_append_new(list, json_pack("{s:s, s:s, s:o, s:o, s:s}", "name", tensor[i].name, "dtype",
                                              tensor[i].dtype, "shape", shape, "dims", dims, "type", tensor[i].type));
    }
    return list;
}

static bool print_json(const equiforge_inspection *p)
{
    json_t *operators = json_object(), *external = json_array();
    for (size_t i = 0; i < p->operators; i++)
        json_object_set_new(operators, p->op[i].name, json_integer(p->op[i].count));
    for (size_t i = 0; i < p->externals; i++)
        json_array_append_new(external, json_string(p->external[i].name));
    return cli_json(json_pack("{s:s, s:o, s:o, s:o, s:o, s:o}", "program", p->name, "inputs",
                              tensors_json(p->input, p->inputs), "parameters",
                              tensors_json(p->parameter, p->parameters), "outputs", tensors_json(p->output, p->outputs),
                              "operators", operators, "external", external));
}

/* The width of the longest name, within reason. */
static int width(const char *name, int least)
{
    size_t length = strlen(name);
    return length > 40 ? 40 : length > (size_t)least ? (int)length : least;
}

static void print_tensors(const char *title, const equiforge_tensor *tensor, size_t count)
{
    int column = 12;
    for (size_t i = 0; i < count; i++)
        column = width(tensor[i].name, column);
    printf("%s\n", title);
    for (size_t i = 0; i < count; i++) {
        printf("  %-*s %s", column, tensor[i].name, tensor[i].type);
        for (size_t d = 0; d < tensor[i].rank; d++)
            printf("%s%" PRIu64, d ? " x " : "  = ", tensor[i].size[d]);
        putchar('\n');
    }
}

static void print_operators(const char *title, const equiforge_operator *op, size_t count)
{
    int column = 12;
    for (size_t i = 0; i < count; i++)
        column = width(op[i].name, column);
    puts(title);
    for (size_t i = 0; i < count; i++)
        printf("  %-*s %" PRIu32 "\n", column, op[i].name, op[i].count);
}

static void print_text(const equiforge_inspection *p)
{
    printf("program %s\n", p->name);
    print_tensors("inputs", p->input, p->inputs);
    if (p->parameters)
        print_tensors("parameters", p->parameter, p->parameters);
    print_tensors("outputs", p->output, p->outputs);
    print_operators("operators", p->op, p->operators);
    if (p->externals)
        print_operators("external", p->external, p->externals);
}

static equiforge_status print_torch(equiforge_session *session, const char *file)
{
    equiforge_program *program;
    equiforge_status status = equiforge_open(session, file, &program);
    const char *source = status == EQUIFORGE_OK ? equiforge_torch(program) : NULL;
    if (source)
        fputs(source, stdout);
    equiforge_close(program);
    return source ? EQUIFORGE_OK : EQUIFORGE_BAD_INPUT;
}

int cli_inspect(int argc, char **argv)
{
    const char *file = NULL;
    bool json = false, torch = false, text = false;
    const cli_option options[] = {
        {"--json", CLI_FLAG, &json}, {"--torch", CLI_FLAG, &torch}, {"--text", CLI_FLAG, &text}};
    if (!cli_arguments(argc, argv, options, 3, &file))
        return EQUIFORGE_BAD_INPUT;
    if (json + torch + text > 1)
        return cli_fail("inspect: --torch prints Python, --text the text form, --json JSON: choose one");
    equiforge_session *session = equiforge_session_new();
    equiforge_inspection inspection;
    equiforge_status status = torch ? print_torch(session, file) : equiforge_inspect_file(session, file, &inspection);
    if (status != EQUIFORGE_OK)
        cli_report(session, status);
    else if (torch)
        ; /* it is printed */
    else if (text)
        fputs(inspection.text, stdout);
    else if (!json)
        print_text(&inspection);
    else if (!print_json(&inspection))
        status = EQUIFORGE_FAILED;
    equiforge_session_free(session);
    return status;
}
