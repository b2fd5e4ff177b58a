/* The search's policy (see rules/policy.h): which classes are worth a kernel, and which reductions are worth pairing.
 */
#ifndef EF_SEARCH_POLICY_H
#define EF_SEARCH_POLICY_H

#include "rules/policy.h"
#include "support/hash.h"

struct cone;

typedef struct ef_policy_state {
    ef_policy policy;              /* first: rule conditions see this */
    EF_VEC(uint8_t) storable;      /* by class root, as of the last update */
    EF_VEC(uint8_t) view_of_input; /* by class root, as of the last update */
    EF_VEC(ef_id) outputs;
    ef_intern *paired;       /* pairs that have their tuple */
    struct pairing *pairing; /* what the last update saw of reductions */
    struct walk *walk;       /* marks that walks over classes share */
    struct {
        struct cone *at;
        uint32_t count, capacity;
    } cones; /* what the last update saw of who reduces what */
} ef_policy_state;

ef_policy_state *ef_policy_new(uint64_t split_min, uint64_t whole_max);
void ef_policy_free(ef_policy_state *state);
/* Recomputes what is storable, and introduces tuples for reductions that may fuse. Classes whose standing changed are
 * marked as changed, so that incremental matching looks at them again. */
void ef_policy_update(const ef_scope *scope);
/* Nodes were set aside: what is storable is asked anew in the next update. */
void ef_policy_forget(ef_policy_state *state);
/* The index that application records of the policy's own structural step (tuple introduction) carry. */
#define EF_RULE_TUPLE_INTRO (EF_NONE - 1)

#endif
