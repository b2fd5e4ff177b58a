/* The rule language (design, section 4). A rule file reads:
 *
 *     group algebraic
 *
 *     # (AB)C = A(BC)
 *     rule matmul-associate
 *       matmul(matmul(?a, ?b), ?c) <=> matmul(?a, matmul(?b, ?c))
 *       where CONDITION, ?p = BINDING(…)      what makes the rule true
 *       policy CONDITION                      where the search applies it
 *
 * Terms: ?x is any expression; ?f:unary, ?f:binary, ?f:ternary any pointwise operator of that arity; op[attributes](…)
 * as in the .ef text, with attribute variables (?i, ?p, ?V) in place of attributes. `view[?V](x)` stands for a whole
 * canonical chain of partition and replicate operators over the set of axes ?V (see ir/type.h); sets are written
 * {?p}, ?V + ?W, ?V - ?W, and a view or combination over the empty set is its operand. A number matches a literal.
 * `<=>` is two rules, NAME and NAME-back. `=> native NAME` names a builder in C (repair). */
#ifndef EF_RULES_LANGUAGE_H
#define EF_RULES_LANGUAGE_H

#include "egraph/pattern.h"
#include "support/arena.h"

typedef struct {
    EF_VEC(ef_rule) rules;
    ef_arena *arena;
} ef_ruleset;

/* Parses one rule file into the set; false and a message "file:line: …" on an error. */
bool ef_rules_parse(ef_ruleset *set, const char *file, const char *text, ef_diag *diag);
/* The built-in rule files, without the scalar rules; and the scalar rules alone (the repair prover's). NULL never: a
 * built-in file that does not parse is reported and aborts. */
ef_ruleset *ef_rules_builtin(void);
ef_ruleset *ef_rules_scalar(void);
void ef_ruleset_free(ef_ruleset *set);

/* conditions.c: NULL when there is no such condition. *policy tells that it speaks of the search, not of truth. */
ef_condition_fn ef_condition_named(const char *name, unsigned length);
/* repair.c and others. */
ef_builder_fn ef_builder_named(const char *name, unsigned length);

#endif
