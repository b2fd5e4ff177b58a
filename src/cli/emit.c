/* equiforge emit FILE: prints a program as code. */
#include <stdio.h>
#include <string.h>

#include "cli.h"

int cli_emit(int argc, char **argv)
{
    const char *file = NULL;
    equiforge_emit_options emit = {.language = "triton"};
    const cli_option options[] = {{"--language", CLI_TEXT, &emit.language},
                                  {"--name", CLI_TEXT, &emit.name},
                                  {"--dims", CLI_TEXT, &emit.dims},
                                  {"--schedule", CLI_TEXT, &emit.schedule}};
    if (!cli_arguments(argc, argv, options, sizeof options / sizeof *options, &file))
        return EQUIFORGE_BAD_INPUT;
    equiforge_session *session = equiforge_session_new();
    equiforge_program *program;
    const char *source = NULL;
    equiforge_status status = equiforge_open(session, file, &program);
    if (status == EQUIFORGE_OK)
        status = equiforge_emit(program, &emit, &source);
    if (status == EQUIFORGE_OK)
        fputs(source, stdout);
    else
        cli_report(session, status);
    equiforge_close(program);
    equiforge_session_free(session);
    return status;
}
