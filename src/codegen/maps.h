/* Index maps, for every code generator: how the indices of a node's operand follow from its own.
 *
 * Views, transposes, slices, … leave no code: they change the indices with which their operand is read. An index vector
 * has one entry for each variable of each dimension, outermost first, so splitting and merging dimensions does nothing.
 * An entry counts from where the node's cut begins; entries of what is not cut count from 0. */
#ifndef EF_CODEGEN_MAPS_H
#define EF_CODEGEN_MAPS_H

#include "codegen/index.h"
#include "kernel/schedule.h"

#define EF_MAP_ENTRIES (EF_MAX_RANK * EF_MAX_ATOMS) /* of an index vector, at most */

typedef struct {
    const ef_kgraph *graph;
    const ef_schedule *schedule;
    const ef_kernel *kernel;
    ef_indexer *ix;
    const ef_index
        *start; /* by iterator: the first position of its tile, in the whole dimension; a pick: its position */
} ef_maps;

/* Where the entries of a dimension begin in the index vector of a node. */
unsigned ef_map_dim_at(const ef_maps *maps, const ef_knode *node, unsigned dim);
/* The position along a whole dimension. */
ef_index ef_map_position(const ef_maps *maps, ef_dim dim, const ef_index *index);
/* The indices of an operand, whose dimensions broadcast to the node's. */
void ef_map_spread(const ef_maps *maps, const ef_knode *node, const ef_knode *child, const ef_index *index,
                   ef_index *inner);
/* The same indices but for one dimension, whose position in the operand is given. */
void ef_map_replace(const ef_maps *maps, const ef_knode *node, const ef_knode *child, unsigned dim, ef_index position,
                    const ef_index *index, ef_index *inner);
/* One step through an index map: the operand and its indices. False when the node is none. */
bool ef_map_step(const ef_maps *maps, ef_kid id, const ef_index *index, ef_kid *child, ef_index *inner);
/* The address of an element of a buffer. `node`: the buffer, or what is stored there, which has the buffer's dimensions
 * in the variables of this kernel; `lead`: positions in leading dimensions that the node has not. */
ef_index ef_map_address(const ef_maps *maps, uint32_t buffer, const ef_knode *node, const ef_index *lead,
                        unsigned leads, const ef_index *index);

#endif
