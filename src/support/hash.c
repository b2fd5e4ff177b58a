/* Interning: see hash.h. Open addressing with linear probing over ids; keys live in an arena. */
#include "support/hash.h"

#include <string.h>
#include <xxhash.h>

#include "support/vec.h"

typedef struct {
    const void *bytes;
    size_t size;
    uint64_t hash;
} key;

struct ef_intern {
    ef_arena *arena;
    EF_VEC(key) keys;
    uint32_t *slot; /* id + 1, 0 = empty */
    uint32_t mask;
};

uint64_t ef_hash(const void *bytes, size_t size)
{
    return XXH3_64bits(bytes, size);
}

ef_intern *ef_intern_new(void)
{
    ef_intern *t = ef_xcalloc(1, sizeof *t);
    t->arena = ef_arena_new();
    t->mask = 63;
    t->slot = ef_xcalloc(t->mask + 1, sizeof *t->slot);
    return t;
}

void ef_intern_free(ef_intern *t)
{
    if (!t)
        return;
    ef_arena_free(t->arena);
    ef_vec_free(&t->keys);
    free(t->slot);
    free(t);
}

/* The slot that holds the key, or the empty slot where it would go. */
static uint32_t probe(const ef_intern *t, const void *bytes, size_t size, uint64_t hash)
{
    uint32_t i = (uint32_t)hash & t->mask;
    while (t->slot[i]) {
        const key *k = &t->keys.at[t->slot[i] - 1];
        if (k->hash == hash && k->size == size && (size == 0 || memcmp(k->bytes, bytes, size) == 0))
            break;
        i = (i + 1) & t->mask;
    }
    return i;
}

static void grow(ef_intern *t)
{
    free(t->slot);
    t->mask = t->mask * 2 + 1;
    t->slot = ef_xcalloc((size_t)t->mask + 1, sizeof *t->slot);
    for (uint32_t id = 0; id < t->keys.count; id++) {
        uint32_t i = (uint32_t)t->keys.at[id].hash & t->mask;
        while (t->slot[i])
            i = (i + 1) & t->mask;
        t->slot[i] = id + 1;
    }
}

uint32_t ef_intern_put(ef_intern *t, const void *bytes, size_t size, int *fresh)
{
    uint64_t hash = ef_hash(bytes, size);
    uint32_t i = probe(t, bytes, size, hash);
    if (fresh)
        *fresh = t->slot[i] == 0;
    if (t->slot[i])
        return t->slot[i] - 1;
    void *copy = ef_arena_alloc(t->arena, size);
    if (size)
        memcpy(copy, bytes, size);
    ef_vec_push(&t->keys, ((key){copy, size, hash}));
    t->slot[i] = t->keys.count;
    if ((t->keys.count + 1) * 2 > t->mask)
        grow(t);
    return t->keys.count - 1;
}

uint32_t ef_intern_find(const ef_intern *t, const void *bytes, size_t size)
{
    uint32_t slot = t->slot[probe(t, bytes, size, ef_hash(bytes, size))];
    return slot ? slot - 1 : UINT32_MAX;
}

const void *ef_intern_at(const ef_intern *t, uint32_t id, size_t *size)
{
    if (size)
        *size = t->keys.at[id].size;
    return t->keys.at[id].bytes;
}

uint32_t ef_intern_count(const ef_intern *t)
{
    return t->keys.count;
}
