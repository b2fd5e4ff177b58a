/* Room for tiles: see room.h. */
#include "target/room.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "target/reads.h"
#include "target/sizes.h"

#define THREADS 32.0        /* of a warp */
#define THREAD_BYTES 1020.0 /* 255 registers of 4 bytes */
#define OWN_BYTES 64.0  /* that a thread needs besides tiles, where all registers of a unit are those of one block */
#define RESERVED 1024.0 /* bytes of shared memory that a block cannot have */
#define LEAST_ROWS 16.0 /* of a product on the matrix unit, and of a part */
#define PART 16384.0    /* elements of what is walked through in parts */
#define GROUP_ROWS 64.0 /* of a product that four warps work on together */
#define GROUP_WARPS 4.0
#define GROUP_SHARED 200e3 /* bytes of shared memory that devices with such products have at least */
#define BESIDES 1.35       /* addresses, and operands that are read ahead, for each byte of terms and operands */
#define COMPUTED_BYTES 4.0 /* of an element that is computed in a loop: in float32 */
#define LEAST_BYTES 2.0    /* of an element in a register; truth values are in predicates, or computed again */

/* Of how many tensors elements come from memory, moved at most; 0: they are computed. */
static unsigned loaded_from(const ef_sizes *z, ef_kid id)
{
    ef_read reads[EF_MOST_READS];
    return ef_kernel_reads(z->g, z->k, id, reads);
}

static bool is_computed(const ef_knode *n)
{
    return n->dtype != EF_BOOL && n->dtype != EF_NUM &&
           (n->op == EF_TILE_MATMUL || (n->op < EF_OP_COUNT && ef_op_pointwise((ef_op)n->op)));
}

/* Whether a node's tile is that of a state of its loop, which it becomes. */
static bool becomes_state(const ef_kernel *k, const ef_knode *n)
{
    uint32_t loop = ef_knode_region(n);
    for (unsigned i = 0; loop != EF_NONE && i < k->loops.at[loop].leaves; i++) {
        const ef_knode *state = ef_kernel_node(k, k->loops.at[loop].state[i]);
        if (state->rank == n->rank && memcmp(state->dim, n->dim, sizeof n->dim) == 0)
            return true;
    }
    return false;
}

static double states(const ef_sizes *z)
{
    const ef_kernel *k = z->k;
    double bytes = 0;
    for (uint32_t l = 0; l < k->loops.count; l++) {
        double own = 0;
        for (unsigned i = 0; i < k->loops.at[l].leaves; i++)
            own += 4 * ef_padded_elements(z, ef_kernel_node(k, k->loops.at[l].state[i]));
        bytes = fmax(bytes, own); /* loops may stand one after the other */
    }
    return bytes;
}

/* ---- shared memory ---- */

typedef struct {
    const ef_sizes *z;
    double stages, warps;
    bool groups;                                                   /* the device has products of four warps together */
    bool *loaded;                                                  /* by node: counted */
    double operand[EF_K_MAX_LOOPS + 1], other[EF_K_MAX_LOOPS + 1]; /* bytes by loop; the last: without one */
    bool holds[EF_K_MAX_LOOPS + 1]; /* it has a loop inside, or a product that goes on in parts: it is no pipeline */
    bool grouped[EF_K_MAX_LOOPS + 1], product[EF_K_MAX_LOOPS + 1]; /* it has such a product, any product */
    double parts, converted; /* bytes of the parts of a product; of operands that are computed */
} staging;

static void find_nests(staging *t)
{
    double often;
    for (uint32_t i = 0; i < t->z->k->loops.count && i < EF_K_MAX_LOOPS; i++)
        if (!t->z->unrolled[i])
            t->holds[ef_innermost(t->z, ef_kernel_node(t->z->k, t->z->k->loops.at[i].node), &often)] = true;
}

static double bytes_of(const staging *t, ef_kid id)
{
    const ef_knode *n = ef_kernel_node(t->z->k, id);
    return ef_padded_elements(t->z, n) * ef_dtype_bytes((ef_dtype)n->dtype);
}

