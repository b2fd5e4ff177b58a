/* Derivations: why one program equals another, equation by equation (design, section 5). The first program is
 * saturated, the second one looked for; what is not found there is added, and saturation goes on. The proofs are then
 * validated by the separate checker (check.h).
 *
 * Of a program that is too large for one search the parts (partition.h) are looked for in the second one: each part is
 * saturated by itself, and what stands in the class of its outputs is what later parts read. */
#ifndef EF_SEARCH_DERIVE_H
#define EF_SEARCH_DERIVE_H

#include "search/saturate.h"

/* An instance of a rule: expressions in text form, on one line each. `output`: of the first program, or of one of its
 * parts, whose proof it is part of. */
typedef struct {
    const char *output, *rule, *before, *after;
} ef_equation;

typedef struct {
    bool contained;   /* every output of the second stood in its counterpart's class after saturating the first alone */
    bool equal;       /* every output is equal to its counterpart */
    bool saturated;   /* the search was complete: what is not equal cannot be shown by these rules */
    const char *stop; /* why the search ended, NULL: it did not come that far */
    bool checked;     /* the checker accepted every proof */
    uint32_t equations;
    const ef_equation *equation; /* by output, then in the order in which the search found them */
} ef_derivation;

/* Both programs in one context, with outputs of the same types. False and a message when they are not equal or the
 * checker refuses a proof; *out is filled in as far as it came. Strings are the arena's. */
bool ef_derive(const ef_program *from, const ef_program *to, const ef_search_options *options, ef_arena *arena,
               ef_derivation *out, ef_diag *diag);

#endif
