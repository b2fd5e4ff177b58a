/* Arena: see arena.h. Blocks double in size up to 1 MiB, larger requests get a block of their own. */
#include "support/arena.h"

#include <stdalign.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct block {
    struct block *next;
    size_t used, size;
    alignas(max_align_t) unsigned char bytes[];
} block;

struct ef_arena {
    block *head;
    size_t used;
};

static void out_of_memory(void)
{
    fputs("equiforge: out of memory\n", stderr);
    abort();
}

void *ef_xrealloc(void *old, size_t size)
{
    void *p = realloc(old, size ? size : 1);
    if (!p)
        out_of_memory();
    return p;
}

void *ef_xcalloc(size_t count, size_t size)
{
    void *p = calloc(count ? count : 1, size ? size : 1);
    if (!p)
        out_of_memory();
    return p;
}

ef_arena *ef_arena_new(void)
{
    return ef_xcalloc(1, sizeof(ef_arena));
}

void ef_arena_free(ef_arena *arena)
{
    if (!arena)
        return;
    for (block *b = arena->head; b;) {
        block *next = b->next;
        free(b);
        b = next;
    }
    free(arena);
}

void *ef_arena_alloc(ef_arena *arena, size_t size)
{
    const size_t align = alignof(max_align_t);
    size = (size + align - 1) / align * align;
    block *b = arena->head;
    if (!b || b->size - b->used < size) {
        size_t capacity = b ? b->size * 2 : 4096;
        if (capacity > (size_t)1 << 20)
            capacity = (size_t)1 << 20;
        if (capacity < size)
            capacity = size;
        b = ef_xcalloc(1, sizeof(block) + capacity);
        b->size = capacity;
        b->next = arena->head;
        arena->head = b;
    }
    void *p = b->bytes + b->used;
    b->used += size;
    arena->used += size;
    return p;
}

char *ef_arena_strndup(ef_arena *arena, const char *text, size_t length)
{
    char *copy = ef_arena_alloc(arena, length + 1);
    memcpy(copy, text, length);
    return copy;
}

size_t ef_arena_used(const ef_arena *arena)
{
    return arena->used;
}
