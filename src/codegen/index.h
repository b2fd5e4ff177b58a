/* Index arithmetic for generated code: integer expressions in the form c + sum of coefficient * symbol, so that strides
 * can be read off an address and trivial terms never reach the generated text.
 *
 * A symbol is a variable of the generated code, or a quotient, remainder or clamped value of another expression. All
 * values are interned: equal expressions have equal ids. Indices are never negative. */
#ifndef EF_CODEGEN_INDEX_H
#define EF_CODEGEN_INDEX_H

#include <stdbool.h>
#include <stdint.h>

#include "support/strbuf.h"

typedef struct ef_indexer ef_indexer;
typedef uint32_t ef_index;

ef_indexer *ef_indexer_new(void);
void ef_indexer_free(ef_indexer *x);

ef_index ef_index_const(ef_indexer *x, int64_t value);
/* A variable of the generated code, below `limit` (0: no limit known). */
ef_index ef_index_name(ef_indexer *x, const char *name, uint64_t limit);
ef_index ef_index_add(ef_indexer *x, ef_index a, ef_index b);
ef_index ef_index_sub(ef_indexer *x, ef_index a, ef_index b);
ef_index ef_index_scale(ef_indexer *x, ef_index a, int64_t factor);
ef_index ef_index_div(ef_indexer *x, ef_index a, uint64_t by);
ef_index ef_index_mod(ef_indexer *x, ef_index a, uint64_t by);
/* The value forced into [0, limit). */
ef_index ef_index_clamp(ef_indexer *x, ef_index a, uint64_t limit);
/* The coefficient of a variable; false when the expression depends on it in another way too. */
bool ef_index_coefficient(ef_indexer *x, ef_index a, ef_index name, int64_t *coefficient);
/* Whether the expression depends on a variable. */
bool ef_index_depends(ef_indexer *x, ef_index a, ef_index name);
/* The terms that depend on any of these variables; what is left is a minus it. */
ef_index ef_index_part(ef_indexer *x, ef_index a, const ef_index *name, unsigned count);
/* The same expression with another variable in place of this one, which has the same values. */
ef_index ef_index_rename(ef_indexer *x, ef_index a, ef_index name, ef_index other);
bool ef_index_is_const(const ef_indexer *x, ef_index a, int64_t *value);
void ef_index_print(const ef_indexer *x, ef_index a, ef_strbuf *out); /* as C, with ef_clamp(value, limit) */
void ef_index_print_triton(const ef_indexer *x, ef_index a, ef_strbuf *out);

#endif
