/* What rules remember about one e-graph from one application to the next, so that nothing is worked out twice: the
 * lemmas of the repair prover, and the fusions that it refused. It belongs to whoever runs the rules, and is
 * part of its policy (policy.h); without one (rules --check) nothing is remembered. */
#ifndef EF_RULES_MEMORY_H
#define EF_RULES_MEMORY_H

typedef struct ef_rule_memory ef_rule_memory;

ef_rule_memory *ef_rule_memory_new(void);
void ef_rule_memory_free(ef_rule_memory *memory);

#endif
