/* Growable arrays: EF_VEC(T) is a struct {T *at; uint32_t count, capacity}. Freed by ef_vec_free. After a reserve or
 * push `at` is never NULL. */
#ifndef EF_SUPPORT_VEC_H
#define EF_SUPPORT_VEC_H

#include <stdint.h>
#include <stdlib.h>

#include "support/arena.h"

#define EF_VEC(T)                 \
    struct {                      \
        T *at;                    \
        uint32_t count, capacity; \
    }

#define ef_vec_reserve(v, n)                                                   \
    do {                                                                       \
        uint32_t ef_need_ = (uint32_t)(n);                                     \
        if (!(v)->at || ef_need_ > (v)->capacity) {                            \
            uint32_t ef_cap_ = (v)->capacity ? (v)->capacity * 2 : 8;          \
            if (ef_cap_ < ef_need_)                                            \
                ef_cap_ = ef_need_;                                            \
            (v)->at = ef_xrealloc((v)->at, (size_t)ef_cap_ * sizeof *(v)->at); \
            (v)->capacity = ef_cap_;                                           \
        }                                                                      \
    } while (0)

#define ef_vec_push(v, x)                    \
    do {                                     \
        ef_vec_reserve((v), (v)->count + 1); \
        (v)->at[(v)->count++] = (x);         \
    } while (0)

#define ef_vec_free(v)                  \
    do {                                \
        free((v)->at);                  \
        (v)->at = NULL;                 \
        (v)->count = (v)->capacity = 0; \
    } while (0)

#endif