/* Whether a block computes several products at a time. */
static bool is_batched(const staging *t, const ef_knode *n)
{
    const ef_knode *b = ef_kernel_node(t->z->k, n->child[1]);
    double batch = 1; /* what one operand has alone is rows or columns */
    for (unsigned d = 2; d < n->rank && d < b->rank && d < EF_MAX_RANK; d++)
        batch *= b->dim[d].dim == EF_UNIT ? 1 : ef_padded_extent(t->z, &n->dim[d]);
    return batch > 1;
}

/* How many times as large an operand of the matrix unit is because it has fewer rows or columns than that takes. */
static double padding(const staging *t, const ef_knode *n, unsigned operand)
{
    const ef_knode *x = ef_kernel_node(t->z->k, n->child[operand]);
    double depth = ef_padded_extent(t->z, &ef_kernel_node(t->z->k, n->child[0])->dim[0]);
    return is_batched(t, n) ? 1 : fmax(1, LEAST_ROWS / (ef_padded_elements(t->z, x) / depth));
}

/* The longest variable of a dimension of a tile: what goes on in parts, goes along this one; the others stay whole. */
static double longest_variable(const ef_sizes *z, const ef_kdim *along)
{
    const ef_var *atom;
    double longest = 1;
    for (unsigned i = 0, count = ef_dim_atoms(z->g->ctx, along->dim, &atom); i < count; i++)
        longest = fmax(longest,
                       ef_padded(i == 0 && along->cut != EF_NONE ? (double)ef_sched_tile(z->g, z->s, z->k, along->cut)
                                                                 : (double)ef_sched_var(z->g, z->s, atom[i])));
    return longest;
}

/* A product whose operands are too large goes on in parts of its inner dimension, a loop of its own. */
static bool goes_in_parts(const ef_sizes *z, const ef_knode *n, double *part)
{
    double most = 0, whole = longest_variable(z, &ef_kernel_node(z->k, n->child[0])->dim[0]), now = whole;
    for (unsigned i = 0; i < 2; i++)
        most = fmax(most, ef_padded_elements(z, ef_kernel_node(z->k, n->child[i])));
    while (most > PART && now > LEAST_ROWS) {
        most /= 2;
        now /= 2;
    }
    *part = now / whole;
    return now < whole;
}

double ef_room_term_parts(double terms, double depth)
{
    double parts = 1;
    while (terms > PART && depth > LEAST_ROWS) {
        depth /= 2;
        terms /= 2;
        parts *= 2;
    }
    return parts;
}

double ef_room_parts(const ef_sizes *z, const ef_knode *product)
{
    double part;
    goes_in_parts(z, product, &part);
    return 1 / part;
}

/* Whether four warps work on a product together, with operands from shared memory. */
static bool is_grouped(const staging *t, const ef_knode *n)
{
    const ef_knode *a = ef_kernel_node(t->z->k, n->child[0]);
    double rows = ef_padded_elements(t->z, a) / ef_padded_extent(t->z, &a->dim[0]);
    return t->groups && !is_batched(t, n) && rows >= GROUP_ROWS && t->warps >= GROUP_WARPS;
}

/* How many iterations' loads a loop holds: a product of a group reads them while the next ones come. */
static double ahead(const staging *t, bool grouped)
{
    return grouped || t->stages <= 2 ? fmax(1, grouped ? t->stages : 1) : t->stages - 1;
}

static void count_load(staging *t, ef_kid id, bool of_product, double padding)
{
    double often;
    if (t->loaded[id] || !loaded_from(t->z, id))
        return;
    uint32_t loop = ef_innermost(t->z, ef_kernel_node(t->z->k, id), &often);
    t->loaded[id] = true;
    *(of_product ? &t->operand[loop] : &t->other[loop]) += often * padding * bytes_of(t, id);
}

