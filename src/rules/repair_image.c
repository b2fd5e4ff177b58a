/* The scalar image of f (see repair.h): what the computation of one element looks like, as a term over free inputs. */
#include <stdlib.h>

#include "rules/prove.h"
#include "rules/repair_parts.h"

static ef_expr free_input(ef_synthesis *y, ef_id class)
{
    unsigned i = 0;
    while (i < y->free_count && y->free_class[i] != class)
        i++;
    if (i == EF_MAX_FREE)
        return EF_NONE;
    if (i == y->free_count)
        y->free_class[y->free_count++] = class;
    return ef_prove_input(y->dag, "x", i);
}

static bool is_free(const ef_synthesis *y, ef_id class)
{
    for (unsigned i = 0; i < y->free_count; i++)
        if (y->free_class[i] == class)
            return true;
    return false;
}

/* What an operator is to one element: matmul a product, a reduction or view its operand, a condition its sign. */
static ef_expr element(ef_synthesis *y, ef_op op, ef_expr *child, unsigned count)
{
    if (op == EF_MATMUL || op == EF_TILE_MATMUL)
        return ef_dag_add(y->dag, EF_MUL, 0, child, 2, NULL);
    if (op == EF_REDUCE || op == EF_REDUCE_P || op == EF_VIEW || op == EF_CAST)
        return count ? child[0] : EF_NONE;
    if (op == EF_SELECT &&
        (child[0] = ef_dag_add(y->dag, EF_GT, 0, (ef_expr[]){child[0], ef_dag_const(y->dag, 0)}, 2, NULL)) == EF_NONE)
        return EF_NONE;
    return ef_dag_add(y->dag, op, 0, child, count, NULL);
}

#define OPEN_DEPTH 10

/* Whether pointwise operators alone lead from the class to a free input. */
static bool reaches_free(ef_synthesis *y, ef_id class, unsigned depth)
{
    ef_egraph *g = y->g;
    class = ef_find(g, class);
    ef_repair_look(y, class);
    if (is_free(y, class))
        return true;
    for (ef_id n = ef_class_first(g, class); n != EF_NONE && depth < OPEN_DEPTH; n = ef_class_next(g, n))
        for (unsigned i = 0; ef_op_pointwise((ef_op)g->op.at[n]) && i < g->arity.at[n]; i++)
            if (reaches_free(y, ef_node_children(g, n)[i], depth + 1))
                return true;
    return false;
}

/* A term of x alone. For the producer's operand it is opened as far as pointwise operators and reductions of p's own
 * dimension go (a tile of one element is enough to look at); for f only where that leads to inputs that the producer's
 * operand reads as well. */
static ef_expr independent_image(ef_synthesis *y, ef_id class, bool producer, unsigned depth)
{
    ef_egraph *g = y->g;
    double value;
    class = ef_find(g, class);
    ef_repair_look(y, class);
    if (is_free(y, class))
        return free_input(y, class);
    if (ef_repair_literal(y, class, &value))
        return ef_dag_const(y->dag, value);
    bool open = depth < OPEN_DEPTH && (producer || (y->expand && reaches_free(y, class, 0)));
    for (ef_id n = ef_class_first(g, class); n != EF_NONE && open; n = ef_class_next(g, n)) {
        ef_op op = (ef_op)g->op.at[n];
        ef_expr child[3] = {0};
        bool ok = (ef_op_pointwise(op) && ef_type_at(y->ctx, ef_egraph_type(g, n))->dtype != EF_BOOL) ||
                  (producer && op == EF_REDUCE && ef_repair_reduces(g, y->axis, n));
        bool leads = producer;
        for (unsigned i = 0; ok && !leads && i < g->arity.at[n]; i++)
            leads = reaches_free(y, ef_node_children(g, n)[i], depth);
        for (unsigned i = 0; ok && leads && i < g->arity.at[n]; i++)
            ok = (child[i] = independent_image(y, ef_node_children(g, n)[i], producer, depth + 1)) != EF_NONE;
        if (ok && leads)
            return element(y, op, child, g->arity.at[n]);
    }
    return free_input(y, class);
}

/* One element's view of f. */
ef_expr ef_repair_image(ef_synthesis *y, ef_id class, ef_way w, const ef_expr *s)
{
    ef_egraph *g = y->g;
    const ef_dependence d = *ef_repair_depends(y, class);
    double value;
    class = ef_find(g, class);
    for (unsigned i = 0; i < y->leaves; i++)
        if (class == ef_find(g, y->leaf[i]))
            return s[i];
    if (ef_repair_literal(y, class, &value))
        return ef_dag_const(y->dag, value);
    if (w == EF_INDEPENDENT)
        return independent_image(y, class, false, 0);
    ef_id n = d.node[w];
    ef_expr child[3] = {0};
    for (unsigned i = 0; i < g->arity.at[n]; i++)
        if ((child[i] = ef_repair_image(y, ef_node_children(g, n)[i], (ef_way)d.operand[w][i], s)) == EF_NONE)
            return EF_NONE;
    return element(y, (ef_op)g->op.at[n], child, g->arity.at[n]);
}

/* Evaluates a rank-0 expression. */
double ef_repair_value(const ef_synthesis *y, ef_expr e, const ef_point *p)
{
    const ef_expr *child;
    double x[3];
    unsigned count = ef_dag_children(y->dag, e, &child);
    if (ef_dag_op(y->dag, e) == EF_CONST)
        return ef_attr_to_number(ef_dag_attr(y->dag, e));
    if (ef_dag_op(y->dag, e) == EF_INPUT) {
        const char *name = ef_input_name(y->ctx, (uint32_t)ef_dag_attr(y->dag, e));
        unsigned index = (unsigned)strtoul(name + 2, NULL, 10);
        return name[1] == 'x' ? p->x[index] : p->s[index];
    }
    for (unsigned i = 0; i < count; i++)
        x[i] = ef_repair_value(y, child[i], p);
    return ef_op_apply(ef_dag_op(y->dag, e), ef_dag_attr(y->dag, e), x);
}

void ef_repair_inputs(ef_synthesis *y, ef_expr *s, ef_expr *t)
{
    for (unsigned i = 0; i < EF_MAX_LEAVES; i++) {
        s[i] = i < y->leaves ? ef_prove_input(y->dag, "s", i) : EF_NONE;
        t[i] = i < y->leaves ? ef_prove_input(y->dag, "t", i) : EF_NONE;
    }
}

bool ef_repair_image_jointly(ef_synthesis *y, ef_id consumer, ef_way used, ef_joint_image *j)
{
    ef_expr s[EF_MAX_LEAVES], t[EF_MAX_LEAVES];
    bool complete = true;
    ef_repair_inputs(y, s, t);
    y->free_count = 0;
    y->expand = true;
    for (unsigned i = 0; i < y->leaves; i++)
        complete = complete && (j->operand[i] = independent_image(y, y->local[i], true, 0)) != EF_NONE;
    complete = complete && (j->f = ef_repair_image(y, consumer, used, s)) != EF_NONE;
    y->free_count = 0;
    y->expand = false;
    return complete;
}
