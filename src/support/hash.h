/* Interning: maps a byte string to a dense id, first seen first numbered. The hash is xxHash's XXH3. */
#ifndef EF_SUPPORT_HASH_H
#define EF_SUPPORT_HASH_H

#include <stddef.h>
#include <stdint.h>

typedef struct ef_intern ef_intern;

ef_intern *ef_intern_new(void);
void ef_intern_free(ef_intern *table);
/* The id of these bytes; *fresh tells whether they were new (fresh may be NULL). */
uint32_t ef_intern_put(ef_intern *table, const void *bytes, size_t size, int *fresh);
/* The id, or UINT32_MAX when the bytes were never put. */
uint32_t ef_intern_find(const ef_intern *table, const void *bytes, size_t size);
/* The bytes of an id; valid as long as the table. */
const void *ef_intern_at(const ef_intern *table, uint32_t id, size_t *size);
uint32_t ef_intern_count(const ef_intern *table);

uint64_t ef_hash(const void *bytes, size_t size);

#endif
