/* Union-find over dense 32-bit ids, path halving (Tarjan and van Leeuwen). The caller says which root survives. */
#ifndef EF_EGRAPH_UNIONFIND_H
#define EF_EGRAPH_UNIONFIND_H

#include <stdint.h>

#include "support/vec.h"

typedef struct {
    EF_VEC(uint32_t) parent;
} ef_unionfind;

static inline uint32_t ef_uf_make(ef_unionfind *uf)
{
    uint32_t id = uf->parent.count;
    ef_vec_push(&uf->parent, id);
    return id;
}

static inline uint32_t ef_uf_find(ef_unionfind *uf, uint32_t id)
{
    uint32_t *parent = uf->parent.at;
    while (parent[id] != id) {
        parent[id] = parent[parent[id]];
        id = parent[id];
    }
    return id;
}

/* Both must be roots; `winner` stays one. */
static inline void ef_uf_link(ef_unionfind *uf, uint32_t winner, uint32_t loser)
{
    uf->parent.at[loser] = winner;
}

#endif
