/* Arena: bump allocation with one owner, freed at once (design, section 11).
 *
 * Every long-lived object of the library belongs to exactly one arena. Memory is zeroed. Allocation failure aborts
 * the process with one line: there is nothing sensible to do without memory in a batch tool. */
#ifndef EF_SUPPORT_ARENA_H
#define EF_SUPPORT_ARENA_H

#include <stddef.h>

typedef struct ef_arena ef_arena;

ef_arena *ef_arena_new(void);
void ef_arena_free(ef_arena *arena);
/* Zeroed memory, aligned for any type. */
void *ef_arena_alloc(ef_arena *arena, size_t size);
/* A NUL-terminated copy of the first `length` bytes of `text`. */
char *ef_arena_strndup(ef_arena *arena, const char *text, size_t length);
/* Bytes handed out so far. */
size_t ef_arena_used(const ef_arena *arena);

/* realloc, calloc that abort with one line when memory is out. */
void *ef_xrealloc(void *old, size_t size);
void *ef_xcalloc(size_t count, size_t size);

#endif
