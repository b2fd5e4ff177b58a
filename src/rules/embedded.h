/* The rule files as text inside the library. The build generates the definitions from the .rules files
 * (tools/embed.py). */
#ifndef EF_RULES_EMBEDDED_H
#define EF_RULES_EMBEDDED_H

typedef struct {
    const char *file; /* "algebraic.rules" */
    const char *text;
} ef_embedded_file;

extern const ef_embedded_file ef_embedded_rules[];
extern const unsigned ef_embedded_rule_count; /* files, not rules */

#endif
