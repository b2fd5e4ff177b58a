/* Nodes as code generators see them: see nodes.h. */
#include "codegen/nodes.h"

#include <math.h>

static void mark(const ef_kernel *k, ef_use *use, ef_kid id, ef_kid user)
{
    const ef_knode *node = ef_kernel_node(k, id);
    use[id].users++;
    use[id].user = user;
    if (use[id].needed)
        return;
    use[id].needed = true;
    for (unsigned i = 0; i < node->count; i++)
        mark(k, use, node->child[i], id);
    if (node->op != EF_K_LOOP)
        return;
    const ef_kloop *loop = &k->loops.at[node->attr];
    for (unsigned i = 0; i < loop->leaves; i++)
        mark(k, use, loop->next[i], id);
}

ef_use *ef_uses_new(const ef_kernel *k)
{
    ef_use *use = ef_xcalloc(ef_kernel_nodes(k) + 1, sizeof *use);
    for (uint32_t s = 0; s < k->stores.count; s++)
        mark(k, use, k->stores.at[s].value, EF_NONE);
    return use;
}

static bool is_whole(double value)
{
    return value == floor(value) && fabs(value) <= 0x1p53;
}

unsigned ef_operands_meet(const ef_operand *operand, unsigned count, unsigned integer, unsigned real)
{
    unsigned type = integer;
    bool any = false;
    for (unsigned i = 0; i < count; i++) {
        if (!operand[i].literal && (!any || operand[i].type > type))
            type = operand[i].type;
        any = any || !operand[i].literal;
    }
    for (unsigned i = 0; i < count; i++)
        if (operand[i].literal && type < real && (!any || !is_whole(operand[i].value)))
            type = real;
    return type;
}