static void count_product(staging *t, const ef_knode *n)
{
    double part, often, bytes = 0;
    uint32_t loop = ef_innermost(t->z, n, &often);
    bool grouped = is_grouped(t, n);
    if (goes_in_parts(t->z, n, &part)) {
        for (unsigned i = 0; i < 2; i++) {
            bytes += part * padding(t, n, i) * bytes_of(t, n->child[i]);
            t->loaded[n->child[i]] = true;
        }
        t->parts = fmax(t->parts, bytes * ahead(t, grouped));
        t->holds[loop] = true;
        return;
    }
    t->grouped[loop] = t->grouped[loop] || grouped;
    for (unsigned i = 0; i < 2; i++)
        if (loaded_from(t->z, n->child[i]))
            count_load(t, n->child[i], true, padding(t, n, i));
        else if (!grouped || i == 1)
            t->converted = fmax(t->converted, padding(t, n, i) * bytes_of(t, n->child[i]));
}

/* The stages of a loop hold what it loads; what a product takes from registers goes through shared memory as well. */
static double staged(staging *t, bool unit)
{
    double most = 0;
    find_nests(t);
    for (ef_kid id = 0; id < ef_kernel_nodes(t->z->k); id++) {
        double often;
        const ef_knode *n = ef_kernel_node(t->z->k, id);
        if (n->op != EF_TILE_MATMUL)
            continue;
        t->product[ef_innermost(t->z, n, &often)] = true;
        if (unit)
            count_product(t, n);
    }
    for (ef_kid id = 0; id < ef_kernel_nodes(t->z->k); id++)
        for (unsigned i = 0, count = loaded_from(t->z, id) ? 0 : ef_kernel_node(t->z->k, id)->count; i < count; i++)
            count_load(t, ef_kernel_node(t->z->k, id)->child[i], false, 1);
    for (uint32_t i = 0; i < EF_K_MAX_LOOPS; i++) {
        double other = t->product[i] && !t->holds[i] && t->stages > 1 ? t->other[i] : 0;
        most = fmax(most, t->holds[i] ? t->operand[i] : (t->operand[i] + other) * ahead(t, t->grouped[i]));
    }
    return fmax(most, t->parts) + t->converted + t->operand[EF_K_MAX_LOOPS];
}

/* ---- registers ---- */

/* Elements of a tile that is added up along one of its dimensions, of which it goes on in parts. */
static double walked(const ef_sizes *z, double all, const ef_kdim *along)
{
    double longest = longest_variable(z, along);
    while (all > PART && longest > LEAST_ROWS) {
        longest /= 2;
        all /= 2;
    }
    return all;
}

static bool has_dim(const ef_knode *n, unsigned dim)
{
    return dim < n->rank && n->dim[dim].dim != EF_UNIT;
}

/* Whether a product has columns (1) or rows (0): what one operand has alone is that as well. */
static bool has_side(const ef_kernel *k, const ef_knode *n, bool columns)
{
    const ef_knode *own = ef_kernel_node(k, n->child[columns]), *other = ef_kernel_node(k, n->child[!columns]);
    bool has = has_dim(n, columns ? 0 : 1);
    for (unsigned d = 2; d < n->rank; d++)
        has = has || (has_dim(own, d) && !has_dim(other, d));
    return has;
}

/* Elements of the tile of a product: its terms, with the inner dimension when they are added up outside of the matrix
 * unit, as they are where there are no columns. */
static double product(const ef_sizes *z, const ef_knode *n, bool unit)
{
    const ef_kernel *k = z->k;
    const ef_kdim *inner = &ef_kernel_node(k, n->child[0])->dim[0];
    double own = ef_padded_elements(z, n);
    if (unit && has_side(k, n, true))
        return has_side(k, n, false) ? own : own * LEAST_ROWS;
    return walked(z, own * ef_padded_extent(z, inner), inner);
}

/* What the threads hold of the operands of a product on the matrix unit, in bytes: warps that share rows or columns
 * each have their own copy. */
