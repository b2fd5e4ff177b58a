/* The property test of rules: `equiforge rules --check` (design, section 4). A rule without a passing check cannot be
 * merged. */
#ifndef EF_RULES_RULETEST_H
#define EF_RULES_RULETEST_H

#include "rules/language.h"

#define EF_RULES_INSTANCES 200u /* applied instances that every rule must have, unless told otherwise */

typedef struct {
    unsigned rules, failures;
    uint64_t instances; /* applied, of all rules */
} ef_rulecheck;

/* Called once a rule: `failure` is NULL when it holds, else lines of text that show the smallest instance found. */
typedef void (*ef_rulecheck_fn)(void *user, const ef_rule *rule, const char *failure, unsigned instances);

/* Tests every rule of the set on `instances` random instances of its left side. Everything follows from the seed and
 * the rule's name, so one rule's instances do not change when others come or go. True when all rules hold. `out` and
 * `report` may be NULL. */
bool ef_rules_check(const ef_ruleset *set, unsigned instances, uint64_t seed, ef_rulecheck *out, ef_rulecheck_fn report,
                    void *user);

#endif
