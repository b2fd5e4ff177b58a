/* Private to src/kernel: one kernel made of two (merge.c), and who asks for it: beside.c for kernels that read the same
 * and have one grid, chain.c for what is computed element by element and its first reader, absorb.c for single numbers
 * and all of their readers.
 *
 * They have a common way to look for kernels: pairs, of which the first that suits becomes one, again and again. */
#ifndef EF_KERNEL_MERGE_H
#define EF_KERNEL_MERGE_H

#include "kernel/lower.h"

/* How two kernels become one. */
typedef enum {
    EF_MERGE_BESIDE,  /* both bodies in each block of one grid */
    EF_MERGE_ABSORBS, /* what the first stores is computed where the second reads it, all of it, and not stored */
    EF_MERGE_CHAINS   /* … the tile that is read; and stored */
} ef_merge_kind;

/* Two kernels that are becoming one. */
typedef struct {
    ef_kgraph *g;
    uint32_t at[2]; /* the kernels, the earlier one first */
    unsigned into;  /* which of them has the grid and the parameters of the result */
    ef_merge_kind kind;
    const ef_kernel *from[2];
    ef_kernel *to;
    ef_kid *node[2];      /* by node: its copy */
    uint32_t *iter[2];    /* by iterator */
    uint32_t *loop[2];    /* by loop */
    uint32_t *partner[2]; /* by loop: the other kernel's loop that it becomes one with */
    bool *copying[2];     /* by loop: its body is being copied */
    bool failed;
} ef_merging;

/* merge.c: kernels a and b as one; or b alone, with what it reads of a computed in it. NULL where they cannot be. The
 * graph stays as it is, but for parameters that only the result has. */
ef_kernel *ef_kernels_merged(ef_kgraph *g, uint32_t a, uint32_t b, ef_merge_kind kind);
/* The node's copy in the new kernel; sets `failed` when it can have none. */
ef_kid ef_merge_copy(ef_merging *m, unsigned side, ef_kid id);
/* Takes back what was copied of one of the kernels. */
void ef_merge_forget(ef_merging *m, unsigned side);
/* Whether one kernel may have the loops of both. */
bool ef_merge_few_loops(const ef_kgraph *g, uint32_t a, uint32_t b);

/* beside.c: finds the loops of both kernels that become one. */
void ef_beside_partners(ef_merging *m);

/* chain.c: whether a node of the second kernel is what the first stores; its copy, which is computed; and the store of
 * that. Whether a node moves elements of it, so that it cannot be copied. */
bool ef_chain_reads(const ef_merging *m, ef_kid id);
ef_kid ef_chain_copy(ef_merging *m, ef_kid id);
void ef_chain_store(ef_merging *m);
bool ef_chain_moves(const ef_merging *m, ef_kid id);

/* The kernels of a graph while pairs of them become one. Each has a number that no other one has or had. */
typedef struct {
    uint32_t number;
    uint32_t count, *buffer; /* the buffers that it reads */
    bool tried;              /* for who looks at pairs by their first: no pair that it is the first of can be one */
} ef_paired;

typedef struct {
    ef_kgraph *g;
    EF_VEC(ef_paired) kernel; /* by kernel */
    uint32_t numbers, words;
    uint64_t *after;    /* the kernels that each one waits for, directly or not: a bit matrix of `words` a row */
    ef_intern *refused; /* pairs of numbers: no reason to look at these again */
} ef_pairs;

/* pairs.c */
ef_pairs ef_pairs_of(ef_kgraph *g);
void ef_pairs_free(ef_pairs *p);
bool ef_pairs_waits(const ef_pairs *p, uint32_t kernel, uint32_t on);
/* Whether a kernel reads a buffer that another one stores. */
bool ef_pairs_reads(const ef_pairs *p, uint32_t kernel, uint32_t from);
bool ef_pairs_refused(const ef_pairs *p, uint32_t a, uint32_t b);
void ef_pairs_refuse(ef_pairs *p, uint32_t a, uint32_t b);
/* Makes one of two, in the place of the first, and puts what waits for it behind it. False, and refused, where they
 * cannot be one. */
bool ef_pairs_merge(ef_pairs *p, uint32_t a, uint32_t b, ef_merge_kind kind);

/* One kernel of two, as often as that is worth it. */
void ef_merge_beside(ef_kgraph *g);
void ef_merge_chains(ef_kgraph *g);
void ef_merge_absorbed(ef_kgraph *g);

#endif
