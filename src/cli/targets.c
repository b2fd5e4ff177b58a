/* equiforge targets: what optimize can be for, and what of it this machine has. */
#include <stdio.h>

#include "cli.h"

static bool print_json(const equiforge_target *targets, size_t count)
{
    json_t *list = json_array();
    for (size_t i = 0; i < count; i++)
        json_array_append_new(list, json_pack("{s:s, s:s, s:b}", "name", targets[i].name, "kind", targets[i].kind,
                                              "available", targets[i].available));
    return cli_json(json_pack("{s:o}", "targets", list));
}

int cli_targets(int argc, char **argv)
{
    bool json = false;
    const cli_option options[] = {{"--json", CLI_FLAG, &json}};
    const equiforge_target *targets;
    if (!cli_arguments(argc, argv, options, 1, NULL))
        return EQUIFORGE_BAD_INPUT;
    size_t count = equiforge_targets(&targets);
    if (json)
        return print_json(targets, count) ? EQUIFORGE_OK : EQUIFORGE_FAILED;
    for (size_t i = 0; i < count; i++)
        printf("%-11s  %s  %s\n", targets[i].name, targets[i].kind, targets[i].available ? "available" : "not here");
    return EQUIFORGE_OK;
}
