/* Room for tiles: see room.h. */
#include "target/room.h"

#include <math.h>
#include <stdlib.h>

#define THREADS 32.0        /* of a warp */
#define THREAD_BYTES 1020.0 /* 255 registers of 4 bytes */
#define RESERVED 1024.0     /* bytes of shared memory that a block cannot have */
#define LEAST_BYTES 2.0     /* of an element in a register; truth values are in predicates, or computed again */

static double padded(uint64_t extent)
{
    return exp2(ceil(log2((double)(extent ? extent : 1))));
}

/* Elements of a node's tile. */
static double elements(const ef_kgraph *g, const ef_schedule *s, const ef_kernel *k, const ef_knode *n)
{
    double product = 1;
    for (unsigned d = 0; d < n->rank; d++) {
        const ef_var *atom;
        double own = 1;
        for (unsigned i = 0, count = ef_dim_atoms(g->ctx, n->dim[d].dim, &atom); i < count; i++)
            own *= i == 0 && n->dim[d].cut != EF_NONE ? (double)ef_sched_tile(g, s, k, n->dim[d].cut)
                                                      : (double)ef_sched_var(g, s, atom[i]);
        product *= padded((uint64_t)own);
    }
    return product;
}

/* Whether elements come from memory as they are. */
static bool is_loaded(const ef_kernel *k, ef_kid id)
{
    for (;;) {
        const ef_knode *n = ef_kernel_node(k, id);
        bool moves = n->op == EF_VIEW || n->op == EF_K_PICK || (n->op < EF_OP_COUNT && ef_ops[n->op].class == EF_SHAPE);
        if (!moves || n->count != 1)
            return n->op == EF_K_BUFFER;
        id = n->child[0];
    }
}

static bool is_computed(const ef_knode *n)
{
    return n->dtype != EF_BOOL && n->dtype != EF_NUM &&
           (n->op == EF_TILE_MATMUL || (n->op < EF_OP_COUNT && ef_op_pointwise((ef_op)n->op)));
}

static double states(const ef_kgraph *g, const ef_schedule *s, const ef_kernel *k)
{
    double bytes = 0;
    for (uint32_t l = 0; l < k->loops.count; l++) {
        double own = 0;
        for (unsigned i = 0; i < k->loops.at[l].leaves; i++)
            own += 4 * elements(g, s, k, ef_kernel_node(k, k->loops.at[l].state[i]));
        bytes = fmax(bytes, own); /* loops may stand one after the other */
    }
    return bytes;
}

/* What products on the matrix unit load, each tensor once. */
static double operands(const ef_kgraph *g, const ef_schedule *s, const ef_kernel *k, const ef_knode *n, bool *loaded)
{
    double bytes = 0;
    for (unsigned i = 0; i < n->count; i++) {
        const ef_knode *operand = ef_kernel_node(k, n->child[i]);
        if (!is_loaded(k, n->child[i]) || loaded[n->child[i]] || operand->loops != n->loops)
            continue; /* what does not change in the loop can stay in registers */
        loaded[n->child[i]] = true;
        bytes += elements(g, s, k, operand) * ef_dtype_bytes((ef_dtype)operand->dtype);
    }
    return bytes;
}

/* All but one of the stages of a loop hold what its products load; of a second loop the same memory. */
static double staged(const ef_kgraph *g, const ef_schedule *s, uint32_t kernel)
{
    const ef_kernel *k = g->kernels.at[kernel];
    uint64_t stages = ef_sched_value(g, s, kernel, EF_PARAM_STAGES);
    double most = 0, bytes[EF_K_MAX_LOOPS + 1] = {0};
    bool *loaded = ef_xcalloc(ef_kernel_nodes(k) + 1, sizeof *loaded);
    for (ef_kid id = 0; id < ef_kernel_nodes(k) && ef_sched_value(g, s, kernel, EF_PARAM_UNIT); id++) {
        const ef_knode *n = ef_kernel_node(k, id);
        uint32_t loop = ef_knode_region(n);
        if (n->op == EF_TILE_MATMUL && loop != EF_NONE)
            bytes[loop] += operands(g, s, k, n, loaded);
    }
    for (uint32_t i = 0; i < k->loops.count && i < EF_K_MAX_LOOPS; i++)
        most = fmax(most, bytes[i] * (double)(stages > 2 ? stages - 1 : 1));
    free(loaded);
    return most;
}

ef_room ef_room_of(const ef_kgraph *g, const ef_schedule *s, uint32_t kernel, const ef_target *target)
{
    const ef_kernel *k = g->kernels.at[kernel];
    double warps = (double)ef_sched_value(g, s, kernel, EF_PARAM_WARPS), tile = 0, held = states(g, s, k);
    ef_room room = {.register_room = fmin(target->register_bytes, THREADS * THREAD_BYTES * fmax(warps, 1))};
    for (ef_kid id = 0; id < ef_kernel_nodes(k); id++) {
        const ef_knode *n = ef_kernel_node(k, id);
        double bytes =
            is_computed(n) ? elements(g, s, k, n) * fmax(ef_dtype_bytes((ef_dtype)n->dtype), LEAST_BYTES) : 0;
        tile = fmax(tile, bytes);
    }
    room.registers = fmax(tile, held);
    room.shared = staged(g, s, kernel);
    return room;
}

bool ef_room_fits(const ef_kgraph *g, const ef_schedule *s, uint32_t kernel, const ef_target *target)
{
    if (!target->gpu)
        return true;
    ef_room room = ef_room_of(g, s, kernel, target);
    return room.registers <= room.register_room && room.shared <= target->shared_bytes - RESERVED;
}
