/* The handles of the public interface, for the files that implement it. Private to src/api*.c. */
#ifndef EF_API_H
#define EF_API_H

#include "codegen/execute.h"
#include "equiforge.h"
#include "frontend/module.h"
#include "ir/expr.h"
#include "plan/plan.h"
#include "rules/language.h"
#include "search/derive.h"
#include "support/arena.h"
#include "support/interrupt.h"
#include "support/vec.h"

struct equiforge_session {
    ef_ctx *ctx;
    ef_diag diag;
    ef_ruleset *builtin, *scalar; /* NULL until asked for */
    EF_VEC(equiforge_rule) rules;
    ef_arena *report;     /* of the last rule check */
    ef_arena *inspection; /* of the last file inspected */
    ef_arena *optimum;    /* of the last optimisation */
    ef_arena *python;     /* of the last command line asked for */
    atomic_int ending;    /* an ef_ending, asked of the optimisation that runs */
};

struct equiforge_program {
    equiforge_session *session;
    ef_program *ir;
    ef_module *module; /* owns `ir` when it came from an archive; else NULL */
    ef_arena *inspection, *torch, *search, *explanation, *run;
};

struct equiforge_plan {
    equiforge_session *session;
    ef_plan *plan;
    ef_native *native; /* by region; without a library until it is prepared */
    char *description;
    ef_arena *result, *explanation;
};

/* Every call that can fail starts here: the message is about this call alone. */
ef_diag *ef_api_diag(equiforge_session *session);
/* An empty arena in place of the old one. */
ef_arena *ef_api_arena(ef_arena **arena);
/* What a program consists of, in an arena. */
void ef_api_inspect(const ef_program *ir, ef_arena *arena, equiforge_inspection *inspection);
/* Limits of the search; NULL: all 0. */
ef_search_options ef_api_options(const equiforge_limits *limits);
/* A derivation as the public interface shows it; shares its strings. */
void ef_api_explanation(const ef_derivation *derivation, ef_arena *arena, equiforge_explanation *explanation);

#endif