static double fragments(const staging *t, const ef_knode *n)
{
    const ef_knode *a = ef_kernel_node(t->z->k, n->child[0]);
    bool lone = n->rank < 2 || n->dim[1].dim == EF_UNIT, batched = is_batched(t, n);
    double part, rows = ef_padded_elements(t->z, a) / ef_padded_extent(t->z, &a->dim[0]);
    double across = fmin(t->warps, fmax(1, rows / LEAST_ROWS));
    goes_in_parts(t->z, n, &part);
    if (is_grouped(t, n))
        return 0;
    return part * (bytes_of(t, n->child[0]) * (lone ? LEAST_ROWS : 1) * (batched ? 1 : t->warps / across) +
                   bytes_of(t, n->child[1]) * (batched ? 1 : across));
}

ef_room ef_room_of(const ef_kgraph *g, const ef_schedule *s, uint32_t kernel, const ef_target *target)
{
    const ef_kernel *k = g->kernels.at[kernel];
    double warps = (double)ef_sched_value(g, s, kernel, EF_PARAM_WARPS), tile = 0;
    ef_room room = {.register_room = fmin(target->register_bytes - THREADS * OWN_BYTES * warps,
                                          THREADS * THREAD_BYTES * fmax(warps, 1))};
    bool unit = ef_sched_value(g, s, kernel, EF_PARAM_UNIT) != 0;
    const ef_sizes sizes = ef_sizes_of(g, s, kernel);
    ef_sizes narrow = sizes, *z = &narrow; /* rows that are added take few registers */
    narrow.wide = 0;
    staging t = {.z = z, .warps = warps, .groups = target->shared_bytes >= GROUP_SHARED};
    t.stages = (double)ef_sched_value(g, s, kernel, EF_PARAM_STAGES);
    double held = states(z);
    double beside = 0; /* the largest tile that a loop computes while it has its states */
    double summed = 0; /* terms of products that loops add up */
    for (ef_kid id = 0; id < ef_kernel_nodes(k); id++) {
        const ef_knode *n = ef_kernel_node(k, id);
        double bytes =
            is_computed(n) ? ef_padded_elements(z, n) * fmax(ef_dtype_bytes((ef_dtype)n->dtype), LEAST_BYTES) : 0;
        double often;
        bool in_loop = ef_innermost(z, n, &often) != EF_K_MAX_LOOPS;
        tile = fmax(tile, bytes);
        if (in_loop && is_computed(n) && !becomes_state(k, n))
            beside = fmax(beside, ef_padded_elements(z, n) * fmax(ef_dtype_bytes((ef_dtype)n->dtype), COMPUTED_BYTES));
        if (n->op == EF_TILE_MATMUL) {
            double terms = product(z, n, unit), on_unit = 4 * terms;
            double held_too = unit ? fragments(&t, n) : 0;
            on_unit = held_too > 0 ? BESIDES * (on_unit + held_too) : on_unit;
            if (in_loop)
                summed = unit ? fmax(summed, on_unit) : summed + 4 * terms;
            else
                tile = fmax(tile, unit ? on_unit : 4 * terms);
            room.elements = fmax(room.elements, terms);
        }
        if (n->op == EF_REDUCE) {
            const ef_knode *x = ef_kernel_node(k, n->child[0]);
            double all = ef_padded_elements(z, x), part = walked(z, all, &x->dim[ef_attr_reduce_at(n->attr)]);
            room.elements = fmax(room.elements, part < all ? 0 : all);
        }
    }
    room.registers = fmax(fmax(tile, beside > 0 ? BESIDES * (held + beside) : held), summed);
    t.loaded = ef_xcalloc(ef_kernel_nodes(k) + 1, sizeof *t.loaded);
    t.z = &sizes;
    room.shared = staged(&t, unit);
    free(t.loaded);
    return room;
}

double ef_room_excess(const ef_room *room, const ef_target *target)
{
    double registers = room->registers / room->register_room;
    return fmax(fmax(registers, room->elements / EF_MOST_ELEMENTS), room->shared / (target->shared_bytes - RESERVED));
}

bool ef_room_fits(const ef_kgraph *g, const ef_schedule *s, uint32_t kernel, const ef_target *target)
{
    if (!target->gpu)
        return true;
    ef_room room = ef_room_of(g, s, kernel, target);
    return ef_room_excess(&room, target) <= 1;
}
