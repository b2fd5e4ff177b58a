/* What becomes a tile. Everything else is computed, element by element, inside the loops that fill the tiles.
 *
 * Products, reductions and loop states are tiles by nature. So is what a product reads, unless it can be read where it
 * lies. A pointwise value becomes one when computing it once pays: several tiles use it, it does not change in the
 * loop that uses it, or it is spread along a dimension that it does not have. */
#include <string.h>

#include "codegen/c_print.h"

#define COSTLY 6u
#define MOST 1000u

static bool is_pointwise(const ef_knode *node)
{
    return node->op < EF_OP_COUNT && ef_op_pointwise((ef_op)node->op);
}

static unsigned op_cost(uint32_t op)
{
    switch (op) {
    case EF_EXP:
    case EF_EXP2:
    case EF_LOG:
    case EF_LOG2:
    case EF_TANH:
    case EF_SIGMOID:
    case EF_ERF:
    case EF_SIN:
    case EF_COS:
    case EF_POW: return 10;
    case EF_SQRT:
    case EF_RSQRT:
    case EF_RECIP:
    case EF_DIV:
    case EF_MOD:
    case EF_FLOORDIV: return 4;
    default: return 1;
    }
}

/* What one element costs when nothing below is a tile. */
static void find_costs(ef_c *c)
{
    for (ef_kid id = 0; id < ef_kernel_nodes(c->kernel); id++) {
        const ef_knode *node = ef_kernel_node(c->kernel, id);
        unsigned cost = is_pointwise(node) ? op_cost(node->op) : 0;
        bool inside =
            is_pointwise(node) || (node->op < EF_OP_COUNT && ef_ops[node->op].class == EF_SHAPE) || node->op == EF_VIEW;
        for (unsigned i = 0; inside && i < node->count; i++)
            cost += c->node[node->child[i]].cost;
        c->node[id].cost = cost < MOST ? cost : MOST;
    }
}

ef_kid ef_c_base(ef_c *c, ef_kid id)
{
    for (;;) {
        const ef_knode *node = ef_kernel_node(c->kernel, id);
        switch (node->op) {
        case EF_VIEW:
        case EF_RESHAPE:
        case EF_TRANSPOSE:
        case EF_SLICE:
        case EF_BROADCAST:
        case EF_K_PICK:
            if (c->node[id].tile)
                return id;
            id = node->child[0];
            break;
        case EF_CONCAT:
        case EF_CONST:
        case EF_IOTA: return c->node[id].tile ? id : EF_NONE;
        default: return id;
        }
    }
}

static bool by_nature(uint32_t op)
{
    return op == EF_TILE_MATMUL || op == EF_REDUCE || op == EF_K_STATE || op == EF_K_RESULT;
}

static void plan_operands(ef_c *c, const ef_knode *matmul)
{
    if (ef_c_type((ef_dtype)matmul->dtype) < C_FLOAT)
        return;
    for (unsigned i = 0; i < 2; i++) {
        ef_kid base;
        if (ef_c_reading(c, matmul, i, &base) == C_READ_TILE)
            c->node[matmul->child[i]].tile = true;
        else if (ef_kernel_node(c->kernel, base)->op != EF_K_BUFFER)
            c->node[base].tile = true;
    }
}

/* Where the loops stand that compute a value: in its own region when it is a tile, else in its users'. */
typedef struct {
    ef_kid site; /* a tile, or EF_NONE - 1 for several */
    bool spread; /* along a dimension that it does not have */
    bool moved;  /* into a loop that it does not depend on */
} usage;

#define SEVERAL (EF_NONE - 1)

static bool lacks_a_dimension(const ef_knode *node, const ef_knode *user)
{
    for (unsigned i = 0; i < user->rank; i++)
        if (user->dim[i].dim != EF_UNIT && (i >= node->rank || node->dim[i].dim == EF_UNIT))
            return true;
    return false;
}

static void add_usage(ef_c *c, usage *use, ef_kid id, ef_kid user)
{
    const ef_knode *node = ef_kernel_node(c->kernel, id), *above = ef_kernel_node(c->kernel, user);
    bool tile = c->node[user].tile || by_nature(above->op);
    ef_kid site = tile ? user : use[user].site;
    use[id].site = use[id].site == EF_NONE || use[id].site == site ? site : SEVERAL;
    use[id].spread =
        use[id].spread || (is_pointwise(above) && lacks_a_dimension(node, above)) || (!tile && use[user].spread);
    use[id].moved = use[id].moved || ef_knode_region(node) != ef_knode_region(above) || (!tile && use[user].moved);
}

/* Users have larger numbers than their operands: downwards, all users of a node are decided before the node is. */
static void plan_pointwise(ef_c *c)
{
    ef_kid count = ef_kernel_nodes(c->kernel);
    usage *use = ef_xcalloc(count + 1, sizeof *use);
    for (ef_kid id = 0; id < count; id++)
        use[id].site = EF_NONE;
    for (uint32_t s = 0; s < c->kernel->stores.count; s++) {
        ef_kid value = c->kernel->stores.at[s].value;
        use[value].site = use[value].site == EF_NONE ? count + s : SEVERAL;
    }
    for (ef_kid id = count; id-- > 0;) {
        const ef_knode *node = ef_kernel_node(c->kernel, id);
        if (!c->use[id].needed)
            continue;
        bool costly = c->node[id].cost >= COSTLY;
        if (is_pointwise(node) &&
            ((costly && (use[id].site == SEVERAL || use[id].spread)) || (use[id].moved && c->node[id].cost > 0)))
            c->node[id].tile = true;
        if (node->op == EF_TILE_MATMUL)
            plan_operands(c, node);
        for (unsigned i = 0; i < node->count; i++)
            add_usage(c, use, node->child[i], id);
    }
    free(use);
}

void ef_c_plan(ef_c *c)
{
    const ef_kernel *k = c->kernel;
    find_costs(c);
    for (ef_kid id = 0; id < ef_kernel_nodes(k); id++) {
        const ef_knode *node = ef_kernel_node(k, id);
        if (!c->use[id].needed)
            continue;
        c->node[id].tile = by_nature(node->op);
        if (node->op == EF_K_LOOP)
            for (unsigned i = 0; i < k->loops.at[node->attr].leaves; i++)
                c->node[k->loops.at[node->attr].next[i]].tile = true;
    }
    plan_pointwise(c);
}
