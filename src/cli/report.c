/* equiforge report OUT.efz -o report.html: one page about an optimised module. */
#include "cli.h"

int cli_report_page(int argc, char **argv)
{
    const char *file = NULL, *page = NULL;
    const cli_option options[] = {{"-o", CLI_TEXT, &page}};
    if (!cli_arguments(argc, argv, options, 1, &file))
        return EQUIFORGE_BAD_INPUT;
    if (!page)
        return cli_fail("report: -o PAGE is missing; see equiforge report --help");
    if (cli_is_one_file(file, page))
        return cli_fail("report: '%s' would be overwritten: -o takes another file", file);
    equiforge_session *session = equiforge_session_new();
    equiforge_plan *plan;
    equiforge_status status = equiforge_plan_open(session, file, &plan);
    if (status == EQUIFORGE_OK)
        status = equiforge_plan_report(plan, page);
    if (status != EQUIFORGE_OK)
        cli_report(session, status);
    equiforge_plan_close(plan);
    equiforge_session_free(session);
    return status;
}
