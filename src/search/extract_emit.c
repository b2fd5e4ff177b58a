/* Expressions from picks. The choices of a program are in x->pick, by stored slot; a kernel's own picks come from its
 * body, so the same class may be computed differently in two kernels. */
#include <string.h>

#include "search/extract_private.h"

typedef struct {
    ef_extractor *x;
    ef_expr *stored;   /* memo, by stored slot */
    uint32_t *way;     /* the kernel's picks, by slot: way + 1 */
    ef_expr *computed; /* memo of the kernel, by slot */
    uint32_t number;   /* of emitters: that of x->cone_made */
} emitter;

static ef_expr add(emitter *e, const ef_option *o, const ef_expr *child)
{
    for (uint32_t i = 0; i < o->count; i++)
        if (child[i] == EF_NONE)
            return EF_NONE;
    return ef_dag_add(e->x->result->dag, ef_option_op(e->x, o), ef_option_attr(e->x, o), child, o->count, NULL);
}

static ef_expr emit_slot(emitter *e, ef_slot_id id);

static ef_expr emit_cone(emitter *e, uint32_t cone)
{
    const ef_cone *c = &e->x->cones.at[cone];
    const ef_option *o = ef_option_at(e->x, c->option);
    ef_expr child[EF_CONE_OPERANDS] = {0};
    if (e->x->cone_made[cone] == e->number)
        return e->x->cone_expr[cone];
    for (uint32_t i = 0; i < o->count; i++)
        child[i] = c->inner[i] == EF_NONE ? emit_slot(e, e->x->child.at[o->first + i]) : emit_cone(e, c->inner[i]);
    e->x->cone_made[cone] = e->number;
    return e->x->cone_expr[cone] = add(e, o, child);
}

static ef_expr emit_option(emitter *e, const ef_option *o)
{
    ef_expr child[EF_MAX_CHILDREN] = {0};
    if (o->kind == EF_OPTION_LOADS) {
        child[0] = ef_emit_stored(e->x, e->x->child.at[o->first], e->stored);
        return o->node == EF_NONE ? child[0] : add(e, o, child);
    }
    for (uint32_t i = 0; i < o->count; i++)
        child[i] = emit_slot(e, e->x->child.at[o->first + i]);
    return add(e, o, child);
}

static ef_expr emit_slot(emitter *e, ef_slot_id id)
{
    const ef_extractor *x = e->x;
    if (e->computed[id] != EF_NONE)
        return e->computed[id];
    const ef_way *w = e->way[id] ? &x->way_list.at[e->way[id] - 1] : NULL;
    ef_expr result = EF_NONE;
    if (w)
        result = w->option == EF_NONE ? emit_cone(e, w->cone) : emit_option(e, ef_option_at(x, w->option));
    else if (x->slots.at[id].count == 1) /* a constant is never picked */
        result = emit_option(e, ef_option_at(x, x->slots.at[id].first));
    return e->computed[id] = result;
}

static ef_expr emit_body(ef_extractor *x, const ef_body *b, ef_expr *memo)
{
    uint32_t n = x->slots.count;
    emitter e = {x, memo, ef_xcalloc(n, sizeof *e.way), ef_xcalloc(n, sizeof *e.computed), ++x->emitters};
    memset(e.computed, 0xff, n * sizeof *e.computed);
    for (uint32_t i = 0; i < b->picks; i++)
        e.way[b->pick[2 * i]] = b->pick[2 * i + 1] + 1;
    ef_expr root = emit_slot(&e, b->root);
    free(e.way);
    free(e.computed);
    return root;
}

ef_expr ef_emit_stored(ef_extractor *x, ef_slot_id id, ef_expr *memo)
{
    ef_expr child[EF_MAX_CHILDREN] = {0};
    const ef_eslot *s = &x->slots.at[id];
    if (memo[id] != EF_NONE)
        return memo[id];
    const ef_choice c = x->pick[id] ? x->choices.at[x->pick[id] - 1] : (ef_choice){s->first, EF_NONE};
    const ef_option *o = ef_option_at(x, c.option);
    emitter e = {.x = x};
    if (o->kind == EF_OPTION_KERNEL) {
        child[0] = c.body == EF_NONE ? EF_NONE : emit_body(x, &x->bodies.at[c.body], memo);
        return memo[id] = o->node == EF_NONE ? child[0] : add(&e, o, child);
    }
    for (uint32_t i = 0; i < o->count; i++)
        child[i] = ef_emit_stored(x, x->child.at[o->first + i], memo);
    return memo[id] = add(&e, o, child);
}

/* Where nothing can be extracted the program stands as it was written: one kernel an operator. */
void ef_keep_original(ef_extractor *x)
{
    const ef_program *program = x->search->program;
    ef_dag *from = program->dag;
    uint32_t count = ef_dag_count(from);
    ef_expr *copy = ef_xcalloc(count, sizeof *copy);
    ef_candidate c = {.output = ef_xcalloc(program->outputs, sizeof *c.output)};
    for (ef_expr e = 0; e < count; e++) {
        const ef_expr *child;
        ef_expr mapped[EF_MAX_CHILDREN];
        unsigned n = ef_dag_children(from, e, &child);
        for (unsigned i = 0; i < n; i++)
            mapped[i] = copy[child[i]];
        copy[e] = ef_dag_add_exact(x->result->dag, ef_dag_op(from, e), ef_dag_attr(from, e), mapped, n, NULL);
        if (ef_ops[ef_dag_op(from, e)].class != EF_LEAF)
            c.cost += ef_option_cost(x, &(ef_option){.kind = EF_OPTION_KERNEL}, ef_dag_type(from, e));
    }
    for (uint32_t i = 0; i < program->outputs; i++)
        c.output[i] = copy[program->output[i].expr];
    free(copy);
    x->result->candidates = 1;
    if (x->options->keep)
        ef_vec_push(&x->result->candidate, c);
    else
        free(c.output);
}
